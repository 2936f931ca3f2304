//! Expressions of PCRE for a decoded path, as expressions for the path of a condition.
//!
//! The two differ in three ways. In the path of a condition, a percent sign stays `%25`, and a
//! reading can have `%2F` and `%00`. In PCRE, `$` also matches before a line break at the end of a
//! text. In PCRE, `.` matches no line break.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{AssertionKind, Ast, Flag, Flags, FlagsItemKind, GroupKind};
use regex_syntax::ast::{Repetition, RepetitionKind, Span};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, HirKind};

/// The deepest group of an expression.
const DEPTH_MAX: u32 = 32;

/// A character that stays encoded in the path of a condition.
const ENCODED: &str = "%[0-9A-F]{2}";

/// The expression for the path of a condition. `None`: no expression means the same.
pub(crate) fn for_condition(expression: &str) -> Option<String> {
    let ast = ParserBuilder::new().nest_limit(DEPTH_MAX).build().parse(expression).ok()?;
    let mut edits = Edits { expression, all: Vec::new() };
    edits.read(&ast, Next::Nothing)?;
    let may_start_inside = edits.may_start_inside(&ast, Next::Nothing);
    let (mut text, mut from) = (String::new(), 0);
    for (span, edit) in &edits.all {
        assert!(from <= span.start.offset, "edits are in the order of the text");
        text += &expression[from..span.start.offset];
        text += edit;
        from = span.end.offset;
    }
    text += &expression[from..];
    Some(match may_start_inside {
        true => format!("^(?:[^%]|{ENCODED})*?(?:{text})"),
        false => text,
    })
}

/// What must match after a part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// The end of the path.
    End,
    Literal(char),
    Other,
}

impl Next {
    /// What must match after the part with this number.
    fn after(all: &[Ast], at: usize, outer: Next) -> Next {
        match all.get(at + 1) {
            None => outer,
            Some(Ast::Literal(literal)) => Next::Literal(literal.c),
            Some(Ast::Assertion(one)) if one.kind == AssertionKind::EndLine => Next::End,
            Some(_) => Next::Other,
        }
    }

    /// Whether this cannot match inside an encoded character.
    fn is_outside(self) -> bool {
        match self {
            Next::Nothing | Next::End => true,
            Next::Literal(c) => !c.is_ascii_hexdigit(),
            Next::Other => false,
        }
    }
}

/// The parts of an expression that become others.
struct Edits<'e> {
    expression: &'e str,
    all: Vec<(Span, String)>,
}

impl Edits<'_> {
    fn edit(&mut self, span: &Span, text: impl Into<String>) {
        self.all.push((*span, text.into()));
    }

    /// Reads a part. `None`: no expression means the same.
    fn read(&mut self, ast: &Ast, next: Next) -> Option<()> {
        match ast {
            Ast::Empty(_) => {}
            Ast::Flags(set) => only_case(&set.flags)?,
            Ast::Literal(one) if one.c == '%' => self.edit(&one.span, "%25"),
            // In PCRE, `\v` is a class.
            Ast::Literal(one) if one.c == '\x0b' => return None,
            Ast::Literal(_) => {}
            Ast::Dot(span) => self.edit(span, format!("(?:[^%\\n]|{ENCODED})")),
            Ast::ClassPerl(_) | Ast::ClassBracketed(_) => self.class(ast)?,
            Ast::ClassUnicode(_) => return None,
            Ast::Assertion(one) => match one.kind {
                AssertionKind::StartLine | AssertionKind::StartText | AssertionKind::EndText => {}
                // Another part could match the line break.
                AssertionKind::EndLine
                    if next == Next::Nothing || next.is_outside() && next != Next::End =>
                {
                    self.edit(&one.span, r"\n?\z");
                }
                _ => return None,
            },
            Ast::Repetition(one) => self.repetition(one, next)?,
            Ast::Group(group) => {
                if let GroupKind::NonCapturing(flags) = &group.kind {
                    only_case(flags)?;
                }
                self.read(&group.ast, next)?;
            }
            Ast::Alternation(all) => all.asts.iter().try_for_each(|one| self.read(one, next))?,
            Ast::Concat(all) => {
                for (at, one) in all.asts.iter().enumerate() {
                    let before = at.checked_sub(1).map(|at| &all.asts[at]);
                    if !is_end_of_word(before, one) {
                        self.read(one, Next::after(&all.asts, at, next))?;
                    }
                }
            }
        }
        Some(())
    }

    fn repetition(&mut self, one: &Repetition, next: Next) -> Option<()> {
        // In PCRE, `a*+` gives nothing back.
        if matches!(*one.ast, Ast::Repetition(_)) {
            return None;
        }
        if self.is_whole(one, next) {
            if let (Ast::Dot(span), true) = (&*one.ast, next != Next::Nothing) {
                self.edit(span, r"[^\n]");
            }
            return Some(());
        }
        if let Ast::Literal(literal) = &*one.ast
            && literal.c == '%'
        {
            self.edit(&literal.span, "(?:%25)");
            return Some(());
        }
        let is_once = one.op.kind == RepetitionKind::ZeroOrOne;
        self.read(&one.ast, if is_once { next } else { Next::Other })
    }

    /// Whether a repeated class matches encoded characters whole as it is: it matches all of their
    /// bytes, and what comes next does not match inside them.
    fn is_whole(&self, one: &Repetition, next: Next) -> bool {
        let all =
            one.op.kind == RepetitionKind::ZeroOrMore || one.op.kind == RepetitionKind::OneOrMore;
        all && next.is_outside()
            && self.has(&one.ast).is_some_and(|has| b"%0123456789ABCDEF".iter().all(|b| has(*b)))
    }

    fn class(&mut self, class: &Ast) -> Option<()> {
        let has = self.has(class)?;
        if has(b'%') {
            let span = class.span();
            let text = &self.expression[span.start.offset..span.end.offset];
            // A class of all but a few signs has the encoded characters.
            let encoded = if has(0xff) { ENCODED } else { "%25" };
            self.edit(span, format!("(?:[{text}--%]|{encoded})"));
        }
        Some(())
    }

    /// Whether the first character that an expression matches can be inside an encoded character.
    fn may_start_inside(&self, ast: &Ast, next: Next) -> bool {
        match ast {
            Ast::Literal(one) => one.c.is_ascii_hexdigit(),
            Ast::Repetition(one) => {
                !self.is_whole(one, next) && self.may_start_inside(&one.ast, next)
            }
            Ast::Group(group) => self.may_start_inside(&group.ast, next),
            Ast::Alternation(all) => all.asts.iter().any(|one| self.may_start_inside(one, next)),
            Ast::Concat(all) => {
                for (at, one) in all.asts.iter().enumerate() {
                    if self.may_start_inside(one, Next::after(&all.asts, at, next)) {
                        return true;
                    }
                    if !may_be_empty(one) {
                        return false;
                    }
                }
                false
            }
            Ast::Assertion(_) | Ast::Empty(_) | Ast::Flags(_) => false,
            _ => self.has(ast).is_none_or(|has| b"0123456789ABCDEF".iter().any(|b| has(*b))),
        }
    }

    /// Which bytes a class matches, in any case.
    fn has(&self, class: &Ast) -> Option<impl Fn(u8) -> bool + use<>> {
        let is_class = matches!(class, Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_));
        let mut translator =
            TranslatorBuilder::new().unicode(false).utf8(false).case_insensitive(true).build();
        let hir = translator.translate(self.expression, class).ok().filter(|_| is_class)?;
        let ranges: Vec<(u8, u8)> = match hir.into_kind() {
            HirKind::Class(Class::Bytes(class)) => {
                class.iter().map(|range| (range.start(), range.end())).collect()
            }
            HirKind::Class(Class::Unicode(class)) => {
                let byte = |c: char| u8::try_from(c).unwrap_or(u8::MAX);
                class.iter().map(|range| (byte(range.start()), byte(range.end()))).collect()
            }
            HirKind::Literal(literal) => literal.0.iter().map(|byte| (*byte, *byte)).collect(),
            _ => return None,
        };
        Some(move |byte| ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)))
    }
}

/// Whether this is the end of a word after a character of the word. An encoded character is no part
/// of a word, as the percent sign before it.
fn is_end_of_word(before: Option<&Ast>, ast: &Ast) -> bool {
    let is_word = |one: &Ast| matches!(one, Ast::Literal(one) if one.c.is_ascii_alphanumeric());
    let is_boundary =
        |one: &Ast| matches!(one, Ast::Assertion(one) if one.kind == AssertionKind::WordBoundary);
    before.is_some_and(is_word) && is_boundary(ast)
}

/// Whether a part may match without a character. `^` does not count: the path begins there.
fn may_be_empty(ast: &Ast) -> bool {
    match ast {
        Ast::Literal(_) | Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => false,
        Ast::Assertion(one) => {
            !matches!(one.kind, AssertionKind::StartLine | AssertionKind::StartText)
        }
        Ast::Repetition(one) => one.op.kind != RepetitionKind::OneOrMore || may_be_empty(&one.ast),
        Ast::Group(group) => may_be_empty(&group.ast),
        Ast::Alternation(all) => all.asts.iter().any(may_be_empty),
        Ast::Concat(all) => all.asts.iter().all(may_be_empty),
        _ => true,
    }
}

/// `None`: a flag changes more than the case.
fn only_case(flags: &Flags) -> Option<()> {
    let is_case = |kind: &FlagsItemKind| {
        matches!(kind, FlagsItemKind::Negation | FlagsItemKind::Flag(Flag::CaseInsensitive))
    };
    flags.items.iter().all(|one| is_case(&one.kind)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_pcre_is_also_before_a_last_line_break() {
        for (text, wanted) in [
            (r"\.php$", r"\.php\n?\z"),
            (r"(?i)\.(php|sql)$", r"(?i)\.(php|sql)\n?\z"),
            (r"^/a($|/)", r"^/a(\n?\z|/)"),
            (r"^/a(/|$)?", r"^/a(/|\n?\z)?"),
            (r"^/[$]\$/x", r"^/[$]\$/x"),
            (r"^/a$|^/b", r"^/a\n?\z|^/b"),
            (r"^/x/(.*)$", r"^/x/([^\n]*)\n?\z"),
            (r"^/x.*\.y", r"^/x[^\n]*\.y"),
            (r"^/x/.*", r"^/x/.*"),
            (r"^/x\b", r"^/x\b"),
        ] {
            assert_eq!(for_condition(text).as_deref(), Some(wanted), "{text}");
        }
        for text in [r"(a|$)[^/]", r"(a|$)*", "(?m)^/a$", "(?s).", r"\ba", r"/\b", "a*+", r"\v"] {
            assert_eq!(for_condition(text), None, "{text}");
        }
    }

    #[test]
    fn a_percent_sign_is_encoded_in_the_path_of_a_condition() {
        for (text, wanted) in [
            ("^/.$", r"^/(?:[^%\n]|%[0-9A-F]{2})\n?\z"),
            ("^/[^/]+/x", "^/[^/]+/x"),
            ("^/[^/]/x", "^/(?:[[^/]--%]|%[0-9A-F]{2})/x"),
            ("^/[^/]*5", "^/(?:[[^/]--%]|%[0-9A-F]{2})*5"),
            ("^/[^%]", "^/[^%]"),
            ("/100%", "/100%25"),
            ("/%+[!-/]", "/(?:%25)+(?:[[!-/]--%]|%25)"),
            (r"/\W\x25", r"/(?:[\W--%]|%[0-9A-F]{2})%25"),
            (r"\d$", r"^(?:[^%]|%[0-9A-F]{2})*?(?:\d\n?\z)"),
            ("(/|5)x", "^(?:[^%]|%[0-9A-F]{2})*?(?:(/|5)x)"),
            (r".*\.php", r"[^\n]*\.php"),
            ("x5", "x5"),
        ] {
            assert_eq!(for_condition(text).as_deref(), Some(wanted), "{text}");
        }
    }
}

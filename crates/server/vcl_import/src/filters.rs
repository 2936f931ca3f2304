//! Substitutions in the field Cookie, which leave some cookies in it.
//!
//! A program takes out the cookies that its origin does not read, and passes requests that have
//! others. The remainder is not known for a cell, but whether there is one is a condition on
//! the client's own field.

use super::lexer::{Word, call};
use imported::cel::{self, Cel};

/// What substitutions left of the client's cookies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// All but the cookies with these names.
    Without(Vec<String>),
    /// All, behind a semicolon.
    Led,
    /// The same without spaces.
    Packed,
    /// The same, with a space before the cookies with this name.
    Marked(String),
    /// The cookies with this name.
    Only(String),
}

/// The most names, each of them an expression.
const NAMES_MAX: usize = 32;

/// Signs of an expression that matches the signs between cookies only.
const BETWEEN: &str = r"^$;\s *+?()[]|,";

/// The expressions before the name of a cookie that is taken out.
const STARTS: [&str; 12] = [
    r"(^|;\s*)",
    r"(^|;\s?)",
    r"(^|; *)",
    r"(^|;) *",
    r"(^|; )",
    r"(^|;)",
    r"(?:^|;\s*)",
    r"(;|^)\s*",
    r"(\A|;\s*)",
    r";?\s*",
    "; *",
    "",
];

/// The expressions behind its value.
const ENDS: [&str; 12] = [
    "(;)?", r"(;\s*)?", "(; )?", "(; *)?", r";?\s*", ";? *", r"(;|\z)", "(;|$)", r";?\s", "; ?",
    ";?", "",
];

/// What a value of the field Cookie does with the cookies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// Only the signs between cookies change.
    Nothing,
    /// A semicolon comes before all.
    Leads,
    /// The spaces behind semicolons are removed.
    Packs,
    /// Cookies with these names are taken out.
    Removes(String),
    /// Cookies with these names are marked by a space before them.
    Marks(String),
    /// Cookies that are not marked are taken out.
    RemovesOthers,
}

/// Which cookies are left after a value of the field `to`. `None`: that is not known.
pub(super) fn filtered(to: &str, value: &[Word], before: Option<&Filter>) -> Option<Filter> {
    let none = Filter::Without(Vec::new());
    let before = before.unwrap_or(&none).clone();
    match (change(to, value)?, before) {
        (Change::Nothing, before) => Some(before),
        (Change::Removes(name), Filter::Without(mut names)) => {
            names.push(name);
            (names.len() <= NAMES_MAX).then_some(Filter::Without(names))
        }
        (Change::Leads, Filter::Without(names)) if names.is_empty() => Some(Filter::Led),
        (Change::Packs, Filter::Led) => Some(Filter::Packed),
        (Change::Packs, Filter::Without(names)) => Some(Filter::Without(names)),
        (Change::Marks(name), Filter::Packed) => Some(Filter::Marked(name)),
        (Change::RemovesOthers, Filter::Marked(name)) => Some(Filter::Only(name)),
        (
            Change::Leads
            | Change::Packs
            | Change::Removes(_)
            | Change::Marks(_)
            | Change::RemovesOthers,
            _,
        ) => None,
    }
}

fn change(to: &str, value: &[Word]) -> Option<Change> {
    let is_own = |word: &Word| matches!(word, Word::Name(name) if name.eq_ignore_ascii_case(to));
    // `";" + req.http.Cookie`
    if let [Word::Text(sign), Word::Sign("+"), own] = value
        && is_own(own)
        && sign == ";"
    {
        return Some(Change::Leads);
    }
    let (name, arguments) = call(value)?;
    let [own, Word::Text(pattern), Word::Text(with)] = arguments[..] else { return None };
    if !is_own(own) || !matches!(name, "regsub" | "regsuball") {
        return None;
    }
    let all = name == "regsuball";
    if all && pattern == "; +" && with == ";" {
        return Some(Change::Packs);
    }
    if all && pattern == ";[^ ][^;]*" && with.is_empty() {
        return Some(Change::RemovesOthers);
    }
    let stays = with.chars().all(|c| matches!(c, ';' | ' '));
    if !pattern.is_empty() && pattern.chars().all(|c| BETWEEN.contains(c)) && stays {
        return Some(Change::Nothing);
    }
    // Only all substitutions concern all cookies.
    if !all {
        return None;
    }
    if let Some(rest) = pattern.strip_prefix(";(")
        && let Some(names) = rest.strip_suffix(")=")
        && with == r"; \1="
    {
        return is_name(names).then(|| Change::Marks(names.to_owned()));
    }
    if !matches!(with.as_str(), "" | r"\1" | ";" | "; ") {
        return None;
    }
    let names = STARTS.iter().find_map(|start| named(pattern.strip_prefix(start)?))?;
    Some(Change::Removes(names))
}

/// The names before `=` and a value, up to the end of an expression.
fn named(pattern: &str) -> Option<String> {
    let values = ["[^;]+", "[^;]*", "([^;]+)", "([^;]*)"];
    let (names, rest) = match pattern.strip_prefix('(') {
        Some(inner) => {
            let end = closing(inner)?;
            (&pattern[..end + 2], &inner[end + 1..])
        }
        // Without brackets an alternative ends the whole expression.
        None => match pattern.split_at(pattern.find('=')?) {
            (names, _) if names.contains('|') => return None,
            parts => parts,
        },
    };
    let rest = rest.strip_prefix('=')?;
    let ends = |value: &&str| rest.strip_prefix(*value).is_some_and(|end| ENDS.contains(&end));
    (values.iter().any(ends) && is_name(names)).then(|| names.to_owned())
}

/// Where the bracket is closed that was opened before this text.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    text.char_indices().find_map(|(at, c)| {
        open = match c {
            '(' => open + 1,
            ')' => open - 1,
            _ => open,
        };
        (open == 0).then_some(at)
    })
}

/// Whether an expression matches names of cookies only: no sign that ends a name.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || r"_-.|()[]*+?\".contains(c);
    // `[^=]+` and `[^=;]+` match no other sign than a name has.
    let text = text.replace("[^=]", "[_]").replace("[^=;]", "[_]").replace("[^;=]", "[_]");
    let is_escape = |part: &str| part.starts_with(['d', 'w', '.', '-']);
    !text.is_empty()
        && text.chars().all(plain)
        && text.split('\\').skip(1).all(is_escape)
        && !text.contains(".*")
        && !text.contains(".+")
}

impl Filter {
    /// Some cookie is left.
    pub(super) fn leaves_some(&self) -> Option<Cel> {
        let field = cel::field("cookie")?;
        match self {
            Filter::Without(names) if names.is_empty() => cel::has_field("cookie"),
            Filter::Without(names) => {
                let names = names.join("|");
                let only = format!(r"^[;\s]*(({names})=[^;]*[;\s]*)*$");
                Some(cel::matches(&field, &only)?.negated())
            }
            Filter::Led | Filter::Packed | Filter::Marked(_) => None,
            Filter::Only(names) => cel::matches(&field, &format!(r"(^|;\s*)({names})=")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(all: &[(&str, &str)]) -> Option<String> {
        let own = Word::Name("req.http.cookie".to_owned());
        let mut filter = None;
        for (pattern, with) in all {
            if pattern.is_empty() {
                let words = [Word::Text((*with).to_owned()), Word::Sign("+"), own.clone()];
                filter = Some(filtered("req.http.cookie", &words, filter.as_ref())?);
                continue;
            }
            let (open, close, comma) = (Word::Sign("("), Word::Sign(")"), Word::Sign(","));
            let name = Word::Name("regsuball".to_owned());
            let [pattern, with] = [pattern, with].map(|text| Word::Text((*text).to_owned()));
            let words = [name, open, own.clone(), comma.clone(), pattern, comma, with, close];
            filter = Some(filtered("req.http.cookie", &words, filter.as_ref())?);
        }
        filter?.leaves_some().map(|condition| condition.text().to_owned())
    }

    #[test]
    fn the_remaining_cookies_are_a_condition() {
        let none = |names: &str| {
            Some(format!(r"!fields['cookie'].matches(r'^[;\s]*(({names})=[^;]*[;\s]*)*$')"))
        };
        assert_eq!(after(&[("has_js=[^;]+(;)?", "")]), none("has_js"));
        let both = [("has_js=[^;]+(; )?", ""), ("__utm.=[^;]+(; )?", ""), ("^;\\s*", "")];
        assert_eq!(after(&both), none("has_js|__utm."));
        let google = r"(^|;\s*)(__[a-z]+|has_js)=[^;]*";
        assert_eq!(after(&[(google, "")]), none("(__[a-z]+|has_js)"));
        let analytics = "(^|;) *(__utm.|_ga|_ga_[^=]+|_gat|_gid)=[^;]+;? *";
        assert_eq!(after(&[(analytics, r"\1")]), none("(__utm.|_ga|_ga_[^=]+|_gat|_gid)"));
        let kept = [
            ("", ";"),
            ("; +", ";"),
            (";(SESS[a-z0-9]+|NO_CACHE)=", r"; \1="),
            (";[^ ][^;]*", ""),
            ("^[; ]+|[; ]+$", ""),
        ];
        let some = r"fields['cookie'].matches(r'(^|;\s*)(SESS[a-z0-9]+|NO_CACHE)=')";
        assert_eq!(after(&kept).as_deref(), Some(some));
        for other in ["a.*=[^;]+", "(a|b", "a", "a=1", "[^a]=[^;]+", "a;b=[^;]*", r"\S+=[^;]+"] {
            assert_eq!(after(&[(other, "")]), None, "{other}");
        }
        assert_eq!(after(&[("a=[^;]+", "b=1")]), None);
        assert_eq!(after(&[("a=.*?;?", "")]), None);
        // Without the first substitutions, the first cookie is not marked.
        assert_eq!(after(&kept[1..]), None);
        assert_eq!(after(&kept[..3]), None);
    }
}

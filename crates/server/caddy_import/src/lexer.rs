//! The words of a Caddyfile: quotes, backquotes, heredocs, comments and continued lines.

/// A word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// It was in quotes, so it is no brace.
    pub(crate) quoted: bool,
    /// The line, from 1.
    pub(crate) line: usize,
    /// It is the first word of a line.
    pub(crate) first: bool,
}

impl Token {
    /// Whether it is a brace that opens or closes a block.
    pub(crate) fn is(&self, brace: &str) -> bool {
        !self.quoted && self.text == brace
    }
}

/// The words of a text.
///
/// # Errors
/// A line, and what is not closed there.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, (usize, &'static str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut all, mut line, mut first) = (Vec::new(), 1, true);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let continued = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n'));
        match c {
            '\n' => (line, first, rest) = (line + 1, true, after),
            '\\' if continued.is_some() => {
                (line, rest) = (line + 1, continued.unwrap_or_default());
            }
            _ if c.is_whitespace() => rest = after,
            '#' => rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
            _ => {
                let at = line;
                let (text, end) = match c {
                    '"' | '`' => quoted(after, c).ok_or((at, "a quote is not closed"))?,
                    _ => match heredoc(rest) {
                        Some(found) => found.ok_or((at, "a heredoc is not closed"))?,
                        None => plain(rest),
                    },
                };
                let is_plain = !matches!(c, '"' | '`') && !rest.starts_with("<<");
                let start = if is_plain { rest } else { &rest[..rest.len() - end.len()] };
                if !is_plain || start.len() != end.len() {
                    line += rest[..rest.len() - end.len()].matches('\n').count();
                }
                all.push(Token { text, quoted: !is_plain, line: at, first });
                (rest, first) = (end, false);
            }
        }
    }
    Ok(all)
}

/// A word in quotes, and what follows. Only a quote is escaped, and only in double quotes.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut word, mut chars) = (String::new(), text.char_indices().peekable());
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote == '"' && chars.peek().is_some_and(|(_, next)| *next == '"') => {
                word.push('"');
                chars.next();
            }
            c if c == quote => return Some((word, &text[at + 1..])),
            '\r' => {}
            c => word.push(c),
        }
    }
    None
}

/// `<<MARK`, lines, and `MARK`, whose indentation is taken off the lines. The inner result is
/// `None` if the mark does not come again. The outer result is `None` if this is no heredoc.
#[expect(clippy::option_option, reason = "a text that is no heredoc is no error")]
fn heredoc(text: &str) -> Option<Option<(String, &str)>> {
    let text = text.strip_prefix("<<")?;
    let of_mark = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let (mark, inner) = text.split_at(text.find(|c| !of_mark(c))?);
    let inner = inner.strip_prefix('\r').unwrap_or(inner).strip_prefix('\n')?;
    if mark.is_empty() {
        return None;
    }
    let (mut lines, mut at) = (Vec::new(), 0);
    for line in inner.split_inclusive('\n') {
        let bare = line.trim_start();
        let ends = bare.strip_prefix(mark).filter(|end| !end.starts_with(of_mark));
        if ends.is_some() {
            let indent = &line[..line.len() - bare.len()];
            let cut = |line: &&str| line.strip_prefix(indent).unwrap_or(line).to_owned();
            let lines: Vec<String> = lines.iter().map(cut).collect();
            return Some(Some((lines.join("\n"), &inner[at + indent.len() + mark.len()..])));
        }
        lines.push(line.trim_end_matches(['\n', '\r']));
        at += line.len();
    }
    Some(None)
}

/// A word without quotes, and what follows.
fn plain(text: &str) -> (String, &str) {
    let ends = |at: usize, c: char| {
        c.is_whitespace() || c == '\\' && text[at + 1..].trim_start_matches('\r').starts_with('\n')
    };
    let end = text.char_indices().find(|(at, c)| ends(*at, *c)).map_or(text.len(), |(at, _)| at);
    (text[..end].to_owned(), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(String, usize, bool)> {
        let all = tokens(text).unwrap();
        all.into_iter().map(|one| (one.text, one.line, one.first)).collect()
    }

    fn word(text: &str, line: usize, first: bool) -> (String, usize, bool) {
        (text.to_owned(), line, first)
    }

    #[test]
    fn words_quotes_and_continued_lines() {
        let found = words("\u{feff}a \"b \\\"c\\\" \\d\" `e \"f\"` # g\r\nh#i \\\r\n  j\nk");
        let wanted = [
            word("a", 1, true),
            word("b \"c\" \\d", 1, false),
            word("e \"f\"", 1, false),
            word("h#i", 2, true),
            word("j", 3, false),
            word("k", 4, true),
        ];
        assert_eq!(found, wanted);
        assert_eq!(words("\"a\nb\" c\nd")[1..], [word("c", 2, false), word("d", 3, true)]);
        assert_eq!(tokens("a\n\"b"), Err((2, "a quote is not closed")));
        assert!(tokens("\"{\"").unwrap()[0].quoted);
    }

    #[test]
    fn heredocs() {
        let found = words("a <<END\n    b\n      c\n    END 200\nd <<\ne <<F G");
        assert_eq!(found[1], word("b\n  c", 1, false));
        assert_eq!(found[2..4], [word("200", 4, false), word("d", 5, true)]);
        assert_eq!(found[5..], [word("e", 6, true), word("<<F", 6, false), word("G", 6, false)]);
        assert_eq!(tokens("a <<END\nb\n"), Err((1, "a heredoc is not closed")));
    }
}

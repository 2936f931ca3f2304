//! Just enough of Rust's grammar for the rules: what is code, what is a comment or a string, and
//! which lines belong to tests.
//!
//! There is no parser. The rules work on a masked copy of the text, of the same length and with the
//! same lines, in which comments and the insides of strings are blank. A rule that searches the
//! copy finds code only.

/// The text with comments and the insides of string and character literals blanked out. Bytes
/// that are not ASCII become blanks too; line breaks stay where they are.
pub(crate) fn masked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = at + literal_or_comment(rest, out.last().copied());
        if end == at {
            out.push(if rest[0].is_ascii() { rest[0] } else { b' ' });
            at += 1;
            continue;
        }
        out.extend(bytes[at..end].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8(out).expect("only ASCII was pushed")
}

/// How many bytes the comment or literal that begins here takes; 0 if none begins here.
fn literal_or_comment(rest: &[u8], before: Option<u8>) -> usize {
    let in_word = before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => 1 + quoted(&rest[1..]),
        [b'b' | b'c', b'"', ..] if !in_word => 2 + quoted(&rest[2..]),
        [b'r', ..] if !in_word => raw_string(rest, 1),
        [b'b' | b'c', b'r', ..] if !in_word => raw_string(rest, 2),
        [b'\'', b'\\', ..] => {
            3 + rest[3.min(rest.len())..].iter().position(|&b| b == b'\'').unwrap_or(0) + 1
        }
        [b'\'', ..] => character(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Up to and with the closing quote.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let start = prefix + hashes + 1;
    let inside = rest[start..].windows(close.len()).position(|window| window == close);
    inside.map_or(rest.len(), |position| start + position + close.len())
}

/// A character literal, not a lifetime: a quote two (or, in UTF-8, up to five) bytes further.
fn character(rest: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(&rest[1..rest.len().min(6)])
        .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]))
    else {
        return 0;
    };
    let Some(first) = text.chars().next() else { return 0 };
    let end = 1 + first.len_utf8();
    if rest.get(end) == Some(&b'\'') { end + 1 } else { 0 }
}

/// For each line, whether it belongs to an item under `#[cfg(test)]` or `#[test]`.
pub(crate) fn test_lines(masked: &str) -> Vec<bool> {
    let mut is_test = vec![false; masked.lines().count() + 1];
    for mark in ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(any(test", "#[test]"] {
        for (start, _) in masked.match_indices(mark) {
            let first = line_of(masked, start);
            let last = line_of(masked, item_end(masked, start + mark.len()));
            is_test[first..=last].fill(true);
        }
    }
    is_test
}

/// The byte at which the item that follows ends: its closing brace, or its semicolon.
fn item_end(masked: &str, from: usize) -> usize {
    let mut depth = 0i32;
    let mut brackets = 0i32;
    for (at, byte) in masked.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth <= 0 {
                    return at;
                }
            }
            b';' if depth == 0 && brackets <= 0 => return at,
            _ => {}
        }
    }
    masked.len().saturating_sub(1)
}

/// Index of the line, from 0.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|&&b| b == b'\n').count()
}

/// Whether `line` contains `word` as a whole word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    line.match_indices(word).any(|(at, _)| {
        edge(line[..at].chars().next_back()) && edge(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blank_and_lines_stay() {
        let text = "a(); // unsafe\n/* x /* y */ z */ b(\"un\\\"safe\", \
                    r#\"q\"q\"#, 'c', '\\'', b\"x\");\nfn f<'a>(x: &'a str) {}\n";
        let masked = masked(text);
        assert_eq!(masked.len(), text.len());
        assert_eq!(masked.lines().count(), text.lines().count());
        assert!(!masked.contains("safe") && !masked.contains('z') && !masked.contains('q'));
        assert!(masked.contains("a();") && masked.contains("b(") && masked.contains("<'a>"));
    }

    #[test]
    fn a_lifetime_before_a_quote_does_not_swallow_the_rest() {
        assert_eq!(masked("x::<'a, 'b>('é', 1)"), "x::<'a, 'b>(    , 1)");
        assert_eq!(masked("bar\"s\"r"), "bar   r");
    }

    #[test]
    fn the_lines_of_a_test_module_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(test_lines(text)[..6], [false, true, true, true, true, false]);
        let outside = "#[cfg(test)]\nmod tests;\nfn c() {}\n";
        assert_eq!(test_lines(outside)[..3], [true, true, false]);
        let array = "#[cfg(test)]\nfn f(x: [u8; 3]) {\n x;\n}\nfn c() {}\n";
        assert_eq!(test_lines(array)[..5], [true, true, true, true, false]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("pub unsafe fn", "unsafe") && !has_word("unsafe_code", "unsafe"));
    }
}

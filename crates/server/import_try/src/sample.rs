//! A text that a regular expression matches, for the usual expressions of paths and hosts.

/// A text that the expression matches, if all of its parts are known. The caller compares nothing
/// with it: a text that does not match is one more path beside the location.
pub(crate) fn sample(expression: &str) -> String {
    let mut chars: Vec<char> = expression.chars().collect();
    if let Some(rest) = expression.strip_prefix("(?i)") {
        chars = rest.chars().collect();
    }
    let mut at = 0;
    alternatives(&chars, &mut at)
}

/// The first of the alternatives up to the end of the group.
fn alternatives(chars: &[char], at: &mut usize) -> String {
    let mut text = String::new();
    let mut is_first = true;
    while let Some(&char) = chars.get(*at) {
        *at += 1;
        let part = match char {
            ')' => break,
            '|' => {
                is_first = false;
                continue;
            }
            '(' => {
                // `(?:`, `(?<name>` and looks around.
                let rest: String = chars[*at..].iter().take(64).collect();
                let is_negative = rest.starts_with("?!") || rest.starts_with("?<!");
                if rest.starts_with('?') {
                    let name = rest.find(['>', ':', '!', '=']).unwrap_or(0);
                    *at += rest[..name].chars().count() + 1;
                }
                let inner = alternatives(chars, at);
                if is_negative { String::new() } else { inner }
            }
            '[' => class(chars, at),
            '\\' => {
                let escaped = chars.get(*at).copied().unwrap_or('\\');
                *at += 1;
                match escaped {
                    'd' => "1".to_owned(),
                    'w' | 'S' => "a".to_owned(),
                    's' | 'b' | 'B' | 'A' | 'z' | 'Z' => String::new(),
                    other => other.to_string(),
                }
            }
            // A dot matches itself.
            '.' if !matches!(chars.get(*at), Some('*' | '+' | '?' | '{')) => ".".to_owned(),
            '.' => "a".to_owned(),
            '^' | '$' => continue,
            other => other.to_string(),
        };
        let part = repeated(part, chars, at);
        if is_first {
            text.push_str(&part);
        }
    }
    text
}

/// A character of a class.
fn class(chars: &[char], at: &mut usize) -> String {
    let is_negative = chars.get(*at) == Some(&'^');
    *at += usize::from(is_negative);
    let mut first = None;
    while let Some(&char) = chars.get(*at) {
        *at += 1;
        match char {
            ']' if first.is_some() => break,
            '\\' => {
                let escaped = chars.get(*at).copied().unwrap_or('a');
                *at += 1;
                first = first.or(Some(match escaped {
                    'd' => '1',
                    'w' => 'a',
                    other => other,
                }));
            }
            other => first = first.or(Some(other)),
        }
    }
    match (is_negative, first) {
        (true, _) => "a".to_owned(),
        (false, first) => first.map(String::from).unwrap_or_default(),
    }
}

/// The part as often as its quantifier says, once where there is a choice.
fn repeated(part: String, chars: &[char], at: &mut usize) -> String {
    let times = match chars.get(*at) {
        Some('*' | '+' | '?') => 1,
        Some('{') => {
            let end = chars[*at..].iter().position(|char| *char == '}').unwrap_or(0);
            let text: String = chars[*at + 1..*at + end.max(1)].iter().collect();
            *at += end;
            text.split(',').next().and_then(|count| count.parse().ok()).unwrap_or(1)
        }
        _ => return part,
    };
    *at += 1;
    // Lazy and possessive quantifiers.
    *at += usize::from(matches!(chars.get(*at), Some('?' | '+')));
    part.repeat(times.min(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_expressions_have_a_sample() {
        for (expression, expected) in [
            (r"\.(png|jpe?g)$", ".png"),
            (r"^/api/v\d+/(.*)$", "/api/v1/a"),
            (r"^/(?:a|b)/[^/]+/[a-z]{2}$", "/a/a/aa"),
            (r"^(?<name>www\.)?example\.com$", "www.example.com"),
            (r"/(?!x)y", "/y"),
            (r"~", "~"),
            ("^www.example.com", "www.example.com"),
        ] {
            assert_eq!(sample(expression), expected, "{expression}");
        }
        for broken in ["(", "[", "\\", "a{", "a{999999999}", ")", "|", "(?", "[^", "*"] {
            sample(broken);
        }
    }
}

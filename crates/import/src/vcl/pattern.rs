//! Expressions that stand for a few literal texts: `^/(a|b)/`, `^(www\.)?example\.org$`.

/// Texts that an expression can stand for, at most.
const TEXTS_MAX: usize = 64;

/// What an expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) texts: Vec<String>,
    /// It matches to the end.
    pub(crate) whole: bool,
}

/// Reads an expression that begins with `^`. `None`: it is more than a few texts.
pub(crate) fn literal(pattern: &str) -> Option<Literal> {
    let rest = pattern.strip_prefix('^')?;
    let (rest, whole) = match rest.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => (rest, true),
        _ => (rest, false),
    };
    let mut texts = vec![String::new()];
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        let parts: Vec<String> = match c {
            '\\' => vec![chars.next().filter(char::is_ascii_punctuation)?.to_string()],
            '(' => {
                let group: String = chars.by_ref().take_while(|c| *c != ')').collect();
                let group = group.strip_prefix("?:").unwrap_or(&group).to_owned();
                let mut parts: Vec<String> =
                    group.split('|').map(plain).collect::<Option<Vec<_>>>()?;
                if chars.as_str().starts_with('?') {
                    chars.next();
                    parts.push(String::new());
                }
                parts
            }
            c if is_special(c) => return None,
            c => vec![c.to_string()],
        };
        // A repeated part is more than a few texts.
        if chars.as_str().starts_with(['*', '+', '?', '{']) {
            return None;
        }
        texts = texts
            .iter()
            .flat_map(|text| parts.iter().map(move |part| format!("{text}{part}")))
            .take(TEXTS_MAX + 1)
            .collect();
        if texts.len() > TEXTS_MAX {
            return None;
        }
    }
    Some(Literal { texts, whole })
}

fn is_special(c: char) -> bool {
    matches!(c, '.' | '*' | '+' | '?' | '[' | ']' | '{' | '}' | '^' | '$' | '|' | ')')
}

/// A part without special characters.
fn plain(text: &str) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(char::is_ascii_punctuation)?),
            '(' => return None,
            c if is_special(c) => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let of = |pattern: &str| literal(pattern).map(|found| (found.texts.join(" "), found.whole));
        for (pattern, texts, whole) in [
            ("^/api/", "/api/", false),
            ("^/(a|b)/$", "/a/ /b/", true),
            (r"^(www\.)?example\.org$", "www.example.org example.org", true),
            (r"^x\$", "x$", false),
        ] {
            assert_eq!(of(pattern), Some((texts.to_owned(), whole)), "{pattern}");
        }
        for pattern in
            ["/api/", "^/a.*", "^/a+", "^[ab]", "^(a(b))", "^(a)*", r"^\d", "^a|b", "(?i)^a"]
        {
            assert_eq!(of(pattern), None, "{pattern}");
        }
    }
}

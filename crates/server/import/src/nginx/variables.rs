//! The variables in a text, by nginx's rules.
//!
//! `$name` ends at the first character that is no letter, digit or underscore. `${name}` ends at
//! its brace, so that a letter can follow it. `$1` to `$9` are captures of one digit. Names have no
//! case.

/// A variable, as it is written, with the text before it and the text after it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = text.split_once('$')?;
    let inner = after.strip_prefix('{');
    let has_braces = inner.is_some();
    let inner = inner.unwrap_or(after);
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_capture = !has_braces && inner.starts_with(|c| matches!(c, '1'..='9'));
    let length = inner.find(|c| !of_name(c)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(if is_capture { 1 } else { length });
    let rest = if has_braces { rest.strip_prefix('}').unwrap_or(rest) } else { rest };
    debug_assert!(rest.len() < text.len(), "a variable has at least its sign");
    Some((before, name, rest))
}

/// The variables in a text, as they are written.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let one = move || {
        let (_, name, after) = next(rest)?;
        rest = after;
        Some(name)
    };
    std::iter::from_fn(one).filter(|name| !name.is_empty())
}

/// The variables in a text, in lower case.
pub(crate) fn variables(text: &str) -> Vec<String> {
    names(text).map(str::to_ascii_lowercase).collect()
}

/// The variable in lower case, if the text is one variable and nothing else.
pub(crate) fn only(text: &str) -> Option<String> {
    let (before, name, after) = next(text)?;
    let is_only = before.is_empty() && after.is_empty() && !name.is_empty();
    is_only.then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_ends_where_nginx_ends_it() {
        for (text, wanted) in [
            ("${host}${request_uri}${cookie_u}x", &["host", "request_uri", "cookie_u"][..]),
            ("$host${http_x_user}_1", &["host", "http_x_user"]),
            ("$cookie_u-1.$Arg_V", &["cookie_u", "arg_v"]),
            ("$12$1a", &["1", "1"]),
            ("${a", &["a"]),
            ("{$a}b{c}", &["a"]),
            ("$ $", &[]),
        ] {
            assert_eq!(variables(text), wanted, "{text}");
        }
        for (text, wanted) in [
            ("$cookie_u", Some("cookie_u")),
            ("${Cookie_u}", Some("cookie_u")),
            ("$cookie_u-1", None),
            ("${cookie_u}1", None),
            ("$cookie_u$cookie_v", None),
            ("-$cookie_u", None),
            ("$", None),
            ("u", None),
        ] {
            assert_eq!(only(text).as_deref(), wanted, "{text}");
        }
    }
}

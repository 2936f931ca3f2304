//! JSON, written. Objects keep the order of their keys.

use std::fmt::{self, Display, Write};

/// A value.
pub(crate) enum Json {
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

/// A text.
pub(crate) fn text(text: impl Into<String>) -> Json {
    Json::Text(text.into())
}

/// A list of texts.
pub(crate) fn texts(texts: &[&str]) -> Json {
    Json::List(texts.iter().map(|one| text(*one)).collect())
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => quoted(text, f),
            Json::List(items) => {
                f.write_char('[')?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at > 0 { "," } else { "" })?;
                }
                f.write_char(']')
            }
            Json::Object(pairs) => {
                f.write_char('{')?;
                for (at, (key, value)) in pairs.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    quoted(key, f)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_keys_stay_in_order() {
        let value = Json::Object(vec![
            ("b", text("a\"b\\c\nd\u{e9}")),
            ("a", Json::List(vec![Json::Number(7), texts(&["x", "y"])])),
            ("c", Json::Object(Vec::new())),
        ]);
        let expected = "{\"b\":\"a\\\"b\\\\c\\u000ad\u{e9}\",\"a\":[7,[\"x\",\"y\"]],\"c\":{}}";
        assert_eq!(value.to_string(), expected);
    }
}

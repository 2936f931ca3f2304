//! Checks of texts by operators, for the fuzz target and for the tests that replay its corpus: the
//! parsers never panic, and accepted input makes sense.

use access_log::LogFormat;
use config::{Host, Path, Pattern, Piece};

/// Part of the target `proxy_texts`.
pub(crate) fn texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<LogFormat>() {
        Ok(format) => assert_eq!(text.parse(), Ok(format), "the same text is the same format"),
        Err(error) => one_line(&error),
    }
    match Host::parse(&text) {
        Ok(Host::Exact(name)) => {
            assert_eq!(Host::parse(&name), Ok(Host::Exact(name.clone())), "{text:?}: {name:?}");
        }
        Ok(Host::Below(name)) => {
            let again = Host::parse(&format!("*.{name}"));
            assert_eq!(again, Ok(Host::Below(name)), "{text:?}");
        }
        Ok(Host::Captured { name, below }) => {
            let again = Host::parse(&format!("{{{name}}}.{below}"));
            assert_eq!(again, Ok(Host::Captured { name, below }), "{text:?}");
        }
        Err(error) => one_line(&error),
    }
    match text.parse::<Pattern>() {
        Ok(pattern) => assert_eq!(pattern.to_string().parse(), Ok(pattern)),
        Err(error) => one_line(&error),
    }
    if let Err(error) = Path::parse(&text) {
        one_line(&error);
    }
    let again: usize = config::pieces(&text)
        .map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Capture(name) => name.len() + 2,
        })
        .sum();
    assert_eq!(again, text.len(), "the pieces are the text");
}

/// An error must be one non-empty line.
fn one_line(error: &str) {
    assert!(!error.is_empty() && !error.contains(char::is_control), "{error:?}");
}

//! The fuzz targets, also replayed over the checked-in corpus by stable tests.
//!
//! They check what must hold of the parsers of this crate for any input, from name servers, system
//! files or operators: they never panic, and accepted input makes sense. Not used for serving.

use crate::Host;
use access_log::LogFormat;

/// Target `dns_reply`.
pub fn dns_reply(data: &[u8]) {
    dns::fuzzing::dns_reply(data);
}

/// Target `proxy_texts`: texts by operators, and system files.
pub fn texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    dns::fuzzing::system_files(&text);
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
        Err(error) => one_line(&error),
    }
}

/// An error must be one non-empty line.
fn one_line(error: &str) {
    assert!(!error.is_empty() && !error.contains(char::is_control), "{error:?}");
}

//! What the fuzz targets run, and what the stable tests replay over the checked-in corpus.
//!
//! What must hold of the parsers of this crate whatever they are given: by name servers, by the
//! system's files, by an operator. They never panic, and what is understood makes sense. Never part
//! of serving anybody.

use crate::Host;
use access_log::LogFormat;

/// Target `dns_reply`.
pub fn dns_reply(data: &[u8]) {
    dns::fuzzing::dns_reply(data);
}

/// Target `proxy_texts`: what an operator writes, and the system's files.
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

/// What is wrong is told in one line that says something.
fn one_line(error: &str) {
    assert!(!error.is_empty() && !error.contains(char::is_control), "{error:?}");
}

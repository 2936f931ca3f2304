//! Checks of imports, for the fuzz targets and for the tests that replay their corpora: whatever
//! the text, there is a result or an error in a line of it, the imported file is TOML, and each
//! note is one line.

use import::{Included, Options, Source, import};

pub(crate) fn squid(data: &[u8]) {
    check(Source::Squid, data);
}

pub(crate) fn nginx(data: &[u8]) {
    check(Source::Nginx, data);
}

pub(crate) fn vcl(data: &[u8]) {
    check(Source::Vcl, data);
}

pub(crate) fn haproxy(data: &[u8]) {
    check(Source::Haproxy, data);
}

pub(crate) fn caddy(data: &[u8]) {
    check(Source::Caddy, data);
}

fn check(source: Source, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = Source::guess(&text);
    for open in [false, true] {
        // A file that includes itself ends at a limit.
        let mut read = |name: &str| match name {
            "self" => Ok(vec![Included { name: name.to_owned(), text: text.to_string() }]),
            _ => Err("it cannot be read".to_owned()),
        };
        match import(source, "file", &text, Options { open }, &mut read) {
            Ok(imported) => {
                let table = imported.configuration.parse::<toml::Table>();
                assert!(table.is_ok(), "{table:?}: {}", imported.configuration);
                for note in &imported.notes {
                    let shown = note.to_string();
                    assert!(!shown.contains(char::is_control), "{shown:?}");
                }
            }
            Err(error) => {
                assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}");
                assert!(!error.what.is_empty());
            }
        }
    }
}

//! Pages in place of errors.

use caching::FieldSource;
use config::{ErrorPage, Page};
use http1::write;

/// The fields of an upstream's error that stay with its page.
const KEPT: [&str; 4] = ["Allow", "Proxy-Status", "Retry-After", "WWW-Authenticate"];

/// A page, ready to be sent.
#[derive(Debug)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// Its field lines.
    pub lines: Vec<u8>,
    /// Its content.
    pub text: String,
}

/// The page for an error with this status.
pub fn answered(page: &ErrorPage, status: u16) -> Answered {
    let mut lines = Vec::new();
    let (name, value, text) = match &page.page {
        Page::Content { of_type, text } => ("Content-Type", of_type, text.clone()),
        Page::Redirect(url) => ("Location", url, String::new()),
    };
    // The configuration was checked.
    let _ = write::field(&mut lines, name.as_bytes(), value.as_bytes());
    Answered { status: page.status.unwrap_or(status), lines, text }
}

/// Appends the fields of an upstream's error that stay with its page.
pub fn keep(lines: &mut Vec<u8>, fields: &impl FieldSource) {
    for name in KEPT {
        for value in fields.values(name) {
            // It was parsed from a head.
            let _ = write::field(lines, name.as_bytes(), value);
        }
    }
}

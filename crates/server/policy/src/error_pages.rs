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

/// The page for an error with this status, of a request with this number. The number has only
/// characters that mean nothing in HTML and JSON.
pub fn answered(page: &ErrorPage, status: u16, id: &str) -> Answered {
    let mut lines = Vec::new();
    let (name, value, text) = match &page.page {
        Page::Content { of_type, text } => ("Content-Type", of_type, text.clone()),
        Page::Redirect(url) => ("Location", url, String::new()),
    };
    let text = if page.fill { fill(&text, status, id) } else { text };
    // The configuration was checked.
    let _ = write::field(&mut lines, name.as_bytes(), value.as_bytes());
    Answered { status: page.status.unwrap_or(status), lines, text }
}

/// Replaces what a page may repeat. What is put in is not read again.
fn fill(text: &str, status: u16, id: &str) -> String {
    let status_text = status.to_string();
    let known = [("status", &*status_text), ("reason", write::reason(status)), ("request_id", id)];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let found = known.iter().find_map(|(name, value)| {
            let after = from[1..].strip_prefix(name)?.strip_prefix('}')?;
            Some((after, value))
        });
        match found {
            Some((after, value)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push('{');
                rest = &from[1..];
            }
        }
    }
    out + rest
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

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn only_known_names_are_replaced_and_once() {
        for (text, filled) in [
            ("", ""),
            ("no name", "no name"),
            ("{status} {reason}: {request_id}", "404 Not Found: {status}"),
            ("a{b}{status{status}}", "a{b}{status404}"),
            ("{", "{"),
            ("ü{status}ü", "ü404ü"),
            ("body { color: red } {{status}}", "body { color: red } {404}"),
        ] {
            assert_eq!(fill(text, 404, "{status}"), filled, "{text}");
        }
    }
}

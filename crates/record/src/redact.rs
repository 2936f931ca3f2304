//! What is shown of a bad log line, and of a command line.
//!
//! A sample shows the line, shortened and made printable. A redacted sample shows only its shape:
//! runs of letters become `a`, runs of digits `0`. In a line that cannot be parsed, addresses and
//! query strings cannot be found either, so none of its words are kept. The shape is enough to fix
//! a format.

use trial::Manifest;

/// Longest sample, characters.
const SAMPLE_CHARS_MAX: usize = 160;

/// A bad line, for display.
pub(crate) fn sample(line: &[u8], redact: bool) -> String {
    let text = String::from_utf8_lossy(line);
    let printable = text.chars().map(|c| if c.is_control() { '.' } else { c });
    let mut sample = String::new();
    let mut last = None;
    let mut chars = 0;
    for c in printable {
        let shape = match c {
            '0'..='9' if redact => '0',
            c if redact && (c.is_alphanumeric() || !c.is_ascii()) => 'a',
            c => c,
        };
        let run = redact && last == Some(shape) && matches!(shape, 'a' | '0');
        last = Some(shape);
        if run {
            continue;
        }
        if chars == SAMPLE_CHARS_MAX {
            sample.push_str("...");
            break;
        }
        sample.push(shape);
        chars += 1;
    }
    sample
}

/// Removes addresses and query strings from what a manifest says about the server and its log.
/// Notes and capabilities are our own words, and a host name is not an address.
pub(crate) fn manifest(manifest: &mut Manifest) {
    manifest.server.command_line = words(&manifest.server.command_line);
    manifest.log_path = manifest.log_path.as_deref().map(words);
    manifest.notes.iter_mut().for_each(|note| *note = words(note));
    let redacted = "addresses and query strings were removed".to_owned();
    manifest.notes.push(redacted);
}

/// Removes addresses and query strings from the words of a command line or a name.
pub(crate) fn words(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(word).collect();
    words.join(" ")
}

fn word(word: &str) -> String {
    let without_query = match word.find('?') {
        Some(at) => format!("{}?...", &word[..at]),
        None => word.to_owned(),
    };
    let mut kept = String::new();
    // A run of characters that addresses consist of is an address if it parses as one.
    let mut rest = without_query.as_str();
    while let Some(first) = rest.chars().next() {
        let part = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':');
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        if end == 0 {
            kept.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let run = &rest[..end];
        if is_address(run) {
            kept.push_str("ADDRESS")
        } else {
            kept.push_str(run)
        }
        rest = &rest[end..];
    }
    kept
}

/// An address of either family, with a port or without.
fn is_address(run: &str) -> bool {
    use std::net::{IpAddr, SocketAddr};
    let run = run.trim_matches(['.', ':']);
    let candidates = [run, run.rsplit_once(':').map_or(run, |(host, _)| host)];
    candidates.iter().any(|c| c.parse::<IpAddr>().is_ok()) || run.parse::<SocketAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_short_and_printable_and_has_no_words_if_redacted() {
        let line =
            b"203.0.113.77 - bob \"GET /secret?token=abc123 HTTP/1.1\" \xff\x1b[0m 2001:db8::7";
        let open = sample(line, false);
        assert!(open.contains("token=abc123") && !open.contains('\u{1b}'), "{open}");
        let shape = sample(line, true);
        assert_eq!(shape, "0.0.0.0 - a \"a /a?a=a0 a/0.0\" a.[0a 0:a0::0");
        let long = sample(&[b'.'; 5000], true);
        assert_eq!(long.chars().count(), SAMPLE_CHARS_MAX + 3);
    }

    #[test]
    fn words_lose_only_addresses_and_queries() {
        for (text, expected) in [
            (
                "nginx: master process /usr/sbin/nginx -g x;",
                "nginx: master process /usr/sbin/nginx -g x;",
            ),
            ("serve --listen 192.0.2.1:80 -w 2", "serve --listen ADDRESS -w 2"),
            ("--origin=http://10.1.2.3:8000/a?key=1 b", "--origin=http://ADDRESS/a?... b"),
            ("--listen [2001:db8::1]:443", "--listen [ADDRESS]:443"),
            ("v1.2.3 12:30 cafe", "v1.2.3 12:30 cafe"),
        ] {
            assert_eq!(words(text), expected);
        }
    }
}

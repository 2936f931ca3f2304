//! What is shown of a command line: words without addresses and query strings. What is shown of a
//! bad log line is [`logs::sample`].

use trial::Manifest;

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

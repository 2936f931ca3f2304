//! What a host is: an address, a name that can be looked up, or neither.
//!
//! One reading for everything that judges a host or looks it up. A host that another reader could
//! take for something else is neither: a name with an empty or too long label, a name with other
//! characters than letters, digits, hyphens and underscores, and a name whose last label is a
//! number, which readers of old spellings take for an IPv4 address (`127.1`, `0x7f.1`,
//! `2130706433`).

use std::fmt;
use std::net::IpAddr;

use crate::limits::{LABEL_BYTES_MAX, NAME_BYTES_MAX};

/// A host that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address literal.
    Address(IpAddr),
    /// A name.
    Name(Name),
}

/// A name of a host, in lower case and without a final dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    text: Box<str>,
    is_absolute: bool,
}

impl Host {
    /// Reads the host of an authority, where an IPv6 address is in brackets; `None`: it is neither
    /// an address nor a name.
    pub fn read(host: &str) -> Option<Host> {
        match crate::literal(host) {
            Some(ip) => Some(Host::Address(ip)),
            None => Name::read(host).map(Host::Name),
        }
    }
}

impl Name {
    /// Reads a name; a final dot says that it is absolute.
    pub fn read(host: &str) -> Option<Name> {
        let bare = host.strip_suffix('.');
        let (text, is_absolute) = (bare.unwrap_or(host), bare.is_some());
        let is_label = |label: &str| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if text.len() > NAME_BYTES_MAX || !text.split('.').all(is_label) {
            return None;
        }
        if text.rsplit('.').next().is_some_and(is_number) {
            return None;
        }
        Some(Name { text: text.to_ascii_lowercase().into(), is_absolute })
    }

    /// The name in lower case, without a final dot.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether no search domain completes it.
    pub fn is_absolute(&self) -> bool {
        self.is_absolute
    }
}

/// As written, so that `site` and `site.` are looked up and remembered separately.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        f.write_str(if self.is_absolute { "." } else { "" })
    }
}

/// Whether a label is a number in decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => label.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_is_an_address_a_name_or_neither() {
        for (host, ip) in [
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("[::ffff:127.0.0.9]", "::ffff:127.0.0.9"),
            ("::1", "::1"),
        ] {
            assert_eq!(Host::read(host), Some(Host::Address(ip.parse().unwrap())), "{host}");
        }
        let long = format!("{}.example", "a".repeat(63));
        for (host, text, is_absolute) in [
            ("Site.EXAMPLE", "site.example", false),
            ("site.example.", "site.example", true),
            ("_x-1.0a", "_x-1.0a", false),
            ("1.2.3.4.example", "1.2.3.4.example", false),
            ("0xfg", "0xfg", false),
            (&long, &long, false),
        ] {
            let name = Name { text: text.into(), is_absolute };
            assert_eq!(Host::read(host), Some(Host::Name(name)), "{host}");
        }
    }

    #[test]
    fn a_spelling_that_readers_disagree_on_is_no_host() {
        let label = format!("{}.example", "a".repeat(64));
        let name = format!("{}example", "a.".repeat(124));
        assert!(name.len() > NAME_BYTES_MAX);
        for host in [
            "",
            ".",
            "..",
            "localhost..",
            ".localhost",
            "a..b",
            "a b",
            "a/b",
            "%6cocalhost",
            "a:1",
            "127.1",
            "127.0.0.1.",
            "2130706433",
            "0x7f.1",
            "0X7F000001",
            "0x",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "256.1.1.1",
            "a.0x1",
            "[::1",
            "[::1%lo]",
            "[a]",
            "ä",
            &label,
            &name,
        ] {
            assert_eq!(Host::read(host), None, "{host}");
        }
    }

    proptest! {
        /// A slow reading by the rules of RFC 1035, 2.3.4, and of RFC 1123, 2.1.
        #[test]
        fn a_name_is_read_as_by_its_rules(
            host in "[aB0x1.%_-]{0,12}|([a-c]{1,70}\\.){1,6}[0-9x]?",
        ) {
            let text = host.strip_suffix('.').unwrap_or(&host);
            let labels: Vec<&str> = text.split('.').collect();
            let known = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            let well = text.chars().count() <= 253
                && labels.iter().all(|l| !l.is_empty() && l.len() < 64 && l.chars().all(known));
            let last = labels.last().unwrap().to_ascii_lowercase();
            let is_decimal = last.chars().all(|c| c.is_ascii_digit());
            let is_hex = last.starts_with("0x") && last[2..].chars().all(|c| c.is_ascii_hexdigit());
            let expected = well && !is_decimal && !is_hex;
            if host.parse::<IpAddr>().is_err() {
                let read = Host::read(&host);
                prop_assert_eq!(read.is_some(), expected, "{}", host);
                if let Some(Host::Name(name)) = read {
                    prop_assert_eq!(name.to_string(), host.to_ascii_lowercase());
                }
            }
        }
    }
}

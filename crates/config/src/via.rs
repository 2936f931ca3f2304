//! What messages say of the hops that they have made.

use std::fmt;
use std::str::FromStr;

/// How messages name this proxy (`Via`; RFC 9110, 7.6.3).
#[derive(Clone, Debug)]
pub struct Via {
    /// Whether requests do that go on to a server.
    pub requests: bool,
    /// Whether responses do that go on to a client.
    pub responses: bool,
    /// The name; `None`: `plimsoll` in responses, and in requests one that no other process has.
    pub name: Option<ViaName>,
}

impl Default for Via {
    fn default() -> Via {
        Via { requests: true, responses: true, name: None }
    }
}

/// A host with or without a port, or a pseudonym.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViaName(String);

impl ViaName {
    /// Characters of a token, and those of an authority.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ViaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ViaName {
    type Err = String;

    fn from_str(text: &str) -> Result<ViaName, String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:[]".contains(&b);
        if text.is_empty() || text.len() > 128 || !text.bytes().all(plain) {
            return Err(format!(
                "{text:?} is not a name for Via: 1 to 128 letters, digits, dots and dashes, such \
                 as cache-1.example"
            ));
        }
        Ok(ViaName(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_host_or_a_pseudonym() {
        for name in ["cache-1.example", "cache:3128", "[::1]:80", "ours"] {
            assert_eq!(name.parse::<ViaName>().unwrap().as_str(), name);
        }
        for wrong in ["", "a b", "a,b", "a\r\nX: y", "(a)", "\u{fc}", &"x".repeat(129)] {
            assert!(wrong.parse::<ViaName>().is_err(), "{wrong:?}");
        }
    }
}

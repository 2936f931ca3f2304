//! How messages name this proxy in `Via`.

use std::str::FromStr;

/// How messages name this proxy (`Via`; RFC 9110, 7.6.3).
#[derive(Clone, Debug)]
pub struct Via {
    /// Whether requests forwarded to a server have it.
    pub requests: bool,
    /// Whether responses sent to a client have it.
    pub responses: bool,
    /// The name; `None`: `plimsoll` in responses, and in requests one unique to this process.
    pub name: Option<ViaName>,
}

impl Default for Via {
    fn default() -> Via {
        Via { requests: true, responses: true, name: None }
    }
}

crate::forward::checked_texts! {
    /// A host with or without a port, or a pseudonym.
    ViaName, "Characters of a token or an authority.";
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

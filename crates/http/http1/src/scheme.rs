//! The schemes of URIs (RFC 9110, 4.2).

/// The scheme of a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Unencrypted.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme with this name, if it is known.
    pub fn of(name: &[u8]) -> Option<Scheme> {
        if name.eq_ignore_ascii_case(b"http") {
            Some(Scheme::Http)
        } else if name.eq_ignore_ascii_case(b"https") {
            Some(Scheme::Https)
        } else {
            None
        }
    }

    /// The name of the scheme.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The default port.
    pub fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

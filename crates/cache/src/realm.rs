//! The part of a key that does not come from the URI alone.

use std::borrow::Cow;

use config::Role;
use http1::Scheme;

/// Which responses a key is among: what a reverse listener serves under a URI is never what a
/// forward listener fetched from whoever the client named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Realm {
    /// The kind of listener that was asked.
    pub role: Role,
    /// The scheme of the URI.
    pub scheme: Scheme,
}

impl Realm {
    /// Distinct for each.
    pub fn byte(self) -> u8 {
        (self.role as u8) << 1 | self.scheme as u8
    }

    /// The authority without the port that is the scheme's own (RFC 9110, 4.2.3).
    pub fn without_port(self, authority: &[u8]) -> &[u8] {
        let suffix: &[u8] = match self.scheme {
            Scheme::Http => b":80",
            Scheme::Https => b":443",
        };
        authority.strip_suffix(suffix).unwrap_or(authority)
    }
}

/// An authority as keys and purges have it.
#[inline]
pub fn normal_authority(realm: Realm, authority: &[u8]) -> Cow<'_, [u8]> {
    let authority = realm.without_port(authority);
    if authority.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(authority.to_ascii_lowercase())
    } else {
        Cow::Borrowed(authority)
    }
}

//! The part of a key that does not come from the URI alone.

use std::borrow::Cow;

use config::Role;
use http1::Scheme;

/// Separates responses that must not mix under one URI: a reverse listener never serves what a
/// forward listener fetched from a host that a client named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Realm {
    /// The kind of listener.
    pub role: Role,
    /// The scheme of the URI.
    pub scheme: Scheme,
}

impl Realm {
    /// A different value for each.
    pub fn byte(self) -> u8 {
        (self.role as u8) << 1 | self.scheme as u8
    }

    /// The authority without the scheme's default port (RFC 9110, 4.2.3).
    pub fn without_port(self, authority: &[u8]) -> &[u8] {
        let suffix: &[u8] = match self.scheme {
            Scheme::Http => b":80",
            Scheme::Https => b":443",
        };
        authority.strip_suffix(suffix).unwrap_or(authority)
    }
}

/// An authority as used in keys and purges.
#[inline]
pub fn normal_authority(realm: Realm, authority: &[u8]) -> Cow<'_, [u8]> {
    let authority = realm.without_port(authority);
    if authority.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(authority.to_ascii_lowercase())
    } else {
        Cow::Borrowed(authority)
    }
}

//! Keys: 128 bits of SipHash-1-3 under a secret seed.
//!
//! Clients choose what is hashed (URIs, selecting fields), so the seed is random. No client can
//! construct collisions, to slow an index down or to be served another response. With 128 bits the
//! whole key is the identity and nothing else is compared: among a billion stored objects the odds
//! that any two collide are about 10⁹·10⁹/2¹²⁹, one in 10²¹.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

/// The identity of a stored object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u128);

impl Key {
    /// From its number, as in an index on disk or a test.
    #[must_use]
    pub const fn from_u128(bits: u128) -> Key {
        Key(bits)
    }

    /// Its number.
    #[must_use]
    pub const fn to_u128(self) -> u128 {
        self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The seed from which all keys of a store are made.
#[derive(Clone)]
pub struct KeyHasher(SipHasher13);

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher(secret)")
    }
}

impl KeyHasher {
    /// With a random seed from the operating system, by way of the standard library.
    #[must_use]
    pub fn random() -> KeyHasher {
        let half = |domain: u64| RandomState::new().hash_one(domain);
        KeyHasher::seeded(half(0), half(1))
    }

    /// With a known seed: for simulations, and for an index that outlives the process.
    #[must_use]
    pub fn seeded(seed0: u64, seed1: u64) -> KeyHasher {
        KeyHasher(SipHasher13::new_with_keys(seed0, seed1))
    }

    /// Starts a key.
    #[must_use]
    pub fn start(&self) -> KeyBuilder {
        KeyBuilder(self.0)
    }

    /// The key of some parts in order; ("ab", "c") and ("a", "bc") differ.
    #[must_use]
    pub fn key(&self, parts: &[&[u8]]) -> Key {
        let mut builder = self.start();
        for part in parts {
            builder.part(part);
        }
        builder.finish()
    }

    /// Starts a key within another, such as the key of a variant within the key of its URI.
    #[must_use]
    pub fn within(&self, outer: Key) -> KeyBuilder {
        let mut builder = self.start();
        builder.raw(&outer.0.to_le_bytes());
        builder
    }
}

/// A key being built.
#[derive(Clone)]
pub struct KeyBuilder(SipHasher13);

impl std::fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyBuilder(secret)")
    }
}

impl KeyBuilder {
    /// Adds a part. Its length counts too.
    pub fn part(&mut self, bytes: &[u8]) {
        // As its bytes from the lowest on, which costs less as one number.
        self.0.write_u64((bytes.len() as u64).to_le());
        self.0.write(bytes);
    }

    /// Adds one byte, as [`KeyBuilder::raw`] does.
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        self.0.write_u8(byte);
    }

    /// Adds bytes without marking where they begin or end, for unambiguous input.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The finished key.
    #[must_use]
    pub fn finish(self) -> Key {
        Key(self.0.finish128().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_apart_and_seeds_matter() {
        let hasher = KeyHasher::seeded(1, 2);
        assert_eq!(hasher.key(&[b"ab", b"c"]), hasher.key(&[b"ab", b"c"]));
        assert_ne!(hasher.key(&[b"ab", b"c"]), hasher.key(&[b"a", b"bc"]));
        assert_ne!(hasher.key(&[b"ab"]), hasher.key(&[b"ab", b""]));
        assert_ne!(hasher.key(&[b"ab"]), KeyHasher::seeded(1, 3).key(&[b"ab"]));
        assert_ne!(KeyHasher::random().key(&[b"ab"]), KeyHasher::random().key(&[b"ab"]));
        let outer = hasher.key(&[b"ab"]);
        assert_ne!(hasher.within(outer).finish(), outer);
    }

    #[test]
    fn a_seeded_key_never_changes() {
        let key = KeyHasher::seeded(0, 0).key(&[b"GET", b"http://example.com/"]);
        assert_eq!(key, Key::from_u128(key.to_u128()));
        // A disk has keys of earlier versions.
        assert_eq!(key.to_string(), "fe556833584de07bee62157656415c59");
    }

    /// The keys on a disk were made of these bytes.
    #[test]
    fn a_key_is_the_hash_of_its_bytes() {
        let parts: [&[u8]; 4] = [b"", b"a", b"a.example", b"/a/longer/path?with=a&query"];
        let mut bytes = vec![7];
        let mut builder = KeyHasher::seeded(1, 2).start();
        builder.byte(7);
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
            builder.part(part);
        }
        let mut whole = SipHasher13::new_with_keys(1, 2);
        whole.write(&bytes);
        assert_eq!(builder.finish(), Key(whole.finish128().into()));
    }
}

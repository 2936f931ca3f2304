//! The handshake of WebSocket (RFC 6455, 4) for clients that have none.
//!
//! Over HTTP/2 and HTTP/3 a client opens a WebSocket by an extended CONNECT, without a key (RFC
//! 8441, RFC 9220). The request of HTTP/1 that the upstream gets has one of our keys, and we check
//! the answer to it.

use std::hash::{BuildHasher, RandomState};

use base64::prelude::{BASE64_STANDARD, Engine};
use config::Protocol;
use sha1_smol::Sha1;

/// Whether clients without an upgrade may open a WebSocket: by what the configuration allows.
pub fn is_allowed(upgrades: &[Protocol]) -> bool {
    upgrades.iter().any(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}

/// A new value of `Sec-WebSocket-Key`. It need not be hard to guess: it shows that an answer is not
/// an old one, or one to another question.
pub fn key() -> String {
    let half = |domain: u64| RandomState::new().hash_one(domain);
    BASE64_STANDARD.encode((u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes())
}

/// The value of `Sec-WebSocket-Accept` that answers a key.
pub(crate) fn accept(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(hash.digest().bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6455_1_3_the_answer_to_a_key() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn keys_have_sixteen_bytes_and_differ() {
        let (one, other) = (key(), key());
        assert_eq!(BASE64_STANDARD.decode(&one).unwrap().len(), 16);
        assert_ne!(one, other);
    }
}

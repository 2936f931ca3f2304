//! The bytes of an object, as the origin sends them and the generator checks them.
//!
//! What: one pseudo-random pattern of prime length. Each object starts at its own offset and wraps
//! around. Why: bodies are sent from one static buffer, and a misplaced byte, or a byte of another
//! object, is still detected. What never happens: a copy.
//!
//! Random bytes are no shorter when they are coded. For that there is a second pattern, of words.

use std::sync::OnceLock;

use crate::random::{Random, mix};

/// Length of the pattern: a prime near 1 MiB, so no block size of a cache divides it.
const PATTERN_BYTES: usize = 1_048_573;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = Random::new(0x706c_696d_736f_6c6c);
        let words = PATTERN_BYTES.div_ceil(8);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        bytes.truncate(PATTERN_BYTES);
        bytes
    })
}

fn words() -> &'static [u8] {
    const WORDS: [&str; 16] = [
        "a", "and", "cache", "for", "is", "of", "origin", "proxy", "request", "response", "stored",
        "that", "the", "this", "to", "with",
    ];
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut random = Random::new(0x7465_7874);
        let mut text = Vec::with_capacity(PATTERN_BYTES);
        while text.len() < PATTERN_BYTES {
            let at = random.next_u64() % WORDS.len() as u64;
            text.extend_from_slice(WORDS[at as usize].as_bytes());
            text.push(b' ');
        }
        text.truncate(PATTERN_BYTES);
        text
    })
}

/// The longest contiguous piece of object `object` starting at byte `offset`, at most `len` bytes.
///
/// Never empty unless `len` is 0.
pub fn piece(object: u64, offset: u64, len: u64) -> &'static [u8] {
    piece_of(pattern(), object, offset, len)
}

/// The same of the text that the object has instead.
pub fn text(object: u64, offset: u64, len: u64) -> &'static [u8] {
    piece_of(words(), object, offset, len)
}

fn piece_of(pattern: &'static [u8], object: u64, offset: u64, len: u64) -> &'static [u8] {
    let start = mix(object.wrapping_add(1)) % PATTERN_BYTES as u64;
    let at = ((start + offset % PATTERN_BYTES as u64) % PATTERN_BYTES as u64) as usize;
    let here = pattern.len() - at;
    let len = usize::try_from(len).map_or(here, |len| len.min(here));
    &pattern[at..at + len]
}

/// Whether `bytes` are the bytes of `object` starting at `offset`.
pub fn matches(object: u64, mut offset: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let expected = piece(object, offset, bytes.len() as u64);
        let (here, rest) = bytes.split_at(expected.len());
        if here != expected {
            return false;
        }
        offset += here.len() as u64;
        bytes = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(object: u64, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let offset = bytes.len() as u64;
            bytes.extend_from_slice(piece(object, offset, len - offset));
        }
        bytes
    }

    #[test]
    fn every_part_of_an_object_matches_only_at_its_offset() {
        let bytes = whole(3, 3_000_000);
        assert!(matches(3, 0, &bytes));
        assert!(matches(3, 1_234_567, &bytes[1_234_567..2_500_000]));
        assert!(!matches(3, 1, &bytes[..1000]));
        assert!(!matches(4, 0, &bytes[..1000]));
        let mut wrong = bytes;
        wrong[2_999_999] ^= 1;
        assert!(!matches(3, 0, &wrong));
    }

    #[test]
    fn text_is_words_and_each_object_has_its_own() {
        let (one, other) = (text(1, 0, 3000), text(2, 0, 3000));
        assert!(one.len() == 3000 && one != other);
        assert!(one.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b' '));
        assert_eq!(text(1, 1000, 9), &one[1000..1009]);
    }

    #[test]
    fn an_empty_piece_matches() {
        assert!(matches(0, 0, b""));
        assert!(piece(0, 5, 0).is_empty());
    }
}

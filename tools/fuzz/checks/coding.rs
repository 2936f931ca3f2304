//! `Accept-Encoding`, and the decoders: no input panics, and no output exceeds its limit.

use coding::{Accept, Coding};

const BYTES_MAX: u64 = 1 << 20;

pub(crate) fn input(bytes: &[u8]) {
    let accept = Accept::parse(std::iter::once(bytes));
    assert_eq!(accept, Accept::of_line(bytes));
    for coding in Coding::ALL {
        if let Ok(body) = coding::decode(coding, &[bytes], BYTES_MAX) {
            assert!(body.len() as u64 <= BYTES_MAX);
        }
    }
}

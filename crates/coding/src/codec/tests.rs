//! Every coding, in both directions and at the limits.

use proptest::prelude::*;

use super::*;
use crate::limits::{DECODED_FREE_BYTES, DECODED_RATIO_MAX};

const MAX: u64 = 1 << 30;

fn text(bytes: usize) -> Vec<u8> {
    let lines =
        (0..).flat_map(|n: u64| format!("line {n} of text, {}\n", n * n % 997).into_bytes());
    lines.take(bytes).collect()
}

#[test]
fn what_is_encoded_is_decoded_and_shorter() {
    let body = text(100_000);
    let pieces = [&body[..1], &body[1..70_000], &[], &body[70_000..]];
    for coding in Coding::ALL {
        for level in [0, 1, 5, 9, 19, 200] {
            let coded = encode(coding, level, &pieces, MAX).unwrap();
            assert!(coded.len() < body.len() + 100, "{coding:?} {level}");
            let halves = coded.split_at(coded.len() / 2);
            let decoded = decode(coding, &[halves.0, halves.1], MAX);
            assert!(decoded == Ok(body.clone()), "{coding:?} {level}");
        }
        assert_eq!(encode(coding, 5, &pieces, MAX), encode(coding, 5, &pieces, MAX));
    }
}

#[test]
fn the_output_is_bounded() {
    let body = text(10_000);
    for coding in Coding::ALL {
        let coded = encode(coding, 5, &[&body], MAX).unwrap();
        let length = coded.len() as u64;
        assert_eq!(encode(coding, 5, &[&body], length).map(|coded| coded.len() as u64), Ok(length));
        assert_eq!(encode(coding, 5, &[&body], length - 1), Err(Failed::TooLong), "{coding:?}");
        assert_eq!(encode(coding, 5, &[&body], 0), Err(Failed::TooLong), "{coding:?}");
        assert_eq!(decode(coding, &[&coded], 10_000).map(|body| body.len()), Ok(10_000));
        assert_eq!(decode(coding, &[&coded], 9_999), Err(Failed::TooLong), "{coding:?}");
    }
}

/// Memory for an output.
struct Memory {
    left: u64,
    taken: u64,
}

impl Bound for Memory {
    fn bytes_max(&self) -> u64 {
        MAX
    }

    fn takes(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.left;
        if fits {
            (self.left, self.taken) = (self.left - bytes, self.taken + bytes);
        }
        fits
    }
}

#[test]
fn the_memory_of_the_output_is_taken_before_it_is_used() {
    let body = text(300_000);
    for coding in Coding::ALL {
        let coded = encode(coding, 1, &[&body], MAX).unwrap();
        let mut much = Memory { left: MAX, taken: 0 };
        assert_eq!(encode(coding, 1, &[&body], &mut much).as_ref(), Ok(&coded), "{coding:?}");
        assert!(much.taken >= coded.len() as u64, "{coding:?}: {}", much.taken);
        let mut much = Memory { left: MAX, taken: 0 };
        let decoded = decode(coding, &[&coded], &mut much).unwrap();
        assert!(much.taken >= decoded.capacity() as u64, "{coding:?}: {}", much.taken);
        for part in [1, 4, 20] {
            let few = || Memory { left: much.taken / part - 1, taken: 0 };
            assert_eq!(decode(coding, &[&coded], few()), Err(Failed::NoRoom), "{coding:?} {part}");
        }
        let none = Memory { left: 99, taken: 0 };
        assert_eq!(encode(coding, 1, &[&body], none), Err(Failed::NoRoom), "{coding:?}");
    }
}

#[test]
fn a_bomb_is_not_decoded() {
    let zeros = vec![0; 8 << 20];
    for coding in Coding::ALL {
        let coded = encode(coding, 9, &[&zeros], MAX).unwrap();
        assert!(coded.len() as u64 * DECODED_RATIO_MAX < zeros.len() as u64, "{coding:?}");
        assert_eq!(decode(coding, &[&coded], MAX), Err(Failed::Bomb), "{coding:?}");
        let small = &zeros[..DECODED_FREE_BYTES as usize];
        let coded = encode(coding, 9, &[small], MAX).unwrap();
        assert!(decode(coding, &[&coded], MAX).is_ok(), "{coding:?}");
    }
}

#[test]
fn a_truncated_body_is_never_taken_for_whole() {
    let body = text(3_000);
    for coding in Coding::ALL {
        let coded = encode(coding, 5, &[&body], MAX).unwrap();
        for end in 1..coded.len() {
            assert_eq!(decode(coding, &[&coded[..end]], MAX), Err(Failed::Malformed), "{coding:?}");
        }
    }
}

/// RFC 9659: a frame that needs more than 8 MiB.
#[test]
fn a_window_beyond_the_limit_is_refused() {
    use std::io::Write;
    let encode = |log: u32| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        encoder.write_all(&text(10 << 20)).unwrap();
        encoder.finish().unwrap()
    };
    let (fits, large) = (encode(23), encode(24));
    let ratio = |coded: &[u8]| (10 << 20) / coded.len();
    assert!(ratio(&fits) > 1 && ratio(&large) > 1);
    assert_eq!(decode(Coding::Zstd, &[&large], MAX), Err(Failed::Malformed));
    assert_ne!(decode(Coding::Zstd, &[&fits], MAX), Err(Failed::Malformed));
}

proptest! {
    #[test]
    fn any_body_survives(
        body in proptest::collection::vec(any::<u8>(), 0..5_000),
        level in 0u8..12,
    ) {
        for coding in Coding::ALL {
            let coded = encode(coding, level, &[&body], MAX).unwrap();
            prop_assert_eq!(decode(coding, &[&coded], MAX), Ok(body.clone()));
        }
    }

    #[test]
    fn no_input_panics_or_exceeds_the_bound(
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        for coding in Coding::ALL {
            if let Ok(decoded) = decode(coding, &[&body], 1_000) {
                prop_assert!(decoded.len() <= 1_000);
            }
        }
    }
}

//! Every coding, in both directions and at the limits.

use proptest::prelude::*;

use super::*;

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

/// The caller has reserved memory for its bound, and for no more.
#[test]
fn the_buffer_of_the_output_is_no_larger_than_its_bound() {
    let body = text(100_000);
    for coding in Coding::ALL {
        for more in [0, 1, 3_000] {
            let coded = encode(coding, 1, &[&body], MAX).unwrap();
            let most = coded.len() + more;
            let coded = encode(coding, 1, &[&body], most as u64).unwrap();
            assert!(coded.capacity() <= most, "{coding:?} {more}: {}", coded.capacity());
            let most = body.len() + more;
            let decoded = decode(coding, &[&coded], most as u64).unwrap();
            assert!(decoded.capacity() <= most, "{coding:?} {more}: {}", decoded.capacity());
        }
        let zeros = vec![0; DECODED_FREE_BYTES as usize - 9];
        let coded = encode(coding, 9, &[&zeros], MAX).unwrap();
        let decoded = decode(coding, &[&coded], MAX).unwrap();
        let most = decoded_bytes_max(coded.len() as u64) as usize;
        assert!(decoded.capacity() <= most, "{coding:?}: {}", decoded.capacity());
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

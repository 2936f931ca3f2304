//! Integers with a prefix of some bits (RFC 7541 section 5.1).

use crate::error::Reason;

/// Reads an integer whose prefix is in the first byte of `bytes`. Returns the value, below 2^28,
/// and its length in bytes.
///
/// # Errors
/// It is cut off, or longer than any valid one.
#[inline]
pub fn read(bytes: &[u8], prefix_bits: u32) -> Result<(usize, usize), Reason> {
    let mask = (1usize << prefix_bits) - 1;
    let value = *bytes.first().ok_or(Reason::HpackTruncated)? as usize & mask;
    if value < mask {
        return Ok((value, 1));
    }
    read_rest(bytes, mask)
}

fn read_rest(bytes: &[u8], mut value: usize) -> Result<(usize, usize), Reason> {
    // Four bytes of seven bits are more than any length or index that is valid here.
    const REST_BYTES_MAX: usize = 4;
    for (at, &byte) in bytes.iter().enumerate().skip(1) {
        if at > REST_BYTES_MAX {
            return Err(Reason::HpackInteger);
        }
        value += (byte as usize & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Ok((value, at + 1));
        }
    }
    Err(Reason::HpackTruncated)
}

/// Appends an integer; `first` has the bits before the prefix.
#[inline]
pub fn write(out: &mut Vec<u8>, first: u8, prefix_bits: u32, value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc7541_c_1_examples_of_integers() {
        for (value, prefix_bits, bytes) in
            [(10, 5, &[10][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])]
        {
            let mut out = Vec::new();
            write(&mut out, 0, prefix_bits, value);
            assert_eq!(out, bytes);
            assert_eq!(read(bytes, prefix_bits), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn rfc7541_5_1_integers_that_are_too_long_are_errors() {
        assert_eq!(read(&[0x1f, 0xff, 0xff], 5), Err(Reason::HpackTruncated));
        assert_eq!(read(&[], 5), Err(Reason::HpackTruncated));
        assert_eq!(read(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0], 5), Err(Reason::HpackInteger));
        assert_eq!(read(&[0x1f, 0x80, 0x80, 0x80, 0], 5), Ok((31, 5)));
    }

    #[test]
    fn rfc7541_5_1_integers_round_trip() {
        for prefix_bits in 4..=8 {
            for value in (0..70_000).step_by(37).chain([15, 16, 30, 31, 127, 128, 254, 255]) {
                let mut out = Vec::new();
                write(&mut out, 0, prefix_bits, value);
                assert_eq!(read(&out, prefix_bits), Ok((value, out.len())));
            }
        }
    }
}

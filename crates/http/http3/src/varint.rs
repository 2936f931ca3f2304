//! Integers of variable length (RFC 9000 section 16).

/// Reads an integer at the start of `bytes`: its value and its length. `None` if it is cut off.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let value = bytes.get(1..length)?;
    let start = u64::from(first & 0x3f);
    Some((value.iter().fold(start, |value, byte| value << 8 | u64::from(*byte)), length))
}

/// Appends an integer in its shortest form. The value is below 2^62.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => {
            debug_assert!(value < 1 << 62, "identifiers and lengths are below 2^62");
            out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9000_a_1_examples() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read(bytes), Some((value, bytes.len())));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None);
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(read(&[0x40, 0x25]), Some((37, 2)), "longer than needed");
    }
}

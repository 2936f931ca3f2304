//! The Huffman code for strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: among codes of one length, a larger symbol has a larger code, and longer
//! codes follow shorter ones. So the lengths define it, and the tables are computed from them at
//! compile time. Codes of at most eight bits, which are those of most text, are decoded by one
//! look into 256 entries; longer ones by a comparison for each length.

use crate::error::Reason;

const EOS: usize = 256;
const BITS_MAX: usize = 30;

/// The length of the code of each byte, and of EOS.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

struct Tables {
    /// The code of each symbol, in its low bits.
    codes: [u32; 257],
    /// The symbols by their codes.
    symbols: [u16; 257],
    /// The first code of each length.
    first_code: [u32; BITS_MAX + 1],
    /// How many symbols have shorter codes.
    before: [u16; BITS_MAX + 1],
    /// How many symbols have codes of this length.
    count: [u16; BITS_MAX + 1],
    /// The symbol and the length of the code that the eight bits begin with; length 0 if it is
    /// longer.
    short: [(u8, u8); 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut t = Tables {
        codes: [0; 257],
        symbols: [0; 257],
        first_code: [0; BITS_MAX + 1],
        before: [0; BITS_MAX + 1],
        count: [0; BITS_MAX + 1],
        short: [(0, 0); 256],
    };
    let (mut code, mut order, mut bits) = (0u32, 0, 1);
    while bits <= BITS_MAX {
        code <<= 1;
        t.first_code[bits] = code;
        t.before[bits] = order as u16;
        let mut symbol = 0;
        while symbol <= EOS {
            if LENGTHS[symbol] as usize == bits {
                t.codes[symbol] = code;
                t.symbols[order] = symbol as u16;
                let mut tail = 0;
                while bits <= 8 && tail < 1 << (8 - bits) {
                    t.short[((code as usize) << (8 - bits)) + tail] = (symbol as u8, bits as u8);
                    tail += 1;
                }
                code += 1;
                order += 1;
            }
            symbol += 1;
        }
        t.count[bits] = order as u16 - t.before[bits];
        bits += 1;
    }
    t
}

/// Appends the decoded string. The output has at most 8/5 of the bytes of the input.
///
/// # Errors
/// It is no valid code, or its padding is wrong.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let t = &TABLES;
    out.reserve(input.len() * 8 / 5);
    let (mut acc, mut bits, mut rest) = (0u64, 0u32, input);
    loop {
        while bits <= 56 {
            let Some((&byte, after)) = rest.split_first() else { break };
            acc |= u64::from(byte) << (56 - bits);
            bits += 8;
            rest = after;
        }
        let (symbol, length) = t.short[(acc >> 56) as usize];
        let length = u32::from(length);
        if length != 0 && length <= bits {
            out.push(symbol);
            acc <<= length;
            bits -= length;
        } else if length == 0 && bits > 8 {
            let Some((symbol, length)) = decode_long(acc, bits) else { return padding(acc, bits) };
            let byte = u8::try_from(symbol).map_err(|_| Reason::HpackHuffman)?;
            out.push(byte);
            acc <<= length;
            bits -= length;
        } else {
            return padding(acc, bits);
        }
    }
}

/// The symbol of a code longer than eight bits and its length; `None` if the bits end before.
fn decode_long(acc: u64, bits: u32) -> Option<(u16, u32)> {
    let t = &TABLES;
    (9..=bits.min(BITS_MAX as u32)).find_map(|length| {
        let at = ((acc >> (64 - length)) as u32).wrapping_sub(t.first_code[length as usize]);
        let is_code = at < u32::from(t.count[length as usize]);
        is_code.then(|| (t.symbols[t.before[length as usize] as usize + at as usize], length))
    })
}

/// The bits at the end are fewer than eight and all set (RFC 7541 section 5.2).
fn padding(acc: u64, bits: u32) -> Result<(), Reason> {
    let is_valid = bits < 8 && acc == !(u64::MAX >> bits);
    if is_valid { Ok(()) } else { Err(Reason::HpackHuffman) }
}

/// The bytes of the encoded string.
#[inline]
pub fn encoded_len(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|&byte| LENGTHS[byte as usize] as usize).sum();
    bits.div_ceil(8)
}

/// Appends the encoded string.
pub fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut acc, mut bits) = (0u64, 0u32);
    for &byte in input {
        let length = u32::from(LENGTHS[byte as usize]);
        acc = acc << length | u64::from(TABLES.codes[byte as usize]);
        bits += length;
        while bits >= 32 {
            bits -= 32;
            out.extend_from_slice(&((acc >> bits) as u32).to_be_bytes());
        }
    }
    while bits >= 8 {
        bits -= 8;
        out.push((acc >> bits) as u8);
    }
    if bits > 0 {
        out.push((acc << (8 - bits)) as u8 | (0xff >> bits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Reason> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    #[test]
    fn rfc7541_b_codes_are_those_of_the_table() {
        // A sample of every length: symbol, code.
        for (symbol, code) in [
            (b'0', 0x0),
            (b't', 0x9),
            (b' ', 0x14),
            (b'u', 0x2d),
            (b':', 0x5c),
            (b'z', 0x7b),
            (b'&', 0xf8),
            (b';', 0xfb),
            (b'!', 0x3f8),
            (b'?', 0x3fc),
            (b'\'', 0x7fa),
            (b'#', 0xffa),
            (0, 0x1ff8),
            (b'~', 0x1ffd),
            (b'^', 0x3ffc),
            (b'<', 0x7ffc),
            (b'\\', 0x7fff0),
            (128, 0xfffe6),
            (153, 0x1fffdc),
            (129, 0x3fffd2),
            (1, 0x7fffd8),
            (9, 0xffffea),
            (199, 0x1ffffec),
            (192, 0x3ffffe0),
            (203, 0x7ffffde),
            (2, 0xfffffe2),
            (10, 0x3ffffffc),
            (22, 0x3ffffffe),
        ] {
            assert_eq!(TABLES.codes[symbol as usize], code, "{symbol}");
        }
        assert_eq!(TABLES.codes[EOS], 0x3fff_ffff);
        // Complete: the last code is all ones, so that no sequence of bits is without meaning.
        assert_eq!(TABLES.before[BITS_MAX] + TABLES.count[BITS_MAX], 257);
    }

    #[test]
    fn rfc7541_b_every_pair_of_symbols_round_trips() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let text = [first, second, first];
                let mut out = Vec::new();
                encode(&text, &mut out);
                assert_eq!(out.len(), encoded_len(&text));
                assert_eq!(decoded(&out), Ok(text.to_vec()));
            }
        }
    }

    #[test]
    fn rfc7541_5_2_padding_is_the_start_of_eos() {
        assert_eq!(decoded(&[]), Ok(vec![]));
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0110]), Err(Reason::HpackHuffman), "not all ones");
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(Reason::HpackHuffman), "eight bits or more");
        assert_eq!(decoded(&[0xff]), Err(Reason::HpackHuffman));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(Reason::HpackHuffman), "EOS");
    }
}

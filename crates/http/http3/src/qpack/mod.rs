//! QPACK (RFC 9204) without dynamic tables: field sections to fields and back.
//!
//! Integers and strings are those of HPACK, from [`http2::hpack`].

mod static_table;

use http2::Scratch;
use http2::hpack::{huffman, integer};

use crate::error::Reason;
use crate::limits::Limits;

/// The prefix of a section that needs no dynamic table (RFC 9204 section 4.5.1).
pub const PREFIX: [u8; 2] = [0, 0];

/// A name up to this length is converted to lower case on the stack, and compressed.
const NAME_BYTES: usize = 64;

/// Decodes a section. If it exceeds a limit on its fields, [`Scratch::is_overfull`] says so.
///
/// # Errors
/// It is invalid, needs a dynamic table, or exceeds the limits by far.
pub fn decode(section: &[u8], scratch: &mut Scratch, limits: &Limits) -> Result<(), Reason> {
    scratch.clear();
    let (insert_count, used) = integer::read(section, 8).map_err(invalid)?;
    let rest = &section[used..];
    // A base below the insert count, which is 0, would be negative.
    let is_negative = rest.first().ok_or(Reason::Qpack)? & 0x80 != 0;
    let (_, used) = integer::read(rest, 7).map_err(invalid)?;
    if insert_count != 0 {
        return Err(Reason::QpackDynamic);
    }
    if is_negative {
        return Err(Reason::Qpack);
    }
    let mut rest = &rest[used..];
    while !rest.is_empty() {
        let mut reader = Reader(rest);
        let (fields_max, bytes_max) =
            (limits.fields_max as usize, limits.fields_bytes_max as usize);
        let mut wrong = None;
        let pushed = scratch.push(fields_max, bytes_max, |arena| {
            reader.field(arena).map_err(|reason| {
                wrong = Some(reason);
                http2::Reason::HpackIndex
            })
        });
        match (wrong, pushed) {
            (Some(reason), _) => return Err(reason),
            (None, Err(_)) => return Err(Reason::FieldsTooLarge),
            (None, Ok(())) => {}
        }
        rest = reader.0;
    }
    Ok(())
}

fn invalid(_: http2::Reason) -> Reason {
    Reason::Qpack
}

/// What follows in a section.
struct Reader<'s>(&'s [u8]);

impl Reader<'_> {
    /// Appends a field's name and value; returns the length of the name.
    fn field(&mut self, arena: &mut Vec<u8>) -> Result<usize, Reason> {
        let start = arena.len();
        let first = self.0[0];
        match first {
            // Indexed: static, and dynamic.
            0xc0.. => {
                let (name, value) = self.entry(6)?;
                arena.extend_from_slice(name);
                arena.extend_from_slice(value);
                return Ok(name.len());
            }
            // A literal with the name of the static table.
            0x50..0x60 | 0x70..0x80 => arena.extend_from_slice(self.entry(4)?.0),
            // A literal with its name.
            0x20..0x40 => self.string(3, arena)?,
            // An index into the dynamic table.
            _ => return Err(Reason::QpackDynamic),
        }
        let name_len = arena.len() - start;
        self.string(7, arena)?;
        Ok(name_len)
    }

    fn integer(&mut self, prefix_bits: u32) -> Result<usize, Reason> {
        let (value, used) = integer::read(self.0, prefix_bits).map_err(invalid)?;
        self.0 = &self.0[used..];
        Ok(value)
    }

    fn entry(&mut self, prefix_bits: u32) -> Result<static_table::Entry, Reason> {
        let index = self.integer(prefix_bits)?;
        static_table::TABLE.get(index).copied().ok_or(Reason::Qpack)
    }

    /// Appends a string; the bit before its prefix says whether it is compressed.
    fn string(&mut self, prefix_bits: u32, arena: &mut Vec<u8>) -> Result<(), Reason> {
        let first = *self.0.first().ok_or(Reason::Qpack)?;
        let length = self.integer(prefix_bits)?;
        let text = self.0.get(..length).ok_or(Reason::Qpack)?;
        self.0 = &self.0[length..];
        if first >> prefix_bits & 1 == 0 {
            arena.extend_from_slice(text);
            Ok(())
        } else {
            huffman::decode(text, arena).map_err(invalid)
        }
    }
}

/// Appends a field to a section that begins with [`PREFIX`]. Upper case letters of the name become
/// lower case. Credentials and cookies are marked so that no proxy indexes them.
pub fn encode_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let mut lower = [0; NAME_BYTES];
    let mut long = Vec::new();
    let name = match lower.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            &*lower
        }
        None => {
            long.extend(name.iter().map(u8::to_ascii_lowercase));
            &long
        }
    };
    let never_indexed = match name {
        b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie" => 0x20,
        _ => 0,
    };
    match static_table::find(name, value) {
        (_, Some(index)) if never_indexed == 0 => return integer::write(out, 0xc0, 6, index),
        (Some(index), _) => integer::write(out, 0x50 | never_indexed, 4, index),
        (None, _) => string(0x20 | never_indexed >> 1, 3, name, out),
    }
    string(0, 7, value, out);
}

/// Appends a string; `first` has the bits before the one that says whether it is compressed.
fn string(first: u8, prefix_bits: u32, text: &[u8], out: &mut Vec<u8>) {
    let encoded = huffman::encoded_len(text);
    if encoded < text.len() {
        integer::write(out, first | 1 << prefix_bits, prefix_bits, encoded);
        huffman::encode(text, out);
    } else {
        integer::write(out, first, prefix_bits, text.len());
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(section: &[u8]) -> Result<Vec<(String, String)>, Reason> {
        let mut scratch = Scratch::new();
        decode(section, &mut scratch, &Limits::DEFAULT)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok(scratch.fields_of_block().iter().map(|(n, v)| (text(n), text(v))).collect())
    }

    fn encoded(name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = PREFIX.to_vec();
        encode_field(name, value, &mut out);
        out
    }

    #[test]
    fn rfc9204_b_1_a_literal_with_a_name_of_the_static_table() {
        let section = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(decoded(section), Ok(vec![(":path".into(), "/index.html".into())]));
    }

    #[test]
    fn rfc9204_4_5_what_needs_a_dynamic_table_is_an_error() {
        for section in [
            &[1, 0][..],      // a required insert count
            &[0, 0, 0x80],    // indexed, dynamic
            &[0, 0, 0x10],    // indexed, post-base
            &[0, 0, 0x40, 0], // the name is in the dynamic table
            &[0, 0, 0x00, 0], // the same, post-base
        ] {
            assert_eq!(decoded(section), Err(Reason::QpackDynamic), "{section:x?}");
        }
    }

    #[test]
    fn rfc9204_4_5_invalid_sections() {
        for section in [
            &[][..],
            &[0],
            &[0, 0x80],                // a negative base
            &[0, 0, 0xff, 0x24],       // index 99
            &[0, 0, 0x51],             // without a value
            &[0, 0, 0x51, 5, b'a'],    // a short value
            &[0, 0, 0x51, 0x81, 0],    // wrong padding
            &[0, 0, 0x23, b'a', b'b'], // a short name
            &[0, 0, 0x27, 0xff],       // a cut integer
            &[0, 0, 0x51, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0],
        ] {
            assert_eq!(decoded(section), Err(Reason::Qpack), "{section:x?}");
        }
        assert_eq!(decoded(&[0, 5]), Ok(vec![]), "a base that is not used");
    }

    #[test]
    fn every_entry_is_found_and_round_trips() {
        for (index, (name, value)) in static_table::TABLE.into_iter().enumerate() {
            let section = encoded(name, value);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(decoded(&section), Ok(vec![(text(name), text(value))]));
            if !matches!(name, b"authorization" | b"cookie" | b"set-cookie") {
                assert_eq!(static_table::find(name, value).1, Some(index), "{}", text(name));
            }
        }
    }

    #[test]
    fn credentials_are_never_indexed() {
        assert_eq!(encoded(b"Cookie", b"")[2], 0x75);
        assert_eq!(encoded(b"proxy-authorization", b"x")[2] & 0xf0, 0x30);
        assert_eq!(encoded(b"x", b"y")[2] & 0xf0, 0x20);
    }

    #[test]
    fn names_of_any_length_become_lower_case() {
        let name = "X-".repeat(50);
        let expected = vec![(name.to_lowercase(), "Value".to_owned())];
        assert_eq!(decoded(&encoded(name.as_bytes(), b"Value")), Ok(expected));
    }

    #[test]
    fn limits_on_fields() {
        let limits = Limits { fields_max: 2, fields_bytes_max: 200, ..Limits::DEFAULT };
        let with = |count: usize, value: &[u8]| {
            let mut section = PREFIX.to_vec();
            (0..count).for_each(|_| encode_field(b"a", value, &mut section));
            let mut scratch = Scratch::new();
            decode(&section, &mut scratch, &limits).map(|()| scratch.is_overfull())
        };
        assert_eq!(with(2, b"b"), Ok(false));
        assert_eq!(with(3, b"b"), Ok(true));
        assert_eq!(with(1, &[b'b'; 300]), Ok(true));
        assert_eq!(with(1, &[b'b'; 900]), Err(Reason::FieldsTooLarge));
    }
}

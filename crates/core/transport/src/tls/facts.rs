//! What the log reports about a TLS connection, and distinguished names as text.

/// The facts about a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'c> {
    /// `1.3` or `1.2`.
    pub version: &'c str,
    /// The cipher suite, as IANA names it.
    pub cipher: &'c str,
    /// The name that the client requested (SNI).
    pub server_name: Option<&'c str>,
    /// An earlier session was resumed.
    pub resumed: bool,
    /// The names of the peer's certificate, which has been verified.
    pub peer: Option<Peer<'c>>,
}

/// The names in a certificate, each as the content of its DER sequence.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'c> {
    /// The distinguished name of its subject, DER.
    pub subject: &'c [u8],
    /// That of its issuer, DER.
    pub issuer: &'c [u8],
}

/// A connection with TLS facts.
pub trait TlsFacts {
    /// Calls `look` with the facts.
    fn with_facts(&self, look: &mut dyn FnMut(&Facts<'_>));
}

/// The attribute types with a short name (RFC 4514, 3), by the DER of their identifier.
const TYPES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// A distinguished name in the format of RFC 4514, the most specific part first: `CN=a,O=b`.
/// Elements that cannot be parsed are left out.
pub fn name_text(mut sequence: &[u8]) -> Vec<u8> {
    let mut parts = Vec::new();
    while let Some((_, set, rest)) = element(sequence) {
        sequence = rest;
        let mut set = set;
        let mut part = Vec::new();
        while let Some((_, pair, rest)) = element(set) {
            set = rest;
            let Some((_, identifier, value)) = element(pair) else { continue };
            let Some((tag, value, _)) = element(value) else { continue };
            if !part.is_empty() {
                part.push(b'+');
            }
            append_pair(&mut part, identifier, tag, value);
        }
        parts.push(part);
    }
    parts.reverse();
    parts.join(&b',')
}

fn append_pair(out: &mut Vec<u8>, identifier: &[u8], tag: u8, value: &[u8]) {
    match TYPES.iter().find(|(known, _)| *known == identifier) {
        Some((_, name)) => out.extend_from_slice(name.as_bytes()),
        None => append_hex(out, identifier),
    }
    out.push(b'=');
    // UTF8String, NumericString, PrintableString, IA5String; the others as their bytes in hex.
    if !matches!(tag, 12 | 18 | 19 | 22) {
        return append_hex(out, value);
    }
    for (at, byte) in value.iter().enumerate() {
        let outer = at == 0 || at + 1 == value.len();
        if b"\"+,;<>\\".contains(byte) || (outer && *byte == b' ') || (at == 0 && *byte == b'#') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
}

fn append_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'#');
    for byte in bytes {
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

/// The first element of some DER: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(*rest.first()?) << 8 | usize::from(*rest.get(1)?), &rest[2..]),
        _ => return None,
    };
    Some((tag, rest.get(..length)?, &rest[length..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8][..], content].concat()
    }

    fn part(identifier: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let pair = [der(6, identifier), der(tag, value)].concat();
        der(0x31, &der(0x30, &pair))
    }

    #[test]
    fn names_are_written_as_rfc_4514_has_them() {
        let name = [
            part(&[0x55, 4, 6], 19, b"DE"),
            part(&[0x55, 4, 10], 12, "Bäcker, Söhne".as_bytes()),
            part(&[0x55, 4, 3], 12, b"#client "),
        ];
        let text = String::from_utf8(name_text(&name.concat())).unwrap();
        assert_eq!(text, "CN=\\#client\\ ,O=Bäcker\\, Söhne,C=DE");
        let odd = part(&[0x2a, 3], 4, &[0, 255]);
        assert_eq!(name_text(&odd), b"#2a03=#00ff");
    }

    proptest! {
        #[test]
        fn any_bytes_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            name_text(&bytes);
        }
    }
}

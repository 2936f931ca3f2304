//! The server name of a TLS ClientHello, read while it arrives; the bytes are not changed.
//!
//! What: [`ClientHello::push`] takes bytes in any pieces and returns what they say: more is needed,
//! the server name (RFC 6066, 3), or why this is not the beginning of TLS. Why strict: the server
//! reads the same bytes, and must not find another name in them than we did. The layers are
//! records, whose fragments are joined, and within them one handshake message. An encrypted
//! ClientHello has the provider's name outside and the server's inside, where we cannot read it;
//! the outer name counts here.
//!
//! What never happens: more than [`CLIENT_HELLO_BYTES_MAX`] bytes are kept, a byte is read twice,
//! bytes after the message are looked at.

use crate::limits::CLIENT_HELLO_BYTES_MAX;

/// What the bytes received so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More bytes are needed.
    More,
    /// The ClientHello is complete.
    Whole {
        /// The server name as sent; `None` if it names no server.
        server_name: Option<Box<[u8]>>,
    },
    /// This is no valid ClientHello, for this reason.
    Never(&'static str),
}

/// The reader.
#[derive(Debug, Default)]
pub struct ClientHello {
    /// All bytes received, to be passed on.
    bytes: Vec<u8>,
    /// Where the next record, or the rest of the current one, begins in `bytes`.
    at: usize,
    /// Bytes of the current record that have not been joined yet.
    in_record: usize,
    /// The handshake message, its header first, without the records around it.
    message: Vec<u8>,
}

const RECORD_HEADER: usize = 5;
const RECORD_BYTES_MAX: usize = 1 << 14;
const MESSAGE_HEADER: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

impl ClientHello {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Verdict {
        self.bytes.extend_from_slice(bytes);
        match self.advance() {
            Ok(false) if self.bytes.len() >= CLIENT_HELLO_BYTES_MAX => {
                Verdict::Never("a ClientHello that is too long")
            }
            Ok(false) => Verdict::More,
            Ok(true) => match server_name(&self.message[MESSAGE_HEADER..]) {
                Some(server_name) => Verdict::Whole { server_name },
                None => Verdict::Never("a malformed ClientHello"),
            },
            Err(why) => Verdict::Never(why),
        }
    }

    /// All bytes received.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Joins the received fragments; true when the message is complete.
    fn advance(&mut self) -> Result<bool, &'static str> {
        loop {
            if self.in_record == 0 {
                let header = &self.bytes[self.at..];
                let Some(length) = record_length(&header[..header.len().min(RECORD_HEADER)])?
                else {
                    return Ok(false);
                };
                self.at += RECORD_HEADER;
                self.in_record = length;
            }
            let there = self.in_record.min(self.bytes.len() - self.at);
            if there == 0 {
                return Ok(false);
            }
            self.message.extend_from_slice(&self.bytes[self.at..][..there]);
            self.at += there;
            self.in_record -= there;
            if let Some(length) = message_length(&self.message)? {
                let whole = MESSAGE_HEADER + length;
                // Nothing may follow it within its record: the server answers first.
                if self.message.len() + self.in_record > whole {
                    return Err("more than a ClientHello in its record");
                }
                if self.message.len() == whole {
                    return Ok(true);
                }
            }
        }
    }
}

/// The length in a record's header, once the header is complete. Errors are reported earlier.
fn record_length(header: &[u8]) -> Result<Option<usize>, &'static str> {
    let wrong = match *header {
        [kind, ..] if kind != HANDSHAKE => true,
        [_, major, ..] if major != 3 => true,
        [_, _, minor, ..] => minor > 4,
        _ => false,
    };
    if wrong {
        return Err("no TLS handshake");
    }
    let [_, _, _, high, low] = *header else { return Ok(None) };
    match usize::from(u16::from_be_bytes([high, low])) {
        0 => Err("an empty TLS record"),
        length if length > RECORD_BYTES_MAX => Err("a TLS record that is too long"),
        length => Ok(Some(length)),
    }
}

/// The length in the message's header, the same way.
fn message_length(message: &[u8]) -> Result<Option<usize>, &'static str> {
    match *message {
        [kind, ..] if kind != CLIENT_HELLO => Err("no TLS ClientHello"),
        [_, a, b, c, ..] => {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if length > CLIENT_HELLO_BYTES_MAX {
                return Err("a ClientHello that is too long");
            }
            Ok(Some(length))
        }
        _ => Ok(None),
    }
}

/// The remainder of a structure.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, &b| number << 8 | usize::from(b)))
    }

    /// A vector whose length takes this many bytes.
    fn vector(&mut self, bytes: usize) -> Option<Rest<'b>> {
        let length = self.number(bytes)?;
        self.take(length).map(Rest)
    }
}

/// The name in the body of a ClientHello (RFC 8446, 4.1.2). The outer `None` means that it is
/// malformed.
fn server_name(body: &[u8]) -> Option<Option<Box<[u8]>>> {
    let mut body = Rest(body);
    let version = body.take(2)?;
    body.take(32)?; // random
    let session = body.vector(1)?.0;
    let suites = body.vector(2)?.0;
    let compression = body.vector(1)?.0;
    let well = version[0] == 3
        && session.len() <= 32
        && !suites.is_empty()
        && suites.len() % 2 == 0
        && !compression.is_empty();
    if !well {
        return None;
    }
    if body.0.is_empty() {
        return Some(None); // extensions are younger than TLS
    }
    let mut extensions = body.vector(2)?;
    if !body.0.is_empty() {
        return None;
    }
    let mut seen = Vec::with_capacity(24);
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let content = extensions.vector(2)?;
        if seen.contains(&kind) {
            return None;
        }
        seen.push(kind);
        if kind == 0 {
            name = Some(only_host_name(content)?);
        }
    }
    Some(name)
}

/// The name of a list that has one entry, of type `host_name`.
fn only_host_name(mut content: Rest<'_>) -> Option<Box<[u8]>> {
    let mut list = content.vector(2)?;
    let kind = list.number(1)?;
    let name = list.vector(2)?.0;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    let well = kind == 0
        && list.0.is_empty()
        && content.0.is_empty()
        && !name.is_empty()
        && name.iter().all(plain);
    well.then(|| name.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn vector(bytes: usize, content: &[u8]) -> Vec<u8> {
        let mut out = content.len().to_be_bytes()[8 - bytes..].to_vec();
        out.extend_from_slice(content);
        out
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(2, content)].concat()
    }

    fn sni(name: &[u8]) -> Vec<u8> {
        extension(0, &vector(2, &[&[0][..], &vector(2, name)].concat()))
    }

    fn body(extensions: &[u8]) -> Vec<u8> {
        let fixed = [&[3, 3][..], &[7; 32], &vector(1, &[9; 32])].concat();
        let lists = [vector(2, &[0x13, 1, 0x13, 2]), vector(1, &[0])].concat();
        [fixed, lists, vector(2, extensions)].concat()
    }

    fn message(body: &[u8]) -> Vec<u8> {
        [&[CLIENT_HELLO][..], &vector(3, body)].concat()
    }

    /// In records of this many bytes.
    fn records(message: &[u8], of: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1][..], &vector(2, part)].concat();
        message.chunks(of).flat_map(record).collect()
    }

    /// A ClientHello as a client sends it.
    fn hello(name: &[u8]) -> Vec<u8> {
        let others = [extension(43, &[2, 3, 4]), sni(name), extension(0x0a0a, &[])].concat();
        records(&message(&body(&others)), RECORD_BYTES_MAX)
    }

    fn whole(name: &[u8]) -> Verdict {
        Verdict::Whole { server_name: Some(name.into()) }
    }

    fn at_once(bytes: &[u8]) -> Verdict {
        ClientHello::default().push(bytes)
    }

    #[test]
    fn every_split_and_every_fragmentation_gives_the_same_name() {
        let message =
            message(&body(&[sni(b"example.com"), extension(16, b"\0\x03\x02h2")].concat()));
        for of in [1, 2, 3, 4, 5, 7, 50, message.len() - 1, message.len()] {
            let bytes = records(&message, of);
            for split in 0..bytes.len() {
                let mut reader = ClientHello::default();
                assert_eq!(reader.push(&bytes[..split]), Verdict::More, "{of} {split}");
                assert_eq!(reader.push(&bytes[split..]), whole(b"example.com"), "{of} {split}");
                assert_eq!(reader.into_bytes(), bytes);
            }
            let mut reader = ClientHello::default();
            let (last, all) = bytes.split_last().unwrap();
            for byte in all {
                assert_eq!(reader.push(&[*byte]), Verdict::More);
            }
            assert_eq!(reader.push(&[*last]), whole(b"example.com"));
        }
    }

    #[test]
    fn what_follows_the_message_is_kept_and_not_read() {
        let mut bytes = hello(b"a.example");
        bytes.extend_from_slice(b"\x14\x03\x03\0\x01\x01 early data, or anything");
        let mut reader = ClientHello::default();
        assert_eq!(reader.push(&bytes), whole(b"a.example"));
        assert_eq!(reader.into_bytes(), bytes);
    }

    #[test]
    fn a_client_may_tell_no_name() {
        let none = Verdict::Whole { server_name: None };
        assert_eq!(at_once(&records(&message(&body(&extension(43, &[]))), 100)), none);
        let mut old = body(&[]);
        old.truncate(old.len() - 2);
        assert_eq!(at_once(&records(&message(&old), 100)), none);
    }

    #[test]
    fn what_is_no_tls_is_rejected_at_the_first_differing_byte() {
        let lines: [&[u8]; 8] = [
            b"G",
            b"SSH-2.0-x",
            b"\x80\x2e\x01",
            b"\x16\x02",
            b"\x16\x03\x05",
            b"\x17\x03\x03",
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\x40\x01",
        ];
        for bytes in lines {
            assert!(matches!(at_once(bytes), Verdict::Never(_)), "{bytes:?}");
        }
        assert!(matches!(at_once(b"\x16\x03\x01\0\x05\x02"), Verdict::Never(_)), "a ServerHello");
        assert!(matches!(at_once(b"\x16\x03\x01\0\x05\x01\xff"), Verdict::More));
        assert!(matches!(at_once(b"\x16\x03\x01\0\x05\x01\xff\0\0"), Verdict::Never(_)));
    }

    #[test]
    fn what_two_readers_could_take_differently_is_refused() {
        let two_names = [&vector(2, b"a.example")[..], &[0], &vector(2, b"b.example")].concat();
        let wrong_bodies = [
            body(&[sni(b"a.example"), sni(b"b.example")].concat()),
            body(&extension(0, &vector(2, &[&[0][..], &two_names].concat()))),
            body(&extension(0, &vector(2, &[&[1][..], &vector(2, b"a.example")].concat()))),
            body(&extension(0, &[])),
            body(&extension(0, &[0, 0])),
            body(&sni(b"")),
            body(&sni(b"a\0b")),
            body(&sni(b"a b")),
            body(&[&sni(b"a.example")[..], &[0]].concat()),
            [&body(&sni(b"a.example"))[..], b"x"].concat(),
            body(&[&sni(b"a.example")[..], &[0, 9, 0, 9, 1]].concat()),
            [&[2, 0][..], &body(&sni(b"a.example"))[2..]].concat(),
            Vec::new(),
        ];
        for body in wrong_bodies {
            let said = at_once(&records(&message(&body), 100));
            assert_eq!(said, Verdict::Never("a malformed ClientHello"), "{body:?}");
        }
        // Cut anywhere, with a length that goes along.
        let good = body(&sni(b"a.example"));
        let without_extensions = good.len() - sni(b"a.example").len() - 2;
        for cut in (0..good.len()).filter(|&cut| cut != without_extensions) {
            let said = at_once(&records(&message(&good[..cut]), 1000));
            assert_eq!(said, Verdict::Never("a malformed ClientHello"), "{cut}");
        }
        let mut longer = message(&good);
        longer.push(0);
        assert!(matches!(at_once(&records(&longer, 1000)), Verdict::Never(_)));
        // Another record between the fragments.
        let mut between = records(&message(&good), 20);
        between[25] = 20;
        assert!(matches!(at_once(&between), Verdict::Never(_)));
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let long = message(&body(&extension(21, &vec![0; CLIENT_HELLO_BYTES_MAX - 200])));
        let mut reader = ClientHello::default();
        let mut pushed = 0;
        for byte in records(&long, 1) {
            pushed += 1;
            if reader.push(&[byte]) != Verdict::More {
                break;
            }
        }
        assert_eq!(pushed, CLIENT_HELLO_BYTES_MAX);
        assert!(matches!(at_once(&records(&long, 10_000)), Verdict::Whole { server_name: None }));
    }
}

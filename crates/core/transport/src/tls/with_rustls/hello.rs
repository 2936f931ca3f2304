//! Whether a ClientHello is whole, as far as its frames say: records, and the header of the message
//! in them (RFC 8446, 4 and 5.1).
//!
//! What: [`Hello::is_whole`] sees all bytes so far, and looks at each once. Why: the state of a
//! handshake is made for a client that has sent its part, not for one that has only connected.
//! Rustls judges what the bytes mean; bytes that cannot become a ClientHello are therefore whole,
//! and it refuses them.
//!
//! What never happens: bytes beyond `TLS_HANDSHAKE_BYTES_MAX` are waited for.

use rustls::ContentType;

use super::records::{HEADER_BYTES, record_bytes};
use crate::limits::TLS_HANDSHAKE_BYTES_MAX;

/// The bytes before a handshake message's content: its type and its length.
const MESSAGE_HEADER_BYTES: usize = 4;
/// The type of a ClientHello.
const CLIENT_HELLO: u8 = 1;

/// How far the bytes of one connection have been looked at.
#[derive(Debug, Default)]
pub(super) struct Hello {
    /// Bytes that were looked at.
    at: usize,
    /// Bytes of the current record that were not.
    in_record: usize,
    /// Bytes of the message, and its header as far as it has come.
    message: usize,
    header: [u8; MESSAGE_HEADER_BYTES],
}

impl Hello {
    /// Whether rustls can say more than that it needs more bytes. `bytes` are those of the last
    /// call with more behind them.
    pub(super) fn is_whole(&mut self, bytes: &[u8]) -> bool {
        debug_assert!(self.at <= bytes.len(), "bytes are only added");
        loop {
            if self.in_record == 0 {
                match record_bytes(&bytes[self.at..]) {
                    Ok(Some(length)) => self.in_record = length - HEADER_BYTES,
                    Ok(None) if self.begins_otherwise(bytes) => return true,
                    Ok(None) => return bytes.len() > TLS_HANDSHAKE_BYTES_MAX,
                    Err(_) => return true,
                }
                if self.begins_otherwise(bytes) {
                    return true;
                }
                self.at += HEADER_BYTES;
            }
            let there = self.in_record.min(bytes.len() - self.at);
            let fragment = &bytes[self.at..][..there];
            for (of_header, byte) in self.header[self.message.min(4)..].iter_mut().zip(fragment) {
                *of_header = *byte;
            }
            self.message += there;
            self.at += there;
            self.in_record -= there;
            if self.is_complete() {
                return true;
            }
            if self.in_record > 0 {
                return bytes.len() > TLS_HANDSHAKE_BYTES_MAX;
            }
        }
    }

    /// Whether the record at `at` has no part of a handshake.
    fn begins_otherwise(&self, bytes: &[u8]) -> bool {
        bytes.get(self.at).is_some_and(|&kind| ContentType::from(kind) != ContentType::Handshake)
    }

    /// Whether the message has come, or is no ClientHello.
    fn is_complete(&self) -> bool {
        let [kind, high, middle, low] = self.header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_other = self.message > 0 && kind != CLIENT_HELLO;
        let has_header = self.message >= MESSAGE_HEADER_BYTES;
        let is_too_long = has_header && length > TLS_HANDSHAKE_BYTES_MAX;
        let is_here = has_header && self.message >= MESSAGE_HEADER_BYTES + length;
        is_other || is_too_long || is_here
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message in records of this many bytes.
    fn records(message: &[u8], of: usize) -> Vec<u8> {
        let record = |part: &[u8]| {
            let length = (part.len() as u16).to_be_bytes();
            [&[22, 3, 1, length[0], length[1]][..], part].concat()
        };
        message.chunks(of).flat_map(record).collect()
    }

    fn client_hello(bytes: usize) -> Vec<u8> {
        let length = (bytes as u32).to_be_bytes();
        [&[CLIENT_HELLO, length[1], length[2], length[3]][..], &vec![7; bytes]].concat()
    }

    /// The number of bytes at which it is whole.
    fn whole_at(bytes: &[u8]) -> Option<usize> {
        let mut hello = Hello::default();
        (1..=bytes.len()).find(|&end| hello.is_whole(&bytes[..end]))
    }

    proptest! {
        #[test]
        fn a_hello_is_whole_with_its_last_byte_however_it_is_cut(
            bytes in 0..600usize,
            of in 1..300usize,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = records(&client_hello(bytes), of);
            prop_assert_eq!(whole_at(&bytes), Some(bytes.len()));
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.sort_unstable();
            let mut hello = Hello::default();
            for cut in cuts {
                prop_assert!(!hello.is_whole(&bytes[..cut]));
            }
            let with_more = [&bytes[..], b"early data"].concat();
            prop_assert!(hello.is_whole(&with_more));
        }

        #[test]
        fn any_bytes_are_waited_for_up_to_the_limit_only(
            mut bytes in prop::collection::vec(any::<u8>(), 1..64),
            of in 1..4000usize,
        ) {
            let long = records(&vec![1; TLS_HANDSHAKE_BYTES_MAX], of);
            // A message that claims to be as long as may be.
            let claims = records(&[&[1, 0, 255, 255][..], &long].concat(), of);
            prop_assert!(whole_at(&claims).is_some_and(|at| at <= TLS_HANDSHAKE_BYTES_MAX + 1));
            bytes.extend_from_slice(&claims);
            prop_assert!(whole_at(&bytes).is_some_and(|at| at <= TLS_HANDSHAKE_BYTES_MAX + 64));
        }
    }

    #[test]
    fn what_cannot_be_a_hello_is_not_waited_for() {
        for bytes in [&b"G"[..], &[21], &[22, 2, 0, 0, 9], &[22, 3, 1, 0, 0], &[22, 3, 1, 0, 9, 2]]
        {
            assert_eq!(whole_at(bytes), Some(bytes.len()), "{bytes:?}");
        }
        // A record of another kind in between.
        let mut bytes = records(&client_hello(50), 20);
        bytes[25] = 20;
        assert_eq!(whole_at(&bytes), Some(26));
    }
}

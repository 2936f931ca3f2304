//! The Internet Cache Protocol, version 2 (RFC 2186; its use is RFC 2187).
//!
//! A query asks whether a cache has a fresh response to GET of a URL. The answer is a hit or a
//! miss. Request fields are not sent, so a cache cannot respect Vary in its answer, and a hit can
//! be false.
//!
//! ```text
//!  0  opcode, version, length of the whole message (2 bytes)
//!  4  request number
//!  8  options
//! 12  option data
//! 16  address of the sender's host
//! 20  query: address of the requester's host, then the URL and a zero byte
//!     answer: the URL and a zero byte
//! ```
//!
//! An answer repeats the URL of its query, and is four bytes shorter. So an answer to a stranger
//! with a forged address amplifies nothing. An answer is never answered: see [`Answer`].
//!
//! Both addresses are zero in what Squid and we send. They are unreliable, as RFC 2186 says, and
//! the source address of the datagram is used instead.
//!
//! Squid ignores messages whose source has the address that Squid itself sends from, whatever the
//! port. Two caches on one machine need two addresses.
//!
//! Version 3 is what Harvest used to send. It has the same layout. As in Squid, it is read, and the
//! answer has version 2. It is never sent: Squid 5.7 answers such a query, and then crashes.

use std::net::Ipv4Addr;

use crate::bytes::{Malformed, Problem, Reader, malformed};
use crate::limits::ICP_BYTES_MAX;

/// The bytes before the payload.
const HEADER_BYTES: usize = 20;

/// The version that is written.
const VERSION: u8 = 2;

/// A message. Those with the opcodes of a query and of an answer are used; see [`Message::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The request number, which an answer repeats.
    pub id: u32,
    /// [`SOURCE_RTT`], and bits that mean nothing to us.
    pub options: u32,
    /// The meaning depends on the options.
    pub option_data: u32,
    /// The URL without its zero byte. It can be any other bytes, and has to be parsed as a URL.
    pub url: &'a [u8],
    /// What is asked or answered.
    pub kind: Kind<'a>,
}

/// What a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Is there a fresh response to GET of the URL?
    Query,
    /// There is.
    Hit,
    /// There is none. The requester may fetch the URL through this cache if it is a parent.
    Miss,
    /// The query was not understood.
    Err,
    /// There is none, and the cache asks not to be used as a parent for it now.
    MissNofetch,
    /// The requester may not use this cache.
    Denied,
    /// A hit with the response in the datagram. We never send it and never ask for it (bit 31 of
    /// the options), so a peer that sends it is wrong: Squid ignores such an answer, and so must
    /// the caller.
    HitObject(&'a [u8]),
}

/// Bit of the options. In a query: the round-trip time to the origin server is wanted. In an
/// answer: it is in the option data.
pub const SOURCE_RTT: u32 = 0x4000_0000;

impl<'a> Message<'a> {
    /// A query without options.
    ///
    /// `id` must be unpredictable, because a sender that knows it can forge the answer.
    pub fn query(id: u32, url: &'a [u8]) -> Message<'a> {
        Message { id, options: 0, option_data: 0, url, kind: Kind::Query }
    }

    /// The answer to this query. It is shorter than the query.
    pub fn answer(&self, kind: Kind<'a>) -> Answer<'a> {
        Answer { to: *self, kind }
    }

    /// The round-trip time from the answering cache to the origin server, in milliseconds, if the
    /// answer has it.
    pub fn source_rtt_ms(&self) -> Option<u16> {
        let has_it = self.kind != Kind::Query && self.options & SOURCE_RTT != 0;
        // Squid writes the number of hops into the other half, which the RFC leaves open.
        has_it.then_some(self.option_data as u16)
    }

    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// Names the first field that is wrong. No other version than 2 and 3 is supported, and no
    /// other opcode than those of [`Kind`]: SECHO and DECHO let a cache measure the distance to an
    /// origin server that echoes what it gets, at a port that other services use.
    pub fn read(datagram: &'a [u8]) -> Result<Message<'a>, Malformed> {
        if datagram.len() > ICP_BYTES_MAX {
            return malformed("Message Length", Problem::TooLong);
        }
        let mut rest = Reader(datagram);
        let opcode = rest.u8("Opcode")?;
        if !matches!(rest.u8("Version")?, 2 | 3) {
            return malformed("Version", Problem::Unsupported);
        }
        if usize::from(rest.u16("Message Length")?) != datagram.len() {
            return malformed("Message Length", Problem::Length);
        }
        let id = rest.u32("Request Number")?;
        let options = rest.u32("Options")?;
        let option_data = rest.u32("Option Data")?;
        rest.array::<4>("Sender Host Address")?;
        if opcode == QUERY {
            rest.array::<4>("Requester Host Address")?;
        }
        let url = zero_terminated(&mut rest)?;
        let kind = match opcode {
            QUERY => Kind::Query,
            HIT => Kind::Hit,
            MISS => Kind::Miss,
            ERR => Kind::Err,
            MISS_NOFETCH => Kind::MissNofetch,
            DENIED => Kind::Denied,
            HIT_OBJ => {
                let bytes = rest.u16("Object Size")?;
                Kind::HitObject(rest.take(bytes.into(), "Object Data")?)
            }
            _ => return malformed("Opcode", Problem::Unsupported),
        };
        if !rest.0.is_empty() {
            return malformed("Payload", Problem::Length);
        }
        Ok(Message { id, options, option_data, url, kind })
    }

    /// Replaces the content of `out` with the message.
    ///
    /// # Errors
    ///
    /// The URL contains a zero byte or is too long, or the message is a [`Kind::HitObject`]. Then
    /// `out` is empty.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.clear();
        let opcode = match self.kind {
            Kind::Query => QUERY,
            Kind::Hit => HIT,
            Kind::Miss => MISS,
            Kind::Err => ERR,
            Kind::MissNofetch => MISS_NOFETCH,
            Kind::Denied => DENIED,
            Kind::HitObject(_) => return malformed("Opcode", Problem::Unsupported),
        };
        if self.url.contains(&0) {
            return malformed("URL", Problem::Value);
        }
        let requester: &[u8] = match self.kind {
            Kind::Query => &Ipv4Addr::UNSPECIFIED.octets(),
            _ => &[],
        };
        let bytes = HEADER_BYTES + requester.len() + self.url.len() + 1;
        let Some(length) = u16::try_from(bytes).ok().filter(|_| bytes <= ICP_BYTES_MAX) else {
            return malformed("URL", Problem::TooLong);
        };
        out.extend([opcode, VERSION]);
        out.extend(length.to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.options.to_be_bytes());
        out.extend(self.option_data.to_be_bytes());
        out.extend(Ipv4Addr::UNSPECIFIED.octets());
        out.extend(requester);
        out.extend(self.url);
        out.push(0);
        Ok(())
    }
}

/// An answer that is not written yet.
///
/// An answer to an answer cannot be written. Two caches that answer each other's answers would
/// never stop, and one datagram with a forged address would start them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    to: Message<'a>,
    kind: Kind<'a>,
}

impl Answer<'_> {
    /// Replaces the content of `out` with the answer.
    ///
    /// # Errors
    ///
    /// As [`Message::write`]; or the answered message is not a query, or its answer would be one.
    /// Then `out` is empty.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if self.to.kind != Kind::Query || self.kind == Kind::Query {
            out.clear();
            return malformed("Opcode", Problem::Value);
        }
        Message { options: 0, option_data: 0, kind: self.kind, ..self.to }.write(out)
    }
}

/// The bytes up to a zero byte, which is skipped.
fn zero_terminated<'a>(rest: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let Some(end) = rest.0.iter().position(|&byte| byte == 0) else {
        return malformed("URL", Problem::Truncated);
    };
    let url = rest.take(end, "URL")?;
    rest.take(1, "URL")?;
    Ok(url)
}

const QUERY: u8 = 1;
const HIT: u8 = 2;
const MISS: u8 = 3;
const ERR: u8 = 4;
const MISS_NOFETCH: u8 = 21;
const DENIED: u8 = 22;
const HIT_OBJ: u8 = 23;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzzing::{self, fixture, icp_head};

    const URL: &[u8] = b"http://origin.test/0";

    fn written(message: &Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        message.write(&mut out).expect("a message that fits");
        out
    }

    fn answered(query: &Message<'_>, kind: Kind<'static>) -> Vec<u8> {
        let mut out = Vec::new();
        let Message { id, url, .. } = *query;
        query.answer(kind).write(&mut out).expect("an answer that fits");
        assert_eq!(Message::read(&out), Ok(Message { kind, ..Message::query(id, url) }));
        out
    }

    #[test]
    fn squid_reads_and_writes_the_same_bytes() {
        let query = Message::query(0x0102_0304, b"http://origin.test/asked");
        let mut ours = written(&query);
        let squids = fixture("icp-query");
        // The request number is the one thing that differs.
        ours[4..8].copy_from_slice(&squids[4..8]);
        assert_eq!(ours, squids);

        let query = Message::query(7, URL);
        assert_eq!(answered(&query, Kind::Hit), fixture("icp-hit"));
        let other = Message::query(7, b"http://origin.test/1");
        assert_eq!(answered(&other, Kind::Hit), fixture("icp-hit-to-version-3"));
        let query = Message::query(7, b"http://origin.test/none");
        assert_eq!(answered(&query, Kind::Miss), fixture("icp-miss"));
        let err = fixture("icp-err");
        let err = Message::read(&err).expect("an answer");
        assert_eq!((err.id, err.kind), (7, Kind::Err));
    }

    #[test]
    fn a_version_3_query_is_read() {
        let mut query = written(&Message::query(7, URL));
        query[1] = 3;
        assert_eq!(Message::read(&query), Ok(Message::query(7, URL)));
        query[1] = 4;
        let error = Message::read(&query).expect_err("an unknown version");
        assert_eq!(error, Malformed { field: "Version", problem: Problem::Unsupported });
        assert_eq!(error.to_string(), "Version is not supported");
    }

    #[test]
    fn the_round_trip_time_is_in_the_low_half() {
        let answer = Message {
            options: SOURCE_RTT,
            option_data: 0x0007_0102,
            kind: Kind::Miss,
            ..Message::query(1, URL)
        };
        assert_eq!(answer.source_rtt_ms(), Some(0x0102));
        assert_eq!(Message { options: 0, ..answer }.source_rtt_ms(), None);
        assert_eq!(Message { kind: Kind::Query, ..answer }.source_rtt_ms(), None);
    }

    #[test]
    fn a_hit_with_its_object_is_read_and_never_written() {
        let mut bytes = answered(&Message::query(1, URL), Kind::Hit);
        bytes[0] = HIT_OBJ;
        bytes.extend([0, 3, b'a', b'b', b'c']);
        bytes[3] += 5;
        let message = Message::read(&bytes).expect("a hit with an object");
        assert_eq!((message.url, message.kind), (URL, Kind::HitObject(b"abc")));
        assert_eq!(message.write(&mut Vec::new()).expect_err("not written").field, "Opcode");
        bytes[22 + URL.len()] = 4;
        assert_eq!(Message::read(&bytes).expect_err("too short").field, "Object Data");
    }

    #[test]
    fn other_opcodes_are_refused() {
        for opcode in (0..=255).filter(|opcode| !matches!(opcode, 1..=4 | 21..=23)) {
            let mut bytes = answered(&Message::query(1, URL), Kind::Hit);
            bytes[0] = opcode;
            let error = Malformed { field: "Opcode", problem: Problem::Unsupported };
            assert_eq!(Message::read(&bytes), Err(error), "{opcode}");
        }
    }

    #[test]
    fn an_answer_is_never_answered() {
        let error = Malformed { field: "Opcode", problem: Problem::Value };
        let mut out = vec![1];
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Query) {
            let bytes = answered(&Message::query(7, URL), kind);
            let answer = Message::read(&bytes).expect("an answer");
            assert_eq!(answer.answer(Kind::Denied).write(&mut out), Err(error));
            assert!(out.is_empty());
        }
        // Nor is a query an answer.
        assert_eq!(Message::query(7, URL).answer(Kind::Query).write(&mut out), Err(error));
    }

    #[test]
    fn a_message_has_the_length_that_it_says() {
        let mut bytes = written(&Message::query(1, URL));
        bytes.push(0);
        assert_eq!(Message::read(&bytes).expect_err("longer").field, "Message Length");
        bytes[3] += 1;
        assert_eq!(Message::read(&bytes).expect_err("after the URL").field, "Payload");
    }

    #[test]
    fn the_longest_message_fits() {
        let url = vec![b'a'; ICP_BYTES_MAX - 25];
        let bytes = written(&Message::query(1, &url));
        assert_eq!(bytes.len(), ICP_BYTES_MAX);
        assert_eq!(Message::read(&bytes), Ok(Message::query(1, &url)));
        let longer = vec![b'a'; ICP_BYTES_MAX - 24];
        let error = Malformed { field: "URL", problem: Problem::TooLong };
        assert_eq!(Message::query(1, &longer).write(&mut Vec::new()), Err(error));
        let error = Malformed { field: "Message Length", problem: Problem::TooLong };
        assert_eq!(Message::read(&[1; ICP_BYTES_MAX + 1]), Err(error));
        let error = Malformed { field: "URL", problem: Problem::Value };
        assert_eq!(Message::query(1, b"a\0b").write(&mut Vec::new()), Err(error));
    }

    /// Those that are written.
    const KINDS: [Kind<'static>; 6] =
        [Kind::Query, Kind::Hit, Kind::Miss, Kind::Err, Kind::MissNofetch, Kind::Denied];

    /// Messages with a good length, and mostly with a known opcode and an URL that ends.
    fn messages() -> impl Strategy<Value = Vec<u8>> {
        let opcode = prop_oneof![
            9 => prop::sample::select(&[QUERY, HIT, MISS, ERR, MISS_NOFETCH, DENIED, HIT_OBJ][..]),
            1 => any::<u8>(),
        ];
        let payload = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(1_u8.., 0..40).prop_map(|url| [&url[..], &[0]].concat()),
        ];
        let fields = prop::array::uniform16(any::<u8>());
        (opcode, 2_u8..4, fields, payload).prop_map(|(opcode, version, fields, payload)| {
            let bytes = [&[opcode, version, 0, 0][..], &fields, &payload].concat();
            icp_head(&bytes, bytes.len())
        })
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        fuzzing::check_generated(messages(), fuzzing::icp, |bytes| Message::read(bytes).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            kind in prop::sample::select(&KINDS[..]), id: u32, options: u32, option_data: u32,
            url in prop::collection::vec(1u8.., 0..100),
        ) {
            let message = Message { id, options, option_data, url: &url, kind };
            let bytes = written(&message);
            prop_assert_eq!(Message::read(&bytes), Ok(message));
            for end in 0..bytes.len() {
                prop_assert!(Message::read(&bytes[..end]).is_err());
                prop_assert!(Message::read(&icp_head(&bytes, end)).is_err());
            }
            if kind == Kind::Query {
                prop_assert!(answered(&message, Kind::Denied).len() < bytes.len());
            }
        }
    }
}

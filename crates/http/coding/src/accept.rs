//! `Accept-Encoding` (RFC 9110, 12.5.3).
//!
//! A request without the field is answered without a coding: by the RFC any would do, but clients
//! that can decode say so. A member with an invalid weight is ignored. Of several members with one
//! name, the lowest weight counts, so that no refusal is overlooked.

use std::cell::RefCell;

use crate::Coding;
use crate::limits::REMEMBERED_BYTES_MAX;

/// A weight in thousandths; 0 refuses.
type Weight = u16;
const FULL: Weight = 1000;

/// What a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    codings: [Weight; Coding::ALL.len()],
    /// 0 also without any member that is about it.
    identity: Weight,
    refuses_identity: bool,
}

impl Accept {
    /// A client that names nothing.
    pub const IDENTITY: Accept =
        Accept { codings: [0; Coding::ALL.len()], identity: 0, refuses_identity: false };

    /// The lines of the field; none if the request has none.
    pub fn parse<'v>(values: impl Iterator<Item = &'v [u8]>) -> Accept {
        let mut named: [Option<Weight>; Coding::ALL.len()] = [None; _];
        let (mut identity, mut any) = (None, None);
        for member in values.flat_map(|value| value.split(|&byte| byte == b',')) {
            let Some((name, weight)) = read(member) else { continue };
            let place = match Coding::of(name) {
                Some(coding) => &mut named[coding.index()],
                None if name == b"*" => &mut any,
                None if name.eq_ignore_ascii_case(b"identity") => &mut identity,
                None => continue,
            };
            *place = Some(place.map_or(weight, |before: Weight| before.min(weight)));
        }
        let identity = identity.or(any);
        Accept {
            codings: named.map(|weight| weight.or(any).unwrap_or(0)),
            identity: identity.unwrap_or(0),
            refuses_identity: identity == Some(0),
        }
    }

    /// The same for one line. Clients send few different ones, and most requests repeat the last
    /// one, which is remembered by the thread.
    pub fn of_line(value: &[u8]) -> Accept {
        thread_local! {
            static LAST: RefCell<Remembered> = const { RefCell::new(Remembered::NONE) };
        }
        LAST.with_borrow_mut(|last| last.read(value))
    }

    /// The weight of a coding, in thousandths; 0 if it is not accepted.
    #[inline]
    #[must_use]
    pub fn weight(&self, coding: Coding) -> u16 {
        if planted::is(planted::Bug::CodingNotAccepted) {
            return FULL;
        }
        self.codings[coding.index()]
    }

    /// Whether a response with this coding may be sent.
    #[inline]
    #[must_use]
    pub fn accepts(&self, coding: Coding) -> bool {
        self.weight(coding) > 0
    }

    /// Whether a coding is at least as welcome as none.
    #[inline]
    #[must_use]
    pub fn prefers(&self, coding: Coding) -> bool {
        let weight = self.weight(coding);
        weight > 0 && weight >= self.identity
    }

    /// Whether a response without coding is refused: `identity;q=0`, or `*;q=0` alone.
    #[must_use]
    pub fn refuses_identity(&self) -> bool {
        self.refuses_identity
    }
}

/// The last line that a thread has read.
struct Remembered {
    len: usize,
    bytes: [u8; REMEMBERED_BYTES_MAX],
    accept: Accept,
}

impl Remembered {
    const NONE: Remembered =
        Remembered { len: 0, bytes: [0; REMEMBERED_BYTES_MAX], accept: Accept::IDENTITY };

    fn read(&mut self, value: &[u8]) -> Accept {
        if self.bytes[..self.len] == *value {
            return self.accept;
        }
        let accept = Accept::parse(std::iter::once(value));
        if let Some(place) = self.bytes.get_mut(..value.len()) {
            place.copy_from_slice(value);
            (self.len, self.accept) = (value.len(), accept);
        }
        accept
    }
}

/// A member's name and weight; `None` if the weight is invalid.
fn read(member: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = member.split(|&byte| byte == b';');
    let name = parts.next().unwrap_or_default().trim_ascii();
    let mut weight = FULL;
    for parameter in parts {
        let parameter = parameter.trim_ascii();
        let [b'q' | b'Q', b'=', digits @ ..] = parameter else { return None };
        weight = thousandths(digits)?;
    }
    (!name.is_empty()).then_some((name, weight))
}

/// `0`, `0.123`, `1`, `1.000` (RFC 9110, 12.4.2).
fn thousandths(text: &[u8]) -> Option<Weight> {
    let (whole, fraction) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut value = match whole {
        b'0' => 0,
        b'1' => FULL,
        _ => return None,
    };
    for (digit, unit) in fraction.iter().zip([100, 10, 1]) {
        value += Weight::from(digit.is_ascii_digit().then(|| digit - b'0')?) * unit;
    }
    (value <= FULL).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accept(value: &str) -> Accept {
        Accept::parse(std::iter::once(value.as_bytes()))
    }

    #[test]
    fn rfc9110_12_5_3_members_weights_and_the_asterisk() {
        // The weights of gzip, br, zstd, and whether identity is refused.
        for (value, weights, refused) in [
            ("gzip", [1000, 0, 0], false),
            ("GZIP, Br;q=0.5", [1000, 500, 0], false),
            ("x-gzip", [1000, 0, 0], false),
            ("", [0, 0, 0], false),
            ("*", [1000, 1000, 1000], false),
            ("gzip;q=0, *", [0, 1000, 1000], false),
            ("gzip;q=0", [0, 0, 0], false),
            ("identity;q=0, br", [0, 1000, 0], true),
            ("*;q=0, zstd", [0, 0, 1000], true),
            ("*;q=0, identity", [0, 0, 0], false),
            ("identity", [0, 0, 0], false),
            ("gzip ; q=0.333 , deflate", [333, 0, 0], false),
            ("gzip;q=1.5", [0, 0, 0], false),
            ("gzip;q=1.001", [0, 0, 0], false),
            ("gzip;q=0.1234", [0, 0, 0], false),
            ("gzip;q=", [0, 0, 0], false),
            ("gzip;level=9", [0, 0, 0], false),
            ("gzip, gzip;q=0", [0, 0, 0], false),
            ("gzip2, notgzip, gzi", [0, 0, 0], false),
        ] {
            let read = accept(value);
            assert_eq!((read.codings, read.refuses_identity()), (weights, refused), "{value}");
        }
        assert_eq!(Accept::parse(std::iter::empty()), Accept::IDENTITY);
        let lines = [&b"gzip;q=0.2"[..], b"br"].into_iter();
        assert_eq!(Accept::parse(lines).codings, [200, 1000, 0]);
    }

    #[test]
    fn a_coding_is_preferred_unless_identity_weighs_more() {
        assert!(accept("gzip;q=0.1").prefers(Coding::Gzip));
        assert!(accept("gzip, identity").prefers(Coding::Gzip));
        assert!(!accept("gzip;q=0.5, identity").prefers(Coding::Gzip));
        assert!(accept("gzip;q=0.5, identity").accepts(Coding::Gzip));
        assert!(!accept("gzip;q=0.5, *").prefers(Coding::Gzip));
        assert!(!accept("identity;q=0").prefers(Coding::Gzip));
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_would_be_read(
            values in proptest::collection::vec("[a-z*;=q01.,\\- ]{0,80}|gzip, br|gzip", 1..9),
        ) {
            for value in &values {
                prop_assert_eq!(Accept::of_line(value.as_bytes()), accept(value));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let read = Accept::parse(std::iter::once(&value[..]));
            prop_assert!(read.codings.iter().all(|weight| *weight <= FULL));
        }
    }
}

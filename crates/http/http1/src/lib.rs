//! HTTP/1 messages: bytes to messages and back, strict, without I/O and without a clock.
//!
//! What: heads of requests and responses ([`parse_request`], [`parse_response`]), the framing of
//! bodies ([`BodyKind`], [`BodyDecoder`]), the hop-by-hop fields ([`Fields::end_to_end`]) and the
//! bytes to send ([`write`](mod@write)). The specifications are RFC 9112 and RFC 9110.
//!
//! Why strict: if a proxy and its neighbour parse a message differently, one client can inject
//! requests into another client's connection. Anything that two careful parsers could read
//! differently is refused, and the connection is closed. A [`Reject`] names the broken rule and the
//! section of the specification. If the head of a response breaks a rule but its meaning is
//! certain, the head can be repaired ([`accept_response`]).
//!
//! Who owns: the caller owns all bytes and the [`Scratch`]; a head borrows both. The scratch stores
//! positions, not pointers, so that a head can be moved together with its bytes
//! ([`RequestHead::detach`]).
//!
//! What never happens: a system call, a reading of a clock, an allocation while parsing a valid
//! message, a panic on bytes from the network, a repair of a request.
//!
//! ```
//! use http1::{BodyDecoder, Limits, Name, Scratch, parse_request};
//!
//! let received = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /b HT";
//! let (mut scratch, limits) = (Scratch::new(), Limits::default());
//! let head = parse_request(received, &mut scratch, &limits)?.expect("the head is complete");
//! assert_eq!(head.fields.get(Name::Host), Some(&b"h"[..]));
//!
//! let rest = &received[head.head_bytes..];
//! let step = BodyDecoder::new(head.body(), &limits).decode(rest)?;
//! assert_eq!((&rest[step.data], step.done), (&b"hi"[..], true));
//! assert_eq!(&rest[step.consumed..], b"GET /b HT");
//! # Ok::<(), http1::Reject>(())
//! ```
#![forbid(unsafe_code)]

mod authority;
mod body;
mod chars;
mod diagnose;
mod fields;
mod framing;
mod hop;
mod limits;
mod method;
mod name;
mod reject;
mod repair;
mod request;
mod response;
mod scheme;
mod sink;
mod target;
mod tokenise;
mod version;
pub mod write;

pub use authority::{Authority, parse_authority};
pub use body::{BodyDecoder, Step, Truncated, trailer_fields};
pub use chars::tokens;
pub use fields::{Field, Fields, Iter, Scratch};
pub use framing::BodyKind;
pub use hop::{EndToEnd, is_hop_by_hop, may_be_trailer};
pub use limits::{
    CONNECTION_OPTIONS_MAX, FIELDS_CEILING, FieldNames, HEAD_BYTES_CEILING, Limits,
    METHOD_BYTES_MAX,
};
pub use method::Method;
pub use name::{Name, is_one_variable, is_plain};
pub use reject::{Reject, RejectReason};
pub use repair::accept_response;
pub use request::{Expectation, OwnedRequest, RequestHead, parse_request};
pub use response::{OwnedResponse, ResponseHead, parse_response};
pub use scheme::Scheme;
pub use sink::{FieldList, Sink};
pub use target::Target;
pub use version::Version;

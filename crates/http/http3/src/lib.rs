//! HTTP/3 over the streams of a QUIC connection: bytes to events and back, without I/O and without
//! a clock.
//!
//! What: [`MessageStream`] reads the messages of one bidirectional stream, [`Connection`] the
//! unidirectional streams, and [`write`](mod@write) has the bytes to send. The specifications are
//! RFC 9114 (HTTP/3) and RFC 9204 (QPACK). There is no push, and the dynamic tables of QPACK have
//! no room in either direction, so no field section ever waits for another stream.
//!
//! What is the same in HTTP/2 comes from the crate [`http2`]: the checks of a message's fields, the
//! [`Scratch`] that they are decoded into, the Huffman code.
//!
//! Who owns: the caller owns the streams and their flow control. A [`MessageStream`] keeps at most
//! one frame header, or one compressed field section within [`Limits`]. Events borrow the input and
//! the scratch.
//!
//! What never happens: a system call, a reading of a clock, a panic on bytes from the network,
//! memory or work for the peer without a limit in [`Limits`], a repair of a malformed message.
//!
//! ```
//! use http3::{Event, Limits, MessageStream, Scratch, write};
//!
//! let request = http2::RequestFields {
//!     method: b"GET",
//!     scheme: Some(b"https"),
//!     authority: b"h",
//!     path: Some(b"/"),
//!     protocol: None,
//! };
//! let mut sent = Vec::new();
//! write::request(&request, [(&b"accept"[..], &b"*/*"[..])], &mut sent);
//!
//! let (mut scratch, limits) = (Scratch::new(), Limits::DEFAULT);
//! let mut stream = MessageStream::request();
//! let received = stream.next_event(&sent, true, &mut scratch, &limits)?;
//! assert_eq!(received.consumed, sent.len());
//! let Some(Event::Request(head)) = received.event else { panic!("{received:?}") };
//! assert_eq!((head.path, head.fields.len()), (Some(&b"/"[..]), 1));
//! let received = stream.next_event(&[], true, &mut scratch, &limits)?;
//! assert!(matches!(received.event, Some(Event::End)));
//! # Ok::<(), http3::Error>(())
//! ```
#![forbid(unsafe_code)]

mod control;
mod error;
mod frame;
pub mod limits;
mod message;
pub mod qpack;
mod varint;
pub mod write;

pub use control::{Connection, Control, UniStream};
pub use error::{Error, ErrorCode, Reason, Scope};
pub use http2::{Fields, Priority, RequestFields, RequestHead, ResponseHead, Scratch};
pub use limits::Limits;
pub use message::{Event, MessageStream, Received};

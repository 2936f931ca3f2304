//! HTTP/2 connections: bytes in, events and bytes out, without I/O and without a clock.
//!
//! What: [`Connection`], in the role of the server or of the client. The specifications are RFC
//! 9113 (HTTP/2), RFC 7541 (HPACK), RFC 8441 (extended CONNECT) and RFC 9218 (priorities). There is
//! no push and no upgrade from HTTP/1.
//!
//! Why without I/O: the same code runs in the server, in the load generator, in simulations and in
//! fuzz targets.
//!
//! Who owns: the caller owns the bytes that were received, the bytes to send, and the [`Scratch`]
//! that fields are decoded into; one scratch serves all connections of a core. Events borrow the
//! input and the scratch, never the connection, so that an answer can be written while a head is in
//! view.
//!
//! What never happens: a system call, a reading of a clock, a panic on bytes from the network,
//! memory or work for the peer without a limit in [`Limits`], a repair of a malformed message.
//!
//! # What it promises
//!
//! Strict by RFC 9113: a rule that is broken ends the stream or the connection, as its section
//! says. The events do not depend on how the input is split. The crate `h2` and the library nghttp2
//! read the same requests from the same bytes, and send the same error codes, except for listed
//! differences (`http2/tests/against_others`). Each kind of work that a peer can cause has a limit
//! or a rate, which grows with the traffic of the connection where peers do such work in proportion
//! to it. An idle connection takes three quarters of a KiB, and the fields in its two HPACK tables.
//!
//! ```
//! use http2::{Connection, Event, Limits, RequestFields, Scratch};
//!
//! let (mut scratch, limits) = (Scratch::new(), Limits::default());
//! let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
//! let mut client = Connection::client(&limits, &mut to_server);
//! let mut server = Connection::server(&limits, &mut to_client);
//!
//! let request = RequestFields {
//!     method: b"GET",
//!     scheme: Some(b"http"),
//!     authority: b"h",
//!     path: Some(b"/"),
//!     protocol: None,
//! };
//! let fields = [(&b"accept"[..], &b"*/*"[..])];
//! let sent = client.send_request(&request, fields, true, &mut to_server)?;
//!
//! let mut at = 0;
//! loop {
//!     let received = server.next_event(&to_server[at..], &mut scratch, 0, &mut to_client)?;
//!     at += received.consumed;
//!     match received.event {
//!         Some(Event::Request { stream, head, end_stream }) => {
//!             assert_eq!((stream, head.path, end_stream), (sent, Some(&b"/"[..]), true));
//!             server.send_response(stream, 200, head.fields.iter(), false, &mut to_client)?;
//!             server.send_data(stream, b"hello", true, &mut to_client)?;
//!         }
//!         Some(_) => {}
//!         None => break,
//!     }
//! }
//! assert_eq!((at, server.open_streams()), (to_server.len(), 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod connection;
mod error;
mod event;
mod flow;
mod frame;
pub mod hpack;
pub mod limits;
pub mod message;
mod priority;
mod rate;
mod scratch;
mod settings;
mod stream;

pub use connection::{Connection, PREFACE, RequestFields};
pub use error::{ConnectionError, ErrorCode, Misuse, Reason};
pub use event::{Event, Received, StreamId};
pub use limits::Limits;
pub use message::{RequestHead, ResponseHead};
pub use priority::Priority;
pub use rate::Bucket;
pub use scratch::{Fields, Scratch};
pub use settings::PeerSettings;

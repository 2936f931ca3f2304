//! The seam between an exchange and its client.
//!
//! ```text
//!                     request head, RequestBody
//!   client connection ------------------------> exchange
//!      (h1, h2, h3)   <------------------------
//!                     Response, content, Ending
//! ```
//!
//! An exchange does not know which protocol its client speaks. The connection gives it the head of
//! a request and a [`RequestBody`]; the exchange gives back one [`Response`] and its content
//! through a [`Client`], and at the end an `Ending`. Each implementation of
//! [`Client`] decides about framing, about the further use of the connection, and about interim
//! responses that an old client would not understand. The three implementations are `h1`, `h2` and
//! `h3` of the crate `proxy`. Calls are dispatched statically.
//!
//! After a CONNECT or an upgrade, the client is a [`ByteStream`]. Over HTTP/1 the byte stream is
//! the connection. Over HTTP/2 it is one stream of the connection.
//!
//! Backpressure: `offer` and `respond` never wait. They buffer the bytes that the client does not
//! take. A caller that has offered the bytes of one read waits in `flush` before it offers more.
#![expect(async_fn_in_trait, reason = "an exchange stays on its core: its futures need no Send")]

use std::task::{Context, Poll};

use cache::ranges::Parts;
use cache::stored::{Head, Stored};
use caching::ContentRange;
use core_io::CoreIo;
use http1::ResponseHead;
use outcome::Fault;
use policy::via::ViaNames;
use runtime::fs::SharedPages;
use transport::Transport;
use upstream::BodyLength;

use crate::cache_status::CacheStatus;
use crate::passed::Passed;

/// The client has gone, or does not take our bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The client of one exchange, for the response.
pub trait Client {
    /// The body of its request.
    type Body: RequestBody;
    /// What a tunnel carries bytes to and from.
    type Stream: ByteStream;

    /// Buffers the final head. Called once, before any content.
    fn respond(&mut self, response: &Response<'_>);

    /// Takes the final head back, if not a byte of it or of content has been sent. Then another one
    /// may be given.
    fn withdraw(&mut self) -> bool;

    /// Adds these field lines to the final head, in place of earlier ones.
    fn set_lines(&mut self, lines: Vec<u8>);

    /// Offers an interim response. It reaches the client with what follows, at the latest.
    fn interim(&mut self, head: &ResponseHead<'_>);

    /// Sends content as far as the client takes it now, and buffers the rest.
    fn offer(&mut self, content: &[u8]);

    /// Waits until the client has taken everything that is buffered.
    async fn flush(&mut self) -> Result<(), Gone>;

    /// Sends what is buffered, then this content from where it lies, and waits until the client has
    /// taken it. Only for a response whose length is known. `more` says that more follows at once.
    async fn send(&mut self, content: &[&[u8]], more: bool) -> Result<(), Gone>;

    /// Whether [`Client::send_shared`] works for this client.
    fn can_send_shared(&self) -> bool;

    /// [`Client::send`] for shared pages, which are not copied.
    async fn send_shared(&mut self, pages: SharedPages, more: bool) -> Result<(), Gone>;

    /// Waits until the client has given the exchange up, as far as its protocol reports it. No
    /// other task reads from the client.
    fn gone(&self) -> impl Future<Output = ()> + use<Self>;

    /// Whether the client has given the exchange up, as far as its protocol reports it.
    fn is_gone(&self) -> bool {
        false
    }

    /// Adds trailers to the end of the content, as field lines. They are lost if the framing of the
    /// response has no place for them.
    fn trailers(&mut self, _lines: &[u8]) {}

    /// Ends the content, and waits until the client has taken everything.
    async fn finish(&mut self) -> Result<(), Gone>;

    /// The connection carries no further request. The head says so, unless it was sent already.
    fn close_after(&mut self);

    /// The bytes after the heads, for a tunnel, which takes them over.
    fn stream(&self) -> &Self::Stream;

    /// Counts bytes that went to the client through a tunnel.
    fn add_tunnelled(&mut self, bytes: u64);

    /// What the client was sent.
    fn sent(&self) -> Sent<'_>;
}

/// One side of a tunnel: bytes in both directions. Each direction ends by itself.
pub trait ByteStream {
    /// The connection counts the bytes of the client, those of a tunnel included.
    const IS_COUNTED: bool;

    /// The connection, if it carries these bytes as they are and nothing else.
    fn plain(&self) -> Option<&Transport> {
        None
    }

    /// Waits for bytes and gives them to `take`; `None` is the end. Those of the previous call have
    /// been passed on: the sender may send as many more.
    async fn read<T>(&self, io: &CoreIo, take: impl FnMut(&[u8]) -> T) -> Result<Option<T>, Gone>;

    /// Sends as much as there is room for, which may be nothing.
    fn try_send(&self, bytes: &[u8]) -> Result<usize, Gone>;

    /// Waits for room.
    async fn room(&self) -> Result<(), Gone>;

    /// Waits until no bytes wait in a buffer of this side alone.
    async fn flushed(&self) -> Result<(), Gone>;

    /// Ends our direction.
    fn end(&self) -> Result<(), Gone>;

    /// Makes sure that the end of both directions does not look like an orderly one.
    fn reset(&self);

    /// Ready if it is known to be gone, also while nothing is read or sent.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The body of a client's request.
pub trait RequestBody {
    /// Its length, as the head announces it.
    fn length(&self) -> BodyLength;

    /// Whether the client waits for an interim response before it sends the body.
    fn is_awaited(&self) -> bool;

    /// Sets the number of bytes of content beyond which [`RequestBody::pull`] fails.
    fn limit(&mut self, bytes: u64);

    /// Whether all of it has been read already, together with the head.
    fn has_come(&self) -> bool {
        false
    }

    /// Waits for content and gives it to `sink`. True when the body is complete.
    async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault>;

    /// As [`RequestBody::pull`], without copying. `None` if that is not possible now, or does not
    /// pay.
    async fn pull_shared(&mut self) -> Result<Option<(SharedPages, bool)>, Fault> {
        Ok(None)
    }

    /// The trailers of a complete body, as field lines: those that may be passed on.
    fn trailers(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Bytes of the connection that the body took, framing included.
    fn bytes_used(&self) -> u64;

    /// Takes what was read after the head, for a tunnel: it belongs to no further request.
    fn take_rest(&mut self) -> Vec<u8>;
}

/// What a client was sent.
#[derive(Debug)]
pub struct Sent<'c> {
    /// All bytes that the connection has taken.
    pub bytes: u64,
    /// Those after the final head.
    pub body_bytes: u64,
    /// The final head, if there is a log.
    pub head: &'c [u8],
    /// The connection may carry another request.
    pub keeps: bool,
    /// The client was cut because it takes too little.
    pub is_slow: bool,
}

/// The head of a final response.
pub enum Response<'r> {
    /// A response in the store, or on its way there.
    Stored(StoredForm<'r>, Labels<'r>),
    /// A response that is passed on.
    Relayed(Relayed<'r>),
    /// Our own answer.
    Own(Own<'r>),
    /// 101: the connection becomes a tunnel for this protocol.
    Switching {
        /// The upstream's head.
        head: ResponseHead<'r>,
        /// The names in its `Via`.
        via: &'r ViaNames,
        /// The protocol that was agreed on.
        protocol: &'r [u8],
    },
    /// 200 to CONNECT: the connection becomes a tunnel.
    TunnelOpen,
}

/// The form in which a stored response is sent.
pub enum StoredForm<'r> {
    /// All of it.
    Whole(&'r Stored),
    /// 206 with one part.
    Part(&'r Head, ContentRange, BodyLength),
    /// 206 with one part or several.
    Parts(&'r Parts<'r>),
    /// 304.
    NotModified(&'r Head),
    /// 416; the number is the length of the whole.
    Unsatisfied(&'r Head, u64),
    /// The body is still arriving.
    Arriving(&'r Head, BodyLength),
}

/// What the head of a stored response says about this one use of it.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'r> {
    /// The value of `Cache-Status`.
    pub cache_status: &'r [u8],
    /// Now, for `Age`; `None` for a response that has just come from the origin.
    pub now_ms: Option<u64>,
    /// Field lines for this client alone.
    pub own_lines: &'r [u8],
}

/// A response that is passed on.
pub struct Relayed<'r> {
    /// The origin's head.
    pub head: &'r ResponseHead<'r>,
    /// When it came, in unix milliseconds: its `Date`, if it has none.
    pub response_ms: u64,
    /// Its body; `None` for a response that has none, whatever length it announces.
    pub body: Option<BodyLength>,
    /// Trailers may follow the body, even if its length is known.
    pub may_have_trailers: bool,
    /// The names in its `Via`.
    pub via: &'r ViaNames,
    /// Whether the client sees the fields that carry cache tags.
    pub tags: bool,
    /// The line `Cache-Status`.
    pub cache_status: CacheStatus,
    /// What becomes of the head because the body is coded, or could be.
    pub passed: Option<&'r Passed>,
}

/// Our own answer. Its content is offered like that of any response.
#[derive(Clone, Copy, Debug)]
pub struct Own<'r> {
    /// Its status.
    pub status: u16,
    /// Field lines that come before the length ...
    pub lines: &'r [u8],
    /// ... which is absent where the status allows no content ...
    pub content_length: Option<u64>,
    /// ... and field lines that come after it. `Date` is added.
    pub more_lines: &'r [u8],
}

/// The line of `Alt-Svc` (RFC 7838). A forward proxy has none: it would speak for the origin.
pub fn alt_svc(listener: &config::Listener) -> Box<[u8]> {
    let config::Listener { address, role, http3, alt_svc, .. } = listener;
    match alt_svc {
        _ if !http3 || *role == config::Role::Forward => Box::default(),
        Some(value) if value == "none" => Box::default(),
        Some(value) => format!("Alt-Svc: {value}\r\n").into_bytes().into(),
        None => format!("Alt-Svc: h3=\":{}\"; ma=86400\r\n", address.port()).into_bytes().into(),
    }
}

//! What a connection with streams does for an exchange, over HTTP/2 and over HTTP/3.

use std::task::{Context, Poll, Waker};

use core_io::CoreIo;
use http1::Version;
use outcome::Fault;
use runtime::wake;

use exchange::client::Gone;

/// A connection with streams, as the client of an exchange uses it.
pub(crate) trait Streams: 'static {
    /// The identifier of a stream.
    type Id: Copy + 'static;
    const VERSION: Version;

    fn io(&self) -> &CoreIo;

    /// Field lines of the listener's responses.
    fn own_lines(&self) -> &[u8];

    /// Sends a head. False if the stream is gone.
    fn send_head<'f>(
        &self,
        stream: Self::Id,
        status: u16,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) -> bool;

    /// Sends content as far as it is taken now; `None` if the stream is gone.
    fn send_content(&self, stream: Self::Id, content: &[u8], ends: bool) -> Option<usize>;

    /// Ends the content with trailers, given as field lines. False if the stream is gone.
    fn send_trailers(&self, stream: Self::Id, lines: &[u8]) -> bool;

    /// Whether the window of the stream itself is closed.
    fn waits_for_window(&self, stream: Self::Id) -> bool;

    /// Ready if the window of the stream is open.
    fn poll_window(&self, stream: Self::Id, cx: &mut Context<'_>) -> Poll<Result<(), Gone>>;

    /// Ready if the stream takes more content. With `others_first`, it waits once if other streams
    /// do.
    fn poll_room(
        &self,
        stream: Self::Id,
        others_first: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>>;

    /// Whether a part of what was taken has not gone to the connection.
    fn has_unsent(&self, stream: Self::Id) -> bool;

    /// Gives what every stream has to `f`; `None` if the stream is gone.
    fn with<R>(&self, stream: Self::Id, f: impl FnOnce(&mut Shared) -> R) -> Option<R>;

    /// Ready if the stream is gone.
    fn poll_gone(&self, stream: Self::Id, cx: &mut Context<'_>) -> Poll<()> {
        match self.with(stream, |it| it.gone_waker = Some(cx.waker().clone())) {
            None => Poll::Ready(()),
            Some(()) => Poll::Pending,
        }
    }

    /// Content of the request, as much as has come; true if it is complete.
    fn poll_content(
        &self,
        stream: Self::Id,
        content: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Fault>>;

    /// The trailers of a complete request, as field lines.
    fn take_trailers(&self, stream: Self::Id) -> Vec<u8> {
        self.with(stream, |it| std::mem::take(&mut it.trailers)).unwrap_or_default()
    }

    /// Whether both sides send when they have something to say, because the head of the response
    /// was sent.
    fn is_answered(&self, stream: Self::Id) -> bool {
        self.with(stream, |it| it.is_answered).unwrap_or_default()
    }

    /// The client may send more content than it has.
    fn release(&self, stream: Self::Id, bytes: usize);

    /// Ends the stream before its time, if it has not ended.
    fn stop(&self, stream: Self::Id, why: Stop);
}

/// What a stream has in every version.
#[derive(Default)]
pub(crate) struct Shared {
    /// The request is complete.
    pub(crate) is_complete: bool,
    /// The head of the response was sent.
    pub(crate) is_answered: bool,
    /// The trailers of the request, as field lines.
    pub(crate) trailers: Vec<u8>,
    pub(crate) body_waker: Option<Waker>,
    pub(crate) room_waker: Option<Waker>,
    pub(crate) gone_waker: Option<Waker>,
}

impl Shared {
    pub(crate) fn wake(&mut self) {
        for waker in [&mut self.body_waker, &mut self.room_waker, &mut self.gone_waker] {
            wake(waker);
        }
    }
}

/// Why a stream ends before its time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// The client is not to take the response for whole.
    BrokenOff,
    /// Its tunnel is over.
    TunnelOver,
    /// The upstream of its tunnel has broken off.
    TunnelBroken,
}

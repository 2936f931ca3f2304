//! A connection that carries many streams: HTTP/2 in both roles, and HTTP/3.
//!
//! ```text
//!          .------ something came -------.
//!          v                             |
//!   wake: send --> is it over? --> receive --nothing--> look --> due? --> wait
//! ```
//!
//! What: [`drive`] is the task of a connection, whatever its [`Protocol`]. It is the one place that
//! decides when a connection sends, receives, ends and waits. [`write()`] and [`fill`] are the
//! bytes of a connection over TCP, and the rest of this file is the table of streams with the tasks
//! that wait. Why: each protocol says what its frames mean, and nothing else.
//!
//! Who owns: the task and the tasks of the streams share the connection. A task of a stream appends
//! what it sends and wakes the task of the connection, so that all that was written in one turn of
//! the core is sent together.
//!
//! What never happens: a connection is read while more waits for its peer than its protocol allows;
//! a turn repeats without the other tasks having had theirs, unless something came.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use runtime::time::{self, Instant, Sleep};
use transport::Transport;

/// A protocol on a connection, as [`drive`] uses it. Each method gives the end of the connection if
/// it is over.
pub trait Protocol {
    /// How a connection ends.
    type End;

    /// Keeps the waker of the connection's task, which the tasks of the streams wake.
    fn note_waker(&self, waker: &Waker);

    /// Sends what waits, as far as the peer takes it, and wakes the stream that may send next.
    ///
    /// # Errors
    /// The connection is over.
    fn send(self: &Rc<Self>, cx: &mut Context<'_>) -> Result<(), Self::End>;

    /// Handles what has come. False if nothing has; then the task wakes when something does.
    ///
    /// # Errors
    /// The connection is over.
    fn receive(self: &Rc<Self>, _cx: &mut Context<'_>) -> Result<bool, Self::End> {
        Ok(false)
    }

    /// Looks whether the connection must end for a reason besides its streams and its deadline.
    ///
    /// # Errors
    /// The connection is over.
    fn look(self: &Rc<Self>, _cx: &mut Context<'_>) -> Result<(), Self::End> {
        Ok(())
    }

    /// When the next turn is due, whatever comes.
    fn deadline(&self) -> Option<Instant>;

    /// The deadline has passed.
    ///
    /// # Errors
    /// The connection is over.
    fn due(self: &Rc<Self>) -> Result<(), Self::End> {
        Ok(())
    }
}

/// Runs a connection to its end.
pub async fn drive<P: Protocol>(connection: &Rc<P>) -> P::End {
    let mut timer = time::sleep_until(time::now());
    poll_fn(|cx| match turn(connection, &mut timer, cx) {
        Ok(()) => Poll::Pending,
        Err(end) => Poll::Ready(end),
    })
    .await
}

fn turn<P: Protocol>(
    connection: &Rc<P>,
    timer: &mut Sleep,
    cx: &mut Context<'_>,
) -> Result<(), P::End> {
    connection.note_waker(cx.waker());
    loop {
        connection.send(cx)?;
        if !connection.receive(cx)? {
            break;
        }
    }
    connection.look(cx)?;
    let Some(deadline) = connection.deadline() else { return Ok(()) };
    if time::now() >= deadline {
        connection.due()?;
    }
    if timer.deadline() != deadline {
        timer.reset(deadline);
    }
    if Pin::new(timer).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Ok(())
}

/// Keeps the waker of a task.
pub fn note_waker(place: &mut Option<Waker>, waker: &Waker) {
    if !place.as_ref().is_some_and(|known| known.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

/// Writes what waits, as far as the connection takes it, and reports the number of bytes each time.
/// False if more waits; then the task wakes when the connection takes more.
///
/// # Errors
/// The connection is broken.
pub fn write(
    stream: &Transport,
    out: &mut Vec<u8>,
    cx: &mut Context<'_>,
    mut sent: impl FnMut(usize),
) -> io::Result<bool> {
    while !(out.is_empty() && stream.is_flushed()) {
        match stream.try_write(out) {
            Ok(bytes) => {
                out.drain(..bytes);
                sent(bytes);
                if out.is_empty() && stream.is_flushed() {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match stream.poll_writable(cx) {
            Poll::Ready(writable) => writable?,
            Poll::Pending => return Ok(false),
        }
    }
    Ok(true)
}

/// Reads behind the bytes that were kept from earlier turns, and reports the number of bytes that
/// were read. Returns where the input ends.
///
/// # Errors
/// The connection is broken, or [`io::ErrorKind::UnexpectedEof`].
pub fn fill(
    stream: &Transport,
    kept: &mut Vec<u8>,
    input: &mut [u8],
    received: impl FnOnce(usize),
) -> io::Result<usize> {
    let filled = take_kept(kept, input);
    match stream.try_read(&mut input[filled..]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => {
            received(bytes);
            Ok(filled + bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(filled),
        Err(error) => Err(error),
    }
}

/// Moves the bytes that were kept to the start of the input. Returns where they end.
pub fn take_kept(kept: &mut Vec<u8>, input: &mut [u8]) -> usize {
    let filled = kept.len();
    input[..filled].copy_from_slice(kept);
    kept.clear();
    filled
}

/// A stream in the table of its connection.
pub trait Waiting {
    /// Whether it waits for room that the streams share.
    fn waits_for_room(&self) -> bool;
}

/// The stream with this identifier.
pub fn find<I: PartialEq, S>(streams: &mut [(I, S)], id: I) -> Option<&mut S> {
    streams.iter_mut().find(|(other, _)| *other == id).map(|(_, stream)| stream)
}

/// Takes a stream out of the table.
pub fn remove<I: PartialEq, S>(streams: &mut Vec<(I, S)>, id: I) -> Option<S> {
    let at = streams.iter().position(|(other, _)| *other == id)?;
    Some(streams.swap_remove(at).1)
}

/// Whether other streams than this one wait for room.
pub fn others_wait<I: PartialEq, S: Waiting>(streams: &[(I, S)], id: I) -> bool {
    streams.iter().any(|(other, stream)| *other != id && stream.waits_for_room())
}

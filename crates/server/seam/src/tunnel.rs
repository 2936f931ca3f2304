//! A tunnel: bytes both ways between a client and an upstream until both have ended.
//!
//! ```text
//!   each direction:  open --end of file--> half closed (the end is passed on) --both--> Closed
//!   both together:   silent for too long -> Idle; an error -> Broken; the drain is over -> Cut
//! ```
//!
//! Each direction reads into the core's buffer and writes at once. A direction keeps only the bytes
//! that the far side does not take, at most one read, and reads no more until these bytes are sent.
//! So a silent tunnel holds no buffer. If a read fills the buffer and both sides are plain TCP, the
//! next bytes go through a pipe and are not copied, for as long as each read is as long again. A
//! draining core lets tunnels run until its time-out.
//!
//! What never happens: bytes of one tunnel stay in the buffer for another; a broken connection
//! looks like an orderly end on the other side (the other side is reset, too).

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use core_io::limits::PIPED_BYTES_MAX;
use core_io::{CoreIo, piped};
use metrics::Count;
use runtime::time::{self, Instant};
use transport::Transport;

use crate::client::{ByteStream, Gone};
use crate::limits::TUNNEL_BYTES_MAX;

/// The two ends of a tunnel.
pub struct Tunnel<'t, C> {
    /// What the connections of a core share.
    pub io: &'t CoreIo,
    /// The client.
    pub client: &'t C,
    /// The connection to the upstream.
    pub upstream: &'t Transport,
    /// What slows the bytes to the client down.
    pub pace: Option<&'t Pace<'t>>,
}

/// Charges some of the bytes that were sent to a client. Returns how many, and how long to wait.
pub type Pace<'p> = dyn Fn(u64) -> (u64, Duration) + 'p;

/// Bytes that a tunnel carried.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// From the client to the upstream ...
    pub up: u64,
    /// ... and to the client.
    pub down: u64,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Idle,
    Broken,
    Cut,
}

/// Figures of one tunnel.
struct Counted {
    last: Cell<Instant>,
    up: Cell<u64>,
    down: Cell<u64>,
}

impl<C: ByteStream> Tunnel<'_, C> {
    /// Carries bytes to the end, beginning with those that each side has sent already.
    pub async fn run(&self, to_upstream: &[u8], to_client: &[u8]) -> Carried {
        let counters = &self.io.counters;
        counters.tunnels.add(1);
        counters.tunnels_open.add(1);
        let counted =
            Counted { last: Cell::new(time::now()), up: Cell::new(0), down: Cell::new(0) };
        let _open = Open(self.io);
        let end = self.both(&counted, to_upstream, to_client).await;
        tracing::debug!(?end, up = counted.up.get(), down = counted.down.get(), "a tunnel ended");
        match end {
            End::Closed => {}
            End::Idle => counters.timeouts.add(1),
            End::Broken | End::Cut => {
                self.client.reset();
                self.upstream.reset();
            }
        }
        Carried { up: counted.up.get(), down: counted.down.get() }
    }

    async fn both(&self, counted: &Counted, to_upstream: &[u8], to_client: &[u8]) -> End {
        let io = self.io;
        let counters = &io.counters;
        let (last, client, upstream) = (&counted.last, self.client, self.upstream);
        let of_client = |count| if C::IS_COUNTED { None } else { Some(count) };
        let up = [
            of_client(&counters.bytes_received),
            Some(&counters.upstream_bytes_sent),
            Some(&counters.tunnel_bytes_received),
        ];
        let down = [
            Some(&counters.upstream_bytes_received),
            of_client(&counters.bytes_sent),
            Some(&counters.tunnel_bytes_sent),
        ];
        let (count, pace) = (&counted.up, None);
        let up = Direction { io, from: client, to: upstream, last, count, counters: up, pace };
        let (count, pace) = (&counted.down, self.pace);
        let down = Direction { io, from: upstream, to: client, last, count, counters: down, pace };
        let mut up = pin!(up.carry(to_upstream));
        let mut down = pin!(down.carry(to_client));
        let (mut up_ended, mut down_ended) = (false, false);
        let limit = io.limits().limits.tunnel_idle;
        let mut timer = time::sleep_until(counted.last.get() + limit);
        std::future::poll_fn(|cx| {
            for (ended, direction) in [
                (&mut up_ended, up.as_mut() as Pin<&mut dyn Future<Output = Result<(), Gone>>>),
                (&mut down_ended, down.as_mut()),
            ] {
                if !*ended && let Poll::Ready(result) = direction.poll(cx) {
                    *ended = true;
                    if result.is_err() {
                        return Poll::Ready(End::Broken);
                    }
                }
            }
            if up_ended && down_ended {
                return Poll::Ready(End::Closed);
            }
            if client.poll_gone(cx).is_ready() {
                return Poll::Ready(End::Broken);
            }
            if io.cuts_tunnels() {
                return Poll::Ready(End::Cut);
            }
            while Pin::new(&mut timer).poll(cx).is_ready() {
                let deadline = counted.last.get() + limit;
                if time::now() >= deadline {
                    return Poll::Ready(End::Idle);
                }
                timer.reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

/// Counts the tunnel as open until its future is dropped.
struct Open<'t>(&'t CoreIo);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.counters.tunnels_open.sub(1);
    }
}

/// One direction.
struct Direction<'t, F, T> {
    io: &'t CoreIo,
    from: &'t F,
    to: &'t T,
    /// When a byte was last written, in either direction.
    last: &'t Cell<Instant>,
    /// Bytes written to `to`.
    count: &'t Cell<u64>,
    /// The counters of bytes read, bytes written, and bytes that went through a tunnel.
    counters: [Option<&'t Count>; 3],
    /// What slows it down.
    pace: Option<&'t Pace<'t>>,
}

impl<F: ByteStream, T: ByteStream> Direction<'_, F, T> {
    /// Carries bytes to the end of `from`, and passes the end on.
    async fn carry(&self, first: &[u8]) -> Result<(), Gone> {
        self.send(first).await?;
        // What goes through a pipe is more at a time than may be sent at once.
        let plain = self.from.plain().zip(self.to.plain()).filter(|_| self.pace.is_none());
        let (mut is_burst, mut charged) = (false, 0);
        loop {
            if let (true, Some((from, to))) = (is_burst, plain) {
                is_burst = self.splice(from, to).await?;
                continue;
            }
            let step = self.from.read(self.io, |bytes| {
                is_burst = bytes.len() == TUNNEL_BYTES_MAX;
                if let Some(read) = self.counters[0] {
                    read.add(bytes.len() as u64);
                }
                let sent = self.to.try_send(bytes)?;
                self.sent(sent);
                Ok(bytes[sent..].to_vec())
            });
            match step.await? {
                Some(rest) => {
                    self.send(&rest?).await?;
                    self.slow_down(&mut charged).await;
                }
                None => {
                    // This fails if the far side has gone altogether.
                    if self.to.end().is_ok() {
                        let _ = self.to.flushed().await;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Waits until the bytes that were sent since the last time may have been sent. The far side
    /// waits too: nothing is read meanwhile.
    async fn slow_down(&self, charged: &mut u64) {
        let Some(pace) = self.pace else { return };
        while *charged < self.count.get() {
            let (more, wait) = pace(self.count.get() - *charged);
            *charged += more;
            if !wait.is_zero() {
                time::sleep(wait).await;
                self.last.set(time::now());
            }
        }
    }

    /// Waits for bytes and carries them without copying. False if they are few, or are to be read.
    async fn splice(&self, from: &Transport, to: &Transport) -> Result<bool, Gone> {
        let read = piped::read(self.io, from, PIPED_BYTES_MAX as usize).await;
        let Some(mut pages) = read.map_err(|_| Gone)? else { return Ok(false) };
        let bytes = pages.left();
        if let Some(read) = self.counters[0] {
            read.add(bytes as u64);
        }
        while pages.left() > 0 {
            match to.try_write_pages(&mut pages, false) {
                Ok(sent) => self.sent(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.room().await?,
                Err(_) => return Err(Gone),
            }
        }
        Ok(bytes >= TUNNEL_BYTES_MAX)
    }

    async fn send(&self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match self.to.try_send(bytes)? {
                0 => self.to.room().await?,
                sent => {
                    self.sent(sent);
                    bytes = &bytes[sent..];
                }
            }
        }
        self.to.flushed().await
    }

    fn sent(&self, bytes: usize) {
        if bytes > 0 {
            self.last.set(time::now());
            self.count.set(self.count.get() + bytes as u64);
            self.counters[1..].iter().flatten().for_each(|counter| counter.add(bytes as u64));
        }
    }
}

/// A whole connection.
impl ByteStream for Transport {
    const IS_COUNTED: bool = false;

    fn plain(&self) -> Option<&Transport> {
        self.can_send_shared().then_some(self)
    }

    async fn read<T>(
        &self,
        io: &CoreIo,
        mut take: impl FnMut(&[u8]) -> T,
    ) -> Result<Option<T>, Gone> {
        loop {
            self.readable().await.map_err(|_| Gone)?;
            let read =
                io.with_input(|input| match self.try_read(&mut input[..TUNNEL_BYTES_MAX]) {
                    Ok(0) => Ok(Some(None)),
                    Ok(n) => Ok(Some(Some(take(&input[..n])))),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                    Err(_) => Err(Gone),
                })?;
            if let Some(read) = read {
                return Ok(read);
            }
        }
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, Gone> {
        match self.try_write(bytes) {
            Ok(sent) => Ok(sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Gone),
        }
    }

    async fn room(&self) -> Result<(), Gone> {
        self.writable().await.map_err(|_| Gone)
    }

    async fn flushed(&self) -> Result<(), Gone> {
        while !self.is_flushed() {
            self.room().await?;
            // Writes what the connection buffers; this finds a failure.
            self.try_write(&[]).map_err(|_| Gone)?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Gone> {
        self.shutdown(Shutdown::Write).map_err(|_| Gone)
    }

    fn reset(&self) {
        // If the system refuses, the other side sees an orderly end: there is nothing better.
        let _ = self.set_linger0();
    }

    fn poll_gone(&self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

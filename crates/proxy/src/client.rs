//! The client's end of an exchange: sending with a time-out, and refusing with words.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::time::Duration;

use http1::write;
use runtime::fs::SharedPages;
use runtime::time::{self, Instant};

use crate::limits::{COALESCE_BYTES_MAX, Limits, RATE_WAITS_MIN};
use crate::worker::Worker;
use cache::stored::{Connection, Piece};
use transport::Transport;

/// The client has gone, or does not take our bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Sends to one client. What the socket does not take at once is kept and sent by `flush`: at most
/// what one read of the upstream gave, because nobody offers more before the flush.
#[derive(Debug)]
pub struct Client<'c> {
    worker: &'c Worker,
    stream: &'c Transport,
    pending: Vec<u8>,
    /// Bytes handed to this client, sent or pending.
    pub bytes: u64,
    /// The final head as it was sent, for the log if there is one.
    pub sent_head: Vec<u8>,
    failed: bool,
    pace: Pace,
}

/// How fast a client is while we wait for nothing else.
#[derive(Debug, Default)]
pub struct Pace {
    bytes: u64,
    waited: Duration,
    waits: u32,
}

impl Pace {
    /// It has taken, or sent, so many bytes.
    pub fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// We have waited for it since then.
    pub fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
        self.waits = self.waits.saturating_add(1);
    }

    /// Whether it is to be cut.
    pub fn is_too_slow(&self, limits: &Limits) -> bool {
        self.waits >= RATE_WAITS_MIN
            && self.waited >= limits.rate_grace
            && self.bytes / limits.rate_min.max(1) < self.waited.as_secs()
    }
}

/// Room for a usual head with a small body behind it.
const HEAD_BYTES_USUAL: usize = 2048;

/// I/O vectors of one call.
const SLICES_MAX: usize = 16;

impl<'c> Client<'c> {
    /// With nothing held yet.
    pub fn new(worker: &'c Worker, stream: &'c Transport) -> Client<'c> {
        let (pending, sent_head) = (Vec::new(), Vec::new());
        let pace = Pace::default();
        Client { worker, stream, pending, bytes: 0, sent_head, failed: false, pace }
    }

    /// Keeps bytes for the next `offer` or `flush`.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.pending.extend_from_slice(bytes);
    }

    /// Lends the held bytes for appending.
    pub fn held(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let before = self.pending.len();
        if before == 0 {
            self.pending.reserve(HEAD_BYTES_USUAL);
        }
        append(&mut self.pending);
        let appended = &self.pending[before..];
        self.bytes += appended.len() as u64;
        let is_final_head = appended.starts_with(b"HTTP/1.1 ") && appended.get(9) != Some(&b'1');
        if is_final_head && self.worker.log.is_on() {
            self.sent_head.clear();
            self.sent_head.extend_from_slice(appended);
        }
    }

    /// Sends the parts behind what is held, as far as the socket takes them now; keeps the rest.
    pub fn offer(&mut self, parts: &[&[u8]]) {
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes += offered as u64;
        if self.failed {
            return;
        }
        if self.pending.len() + offered <= COALESCE_BYTES_MAX {
            parts.iter().for_each(|part| self.pending.extend_from_slice(part));
            let sent = self.stream.try_write(&self.pending);
            let sent = self.taken(sent);
            self.pending.drain(..sent);
            return;
        }
        let mut slices = [IoSlice::new(&[]); 4];
        slices[0] = IoSlice::new(&self.pending);
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let sent = self.stream.try_write_vectored(&slices[..=parts.len()]);
        let mut sent = self.taken(sent);
        let of_pending = sent.min(self.pending.len());
        self.pending.drain(..of_pending);
        sent -= of_pending;
        for part in parts {
            let of_part = sent.min(part.len());
            self.pending.extend_from_slice(&part[of_part..]);
            sent -= of_part;
        }
    }

    /// What the socket took of an offer.
    fn taken(&mut self, sent: io::Result<usize>) -> usize {
        match sent {
            Ok(sent) => {
                self.worker.counters.bytes_sent.add(sent as u64);
                sent
            }
            Err(error) => {
                self.failed = error.kind() != io::ErrorKind::WouldBlock;
                0
            }
        }
    }

    /// Waits until everything held has been sent.
    pub async fn flush(&mut self) -> Result<(), Gone> {
        let pending = std::mem::take(&mut self.pending);
        if self.failed {
            return Err(Gone);
        }
        self.send_rest(&pending).await
    }

    /// Sends what is held, then these bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if !self.pending.is_empty() {
            self.hold(bytes);
            return self.flush().await;
        }
        self.bytes += bytes.len() as u64;
        self.send_rest(bytes).await
    }

    /// Sends what is held, then the pieces, from this offset of them on.
    pub async fn send_pieces(&mut self, pieces: &[Piece], from: u64) -> Result<(), Gone> {
        let mut body: Vec<&[u8]> = Vec::with_capacity(pieces.len());
        let mut skip = usize::try_from(from).expect("a stored body fits in memory");
        for piece in pieces {
            let skipped = skip.min(piece.len());
            body.push(&piece[skipped..]);
            skip -= skipped;
        }
        self.send_slices(&body, false).await
    }

    /// Sends what is held, then these bytes, from where they lie; `more` follows at once.
    pub async fn send_slices(&mut self, body: &[&[u8]], more: bool) -> Result<(), Gone> {
        self.bytes += body.iter().map(|part| part.len() as u64).sum::<u64>();
        let held = std::mem::take(&mut self.pending);
        let mut unsent: Vec<&[u8]> = Vec::with_capacity(1 + body.len());
        unsent.push(&held);
        unsent.extend_from_slice(body);
        let mut unsent = &mut unsent[..];
        while let Some(first) = unsent.first() {
            if first.is_empty() {
                unsent = &mut unsent[1..];
                continue;
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = unsent.len().min(SLICES_MAX);
            for (slice, part) in slices.iter_mut().zip(unsent.iter()) {
                *slice = IoSlice::new(part);
            }
            let slices = &slices[..used];
            let sent = match more {
                true => self.stream.try_write_more(slices),
                false => self.stream.try_write_vectored(slices),
            };
            let mut sent = match sent {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.room().await?;
                    continue;
                }
                Err(_) => return Err(Gone),
            };
            self.worker.counters.bytes_sent.add(sent as u64);
            self.pace.moved(sent);
            for part in unsent.iter_mut() {
                let of_part = sent.min(part.len());
                *part = &part[of_part..];
                sent -= of_part;
                if sent == 0 {
                    break;
                }
            }
        }
        self.flushed().await
    }

    /// Whether this transport can send shared pages (zero-copy).
    pub fn can_send_shared(&self) -> bool {
        self.stream.can_send_shared()
    }

    /// Sends what is held, then shared pages, zero-copy; `more` follows at once.
    pub async fn send_shared(&mut self, mut pages: SharedPages, more: bool) -> Result<(), Gone> {
        if !self.pending.is_empty() {
            self.send_slices(&[], true).await?;
        }
        self.bytes += pages.left() as u64;
        while pages.left() > 0 {
            match self.stream.try_write_pages(&mut pages, more) {
                Ok(sent) => {
                    self.worker.counters.bytes_sent.add(sent as u64);
                    self.pace.moved(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.room().await?,
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    async fn send_rest(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        let all = bytes.len();
        let mut held = None;
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(sent) => {
                    self.worker.counters.bytes_sent.add(sent as u64);
                    self.pace.moved(sent);
                    bytes = &bytes[sent..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    held.get_or_insert_with(|| Held::new(self.worker, all));
                    self.room().await?;
                }
                Err(_) => return Err(Gone),
            }
        }
        self.flushed().await
    }

    /// Waits until what the connection has taken is on the wire.
    async fn flushed(&mut self) -> Result<(), Gone> {
        while !self.stream.is_flushed() {
            self.room().await?;
            // Nothing is written while there is nothing new: a failure is found here.
            self.stream.try_write(&[]).map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// Waits until the client takes more; not for one that takes next to nothing.
    async fn room(&mut self) -> Result<(), Gone> {
        let in_force = self.worker.limits();
        let limits = &in_force.limits;
        let since = time::now();
        let _sending = self.worker.counters.states.sending.while_here();
        let waited = time::timeout(limits.send_timeout, self.stream.writable()).await;
        self.pace.waited(since);
        match waited {
            Ok(Ok(())) if !self.pace.is_too_slow(limits) => Ok(()),
            Ok(Err(_)) => Err(Gone),
            Ok(Ok(())) | Err(_) => {
                self.worker.counters.timeouts.add(1);
                Err(Gone)
            }
        }
    }
}

/// Bytes that wait for a client, for as long as they do.
struct Held<'c> {
    worker: &'c Worker,
    bytes: u64,
}

impl<'c> Held<'c> {
    fn new(worker: &'c Worker, bytes: usize) -> Held<'c> {
        worker.hold(bytes as u64);
        Held { worker, bytes: bytes as u64 }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.worker.release(self.bytes);
    }
}

/// Appends a response of our own that says what is wrong. `lines` are further field lines.
pub fn append_error(
    out: &mut Vec<u8>,
    status: u16,
    text: &str,
    lines: &[u8],
    connection: Connection,
    with_body: bool,
) {
    write::status_line(out, status);
    out.extend_from_slice(b"Content-Type: text/plain\r\n");
    write::content_length(out, text.len() as u64 + 1);
    out.extend_from_slice(b"Cache-Control: no-store\r\n");
    out.extend_from_slice(lines);
    append_date(out, time::wall_ms());
    connection.append(out);
    write::end(out);
    if with_body {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
}

/// Appends the field that whoever forwards a response without it adds (RFC 9110, 6.6.1).
pub fn append_date(out: &mut Vec<u8>, now_ms: u64) {
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(&caching::date::format(now_ms));
    out.extend_from_slice(b"\r\n");
}

/// Tells the end of a connection where ends are told inside the transport.
pub async fn end(worker: &Worker, stream: &Transport) {
    stream.end_inside();
    // A client that does not wait for the end has what it wanted all the same.
    let _ = Client::new(worker, stream).flushed().await;
}

/// Closes our direction and reads on for a while, so that the last response is not lost to a reset
/// (RFC 9112, 9.6).
pub async fn linger(worker: &Worker, stream: &Transport) {
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let in_force = worker.limits();
    let limits = &in_force.limits;
    let mut left = limits.linger_bytes_max;
    let reading = async {
        if !stream.is_flushed() && stream.writable().await.is_err() {
            return;
        }
        while left > 0 {
            if stream.readable().await.is_err() {
                return;
            }
            match worker.with_input(|input| stream.try_read(input)) {
                Ok(0) => return,
                Ok(n) => left = left.saturating_sub(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // The time-out is the ordinary end for a client that does not close.
    let _ = time::timeout(limits.linger_timeout, reading).await;
}

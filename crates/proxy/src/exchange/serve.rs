//! Sending a response: from the store, whole or in parts, or while it arrives.

use std::net::SocketAddr;
use std::sync::Arc;

use caching::ContentRange;
use caching::range::{ByteRange, Selection, select_range};
use http1::{Method, Version};
use runtime::time;

use crate::ask::Held;
use crate::client::Gone;
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::exchange::plan::Form;
use crate::request::connection_of;
use crate::told::Told;
use cache::flight::Reader;
use cache::ranges::{Content, Parts};
use cache::stored::{Away, Connection, Framing, Head, Stored, Use, Wire, has_length};
use outcome::Outcome;

/// A part of what arrives, for a client that asked for it.
#[derive(Clone, Copy)]
enum Slice {
    All,
    Only(ByteRange),
}

impl Exchange<'_> {
    /// Answers from what is held, which the plan has found to be enough.
    pub(crate) async fn serve_held(&mut self, held: &Held, told: Told) -> Result<Done, Ended> {
        match held {
            Held::Whole(stored) => self.serve_stored(stored, told, true, b"").await,
            Held::Part(partial) => {
                // Conditions go before ranges (RFC 9110, 13.2.2).
                if self.planning().is_not_modified(&partial.head) {
                    return self.send_not_modified(&partial.head, &told, true).await;
                }
                let ranges = self.planning().held_ranges(partial).unwrap_or_else(|| partial.held());
                let done = self.done(&told, 206);
                self.serve_parts(Content::Part(partial), ranges, &told, b"", true, done).await
            }
            Held::Nothing => unreachable!("nothing is served from nothing"),
        }
    }

    /// Answers from a stored response. `aged`: it has been in the store, so it tells its age.
    pub(crate) async fn serve_stored(
        &mut self,
        stored: &Arc<Stored>,
        told: Told,
        aged: bool,
        own_lines: &[u8],
    ) -> Result<Done, Ended> {
        let head = &stored.head;
        let length = stored.body_bytes;
        let form = self.planning().form(head, length);
        match form {
            Form::Whole(_) => {
                if let Some(away) = stored.away.as_deref() {
                    return self.serve_away(stored, (*away, None), told, aged, own_lines).await;
                }
            }
            Form::NotModified => return self.send_not_modified(head, &told, aged).await,
            Form::Unsatisfied => {
                return self.send_unsatisfied(head, length, &told, aged).await;
            }
            Form::Parts(ranges) => {
                if let Some(away) = stored.away.as_deref() {
                    // Several at once would have to be found before the head can be sent: then it
                    // is the whole.
                    let part = if let [range] = ranges[..] { Some(range) } else { None };
                    return self.serve_away(stored, (*away, part), told, aged, own_lines).await;
                }
                let done = self.done(&told, 206);
                let content = Content::Whole(stored);
                return self.serve_parts(content, ranges, &told, own_lines, aged, done).await;
            }
        }
        let status = told.value();
        let connection = self.connection(true);
        let now_ms = aged.then(time::wall_ms);
        let use_ = Use { cache_status: &status, now_ms, connection, own_lines };
        self.count_hit(&told);
        self.client.held(|out| stored.append_head(out, &use_));
        let done = self.done(&told, head.status);
        let sent = match self.head.method {
            Method::Head => self.client.flush().await,
            _ => self.client.send_pieces(&stored.pieces, 0).await,
        };
        sent.map(|()| done).map_err(|Gone| Ended::Gone(done))
    }

    /// Answers with a body that is on the disk alone, or one part of it.
    async fn serve_away(
        &mut self,
        stored: &Arc<Stored>,
        (away, part): (Away, Option<ByteRange>),
        told: Told,
        aged: bool,
        own_lines: &[u8],
    ) -> Result<Done, Ended> {
        let whole = ByteRange { first: 0, last: stored.body_bytes.saturating_sub(1) };
        let range = part.unwrap_or(whole);
        let opened = match self.head.method {
            Method::Head => None,
            _ => {
                let shared = Arc::clone(&self.worker.shared);
                let (at_hand, zero_copy) = (self.at_hand.take(), self.client.can_send_shared());
                let opened = shared.open_away(stored, away, range, at_hand, zero_copy).await;
                Some(opened.ok_or(Ended::BodyLost)?)
            }
        };
        let status = told.value();
        let connection = self.connection(true);
        let now_ms = aged.then(time::wall_ms);
        let use_ = Use { cache_status: &status, now_ms, connection, own_lines };
        self.count_hit(&told);
        let complete_bytes = stored.body_bytes;
        self.client.held(|out| match part {
            None => stored.append_head(out, &use_),
            Some(range) => {
                let framing = Framing::Length(range.bytes());
                let part = ContentRange { range, complete_bytes };
                stored.head.append_part(out, part, framing, &use_);
            }
        });
        let status = if part.is_some() { 206 } else { stored.head.status };
        let done = self.done(&told, status);
        match opened {
            Some(opened) => self.send_away(stored, range, opened, done).await,
            None => self.client.flush().await.map(|()| done).map_err(|Gone| Ended::Gone(done)),
        }
    }

    /// 206, with one part or several.
    async fn serve_parts(
        &mut self,
        content: Content<'_>,
        ranges: Vec<ByteRange>,
        told: &Told,
        own_lines: &[u8],
        aged: bool,
        done: Done,
    ) -> Result<Done, Ended> {
        let now_ms = time::wall_ms();
        let stored_ms = content.head().meta.freshness.response_ms;
        let parts = Parts::new(content, ranges, self.worker.shared.boundary(stored_ms, now_ms));
        let status = told.value();
        let connection = self.connection(true);
        let now_ms = aged.then_some(now_ms);
        let use_ = Use { cache_status: &status, now_ms, connection, own_lines };
        self.count_hit(told);
        self.client.held(|out| parts.append_head(out, &use_));
        let done = Done { head_bytes: self.client.bytes, ..done };
        let sent = self.client.send_slices(&parts.body(), false).await;
        sent.map(|()| done).map_err(|Gone| Ended::Gone(done))
    }

    /// 304, by the client's own validators.
    async fn send_not_modified(
        &mut self,
        head: &Head,
        told: &Told,
        aged: bool,
    ) -> Result<Done, Ended> {
        self.worker.counters.not_modified.add(1);
        let status = told.value();
        let connection = self.connection(true);
        let now_ms = aged.then(time::wall_ms);
        let use_ = Use { cache_status: &status, now_ms, connection, own_lines: b"" };
        self.count_hit(told);
        self.client.held(|out| head.append_not_modified(out, &use_));
        let done = self.done(told, 304);
        let outcome = match told.outcome {
            Outcome::Hit => Outcome::NotModified,
            other => other,
        };
        let done = Done { outcome, ..done };
        self.client.flush().await.map(|()| done).map_err(|Gone| Ended::Gone(done))
    }

    /// 416.
    async fn send_unsatisfied(
        &mut self,
        head: &Head,
        complete_bytes: u64,
        told: &Told,
        aged: bool,
    ) -> Result<Done, Ended> {
        let status = told.value();
        let connection = self.connection(true);
        let now_ms = aged.then(time::wall_ms);
        let use_ = Use { cache_status: &status, now_ms, connection, own_lines: b"" };
        self.count_hit(told);
        self.client.held(|out| head.append_unsatisfied(out, complete_bytes, &use_));
        let done = self.done(told, 416);
        self.client.flush().await.map(|()| done).map_err(|Gone| Ended::Gone(done))
    }

    /// Sends a response while its body arrives.
    pub(crate) async fn stream_along(
        &mut self,
        reader: &Reader,
        head: &Head,
        told: Told,
        upstream: Option<SocketAddr>,
        own_lines: &[u8],
    ) -> Result<Done, Ended> {
        if self.planning().is_not_modified(head) {
            return self.send_not_modified(head, &told, false).await;
        }
        let slice = match self.selected(head) {
            Ok(slice) => slice,
            Err(complete_bytes) => {
                return self.send_unsatisfied(head, complete_bytes, &told, false).await;
            }
        };
        let (status, framing) = self.append_arriving(head, slice, &told, own_lines);
        let done =
            Done { upstream, keep: framing != Framing::UntilClose, ..self.done(&told, status) };
        let gone = |Gone| Ended::Gone(done);
        let mut at = 0;
        loop {
            if !reader.is_ready() {
                // The head does not wait for a body that takes its time.
                self.client.flush().await.map_err(gone)?;
            }
            match reader.next().await {
                Ok(Some(piece)) => {
                    self.offer(framing, cut(&piece, at, slice));
                    self.client.flush().await.map_err(gone)?;
                    at += piece.len() as u64;
                    if matches!(slice, Slice::Only(range) if at > range.last) {
                        break;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    return Err(Ended::Gone(done));
                }
            }
        }
        self.end_body(framing);
        self.client.flush().await.map_err(gone)?;
        Ok(done)
    }

    /// Holds the head of what arrives. Gives its status and framing.
    fn append_arriving(
        &mut self,
        head: &Head,
        slice: Slice,
        told: &Told,
        own_lines: &[u8],
    ) -> (u16, Framing) {
        let part = match (slice, head.announced_length) {
            (Slice::Only(range), Some(complete_bytes)) => {
                Some(ContentRange { range, complete_bytes })
            }
            _ => head.part,
        };
        let (status, length) = match (slice, part) {
            (Slice::Only(range), _) => (206, Some(range.bytes())),
            (Slice::All, Some(_)) => (206, head.announced_length),
            (Slice::All, None) => (head.status, head.announced_length),
        };
        let framing = self.framing(length, status);
        let cache_status = told.value();
        let connection = self.connection(framing != Framing::UntilClose);
        let use_ = Use { cache_status: &cache_status, now_ms: None, connection, own_lines };
        self.client.held(|out| match part {
            Some(part) => head.append_part(out, part, framing, &use_),
            None => head.append_streaming(out, framing, &use_),
        });
        (status, framing)
    }

    /// Which bytes of what arrives this client gets, or the length of it when it has none of those
    /// that were asked for. Several ranges at once would have to wait for each other: then it is
    /// the whole.
    fn selected(&self, head: &Head) -> Result<Slice, u64> {
        let Some(length) = head.announced_length else { return Ok(Slice::All) };
        if head.part.is_some() {
            return Ok(Slice::All);
        }
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        match select_range(&request, head.status, &head.meta.validators, length) {
            Selection::Parts(ranges) => match ranges[..] {
                [range] => Ok(Slice::Only(range)),
                _ => Ok(Slice::All),
            },
            Selection::Whole(_) => Ok(Slice::All),
            Selection::Unsatisfiable => Err(length),
        }
    }

    fn count_hit(&self, told: &Told) {
        if told.outcome == Outcome::Hit {
            self.worker.counters.hits.add(1);
        }
    }

    /// What becomes of an exchange whose head is held now.
    fn done(&self, told: &Told, status: u16) -> Done {
        let head_bytes = self.client.bytes;
        Done { outcome: told.outcome, status, head_bytes, upstream: None, keep: true }
    }

    /// How the end of a body is told to this client.
    pub(crate) fn framing(&self, length: Option<u64>, status: u16) -> Framing {
        match (length, self.head.version) {
            _ if !has_length(status) => Framing::Implied,
            (Some(length), _) => Framing::Length(length),
            (None, Version::Http11) => Framing::Chunked,
            (None, Version::Http10) => Framing::UntilClose,
        }
    }

    /// Offers content to the client in this framing.
    pub(crate) fn offer(&mut self, framing: Framing, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if framing == Framing::Chunked {
            let prefix = http1::write::chunk_prefix(data.len());
            self.client.offer(&[prefix.as_bytes(), data, b"\r\n"]);
        } else {
            self.client.offer(&[data]);
        }
    }

    /// Holds what ends a body in this framing.
    pub(crate) fn end_body(&mut self, framing: Framing) {
        if framing == Framing::Chunked {
            self.client.hold(b"0\r\n\r\n");
        }
    }

    /// The response cannot be completed, or the client does not take it: what it has got must not
    /// be taken for whole.
    pub(super) fn break_off(&mut self) {
        // A body that ends with the connection needs a reset to be told from a whole one; for the
        // others it does no harm.
        let _ = self.stream.set_linger0();
    }

    /// What to tell the client of the connection. It is kept to, also when a drain begins later.
    pub(crate) fn connection(&mut self, framed: bool) -> Connection {
        self.keep &= framed && !self.worker.is_draining();
        connection_of(self.head.version, self.keep)
    }
}

/// The bytes of a piece that lies at `at` which are of the slice.
fn cut(piece: &[u8], at: u64, slice: Slice) -> &[u8] {
    let Slice::Only(range) = slice else { return piece };
    let within = |place: u64| {
        let offset = place.saturating_sub(at).min(piece.len() as u64);
        usize::try_from(offset).expect("no more than the piece")
    };
    &piece[within(range.first)..within(range.last + 1)]
}

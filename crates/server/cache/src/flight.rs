//! Collapsed forwarding: one fetch for all requests that miss the same key at the same time.
//!
//! ```text
//!            lead                     stream                    complete
//!  (absent) ------> Asking -----------------------> Streaming ----------> Settled(Stored)
//!                     |                                  |
//!                     +--> Settled(Stored|Uncacheable|Failed)   +--> Settled(Failed)
//! ```
//!
//! The first request to miss a key *leads*: it asks the origin. The other requests *read*: they
//! sleep until the head is known, then stream at their own pace while the body arrives. The
//! leader's client is a reader like any other, so a slow first client holds up no other client.
//!
//! While the body stays in memory, the flight keeps all pieces of it. Afterwards it keeps a
//! *window*: the newest pieces, up to a number of bytes. There are two cases:
//!
//! - The disk takes the body. A piece leaves the window only after a chunk on the disk has it. A
//!   reader may join at any time, and reads pieces that have left the window from the disk. The
//!   fetch waits for no reader, and continues without readers.
//! - Nothing takes the body. A reader may join until the first piece has left the window. The fetch
//!   waits for room in the window, which the readers make. If a reader waits for more and the
//!   window is full because of slow readers, the slow readers *starve* it. The fetch may then leave
//!   the slow readers behind, and they must get the remainder elsewhere. The fetch ends with its
//!   last reader.
//!
//! Each piece counts the readers that take it next, and the readers behind the window are counted
//! together. So a piece, and a reader that takes one, cost the same with any number of readers; and
//! only readers that wait are woken.
//!
//! What never happens: a reader gets bytes twice, or not in their order; a reader sleeps forever
//! (dropping a [`Lead`] or [`Fill`] that has not settled the flight fails the flight).

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use runtime::sync::{Guard, Lock, LockKind};
use slab::Slab;
use store::disk::Chunks;
use store::{Generation, Key};

use crate::partial::Partial;
use crate::stored::{Head, Piece, Stored};
use crate::watch::Watch;
use outcome::Fault;

/// A power of two. The shards reduce lock contention between cores.
const SHARDS: usize = 16;

/// How a flight ended.
#[derive(Clone, Debug)]
pub enum Settled {
    /// The response is in the store.
    Stored(Arc<Stored>),
    /// A part of the response is in the store.
    Part(Arc<Partial>),
    /// The response may serve only the request that fetched it.
    Uncacheable,
    /// The origin answered with an error, which serves no other request.
    Declined(u16),
    /// There is no response, or its body broke off.
    Failed(Fault),
}

/// What a reader finds when the head is known.
#[derive(Clone, Debug)]
pub enum Found {
    /// The body is arriving.
    Stream(Arc<Head>),
    /// The flight has ended.
    Settled(Settled),
}

#[derive(Debug)]
enum Phase {
    Asking,
    Streaming(Arc<Head>),
    Settled(Settled),
}

/// The next bytes for a reader.
#[derive(Debug)]
pub enum Next {
    /// The bytes of this piece after this offset.
    Piece(Piece, usize),
    /// The next bytes have left the window. They are in these chunks, if the disk has them: see
    /// [`Reader::passed`].
    Behind(Option<Chunks>),
    /// The body has ended.
    End,
}

/// Whether another piece may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Another piece may come.
    Free,
    /// No reader is left that could use it.
    Unread,
}

/// Which pieces a flight keeps.
#[derive(Debug)]
enum Keeps {
    All,
    /// A window of this many bytes.
    Window {
        bytes_max: usize,
        /// The body, or its beginning, on the disk.
        chunks: Option<Chunks>,
        /// Whether the disk takes the remainder, too.
        is_stored: bool,
    },
}

/// A piece in memory.
#[derive(Debug)]
struct Held {
    piece: Piece,
    /// Where the piece begins in the body.
    offset: u64,
    /// Readers that take this piece next.
    readers: usize,
}

impl Held {
    fn end(&self) -> u64 {
        self.offset + self.piece.len() as u64
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    keeps: Keeps,
    pieces: VecDeque<Held>,
    /// Number of `pieces[0]`; `first + pieces.len()` is the number of the next piece to arrive.
    first: u64,
    /// Bytes of the body so far.
    end: u64,
    /// Bytes in `pieces`.
    held_bytes: usize,
    /// All readers: the readers of each piece, and `behind`, and `at_end`.
    readers: usize,
    /// Readers whose next bytes have left the window.
    behind: usize,
    /// Readers that have all bytes so far.
    at_end: usize,
    /// The wakers of the readers that sleep.
    wakers: Slab<Waker>,
    /// The number of the current sleep: how often `wakers` was emptied.
    woken: u64,
    filler: Option<Waker>,
}

impl State {
    /// Where the window begins in the body.
    fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |held| held.offset)
    }

    /// Whether a reader of the whole body can join.
    fn is_open(&self) -> bool {
        match &self.keeps {
            Keeps::All => true,
            Keeps::Window { is_stored, .. } => *is_stored || self.start() == 0,
        }
    }

    /// Adds a reader that takes the piece of this number next.
    fn enter(&mut self, number: u64) {
        match self.count(number) {
            Some(count) => *count += 1,
            None => self.behind += 1,
        }
    }

    /// Removes a reader.
    fn leave(&mut self, number: u64) {
        let count = self.count(number);
        let count = count.expect("who leaves is within the window, or is counted as behind it");
        *count = count.checked_sub(1).expect("each reader is counted once");
    }

    /// The count of the readers of this piece; `None` if the piece has left the window.
    fn count(&mut self, number: u64) -> Option<&mut usize> {
        let at = usize::try_from(number.checked_sub(self.first)?).expect("pieces fit in memory");
        assert!(at <= self.pieces.len(), "no reader is ahead of the body");
        Some(self.pieces.get_mut(at).map_or(&mut self.at_end, |held| &mut held.readers))
    }

    /// Drops the oldest piece. Its readers are behind the window from now on.
    fn drop_oldest(&mut self) {
        let held = self.pieces.pop_front().expect("a window that is too long has a piece");
        self.held_bytes -= held.piece.len();
        self.first += 1;
        self.behind += held.readers;
    }

    /// Whether a reader is within the window.
    fn is_taken(&self) -> bool {
        self.readers > self.behind
    }

    /// Whether the oldest piece may leave the window: no reader can still need it from memory.
    fn is_oldest_spare(&self) -> bool {
        let Some(oldest) = self.pieces.front() else { return false };
        let Keeps::Window { chunks, is_stored, .. } = &self.keeps else { return false };
        let on_disk = chunks.as_ref().map_or(0, Chunks::bytes);
        if oldest.end() <= on_disk {
            return *is_stored || oldest.readers == 0;
        }
        // Readers behind a window that the disk does not reach can never get into the window again.
        // If no reader is within the window, its pieces stay for the readers that can.
        let is_awaited = self.behind > 0 && self.is_reached_from_behind();
        !*is_stored && oldest.readers == 0 && self.is_taken() && !is_awaited
    }

    /// Drops the oldest pieces while the window is longer than it may be.
    fn shorten(&mut self) {
        let Keeps::Window { bytes_max, .. } = self.keeps else { return };
        while self.held_bytes > bytes_max && self.is_oldest_spare() {
            self.drop_oldest();
        }
    }

    /// Whether the readers behind the window may get into the window again: the chunks on the disk
    /// reach up to it.
    fn is_reached_from_behind(&self) -> bool {
        match &self.keeps {
            Keeps::Window { chunks: Some(chunks), .. } => chunks.bytes() >= self.start(),
            Keeps::Window { chunks: None, .. } | Keeps::All => false,
        }
    }

    fn wake_filler(&mut self) {
        if let Some(filler) = self.filler.take() {
            filler.wake();
        }
    }

    fn check(&self) {
        debug_assert_eq!(self.end - self.start(), self.held_bytes as u64, "no gaps");
        debug_assert!(self.behind + self.at_end <= self.readers);
    }
}

/// A fetch in flight.
#[derive(Debug)]
pub struct Flight {
    key: Key,
    /// The key of the response, if requests can join the fetch under this key, too: see
    /// [`Lead::open`].
    variant: OnceLock<Key>,
    /// The purge generation at which it began.
    began: Generation,
    /// Watches its URI for changes.
    watch: Watch,
    state: Lock<State>,
}

impl Flight {
    fn new(key: Key, began: Generation, watch: Watch) -> Arc<Flight> {
        let state = State {
            phase: Phase::Asking,
            keeps: Keeps::All,
            pieces: VecDeque::new(),
            first: 0,
            end: 0,
            held_bytes: 0,
            readers: 0,
            behind: 0,
            at_end: 0,
            wakers: Slab::new(),
            woken: 0,
            filler: None,
        };
        let (variant, state) = (OnceLock::new(), Lock::new(&FLIGHT, state));
        Arc::new(Flight { key, variant, began, watch, state })
    }

    /// Whether its URI has changed since it began.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether any reader waits for it.
    pub fn has_readers(&self) -> bool {
        lock(&self.state).readers > 0
    }

    /// The head of its response, while the body arrives.
    fn head(&self) -> Option<Arc<Head>> {
        match &lock(&self.state).phase {
            Phase::Streaming(head) => Some(Arc::clone(head)),
            Phase::Asking | Phase::Settled(_) => None,
        }
    }

    /// Becomes ready when no reader is left. For the task that fetches.
    fn poll_unread(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.readers == 0 {
            return Poll::Ready(());
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The lock of a fetch, shared by its readers and its filler.
static FLIGHT: LockKind = LockKind::new("fetch");
/// The lock of a shard of the table of fetches.
static TABLE: LockKind = LockKind::new("fetches: shard");

/// All fetches in flight.
#[derive(Debug)]
pub struct Flights {
    shards: [Lock<HashMap<u128, Arc<Flight>>>; SHARDS],
}

/// The role of a miss in a flight.
pub enum Joined {
    /// No fetch is in flight: the caller must fetch.
    Lead(Lead),
    /// A fetch is in flight.
    Follow(Reader),
}

impl Flights {
    /// An empty table.
    pub fn new() -> Arc<Flights> {
        Arc::new(Flights { shards: std::array::from_fn(|_| Lock::new(&TABLE, HashMap::new())) })
    }

    /// Joins the fetch in flight for a key, or leads a fetch. `overtaken` returns whether the URL
    /// was purged since a generation. A request does not join a fetch that began before a purge, a
    /// fetch that a change of the URI has overtaken, or a fetch after whose start a response was
    /// stored under the key. `watch` starts to watch the URI.
    pub fn join(
        self: &Arc<Flights>,
        key: Key,
        now: Generation,
        watch: impl FnOnce() -> Watch,
        overtaken: impl FnOnce(Generation) -> bool,
    ) -> Joined {
        let mut shard = self.shard(&key);
        if let Some(flight) = shard.get(&key.to_u128())
            && (flight.began == now || !overtaken(flight.began))
            && !flight.watch.is_overtaken()
            && !flight.watch.is_outrun(&key, || flight.head())
            && let Some(reader) = Reader::join(flight)
        {
            return Joined::Follow(reader);
        }
        let flight = Flight::new(key, now, watch());
        shard.insert(key.to_u128(), Arc::clone(&flight));
        Joined::Lead(Lead { flight: Some(flight), flights: Arc::clone(self), is_shared: true })
    }

    /// A flight that no other request can join: at first its response is for one request only.
    pub fn alone(self: &Arc<Flights>, key: Key, now: Generation, watch: Watch) -> Lead {
        let flight = Some(Flight::new(key, now, watch));
        Lead { flight, flights: Arc::clone(self), is_shared: false }
    }

    /// Whether a fetch of this key is in flight.
    pub fn has(&self, key: Key) -> bool {
        self.shard(&key).contains_key(&key.to_u128())
    }

    /// Number of fetches in flight.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, key: &Key) -> Guard<'_, HashMap<u128, Arc<Flight>>> {
        lock(&self.shards[key.to_u128() as usize % SHARDS])
    }

    /// Keeps new readers from joining this fetch.
    pub fn retire(&self, reader: &Reader) {
        self.remove(&reader.flight);
    }

    fn remove(&self, flight: &Arc<Flight>) {
        for key in [Some(&flight.key), flight.variant.get()].into_iter().flatten() {
            let mut shard = self.shard(key);
            if shard.get(&key.to_u128()).is_some_and(|there| Arc::ptr_eq(there, flight)) {
                shard.remove(&key.to_u128());
            }
        }
    }

    fn settle(&self, flight: &Arc<Flight>, settled: Settled) {
        self.remove(flight);
        let mut state = lock(&flight.state);
        state.phase = Phase::Settled(settled);
        wake_readers(state);
    }
}

/// A panic while a lock is held leaves consistent data: no code in this file panics half-way.
fn lock<T>(mutex: &Lock<T>) -> Guard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the readers that sleep, without the lock.
fn wake_readers(mut state: Guard<'_, State>) {
    if state.wakers.is_empty() {
        return;
    }
    state.woken += 1;
    // Mostly there is one, and its place is used again.
    let mut rest = Slab::new();
    let first = match state.wakers.len() {
        1 => state.wakers.drain().next(),
        _ => {
            std::mem::swap(&mut rest, &mut state.wakers);
            None
        }
    };
    drop(state);
    first.into_iter().chain(rest.drain()).for_each(Waker::wake);
}

/// The duty to ask the origin and to settle the flight.
#[derive(Debug)]
pub struct Lead {
    flight: Option<Arc<Flight>>,
    flights: Arc<Flights>,
    /// Whether other requests may join the fetch.
    is_shared: bool,
}

impl Lead {
    /// The purge generation at which it began.
    pub fn began(&self) -> Generation {
        self.flight.as_ref().expect("a lead settles once, by value").began
    }

    /// The watch of the fetch's URI, which shows whether the response may still be stored.
    pub fn watch(&self) -> &Watch {
        &self.flight.as_ref().expect("a lead settles once, by value").watch
    }

    /// From now on other requests may join: the response may be stored.
    #[must_use]
    pub fn shared(mut self) -> Lead {
        self.is_shared = true;
        self
    }

    /// The head is known, and with it the key of the response. If other requests may join, they
    /// find the fetch under this key, too, unless another fetch of the key is in flight. Call this
    /// at most once, before [`Lead::stream`]. Returns whether other requests may join.
    pub fn open(&self, key: Key) -> bool {
        let flight = self.flight.as_ref().expect("a lead settles once, by value");
        if self.is_shared {
            let mut shard = self.flights.shard(&key);
            let there = shard.entry(key.to_u128());
            if let Entry::Vacant(there) = there {
                flight.variant.set(key).expect("a fetch is opened once");
                there.insert(Arc::clone(flight));
            }
        }
        self.is_shared
    }

    /// Waits until no reader waits for the fetch.
    pub async fn unread(&self) {
        let flight = self.flight.as_ref().expect("a lead settles once, by value");
        std::future::poll_fn(|cx| flight.poll_unread(cx)).await;
    }

    /// Ends the fetch; all readers see the result.
    pub fn settle(mut self, settled: Settled) {
        let flight = self.flight.take().expect("a lead settles once");
        self.flights.settle(&flight, settled);
    }

    /// The head is known and may be stored; the body follows through [`Fill`]. The reader is for
    /// the leader's own client.
    pub fn stream(mut self, head: Arc<Head>) -> (Fill, Reader) {
        let flight = self.flight.take().expect("a lead settles once");
        let reader = Reader::join(&flight).expect("no piece has come, so none has gone");
        let mut state = lock(&flight.state);
        state.phase = Phase::Streaming(head);
        wake_readers(state);
        (Fill { flight: Some(flight), flights: Arc::clone(&self.flights) }, reader)
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.flights.settle(&flight, Settled::Failed(Fault::Abandoned));
        }
    }
}

/// The duty to deliver the body.
#[derive(Debug)]
pub struct Fill {
    flight: Option<Arc<Flight>>,
    flights: Arc<Flights>,
}

impl Fill {
    /// Adds a piece of the body. The bytes that the disk takes of the piece must have been written
    /// before.
    pub fn push(&self, piece: Piece) {
        if piece.is_empty() {
            return;
        }
        let mut state = lock(&self.flight().state);
        let (offset, bytes) = (state.end, piece.len());
        let readers = std::mem::take(&mut state.at_end);
        state.end += bytes as u64;
        state.held_bytes += bytes;
        state.pieces.push_back(Held { piece, offset, readers });
        let was_open = state.is_open();
        state.shorten();
        let closes = was_open && !state.is_open();
        state.check();
        wake_readers(state);
        if closes {
            self.flights.remove(self.flight());
        }
    }

    /// From now on the whole body goes to the disk, and a window of it stays in memory.
    pub fn store(&self, chunks: Chunks, window_bytes: usize) {
        let mut state = lock(&self.flight().state);
        // A piece leaves with the chunk that it ends in.
        let bytes_max = window_bytes.max(chunks.chunk_bytes() as usize);
        state.keeps = Keeps::Window { bytes_max, chunks: Some(chunks), is_stored: true };
        state.shorten();
    }

    /// From now on the body is not stored, and a window of it stays in memory.
    pub fn bound(&self, window_bytes: usize) {
        let mut state = lock(&self.flight().state);
        let chunks = match std::mem::replace(&mut state.keeps, Keeps::All) {
            Keeps::Window { chunks, .. } => chunks,
            Keeps::All => None,
        };
        state.keeps = Keeps::Window { bytes_max: window_bytes, chunks, is_stored: false };
        state.shorten();
        let closes = !state.is_open();
        drop(state);
        if closes {
            self.flights.remove(self.flight());
        }
    }

    /// Waits until another piece may come. Only a body that is not stored waits.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Room> {
        let mut state = lock(&self.flight().state);
        let Keeps::Window { bytes_max, is_stored: false, .. } = state.keeps else {
            return Poll::Ready(Room::Free);
        };
        let is_taken = state.is_taken();
        if state.readers == 0 || (!is_taken && !state.is_reached_from_behind()) {
            return Poll::Ready(Room::Unread);
        }
        // `push` drops what makes the window too long.
        if state.held_bytes < bytes_max || state.is_oldest_spare() {
            return Poll::Ready(Room::Free);
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until no reader is left.
    pub fn poll_unread(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flight().poll_unread(cx)
    }

    /// Waits until no reader is behind the window.
    pub fn poll_caught_up(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.flight().state);
        if state.behind == 0 {
            return Poll::Ready(());
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until a reader has all bytes so far and wants more. Call it together with
    /// [`Fill::poll_room`].
    pub fn poll_starving(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.flight().state);
        if !state.wakers.is_empty() {
            return Poll::Ready(());
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Where the window begins in the body.
    pub fn window_start(&self) -> u64 {
        lock(&self.flight().state).start()
    }

    /// Leaves the slowest readers behind, if the window is full because of them and other readers
    /// wait for more. Returns the number of readers left behind.
    pub fn leave_behind(&self) -> usize {
        let mut state = lock(&self.flight().state);
        let Keeps::Window { bytes_max, is_stored: false, .. } = state.keeps else { return 0 };
        if state.wakers.is_empty() || state.held_bytes < bytes_max {
            return 0;
        }
        // Half a window at least, so that many slow readers are not left one by one.
        let most = (bytes_max / 2).max(state.held_bytes.saturating_sub(bytes_max));
        let (before, was_open) = (state.behind, state.is_open());
        while state.held_bytes > most {
            state.drop_oldest();
        }
        let (left, closes) = (state.behind - before, was_open && !state.is_open());
        state.check();
        drop(state);
        if closes {
            self.flights.remove(self.flight());
        }
        left
    }

    /// Ends the fetch; all readers see the result.
    pub fn settle(mut self, settled: Settled) {
        let flight = self.flight.take().expect("a fill settles once");
        self.flights.settle(&flight, settled);
    }

    /// The fetch whose body this delivers.
    pub fn flight(&self) -> &Arc<Flight> {
        self.flight.as_ref().expect("a fill settles once, by value")
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.flights.settle(&flight, Settled::Failed(Fault::Abandoned));
        }
    }
}

/// A request that waits for a flight.
#[derive(Debug)]
pub struct Reader {
    flight: Arc<Flight>,
    /// Number of the piece that the reader takes next.
    next: Cell<u64>,
    /// Bytes of the body that it has.
    at: Cell<u64>,
    /// The place of the reader's waker, and the number of the sleep.
    sleeps: Cell<Option<(u64, usize)>>,
}

impl Reader {
    /// `None`: the beginning of the body is gone.
    fn join(flight: &Arc<Flight>) -> Option<Reader> {
        let mut state = lock(&flight.state);
        if !state.is_open() {
            return None;
        }
        state.readers += 1;
        state.enter(0);
        drop(state);
        let (next, at, sleeps) = (Cell::new(0), Cell::new(0), Cell::new(None));
        Some(Reader { flight: Arc::clone(flight), next, at, sleeps })
    }

    /// Whether the body does not stay in memory.
    pub fn is_bounded(&self) -> bool {
        matches!(lock(&self.flight.state).keeps, Keeps::Window { .. })
    }

    /// Waits until the head is known.
    pub async fn found(&self) -> Found {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.flight.state);
            match &state.phase {
                Phase::Streaming(head) => Poll::Ready(Found::Stream(Arc::clone(head))),
                Phase::Settled(settled) => Poll::Ready(Found::Settled(settled.clone())),
                Phase::Asking => {
                    self.sleep(&mut state, cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until the fetch has ended. `None`: this many bytes of the body have arrived first.
    pub async fn ended(&self, bytes_max: usize) -> Option<Settled> {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.flight.state);
            match &state.phase {
                Phase::Settled(settled) => Poll::Ready(Some(settled.clone())),
                // A window that this reader keeps full would never get another piece.
                _ if state.end >= bytes_max as u64 => Poll::Ready(None),
                Phase::Asking | Phase::Streaming(_) => {
                    self.sleep(&mut state, cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether [`Reader::next`] would return at once.
    pub fn is_ready(&self) -> bool {
        let state = lock(&self.flight.state);
        self.at.get() < state.end || matches!(state.phase, Phase::Settled(_))
    }

    /// Bytes of the body that it has.
    pub fn at(&self) -> u64 {
        self.at.get()
    }

    /// Waits for the next bytes.
    ///
    /// # Errors
    /// The body broke off.
    pub async fn next(&self) -> Result<Next, Fault> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Next, Fault>> {
        let mut state = lock(&self.flight.state);
        let number = self.next.get();
        if number < state.first {
            return Poll::Ready(Ok(Next::Behind(match &state.keeps {
                Keeps::Window { chunks, .. } => chunks.clone(),
                Keeps::All => None,
            })));
        }
        let index = usize::try_from(number - state.first).expect("pieces fit in memory");
        if let Some(held) = state.pieces.get(index) {
            let passed = self.at.get().checked_sub(held.offset);
            let passed = usize::try_from(passed.expect("no byte is left out")).expect("of a piece");
            let piece = Piece::clone(&held.piece);
            assert!(passed < piece.len(), "no byte comes twice");
            self.at.set(held.end());
            self.next.set(number + 1);
            state.leave(number);
            state.enter(number + 1);
            if index == 0 && state.pieces[0].readers == 0 {
                // There may be room now.
                state.wake_filler();
            }
            return Poll::Ready(Ok(Next::Piece(piece, passed)));
        }
        match &state.phase {
            Phase::Settled(Settled::Failed(fault)) => Poll::Ready(Err(*fault)),
            Phase::Settled(_) => Poll::Ready(Ok(Next::End)),
            Phase::Asking | Phase::Streaming(_) => {
                self.sleep(&mut state, cx);
                // It may be that it waits for a slow reader.
                state.wake_filler();
                Poll::Pending
            }
        }
    }

    /// Notes that a reader behind the window has got the next `bytes` of the body elsewhere, or
    /// needs none of them.
    ///
    /// # Panics
    /// If the reader is not behind the window, or has more bytes than have arrived.
    pub fn passed(&self, bytes: u64) {
        let mut state = lock(&self.flight.state);
        assert!(self.next.get() < state.first, "who is within the window takes pieces");
        self.at.set(self.at.get() + bytes);
        let at = self.at.get();
        assert!(at <= state.end, "no reader is ahead of the body");
        if at >= state.start() {
            let index = state.pieces.partition_point(|held| held.end() <= at);
            self.next.set(state.first + index as u64);
            state.behind -= 1;
            state.enter(self.next.get());
            state.wake_filler();
        }
    }

    /// Leaves the waker of its task to be woken.
    fn sleep(&self, state: &mut State, cx: &mut Context<'_>) {
        match self.sleeps.get() {
            Some((woken, slot)) if woken == state.woken => {
                state.wakers[slot].clone_from(cx.waker());
            }
            _ => {
                let slot = state.wakers.insert(cx.waker().clone());
                self.sleeps.set(Some((state.woken, slot)));
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = lock(&self.flight.state);
        if let Some((woken, slot)) = self.sleeps.get()
            && woken == state.woken
        {
            state.wakers.remove(slot);
        }
        state.readers -= 1;
        match self.next.get() < state.first {
            true => state.behind -= 1,
            false => state.leave(self.next.get()),
        }
        state.check();
        state.wake_filler();
    }
}

#[cfg(test)]
mod tests;

//! Collapsed forwarding: one fetch for all requests that miss the same key at the same time.
//!
//! ```text
//!            lead                     stream                    complete
//!  (absent) ------> Asking -----------------------> Streaming ----------> Settled(Stored)
//!                     |                                  |
//!                     +--> Settled(Stored|Uncacheable|Failed)   +--> Settled(Failed)
//! ```
//!
//! The first request to miss a key *leads*: it asks the origin. The others *read*: they sleep until
//! the head is known, then stream at their own pace while the body arrives. The leader's client is
//! a reader like any other, so a slow first client holds up no one.
//!
//! A body that is to be stored is bounded by the largest object that the store takes; its readers
//! never hold up the fetch. A body that turns out too large to store becomes *bounded*: no new
//! reader can join, pieces are dropped when the slowest reader has passed them, and the fetch waits
//! when it is a window ahead of that reader. Dropping a [`Lead`] or [`Fill`] that has not settled
//! the flight fails it, so no reader sleeps forever.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use runtime::sync::{Guard, Lock, LockKind};
use slab::Slab;
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
    /// A part of it is in the store.
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

#[derive(Debug, Default)]
struct ReaderSlot {
    /// Number of the next piece for this reader.
    next: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    pieces: VecDeque<Piece>,
    /// Number of `pieces[0]`; `first + pieces.len()` is the number of the next piece to arrive.
    first: u64,
    /// Bytes in `pieces`.
    held_bytes: usize,
    bounded: bool,
    readers: Slab<ReaderSlot>,
    filler: Option<Waker>,
}

/// A fetch in flight.
#[derive(Debug)]
pub struct Flight {
    key: Key,
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
            pieces: VecDeque::new(),
            first: 0,
            held_bytes: 0,
            bounded: false,
            readers: Slab::new(),
            filler: None,
        };
        Arc::new(Flight { key, began, watch, state: Lock::new(&FLIGHT, state) })
    }

    /// Whether its URI has changed since it began.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether any reader waits for it.
    pub fn has_readers(&self) -> bool {
        !lock(&self.state).readers.is_empty()
    }
}

/// Of one fetch: its readers and its filler.
static FLIGHT: LockKind = LockKind::new("fetch");
/// Of the table of fetches.
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

    /// Joins the fetch in flight for a key, or leads one. `overtaken` returns whether the URL was
    /// purged since a generation. A request after a purge does not join a fetch from before it, nor
    /// a fetch that a change of the URI has overtaken, nor a fetch after whose start a response was
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
            && !flight.watch.is_outrun(&key)
        {
            return Joined::Follow(Reader::new(Arc::clone(flight)));
        }
        let flight = Flight::new(key, now, watch());
        shard.insert(key.to_u128(), Arc::clone(&flight));
        Joined::Lead(Lead { flight: Some(flight), flights: Arc::clone(self) })
    }

    /// A flight that no other request can join: its response is for one request first.
    pub fn alone(self: &Arc<Flights>, key: Key, now: Generation, watch: Watch) -> Lead {
        Lead { flight: Some(Flight::new(key, now, watch)), flights: Arc::clone(self) }
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
        let mut shard = self.shard(&flight.key);
        if shard.get(&flight.key.to_u128()).is_some_and(|there| Arc::ptr_eq(there, flight)) {
            shard.remove(&flight.key.to_u128());
        }
    }

    fn settle(&self, flight: &Arc<Flight>, settled: Settled) {
        self.remove(flight);
        let mut state = lock(&flight.state);
        state.phase = Phase::Settled(settled);
        wake_readers(&mut state);
    }
}

/// A panic while a lock is held leaves consistent data: no code in this file panics half-way.
fn lock<T>(mutex: &Lock<T>) -> Guard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake_readers(state: &mut State) {
    for (_, reader) in &mut state.readers {
        if let Some(waker) = reader.waker.take() {
            waker.wake();
        }
    }
}

/// The duty to ask the origin and to settle the flight.
#[derive(Debug)]
pub struct Lead {
    flight: Option<Arc<Flight>>,
    flights: Arc<Flights>,
}

impl Lead {
    /// The purge generation at which it began.
    pub fn began(&self) -> Generation {
        self.flight.as_ref().expect("a lead settles once, by value").began
    }

    /// Whether the response may still be stored.
    pub fn watch(&self) -> &Watch {
        &self.flight.as_ref().expect("a lead settles once, by value").watch
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
        let reader = Reader::new(Arc::clone(&flight));
        {
            let mut state = lock(&flight.state);
            state.phase = Phase::Streaming(head);
            wake_readers(&mut state);
        }
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
    /// Adds a piece of the body.
    pub fn push(&self, piece: Piece) {
        let mut state = lock(&self.flight().state);
        state.held_bytes += piece.len();
        state.pieces.push_back(piece);
        drop_passed(&mut state);
        wake_readers(&mut state);
    }

    /// From now on the body will not be stored: see the module documentation.
    pub fn bound(&self) {
        self.flights.remove(self.flight());
        let mut state = lock(&self.flight().state);
        state.bounded = true;
        drop_passed(&mut state);
    }

    /// Ready(true) when another piece may come; Ready(false) when a bounded body has no readers
    /// left.
    pub fn poll_room(&self, cx: &mut Context<'_>, window_bytes: usize) -> Poll<bool> {
        let mut state = lock(&self.flight().state);
        if !state.bounded {
            return Poll::Ready(true);
        }
        if state.readers.is_empty() {
            return Poll::Ready(false);
        }
        if state.held_bytes < window_bytes {
            return Poll::Ready(true);
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
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

/// In a bounded flight, drops the pieces that every reader has passed and wakes the filler.
fn drop_passed(state: &mut State) {
    if !state.bounded {
        return;
    }
    let end = state.first + state.pieces.len() as u64;
    let slowest = state.readers.iter().map(|(_, reader)| reader.next).min().unwrap_or(end);
    while state.first < slowest {
        let Some(piece) = state.pieces.pop_front() else { break };
        state.held_bytes -= piece.len();
        state.first += 1;
    }
    if let Some(filler) = state.filler.take() {
        filler.wake();
    }
}

/// A request that waits for a flight.
#[derive(Debug)]
pub struct Reader {
    flight: Arc<Flight>,
    slot: usize,
}

impl Reader {
    fn new(flight: Arc<Flight>) -> Reader {
        let slot = {
            let mut state = lock(&flight.state);
            // A bounded flight cannot be found, so a reader joins before the first piece is
            // dropped.
            let next = state.first;
            state.readers.insert(ReaderSlot { next, waker: None })
        };
        Reader { flight, slot }
    }

    /// Whether the body does not stay in memory.
    pub fn is_bounded(&self) -> bool {
        lock(&self.flight.state).bounded
    }

    /// Waits until the head is known.
    pub async fn found(&self) -> Found {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.flight.state);
            match &state.phase {
                Phase::Streaming(head) => Poll::Ready(Found::Stream(Arc::clone(head))),
                Phase::Settled(settled) => Poll::Ready(Found::Settled(settled.clone())),
                Phase::Asking => {
                    state.readers[self.slot].waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until the fetch has ended. `None`: more bytes of its body have arrived than these.
    pub async fn ended(&self, bytes_max: usize) -> Option<Settled> {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.flight.state);
            match &state.phase {
                Phase::Settled(settled) => Poll::Ready(Some(settled.clone())),
                _ if state.bounded || state.held_bytes > bytes_max => Poll::Ready(None),
                Phase::Asking | Phase::Streaming(_) => {
                    state.readers[self.slot].waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether [`Reader::next`] would return at once.
    pub fn is_ready(&self) -> bool {
        let state = lock(&self.flight.state);
        let arrived = state.first + state.pieces.len() as u64;
        state.readers[self.slot].next < arrived || matches!(state.phase, Phase::Settled(_))
    }

    /// Waits for the next piece; `None` at the end of the body.
    ///
    /// # Errors
    /// The body broke off.
    pub async fn next(&self) -> Result<Option<Piece>, Fault> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        let mut state = lock(&self.flight.state);
        let next = state.readers[self.slot].next;
        let at = usize::try_from(next - state.first).expect("pieces fit in memory");
        if let Some(piece) = state.pieces.get(at) {
            let piece = Piece::clone(piece);
            state.readers[self.slot].next += 1;
            drop_passed(&mut state);
            return Poll::Ready(Ok(Some(piece)));
        }
        match &state.phase {
            Phase::Settled(Settled::Failed(fault)) => Poll::Ready(Err(*fault)),
            Phase::Settled(_) => Poll::Ready(Ok(None)),
            Phase::Asking | Phase::Streaming(_) => {
                state.readers[self.slot].waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = lock(&self.flight.state);
        state.readers.remove(self.slot);
        drop_passed(&mut state);
    }
}

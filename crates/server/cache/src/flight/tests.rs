//! Flights of every kind: who is woken, who may join, what is kept, and that each reader gets the
//! bytes of the body in their order.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

use caching::{Exchange, Policy, Response, StoredMeta};
use proptest::prelude::*;
use runtime::sim;
use store::disk::{About, DiskStore, Geometry, Options, Writer};

use super::*;
use crate::key::StoredUri;
use crate::realm::Realm;
use crate::stored::Resource;
use crate::watch::Watches;

const KEY: Key = Key::from_u128(7);
const WINDOW_BYTES: usize = 1000;

fn head() -> Arc<Head> {
    let fields: &[(&[u8], &[u8])] = &[];
    let instants = Exchange { request_ms: 1, response_ms: 2 };
    let meta = StoredMeta::of(&Response { status: 200, fields }, instants, &Policy::SHARED);
    let realm = Realm { role: config::Role::Reverse, scheme: http1::Scheme::Http };
    let resource = Resource::new(StoredUri::new(realm, b"h", b"/"), fields.iter().copied(), 0);
    Arc::new(Head::new(200, b"", fields.iter().copied(), meta, resource))
}

fn join(flights: &Arc<Flights>) -> Joined {
    flights.join(KEY, 0, || Arc::<Watches>::default().watch(KEY), |_| false)
}

/// A flight whose body is about to come, and the reader of the request that leads.
fn streaming(flights: &Arc<Flights>) -> (Fill, Reader) {
    let Joined::Lead(lead) = join(flights) else { panic!("another fetch is in flight") };
    lead.stream(head())
}

fn follow(flights: &Arc<Flights>) -> Option<Reader> {
    match join(flights) {
        Joined::Follow(reader) => Some(reader),
        Joined::Lead(_) => None,
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Count>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn poll(reader: &Reader, count: &Arc<Count>) -> Poll<Result<Next, Fault>> {
    reader.poll_next(&mut Context::from_waker(&Arc::clone(count).into()))
}

/// The next bytes of a reader that has some.
fn take(reader: &Reader) -> Option<Vec<u8>> {
    match poll(reader, &Arc::default()) {
        Poll::Ready(Ok(Next::Piece(piece, passed))) => Some(piece[passed..].to_vec()),
        _ => None,
    }
}

fn is_behind(reader: &Reader) -> bool {
    matches!(poll(reader, &Arc::default()), Poll::Ready(Ok(Next::Behind(_))))
}

fn room(fill: &Fill) -> Poll<Room> {
    fill.poll_room(&mut Context::from_waker(Waker::noop()))
}

fn is_starving(fill: &Fill) -> bool {
    fill.poll_starving(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn piece(len: usize) -> Piece {
    Piece::from(vec![b'x'; len])
}

/// Fault 7: each piece and each reader looked at all readers.
#[test]
fn a_piece_wakes_the_readers_that_wait_and_no_other() {
    let flights = Flights::new();
    let (fill, first) = streaming(&flights);
    let readers: Vec<Reader> = (0..5000).map(|_| follow(&flights).unwrap()).collect();
    let (waiting, idle) = readers.split_at(100);
    let count = Arc::new(Count::default());
    for _ in 0..3 {
        // Who polls twice is woken once.
        assert!(waiting.iter().chain(waiting).all(|reader| poll(reader, &count).is_pending()));
    }
    fill.push(piece(10));
    assert_eq!(count.0.swap(0, Relaxed), waiting.len());
    fill.push(piece(10));
    assert_eq!(count.0.swap(0, Relaxed), 0);
    for reader in waiting.iter().chain(idle) {
        assert_eq!((take(reader).map(|got| got.len()), reader.at()), (Some(10), 10));
    }
    // A reader that has left is not woken.
    assert!(
        waiting.iter().all(|reader| take(reader).is_some() && poll(reader, &count).is_pending())
    );
    let state = || lock(&first.flight.state).wakers.len();
    assert_eq!(state(), waiting.len());
    drop(readers);
    assert_eq!(state(), 0);
    fill.settle(Settled::Uncacheable);
    assert_eq!((count.0.load(Relaxed), flights.count()), (0, 0));
}

#[test]
fn a_body_that_goes_nowhere_waits_for_its_fastest_reader_and_leaves_slow_ones_behind() {
    let flights = Flights::new();
    let (fill, fast) = streaming(&flights);
    let slow = follow(&flights).unwrap();
    fill.push(piece(400));
    fill.bound(WINDOW_BYTES);
    let late = follow(&flights).expect("nothing is gone yet");
    for _ in 0..2 {
        assert_eq!(room(&fill), Poll::Ready(Room::Free));
        fill.push(piece(400));
    }
    assert!(room(&fill).is_pending() && !is_starving(&fill), "none of them wants more");
    assert_eq!(fill.leave_behind(), 0);
    while take(&fast).is_some() {}
    assert!(room(&fill).is_pending() && is_starving(&fill));
    assert_eq!(fill.leave_behind(), 2);
    assert!(is_behind(&slow) && is_behind(&late) && !is_behind(&fast));
    assert!(follow(&flights).is_none(), "the beginning is gone");
    assert_eq!(room(&fill), Poll::Ready(Room::Free));
    fill.push(piece(400));
    assert!(take(&fast).is_some());
    drop(fast);
    assert_eq!(room(&fill), Poll::Ready(Room::Unread), "no reader can use more");
    drop((slow, late));
}

/// What every reader takes goes only when its place is needed, so that others can join.
#[test]
fn a_body_that_goes_nowhere_is_joined_while_its_beginning_is_there() {
    let flights = Flights::new();
    let (fill, first) = streaming(&flights);
    fill.bound(WINDOW_BYTES);
    for _ in 0..2 {
        fill.push(piece(500));
        assert!(take(&first).is_some());
    }
    let second = follow(&flights).expect("all of it is there");
    assert_eq!((take(&second).unwrap().len(), take(&second).unwrap().len()), (500, 500));
    assert_eq!(room(&fill), Poll::Ready(Room::Free));
    fill.push(piece(500));
    assert!(follow(&flights).is_none());
    assert_eq!(fill.window_start(), 500);
}

/// It was left behind at once: a client that read from the disk when the disk took no more was cut
/// off.
#[test]
fn who_reads_from_the_disk_is_waited_for_when_the_disk_takes_no_more() {
    let options = sim::Options::new(3)
        .with_disk(sim::Disk::new(3), std::time::Duration::ZERO..std::time::Duration::ZERO);
    runtime::Runtime::simulated(options).block_on(async {
        let (disk, _) = DiskStore::open(Options::new("/d", Geometry::tiny(48))).await.unwrap();
        let flights = Flights::new();
        let (fill, slow) = streaming(&flights);
        let fast = follow(&flights).unwrap();
        let mut writer = disk.writer(&KEY, About::default(), b"");
        let chunks = writer.chunks();
        fill.store(chunks.clone(), WINDOW_BYTES);
        let chunk_bytes = chunks.chunk_bytes() as usize;
        for _ in 0..3 {
            writer.write(&vec![b'x'; chunk_bytes]).unwrap();
            fill.push(piece(chunk_bytes));
            assert!(take(&fast).is_some());
        }
        assert!(is_behind(&slow));
        drop(writer);
        fill.bound(WINDOW_BYTES);
        for _ in 0..3 {
            if room(&fill) == Poll::Ready(Room::Free) {
                fill.push(piece(WINDOW_BYTES));
                assert!(take(&fast).is_some());
            }
        }
        while is_behind(&slow) {
            assert!(slow.at() < chunks.bytes(), "what it needs next has gone");
            slow.passed(chunks.read(slow.at()).await.unwrap().len() as u64);
        }
        while take(&slow).is_some() {}
        assert_eq!(slow.at(), fast.at());
        assert_eq!(room(&fill), Poll::Ready(Room::Free));
        disk.close();
    });
}

/// What may happen to a flight.
#[derive(Clone, Copy, Debug)]
enum Event {
    Push(usize),
    Join,
    Take(usize),
    Leave(usize),
    /// The body leaves memory.
    Store,
    /// The disk takes no more of it, or never did.
    Bound,
    LeaveBehind,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..9000_usize).prop_map(Event::Push),
        2 => Just(Event::Join),
        9 => any::<usize>().prop_map(Event::Take),
        1 => any::<usize>().prop_map(Event::Leave),
        1 => Just(Event::Store),
        1 => (0..10_usize).prop_map(|at| if at == 0 { Event::Bound } else { Event::LeaveBehind }),
    ]
}

/// A flight, and what is known of it.
struct Model {
    flights: Arc<Flights>,
    fill: Fill,
    readers: Vec<Reader>,
    writer: Option<Writer>,
    is_bounded: bool,
    /// Readers were left behind.
    is_cut: bool,
    end: u64,
}

/// The byte at this place of the body.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

impl Model {
    fn push(&mut self, len: usize) {
        if self.is_bounded && room(&self.fill) != Poll::Ready(Room::Free) {
            return;
        }
        let bytes: Vec<u8> = (self.end..self.end + len as u64).map(byte).collect();
        if let Some(writer) = &mut self.writer
            && writer.write(&bytes).is_err()
        {
            self.bound();
        }
        self.fill.push(Piece::from(bytes));
        self.end += len as u64;
    }

    fn store(&mut self, disk: &DiskStore) {
        if self.writer.is_some() || self.is_bounded {
            return;
        }
        let mut writer = disk.writer(&KEY, About::default(), b"");
        let before: Vec<u8> = (0..self.end).map(byte).collect();
        if writer.write(&before).is_ok() {
            self.fill.store(writer.chunks(), WINDOW_BYTES);
            self.writer = Some(writer);
        }
    }

    fn bound(&mut self) {
        self.writer = None;
        self.is_bounded = true;
        self.fill.bound(WINDOW_BYTES);
    }

    /// Checks the next bytes of a reader. True if it got some.
    async fn take(&mut self, at: usize) -> bool {
        let reader = &self.readers[at];
        let place = reader.at();
        let got = match poll(reader, &Arc::default()) {
            Poll::Pending | Poll::Ready(Ok(Next::End)) => {
                assert_eq!(place, self.end);
                return false;
            }
            Poll::Ready(Err(fault)) => panic!("{fault}"),
            Poll::Ready(Ok(Next::Piece(piece, passed))) => piece[passed..].to_vec(),
            Poll::Ready(Ok(Next::Behind(chunks))) => {
                match chunks.filter(|chunks| chunks.bytes() > place) {
                    Some(chunks) => {
                        let block = chunks.read(place).await.unwrap().to_vec();
                        reader.passed(block.len() as u64);
                        block
                    }
                    None => {
                        assert!(self.is_bounded, "the disk has what memory lacks");
                        assert!(self.is_cut, "who reads from the disk is waited for, too");
                        self.readers.remove(at);
                        return false;
                    }
                }
            }
        };
        let expected: Vec<u8> = (place..place + got.len() as u64).map(byte).collect();
        assert!(!got.is_empty() && got == expected, "at {place}");
        assert_eq!(self.readers[at].at(), place + got.len() as u64);
        true
    }

    fn check(&self) {
        let state = lock(&self.fill.flight().state);
        state.check();
        let counted: usize = state.pieces.iter().map(|held| held.readers).sum();
        assert_eq!(counted + state.at_end + state.behind, self.readers.len());
        assert_eq!(state.readers, self.readers.len());
        if self.writer.is_some() {
            // A window or a chunk, and the piece that came last.
            assert!(state.held_bytes <= 16 * 1024 + 9000, "{}", state.held_bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the body becomes, and however readers come and go: each gets its bytes in order, as
    /// long as they are in memory or on the disk.
    #[test]
    fn every_reader_gets_the_body_in_order(events in prop::collection::vec(event(), 1..120)) {
        let options = sim::Options::new(3)
            .with_disk(sim::Disk::new(3), std::time::Duration::ZERO..std::time::Duration::ZERO);
        runtime::Runtime::simulated(options).block_on(async {
            let (disk, _) = DiskStore::open(Options::new("/d", Geometry::tiny(48))).await.unwrap();
            let flusher = disk.clone();
            let flusher = runtime::spawn(async move { flusher.run().await });
            let flights = Flights::new();
            let (fill, first) = streaming(&flights);
            let readers = vec![first];
            let (writer, is_bounded, is_cut, end) = (None, false, false, 0);
            let mut model = Model { flights, fill, readers, writer, is_bounded, is_cut, end };
            for event in events {
                match event {
                    Event::Push(len) => model.push(len),
                    Event::Join => model.readers.extend(follow(&model.flights)),
                    Event::Take(at) if !model.readers.is_empty() => {
                        model.take(at % model.readers.len()).await;
                    }
                    Event::Leave(at) if !model.readers.is_empty() => {
                        model.readers.remove(at % model.readers.len());
                    }
                    Event::Store => model.store(&disk),
                    Event::Bound => model.bound(),
                    Event::LeaveBehind => {
                        let start = model.fill.window_start();
                        model.fill.leave_behind();
                        model.is_cut |= model.fill.window_start() > start;
                    }
                    Event::Take(_) | Event::Leave(_) => {}
                }
                model.check();
            }
            // Once it has ended, each gets the rest.
            if let Some(writer) = model.writer.take() {
                writer.finish().unwrap();
            }
            let fill = std::mem::replace(&mut model.fill, streaming(&Flights::new()).0);
            fill.settle(Settled::Uncacheable);
            assert!(!model.flights.has(KEY));
            for at in (0..model.readers.len()).rev() {
                while model.readers.len() > at && model.take(at).await {}
            }
            disk.close();
            flusher.await;
        });
    }
}

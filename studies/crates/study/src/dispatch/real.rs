//! The same turns by a real program, on real descriptors, timed.
//!
//! One thread has both ends of a few TCP connections on loopback, and sockets that never receive
//! anything. A turn: write the requests (not timed); then *dispatch* before the wait, *wait*,
//! dispatch after it, *handle*: read, look up, copy, respond, log; then read the responses (not
//! timed). The result of a visit is its median turn, so that a turn in which another process had
//! the CPU does not count.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use readiness::{Choice, Events, Interest, Kind, Poller, Token};
use regress::Rng;
use serde_json::{Value, json};

use super::layout::{
    COMMON_BYTES, ENTRY_BYTES, HOT, INDEX_BYTES, INDEX_LOOKS, LOG_BYTES, LOG_LINE_BYTES,
    OBJECT_BYTES, OBJECTS, REQUEST_BYTES, SLOT_BYTES, STATE_BYTES, descriptor_of,
};
use super::{Plan, Strategy};
use crate::found::Steps;
use harness::Error;
use harness::rounds::{Figures, To, Visits};

/// The waits that are timed: the old and the new one of 1998, and today's.
const KINDS: [Kind; 3] = [Kind::Select, Kind::ScalableSelect, Kind::Epoll];
/// Turns of a visit that are made before the ones that count.
const WARM_TURNS: usize = 5;

/// Seconds a request of the three parts of a turn.
#[derive(Clone, Copy, Default)]
struct Parts {
    dispatch: f64,
    wait: f64,
    rest: f64,
}

impl Parts {
    fn whole(self) -> f64 {
        self.dispatch + self.wait + self.rest
    }
}

/// Times all strategies on all backends in interleaved rounds. Gives the rows, and why a backend is
/// missing.
pub(super) fn measure(
    plan: &Plan,
    steps: &mut Steps<'_>,
) -> Result<(Vec<Value>, Vec<String>), Error> {
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    let (mut timed, mut missing) = (Vec::new(), Vec::new());
    for &descriptors in &plan.descriptors {
        steps.say(&format!("timing {descriptors} descriptors"));
        let mut server = Server::new(descriptors)
            .map_err(|error| Error::System("sockets for the timed program", error))?;
        let mut pollers = Vec::new();
        for kind in KINDS {
            match Poller::open(Choice::Named(kind)) {
                Ok(poller) => pollers.push(poller),
                Err(why) => missing.push(why.to_string()),
            }
        }
        for poller in &mut pollers {
            server.register(poller).map_err(|error| Error::System("registering", error))?;
        }
        for &ready in &plan.ready {
            timed.extend(rounds(&mut server, &mut pollers, ready, plan, steps)?);
        }
    }
    missing.dedup();
    Ok((timed, missing))
}

fn rounds(
    server: &mut Server,
    pollers: &mut [Poller],
    ready: u32,
    plan: &Plan,
    steps: &Steps<'_>,
) -> Result<Vec<Value>, Error> {
    let kinds: Vec<Kind> = pollers.iter().map(Poller::kind).collect();
    let cells: Vec<(usize, Strategy)> =
        (0..pollers.len()).flat_map(|at| Strategy::ALL.map(|strategy| (at, strategy))).collect();
    let mut visits = Visits(Vec::new());
    for round in 0..plan.rounds.max(1) {
        let visit = |&cell @ (at, strategy): &(usize, Strategy)| {
            steps.interrupted()?;
            let seed = plan.given.seed + u64::from(round);
            let parts = server.visit(&mut pollers[at], strategy, ready, plan.turns as usize, seed);
            let failed = |error| Error::System("a socket of the timed program", error);
            Ok::<_, Error>((cell, parts.map_err(failed)?))
        };
        visits.0.push(cells.iter().map(visit).collect::<Result<_, _>>()?);
    }
    let row = |cell @ (at, strategy): (usize, Strategy)| {
        let names = json!({
            "backend": kinds[at].to_string(),
            "strategy": strategy,
            "name": strategy.label(),
            "descriptors": server.descriptors,
            "ready": ready,
        });
        let tokens = To::Cell(Some((at, Strategy::Tokens)));
        let figures: Figures<'_, _, Parts> = &[
            ("us", To::Itself, &|parts| 1e6 * parts.whole()),
            ("dispatch_us", To::Itself, &|parts| 1e6 * parts.dispatch),
            ("wait_us", To::Itself, &|parts| 1e6 * parts.wait),
            ("rest_us", To::Itself, &|parts| 1e6 * parts.rest),
            ("share", To::Itself, &|parts| parts.dispatch / parts.whole()),
            ("rest_ratio", tokens, &|parts| parts.rest),
        ];
        visits.row(cell, names, figures)
    };
    Ok(cells.into_iter().map(row).collect())
}

/// The state of a descriptor, as in 1998: a large structure of which the walk reads a few words.
#[derive(Clone)]
struct Entry {
    reads: u64,
    writes: u64,
    stalled_until: u64,
    _more: [u64; ENTRY_BYTES as usize / 8 - 3],
}

/// The slot that a token leads to (our server).
#[derive(Clone)]
struct Slot {
    hot: u32,
    _more: [u8; SLOT_BYTES as usize - 4],
}

/// The server's memory and its sockets.
struct Server {
    descriptors: u32,
    /// Both ends of each hot connection: the server's and the client's.
    hot: Vec<(TcpStream, TcpStream)>,
    cold: Vec<UnixDatagram>,
    table: Vec<Entry>,
    slots: Vec<Slot>,
    /// The descriptors to read and to write: the bitmaps that are kept up to date, and the ones
    /// that a call overwrites.
    kept: [Vec<u64>; 2],
    asked: [Vec<u64>; 2],
    index: Vec<u64>,
    objects: Vec<u8>,
    common: Vec<u64>,
    states: Vec<u8>,
    log: Vec<u8>,
    logged: usize,
    events: Events,
    rng: Rng,
}

impl Server {
    fn new(descriptors: u32) -> std::io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let mut hot = Vec::new();
        for _ in 0..HOT.min(descriptors) {
            let client = TcpStream::connect(address)?;
            let (server, _) = listener.accept()?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            hot.push((server, client));
        }
        let cold = (0..descriptors.saturating_sub(HOT)).map(|_| UnixDatagram::unbound());
        let cold = cold.collect::<std::io::Result<Vec<_>>>()?;
        let words = (descriptors as usize).div_ceil(64);
        let entry = Entry {
            reads: 1,
            writes: 0,
            stalled_until: 0,
            _more: [0; ENTRY_BYTES as usize / 8 - 3],
        };
        let mut slots =
            vec![Slot { hot: 0, _more: [0; SLOT_BYTES as usize - 4] }; descriptors as usize];
        for number in 0..HOT {
            slots[descriptor_of(number, descriptors) as usize].hot = number;
        }
        Ok(Server {
            descriptors,
            hot,
            cold,
            table: vec![entry; descriptors as usize],
            slots,
            kept: [vec![u64::MAX; words], vec![0; words]],
            asked: [vec![0; words], vec![0; words]],
            index: vec![1; INDEX_BYTES as usize / 8],
            objects: vec![7; (OBJECTS * OBJECT_BYTES) as usize],
            common: vec![1; COMMON_BYTES as usize / 8],
            states: vec![0; (STATE_BYTES * u64::from(HOT)) as usize],
            log: vec![0; LOG_BYTES as usize],
            logged: 0,
            events: Events::with_capacity(2 * HOT as usize),
            rng: Rng::new(1),
        })
    }

    fn register(&self, poller: &mut Poller) -> std::io::Result<()> {
        for (number, (server, _)) in (0..).zip(&self.hot) {
            let slot = descriptor_of(number, self.descriptors);
            poller.register(server.as_raw_fd(), Token::new(slot, 0), Interest::READ)?;
        }
        for cold in &self.cold {
            // It never becomes ready, so its token never occurs.
            poller.register(cold.as_raw_fd(), Token::new(0, 0), Interest::READ)?;
        }
        Ok(())
    }

    /// Makes the turns of a visit and gives the median one.
    fn visit(
        &mut self,
        poller: &mut Poller,
        strategy: Strategy,
        ready: u32,
        turns: usize,
        seed: u64,
    ) -> std::io::Result<Parts> {
        self.rng = Rng::new(seed);
        let ready = ready.clamp(1, HOT);
        let mut seen = Vec::with_capacity(turns);
        for turn in 0..turns + WARM_TURNS {
            let first = self.rng.below(HOT as usize) as u32;
            let parts = self.turn(poller, strategy, first, ready)?;
            if turn >= WARM_TURNS {
                seen.push(parts);
            }
        }
        seen.sort_by(|one, other| one.whole().total_cmp(&other.whole()));
        let middle = seen.get(seen.len() / 2).copied().unwrap_or_default();
        let each = |seconds: f64| seconds / f64::from(ready);
        Ok(Parts {
            dispatch: each(middle.dispatch),
            wait: each(middle.wait),
            rest: each(middle.rest),
        })
    }

    fn turn(
        &mut self,
        poller: &mut Poller,
        strategy: Strategy,
        first: u32,
        ready: u32,
    ) -> std::io::Result<Parts> {
        let request = [b'q'; REQUEST_BYTES as usize];
        let of_turn = |at: u32| ((first + at) % HOT) as usize;
        for at in 0..ready {
            self.hot[of_turn(at)].1.write_all(&request)?;
        }
        let mut parts = Parts::default();
        let begun = Instant::now();
        self.before_the_wait(strategy);
        let before = Instant::now();
        poller.wait(&mut self.events, None)?;
        self.as_bits(strategy);
        let waited = Instant::now();
        let found = self.after_the_wait(strategy);
        let handling = Instant::now();
        for hot in &found {
            self.handle(*hot as usize)?;
        }
        let end = Instant::now();
        parts.dispatch = (before - begun).as_secs_f64() + (handling - waited).as_secs_f64();
        parts.wait = (waited - before).as_secs_f64();
        parts.rest = (end - handling).as_secs_f64();
        let mut answer = [0; OBJECT_BYTES as usize];
        for hot in found {
            self.hot[hot as usize].1.read_exact(&mut answer)?;
        }
        Ok(parts)
    }

    fn before_the_wait(&mut self, strategy: Strategy) {
        let [reads, writes] = &mut self.asked;
        match strategy {
            Strategy::Walk => {
                reads.fill(0);
                writes.fill(0);
                for (descriptor, entry) in self.table.iter().enumerate() {
                    let (word, bit) = (descriptor / 64, 1 << (descriptor % 64));
                    let entry = black_box(entry);
                    if entry.reads != 0 && entry.stalled_until == 0 {
                        reads[word] |= bit;
                    }
                    if entry.writes != 0 {
                        writes[word] |= bit;
                    }
                }
            }
            Strategy::Bitmaps => {
                reads.copy_from_slice(&self.kept[0]);
                writes.copy_from_slice(&self.kept[1]);
            }
            Strategy::Tokens => {}
        }
        black_box(&mut self.asked);
    }

    /// Writes the bitmaps that `select()` itself would have written; this counts as the wait.
    fn as_bits(&mut self, strategy: Strategy) {
        if strategy == Strategy::Tokens {
            return;
        }
        let reads = &mut self.asked[0];
        reads.fill(0);
        for event in self.events.iter() {
            let slot = event.token.slot();
            reads[slot as usize / 64] |= 1 << (slot % 64);
        }
    }

    /// Finds the hot connections that are ready.
    fn after_the_wait(&self, strategy: Strategy) -> Vec<u32> {
        let slots = &self.slots;
        if strategy == Strategy::Tokens {
            let hot = |slot: u32| slots[slot as usize].hot;
            return self.events.iter().map(|event| hot(event.token.slot())).collect();
        }
        let reads = &self.asked[0];
        let mut found = Vec::new();
        if strategy == Strategy::Walk {
            // Bit by bit, over all descriptors that may be open.
            for descriptor in 0..self.descriptors as usize {
                if black_box(reads[descriptor / 64]) & (1 << (descriptor % 64)) != 0 {
                    found.push(slots[descriptor].hot);
                }
            }
        } else {
            for (at, word) in reads.iter().enumerate() {
                let mut word = *word;
                while word != 0 {
                    found.push(slots[at * 64 + word.trailing_zeros() as usize].hot);
                    word &= word - 1;
                }
            }
        }
        found
    }

    /// Reads a request, looks the object up, responds and logs.
    fn handle(&mut self, hot: usize) -> std::io::Result<()> {
        let mut request = [0; REQUEST_BYTES as usize];
        self.hot[hot].0.read_exact(&mut request)?;
        black_box(self.common.iter().sum::<u64>());
        let state = STATE_BYTES as usize;
        self.states[hot * state..(hot + 1) * state].fill(request[0]);
        for _ in 0..INDEX_LOOKS {
            black_box(self.index[self.rng.below(self.index.len())]);
        }
        let object = self.rng.below(OBJECTS as usize) * OBJECT_BYTES as usize;
        let mut answer = [0; OBJECT_BYTES as usize];
        answer.copy_from_slice(&self.objects[object..object + OBJECT_BYTES as usize]);
        self.hot[hot].0.write_all(&answer)?;
        let line = LOG_LINE_BYTES as usize;
        self.log[self.logged..self.logged + line].fill(request[0]);
        self.logged = (self.logged + line) % LOG_BYTES as usize;
        for number in &mut self.common {
            *number += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::quietly;

    #[test]
    fn every_strategy_finds_the_ready_connections_and_no_others() {
        let mut server = Server::new(200).unwrap();
        for kind in KINDS {
            let Ok(mut poller) = Poller::open(Choice::Named(kind)) else { continue };
            server.register(&mut poller).unwrap();
            for strategy in Strategy::ALL {
                for hot in [3usize, 63] {
                    server.hot[hot].1.write_all(&[b'q'; REQUEST_BYTES as usize]).unwrap();
                }
                server.before_the_wait(strategy);
                if strategy != Strategy::Tokens {
                    assert_eq!(server.asked[0][0], u64::MAX, "all are to be read");
                    assert!(server.asked[1].iter().all(|word| *word == 0), "none to be written");
                }
                poller.wait(&mut server.events, None).unwrap();
                server.as_bits(strategy);
                let mut found = server.after_the_wait(strategy);
                found.sort_unstable();
                assert_eq!(found, [3, 63], "{kind} {strategy:?}");
                for hot in found {
                    server.handle(hot as usize).unwrap();
                    let mut answer = [0; OBJECT_BYTES as usize];
                    server.hot[hot as usize].1.read_exact(&mut answer).unwrap();
                    assert!(answer.iter().all(|byte| *byte == 7));
                }
            }
        }
    }

    #[test]
    fn all_strategies_are_timed_on_all_backends() {
        let plan = Plan {
            descriptors: vec![100],
            ready: vec![1, 2],
            rounds: 2,
            turns: 3,
            given: crate::flags::Given { seed: 1, ..Default::default() },
        };
        let (timed, missing) = quietly(false, |steps| measure(&plan, steps)).unwrap();
        assert_eq!(timed.len(), (KINDS.len() - missing.len()) * 2 * Strategy::ALL.len());
        for row in timed {
            let of = |figure: &str| row[figure]["value"].as_f64().unwrap();
            assert!(of("wait_us") > 0.0 && of("rest_us") > 0.0, "{row:?}");
            assert!(of("share") < 1.0, "{row:?}");
            assert!(row["strategy"] != "tokens" || of("rest_ratio") == 1.0, "{row:?}");
        }
        assert!(matches!(quietly(true, |steps| measure(&plan, steps)), Err(Error::Interrupted)));
    }
}

//! Cache misses by strategy: those of the dispatch itself, and those of everything else.

use regress::Rng;
use serde::Serialize;
use serde_json::{Value, json};

use super::layout::{
    COMMON_BYTES, ENTRY_BYTES, EVENT_BYTES, HOT, INDEX_BYTES, INDEX_LOOKS, LOG_BYTES,
    LOG_LINE_BYTES, OBJECT_BYTES, OBJECTS, Part, REQUEST_BYTES, SLOT_BYTES, STATE_BYTES,
    WALKED_BYTES, bitmap_bytes, descriptor_of,
};
use super::{Plan, Strategy};
use crate::found::with;
use runqueue::cache::{Cache, Machine, Misses};

/// What a strategy costs on a machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Simulated {
    /// The machine whose cache is simulated.
    pub(super) machine: String,
    /// How the ready connections are found.
    pub(super) strategy: Strategy,
    /// Open descriptors.
    pub(super) descriptors: u32,
    /// Connections that are ready at each wait.
    pub(super) ready: u32,
    /// Requests that were counted.
    pub(super) requests: u64,
    /// Misses of the dispatch.
    pub(super) dispatch: Misses,
    /// Misses of everything else.
    pub(super) rest: Misses,
}

impl Simulated {
    /// Misses a request of the first and of the second level: of the dispatch, of everything else.
    pub(super) fn per_request(&self) -> [(f64, f64); 2] {
        let requests = self.requests.max(1) as f64;
        [self.dispatch, self.rest]
            .map(|misses| (misses.l1 as f64 / requests, misses.l2 as f64 / requests))
    }
}

impl Simulated {
    /// As a row of the page: the misses a request, and those of everything else relative to those
    /// with tokens.
    pub(super) fn named(&self, all: &[Simulated]) -> Value {
        let of = |row: &Simulated| (row.machine.clone(), row.descriptors, row.ready);
        let tokens = |row: &&Simulated| row.strategy == Strategy::Tokens && of(row) == of(self);
        let [dispatch, rest] = self.per_request();
        let ratio = all.iter().find(tokens).map(|tokens| {
            let [_, base] = tokens.per_request();
            (rest.0 / base.0, rest.1 / base.1)
        });
        let each = [Some(dispatch), Some(rest), ratio];
        with(self, json!({"name": self.strategy.label(), "each": each}))
    }
}

/// The simulation makes this many times the turns that count. The earlier ones fill the cache, so
/// that first touches are not counted as misses of the strategy.
const WARM: usize = 2;

/// Simulates the turns of a server.
pub(super) fn simulate(
    machine: &Machine,
    strategy: Strategy,
    (descriptors, ready): (u32, u32),
    plan: &Plan,
) -> Simulated {
    let mut server = Server { cache: Cache::new(machine), strategy, descriptors, logged: 0 };
    let mut rng = Rng::new(plan.given.seed);
    let (mut dispatch, mut rest) = (Misses::default(), Misses::default());
    let mut requests = 0;
    for turn in 0..WARM * plan.turns as usize {
        if turn == (WARM - 1) * plan.turns as usize {
            (dispatch, rest, requests) = (Misses::default(), Misses::default(), 0);
        }
        server.before_the_wait(&mut dispatch);
        let hot: Vec<u32> = (0..ready).map(|_| rng.below(HOT as usize) as u32).collect();
        server.after_the_wait(&hot, &mut dispatch);
        for &hot in &hot {
            server.handle(hot, &mut rng, &mut rest);
            requests += 1;
        }
    }
    let machine = machine.name.clone();
    Simulated { machine, strategy, descriptors, ready, requests, dispatch, rest }
}

struct Server {
    cache: Cache,
    strategy: Strategy,
    descriptors: u32,
    logged: u64,
}

impl Server {
    fn before_the_wait(&mut self, misses: &mut Misses) {
        let bitmap = bitmap_bytes(self.descriptors);
        match self.strategy {
            Strategy::Walk => {
                for descriptor in 0..u64::from(self.descriptors) {
                    let entry = Part::Table.at(descriptor * ENTRY_BYTES);
                    self.cache.touch(entry, WALKED_BYTES, misses);
                    // Both bits are set in bitmaps that were cleared before.
                    if descriptor % 64 == 0 {
                        let word = descriptor / 8;
                        self.cache.touch(Part::Bitmaps.at(word), 8, misses);
                        self.cache.touch(Part::Bitmaps.at(bitmap + word), 8, misses);
                    }
                }
            }
            Strategy::Bitmaps => {
                // Two bitmaps that are kept up to date are copied to two that the call overwrites.
                self.cache.touch(Part::Bitmaps.at(2 * bitmap), 2 * bitmap, misses);
                self.cache.touch(Part::Bitmaps.at(0), 2 * bitmap, misses);
            }
            Strategy::Tokens => {}
        }
    }

    fn after_the_wait(&mut self, hot: &[u32], misses: &mut Misses) {
        match self.strategy {
            Strategy::Walk | Strategy::Bitmaps => {
                let bytes = 2 * bitmap_bytes(self.descriptors);
                self.cache.touch(Part::Bitmaps.at(0), bytes, misses);
                for hot in hot {
                    let descriptor = u64::from(descriptor_of(*hot, self.descriptors));
                    let entry = Part::Table.at(descriptor * ENTRY_BYTES);
                    self.cache.touch(entry, WALKED_BYTES, misses);
                }
            }
            Strategy::Tokens => {
                for (at, hot) in (0..).zip(hot) {
                    self.cache.touch(Part::Events.at(at * EVENT_BYTES), EVENT_BYTES, misses);
                    let slot = u64::from(descriptor_of(*hot, self.descriptors));
                    self.cache.touch(Part::Slots.at(slot * SLOT_BYTES), SLOT_BYTES, misses);
                }
            }
        }
    }

    /// Reads a request, looks the object up, responds and logs.
    fn handle(&mut self, hot: u32, rng: &mut Rng, misses: &mut Misses) {
        let hot = u64::from(hot);
        self.cache.touch(Part::Common.at(0), COMMON_BYTES, misses);
        self.cache.touch(Part::States.at(hot * STATE_BYTES), STATE_BYTES, misses);
        self.cache.touch(Part::Buffers.at(0), REQUEST_BYTES, misses);
        for _ in 0..INDEX_LOOKS {
            let place = rng.below((INDEX_BYTES / 8) as usize) as u64 * 8;
            self.cache.touch(Part::Index.at(place), 8, misses);
        }
        let object = rng.below(OBJECTS as usize) as u64;
        self.cache.touch(Part::Objects.at(object * OBJECT_BYTES), OBJECT_BYTES, misses);
        self.cache.touch(Part::Buffers.at(REQUEST_BYTES), OBJECT_BYTES, misses);
        self.cache.touch(Part::Log.at(self.logged % LOG_BYTES), LOG_LINE_BYTES, misses);
        self.logged += LOG_LINE_BYTES;
        self.cache.touch(Part::Common.at(0), COMMON_BYTES, misses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            descriptors: vec![],
            ready: vec![],
            rounds: 1,
            turns: 200,
            given: crate::flags::Given { seed: 1, ..Default::default() },
        }
    }

    fn simulated(strategy: Strategy, descriptors: u32, ready: u32) -> Simulated {
        simulate(&Machine::of_1998(), strategy, (descriptors, ready), &plan())
    }

    #[test]
    fn the_walk_misses_once_an_entry_when_the_table_is_larger_than_the_cache() {
        // 1,581 entries of 256 bytes, each in its own line, are larger than 96 KiB.
        let walk = simulated(Strategy::Walk, 1581, 1);
        let [(l1, l2), _] = walk.per_request();
        assert!(l1 >= 1581.0 && l2 >= 1570.0, "{walk:?}");
        let fixed = simulated(Strategy::Bitmaps, 1581, 1);
        let [(l1, _), _] = fixed.per_request();
        assert!(l1 < 60.0, "four bitmaps of 200 bytes: {fixed:?}");
        let ours = simulated(Strategy::Tokens, 1581, 1);
        let [(l1, _), _] = ours.per_request();
        assert!(l1 <= 3.0, "an event and a slot: {ours:?}");
    }

    #[test]
    fn everything_else_misses_more_after_a_walk_and_reads_the_same() {
        let [walk, fixed, ours] = Strategy::ALL.map(|strategy| simulated(strategy, 1581, 1));
        assert_eq!(walk.rest.accesses, ours.rest.accesses);
        assert_eq!(walk.requests, ours.requests);
        assert!(walk.rest.l1 as f64 > 1.1 * ours.rest.l1 as f64, "{walk:?} {ours:?}");
        assert!(walk.rest.l2 as f64 > 1.5 * ours.rest.l2 as f64, "{walk:?} {ours:?}");
        assert!(fixed.rest.l2 as f64 <= 1.1 * ours.rest.l2 as f64, "{fixed:?} {ours:?}");
    }

    #[test]
    fn many_ready_connections_share_a_walk() {
        let [one, many] =
            [1, 16].map(|ready| simulated(Strategy::Walk, 1581, ready).per_request()[0].0);
        assert!(many < one / 12.0, "{one} {many}");
    }

    #[test]
    fn the_same_seed_gives_the_same_counts() {
        let [one, other] = [(); 2].map(|()| simulated(Strategy::Walk, 300, 4));
        assert_eq!((one.dispatch, one.rest), (other.dispatch, other.rest));
    }
}

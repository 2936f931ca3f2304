//! Overload: a core that cannot keep up sheds requests before latency grows without bound.
//!
//! ```text
//!   Calm --busy and late for PATIENCE_TICKS--> Shedding: a share of the requests that need an
//!    ^                                         upstream gets 503 with Retry-After; the share grows
//!    |                                         --all of them shed, and still late--> Closed: new
//!    '--not late, or idle, for as long---------' connections are refused as well
//! ```
//!
//! Each core measures the inputs of a load line, at its tick only: its processor time (and the time
//! that others took from it), its requests, and the length of its loop's turns, which is how long
//! ready events wait ([`runtime::time::Turns`]). *Late* means a delay above the objective on a core
//! whose processor was busy all the time: a long turn of an idle core is no queue. As in CoDel, the
//! minimum delay of an interval counts, so that a burst which drains by itself sheds no request.
//! Fresh hits are always served: they cost least, and are what a cache is for. The clients that ask
//! most lose first (`fair.rs`).
//!
//! What never happens: a request pays more than one load for this while nothing is shed; the
//! decision reads a clock.

mod fair;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::Duration;

use config::limits::Limits;

use fair::Fair;

/// The parts in which a share is counted.
const PARTS: u32 = 32;
/// Parts that a late tick adds to the share. A calm one takes one back: fast in, slow out.
const PARTS_UP: u32 = 4;
/// Consecutive late ticks before anything is shed, and between two stages.
const PATIENCE_TICKS: u32 = 5;
/// The processor counts as busy from this percentage of the time on ...
const BUSY_PERCENT: u128 = 93;
/// ... and as idle enough to shed less below this one.
const IDLE_PERCENT: u128 = 85;
/// The largest `Retry-After`, in seconds.
const RETRY_AFTER_MAX: u64 = 60;
/// The weight of a tick against earlier ones: the line forgets within seconds.
const WEIGHT: f64 = 0.05;

/// What a core has measured between two ticks.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time that has passed.
    pub wall: Duration,
    /// The processor time that it has used ...
    pub cpu: Duration,
    /// ... and what others used while it could have run.
    pub starved: Duration,
    /// How long ready events waited.
    pub delay: Duration,
    /// Requests that were answered.
    pub requests: u64,
}

impl Sample {
    fn busy_percent(&self) -> u128 {
        ((self.cpu + self.starved).as_nanos() * 100).checked_div(self.wall.as_nanos()).unwrap_or(0)
    }
}

/// The state of one core.
#[derive(Debug, Default)]
pub struct Overload {
    /// The share of requests that need an upstream which is shed, in [`PARTS`].
    share: Cell<u32>,
    /// The part of a request that is still to be shed.
    carried: Cell<u32>,
    closed: Cell<bool>,
    retry_after: Cell<u64>,
    late_ticks: Cell<u32>,
    line: RefCell<Line>,
    /// The clients' requests, while anything is shed.
    fair: RefCell<Option<Fair>>,
    /// The secret of their hashes.
    seed: u64,
}

impl Overload {
    /// A calm core. Clients must not know the seed.
    pub fn new(seed: u64) -> Overload {
        Overload { seed, ..Overload::default() }
    }

    /// Whether a request of this client that needs an upstream is to be answered 503 instead.
    #[inline]
    pub fn sheds_of(&self, client: IpAddr) -> bool {
        self.share.get() > 0 && self.is_above_its_share(client)
    }

    #[cold]
    fn is_above_its_share(&self, client: IpAddr) -> bool {
        let mut fair = self.fair.borrow_mut();
        let fair = fair.get_or_insert_with(|| Fair::new(self.seed));
        let is_shed = fair.sheds(client);
        is_shed.unwrap_or_else(|| self.sheds())
    }

    /// Whether a request that needs an upstream is to be answered 503 instead.
    #[inline]
    pub fn sheds(&self) -> bool {
        let share = self.share.get();
        share > 0 && self.is_its_turn(share)
    }

    /// Spreads the shed requests evenly.
    #[cold]
    fn is_its_turn(&self, share: u32) -> bool {
        let carried = self.carried.get() + share;
        self.carried.set(carried % PARTS);
        carried >= PARTS
    }

    /// Whether new connections are refused.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Seconds after which a client that was shed may come again.
    pub fn retry_after(&self) -> u64 {
        self.retry_after.get().max(1)
    }

    /// The share of requests that is shed, in millionths.
    pub fn share_ppm(&self) -> u64 {
        u64::from(self.share.get()) * 1_000_000 / u64::from(PARTS)
    }

    /// The processor time of one more request, by the load line of the last seconds.
    pub fn marginal(&self) -> Duration {
        self.line.borrow().slope()
    }

    /// Takes a sample into account.
    pub fn tick(&self, sample: &Sample, limits: &Limits) {
        self.decide(sample, limits);
        match (self.share.get(), &mut *self.fair.borrow_mut()) {
            (0, fair) => *fair = None,
            (share, Some(fair)) => fair.tick(f64::from(share) / f64::from(PARTS)),
            (_, None) => {}
        }
    }

    fn decide(&self, sample: &Sample, limits: &Limits) {
        self.line.borrow_mut().add(sample);
        if !limits.overload_shed {
            self.share.set(0);
            self.closed.set(false);
            return;
        }
        let objective = limits.overload_objective;
        let late = sample.delay > objective && sample.busy_percent() >= BUSY_PERCENT;
        if late {
            self.late_ticks.set(self.late_ticks.get().saturating_add(1));
            if self.late_ticks.get() >= PATIENCE_TICKS {
                self.shed_more();
            }
            let excess = sample.delay.as_nanos().div_ceil(objective.as_nanos().max(1));
            let excess = u64::try_from(excess).unwrap_or(RETRY_AFTER_MAX);
            self.retry_after.set(excess.min(RETRY_AFTER_MAX));
            return;
        }
        self.late_ticks.set(0);
        let calm = sample.delay < objective / 2 || sample.busy_percent() < IDLE_PERCENT;
        if calm {
            // Connections first: a shed request costs less than a refused connection.
            self.closed.set(false);
            self.share.set(self.share.get().saturating_sub(1));
        }
    }

    fn shed_more(&self) {
        let share = self.share.get();
        if share == 0 {
            tracing::warn!("overload: requests that need an upstream are being shed");
        }
        if share < PARTS {
            self.share.set((share + PARTS_UP).min(PARTS));
        } else if self.late_ticks.get() >= 3 * PATIENCE_TICKS && !self.closed.replace(true) {
            tracing::warn!("overload: new connections are refused");
        }
    }
}

/// The line of processor time over requests, fitted with exponentially fading weights.
#[derive(Debug, Default)]
struct Line {
    requests: f64,
    cpu_ns: f64,
    variance: f64,
    covariance: f64,
}

impl Line {
    fn add(&mut self, sample: &Sample) {
        let (requests, cpu_ns) = (sample.requests as f64, sample.cpu.as_nanos() as f64);
        let from_mean = requests - self.requests;
        self.requests += WEIGHT * from_mean;
        self.cpu_ns += WEIGHT * (cpu_ns - self.cpu_ns);
        let (fades, grows) = (1.0 - WEIGHT, WEIGHT * from_mean);
        self.variance = fades * self.variance + grows * (requests - self.requests);
        self.covariance = fades * self.covariance + grows * (cpu_ns - self.cpu_ns);
    }

    fn slope(&self) -> Duration {
        if self.variance < 1.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos((self.covariance / self.variance).max(0.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const MS: Duration = Duration::from_millis(1);

    fn sample(busy_percent: u32, delay: Duration) -> Sample {
        // Starved or not, the queue is the same.
        let (cpu, starved) = (TICK * busy_percent / 200, TICK * busy_percent / 200);
        Sample { wall: TICK, cpu, starved, delay, requests: 10 }
    }

    fn shed_of_1000(overload: &Overload) -> usize {
        (0..1000).filter(|_| overload.sheds()).count()
    }

    #[test]
    fn a_standing_queue_sheds_more_and_more_and_then_refuses_connections() {
        let (overload, limits) = (Overload::default(), Limits::default());
        let late = sample(100, limits.overload_objective * 3);
        let mut shed = Vec::new();
        for _ in 0..20 {
            overload.tick(&late, &limits);
            shed.push(shed_of_1000(&overload));
        }
        assert_eq!(shed[..4], [0; 4], "a burst is tolerated");
        assert_eq!(shed[4], 125);
        assert!(shed.is_sorted() && shed[12..] == [1000; 8]);
        assert!(overload.is_closed());
        assert_eq!(overload.retry_after(), 3, "the excess over the objective");
        // When it has passed, requests come back slowly, after connections.
        overload.tick(&sample(50, MS), &limits);
        assert!(!overload.is_closed());
        assert_eq!(shed_of_1000(&overload), 968);
        (0..31).for_each(|_| overload.tick(&sample(50, MS), &limits));
        assert_eq!(shed_of_1000(&overload), 0);
    }

    #[test]
    fn neither_a_long_turn_of_an_idle_core_nor_a_busy_core_without_a_queue_is_overload() {
        let (overload, limits) = (Overload::default(), Limits::default());
        for _ in 0..50 {
            overload.tick(&sample(40, limits.overload_objective * 10), &limits);
            overload.tick(&sample(100, limits.overload_objective / 2), &limits);
        }
        assert_eq!(shed_of_1000(&overload), 0);
        // Nor does one calm tick in each interval make a standing queue.
        for tick in 0..100 {
            let delay = if tick % PATIENCE_TICKS == 0 { MS } else { limits.overload_objective * 3 };
            overload.tick(&sample(100, delay), &limits);
        }
        assert_eq!(shed_of_1000(&overload), 0);
    }

    #[test]
    fn between_objective_and_half_of_it_nothing_changes() {
        let (overload, limits) = (Overload::default(), Limits::default());
        (0..7).for_each(|_| overload.tick(&sample(100, limits.overload_objective * 2), &limits));
        let before = overload.share_ppm();
        (0..50)
            .for_each(|_| overload.tick(&sample(95, limits.overload_objective * 3 / 4), &limits));
        assert_eq!(overload.share_ppm(), before);
    }

    /// One of 100 clients asks as much as 30 others together, and the core can answer 7 of 8.
    #[test]
    fn the_others_lose_nothing_to_one_client_that_asks_too_much() {
        let (overload, limits) = (Overload::default(), Limits::default());
        let late = sample(100, limits.overload_objective * 3);
        (0..PATIENCE_TICKS).for_each(|_| overload.tick(&late, &limits));
        assert_eq!(overload.share_ppm(), 125_000);
        let (mut quiet, mut loud) = (0, 0);
        for tick in 0..100 {
            for client in 0..100u8 {
                let asks = if client == 0 { 60 } else { 2 };
                let shed = (0..asks).filter(|_| overload.sheds_of([10, 0, 0, client].into()));
                let shed = shed.count();
                if tick >= 20 {
                    *(if client == 0 { &mut loud } else { &mut quiet }) += shed;
                }
            }
            // Neither late nor calm: the share stays.
            overload.tick(&sample(95, limits.overload_objective * 3 / 4), &limits);
        }
        assert_eq!(quiet, 0);
        let share = loud as f64 / (80 * (60 + 99 * 2)) as f64;
        assert!((share - 0.125).abs() < 0.02, "{share}");
        // When nothing is shed, nothing is counted.
        (0..40).for_each(|_| overload.tick(&sample(50, MS), &limits));
        assert!(overload.fair.borrow().is_none());
        assert!(!overload.sheds_of([10, 0, 0, 0].into()));
    }

    /// A run of the simulator is repeated from its seed also while a core sheds.
    #[test]
    fn the_same_seed_sheds_the_same_requests() {
        let shed = |seed| {
            let (overload, limits) = (Overload::new(seed), Limits::default());
            let late = sample(100, limits.overload_objective * 3);
            (0..PATIENCE_TICKS).for_each(|_| overload.tick(&late, &limits));
            let calm = sample(95, limits.overload_objective * 3 / 4);
            let round = |_| {
                overload.tick(&calm, &limits);
                let sheds = |client| overload.sheds_of([10, 0, 0, client % 9].into());
                (0..99u8).map(sheds).collect::<Vec<bool>>()
            };
            (0..20).flat_map(round).collect::<Vec<bool>>()
        };
        assert_eq!(shed(7), shed(7));
        assert_ne!(shed(7), shed(8));
    }

    #[test]
    fn it_can_be_turned_off() {
        let (overload, mut limits) = (Overload::default(), Limits::default());
        let late = sample(100, limits.overload_objective * 9);
        (0..50).for_each(|_| overload.tick(&late, &limits));
        limits.overload_shed = false;
        overload.tick(&late, &limits);
        assert_eq!((shed_of_1000(&overload), overload.is_closed()), (0, false));
    }

    #[test]
    fn the_load_line_gives_the_cost_of_one_more_request() {
        let overload = Overload::default();
        for tick in 0u64..400 {
            // 30 us a request beside 2 ms of housekeeping.
            let requests = 500 + (tick * 7919) % 500;
            let cpu = Duration::from_micros(2000 + 30 * requests);
            let sample = Sample { wall: TICK, cpu, starved: MS, delay: MS, requests };
            overload.tick(&sample, &Limits::default());
        }
        let us = overload.marginal().as_nanos() as f64 / 1000.0;
        assert!((us - 30.0).abs() < 0.5, "{us}");
        assert_eq!(Overload::default().marginal(), Duration::ZERO);
    }
}

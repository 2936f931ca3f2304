//! Whose requests are shed: those of the clients that ask most.
//!
//! Only while a core sheds, it counts the requests of each client network that need an upstream, in
//! a count-min sketch (Cormode and Muthukrishnan, 2005) of fixed size. Its error is that a client
//! seems to have asked more often than it has; with [`SKETCH_ROWS`] rows that is rare.
//!
//! Shares are max-min fair: there is one limit for each client and window, so that what clients ask
//! below it adds up to what the core can answer. To find it, each request is numbered within its
//! client and window, and a histogram counts the numbers. As many requests have a number of at most
//! L as are answered if each client gets at most L: so the limit is a quantile of the histogram.
//! Above its limit a client loses a part of its requests, at random; below it, none.

use std::net::IpAddr;

use transport::shares::ClientNetwork;

use crate::limits::{FAIR_BINS, FAIR_TICKS, SKETCH_COLUMNS, SKETCH_ROWS};

/// The counts of one window.
type Sketch = [[u16; SKETCH_COLUMNS]; SKETCH_ROWS];

/// Numbers below this have a bin each; above, each doubling has as many bins.
const LINEAR: u32 = 16;

/// The requests of each client, in this window and in the one before.
#[derive(Debug)]
pub(super) struct Fair {
    seed: u64,
    now: Box<Sketch>,
    before: Box<Sketch>,
    numbers: [u32; FAIR_BINS],
    numbers_before: [u32; FAIR_BINS],
    /// Ticks of this window that have passed.
    ticks: u32,
    /// Requests for each client and window; `None` until enough is known.
    limit: Option<f64>,
    /// The state of the random numbers. Requests that are shed by turns would be those of the
    /// clients that come in the same turns.
    random: u64,
}

impl Fair {
    pub(super) fn new(seed: u64) -> Fair {
        let sketch = || Box::new([[0; SKETCH_COLUMNS]; SKETCH_ROWS]);
        Fair {
            seed,
            now: sketch(),
            before: sketch(),
            numbers: [0; FAIR_BINS],
            numbers_before: [0; FAIR_BINS],
            ticks: 0,
            limit: None,
            random: seed,
        }
    }

    /// A tick has passed, and this share of the requests is to be shed.
    pub(super) fn tick(&mut self, share: f64) {
        self.ticks += 1;
        if self.ticks == FAIR_TICKS {
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.iter_mut().for_each(|row| row.fill(0));
            self.numbers_before = std::mem::replace(&mut self.numbers, [0; FAIR_BINS]);
            self.ticks = 0;
        }
        let whole = self.numbers_before.iter().any(|count| *count > 0);
        let numbers = if whole { &self.numbers_before } else { &self.numbers };
        self.limit = limit_of(numbers, share);
    }

    /// Whether to shed a request of this client; `None` if nothing is known yet.
    pub(super) fn sheds(&mut self, client: IpAddr) -> Option<bool> {
        let (number, before) = self.count(client);
        let bin = bin_of(number);
        self.numbers[bin] = self.numbers[bin].saturating_add(1);
        let limit = self.limit?;
        // What it has asked in the time of one window.
        let left = f64::from(FAIR_TICKS - self.ticks) / f64::from(FAIR_TICKS);
        let asked = f64::from(number) + f64::from(before) * left;
        if asked <= limit {
            return Some(false);
        }
        self.random = self.random.wrapping_add(1);
        let drawn = (mixed(self.random) >> 32) as f64 / f64::from(u32::MAX);
        Some(drawn >= limit / asked)
    }

    /// Counts a request; returns its number in this window, and the count of the window before.
    fn count(&mut self, client: IpAddr) -> (u32, u32) {
        let mut hash = mixed(ClientNetwork::of(client).number() ^ self.seed);
        let mut places = [0; SKETCH_ROWS];
        for place in &mut places {
            *place = (hash % SKETCH_COLUMNS as u64) as usize;
            hash = mixed(hash);
        }
        let least = |sketch: &Sketch| {
            let counts = sketch.iter().zip(places).map(|(row, place)| row[place]);
            counts.min().unwrap_or(0)
        };
        let number = least(&self.now).saturating_add(1);
        for (row, place) in self.now.iter_mut().zip(places) {
            // Conservative update: only counts that are too small.
            row[place] = row[place].max(number);
        }
        (number.into(), least(&self.before).into())
    }
}

/// The finalizer of SplitMix64, with a secret seed in what is mixed.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The bin of a number from 1 on.
fn bin_of(number: u32) -> usize {
    let number = number.max(1) - 1;
    if number < LINEAR {
        return number as usize;
    }
    let doubling = number.ilog2() - LINEAR.ilog2();
    let within = (number >> doubling) - LINEAR;
    ((LINEAR + doubling * LINEAR + within) as usize).min(FAIR_BINS - 1)
}

/// The numbers in a bin: the first one, and how many.
fn numbers_of(bin: usize) -> (f64, f64) {
    let (bin, linear) = (bin as u32, LINEAR);
    if bin < linear {
        return (f64::from(bin), 1.0);
    }
    let (doubling, within) = ((bin - linear) / linear, (bin - linear) % linear);
    let width = f64::from(1u32 << doubling);
    (f64::from(linear + within) * width, width)
}

/// The limit for each client so that this share of all requests is above it.
fn limit_of(numbers: &[u32; FAIR_BINS], share: f64) -> Option<f64> {
    let all: f64 = numbers.iter().map(|count| f64::from(*count)).sum();
    if all == 0.0 {
        return None;
    }
    let mut answered = all * (1.0 - share);
    for (bin, count) in numbers.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (first, width) = numbers_of(bin);
        let count = f64::from(*count);
        if answered < count {
            return Some(first + width * answered / count);
        }
        answered -= count;
    }
    Some(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests and shed requests of each client. `asks` are requests for each tick.
    fn shed(asks: &[u32], share: f64, ticks: u32) -> Vec<(u32, u32)> {
        let mut fair = Fair::new(42);
        let mut of = vec![(0, 0); asks.len()];
        for tick in 0..ticks {
            for (client, asks) in asks.iter().enumerate() {
                for _ in 0..*asks {
                    let address = IpAddr::from([10, 0, (client >> 8) as u8, client as u8]);
                    let is_shed = fair.sheds(address).unwrap_or(false);
                    // The first windows are not steady.
                    if tick >= 3 * FAIR_TICKS {
                        of[client].0 += 1;
                        of[client].1 += u32::from(is_shed);
                    }
                }
            }
            fair.tick(share);
        }
        of
    }

    #[test]
    fn bins_and_their_numbers_agree() {
        for number in 1..60_000 {
            let (first, width) = numbers_of(bin_of(number));
            let at = f64::from(number - 1);
            assert!(first <= at && at < first + width, "{number}: {first} {width}");
        }
        assert!(bin_of(u16::MAX.into()) < FAIR_BINS);
    }

    /// One of 100 clients asks ten times as much, and 8 % of all requests are too many: the others
    /// lose nothing.
    #[test]
    fn the_loudest_client_loses_and_the_quiet_ones_lose_nothing() {
        let mut asks = [2; 100];
        asks[0] = 20;
        let of = shed(&asks, 0.08, 100);
        assert!(of[1..].iter().all(|(_, shed)| *shed == 0), "{of:?}");
        let (all, lost) = (of.iter().map(|of| of.0).sum::<u32>(), of[0].1);
        let share = f64::from(lost) / f64::from(all);
        assert!((share - 0.08).abs() < 0.01, "{share}");
    }

    #[test]
    fn clients_that_ask_alike_lose_alike() {
        let of = shed(&[5; 50], 0.5, 100);
        for (asked, lost) in &of {
            let share = f64::from(*lost) / f64::from(*asked);
            assert!((share - 0.5).abs() < 0.1, "{of:?}");
        }
    }

    #[test]
    fn more_clients_than_counters_are_all_served_somewhat() {
        let mut asks = vec![1; 20_000];
        asks[7] = 3000;
        let of = shed(&asks, 0.5, 50);
        let lost: u32 = of.iter().map(|of| of.1).sum();
        let all: u32 = of.iter().map(|of| of.0).sum();
        assert!((f64::from(lost) / f64::from(all) - 0.5).abs() < 0.05);
        assert!(f64::from(of[7].1) / f64::from(of[7].0) > 0.95, "{:?}", of[7]);
    }
}

//! Simulated pairs of trials: how often an unchanged server is called changed, and how often a
//! change is found.
//!
//! The noise is that of a real machine: AR(1) with a lag-one correlation of 0.3 and an sd of 4 %,
//! and a level that differs by 1.5 % between runs.

// A test that cannot compare its trials must fail.
#![allow(clippy::unwrap_used)]

use regress::{NotAlike, Rng, Run, SameLoad, SameLoadTerms, same_load};

const PAIRS: u64 = 20;
/// One in twenty.
const FALSE_MAX: usize = 1;
/// What the server would reach, requests/s.
const CAPACITY: f64 = 60_000.0;

/// A server and its load.
#[derive(Clone, Copy)]
struct Made {
    /// Highest rate, as a share of the capacity.
    reach: f64,
    rows: usize,
    /// CPU time of a request, relative to the first version.
    cost: f64,
    connections: f64,
    schedule: Schedule,
}

#[derive(Clone, Copy)]
enum Schedule {
    Rising,
    /// Up and down, twice.
    Waves,
    Steps,
}

const MADE: Made =
    Made { reach: 0.6, rows: 60, cost: 1.0, connections: 64.0, schedule: Schedule::Rising };

struct Trial {
    rate: Vec<f64>,
    cost: Vec<f64>,
    wakes: Vec<f64>,
}

impl Trial {
    fn run(&self) -> Run<'_> {
        Run { rate: &self.rate, cost: &self.cost, wakes: Some(&self.wakes), seconds: 1.0 }
    }
}

impl Made {
    fn trial(&self, rng: &mut Rng) -> Trial {
        let level = (0.015 * rng.normal()).exp();
        let mut noise = 0.04 * rng.normal();
        let mut trial = Trial { rate: Vec::new(), cost: Vec::new(), wakes: Vec::new() };
        for row in 0..self.rows {
            let at = (row as f64 + 0.5) / self.rows as f64;
            let share = match self.schedule {
                Schedule::Rising => at,
                Schedule::Waves => 1.0 - (4.0 * at % 2.0 - 1.0).abs(),
                Schedule::Steps => (6.0 * at).ceil() / 6.0,
            };
            let rate = CAPACITY * self.reach * share.max(0.03) * (1.0 + 0.01 * rng.normal());
            // More requests share a wake when the server is busy, or has more connections.
            let each = 0.95 / (1.0 + (self.connections / 40.0) * (rate / CAPACITY));
            let wakes = rate * each * (1.0 + 0.02 * rng.normal());
            noise = 0.3 * noise + 0.04 * (1.0_f64 - 0.3 * 0.3).sqrt() * rng.normal();
            let request = 9e-6 + 1.5e-6 * rate / CAPACITY;
            let used = 0.004 + self.cost * request * rate + 11e-6 * wakes;
            trial.rate.push(rate);
            trial.cost.push(used * level * noise.exp());
            trial.wakes.push(wakes);
        }
        trial
    }
}

fn compared(before: &Trial, after: &Trial, seed: u64) -> Result<SameLoad, NotAlike> {
    let terms = SameLoadTerms { level: 0.95, between_run: None, seed };
    same_load(&before.run(), &after.run(), &terms)
}

/// The interval that decides: with the largest change that the wakes explain.
fn ends(found: &SameLoad) -> (f64, f64) {
    let (low, high) = found.ratio_of_runs.interval.bounds().unwrap();
    (low / found.wakes_explain.max(1.0), high / found.wakes_explain.min(1.0))
}

/// In how many of the pairs the interval is above 1, and below it.
fn changed(before: Made, after: Made) -> (usize, usize) {
    let (mut above, mut below) = (0, 0);
    for seed in 0..PAIRS {
        let mut rng = Rng::new(seed);
        let (one, other) = (before.trial(&mut rng), after.trial(&mut rng));
        let (low, high) = ends(&compared(&one, &other, seed).unwrap());
        above += usize::from(low > 1.0);
        below += usize::from(high < 1.0);
    }
    (above, below)
}

#[test]
fn an_unchanged_server_is_rarely_called_changed() {
    let low = Made { reach: 0.3, ..MADE };
    let many = Made { connections: 256.0, ..MADE };
    let waves = Made { schedule: Schedule::Waves, ..MADE };
    let steps = Made { schedule: Schedule::Steps, ..MADE };
    let long = Made { rows: 300, ..MADE };
    for (what, before, after) in [
        ("the same load", MADE, MADE),
        ("30 and 60 % of the capacity", low, MADE),
        ("60 and 30 %", MADE, low),
        ("64 and 256 connections", MADE, many),
        ("256 and 64 connections, other reach", Made { reach: 0.3, ..many }, MADE),
        ("a ramp and waves", MADE, waves),
        ("steps and a ramp of other reach", Made { reach: 0.3, ..steps }, MADE),
        ("one minute and five", MADE, long),
    ] {
        let (above, below) = changed(before, after);
        assert!(above + below <= FALSE_MAX, "{what}: {above} and {below} of {PAIRS}");
    }
}

#[test]
fn a_tenth_is_found_in_nine_of_ten() {
    // All of a request's cost grows by a tenth, including its wakes.
    let low = Made { reach: 0.3, ..MADE };
    let waves = Made { schedule: Schedule::Waves, ..MADE };
    let pairs = [(MADE, MADE), (low, MADE), (MADE, waves)];
    let mut found = [[0, 0]; 3];
    for ((before, after), found) in pairs.into_iter().zip(&mut found) {
        for seed in 0..PAIRS {
            let mut rng = Rng::new(seed);
            let (one, mut other) = (before.trial(&mut rng), after.trial(&mut rng));
            other.cost.iter_mut().for_each(|cost| *cost *= 1.1);
            found[0] += u64::from(ends(&compared(&one, &other, seed).unwrap()).0 > 1.0);
            found[1] += u64::from(ends(&compared(&other, &one, seed).unwrap()).1 < 1.0);
        }
    }
    let share = found.as_flattened().iter().sum::<u64>() as f64 / (6 * PAIRS) as f64;
    assert!(share >= 0.9, "{found:?} of {PAIRS}");
}

/// A trial with `rows` of rates between two ends, and a cost of `us` per request.
fn plain(rows: usize, low: f64, high: f64, us: f64) -> Trial {
    let rate: Vec<f64> =
        (0..rows).map(|row| low + (high - low) * row as f64 / (rows - 1) as f64).collect();
    let mut rng = Rng::new(rows as u64);
    let cost = rate.iter().map(|x| 1e-6 * us * x * (1.0 + 0.01 * rng.normal())).collect();
    let wakes = rate.iter().map(|x| 0.8 * x).collect();
    Trial { rate, cost, wakes }
}

#[test]
fn loads_with_too_little_in_common_are_not_compared() {
    let low = plain(60, 500.0, 9_000.0, 20.0);
    let apart = compared(&low, &plain(60, 20_000.0, 40_000.0, 20.0), 1);
    let Err(NotAlike::Ranges { before, after, n }) = apart else { panic!("{apart:?}") };
    assert_eq!((before, after, n), ((500.0, 9_000.0), (20_000.0, 40_000.0), [0, 0]));
    // Enough rows, but a narrow part of both.
    let touching =
        compared(&plain(600, 500.0, 9_000.0, 20.0), &plain(600, 8_000.0, 40_000.0, 20.0), 1);
    assert!(matches!(touching, Err(NotAlike::Ranges { n: [71, 19], .. })), "{touching:?}");
    // A narrow range is enough if both trials are mostly there.
    let same = compared(&plain(60, 4_950.0, 5_050.0, 20.0), &plain(60, 4_960.0, 5_060.0, 25.0), 1);
    let same = same.unwrap();
    assert!((same.ratio.value - 1.25).abs() < 0.02, "{:?}", same.ratio);
    assert!((1e6 * same.cost[0] - 20.0).abs() < 0.5, "{:?}", same.cost);
}

#[test]
fn fewer_wakes_explain_only_a_cheaper_request() {
    let before = plain(60, 500.0, 9_000.0, 20.0);
    let mut fewer = plain(60, 500.0, 9_000.0, 16.0);
    fewer.wakes.iter_mut().for_each(|wakes| *wakes /= 2.0);
    let cheaper = compared(&before, &fewer, 1).unwrap();
    let [one, other] = cheaper.wakes.unwrap();
    assert!((one - 0.8).abs() < 1e-6 && (other - 0.4).abs() < 1e-6, "{one} {other}");
    assert!((cheaper.wakes_explain - 0.625).abs() < 1e-6, "{}", cheaper.wakes_explain);
    let (low, high) = ends(&cheaper);
    assert!(low < 0.8 && high > 1.0, "{low} {high}");
    // The other way round, more wakes explain the more expensive request.
    let back = compared(&fewer, &before, 1).unwrap();
    assert!((back.wakes_explain * cheaper.wakes_explain - 1.0).abs() < 1e-6);
    assert!(ends(&back).0 < 1.0);
    // A server that hardly ever sleeps: 0.002 or 0.001 wakes of 100 us explain nothing.
    let [mut busy, mut busier] = [plain(60, 500.0, 9_000.0, 20.0), plain(60, 500.0, 9_000.0, 16.0)];
    busy.wakes.iter_mut().for_each(|wakes| *wakes *= 0.0025);
    busier.wakes.iter_mut().for_each(|wakes| *wakes *= 0.00125);
    assert!(ends(&compared(&busy, &busier, 1).unwrap()).1 < 0.9);
    // Fewer wakes and a more expensive request: nothing explains that.
    let mut worse = plain(60, 500.0, 9_000.0, 24.0);
    worse.wakes = fewer.wakes;
    assert!(ends(&compared(&before, &worse, 1).unwrap()).0 > 1.1);
}

#[test]
fn the_sd_between_runs_is_that_of_slow_changes() {
    let terms = |between_run| SameLoadTerms { level: 0.95, between_run, seed: 1 };
    let sd = |trial: &Trial, between_run| {
        same_load(&trial.run(), &trial.run(), &terms(between_run)).unwrap().between_run
    };
    let steady = plain(300, 500.0, 9_000.0, 20.0);
    assert!((sd(&steady, None) - 0.0175).abs() < 1e-9);
    assert_eq!(sd(&steady, Some(0.0)), 0.0);
    assert_eq!(sd(&plain(40, 500.0, 9_000.0, 20.0), None), 0.03, "too short for an estimate");
    // A machine that is slower by a fifth for half a minute at a time.
    let mut slow = steady;
    for (row, cost) in slow.cost.iter_mut().enumerate() {
        *cost *= if row / 30 % 2 == 1 { 1.2 } else { 1.0 };
    }
    let found = sd(&slow, None);
    assert!((0.025..0.12).contains(&found), "{found}");
}

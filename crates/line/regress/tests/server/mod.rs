//! A simulated event-driven server on one CPU with a known saturation, for tests of load lines.
//!
//! It sleeps when nothing is queued. An arrival wakes it, which costs `wake_s`, and it runs its
//! event loop: each turn costs `turn_s`, takes all queued requests and serves each in `request_s`.
//! More requests arrive while it works. So as load rises, wakes become fewer and batches larger,
//! and at saturation, with `connections` requests always waiting, there are no wakes.
//!
//! Real servers are noisier than queues: all costs of an interval are multiplied by a level of the
//! run (which differs between runs) and by autocorrelated noise of the interval.

use regress::Rng;

#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) request_s: f64,
    pub(crate) wake_s: f64,
    pub(crate) turn_s: f64,
    pub(crate) connections: f64,
}

#[derive(Clone, Copy)]
pub(crate) struct Noise {
    /// Sd of the level of a run, relative.
    pub(crate) run_sd: f64,
    /// Sd of an interval around the level, relative.
    pub(crate) interval_sd: f64,
    /// Lag-one correlation of the noise of intervals.
    pub(crate) rho: f64,
}

#[derive(Default)]
pub(crate) struct Run {
    pub(crate) rate: Vec<f64>,
    pub(crate) cost: Vec<f64>,
    pub(crate) wakes: Vec<f64>,
}

/// The noise of one run: a level with an AR(1) around it.
pub(crate) struct Factors {
    noise: Noise,
    level: f64,
    state: f64,
}

impl Factors {
    pub(crate) fn new(noise: Noise, rng: &mut Rng) -> Factors {
        let level = 1.0 + noise.run_sd * rng.normal();
        Factors { noise, level, state: noise.interval_sd * rng.normal() }
    }

    pub(crate) fn next(&mut self, rng: &mut Rng) -> f64 {
        let Noise { interval_sd, rho, .. } = self.noise;
        let fresh = interval_sd * (1.0 - rho * rho).sqrt();
        self.state = rho * self.state + fresh * rng.normal();
        self.level * (1.0 + self.state)
    }
}

impl Server {
    /// Requests per second if every connection always has a request waiting.
    pub(crate) fn saturation(&self) -> f64 {
        1.0 / (self.request_s + self.turn_s / self.connections)
    }

    /// The rate at which about `share` of the CPU is used, by bisection on short noiseless runs.
    pub(crate) fn rate_at(&self, share: f64, rng: &mut Rng) -> f64 {
        let (mut low, mut high) = (0.0, self.saturation());
        for _ in 0..12 {
            let middle = 0.5 * (low + high);
            let [cost, _] = self.interval(middle, 2.0, 1.0, rng);
            if cost < share { low = middle } else { high = middle }
        }
        0.5 * (low + high)
    }

    /// One run of one-second intervals at these rates, each `repeat` times.
    pub(crate) fn run(&self, rates: &[f64], repeat: usize, noise: Noise, rng: &mut Rng) -> Run {
        let mut factors = Factors::new(noise, rng);
        let mut run = Run::default();
        for &rate in rates {
            for _ in 0..repeat {
                let offered = rate * (1.0 + 0.01 * rng.normal());
                let [cost, wakes] = self.interval(offered, 1.0, factors.next(rng), rng);
                run.rate.push(offered);
                run.cost.push(cost);
                run.wakes.push(wakes);
            }
        }
        run
    }

    /// One saturated interval of a separate run: requests per second.
    pub(crate) fn saturated_interval(&self, noise: Noise, rng: &mut Rng) -> f64 {
        let mut factors = Factors::new(noise, rng);
        self.saturation() / factors.next(rng)
    }

    /// CPU seconds and wakes per second over an interval of Poisson arrivals.
    fn interval(&self, rate: f64, length_s: f64, factor: f64, rng: &mut Rng) -> [f64; 2] {
        let gap = |rng: &mut Rng| -(1.0 - rng.uniform()).ln() / rate;
        let (mut now, mut busy, mut wakes) = (0.0, 0.0, 0.0);
        let mut arrival = gap(rng);
        while arrival < length_s {
            if arrival >= now {
                now = arrival + self.wake_s * factor;
                busy += self.wake_s * factor;
                wakes += 1.0;
            }
            // A turn takes all requests that have arrived, at least the next one.
            let mut batch = 0.0;
            while arrival <= now && arrival < length_s {
                batch += 1.0;
                arrival += gap(rng);
            }
            let turn = (self.turn_s + batch * self.request_s) * factor;
            now += turn;
            busy += turn;
        }
        [busy, wakes].map(|sum: f64| sum / length_s)
    }
}

//! Durations of responses, by the class of their status and by how the cache took part.
//!
//! Each core has its own table of counters: counting is one addition (and a second one if time has
//! passed). The times are those of the loop's clock, which is read once a turn: a request that is
//! answered in the turn in which it was read took no time. The bounds are powers of two.

use outcome::Outcome;

use super::Count;

/// The first bound is 2 to the power of this, in microseconds: 256 us.
const FIRST_BITS: u32 = 8;
/// Bounds: up to 2^25 us, which is 33 s; one more bucket for longer times.
const BOUNDS: usize = 18;
/// A row: the buckets, then the sum in microseconds.
const ROW: usize = BOUNDS + 2;
/// The classes of status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The values of the label `cache`, in the order of [`Outcome`]. `Denied` counts as `refused`.
const CACHES: [&str; 10] = [
    "hit",
    "not_modified",
    "miss",
    "collapsed",
    "revalidated",
    "replaced",
    "pass",
    "tunnel",
    "own",
    "refused",
];

fn place(outcome: Outcome) -> usize {
    (outcome as usize).min(Outcome::Refused as usize)
}

/// The table of one core.
#[derive(Debug)]
pub struct Latency {
    cells: Box<[Count]>,
}

impl Default for Latency {
    fn default() -> Latency {
        let cells = std::iter::repeat_with(Count::default);
        Latency { cells: cells.take(CLASSES.len() * CACHES.len() * ROW).collect() }
    }
}

/// One histogram, all cores together.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The class of the status, such as `2xx`.
    pub status: &'static str,
    /// How the cache took part.
    pub cache: &'static str,
    /// Upper bounds in seconds, and the count of each bucket; the last bound is infinity.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all times.
    pub sum_seconds: f64,
}

impl Histogram {
    /// The number of responses.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl Latency {
    /// Counts one response.
    #[inline]
    pub fn count(&self, outcome: Outcome, status: u16, elapsed_us: u64) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        let row = (class * CACHES.len() + place(outcome)) * ROW;
        self.cells[row + bucket(elapsed_us)].add(1);
        if elapsed_us > 0 {
            self.cells[row + ROW - 1].add(elapsed_us);
        }
    }

    /// All responses of these cores but tunnels in one histogram: upper bounds in seconds, and the
    /// count of each bucket.
    pub fn all<'c>(cores: impl Iterator<Item = &'c Latency>) -> Vec<(f64, u64)> {
        let mut counts = [0; BOUNDS + 1];
        cores.for_each(|core| core.add_to(&mut counts));
        (0..=BOUNDS).map(bound_seconds).zip(counts).collect()
    }

    fn add_to(&self, counts: &mut [u64]) {
        for (row, cells) in self.cells.chunks_exact(ROW).enumerate() {
            if row % CACHES.len() != place(Outcome::Tunnel) {
                counts.iter_mut().zip(cells).for_each(|(count, cell)| *count += cell.get());
            }
        }
    }

    /// The sums of the tables of these cores, without empty histograms.
    pub fn histograms<'c>(cores: impl Iterator<Item = &'c Latency> + Clone) -> Vec<Histogram> {
        let mut all = Vec::new();
        for (class, status) in CLASSES.into_iter().enumerate() {
            for (place, cache) in CACHES.into_iter().enumerate() {
                let row = (class * CACHES.len() + place) * ROW;
                let sum =
                    |cell: usize| cores.clone().map(|core| core.cells[row + cell].get()).sum();
                let buckets = (0..=BOUNDS).map(|at| (bound_seconds(at), sum(at))).collect();
                let sum_us: u64 = sum(ROW - 1);
                let sum_seconds = sum_us as f64 / 1e6;
                let histogram = Histogram { status, cache, buckets, sum_seconds };
                if histogram.count() > 0 {
                    all.push(histogram);
                }
            }
        }
        all
    }
}

/// The first bucket whose bound is not exceeded.
#[inline]
fn bucket(elapsed_us: u64) -> usize {
    let above = elapsed_us.saturating_sub(1) >> FIRST_BITS;
    ((u64::BITS - above.leading_zeros()) as usize).min(BOUNDS)
}

fn bound_seconds(bucket: usize) -> f64 {
    if bucket == BOUNDS {
        return f64::INFINITY;
    }
    (1u64 << (FIRST_BITS + bucket as u32)) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_label() {
        let label = |outcome| CACHES[place(outcome)];
        for (outcome, name) in [
            (Outcome::Hit, "hit"),
            (Outcome::NotModified, "not_modified"),
            (Outcome::Miss, "miss"),
            (Outcome::Collapsed, "collapsed"),
            (Outcome::Revalidated, "revalidated"),
            (Outcome::Replaced, "replaced"),
            (Outcome::Pass, "pass"),
            (Outcome::Tunnel, "tunnel"),
            (Outcome::Own, "own"),
            (Outcome::Refused, "refused"),
            (Outcome::Denied, "refused"),
        ] {
            assert_eq!(label(outcome), name);
        }
    }

    #[test]
    fn each_time_is_in_the_first_bucket_that_contains_it() {
        for us in [0, 1, 255, 256, 257, 511, 512, 513, 1 << 20, (1 << 25) - 1, 1 << 25] {
            let at = bucket(us);
            assert!(us as f64 / 1e6 <= bound_seconds(at), "{us}");
            assert!(at == 0 || us as f64 / 1e6 > bound_seconds(at - 1), "{us}");
        }
        assert_eq!(bucket((1 << 25) + 1), BOUNDS);
        assert_eq!(bucket(u64::MAX), BOUNDS);
    }

    #[test]
    fn cores_are_added_up_by_class_and_outcome() {
        let (a, b) = (Latency::default(), Latency::default());
        a.count(Outcome::Hit, 200, 0);
        b.count(Outcome::Hit, 206, 300);
        b.count(Outcome::Refused, 503, 40_000_000);
        b.count(Outcome::Pass, 999, 1);
        let all = Latency::histograms([&a, &b].into_iter());
        let counts: Vec<_> = all.iter().map(|h| (h.status, h.cache, h.count())).collect();
        assert_eq!(counts, [("2xx", "hit", 2), ("5xx", "pass", 1), ("5xx", "refused", 1)]);
        assert_eq!(all[0].buckets[..2], [(0.000_256, 1), (0.000_512, 1)]);
        assert_eq!(all[0].sum_seconds, 0.0003);
        assert_eq!(all[2].buckets[BOUNDS], (f64::INFINITY, 1));
        b.count(Outcome::Tunnel, 200, 300);
        let merged = Latency::all([&a, &b].into_iter());
        let counts: Vec<_> = merged.iter().map(|(_, count)| *count).collect();
        assert_eq!((&counts[..3], counts[BOUNDS]), (&[2, 1, 0][..], 1));
    }
}

//! The processor's counters by procedure: where in the server each of them overflows.
//!
//! Every kind that counts has its own event on each CPU, sampled as often as the profile: a sample
//! says how much was counted since the last one, and where the counter overflowed. Reading the
//! counters with the profile's samples would not work: between two of those a thousand procedures
//! run, and the last one would get the whole count.
//!
//! The period is constant between two boundaries and recomputed at each. If the kernel adapted it
//! from sample to sample, the periods of a count that comes in bursts would add up to more than
//! twice the actual count.
//!
//! Only the innermost procedure is kept, and only the server's. If the processor's counters are
//! multiplexed, the uncounted part is missing from all procedures alike.

use std::collections::HashMap;

use trial::Writer;
use trial::counters::{CountedRow, Kind};

use super::event::{EventId, Events, attributes, sample_innermost, why};
use crate::error::Unsupported;

/// The first period of a counter.
pub(super) const PERIOD_FIRST: u64 = 1_000_000;

/// Bounds of the later periods.
const PERIODS: std::ops::RangeInclusive<f64> = 100.0..=1e10;

/// The period changes if there were this many times too many or too few samples, by at most this
/// factor.
const OFF_BY: f64 = 2.0;
const STEP_MAX: f64 = 10.0;

/// The events of every kind, and their samples.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) counters: Vec<Counter>,
    hz: u32,
    /// When the current interval began.
    begun_ns: i64,
    /// For the current interval and the next one: samples and counts by kind and stack.
    tally: HashMap<(Kind, u32), (u32, u64)>,
    next: HashMap<(Kind, u32), (u32, u64)>,
}

/// The events of one kind.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) kind: Kind,
    pub(super) events: Events,
    /// Samples of all processes since the interval began.
    pub(super) samples: u64,
    period: u64,
}

impl Counted {
    /// Opens and enables events for each of these kinds.
    pub(super) fn open(
        kinds: &[(Kind, EventId)],
        hz: u32,
        period: u64,
    ) -> Result<Counted, Unsupported> {
        let mut counted = Counted { hz, ..Counted::default() };
        for &(kind, what) in kinds {
            let mut attributes = attributes(what);
            sample_innermost(&mut attributes);
            attributes.__bindgen_anon_1.sample_period = period;
            let opened = Events::of(&mut attributes, hz).and_then(|events| {
                events.enable()?;
                Ok(events)
            });
            let events =
                opened.map_err(|error| Unsupported(format!("{}: {}", kind.name(), why(&error))))?;
            counted.counters.push(Counter { kind, events, samples: 0, period });
        }
        Ok(counted)
    }

    /// Begins the first interval.
    pub(super) fn begin(&mut self, now_ns: i64) {
        self.begun_ns = now_ns;
        self.counters.iter_mut().for_each(|counter| counter.samples = 0);
    }

    /// Adds a sample that represents `count` events, in this interval or after its end.
    pub(super) fn add(&mut self, kind: Kind, stack: u32, count: u64, within: bool) {
        let tally = if within { &mut self.tally } else { &mut self.next };
        let (samples, counts) = tally.entry((kind, stack)).or_default();
        *samples += 1;
        *counts += count;
    }

    /// Ends the interval: writes the counts and adapts the periods to them.
    pub(super) fn interval(
        &mut self,
        interval: u64,
        end_ns: i64,
        writer: &mut Writer,
    ) -> Result<(), trial::Error> {
        let length_s = (end_ns - self.begun_ns) as f64 / 1e9;
        for counter in &mut self.counters {
            let wanted = f64::from(self.hz) * counter.events.cpus() as f64 * length_s;
            if let Some(period) = period_for(counter.period, counter.samples as f64 / wanted)
                && counter.events.set_period(period).is_ok()
            {
                counter.period = period;
            }
        }
        self.begin(end_ns);
        let tally = std::mem::replace(&mut self.tally, std::mem::take(&mut self.next));
        let row = |((kind, stack), (samples, count))| CountedRow {
            interval,
            kind,
            stack,
            samples,
            count,
        };
        writer.counted(&tally.into_iter().map(row).collect::<Vec<_>>())
    }
}

/// The new period, if this one gave `times` the wanted samples and that is too far off.
fn period_for(period: u64, times: f64) -> Option<u64> {
    let times = if times.is_finite() { times.clamp(1.0 / STEP_MAX, STEP_MAX) } else { 1.0 };
    let new = (period as f64 * times).clamp(*PERIODS.start(), *PERIODS.end()) as u64;
    (!(1.0 / OFF_BY..=OFF_BY).contains(&times) && new != period).then_some(new)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use perf_event_open_sys::bindings as sys;
    use trial::{Interval, Manifest, Trial};

    use super::super::{Profile, ProfileSpec};
    use super::*;
    use crate::clock;
    use crate::server::Target;

    const LOOP_NS: i64 = 200_000_000;

    /// Uses CPU time without any call except to the clock.
    #[inline(never)]
    fn the_known_cpu_loop() {
        let begun_ns = clock::thread_cpu_ns();
        let mut number = 1_u64;
        while clock::thread_cpu_ns() - begun_ns < LOOP_NS {
            let mut round = 0;
            while round < 100_000 {
                round += 1;
                number ^= number << 13;
                number ^= number >> 7;
                number ^= number << 17;
            }
        }
        black_box(number);
    }

    /// The samples of the loop in an interval, and the events they represent.
    fn samples_of_the_loop(trial: &Trial, interval: u64) -> (u64, u64) {
        let named = |stack: u32| {
            let frame = trial.stacks()[stack as usize].frames[0];
            let symbol = trial.frames()[frame as usize].symbol.as_deref();
            symbol.is_some_and(|symbol| symbol.contains("the_known_cpu_loop"))
        };
        let rows = trial.counted().iter();
        let own = rows.filter(|row| row.interval == interval && named(row.stack));
        own.fold((0, 0), |sum, row| (sum.0 + u64::from(row.samples), sum.1 + row.count))
    }

    /// The kernel's clock replaces counters that not every machine has; the path is the same.
    #[test]
    fn a_count_is_attributed_to_the_procedure_in_which_it_overflowed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("counted.trial");
        let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
        let own = std::process::id();
        let spec = ProfileSpec { hz: 49 };
        let mut profile = match Profile::start(spec, &Target::Pid(own), &[own]) {
            Ok(profile) => profile,
            Err(Unsupported(why)) => return eprintln!("skipped: {why}"),
        };
        // Ten times as often as requested.
        let clock = (sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_CPU_CLOCK));
        let often = 1_000_000;
        profile.counted = Counted::open(&[(Kind::Cycles, clock)], spec.hz, often).unwrap();
        profile.begin(&mut writer, clock::monotonic_ns()).unwrap();
        for index in 0..2 {
            the_known_cpu_loop();
            profile.interval(&mut writer, index, clock::monotonic_ns(), &[own]).unwrap();
            writer.append(&Interval { index, ..Interval::default() }).unwrap();
        }
        let seldom = profile.counted.counters[0].period;
        writer.finish().unwrap();
        assert!(seldom > often, "{seldom}");

        let trial = Trial::open(&path).unwrap();
        let (samples, ns) = samples_of_the_loop(&trial, 0);
        assert_eq!(ns, samples * often);
        // A virtual CPU that is not scheduled misses some.
        assert!(2 * ns > LOOP_NS as u64 && ns < 2 * LOOP_NS as u64, "{ns} ns");
        let (samples, ns) = samples_of_the_loop(&trial, 1);
        assert!(samples > 0 && ns > 0);
        let of_last = samples_of_the_loop(&Trial::recent(&path, 1).unwrap(), 1);
        assert_eq!(of_last, (samples, ns), "numbered again, and the same procedure");
    }

    #[test]
    fn a_period_adapts_to_the_samples_within_bounds() {
        assert_eq!(period_for(1_000, 1.9), None, "near enough");
        assert_eq!(period_for(1_000, 3.0), Some(3_000));
        assert_eq!(period_for(1_000, 0.0), Some(100), "no sample: a tenth at most");
        assert_eq!(period_for(100, 0.0), None, "the least");
        assert_eq!(period_for(1_000, f64::INFINITY), None, "an interval of no length says nothing");
        assert_eq!(period_for(9_000_000_000, 50.0), Some(10_000_000_000));
    }
}

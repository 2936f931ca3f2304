//! Predictions from the kept trials, and how far each is from the measured saturation.
//!
//! The report's own analysis predicts, as for a user. Three simple predictions from the same fitted
//! intervals are the baselines:
//!
//! - *straight*: the straight line of CPU use on the rate, extrapolated to the cap;
//! - *single*: the highest rate over the CPU use in that interval, times the cap;
//! - *USL*: Gunther's universal scalability law: with N requests at a time, a request takes
//!   1 + σ(N − 1) + κN(N − 1) times as long as alone. At CPU use u an arriving request meets u
//!   others on average, so N = 1 + u, and its CPU time, use over rate, is A + Bu + Cu(1 + u) with
//!   B = Aσ and C = Aκ. It is fitted by least squares on the use, with B and C not negative, as
//!   delays by contention and coherence are in the law. The capacity is the rate where u = 1.
//!
//! What never happens: a doubtful case counts in the summary; a case without a prediction counts as
//! one that held.

use std::path::Path;

use regress::{Design, least_squares};
use report::{Analysis, CapacityFigure, Latency, Options, Standing};
use serde::Serialize;
use trial::Trial;

use super::collect::{Case, MOVED_MAX, Ramp};

/// At saturation a server uses at least this part of its CPU. Otherwise something else limited it.
const SATURATED_MIN: f64 = 0.9;
/// The generator answers for a load if less than this part of its requests was completed.
const COMPLETED_MIN: f64 = 0.98;
/// The same if more than this part of the requests was started late.
const LATE_MAX: f64 = 0.1;

/// A neighbour disturbs a server if it uses at least this part of the server's CPU.
const NEIGHBOUR_MIN: f64 = 0.1;

/// A prediction compared with what was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Judged {
    /// The server.
    pub(super) server: String,
    /// Size of the body of a response, bytes.
    pub(super) body_bytes: u64,
    /// Connections.
    pub(super) connections: u32,
    /// How far the load rose, percent of saturation.
    pub(super) reach: u32,
    /// Whether it was recorded beside a neighbour.
    pub(super) neighbour: bool,
    /// The measured saturation, requests a second.
    pub(super) measured: f64,
    /// The report's capacity, if it has one.
    pub(super) predicted: Option<f64>,
    /// Lower end of its interval.
    pub(super) low: Option<f64>,
    /// Upper end of its interval.
    pub(super) high: Option<f64>,
    /// Whether the interval contains the measured saturation; `None` without an interval.
    pub(super) inside: Option<bool>,
    /// The report's model: `straight` or `wakes`.
    pub(super) model: &'static str,
    /// Whether the report has no doubt about it.
    pub(super) trusted: bool,
    /// The resource that is exhausted first, by the report.
    pub(super) resource: String,
    /// The baseline *straight*.
    pub(super) straight: Option<f64>,
    /// The baseline *single*.
    pub(super) single: Option<f64>,
    /// The baseline *USL*.
    pub(super) usl: Option<f64>,
    /// The report's capacity without what was seen after holds, if the server was held.
    pub(super) unheld: Option<Capacity>,
    /// The reason if there is no prediction.
    pub(super) why: Option<String>,
    /// Why the measurement is doubtful. Such a case does not count.
    pub(super) doubts: Vec<String>,
    /// The highest rate of the load, requests a second.
    pub(super) top: f64,
    /// The latencies, and those that are predicted.
    #[serde(skip)]
    pub(super) latency: Option<Latency>,
}

/// A predicted capacity, requests a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Capacity {
    /// The value, if there is one.
    pub(super) value: Option<f64>,
    /// Lower end of its interval.
    pub(super) low: Option<f64>,
    /// Upper end of its interval.
    pub(super) high: Option<f64>,
}

/// How good the intervals are.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cover {
    /// Intervals.
    pub(super) intervals: usize,
    /// Those that contain the measured saturation.
    pub(super) inside: usize,
    /// Mean width relative to the measured saturation, percent, of those with both ends.
    pub(super) width_percent: Option<f64>,
    /// Median absolute error of the values, percent.
    pub(super) error_percent: Option<f64>,
}

/// Absolute errors in percent: the medians over predictions. `None` without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Errors {
    /// Of the report.
    pub(super) report: Option<f64>,
    /// Of the straight line.
    pub(super) straight: Option<f64>,
    /// Of the single point.
    pub(super) single: Option<f64>,
    /// Of the universal scalability law.
    pub(super) usl: Option<f64>,
}

/// The predictions of a band of reach.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Band {
    /// Its name.
    pub(super) name: &'static str,
    /// Trials that count.
    pub(super) trials: usize,
    /// Trials that are doubtful, and do not count.
    pub(super) doubtful: usize,
    /// Trials without a prediction.
    pub(super) without: usize,
    /// Trials with an interval.
    pub(super) intervals: usize,
    /// Intervals that contain the measured saturation.
    pub(super) inside: usize,
    /// Intervals without an upper end.
    pub(super) unbounded: usize,
    /// Mean width of the others relative to the measured saturation, percent.
    pub(super) width_percent: Option<f64>,
    /// Median absolute errors.
    pub(super) errors: Errors,
    /// The same predictions without holds; `None` if no server was held.
    pub(super) unheld: Option<Cover>,
}

impl Judged {
    /// The relative error of a prediction, percent.
    pub(super) fn error(&self, predicted: Option<f64>) -> Option<f64> {
        predicted.map(|predicted| 100.0 * (predicted / self.measured - 1.0))
    }

    /// The number of its band, from 0.
    pub(super) fn band(&self) -> usize {
        match self.reach {
            0..=30 => 0,
            31..=45 => 1,
            _ => 2,
        }
    }
}

/// The names of the bands.
pub(super) const BANDS: [&str; 3] = ["20 to 30 %", "30 to 45 %", "45 to 60 %"];

/// Judges every trial of the cases, which are in a directory.
pub(super) fn judge(directory: &Path, cases: &[Case]) -> Vec<Judged> {
    let each = cases.iter().flat_map(|case| case.ramps.iter().map(move |ramp| (case, ramp)));
    each.map(|(case, ramp)| of_trial(&directory.join(&ramp.trial), case, ramp)).collect()
}

fn of_trial(path: &Path, case: &Case, ramp: &Ramp) -> Judged {
    let judged = Judged {
        server: case.server.clone(),
        body_bytes: case.body_bytes,
        connections: case.connections,
        reach: ramp.reach,
        neighbour: ramp.neighbour,
        measured: case.measured(),
        doubts: doubts(case, ramp),
        top: ramp.top,
        ..Judged::default()
    };
    let analyse = |trial: &Trial| {
        report::analyse(trial, &Options::default()).map_err(|error| error.to_string())
    };
    let trial = match Trial::open(path) {
        Ok(trial) => trial,
        Err(error) => return Judged { why: Some(error.to_string()), ..judged },
    };
    let judged = match analyse(&trial) {
        Ok(analysis) => judged.with(&analysis),
        Err(why) => Judged { why: Some(why), ..judged },
    };
    let was_held = trial.stretches().iter().any(|row| row.held);
    let unheld = was_held.then(|| analyse(&trial.without_holds()).ok()).flatten();
    let unheld = unheld.map(|analysis| {
        let CapacityFigure { value, low, high, .. } = analysis.capacity;
        Capacity { value, low, high }
    });
    Judged { unheld, ..judged }
}

impl Judged {
    fn with(self, analysis: &Analysis) -> Judged {
        let capacity = &analysis.capacity;
        let points = points(analysis);
        Judged {
            predicted: capacity.value,
            low: capacity.low,
            high: capacity.high,
            inside: inside((capacity.low, capacity.high), self.measured),
            model: capacity.model,
            trusted: capacity.trusted,
            resource: capacity.resource_name.clone(),
            straight: analysis.capacity_straight.value,
            single: single_point(&points),
            usl: usl(&points),
            why: capacity.reason.clone(),
            latency: analysis.latency.clone(),
            ..self
        }
    }
}

/// Whether an interval contains a value. One without ends says nothing.
fn inside((low, high): (Option<f64>, Option<f64>), value: f64) -> Option<bool> {
    (low.is_some() || high.is_some())
        .then(|| low.is_none_or(|low| low <= value) && high.is_none_or(|high| value <= high))
}

/// Why the measurement of a case or of one of its trials is doubtful.
fn doubts(case: &Case, ramp: &Ramp) -> Vec<String> {
    let mut doubts = Vec::new();
    if case.moved() > MOVED_MAX {
        doubts.push(format!("saturation moved by {:.0} %", 100.0 * case.moved()));
    }
    let used = case.saturation.iter().map(|saturation| saturation.cpus).fold(f64::MAX, f64::min);
    if used < SATURATED_MIN {
        doubts.push(format!("at saturation it used only {:.0} % of its CPU", 100.0 * used));
    }
    let of_intended = |part: u64| part as f64 / ramp.intended.max(1) as f64;
    let (completed, late) = (of_intended(ramp.completed), of_intended(ramp.late_starts));
    if completed < COMPLETED_MIN || late > LATE_MAX {
        doubts.push(format!(
            "the generator limited it: {:.0} % completed, {:.0} % started late",
            100.0 * completed,
            100.0 * late
        ));
    }
    if let Some(cpus) = ramp.neighbour_cpus.filter(|cpus| *cpus < NEIGHBOUR_MIN) {
        doubts.push(format!("the neighbour used only {:.0} % of the CPU", 100.0 * cpus));
    }
    doubts
}

/// The rate of each fitted interval, and the part of the resource that was used.
fn points(analysis: &Analysis) -> Vec<(f64, f64)> {
    let fitted = analysis
        .intervals
        .iter()
        .filter(|row| matches!(row.standing, Standing::Fit | Standing::SetAside));
    fitted.filter_map(|row| Some((row.rate, (row.user? + row.kernel?) / 100.0))).collect()
}

/// The rate of a whole resource by the interval with the highest rate.
fn single_point(points: &[(f64, f64)]) -> Option<f64> {
    let (rate, used) = points.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    (*used > 0.0 && *rate > 0.0).then(|| rate / used)
}

/// The rate of a whole resource by the universal scalability law.
fn usl(points: &[(f64, f64)]) -> Option<f64> {
    let points: Vec<(f64, f64)> =
        points.iter().copied().filter(|(rate, used)| *rate > 0.0 && *used > 0.0).collect();
    let cost: Vec<f64> = points.iter().map(|(rate, used)| used / rate).collect();
    let weights: Vec<f64> = points.iter().map(|(rate, _)| rate * rate).collect();
    let contention: Vec<f64> = points.iter().map(|(_, used)| *used).collect();
    let coherence: Vec<f64> = points.iter().map(|(_, used)| used * (1.0 + used)).collect();
    // The least sum of squares with coefficients that are not negative is that of one of these. Of
    // each: the regressors, and their values at full use.
    let sets: [(&[&[f64]], &[f64]); 3] = [
        (&[&contention, &coherence], &[1.0, 2.0]),
        (&[&contention], &[1.0]),
        (&[&coherence], &[2.0]),
    ];
    let fits = sets.iter().filter_map(|(set, full)| fitted(set, full, &cost, &weights));
    let best = fits.chain(constant(&cost, &weights)).min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(1.0 / best.0)
}

/// The same without contention and coherence delays: each request costs the same.
fn constant(cost: &[f64], weights: &[f64]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        cost.iter().zip(weights).map(|(cost, weight)| of(*cost, *weight)).sum()
    };
    let mean = sum(&|cost, weight| weight * cost) / sum(&|_, weight| weight);
    (mean > 0.0).then(|| (mean, sum(&|cost, weight| weight * (cost - mean).powi(2))))
}

/// The cost at full use and the weighted sum of squares, if no coefficient is negative.
fn fitted(
    regressors: &[&[f64]],
    full: &[f64],
    cost: &[f64],
    weights: &[f64],
) -> Option<(f64, f64)> {
    let fit = least_squares(&Design::new(regressors).ok()?, cost, Some(weights)).ok()?;
    let squares = fit.residuals.iter().zip(weights).map(|(r, w)| w * r * r).sum();
    let (alone, others) = fit.coefficients.split_first()?;
    let valid = *alone > 0.0 && others.iter().all(|c| *c >= 0.0);
    let at_full: f64 = alone + others.iter().zip(full).map(|(c, value)| c * value).sum::<f64>();
    valid.then_some((at_full, squares))
}

/// The summary of the loads without a neighbour by reach and over all of them, and of those beside
/// a neighbour.
pub(super) fn bands(judged: &[Judged]) -> Vec<Band> {
    let alone = || judged.iter().filter(|one| !one.neighbour);
    let of_band = |at: usize| alone().filter(move |one| one.band() == at).collect();
    let mut bands: Vec<Band> =
        BANDS.iter().enumerate().map(|(at, name)| band(name, of_band(at))).collect();
    let beside: Vec<&Judged> = judged.iter().filter(|one| one.neighbour).collect();
    bands.push(band("all", alone().collect()));
    if !beside.is_empty() {
        bands.push(band("beside a neighbour", beside));
    }
    bands
}

fn band(name: &'static str, all: Vec<&Judged>) -> Band {
    let counting: Vec<&Judged> = all.iter().copied().filter(|one| one.doubts.is_empty()).collect();
    let count = |of: fn(&Judged) -> bool| counting.iter().filter(|one| of(one)).count();
    let error = |of: fn(&Judged) -> Option<f64>| {
        median(counting.iter().filter_map(|one| one.error(of(one))).map(f64::abs).collect())
    };
    let own = |one: &&Judged| Capacity { value: one.predicted, low: one.low, high: one.high };
    let own: Vec<(f64, Capacity)> = counting.iter().map(|one| (one.measured, own(one))).collect();
    let Cover { intervals, inside, width_percent, error_percent } = cover(&own);
    let unheld: Vec<(f64, Capacity)> =
        counting.iter().filter_map(|one| Some((one.measured, one.unheld?))).collect();
    Band {
        name,
        unheld: (!unheld.is_empty()).then(|| cover(&unheld)),
        trials: counting.len(),
        doubtful: all.len() - counting.len(),
        without: count(|one| one.predicted.is_none()),
        intervals,
        inside,
        unbounded: count(|one| one.low.is_some() && one.high.is_none()),
        width_percent,
        errors: Errors {
            report: error_percent,
            straight: error(|one| one.straight),
            single: error(|one| one.single),
            usl: error(|one| one.usl),
        },
    }
}

/// How good these capacities are, each with what was measured.
fn cover(all: &[(f64, Capacity)]) -> Cover {
    let held: Vec<bool> =
        all.iter().filter_map(|(measured, one)| inside((one.low, one.high), *measured)).collect();
    let widths = all.iter().filter_map(|(measured, one)| Some((one.high? - one.low?) / measured));
    let widths: Vec<f64> = widths.map(|part| 100.0 * part).collect();
    let errors = all.iter().filter_map(|(measured, one)| Some(one.value? / measured - 1.0));
    Cover {
        intervals: held.len(),
        inside: held.iter().filter(|inside| **inside).count(),
        width_percent: (!widths.is_empty())
            .then(|| widths.iter().sum::<f64>() / widths.len() as f64),
        error_percent: median(errors.map(|error| 100.0 * error.abs()).collect()),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (half, odd) = (values.len() / 2, values.len() % 2 == 1);
    let upper = *values.get(half)?;
    Some(if odd { upper } else { f64::midpoint(values[half - 1], upper) })
}

#[cfg(test)]
pub(super) mod tests {
    use trial::{
        Histogram, Interval, LatencyRow, LatencySource, Manifest, ProcessTimes, ThreadTimes, Writer,
    };

    use super::super::collect::Saturation;
    use super::*;

    /// A server that saturates at 1,000 requests/s.
    pub(in super::super) fn case(used: f64) -> Case {
        let saturation = |rate| Saturation { rate, cpus: used, ..Saturation::default() };
        Case { saturation: [saturation(1_000.0); 2], ..Case::default() }
    }

    pub(in super::super) fn ramp(reach: u32) -> Ramp {
        let counts = Ramp { intended: 1000, completed: 995, late_starts: 5, ..Ramp::default() };
        Ramp { reach, trial: "made.trial".into(), ..counts }
    }

    /// A trial whose load rises to a highest rate and falls again. Of each second, a request costs
    /// 1 ms and the rest of the server 2 ms. The latencies are those of a queue.
    pub(in super::super) fn made(path: &Path, top: f64) {
        let mut writer = Writer::create(path, &Manifest::default()).unwrap();
        for index in 0..30u64 {
            let requests = top / 15.0 * (index.min(29 - index) + 1) as f64;
            // A regular disturbance of half a percent, so that intervals have a width.
            let noise = 1.0 + 0.005 * f64::from((index % 3) as i32 - 1);
            let total_ns = ((2e6 + requests * 1e6) * noise) as i64;
            let (user_ns, kernel_ns) = (total_ns / 2, total_ns - total_ns / 2);
            let server = ProcessTimes { total_ns, user_ns, kernel_ns, ..ProcessTimes::default() };
            let times = ThreadTimes { total_ns, user_ns, kernel_ns, ..ThreadTimes::default() };
            let interval = Interval {
                index,
                start_ns: index as i64 * 1_000_000_000,
                length_ns: 1_000_000_000,
                server: Some(server),
                threads: vec![ThreadTimes { pid: 1, tid: 1, ..times }],
                requests,
                rate_valid: true,
                ..Interval::default()
            };
            writer.append(&interval).unwrap();
            writer.latency(&waits(index, requests / 1e3)).unwrap();
        }
        writer.finish().unwrap();
    }

    /// Latencies of an interval in which the server is busy for this share of the time: 3 ms and
    /// the wait of M/M/1.
    fn waits(interval: u64, busy: f64) -> LatencyRow {
        let mut histogram = Histogram::new(3).unwrap();
        for share in (0..2_000).map(|at| (f64::from(at) + 0.5) / 2e3) {
            let wait_us = 1e3 * (busy / share).ln().max(0.0) / (1.0 - busy);
            histogram.record(3_000 + wait_us as u64).unwrap();
        }
        LatencyRow::new(interval, LatencySource::Generator, false, &histogram)
    }

    #[test]
    fn a_made_trial_is_judged_by_the_report_and_by_the_baselines() {
        let home = tempfile::tempdir().unwrap();
        made(&home.path().join("made.trial"), 300.0);
        let case = Case { ramps: vec![ramp(30)], ..case(1.0) };
        let [judged] = &judge(home.path(), &[case])[..] else { panic!("one trial") };
        assert_eq!((judged.inside, judged.measured), (Some(true), 1000.0), "{judged:?}");
        // By the line: (1 - 0.002) / 0.001 = 998. By the point: 300 / 0.302 = 993.
        for (found, wanted) in [
            (judged.predicted, 998.0),
            (judged.straight, 998.0),
            (judged.single, 993.4),
            (judged.usl, 993.0),
        ] {
            let found = found.unwrap();
            assert!((found / wanted - 1.0).abs() < 0.02, "{found} is not {wanted}: {judged:?}");
        }
        assert!(judged.doubts.is_empty(), "{judged:?}");
    }

    #[test]
    fn the_cover_without_holds_leaves_out_what_has_no_interval() {
        let of = |ends: Option<[f64; 3]>| {
            let at = |index: usize| ends.map(|ends| ends[index]);
            (100.0, Capacity { low: at(0), value: at(1), high: at(2) })
        };
        let all = [Some([90.0, 110.0, 130.0]), None, Some([40.0, 50.0, 60.0])].map(of);
        let Cover { intervals, inside, width_percent, error_percent } = cover(&all);
        assert_eq!((intervals, inside), (2, 1));
        let close = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(close(width_percent, 30.0) && close(error_percent, 30.0));
    }

    #[test]
    fn a_trial_that_is_missing_has_no_prediction_and_says_why() {
        let home = tempfile::tempdir().unwrap();
        let case = Case { ramps: vec![ramp(30)], ..case(1.0) };
        let judged = judge(home.path(), &[case]);
        assert_eq!((judged[0].predicted, judged[0].inside), (None, None));
        assert!(judged[0].why.as_ref().unwrap().contains("made.trial"), "{judged:?}");
        let bands = bands(&judged);
        assert_eq!((bands[0].trials, bands[0].without, bands[0].intervals), (1, 1, 0));
        assert_eq!(bands[0].errors, Errors::default());
    }

    #[test]
    fn the_scalability_law_is_found_and_a_falling_cost_is_taken_as_constant() {
        // σ = 0.3, κ = 0.2: at full use a request costs 1.7 times as much as alone.
        let law = |u: f64| 700.0 * u / (1.0 + 0.3 * u + 0.2 * u * (1.0 + u));
        let points: Vec<(f64, f64)> =
            (1..40).map(|k| 0.015 * f64::from(k)).map(|u| (law(u), u)).collect();
        let found = usl(&points).unwrap();
        assert!((found - 700.0 / 1.7).abs() < 0.01, "{found}");
        // A request costs less at a higher rate, which the law does not allow.
        let falling: Vec<(f64, f64)> =
            (1..40).map(f64::from).map(|x| (x, x * (0.002 - 1e-5 * x))).collect();
        let found = usl(&falling).unwrap();
        assert!((500.0..640.0).contains(&found), "{found}");
        assert_eq!((usl(&[]), single_point(&[])), (None, None));
        assert_eq!(single_point(&[(10.0, 0.2), (30.0, 0.3), (20.0, 0.1)]), Some(100.0));
    }

    #[test]
    fn doubtful_cases_say_why_and_do_not_count() {
        let of = |case: &Case, ramp: &Ramp| doubts(case, ramp).join("; ");
        assert_eq!(of(&case(0.95), &ramp(30)), "");
        assert!(of(&case(0.6), &ramp(30)).contains("60 % of its CPU"));
        let slow = Ramp { completed: 900, ..ramp(30) };
        assert!(of(&case(1.0), &slow).contains("the generator limited it: 90 %"));
        let late = Ramp { late_starts: 300, ..ramp(30) };
        assert!(of(&case(1.0), &late).contains("30 % started late"));
        let mut moved = case(1.0);
        moved.saturation[1].rate = 700.0;
        assert!(of(&moved, &ramp(30)).contains("moved by 30 %"));
    }

    #[test]
    fn bands_count_what_holds() {
        let one = |reach: u32, predicted: f64, ends: (Option<f64>, Option<f64>)| Judged {
            reach,
            measured: 100.0,
            predicted: Some(predicted),
            straight: Some(50.0),
            low: ends.0,
            high: ends.1,
            inside: inside(ends, 100.0),
            ..Judged::default()
        };
        let doubtful = Judged { doubts: vec!["why".into()], ..one(60, 900.0, (None, None)) };
        let judged = [
            one(20, 90.0, (Some(80.0), Some(99.0))),
            one(30, 104.0, (Some(95.0), Some(120.0))),
            one(30, 130.0, (Some(95.0), None)),
            one(45, 100.0, (None, None)),
            doubtful,
        ];
        let bands = bands(&judged);
        let low = &bands[0];
        assert_eq!((low.trials, low.intervals, low.inside, low.unbounded), (3, 3, 2, 1));
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(near(low.errors.report, 10.0) && near(low.errors.straight, 50.0), "{low:?}");
        assert!(near(low.width_percent, 22.0), "{low:?}");
        assert_eq!((low.errors.single, low.errors.usl), (None, None));
        assert_eq!((bands[1].trials, bands[1].intervals), (1, 0));
        assert_eq!((bands[2].trials, bands[2].doubtful), (0, 1));
        assert_eq!((bands[3].name, bands[3].trials), ("all", 4));
    }
}

//! The 99th percentile of latency at about twice the recorded rate: predicted, and measured.
//!
//! A pair is two trials of one case whose highest rates differ by 1.5 to 2.5 times. The report of
//! the lower trial predicts the latency at the rate of the higher trial, which measured it. Both
//! latencies are the generator's, and both are medians over the intervals near the highest rate of
//! a trial, because one disturbance of the machine must not decide. What never happens: a pair with
//! a doubtful trial counts.

use serde::Serialize;

use super::judge::Judged;

/// How much higher the rate is that is predicted.
const TIMES: std::ops::RangeInclusive<f64> = 1.45..=2.55;
/// Intervals with at least this part of the highest rate have that rate.
const NEAR_TOP: f64 = 0.9;
/// A prediction is close if it is wrong by this factor at most.
pub(super) const CLOSE: f64 = 1.5;

/// A predicted latency and the measured one, microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pair {
    /// The server.
    server: String,
    /// Size of the body of a response, bytes.
    pub(super) body_bytes: u64,
    /// Connections.
    connections: u32,
    /// How far the load of the lower trial rose, percent of saturation.
    from: u32,
    /// The same of the higher trial.
    to: u32,
    /// The rate in the higher trial, requests a second.
    rate: f64,
    /// The 99th percentile at the highest rates of the lower trial.
    pub(super) recorded_us: f64,
    /// Predicted from the lower trial.
    pub(super) predicted_us: f64,
    /// Lower end of its interval.
    pub(super) low_us: f64,
    /// Upper end; null in JSON if there is none.
    pub(super) high_us: f64,
    /// Measured in the higher trial.
    pub(super) measured_us: f64,
    /// Whether the prediction is close.
    pub(super) close: bool,
    /// Whether the interval contains the measured latency.
    pub(super) inside: bool,
}

/// All pairs of trials that count and have latencies of the generator.
pub(super) fn pairs(judged: &[Judged]) -> Vec<Pair> {
    let of_case =
        |one: &Judged| (one.server.clone(), one.body_bytes, one.connections, one.neighbour);
    let each = judged.iter().flat_map(|lower| judged.iter().map(move |higher| (lower, higher)));
    let same = each.filter(|(lower, higher)| {
        of_case(lower) == of_case(higher) && lower.doubts.is_empty() && higher.doubts.is_empty()
    });
    same.filter_map(|(lower, higher)| pair(lower, higher)).collect()
}

fn pair(lower: &Judged, higher: &Judged) -> Option<Pair> {
    let (below, recorded_us) = at_top(lower)?;
    let (rate, measured_us) = at_top(higher)?;
    if !TIMES.contains(&(rate / below)) {
        return None;
    }
    let found = lower.latency.as_ref()?.to_come.p99_at(rate)?;
    Some(Pair {
        server: lower.server.clone(),
        body_bytes: lower.body_bytes,
        connections: lower.connections,
        from: lower.reach,
        to: higher.reach,
        rate,
        recorded_us,
        predicted_us: found.us,
        low_us: found.low_us,
        high_us: found.high_us,
        measured_us,
        close: (found.us / measured_us).ln().abs() <= CLOSE.ln(),
        inside: (found.low_us..=found.high_us).contains(&measured_us),
    })
}

/// The rate and the 99th percentile in the intervals near the highest rate: the medians.
fn at_top(judged: &Judged) -> Option<(f64, f64)> {
    let latency = judged.latency.as_ref()?;
    if latency.source != trial::LatencySource::Generator {
        return None;
    }
    let points = latency.points.iter().filter(|point| point.rate >= NEAR_TOP * judged.top);
    let (mut rates, mut p99): (Vec<f64>, Vec<f64>) =
        points.map(|point| (point.rate, point.p99_us)).unzip();
    let (rate, p99_us) = (regress::median(&mut rates), regress::median(&mut p99));
    (p99_us > 0.0).then_some((rate, p99_us))
}

#[cfg(test)]
mod tests {
    use super::super::collect::Ramp;
    use super::super::judge::judge;
    use super::super::judge::tests::{case, made, ramp};
    use super::*;

    #[test]
    fn a_pair_is_predicted_from_the_lower_trial_and_measured_in_the_higher_one() {
        let home = tempfile::tempdir().unwrap();
        let of = |reach: u32| {
            let (trial, top) = (format!("{reach}.trial"), 10.0 * f64::from(reach));
            made(&home.path().join(&trial), top);
            Ramp { trial, top, ..ramp(reach) }
        };
        let mut case = case(1.0);
        case.ramps = vec![of(30), of(60), of(70)];
        let judged = judge(home.path(), &[case]);
        let found = pairs(&judged);
        let reaches: Vec<(u32, u32)> = found.iter().map(|pair| (pair.from, pair.to)).collect();
        assert_eq!(reaches, [(30, 60), (30, 70)], "60 and 70 are too near to each other");
        for pair in &found {
            assert!(pair.close && pair.inside, "{pair:?}");
            assert!(pair.measured_us > 1.2 * pair.recorded_us, "{pair:?}");
        }
        let doubtful = |at: usize| {
            let mut judged = judged.clone();
            judged[at].doubts.push("why".to_owned());
            pairs(&judged).len()
        };
        assert_eq!([0, 1, 2].map(doubtful), [0, 1, 1]);
        let mut logged = judged.clone();
        logged[1].latency.as_mut().unwrap().source = trial::LatencySource::Log;
        assert_eq!(pairs(&logged).len(), 1, "a log does not have the same latencies");
    }
}

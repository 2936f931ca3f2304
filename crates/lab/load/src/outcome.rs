//! The result of a run: rows of one second each, totals, errors by kind, latencies.
//!
//! What: plain data that serialises to JSON and back. Why: every figure can be joined to a trial by
//! its wall-clock start, and none is shown without its counts. Invariants, for each row and for the
//! whole: `started = completed + errors + in flight`, `intended = started + unstarted` (in a row,
//! `in flight` and `unstarted` carry over to the next). What never happens: a latency without its
//! maximum; a latency of which the generator may account for more than a fifth (and more than the
//! plan's `lag_max`) among the valid ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer as HdrDeserializer, Serializer as _,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::plan::Plan;

/// A histogram has room for latencies up to this, ns. It grows if one is longer.
const LATENCY_NS_USUAL: u64 = 3_600_000_000_000;
/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// Declares the kinds of errors once: the enum, the counters, the names, the explanations.
macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident $field:ident;)+) => {
        /// Why a request failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorKind { $($(#[doc = $doc])+ $kind,)+ }

        impl ErrorKind {
            /// All kinds, in display order.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),+];

            /// Its name in results.
            pub fn name(self) -> &'static str {
                match self { $(ErrorKind::$kind => stringify!($field),)+ }
            }

            /// What it means, for the reference documentation.
            pub fn help(self) -> &'static str {
                match self { $(ErrorKind::$kind => concat!($($doc),+),)+ }
            }
        }

        /// How many requests failed, by kind.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Errors { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl Errors {
            /// The count of one kind.
            pub fn of(&self, kind: ErrorKind) -> u64 {
                match kind { $(ErrorKind::$kind => self.$field,)+ }
            }

            /// All kinds together.
            pub fn total(&self) -> u64 { 0 $(+ self.$field)+ }

            pub(crate) fn count(&mut self, kind: ErrorKind) {
                match kind { $(ErrorKind::$kind => self.$field += 1,)+ }
            }

            pub(crate) fn add(&mut self, other: &Errors) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

error_kinds! {
    /// The connection was refused.
    Refused refused;
    /// The connection could not be made for another reason (no port, no route, no TLS).
    Connect connect;
    /// The peer reset the connection.
    Reset reset;
    /// The peer closed the connection before the first byte of a response.
    Closed closed;
    /// The response took longer than the plan's time-out.
    Timeout timeout;
    /// The status was 400 or above.
    BadStatus bad_status;
    /// The response broke the rules of HTTP or TLS, or had bytes after its end.
    BadFraming bad_framing;
    /// The response was complete, but not of the requested size.
    WrongSize wrong_size;
    /// The peer closed the connection in the middle of a response.
    Truncated truncated;
    /// A byte of the body was not the origin's.
    WrongBytes wrong_bytes;
}

/// A histogram of latencies that is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    max_ns: u64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_NS_USUAL, DIGITS)
            .expect("the bounds are those of a histogram");
        histogram.auto(true);
        Recorder { histogram, max_ns: 0 }
    }
}

impl Recorder {
    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64) {
        // `saturating_record` would not let it grow.
        self.histogram.record(latency_ns.max(1)).expect("a histogram grows to any latency");
        self.max_ns = self.max_ns.max(latency_ns);
    }

    pub(crate) fn add(&mut self, other: &Recorder) {
        self.histogram.add(&other.histogram).expect("a histogram grows to another's values");
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn clear(&mut self) {
        self.histogram.reset();
        self.max_ns = 0;
    }

    pub(crate) fn latency(&self) -> Latency {
        let mut hdr_v2 = Vec::new();
        hdrhistogram::serialization::V2Serializer::new()
            .serialize(&self.histogram, &mut hdr_v2)
            .expect("a vector takes all bytes");
        let quantile = |q| self.histogram.value_at_quantile(q).min(self.max_ns);
        Latency {
            count: self.histogram.len(),
            mean_ns: self.histogram.mean(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: self.max_ns,
            hdr_v2,
        }
    }
}

/// Latencies in nanoseconds: the usual quantiles, and the whole histogram for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of latencies.
    pub count: u64,
    /// Mean; this and all fields below are 0 without any latency.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The exact maximum.
    pub max_ns: u64,
    /// The whole histogram in HdrHistogram's V2 encoding, as a trial stores it.
    #[serde(rename = "hdr_v2_base64", with = "base64_text")]
    pub hdr_v2: Vec<u8>,
}

impl Latency {
    /// The histogram in `hdr_v2`.
    ///
    /// # Errors
    /// The bytes are not a histogram (the file is damaged).
    pub fn histogram(&self) -> Result<Histogram<u64>, DeserializeError> {
        HdrDeserializer::new().deserialize(&mut self.hdr_v2.as_slice())
    }
}

/// Bytes as text in JSON.
mod base64_text {
    use super::{Deserialize, Deserializer, Engine, STANDARD, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(&text).map_err(serde::de::Error::custom)
    }
}

/// The counts of a row, or of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests whose intended start was in it (in a closed loop: those started).
    pub intended: u64,
    /// Requests that were given a connection.
    pub started: u64,
    /// Complete and correct responses.
    pub completed: u64,
    /// Failed requests.
    pub errors: Errors,
    /// Completed responses that came from a cache.
    pub hits: u64,
    /// Completed responses that did not come from a cache, by their own account.
    pub misses: u64,
    /// Body bytes of completed responses.
    pub body_bytes: u64,
    /// Connections made, except cold ones.
    pub connects: u64,
    /// Connections among them whose TLS handshake resumed an earlier session.
    #[serde(default)]
    pub resumed: u64,
    /// Cold connections that the server closed. Each was reopened.
    pub cold_closed: u64,
    /// Requests that the generator itself started late although connections were idle.
    pub late_starts: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.intended += other.intended;
        self.started += other.started;
        self.completed += other.completed;
        self.errors.add(&other.errors);
        self.hits += other.hits;
        self.misses += other.misses;
        self.body_bytes += other.body_bytes;
        self.connects += other.connects;
        self.resumed += other.resumed;
        self.cold_closed += other.cold_closed;
        self.late_starts += other.late_starts;
    }

    /// Hits among the responses whose cache status is known; `None` without any.
    pub fn hit_ratio(&self) -> Option<f64> {
        let known = self.hits + self.misses;
        (known > 0).then(|| self.hits as f64 / known as f64)
    }
}

/// One second of a run (the last may be shorter).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// 0, 1, …
    pub index: u64,
    /// When it began, ns since the Unix epoch.
    pub start_ns: i64,
    /// Its length, ns.
    pub length_ns: u64,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// The most requests that waited for a connection at the same time.
    pub queued_max: u64,
    /// The generator's longest delay, as far as it is its own fault, ns.
    pub lag_max_ns: u64,
    /// The generator fell behind in this row: it may have changed many of its latencies.
    pub behind: bool,
    /// Latencies in `latency_invalid`.
    pub late: u64,
    /// CPU time of the generator, ns.
    pub cpu_ns: u64,
    /// Latencies of the requests completed in it, from their intended start: all but those in
    /// `latency_invalid`.
    pub latency: Latency,
    /// Latencies of which the generator may account for more than the plan's `lag_max` and more
    /// than a fifth; if the generator was at its limit, all. Results of older versions do not have
    /// it: there, all of `latency` is invalid if the row is `behind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_invalid: Option<Latency>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The plan that was run.
    pub plan: Plan,
    /// When requests began, ns since the Unix epoch.
    pub start_ns: i64,
    /// How long requests were started, ns. Shorter than planned if the run was stopped.
    pub length_ns: u64,
    /// Whether it was stopped before its time was over.
    pub stopped: bool,
    /// One row per second.
    pub rows: Vec<Row>,
    /// The sum of the rows, plus what completed or failed after the last of them.
    #[serde(flatten)]
    pub counts: Counts,
    /// Requests in flight that were given up at the end.
    pub in_flight: u64,
    /// Requests that never got a connection.
    pub unstarted: u64,
    /// How long the oldest of those had waited at the end, ns. It is not in `latency`, where it
    /// would be at least this.
    pub unstarted_waited_ns: u64,
    /// Rows in which the generator fell behind.
    pub rows_behind: u64,
    /// Cold connections that were open when requests began.
    pub cold_open: u64,
    /// Latencies that the generator did not change by more than `lag_max` or a fifth.
    pub latency: Latency,
    /// All others, and all of a row in which the generator was at its limit. They may be the
    /// generator's as much as the server's, so they are kept apart.
    pub latency_invalid: Latency,
    /// CPU time of the generator while requests were started, ns.
    pub cpu_ns: u64,
    /// CPU time of the generator per completed request, us; 0 without any. With busy-polling it
    /// includes the empty polls.
    pub cpu_per_request_us: f64,
    /// The readiness backend the generator ran on.
    pub backend: String,
}

impl Outcome {
    /// All latencies, of which the generator may account for a part.
    ///
    /// # Errors
    /// The bytes of one are not a histogram (the file is damaged).
    pub fn all_latencies(&self) -> Result<Latency, DeserializeError> {
        let mut all = Recorder::default();
        for part in [&self.latency, &self.latency_invalid] {
            let (histogram, max_ns) = (part.histogram()?, part.max_ns);
            all.add(&Recorder { histogram, max_ns });
        }
        Ok(all.latency())
    }

    /// Completed requests per second over the whole run.
    pub fn rate(&self) -> f64 {
        let in_rows: u64 = self.rows.iter().map(|row| row.counts.completed).sum();
        if self.length_ns == 0 { 0.0 } else { in_rows as f64 * 1e9 / self.length_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_survive_json() {
        let mut recorder = Recorder::default();
        for k in 1..=1000 {
            recorder.record(k * 1_000_003);
        }
        let latency = recorder.latency();
        let json = serde_json::to_string(&latency).unwrap();
        let back: Latency = serde_json::from_str(&json).unwrap();
        // The parser may be off in the last bit of a fraction.
        assert_eq!(Latency { mean_ns: latency.mean_ns, ..back.clone() }, latency);
        assert_eq!((back.count, back.max_ns), (1000, 1_000_003_000));
        assert!(back.p50_ns.abs_diff(500_001_500) < 1_000_000, "{}", back.p50_ns);
        assert_eq!(back.histogram().unwrap(), recorder.histogram);
    }

    #[test]
    fn broken_latencies_are_refused() {
        let json = serde_json::to_string(&Recorder::default().latency()).unwrap();
        let broken = json.replace("base64\":\"", "base64\":\"!");
        assert!(serde_json::from_str::<Latency>(&broken).is_err());
        let cut = Latency { hdr_v2: vec![1, 2, 3], ..Recorder::default().latency() };
        assert!(cut.histogram().is_err());
    }

    #[test]
    fn a_latency_longer_than_an_hour_is_in_the_percentiles() {
        let (mut recorder, mut whole) = (Recorder::default(), Recorder::default());
        let day_ns = 24 * LATENCY_NS_USUAL;
        [0, day_ns, day_ns, u64::MAX / 4].into_iter().for_each(|ns| recorder.record(ns));
        let latency = recorder.latency();
        assert_eq!((latency.count, latency.max_ns), (4, u64::MAX / 4));
        assert!(latency.p50_ns.abs_diff(day_ns) <= day_ns / 1000, "{}", latency.p50_ns);
        whole.add(&recorder);
        assert_eq!(whole.latency(), latency);
        recorder.clear();
        assert_eq!(recorder.latency().max_ns, 0);
    }

    #[test]
    fn each_kind_of_error_has_its_own_counter() {
        let mut errors = Errors::default();
        for (k, kind) in ErrorKind::ALL.iter().enumerate() {
            for _ in 0..=k {
                errors.count(*kind);
            }
        }
        for (k, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(errors.of(*kind), k as u64 + 1, "{}", kind.name());
            assert!(!kind.help().is_empty());
        }
        let all = ErrorKind::ALL.len() as u64;
        assert_eq!(errors.total(), all * (all + 1) / 2);
    }
}

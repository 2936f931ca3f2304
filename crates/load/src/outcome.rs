//! What a run came to: rows of a second each, totals, errors by kind, latencies.
//!
//! What: plain data that serialises to JSON and back. Why: every figure of a run can be joined to
//! a trial by its wall-clock start, and none is shown without its counts. Invariants, for each row
//! and for the whole: `started = completed + errors + in flight`, `intended = started + unstarted`
//! (in a row, `in flight` and `unstarted` carry over to the next). What never happens: a latency
//! without its maximum; one that holds a wait for the generator itself, mixed with the others.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer as HdrDeserializer, Serializer as _,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::plan::Plan;

/// The longest latency that a histogram tells apart, ns; longer ones count as this, the maximum
/// stays exact.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// Declares the kinds of errors once: the enum, the counters, the names, what each means.
macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident $field:ident;)+) => {
        /// Why a request failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorKind { $($(#[doc = $doc])+ $kind,)+ }

        impl ErrorKind {
            /// All kinds, in the order they are shown.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),+];

            /// Its name in results.
            pub fn name(self) -> &'static str {
                match self { $(ErrorKind::$kind => stringify!($field),)+ }
            }

            /// What it means, for the reference.
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
    /// The connection could not be made for another reason (no port, no route).
    Connect connect;
    /// The peer reset the connection.
    Reset reset;
    /// The peer closed the connection before the first byte of a response.
    Closed closed;
    /// The response took longer than the plan's time-out.
    Timeout timeout;
    /// The status was 400 or above.
    BadStatus bad_status;
    /// The response broke the rules of HTTP/1, or had bytes after its end.
    BadFraming bad_framing;
    /// The response was whole, but not of the size that was asked for.
    WrongSize wrong_size;
    /// The peer closed the connection in the middle of a response.
    Truncated truncated;
    /// A byte of the body was not the origin's.
    WrongBytes wrong_bytes;
}

/// Latencies as they are being recorded.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    max_ns: u64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
            .expect("the bounds are those of a histogram");
        Recorder { histogram, max_ns: 0 }
    }
}

impl Recorder {
    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns.max(1));
        self.max_ns = self.max_ns.max(latency_ns);
    }

    pub(crate) fn add(&mut self, other: &Recorder) {
        self.histogram.add(&other.histogram).expect("all latencies have the same bounds");
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

/// Latencies in nanoseconds: the figures people look for, and the whole histogram for machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many latencies.
    pub count: u64,
    /// Their mean; 0 without any, as all that follows.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % did not exceed it.
    pub p90_ns: u64,
    /// 99 % did not exceed it.
    pub p99_ns: u64,
    /// 99.9 % did not exceed it.
    pub p999_ns: u64,
    /// The exact maximum.
    pub max_ns: u64,
    /// All of them: HdrHistogram's V2 encoding, as a trial keeps it.
    #[serde(rename = "hdr_v2_base64", with = "base64_text")]
    pub hdr_v2: Vec<u8>,
}

impl Latency {
    /// The histogram in `hdr_v2`.
    ///
    /// # Errors
    /// The bytes are no histogram (they come from a damaged file).
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

/// What was counted in a row, or in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests whose intended start fell in it (in a closed loop: those started).
    pub intended: u64,
    /// Requests that were given a connection.
    pub started: u64,
    /// Whole and right responses.
    pub completed: u64,
    /// Failed requests.
    pub errors: Errors,
    /// Completed responses that came from a cache.
    pub hits: u64,
    /// Completed responses that said they did not.
    pub misses: u64,
    /// Bytes of completed responses' bodies.
    pub body_bytes: u64,
    /// Connections made, cold ones not counted.
    pub connects: u64,
    /// Cold connections that the server closed; each was opened again.
    pub cold_closed: u64,
    /// Requests that the generator itself started late, though connections were idle.
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
        self.cold_closed += other.cold_closed;
        self.late_starts += other.late_starts;
    }

    /// Hits among the responses that told; `None` when none did.
    pub fn hit_ratio(&self) -> Option<f64> {
        let told = self.hits + self.misses;
        (told > 0).then(|| self.hits as f64 / told as f64)
    }
}

/// One second of a run (the last may be shorter).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// 0, 1, …
    pub index: u64,
    /// When it began, ns since the unix epoch.
    pub start_ns: i64,
    /// How long it was, ns.
    pub length_ns: u64,
    /// What happened in it.
    #[serde(flatten)]
    pub counts: Counts,
    /// The most requests that waited for a connection at once.
    pub queued_max: u64,
    /// How late the generator itself was, at worst, ns.
    pub lag_max_ns: u64,
    /// The generator fell behind in this row: its latencies are the generator's as much as the
    /// server's, and not valid.
    pub behind: bool,
    /// Latencies that are not in `latency`, because each holds a wait for the generator longer than
    /// the plan's `lag_max`: at most 1 % of the row's. 0 if it is `behind`.
    pub late: u64,
    /// CPU time of the generator, ns.
    pub cpu_ns: u64,
    /// Latencies of the requests completed in it, from their intended start; all of them if the row
    /// is `behind`, otherwise all but `late`.
    pub latency: Latency,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was to be done.
    pub plan: Plan,
    /// When requests began, ns since the unix epoch.
    pub start_ns: i64,
    /// How long requests were started, ns: shorter than planned if the run was stopped.
    pub length_ns: u64,
    /// Whether it was stopped before its time.
    pub stopped: bool,
    /// The seconds.
    pub rows: Vec<Row>,
    /// The sum of the rows, and of what completed or failed after the last of them.
    #[serde(flatten)]
    pub counts: Counts,
    /// Requests under way that were given up at the end.
    pub in_flight: u64,
    /// Requests that never got a connection.
    pub unstarted: u64,
    /// How long the oldest of those had waited at the end, ns: not in `latency`, and at least that.
    pub unstarted_waited_ns: u64,
    /// Rows in which the generator fell behind.
    pub rows_behind: u64,
    /// Cold connections that were open when requests began.
    pub cold_open: u64,
    /// Latencies of all rows in which the generator kept up.
    pub latency: Latency,
    /// Latencies of the rows in which it fell behind, and single ones that hold a wait for it: not
    /// the server's, kept apart.
    pub latency_invalid: Latency,
    /// CPU time of the generator while requests were started, ns.
    pub cpu_ns: u64,
    /// CPU time of the generator per completed request, us; 0 without any. With busy-polling, the
    /// looks that find nothing are in it.
    pub cpu_per_request_us: f64,
    /// The readiness backend the generator ran on.
    pub backend: String,
}

impl Outcome {
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
    fn the_longest_latency_keeps_its_maximum() {
        let mut recorder = Recorder::default();
        recorder.record(0);
        recorder.record(2 * LATENCY_NS_MAX);
        let latency = recorder.latency();
        assert_eq!((latency.count, latency.max_ns), (2, 2 * LATENCY_NS_MAX));
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

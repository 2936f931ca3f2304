//! What limits a server whose threads wait instead of computing: threads that take one request at a
//! time, and the other servers that these threads wait for.
//!
//! A thread that answers one request at a time is occupied from the first receive of the request to
//! the last send of the answer, also while it waits for a database. When all such threads are
//! occupied, requests wait in the sockets, however idle the CPU is. So the threads are a resource:
//! its use is the part of the time in which requests occupy them.
//!
//! How many threads there are is known only if requests had to wait for one. Otherwise the most
//! that were occupied at once may be the number of the clients, and more threads may be asleep.

use std::collections::BTreeMap;

use serde::Serialize;
use trial::answers::AnswerRow;
use trial::{Interval, Trial};

use super::resource::{ResourceKind, Series, Use};

/// Fewer requests than this show nothing.
const SERVED_MIN: u64 = 20;
/// If more than this share of the receives find another request at their thread, the thread takes
/// several at a time. A few are found where a client gave up, and nothing was sent.
const OVERLAPPED_MAX: f64 = 0.02;
/// Requests wait for a thread if at least this share had come while their thread was occupied, and
/// at least so many. A request that finds an idle thread is read by that one.
const LATE_MIN: f64 = 0.02;
const LATE_COUNT_MIN: u64 = 5;
/// All threads were occupied in an interval if at least this share had waited, and if requests
/// occupied them for at least this part of the time.
const LATE_SATURATED: f64 = 0.5;
const OCCUPIED_SATURATED: f64 = 0.85;
/// If so many have to wait, requests occupy the threads for more than this part of the time (with
/// random arrivals, for three quarters). Otherwise something else takes the threads: a client that
/// is slow, or a connection without a request.
const OCCUPIED_FULL_MIN: f64 = 0.6;
/// More time than all threads have: answers are sent in several parts, and a thread counts as free
/// between them.
const OCCUPIED_MAX: f64 = 1.1;
/// Other servers that are shown.
const UPSTREAMS_MAX: usize = 8;
/// A wait is worth a word from this many microseconds for each request, if it is not only of a few
/// requests.
const WAIT_US_MIN: f64 = 100.0;
const WAITS_MIN: f64 = 0.05;
/// A thread waits if another server has this part of the time in which a request occupies it; or,
/// where it is not seen for what, if the request occupies it for so many microseconds, and for so
/// many times its CPU time. Three programs that share a CPU make that time three times as long.
const UPSTREAM_PART: f64 = 0.5;
const UNSEEN_WAIT_US_MIN: f64 = 1_000.0;
const UNSEEN_WAIT_CPU_MIN: f64 = 10.0;
/// From this part of the time on, a request does little but wait.
const NEARLY_ALL: f64 = 0.95;

/// What keeps threads from answering.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answers {
    /// The most threads that were occupied at once; `None` if the server's threads take several
    /// requests at a time.
    pub threads: Option<u64>,
    /// Whether these are all threads that answer: requests waited for one.
    pub are_all: bool,
    /// How long a request occupied a thread, microseconds.
    pub occupied_us: f64,
    /// Requests that had come while their thread was occupied, percent.
    pub late_percent: f64,
    /// Whether enough requests were answered to say anything about threads.
    pub is_enough: bool,
    /// The other servers that requests wait for, the longest wait first.
    pub upstreams: Vec<Upstream>,
}

/// Another server that requests wait for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Upstream {
    /// Its address and port, or "a Unix socket".
    pub peer: String,
    /// Waits for each request.
    pub waits: f64,
    /// How long a request waits for this server, microseconds. Waits of one request may overlap. If
    /// threads take one request at a time, only waits inside a request count.
    pub us_per_request: f64,
}

impl Upstream {
    /// "51.6 ms for 127.0.0.1:5432"
    pub(crate) fn text(&self) -> String {
        format!("{} for {}", crate::format::latency(self.us_per_request), self.peer)
    }
}

impl Answers {
    /// The other server that requests wait for longest, if they wait for one.
    pub(crate) fn longest(&self) -> Option<&Upstream> {
        let is_worth =
            |one: &&Upstream| one.us_per_request >= WAIT_US_MIN && one.waits >= WAITS_MIN;
        self.upstreams.first().filter(is_worth)
    }

    /// Why the CPU is not the limit: "a request occupies one of its 4 threads that answer for
    /// 52.3 ms, and waits 21.6 ms for 127.0.0.1:5432".
    pub(crate) fn why(&self) -> String {
        let occupied = crate::format::latency(self.occupied_us);
        let one = match self.threads {
            Some(1) => "its only thread that answers".to_owned(),
            Some(all) => format!("one of its {all} threads that answer"),
            None => "a thread".to_owned(),
        };
        let waits = match self.longest() {
            Some(longest) if longest.us_per_request >= NEARLY_ALL * self.occupied_us => {
                format!(", and waits nearly all of that time for {}", longest.peer)
            }
            Some(longest) => format!(", and waits {}", longest.text()),
            None => String::new(),
        };
        format!("a request occupies {one} for {occupied}{waits}")
    }
}

/// The intervals that were seen.
struct Seen<'t> {
    rows: BTreeMap<u64, &'t AnswerRow>,
    /// Their sums, and the most threads that were occupied at once.
    all: AnswerRow,
}

impl Seen<'_> {
    fn of(trial: &Trial) -> Seen<'_> {
        let mut all = AnswerRow::default();
        for row in trial.answers() {
            all.served += row.served;
            all.overlapped += row.overlapped;
            all.begun += row.begun;
            all.late += row.late;
            all.occupied_ns += row.occupied_ns;
            all.at_once = all.at_once.max(row.at_once);
        }
        Seen { rows: trial.answers().iter().map(|row| (row.interval, row)).collect(), all }
    }

    /// The most threads that were occupied at once, if each takes one request at a time.
    fn threads(&self) -> Option<u64> {
        let AnswerRow { served, overlapped, at_once, .. } = self.all;
        let several = overlapped as f64 > OVERLAPPED_MAX * served as f64;
        (served >= SERVED_MIN && !several && at_once > 0).then_some(at_once)
    }
}

/// What keeps the threads of a trial from answering; `None` if nothing was seen of it.
pub(super) fn answers(trial: &Trial) -> Option<Answers> {
    answers_of(trial, &Seen::of(trial))
}

fn answers_of(trial: &Trial, seen: &Seen<'_>) -> Option<Answers> {
    let requests: f64 = trial.intervals().iter().map(|one| requests(one, seen)).sum();
    let threads = seen.threads();
    let mut sums: BTreeMap<&str, (u64, i64)> = BTreeMap::new();
    for row in trial.upstreams() {
        let sum = sums.entry(&row.peer).or_default();
        let waited_ns = if threads.is_some() { row.inside_ns } else { row.waited_ns };
        (sum.0, sum.1) = (sum.0 + row.waits, sum.1 + waited_ns);
    }
    let of_request = |(peer, (waits, waited_ns)): (&str, (u64, i64))| Upstream {
        peer: peer.to_owned(),
        waits: waits as f64 / requests,
        us_per_request: waited_ns as f64 / 1e3 / requests,
    };
    let mut upstreams: Vec<Upstream> = match requests > 0.0 {
        true => sums.into_iter().map(of_request).collect(),
        false => Vec::new(),
    };
    upstreams.sort_by(|a, b| b.us_per_request.total_cmp(&a.us_per_request));
    upstreams.truncate(UPSTREAMS_MAX);
    let all = &seen.all;
    let found = Answers {
        threads,
        is_enough: all.served + all.overlapped >= SERVED_MIN,
        are_all: all.late >= LATE_COUNT_MIN && late(all) >= LATE_MIN,
        occupied_us: all.occupied_ns as f64 / 1e3 / all.served.max(1) as f64,
        late_percent: 100.0 * late(all),
        upstreams,
    };
    (all.served > 0 || !found.upstreams.is_empty()).then_some(found)
}

/// The requests of an interval in the time that was seen.
fn requests(interval: &Interval, seen: &Seen<'_>) -> f64 {
    let row = seen.rows.get(&interval.index);
    row.map_or(0.0, |row| interval.rate() * row.sampled_ns as f64 / 1e9)
}

/// The part of the time of so many threads in which requests occupied them.
fn part(row: &AnswerRow, threads: u64) -> f64 {
    row.occupied_ns as f64 / row.sampled_ns.max(1) as f64 / threads as f64
}

/// The part of the requests that had come while their thread was occupied.
fn late(row: &AnswerRow) -> f64 {
    row.late as f64 / row.begun.max(1) as f64
}

/// The threads that answer one request at a time, as a resource.
pub(super) fn series(trial: &Trial) -> Option<Series> {
    let seen = Seen::of(trial);
    let found = answers_of(trial, &seen)?;
    let threads = found.threads?;
    let uses = trial.intervals().iter().map(|interval| {
        let row = seen.rows.get(&interval.index)?;
        let occupied = part(row, threads);
        // Where all threads are occupied, a request that ends in the next interval counts there.
        let is_full = occupied >= OCCUPIED_SATURATED && late(row) >= LATE_SATURATED;
        let user = if is_full { 100.0 } else { 100.0 * occupied.min(1.0) };
        Some(Use { user, kernel: 0.0, idle: 100.0 - user, wakes: None })
    });
    Some(Series {
        kind: ResourceKind::Answering,
        name: "threads that answer".to_owned(),
        cap: 1.0,
        detail: match threads {
            1 => "one, with one request at a time".to_owned(),
            all => format!("{all}, each with one request at a time"),
        },
        uses: uses.collect(),
        why_not_limiting: why_not_limiting(trial, &seen, &found, threads),
        ..Series::default()
    })
}

fn why_not_limiting(
    trial: &Trial,
    seen: &Seen<'_>,
    found: &Answers,
    threads: u64,
) -> Option<String> {
    let rows = || seen.rows.values();
    let is_full = |row: &&&AnswerRow| row.begun >= LATE_COUNT_MIN && late(row) >= LATE_SATURATED;
    // Weighted by requests: a load may end in the middle of an interval.
    let full = rows().filter(is_full).map(|row| (row.begun as f64, part(row, threads)));
    let (begun, occupied) = full
        .fold((0.0, 0.0), |(sum, occupied), (begun, part)| (sum + begun, occupied + begun * part));
    if rows().any(|row| part(row, threads) > OCCUPIED_MAX) {
        Some("a thread sends its answers in several parts".to_owned())
    } else if !waits(trial, found) {
        Some("the CPU keeps them occupied".to_owned())
    } else if !found.are_all {
        let text = "hardly a request waited for a thread: there may be more than the";
        Some(format!("{text} {threads} seen"))
    } else if occupied < OCCUPIED_FULL_MIN * begun {
        Some("slow or idle clients take them, too".to_owned())
    } else {
        None
    }
}

/// Whether threads mostly wait while requests occupy them: for another server, or for something
/// that is not seen. A thread that computes is occupied, too, and longer beside other work.
fn waits(trial: &Trial, found: &Answers) -> bool {
    let upstream_us: f64 = found.upstreams.iter().map(|one| one.us_per_request).sum();
    let seen = trial.intervals().iter().filter_map(|one| Some((one.requests, one.server?)));
    let (requests, cpu_ns) = seen.fold((0.0, 0), |(requests, cpu_ns), (more, server)| {
        (requests + more, cpu_ns + server.total_ns)
    });
    let cpu_us = cpu_ns as f64 / 1e3 / f64::max(requests, 1.0);
    let unseen_us = f64::max(UNSEEN_WAIT_US_MIN, UNSEEN_WAIT_CPU_MIN * cpu_us);
    upstream_us >= UPSTREAM_PART * found.occupied_us || found.occupied_us >= unseen_us
}

/// How much longer requests wait for another server at high rates than at low ones, if that is at
/// least twice as long: the server, and the waits in microseconds.
pub(super) fn slower(trial: &Trial) -> Option<(String, f64, f64)> {
    let seen = Seen::of(trial);
    let longest = answers_of(trial, &seen)?.longest()?.peer.clone();
    let of_peer = trial.upstreams().iter().filter(|row| row.peer == longest);
    let waited: BTreeMap<u64, i64> = of_peer.map(|row| (row.interval, row.waited_ns)).collect();
    let mut rows: Vec<(f64, f64, f64)> = trial
        .intervals()
        .iter()
        .filter(|interval| interval.rate_valid && interval.rate() > 0.0)
        .filter_map(|interval| {
            let waited_us = *waited.get(&interval.index)? as f64 / 1e3;
            Some((interval.rate(), requests(interval, &seen), waited_us))
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let third = rows.len() / 3;
    let mean = |rows: &[(f64, f64, f64)]| {
        let requests: f64 = rows.iter().map(|row| row.1).sum();
        rows.iter().map(|row| row.2).sum::<f64>() / requests.max(f64::MIN_POSITIVE)
    };
    let (low, high) = (rows.get(..third)?, rows.get(rows.len() - third..)?);
    let rises = third > 0 && high.first()?.0 > 1.5 * low.last()?.0;
    let (low, high) = (mean(low), mean(high));
    (rises && high >= 2.0 * low && high >= WAIT_US_MIN).then_some((longest, low, high))
}

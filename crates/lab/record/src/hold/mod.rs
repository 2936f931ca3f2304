//! Holds: the server is kept from running for some milliseconds, and catches up.
//!
//! Requests queue in the sockets while a server is held. Afterwards the server works them off as if
//! it were saturated, at any load. The sampler of turns counts what that costs (`bpf::Marks`).
//!
//! ```text
//!  choose a way -> say what it does -> [ pause -> guards -> hold -> mark -> release ] ... -> end
//! ```
//!
//! | file | responsibility |
//! | --- | --- |
//! | `method` | the ways to hold a server, and the choice between them |
//! | `watchdog` | releases the server if the recorder is killed |
//! | `sys` | the system calls |
//!
//! One thread holds. The recorder shows it what the server does. What never happens: a hold
//! outlives the recorder; two recorders hold at the same time; a server that uses more than
//! [`USE_MAX`] of its cap is held; more than the budget of the time is held.

mod method;
mod sys;
mod watchdog;

use std::collections::BTreeMap;
use std::fmt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use trial::ThreadTimes;

use crate::bpf::{Marks, Samplers};
use crate::clock;
use crate::error::{Error, Unsupported};
use crate::recorder::TURNS_WITH_HOLDS;
use crate::server::{Server, Target};
use method::Method;

/// The shortest and the longest hold.
pub const HOLD_MIN: Duration = Duration::from_millis(1);
/// See [`HOLD_MIN`].
pub const HOLD_MAX: Duration = Duration::from_millis(50);
/// A server that uses more than this part of its cap is not held: it would catch up too slowly.
const USE_MAX: f64 = 0.7;
/// A pause between two holds is shorter or longer than the mean by up to this part of it.
const JITTER: f64 = 0.25;
/// Catching up is slow if it takes so many times the length of the hold.
const SLOW: u32 = 10;
/// A server that uses at least this part of its cap has something to work off after a hold.
const USE_SOME: f64 = 0.3;
/// After so many slow holds in a row there is no other.
const SLOW_MAX: u32 = 3;
/// Holds end if the part of the requests that fail is so many times the part before the first hold.
const ERRORS_TIMES: f64 = 2.0;
/// And if at least so many requests failed.
const ERRORS_MIN: f64 = 10.0;
/// Intervals that are recorded before the first hold.
const INTERVALS_BEFORE: u64 = 3;
/// How often a pause checks whether it must end.
const STOP_CHECK_NS: i64 = 50_000_000;
/// The socket that only one recorder of the machine has.
const ONLY_ONE: &[u8] = b"plimsoll-hold";

/// How to hold the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldSpec {
    /// Length of a hold, from [`HOLD_MIN`] to [`HOLD_MAX`].
    pub length: Duration,
    /// Mean time from one hold to the next.
    pub every: Duration,
    /// Part of the time that may be held.
    pub budget: f64,
}

impl Default for HoldSpec {
    fn default() -> HoldSpec {
        let (length, every) = (Duration::from_millis(5), Duration::from_secs(10));
        HoldSpec { length, every, budget: 0.01 }
    }
}

impl HoldSpec {
    /// Fails if a recording of this length has less than two holds on average.
    ///
    /// # Errors
    /// One line with what to do.
    pub fn fits(&self, length: Duration) -> Result<(), String> {
        if length >= 2 * self.every {
            return Ok(());
        }
        Err(format!(
            "{length:?} is too short for two holds that are {:?} apart: record for longer, or give \
             --hold-every {:?}",
            self.every,
            length / 4
        ))
    }

    fn check(&self) -> Result<(), String> {
        let part = self.length.as_secs_f64() / self.every.as_secs_f64();
        if !(HOLD_MIN..=HOLD_MAX).contains(&self.length) {
            Err(format!("a hold must last from {HOLD_MIN:?} to {HOLD_MAX:?}"))
        } else if part.is_nan() || part > self.budget {
            let (part, budget) = (100.0 * part, 100.0 * self.budget);
            Err(format!(
                "the holds would take {part:.2} % of the time, the budget is {budget:.2} %"
            ))
        } else {
            Ok(())
        }
    }

    /// What a hold does to users, with the way to hold.
    fn sentence(&self, way: &Method) -> String {
        let one_in = (self.every.as_secs_f64() / self.length.as_secs_f64()).round();
        format!(
            "the server is held for {:?} about every {:?}, by {way}: about 1 request in {one_in} \
             waits up to {:?} longer, and those behind it until the server has caught up",
            self.length, self.every, self.length
        )
    }
}

/// What holding this server will do to its users, in one sentence.
///
/// # Errors
/// There is no such server; or it cannot or must not be held.
pub fn how_to_hold(target: &Target, spec: &HoldSpec) -> Result<String, Error> {
    let pids = Server::attach(target)?.pids();
    let refused = |why| Error::Hold { why };
    spec.check().map_err(refused)?;
    let way = Method::choose(&pids).map_err(refused)?;
    only_one().map_err(refused)?;
    let counted = Samplers::can_count_turns(&pids, TURNS_WITH_HOLDS);
    counted.map_err(|Unsupported(why)| refused(format!("turns cannot be counted: {why}")))?;
    Ok(spec.sentence(&way))
}

/// Fails if another recorder holds a server. The name is free again when the listener is dropped,
/// or its process ends.
fn only_one() -> Result<UnixListener, String> {
    let name = SocketAddr::from_abstract_name(ONLY_ONE).map_err(|error| error.to_string())?;
    UnixListener::bind_addr(&name)
        .map_err(|_| "another plimsoll record holds a server on this machine".to_owned())
}

/// The holds of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HoldsMade {
    /// How the server was held.
    pub way: String,
    /// How often.
    pub count: u64,
    /// How long altogether, ns.
    pub held_ns: i64,
    /// The longest time from the end of a hold until a thread of the server had caught up, ns.
    pub caught_up_ns: i64,
    /// Holds that were left out because the server was too busy.
    pub busy: u64,
    /// Why there were no more holds before the end of the recording.
    pub ended: Option<String>,
}

impl fmt::Display for HoldsMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: i64| ns as f64 / 1e6;
        match self.count {
            0 => write!(f, "never held, which would have been by {}", self.way)?,
            count => write!(
                f,
                "held {count} times, for {:.1} ms altogether, by {}; it caught up within {:.1} ms",
                ms(self.held_ns),
                self.way,
                ms(self.caught_up_ns)
            )?,
        }
        if self.busy > 0 {
            write!(f, "; not held {} times, because it was busy", self.busy)?;
        }
        match &self.ended {
            Some(why) => write!(f, "; the holds ended early: {why}"),
            None => Ok(()),
        }
    }
}

/// What the recorder shows the thread that holds.
#[derive(Debug, Default)]
struct View {
    intervals: u64,
    /// CPU time that the server used in the last interval, as a part of its cap.
    used: f64,
    /// The processes that used it, with their CPU time.
    processes: Vec<(u32, i64)>,
    /// Requests and errors before the first hold could have had an effect, and since.
    before: (f64, f64),
    since: (f64, f64),
    stop: Option<String>,
}

impl View {
    /// Why there must be no more holds.
    fn errors(&self) -> Option<String> {
        let part =
            |(requests, errors): (f64, f64)| if requests > 0.0 { errors / requests } else { 0.0 };
        let (before, since) = (part(self.before), part(self.since));
        (self.since.1 >= ERRORS_MIN && since > ERRORS_TIMES * before).then(|| {
            let (since, before) = (100.0 * since, 100.0 * before);
            format!("{since:.2} % of the requests failed, and {before:.2} % before the holds")
        })
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Holds {
    view: Arc<Mutex<View>>,
    stop: Arc<AtomicBool>,
    /// `None` once it has ended.
    thread: Option<JoinHandle<HoldsMade>>,
    cpus: f64,
    pub(crate) sentence: String,
}

impl Holds {
    pub(crate) fn start(
        spec: &HoldSpec,
        pids: &[u32],
        marks: Result<Marks, Unsupported>,
    ) -> Result<Holds, Unsupported> {
        spec.check().map_err(Unsupported)?;
        let marks = marks?;
        let way = Method::choose(pids).map_err(Unsupported)?;
        let only = only_one().map_err(Unsupported)?;
        let (view, stop) =
            (Arc::new(Mutex::new(View::default())), Arc::new(AtomicBool::new(false)));
        let sentence = spec.sentence(&way);
        let cpus = method::cpus_allowed(pids) as f64;
        let run = Run {
            spec: *spec,
            marks,
            view: Arc::clone(&view),
            stop: Arc::clone(&stop),
            random: clock::monotonic_ns().cast_unsigned() | 1,
            made: HoldsMade { way: way.to_string(), ..HoldsMade::default() },
        };
        let thread = thread::Builder::new().name("hold".to_owned()).spawn(move || {
            let made = run.until_stopped(way);
            drop(only);
            made
        });
        let failed = |error| Unsupported(format!("the thread that holds: {error}"));
        Ok(Holds { view, stop, thread: Some(thread.map_err(failed)?), cpus, sentence })
    }

    /// What the server's threads did in an interval.
    pub(crate) fn see(&self, threads: &[ThreadTimes], length_ns: i64) {
        let mut processes: BTreeMap<u32, i64> = BTreeMap::new();
        threads.iter().for_each(|one| *processes.entry(one.pid).or_default() += one.total_ns);
        let total = processes.values().sum::<i64>() as f64 / self.cpus;
        let hottest = threads.iter().map(|one| one.total_ns).max().unwrap_or(0) as f64;
        let mut view = lock(&self.view);
        view.intervals += 1;
        view.used = total.max(hottest) / length_ns.max(1) as f64;
        view.processes = processes.into_iter().filter(|(_, ns)| *ns > 0).collect();
    }

    /// Requests of an interval, and those that failed.
    pub(crate) fn count(&self, interval: u64, requests: f64, errors: f64) {
        let mut view = lock(&self.view);
        let sums = if interval < INTERVALS_BEFORE { &mut view.before } else { &mut view.since };
        *sums = (sums.0 + requests, sums.1 + errors);
        if view.stop.is_none() {
            view.stop = view.errors();
        }
    }

    /// Ends the holds.
    pub(crate) fn end(mut self) -> HoldsMade {
        self.join().expect("the thread runs until here")
    }

    fn join(&mut self) -> Option<HoldsMade> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        Some(thread.join().expect("the thread that holds does not panic"))
    }
}

/// A recording that fails holds no longer.
impl Drop for Holds {
    fn drop(&mut self) {
        self.join();
    }
}

fn lock(view: &Mutex<View>) -> std::sync::MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a process may be held now.
enum May {
    Hold(u32),
    /// The server uses too much of its cap.
    Busy,
    /// The budget does not allow it yet, or it is not known yet what the server does.
    Later,
}

/// The thread that holds.
struct Run {
    spec: HoldSpec,
    marks: Marks,
    view: Arc<Mutex<View>>,
    stop: Arc<AtomicBool>,
    random: u64,
    made: HoldsMade,
}

impl Run {
    fn until_stopped(mut self, mut way: Method) -> HoldsMade {
        let (begun_ns, mut slow) = (clock::monotonic_ns(), 0);
        way.begin();
        // The first hold comes at any instant of the distance, so that a short recording has as
        // many in its time as a long one.
        let mut times = 0.5 * (1.0 + self.jitter());
        while slow < SLOW_MAX {
            if !self.sleep((times * clock::ns(self.spec.every) as f64) as i64) {
                return self.made;
            }
            times = 1.0 + JITTER * self.jitter();
            let pid = match self.when_allowed(begun_ns) {
                Ok(Some(pid)) => pid,
                Ok(None) => return self.made,
                Err(why) => return HoldsMade { ended: Some(why), ..self.made },
            };
            if let Err(why) = self.hold(&mut way, pid) {
                return HoldsMade { ended: Some(why), ..self.made };
            }
            // A slow server may take all of it.
            if !self.sleep(clock::ns(SLOW * self.spec.length)) {
                return self.made;
            }
            let caught_up_ns = self.marks.caught_up_ns();
            self.made.caught_up_ns = self.made.caught_up_ns.max(caught_up_ns);
            let never = caught_up_ns == 0 && lock(&self.view).used >= USE_SOME;
            let is_slow = never || caught_up_ns >= clock::ns(SLOW * self.spec.length);
            slow = if is_slow { slow + 1 } else { 0 };
        }
        let why = format!("catching up took more than {:?}", SLOW * self.spec.length);
        HoldsMade { ended: Some(why), ..self.made }
    }

    fn hold(&mut self, way: &mut Method, pid: u32) -> Result<(), String> {
        self.made.count += 1;
        let (number, length) = (self.made.count, self.spec.length);
        let marks = &mut self.marks;
        let held_ns = way.hold(length, pid, || {
            let now_ns = clock::monotonic_ns();
            marks.hold_ends(number, now_ns, now_ns + 2 * clock::ns(SLOW * length));
        })?;
        self.made.held_ns += held_ns;
        Ok(())
    }

    /// The process to hold, as soon as one may be held; `None` if the thread must end before.
    /// Errors: there must be no more holds.
    fn when_allowed(&mut self, begun_ns: i64) -> Result<Option<u32>, String> {
        let mut was_busy = false;
        loop {
            let elapsed_ns = clock::monotonic_ns() - begun_ns;
            match self.may_hold(elapsed_ns)? {
                May::Hold(pid) if self.marks.are_seen() => return Ok(Some(pid)),
                May::Busy if !was_busy => {
                    self.made.busy += 1;
                    was_busy = true;
                }
                May::Hold(_) | May::Busy | May::Later => {}
            }
            if !self.sleep(STOP_CHECK_NS) {
                return Ok(None);
            }
        }
    }

    fn may_hold(&mut self, elapsed_ns: i64) -> Result<May, String> {
        let random = self.next();
        let view = lock(&self.view);
        if let Some(why) = &view.stop {
            return Err(why.clone());
        }
        let after_ns = (self.made.held_ns + clock::ns(self.spec.length)) as f64;
        if view.intervals < INTERVALS_BEFORE || after_ns > self.spec.budget * elapsed_ns as f64 {
            return Ok(May::Later);
        }
        if view.used > USE_MAX {
            return Ok(May::Busy);
        }
        Ok(by_use(&view.processes, random).map_or(May::Later, May::Hold))
    }

    /// Whether the thread goes on after this pause.
    fn sleep(&self, pause_ns: i64) -> bool {
        let until_ns = clock::monotonic_ns() + pause_ns;
        loop {
            let now_ns = clock::monotonic_ns();
            if self.stop.load(Ordering::Relaxed) || now_ns >= until_ns {
                return !self.stop.load(Ordering::Relaxed);
            }
            clock::sleep_until(until_ns.min(now_ns + STOP_CHECK_NS));
        }
    }

    /// From -1 to 1.
    fn jitter(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Marsaglia's xorshift.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// A process at random, each as probable as its use is large.
fn by_use(processes: &[(u32, i64)], random: u64) -> Option<u32> {
    let total = processes.iter().map(|(_, ns)| ns).sum::<i64>();
    let mut at =
        i64::try_from(random % u64::try_from(total).ok().filter(|total| *total > 0)?).ok()?;
    for (pid, ns) in processes {
        if at < *ns {
            return Some(*pid);
        }
        at -= ns;
    }
    unreachable!("the uses add up to the total")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_stay_within_the_budget_and_the_bounds() {
        let spec = HoldSpec::default();
        assert_eq!(spec.check(), Ok(()));
        let often = HoldSpec { every: Duration::from_millis(100), ..spec };
        assert!(often.check().unwrap_err().contains("5.00 % of the time"), "{:?}", often.check());
        let long = HoldSpec { length: Duration::from_secs(1), ..spec };
        assert!(long.check().unwrap_err().contains("50ms"));
        assert!(HoldSpec { every: Duration::ZERO, ..spec }.check().is_err());
    }

    #[test]
    fn a_recording_without_two_holds_is_refused() {
        let spec = HoldSpec::default();
        assert_eq!(spec.fits(Duration::from_secs(20)), Ok(()));
        let short = spec.fits(Duration::from_secs(8)).unwrap_err();
        assert!(short.contains("8s is too short") && short.ends_with("--hold-every 2s"), "{short}");
        let never = HoldsMade { way: "SIGSTOP".into(), busy: 2, ..HoldsMade::default() };
        let text = "never held, which would have been by SIGSTOP; not held 2 times, because it was \
                    busy";
        assert_eq!(never.to_string(), text);
    }

    #[test]
    fn errors_that_double_end_the_holds() {
        let view = |before, since| View { before, since, ..View::default() };
        assert_eq!(view((1e3, 0.0), (1e3, 9.0)).errors(), None, "too few");
        assert_eq!(view((1e3, 100.0), (1e3, 190.0)).errors(), None);
        assert!(view((1e3, 100.0), (1e3, 210.0)).errors().unwrap().starts_with("21.00 %"));
        assert!(view((0.0, 0.0), (1e3, 10.0)).errors().is_some());
    }

    #[test]
    fn processes_are_held_in_proportion_to_their_use() {
        let processes = [(7, 30), (8, 70)];
        let found: Vec<u32> = (0..100).filter_map(|at| by_use(&processes, at)).collect();
        assert_eq!(found.iter().filter(|pid| **pid == 7).count(), 30);
        assert_eq!(by_use(&[], 3), None);
    }

    #[test]
    fn only_one_recorder_holds() {
        let first = only_one();
        // Another test process may hold at the same time.
        if first.is_ok() {
            assert!(only_one().unwrap_err().contains("another plimsoll record"));
        }
    }
}

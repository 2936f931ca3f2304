//! What one wait costs with one hot descriptor and many cold ones: the experiment of 1998.
//!
//! It uses the public interface only. Every combination of backend and number of cold descriptors
//! has its own poller and hot eventfd; the cold eventfds are shared and stay idle. Rounds are
//! interleaved: each visits every combination once, so that a disturbance of the machine affects
//! all equally. It reports medians over the rounds, of the thread's CPU time.
//!
//! Two costs are measured. *Standing*: the hot descriptor stays ready, and waits follow one
//! another. *Arriving*: it is written, waited for and read, like the bytes of a connection; the
//! figure includes the write and the read. The scan of bitmap words by `scalable_select`, linear in
//! the highest descriptor, is timed separately and left out of the ratios.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::{Choice, Events, Interest, Kind, OpenError, Poller, Token, sys};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which backends.
    pub kinds: Vec<Kind>,
    /// Numbers of cold descriptors; ratios are to the first.
    pub cold: Vec<usize>,
    /// How many interleaved rounds (at least one).
    pub rounds: usize,
    /// How long one visit of one combination lasts, roughly.
    pub visit: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            kinds: Kind::ALL_REAL.to_vec(),
            cold: vec![0, 100, 1_000, 10_000],
            rounds: 25,
            visit: Duration::from_millis(3),
        }
    }
}

/// One combination's medians. Times in nanoseconds of the thread's CPU time per wait.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which backend.
    pub kind: Kind,
    /// How many cold descriptors.
    pub cold: usize,
    /// One wait while the hot descriptor stays ready, scan included.
    pub standing_ns: f64,
    /// The quartiles of that over the rounds.
    pub standing_quartiles_ns: [f64; 2],
    /// The same by the wall clock.
    pub standing_wall_ns: f64,
    /// One scan of bitmap words; a standing wait includes one. `None`: this backend has none.
    pub scan_ns: Option<f64>,
    /// `standing_ns` without the scan, relative to the first number of cold descriptors.
    pub ratio: f64,
    /// Write, wait, read.
    pub arriving_ns: f64,
    /// `arriving_ns` without its scans, relative to the first number of cold descriptors.
    pub arriving_ratio: f64,
    /// System calls per standing wait.
    pub syscalls: f64,
    /// Waits measured standing, over all rounds.
    pub waits: u64,
}

/// Why nothing was measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The process may not open enough descriptors.
    Descriptors {
        /// How many the plan needs.
        needed: usize,
        /// How many it may open.
        limit: usize,
    },
    /// A backend could not be opened.
    Open(OpenError),
    /// The system failed otherwise.
    System(io::Error),
    /// A wait did not report exactly the hot descriptor.
    Wrong(Kind),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Descriptors { needed, limit } => {
                write!(f, "{needed} descriptors are needed and {limit} allowed: raise ulimit -n")
            }
            Error::Open(error) => error.fmt(f),
            Error::System(error) => error.fmt(f),
            Error::Wrong(kind) => {
                write!(f, "{kind} did not report exactly the hot descriptor")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::System(error)
    }
}

/// Runs the plan, which takes about two visits for each combination and round. Backends that are
/// not supported here are missing from the rows and in the second list, with the reason.
///
/// # Errors
/// See [`Error`].
pub fn measure(plan: &Plan) -> Result<(Vec<Row>, Vec<OpenError>), Error> {
    let most = plan.cold.iter().copied().max().unwrap_or(0);
    let needed = most + 4 * plan.kinds.len() * plan.cold.len() + 64;
    let limit = sys::raise_descriptor_limit()?;
    if needed > limit {
        return Err(Error::Descriptors { needed, limit });
    }
    let mut subjects = Vec::new();
    let mut missing = Vec::new();
    let mut kinds = plan.kinds.clone();
    kinds.retain(|kind| match Poller::open(Choice::Named(*kind)) {
        Ok(_) => true,
        Err(error) => {
            missing.push(error);
            false
        }
    });
    // The hot ones are opened first, so that their numbers are low and the highest is a cold one.
    for &kind in &kinds {
        for &cold in &plan.cold {
            subjects.push(Subject::new(kind, cold)?);
        }
    }
    let cold: Vec<OwnedFd> = (0..most).map(|_| sys::eventfd()).collect::<Result<_, _>>()?;
    for subject in &mut subjects {
        subject.prepare(&cold, plan.visit)?;
    }
    for _ in 0..plan.rounds.max(1) {
        for subject in &mut subjects {
            subject.visit()?;
        }
    }
    let of_kind = |kind| subjects.iter().filter(move |subject| subject.kind == kind);
    let rows = kinds.iter().flat_map(|&kind| {
        let first = of_kind(kind).next();
        of_kind(kind).filter_map(move |subject| first.map(|first| subject.row(first)))
    });
    Ok((rows.collect(), missing))
}

/// One combination of backend and number of cold descriptors.
struct Subject {
    kind: Kind,
    cold: usize,
    poller: Poller,
    hot: OwnedFd,
    events: Events,
    /// How many waits one visit makes, standing and arriving.
    batch: u32,
    standing: Vec<Cost>,
    arriving: Vec<Cost>,
    scan_ns: Vec<f64>,
}

/// Per wait, of one visit.
#[derive(Clone, Copy)]
struct Cost {
    cpu_ns: f64,
    wall_ns: f64,
    syscalls: f64,
}

impl Subject {
    fn new(kind: Kind, cold: usize) -> Result<Subject, Error> {
        let poller = Poller::open(Choice::Named(kind)).map_err(Error::Open)?;
        Ok(Subject {
            kind,
            cold,
            poller,
            hot: sys::eventfd()?,
            events: Events::with_capacity(64),
            batch: 1,
            standing: Vec::new(),
            arriving: Vec::new(),
            scan_ns: Vec::new(),
        })
    }

    /// Registers all, finds out how many waits fill a visit, and discards those costs.
    fn prepare(&mut self, cold: &[OwnedFd], visit: Duration) -> Result<(), Error> {
        self.poller.register(self.hot.as_raw_fd(), Token::new(0, 0), Interest::READ)?;
        for (slot, fd) in (1..).zip(&cold[..self.cold]) {
            self.poller.register(fd.as_raw_fd(), Token::new(slot, 0), Interest::READ)?;
        }
        self.batch = 16;
        // The first wait checks the new descriptors, and a few more waits get hints of that.
        for _ in 0..3 {
            self.visit()?;
        }
        let wait_ns = self.standing.pop().map_or(1.0, |cost| cost.wall_ns.max(1.0));
        self.batch = (visit.as_nanos() as f64 / wait_ns).clamp(8.0, 1e6) as u32;
        self.standing.clear();
        self.arriving.clear();
        self.scan_ns.clear();
        Ok(())
    }

    fn visit(&mut self) -> Result<(), Error> {
        sys::eventfd_add_one(&self.hot);
        self.wait()?;
        let standing = self.cost_of(Subject::wait)?;
        self.standing.push(standing);
        if let Some(scan) = self.poller.scan_time(self.batch) {
            self.scan_ns.push(scan.as_nanos() as f64);
        }
        sys::eventfd_drain(&self.hot);
        let arriving = self.cost_of(|subject| {
            sys::eventfd_add_one(&subject.hot);
            subject.wait()?;
            sys::eventfd_drain(&subject.hot);
            Ok(())
        })?;
        self.arriving.push(arriving);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Error> {
        // An endless wait: it does not sleep, for the hot descriptor is ready.
        self.poller.wait(&mut self.events, None)?;
        let mut ready = self.events.iter().map(|event| event.token);
        if ready.next() == Some(Token::new(0, 0)) && ready.next().is_none() {
            Ok(())
        } else {
            Err(Error::Wrong(self.kind))
        }
    }

    fn cost_of(
        &mut self,
        mut wait: impl FnMut(&mut Subject) -> Result<(), Error>,
    ) -> Result<Cost, Error> {
        let before = self.poller.counters();
        let (wall, cpu) = (Instant::now(), sys::thread_cpu_time());
        for _ in 0..self.batch {
            wait(self)?;
        }
        let (wall, cpu) = (wall.elapsed(), sys::thread_cpu_time() - cpu);
        let spent = self.poller.counters() - before;
        let per_wait = |total: f64| total / f64::from(self.batch);
        Ok(Cost {
            cpu_ns: per_wait(cpu.as_nanos() as f64),
            wall_ns: per_wait(wall.as_nanos() as f64),
            syscalls: per_wait(spent.syscalls as f64),
        })
    }

    /// The medians of both costs, without scans.
    fn without_scans(&self) -> (f64, f64) {
        // A wait that finds a hint scans again: arriving has two.
        let scan_ns = median(&self.scan_ns).unwrap_or(0.0);
        (self.standing_ns(0.5) - scan_ns, self.arriving_ns() - 2.0 * scan_ns)
    }

    fn standing_ns(&self, at: f64) -> f64 {
        let costs: Vec<f64> = self.standing.iter().map(|cost| cost.cpu_ns).collect();
        quantile(&costs, at).expect("there is a round at least")
    }

    fn arriving_ns(&self) -> f64 {
        let costs: Vec<f64> = self.arriving.iter().map(|cost| cost.cpu_ns).collect();
        median(&costs).expect("there is a round at least")
    }

    fn row(&self, first: &Subject) -> Row {
        let (standing, arriving) = self.without_scans();
        let (standing_first, arriving_first) = first.without_scans();
        let walls: Vec<f64> = self.standing.iter().map(|cost| cost.wall_ns).collect();
        let calls: Vec<f64> = self.standing.iter().map(|cost| cost.syscalls).collect();
        Row {
            kind: self.kind,
            cold: self.cold,
            standing_ns: self.standing_ns(0.5),
            standing_quartiles_ns: [self.standing_ns(0.25), self.standing_ns(0.75)],
            standing_wall_ns: median(&walls).expect("there is a round at least"),
            scan_ns: median(&self.scan_ns),
            ratio: standing / standing_first,
            arriving_ns: self.arriving_ns(),
            arriving_ratio: arriving / arriving_first,
            syscalls: median(&calls).expect("there is a round at least"),
            waits: self.standing.len() as u64 * u64::from(self.batch),
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// With the nearest rank; `None` of nothing.
fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((at * sorted.len().saturating_sub(1) as f64).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(quantile(&[4.0, 3.0, 2.0, 1.0, 0.0], 0.25), Some(1.0));
    }

    /// Checks the shape only, not the figures.
    #[test]
    fn every_combination_has_a_row() {
        let plan = Plan {
            cold: vec![0, 70],
            rounds: 2,
            visit: Duration::from_micros(50),
            ..Plan::default()
        };
        let (rows, missing) = measure(&plan).unwrap();
        assert_eq!(rows.len(), 2 * (plan.kinds.len() - missing.len()));
        for row in rows {
            assert!(row.standing_ns > 0.0 && row.waits >= 16, "{row:?}");
            assert!(row.cold == 70 || row.ratio == 1.0, "{row:?}");
            assert_eq!(row.scan_ns.is_some(), row.kind == Kind::ScalableSelect);
        }
    }

    #[test]
    fn too_many_descriptors_are_refused_at_once() {
        let plan = Plan { cold: vec![0, 1 << 40], ..Plan::default() };
        assert!(matches!(measure(&plan), Err(Error::Descriptors { .. })));
    }
}

//! The recorder that never ends.
//!
//! ```text
//!            +------------------------------------------------------------+
//!            v                                                            |
//! take the lock -> settle what was left -> wait for the server -> record a part
//!                                               ^    |            midnight, a new program,
//!                                               |    |            the server is gone, too large
//!                                               +----+
//! ```
//!
//! A part is one trial. A part ends at midnight, when the server runs another program, when the
//! server has been gone for a minute, or when the file of the part reaches a quarter of the bound.
//! A server that restarts with the same program stays in its part, whose notes say so. A recorder
//! that restarts begins the next part of the day.
//!
//! Losses: about a second between two parts; after a kill the last interval that was not written
//! (two intervals, with a log); after a power loss the time since the last sync, at most
//! [`SYNC_EVERY`]. A full disk ends the part, and a new part begins when there is room. A full disk
//! never removes a recording of the past: only the bound on the size does.
//!
//! The loop reads no clock and no process itself: it asks its [`World`], which tests simulate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::calendar::{Day, Zone};
use crate::error::Error;
use crate::files::{self, Lock};
use crate::program::Program;
use crate::thin::{self, Done};

/// Length of an interval: a day of ten seconds each is some megabytes.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// A power loss loses at most what was recorded in this time.
pub const SYNC_EVERY: Duration = Duration::from_secs(60);
/// The bound on the disk, if none is given.
pub const SIZE_DEFAULT: u64 = 1 << 30;
/// The least bound: less does not hold a day.
pub const SIZE_MIN: u64 = 16 << 20;
/// A part ends at this share of the bound, so that it can be thinned.
const PART_SHARE: u64 = 4;
/// A server that is gone for so long has ended, and is not restarting.
const GONE_S: i64 = 60;
/// Pause while the server is not there, and after an error.
const PAUSE: Duration = Duration::from_secs(5);
/// Pause on a full disk. Each attempt may leave a trial of a few intervals.
const PAUSE_FULL: Duration = Duration::from_secs(60);
/// How often the sizes are checked while a part is recorded.
const CHECK_S: i64 = 600;

const _: () = {
    assert!(INTERVAL.as_secs() <= SYNC_EVERY.as_secs(), "a sync has something to write");
    assert!(SIZE_MIN <= SIZE_DEFAULT && PART_SHARE > 1, "a part is not all that there is");
    assert!(PAUSE.as_secs() <= PAUSE_FULL.as_secs());
};

/// What to keep, and where.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The directory.
    pub directory: PathBuf,
    /// The server, as [`files::plain`] writes it.
    pub server: String,
    /// Most bytes of all trials of the server.
    pub bytes_max: u64,
    /// Where days begin.
    pub zone: Zone,
}

/// Why a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The day ended.
    Midnight,
    /// The server runs another program.
    Program,
    /// The server is gone.
    Gone,
    /// The file has become too large.
    Size,
    /// The recorder was stopped.
    Stopped,
}

/// A part that was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// Intervals.
    pub intervals: u64,
    /// Requests.
    pub requests: f64,
    /// The recorder's own CPU time, percent of one CPU.
    pub recorder_percent: f64,
}

/// What happened. `Display` is a line for an operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The server does not run.
    Waiting {
        /// Its name.
        server: String,
    },
    /// A part begins.
    Began {
        /// Its file.
        trial: PathBuf,
        /// The server's program.
        program: Program,
    },
    /// A part has ended.
    Ended {
        /// Its file.
        trial: PathBuf,
        /// Why.
        reason: Reason,
        /// What was recorded.
        #[serde(flatten)]
        recorded: Recorded,
    },
    /// A trial was made coarser.
    Thinned {
        /// Its file.
        trial: PathBuf,
        /// The length of its intervals, seconds.
        interval_s: i64,
    },
    /// The oldest trial was removed, because of the bound.
    Removed {
        /// Its file.
        trial: PathBuf,
    },
    /// Something failed; the recording goes on.
    Problem {
        /// What, and what happens next.
        what: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Waiting { server } => write!(f, "{server} does not run; waiting for it"),
            Event::Began { trial, program } => {
                let version = program.text().unwrap_or_else(|| "of unknown version".to_owned());
                write!(f, "recording {} ({version}) into {}", program.path, trial.display())
            }
            Event::Ended { trial, reason, recorded } => {
                let why = match reason {
                    Reason::Midnight => "the day ended",
                    Reason::Program => "the server runs another program now",
                    Reason::Gone => "the server is gone",
                    Reason::Size => "it has become large",
                    Reason::Stopped => "stopped",
                };
                let Recorded { intervals, requests, recorder_percent } = recorded;
                write!(
                    f,
                    "{}: {intervals} intervals, {requests:.0} requests ({why}); the recorder took \
                     {recorder_percent:.2} % of a CPU",
                    trial.display()
                )
            }
            Event::Thinned { trial, interval_s } => {
                write!(f, "{}: intervals of {interval_s} s now", trial.display())
            }
            Event::Removed { trial } => {
                write!(f, "{}: removed, the oldest beyond --keep-size", trial.display())
            }
            Event::Problem { what } => write!(f, "problem: {what}"),
        }
    }
}

/// What the recorder needs from outside.
pub trait World {
    /// Seconds since the epoch.
    fn now_s(&self) -> i64;

    /// The program of the server; `None` if the server does not run.
    fn program(&mut self) -> Option<Program>;

    /// Records into a new file until `ends` returns a reason. It is asked at least once a second.
    ///
    /// # Errors
    /// The server cannot be recorded, or the trial cannot be written. What was recorded before is
    /// in the file.
    fn record(
        &mut self,
        trial: &Path,
        program: &Program,
        ends: &mut Ends<'_>,
    ) -> Result<(Reason, Recorded), record::Error>;

    /// Sleeps. It returns early if the recorder is stopped.
    fn pause(&mut self, length: Duration);

    /// Whether the recorder is to stop.
    fn stopped(&self) -> bool;

    /// Shows what happened.
    fn say(&mut self, event: &Event);
}

/// Decides when a part ends.
pub struct Ends<'a> {
    terms: &'a Terms,
    trial: PathBuf,
    program: Program,
    midnight_s: i64,
    checked_s: i64,
    gone_since_s: Option<i64>,
}

impl Ends<'_> {
    /// Why the part ends now, if it does. `program` is that of the server, if it runs. The sizes of
    /// the files are looked at from time to time, and `say` gets what was done to them.
    pub fn look(
        &mut self,
        now_s: i64,
        program: Option<&Program>,
        say: &mut dyn FnMut(Event),
    ) -> Option<Reason> {
        if now_s >= self.midnight_s {
            return Some(Reason::Midnight);
        }
        match program {
            Some(program) if program.same(&self.program) => self.gone_since_s = None,
            Some(_) => return Some(Reason::Program),
            None => {
                let since_s = *self.gone_since_s.get_or_insert(now_s);
                if now_s - since_s >= GONE_S {
                    return Some(Reason::Gone);
                }
            }
        }
        if now_s - self.checked_s >= CHECK_S {
            self.checked_s = now_s;
            make_room(self.terms, Some(&self.trial), say);
            if size(self.terms, &self.trial) > self.terms.bytes_max / PART_SHARE {
                return Some(Reason::Size);
            }
        }
        None
    }
}

fn size(terms: &Terms, trial: &Path) -> u64 {
    let all = files::list(&terms.directory, &terms.server).unwrap_or_default();
    all.iter().find(|kept| kept.path == trial).map_or(0, files::Kept::bytes)
}

/// Records until stopped.
///
/// # Errors
/// Another recorder has the directory, or the directory cannot be used. The server cannot be
/// recorded at all: the first part fails before its first interval, for a reason other than that
/// the server has ended or the disk is full.
pub fn keep(terms: &Terms, world: &mut dyn World) -> Result<(), Error> {
    let _lock = Lock::take(&terms.directory, &terms.server)?;
    settle(terms, &mut |event| world.say(&event));
    let mut thinned: Option<Day> = None;
    let (mut waiting, mut recorded_any) = (false, false);
    while !world.stopped() {
        let today = terms.zone.day(world.now_s());
        if thinned != Some(today) {
            thinned = Some(today);
            let done = thin::by_age(&terms.directory, &terms.server, today);
            say_done(done, &mut |event| world.say(&event));
            make_room(terms, None, &mut |event| world.say(&event));
        }
        let Some(program) = world.program() else {
            if !std::mem::replace(&mut waiting, true) {
                world.say(&Event::Waiting { server: terms.server.clone() });
            }
            world.pause(PAUSE);
            continue;
        };
        waiting = false;
        match part(terms, world, &program, today) {
            Ok(()) => recorded_any = true,
            // It has ended since.
            Err(Error::Record(
                record::Error::NoName { .. }
                | record::Error::NoCgroup { .. }
                | record::Error::NoProcess { .. },
            )) => world.pause(PAUSE),
            Err(error) if recorded_any || is_passing(&error) => {
                let pause = if is_passing(&error) { PAUSE_FULL } else { PAUSE };
                let seconds = pause.as_secs();
                let what = format!("{error}; the recorder tries again in {seconds} s");
                world.say(&Event::Problem { what });
                world.pause(pause);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the recording can go on later, without a change by the operator.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Record(record::Error::Trial(trial::Error::DiskFull { .. }))
            | Error::Directory { .. }
    )
}

/// Records one part.
fn part(terms: &Terms, world: &mut dyn World, program: &Program, today: Day) -> Result<(), Error> {
    let failed = |source| Error::Directory { path: terms.directory.clone(), source };
    let trial = files::next(&terms.directory, &terms.server, today).map_err(failed)?;
    world.say(&Event::Began { trial: trial.clone(), program: program.clone() });
    let mut ends = Ends {
        terms,
        trial: trial.clone(),
        program: program.clone(),
        midnight_s: terms.zone.begin_s(today.plus(1)),
        checked_s: world.now_s(),
        gone_since_s: None,
    };
    let ended = world.record(&trial, program, &mut ends);
    // A part without an interval says nothing, and would be a row of every table.
    let empty = |trial: &Path| {
        trial::Trial::recent(trial, 1).is_ok_and(|trial| trial.intervals().is_empty())
    };
    let all = files::list(&terms.directory, &terms.server).map_err(failed)?;
    if let Some(kept) = all.iter().find(|kept| kept.path == trial && empty(&kept.path)) {
        kept.remove().map_err(failed)?;
    }
    let (reason, recorded) = ended?;
    world.say(&Event::Ended { trial, reason, recorded });
    Ok(())
}

/// Folds the journals that a killed recorder has left.
fn settle(terms: &Terms, say: &mut dyn FnMut(Event)) {
    for kept in files::list(&terms.directory, &terms.server).unwrap_or_default() {
        if let Err(error) = thin::settled(&kept) {
            say(Event::Problem { what: error.to_string() });
        }
    }
}

fn make_room(terms: &Terms, current: Option<&Path>, say: &mut dyn FnMut(Event)) {
    let Terms { directory, server, bytes_max, .. } = terms;
    say_done(thin::by_size(directory, server, *bytes_max, current), say);
}

fn say_done(done: std::io::Result<Vec<Done>>, say: &mut dyn FnMut(Event)) {
    match done {
        Ok(done) => done.into_iter().for_each(|one| {
            say(match one {
                Done::Thinned(trial, interval_s) => Event::Thinned { trial, interval_s },
                Done::Removed(trial) => Event::Removed { trial },
                Done::Failed(what) => Event::Problem { what },
            });
        }),
        Err(error) => say(Event::Problem { what: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use trial::{Trial, Writer};

    use super::*;
    use crate::testing::{interval, manifest};

    const HOUR_S: i64 = 3600;

    /// What happens to the simulated server and its recorder, at a time.
    #[derive(Clone, Debug)]
    enum Happens {
        Runs(&'static str),
        Ends,
        DiskFull,
        DiskEmpty,
        Killed,
    }

    /// A simulated clock, server and disk. The recording is real, in intervals of ten seconds.
    struct Simulated {
        now_s: i64,
        until_s: i64,
        script: VecDeque<(i64, Happens)>,
        program: Option<Program>,
        disk_full: bool,
        killed: bool,
        said: Vec<Event>,
    }

    impl Simulated {
        fn new(from_s: i64, until_s: i64, script: Vec<(i64, Happens)>) -> Simulated {
            let script = script.into();
            Simulated {
                now_s: from_s,
                until_s,
                script,
                program: None,
                disk_full: false,
                killed: false,
                said: Vec::new(),
            }
        }

        fn pass(&mut self, seconds: i64) {
            self.now_s += seconds;
            while self.script.front().is_some_and(|(at_s, _)| *at_s <= self.now_s) {
                match self.script.pop_front().unwrap().1 {
                    Happens::Runs(version) => {
                        let path = "/usr/sbin/nginx".to_owned();
                        let id = version.bytes().map(u64::from).sum();
                        self.program = Some(Program {
                            path,
                            version: Some(version.to_owned()),
                            build_id: None,
                            file: (1, id, 0),
                        });
                    }
                    Happens::Ends => self.program = None,
                    Happens::DiskFull => self.disk_full = true,
                    Happens::DiskEmpty => self.disk_full = false,
                    Happens::Killed => self.killed = true,
                }
            }
        }

        fn problems(&self) -> usize {
            self.said.iter().filter(|event| matches!(event, Event::Problem { .. })).count()
        }

        fn reasons(&self) -> Vec<Reason> {
            let reason = |event: &Event| match event {
                Event::Ended { reason, .. } => Some(*reason),
                _ => None,
            };
            self.said.iter().filter_map(reason).collect()
        }
    }

    fn disk_full(path: &Path) -> record::Error {
        let mut writer =
            Writer::replace(path.with_extension("small"), &manifest(0, 10, None)).unwrap();
        writer.bound_bytes(1).unwrap();
        let full = (0..).find_map(|index| writer.append(&interval(index, 0, 10, 50.0)).err());
        record::Error::Trial(full.unwrap())
    }

    impl World for Simulated {
        fn now_s(&self) -> i64 {
            self.now_s
        }

        fn program(&mut self) -> Option<Program> {
            self.pass(0);
            self.program.clone()
        }

        fn record(
            &mut self,
            trial: &Path,
            program: &Program,
            ends: &mut Ends<'_>,
        ) -> Result<(Reason, Recorded), record::Error> {
            let manifest = manifest(self.now_s, 10, program.version.as_deref());
            let mut writer = Writer::create(trial, &manifest)?;
            let mut recorded = Recorded { intervals: 0, requests: 0.0, recorder_percent: 0.02 };
            loop {
                for _ in 0..10 {
                    let current = self.program();
                    let mut said = Vec::new();
                    let ended =
                        ends.look(self.now_s, current.as_ref(), &mut |event| said.push(event));
                    self.said.append(&mut said);
                    let stopped = self.now_s >= self.until_s;
                    if let Some(reason) = ended.or(stopped.then_some(Reason::Stopped)) {
                        writer.finish()?;
                        return Ok((reason, recorded));
                    }
                    if self.killed {
                        // The writer is dropped, which leaves the trial as a kill does.
                        return Ok((Reason::Stopped, recorded));
                    }
                    if self.disk_full {
                        return Err(disk_full(trial));
                    }
                    self.pass(1);
                }
                let one = interval(recorded.intervals, self.now_s - 10, 10, 50.0);
                recorded.requests += one.requests;
                writer.append(&one)?;
                recorded.intervals += 1;
            }
        }

        fn pause(&mut self, length: Duration) {
            self.pass(length.as_secs() as i64);
        }

        fn stopped(&self) -> bool {
            self.now_s >= self.until_s || self.killed
        }

        fn say(&mut self, event: &Event) {
            self.said.push(event.clone());
        }
    }

    const ZONE: Zone = Zone::Fixed(0);

    fn noon() -> i64 {
        ZONE.at_s(Day::parse("2026-11-28").unwrap(), 12, 0)
    }

    fn terms(directory: &Path) -> Terms {
        Terms {
            directory: directory.to_owned(),
            server: "nginx".to_owned(),
            bytes_max: SIZE_DEFAULT,
            zone: ZONE,
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let kept = files::list(directory, "nginx").unwrap();
        let name = |kept: &files::Kept| kept.path.file_name().unwrap().to_str().unwrap().to_owned();
        kept.iter().map(name).collect()
    }

    /// The seconds that are recorded, and the versions, in the order of the files.
    fn kept(directory: &Path) -> (i64, Vec<String>) {
        let (mut seconds, mut versions) = (0, Vec::new());
        for kept in files::list(directory, "nginx").unwrap() {
            let trial = Trial::open(&kept.path).unwrap();
            seconds += trial.intervals().iter().map(|one| one.length_ns).sum::<i64>();
            versions.push(trial.manifest().server.version.clone().unwrap());
        }
        (seconds / 1_000_000_000, versions)
    }

    #[test]
    fn a_trial_a_day_from_midnight_to_midnight() {
        let home = tempfile::tempdir().unwrap();
        let evening = noon() + 8 * HOUR_S;
        let script = vec![(evening, Happens::Runs("1.22"))];
        let mut world = Simulated::new(evening, evening + 7 * HOUR_S, script);
        keep(&terms(home.path()), &mut world).unwrap();
        let expected = ["2026-11-28-nginx.trial", "2026-11-29-nginx.trial"];
        assert_eq!(names(home.path()), expected);
        assert_eq!(world.reasons(), [Reason::Midnight, Reason::Stopped]);
        assert_eq!(kept(home.path()).0, 7 * HOUR_S);
        let second = Trial::open(home.path().join(expected[1])).unwrap();
        assert_eq!(second.manifest().created_ns / 1_000_000_000, noon() + 12 * HOUR_S);
        assert_eq!(world.problems(), 0, "{:?}", world.said);
    }

    #[test]
    fn another_program_begins_another_trial_and_the_same_one_does_not() {
        let home = tempfile::tempdir().unwrap();
        let at = |minutes: i64| noon() + 60 * minutes;
        let script = vec![
            // The recorder is there before the server.
            (at(5), Happens::Runs("1.22")),
            // A restart of the same program takes half a minute.
            (at(20), Happens::Ends),
            (at(20) + 30, Happens::Runs("1.22")),
            (at(40), Happens::Runs("1.24")),
            // It is gone for ten minutes, and back as it was.
            (at(60), Happens::Ends),
            (at(70), Happens::Runs("1.24")),
        ];
        let mut world = Simulated::new(noon(), at(80), script);
        keep(&terms(home.path()), &mut world).unwrap();
        assert_eq!(world.reasons(), [Reason::Program, Reason::Gone, Reason::Stopped]);
        let (seconds, versions) = kept(home.path());
        assert_eq!(versions, ["1.22", "1.24", "1.24"]);
        // Five minutes before the server was there, and ten while it was gone, less the minute in
        // which it might have come back.
        assert!((64 * 60..=66 * 60).contains(&seconds), "{seconds}");
        let waits = world.said.iter().filter(|event| matches!(event, Event::Waiting { .. }));
        assert_eq!(waits.count(), 2);
        assert_eq!(
            names(home.path()),
            ["2026-11-28-nginx.trial", "2026-11-28-nginx.2.trial", "2026-11-28-nginx.3.trial"]
        );
    }

    #[test]
    fn a_killed_recorder_goes_on_in_the_next_part() {
        let home = tempfile::tempdir().unwrap();
        let script = vec![(noon(), Happens::Runs("1.22")), (noon() + 605, Happens::Killed)];
        let mut world = Simulated::new(noon(), noon() + HOUR_S, script);
        keep(&terms(home.path()), &mut world).unwrap();
        let first = home.path().join("2026-11-28-nginx.trial");
        // At most one interval is missing.
        assert_eq!(Trial::open(&first).unwrap().intervals().len(), 60);
        assert!(!Trial::open(&first).unwrap().complete());

        let script = vec![(noon() + 700, Happens::Runs("1.22"))];
        let mut world = Simulated::new(noon() + 700, noon() + HOUR_S, script);
        keep(&terms(home.path()), &mut world).unwrap();
        assert_eq!(names(home.path()).len(), 2);
        assert!(!home.path().join("2026-11-28-nginx.trial-wal").exists());
        assert_eq!(world.problems(), 0, "{:?}", world.said);
    }

    #[test]
    fn a_full_disk_is_reported_and_the_recording_goes_on_when_there_is_room() {
        let home = tempfile::tempdir().unwrap();
        let script = vec![
            (noon(), Happens::Runs("1.22")),
            (noon() + 1000, Happens::DiskFull),
            (noon() + 1500, Happens::DiskEmpty),
        ];
        let mut world = Simulated::new(noon(), noon() + 2500, script);
        keep(&terms(home.path()), &mut world).unwrap();
        let (seconds, _) = kept(home.path());
        assert!((1930..=2000).contains(&seconds), "{seconds}");
        assert_eq!(world.problems(), 9);
        let problem = world.said.iter().find(|event| matches!(event, Event::Problem { .. }));
        let problem = problem.unwrap().to_string();
        assert!(problem.contains("full") && problem.contains("again in 60 s"), "{problem}");
        // What was tried in vain leaves no file.
        assert_eq!(names(home.path()).len(), 2);
    }

    #[test]
    fn the_bound_is_kept_and_the_oldest_pay_for_it() {
        let home = tempfile::tempdir().unwrap();
        let today = Day::parse("2026-11-28").unwrap();
        for age in 1..=20 {
            crate::testing::day_of(home.path(), today.plus(-age), 360);
        }
        let size = |directory: &Path| {
            files::list(directory, "nginx").unwrap().iter().map(files::Kept::bytes).sum::<u64>()
        };
        let bytes_max = size(home.path()) / 4;
        let script = vec![(noon(), Happens::Runs("1.22"))];
        let mut world = Simulated::new(noon(), noon() + 2 * HOUR_S, script);
        let terms = Terms { bytes_max, ..terms(home.path()) };
        keep(&terms, &mut world).unwrap();
        // What was appended since the last look is small.
        assert!(size(home.path()) <= bytes_max + bytes_max / 4, "{}", size(home.path()));
        let lasts = names(home.path()).pop().unwrap();
        assert!(lasts.starts_with("2026-11-28"), "{lasts}");
        assert!(world.said.iter().any(|event| matches!(event, Event::Thinned { .. })));
    }

    #[test]
    fn two_recorders_of_one_server_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let _other = Lock::take(home.path(), "nginx").unwrap();
        let mut world = Simulated::new(noon(), noon() + 60, Vec::new());
        let error = keep(&terms(home.path()), &mut world).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
    }
}

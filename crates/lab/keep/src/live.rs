//! The real world of a recorder: the clock, the processes and the samplers.
//!
//! A part is recorded by the caller's thread. A second thread looks once a second whether the part
//! ends: it reads the clock and the server's `/proc/PID/exe`, and lists all processes only if that
//! process has ended.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use record::{Spec, Target};
use trial::Interval;

use crate::keeper::{Ends, Event, Reason, Recorded, World};
use crate::program::{self, LABEL_BUILD, LABEL_VERSION, Program};

/// How often a part is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is checked whether the recorder must stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The real world.
pub struct Live<'a> {
    /// How a part is recorded; its trial, version and further labels come with the part.
    pub spec: Spec,
    /// Set if the recorder must stop.
    pub stop: &'a AtomicBool,
    /// When it stops by itself.
    pub until: Option<Instant>,
    /// Gets what happened.
    pub say: &'a (dyn Fn(&Event) + Sync),
    /// Gets each interval.
    pub observer: &'a mut dyn FnMut(&Interval),
    /// The server's first process and its program, as they were found last.
    pub found: Option<(u32, Program)>,
}

/// Seconds since the epoch.
#[must_use]
pub fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn is_stopped(stop: &AtomicBool, until: Option<Instant>) -> bool {
    stop.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until)
}

/// The program of the server. Only if its process has ended, or runs another file, all processes
/// are listed.
fn find(target: &Target, found: &mut Option<(u32, Program)>) -> Option<Program> {
    if let Some((pid, program)) = found
        && program::file_of(*pid) == Some(program.file)
    {
        return Some(program.clone());
    }
    let pid = record::processes(target).ok().and_then(|pids| pids.first().copied());
    *found = pid.and_then(|pid| Some((pid, Program::of(pid)?)));
    found.as_ref().map(|(_, program)| program.clone())
}

impl World for Live<'_> {
    fn now_s(&self) -> i64 {
        now_s()
    }

    fn program(&mut self) -> Option<Program> {
        find(&self.spec.target, &mut self.found)
    }

    fn record(
        &mut self,
        trial: &Path,
        program: &Program,
        ends: &mut Ends<'_>,
    ) -> Result<(Reason, Recorded), record::Error> {
        let Live { spec, stop, until, say, observer, found } = self;
        if let Ok(Some(several)) = record::several_servers(&spec.target) {
            let what = format!("{several}; with --keep, by --unit or --cgroup");
            say(&Event::Problem { what });
        }
        let mut spec = spec.clone();
        trial.clone_into(&mut spec.out);
        spec.version.clone_from(&program.version);
        for (name, value) in [(LABEL_VERSION, &program.version), (LABEL_BUILD, &program.build_id)] {
            if let Some(value) = value {
                spec.labels.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
        }
        let (target, stop_part, done) =
            (spec.target.clone(), AtomicBool::new(false), AtomicBool::new(false));
        let (result, reason) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut looked = Instant::now();
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(STOP_CHECK);
                    let reason = match is_stopped(stop, *until) {
                        true => Some(Reason::Stopped),
                        false if looked.elapsed() < LOOK => None,
                        false => {
                            looked = Instant::now();
                            let program = find(&target, found);
                            ends.look(now_s(), program.as_ref(), &mut |event| say(&event))
                        }
                    };
                    if reason.is_some() {
                        stop_part.store(true, Ordering::Relaxed);
                        return reason;
                    }
                }
                None
            });
            let result = record::record(&spec, &stop_part, &mut **observer);
            done.store(true, Ordering::Relaxed);
            (result, watch.join())
        });
        let reason = reason.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let summary = result?;
        let recorded = Recorded {
            intervals: summary.intervals,
            requests: summary.requests,
            recorder_percent: 100.0 * summary.recorder_ns as f64
                / summary.recorded_ns.max(1) as f64,
        };
        Ok((reason.unwrap_or(Reason::Gone), recorded))
    }

    fn pause(&mut self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.stopped() {
            thread::sleep(STOP_CHECK);
        }
    }

    fn stopped(&self) -> bool {
        is_stopped(self.stop, self.until)
    }

    fn say(&mut self, event: &Event) {
        (self.say)(event);
    }
}

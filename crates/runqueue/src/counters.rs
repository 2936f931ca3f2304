//! The processor's own counters over the walk, where a probe finds them to count.
//!
//! What: a child that does nothing but walk ([`Walker`]) is recorded, as any server would be; a
//! recorder does not record itself. The probe and its reasons are the recorder's. Who owns: the
//! child is ended here. What never happens: a count from a counter that did not count a loop of
//! known length.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use record::Spec;
use serde::Serialize;
use trial::Trial;
use trial::counters::{Counts, Whose};

use crate::Layout;
use crate::arena::{Arena, Palette};
use crate::cache::Machine;
use crate::drivers::walkable;
use harness::Error;
use harness::environment::Temporary;

/// How long a child is recorded, in one interval.
const RECORDED: Duration = Duration::from_millis(400);
/// Colours of the child that has some.
const COLOURS: u32 = 32;

/// What the counters say of the walk, if there are any.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counters {
    /// Of each layout.
    Counted(Vec<CountedWalk>),
    /// Why there are none.
    NotSupported(String),
}

/// Counts of one layout, of the whole child while it was recorded.
#[derive(Clone, Debug, Serialize)]
pub struct CountedWalk {
    /// Where the structures lie in their blocks.
    pub layout: Layout,
    /// Tasks that were walked over, from the child's beginning to its end: a little longer.
    pub tasks: u64,
    /// References to the last level of the caches.
    pub references: Option<u64>,
    /// Misses there.
    pub misses: Option<u64>,
}

/// Walks in a process of its own until it is told to stop.
#[derive(Clone, Copy, Debug)]
pub struct Walker {
    /// Tasks on the list.
    pub runnable: u32,
    /// Whether their structures have 32 colours.
    pub colours: bool,
    /// Seed of the order of the list.
    pub seed: u64,
}

impl Walker {
    /// Walks; how many tasks were walked over.
    #[must_use]
    pub fn walk(&self, stop: &AtomicBool) -> u64 {
        let arena = Arena::new(self.runnable);
        let palette = Palette::of(self.layout(), &Machine::of_today());
        let queue = walkable(&arena, &palette, self.runnable, &u64::from, self.seed);
        let mut tasks = 0;
        while !stop.load(Ordering::Relaxed) {
            tasks += queue.only_walk(&mut ());
        }
        tasks
    }

    fn layout(&self) -> Layout {
        if self.colours { Layout::Colours(COLOURS) } else { Layout::Vanilla }
    }
}

/// Records a child that walks over so many tasks, for each layout. `program` is the one whose
/// hidden verb `runqueue-walker` is [`Walker::walk`].
pub(super) fn count(
    program: &Path,
    runnable: u32,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Counters, Error> {
    let mut counted = Vec::new();
    for colours in [false, true] {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let walker = Walker { runnable, colours, seed };
        match recorded(program, walker)? {
            Ok(walk) => counted.push(walk),
            Err(why) => return Ok(Counters::NotSupported(why)),
        }
    }
    Ok(Counters::Counted(counted))
}

/// Ended when it is dropped, at the latest.
struct Walking(Child);

impl Drop for Walking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn recorded(program: &Path, walker: Walker) -> Result<Result<CountedWalk, String>, Error> {
    let parent = std::env::temp_dir();
    let home = Temporary::new(&parent, "runqueue").map_err(|e| Error::Directory(parent, e))?;
    let out = home.path().join("walk.trial");
    let failed = |what: String| Error::Start("the walker".into(), what);
    let mut command = Command::new(program);
    command.args(["runqueue-walker", "--runnable", &walker.runnable.to_string()]);
    command.args(["--seed", &walker.seed.to_string()]);
    if walker.colours {
        command.arg("--colours");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut walking = Walking(child);
    let mut spec = Spec::new(record::Target::Pid(walking.0.id()), None, &out);
    (spec.interval, spec.duration) = (RECORDED, Some(RECORDED));
    (spec.profile, spec.counters) = (None, true);
    record::record(&spec, &AtomicBool::new(false), &mut |_| {})?;
    // The end of its input ends it.
    drop(walking.0.stdin.take());
    let mut told = String::new();
    if let Some(mut output) = walking.0.stdout.take() {
        output.read_to_string(&mut told).map_err(|error| failed(error.to_string()))?;
    }
    let tasks = told.trim().parse();
    let tasks = tasks.map_err(|_| failed(format!("it said {told:?} and no number of tasks")))?;
    Ok(counts(&Trial::open(&out)?, walker.layout(), tasks))
}

/// What was counted, or why nothing was.
fn counts(trial: &Trial, layout: Layout, tasks: u64) -> Result<CountedWalk, String> {
    let of_server = trial.counters().iter().filter(|row| row.whose == Whose::Server);
    let rows: Vec<Counts> = of_server.map(|row| row.counts).collect();
    let sum = |value: fn(&Counts) -> Option<u64>| {
        rows.iter().map(value).reduce(|sum, next| Some(sum? + next?)).flatten()
    };
    let (references, misses) = (sum(|c| c.cache_references), sum(|c| c.cache_misses));
    if misses.is_some() {
        return Ok(CountedWalk { layout, tasks, references, misses });
    }
    let capabilities = &trial.manifest().capabilities;
    let told = capabilities.iter().find(|known| known.name == "hardware counters");
    let why = told.map(|known| known.reason.clone()).filter(|why| !why.is_empty());
    Err(why.unwrap_or_else(|| "the recorder has no count of misses".to_owned()))
}

#[cfg(test)]
mod tests {
    use trial::counters::CounterRow;
    use trial::{Capability, Interval, Manifest, Writer};

    use super::*;

    #[test]
    fn a_walker_walks_until_it_is_told_to_stop() {
        let walker = Walker { runnable: 64, colours: true, seed: 1 };
        assert_eq!(walker.walk(&AtomicBool::new(true)), 0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let walking = scope.spawn(|| walker.walk(&stop));
            std::thread::sleep(Duration::from_millis(5));
            stop.store(true, Ordering::Relaxed);
            assert!(walking.join().unwrap().is_multiple_of(64), "whole walks");
        });
    }

    #[test]
    fn what_was_counted_is_added_up_and_what_was_not_has_a_reason() {
        let home = tempfile::tempdir().unwrap();
        let of = |name: &str, whose: Whose, misses: Option<u64>| {
            let capability = Capability {
                name: "hardware counters".into(),
                supported: misses.is_some(),
                reason: "cache misses: it opens and reads zero".into(),
            };
            let manifest = Manifest { capabilities: vec![capability], ..Manifest::default() };
            let path = home.path().join(name);
            let mut writer = Writer::create(&path, &manifest).unwrap();
            for index in 0..2 {
                let counts = Counts { cache_misses: misses, ..Counts::default() };
                writer
                    .counters(&[CounterRow { interval: index, whose, counts, counted: 1.0 }])
                    .unwrap();
                let interval = Interval { index, length_ns: 1, ..Interval::default() };
                writer.append(&interval).unwrap();
            }
            writer.finish().unwrap();
            counts(&Trial::open(&path).unwrap(), Layout::Vanilla, 10)
        };
        assert_eq!(of("counted", Whose::Server, Some(3)).unwrap().misses, Some(6));
        assert!(of("zero", Whose::Server, None).unwrap_err().contains("reads zero"));
        assert!(of("others", Whose::Machine, Some(3)).is_err(), "not the walker's");
    }
}

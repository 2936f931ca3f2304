//! The processor's own counters during the walk, if a probe confirms that they count.
//!
//! What: a child that only walks ([`Walker`]) is recorded like any other server, because a recorder
//! does not record itself. The probe and its reasons are the recorder's. Ownership: the child is
//! ended here. What never happens: a count from a counter that failed on a loop of known length.

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

/// Duration of a child's recording, in one interval.
const RECORDED: Duration = Duration::from_millis(400);
/// Number of colours of the coloured child.
const COLOURS: u32 = 32;

/// The counters' results for the walk, if there are any.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counters {
    /// One per layout.
    Counted(Vec<CountedWalk>),
    /// Why there are none.
    NotSupported(String),
}

/// Counts of one layout: the whole child during its recording.
#[derive(Clone, Debug, Serialize)]
pub struct CountedWalk {
    /// Where the structures are in their blocks.
    pub layout: Layout,
    /// Tasks walked over in the child's whole life, which is slightly longer than the recording.
    pub tasks: u64,
    /// References to the last-level cache.
    pub references: Option<u64>,
    /// Misses there.
    pub misses: Option<u64>,
}

/// Walks in a separate process until it is stopped.
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
    /// Walks, and returns the number of tasks walked over.
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

/// Records a child that walks over this many tasks, for each layout. `program` is the one whose
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

/// Kills the child when dropped.
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
    // The child ends when its input ends.
    drop(walking.0.stdin.take());
    let mut output = String::new();
    if let Some(mut stdout) = walking.0.stdout.take() {
        stdout.read_to_string(&mut output).map_err(|error| failed(error.to_string()))?;
    }
    let tasks = output.trim().parse();
    let tasks =
        tasks.map_err(|_| failed(format!("it printed {output:?} and no number of tasks")))?;
    Ok(counts(&Trial::open(&out)?, walker.layout(), tasks))
}

/// The counts, or why there are none.
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
    let capability = capabilities.iter().find(|known| known.name == "hardware counters");
    let why = capability.map(|known| known.reason.clone()).filter(|why| !why.is_empty());
    Err(why.unwrap_or_else(|| "the recorder has no count of misses".to_owned()))
}

#[cfg(test)]
mod tests {
    use trial::counters::CounterRow;
    use trial::{Capability, Interval, Manifest, Writer};

    use super::*;

    #[test]
    fn a_walker_walks_until_it_is_stopped() {
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
    fn counts_are_summed_and_missing_ones_have_a_reason() {
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

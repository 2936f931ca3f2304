//! A static tree of files and clients in a closed loop, as WebBench asks: ours beside the peers.
//!
//! The study of 2002 measured its scheduler under WebBench: 256 processes of a web server, files of
//! many sizes, clients that ask again as soon as they are answered, 1 to 8 processors. What was
//! published of it is what another kernel gains. Here the same kind of load is put on today's
//! servers: what they answer, what a request costs, and how both change with the workers.
//!
//! ```text
//!  tree of files ------> nginx, lighttpd -------.
//!    same bytes                                  >--- closed loop of 1 to 256 connections
//!  origin --filled once--> ours, HAProxy, Varnish'
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | `tree` | the files, which are the origin's objects too |
//! | `servers` | ours and the peers as processes |
//! | `measure` | visits in rounds, and figures over them |
//! | `show` | all of it as text and as a figure |
//!
//! What never happens: an answer of another length counts; a server is compared with ours by what
//! was not measured in the same round; two servers are loaded at once.

mod measure;
mod servers;
mod show;
mod tree;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

pub use harness::Environment;
pub use harness::Error;
pub use harness::rounds::Figure;
pub use measure::Row;
pub use servers::{From, Missing};
pub use show::{figure, shown};
pub use tree::Tree;

use harness::environment::{Temporary, load_average};
use harness::{Cpus, Source};
use servers::Stand;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose verbs `serve` and `origin` are run: plimsoll itself.
    pub program: PathBuf,
    /// Where the study works; what it makes is removed again.
    pub out: Option<PathBuf>,
    /// Files of the tree.
    pub files: u32,
    /// Numbers of workers, ascending; scaling is to the first.
    pub workers: Vec<u16>,
    /// Numbers of clients, ascending.
    pub clients: Vec<u32>,
    /// Rounds, each over all servers and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// How long a visit is.
    pub visit: Duration,
    /// Seed of sizes, of what is asked for, and of the order of visits.
    pub seed: u64,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where.
    pub ground: Environment,
    /// Processes that wanted to run, at the beginning and in the end.
    pub load_average: (Option<f64>, Option<f64>),
    /// The files.
    pub tree: Tree,
    /// The peers that are installed, with their versions.
    pub versions: Vec<String>,
    /// Servers that are not measured, and why.
    pub missing: Vec<Missing>,
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of a visit.
    pub visit_s: f64,
    /// By workers, server and clients.
    pub rows: Vec<Row>,
    /// Seed.
    pub seed: u64,
}

/// Measures. `say` is told what is being done.
///
/// # Errors
/// Our own server does not start, or answers nothing; the directory cannot be used; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let parent = plan.out.clone().unwrap_or_else(std::env::temp_dir);
    let home = Temporary::new(&parent, "webbench").map_err(|e| Error::Directory(parent, e))?;
    let ground = Environment::of(home.path());
    let loaded = load_average();
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors is not told", error))?;
    say("writing the tree");
    let (tree, files) = (Tree::of(plan.files, plan.seed), home.path().join("tree"));
    tree.write(&files).map_err(|error| Error::Directory(files.clone(), error))?;
    let cpus = ground.processors;
    let others = (cpus > 1).then(|| cpus - 1);
    let source = Source::start(&plan.program, Cpus { server: None, others })?;
    let stand = Stand {
        program: &plan.program,
        home: home.path(),
        files: &files,
        tree: &tree,
        origin: source.address(),
        cpus,
    };
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    // All before the first load, which keeps this thread, and what it starts, on one CPU.
    for workers in &plan.workers {
        say(&format!("starting servers with {workers} workers"));
        running.extend(servers::start(&stand, *workers, &mut missing)?);
    }
    missing.dedup_by(|one, other| (&one.server, &one.why) == (&other.server, &other.why));
    let (rows, rounds) = measure::measure(plan, &running, others, stop, say)?;
    Ok(Outcome {
        ground,
        load_average: (loaded, load_average()),
        tree,
        versions: servers::versions(),
        missing,
        rounds,
        visit_s: plan.visit.as_secs_f64(),
        rows,
        seed: plan.seed,
    })
}

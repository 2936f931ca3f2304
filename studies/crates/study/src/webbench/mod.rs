//! A static tree of files under a closed loop, as in WebBench: our server and its peers.
//!
//! The study of 2002 measured its scheduler under WebBench: 256 processes of a web server, files of
//! many sizes, clients that send the next request as soon as the last is answered, 1 to 8
//! processors. It published what another kernel gains. This study puts the same kind of load on
//! today's servers: how many requests they answer, what a request costs, and how both change with
//! the number of workers.
//!
//! ```text
//!  tree of files ------> nginx, lighttpd -------.
//!    same bytes                                  >--- closed loop of 1 to 256 connections
//!  origin --filled once--> ours, HAProxy, Varnish'
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | `tree` | the files, which are also the origin's objects |
//! | `servers` | our server and the peers as processes |
//! | `measure` | visits in rounds, and figures over them |
//! | `show` | all of it as text and as a figure |
//!
//! What never happens: a response of another length counts; a server is compared with ours by
//! measurements of different rounds; two servers are loaded at once.

mod measure;
mod servers;
mod show;
mod tree;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::{Cpus, Error, Source};
use serde::Serialize;

pub use measure::Row;
pub use servers::{From, Missing};
pub use show::{figure, shown};
pub use tree::Tree;

use crate::conditions::{Conditions, working_directory};
use servers::Setup;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `plimsoll`, whose verbs `serve` and `origin` are run.
    pub program: PathBuf,
    /// Where the working directory is made; it is removed at the end.
    pub out: Option<PathBuf>,
    /// Number of files in the tree.
    pub files: u32,
    /// Numbers of workers, ascending; scaling is relative to the first.
    pub workers: Vec<u16>,
    /// Numbers of clients, ascending.
    pub clients: Vec<u32>,
    /// Rounds, each over all servers and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// Length of a visit.
    pub visit: Duration,
    /// Seed of the sizes, of the requested files, and of the order of visits.
    pub seed: u64,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The files.
    pub tree: Tree,
    /// The peers that are installed, with their versions.
    pub versions: Vec<String>,
    /// Servers that were not measured, and why.
    pub missing: Vec<Missing>,
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of a visit.
    pub visit_s: f64,
    /// By workers, server and clients.
    pub rows: Vec<Row>,
}

/// Measures. `say` is called with each step.
///
/// # Errors
/// Our own server does not start or does not answer; the directory cannot be used; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let home = working_directory(plan.out.as_ref(), "webbench")?;
    let conditions = Conditions::at_start(home.path(), plan.seed);
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    say("writing the tree");
    let (tree, files) = (Tree::of(plan.files, plan.seed), home.path().join("tree"));
    tree.write(&files).map_err(|error| Error::Directory(files.clone(), error))?;
    let cpus = conditions.ground.processors;
    let others = (cpus > 1).then(|| cpus - 1);
    let source = Source::start(&plan.program, Cpus { server: None, others })?;
    let setup = Setup {
        program: &plan.program,
        home: home.path(),
        files: &files,
        tree: &tree,
        origin: source.address(),
        cpus,
    };
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    // All of them start before the first load, which pins this thread, and its children, to a CPU.
    for workers in &plan.workers {
        say(&format!("starting servers with {workers} workers"));
        running.extend(servers::start(&setup, *workers, &mut missing)?);
    }
    missing.dedup_by(|one, other| (&one.server, &one.why) == (&other.server, &other.why));
    let (rows, rounds) = measure::measure(plan, &running, others, stop, say)?;
    Ok(Outcome {
        conditions: conditions.at_end(),
        tree,
        versions: servers::versions(),
        missing,
        rounds,
        visit_s: plan.visit.as_secs_f64(),
        rows,
    })
}

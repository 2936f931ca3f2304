//! A trial in the formats of other tools: stacks for flame graphs and profilers, tables for
//! everything else.
//!
//! | module | writes |
//! | --- | --- |
//! | `flame` | the flame graph as an SVG that can be zoomed |
//! | `collapsed` | a line a stack, by samples or by what a request costs |
//! | `pprof` | profile.proto, gzipped |
//! | `firefox` | the processed profile of the Firefox profiler |
//! | `tables` | which tables there are; `csv` and `parquet` write them |
//!
//! Names are those of the report; what a name may not hold in a format is replaced there. Idle
//! samples are nobody's cost and in none of these.

mod collapsed;
mod csv;
mod firefox;
mod flame;
mod parquet;
mod pprof;
mod tables;

use std::collections::BTreeMap;

use trial::Trial;
use trial::profile::Owner;

pub use collapsed::{CollapsedBy, collapsed};
pub use csv::csv;
pub use firefox::firefox;
pub use flame::svg_flame;
pub use parquet::parquet;
pub use pprof::pprof;

/// A file of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its name in the directory.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Samples and nanoseconds of each stack that is not idle, over the whole trial.
fn by_stack(trial: &Trial) -> BTreeMap<(Owner, u32), (u64, i64)> {
    let mut found: BTreeMap<(Owner, u32), (u64, i64)> = BTreeMap::new();
    for row in trial.samples().iter().filter(|row| row.owner != Owner::Idle) {
        let stack = found.entry((row.owner, row.stack)).or_default();
        stack.0 += u64::from(row.samples);
        stack.1 += row.ns;
    }
    found
}

fn owner_name(owner: Owner) -> &'static str {
    match owner {
        Owner::Server => "server",
        Owner::Recorder => "recorder",
        Owner::Other => "others",
        Owner::Idle => "idle",
    }
}

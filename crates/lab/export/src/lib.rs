//! A trial in the formats of other tools: stacks for flame graphs and profilers, tables for
//! everything else.
//!
//! | module | writes |
//! | --- | --- |
//! | `flame` | the flame graph as an SVG that can be zoomed, also of a difference |
//! | `collapsed` | one line per stack, by samples or by cost per request |
//! | `pprof` | profile.proto, gzipped |
//! | `otlp` | the same as a message of OpenTelemetry |
//! | `firefox` | the processed profile of the Firefox profiler |
//! | `tables` | which tables there are; `csv` and `parquet` write them, and the crate `fleet` |
//!
//! Names are those of the report, with the characters replaced that a format does not allow. Idle
//! samples are not exported.

#![forbid(unsafe_code)]

mod collapsed;
mod csv;
mod firefox;
mod flame;
mod otlp;
mod parquet;
mod pprof;
mod tables;

use std::collections::BTreeMap;

use report::Analysis;
use report::Error;
use trial::Trial;
use trial::profile::Owner;

pub use collapsed::{CollapsedBy, collapsed};
pub use csv::csv;
pub use firefox::firefox;
pub use flame::{StackChange, svg_difference, svg_flame};
pub use otlp::otlp;
pub use parquet::parquet;
pub use pprof::pprof;
pub use tables::{Column, Table, Values, measured, stack_identity};

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its path in the directory.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

fn no_profile(analysis: &Analysis) -> Error {
    Error::NoProfile { trial: analysis.trial.name.clone() }
}

/// Name of the server, as the root of its stacks.
fn server_name(trial: &Trial) -> &str {
    match trial.manifest().server_name() {
        "" => "server",
        name => name,
    }
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

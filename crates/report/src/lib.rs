//! From a trial to what a person reads: the analysis, as tables in a terminal, as figures and as a
//! page.
//!
//! [`analyse`] decides what is shown and [`regress`] what is true: it chooses the resources, sets
//! apart the intervals that are no part of a line (warm-up, saturation, an invalid rate), and fits
//! the rest. The [`Analysis`] it returns is all that any output shows, and its serialisation is
//! the JSON of the command: [`terminal`], [`html`] and [`svg_loadline`] only write it out.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `analysis` | the figures: resources, capacity, modes, latency, standing of each interval; |
//! | | profile and costs by group; what-if; the comparison of two trials; the last intervals |
//! | [`mod@groups`] | the rules by which samples belong to procedure groups |
//! | `terminal` | tables that are readable at 80 columns |
//! | `classes` | costs by class of request as text |
//! | `tables` | profile, costs, what-if and comparison as text |
//! | `waits`, `files` | waits for locks; what became of files, by size |
//! | `page` | one self-contained page, light and dark, for screen and print |
//! | `figure` | SVG |
//! | [`mod@export`] | stacks and tables in the formats of other tools |
//! | [`mod@sheet`] | sentences, tables and curves of results that are no trial |
//! | [`mod@format`] | how numbers are written |
//!
//! What never happens: a figure without its count of samples, what was left out, and its interval;
//! an interval dropped in silence; text of a trial taken for markup; a page that loads anything
//! from elsewhere; a clock read (instants are the trial's).

#![forbid(unsafe_code)]

mod analysis;
mod at_once;
mod classes;
mod error;
pub mod export;
mod figure;
mod files;
pub mod format;
pub mod groups;
mod page;
pub mod sheet;
mod summary;
mod tables;
mod terminal;
mod waits;

pub use analysis::{
    AllIntervals, Analysis, CapacityFigure, ClassCostRow, ClassTable, CompareOptions, Comparison,
    CostRow, CostTable, CountedProcedure, CountedShare, CounterCost, CpuPerRequest, Excluded,
    Flame, FlameFrame, FlameUnit, Grade, Graded, GroupCost, HardwareCounters, Instead, IntervalRow,
    Latency, LatencyBin, LatencyPoint, MachineModes, ModeChange, ModeLine, Modes, Objective,
    OneMore, Options, PHASE_SATURATION, PHASE_WARM_UP, PartChange, Procedure, Profile, ProfileRow,
    QUANTITY_CAPACITY, Ratio, Recent, RecentRate, RecentUse, Resource, ResourceKind, RowKind,
    Saturation, Side, StackValue, Standing, TrialFacts, Verdict, WakesLine, WhatIf, analyse,
    compare, recent, what_if,
};
pub use error::Error;
pub use files::{Files, FilesOfSize, NeedlessReads};
pub use groups::Groups;
pub use page::{html, svg_loadline};
pub use tables::{terminal_comparison, terminal_what_if};
pub use terminal::terminal;
pub use waits::{WaitFigures, Waits, WaitsAtPlace, WaitsOfKind};

//! The analysis of a trial, as tables in a terminal, as figures and as a page.
//!
//! [`analyse`] chooses the resources, excludes the intervals that do not belong to a line (warm-up,
//! saturation, an invalid rate), and lets [`regress`] fit the other intervals. The returned
//! [`Analysis`] has everything that an output shows. Its serialisation is the JSON of the command.
//! [`terminal()`], [`html`] and [`svg_loadline`] only write the analysis out.
//!
//! | module | content |
//! | --- | --- |
//! | `analysis` | the figures: resources, capacity, modes, latency, the use of each interval; |
//! | | profile and costs by group; what-if; the comparison of two trials; the last intervals |
//! | `headline` | the answer in one sentence |
//! | `facts`, `tables` | the sentences and tables of a report |
//! | `table`, `terminal` | a table of text; text for a terminal of 80 columns or more |
//! | `page` | the report as text and as a self-contained page, light and dark, screen and print |
//! | `comparison` | a comparison and a what-if as text |
//! | `figure` | SVG |
//! | [`mod@sheet`] | sentences, tables and curves of results that are not trials |
//!
//! Guarantees: a figure always comes with its sample count, its exclusions and its interval; no
//! interval is dropped silently; text of a trial is never treated as markup; a page loads nothing;
//! no clock is read (instants come from the trial).
//!
//! # What it promises
//!
//! This crate decides which numbers are shown. Every number comes from `regress` or from the trial.
//! Text from a trial is escaped wherever it is written.

#![forbid(unsafe_code)]

mod analysis;
mod comparison;
mod error;
mod facts;
mod figure;
mod headline;
mod page;
mod parallel;
pub mod sheet;
mod table;
mod tables;
mod terminal;

pub use analysis::{
    AllIntervals, Analysis, Answers, CapacityFigure, Cause, ClassCostRow, ClassTable,
    CompareOptions, Comparison, CostRow, CostTable, Counted, CountedProcedure, CountedShare,
    CounterCost, CpuPerRequest, DifferenceKind, Excluded, Files, FilesOfSize, Flame, FlameFrame,
    FlameUnit, Grade, Graded, GroupCost, HardwareCounters, Instead, IntervalRow, IntervalUse,
    Latency, LatencyAtRate, LatencyBin, LatencyPoint, LatencyToCome, LoadDifference, MODEL_BUSY,
    MODEL_MEASURED, MachineModes, ModeChange, ModeLine, Modes, NeedlessReads, Objective, OneMore,
    Options, PHASE_SATURATION, PHASE_WARM_UP, PartChange, Procedure, Profile, ProfileRow,
    QUANTITY_CAPACITY, Ratio, Recent, RecentInterval, RecentRate, RecentUse, Resource,
    ResourceKind, ResourceUses, RowKind, SameLoadCost, Saturation, Side, StackValue, Standing,
    Stretches, StretchesOfSize, TrialFacts, Upstream, Verdict, WaitFigures, Waits, WaitsAtPlace,
    WaitsOfKind, WakesLine, WhatIf, analyse, at_saturation, compare, frame_label, recent, uses,
    what_if,
};
pub use comparison::{answer, html_comparison, terminal_comparison, terminal_what_if};
pub use drawing::format;
pub use error::Error;
pub use groups::Groups;
pub use headline::{Carried, about};
pub use page::{brief, html, svg_loadline, terminal};
pub use parallel::in_parallel;

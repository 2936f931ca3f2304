//! Many servers, recorded for a long time: which server is nearest to its capacity, which release
//! made requests more expensive, which servers differ from their group, and when a group runs out.
//!
//! The questions are the same wherever the trials are. A [`Home`] answers with sums (see
//! [`regress::bins`]). The home adds up the sums where the data is. The statistics are fitted to
//! the sums. There are two homes: a folder of trials, which needs nothing else, and ClickHouse.
//!
//! | module | content |
//! | --- | --- |
//! | [`mod@home`] | the contract of a home, and the sums that it returns |
//! | [`mod@windows`] | a trial as sums, which both homes keep |
//! | [`mod@sums`] | adds the rows of trials up, as a home returns them |
//! | [`mod@folder`] | a folder of trials as a home |
//! | [`mod@clickhouse`] | a ClickHouse database as a home |
//! | [`mod@list`] | the servers |
//! | [`mod@capacity`] | which server is nearest to its capacity |
//! | [`mod@compare`] | what a release changed |
//! | [`mod@outliers`] | servers that differ from their group |
//! | [`mod@forecast`] | when a group runs out |
//! | [`mod@flame`] | two values of a label as a differential flame graph |
//! | [`mod@example`] | a made-up fleet, to try the questions on |
//! | [`mod@answer`] | what the answers have in common |
//!
//! # What it promises
//!
//! A trial is summed once, by our code, into windows of five minutes. Both homes, a folder and
//! ClickHouse, return the same sums for the same question, to rounding. A database adds up windows
//! and fits nothing, so that there is one set of statistics. Each row in ClickHouse has a key that
//! identifies it, and a row that is sent again replaces the earlier row. So rows are counted
//! exactly once without a protocol. If a recording is sent while it is made, its trial file is the
//! spool. A slow database never delays a recording.
#![forbid(unsafe_code)]

pub mod answer;
pub mod capacity;
#[cfg(feature = "clickhouse")]
pub mod clickhouse;
pub mod compare;
pub mod example;
pub mod flame;
pub mod folder;
pub mod forecast;
pub mod home;
pub mod list;
pub mod outliers;
pub mod sums;
pub mod windows;
#[cfg(test)]
mod windows_tests;

#[cfg(test)]
mod folder_tests;

pub use folder::Folder;
pub use home::{Error, Home};

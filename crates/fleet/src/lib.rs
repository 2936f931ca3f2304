//! Many servers, recorded for a long time: which is nearest to its capacity, which became more
//! expensive, which differ from the others, and when a group runs out.
//!
//! The questions are the same wherever the trials are. A [`Home`] answers with sums (see
//! [`regress::bins`]), which it adds up where the data is, and the statistics are fitted to the
//! sums. There are two homes: a folder of trials, which needs nothing else, and ClickHouse.
//!
//! | module | content |
//! | --- | --- |
//! | [`mod@home`] | the contract of a home, and the sums that it returns |
//! | [`mod@windows`] | a trial as sums, which both homes keep |
#![forbid(unsafe_code)]

pub mod home;
pub mod windows;
#[cfg(test)]
mod windows_tests;

pub use home::{Error, Home};

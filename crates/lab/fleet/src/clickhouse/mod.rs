//! ClickHouse as a home of trials: tables, shipping, and the questions as SQL.
//!
//! | module | content |
//! | --- | --- |
//! | `address` | where a database is, and how to log in |
//! | `client` | requests over HTTP, and what errors mean |
//! | `binary` | the format of rows and answers |
//! | `tables` | the tables, and the rows of a trial |
//! | `schema` | making the tables, and changing older ones |
//! | `ship` | sending trials: finished ones, and one that is being recorded |
//! | `spool` | which trials are not completely in the database yet |
//! | `query` | the questions |
//! | `fetch` | a trial as a file |
//!
//! Exactly once in effect: a row that is sent again, or by several programs at once, replaces
//! itself. So a sender that does not know whether its rows arrived sends them again, and every
//! question asks for the newest version of each row.
//!
//! The SQL is understood by ClickHouse 18.16, which Debian 12 has, and by today's.

mod address;
mod binary;
mod client;
mod fetch;
mod query;
mod schema;
mod ship;
mod spool;
mod tables;
#[cfg(test)]
mod tests;

pub use address::Address;
pub use client::{Client, tls};
pub use schema::{Layout, Made};
pub use ship::{Follower, Patience, Shipped, slept};
pub use spool::Unshipped;

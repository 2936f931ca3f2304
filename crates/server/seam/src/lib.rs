//! The seam between an exchange and the connection of its client.
//!
//! What: [`client`] has the traits that connections of HTTP/1, HTTP/2 and HTTP/3 implement for
//! exchanges, and the responses that they are given. [`cache_status`] has the field by which a
//! response says how it came about. [`passed`] codes responses that are not stored. [`rules`] has
//! the names and texts of decision rules. [`tunnel`] carries bytes both ways. Why separate from the
//! crate `exchange`: connections and exchanges meet here, and neither needs the other one's code.
//!
//! What never happens: this crate decides which response a client gets.
#![forbid(unsafe_code)]

pub mod cache_status;
pub mod client;
pub mod limits;
pub mod passed;
pub mod rules;
pub mod tunnel;

//! How an exchange ended.
//!
//! What: [`Outcome`] says what the cache had to do with a request, [`Fault`] what went wrong
//! between us and an upstream, [`Refusal`] by which rule a request was refused. Why one crate: the
//! access log, the metrics and the answer itself name each of them by the same list.
//!
//! What never happens: I/O.
#![forbid(unsafe_code)]

mod fault;
mod outcome;
mod refusal;

pub use fault::{Fault, is_out_of_descriptors};
pub use outcome::Outcome;
pub use refusal::{COUNTED, Class, Refusal};

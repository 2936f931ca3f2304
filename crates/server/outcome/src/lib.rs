//! How an exchange ended.
//!
//! What: [`Outcome`] says how the cache took part in a request, [`Fault`] what went wrong between
//! us and an upstream, [`BrokenBy`] who broke a response off, [`Refusal`] which rule refused a
//! request. Why one crate: the access log, the metrics and the response use the same list of names.
//!
//! What never happens: I/O.
#![forbid(unsafe_code)]

mod broken;
mod fault;
mod hierarchy;
mod outcome;
mod refusal;

pub use broken::BrokenBy;
pub use fault::{Fault, is_out_of_descriptors};
pub use hierarchy::Hierarchy;
pub use outcome::Outcome;
pub use refusal::{COUNTED, Class, Refusal};

//! The bytes of a connection, a client's or an upstream's.
//!
//! What: [`Transport`] is plain TCP or TLS behind one set of methods; [`tls`] makes the encrypted
//! connections; [`proxy_protocol`] reads and writes the header that says where a connection came
//! from; [`shares`] divides the resources that connections hold between the networks of clients. No
//! code above this crate knows whether bytes were encrypted.
//!
//! Guarantees: a read or a write never blocks; an idle connection holds no buffer.
#![forbid(unsafe_code)]

pub mod limits;
pub mod proxy_protocol;
pub mod shares;
pub mod tls;
mod transport;

pub use transport::{Transport, canonical};

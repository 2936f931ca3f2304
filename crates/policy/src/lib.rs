//! Who may go where, and how messages change on the way.
//!
//! What: [`forward`] has the rules of forward mode (client networks, passwords, ports, domains,
//! addresses), [`routes`] those of reverse mode, [`fields`] the changes to header fields, [`via`]
//! what messages say of the proxies that they have passed, [`overload`] which requests a busy core
//! refuses, [`client_hello`] the server name of a TLS connection through a tunnel.
//!
//! What never happens: a rule sends or receives a byte, or changes what it decides about. Two of
//! them wait: for the resolver, and for the pool that verifies passwords.
#![forbid(unsafe_code)]

pub mod client_hello;
pub mod fields;
pub mod forward;
pub mod limits;
pub mod overload;
pub mod routes;
pub mod via;

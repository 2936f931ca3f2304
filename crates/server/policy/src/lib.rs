//! Access rules, and changes to messages that pass through.
//!
//! What: [`forward`] has the rules of forward mode (client networks, passwords, ports, domains,
//! addresses). [`routes`] has the routes of reverse mode, with the readings of a path and a host
//! ([`reading`]), the values that routes capture ([`captures`]) and the lifetimes that they set
//! ([`lifetimes`]). [`peers`] has the requests that go to peers, [`fields`] the changes to header
//! fields, [`via`] the fields that name proxies and clients, [`front`] what
//! trusted proxies say of a client, [`guards`] who may send requests to a route,
//! [`auth`] what services say about requests, [`explained`] the parts of an
//! explanation,
//! [`rewrites`] the URLs and cookies of responses, [`quota`] the limits for each client,
//! [`overload`] the requests that a busy core refuses, [`client_hello`] the server name of a TLS
//! connection through a tunnel.
//!
//! What never happens: a rule sends or receives a byte; a rule changes the request that it judges.
//! Only two rules wait: the rule on addresses waits for the resolver, and the rule on passwords
//! waits for the pool that verifies passwords.
//!
//! # What it promises
//!
//! If an origin may read a spelling of a path or a host as another path or host, the spelling is
//! never treated more leniently than that other path or host. `reading` makes every reading, by
//! steps that are taken in all orders. `routes` judges each reading and takes the strictest route.
//! Nearly every request has one reading, which a scan finds without allocating. Code that decides
//! by path or host takes a `Reading`, and tidy lets no other file use the rules of routes. The
//! alternative is one normal form. A normal form that is right for one origin lets a client bypass
//! a rule at another origin (docs/readings.md).
#![forbid(unsafe_code)]

pub mod auth;
pub mod captures;
pub mod client_hello;
pub mod dry;
pub mod error_pages;
pub mod explained;
pub mod fields;
pub mod forward;
pub mod front;
pub mod guards;
pub mod lifetimes;
pub mod limits;
pub mod overload;
pub mod peers;
pub mod quota;
pub mod reading;
pub mod rewrites;
pub mod routes;
pub mod rules;
pub mod values;
pub mod via;

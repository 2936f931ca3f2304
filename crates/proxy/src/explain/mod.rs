//! `GET /explain` of the admin address: what would become of a request now, and by which rules.
//!
//! ```text
//!   the question --as a client would send it--> the parser --> at_once, or Case::way --> plan
//!                                                                 the functions that serve
//! ```
//!
//! It has no rules of its own: it goes the way of an exchange up to where something would be done,
//! and tells what that would be. The store is *peeked* at, servers are foreseen and not taken, so
//! that asking changes nothing: no object counts as used, nothing is counted, removed or fetched.
//! A name that a client would have connected to is looked up as the client's would be, and the
//! resolver may remember it.

mod decide;
pub(crate) mod model;
mod question;
mod stored;

use std::rc::Rc;

pub use model::{Answer, Decision, Explained, Freshness, Purge, Range, Request, Response};

use crate::worker::Worker;

/// What would become of the request that these names and values describe: see
/// [`question::Question::of`] for what they may name.
///
/// # Errors
/// What is wrong with them, in one line.
pub async fn explained(
    query: &[(String, String)],
    worker: &Rc<Worker>,
) -> Result<Explained, String> {
    let site = worker.site();
    let question = question::Question::of(query, &site)?;
    let head = question.parsed(&site)?;
    Ok(decide::explained(worker, site, &question, head.head()).await)
}

/// Bytes for people: what is not visible ASCII or a space is escaped.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

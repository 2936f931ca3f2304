//! `GET /explain` of the admin address: what would become of a request now, and by which rules.
//!
//! ```text
//!   the question --as a client would send it--> the parser --> fresh_hit, route, plan
//!                                                     the functions that serve requests
//! ```
//!
//! It has no separate rules: it takes the first steps of an exchange, up to the one that would do
//! something, and describes that. It *peeks* at the store and predicts servers without taking them,
//! so that asking changes nothing: no object counts as used, nothing is counted, removed or
//! fetched. A name that a client would have connected to is looked up as for the client, and the
//! resolver may remember it.

mod decide;
mod keyed;
pub(crate) mod model;
mod question;
mod stored;

use std::rc::Rc;

pub use model::{Answer, Decision, Explained, Freshness, Purge, Range, Request, Response, Setting};

use crate::worker::Worker;

/// What would become of the request that these names and values describe;
/// [`question::Question::of`] lists the names.
///
/// # Errors
/// What is wrong with them, in one line.
pub async fn explained(
    query: &[(String, String)],
    worker: &Rc<Worker>,
) -> Result<Explained, String> {
    let snapshot = worker.snapshot();
    let question = question::Question::of(query, &snapshot)?;
    let head = question.parsed(&worker.io.limits())?;
    Ok(decide::explained(worker, snapshot, &question, head.head()).await)
}

/// Bytes as text: everything but visible ASCII and spaces is escaped.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

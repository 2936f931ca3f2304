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

use crate::admin::{Call, Reply};
use crate::worker::Worker;

/// Carries out a call: see [`question::Question::of`] for what it may name.
pub(crate) async fn answer(call: &Call, worker: &Rc<Worker>) -> Reply {
    let site = worker.site();
    let question = match question::Question::of(call, &site) {
        Ok(question) => question,
        Err(text) => return Reply::error(400, text),
    };
    let head = match question.parsed(&site) {
        Ok(head) => head,
        Err(text) => return Reply::error(400, text),
    };
    Reply::json(200, &decide::explained(worker, site, &question, head.head()).await)
}

/// Bytes for people: what is not visible ASCII or a space is escaped.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

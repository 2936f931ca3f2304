//! What the cache had to do with a request.

use crate::{Class, Refusal};

/// What the store had to do with a request, in Squid's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A fresh stored response.
    Hit,
    /// A fresh stored response, and the client's validators matched it.
    NotModified,
    /// Fetched from the origin.
    Miss,
    /// Answered by a fetch that another request had begun.
    Collapsed,
    /// The origin confirmed a stored response.
    Revalidated,
    /// The origin replaced a stored response.
    Replaced,
    /// Passed through.
    Pass,
    /// A tunnel: CONNECT, or an upgraded connection.
    Tunnel,
    /// Answered by ourselves: a purge.
    Own,
    /// Answered with an error of our own.
    Refused,
    /// The same, because a rule of access says so.
    Denied,
}

impl Outcome {
    /// Of a request that was refused.
    pub fn of_refusal(refusal: Refusal) -> Outcome {
        match refusal.class() {
            Class::Access => Outcome::Denied,
            Class::Request | Class::State => Outcome::Refused,
        }
    }
}

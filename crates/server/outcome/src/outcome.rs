//! How the cache took part in a request.

use crate::{Class, Refusal};

/// How the store took part in a request, in Squid's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A fresh stored response.
    Hit,
    /// A fresh stored response, and the client's validators matched it.
    NotModified,
    /// Fetched from the origin.
    Miss,
    /// Answered by a fetch that another request had started.
    Collapsed,
    /// The origin confirmed a stored response.
    Revalidated,
    /// The origin replaced a stored response.
    Replaced,
    /// Passed through.
    Pass,
    /// A tunnel: CONNECT, or an upgraded connection.
    Tunnel,
    /// Answered by the proxy itself: a purge, or our cache digest.
    Own,
    /// Answered with an error from the proxy.
    Refused,
    /// Refused by an access rule.
    Denied,
}

impl Outcome {
    /// The outcome of a refused request.
    pub fn of_refusal(refusal: Refusal) -> Outcome {
        match refusal.class() {
            Class::Access => Outcome::Denied,
            Class::Request | Class::State => Outcome::Refused,
        }
    }
}

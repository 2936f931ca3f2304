//! The answer to a purge, at the admin address and by the method PURGE.

use serde::Serialize;

use crate::spread::Spread;

/// What a purge was of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// At the admin address without a scheme: it is purged in all of them.
    Url(String),
    /// All URLs that begin with this.
    Prefix(String),
    /// All responses with one of these tags.
    Tags(Vec<String>),
    /// Everything.
    All,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct Done {
    /// What was purged.
    pub purged: Target,
    /// Whether it is only stale now.
    pub soft: bool,
    /// A number that grows with each purge.
    pub generation: u64,
    /// Whether it would survive a crash, of a server with a store on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// The other members of a cluster, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Spread>,
}

impl Done {
    /// The status of the answer: that of [`Spread::status`], or 200 without a cluster.
    pub fn status(&self) -> u16 {
        self.cluster.as_ref().map_or(200, Spread::status)
    }
}

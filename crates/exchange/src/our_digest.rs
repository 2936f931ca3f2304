//! Our cache digest, which other caches fetch. The server makes it from time to time.
//!
//! What never happens: it is made because it was requested.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http1::{Method, RequestHead, Target};
use peering::digest::PATH;

/// A digest that was made.
#[derive(Debug)]
pub struct Made {
    /// As it is sent.
    pub bytes: Vec<u8>,
    /// When, in unix milliseconds.
    pub made_ms: u64,
    /// For how long it is valid.
    pub lifetime: Duration,
}

/// The last digest, for all cores.
#[derive(Debug, Default)]
pub struct OurDigest(RwLock<Option<Arc<Made>>>);

impl OurDigest {
    /// Replaces it.
    pub fn set(&self, made: Option<Made>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = made.map(Arc::new);
    }

    /// The last one.
    pub fn get(&self) -> Option<Arc<Made>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether this requests a digest, by whatever name of this proxy.
#[cold]
pub(crate) fn is_requested(head: &RequestHead<'_>) -> bool {
    let path = match head.target {
        Target::Origin { path_and_query } | Target::Absolute { path_and_query, .. } => {
            path_and_query
        }
        _ => return false,
    };
    path == PATH && matches!(head.method, Method::Get | Method::Head)
}

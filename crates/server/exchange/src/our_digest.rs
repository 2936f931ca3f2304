//! Our cache digest, which other caches fetch. The server makes it from time to time.
//!
//! What never happens: it is made because it was requested.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use config::Role;
use http1::{Method, RequestHead, Scheme, Target};
use peering::digest::PATH;
use policy::forward::OwnAddresses;

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

/// Whether this requests our digest, and not that of another host by way of a forward listener.
/// Other caches request it as from an origin; a client of a forward listener can name an address of
/// ours.
#[cold]
pub(crate) fn is_requested(head: &RequestHead<'_>, role: Role, own: &OwnAddresses) -> bool {
    let (path, is_ours) = match head.target {
        Target::Origin { path_and_query } => (path_and_query, true),
        Target::Absolute { scheme, authority, path_and_query } => {
            let is_ours = || role == Role::Reverse || names_own(scheme, authority, own);
            (path_and_query, path_and_query == PATH && is_ours())
        }
        _ => return false,
    };
    path == PATH && is_ours && matches!(head.method, Method::Get | Method::Head)
}

fn names_own(scheme: &[u8], authority: &[u8], own: &OwnAddresses) -> bool {
    let Ok(parsed) = http1::parse_authority(authority) else { return false };
    let port = parsed.port.or(Scheme::of(scheme).map(Scheme::port));
    let host = std::str::from_utf8(parsed.host).unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    matches!((ip, port), (Ok(ip), Some(port)) if own.hold_own(SocketAddr::new(ip, port)))
}

//! What a connection to a server begins with, before TLS and before any request: a header of the
//! PROXY protocol, where the group is told to send one.
//!
//! A connection that told of one client speaks for that client to its end, whatever is asked on
//! it. So it never goes into the pool, and nothing out of the pool is taken in its place; it
//! carries one request, or one tunnel.

use std::sync::Arc;

use config::ProxyHeader;
use transport::proxy_protocol::{Ends, append_v1, append_v1_unknown, append_v2, append_v2_local};

/// The bytes of a header.
#[derive(Clone, Debug)]
pub struct Preface(Arc<[u8]>);

impl Preface {
    /// For a client's request; `None` where connections begin with nothing.
    pub fn of(header: ProxyHeader, ends: impl FnOnce() -> Ends) -> Option<Preface> {
        let mut bytes = Vec::new();
        match header {
            ProxyHeader::None => return None,
            ProxyHeader::V1 => append_v1(&mut bytes, ends()),
            ProxyHeader::V2 => append_v2(&mut bytes, ends()),
        }
        Some(Preface(bytes.into()))
    }

    /// For a question of our own, which is no client's.
    pub(super) fn of_our_own(header: ProxyHeader) -> Option<Preface> {
        let mut bytes = Vec::new();
        match header {
            ProxyHeader::None => return None,
            ProxyHeader::V1 => append_v1_unknown(&mut bytes),
            ProxyHeader::V2 => append_v2_local(&mut bytes),
        }
        Some(Preface(bytes.into()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

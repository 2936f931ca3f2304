//! The preface of a connection to a server, before TLS and any request: a header of the PROXY
//! protocol, if the group is configured to send one.
//!
//! A connection with such a header belongs to one client to its end. So it never goes into the pool
//! and is never replaced by a pooled one; it carries one request, or one tunnel.

use std::sync::Arc;

use config::ProxyHeader;
use transport::proxy_protocol::{Ends, append_v1, append_v1_unknown, append_v2, append_v2_local};

/// The bytes of a header.
#[derive(Clone, Debug)]
pub struct Preface(Arc<[u8]>);

impl Preface {
    /// For a client's request; `None` if connections have no preface.
    pub fn of(header: ProxyHeader, ends: impl FnOnce() -> Ends) -> Option<Preface> {
        let mut bytes = Vec::new();
        match header {
            ProxyHeader::None => return None,
            ProxyHeader::V1 => append_v1(&mut bytes, ends()),
            ProxyHeader::V2 => append_v2(&mut bytes, ends()),
        }
        Some(Preface(bytes.into()))
    }

    /// For our own health checks, which serve no client.
    pub(super) fn of_check(header: ProxyHeader) -> Option<Preface> {
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

//! A cache, and responses of one URI, for the tests of several modules.

use std::sync::Arc;

use caching::{Exchange, Policy, Response, StoredMeta};
use config::{Config, Role};
use http1::Scheme;

use crate::key::StoredUri;
use crate::realm::Realm;
use crate::stored::{Entry, Head, Resource, Stored};
use crate::{Cache, Generation, Key};

pub(crate) fn uri() -> StoredUri<'static> {
    StoredUri::new(Realm { role: Role::Reverse, scheme: Scheme::Http }, b"h", b"/")
}

/// A cache in memory, and the key of the URI.
pub(crate) fn cache() -> (Arc<Cache>, Key) {
    let config = Config { memory_bytes: 64 << 10, ..Config::forward(&[]) };
    let cache = Cache::new(&config, 1, None);
    let key = cache.uri_key(uri());
    (Arc::new(cache), key)
}

/// The head of a response to a request at this time, which began at this generation.
pub(crate) fn head(status: u16, request_ms: u64, began: Generation, tag: &[u8]) -> Arc<Head> {
    let fields: [(&[u8], &[u8]); 2] = [(b"Cache-Control", b"max-age=60"), (b"ETag", tag)];
    let exchange = Exchange { request_ms, response_ms: request_ms };
    let meta = StoredMeta::of(&Response { status, fields: &fields }, exchange, &Policy::SHARED);
    let resource = Resource::new(uri(), fields.into_iter(), began);
    Arc::new(Head::new(status, b"Via: 1.1 us\r\n", fields.into_iter(), meta, resource))
}

/// A response without content to a request that began at this generation.
pub(crate) fn response(status: u16, began: Generation) -> Entry {
    let head = head(status, 1_000_000, began, b"\"a\"");
    Entry::Response(Arc::new(Stored::new(head, Vec::new())))
}

//! Which fields of messages a route may change.

/// Whether a route may change a field of this name.
pub(crate) fn is_free(name: &str) -> bool {
    let fixed = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "via",
    ];
    let token = |b: u8| b.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&b);
    !name.is_empty()
        && name.bytes().all(token)
        && !fixed.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// Whether a change of this field of a response would change stored responses, and not only those
/// that clients get.
pub(crate) fn is_about_caching(name: &str) -> bool {
    [
        "cache-control",
        "cdn-cache-control",
        "expires",
        "vary",
        "pragma",
        "age",
        "date",
        "etag",
        "last-modified",
        "set-cookie",
    ]
    .iter()
    .any(|one| name.eq_ignore_ascii_case(one))
}

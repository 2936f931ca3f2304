//! Which fields of messages a route may change.

/// Whether a route may change a field of this name.
pub fn is_free(name: &str) -> bool {
    let fixed = "host content-length transfer-encoding connection keep-alive te trailer upgrade \
                 via";
    let token = |b: u8| b.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&b);
    !name.is_empty()
        && name.bytes().all(token)
        && !fixed.split(' ').any(|one| name.eq_ignore_ascii_case(one))
}

/// Whether a change of this field would change stored responses, and not only what clients get. The
/// store reads these fields, and a route changes a response before the store reads it.
pub fn is_about_caching(name: &str) -> bool {
    // The store honours several of the fields for nginx, and nginx honours all of them.
    let is_for_nginx =
        name.get(..FOR_NGINX.len()).is_some_and(|start| start.eq_ignore_ascii_case(FOR_NGINX));
    let names = "cache-control cdn-cache-control expires vary pragma age date etag \
                 last-modified set-cookie surrogate-control";
    is_for_nginx || names.split(' ').any(|one| name.eq_ignore_ascii_case(one))
}

/// The start of the names of fields in which an upstream sends orders to nginx.
const FOR_NGINX: &str = "x-accel-";

/// Whether a field of a response lists the tags for purges. The store reads the field, and a
/// reverse listener never sends it to clients.
pub fn has_tags(name: &str) -> bool {
    ["surrogate-key", "cache-tag"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

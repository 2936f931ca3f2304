//! The decision rules that are not in the crate `caching`. Each rule has a name, the place where it
//! is specified, and a text.

use caching::Explanation;

macro_rules! rules {
    ($($name:ident = $token:literal, $clause:literal, $text:literal;)*) => {
        $(
            #[doc = $text]
            pub const $name: Explanation =
                Explanation { token: $token, clause: $clause, text: $text };
        )*
    };
}

rules! {
    FRESH = "fresh", "RFC 9111, 4.2", "fresh: its age is below its lifetime";
    FILE = "file", "", "a file of its route is there";
    DIGEST = "digest", "", "another cache fetches our cache digest";
    URI_MISS = "uri-miss", "RFC 9111, 4", "nothing is stored for this URL";
    VARY_MISS = "vary-miss", "RFC 9111, 4.1",
        "responses are stored, but none for a request with these fields";
    ONLY_IF_CACHED = "only-if-cached", "RFC 9111, 5.2.1.7",
        "the request accepts stored responses only, and none is stored that may be used";
    UNSHARED = "hit-for-miss", "RFC 9111, 3",
        "the last response could not be stored: requests do not wait for each other, and the \
         first response that may be stored ends this";
    HANDED_OVER = "handed-over", "",
        "another process serves the store, so this one uses it no more";
    STORED_COOKIE = "stored-cookie", "RFC 9111, 7.3",
        "the stored response sets a cookie, which goes to no second client";
    NO_STORE = "request-no-store", "RFC 9111, 5.2.1.5", "the request forbids storing";
    RANGES = "ranges", "RFC 9111, 3.3",
        "no part can be stored of a conditional range or of several ranges";
    PARTIAL = "partial", "RFC 9111, 3.3", "only parts of the requested bytes are stored";
    TOO_LARGE = "too-large", "RFC 9111, 3",
        "the response is too large to store as a whole: only parts of it are stored";
    UNREADABLE = "coding", "RFC 9110, 12.5.3",
        "the client does not accept the coding of the stored response, which cannot be decoded";
    METHOD = "method", "RFC 9111, 4", "only GET and HEAD are answered from the store";
    WITH_BODY = "with-body", "RFC 9110, 9.3.1", "only the origin can judge a request with a body";
    CONDITION = "condition", "RFC 9111, 4.3.2", "only the origin can evaluate its condition";
    NO_STORE_ROUTE = "bypass", "", "its route, or a rule, keeps it from the store";
    BYPASS_COOKIE = "bypass-cookie", "", "it has a cookie of bypass_cookies";
    HIDDEN_COOKIE = "hidden-cookie", "",
        "some servers read a cookie of key_cookies or bypass_cookies in another cookie";
    KEY_TOO_LONG = "key-too-long", "",
        "its cookies and fields are too long for a key";
    ROUTE = "route", "", "its route, or a rule, gives the answer";
    UPGRADE = "upgrade", "RFC 9110, 7.8", "it asks for another protocol, which is allowed";
    TUNNEL = "connect", "RFC 9110, 9.3.6", "no rule forbids the tunnel";
    PURGE = "purge", "", "the client may purge";
}

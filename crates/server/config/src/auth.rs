//! Authorisation of requests by a service.

use std::time::Duration;

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, TIMEOUT};

/// The fields that each service gets from us.
const WRITTEN: [&str; 5] = [
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Method",
    "X-Forwarded-Uri",
];

/// A service that is asked whether a request is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The name of its group.
    pub upstream: String,
    /// The path and the query that are requested.
    pub path: String,
    /// The fields of the request that it gets.
    pub fields: Vec<String>,
    /// Whether it gets the method and the URL.
    pub with_url: bool,
    /// The fields of its response that take the place of those of the request.
    pub copy: Vec<String>,
    /// The field of its response that names the user.
    pub user: Option<String>,
    /// How long it may take.
    pub timeout: Duration,
}

impl Default for Auth {
    fn default() -> Auth {
        Auth {
            upstream: String::new(),
            path: "/".to_owned(),
            fields: vec!["Authorization".to_owned(), "Cookie".to_owned()],
            with_url: true,
            copy: Vec::new(),
            user: None,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Table for Auth {
    const KEYS: &'static [Key<Auth>] = keys![Auth;
        upstream: Kind::Text, upstream, "The upstream that is asked with GET before each request.",
            required !, example "\"login\"";
        path: Kind::Text, path, "The path, with or without a query, that is requested.",
            example "\"/check\"";
        fields: Kind::Texts, fields,
            "Fields of the request that it gets. It also gets X-Forwarded-For, -Proto and -Host.";
        with_url: Kind::Flag, with_url,
            "Whether it gets X-Forwarded-Method and X-Forwarded-Uri. Without them, a response that \
             it allows to be cached is for all URLs.";
        copy: Kind::Texts, copy,
            "Fields of its response that the upstream gets, in place of what the client has sent. \
             Where the store is used, they must be in key_fields.", example "[\"X-User\"]";
        user: Kind::Text, user,
            "The field of its response that names the user, for logs and conditions.",
            example "\"X-User\"";
        timeout: TIMEOUT, timeout, "How long it may take; then the request gets 504.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let is_target = |b: u8| b.is_ascii_graphic() && b != b'#';
        if !self.path.starts_with('/') || !self.path.bytes().all(is_target) {
            here.mistake_of("path", "a path begins with /, and has visible characters only");
        }
        let is_ours = |name: &&String| {
            WRITTEN.iter().any(|ours| http1::is_one_variable(name.as_bytes(), ours.as_bytes()))
        };
        if let Some(name) = self.fields.iter().find(is_ours) {
            let text = format!("{name} is written by us, so the client's is not passed on");
            here.mistake_of("fields", text);
        }
    }
}

//! Sticky sessions: which requests go to one server again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::here::Here;
use super::rewrites::SameSite;
use super::table::{Key, Table, keys};
use super::value::{Kind, WHILE, understood};

/// A cookie that names the server of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// Its name.
    pub cookie: String,
    /// Its path.
    pub path: String,
    /// Its domain; `None`: the host of the request.
    pub domain: Option<String>,
    /// Whether it is sent over TLS only; `None`: if the request came over TLS.
    pub secure: Option<bool>,
    /// Whether scripts cannot read it.
    pub http_only: bool,
    /// Its `SameSite`.
    pub same_site: SameSite,
    /// How long browsers keep it; zero: as long as they run.
    pub max_age: Duration,
}

impl Default for Sticky {
    fn default() -> Sticky {
        Sticky {
            cookie: "plimsoll_server".to_owned(),
            path: "/".to_owned(),
            domain: None,
            secure: None,
            http_only: true,
            same_site: SameSite::Lax,
            max_age: Duration::ZERO,
        }
    }
}

impl Table for Sticky {
    const KEYS: &'static [Key<Sticky>] = keys![Sticky;
        cookie: Kind::Text, cookie, "The name of the cookie.";
        path: Kind::Text, path, "Its Path.";
        domain: Kind::Text, domain, "Its Domain. Default: none, so that only the host of the \
            request gets the cookie.", example "\"example.org\"";
        secure: Kind::Flag, secure, "Whether it has Secure. Default: if the request came over TLS.",
            example "true";
        http_only: Kind::Flag, http_only, "Whether it has HttpOnly.";
        same_site: Kind::Word(&["strict", "lax", "none"]), same_site, "Its SameSite.";
        max_age: WHILE, max_age, "Its Max-Age, in whole seconds. `0s`: none, so that browsers \
            forget the cookie when they end.", example "\"1h\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if !is_token(&self.cookie) {
            here.mistake_of("cookie", "the name of a cookie has no spaces and no separators");
        }
        let is_plain = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_graphic() && !b";,\"\\".contains(&byte))
        };
        if !self.path.starts_with('/') || !is_plain(&self.path) {
            here.mistake_of("path", "a path begins with a slash and has no ; and no spaces");
        }
        if self.domain.as_ref().is_some_and(|domain| !is_plain(domain)) {
            here.mistake_of("domain", "a domain is a name such as example.org");
        }
        if self.same_site == SameSite::None && self.secure == Some(false) {
            here.mistake_of("same_site", "browsers drop cookies with SameSite=None without Secure");
        }
    }
}

/// Whether it can be the name or the value of a cookie: letters, digits and signs that separate
/// nothing.
pub(crate) fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// What of a request says which server gets it, with `balance = "hash"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashBy {
    /// Its URL.
    #[default]
    Url,
    /// The client's address.
    Client,
    /// The value of a field.
    Field(String),
    /// The value of a cookie.
    Cookie(String),
}

impl FromStr for HashBy {
    type Err = String;

    fn from_str(text: &str) -> Result<HashBy, String> {
        let named = |name: &str| is_token(name).then(|| name.to_owned());
        let by = match text.split_once(':') {
            None if text == "url" => Some(HashBy::Url),
            None if text == "client" => Some(HashBy::Client),
            Some(("field", name)) => named(name).map(HashBy::Field),
            Some(("cookie", name)) => named(name).map(HashBy::Cookie),
            _ => None,
        };
        by.ok_or_else(|| {
            format!("\"{text}\" is none of `url`, `client`, `field:X-User` and `cookie:session`")
        })
    }
}

impl fmt::Display for HashBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashBy::Url => f.write_str("url"),
            HashBy::Client => f.write_str("client"),
            HashBy::Field(name) => write!(f, "field:{name}"),
            HashBy::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

understood!(HashBy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hash_is_of_is_shown_as_it_is_written() {
        for text in ["url", "client", "field:X-User", "cookie:session"] {
            assert_eq!(text.parse::<HashBy>().unwrap().to_string(), text);
        }
        for wrong in ["", "URL", "field:", "field:a b", "cookie", "cookie:a;b"] {
            assert!(wrong.parse::<HashBy>().is_err(), "{wrong:?}");
        }
    }
}

//! Changes to where responses of upstreams lead, and to their cookies.

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, words};

/// A change to the URLs in `Location` and `Refresh`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocationRewrite {
    /// The beginning of the URLs that are changed. `None`: those of the servers of the upstream.
    pub from: Option<String>,
    /// What takes its place.
    pub to: String,
}

impl Table for LocationRewrite {
    const KEYS: &'static [Key<LocationRewrite>] = keys![LocationRewrite;
        from: Kind::Text, from,
            "The beginning of URLs: `http://app:8080`, or the path `/`. A slash, a query or the \
             end must follow it, unless it ends with a slash. Default: the URL of each server of \
             the upstream.", example "\"http://app:8080\"";
        to: Kind::Text, to,
            "What takes its place, such as `/shop/` for `/`. Default: nothing, so that a path is \
             left.", example "\"https://www.example.org\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        for (key, text) in [("from", self.from.as_deref().unwrap_or_default()), ("to", &*self.to)] {
            if !text.bytes().all(|b| b.is_ascii_graphic()) {
                here.mistake_of(key, "a URL is visible characters without spaces");
            }
        }
    }
}

/// A change to the cookies that responses set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieRewrite {
    /// The name of the cookies, or its beginning before `*`. `None`: all.
    pub name: Option<String>,
    /// Their `Domain`; empty: none.
    pub domain: Option<String>,
    /// Their `Path`; empty: none.
    pub path: Option<String>,
    /// Whether they have `Secure`.
    pub secure: Option<bool>,
    /// Whether they have `HttpOnly`.
    pub http_only: Option<bool>,
    /// Their `SameSite`.
    pub same_site: Option<SameSite>,
}

/// The values of `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Sent with requests of the same site only.
    Strict,
    /// Sent when the user comes from another site, too.
    Lax,
    /// Sent with all requests.
    None,
}

words!(SameSite: "strict" => SameSite::Strict, "lax" => SameSite::Lax, "none" => SameSite::None);

impl SameSite {
    /// As a cookie has it.
    pub fn text(self) -> &'static str {
        match self {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        }
    }
}

/// The word for the absence of an attribute.
const REMOVED: &str = "remove";

impl CookieRewrite {
    /// The value of an attribute that is set; `Some("")`: the attribute is removed.
    pub fn value(text: Option<&String>) -> Option<&str> {
        text.map(|text| if text == REMOVED { "" } else { text.as_str() })
    }

    /// Whether a cookie with this name is changed.
    pub fn is_for(&self, name: &[u8]) -> bool {
        match &self.name {
            None => true,
            Some(pattern) => match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start.as_bytes()),
                None => name == pattern.as_bytes(),
            },
        }
    }
}

impl Table for CookieRewrite {
    const KEYS: &'static [Key<CookieRewrite>] = keys![CookieRewrite;
        name: Kind::Text, name,
            "The name of the cookies, or its beginning before `*`. Default: all cookies.",
            example "\"session*\"";
        domain: Kind::Text, domain, "Their Domain; `remove`: none.", example "\"example.org\"";
        path: Kind::Text, path, "Their Path; `remove`: none.", example "\"/shop\"";
        secure: Kind::Flag, secure, "Whether they have Secure.", example "true";
        http_only: Kind::Flag, http_only, "Whether they have HttpOnly.", example "true";
        same_site: Kind::Word(&["strict", "lax", "none"]), same_site, "Their SameSite.",
            example "\"lax\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let texts = [("name", &self.name), ("domain", &self.domain), ("path", &self.path)];
        for (key, text) in texts {
            let is_plain = |b: u8| b.is_ascii_graphic() && !b";,\"".contains(&b);
            if text.as_ref().is_some_and(|text| !text.bytes().all(is_plain)) {
                here.mistake_of(key, "this has visible characters without ; , and quotes");
            }
        }
        let changes = self.domain.is_some()
            || self.path.is_some()
            || self.secure.is_some()
            || self.http_only.is_some()
            || self.same_site.is_some();
        if !changes {
            here.mistake_here("this changes no cookie: write domain, path, secure …");
        }
        if self.same_site == Some(SameSite::None) && self.secure == Some(false) {
            here.mistake_of("same_site", "browsers drop cookies with SameSite=None without Secure");
        }
    }
}

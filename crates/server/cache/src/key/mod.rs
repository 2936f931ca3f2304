//! What of a request makes its key: the URI as it is stored, and the settings of its route.
//!
//! ```text
//!   URI as requested --(query, query_drop, query_keep)--> StoredUri --> key of the URI
//!   key of the URI, and cookies, fields, device class ----------------> key of the response
//! ```
//!
//! A [`StoredUri`] is made once per request. Everything that refers to stored responses by their
//! URI takes one: look-ups, purges, invalidation, the disk, explanations.
//!
//! The other parts of a key work like the fields of a `Vary` ([`crate::variants`]): the entry under
//! the key of the URI names the set, and its responses are stored under keys within that one. So
//! whatever removes the entry of a URI removes all its responses.
//!
//! What never happens: two requests that differ in a part of the key have the same key, however
//! their bytes are divided among the parts; a request makes a key of more than
//! [`KEY_PARTS_BYTES_MAX`] bytes of cookies and fields; a hit allocates.

mod device;
mod names;
mod query;

use std::borrow::Cow;

use config::{CookiesSent, DEVICE_FIELD};
use http1::{Fields, Name};

pub use device::Class as DeviceClass;
use names::{Names, find};
pub use query::PathBuffer;
use query::{Normal, QueryRules};

use crate::limits::KEY_PARTS_BYTES_MAX;
use crate::realm::{Realm, normal_authority};

/// A URI as it is stored: after the settings of its route have been applied.
#[derive(Clone, Copy, Debug)]
pub struct StoredUri<'u> {
    pub(crate) realm: Realm,
    pub(crate) authority: &'u [u8],
    pub(crate) path: &'u [u8],
}

impl<'u> StoredUri<'u> {
    /// The path and query are those that [`KeySettings::path`] has made, or those of the request if
    /// no setting changes them.
    #[inline]
    pub fn new(realm: Realm, authority: &'u [u8], path_and_query: &'u [u8]) -> Self {
        StoredUri { realm, authority, path: path_and_query }
    }

    /// As purges name it. It has no scheme and no kind of listener: purging a URL removes it
    /// wherever it is stored.
    pub fn url(&self) -> Vec<u8> {
        let authority = self.realm.without_port(self.authority);
        let mut url = Vec::with_capacity(authority.len() + self.path.len());
        url.extend_from_slice(authority);
        url.make_ascii_lowercase();
        url.extend_from_slice(self.path);
        debug_assert!(url.starts_with(&normal_authority(self.realm, self.authority)));
        url
    }
}

/// The settings of a route, compiled.
#[derive(Debug)]
pub struct KeySettings {
    query: Option<QueryRules>,
    cookies: Option<Names>,
    fields: Box<[Box<[u8]>]>,
    device: bool,
    bypass: Option<Names>,
    sends_key_cookies: bool,
}

/// A setting that concerns a request, for an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The name of the key in the configuration.
    pub setting: &'static str,
    /// What it does to this request.
    pub effect: String,
}

/// Why a request does not use the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypassed {
    /// It has a cookie of `bypass_cookies`.
    Cookie,
    /// Some servers find a cookie of `key_cookies` or `bypass_cookies` where RFC 6265 has none.
    HiddenCookie,
    /// The cookies and fields for its key have more than [`KEY_PARTS_BYTES_MAX`] bytes.
    TooLong,
}

impl KeySettings {
    /// `None` if nothing is configured.
    pub fn new(config: &config::KeySettings) -> Option<KeySettings> {
        if *config == config::KeySettings::default() {
            return None;
        }
        Some(KeySettings {
            query: QueryRules::new(config),
            cookies: Names::of_cookies(&config.cookies),
            fields: config.fields.iter().map(|name| name.as_bytes().into()).collect(),
            device: config.device,
            bypass: Names::of_cookies(&config.bypass_cookies),
            sends_key_cookies: config.cookies_sent == CookiesSent::Key,
        })
    }

    /// The path and query of the URI as it is stored.
    pub fn path<'p>(&self, requested: &'p [u8]) -> Cow<'p, [u8]> {
        let Some(rules) = &self.query else { return Cow::Borrowed(requested) };
        let mut buffer = PathBuffer::on_heap();
        match rules.normal(requested, &mut buffer) {
            Normal::Borrowed(path) => Cow::Borrowed(path),
            Normal::Written(bytes) => Cow::Owned(buffer.written(bytes).to_vec()),
            Normal::NoRoom => unreachable!("the heap has room for what was requested"),
        }
    }

    /// The same in this buffer; `None` if it does not fit.
    #[inline]
    pub fn path_in<'p>(&self, requested: &'p [u8], out: &'p mut PathBuffer) -> Option<&'p [u8]> {
        let Some(rules) = &self.query else { return Some(requested) };
        match rules.normal(requested, out) {
            Normal::Borrowed(path) => Some(path),
            Normal::Written(bytes) => Some(out.written(bytes)),
            Normal::NoRoom => None,
        }
    }

    /// The parts of the key besides the URI, if there are any.
    #[inline]
    pub fn parts(&self) -> Option<KeyParts<'_>> {
        let has_any = self.cookies.is_some() || !self.fields.is_empty() || self.device;
        has_any.then_some(KeyParts(self))
    }

    /// Whether a cookie says that the request does not use the store.
    #[inline]
    pub fn bypasses(&self, fields: Fields<'_>) -> bool {
        self.has_bypass_cookie(fields) || self.has_hidden(fields)
    }

    #[inline]
    fn has_bypass_cookie(&self, fields: Fields<'_>) -> bool {
        self.bypass.as_ref().is_some_and(|names| any_cookie(fields, names, |_| true))
    }

    /// Whether some server finds a cookie that counts where RFC 6265 has none.
    #[inline]
    fn has_hidden(&self, fields: Fields<'_>) -> bool {
        // An upstream that gets the cookies of the key alone gets no other bytes.
        let has_names = self.cookies.is_some() || self.bypass.is_some();
        if self.sends_key_cookies || !has_names || !fields.all(Name::Cookie).any(is_odd) {
            return false;
        }
        [&self.cookies, &self.bypass].into_iter().flatten().any(|names| hides(fields, names))
    }

    /// Why a request with these fields does not use the store.
    pub fn bypassed(&self, fields: Fields<'_>) -> Option<Bypassed> {
        if self.has_hidden(fields) {
            return Some(Bypassed::HiddenCookie);
        }
        if self.has_bypass_cookie(fields) {
            return Some(Bypassed::Cookie);
        }
        let parts = self.parts()?;
        let mut bytes = 0;
        parts.feed(fields, |part, piece| match part {
            Part::FieldName | Part::Device => {}
            Part::Cookie | Part::FieldValue => bytes += piece.len(),
        });
        (bytes > KEY_PARTS_BYTES_MAX).then_some(Bypassed::TooLong)
    }

    /// The setting with a field whose name differs from this one only in bytes that are no letters
    /// or digits, if this field is not in the key itself. Where an upstream makes variables of
    /// fields, as CGI does (RFC 3875, 4.1.18), it takes one for the other, so it must not get what
    /// is not in the key.
    pub fn resembles(&self, name: &[u8]) -> Option<&'static str> {
        let device = self.device.then_some(("device", DEVICE_FIELD.as_bytes()));
        let own = || self.fields.iter().map(|field| ("key_fields", &**field)).chain(device);
        let (setting, _) = own().find(|(_, field)| http1::is_one_variable(field, name))?;
        let is_own = own().any(|(_, field)| field.eq_ignore_ascii_case(name));
        (!is_own).then_some(setting)
    }

    /// Whether the upstream gets fewer cookies than the client sent.
    #[inline]
    pub fn sends_key_cookies(&self) -> bool {
        self.sends_key_cookies
    }

    /// The class of the device, if the upstream is sent it.
    pub fn device(&self, fields: Fields<'_>) -> Option<DeviceClass> {
        self.device.then(|| DeviceClass::of(fields))
    }

    /// The value of `Cookie` that the upstream gets instead of the client's: those in the key.
    /// `None`: it gets them all.
    pub fn cookies_sent(&self, fields: Fields<'_>) -> Option<Vec<u8>> {
        if !self.sends_key_cookies {
            return None;
        }
        let Some(names) = &self.cookies else { return Some(Vec::new()) };
        let mut kept = Vec::new();
        any_cookie(fields, names, |cookie| {
            kept.push(cookie);
            false
        });
        Some(kept.join(&b"; "[..]))
    }

    /// What the settings do to a request: each that acts, in turn.
    pub fn applied(&self, requested: &[u8], fields: Fields<'_>) -> Vec<Applied> {
        let mut applied = Vec::new();
        let mut add = |setting, effect| applied.push(Applied { setting, effect });
        let of_key = |part: bool, setting| part.then_some(setting);
        let of_parts = || {
            let cookies = of_key(self.cookies.is_some(), "key_cookies");
            cookies.into_iter().chain(of_key(!self.fields.is_empty(), "key_fields"))
        };
        match self.bypassed(fields) {
            Some(Bypassed::Cookie) => add("bypass_cookies", "the store is not used".to_owned()),
            Some(Bypassed::HiddenCookie) => {
                let setting = self.cookies.as_ref().map_or("bypass_cookies", |_| "key_cookies");
                let what = "some servers read one of these in another cookie";
                add(setting, format!("{what}: the store is not used"));
            }
            Some(Bypassed::TooLong) => {
                for setting in of_parts() {
                    let most = format!("more than {KEY_PARTS_BYTES_MAX} bytes in the key");
                    add(setting, format!("{most}: the store is not used"));
                }
            }
            None => self.made(requested, fields, &mut add),
        }
        // Also if the store is not used.
        for name in fields.fields().map(|field| field.name()) {
            if let Some(setting) = self.resembles(name) {
                add(setting, format!("not sent: {}, which is not the field", name.escape_ascii()));
            }
        }
        applied
    }

    /// What makes the key of a request.
    fn made(
        &self,
        requested: &[u8],
        fields: Fields<'_>,
        add: &mut impl FnMut(&'static str, String),
    ) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        for (setting, path) in self.query.iter().flat_map(|rules| rules.acting(requested)) {
            add(setting, format!("the URI is stored as {}", text(&path)));
        }
        let mut name = Vec::new();
        let Some(parts) = self.parts() else { return };
        parts.feed(fields, |part, piece| match part {
            Part::Cookie => add("key_cookies", format!("in the key: {}", text(piece))),
            Part::FieldName => name = piece.to_vec(),
            Part::FieldValue => {
                add("key_fields", format!("in the key: {}: {}", text(&name), text(piece)));
            }
            Part::Device => add("device", format!("in the key: {}", text(piece))),
        });
    }
}

/// The parts of a key besides the URI.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'s>(&'s KeySettings);

/// What a piece of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `name=value`.
    Cookie = 1,
    /// Its values follow.
    FieldName,
    FieldValue,
    Device,
}

impl KeyParts<'_> {
    /// Passes the pieces of the key to `sink`.
    #[inline]
    pub(crate) fn feed(self, fields: Fields<'_>, mut sink: impl FnMut(Part, &[u8])) {
        let settings = self.0;
        if let Some(names) = &settings.cookies {
            any_cookie(fields, names, |cookie| {
                sink(Part::Cookie, cookie);
                false
            });
        }
        for name in &settings.fields {
            sink(Part::FieldName, name);
            fields.values(name).for_each(|value| sink(Part::FieldValue, value));
        }
        if settings.device {
            sink(Part::Device, DeviceClass::of(fields).name().as_bytes());
        }
    }

    /// The same as bytes to hash. Each piece begins with its kind and length, so that no other
    /// division of the same bytes is hashed alike.
    #[inline]
    pub(crate) fn feed_key(self, fields: Fields<'_>, mut sink: impl FnMut(&[u8])) {
        self.feed(fields, |part, piece| {
            if !planted::is(planted::Bug::KeyPartsJoined) {
                sink(&((piece.len() as u64) << 8 | part as u64).to_le_bytes());
            }
            sink(piece);
        });
    }
}

/// Whether `is_wanted` is true for a cookie with one of these names, as `name=value` (RFC 6265,
/// 4.2.1). HTTP/2 may split the cookies of a request over several fields.
#[inline]
fn any_cookie<'b>(
    fields: Fields<'b>,
    names: &Names,
    mut is_wanted: impl FnMut(&'b [u8]) -> bool,
) -> bool {
    fields.all(Name::Cookie).any(|mut rest| {
        while !rest.is_empty() {
            let end = find(b';', rest).unwrap_or(rest.len());
            let cookie = rest[..end].trim_ascii_start();
            rest = rest.get(end + 1..).unwrap_or_default();
            if !cookie.is_empty() && names.matches(cookie) && is_wanted(cookie.trim_ascii_end()) {
                return true;
            }
        }
        false
    })
}

/// Whether cookies have bytes at which some servers separate them although RFC 6265 does not: a
/// comma, a blank that does not follow a semicolon, a control character, or a byte that is not of
/// ASCII.
#[inline]
fn is_odd(cookies: &[u8]) -> bool {
    let pairs = cookies.iter().zip(&cookies[1.min(cookies.len())..]);
    let is_blank =
        pairs.fold(false, |odd, (before, byte)| odd | (*byte == b' ' && *before != b';'));
    let is_sign = |byte: u8| byte == b',' || !(b' '..=b'~').contains(&byte);
    is_blank | cookies.iter().fold(false, |odd, byte| odd | is_sign(*byte))
}

/// Whether a part of a cookie, between odd bytes, has one of these names, and the cookie itself has
/// not.
#[cold]
fn hides(fields: Fields<'_>, names: &Names) -> bool {
    let separates = |byte: &u8| *byte == b',' || !(b'!'..=b'~').contains(byte);
    let cookies = fields.all(Name::Cookie).flat_map(|value| value.split(|byte| *byte == b';'));
    let others = cookies.map(<[u8]>::trim_ascii_start).filter(|cookie| !names.matches(cookie));
    let mut parts = others.flat_map(|cookie| cookie.split(separates));
    parts.any(|part| !part.is_empty() && names.matches(part))
}

#[cfg(test)]
mod tests;

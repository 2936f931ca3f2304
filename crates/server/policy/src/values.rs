//! The values of a request that texts may repeat (`config::is_value`).

use std::borrow::Cow;

use conditions::Facts;
use http1::Fields;

use crate::reading::Reading;

/// A request, as texts repeat it.
#[derive(Clone, Copy, Debug)]
pub struct Values<'v> {
    /// What conditions read of it, without its host and path.
    pub facts: Facts<'v>,
    /// Its host and path.
    pub reading: Reading<'v>,
    /// The name of the upstream that it goes to.
    pub upstream: Option<&'v str>,
    /// A number that no other request has.
    pub id: Option<u128>,
    /// The number that it came with, if that was taken over; otherwise empty.
    pub given_id: &'v [u8],
}

impl<'v> Values<'v> {
    /// A value by its name; `None`: the request has none.
    pub(crate) fn value(&self, name: &str) -> Option<Cow<'v, [u8]>> {
        let facts = &self.facts;
        let owned = |text: String| Some(Cow::Owned(text.into_bytes()));
        let of = |text: &'v str| Some(Cow::Borrowed(text.as_bytes()));
        if let Some(name) = name.strip_prefix("cookie.") {
            return cookie(facts.fields, name.as_bytes()).map(Cow::Borrowed);
        }
        match name {
            "client" => owned(facts.client.to_string()),
            "scheme" => of(facts.scheme),
            "host" => Some(Cow::Owned(self.reading.usual().0.into_owned())),
            "port" => owned(facts.port.to_string()),
            "path" => Some(self.uri(false)),
            "query" => Some(Cow::Borrowed(facts.query)),
            "uri" => Some(self.uri(true)),
            "request_id" if !self.given_id.is_empty() => Some(Cow::Borrowed(self.given_id)),
            "request_id" => owned(format!("{:032x}", self.id?)),
            "tls.sni" => of(facts.tls?.sni.as_deref()?),
            "tls.client_subject" => of(facts.tls?.client_subject.as_deref()?),
            "upstream" => of(self.upstream?),
            _ => None,
        }
    }

    /// The path as it came, with its query or without it.
    fn uri(&self, with_query: bool) -> Cow<'v, [u8]> {
        let whole = self.reading.origin_form();
        let end = memchr::memchr(b'?', &whole).filter(|_| !with_query).unwrap_or(whole.len());
        match whole {
            Cow::Borrowed(whole) => Cow::Borrowed(&whole[..end]),
            Cow::Owned(mut whole) => {
                whole.truncate(end);
                Cow::Owned(whole)
            }
        }
    }
}

/// The value of a cookie.
fn cookie<'f>(fields: Fields<'f>, name: &[u8]) -> Option<&'f [u8]> {
    let pairs = fields.values(b"cookie").flat_map(|field| field.split(|byte| *byte == b';'));
    let mut named = pairs.filter_map(|pair| {
        let at = memchr::memchr(b'=', pair)?;
        (pair[..at].trim_ascii() == name).then(|| pair[at + 1..].trim_ascii())
    });
    named.next()
}

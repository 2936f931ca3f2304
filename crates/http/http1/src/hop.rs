//! Connection, and the hop-by-hop fields (RFC 9110 section 7.6.1).
//!
//! A field that Connection names is for this hop alone, so the next recipient never gets it. The
//! parser sets such fields aside ([`Scratch::set_aside`]): they are no part of
//! [`Fields`], and nothing that decides by the fields of a message can read what the next recipient
//! cannot. [`Fields::for_this_hop`] is the only way to them.

use crate::chars::tokens;
use crate::fields::Span;
use crate::limits::CONNECTION_OPTIONS_MAX;
use crate::name::is_plain;
use crate::{Field, Fields, Name, RejectReason, Scratch};

/// The options in Connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    /// It names other fields, which are then hop-by-hop.
    pub(crate) names_fields: bool,
}

impl Options {
    pub(crate) const NONE: Options =
        Options { close: false, keep_alive: false, names_fields: false };
}

pub(crate) fn options(fields: &Fields<'_>) -> Result<Options, RejectReason> {
    let mut options = Options::NONE;
    if !fields.has(Name::Connection) {
        return Ok(options);
    }
    for (count, token) in connection_names(fields).enumerate() {
        if count >= CONNECTION_OPTIONS_MAX {
            return Err(RejectReason::TooManyOptions);
        }
        if token.eq_ignore_ascii_case(b"close") {
            options.close = true;
        } else if token.eq_ignore_ascii_case(b"keep-alive") {
            options.keep_alive = true;
        } else {
            options.names_fields = true;
        }
    }
    Ok(options)
}

/// All members of all Connection fields.
fn connection_names<'b>(fields: &Fields<'b>) -> impl Iterator<Item = &'b [u8]> + use<'b> {
    fields.all(Name::Connection).flat_map(tokens)
}

/// The fields that are hop-by-hop whatever Connection says.
const HOP_BY_HOP: u64 = Name::Connection.bit()
    | Name::KeepAlive.bit()
    | Name::ProxyConnection.bit()
    | Name::ProxyAuthenticate.bit()
    | Name::ProxyAuthenticationInfo.bit()
    | Name::ProxyAuthorization.bit()
    | Name::Te.bit()
    | Name::Trailer.bit()
    | Name::TransferEncoding.bit()
    | Name::Upgrade.bit();

/// The fields that Connection cannot remove: without them the message would have another meaning
/// for the next recipient (RFC 9110 section 7.6.1 forbids naming a field meant for all recipients).
const PROTECTED: u64 = Name::Host.bit()
    | Name::ContentLength.bit()
    | Name::ContentType.bit()
    | Name::ContentEncoding.bit()
    | Name::ContentRange.bit()
    | Name::CacheControl.bit()
    | Name::Vary.bit()
    | Name::Via.bit();

/// Whether a field of this name is hop-by-hop whatever Connection says.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    ends_here(Name::from_bytes(name))
}

/// Whether Connection, which has these members, makes a field hop-by-hop that otherwise is not.
fn is_named(field: Field<'_>, fields: &Fields<'_>) -> bool {
    (HOP_BY_HOP | PROTECTED) & field.id().bit() == 0
        && connection_names(fields).any(|named| named.eq_ignore_ascii_case(field.name()))
}

impl Scratch {
    /// Sets the fields aside that the next recipient does not get: those that Connection names and
    /// may name and, if the limits say so, those whose name is not plain.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_aside(&mut self, buf: &[u8]) {
        if planted::is(planted::Bug::HopByHopPassedOn) {
            return;
        }
        let (fields, is_odd) = (self.fields(buf), self.is_odd);
        let is_aside = |span: &&Span| {
            let field = fields.at(span);
            (is_odd && !is_plain(field.name())) || is_named(field, &fields)
        };
        let aside: Vec<Span> = fields.spans.iter().filter(is_aside).copied().collect();
        let kept: Vec<Span> = fields.spans.iter().filter(|s| !is_aside(s)).copied().collect();
        debug_assert_eq!(kept.len() + aside.len(), self.count, "no field is lost");
        self.index.clear();
        for (at, span) in kept.iter().enumerate() {
            self.index.note(span.name, at);
        }
        (self.count, self.aside) = (kept.len(), aside.len());
        for (place, span) in self.spans.iter_mut().zip(kept.into_iter().chain(aside)) {
            *place = span;
        }
    }
}

/// The fields that trailers must not have: those of the connection, of framing, routing, conditions
/// and authentication, and those that say how the content or the response is to be handled (RFC
/// 9110 section 6.5.1).
const NOT_IN_TRAILERS: u64 = HOP_BY_HOP
    | PROTECTED
    | Name::Expect.bit()
    | Name::Pragma.bit()
    | Name::Date.bit()
    | Name::Age.bit()
    | Name::Expires.bit()
    | Name::IfMatch.bit()
    | Name::IfNoneMatch.bit()
    | Name::IfModifiedSince.bit()
    | Name::IfUnmodifiedSince.bit()
    | Name::IfRange.bit()
    | Name::Range.bit()
    | Name::Authorization.bit()
    | Name::WwwAuthenticate.bit()
    | Name::Cookie.bit()
    | Name::SetCookie.bit()
    | Name::Location.bit()
    | Name::Warning.bit()
    | Name::CacheStatus.bit()
    | Name::Forwarded.bit()
    | Name::XForwardedFor.bit()
    | Name::XForwardedHost.bit()
    | Name::XForwardedProto.bit()
    | Name::MaxForwards.bit()
    | Name::RetryAfter.bit();

/// Whether a field of this name may be passed on in trailers.
pub fn may_be_trailer(name: &[u8]) -> bool {
    NOT_IN_TRAILERS & Name::from_bytes(name).bit() == 0
}

#[inline]
fn ends_here(id: Name) -> bool {
    HOP_BY_HOP & id.bit() != 0
}

/// The end-to-end fields: see [`Fields::end_to_end`].
#[derive(Clone)]
pub struct EndToEnd<'b> {
    fields: Fields<'b>,
    next: usize,
}

impl<'b> Fields<'b> {
    /// The end-to-end fields: all except the hop-by-hop ones (RFC 9110 section 7.6.1).
    /// They include Content-Length, because it describes the body in a
    /// response to HEAD; a caller that changes the framing must leave it out.
    pub fn end_to_end(&self) -> EndToEnd<'b> {
        EndToEnd { fields: *self, next: 0 }
    }
}

impl<'b> EndToEnd<'b> {
    /// The position of the next one.
    #[inline(always)]
    pub(crate) fn next_span(&mut self) -> Option<&'b Span> {
        loop {
            let span = self.fields.spans.get(self.next)?;
            self.next += 1;
            if !ends_here(span.name) {
                return Some(span);
            }
        }
    }
}

impl<'b> Iterator for EndToEnd<'b> {
    type Item = Field<'b>;

    #[inline]
    fn next(&mut self) -> Option<Field<'b>> {
        self.next_span().map(|span| self.fields.at(span))
    }
}

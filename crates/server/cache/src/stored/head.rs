//! The head of a stored response: serialised once, when the response arrives, as status line, kept
//! fields, and our `Via`. Fields that differ per use (`Content-Length`, `Cache-Status`, `Age`,
//! `Connection`) are appended when the response is sent.

use std::cell::Cell;
use std::sync::Arc;

use caching::date::IMF_FIXDATE_LEN;
use caching::{
    Aging, ContentRange, Exchange, FieldSource, Named, NotStored, Policy, Response, StoredMeta,
    Vary, VaryKey, VaryNames,
};
use coding::rules::Source;
use http1::{Fields, Sink, write};
use serde::{Deserialize, Serialize};
use store::{Generation, Mark};

use crate::stored::resource::{Resource, is_tag_field};

/// Approximate bytes of a stored response besides its head and body: its structures with the
/// overhead of their allocations.
const STRUCTURE_BYTES: u64 = 480;

/// The fields of a message, for the caching rules.
#[derive(Clone, Copy)]
pub struct Wire<'b>(pub Fields<'b>);

impl FieldSource for Wire<'_> {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter()
    }

    // Inlined, because nearly every caller's name is a constant, whose number the compiler finds.

    #[inline(always)]
    fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.0.values(name.as_bytes())
    }

    #[inline(always)]
    fn first<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        match http1::Name::from_token(name.as_bytes()) {
            http1::Name::Other => self.0.values(name.as_bytes()).next(),
            id => self.0.get(id),
        }
    }

    #[inline(always)]
    fn has(&self, name: &str) -> bool {
        self.first(name).is_some()
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Span {
    name_start: u32,
    name_len: u32,
    value_len: u32,
}

thread_local! {
    /// The memory in which the last head was made, for the next one.
    static LAST: Cell<(Vec<u8>, Vec<Span>)> = Cell::default();
}

/// The largest memory that is kept for the next head. The number of spans is bounded by that of the
/// fields.
const LAST_BYTES_MAX: usize = 16 << 10;

/// The exchange that fetched or confirmed a stored response.
pub struct Fetched<'q> {
    /// The fields of the request that the response answers.
    pub fields: Wire<'q>,
    /// When the exchange took place.
    pub exchange: Exchange,
    /// The number of purges when the exchange began.
    pub began: Generation,
    /// Whether fields with cache tags are kept.
    pub tags: bool,
}

/// The head of a response that is, or is about to be, stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Its status.
    pub status: u16,
    /// The input of the caching rules.
    pub meta: StoredMeta,
    /// The names that the response varies by, and the values of the request that fetched it.
    /// Boxed, because few responses vary.
    pub varies: Option<Box<(VaryNames, VaryKey)>>,
    /// The data by which purges match the response.
    pub resource: Resource,
    /// The soft purge that made the response stale, if any.
    pub purged: Option<Mark>,
    /// Until this time (unix milliseconds), requests that must fetch the response again do not wait
    /// for each other, because the origin has answered with a response that may not be stored.
    #[serde(skip)]
    pub unshared_until_ms: u64,
    /// The response sets a cookie. Restored from the fields.
    #[serde(skip)]
    pub sets_cookie: bool,
    /// The length that the origin announced, while the body is arriving.
    #[serde(skip)]
    pub announced_length: Option<u64>,
    /// The part that is arriving, if it is not the whole; it is sent with status 206. Boxed,
    /// because no stored response has one.
    #[serde(skip)]
    pub(crate) part: Option<Box<ContentRange>>,
    /// How the origin coded this response. Set if there may be other forms of the response, by
    /// `Accept-Encoding`. Restored from the fields.
    #[serde(skip)]
    pub(crate) source: Option<Source>,
    /// Serialised separately.
    #[serde(skip)]
    pub(super) block: Arc<[u8]>,
    /// Offset of the fields in `block`, after the status line.
    fields_at: u32,
    /// Offset of our `Via` line, the last one.
    via_at: u32,
    spans: Box<[Span]>,
    content_type: Option<u32>,
}

impl Head {
    /// Serialises a head. `fields` are the fields to keep, without framing and `Age`; `via` is our
    /// `Via` line, or empty.
    pub fn new<'f>(
        status: u16,
        via: &[u8],
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        meta: StoredMeta,
        resource: Resource,
    ) -> Head {
        // Their lengths are known at the end.
        let (mut block, mut spans) = LAST.take();
        let mut content_type = None;
        let (mut dated, mut sets_cookie) = (false, false);
        write::status_line(&mut block, status);
        let fields_at = block.len() as u32;
        for (name, value) in fields {
            if is_per_exchange(name) {
                continue;
            }
            dated |= name.eq_ignore_ascii_case(b"date");
            sets_cookie |= is_cookie_field(name);
            if name.eq_ignore_ascii_case(b"content-type") {
                content_type = Some(spans.len() as u32);
            }
            spans.push(append(&mut block, name, value));
        }
        if !dated {
            let date = caching::date::format(meta.freshness.response_ms);
            spans.push(append(&mut block, b"Date", &date));
        }
        let via_at = block.len() as u32;
        debug_assert!(
            fields_at <= via_at && content_type.is_none_or(|at| (at as usize) < spans.len())
        );
        block.extend_from_slice(via);
        let (kept_block, kept_spans) = (Arc::from(&block[..]), Box::from(&spans[..]));
        if block.capacity() <= LAST_BYTES_MAX {
            block.clear();
            spans.clear();
            LAST.set((block, spans));
        }
        Head {
            status,
            meta,
            varies: None,
            resource,
            purged: None,
            unshared_until_ms: 0,
            sets_cookie,
            announced_length: None,
            part: None,
            source: None,
            block: kept_block,
            fields_at,
            via_at,
            spans: kept_spans,
            content_type,
        }
    }

    /// `Content-Type`, for the log; empty if there is none.
    pub fn content_type(&self) -> &[u8] {
        self.content_type.map_or(&[], |at| self.field(&self.spans[at as usize]).1)
    }

    /// Which representation it is of.
    pub fn named(&self) -> Named<'_> {
        Named::of(&self.meta.validators, self)
    }

    pub(crate) fn via(&self) -> &[u8] {
        &self.block[self.via_at as usize..]
    }

    /// The same head, for a part of the representation.
    pub fn of_part(self, part: ContentRange) -> Head {
        Head { part: Some(Box::new(part)), ..self }
    }

    /// The part that is arriving, if it is not the whole.
    pub fn part(&self) -> Option<ContentRange> {
        self.part.as_deref().copied()
    }

    /// The same head, for all of the representation.
    pub fn of_whole(&self) -> Head {
        Head { part: None, ..self.clone() }
    }

    /// Its approximate size in bytes.
    pub fn accounted_bytes(&self) -> u64 {
        let spans = self.spans.len() * size_of::<Span>();
        let varies = self.varies.as_deref().map_or(0, |(_, key)| key.bytes_held() + 64);
        let known = self.resource.bytes_held();
        STRUCTURE_BYTES + (self.block.len() + spans + varies + known) as u64
    }

    /// The head after an update by fields of the same representation (RFC 9111, 3.2), and whether
    /// the response may stay in the store with it. A cookie in the update is not taken, unless the
    /// policy shares cookies.
    pub fn updated(
        &self,
        update: &Wire<'_>,
        fetched: &Fetched<'_>,
        policy: &Policy,
    ) -> (Head, Result<(), NotStored>) {
        let mut fields = caching::updated(self, update);
        let withholds = policy.withholds_cookies();
        fields.retain(|(name, _)| {
            (fetched.tags || !is_tag_field(name)) && !(withholds && is_cookie_field(name))
        });
        let response = Response { status: self.status, fields: &fields };
        let request = caching::Request { method: b"GET", fields: &fetched.fields };
        let (meta, vary, verdict) =
            match caching::may_store(&request, &response, fetched.exchange, policy) {
                Ok(storable) => (storable.meta, storable.vary, Ok(())),
                Err(why) => {
                    let policy = policy.for_request(&request);
                    let meta = StoredMeta::of(&response, fetched.exchange, &policy);
                    (meta, caching::vary(&fields), Err(why))
                }
            };
        let varies = varies_of(&vary, &fetched.fields);
        let resource = self.resource.updated(update.fields(), fetched.began);
        let fields = fields.into_iter();
        let mut head = Head::new(self.status, self.via(), fields, meta, resource);
        head.varies = varies;
        (head, verdict)
    }

    /// This head, updated by the head of a newer part (RFC 9111, 3.4).
    pub fn with_newer(&self, newer: &Head) -> Head {
        let fields = caching::updated(self, newer);
        // The parts are of one body, so they are coded alike, even if the rules for the newer one
        // did not ask how.
        let source = newer.source.or(self.source);
        let varies = if newer.source == source { &newer.varies } else { &self.varies };
        let (meta, varies) = (newer.meta.clone(), varies.clone());
        let resource = newer.resource.clone();
        let fields = fields.into_iter();
        let mut head = Head::new(self.status, newer.via(), fields, meta, resource);
        (head.varies, head.source) = (varies, source);
        head
    }

    /// The same head, stale since a soft purge.
    pub fn purged_softly(&self, mark: Mark) -> Head {
        let meta = self.meta.stale_from(mark.at_ms);
        Head { meta, purged: Some(mark), unshared_until_ms: 0, ..self.clone() }
    }

    /// The same head after the origin answered a validation with a response that may not be stored:
    /// `stale-while-revalidate` ends. See [`Head::unshared_until_ms`].
    pub fn unshared(&self, unshared_until_ms: u64) -> Head {
        Head { unshared_until_ms, ..self.with_meta(self.meta.not_while_revalidate()) }
    }

    /// The same head after the origin confirmed another response in place of this response.
    pub fn without_validators(&self) -> Head {
        self.with_meta(self.meta.without_validators())
    }

    /// Whether the response varies by the same fields as another head.
    pub fn varies_as(&self, other: &Head) -> bool {
        let names = |head: &Head| head.varies.as_deref().map(|(names, _)| names.clone());
        names(self) == names(other)
    }

    /// The same head with other metadata.
    pub fn with_meta(&self, meta: StoredMeta) -> Head {
        Head { meta, ..self.clone() }
    }

    /// Whether this response may answer a request with these fields.
    pub fn matches(&self, request: &Wire<'_>) -> bool {
        self.varies.as_deref().is_none_or(|(names, key)| names.matches(key, request))
            || planted::is(planted::Bug::CollapsedAcrossVary)
    }

    /// The serialised head.
    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// Restores a head from its saved form and its bytes; `None` if they do not fit together.
    pub fn read(self, block: &[u8]) -> Option<Head> {
        let fits = |span: &Span| {
            let value_at = span.name_start.checked_add(span.name_len)?.checked_add(2)?;
            Some(value_at.checked_add(span.value_len)? as usize <= block.len())
        };
        let sound = self.spans.iter().all(|span| fits(span) == Some(true))
            && self.fields_at as usize <= block.len()
            && self.via_at as usize <= block.len()
            && self.content_type.is_none_or(|at| (at as usize) < self.spans.len());
        sound.then(|| {
            let head = Head { block: block.into(), ..self }.with_source();
            let sets_cookie = head.fields().any(|(name, _)| is_cookie_field(name));
            Head { sets_cookie, ..head }
        })
    }

    fn field(&self, span: &Span) -> (&[u8], &[u8]) {
        let name_end = (span.name_start + span.name_len) as usize;
        let value_start = name_end + 2;
        (
            &self.block[span.name_start as usize..name_end],
            &self.block[value_start..value_start + span.value_len as usize],
        )
    }
}

/// Framing and age belong to one exchange, not to the stored response.
fn is_per_exchange(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"age")
}

/// Whether this field sets a cookie.
pub fn is_cookie_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"set-cookie")
}

fn is_range_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-range")
}

fn append(block: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Span {
    let name_start = block.len() as u32;
    for part in [name, b": ", value, b"\r\n"] {
        block.extend_from_slice(part);
    }
    Span { name_start, name_len: name.len() as u32, value_len: value.len() as u32 }
}

impl FieldSource for Head {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| self.field(span))
    }
}

/// Whether a response with this status carries `Content-Length` (RFC 9110, 8.6).
pub fn has_length(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// How the head announces the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The head announces nothing: there is no body, or `Content-Length` was already written.
    Implied,
    /// A body of this length.
    Length(u64),
    /// In chunks.
    Chunked,
    /// The connection closes at the end (for HTTP/1.0 clients).
    UntilClose,
}

impl Head {
    /// Writes the head of a response whose body is still arriving.
    pub fn write_streaming(&self, out: &mut impl Sink, framing: Framing, use_: &Use<'_>) {
        out.prepared(self.status, &self.block);
        framing.write(out);
        use_.write(out, self.meta.freshness.aging());
    }

    /// Writes the head of the 304 that confirms the client's copy (RFC 9110, 15.4.5).
    pub fn write_not_modified(&self, out: &mut impl Sink, use_: &Use<'_>) {
        out.status(304);
        self.write_fields(out, caching::belongs_in_304);
        use_.write(out, self.meta.freshness.aging());
    }

    /// Writes the head of a 206 with one part (RFC 9110, 15.3.7.1).
    pub fn write_part(
        &self,
        out: &mut impl Sink,
        part: ContentRange,
        framing: Framing,
        use_: &Use<'_>,
    ) {
        out.status(206);
        match self.has("content-range") {
            false => out.lines(&self.block[self.fields_at as usize..]),
            // It means nothing in the stored response, which is whole (RFC 9110, 14.4).
            true => self.write_fields(out, |name| !is_range_field(name)),
        }
        let value = part.range.content_range(part.complete_bytes);
        out.field(b"Content-Range", value.as_bytes());
        framing.write(out);
        use_.write(out, self.meta.freshness.aging());
    }

    /// Writes the head of a 206 with several parts. Each part has its own type and range (RFC
    /// 9110, 15.3.7.2).
    pub fn write_parts(&self, out: &mut impl Sink, boundary: &str, length: u64, use_: &Use<'_>) {
        out.status(206);
        self.write_fields(out, |name| {
            !name.eq_ignore_ascii_case(b"content-type") && !is_range_field(name)
        });
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        out.field(b"Content-Type", content_type.as_bytes());
        out.content_length(length);
        use_.write(out, self.meta.freshness.aging());
    }

    /// Writes the head of a 416: no requested range exists (RFC 9110, 15.5.17).
    pub fn write_unsatisfied(&self, out: &mut impl Sink, complete_bytes: u64, use_: &Use<'_>) {
        out.status(416);
        let date = caching::date::format(self.meta.freshness.response_ms);
        out.field(b"Date", self.first("date").unwrap_or(&date));
        out.lines(self.via());
        let value = caching::range::unsatisfied_range(complete_bytes);
        out.field(b"Content-Range", value.as_bytes());
        out.content_length(0);
        use_.write(out, self.meta.freshness.aging());
    }

    /// Writes the stored fields whose names are kept, and our `Via`.
    fn write_fields(&self, out: &mut impl Sink, keep: impl Fn(&[u8]) -> bool) {
        for (name, value) in self.fields().filter(|(name, _)| keep(name)) {
            out.field(name, value);
        }
        out.lines(self.via());
    }
}

/// Writes `Date`, which a proxy adds to a response without it (RFC 9110, 6.6.1).
pub fn write_date(out: &mut impl Sink, now_ms: u64) {
    thread_local! {
        /// The last second that was formatted.
        static LAST: Cell<(u64, [u8; IMF_FIXDATE_LEN])> = const { Cell::new((u64::MAX, [0; _])) };
    }
    let second = now_ms / 1000;
    let (last, mut text) = LAST.get();
    if last != second {
        text = caching::date::format(now_ms);
        LAST.set((second, text));
    }
    out.field(b"Date", &text);
}

impl Framing {
    /// Writes the field that announces the end of the body.
    pub fn write(self, out: &mut impl Sink) {
        match self {
            Framing::Implied | Framing::UntilClose => {}
            Framing::Length(length) => out.content_length(length),
            Framing::Chunked => out.field(b"Transfer-Encoding", b"chunked"),
        }
    }
}

/// The fields of a head that belong to one use of a response.
#[derive(Clone, Copy, Debug)]
pub struct Use<'s> {
    /// The member of `Cache-Status`, such as `plimsoll; hit`.
    pub cache_status: &'s [u8],
    /// The current time, for `Age`; `None` for a response that has just come from the origin.
    pub now_ms: Option<u64>,
    /// Whether the connection stays open.
    pub connection: Connection,
    /// Field lines for this client only.
    pub own_lines: &'s [u8],
}

/// Whether the client's connection stays open after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The connection stays open, as is the default in HTTP/1.1.
    Keep,
    /// The connection stays open, and an HTTP/1.0 client needs a field that says so.
    KeepExplicit,
    /// The connection closes.
    Close,
}

impl Connection {
    /// Writes the `Connection` field, if it is needed.
    #[inline]
    pub fn write(self, out: &mut impl Sink) {
        match self {
            Connection::Keep => {}
            Connection::KeepExplicit => out.field(b"Connection", b"keep-alive"),
            Connection::Close => out.field(b"Connection", b"close"),
        }
    }
}

impl Use<'_> {
    #[inline(always)]
    pub(super) fn write(&self, out: &mut impl Sink, aging: Aging) {
        out.field_of(b"Cache-Status", |out| out.extend_from_slice(self.cache_status));
        let age = match self.now_ms {
            Some(now_ms) => Some(aging.age_seconds(now_ms)),
            None => {
                // Directly from the origin, which may be a cache itself.
                let ms = aging.on_arrival_ms();
                (ms >= 1000).then_some(ms / 1000)
            }
        };
        if let Some(seconds) = age {
            out.field_of(b"Age", |out| write::decimal(out, seconds));
        }
        self.connection.write(out);
        out.lines(self.own_lines);
    }
}

/// The names and values to store with a response.
pub fn varies_of(vary: &Vary, request: &Wire<'_>) -> Option<Box<(VaryNames, VaryKey)>> {
    match vary {
        Vary::Names(_) if planted::is(planted::Bug::VaryIgnored) => None,
        Vary::Names(names) => Some(Box::new((names.clone(), names.key(request)))),
        Vary::None | Vary::Star => None,
    }
}

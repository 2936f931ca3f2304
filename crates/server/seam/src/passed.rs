//! Responses that are not stored, coded while they pass.
//!
//! What: [`Passed`] says what becomes of the head of such a response, and [`Coder`] codes its body.
//! Why here: the head is written by the connection, and the body is read by the exchange.
//!
//! Each read of the body is coded in pieces, between which the core serves other connections. Then
//! the encoder is flushed, so an event of a stream is with the client as soon as it has come.
//!
//! What never happens: a part, a message of gRPC or a body that has a coding is coded; a body that
//! broke off gets an end; more encoders run than [`Rules::passed_max`] allows; a client that
//! accepts no coding gets one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cache::Cache;
use cache::coding_jobs::Encoding;
use cache::stored::Wire;
use caching::etag::{self, EntityTag};
use coding::fields::{fits_form, weakened};
use coding::limits::STREAM_PIECE_BYTES;
use coding::{Accept, Level, Rules, Stream};
use http1::{Fields, Method, Name, ResponseHead};
use outcome::Fault;
use upstream::BodyLength;

/// What a request says about it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// Its method.
    pub method: Method,
    /// Its fields.
    pub fields: Fields<'r>,
    /// The codings that the client accepts.
    pub accept: Accept,
}

/// What becomes of the head of a response that passes.
#[derive(Debug, Default)]
pub struct Passed {
    /// The body is coded.
    coded: bool,
    /// The tag is replaced.
    tagged: bool,
    /// The field lines that are added.
    pub lines: Vec<u8>,
}

impl Passed {
    /// What becomes of this response; `None`: it passes as it came. `begins` begins an encoder, if
    /// one is needed and there is room for it.
    pub fn of(
        rules: &Rules,
        asked: &Asked<'_>,
        (head, length): (&ResponseHead<'_>, BodyLength),
        begins: impl FnOnce(Level) -> bool,
    ) -> Option<Passed> {
        let fields = &head.fields;
        if head.status == 304 {
            return Passed::not_modified(rules, asked, fields);
        }
        let bytes = match length {
            BodyLength::Known(bytes) => Some(bytes),
            // The answer to HEAD has the length of the body that it describes.
            BodyLength::None if asked.method == Method::Head => head.content_length(),
            BodyLength::None => return None,
            BodyLength::Unknown => None,
        };
        if !rules.passes(head.status, &Wire(*fields), bytes) {
            return None;
        }
        let mut passed = Passed::default();
        if !fields.contains_token(Name::Vary, b"Accept-Encoding") {
            passed.lines.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        // A range is of the response as the origin sends it.
        let takes_range = asked.fields.has(Name::Range);
        let best = rules.ranked(asked.accept)[0].filter(|_| !takes_range);
        let is_coded = |level: &Level| asked.method == Method::Head || begins(*level);
        let Some(level) = best.filter(is_coded) else { return Some(passed) };
        (passed.coded, passed.tagged) = (true, true);
        passed.add(b"Content-Encoding", level.coding.name().as_bytes());
        if let Some(tag) = fields.get(Name::Etag).and_then(weakened) {
            passed.add(b"ETag", &tag);
        }
        Some(passed)
    }

    /// What the client has may be a coded body, so a strong tag would be that of another one.
    fn not_modified(rules: &Rules, asked: &Asked<'_>, fields: &Fields<'_>) -> Option<Passed> {
        rules.ranked(asked.accept)[0]?;
        let tag = fields.get(Name::Etag)?;
        let own = EntityTag::parse(tag).filter(|own| !own.weak)?;
        let mut tags = asked.fields.all(Name::IfNoneMatch).flat_map(etag::list).peekable();
        let names_own_alone = tags.peek().is_some() && tags.all(|tag| tag.strong_eq(&own));
        if names_own_alone {
            return None;
        }
        let mut passed = Passed { tagged: true, ..Passed::default() };
        passed.add(b"ETag", &weakened(tag)?);
        Some(passed)
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
    }

    /// Whether the body is coded.
    pub fn is_coded(&self) -> bool {
        self.coded
    }

    /// Whether a field of the response is sent.
    pub fn keeps(&self, name: &[u8]) -> bool {
        let is_tag = || name.eq_ignore_ascii_case(b"etag");
        !(self.coded && !fits_form(name) || self.tagged && is_tag())
    }
}

/// The encoder of one body, and its place among those that there may be.
#[derive(Debug)]
pub struct Coder {
    stream: Option<Stream>,
    cache: Arc<Cache>,
    _place: Encoding,
    /// What has come and is to be coded. It is empty between two reads.
    pub read: Vec<u8>,
}

impl Coder {
    /// An encoder, if there is room and memory for it.
    pub fn new(cache: &Arc<Cache>, level: Level, most: usize) -> Option<Coder> {
        let place = cache.encoding(most)?;
        let stream = Stream::new(level).ok()?;
        let cache = Arc::clone(cache);
        Some(Coder { stream: Some(stream), cache, _place: place, read: Vec::new() })
    }

    /// Codes what was read, and gives all of it out. `is_complete`: the body ends here.
    ///
    /// # Errors
    /// The encoder has failed. The body must break off.
    pub async fn code(&mut self, is_complete: bool) -> Result<Vec<u8>, Fault> {
        let read = std::mem::take(&mut self.read);
        let mut out = Vec::new();
        let mut pieces = read.chunks(STREAM_PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            let stream = self.stream.as_mut().ok_or(Fault::Abandoned)?;
            let flush = is_last && !is_complete;
            guarded(|| stream.feed(piece, flush, &mut out))?;
            if !is_last {
                runtime::yield_now().await;
            }
        }
        if is_complete {
            let stream = self.stream.take().ok_or(Fault::Abandoned)?;
            guarded(|| stream.finish(&mut out))?;
        }
        self.cache.count_passed(read.len(), out.len());
        self.read = read;
        self.read.clear();
        Ok(out)
    }
}

/// A codec that panics must not take the core with it.
fn guarded(work: impl FnOnce() -> Result<(), coding::Failed>) -> Result<(), Fault> {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(coding::Failed::Malformed));
    done.map_err(|why| {
        tracing::debug!(%why, "a body cannot be coded");
        Fault::Abandoned
    })
}

//! Squid's native format: `TIME.MS ELAPSED CLIENT CODE/STATUS BYTES METHOD URL USER HIERARCHY/PEER
//! TYPE`, the elapsed time in ms and padded with spaces.
//!
//! It stamps the end, when the line is written (wiki.squid-cache.org, Features/LogFormat).

use super::{Facts, Instant, NS_PER_MS, NS_PER_S, Request, SECONDS_MAX, digits, from_ms, signed};

pub(super) fn parse(line: &[u8]) -> Option<Request> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let stamp = fields.next()?;
    let elapsed_ms = signed(fields.next()?)?;
    let _client = fields.next()?;
    let code = fields.next()?;
    let mut facts = Facts::default();
    facts.take_bytes(fields.next()?)?;
    facts.take_method(fields.next()?);
    // URL, user, hierarchy and type must be present: a truncated line is not a request.
    if fields.take(4).count() < 4 {
        return None;
    }
    let slash = memchr::memrchr(b'/', code)?;
    facts.take_status(&code[slash + 1..])?;
    facts.take_outcome(&code[..slash]);
    let dot = stamp.len().checked_sub(4).filter(|&at| stamp[at] == b'.')?;
    let seconds = digits(&stamp[..dot]).filter(|&seconds| seconds <= SECONDS_MAX)?;
    let milliseconds = digits(&stamp[dot + 1..])?;
    from_ms(seconds * NS_PER_S + milliseconds * NS_PER_MS, elapsed_ms, Instant::End, facts)
}

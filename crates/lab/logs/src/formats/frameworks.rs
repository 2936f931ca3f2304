//! Text that frameworks and controllers write: Gin, chi, PHP-FPM, Traefik, ingress-nginx.
//!
//! ```text
//! [GIN] 2026/11/28 - 10:00:00 | 200 | 1.2ms | 192.0.2.1 | GET "/"
//! 2026/11/28 10:00:00 "GET http://h/ HTTP/1.1" from 192.0.2.1:5 - 200 5B in 1.2ms
//! 127.0.0.1 -  28/Nov/2026:10:00:00 +0000 "GET /a.php" 200
//! (combined) 7 "router@file" "http://10.0.0.1" 12ms
//! (combined) 125 0.012 [default-web-80] [] ...
//! ```
//!
//! Gin and chi stamp the end in local time, ingress-nginx the end, the others the start. PHP-FPM
//! has no elapsed time. That of ingress-nginx is in seconds, with three decimals.

use super::clf;
use super::pattern::{duration_us, elapsed_us};
use super::words::Words;
use super::{Facts, Instant, NS_PER_S, Request, Stamps, digits};

/// `gin.Logger()`.
pub(super) fn gin(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let mut fields = line.strip_prefix(b"[GIN] ")?.split(|&byte| byte == b'|');
    let stamp = fields.next()?.trim_ascii();
    let (date, time) = (stamp.get(..10)?, stamp.get(10..)?.strip_prefix(b" - ")?);
    let seconds = stamps.slashed(date, time)?;
    let mut facts = Facts::default();
    facts.take_status(fields.next()?.trim_ascii())?;
    let life_us = duration_us(fields.next()?.trim_ascii())?;
    let _client = fields.next()?;
    facts.take_method(Words::of(fields.next()?.trim_ascii()).word()?);
    Some(Request::lived(seconds * NS_PER_S, NS_PER_S, Instant::End, Some(life_us), facts))
}

/// chi's `middleware.Logger`, on Go's standard logger.
pub(super) fn chi(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let mut words = Words::of(line);
    let seconds = {
        let date = words.word().filter(|word| word.len() == 10 && word[4] == b'/')?;
        stamps.slashed(date, words.word()?)?
    };
    let mut facts = Facts::default();
    // With the middleware RequestID, its number comes first.
    if words.rest.starts_with(b" [") {
        words.bracketed()?;
    }
    facts.take_request_line(words.quoted()?);
    (words.word()? == b"from").then_some(())?;
    words.skip(2)?;
    facts.take_status(words.word()?)?;
    facts.take_bytes(words.word()?.strip_suffix(b"B")?)?;
    (words.word()? == b"in").then_some(())?;
    let life_us = duration_us(words.word()?)?;
    Some(Request::lived(seconds * NS_PER_S, NS_PER_S, Instant::End, Some(life_us), facts))
}

/// PHP-FPM's default, `%R - %u %t "%m %r" %s`. Its time has no brackets.
pub(super) fn phpfpm(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let quote = memchr::memmem::find(line, b" \"")?;
    let begun = quote.checked_sub(26)?;
    let seconds = stamps.zoned(&line[begun..quote])?;
    let mut words = Words::of(&line[quote..]);
    let mut facts = Facts::default();
    facts.take_request_line(words.quoted()?);
    facts.take_status(words.word()?)?;
    words.rest.trim_ascii().is_empty().then_some(())?;
    Some(Request::lived(seconds * NS_PER_S, NS_PER_S, Instant::Start, None, facts))
}

/// Traefik's common log format.
pub(super) fn traefik(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let number = line.strip_suffix(b"ms")?;
    let space = memchr::memrchr(b' ', number)?;
    (number[..space].ends_with(b"\"")).then_some(())?;
    let life_us = u64::try_from(digits(&number[space + 1..])?).ok()?.checked_mul(1000)?;
    let (request, _) = clf::combined(line, stamps)?;
    request.with_life(life_us, Instant::Start)
}

/// The default of Kubernetes' ingress-nginx.
pub(super) fn ingress(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    line.last().filter(|byte| byte.is_ascii_hexdigit() || **byte == b'-')?;
    let (request, rest) = clf::combined(line, stamps)?;
    let mut words = Words::of(rest);
    digits(words.word()?)?;
    let time = words.word().filter(|time| time.contains(&b'.'))?;
    words.bracketed()?;
    words.bracketed()?;
    request.with_life(elapsed_us(time, 1_000_000)??, Instant::End)
}

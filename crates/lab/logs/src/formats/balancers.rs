//! Logs of load balancers, meshes and stores: Amazon's Application and Classic Load Balancer, S3,
//! Envoy, and Istio.
//!
//! ```text
//! https 2018-07-02T22:23:00.186641Z app/lb/50dc CLIENT TARGET 0.086 0.048 0.037 200 200 34 366 "-"
//! 2015-05-13T23:39:43.945958Z lb CLIENT BACKEND 0.000073 0.001048 0.000057 200 200 0 29 "..."
//! OWNER BUCKET [06/Feb/2019:00:00:38 +0000] CLIENT - ID REST.GET.OBJECT KEY "..." 200 - 113 - 7 -
//! [2016-04-15T20:17:00.310Z] "POST /v1 HTTP/2" 204 - 154 0 226 100 ...
//! ```
//!
//! The Application Load Balancer stamps the end, the others the start. The elapsed time is the sum
//! of three times in seconds, and in milliseconds for Envoy and S3.
//!
//! Sources: Amazon's user guides on access logs; Envoy's and Istio's pages on access logging.

use super::pattern::elapsed_us;
use super::words::Words;
use super::{Facts, Instant, NS_PER_S, Request, Stamps};

/// The Application Load Balancer.
pub(super) fn alb(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let mut words = Words::of(line);
    let tls = match words.word()? {
        b"http" | b"ws" => false,
        b"https" | b"h2" | b"grpcs" | b"wss" => true,
        _ => return None,
    };
    let mut facts = Facts { tls: Some(tls), ..Facts::default() };
    let stamp = stamps.iso(words.word()?)?;
    let elapsed_us = amazon(&mut words, &mut facts)?;
    Some(Request::lived(stamp.ns, stamp.grain_ns, Instant::End, elapsed_us, facts))
}

/// The Classic Load Balancer.
pub(super) fn elb(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    // Most lines of other formats end here.
    if line.len() < 40 || line[4] != b'-' || line[10] != b'T' {
        return None;
    }
    let mut words = Words::of(line);
    let stamp = stamps.iso(words.word()?)?;
    let mut facts = Facts::default();
    let elapsed_us = amazon(&mut words, &mut facts)?;
    let _agent = words.quoted();
    let _cipher = words.word();
    if let Some(protocol) = words.word() {
        facts.take_tls(protocol);
    }
    Some(Request::lived(stamp.ns, stamp.grain_ns, Instant::Start, elapsed_us, facts))
}

/// The fields from the balancer's name to the request. A time of -1 means that the request was
/// never passed on: then its life is unknown. Connections of TCP have no status and no request.
fn amazon(words: &mut Words<'_>, facts: &mut Facts) -> Option<Option<u64>> {
    words.skip(3)?;
    let mut sum_us = Some(0);
    for _ in 0..3 {
        let part_us = elapsed_us(words.word()?, 1_000_000)?;
        sum_us = sum_us.zip(part_us).map(|(sum, part)| sum + part);
    }
    let status = words.word()?;
    words.skip(2)?;
    let sent = words.word()?;
    let request = words.quoted()?;
    if status == b"-" && request.starts_with(b"- - -") {
        return None;
    }
    facts.take_status(status)?;
    facts.take_bytes(sent)?;
    facts.take_request_line(request);
    Some(sum_us)
}

/// S3's server access log.
pub(super) fn s3(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let mut words = Words::of(line);
    words.skip(2)?;
    let second = stamps.zoned(words.bracketed()?)?;
    words.skip(5)?;
    let mut facts = Facts::default();
    facts.take_request_line(words.quoted()?);
    facts.take_status(words.word()?)?;
    let _error = words.word()?;
    facts.take_bytes(words.word()?)?;
    let _object_bytes = words.word()?;
    let elapsed_us = elapsed_us(words.word()?, 1000)?;
    let _turn_around = words.word()?;
    let (_referer, _agent) = (words.quoted(), words.quoted());
    // The version of the object, the id of the host, the signature, the cipher, the authentication
    // and the host.
    if let Some(protocol) = words.skip(6).and_then(|()| words.word()) {
        facts.take_tls(protocol);
    }
    Some(Request::lived(second * NS_PER_S, NS_PER_S, Instant::Start, elapsed_us, facts))
}

/// What S3 did by itself, such as the end of an object's life: no request.
pub(super) fn is_s3_event(line: &[u8], stamps: &mut Stamps) -> bool {
    let mut words = Words::of(line);
    let stamped = words.skip(2).and_then(|()| stamps.zoned(words.bracketed()?)).is_some();
    let operation = words.skip(3).and_then(|()| words.word());
    stamped && operation.is_some_and(|operation| operation.starts_with(b"S3."))
}

/// Envoy's default text, and Istio's, which has three more fields after the flags.
pub(super) fn envoy(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let mut words = Words::of(line);
    let stamp = stamps.iso(words.bracketed()?)?;
    let mut facts = Facts::default();
    facts.take_request_line(words.quoted()?);
    facts.take_status(words.word()?)?;
    let _flags = words.word()?;
    let mut received = words.word()?;
    if super::digits(received).is_none() {
        let _termination = words.word()?;
        let _transport_failure = words.quoted()?;
        received = words.word()?;
    }
    super::digits(received)?;
    facts.take_bytes(words.word()?)?;
    let elapsed_us = elapsed_us(words.word()?, 1000)?;
    Some(Request::lived(stamp.ns, stamp.grain_ns, Instant::Start, elapsed_us, facts))
}

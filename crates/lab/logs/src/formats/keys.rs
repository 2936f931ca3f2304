//! The keys of JSON lines that are known by their names, and what they mean.

use super::facts::Fact;
use super::{Instant, NS_PER_MS, NS_PER_S};

/// The meaning of a key's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Time(Instant),
    /// The unit, ns.
    Elapsed(u64),
    /// An elapsed time that counts only if its value has a unit.
    Lasting,
    Fact(Fact),
}

/// The meaning of the known keys.
pub(super) fn known(key: &[u8]) -> Option<Meaning> {
    Some(match key {
        b"time" | b"timestamp" | b"@timestamp" | b"ts" | b"msec" | b"time_local"
        | b"time_iso8601" | b"date" | b"datetime" | b"end_time" | b"@t" | b"EdgeEndTimestamp"
        | b"timeStamp" => Meaning::Time(Instant::End),
        b"start_time"
        | b"start"
        | b"begin"
        | b"StartUTC"
        | b"accept_time"
        | b"started_at"
        | b"requestTime"
        | b"reqTimeSec"
        | b"EdgeStartTimestamp" => Meaning::Time(Instant::Start),
        b"request_time" | b"elapsed_s" | b"duration_s" | b"duration_seconds" => {
            Meaning::Elapsed(NS_PER_S as u64)
        }
        // Kong, and Node's pino-http.
        b"latencies.request" | b"responseTime" | b"response_time_ms" => {
            Meaning::Elapsed(NS_PER_MS as u64)
        }
        // Traefik, and the Elastic Common Schema.
        b"Duration" | b"event.duration" => Meaning::Elapsed(1),
        b"status"
        | b"status_code"
        | b"statusCode"
        | b"StatusCode"
        | b"response_status"
        | b"response_code"
        | b"response.status"
        | b"res.statusCode"
        | b"http.status_code"
        | b"http.response.status_code"
        | b"httpRequest.status"
        | b"properties.httpStatus"
        | b"EdgeResponseStatus"
        | b"DownstreamStatus" => Meaning::Fact(Fact::Status),
        b"bytes"
        | b"bytes_sent"
        | b"bytes_out"
        | b"size"
        | b"body_bytes_sent"
        | b"response_size"
        | b"resp_size"
        | b"response.size"
        | b"http.response.bytes"
        | b"httpRequest.responseSize"
        | b"properties.sentBytes"
        | b"responseLength"
        | b"EdgeResponseBytes"
        | b"DownstreamContentSize" => Meaning::Fact(Fact::Bytes),
        b"method"
        | b"request_method"
        | b"RequestMethod"
        | b"request.method"
        | b"req.method"
        | b"http.method"
        | b"http.request.method"
        | b"httpRequest.requestMethod"
        | b"properties.httpMethod"
        | b"httpMethod"
        | b"reqMethod"
        | b"ClientRequestMethod" => Meaning::Fact(Fact::Method),
        b"request" | b"request_line" => Meaning::Fact(Fact::RequestLine),
        b"outcome"
        | b"cache"
        | b"cache_status"
        | b"upstream_cache_status"
        | b"cache_result"
        | b"CacheCacheStatus" => Meaning::Fact(Fact::Outcome),
        b"tls"
        | b"scheme"
        | b"https"
        | b"ssl_protocol"
        | b"request.tls"
        | b"RequestScheme"
        | b"ClientRequestScheme" => Meaning::Fact(Fact::Tls),
        key => return elapsed(key),
    })
}

/// Members of a line whose keys are remembered.
const SHAPE_MAX: usize = 64;

/// The known keys of the last lines, by their places in a line. The lines of a server have the same
/// keys in the same order, so most keys are recognised by one comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape(Vec<(Vec<u8>, Option<Meaning>)>);

impl Shape {
    /// The same as [`known()`], for the key in this place.
    #[inline]
    pub(super) fn known(&mut self, place: usize, key: &[u8]) -> Option<Meaning> {
        match self.0.get(place) {
            Some((remembered, meaning)) if remembered == key => *meaning,
            _ => self.learn(place, key),
        }
    }

    #[inline(never)]
    fn learn(&mut self, place: usize, key: &[u8]) -> Option<Meaning> {
        let meaning = known(key);
        if place >= SHAPE_MAX {
            return meaning;
        }
        if place >= self.0.len() {
            self.0.resize_with(place + 1, Default::default);
        }
        let (remembered, of_it) = &mut self.0[place];
        remembered.clear();
        remembered.extend_from_slice(key);
        *of_it = meaning;
        meaning
    }
}

/// Names of elapsed times, in snake case, without a unit.
const ELAPSED_NAMES: [&[u8]; 12] = [
    b"elapsed",
    b"elapsed_time",
    b"duration",
    b"latency",
    b"took",
    b"response_time",
    b"request_time",
    b"request_duration",
    b"response_duration",
    b"time_taken",
    b"time_elapsed",
    b"total_time",
];

/// Units at the end of such a name.
const UNITS: [(&[u8], u64); 16] = [
    (b"s", 1_000_000_000),
    (b"sec", 1_000_000_000),
    (b"secs", 1_000_000_000),
    (b"seconds", 1_000_000_000),
    (b"ms", 1_000_000),
    (b"msec", 1_000_000),
    (b"millis", 1_000_000),
    (b"milliseconds", 1_000_000),
    (b"us", 1000),
    (b"usec", 1000),
    (b"micros", 1000),
    (b"microseconds", 1000),
    (b"ns", 1),
    (b"nsec", 1),
    (b"nanos", 1),
    (b"nanoseconds", 1),
];

/// Longest name of an elapsed time.
const NAME_BYTES_MAX: usize = 40;

/// An elapsed time by the end of its path: `duration_ms`, `http.elapsedSeconds`, and without a unit
/// `latency`, whose value must then have it.
pub(super) fn elapsed(path: &[u8]) -> Option<Meaning> {
    let name = &path[memchr::memrchr(b'.', path).map_or(0, |at| at + 1)..];
    // Most keys are decided by their first two letters.
    let begins = [name.first()?.to_ascii_lowercase(), *name.get(1)?];
    if !matches!(&begins, b"el" | b"du" | b"la" | b"to" | b"re" | b"ti")
        || name.len() > NAME_BYTES_MAX
    {
        return None;
    }
    // To snake case.
    let mut snake = [0; 2 * NAME_BYTES_MAX];
    let mut length = 0;
    for (at, &byte) in name.iter().enumerate() {
        if byte.is_ascii_uppercase() && at > 0 && name[at - 1].is_ascii_lowercase() {
            snake[length] = b'_';
            length += 1;
        }
        snake[length] = if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
        length += 1;
    }
    let snake = &snake[..length];
    if ELAPSED_NAMES.contains(&snake) || snake == b"latency_human" {
        return Some(Meaning::Lasting);
    }
    let (stem, unit) = snake.split_at(memchr::memrchr(b'_', snake)?);
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == &unit[1..])?;
    ELAPSED_NAMES.contains(&stem).then_some(Meaning::Elapsed(*unit_ns))
}

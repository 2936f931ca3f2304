//! Sends messages to an OpenTelemetry collector: OTLP over HTTP, in protocol buffers.
//!
//! Headers come from `OTEL_EXPORTER_OTLP_HEADERS`, as in other programs, so that a password is not
//! in the list of processes.

use std::fmt;
use std::thread;
use std::time::Duration;

use command::failure::{Failure, misuse};
use fleet::clickhouse::tls;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use ureq::Agent;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Response, Uri};

/// Longest time for one attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(20);

/// Attempts for a message, and the wait after the first failed one. Each further wait is twice as
/// long.
const ATTEMPTS_MAX: u32 = 5;
const WAIT_FIRST: Duration = Duration::from_secs(1);

/// Longest wait that a collector may ask for.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A response is longer than this only if the other side is no collector.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// How much of a collector's explanation is shown.
const SHOWN_CHARS_MAX: usize = 200;

const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// A collector.
pub(crate) struct Collector {
    agent: Agent,
    url: String,
    headers: HeaderMap,
}

/// Why an attempt failed.
struct Refused {
    what: String,
    /// Whether it may succeed later, and how long the collector wants to be left alone.
    again: Option<Option<Duration>>,
}

impl Collector {
    /// The collector at this URL, which is the beginning of the URL of each signal.
    pub(crate) fn new(url: &str) -> Result<Collector, Failure> {
        // The URL is not repeated: it may contain a password.
        let refused = |why: &dyn fmt::Display| {
            misuse(format!("--otlp: {why}; write a URL such as http://127.0.0.1:4318"))
        };
        let uri: Uri = url.parse().map_err(|error| refused(&error))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(refused(&"the URL does not begin with http:// or https://"));
        }
        if uri.query().is_some() || uri.authority().is_some_and(|of| of.as_str().contains('@')) {
            return Err(refused(&"a query or a password cannot be part of the URL"));
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ATTEMPT_MAX))
            // A redirection could lead the headers to another host.
            .max_redirects(0)
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")));
        if uri.scheme_str() == Some("https") {
            config = config.tls_config(tls(None).map_err(misuse)?);
        }
        Ok(Collector {
            agent: config.build().new_agent(),
            url: url.trim_end_matches('/').to_owned(),
            headers: headers(&std::env::var(HEADERS).unwrap_or_default()).map_err(|what| {
                misuse(format!("{HEADERS}: {what}; write name=value,other=value"))
            })?,
        })
    }

    /// Sends a message to the path of its signal. If the collector is overloaded, it is sent again,
    /// a few times. The error says what failed last.
    pub(crate) fn send(&self, path: &str, message: &[u8]) -> Result<(), String> {
        let url = format!("{}/{path}", self.url);
        let mut wait = WAIT_FIRST;
        for attempt in 1.. {
            let Err(refused) = self.attempt(&url, message) else { break };
            match refused.again {
                Some(wanted) if attempt < ATTEMPTS_MAX => {
                    thread::sleep(wanted.unwrap_or(wait).min(WAIT_MAX));
                    wait *= 2;
                }
                _ => return Err(format!("{url}: {}", refused.what)),
            }
        }
        Ok(())
    }

    fn attempt(&self, url: &str, message: &[u8]) -> Result<(), Refused> {
        let mut request = self.agent.post(url).header("Content-Type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut answer = request
            .send(message)
            .map_err(|error| Refused { what: error.to_string(), again: None })?;
        let status = answer.status().as_u16();
        let again = matches!(status, 429 | 502 | 503 | 504).then(|| asked_wait(&answer));
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        if !(200..300).contains(&status) {
            let text = String::from_utf8_lossy(body.as_deref().unwrap_or_default()).into_owned();
            let readable = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
            let text: String = text.chars().filter(readable).take(SHOWN_CHARS_MAX).collect();
            return Err(Refused { what: format!("it answered {status}: {text}"), again });
        }
        // The responses of all signals have the same fields.
        let body = body.unwrap_or_default();
        let part = ExportMetricsServiceResponse::decode(body.as_slice()).ok();
        match part.and_then(|answer| answer.partial_success) {
            Some(part) if part.rejected_data_points > 0 => Err(Refused {
                what: format!(
                    "it rejected {} data points: {:?}",
                    part.rejected_data_points, part.error_message
                ),
                again: None,
            }),
            _ => Ok(()),
        }
    }
}

/// The wait that the collector asks for, in seconds.
fn asked_wait<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get("Retry-After")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Headers in the form of the variable: `name=value,other=value`, values percent-encoded.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // Not shown: the value may be a password.
        let (name, value) = pair.split_once('=').ok_or("a header without =")?;
        let name = HeaderName::try_from(name.trim()).map_err(|error| error.to_string())?;
        let mut value = HeaderValue::from_bytes(&decoded(value.trim()))
            .map_err(|_| format!("the value of {name} is not valid"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// The bytes of a percent-encoded text.
fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = (byte == b'%').then(|| after.get(..2)).flatten();
        let hex = hex.and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(escaped) => {
                out.push(escaped);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_percent_decoded_and_not_shown() {
        let found = headers("Authorization=Basic%20YTpi, x-tenant = 7%zz,").unwrap();
        assert_eq!(found["authorization"], "Basic YTpi");
        assert_eq!(found["x-tenant"], "7%zz");
        let wrong = headers("a=ok,secret").unwrap_err() + &headers("a=%0asecret").unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }

    #[test]
    fn urls_that_cannot_be_a_collector_are_refused() {
        for url in ["127.0.0.1:4318", "ftp://h/", "http://a:b@h/", "http://h/?a=b", "http://"] {
            assert!(Collector::new(url).is_err(), "{url}");
        }
        assert_eq!(Collector::new("http://h:1/base/").unwrap().url, "http://h:1/base");
    }
}

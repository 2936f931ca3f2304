//! The data of one exchange after its end: everything that a format can write.

use std::net::SocketAddr;

use http1::{Name, RequestHead, Scheme, Target};

use outcome::{BrokenBy, Hierarchy, Outcome, Refusal};
use transport::tls::TlsFacts;

/// One exchange. Byte strings come from the client or the origin: every format escapes the bytes
/// that would break its lines.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Unix milliseconds at the end.
    pub end_wall_ms: u64,
    /// From the end of the request's head to the last byte that was sent.
    pub elapsed_us: u64,
    /// The address of the client.
    pub client: SocketAddr,
    /// The address of the listener, as configured.
    pub listener: SocketAddr,
    /// The scheme of targets in origin-form on that listener.
    pub scheme: Scheme,
    /// The user of the verified credentials; empty if none were required.
    pub user: &'a [u8],
    /// `None` if the bytes were no request.
    pub request: Option<RequestHead<'a>>,
    /// Bytes of the request: its head and the part of its body that was read.
    pub request_bytes: u64,
    /// How the cache took part.
    pub outcome: Outcome,
    /// The status that was sent; 0 if none.
    pub status: u16,
    /// The head as it was sent.
    pub response_head: &'a [u8],
    /// Its `Content-Type`; empty if it has none.
    pub content_type: &'a [u8],
    /// Bytes sent, with heads and body.
    pub bytes: u64,
    /// Bytes sent of the body.
    pub body_bytes: u64,
    /// The server of the response, if it is not only from the store.
    pub upstream: Option<SocketAddr>,
    /// From the end of the request's head to the head of that server's response.
    pub upstream_head_us: Option<u64>,
    /// The number of the request, if the log writes it: the one that it came with; empty if none
    /// was taken over,
    pub given_id: &'a [u8],
    /// or a new one.
    pub id: Option<u128>,
    /// The relation of that server to this proxy.
    pub hierarchy: Hierarchy,
    /// Whether the connection stays open.
    pub keep: bool,
    /// The name of the rule that refused the request, or broke its response off; empty if none did.
    pub rule: &'a str,
    /// Who broke the exchange off; `None` if the response is complete.
    pub broken: Option<BrokenBy>,
    /// The client's TLS; `None` without TLS.
    pub tls: Option<&'a dyn TlsFacts>,
}

impl<'a> Record<'a> {
    /// The record of a client that was refused before it sent a request. `response` is the head and
    /// the text that were sent. If nothing was sent, the log shows status 000.
    pub fn of_none(
        client: SocketAddr,
        (listener, scheme): (SocketAddr, Scheme),
        refusal: Refusal,
        received: u64,
        response: &'a [u8],
        now_ms: u64,
    ) -> Record<'a> {
        let head_end = memchr::memmem::find(response, b"\r\n\r\n").map_or(0, |at| at + 4);
        Record {
            end_wall_ms: now_ms,
            elapsed_us: 0,
            client,
            listener,
            scheme,
            user: b"",
            request: None,
            request_bytes: received,
            outcome: Outcome::of_refusal(refusal),
            status: if response.is_empty() { 0 } else { refusal.status() },
            response_head: &response[..head_end],
            content_type: if response.is_empty() { b"" } else { b"text/plain" },
            bytes: response.len() as u64,
            body_bytes: (response.len() - head_end) as u64,
            upstream: None,
            upstream_head_us: None,
            given_id: b"",
            id: None,
            hierarchy: Hierarchy::Direct,
            keep: false,
            rule: refusal.name(),
            broken: None,
            tls: None,
        }
    }

    /// The status of the upstream's response, taken from our own `Cache-Status`.
    pub(super) fn upstream_status(&self) -> Option<u16> {
        if self.status == 101 {
            return Some(101);
        }
        let ours = self.response_field(b"cache-status");
        let at = memchr::memmem::find(ours, b"fwd-status=")?;
        std::str::from_utf8(ours.get(at + 11..at + 14)?).ok()?.parse().ok()
    }

    /// The value of a cookie that the client sent (RFC 6265, 4.2).
    pub(super) fn cookie(&self, name: &[u8]) -> &'a [u8] {
        let Some(head) = self.request else { return b"" };
        let pairs = head.fields.values(b"cookie").flat_map(|value| value.split(|b| *b == b';'));
        let mut values = pairs.filter_map(|pair| {
            let at = memchr::memchr(b'=', pair)?;
            (pair[..at].trim_ascii() == name).then(|| pair[at + 1..].trim_ascii())
        });
        values.next().unwrap_or_default()
    }

    /// Unix milliseconds at the beginning.
    pub(super) fn start_wall_ms(&self) -> u64 {
        self.end_wall_ms.saturating_sub(self.elapsed_us / 1000)
    }

    /// A field of the request; empty if it is missing.
    pub(super) fn request_field(&self, name: Name) -> &'a [u8] {
        self.request.and_then(|head| head.fields.get(name)).unwrap_or_default()
    }

    /// The first field of the request with this name, known to the parser or not.
    pub(super) fn request_field_named(&self, name: &[u8]) -> &'a [u8] {
        let Some(head) = self.request else { return b"" };
        match Name::from_bytes(name) {
            Name::Other => head
                .fields
                .iter()
                .find(|(there, _)| there.eq_ignore_ascii_case(name))
                .map_or(b"", |(_, value)| value),
            known => head.fields.get(known).unwrap_or_default(),
        }
    }

    /// The last field of the response with this name: ours, if another cache has added one too.
    pub(super) fn response_field(&self, name: &[u8]) -> &'a [u8] {
        last_field(self.response_head, name)
    }

    /// Bytes of the response's head.
    pub(super) fn response_head_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.body_bytes)
    }

    /// The scheme of the requested URL.
    pub(super) fn scheme(&self) -> &'static str {
        self.scheme.name()
    }

    pub(super) fn method(&self) -> &'a [u8] {
        self.request.map_or(b"", |head| head.method_bytes)
    }

    /// The authority that belongs before a target in origin-form; empty if the target is absolute.
    pub(super) fn authority_before(&self) -> &'a [u8] {
        match self.request {
            None => b"",
            Some(head) => match head.target {
                Target::Absolute { .. } | Target::Authority { .. } => b"",
                Target::Origin { .. } | Target::Asterisk => head.host().unwrap_or_default(),
            },
        }
    }

    /// The requested authority, from the target or from `Host`.
    pub(super) fn authority(&self) -> &'a [u8] {
        match self.request.map(|head| head.target) {
            Some(Target::Absolute { authority, .. }) => authority,
            Some(Target::Authority { .. }) => self.target(),
            _ => self.authority_before(),
        }
    }

    /// The target as sent.
    pub(super) fn target(&self) -> &'a [u8] {
        self.request.map_or(b"", |head| head.target_bytes)
    }

    /// The target without scheme and authority.
    pub(super) fn path_and_query(&self) -> &'a [u8] {
        match self.request.map(|head| head.target) {
            Some(Target::Absolute { path_and_query, .. }) => path_and_query,
            _ => self.target(),
        }
    }

    /// The path, and the query with its question mark.
    pub(super) fn path_apart(&self) -> (&'a [u8], &'a [u8]) {
        let target = self.path_and_query();
        target.split_at(memchr::memchr(b'?', target).unwrap_or(target.len()))
    }

    /// `HTTP/2.0`, `HTTP/1.1` or `HTTP/1.0`; nothing without a request.
    pub(super) fn version(&self) -> &'static str {
        self.request.map_or("", |head| head.version.as_str())
    }
}

/// Squid's code of an outcome. A response that was broken off has its suffix.
pub(crate) fn squid_code(record: &Record<'_>) -> &'static [u8] {
    macro_rules! code {
        ($name:literal) => {
            match record.broken {
                None => $name.as_bytes(),
                Some(_) => concat!($name, "_ABORTED").as_bytes(),
            }
        };
    }
    match record.outcome {
        Outcome::Hit => code!("TCP_MEM_HIT"),
        Outcome::NotModified => code!("TCP_IMS_HIT"),
        Outcome::Miss | Outcome::Pass => code!("TCP_MISS"),
        Outcome::Collapsed => code!("TCP_CF_MISS"),
        Outcome::Revalidated => code!("TCP_REFRESH_UNMODIFIED"),
        Outcome::Replaced => code!("TCP_REFRESH_MODIFIED"),
        Outcome::Tunnel => code!("TCP_TUNNEL"),
        // The client left before the fetch was complete.
        Outcome::Refused if record.broken.is_some() => b"TCP_MISS_ABORTED",
        Outcome::Refused | Outcome::Own => code!("NONE_NONE"),
        Outcome::Denied => code!("TCP_DENIED"),
    }
}

/// An authority's host and its port; the colons of a bracketed IPv6 address are not the port's.
pub(super) fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    let from = memchr::memrchr(b']', authority).unwrap_or(0);
    match memchr::memrchr(b':', &authority[from..]) {
        Some(at) => (&authority[..from + at], &authority[from + at + 1..]),
        None => (authority, b""),
    }
}

/// The last field of a head with this name; empty if it is missing.
pub fn last_field<'h>(head: &'h [u8], name: &[u8]) -> &'h [u8] {
    let mut found: &[u8] = b"";
    let mut rest = head;
    while let Some(at) = memchr::memchr(b'\n', rest) {
        let line = &rest[..at];
        rest = &rest[at + 1..];
        if line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name) {
            found = line[name.len() + 1..].trim_ascii();
        }
    }
    found
}

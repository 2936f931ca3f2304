//! What a line says about a request besides its time, and the resulting class.
//!
//! A class is one small number, so counting by class is nearly free: outcome, method, decade of the
//! size, and whether TLS was used. A part that the format does not have is `-` in its name.

use std::fmt;

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The line does not say.
    #[default]
    Unknown,
    /// Served from a cache.
    Hit,
    /// Fetched from an origin.
    Miss,
    /// Served from a cache after the origin confirmed it.
    Revalidated,
    /// A status of 400 or above, or no response at all, and not from a cache.
    Error,
}

const OUTCOMES: [&str; 5] = ["-", "hit", "miss", "revalidated", "error"];

/// Methods that are distinguished; 0 is unknown, the last one is any other.
const METHODS: [&str; 11] =
    ["-", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH", "PURGE", "other"];
const METHOD_OTHER: u8 = 10;

/// Sizes by powers of ten, in bytes.
const SIZES: [&str; 11] = [
    "0", "1-9", "10-99", "100-999", "1k-10k", "10k-100k", "100k-1M", "1M-10M", "10M-100M", "100M+",
    "-",
];
const SIZE_UNKNOWN: u16 = 10;

const TLS: [&str; 3] = ["-", "plain", "tls"];

/// The class of a request. Its name has four words: outcome, method, size, TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u16);

#[cfg(any(test, feature = "survey"))]
impl Class {
    /// All indices are below this.
    pub(crate) const COUNT: usize = 1 << 13;

    /// Its index in a table of all classes.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The class with this index.
    pub(crate) fn of_index(index: usize) -> Class {
        debug_assert!(index < Class::COUNT);
        Class(index as u16)
    }
}

impl Class {
    /// Its outcome.
    pub fn outcome(self) -> &'static str {
        OUTCOMES[usize::from(self.0 & 7).min(4)]
    }

    /// Its method.
    pub fn method(self) -> &'static str {
        METHODS[usize::from(self.0 >> 3 & 15).min(10)]
    }

    /// Its decade of bytes sent.
    pub fn size(self) -> &'static str {
        SIZES[usize::from(self.0 >> 7 & 15).min(10)]
    }

    /// Whether it used TLS.
    pub fn tls(self) -> &'static str {
        TLS[usize::from(self.0 >> 11 & 3).min(2)]
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.outcome(), self.method(), self.size(), self.tls())
    }
}

/// What a line says about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The cache's own report, if there is one.
    pub cache: Outcome,
    /// The status; 0 if the client got none.
    pub status: Option<u16>,
    /// Index in the table of methods.
    pub method: u8,
    /// Bytes that were sent.
    pub bytes: Option<u64>,
    /// Whether it used TLS.
    pub tls: Option<bool>,
}

/// Which fact a value of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Status,
    Bytes,
    Method,
    /// The first line of a request, which has its method.
    RequestLine,
    /// The cache's own report.
    Outcome,
    Tls,
}

impl Facts {
    /// Its class.
    pub fn class(&self) -> Class {
        let failed = self.status.is_some_and(|status| status == 0 || status >= 400);
        let outcome = match self.cache {
            // An error page from the cache costs as much as a hit.
            Outcome::Hit | Outcome::Revalidated => self.cache,
            _ if failed => Outcome::Error,
            outcome => outcome,
        };
        let size = match self.bytes {
            None => SIZE_UNKNOWN,
            Some(0) => 0,
            Some(bytes) => (bytes.ilog10() as u16 + 1).min(9),
        };
        let tls = self.tls.map_or(0, |tls| 1 + u16::from(tls));
        Class(outcome as u16 | u16::from(self.method) << 3 | size << 7 | tls << 11)
    }

    /// Takes the value of a fact.
    pub(super) fn take(&mut self, fact: Fact, value: &[u8]) -> Option<()> {
        match fact {
            Fact::Status => self.take_status(value.trim_ascii())?,
            Fact::Bytes => self.take_bytes(value.trim_ascii())?,
            Fact::Method => self.take_method(value),
            Fact::RequestLine => self.take_request_line(value),
            Fact::Outcome => self.take_outcome(value),
            Fact::Tls => self.take_tls(value),
        }
        Some(())
    }

    /// Takes a status: three digits, or what servers write if none was sent.
    pub(crate) fn take_status(&mut self, bytes: &[u8]) -> Option<()> {
        self.status = Some(match bytes {
            b"-" | b"-1" | b"0" => 0,
            [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
            }
            _ => return None,
        });
        Some(())
    }

    /// Takes a number of bytes, or `-` for none.
    pub(crate) fn take_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes = Some(match bytes {
            b"-" => 0,
            bytes => super::digits(bytes)? as u64,
        });
        Some(())
    }

    /// Takes a method.
    pub(crate) fn take_method(&mut self, bytes: &[u8]) {
        self.method = match bytes {
            b"GET" => 1,
            b"HEAD" => 2,
            b"POST" => 3,
            b"PUT" => 4,
            b"DELETE" => 5,
            b"OPTIONS" => 6,
            b"CONNECT" => 7,
            b"PATCH" => 8,
            b"PURGE" => 9,
            [] | b"-" => 0,
            _ => METHOD_OTHER,
        };
    }

    /// Takes the first line of a request: its method is the word before the first space.
    pub(crate) fn take_request_line(&mut self, bytes: &[u8]) {
        // The longest distinguished method has seven letters.
        let head = &bytes[..bytes.len().min(8)];
        match head.iter().position(|&byte| byte == b' ') {
            Some(at) => self.take_method(&head[..at]),
            None if bytes == b"-" || bytes.is_empty() || bytes == b"<BADREQ>" => self.method = 0,
            None => self.method = METHOD_OTHER,
        }
    }

    /// Takes a cache's own report: Squid's `TCP_MEM_HIT`, nginx's `HIT`, Varnish's `hit`, or a
    /// `Cache-Status` of RFC 9211.
    pub(crate) fn take_outcome(&mut self, bytes: &[u8]) {
        let has =
            |word: &[u8]| bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
        self.cache = match bytes {
            [] | b"-" => Outcome::Unknown,
            // The most frequent values need no search.
            b"TCP_MEM_HIT" | b"TCP_HIT" | b"HIT" | b"hit" => Outcome::Hit,
            b"TCP_MISS" | b"MISS" | b"miss" => Outcome::Miss,
            _ if has(b"ABORTED") => Outcome::Error,
            // `RefreshHit` is CloudFront's.
            _ if has(b"REFRESH_UNMODIFIED") || has(b"REVALIDATED") || has(b"REFRESHHIT") => {
                Outcome::Revalidated
            }
            _ if has(b"HIT") || has(b"STALE") || has(b"UPDATING") => Outcome::Hit,
            _ if has(b"MISS")
                || has(b"REFRESH")
                || has(b"EXPIRED")
                || has(b"PASS")
                || has(b"fwd=") =>
            {
                Outcome::Miss
            }
            _ => Outcome::Unknown,
        };
    }

    /// Takes a scheme, a TLS version, or a switch.
    pub(crate) fn take_tls(&mut self, bytes: &[u8]) {
        self.tls = match bytes {
            b"https" | b"on" | b"true" | b"1" | b"wss" => Some(true),
            b"http" | b"" | b"-" | b"off" | b"false" | b"0" | b"ws" => Some(false),
            _ => Some(bytes.starts_with(b"TLS") || bytes.starts_with(b"SSL")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_of_four_words_and_its_index() {
        for index in 0..Class::COUNT {
            let class = Class::of_index(index);
            assert_eq!(class.index(), index);
            assert_eq!(class.to_string().split(' ').count(), 4);
        }
        assert_eq!(Facts::default().class().to_string(), "- - - -");
    }

    #[test]
    fn outcomes_of_all_caches_are_understood() {
        for (word, expected) in [
            ("TCP_MEM_HIT", Outcome::Hit),
            ("TCP_IMS_HIT", Outcome::Hit),
            ("TCP_MISS", Outcome::Miss),
            ("TCP_CF_MISS", Outcome::Miss),
            ("TCP_REFRESH_UNMODIFIED", Outcome::Revalidated),
            ("TCP_REFRESH_MODIFIED", Outcome::Miss),
            ("RefreshHit", Outcome::Revalidated),
            ("TCP_MISS_ABORTED", Outcome::Error),
            ("TCP_DENIED", Outcome::Unknown),
            ("NONE_NONE", Outcome::Unknown),
            ("HIT", Outcome::Hit),
            ("EXPIRED", Outcome::Miss),
            ("STALE", Outcome::Hit),
            ("BYPASS", Outcome::Miss),
            ("hit", Outcome::Hit),
            ("pass", Outcome::Miss),
            ("plimsoll; hit; ttl=3", Outcome::Hit),
            ("plimsoll; fwd=uri-miss; stored", Outcome::Miss),
            ("-", Outcome::Unknown),
            ("", Outcome::Unknown),
        ] {
            let mut facts = Facts::default();
            facts.take_outcome(word.as_bytes());
            assert_eq!(facts.cache, expected, "{word}");
        }
    }

    #[test]
    fn a_class_follows_from_the_facts() {
        let of = |cache: &str, status: &str, line: &str, bytes: &str, tls: Option<bool>| {
            let mut facts = Facts { tls, ..Facts::default() };
            facts.take_outcome(cache.as_bytes());
            facts.take_status(status.as_bytes()).unwrap();
            facts.take_request_line(line.as_bytes());
            facts.take_bytes(bytes.as_bytes()).unwrap();
            facts.class().to_string()
        };
        assert_eq!(of("HIT", "200", "GET / HTTP/1.1", "1300", Some(true)), "hit GET 1k-10k tls");
        assert_eq!(of("TCP_HIT", "404", "HEAD /", "0", None), "hit HEAD 0 -");
        assert_eq!(of("MISS", "502", "POST / HTTP/1.1", "9", Some(false)), "error POST 1-9 plain");
        assert_eq!(of("-", "000", "-", "-", None), "error - 0 -");
        assert_eq!(of("-", "200", "BREW / HTTP/1.1", "999999999999", None), "- other 100M+ -");
        assert!(Facts::default().take_status(b"2000").is_none());
        assert!(Facts::default().take_bytes(b"1k").is_none());
    }
}

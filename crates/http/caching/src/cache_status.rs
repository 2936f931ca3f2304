//! One member of the `Cache-Status` field (RFC 9211), written into a buffer.

/// Why a request went forward (RFC 9211, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Caching was not tried: configuration or the kind of request.
    Bypass,
    /// The method is not answered from the store.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Stored responses, but none selected by `Vary`.
    VaryMiss,
    /// Nothing usable is stored; the reason is not distinguished.
    Miss,
    /// The request's directives demanded it.
    Request,
    /// The stored response was stale.
    Stale,
    /// Only a part was stored.
    Partial,
}

impl Forward {
    /// The token on the wire.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

/// How a request was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Answered from the store.
    Hit,
    /// Forwarded.
    Forwarded {
        /// The reason.
        why: Forward,
        /// The status the next hop answered with, if it answered.
        status: Option<u16>,
        /// The response was stored.
        stored: bool,
        /// The request was collapsed onto another one.
        collapsed: bool,
    },
    /// Refused: neither the store nor the origin was asked.
    Neither,
}

/// One cache's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// The cache's name: sent as a token if possible, otherwise as a string.
    pub name: &'a str,
    /// What happened.
    pub handled: Handled,
    /// Remaining freshness in seconds; negative when stale.
    pub ttl_seconds: Option<i64>,
    /// The key, if it should be shown.
    pub key: Option<&'a str>,
    /// Further detail, such as the rule that decided.
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// Appends the member: the field's value only, without a comma before it.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_item(out, self.name);
        match self.handled {
            Handled::Neither => {}
            Handled::Hit => out.extend_from_slice(b"; hit"),
            Handled::Forwarded { why, status, stored, collapsed } => {
                out.extend_from_slice(b"; fwd=");
                out.extend_from_slice(why.token().as_bytes());
                if let Some(status) = status {
                    out.extend_from_slice(b"; fwd-status=");
                    write_integer(out, i64::from(status));
                }
                if stored {
                    out.extend_from_slice(b"; stored");
                }
                if collapsed {
                    out.extend_from_slice(b"; collapsed");
                }
            }
        }
        if let Some(ttl_seconds) = self.ttl_seconds {
            out.extend_from_slice(b"; ttl=");
            write_integer(out, ttl_seconds.clamp(-INTEGER_MAX, INTEGER_MAX));
        }
        if let Some(key) = self.key {
            out.extend_from_slice(b"; key=");
            write_string(out, key);
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            write_item(out, detail);
        }
    }
}

/// Structured integers have at most 15 digits (RFC 8941, 3.3.1).
const INTEGER_MAX: i64 = 999_999_999_999_999;

/// The bytes of a token of structured fields (RFC 8941, 3.3.4), after its first one.
static OF_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < table.len() {
        let byte = at as u8;
        table[at] = crate::fields::is_token_byte(byte) || byte == b':' || byte == b'/';
        at += 1;
    }
    table
};

/// A token if possible, otherwise a string.
fn write_item(out: &mut Vec<u8>, text: &str) {
    let begins = matches!(text.as_bytes(), [b'a'..=b'z' | b'A'..=b'Z' | b'*', ..]);
    if begins && text.bytes().all(|byte| OF_TOKEN[byte as usize]) {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_string(out, text);
    }
}

/// A structured string has only printable ASCII; other bytes are replaced by `?`.
fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            _ => out.push(b'?'),
        }
    }
    out.push(b'"');
}

fn write_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(status: &CacheStatus<'_>) -> String {
        let mut out = Vec::new();
        status.write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn rfc9211_2_members() {
        let base = CacheStatus {
            name: "plimsoll",
            handled: Handled::Hit,
            ttl_seconds: Some(376),
            key: None,
            detail: None,
        };
        assert_eq!(written(&base), "plimsoll; hit; ttl=376");
        let miss = Handled::Forwarded {
            why: Forward::UriMiss,
            status: Some(200),
            stored: true,
            collapsed: true,
        };
        assert_eq!(
            written(&CacheStatus { handled: miss, ttl_seconds: None, ..base }),
            "plimsoll; fwd=uri-miss; fwd-status=200; stored; collapsed"
        );
        let refused = CacheStatus {
            handled: Handled::Neither,
            ttl_seconds: None,
            detail: Some("loop"),
            ..base
        };
        assert_eq!(written(&refused), "plimsoll; detail=loop");
        let stale = CacheStatus {
            name: "a cache",
            ttl_seconds: Some(i64::MIN),
            key: Some("http://a/\"é"),
            detail: Some("MAX-STALE"),
            ..base
        };
        assert_eq!(
            written(&stale),
            "\"a cache\"; hit; ttl=-999999999999999; key=\"http://a/\\\"??\"; detail=MAX-STALE"
        );
    }
}

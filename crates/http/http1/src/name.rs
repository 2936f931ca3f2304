//! Field names known to this crate: one list generates the type, the spelling and the look-up.
//!
//! A name is found by its length, its first and its last letter in a table without collisions (the
//! build fails on one), then compared once, ignoring case (RFC 9110 section 5.1).

use crate::chars::{self, PLAIN};

macro_rules! names {
    ($($variant:ident = $spelling:literal,)*) => {
        /// A field name. [`Name::Other`] is every name that is not in the list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Name {
            $(
                #[doc = concat!("`", $spelling, "`")]
                $variant,
            )*
            /// Any other name.
            Other,
        }

        const SPELLINGS: [&str; Name::Other as usize] = [$($spelling,)*];
        const ALL: [Name; Name::Other as usize] = [$(Name::$variant,)*];
    };
}

names! {
    Host = "Host",
    ContentLength = "Content-Length",
    TransferEncoding = "Transfer-Encoding",
    Connection = "Connection",
    Expect = "Expect",
    Te = "TE",
    Trailer = "Trailer",
    Upgrade = "Upgrade",
    KeepAlive = "Keep-Alive",
    ProxyConnection = "Proxy-Connection",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthenticationInfo = "Proxy-Authentication-Info",
    ProxyAuthorization = "Proxy-Authorization",
    CacheControl = "Cache-Control",
    CdnCacheControl = "CDN-Cache-Control",
    SurrogateControl = "Surrogate-Control",
    Pragma = "Pragma",
    Date = "Date",
    Age = "Age",
    Expires = "Expires",
    LastModified = "Last-Modified",
    Etag = "ETag",
    Vary = "Vary",
    IfMatch = "If-Match",
    IfNoneMatch = "If-None-Match",
    IfModifiedSince = "If-Modified-Since",
    IfUnmodifiedSince = "If-Unmodified-Since",
    IfRange = "If-Range",
    Range = "Range",
    ContentRange = "Content-Range",
    AcceptRanges = "Accept-Ranges",
    Accept = "Accept",
    AcceptCharset = "Accept-Charset",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    UserAgent = "User-Agent",
    Referer = "Referer",
    Origin = "Origin",
    Authorization = "Authorization",
    WwwAuthenticate = "WWW-Authenticate",
    Cookie = "Cookie",
    SetCookie = "Set-Cookie",
    ContentType = "Content-Type",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLocation = "Content-Location",
    Location = "Location",
    Server = "Server",
    Via = "Via",
    Warning = "Warning",
    CacheStatus = "Cache-Status",
    XCache = "X-Cache",
    Forwarded = "Forwarded",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedProto = "X-Forwarded-Proto",
    MaxForwards = "Max-Forwards",
    Allow = "Allow",
    RetryAfter = "Retry-After",
    Link = "Link",
    Priority = "Priority",
    AltSvc = "Alt-Svc",
}

/// Whether a name has nothing but letters, digits and hyphens.
pub fn is_plain(name: &[u8]) -> bool {
    chars::all(name, PLAIN)
}

/// Whether a server may make the same variable of two names of fields. CGI makes `_` of `-` (RFC
/// 3875 section 4.1.18), and some servers make it of every byte that no name of a variable has,
/// such as `.`.
pub fn is_one_variable(one: &[u8], other: &[u8]) -> bool {
    let letter =
        |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' };
    one.len() == other.len() && one.iter().map(letter).eq(other.iter().map(letter))
}

/// A bit per name in a `u64`, one of them for `Other`.
const _: () = assert!((Name::Other as usize) < 64);

impl Name {
    /// The name with this spelling, ignoring case.
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Name {
        match Name::from_token(bytes) {
            known if known.as_str().as_bytes().eq_ignore_ascii_case(bytes) => known,
            _ => Name::Other,
        }
    }

    /// The same for bytes without control characters below 0x20, like those of a parsed name. A
    /// byte of a known name is a letter or a hyphen, and differs in bit 5 only from the same letter
    /// and from CR.
    #[inline]
    pub fn from_token(token: &[u8]) -> Name {
        let (Some(&first), Some(&last)) = (token.first(), token.last()) else {
            return Name::Other;
        };
        let candidate = SLOTS[slot(token.len(), first, last)];
        if candidate.is(token) { candidate } else { Name::Other }
    }

    /// The usual spelling; empty for [`Name::Other`].
    #[inline]
    pub const fn as_str(self) -> &'static str {
        match self {
            Name::Other => "",
            known => SPELLINGS[known as usize],
        }
    }

    /// All known names.
    pub const fn known() -> &'static [Name] {
        &ALL
    }

    /// Whether a token is this known name, ignoring case.
    #[inline(always)]
    fn is(self, token: &[u8]) -> bool {
        let Some(spelling) = SPELLINGS.get(self as usize) else { return false };
        let (spelling, both) = (spelling.as_bytes(), 2 * size_of::<u64>());
        spelling.len() == token.len()
            && ENDS[self as usize] == ends(token)
            && (token.len() <= both || spelling.eq_ignore_ascii_case(token))
    }

    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Bit 5 of each byte, in which the cases of a letter differ.
const FOLD: u64 = 0x2020_2020_2020_2020;

/// The ends of each known name: see [`ends`].
static ENDS: [(u64, u64); Name::Other as usize] = {
    let mut all = [(0, 0); Name::Other as usize];
    let mut at = 0;
    while at < all.len() {
        all[at] = ends(SPELLINGS[at].as_bytes());
        at += 1;
    }
    all
};

/// The first and the last eight bytes of a name, with bit 5 set in each. They overlap in a name of
/// less than sixteen bytes. In a name of less than eight bytes, they are the first and the last
/// four bytes. In a name of less than four bytes, the first of them has all bytes.
#[inline(always)]
const fn ends(name: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from_le_bytes(*first) | FOLD, u64::from_le_bytes(*last) | FOLD)
    } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first) as u64, u32::from_le_bytes(*last) as u64);
        (first | FOLD, last | FOLD)
    } else if let [first, .., last] = name {
        let middle = name[name.len() / 2];
        (u32::from_le_bytes([*first, middle, *last, 0]) as u64 | FOLD, FOLD)
    } else {
        (0, 0)
    }
}

const SLOT_COUNT: usize = 256;

static SLOTS: [Name; SLOT_COUNT] = slots();

/// Upper and lower case differ only in bit 5, so it is set in both letters.
#[inline]
const fn slot(len: usize, first: u8, last: u8) -> usize {
    let first = (first | 0x20) as usize;
    let last = (last | 0x20) as usize;
    (len.wrapping_mul(2) ^ first.wrapping_mul(81) ^ last.wrapping_mul(51)) % SLOT_COUNT
}

const fn slots() -> [Name; SLOT_COUNT] {
    let mut slots = [Name::Other; SLOT_COUNT];
    let mut i = 0;
    while i < ALL.len() {
        let spelling = SPELLINGS[i].as_bytes();
        let mut at = 0;
        while at < spelling.len() {
            let byte = spelling[at];
            assert!(byte.is_ascii_alphabetic() || byte == b'-', "see Name::from_token");
            at += 1;
        }
        let at = slot(spelling.len(), spelling[0], spelling[spelling.len() - 1]);
        assert!(matches!(slots[at], Name::Other), "two names in one slot: change the multipliers");
        slots[at] = ALL[i];
        i += 1;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for &name in Name::known() {
            let spelling = name.as_str();
            assert_eq!(Name::from_bytes(spelling.as_bytes()), name);
            assert_eq!(Name::from_bytes(spelling.to_uppercase().as_bytes()), name);
            assert_eq!(Name::from_bytes(spelling.to_lowercase().as_bytes()), name);
            let longer = format!("{spelling}x");
            assert_ne!(Name::from_bytes(longer.as_bytes()), name);
            assert_ne!(Name::from_bytes(&spelling.as_bytes()[1..]), name);
            for at in 0..spelling.len() {
                let mut other = spelling.as_bytes().to_vec();
                other[at] ^= 1;
                assert_ne!(Name::from_token(&other), name, "{}", other.escape_ascii());
            }
        }
    }

    /// A slow reading: a variable is the name with every other byte than a letter or a digit
    /// replaced.
    #[test]
    fn names_that_cgi_cannot_tell_apart_are_one_variable() {
        let variable = |name: &str| -> String {
            let upper = name.to_ascii_uppercase();
            upper.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
        };
        let names = ["X-A", "x_a", "X.A", "x~a", "X--A", "X-B", "XA", "X-A-", "X0A", ""];
        for (one, other) in names.iter().flat_map(|one| names.map(|other| (one, other))) {
            let is_one = variable(one) == variable(other);
            assert_eq!(is_one_variable(one.as_bytes(), other.as_bytes()), is_one, "{one} {other}");
        }
        for &name in Name::known() {
            assert!(is_plain(name.as_str().as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn other_names_are_other() {
        for name in ["", "x", "hosT!", "content_length", "Content-Lengtk", "X-Whatever"] {
            assert_eq!(Name::from_bytes(name.as_bytes()), Name::Other);
        }
        // '-' and CR differ in bit 5 only.
        assert_eq!(Name::from_bytes(b"Content\rLength"), Name::Other);
    }
}

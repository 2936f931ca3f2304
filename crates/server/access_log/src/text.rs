//! Values as text: escapes, numbers, addresses, times. Everything is appended; only the growth of
//! the buffer allocates.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use http1::write::decimal;

const HEX: &[u8; 16] = b"0123456789ABCDEF";
const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";

/// How bytes from a client are escaped so that they cannot break a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    /// Between spaces: `%XX` for spaces, quotes and unprintable bytes.
    Url,
    /// Within brackets: the same, but spaces stay and brackets are escaped.
    Bracket,
    /// Within quotes, as in Squid: a backslash before quotes and backslashes, `\r \n \t`, and `%XX`
    /// for other control characters.
    Quotes,
    /// As in Apache: a backslash before quotes and backslashes, `\xhh` for unprintable bytes.
    Apache,
    /// Unchanged except for line ends.
    Raw,
}

impl Quote {
    #[inline]
    fn is_plain(self, byte: u8) -> bool {
        match self {
            Quote::Url => is_unquoted(byte) && byte != b' ',
            Quote::Bracket => matches!(byte, b' ' | b'!' | b'#'..=b'Z' | b'^'..=b'~'),
            Quote::Quotes | Quote::Apache => is_unquoted(byte),
            Quote::Raw => !matches!(byte, b'\n' | b'\r'),
        }
    }

    fn escape(self, out: &mut Vec<u8>, byte: u8) {
        let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
        match (self, byte) {
            (Quote::Quotes | Quote::Apache, b'"' | b'\\') => out.extend([b'\\', byte]),
            (Quote::Quotes | Quote::Apache, b'\n') => out.extend_from_slice(b"\\n"),
            (Quote::Quotes | Quote::Apache, b'\r') => out.extend_from_slice(b"\\r"),
            (Quote::Quotes | Quote::Apache, b'\t') => out.extend_from_slice(b"\\t"),
            (Quote::Apache, _) => {
                out.extend([b'\\', b'x', HEX_LOWER[high], HEX_LOWER[low]]);
            }
            _ => out.extend([b'%', HEX[high], HEX[low]]),
        }
    }
}

/// Whether a byte is printable and needs no escape between quotes.
fn is_unquoted(byte: u8) -> bool {
    matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~')
}

/// Appends `text`, or `otherwise` if it is empty.
#[inline]
pub(super) fn quoted(out: &mut Vec<u8>, text: &[u8], quote: Quote, otherwise: &[u8]) {
    if text.is_empty() {
        out.extend_from_slice(otherwise);
    } else if text.iter().all(|byte| quote.is_plain(*byte)) {
        out.extend_from_slice(text);
    } else {
        for &byte in text {
            if quote.is_plain(byte) { out.push(byte) } else { quote.escape(out, byte) }
        }
    }
}

/// Appends the content of a JSON string, without the quotes. Bytes that are not UTF-8 become
/// `\u00XX`, so that they stay recognisable.
pub(super) fn json_chars(out: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|byte| is_unquoted(*byte)) {
        return out.extend_from_slice(text);
    }
    for chunk in text.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\\' => out.extend([b'\\', char as u8]),
                '\u{0}'..='\u{1f}' | '\u{7f}' => json_byte(out, char as u8),
                _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|byte| json_byte(out, *byte));
    }
}

fn json_byte(out: &mut Vec<u8>, byte: u8) {
    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
    out.extend([b'\\', b'u', b'0', b'0', HEX_LOWER[high], HEX_LOWER[low]]);
}

/// Appends an address without brackets.
pub(super) fn address(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => {
            for (i, part) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                decimal(out, u64::from(part));
            }
        }
        IpAddr::V6(v6) => {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{v6}");
        }
    }
}

/// Appends the last `count` digits of `n`, with leading zeros.
pub(super) fn digits(out: &mut Vec<u8>, n: u64, count: u32) {
    for place in (0..count).rev() {
        out.push(b'0' + (n / 10u64.pow(place) % 10) as u8);
    }
}

/// Appends an address with its port.
pub(super) fn socket_address(out: &mut Vec<u8>, at: SocketAddr) {
    out.extend(at.is_ipv6().then_some(b'['));
    address(out, at.ip());
    out.extend(at.is_ipv6().then_some(b']'));
    out.push(b':');
    decimal(out, u64::from(at.port()));
}

/// Appends `n` in decimal, padded with spaces to `width` (at least one space).
pub(super) fn padded(out: &mut Vec<u8>, n: u64, width: usize) {
    let digits = if n == 0 { 1 } else { n.ilog10() as usize + 1 };
    for _ in 0..width.saturating_sub(digits).max(1) {
        out.push(b' ');
    }
    decimal(out, n);
}

/// A time in UTC, by its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    /// `Sun, 17 May 2015 10:05:03 GMT`
    imf: [u8; 29],
    second: u64,
}

impl Civil {
    /// The time given in Unix milliseconds.
    pub(super) fn of(unix_ms: u64) -> Civil {
        let second = unix_ms / 1000;
        Civil { imf: caching::date::format(second * 1000), second }
    }

    /// The second since the epoch.
    pub(super) fn second(&self) -> u64 {
        self.second
    }

    fn part(&self, from: usize, bytes: usize) -> &[u8] {
        &self.imf[from..from + bytes]
    }

    fn number(&self, from: usize) -> u64 {
        u64::from(self.imf[from] - b'0') * 10 + u64::from(self.imf[from + 1] - b'0')
    }

    fn month(&self) -> u64 {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let name = self.part(8, 3);
        MONTHS.chunks(3).position(|month| month == name).map_or(0, |at| at as u64 + 1)
    }

    fn day_of_year(&self) -> u64 {
        const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let year = self.number(12) * 100 + self.number(14);
        let leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let month = self.month();
        BEFORE[month.saturating_sub(1) as usize] + self.number(5) + u64::from(leap && month > 2)
    }

    /// `17/May/2015:10:05:03 +0000`
    pub(super) fn clf(&self, out: &mut Vec<u8>) {
        self.strftime(out, CLF.as_bytes());
    }

    /// `2015-05-17T10:05:03.042Z`
    pub(super) fn iso_ms(&self, out: &mut Vec<u8>, ms: u64) {
        self.strftime(out, b"%FT%T.");
        digits(out, ms % 1000, 3);
        out.push(b'Z');
    }

    /// Appends one conversion of strftime(3), in UTC; false if the letter has none.
    fn conversion(&self, out: &mut Vec<u8>, letter: u8) -> bool {
        match letter {
            b'Y' => out.extend_from_slice(self.part(12, 4)),
            b'y' => out.extend_from_slice(self.part(14, 2)),
            b'm' => digits(out, self.month(), 2),
            b'b' | b'h' => out.extend_from_slice(self.part(8, 3)),
            b'd' => out.extend_from_slice(self.part(5, 2)),
            b'e' => {
                let day = self.part(5, 2);
                out.push(if day[0] == b'0' { b' ' } else { day[0] });
                out.push(day[1]);
            }
            b'j' => digits(out, self.day_of_year(), 3),
            b'a' => out.extend_from_slice(self.part(0, 3)),
            b'H' => out.extend_from_slice(self.part(17, 2)),
            b'M' => out.extend_from_slice(self.part(20, 2)),
            b'S' => out.extend_from_slice(self.part(23, 2)),
            b'T' => out.extend_from_slice(self.part(17, 8)),
            b'R' => out.extend_from_slice(self.part(17, 5)),
            b'F' => self.strftime(out, b"%Y-%m-%d"),
            b's' => decimal(out, self.second),
            b'z' => out.extend_from_slice(b"+0000"),
            b'Z' => out.extend_from_slice(b"UTC"),
            b'%' => out.push(b'%'),
            _ => return false,
        }
        true
    }

    /// Appends a format of strftime(3) that [`bad_conversion`] accepts.
    pub(super) fn strftime(&self, out: &mut Vec<u8>, format: &[u8]) {
        let mut bytes = format.iter();
        while let Some(&byte) = bytes.next() {
            match (byte, bytes.as_slice().first()) {
                (b'%', Some(&letter)) => {
                    bytes.next();
                    self.conversion(out, letter);
                }
                _ => out.push(byte),
            }
        }
    }
}

/// The date and time of the common log format.
pub(super) const CLF: &str = "%d/%b/%Y:%T %z";

/// The conversions that a time format may have.
pub(super) const CONVERSIONS: &str = "%a %b %d %e %F %h %H %j %m %M %R %s %S %T %y %Y %z %Z %%";

/// The position of the first unknown conversion in a time format.
pub(super) fn bad_conversion(format: &[u8]) -> Option<usize> {
    let is_known = |letter: &u8| Civil::of(0).conversion(&mut Vec::new(), *letter);
    let mut at = 0;
    while let Some(sign) = memchr::memchr(b'%', &format[at..]) {
        at += sign;
        if !format.get(at + 1).is_some_and(is_known) {
            return Some(at);
        }
        at += 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_quoting_escapes_its_own_marks_and_keeps_the_line_whole() {
        let text = b"a b\"c\\[d]\t\n\x01\xe9";
        for (quote, expected) in [
            (Quote::Url, "a%20b%22c%5C[d]%09%0A%01%E9"),
            (Quote::Bracket, "a b%22c%5C%5Bd%5D%09%0A%01%E9"),
            (Quote::Quotes, "a b\\\"c\\\\[d]\\t\\n%01%E9"),
            (Quote::Apache, "a b\\\"c\\\\[d]\\t\\n\\x01\\xe9"),
        ] {
            assert_eq!(written(|out| quoted(out, text, quote, b"-")), expected, "{quote:?}");
        }
        assert_eq!(written(|out| quoted(out, b"a\"\r\nb", Quote::Raw, b"-")), "a\"%0D%0Ab");
        assert_eq!(written(|out| quoted(out, b"", Quote::Url, b"-")), "-");
    }

    #[test]
    fn json_strings_are_utf_8_and_show_other_bytes() {
        let text = "a\"b\\é\u{1}\n".bytes().chain([0xff]).collect::<Vec<u8>>();
        let expected = "a\\\"b\\\\é\\u0001\\u000a\\u00ff";
        assert_eq!(written(|out| json_chars(out, &text)), expected);
    }

    #[test]
    fn times_by_each_conversion() {
        let civil = Civil::of(1_431_857_103_042);
        assert_eq!(written(|out| civil.clf(out)), "17/May/2015:10:05:03 +0000");
        assert_eq!(written(|out| civil.iso_ms(out, 1_431_857_103_042)), "2015-05-17T10:05:03.042Z");
        let all = b"%a %b %d %e %F %h %H %j %m %M %R %s %S %T %y %Y %z %Z %% x";
        assert_eq!(
            written(|out| civil.strftime(out, all)),
            "Sun May 17 17 2015-05-17 May 10 137 05 05 10:05 1431857103 03 10:05:03 15 2015 \
             +0000 UTC % x"
        );
        let first_of_march_2024 = Civil::of(1_709_251_200_000);
        assert_eq!(written(|out| first_of_march_2024.strftime(out, b"%j|%e")), "061| 1");
        assert_eq!(bad_conversion(b"%T %Q"), Some(3));
        assert_eq!(bad_conversion(b"%T %"), Some(3));
        assert_eq!(bad_conversion(CONVERSIONS.as_bytes()), None);
    }
}

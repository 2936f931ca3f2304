//! Format strings as nginx, Squid and Apache (and varnishncsa) write them.
//!
//! Each dialect is a table of the variables or codes that matter. Other nginx variables are text,
//! because modules and configurations may define new ones. Other codes of Squid and Apache must be
//! known, because only a known code has a known end.

use super::facts::Fact;
use super::pattern::{Builder, FieldKind, Pattern};
use super::stamp::Strftime;
use super::{FormatError, Instant, NS_PER_MS, NS_PER_S};

/// Longest accepted format string, characters.
const FORMAT_CHARS_MAX: usize = 4096;

/// The dialects, by the name before the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Nginx,
    Squid,
    Apache,
}

impl Dialect {
    pub(crate) const ALL: [Dialect; 3] = [Dialect::Nginx, Dialect::Squid, Dialect::Apache];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Dialect::Nginx => "nginx",
            Dialect::Squid => "squid",
            Dialect::Apache => "apache",
        }
    }

    /// Compiles a format string.
    pub(crate) fn compile(self, given: &str) -> Result<Pattern, FormatError> {
        let chars: Vec<char> = given.chars().collect();
        let mut reader = Reader { dialect: self.name(), chars: &chars, at: 0 };
        if chars.len() > FORMAT_CHARS_MAX {
            let what = format!("longer than {FORMAT_CHARS_MAX} characters");
            return Err(reader.error(0, "", &what, "give the format, not the file"));
        }
        let mut builder = Builder::new(self.name());
        match self {
            Dialect::Nginx => nginx(&mut reader, &mut builder)?,
            Dialect::Squid => squid(&mut reader, &mut builder)?,
            Dialect::Apache => apache(&mut reader, &mut builder)?,
        }
        builder.finish(
            given,
            match self {
                Dialect::Nginx => "add $msec and $request_time, in nginx's configuration too",
                Dialect::Squid => "add %ts.%03tu and %6tr, in Squid's configuration too",
                Dialect::Apache => "add %t and %D, in the server's configuration too",
            },
        )
    }
}

/// Reads through a string, and reports the position of errors.
struct Reader<'s> {
    dialect: &'static str,
    chars: &'s [char],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    fn skip(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn take_while(&mut self, kind: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&kind) {
            self.at += 1;
        }
        self.since(from)
    }

    fn since(&self, from: usize) -> String {
        self.chars[from..self.at].iter().collect()
    }

    /// Copies literal text up to and including the next sign of a code. Returns the sign's
    /// position.
    fn code(&mut self, sign: char, builder: &mut Builder) -> Option<usize> {
        while self.peek()? != sign {
            self.literal(builder);
        }
        self.at += 1;
        Some(self.at - 1)
    }

    /// The same for codes after a `%`. A doubled `%` is a literal one.
    fn percent_code(&mut self, builder: &mut Builder) -> Option<usize> {
        loop {
            let begun = self.code('%', builder)?;
            if !self.skip('%') {
                return Some(begun);
            }
            builder.byte(b'%');
        }
    }

    /// The content of braces, if there are any here.
    fn braces(&mut self, begun: usize) -> Result<Option<String>, FormatError> {
        if !self.skip('{') {
            return Ok(None);
        }
        let inside = self.take_while(|c| c != '}');
        if self.skip('}') {
            return Ok(Some(inside));
        }
        Err(self.error(begun, &self.since(begun), "the brace is not closed", "add a }"))
    }

    /// A literal character, with the escapes that all three configurations have.
    fn literal(&mut self, builder: &mut Builder) {
        let unescaped = match self.next() {
            Some('\\') => match self.peek() {
                Some('t') => Some('\t'),
                Some(c @ ('"' | '\'' | '\\')) => Some(c),
                _ => None,
            }
            .inspect(|_| self.at += 1)
            .unwrap_or('\\'),
            Some(c) => c,
            None => return,
        };
        let mut bytes = [0; 4];
        unescaped.encode_utf8(&mut bytes).bytes().for_each(|byte| builder.byte(byte));
    }

    fn error(&self, begun: usize, found: &str, what: &str, fix: &str) -> FormatError {
        FormatError {
            dialect: self.dialect,
            column: begun + 1,
            found: found.to_owned(),
            what: what.to_owned(),
            fix: fix.to_owned(),
        }
    }
}

/// nginx, `log_format NAME [escape=...] STRING`.
fn nginx(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<(), FormatError> {
    let text: String = reader.chars.iter().collect();
    for escape in ["escape=default ", "escape=json ", "escape=none "] {
        if text.starts_with(escape) {
            reader.at = escape.len();
            reader.take_while(|c| c == ' ');
        }
    }
    while let Some(begun) = reader.code('$', builder) {
        let name = match reader.braces(begun)? {
            Some(name) => name,
            None => reader.take_while(|c| c.is_ascii_alphanumeric() || c == '_'),
        };
        if name.is_empty() {
            let fix = "write a variable's name after the $";
            return Err(reader.error(begun, "$", "no variable name follows", fix));
        }
        let what = match name.as_str() {
            "msec" => FieldKind::Epoch(NS_PER_MS),
            "time_local" => FieldKind::Zoned { brackets: false },
            "time_iso8601" => FieldKind::Iso,
            "request_time" => FieldKind::Elapsed(1_000_000),
            "status" => FieldKind::Fact(Fact::Status),
            "bytes_sent" | "body_bytes_sent" => FieldKind::Fact(Fact::Bytes),
            "request" => FieldKind::Fact(Fact::RequestLine),
            "request_method" => FieldKind::Fact(Fact::Method),
            "upstream_cache_status" => FieldKind::Fact(Fact::Outcome),
            "scheme" | "https" | "ssl_protocol" => FieldKind::Fact(Fact::Tls),
            _ => FieldKind::Text,
        };
        // A line is written when the request ends, and its time is that moment.
        builder.field(what, Instant::End, begun + 1, &reader.since(begun));
    }
    Ok(())
}

/// The supported codes of Squid. [`squid_what`] and [`squid_time`] read those in the first two
/// rows; the others are text. The longest match wins.
#[rustfmt::skip]
const SQUID_CODES: &[&str] = &[
    "ts", "tu", "tS", "tr", "tl", "tg", ">Hs", "Hs", "<st", "rm", ">rm", "Ss", "rs", ">rs",
    "ssl::>negotiated_version", "x",
    ">A", ">a", ">eui", ">p", ">la", ">lp", ">qos", ">nfmark", ">handshake", "<A", "<a", "<p",
    "<la", "<lp", "<qos", "<nfmark", "la", "lp", "transport::>connection_id", "sn", "err_code",
    "err_detail", "note", "et", "ea", "un", "ul", "ue", "ui", "us", "credentials", ">h", ">ha",
    "<h", "mt", "ru", ">ru", "<ru", "rp", ">rp", "<rp", ">rd", "<rd", ">rP", "<rP", "rv", ">rv",
    "<rv", ">st", "st", ">sh", "<sh", "<sH", "<bs", "<sS", "<pt", "<tt", "dt", "busy_time",
    "master_xaction", "request_attempts", "Sh", "<Hs", "<rm", "<rs", "rG", ">rG", "<rG",
    "ssl::bump_mode", "ssl::>sni", "ssl::>cert_subject", "ssl::>cert_issuer", "ssl::<cert_subject",
    "ssl::<cert_issuer", "ssl::<cert_errors", "ssl::<cert", "ssl::<negotiated_version",
    "ssl::>negotiated_cipher", "ssl::<negotiated_cipher", "ssl::>received_hello_version",
    "ssl::<received_hello_version", "ssl::>received_supported_version",
    "ssl::<received_supported_version", "tls::<cert", "proxy_protocol::>h", "icap::tt",
    "icap::<last_h", "adapt::sum_trs", "adapt::all_trs", "adapt::<last_h", "icap::<A",
    "icap::<service_name", "icap::ru", "icap::rm", "icap::>st", "icap::<st", "icap::<bs",
    "icap::>h", "icap::<h", "icap::tr", "icap::tio", "icap::to", "icap::Hs",
];

fn squid_what(code: &str, argument: Option<&str>) -> (FieldKind, Instant) {
    let what = match code {
        "ts" => FieldKind::Epoch(NS_PER_S),
        "tu" => FieldKind::Fraction(NS_PER_MS),
        "tS" => return (FieldKind::Epoch(NS_PER_MS), Instant::Start),
        "tr" => FieldKind::Elapsed(1000),
        ">Hs" | "Hs" => FieldKind::Fact(Fact::Status),
        "<st" => FieldKind::Fact(Fact::Bytes),
        "rm" | ">rm" => FieldKind::Fact(Fact::Method),
        "Ss" => FieldKind::Fact(Fact::Outcome),
        "rs" | ">rs" | "ssl::>negotiated_version" => FieldKind::Fact(Fact::Tls),
        // Our own server's additions.
        "x" if matches!(argument, Some("outcome" | "cache-status")) => {
            FieldKind::Fact(Fact::Outcome)
        }
        _ => FieldKind::Text,
    };
    (what, Instant::End)
}

/// Squid, `logformat NAME STRING`: `% [encoding] [-] [[0]width] [{arg}] code [{arg}]`.
fn squid(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<(), FormatError> {
    while let Some(begun) = reader.percent_code(builder) {
        // The escaping is visible in the line itself.
        reader.take_while(|c| matches!(c, '"' | '[' | '#' | '\'' | '/'));
        let left = reader.skip('-');
        let zeros = reader.skip('0');
        let width = reader.take_while(|c| c.is_ascii_digit() || c == '.');
        let before = reader.braces(begun)?;
        let code = squid_code(reader, begun)?;
        let argument = match before {
            None => reader.braces(begun)?,
            before => before,
        };
        let text = reader.since(begun);
        let (what, instant) = match code {
            "tl" | "tg" => (squid_time(reader, begun, code, argument.as_deref())?, Instant::End),
            code => squid_what(code, argument.as_deref()),
        };
        let padded = width.bytes().any(|b| (b'1'..=b'9').contains(&b)) && !zeros;
        if padded && !left {
            builder.spaces();
        }
        builder.field(what, instant, begun + 1, &text);
        if padded && left {
            builder.padded();
        }
    }
    Ok(())
}

/// The longest code at this position.
fn squid_code(reader: &mut Reader<'_>, begun: usize) -> Result<&'static str, FormatError> {
    let from = reader.at;
    let rest: String = reader.chars[from..].iter().take(40).collect();
    let known = SQUID_CODES.iter().copied();
    // HTTP codes may be written with their protocol.
    let (skipped, rest) = match rest.strip_prefix("http::") {
        Some(rest) => (6, rest),
        None => (0, rest.as_str()),
    };
    let found = known.filter(|code| rest.starts_with(code)).max_by_key(|code| code.len());
    let Some(code) = found else {
        reader.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '<' | '>' | ':' | '_'));
        let text = reader.since(begun);
        let fix = "see logformat in squid.conf.documented; write a literal % as %%";
        return Err(reader.error(begun, &text, "Squid has no such code", fix));
    };
    reader.at += skipped + code.len();
    Ok(code)
}

fn squid_time(
    reader: &Reader<'_>,
    begun: usize,
    code: &str,
    form: Option<&str>,
) -> Result<FieldKind, FormatError> {
    let Some(form) = form else { return Ok(FieldKind::Zoned { brackets: false }) };
    strftime(form, code == "tg")
        .map_err(|what| reader.error(begun, &reader.since(begun), &what, "use %ts.%03tu"))
}

fn strftime(form: &str, utc: bool) -> Result<FieldKind, String> {
    if form == "%d/%b/%Y:%H:%M:%S %z" || form == "%d/%b/%Y:%T %z" {
        return Ok(FieldKind::Zoned { brackets: false });
    }
    Strftime::compile(form, utc).map(FieldKind::Strftime)
}

/// Apache, `LogFormat STRING`, and varnishncsa's `-F`: `% [!codes] [<>] [{arg}] letter`.
fn apache(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<(), FormatError> {
    while let Some(begun) = reader.percent_code(builder) {
        // The statuses for which it is written (others get a dash), and which of several requests
        // it is about.
        reader.take_while(|c| matches!(c, '!' | ',' | '<' | '>') || c.is_ascii_digit());
        let argument = reader.braces(begun)?;
        reader.take_while(|c| matches!(c, '<' | '>' | '^'));
        let letter = reader.next();
        let doubled = letter == Some('t') && reader.chars[..reader.at].ends_with(&['^', 't']);
        if doubled {
            // %{NAME}^ti and %{NAME}^to: trailer fields.
            reader.next();
        }
        let text = reader.since(begun);
        let (what, instant) = if doubled {
            (FieldKind::Text, Instant::Start)
        } else {
            apache_what(letter, argument.as_deref())
                .map_err(|(what, fix)| reader.error(begun, &text, &what, fix))?
        };
        builder.field(what, instant, begun + 1, &text);
    }
    Ok(())
}

type ErrorAndFix = (String, &'static str);

fn apache_what(
    letter: Option<char>,
    argument: Option<&str>,
) -> Result<(FieldKind, Instant), ErrorAndFix> {
    let what = match letter {
        Some('t') => return apache_time(argument.unwrap_or_default()),
        Some('D') => FieldKind::Elapsed(1),
        Some('T') => FieldKind::Elapsed(match argument {
            None | Some("" | "s") => 1_000_000,
            Some("ms") => 1000,
            Some("us") => 1,
            Some(_) => {
                return Err(("no such unit".to_owned(), "use s, ms or us"));
            }
        }),
        Some('s') => FieldKind::Fact(Fact::Status),
        Some('b' | 'B' | 'O') => FieldKind::Fact(Fact::Bytes),
        Some('r') => FieldKind::Fact(Fact::RequestLine),
        Some('m') => FieldKind::Fact(Fact::Method),
        Some('x') => match argument {
            Some("Varnish:hitmiss" | "Varnish:handling" | "outcome" | "cache-status") => {
                FieldKind::Fact(Fact::Outcome)
            }
            Some("SSL_PROTOCOL" | "HTTPS") => FieldKind::Fact(Fact::Tls),
            _ => FieldKind::Text,
        },
        // Response fields in which caches report themselves: X-Cache: HIT.
        Some('o') if argument.is_some_and(is_cache_field) => FieldKind::Fact(Fact::Outcome),
        Some(
            'a' | 'A' | 'C' | 'e' | 'f' | 'F' | 'h' | 'H' | 'i' | 'I' | 'k' | 'l' | 'L' | 'n' | 'o'
            | 'p' | 'P' | 'q' | 'R' | 'S' | 'u' | 'U' | 'v' | 'V' | 'X' | 'c',
        ) => FieldKind::Text,
        Some(_) => {
            let fix = "see LogFormat of Apache, or varnishncsa -F; write a literal % as %%";
            return Err(("Apache and varnishncsa have no such code".to_owned(), fix));
        }
        None => return Err(("no code follows".to_owned(), "write a literal % as %%")),
    };
    Ok((what, Instant::Start))
}

fn is_cache_field(name: &str) -> bool {
    ["x-cache", "cache-status", "x-cache-status"].iter().any(|n| name.eq_ignore_ascii_case(n))
}

fn apache_time(form: &str) -> Result<(FieldKind, Instant), ErrorAndFix> {
    let (instant, form) = match form.split_once(':') {
        Some(("begin", form)) => (Instant::Start, form),
        Some(("end", form)) => (Instant::End, form),
        _ => (Instant::Start, form),
    };
    let what = match form {
        "" => FieldKind::Zoned { brackets: true },
        "sec" => FieldKind::Epoch(NS_PER_S),
        "msec" => FieldKind::EpochOf(NS_PER_MS),
        "usec" => FieldKind::EpochOf(1000),
        "msec_frac" => FieldKind::Fraction(NS_PER_MS),
        "usec_frac" => FieldKind::Fraction(1000),
        // Apache writes a custom form without brackets.
        form => strftime(form, false).map_err(|what| (what, "use %t, or %{usec}t"))?,
    };
    Ok((what, instant))
}

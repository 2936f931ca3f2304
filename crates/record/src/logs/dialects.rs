//! Format strings as nginx, Squid and Apache (and varnishncsa) write them.
//!
//! Each dialect is a table of what counts. Other variables of nginx are text, as anybody may make
//! new ones; other codes of Squid and Apache must be known to exist, because only a known code
//! tells where it ends.

use super::pattern::{Builder, MS, Pattern, What};
use super::strftime::Strftime;
use super::{FormatError, Instant, NS_PER_S};

/// Longest format string that is taken, in characters.
const FORMAT_CHARS_MAX: usize = 4096;

/// The dialects, by the name that stands before the string.
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
            let what = format!("it is longer than {FORMAT_CHARS_MAX} characters");
            return Err(reader.wrong(0, "", &what, "give the format, not the file"));
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
                Dialect::Nginx => "add $msec and $request_time to it, in nginx's configuration too",
                Dialect::Squid => "add %ts.%03tu and %6tr to it, in Squid's configuration too",
                Dialect::Apache => "add %t and %D to it, in the server's configuration too",
            },
        )
    }
}

/// Goes through a string, and says where in it something is wrong.
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

    fn while_(&mut self, kind: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&kind) {
            self.at += 1;
        }
        self.since(from)
    }

    fn since(&self, from: usize) -> String {
        self.chars[from..self.at].iter().collect()
    }

    /// Passes over what stands for itself, up to behind the next sign of a code; where that is.
    fn code(&mut self, sign: char, builder: &mut Builder) -> Option<usize> {
        while self.peek()? != sign {
            self.literal(builder);
        }
        self.at += 1;
        Some(self.at - 1)
    }

    /// The same for codes after a `%`, which stands for itself when it is doubled.
    fn percent_code(&mut self, builder: &mut Builder) -> Option<usize> {
        loop {
            let begun = self.code('%', builder)?;
            if !self.skip('%') {
                return Some(begun);
            }
            builder.byte(b'%');
        }
    }

    /// What stands in braces here, if anything does.
    fn braces(&mut self, begun: usize) -> Result<Option<String>, FormatError> {
        if !self.skip('{') {
            return Ok(None);
        }
        let inside = self.while_(|c| c != '}');
        if self.skip('}') {
            return Ok(Some(inside));
        }
        Err(self.wrong(begun, &self.since(begun), "its brace is not closed", "add a }"))
    }

    /// A literal character, with the escapes that all three servers' configurations have.
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

    fn wrong(&self, begun: usize, found: &str, what: &str, mend: &str) -> FormatError {
        FormatError {
            dialect: self.dialect,
            column: begun + 1,
            found: found.to_owned(),
            what: what.to_owned(),
            mend: mend.to_owned(),
        }
    }
}

/// nginx, `log_format NAME [escape=...] STRING`.
fn nginx(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<(), FormatError> {
    let text: String = reader.chars.iter().collect();
    for escape in ["escape=default ", "escape=json ", "escape=none "] {
        if text.starts_with(escape) {
            reader.at = escape.len();
            reader.while_(|c| c == ' ');
        }
    }
    while let Some(begun) = reader.code('$', builder) {
        let name = match reader.braces(begun)? {
            Some(name) => name,
            None => reader.while_(|c| c.is_ascii_alphanumeric() || c == '_'),
        };
        if name.is_empty() {
            let mend = "write a variable's name behind the $";
            return Err(reader.wrong(begun, "$", "no variable's name follows it", mend));
        }
        let what = match name.as_str() {
            "msec" => What::Epoch(MS),
            "time_local" => What::Zoned { brackets: false },
            "time_iso8601" => What::Iso,
            "request_time" => What::Elapsed(1_000_000),
            "status" => What::Status,
            "bytes_sent" | "body_bytes_sent" => What::Bytes,
            "request" => What::RequestLine,
            "request_method" => What::Method,
            "upstream_cache_status" => What::Outcome,
            "scheme" | "https" | "ssl_protocol" => What::Tls,
            _ => What::Text,
        };
        // A line is written when the request has ended, and its time is that moment.
        builder.field(what, Instant::End, begun + 1, &reader.since(begun));
    }
    Ok(())
}

/// Codes of Squid that hold nothing that counts. The longest that fits is the one that is meant.
#[rustfmt::skip]
const SQUID_TEXT: &[&str] = &[
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
    "icap::>h", "icap::<h", "icap::tr", "icap::tio", "icap::to", "icap::Hs", "x",
];

/// Codes that [`squid_what`] and [`squid_time`] read.
const SQUID_COUNTED: &[&str] = &[
    "ts",
    "tu",
    "tS",
    "tr",
    "tl",
    "tg",
    ">Hs",
    "Hs",
    "<st",
    "rm",
    ">rm",
    "Ss",
    "rs",
    ">rs",
    "ssl::>negotiated_version",
];

fn squid_what(code: &str, argument: Option<&str>) -> (What, Instant) {
    let what = match code {
        "ts" => What::Epoch(NS_PER_S),
        "tu" => What::Fraction(MS),
        "tS" => return (What::Epoch(MS), Instant::Start),
        "tr" => What::Elapsed(1000),
        ">Hs" | "Hs" => What::Status,
        "<st" => What::Bytes,
        "rm" | ">rm" => What::Method,
        "Ss" => What::Outcome,
        "rs" | ">rs" | "ssl::>negotiated_version" => What::Tls,
        // What our own server adds.
        "x" if matches!(argument, Some("outcome" | "cache-status")) => What::Outcome,
        _ => What::Text,
    };
    (what, Instant::End)
}

/// Squid, `logformat NAME STRING`: `% [encoding] [-] [[0]width] [{arg}] code [{arg}]`.
fn squid(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<(), FormatError> {
    while let Some(begun) = reader.percent_code(builder) {
        // How it is escaped shows in the line by itself.
        reader.while_(|c| matches!(c, '"' | '[' | '#' | '\'' | '/'));
        let left = reader.skip('-');
        let zeros = reader.skip('0');
        let width = reader.while_(|c| c.is_ascii_digit() || c == '.');
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

/// The longest code that stands here.
fn squid_code(reader: &mut Reader<'_>, begun: usize) -> Result<&'static str, FormatError> {
    let from = reader.at;
    let rest: String = reader.chars[from..].iter().take(40).collect();
    let known = SQUID_COUNTED.iter().chain(SQUID_TEXT).copied();
    // Codes of HTTP may be written with their protocol.
    let (skipped, rest) = match rest.strip_prefix("http::") {
        Some(rest) => (6, rest),
        None => (0, rest.as_str()),
    };
    let found = known.filter(|code| rest.starts_with(code)).max_by_key(|code| code.len());
    let Some(code) = found else {
        reader.while_(|c| c.is_ascii_alphanumeric() || matches!(c, '<' | '>' | ':' | '_'));
        let text = reader.since(begun);
        let mend = "see logformat in squid.conf.documented; a % of its own is written %%";
        return Err(reader.wrong(begun, &text, "Squid has no such code", mend));
    };
    reader.at += skipped + code.len();
    Ok(code)
}

fn squid_time(
    reader: &Reader<'_>,
    begun: usize,
    code: &str,
    form: Option<&str>,
) -> Result<What, FormatError> {
    let Some(form) = form else { return Ok(What::Zoned { brackets: false }) };
    strftime(form, code == "tg")
        .map_err(|what| reader.wrong(begun, &reader.since(begun), &what, "use %ts.%03tu"))
}

fn strftime(form: &str, utc: bool) -> Result<What, String> {
    if form == "%d/%b/%Y:%H:%M:%S %z" || form == "%d/%b/%Y:%T %z" {
        return Ok(What::Zoned { brackets: false });
    }
    Strftime::compile(form, utc).map(What::Strftime)
}

/// Apache, `LogFormat STRING`, and varnishncsa's `-F`: `% [!codes] [<>] [{arg}] letter`.
fn apache(reader: &mut Reader<'_>, builder: &mut Builder) -> Result<(), FormatError> {
    while let Some(begun) = reader.percent_code(builder) {
        // On which statuses it is written (a dash on others), and of which of several requests.
        reader.while_(|c| matches!(c, '!' | ',' | '<' | '>') || c.is_ascii_digit());
        let argument = reader.braces(begun)?;
        reader.while_(|c| matches!(c, '<' | '>' | '^'));
        let letter = reader.next();
        let doubled = letter == Some('t') && reader.chars[..reader.at].ends_with(&['^', 't']);
        if doubled {
            // %{NAME}^ti and %{NAME}^to: fields of trailers.
            reader.next();
        }
        let text = reader.since(begun);
        let (what, instant) = if doubled {
            (What::Text, Instant::Start)
        } else {
            apache_what(letter, argument.as_deref())
                .map_err(|(what, mend)| reader.wrong(begun, &text, &what, mend))?
        };
        builder.field(what, instant, begun + 1, &text);
    }
    Ok(())
}

type Wrong = (String, &'static str);

fn apache_what(letter: Option<char>, argument: Option<&str>) -> Result<(What, Instant), Wrong> {
    let what = match letter {
        Some('t') => return apache_time(argument.unwrap_or_default()),
        Some('D') => What::Elapsed(1),
        Some('T') => What::Elapsed(match argument {
            None | Some("" | "s") => 1_000_000,
            Some("ms") => 1000,
            Some("us") => 1,
            Some(_) => {
                return Err(("it has no such unit".to_owned(), "there are s, ms and us"));
            }
        }),
        Some('s') => What::Status,
        Some('b' | 'B' | 'O') => What::Bytes,
        Some('r') => What::RequestLine,
        Some('m') => What::Method,
        Some('x') => match argument {
            Some("Varnish:hitmiss" | "Varnish:handling" | "outcome" | "cache-status") => {
                What::Outcome
            }
            Some("SSL_PROTOCOL" | "HTTPS") => What::Tls,
            _ => What::Text,
        },
        // What caches write into their answers: X-Cache: HIT.
        Some('o') if argument.is_some_and(is_cache_field) => What::Outcome,
        Some(
            'a' | 'A' | 'C' | 'e' | 'f' | 'F' | 'h' | 'H' | 'i' | 'I' | 'k' | 'l' | 'L' | 'n' | 'o'
            | 'p' | 'P' | 'q' | 'R' | 'S' | 'u' | 'U' | 'v' | 'V' | 'X' | 'c',
        ) => What::Text,
        Some(_) => {
            let mend = "see LogFormat of Apache, or varnishncsa -F; a % of its own is written %%";
            return Err(("Apache and varnishncsa have no such code".to_owned(), mend));
        }
        None => return Err(("no code follows it".to_owned(), "a % of its own is written %%")),
    };
    Ok((what, Instant::Start))
}

fn is_cache_field(name: &str) -> bool {
    ["x-cache", "cache-status", "x-cache-status"].iter().any(|n| name.eq_ignore_ascii_case(n))
}

fn apache_time(form: &str) -> Result<(What, Instant), Wrong> {
    let (instant, form) = match form.split_once(':') {
        Some(("begin", form)) => (Instant::Start, form),
        Some(("end", form)) => (Instant::End, form),
        _ => (Instant::Start, form),
    };
    let what = match form {
        "" => What::Zoned { brackets: true },
        "sec" => What::Epoch(NS_PER_S),
        "msec" => What::EpochOf(MS),
        "usec" => What::EpochOf(1000),
        "msec_frac" => What::Fraction(MS),
        "usec_frac" => What::Fraction(1000),
        // Apache writes a form of the operator's without brackets.
        form => strftime(form, false).map_err(|what| (what, "use %t, or %{usec}t"))?,
    };
    Ok((what, instant))
}

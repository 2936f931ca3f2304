//! Lines that cannot be read as requests: what they are, and what to do.
//!
//! The first line of a log that no format understands is compared with this table. It is a table of
//! words, not of parsers: a wrong name costs a sentence, not a figure.

use super::{Stamps, haproxy, prefix, stamp};

/// What a line looks like, and what to type or to configure.
type Advice = (&'static str, &'static str);

/// The advice if nothing is recognised.
const UNKNOWN: Advice = (
    "no known format",
    "give the format string of the server's configuration: --format 'nginx:...', 'apache:...' or \
     'squid:...'; for JSON, the keys: --format json:time=KEY,status=KEY; for columns, their names: \
     --format 'w3c:date time cs-method sc-status'",
);

/// What this line is, if it is not a request, in one sentence.
pub fn advice(line: &[u8]) -> String {
    let (name, fix) = of_layers(line);
    match name {
        "" => fix.to_owned(),
        name => format!("this is {name}: {fix}"),
    }
}

fn of_layers(line: &[u8]) -> Advice {
    let mut stamps = Stamps::default();
    let mut line = std::borrow::Cow::Borrowed(line);
    for _ in 0..prefix::LAYERS_MAX {
        if let Some(advice) = recognise(&line, &mut stamps) {
            return advice;
        }
        match prefix::unwrap(&line, &mut stamps) {
            Some(unwrapped) => line = unwrapped.line.into_owned().into(),
            None => break,
        }
    }
    UNKNOWN
}

/// The table, the surer rows first.
fn recognise(line: &[u8], stamps: &mut Stamps) -> Option<Advice> {
    let has = |text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
    let begins = |text: &str| line.starts_with(text.as_bytes());
    let rows: [(bool, Advice); 22] = [
        (
            line.starts_with(b"\xff\xfe") || line.starts_with(b"\xfe\xff") || utf16(line),
            ("text in UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 FILE | plimsoll logs -"),
        ),
        (
            line.get(257..262) == Some(b"ustar"),
            ("a tar archive", "read the files in it: tar -xOf FILE | plimsoll logs -"),
        ),
        (
            line.iter().take(512).filter(|&&b| b == 0 || b > 0x7f && b < 0xc0).count() > 64,
            ("no text", "plimsoll logs reads text, also in gz, bz2, xz, zst, lz4 and zip"),
        ),
        (
            haproxy::is_tcp(line, stamps),
            (
                "a connection of HAProxy (option tcplog)",
                "for requests, set mode http and option httplog in the frontend",
            ),
        ),
        (
            begins("tls 1.0 ") || begins("tls 2.0 "),
            (
                "a connection of a Network Load Balancer",
                "it logs no requests; take the log of the servers behind it",
            ),
        ),
        (
            matches!(line.trim_ascii(), b"{" | b"["),
            (
                "JSON over several lines",
                "put each object in one line: jq -c . FILE | plimsoll logs -",
            ),
        ),
        (
            begins("[{"),
            ("a JSON array", "put each object in one line: jq -c '.[]' FILE | plimsoll logs -"),
        ),
        (
            stamp::has_impossible_date(line),
            (
                "a line whose date does not exist",
                "the clock of the server that wrote it was wrong, or the line is not its own",
            ),
        ),
        (
            begins("{"),
            (
                "JSON without a known key for the status or the method, or for the time",
                "name the keys: --format json:time=KEY,status=KEY,method=KEY,elapsed_ms=KEY",
            ),
        ),
        (
            (begins("INFO:") || has(" - \"")) && has(" HTTP/1.") && !has("["),
            (
                "uvicorn's default, which has no time",
                "start it with --log-config and \"%(asctime)s\" in the access format, or log in \
                 the proxy before it",
            ),
        ),
        (
            has(" ms - ") && METHODS.iter().any(|method| has(method)),
            (
                "a format of morgan without a time (dev, tiny or short)",
                "use morgan('combined'), or add :date[iso] and :response-time",
            ),
        ),
        (
            has("[error]") || has("[warn]") || has("[notice]") || has("[crit]") || has("[emerg]"),
            ("an error log of nginx", "take the file that access_log names"),
        ),
        (
            has(":error] [pid") || has(":notice] [pid") || has(":warn] [pid"),
            ("an error log of Apache", "take the file that CustomLog names"),
        ),
        (
            has("]: GET /") || has("]: POST /") || has("Accepted") && has("127.0.0.1"),
            (
                "PHP's development server",
                "its lines have no zone and no size; log in the proxy before it",
            ),
        ),
        (
            line.len() > 20 && line[4] == b'-' && line[10] == b' ' && has(" W3SVC")
                || w3c_like(line),
            (
                "a W3C log (IIS, CloudFront) without its #Fields line",
                "give the names of its columns: --format 'w3c:date time cs-method sc-status ...'",
            ),
        ),
        (
            has(" | ") && METHODS.iter().any(|method| has(method)),
            (
                "a console format of a framework (Fiber, Gin) whose time has no date",
                "set a format with the date, or log JSON",
            ),
        ),
        (begins("#"), ("a comment", "no line of a request was found")),
        (
            has("controller=") && has("action=") && has("status="),
            (
                "lograge without a time",
                "set config.lograge.formatter = Lograge::Formatters::Logstash.new, or add the time \
                 with config.lograge.custom_options",
            ),
        ),
        (
            has(" => generated ") && has(" msecs "),
            (
                "uWSGI's default",
                "set log-format = %(addr) - - [%(ltime)] \"%(method) %(uri) %(proto)\" %(status) \
                 %(rsize), or log in the proxy before it",
            ),
        ),
        (
            has("Started GET ") || has("Completed 2") || has("Started POST "),
            ("Rails' log of several lines a request", "use the gem lograge, in JSON"),
        ),
        (begins("==> "), ("the output of tail on several files", "give the files themselves")),
        (
            METHODS.iter().any(|method| has(&format!("\"{method}"))) && has("HTTP/"),
            (
                "a line like those of an access log, with its fields in an order of its server's",
                "give the format string of the server's configuration: --format 'nginx:...', \
                 'apache:...' or 'squid:...'",
            ),
        ),
    ];
    rows.into_iter().find(|(matches, _)| *matches).map(|(_, advice)| advice)
}

const METHODS: [&str; 5] = ["GET ", "POST ", "HEAD ", "PUT ", "DELETE "];

/// Every second byte of the beginning is zero.
fn utf16(line: &[u8]) -> bool {
    let head = &line[..line.len().min(64)];
    head.len() > 8 && head.iter().filter(|&&byte| byte == 0).count() * 5 > head.len() * 2
}

/// `2026-11-28<tab>10:00:00<tab>...` or with spaces, and no quote: columns.
fn w3c_like(line: &[u8]) -> bool {
    line.len() > 20
        && line[4] == b'-'
        && line[7] == b'-'
        && line[13] == b':'
        && matches!(line[10], b' ' | b'\t')
        && line[10] == line[19]
        && !line.contains(&b'"')
        && line.split(|byte| matches!(byte, b' ' | b'\t')).count() > 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_requests_have_a_name_and_an_advice() {
        for (line, name, fix) in [
            ("INFO:     127.0.0.1:5 - \"GET / HTTP/1.1\" 200 OK", "uvicorn", "asctime"),
            ("web-1  | INFO:     127.0.0.1:5 - \"GET / HTTP/1.1\" 200 OK", "uvicorn", "asctime"),
            ("GET /a 200 1.234 ms - 5", "morgan", "combined"),
            (
                "method=GET path=/a controller=A action=b status=200 duration=5.1",
                "lograge",
                "Logst",
            ),
            (
                "[pid: 1|app: 0|req: 1/1] 127.0.0.1 () {4 vars in 6 bytes} [Sat Nov 28 10:00:00 \
                 2026] GET / => generated 5 bytes in 3 msecs (HTTP/1.1 200) 2 headers in 79 bytes",
                "uWSGI",
                "log-format",
            ),
            ("[Sat Nov 28 10:00:00 2026] 127.0.0.1:5 [200]: GET /a", "PHP's development", "proxy"),
            ("Started GET \"/\" for 127.0.0.1 at 2026-11-28 10:00:00 +0000", "Rails", "lograge"),
            (
                "2026/11/28 10:00:00 [error] 17#17: *1 open() failed",
                "error log of nginx",
                "access_log",
            ),
            ("{", "several lines", "jq -c"),
            ("[{\"a\":1}]", "array", "jq -c"),
            ("{\"a\":1}", "JSON without", "json:time=KEY"),
            ("h - - [29/Feb/2027:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5", "date", "clock"),
            ("{\"time\":\"2027-02-29T10:00:00Z\",\"status\":200}", "date", "clock"),
            (
                "2026-11-28 10:00:00 W3SVC1 WEB 10.0.0.1 GET / - 80 - 10.0.0.2 c 200 0 0 5",
                "W3C",
                "w3c:",
            ),
            ("10:00:00 | 200 |      1.2ms |  127.0.0.1 | GET     | /", "console", "JSON"),
            (
                "tls 2.0 2026-11-28T10:00:00 net/lb/1 l 192.0.2.1:5 10.0.0.1:443 5 2 9 8",
                "Network",
                "behind",
            ),
            (
                "192.0.2.1:5 [28/Nov/2026:10:00:00.006] fe be/s1 1/0/50 212 -- 0/0/0/0/0 0/0",
                "tcplog",
                "httplog",
            ),
            ("h\0e\0l\0l\0o\0 \0w\0o\0", "UTF-16", "iconv"),
            ("hello", "no known format", "nginx:"),
            ("at 10 o'clock \"GET / HTTP/1.1\" [x] 200", "access log", "nginx:"),
        ] {
            let advice = advice(line.as_bytes());
            assert!(advice.contains(name) && advice.contains(fix), "{line}: {advice}");
        }
    }
}

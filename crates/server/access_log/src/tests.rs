//! Each format compared with a golden line.

use std::path::Path;
use std::sync::{Arc, Mutex};

use http1::{Scheme, Scratch, Version, parse_request};
use proptest::prelude::*;

use super::*;
use outcome::{BrokenBy, Refusal};
use transport::tls::{Facts, Peer, TlsFacts};

const REQUEST: &[u8] = b"GET /a/b?c=d HTTP/1.1\r\nHost: www.example.com:8080\r\n\
    User-Agent: curl/8 (\"x\")\r\nX-Own: one two\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
    Cache-Status: before; fwd=miss\r\nETag: \"1\"\r\nCache-Status: plimsoll; hit\r\n\r\n";

/// Gives a record of this request to `look`.
pub(crate) fn with_record<T>(request: &[u8], look: impl FnOnce(Record<'_>) -> T) -> T {
    let mut scratch: Box<Scratch> = Box::default();
    let head = parse_request(request, &mut scratch, &http1::Limits::DEFAULT).unwrap();
    look(Record {
        listener: "127.0.0.1:3128".parse().unwrap(),
        scheme: Scheme::Http,
        end_wall_ms: 1_431_857_103_042,
        elapsed_us: 12_345,
        client: "83.149.9.216:4711".parse().unwrap(),
        user: b"",
        request: head,
        request_bytes: 150,
        outcome: Outcome::Hit,
        status: 200,
        response_head: RESPONSE,
        content_type: b"text/html; charset=utf-8",
        bytes: 1324,
        body_bytes: 1024,
        upstream: None,
        upstream_head_us: None,
        given_id: b"",
        id: None,
        hierarchy: outcome::Hierarchy::Direct,
        keep: true,
        broken: None,
        rule: "",
        tls: None,
    })
}

fn line(format: &LogFormat, record: &Record<'_>) -> String {
    let memory = Arc::new(Mutex::new(Vec::new()));
    let log = CoreLog::new(Sink::Memory(Arc::clone(&memory)), format.clone(), Arc::default());
    log.record(record);
    log.flush();
    let bytes = memory.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn format(text: &str) -> LogFormat {
    text.parse().unwrap_or_else(|wrong| panic!("{text}: {wrong}"))
}

/// The line of a format for the record, without its end.
fn of(text: &str) -> String {
    with_record(REQUEST, |record| line(&format(text), &record)).trim_end_matches('\n').to_owned()
}

#[test]
fn squid_native_stamps_the_end_in_milliseconds() {
    assert_eq!(
        of("squid"),
        "1431857103.042     12 83.149.9.216 TCP_MEM_HIT/200 1324 GET \
         http://www.example.com:8080/a/b?c=d - HIER_NONE/- text/html"
    );
    let asked = with_record(REQUEST, |record| {
        let upstream = Some("[2001:db8::1]:80".parse().unwrap());
        line(&LogFormat::Squid, &Record { upstream, outcome: Outcome::Miss, ..record })
    });
    let named = with_record(REQUEST, |r| Record { user: b"jo do", ..r }.clone_lines());
    assert!(named[0].contains(" jo%20do HIER_NONE/- "), "a user is one word of the line");
    assert!(named[1].starts_with("83.149.9.216 - jo%20do ["));
    assert!(asked.contains(" TCP_MISS/200 ") && asked.contains(" HIER_DIRECT/2001:db8::1 "));
}

#[test]
fn common_and_combined_have_the_fields_of_apache() {
    let common = "83.149.9.216 - - [17/May/2015:10:05:03 +0000] \
                  \"GET /a/b?c=d HTTP/1.1\" 200 1024";
    assert_eq!(of("common"), common);
    assert_eq!(of("combined"), format!("{common} \"-\" \"curl/8 (\\\"x\\\")\""));
}

#[test]
fn json_is_one_object_a_line() {
    assert_eq!(
        of("json"),
        "{\"time\":\"2015-05-17T10:05:03.042Z\",\"elapsed_us\":12345,\"client\":\"83.149.9.216\",\
         \"client_port\":4711,\"user\":null,\"method\":\"GET\",\
         \"url\":\"http://www.example.com:8080/a/b?c=d\",\"protocol\":\"HTTP/1.1\",\
         \"status\":200,\"outcome\":\"TCP_MEM_HIT\",\"cache_status\":\"plimsoll; hit\",\
         \"rule\":null,\"broken_by\":null,\"bytes_received\":150,\"bytes_sent\":1324,\
         \"body_bytes_sent\":1024,\
         \"hierarchy\":\"HIER_NONE\",\"upstream\":null,\
         \"content_type\":\"text/html; charset=utf-8\",\"referer\":null,\
         \"user_agent\":\"curl/8 (\\\"x\\\")\",\"keep_alive\":true,\"tls\":null}"
    );
}

/// Squid's suffix, Apache's `X`, and our own values.
#[test]
fn a_response_that_was_broken_off_is_marked() {
    let logged = |text: &str, broken, outcome, status| {
        with_record(REQUEST, |record| {
            let record = Record {
                outcome,
                status,
                broken,
                keep: false,
                rule: if broken.is_some() { "upstream-chunk-size" } else { "" },
                ..record
            };
            line(&format(text), &record).trim_end_matches('\n').to_owned()
        })
    };
    let apache = "apache:%X %>s %{outcome}x %{rule}x %{broken-by}x %b";
    for by in [BrokenBy::Client, BrokenBy::Upstream, BrokenBy::Proxy] {
        let expected = format!("X 200 TCP_MISS_ABORTED upstream-chunk-size {} 1024", by.name());
        assert_eq!(logged(apache, Some(by), Outcome::Pass, 200), expected);
        let json = logged("json", Some(by), Outcome::Miss, 200);
        assert!(json.contains(&format!("\"broken_by\":\"{}\"", by.name())), "{json}");
        let squid = logged("squid", Some(by), Outcome::Hit, 200);
        assert!(squid.contains(" TCP_MEM_HIT_ABORTED/200 1324 "), "{squid}");
    }
    assert_eq!(logged(apache, None, Outcome::Pass, 200), "- 200 TCP_MISS - - 1024");
    // A client that has not waited.
    let squid = logged("squid", Some(BrokenBy::Client), Outcome::Refused, 499);
    assert!(squid.contains(" TCP_MISS_ABORTED/499 "), "{squid}");
}

#[test]
fn bytes_that_were_no_request_have_a_line_too() {
    let refused = with_record(REQUEST, |record| {
        Record {
            request: None,
            outcome: Outcome::Refused,
            status: 400,
            content_type: b"text/plain",
            response_head: b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n",
            rule: "bare-lf",
            ..record
        }
        .clone_lines()
    });
    assert_eq!(
        refused[0],
        "1431857103.042     12 83.149.9.216 NONE_NONE/400 1324 - error:invalid-request - \
         HIER_NONE/- text/plain\n"
    );
    assert!(refused[1].contains("] \"-\" 400 "), "{}", refused[1]);
    assert!(refused[2].contains("\"method\":null,\"url\":null,\"protocol\":null,"));
    assert!(refused[2].contains("\"rule\":\"bare-lf\""));
}

impl Record<'_> {
    fn clone_lines(&self) -> Vec<String> {
        [LogFormat::Squid, LogFormat::Combined, LogFormat::Json]
            .iter()
            .map(|format| line(format, self))
            .collect()
    }
}

/// Lines that other programs must understand (`plimsoll record` reads the same file).
#[test]
fn golden_lines() {
    let mut golden = String::new();
    let mut add = |name: &str, record: &Record<'_>| {
        golden.push_str(&format!("{name}\t{}", line(&format(name), record)));
    };
    let odd = b"GET http://[2001:db8::1]:8080/%20a?b=[1] HTTP/1.0\r\nHost: h\r\n\
        User-Agent: \"a\" [b] \\ \xff\t\r\n\r\n";
    for name in ["squid", "common", "combined"] {
        with_record(REQUEST, |r| add(name, &r));
        with_record(odd, |r| {
            let client = "[2001:db8::2]:1".parse().unwrap();
            let (outcome, upstream) = (Outcome::Miss, Some("192.0.2.1:80".parse().unwrap()));
            let (status, content_type): (_, &[u8]) = (504, b"");
            add(name, &Record { client, outcome, upstream, status, content_type, ..r });
        });
        with_record(REQUEST, |r| {
            let (status, bytes, body_bytes) = (400, 0, 0);
            add(name, &Record { request: None, status, bytes, body_bytes, elapsed_us: 0, ..r });
        });
    }
    assert_eq!(
        golden,
        include_str!("../../../../tools/fuzz/corpus/record_logs/our_formats.log"),
        "{golden}"
    );
}

#[test]
fn http2_is_logged_as_http_2_0() {
    for (text, expected) in [
        ("common", "\"GET /a/b?c=d HTTP/2.0\" 200 1024"),
        ("json", "\"protocol\":\"HTTP/2.0\","),
        ("squid:%rm HTTP/%rv HTTP/%>rv", "GET HTTP/2.0 HTTP/2.0"),
        ("apache:\"%r\" %H", "\"GET /a/b?c=d HTTP/2.0\" HTTP/2.0"),
    ] {
        let line = with_record(REQUEST, |record| {
            let request = record.request.map(|head| head.over(Version::Http2));
            line(&format(text), &Record { request, ..record })
        });
        assert!(line.contains(expected), "{text}: {line}");
    }
}

#[test]
fn http3_is_logged_as_http_3_0() {
    let line = with_record(REQUEST, |record| {
        let request = record.request.map(|head| head.over(Version::Http3));
        line(&format("common"), &Record { request, ..record })
    });
    assert!(line.contains("\"GET /a/b?c=d HTTP/3.0\" 200 1024"), "{line}");
}

/// The definitions of Squid's formats from its documentation.
#[test]
fn squids_codes() {
    for (text, expected) in [
        ("%>a:%>p %la:%>lp", "83.149.9.216:4711 127.0.0.1:3128"),
        ("%ts.%03tu|%tS", "1431857103.042|1431857103.030"),
        ("%6tr|%-6tr|%06tr|%tr", "    12|12    |000012|12"),
        ("[%tl] %{%H:%M}tg", "[17/May/2015:10:05:03 +0000] 10:05"),
        ("%Ss/%03>Hs %Sh/%<a", "TCP_MEM_HIT/200 HIER_NONE/-"),
        ("%<st %<sh %>st %>sh %st", "1324 300 150 95 1474"),
        ("%rm %ru HTTP/%rv", "GET http://www.example.com:8080/a/b?c=d HTTP/1.1"),
        ("%rs://%>rd:%>rP%rp", "http://www.example.com:8080/a/b?c=d"),
        ("\"%{User-Agent}>h\" \"%{Referer}>h\"", "\"curl/8 (\\\"x\\\")\" \"-\""),
        ("%{X-Own}>h %'{X-Own}>h [%{X-Own}>h]", "one%20two one two [one two]"),
        ("%>h{X-Own}", "one%20two"),
        ("%\"{User-Agent}>h %#{etag}<h", "curl/8 (\\\"x\\\") %221%22"),
        ("%mt %.4mt %[un %ui %[ui", "text/html text - - -"),
        ("%{cache-status}x|%{outcome}x|%{rule}x|%err_code", "plimsoll;%20hit|TCP_MEM_HIT|-|-"),
        ("100%% \\\"%http::rm\\\"\\t%trms", "100% \"GET\"\t12ms"),
    ] {
        assert_eq!(of(&format!("squid:{text}")), expected, "{text}");
    }
}

#[test]
fn apaches_codes() {
    for (text, expected) in [
        ("%h %l %u %a:%{remote}p", "83.149.9.216 - - 83.149.9.216:4711"),
        ("%A:%{local}p", "127.0.0.1:3128"),
        ("%t %{%F}t %{end:%T}t", "[17/May/2015:10:05:03 +0000] 2015-05-17 10:05:03"),
        (
            "%{sec}t %{msec}t %{usec}t %{msec_frac}t %{end:usec_frac}t",
            "1431857103 1431857103030 1431857103030000 030 042000",
        ),
        ("\"%r\" %s %>s %<s", "\"GET /a/b?c=d HTTP/1.1\" 200 200 200"),
        ("%b %B %I %O %S", "1024 1024 150 1324 1474"),
        ("%D %T %{ms}T %{us}T", "12345 0 12 12345"),
        ("%m %U%q %H", "GET /a/b?c=d HTTP/1.1"),
        ("%v:%p %V %X", "www.example.com:8080 www.example.com +"),
        ("%{X-Own}i %{ETag}o %{Referer}i", "one two \\\"1\\\" -"),
        ("%400,501{X-Own}i %!400{X-Own}i %200,304{X-Own}i", "- one two one two"),
        ("%{cache-status}x 100%%", "plimsoll; hit 100%"),
    ] {
        assert_eq!(of(&format!("apache:{text}")), expected, "{text}");
    }
    let bodiless = with_record(REQUEST, |record| {
        line(&format("apache:%b %B"), &Record { body_bytes: 0, ..record })
    });
    assert_eq!(bodiless, "- 0\n");
}

#[test]
fn names_in_braces() {
    for (text, expected) in [
        (
            "{client}:{client_port} {user} [{time}]",
            "83.149.9.216:4711 - [17/May/2015:10:05:03 +0000]",
        ),
        ("\"{request}\" {status} {bytes}", "\"GET /a/b?c=d HTTP/1.1\" 200 1024"),
        ("{msec} {elapsed} {elapsed_us}", "1431857103.042 0.012 12345"),
        ("{method} {path}{query} {uri} {host}", "GET /a/b?c=d /a/b?c=d www.example.com"),
        ("{upstream} {upstream_time} {upstream_header_time}", "- - -"),
        ("{request.x-own} \"{request.x-own}\" {response.etag}", "one%20two \"one two\" %221%22"),
        ("{cache_status} {outcome}", "plimsoll;%20hit TCP_MEM_HIT"),
        ("{{é} {request_id} {trace_id} {traceparent}", "{é} - - -"),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
    let asked = with_record(REQUEST, |record| {
        let upstream = Some("[2001:db8::1]:80".parse().unwrap());
        let record = Record { upstream, upstream_head_us: Some(7_900), id: Some(10), ..record };
        let text = "{upstream} {upstream_time} {upstream_header_time} {request_id}";
        line(&format(text), &record)
    });
    assert_eq!(asked, "[2001:db8::1]:80 0.012 0.007 0000000000000000000000000000000a\n");
    for (text, expected) in [
        ("{clien}", "there is no {clien}; did you mean {client}?"),
        ("{request.a b}", "{request.a b}: \"a b\" is not a field name"),
        ("{client", "`{client` has no closing brace"),
        ("{client}\n", "a line cannot contain a line break"),
    ] {
        let wrong = text.parse::<LogFormat>().unwrap_err();
        assert!(wrong.contains(expected), "{text}: {wrong}");
    }
}

#[test]
fn an_error_names_the_column_and_the_nearest_code() {
    for (text, expected) in [
        ("squid:%ts %>q", "column 5: %>q is not one of Squid's codes; the nearest is %>a"),
        ("squid:é%{X}", "column 2: % is not one of Squid's"),
        ("squid:a%{X", "column 2: the { of a code has no }"),
        ("squid:%>h", "column 1: %>h needs {the field's name}"),
        ("squid:%{x}ts", "column 1: %ts takes no such argument"),
        ("squid:%{a b}>h", "column 1: \"a b\" is not a field name"),
        ("squid:%{%Q}tl", "column 1: %Q is not a time; known are %a"),
        ("squid:%99999tr", "column 1: a width of 99999 is above 1024"),
        ("squid:%.tr", "the . of a code must be followed by its maximum length"),
        ("squid:%ts\n", "column 4: a line cannot contain a line break"),
        ("squid:\\n", "column 2: only t, a quote or \\ may follow \\"),
        ("squid:", "the log format is empty"),
        ("squid:%{nothing}x", "\"nothing\" is not one of plimsoll's own values: outcome, "),
        ("apache:%h %Z", "column 4: %Z is not one of Apache's codes; the nearest is %"),
        ("apache:%42s", "42 is not a status"),
        ("apache:%{ns}T", "%T knows s, ms and us"),
        ("apache:%\n", "column 1: %\\n is not one of Apache's codes"),
        ("apache:%", "column 1: % is not one of Apache's codes"),
        ("jsn", "unknown log format \"jsn\": use squid, common, combined or json, names in"),
        ("%h %t", "after squid: or apache:"),
    ] {
        let wrong = text.parse::<LogFormat>().unwrap_err();
        assert!(wrong.contains(expected), "{text}: {wrong}");
    }
}

#[test]
fn every_code_is_documented_and_understood() {
    for code in log_codes() {
        assert!(!code.help.is_empty());
        if code.dialect == "names" {
            assert!(code.code.parse::<LogFormat>().is_ok(), "{}", code.code);
            continue;
        }
        let letters = code.code.split(['%', '}', ' ']).next_back().unwrap();
        let with = |argument: &str| format!("{}:%{argument}{letters}", code.dialect);
        let arguments = ["", "{X}", "{ms}", "{outcome}", "{remote}", "{cipher}"];
        let understood = arguments.iter().any(|a| with(a).parse::<LogFormat>().is_ok());
        assert!(understood, "{}", code.code);
    }
}

#[test]
fn nothing_is_lost_at_exit() {
    let path = std::env::temp_dir().join(format!("plimsoll-log-{}", std::process::id()));
    let writer = LogWriter::open(&path).unwrap();
    let log = CoreLog::new(writer.sink(), LogFormat::Squid, Arc::default());
    with_record(REQUEST, |record| (0..10_000).for_each(|_| log.record(&record)));
    log.flush();
    assert_eq!(writer.finish(), 0);
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(written.lines().count(), 10_000);
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let writer = LogWriter::open(Path::new("/dev/full")).unwrap();
    let log = CoreLog::new(writer.sink(), LogFormat::Squid, Arc::default());
    with_record(REQUEST, |record| log.record(&record));
    log.flush();
    assert_eq!(writer.finish(), 1);
}

/// Rotation: the file is moved away and opened again under its name; no line is lost or doubled.
#[test]
fn a_log_that_is_moved_away_continues_under_its_name() {
    let home = std::env::temp_dir().join(format!("plimsoll-rotate-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let (path, moved) = (home.join("access.log"), home.join("access.log.1"));
    let writer = LogWriter::open(&path).unwrap();
    let log = CoreLog::new(writer.sink(), LogFormat::Squid, Arc::default());
    with_record(REQUEST, |record| {
        log.record(&record);
        log.flush();
        std::fs::rename(&path, &moved).unwrap();
        writer.reopen();
        log.record(&record);
        log.record(&record);
        log.flush();
    });
    assert_eq!(writer.finish(), 0);
    let lines = |path| std::fs::read_to_string(path).unwrap().lines().count();
    assert_eq!((lines(&moved), lines(&path)), (1, 2));
    std::fs::remove_dir_all(&home).unwrap();
}

proptest! {
    /// The formats written by hand equal their format strings, for any client.
    #[test]
    fn named_formats_equal_their_format_strings(
        path in "/[!-~]{0,20}", agent in "[ -~]{0,20}", referer in "[!-~é]{1,20}",
        elapsed_us in 0u64..100_000_000, status in 200u16..600, body_bytes in 0u64..3,
    ) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\nReferer: {referer}\r\n\r\n"
        );
        let mut scratch: Box<Scratch> = Box::default();
        let parsed = parse_request(request.as_bytes(), &mut scratch, &http1::Limits::DEFAULT);
        prop_assume!(parsed.is_ok());
        let squid = format(
            "squid:%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt"
        );
        let combined = format(
            "apache:%h %l %u [%{end:%d/%b/%Y:%T %z}t] \"%r\" %>s %b \"%{Referer}i\" \
             \"%{User-Agent}i\""
        );
        with_record(request.as_bytes(), |record| {
            let record = Record { elapsed_us, status, body_bytes, ..record };
            prop_assert_eq!(line(&LogFormat::Squid, &record), line(&squid, &record));
            prop_assert_eq!(line(&LogFormat::Combined, &record), line(&combined, &record));
            for format in [LogFormat::Squid, LogFormat::Combined, LogFormat::Json] {
                let text = line(&format, &record);
                prop_assert_eq!(text.matches('\n').count(), 1);
                prop_assert!(text.ends_with('\n'));
            }
            Ok(())
        })?;
    }

    /// Any text is an error or a format whose records are single lines.
    #[test]
    fn any_text_is_parsed_or_refused(text in "(squid|apache):[ -~]{0,40}") {
        if let Ok(format) = text.parse::<LogFormat>() {
            let line = with_record(REQUEST, |record| line(&format, &record));
            prop_assert_eq!(line.matches('\n').count(), 1);
        }
    }
}

/// A client's TLS with fixed properties.
struct FixedTls;

impl TlsFacts for FixedTls {
    fn with_facts(&self, look: &mut dyn FnMut(&Facts<'_>)) {
        // SET { SEQUENCE { 2.5.4.3, UTF8String } }
        let subject = b"\x31\x0c\x30\x0a\x06\x03\x55\x04\x03\x0c\x03a b";
        look(&Facts {
            version: "1.3",
            cipher: "TLS_AES_256_GCM_SHA384",
            server_name: Some("www.example.com"),
            resumed: true,
            peer: Some(Peer { subject, issuer: b"" }),
        });
    }
}

#[test]
fn the_tls_of_a_client_is_logged_in_the_terms_of_each_dialect() {
    let logged = |text: &str, tls: Option<&dyn TlsFacts>| {
        with_record(REQUEST, |record| line(&format(text), &Record { tls, ..record }))
    };
    let squid = "squid:%ssl::>negotiated_version %ssl::>negotiated_cipher %ssl::>sni \
                 %ssl::>cert_subject %ssl::>cert_issuer \"%us\"";
    let expected = "TLS/1.3 TLS_AES_256_GCM_SHA384 www.example.com CN=a%20b - \"CN=a b\"\n";
    assert_eq!(logged(squid, Some(&FixedTls)), expected);
    assert_eq!(logged(squid, None), "- - - - - \"-\"\n");
    let apache = "apache:%{SSL_PROTOCOL}x %{SSL_CIPHER}x %{SSL_TLS_SNI}x %{SSL_CLIENT_S_DN}x \
                  %{SSL_CLIENT_VERIFY}x %{SSL_SESSION_RESUMED}x %{HTTPS}x %{version}c";
    let expected = "TLSv1.3 TLS_AES_256_GCM_SHA384 www.example.com CN=a b SUCCESS Resumed on \
                    TLSv1.3\n";
    assert_eq!(logged(apache, Some(&FixedTls)), expected);
    assert_eq!(logged(apache, None), "- - - - NONE - off -\n");
    let json = with_record(REQUEST, |record| {
        line(&LogFormat::Json, &Record { tls: Some(&FixedTls), ..record })
    });
    let expected = "\"tls\":{\"version\":\"TLSv1.3\",\"cipher\":\"TLS_AES_256_GCM_SHA384\",\
                    \"sni\":\"www.example.com\",\"resumed\":true,\"client_subject\":\"CN=a b\",\
                    \"client_issuer\":null}}\n";
    assert!(json.ends_with(expected), "{json}");
}

#[test]
fn cookies_and_the_upstreams_status_are_found() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; sid=x=y\r\nCookie: b= 2 \r\n\r\n";
    let response = b"HTTP/1.1 200 OK\r\nCache-Status: plimsoll; fwd=stale; fwd-status=304\r\n\r\n";
    let logged = |text: &str| {
        with_record(request, |record| {
            line(&format(text), &Record { response_head: response, ..record })
        })
    };
    assert_eq!(
        logged("apache:%{a}C %{sid}C %{b}C %{c}C %{pid}P").split(' ').take(4).collect::<Vec<_>>(),
        ["1", "x=y", "2", "-"]
    );
    assert_eq!(logged("squid:%<Hs %>Hs %<sh %<sH %tS"), "304 200 300 1024 1431857103.030\n");
    let hit = with_record(REQUEST, |record| line(&format("squid:%<Hs"), &record));
    assert_eq!(hit, "-\n");
}

#[test]
fn codes_without_a_value_are_distinguished_from_unknown_codes() {
    for (text, words) in [
        ("squid:%<la", "one of Squid's codes but has no value here; the nearest is"),
        ("squid:%ssl::bump_mode", "has no value here"),
        ("squid:%icap::<service_name", "has no value here"),
        ("squid:%zz", "not one of Squid's codes"),
        ("apache:%f", "one of Apache's codes but has no value here"),
        ("apache:%{X}e", "has no value here"),
        ("apache:%{SSL_PROTOCL}x", "the nearest is %{SSL_PROTOCOL}x"),
        ("apache:%{x}c", "version, cipher and subjectdn"),
    ] {
        let wrong = text.parse::<LogFormat>().unwrap_err();
        assert!(wrong.contains(words) && wrong.contains("column 1"), "{wrong}");
    }
}

#[test]
fn a_client_refused_before_its_request_has_a_line_too() {
    let listener = ("127.0.0.1:443".parse().unwrap(), Scheme::Https);
    let client = "192.0.2.1:5".parse().unwrap();
    let logged = |refusal, response: &[u8]| {
        let record = Record::of_none(client, listener, refusal, 0, response, 1_431_857_103_042);
        line(&format("squid:%>a %Ss/%03>Hs %<st %rm %ru %err_code"), &record)
    };
    assert_eq!(
        logged(Refusal::ProxyHeader, b""),
        "192.0.2.1 TCP_DENIED/000 0 - error:invalid-request proxy-header\n"
    );
    assert_eq!(
        logged(Refusal::PlainHttp, b"HTTP/1.1 400 Bad\r\n\r\ntext"),
        "192.0.2.1 NONE_NONE/400 24 - error:invalid-request plain-http\n"
    );
}

//! Format strings, tested with tables: how they parse lines, and the errors for bad strings.

use super::super::*;
use proptest::prelude::*;

fn compiled(text: &str) -> Format {
    let choice: FormatChoice = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    choice.format().unwrap_or_else(|| panic!("{text} needs a line"))
}

/// Start and end in us since the epoch, the length of time, the class and the bytes.
fn read(format: &Format, line: &str) -> Option<(i64, i64, Option<u64>, String, u64)> {
    let r = format.parse(line.as_bytes(), &mut Stamps::default())?;
    Some((r.start_ns / 1000, r.end_ns / 1000, r.elapsed_us, r.class.to_string(), r.bytes))
}

const SECOND: i64 = 971_211_336_000_000;

#[test]
fn nginx_strings_read_what_nginx_writes() {
    let main = "nginx:$remote_addr - $remote_user [$time_local] \"$request\" $status \
        $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";
    let line =
        "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 2326 \"-\" \"x\"";
    let format = compiled(main);
    assert!(!format.has_elapsed() && format.grain_ns() == NS_PER_S);
    let expected = (SECOND, SECOND + 1_000_000, None, "- GET 1k-10k -".to_owned(), 2326);
    assert_eq!(read(&format, line), Some(expected.clone()));
    // A user name may contain anything. A line with more or fewer fields does not match.
    assert_eq!(read(&format, &line.replace(" - - ", " - a [b] ")), Some(expected));
    for bad in [format!("{line} more"), line.replace(" 200 ", " "), line[..60].to_owned()] {
        assert_eq!(read(&format, &bad), None, "{bad}");
    }

    let exact = compiled(
        "nginx:$msec ${request_time} $scheme $request_method $uri $status $bytes_sent \
         $upstream_cache_status",
    );
    assert_eq!(exact.declares(), "stamps the end, grain 1 ms, with elapsed time");
    let end = 1_431_857_103_042_000;
    let line = "1431857103.042 0.120 https POST /a/b 502 99999 MISS";
    let expected = (end - 120_000, end, Some(120_000), "error POST 10k-100k tls".to_owned(), 99999);
    assert_eq!(read(&exact, line), Some(expected));
    let unknown = read(&exact, &line.replace("0.120", "-")).unwrap();
    assert_eq!((unknown.0, unknown.1, unknown.2), (end, end, None));

    let words = compiled("nginx:escape=json {\"t\":\"$time_iso8601\",\"took\":$request_time}");
    let line = "{\"t\":\"2000-10-10T13:55:36-07:00\",\"took\":2.500}";
    let life = read(&words, line).unwrap();
    // The end is anywhere in the second.
    assert_eq!((life.0, life.1, life.2), (SECOND - 2_500_000, SECOND + 1_000_000, Some(2_500_000)));
}

#[test]
fn squid_strings_read_as_the_native_format_is_read() {
    let native = "squid:%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt";
    let format = compiled(native);
    for line in [
        "1286536309.450    120 192.168.0.68 TCP_MISS/200 2087 GET http://a/x - HIER_DIRECT/1.2 t/h",
        "1286536309.450 1234567 ::1 TCP_MEM_HIT/304 0 HEAD http://a/x - HIER_NONE/- -",
        "1286536309.001      0 1.2.3.4 NONE/000 0 - error:x - HIER_NONE/- -",
    ] {
        let by_name = LogFormat::Squid.parse(line.as_bytes(), &mut Stamps::default());
        assert!(by_name.is_some(), "{line}");
        assert_eq!(format.parse(line.as_bytes(), &mut Stamps::default()), by_name, "{line}");
    }
    let left = compiled("squid:%-9tr|%-20>a %http::>Hs [%{%Y-%m-%d %H:%M:%S}tg] %ssl::>sni %%");
    let line = "12       |1.2.3.4              200 [2000-10-10 20:55:36] - %";
    let expected = (SECOND - 12_000, SECOND + 1_000_000, Some(12_000), "- - - -".to_owned(), 0);
    assert_eq!(read(&left, line), Some(expected));
    let header = compiled("squid:%>a [%tl] \"%{User-Agent}>h\" \"%>h{Referer}\" %Ss:%Sh %tS %rs");
    let line = "1.2.3.4 [10/Oct/2000:13:55:36 -0700] \"a \\\"b\\\" c\" \"-\" TCP_HIT:NONE \
        971211335.500 https";
    let (start, _, _, class, _) = read(&header, line).unwrap();
    assert_eq!((start, class.as_str()), (SECOND - 500_000, "hit - - tls"));
}

#[test]
fn apache_and_varnish_strings_are_read() {
    let combined = "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"";
    let format = compiled(&format!("apache:{combined}"));
    let line = "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a\\\"b HTTP/1.0\" 200 2326 \
        \"http://h/\" \"Mozilla/4.08 [en] (Win98; \\\"I\\\")\"";
    let by_name = LogFormat::Combined.parse(line.as_bytes(), &mut Stamps::default());
    assert_eq!(format.parse(line.as_bytes(), &mut Stamps::default()), by_name);
    assert!(by_name.is_some());
    // As written in Apache's configuration, with escaped quotes.
    assert_eq!(
        read(&compiled(&format!("apache:{}", combined.replace('"', "\\\""))), line),
        read(&format, line)
    );

    let life = |text: &str, line: &str| {
        let (start, end, elapsed, class, _) = read(&compiled(text), line).unwrap();
        (start - SECOND, end - SECOND, elapsed, class)
    };
    let zoned = "[10/Oct/2000:13:55:36 -0700]";
    assert_eq!(
        life(
            "apache:%t %D %U%q %!200,304s %{Varnish:hitmiss}x",
            &format!("{zoned} 1500 /a?b 404 hit")
        ),
        (0, 1_001_500, Some(1500), "hit - - -".to_owned())
    );
    assert_eq!(
        life("apache:%{end:usec}t %t %T %{us}T", &format!("971211336000250 {zoned} 3 2000250")),
        (250 - 2_000_250, 250, Some(2_000_250), "- - - -".to_owned())
    );
    assert_eq!(
        life("apache:%{sec}t.%{msec_frac}t %{ms}T %{Foo}^ti %m", "971211336.007 5 - GET"),
        (7000, 12_000, Some(5000), "- GET - -".to_owned())
    );
    assert_eq!(
        life(
            "apache:[%{%d/%b/%Y %T %z}t] %{SSL_PROTOCOL}x",
            "[10/Oct/2000 13:55:36 -0700] TLSv1.3"
        ),
        (0, 1_000_000, None, "- - - tls".to_owned())
    );
}

#[test]
fn json_lines_are_read_by_known_and_by_given_keys() {
    let read_by = |choice: &str, line: &str| {
        let choice: FormatChoice = choice.parse().unwrap();
        let format = choice.detect(line.as_bytes(), &mut Stamps::default())?;
        assert!(format.to_string().starts_with("json"));
        read(&format, line)
    };
    // As our own server writes it.
    let own = concat!(
        r#"{"time":"2015-05-17T10:05:03.042Z","elapsed_us":12345,"client":"::1","method":"GET","#,
        r#""url":"http://h/\"a\"","status":200,"outcome":"TCP_MISS","bytes_sent":1324,"#,
        r#""body_bytes_sent":1024,"tls":{"version":"TLSv1.3","resumed":false},"user":null}"#
    );
    let end = 1_431_857_103_042_000;
    let expected = (end - 12_345, end, Some(12_345), "miss GET 1k-10k tls".to_owned(), 1324);
    for choice in ["auto", "json"] {
        assert_eq!(read_by(choice, own), Some(expected.clone()), "{choice}");
    }
    let plain = own.replace(r#"{"version":"TLSv1.3","resumed":false}"#, "null");
    assert!(read_by("auto", &plain).unwrap().3.ends_with("plain"));
    // Caddy: nested, and with a unit that only its other keys show.
    let caddy = concat!(
        r#"{"level":"info","ts":1646861401.5241024,"request":{"method":"GET","tls":{"v":1},"#,
        r#""headers":{"A":["b","{"]}},"duration":0.000929,"size":10900,"status":404}"#
    );
    let (start, stop, elapsed, class, bytes) = read_by("json", caddy).unwrap();
    assert_eq!((stop - start, elapsed, bytes), (929, Some(929), 10900));
    assert_eq!(class, "error GET 10k-100k tls");
    let given = read_by("json:elapsed_ms=duration", caddy).unwrap();
    assert_eq!((given.1 - given.0, given.2), (0, Some(0)), "0.000929 ms");
    let unknown = read_by("json", &caddy.replace("headers", "fields")).unwrap();
    assert_eq!((unknown.1 - unknown.0, unknown.2), (0, None), "another server's unit");
    // Given keys take precedence over known ones.
    let two = r#"{"time":"2015-05-17 10:05:03+00:00","status":200,"code":500,"at":1431857103042}"#;
    let (start, _, _, class, _) = read_by("json:start=at,status=code", two).unwrap();
    assert_eq!((start, class.as_str()), (end, "error - - -"));
    for bad in [
        "{}",
        r#"{"status":200}"#,
        r#"{"time":"yesterday"}"#,
        r#"{"time":1431857103"#,
        r#"{"time":1431857103} x"#,
        r#"["time",1431857103]"#,
        r#"{"time":1431857103,"status":"many"}"#,
        "not JSON",
    ] {
        assert_eq!(read_by("json", bad), None, "{bad}");
    }
}

#[test]
fn a_bad_string_is_reported_with_its_position_and_a_fix() {
    for (text, place, what, fix) in [
        ("nginx:$remote_addr $status", "column 21", "no time", "$msec"),
        ("nginx:$msec ${status", "column 7, ${status", "not closed", "add a }"),
        ("nginx:$msec $ $status", "column 7, $", "no variable", "after the $"),
        ("nginx:$msec $remote_addr$status", "column 19, $status", "$remote_addr", "space"),
        ("squid:%>a %ts.%03tu %zz", "column 15, %zz", "no such code", "%%"),
        ("squid:%tr %<st", "column 9", "no time", "%ts.%03tu"),
        ("squid:%{%H:%M}tl", "column 1, %{%H:%M}tl", "lacks", "%ts.%03tu"),
        ("apache:%h %K", "column 4, %K", "no such code", "%%"),
        ("apache:%h %{%c}t", "column 4, %{%c}t", "%c", "%t"),
        ("apache:%t %{min}T", "column 4, %{min}T", "unit", "ms"),
        ("apache:%t %", "column 4, %", "no code", "%%"),
        ("apache:%h %b", "column 6", "no time", "%t"),
        ("apache:%{Foo", "column 1, %{Foo", "not closed", "}"),
        ("json:speed=x", "column 1, speed=x", "speed", "elapsed_ms"),
        ("json:time=t,status", "column 8, status", "no key", "="),
        ("iis:x", "\"iis\"", "no log format", "apache:"),
    ] {
        let error = text.parse::<FormatChoice>().unwrap_err();
        for part in [place, what, fix] {
            assert!(error.contains(part), "{text}: {error} has no {part:?}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000, failure_persistence: None, ..Default::default()
    })]

    /// Every string compiles or is refused, and a compiled string parses any line without a panic.
    #[test]
    fn no_string_and_no_line_panics(
        string in proptest::collection::vec(
            prop_oneof![
                Just("$time_local".to_owned()), Just("$msec".to_owned()), Just("$x".to_owned()),
                Just("%t".to_owned()), Just("%ts".to_owned()), Just("%6tr".to_owned()),
                Just("%-5>a".to_owned()), Just("%{%F %T}t".to_owned()), Just("\"".to_owned()),
                Just(" ".to_owned()), Just("[".to_owned()), ".{0,3}",
            ],
            0..10,
        ),
        line in proptest::collection::vec(
            prop_oneof![
                Just("[10/Oct/2000:13:55:36 -0700]".to_owned()), Just("1431857103.042".to_owned()),
                Just("2000-10-10 20:55:36".to_owned()), Just("\"".to_owned()),
                Just(" ".to_owned()), Just("\\".to_owned()), Just("{".to_owned()), ".{0,4}",
            ],
            0..12,
        ),
    ) {
        for dialect in ["nginx", "squid", "apache", "json"] {
            let Ok(choice) = format!("{dialect}:{}", string.concat()).parse::<FormatChoice>()
            else { continue };
            let line = line.concat();
            let stamps = &mut Stamps::default();
            if let Some(format) = choice.detect(line.as_bytes(), stamps)
                && let Some(request) = format.parse(line.as_bytes(), stamps)
            {
                prop_assert!(request.start_ns <= request.end_ns);
            }
        }
    }
}

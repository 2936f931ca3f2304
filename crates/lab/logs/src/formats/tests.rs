//! The formats, tested with tables of lines and with noise.

#[cfg(feature = "survey")]
mod servers;
mod strings;

use super::*;
use proptest::prelude::*;

fn ms(ms: i64) -> i64 {
    ms * NS_PER_MS
}

/// Start and end in ms since the epoch.
fn understood(format: LogFormat, line: &str) -> Option<(i64, i64, Option<u64>)> {
    format
        .parse(line.as_bytes(), &mut Stamps::default())
        .map(|r| (r.start_ns / NS_PER_MS, r.end_ns / NS_PER_MS, r.elapsed_us))
}

const SQUID: &str = "1286536309.450    120 192.168.0.68 TCP_MISS/200 2087 GET \
    http://a.example/x - HIER_DIRECT/1.2.3.4 text/html";
const COMBINED: &str = "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif \
    HTTP/1.0\" 200 2326 \"http://www.example.com/start.html\" \"Mozilla/4.08 [en] (Win98; I)\"";
const COMMON: &str = "127.0.0.1 - - [10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 304 -";
const HAPROXY: &str = "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 \
    10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"";

/// The golden lines of our own server's tests.
#[test]
fn lines_of_our_own_server_are_understood() {
    let golden = include_str!("../../../../../tools/fuzz/corpus/record_logs/our_formats.log");
    let end = 1_431_857_103_042;
    for line in golden.lines() {
        let (name, line) = line.split_once('\t').unwrap();
        let name = if name == "common" { "clf" } else { name };
        let format = LogFormat::ALL.into_iter().find(|f| f.as_str() == name).unwrap();
        let (start, ended, elapsed) = understood(format, line).unwrap_or_else(|| panic!("{line}"));
        if format.has_elapsed() {
            assert_eq!((ended, Some((end - start) as u64 * 1000)), (end, elapsed), "{line}");
        } else {
            assert_eq!((start, ended), (end / 1000 * 1000, end / 1000 * 1000 + 1000), "{line}");
        }
        let detected = Format::detect(line.as_bytes(), &mut Stamps::default());
        assert!(detected == Some(format.into()) || name == "clf" && detected.is_some(), "{line}");
    }
}

#[test]
fn squid_lines_stamp_the_end() {
    let end = 1_286_536_309_450;
    let table = [
        (SQUID.to_owned(), Some((end - 120, end, Some(120_000)))),
        (SQUID.replace("   120", "     0"), Some((end, end, Some(0)))),
        (SQUID.replace("   120", "    -1"), Some((end, end, None))),
        (SQUID.replace("TCP_MISS/200", "NONE/000"), Some((end - 120, end, Some(120_000)))),
        (SQUID.replace("TCP_MISS/200", "TCP_MISS"), None),
        (SQUID.replace(".450", ""), None),
        (SQUID.replace(" text/html", ""), None),
        (SQUID.replace("2087", "many"), None),
        (SQUID[..40].to_owned(), None),
    ];
    for (line, expected) in table {
        assert_eq!(understood(LogFormat::Squid, &line), expected, "{line}");
    }
}

#[test]
fn combined_and_common_lines_stamp_a_second() {
    let second = 971_211_336_000;
    let good = Some((second, second + 1000, None));
    for (format, line, expected) in [
        (LogFormat::Combined, COMBINED.to_owned(), good),
        (LogFormat::Common, COMBINED.to_owned(), good),
        (LogFormat::Common, COMMON.to_owned(), good),
        (LogFormat::Combined, COMMON.to_owned(), None),
        (LogFormat::Combined, COMBINED.replace("frank", "fr [an] k"), good),
        (LogFormat::Combined, COMBINED.replace("GET /", r#"GET /\"\\"#), good),
        (LogFormat::Combined, format!("{COMBINED} 0.003 \"more\""), good),
        (LogFormat::Combined, COMBINED.replace("\"GET", "GET"), None),
        (LogFormat::Combined, COMBINED.replace(" 200 ", " 20 "), None),
        (LogFormat::Combined, COMBINED.replace("10/Oct", "10/Okt"), None),
        (LogFormat::Combined, COMBINED.replace("13:55", "25:55"), None),
        // Truncated in the agent, as one line in ten thousand of a real log was; truncated before
        // it.
        (LogFormat::Combined, COMBINED[..COMBINED.len() - 1].to_owned(), good),
        (LogFormat::Combined, COMBINED.split("Mozilla").next().unwrap().to_owned(), good),
        (LogFormat::Combined, COMBINED.split(" \"Mozilla").next().unwrap().to_owned(), None),
        (LogFormat::Combined, COMBINED.replace("start.html\" ", ""), None),
        (LogFormat::Common, COMMON.replace(" -0", " ?0"), good),
        (LogFormat::Common, COMMON.replace(" 304 -", " - -"), good),
        // Quotes that the server has not escaped.
        (LogFormat::Combined, COMBINED.replace("GET /", "GET /\"a\"b"), good),
        (LogFormat::Combined, COMBINED.replace("-0700", "GMT").replace("13:55", "20:55"), good),
        (LogFormat::Combined, COMBINED.replace("[10/", "[ 10/").replace("00] ", "00 ] "), good),
    ] {
        assert_eq!(understood(format, &line), expected, "{format} {line}");
    }
}

#[test]
fn haproxy_lines_stamp_the_start() {
    let start = clock_ms((2009, 2, 6), (12, 14, 14)) + 655;
    let good = Some((start, start + 109, Some(109_000)));
    for (line, expected) in [
        (HAPROXY.to_owned(), good),
        (format!("Feb  6 12:14:14 localhost haproxy[14389]: {HAPROXY}"), good),
        (format!("<134>1 2009-02-06T12:14:14+00:00 h haproxy 14389 - - {HAPROXY}"), good),
        (HAPROXY.replace("69/109", "69/+109"), good),
        (HAPROXY.replace("10/0/30/69/109 200", "-1/-1/-1/-1/109 -1"), good),
        (HAPROXY.replace("static/srv1", "http-in/<NOSRV>"), good),
        (HAPROXY.replace("/109", ""), None),
        (HAPROXY.replace("655", "65x"), None),
        // Cut in the request by syslog, which the length of its URL must not decide; cut before it.
        (HAPROXY[..HAPROXY.len() - 5].to_owned(), good),
        (HAPROXY.split(" /index").next().unwrap().to_owned(), None),
        (HAPROXY.split("\"GET").next().unwrap().to_owned(), None),
        (HAPROXY.replace("{1wt.eu}", "{a \"b\" c}"), good),
        (format!("{HAPROXY} 0/0/0/0/0 h/TLSv1.3/AES"), good),
        ("Proxy web started.".to_owned(), None),
        ("[WARNING]  (17) : Server back/s1 is DOWN".to_owned(), None),
    ] {
        assert_eq!(understood(LogFormat::Haproxy, &line), expected, "{line}");
    }
}

fn clock_ms(date: (i32, u32, u32), time: (u32, u32, u32)) -> i64 {
    crate::zone::local_to_unix(date, time).unwrap() * 1000
}

#[test]
fn the_format_is_detected_from_a_line() {
    let stamps = &mut Stamps::default();
    for (line, format) in [
        (SQUID, Some(LogFormat::Squid)),
        (COMBINED, Some(LogFormat::Combined)),
        (COMMON, Some(LogFormat::Common)),
        (HAPROXY, Some(LogFormat::Haproxy)),
        ("hello", None),
        ("", None),
    ] {
        let expected = format.map(Format::from);
        assert_eq!(Format::detect(line.as_bytes(), stamps), expected, "{line}");
    }
}

#[test]
fn names_can_be_parsed() {
    for format in LogFormat::ALL {
        assert_eq!(format.to_string().parse(), Ok(FormatChoice::Named(format)));
    }
    assert_eq!("common".parse(), Ok(FormatChoice::Named(LogFormat::Common)));
    assert!("ngins".parse::<FormatChoice>().unwrap_err().contains("combined"));
}

#[test]
fn days_agree_with_known_dates() {
    let stamps = &mut Stamps::default();
    for (stamp, seconds) in [
        ("01/Jan/1970:00:00:00 +0000", 0),
        ("29/Feb/2000:23:59:59 +0000", 951_868_799),
        ("01/Mar/2000:00:00:00 +0000", 951_868_800),
        ("31/Dec/2026:23:59:60 +0000", 1_798_761_600),
        ("01/Jan/1970:01:30:00 +0130", 0),
    ] {
        assert_eq!(stamps.zoned(stamp.as_bytes()), Some(seconds), "{stamp}");
        assert_eq!(stamps.zoned(stamp.as_bytes()), Some(seconds), "cached");
    }
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..300);
    let mangled = (
        prop_oneof![Just(SQUID), Just(COMBINED), Just(COMMON), Just(HAPROXY)],
        proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        any::<usize>(),
    )
        .prop_map(|(line, hits, keep)| {
            let mut bytes = line.as_bytes().to_vec();
            for (at, byte) in hits {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            // Half of them are truncated.
            bytes.truncate(keep % (2 * bytes.len()));
            bytes
        });
    prop_oneof![noise, mangled]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn no_line_panics_and_every_life_runs_forward(line in line()) {
        let stamps = &mut Stamps::default();
        for format in LogFormat::ALL {
            if let Some(request) = format.parse(&line, stamps) {
                prop_assert!(request.start_ns <= request.end_ns);
                let life = request.end_ns - request.start_ns;
                match request.elapsed_us {
                    Some(us) => prop_assert_eq!(life, ms(us as i64 / 1000)),
                    None => prop_assert!(life == 0 || life == NS_PER_S),
                }
            }
        }
    }
}

//! Units of time, and dates.

use super::*;

/// Stamps and lengths of time in every unit, and values that are none.
#[test]
fn units_are_recognised_by_size_name_and_value() {
    let read = |members: &str| {
        let line = format!("{{\"status\":200,{members}}}");
        let stamps = &mut Stamps::default();
        let format = Format::detect(line.as_bytes(), stamps)?;
        let request = format.parse(line.as_bytes(), stamps)?;
        Some((request.stamp_ns, request.elapsed_us))
    };
    let ns = 1_796_000_400_123_456_789;
    for (time, expected) in [
        ("1796000400123456789", ns),
        ("\"1796000400123456789\"", ns),
        ("1796000400123456", ns / 1000 * 1000),
        ("1796000400123.456", ns / 1000 * 1000),
        ("1796000400123", ns / 1_000_000 * 1_000_000),
        ("1796000400.123456789", ns),
        ("1796000400", ns / NS_PER_S * NS_PER_S),
        ("1.7960004e9", ns / NS_PER_S * NS_PER_S),
        ("\"2026-11-30T01:00:00.123456789Z\"", ns),
        ("\"30/Nov/2026:01:00:00 +0000\"", ns / NS_PER_S * NS_PER_S),
    ] {
        assert_eq!(read(&format!("\"ts\":{time}")), Some((expected, None)), "{time}");
    }
    for time in ["99999999999999999999", "-5", "\"soon\"", "\"2027-02-29T00:00:00Z\"", "true"] {
        assert_eq!(read(&format!("\"ts\":{time}")), None, "{time}");
    }
    for (elapsed, expected) in [
        ("\"duration_ms\":12.5", Some(12_500)),
        ("\"durationMs\":12", Some(12_000)),
        ("\"http.elapsed_us\":12", Some(12)),
        ("\"latency-ns\":12500", Some(12)),
        ("\"responseTimeSeconds\":0.25", Some(250_000)),
        ("\"request_time\":9.29e-05", Some(93)),
        ("\"took\":\"12ms\"", Some(12_000)),
        ("\"took\":\"345µs\"", Some(345)),
        ("\"took\":\"1m2.5s\"", Some(62_500_000)),
        ("\"took\":\"12.3 ms\"", Some(12_300)),
        ("\"duration_ms\":\"1.5s\"", Some(1_500_000)),
        // Without a unit it is not guessed.
        ("\"took\":12", None),
        ("\"duration\":\"12\"", None),
        ("\"took\":\"12 parsecs\"", None),
        ("\"duration_ms\":-5", None),
    ] {
        let found = read(&format!("\"ts\":1796000400,{elapsed}"));
        assert_eq!(found.map(|(_, us)| us), Some(expected), "{elapsed}");
    }
}

#[test]
fn dates_that_do_not_exist_are_bad_lines() {
    let line = |day: &str| format!("h - - [{day}:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5");
    for (day, exists) in [
        ("28/Feb/2027", true),
        ("29/Feb/2027", false),
        ("29/Feb/2028", true),
        ("29/Feb/2100", false),
        ("31/Apr/2026", false),
        ("31/Dec/2026", true),
        ("00/Dec/2026", false),
        ("32/Dec/2026", false),
    ] {
        let request = LogFormat::Common.parse(line(day).as_bytes(), &mut Stamps::default());
        assert_eq!(request.is_some(), exists, "{day}");
    }
    let zone = |zone: &str| line("01/Jan/2026").replace("+0000", zone);
    for (zone_text, exists) in
        [("+1400", true), ("-1200", true), ("+9900", false), ("+0075", false)]
    {
        let line = zone(zone_text);
        let request = LogFormat::Common.parse(line.as_bytes(), &mut Stamps::default());
        assert_eq!(request.is_some(), exists, "{zone_text}");
    }
}

//! Every reader returns what a generator wrote, over the whole span of latencies, sizes and
//! statuses.

use super::*;
use proptest::prelude::*;

fn truth() -> impl Strategy<Value = Truth> {
    // Even on a logarithmic scale: as many below 10 ms as above 100 s.
    let life =
        (0..=21u32).prop_flat_map(|bits| 0..=(1i64 << bits)).prop_map(|ms| ms.min(3_600_000));
    let bytes = (0..=40u32).prop_flat_map(|bits| 0..=(1u64 << bits));
    const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    (0..86_400_000i64, life, 100..=599u16, bytes, proptest::sample::select(METHODS)).prop_map(
        |(after_ms, life_ms, status, bytes, method)| Truth {
            end_ms: BEGUN_MS + after_ms,
            life_ms,
            status,
            bytes,
            method,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn every_reader_returns_the_truth(
        truths in proptest::collection::vec(truth(), 1..8),
    ) {
        for (name, choice, _, has, head, line) in rows() {
            let choice: FormatChoice = choice.parse().unwrap();
            let stamps = &mut Stamps::default();
            let lines: Vec<String> = truths.iter().map(line).collect();
            let found = head.lines().chain([lines[0].as_str()]);
            let found = found.filter_map(|line| choice.detect(line.as_bytes(), stamps)).next();
            let found = found.unwrap_or_else(|| panic!("{name}: no format for {}", lines[0]));
            for (truth, line) in truths.iter().zip(&lines) {
                let read = found.read(line.as_bytes(), stamps);
                let Line::Request(request) = read else { panic!("{name}: {line} is {read:?}") };
                prop_assert_eq!(
                    essence(&request),
                    essence(&expected(truth, &has)),
                    "{}: {}", name, line
                );
            }
        }
    }

    /// Finer than a millisecond, in the formats that write it.
    #[test]
    fn microseconds_are_read(bits in 0..=32u32, share in 0.0..1.0f64) {
        let us = ((1u64 << bits) as f64 * (1.0 + share)) as u64;
        let us = us.min(3_600_000_000);
        let (s, fraction) = (us / 1_000_000, us % 1_000_000);
        let time = "[28/Nov/2026:10:00:00 +0000]";
        for (choice, line) in [
            (
                "apache:%h %l %u %t \"%r\" %>s %b %D",
                format!("h - - {time} \"GET / HTTP/1.1\" 200 5 {us}"),
            ),
            (
                "nginx:$remote_addr [$time_local] $status $request_time",
                format!("h {time} 200 {s}.{fraction:06}"),
            ),
            ("json", format!("{{\"ts\":1795860000,\"status\":200,\"took_us\":{us}}}")),
            ("json", format!("{{\"ts\":1795860000,\"status\":200,\"took\":\"{us}us\"}}")),
            ("json", format!("{{\"ts\":1795860000,\"status\":200,\"took_ns\":{us}999}}")),
            ("logfmt", format!("ts=1795860000 status=200 duration_s={s}.{fraction:06}")),
        ] {
            let stamps = &mut Stamps::default();
            let choice: FormatChoice = choice.parse().unwrap();
            let format = choice.detect(line.as_bytes(), stamps).unwrap();
            let request = format.parse(line.as_bytes(), stamps).unwrap();
            prop_assert_eq!(request.elapsed_us, Some(us), "{}", line);
        }
    }
}

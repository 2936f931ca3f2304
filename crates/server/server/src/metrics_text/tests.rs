//! The text, against a parser that takes nothing for granted.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::certificates::{CertificateFigures, Obtaining};
use config::Config;
use outcome::Outcome;
use policy::quota::figures::QuotaFigures;
use transport::tls::Issued;
use upstream::figures::UpstreamFigures;

#[derive(Debug)]
struct Nothing;
impl SharedFigures for Nothing {
    fn figures(&self) -> Vec<(Described, u64)> {
        Vec::new()
    }

    fn refusals(&self) -> Vec<(&'static str, u64)> {
        vec![("a-rule", 7)]
    }

    fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2] {
        [vec![("0.5", 0.25)], vec![("0.5", f64::NAN)]]
    }
}

/// The samples of an OpenMetrics text, by name and labels.
///
/// Strict (OpenMetrics 1.0): each family's lines together, TYPE, UNIT and HELP once and before its
/// samples, names that end as kind and unit say, histograms that add up, `# EOF` at the end.
fn parse(text: &str) -> HashMap<String, f64> {
    let lines = text.strip_suffix("# EOF\n").expect("the end is marked");
    let (mut samples, mut families) = (HashMap::new(), HashSet::new());
    let (mut family, mut kind, mut sampled) = (String::new(), String::new(), true);
    for line in lines.lines() {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            let value = words.next().expect("a value");
            if name != family {
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                (family, kind, sampled) = (name.to_owned(), String::new(), false);
            }
            assert!(!sampled, "{line}: after a sample");
            match what {
                "TYPE" => kind = value.to_owned(),
                "UNIT" => assert!(name.ends_with(&format!("_{value}")), "{line}"),
                "HELP" => assert!(!value.is_empty() && !value.contains('\\'), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        sampled = true;
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = if value == "+Inf" { f64::MAX } else { value.parse().expect("a number") };
        assert!(value >= 0.0 || value.is_nan(), "{line}");
        let name = series.split('{').next().unwrap();
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} in {family}"));
        match kind.as_str() {
            "counter" => assert_eq!(suffix, "_total", "{line}"),
            "gauge" => assert_eq!(suffix, "", "{line}"),
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            _ => panic!("{line}: of kind {kind:?}"),
        }
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            let inner = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}')).expect(labels);
            for pair in inner.split(',') {
                let (key, quoted) = pair.split_once('=').expect(pair);
                assert!(key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
                assert!(quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"'));
            }
        }
        assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
    }
    samples
}

fn two_cores() -> [Arc<Counters>; 2] {
    let (a, b) = (Arc::new(Counters::default()), Arc::new(Counters::default()));
    a.requests.add(2);
    b.requests.add(3);
    a.latency.count(Outcome::Hit, 200, 0);
    b.latency.count(Outcome::Hit, 200, 700);
    b.latency.count(Outcome::Miss, 502, 50_000_000);
    b.core.busy_ppm.set(250_000);
    b.core.marginal_ns.set(31_000);
    [a, b]
}

#[test]
fn cores_are_added_up_and_every_metric_is_in_the_text() {
    let text = AllCores::new(two_cores().to_vec(), Arc::new(Nothing)).text(
        UpstreamFigures(Arc::new([]), Arc::new([])),
        QuotaFigures(None),
        certificates(),
    );
    let samples = parse(&text);
    assert_eq!(samples["plimsoll_requests_total"], 5.0);
    assert_eq!(samples["plimsoll_refusals_total{rule=\"a-rule\"}"], 7.0);
    assert_eq!(samples["plimsoll_core_busy_ratio{core=\"1\"}"], 0.25);
    assert_eq!(samples["plimsoll_what_if_hit_ratio{memory=\"0.5\"}"], 0.25);
    assert!(samples["plimsoll_what_if_byte_hit_ratio{memory=\"0.5\"}"].is_nan());
    assert_eq!(samples["plimsoll_core_request_cpu_seconds{core=\"1\"}"], 0.000_031);
    assert!(samples["plimsoll_process_resident_bytes"] > 1e5);
    let shared = |of: &&Described| {
        let figures =
            cache::FIGURES.iter().chain([&LOG_LINES_LOST]).chain(CONTROL_FIGURES).copied();
        let figures = figures.chain(cache::coding_jobs::FIGURES.iter().copied());
        figures.chain(disk::metrics()).any(|figure| figure.name == of.name)
    };
    for described in all().iter().filter(|of| !shared(of)) {
        let help = format!("# HELP plimsoll_{} {}\n", described.name, described.help);
        assert!(text.contains(&help), "{help}");
    }
}

fn certificates() -> CertificateFigures {
    let config = Config::forward(&[]);
    CertificateFigures::new(&config, &Issued::default(), &Obtaining::default())
}

#[test]
fn histograms_add_up() {
    let samples = parse(&AllCores::new(two_cores().to_vec(), Arc::new(Nothing)).text(
        UpstreamFigures(Arc::new([]), Arc::new([])),
        QuotaFigures(None),
        certificates(),
    ));
    let of = |suffix: &str, labels: &str| {
        samples[&format!("plimsoll_request_duration_seconds{suffix}{{{labels}}}")]
    };
    let hits = "status=\"2xx\",cache=\"hit\"";
    assert_eq!((of("_count", hits), of("_sum", hits)), (2.0, 0.0007));
    let bucket = |le: &str, labels: &str| {
        samples
            .get(&format!("plimsoll_request_duration_seconds_bucket{{le=\"{le}\",{labels}}}"))
            .or_else(|| {
                let name = "plimsoll_request_duration_seconds_bucket";
                samples.get(&format!("{name}{{{labels},le=\"{le}\"}}"))
            })
            .copied()
    };
    assert_eq!(bucket("0.000256", hits), Some(1.0));
    assert_eq!(bucket("0.001024", hits), Some(2.0));
    assert_eq!(bucket("+Inf", hits), Some(2.0));
    let late = "status=\"5xx\",cache=\"miss\"";
    assert_eq!((bucket("33.554432", late), bucket("+Inf", late)), (Some(0.0), Some(1.0)));
}

#[test]
fn each_name_is_declared_once_and_says_its_unit() {
    let all = all();
    for (at, described) in all.iter().enumerate() {
        assert!(all[..at].iter().all(|before| before.name != described.name), "{}", described.name);
        assert!(!described.help.ends_with('.') && !described.help.is_empty());
        assert!(!described.name.ends_with("_total"));
    }
    let unit = |name| all.iter().find(|of| of.name == name).map(Described::unit);
    assert_eq!(unit("received_bytes"), Some("bytes"));
    assert_eq!(unit("request_duration_seconds"), Some("seconds"));
    assert_eq!(unit("requests"), Some(""));
}

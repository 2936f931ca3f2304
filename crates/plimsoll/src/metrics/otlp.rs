//! The metrics of a running server as messages of OTLP. Counters and histograms are cumulative
//! since the server's start, so that nothing is lost if a message is.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use command::failure::{Failure, misuse};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use record::Labels;
use server::Described;

use super::fetch;
use crate::cli;
use crate::otlp::Collector;

/// Sends the metrics of a server at regular times, until the process is stopped. A failure of the
/// first time ends it; later ones are reported, and the next time it sends again.
pub(crate) fn forward(flags: &cli::Metrics, url: &str) -> Result<(), Failure> {
    let admin = flags.call.admin;
    let collector = Collector::new(url)?;
    let declared = server::described_metrics();
    let mut has_sent = false;
    let mut fails = false;
    loop {
        let begun = Instant::now();
        let sent = fetch(admin).and_then(|text| {
            let message = message(&text, &declared, resource(admin), now_ns());
            collector.send("v1/metrics", &message.encode_to_vec())
        });
        let failed = sent.is_err();
        match sent {
            Err(error) if !has_sent => return Err(misuse(error)),
            Err(error) if !fails => eprintln!("plimsoll: {error}; it will be tried again"),
            Ok(()) if fails => eprintln!("plimsoll: the collector gets the metrics again"),
            _ => {}
        }
        (has_sent, fails) = (true, failed);
        thread::sleep(flags.every.saturating_sub(begun.elapsed()));
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or_default()
}

/// What identifies the server.
fn resource(admin: SocketAddr) -> Resource {
    let host = match admin.ip().is_loopback() {
        true => fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
        false => admin.ip().to_string(),
    };
    let host = host.trim();
    let attributes = vec![
        attribute("service.name", "plimsoll"),
        attribute("service.instance.id", &format!("{host}:{}", admin.port())),
        attribute("host.name", host),
    ];
    Resource { attributes, ..Resource::default() }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// A histogram, as its samples come: bounds with cumulative counts.
#[derive(Default)]
struct Buckets {
    cumulative: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

/// The samples of one metric.
#[derive(Default)]
struct Samples {
    values: Vec<(Labels, f64)>,
    histograms: BTreeMap<Labels, Buckets>,
}

/// The metrics in a text of OpenMetrics that are declared.
fn message(
    text: &str,
    declared: &[Described],
    resource: Resource,
    now_ns: u64,
) -> ExportMetricsServiceRequest {
    let mut samples: Vec<Samples> = declared.iter().map(|_| Samples::default()).collect();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // What is not a number is unknown, and left out.
        let Some((name, labels, value)) = sample(line).filter(|(.., value)| !value.is_nan()) else {
            continue;
        };
        for (metric, into) in declared.iter().zip(&mut samples) {
            if let Some(suffix) = name.strip_prefix(&metric.full_name()) {
                add(into, metric, suffix, labels.clone(), value);
            }
        }
    }
    let started = declared.iter().position(|metric| metric.name == "start_time_seconds");
    let started = started.and_then(|at| samples[at].values.first());
    let start_ns = started.map_or(0, |(_, seconds)| (seconds * 1e9) as u64);
    let metrics = declared.iter().zip(samples);
    let metrics = metrics.filter_map(|(of, samples)| metric(of, samples, start_ns, now_ns));
    let scope = InstrumentationScope {
        name: "plimsoll".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics =
        ScopeMetrics { scope: Some(scope), metrics: metrics.collect(), ..ScopeMetrics::default() };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scope_metrics],
            ..ResourceMetrics::default()
        }],
    }
}

/// A sample: `name{labels} value`.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let ends = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(ends);
    let (labels, rest) = match rest.starts_with('{') {
        true => record::labels_and_rest(rest.as_bytes())?,
        false => (Labels::new(), rest.as_bytes()),
    };
    let value = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().next()?;
    Some((name, labels, value.parse().ok()?))
}

fn add(into: &mut Samples, metric: &Described, suffix: &str, mut labels: Labels, value: f64) {
    if metric.shape.name() != "histogram" {
        if suffix.is_empty() {
            into.values.push((labels, value));
        }
        return;
    }
    let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
    let buckets = into.histograms.entry(labels).or_default();
    match (suffix, bound.and_then(|bound| bound.parse().ok())) {
        ("_bucket", Some(bound)) => buckets.cumulative.push((bound, value as u64)),
        ("_sum", None) => buckets.sum = value,
        ("_count", None) => buckets.count = value as u64,
        _ => {}
    }
}

/// A metric; nothing if it has no samples.
fn metric(of: &Described, samples: Samples, start_ns: u64, now_ns: u64) -> Option<Metric> {
    let attributes = |labels: Labels| -> Vec<KeyValue> {
        labels.iter().map(|(name, value)| attribute(name, value)).collect()
    };
    let is_counter = of.shape.name() == "counter";
    let points = samples.values.into_iter().map(|(labels, value)| NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: if is_counter { start_ns } else { 0 },
        time_unix_nano: now_ns,
        value: Some(match of.unit() {
            "seconds" | "ratio" => Value::AsDouble(value),
            _ => Value::AsInt(value as i64),
        }),
        ..NumberDataPoint::default()
    });
    let points: Vec<NumberDataPoint> = points.collect();
    let histograms = samples.histograms.into_iter().map(|(labels, mut buckets)| {
        buckets.cumulative.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0;
        let bucket_counts = buckets.cumulative.iter().map(|(_, count)| {
            let inside = count.saturating_sub(below);
            below = *count;
            inside
        });
        HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: start_ns,
            time_unix_nano: now_ns,
            count: buckets.count,
            sum: Some(buckets.sum),
            bucket_counts: bucket_counts.collect(),
            // The last bound is infinity, which OTLP does not list.
            explicit_bounds: buckets
                .cumulative
                .iter()
                .map(|(bound, _)| *bound)
                .filter(|bound| bound.is_finite())
                .collect(),
            ..HistogramDataPoint::default()
        }
    });
    let histograms: Vec<HistogramDataPoint> = histograms.collect();
    if points.is_empty() && histograms.is_empty() {
        return None;
    }
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data = match of.shape.name() {
        "counter" => {
            Data::Sum(Sum { data_points: points, aggregation_temporality, is_monotonic: true })
        }
        "gauge" => Data::Gauge(Gauge { data_points: points }),
        _ => Data::Histogram(Histogram { data_points: histograms, aggregation_temporality }),
    };
    let unit = match of.unit() {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        _ => "",
    };
    Some(Metric {
        name: format!("plimsoll_{}", of.name),
        description: of.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_sums_gauges_and_histograms() {
        let text = "# TYPE plimsoll_requests counter\nplimsoll_requests_total 5\n\
            plimsoll_start_time_seconds 1700000000.5\n\
            plimsoll_what_if_hit_ratio{memory=\"2\"} NaN\n\
            plimsoll_upstream_server_up{group=\"a \\\"b\\\"\",server=\"h:1,{}\"} 1\n\
            plimsoll_request_duration_seconds_sum{status=\"2xx\",cache=\"hit\"} 0.5\n\
            plimsoll_request_duration_seconds_count{status=\"2xx\",cache=\"hit\"} 4\n\
            plimsoll_request_duration_seconds_bucket{le=\"0.1\",status=\"2xx\",cache=\"hit\"} 1\n\
            plimsoll_request_duration_seconds_bucket{le=\"0.2\",status=\"2xx\",cache=\"hit\"} 3\n\
            plimsoll_request_duration_seconds_bucket{le=\"+Inf\",status=\"2xx\",cache=\"hit\"} 4\n\
            nonsense\nplimsoll_hits_total{le 7\nother_total 1\n# EOF\n";
        let declared = server::described_metrics();
        let sent = message(text, &declared, Resource::default(), 42);
        let metrics = &sent.resource_metrics[0].scope_metrics[0].metrics;
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        let expected = [
            "plimsoll_requests",
            "plimsoll_start_time_seconds",
            "plimsoll_request_duration_seconds",
            "plimsoll_upstream_server_up",
        ];
        assert_eq!(names, expected);
        let Some(Data::Sum(requests)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        let point = &requests.data_points[0];
        assert_eq!(point.value, Some(Value::AsInt(5)));
        assert_eq!(
            (point.start_time_unix_nano, point.time_unix_nano),
            (17_000_000_005 * 100_000_000, 42)
        );
        assert!(requests.is_monotonic && requests.aggregation_temporality == 2);
        let Some(Data::Histogram(durations)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let point = &durations.data_points[0];
        assert_eq!(point.bucket_counts, [1, 2, 1]);
        assert_eq!(point.explicit_bounds, [0.1, 0.2]);
        assert_eq!((point.count, point.sum), (4, Some(0.5)));
        assert_eq!(point.attributes, [attribute("status", "2xx"), attribute("cache", "hit")]);
        assert_eq!(metrics[2].unit, "s");
        let Some(Data::Gauge(up)) = &metrics[3].data else { panic!("{:?}", metrics[3]) };
        let labels = [attribute("group", "a \"b\""), attribute("server", "h:1,{}")];
        assert_eq!(up.data_points[0].attributes, labels);
    }
}

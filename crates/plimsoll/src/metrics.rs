//! `plimsoll metrics`: what a running server counts, or what there is to count.

use std::net::SocketAddr;

use serde::Serialize;

use crate::admin;
use crate::cli;
use crate::failure::{Failure, misuse};
use crate::output;

/// Lists the metrics, or shows those of a running server.
pub(crate) fn metrics(flags: &cli::Metrics) -> Result<(), Failure> {
    if flags.list { list(flags.json) } else { show(flags) }
}

/// One metric as it is declared.
#[derive(Serialize)]
struct Listed {
    name: String,
    kind: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
}

fn list(json: bool) -> Result<(), Failure> {
    let all: Vec<Listed> = proxy::described_metrics()
        .iter()
        .map(|metric| Listed {
            name: metric.full_name(),
            kind: metric.shape.name(),
            unit: metric.unit(),
            labels: metric.shape.labels(),
            help: metric.help,
        })
        .collect();
    if json {
        return output::print_json(&all);
    }
    let rows = all.iter().map(|one| {
        [one.name.clone(), one.kind.into(), one.unit.into(), one.labels.join(","), one.help.into()]
    });
    let head = ["METRIC", "KIND", "UNIT", "LABELS", "MEANING"].map(str::to_owned);
    output::print(table(std::iter::once(head).chain(rows).collect()))
}

/// One sample of a running server.
#[derive(Serialize)]
struct Sample {
    name: String,
    labels: String,
    value: f64,
    help: &'static str,
}

fn show(flags: &cli::Metrics) -> Result<(), Failure> {
    let admin = flags.admin;
    let text = fetch(admin).map_err(|error| {
        misuse(format!(
            "no metrics from {admin}: {error}; is it the --admin address of a running server?"
        ))
    })?;
    let declared = proxy::described_metrics();
    let samples: Vec<Sample> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        // Of a histogram the sum and the count are enough for eyes.
        .filter(|line| flags.json || !line.contains("_bucket{"))
        .filter_map(|line| sample(line, &declared))
        .collect();
    if samples.is_empty() {
        return Err(misuse(format!("{admin} does not serve this program's metrics")));
    }
    if flags.json {
        return output::print_json(&samples);
    }
    let rows = samples.iter().map(|one| {
        [one.name.clone(), one.labels.clone(), one.value.to_string(), one.help.to_owned()]
    });
    // What the system tells of itself is there or not; all else is always there.
    let missing = declared.iter().filter(|of| of.depends_on_the_system()).filter(|of| {
        let name = of.full_name();
        !samples.iter().any(|sample| sample.name == name)
    });
    let missing = missing.map(|of| {
        [of.full_name(), String::new(), "not supported here".to_owned(), of.help.to_owned()]
    });
    let head = ["METRIC", "LABELS", "VALUE", "MEANING"].map(str::to_owned);
    output::print(table(std::iter::once(head).chain(rows).chain(missing).collect()))
}

/// Understands `name{labels} value`.
fn sample(line: &str, declared: &[proxy::Described]) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let family = |metric: &&proxy::Described| {
        name.strip_prefix(&metric.full_name())
            .is_some_and(|rest| ["", "_sum", "_count", "_bucket"].contains(&rest))
    };
    Some(Sample {
        name: name.to_owned(),
        labels: labels.trim_end_matches('}').to_owned(),
        value: value.parse().ok()?,
        help: declared.iter().find(family).map_or("", |metric| metric.help),
    })
}

fn fetch(address: SocketAddr) -> std::io::Result<String> {
    let answer = admin::exchange(address, "GET", "/metrics")?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") || !body.ends_with("# EOF\n") {
        return Err(std::io::Error::other(format!("it answered {status:?}")));
    }
    Ok(body.to_owned())
}

/// Columns of one width each; the last is as long as it is.
fn table<const N: usize>(rows: Vec<[String; N]>) -> String {
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in rows {
        let padded: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(padded.join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_find_their_help() {
        let declared = proxy::described_metrics();
        let plain = sample("plimsoll_requests_total 5", &declared).unwrap();
        assert_eq!((plain.value, plain.labels.as_str()), (5.0, ""));
        assert!(plain.help.starts_with("Requests answered"));
        let line = "plimsoll_request_duration_seconds_sum{status=\"2xx\",cache=\"hit\"} 0.5";
        let of_histogram = sample(line, &declared).unwrap();
        assert_eq!(of_histogram.labels, "status=\"2xx\",cache=\"hit\"");
        assert!(!of_histogram.help.is_empty());
        assert!(sample("nonsense", &declared).is_none());
    }
}

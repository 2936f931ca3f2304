//! `plimsoll metrics`: shows the metrics of a running server, or lists all metrics.

mod grafana;
#[cfg(feature = "lab")]
mod otlp;
mod summary;

use std::net::SocketAddr;

use command::failure::{Failure, misuse};
use command::output;
use serde::Serialize;

#[cfg(not(feature = "lab"))]
use crate::absent::otlp_metrics as otlp;
use crate::admin;
use crate::cli;

/// Lists all metrics, shows or sends those of a running server, or prints what other tools need.
pub(crate) fn metrics(flags: &cli::Metrics) -> Result<(), Failure> {
    if let Some(url) = &flags.otlp {
        return otlp::forward(flags, url);
    }
    match flags {
        cli::Metrics { list: true, .. } => list(flags.call.json),
        cli::Metrics { grafana: true, .. } => {
            output::print_json(&grafana::dashboard(&server::described_metrics()))
        }
        cli::Metrics { prometheus_rules: true, .. } => output::print(server::rules::file()),
        _ => show(&flags.call, flags.all),
    }
}

/// A metric as declared.
#[derive(Serialize)]
struct Listed {
    name: String,
    kind: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
}

fn list(json: bool) -> Result<(), Failure> {
    let all: Vec<Listed> = server::described_metrics()
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
    let rows = all.iter().map(|one| Row {
        left: one.name.clone(),
        value: [one.kind, one.unit, &one.labels.join(",")].join(" ").trim().to_owned(),
        help: one.help,
    });
    output::print(laid_out(&rows.collect::<Vec<_>>(), output::width()))
}

/// One sample of a running server.
#[derive(Serialize)]
struct Sample {
    name: String,
    labels: String,
    value: f64,
    help: &'static str,
}

fn show(call: &cli::AdminCall, all: bool) -> Result<(), Failure> {
    let admin = call.admin;
    let text = fetch(admin).map_err(misuse)?;
    let declared = server::described_metrics();
    let samples: Vec<Sample> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        // For people, the sum and the count of a histogram are enough.
        .filter(|line| call.json || !line.contains("_bucket{"))
        .filter_map(|line| sample(line, &declared))
        .collect();
    if samples.is_empty() {
        return Err(misuse(format!("{admin} does not serve plimsoll's metrics")));
    }
    if call.json {
        return output::print_json(&samples);
    }
    let columns = output::width();
    let now_s = load::sys::wall_ns() as f64 / 1e9;
    let summary = summary::lines(&summary::LoadLine::ask(admin), &samples, now_s);
    output::print(labelled(&summary, columns) + "\n" + &table(&samples, &declared, all, columns))
}

/// The samples as a table. Without `all`, it has no meanings, and omits what has never happened.
fn table(samples: &[Sample], declared: &[server::Described], all: bool, columns: usize) -> String {
    let mut rows = folded(samples);
    if !all {
        let before = rows.len();
        let says = |row: &Row<'_>| !matches!(row.value.as_str(), "" | "0" | "NaN");
        // A family is omitted with its members.
        let families = rows.chunk_by(|_, next| next.left.starts_with(' '));
        let shown = families.filter(|family| family.iter().any(says)).flatten();
        rows = shown.map(|row| Row { help: "", ..row.clone() }).collect();
        let omitted = before - rows.len();
        let more = format!("{omitted} more without a value; all, with meanings: --all\n");
        return laid_out(&rows, columns) + "\n" + &more;
    }
    // Metrics that the system may not provide. All others are always present.
    let missing = declared.iter().filter(|metric| {
        let name = metric.full_name();
        metric.depends_on_the_system() && !samples.iter().any(|sample| sample.name == name)
    });
    rows.extend(missing.map(|metric| Row {
        left: metric.full_name(),
        value: "not supported here".to_owned(),
        help: metric.help,
    }));
    laid_out(&rows, columns)
}

/// Sentences, wrapped beside their labels. A sentence without a label begins at the margin.
fn labelled(lines: &[(&str, String)], columns: usize) -> String {
    let margin = lines.iter().map(|(label, _)| label.len() + 2).max().unwrap_or(0);
    let mut out = String::new();
    for (label, text) in lines {
        let margin = if label.is_empty() { 0 } else { margin };
        let wrapped = output::wrapped(text, columns.saturating_sub(margin));
        for (at, line) in wrapped.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            out += &format!("{label:<margin$}{line}\n");
        }
    }
    out
}

/// A line in a terminal.
#[derive(Clone)]
struct Row<'r> {
    left: String,
    value: String,
    help: &'r str,
}

/// The samples, grouped by family. Members that are 0 share a line, and a histogram is shown as its
/// count and mean.
fn folded(samples: &[Sample]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let family = |sample: &Sample| match sample.name.strip_suffix("_sum") {
        Some(name) => name.to_owned(),
        None => sample.name.trim_end_matches("_count").to_owned(),
    };
    for members in samples.chunk_by(|a, b| family(a) == family(b)) {
        let [first, ..] = members else { continue };
        if let ([one], "") = (members, first.labels.as_str()) {
            let value = number(one.value);
            rows.push(Row { left: one.name.clone(), value, help: one.help });
            continue;
        }
        rows.push(Row { left: family(first), value: String::new(), help: first.help });
        let never = |member: &&Sample| member.value == 0.0 && member.name.ends_with("_total");
        let zeros = members.iter().filter(never).count();
        let folds = zeros > FOLDED_MIN;
        let shown = members.iter().filter(|member| !(folds && never(member)));
        for member in shown.filter(|member| !member.name.ends_with("_sum")) {
            let sum = format!("{}_sum", family(first));
            let sum = members.iter().find(|it| it.name == sum && it.labels == member.labels);
            let mean = sum.map(|sum| format!(", mean {:.6} s", sum.value / member.value.max(1.0)));
            let left = format!("  {}", member.labels);
            let value = format!("{}{}", number(member.value), mean.unwrap_or_default());
            rows.push(Row { left, value, help: "" });
        }
        if folds {
            let all = if zeros == members.len() { "all" } else { "all others" };
            rows.push(Row { left: format!("  {all} ({zeros})"), value: "0".into(), help: "" });
        }
    }
    rows
}

/// A number with at most six decimals.
fn number(value: f64) -> String {
    match value.fract() == 0.0 {
        true => value.to_string(),
        false => format!("{value:.6}").trim_end_matches('0').to_owned(),
    }
}

/// Names, values and meanings. If the terminal is too narrow, the meaning is on the next line.
fn laid_out(rows: &[Row<'_>], columns: usize) -> String {
    let widest = |of: fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let left = widest(|row| row.left.chars().count());
    let value = widest(|row| row.value.chars().count());
    let beside = left + value + 4;
    let has_meanings = rows.iter().any(|row| !row.help.is_empty());
    let is_wide = columns >= beside + if has_meanings { MEANING_MIN } else { 0 };
    let mut out = String::new();
    for row in rows {
        let line = match is_wide {
            true => format!("{:<left$}  {:>value$}  ", row.left, row.value),
            false => {
                let pad = columns.saturating_sub(row.left.chars().count() + 2);
                format!("{}  {:>pad$}", row.left, row.value)
            }
        };
        let indent = if is_wide { beside } else { 4 };
        let mut help = output::wrapped(row.help, columns.saturating_sub(indent)).into_iter();
        let first = if is_wide { help.next().unwrap_or_default() } else { String::new() };
        out += (line + &first).trim_end();
        out.push('\n');
        help.for_each(|text| out += &format!("{:indent$}{text}\n", ""));
    }
    out
}

/// If more members of a counter than this are 0, they share a line.
const FOLDED_MIN: usize = 1;

/// The meaning is on the line of its value if it has at least this many columns.
const MEANING_MIN: usize = 36;

/// Parses `name{labels} value`.
fn sample(line: &str, declared: &[server::Described]) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let family = |metric: &&server::Described| {
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

/// The text of `/metrics`, or why there is none.
fn fetch(address: SocketAddr) -> Result<String, String> {
    let refused = |what: &dyn std::fmt::Display| {
        format!("no metrics from {address}: {what}; is it the --admin address of a running server?")
    };
    let answer = admin::exchange(address, "GET", "/metrics").map_err(|error| refused(&error))?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") || !body.ends_with("# EOF\n") {
        return Err(refused(&format!("it answered {status:?}")));
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = labelled(&[("", "a b ".repeat(90)), ("Label", "c ".repeat(90))], 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("\nLabel  c c"), "{text}");
        let declared = server::described_metrics();
        let text = "plimsoll_requests_total 5\nplimsoll_misses_total 0\n\
            plimsoll_refusals_total{rule=\"a\"} 0\n\
            plimsoll_refusals_total{rule=\"b\"} 7\nplimsoll_refusals_total{rule=\"c\"} 0\n\
            plimsoll_request_duration_seconds_sum{status=\"2xx\",cache=\"hit\"} 0.5\n\
            plimsoll_request_duration_seconds_count{status=\"2xx\",cache=\"hit\"} 4\n";
        let samples: Vec<_> = text.lines().filter_map(|line| sample(line, &declared)).collect();
        let rows = folded(&samples);
        for columns in [60, 80, 120, 200] {
            let out = laid_out(&rows, columns);
            assert!(out.lines().all(|line| line.chars().count() <= columns), "{columns}\n{out}");
            for part in ["rule=\"b\"", "all others (2)", "4, mean 0.125000 s"] {
                assert!(out.contains(part), "{part}: {out}");
            }
            let shown = [true, false].map(|all| table(&samples, &declared, all, columns));
            for out in &shown {
                assert!(out.lines().all(|line| line.chars().count() <= columns), "{out}");
                assert!(out.contains("plimsoll_requests_total") && out.contains("rule=\"b\""));
            }
            assert!(shown[0].contains("misses_total") && !shown[1].contains("misses_total"));
            assert!(shown[1].contains("--all"), "{}", shown[1]);
        }
    }

    /// The names in an expression of PromQL that are metrics, and those that are recorded.
    fn names(expr: &str) -> Vec<&str> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        expr.split(|c| !is_name(c)).filter(|name| name.contains("plimsoll_")).collect()
    }

    #[test]
    fn panels_and_rules_name_only_metrics_that_exist_and_every_metric_has_a_panel() {
        let declared = server::described_metrics();
        let mut known = std::collections::BTreeSet::new();
        for metric in &declared {
            match metric.shape.name() {
                "histogram" => known.insert(metric.full_name() + "_bucket"),
                _ => known.insert(metric.full_name()),
            };
        }
        let buckets = |name: &str| Some(format!("{}_bucket", name.strip_suffix("_count")?));
        let of_histogram = |name: &str| buckets(name).filter(|name| known.contains(name));
        let shows = |name: &str| of_histogram(name).unwrap_or_else(|| name.to_owned());
        let dashboard = grafana::dashboard(&declared);
        let (mut shown, mut ids) = (std::collections::BTreeSet::new(), Vec::new());
        let mut panels: Vec<&serde_json::Value> =
            dashboard["panels"].as_array().unwrap().iter().collect();
        while let Some(panel) = panels.pop() {
            ids.push(panel["id"].as_u64().unwrap());
            panels.extend(panel["panels"].as_array().into_iter().flatten());
            let (title, row) = (panel["title"].as_str().unwrap(), panel["type"] == "row");
            assert!(row || !panel["description"].as_str().unwrap().is_empty(), "{title}");
            assert!(row || !panel["targets"].as_array().unwrap().is_empty(), "{title}");
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expr = target["expr"].as_str().unwrap();
                shown.extend(names(expr).into_iter().map(shows));
                let selectors = expr.matches("{instance=~\"$instance\"").count();
                assert_eq!(selectors, names(expr).len(), "{expr}");
            }
        }
        assert_eq!(shown, known);
        ids.sort_unstable();
        assert!(ids.windows(2).all(|two| two[0] < two[1]), "{ids:?}");

        let rules = server::rules::file();
        let recorded: Vec<&str> =
            rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
        assert!(recorded.len() > 8);
        for expr in rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
            assert!(!names(expr).is_empty(), "{expr}");
            for name in names(expr) {
                assert!(
                    recorded.contains(&name) || known.contains(&shows(name)),
                    "{name} in {expr}"
                );
            }
        }
    }

    #[test]
    fn samples_are_matched_with_their_help() {
        let declared = server::described_metrics();
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

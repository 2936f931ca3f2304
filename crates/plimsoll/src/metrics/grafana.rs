//! A dashboard for Grafana, made from the list of metrics: the first row has what is computed from
//! them, and every metric has a panel in the row of its subject.

use serde_json::{Value, json};
use server::Described;

use server::rules::RECORDED;

/// The rows after the first, and how the names of their metrics begin. A metric is in the first row
/// that matches. The last one takes the remainder.
const ROWS: &[(&str, &[&str])] = &[
    ("Overload", &["core_", "connections_shed", "memory_stall", "memory_shrinks"]),
    ("Quotas", &["quota_"]),
    ("Upstreams", &["upstream_"]),
    ("TLS with clients", &["tls_"]),
    ("Disk", &["disk_"]),
    ("Store", &["store_", "arriving_", "fetches_", "purge", "what_if_", "bodies_repaired"]),
    ("Connections", &["connections", "tunnel", "timeouts", "proxy_headers", "client_held"]),
    (
        "Requests",
        &[
            "request",
            "hits",
            "misses",
            "revalidated",
            "collapsed",
            "passed",
            "not_modified",
            "client_errors",
            "refusals",
            "received_bytes",
            "sent_bytes",
        ],
    ),
    ("Process and event loop", &[""]),
];

/// Panels side by side, and the size of one; Grafana's grid has 24 columns.
const PANELS_BESIDE: usize = 3;
const PANEL_WIDTH: usize = 24 / PANELS_BESIDE;
const PANEL_HEIGHT: usize = 7;

/// The dashboard.
pub(super) fn dashboard(metrics: &[Described]) -> Value {
    let mut panels = Vec::new();
    let mut y = 0;
    let overview = RECORDED.iter().map(|one| {
        let expr = selected(&one.expr("$__rate_interval"));
        panel(one.title, one.help, one.unit, &[(expr, "{{instance}}".to_owned())])
    });
    add_row(&mut panels, &mut y, "Overview", overview.collect(), false);
    for (at, (title, _)) in ROWS.iter().enumerate() {
        let of_row = metrics.iter().filter(|metric| row_of(metric) == at);
        add_row(&mut panels, &mut y, title, of_row.map(of_metric).collect(), true);
    }
    for (id, panel) in (1..).zip(&mut panels) {
        panel["id"] = json!(id * 1000);
        let nested = panel.get_mut("panels").and_then(Value::as_array_mut);
        for (below, nested) in (1..).zip(nested.into_iter().flatten()) {
            nested["id"] = json!(id * 1000 + below);
        }
    }
    json!({
        "uid": "plimsoll",
        "title": "Plimsoll",
        "tags": ["plimsoll"],
        "schemaVersion": 39,
        "editable": true,
        "time": { "from": "now-1h", "to": "now" },
        "refresh": "10s",
        "templating": { "list": [
            {
                "name": "datasource", "label": "Data source",
                "type": "datasource", "query": "prometheus",
            },
            {
                "name": "instance", "label": "Instance", "type": "query",
                "datasource": source(),
                "query": { "query": "label_values(plimsoll_requests_total, instance)" },
                "refresh": 2, "sort": 1, "multi": true, "includeAll": true,
                "current": { "text": "All", "value": "$__all" },
            },
        ] },
        "panels": panels,
    })
}

/// The place in [`ROWS`] of a metric.
fn row_of(metric: &Described) -> usize {
    let begins = |(_, names): &(&str, &[&str])| names.iter().any(|it| metric.name.starts_with(it));
    ROWS.iter().position(begins).unwrap_or(ROWS.len() - 1)
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Adds a row and its panels. Grafana asks for the data of a collapsed row when it is opened; its
/// panels are in the row.
fn add_row(
    panels: &mut Vec<Value>,
    y: &mut usize,
    title: &str,
    mut of_row: Vec<Value>,
    collapsed: bool,
) {
    let at = *y + 1;
    for (place, panel) in of_row.iter_mut().enumerate() {
        let (column, line) = (place % PANELS_BESIDE, place / PANELS_BESIDE);
        panel["gridPos"] = json!({
            "x": column * PANEL_WIDTH, "y": at + line * PANEL_HEIGHT,
            "w": PANEL_WIDTH, "h": PANEL_HEIGHT,
        });
    }
    let lines = of_row.len().div_ceil(PANELS_BESIDE);
    let (within, after) = if collapsed { (of_row, Vec::new()) } else { (Vec::new(), of_row) };
    panels.push(json!({
        "type": "row", "title": title, "collapsed": collapsed, "panels": within,
        "gridPos": { "x": 0, "y": *y, "w": 24, "h": 1 },
    }));
    *y += 1 + if collapsed { 0 } else { lines * PANEL_HEIGHT };
    panels.extend(after);
}

/// The panel of one metric: the rate of a counter, quantiles of a histogram.
fn of_metric(metric: &Described) -> Value {
    let name = metric.full_name();
    let labels = metric.shape.labels();
    let legend = |labels: &[&str]| {
        let named = ["instance"].iter().chain(labels).map(|label| format!("{{{{{label}}}}}"));
        named.collect::<Vec<_>>().join(" ")
    };
    let title = metric.name.replace('_', " ");
    let unit = |units: [&'static str; 4]| match metric.unit() {
        "seconds" => units[0],
        "bytes" => units[1],
        "ratio" => units[2],
        _ => units[3],
    };
    match metric.shape.name() {
        "counter" => {
            let expr = format!("rate({}[$__rate_interval])", selected(&name));
            // A second per second is a share.
            let unit = unit(["percentunit", "Bps", "short", "cps"]);
            panel(&format!("{title} per second"), metric.help, unit, &[(expr, legend(labels))])
        }
        "gauge" if name.ends_with("_time_seconds") => {
            let expr = format!("time() - {}", selected(&name));
            panel(
                &format!("time since {}", title.replace(" time seconds", "")),
                metric.help,
                "s",
                &[(expr, legend(labels))],
            )
        }
        "gauge" => {
            let unit = unit(["s", "bytes", "percentunit", "short"]);
            panel(&title, metric.help, unit, &[(selected(&name), legend(labels))])
        }
        _ => {
            let targets: Vec<(String, String)> = labels
                .iter()
                .flat_map(|label| [(*label, 0.5), (label, 0.99)])
                .map(|(label, quantile)| {
                    let rate = format!(
                        "rate({}[$__rate_interval])",
                        selected(&(name.clone() + "_bucket"))
                    );
                    let expr = format!(
                        "histogram_quantile({quantile}, sum by (instance, {label}, le) ({rate}))"
                    );
                    (expr, format!("{} p{}", legend(&[label]), quantile * 100.0))
                })
                .collect();
            panel(&title, metric.help, unit(["s", "bytes", "percentunit", "short"]), &targets)
        }
    }
}

/// The expression, for the chosen instances: every metric in it gets the selector.
fn selected(expr: &str) -> String {
    let mut out = String::new();
    let mut rest = expr;
    while let Some(at) = rest.find("plimsoll_") {
        let name = &rest[at..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        out += &rest[..at + end];
        rest = &name[end..];
        out += "{instance=~\"$instance\"";
        match rest.strip_prefix('{') {
            Some(labels) => {
                out.push(',');
                rest = labels;
            }
            None => out.push('}'),
        }
    }
    out + rest
}

/// A panel with these expressions and legends.
fn panel(title: &str, help: &str, unit: &str, targets: &[(String, String)]) -> Value {
    let targets: Vec<Value> = targets
        .iter()
        .zip('A'..='Z')
        .map(|((expr, legend), name)| {
            let name = name.to_string();
            json!({ "refId": name, "expr": expr, "legendFormat": legend, "datasource": source() })
        })
        .collect();
    json!({
        "type": "timeseries",
        "title": title,
        "description": help,
        "datasource": source(),
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "targets": targets,
    })
}

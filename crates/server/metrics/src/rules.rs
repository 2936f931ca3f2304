//! Rules for Prometheus, as a file: what is recorded, and what alerts. The dashboard's first row
//! shows what is recorded.
//!
//! Names of recorded series are those that Prometheus suggests: `level:metric:operations`.

use std::fmt::Write;

/// A value that is computed from metrics.
pub struct Recorded {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// Title of its panel.
    pub title: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Its unit, as Grafana names it.
    pub unit: &'static str,
    /// How it is computed, in PromQL. `WINDOW` is the time that is averaged over.
    expr: &'static str,
}

impl Recorded {
    /// Its expression, averaged over this time.
    pub fn expr(&self, window: &str) -> String {
        self.expr.replace("WINDOW", window)
    }
}

/// All of them, in the order of the dashboard.
pub const RECORDED: &[Recorded] = &[
    Recorded {
        name: "instance:plimsoll_requests:rate5m",
        title: "Requests",
        help: "Requests answered per second, whatever the status",
        unit: "reqps",
        expr: "rate(plimsoll_requests_total[WINDOW])",
    },
    Recorded {
        name: "instance:plimsoll_hits:ratio_rate5m",
        title: "Hit ratio",
        help: "Share of the requests that were answered from the store without asking the origin",
        unit: "percentunit",
        expr: "rate(plimsoll_hits_total[WINDOW]) / (rate(plimsoll_requests_total[WINDOW]) > 0)",
    },
    Recorded {
        name: "instance:plimsoll_request_duration_seconds:p50_rate5m",
        title: "Median latency",
        help: "Median time from the end of a request's head to the last byte of its response",
        unit: "s",
        expr: "histogram_quantile(0.5, sum without (status, cache) \
            (rate(plimsoll_request_duration_seconds_bucket[WINDOW])))",
    },
    Recorded {
        name: "instance:plimsoll_request_duration_seconds:p99_rate5m",
        title: "99th percentile of latency",
        help: "99th percentile of the time from the end of a request's head to the last byte of \
            its response",
        unit: "s",
        expr: "histogram_quantile(0.99, sum without (status, cache) \
            (rate(plimsoll_request_duration_seconds_bucket[WINDOW])))",
    },
    Recorded {
        name: "instance:plimsoll_core_cpu:max_rate5m",
        title: "CPU use of the busiest core",
        help: "CPU time per second of the core that used most: at 1 there is no headroom",
        unit: "percentunit",
        expr: "max without (core) (rate(plimsoll_core_cpu_seconds_total[WINDOW]))",
    },
    Recorded {
        name: "instance:plimsoll_headroom_requests:sum_rate5m",
        title: "Headroom",
        help: "How many more requests per second the cores have CPU time for, by the cost of one \
            more request",
        unit: "reqps",
        expr: "sum without (core) ((1 - rate(plimsoll_core_cpu_seconds_total[WINDOW])) \
            / (plimsoll_core_request_cpu_seconds > 0))",
    },
    Recorded {
        name: "instance:plimsoll_unavailable:ratio_rate5m",
        title: "Requests without a usable answer",
        help: "Share of the requests that were answered with 502, 503 or 504 because of overload \
            or of an upstream, or with an error 5xx of the application",
        unit: "percentunit",
        expr: UNAVAILABLE,
    },
];

/// The share of requests that count against the error budget.
const UNAVAILABLE: &str = "(sum without (rule) (rate(plimsoll_refusals_total\
    {rule=~\"overload|passwords-busy|fault|auth-failed\"}[WINDOW])) + (sum without (status, cache) \
    (rate(plimsoll_request_duration_seconds_count{status=\"5xx\",cache!=\"refused\"}[WINDOW])) or \
    0 * rate(plimsoll_requests_total[WINDOW]))) / (rate(plimsoll_requests_total[WINDOW]) > 0)";

/// The share of requests that may go without a usable answer.
const ERROR_BUDGET: f64 = 0.001;

/// Alerts when the budget is spent this many times faster than it lasts, over both times. See "The
/// Site Reliability Workbook", chapter 5.
struct Burn {
    times: f64,
    long: &'static str,
    short: &'static str,
    severity: &'static str,
}

const BURNS: [Burn; 3] = [
    Burn { times: 14.4, long: "1h", short: "5m", severity: "critical" },
    Burn { times: 6.0, long: "6h", short: "30m", severity: "critical" },
    Burn { times: 1.0, long: "3d", short: "6h", severity: "warning" },
];

struct Alert<'t> {
    name: &'t str,
    expr: &'t str,
    /// How long the expression must hold.
    lasts: &'t str,
    severity: &'t str,
    summary: &'t str,
}

const ALERTS: &[Alert<'_>] = &[
    Alert {
        name: "PlimsollLittleHeadroom",
        expr: "instance:plimsoll_core_cpu:max_rate5m > 0.8",
        lasts: "15m",
        severity: "warning",
        summary: "The busiest core of {{ $labels.instance }} uses \
            {{ $value | humanizePercentage }} of its CPU",
    },
    Alert {
        name: "PlimsollShedding",
        expr: "max without (core) (plimsoll_core_shed_ratio) > 0",
        lasts: "1m",
        severity: "critical",
        summary: "{{ $labels.instance }} is overloaded: a core answers \
            {{ $value | humanizePercentage }} of the requests for an upstream with 503",
    },
    Alert {
        name: "PlimsollUpstreamServerDown",
        expr: "plimsoll_upstream_server_up == 0",
        lasts: "1m",
        severity: "warning",
        summary: "{{ $labels.instance }}: the server {{ $labels.server }} of the group \
            {{ $labels.group }} is down or ejected",
    },
    Alert {
        name: "PlimsollUpstreamGroupDown",
        expr: "max without (server) (plimsoll_upstream_server_up) == 0",
        lasts: "1m",
        severity: "critical",
        summary: "{{ $labels.instance }}: every server of the group {{ $labels.group }} is down",
    },
    Alert {
        name: "PlimsollDiskOff",
        expr: "plimsoll_disk_up == 0",
        lasts: "1m",
        severity: "critical",
        summary: "{{ $labels.instance }} does not write to its disk any more, after failures",
    },
    Alert {
        name: "PlimsollDiskErrors",
        expr: "increase(plimsoll_disk_read_errors_total[15m]) \
            + increase(plimsoll_disk_write_errors_total[15m]) \
            + increase(plimsoll_disk_sync_errors_total[15m]) \
            + increase(plimsoll_disk_bad_blocks_total[15m]) > 0",
        lasts: "0m",
        severity: "warning",
        summary: "{{ $labels.instance }}: the disk failed or returned wrong data in the last 15 \
            minutes",
    },
    Alert {
        name: "PlimsollFewDescriptors",
        expr: "plimsoll_process_descriptors / plimsoll_process_descriptors_max > 0.9",
        lasts: "5m",
        severity: "warning",
        summary: "{{ $labels.instance }} has {{ $value | humanizePercentage }} of the descriptors \
            open that it may open",
    },
    Alert {
        name: "PlimsollReloadFailed",
        expr: "increase(plimsoll_config_reload_failures_total[15m]) > 0",
        lasts: "0m",
        severity: "warning",
        summary: "{{ $labels.instance }} refused a new configuration and keeps the old one",
    },
    Alert {
        name: "PlimsollCertificateExpires",
        expr: "plimsoll_certificate_expiry_seconds - time() \
            < clamp_max(plimsoll_certificate_lifetime_seconds / 5, 14 * 86400)",
        lasts: "10m",
        severity: "warning",
        summary: "{{ $labels.instance }}: the certificate for {{ $labels.name }} expires in \
            {{ $value | humanizeDuration }}",
    },
    Alert {
        name: "PlimsollCertificateExpiresSoon",
        expr: "plimsoll_certificate_expiry_seconds - time() \
            < clamp_max(plimsoll_certificate_lifetime_seconds / 20, 2 * 86400)",
        lasts: "0m",
        severity: "critical",
        summary: "{{ $labels.instance }}: the certificate for {{ $labels.name }} expires in \
            {{ $value | humanizeDuration }}",
    },
    Alert {
        name: "PlimsollCertificateNotObtained",
        expr: "plimsoll_acme_failures > 0",
        lasts: "6h",
        severity: "warning",
        summary: "{{ $labels.instance }}: no certificate for {{ $labels.name }} is obtained; \
            /certificates of its admin address says why",
    },
    Alert {
        name: "PlimsollLogLinesLost",
        expr: "increase(plimsoll_log_lines_lost_total[15m]) > 0",
        lasts: "0m",
        severity: "warning",
        summary: "{{ $labels.instance }} lost lines of its access log",
    },
];

/// The file of rules, as YAML.
pub fn file() -> String {
    let mut out = String::from(
        "# Rules for Prometheus, printed by `plimsoll metrics --prometheus-rules`.\n\
         groups:\n- name: plimsoll-recorded\n  rules:\n",
    );
    for one in RECORDED {
        recorded(&mut out, one.name, &one.expr("5m"));
    }
    for window in ["30m", "1h", "6h", "3d"] {
        recorded(&mut out, &unavailable(window), &UNAVAILABLE.replace("WINDOW", window));
    }
    out += "- name: plimsoll-alerts\n  rules:\n";
    for one in ALERTS {
        alert(&mut out, one);
    }
    for Burn { times, long, short, severity } in BURNS {
        let limit = times * ERROR_BUDGET;
        let expr =
            format!("{} > {limit:.4} and {} > {limit:.4}", unavailable(long), unavailable(short));
        let summary = format!(
            "{{{{ $labels.instance }}}} spends its error budget {times} times too fast: \
             {{{{ $value | humanizePercentage }}}} of the requests in {long} had no usable answer"
        );
        let name = &format!("PlimsollErrorBudgetBurn{long}");
        alert(&mut out, &Alert { name, expr: &expr, lasts: "2m", severity, summary: &summary });
    }
    out
}

/// Name of the share of requests without a usable answer.
fn unavailable(window: &str) -> String {
    format!("instance:plimsoll_unavailable:ratio_rate{window}")
}

/// A text of JSON is also one of YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn recorded(out: &mut String, name: &str, expr: &str) {
    let _ = writeln!(out, "  - record: {name}\n    expr: {}", quoted(expr));
}

fn alert(out: &mut String, of: &Alert<'_>) {
    let _ = writeln!(
        out,
        "  - alert: {}\n    expr: {}\n    for: {}\n    labels:\n      severity: {}\n    \
         annotations:\n      summary: {}",
        of.name,
        quoted(of.expr),
        of.lasts,
        of.severity,
        quoted(of.summary)
    );
}

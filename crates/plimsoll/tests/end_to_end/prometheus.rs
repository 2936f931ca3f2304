//! Prometheus reads our metrics and our rules, and answers the queries of our dashboard.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{
    CommandOutput, Home, OurServer, Running, SOON, free_port, get, output_file, plimsoll, program,
    run, wait_for,
};

/// Runs promtool, with a file as its input.
fn promtool(args: &[&str], input: &str) -> CommandOutput {
    let mut command = Command::new("sh");
    let tool = program("promtool", "prometheus");
    command.args(["-c", "exec \"$0\" \"$@\" <\"$INPUT\""]).arg(tool).args(args);
    command.env("INPUT", input);
    run(command, SOON)
}

/// The text in the older format that promtool checks: its families have the names of their samples,
/// and there are no units.
fn older_format(text: &str) -> String {
    let mut out = String::new();
    let types: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(what), Some(name), Some(rest)) => {
                let total = if types.contains(&(name, "counter")) { "_total" } else { "" };
                out += &format!("# {what} {name}{total} {rest}");
            }
            _ => out += line,
        }
        out.push('\n');
    }
    out
}

/// Each alert fires for the instance `bad`, and none for the instance `good`.
const ALERTS: &str = r#"
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - series: 'plimsoll_upstream_server_up{instance="bad",group="g",server="a:1"}'
    values: '1x10 0x50'
  - series: 'plimsoll_upstream_server_up{instance="good",group="g",server="a:1"}'
    values: '1x60'
  - series: 'plimsoll_core_cpu_seconds_total{instance="bad",core="0"}'
    values: '0+30x60'
  - series: 'plimsoll_core_cpu_seconds_total{instance="bad",core="1"}'
    values: '0+54x60'
  - series: 'plimsoll_core_cpu_seconds_total{instance="good",core="0"}'
    values: '0+30x60'
  - series: 'plimsoll_core_request_cpu_seconds{instance="good",core="0"}'
    values: '0.001x60'
  - series: 'plimsoll_requests_total{instance="bad"}'
    values: '0+6000x60'
  - series: 'plimsoll_hits_total{instance="bad"}'
    values: '0+4500x60'
  - series: 'plimsoll_refusals_total{instance="bad",rule="overload"}'
    values: '0+100x60'
  - series: 'plimsoll_refusals_total{instance="bad",rule="fault"}'
    values: '0+20x60'
  - series: 'plimsoll_refusals_total{instance="bad",rule="client"}'
    values: '0+900x60'
  - series: 'plimsoll_requests_total{instance="good"}'
    values: '0+6000x60'
  - series: 'plimsoll_refusals_total{instance="good",rule="fault"}'
    values: '0+3x60'
  - series: 'plimsoll_disk_up{instance="bad"}'
    values: '1x10 0x50'
  - series: 'plimsoll_disk_up{instance="good"}'
    values: '1x60'
  - series: 'plimsoll_certificate_expiry_seconds{instance="bad",name="a"}'
    values: '864000x60'
  - series: 'plimsoll_certificate_lifetime_seconds{instance="bad",name="a"}'
    values: '7776000x60'
  - series: 'plimsoll_certificate_expiry_seconds{instance="good",name="b"}'
    values: '86400x60'
  - series: 'plimsoll_certificate_lifetime_seconds{instance="good",name="b"}'
    values: '259200x60'
  promql_expr_test:
  - expr: instance:plimsoll_hits:ratio_rate5m
    eval_time: 30m
    exp_samples: [{labels: 'instance:plimsoll_hits:ratio_rate5m{instance="bad"}', value: 0.75}]
  - expr: instance:plimsoll_headroom_requests:sum_rate5m
    eval_time: 30m
    exp_samples:
    - {labels: 'instance:plimsoll_headroom_requests:sum_rate5m{instance="good"}', value: 500}
  alert_rule_test:
  - alertname: PlimsollUpstreamServerDown
    eval_time: 30m
    exp_alerts:
    - exp_labels: {severity: warning, instance: bad, group: g, server: "a:1"}
      exp_annotations: {summary: "bad: the server a:1 of the group g is down or ejected"}
  - alertname: PlimsollUpstreamGroupDown
    eval_time: 30m
    exp_alerts:
    - exp_labels: {severity: critical, instance: bad, group: g}
      exp_annotations: {summary: "bad: every server of the group g is down"}
  - alertname: PlimsollLittleHeadroom
    eval_time: 30m
    exp_alerts:
    - exp_labels: {severity: warning, instance: bad}
      exp_annotations: {summary: "The busiest core of bad uses 90% of its CPU"}
  - alertname: PlimsollDiskOff
    eval_time: 30m
    exp_alerts:
    - exp_labels: {severity: critical, instance: bad}
      exp_annotations: {summary: "bad does not write to its disk any more, after failures"}
  - alertname: PlimsollCertificateExpires
    eval_time: 30m
    exp_alerts:
    - exp_labels: {severity: warning, instance: bad, name: a}
      exp_annotations: {summary: "bad: the certificate for a expires in 9d 23h 30m 0s"}
  - alertname: PlimsollCertificateExpiresSoon
    eval_time: 30m
    exp_alerts: []
  - alertname: PlimsollErrorBudgetBurn1h
    eval_time: 30m
    exp_alerts:
    - exp_labels: {severity: critical, instance: bad}
      exp_annotations:
        summary: "bad spends its error budget 14.4 times too fast: 2% of the requests in 1h \
          had no usable answer"
"#;

#[test]
fn prometheus_reads_our_metrics_and_rules() {
    let home = Home::new();
    let origin = OurServer::origin();
    let server = OurServer::serve(&["--admin", "127.0.0.1:0", "--origin", &origin.url()]);
    get(server.address(), "/obj/1");
    let text = get(server.admin(), "/metrics");
    let (_, text) = text.split_once("\r\n\r\n").unwrap();
    for rule in ["overload", "passwords-busy", "fault"] {
        assert!(text.contains(&format!("{{rule=\"{rule}\"}}")), "the rules count {rule}: {text}");
    }
    // Zeros would say that a disk has failed: a critical alert, a minute after each start.
    assert!(!text.contains("plimsoll_disk_"), "without a disk there are no figures of one");
    let none = home.write("none", "");
    let checked = promtool(&["check", "metrics"], &home.write("metrics", older_format(text)));
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
    let rules =
        home.write("rules.yml", plimsoll(&["metrics", "--prometheus-rules"]).succeeded().stdout);
    promtool(&["check", "rules", &rules], &none).succeeded();
    promtool(&["test", "rules", &home.write("alerts.yml", ALERTS)], &none).succeeded();

    let prometheus = Prometheus::start(&home, &server.admin().to_string());
    wait_for("a recorded rate", SOON, || {
        get(server.address(), "/obj/1");
        let rate = prometheus.query("instance:plimsoll_requests:rate5m");
        (rate["result"][0]["value"][1].as_str()?.parse::<f64>().ok()? > 0.0).then_some(())
    });
    assert_eq!(prometheus.query("up")["result"][0]["value"][1], "1");
    let groups = prometheus.get("/api/v1/rules");
    let groups = groups["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|of| of["rules"].as_array().unwrap()).collect();
    assert!(rules.len() > 20, "{rules:?}");
    // A group is evaluated as a whole.
    for rule in rules.iter().filter(|rule| rule["health"] != "unknown") {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let dashboard = plimsoll(&["metrics", "--grafana"]).succeeded().json();
    let mut panels: Vec<&Value> = dashboard["panels"].as_array().unwrap().iter().collect();
    let (mut queries, mut answered) = (0, 0);
    while let Some(panel) = panels.pop() {
        panels.extend(panel["panels"].as_array().into_iter().flatten());
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "10s").replace("$instance", ".*");
            queries += 1;
            answered +=
                prometheus.query(&query)["result"].as_array().map_or(0, |of| of.len().min(1));
        }
    }
    // Without a disk, there are no figures about it.
    assert!(queries > 130 && answered > 80, "{answered} of {queries}");
}

/// The whole answer to a request. In HTTP/1.0, it is not chunked.
fn answer(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

struct Prometheus {
    _child: Running,
    port: u16,
}

impl Prometheus {
    fn start(home: &Home, target: &str) -> Prometheus {
        let config = home.write(
            "prometheus.yml",
            format!(
                "global: {{ scrape_interval: 250ms, evaluation_interval: 250ms }}\n\
                 rule_files: [rules.yml]\n\
                 scrape_configs:\n\
                 - job_name: plimsoll\n  static_configs: [{{ targets: [\"{target}\"] }}]\n"
            ),
        );
        let port = free_port();
        let log: File = output_file(home, "prometheus.log");
        let mut command = Command::new(program("prometheus", "prometheus"));
        command
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", home.at("prometheus")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = Running::start(&mut command);
        wait_for("Prometheus", SOON, || {
            assert!(!child.has_ended(), "{}", home.read("prometheus.log"));
            let answer = answer(port, "/-/ready").ok()?;
            answer.starts_with("HTTP/1.0 200").then_some(())
        });
        Prometheus { _child: child, port }
    }

    /// The data of an answer of its API.
    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let answer = answer(self.port, path).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {answer}"));
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].clone()
    }

    #[track_caller]
    fn query(&self, expr: &str) -> Value {
        let encoded: String = expr.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.get(&format!("/api/v1/query?query={encoded}"))
    }
}

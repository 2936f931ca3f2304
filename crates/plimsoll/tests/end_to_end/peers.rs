//! Load lines of real servers: Debian's Squid, nginx and HAProxy, and ours.
//!
//! The assertions hold on any machine: there is a line, it rises, and it contains every request.
//! The cost of a server is measured by the bench, not here.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Home, OurServer, Recording, Running, SOON, am_root, free_port, id, output_file, plimsoll,
    program, wait_for,
};

/// A server to record.
struct Peer<'a> {
    pid: String,
    /// Its log, in the directory of the test.
    log: &'a str,
    /// The name of the log's format that `record` must detect.
    format: &'a str,
    url: String,
    /// The highest rate of the load: far from idle, but reachable by an unoptimised build.
    rate_max: u32,
}

/// Rates of the load, in twelfths of the highest. They are not in order: on a rising load, a change
/// over time would look like a change with the rate.
const TWELFTHS: [u32; 12] = [6, 1, 11, 4, 8, 2, 12, 5, 9, 3, 10, 7];

#[test]
fn nightly_alone_nginx_has_a_load_line() {
    let nginx = program("nginx", "nginx-light");
    let home = Home::alone();
    for dir in ["nginx", "www"] {
        fs::create_dir(home.path().join(dir)).unwrap();
    }
    home.write("www/index.html", "x".repeat(1024));
    let (at, port) = (home.path().display(), free_port());
    let user = if am_root() { "user root;" } else { "" };
    let conf = home.write(
        "nginx.conf",
        format!(
            "daemon off; pid {at}/nginx/pid; error_log {at}/nginx/error.log; worker_processes 1;
             {user}
             events {{ worker_connections 4096; }}
             http {{
               access_log {at}/access.log combined;
               keepalive_requests 1000000;
               client_body_temp_path {at}/nginx/b; proxy_temp_path {at}/nginx/p;
               fastcgi_temp_path {at}/nginx/f; uwsgi_temp_path {at}/nginx/u;
               scgi_temp_path {at}/nginx/s;
               server {{ listen 127.0.0.1:{port}; root {at}/www; }}
             }}"
        ),
    );
    let mut server = Running::start(
        Command::new(nginx)
            .args(["-e", &home.at("nginx/error.log"), "-c", &conf])
            .stdout(Stdio::null())
            .stderr(output_file(&home, "nginx.err")),
    );
    ready(&home, &mut server, port, "nginx.err");
    let url = format!("http://127.0.0.1:{port}/index.html");
    let pid = server.pid();
    has_a_load_line(
        &home,
        &Peer { pid, log: "access.log", format: "combined", url, rate_max: 16_000 },
    );
}

#[test]
fn nightly_alone_haproxy_has_a_load_line() {
    let haproxy = program("haproxy", "haproxy");
    let home = Home::alone();
    let origin = OurServer::origin();
    let port = free_port();
    let conf = home.write(
        "haproxy.cfg",
        format!(
            "global
               log stdout format raw local0
               maxconn 4000
               nbthread 1
             defaults
               mode http
               log global
               option httplog
               timeout client 60s
               timeout server 60s
               timeout connect 5s
             frontend web
               bind 127.0.0.1:{port}
               default_backend origin
             backend origin
               server origin {}\n",
            origin.address()
        ),
    );
    let mut server = Running::start(
        Command::new(haproxy)
            .args(["-f", &conf])
            .stdout(output_file(&home, "haproxy.log"))
            .stderr(output_file(&home, "haproxy.err")),
    );
    ready(&home, &mut server, port, "haproxy.err");
    let url = format!("http://127.0.0.1:{port}/obj/1?size=1024");
    let pid = server.pid();
    has_a_load_line(
        &home,
        &Peer { pid, log: "haproxy.log", format: "haproxy", url, rate_max: 12_000 },
    );
}

#[test]
fn nightly_alone_squid_has_a_load_line() {
    let squid = program("squid", "squid");
    let home = Home::alone();
    let origin = OurServer::origin();
    let (at, port) = (home.path().display(), free_port());
    let own = home.path().join("squid");
    fs::create_dir(&own).unwrap();
    let user = if am_root() {
        let number = |flag| id(flag, Some("proxy")).parse().ok();
        std::os::unix::fs::chown(&own, number("-u"), number("-g")).unwrap();
        "cache_effective_user proxy"
    } else {
        ""
    };
    let conf = home.write(
        "squid.conf",
        format!(
            "http_port 127.0.0.1:{port} accel defaultsite=127.0.0.1 no-vhost
cache_peer 127.0.0.1 parent {} 0 no-query originserver name=origin
acl all_ src all
http_access allow all_
cache_peer_access origin allow all_
cache_mem 64 MB
access_log stdio:{at}/squid/access.log squid
cache_log {at}/squid/cache.log
pid_filename {at}/squid/squid.pid
coredump_dir {at}/squid
{user}
visible_hostname localhost
shutdown_lifetime 0 seconds
pinger_enable off
max_filedescriptors 8192
",
            origin.address().port()
        ),
    );
    let mut server = Running::start(
        Command::new(squid)
            .args(home.squid("squid", &conf))
            .stdout(Stdio::null())
            .stderr(output_file(&home, "squid.err")),
    );
    ready(&home, &mut server, port, "squid.err");
    let url = format!("http://127.0.0.1:{port}/obj/1?size=1024");
    let pid = server.pid();
    let log = "squid/access.log";
    has_a_load_line(&home, &Peer { pid, log, format: "squid", url, rate_max: 9_000 });
}

#[test]
fn nightly_alone_ours_has_a_load_line() {
    let home = Home::alone();
    let origin = OurServer::origin();
    let log = home.at("access.log");
    let server = OurServer::serve(&[
        "--origin",
        &origin.url(),
        "--workers",
        "1",
        "--access-log",
        &log,
        "--log-format",
        "squid",
    ]);
    let url = format!("{}/obj/1?size=1024", server.url());
    let pid = server.child.pid();
    let (log, format) = ("access.log", "squid");
    has_a_load_line(&home, &Peer { pid, log, format, url, rate_max: 16_000 });
    let (code, stderr) = server.stopped();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

/// Waits until the server accepts connections.
fn ready(home: &Home, server: &mut Running, port: u16, errors: &str) {
    wait_for(&format!("port {port}"), SOON, || {
        assert!(!server.has_ended(), "{}", home.read(errors));
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
}

/// Number of attempts. With busy neighbours a dozen seconds may not be enough for a line, and the
/// report then says so. Everything else must hold in each attempt.
const TRIES: u32 = 3;

fn has_a_load_line(home: &Home, peer: &Peer<'_>) {
    wait_for("the access log", SOON, || home.has(peer.log).then_some(()));
    for attempt in 1..=TRIES {
        let report = recorded(home, peer, &format!("peer-{attempt}.trial"));
        match the_line_rises(&report) {
            Ok(()) => return,
            Err(why) => eprintln!("no line in attempt {attempt} of {TRIES}: {why}"),
        }
    }
    panic!("no line in {TRIES} attempts");
}

/// Makes one recording under load, and returns its report.
fn recorded(home: &Home, peer: &Peer<'_>, trial: &str) -> Value {
    let log = home.at(peer.log);
    // The combined format stamps whole seconds: a shorter interval has no known requests.
    let is_coarse = peer.format == "combined";
    let (interval, step) = if is_coarse { ("1s", "1s") } else { ("250ms", "500ms") };
    let recording = Recording::start(home, &peer.pid, &log, trial, interval);
    let sent = load(&peer.url, peer.rate_max, step);
    // The last lines may be a tick late, and with whole seconds a request may be
    // anywhere in its second.
    std::thread::sleep(Duration::from_millis(1500));
    let summary = recording.interrupted();
    assert_eq!(summary["log_lines_bad"], 0, "{summary:#}");
    assert_eq!(summary["one_file"], true, "{summary:#}");

    let page = home.at("page.html");
    let report =
        plimsoll(&["report", &home.at(trial), "--json", "--html", &page]).succeeded().json();
    assert_eq!(report["trial"]["complete"], true);
    assert_eq!(report["manifest"]["log_format"], peer.format);
    for loss in report["losses"].as_array().unwrap() {
        assert!(!loss["kind"].as_str().unwrap().starts_with("log:"), "{loss}");
    }
    every_request_is_recorded(&report, sent);
    assert!(fs::metadata(&page).unwrap().len() > 10_000);
    report
}

/// Drives the load, each rate for the time `step`. Returns how many requests were sent.
fn load(url: &str, rate_max: u32, step: &str) -> u64 {
    let mut sent = 0;
    for twelfths in TWELFTHS {
        let rate = (rate_max * twelfths / 12).to_string();
        let outcome = plimsoll(&["load", url, "--rate", &rate, "--for", step, "--json"]);
        let outcome = outcome.succeeded().json();
        for (kind, count) in outcome["errors"].as_object().unwrap() {
            assert_eq!(count, 0, "{kind}");
        }
        sent += outcome["started"].as_u64().unwrap();
    }
    sent
}

fn every_request_is_recorded(report: &Value, sent: u64) {
    let recorded = report["trial"]["requests"].as_f64().unwrap();
    // The few others checked whether the server was ready.
    let gap = (recorded - sent as f64).abs();
    assert!(gap <= 0.01 * sent as f64 + 5.0, "{sent} requests sent, {recorded} in the trial");
}

/// Whether there is a line and it rises, which a busy neighbour can prevent.
fn the_line_rises(report: &Value) -> Result<(), String> {
    let capacity = &report["capacity"];
    if capacity["identifiable"] != true {
        return Err(format!("{capacity:#}"));
    }
    let value = capacity["value"].as_f64().unwrap();
    assert!(value > 0.0 && value.is_finite(), "{capacity:#}");
    assert!(capacity["low"].as_f64().unwrap() <= value, "{capacity:#}");
    // Far from the cap there may be no upper end.
    assert!(capacity["high"].as_f64().is_none_or(|high| value <= high), "{capacity:#}");
    let modes = &report["modes"];
    let slope = |name: &str| {
        let lines = modes["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["mode"] == name);
        line.unwrap_or_else(|| panic!("no line of {name}: {modes:#}"))["slope"].as_f64().unwrap()
    };
    let closure = modes["closure_gap"].as_f64().unwrap();
    assert!(closure.abs() <= 1e-6 * slope("idle").abs(), "{modes:#}");
    if slope("kernel") > 0.0 && slope("user") > 0.0 && slope("idle") < 0.0 {
        Ok(())
    } else {
        Err(format!("{modes:#}"))
    }
}

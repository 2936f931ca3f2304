//! HTTP/2 with other programs as clients: curl, nghttp and h2load, in the clear and over TLS.
//!
//! The origin keeps what it receives ([`recorder`]). Requests that no program would send are in
//! [`attacks`], tunnels in [`tunnels`], clients that hold or cost too much in [`holding`], what
//! becomes of connections in [`connection`], peers that measure by PINGs in [`pings`], and the
//! clients of other languages in [`clients`].

mod attacks;
mod client;
mod clients;
mod connection;
pub(crate) mod holding;
mod pings;
pub(crate) mod recorder;
pub(crate) mod tunnels;

use std::fs;
use std::process::Command;

use crate::http2::recorder::{Recorder, content};
use crate::support::{
    CommandOutput, Home, OurServer, Running, SOON, get, output_file, plimsoll, program, run,
    wait_for,
};
use crate::tls::{authority, issue};

/// What curl got. Names of fields are in lower case over HTTP/2.
#[derive(Debug)]
struct Answer {
    version: String,
    status: String,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn is_hit(&self) -> bool {
        self.head.to_ascii_lowercase().contains("cache-status: plimsoll; hit")
    }

    /// Asserts version and status.
    #[track_caller]
    fn is(&self, version: &str, status: &str) {
        let Answer { version: found, status: got, head, .. } = self;
        assert_eq!((found.as_str(), got.as_str()), (version, status), "{head}");
    }
}

/// Arguments of curl for [`answer`].
const CURL: [&str; 10] = [
    "--silent",
    "--show-error",
    "--max-time",
    "20",
    "--dump-header",
    "head",
    "--output",
    "body",
    "--write-out",
    "%{http_version} %{response_code} %{size_download}",
];

const PLAIN: &str = "--http2-prior-knowledge";

#[track_caller]
fn curl(home: &Home, args: &[&str]) -> Answer {
    let mut command = Command::new(program("curl", "curl"));
    command.current_dir(home.path()).args(CURL).args(args);
    answer(home, command)
}

/// Runs curl to its end.
#[track_caller]
fn answer(home: &Home, command: Command) -> Answer {
    // Without content there may be no file.
    let _ = fs::remove_file(home.path().join("body"));
    let output = run(command, SOON).succeeded();
    let mut parts = output.stdout.split(' ');
    let mut part = || parts.next().unwrap().to_owned();
    let (version, status, size) = (part(), part(), part());
    // With --head, curl writes the head to the file.
    let body = match size.as_str() {
        "0" => Vec::new(),
        _ => fs::read(home.path().join("body")).unwrap(),
    };
    Answer { version, status, head: home.read("head"), body }
}

#[track_caller]
fn nghttp(args: &[&str]) -> CommandOutput {
    let mut command = Command::new(program("nghttp", "nghttp2-client"));
    command.args(args);
    run(command, SOON).succeeded()
}

/// Our server with a log, in front of an origin.
fn proxy(home: &Home, origin: &str) -> OurServer {
    proxy_with(home, origin, &[])
}

fn proxy_with(home: &Home, origin: &str, more: &[&str]) -> OurServer {
    let log = home.at("access.log");
    let flags = ["--origin", origin, "--access-log", &log, "--log-format", "combined"];
    OurServer::serve(&[&flags[..], more].concat())
}

#[test]
fn curl_gets_misses_hits_ranges_and_errors() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/cached/100000", proxy.url());
    let whole = content(100_000);

    let miss = curl(&home, &[PLAIN, &url]);
    miss.is("2", "200");
    assert!(!miss.is_hit() && miss.head.contains("cache-status: plimsoll; fwd="), "{}", miss.head);
    assert!(miss.body == whole);
    let hit = curl(&home, &[PLAIN, &url]);
    hit.is("2", "200");
    assert!(hit.is_hit(), "{}", hit.head);
    assert!(hit.body == whole);

    let head = curl(&home, &[PLAIN, "--head", &url]);
    head.is("2", "200");
    assert!(head.head.contains("content-length: 100000"), "{}", head.head);
    assert!(head.is_hit() && head.body.is_empty(), "{head:?}");

    let range = curl(&home, &[PLAIN, "--range", "100-199", &url]);
    range.is("2", "206");
    assert!(range.head.contains("content-range: bytes 100-199/100000"), "{}", range.head);
    assert_eq!(range.body, whole[100..200]);

    let same = curl(&home, &[PLAIN, "--header", "If-None-Match: \"v1\"", &url]);
    same.is("2", "304");
    assert!(same.body.is_empty() && same.head.contains("etag: \"v1\""), "{same:?}");

    let missing = curl(&home, &[PLAIN, &format!("{}/missing", proxy.url())]);
    missing.is("2", "404");
    assert_eq!(missing.body, b"nothing");

    // A response is the same for both versions.
    let old = curl(&home, &["--http1.1", &url]);
    old.is("1.1", "200");
    assert!(old.is_hit() && old.body == whole, "{}", old.head);

    assert_eq!(proxy.stopped().0, Some(0));
    let fetch = origin.only("/cached/100000");
    assert_eq!(fetch.head.lines().next(), Some("GET /cached/100000 HTTP/1.1"));
    assert!(fetch.field("via").is_some_and(|via| via.starts_with("2.0 ")), "{}", fetch.head);
    let log = home.read("access.log");
    for (line, count) in [
        ("\"GET /cached/100000 HTTP/2.0\" 200 ", 2),
        ("\"HEAD /cached/100000 HTTP/2.0\" 200 ", 1),
        ("\"GET /cached/100000 HTTP/2.0\" 206 ", 1),
        ("\"GET /cached/100000 HTTP/2.0\" 304 ", 1),
        ("\"GET /missing HTTP/2.0\" 404 ", 1),
        ("\"GET /cached/100000 HTTP/1.1\" 200 ", 1),
    ] {
        assert_eq!(log.matches(line).count(), count, "{line}: {log}");
    }
    assert_eq!(log.lines().count(), 7, "{log}");
}

#[test]
fn curl_gets_five_megabytes() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/cached/5000000", proxy.url());
    let whole = content(5_000_000);
    for _ in 0..2 {
        let got = curl(&home, &[PLAIN, &url]);
        got.is("2", "200");
        assert!(got.body == whole, "{} bytes", got.body.len());
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn curl_sends_a_megabyte() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let whole = content(1_000_000);
    home.write("upload", &whole);
    let url = |path: &str| format!("{}{path}", proxy.url());

    curl(&home, &[PLAIN, "--data-binary", "@upload", &url("/length")]).is("2", "200");
    let expecting = ["--header", "Expect: 100-continue", "--data-binary", "@upload"];
    curl(&home, &[&[PLAIN], &expecting[..], &[&url("/expect")]].concat()).is("2", "200");
    // A pipe has no length.
    let mut command = Command::new("sh");
    command.current_dir(home.path()).args(["-c", "cat upload | \"$@\"", "sh"]);
    command.arg(program("curl", "curl")).args(CURL);
    command.args([PLAIN, "--upload-file", "-", &url("/pipe")]);
    answer(&home, command).is("2", "200");
    curl(&home, &[PLAIN, "--data-binary", "", &url("/empty")]).is("2", "200");

    assert_eq!(proxy.stopped().0, Some(0));
    for (path, method) in [("/length", "POST"), ("/expect", "POST"), ("/pipe", "PUT")] {
        let request = origin.only(path);
        assert_eq!(request.method(), method);
        assert!(request.body == whole, "{path}: {} bytes", request.body.len());
    }
    assert_eq!(origin.only("/length").field("content-length"), Some("1000000"));
    assert!(origin.only("/empty").body.is_empty());
}

#[test]
fn an_upgrade_to_h2c_is_ignored() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    // Over plain HTTP this option sends `Upgrade: h2c`.
    curl(&home, &["--http2", &format!("{}/a", proxy.url())]).is("1.1", "200");
    assert_eq!(proxy.stopped().0, Some(0));
    let request = origin.only("/a");
    assert_eq!((request.field("upgrade"), request.field("http2-settings")), (None, None));
}

/// Our server with a listener in the clear, one with TLS, and a log.
fn two_listeners(home: &Home, name: &str, origin: &str, more: &str) -> OurServer {
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n{more}\
         [[listen]]\naddress = \"127.0.0.1:0\"\n{more}[listen.tls]\n\
         [[listen.tls.certificate]]\nchain = \"web.pem\"\nkey = \"web.key\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{origin}\"\n\
         [log]\npath = \"access.log\"\nformat = \"combined\"\n"
    );
    OurServer::configured(&home.write(name, text))
}

#[test]
fn alpn_chooses_the_version() {
    let home = Home::new();
    let origin = Recorder::start();
    authority(&home);
    issue(&home, "web", "IP:127.0.0.1", false);
    let urls = |proxy: &OurServer| {
        let address = |at: usize| proxy.announced["listen"][at].as_str().unwrap().to_owned();
        (format!("http://{}/cached/100", address(0)), format!("https://{}/cached/100", address(1)))
    };
    let trusting = ["--cacert", "ca.pem"];
    let with = |flag: &str, url: &str| curl(&home, &[&trusting[..], &[flag, url]].concat());

    let both = two_listeners(&home, "both.toml", &origin.url(), "");
    let (plain, secure) = urls(&both);
    for (flag, url, version) in [
        ("--http2", &secure, "2"),
        ("--http1.1", &secure, "1.1"),
        (PLAIN, &plain, "2"),
        ("--http1.1", &plain, "1.1"),
    ] {
        let got = with(flag, url);
        got.is(version, "200");
        assert_eq!(got.body, content(100), "{flag} {url}");
    }
    let versions = ["--tls-max", "1.2", "--http2", &secure];
    curl(&home, &[&trusting[..], &versions].concat()).is("2", "200");
    assert_eq!(both.stopped().0, Some(0));

    let off = two_listeners(&home, "off.toml", &origin.url(), "http2 = false\n");
    let (plain, secure) = urls(&off);
    with("--http2", &secure).is("1.1", "200");
    with("--http1.1", &plain).is("1.1", "200");
    let mut command = Command::new(program("curl", "curl"));
    command.args(["--silent", "--max-time", "20", PLAIN, &plain]);
    let refused = run(command, SOON);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(off.stopped().0, Some(0));
}

#[test]
fn nghttp_sends_forty_requests_at_once() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/cached/20000", proxy.url());
    let log = nghttp(&["-n", "-v", "-m", "40", &url]).stdout;
    assert_eq!(log.matches(":status: 200").count(), 40, "{log}");
    assert!(!log.contains("RST_STREAM"), "{log}");
    // One fetch for all, whether they waited for it or found the stored response.
    origin.only("/cached/20000");
    // Each of these is a fetch.
    let log = nghttp(&["-n", "-v", "-m", "40", &format!("{}/a", proxy.url())]).stdout;
    assert_eq!(log.matches(":status: 200").count(), 40, "{log}");
    assert_eq!(origin.requests("/a").len(), 40);
    assert_eq!(proxy.stopped().0, Some(0));
    let log = home.read("access.log");
    assert_eq!(log.matches(" HTTP/2.0\" 200 ").count(), 80, "{log}");
}

#[test]
fn requests_of_one_connection_wait_for_the_same_fetch() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/held/1000", proxy.url());
    let mut client = Running::start(
        Command::new(program("nghttp", "nghttp2-client"))
            .args(["-n", "-v", "-m", "10", &url])
            .stdout(output_file(&home, "nghttp.log")),
    );
    origin.wait_for_request("/held/1000");
    // Another response on another connection does not wait.
    curl(&home, &[PLAIN, &format!("{}/a", proxy.url())]).is("2", "200");
    origin.release();
    assert!(client.ended(SOON).success());
    assert_eq!(home.read("nghttp.log").matches(":status: 200").count(), 10);
    origin.only("/held/1000");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn nghttp_with_small_windows_gets_a_megabyte() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/cached/1000000", proxy.url());
    // Windows of 1023 bytes. A miss, then a hit.
    for _ in 0..2 {
        let got = nghttp(&["-w", "10", "-W", "10", &url]).stdout;
        assert!(got.as_bytes() == content(1_000_000), "{} bytes", got.len());
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn h2load_gets_two_thousand_hits() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/cached/1000", proxy.url());
    let mut command = Command::new(program("h2load", "nghttp2-client"));
    command.args(["-n", "2000", "-c", "4", "-m", "10", &url]);
    let output = run(command, SOON).succeeded().stdout;
    assert!(output.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{output}");
    assert!(output.contains("2000 2xx"), "{output}");
    assert_eq!(proxy.stopped().0, Some(0));
    origin.only("/cached/1000");
    let log = home.read("access.log");
    let line = "\"GET /cached/1000 HTTP/2.0\" 200 ";
    assert_eq!(log.lines().filter(|found| found.contains(line)).count(), 2000);
    assert_eq!(log.lines().count(), 2000);
}

#[test]
fn our_load_gets_hits_over_http2() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url());
    let url = format!("{}/cached/1000", proxy.url());
    assert!(get(proxy.address(), "/cached/1000").starts_with("HTTP/1.1 200 "));
    let flags = ["--http2", "--streams", "5", "--rate", "500", "--for", "2s", "--json"];
    let shown = plimsoll(&[&["load", &url], &flags[..]].concat()).succeeded().json();
    for (kind, count) in shown["errors"].as_object().unwrap() {
        assert_eq!(count, 0, "{kind}");
    }
    let of = |key: &str| shown[key].as_u64().unwrap_or_else(|| panic!("no {key} in {shown:#}"));
    let completed = of("completed");
    assert!(completed > 500, "{completed}");
    assert_eq!(completed, of("started"));
    let rows = shown["rows"].as_array().unwrap();
    let hits: u64 = rows.iter().map(|row| row["hits"].as_u64().unwrap()).sum();
    assert!(hits > 0 && rows.iter().all(|row| row["misses"] == 0), "{shown:#}");
    assert_eq!(proxy.stopped().0, Some(0));
    origin.only("/cached/1000");
    let log = home.read("access.log");
    assert_eq!(log.matches(" HTTP/2.0\" 200 ").count() as u64, completed);
}

/// A connection that only had hits was closed after the idle time-out, however busy it was.
#[test]
fn a_connection_with_hits_is_not_idle() {
    let home = Home::new();
    let origin = Recorder::start();
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[limits]\nidle_keep_alive = \"300ms\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    );
    let proxy = OurServer::configured(&home.write("idle.toml", &text));
    let url = format!("http://{}/cached/1000", proxy.address());
    let flags = ["--http2", "--rate", "100", "--connections", "1", "--for", "1s", "--json"];
    let shown = plimsoll(&[&["load", &url], &flags[..]].concat()).succeeded().json();
    let rows = shown["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["connects"] == 0), "{shown:#}");
    assert!(shown["completed"].as_u64().unwrap() > 50, "{shown:#}");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn sigterm_lets_requests_of_http2_finish() {
    let home = Home::new();
    let origin = Recorder::start();
    // One worker: when it drains, so do all connections.
    let flags = ["--admin", "127.0.0.1:0", "--workers", "1"];
    let mut proxy = proxy_with(&home, &origin.url(), &flags);
    let (admin, url) = (proxy.admin(), proxy.url());
    let mut curl = Running::start(
        Command::new(program("curl", "curl"))
            .current_dir(home.path())
            .args(CURL)
            .args([PLAIN, &format!("{url}/held/1000")])
            .stdout(output_file(&home, "curl.out")),
    );
    let mut nghttp = Running::start(
        Command::new(program("nghttp", "nghttp2-client"))
            .args(["-n", "-v", "-m", "5", &format!("{url}/held/2000")])
            .stdout(output_file(&home, "nghttp.log")),
    );
    for path in ["/held/1000", "/held/2000"] {
        origin.wait_for_request(path);
    }
    proxy.child.signal("TERM");
    wait_for("the drain", SOON, || get(admin, "/healthz").contains("draining").then_some(()));
    assert!(!proxy.child.has_ended() && !curl.has_ended(), "it waits for the requests");
    origin.release();
    assert!(curl.ended(SOON).success() && nghttp.ended(SOON).success());
    assert_eq!(home.read("curl.out"), "2 200 1000");
    assert_eq!(fs::read(home.path().join("body")).unwrap(), content(1000));
    let log = home.read("nghttp.log");
    assert_eq!(log.matches(":status: 200").count(), 5, "{log}");
    assert!(log.contains("recv GOAWAY"), "{log}");
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
    let log = home.read("access.log");
    assert_eq!(log.matches(" HTTP/2.0\" 200 ").count(), 6, "{log}");
}

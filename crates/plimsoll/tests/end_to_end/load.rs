//! `plimsoll load` over TLS and HTTP/3: our server, nginx, and a server by aioquic.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::http2::recorder::Recorder;
use crate::http3::{proxy, python};
use crate::support::{
    CommandOutput, Home, Running, SOON, free_port, nginx, output_file, plimsoll, wait_for,
};
use crate::tls::{authority, issue};

/// A short load.
fn load(url: &str, flags: &[&str]) -> CommandOutput {
    let rate = ["--rate", "200", "--for", "300ms", "--connections", "3", "--json"];
    plimsoll(&[&["load", url], &rate[..], flags].concat())
}

/// How many requests were answered, which are all.
#[track_caller]
fn answered(result: &Value) -> u64 {
    for (kind, count) in result["errors"].as_object().unwrap() {
        assert_eq!(count, 0, "{kind}");
    }
    let completed = result["completed"].as_u64().unwrap();
    assert!(completed > 0 && result["started"] == completed, "{result:#}");
    completed
}

#[test]
fn our_server_gives_hits_in_every_version() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let url = format!("https://localhost:{}/cached/1000", proxy.address().port());
    let ca = home.at("ca.pem");
    let mut counts = Vec::new();
    for (flags, version) in [
        (&[][..], "HTTP/1.1"),
        (&["--http2", "--streams", "3"], "HTTP/2.0"),
        (&["--http3", "--streams", "3"], "HTTP/3.0"),
    ] {
        let result = load(&url, &[flags, &["--ca", &ca]].concat()).succeeded().json();
        counts.push((version, answered(&result)));
    }
    // Another root of the same name.
    authority(&home);
    for flags in [&[][..], &["--http2"], &["--http3"]] {
        let refused = load(&url, &[flags, &["--ca", &ca]].concat());
        refused.refused(&[&url, "invalid peer certificate"]);
    }
    assert_eq!(proxy.stopped().0, Some(0));
    origin.only("/cached/1000");
    let log = home.read("access.log");
    for (version, count) in counts {
        let line = format!("\"GET /cached/1000 {version}\" 200 1000 ");
        assert_eq!(log.matches(&line).count() as u64, count, "{version}: {log}");
    }
}

#[test]
fn nginx_answers_over_tls() {
    let home = Home::new();
    authority(&home);
    issue(&home, "web", "DNS:localhost", false);
    fs::create_dir(home.path().join("www")).unwrap();
    home.write("www/index.html", "x".repeat(100_000));
    let (at, one, two) = (home.path().display(), free_port(), free_port());
    let http = format!(
        "keepalive_requests 10;
         server {{
           listen 127.0.0.1:{one} ssl; listen 127.0.0.1:{two} ssl http2; root {at}/www;
           ssl_certificate {at}/web.pem; ssl_certificate_key {at}/web.key;
         }}"
    );
    let _nginx = nginx(home.path(), one, &http);
    let url = |port: u16| format!("https://localhost:{port}/index.html");
    let (ca, http2) = (home.at("ca.pem"), ["--http2", "--streams", "3"]);
    for flags in [&["--cold", "3"][..], &["--no-keep-alive"], &["--ca", &ca]] {
        answered(&load(&url(one), flags).succeeded().json());
    }
    answered(&load(&url(two), &http2).succeeded().json());
    load(&url(one), &http2).refused(&["does not offer", "ALPN"]);
    let silent = free_port();
    load(&url(silent), &["--http3", "--timeout", "1s"]).refused(&["does the server speak HTTP/3?"]);
}

#[test]
fn aioquic_answers_over_http3() {
    let home = Home::new();
    authority(&home);
    issue(&home, "web", "DNS:localhost", false);
    let port = free_port();
    let script = home.write("server.py", include_str!("load/server.py"));
    let mut command = Command::new(python());
    command.args([&script, &port.to_string(), &home.at("web.pem"), &home.at("web.key")]);
    command.stdout(output_file(&home, "server.out")).stderr(output_file(&home, "server.err"));
    let _server = Running::start(&mut command);
    wait_for("aioquic", SOON, || home.read("server.out").contains("ready").then_some(()));
    let flags = ["--http3", "--streams", "3", "--cold", "2", "--ca", &home.at("ca.pem")];
    let result = load(&format!("https://localhost:{port}/"), &flags).succeeded().json();
    let completed = answered(&result);
    let hits: u64 =
        result["rows"].as_array().unwrap().iter().map(|row| row["hits"].as_u64().unwrap()).sum();
    assert!(hits > 0 && hits <= completed, "{result:#}");
    assert_eq!(home.read("server.err"), "");
}

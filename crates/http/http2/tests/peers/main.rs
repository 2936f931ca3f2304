//! Real peers: curl, nghttp and h2load as clients of our server's side, and nginx as the server of
//! our client's side. `./setup.sh test` installs them; a test fails if its program is missing.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod client;
#[path = "../../../../core/transport/tests/common/ports.rs"]
mod ports;
mod server;

use std::net::TcpListener;
use std::process::Command;

use http2::Limits;

/// Starts our server; returns its address.
fn our_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || server::serve(&listener, &Limits::DEFAULT));
    format!("http://{address}")
}

/// Runs a program to its end; returns what it wrote to both outputs.
fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; try ./setup.sh test"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {} {text}", output.status);
    [output.stdout, output.stderr].concat()
}

fn curl(args: &[&str]) -> Vec<u8> {
    run("curl", &[&["-sS", "--max-time", "60", "--http2-prior-knowledge"], args].concat())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| at as u8).collect()
}

#[test]
fn curl_gets_short_and_long_content() {
    let server = our_server();
    assert_eq!(curl(&[&server]), b"hello from http2\n");
    for bytes in [0, 1, 16_384, 3_000_000] {
        assert!(curl(&[&format!("{server}/bytes/{bytes}")]) == pattern(bytes), "{bytes}");
    }
    let head = curl(&["-I", &server]);
    assert!(head.starts_with(b"HTTP/2 200"), "{}", head.escape_ascii());
}

#[test]
fn curl_sends_content_and_gets_it_back() {
    let server = our_server();
    let file = std::env::temp_dir().join(format!("http2-peers-{}", std::process::id()));
    let content: Vec<u8> = (0..2_000_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let data = format!("@{}", file.display());
    let echo = curl(&["--data-binary", &data, &format!("{server}/echo")]);
    std::fs::remove_file(&file).unwrap();
    assert!(echo == content);
}

#[test]
fn nghttp_sends_trailers_and_several_requests_at_once() {
    let server = our_server();
    let args = ["-v", "--trailer", "x-end: yes", "-d", "Cargo.toml", &format!("{server}/echo")];
    let log = String::from_utf8_lossy(&run("nghttp", &args)).into_owned();
    let received = log.lines().filter(|line| line.contains("recv (stream_id=")).count();
    assert!(received > 2 && log.contains("x-end: yes"), "{log}");
    let args = ["-n", "-v", "-m", "40", "-w", "10", &format!("{server}/bytes/20000")];
    let log = String::from_utf8_lossy(&run("nghttp", &args)).into_owned();
    assert_eq!(log.matches(":status: 200").count(), 40);
    assert!(!log.contains("RST_STREAM"), "{log}");
}

#[test]
fn h2load_completes_all_requests() {
    let server = our_server();
    let args = ["-n", "4000", "-c", "8", "-m", "32", &format!("{server}/bytes/1000")];
    let log = String::from_utf8_lossy(&run("h2load", &args)).into_owned();
    assert!(log.contains("4000 succeeded, 0 failed, 0 errored"), "{log}");
    assert!(log.contains("(4000000) data"), "{log}");
}

#[test]
fn nginx_answers_our_client() {
    let nginx = client::Nginx::start();
    let mut client = client::Client::connect(nginx.port());
    // More at once than one turn of the windows.
    let sizes = [0, 1, 1000, 20_000, 1_000_000, 1000, 1000];
    for size in sizes {
        client.get(&format!("/{size}"));
    }
    client.post("/0", 100_000);
    client.finish();
    for (number, size) in sizes.into_iter().enumerate() {
        let (status, content) = client.response(number);
        assert_eq!((status, content.len()), (200, size));
        assert!(content.iter().all(|&byte| byte == b'x'));
    }
    assert_eq!(client.response(sizes.len()).0, 405, "nginx takes no POST for a file");
    assert!(nginx.log().lines().all(|line| line.contains("HTTP/2.0")));
}

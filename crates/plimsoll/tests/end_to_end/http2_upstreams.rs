//! HTTP/2 to upstreams: nginx and HAProxy as origins, gRPC, and origins that a test controls.

mod peer;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http2::{ErrorCode, Limits};
use serde_json::Value;

use self::peer::{Seen, Side, field};
use crate::http2::recorder::{Recorder, content};
use crate::support::{
    Accepting, CommandOutput, Home, OurServer, Running, SOON, free_port, get, nginx, output_file,
    program, read_some, run, wait_for,
};
use crate::tls::{authority, issue};

const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Our server in front of one upstream, which is configured by these lines.
fn proxy(home: &Home, url: &str, lines: &str) -> OurServer {
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"site\"\n{lines}\n[[upstream.server]]\nurl = \"{url}\"\n"
    );
    OurServer::configured(&home.write(&format!("{}.toml", free_port()), text))
}

fn in_clear(home: &Home, address: SocketAddr) -> OurServer {
    proxy(home, &format!("http://{address}"), "protocol = \"h2c\"")
}

/// An origin over HTTP/2: `serve` has each of its connections.
fn origin(serve: impl Fn(Side) + Send + Sync + 'static) -> Accepting {
    Accepting::start(move |stream| serve(Side::accept(stream, &Limits::DEFAULT)))
}

/// Answers every request with its path, its method and its content.
fn echo(side: &mut Side, is_last: impl Fn() -> bool) {
    while let Some(request) = side.message() {
        let of = |name: &str| field(&request.head, name).to_owned();
        let text = format!("{} {} ", of(":method"), of(":path"));
        let fields = [(":status", "200"), ("cache-control", "no-store")];
        side.respond(request.stream, &fields, false);
        side.data(request.stream, &[text.as_bytes(), &request.content].concat(), true);
        if is_last() {
            return;
        }
    }
}

/// Sends a request on a new connection over HTTP/1.1 and returns the whole response.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A response that breaks off ends with a reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(address: SocketAddr, path: &str, content: &str) -> String {
    let length = content.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
    exchange(address, &format!("{head}Content-Length: {length}\r\n\r\n{content}"))
}

fn curl(home: &Home, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(program("curl", "curl"));
    command.current_dir(home.path()).args(["--silent", "--show-error", "--max-time", "20"]);
    command.args(args);
    run(command, SOON)
}

/// The figures of the only server.
fn server(proxy: &OurServer) -> Value {
    let answer = get(proxy.admin(), "/upstreams");
    let groups: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    groups["groups"][0]["servers"][0].clone()
}

/// nginx in the clear over HTTP/2, which ends each connection after ten requests.
fn nginx_in_the_clear(home: &Home, port: u16) -> Running {
    std::fs::create_dir_all(home.path().join("www")).unwrap();
    home.write("www/big", content(3_000_000));
    home.write("www/small", "hello");
    let http = format!(
        "keepalive_requests 10;
         server {{
           listen 127.0.0.1:{port} http2; root {}/www; etag on;
           add_header Cache-Control no-cache;
         }}",
        home.path().display()
    );
    nginx(home.path(), port, &http)
}

#[test]
fn nginx_is_an_origin_in_the_clear() {
    let home = Home::new();
    let port = free_port();
    let _nginx = nginx_in_the_clear(&home, port);
    let proxy = in_clear(&home, ([127, 0, 0, 1], port).into());
    let url = |path: &str| format!("{}{path}", proxy.url());
    let whole = content(3_000_000);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        curl(&home, &[version, "--output", "body", &url("/big")]).succeeded();
        assert!(std::fs::read(home.path().join("body")).unwrap() == whole, "{version}");
        let head = curl(&home, &[version, "--head", &url("/small")]).succeeded().stdout;
        let head = head.to_ascii_lowercase();
        assert!(head.contains("content-length: 5\r\n") && head.contains("via: 2.0 "), "{head}");
        curl(&home, &[version, &url("/small")]).succeeded();
        // The origin confirms the stored response.
        let same = curl(&home, &[version, "--include", &url("/small")]).succeeded().stdout;
        assert!(same.contains("fwd-status=304") && same.ends_with("hello"), "{same}");
        let missing = curl(&home, &[version, "--include", &url("/missing")]).succeeded().stdout;
        assert!(missing.contains(" 404"), "{missing}");
    }
    // One connection takes many requests at a time, and its end after ten fails none of them.
    let mut load = Command::new(program("h2load", "nghttp2-client"));
    load.args(["-n", "2000", "-c", "4", "-m", "5", &url("/small")]);
    let shown = run(load, Duration::from_secs(60)).succeeded().stdout;
    assert!(shown.contains("status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{shown}");
    let server = server(&proxy);
    assert!(server["connects"].as_u64().unwrap() >= 200, "{server}");
    assert_eq!(server["failures"], 0, "{server}");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// HAProxy in front of an origin over HTTP/1, with TLS that speaks these protocols.
fn haproxy(home: &Home, to: &str, alpn: &str) -> (Running, u16) {
    let port = free_port();
    let chain = home.read("web.pem") + &home.read("web.key");
    let chain = home.write("both.pem", chain);
    let at = to.strip_prefix("http://").unwrap();
    let conf = home.write(
        &format!("haproxy-{port}.cfg"),
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             listen web\n bind 127.0.0.1:{port} ssl crt {chain} alpn {alpn}\n server o {at}\n"
        ),
    );
    let child = Running::start(
        Command::new(program("haproxy", "haproxy"))
            .args(["-f", &conf])
            .stdout(Stdio::null())
            .stderr(output_file(home, "haproxy.err")),
    );
    wait_for("HAProxy", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    (child, port)
}

#[test]
fn haproxy_is_an_origin_over_tls_and_chooses_the_version() {
    let home = Home::new();
    let recorder = Recorder::start();
    authority(&home);
    issue(&home, "web", "IP:127.0.0.1", false);
    let (_new, new) = haproxy(&home, &recorder.url(), "h2,http/1.1");
    let (_old, old) = haproxy(&home, &recorder.url(), "http/1.1");
    home.write("upload", content(1_000_000));
    let cases = [
        (new, "h2", Some("2.0 ")),
        (new, "auto", Some("2.0 ")),
        (new, "http1", Some("1.1 ")),
        (old, "auto", Some("1.1 ")),
        (old, "h2", None),
    ];
    for (port, protocol, via) in cases {
        let lines = format!("protocol = \"{protocol}\"\n[upstream.tls]\nca = \"ca.pem\"\n");
        let proxy = proxy(&home, &format!("https://127.0.0.1:{port}"), &lines);
        let url = format!("{}/{protocol}/{port}", proxy.url());
        let answer = curl(&home, &["--include", "--data-binary", "@upload", &url]).succeeded();
        let head = answer.stdout.to_ascii_lowercase();
        match via {
            Some(via) => {
                assert!(head.contains(&format!("via: {via}")), "{protocol} {port}: {head}");
                let request = recorder.only(&format!("/{protocol}/{port}"));
                assert!(request.body == content(1_000_000), "{protocol}");
            }
            None => assert!(head.contains(" 502 ") && head.contains("upstream-tls"), "{head}"),
        }
        assert_eq!(proxy.stopped().0, Some(0));
    }
}

#[test]
fn grpc_passes_in_both_directions() {
    let home = Home::new();
    let script =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/http2_upstreams/grpc_echo.py");
    // Debian's package is for Debian's interpreter.
    let mut server = Running::start(
        Command::new("/usr/bin/python3")
            .args([script, "serve"])
            .stdout(output_file(&home, "port"))
            .stderr(output_file(&home, "grpc.err")),
    );
    let port = wait_for("the gRPC server (python3-grpcio)", SOON, || {
        assert!(!server.has_ended(), "{}", home.read("grpc.err"));
        home.read("port").trim().parse::<u16>().ok()
    });
    let proxy = in_clear(&home, ([127, 0, 0, 1], port).into());
    let mut client = Command::new("/usr/bin/python3");
    client.args([script, "call", &proxy.address().port().to_string()]);
    let done = run(client, Duration::from_secs(120)).succeeded();
    assert_eq!(done.stdout.trim(), "ok");
    assert_eq!(self::server(&proxy)["connects"], 1);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_refused_stream_is_sent_again_whatever_its_method() {
    let home = Home::new();
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refusals);
    let origin = origin(move |mut side| {
        while let Some(seen) = side.next() {
            let Seen::Head(stream, head, ends) = seen else { continue };
            // Each path is refused once.
            if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                side.reset(stream, ErrorCode::REFUSED_STREAM);
                continue;
            }
            let mut content = field(&head, ":method").as_bytes().to_vec();
            let mut is_last = ends;
            while !is_last {
                let Some(Seen::Data(_, bytes, ends)) = side.next() else { return };
                content.extend_from_slice(&bytes);
                is_last = ends;
            }
            side.respond(stream, &[(":status", "200"), ("cache-control", "no-store")], false);
            side.data(stream, &content, true);
        }
    });
    let proxy = in_clear(&home, origin.address);
    assert!(get(proxy.address(), "/a").contains("\r\nGET\r\n"));
    assert!(post(proxy.address(), "/b", "content").contains("\r\nPOSTcontent\r\n"));
    assert_eq!(refusals.load(Ordering::SeqCst), 4);
    assert_eq!(server(&proxy)["failures"], 0);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_stream_above_the_last_of_a_goaway_is_sent_again() {
    let home = Home::new();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let origin = origin(move |mut side| match count.fetch_add(1, Ordering::SeqCst) {
        0 => {
            // The first is answered, the second is not processed.
            echo(&mut side, || true);
            let Some(Seen::Head(3, ..)) = side.next() else { return };
            side.raw(GOAWAY, &[0, 0, 0, 1, 0, 0, 0, 0]);
            while side.next().is_some() {}
        }
        _ => echo(&mut side, || false),
    });
    let proxy = in_clear(&home, origin.address);
    assert!(get(proxy.address(), "/a").contains("\r\nGET /a \r\n"));
    assert!(post(proxy.address(), "/b", "content").contains("\r\nPOST /b content\r\n"));
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_request_that_may_have_been_processed_is_not_sent_again() {
    let home = Home::new();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let origin = origin(move |mut side| {
        while let Some(seen) = side.next() {
            if let Seen::Head(stream, ..) = seen {
                count.fetch_add(1, Ordering::SeqCst);
                side.reset(stream, ErrorCode::INTERNAL_ERROR);
            }
        }
    });
    let proxy = in_clear(&home, origin.address);
    assert!(post(proxy.address(), "/", "content").starts_with("HTTP/1.1 502 "));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // A reset on a connection that is in use is not the end of an idle one.
    assert!(get(proxy.address(), "/").starts_with("HTTP/1.1 502 "));
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(server(&proxy)["failures"], 2);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn no_connection_has_more_streams_than_the_upstream_allows() {
    const ALLOWED: usize = 2;
    let home = Home::new();
    let origin = Accepting::start(move |stream| {
        let mut limits = Limits::DEFAULT;
        limits.streams_max = ALLOWED as u32;
        let mut side = Side::accept(stream, &limits);
        let mut waiting = Vec::new();
        while let Some(request) = side.message() {
            waiting.push(request.stream);
            // So that others come meanwhile. One too many would be refused.
            std::thread::sleep(Duration::from_millis(30));
            for stream in waiting.drain(..) {
                side.respond(stream, &[(":status", "200"), ("cache-control", "no-store")], true);
            }
        }
    });
    let proxy = in_clear(&home, origin.address);
    let address = proxy.address();
    let clients: Vec<_> = (0..20)
        .map(|number| std::thread::spawn(move || get(address, &format!("/{number}"))))
        .collect();
    for client in clients {
        let answer = client.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let metrics = get(proxy.admin(), "/metrics");
    assert!(metrics.contains("plimsoll_upstream_retries_total 0\n"), "{metrics}");
    let connects = server(&proxy)["connects"].as_u64().unwrap();
    assert!((2..=10).contains(&connects), "{connects}");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_slow_client_stops_its_own_response_only() {
    const LENGTH: usize = 40_000_000;
    let home = Home::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let connections = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&connections);
    let origin = origin(move |mut side| {
        opened.fetch_add(1, Ordering::SeqCst);
        let Some(Seen::Head(stream, ..)) = side.next() else { return };
        side.respond(stream, &[(":status", "200"), ("cache-control", "no-store")], false);
        let piece = vec![b'x'; 10_000];
        // Other requests come on the same connection.
        let mut left = LENGTH;
        while left > 0 {
            let part = side.http2.send_data_capacity(stream).min(left).min(piece.len());
            if part > 0 {
                assert!(side.data(stream, &piece[..part], left == part));
                left -= part;
                count.fetch_add(part, Ordering::SeqCst);
                continue;
            }
            match side.next_of(stream) {
                Some(Seen::Head(other, ..)) => {
                    side.respond(other, &[(":status", "204"), ("cache-control", "no-store")], true);
                }
                Some(_) => {}
                None => return,
            }
        }
        while side.next().is_some() {}
    });
    let proxy = in_clear(&home, origin.address);
    let mut slow = TcpStream::connect(proxy.address()).unwrap();
    slow.set_read_timeout(Some(SOON)).unwrap();
    slow.write_all(b"GET /long HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut before = 0;
    let stopped_at = wait_for("the origin to be stopped", SOON, || {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::SeqCst);
        (std::mem::replace(&mut before, now) == now && now > 0).then_some(now)
    });
    assert!(stopped_at < LENGTH, "{stopped_at}");
    assert!(get(proxy.address(), "/other").starts_with("HTTP/1.1 204 "));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    let head = memory_find(&answer, b"\r\n\r\n") + 4;
    let body = decoded(&answer[head..]);
    assert_eq!(body.len(), LENGTH);
    let metrics = get(proxy.admin(), "/metrics");
    assert!(metrics.contains("plimsoll_client_held_bytes 0\n"), "{metrics}");
    assert_eq!(proxy.stopped().0, Some(0));
}

fn memory_find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

/// The content of a chunked body.
fn decoded(mut chunks: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let line = memory_find(chunks, b"\r\n");
        let size = std::str::from_utf8(&chunks[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&chunks[line + 2..][..size]);
        chunks = &chunks[line + 2 + size + 2..];
    }
}

#[test]
fn a_response_that_breaks_off_is_not_taken_for_whole() {
    let home = Home::new();
    let origin = origin(|mut side| {
        while let Some(Seen::Head(stream, head, _)) = side.next() {
            side.respond(stream, &[(":status", "200"), ("cache-control", "max-age=60")], false);
            side.data(stream, b"hello", false);
            if field(&head, ":path") == "/reset" {
                side.reset(stream, ErrorCode::INTERNAL_ERROR);
                continue;
            }
            return;
        }
    });
    let proxy = in_clear(&home, origin.address);
    for path in ["/reset", "/close"] {
        for method in ["GET", "POST"] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            let answer = exchange(proxy.address(), &request);
            assert!(!answer.ends_with("0\r\n\r\n"), "{method} {path}: {answer}");
            let mut client = Side::connect(proxy.address());
            client.request((method, path), &[], true);
            let message = client.message();
            let is_error = |message: &peer::Message| field(&message.head, ":status") == "502";
            assert!(message.as_ref().is_none_or(is_error), "{method} {path}: {message:?}");
        }
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_malformed_response_is_refused() {
    let home = Home::new();
    let origin = origin(|mut side| {
        while let Some(Seen::Head(stream, head, _)) = side.next() {
            let bad = match field(&head, ":path") {
                "/framing" => ("transfer-encoding", "chunked"),
                "/connection" => ("connection", "close"),
                "/space" => ("a b", "c"),
                "/line" => ("a", "b\r\nc: d"),
                "/length" => ("content-length", "5"),
                "/status" => (":status", "200"),
                "/none" => ("content-length", "five"),
                path => panic!("{path}"),
            };
            side.respond_with_anything(stream, &[(":status", "200"), bad]);
        }
    });
    let proxy = in_clear(&home, origin.address);
    for (path, rule) in [
        ("/framing", "connection-field"),
        ("/connection", "connection-field"),
        ("/space", "field-name"),
        ("/line", "field-value"),
        ("/length", "content-length"),
        ("/status", "pseudo-"),
        ("/none", "content-length"),
    ] {
        let answer = get(proxy.address(), path);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{path}: {answer}");
        assert!(answer.contains(&format!("upstream-http2-{rule}")), "{path}: {answer}");
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

/// The core once looped for ever: the response was complete, and the window did not open.
#[test]
fn an_answer_before_the_end_of_the_content_ends_the_request() {
    let home = Home::new();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let origin = origin(move |mut side| {
        let Some(Seen::Head(stream, ..)) = side.next() else { return };
        // It opens no window of this stream.
        side.respond(stream, &[(":status", "200"), ("cache-control", "no-store")], false);
        let _ = finished.lock().unwrap().recv_timeout(Duration::from_millis(300));
        side.data(stream, b"enough", true);
        side.raw(WINDOW_UPDATE, &[0, 0, 0, 1]);
        let _ = finished.lock().unwrap().recv_timeout(SOON);
    });
    let proxy = in_clear(&home, origin.address);
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n").unwrap();
    let mut writer = client.try_clone().unwrap();
    // The proxy may close before it has read everything.
    let writing = std::thread::spawn(move || drop(writer.write_all(&vec![b'x'; 1_000_000])));
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !memory_has(&answer, b"enough\r\n0\r\n\r\n") {
        let read = read_some(&mut client, &mut piece).unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..read]);
    }
    drop(client);
    writing.join().unwrap();
    drop(finish);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// It waited for the window of the content, which the upstream did not open.
#[test]
fn an_error_passes_before_content_that_the_upstream_does_not_take() {
    let home = Home::new();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let origin = Accepting::start(move |stream| {
        let mut limits = Limits::DEFAULT;
        limits.stream_window_bytes = 1;
        let mut side = Side::accept(stream, &limits);
        let Some(Seen::Head(stream, ..)) = side.next() else { return };
        side.respond(stream, &[(":status", "204"), ("cache-control", "no-store")], true);
        let Some(Seen::Head(stream, ..)) = side.next() else { return };
        side.respond(stream, &[(":status", "413"), ("content-length", "9")], false);
        side.data(stream, b"too ", false);
        let _ = finished.lock().unwrap().recv_timeout(SOON);
        side.data(stream, b"much\n", true);
        while side.next().is_some() {}
    });
    let proxy = in_clear(&home, origin.address);
    // From now on the window is known.
    assert!(get(proxy.address(), "/").starts_with("HTTP/1.1 204 "));
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let content = "x".repeat(5000);
    let request = format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n{content}");
    client.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut part) = (Vec::new(), [0; 1000]);
    for end in [&b"\r\n\r\ntoo "[..], b"\r\n\r\ntoo much\n"] {
        while !answer.ends_with(end) {
            match read_some(&mut client, &mut part) {
                Ok(read @ 1..) => answer.extend_from_slice(&part[..read]),
                other => panic!("{other:?} after {}", String::from_utf8_lossy(&answer)),
            }
        }
        let _ = finish.send(());
    }
    assert!(answer.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&answer));
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn an_upstream_that_does_not_speak_http2_is_502() {
    let home = Home::new();
    let silent = Accepting::start(drop);
    let other = Accepting::start(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for (origin, rule) in [(&silent, "upstream-broken"), (&other, "upstream-http2-preface")] {
        let proxy = in_clear(&home, origin.address);
        let address = proxy.address();
        let clients: Vec<_> = (0..8)
            .map(|number| std::thread::spawn(move || post(address, &format!("/{number}"), "a")))
            .collect();
        for client in clients {
            let answer = client.join().unwrap();
            assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(rule), "{answer}");
        }
        assert_eq!(proxy.stopped().0, Some(0));
    }
}

/// Trailers that are passed on, and some that are not.
const TRAILERS: [(&str, &str); 4] =
    [("x-sum", "17"), ("grpc-status", "0"), ("set-cookie", "a=b"), ("content-length", "3")];

/// An origin over HTTP/1.1 with trailers, and what it gets.
fn http1_origin() -> (Accepting, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let got = Arc::clone(&requests);
    let origin = Accepting::start(move |mut stream| {
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while !(request.ends_with(b"\r\n\r\n") && memory_has(&request, b"\r\n0\r\n")) {
            match read_some(&mut stream, &mut piece) {
                Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
                _ => return,
            }
        }
        got.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
        let lines = TRAILERS.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n";
        let answer = format!("{head}\r\n5\r\nhello\r\n0\r\n{lines}\r\n");
        let _ = stream.write_all(answer.as_bytes());
    });
    (origin, requests)
}

fn memory_has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[test]
fn trailers_pass_between_all_versions() {
    let home = Home::new();
    let (old_origin, old_requests) = http1_origin();
    let new_requests = Arc::new(Mutex::new(Vec::new()));
    let got = Arc::clone(&new_requests);
    let new_origin = origin(move |mut side| {
        while let Some(request) = side.message() {
            let stream = request.stream;
            let length =
                (field(&request.head, ":path") == "/length").then_some(("content-length", "5"));
            got.lock().unwrap().push(request);
            let fields = [(":status", "200"), ("cache-control", "no-store")];
            let fields: Vec<_> = fields.into_iter().chain(length).collect();
            side.respond(stream, &fields, false);
            side.data(stream, b"hello", false);
            side.trailers(stream, &TRAILERS);
        }
    });
    let old = proxy(&home, &format!("http://{}", old_origin.address), "");
    let new = in_clear(&home, new_origin.address);

    for (proxy, is_new) in [(&old, false), (&new, true)] {
        // A client of HTTP/1.1 that wants trailers, and one that does not say so.
        let head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close, TE\r\nTransfer-Encoding: \
                    chunked\r\n";
        let body = "2\r\nab\r\n0\r\nX-Mine: 1\r\nAuthorization: no\r\n\r\n";
        let answer = exchange(proxy.address(), &format!("{head}TE: trailers\r\n\r\n{body}"));
        let end = "\r\n5\r\nhello\r\n0\r\nx-sum: 17\r\ngrpc-status: 0\r\n\r\n";
        assert!(answer.ends_with(end), "{answer}");
        let answer = exchange(proxy.address(), &format!("{head}\r\n{body}"));
        assert!(answer.ends_with("\r\n5\r\nhello\r\n0\r\n\r\n"), "{answer}");
        // A client of HTTP/2.
        let mut paths = vec!["/"];
        paths.extend(is_new.then_some("/length"));
        for path in paths {
            let mut client = Side::connect(proxy.address());
            let stream = client.request(("POST", path), &[("te", "trailers")], false);
            client.data(stream, b"ab", false);
            client.trailers(stream, &[("x-mine", "1"), ("host", "other")]);
            let message = client.message().unwrap();
            assert_eq!(message.content, b"hello");
            let names: Vec<_> = message.trailers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["x-sum", "grpc-status"], "{path}");
        }
    }
    let requests = old_requests.lock().unwrap();
    for request in &*requests {
        assert!(
            request.ends_with("\r\n2\r\nab\r\n0\r\nX-Mine: 1\r\n\r\n")
                || request.ends_with("\r\n2\r\nab\r\n0\r\nx-mine: 1\r\n\r\n"),
            "{request}"
        );
        assert!(!request.to_ascii_lowercase().contains("\r\nte:"), "{request}");
    }
    assert_eq!(requests.len(), 3);
    let requests = new_requests.lock().unwrap();
    for (request, te) in requests.iter().zip(["trailers", "", "trailers", "trailers"]) {
        assert_eq!(request.content, b"ab");
        assert_eq!(request.trailers, [("x-mine".to_owned(), "1".to_owned())]);
        assert_eq!(field(&request.head, "te"), te);
    }
    assert_eq!(requests.len(), 4);
    assert_eq!((old.stopped().0, new.stopped().0), (Some(0), Some(0)));
}

#[test]
fn each_side_sends_when_it_wants_and_a_reset_reaches_the_other() {
    let home = Home::new();
    let (report, resets) = std::sync::mpsc::channel();
    let origin = origin(move |mut side| {
        // The head of the response comes before any content of the request, and each piece is
        // answered at once.
        let Some(Seen::Head(stream, ..)) = side.next() else { return };
        side.respond(stream, &[(":status", "200"), ("cache-control", "no-store")], false);
        loop {
            match side.next() {
                Some(Seen::Data(_, bytes, _)) => {
                    side.data(stream, &bytes, false);
                }
                other => return report.send(other).unwrap(),
            }
        }
    });
    let proxy = in_clear(&home, origin.address);
    let mut client = Side::connect(proxy.address());
    let stream = client.request(("POST", "/"), &[], false);
    assert!(matches!(client.next(), Some(Seen::Head(_, _, false))));
    for number in 0..100 {
        let text = number.to_string().into_bytes();
        assert!(client.data(stream, &text, false));
        assert_eq!(client.next(), Some(Seen::Data(stream, text, false)));
    }
    client.reset(stream, ErrorCode::CANCEL);
    let reset = resets.recv_timeout(SOON).unwrap();
    assert_eq!(reset, Some(Seen::Reset(1, ErrorCode::CANCEL)));
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_client_that_leaves_ends_a_silent_response() {
    let home = Home::new();
    let (report, resets) = std::sync::mpsc::channel();
    let origin = origin(move |mut side| {
        while let Some(seen) = side.next() {
            match seen {
                Seen::Head(stream, ..) => {
                    let fields = [(":status", "200"), ("cache-control", "no-store")];
                    side.respond(stream, &fields, false);
                }
                other => report.send(other).unwrap(),
            }
        }
    });
    let proxy = in_clear(&home, origin.address);
    let mut client = Side::connect(proxy.address());
    let first = client.request(("POST", "/"), &[], true);
    assert!(matches!(client.next(), Some(Seen::Head(_, _, false))));
    client.reset(first, ErrorCode::CANCEL);
    assert_eq!(resets.recv_timeout(SOON).unwrap(), Seen::Reset(1, ErrorCode::CANCEL));
    client.request(("POST", "/"), &[], true);
    assert!(matches!(client.next(), Some(Seen::Head(_, _, false))));
    // The same for a connection that is closed.
    drop(client);
    assert_eq!(resets.recv_timeout(SOON).unwrap(), Seen::Reset(3, ErrorCode::CANCEL));
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn checks_and_upgrades_know_the_version() {
    let home = Home::new();
    let checks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&checks);
    let origin = origin(move |mut side| {
        while let Some(request) = side.message() {
            assert_eq!(field(&request.head, "upgrade"), "");
            if field(&request.head, ":path") == "/health" {
                count.fetch_add(1, Ordering::SeqCst);
                assert_eq!(field(&request.head, "connection"), "");
            }
            side.respond(request.stream, &[(":status", "103"), ("link", "</a>")], false);
            side.respond(
                request.stream,
                &[(":status", "204"), ("cache-control", "no-store")],
                true,
            );
        }
    });
    let lines = "protocol = \"h2c\"\n[upstream.health]\npath = \"/health\"\ninterval = \"100ms\"\n";
    let proxy = proxy(&home, &format!("http://{}", origin.address), lines);
    wait_for("checks", SOON, || (checks.load(Ordering::SeqCst) > 3).then_some(()));
    let server = server(&proxy);
    assert_eq!((&server["state"], &server["checks_failed"]), (&"up".into(), &0.into()));
    let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let answer = exchange(proxy.address(), request);
    assert!(answer.starts_with("HTTP/1.1 103 ") && answer.contains("HTTP/1.1 204 "), "{answer}");
    assert_eq!(proxy.stopped().0, Some(0));
}

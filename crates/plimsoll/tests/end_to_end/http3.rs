//! HTTP/3 with other programs as clients: aioquic and Chromium.

mod reloads;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http2::holding::{HELD, OPEN, TIMEOUTS, metric, wait_for_metric};
use crate::http2::recorder::{Recorder, content};
use crate::http2::tunnels::{SWITCHES, echo, websocket};
use crate::support::{
    Accepting, CommandOutput, Home, OurServer, Running, SOON, Successor, chromium, get,
    output_file, plimsoll, program, read_some, run, wait_for,
};
use crate::tls::{authority, issue};

const CLIENT: &str = include_str!("http3/client.py");

/// A Python that has aioquic.
pub(crate) fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/aioquic/bin/python");
    assert!(python.exists(), "aioquic is missing: ./setup.sh test installs it");
    python
}

/// The client as a command.
fn client(home: &Home, port: u16, steps: &Value) -> Command {
    let mut command = Command::new(python());
    command.arg(home.write("client.py", CLIENT)).args([port.to_string(), steps.to_string()]);
    command
}

/// Takes the steps; returns what each one gave.
#[track_caller]
pub(crate) fn take(home: &Home, port: u16, steps: Value) -> Vec<Value> {
    let output = run(client(home, port, &steps), SOON * 2).succeeded();
    match output.json() {
        Value::Array(results) => results,
        other => panic!("{other}"),
    }
}

/// Our server with HTTP/3, in front of an origin. `more` comes first in its configuration.
pub(crate) fn proxy(home: &Home, origin: &str, more: &str) -> OurServer {
    authority(home);
    issue(home, "web", "DNS:localhost,IP:127.0.0.1", false);
    OurServer::configured(&config(home, origin, "127.0.0.1:0", more))
}

fn config(home: &Home, origin: &str, address: &str, more: &str) -> String {
    let text = format!(
        "{more}[log]\npath = \"access.log\"\nformat = \"combined\"\n\
         [[listen]]\naddress = \"{address}\"\nhttp3 = true\n[listen.tls]\n\
         [[listen.tls.certificate]]\nchain = \"web.pem\"\nkey = \"web.key\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{origin}\"\n\
         [[route]]\nupstream = \"site\"\n"
    );
    home.write("http3.toml", text)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() % (1 << 32)
}

/// Asserts status and content.
#[track_caller]
fn is(answer: &Value, status: &str, body: &[u8]) {
    let found = (&answer["fields"][":status"], &answer["bytes"], &answer["sum"], &answer["end"]);
    let expected = (&json!(status), &json!(body.len()), &json!(sum(body)), &json!("whole"));
    assert_eq!(found, expected, "{answer:#}");
}

fn is_hit(answer: &Value) -> bool {
    answer["fields"]["cache-status"] == "plimsoll; hit"
}

#[test]
fn aioquic_gets_misses_hits_ranges_and_errors() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let (small, large) = (content(1000), content(5_000_000));
    let range = [["range", "bytes=100-199"]];
    let answers = take(
        &home,
        proxy.address().port(),
        json!([
            {"do": "get", "path": "/cached/1000"},
            {"do": "get", "path": "/cached/1000"},
            {"do": "get", "path": "/cached/5000000"},
            {"do": "get", "path": "/cached/5000000"},
            {"do": "get", "path": "/cached/1000", "fields": range},
            {"do": "get", "path": "/cached/1000", "fields": [["if-none-match", "\"v1\""]]},
            {"do": "get", "path": "/missing"},
            {"do": "get", "path": "/cached/1000", "times": 100},
        ]),
    );
    is(&answers[0], "200", &small);
    assert!(!is_hit(&answers[0]));
    assert_eq!(answers[0]["fields"].get("alt-svc"), None);
    is(&answers[1], "200", &small);
    assert!(is_hit(&answers[1]));
    is(&answers[2], "200", &large);
    is(&answers[3], "200", &large);
    assert!(is_hit(&answers[3]));
    is(&answers[4], "206", &small[100..200]);
    is(&answers[5], "304", b"");
    is(&answers[6], "404", b"nothing");
    let many = answers[7].as_array().unwrap();
    assert_eq!(many.len(), 100);
    many.iter().for_each(|answer| is(answer, "200", &small));

    assert_eq!(proxy.stopped().0, Some(0));
    let fetch = origin.only("/cached/1000");
    assert!(fetch.field("via").is_some_and(|via| via.starts_with("3.0 ")), "{}", fetch.head);
    let log = home.read("access.log");
    for (line, count) in [
        ("\"GET /cached/1000 HTTP/3.0\" 200 1000 ", 102),
        ("\"GET /cached/5000000 HTTP/3.0\" 200 5000000 ", 2),
        ("\"GET /cached/1000 HTTP/3.0\" 206 100 ", 1),
        ("\"GET /missing HTTP/3.0\" 404 ", 1),
    ] {
        assert_eq!(log.matches(line).count(), count, "{line}: {log}");
    }
}

/// Somebody else may have sent them again (RFC 8470).
#[test]
fn early_requests_are_answered_only_where_a_route_allows_it() {
    let route = "[[route]]\nprefix = \"/cached\"\nupstream = \"site\"\nearly_data = true\n";
    for (more, is_accepted) in [(route, true), ("", false)] {
        let home = Home::new();
        let origin = Recorder::start();
        let proxy = proxy(&home, &origin.url(), more);
        let answers = take(
            &home,
            proxy.address().port(),
            json!([
                {"do": "early", "requests": [
                    ["GET", "/cached/10"], ["GET", "/missing"], ["DELETE", "/cached/11"],
                ]},
                {"do": "get", "path": "/cached/12"},
            ]),
        );
        assert_eq!(answers[0][0], is_accepted);
        let early = answers[0][1].as_array().unwrap();
        let statuses: Vec<_> = early.iter().map(|answer| &answer["fields"][":status"]).collect();
        // Without early data, the same requests follow the handshake.
        let expected = if is_accepted { ["200", "425", "425"] } else { ["200", "404", "200"] };
        assert_eq!(statuses, expected);
        is(&early[0], "200", &content(10));
        assert_eq!(proxy.stopped().0, Some(0));
        let fields = |path| origin.only(path).field("early-data").map(str::to_owned);
        assert_eq!(fields("/cached/10").as_deref(), is_accepted.then_some("1"));
        assert_eq!(fields("/cached/12"), None);
        if is_accepted {
            assert_eq!(origin.paths(), ["/cached/10", "/cached/12"]);
        }
    }
}

#[test]
fn trailers_pass_in_both_directions() {
    let home = Home::new();
    let origin = Accepting::start(|mut stream| {
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"x-end: 1\r\n\r\n") {
            match read_some(&mut stream, &mut part) {
                Ok(read @ 1..) => request.extend_from_slice(&part[..read]),
                _ => return,
            }
        }
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                      2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";
        let _ = stream.write_all(answer.as_bytes());
    });
    let proxy = proxy(&home, &format!("http://{}", origin.address), "");
    let steps = json!([{"do": "trailers", "path": "/x"}]);
    let answer = &take(&home, proxy.address().port(), steps)[0];
    is(answer, "200", b"ok");
    assert_eq!(answer["fields"]["x-sum"], "7", "{answer:#}");
    assert_eq!(proxy.stopped().0, Some(0));
}

fn head<'a>(method: &'a str, path: &'a str) -> Vec<[&'a str; 2]> {
    vec![[":method", method], [":scheme", "https"], [":authority", "localhost"], [":path", path]]
}

/// Its client was taken for one that uploads too slowly.
#[test]
fn a_stream_of_both_sides_may_be_silent() {
    let home = Home::new();
    let origin = Accepting::start(|mut stream| {
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        for (said, answer) in [
            (&b"one"[..], "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nONE\r\n"),
            (b"two", "3\r\nTWO\r\n0\r\n\r\n"),
        ] {
            while !request.windows(3).any(|bytes| bytes == said) {
                match read_some(&mut stream, &mut part) {
                    Ok(read @ 1..) => request.extend_from_slice(&part[..read]),
                    _ => return,
                }
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let limits = "[limits]\nbody_timeout = \"200ms\"\n";
    let proxy = proxy(&home, &format!("http://{}", origin.address), limits);
    let head = head("POST", "/talk");
    let steps = json!([{"do": "talk", "head": head, "say": ["one", "two"], "pause_s": 1}]);
    is(&take(&home, proxy.address().port(), steps)[0], "200", b"ONETWO");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// CONNECT (RFC 9114 section 4.4).
#[test]
fn a_tunnel_carries_a_megabyte_both_ways() {
    let home = Home::new();
    authority(&home);
    issue(&home, "web", "DNS:localhost,IP:127.0.0.1", false);
    let echo = echo();
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\nhttp3 = true\n[listen.tls]\n\
         [[listen.tls.certificate]]\nchain = \"web.pem\"\nkey = \"web.key\"\n\
         [forward]\nallow_to = [\"127.0.0.0/8\"]\nconnect_ports = [\"{}\"]\n\
         [log]\npath = \"access.log\"\n",
        echo.address.port()
    );
    let proxy = OurServer::configured(&home.write("forward.toml", text));
    let steps = json!([
        {"do": "tunnel", "to": echo.address.to_string(), "bytes": 1_000_000},
        {"do": "tunnel", "to": "127.0.0.1:1", "bytes": 1},
    ]);
    let answers = take(&home, proxy.address().port(), steps);
    is(&answers[0], "200", &vec![0; 1_000_000]);
    assert_eq!(answers[1]["fields"][":status"], "403", "{:#}", answers[1]);
    assert_eq!(proxy.stopped().0, Some(0));
    let log = home.read("access.log");
    assert!(log.contains("TCP_TUNNEL/200 10") && log.contains("TCP_DENIED/403 "), "{log}");
}

/// RFC 9220.
#[test]
fn an_extended_connect_of_http3_becomes_an_upgrade() {
    let home = Home::new();
    let (origin, heads) = websocket(SWITCHES);
    let origin = format!("http://{}", origin.address);
    let connect = |protocol| {
        let mut head = head("CONNECT", "/chat");
        head.extend([[":protocol", protocol], ["sec-websocket-version", "13"]]);
        json!({"do": "talk", "head": head, "say": ["there", "and"]})
    };
    let proxy = proxy(&home, &origin, "");
    let steps = json!([{"do": "settings"}, connect("websocket"), connect("connect-udp")]);
    let answers = take(&home, proxy.address().port(), steps);
    assert_eq!(answers[0]["8"], 1, "{}", answers[0]);
    is(&answers[1], "200", b"hithereand");
    assert_eq!(answers[1]["fields"]["sec-websocket-protocol"], "chat");
    assert_eq!(answers[1]["fields"].get("sec-websocket-accept"), None);
    assert_eq!(answers[2]["fields"][":status"], "501");
    assert_eq!(proxy.stopped().0, Some(0));
    let upgrade = heads.recv_timeout(SOON).unwrap();
    assert!(upgrade.starts_with("GET /chat HTTP/1.1\r\nHost: localhost\r\n"), "{upgrade}");
    assert!(upgrade.contains("Upgrade: websocket\r\n"), "{upgrade}");
    let log = home.read("access.log");
    assert!(log.contains("\"GET /chat HTTP/3.0\" 200 "), "{log}");

    fs::write(home.path().join("access.log"), "").unwrap();
    let text = home.read("http3.toml");
    let text = format!("[upgrade]\nprotocols = []\n{text}");
    let proxy = OurServer::configured(&home.write("http3.toml", text));
    let steps = json!([{"do": "settings"}, connect("websocket")]);
    let answers = take(&home, proxy.address().port(), steps);
    assert_eq!(answers[0]["8"], 0, "{}", answers[0]);
    assert_eq!(answers[1]["end"], "reset 0x10e");
    assert_eq!(proxy.stopped().0, Some(0));
    assert!(heads.try_recv().is_err(), "nothing reaches the origin");
}

/// Half of a head held its stream, and the connection, for ever.
#[test]
fn a_head_that_does_not_come_is_given_up() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "[limits]\nhead_timeout = \"300ms\"\n");
    let steps = json!([
        // HEADERS of 100 bytes, of which two come; a frame of an unknown type without end.
        {"do": "raw", "hex": "0140640000"},
        {"do": "raw", "hex": "21bfffffff00"},
        {"do": "get", "path": "/cached/100"},
    ]);
    let answers = take(&home, proxy.address().port(), steps);
    for late in &answers[..2] {
        assert_eq!((&late["fields"][":status"], &late["end"]), (&json!("408"), &json!("whole")));
    }
    is(&answers[2], "200", &content(100));
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn aioquic_sends_a_megabyte() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let size = 1_000_000;
    let answers = take(
        &home,
        proxy.address().port(),
        json!([
            {"do": "post", "path": "/length", "bytes": size, "length": size},
            {"do": "post", "path": "/unknown", "bytes": size},
            {"do": "post", "path": "/empty", "bytes": 0},
            // More and less than announced is malformed.
            {"do": "post", "path": "/more", "bytes": 6, "length": 5},
            {"do": "post", "path": "/less", "bytes": 4, "length": 5},
            {"do": "get", "path": "/cached/100"},
        ]),
    );
    for answer in &answers[..3] {
        assert_eq!(answer["fields"][":status"], "200", "{answer:#}");
    }
    for answer in &answers[3..5] {
        assert_eq!(answer["end"], "reset 0x10e", "{answer:#}");
    }
    is(&answers[5], "200", &content(100));
    assert_eq!(proxy.stopped().0, Some(0));
    let whole: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    for path in ["/length", "/unknown"] {
        let request = origin.only(path);
        assert!(request.body == whole, "{path}: {} bytes", request.body.len());
    }
    assert_eq!(origin.only("/length").field("content-length"), Some("1000000"));
    assert!(origin.only("/empty").body.is_empty());
    assert!(origin.requests("/more").is_empty() && origin.requests("/less").is_empty());
}

/// RFC 9218.
#[test]
fn responses_of_http3_go_out_by_their_priorities() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "[server]\nworkers = 1\n");
    let path = "/cached/1500000";
    let patient = ["u=6"; 4];
    let answers = take(
        &home,
        proxy.address().port(),
        json!([
            {"do": "get", "path": path},
            {"do": "order", "path": path, "priorities": ["u=6", "u=6", "u=6", "u=1"]},
            {"do": "order", "path": path, "priorities": patient, "before": [[3, "u=1"]]},
            {"do": "order", "path": path, "priorities": patient, "after": [[2, "u=0"]]},
            {"do": "order", "path": path, "priorities": ["u=6, i", "u=6, i"]},
        ]),
    );
    let order = |at: usize| -> Vec<u64> {
        let ended = answers[at].as_array().unwrap();
        ended.iter().map(|stream| stream[0].as_u64().unwrap()).collect()
    };
    assert_eq!(order(1), [3, 0, 1, 2]);
    assert_eq!(order(2), [3, 0, 1, 2], "an update before the request");
    assert_eq!(order(3), [2, 0, 1, 3], "an update after the request");
    let first = answers[4][0].as_array().unwrap();
    let of_other = first[1][1 - first[0].as_u64().unwrap() as usize].as_u64().unwrap();
    assert!(of_other > 500_000, "two that share: {of_other} bytes of the other one");
    for stream in [1, 2, 3, 512] {
        let steps = json!([
            {"do": "prioritize", "stream": 508, "value": "u=1"},
            {"do": "prioritize", "stream": stream, "value": "u=1"},
            {"do": "closed"},
        ]);
        assert_eq!(take(&home, proxy.address().port(), steps)[2], "0x108", "{stream}");
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

/// What it did not acknowledge was kept for minutes, and counted nowhere.
#[test]
fn a_client_that_acknowledges_nothing_is_cut() {
    for (limit, held_bytes) in [("", 400_000..600_000), ("held_bytes_max = 0\n", 1..200_000)] {
        let home = Home::new();
        let origin = Recorder::start();
        let more = "[server]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n\
                    [limits]\nsend_timeout = \"1s\"\n";
        let proxy = proxy(&home, &origin.url(), &format!("{more}{limit}"));
        let steps = json!([{"do": "deaf", "path": "/cached/500000"}]);
        let _client = Running::start(
            client(&home, proxy.address().port(), &steps).stdout(output_file(&home, "client.out")),
        );
        let admin = proxy.admin();
        let mut most = 0;
        wait_for("the cut", SOON, || {
            most = most.max(metric(admin, HELD));
            (metric(admin, TIMEOUTS) > 0).then_some(())
        });
        assert!(held_bytes.contains(&most), "{limit}: {most} bytes");
        wait_for_metric(admin, OPEN, |open| open == 0);
        wait_for_metric(admin, HELD, |held| held == 0);
        assert_eq!(proxy.stopped().0, Some(0));
    }
}

/// What breaks a rule, and the code that ends the connection or the stream.
#[test]
fn broken_rules_of_http3_are_answered_with_their_codes() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let port = proxy.address().port();
    for (uni, bytes, end, expected) in [
        (false, "000161", false, "closed 0x105"), // DATA before HEADERS
        (false, "0600", false, "closed 0x105"),   // a frame of HTTP/2
        (false, "0400", false, "closed 0x105"),   // SETTINGS on a request
        (false, "0105", true, "closed 0x106"),    // a frame that is cut
        (false, "2100", true, "reset 0x10d"),     // no request
        (false, "01030000ff", false, "closed 0x200"), // an index that does not exist
        (false, "0103010080", false, "closed 0x200"), // a dynamic table
        (false, "01030000d1", true, "reset 0x10e"), // a method alone
        (true, "000400", false, "closed 0x103"),  // a second control stream
        (true, "0100", false, "closed 0x103"),    // a push
    ] {
        let steps = json!([{"do": "raw", "uni": uni, "hex": bytes, "end": end}]);
        let answers = take(&home, port, steps);
        assert_eq!(answers[0]["end"], expected, "{bytes}");
    }
    let long = "x".repeat(40_000);
    let answers = take(
        &home,
        port,
        json!([
            {"do": "stop", "hex": "21aabb"}, // a stream of an unknown type
            {"do": "get", "path": "/cached/100", "fields": [["x", long]]},
            {"do": "get", "path": "/cached/100", "fields": [["connection", "close"]]},
            {"do": "get", "path": "/cached/100", "fields": [["host", "other"]]},
            {"do": "get", "path": "/a b"},
            {"do": "get", "path": "/cached/100"},
        ]),
    );
    assert_eq!(answers[0], "0x103");
    is(&answers[1], "431", b"");
    for answer in &answers[2..5] {
        assert_eq!(answer["end"], "reset 0x10e", "{answer:#}");
    }
    is(&answers[5], "200", &content(100));
    assert_eq!(proxy.stopped().0, Some(0));
    assert_eq!(origin.paths(), ["/cached/100"]);
}

#[test]
fn a_request_that_is_cancelled_leaves_the_others() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let answers = take(
        &home,
        proxy.address().port(),
        json!([
            {"do": "cancel", "path": "/held/1000"},
            {"do": "get", "path": "/cached/100"},
        ]),
    );
    is(&answers[1], "200", &content(100));
    origin.release();
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_client_that_cancels_too_many_requests_is_cut() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let port = proxy.address().port();
    let steps = json!([{"do": "flood", "path": "/held/1000", "count": 5000}, {"do": "closed"}]);
    assert_eq!(take(&home, port, steps)[1], "0x107");
    let answers = take(&home, port, json!([{"do": "get", "path": "/cached/100"}]));
    is(&answers[0], "200", &content(100));
    origin.release();
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_connection_moves_to_another_address() {
    let home = Home::new();
    let origin = Recorder::start();
    // The kernel chooses the core by the addresses: of twelve, some lead to another core.
    let proxy = proxy(&home, &origin.url(), "[server]\nworkers = 4\n");
    let steps: Vec<_> = (0..12)
        .flat_map(|_| [json!({"do": "move"}), json!({"do": "get", "path": "/cached/50000"})])
        .collect();
    let answers = take(&home, proxy.address().port(), json!(steps));
    for answer in answers.iter().skip(1).step_by(2) {
        is(answer, "200", &content(50_000));
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

/// Passes datagrams on between one client and a server, and loses and delays some of them.
struct BadNetwork {
    port: u16,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BadNetwork {
    fn start(server: SocketAddr) -> BadNetwork {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let far = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        far.connect(server).unwrap();
        let port = near.local_addr().unwrap().port();
        let (ends, client) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        }
        let pass = |from: &Arc<UdpSocket>, to: &Arc<UdpSocket>, is_answer: bool| {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let (ends, client) = (Arc::clone(&ends), Arc::clone(&client));
            std::thread::spawn(move || {
                let send = |bytes: &[u8]| match client.get() {
                    Some(client) if is_answer => drop(to.send_to(bytes, client)),
                    _ => drop(to.send(bytes)),
                };
                let (mut buffer, mut late, mut count) = ([0; 65536], None, 0_u32);
                while !ends.load(Ordering::Relaxed) {
                    let Ok((length, sender)) = from.recv_from(&mut buffer) else { continue };
                    if !is_answer {
                        client.get_or_init(|| sender);
                    }
                    count += 1;
                    match count % 23 {
                        7 => {}
                        11 | 12 => late = Some(buffer[..length].to_vec()),
                        _ => send(&buffer[..length]),
                    }
                    if count % 23 == 14
                        && let Some(late) = late.take()
                    {
                        send(&late);
                    }
                }
            })
        };
        let threads = vec![pass(&near, &far, false), pass(&far, &near, true)];
        BadNetwork { port, ends, threads }
    }
}

impl Drop for BadNetwork {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn lost_and_late_datagrams_change_nothing() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let network = BadNetwork::start(proxy.address());
    let answers = take(
        &home,
        network.port,
        json!([
            {"do": "get", "path": "/cached/500000"},
            {"do": "post", "path": "/upload", "bytes": 200_000},
            {"do": "get", "path": "/cached/1000", "times": 50},
        ]),
    );
    is(&answers[0], "200", &content(500_000));
    assert_eq!(answers[1]["fields"][":status"], "200", "{}", answers[1]);
    let many = answers[2].as_array().unwrap();
    many.iter().for_each(|answer| is(answer, "200", &content(1000)));
    assert_eq!(origin.only("/upload").body.len(), 200_000);
    drop(network);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// A shutdown waited for as long as a response may be taken, which a client that had gone without a
/// word did not do.
#[test]
fn a_client_that_vanished_with_its_last_response_holds_up_no_shutdown() {
    let home = Home::new();
    let origin = Recorder::start();
    let limits = "[limits]\nlinger_timeout = \"100ms\"\nsend_timeout = \"10m\"\n\
                  idle_keep_alive = \"10m\"\ndrain_timeout = \"10m\"\n";
    let proxy = proxy(&home, &origin.url(), limits);
    let network = BadNetwork::start(proxy.address());
    let steps = json!([{"do": "begin", "path": "/held/1000"}, {"do": "finish"}]);
    let vanished = Running::start(&mut client(&home, network.port, &steps));
    origin.wait_for_request("/held/1000");
    drop((network, vanished));
    origin.release();
    assert_eq!(proxy.stopped().0, Some(0));
}

/// RFC 9000 section 8.1: without a sign that the client receives at its address, at most three
/// times as much is sent there as came from it. With too many such clients, the next one must first
/// show that it does (Retry).
#[test]
fn clients_that_do_not_answer_get_little_and_cost_others_a_retry() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "[server]\nworkers = 1\n");
    let port = proxy.address().port();
    let steps = json!([{"do": "retries"}, {"do": "get", "path": "/cached/100"}]);
    assert_eq!(take(&home, port, steps)[0], 0);
    let answers = take(
        &home,
        port,
        json!([
            {"do": "silent", "count": 70},
            {"do": "get", "path": "/cached/100"},
            {"do": "retries"},
        ]),
    );
    let (sent, received) = (&answers[0]["sent"], &answers[0]["received"]);
    let (sent, received) = (sent.as_u64().unwrap(), received.as_u64().unwrap());
    assert!(received > 0 && received <= 3 * sent, "{received} bytes for {sent}");
    is(&answers[1], "200", &content(100));
    assert_eq!(answers[2], 1, "a Retry came first");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn sigterm_lets_requests_of_http3_finish() {
    let home = Home::new();
    let origin = Recorder::start();
    let mut proxy = proxy(&home, &origin.url(), "[server]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n");
    let steps = json!([
        {"do": "begin", "path": "/held/1000"},
        {"do": "finish"},
        {"do": "closed"},
    ]);
    let mut client = Running::start(
        client(&home, proxy.address().port(), &steps).stdout(output_file(&home, "client.out")),
    );
    origin.wait_for_request("/held/1000");
    proxy.child.signal("TERM");
    let admin = proxy.admin();
    wait_for("the drain", SOON, || get(admin, "/healthz").contains("draining").then_some(()));
    assert!(!proxy.child.has_ended() && !client.has_ended(), "it waits for the request");
    origin.release();
    assert!(client.ended(SOON).success());
    let answers: Value = serde_json::from_str(&home.read("client.out")).unwrap();
    is(&answers[1], "200", &content(1000));
    assert_eq!(answers[2], "0x100");
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
}

/// GOAWAY was not sent, and a request that was on its way was lost.
#[test]
fn a_request_that_crosses_with_goaway_is_answered() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "[limits]\nlinger_timeout = \"1s\"\n");
    let steps = json!([
        {"do": "get", "path": "/cached/100"},
        {"do": "print", "text": "connected"},
        {"do": "goodbyes", "path": "/late"},
    ]);
    let mut client = Running::start(
        client(&home, proxy.address().port(), &steps).stdout(output_file(&home, "client.out")),
    );
    wait_for("a connection", SOON, || home.read("client.out").contains("connected").then_some(()));
    // That it was silent for longer than it may take to answer now does not matter.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(proxy.stopped().0, Some(0));
    assert!(client.ended(SOON).success());
    let printed = home.read("client.out");
    let answers: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let [goodbyes, late, code] = &answers[2].as_array().unwrap()[..] else { panic!("{answers}") };
    assert_eq!(goodbyes, &json!([(1_u64 << 62) - 4, 8]));
    assert_eq!(late["fields"][":status"], "200", "{late:#}");
    assert_eq!(code, "0x100");
    origin.only("/late");
}

/// Connections were closed, in the middle of a handshake or of a request.
#[test]
fn a_restart_completes_the_requests_and_handshakes_of_http3() {
    let home = Home::new();
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let is_released = std::sync::Mutex::new(is_released);
    let origin = Accepting::start(move |mut stream| {
        let mut request = [0; 4096];
        let read = read_some(&mut stream, &mut request).unwrap_or(0);
        let body = if request[..read].starts_with(b"GET /slow ") { "slow" } else { "fast" };
        if body == "slow" {
            let _ = is_released.lock().unwrap().recv_timeout(SOON);
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Control: no-store\r\n\
             Connection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes());
    });
    let config = "[server]\nadmin = \"127.0.0.1:0\"\nworkers = 2\n";
    let mut proxy = proxy(&home, &format!("http://{}", origin.address), config);
    let port = proxy.address().port();
    let go = home.at("go");
    let begun = |name: &str, steps: &Value, said: &str| {
        let running = Running::start(client(&home, port, steps).stdout(output_file(&home, name)));
        wait_for("a client", SOON, || home.read(name).contains(said).then_some(()));
        running
    };
    let asks = json!([
        {"do": "begin", "path": "/slow"},
        {"do": "print", "text": "asked"},
        {"do": "wait", "file": go},
        {"do": "finish"},
        {"do": "closed"},
    ]);
    let mut asks = begun("asks.out", &asks, "asked");
    let greets: Vec<_> = (0..4)
        .map(|at| {
            let steps = json!([{"do": "mute", "file": go, "path": "/fast"}]);
            begun(&format!("greets.{at}"), &steps, "mute")
        })
        .collect();
    let first = Successor::restart(proxy.admin());
    // The datagrams of the first process pass through two. It may still accept for a moment.
    let second = wait_for("another restart", SOON, || {
        let output = plimsoll(&["restart", "--admin", &proxy.admin().to_string()]);
        (output.code == Some(0)).then(|| Successor::of(&output.stdout))
    });
    let answer = &take(&home, port, json!([{"do": "get", "path": "/fast"}]))[0];
    is(answer, "200", b"fast");
    assert!(first.lives() && !proxy.child.has_ended());
    home.write("go", "");
    release.send(()).unwrap();
    assert!(asks.ended(SOON).success());
    let answers = |name: &str| -> Value {
        serde_json::from_str(home.read(name).lines().last().unwrap()).unwrap()
    };
    let asked = answers("asks.out");
    is(&asked[3], "200", b"slow");
    assert_eq!(asked[4], "0x100");
    for (at, mut greets) in greets.into_iter().enumerate() {
        assert!(greets.ended(SOON).success());
        is(&answers(&format!("greets.{at}"))[0], "200", b"fast");
    }
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
    first.ends(None);
    assert!(home.read("access.log").matches("\"GET /fast HTTP/3.0\" 200 4 ").count() >= 4);
    second.ends(Some("TERM"));
}

/// The UDP socket goes to the new process; connections of the old one that are idle are closed.
#[test]
fn a_restart_closes_connections_of_http3_and_new_ones_work() {
    let home = Home::new();
    let origin = Recorder::start();
    let mut proxy = proxy(&home, &origin.url(), "[server]\nadmin = \"127.0.0.1:0\"\n");
    let port = proxy.address().port();
    let steps = json!([
        {"do": "get", "path": "/cached/100"},
        {"do": "print", "text": "connected"},
        {"do": "closed"},
    ]);
    let mut before =
        Running::start(client(&home, port, &steps).stdout(output_file(&home, "client.out")));
    wait_for("a connection", SOON, || home.read("client.out").contains("connected").then_some(()));
    let successor = Successor::restart(proxy.admin());
    assert!(before.ended(SOON).success());
    assert!(home.read("client.out").contains("\"0x100\""), "{}", home.read("client.out"));
    let answers = take(&home, port, json!([{"do": "get", "path": "/cached/100"}]));
    is(&answers[0], "200", &content(100));
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
    successor.ends(Some("TERM"));
}

#[test]
fn responses_over_tcp_name_http3() {
    for (key, value) in [
        ("", Some("h3=\":PORT\"; ma=86400")),
        ("alt_svc = 'h3=\":443\"; ma=60'\n", Some("h3=\":443\"; ma=60")),
        ("alt_svc = \"none\"\n", None),
    ] {
        let home = Home::new();
        let origin = Recorder::start();
        authority(&home);
        issue(&home, "web", "DNS:localhost,IP:127.0.0.1", false);
        config(&home, &origin.url(), "127.0.0.1:0", "");
        let text =
            home.read("http3.toml").replace("http3 = true\n", &format!("http3 = true\n{key}"));
        let proxy = OurServer::configured(&home.write("http3.toml", text));
        let port = proxy.address().port().to_string();
        for version in ["--http1.1", "--http2"] {
            let urls = ["cached/100", "cached/100", "cached/500000", "cached/500000", "missing"]
                .map(|path| format!("https://127.0.0.1:{port}/{path}"));
            let mut curl = Command::new(program("curl", "curl"));
            curl.args(["--silent", "--insecure", "--output", "/dev/null", "--remote-name-all"]);
            curl.args(["--dump-header", "-", version]).args(urls).current_dir(home.path());
            let heads = run(curl, SOON).succeeded().stdout.to_ascii_lowercase();
            let found = heads.matches("alt-svc").count();
            let Some(value) = value else {
                assert_eq!(found, 0, "{heads}");
                continue;
            };
            let line = format!("\r\nalt-svc: {}\r\n", value.replace("PORT", &port));
            assert_eq!((heads.matches(&line).count(), found), (5, 5), "{heads}");
            assert!(heads.matches("plimsoll; hit").count() >= 2, "{heads}");
        }
        assert_eq!(proxy.stopped().0, Some(0));
    }
}

#[test]
fn http3_needs_tls_and_has_no_proxy_header() {
    let home = Home::new();
    let check = |listener: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n{listener}\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://127.0.0.1:1\"\n"
        );
        plimsoll(&["serve", "--config", &home.write("wrong.toml", text)])
    };
    let refused = |output: CommandOutput, why: &str| {
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(why), "{output:?}");
    };
    refused(check(""), "HTTP/3 is always encrypted: write [listen.tls] too");
    authority(&home);
    issue(&home, "web", "DNS:localhost", false);
    let tls = "proxy_from = [\"127.0.0.0/8\"]\n[listen.tls]\n[[listen.tls.certificate]]\n\
               chain = \"web.pem\"\nkey = \"web.key\"\n";
    refused(check(tls), "there is no PROXY header in HTTP/3: leave out proxy_from");
    let tls =
        tls.replace("proxy_from = [\"127.0.0.0/8\"]", "role = \"forward\"\nalt_svc = \"clear\"");
    refused(check(&tls), "only a reverse listener with http3 = true has it");
}

#[test]
fn chromium_opens_a_page_over_http3() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "");
    let address = proxy.address();
    // Over QUIC, Chromium accepts a certificate of an unknown root only by its key.
    let spki = "openssl x509 -in web.pem -pubkey -noout | openssl pkey -pubin -outform der | \
                openssl dgst -sha256 -binary | openssl base64";
    let mut hash = Command::new("sh");
    hash.current_dir(home.path()).args(["-c", spki]);
    let hash = run(hash, SOON).succeeded().stdout;
    let mut chromium = chromium(&home);
    chromium.args([
        &format!("--origin-to-force-quic-on={address}"),
        &format!("--ignore-certificate-errors-spki-list={}", hash.trim()),
        "--dump-dom",
        &format!("https://{address}/cached/100"),
    ]);
    let page = run(chromium, SOON * 2).succeeded().stdout;
    let text = String::from_utf8(content(100)).unwrap();
    assert!(page.contains(&text), "{page}");
    assert_eq!(proxy.stopped().0, Some(0));
    let log = fs::read_to_string(home.path().join("access.log")).unwrap();
    assert!(log.contains("\"GET /cached/100 HTTP/3.0\" 200 100 "), "{log}");
}

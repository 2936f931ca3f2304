//! HTTP/2 with the clients of other ecosystems, over TLS, as their users write them: Node.js,
//! Python's httpx, Go's net/http, and a browser.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http2::recorder::Recorder;
use crate::http2::two_listeners;
use crate::support::{
    Accepting, CommandOutput, Home, OurServer, Running, SOON, chromium, output_file, program,
    read_some, run, wait_for,
};
use crate::tls::{authority, issue};

/// Our server with TLS, and its URL.
fn secure(home: &Home, origin: &Recorder) -> (OurServer, String) {
    authority(home);
    issue(home, "web", "IP:127.0.0.1", false);
    in_front(home, "tls.toml", &origin.url())
}

fn in_front(home: &Home, name: &str, origin: &str) -> (OurServer, String) {
    let proxy = two_listeners(home, name, origin, "");
    let url = format!("https://{}", proxy.announced["listen"][1].as_str().unwrap());
    (proxy, url)
}

/// Asserts that the log has so many lines, all of HTTP/2.
#[track_caller]
fn all_over_http2(home: &Home, lines: usize) {
    let log = home.read("access.log");
    assert_eq!(log.matches(" HTTP/2.0\" ").count(), lines, "{log}");
    assert_eq!(log.lines().count(), lines, "{log}");
}

/// Runs a script, with the URL as its argument, to its end.
#[track_caller]
fn script(home: &Home, program: &str, name: &str, text: &str, url: &str) -> CommandOutput {
    let file = home.write(name, text);
    let mut command = Command::new(program);
    command.current_dir(home.path()).args([&file, url]);
    run(command, SOON).succeeded()
}

const NODE: &str = r#"
const fs = require("fs"), http2 = require("http2");
const session = http2.connect(process.argv[2], { ca: fs.readFileSync("ca.pem") });
session.on("error", (error) => { throw error; });

const ask = (fields, content) => new Promise((resolve, reject) => {
    const stream = session.request(fields);
    let head, length = 0;
    stream.on("response", (fields) => { head = fields; });
    stream.on("data", (piece) => { length += piece.length; });
    stream.on("end", () => resolve(`${head[":status"]} ${length} ${head["cache-status"]}`));
    stream.on("error", reject);
    stream.end(content);
});

(async () => {
    console.log("miss", await ask({ ":path": "/cached/300000" }));
    const hits = Array.from({ length: 20 }, () => ask({ ":path": "/cached/300000" }));
    for (const hit of await Promise.all(hits)) console.log("hit", hit);
    const post = { ":method": "POST", ":path": "/upload" };
    console.log("post", await ask(post, Buffer.alloc(400000, "x")));
    console.log("head", await ask({ ":method": "HEAD", ":path": "/cached/300000" }));
    // The server must be able to count such a stream as ended.
    const gone = session.request({ ":path": "/cached/5000000" });
    await new Promise((resolve) => gone.once("data", resolve));
    gone.close(http2.constants.NGHTTP2_CANCEL);
    console.log("after", await ask({ ":path": "/missing" }));
    session.close();
})();
"#;

#[test]
fn node_gets_hits_and_sends_content() {
    let home = Home::new();
    let origin = Recorder::start();
    let (proxy, url) = secure(&home, &origin);
    let node = program("node", "nodejs");
    let got = script(&home, node.to_str().unwrap(), "client.js", NODE, &url).stdout;
    let lines: Vec<&str> = got.lines().collect();
    assert_eq!(lines.len(), 24, "{got}");
    assert!(lines[0].starts_with("miss 200 300000 plimsoll; fwd=uri-miss"), "{got}");
    assert_eq!(lines[1..21], ["hit 200 300000 plimsoll; hit"; 20]);
    assert!(lines[21].starts_with("post 200 2 plimsoll; fwd=method"), "{got}");
    assert_eq!(lines[22], "head 200 0 plimsoll; hit");
    assert!(lines[23].starts_with("after 404 7 "), "{got}");
    assert_eq!(proxy.stopped().0, Some(0));
    assert_eq!(origin.only("/upload").body, b"x".repeat(400_000));
    all_over_http2(&home, 25);
}

const HTTPX: &str = r#"
import sys, httpx

url = sys.argv[1]
with httpx.Client(http2=True, verify="ca.pem", base_url=url) as client:
    def show(what, got):
        status = got.headers.get("cache-status", "")
        print(what, got.http_version, got.status_code, len(got.content), status)

    show("miss", client.get("/cached/200000"))
    show("hit", client.get("/cached/200000"))
    show("range", client.get("/cached/200000", headers={"Range": "bytes=5-14"}))
    show("put", client.put("/length", content=b"y" * 300000))
    # Content without a length, in pieces.
    show("post", client.post("/pieces", content=(b"z" * 1000 for _ in range(100))))
    show("missing", client.get("/missing", headers={"Cookie": "a=b; c=d"}))
"#;

#[test]
fn httpx_gets_hits_and_sends_content() {
    let home = Home::new();
    let origin = Recorder::start();
    let (proxy, url) = secure(&home, &origin);
    // Debian's Python, for which the package is installed.
    let got = script(&home, "/usr/bin/python3", "client.py", HTTPX, &url).stdout;
    let expected = [
        "miss HTTP/2 200 200000 plimsoll; fwd=uri-miss",
        "hit HTTP/2 200 200000 plimsoll; hit",
        "range HTTP/2 206 10 plimsoll; hit",
        "put HTTP/2 200 2 plimsoll; fwd=method",
        "post HTTP/2 200 2 plimsoll; fwd=method",
        "missing HTTP/2 404 7 plimsoll; fwd=uri-miss",
    ];
    assert_eq!(got.lines().count(), expected.len(), "{got}");
    for (line, begins) in got.lines().zip(expected) {
        assert!(line.starts_with(begins), "{line}, not {begins}");
    }
    assert_eq!(proxy.stopped().0, Some(0));
    assert_eq!(origin.only("/length").body, b"y".repeat(300_000));
    let pieces = origin.only("/pieces");
    assert_eq!(
        (pieces.body, pieces.head.contains("content-length")),
        (b"z".repeat(100_000), false)
    );
    assert_eq!(origin.only("/missing").field("cookie"), Some("a=b; c=d"));
    all_over_http2(&home, 6);
}

/// Reads one request, up to these bytes.
fn read_until(stream: &mut TcpStream, end: &str) {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    while !bytes.ends_with(end.as_bytes()) {
        let length = read_some(stream, &mut part).unwrap();
        bytes.extend_from_slice(&part[..length]);
        assert!(length > 0, "{}, without {end:?}", bytes.escape_ascii());
    }
}

/// An origin whose response to a POST goes on when there is a second request.
fn in_pieces() -> Accepting {
    let (is_first, has_second) = (AtomicBool::new(true), AtomicBool::new(false));
    Accepting::start(move |mut stream| {
        if !is_first.swap(false, Ordering::SeqCst) {
            read_until(&mut stream, "\r\n\r\n");
            has_second.store(true, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            return;
        }
        read_until(&mut stream, "\r\n0\r\nx-end: of request\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";
        let _ = stream.write_all(head);
        wait_for("a second request", SOON, || has_second.load(Ordering::SeqCst).then_some(()));
        let _ = stream.write_all(b"3\r\ntwo\r\n0\r\nX-End: of response\r\n\r\n");
    })
}

/// Builds a program whose only source is this file.
#[track_caller]
fn build_go(home: &Home, source: &str) -> Command {
    let file = home.write("main.go", source);
    let mut go = Command::new(program("go", "golang-go"));
    // Without stored packages, a recent Go first compiles its whole library.
    go.current_dir(home.path()).args(["build", "-o", "client", &file]);
    run(go, SOON * 10).succeeded();
    Command::new(home.at("client"))
}

#[test]
fn go_gets_hits_and_streams_with_trailers() {
    let home = Home::new();
    let origin = Recorder::start();
    let streaming = in_pieces();
    let (proxy, url) = secure(&home, &origin);
    let (second, second_url) =
        in_front(&home, "streaming.toml", &format!("http://{}", streaming.address));
    let mut client = build_go(&home, include_str!("client.go"));
    client.current_dir(home.path()).args([url, second_url]);
    let got = run(client, SOON).succeeded().stdout;
    let lines: Vec<&str> = got.lines().collect();
    assert_eq!(lines.len(), 56, "{got}");
    assert!(lines[0].starts_with("miss HTTP/2.0 200 300000 plimsoll; fwd=uri-miss"), "{got}");
    assert_eq!(lines[1..51], ["hit HTTP/2.0 200 300000 plimsoll; hit"; 50]);
    assert!(lines[51].starts_with("post HTTP/2.0 200 2 plimsoll; fwd=method"), "{got}");
    assert_eq!(lines[52], "head HTTP/2.0 200 0 plimsoll; hit");
    assert!(lines[53].starts_with("after HTTP/2.0 404 7 "), "{got}");
    assert!(lines[54].starts_with("second HTTP/2.0 204 0 "), "{got}");
    assert_eq!(lines[55], "pieces HTTP/2.0 200 one two, of response");
    assert_eq!((proxy.stopped().0, second.stopped().0), (Some(0), Some(0)));
    assert!(origin.only("/upload").body == b"x".repeat(3_000_000));
    all_over_http2(&home, 57);
}

#[test]
fn a_browser_opens_a_page_over_http2() {
    let home = Home::new();
    let origin = Recorder::start();
    let (proxy, url) = secure(&home, &origin);
    let mut chromium = chromium(&home);
    chromium.args([
        // It does not know our authority.
        "--ignore-certificate-errors",
        "--remote-debugging-port=0",
        &format!("{url}/page"),
    ]);
    let err = output_file(&home, "chromium.err");
    let browser = Running::start(chromium.stdout(Stdio::null()).stderr(err));
    let sent = wait_for("the page to send content", SOON * 2, || {
        origin.paths().into_iter().find(|path| path.starts_with("/sent/"))
    });
    drop(browser);
    assert_eq!(sent, "/sent/40/40");
    assert_eq!(origin.only(&sent).body, b"x".repeat(50_000));
    assert_eq!(proxy.stopped().0, Some(0));
    let log = home.read("access.log");
    assert!(log.contains("\"GET /page HTTP/2.0\" 200 "), "{log}");
    assert_eq!(log.matches("\"GET /cached/").count(), 40, "{log}");
    // It may also ask for an icon.
    all_over_http2(&home, log.lines().count());
}

//! Coded forms with real servers: nginx and Varnish code the same content, curl decodes ours.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::{Value, json};

use crate::http3;
use crate::support::{
    Accepting, Home, OurServer, Running, SOON, free_port, nginx, output_file, plimsoll, program,
    run, wait_for,
};

/// Text as it is on the web.
const PAGE: &str = include_str!("../../../../docs/caching.md");

/// A response in full.
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

fn ask(address: SocketAddr, fields: &str) -> Got {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = format!("GET /page.txt HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    let got = Got { status, head, body: answer[end + 4..].to_vec() };
    match got.field("transfer-encoding") {
        Some(_) => Got { body: joined(&got.body), ..got },
        None => got,
    }
}

/// The content of a body in chunks.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let bytes = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if bytes == 0 {
            return content;
        }
        content.extend_from_slice(&rest[end + 2..end + 2 + bytes]);
        rest = &rest[end + 4 + bytes..];
    }
}

/// nginx with the page, with and without gzip.
fn origin(home: &Home, name: &str, lines: &str) -> (Running, SocketAddr) {
    let at = home.path().join(name);
    fs::create_dir_all(at.join("www")).unwrap();
    fs::write(at.join("www/page.txt"), PAGE).unwrap();
    let port = free_port();
    let root = at.join("www").display().to_string();
    let http = format!(
        "types {{ text/plain txt; }} server {{ listen 127.0.0.1:{port}; root {root};
         add_header Cache-Control max-age=600; {lines} }}"
    );
    (nginx(&at, port, &http), SocketAddr::from(([127, 0, 0, 1], port)))
}

fn ours(home: &Home, origin: SocketAddr, lines: &str) -> OurServer {
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://{origin}\"\n\
         [compression]\n{lines}\n"
    );
    OurServer::configured(&home.write(&format!("{}.toml", free_port()), text))
}

/// The response once its form has been made.
fn coded(address: SocketAddr, coding: &str) -> Got {
    wait_for(coding, SOON, || {
        let got = ask(address, &format!("Accept-Encoding: {coding}\r\n"));
        (got.field("content-encoding") == Some(coding)).then_some(got)
    })
}

fn varnish(home: &Home, origin: SocketAddr) -> (Running, SocketAddr) {
    let port = free_port();
    let vcl = home.write(
        "varnish.vcl",
        format!(
            "vcl 4.1; backend origin {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n\
             sub vcl_backend_response {{ set beresp.do_gzip = true; }}\n",
            origin.port()
        ),
    );
    let mut command = Command::new(program("varnishd", "varnish"));
    let work = home.at("varnish");
    command.args(["-F", "-a", &format!("127.0.0.1:{port}"), "-f", &vcl, "-n", &work]);
    command.args(["-s", "malloc,32m", "-T", "none", "-j", "none"]);
    let errors = output_file(home, "varnish.err");
    let child = Running::start(command.stdout(Stdio::null()).stderr(errors));
    wait_for("varnish", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    (child, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Sizes within a few percent, the same validators, the same answers to them.
#[test]
fn forms_are_as_those_of_nginx_and_varnish() {
    let home = Home::new();
    let (_plain, plain) = origin(&home, "plain", "");
    let gzip = "gzip on; gzip_types text/plain; gzip_comp_level 6; gzip_vary on;";
    let (_nginx, nginx) = origin(&home, "gzip", gzip);
    let (mut varnish_runs, varnish) = varnish(&home, plain);
    let server = ours(&home, plain, "codings = [\"gzip\", \"br\", \"zstd\"]");
    let identity = ask(server.address(), "");
    assert_eq!(identity.body, PAGE.as_bytes());
    let strong = identity.field("etag").unwrap().to_owned();
    assert!(strong.starts_with('"'), "{strong}");

    let gzip = coded(server.address(), "gzip");
    let theirs = [("nginx", nginx), ("varnish", varnish)]
        .map(|(name, address)| (name, address, ask(address, "Accept-Encoding: gzip\r\n")));
    for (name, address, got) in &theirs {
        assert_eq!(got.field("content-encoding"), Some("gzip"), "{name}");
        let (our_bytes, their_bytes) = (gzip.body.len(), got.body.len());
        let ratio = our_bytes as f64 / their_bytes as f64;
        println!("{name}: {their_bytes} bytes, ours {our_bytes} of {}", PAGE.len());
        assert!((0.9..1.1).contains(&ratio), "{name}: {our_bytes} and {their_bytes} bytes");
        for field in ["content-encoding", "vary", "etag", "content-type"] {
            let nginx_tag_of_another_file = field == "etag" && *name == "nginx";
            let (our, their) = (gzip.field(field), got.field(field));
            match nginx_tag_of_another_file {
                true => assert!(their.unwrap().starts_with("W/") && our.unwrap().starts_with("W/")),
                false => assert_eq!(our, their, "{name}: {field}"),
            }
        }
        let tag = got.field("etag").unwrap();
        let request = format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n");
        let (our_tag, their_answer) = (gzip.field("etag").unwrap(), ask(*address, &request));
        let request = format!("Accept-Encoding: gzip\r\nIf-None-Match: {our_tag}\r\n");
        let our_answer = ask(server.address(), &request);
        assert_eq!((our_answer.status, their_answer.status), (304, 304), "{name}");
        assert!(our_answer.field("etag").unwrap().starts_with("W/"));
    }
    for (accept, fields) in [("gzip;q=0", ""), ("identity", ""), ("gzip", "Range: bytes=0-9\r\n")] {
        let request = format!("Accept-Encoding: {accept}\r\n{fields}");
        let got = ask(server.address(), &request);
        assert_eq!((got.field("content-encoding"), got.field("etag")), (None, Some(&strong[..])));
        let whole = if fields.is_empty() { PAGE.as_bytes() } else { &PAGE.as_bytes()[..10] };
        assert_eq!(got.body, whole, "{request}");
    }
    let (br, zstd) = (coded(server.address(), "br"), coded(server.address(), "zstd"));
    println!("br {}, zstd {}", br.body.len(), zstd.body.len());
    assert!(br.body.len() < gzip.body.len() && zstd.body.len() < PAGE.len() / 2);
    varnish_runs.signal("TERM");
    varnish_runs.ended(SOON);
}

/// curl reads what we coded, and gets what the origin coded without coding.
#[test]
fn curl_decodes_what_we_code_and_we_decode_for_it() {
    let home = Home::new();
    let (_plain, plain) = origin(&home, "plain", "");
    let server = ours(&home, plain, "codings = [\"br\", \"zstd\", \"gzip\"]\netag = \"suffix\"");
    let url = format!("{}/page.txt", server.url());
    let curl = |args: &[&str]| {
        let mut command = Command::new(program("curl", "curl"));
        command.args(["--silent", "--show-error", "--max-time", "20", "--fail"]).args(args);
        run(command, SOON).succeeded()
    };
    ask(server.address(), "");
    for coding in ["gzip", "br"] {
        let got = coded(server.address(), coding);
        let tag = got.field("etag").unwrap().to_owned();
        assert!(tag.ends_with(&format!("-{coding}\"")), "{tag}");
        let accept = format!("Accept-Encoding: {coding}");
        let file = home.at(coding);
        curl(&["--compressed", "--header", &accept, "--output", &file, &url]);
        assert_eq!(home.read(coding), PAGE, "{coding}");
    }
    // An origin that codes whatever is accepted.
    let always = "gunzip off; add_header Content-Encoding gzip; default_type text/plain;";
    let (_coded, address) = origin(&home, "coded", always);
    let gzip = coded(server.address(), "gzip").body;
    fs::write(home.path().join("coded/www/page.txt"), gzip).unwrap();
    let server = ours(&home, address, "codings = [\"gzip\"]");
    let url = format!("{}/page.txt", server.url());
    for round in 0..2 {
        let file = home.at("decoded");
        curl(&["--output", &file, &url]);
        assert_eq!(home.read("decoded"), PAGE, "{round}");
    }
    let got = ask(server.address(), "Accept-Encoding: gzip\r\n");
    assert_eq!(got.field("content-encoding"), Some("gzip"));
}

/// The same answers as nginx's gzip to clients of each version, for a page that is not stored.
#[test]
fn what_is_not_stored_is_coded_as_nginx_codes_it() {
    let home = Home::new();
    let (_plain, plain) = origin(&home, "plain", "add_header Cache-Control no-store;");
    let port = free_port();
    let http = format!(
        "gzip on; gzip_types text/plain; gzip_comp_level 6; gzip_vary on; gzip_proxied any;
         gzip_http_version 1.0;
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{plain}; }} }}"
    );
    fs::create_dir_all(home.path().join("gzip")).unwrap();
    let _nginx = nginx(&home.path().join("gzip"), port, &http);
    let nginx = SocketAddr::from(([127, 0, 0, 1], port));
    let lines = "codings = [\"zstd\", \"br\", \"gzip\"]\npassed = true";
    let server = ours(&home, plain, lines);
    for (accept, fields) in
        [("gzip", ""), ("gzip;q=0", ""), ("identity", ""), ("gzip", "Range: bytes=0-9\r\n")]
    {
        let request = format!("Accept-Encoding: {accept}\r\n{fields}");
        let [our, their] = [server.address(), nginx].map(|address| ask(address, &request));
        assert_eq!(our.status, their.status, "{request}");
        for field in ["content-encoding", "etag", "content-type", "content-length"] {
            assert_eq!(our.field(field), their.field(field), "{request}{field}");
        }
        let (our_bytes, their_bytes) = (our.body.len() as f64, their.body.len() as f64);
        println!("{accept} {fields:?}: ours {our_bytes}, nginx {their_bytes} of {}", PAGE.len());
        assert!((0.9..1.1).contains(&(our_bytes / their_bytes)), "{our_bytes} {their_bytes}");
        assert!(our.field("cache-status").unwrap().contains("fwd="), "{:?}", our.head);
    }
    let url = format!("{}/page.txt", server.url());
    for version in ["--http1.0", "--http1.1", "--http2-prior-knowledge"] {
        for coding in ["gzip", "br", "zstd"] {
            let file = home.at("page");
            let accept = format!("Accept-Encoding: {coding}");
            let mut curl = Command::new(program("curl", "curl"));
            curl.args(["--silent", "--show-error", "--max-time", "20", "--fail", "--compressed"]);
            curl.args([version, "--header", &accept, "--output", &file, &url]);
            let sizes = "%{size_download} %header{content-encoding} %header{vary}";
            curl.args(["--write-out", sizes]);
            let wrote = run(curl, SOON).succeeded().stdout;
            assert_eq!(home.read("page"), PAGE, "{version} {coding}");
            let words: Vec<&str> = wrote.split(' ').collect();
            assert_eq!(words[1..], [coding, "Accept-Encoding"], "{version} {coding}: {wrote}");
        }
    }
    let admin = server.admin().to_string();
    let explained = ["explain", &url, "-H", "Accept-Encoding: br", "--admin", &admin];
    let text = plimsoll(&explained).succeeded().stdout;
    assert!(text.contains("br, if the response may be coded while it passes"), "{text}");
}

/// Over HTTP/3, too.
#[test]
fn aioquic_gets_a_coded_response_that_is_not_stored() {
    let home = Home::new();
    let (_plain, plain) = origin(&home, "plain", "add_header Cache-Control no-store;");
    let more = "[compression]\ncodings = [\"gzip\"]\npassed = true\n";
    let server = http3::proxy(&home, &format!("http://{plain}"), more);
    let steps = json!([
        {"do": "get", "path": "/page.txt", "fields": [["accept-encoding", "gzip"]]},
        {"do": "get", "path": "/page.txt"},
    ]);
    let answers = http3::take(&home, server.address().port(), steps);
    let [coded, plain] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(coded["fields"]["content-encoding"], "gzip");
    assert_eq!(coded["end"], "whole");
    let bytes = |answer: &Value| answer["bytes"].as_u64().unwrap() as usize;
    assert!(bytes(coded) < PAGE.len() / 2 && bytes(plain) == PAGE.len(), "{answers:?}");
}

/// Events reach curl when they come, and a stream that its origin breaks off has no end.
#[test]
fn events_are_coded_and_not_held_up() {
    let home = Home::new();
    let (go, wait) = mpsc::channel::<bool>();
    let wait = Arc::new(Mutex::new(wait));
    let origin = Accepting::start(move |mut stream| {
        let mut request = [0; 4096];
        let Ok(1..) = stream.read(&mut request) else { return };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for count in 0.. {
            let event = format!("data: event {count}\n\n");
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            stream.write_all(chunk.as_bytes()).unwrap();
            if !wait.lock().unwrap().recv().unwrap_or(false) {
                return;
            }
        }
    });
    let server = ours(&home, origin.address, "codings = [\"gzip\"]\npassed = true");
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["--silent", "--no-buffer", "--compressed", "--max-time", "20"]);
    curl.args(["--dump-header", &home.at("head"), &server.url()]);
    let mut curl = Running::start(curl.stdout(Stdio::piped()));
    {
        let mut lines = BufReader::new(curl.stdout()).lines();
        for count in 0..5 {
            assert_eq!(lines.next().unwrap().unwrap(), format!("data: event {count}"));
            assert_eq!(lines.next().unwrap().unwrap(), "");
            go.send(count < 4).unwrap();
        }
    }
    assert!(home.read("head").to_lowercase().contains("content-encoding: gzip"));
    // CURLE_PARTIAL_FILE, or another that says that the end is missing.
    assert_ne!(curl.ended(SOON).code(), Some(0));
}

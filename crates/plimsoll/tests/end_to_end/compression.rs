//! Coded forms with real servers: nginx and Varnish code the same content, curl decodes ours.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use crate::support::{
    Home, OurServer, Running, SOON, free_port, nginx, output_file, program, run, wait_for,
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

//! Real clients configured to use the proxy: curl, apt, pip and a browser, each started as usual,
//! against servers on this machine.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::{
    Home, OurServer, Running, SOON, am_root, chromium, free_port, output_file, program, run,
    wait_for,
};

/// nginx as the web: plain and over TLS, from one directory.
struct Web {
    home: Home,
    plain: u16,
    tls: u16,
    _nginx: Running,
}

/// Starts nginx on these ports.
fn nginx(home: &Home, plain: u16, tls: u16) -> Running {
    let at = home.path().display();
    let user = if am_root() { "user root;" } else { "" };
    let conf = home.write(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {at}/nginx/pid; worker_processes 1; {user}
             error_log {at}/nginx/error.log;
             events {{ worker_connections 256; }}
             http {{
               types {{ text/html html; text/plain txt; }}
               default_type application/octet-stream;
               access_log {at}/web.log combined;
               client_body_temp_path {at}/nginx/b; proxy_temp_path {at}/nginx/p;
               fastcgi_temp_path {at}/nginx/f; uwsgi_temp_path {at}/nginx/u;
               scgi_temp_path {at}/nginx/s;
               server {{
                 listen 127.0.0.1:{plain};
                 listen 127.0.0.1:{tls} ssl;
                 ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem;
                 root {at}/www;
               }}
             }}"
        ),
    );
    Running::start(
        Command::new(program("nginx", "nginx-light"))
            .args(["-e", &home.at("nginx/error.log"), "-c", &conf])
            .stdout(Stdio::null())
            .stderr(output_file(home, "nginx.err")),
    )
}

/// Another process may take a free port before nginx binds it, so this retries.
const NGINX_TRIES: usize = 3;

impl Web {
    fn start() -> Web {
        let home = Home::new();
        for dir in ["nginx", "www"] {
            fs::create_dir(home.path().join(dir)).unwrap();
        }
        home.write("www/hello.txt", "hello from the origin\n");
        certificate(&home);
        for _ in 0..NGINX_TRIES {
            let (plain, tls) = (free_port(), free_port());
            let mut nginx = nginx(&home, plain, tls);
            let listens = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
            let serves = wait_for("nginx", SOON, || match nginx.has_ended() {
                true => Some(false),
                false => (listens(plain) && listens(tls)).then_some(true),
            });
            if serves {
                return Web { home, plain, tls, _nginx: nginx };
            }
        }
        panic!("nginx ended: {}", home.read("nginx.err"));
    }

    /// A forward proxy that may connect to this machine, with tunnels to nginx's TLS port.
    fn proxy(&self, more: &str) -> OurServer {
        let file = self.home.write(
            "plimsoll.toml",
            format!(
                "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n
                 [log]\npath = \"access.log\"\n
                 [forward]\nallow_to = [\"127.0.0.0/8\", \"::1\"]\n\
                 connect_ports = [\"1-65535\"]\ntls_ports = [{}]\n{more}",
                self.tls
            ),
        );
        OurServer::configured(&file)
    }

    /// Stops the proxy and returns its log.
    fn log_of(&self, proxy: OurServer) -> String {
        let (code, stderr) = proxy.stopped();
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        self.home.read("access.log")
    }
}

/// A self-signed certificate for localhost.
fn certificate(home: &Home) {
    let mut openssl = Command::new(program("openssl", "openssl"));
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-keyout", &home.at("key.pem"), "-out", &home.at("cert.pem")]);
    run(openssl, SOON).succeeded();
}

/// A command without proxy settings in its environment.
fn tool(name: &str, package: &str) -> Command {
    without_proxies(Command::new(program(name, package)))
}

/// The same for any command.
fn without_proxies(mut command: Command) -> Command {
    for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(variable).env_remove(variable.to_uppercase());
    }
    command
}

#[test]
fn curl_uses_the_proxy_for_http_and_https() {
    let web = Web::start();
    let proxy = web.proxy("");
    let curl = |flags: &[&str]| {
        let mut curl = tool("curl", "curl");
        curl.env("http_proxy", proxy.url()).args(["-sS", "--max-time", "20"]).args(flags);
        run(curl, SOON)
    };
    let plain = format!("http://127.0.0.1:{}/hello.txt", web.plain);
    assert_eq!(curl(&[&plain]).succeeded().stdout, "hello from the origin\n");
    let secure = format!("https://localhost:{}/hello.txt", web.tls);
    let trusting = ["--cacert", &web.home.at("cert.pem"), "--proxy", &proxy.url()];
    let got = curl(&[&trusting[..], &[&secure]].concat()).succeeded();
    assert_eq!(got.stdout, "hello from the origin\n");
    // A tunnel for plain HTTP, and one to a TLS port whose ClientHello names another host.
    let got = curl(&["--proxytunnel", "--proxy", &proxy.url(), &plain]).succeeded();
    assert_eq!(got.stdout, "hello from the origin\n");
    let elsewhere = format!("other.test:{0}:localhost:{0}", web.tls);
    let other = format!("https://other.test:{}/hello.txt", web.tls);
    let refused = curl(&[&trusting[..], &["--connect-to", &elsewhere, &other]].concat());
    assert_ne!(refused.code, Some(0), "{refused:?}");

    let log = web.log_of(proxy);
    for line in [
        "TCP_MISS/200 ".to_owned(),
        format!(" CONNECT localhost:{} - HIER_DIRECT/127.0.0.1 ", web.tls),
        format!(" CONNECT 127.0.0.1:{} - HIER_DIRECT/127.0.0.1 ", web.plain),
        "TCP_DENIED/200 ".to_owned(),
    ] {
        assert!(log.contains(&line), "{line}: {log}");
    }
    assert_eq!(log.matches("TCP_TUNNEL/200 ").count(), 2, "{log}");
}

#[test]
fn curl_sends_its_password() {
    let web = Web::start();
    // The password of jo is `secret`.
    let hash = "$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS";
    web.home.write("users", format!("jo:{hash}\n"));
    let proxy = web.proxy("users = \"users\"\n");
    let curl = |flags: &[&str]| {
        let mut curl = tool("curl", "curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code} %{http_connect}"]);
        curl.args(["--max-time", "20", "-k", "--proxy", &proxy.url()]).args(flags);
        run(curl, SOON).stdout
    };
    let plain = format!("http://127.0.0.1:{}/hello.txt", web.plain);
    let secure = format!("https://localhost:{}/hello.txt", web.tls);
    assert_eq!(curl(&[&plain]), "407 000");
    assert_eq!(curl(&["--proxy-user", "jo:wrong", &plain]), "407 000");
    assert_eq!(curl(&["--proxy-user", "jo:secret", &plain]), "200 000");
    assert_eq!(curl(&[&secure]), "000 407");
    assert_eq!(curl(&["--proxy-user", "jo:secret", &secure]), "200 200");
    // Sent only after a challenge, as browsers do.
    assert_eq!(curl(&["--proxy-anyauth", "--proxy-user", "jo:secret", &secure]), "200 200");
    let log = web.log_of(proxy);
    assert_eq!(log.matches(" jo HIER_DIRECT/").count(), 3, "{log}");
}

#[test]
fn apt_updates_and_downloads_through_the_proxy() {
    let web = Web::start();
    let proxy = web.proxy("");
    package(&web);
    let home = &web.home;
    for dir in ["etc", "state/lists/partial", "cache/archives/partial", "got"] {
        fs::create_dir_all(home.path().join(dir)).unwrap();
    }
    home.write("state/status", "");
    let source = format!("deb [trusted=yes] http://127.0.0.1:{}/debian ./\n", web.plain);
    home.write("etc/sources.list", source);
    let apt = |flags: &[&str]| {
        let mut apt = tool("apt-get", "apt");
        apt.current_dir(home.path().join("got"));
        for option in [
            format!("Dir::Etc={}", home.at("etc")),
            format!("Dir::State={}", home.at("state")),
            format!("Dir::State::status={}", home.at("state/status")),
            format!("Dir::Cache={}", home.at("cache")),
            format!("Acquire::http::Proxy={}", proxy.url()),
            // apt's own user cannot read the directory of a test.
            "APT::Sandbox::User=".to_owned(),
        ] {
            apt.args(["-o", &option]);
        }
        apt.args(flags);
        run(apt, SOON).succeeded()
    };
    apt(&["update"]);
    // The second update sends conditional requests.
    apt(&["update"]);
    apt(&["download", "plimsoll-probe"]);
    let got = fs::read_dir(home.path().join("got")).unwrap().count();
    assert_eq!(got, 1);
    let log = web.log_of(proxy);
    let packages = format!(" GET http://127.0.0.1:{}/debian/./Packages", web.plain);
    assert!(log.contains(&packages), "{log}");
    assert!(log.contains("plimsoll-probe_1.0_all.deb - "), "{log}");
}

/// A Debian repository with one package.
fn package(web: &Web) {
    let home = &web.home;
    fs::create_dir_all(home.path().join("probe/DEBIAN")).unwrap();
    let control = "Package: plimsoll-probe\nVersion: 1.0\nArchitecture: all\n\
                   Maintainer: Test <test@example.com>\nDescription: nothing\n";
    home.write("probe/DEBIAN/control", control);
    fs::create_dir(home.path().join("www/debian")).unwrap();
    let deb = home.at("www/debian/plimsoll-probe_1.0_all.deb");
    let mut dpkg = Command::new(program("dpkg-deb", "dpkg"));
    dpkg.args(["--root-owner-group", "--build", &home.at("probe"), &deb]);
    run(dpkg, SOON).succeeded();
    let size = fs::metadata(&deb).unwrap().len();
    let mut packages =
        format!("{control}Filename: ./plimsoll-probe_1.0_all.deb\nSize: {size}\nSHA256: ");
    packages += &format!("{}\n\n", sha256(&deb));
    let written = home.write("www/debian/Packages", &packages);
    let release = format!("SHA256:\n {} {} Packages\n", sha256(&written), packages.len());
    home.write("www/debian/Release", release);
}

fn sha256(path: &str) -> String {
    let mut sum = Command::new("sha256sum");
    sum.arg(path);
    run(sum, SOON).succeeded().stdout.split(' ').next().unwrap().to_owned()
}

#[test]
fn pip_downloads_through_the_proxy() {
    let web = Web::start();
    let proxy = web.proxy("");
    wheel(&web);
    let home = &web.home;
    let mut pip = tool("pip3", "python3-pip");
    pip.args(["download", "--isolated", "--no-deps", "--no-cache-dir"]);
    pip.args(["--disable-pip-version-check", "--trusted-host", "127.0.0.1"]);
    pip.args(["--index-url", &format!("http://127.0.0.1:{}/simple/", web.plain)]);
    pip.args(["--proxy", &proxy.url(), "-d", &home.at("got"), "plimsoll-probe"]);
    run(pip, SOON).succeeded();
    assert!(home.has("got/plimsoll_probe-1.0-py3-none-any.whl"));
    let log = web.log_of(proxy);
    for part in ["/simple/plimsoll-probe/ - ", "/plimsoll_probe-1.0-py3-none-any.whl - "] {
        assert!(log.contains(part), "{log}");
    }
}

/// A package index with one package, whose wheel is empty.
fn wheel(web: &Web) {
    let home = &web.home;
    let name = "plimsoll_probe-1.0";
    fs::create_dir_all(home.at(&format!("{name}.dist-info"))).unwrap();
    let about = "Metadata-Version: 2.1\nName: plimsoll-probe\nVersion: 1.0\n";
    home.write(&format!("{name}.dist-info/METADATA"), about);
    let kind = "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    home.write(&format!("{name}.dist-info/WHEEL"), kind);
    home.write(&format!("{name}.dist-info/RECORD"), "");
    fs::create_dir_all(home.path().join("www/simple/plimsoll-probe")).unwrap();
    let file = format!("{name}-py3-none-any.whl");
    let mut zip = Command::new(program("python3", "python3"));
    zip.current_dir(home.path());
    zip.args(["-m", "zipfile", "-c", &format!("www/simple/plimsoll-probe/{file}")]);
    zip.arg(format!("{name}.dist-info/"));
    run(zip, SOON).succeeded();
    let index = format!("<!DOCTYPE html><html><body><a href=\"{file}\">{file}</a></body></html>");
    home.write("www/simple/plimsoll-probe/index.html", index);
}

/// A browser that uses the proxy for everything, including this machine.
fn browser(web: &Web, proxy: &OurServer, flags: &[&str]) -> Command {
    let mut chromium = without_proxies(chromium(&web.home));
    chromium.args([
        // The certificate is self-signed.
        "--ignore-certificate-errors",
        "--proxy-bypass-list=<-loopback>",
        &format!("--proxy-server={}", proxy.url()),
    ]);
    chromium.args(flags);
    chromium
}

#[test]
fn a_browser_opens_a_page_over_tls_through_the_proxy() {
    let web = Web::start();
    let proxy = web.proxy("");
    web.home.write("www/page.html", "<p id=\"it\">not yet</p><script src=\"page.js\"></script>");
    web.home.write("www/page.js", "it.textContent = 'the script has run';");
    let page = format!("https://localhost:{}/page.html", web.tls);
    let output = run(browser(&web, &proxy, &["--dump-dom", &page]), SOON * 2).succeeded();
    assert!(output.stdout.contains("the script has run"), "{output:?}");
    let log = web.log_of(proxy);
    assert!(log.contains("TCP_TUNNEL/200 "), "{log}");
    assert!(log.contains(&format!(" CONNECT localhost:{} - HIER_DIRECT/", web.tls)), "{log}");
}

/// Over TLS a browser speaks HTTP/2 with a proxy, and a tunnel is a stream.
#[test]
fn a_browser_uses_tunnels_over_http2() {
    let web = Web::start();
    let file = web.home.write(
        "secure.toml",
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n[listen.tls]\n\
             [[listen.tls.certificate]]\nchain = \"cert.pem\"\nkey = \"key.pem\"\n\
             [log]\npath = \"access.log\"\nformat = \"combined\"\n\
             [forward]\nallow_to = [\"127.0.0.0/8\", \"::1\"]\n\
             connect_ports = [\"1-65535\"]\ntls_ports = [{}]\n",
            web.tls
        ),
    );
    let proxy = OurServer::configured(&file);
    web.home.write("www/page.html", "<p id=\"it\">not yet</p><script src=\"page.js\"></script>");
    web.home.write("www/page.js", "it.textContent = 'the script has run';");
    let page = format!("https://localhost:{}/page.html", web.tls);
    let through = format!("--proxy-server=https://localhost:{}", proxy.address().port());
    let output = run(browser(&web, &proxy, &[&through, "--dump-dom", &page]), SOON * 2);
    assert!(output.succeeded().stdout.contains("the script has run"));
    let log = web.log_of(proxy);
    let line = format!("\"CONNECT localhost:{} HTTP/2.0\" 200 ", web.tls);
    assert!(log.contains(&line), "{log}");
}

/// Answers each text with `heard ` and the text. It supports one frame of a few bytes at a time.
const WEBSOCKET: &str = r#"
import base64, hashlib, socketserver, sys

class Talk(socketserver.StreamRequestHandler):
    def handle(self):
        key = b""
        while (line := self.rfile.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         b"Connection: Upgrade\r\nSec-WebSocket-Accept: "
                         + base64.b64encode(accept) + b"\r\n\r\n")
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] != 0x81:
                return
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            answer = b"heard-" + text
            self.wfile.write(bytes([0x81, len(answer)]) + answer)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

Server(("127.0.0.1", int(sys.argv[1])), Talk).serve_forever()
"#;

fn websocket_server(home: &Home) -> (Running, u16) {
    let (script, port) = (home.write("websocket.py", WEBSOCKET), free_port());
    let python = program("python3", "python3");
    let server = Running::start(
        Command::new(python).args([&script, &port.to_string()]).stderr(output_file(home, "ws.err")),
    );
    wait_for("the WebSocket server", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    (server, port)
}

#[test]
fn a_browser_uses_websocket_through_the_proxy() {
    let web = Web::start();
    let proxy = web.proxy("");
    let (_server, port) = websocket_server(&web.home);
    let script = format!(
        "<script>
           const socket = new WebSocket('ws://localhost:{port}/');
           socket.onopen = () => socket.send('us');
           socket.onmessage = (message) => fetch('/seen?' + message.data);
         </script>"
    );
    web.home.write("www/talk.html", script);
    let page = format!("http://localhost:{}/talk.html", web.plain);
    let mut running = browser(&web, &proxy, &["--remote-debugging-port=0", &page]);
    let err = output_file(&web.home, "chromium.err");
    let browser = Running::start(running.stdout(Stdio::null()).stderr(err));
    wait_for("the page to report its message", SOON * 2, || {
        web.home.read("web.log").contains("/seen?heard-us").then_some(())
    });
    drop(browser);
    let log = web.log_of(proxy);
    assert!(log.contains(&format!(" CONNECT localhost:{port} - HIER_DIRECT/")), "{log}");
}

#[test]
fn a_websocket_server_is_an_origin() {
    let home = Home::new();
    let (_server, port) = websocket_server(&home);
    let log = home.at("access.log");
    let origin = format!("http://127.0.0.1:{port}");
    let proxy = OurServer::serve(&["--origin", &origin, "--access-log", &log]);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
        .write_all(
            b"GET /talk HTTP/1.1\r\nHost: site\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // The example in RFC 6455, section 1.3.
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    for text in [&b"us"[..], b"and again"] {
        let frame = [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0][..], text].concat();
        stream.write_all(&frame).unwrap();
        let mut heard = vec![0; 2 + 6 + text.len()];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard[2..], [b"heard-", text].concat());
    }
    drop(stream);
    let (code, _) = proxy.stopped();
    assert_eq!(code, Some(0));
    assert!(home.read("access.log").contains("TCP_TUNNEL/101 "));
}

/// By default, clients cannot reach this machine by any of its names.
#[test]
fn a_proxy_with_default_settings_does_not_reach_this_machine() {
    let web = Web::start();
    let log = web.home.at("default.log");
    let proxy = OurServer::serve(&["--forward", "--access-log", &log]);
    let hosts = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::1]"];
    let hosts = hosts.iter().chain(&["[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"]);
    for host in hosts.clone() {
        let mut curl = tool("curl", "curl");
        // curl would normalise some of them.
        let target = format!("http://{host}:{}/hello.txt", web.plain);
        curl.args(["-sS", "--max-time", "20", "--proxy", &proxy.url()]);
        curl.args(["--request-target", &target, "http://example.com/"]);
        let output = run(curl, SOON).succeeded();
        let refused =
            output.stdout.contains("rule `address`") && output.stdout.contains("--allow-to");
        // Other spellings of an address are no hosts.
        let is_none = output.stdout.contains("neither an address nor a name");
        assert!(refused || is_none, "{host}: {output:?}");
    }
    let (code, _) = proxy.stopped();
    assert_eq!(code, Some(0));
    assert_eq!(web.home.read("default.log").lines().count(), hosts.count());
    assert!(!web.home.read("web.log").contains("hello.txt"));
}

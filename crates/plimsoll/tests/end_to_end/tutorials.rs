//! The files of the tutorials, with their clients (apt, pip, npm, curl), and with the servers that
//! one of them replaces.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::acme::Authority;
use crate::documentation::blocks::documents;
use crate::import::varnish::varnish;
use crate::support::{
    Accepting, CommandOutput, Home, OurServer, Running, SOON, free_port, get, nginx, output_file,
    plimsoll, program, run, wait_for,
};
use crate::tls::{authority, issue};

/// The first configuration file that a document shows.
fn file_of(document: &str) -> String {
    block_of(document, "toml")
}

/// The first block of a language in a document.
fn block_of(document: &str, language: &str) -> String {
    let (_, text) = documents().into_iter().find(|(path, _)| path == document).unwrap();
    let (_, rest) = text.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// A mirror with a package of each kind, last changed ten days ago.
fn mirror(home: &Home, url: &str) {
    let build = format!(
        r#"
set -e
mkdir -p mirror/apt deb/DEBIAN deb/usr/share/hello py/demo mirror/simple/demo npm/package mirror/npm
printf 'Package: hello\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@a.test>\n' \
    > deb/DEBIAN/control
echo 'Description: d' >> deb/DEBIAN/control
echo hello > deb/usr/share/hello/hello
dpkg-deb --build deb mirror/apt/hello.deb >/dev/null
(cd mirror/apt && cat ../../deb/DEBIAN/control && echo Filename: ./hello.deb &&
    echo "Size: $(stat -c %s hello.deb)" &&
    echo "SHA256: $(sha256sum hello.deb | cut -d ' ' -f 1)") > mirror/apt/Packages
python3 - <<'END'
import zipfile, json, hashlib, base64, tarfile, io
wheel = zipfile.ZipFile("mirror/simple/demo/demo-1.0-py3-none-any.whl", "w")
wheel.writestr("demo.py", "x = 1\n")
about = "demo-1.0.dist-info/"
wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
kind = "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
wheel.writestr(about + "WHEEL", kind)
wheel.writestr(about + "RECORD", "")
wheel.close()
link = '<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>'
open("mirror/simple/demo/index.html", "w").write(link)
package = json.dumps({{"name": "demo", "version": "1.0.0"}}).encode()
with tarfile.open("mirror/npm/demo-1.0.0.tgz", "w:gz") as tar:
    of = tarfile.TarInfo("package/package.json")
    of.size = len(package)
    tar.addfile(of, io.BytesIO(package))
tgz = open("mirror/npm/demo-1.0.0.tgz", "rb").read()
digest = "sha512-" + base64.b64encode(hashlib.sha512(tgz).digest()).decode()
dist = {{"tarball": "{url}/npm/demo-1.0.0.tgz", "integrity": digest}}
version = {{"name": "demo", "version": "1.0.0", "dist": dist}}
about = {{"name": "demo", "dist-tags": {{"latest": "1.0.0"}}, "versions": {{"1.0.0": version}}}}
open("mirror/npm/demo", "w").write(json.dumps(about))
END
find mirror -exec touch -d '10 days ago' '{{}}' +
"#
    );
    let mut sh = Command::new("bash");
    sh.current_dir(home.path()).args(["-c", &build]);
    run(sh, SOON).succeeded();
}

/// A machine that builds: it has fetched nothing before, and goes through the cache.
struct Job<'h> {
    home: &'h Home,
    directory: String,
    proxy: String,
    mirror: String,
}

impl Job<'_> {
    fn new<'h>(home: &'h Home, name: &str, cache: &OurServer, port: u16) -> Job<'h> {
        let directory = home.at(name);
        let (proxy, mirror) = (cache.url(), format!("mirror.test:{port}"));
        for part in ["state/lists/partial", "cache/archives/partial", "etc"] {
            fs::create_dir_all(Path::new(&directory).join(part)).unwrap();
        }
        Job { home, directory, proxy, mirror }
    }

    fn run(&self, program_name: &str, package: &str, args: &[&str]) -> CommandOutput {
        let mut command = Command::new(program(program_name, package));
        command.current_dir(&self.directory).args(args).env("HOME", &self.directory);
        // As the tutorial has it.
        command.env("PIP_PROXY", &self.proxy).env("PIP_TRUSTED_HOST", "pypi.mirror.test");
        command.env("PIP_INDEX_URL", format!("http://pypi.{}/simple", self.mirror));
        run(command, Duration::from_secs(60))
    }

    fn apt(&self) {
        let list = format!("deb [trusted=yes] http://deb.{}/apt ./\n", self.mirror);
        let at = |name: &str| Path::new(&self.directory).join(name);
        fs::write(at("sources.list"), list).unwrap();
        fs::write(at("status"), "").unwrap();
        let conf = format!(
            "Acquire::http::Proxy \"{}\";\nDir::State \"{d}/state\";\nDir::Cache \"{d}/cache\";\n\
             Dir::State::status \"{d}/status\";\nDir::Etc::sourcelist \"{d}/sources.list\";\n\
             Dir::Etc::sourceparts \"{d}/etc\";\nAPT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\n",
            self.proxy,
            d = self.directory
        );
        fs::write(at("apt.conf"), conf).unwrap();
        for args in [&["update"][..], &["download", "hello"]] {
            let all = [&["-q", "-c", "apt.conf"][..], args].concat();
            self.run("apt-get", "apt", &all).succeeded();
        }
        assert!(at("hello_1.0_all.deb").exists());
    }

    fn pip(&self) {
        let args = ["download", "--no-cache-dir", "--no-deps", "--dest", "wheels", "demo"];
        self.run("pip3", "python3-pip", &args).succeeded();
        let wheel = Path::new(&self.directory).join("wheels/demo-1.0-py3-none-any.whl");
        assert!(wheel.exists());
    }

    fn npm(&self) {
        let npmrc = format!("proxy={}\nregistry=http://npm.{}/npm/\n", self.proxy, self.mirror);
        fs::write(Path::new(&self.directory).join(".npmrc"), npmrc).unwrap();
        self.run("npm", "npm", &["pack", "demo"]).succeeded();
        assert!(Path::new(&self.directory).join("demo-1.0.0.tgz").exists());
    }

    /// The requests for packages that have reached the mirror.
    fn fetched(&self) -> usize {
        let log = self.home.read("mirror.log");
        let package = |line: &&str| [".deb", ".whl", ".tgz"].iter().any(|end| line.contains(end));
        log.lines().filter(|line| line.contains(" 200 ")).filter(package).count()
    }
}

#[test]
fn the_tutorial_for_ci_serves_apt_pip_and_npm_from_the_store() {
    let home = Home::new();
    let ([port, dns_port, parent_port], log) = ([(); 3].map(|()| free_port()), "mirror.log");
    mirror(&home, &format!("http://npm.mirror.test:{port}"));
    let mut python = Command::new(program("python3", "python3"));
    python.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory", "mirror"]);
    python.arg(port.to_string()).current_dir(home.path());
    let _mirror = Running::start(python.stdout(Stdio::null()).stderr(output_file(&home, log)));
    wait_for("the mirror", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    // Every name has the address 127.0.0.1.
    let mut dns = crate::acme::tool("pebble-challtestsrv");
    dns.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""]);
    dns.args(["-dns01", &format!("127.0.0.1:{dns_port}"), "-management", ""]);
    let _dns = Running::start(dns.stdout(Stdio::null()).stderr(Stdio::null()));
    let dns = format!("[dns]\nservers = ['127.0.0.1:{dns_port}']\n");
    let parent = home.write(
        "parent.toml",
        format!(
            "[server]\nadmin = '127.0.0.1:0'\n[[listen]]\naddress = '127.0.0.1:{parent_port}'\n\
             role = 'forward'\n[forward]\nallow_to = ['127.0.0.0/8']\n{dns}"
        ),
    );
    let parent = OurServer::configured(&parent);
    let file = file_of("docs/tutorial-ci.md")
        .replace("127.0.0.1:3128", "127.0.0.1:0")
        .replace("127.0.0.1:3129", "127.0.0.1:0")
        .replace("127.0.0.1:3130", &format!("127.0.0.1:{parent_port}"));
    let file = home.write("ci.toml", file + &dns);
    plimsoll(&["check", &file]).succeeded();
    let cache = OurServer::configured(&file);
    let (first, second) =
        (Job::new(&home, "first", &cache, port), Job::new(&home, "second", &cache, port));
    for job in [&first, &second] {
        job.apt();
        job.pip();
        job.npm();
        // Each package was fetched once, by the parent.
        assert_eq!(job.fetched(), 3, "{}", home.read(log));
    }
    let count = |server: &OurServer, name: &str| -> f64 {
        let metrics = get(server.admin(), "/metrics");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        value.unwrap().parse().unwrap()
    };
    assert!(count(&cache, "plimsoll_hits_total") >= 3.0);
    assert!(count(&parent, "plimsoll_requests_total") >= 3.0);
    // Another site is not fetched.
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["-s", "-x", &cache.url(), &format!("http://other.test:{port}/apt/hello.deb")]);
    assert!(run(curl, SOON).stdout.contains("domain-not-allowed"));
}

/// An application: it counts the requests for each path.
fn application() -> (Accepting, Arc<Mutex<HashMap<String, usize>>>) {
    let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counted = Arc::clone(&counts);
    let app = Accepting::start(move |mut stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(request)) = lines.next() {
            let fields: Vec<String> =
                lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            *counted.lock().unwrap().entry(path.clone()).or_default() += 1;
            if fields.iter().any(|line| line.eq_ignore_ascii_case("upgrade: websocket")) {
                let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                            Upgrade: websocket\r\n\
                            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello";
                let _ = stream.write_all(head.as_bytes());
                return;
            }
            let more = match path.as_str() {
                _ if path.starts_with("/static/") => "Set-Cookie: seen=1\r\n",
                "/page" => "Cache-Control: max-age=60\r\n",
                _ => "",
            };
            let content = format!("{path} is here\n").repeat(100);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{more}Content-Length: {}\r\n\r\n",
                content.len()
            );
            let sent = stream.write_all((head + &content).as_bytes());
            // Varnish's probe waits for the end.
            if sent.is_err() || fields.iter().any(|line| line == "Connection: close") {
                return;
            }
        }
    });
    (app, counts)
}

/// The fields of a request for a WebSocket (RFC 6455, 1.3).
const WEBSOCKET: [&str; 8] = [
    "-H",
    "Connection: Upgrade",
    "-H",
    "Upgrade: websocket",
    "-H",
    "Sec-WebSocket-Version: 13",
    "-H",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];

/// What curl gets: the status, and the head.
fn asked(home: &Home, port: u16, scheme: &str, path: &str, flags: &[&str]) -> (String, String) {
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["-sk", "--max-time", "10", "-o", "/dev/null", "-D", "-", "--http1.1"]);
    curl.args(["--resolve", &format!("example.org:{port}:127.0.0.1")]).args(flags);
    curl.current_dir(home.path()).arg(format!("{scheme}://example.org:{port}{path}"));
    let head = run(curl, SOON).stdout;
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, head)
}

#[test]
fn the_tutorial_of_replacing_answers_as_nginx_and_varnish_did() {
    let home = Home::new();
    let (app, counts) = application();
    let at = app.address.port();
    authority(&home);
    issue(&home, "site", "DNS:example.org", false);
    let block = |language: &str| block_of("docs/tutorial-replace.md", language);
    // Both originals, on other ports.
    let [http, tls, cache] = [(); 3].map(|()| free_port());
    let vcl = block("vcl").replace("8000", &at.to_string());
    let vcl = home.write("default.vcl", vcl);
    let _varnish = varnish(&home, cache, &vcl);
    let text = block("nginx").replace("listen 80;", &format!("listen 127.0.0.1:{http};"));
    let text = text.replace("listen 443 ssl", &format!("listen 127.0.0.1:{tls} ssl"));
    let text = text
        .replace("site.pem", &home.at("site.pem"))
        .replace("127.0.0.1:6081", &format!("127.0.0.1:{cache}"));
    let text = text.replace("site.key", &home.at("site.key")).replace("8000", &at.to_string());
    let conf = home.write("site.conf", &text);
    let (_, servers) = text.split_once("http {").unwrap();
    let (servers, _) = servers.rsplit_once('}').unwrap();
    let _nginx = nginx(home.path(), tls, servers);
    // Both files can be imported.
    for (from, to) in [(&conf, "nginx.toml"), (&vcl, "varnish.toml")] {
        let imported = plimsoll(&["import", from, "-o", &home.at(to)]);
        // Some are carried with a difference, and nothing else is.
        assert_eq!(imported.code, Some(1), "{imported:?}");
        assert!(imported.stderr.contains("0 of the directives were not carried"), "{imported:?}");
        plimsoll(&["check", &home.at(to)]).succeeded();
    }
    // And ours, in one process.
    let file = file_of("docs/tutorial-replace.md")
        .replace("0.0.0.0:443", "127.0.0.1:0")
        .replace("0.0.0.0:80\"", "127.0.0.1:0\"")
        .replace("127.0.0.1:3129", "127.0.0.1:0")
        .replace("127.0.0.1:8000", &format!("127.0.0.1:{at}"));
    let file = home.write("plimsoll.toml", file);
    plimsoll(&["check", &file]).succeeded();
    let ours = OurServer::configured(&file);
    let port_of = |at: usize| -> u16 {
        let address = ours.announced["listen"][at].as_str().unwrap();
        address.rsplit(':').next().unwrap().parse().unwrap()
    };
    let (our_tls, our_http) = (port_of(0), port_of(1));
    // Varnish has to find its server well first.
    wait_for("varnish", SOON, || {
        (asked(&home, tls, "https", "/ready", &[]).0 == "200").then_some(())
    });
    for path in ["/page", "/static/a.css?x=1"] {
        let [theirs, ours] = [http, our_http].map(|port| asked(&home, port, "http", path, &[]));
        let location = format!("Location: https://example.org{path}\r\n");
        assert!(theirs.0 == "301" && theirs.1.contains(&location), "{theirs:?}");
        assert!(ours.0 == "301" && ours.1.contains(&location), "{ours:?}");
    }
    let count = |path: &str| counts.lock().unwrap().get(path).copied().unwrap_or_default();
    let session = ["-H", "Cookie: session=1"];
    home.write("large", vec![b'x'; 9 << 20]);
    let upload = ["--data-binary", "@large"];
    for (path, flags, fetches) in [
        ("/page", &[][..], 1),
        ("/static/a.css", &[], 1),
        ("/static/b.css", &session, 1),
        ("/admin/x", &[], 3),
        ("/page?of=me", &session, 3),
    ] {
        for (port, name) in [(tls, "theirs"), (our_tls, "ours")] {
            let before = count(path);
            for _ in 0..3 {
                let (status, head) = asked(&home, port, "https", path, flags);
                assert_eq!(status, "200", "{name} {path}: {head}");
                let has_cookie = head.to_ascii_lowercase().contains("set-cookie");
                assert!(!has_cookie, "{name} {path}: {head}");
            }
            assert_eq!(count(path) - before, fetches, "{name} {path}");
        }
    }
    for port in [tls, our_tls] {
        assert_eq!(asked(&home, port, "https", "/page", &upload).0, "413");
        assert_eq!(asked(&home, port, "https", "/ws/x", &WEBSOCKET).0, "101");
    }
}

#[test]
fn the_tutorial_of_the_application_does_all_in_one_process() {
    let home = Home::new();
    let (one, counts) = application();
    let (other, counts_of_other) = application();
    let ports @ [http, tls] = [(); 2].map(|()| free_port());
    let pebble = Authority::start(&home, ports, 3600, false);
    let shown = file_of("docs/tutorial-app.md");
    assert!(shown.lines().count() <= 30, "{} lines", shown.lines().count());
    // The addresses and the authority of the test.
    let path = "path = \"/var/lib/plimsoll/acme\"\n";
    let text = shown
        .replace(path, &format!("path = \"keys\"\n{}", pebble.keys(&home)))
        .replace("0.0.0.0:80\"", &format!("127.0.0.1:{http}\""))
        .replace("0.0.0.0:443", &format!("127.0.0.1:{tls}"))
        .replace("127.0.0.1:3129", "127.0.0.1:0")
        .replace("127.0.0.1:8000", &one.address.to_string())
        .replace("127.0.0.1:8001", &other.address.to_string());
    assert!(text.contains("directory = "), "{text}");
    // The password of jo is `secret`.
    let hash = "$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS";
    home.write("htpasswd", format!("jo:{hash}\n"));
    home.write("maintenance.html", "<h1>back soon</h1>\n");
    let file = home.write("plimsoll.toml", text);
    plimsoll(&["check", &file]).succeeded();
    let ours = OurServer::configured(&file);
    let root = home.at("root.pem");
    let get_as = |name: &str, path: &str, flags: &[&str]| -> (String, String) {
        let mut curl = Command::new(program("curl", "curl"));
        curl.args(["-s", "--max-time", "10", "-o", "/dev/null", "-D", "-", "--http1.1"]);
        curl.args(["--path-as-is", "--cacert", &root]).args(flags);
        curl.args(["--resolve", &format!("{name}:{tls}:127.0.0.1")]);
        curl.arg(format!("https://{name}:{tls}{path}"));
        let head = run(curl, SOON).stdout;
        (head.split(' ').nth(1).unwrap_or_default().to_owned(), head)
    };
    let ask = |path: &str, flags: &[&str]| get_as("example.org", path, flags);
    for name in ["example.org", "www.example.org"] {
        wait_for(name, SOON * 3, || (get_as(name, "/page", &[]).0 == "200").then_some(()));
    }
    let (status, head) = asked(&home, http, "http", "/page?x=1", &[]);
    let moved = head.contains("Location: https://example.org/page?x=1\r\n");
    assert!(status.starts_with('3') && moved, "{head}");
    // Stored, and compressed.
    wait_for("a compressed response", SOON, || {
        let (_, head) = ask("/page", &["-H", "Accept-Encoding: gzip"]);
        head.contains("Content-Encoding: gzip").then_some(())
    });
    let count = |path: &str| -> [usize; 2] {
        [&counts, &counts_of_other].map(|of| of.lock().unwrap().get(path).copied().unwrap_or(0))
    };
    let sum = |path: &str| count(path).iter().sum::<usize>();
    let before = sum("/page");
    assert_eq!(ask("/page", &[]).0, "200");
    assert_eq!(sum("/page"), before, "a hit");
    // The API is not stored, and both servers get requests.
    for path in ["/api/x", "/%61pi/x", "/api/x", "/api/x", "/api/x", "/api/x"] {
        assert_eq!(ask(path, &[]).0, "200");
    }
    assert!(count("/api/x").iter().all(|count| *count >= 2), "{:?}", count("/api/x"));
    assert_eq!(ask("/socket", &WEBSOCKET).0, "101");
    // The login, for each reading of the path.
    for path in ["/admin", "/admin/users", "/public/..%2fadmin", "/%61dmin"] {
        for login in [&[][..], &["-u", "jo:guess"]] {
            assert_eq!(ask(path, login).0, "401", "{path} {login:?}");
        }
    }
    assert_eq!(ask("/admin/users", &["-u", "jo:secret"]).0, "200");
    // A deployment.
    let admin = ours.admin().to_string();
    // The port of the test belongs to the host.
    let prefix = format!("example.org:{tls}/");
    plimsoll(&["purge", "--prefix", &prefix, "--admin", &admin]).succeeded();
    assert_eq!(ask("/page", &[]).0, "200");
    assert_eq!(sum("/page"), before + 1, "fetched again");
    drop(other);
    for _ in 0..6 {
        assert_eq!(ask("/api/x", &[]).0, "200", "one server is enough");
    }
    // Maintenance.
    let switch = home.write("maintenance.on", "");
    wait_for("the page", SOON, || (ask("/page", &[]).0 == "503").then_some(()));
    fs::remove_file(switch).unwrap();
    wait_for("the end of it", SOON, || (ask("/page", &[]).0 == "200").then_some(()));
}

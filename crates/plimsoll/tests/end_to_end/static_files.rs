//! Files from a real disk, beside nginx with the same directory: the same answers to curl, and no
//! path that leaves the directory.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{Home, OurServer, Running, SOON, free_port, nginx, plimsoll, program, run};

/// The directory, with a secret beside it.
fn files(home: &Home) -> String {
    let root = home.path().join("www");
    fs::create_dir_all(root.join("sub/.git")).unwrap();
    fs::write(home.path().join("secret"), "SECRET").unwrap();
    let big: String = (0..100_000).map(|at| format!("{at:08} ")).collect();
    for (name, text) in [
        ("index.html", "<p>home</p>"),
        ("a b.txt", "blank"),
        ("sub/index.html", "<p>sub</p>"),
        ("sub/page.html", "<p>page</p>"),
        ("sub/.git/config", "SECRET"),
        ("empty.css", ""),
        ("big.js", &big),
        ("100%.txt", "percent"),
    ] {
        fs::write(root.join(name), text).unwrap();
    }
    symlink("../secret", root.join("out")).unwrap();
    symlink("sub/page.html", root.join("in.html")).unwrap();
    symlink("/", root.join("slash")).unwrap();
    let mut mkfifo = Command::new("mkfifo");
    assert!(mkfifo.arg(root.join("fifo")).status().unwrap().success());
    root.display().to_string()
}

fn both(home: &Home) -> (OurServer, Running, SocketAddr) {
    let root = files(home);
    let text = format!(
        "server.admin = \"127.0.0.1:0\"\nlisten = [{{ address = \"127.0.0.1:0\" }}]\n\
         [[route]]\nfiles = \"{root}\"\ntry_files = [\"{{path}}.html\"]\n\
         [[expect]]\nrequest = \"GET http://a/x\"\nanswer = 404\n"
    );
    let ours = OurServer::configured(&home.write("plimsoll.toml", text));
    let (at, port) = (home.path().join("nginx"), free_port());
    fs::create_dir_all(&at).unwrap();
    let http = format!(
        "types {{ text/html html; text/css css; text/javascript js; text/plain txt; }}
         sendfile on; server {{ listen 127.0.0.1:{port}; root {root};
         location / {{ try_files $uri $uri/ $uri.html =404; }} }}"
    );
    (ours, nginx(&at, port, &http), SocketAddr::from(([127, 0, 0, 1], port)))
}

/// The status and the body.
fn curl(more: &[&str], address: SocketAddr, path: &str) -> (String, String) {
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["-s", "--path-as-is", "-m", "10", "-w", "\n%{http_code} %header{content-range}"]);
    curl.args(more).arg(format!("http://{address}{path}"));
    let out = run(curl, SOON).succeeded().stdout;
    let (body, status) = out.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn files_are_served_as_by_nginx() {
    let home = Home::new();
    let (ours, _running, theirs) = both(&home);
    let fields: [&[&str]; 5] = [
        &[],
        &["-H", "Range: bytes=10-19"],
        &["-H", "Range: bytes=-5"],
        &["-H", "Range: bytes=99999999-"],
        &["-H", "If-None-Match: *"],
    ];
    let paths = [
        "/",
        "/a%20b.txt",
        "/sub/",
        "/sub/page.html",
        "/sub/page",
        "/empty.css",
        "/big.js",
        "/100%25.txt",
        "/none",
        "/in.html",
        "/sub/../a%20b.txt",
        "/sub/page.html/x",
    ];
    for path in paths {
        for more in fields {
            let wanted = curl(more, theirs, path);
            // nginx takes a range of nothing for the whole.
            if path == "/empty.css" && !more.is_empty() {
                continue;
            }
            let wanted = if wanted.0.starts_with('2') { wanted } else { (wanted.0, String::new()) };
            for protocol in ["--http1.1", "--http2-prior-knowledge", "--http1.0"] {
                let mut got = curl(&[more, &[protocol]].concat(), ours.address(), path);
                if !got.0.starts_with('2') {
                    got.1.clear();
                }
                assert_eq!(got.0, wanted.0, "{path} {more:?} {protocol}");
                assert!(got.1 == wanted.1, "{path} {more:?} {protocol}: another body");
            }
        }
    }
    let (status, _) = curl(&[], ours.address(), "/sub?a");
    assert!(status.starts_with("308"), "{status}");
    let address = ours.address();
    let saved = home.at("parts");
    let ranges = ["-r", "0-8,899991-", "-o", &saved];
    assert!(curl(&ranges, address, "/big.js").0.starts_with("206"));
    let parts = home.read("parts");
    assert!(parts.matches("Content-Range: bytes ").count() == 2 && parts.contains("00000000 \r\n"));
    let admin = ours.admin().to_string();
    let url = format!("http://{address}/sub/page");
    let said = plimsoll(&["explain", &url, "--admin", &admin]).succeeded().stdout;
    assert!(said.contains("sub/page.html in"), "{said}");
}

#[test]
fn no_path_leaves_the_directory() {
    let home = Home::new();
    let (ours, _running, _) = both(&home);
    let dots = ["..", "%2e%2e", ".%2e", "%252e%252e", "..;", "..%00", "..%5c", "%c0%ae%c0%ae"];
    let slashes = ["/", "%2f", "%252f", "\\", "%5c", "//", "/./"];
    let mut paths: Vec<String> = [
        "/out",
        "/slash/etc/passwd",
        "/fifo",
        "/sub/.git/config",
        "/sub/%2egit/config",
        "/sub//.git/config",
        "/sub/x/../.git/config",
        "/sub%2f.git%2fconfig",
        "/sub\\.git/config",
    ]
    .map(str::to_owned)
    .into();
    for dot in dots {
        for slash in slashes {
            paths.push(format!("/{dot}{slash}secret"));
            paths.push(format!("/sub{slash}{dot}{slash}{dot}{slash}secret"));
            paths.push(format!("{slash}{dot}{slash}secret"));
            paths.push(format!("/sub/{dot}{slash}..{slash}secret%00.html"));
        }
    }
    paths.push(format!("/{}", home.at("secret")));
    for path in &paths {
        for protocol in ["--http1.1", "--http2-prior-knowledge"] {
            let path = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
            let (status, body) = curl(&[protocol], ours.address(), &path);
            assert!(!body.contains("SECRET") && !body.contains("root:"), "{path}: {body}");
            assert!(
                ["400", "403", "404"].iter().any(|one| status.starts_with(one)),
                "{path}: {status}"
            );
        }
    }
}

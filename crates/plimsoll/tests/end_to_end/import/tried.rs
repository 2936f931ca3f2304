//! `plimsoll import --try`: both servers run in sandboxes, and their answers are compared.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::PLIMSOLL;
use crate::support::{CommandOutput, Home, Running, SOON, plimsoll, run, wait_for};

/// Directives that are carried without a difference, among them two listeners and TLS.
const ALIKE: &str = "events { worker_connections 64; }
http {
  gzip on;
  gzip_vary on;
  gzip_types text/css;
  upstream app { server app.internal:3000; server 10.1.2.3:3000 weight=2; }
  server {
    listen 80;
    listen 443 ssl;
    ssl_certificate /etc/letsencrypt/live/shop.example/fullchain.pem;
    ssl_certificate_key /etc/letsencrypt/live/shop.example/privkey.pem;
    server_name shop.example *.shop.example;
    location / {
      proxy_pass http://web.internal:80;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
    }
    location /app/ { proxy_pass http://app; }
    location = /old { return 301 /new; }
    location /ours/ { proxy_pass http://127.0.0.1:8080/theirs/; }
    location /closed/ { return 403; }
  }
}
";

#[track_caller]
fn tried(home: &Home, text: &str, more: &[&str]) -> CommandOutput {
    let file = home.write("nginx.conf", text);
    plimsoll(&[&["import", "--try", "--from", "nginx", &file], more].concat())
}

#[test]
fn a_file_that_is_carried_answers_alike() {
    let home = Home::new();
    let output = tried(&home, ALIKE, &[]).succeeded();
    assert!(output.stdout.contains("200 of 200 requests alike"), "{output:?}");
    // What no request is for is no proof.
    let output = tried(&home, ALIKE, &["--json", "--requests", "7"]);
    let report = output.json();
    assert_eq!((&report["requests"], &report["alike"]), (&7.into(), &7.into()), "{report}");
    let unasked = report["unasked"].as_array().unwrap();
    assert!(unasked.iter().any(|one| one.as_str().unwrap().contains("/closed/")), "{report}");
    assert_eq!(output.code, Some(1), "{report}");
}

#[test]
fn a_difference_has_an_example_and_its_note() {
    let home = Home::new();
    // The location is closed, because the condition is not carried.
    let text = ALIKE.replace(
        "location /closed/ {",
        "location /closed/ { if ($remote_addr ~ ^192) { return 402; } proxy_pass http://app; }
    location /gone/ {",
    );
    let output = tried(&home, &text, &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    for part in [
        "x status 200 and 403: 200 there, 403 here\n  curl -i ",
        "'http://127.0.0.1:80/closed/'\n",
        "nginx.conf:22: if ($remote_addr ~ ^192): not carried, and it kept requests out",
        "requests alike; ",
    ] {
        assert!(output.stdout.contains(part), "no {part:?} in {output:?}");
    }
}

/// nginx stores a response at its third request, and ours at its first.
#[test]
fn responses_that_only_one_server_stores_are_found() {
    let home = Home::new();
    let text = "events {}
http {
  proxy_cache_path /var/cache/nginx/z keys_zone=z:1m;
  server {
    listen 8080;
    location / { proxy_pass http://app; }
    location /kept/ {
      proxy_pass http://app; proxy_cache z; proxy_cache_valid 200 10m;
      proxy_cache_min_uses 3;
    }
  }
}
";
    let output = tried(&home, text, &["--json"]);
    let report = output.json();
    assert_eq!(output.code, Some(1), "{report:#}");
    let differences = report["differences"].as_array().unwrap();
    let source = differences.iter().find(|one| one["kind"].as_str().unwrap().contains("source"));
    let source = source.unwrap_or_else(|| panic!("{report:#}"));
    let note = source["note"].as_str().unwrap_or_else(|| panic!("{report:#}"));
    assert!(note.contains("nginx.conf:"), "{note}");
    assert!(report["our_hits"].as_u64() > report["hits"].as_u64(), "{report:#}");
}

#[test]
fn a_program_of_varnish_is_tried() {
    let home = Home::new();
    let text = "vcl 4.1;
backend default { .host = \"app.internal\"; .port = \"8081\"; }
sub vcl_recv {
  if (req.http.host == \"old.example\") { return (synth(404, \"gone\")); }
  if (req.url ~ \"^/inside/\") { return (synth(403, \"no\")); }
}
sub vcl_backend_response { set beresp.ttl = 5m; }
sub vcl_deliver { set resp.http.X-Frame-Options = \"DENY\"; }
";
    let file = home.write("default.vcl", text);
    let output = plimsoll(&["import", "--try", "--from", "vcl", &file, "--json"]);
    // The note of beresp.ttl is about responses that this origin does not send.
    let report = output.succeeded().json();
    assert!(report["requests"].as_u64() > Some(100), "{report:#}");
    assert!(report["hits"].as_u64() > Some(5), "{report:#}");
    // A program that Varnish refuses is reported with Varnish's reason.
    let file = home.write("old.vcl", text.replace("vcl 4.1;", ""));
    let output = plimsoll(&["import", "--try", "--from", "vcl", &file]);
    output.refused(&["varnishd does not start on this file", "VCL version declaration missing"]);
}

#[test]
fn a_file_of_squid_is_tried() {
    let home = Home::new();
    let text = "http_port 3128
acl lan src 10.0.0.0/8 127.0.0.0/8
acl bad dstdomain .ads.example
acl Safe_ports port 80 443
http_access deny bad
http_access deny !Safe_ports
http_access allow lan
http_access deny all
cache_dir ufs /var/spool/squid 100 16 256
";
    let file = home.write("squid.conf", text);
    let output = plimsoll(&["import", "--try", "--from", "squid", &file, "--json"]);
    let report = output.json();
    let count = |key: &str| report[key].as_u64().unwrap();
    // What differs is in the document: 404 in the store, and ranges and tags of stored responses.
    assert!(count("requests") > 100 && count("requests") - count("alike") <= 4, "{report:#}");
    assert!(count("hits") > 4, "{report:#}");
    // A client of another network is refused by both, so it is no difference.
    let kinds = report["differences"].as_array().unwrap();
    assert!(kinds.iter().all(|one| !one["kind"].as_str().unwrap().contains("403")), "{report:#}");
}

/// The paths below a directory.
fn paths(directory: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        all.insert(entry.path().display().to_string());
        if entry.file_type().unwrap().is_dir() {
            all.extend(paths(&entry.path()));
        }
    }
    all
}

/// Processes whose command line has a text.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().map(Result::unwrap);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn a_tried_file_writes_nothing_outside_and_asks_no_server_outside() {
    let home = Home::new();
    let at = home.path().display().to_string();
    for directory in ["logs", "cache", "www"] {
        std::fs::create_dir(home.path().join(directory)).unwrap();
        // Also for a server that has become another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(home.path().join(directory), open).unwrap();
    }
    home.write("www/index.html", "home\n");
    // Servers that wait outside. The file names the socket in two parts, so that nothing is put
    // in its place.
    let socket = UnixListener::bind(home.path().join("www/socket")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(home.path().join("www/socket"), open).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!(
        "error_log {at}/logs/error.log debug;
pid {at}/logs/nginx.pid;
events {{}}
http {{
  access_log {at}/logs/access.log;
  client_body_temp_path {at}/cache/body;
  proxy_cache_path {at}/cache/pages keys_zone=z:1m;
  server {{
    listen 8080;
    root {at}/www;
    location / {{ index index.html; }}
    location /tcp/ {{ proxy_pass http://127.0.0.1:{port}; proxy_cache z; }}
    location /socket/ {{ set $end socket; proxy_pass http://unix:{at}/www/$end:/; }}
    location /dav/ {{ dav_methods PUT DELETE; root {at}/www; }}
  }}
}}
"
    );
    let file = home.write("nginx.conf", text);
    let before = paths(home.path());
    let output = plimsoll(&["import", "--try", "--json", "--from", "nginx", &file]);
    let report = output.json();
    // Both servers ran: the origin answered, and so did the directory, which was shown.
    assert!(report["requests"].as_u64() > Some(150), "{output:?}");
    assert_eq!(paths(home.path()), before);
    assert_eq!(home.read("www/index.html"), "home\n");
    let waits = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    assert!(socket.accept().is_err_and(waits), "the socket was reached");
    assert!(listener.accept().is_err_and(waits), "the port was reached");
    assert_eq!(processes_with(&at), [""; 0]);
}

#[test]
fn a_tried_server_ends_with_the_command() {
    let home = Home::new();
    // This upstream never answers: requests take until their time-out.
    let text = "events {}\nhttp { server { listen 80; location / { \
                proxy_connect_timeout 60s; proxy_pass http://[2001:db8::1]:81; } } }\n";
    let file = home.write("nginx.conf", text);
    let mut command = Command::new(PLIMSOLL);
    command.args(["import", "--try", "--from", "nginx", &file]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running::start(&mut command);
    let nginx = format!("nginx -c {file}");
    wait_for("nginx", SOON, || processes_with(&nginx).first().cloned());
    running.signal("KILL");
    running.ended(SOON);
    wait_for("its end", SOON, || processes_with(&nginx).is_empty().then_some(()));
}

#[test]
fn without_a_sandbox_nothing_is_run() {
    let home = Home::new();
    let file = home.write("nginx.conf", ALIKE);
    let mut command = Command::new("unshare");
    // In this user namespace, no more of them may be made.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    command.args(["-U", "--map-user=1000", "--keep-caps", "sh", "-c", script, PLIMSOLL]);
    command.args(["import", "--try", "--from", "nginx"]);
    let output = {
        command.arg(&file);
        run(command, SOON)
    };
    output.refused(&["user namespaces are not permitted here", "sandbox", "to fix this"]);
}

#[test]
fn root_of_a_container_without_another_user_runs_nothing() {
    let home = Home::new();
    let file = home.write("nginx.conf", ALIKE);
    let mut command = Command::new("unshare");
    command.args(["-Ur", PLIMSOLL, "import", "--try", "--from", "nginx", &file]);
    run(command, SOON).refused(&["the user 65534, and there is none here"]);
}

/// What a process of the other server tries: the caller's descriptors, the first process of the
/// sandbox, and more namespaces. Squid runs its own file as a program that rewrites URLs, and the
/// URL says what succeeded.
const BREAKS_OUT: &str = "r=x
cat /proc/self/fd/9 /proc/1/fd/9 2>/dev/null | grep -q secret && r=$r-nine
touch /proc/1/fd/8/in 2>/dev/null && r=$r-eight
chmod 4777 /proc/1/exe 2>/dev/null && r=$r-exe
{ echo forged >/proc/1/fd/1; } 2>/dev/null && r=$r-pipe
unshare -Ur true 2>/dev/null && r=$r-namespace
grep -q 'Max processes  *1024 ' /proc/self/limits || r=$r-processes
while read -r url rest; do echo OK rewrite-url=http://try.example/did-$r; done
";

#[test]
fn a_process_of_a_tried_server_reaches_nothing_of_the_caller() {
    let home = Home::new();
    let at = home.path().display().to_string();
    let open = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    };
    std::fs::create_dir(home.path().join("eight")).unwrap();
    open(&home.path().join("eight"), 0o777);
    open(home.path(), 0o755);
    home.write("nine", "secret\n");
    let file = home.path().join("squid.conf").display().to_string();
    let text = format!(
        "http_port 3128
http_access allow all
url_rewrite_program /bin/sh {file}
url_rewrite_children 1 startup=1
"
    );
    // Squid takes the rest of such a line as it is, and the shell knows no such command.
    let lines = BREAKS_OUT.lines().map(|line| format!("err_html_text x; {line}\n"));
    let text = text + &lines.collect::<String>();
    home.write("squid.conf", text);
    // The program is a file of the user who runs it.
    let program = home.path().join("plimsoll");
    std::fs::copy(PLIMSOLL, &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).unwrap();
    open(&program, 0o755);
    let mut command = Command::new("sh");
    let script = format!("exec 8<{at}/eight 9<{at}/nine; exec \"$0\" \"$@\"");
    command.args(["-c", &script, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([program.to_str().unwrap(), "import", "--try", "--json", "--from", "squid"]);
    command.args(["--open", "--requests", "10", &file]);
    let output = run(command, SOON);
    let report = output.json().to_string();
    assert!(report.contains("/did-x\""), "{report}");
    let mode = std::fs::metadata(&program).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o7777, 0o755);
    assert_eq!(paths(&home.path().join("eight")), BTreeSet::new());
}

/// A directory that cannot be looked through, and one behind a symbolic link.
#[test]
fn a_tried_server_reaches_no_socket_behind_a_link() {
    let home = Home::new();
    let at = home.path().display().to_string();
    let open = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::create_dir_all(home.path().join("real/closed")).unwrap();
    home.write("real/index.html", "home\n");
    std::os::unix::fs::symlink(format!("{at}/real"), home.path().join("link")).unwrap();
    let listen = |path: &str| {
        let path = home.path().join(path);
        let socket = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, open(0o777)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let sockets = [listen("real/socket"), listen("real/closed/socket")];
    std::fs::set_permissions(home.path().join("real/closed"), open(0o711)).unwrap();
    std::fs::set_permissions(home.path(), open(0o755)).unwrap();
    let text = format!(
        "events {{}}
http {{ server {{
  listen 8080;
  root {at}/link;
  location / {{ index index.html; }}
  location /a/ {{ set $end socket; proxy_pass http://unix:{at}/real/$end:/; }}
  location /b/ {{ set $end socket; proxy_pass http://unix:{at}/real/closed/$end:/; }}
}} }}
"
    );
    let report = tried(&home, &text, &["--json"]).json();
    assert!(report["requests"].as_u64() > Some(50), "{report:#}");
    for socket in sockets {
        let waits = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
        assert!(socket.accept().is_err_and(waits), "a socket was reached");
    }
}

#[test]
fn a_path_with_dots_is_tried() {
    let home = Home::new();
    let at = home.path().display().to_string();
    for directory in ["www", "other"] {
        std::fs::create_dir(home.path().join(directory)).unwrap();
    }
    home.write("www/index.html", "home\n");
    let text = format!(
        "events {{}}
http {{ server {{ listen 8080; location / {{ root {at}/other/../www; }} }} }}
"
    );
    home.write("nginx.conf", text);
    let file = format!("{at}/other/../nginx.conf");
    let output = plimsoll(&["import", "--try", "--json", "--from", "nginx", &file]);
    assert!(output.json()["requests"].as_u64() > Some(20), "{output:?}");
}

/// One byte in a while: each answer ends in time, and the others are reported.
#[test]
fn a_server_that_sends_slowly_is_compared_all_the_same() {
    let home = Home::new();
    let text = "events {}
http { server { listen 8080; location / { proxy_pass http://app; limit_rate 300; } } }
";
    let report = tried(&home, text, &["--json", "--requests", "4"]).json();
    assert_eq!(report["requests"], 4, "{report:#}");
    let differences = report["differences"].to_string();
    assert!(differences.contains("end of the content"), "{report:#}");
}

#[test]
fn a_file_that_the_other_server_refuses_is_no_comparison() {
    let home = Home::new();
    let text = "events {}\nhttp { no_such_directive on; server { listen 80; return 204; } }\n";
    tried(&home, text, &[]).refused(&[
        "nginx does not start on this file",
        "no_such_directive",
        "nginx.conf:2",
    ]);
}

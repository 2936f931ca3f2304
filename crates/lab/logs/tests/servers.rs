//! Logs as real servers write them, parsed by the formats' names and by their strings.
//!
//! One origin, one script of requests, four servers: the counts parsed from every log must be the
//! same. A server that is not installed is skipped with a message.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[path = "../../record/tests/common/servers.rs"]
mod servers;

use logs::survey::{Survey, SurveySpec, survey};

use servers::{free_port, program, start};

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Requests of the script: five GETs and two HEADs of one object, three GETs of missing ones.
const SCRIPT: usize = 10;

/// Responds as long as the tests run: with 1000 bytes that may be cached for a minute, or with a
/// 404 that may not.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Squid treats a response without a date as stale.
    let date =
        Command::new("date").env("LC_ALL", "C").args(["-u", "+%a, %d %b %Y %H:%M:%S GMT"]).output();
    let date = String::from_utf8(date.unwrap().stdout).unwrap().trim().to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let date = date.clone();
            thread::spawn(move || answer(stream.unwrap(), &date));
        }
    });
    port
}

fn answer(mut stream: TcpStream, date: &str) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let missing = head.windows(8).any(|window| window == b"/missing");
    let (status, keep) =
        if missing { ("404 Not Found", "no-store") } else { ("200 OK", "max-age=60") };
    let body = if head.starts_with(b"HEAD") { String::new() } else { "x".repeat(1000) };
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Length: 1000\r\nCache-Control: {keep}\r\n\
         Content-Type: text/plain\r\nConnection: close\r\n\r\n{body}"
    );
}

/// Whether a request got a response.
fn ask(port: u16, method: &str, path: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a \"quoted\" [agent]\r\n\
         Connection: close\r\n\r\n"
    );
    let mut answer = Vec::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_end(&mut answer).is_ok()
        && answer.starts_with(b"HTTP/1.1 ")
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Sends requests until each log has a line, then runs the script, and keeps only its lines.
fn drive(home: &Path, port: u16, logs: &[PathBuf]) -> Vec<PathBuf> {
    let deadline = Instant::now() + WAIT_MAX;
    while logs.iter().any(|log| lines(log).is_empty()) {
        assert!(Instant::now() < deadline, "{}", output_of(home));
        ask(port, "GET", "/ready");
        thread::sleep(Duration::from_millis(100));
    }
    // The earlier requests have been logged when no log grows any more.
    let lengths = || -> Vec<usize> { logs.iter().map(|log| lines(log).len()).collect() };
    let mut before = Vec::new();
    while std::mem::replace(&mut before, lengths()) != before {
        assert!(Instant::now() < deadline, "{}", output_of(home));
        thread::sleep(Duration::from_millis(500));
    }
    for path in ["/a?token=1", "/a?token=1", "/a?token=1", "/a?token=1", "/a?token=1"] {
        assert!(ask(port, "GET", path), "{}", output_of(home));
    }
    for (method, path) in [
        ("HEAD", "/a?token=1"),
        ("HEAD", "/a?token=1"),
        ("GET", "/missing1"),
        ("GET", "/missing2"),
        ("GET", "/missing3"),
    ] {
        assert!(ask(port, method, path), "{}", output_of(home));
    }
    let kept = logs.iter().zip(before).map(|(log, before)| {
        while lines(log).len() < before + SCRIPT {
            assert!(Instant::now() < deadline, "{}: {:?}", log.display(), lines(log));
            thread::sleep(Duration::from_millis(50));
        }
        let kept = log.with_extension("kept");
        fs::write(&kept, format!("{}\n", lines(log)[before..].join("\n"))).unwrap();
        kept
    });
    kept.collect()
}

/// The output of the servers.
fn output_of(home: &Path) -> String {
    let entries = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    let output =
        entries.filter(|path| path.extension().is_some_and(|e| e == "output" || e == "out"));
    output.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
}

/// What a log contains besides the counts.
struct Contains {
    hits: bool,
    method: bool,
    elapsed: bool,
}

const ALL: Contains = Contains { hits: true, method: true, elapsed: true };

fn check(log: &Path, format: &str, contains: &Contains) {
    let text = fs::read_to_string(log).unwrap();
    let spec = SurveySpec {
        files: vec![log.to_owned()],
        format: format.parse().unwrap_or_else(|error| panic!("{format}: {error}")),
        ..SurveySpec::default()
    };
    let found = survey(&spec).unwrap();
    let of = |word: &str| count(&found, word);
    assert_eq!((found.requests, found.bad), (SCRIPT as u64, 0), "{format}\n{found}\n{text}");
    assert_eq!(of("error"), 3, "{format}\n{found}\n{text}");
    assert!(!contains.hits || of("hit") >= 4, "{format}\n{found}\n{text}");
    assert!(!contains.method || of("HEAD") == 2, "{format}\n{found}\n{text}");
    assert_eq!(found.latency.is_some(), contains.elapsed, "{format}\n{found}");
    assert!(found.latency.is_none_or(|latency| latency.max_us < 60_000_000), "{format}\n{text}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64;
    let stamps = found.first_ns.unwrap()..=found.last_ns.unwrap();
    let recent = now - 10 * 60 * 1_000_000_000..=now + 1_000_000_000;
    assert!(recent.contains(stamps.start()) && recent.contains(stamps.end()), "{format}\n{text}");
}

fn count(survey: &Survey, word: &str) -> u64 {
    let wanted = |c: &&logs::survey::ClassCount| c.outcome == word || c.method == word;
    survey.classes.iter().filter(wanted).map(|c| c.requests).sum()
}

#[test]
fn nginx_logs_are_read() {
    let Some(nginx) = program("nginx") else { return };
    let home = tempfile::tempdir().unwrap();
    let (at, port, origin) = (home.path().display(), free_port(), origin());
    // The strings, as written in the configuration.
    let strings = [
        "$msec $request_time $status $bytes_sent $upstream_cache_status $scheme \"$request\"",
        "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
         \"$http_referer\" \"$http_user_agent\" rt=$request_time ua=\"$upstream_addr\" \
         cs=$upstream_cache_status",
        "{\"at\":\"$time_iso8601\",\"took\":$request_time,\"status\":$status,\
         \"m\":\"$request_method\",\"c\":\"$upstream_cache_status\",\"a\":\"$http_user_agent\"}",
    ];
    let mut formats = String::new();
    let mut logs = vec![home.path().join("combined.log")];
    for (index, string) in strings.iter().enumerate() {
        let escape = if string.starts_with('{') { "escape=json " } else { "" };
        formats.push_str(&format!(
            "log_format own{index} {escape}'{string}'; access_log {at}/own{index}.log own{index};\n"
        ));
        logs.push(home.path().join(format!("own{index}.log")));
    }
    let conf = home.path().join("nginx.conf");
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
         events {{ worker_connections 64; }}
         http {{
           {formats} access_log {at}/combined.log combined;
           client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
           uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
           proxy_cache_path {at}/cache keys_zone=c:1m;
           server {{ listen 127.0.0.1:{port}; location / {{
             proxy_pass http://127.0.0.1:{origin}; proxy_cache c; }} }}
         }}"
    );
    fs::write(&conf, config).unwrap();
    let error_log = format!("{at}/error.log");
    let _nginx = start(home.path(), &nginx, &["-e", &error_log, "-c", conf.to_str().unwrap()]);
    let kept = drive(home.path(), port, &logs);
    let plain = Contains { hits: false, method: true, elapsed: false };
    for format in ["auto", "combined", "clf"] {
        check(&kept[0], format, &plain);
    }
    check(&kept[1], &format!("nginx:{}", strings[0]), &ALL);
    check(&kept[2], &format!("nginx:{}", strings[1]), &ALL);
    check(&kept[2], "combined", &plain);
    check(&kept[3], &format!("nginx:escape=json {}", strings[2]), &ALL);
    check(&kept[3], "json:time=at,elapsed_s=took,method=m,outcome=c", &ALL);
}

#[test]
fn squid_logs_are_read() {
    let Some(squid) = program("squid") else { return };
    let home = tempfile::tempdir().unwrap();
    let (port, origin) = (free_port(), origin());
    let own = home.path().join("own");
    fs::create_dir(&own).unwrap();
    // Root's Squid switches to another user, who must be able to access its directory.
    let user = if fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
    {
        use std::os::unix::fs::PermissionsExt;
        for path in [home.path(), &own] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        "cache_effective_user proxy"
    } else {
        ""
    };
    let at = own.display();
    let strings = [
        "%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt",
        "%{%Y-%m-%d %H:%M:%S}tl.%03tu %-9tr|%>a %Ss:%Sh %03>Hs %<st %rm \"%ru\" \
         \"%{User-Agent}>h\"",
        "%>a %[ui %[un [%tl] \"%rm %ru HTTP/%rv\" %>Hs %<st \"%{Referer}>h\" %Ss:%Sh %tr",
    ];
    let mut formats = String::new();
    let mut logs = vec![own.join("native.log")];
    for (index, string) in strings.iter().enumerate() {
        formats.push_str(&format!(
            "logformat own{index} {string}\naccess_log stdio:{at}/own{index}.log own{index}\n"
        ));
        logs.push(own.join(format!("own{index}.log")));
    }
    let conf = home.path().join("squid.conf");
    let config = format!(
        "http_port 127.0.0.1:{port} accel defaultsite=127.0.0.1 no-vhost
cache_peer 127.0.0.1 parent {origin} 0 no-query originserver name=origin
acl all_ src all
http_access allow all_
cache_peer_access origin allow all_
cache_mem 8 MB
{formats}
access_log stdio:{at}/native.log squid
buffered_logs off
cache_log {at}/cache.log
pid_filename {at}/pid
coredump_dir {at}
{user}
visible_hostname localhost
shutdown_lifetime 0 seconds
pinger_enable off
max_filedescriptors 1024
"
    );
    fs::write(&conf, config).unwrap();
    let _squid = start(home.path(), &squid, &["-N", "-f", conf.to_str().unwrap()]);
    let kept = drive(home.path(), port, &logs);
    check(&kept[0], "auto", &ALL);
    check(&kept[0], "squid", &ALL);
    for (log, string) in kept[1..].iter().zip(strings) {
        check(log, &format!("squid:{string}"), &ALL);
    }
    check(&kept[1], "squid", &ALL);
}

#[test]
fn haproxy_logs_are_read() {
    let Some(haproxy) = program("haproxy") else { return };
    let home = tempfile::tempdir().unwrap();
    let (port, origin) = (free_port(), origin());
    let conf = home.path().join("haproxy.cfg");
    let config = format!(
        "global
  log stdout format raw local0
  maxconn 100
  nbthread 1
defaults
  mode http
  log global
  option httplog
  timeout client 10s
  timeout server 10s
  timeout connect 5s
frontend web
  bind 127.0.0.1:{port}
  default_backend origin
cache small
  total-max-size 4
backend origin
  http-request cache-use small
  http-response cache-store small
  server origin 127.0.0.1:{origin}
"
    );
    fs::write(&conf, config).unwrap();
    let _haproxy = start(home.path(), &haproxy, &["-f", conf.to_str().unwrap()]);
    let kept = drive(home.path(), port, &[home.path().join("haproxy.out")]);
    for format in ["auto", "haproxy"] {
        check(&kept[0], format, &ALL);
    }
}

#[test]
fn varnishncsa_logs_are_read() {
    let (Some(varnishd), Some(ncsa)) = (program("varnishd"), program("varnishncsa")) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let (port, origin) = (free_port(), origin());
    let name = home.path().join("varnish");
    let name = name.to_str().unwrap();
    let (listen, backend) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{origin}"));
    let _varnishd = start(
        home.path(),
        &varnishd,
        &["-F", "-j", "none", "-a", &listen, "-b", &backend, "-n", name, "-s", "malloc,16m"],
    );
    let deadline = Instant::now() + WAIT_MAX;
    while !ask(port, "GET", "/ready") {
        assert!(Instant::now() < deadline, "{}", output_of(home.path()));
        thread::sleep(Duration::from_millis(100));
    }
    let strings = [
        "%h %l %u %t \"%r\" %s %b %D %{Varnish:hitmiss}x",
        "%{usec}t %T %{Varnish:handling}x %m %s %O",
        "%{%Y-%m-%d %H:%M:%S %z}t %{ms}T \"%{User-agent}i\" %m %s %{Varnish:hitmiss}x",
    ];
    let mut writers = Vec::new();
    let mut logs = vec![home.path().join("default.log")];
    let default = logs[0].to_str().unwrap().to_owned();
    writers.push(start(home.path(), &ncsa, &["-n", name, "-w", &default]));
    for (index, string) in strings.iter().enumerate() {
        let log = home.path().join(format!("own{index}.log"));
        let arguments = ["-n", name, "-w", log.to_str().unwrap(), "-F", string];
        writers.push(start(home.path(), &ncsa, &arguments));
        logs.push(log);
    }
    let kept = drive(home.path(), port, &logs);
    let plain = Contains { hits: false, method: true, elapsed: false };
    for format in ["auto", "varnishncsa"] {
        check(&kept[0], format, &plain);
    }
    for (log, string) in kept[1..].iter().zip(strings) {
        check(log, &format!("apache:{string}"), &ALL);
    }
}

//! Recording all the time, and the past that it leaves: `record --keep`, `report DIR`,
//! `compare DIR`.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use trial::{Interval, Manifest, ProcessTimes, ThreadTimes, Trial, Writer};

use crate::PLIMSOLL;
use crate::support::{Home, Running, SOON, free_port, output_file, plimsoll, program, wait_for};

const DAY_S: i64 = 86_400;
const SECOND_NS: i64 = 1_000_000_000;
/// Length of a made interval: as in days that are some weeks old.
const LENGTH_S: i64 = 300;

/// A made trial of a day: the rate follows the time of the day, and a request costs as much as
/// this.
fn made(directory: &Path, start_s: i64, cost_us: f64, version: &str) {
    let path = directory.join(format!("{start_s}.trial"));
    let mut manifest = Manifest { created_ns: start_s * SECOND_NS, ..Manifest::default() };
    manifest.interval_ns = LENGTH_S * SECOND_NS;
    manifest.host.hostname = "edge".to_owned();
    manifest.host.cpus = 2;
    manifest.server.name = "shop".to_owned();
    manifest.server.version = Some(version.to_owned());
    let mut writer = Writer::create(&path, &manifest).unwrap();
    for index in 0..DAY_S / LENGTH_S {
        let at = index as f64 / (DAY_S / LENGTH_S) as f64 * std::f64::consts::TAU;
        let requests = (4_000.0 + 3_000.0 * at.sin()) * LENGTH_S as f64;
        // A reproducible scatter, so that no line is exact.
        let scatter = 1.0 + 0.01 * ((start_s / DAY_S + index) as f64 * 2.4).sin();
        let total_ns = (requests * cost_us * 1e3 * scatter) as i64;
        let times = ProcessTimes { user_ns: total_ns, total_ns, ..ProcessTimes::default() };
        let thread = ThreadTimes {
            pid: 1,
            tid: 1,
            name: "shop".to_owned(),
            user_ns: total_ns,
            total_ns,
            ..ThreadTimes::default()
        };
        let interval = Interval {
            index: index as u64,
            start_ns: (start_s + index * LENGTH_S) * SECOND_NS,
            length_ns: LENGTH_S * SECOND_NS,
            server: Some(times),
            threads: vec![thread],
            requests,
            requests_ended: requests as u64,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
}

/// Two weeks of a server, until last midnight UTC, with a release eight days ago after which a
/// request costs this much more.
fn two_weeks(home: &Home, factor: f64) -> String {
    let directory = home.path().join("days");
    fs::create_dir(&directory).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    for ago in 1..=14 {
        let (cost_us, version) = if ago > 8 { (50.0, "1.22-9") } else { (50.0 * factor, "1.24-1") };
        made(&directory, now / DAY_S * DAY_S - ago * DAY_S, cost_us, version);
    }
    directory.display().to_string()
}

#[test]
fn a_planted_slowdown_of_a_release_is_found_by_its_time_and_its_name() {
    let home = Home::new();
    let days = two_weeks(&home, 1.2);
    for question in [&["--since", "9 days ago"][..], &["--since", "1.24"], &[]] {
        let output = plimsoll(&[&["compare", &days], question].concat());
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(
            output.stdout.contains("when version 1.24-1 replaced version 1.22-9"),
            "{output:?}"
        );
        assert!(output.stdout.contains("Worse: a request costs"), "{output:?}");
    }
    let by_name = ["compare", &days, "--before", "1.22", "--after", "1.24", "--json"];
    let output = plimsoll(&by_name);
    assert_eq!(output.code, Some(1), "{output:?}");
    let found = output.json();
    let ratio = found["cost"]["value"].as_f64().unwrap();
    assert!((1.17..1.23).contains(&ratio), "{found}");
    let page = home.at("days.html");
    let text = plimsoll(&["report", &days, "--html", &page]).succeeded().stdout;
    assert!(text.contains("Worse: a request costs"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("1.24-1 ")).count(), 8 + 1, "{text}");
    assert!(home.read("days.html").contains("Worse: a request costs"));
    let json = plimsoll(&["report", &days, "--json"]).succeeded().json();
    assert_eq!(json["days"].as_array().unwrap().len(), 14);
    assert_eq!(json["changed"]["verdict"], "regression");
    // The questions of a fleet are asked the same directory.
    let by = ["fleet", "list", &days, "--json"];
    assert_eq!(plimsoll(&by).succeeded().json()["servers"][0]["trials"], 14);
}

#[test]
fn a_release_that_changed_nothing_is_no_regression() {
    let home = Home::new();
    let days = two_weeks(&home, 1.0);
    let output = plimsoll(&["compare", &days, "--since", "9 days ago"]).succeeded();
    assert!(output.stdout.contains("No change:"), "{output:?}");
}

#[test]
fn wrong_times_sizes_and_folders_are_refused_with_what_is_accepted() {
    let home = Home::new();
    let days = two_weeks(&home, 1.0);
    plimsoll(&["compare", &days, "--since", "soon"]).refused(&["last week", "version 1.24-1"]);
    plimsoll(&["compare", &days, "--since", "2 years ago"]).refused(&["last week"]);
    let then = ["compare", &days, "--before", "2001-02-03", "--after", "1.24"];
    plimsoll(&then).refused(&["recordings are from"]);
    let empty = home.at("");
    plimsoll(&["report", &empty, "--server", "x"]).refused(&["edge/shop"]);
    let nothing = home.at("nothing");
    fs::create_dir(&nothing).unwrap();
    plimsoll(&["report", &nothing]).refused(&["--keep"]);
    let wrong = |flags: &[&str]| {
        let output = plimsoll(&[&["record", "--keep", &nothing], flags].concat());
        assert_eq!(output.code, Some(2), "{output:?}");
        output.stderr
    };
    let size = wrong(&["--name", "x", "--keep-size", "1M"]);
    assert!(size.contains("16MiB"), "{size}");
    assert!(wrong(&["--pid", "1"]).contains("--pid"));
    assert!(wrong(&["--name", "x", "--profile", "99"]).contains("--profile"));
}

/// An nginx with a name that no other test has, which logs.
struct Named {
    home: String,
    name: String,
    port: u16,
}

impl Named {
    fn new(home: &Home) -> Named {
        let port = free_port();
        let name = format!("kept-{port}");
        fs::copy(program("nginx", "nginx-light"), home.at(&name)).unwrap();
        let at = home.path().display().to_string();
        let text = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
             events {{ worker_connections 1024; }}
             http {{
               log_format timed '$msec $request_time $status $bytes_sent \"$request\"';
               access_log {at}/access.log timed;
               client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
               uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
               server {{ listen 127.0.0.1:{port}; return 204; }}
             }}"
        );
        home.write("nginx.conf", text);
        home.write("access.log", "");
        Named { home: at, name, port }
    }

    fn start(&self) -> Running {
        let Named { home, name, port } = self;
        let mut command = Command::new(format!("{home}/{name}"));
        command.args(["-e", &format!("{home}/error.log"), "-c", &format!("{home}/nginx.conf")]);
        let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for("nginx", SOON, || TcpStream::connect(("127.0.0.1", *port)).ok());
        running
    }

    fn load(&self) -> u64 {
        let url = format!("http://127.0.0.1:{}/", self.port);
        let load = ["load", &url, "--rate", "300", "--connections", "4", "--for", "2s", "--json"];
        plimsoll(&load).succeeded().json()["completed"].as_u64().unwrap()
    }

    fn flags(&self, days: &str) -> Vec<String> {
        let log = format!("{}/access.log", self.home);
        let format = "nginx:$msec $request_time $status $bytes_sent \"$request\"";
        let flags = ["record", "--keep", days, "--name", &self.name, "--label", "42"];
        let more = ["--access-log", &log, "--log-format", format, "--interval", "200ms", "--json"];
        flags.iter().chain(&more).map(|flag| (*flag).to_owned()).collect()
    }
}

/// The events that a recorder has printed.
fn events(home: &Home, output: &str) -> Vec<Value> {
    home.read(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn happened(home: &Home, output: &str, event: &str) -> Option<Value> {
    let text = home.read(output);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let events = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.into_iter().find(|one| one["event"] == event)
}

/// The requests of a trial.
fn requests(trial: &Path) -> u64 {
    let trial = Trial::open(trial).unwrap();
    trial.intervals().iter().map(|one| one.requests).sum::<f64>().round() as u64
}

/// The requests of all trials in a directory.
fn all_requests(days: &str) -> Vec<u64> {
    let files = fs::read_dir(days).unwrap().map(|entry| entry.unwrap().path());
    let trials = files.filter(|path| path.extension().is_some_and(|end| end == "trial"));
    trials.map(|path| requests(&path)).collect()
}

#[test]
fn a_recorder_waits_survives_a_kill_and_counts_every_request() {
    let home = Home::new();
    let server = Named::new(&home);
    let days = home.at("days");
    let start = |output: &str| {
        let mut command = Command::new(PLIMSOLL);
        command.args(server.flags(&days)).stdout(output_file(&home, output));
        Running::start(command.stderr(output_file(&home, &format!("{output}.err"))))
    };
    // It is there before the server.
    let mut first = start("first");
    wait_for("a recorder that waits", SOON, || happened(&home, "first", "waiting"));
    let nginx = server.start();
    let began = wait_for("a first trial", SOON, || happened(&home, "first", "began"));
    let path = began["trial"].as_str().unwrap().to_owned();
    wait_for("the first intervals", SOON, || {
        Trial::open(&path).ok().filter(|trial| trial.intervals().len() > 3)
    });
    let answered = server.load();
    wait_for("the requests", SOON, || (requests(Path::new(&path)) >= answered).then_some(()));
    // Another one is refused while the first lives.
    let flags = server.flags(&days);
    plimsoll(&flags).refused(&["already", &first.pid()]);
    first.signal("KILL");
    first.ended(SOON);
    let first_path = path;
    assert!(!Trial::open(&first_path).unwrap().complete());

    let mut second = start("second");
    let began = wait_for("a second trial", SOON, || happened(&home, "second", "began"));
    let path = began["trial"].as_str().unwrap().to_owned();
    wait_for("the first intervals", SOON, || {
        Trial::open(&path).ok().filter(|trial| trial.intervals().len() > 3)
    });
    let answered_again = server.load();
    wait_for("the requests", SOON, || (requests(Path::new(&path)) >= answered_again).then_some(()));
    second.signal("TERM");
    assert!(second.ended(SOON).success(), "{}", home.read("second.err"));
    let ended = events(&home, "second").pop().unwrap();
    assert_eq!(ended["event"], "ended", "{ended}");
    assert!(ended["recorder_percent"].as_f64().unwrap() > 0.0, "{ended}");
    // What was there stays as it was, and nothing is counted twice.
    assert_eq!(requests(Path::new(&first_path)), answered);
    let all = all_requests(&days);
    assert_eq!(all.iter().sum::<u64>(), answered + answered_again, "{all:?}");
    let trial = Trial::open(&path).unwrap();
    assert!(trial.complete() && trial.manifest().labels["release"] == "42");
    let report = plimsoll(&["report", &days, "--json"]).succeeded().json();
    let rows = report["days"].as_array().unwrap();
    let shown: f64 = rows.iter().map(|row| row["requests"].as_f64().unwrap()).sum();
    assert_eq!(shown.round() as u64, answered + answered_again, "{report}");
    let listed = plimsoll(&["fleet", "list", &days, "--json"]).succeeded().json();
    assert_eq!(listed["servers"][0]["trials"].as_u64().unwrap() as usize, all.len(), "{listed}");
    drop(nginx);
}

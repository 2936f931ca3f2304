//! Each command does what its help says.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::PLIMSOLL;
use crate::support::{
    Home, OurServer, Recording, Running, SOON, get, limited, plimsoll, run, wait_for,
};

#[test]
fn the_help_of_each_command_lists_its_flags() {
    let _home = Home::new();
    let verbs: [(&str, &[&str]); 19] = [
        ("serve", &["--listen", "--origin", "--forward", "--memory", "--access-log", "squid"]),
        ("import", &["--from", "--output", "--force", "--open", "--json", "vcl"]),
        ("load", &["URL", "--rate", "--cold", "--connections", "--for", "Zipf"]),
        ("record", &["--pid", "--name", "--access-log", "--requests-from", "--redact", "Ctrl-C"]),
        ("top", &["[TRIAL]", "--pid", "--name", "--access-log", "--last", "--once", "--json"]),
        ("logs", &["--format", "--json", "--redact", ".zst"]),
        ("report", &["--html", "--json", "--objective", "--groups", "trial"]),
        ("what-if", &["--group", "--scale", "--cost", "--no-keep", "--groups", "--json"]),
        ("compare", &["--margin", "--between-runs", "--groups", "--json", "worse"]),
        ("doctor", &["--disk", "--json", "samplers"]),
        ("demo", &["--for", "--out", "--backend", "--cold"]),
        ("join", &["LOAD.json", "--offset"]),
        ("switchback", &["--a", "--b", "--period", "--rounds", "--settle", "B costs more"]),
        ("origin", &["--listen"]),
        ("null-server", &["--listen", "--size"]),
        ("completions", &["bash", "fish", "zsh"]),
        ("man", &["man page"]),
        ("version", &["--json", "commit"]),
        ("init", &["--out", "--force", "--origin", "--mirror", "--registry", "--disk", "packages"]),
    ];
    let all = plimsoll(&["--help"]).succeeded().stdout;
    for (verb, words) in verbs {
        assert!(all.contains(&format!("\n  {verb} ")), "{verb} is not in the list: {all}");
        let help = plimsoll(&[verb, "--help"]).succeeded();
        assert_eq!(help.stderr, "");
        for word in words {
            assert!(help.stdout.contains(word), "{verb}: no {word:?} in {}", help.stdout);
        }
    }
    let none = plimsoll::<&str>(&[]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("Usage: plimsoll"), "{none:?}");
    let serve = plimsoll(&["serve"]);
    assert_eq!(serve.code, Some(2));
    assert!(serve.stderr.contains("\n    plimsoll serve --listen "), "{serve:?}");
}

#[test]
fn the_version_completions_and_the_man_page() {
    let _home = Home::new();
    let version = plimsoll(&["--version"]).succeeded().stdout;
    assert_eq!(version.trim(), format!("plimsoll {}", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        let script = plimsoll(&["completions", shell]).succeeded().stdout;
        assert!(script.contains("access-log") && script.len() > 2000, "{shell}: {script}");
    }
    let built = plimsoll(&["version", "--json"]).succeeded().json();
    assert_eq!(built["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(built["features"], serde_json::json!(["server", "measure", "lab", "bpf"]));
    let commit = built["commit"].as_str().unwrap();
    let is_hash = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(is_hash || commit == "unknown", "{commit}");
    assert!(built["compiler"].as_str().unwrap().starts_with("rustc 1."), "{built}");
    assert!(built["target"].as_str().unwrap().contains("-linux-"), "{built}");
    let text = plimsoll(&["version"]).succeeded().stdout;
    assert!(text.contains("\nfeatures  server, measure, lab, bpf\n"), "{text}");
    let page = plimsoll(&["man"]).succeeded().stdout;
    assert!(page.contains(".TH") && page.contains("Exit codes"), "{page}");
}

#[test]
fn the_counts_of_a_load_add_up() {
    let home = Home::new();
    let origin = OurServer::origin();
    let whole = home.at("load.json");
    let shown = plimsoll(&[
        "load",
        &origin.url(),
        "--rate",
        "100..1000",
        "--for",
        "3s",
        "--objects",
        "50",
        "--cold",
        "10",
        "--json",
        "--output",
        &whole,
    ])
    .succeeded()
    .json();
    assert_eq!(serde_json::from_str::<Value>(&home.read("load.json")).unwrap(), shown);

    let of = |value: &Value, key: &str| {
        value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value:#}"))
    };
    let errors = |value: &Value| -> u64 {
        value["errors"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
    };
    let (started, completed) = (of(&shown, "started"), of(&shown, "completed"));
    assert_eq!(started, completed + errors(&shown) + of(&shown, "in_flight"));
    assert_eq!(of(&shown, "intended"), started + of(&shown, "unstarted"));
    assert_eq!(errors(&shown), 0, "{}", shown["errors"]);
    assert_eq!(of(&shown, "cold_open"), 10);
    // A Poisson process with a mean rate of 550 for three seconds.
    assert!((1200..2100).contains(&completed), "{completed}");
    let rows = shown["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows.iter().map(|row| of(row, "intended")).sum::<u64>(), of(&shown, "intended"));
    let latencies = of(&shown["latency"], "count") + of(&shown["latency_invalid"], "count");
    assert_eq!(latencies, completed);
}

#[test]
fn a_load_without_a_server_says_so() {
    let _home = Home::new();
    let url = format!("http://127.0.0.1:{}/", crate::support::free_port());
    plimsoll(&["load", &url, "--for", "1s"]).refused(&[&url, "refused"]);
}

/// Our server with a log, its origin, and a directory for both.
pub(crate) fn a_server(home: &Home, more: &[&str]) -> (OurServer, OurServer) {
    let origin = OurServer::origin();
    let (url, log) = (origin.url(), home.at("access.log"));
    let flags = ["--origin", &url, "--workers", "1", "--access-log", &log];
    let server = OurServer::serve(&[&flags[..], more].concat());
    (server, origin)
}

#[test]
fn a_killed_recorder_leaves_a_readable_trial() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &[]);
    let url = format!("{}/obj/1", server.url());
    let log = home.at("access.log");
    let mut recording = Recording::start(&home, &server.child.pid(), &log, "cut.trial", "100ms");
    let mut load = Running::start(
        Command::new(PLIMSOLL)
            .args(["load", &url, "--rate", "100..3000", "--for", "4s", "--connections", "8"])
            .stdout(Stdio::null()),
    );
    load.ended(SOON);
    recording.0.signal("KILL");
    recording.0.ended(SOON);

    let trial = home.at("cut.trial");
    let output = plimsoll(&["report", &trial]).succeeded();
    assert!(output.stdout.contains("not finished"), "{}", output.stdout);
    let report = plimsoll(&["report", "--json", &trial]).succeeded().json();
    assert_eq!(report["trial"]["complete"], false);
    // Of forty, if the machine has time for all.
    assert!(report["trial"]["intervals"].as_u64().unwrap() >= 10, "{}", report["trial"]);
    assert!(report["trial"]["unfinished"].is_string(), "{}", report["trial"]);

    let page = home.at("page.html");
    plimsoll(&["report", &trial, "--html", &page, "--svg", &home.at("line.svg")]).succeeded();
    let html = home.read("page.html");
    assert!(html.contains("<svg") && html.contains("not finished"));
    // It works offline: it loads nothing.
    for fetch in
        ["src=\"http", "href=\"http", "src=\"//", "href=\"//", "url(http", "@import", "<link"]
    {
        assert!(!html.contains(fetch), "{fetch} in the page");
    }
    assert!(home.read("line.svg").contains("<svg"));
}

#[test]
fn an_interrupted_recording_is_complete() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &[]);
    let log = home.at("access.log");
    let recording = Recording::start(&home, &server.child.pid(), &log, "a.trial", "100ms");
    for _ in 0..10 {
        get(server.address(), "/obj/1");
    }
    wait_for("the log", SOON, || (home.read("access.log").lines().count() == 10).then_some(()));
    // The rest at the end becomes an interval only if it is long enough.
    std::thread::sleep(Duration::from_millis(300));
    let summary = recording.interrupted();
    assert_eq!(summary["ended"], "stopped");
    assert_eq!(summary["one_file"], true);
    assert_eq!(summary["log_lines"], 10);
    assert_eq!(summary["log_format"], "squid");
    assert!((summary["requests"].as_f64().unwrap() - 10.0).abs() < 0.01, "{summary:#}");
    assert!(!home.has("a.trial-wal") && !home.has("a.trial-shm"));
}

#[test]
fn without_a_log_requests_are_counted_on_the_sockets() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &[]);
    let pid = server.child.pid();
    let short = ["record", "--pid", &pid, "--for", "100ms", "--interval", "100ms", "-o"];
    let tried = plimsoll(&[&short[..], &[&home.at("tried.trial")]].concat());
    if tried.code == Some(2) {
        tried.refused(&["server's sockets", "root", "--access-log FILE", "--requests-from"]);
        println!("skipped: {}", tried.stderr);
        return;
    }
    assert!(tried.stdout.contains("counted on the server's sockets"), "{tried:?}");
    let recording = Recording::start(&home, &pid, "", "a.trial", "100ms");
    for n in 0..10 {
        get(server.address(), &format!("/obj/{n}"));
    }
    // The rest at the end becomes an interval only if it is long enough.
    std::thread::sleep(Duration::from_millis(300));
    let summary = recording.interrupted();
    assert_eq!(summary["requests_source"], "on the server's sockets");
    assert!((summary["requests"].as_f64().unwrap() - 10.0).abs() < 0.01, "{summary:#}");
    let report = plimsoll(&["report", &home.at("a.trial")]).succeeded().stdout;
    assert!(!report.is_empty());
}

#[test]
fn a_recording_ends_with_its_capacity_and_a_name() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &[]);
    let (pid, log) = (server.child.pid(), home.at("access.log"));
    let record = |more: &[&str]| {
        let mut command = Command::new(PLIMSOLL);
        command.current_dir(home.path()).args(["record", "--pid", &pid, "--access-log", &log]);
        command.args(["--interval", "100ms"]).args(more);
        run(command, SOON)
    };
    // There is no load: the capacity is not known when the time is over, but the trial is kept.
    let idle = record(&["--for", "1s", "--wait-until-known", "10%"]);
    assert_eq!(idle.code, Some(2), "{idle:?}");
    assert!(idle.stderr.contains("not to 10 %"), "{idle:?}");
    assert!(idle.stdout.ends_with(&format!("\n{pid}-1.trial\n")), "{idle:?}");
    let url = format!("http://{}/obj/1", server.address());
    let load = ["load", &url, "--rate", "100..3000", "--for", "25s", "--connections", "8"];
    let load = Running::start(Command::new(PLIMSOLL).args(load).stdout(Stdio::null()));
    let shown = record(&["--for", "3s"]).succeeded();
    load.signal("INT");
    // A busy machine may leave the capacity unknown; then the sentence says why.
    let answer = shown.stdout.lines().find(|line| line.contains("his plimsoll "));
    assert!(answer.is_some_and(|answer| answer.contains("carries ")), "{shown:?}");
    assert!(shown.stdout.lines().any(|line| line.starts_with("Limit")), "{shown:?}");
    assert!(shown.stdout.ends_with(&format!("\n{pid}-2.trial\n")), "{shown:?}");
}

#[test]
fn a_name_finds_the_process() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &[]);
    // Other servers with that name may be running, so this one gets a unique name: a process id has
    // at most seven digits, and the kernel keeps 15 bytes.
    let whole = format!("sleeper-{:07}-of-tests", std::process::id());
    let sleeper = home.at(&whole);
    fs::copy("/bin/sleep", &sleeper).unwrap();
    let child = Running::start(Command::new(&sleeper).arg("60"));
    let name: String = whole.chars().take(15).collect();
    wait_for("its name", SOON, || {
        let comm = fs::read_to_string(format!("/proc/{}/comm", child.pid())).unwrap();
        (comm.trim() == name).then_some(())
    });
    let (log, out) = (home.at("access.log"), home.at("a.trial"));
    for name in [&name, &whole] {
        let flags = ["--name", name, "--access-log", &log, "--interval", "100ms", "--for", "300ms"];
        let all = [&["record", "--json", "--force", "-o", &out], &flags[..]].concat();
        let summary = plimsoll(&all).succeeded().json();
        // A busy machine can make an interval longer.
        let intervals = summary["intervals"].as_u64().unwrap();
        assert!((1..=3).contains(&intervals), "{summary:#}");
    }
    drop(server);
}

#[test]
fn sigterm_lets_requests_finish_and_the_log_is_complete() {
    let home = Home::new();
    let more = ["--log-format", "squid", "--admin", "127.0.0.1:0"];
    let (server, _origin) = a_server(&home, &more);
    for n in 0..20 {
        get(server.address(), &format!("/obj/{n}?size=10"));
    }
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.set_read_timeout(Some(SOON)).unwrap();
    let head = "GET /obj/99?size=1000&delay_us=3000000 HTTP/1.1\r\nHost: x\r\n\r\n";
    slow.write_all(head.as_bytes()).unwrap();
    wait_for("the slow request", SOON, || {
        get(server.admin(), "/metrics").contains("\nplimsoll_connections_busy 1\n").then_some(())
    });
    let (code, stderr) = server.stopped();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200 ") && answer.len() > 1000, "{text}");
    let log = home.read("access.log");
    assert_eq!(log.lines().count(), 21, "{log}");
    assert!(log.ends_with('\n') && log.contains("/obj/99"), "{log}");
}

#[test]
fn a_rotated_log_is_reopened() {
    for signal in ["HUP", "USR1"] {
        let home = Home::new();
        let (server, _origin) = a_server(&home, &[]);
        get(server.address(), "/obj/before");
        let log = home.path().join("access.log");
        wait_for("the line", SOON, || home.read("access.log").contains("before").then_some(()));
        fs::rename(&log, home.path().join("access.log.1")).unwrap();
        get(server.address(), "/obj/between");
        wait_for("the line", SOON, || home.read("access.log.1").contains("between").then_some(()));
        server.child.signal(signal);
        wait_for("the new log", SOON, || log.exists().then_some(()));
        get(server.address(), "/obj/after");
        let (code, stderr) = server.stopped();
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        let (old, new) = (home.read("access.log.1"), home.read("access.log"));
        assert_eq!((old.lines().count(), new.lines().count()), (2, 1), "{old}{new}");
        assert!(new.contains("/obj/after"), "{new}");
    }
}

#[test]
fn metrics_are_those_of_the_reference() {
    let home = Home::new();
    // The metrics of quotas, of peers and of a disk have samples if there is one.
    let quota = "[[quota]]\nname = \"q\"\nconnections = 100\n";
    let peer = "[[peer]]\nurl = \"http://127.0.0.1:9\"\nkind = \"sibling\"\nicp = 9\n";
    let disk = home.path().join("disk");
    let disk = format!("[store]\npath = '{}'\nbytes = '32MiB'\n", disk.display());
    let (server, _origin) = limited(&home, &[quota, peer, &disk].concat());
    for _ in 0..3 {
        get(server.address(), "/obj/1?size=10&cc=max-age%3D60");
    }
    let answer = get(server.admin(), "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    let served: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with("plimsoll_"))
        .map(|line| family(line.split([' ', '{']).next().unwrap()))
        .collect();
    let reference = plimsoll(&["reference"]).succeeded().stdout;
    let (_, metrics) = reference.split_once("## Metrics").unwrap();
    let mut described: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(described.len() > 20, "{described:?}");
    if !std::path::Path::new("/proc/pressure/memory").exists() {
        described.remove("plimsoll_memory_stall_seconds_total");
    }
    // There is no certificate, and none is asked for.
    let of_certificates = ["plimsoll_acme_failures", "plimsoll_certificate_"];
    described.retain(|name| !of_certificates.iter().any(|begins| name.starts_with(begins)));
    assert_eq!(served, described);
    assert!(text.contains("plimsoll_requests_total 3\n"), "{text}");
    assert!(get(server.admin(), "/healthz").starts_with("HTTP/1.1 200 "));
}

/// The name of the metric of a sample; the samples of a histogram have suffixes.
fn family(name: &str) -> &str {
    let of_lines = ["_bucket", "_sum", "_count"].into_iter();
    of_lines.filter_map(|end| name.strip_suffix(end)).next().unwrap_or(name)
}

#[test]
fn every_backend_serves() {
    let home = Home::new();
    for backend in ["select", "scalable_select", "poll", "epoll", "io_uring"] {
        let (server, _origin) = a_server(&home, &["--backend", backend]);
        assert_eq!(server.announced["backend"], backend);
        assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "), "{backend}");
        assert_eq!(server.stopped().0, Some(0), "{backend}");
    }
}

#[test]
fn the_studies_are_a_separate_program() {
    let home = Home::new();
    let program = home.at("plimsoll");
    // Not by this process: a child of another test could hold the file open for writing.
    let copied = Command::new("cp").arg(PLIMSOLL).arg(&program).status().unwrap();
    assert!(copied.success());
    let study = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("study").args(args);
        run(command, SOON)
    };
    study(&["swapin", "--json"]).refused(&["plimsoll-study is not installed", "make build"]);
    let script = home.write("plimsoll-study", "#!/bin/sh\necho \"$@\"\nexit 7\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = study(&["swapin", "--json", "--help"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(7), "swapin --json --help\n"));
}

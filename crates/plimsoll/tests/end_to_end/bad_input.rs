//! User errors and system errors: one clear line, exit code 2, and no partial file that could be
//! mistaken for a complete one.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::PLIMSOLL;
use crate::support::{
    Home, OurServer, Recording, Running, SOON, am_root, get, id, plimsoll, program, run, wait_for,
};

/// A complete trial of an idle origin.
fn a_trial(home: &Home) -> String {
    let origin = OurServer::origin();
    let log = home.write("quiet.log", "");
    let recording = Recording::start(home, &origin.child.pid(), &log, "a.trial", "100ms");
    assert_eq!(recording.interrupted()["ended"], "stopped");
    home.at("a.trial")
}

#[test]
fn a_corrupt_trial_a_foreign_file_and_a_missing_one() {
    let home = Home::new();
    let trial = a_trial(&home);
    let whole = fs::read(&trial).unwrap();

    let mut damaged = whole.clone();
    // Less could lie in pages that hold nothing.
    let half = damaged.len() / 4..damaged.len() * 3 / 4;
    damaged[half].fill(0xff);
    let damaged = home.write("damaged.trial", damaged);
    plimsoll(&["report", &damaged]).refused(&["damaged.trial", "corrupt"]);
    let cut = home.write("cut.trial", &whole[..whole.len() - 1000]);
    plimsoll(&["report", &cut]).refused(&["cut.trial", "corrupt"]);
    let head = home.write("head.trial", &whole[..50]);
    plimsoll(&["report", &head]).refused(&["head.trial", "not a trial"]);

    let foreign = home.write("foreign.trial", "My diary,\n");
    plimsoll(&["report", &foreign]).refused(&["foreign.trial", "not a trial"]);
    let empty = home.write("empty.trial", "");
    plimsoll(&["report", &empty]).refused(&["empty.trial", "not a trial"]);
    fs::create_dir(home.at("days")).unwrap();
    plimsoll(&["report", &home.at("days")]).refused(&["days", "no trials"]);
    plimsoll(&["report", &home.at("none.trial")]).refused(&["none.trial", "no such file"]);
    // No page is written for an unreadable trial.
    plimsoll(&["report", &foreign, "--html", &home.at("page.html")]).refused(&["not a trial"]);
    assert!(!home.has("page.html"));
}

#[test]
fn an_existing_trial_is_not_overwritten() {
    let home = Home::new();
    let trial = a_trial(&home);
    let before = fs::read(&trial).unwrap();
    let origin = OurServer::origin();
    let pid = origin.child.pid();
    let log = home.at("quiet.log");
    let again =
        ["record", "--pid", &pid, "--access-log", &log, "--for", "1s", "--interval", "100ms", "-o"];
    let with = |more: &[&str]| plimsoll(&[&again, more].concat());
    with(&[&trial]).refused(&["a.trial", "exists already", "--force"]);
    assert_eq!(fs::read(&trial).unwrap(), before);
    with(&[&trial, "--force"]).succeeded();
    assert_ne!(fs::read(&trial).unwrap(), before);
    // --force overwrites trials only.
    let diary = home.write("diary", "My diary,\n");
    with(&[&diary, "--force"]).refused(&["diary", "not a trial"]);
    assert_eq!(home.read("diary"), "My diary,\n");
}

#[test]
fn an_unreadable_log() {
    let home = Home::new();
    let origin = OurServer::origin();
    let pid = origin.child.pid();
    let out = home.at("x.trial");
    let none = home.at("none.log");
    let record = |log: &str| {
        ["record", "--pid", &pid, "--access-log", log, "--for", "1s", "-o", &out].map(String::from)
    };
    plimsoll(&record(&none)).refused(&["none.log", "No such file"]);
    plimsoll(&record(&home.at(""))).refused(&["not a regular file"]);

    let log = home.write("secret.log", "");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o000)).unwrap();
    let output = if am_root() {
        // Root can read everything, so another user has to try, with a copy of the command.
        let command = home.at("plimsoll");
        fs::copy(PLIMSOLL, &command).unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        let other = id("-u", Some("nobody"));
        let mut setpriv = Command::new(program("setpriv", "util-linux"));
        setpriv.args([&format!("--reuid={other}"), "--regid=65534", "--clear-groups", &command]);
        setpriv.args(record(&log));
        run(setpriv, SOON)
    } else {
        plimsoll(&record(&log))
    };
    output.refused(&["secret.log", "Permission denied"]);
    assert!(!home.has("x.trial"), "no trial is created without a log");
}

#[test]
fn a_missing_file_is_answered_with_what_to_type() {
    let home = Home::new();
    let none = home.at("none");
    let trial = home.at("x.trial");
    plimsoll(&["join", &trial, &none]).refused(&["none", "plimsoll load URL --output"]);
    plimsoll(&["fleet", "capacity", &none]).refused(&["none", "plimsoll record writes"]);
    plimsoll(&["import", &none]).refused(&["none", "/etc/squid/squid.conf"]);
    plimsoll(&["report", &none]).refused(&["none", "plimsoll record --name"]);
    plimsoll(&["check", &none]).refused(&["none", "plimsoll init --out"]);
}

#[test]
fn a_missing_server() {
    let home = Home::new();
    let log = home.write("access.log", "");
    let out = home.at("x.trial");
    let mut gone = Running::start(Command::new("true").stdout(Stdio::null()));
    gone.ended(SOON);
    let rest = ["--access-log", &log, "--for", "1s", "-o", &out];
    let with = |target: [&str; 2]| plimsoll(&[&["record"], &target[..], &rest[..]].concat());
    with(["--pid", &gone.pid()]).refused(&["no process", &gone.pid()]);
    with(["--name", "no-such-server"]).refused(&["no-such-server"]);
    with(["--pid", "0"]).refused(&["0"]);
    with(["--pid", "one"]).refused(&["one", "--pid", "plimsoll record --help"]);
    plimsoll(&[&["record"], &rest[..]].concat()).refused(&["--pid", "--name"]);
    assert!(!home.has("x.trial"));
}

#[test]
fn a_server_that_ends_is_recorded_to_its_end() {
    let home = Home::new();
    let origin = OurServer::origin();
    let log = home.write("access.log", "");
    let mut recording = Recording::start(&home, &origin.child.pid(), &log, "gone.trial", "100ms");
    drop(origin);
    assert_eq!(recording.0.ended(SOON).code(), Some(0));
    let (out, _) = recording.0.remaining_output();
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["ended"], "server_gone");
}

#[test]
fn a_port_in_use() {
    let _home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let words = [address.as_str(), "in use", "another port"];
    let serve = ["serve", "--origin", "http://127.0.0.1:1", "--listen"];
    plimsoll(&[&serve[..], &[&address]].concat()).refused(&words);
    plimsoll(&[&serve[..], &["127.0.0.1:0", "--admin", &address]].concat()).refused(&words);
    plimsoll(&["origin", "--listen", &address]).refused(&words);
    plimsoll(&["null-server", "--listen", &address]).refused(&words);
    plimsoll(&[&serve[..], &[&address]].concat()).refused(&["ss -ltnp"]);
    // An address of another machine.
    let elsewhere = "192.0.2.1:80";
    plimsoll(&[&serve[..], &[elsewhere]].concat()).refused(&[
        elsewhere,
        "cannot listen",
        "ip -brief",
    ]);
}

#[test]
fn a_second_server_does_not_share_the_first_ones_port() {
    let _home = Home::new();
    let flags = ["--origin", "http://127.0.0.1:1", "--workers", "2"];
    let first = OurServer::serve(&flags);
    let address = first.address().to_string();
    let second = [&["serve", "--listen", &address], &flags[..]].concat();
    plimsoll(&second).refused(&[&address, "in use"]);
    assert!(get(first.address(), "/").starts_with("HTTP/1.1 502 "));
}

#[test]
fn unknown_flags_and_invalid_values() {
    let _home = Home::new();
    let verbs = [
        "serve",
        "check",
        "explain",
        "purge",
        "metrics",
        "load",
        "record",
        "report",
        "join",
        "switchback",
        "demo",
        "origin",
        "null-server",
        "completions",
        "man",
    ];
    for verb in verbs {
        let see = format!("plimsoll {verb} --help");
        plimsoll(&[verb, "--no-such-flag"]).refused(&["--no-such-flag", &see]);
    }
    plimsoll(&["no-such-verb"]).refused(&["no-such-verb", "plimsoll --help"]);
    plimsoll(&["server"]).refused(&["server", "serve"]);

    let serve = ["serve", "--listen", "127.0.0.1:0", "--origin", "http://127.0.0.1:1"];
    let bad = |flag: &str, value: &str| {
        plimsoll(&[&serve[..], &[flag, value]].concat()).refused(&[flag, value]);
    };
    bad("--memory", "12Q");
    bad("--memory", "99999999999G");
    bad("--backend", "kqueue");
    bad("--backend", "simulated");
    bad("--workers", "0");
    bad("--workers", "many");
    bad("--log-format", "jsn");
    bad("--log-format", "squid:%ts %>q");
    bad("--log-format", "apache:%h %{X");
    bad("--admin", "somewhere");
    for origin in ["127.0.0.1:80", "ftp://127.0.0.1", "https://", "http://x:notaport"] {
        let flags = ["serve", "--listen", "127.0.0.1:0", "--origin", origin];
        plimsoll(&flags).refused(&[origin]);
    }
    plimsoll(&["serve", "--listen", "localhost", "--forward"]).refused(&["--listen", "localhost"]);
    plimsoll(&["serve", "--listen", "127.0.0.1:0"]).refused(&["--origin"]);
    plimsoll(&[&serve[..], &["--forward"]].concat()).refused(&["--origin", "--forward"]);

    let bad = |flag: &str, value: &str| {
        plimsoll(&["load", "http://127.0.0.1:1/", flag, value]).refused(&[flag, value]);
    };
    for rate in ["fast", "0", "nan", "1..", "1..2/0", "1e99"] {
        bad("--rate", rate);
    }
    for time in ["0", "0s", "5w", "soon", "1e9h"] {
        bad("--for", time);
    }
    bad("--size", "big");
    bad("--connections", "4294967296");
    bad("--proxy", "nowhere");
    bad("--seed", "0x");
    plimsoll(&["load", "ftp://127.0.0.1/"]).refused(&["ftp://127.0.0.1/"]);
    plimsoll(&["load"]).refused(&["<URL>"]);
    plimsoll(&["demo", "--for", "3s"]).refused(&["15"]);
    plimsoll(&["report", "x.trial", "--objective", "0ms"]).refused(&["--objective", "0ms"]);
    plimsoll(&["report", "x.trial", "--above", "much"]).refused(&["--above", "much"]);
    plimsoll(&["completions", "dos"]).refused(&["dos", "bash"]);
}

#[test]
fn unusable_values() {
    let home = Home::new();
    let out = home.at("x.trial");
    let log = home.write("access.log", "");
    let origin = OurServer::origin();
    let pid = origin.child.pid();
    let record = ["record", "--pid", &pid, "--access-log", &log, "-o", &out];
    for interval in ["1ms", "2h"] {
        let output = plimsoll(&[&record[..], &["--interval", interval]].concat());
        output.refused(&["interval"]);
    }
    let output = plimsoll(&[&record[..], &["--log-format", "xml"]].concat());
    output.refused(&["xml", "squid", "haproxy"]);
    assert!(!home.has("x.trial"));

    let url = origin.url();
    let load = |more: &[&str]| plimsoll(&[&["load", &url, "--for", "100ms"], more].concat());
    load(&["--connections", "0"]).refused(&["connection"]);
    load(&["--objects", "0"]).refused(&["object"]);
    load(&["--zipf", "nan", "--objects", "3"]).refused(&["Zipf"]);
    load(&["--cpu", "4095"]).refused(&["4095"]);
    plimsoll(&["origin", "--listen", "127.0.0.1:0", "--cpu", "4095"]).refused(&["4095"]);
}

#[test]
fn a_missing_directory() {
    let home = Home::new();
    let trial = a_trial(&home);
    let origin = OurServer::origin();
    let (pid, url) = (origin.child.pid(), origin.url());
    let there = home.at("none/file");
    let log = home.at("quiet.log");
    let record = ["record", "--pid", &pid, "--access-log", &log, "--for", "1s", "-o", &there];
    plimsoll(&record).refused(&["none/file", "No such file or directory"]);
    // Reported before the load, not after it.
    plimsoll(&["load", &url, "--for", "1h", "--output", &there])
        .refused(&["none/file", "No such file or directory"]);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--origin", &url, "--access-log", &there];
    plimsoll(&serve).refused(&["none/file", "No such file or directory"]);
    plimsoll(&["demo", "--out", &home.at("quiet.log/demo")]).refused(&["quiet.log/demo"]);
    for flag in ["--html", "--svg"] {
        let output = plimsoll(&["report", &trial, flag, &there]);
        assert_eq!(output.code, Some(2), "{output:?}");
    }
    assert!(!home.has("none"));
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let _home = Home::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(PLIMSOLL);
    command.arg("man").stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(line.starts_with("plimsoll: cannot write to stdout: "), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");

    let line = format!("{PLIMSOLL} completions bash | head -n 1");
    let mut piped = Command::new("sh");
    piped.args(["-c", &line]);
    let output = run(piped, SOON).succeeded();
    assert_eq!((output.stdout.lines().count(), output.stderr.as_str()), (1, ""), "{output:?}");
}

#[test]
fn a_full_disk_under_the_access_log_loses_lines_with_a_message_and_no_answers() {
    let _home = Home::new();
    let origin = OurServer::origin();
    let server = OurServer::serve(&[
        "--origin",
        &origin.url(),
        "--workers",
        "1",
        "--access-log",
        "/dev/full",
    ]);
    for _ in 0..5 {
        let answer = get(server.address(), "/obj/7?size=100");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let (code, stderr) = server.stopped();
    assert_eq!(code, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert_eq!(last, "plimsoll: 5 access log lines were lost");
}

/// Runs a script on a disk of 256 KiB, if this machine allows it: a file system in memory, in a
/// name space that ends with its shell.
fn on_a_small_disk(home: &Home, script: &str) -> Option<crate::support::CommandOutput> {
    let disk = home.at("disk");
    fs::create_dir(&disk).unwrap();
    fs::create_dir(home.at("kept")).unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        let mount = format!("mount -t tmpfs -o size=256k none '{disk}' && cd '{disk}' && {script}");
        // In its own user name space, any user may mount.
        command.args([if am_root() { "-m" } else { "-rm" }, "sh", "-c", &mount]);
        run(command, SOON)
    };
    let may = shell("true");
    if may.code != Some(0) {
        // Not with eprintln, whose output is hidden when a test passes.
        let why = may.stderr.trim();
        let _ = writeln!(std::io::stderr(), "SKIPPED: no small disk can be mounted here: {why}");
        return None;
    }
    Some(shell(script))
}

#[test]
fn a_full_disk_under_the_trial_leaves_the_complete_intervals() {
    let home = Home::new();
    let origin = OurServer::origin();
    let log = home.write("access.log", "");
    let script = format!(
        "'{PLIMSOLL}' record --pid {} --access-log '{log}' --interval 100ms -o full.trial; \
         code=$?; cp full.trial* ../kept/; exit $code",
        origin.child.pid()
    );
    let Some(output) = on_a_small_disk(&home, &script) else { return };
    output.refused(&["full.trial", "disk full", "intervals before it"]);
    // The partial trial says that it is not finished.
    let words = output.stderr.split(' ').collect::<Vec<_>>();
    let whole = words[words.iter().position(|word| *word == "intervals").unwrap() - 1];
    assert!(whole.parse::<u64>().unwrap() > 0, "{}", output.stderr);
    let report = plimsoll(&["report", "--json", &home.at("kept/full.trial")]);
    let report = report.json();
    assert_eq!(report["trial"]["complete"], false);
    assert_eq!(report["trial"]["intervals"].to_string(), whole);
}

#[test]
fn a_full_disk_under_a_result_keeps_the_old_one() {
    let home = Home::new();
    let origin = OurServer::origin();
    let script = format!(
        "echo old > result.json && head -c 300000 /dev/zero > filler 2> /dev/null; \
         '{PLIMSOLL}' load '{}/obj/1' --for 300ms --rate 100 --output result.json; \
         code=$?; cp * ../kept/; exit $code",
        origin.url()
    );
    let Some(output) = on_a_small_disk(&home, &script) else { return };
    output.refused(&["result.json", "cannot write", "No space left"]);
    assert_eq!(home.read("kept/result.json"), "old\n");
    let left: Vec<_> =
        fs::read_dir(home.at("kept")).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the old result and the filler: {left:?}");
}

#[test]
fn a_log_that_vanishes_is_waited_for() {
    let home = Home::new();
    let origin = OurServer::origin();
    let log = home.write("access.log", "");
    let recording = Recording::start(&home, &origin.child.pid(), &log, "x.trial", "100ms");
    fs::remove_file(&log).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let summary = recording.interrupted();
    let notes = summary["notes"].to_string();
    assert!(notes.contains("missing"), "{notes}");
    wait_for("the trial", SOON, || home.has("x.trial").then_some(()));
}

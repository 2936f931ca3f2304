//! The configuration file, from its check to its reload, and the restart of the program, all under
//! the eyes of clients who notice nothing.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::PLIMSOLL;
use crate::support::{
    Home, Ours, SOON, Successor, am_root, free_port, get, id, plimsoll, program, wait_for,
};

/// What a test's server is configured with, beside its addresses.
fn configured(home: &Home, origin: &Ours, more: &str) -> String {
    let url = origin.url();
    home.write(
        "plimsoll.toml",
        format!(
            "[server]\nadmin = '127.0.0.1:0'\nworkers = 2\n{more}\n\
             [[listen]]\naddress = '127.0.0.1:0'\n\
             [[upstream]]\nname = 'site'\nserver = [{{ url = '{url}' }}]\n"
        ),
    )
}

fn reload(server: &Ours) -> crate::support::Said {
    plimsoll(&["reload", "--admin", &server.admin().to_string()])
}

#[test]
fn the_example_runs() {
    let home = Home::new();
    let origin = Ours::origin();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/example.toml");
    let checked = plimsoll(&["check", file]).well();
    assert!(checked.stdout.contains("it would listen on 127.0.0.1:3128"), "{checked:?}");
    // The same with addresses that are free here.
    let text = fs::read_to_string(file).unwrap();
    let text = text.replace("127.0.0.1:3128", "127.0.0.1:0");
    let text = text.replace("http://127.0.0.1:8000", &origin.url());
    let config = home.write("example.toml", text);
    let server = Ours::configured(&config);
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    let (code, stderr) = server.stopped();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_bad_file_is_shown_with_carets_and_a_status() {
    let home = Home::new();
    let file = home.write("bad.toml", "[[listen]]\naddres = '127.0.0.1:80'\n[limits]\nx = 1\n");
    let said = plimsoll(&["check", &file]);
    assert_eq!(said.code, Some(2), "{said:?}");
    for words in
        ["bad.toml:2:1: there is no key `addres`", "^^^^^^\n", "is `address` meant?", ":4:1: "]
    {
        assert!(said.stderr.contains(words), "no {words:?} in {}", said.stderr);
    }
    let json = plimsoll(&["check", "--json", &file]).json();
    assert_eq!((&json["ok"], &json["mistakes"][1]["line"]), (&false.into(), &2.into()), "{json}");
    let served = plimsoll(&["serve", "-c", &file]);
    assert_eq!(served.code, Some(2), "{served:?}");
    plimsoll(&["check", &home.at("nowhere.toml")]).refused(&["cannot be read"]);
    plimsoll(&["serve", "-c", &file, "--memory", "1G"]).refused(&["--memory", "--config"]);
}

#[test]
fn a_reload_binds_and_drains_listeners_and_keeps_the_store() {
    let home = Home::new();
    let origin = Ours::origin();
    let file = configured(&home, &origin, "");
    let server = Ours::configured(&file);
    let path = "/obj/1?size=10";
    let first = get(server.address(), path);
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");

    let mut old = TcpStream::connect(server.address()).unwrap();
    let (more, text) = (free_port(), fs::read_to_string(&file).unwrap());
    let added = format!("{text}[[listen]]\naddress = '127.0.0.1:{more}'\n");
    fs::write(&file, &added).unwrap();
    let said = reload(&server).well();
    assert!(said.stdout.contains("configuration 2 is in force"), "{said:?}");
    assert!(said.stdout.contains(&format!("listening on 127.0.0.1:{more}")), "{said:?}");
    let added: SocketAddr = format!("127.0.0.1:{more}").parse().unwrap();
    wait_for("the new listener", SOON, || get(added, path).contains("; hit").then_some(()));

    fs::write(&file, format!("{text}[limits]\nfields_max = 100\nobject_share = 3\n")).unwrap();
    let said = reload(&server).well();
    assert!(said.stdout.contains(&format!("no longer listening on {added}")), "{said:?}");
    assert!(said.stdout.contains("limits.object_share keeps its value until"), "{said:?}");
    wait_for("the end of the listener", SOON, || TcpStream::connect(added).is_err().then_some(()));
    // A connection that is older than both is served by what is in force now.
    use std::io::{Read, Write};
    write!(old, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address())
        .unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("; hit"), "{answer}");
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let home = Home::new();
    let origin = Ours::origin();
    let file = configured(&home, &origin, "");
    let server = Ours::configured(&file);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[limits]\nhead_timeot = '1s'\n")).unwrap();
    let said = reload(&server);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("nothing has changed"), "{said:?}");
    assert!(said.stderr.contains("is `head_timeout` meant?"), "{said:?}");
    // Neither does a program that cannot start with it take our place.
    let said = plimsoll(&["restart", "--admin", &server.admin().to_string()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("this process serves on"), "{said:?}");
    assert!(said.stderr.contains("is `head_timeout` meant?"), "{said:?}");
    let metrics = get(server.admin(), "/metrics");
    for line in [
        "plimsoll_config_generation 1",
        "plimsoll_config_reload_failures_total 1",
        "plimsoll_restart_failures_total 1",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    let (code, stderr) = server.stopped();
    assert_eq!(code, Some(0));
    assert!(stderr.contains("nothing has changed"), "{stderr}");
}

#[test]
fn a_server_bound_by_root_serves_as_somebody_else_and_is_replaced_as_that() {
    if !am_root() {
        // What only root can do is refused to others, in words.
        let home = Home::new();
        let origin = Ours::origin();
        let file = configured(&home, &origin, "user = 'root'");
        plimsoll(&["serve", "-c", &file]).refused(&["only root may change the user"]);
        return;
    }
    let home = Home::new();
    let origin = Ours::origin();
    let log = home.path().join("log");
    fs::create_dir(&log).unwrap();
    let file = configured(&home, &origin, "user = 'nobody'");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[log]\npath = 'log/access.log'\n")).unwrap();
    let mut server = Ours::configured(&file);
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    without_rights(&server.child.pid());
    let next = Successor::restart(server.admin());
    assert!(server.child.ended(SOON).success());
    without_rights(&next.0.to_string());
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
}

/// Every thread is nobody, in no group but its own, and stays so.
#[track_caller]
fn without_rights(pid: &str) {
    let (uid, gid) = (id("-u", Some("nobody")), id("-g", Some("nobody")));
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        for line in [
            format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"),
            format!("Gid:\t{gid}\t{gid}\t{gid}\t{gid}\n"),
            format!("Groups:\t{gid} \n"),
            "NoNewPrivs:\t1\n".to_owned(),
            "CapEff:\t0000000000000000\n".to_owned(),
        ] {
            assert!(status.contains(&line), "no {line:?} in {status}");
        }
    }
}

/// As systemd starts a service whose sockets it holds: descriptors from 3 on, and their number.
const ACTIVATE: &str = "import os, socket, sys
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(('127.0.0.1', int(sys.argv[1])))
listening.listen(64)
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])";

#[test]
fn a_supervisor_passes_sockets_and_is_told_how_things_are() {
    let home = Home::new();
    let origin = Ours::origin();
    let port = free_port().to_string();
    let file = configured(&home, &origin, "");
    let text = fs::read_to_string(&file).unwrap();
    let named = format!("[[listen]]\naddress = '127.0.0.1:{port}'");
    fs::write(&file, text.replace("[[listen]]\naddress = '127.0.0.1:0'", &named)).unwrap();
    let supervisor = UnixDatagram::bind(home.path().join("notify")).unwrap();
    supervisor.set_read_timeout(Some(SOON)).unwrap();
    let told = || {
        let mut bytes = [0; 512];
        let count = supervisor.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut command = Command::new(program("python3", "python3"));
    command.args(["-c", ACTIVATE, &port, PLIMSOLL, "serve", "--json", "-c", &file]);
    command.env("NOTIFY_SOCKET", home.path().join("notify"));
    let mut server = Ours::started(&mut command);
    assert!(told().starts_with("READY=1\n"));
    // A socket that cannot be shared is accepted from by both cores.
    for _ in 0..20 {
        assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    }
    reload(&server).well();
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(told().starts_with("READY=1\n"));
    let next = Successor::restart(server.admin());
    assert_eq!(told(), format!("MAINPID={}\n", next.0));
    assert!(server.child.ended(SOON).success());
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    drop(next);
    assert_eq!(told(), "STOPPING=1\n");
}

/// SIGUSR2 does what the call to the admin address does.
#[test]
fn a_signal_replaces_the_program_or_says_why_not() {
    let home = Home::new();
    let origin = Ours::origin();
    let file = configured(&home, &origin, "");
    let supervisor = UnixDatagram::bind(home.path().join("notify")).unwrap();
    supervisor.set_read_timeout(Some(SOON)).unwrap();
    let told = || {
        let mut bytes = [0; 512];
        let count = supervisor.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut command = Command::new(PLIMSOLL);
    command.args(["serve", "--json", "-c", &file]);
    command.env("NOTIFY_SOCKET", home.path().join("notify"));
    let mut server = Ours::started(&mut command);
    assert!(told().starts_with("READY=1\n"));
    let path = "/obj/1?size=10";
    let mut open = TcpStream::connect(server.address()).unwrap();
    // A file that cannot be used changes nothing.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[limits]\nhead_timeot = '1s'\n")).unwrap();
    server.child.signal("USR2");
    wait_for("the failure to be counted", SOON, || {
        let metrics = get(server.admin(), "/metrics");
        metrics.contains("plimsoll_restart_failures_total 1\n").then_some(())
    });
    assert!(get(server.address(), path).starts_with("HTTP/1.1 200 "));
    fs::write(&file, &text).unwrap();
    server.child.signal("USR2");
    let main = wait_for("the new process", SOON, || {
        told().strip_prefix("MAINPID=").map(|pid| pid.trim().parse().unwrap())
    });
    let next = Successor(main);
    // What was open before is served by the old process to its end.
    use std::io::{Read, Write};
    write!(open, "GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    open.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
    assert!(server.child.ended(SOON).success());
    assert!(next.lives());
    assert!(get(server.address(), path).starts_with("HTTP/1.1 200 "));
}

/// How long the load is driven; longer by hand: PLIMSOLL_RESTART_SECONDS=30.
fn load_seconds() -> u64 {
    let asked = std::env::var("PLIMSOLL_RESTART_SECONDS").ok();
    asked.and_then(|seconds| seconds.parse().ok()).unwrap_or(9)
}

/// 2,000 requests a second, a reload each second, two restarts: nobody notices.
#[test]
fn no_request_fails_while_the_server_is_reloaded_and_replaced() {
    no_request_fails(&[]);
}

/// The same with a connection for each request: what waits to be accepted is not lost either.
#[test]
fn no_connection_is_lost_while_the_server_is_reloaded_and_replaced() {
    no_request_fails(&["--no-keep-alive"]);
}

fn no_request_fails(flags: &[&str]) {
    let home = Home::alone();
    let origin = Ours::origin();
    let file = configured(&home, &origin, "");
    let mut server = Ours::configured(&file);
    let (seconds, admin) = (load_seconds(), server.admin());
    let url = format!("{}/obj/1?size=1024", server.url());
    let length = format!("{seconds}s");
    let mut args = vec!["load", &url, "--rate", "2000", "--for", &length, "--json"];
    args.extend(flags);
    let mut command = Command::new(PLIMSOLL);
    command.args(&args);
    let driving = std::thread::spawn(move || {
        crate::support::run(command, Duration::from_secs(seconds) + SOON)
    });
    let text = fs::read_to_string(&file).unwrap();
    let begun = Instant::now();
    let mut successors = Vec::new();
    let mut reloads = 0;
    while begun.elapsed() + Duration::from_secs(2) < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_secs(1));
        // Each reload is a change: of a limit, and of a listener that comes and goes.
        reloads += 1;
        let listener = if reloads % 2 == 1 { "[[listen]]\naddress = '127.0.0.1:0'\n" } else { "" };
        fs::write(
            &file,
            format!("{text}{listener}[limits]\nfields_max = {}\n", 100 + reloads % 20),
        )
        .unwrap();
        reload(&server).well();
        let part = begun.elapsed().as_secs() * 3 / seconds;
        if successors.len() < 2 && part > successors.len() as u64 {
            // As it was, so that each address of the new process is one of the old one's.
            fs::write(&file, &text).unwrap();
            reload(&server).well();
            successors.push(Successor::restart(admin));
            if successors.len() == 1 {
                assert!(server.child.ended(SOON).success());
            }
        }
    }
    let outcome = driving.join().unwrap().well().json();
    assert_eq!(successors.len(), 2);
    assert!(reloads >= 3);
    for (kind, count) in outcome["errors"].as_object().unwrap() {
        assert_eq!(count, 0, "{kind}: {outcome:#}");
    }
    // What was begun ended well. How much could be begun is a matter of the machine: one that is
    // busy leaves some of the 2,000 a second for no connection, and the generator says so.
    assert_eq!(outcome["in_flight"], 0, "{outcome:#}");
    assert_eq!(outcome["completed"], outcome["started"]);
    let completed = outcome["completed"].as_u64().unwrap();
    assert!(completed >= 100 * seconds, "a load that tells nothing: {outcome:#}");
    wait_for("the end of the first successor", SOON, || (!successors[0].lives()).then_some(()));
    assert!(successors[1].lives());
}

/// A certificate for this machine, signed by itself.
fn certificate(home: &Home, chain: &str) {
    let mut command = Command::new(program("openssl", "openssl"));
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-nodes", "-days", "2", "-subj", "/CN=test"]);
    command.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
    command.args(["-keyout", &home.at("key.pem"), "-out", &home.at(chain)]);
    crate::support::run(command, SOON).well();
}

#[test]
fn a_reload_takes_certificates_anew() {
    let home = Home::new();
    let origin = Ours::origin();
    certificate(&home, "cert.pem");
    let file = configured(&home, &origin, "");
    let text = fs::read_to_string(&file).unwrap();
    let tls = "address = '127.0.0.1:0'\n\
               tls.certificate = [{ chain = 'cert.pem', key = 'key.pem' }]\n[[upstream]]";
    fs::write(&file, text.replace("address = '127.0.0.1:0'\n[[upstream]]", tls)).unwrap();
    let server = Ours::configured(&file);
    let trusts = |chain: &str| {
        let mut command = Command::new(program("curl", "curl"));
        command.args(["-sS", "-o", &home.at("body"), "--cacert", &home.at(chain)]);
        command.arg(format!("https://{}/obj/1?size=10", server.address()));
        crate::support::run(command, SOON).code == Some(0)
    };
    fs::copy(home.path().join("cert.pem"), home.path().join("first.pem")).unwrap();
    assert!(trusts("first.pem"));
    // One that does not fit its key changes nothing.
    fs::write(home.path().join("cert.pem"), "nothing").unwrap();
    let said = reload(&server);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("cert.pem"), "{said:?}");
    assert!(trusts("first.pem"));
    certificate(&home, "cert.pem");
    reload(&server).well();
    wait_for("the new certificate", SOON, || trusts("cert.pem").then_some(()));
    assert!(!trusts("first.pem"));
}

//! The configuration file, from check to reload, and the restart of the program, all without an
//! interruption for clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::PLIMSOLL;
use crate::support::{
    Home, OurServer, SOON, Successor, am_root, free_port, get, id, plimsoll, program, wait_for,
};

/// Settings of a test server, besides its addresses.
fn configured(home: &Home, origin: &OurServer, more: &str) -> String {
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

fn reload(server: &OurServer) -> crate::support::CommandOutput {
    plimsoll(&["reload", "--admin", &server.admin().to_string()])
}

#[test]
fn the_example_runs() {
    let home = Home::new();
    let origin = OurServer::origin();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/example.toml");
    let checked = plimsoll(&["check", file]).succeeded();
    assert!(checked.stdout.contains("it would listen on 127.0.0.1:3128"), "{checked:?}");
    // The example again, with free addresses.
    let text = fs::read_to_string(file).unwrap();
    let text = text.replace("127.0.0.1:3128", "127.0.0.1:0");
    let text = text.replace("http://127.0.0.1:8000", &origin.url());
    let config = home.write("example.toml", text);
    let server = OurServer::configured(&config);
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    let (code, stderr) = server.stopped();
    // No listener of the example has a certificate.
    let says = |line: &&str| !line.contains("acme: nothing is asked for");
    assert_eq!((code, stderr.lines().find(says)), (Some(0), None));
}

#[test]
fn errors_in_a_file_are_shown_with_carets_and_an_exit_code() {
    let home = Home::new();
    let file = home.write("bad.toml", "[[listen]]\naddres = '127.0.0.1:80'\n[limits]\nx = 1\n");
    let output = plimsoll(&["check", &file]);
    assert_eq!(output.code, Some(2), "{output:?}");
    for words in
        ["bad.toml:2:1: there is no key `addres`", "^^^^^^\n", "did you mean `address`?", ":4:1: "]
    {
        assert!(output.stderr.contains(words), "no {words:?} in {}", output.stderr);
    }
    let json = plimsoll(&["check", "--json", &file]).json();
    assert_eq!((&json["ok"], &json["mistakes"][1]["line"]), (&false.into(), &2.into()), "{json}");
    let served = plimsoll(&["serve", "-c", &file]);
    assert_eq!(served.code, Some(2), "{served:?}");
    plimsoll(&["check", &home.at("nowhere.toml")]).refused(&["cannot be read"]);
    plimsoll(&["serve", "-c", &file, "--memory", "1G"]).refused(&["--memory", "--config"]);
}

/// A reload keeps the sockets, and each socket keeps its congestion control.
#[test]
fn a_changed_congestion_control_is_named_by_a_reload() {
    let home = Home::new();
    let origin = OurServer::origin();
    let file = configured(&home, &origin, "");
    let usual = fs::read_to_string(&file).unwrap();
    let with = |name: &str| {
        let key = format!("address = '127.0.0.1:0'\ncongestion_control = '{name}'\n[[upstream]]");
        home.write("test.toml", usual.replace("address = '127.0.0.1:0'\n[[upstream]]", &key))
    };
    let refused = plimsoll(&["serve", "-c", &with("none-such")]);
    refused.refused(&["congestion_control = \"none-such\"", "modprobe tcp_none-such"]);
    let server = OurServer::configured(&with("reno"));
    with("cubic");
    let output = reload(&server).succeeded();
    let words = "keeps congestion_control = \"reno\", not \"cubic\", until the server is stopped";
    assert!(output.stdout.contains(words), "{output:?}");
}

#[test]
fn a_reload_binds_and_drains_listeners_and_keeps_the_cache() {
    let home = Home::new();
    let origin = OurServer::origin();
    let file = configured(&home, &origin, "");
    let server = OurServer::configured(&file);
    let path = "/obj/1?size=10";
    let first = get(server.address(), path);
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");

    let mut old = TcpStream::connect(server.address()).unwrap();
    let (more, text) = (free_port(), fs::read_to_string(&file).unwrap());
    let added = format!("{text}[[listen]]\naddress = '127.0.0.1:{more}'\n");
    fs::write(&file, &added).unwrap();
    let output = reload(&server).succeeded();
    assert!(output.stdout.contains("configuration 2 is in force"), "{output:?}");
    assert!(output.stdout.contains(&format!("listening on 127.0.0.1:{more}")), "{output:?}");
    let added: SocketAddr = format!("127.0.0.1:{more}").parse().unwrap();
    wait_for("the new listener", SOON, || get(added, path).contains("; hit").then_some(()));

    fs::write(&file, format!("{text}[limits]\nfields_max = 100\nobject_share = 3\n")).unwrap();
    let output = reload(&server).succeeded();
    assert!(output.stdout.contains(&format!("no longer listening on {added}")), "{output:?}");
    assert!(output.stdout.contains("limits.object_share keeps its value until"), "{output:?}");
    wait_for("the end of the listener", SOON, || TcpStream::connect(added).is_err().then_some(()));
    // A connection older than both configurations is served with the current one.
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
    let origin = OurServer::origin();
    let file = configured(&home, &origin, "");
    let server = OurServer::configured(&file);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[limits]\nhead_timeot = '1s'\n")).unwrap();
    let output = reload(&server);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("nothing has changed"), "{output:?}");
    assert!(output.stderr.contains("did you mean `head_timeout`?"), "{output:?}");
    // A restart with this file fails, and the old process continues.
    let output = plimsoll(&["restart", "--admin", &server.admin().to_string()]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("this process goes on serving"), "{output:?}");
    assert!(output.stderr.contains("did you mean `head_timeout`?"), "{output:?}");
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
fn a_server_bound_by_root_drops_privileges_and_is_replaced_without_them() {
    if !am_root() {
        // Only root can do this; others get a clear error.
        let home = Home::new();
        let origin = OurServer::origin();
        let file = configured(&home, &origin, "user = 'root'");
        plimsoll(&["serve", "-c", &file]).refused(&["only root may change the user"]);
        return;
    }
    let home = Home::new();
    let origin = OurServer::origin();
    let log = home.path().join("log");
    fs::create_dir(&log).unwrap();
    let file = configured(&home, &origin, "user = 'nobody'");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[log]\npath = 'log/access.log'\n")).unwrap();
    let mut server = OurServer::configured(&file);
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    has_dropped_privileges(&server.child.pid());
    let next = Successor::restart(server.admin());
    assert!(server.child.ended(SOON).success());
    has_dropped_privileges(&next.0.to_string());
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
}

/// Every thread runs as the user `nobody`, without supplementary groups, and cannot change back.
#[track_caller]
fn has_dropped_privileges(pid: &str) {
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

/// The next notification of the server. The kernel does not repeat a call with a time limit after a
/// signal.
fn notification(supervisor: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    let count = loop {
        match supervisor.recv(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            count => break count.unwrap(),
        }
    };
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// Starts the server as systemd does with socket activation: descriptors from 3 on, and their
/// number.
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
fn a_supervisor_passes_sockets_and_is_notified_of_the_state() {
    let home = Home::new();
    let origin = OurServer::origin();
    let port = free_port().to_string();
    let file = configured(&home, &origin, "");
    let text = fs::read_to_string(&file).unwrap();
    let named = format!("[[listen]]\naddress = '127.0.0.1:{port}'");
    fs::write(&file, text.replace("[[listen]]\naddress = '127.0.0.1:0'", &named)).unwrap();
    let supervisor = UnixDatagram::bind(home.path().join("notify")).unwrap();
    supervisor.set_read_timeout(Some(SOON)).unwrap();
    let notification = || notification(&supervisor);
    let mut command = Command::new(program("python3", "python3"));
    command.args(["-c", ACTIVATE, &port, PLIMSOLL, "serve", "--json", "-c", &file]);
    command.env("NOTIFY_SOCKET", home.path().join("notify"));
    let mut server = OurServer::started(&mut command);
    assert!(notification().starts_with("READY=1\n"));
    // Both cores accept from a socket that cannot be shared by address.
    for _ in 0..20 {
        assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    }
    reload(&server).succeeded();
    assert!(notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(notification().starts_with("READY=1\n"));
    let next = Successor::restart(server.admin());
    assert_eq!(notification(), format!("MAINPID={}\n", next.0));
    assert!(server.child.ended(SOON).success());
    assert!(get(server.address(), "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    drop(next);
    assert_eq!(notification(), "STOPPING=1\n");
}

/// SIGUSR2 does what the call to the admin address does.
#[test]
fn a_signal_replaces_the_program_or_says_why_not() {
    let home = Home::new();
    let origin = OurServer::origin();
    let file = configured(&home, &origin, "");
    let supervisor = UnixDatagram::bind(home.path().join("notify")).unwrap();
    supervisor.set_read_timeout(Some(SOON)).unwrap();
    let notification = || notification(&supervisor);
    let mut command = Command::new(PLIMSOLL);
    command.args(["serve", "--json", "-c", &file]);
    command.env("NOTIFY_SOCKET", home.path().join("notify"));
    let mut server = OurServer::started(&mut command);
    assert!(notification().starts_with("READY=1\n"));
    let path = "/obj/1?size=10";
    let mut open = TcpStream::connect(server.address()).unwrap();
    // An invalid file changes nothing.
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
        notification().strip_prefix("MAINPID=").map(|pid| pid.trim().parse().unwrap())
    });
    let next = Successor(main);
    // The old process serves its open connections to their end.
    use std::io::{Read, Write};
    write!(open, "GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    open.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
    assert!(server.child.ended(SOON).success());
    assert!(next.lives());
    assert!(get(server.address(), path).starts_with("HTTP/1.1 200 "));
}

/// The old process had the admin address, and that of queries, until its last connection had ended.
#[test]
fn after_a_restart_the_new_process_answers_admin_calls_and_queries() {
    let home = Home::new();
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let queries = free_port();
    let file = home.write(
        "admin.toml",
        format!(
            "[server]\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [icp]\nlisten = \"127.0.0.1:{queries}\"\nallow_from = [\"127.0.0.1\"]\n\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://{}\"\n\
             [[route]]\nupstream = \"site\"\n",
            origin.local_addr().unwrap()
        ),
    );
    let mut server = OurServer::configured(&file);
    let mut waiting = TcpStream::connect(server.address()).unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: site\r\n\r\n").unwrap();
    let (mut fetch, _) = origin.accept().unwrap();
    let kept = format!("{}/kept", server.url());
    let query = || icp_opcode(queries, &kept);
    wait_for("an answer of the old process", SOON, || query().filter(|of| *of == MISS));
    let successor = Successor::restart(server.admin());
    // The old process may accept for a moment.
    wait_for("calls that the new process answers", SOON, || {
        (0..20).all(|_| reload(&server).code == Some(0)).then_some(())
    });
    // Only the new process has this response.
    let storing = std::thread::spawn({
        let address = server.address();
        move || get(address, "/kept")
    });
    let (mut of_new, _) = origin.accept().unwrap();
    of_new
        .write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok")
        .unwrap();
    assert!(storing.join().unwrap().ends_with("\r\n\r\nok"));
    wait_for("a hit in the new process", SOON, || query().filter(|of| *of == HIT));
    assert!(!server.child.has_ended());
    fetch.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(server.child.ended(SOON).success());
    successor.ends(Some("TERM"));
}

const HIT: u8 = 2;
const MISS: u8 = 3;

/// The opcode of the answer to a query (ICP, RFC 2186, section 2).
fn icp_opcode(port: u16, url: &str) -> Option<u8> {
    let url = [url.as_bytes(), b"\0"].concat();
    let mut query = [0; 24];
    query[..4].copy_from_slice(&[1, 2, 0, (24 + url.len()) as u8]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket.send_to(&[&query[..], &url].concat(), ("127.0.0.1", port)).unwrap();
    let mut answer = [0; 64];
    socket.recv(&mut answer).is_ok().then_some(answer[0])
}

/// Duration of the load. For a longer one, set PLIMSOLL_RESTART_SECONDS=30.
fn load_seconds() -> u64 {
    let asked = std::env::var("PLIMSOLL_RESTART_SECONDS").ok();
    asked.and_then(|seconds| seconds.parse().ok()).unwrap_or(9)
}

/// 2,000 requests per second, half of them with a connection each, a reload every second, two
/// restarts: no request fails, and no pending connection is lost.
#[test]
fn alone_no_request_fails_while_the_server_is_reloaded_and_replaced() {
    let home = Home::alone();
    let origin = OurServer::origin();
    let file = configured(&home, &origin, "");
    let mut server = OurServer::configured(&file);
    let (seconds, admin) = (load_seconds(), server.admin());
    let url = format!("{}/obj/1?size=1024", server.url());
    let loads = [&[][..], &["--no-keep-alive"]].map(|flags| {
        let mut command = Command::new(PLIMSOLL);
        command.args(["load", &url, "--rate", "1000", "--for", &format!("{seconds}s"), "--json"]);
        command.args(flags);
        std::thread::spawn(move || {
            crate::support::run(command, Duration::from_secs(seconds) + SOON)
        })
    });
    let text = fs::read_to_string(&file).unwrap();
    let begun = Instant::now();
    let mut successors = Vec::new();
    let mut reloads = 0;
    while begun.elapsed() + Duration::from_secs(2) < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_secs(1));
        // Each reload changes a limit, and adds or removes a listener.
        reloads += 1;
        let listener = if reloads % 2 == 1 { "[[listen]]\naddress = '127.0.0.1:0'\n" } else { "" };
        fs::write(
            &file,
            format!("{text}{listener}[limits]\nfields_max = {}\n", 100 + reloads % 20),
        )
        .unwrap();
        reload(&server).succeeded();
        let part = begun.elapsed().as_secs() * 3 / seconds;
        if successors.len() < 2 && part > successors.len() as u64 {
            // The old file, so that the new process has the addresses of the old one.
            fs::write(&file, &text).unwrap();
            reload(&server).succeeded();
            successors.push(Successor::restart(admin));
            if successors.len() == 1 {
                assert!(server.child.ended(SOON).success());
            }
        }
    }
    let outcomes = loads.map(|load| load.join().unwrap().succeeded().json());
    assert_eq!(successors.len(), 2);
    assert!(reloads >= 3);
    for outcome in outcomes {
        for (kind, count) in outcome["errors"].as_object().unwrap() {
            assert_eq!(count, 0, "{kind}: {outcome:#}");
        }
        // Every started request succeeded. How many can be started depends on the machine: if it is
        // busy, some of the 1,000 per second find no connection, and the generator reports this.
        assert_eq!(outcome["in_flight"], 0, "{outcome:#}");
        assert_eq!(outcome["completed"], outcome["started"]);
        let completed = outcome["completed"].as_u64().unwrap();
        assert!(completed >= 100 * seconds, "the load is too small to show anything: {outcome:#}");
    }
    wait_for("the end of the first successor", SOON, || (!successors[0].lives()).then_some(()));
    assert!(successors[1].lives());
}

/// A self-signed certificate for this machine.
fn certificate(home: &Home, chain: &str) {
    let mut command = Command::new(program("openssl", "openssl"));
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-nodes", "-days", "2", "-subj", "/CN=test"]);
    command.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
    command.args(["-keyout", &home.at("key.pem"), "-out", &home.at(chain)]);
    crate::support::run(command, SOON).succeeded();
}

#[test]
fn a_reload_reads_certificates_again() {
    let home = Home::new();
    let origin = OurServer::origin();
    certificate(&home, "cert.pem");
    let file = configured(&home, &origin, "");
    let text = fs::read_to_string(&file).unwrap();
    let tls = "address = '127.0.0.1:0'\n\
               tls.certificate = [{ chain = 'cert.pem', key = 'key.pem' }]\n[[upstream]]";
    fs::write(&file, text.replace("address = '127.0.0.1:0'\n[[upstream]]", tls)).unwrap();
    let server = OurServer::configured(&file);
    let trusts = |chain: &str| {
        let mut command = Command::new(program("curl", "curl"));
        command.args(["-sS", "-o", &home.at("body"), "--cacert", &home.at(chain)]);
        command.arg(format!("https://{}/obj/1?size=10", server.address()));
        crate::support::run(command, SOON).code == Some(0)
    };
    fs::copy(home.path().join("cert.pem"), home.path().join("first.pem")).unwrap();
    assert!(trusts("first.pem"));
    // A certificate that does not match its key changes nothing.
    fs::write(home.path().join("cert.pem"), "nothing").unwrap();
    let output = reload(&server);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("cert.pem"), "{output:?}");
    assert!(trusts("first.pem"));
    certificate(&home, "cert.pem");
    reload(&server).succeeded();
    wait_for("the new certificate", SOON, || trusts("cert.pem").then_some(()));
    assert!(!trusts("first.pem"));
}

//! `plimsoll boost`: real programs behave the same with and without the preloaded library.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::PLIMSOLL;
use crate::support::{
    Home, OurServer, Running, SOON, free_port, get, output_file, plimsoll, program, run, wait_for,
};

/// Idle connections in the HAProxy test: enough that every wait is boosted.
const COLD: usize = 200;
/// CPython's tests take 20 s, mostly asleep.
const PYTHON_PATIENCE: Duration = Duration::from_secs(300);

/// The sum of a count over all processes in the statistics file.
fn total(stats: &str, name: &str) -> u64 {
    let lines = stats.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|line| line[name].as_u64().unwrap_or_else(|| panic!("no {name}: {stats}"))).sum()
}

#[test]
fn a_boosted_program_keeps_its_exit_code_and_other_preloaded_libraries() {
    let home = Home::new();
    let stats = home.write("stats.json", "of another run");
    let ended =
        plimsoll(&["boost", "--stats", &stats, "--", "sh", "-c", "echo $0 $1; exit 7", "x"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "x\n"), "{ended:?}");
    assert_eq!(total(&home.read("stats.json"), "calls"), 0);
    let mut command = Command::new(PLIMSOLL);
    command.args(["boost", "--", "sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", "libm.so.6");
    let preloaded = run(command, SOON).succeeded().stdout;
    assert!(preloaded.trim().ends_with("/libplimsoll_boost.so:libm.so.6"), "{preloaded}");
}

#[test]
fn unsuitable_programs_are_refused_with_a_reason() {
    let home = Home::new();
    let executable = |name: &str, bytes: &[u8], mode| {
        let path = home.write(name, bytes);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let refused = |path: &str, words: &[&str]| plimsoll(&["boost", "--", path]).refused(words);
    let sh = fs::read("/bin/sh").unwrap();
    refused(&executable("setuid", &sh, 0o4755), &["setuid", "copy"]);
    refused(&executable("setgid", &sh, 0o2755), &["setgid"]);
    let mut fixed = vec![0; 64];
    fixed[..6].copy_from_slice(b"\x7fELF\x02\x01");
    // The architecture of the shell and no program header, so that no loader is requested.
    fixed[18..20].copy_from_slice(&sh[18..20]);
    refused(&executable("static", &fixed, 0o755), &["statically"]);
    fixed[18] ^= 0xff;
    refused(&executable("foreign", &fixed, 0o755), &["architecture"]);
    refused(&executable("text", b"hello\n", 0o755), &["not an ELF"]);
    refused(&executable("not-executable", &sh, 0o644), &["not an executable"]);
    refused("no-such-program-anywhere", &["PATH", "/usr/sbin/"]);
    let library = home.write("lib.so", "hello\n");
    plimsoll(&["boost", "--library", &library, "--", "sh"]).refused(&["lib.so", "not an ELF"]);
    let library = home.at("absent.so");
    plimsoll(&["boost", "--library", &library, "--", "sh"])
        .refused(&["absent.so", "does not exist"]);
    let stats = home.at("no/such/directory");
    plimsoll(&["boost", "--stats", &stats, "--", "sh"]).refused(&["no/such/directory"]);
    let script = executable("script", b"#! /bin/sh\nexit 3\n", 0o755);
    assert_eq!(
        plimsoll(&["boost", "--", &script]).code,
        Some(3),
        "the interpreter of a script is checked"
    );
}

/// The answer without its date.
fn answer(address: SocketAddr, path: &str) -> String {
    let answer = get(address, path);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.lines().filter(|line| !line.to_lowercase().starts_with("date:")).collect()
}

#[test]
fn a_boosted_haproxy_on_poll_gives_the_same_answers() {
    let haproxy = program("haproxy", "haproxy");
    let home = Home::new();
    let origin = OurServer::origin();
    let ports = [free_port(), free_port()];
    let mut servers = Vec::new();
    for (port, boosted) in ports.into_iter().zip([false, true]) {
        let conf = home.write(
            &format!("{port}.cfg"),
            format!(
                "global\n  nbthread 1\n  maxconn 1000\ndefaults\n  mode http\n  timeout client 60s
  timeout server 60s\n  timeout connect 5s\nfrontend web\n  bind 127.0.0.1:{port}
  default_backend origin\nbackend origin\n  server origin {}\n",
                origin.address()
            ),
        );
        let mut command = Command::new(if boosted { PLIMSOLL.as_ref() } else { haproxy.as_path() });
        if boosted {
            command.args(["boost", "--stats", &home.at("stats.json"), "--"]).arg(&haproxy);
        }
        // Without epoll, HAProxy waits with poll().
        command.args(["-de", "-f", &conf]).stdout(Stdio::null());
        servers.push(Running::start(command.stderr(output_file(&home, &format!("{port}.err")))));
    }
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut cold = Vec::new();
    for port in ports {
        wait_for("haproxy", SOON, || TcpStream::connect(address(port)).ok());
        for _ in 0..COLD {
            cold.push(TcpStream::connect(address(port)).unwrap());
        }
    }
    for size in [0, 1, 1024, 100_000, 3_000_000] {
        for round in 0..4 {
            let path = format!("/obj/{size}{round}?size={size}");
            let [plain, boosted] = ports.map(|port| answer(address(port), &path));
            assert_eq!(plain, boosted, "{path}");
        }
        // Some connections close, and others reuse their descriptors.
        cold.rotate_left(37);
        cold.truncate(cold.len() - 20);
    }
    drop(cold);
    let mut boosted = servers.pop().unwrap();
    boosted.signal("USR1");
    boosted.ended(SOON);
    let stats = home.read("stats.json");
    let of = |name| total(&stats, name);
    assert!(of("calls") > 20 && of("plain") * 2 < of("calls"), "{stats}");
    assert_eq!((of("audit_differences"), of("fallbacks")), (0, 0), "{stats}");
    // Without boost, every call checks every connection.
    assert!(of("probes") < of("calls") * COLD as u64 / 10, "{stats}");
}

#[test]
fn pythons_own_tests_of_select_and_poll_pass_boosted() {
    let python = program("python3", "python3");
    let mut tests = Command::new(&python);
    tests.args(["-c", "import test.test_poll"]);
    if run(tests, SOON).code != Some(0) {
        eprintln!(
            "python's tests are not supported here: {} has none (libpython3-testsuite)",
            python.display()
        );
        return;
    }
    let home = Home::new();
    let stats = home.at("stats.json");
    let mut command = Command::new(PLIMSOLL);
    command.args(["boost", "--stats", &stats, "--"]).arg(&python).current_dir(home.path());
    command.args(["-m", "test", "-q", "test_select", "test_poll", "test_selectors"]);
    // Boosts every call, however few descriptors it has.
    command.env("PLIMSOLL_BOOST_LEAST", "1");
    run(command, PYTHON_PATIENCE).succeeded();
    let stats = home.read("stats.json");
    assert!(total(&stats, "calls") > 50, "{stats}");
    assert!(total(&stats, "plain") * 5 < total(&stats, "calls"), "{stats}");
    assert_eq!(total(&stats, "audit_differences"), 0, "{stats}");
}

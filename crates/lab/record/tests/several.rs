//! Several servers of one name: the trial says that they were recorded as one.
//!
//! No test asserts a time. The servers are copies of nginx with a name that no other process has.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "only whole recordings are needed here")]
mod common;
#[path = "common/losses.rs"]
mod losses;
#[path = "common/servers.rs"]
mod servers;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use record::{Spec, Target, several_servers};
use trial::Trial;

use common::Running;
use servers::{Server, free_port, program, start};

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Starts this copy of nginx on two ports, with a worker.
fn serve(at: &Path, nginx: &Path, ports: [u16; 2]) -> Server {
    fs::create_dir(at).unwrap();
    let (dir, [one, two]) = (at.display(), ports);
    let config = format!(
        "daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
         events {{ worker_connections 64; }}
         http {{
           access_log off;
           client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
           uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
           server {{ listen 127.0.0.1:{one}; listen 127.0.0.1:{two}; return 204; }}
         }}"
    );
    let conf = at.join("nginx.conf");
    fs::write(&conf, config).unwrap();
    let error_log = format!("{dir}/error.log");
    let server = start(at, nginx, &["-e", &error_log, "-c", conf.to_str().unwrap()]);
    let deadline = Instant::now() + WAIT_MAX;
    while TcpStream::connect(("127.0.0.1", one)).is_err() {
        assert!(Instant::now() < deadline, "nginx starts");
        thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
fn several_servers_of_one_name_are_named_and_one_with_workers_is_not() {
    let Some(nginx) = program("nginx") else { return };
    let home = tempfile::tempdir().unwrap();
    let name = format!("ngx{}", std::process::id());
    let copy = home.path().join(&name);
    fs::copy(nginx, &copy).unwrap();
    let target = Target::Name(name);
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let one = serve(&home.path().join("one"), &copy, [ports[0], ports[1]]);
    assert_eq!(several_servers(&target).unwrap(), None);
    let two = serve(&home.path().join("two"), &copy, [ports[2], ports[3]]);
    assert_eq!(several_servers(&Target::Pid(one.child.id())).unwrap(), None);
    let said = several_servers(&target).unwrap().unwrap();
    for (server, port) in [(&one, ports[0]), (&two, ports[3])] {
        assert!(said.contains(&format!("--pid {} ", server.child.id())), "{said}");
        assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
    }
    let spec = Spec {
        interval: Duration::from_millis(100),
        profile: None,
        turns_every: None,
        hold: None,
        redact: true,
        ..Spec::new(target, None, home.path().join("out.trial"))
    };
    let running = Running::begun(spec).unwrap();
    let trial = Trial::open(&running.stop().out).unwrap();
    losses::assert_nothing_lost(&trial);
    let notes = &trial.manifest().notes;
    assert!(
        notes.iter().any(|note| note.starts_with("2 servers are recorded as one")),
        "{notes:?}"
    );
    assert!(notes.iter().all(|note| !note.contains("127.0.0.1")), "{notes:?}");
}

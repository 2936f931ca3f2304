//! Requests counted on the sockets of real servers, of which the clients reset connections, beside
//! another server that uses the kernel's memory of the reset sockets again. The counts are those of
//! the servers.
//!
//! No test asserts a time. Where BPF programs cannot be loaded, or a server is not installed, the
//! tests report that they were skipped.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "only whole recordings are needed here")]
mod common;
#[path = "common/losses.rs"]
mod losses;
#[path = "common/servers.rs"]
mod servers;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use record::{Spec, Target};
use trial::Trial;

use common::Running;
use servers::{free_port, program, start};

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Connections to each server at a time, and how often.
const CONNECTIONS: usize = 40;
const ROUNDS: usize = 15;

const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";

fn connect(port: u16) -> TcpStream {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < deadline, "{port}: {error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a request, and reads the response up to its last byte.
fn ask(stream: &mut TcpStream) {
    stream.write_all(REQUEST).unwrap();
    let (mut had, mut byte) = (Vec::new(), [0]);
    while !had.ends_with(b"body") {
        let read = stream.read_exact(&mut byte);
        assert!(read.is_ok(), "{read:?} after: {}", String::from_utf8_lossy(&had));
        had.extend_from_slice(&byte);
    }
}

/// Closes a connection by a reset.
fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option's value is a linger that outlives the call, with its size.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as u32,
        )
    };
    assert_eq!(set, 0);
    drop(stream);
}

/// A server in this process, which is not observed. It keeps connections open.
fn other_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
                    if stream.write_all(RESPONSE).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// Resets connections to the observed server after their requests, and then uses the other one.
fn drive(port: u16, other: u16) -> u64 {
    let mut requests = 0;
    for _ in 0..ROUNDS {
        let streams: Vec<TcpStream> = (0..CONNECTIONS)
            .map(|index| {
                let mut stream = connect(port);
                for _ in 0..=index % 3 {
                    ask(&mut stream);
                    requests += 1;
                }
                stream
            })
            .collect();
        streams.into_iter().for_each(reset);
        let others: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(other)).collect();
        for mut stream in others {
            (0..5).for_each(|_| ask(&mut stream));
        }
    }
    requests
}

/// The number of requests that are counted while a client does something. `None`, with a message,
/// if that is not possible here.
fn counted(home: &Path, pid: u32, client: impl FnOnce()) -> Option<u64> {
    let spec = Spec {
        interval: Duration::from_millis(100),
        profile: None,
        turns_every: None,
        hold: None,
        sockets: true,
        ..Spec::new(Target::Pid(pid), None, home.join("out.trial"))
    };
    let running = Running::begun_or_skipped(spec)?;
    client();
    let trial = Trial::open(&running.stop().out).unwrap();
    losses::assert_nothing_lost(&trial);
    Some(trial.intervals().iter().map(|interval| interval.requests_ended).sum())
}

/// Waits until a file has so many lines.
fn wait_for_lines(path: &Path, lines: u64) {
    let deadline = Instant::now() + WAIT_MAX;
    let count = || fs::read_to_string(path).unwrap_or_default().lines().count() as u64;
    while count() < lines {
        assert!(Instant::now() < deadline, "{} of {lines} lines", count());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(count(), lines, "the log has the requests of the client");
}

#[test]
fn after_resets_the_requests_of_another_server_are_not_counted() {
    let Some(nginx) = program("nginx") else { return };
    let home = tempfile::tempdir().unwrap();
    let (at, port, other) = (home.path().display(), free_port(), other_server());
    fs::write(home.path().join("small"), "body").unwrap();
    // Several workers take the connections.
    let config = format!(
        "daemon off; worker_processes 4; pid {at}/pid; error_log {at}/error.log;
         events {{ worker_connections 256; }}
         http {{
           access_log {at}/log;
           client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
           uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
           server {{ listen 127.0.0.1:{port}; root {at}; }}
         }}"
    );
    // The workers of a master that is root have another user.
    make_readable(home.path());
    let conf = home.path().join("nginx.conf");
    fs::write(&conf, config).unwrap();
    let error_log = format!("{at}/error.log");
    let server = start(home.path(), &nginx, &["-e", &error_log, "-c", conf.to_str().unwrap()]);
    drop(connect(port));
    let mut sent = 0;
    let found = counted(home.path(), server.child.id(), || {
        sent = drive(port, other);
        wait_for_lines(&home.path().join("log"), sent);
    });
    assert!(found.is_none_or(|found| found == sent), "{found:?} counted, {sent} sent");
}

fn make_readable(home: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(home, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn requests_that_a_proxy_passes_to_a_local_server_are_counted_once() {
    let Some(haproxy) = program("haproxy") else { return };
    let home = tempfile::tempdir().unwrap();
    let (port, other) = (free_port(), other_server());
    let config = format!(
        "defaults\n  mode http\n  timeout connect 9s\n  timeout client 9s\n  timeout server 9s\n\
         listen all\n  bind 127.0.0.1:{port}\n  server only 127.0.0.1:{other}\n"
    );
    let conf = home.path().join("haproxy.cfg");
    fs::write(&conf, config).unwrap();
    let server = start(home.path(), &haproxy, &["-f", conf.to_str().unwrap()]);
    drop(connect(port));
    let mut sent = 0;
    let found = counted(home.path(), server.child.id(), || sent = drive(port, other));
    assert!(found.is_none_or(|found| found == sent), "{found:?} counted, {sent} sent");
}

#[test]
fn the_requests_of_node_are_counted_although_clients_reset() {
    let Some(node) = program("node") else { return };
    let home = tempfile::tempdir().unwrap();
    let (port, other) = (free_port(), other_server());
    let script = format!(
        "require('http').createServer((_, response) => response.end('body'))
           .listen({port}, '127.0.0.1')"
    );
    let server = start(home.path(), &node, &["-e", &script]);
    drop(connect(port));
    let mut sent = 0;
    let found = counted(home.path(), server.child.id(), || sent = drive(port, other));
    assert!(found.is_none_or(|found| found == sent), "{found:?} counted, {sent} sent");
}

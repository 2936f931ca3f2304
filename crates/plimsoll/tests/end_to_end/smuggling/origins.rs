//! Origins of the smuggling tests: real servers with logs, and one that sends arbitrary bytes.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use crate::smuggling::Received;
use crate::smuggling::clients::{PAUSE, ask};
use crate::support::{
    Accepting, Home, Running, SOON, am_root, free_port, output_file, program, read_some, wait_for,
};

/// A real server that answers every request with its path, and logs it.
pub(crate) struct Judge<'h> {
    pub(super) home: &'h Home,
    server: Running,
    port: u16,
}

const LOG: &str = "received.log";

impl<'h> Judge<'h> {
    pub(crate) fn nginx(home: &'h Home) -> Judge<'h> {
        fs::create_dir(home.path().join("nginx")).unwrap();
        let (at, port) = (home.path().display(), free_port());
        let user = if am_root() { "user root;" } else { "" };
        let conf = home.write(
            "nginx.conf",
            format!(
                "daemon off; pid {at}/nginx/pid; error_log {at}/nginx/error.log;
                 worker_processes 1; {user}
                 events {{ worker_connections 512; }}
                 http {{
                   log_format received '\"$request\" $status';
                   access_log {at}/{LOG} received;
                   keepalive_requests 1000000;
                   client_body_temp_path {at}/nginx/b; proxy_temp_path {at}/nginx/p;
                   fastcgi_temp_path {at}/nginx/f; uwsgi_temp_path {at}/nginx/u;
                   scgi_temp_path {at}/nginx/s;
                   server {{
                     listen 127.0.0.1:{port};
                     location / {{ return 200 $request_uri; }}
                   }}
                 }}"
            ),
        );
        let server = Running::start(
            Command::new(program("nginx", "nginx-light"))
                .args(["-e", &home.at("nginx/error.log"), "-c", &conf])
                .stdout(Stdio::null())
                .stderr(output_file(home, "server.err")),
        );
        Judge { home, server, port }.ready()
    }

    /// HAProxy's backend is a second listener of the same process. The log contains the status
    /// because a line without any part of the response is written twice.
    pub(crate) fn haproxy(home: &'h Home) -> Judge<'h> {
        let (port, inner) = (free_port(), free_port());
        let conf = home.write(
            "haproxy.cfg",
            format!(
                "global
                   log stdout format raw local0
                   nbthread 1
                   maxconn 1000
                 defaults
                   mode http
                   timeout client 60s
                   timeout server 60s
                   timeout connect 5s
                 frontend judge
                   bind 127.0.0.1:{port}
                   log global
                   log-format %{{+Q}}r\\ %ST
                   default_backend inner
                 backend inner
                   server inner 127.0.0.1:{inner}
                 frontend inner
                   bind 127.0.0.1:{inner}
                   http-request return status 200 content-type text/plain lf-string %[pathq]\n"
            ),
        );
        let server = Running::start(
            Command::new(program("haproxy", "haproxy"))
                .args(["-f", &conf])
                .stdout(output_file(home, LOG))
                .stderr(output_file(home, "server.err")),
        );
        Judge { home, server, port }.ready()
    }

    fn ready(mut self) -> Judge<'h> {
        wait_for("the origin", SOON, || {
            assert!(!self.server.has_ended(), "{}", self.home.read("server.err"));
            let answer = ask(self.address(), &self.authority(), "/begin/begin");
            answer.is_ok_and(|(status, _)| status == 200).then_some(())
        });
        self
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(crate) fn authority(&self) -> String {
        self.address().to_string()
    }

    /// Everything it received, by the tags of the cases. A line that belongs to no case is its own
    /// key.
    pub(crate) fn received(&self) -> Received {
        // The log is in order, so everything is there once this line is.
        let last = ask(self.address(), &self.authority(), "/end/end");
        assert_eq!(last, Ok((200, "/end/end".to_owned())));
        let log = wait_for("the log", SOON, || {
            let log = self.home.read(LOG);
            log.contains("/end/end").then_some(log)
        });
        let mut received = Received::new();
        for line in log.lines() {
            match tagged(line) {
                Some(("begin" | "end", _)) => {}
                Some((tag, name)) => {
                    received.entry(tag.to_owned()).or_default().push(name.to_owned());
                }
                None => received.entry(line.to_owned()).or_default().push(String::new()),
            }
        }
        received
    }
}

/// Tag and name of `"METHOD /TAG/NAME?… HTTP/1.1" STATUS`.
fn tagged(line: &str) -> Option<(&str, &str)> {
    let (request, _status) = line.strip_prefix('"')?.rsplit_once("\" ")?;
    let mut parts = request.split(' ');
    let (_method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if version != "HTTP/1.1" || parts.next().is_some() {
        return None;
    }
    let path = target.split('?').next()?;
    path.strip_prefix('/')?.split_once('/')
}

/// An origin that answers `…/evil` with the configured bytes, and everything else with its path.
pub(crate) struct Scripted {
    accepting: Accepting,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    script: Mutex<Script>,
    has_sent: Condvar,
}

#[derive(Default)]
struct Script {
    parts: Vec<Vec<u8>>,
    closes: bool,
    /// Running scripts.
    sending: usize,
}

impl Scripted {
    pub(crate) fn start() -> Scripted {
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        let accepting = Accepting::start(move |stream| ours.serve(stream));
        Scripted { accepting, shared }
    }

    pub(crate) fn authority(&self) -> String {
        self.accepting.address.to_string()
    }

    pub(crate) fn script(&self, parts: Vec<Vec<u8>>, closes: bool) {
        *self.shared.script.lock().unwrap() = Script { parts, closes, sending: 0 };
    }

    /// Waits until all running scripts have sent everything.
    pub(crate) fn has_sent(&self) {
        let script = self.shared.script.lock().unwrap();
        let waited =
            self.shared.has_sent.wait_timeout_while(script, SOON, |script| script.sending > 0);
        assert!(!waited.unwrap().1.timed_out());
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        // Everything must be sent at once, not with the next response.
        stream.set_nodelay(true).unwrap();
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        loop {
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = bytes.drain(..end + 4).collect();
                if !self.answer(&mut stream, &String::from_utf8_lossy(&head)) {
                    return;
                }
            }
            match read_some(&mut stream, &mut part) {
                Ok(read) if read > 0 => bytes.extend_from_slice(&part[..read]),
                _ => return,
            }
        }
    }

    /// Returns false if the connection must be closed.
    fn answer(&self, stream: &mut TcpStream, head: &str) -> bool {
        let path = head.split(' ').nth(1).unwrap_or_default();
        if !path.ends_with("/evil") {
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n{path}",
                path.len()
            );
            return stream.write_all(answer.as_bytes()).is_ok();
        }
        let (parts, closes) = {
            let mut script = self.script.lock().unwrap();
            script.sending += 1;
            (script.parts.clone(), script.closes)
        };
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                std::thread::sleep(PAUSE);
            }
            let _ = stream.write_all(part);
        }
        self.script.lock().unwrap().sending -= 1;
        self.has_sent.notify_all();
        !closes
    }
}

//! A tiny blocking client, and nginx as its server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http2::{Connection, Event, Limits, RequestFields, Scratch, StreamId};

use crate::ports;

/// An nginx with HTTP/2 in the clear. It ends when this is dropped.
pub(crate) struct Nginx {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl Nginx {
    /// Starts it, with a file for each size that is requested.
    pub(crate) fn start() -> Nginx {
        let directory = std::env::temp_dir().join(format!("http2-nginx-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("www")).unwrap();
        for size in [0, 1, 1000, 20_000, 1_000_000] {
            std::fs::write(directory.join(format!("www/{size}")), "x".repeat(size)).unwrap();
        }
        let port = ports::free_address().unwrap().port();
        let at = directory.display();
        // Versions before 1.25.1 know only this form of the switch; later ones warn and accept it.
        let conf = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
             events {{ }}
             http {{
               access_log {at}/access.log combined;
               client_body_temp_path {at}/b; proxy_temp_path {at}/p;
               fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
               server {{ listen 127.0.0.1:{port} http2; root {at}/www; }}
             }}"
        );
        std::fs::write(directory.join("nginx.conf"), conf).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new("nginx")
            .env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"))
            .arg("-e")
            .arg(directory.join("error.log"))
            .arg("-c")
            .arg(directory.join("nginx.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("nginx: {e}; try ./setup.sh test"));
        Nginx { child, directory, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The access log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("access.log")).unwrap()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A single process has nothing to clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// One connection with several requests.
pub(crate) struct Client {
    socket: TcpStream,
    connection: Connection,
    out: Vec<u8>,
    streams: Vec<(StreamId, u16, Vec<u8>)>,
    /// Content that is to be sent.
    upload: Option<(StreamId, Vec<u8>)>,
    ended: usize,
}

impl Client {
    /// Connects as soon as the server accepts.
    pub(crate) fn connect(port: u16) -> Client {
        const PATIENCE: Duration = Duration::from_secs(20);
        let started = Instant::now();
        let socket = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(socket) => break socket,
                Err(error) => assert!(started.elapsed() < PATIENCE, "nginx: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut out = Vec::new();
        let connection = Connection::client(&Limits::DEFAULT, &mut out);
        Client { socket, connection, out, streams: Vec::new(), upload: None, ended: 0 }
    }

    pub(crate) fn get(&mut self, path: &str) {
        self.request(b"GET", path, true);
    }

    pub(crate) fn post(&mut self, path: &str, bytes: usize) {
        let stream = self.request(b"POST", path, false);
        self.upload = Some((stream, vec![b'y'; bytes]));
    }

    fn request(&mut self, method: &[u8], path: &str, end_stream: bool) -> StreamId {
        let request = RequestFields {
            method,
            scheme: Some(b"http"),
            authority: b"localhost",
            path: Some(path.as_bytes()),
            protocol: None,
        };
        let fields = [(&b"User-Agent"[..], &b"http2-test"[..])];
        let stream =
            self.connection.send_request(&request, fields, end_stream, &mut self.out).unwrap();
        self.streams.push((stream, 0, Vec::new()));
        stream
    }

    /// Drives the connection until all responses are complete.
    pub(crate) fn finish(&mut self) {
        let mut scratch = Scratch::new();
        let (mut input, mut buffer) = (Vec::new(), vec![0; 50_000]);
        while self.ended < self.streams.len() {
            if let Some((stream, content)) = &mut self.upload {
                let (connection, out) = (&mut self.connection, &mut self.out);
                // The server may have answered and reset the stream before it has everything.
                match connection.send_data(*stream, content, true, out) {
                    Ok(sent) => drop(content.drain(..sent)),
                    Err(_) => content.clear(),
                }
                if content.is_empty() {
                    self.upload = None;
                }
            }
            self.socket.write_all(&self.out).unwrap();
            self.out.clear();
            let read = self.socket.read(&mut buffer).unwrap();
            assert!(read > 0, "the server has closed the connection");
            input.extend_from_slice(&buffer[..read]);
            let mut at = 0;
            loop {
                let (connection, out) = (&mut self.connection, &mut self.out);
                let received = connection.next_event(&input[at..], &mut scratch, 0, out).unwrap();
                at += received.consumed;
                let Some(event) = received.event else { break };
                self.event(event);
            }
            input.drain(..at);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Response { stream, head, end_stream } => {
                self.streams.iter_mut().find(|found| found.0 == stream).unwrap().1 = head.status;
                self.ended += usize::from(end_stream);
            }
            Event::Data { stream, bytes, end_stream } => {
                let found = self.streams.iter_mut().find(|found| found.0 == stream).unwrap();
                found.2.extend_from_slice(bytes);
                self.connection.release(stream, bytes.len(), &mut self.out);
                self.ended += usize::from(end_stream);
            }
            Event::StreamError { stream, reason } => panic!("stream {stream}: {reason}"),
            _ => {}
        }
    }

    /// The status and content of a response.
    pub(crate) fn response(&self, number: usize) -> (u16, &[u8]) {
        let (_, status, content) = &self.streams[number];
        (*status, content)
    }
}

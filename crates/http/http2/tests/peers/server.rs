//! A tiny blocking server: one thread for each connection.
//!
//! `/bytes/N` answers with N bytes, `/echo` with the content of the request, and anything else with
//! a short text. Trailers of a request come back as trailers.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use http2::{Connection, Event, Limits, Scratch, StreamId};

/// Content of one write to the socket, about.
const OUT_BYTES: usize = 64 * 1024;

/// Content of one turn of a stream.
const TURN_BYTES: usize = 16 * 1024;

/// Serves until accepting fails.
pub(crate) fn serve(listener: &TcpListener, limits: &Limits) -> std::io::Result<()> {
    loop {
        let (socket, _) = listener.accept()?;
        let limits = *limits;
        std::thread::spawn(move || {
            // How a connection ends is the client's business.
            let _ = Server::new(&limits).run(socket);
        });
    }
}

/// A response in progress.
#[derive(Default)]
struct Exchange {
    content: Vec<u8>,
    sent: usize,
    is_echo: bool,
    /// No more content comes.
    is_complete: bool,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

struct Server {
    connection: Connection,
    exchanges: HashMap<StreamId, Exchange>,
    out: Vec<u8>,
    started: Instant,
}

impl Server {
    fn new(limits: &Limits) -> Server {
        let mut out = Vec::new();
        let connection = Connection::server(limits, &mut out);
        Server { connection, exchanges: HashMap::new(), out, started: Instant::now() }
    }

    fn run(mut self, mut socket: TcpStream) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        let mut scratch = Scratch::new();
        let mut input = Vec::new();
        let mut buffer = vec![0; OUT_BYTES];
        loop {
            let mut at = 0;
            let is_over = loop {
                let now_ms = self.started.elapsed().as_millis() as u64;
                let (connection, out) = (&mut self.connection, &mut self.out);
                match connection.next_event(&input[at..], &mut scratch, now_ms, out) {
                    Ok(received) => {
                        at += received.consumed;
                        match received.event {
                            Some(event) => self.event(event),
                            None => break false,
                        }
                    }
                    Err(_) => break true,
                }
            };
            input.drain(..at);
            loop {
                let more = self.send();
                socket.write_all(&self.out)?;
                self.out.clear();
                if !more {
                    break;
                }
            }
            if is_over {
                // Closing with unread input would reset the connection before GOAWAY is read.
                socket.shutdown(std::net::Shutdown::Write)?;
                while socket.read(&mut buffer)? > 0 {}
                return Ok(());
            }
            let read = socket.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            input.extend_from_slice(&buffer[..read]);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Request { stream, head, end_stream } => {
                let path = head.path.unwrap_or_default();
                let count = path.strip_prefix(b"/bytes/").and_then(|n| str::from_utf8(n).ok());
                let content = match count.and_then(|n| n.parse::<usize>().ok()) {
                    _ if head.method == b"HEAD" || path == b"/echo" => Vec::new(),
                    Some(count) => (0..count).map(|at| at as u8).collect(),
                    None => b"hello from http2\n".to_vec(),
                };
                let is_echo = path == b"/echo";
                let exchange = Exchange { content, is_echo, ..Exchange::default() };
                self.exchanges.insert(stream, exchange);
                if is_echo {
                    self.respond(stream);
                }
                if end_stream {
                    self.complete(stream);
                }
            }
            Event::Data { stream, bytes, end_stream } => {
                if let Some(exchange) = self.exchanges.get_mut(&stream)
                    && exchange.is_echo
                {
                    exchange.content.extend_from_slice(bytes);
                    self.connection.want_to_send(stream);
                }
                self.connection.release(stream, bytes.len(), &mut self.out);
                if end_stream {
                    self.complete(stream);
                }
            }
            Event::Trailers { stream, fields } => {
                if let Some(exchange) = self.exchanges.get_mut(&stream) {
                    exchange.trailers =
                        fields.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
                }
                self.complete(stream);
            }
            Event::Reset { stream, .. } | Event::StreamError { stream, .. } => {
                self.exchanges.remove(&stream);
            }
            _ => {}
        }
    }

    /// Sends the head.
    fn respond(&mut self, stream: StreamId) {
        let fields = [(&b"Server"[..], &b"http2-example"[..]), (b"Content-Type", b"text/plain")];
        let _ = self.connection.send_response(stream, 200, fields, false, &mut self.out);
    }

    /// The request is complete.
    fn complete(&mut self, stream: StreamId) {
        let Some(exchange) = self.exchanges.get_mut(&stream) else { return };
        exchange.is_complete = true;
        if !exchange.is_echo {
            self.respond(stream);
        }
        self.connection.want_to_send(stream);
    }

    /// Sends content. Returns whether the output is full and there may be more.
    fn send(&mut self) -> bool {
        // A stream whose content is sent may have nothing more and still not be complete.
        while let Some(stream) = self.next() {
            let Some(exchange) = self.exchanges.get_mut(&stream) else { continue };
            let rest = &exchange.content[exchange.sent..];
            let turn = &rest[..rest.len().min(TURN_BYTES)];
            let is_last = exchange.is_complete && turn.len() == rest.len();
            let ends = is_last && exchange.trailers.is_empty();
            let (connection, out) = (&mut self.connection, &mut self.out);
            let sent = connection.send_data(stream, turn, ends, out).unwrap_or(0);
            let all = sent == turn.len();
            exchange.sent += sent;
            if all && is_last && !ends {
                let fields = exchange.trailers.iter().map(|(n, v)| (&n[..], &v[..]));
                let _ = connection.send_trailers(stream, fields, out);
            }
            if all && is_last {
                self.exchanges.remove(&stream);
            } else if all && exchange.sent < exchange.content.len() {
                connection.want_to_send(stream);
            }
            if self.out.len() >= OUT_BYTES {
                return true;
            }
        }
        false
    }

    /// The next stream that can send, or one that only has to end.
    fn next(&mut self) -> Option<StreamId> {
        let ended = |(id, exchange): (&StreamId, &Exchange)| {
            (exchange.is_complete && exchange.sent == exchange.content.len()).then_some(*id)
        };
        self.connection.next_to_send().or_else(|| self.exchanges.iter().find_map(ended))
    }
}

//! Clients of the smuggling tests: one sends arbitrary bytes, and one reads strictly.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{SOON, read_some};

/// The pause between two parts: long enough that the other side has read the first.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Sends the parts on a new connection and returns everything that comes back.
pub(crate) fn exchange(to: SocketAddr, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            std::thread::sleep(PAUSE);
        }
        // The proxy may have refused the request and closed the connection already.
        if stream.write_all(part).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Sends one request of an innocent client and returns the status and body.
pub(crate) fn ask(to: SocketAddr, host: &str, target: &str) -> Result<(u16, String), String> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut reading = Reading::send(to, request.as_bytes())?;
    let got = reading.response("GET")?;
    let got = got.ok_or_else(|| format!("no answer, but {:?}", reading.end))?;
    reading.nothing_more()?;
    Ok((got.status, String::from_utf8_lossy(&got.body).into_owned()))
}

/// The status of the first final response.
pub(crate) fn status(answers: &[u8]) -> Option<u16> {
    let mut rest = String::from_utf8_lossy(answers).into_owned();
    loop {
        let status: u16 = rest.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        if status >= 200 {
            return Some(status);
        }
        rest = rest.split_once("\r\n\r\n")?.1.to_owned();
    }
}

/// A response, read strictly.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// It has Connection: close.
    pub(crate) closes: bool,
    /// It is truncated.
    pub(crate) cut: bool,
}

impl Response {
    pub(crate) fn is(&self, status: u16, body: &str) -> Result<(), String> {
        if self.status == status && self.body == body.as_bytes() && !self.cut {
            Ok(())
        } else {
            Err(format!(
                "expected {status} {body:?}, got {} {}{}",
                self.status,
                self.body.escape_ascii(),
                if self.cut { " and a cut" } else { "" }
            ))
        }
    }
}

/// Reads responses and accepts nothing that the RFC does not allow.
pub(crate) struct Reading {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// How the connection has ended.
    end: Option<String>,
}

impl Reading {
    pub(crate) fn send(to: SocketAddr, bytes: &[u8]) -> Result<Reading, String> {
        let mut stream = TcpStream::connect(to).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(bytes).map_err(|error| error.to_string())?;
        Ok(Reading { stream, bytes: Vec::new(), end: None })
    }

    /// Ignores write errors: a closed connection is noticed when reading.
    pub(crate) fn send_on(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next final response; `None` if the connection has ended.
    pub(crate) fn response(&mut self, method: &str) -> Result<Option<Response>, String> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            if head.status >= 200 {
                return self.body(head, method).map(Some);
            }
            if head.length.is_some() || head.chunked {
                return Err(format!("an interim response that frames a body: {head:?}"));
            }
        }
    }

    /// Checks that the connection ends without another byte.
    pub(crate) fn nothing_more(&mut self) -> Result<(), String> {
        let _ = self.stream.shutdown(Shutdown::Write);
        while self.more()? {}
        match self.bytes.is_empty() {
            true => Ok(()),
            false => Err(format!("more than was asked for: {}", self.bytes.escape_ascii())),
        }
    }

    fn head(&mut self) -> Result<Option<Head>, String> {
        let end = loop {
            if let Some(end) = self.bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            if !self.more()? {
                return match self.bytes.is_empty() {
                    true => Ok(None),
                    false => Err(format!("a cut head: {}", self.bytes.escape_ascii())),
                };
            }
        };
        let head: Vec<u8> = self.bytes.drain(..end).collect();
        Head::read(&head).map(Some)
    }

    fn body(&mut self, head: Head, method: &str) -> Result<Response, String> {
        let mut body = Vec::new();
        let whole = if method == "HEAD" || matches!(head.status, 204 | 304) {
            if head.status == 204 && (head.length.is_some() || head.chunked) {
                return Err(format!("a 204 that frames a body: {head:?}"));
            }
            true
        } else if head.chunked {
            self.chunks(&mut body)?
        } else if let Some(length) = head.length {
            self.take(length, &mut body)?
        } else {
            while self.more()? {}
            body.append(&mut self.bytes);
            true
        };
        Ok(Response { status: head.status, body, closes: head.closes, cut: !whole })
    }

    /// Returns whether all chunks arrived.
    fn chunks(&mut self, body: &mut Vec<u8>) -> Result<bool, String> {
        loop {
            let Some(line) = self.line()? else { return Ok(false) };
            let size = usize::from_str_radix(&line, 16)
                .map_err(|_| format!("no size of a chunk: {line:?}"))?;
            if size > 0 && !self.take(size, body)? {
                return Ok(false);
            }
            match self.line()? {
                Some(end) if end.is_empty() => {}
                Some(other) => return Err(format!("no end of a chunk: {other:?}")),
                None => return Ok(false),
            }
            if size == 0 {
                return Ok(true);
            }
        }
    }

    fn line(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|bytes| bytes == b"\r\n") {
                let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, count: usize, body: &mut Vec<u8>) -> Result<bool, String> {
        while self.bytes.len() < count {
            if !self.more()? {
                body.append(&mut self.bytes);
                return Ok(false);
            }
        }
        body.extend(self.bytes.drain(..count));
        Ok(true)
    }

    /// Reads more; false at the end or after a reset.
    fn more(&mut self) -> Result<bool, String> {
        let mut part = [0; 4096];
        while self.end.is_none() {
            match read_some(&mut self.stream, &mut part) {
                Ok(0) => self.end = Some("a close".to_owned()),
                Ok(read) => {
                    self.bytes.extend_from_slice(&part[..read]);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(format!("nothing came; so far {}", self.bytes.escape_ascii()));
                }
                Err(error) => self.end = Some(error.to_string()),
            }
        }
        Ok(false)
    }
}

#[derive(Debug)]
struct Head {
    status: u16,
    length: Option<usize>,
    chunked: bool,
    closes: bool,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Head, String> {
        let fault = |what: &str| format!("{what}: {}", bytes.escape_ascii());
        let stray = bytes.iter().enumerate().any(|(at, &byte)| match byte {
            b'\n' => at == 0 || bytes[at - 1] != b'\r',
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            // Other control characters end neither lines nor texts.
            _ => byte == 0,
        });
        if stray {
            return Err(fault("a line end or a NUL within a line of a head"));
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len() - 4]).into_owned();
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 "))
            .and_then(|rest| rest.split(' ').next())
            .filter(|digits| digits.len() == 3)
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| fault("no status line"))?;
        let mut head = Head { status, length: None, chunked: false, closes: false };
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| fault("no field"))?;
            let value = value.trim_matches([' ', '\t']);
            match name.to_ascii_lowercase().as_str() {
                "content-length" if head.length.is_none() => {
                    head.length = Some(value.parse().map_err(|_| fault("no length"))?);
                }
                "content-length" => return Err(fault("two lengths")),
                "transfer-encoding" if value == "chunked" && !head.chunked => head.chunked = true,
                "transfer-encoding" => return Err(fault("an encoding")),
                "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
                _ if name.is_empty() || name.contains([' ', '\t']) => return Err(fault("a name")),
                _ => {}
            }
        }
        if head.chunked && head.length.is_some() {
            return Err(fault("two framings"));
        }
        Ok(head)
    }
}

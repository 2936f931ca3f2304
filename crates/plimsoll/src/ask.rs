//! `plimsoll reload` and `plimsoll restart`: one request to the admin address of a running server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::{Failure, misuse};
use crate::output;

/// Longer than a new process may take until it serves.
const PATIENCE: Duration = Duration::from_secs(90);
/// What is believed of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Posts to a path, and prints the answer. One that says no is a failure.
pub(crate) fn ask(admin: SocketAddr, path: &str) -> Result<(), Failure> {
    let answer = exchange(admin, path)
        .map_err(|error| misuse(format!("the admin address {admin} does not answer: {error}")))?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => output::print(text),
        Some("409") => Err(Failure::Found(text.trim_end().to_owned())),
        _ => {
            let line = head.lines().next().unwrap_or_default();
            Err(misuse(format!("{admin} is no admin address of ours: it says {line:?}")))
        }
    }
}

fn exchange(admin: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("POST {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

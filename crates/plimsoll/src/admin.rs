//! Calls to the admin address of a running server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use command::failure::{Failure, misuse};
use command::output;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For an answer. A restart answers only when the new process serves, which may take a minute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Answers of the admin address are far shorter than this.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Calls the admin address and returns the JSON of the answer.
pub(crate) fn call(
    admin: SocketAddr,
    method: &str,
    path: &str,
    query: &[(&str, &str)],
) -> Result<serde_json::Value, Failure> {
    let query: Vec<String> =
        query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let target =
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
    let answer = exchange(admin, method, &target).map_err(|error| no_answer(admin, &error))?;
    let text = String::from_utf8_lossy(&answer);
    let unexpected = || misuse(format!("{admin} is not a plimsoll admin address"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(unexpected)?;
    let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(unexpected)?;
    let value: serde_json::Value = serde_json::from_str(body).map_err(|_| unexpected())?;
    match (status, value.get("error").and_then(|error| error.as_str())) {
        (200 | 202, _) => Ok(value),
        (_, Some(error)) => Err(misuse(error)),
        (_, None) => Err(unexpected()),
    }
}

/// Posts to a path and prints the answer. A refusal by the server is a failed check.
pub(crate) fn post(admin: SocketAddr, path: &str) -> Result<(), Failure> {
    let answer = exchange(admin, "POST", path).map_err(|error| no_answer(admin, &error))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => output::print(text),
        Some("409") => Err(Failure::CheckFailed(text.trim_end().to_owned())),
        _ => {
            let line = head.lines().next().unwrap_or_default();
            Err(misuse(format!("{admin} is not a plimsoll admin address: it answered {line:?}")))
        }
    }
}

fn no_answer(admin: SocketAddr, error: &std::io::Error) -> Failure {
    misuse(format!(
        "no answer from the admin address {admin}: {error}; is a server running with --admin \
         {admin}, or with it in its file?"
    ))
}

/// Reads the events of the page that lives, for as long as `more` says after each, and not for
/// longer than `patience`. A server that sends none, or refuses, is no error.
pub(crate) fn events(
    admin: SocketAddr,
    patience: Duration,
    mut more: impl FnMut(serde_json::Value) -> bool,
) {
    let until = Instant::now() + patience;
    let Ok(mut stream) = TcpStream::connect_timeout(&admin, CONNECT_TIMEOUT) else { return };
    let request = format!("GET /events HTTP/1.1\r\nHost: {admin}\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return;
    }
    let (mut got, mut buffer) = (Vec::new(), [0; 64 * 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match stream.read(&mut buffer) {
            Ok(n @ 1..) if got.len() as u64 + n as u64 <= ANSWER_BYTES_MAX => {
                got.extend_from_slice(&buffer[..n]);
            }
            _ => return,
        }
        while let Some(end) = got.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = got.drain(..=end).collect();
            let data = line.strip_prefix(b"data: ");
            let event = data.and_then(|data| serde_json::from_slice(data).ok());
            if event.is_some_and(|event| !more(event)) {
                return;
            }
        }
    }
}

/// Sends one request without a body and returns everything that comes back.
pub(crate) fn exchange(admin: SocketAddr, method: &str, target: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&admin, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Percent-encodes a query value.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte);
    text.bytes().fold(String::new(), |mut out, byte| {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn query_values_are_percent_encoded() {
        assert_eq!(super::encoded("http://h/a?b=c&d e%é"), "http://h/a%3Fb%3Dc%26d%20e%25%C3%A9");
    }
}

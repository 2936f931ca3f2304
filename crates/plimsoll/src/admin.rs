//! Calls to the admin address of a running server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use command::failure::{Failure, misuse};

/// To connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For an answer: longer than a new process may take until it serves.
const PATIENCE: Duration = Duration::from_secs(90);
/// No answer of the admin address is longer than this, by far.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Calls, and gives the JSON of the answer.
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
    let answer = exchange(admin, method, &target).map_err(|error| {
        misuse(format!(
            "no answer from the admin address {admin}: {error}; is a server with --admin {admin} \
             running?"
        ))
    })?;
    let text = String::from_utf8_lossy(&answer);
    let strange = || misuse(format!("{admin} does not answer as an admin address does"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(strange)?;
    let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(strange)?;
    let value: serde_json::Value = serde_json::from_str(body).map_err(|_| strange())?;
    match (status, value.get("error").and_then(|error| error.as_str())) {
        (200, _) => Ok(value),
        (_, Some(error)) => Err(misuse(error)),
        (_, None) => Err(strange()),
    }
}

/// One request without a body, and all that comes back.
pub(crate) fn exchange(admin: SocketAddr, method: &str, target: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&admin, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// A value for a query.
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
    fn values_are_encoded() {
        assert_eq!(super::encoded("http://h/a?b=c&d e%é"), "http://h/a%3Fb%3Dc%26d%20e%25%C3%A9");
    }
}

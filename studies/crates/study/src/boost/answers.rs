//! Whether a boosted server sends the same responses as the plain one.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::servers::Started;
use crate::servers::send;
use harness::Error;

/// How often each request is sent.
const TIMES: usize = 20;
/// The longest and the largest response.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Sends the same requests to each boosted server and to its plain twin. Gives the number of
/// responses compared, and the ones that differ.
pub(super) fn compare(running: &[Started]) -> Result<(u64, Vec<Value>), Error> {
    let (mut compared, mut differences) = (0, Vec::new());
    for boosted in running.iter().filter(|running| running.variant.boosted) {
        let plain = running.iter().find(|other| other.variant == boosted.variant.plain());
        let Some(plain) = plain else { continue };
        for request in requests(boosted.variant.path()) {
            for _ in 0..TIMES {
                let ask = |of: &Started| {
                    let failed =
                        |error: io::Error| Error::Start(of.variant.name(), error.to_string());
                    answer(of.server.address, &request).map_err(failed)
                };
                let answers = [ask(plain)?, ask(boosted)?];
                compared += 1;
                if answers[0] != answers[1] {
                    let asked = request.lines().next().unwrap_or_default().to_owned();
                    let of = boosted.variant.name();
                    differences.push(json!({"of": of, "asked": asked, "answers": answers}));
                }
            }
        }
    }
    Ok((compared, differences))
}

/// A GET, a HEAD, a missing resource, two pipelined requests, and text that is no request.
fn requests(path: &str) -> [String; 5] {
    let head = "host: localhost\r\n";
    let close = "host: localhost\r\nconnection: close\r\n\r\n";
    [
        format!("GET {path} HTTP/1.1\r\n{close}"),
        format!("HEAD {path} HTTP/1.1\r\n{close}"),
        format!("GET /none HTTP/1.1\r\n{close}"),
        format!("GET {path} HTTP/1.1\r\n{head}\r\nGET {path} HTTP/1.1\r\n{close}"),
        "no request\r\n\r\n".to_owned(),
    ]
}

/// The whole response without the lines that depend on the time.
fn answer(address: SocketAddr, request: &str) -> io::Result<String> {
    let stream = send(address, request, ANSWER_MAX)?;
    let mut bytes = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes) {
        // A server may reject a request by a reset.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    let text = String::from_utf8_lossy(&bytes);
    let kept = text.split_inclusive('\n').filter(|line| !depends_on_time(line));
    Ok(kept.collect())
}

fn depends_on_time(line: &str) -> bool {
    let name = line.split_once(':').map_or("", |(name, _)| name);
    ["date", "age", "cache-status"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_response_is_read_whole_without_the_lines_that_depend_on_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let length = stream.read(&mut request).unwrap();
            let response = b"HTTP/1.1 200 OK\r\nDate: now\r\nServer: s\r\nage: 3\r\n\r\nbody";
            stream.write_all(response).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let kept = answer(address, "GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(kept, "HTTP/1.1 200 OK\r\nServer: s\r\n\r\nbody");
        assert_eq!(serving.join().unwrap(), "GET / HTTP/1.1\r\n\r\n");
    }
}

//! Whether a boosted server answers as the same server does plainly.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;

use super::servers::{Running, Server};
use harness::Error;

/// Each is asked so often.
const TIMES: usize = 20;
/// An answer takes no longer, and is no larger.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// An answer that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The server and how it waits.
    pub of: String,
    /// What was asked: its first line.
    pub asked: String,
    /// What the plain one said, and what the boosted one.
    pub answers: [String; 2],
}

/// Asks each boosted server what its plain twin is asked; how many answers, and which differ.
pub(super) fn compare(running: &[Running]) -> Result<(u64, Vec<Difference>), Error> {
    let (mut compared, mut differences) = (0, Vec::new());
    for boosted in running.iter().filter(|running| running.way.boosted) {
        let plain = running.iter().find(|other| {
            let (way, other) = (boosted.way, other.way);
            other.server == way.server && other.wait == way.wait && !other.boosted
        });
        let Some(plain) = plain else { continue };
        for request in requests(boosted.way.server) {
            for _ in 0..TIMES {
                let ask = |of: &Running| {
                    let failed = |error: io::Error| Error::Start(of.way.name(), error.to_string());
                    answer(of.address, &request).map_err(failed)
                };
                let answers = [ask(plain)?, ask(boosted)?];
                compared += 1;
                if answers[0] != answers[1] {
                    let asked = request.lines().next().unwrap_or_default().to_owned();
                    differences.push(Difference { of: boosted.way.name(), asked, answers });
                }
            }
        }
    }
    Ok((compared, differences))
}

/// What is there, its head, what is not there, two at once, and what is no request.
fn requests(server: Server) -> [String; 5] {
    let path = server.path();
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

/// The whole answer, less what tells the time.
fn answer(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes) {
        // A server that does not like what it was sent may say so by a reset.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    let text = String::from_utf8_lossy(&bytes);
    let told = text.split_inclusive('\n').filter(|line| !tells_time(line));
    Ok(told.collect())
}

fn tells_time(line: &str) -> bool {
    let name = line.split_once(':').map_or("", |(name, _)| name);
    ["date", "age", "cache-status"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_is_whole_and_does_not_tell_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 64];
            let length = stream.read(&mut asked).unwrap();
            let said = b"HTTP/1.1 200 OK\r\nDate: now\r\nServer: s\r\nage: 3\r\n\r\nbody";
            stream.write_all(said).unwrap();
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        let said = answer(address, "GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(said, "HTTP/1.1 200 OK\r\nServer: s\r\n\r\nbody");
        assert_eq!(serving.join().unwrap(), "GET / HTTP/1.1\r\n\r\n");
    }
}

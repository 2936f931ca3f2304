//! Our server and its peers as processes, each ended when it is dropped.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::peer::{self, Peer};
use harness::{ANY, Error, Process, address};

/// The process of a server.
pub(crate) enum Guard {
    Ours(Process),
    Peer(Peer),
}

impl Guard {
    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        let pid = match self {
            Guard::Ours(process) => process.pid(),
            Guard::Peer(peer) => peer.pid(),
        };
        pid.cast_signed()
    }
}

/// Starts our server in front of `origin`. `before` comes before its verb, `more` after its flags.
pub(crate) fn start_ours(
    program: &Path,
    before: &[String],
    origin: SocketAddr,
    cpu: Option<usize>,
    more: &[String],
) -> Result<(Guard, SocketAddr), Error> {
    let mut args = before.to_vec();
    args.extend(["serve", "--json", "--listen", ANY, "--origin"].map(String::from));
    args.push(format!("http://{origin}"));
    args.extend_from_slice(more);
    if let Some(cpu) = cpu {
        args.extend(["--cpu".into(), cpu.to_string()]);
    }
    let (process, first_line) = Process::start(program, &args)?;
    Ok((Guard::Ours(process), address(&first_line)?))
}

/// Starts a peer in `home` with the configuration and the command that are made for its address,
/// or says why it cannot be started.
pub(crate) fn start_peer(
    home: &Path,
    cpu: Option<usize>,
    configure: impl FnOnce(SocketAddr) -> String,
    command: impl FnOnce(&Path, SocketAddr) -> Command,
) -> Result<(Guard, SocketAddr), String> {
    let failed = |error: io::Error| format!("{}: {error}", home.display());
    std::fs::create_dir_all(home).map_err(failed)?;
    let address = peer::free_address().map_err(|error| format!("no free port: {error}"))?;
    let config = home.join("config");
    std::fs::write(&config, configure(address)).map_err(failed)?;
    let peer = Peer::start(command(&config, address), home, address, cpu)?;
    Ok((Guard::Peer(peer), address))
}

/// The reason why a program that is not installed is missing.
pub(crate) fn not_installed(package: &str) -> String {
    format!("not installed: apt-get install {package}")
}

/// The version of a program, which it prints with `flag`.
pub(crate) fn version(program: &Path, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    text.lines().find_map(version_in).map(str::to_owned)
}

/// The first number that contains a dot; letters may precede it, as in `go1.19.8`.
fn version_in(line: &str) -> Option<&str> {
    let words = line.split([' ', '/', '-', '(', ')']);
    let mut words = words.map(|word| word.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

/// A template with the place of each `{name}` filled in.
pub(crate) fn filled(template: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

/// Sends a request on a new connection.
pub(crate) fn send(address: SocketAddr, request: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Sends a request on a new connection and reads until its end.
pub(crate) fn response(
    address: SocketAddr,
    request: &str,
    timeout: Duration,
) -> io::Result<Vec<u8>> {
    let mut response = Vec::new();
    send(address, request, timeout)?.read_to_end(&mut response)?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_the_output_of_a_peer() {
        for (output, version) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("HAProxy version 2.6.12-1+deb12u4 2026/10/17", "2.6.12"),
            ("varnishd (varnish-7.1.1 revision 7cee1c58)", "7.1.1"),
            ("gunicorn (version 20.1.0)", "20.1.0"),
            ("go version go1.19.8 linux/amd64", "1.19.8"),
        ] {
            assert_eq!(version_in(output), Some(version));
        }
        assert_eq!(version_in("no number"), None);
    }
}

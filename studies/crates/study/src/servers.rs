//! Our server and its peers as processes, each ended when it is dropped.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use harness::peer::Peer;
use harness::recipe::{Place, Recipe, Values};
use harness::{ANY, Error, Process, address};
use load::{Schedule, Target, family};

enum Guard {
    Ours(Process),
    Peer(Peer),
}

/// The process of a server.
pub(crate) struct Running {
    guard: Guard,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        let pid = match &self.guard {
            Guard::Ours(process) => process.pid(),
            Guard::Peer(peer) => peer.pid(),
        };
        pid.cast_signed()
    }

    /// All of its processes.
    pub(crate) fn family(&self) -> Vec<i32> {
        family::of(self.pid())
    }

    /// A load on it that requests `path`.
    pub(crate) fn load(&self, path: &str, schedule: Schedule, time: Duration) -> load::Plan {
        load_on(self.address, path, schedule, time)
    }
}

/// A load on a server that requests `path`.
pub(crate) fn load_on(
    addr: SocketAddr,
    path: &str,
    schedule: Schedule,
    time: Duration,
) -> load::Plan {
    let (authority, path) = (addr.to_string(), path.to_owned());
    let target = Target { addr, authority, path, absolute: false, tls: false, tunnel: false };
    load::Plan::new(target, schedule, time)
}

/// Starts a peer, or says why it cannot be started. The words `before` come before its command.
pub(crate) fn start_peer(
    recipe: &Recipe,
    place: Place<'_>,
    before: &[String],
    values: Values<'_>,
) -> Result<Running, String> {
    let (peer, address) = recipe.start(place, before, values)?;
    Ok(Running { guard: Guard::Peer(peer), address })
}

/// Starts our server. `before` comes before its verb, `more` after its flags.
pub(crate) fn start_ours(
    program: &Path,
    place: Place<'_>,
    before: &[String],
    more: &[String],
) -> Result<Running, Error> {
    let mut args = before.to_vec();
    args.extend(["serve", "--json", "--listen", ANY, "--origin"].map(String::from));
    args.push(format!("http://{}", place.origin));
    args.extend_from_slice(more);
    args.extend(place.cpu.iter().flat_map(|cpu| ["--cpu".to_owned(), cpu.to_string()]));
    let (process, first_line) = Process::start(program, &args)?;
    Ok(Running { guard: Guard::Ours(process), address: address(&first_line)? })
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

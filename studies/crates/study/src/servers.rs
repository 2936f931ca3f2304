//! Our server and its peers as processes, each ended when it is dropped.
//!
//! A peer is a row of a table: its program, its configuration and its command, with places to fill
//! in ([`Kind`]). What never happens: a server that is not installed, or does not start, is left
//! out silently.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::peer::{self, Peer};
use harness::{ANY, Error, Process, address};
use load::{Schedule, Target, family};

/// A peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    /// The flag that prints its version.
    pub(crate) version: &'static str,
    /// Its configuration, or the program that it runs.
    pub(crate) config: &'static str,
    /// What builds it, word by word, if it has to be built from its configuration.
    pub(crate) build: Option<&'static str>,
    /// What starts it, word by word. A word that is empty when it is filled in is left out.
    pub(crate) command: &'static str,
    /// Its access log, in its directory.
    pub(crate) log: &'static str,
    /// The lines about its user, if it is started by root.
    pub(crate) user: &'static str,
    /// Worker processes, where they can be configured.
    pub(crate) workers: &'static str,
    /// What a variant's configuration has in addition.
    pub(crate) more: &'static str,
    /// The server of which it is a variant: what it costs must be found by `compare`.
    pub(crate) variant_of: Option<&'static str>,
}

/// The values of places: in a configuration, `{name}`.
pub(crate) type Values<'v> = &'v [(&'static str, String)];

/// Where a server is started.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    /// Its own directory.
    pub(crate) home: &'p Path,
    pub(crate) cpu: Option<usize>,
    pub(crate) origin: SocketAddr,
}

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

impl Kind {
    /// A peer whose program and package have its name. Its configuration and its command are
    /// empty.
    pub(crate) const fn named(name: &'static str) -> Kind {
        Kind {
            name,
            program: name,
            package: name,
            version: "-v",
            config: "",
            build: None,
            command: "",
            log: "access.log",
            user: "",
            workers: "1",
            more: "",
            variant_of: None,
        }
    }

    /// Starts it, or says why it cannot be started. The words `before` come before its command.
    pub(crate) fn start(
        &self,
        place: Place<'_>,
        before: &[String],
        values: Values<'_>,
    ) -> Result<Running, String> {
        let program = peer::find(self.program).ok_or_else(|| not_installed(self.package))?;
        let home = place.home;
        let failed = |error: io::Error| format!("{}: {error}", home.display());
        fs::create_dir_all(home).map_err(failed)?;
        let command = |line: &str, config: &Path, address: SocketAddr| {
            let mut values = self.values(place, address, values);
            values.push(("config", config.display().to_string()));
            values.push(("program", program.display().to_string()));
            let words = line.split(' ').map(|word| filled(word, &values));
            let mut words = before.iter().cloned().chain(words).filter(|word| !word.is_empty());
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words);
            command
        };
        if let Some(line) = self.build {
            let source = home.join("main.go");
            fs::write(&source, self.config).map_err(failed)?;
            // It does not know its address before it is started.
            let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
            build(command(line, &source, anywhere).current_dir(home))?;
        }
        let address = peer::free_address().map_err(|error| format!("no free port: {error}"))?;
        let config = home.join("config");
        fs::write(&config, self.configuration(place, address, values)).map_err(failed)?;
        let started =
            Peer::start(command(self.command, &config, address), home, address, place.cpu)?;
        Ok(Running { guard: Guard::Peer(started), address })
    }

    /// Its configuration for this address.
    pub(crate) fn configuration(
        &self,
        place: Place<'_>,
        address: SocketAddr,
        values: Values<'_>,
    ) -> String {
        filled(self.config, &self.values(place, address, values))
    }

    /// The given values, which come first, and those of every peer.
    fn values(
        &self,
        place: Place<'_>,
        address: SocketAddr,
        given: Values<'_>,
    ) -> Vec<(&'static str, String)> {
        let user = if rustix::process::geteuid().is_root() { self.user } else { "" };
        let every = [
            ("workers", self.workers.to_owned()),
            ("more", self.more.to_owned()),
            ("user", user.to_owned()),
            ("home", place.home.display().to_string()),
            ("service", peer::squid_service(place.home)),
            ("listen", address.to_string()),
            ("host", address.ip().to_string()),
            ("port", address.port().to_string()),
            ("origin", place.origin.to_string()),
            ("origin_host", place.origin.ip().to_string()),
            ("origin_port", place.origin.port().to_string()),
        ];
        given.iter().cloned().chain(every).collect()
    }

    /// Its version, if it is installed.
    pub(crate) fn version(&self) -> Option<String> {
        version(&peer::find(self.program)?, self.version)
    }
}

/// Builds a program, however long that takes.
fn build(command: &mut Command) -> Result<(), String> {
    let built = command.output().map_err(|error| format!("it cannot be built: {error}"))?;
    if built.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&built.stderr).into_owned();
    Err(format!("it cannot be built: {}", errors.lines().last().unwrap_or_default()))
}

/// The reason why a program that is not installed is missing.
pub(crate) fn not_installed(package: &str) -> String {
    format!("not installed: apt-get install {package}")
}

/// The version of a program, which it prints with `flag`.
fn version(program: &Path, flag: &str) -> Option<String> {
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
fn filled(template: &str, values: &[(&str, String)]) -> String {
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
    fn a_missing_peer_is_reported_with_the_command_that_installs_it() {
        let home = tempfile::tempdir().unwrap();
        let origin = "127.0.0.1:1".parse().unwrap();
        let place = Place { home: home.path(), cpu: None, origin };
        let none = Kind { program: "no-such-peer", ..Kind::named("none") };
        let Err(why) = none.start(place, &[], &[]) else { panic!("it started") };
        assert_eq!(why, "not installed: apt-get install none");
    }

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

//! How other programs are configured and started: a table of servers with places to fill in.
//!
//! What: a [`Recipe`] is a row of such a table: a program, its configuration and its command, with
//! `{name}` in place of an address, a directory or a setting. The studies and the benchmark have
//! such tables. What never happens: a server that is not installed, or does not start, is left out
//! silently.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::peer::{self, Peer};

/// A server: its program, and how it is configured and started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub name: &'static str,
    /// Its program.
    pub program: &'static str,
    /// The Debian package of the program.
    pub package: &'static str,
    /// The flag that prints its version.
    pub version: &'static str,
    /// Its configuration, or the program that it runs.
    pub config: &'static str,
    /// What builds it, word by word, if it has to be built from its configuration.
    pub build: Option<&'static str>,
    /// What starts it, word by word. A word that is empty when it is filled in is left out.
    pub command: &'static str,
    /// Its access log, in its directory.
    pub log: &'static str,
    /// The lines about its user, if it is started by root.
    pub user: &'static str,
    /// Worker processes, where they can be configured.
    pub workers: &'static str,
    /// What a variant's configuration has in addition.
    pub more: &'static str,
    /// The server of which it is a variant: what it costs must be found by `compare`.
    pub variant_of: Option<&'static str>,
}

/// The values of places: in a configuration, `{name}`.
pub type Values<'v> = &'v [(&'static str, String)];

/// Where a server is started.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// Its own directory.
    pub home: &'p Path,
    /// Its CPU, if it is pinned to one.
    pub cpu: Option<usize>,
    /// The origin behind it.
    pub origin: SocketAddr,
}

impl Recipe {
    /// A server whose program and package have its name. Its configuration and its command are
    /// empty.
    #[must_use]
    pub const fn named(name: &'static str) -> Recipe {
        Recipe {
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
    pub fn start(
        &self,
        place: Place<'_>,
        before: &[String],
        values: Values<'_>,
    ) -> Result<(Peer, SocketAddr), String> {
        let address = peer::free_address().map_err(|error| format!("no free port: {error}"))?;
        let command = self.command(place, address, before, values)?;
        Ok((Peer::start(command, place.home, address, place.cpu)?, address))
    }

    /// Writes its configuration, builds it if it has to be built, and gives the command that starts
    /// it.
    pub fn command(
        &self,
        place: Place<'_>,
        address: SocketAddr,
        before: &[String],
        values: Values<'_>,
    ) -> Result<Command, String> {
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
        let config = home.join("config");
        fs::write(&config, self.configuration(place, address, values)).map_err(failed)?;
        Ok(command(self.command, &config, address))
    }

    /// Its configuration for this address.
    #[must_use]
    pub fn configuration(
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
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let user = if is_root { self.user } else { "" };
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
    #[must_use]
    pub fn version(&self) -> Option<String> {
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
#[must_use]
pub fn not_installed(package: &str) -> String {
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

/// A template with the place of each `{name}` filled in, in the order of the values.
#[must_use]
pub fn filled(template: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_is_reported_with_the_command_that_installs_it() {
        let home = tempfile::tempdir().unwrap();
        let origin = "127.0.0.1:1".parse().unwrap();
        let place = Place { home: home.path(), cpu: None, origin };
        let none = Recipe { program: "no-such-peer", ..Recipe::named("none") };
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

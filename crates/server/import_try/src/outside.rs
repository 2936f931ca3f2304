//! The outer process: prepares a sandbox for each server, runs both at the same time, and has their
//! answers compared.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::thread;

use import::{Imported, Options, Source};

use crate::compare::{self, Report};
use crate::inputs::{Original, Paths, Upstreams};
use crate::job::{self, Job, Outcome};
use crate::limits::{FILE_BYTES_MAX, FILES_BYTES_MAX, PORTS_MAX};
use crate::plan::{self, Plan};
use crate::{Failed, caddy, endpoints, haproxy, nginx, root, sandbox, texts};

/// Runs both servers and compares their answers to at most `most` requests.
///
/// # Errors
/// The server is absent, there is no sandbox, or a server does not start.
pub fn run(
    original: &Original,
    imported: &Imported,
    options: Options,
    most: usize,
) -> Result<Report, Failed> {
    let name = match imported.source {
        Source::Nginx => "nginx",
        Source::Vcl => "varnishd",
        Source::Squid => "squid",
        Source::Haproxy => "haproxy",
        Source::Caddy => "caddy",
    };
    let plain = match imported.source {
        Source::Caddy => Some(caddy::plain(original, options)?),
        Source::Nginx | Source::Vcl | Source::Squid | Source::Haproxy => None,
    };
    let (original, imported) = plain.as_ref().map_or((original, imported), |(one, two)| (one, two));
    let program = found(name).ok_or_else(|| {
        let text = format!("there is no {name} on the PATH: install it, or add its directory");
        Failed::Absent(text)
    })?;
    if imported.source == Source::Vcl && found("gcc").or_else(|| found("cc")).is_none() {
        let why = "varnishd compiles VCL with a C compiler, and there is no gcc on the PATH";
        return Err(Failed::Absent(format!("{why}: install it")));
    }
    let toml: toml::Table = imported.configuration.parse().unwrap_or_default();
    let (mut plan, upstreams, paths) = match imported.source {
        Source::Nginx => nginx::plan(original, &program),
        Source::Vcl => texts::vcl(original, &toml, &program),
        Source::Squid => texts::squid(original, &toml, &program),
        Source::Haproxy => haproxy::plan(original, &toml, &program),
        Source::Caddy => caddy::plan(original, &toml, &program),
    };
    let requests = plan::requests(&plan, most);
    plan.unasked.extend(plan::beyond(&plan.bases, most));
    if requests.is_empty() {
        let why = "the file has no listener that a request can be sent to";
        return Err(Failed::Server(why.to_owned()));
    }
    prepare(original, &mut plan, upstreams, paths)?;
    plan.job.requests = requests;
    let theirs = Job { shown: with(&plan.job.shown, &program), ..plan.job.clone() };
    let configuration = match (imported.source, plan.job.listens.first()) {
        // The address that an imported program has.
        (Source::Vcl, Some(to)) => {
            imported.configuration.replace("127.0.0.1:6081", &to.to_string())
        }
        _ => imported.configuration.clone(),
    };
    let ours = our_job(&plan.job, &configuration, &toml);
    let copy = sandbox::copied();
    let copy = copy.map_err(|error| Failed::Sandbox(format!("no copy of plimsoll: {error}")))?;
    let (theirs, ours) = thread::scope(|scope| {
        let other = scope.spawn(|| sandbox::run(&theirs, &copy));
        let ours = sandbox::run(&ours, &copy);
        (other.join().unwrap_or_else(|_| Err(Failed::Sandbox("a panic".to_owned()))), ours)
    });
    let answers = |outcome, who: &str| match outcome {
        Outcome::Answers(answers) => Ok(answers),
        Outcome::NotStarted(why) | Outcome::NoSandbox(why) | Outcome::NotPermitted(why) => {
            Err(Failed::Server(format!("{who} does not start on this file: {why}")))
        }
    };
    let theirs = answers(theirs?, name)?;
    let ours = answers(ours?, "our server")?;
    let members = compare::members(&toml);
    let report = compare::compare(&plan.job.requests, &theirs, &ours, &members, imported);
    Ok(Report { unasked: plan.unasked, ..report })
}

fn with(paths: &[PathBuf], more: &Path) -> Vec<PathBuf> {
    paths.iter().cloned().chain([more.to_owned()]).collect()
}

/// The program of this name.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are often not on the path of users.
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual).map(|place| place.join(name));
    places.find(|path| path.is_file()).and_then(|path| path.canonicalize().ok())
}

/// Our server, with the imported file. A sandbox has one user, and little memory for the disk.
fn our_job(job: &Job, configuration: &str, toml: &toml::Table) -> Job {
    let (mut section, mut text) = ("", String::new());
    for line in configuration.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let is_dropped =
            ["user = ", "group = ", "workers = "].iter().any(|one| line.starts_with(one));
        let is_size = section == "[store]" && line.starts_with("bytes = ");
        match (section == "[server]" && is_dropped, is_size) {
            (true, _) => {}
            (_, true) => text.push_str("bytes = \"64MiB\"\n"),
            _ => text.extend([line, "\n"]),
        }
    }
    let file = "/try/plimsoll.toml";
    let mut job = job.clone();
    for path in paths_in(toml) {
        job.writable.extend(path.parent().map(Path::to_owned));
    }
    job.files.push((PathBuf::from(file), text.into_bytes()));
    job.program = None;
    job.arguments = ["serve", "-c", file].map(str::to_owned).to_vec();
    job
}

/// The paths that our server writes to.
fn paths_in(toml: &toml::Table) -> Vec<PathBuf> {
    let of = |section: &str| toml.get(section)?.get("path")?.as_str().map(PathBuf::from);
    ["store", "log"].iter().filter_map(|section| of(section)).collect()
}

/// Paths that are never shown whole: they have the sockets and the homes of others.
const NEVER_SHOWN: &[&str] = &["/", "/home", "/root", "/var", "/var/lib", "/tmp", "/var/tmp"];
/// What the sandbox has itself.
const OWN: &[&str] = &["/dev", "/proc", "/run", "/sys", "/var/run", "/try"];

/// Fills in the files and directories of both sandboxes, and the origin.
fn prepare(
    original: &Original,
    plan: &mut Plan,
    upstreams: Upstreams,
    paths: Paths,
) -> Result<(), Failed> {
    let made = rcgen::generate_simple_self_signed(["try.example".to_owned()]);
    let made = made.map_err(|error| Failed::Sandbox(format!("a certificate: {error}")))?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let job = &mut plan.job;
    let mut budget = FILES_BYTES_MAX;
    for file in original.files.values().flatten() {
        let path =
            original.path.parent().unwrap_or(Path::new("/")).join(absolute(Path::new(&file.name)));
        job.files.push((path, file.text.clone().into_bytes()));
    }
    let is_there = |path: &PathBuf| job.files.iter().any(|(there, _)| there == path);
    let missing: Vec<PathBuf> = paths.included.into_iter().filter(|path| !is_there(path)).collect();
    job.files.extend(missing.into_iter().map(|path| (path, Vec::new())));
    let mut copies = Vec::new();
    for (path, _) in &paths.certificates {
        copies.push(content(path, &mut budget));
    }
    // Our certificate would not fit to a key of the machine.
    let are_all_there = copies.iter().all(Option::is_some);
    for ((path, is_chain), copy) in paths.certificates.into_iter().zip(copies) {
        let own = if is_chain { &chain } else { &key };
        let copy = copy.filter(|_| are_all_there);
        job.files.push((path, copy.unwrap_or_else(|| own.clone().into_bytes())));
    }
    for path in paths.bundles {
        let bytes = content(&path, &mut budget);
        let own = || format!("{chain}{key}").into_bytes();
        job.files.push((path, bytes.unwrap_or_else(own)));
    }
    for path in paths.parameters {
        let bytes = content(&path, &mut budget).unwrap_or_else(|| PARAMETERS.as_bytes().to_vec());
        job.files.push((path, bytes));
    }
    for path in paths.read {
        let is_own = OWN.iter().any(|own| path.starts_with(own));
        if is_own || NEVER_SHOWN.iter().any(|never| Path::new(never) == path) {
            continue;
        }
        // A file may be readable for the caller's groups alone.
        match content(&path, &mut budget) {
            Some(bytes) => job.files.push((path, bytes)),
            None if path.is_file() && !is_readable_inside(&path) => {
                job.files.push((path, Vec::new()));
            }
            None if path.exists() => job.shown.push(path),
            // A directory of another machine has a page.
            None => job.files.push((path.join("index.html"), b"index.html\n".to_vec())),
        }
    }
    let written = paths.written.iter().filter(|path| path.is_absolute());
    let sockets = upstreams.sockets.iter();
    let parents = written.chain(sockets).filter_map(|path| path.parent());
    job.writable.extend(parents.map(Path::to_owned));
    job.writable.extend(["/try", "/run/lock", "/var/log"].map(PathBuf::from));
    system_files(job);
    without_dots(job);
    addresses(plan);
    let mut resolvers = upstreams.resolvers;
    resolvers.insert(endpoints::RESOLVER);
    let mut ports = upstreams.ports;
    ports.extend([80, 443, 8080]);
    plan.job.origin = job::Origin {
        ports: ports.into_iter().take(PORTS_MAX).collect(),
        loopback: upstreams.loopback.into_iter().take(PORTS_MAX).collect(),
        sockets: upstreams.sockets.into_iter().take(PORTS_MAX).collect(),
        resolvers: resolvers.into_iter().take(PORTS_MAX).collect(),
        chain,
        key,
    };
    Ok(())
}

/// The absolute path. What `..` leads to is looked up on the machine.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match has_dots(&path) {
        true => path.canonicalize().unwrap_or_else(|_| root::normal(&path)),
        false => path,
    }
}

fn has_dots(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// Puts every file where `..` leads to. The directories before each `..` exist, too, because the
/// server walks through them.
fn without_dots(job: &mut Job) {
    let mut passed = Vec::new();
    let files = job.files.iter_mut().map(|(path, _)| path);
    let paths = job.shown.iter_mut().chain(&mut job.writable).chain(files);
    for path in paths.filter(|path| has_dots(path)) {
        let mut at = PathBuf::new();
        for part in path.components() {
            if part == Component::ParentDir {
                passed.push(root::normal(&at));
            }
            at.push(part);
        }
        *path = absolute(path);
    }
    job.writable.extend(passed);
}

/// Whether the user in the sandbox may read a file. Root reads for a user that owns nothing, so
/// what is for root alone is not copied.
fn is_readable_inside(path: &Path) -> bool {
    if !rustix::process::getuid().is_root() {
        return true;
    }
    let Ok(path) = path.canonicalize() else { return false };
    let has = |path: &Path, right: u32| {
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & right != 0)
    };
    has(&path, 0o004) && path.ancestors().skip(1).all(|directory| has(directory, 0o001))
}

/// The content of a regular file that is not too long.
fn content(path: &Path, budget: &mut u64) -> Option<Vec<u8>> {
    let most = FILE_BYTES_MAX.min(*budget);
    if !path.is_file() || !is_readable_inside(path) {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(most + 1).read_to_end(&mut bytes).ok()?;
    let length = bytes.len() as u64;
    *budget -= length.min(*budget);
    (length <= most).then_some(bytes)
}

/// Names are resolved by the origin.
fn system_files(job: &mut Job) {
    let file = |path: &str, text: String| (PathBuf::from(path), text.into_bytes());
    job.files.extend([
        file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n".to_owned()),
        file("/etc/resolv.conf", format!("nameserver {}\n", endpoints::RESOLVER)),
        file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
    ]);
}

/// Addresses of listeners and of clients.
fn addresses(plan: &mut Plan) {
    let listens = plan.job.listens.iter().map(|listen| listen.ip());
    let clients = plan.named.clients.iter().map(|client| IpAddr::V4(*client));
    let all: BTreeSet<IpAddr> = listens.chain(clients).collect();
    plan.job.addresses =
        all.into_iter().filter(|address| address.is_ipv4() && !address.is_loopback()).collect();
}

/// The group ffdhe2048 of RFC 7919.
const PARAMETERS: &str = "-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Root reads for a user that owns nothing.
    #[test]
    fn a_file_that_only_root_may_read_is_not_copied() {
        let directory = std::env::temp_dir().join(format!("import-try-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("secret");
        fs::write(&path, "of root").unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let is_copied = |of_file, of_directory| {
            mode(&path, of_file);
            mode(&directory, of_directory);
            content(&path, &mut FILES_BYTES_MAX.clone()).is_some()
        };
        let is_root = rustix::process::getuid().is_root();
        let copied = [is_copied(0o644, 0o755), is_copied(0o600, 0o755), is_copied(0o644, 0o700)];
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(copied, [true, !is_root, !is_root]);
    }
}

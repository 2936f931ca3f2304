//! A long run: our server under every kind of load, and one trouble after another.
//!
//! ```text
//!   clients: HTTP/1, /2, /3, TLS, tunnels, a forward proxy's, and some that vanish
//!      | every body is compared with the origin's
//!   our server  <-- purges, reloads, restarts in place, a disk that is full
//!      |
//!   origin      <-- killed, and started again some seconds later
//! ```
//!
//! What is watched: no byte is wrong; no request fails, except while the origin is away and soon
//! after; memory and descriptors have bounds and do not grow; when the clients have left, nothing
//! of theirs is left, and the server's counters add up. A connection that the server closes just
//! when a client sends its next request is counted apart: clients repeat such a request (RFC 9110,
//! 9.2.2). The run goes on after a fault, and names all of them at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use harness::peer::{Peer, find};
use load::{Errors, Plan, Population, Protocol, Schedule, Size, Target};
use serde::Serialize;

use crate::client::Client;
use crate::servers::free_address;

/// How long one visit of the generators lasts. Its requests are judged when it is over.
const VISIT: Duration = Duration::from_secs(20);
/// The pause before each trouble.
const BETWEEN: Duration = Duration::from_secs(7);
/// How long the origin is away, and how long after that requests may still fail.
const AWAY: Duration = Duration::from_secs(4);
const AFTERWARDS: Duration = Duration::from_secs(4);
const FULL: Duration = Duration::from_secs(5);
const OBJECTS: u32 = 20_000;
/// Of the store in memory. The server may need `BESIDE_BYTES` besides.
const STORE_BYTES: u64 = 32 << 20;
const BESIDE_BYTES: u64 = 256 << 20;
/// How much more memory may be in use at most in the second half than in the first, in percent.
const GROWTH_PERCENT: u64 = 15;
/// Descriptors that may be open when the clients have left: listeners, files, and idle connections
/// to the origin.
const IDLE_DESCRIPTORS_MAX: u64 = 400;
const DISK_IMAGE_BYTES: u64 = 256 << 20;
const START_MAX: Duration = Duration::from_secs(20);
const END_MAX: Duration = Duration::from_secs(60);
const COUNTED: u32 = 2000;
/// Seeds of each kind of client, one for each visit.
const SEEDS: u64 = 1_000_000;

/// Run the server for a long time under mixed load and troubles, and watch what must hold.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// How long, in hours.
    #[arg(long, default_value_t = 2.0, value_parser = crate::positive)]
    hours: f64,
    /// Multiplies the rate of all clients.
    #[arg(long, default_value_t = 1.0, value_parser = crate::positive)]
    load: f64,
    /// The path of our program.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// A kind of client: its name, its requests per second, and what it requests.
type Load = (&'static str, f64, fn(&Ground) -> Plan);

/// The clients.
const LOADS: &[Load] = &[
    ("HTTP/1", 300.0, |ground| plan(ground, "http", Protocol::Http1)),
    ("HTTP/1, new connections", 40.0, |ground| Plan {
        keep_alive: false,
        ..plan(ground, "http", Protocol::Http1)
    }),
    ("HTTP/2", 150.0, |ground| plan(ground, "http", Protocol::Http2 { streams: 10 })),
    ("TLS", 80.0, |ground| plan(ground, "https", Protocol::Http1)),
    ("HTTP/2 over TLS", 80.0, |ground| plan(ground, "https", Protocol::Http2 { streams: 10 })),
    ("HTTP/3", 60.0, |ground| plan(ground, "https", Protocol::Http3 { streams: 10 })),
    ("forward proxy", 80.0, |ground| through(ground, false)),
    ("tunnels", 60.0, |ground| through(ground, true)),
    ("POST", 30.0, |ground| Plan { body_bytes: 3000, ..plan(ground, "http", Protocol::Http1) }),
];

/// A trouble: its name, and what causes it.
type Trouble = (&'static str, fn(&mut Ground) -> Result<(), String>);

/// The troubles, in turn.
const TROUBLES: &[Trouble] = &[
    ("purge of a prefix", |ground| {
        ground.tool(&["purge", "--prefix", &format!("{}/obj/1", ground.plain)]).map(drop)
    }),
    ("reload", |ground| ground.tool(&["reload"]).map(drop)),
    ("origin away", |ground| ground.while_origin_is_away(|_| Ok(()))),
    ("restart in place", Ground::restart),
    ("soft purge of everything", |ground| ground.tool(&["purge", "--all", "--soft"]).map(drop)),
    ("full disk", Ground::full_disk),
    ("purge of everything", |ground| ground.tool(&["purge", "--all"]).map(drop)),
    ("restart in place while the origin is away", |ground| {
        ground.while_origin_is_away(Ground::restart)
    }),
];

fn plan(ground: &Ground, scheme: &str, protocol: Protocol) -> Plan {
    let address = if scheme == "https" { ground.tls } else { ground.plain };
    let path = "/obj/{n}?size={size}&cc=max-age=30&etag=1";
    let target: Target = format!("{scheme}://{address}{path}").parse().expect("a URL");
    let size = Size::LogNormalPareto {
        median_bytes: 6000.0,
        sigma: 1.4,
        tail_part: 0.02,
        tail_from_bytes: 100_000.0,
        tail_alpha: 1.2,
        bytes_max: 4 << 20,
    };
    let mut plan = Plan::new(target, Schedule::Constant(1.0), VISIT);
    plan.population = Population { objects: OBJECTS, zipf_s: 0.9, size };
    (plan.connections, plan.protocol, plan.verify) = (24, protocol, true);
    plan.cold = 20;
    plan
}

/// The same through the forward listener.
fn through(ground: &Ground, tunnel: bool) -> Plan {
    let mut plan = plan(ground, "http", Protocol::Http1);
    plan.target.authority = ground.origin_at.to_string();
    plan.target.addr = ground.forward;
    (plan.target.tunnel, plan.target.absolute) = (tunnel, !tunnel);
    plan
}

/// The server, its origin, and where they are.
struct Ground {
    home: PathBuf,
    plimsoll: PathBuf,
    plain: SocketAddr,
    tls: SocketAddr,
    forward: SocketAddr,
    admin: SocketAddr,
    origin_at: SocketAddr,
    origin: Option<Peer>,
    server: Option<Peer>,
    /// The process that has taken over from `server`.
    successor: Option<i32>,
    disk: Result<PathBuf, String>,
    /// When requests may fail, in nanoseconds since the Unix epoch.
    away: Vec<(i64, i64)>,
}

impl Ground {
    fn new(home: &Path, plimsoll: &Path) -> Result<Ground, String> {
        let mut addresses = (0..5).map(|_| free_address());
        let mut next = || addresses.next().expect("there are five").map_err(|e| e.to_string());
        let disk = mounted(home);
        if let Err(why) = &disk {
            eprintln!("soak: the disk is never full: {why}");
        }
        let mut ground = Ground {
            home: home.to_owned(),
            plimsoll: absolute(plimsoll).map_err(|e| e.to_string())?,
            plain: next()?,
            tls: next()?,
            forward: next()?,
            admin: next()?,
            origin_at: next()?,
            origin: None,
            server: None,
            successor: None,
            disk,
            away: Vec::new(),
        };
        ground.start_origin()?;
        ground.start_server()?;
        Ok(ground)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.plimsoll);
        command.args(arguments);
        command
    }

    fn start_origin(&mut self) -> Result<(), String> {
        let home = self.home.join("origin");
        fs::create_dir_all(&home).map_err(|e| e.to_string())?;
        let command = self.command(&["origin", "--listen", &self.origin_at.to_string()]);
        self.origin = Some(Peer::start(command, &home, self.origin_at, None)?);
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), String> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
        let made = made.map_err(|e| e.to_string())?;
        let Ground { plain, tls, forward, admin, origin_at, .. } = self;
        let store = self.disk.clone().unwrap_or_else(|_| self.home.join("store"));
        let config = format!(
            "[server]\nworkers = 2\nadmin = \"{admin}\"\n\
             [[listen]]\naddress = \"{plain}\"\n\
             [[listen]]\naddress = \"{tls}\"\nhttp3 = true\n[listen.tls]\n\
             [[listen.tls.certificate]]\nchain = \"site.pem\"\nkey = \"site.key\"\n\
             [[listen]]\naddress = \"{forward}\"\nrole = \"forward\"\n\
             [forward]\nallow_to = [\"127.0.0.0/8\"]\nconnect_ports = [\"1-65535\"]\n\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://{origin_at}\"\n\
             [[route]]\nupstream = \"site\"\n\
             [store]\nmemory = \"{STORE_BYTES}\"\npath = \"{}\"\nbytes = \"64MiB\"\n\
             [compression]\ncodings = [\"gzip\"]\n",
            store.join("cache").display()
        );
        let files = [
            ("site.pem", made.cert.pem()),
            ("site.key", made.signing_key.serialize_pem()),
            ("plimsoll.toml", config),
        ];
        for (name, text) in files {
            fs::write(self.home.join(name), text).map_err(|e| format!("{name}: {e}"))?;
        }
        let file = self.home.join("plimsoll.toml").display().to_string();
        let command = self.command(&["serve", "-c", &file]);
        self.server = Some(Peer::start(command, &self.home, self.plain, None)?);
        Ok(())
    }

    /// Runs a subcommand that speaks with the server. Returns what it printed.
    fn tool(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(arguments);
        command.args(["--admin", &self.admin.to_string()]).stdin(Stdio::null());
        let output = command.output().map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{arguments:?}: {}", text(&output.stderr))),
        }
    }

    /// Kills the origin, does something, and starts the origin again after a while.
    fn while_origin_is_away(
        &mut self,
        meanwhile: impl FnOnce(&mut Ground) -> Result<(), String>,
    ) -> Result<(), String> {
        let from = now_ns();
        if let Some(origin) = self.origin.take() {
            origin.kill()?;
        }
        let done = meanwhile(self);
        thread::sleep(AWAY);
        self.start_origin()?;
        self.away.push((from, now_ns() + ns(AFTERWARDS)));
        done
    }

    fn restart(&mut self) -> Result<(), String> {
        let answer = self.tool(&["restart"])?;
        let pid = answer.split_whitespace().find_map(|word| word.parse().ok());
        let pid: i32 = pid.ok_or_else(|| format!("no process in {answer:?}"))?;
        self.successor = Some(pid);
        Ok(())
    }

    /// Fills the file system of the store for some seconds.
    fn full_disk(&mut self) -> Result<(), String> {
        let Ok(at) = &self.disk else { return Ok(()) };
        let file = at.join("other");
        let filled = fs::File::create(&file).and_then(|mut other| {
            let block = [7; 64 * 1024];
            for _ in 0..DISK_IMAGE_BYTES / block.len() as u64 {
                other.write_all(&block)?;
            }
            Ok(())
        });
        thread::sleep(FULL);
        fs::remove_file(&file).map_err(|e| e.to_string())?;
        match filled {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            other => Err(format!("the disk was not full: {other:?}")),
        }
    }

    /// Stops everything.
    fn end(mut self) -> Result<(), String> {
        let mut server = self.server.take().expect("it was started");
        if let Some(successor) = self.successor {
            load::sys::terminate(successor).map_err(|e| e.to_string())?;
            let there = || Path::new(&format!("/proc/{successor}")).exists();
            let waits = END_MAX.as_millis() / 100;
            if !(0..waits).any(|_| {
                thread::sleep(Duration::from_millis(100));
                !there()
            }) {
                return Err("the server does not end".to_owned());
            }
            if !server.has_ended() {
                return Err("the first process is still there".to_owned());
            }
            return Ok(());
        }
        server.end(END_MAX)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(successor) = self.successor {
            let _ = load::sys::terminate(successor);
        }
        if let Ok(at) = &self.disk {
            // It is busy until the server has ended.
            let _ = Command::new("umount").arg("--lazy").arg(at).status();
        }
    }
}

/// A small file system in a file, which can be filled.
fn mounted(home: &Path) -> Result<PathBuf, String> {
    let (file, at) = (home.join("image"), home.join("disk"));
    let mkfs = find("mkfs.ext4").ok_or("not installed: apt-get install e2fsprogs")?;
    fs::create_dir(&at).map_err(|e| e.to_string())?;
    let image = fs::File::create(&file).map_err(|e| e.to_string())?;
    image.set_len(DISK_IMAGE_BYTES).map_err(|e| e.to_string())?;
    let mut make = Command::new(mkfs);
    make.args(["-q", "-F", "-m", "0"]).arg(&file);
    let mut mount = Command::new("mount");
    mount.args(["-o", "loop"]).arg(&file).arg(&at);
    for mut command in [make, mount] {
        let output = command.output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("no file system can be mounted here: {why}"));
        }
    }
    Ok(at)
}

/// What the clients got.
#[derive(Clone, Debug, Default, Serialize)]
struct Got {
    requests: u64,
    completed: u64,
    hits: u64,
    bytes: u64,
    /// Failed while the origin was away.
    failed_while_away: u64,
    /// Their connection was closed before the response began; a client repeats them.
    repeated: u64,
}

/// The result.
#[derive(Debug, Default, Serialize)]
struct Report {
    hours: f64,
    clients: BTreeMap<&'static str, Got>,
    vanished: u64,
    troubles: BTreeMap<&'static str, u64>,
    /// The most memory in use in each half, in bytes, and the most descriptors.
    resident_bytes_max: [u64; 2],
    descriptors_max: u64,
    descriptors_at_end: u64,
    /// What did not hold.
    faults: Vec<String>,
}

/// All threads write here.
#[derive(Default)]
struct Shared(Mutex<Report>);

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fault(&self, what: String) {
        eprintln!("soak: FAULT: {what}");
        self.with(|report| report.faults.push(what));
    }
}

/// Runs it. Fails if anything did not hold.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let stop = &crate::stopped_by_signals()?;
    let home = tempfile::tempdir().map_err(|e| e.to_string())?;
    let ground = Ground::new(home.path(), &flags.plimsoll)?;
    let (shared, clients_stop) = (Shared::default(), AtomicBool::new(false));
    let end_ns = now_ns() + (flags.hours * 3600e9) as i64;
    let (ground, shared) = (Mutex::new(ground), &shared);
    let judged: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = LOADS
            .iter()
            .enumerate()
            .map(|(at, (name, rate, plan))| {
                let plan = Plan { seed: at as u64 * SEEDS, ..plan(&lock(&ground)) };
                let (rate, stop) = (rate * flags.load, &clients_stop);
                scope.spawn(move || (*name, visits(&plan, rate, stop)))
            })
            .collect();
        let Ground { plain, admin, .. } = *lock(&ground);
        let stop_clients = &clients_stop;
        scope.spawn(move || vanish(plain, stop_clients, shared));
        scope.spawn(move || watch(admin, end_ns, stop_clients, shared));
        trouble(&ground, end_ns, stop, shared);
        clients_stop.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().expect("no client panics")).collect()
    });
    let ground = ground.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (name, visits) in judged {
        let got = judge(name, &visits, &ground.away, shared);
        shared.with(|report| report.clients.insert(name, got));
    }
    finish(&ground, shared);
    if let Err(why) = ground.end() {
        shared.fault(why);
    }
    shared.with(|report| {
        report.hours = flags.hours;
        match flags.json {
            true => println!("{}", serde_json::to_string_pretty(report).expect("it is a tree")),
            false => print!("{report}"),
        }
        match report.faults.len() {
            0 => Ok(()),
            faults => Err(format!("{faults} faults")),
        }
    })
}

fn lock(ground: &Mutex<Ground>) -> std::sync::MutexGuard<'_, Ground> {
    ground.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Causes one trouble after another until the end.
fn trouble(ground: &Mutex<Ground>, end_ns: i64, stop: &AtomicBool, shared: &Shared) {
    let began = now_ns();
    for (name, cause) in TROUBLES.iter().cycle() {
        let pause_end = now_ns() + ns(BETWEEN);
        while now_ns() < pause_end.min(end_ns) && !stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(100));
        }
        if now_ns() >= end_ns || stop.load(Ordering::SeqCst) {
            return;
        }
        eprintln!("soak: {:5} s: {name}", (now_ns() - began) / 1_000_000_000);
        if let Err(why) = cause(&mut lock(ground)) {
            shared.fault(format!("{name}: {why}"));
        }
        shared.with(|report| *report.troubles.entry(name).or_default() += 1);
    }
}

/// One row of a visit in which requests failed: when, and how. Or a visit that could not begin.
type Failed = (i64, i64, Result<Errors, String>);

/// Visits until the end. What failed is judged later, when it is known when the origin was away.
fn visits(plan: &Plan, rate: f64, stop: &AtomicBool) -> (Got, Vec<Failed>) {
    let (mut got, mut failed) = (Got::default(), Vec::new());
    for seed in plan.seed..plan.seed + SEEDS {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let plan = Plan { schedule: Schedule::Constant(rate), seed, ..plan.clone() };
        let began = now_ns();
        let outcome = match load::run(&plan, stop, &mut |_| ()) {
            Ok(outcome) => outcome,
            Err(why) => {
                failed.push((began, now_ns(), Err(why.to_string())));
                thread::sleep(Duration::from_secs(1));
                continue;
            }
        };
        got.requests += outcome.counts.started;
        got.completed += outcome.counts.completed;
        got.hits += outcome.counts.hits;
        got.bytes += outcome.counts.body_bytes;
        let rows = outcome.rows.iter().filter(|row| row.counts.errors.total() > 0);
        failed.extend(
            rows.map(|row| {
                (row.start_ns, row.start_ns + row.length_ns as i64, Ok(row.counts.errors))
            }),
        );
    }
    (got, failed)
}

/// Which failures may be.
fn judge(
    name: &str,
    (got, failed): &(Got, Vec<Failed>),
    away: &[(i64, i64)],
    shared: &Shared,
) -> Got {
    let mut got = got.clone();
    for (from, to, errors) in failed {
        let is_away = away.iter().any(|(gone, back)| from < back && to > gone);
        let errors = match errors {
            Ok(errors) => errors,
            Err(_) if is_away => continue,
            Err(why) => {
                shared.fault(format!("{name}: {why}"));
                continue;
            }
        };
        let is_wrong = errors.wrong_bytes + errors.wrong_size + errors.bad_framing > 0;
        let to_repeat = errors.closed + errors.reset;
        if is_wrong || (!is_away && errors.total() > to_repeat) {
            shared.fault(format!("{name}: {errors:?}"));
        }
        match is_away {
            true => got.failed_while_away += errors.total(),
            false => got.repeated += to_repeat,
        }
    }
    if got.completed == 0 {
        shared.fault(format!("{name}: no request was answered"));
    }
    got
}

/// Clients that go away: in the middle of a head, of a body, or at once; some with a reset.
fn vanish(plain: SocketAddr, stop: &AtomicBool, shared: &Shared) {
    let whole = "GET /obj/7?size=3000000&cc=no-store HTTP/1.1\r\nHost: a\r\n\r\n";
    let requests = [whole, "GET /half HTTP/1.1\r\nHo", "", whole];
    for (at, request) in requests.iter().cycle().enumerate() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        thread::sleep(Duration::from_millis(50));
        // While the server is replaced a connection may be refused, which others notice.
        let Ok(mut stream) = TcpStream::connect(plain) else { continue };
        let _ = stream.write_all(request.as_bytes());
        if at % 4 == 3 {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = stream.read(&mut [0; 1000]);
        }
        // Unread bytes make this a reset.
        let _ = stream.shutdown(Shutdown::Write);
        shared.with(|report| report.vanished += 1);
    }
}

/// The metrics: the sum of each over its labels.
fn metrics(admin: SocketAddr) -> Result<BTreeMap<String, f64>, String> {
    let mut stream = TcpStream::connect(admin).map_err(|e| e.to_string())?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    let mut text = String::new();
    stream.set_read_timeout(Some(START_MAX)).map_err(|e| e.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    stream.read_to_string(&mut text).map_err(|e| e.to_string())?;
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("plimsoll_")) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name);
        *sums.entry(name.to_owned()).or_insert(0.0) += value.parse().unwrap_or(0.0);
    }
    Ok(sums)
}

/// Looks at the server's memory and descriptors.
fn watch(admin: SocketAddr, end_ns: i64, stop: &AtomicBool, shared: &Shared) {
    let began = now_ns();
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_secs(1));
        let half = usize::from(now_ns() > began + (end_ns - began) / 2);
        let Ok(metrics) = metrics(admin) else { continue };
        let of = |name: &str| metrics.get(name).copied().unwrap_or(0.0) as u64;
        let resident = of("plimsoll_process_resident_bytes");
        shared.with(|report| {
            let most = &mut report.resident_bytes_max[half];
            *most = resident.max(*most);
            report.descriptors_max = report.descriptors_max.max(of("plimsoll_process_descriptors"));
        });
    }
}

/// When the clients have left: what must be gone, and what must add up.
fn finish(ground: &Ground, shared: &Shared) {
    let gone = [
        "plimsoll_client_held_bytes",
        "plimsoll_tunnels_open",
        "plimsoll_connections_busy",
        "plimsoll_upstream_server_outstanding",
    ];
    let mut left = vec!["no metrics".to_owned()];
    for _ in 0..END_MAX.as_secs() {
        thread::sleep(Duration::from_secs(1));
        let Ok(metrics) = metrics(ground.admin) else { continue };
        let is_left = |name: &&str| metrics.get(*name).is_none_or(|value| *value != 0.0);
        left = gone.iter().filter(|name| is_left(name)).map(|name| (*name).to_owned()).collect();
        let descriptors = metrics.get("plimsoll_process_descriptors").copied().unwrap_or(0.0);
        shared.with(|report| report.descriptors_at_end = descriptors as u64);
        if left.is_empty() {
            break;
        }
    }
    if !left.is_empty() {
        shared.fault(format!("not 0 after the clients have left: {}", left.join(", ")));
    }
    if let Err(why) = counters(ground) {
        shared.fault(why);
    }
    shared.with(|report| {
        let [first, second] = report.resident_bytes_max;
        let mut faults = Vec::new();
        if first.max(second) > STORE_BYTES + BESIDE_BYTES {
            faults.push(format!("{} bytes of memory", first.max(second)));
        }
        if second > first / 100 * (100 + GROWTH_PERCENT) {
            faults.push(format!("memory grows: {first} bytes, then {second}"));
        }
        if report.descriptors_at_end > IDLE_DESCRIPTORS_MAX {
            faults.push(format!("{} descriptors at the end", report.descriptors_at_end));
        }
        report.faults.extend(faults);
    });
}

/// Sends so many requests that nothing else counts, and compares the server's counters.
fn counters(ground: &Ground) -> Result<(), String> {
    let before = metrics(ground.admin)?;
    let mut client = Client::new(ground.plain);
    for number in 0..COUNTED {
        let cc = if number % 3 == 0 { "no-store" } else { "max-age=100" };
        let path = format!("/obj/{}?size=1000&cc={cc}", number / 2);
        client.get(&path).map_err(|error| format!("{path}: {error}"))?;
    }
    let after = metrics(ground.admin)?;
    let of = |metrics: &BTreeMap<String, f64>, name: &str| {
        let name = format!("plimsoll_{name}_total");
        metrics.get(&name).copied().ok_or(format!("no metric {name}"))
    };
    let more = |name: &str| Ok::<f64, String>(of(&after, name)? - of(&before, name)?);
    let requests = more("requests")?;
    let mut sum = 0.0;
    for kind in ["hits", "misses", "passed"] {
        sum += more(kind)?;
    }
    let expected = f64::from(COUNTED);
    match requests == expected && sum == expected {
        true => Ok(()),
        false => Err(format!("{expected} requests are counted as {requests}, by kind {sum}")),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:.2} hours", self.hours)?;
        for (name, got) in &self.clients {
            writeln!(
                f,
                "{name:26} {:>9} requests, {:>9} answered, {:>4.1} % hits, {} failed while the \
                 origin was away, {} to repeat",
                got.requests,
                got.completed,
                100.0 * got.hits as f64 / got.completed.max(1) as f64,
                got.failed_while_away,
                got.repeated
            )?;
        }
        writeln!(f, "clients that vanished      {:>9}", self.vanished)?;
        for (name, count) in &self.troubles {
            writeln!(f, "{name:42} {count:>4} times")?;
        }
        let [first, second] = self.resident_bytes_max.map(|bytes| bytes >> 20);
        writeln!(f, "memory: at most {first} MiB in the first half, {second} MiB in the second")?;
        let (most, end) = (self.descriptors_max, self.descriptors_at_end);
        writeln!(f, "descriptors: at most {most}, {end} when the clients had left")?;
        match self.faults.is_empty() {
            true => writeln!(f, "everything held"),
            false => {
                writeln!(f, "{} faults:", self.faults.len())?;
                self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))
            }
        }
    }
}

fn now_ns() -> i64 {
    ns(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_fail_only_while_the_origin_is_away_and_no_byte_may_be_wrong() {
        let judged = |at: i64, errors: Errors| {
            let shared = Shared::default();
            let got = Got { completed: 1, ..Got::default() };
            let visits = (got, vec![(at, at + 10, Ok(errors))]);
            let got = judge("a", &visits, &[(100, 200)], &shared);
            (got.failed_while_away, got.repeated, shared.with(|report| report.faults.len()))
        };
        let status = Errors { bad_status: 2, ..Errors::default() };
        assert_eq!(judged(50, status), (0, 0, 1));
        assert_eq!(judged(95, status), (2, 0, 0), "it began in the same row");
        assert_eq!(judged(200, status), (0, 0, 1));
        let closed = Errors { closed: 3, ..Errors::default() };
        assert_eq!(judged(50, closed), (0, 3, 0));
        let wrong = Errors { wrong_bytes: 1, ..Errors::default() };
        assert_eq!((judged(50, wrong).2, judged(150, wrong).2), (1, 1));
    }
}

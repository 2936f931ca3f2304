//! The instructions of a request in user space, by type of request.
//!
//! Our server runs under valgrind's callgrind and gets one request at a time. Its count of
//! instructions is set to zero after the first requests of a type and read after some more, so that
//! the start, the end and first times are not counted. What the server does every 100 ms is
//! counted while it has no requests, and subtracted by time. The kernel is not counted. The
//! origin's counters show whether each request was of its type.
//!
//! The counts of the program that `cargo xtask test` builds are recorded in `counts.json`. A test
//! fails if they have changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use harness::origin::OriginThread;
use harness::peer::{Peer, find};
use memchr::memmem;
use serde::{Deserialize, Serialize};

use crate::client::{Client, HOST};
use crate::servers::free_address;
use crate::table;
use crate::valgrind::{self, ANSWER_MAX, END_MAX};

/// Requests of each type before the counting begins.
const FIRST: u32 = 30;
/// How long the server is counted without requests.
const SILENCE: Duration = Duration::from_millis(500);
/// How often to look whether a coded form has been made, and how long to wait each time.
const FORM_TRIES_MAX: u32 = 100;
const FORM_WAIT: Duration = Duration::from_millis(50);
/// Where the counts are recorded.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.json");

/// Count the instructions of a request, by type of request.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The programs to compare: before, after.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: Vec<PathBuf>,
    /// Counted requests of each type.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    /// Keep the output of callgrind in this directory, for callgrind_annotate: one file per type.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Record the counts of the (first) program in tools/bench/counts.json, which a test compares.
    #[arg(long)]
    record: bool,
}

/// A type of request.
struct Type {
    name: &'static str,
    /// How many requests, and how many responses with status 304, each of them causes at the
    /// origin.
    at_origin: (u64, u64),
    /// What its server is configured with in addition.
    more: &'static str,
    send: Send,
}

/// A server that codes responses.
const CODED: &str = "\n[compression]\ncodings = [\"gzip\"]\n";
/// A server with a quota by network, which is never exhausted. The server sweeps its table as time
/// passes, however many requests there are, so the table is small.
const QUOTA: &str = "\n[[quota]]\nname = \"clients\"\nrequests = \"1000000/s\"\n\
                     memory = \"64KiB\"\n";

/// Sends a request of a type, which has this number.
type Send = fn(&mut Clients, u32) -> io::Result<()>;

const fn of(name: &'static str, at_origin: (u64, u64), more: &'static str, send: Send) -> Type {
    Type { name, at_origin, more, send }
}

const TYPES: &[Type] = &[
    of("hit of 1 KB", (0, 0), "", |clients, _| clients.get("/obj/1")),
    of("hit, 304 to the client", (0, 0), "", |clients, _| clients.not_modified()),
    of("hit over HTTP/2", (0, 0), "", |clients, _| clients.http2.get()),
    of("miss passed on", (1, 0), "", |clients, _| clients.get("/obj/2?cc=no-store")),
    of("miss passed on, 64 KB", (1, 0), "", |clients, _| {
        clients.get("/obj/3?cc=no-store&size=65536")
    }),
    of("miss stored", (1, 0), "", |clients, number| {
        clients.get(&format!("/obj/{}", 1000 + number))
    }),
    of("revalidation", (1, 1), "", |clients, _| clients.get("/obj/4?cc=no-cache")),
    of("compressed hit", (0, 0), CODED, |clients, _| clients.compressed()),
    of("hit of the compressed size", (0, 0), CODED, |clients, _| clients.of_the_compressed_size()),
    of("hit with a quota", (0, 0), QUOTA, |clients, _| clients.get("/obj/1")),
    of("hit over HTTP/2 with a quota", (0, 0), QUOTA, |clients, _| clients.http2.get()),
    of("POST of 1 KB", (1, 0), "", |clients, _| clients.post()),
    of("round trip in a tunnel", (1, 0), "", |clients, _| clients.tunnel.get("/obj/5").map(drop)),
];

/// The counts of a program: instructions per request, by type.
type Counts = BTreeMap<String, u64>;

/// The recorded counts of an architecture.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// What built the program: see [`build_of`].
    build: String,
    counts: Counts,
}

/// Counts, and prints or records the result.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let dir = tempfile::Builder::new().prefix("plimsoll-counts-").tempdir();
    let dir = dir.map_err(|e| format!("temporary directory: {e}"))?;
    let place = absolute(flags.keep.as_deref().unwrap_or(dir.path())).map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for (number, program) in flags.plimsoll.iter().enumerate() {
        let program = absolute(program).map_err(|e| e.to_string())?;
        eprintln!("{}", program.display());
        let dir = place.join(number.to_string());
        let counts = count(&program, flags.requests, &dir, |_| true)?;
        if flags.record && number == 0 {
            record(&program, &counts)?;
        }
        all.push((program.display().to_string(), counts));
    }
    println!("Instructions of a request in user space ({} of each type)", flags.requests);
    let programs = all.iter().map(|(program, _)| program.as_str());
    let header: Vec<&str> = ["request"].into_iter().chain(programs).chain([""]).collect();
    let mut table = table::plain(&header);
    for Type { name, .. } in TYPES {
        let of = |(_, counts): &(String, Counts)| counts[*name].to_string();
        let cells = all.iter().map(of);
        table.add_row([(*name).to_owned()].into_iter().chain(cells).chain([String::new()]));
    }
    println!("{table}");
    Ok(())
}

/// Counts the instructions per request of each type that `is_wanted`.
fn count(
    program: &Path,
    requests: u32,
    dir: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for (name, more) in [("plain", ""), ("coded", CODED), ("quota", QUOTA)] {
        let wanted = |of: &&Type| of.more == more && is_wanted(of.name);
        let types: Vec<&Type> = TYPES.iter().filter(wanted).collect();
        let dir = dir.join(name);
        if !types.is_empty() {
            counts.extend(count_on(program, requests, &dir, (&types, more))?);
        }
    }
    Ok(counts)
}

/// The same for types of one server.
fn count_on(
    program: &Path,
    requests: u32,
    dir: &Path,
    (types, more): (&[&Type], &str),
) -> Result<Counts, String> {
    let origin = OriginThread::start(None)?;
    let (addr, forward) = (free_address()?, free_address()?);
    let mut server = Counted::start(program, [addr, forward], origin.address(), dir, more)?;
    let clients = Clients::new([addr, forward], origin.address());
    let mut clients = clients.map_err(|e| format!("{e}; {}", server.process.last_words()))?;
    let mut counted_types = Vec::new();
    let mut idle_per_second = server.silent()?;
    for Type { name, at_origin, send, .. } in types {
        let mut each = |number| send(&mut clients, number).map_err(|e| format!("{name}: {e}"));
        (0..FIRST).try_for_each(&mut each)?;
        let seen = || {
            let counters = origin.counters();
            [&counters.requests, &counters.not_modified].map(|of| of.load(Ordering::Relaxed))
        };
        let before = seen();
        let numbers = FIRST..FIRST + requests;
        let counted = server.counted(|| numbers.clone().try_for_each(&mut each))?;
        let at_origin = [at_origin.0, at_origin.1].map(|each| each * u64::from(requests));
        let [asked, not_modified] = [0, 1].map(|which| seen()[which] - before[which]);
        if [asked, not_modified] != at_origin {
            return Err(format!(
                "{name}: the origin had {asked} requests and {not_modified} of them a 304, not \
                 {at_origin:?}"
            ));
        }
        counted_types.push((name, counted));
    }
    // After its start the server has more to do than later, for longer if the machine is busy.
    idle_per_second = idle_per_second.min(server.silent()?);
    drop(clients);
    server.process.end(END_MAX).map_err(|why| format!("the server: {why}"))?;
    origin.stop()?;
    let each = |(name, counted): (&&str, Span)| {
        let instructions = counted.instructions - idle_per_second * counted.seconds;
        ((*name).to_owned(), (instructions / f64::from(requests)).round() as u64)
    };
    Ok(counted_types.into_iter().map(each).collect())
}

/// Our server under callgrind.
struct Counted {
    process: Peer,
    dir: PathBuf,
    /// Number of files that callgrind has written.
    files: u32,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    instructions: f64,
    seconds: f64,
}

impl Counted {
    fn start(
        program: &Path,
        [addr, forward]: [SocketAddr; 2],
        origin: SocketAddr,
        dir: &Path,
        more: &str,
    ) -> Result<Counted, String> {
        let (out, pipe) = (dir.join("out").display().to_string(), dir.join("vgdb"));
        let tool = [
            "--tool=callgrind".to_owned(),
            format!("--callgrind-out-file={out}"),
            format!("--vgdb-prefix={}", pipe.display()),
        ];
        let more = format!(
            "\n[[listen]]\naddress = \"{forward}\"\nrole = \"forward\"\n\n\
             [forward]\nallow_to = [\"127.0.0.0/8\"]\nconnect_ports = [\"1-65535\"]\n{more}"
        );
        let settings = valgrind::Settings { workers: 1, more: &more };
        let process = valgrind::start(&tool, program, (addr, origin), &settings, dir)?;
        Ok(Counted { process, dir: dir.to_path_buf(), files: 0 })
    }

    /// Counts while `work` is done.
    fn counted(&mut self, work: impl FnOnce() -> Result<(), String>) -> Result<Span, String> {
        self.order("zero")?;
        let began = Instant::now();
        let done = work();
        done.map_err(|why| format!("{why}; the server: {}", self.process.last_words()))?;
        let seconds = began.elapsed().as_secs_f64();
        self.order("dump")?;
        self.files += 1;
        let file = self.dir.join(format!("out.{}", self.files));
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let instructions = sum(&text).ok_or_else(|| format!("{} has no sum", file.display()))?;
        Ok(Span { instructions, seconds })
    }

    /// Instructions per second without requests: the least of two silences.
    fn silent(&mut self) -> Result<f64, String> {
        let mut least = f64::INFINITY;
        for _ in 0..2 {
            let silence = self.counted(|| {
                thread::sleep(SILENCE);
                Ok(())
            })?;
            least = least.min(silence.instructions / silence.seconds);
        }
        Ok(least)
    }

    /// Gives callgrind an order. It has been carried out when this returns.
    fn order(&self, order: &str) -> Result<(), String> {
        let vgdb = find("vgdb").ok_or("vgdb is missing, which is a part of valgrind")?;
        let mut command = Command::new(vgdb);
        command.arg(format!("--vgdb-prefix={}", self.dir.join("vgdb").display()));
        command.arg(format!("--pid={}", self.process.pid())).arg(order).stdin(Stdio::null());
        let output = command.output().map_err(|e| format!("vgdb: {e}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("vgdb {order}: {}", errors.lines().next_back().unwrap_or("?"))),
        }
    }
}

/// The sum in a file of callgrind that counts nothing but instructions.
fn sum(text: &str) -> Option<f64> {
    text.lines().find(|line| *line == "events: Ir")?;
    text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

/// Clients with a connection each.
struct Clients {
    http1: Client,
    http2: Http2,
    /// Its connection is a tunnel to the origin.
    tunnel: Client,
    /// The entity tag of the object that is asked for with it.
    etag: String,
    /// The length of the coded form of an object.
    compressed_bytes: Option<usize>,
}

impl Clients {
    fn new([addr, forward]: [SocketAddr; 2], origin: SocketAddr) -> io::Result<Clients> {
        let mut http1 = Client::connected(addr, ANSWER_MAX)?;
        let head = http1.get("/obj/1")?;
        let etag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
        let etag = etag.ok_or_else(|| io::Error::other("the origin sends no ETag"))?.to_owned();
        let tunnel = Client::through_tunnel(forward, origin, ANSWER_MAX)?;
        let compressed_bytes = None;
        Ok(Clients { http1, http2: Http2::connect(addr)?, tunnel, etag, compressed_bytes })
    }

    fn get(&mut self, path: &str) -> io::Result<()> {
        self.http1.get(path).map(drop)
    }

    /// A hit of which the coded form is sent, after it has been made.
    fn compressed(&mut self) -> io::Result<()> {
        let waits = if self.compressed_bytes.is_none() { FORM_TRIES_MAX } else { 1 };
        for _ in 0..waits {
            let (head, bytes) = self.accepting_gzip("/obj/7?text=1&size=3000")?;
            if head.contains("\r\nContent-Encoding: gzip\r\n") {
                self.compressed_bytes = Some(bytes);
                return Ok(());
            }
            thread::sleep(FORM_WAIT);
        }
        Err(io::Error::other("it is not coded"))
    }

    /// A hit with as many bytes and the same fields in the request, of a type that is not coded.
    fn of_the_compressed_size(&mut self) -> io::Result<()> {
        let bytes = self.compressed_bytes.ok_or_else(|| io::Error::other("nothing is coded"))?;
        let (head, got) = self.accepting_gzip(&format!("/obj/7?size={bytes}"))?;
        let is_plain = got == bytes && !head.contains("\r\nVary: ");
        is_plain.then_some(()).ok_or_else(|| io::Error::other("it is not a plain hit"))
    }

    /// The head, and the length of the body.
    fn accepting_gzip(&mut self, path: &str) -> io::Result<(String, usize)> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n"
        );
        let mut bytes = 0;
        let head = self.http1.converse(request.as_bytes(), |part| bytes += part.len())?;
        Ok((head, bytes))
    }

    fn not_modified(&mut self) -> io::Result<()> {
        let etag = &self.etag;
        let request =
            format!("GET /obj/1 HTTP/1.1\r\nHost: {HOST}\r\nIf-None-Match: {etag}\r\n\r\n");
        let head = self.http1.converse(request.as_bytes(), |_| ())?;
        match head.starts_with("HTTP/1.1 304 ") {
            true => Ok(()),
            false => Err(io::Error::other(head)),
        }
    }

    fn post(&mut self) -> io::Result<()> {
        let body = "x".repeat(1024);
        let request = format!(
            "POST /obj/6?cc=no-store HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1024\r\n\r\n{body}"
        );
        self.http1.converse(request.as_bytes(), |_| ()).map(drop)
    }
}

/// A client of HTTP/2 in the clear that sends one request at a time, always for the same object.
struct Http2 {
    stream: TcpStream,
    /// The number of the next stream.
    next: u32,
}

/// Frame types and flags (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` in the static table of HPACK.
const STATUS_200: u8 = 0x88;

impl Http2 {
    fn connect(addr: SocketAddr) -> io::Result<Http2> {
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        let mut client = Http2 { stream, next: 1 };
        // A window of the connection for all responses.
        let window = frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
        let preface =
            [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..], &window];
        client.stream.write_all(&preface.concat())?;
        Ok(client)
    }

    fn get(&mut self) -> io::Result<()> {
        let number = self.next;
        self.next += 2;
        // `:method: GET` and `:scheme: http`, then `:path` and `:authority` as literals.
        let (path, host) = (b"/obj/1", HOST.as_bytes());
        let literals = [(4, &path[..]), (1, host)].map(|(name, value)| {
            let length = u8::try_from(value.len()).expect("it is short");
            [&[name, length], value].concat()
        });
        let block = [&[0x82, 0x86], &literals.concat()[..]].concat();
        self.stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, number, &block))?;
        loop {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header)?;
            let [high, mid, low, kind, flags, of_stream @ ..] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, high, mid, low]) as usize];
            self.stream.read_exact(&mut payload)?;
            match kind {
                SETTINGS if flags & ACK == 0 => {
                    self.stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?;
                }
                // The first response changes the size of HPACK's table before its status.
                HEADERS if !payload.iter().take(4).any(|byte| *byte == STATUS_200) => {
                    return Err(io::Error::other("the status over HTTP/2 is not 200"));
                }
                HEADERS | DATA if flags & END_STREAM != 0 => {
                    let is_ours = u32::from_be_bytes(of_stream) == number;
                    let other = || io::Error::other("the response of another stream");
                    return is_ours.then_some(()).ok_or_else(other);
                }
                HEADERS | DATA | SETTINGS | WINDOW_UPDATE => {}
                _ => return Err(io::Error::other(format!("a frame of type {kind}"))),
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The version of the compiler that built a program of `target/debug`, and Cargo's hash of its
/// packages, features, profiles and compiler. Of the copies of a generic function that several
/// crates have compiled, some of them optimised, the compiler takes the copy whose crate has the
/// smallest such hash: builds of other hashes have other counts.
fn build_of(program: &Path) -> Result<String, String> {
    let compiler = compiler_of(program)?;
    let number = |path: &Path| fs::metadata(path).ok().map(|file| file.ino());
    let own = number(program);
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    // `target/debug/plimsoll` and `target/debug/deps/plimsoll-HASH` are one file.
    let hash_of = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let hash = file.strip_prefix(&*name)?.strip_prefix('-')?;
        (number(&entry.path()) == own).then(|| hash.to_owned())
    };
    let mut deps = fs::read_dir(program.with_file_name("deps")).into_iter().flatten().flatten();
    let hash = deps.find_map(hash_of);
    Ok(format!("{compiler} {}", hash.unwrap_or_else(|| "unknown".to_owned())))
}

/// The version of the compiler that built a program, which it leaves there.
fn compiler_of(program: &Path) -> Result<String, String> {
    let bytes = fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    let mark = b"rustc version ";
    let at = memmem::rfind(&bytes, mark);
    let at = at.ok_or_else(|| format!("{} names no compiler", program.display()))?;
    let text = &bytes[at + mark.len()..];
    // `1.95.0 (59807616e 2026-04-14)`
    let end = text.iter().position(|byte| *byte == b')').map_or(0, |at| at + 1);
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

fn recorded() -> Result<BTreeMap<String, Record>, String> {
    let text = fs::read_to_string(RECORD).map_err(|e| format!("{RECORD}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{RECORD}: {e}"))
}

fn record(program: &Path, counts: &Counts) -> Result<(), String> {
    let mut all = if Path::new(RECORD).exists() { recorded()? } else { BTreeMap::new() };
    let record = Record { build: build_of(program)?, counts: counts.clone() };
    all.insert(std::env::consts::ARCH.to_owned(), record);
    let text = serde_json::to_string_pretty(&all).map_err(|e| e.to_string())?;
    fs::write(RECORD, text + "\n").map_err(|e| format!("{RECORD}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted requests of each type in the test.
    const REQUESTS: u32 = 100;
    /// The most that a count may differ from the recorded one, in percent: of the same build, and
    /// of another one.
    const CHANGE_MAX: f64 = 5.0;
    const CHANGE_MAX_OTHER_BUILD: f64 = 35.0;
    const TO_RECORD: &str =
        "cargo run -p bench -- counts --plimsoll target/debug/plimsoll --requests 1000 --record";

    /// How often a type is counted that has changed. If the server waits for a processor after it
    /// has sent a request to the origin, the response may be there before it looks, which saves a
    /// wait.
    const TRIES_MAX: u32 = 3;

    /// The types whose counts differ from the recorded ones by more than they may, and a line on
    /// each.
    fn changes(before: &Record, now: &Record) -> BTreeMap<String, String> {
        let is_same = before.build == now.build;
        let change_max = if is_same { CHANGE_MAX } else { CHANGE_MAX_OTHER_BUILD };
        let mut lines = BTreeMap::new();
        for (name, count) in &now.counts {
            let Some(recorded) = before.counts.get(name) else {
                lines.insert(name.clone(), format!("{name}: {count} instructions, none recorded"));
                continue;
            };
            let percent = 100.0 * (*count as f64 / *recorded as f64 - 1.0);
            if percent.abs() > change_max {
                let line = format!(
                    "{name}: {count} instructions, recorded are {recorded}: {percent:+.1} %, at \
                     most {change_max} %"
                );
                lines.insert(name.clone(), line);
            }
        }
        lines
    }

    fn record_of(build: &str, hit: u64) -> Record {
        Record { build: build.to_owned(), counts: [("hit".to_owned(), hit)].into() }
    }

    #[test]
    fn a_change_above_the_bound_is_named() {
        let before = record_of("1.95.0", 1000);
        let lines = |now: &Record| changes(&before, now).into_values().collect::<Vec<_>>();
        let change = |build, hit| lines(&record_of(build, hit));
        assert_eq!(change("1.95.0", 1049), [""; 0]);
        let text = "hit: 1051 instructions, recorded are 1000: +5.1 %, at most 5 %";
        assert_eq!(change("1.95.0", 1051), [text]);
        assert_eq!(change("1.95.0", 940).len(), 1);
        assert_eq!(change("1.96.0", 1340), [""; 0]);
        assert_eq!(change("1.96.0", 1360).len(), 1);
        let none = Record { build: "1.95.0".to_owned(), counts: Counts::new() };
        let unrecorded: Vec<_> = changes(&none, &before).into_values().collect();
        assert_eq!(unrecorded, ["hit: 1000 instructions, none recorded"]);
    }

    #[test]
    fn a_program_names_its_compiler() {
        let compiler = compiler_of(&std::env::current_exe().unwrap()).unwrap();
        assert!(compiler.starts_with("1.") && compiler.ends_with(')'), "{compiler}");
        assert_eq!(compiler.matches(')').count(), 1, "{compiler}");
    }

    #[test]
    fn a_sum_is_of_instructions_alone() {
        assert_eq!(sum("events: Ir\nfn=(1) a\n1 5\ntotals: 5\n"), Some(5.0));
        assert_eq!(sum("events: Ir Dr\nfn=(1) a\n1 5 6\ntotals: 5 6\n"), None);
        assert_eq!(sum("events: Ir\nfn=(1) a\n1 5\n"), None);
    }

    #[test]
    fn the_instructions_of_a_request_are_those_recorded() {
        // `make test` builds everything with clippy's compiler, which makes other code of it.
        if !cfg!(clippy) {
            eprintln!("skipped: only the program that `cargo xtask test` builds is compared");
            return;
        }
        // `target/debug/deps/bench-HASH` is this program.
        let own = std::env::current_exe().unwrap();
        let program = own.parent().and_then(Path::parent).unwrap().join("plimsoll");
        let dir = tempfile::tempdir().unwrap();
        let counts = count(&program, REQUESTS, dir.path(), |_| true).unwrap();
        let mut now = Record { build: build_of(&program).unwrap(), counts };
        let all = recorded().unwrap();
        let before = all.get(std::env::consts::ARCH);
        let none = Record { build: now.build.clone(), counts: Counts::new() };
        let before = before.unwrap_or(&none);
        if before.build != now.build {
            // Not `eprintln`, whose output is shown only if the test fails.
            let _ = writeln!(
                io::stderr(),
                "counts: recorded of the build {}, this is {}: up to \
                 {CHANGE_MAX_OTHER_BUILD} % more or less is accepted. Record them again: \
                 {TO_RECORD}",
                before.build,
                now.build
            );
        }
        let mut changed = changes(before, &now);
        for _ in 1..TRIES_MAX {
            if !changed.is_empty() {
                let again = |name: &str| changed.contains_key(name);
                now.counts = count(&program, REQUESTS, dir.path(), again).unwrap();
                changed = changes(before, &now);
            }
        }
        assert!(
            changed.is_empty(),
            "{}\nIf a request needs more instructions, make it cheaper, or record the counts if \
             the change is worth them. If it needs fewer, record them, so that it stays cheap. \
             Record them after `make test`, whose build of the program they are of: another call \
             of cargo gives other counts.\n{TO_RECORD}",
            changed.into_values().collect::<Vec<_>>().join("\n")
        );
    }
}

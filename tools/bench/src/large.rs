//! One body of a gigabyte, little memory, and many clients that come at random times while it is
//! fetched; some of them are slow.
//!
//! What is checked: the origin is asked once; every byte that every client gets is that of the
//! origin; the memory of the process stays within its bound, whatever the body's length and however
//! many clients read it. The test needs a disk and some minutes, so it is not among those of `make
//! test`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf, absolute};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use harness::peer::Peer;

use crate::servers::free_address;

/// Of the store in memory.
const STORE_BYTES: u64 = 64 << 20;
/// Of the store on disk. A body may have a twentieth of it.
const DISK_BYTES: u64 = 24 << 30;
/// What the process may need besides the store: the write buffer of the disk (64 MiB, and once more
/// while it is copied), and what connections and the program itself need.
const BESIDE_BYTES: u64 = 192 << 20;
/// The body repeats after this many bytes. It is a prime, so no two chunks or blocks are equal.
const PERIOD_BYTES: usize = 1_048_573;
/// How much a client reads at once.
const READ_BYTES: usize = 64 * 1024;
/// How long a slow client waits after each read.
const SLOW_PAUSE: Duration = Duration::from_millis(6);
const LOOK: Duration = Duration::from_millis(50);
const END_MAX: Duration = Duration::from_secs(60);

/// Fetch one long body for many clients, and check its bytes, the fetches and the memory.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Bytes of the body.
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..))]
    bytes: u64,
    /// Number of clients.
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// How many of them are slow.
    #[arg(long, default_value_t = 5)]
    slow: u32,
    /// Bytes per second of the origin, in megabytes; 0: as fast as the network takes them.
    #[arg(long, default_value_t = 40)]
    rate: u64,
    /// The clients come within this many seconds.
    #[arg(long, default_value_t = 25.0, value_parser = crate::positive)]
    within: f64,
    /// Run the server without a disk: only the bytes and the memory are checked.
    #[arg(long)]
    no_disk: bool,
    /// The path of our program.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: PathBuf,
}

/// The origin.
struct Origin {
    bytes: u64,
    /// Between two pieces of [`READ_BYTES`].
    pause: Duration,
    pattern: Vec<u8>,
    /// The length is not announced, so that a body that is not stored is collapsed, too.
    is_chunked: bool,
    asked: AtomicU64,
    ends: AtomicBool,
}

/// Runs it. Fails if anything did not hold.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let home = tempfile::tempdir().map_err(|e| e.to_string())?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let origin_at = listener.local_addr().map_err(|e| e.to_string())?;
    let pause = match flags.rate {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64(READ_BYTES as f64 / (rate * 1_000_000) as f64),
    };
    let origin = Origin {
        bytes: flags.bytes,
        pause,
        pattern: pattern(),
        is_chunked: flags.no_disk,
        asked: AtomicU64::new(0),
        ends: AtomicBool::new(false),
    };
    let (server, at) = start(flags, home.path(), origin_at)?;
    let (begun, pid) = (Instant::now(), server.pid());
    let faults = thread::scope(|scope| {
        let origin = &origin;
        scope.spawn(move || origin.serve(&listener));
        let watched = scope.spawn(move || most_resident(pid, &origin.ends));
        let clients: Vec<_> = (0..flags.clients)
            .map(|number| {
                // The slow ones come at any time, too.
                let slow = flags.slow > 0 && number % (flags.clients / flags.slow).max(1) == 0;
                scope.spawn(move || {
                    thread::sleep(Duration::from_secs_f64(flags.within * place(number)));
                    origin.client(at, slow).map_err(|why| format!("client {number}: {why}"))
                })
            })
            .collect();
        let got: Vec<_> =
            clients.into_iter().map(|client| client.join().expect("no client panics")).collect();
        origin.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(origin_at);
        let mut faults: Vec<String> = got.into_iter().filter_map(Result::err).collect();
        let resident = watched.join().expect("the watcher does not panic");
        let asked = origin.asked.load(Ordering::SeqCst);
        println!(
            "{} clients, {} slow, {} bytes each, in {:.1} s: {asked} fetches, {} MiB of memory at \
             most, {} faults",
            flags.clients,
            flags.slow,
            flags.bytes,
            begun.elapsed().as_secs_f64(),
            resident >> 20,
            faults.len()
        );
        if asked != 1 && !flags.no_disk {
            faults.push(format!("the origin was asked {asked} times"));
        }
        if resident > STORE_BYTES + BESIDE_BYTES {
            faults.push(format!("{resident} bytes of memory were in use"));
        }
        faults
    });
    server.end(END_MAX)?;
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("; ")),
    }
}

/// The server, with the origin behind it.
fn start(flags: &Flags, home: &Path, origin: SocketAddr) -> Result<(Peer, SocketAddr), String> {
    let at = free_address()?;
    let disk = match flags.no_disk {
        true => String::new(),
        false => format!("path = \"{}\"\nbytes = \"{DISK_BYTES}\"\n", home.join("store").display()),
    };
    let config = format!(
        "[[listen]]\naddress = \"{at}\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://{origin}\"\n\
         [[route]]\nupstream = \"site\"\n\
         [store]\nmemory = \"{STORE_BYTES}\"\n{disk}"
    );
    let file = home.join("plimsoll.toml");
    std::fs::write(&file, config).map_err(|e| e.to_string())?;
    let mut command = Command::new(absolute(&flags.plimsoll).map_err(|e| e.to_string())?);
    command.args(["serve", "-c"]).arg(&file);
    Ok((Peer::start(command, home, at, None)?, at))
}

/// Bytes that do not repeat, of a fixed seed.
fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..PERIOD_BYTES).map(|_| next()).collect()
}

/// When a client comes, between 0 and 1: the same in each run.
fn place(number: u32) -> f64 {
    (f64::from(number) * 0.618_033_988_749_895).fract()
}

impl Origin {
    /// The bytes of the body from `at` on, at most [`READ_BYTES`] and up to its end.
    fn bytes_at(&self, at: u64) -> &[u8] {
        let from = (at % PERIOD_BYTES as u64) as usize;
        let left = (self.bytes - at).min(READ_BYTES as u64) as usize;
        &self.pattern[from..PERIOD_BYTES.min(from + left)]
    }

    fn serve(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            for stream in listener.incoming() {
                if self.ends.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                // A connection that breaks off is seen by the clients.
                scope.spawn(move || self.answer(stream));
            }
        });
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut range = None;
        for line in (&mut reader).lines() {
            let line = line?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            let first =
                line.strip_prefix("range: bytes=").and_then(|range| range.split('-').next());
            range = first.and_then(|first| first.parse::<u64>().ok()).or(range);
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let first = range.unwrap_or(0);
        let status = match range {
            Some(first) => {
                format!(
                    "206 Fine\r\nContent-Range: bytes {first}-{}/{}",
                    self.bytes - 1,
                    self.bytes
                )
            }
            None => "200 Fine".to_owned(),
        };
        let framing = match self.is_chunked && range.is_none() {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {}", self.bytes - first),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\n{framing}\r\nETag: \"1\"\r\n\
             Cache-Control: max-age=3600\r\nConnection: close\r\n\r\n"
        )?;
        let is_chunked = framing.starts_with('T');
        let mut at = first;
        while at < self.bytes {
            let piece = self.bytes_at(at);
            if is_chunked {
                write!(stream, "{:x}\r\n", piece.len())?;
            }
            stream.write_all(piece)?;
            if is_chunked {
                stream.write_all(b"\r\n")?;
            }
            at += piece.len() as u64;
            thread::sleep(self.pause);
        }
        if is_chunked {
            stream.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }

    /// Gets the body and compares each byte of it.
    fn client(&self, at: SocketAddr, slow: bool) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let mut stream = TcpStream::connect(at).map_err(text)?;
        // The content of the response to HTTP/1.0 is not chunked.
        let request = b"GET /large HTTP/1.0\r\nHost: site\r\n\r\n";
        stream.write_all(request).map_err(text)?;
        let mut reader = BufReader::with_capacity(READ_BYTES, stream);
        let mut line = String::new();
        reader.read_line(&mut line).map_err(text)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(format!("{line:?}"));
        }
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).map_err(text)?;
        }
        let mut place = 0;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = reader.read(&mut buffer).map_err(|e| format!("at {place}: {e}"))?;
            if read == 0 {
                break;
            }
            let mut got = &buffer[..read];
            while !got.is_empty() {
                if place >= self.bytes {
                    return Err("the body is too long".to_owned());
                }
                let expected = self.bytes_at(place);
                let bytes = got.len().min(expected.len());
                if got[..bytes] != expected[..bytes] {
                    return Err(format!("a wrong byte after {place}"));
                }
                place += bytes as u64;
                got = &got[bytes..];
            }
            if slow {
                thread::sleep(SLOW_PAUSE);
            }
        }
        match place == self.bytes {
            true => Ok(()),
            false => Err(format!("the body broke off after {place} bytes")),
        }
    }
}

/// The most memory of a process that is its own, until `ends`.
fn most_resident(pid: u32, ends: &AtomicBool) -> u64 {
    let mut most = 0;
    while !ends.load(Ordering::SeqCst) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
        thread::sleep(LOOK);
    }
    most
}

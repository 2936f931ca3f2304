//! The test process: it does known work, and reports afterwards how much.
//!
//! It waits for a line on stdin before it begins, and for the end of stdin before it exits, so that
//! the recording covers all of its work. The amounts are random and reported only at the end, so
//! that the recorder cannot know them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use command::failure::{Failure, misuse};
use runtime::sim::Rng;
use serde::{Deserialize, Serialize};

use crate::cli;

/// The name of the procedure that spends CPU time. No compiler changes it.
pub(crate) const BURNER: &str = "plimsoll_doctor_burns_cpu_time_here";

/// The name of the access log that it writes to its directory.
pub(crate) const LOG: &str = "access.log";

/// Size of the file that it reads. The buffer is larger, so the first read is short and already
/// reaches the end; a second read is needless.
const FILE_BYTES: usize = 5_000;
const BUFFER_BYTES: usize = 8_192;

/// How long a lock is held at least: long enough that a waiting thread has stopped spinning, even
/// if another program takes its CPU meanwhile.
const HELD: Duration = Duration::from_millis(10);

/// The work that was done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    /// CPU time in [`BURNER`], ns.
    pub(crate) burned_ns: u64,
    /// CPU time of the whole process since the work began, ns.
    pub(crate) process_ns: u64,
    /// Instructions in the loop of [`BURNER`]; 0 if there is no such loop for this processor.
    pub(crate) instructions: u64,
    /// Waits for a held lock.
    pub(crate) waits: u64,
    /// Files read with one needless read.
    pub(crate) needless: u64,
    /// Requests in the log.
    pub(crate) requests: u64,
}

/// Does the work and reports it on stdout.
pub(crate) fn do_known_work(flags: &cli::DoctorTruth) -> Result<(), Failure> {
    let object = flags.home.join("object");
    std::fs::write(&object, vec![b'o'; FILE_BYTES]).map_err(misuse)?;
    let log = OpenOptions::new().append(true).create(true).open(flags.home.join(LOG));
    let mut log = log.map_err(misuse)?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(misuse)?;
    let work = everything(&object, &mut log).map_err(misuse)?;
    println!("{}", serde_json::to_string(&work).map_err(misuse)?);
    std::io::stdin().read_to_string(&mut line).map_err(misuse)?;
    Ok(())
}

fn everything(object: &Path, log: &mut File) -> std::io::Result<Work> {
    // The start of the process came before the recording. How much CPU time the start took depends
    // on what else runs.
    let process_ns = || load::sys::process_cpu_ns(std::process::id().cast_signed());
    let before_ns = process_ns()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut random = Rng::new(now.as_nanos() as u64);
    let mut drawn = |least: u64, more: u64| least + random.below(more);
    let (burned_ns, instructions) =
        plimsoll_doctor_burns_cpu_time_here(drawn(900, 600) * 1_000_000);
    let waits = wait_for_a_lock(drawn(40, 40));
    let needless = drawn(100, 200);
    for _ in 0..needless {
        read_once_too_often(object)?;
    }
    let requests = drawn(300, 300);
    for number in 0..requests {
        request(log, number)?;
        thread::sleep(Duration::from_millis(1));
    }
    let process_ns = process_ns()? - before_ns;
    Ok(Work { burned_ns, process_ns, instructions, waits, needless, requests })
}

/// Returns the CPU time that it spent, ns, and the instructions of its loop, if they are known.
#[inline(never)]
fn plimsoll_doctor_burns_cpu_time_here(ns: u64) -> (u64, u64) {
    let begin = load::sys::thread_cpu_ns();
    let (mut sum, mut instructions) = (0_u64, 0);
    loop {
        // Long enough that the clock call between two iterations takes a negligible share.
        match ::record::known_loop(400_000) {
            Some(count) => instructions += count,
            None => {
                for step in 0..200_000_u64 {
                    sum = std::hint::black_box(sum.rotate_left(5) ^ step);
                }
            }
        }
        let burned = load::sys::thread_cpu_ns() - begin;
        if burned >= ns {
            return (burned, instructions);
        }
    }
}

/// One thread waits this many times for a lock that another thread holds.
fn wait_for_a_lock(times: u64) -> u64 {
    let lock = Arc::new(Mutex::new(()));
    // The last turns in which the lock was held, requested and acquired.
    let turns = Arc::new([const { AtomicU64::new(0) }; 3]);
    let reached = |turns: &[AtomicU64; 3], which: usize, turn: u64| {
        while turns[which].load(Ordering::SeqCst) < turn {
            thread::sleep(Duration::from_micros(100));
        }
    };
    let (held, asked, got) = (0, 1, 2);
    let waiter = {
        let (lock, turns) = (Arc::clone(&lock), Arc::clone(&turns));
        move || {
            for turn in 1..=times {
                reached(&turns, held, turn);
                turns[asked].store(turn, Ordering::SeqCst);
                drop(lock.lock());
                turns[got].store(turn, Ordering::SeqCst);
            }
        }
    };
    let waiter = thread::spawn(waiter);
    for turn in 1..=times {
        let guard = lock.lock();
        turns[held].store(turn, Ordering::SeqCst);
        reached(&turns, asked, turn);
        thread::sleep(HELD);
        drop(guard);
        reached(&turns, got, turn);
    }
    if waiter.join().is_ok() { times } else { 0 }
}

fn read_once_too_often(object: &Path) -> std::io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    let mut file = File::open(object)?;
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Writes a line in Squid's format.
fn request(log: &mut File, number: u64) -> std::io::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (s, ms) = (now.as_secs(), now.subsec_millis());
    let line = format!(
        "{s}.{ms:03}      1 127.0.0.1 TCP_HIT/200 {FILE_BYTES} GET http://truth.invalid/{number} - \
         HIER_NONE/- text/plain\n"
    );
    log.write_all(line.as_bytes())
}

//! Locks, files and turns, of processes that do a known number of known things.
//!
//! No test asserts a time. Where BPF programs cannot be loaded, the tests check that the trial says
//! why, report that they were skipped, and end.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use record::{Spec, Target, record};
use trial::Trial;
use trial::answers::{AnswerRow, UpstreamRow};
use trial::files::{Direction, FileRow};
use trial::profile::{FrameMode, Owner};
use trial::stretches::{StretchKind, StretchRow, TurnRow};
use trial::waits::{LockKind, WaitRow};

/// How often a puppet repeats its order.
const ROUNDS: u64 = 40;

/// Size of the file that is read, and of a buffer that is too large for it.
const FILE_BYTES: usize = 5_000;
const BUFFER_BYTES: usize = 8_192;

/// A thread that has not begun to wait after this many checks never will.
const CHECKS_MAX: usize = 10_000;

/// The code of the observed processes, not a test: one order per line.
#[test]
fn puppet() {
    let Some(home) = std::env::var_os("PLIMSOLL_TEST_PUPPET") else { return };
    let home = PathBuf::from(home);
    let mut early = File::open(home.join("object")).unwrap();
    // A server listens before it is recorded.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nready");
    for order in std::io::stdin().lines() {
        match order.unwrap().as_str() {
            "contend" => contend(),
            "turns" => turns(&listener, false),
            "later" => turns(&listener, true),
            order if order.starts_with("answer ") => {
                answer(&listener, order["answer ".len()..].parse().unwrap());
            }
            "needless" => times(|| read_with(&home, BUFFER_BYTES, 2)),
            "exact" => times(|| read_with(&home, FILE_BYTES, 1)),
            "write" => times(|| write(&home)),
            "child" => times(|| {
                let cat = Command::new("cat").arg(home.join("object")).output().unwrap();
                assert_eq!(cat.stdout.len(), FILE_BYTES);
            }),
            "unseen" => {
                let mut buffer = [0; 100];
                times(|| assert_eq!(early.read(&mut buffer).unwrap(), 100));
                times(|| map(&home));
            }
            other => panic!("no such order: {other}"),
        }
        // Only a sleep ends the last turn. The recording may end as soon as it reads the line.
        thread::sleep(Duration::from_millis(1));
        println!("\ndone");
    }
}

fn times(what: impl FnMut()) {
    std::iter::repeat_with(what).take(ROUNDS as usize).for_each(drop);
}

fn read_with(home: &Path, bytes: usize, reads: usize) {
    let mut buffer = vec![0; bytes];
    let mut file = File::open(home.join("object")).unwrap();
    for read in 0..reads {
        let expected = if read == 0 { FILE_BYTES } else { 0 };
        assert_eq!(file.read(&mut buffer).unwrap(), expected);
    }
}

fn write(home: &Path) {
    let mut file = File::create(home.join("written")).unwrap();
    file.write_all(&[b'x'; 2_000]).unwrap();
    file.write_all(&[b'y'; 1_000]).unwrap();
}

fn map(home: &Path) {
    let file = File::open(home.join("object")).unwrap();
    // SAFETY: a private mapping of a file that does not change; it is unmapped and never read.
    unsafe {
        let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
        let at = libc::mmap(std::ptr::null_mut(), FILE_BYTES, read, private, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::munmap(at, FILE_BYTES), 0);
    }
}

/// Holds a lock until another thread sleeps for it, once per round.
fn contend() {
    let lock = Arc::new(Mutex::new(()));
    let held = Arc::new(AtomicBool::new(false));
    let number = Arc::new(AtomicU32::new(0));
    let waiter = {
        let (lock, held, number) = (Arc::clone(&lock), Arc::clone(&held), Arc::clone(&number));
        move || {
            // SAFETY: gettid has no preconditions.
            number.store(unsafe { libc::gettid() }.cast_unsigned(), Ordering::SeqCst);
            for _ in 0..ROUNDS {
                until(|| held.load(Ordering::SeqCst));
                drop(lock.lock().unwrap());
                held.store(false, Ordering::SeqCst);
            }
        }
    };
    let waiter = thread::spawn(waiter);
    until(|| number.load(Ordering::SeqCst) != 0);
    let call = format!("/proc/self/task/{}/syscall", number.load(Ordering::SeqCst));
    for _ in 0..ROUNDS {
        let guard = lock.lock().unwrap();
        held.store(true, Ordering::SeqCst);
        let futex = format!("{} ", libc::SYS_futex);
        until(|| fs::read_to_string(&call).unwrap().starts_with(&futex));
        thread::sleep(Duration::from_millis(1));
        drop(guard);
        until(|| !held.load(Ordering::SeqCst));
    }
    waiter.join().unwrap();
}

/// What a waiting call gets: the epoll descriptor, and the socket.
type WaitingCall = (i64, fn(epoll: i32, socket: i32) -> i64);

/// The calls whose returns are turns, by number.
fn waiting_calls() -> [WaitingCall; 7] {
    fn call(number: i64, arguments: [usize; 6]) -> i64 {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: every pointer below is to memory that outlives the call.
        unsafe { libc::syscall(number, a, b, c, d, e, f) }
    }
    fn on_epoll(number: i64, epoll: i32, no_limit: usize) -> i64 {
        let mut found = libc::epoll_event { events: 0, u64: 0 };
        let found = (&raw mut found) as usize;
        call(number, [epoll as usize, found, 1, no_limit, 0, 0])
    }
    fn on_set(number: i64, socket: i32) -> i64 {
        let mut set = [0u64; 16];
        set[socket as usize / 64] |= 1 << (socket % 64);
        call(number, [socket as usize + 1, set.as_mut_ptr() as usize, 0, 0, 0, 0])
    }
    fn on_list(number: i64, socket: i32, no_limit: usize) -> i64 {
        let mut polled = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        call(number, [(&raw mut polled) as usize, 1, no_limit, 0, 0, 0])
    }
    const FOREVER_MS: usize = usize::MAX;
    [
        (libc::SYS_epoll_wait, |epoll, _| on_epoll(libc::SYS_epoll_wait, epoll, FOREVER_MS)),
        (libc::SYS_epoll_pwait, |epoll, _| on_epoll(libc::SYS_epoll_pwait, epoll, FOREVER_MS)),
        (libc::SYS_epoll_pwait2, |epoll, _| on_epoll(libc::SYS_epoll_pwait2, epoll, 0)),
        (libc::SYS_select, |_, socket| on_set(libc::SYS_select, socket)),
        (libc::SYS_pselect6, |_, socket| on_set(libc::SYS_pselect6, socket)),
        (libc::SYS_poll, |_, socket| on_list(libc::SYS_poll, socket, FOREVER_MS)),
        (libc::SYS_ppoll, |_, socket| on_list(libc::SYS_ppoll, socket, 0)),
    ]
}

/// How many bytes the turn of a round receives, each by its own call.
fn receives_of(round: u64) -> u64 {
    1 + round % 3
}

/// An event loop that sleeps in each waiting call in turn, and is woken once per round by its
/// client, which is another thread. The client waits for an answer. `later`: the loop works for it
/// in a turn after that of the receives.
fn turns(listener: &TcpListener, later: bool) {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut served = listener.accept().unwrap().0;
    let socket = served.as_raw_fd();
    // SAFETY: the descriptor is checked, and stays open until the process ends.
    let epoll = unsafe { libc::epoll_create1(0) };
    assert!((0..1024).contains(&socket) && epoll >= 0);
    let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: both descriptors are open, and the kernel copies the interest.
    let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &raw mut interest) };
    assert_eq!(added, 0);
    let number = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: gettid has no preconditions.
            number.store(unsafe { libc::gettid() }.cast_unsigned(), Ordering::SeqCst);
            for (_, wait) in waiting_calls() {
                for round in 0..ROUNDS {
                    assert_eq!(wait(epoll, socket), 1);
                    for _ in 0..receives_of(round) {
                        served.read_exact(&mut [0]).unwrap();
                    }
                    if later {
                        // SAFETY: no list is passed, and the call returns at once.
                        assert_eq!(unsafe { libc::poll(std::ptr::null_mut(), 0, 0) }, 0);
                        burn(LATER);
                    }
                    served.write_all(&[0]).unwrap();
                }
            }
        });
        until(|| number.load(Ordering::SeqCst) != 0);
        let call = format!("/proc/self/task/{}/syscall", number.load(Ordering::SeqCst));
        for (nr, _) in waiting_calls() {
            for round in 0..ROUNDS {
                let waits = format!("{nr} ");
                until(|| fs::read_to_string(&call).unwrap().starts_with(&waits));
                // Together that is several intervals, so that one that is sampled has some.
                thread::sleep(Duration::from_millis(1));
                client.write_all(&vec![0; receives_of(round) as usize]).unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
        }
    });
}

/// CPU time of the work in a later turn.
const LATER: Duration = Duration::from_micros(300);

/// Uses so much CPU time.
fn burn(time: Duration) {
    let used = || {
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the struct outlives the call.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
        Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32)
    };
    let until = used() + time;
    while used() < until {}
}

/// Threads that answer one request at a time, and ask another server for each. There are twice as
/// many clients as threads.
fn answer(listener: &TcpListener, upstream: u16) {
    let (address, rounds) = (listener.local_addr().unwrap(), ROUNDS as usize);
    let one = || {
        let mut upstream = TcpStream::connect(("127.0.0.1", upstream)).unwrap();
        for _ in 0..rounds / ANSWERING {
            let mut client = listener.accept().unwrap().0;
            client.read_exact(&mut [0]).unwrap();
            upstream.write_all(&[0]).unwrap();
            upstream.read_exact(&mut [0]).unwrap();
            client.write_all(&[0]).unwrap();
        }
    };
    let ask = || {
        for _ in 0..rounds / ANSWERING / 2 {
            let mut server = TcpStream::connect(address).unwrap();
            server.write_all(&[0]).unwrap();
            server.read_exact(&mut [0]).unwrap();
        }
    };
    thread::scope(|scope| {
        (0..ANSWERING).for_each(|_| drop(scope.spawn(one)));
        (0..2 * ANSWERING).for_each(|_| drop(scope.spawn(ask)));
    });
}

/// Threads that answer.
const ANSWERING: usize = 2;

/// Answers each byte on each connection, after a while.
fn slow_upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |mut connection: TcpStream| {
        while connection.read_exact(&mut [0]).is_ok() {
            thread::sleep(Duration::from_millis(40));
            connection.write_all(&[0]).unwrap();
        }
    };
    thread::spawn(move || {
        for _ in 0..ANSWERING {
            let connection = listener.accept().unwrap().0;
            thread::spawn(move || answer(connection));
        }
    });
    port
}

/// Polls without a futex, so that only the lock's own are seen.
fn until(done: impl Fn() -> bool) {
    for _ in 0..CHECKS_MAX {
        if done() {
            return;
        }
        thread::sleep(Duration::from_micros(200));
    }
    panic!("the condition was never met");
}

/// A recording of a puppet that does one thing after the first interval was written. `None`, with a
/// message on stderr, if it is not supported here.
fn recorded(order: &str) -> Option<Trial> {
    recorded_with(order, 1)
}

/// The same, with turns in one interval of several.
fn recorded_with(order: &str, turns_every: u32) -> Option<Trial> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("object"), vec![b'o'; FILE_BYTES]).unwrap();
    let mut puppet = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "puppet", "--nocapture", "--quiet"])
        .env("PLIMSOLL_TEST_PUPPET", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = puppet.stdin.take().unwrap();
    let mut stdout = BufReader::new(puppet.stdout.take().unwrap()).lines();
    let mut puppet = KillOnDrop(puppet);
    let mut wait_for = move |word: &str| stdout.any(|line| line.unwrap() == word);
    assert!(wait_for("ready"));
    let mut spec = Spec::new(Target::Pid(puppet.0.id()), None, home.path().join("t.trial"));
    spec.interval = Duration::from_millis(100);
    (spec.locks, spec.files, spec.profile) = (true, true, None);
    spec.turns_every = NonZeroU32::new(turns_every);
    let stop = AtomicBool::new(false);
    let (begun, begins) = mpsc::channel();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            record(&spec, &stop, &mut |_| {
                // Only the first few are received.
                let _ = begun.send(());
            })
        });
        begins.recv().unwrap();
        writeln!(stdin, "{order}").unwrap();
        let done = wait_for("done");
        // The last interval must end with a whole one, because a short remainder is dropped.
        begins.try_iter().for_each(drop);
        begins.iter().take(2).for_each(drop);
        stop.store(true, Ordering::SeqCst);
        assert!(done, "the puppet is gone");
        running.join().unwrap().unwrap();
    });
    drop(stdin);
    puppet.0.wait().unwrap();
    let trial = Trial::open(home.path().join("t.trial")).unwrap();
    supported(&trial).then_some(trial)
}

fn supported(trial: &Trial) -> bool {
    let capabilities = &trial.manifest().capabilities;
    let names = ["locks", "file anatomy", "turns", "answers"];
    let ours: Vec<_> = capabilities.iter().filter(|c| names.contains(&&*c.name)).collect();
    assert_eq!(ours.len(), names.len(), "{capabilities:?}");
    for capability in &ours {
        let why = &capability.reason;
        let excused = ["not permitted", "/sys/kernel/btf", "feature bpf", "x86-64", "namespace"];
        let excused = excused.iter().any(|excuse| why.contains(excuse));
        assert!(capability.supported || excused, "{capability:?}");
        if !capability.supported {
            eprintln!("skipped: {} is not supported here: {why}", capability.name);
        }
    }
    ours.iter().all(|capability| capability.supported)
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The row of files of a size.
fn row(trial: &Trial, direction: Direction, bytes: usize) -> FileRow {
    let bytes = bytes as u64;
    let holds = |row: &&FileRow| {
        row.direction == direction
            && row.size_from <= bytes
            && row.size_below.is_none_or(|below| bytes < below)
    };
    trial.files().iter().find(holds).unwrap_or_else(|| panic!("{:?}", trial.files())).clone()
}

fn lost(trial: &Trial, what: &str) -> u64 {
    trial.losses().iter().filter(|loss| loss.kind.contains(what)).map(|loss| loss.count).sum()
}

#[test]
fn a_contended_lock_is_found_with_its_count_and_its_place() {
    let Some(trial) = recorded("contend") else { return };
    let futexes = trial.waits().iter().filter(|row| row.kind == LockKind::Futex);
    let mut words = std::collections::BTreeMap::<_, Vec<&WaitRow>>::new();
    for row in futexes {
        assert_eq!((row.owner, row.spun_ns), (Owner::Server, 0));
        words.entry(row.word.unwrap()).or_default().push(row);
    }
    let waits = |rows: &Vec<&WaitRow>| rows.iter().map(|row| row.waits).sum::<u64>();
    let rows = words.into_values().max_by_key(waits).unwrap();
    let found = waits(&rows);
    // A woken thread may find the lock taken again and wait once more.
    assert!((ROUNDS..=ROUNDS + ROUNDS / 4).contains(&found), "{found} waits");
    assert!(rows.iter().all(|row| row.max_ns > 0 && row.max_ns <= row.total_ns));
    let place = &trial.stacks()[rows[0].stack as usize];
    let leaf = &trial.frames()[place.frames[0] as usize];
    assert_eq!(leaf.mode, FrameMode::User);
    assert!(leaf.symbol.is_some() && !leaf.module.is_empty(), "{leaf:?}");
}

#[test]
fn a_needless_read_after_a_short_one_is_found() {
    let Some(trial) = recorded("needless") else { return };
    let row = row(&trial, Direction::Read, FILE_BYTES);
    assert_eq!((row.size_from, row.size_below), (4 << 10, Some(5 << 10)));
    assert_eq!((row.objects, row.calls), (ROUNDS, 2 * ROUNDS));
    assert_eq!(row.bytes, ROUNDS * FILE_BYTES as u64);
    assert_eq!((row.needless, row.after_short, row.needless_objects), (ROUNDS, ROUNDS, ROUNDS));
    assert!(0 < row.needless_ns && row.needless_ns < row.calls_ns());
    for delays in [&row.first, &row.total] {
        assert_eq!(delays.histogram_ns().unwrap().len(), ROUNDS);
    }
}

#[test]
fn an_exact_reader_has_no_needless_read() {
    let Some(trial) = recorded("exact") else { return };
    let row = row(&trial, Direction::Read, FILE_BYTES);
    assert_eq!((row.objects, row.calls), (ROUNDS, ROUNDS));
    assert_eq!((row.needless, row.after_short, row.needless_ns), (0, 0, 0));
}

#[test]
fn a_written_file_counts_with_its_size_at_its_close() {
    let Some(trial) = recorded("write") else { return };
    let row = row(&trial, Direction::Written, 3_000);
    assert_eq!((row.objects, row.calls, row.bytes), (ROUNDS, 2 * ROUNDS, ROUNDS * 3_000));
    assert_eq!(row.needless, 0);
}

#[test]
fn children_are_followed_from_their_fork() {
    let Some(trial) = recorded("child") else { return };
    let row = row(&trial, Direction::Read, FILE_BYTES);
    assert!(row.objects >= ROUNDS && row.after_short >= ROUNDS, "{row:?}");
}

#[test]
fn accesses_that_cannot_be_followed_are_counted() {
    let Some(trial) = recorded("unseen") else { return };
    assert_eq!(lost(&trial, "open before"), ROUNDS);
    assert_eq!(lost(&trial, "mapped"), ROUNDS);
    assert!(trial.files().iter().all(|row| row.objects == 0 || row.size_from != 4 << 10));
}

/// The sum of a number over the rows of a kind, and of a size if one is given.
fn sum(trial: &Trial, which: (StretchKind, Option<u32>), number: fn(&StretchRow) -> u64) -> u64 {
    let (kind, size) = which;
    let of = |row: &&StretchRow| row.kind == kind && size.is_none_or(|size| row.size == size);
    trial.stretches().iter().filter(of).map(number).sum()
}

#[test]
fn turns_and_busy_periods_have_the_receives_of_the_event_loop_and_of_its_client() {
    let Some(trial) = recorded("turns") else { return };
    let calls = waiting_calls().len() as u64;
    let received = calls * (0..ROUNDS).map(receives_of).sum::<u64>();
    let total = |number: fn(&TurnRow) -> u64| trial.turns().iter().map(number).sum::<u64>();
    assert_eq!((total(|row| row.turns), total(|row| row.clients)), (ROUNDS * calls, received));
    // The socket of the client has another port.
    assert_eq!(total(|row| row.upstreams), ROUNDS * calls);
    assert_eq!(trial.turns().len(), trial.intervals().len());
    // It sleeps before a turn, unless the machine is busy and the next request is there before.
    let mut first = 0;
    for size in 1..=3 {
        let which = (StretchKind::FirstTurn, Some(size));
        let other = (StretchKind::Turn, Some(size));
        let of_both = |number: fn(&StretchRow) -> u64| {
            sum(&trial, which, number) + sum(&trial, other, number)
        };
        let of_size = |&round: &u64| receives_of(round) == u64::from(size);
        let expected = calls * (0..ROUNDS).filter(of_size).count() as u64;
        assert_eq!(of_both(|row| row.stretches), expected, "{size}");
        assert_eq!(of_both(|row| row.clients), expected * u64::from(size), "{size}");
        first += sum(&trial, which, |row| row.stretches);
        assert!(sum(&trial, which, |row| row.cpu_ns.cast_unsigned()) > 0, "{size}");
    }
    let most = ROUNDS * calls / 2;
    assert!(first > most, "{first} of {} turns came after a sleep", ROUNDS * calls);
    let periods = (StretchKind::Period, None);
    assert_eq!(sum(&trial, periods, |row| row.clients), received);
    assert_eq!(sum(&trial, periods, |row| row.upstreams), ROUNDS * calls);
    assert!(trial.stretches().iter().all(|row| !row.held));
}

/// Python's asyncio answers in the turn after that of the receive: a request seemed to cost a third
/// of its true cost.
#[test]
fn a_turn_without_a_receive_belongs_to_the_one_before() {
    let Some(trial) = recorded("later") else { return };
    let rounds = waiting_calls().len() as u64 * ROUNDS;
    let turns = trial.turns().iter().map(|row| row.turns).sum::<u64>();
    assert_eq!(turns, 2 * rounds);
    let kinds = [StretchKind::FirstTurn, StretchKind::Turn];
    let of_both = |number: fn(&StretchRow) -> u64| {
        kinds.into_iter().map(|kind| sum(&trial, (kind, None), number)).sum::<u64>()
    };
    assert_eq!((of_both(|row| row.stretches), of_both(|row| row.turns)), (rounds, turns));
    let least = rounds * u64::try_from(LATER.as_nanos()).unwrap();
    assert!(of_both(|row| row.cpu_ns.cast_unsigned()) > least);
}

#[test]
fn turns_that_are_sampled_now_and_then_are_whole_ones() {
    let Some(trial) = recorded_with("turns", 2) else { return };
    assert!(trial.turns().len() >= 2 && trial.turns().len() < trial.intervals().len());
    let sampled = |interval: u64| interval.is_multiple_of(2);
    assert!(trial.turns().iter().all(|row| sampled(row.interval) && row.sampled_ns > 0));
    let is_turn = |row: &&StretchRow| row.kind == StretchKind::FirstTurn && row.size > 0;
    let rows: Vec<_> = trial.stretches().iter().filter(is_turn).collect();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(sampled(row.interval), "{row:?}");
        assert_eq!(row.clients, row.stretches * u64::from(row.size), "{row:?}");
    }
}

#[test]
fn threads_that_wait_for_another_server_are_occupied_and_their_clients_wait() {
    let upstream = slow_upstream();
    let Some(trial) = recorded(&format!("answer {upstream}")) else { return };
    let total = |number: fn(&AnswerRow) -> u64| trial.answers().iter().map(number).sum::<u64>();
    assert_eq!((total(|row| row.served), total(|row| row.begun)), (ROUNDS, ROUNDS));
    assert_eq!(total(|row| row.overlapped), 0);
    let most = trial.answers().iter().map(|row| row.at_once).max();
    assert_eq!(most, Some(ANSWERING as u64));
    // Half of the clients find no thread, except at the end.
    let late = total(|row| row.late);
    assert!((ROUNDS / 4..=ROUNDS).contains(&late), "{late}");
    let peer = format!("127.0.0.1:{upstream}");
    let waits: Vec<&UpstreamRow> =
        trial.upstreams().iter().filter(|row| row.peer == peer).collect();
    assert_eq!(waits.iter().map(|row| row.waits).sum::<u64>(), ROUNDS);
    let waited_ns: i64 = waits.iter().map(|row| row.waited_ns).sum();
    let occupied_ns: i64 = trial.answers().iter().map(|row| row.occupied_ns).sum();
    assert!(occupied_ns >= waited_ns && waited_ns > 0, "{occupied_ns} of {waited_ns}");
    let late_ns: i64 = trial.answers().iter().map(|row| row.late_ns).sum();
    assert!(late_ns > 0);
}

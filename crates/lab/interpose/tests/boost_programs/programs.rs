//! Random programs: from a seed to the text of all results.

use std::fmt::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use libc::{c_int, pollfd};

use crate::calls::{self, Wait, block, entry, result_text};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The state of a program.
struct World {
    random: Random,
    log: String,
    /// Descriptors, open or already closed.
    known: Vec<c_int>,
    /// The terminals among them, with the original numbers of both sides: written data arrives
    /// later, so the other side must be known to wait for it.
    terminals: Vec<(c_int, c_int)>,
    /// The array that most polls use, changed a little in between.
    array: Vec<pollfd>,
    sets: [u64; 3],
    steps_left: usize,
    in_child: bool,
    has_helper: bool,
}

/// Descriptors of a program stay below this, like the kernel's first table for select.
const FDS_MAX: c_int = 56;
const EVENTS: [i16; 12] = [
    libc::POLLIN,
    libc::POLLIN,
    libc::POLLIN,
    libc::POLLOUT,
    libc::POLLIN | libc::POLLOUT,
    libc::POLLIN | libc::POLLRDHUP,
    libc::POLLRDHUP,
    libc::POLLRDNORM | libc::POLLWRNORM,
    libc::POLLPRI | libc::POLLRDBAND,
    libc::POLLWRBAND,
    0,
    -1,
];

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn nothing(_: c_int) {}

/// Runs the program of a seed and leaves nothing open.
pub(crate) fn run(seed: u64) -> String {
    // SAFETY: a handler that only adds to an atomic.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGALRM, nothing as *const () as libc::sighandler_t);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    HANDLED.store(0, Ordering::Relaxed);
    let mut random = Random(seed);
    let steps_left = 12 + random.below(40);
    let mut world = World {
        random,
        log: String::new(),
        known: Vec::new(),
        terminals: Vec::new(),
        array: Vec::new(),
        sets: [0; 3],
        steps_left,
        in_child: false,
        has_helper: false,
    };
    for _ in 0..1 + world.random.below(8) {
        world.make();
    }
    let world = if world.random.one_in(3) { with_helper(world) } else { alone(world) };
    for fd in world.known {
        // SAFETY: the program's own descriptors, or unused numbers.
        unsafe { libc::close(fd) };
    }
    world.log
}

fn alone(mut world: World) -> World {
    while world.steps_left > 0 {
        world.step();
    }
    world
}

/// Two threads take turns with the world.
fn with_helper(mut world: World) -> World {
    world.has_helper = true;
    let (to, work) = mpsc::channel::<World>();
    let (back, done) = mpsc::channel::<World>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            block(libc::SIGALRM, true);
            for mut world in work {
                world.some_steps("helper");
                if back.send(world).is_err() {
                    break;
                }
            }
        });
        while world.steps_left > 0 {
            world.some_steps("main");
            to.send(world).expect("the helper waits for it");
            world = done.recv().expect("the helper gives it back");
        }
        drop(to);
        world
    })
}

impl World {
    fn some_steps(&mut self, who: &str) {
        let _ = writeln!(self.log, "{who}");
        for _ in 0..1 + self.random.below(6) {
            if self.steps_left > 0 {
                self.step();
            }
        }
    }

    fn step(&mut self) {
        self.steps_left -= 1;
        let (name, result) = match self.random.below(100) {
            0..12 => ("make", self.make()),
            12..24 => ("write", self.write()),
            24..33 => ("read", self.read()),
            33..37 => ("shutdown", self.shutdown()),
            37..43 => ("close", self.close()),
            43..50 => ("dup", self.dup()),
            50..75 => ("poll", self.poll()),
            75..88 => ("select", self.select()),
            88..91 => ("meanwhile", self.wait_for_another()),
            91..94 => ("signal", self.signal()),
            94..95 => ("alarm", self.alarm()),
            95..97 => ("fork", self.fork()),
            97..98 => ("vfork", self.vfork()),
            _ => ("out of band", self.out_of_band()),
        };
        let handled = HANDLED.load(Ordering::Relaxed);
        let _ = writeln!(self.log, "{name}: {result} ({handled})");
    }

    fn know(&mut self, fd: c_int) {
        if fd >= 0 && !self.known.contains(&fd) {
            self.known.push(fd);
        }
    }

    fn any(&mut self) -> c_int {
        if self.known.is_empty() {
            return FDS_MAX;
        }
        self.known[self.random.below(self.known.len())]
    }

    fn make(&mut self) -> String {
        if self.known.len() as c_int > FDS_MAX - 16 {
            return "enough".to_owned();
        }
        let mut pair = [-1; 2];
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let family = libc::AF_UNIX;
        let kind = self.random.below(8);
        // SAFETY: pairs on this frame, C strings, integers.
        let returned = unsafe {
            match kind {
                0..3 => {
                    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                    libc::socketpair(family, kind, 0, pair.as_mut_ptr())
                }
                3 => {
                    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
                    libc::socketpair(family, kind, 0, pair.as_mut_ptr())
                }
                4 => libc::pipe2(pair.as_mut_ptr(), flags),
                5 => {
                    pair[0] = libc::eventfd(0, libc::EFD_NONBLOCK);
                    0
                }
                6 => {
                    pair[0] = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                    pair[1] = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
                    0
                }
                _ => self.terminal(&mut pair),
            }
        };
        pair.iter().for_each(|&fd| self.know(fd));
        format!("{} {pair:?} of kind {kind}", result_text(returned))
    }

    /// # Safety
    /// No requirements; the calls take pointers to this frame.
    unsafe fn terminal(&mut self, pair: &mut [c_int; 2]) -> c_int {
        // SAFETY: two integers and a termios on this frame; no name, no size.
        unsafe {
            let mut how: libc::termios = std::mem::zeroed();
            libc::cfmakeraw(&raw mut how);
            how.c_cc[libc::VMIN] = 1;
            let [main, other] = pair;
            let done = libc::openpty(main, other, null_mut(), &raw const how, null_mut());
            for fd in [*main, *other] {
                libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
            self.terminals.push((*main, *other));
            done
        }
    }

    fn is_terminal(&self, fd: c_int) -> bool {
        // SAFETY: an integer.
        unsafe { libc::isatty(fd) == 1 }
    }

    fn write(&mut self) -> String {
        let fd = self.any();
        let other = self.terminals.iter().find_map(|&(main, other)| match fd {
            _ if fd == main => Some(other),
            _ if fd == other => Some(main),
            _ => None,
        });
        if self.is_terminal(fd) {
            let Some(other) = other else { return format!("{fd} has no other side") };
            let before = calls::raw_unread(other);
            let written = calls::write(fd, 3);
            calls::raw_wait_for_more(other, before);
            return format!("{fd} terminal {written}");
        }
        // An eventfd needs eight bytes, and its count must not overflow.
        let count = self.random.of(&[1, 8, 8, 100, 4096]);
        let times = if self.random.one_in(6) { 120 } else { 1 };
        let mut last = String::new();
        for _ in 0..times {
            last = calls::write(fd, if self.is_eventfd(fd) { 0 } else { count });
        }
        if self.is_eventfd(fd) {
            let one = 1_u64;
            // SAFETY: eight bytes on this frame.
            last = result_text(unsafe { libc::write(fd, (&raw const one).cast(), 8) } as c_int);
        }
        format!("{fd} {times} x {count}: {last}")
    }

    fn is_eventfd(&self, fd: c_int) -> bool {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|to| to.to_string_lossy().contains("eventfd"))
    }

    fn read(&mut self) -> String {
        let (fd, count) = (self.any(), self.random.of(&[1, 8, 64, 4096, 4096]));
        let times = if self.random.one_in(4) { 200 } else { 1 };
        // A socket that is not non-blocking would sleep.
        // SAFETY: integers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags & libc::O_NONBLOCK == 0 && flags >= 0 {
            return format!("{fd} would sleep");
        }
        let mut last = String::new();
        for _ in 0..times {
            last = calls::read(fd, count);
        }
        format!("{fd} {count}: {last}")
    }

    fn shutdown(&mut self) -> String {
        let (fd, how) = (self.any(), self.random.below(3) as c_int);
        // SAFETY: integers.
        format!("{fd} {how}: {}", result_text(unsafe { libc::shutdown(fd, how) }))
    }

    fn close(&mut self) -> String {
        let fd = self.any();
        let by_range = self.random.one_in(4);
        // SAFETY: the program's own descriptors, or unused numbers.
        let returned = unsafe {
            if by_range { libc::close_range(fd as u32, fd as u32, 0) } else { libc::close(fd) }
        };
        self.lose_terminal(fd);
        // Sometimes the number is forgotten, and another call returns it again.
        if self.random.one_in(3) {
            self.known.retain(|&known| known != fd);
        }
        format!("{fd} {}", result_text(returned))
    }

    /// The number now has another file, or none.
    fn lose_terminal(&mut self, fd: c_int) {
        self.terminals.retain(|&(main, other)| main != fd && other != fd);
    }

    fn dup(&mut self) -> String {
        let (old, new) = (self.any(), self.any());
        let kind = self.random.below(6);
        // SAFETY: integers; only the program's own descriptors are replaced.
        let made = unsafe {
            match kind {
                0 => libc::dup(old),
                1..4 => libc::dup2(old, new),
                4 => libc::dup3(old, new, libc::O_CLOEXEC),
                _ => libc::fcntl(old, libc::F_DUPFD, 3),
            }
        };
        let result = result_text(made);
        if made < FDS_MAX {
            self.know(made);
        } else {
            // SAFETY: it is the program's own.
            unsafe { libc::close(made) };
        }
        self.lose_terminal(made);
        format!("{kind} of {old} onto {new}: {result}")
    }

    fn wait_kind(&mut self) -> Wait {
        self.random.of(&[Wait::Plain, Wait::Plain, Wait::Masked, Wait::Precise])
    }

    /// Changes the array a little, or builds it again.
    fn change_array(&mut self) {
        let wanted = self.random.of(&[1, 3, 8, 20, 40]);
        if self.array.is_empty() || self.random.one_in(6) {
            self.array = (0..wanted).map(|_| self.any_entry()).collect();
        }
        for _ in 0..self.random.below(4) {
            let at = self.random.below(self.array.len());
            match self.random.below(4) {
                0 => self.array[at] = self.any_entry(),
                1 => self.array[at].events = self.random.of(&EVENTS),
                2 if self.array.len() > 1 => drop(self.array.remove(at)),
                _ => {
                    let entry = self.any_entry();
                    self.array.insert(at, entry);
                }
            }
        }
    }

    fn any_entry(&mut self) -> pollfd {
        let fd = match self.random.below(16) {
            0 => -1 - self.random.below(3) as c_int,
            1 => 40 + self.random.below(2000) as c_int,
            _ => self.any(),
        };
        entry(fd, self.random.of(&EVENTS))
    }

    /// Endless only if something is ready.
    fn any_time(&mut self, is_ready: bool) -> c_int {
        match self.random.below(12) {
            0 => 1,
            1..4 if is_ready => -1,
            4..6 if is_ready => 5000,
            6 if is_ready => c_int::MAX,
            _ => 0,
        }
    }

    fn poll(&mut self) -> String {
        self.change_array();
        let wait = self.wait_kind();
        let time = self.any_time(calls::raw_ready(&self.array) > 0);
        let mut array = self.array.clone();
        let text = calls::poll(&mut array, wait, time);
        if self.random.one_in(2) {
            // Like most programs, keep the results in place.
            self.array = array;
        }
        format!("{wait:?} {time}: {text}")
    }

    fn change_sets(&mut self) {
        if self.random.one_in(8) {
            self.sets = [0; 3];
        }
        for _ in 0..1 + self.random.below(6) {
            let (which, fd) = (self.random.below(3), self.any());
            self.sets[which] ^= 1 << (fd % 64);
        }
        if !self.random.one_in(6) {
            // A closed descriptor is an error, which is tested, but not every time.
            for fd in 0..64 {
                // SAFETY: integers.
                if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
                    self.sets.iter_mut().for_each(|set| *set &= !(1 << fd));
                }
            }
        }
    }

    fn select(&mut self) -> String {
        self.change_sets();
        let count = self.random.of(&[64, 64, 64, 40, 17, 100, 0]);
        let sets = self.sets.map(|set| (!self.random.one_in(8)).then_some(set));
        let wait = self.wait_kind();
        let time = self.any_time(self.is_select_ready(sets, count));
        format!("{wait:?} {time}: {}", calls::select(sets, count, wait, time))
    }

    /// Uses a raw select with zero time: a closed descriptor ends the real one at once too.
    fn is_select_ready(&self, sets: [Option<u64>; 3], count: c_int) -> bool {
        let mut words = sets.map(|set| [set.unwrap_or(0), 0]);
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let [read, write, except] = words.each_mut().map(|words| words.as_mut_ptr());
        // SAFETY: sets of two words, which are enough for the count; the rest is on this frame.
        let found = unsafe {
            libc::syscall(libc::SYS_pselect6, count, read, write, except, &raw mut now, 0_usize)
        };
        found != 0
    }

    /// Sleeps until another thread has written.
    fn wait_for_another(&mut self) -> String {
        self.change_array();
        let mut pair = [-1; 2];
        // SAFETY: a pair on this frame.
        unsafe { libc::pipe2(pair.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
        let mut array = self.array.clone();
        array.push(entry(pair[0], libc::POLLIN));
        let (time, wait) = (self.random.of(&[-1, 5000]), self.wait_kind());
        let text = if calls::raw_ready(&array) == 0 {
            let write = || drop(calls::write(pair[1], 1));
            calls::meanwhile(write, || calls::poll(&mut array, wait, time))
        } else {
            calls::poll(&mut array, wait, 0)
        };
        // SAFETY: both are the program's own.
        pair.iter().for_each(|&fd| _ = unsafe { libc::close(fd) });
        format!("{wait:?} {time}: {text}")
    }

    /// A blocked, pending signal, which the wait's mask lets in or not.
    fn signal(&mut self) -> String {
        self.change_array();
        self.change_sets();
        block(libc::SIGUSR1, true);
        // SAFETY: to this thread itself.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
        let (wait, time) = (self.wait_kind(), self.random.of(&[0, 1]));
        let text = if self.random.one_in(2) {
            calls::poll(&mut self.array.clone(), wait, time)
        } else {
            calls::select(self.sets.map(Some), 64, wait, time)
        };
        let before = HANDLED.load(Ordering::Relaxed);
        block(libc::SIGUSR1, false);
        format!("{wait:?} {time}: {text}, handled {before}")
    }

    /// A timer interrupts a wait for an event that does not happen.
    fn alarm(&mut self) -> String {
        if self.has_helper || self.in_child {
            return "not with threads".to_owned();
        }
        self.change_array();
        if calls::raw_ready(&self.array) != 0 {
            return "something is ready".to_owned();
        }
        // Repeated, because the first may come before the wait has started.
        calls::alarm_every(1500);
        let text = calls::poll(&mut self.array.clone(), Wait::Plain, 5000);
        calls::alarm_every(0);
        text
    }

    /// A child does some steps with copies of everything, and the parent continues afterwards.
    fn fork(&mut self) -> String {
        if self.in_child {
            return "not again".to_owned();
        }
        const ROOM: usize = 1 << 16;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping; the child writes within it and ends by `_exit`, the parent reads
        // it when the child is gone.
        unsafe {
            let memory = libc::mmap(null_mut(), ROOM, access, flags, -1, 0).cast::<u8>();
            let seed = self.random.next();
            let child = libc::fork();
            if child == 0 {
                self.in_child = true;
                self.random = Random(seed);
                self.log = String::new();
                for _ in 0..3 + self.random.below(8) {
                    self.steps_left = 2;
                    self.step();
                }
                let bytes = &self.log.as_bytes()[..self.log.len().min(ROOM - 1)];
                memory.copy_from(bytes.as_ptr(), bytes.len());
                libc::_exit(0);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            let text = std::ffi::CStr::from_ptr(memory.cast()).to_string_lossy().into_owned();
            libc::munmap(memory.cast(), ROOM);
            format!("child {status}\n{text}end of the child")
        }
    }

    /// A child that shares the memory, but not the descriptors, closes some.
    fn vfork(&mut self) -> String {
        let fds = [self.any(), self.any(), self.any()];
        format!("status {}", vfork_and_close(&fds))
    }

    fn out_of_band(&mut self) -> String {
        let fd = self.any();
        let bytes = [b'!'];
        // SAFETY: one byte.
        let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), 1, libc::MSG_OOB) };
        format!("{fd} {}", result_text(sent as c_int))
    }
}

unsafe extern "C" {
    fn vfork() -> libc::pid_t;
}

#[inline(never)]
fn vfork_and_close(fds: &[c_int; 3]) -> c_int {
    let mut status = 0;
    // SAFETY: the child calls functions of the C library only, and ends by `_exit`; the parent goes
    // on when it is gone.
    unsafe {
        let child = vfork();
        if child == 0 {
            libc::close(fds[0]);
            libc::close(fds[1]);
            libc::dup2(0, fds[2]);
            libc::_exit(7);
        }
        libc::waitpid(child, &raw mut status, 0);
    }
    status
}

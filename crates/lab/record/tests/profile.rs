//! The profile of processes that use CPU time in procedures whose names the test knows.
//!
//! No test asserts a time. Where perf events are not permitted, the tests say so and end; a
//! recording without them is tested too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use record::{ProfileSpec, Spec, Summary, Target, record};
use trial::Trial;
use trial::profile::{Frame, FrameMode, Owner};

const ROLE: &str = "PLIMSOLL_TEST_BURNER";

/// A child of the tests that uses CPU time until it is killed.
struct Burner(Child);

impl Burner {
    fn start(role: &str) -> Burner {
        Burner(burner(role).spawn().unwrap())
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn burner(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "burner_runs", "--quiet"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// The code of the observed processes, not a test. They also end by themselves, in case nothing is
/// left to kill them.
#[test]
fn burner_runs() {
    match std::env::var(ROLE).as_deref() {
        Ok("burns") => {
            for _ in 0..20_000 {
                the_known_caller();
            }
        }
        Ok("makes code") => run_made_code(),
        Ok("starts others") => {
            for _ in 0..200 {
                // Short-lived processes one after the other, each with its own address space.
                let mut child = burner("lives shortly").spawn().unwrap();
                child.wait().unwrap();
            }
        }
        Ok("lives shortly") => {
            for _ in 0..20 {
                the_known_caller();
            }
        }
        _ => {}
    }
}

#[inline(never)]
fn the_known_caller() {
    for round in 0..10 {
        black_box(the_known_cpu_loop(black_box(round)));
    }
}

#[inline(never)]
fn the_known_cpu_loop(seed: u64) -> u64 {
    let mut number = seed | 1;
    let mut round = 0;
    while round < 100_000 {
        round += 1;
        // No call here, optimised or not.
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
    }
    number
}

/// Makes a loop at run time, writes its name where tools look for it, and runs it.
#[cfg(target_arch = "x86_64")]
fn run_made_code() {
    // mov rcx, rdi; again: dec rcx; jnz again; ret
    const LOOP: [u8; 9] = [0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3];
    // SAFETY: a new mapping, filled with a procedure of the C convention that takes a number and
    // changes nothing except a caller-saved register.
    let made: extern "C" fn(u64) = unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, all, kind, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(LOOP.as_ptr(), page.cast(), LOOP.len());
        let name = format!("{:x} {:x} made_code\n", page as usize, LOOP.len());
        std::fs::write(format!("/tmp/perf-{}.map", std::process::id()), name).unwrap();
        std::mem::transmute(page)
    };
    for _ in 0..20_000 {
        made(1_000_000);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn run_made_code() {}

/// A recording with enough samples of the server. It gets longer if the server gets little CPU
/// time.
fn recorded(pid: u32, home: &Path) -> (Summary, Trial) {
    let mut seconds = 1;
    loop {
        let spec = Spec {
            interval: Duration::from_millis(100),
            duration: Some(Duration::from_secs(seconds)),
            profile: Some(ProfileSpec { hz: 499 }),
            overwrite: true,
            ..Spec::new(Target::Pid(pid), None, home.join("out.trial"))
        };
        let summary = record(&spec, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let trial = Trial::open(&summary.out).unwrap();
        let few = trial.profile_info().is_some_and(|info| info.server_samples < 40);
        if !few || seconds > 8 {
            return (summary, trial);
        }
        seconds *= 3;
    }
}

/// Why there is no profile, if there is none.
fn unsupported(trial: &Trial) -> Option<String> {
    let capability = trial.manifest().capabilities.iter().find(|c| c.name == "profile").unwrap();
    (!capability.supported).then(|| capability.reason.clone())
}

/// Samples of the server by the procedure that ran, and how many of them it was called by `caller`.
fn procedures(trial: &Trial, caller: &str) -> BTreeMap<Frame, (u64, u64)> {
    let frame = |number: u32| &trial.frames()[number as usize];
    let is = |frame: &Frame, name: &str| frame.symbol.as_ref().is_some_and(|s| s.contains(name));
    let mut found: BTreeMap<Frame, (u64, u64)> = BTreeMap::new();
    for row in trial.samples().iter().filter(|row| row.owner == Owner::Server) {
        let stack = &trial.stacks()[row.stack as usize].frames;
        let counts = found.entry(frame(stack[0]).clone()).or_default();
        counts.0 += u64::from(row.samples);
        if stack[1..].iter().any(|&number| is(frame(number), caller)) {
            counts.1 += u64::from(row.samples);
        }
    }
    found
}

fn top(procedures: &BTreeMap<Frame, (u64, u64)>) -> (&Frame, (u64, u64)) {
    let (frame, counts) = procedures.iter().max_by_key(|(_, counts)| counts.0).unwrap();
    (frame, *counts)
}

#[test]
fn the_busy_procedure_is_on_top_with_its_callers_below() {
    let home = tempfile::tempdir().unwrap();
    let burner = Burner::start("burns");
    let (_, trial) = recorded(burner.0.id(), home.path());
    if let Some(why) = unsupported(&trial) {
        eprintln!("skipped: {why}");
        return;
    }
    let info = trial.profile_info().unwrap();
    assert_eq!(info.hz, 499);
    assert!(info.server_samples > 10, "{info:?}");
    let sum = |owner: Option<Owner>| -> u64 {
        let of = |row: &&trial::profile::SampleRow| owner.is_none_or(|owner| row.owner == owner);
        trial.samples().iter().filter(of).map(|row| u64::from(row.samples)).sum()
    };
    assert_eq!(info.samples, sum(None));
    assert_eq!(info.server_samples, sum(Some(Owner::Server)));

    let procedures = procedures(&trial, "the_known_caller");
    let (frame, (samples, called)) = top(&procedures);
    assert!(
        frame.symbol.as_ref().is_some_and(|s| s.contains("the_known_cpu_loop")),
        "{procedures:?}"
    );
    assert_eq!(frame.mode, FrameMode::User);
    let exe = std::env::current_exe().unwrap();
    assert_eq!(Some(frame.module.as_str()), exe.file_name().unwrap().to_str());
    // It does nothing else; the remainder is interrupts.
    assert!(samples * 10 >= info.server_samples * 8, "{samples} of {info:?}");
    if cfg!(target_arch = "x86_64") {
        assert!(called * 10 >= samples * 9, "{called} of {samples}");
        assert!(info.unwound_whole * 10 >= info.user_samples * 9, "{info:?}");
    }

    // Each sample represents its part of the time. In an interval, they add up to at most the time
    // of all CPUs, plus one sample each.
    let cpus = i64::from(trial.manifest().host.cpus);
    for interval in trial.intervals() {
        let rows = trial.samples().iter().filter(|row| row.interval == interval.index);
        let ns: i64 = rows.map(|row| row.ns).sum();
        let grain = 2 * 1_000_000_000 / 499;
        assert!(ns <= cpus * (interval.length_ns + grain), "{ns} in {}", interval.length_ns);
    }
    let known = |index| trial.intervals().iter().any(|interval| interval.index == index);
    assert!(trial.samples().iter().all(|row| known(row.interval)));
}

#[test]
fn short_lived_processes_between_two_samples_are_named() {
    let home = tempfile::tempdir().unwrap();
    let starter = Burner::start("starts others");
    let (_, trial) = recorded(starter.0.id(), home.path());
    if let Some(why) = unsupported(&trial) {
        eprintln!("skipped: {why}");
        return;
    }
    let procedures = procedures(&trial, "the_known_caller");
    let busy = procedures
        .iter()
        .find(|(frame, _)| frame.symbol.as_ref().is_some_and(|s| s.contains("the_known_cpu_loop")));
    let (_, &(samples, called)) = busy.unwrap_or_else(|| panic!("{procedures:?}"));
    assert!(samples > 2, "{procedures:?}");
    if cfg!(target_arch = "x86_64") {
        assert!(called * 10 >= samples * 8, "{called} of {samples}");
    }
}

#[test]
fn a_deleted_program_is_named() {
    let home = tempfile::tempdir().unwrap();
    let exe = home.path().join("replaced");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let mut command = Command::new(&exe);
    command
        .args(["--exact", "burner_runs", "--quiet"])
        .env(ROLE, "burns")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // A child that another test starts at this moment inherits the new file open for writing, until
    // it executes another program.
    let child = (0..500).find_map(|_| match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
            std::thread::sleep(Duration::from_millis(10));
            None
        }
        spawned => Some(spawned.unwrap()),
    });
    let burner = Burner(child.unwrap());
    std::fs::remove_file(&exe).unwrap();
    let (_, trial) = recorded(burner.0.id(), home.path());
    if let Some(why) = unsupported(&trial) {
        eprintln!("skipped: {why}");
        return;
    }
    let procedures = procedures(&trial, "the_known_caller");
    let (frame, _) = top(&procedures);
    assert_eq!(frame.module, "replaced");
    assert!(frame.symbol.as_ref().is_some_and(|s| s.contains("the_known_cpu_loop")), "{frame:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_made_at_run_time_has_its_declared_name() {
    let home = tempfile::tempdir().unwrap();
    let burner = Burner::start("makes code");
    let names = format!("/tmp/perf-{}.map", burner.0.id());
    let (_, trial) = recorded(burner.0.id(), home.path());
    let _ = std::fs::remove_file(names);
    if let Some(why) = unsupported(&trial) {
        eprintln!("skipped: {why}");
        return;
    }
    let procedures = procedures(&trial, "burner_runs");
    let (frame, _) = top(&procedures);
    assert_eq!((frame.symbol.as_deref(), frame.module.as_str()), (Some("made_code"), "[jit]"));
}

#[test]
fn without_permission_to_sample_only_the_profile_is_missing() {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let burner = Burner::start("burns");
    let pid = burner.0.id();
    let path = home.path().to_owned();
    // The raw system call changes only this thread, which then loses root's rights.
    let (summary, trial) = std::thread::spawn(move || {
        const NOBODY: libc::uid_t = 65_534;
        // SAFETY: a system call on numbers. It fails if we are not root, which is equally good.
        unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        recorded(pid, &path)
    })
    .join()
    .unwrap();
    assert!(trial.complete() && summary.intervals >= 5);
    let Some(why) = unsupported(&trial) else {
        eprintln!("skipped: every user may sample here");
        return;
    };
    assert!(why.contains("perf events"), "{why}");
    assert!(trial.samples().is_empty() && trial.profile_info().is_none());
    let server: i64 = trial.intervals().iter().map(|i| i.server.unwrap().total_ns).sum();
    assert!(server > 0);
}

#[test]
fn a_recording_without_a_requested_profile_has_none() {
    let home = tempfile::tempdir().unwrap();
    let burner = Burner::start("burns");
    let spec = Spec {
        interval: Duration::from_millis(100),
        duration: Some(Duration::from_millis(200)),
        profile: None,
        ..Spec::new(Target::Pid(burner.0.id()), None, home.path().join("out.trial"))
    };
    let summary = record(&spec, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let trial = Trial::open(&summary.out).unwrap();
    assert!(unsupported(&trial).is_some_and(|why| why.contains("not requested")));
    assert!(trial.samples().is_empty());
}

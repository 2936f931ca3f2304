//! The sandbox: processes that each do one step and start the next.
//!
//! ```text
//! outside: run()       starts /proc/self/exe with a role; root becomes a user that owns nothing
//!   isolate            makes the namespaces and the limits, then the first process inside
//!     init             process 1: the root, the network, the server, the requests
//!       origin         in its own network namespace
//!       the server     without capabilities
//! ```
//!
//! A step that fails prints an [`Outcome`], and the outside reports it. If `init` ends, the kernel
//! ends every process of the namespace. If a process above it ends, the kernel ends `init`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use runtime::process::disinherit;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getgid, getuid, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_no_new_privs,
};

use crate::job::{Job, Outcome};
use crate::limits::{
    ADDRESS_BYTES_MAX, CPU_SECONDS_MAX, OPEN_FILES_MAX, PROCESSES_MAX, REPORT_BYTES_MAX, REQUESTS,
    SANDBOX, START, WRITTEN_BYTES_MAX,
};
use crate::{Failed, client, network, origin, root};

/// The name of the hidden command, and its roles.
pub const ROLES: [&str; 3] = ["isolate", "init", "origin"];
/// The hidden command.
const COMMAND: &str = "import-inside";
/// This program, also where its file is not to be seen.
const OURSELVES: &str = "/proc/self/exe";
/// The user and the group that own nothing.
const UNPRIVILEGED: u32 = 65534;
/// The user inside. A server that is not root ignores which user to become.
const INSIDE: u32 = 1000;
const LOG: &str = "/try/log";

/// Runs a job in a sandbox.
pub(crate) fn run(job: &Job, program: &File) -> Result<Outcome, Failed> {
    let refused = |why: &str, error: io::Error| Failed::Sandbox(format!("{why}: {error}"));
    let mut command = started(&format!("/proc/self/fd/{}", program.as_raw_fd()), ROLES[0]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
    if getuid().is_root() {
        if !has_unprivileged() {
            let why = format!("root runs it as the user {UNPRIVILEGED}, and there is none here");
            return Err(Failed::Sandbox(format!("{why}: run the command as another user")));
        }
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    let child = command.spawn();
    let mut child = child.map_err(|error| refused("its first process cannot be started", error))?;
    let text = serde_json::to_vec(job).expect("a job has a form in JSON");
    let (mut to, mut from) = (child.stdin.take(), child.stdout.take());
    // A process that has ended reads nothing. Its output says why.
    let writer = thread::spawn(move || to.as_mut().map(|to| to.write_all(&text)));
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        // One byte more, so that a longer report is not a whole one.
        let from = from.as_mut().map(|from| from.take(REPORT_BYTES_MAX + 1));
        let read = from.map(|mut from| from.read_to_end(&mut bytes));
        let _ = sender.send(bytes);
        read
    });
    let output = receiver.recv_timeout(SANDBOX);
    // It has written everything, or its time is over.
    let _ = child.kill();
    let _ = child.wait();
    let _ = (writer.join(), reader.join());
    match output {
        Ok(bytes) if bytes.len() as u64 > REPORT_BYTES_MAX => {
            Err(Failed::Ended(format!("reported more than {REPORT_BYTES_MAX} bytes")))
        }
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(Outcome::NoSandbox(why)) => Err(Failed::Sandbox(plain(&why))),
            Ok(Outcome::NotPermitted(why)) => Err(Failed::NotPermitted(plain(&why))),
            Ok(Outcome::NotStarted(why)) => Ok(Outcome::NotStarted(plain(&why))),
            Ok(outcome) => Ok(outcome),
            Err(_) => {
                let text = plain(&String::from_utf8_lossy(&bytes));
                Err(Failed::Ended(format!("ended early: {text}")))
            }
        },
        Err(_) => Err(Failed::Ended(format!("did not end in {} s", SANDBOX.as_secs()))),
    }
}

/// The start of a text from the sandbox, without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT_CHARS_MAX).collect()
}

/// Characters of an error.
const TEXT_CHARS_MAX: usize = 1000;

/// A copy of this program in memory that cannot be written to. What the sandbox does to the file
/// that it runs never reaches the file of the machine.
pub(crate) fn copied() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know that it may be run, and need not.
    let made = memfd_create("plimsoll", flags | MemfdFlags::EXEC)
        .or_else(|_| memfd_create("plimsoll", flags))?;
    let mut copy = File::from(made);
    io::copy(&mut File::open(OURSELVES)?, &mut copy)?;
    fcntl_add_seals(
        &copy,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(copy)
}

/// Whether the user that owns nothing exists in our user namespace.
fn has_unprivileged() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let own = u64::from(UNPRIVILEGED);
        matches!(numbers[..], [first, _, count] if (first..first + count).contains(&own))
    })
}

fn ourselves(role: &str) -> Command {
    started(OURSELVES, role)
}

fn started(program: &str, role: &str) -> Command {
    let mut command = Command::new(program);
    command.args([COMMAND, role]).env_clear().envs(ENVIRONMENT.iter().copied());
    command.stderr(Stdio::null());
    command
}

const ENVIRONMENT: &[(&str, &str)] =
    &[("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/tmp")];

/// Plays a role of the hidden command.
pub fn inside(role: &str) {
    let outcome = match role {
        "isolate" => isolate().map(|()| None),
        "init" => init().map(Some),
        _ => play_origin().map(|()| None),
    };
    let outcome = outcome.unwrap_or_else(|why| {
        Some(match why.strip_prefix(NOT_PERMITTED) {
            Some(why) => Outcome::NotPermitted(why.to_owned()),
            None => Outcome::NoSandbox(why),
        })
    });
    if let Some(outcome) = outcome {
        let text = serde_json::to_vec(&outcome).expect("an outcome has a form in JSON");
        // If the outside has ended, its end ends us too.
        let _ = io::stdout().write_all(&text);
    }
}

/// The capabilities of the first process, until the sandbox is complete.
const CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_RESOURCE);

/// How the error of a step begins that the settings of the machine can permit.
const NOT_PERMITTED: &str = "not permitted: ";

/// Keeps the memory, the files and the program of this process from all other processes of the
/// sandbox. Each program that is run has to do so again.
fn be_closed() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("it cannot be closed to other processes: {error}"))
}

/// The kinds of namespaces.
const KINDS: [&str; 8] = ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup", "time"];

/// Allows no more namespaces: in one, a process would have capabilities again.
fn allow_no_namespaces() -> Result<(), String> {
    KINDS.iter().try_for_each(|kind| {
        let file = format!("/proc/sys/user/max_{kind}_namespaces");
        match fs::write(&file, "0") {
            // An older kernel has no namespaces of time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written.map_err(|error| format!("{file}: {error}")),
        }
    })
}

#[expect(deprecated, reason = "unshare() is unsound with FILES only, which is not used")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "files are shared by the threads of a process");
    Ok(rustix::thread::unshare(flags)?)
}

fn isolate() -> Result<(), String> {
    fn step<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
        move |error| format!("{what}: {error}")
    }
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(step("no signal of the end"))?;
    disinherit().map_err(step("what it has from the caller"))?;
    // If memory is short, this is the first to end.
    fs::write("/proc/self/oom_score_adj", "1000").map_err(step("oom_score_adj"))?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    unshare(flags).map_err(|error| format!("{NOT_PERMITTED}{error}"))?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file}: {error}"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{INSIDE} {uid} 1"))?;
    write("gid_map", format!("{INSIDE} {gid} 1"))?;
    set_no_new_privs(true).map_err(step("no_new_privs"))?;
    let all = CapabilitySets {
        effective: CAPABILITIES,
        permitted: CAPABILITIES,
        inheritable: CAPABILITIES,
    };
    set_capabilities(None, all).map_err(step("capabilities"))?;
    for capability in CAPABILITIES.iter() {
        configure_capability_in_ambient_set(capability, true).map_err(step("capabilities"))?;
    }
    for (resource, most) in [
        (Resource::Nofile, OPEN_FILES_MAX),
        (Resource::As, ADDRESS_BYTES_MAX),
        (Resource::Fsize, WRITTEN_BYTES_MAX),
        (Resource::Cpu, CPU_SECONDS_MAX),
        (Resource::Nproc, PROCESSES_MAX),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(step("limits"))?;
    }
    be_closed()?;
    let init = ourselves(ROLES[1]).status().map_err(step("its first process"))?;
    if init.success() { Ok(()) } else { Err(format!("its first process ended with {init}")) }
}

fn init() -> Result<Outcome, String> {
    be_closed()?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| format!("no job: {error}"))?;
    let job: Job = serde_json::from_str(&text).map_err(|error| format!("no job: {error}"))?;
    root::enter(&job)?;
    network::loopback(&job.addresses).map_err(|error| format!("its loopback: {error}"))?;
    let mut beyond = start_origin(&job)?;
    fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
        .map_err(|error| format!("low ports: {error}"))?;
    allow_no_namespaces()?;
    give_up_capabilities()?;
    let near = origin::Origin::new(&job.origin, 'n')?;
    near.resolve(&[1, 11, 53].map(|last| Ipv4Addr::new(127, 0, 0, last)));
    let mut server = match start_server(&job) {
        Ok(server) => server,
        Err(why) => return Ok(Outcome::NotStarted(why)),
    };
    if let Err(why) = wait_until_ready(&job, &mut server) {
        return Ok(Outcome::NotStarted(format!("{why}: {}", end_of_log())));
    }
    // If the server listens on such an address, it is its own upstream.
    near.listen(&job.origin.loopback);
    let until = Instant::now() + REQUESTS;
    let mut answers = Vec::new();
    for request in &job.requests {
        if Instant::now() >= until {
            break;
        }
        answers.push(client::ask(request));
    }
    if let Ok(Some(status)) = server.try_wait() {
        let why = format!("it ended with {status} during the requests: {}", end_of_log());
        return Ok(Outcome::NotStarted(why));
    }
    // The namespace ends with us. These are only the names of what ends.
    let _ = (server.kill(), beyond.kill());
    Ok(Outcome::Answers(answers))
}

fn give_up_capabilities() -> Result<(), String> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    clear_ambient_capability_set()
        .and_then(|()| set_capabilities(None, none))
        .map_err(|error| format!("capabilities: {error}"))
}

/// Starts the origin in its own network namespace, and connects the two.
fn start_origin(job: &Job) -> Result<Child, String> {
    let fails = |error: io::Error| format!("its origin: {error}");
    let mut command = ourselves(ROLES[2]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fails)?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("its origin has no pipes".to_owned());
    };
    let mut from = BufReader::new(from);
    let mut expect = |word: &str| {
        let mut line = String::new();
        from.read_line(&mut line).map_err(fails)?;
        if line.trim() == word { Ok(()) } else { Err(format!("its origin: {line}")) }
    };
    let text = serde_json::to_string(&job.origin).expect("an origin has a form in JSON");
    writeln!(to, "{text}").map_err(fails)?;
    expect("apart")?;
    let connected = network::connect(child.id());
    connected.map_err(|error| format!("no pair of virtual interfaces (veth): {error}"))?;
    writeln!(to).map_err(fails)?;
    expect("listening")?;
    // It ends with the namespace.
    std::mem::forget(to);
    Ok(child)
}

fn play_origin() -> Result<(), String> {
    be_closed()?;
    let mut lines = io::stdin().lines();
    let mut line = || lines.next().and_then(Result::ok).ok_or("no line of the first process");
    let settings = serde_json::from_str(&line()?).map_err(|error| error.to_string())?;
    unshare(UnshareFlags::NEWNET).map_err(|error| format!("a network namespace: {error}"))?;
    println!("apart");
    line()?;
    network::accept_all().map_err(|error| format!("its network: {error}"))?;
    give_up_all_but_ports()?;
    let origin = origin::Origin::new(&settings, 'f')?;
    let addresses: Vec<SocketAddr> =
        settings.ports.iter().map(|port| (Ipv4Addr::UNSPECIFIED, *port).into()).collect();
    origin.listen(&addresses);
    origin.resolve(&settings.resolvers);
    println!("listening");
    loop {
        thread::park();
    }
}

/// The origin reads only what the server sends, but needs no more than low ports for it.
fn give_up_all_but_ports() -> Result<(), String> {
    let ports = CapabilitySet::NET_BIND_SERVICE;
    let sets =
        CapabilitySets { effective: ports, permitted: ports, inheritable: CapabilitySet::empty() };
    clear_ambient_capability_set()
        .and_then(|()| set_capabilities(None, sets))
        .map_err(|error| format!("capabilities: {error}"))
}

fn start_server(job: &Job) -> Result<Child, String> {
    let log = File::create(LOG).map_err(|error| format!("{LOG}: {error}"))?;
    let errors = log.try_clone().map_err(|error| format!("{LOG}: {error}"))?;
    let program = job.program.as_deref().unwrap_or(Path::new(OURSELVES));
    let mut command = Command::new(program);
    command.args(&job.arguments).env_clear().envs(ENVIRONMENT.iter().copied());
    command.current_dir("/try").stdin(Stdio::null()).stdout(log).stderr(errors);
    command.spawn().map_err(|error| format!("{}: {error}", program.display()))
}

fn wait_until_ready(job: &Job, server: &mut Child) -> Result<(), String> {
    let until = Instant::now() + START;
    loop {
        let pause = Duration::from_millis(50);
        let accepts = |at: &SocketAddr| TcpStream::connect_timeout(at, pause).is_ok();
        if job.listens.iter().any(accepts) {
            return Ok(());
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        if Instant::now() >= until {
            return Err(format!("it accepts no connection at {:?}", job.listens));
        }
        thread::sleep(pause);
    }
}

/// The last lines that the server wrote.
fn end_of_log() -> String {
    let text = fs::read(LOG).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("[warn]")).collect();
    // The compiler of Varnish says first what is wrong.
    let first = lines.iter().position(|line| line.starts_with("Message from"));
    let first = first.unwrap_or(lines.len().saturating_sub(4));
    let last: String = lines[first..].iter().take(6).copied().collect::<Vec<_>>().join("; ");
    last.chars().filter(|c| !c.is_control()).take(1000).collect()
}

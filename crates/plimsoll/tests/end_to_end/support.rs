//! Helpers of the tests: a directory, commands that run to their end, servers that are ended.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::PLIMSOLL;

/// Timeout for quick actions on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A test with a load shares the machine with no other test of this process.
static MACHINE: RwLock<()> = RwLock::new(());

/// The directory of a test, readable by servers with other users, and its share of the machine.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    _share: Share,
}

impl Drop for Home {
    fn drop(&mut self) {
        let all = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let ours = self.segments();
        for one in all.filter(|one| one.file_name().to_string_lossy().starts_with(&ours)) {
            let _ = fs::remove_file(one.path());
        }
    }
}

/// Held as long as the directory. A failing test ends its load when its guards are dropped, so a
/// poisoned lock can be ignored.
enum Share {
    Shared { _lock: RwLockReadGuard<'static, ()> },
    Alone { _lock: RwLockWriteGuard<'static, ()> },
}

impl Home {
    /// For most tests.
    pub(crate) fn new() -> Home {
        let lock = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Home::with(Share::Shared { _lock: lock })
    }

    /// For a measurement, or a server that is replaced under load: no other test of the process
    /// runs at the same time. Its name begins with `alone_`: by that, `make test` knows these
    /// tests, and runs them one after another, beside other programs.
    pub(crate) fn alone() -> Home {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        assert!(name == "main" || name.contains("alone_"), "{name}: begin its name with alone_");
        let lock = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Home::with(Share::Alone { _lock: lock })
    }

    fn with(share: Share) -> Home {
        let dir = tempfile::Builder::new().prefix("plimsoll-test-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Home { dir, _share: share }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The beginning of the names of Squid's segments of shared memory.
    fn segments(&self) -> String {
        let name = self.path().file_name().unwrap_or_default().to_string_lossy();
        name.chars().filter(char::is_ascii_alphanumeric).collect()
    }

    /// Flags of a Squid in the foreground. Segments of shared memory have the name of its service,
    /// and those of one that was killed keep another one with this name from starting.
    pub(crate) fn squid(&self, name: &str, conf: &str) -> [String; 5] {
        let service = self.segments() + name;
        ["-N", "-n", &service, "-f", conf].map(str::to_owned)
    }

    /// The path of a file in it, for a flag.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path().join(name)).unwrap()).into_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path().join(name), bytes).unwrap();
        self.at(name)
    }
}

/// The output of a finished command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    /// Asserts that it succeeded.
    #[track_caller]
    pub(crate) fn succeeded(self) -> CommandOutput {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts exit code 2 and one line of output that contains all `words`.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let line = self.stderr.strip_suffix('\n').unwrap_or_else(|| panic!("{self:?}"));
        assert!(!line.contains('\n'), "more than one line: {line}");
        assert!(line.starts_with("plimsoll: "), "{line}");
        for word in words {
            assert!(line.contains(word), "no {word:?} in: {line}");
        }
    }
}

/// Runs plimsoll until it ends.
#[track_caller]
pub(crate) fn plimsoll<S: AsRef<str>>(args: &[S]) -> CommandOutput {
    let mut command = Command::new(PLIMSOLL);
    command.args(args.iter().map(S::as_ref));
    run(command, SOON)
}

/// Runs a command until it ends. The test fails if that takes longer than `patience`.
#[track_caller]
pub(crate) fn run(mut command: Command, patience: Duration) -> CommandOutput {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let mut child = Running { child, what: format!("{command:?}") };
    let code = child.ended(patience).code();
    CommandOutput { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A child process. Dropping it ends it by its pid.
pub(crate) struct Running {
    child: Child,
    what: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let what = format!("{command:?}");
        match command.stdin(Stdio::null()).spawn() {
            Ok(child) => Running { child, what },
            Err(error) => panic!("{what}: {error}"),
        }
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent =
            Command::new("sh").args(["-c", &format!("kill -{name} {}", self.pid())]).status();
        assert!(sent.unwrap().success(), "cannot send {name} to {}", self.what);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn ended(&mut self, patience: Duration) -> ExitStatus {
        wait_for(&format!("the end of {}", self.what), patience, || self.child.try_wait().unwrap())
    }

    /// The pipe that it writes to.
    pub(crate) fn stdout(&mut self) -> &mut impl Read {
        self.child.stdout.as_mut().unwrap()
    }

    /// Everything that it wrote to its pipes, until it ends.
    pub(crate) fn remaining_output(&mut self) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_string(&mut out).unwrap();
        }
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut err).unwrap();
        }
        (out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        // SIGTERM first: the nginx master then ends its workers, which SIGKILL would leave running.
        let _ = Command::new("sh").args(["-c", &format!("kill {}", self.pid())]).status();
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(50));
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until there is a result.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + patience;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < until, "waited {patience:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server of this program, which announces its addresses in a line of JSON.
pub(crate) struct OurServer {
    pub(crate) child: Running,
    pub(crate) announced: Value,
}

impl OurServer {
    pub(crate) fn serve(flags: &[&str]) -> OurServer {
        let mut all = vec!["serve", "--json", "--listen", "127.0.0.1:0"];
        all.extend(flags);
        OurServer::start(&all)
    }

    pub(crate) fn configured(file: &str) -> OurServer {
        OurServer::start(&["serve", "--json", "-c", file])
    }

    pub(crate) fn origin() -> OurServer {
        OurServer::start(&["origin", "--listen", "127.0.0.1:0"])
    }

    pub(crate) fn null_server() -> OurServer {
        OurServer::start(&["null-server", "--listen", "127.0.0.1:0"])
    }

    fn start(args: &[&str]) -> OurServer {
        OurServer::started(Command::new(PLIMSOLL).args(args))
    }

    /// Starts it with a command that execs it.
    pub(crate) fn started(command: &mut Command) -> OurServer {
        let what = format!("{command:?}");
        let mut child = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(child.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let announced = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("{what}: {error}: {line:?}, {}", child.remaining_output().1)
        });
        OurServer { child, announced }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.announced["listen"][0].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.announced["admin"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Stops it with SIGTERM. Returns its exit code and its stderr.
    pub(crate) fn stopped(mut self) -> (Option<i32>, String) {
        self.child.signal("TERM");
        let status = self.child.ended(SOON);
        (status.code(), self.child.remaining_output().1)
    }
}

/// A process that replaced another one and so is not our child. Ended with the test.
pub(crate) struct Successor(pub(crate) u32);

impl Successor {
    /// The process named in the answer to a restart.
    #[track_caller]
    pub(crate) fn of(answer: &str) -> Successor {
        let pid = answer.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
        Successor(pid.and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{answer:?}")))
    }

    #[track_caller]
    pub(crate) fn restart(admin: SocketAddr) -> Successor {
        let output = plimsoll(&["restart", "--admin", &admin.to_string()]).succeeded();
        Successor::of(&output.stdout)
    }

    pub(crate) fn lives(&self) -> bool {
        // A zombie does not.
        fs::read_to_string(format!("/proc/{}/stat", self.0))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Successor {
    /// Waits until it has ended, after a signal if one is given.
    #[track_caller]
    pub(crate) fn ends(&self, signal: Option<&str>) {
        if let Some(signal) = signal {
            let kill = format!("kill -{signal} {}", self.0);
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        }
        wait_for("the end of a successor", SOON, || (!self.lives()).then_some(()));
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if self.lives() {
            let _ = Command::new("sh").args(["-c", &format!("kill {}", self.0)]).status();
        }
    }
}

/// A running recording.
pub(crate) struct Recording(pub(crate) Running);

impl Recording {
    /// Starts it and waits for its baseline. From then on no request is missed. Without a log, the
    /// requests are counted on the sockets.
    pub(crate) fn start(
        home: &Home,
        pid: &str,
        log: &str,
        trial: &str,
        interval: &str,
    ) -> Recording {
        let out = home.at(trial);
        let flags = ["--pid", pid, "--interval", interval, "-o", &out];
        let source: &[&str] = if log.is_empty() { &[] } else { &["--access-log", log] };
        let child = Running::start(
            Command::new(PLIMSOLL)
                .args(["record", "--json"])
                .args(flags)
                .args(source)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let mut recording = Recording(child);
        wait_for("the recording's first interval", SOON, || {
            assert!(!recording.0.has_ended(), "{:?}", recording.0.remaining_output());
            let opened = plimsoll(&["report", "--json", &out]);
            // There is no line yet, but an interval.
            (opened.code == Some(0)).then_some(())
        });
        recording
    }

    /// Interrupts it as Ctrl-C does, and returns its summary.
    #[track_caller]
    pub(crate) fn interrupted(mut self) -> Value {
        self.0.signal("INT");
        let status = self.0.ended(SOON);
        let (out, err) = self.0.remaining_output();
        assert!(status.success(), "{status}: {err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out:?}"))
    }
}

/// A port on which nothing listened a moment ago, and which no other test gets.
pub(crate) fn free_port() -> u16 {
    harness::peer::free_address().unwrap().port()
}

/// An address that accepts connections and serves each in a thread, which ends with it. Dropping it
/// ends the accepting.
pub(crate) struct Accepting {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Accepting {
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Accepting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, serve) = (Arc::new(AtomicBool::new(false)), Arc::new(serve));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), serve) = (stream, Arc::clone(&serve)) else { continue };
                std::thread::spawn(move || serve(stream));
            }
        });
        Accepting { address, stop, thread: Some(thread) }
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a connection has for us now. A read with a time limit that a signal interrupts is not
/// repeated by the kernel (signal(7)), so this repeats it.
pub(crate) fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Sends one request on a new connection and returns the whole response.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn am_root() -> bool {
    id("-u", None) == "0"
}

/// The output of `id`.
pub(crate) fn id(flag: &str, user: Option<&str>) -> String {
    let output = Command::new("id").arg(flag).args(user).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The path of a program. A missing program fails the test, because an unmeasured peer must not
/// look like a measured one.
#[track_caller]
pub(crate) fn program(name: &str, package: &str) -> PathBuf {
    // Servers are in sbin, which is not in every user's PATH.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|there| there.is_file())
        .unwrap_or_else(|| {
            panic!("{name} is missing: apt-get install -y --no-install-recommends {package}")
        })
}

/// nginx with its files in this directory, and with these lines of its `http` block. It is a single
/// process, so that one kill ends the whole server. Waits until it listens on the port.
pub(crate) fn nginx(at: &Path, port: u16, http: &str) -> Running {
    let user = if am_root() { "user root;" } else { "" };
    let (conf, errors) = (at.join("nginx.conf"), File::create(at.join("nginx.err")).unwrap());
    let log = at.join("error.log");
    let at = at.display();
    let text = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; {user}
         events {{ worker_connections 1024; }}
         http {{
           access_log off;
           client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
           uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
           {http}
         }}"
    );
    fs::write(&conf, text).unwrap();
    let mut command = Command::new(program("nginx", "nginx-light"));
    command.arg("-e").arg(log).arg("-c").arg(conf).stdout(Stdio::null()).stderr(errors);
    let child = Running::start(&mut command);
    wait_for("nginx", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    child
}

/// A browser without a screen, whose profile is in this folder.
pub(crate) fn chromium(home: &Home) -> Command {
    let mut chromium = Command::new(program("chromium", "chromium"));
    chromium.env("HOME", home.path()).args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        &format!("--user-data-dir={}", home.at("browser")),
    ]);
    chromium
}

/// A file for a child's output.
pub(crate) fn output_file(home: &Home, name: &str) -> File {
    File::create(home.path().join(name)).unwrap()
}

/// A server with these quotas in front of our origin.
pub(crate) fn limited(home: &Home, quotas: &str) -> (OurServer, OurServer) {
    let origin = OurServer::origin();
    let file = format!(
        "[server]\nworkers = 2\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"origin\"\n[[upstream.server]]\nurl = \"{}\"\n{quotas}",
        origin.url()
    );
    (OurServer::configured(&home.write("p.toml", file)), origin)
}

//! A panic ends the process. The server runs in a child process, which is this program again.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Cores of the child.
const CORES: usize = 3;
/// Connections that are opened until one comes to a certain core.
const TRIES_MAX: usize = 1000;

/// What the child does, its origin, its address, and its log.
const PLAN: [&str; 4] =
    ["PLIMSOLL_TEST_PANIC", "PLIMSOLL_TEST_ORIGIN", "PLIMSOLL_TEST_LISTEN", "PLIMSOLL_TEST_LOG"];

/// Panics where a core logs that an upstream gave no answer: within an exchange.
struct PanicsOn(String);

impl Subscriber for PanicsOn {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target() == "exchange::fetch"
    }

    fn event(&self, _: &Event<'_>) {
        assert_ne!(thread::current().name(), Some(&self.0[..]), "planted\x1b[2J");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The child: it serves until it panics.
fn serve_until_panic(how: String) {
    let [_, origin, listen, log] = PLAN.map(|name| std::env::var(name).unwrap_or_default());
    let origin = OriginUrl::from_url(&origin).unwrap();
    let mut config = Config::reverse([origin], &[listen.parse().unwrap()]);
    let memory: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (cores, log) = match how == "hit" {
        // Each line is handed over at once, where the hit is served.
        true => {
            config.log_format = format!("squid:{}", "x".repeat(64 * 1024)).parse().unwrap();
            (1, LogTo::Memory(Arc::clone(&memory)))
        }
        false => (CORES, LogTo::Writer(LogWriter::open(log.as_ref()).unwrap())),
    };
    tracing::subscriber::set_global_default(PanicsOn(how.clone())).unwrap();
    if how.starts_with("core-") {
        server::end_process_at_panic(&log);
    }
    let server = Server::start(config, cores, None, log, &Options::default()).unwrap();
    println!("listening on {}", server.bound().listen[0]);
    if !how.starts_with("core-") {
        std::io::stdin().read_line(&mut String::new()).unwrap();
        // The line of the request before is written after its response was sent.
        while how == "hit" && memory.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let holds = thread::spawn(move || {
            let _held = memory.lock().unwrap();
            panic!("so that the next writer panics");
        });
        assert!(holds.join().is_err());
        server::end_process_at_panic(&LogTo::Off);
        println!("armed");
    }
    if how == "control" {
        let panics = || panic!("planted");
        thread::Builder::new().name(how).spawn(panics).unwrap();
    }
    server.wait();
}

/// The child, and what it says.
struct Panicking {
    child: Child,
    address: SocketAddr,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: thread::JoinHandle<String>,
}

impl Drop for Panicking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Panicking {
    fn start(how: &str, origin: &Origin, listen: &str, log: &std::path::Path) -> Panicking {
        let log = log.to_str().unwrap();
        let values = [how, &format!("http://{}", origin.address), listen, log];
        // Without a core file.
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -c 0; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "panics::a_panic_of_another_thread_ends_the_process", "--nocapture"])
            .envs(PLAN.into_iter().zip(values))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || std::io::read_to_string(stderr).unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = said(&mut stdout, "listening on ").parse().unwrap();
        Panicking { child, address, stdout, stderr }
    }

    /// Lets it go on. It has installed its hook when this returns.
    fn arm(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        said(&mut self.stdout, "armed");
    }

    /// How it ended, and what it said.
    fn ended(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < until, "it goes on without the core"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        let stderr = std::mem::replace(&mut self.stderr, thread::spawn(String::new));
        (status, stderr.join().unwrap())
    }
}

/// The rest of the line that contains this.
fn said(stdout: &mut Lines<BufReader<ChildStdout>>, what: &str) -> String {
    stdout
        .find_map(|line| Some(line.unwrap().split_once(what)?.1.to_owned()))
        .expect("the child says it")
}

/// Whether the rule of the unit starts a service again that has ended so (systemd.service(5)).
fn is_started_again(status: ExitStatus) -> bool {
    let unit = include_str!("../../../../../packaging/plimsoll.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let excepted = ["RestartPreventExitStatus", "SuccessExitStatus"].map(value);
    assert_eq!((value("Restart"), excepted), (Some("on-failure"), [None, None]));
    // SIGHUP, SIGINT, SIGPIPE and SIGTERM are a clean end.
    match status.signal() {
        Some(signal) => ![1, 2, 13, 15].contains(&signal),
        None => status.code() != Some(0),
    }
}

/// One request on a new connection; `None` if the connection ends without a response.
fn ask(address: SocketAddr, target: &str) -> Option<Response> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    fill(&mut stream, &mut Vec::new(), |buf| read_response(buf, false, false).ok())
        .map(|(response, _)| response)
}

/// Asks until the server has ended. What it answers is whole.
fn load(address: SocketAddr, until: &AtomicBool) {
    let began = Instant::now();
    for number in 0.. {
        let target = format!("/l{}?size=3000&cc=max-age=600", number % 50);
        match ask(address, &target) {
            Some(response) => assert_eq!(response.body, expected(&target)),
            None if until.load(Ordering::Acquire) => return,
            None => {}
        }
        assert!(began.elapsed() < 2 * PATIENCE, "it answers for ever");
    }
}

/// A core that had panicked got its share of the connections, and answered none.
#[test]
fn a_panic_of_each_core_in_turn_ends_the_process_under_load() {
    let (origin, dir) = (Origin::start(), tempfile::tempdir().unwrap());
    let log = dir.path().join("access.log");
    let mut listen = "127.0.0.1:0".to_owned();
    for core in (0..CORES).map(|core| format!("core-{core}")) {
        let server = Panicking::start(&core, &origin, &listen, &log);
        let address = server.address;
        // It is started again at the address that the one before had.
        listen = address.to_string();
        let mut silent: Vec<_> = (0..8).map(|_| Client::to(address)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|_| Arc::clone(&is_over))
            .map(|is_over| thread::spawn(move || load(address, &is_over)))
            .collect();
        let written = || std::fs::read_to_string(&log).unwrap();
        while !written().contains("/l0?") {
            thread::sleep(Duration::from_millis(10));
        }
        let target = "/boom?break=1";
        let tries = (0..TRIES_MAX).take_while(|_| ask(address, target).is_some()).count();
        let (status, stderr) = server.ended();
        is_over.store(true, Ordering::Release);
        clients.into_iter().for_each(|client| client.join().unwrap());
        for client in &mut silent {
            let read = client.stream.read(&mut [0]).map_err(|error| error.kind());
            assert!(matches!(read, Ok(0) | Err(ErrorKind::ConnectionReset)), "{read:?}");
        }
        assert!(TcpStream::connect(address).is_err());
        assert!(tries < TRIES_MAX && is_started_again(status), "{tries}, {status}");
        assert_eq!(status.signal(), Some(6), "{stderr}");
        for part in [
            &format!("PANIC in thread {core}: ")[..],
            ": planted\\u{1b}[2J",
            "tests/real/panics.rs:",
            "exchange/src/fetch/",
            "while serving GET /boom?break=1 HTTP/1.1\n",
        ] {
            assert!(stderr.contains(part), "no {part:?} in {stderr}");
        }
        assert!(written().ends_with('\n'));
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn a_panic_while_a_hit_is_served_names_its_request() {
    let origin = Origin::start();
    let mut server = Panicking::start("hit", &origin, "127.0.0.1:0", "".as_ref());
    let target = "/hit?size=10&cc=max-age=600";
    assert_eq!(ask(server.address, target).unwrap().status, 200);
    server.arm();
    assert!(ask(server.address, target).is_none());
    let (status, stderr) = server.ended();
    assert_eq!((status.signal(), origin.count(target)), (Some(6), 1), "{stderr}");
    let named = format!("while serving GET {target} HTTP/1.1\n");
    assert!(stderr.contains("PANIC in thread core-0: ") && stderr.contains(&named), "{stderr}");
}

/// This test is the child, too.
#[test]
fn a_panic_of_another_thread_ends_the_process() {
    if let Ok(how) = std::env::var(PLAN[0]) {
        return serve_until_panic(how);
    }
    let (origin, dir) = (Origin::start(), tempfile::tempdir().unwrap());
    let log = dir.path().join("access.log");
    let mut server = Panicking::start("control", &origin, "127.0.0.1:0", &log);
    server.arm();
    let (status, stderr) = server.ended();
    assert_eq!(status.signal(), Some(6), "{stderr}");
    assert!(stderr.contains("PANIC in thread control: planted\n"), "{stderr}");
    assert!(!stderr.contains("while serving"), "{stderr}");
}

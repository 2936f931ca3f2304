//! The commands in the documents, run as printed.
//!
//! Each marked block of a document is run, in order, in the directory of the test (`blocks.rs` has
//! the marks). [`Page`] replaces ports, paths and times by those of the test. A command that
//! serves goes on beside the blocks after it; so does a recording, until a block needs it.

pub(crate) mod blocks;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use blocks::{Around, Block, Mark, blocks, commands, documents, lines};

use crate::PLIMSOLL;
use crate::lab::made;
use crate::support::{
    Home, OurServer, Running, SOON, free_port, nginx, output_file, plimsoll, program, run, wait_for,
};

/// Commands that serve until they are stopped.
const SERVERS: &[&str] = &["plimsoll serve", "plimsoll boost", "python3 -m"];
/// Commands that use these addresses if there is no flag.
const DEFAULTS: &[(&str, &str)] = &[
    ("plimsoll explain", "--admin 127.0.0.1:3129"),
    ("plimsoll purge", "--admin 127.0.0.1:3129"),
    ("plimsoll init reverse", "--listen 127.0.0.1:3128 --admin 127.0.0.1:3129"),
];
/// Commands whose exit code is a verdict: any documented one is right.
const JUDGES: &[&str] = &["plimsoll compare", "plimsoll what-if"];

/// What a document names, and what the test uses instead, replaced in this order. `PORT` is a free
/// port, `HOME` the directory of the test.
const REPLACED: &[(&str, &str)] = &[
    ("127.0.0.1:3128", "127.0.0.1:PORT"),
    ("127.0.0.1:3129", "127.0.0.1:PORT"),
    ("127.0.0.1:8000", "127.0.0.1:PORT"),
    ("127.0.0.1:8080", "127.0.0.1:PORT"),
    // Every nginx is recorded; the requests are those of the log.
    ("--keep /tmp/lab/days --name nginx", "--keep /tmp/lab/days --name=nginx"),
    ("/tmp/", "HOME/"),
    ("$(pgrep -f 'plimsoll serve.*plimsoll-store')", "$SERVER"),
    ("--name nginx", "--pid $MEASURED --interval 100ms"),
    ("/var/log/nginx/access.log", "HOME/nginx.log"),
    // With --keep, the time to load the BPF programs counts, seconds on a busy machine.
    ("\"$request\"' --for 60s", "\"$request\"' --for 12s"),
    // A recording and the load on it, in seconds.
    ("--for 60s", "--for 3s"),
    ("--for 55s", "--for 2s --connections 8"),
    ("--rate 100..15000", "--rate 100..2000"),
    ("/access.log \\\n", "/access.log --interval 100ms \\\n"),
    ("--disk-bytes 256M", "--disk-bytes 64M"),
    // The event notification depends on the kernel.
    ("(epoll)", "(...)"),
    // Three seconds may be too short for a line.
    ("Limit      hottest thread (nginx, ...); it can use one CPU", "Limit      ..."),
    ("Cost       ... µs of CPU per request; ...", "..."),
    ("--group select", "--group tcp"),
    ("--group file-io", "--group tcp"),
];

/// A document that is run.
struct Page {
    home: Home,
    /// Replacements with their ports and paths.
    replaced: Vec<(&'static str, String)>,
    /// The command that started a server, and the server.
    servers: Vec<(String, Running)>,
    recordings: Vec<Running>,
    around: Vec<(Around, Vec<OurServer>)>,
    /// Another server that is measured, and its port. It gets a load with each recording.
    nginx: Option<(Running, u16)>,
    /// What the commands since the last text printed.
    output: String,
}

/// The server of the tutorial runs in the background.
impl Drop for Page {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.home.path().join("lab/nginx.pid")) {
            let _ = Command::new("sh").args(["-c", &format!("kill {}", pid.trim())]).status();
        }
    }
}

impl Page {
    fn new() -> Page {
        let home = Home::new();
        let replaced = REPLACED
            .iter()
            .map(|(text, instead)| {
                let instead = instead.replace("PORT", &free_port().to_string());
                let instead = instead.replace("HOME", &home.path().display().to_string());
                (*text, instead)
            })
            .collect();
        let (servers, recordings, around) = (Vec::new(), Vec::new(), Vec::new());
        Page { home, replaced, servers, recordings, around, nginx: None, output: String::new() }
    }

    fn replaced(&self, text: &str) -> String {
        let default = DEFAULTS.iter().find(|(name, _)| text.starts_with(name));
        let text = match default.filter(|_| !text.contains("--admin")) {
            Some((name, flags)) => text.replacen(name, &format!("{name} {flags}"), 1),
            None => text.to_owned(),
        };
        // A server that takes a port without an address.
        let port = self.instead("127.0.0.1:8000").rsplit(':').next().unwrap();
        let text = text.replace("http.server 8000", &format!("http.server {port}"));
        self.replaced.iter().fold(text, |text, (from, to)| text.replace(from, to))
    }

    /// What the test uses instead of this text.
    fn instead(&self, text: &str) -> &str {
        let found = self.replaced.iter().find(|(from, _)| *from == text);
        &found.unwrap_or_else(|| panic!("{text}")).1
    }

    /// Starts what a block needs, once.
    fn surround(&mut self, around: Around) {
        if self.around.iter().any(|(there, _)| *there == around) {
            return;
        }
        let servers = match around {
            Around::Nothing => Vec::new(),
            Around::Proxy => {
                let origin = OurServer::origin();
                let (listen, admin) =
                    (self.instead("127.0.0.1:3128"), self.instead("127.0.0.1:3129"));
                let flags = ["--listen", listen, "--admin", admin, "--origin", &origin.url()];
                vec![OurServer::serve(&flags), origin]
            }
            Around::Trials => {
                made(&self.home, "monday.trial", 20.0, 30.0);
                made(&self.home, "tuesday.trial", 10.0, 30.0);
                Vec::new()
            }
        };
        self.around.push((around, servers));
    }

    /// A command of the document, in the directory of the test.
    fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let program = Path::new(PLIMSOLL).parent().unwrap().display().to_string();
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(self.home.path());
        command.env("PATH", format!("{program}:{path}:/usr/local/sbin:/usr/sbin:/sbin"));
        let pid = |running: Option<&Running>| running.map_or(String::new(), Running::pid);
        command.env("SERVER", pid(self.servers.last().map(|(_, server)| server)));
        command.env("MEASURED", pid(self.nginx.as_ref().map(|(nginx, _)| nginx)));
        command
    }

    fn run_line(&mut self, at: &str, line: &str) {
        let first = commands(line).into_iter().next().unwrap_or_default();
        let name = first.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
        let line = self.replaced(line);
        if SERVERS.contains(&name.as_str()) {
            return self.serve(&line, &name);
        }
        if name == "plimsoll record" {
            return self.record(&line);
        }
        if name != "plimsoll load" {
            self.finish_recordings();
        }
        // To a file: a daemon would keep a pipe open.
        let script = format!("exec > output.log 2>&1\nset -e -o pipefail\n{line}");
        let code = run(self.command(&script), SOON).code;
        let output = self.home.read("output.log");
        let is_verdict = JUDGES.contains(&name.as_str()) && matches!(code, Some(1 | 2));
        let before = &self.output;
        assert!(code == Some(0) || is_verdict, "{at}: {line}: {code:?}\n{output}\n{before}");
        self.output.push_str(&output);
    }

    /// Starts a server and waits until it listens. As in the document, it takes the place of one
    /// that the same command started.
    fn serve(&mut self, line: &str, name: &str) {
        let is_proxy = name == "plimsoll serve";
        let listen = if is_proxy { "127.0.0.1:3128" } else { "127.0.0.1:8000" };
        let listen = self.instead(listen).to_owned();
        self.servers.retain(|(there, _)| there != name);
        let log = format!("server-{}.log", self.servers.len());
        let mut command = self.command(&format!("exec {line}"));
        command.stdout(Stdio::null()).stderr(output_file(&self.home, &log));
        let server = Running::start(&mut command);
        wait_for(line, SOON, || TcpStream::connect(&listen).ok());
        // The last line that it prints.
        let last = match (is_proxy, line.contains("--admin")) {
            (false, _) => "",
            (true, true) => "metrics on",
            (true, false) => "listening on",
        };
        let printed = wait_for(line, SOON, || {
            let text = self.home.read(&log);
            text.contains(last).then_some(text)
        });
        self.output.push_str(&printed);
        self.servers.push((name.to_owned(), server));
    }

    fn record(&mut self, line: &str) {
        let log = format!("recording-{}.log", self.recordings.len());
        let mut command = self.command(&format!("exec {line}"));
        command.stdout(output_file(&self.home, &log)).stderr(Stdio::null());
        let mut recording = Running::start(&mut command);
        let after = |flag| line.split_once(flag)?.1.split_whitespace().next();
        let trial = after("-o ").or_else(|| after("--keep ")).unwrap().to_owned();
        wait_for(line, SOON, || {
            assert!(!recording.has_ended(), "{line}: {}", self.home.read(&log));
            self.home.has(&trial).then_some(())
        });
        self.recordings.push(recording);
        if let Some((_, port)) = self.nginx {
            let load = format!("plimsoll load http://127.0.0.1:{port}/ --rate 100..2000 --for 2s");
            // All its answers are 404.
            run(self.command(&load), SOON);
        }
    }

    fn finish_recordings(&mut self) {
        for (at, mut recording) in std::mem::take(&mut self.recordings).into_iter().enumerate() {
            let log = self.home.read(&format!("recording-{at}.log"));
            assert!(recording.ended(SOON).success(), "{log}");
            self.output.push_str(&self.home.read(&format!("recording-{at}.log")));
        }
    }

    /// Checks that the lines of a block were printed, in this order. `...` is any text.
    fn check_output(&mut self, at: &str, expected: &str) {
        self.finish_recordings();
        let output = std::mem::take(&mut self.output);
        let mut printed = output.lines();
        for line in expected.lines().filter(|line| !line.trim().is_empty()) {
            let line = self.replaced(line);
            let parts: Vec<&str> = line.split("...").map(str::trim).collect();
            let fits = |text: &str| {
                let mut rest = text;
                parts.iter().all(|part| match rest.find(part) {
                    Some(found) => {
                        rest = &rest[found + part.len()..];
                        true
                    }
                    None => false,
                })
            };
            assert!(printed.any(fits), "{at}: {line:?} is not in, or not in order:\n{output}");
        }
    }

    /// Runs the blocks of a document that are marked. Returns how many.
    fn run_document(&mut self, path: &str, text: &str) -> usize {
        let blocks = blocks(text).unwrap_or_else(|why| panic!("{path}:{why}"));
        let mut count = 0;
        for Block { line, language, mark, text } in &blocks {
            let at = format!("{path}:{line}");
            match mark {
                Mark::Run(around) => {
                    assert_eq!(language, "sh", "{at}");
                    self.surround(*around);
                    lines(text).iter().for_each(|line| self.run_line(&at, line));
                    count += 1;
                }
                Mark::Prints => self.check_output(&at, text),
                Mark::None | Mark::NotRun => {}
            }
        }
        self.finish_recordings();
        count
    }
}

/// Runs all documents for which this holds. Returns the number of blocks.
fn run_documents(choose: impl Fn(&str) -> bool) -> usize {
    let chosen = documents().into_iter().filter(|(path, _)| choose(path));
    let marked = chosen.filter(|(_, text)| text.contains("<!-- run"));
    marked.map(|(path, text)| Page::new().run_document(&path, &text)).sum()
}

const CACHE: &str = "docs/tutorial-cache.md";
const MEASURE: &str = "docs/tutorial-measure.md";

#[test]
fn the_tutorial_of_the_cache_works_as_printed() {
    assert!(run_documents(|path| path == CACHE) >= 12);
}

#[test]
fn the_tutorial_of_measuring_works_as_printed() {
    program("nginx", "nginx-light");
    assert!(run_documents(|path| path == MEASURE) >= 10);
}

#[test]
fn the_other_documents_work_as_printed() {
    assert!(run_documents(|path| path != CACHE && path != MEASURE) >= 8);
}

#[test]
fn the_lines_to_type_first_work_as_printed() {
    for (screen, count) in [(&[][..], 7), (&["serve"][..], 4)] {
        let screen = plimsoll(screen).stderr;
        let shown: Vec<&str> = screen.lines().filter_map(|l| l.strip_prefix("    ")).collect();
        let shown = lines(&shown.join("\n"));
        assert_eq!(shown.len(), count, "{screen}");
        let mut page = Page::new();
        page.surround(Around::Nothing);
        let log = page.home.at("nginx.log");
        let port = free_port();
        fs::create_dir(page.home.path().join("nginx")).unwrap();
        let http = format!("server {{ listen 127.0.0.1:{port}; access_log {log} combined; }}");
        page.nginx = Some((nginx(&page.home.path().join("nginx"), port, &http), port));
        shown.iter().for_each(|line| page.run_line("the first lines", line));
        page.finish_recordings();
    }
}

//! Real origins that answer with the paths that they read.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{self, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::ports;

/// How many there are.
pub(super) const ORIGINS: usize = 11;

/// A running origin.
pub(super) struct Origin {
    pub(super) name: &'static str,
    port: u16,
    shows: Shows,
    running: Running,
}

/// A path that an origin has read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    pub(super) bytes: Vec<u8>,
    /// The program does not decode it.
    pub(super) is_encoded: bool,
}

impl Path {
    fn decoded(bytes: Vec<u8>) -> Path {
        Path { bytes, is_encoded: false }
    }

    fn of_line(line: &str) -> Path {
        let (digits, is_encoded) = match line.strip_prefix('%') {
            Some(digits) => (digits, true),
            None => (line, false),
        };
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
        Path { bytes: (0..digits.len()).step_by(2).map(byte).collect(), is_encoded }
    }
}

/// How an answer shows the paths.
#[derive(Clone, Copy)]
enum Shows {
    /// The body is the path.
    Body,
    /// Each line of the body is a path in hexadecimal digits, after a percent sign if the path is
    /// not decoded.
    Lines,
    /// The field `X-Path` is the path in Base64.
    Field,
}

/// Starts one in a directory, at a port.
type Start = fn(&path::Path, u16) -> Running;

impl Origin {
    /// Starts all of them. A missing one fails the test.
    pub(super) fn start_all(home: &path::Path) -> Vec<Origin> {
        let start: [(&'static str, Shows, Start); ORIGINS] = [
            ("nginx", Shows::Body, |home, port| nginx(home, port, "")),
            ("nginx, merge_slashes off", Shows::Body, |home, port| {
                nginx(home, port, "merge_slashes off;")
            }),
            ("Apache, AllowEncodedSlashes On", Shows::Field, |home, port| apache(home, port, "On")),
            ("Apache, AllowEncodedSlashes NoDecode", Shows::Field, |home, port| {
                apache(home, port, "NoDecode")
            }),
            ("lighttpd, SCGI", Shows::Lines, lighttpd),
            ("Node", Shows::Lines, |home, port| {
                let file = write(home, "node.js", include_str!("node.js"));
                script(home, "node", &[&program("node", "nodejs"), &file, &port])
            }),
            ("Python, WSGI", Shows::Lines, |home, port| {
                let file = write(home, "wsgi.py", include_str!("wsgi.py"));
                script(home, "wsgi", &[&PYTHON, &file, &port])
            }),
            ("Python, ASGI", Shows::Lines, |home, port| {
                let file = write(home, "asgi.py", include_str!("asgi.py"));
                script(home, "asgi", &[&PYTHON, &file, &port])
            }),
            ("PHP", Shows::Lines, |home, port| {
                let file = write(home, "router.php", include_str!("router.php"));
                let at = format!("127.0.0.1:{port}");
                script(home, "php", &[&program("php", "php-cli"), &"-S", &at, &file])
            }),
            ("Go", Shows::Lines, go),
            ("Tomcat", Shows::Lines, tomcat),
        ];
        // Compilers and virtual machines take their time, so all begin at once.
        std::thread::scope(|scope| {
            let begun = start.map(|(name, shows, start)| {
                scope.spawn(move || {
                    let port = free_port();
                    Origin { name, port, shows, running: start(home, port) }.ready()
                })
            });
            begun.into_iter().map(|one| one.join().expect("each origin starts")).collect()
        })
    }

    fn ready(mut self) -> Origin {
        let begun = Instant::now();
        while !self.reads("/ready").iter().any(|path| path.bytes == b"/ready") {
            let (name, log) = (self.name, || fs::read_to_string(&self.running.log));
            assert!(self.running.child.try_wait().unwrap().is_none(), "{name}: {:?}", log());
            assert!(begun.elapsed() < PATIENCE, "{name} is not ready: {:?}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// The paths that it reads in this one; none if it refuses the request.
    pub(super) fn reads(&self, path: &str) -> Vec<Path> {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return Vec::new();
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A server that refuses a request may reset the connection.
        let _ = stream.read_to_end(&mut answer);
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Vec::new();
        };
        let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
        let status = head.split(' ').nth(1);
        match self.shows {
            Shows::Body if status == Some("200") => vec![Path::decoded(body.to_vec())],
            Shows::Lines if status == Some("200") => {
                String::from_utf8_lossy(body).lines().map(Path::of_line).collect()
            }
            Shows::Field if status == Some("204") => {
                let path = head.lines().find_map(|line| line.strip_prefix("X-Path: "));
                let path = STANDARD.decode(path.expect("the field is set"));
                vec![Path::decoded(path.expect("Base64"))]
            }
            _ => Vec::new(),
        }
    }
}

/// The Python that Debian's packages are for.
const PYTHON: &str = "/usr/bin/python3";
/// The longest time that an origin takes to start on a busy machine, or to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that ends with the test.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of a program. A missing one fails the test: an origin that was not asked must not look
/// like one that was.
fn program(name: &str, package: &str) -> String {
    // Servers are in sbin, which is not in every user's PATH.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|it| it.is_file());
    match found {
        Some(program) => program.display().to_string(),
        None => panic!("{name} is missing: apt-get install -y --no-install-recommends {package}"),
    }
}

fn free_port() -> u16 {
    ports::free_address().unwrap().port()
}

fn write(home: &path::Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let file = home.join(name);
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn directory(home: &path::Path, name: &str) -> String {
    let directory = home.join(name);
    fs::create_dir(&directory).unwrap();
    directory.display().to_string()
}

fn am_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn script(home: &path::Path, name: &str, words: &[&dyn Display]) -> Running {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let log = home.join(format!("{name}.err"));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(File::create(&log).unwrap()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    Running { child, log }
}

fn nginx(home: &path::Path, port: u16, more: &str) -> Running {
    let at = directory(home, &format!("nginx-{port}"));
    let user = if am_root() { "user root;" } else { "" };
    let conf = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; {user}
         events {{ worker_connections 64; }}
         http {{
           access_log off;
           client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
           uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
           server {{ listen 127.0.0.1:{port}; {more} location / {{ return 200 $uri; }} }}
         }}"
    );
    let conf = write(home, &format!("nginx-{port}.conf"), conf);
    let (nginx, log) = (program("nginx", "nginx-light"), format!("{at}/error.log"));
    script(home, &format!("nginx-{port}"), &[&nginx, &"-e", &log, &"-c", &conf])
}

fn apache(home: &path::Path, port: u16, encoded_slashes: &str) -> Running {
    let at = directory(home, &format!("apache-{port}"));
    let modules = "/usr/lib/apache2/modules";
    let user = if am_root() { "User www-data\nGroup www-data\n" } else { "" };
    let load: String = ["mpm_event", "authz_core", "rewrite", "headers"]
        .iter()
        .map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"))
        .collect();
    let conf = format!(
        "ServerRoot {at}\nDefaultRuntimeDir {at}\nPidFile {at}/pid\nErrorLog {at}/error.log\n\
         ServerName origin\nListen 127.0.0.1:{port}\nStartServers 1\nServerLimit 1\n{load}{user}\
         AllowEncodedSlashes {encoded_slashes}\nRewriteEngine On\nRewriteRule ^ - [R=204]\n\
         Header always set X-Path \"expr=%{{base64:%{{REQUEST_URI}}}}\"\n"
    );
    let conf = write(home, &format!("apache-{port}.conf"), conf);
    let apache = program("apache2", "apache2");
    script(home, &format!("apache-{port}"), &[&apache, &"-X", &"-f", &conf])
}

/// lighttpd, which passes requests to a program by SCGI. The program is a thread of this process
/// that serves until the test ends.
fn lighttpd(home: &path::Path, port: u16) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let path = scgi_path(&mut stream);
            let hex: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = stream.write_all(format!("Status: 200 OK\r\n\r\n{hex}\n").as_bytes());
        }
    });
    let conf = format!(
        "server.modules = (\"mod_scgi\")\nserver.document-root = \"{}\"\n\
         server.bind = \"127.0.0.1\"\nserver.port = {port}\n\
         scgi.server = (\"/\" => ((\"host\" => \"127.0.0.1\", \"port\" => {to}, \
         \"check-local\" => \"disable\")))\n",
        home.display(),
    );
    let conf = write(home, "lighttpd.conf", conf);
    script(home, "lighttpd", &[&program("lighttpd", "lighttpd"), &"-D", &"-f", &conf])
}

/// The path in the variables of a request.
fn scgi_path(stream: &mut TcpStream) -> Vec<u8> {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    let variables = loop {
        if let Some(variables) = netstring(&received) {
            break variables;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return Vec::new(),
            Ok(read) => received.extend_from_slice(&piece[..read]),
        }
    };
    let parts: Vec<&[u8]> = variables.split(|byte| *byte == 0).collect();
    let pairs = || parts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let value = |name: &[u8]| pairs().find(|(is, _)| *is == name).map_or(&b""[..], |pair| pair.1);
    [value(b"SCRIPT_NAME"), value(b"PATH_INFO")].concat()
}

/// The content of a netstring that has arrived.
fn netstring(bytes: &[u8]) -> Option<&[u8]> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let length: usize = std::str::from_utf8(&bytes[..colon]).ok()?.parse().ok()?;
    bytes.get(colon + 1..colon + 1 + length)
}

fn go(home: &path::Path, port: u16) -> Running {
    let file = write(home, "main.go", include_str!("main.go"));
    let built = home.join("reads-go").display().to_string();
    let mut build = Command::new(program("go", "golang-go"));
    let done = build.current_dir(home).args(["build", "-o", &built, &file]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    script(home, "go", &[&built, &port])
}

fn tomcat(home: &path::Path, port: u16) -> Running {
    const JAR: &str = "/usr/share/java/tomcat10-embed-core.jar";
    assert!(fs::exists(JAR).unwrap(), "{JAR} is missing: apt-get install libtomcat10-embed-java");
    let file = write(home, "Reads.java", include_str!("Reads.java"));
    let at = directory(home, "tomcat");
    let java = program("java", "openjdk-17-jdk-headless");
    script(home, "tomcat", &[&java, &"-XX:TieredStopAtLevel=1", &"-cp", &JAR, &file, &port, &at])
}

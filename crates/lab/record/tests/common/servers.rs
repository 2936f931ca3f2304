//! Real servers that the tests start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../../core/transport/tests/common/ports.rs"]
mod ports;

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// The beginning of the names of its segments of shared memory, which a killed server leaves
    /// behind. Only Squid has segments: their names begin with that of its service (`-n`).
    segments: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let all = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        for one in all.filter(|one| one.file_name().to_string_lossy().starts_with(&self.segments)) {
            let _ = fs::remove_file(one.path());
        }
    }
}

/// The name of the service of the Squid in this directory, which no other Squid has.
fn service(home: &Path) -> String {
    let name = home.file_name().unwrap().to_str().unwrap();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("record{name}{}", std::process::id())
}

/// Where a program is. `None`, with a message, if it is not installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {name} is not installed");
    }
    found
}

/// Starts a server. A Squid gets its own service.
pub(crate) fn start(home: &Path, program: &Path, arguments: &[&str]) -> Server {
    let name = program.file_name().unwrap().to_str().unwrap();
    let output = fs::File::create(home.join(format!("{name}.output"))).unwrap();
    let out = fs::File::create(home.join(format!("{name}.out"))).unwrap();
    let (mut command, service) = (Command::new(program), service(home));
    if name == "squid" {
        command.args(["-n", &service]);
    }
    let child = command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(output).spawn();
    Server { child: child.unwrap(), segments: service + "-" }
}

pub(crate) fn free_port() -> u16 {
    ports::free_address().unwrap().port()
}

//! Real servers that the tests start.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A server that ends with the test.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

pub(crate) fn start(home: &Path, program: &Path, arguments: &[&str]) -> Server {
    let name = program.file_name().unwrap().to_str().unwrap();
    let output = fs::File::create(home.join(format!("{name}.output"))).unwrap();
    let out = fs::File::create(home.join(format!("{name}.out"))).unwrap();
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(output)
        .spawn();
    Server(child.unwrap())
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

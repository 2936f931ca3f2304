//! What a recording says about disks and about threads bound to a CPU, compared with what the test
//! itself does.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use record::{Spec, Target, record};
use trial::Trial;
use trial::resources::{BoundThread, DeviceKind};

const WRITTEN: usize = 4 << 20;

/// Kills the process at the end of the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The disk that a file is on, if it is on one.
fn disk_of(file: &Path) -> Option<String> {
    let dev = fs::metadata(file).ok()?.st_dev();
    let (major, minor) = ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00));
    let home = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let mut parts = home.iter().skip_while(|part| *part != "block").skip(1);
    Some(parts.next()?.to_str()?.to_owned())
}

#[test]
fn writes_are_seen_at_their_disk_and_a_bound_thread_at_its_cpu() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The first CPU of this process's list of allowed ones.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let cpu = list.trim().split([',', '-']).next().unwrap().to_owned();
    let child = Command::new("taskset").args(["-c", &cpu, "sleep", "600"]).spawn().unwrap();
    let server = KillOnDrop(child);
    let pid = server.0.id();
    let mut spec = Spec::new(Target::Pid(pid), None, home.path().join("a.trial"));
    spec.interval = Duration::from_millis(100);
    spec.profile = None;
    let stop = AtomicBool::new(false);
    let mut written = File::create(home.path().join("written")).unwrap();
    let mut seen = 0;
    // By the third interval, the recording has certainly begun.
    record(&spec, &stop, &mut |_| {
        seen += 1;
        if seen == 3 {
            written.write_all(&vec![1; WRITTEN]).unwrap();
            written.sync_all().unwrap();
        }
        stop.store(seen > 8, Ordering::Relaxed);
    })
    .unwrap();
    let trial = Trial::open(home.path().join("a.trial")).unwrap();
    // `taskset` may have been seen before it was bound; then it has another name.
    let bound = BoundThread { pid, tid: pid, cpu: cpu.parse().unwrap() };
    assert_eq!(trial.bound_threads(), [bound]);

    let disks = trial.manifest().capabilities.iter().find(|one| one.name == "disks").unwrap();
    match disk_of(&home.path().join("written")) {
        Some(disk) if disks.reason.contains(&format!("{disk} (")) => {
            let rows = trial.device_uses().iter();
            let rows = rows.filter(|row| row.device.name == disk);
            let rows = rows.filter(|row| row.device.kind == DeviceKind::Disk);
            let bytes: u64 = rows.map(|row| row.out_bytes).sum();
            assert!(bytes >= WRITTEN as u64, "{bytes} bytes went to {disk}");
        }
        disk => eprintln!("disks are not supported here: the files are on {disk:?}"),
    }
}

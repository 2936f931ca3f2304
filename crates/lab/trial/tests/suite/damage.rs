//! Foreign, damaged and unfinished files are reported as such.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::common::{interval, latency, manifest};
use proptest::prelude::*;
use trial::{Error, LatencySource, Trial, Writer};

const INTERVALS: u64 = 40;

/// A finished trial. It is made once, because making one waits for the disk.
fn finished(home: &Path) -> PathBuf {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let path = home.join("whole.trial");
    let bytes = BYTES.get_or_init(|| {
        let first = tempfile::tempdir().unwrap();
        let path = first.path().join("first.trial");
        let mut writer = Writer::create(&path, &manifest()).unwrap();
        for index in 0..INTERVALS {
            let row = latency(index, LatencySource::Log);
            writer.append_all(&interval(index), &[row], &[]).unwrap();
        }
        writer.finish().unwrap();
        std::fs::read(path).unwrap()
    });
    std::fs::write(&path, bytes).unwrap();
    path
}

fn why(path: &Path) -> String {
    let message = Trial::open(path).unwrap_err().to_string();
    assert!(!message.contains('\n'), "one line: {message:?}");
    assert!(message.contains(&path.display().to_string()), "names the file: {message}");
    message
}

#[test]
fn a_foreign_file_is_reported_as_not_a_trial() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.trial");
    assert!(matches!(Trial::open(&path), Err(Error::Missing { .. })));
    std::fs::write(&path, b"").unwrap();
    assert!(why(&path).contains("not a trial (empty)"));
    std::fs::write(&path, vec![0x5a; 5000]).unwrap();
    assert!(why(&path).contains("not a trial (not a SQLite file)"));
    assert!(why(home.path()).contains("not a trial (not a file)"));
    std::fs::remove_file(&path).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE t (a); PRAGMA user_version = 9").unwrap();
    drop(foreign);
    assert!(why(&path).contains("not a trial (no Plimsoll application id)"));
}

#[test]
fn a_newer_schema_is_reported_with_both_versions() {
    let home = tempfile::tempdir().unwrap();
    let path = finished(home.path());
    let later = rusqlite::Connection::open(&path).unwrap();
    later.pragma_update(None, "user_version", trial::SCHEMA_VERSION + 1).unwrap();
    drop(later);
    assert!(why(&path).contains("newer schema 7, this plimsoll reads up to 6"));
    assert!(matches!(Writer::reopen(&path), Err(Error::NewerSchema { found: 7, .. })));
}

#[test]
fn a_truncated_trial_is_corrupt() {
    let home = tempfile::tempdir().unwrap();
    let path = finished(home.path());
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.len() > 3 * 4096);
    for keep in [200, 4096, 4097, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        std::fs::write(&path, &whole[..keep]).unwrap();
        let message = why(&path);
        assert!(message.contains("corrupt"), "{keep} bytes: {message}");
        assert!(matches!(Writer::reopen(&path), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn an_invalid_or_missing_manifest_is_corrupt() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("m.trial");
    drop(Writer::create(&path, &manifest()).unwrap());
    let meddler = rusqlite::Connection::open(&path).unwrap();
    meddler.execute_batch("UPDATE meta SET value = '{' WHERE key = 'manifest'").unwrap();
    assert!(why(&path).contains("corrupt: its manifest"));
    meddler.execute_batch("DELETE FROM meta").unwrap();
    assert!(why(&path).contains("corrupt: it has no manifest"));
}

#[test]
fn a_changed_value_does_not_match_the_digest() {
    let home = tempfile::tempdir().unwrap();
    let path = finished(home.path());
    let meddler = rusqlite::Connection::open(&path).unwrap();
    meddler.execute_batch("UPDATE interval SET requests = requests + 1 WHERE idx = 7").unwrap();
    drop(meddler);
    assert!(why(&path).contains("does not match its digest"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120, failure_persistence: None, ..Default::default()
    })]

    /// A damaged page gives an error or, if it is unused, the same trial, but never other data.
    #[test]
    fn damage_never_gives_other_data(
        hits in proptest::collection::vec((any::<u32>(), 1..=255u8), 1..4),
    ) {
        let home = tempfile::tempdir().unwrap();
        let path = finished(home.path());
        let before = Trial::open(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, flip) in hits {
            let at = at as usize % bytes.len();
            bytes[at] ^= flip;
        }
        std::fs::write(&path, &bytes).unwrap();
        match Trial::open(&path) {
            Ok(after) => prop_assert!(after == before || !after.complete()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_page_of_noise_never_gives_other_data(page in any::<u16>(), noise in any::<[u8; 32]>()) {
        let home = tempfile::tempdir().unwrap();
        let path = finished(home.path());
        let before = Trial::open(&path).unwrap();
        let pages = std::fs::metadata(&path).unwrap().len() / 4096;
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(u64::from(page) % pages * 4096)).unwrap();
        file.write_all(&noise.repeat(128)).unwrap();
        drop(file);
        if let Ok(after) = Trial::open(&path) {
            prop_assert_eq!(after, before);
        }
    }
}

#[test]
fn a_dropped_writer_leaves_its_intervals_in_an_unfinished_trial() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("dropped.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer.append(&interval(0)).unwrap();
    drop(writer);
    let trial = Trial::open(&path).unwrap();
    assert!(!trial.complete());
    assert_eq!(trial.intervals(), [interval(0)]);
}

/// Not a test: the child process of the tests below, which kill it or limit its disk space.
#[test]
fn child_that_writes() {
    let Some(path) = std::env::var_os("PLIMSOLL_TEST_WRITE_TO") else { return };
    let mut writer = Writer::create(path, &manifest()).unwrap();
    for index in 0..100_000 {
        if let Err(error) = writer.append(&interval(index)) {
            println!("refused {index} {error}");
            assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
            return;
        }
        println!("appended {index}");
        if index == 60 && std::env::var_os("PLIMSOLL_TEST_THEN_WAIT").is_some() {
            std::thread::park();
        }
    }
}

fn child(path: &Path, shell: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", shell, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "damage::child_that_writes", "--nocapture"])
        .env("PLIMSOLL_TEST_WRITE_TO", path)
        .stdout(Stdio::piped());
    command
}

#[test]
fn a_killed_recorder_leaves_every_interval_it_appended() {
    use std::io::{BufRead, BufReader};
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("killed.trial");
    let mut process =
        child(&path, "exec \"$@\"").env("PLIMSOLL_TEST_THEN_WAIT", "1").spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.map(|line| line.unwrap()).any(|line| line.ends_with("appended 60")));
    process.kill().unwrap();
    process.wait().unwrap();

    let expected: Vec<_> = (0..=60).map(interval).collect();
    let trial = Trial::open(&path).unwrap();
    assert!(!trial.complete());
    assert_eq!(trial.intervals(), expected);
    assert!(home.path().join("killed.trial-wal").exists(), "reading does not remove it");

    // Moved without its WAL, it can be opened, is unfinished and has the intervals folded so far.
    let moved = home.path().join("moved % ?.trial");
    std::fs::copy(&path, &moved).unwrap();
    let trial = Trial::open(&moved).unwrap();
    assert!(!trial.complete());
    assert_eq!(trial.manifest(), &manifest());
    assert!(trial.intervals().len() <= expected.len());
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 4, "no other file was created");

    // Finishing it folds it into one file, and does not make it complete.
    assert!(!Writer::reopen(&path).unwrap().finish().unwrap().complete);
    assert!(!home.path().join("killed.trial-wal").exists());
    let trial = Trial::open(&path).unwrap();
    assert_eq!((trial.complete(), trial.intervals().len()), (false, 61));
}

#[test]
fn a_full_disk_keeps_the_intervals_before_it() {
    // A limit on the file size simulates the full disk, because it needs no privileges. The write
    // fails at the same place; only the error number differs.
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("full.trial");
    let shell = "trap '' XFSZ; ulimit -f 600; exec \"$@\"";
    let output = child(&path, shell).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let appended = said.lines().filter(|line| line.contains("appended ")).count();
    let refusal = said.lines().find(|line| line.contains("refused ")).expect("its disk was full");
    let sentence =
        format!("disk full while writing interval {appended}; the {appended} intervals before");
    assert!(refusal.contains(&sentence), "{refusal}");

    let trial = Trial::open(&path).unwrap();
    assert!(!trial.complete());
    assert_eq!(trial.intervals(), (0..appended as u64).map(interval).collect::<Vec<_>>());
}

#[test]
fn a_size_limit_acts_like_a_full_disk_and_can_be_raised() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("bound.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer.bound_bytes(20 * 4096).unwrap();
    let mut at = 0;
    let error = loop {
        match writer.append(&interval(at)) {
            Ok(()) => at += 1,
            Err(error) => break error,
        }
    };
    let message = error.to_string();
    assert!(message.contains(&format!("disk full while writing interval {at}")), "{message}");
    assert!(message.contains(&format!("the {at} intervals before it are intact")), "{message}");
    assert_eq!(Trial::open(&path).unwrap().intervals().len() as u64, at);
    writer.bound_bytes(1 << 30).unwrap();
    writer.append(&interval(at)).unwrap();
    assert!(writer.finish().unwrap().complete);
    assert_eq!(Trial::open(&path).unwrap().intervals().len() as u64, at + 1);
}

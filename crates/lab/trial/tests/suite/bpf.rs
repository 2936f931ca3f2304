//! Lock waits and file access round-trip, and are written only together with their interval.

use crate::common::{interval, manifest};
use trial::files::{Delays, Direction, FileRow};
use trial::profile::{Frame, FrameMode, Owner, Stack};
use trial::waits::{LockKind, WaitRow, Word};
use trial::{Error, Histogram, Trial, Writer};

fn wait(interval: u64, kind: LockKind, stack: u32) -> WaitRow {
    WaitRow {
        interval,
        kind,
        owner: Owner::Server,
        stack,
        word: None,
        waits: 3,
        total_ns: 5_000,
        max_ns: 4_000,
        spun_ns: 1_000,
        timed_out: 0,
    }
}

fn file(direction: Direction, size_from: u64, objects: u64) -> FileRow {
    let mut histogram = Histogram::<u64>::new(2).unwrap();
    histogram.record_n(12_345, objects).unwrap();
    FileRow {
        direction,
        size_from,
        size_below: (size_from == 0).then_some(1024),
        objects,
        calls: 2 * objects,
        bytes: 700 * objects,
        open_ns: 1,
        first_ns: 2,
        rest_ns: 3,
        close_ns: 4,
        elapsed_ns: 50,
        needless: 1,
        after_short: 1,
        needless_objects: 1,
        needless_ns: 3,
        first: Delays::new(&histogram),
        total: Delays::default(),
    }
}

#[test]
fn waits_round_trip_with_stack_and_futex() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("w.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let none = Stack { frames: Vec::new(), whole: false };
    let early = writer.waits(&[wait(0, LockKind::Mutex, 0)]);
    assert!(matches!(early, Err(Error::Refused { .. })), "no stack has the number 0 yet");
    let frame = Frame { symbol: None, module: "[kernel]".to_owned(), mode: FrameMode::Kernel };
    let frames = vec![writer.frame(&frame).unwrap()];
    let numbers = [none, Stack { frames, whole: false }].map(|s| writer.stack(&s).unwrap());
    let mut rows: Vec<WaitRow> =
        LockKind::ALL.into_iter().map(|kind| wait(0, kind, numbers[1])).collect();
    // An address in the upper half does not come back as a negative number.
    rows[10].word = Some(Word { pid: 17, address: u64::MAX - 3 });
    writer.waits(&rows).unwrap();
    writer.append(&interval(0)).unwrap();
    let late = [wait(0, LockKind::Spin, numbers[0])];
    writer.waits(&late).unwrap();
    assert!(writer.finish().unwrap().complete);
    let trial = Trial::open(&path).unwrap();
    assert_eq!(trial.waits(), [rows, late.to_vec()].concat());
}

#[test]
fn the_last_row_of_a_size_bin_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("f.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer.files(vec![file(Direction::Read, 0, 1), file(Direction::Written, 4096, 2)]);
    writer.append(&interval(0)).unwrap();
    writer.files(vec![file(Direction::Read, 0, 7)]);
    drop(writer);
    let trial = Trial::open(&path).unwrap();
    let kept = [file(Direction::Read, 0, 1), file(Direction::Written, 4096, 2)];
    assert_eq!(trial.files(), kept, "rows after the last interval are not written");
    let mut writer = Writer::reopen(&path).unwrap();
    writer.files(vec![file(Direction::Read, 0, 7)]);
    writer.finish().unwrap();
    let trial = Trial::open(&path).unwrap();
    let now = [file(Direction::Read, 0, 7), file(Direction::Written, 4096, 2)];
    assert_eq!(trial.files(), now);
    assert_eq!(trial.files()[0].first.histogram_ns().unwrap().len(), 7);
    assert_eq!(trial.files()[0].total.histogram_ns(), None);
    assert_eq!(trial.files()[0].calls_ns(), 10);
}

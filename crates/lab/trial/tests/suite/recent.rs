//! `Trial::recent` reads the same last intervals as `Trial::open`.

use crate::common::{interval, latency, loss, manifest};
use trial::classes::ClassRow;
use trial::profile::{Frame, FrameMode, Owner, ProfileInfo, SampleRow, Stack};
use trial::waits::{LockKind, WaitRow};
use trial::{LatencySource, Trial, Writer};

/// An unfinished trial of ten intervals. Each has its own stack and one that all have in common.
fn unfinished(path: &std::path::Path) -> Writer {
    let mut writer = Writer::create(path, &manifest()).unwrap();
    for index in 0..10 {
        let frame = |writer: &mut Writer, symbol: String| {
            let frame =
                Frame { symbol: Some(symbol), module: "m".to_owned(), mode: FrameMode::User };
            writer.frame(&frame).unwrap()
        };
        let own = frame(&mut writer, format!("own {index}"));
        let common = frame(&mut writer, "main".to_owned());
        let stacks = [vec![own, common], vec![common]]
            .map(|frames| writer.stack(&Stack { frames, whole: true }).unwrap());
        let sample = |stack| SampleRow {
            interval: index,
            owner: Owner::Server,
            stack,
            samples: 1,
            ns: 1_000 + index as i64,
        };
        writer.samples(&stacks.map(sample)).unwrap();
        let wait = WaitRow {
            interval: index,
            kind: LockKind::Futex,
            owner: Owner::Server,
            stack: stacks[0],
            word: None,
            waits: 1 + index,
            total_ns: 5,
            max_ns: 5,
            spun_ns: 0,
            timed_out: 0,
        };
        writer.waits(&[wait]).unwrap();
        let class = "hit GET 1k-10k -".to_owned();
        let row = ClassRow { interval: index, class, requests: 2.0, ended: 2, bytes: 9.0 };
        writer.classes(&[row]).unwrap();
        let info = ProfileInfo { hz: 99, ..ProfileInfo::default() };
        writer.profile_info(&info).unwrap();
        let latencies = [latency(index, LatencySource::Log)];
        writer.append_all(&interval(index), &latencies, &[loss(1, "x")]).unwrap();
    }
    writer
}

/// The procedures of an interval's samples, by name.
fn procedures(trial: &Trial, interval: u64) -> Vec<Vec<String>> {
    let name = |&frame: &u32| trial.frames()[frame as usize].symbol.clone().unwrap();
    let rows = trial.samples().iter().filter(|row| row.interval == interval);
    let mut found: Vec<Vec<String>> = rows
        .map(|row| trial.stacks()[row.stack as usize].frames.iter().map(name).collect())
        .collect();
    found.sort();
    found
}

#[test]
fn recent_intervals_equal_those_of_the_whole_trial() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("r.trial");
    let writer = unfinished(&path);
    let whole = Trial::open(&path).unwrap();
    let last = Trial::recent(&path, 3).unwrap();
    assert!(!last.complete());
    assert_eq!(last.manifest(), whole.manifest());
    assert_eq!(last.intervals(), &whole.intervals()[7..]);
    assert_eq!(last.latencies(), &whole.latencies()[7..]);
    assert_eq!(last.classes(), &whole.classes()[7..]);
    assert_eq!((last.losses(), last.losses()[0].count), (whole.losses(), 10));
    assert_eq!(last.profile_info(), whole.profile_info());
    assert_eq!((last.stacks().len(), last.frames().len()), (4, 4), "only those that are used");
    for index in 7..10 {
        assert_eq!(procedures(&last, index), procedures(&whole, index));
        assert_eq!(procedures(&last, index)[1], [format!("own {index}"), "main".to_owned()]);
    }
    for (now, then) in last.waits().iter().zip(&whole.waits()[7..]) {
        assert_eq!(WaitRow { stack: then.stack, ..*now }, *then);
        let frames = |trial: &Trial, stack: u32| {
            let stack = &trial.stacks()[stack as usize];
            stack.frames.iter().map(|&f| trial.frames()[f as usize].clone()).collect::<Vec<_>>()
        };
        assert_eq!(frames(&last, now.stack), frames(&whole, then.stack));
    }
    assert_eq!(last.waits().len(), 3);
    drop(writer);
}

#[test]
fn more_intervals_than_exist_return_all_even_none() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("r.trial");
    drop(Writer::create(&path, &manifest()).unwrap());
    assert!(Trial::recent(&path, 60).unwrap().intervals().is_empty());
    std::fs::remove_file(&path).unwrap();
    let writer = unfinished(&path);
    let all = Trial::recent(&path, usize::MAX).unwrap();
    let whole = Trial::open(&path).unwrap();
    assert_eq!(all.intervals(), whole.intervals());
    assert_eq!(all.samples().len(), whole.samples().len());
    assert_eq!(Trial::recent(&path, 0).unwrap().intervals().len(), 1, "the last one at least");
    // No reader keeps the file locked: the writer folds its journal into one file.
    assert!(writer.finish().unwrap().one_file);
    assert!(Trial::recent(&path, 1).unwrap().complete());
}

#[test]
fn a_dangling_frame_number_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("r.trial");
    drop(unfinished(&path));
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("DELETE FROM frame WHERE symbol = 'own 9'", []).unwrap();
    drop(file);
    let message = Trial::recent(&path, 3).unwrap_err().to_string();
    assert!(message.contains("a frame or stack that is not in the file"), "{message}");
}

#[test]
fn parts_have_the_rows_of_their_intervals_and_together_make_the_trial() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.trial");
    let writer = unfinished(&path);
    let whole = Trial::recent(&path, usize::MAX).unwrap();
    let mut from = 0;
    let (mut intervals, mut waits, mut stacks) = (Vec::new(), 0, Vec::new());
    loop {
        let part = Trial::part(&path, from, 4).unwrap();
        let Some(last) = part.intervals().last() else { break };
        let numbers = from..=last.index;
        from = last.index + 1;
        assert!(part.waits().iter().all(|row| numbers.contains(&row.interval)));
        assert!(part.samples().iter().all(|row| numbers.contains(&row.interval)));
        waits += part.waits().len();
        for index in numbers {
            stacks.push(procedures(&part, index));
        }
        intervals.extend_from_slice(part.intervals());
    }
    assert_eq!((from, waits), (10, whole.waits().len()));
    assert_eq!(intervals, whole.intervals());
    let all: Vec<_> = (0..10).map(|index| procedures(&whole, index)).collect();
    assert_eq!(stacks, all);
    drop(writer);
}

//! The profile round-trips, and is written only together with its interval.

use crate::common::{interval, manifest};
use proptest::prelude::*;
use trial::profile::{Frame, FrameMode, Owner, ProfileInfo, STACK_FRAMES_MAX, SampleRow, Stack};
use trial::{Error, Trial, Writer};

fn frame(symbol: &str) -> Frame {
    Frame { symbol: Some(symbol.to_owned()), module: "squid".to_owned(), mode: FrameMode::User }
}

fn row(interval: u64, owner: Owner, stack: u32) -> SampleRow {
    SampleRow { interval, owner, stack, samples: 2, ns: 20_202_020 }
}

#[test]
fn frames_stacks_and_samples_round_trip_and_are_stored_once() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("p.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let kernel = Frame { symbol: None, module: "[kernel]".to_owned(), mode: FrameMode::Kernel };
    let frames = [frame("comm_select"), kernel, frame("main")];
    let numbers: Vec<u32> = frames.iter().map(|frame| writer.frame(frame).unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(writer.frame(&frame("main")).unwrap(), 2);
    let stacks = [
        Stack { frames: vec![1, 0, 2], whole: true },
        Stack { frames: vec![1], whole: false },
        Stack { frames: vec![], whole: false },
    ];
    for _ in 0..2 {
        for (stack, number) in stacks.iter().zip(0..) {
            assert_eq!(writer.stack(stack).unwrap(), number);
        }
    }
    writer.samples(&[row(0, Owner::Idle, 1), row(0, Owner::Server, 0)]).unwrap();
    writer.append(&interval(0)).unwrap();
    writer.samples(&[row(1, Owner::Server, 0), row(1, Owner::Server, 0)]).unwrap();
    writer.samples(&[row(1, Owner::Recorder, 2)]).unwrap();
    let info = ProfileInfo { event: "cpu-clock".to_owned(), hz: 99, ..ProfileInfo::default() };
    writer.profile_info(&info).unwrap();
    writer.append(&interval(1)).unwrap();
    writer.samples(&[row(1, Owner::Other, 1)]).unwrap();
    assert!(writer.finish().unwrap().complete);

    let trial = Trial::open(&path).unwrap();
    assert_eq!(trial.frames(), frames);
    assert_eq!(trial.stacks(), stacks);
    assert_eq!(trial.profile_info(), Some(&info));
    let twice = SampleRow { samples: 4, ns: 40_404_040, ..row(1, Owner::Server, 0) };
    assert_eq!(
        trial.samples(),
        [
            row(0, Owner::Server, 0),
            row(0, Owner::Idle, 1),
            twice,
            row(1, Owner::Recorder, 2),
            row(1, Owner::Other, 1)
        ]
    );

    // After reopening, numbers continue.
    let mut writer = Writer::reopen(&path).unwrap();
    assert_eq!(writer.frame(&frame("main")).unwrap(), 2);
    assert_eq!(writer.frame(&frame("late")).unwrap(), 3);
    assert_eq!(writer.stack(&Stack { frames: vec![3], whole: true }).unwrap(), 3);
    writer.samples(&[row(1, Owner::Server, 3)]).unwrap();
    assert!(writer.finish().unwrap().complete);
    assert_eq!(Trial::open(&path).unwrap().samples().len(), 6);
}

#[test]
fn a_trial_without_a_profile_has_none() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("none.trial");
    Writer::create(&path, &manifest()).unwrap().finish().unwrap();
    let trial = Trial::open(&path).unwrap();
    assert!(trial.frames().is_empty() && trial.stacks().is_empty() && trial.samples().is_empty());
    assert_eq!(trial.profile_info(), None);
}

#[test]
fn samples_are_written_only_with_their_interval() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cut.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let main = writer.frame(&frame("main")).unwrap();
    let stack = writer.stack(&Stack { frames: vec![main], whole: true }).unwrap();
    writer.samples(&[row(0, Owner::Server, stack)]).unwrap();
    writer.append(&interval(0)).unwrap();
    writer.samples(&[row(1, Owner::Server, stack)]).unwrap();
    // If the interval is refused, they stay pending.
    assert!(writer.append(&interval(0)).is_err());
    assert_eq!(Trial::open(&path).unwrap().samples().len(), 1);
    writer.append(&interval(1)).unwrap();
    writer.samples(&[row(2, Owner::Server, stack), row(3, Owner::Server, stack)]).unwrap();
    drop(writer);
    assert_eq!(Trial::open(&path).unwrap().samples().len(), 2);
}

#[test]
fn samples_stay_pending_until_their_own_interval() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("late.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let main = writer.frame(&frame("main")).unwrap();
    let stack = writer.stack(&Stack { frames: vec![main], whole: true }).unwrap();
    writer.samples(&[row(0, Owner::Server, stack), row(1, Owner::Server, stack)]).unwrap();
    let info = ProfileInfo { samples: 4, ..ProfileInfo::default() };
    writer.profile_info(&info).unwrap();
    let seen = |path| Trial::open(path).unwrap().samples().to_vec();
    writer.append(&interval(0)).unwrap();
    assert_eq!(seen(&path), [row(0, Owner::Server, stack)]);
    assert_eq!(Trial::open(&path).unwrap().profile_info(), Some(&info));
    writer.append(&interval(1)).unwrap();
    assert_eq!(seen(&path), [row(0, Owner::Server, stack), row(1, Owner::Server, stack)]);
}

#[test]
fn dangling_numbers_are_refused_by_the_writer_and_corrupt_to_the_reader() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("nowhere.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let unknown = Stack { frames: vec![0], whole: false };
    assert!(matches!(writer.stack(&unknown), Err(Error::Refused { .. })));
    let lost = writer.samples(&[row(0, Owner::Server, 0)]);
    assert!(matches!(lost, Err(Error::Refused { .. })));
    writer.frame(&frame("main")).unwrap();
    let deep = Stack { frames: vec![0; STACK_FRAMES_MAX + 1], whole: false };
    assert!(matches!(writer.stack(&deep), Err(Error::Refused { .. })));
    writer.append(&interval(0)).unwrap();
    drop(writer);
    let rows = "INSERT INTO frame VALUES (7, 'x', 'y', 0)";
    let meddler = rusqlite::Connection::open(&path).unwrap();
    meddler.execute_batch(rows).unwrap();
    assert!(Trial::open(&path).unwrap_err().to_string().contains("corrupt: its profile"));
    meddler.execute_batch("DELETE FROM frame WHERE id = 7").unwrap();
    meddler.execute_batch("INSERT INTO stack VALUES (0, x'05', 0)").unwrap();
    assert!(matches!(Trial::open(&path), Err(Error::Corrupt { .. })));
    meddler.execute_batch("UPDATE stack SET frames = x'80'").unwrap();
    assert!(matches!(Trial::open(&path), Err(Error::Corrupt { .. })));
    meddler.execute_batch("UPDATE stack SET frames = x'00'").unwrap();
    assert_eq!(Trial::open(&path).unwrap().stacks().len(), 1);
    meddler.execute_batch("INSERT INTO sample VALUES (0, 9, 0, 1, 1)").unwrap();
    assert!(matches!(Trial::open(&path), Err(Error::Corrupt { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn any_stack_round_trips(
        names in proptest::collection::vec(proptest::option::of(".{0,12}"), 1..300),
        picks in proptest::collection::vec(
            (proptest::collection::vec(any::<prop::sample::Index>(), 0..30), any::<bool>()), 0..20),
    ) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("any.trial");
        let mut writer = Writer::create(&path, &manifest()).unwrap();
        let known: Vec<u32> = names.iter().map(|name| {
            let frame =
                Frame { symbol: name.clone(), module: "m".to_owned(), mode: FrameMode::Kernel };
            writer.frame(&frame).unwrap()
        }).collect();
        let mut expected = Vec::new();
        for (picks, whole) in picks {
            let frames = picks.iter().map(|pick| *pick.get(&known)).collect();
            let stack = Stack { frames, whole };
            expected.push((writer.stack(&stack).unwrap(), stack));
        }
        writer.finish().unwrap();
        let trial = Trial::open(&path).unwrap();
        for (number, stack) in expected {
            prop_assert_eq!(&trial.stacks()[number as usize], &stack);
        }
        for (number, name) in known.iter().zip(&names) {
            prop_assert_eq!(&trial.frames()[*number as usize].symbol, name);
        }
    }
}

//! Turns and episodes round-trip with their interval.

use crate::common::{interval, manifest};
use trial::episodes::{CLASS_MAX, EpisodeRow, TurnRow};
use trial::{Error, Trial, Writer};

fn turn(interval: u64) -> TurnRow {
    TurnRow { interval, sampled_ns: 1_000_000_000, turns: 7 + interval, events: 9, cpu_ns: 12_345 }
}

fn episode(interval: u64, class: u32) -> EpisodeRow {
    EpisodeRow {
        interval,
        class,
        episodes: 1,
        turns: 2,
        events: 3,
        cpu_ns: 4,
        turns_turns: 5.0,
        turns_events: 6.0,
        events_events: 7.0,
        turns_cpu_ns: 8.0,
        events_cpu_ns: 9.0,
        cpu_cpu_ns2: 1e20,
    }
}

#[test]
fn turns_and_episodes_are_written_with_their_interval() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("e.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    // Interval 1 was not sampled.
    for index in 0..3 {
        if index != 1 {
            let rows = [episode(index, 0), episode(index, CLASS_MAX)];
            writer.episodes(turn(index), &rows).unwrap();
        }
        writer.append(&interval(index)).unwrap();
    }
    writer.episodes(turn(3), &[episode(3, 1)]).unwrap();
    drop(writer);
    let found = Trial::open(&path).unwrap();
    assert_eq!(found.turns(), [turn(0), turn(2)]);
    let episodes = [episode(0, 0), episode(0, CLASS_MAX), episode(2, 0), episode(2, CLASS_MAX)];
    assert_eq!(found.episodes(), episodes);
    let part = Trial::open_intervals(&path).unwrap();
    assert_eq!((part.turns(), part.episodes()), (found.turns(), found.episodes()));
    assert_eq!((part.manifest(), part.complete()), (found.manifest(), found.complete()));
    let threads = |trial: &Trial| {
        let each = trial.intervals().iter().map(|interval| (interval.rate(), &interval.threads));
        format!("{:?}", each.collect::<Vec<_>>())
    };
    assert_eq!(threads(&part), threads(&found));
    let recent = Trial::recent(&path, 1).unwrap();
    assert_eq!((recent.turns(), recent.episodes()), (&[turn(2)][..], &episodes[2..]));
}

#[test]
fn sums_that_are_not_numbers_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("e.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let wrong = EpisodeRow { turns_cpu_ns: f64::INFINITY, ..episode(0, 1) };
    assert!(matches!(writer.episodes(turn(0), &[wrong]), Err(Error::Refused { .. })));
    writer.append(&interval(0)).unwrap();
    drop(writer);
    let found = Trial::open(&path).unwrap();
    assert!(found.turns().is_empty() && found.episodes().is_empty());
}

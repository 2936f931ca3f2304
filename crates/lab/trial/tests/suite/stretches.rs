//! Turns and stretches round-trip with their interval.

use crate::common::{interval, manifest};
use trial::stretches::{SIZES, StretchKind, StretchRow, TurnRow};
use trial::{Trial, Writer};

fn turn(interval: u64) -> TurnRow {
    TurnRow { interval, sampled_ns: 1_000_000_000, turns: 7 + interval, clients: 9, upstreams: 12 }
}

fn stretch(interval: u64, kind: StretchKind, held: bool, size: u32) -> StretchRow {
    StretchRow {
        interval,
        kind,
        held,
        served: held,
        size,
        stretches: 1,
        turns: 2,
        clients: 3,
        upstreams: 4,
        cpu_ns: 5,
    }
}

/// A row of each kind, in the order of a file.
fn rows(interval: u64) -> Vec<StretchRow> {
    let of_kind =
        |kind| [(false, 0), (false, SIZES[8]), (true, 1)].map(|(held, size)| (kind, held, size));
    let all = StretchKind::ALL.into_iter().flat_map(of_kind);
    all.map(|(kind, held, size)| stretch(interval, kind, held, size)).collect()
}

#[test]
fn turns_and_stretches_are_written_with_their_interval() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("e.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    // Interval 1 was not sampled.
    for index in 0..3 {
        if index != 1 {
            writer.stretches(turn(index), &rows(index));
        }
        writer.append(&interval(index)).unwrap();
    }
    writer.stretches(turn(3), &rows(3));
    drop(writer);
    let found = Trial::open(&path).unwrap();
    assert_eq!(found.turns(), [turn(0), turn(2)]);
    assert_eq!(found.stretches(), [rows(0), rows(2)].concat());
    let part = Trial::open_intervals(&path).unwrap();
    assert_eq!((part.turns(), part.stretches()), (found.turns(), found.stretches()));
    assert_eq!((part.manifest(), part.complete()), (found.manifest(), found.complete()));
    let threads = |trial: &Trial| {
        let each = trial.intervals().iter().map(|interval| (interval.rate(), &interval.threads));
        format!("{:?}", each.collect::<Vec<_>>())
    };
    assert_eq!(threads(&part), threads(&found));
    let recent = Trial::recent(&path, 1).unwrap();
    assert_eq!((recent.turns(), recent.stretches()), (&[turn(2)][..], &rows(2)[..]));
}

#[test]
fn each_kind_has_its_own_name() {
    assert!(SIZES.is_sorted_by(|a, b| a < b));
    for kind in StretchKind::ALL {
        assert_eq!(StretchKind::named(kind.name()), Some(kind));
    }
    assert_eq!(StretchKind::named("episode"), None);
}

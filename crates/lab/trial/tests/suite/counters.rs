//! Counters round-trip, and a missing counter is not zero.

use crate::common::{interval, manifest};
use trial::counters::{CounterRow, Counts, Whose};
use trial::{Error, Trial, Writer};

fn row(interval: u64, whose: Whose) -> CounterRow {
    let counts = Counts {
        cycles: Some(3_000_000_000 + interval),
        instructions: Some(1 << 62),
        cache_references: None,
        cache_misses: Some(0),
    };
    CounterRow { interval, whose, counts, counted: 0.75 }
}

#[test]
fn counters_are_written_with_their_interval() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("c.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    for index in 0..3 {
        writer.counters(&Whose::ALL.map(|whose| row(index, whose))).unwrap();
        writer.append(&interval(index)).unwrap();
    }
    writer.counters(&[row(3, Whose::Machine)]).unwrap();
    drop(writer);
    let found = Trial::open(&path).unwrap();
    assert_eq!(found.counters().len(), 6, "pending rows are not written without their interval");
    assert_eq!(found.counters()[3], row(1, Whose::Machine));
    assert_eq!(Trial::recent(&path, 1).unwrap().counters(), &found.counters()[4..]);
}

#[test]
fn invalid_counts_are_refused_and_damage_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("c.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let wrong = CounterRow { counted: f64::NAN, ..row(0, Whose::Server) };
    assert!(matches!(writer.counters(&[wrong]), Err(Error::Refused { .. })));
    writer.counters(&[row(0, Whose::Server)]).unwrap();
    writer.append(&interval(0)).unwrap();
    drop(writer);
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("UPDATE counters SET whose = 7", []).unwrap();
    let message = Trial::open(&path).unwrap_err().to_string();
    assert!(message.contains("corrupt: table counters"), "{message}");
    file.execute_batch("DROP TABLE counters").unwrap();
    assert!(Trial::open(&path).unwrap().counters().is_empty(), "as an older trial is");
}

//! Requests by class round-trip, and late requests are added to their class.

use crate::common::{interval, manifest};
use trial::classes::ClassRow;
use trial::{Amendment, Trial, Writer};

fn row(interval: u64, class: &str, requests: f64) -> ClassRow {
    ClassRow { interval, class: class.to_owned(), requests, ended: 2, bytes: 1000.0 * requests }
}

#[test]
fn classes_round_trip_and_late_requests_are_added() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("c.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let (hit, miss) = ("hit GET 1k-10k -", "miss GET 1k-10k -");
    writer.classes(&[row(0, miss, 1.5), row(0, hit, 20.0)]).unwrap();
    writer.append(&interval(0)).unwrap();
    writer.classes(&[row(1, hit, 3.0)]).unwrap();
    writer.append(&interval(1)).unwrap();
    writer.classes(&[row(0, hit, 0.25)]).unwrap();
    let late = Amendment { interval: 0, requests: 0.25, requests_ended: 2 };
    writer.amend(&[late], &[]).unwrap();
    // They were written together with the late requests.
    let added = ClassRow { ended: 4, ..row(0, hit, 20.25) };
    let expected = [added, row(0, miss, 1.5), row(1, hit, 3.0)];
    assert_eq!(Trial::open(&path).unwrap().classes(), expected);
    writer.classes(&[row(1, miss, 1.0)]).unwrap();
    assert!(writer.finish().unwrap().complete);
    let trial = Trial::open(&path).unwrap();
    assert!(trial.complete());
    assert_eq!(trial.classes()[..3], expected);
    assert_eq!(trial.classes()[3], row(1, miss, 1.0));
}

#[test]
fn a_count_that_is_not_a_number_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("n.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    assert!(writer.classes(&[row(0, "hit", f64::NAN)]).is_err());
    assert!(writer.classes(&[row(0, "hit", f64::INFINITY)]).is_err());
    writer.finish().unwrap();
    assert!(Trial::open(&path).unwrap().classes().is_empty());
}

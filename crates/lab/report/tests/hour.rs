//! The size of a trial with everything that can be recorded, and that all of it is read and shown.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

#[path = "made/hour.rs"]
mod hour;

use report::{Options, analyse, html};
use trial::Trial;

/// A fifteenth of an hour is written, with a fifteenth of an hour's limit. Parts that a file has
/// only once weigh more there, so that a whole hour is below its limit.
const INTERVALS: u64 = 240;
const BYTES_MAX: u64 = 50_000_000 / 15;

#[test]
fn an_hour_of_everything_stays_below_50_mb_and_is_shown() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("hour.trial");
    hour::write(&path, INTERVALS);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < BYTES_MAX, "{bytes} bytes");
    let trial = Trial::open(&path).unwrap();
    let rows = trial.samples().len();
    assert!(rows > 20_000, "{rows} rows of samples");
    let analysis = analyse(&trial, &Options::default()).unwrap();
    assert_eq!(analysis.trial.intervals as u64, INTERVALS);
    let flame = analysis.flame.as_ref().unwrap();
    assert!((flame.drawn + flame.left_out - flame.total).abs() < 1e-6);
    assert!(analysis.costs.is_some() && analysis.waits.is_some() && analysis.files.is_some());
    let page = html(&analysis);
    assert!(page.len() < 3_000_000, "the page has {} bytes", page.len());
    for chapter in ["CPU time of one more request", "File access time by size", "Lock waits"] {
        assert!(page.contains(chapter), "{chapter}");
    }
}

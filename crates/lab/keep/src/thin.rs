//! What becomes of old trials: coarser intervals with age, and a bound on the disk.
//!
//! | age | length of an interval |
//! | --- | --- |
//! | up to 8 days | as recorded, 10 s |
//! | up to 5 weeks | 1 min |
//! | older | 5 min |
//!
//! If all trials of the server together exceed the bound, they become coarser earlier, the oldest
//! first, by one level at a time; when all are as coarse as they get, the oldest go. The trial that
//! is being written is never touched.
//!
//! A thinned trial is written beside the original, synced, and takes its name. So a crash leaves
//! the one or the other, and a full disk leaves the original.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use trial::{Trial, Writer};

use crate::calendar::Day;
use crate::files::{self, Kept};

/// From this age on, in days, intervals have this length, in seconds.
pub const LEVELS: [(i64, i64); 2] = [(8, 60), (36, 300)];

const SECOND_NS: i64 = 1_000_000_000;

const _: () = assert!(LEVELS[0].0 < LEVELS[1].0 && LEVELS[0].1 < LEVELS[1].1);

/// What was done to one trial, or why it could not be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Its intervals are this long now, in seconds.
    Thinned(PathBuf, i64),
    /// It was removed to make room.
    Removed(PathBuf),
    /// Nothing was done to it.
    Failed(String),
}

/// Makes old trials coarser. The trials of the last days are not even opened.
pub(crate) fn by_age(directory: &Path, server: &str, today: Day) -> io::Result<Vec<Done>> {
    let mut done = Vec::new();
    for kept in files::list(directory, server)? {
        let age = today.since(kept.day);
        let level = LEVELS.iter().rev().find(|(from, _)| age >= *from);
        if let Some((_, wanted_s)) = level
            && length_s(&kept).is_ok_and(|length_s| length_s < *wanted_s)
        {
            done.push(thin(&kept, *wanted_s));
        }
    }
    Ok(done)
}

/// Makes room until all trials together have at most this many bytes, without the trial that is
/// being written, which only counts.
pub(crate) fn by_size(
    directory: &Path,
    server: &str,
    bytes_max: u64,
    current: Option<&Path>,
) -> io::Result<Vec<Done>> {
    let is_current = |kept: &Kept| Some(kept.path.as_path()) == current;
    let (own, others): (Vec<Kept>, Vec<Kept>) =
        files::list(directory, server)?.into_iter().partition(is_current);
    let own_bytes: u64 = own.iter().map(Kept::bytes).sum();
    let sizes = others.into_iter().map(|kept| (kept.bytes(), kept));
    let mut closed: VecDeque<(u64, Kept)> = sizes.collect();
    let mut bytes = own_bytes + closed.iter().map(|(bytes, _)| bytes).sum::<u64>();
    let mut done = Vec::new();
    // Each of the levels is gone through once, from the oldest trial on.
    for (_, wanted_s) in LEVELS {
        for (size, kept) in &mut closed {
            if bytes <= bytes_max {
                return Ok(done);
            }
            if length_s(kept).is_ok_and(|length_s| length_s < wanted_s) {
                done.push(thin(kept, wanted_s));
                bytes = bytes - *size + kept.bytes();
                *size = kept.bytes();
            }
        }
    }
    debug_assert!(closed.iter().all(|(_, kept)| !is_current(kept)), "it is being written");
    while bytes > bytes_max
        && let Some((size, oldest)) = closed.pop_front()
    {
        oldest.remove()?;
        bytes -= size;
        done.push(Done::Removed(oldest.path));
    }
    Ok(done)
}

/// The length of a trial's intervals, seconds.
fn length_s(kept: &Kept) -> Result<i64, trial::Error> {
    let trial = Trial::part(&kept.path, 0, 0)?;
    Ok(trial.manifest().interval_ns / SECOND_NS)
}

fn thin(kept: &Kept, length_s: i64) -> Done {
    let failed = |what: String| Done::Failed(format!("{}: {what}", kept.path.display()));
    match thinned(kept, length_s) {
        Ok(true) => Done::Thinned(kept.path.clone(), length_s),
        Ok(false) => failed("it is being read, or has more than a continuous recording".to_owned()),
        Err(error) => {
            let _ = Kept { path: kept.thinned(), ..kept.clone() }.remove();
            failed(error)
        }
    }
}

/// Replaces a trial by its thinned form. Returns false if it must stay as it is.
fn thinned(kept: &Kept, length_s: i64) -> Result<bool, String> {
    if !settled(kept).map_err(|error| error.to_string())? {
        return Ok(false);
    }
    let trial = Trial::open(&kept.path).map_err(|error| error.to_string())?;
    if trial.has_samples() {
        return Ok(false);
    }
    let new = kept.thinned();
    let coarse = trial.thinned(length_s * SECOND_NS);
    coarse.write_thinned(&new).map_err(|error| error.to_string())?;
    let replace = || -> io::Result<()> {
        fs::rename(&new, &kept.path)?;
        let directory = kept.path.parent().unwrap_or(Path::new("."));
        fs::File::open(directory)?.sync_all()
    };
    replace().map_err(|error| error.to_string())?;
    Ok(true)
}

/// Folds what a killed recorder has left in a journal into the trial, so that it is one file.
/// Returns false if a reader holds it.
pub(crate) fn settled(kept: &Kept) -> Result<bool, trial::Error> {
    if !kept.has_journal() {
        return Ok(true);
    }
    Ok(Writer::reopen(&kept.path)?.finish()?.one_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::day_of;

    fn bytes(directory: &Path) -> u64 {
        files::list(directory, "nginx").unwrap().iter().map(Kept::bytes).sum()
    }

    fn lengths(directory: &Path) -> Vec<i64> {
        let kept = files::list(directory, "nginx").unwrap();
        kept.iter().map(|kept| length_s(kept).unwrap()).collect()
    }

    fn requests(directory: &Path) -> f64 {
        let kept = files::list(directory, "nginx").unwrap();
        let trials = kept.iter().map(|kept| Trial::open(&kept.path).unwrap());
        trials.map(|trial| trial.intervals().iter().map(|one| one.requests).sum::<f64>()).sum()
    }

    #[test]
    fn older_days_have_coarser_intervals_and_the_same_requests() {
        let home = tempfile::tempdir().unwrap();
        let today = Day::parse("2026-11-28").unwrap();
        for age in [40, 36, 35, 8, 7, 0] {
            day_of(home.path(), today.plus(-age), 1800);
        }
        let before = (requests(home.path()), bytes(home.path()));
        let done = by_age(home.path(), "nginx", today).unwrap();
        assert!(done.iter().all(|one| matches!(one, Done::Thinned(..))), "{done:?}");
        assert_eq!(lengths(home.path()), [300, 300, 60, 60, 10, 10]);
        assert_eq!(requests(home.path()), before.0);
        assert!(bytes(home.path()) < before.1 * 3 / 4);
        // Nothing is left to do, and no file is left beside.
        assert_eq!(by_age(home.path(), "nginx", today).unwrap(), []);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 6);
    }

    #[test]
    fn beyond_the_bound_the_oldest_become_coarser_and_then_go() {
        let home = tempfile::tempdir().unwrap();
        let today = Day::parse("2026-11-28").unwrap();
        for age in [3, 2, 1, 0] {
            day_of(home.path(), today.plus(-age), 1800);
        }
        let current = files::list(home.path(), "nginx").unwrap().pop().unwrap().path;
        let (all, sum) = (bytes(home.path()), requests(home.path()));
        assert_eq!(by_size(home.path(), "nginx", all, Some(&current)).unwrap(), []);
        by_size(home.path(), "nginx", all - 1, Some(&current)).unwrap();
        assert_eq!(lengths(home.path()), [60, 10, 10, 10]);
        assert_eq!(requests(home.path()), sum);
        let own = fs::metadata(&current).unwrap().len();
        by_size(home.path(), "nginx", all * 3 / 4, Some(&current)).unwrap();
        assert_eq!(requests(home.path()), sum);
        let done = by_size(home.path(), "nginx", own + 1, Some(&current)).unwrap();
        assert!(matches!(done.last(), Some(Done::Removed(_))), "{done:?}");
        assert_eq!(lengths(home.path()), [10]);
        assert!(current.exists());
        // It never removes the one that is being written.
        assert_eq!(by_size(home.path(), "nginx", 1, Some(&current)).unwrap(), []);
    }

    #[test]
    fn a_killed_recorders_trial_is_thinned_and_a_damaged_one_stays() {
        let home = tempfile::tempdir().unwrap();
        let today = Day::parse("2026-11-28").unwrap();
        let path = day_of(home.path(), today.plus(-50), 60);
        let killed = day_of(home.path(), today.plus(-49), 60);
        // As a kill leaves it: in WAL mode, not complete.
        let copy = home.path().join("copy");
        let mut writer = Writer::reopen(&killed).unwrap();
        writer.loss(&trial::Loss { kind: "x".into(), count: 1, note: String::new() }).unwrap();
        fs::copy(&killed, &copy).unwrap();
        fs::copy(home.path().join("2026-10-10-nginx.trial-wal"), home.path().join("wal")).unwrap();
        drop(writer);
        fs::rename(&copy, &killed).unwrap();
        fs::rename(home.path().join("wal"), home.path().join("2026-10-10-nginx.trial-wal"))
            .unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(5_000);
        fs::write(&path, &bytes).unwrap();
        let done = by_age(home.path(), "nginx", today).unwrap();
        assert_eq!(done, [Done::Thinned(killed.clone(), 300)]);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let thinned = Trial::open(&killed).unwrap();
        assert_eq!((thinned.losses().len(), thinned.intervals().len()), (1, 2));
    }
}

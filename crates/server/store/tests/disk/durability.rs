//! What survives a stop, a power cut, and faults.

use std::time::Duration;

use runtime::sim::{self, Disk, Faults};
use runtime::{Runtime, fs, spawn, time};
use store::disk::{DiskStore, Geometry, OpenError, Refused, Start};
use store::{Concerns, Known, Verdict};

use crate::{ABOUT, Running, SEGMENTS, body, key, on, options, whole};

async fn fill(store: &DiskStore, from: u64, to: u64) {
    for number in from..to {
        store.put(&key(number), ABOUT, b"meta", &body(number, 2000)).unwrap();
    }
    store.flush().await.unwrap();
}

async fn check_all(store: &DiskStore, from: u64, to: u64) {
    for number in from..to {
        let expected = Some((b"meta".to_vec(), body(number, 2000)));
        assert!(whole(store, &key(number)).await == expected, "{number}");
    }
}

/// Flushed objects are all there after a power cut, and found without reading an object.
#[test]
fn flushed_objects_survive_a_power_cut() {
    for seed in 0..20 {
        let disk = Disk::new(seed);
        let mut next = 0;
        for round in 0..4 {
            on(&disk, async {
                let running = Running::open(options()).await;
                match running.start {
                    Start::Warm { objects, entries_lost } => {
                        assert_eq!((objects as u64, entries_lost), (next, 0), "{seed} {round}");
                    }
                    Start::New => assert_eq!(round, 0),
                    Start::Fresh(why) => panic!("{why}"),
                }
                assert_eq!(running.store.counters().blocks, 0);
                check_all(&running.store, 0, next).await;
                fill(&running.store, next, next + 60).await;
                next += 60;
                // Not flushed, so these may be lost.
                for number in 1000..1010 {
                    running.store.put(&key(number), ABOUT, b"m", b"b").unwrap();
                }
                running.flusher.abort();
                disk.crash();
            });
        }
    }
}

#[test]
fn a_closed_store_is_complete() {
    let disk = Disk::new(3);
    on(&disk, async {
        let running = Running::open(options()).await;
        for number in 0..100 {
            running.store.put(&key(number), ABOUT, b"meta", &body(number, 2000)).unwrap();
        }
        let store = running.store.clone();
        running.close().await;
        // The flusher has ended, and no caller waits for it forever.
        let _ = store.put(&key(200), ABOUT, b"m", b"late");
        assert!(store.flush().await.is_err());
        assert!(store.delete(&key(200)).durable().await.is_err());
    });
    disk.crash();
    on(&disk, async {
        let running = Running::open(options()).await;
        assert_eq!(running.start, Start::Warm { objects: 100, entries_lost: 0 });
        check_all(&running.store, 0, 100).await;
    });
}

#[test]
fn an_acknowledged_delete_or_purge_survives_a_power_cut() {
    for seed in 0..30 {
        let disk = Disk::new(seed);
        on(&disk, async {
            let running = Running::open(options()).await;
            fill(&running.store, 0, 50).await;
            running.store.delete(&key(7)).durable().await.unwrap();
            running.store.delete(&key(8)).durable().await.unwrap();
            let (mark, pending) = running.store.purge(Concerns::Prefix(b"h/a/"), false, 5);
            assert_eq!(running.store.purges().now(), mark.generation, "seen at once");
            pending.durable().await.unwrap();
            running.abort();
            disk.crash();
        });
        on(&disk, async {
            let running = Running::open(options()).await;
            let store = &running.store;
            assert!(!store.contains(&key(7)) && !store.contains(&key(8)));
            check_all(store, 9, 50).await;
            let generation = store.get(&key(9)).await.unwrap().generation;
            let known = |url: &'static [u8]| Known { url, tags: b"", more_tags: false };
            let judge = |url| store.purges().judge(known(url), generation).0;
            assert_eq!((judge(b"h/a/x"), judge(b"h/b")), (Verdict::Gone, Verdict::Good));
            running.abort();
        });
    }
}

/// Generations never repeat, even if the last ones were lost.
#[test]
fn a_purge_after_a_crash_is_newer_than_all_before() {
    let disk = Disk::new(5);
    let mut last = 0;
    for _ in 0..5 {
        on(&disk, async {
            let running = Running::open(options()).await;
            assert!(running.store.purges().now() > last);
            for _ in 0..10 {
                let (mark, pending) = running.store.purge(Concerns::All, false, 1);
                drop(pending); // not awaited
                last = mark.generation;
            }
            running.abort();
            disk.crash();
        });
    }
}

#[test]
fn a_store_in_use_or_damaged_is_reported() {
    let disk = Disk::new(1);
    on(&disk, async {
        let running = Running::open(options()).await;
        let second = DiskStore::open(options()).await;
        assert!(matches!(second, Err(OpenError::InUse(_))));
        fill(&running.store, 0, 10).await;
        running.close().await;
    });
    disk.kill();
    on(&disk, async {
        let mut other = options();
        other.geometry = Geometry::tiny(30);
        let running = Running::open(other.clone()).await;
        assert!(matches!(&running.start, Start::Fresh(why) if why.contains("size")));
        assert!(running.store.is_empty());
        running.close().await;
        let again = Running::open(other).await;
        assert!(matches!(again.start, Start::Warm { objects: 0, .. }));
        again.close().await;
    });
    disk.kill();
    for name in ["superblock", "index-0", "index-1"] {
        disk.put(format!("/store/{name}"), vec![0x5a; 10_000]);
    }
    on(&disk, async {
        let running = Running::open(options()).await;
        assert!(matches!(&running.start, Start::Fresh(why) if why.contains("damaged")));
    });
}

#[test]
fn a_bad_block_is_a_miss_and_never_a_wrong_byte() {
    let disk = Disk::new(1);
    on(&disk, async {
        let running = Running::open(options()).await;
        let store = &running.store;
        fill(store, 0, 100).await;
        disk.set_faults(Faults::default().with_rot(0.3).with_misread(0.2).with_read_error(0.1));
        let mut found = 0;
        for number in 0..100 {
            if let Some((meta, all)) = whole(store, &key(number)).await {
                assert!(meta == b"meta" && all == body(number, 2000));
                found += 1;
            } else {
                assert!(!store.contains(&key(number)), "it is dropped");
            }
        }
        let counters = store.counters();
        assert!((20..80).contains(&found), "{found}");
        assert_eq!(counters.dropped_bad, 100 - found);
        assert!(counters.bad_blocks > 0 && counters.read_errors > 0);
    });
}

/// A failing disk costs hits. Nothing panics or hangs, and the store resumes when the disk does.
#[test]
fn a_failing_disk_is_bypassed_and_used_again() {
    for (faults, full) in [
        (Faults::default().with_write_error(1.0), false),
        (Faults::default().with_sync_error(1.0), false),
        (Faults::default().with_no_space(1.0), true),
    ] {
        let disk = Disk::new(9);
        on(&disk, async {
            let running = Running::open(options()).await;
            let store = &running.store;
            fill(store, 0, 50).await;
            disk.set_faults(faults);
            let mut refused = 0;
            for number in 100..300 {
                let put = store.put(&key(number), ABOUT, b"meta", &body(number, 2000));
                refused += usize::from(put == Err(Refused::Off));
                time::sleep(Duration::from_millis(100)).await;
            }
            assert!(refused > 50, "{faults:?}: {refused}");
            assert!(store.trouble().is_some());
            assert!(store.delete(&key(1)).durable().await.is_err(), "not acknowledged");
            assert!(!store.contains(&key(1)), "deleted all the same");
            disk.set_faults(Faults::default());
            time::sleep(Duration::from_secs(300)).await;
            assert_eq!(store.trouble(), None, "full: {full}");
            fill(store, 300, 340).await;
            check_all(store, 300, 340).await;
            store.delete(&key(2)).durable().await.unwrap();
            running.abort();
            disk.crash();
        });
        on(&disk, async {
            let running = Running::open(options()).await;
            assert!(!running.store.contains(&key(1)) && !running.store.contains(&key(2)));
            check_all(&running.store, 300, 340).await;
        });
    }
}

#[test]
fn a_disk_without_room_is_an_error_at_the_start() {
    let disk = Disk::new(1);
    disk.set_bytes_max(100_000);
    on(&disk, async {
        let error = DiskStore::open(options()).await.unwrap_err();
        assert!(matches!(error, OpenError::System { .. }), "{error}");
        assert!(error.to_string().contains("/store: beginning a store"));
    });
    disk.set_bytes_max(u64::MAX);
    on(&disk, async {
        assert_eq!(Running::open(options()).await.start, Start::New);
        fs::remove("/store/superblock").await.unwrap();
    });
}

#[test]
fn one_sync_answers_all_waiters() {
    let disk = Disk::new(4);
    on(&disk, async {
        let running = Running::open(options()).await;
        fill(&running.store, 0, 100).await;
        let before = running.store.counters().syncs;
        let deletes: Vec<_> = (0..100)
            .map(|number| {
                let store = running.store.clone();
                spawn(async move { store.delete(&key(number)).durable().await })
            })
            .collect();
        for delete in deletes {
            delete.await.unwrap();
        }
        let syncs = running.store.counters().syncs - before;
        assert!((1..=3).contains(&syncs), "{syncs} syncs for 100 deletes");
    });
}

/// Another process used the store, or replaced it. Reopening it keeps the keys and purges of this
/// process, and has the other's changes.
#[test]
fn a_store_used_by_another_process_is_reopened() {
    for replaced in [false, true] {
        let disk = Disk::new(9);
        on(&disk, async {
            let ours = Running::open(options()).await;
            fill(&ours.store, 0, 10).await;
            let known = |url: &'static [u8]| Known { url, tags: b"", more_tags: false };
            ours.store.purge(Concerns::Url(b"h/before"), false, 1).1.durable().await.unwrap();
            let (store, purges) = (ours.store.clone(), ours.store.purges().clone());
            let before = purges.now();
            ours.close().await;
            let mut theirs = options();
            if replaced {
                (theirs.geometry, theirs.seeds) = (Geometry::tiny(SEGMENTS + 1), Some([7, 8, 9]));
            }
            let theirs = Running::open(theirs).await;
            assert!(matches!(store.open_again().await, Err(OpenError::InUse(_))));
            theirs.store.delete(&key(3)).durable().await.unwrap();
            theirs.store.purge(Concerns::Url(b"h/theirs"), false, 2).1.durable().await.unwrap();
            fill(&theirs.store, 10, 12).await;
            let in_memory = purges.purge(Concerns::Url(b"h/meanwhile"), false, 3);
            let theirs_are_at = theirs.store.purges().now();
            theirs.close().await;

            let (again, start) = store.open_again().await.unwrap();
            assert!(std::sync::Arc::ptr_eq(again.purges(), &purges), "the same purges");
            let same = again.hasher().key(&[b"x"]) == store.hasher().key(&[b"x"]);
            assert!(same, "the same keys");
            let flusher = again.clone();
            let flusher = spawn(async move { flusher.run().await });
            let gone = |url| purges.judge(known(url), before - 1).0 == Verdict::Gone;
            assert!(gone(b"h/before") && gone(b"h/meanwhile") && !gone(b"h/else"));
            if replaced {
                assert!(matches!(start, Start::Fresh(_)), "{start:?}");
                assert!(again.is_empty());
            } else {
                assert_eq!(start, Start::Warm { objects: 11, entries_lost: 0 });
                assert!(gone(b"h/theirs") && purges.now() > theirs_are_at);
                check_all(&again, 4, 12).await;
                assert!(!again.contains(&key(3)), "the other process deleted it");
            }
            assert!(purges.now() > in_memory.generation);
            fill(&again, 20, 25).await;
            again.close();
            flusher.await;
            let next = Running::open(options()).await;
            let objects = if replaced { 5 } else { 16 };
            assert_eq!(next.start, Start::Warm { objects, entries_lost: 0 });
            check_all(&next.store, 20, 25).await;
            next.close().await;
        });
    }
}

/// Records written before a kill are found, and others are not: no look-up finds an entry without
/// its record.
#[test]
fn a_killed_process_leaves_no_entry_without_a_record() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = Disk::new(seed);
        let slow = Duration::from_millis(1)..Duration::from_millis(40);
        let options_of = sim::Options::new(seed).with_disk(disk.clone(), slow);
        Runtime::simulated(options_of).block_on(async {
            let running = Running::open(options()).await;
            for number in 0..200 {
                let _ = running.store.put(&key(number), ABOUT, b"m", &body(number, 5000));
                // So that a journal is written while records wait.
                drop(spawn(running.store.delete(&key(1000 + number)).durable()));
                if number % 8 == 7 {
                    time::sleep(Duration::from_millis(1 + seed)).await;
                }
            }
            running.abort();
            disk.kill();
        });
        on(&disk, async {
            let running = Running::open(options()).await;
            for number in 0..200 {
                match whole(&running.store, &key(number)).await {
                    Some((_, found)) => assert!(found == body(number, 5000)),
                    None => lost += 1,
                }
            }
            assert_eq!(running.store.counters().bad_blocks, 0, "seed {seed}");
            running.close().await;
        });
    }
    assert!(lost > 0, "nothing waited to be written");
}

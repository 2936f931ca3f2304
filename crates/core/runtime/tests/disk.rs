//! What only the simulated disk can do: lose unsynced writes, fail on purpose, and remain the same
//! disk after a crash.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::time::Duration;

use runtime::fs::{self, File, OpenOptions};
use runtime::sim::{self, Disk, Faults, SECTOR_BYTES};
use runtime::{Runtime, spawn};

const SECTORS: usize = 64;

fn on<T>(disk: &Disk, seed: u64, work: impl Future<Output = T>) -> T {
    let delay = Duration::ZERO..Duration::from_millis(seed % 3);
    let options = sim::Options::new(seed).with_disk(disk.clone(), delay);
    Runtime::simulated(options).block_on(work)
}

async fn created(name: &str) -> File {
    let file = File::open_with(name, OpenOptions::CREATE).await.unwrap();
    file.allocate((SECTORS * SECTOR_BYTES) as u64).await.unwrap();
    file.sync_data().await.unwrap();
    fs::sync_directory("/").await.unwrap();
    file
}

async fn all_of(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; SECTORS * SECTOR_BYTES];
    File::open(name).await.unwrap().read_exact_at(&mut bytes, 0).await.unwrap();
    bytes
}

/// Each sector has any of its states since the sync, at least the synced one.
#[test]
fn a_power_cut_leaves_any_mixture_of_unsynced_writes() {
    let mut seen = [0; 3];
    let mut mixed = 0;
    for seed in 0..200 {
        let disk = Disk::new(seed);
        on(&disk, seed, async {
            let file = created("/a").await;
            for round in 1..=3 {
                file.write_all_at(vec![round; SECTORS * SECTOR_BYTES], 0).await.0.unwrap();
                if round == 1 {
                    file.sync_data().await.unwrap();
                }
            }
        });
        disk.crash();
        on(&disk, seed, async {
            let bytes = all_of("/a").await;
            let mut here = [0; 3];
            for sector in bytes.chunks(SECTOR_BYTES) {
                assert!((1..=3).contains(&sector[0]) && sector.iter().all(|b| *b == sector[0]));
                here[usize::from(sector[0]) - 1] += 1;
            }
            mixed += usize::from(here.iter().filter(|count| **count > 0).count() > 1);
            (0..3).for_each(|i| seen[i] += here[i]);
        });
    }
    assert!(seen.iter().all(|count| *count > 500) && mixed > 50, "{seen:?}, {mixed} mixed");
}

#[test]
fn a_kill_loses_nothing_that_was_written() {
    for seed in 0..50 {
        let disk = Disk::new(seed);
        on(&disk, seed, async {
            let file = created("/a").await;
            file.write_all_at(vec![7; SECTORS * SECTOR_BYTES], 0).await.0.unwrap();
            disk.kill();
            let error = file.write_all_at(vec![8; 1], 0).await.0.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc_estale()), "the old life is over");
            assert_eq!(all_of("/a").await, vec![7; SECTORS * SECTOR_BYTES]);
        });
    }
}

fn libc_estale() -> i32 {
    116
}

#[test]
fn a_kill_cuts_a_pending_write_and_dropping_its_future_does_not() {
    let mut parts = [0; 2];
    for seed in 0..100 {
        let disk = Disk::new(seed);
        let delay = Duration::from_millis(5)..Duration::from_millis(6);
        let options = sim::Options::new(seed).with_disk(disk.clone(), delay);
        Runtime::simulated(options).block_on(async {
            let file = created("/a").await;
            let kill = seed % 2 == 0;
            let writing = spawn(async move {
                file.write_all_at(vec![3; SECTORS * SECTOR_BYTES], 0).await.0.unwrap();
            });
            runtime::time::sleep(Duration::from_millis(2)).await;
            if kill {
                disk.kill();
            }
            writing.abort();
            runtime::yield_now().await;
            let bytes = all_of("/a").await;
            let written = bytes.iter().filter(|byte| **byte == 3).count();
            assert!(bytes[..written].iter().all(|byte| *byte == 3), "its first bytes");
            if kill {
                parts[usize::from(written > 0 && written < bytes.len())] += 1;
            } else {
                assert_eq!(written, bytes.len(), "the pool goes on");
            }
        });
    }
    assert!(parts[1] > 20, "{parts:?}");
}

#[test]
fn names_are_durable_once_the_directory_was_synced() {
    let mut kept = 0;
    for seed in 0..60 {
        let disk = Disk::new(seed);
        on(&disk, seed, async {
            created("/old").await;
            File::open_with("/new", OpenOptions::CREATE).await.unwrap();
            fs::rename("/old", "/renamed").await.unwrap();
        });
        disk.crash();
        on(&disk, seed, async {
            let renamed = File::open("/renamed").await.is_ok();
            assert_ne!(renamed, File::open("/old").await.is_ok(), "one name of the two");
            let new = File::open("/new").await.is_ok();
            assert!(new || !renamed, "in their order");
            kept += usize::from(new);
        });
    }
    assert!((10..50).contains(&kept), "{kept}");
}

#[test]
fn a_failed_sync_is_not_repaired_by_the_next() {
    let mut lost = 0;
    for seed in 0..60 {
        let disk = Disk::new(seed);
        on(&disk, seed, async {
            let file = created("/a").await;
            file.write_all_at(vec![1; SECTORS * SECTOR_BYTES], 0).await.0.unwrap();
            disk.set_faults(Faults::default().with_sync_error(1.0));
            assert!(file.sync_data().await.is_err());
            disk.set_faults(Faults::default());
            file.sync_data().await.unwrap();
            assert!(all_of("/a").await.iter().all(|byte| *byte == 1), "the cache has it");
        });
        disk.crash();
        on(&disk, seed, async {
            lost += usize::from(all_of("/a").await.contains(&0));
        });
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn faults_come_at_their_rates() {
    let disk = Disk::new(1);
    on(&disk, 0, async {
        let file = created("/a").await;
        let mut buf = [0; 1000];
        disk.set_faults(Faults::default().with_read_error(0.5).with_short_read(0.5));
        let (mut errors, mut short) = (0, 0);
        for _ in 0..400 {
            match file.read_at(&mut buf, 0).await {
                Ok(read) => short += usize::from(read < buf.len()),
                Err(_) => errors += 1,
            }
        }
        assert!((150..250).contains(&errors) && (60..140).contains(&short), "{errors} {short}");
        disk.set_faults(Faults::default().with_write_error(1.0));
        assert!(file.write_all_at(vec![1; 2000], 0).await.0.is_err());
        disk.set_faults(Faults::default().with_no_space(1.0));
        let full = file.write_all_at(vec![1; 2000], 0).await.0.unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        disk.set_faults(Faults::default().with_rot(1.0));
        let clean = disk.contents("/a").unwrap();
        file.read_at(&mut buf, 20_000).await.unwrap();
        let rotten = disk.contents("/a").unwrap();
        let differ = clean.iter().zip(&rotten).filter(|(a, b)| a != b).count();
        assert_eq!(differ, 1, "one bit, for good");
        disk.set_faults(Faults::default());
        disk.set_bytes_max(40_000);
        assert!(file.allocate(40_001).await.is_err());
        file.allocate(40_000).await.unwrap();
        assert!(file.write_all_at(vec![1; 2], 39_999).await.0.is_err());
        assert!(disk.rot("/a", |len| len / 2) && !disk.rot("/nothing", |len| len / 2));
    });
    assert!(disk.counters().faults > 200);
}

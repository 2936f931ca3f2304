//! Objects are found as they were put: whole, in parts, by exact reads.

use std::time::Duration;

use runtime::sim::Disk;
use store::disk::{BLOCK_BYTES, Broken, Chunks, DiskCounters, Geometry, Refused};

use crate::{ABOUT, Running, SEGMENTS, body, key, on, options, whole};

const BLOCK: u64 = 4096;

fn since(store: &store::disk::DiskStore, before: DiskCounters) -> (u64, u64, u64) {
    let now = store.counters();
    (now.reads - before.reads, now.blocks - before.blocks, now.read_bytes - before.read_bytes)
}

#[test]
fn objects_of_every_length_are_found_before_and_after_they_are_written() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        for (number, len) in [0, 1, 100, 4000, 4096, 5000, 16_383, 16_384, 16_385, 40_000, 60_000]
            .into_iter()
            .enumerate()
        {
            let (key, meta) = (key(number as u64), format!("meta of {len}").into_bytes());
            assert!(!store.contains(&key) && whole(store, &key).await.is_none());
            store.put(&key, ABOUT, &meta, &body(len as u64, len)).unwrap();
            let expected = Some((meta, body(len as u64, len)));
            assert!(whole(store, &key).await == expected, "{len} from memory");
            store.flush().await.unwrap();
            assert!(store.contains(&key));
            assert!(whole(store, &key).await == expected, "{len} from the disk");
        }
        assert_eq!((store.len(), store.buffered_bytes()), (11, 0));
        running.close().await;
    });
}

#[test]
fn hasten_writes_at_once_without_a_sync() {
    on(&Disk::new(1), async {
        let mut options = options();
        options.flush_interval = Duration::from_secs(3600);
        let running = Running::open(options).await;
        let store = &running.store;
        let syncs = store.counters().syncs;
        store.put(&key(1), ABOUT, b"meta", &body(1, 3000)).unwrap();
        assert!(store.buffered_bytes() > 3000);
        store.hasten();
        runtime::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((store.buffered_bytes(), store.counters().syncs), (0, syncs));
        assert!(whole(store, &key(1)).await.is_some());
        running.close().await;
    });
}

/// One read for an object of one block, otherwise ceil(length / block), and none past the end.
#[test]
fn an_object_is_read_at_its_exact_length() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        for len in [0, 1, 1000, 4000, 4016, 4017, 4018, 8000, 12_000, 16_000] {
            let key = key(len as u64);
            store.put(&key, ABOUT, b"metadata", &body(3, len)).unwrap();
            store.flush().await.unwrap();
            let before = store.counters();
            whole(store, &key).await.unwrap();
            let payload = 64 + 8 + len as u64;
            let stored = payload + 8 * payload.div_ceil(BLOCK - 8);
            let blocks = stored.div_ceil(BLOCK);
            assert_eq!(since(store, before), (blocks, blocks, stored), "{len}");
            assert_eq!(store.counters().reads_zero, 0);
        }
        running.close().await;
    });
}

#[test]
fn a_range_reads_only_its_blocks() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        let all = body(9, 60_000);
        store.put(&key(1), ABOUT, b"m", &all).unwrap();
        store.put(&key(2), ABOUT, b"m", &all[..15_000]).unwrap();
        store.flush().await.unwrap();
        for (key, len) in [(key(1), 60_000), (key(2), 15_000)] {
            for (start, end) in [(0, 1), (4022, 4025), (9000, 9001), (7000, 14_000), (0, 15_000)] {
                let before = store.counters();
                let mut part = store.get(&key).await.unwrap().range(start..end);
                let mut got = Vec::new();
                while let Some(piece) = part.next().await.unwrap() {
                    got.extend_from_slice(&piece);
                }
                assert!(got == all[start as usize..end as usize], "{start}..{end} of {len}");
                let reads = since(store, before).0;
                let most = (end - start).div_ceil(BLOCK - 8) + 2;
                assert!(reads <= most, "{start}..{end} of {len}: {reads} reads");
            }
        }
        let hit = store.get(&key(1)).await.unwrap();
        assert_eq!(hit.body_len, 60_000);
        let mut end = hit.range(59_000..90_000);
        assert_eq!(end.left(), 1000);
        let mut got = 0;
        while let Some(piece) = end.next().await.unwrap() {
            got += piece.len();
        }
        assert_eq!(got, 1000);
        running.close().await;
    });
}

#[test]
fn contains_reads_nothing_from_the_disk() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        store.put(&key(1), ABOUT, b"m", b"body").unwrap();
        store.flush().await.unwrap();
        let before = store.counters();
        assert!(store.contains(&key(1)) && !store.contains(&key(2)));
        assert_eq!(store.counters(), before);
        running.close().await;
    });
}

#[test]
fn an_update_rewrites_the_head_and_keeps_the_body() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        for len in [10, 9000, 50_000] {
            let all = body(5, len);
            let object = store.put(&key(1), ABOUT, b"old", &all).unwrap();
            store.flush().await.unwrap();
            store.update(&key(1), object, ABOUT, b"a longer new head").await.unwrap();
            let expected = Some((b"a longer new head".to_vec(), all.clone()));
            assert!(whole(store, &key(1)).await == expected);
            assert_eq!(store.get(&key(1)).await.unwrap().object, object, "the same body");
            let other = store.put(&key(1), ABOUT, b"other", b"other").unwrap();
            let refused = store.update(&key(1), object, ABOUT, b"late").await;
            assert_eq!(refused, Err(Refused::Changed));
            assert_eq!(store.get(&key(1)).await.unwrap().object, other);
        }
        running.close().await;
    });
}

#[test]
fn a_body_that_does_not_end_leaves_nothing() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        store.put(&key(1), ABOUT, b"m", b"before").unwrap();
        let mut writer = store.writer(&key(1), ABOUT, b"m");
        for _ in 0..5 {
            writer.write(&body(1, 9000)).unwrap();
        }
        drop(writer);
        assert_eq!(whole(store, &key(1)).await.unwrap().1, b"before");
        store.flush().await.unwrap();
        assert_eq!(store.buffered_bytes(), 0);
        running.close().await;
    });
}

/// Reads a body by its chunks, up to `bytes`.
async fn by_chunks(chunks: &Chunks, bytes: u64) -> Result<Vec<u8>, Broken> {
    let mut out = Vec::new();
    while (out.len() as u64) < bytes {
        let piece = chunks.read(out.len() as u64).await?;
        assert!(!piece.is_empty() && piece.len() <= BLOCK_BYTES as usize);
        out.extend_from_slice(&piece);
    }
    Ok(out)
}

#[test]
fn chunks_are_read_before_the_body_has_ended_and_for_as_long_as_somebody_has_them() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        let chunk_bytes = u64::from(store.geometry().chunk_bytes);
        let all = body(1, 3 * chunk_bytes as usize + 77);
        for is_finished in [true, false] {
            let mut writer = store.writer(&key(1), ABOUT, b"m");
            let chunks = writer.chunks();
            assert_eq!((chunks.bytes(), u64::from(chunks.chunk_bytes())), (0, chunk_bytes));
            for (at, piece) in all.chunks(1000).enumerate() {
                writer.write(piece).unwrap();
                let written = (at * 1000 + piece.len()) as u64;
                assert!(chunks.bytes() <= written && chunks.bytes() + chunk_bytes >= written);
                // Some are in memory, others on the disk.
                if at % 20 == 19 {
                    let read = by_chunks(&chunks, chunks.bytes()).await.unwrap();
                    assert!(read == all[..read.len()] && read.len() as u64 == chunks.bytes());
                    store.flush().await.unwrap();
                }
            }
            assert!(!store.contains(&key(1)), "it has no head");
            if is_finished {
                writer.finish().unwrap();
                assert_eq!(chunks.bytes(), all.len() as u64);
            } else {
                drop(writer);
            }
            let read = by_chunks(&chunks, chunks.bytes()).await.unwrap();
            assert!(read == all[..read.len()] && read.len() as u64 == chunks.bytes());
            assert_eq!(store.contains(&key(1)), is_finished);
            drop(chunks);
            let found = whole(store, &key(1)).await;
            assert_eq!(found.map(|(_, body)| body), is_finished.then(|| all.clone()));
            drop(store.delete(&key(1)));
        }
        running.close().await;
    });
}

/// Nothing newer was stored, so the older one may still be of use.
#[test]
fn a_body_in_pieces_that_is_refused_leaves_the_old_object() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        store.put(&key(1), ABOUT, b"m", b"before").unwrap();
        let mut writer = store.writer(&key(1), ABOUT, b"m");
        let mut written = Ok(());
        for _ in 0..=store.geometry().body_bytes_max() / 9000 {
            writer.room(Duration::from_secs(60)).await;
            written = written.and_then(|()| writer.write(&body(1, 9000)));
        }
        assert_eq!(written, Err(Refused::TooLarge));
        assert_eq!(writer.finish(), Err(Refused::TooLarge));
        assert_eq!(whole(store, &key(1)).await.unwrap().1, b"before");
        running.close().await;
    });
}

/// A body that arrives faster than the disk takes it is slowed down, not refused.
#[test]
fn who_waits_for_room_is_not_refused() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        let all = body(1, store.geometry().body_bytes_max() as usize);
        for number in 0..40 {
            let mut writer = store.writer(&key(number), ABOUT, b"m");
            for piece in all.chunks(10_000) {
                writer.room(Duration::from_secs(60)).await;
                writer.write(piece).unwrap();
            }
            writer.finish().unwrap();
        }
        assert!(store.counters().segments_reclaimed > 0);
        assert_eq!((store.counters().refused_busy, store.counters().refused_room), (0, 0));
        running.close().await;
    });
}

#[test]
fn a_refused_put_removes_the_old_object() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        let limit = store.geometry().body_bytes_max() as usize;
        for (meta, len) in [(vec![0; 9000], 1), (vec![], limit + 1)] {
            store.put(&key(1), ABOUT, b"m", b"before").unwrap();
            let refused = store.put(&key(1), ABOUT, &meta, &body(1, len));
            assert_eq!(refused, Err(Refused::TooLarge));
            assert!(!store.contains(&key(1)));
        }
        // Too much at once for the flusher, which has not run since.
        let mut refused = 0;
        for number in 0..100 {
            refused += usize::from(store.put(&key(number), ABOUT, b"m", &body(1, 16_000)).is_err());
        }
        assert!(refused > 50 && store.buffered_bytes() <= 512 * 1024);
        assert!(store.counters().refused_busy > 0);
        running.close().await;
    });
}

/// Twice as much as fits, several times over: new objects are there, requested ones stay, and at
/// most as much is moved as was stored.
#[test]
fn eviction_keeps_requested_objects_and_write_amplification_within_two() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        let hot = 60;
        let (mut asked, mut found) = (0, 0);
        for number in hot..4000_u64 {
            store.put(&key(number), ABOUT, b"meta", &body(number, 3000)).unwrap();
            if number % 8 == 0 {
                store.flush().await.unwrap();
                for hot in 0..hot {
                    asked += 1;
                    if let Some(hit) = whole(store, &key(hot)).await {
                        assert!(hit.1 == body(hot, 3000));
                        found += 1;
                    } else {
                        store.put(&key(hot), ABOUT, b"meta", &body(hot, 3000)).unwrap();
                    }
                }
            }
        }
        store.flush().await.unwrap();
        assert!(found > asked * 8 / 10, "{found} of {asked}");
        let recent = (3980..4000).filter(|number| store.contains(&key(*number))).count();
        assert!(recent > 15, "{recent}");
        let counters = store.counters();
        assert!(counters.segments_reclaimed > 100 && counters.moved > 0);
        assert!(counters.moved_bytes <= counters.written_bytes);
        let room = u64::from(SEGMENTS) * 64 * 1024 / 3000;
        assert!((store.len() as u64) < room && store.len() as u64 > room / 2, "{}", store.len());
        running.close().await;
    });
}

/// One record, of which the look-up has read the first block, and one in chunks.
#[test]
fn a_body_that_is_read_holds_no_block_that_was_returned() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        for (number, len) in [(0, 2000), (1, 12_000), (2, 60_000)] {
            store.put(&key(number), ABOUT, b"m", &body(number, len)).unwrap();
            store.flush().await.unwrap();
            let mut rest = store.get(&key(number)).await.unwrap().body();
            while rest.next().await.unwrap().is_some() {
                let shown = format!("{rest:?}");
                assert!(shown.contains("first: Past"), "{len}: {shown}");
            }
        }
        running.close().await;
    });
}

#[test]
fn a_reader_that_keeps_a_part_of_each_block_gets_all_of_the_body() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        for (number, len) in [(1, 12_000), (2, 60_000)] {
            let all = body(number, len);
            store.put(&key(number), ABOUT, b"m", &all).unwrap();
            store.flush().await.unwrap();
            let (mut rest, mut got) = (store.get(&key(number)).await.unwrap().body(), Vec::new());
            while let Some(piece) = rest.next().await.unwrap() {
                let piece = rest.keep(piece, 700);
                assert!((1..=700).contains(&piece.len()));
                got.extend_from_slice(&piece);
                assert_eq!(rest.left() as usize, all.len() - got.len());
            }
            assert!(got == all, "{len}");
        }
        running.close().await;
    });
}

/// A slow client, while the store is overwritten several times: a body in chunks and one in a
/// single record are read to their ends.
#[test]
fn a_body_that_is_read_slowly_is_not_evicted_meanwhile() {
    on(&Disk::new(1), async {
        let running = Running::open(options()).await;
        let store = &running.store;
        let lengths = [60_000, 12_000];
        for (number, len) in (0..).zip(lengths) {
            store.put(&key(number), ABOUT, b"m", &body(number, len)).unwrap();
        }
        store.flush().await.unwrap();
        let mut reading = Vec::new();
        for number in 0..2 {
            let mut rest = store.get(&key(number)).await.unwrap().body();
            let read = rest.next().await.unwrap().unwrap().to_vec();
            reading.push((rest, read));
        }
        let mut next = 100;
        while store.counters().segments_reclaimed < 4 * u64::from(SEGMENTS) {
            store.put(&key(next), ABOUT, b"m", &body(next, 9000)).unwrap();
            store.flush().await.unwrap();
            next += 1;
        }
        for (number, (mut rest, mut read)) in (0..).zip(reading) {
            while let Some(piece) = rest.next().await.unwrap() {
                read.extend_from_slice(&piece);
            }
            assert!(read == body(number, lengths[number as usize]));
        }
        running.close().await;
    });
}

/// All at once, before the flusher runs.
#[test]
fn a_store_that_is_full_has_room_for_a_burst() {
    let disk = Disk::new(1);
    on(&disk, async {
        let mut options = options();
        options.geometry = Geometry { journal_bytes: 256 * 1024, ..Geometry::tiny(160) };
        options.buffer_bytes_max = 2 * 1024 * 1024;
        let burst = u64::from(options.geometry.segment_bytes) * 14;
        let running = Running::open(options).await;
        let store = &running.store;
        let bytes = body(1, 10_000);
        for number in 0..2_000 {
            store.put(&key(number), ABOUT, b"meta", &bytes).unwrap();
            if number.is_multiple_of(5) {
                store.flush().await.unwrap();
            }
        }
        store.flush().await.unwrap();
        assert!(store.counters().segments_reclaimed > 100, "it is full");
        for number in 0..burst / 11_000 {
            store.put(&key(10_000 + number), ABOUT, b"meta", &bytes).unwrap();
        }
        store.flush().await.unwrap();
        running.close().await;
    });
}

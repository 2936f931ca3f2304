//! The same store on a real disk.

use runtime::fs::SharedPages;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::{Options, Runtime};
use store::disk::{Body, Broken, DiskStore, Geometry, Start};

use crate::{ABOUT, Running, body, key, whole};

#[test]
fn a_real_directory_keeps_objects_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let geometry = Geometry::for_bytes(24 << 20).unwrap();
    let options = store::disk::Options::new(&path, geometry);
    let run = |work: fn(Running) -> std::pin::Pin<Box<dyn Future<Output = Running>>>| {
        let mut runtime = Runtime::new(Options::default()).unwrap();
        runtime.block_on(async {
            let running = work(Running::open(options.clone()).await).await;
            running.close().await;
        });
    };
    run(|running| {
        Box::pin(async {
            assert_eq!(running.start, Start::New);
            for number in 0..2000 {
                let len = (number * 37 % 3000) as usize;
                let put = running.store.put(&key(number), ABOUT, b"meta", &body(number, len));
                put.unwrap();
            }
            running.store.put(&key(5000), ABOUT, b"large", &body(5, 1_000_000)).unwrap();
            running.store.flush().await.unwrap();
            running.store.delete(&key(3)).durable().await.unwrap();
            running
        })
    });
    run(|running| {
        Box::pin(async {
            assert_eq!(running.start, Start::Warm { objects: 2000, entries_lost: 0 });
            assert_eq!(running.store.counters().blocks, 0);
            for number in (0..2000).filter(|number| *number != 3) {
                let all = whole(&running.store, &key(number)).await.unwrap().1;
                assert!(all == body(number, (number * 37 % 3000) as usize));
            }
            assert!(whole(&running.store, &key(3)).await.is_none());
            let large = whole(&running.store, &key(5000)).await.unwrap();
            assert!(large == (b"large".to_vec(), body(5, 1_000_000)));
            let counters = running.store.counters();
            assert_eq!((counters.bad_blocks, counters.reads_zero), (0, 0));
            running
        })
    });
}

/// Every user of the machine could read what clients had been sent.
#[test]
fn the_files_are_for_this_user_alone() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let (made, given) = (dir.path().join("made/cache"), dir.path().join("given"));
    // An operator's directory, with a file of an earlier version.
    fs::create_dir(&given).unwrap();
    fs::set_permissions(&given, Permissions::from_mode(0o755)).unwrap();
    fs::write(given.join("segments"), b"").unwrap();
    fs::set_permissions(given.join("segments"), Permissions::from_mode(0o644)).unwrap();
    for (path, of_directory) in [(&made, 0o700), (&given, 0o755)] {
        let geometry = Geometry::for_bytes(24 << 20).unwrap();
        let options = store::disk::Options::new(path, geometry);
        Runtime::new(Options::default()).unwrap().block_on(async {
            Running::open(options).await.close().await;
        });
        assert_eq!(mode(path), of_directory, "{}", path.display());
        let files: Vec<_> = fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 6, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
}

/// One flusher; every core puts, gets and deletes, each on its own runtime.
#[test]
fn any_core_may_use_it() {
    const CORES: u64 = 3;
    let dir = tempfile::tempdir().unwrap();
    let geometry = Geometry::for_bytes(24 << 20).unwrap();
    let options = store::disk::Options::new(dir.path(), geometry);
    let mut runtime = Runtime::new(Options::default()).unwrap();
    runtime.block_on(async {
        let running = Running::open(options).await;
        let cores: Vec<_> = (0..CORES)
            .map(|core| {
                let store = running.store.clone();
                runtime::spawn(runtime::fs::unblock(move || {
                    let mut runtime = Runtime::new(Options::default()).unwrap();
                    runtime.block_on(async {
                        for number in 0..400 {
                            let own = key(core * 1000 + number);
                            let len = (number * 97 % 9000) as usize;
                            store.put(&own, ABOUT, b"meta", &body(number, len)).unwrap();
                            store.put(&key(9999), ABOUT, b"meta", &body(1, 500)).unwrap();
                            assert!(whole(&store, &own).await.unwrap().1 == body(number, len));
                            if number % 50 == 0 {
                                store.delete(&own).durable().await.unwrap();
                                assert!(!store.contains(&own));
                            }
                            if let Some((_, shared)) = whole(&store, &key(9999)).await {
                                assert!(shared == body(1, 500));
                            }
                        }
                    });
                }))
            })
            .collect();
        for core in cores {
            core.await;
        }
        running.store.flush().await.unwrap();
        for core in 0..CORES {
            for number in (0..400).filter(|number| number % 50 != 0) {
                let all = whole(&running.store, &key(core * 1000 + number)).await.unwrap().1;
                assert!(all == body(number, (number * 97 % 9000) as usize));
            }
        }
        running.close().await;
    });
}

/// Few segments, each large enough to be detached.
fn zero_copy_options(path: &std::path::Path) -> store::disk::Options {
    let geometry = Geometry {
        segment_bytes: 2 << 20,
        segments: 16,
        block_bytes: store::disk::BLOCK_BYTES,
        chunk_bytes: 512 << 10,
        journal_bytes: 256 << 10,
    };
    store::disk::Options::new(path, geometry)
}

/// A connection over which pages are sent.
struct Wire {
    from: TcpStream,
    to: TcpStream,
}

impl Wire {
    async fn new() -> Wire {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any, &ListenOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let (from, to) = runtime::join(TcpStream::connect(address), listener.accept()).await;
        Wire { from: from.unwrap(), to: to.unwrap().0 }
    }

    async fn sent(&self, mut pages: SharedPages) -> Vec<u8> {
        let mut came = vec![0; pages.left()];
        let send = async {
            while pages.left() > 0 {
                self.from.writable().await.unwrap();
                match self.from.try_write_pages(&mut pages, false) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    sent => assert!(sent.unwrap() > 0),
                }
            }
        };
        runtime::join(send, async { self.to.read_exact(&mut came).await.unwrap() }).await;
        came
    }

    /// A body as it is sent, with and without zero-copy, and the bytes sent zero-copy.
    async fn fetch(&self, body: Body) -> Result<(Vec<u8>, usize), Broken> {
        let (mut body, mut all, mut shared) = (body.allow_zero_copy(), Vec::new(), 0);
        loop {
            while let Some(pages) = body.next_shared().await {
                shared += pages.left();
                all.extend(self.sent(pages).await);
            }
            match body.next().await? {
                Some(piece) => all.extend_from_slice(&piece),
                None => return Ok((all, shared)),
            }
        }
    }

    async fn fetch_one(&self, store: &DiskStore) -> Result<(Vec<u8>, usize), Broken> {
        let hit = store.get(&key(1)).await.ok_or(Broken)?;
        self.fetch(hit.body()).await
    }
}

/// The length of the object in some tests: one record.
const ONE_BYTES: usize = 400_000;

async fn put_one(store: &DiskStore) {
    store.put(&key(1), ABOUT, b"meta", &body(1, ONE_BYTES)).unwrap();
    store.flush().await.unwrap();
}

/// A store that sends zero-copy. `None`, with the reason on stderr, where that is unavailable.
async fn zero_copy_store(path: &std::path::Path) -> Option<Running> {
    let running = Running::open(zero_copy_options(path)).await;
    if let Some(why) = running.store.zero_copy_unavailable() {
        eprintln!("skipped: zero-copy is unavailable: {why}");
        return None;
    }
    assert!(path.join("lent").exists(), "the next process to open it must know");
    Some(running)
}

#[test]
fn verified_blocks_are_sent_zero_copy_from_the_third_reader_on() {
    let dir = tempfile::tempdir().unwrap();
    Runtime::new(Options::default()).unwrap().block_on(async {
        let Some(running) = zero_copy_store(dir.path()).await else { return };
        let (store, wire) = (&running.store, Wire::new().await);
        // One record, chunks, and one that is too short.
        let lens = [300_000, 1_500_000, 100_000];
        for (number, len) in (0..).zip(lens) {
            store.put(&key(number), ABOUT, b"meta", &body(number, len)).unwrap();
        }
        let get = async |number, range: std::ops::Range<u64>| {
            let hit = store.get(&key(number)).await.unwrap();
            wire.fetch(hit.range(range)).await.unwrap()
        };
        // Records that wait to be written are copied.
        for _ in 0..4 {
            assert_eq!(get(0, 0..300_000).await, (body(0, 300_000), 0));
        }
        store.flush().await.unwrap();
        for (number, len) in (0..).zip(lens) {
            for _ in 0..2 {
                assert_eq!(get(number, 0..len as u64).await, (body(number, len), 0));
            }
        }
        let before = store.counters();
        assert_eq!(before.zero_copy_records, 4, "one, and three chunks");
        // The look-up reads the first block, which has the beginning of the body if that is short.
        let beginning = usize::try_from(store::disk::BLOCK_BYTES).unwrap() - 8 - 64 - 4;
        assert_eq!(get(0, 0..300_000).await, (body(0, 300_000), 300_000 - beginning));
        assert_eq!(get(1, 0..1_500_000).await, (body(1, 1_500_000), 1_500_000));
        assert_eq!(get(2, 0..100_000).await, (body(2, 100_000), 0));
        let after = store.counters();
        assert_eq!(after.reads - before.reads, 1 + 1 + 4, "one look-up each, and all of the third");
        let blocks = 300_076_u64.div_ceil(32_760) - 1 + 2 * 524_352_u64.div_ceil(32_760) + 14;
        assert_eq!(after.zero_copy_blocks - before.zero_copy_blocks, blocks);
        // From then on the look-up needs no read, and the first block is sent zero-copy too.
        for number in [0, 1] {
            let len = lens[number as usize];
            assert_eq!(get(number, 0..len as u64).await, (body(number, len), len));
        }
        assert_eq!(store.get(&key(0)).await.unwrap().meta, b"meta");
        let reads = store.counters().reads - after.reads;
        assert_eq!(reads, 1, "the record that has the metadata of chunks is short");
        // Ranges, which begin and end anywhere.
        for (first, last) in
            [(200_000, 250_000), (40_000, 40_001), (0, 100_000), (524_000, 1_499_999)]
        {
            let expected = body(1, 1_500_000)[first as usize..last as usize].to_vec();
            let len = expected.len();
            assert_eq!(get(1, first..last).await, (expected, len));
        }
        assert_eq!(store.counters().zero_copy_evicted, 0);
        running.close().await;
    });
}

/// A client may be slow, and the segment is reused before it has everything.
#[test]
fn shared_pages_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    Runtime::new(Options::default()).unwrap().block_on(async {
        let Some(running) = zero_copy_store(dir.path()).await else { return };
        let (store, wire) = (&running.store, Wire::new().await);
        let len = 200_000;
        let (mut shared, mut expected) = (Vec::new(), Vec::new());
        // Short writes, which go through the page cache, to every place of the store.
        for number in 0..2600 {
            if number % 40 == 0 {
                store.put(&key(number), ABOUT, b"meta", &body(number, len)).unwrap();
                store.flush().await.unwrap();
                for round in 0..3 {
                    let mut parts = store.get(&key(number)).await.unwrap().body().allow_zero_copy();
                    let first = parts.next().await.unwrap().unwrap().len();
                    if round == 2 {
                        shared.push(parts.next_shared().await.expect("it was verified"));
                        expected.push(body(number, len)[first..].to_vec());
                    }
                    while parts.next().await.unwrap().is_some() {}
                }
            }
            store.put(&key(number + 10_000), ABOUT, b"meta", &body(number, 20_000)).unwrap();
            while number % 2 == 0 && store.buffered_bytes() > 0 {
                store.hasten();
                runtime::time::sleep(std::time::Duration::from_micros(200)).await;
            }
        }
        let counters = store.counters();
        assert!(counters.segments_reclaimed > 20, "each segment had another life: {counters:?}");
        for (pages, expected) in shared.into_iter().zip(expected) {
            let len = pages.left();
            assert!(wire.sent(pages).await == expected[..len]);
        }
        running.close().await;
    });
}

/// Changes below the page cache are detected; pages evicted from the cache are read and verified
/// again.
#[test]
fn pages_evicted_from_the_page_cache_are_verified_again() {
    // In the middle of a record, and in its first block, whose header is in memory.
    [131_072, 0].into_iter().for_each(left_at);
}

fn left_at(at: u64) {
    let dir = tempfile::tempdir().unwrap();
    Runtime::new(Options::default()).unwrap().block_on(async {
        let Some(running) = zero_copy_store(dir.path()).await else { return };
        running.close().await;
        // Before the store opens: an open while it runs would end zero-copy.
        let direct = runtime::fs::OpenOptions { direct: true, ..runtime::fs::OpenOptions::WRITE };
        let path = dir.path().join("segments");
        let file = runtime::fs::File::open_with(&path, direct).await.unwrap();
        let running = Running::open(zero_copy_options(dir.path())).await;
        let (store, wire) = (&running.store, Wire::new().await);
        put_one(store).await;
        let get = || wire.fetch_one(store);
        // Rewrites the current bytes past the page cache, with or without a change.
        let write = async |change: u8| {
            let mut there = vec![0; 65_536];
            file.read_exact_at(&mut there, at).await.unwrap();
            there[1000] ^= change;
            let mut buffer = runtime::fs::PageBuffer::default();
            buffer.begin(at, there.len()).copy_from_slice(&there);
            file.write_all_at(buffer, at).await.0.unwrap();
        };
        for round in 1..=3 {
            for shared in [false, false, true, true] {
                let (all, bytes) = get().await.unwrap();
                assert!(all == body(1, ONE_BYTES) && shared == (bytes > 0));
            }
            assert_eq!(store.counters().zero_copy_records, round);
            write(0).await;
        }
        for _ in 0..3 {
            get().await.unwrap();
        }
        assert_eq!(get().await.unwrap().1, ONE_BYTES, "all of it is sent zero-copy");
        write(1).await;
        assert_eq!(get().await, Err(Broken));
        assert_eq!(store.counters().bad_blocks, 1);
        running.close().await;
    });
}

/// Another program that has the file open could write into the page cache.
#[test]
fn zero_copy_ends_once_another_program_opens_the_file() {
    let dir = tempfile::tempdir().unwrap();
    Runtime::new(Options::default()).unwrap().block_on(async {
        let Some(running) = zero_copy_store(dir.path()).await else { return };
        let (store, wire) = (&running.store, Wire::new().await);
        put_one(store).await;
        let get = || wire.fetch_one(store);
        for shared in [false, false, true] {
            let (all, bytes) = get().await.unwrap();
            assert!(all == body(1, ONE_BYTES) && shared == (bytes > 0));
        }
        // A body in flight: part of it is sent zero-copy, the rest is not.
        let mut in_flight = store.get(&key(1)).await.unwrap().body().allow_zero_copy();
        let mut came = in_flight.next().await.unwrap().unwrap().to_vec();
        came.extend(wire.sent(in_flight.next_shared().await.unwrap()).await);
        let file = std::fs::File::options().write(true).open(dir.path().join("segments")).unwrap();
        assert!(in_flight.next_shared().await.is_none());
        while let Some(piece) = in_flight.next().await.unwrap() {
            came.extend_from_slice(&piece);
        }
        assert!(came == body(1, ONE_BYTES));
        for _ in 0..4 {
            assert_eq!(get().await.unwrap(), (body(1, ONE_BYTES), 0));
        }
        assert!(store.zero_copy_unavailable().unwrap().contains("another program has opened"));
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 1000], 200_000).unwrap();
        assert_eq!(get().await, Err(Broken));
        assert_eq!(store.counters().bad_blocks, 1);
        running.close().await;
        // A restart verifies everything again.
        let running = Running::open(zero_copy_options(dir.path())).await;
        assert_eq!(running.store.zero_copy_unavailable(), None);
        running.close().await;
    });
}

#[test]
fn the_reason_for_no_zero_copy_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    Runtime::new(Options::default()).unwrap().block_on(async {
        let geometry = Geometry::for_bytes(64 << 20).unwrap();
        let short = store::disk::Options::new(dir.path().join("short"), geometry);
        let verify = store::disk::Verify::Always;
        let always =
            store::disk::Options { verify, ..zero_copy_options(&dir.path().join("always")) };
        for (options, word) in [(short, "shorter than 2 MiB"), (always, "each time")] {
            let running = Running::open(options).await;
            let why = running.store.zero_copy_unavailable().unwrap_or_default();
            assert!(why.contains(word), "{why}");
            running.close().await;
        }
    });
}

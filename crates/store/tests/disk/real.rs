//! The same store on a real disk.

use runtime::{Options, Runtime};
use store::disk::{Geometry, Start};

use crate::{ABOUT, Running, body, key, whole};

#[test]
fn a_real_directory_keeps_it_over_a_restart() {
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

/// One flusher, and every core puts, gets and deletes, each on a runtime of its own.
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

//! Files.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::rc::Rc;

use runtime::fs::File;
use runtime::{sim, spawn};

use crate::{Ground, pattern};

fn put(ground: &Ground, name: &str, bytes: &[u8]) -> PathBuf {
    let path = ground.dir.join(name);
    if ground.is_twin() {
        sim::put_file(&path, bytes);
    } else {
        std::fs::write(&path, bytes).unwrap();
    }
    path
}

pub(crate) async fn read_all(ground: Ground) {
    let bytes = pattern(1_000_003);
    let path = put(&ground, "large", &bytes);
    let file = File::open(&path).await.unwrap();
    assert_eq!(file.len().unwrap(), bytes.len() as u64);
    let mut all = Vec::new();
    let mut buf = vec![0; 60_000];
    loop {
        match file.read_at(&mut buf, all.len() as u64).await.unwrap() {
            0 => break,
            read => all.extend_from_slice(&buf[..read]),
        }
    }
    assert!(all == bytes);
    let mut middle = vec![0; 300_000];
    file.read_exact_at(&mut middle, 500_000).await.unwrap();
    assert!(middle == bytes[500_000..800_000]);
}

pub(crate) async fn edges(ground: Ground) {
    let missing = File::open(ground.dir.join("missing")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let empty = File::open(put(&ground, "empty", b"")).await.unwrap();
    assert!(empty.is_empty().unwrap());
    let mut buf = [9; 16];
    assert_eq!(empty.read_at(&mut buf, 0).await.unwrap(), 0);
    let small = File::open(put(&ground, "small", b"0123456789")).await.unwrap();
    small.read_exact_at(&mut buf[..3], 7).await.unwrap();
    assert_eq!(&buf[..3], b"789");
    assert_eq!(small.read_at(&mut buf, 10).await.unwrap(), 0);
    assert_eq!(small.read_at(&mut buf, 1 << 40).await.unwrap(), 0);
    assert_eq!(small.read_at(&mut [], 3).await.unwrap(), 0);
    let short = small.read_exact_at(&mut buf[..4], 7).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
}

/// A file that no page cache holds is read by the pool, and its length says nothing.
pub(crate) async fn not_in_the_page_cache(ground: Ground) {
    if ground.is_twin() {
        return; // has no page cache, and delays of its own
    }
    let before = runtime::counters();
    let file = File::open("/proc/self/stat").await.unwrap();
    assert_eq!(file.len().unwrap(), 0);
    let mut buf = [0; 4096];
    let read = file.read_at(&mut buf, 0).await.unwrap();
    let expected = format!("{} ", std::process::id());
    assert!(buf[..read].starts_with(expected.as_bytes()));
    assert_eq!(file.read_at(&mut buf, read as u64).await.unwrap(), 0);
    assert!(runtime::counters().since(&before).pool_jobs >= 2);
}

pub(crate) async fn many_at_once(ground: Ground) {
    let bytes = Rc::new(pattern(100_000));
    let path = put(&ground, "shared", &bytes);
    let file = Rc::new(File::open(&path).await.unwrap());
    let readers: Vec<_> = (0..40_u64)
        .map(|i| {
            let (file, bytes) = (Rc::clone(&file), Rc::clone(&bytes));
            spawn(async move {
                let mut buf = [0; 777];
                file.read_exact_at(&mut buf, i * 2_000).await.unwrap();
                let start = i as usize * 2_000;
                assert!(buf == bytes[start..start + 777]);
            })
        })
        .collect();
    for reader in readers {
        reader.await;
    }
}

//! Files.

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::rc::Rc;
use std::slice::from_ref;
use std::time::Duration;

use runtime::fs::{File, NotShared, OpenOptions, OpenWatch, PageBuffer};
use runtime::{sim, spawn, yield_now};

use crate::{Ground, pair, pattern};

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
    let reads = file.append_exact_at(&mut middle, 600_003, 400_000).await.unwrap();
    assert!(reads.calls > 0 && middle[..300_000] == bytes[500_000..800_000]);
    assert!(middle[300_000..] == bytes[400_000..]);
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
    for (len, offset) in [(4, 7), (1, 10), (1, 1 << 40)] {
        let short = small.append_exact_at(&mut Vec::new(), len, offset).await.unwrap_err();
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    }
    let mut out = Vec::from(*b"x");
    small.append_exact_at(&mut out, 3, 7).await.unwrap();
    small.append_exact_at(&mut out, 0, 3).await.unwrap();
    assert_eq!(out, b"x789");
}

/// Tasks that move many bytes proceed piece by piece, one such task per turn: a small request waits
/// for one piece and not for all.
pub(crate) async fn large_reads_let_the_others_run(ground: Ground) {
    const READERS: u32 = 8;
    const BYTES: usize = 4 << 20;
    const PIECE_BYTES_MAX: usize = 512 << 10;
    let path = put(&ground, "much", &pattern(BYTES));
    if ground.is_twin() {
        return; // each of its reads waits for a simulated disk, and other tasks run meanwhile
    }
    let left = Rc::new(Cell::new(READERS));
    for _ in 0..READERS {
        let (path, left) = (path.clone(), Rc::clone(&left));
        spawn(async move {
            let file = File::open(&path).await.unwrap();
            let mut buf = vec![0; 64 << 10];
            for offset in (0..BYTES).step_by(buf.len()) {
                file.read_exact_at(&mut buf, offset as u64).await.unwrap();
            }
            left.set(left.get() - 1);
        });
    }
    let mut ran = 0;
    while left.get() > 0 {
        yield_now().await;
        ran += 1;
    }
    assert!(ran >= READERS as usize * BYTES / PIECE_BYTES_MAX, "{ran} turns");
}

/// A file outside the page cache is read by the pool, and its length is meaningless.
pub(crate) async fn not_in_the_page_cache(ground: Ground) {
    if ground.is_twin() {
        return; // has no page cache, but its own delays
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

pub(crate) async fn reads_return_what_was_written(ground: Ground) {
    let path = ground.dir.join("written");
    let missing = File::open_with(&path, OpenOptions::WRITE).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let file = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    assert!(file.is_empty().unwrap());
    file.allocate(100_000).await.unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    file.allocate(10).await.unwrap();
    assert_eq!(file.len().unwrap(), 100_000, "a file is not shortened");
    let bytes = pattern(70_001);
    let (written, back) = file.write_all_at(bytes.clone(), 40_000).await;
    written.unwrap();
    assert!(back == bytes, "the buffer comes back");
    assert_eq!(file.len().unwrap(), 110_001);
    file.write_all_at(b"middle".as_slice(), 50_000).await.0.unwrap();
    // Bytes made in the pool, in a buffer that comes back; also no bytes at all.
    let made = pattern(3000);
    let make = |mut buffer: Vec<u8>, from: usize| {
        let part = made[from..].to_vec();
        move || {
            buffer.clear();
            buffer.extend_from_slice(&part);
            buffer
        }
    };
    let (written, buffer) = file.write_made_at(make(Vec::new(), 0), 20_000).await;
    assert!(written.is_ok() && buffer.len() == 3000);
    let (written, buffer) = file.write_made_at(make(buffer, 1000), 30_000).await;
    assert!(written.is_ok() && buffer.len() == 2000 && buffer.capacity() >= 3000);
    let (written, buffer) = file.write_made_at(make(buffer, 3000), 200_000).await;
    assert!(written.is_ok() && buffer.is_empty());
    file.sync_data().await.unwrap();
    let mut expected = vec![0; 110_001];
    expected[20_000..23_000].copy_from_slice(&made);
    expected[30_000..32_000].copy_from_slice(&made[1000..]);
    expected[40_000..].copy_from_slice(&bytes);
    expected[50_000..50_006].copy_from_slice(b"middle");
    // Another handle sees the same, and opening the file again keeps its content.
    let again = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    let mut all = vec![9; 110_001];
    let reads = again.read_exact_at(&mut all, 0).await.unwrap();
    assert!(all == expected);
    assert_eq!(reads.calls, reads.short + 1);
    again.set_len(50_003).await.unwrap();
    let cut = file.read_exact_at(&mut all[..10], 50_000).await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
    // Longer than one call writes.
    let long = pattern(300_001);
    file.write_all_at(long.clone(), 7).await.0.unwrap();
    let mut all = vec![0; long.len()];
    file.read_exact_at(&mut all, 7).await.unwrap();
    assert!(all == long);
    let read_only = File::open(&path).await.unwrap();
    assert!(read_only.write_all_at(b"x".as_slice(), 0).await.0.is_err());
}

/// Whatever part of a write bypasses the page cache, a read returns what was written last.
pub(crate) async fn writes_that_bypass_the_page_cache(ground: Ground) {
    const FILE_BYTES: usize = 1 << 20;
    let path = ground.dir.join("direct");
    let options = OpenOptions { direct: true, ..OpenOptions::CREATE };
    let file = File::open_with(&path, options).await.unwrap();
    file.allocate(FILE_BYTES as u64).await.unwrap();
    let possible = !ground.is_twin() && {
        let direct = std::os::unix::fs::OpenOptionsExt::custom_flags;
        direct(std::fs::File::options().write(true), libc::O_DIRECT).open(&path).is_ok()
    };
    let mut expected = vec![0; FILE_BYTES];
    let mut buffer = PageBuffer::default();
    // (offset, length, long enough to bypass the page cache)
    let writes = [
        (0, 300_000, true),
        (4096, 65_536, true),
        (200_001, 100_000, true),
        (300_000, 4095, false),
        (8190, 65_000, false),
        (77, 65_536 + 4096, true),
        (4095, 2, false),
        (524_288, 524_288, true),
        (0, 0, false),
    ];
    for (number, (offset, len, long)) in (1..).zip(writes) {
        let bytes: Vec<u8> = pattern(len).iter().map(|byte| byte ^ number).collect();
        // Fill the page cache with the old content.
        let mut all = vec![9; FILE_BYTES];
        file.read_exact_at(&mut all, 0).await.unwrap();
        buffer.begin(offset as u64, len).copy_from_slice(&bytes);
        let before = runtime::counters();
        let (written, back) = file.write_all_at(buffer, offset as u64).await;
        written.unwrap();
        assert!(back.as_ref() == bytes);
        let uncached = runtime::counters().since(&before).file_writes_uncached;
        assert_eq!(uncached > 0, long && possible, "{len} bytes at {offset}");
        buffer = back;
        expected[offset..offset + len].copy_from_slice(&bytes);
        file.read_exact_at(&mut all, 0).await.unwrap();
        assert!(all == expected, "{len} bytes at {offset}");
    }
    // Bytes at an unaligned address, and more of them than before.
    let mut bytes = vec![7; 100_001];
    bytes.remove(0);
    file.write_all_at(bytes, 5).await.0.unwrap();
    buffer.begin(200_000, 500_000).fill(8);
    file.write_all_at(buffer, 200_000).await.0.unwrap();
    expected[5..100_005].fill(7);
    expected[200_000..700_000].fill(8);
    file.sync_data().await.unwrap();
    let mut all = vec![9; FILE_BYTES];
    File::open(&path).await.unwrap().read_exact_at(&mut all, 0).await.unwrap();
    assert!(all == expected);
}

/// Every open is seen, under any name and for any purpose, but not files opened before.
pub(crate) async fn opening_a_file_is_seen(ground: Ground) {
    let path = ground.dir.join("watched");
    let file = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    if ground.is_twin() {
        let refused = OpenWatch::new(&path).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        return;
    }
    let other_name = ground.dir.join("watched too");
    std::fs::hard_link(&path, &other_name).unwrap();
    for name in [&path, &other_name] {
        let watch = OpenWatch::new(&path).await.unwrap();
        file.write_all_at(Vec::from(*b"mine"), 0).await.0.unwrap();
        file.read_exact_at(&mut [0; 4], 0).await.unwrap();
        std::fs::metadata(name).unwrap();
        assert!(!watch.was_opened());
        drop(std::fs::File::open(name).unwrap());
        assert!(watch.was_opened() && watch.was_opened(), "closing it does not reset the watch");
    }
    let gone = OpenWatch::new(&path).await.unwrap();
    drop(file);
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&other_name).unwrap();
    assert!(gone.was_opened(), "no more events will come for it");
    let missing = OpenWatch::new(&path).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// Pages are shared as long as they stay cached, and shared pages keep their content.
pub(crate) async fn pages_are_shared_while_they_stay_cached(ground: Ground) {
    const FILE_BYTES: usize = 1 << 20;
    let path = ground.dir.join("pages");
    let options = OpenOptions { direct: true, ..OpenOptions::CREATE };
    let file = File::open_with(&path, options).await.unwrap();
    let all = pattern(FILE_BYTES);
    file.write_all_at(all.clone(), 0).await.0.unwrap();
    if ground.is_twin() {
        let refused = file.stable_pages(0, 10).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        file.detach(0, FILE_BYTES as u64).await.unwrap();
        assert!(runtime::fs::check_page_sharing(&ground.dir).await.is_err());
        return;
    }
    if let Err(why) = runtime::fs::check_page_sharing(&ground.dir).await {
        eprintln!("skipped: pages cannot be shared here: {why}");
        return;
    }
    let (writer, reader) = pair().await;
    let sent = async |mut pages: runtime::fs::SharedPages| {
        let mut received = vec![0; pages.left()];
        let send = async {
            while pages.left() > 0 {
                match writer.try_write_pages(&mut pages, false) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        writer.writable().await.unwrap();
                    }
                    sent => assert!(sent.unwrap() > 0),
                }
            }
        };
        runtime::join(send, async { reader.read_exact(&mut received).await.unwrap() }).await;
        received
    };
    let parts = [0..100, 1000..60_000, 190_000..200_000];
    let expected: Vec<u8> = parts
        .iter()
        .flat_map(|part| all[5000 + part.start..5000 + part.end].iter().copied())
        .collect();
    let pages = file.stable_pages(5000, 200_000).await.unwrap();
    for _ in 0..100 {
        assert!(sent(pages.share(&parts).await.unwrap()).await == expected);
    }
    // Pages dropped before they are sent do not mix with those shared next.
    drop(pages.share(&parts).await.unwrap());
    // Too many pages for a pipe: as many parts as fit, or none.
    let many = [0..60_000, 60_000..120_000, 0..200_000, 0..200_000, 0..200_000, 0..200_000];
    let some = pages.share(&many).await.unwrap();
    let left = some.left();
    let ends = many.iter().scan(0, |end, part| {
        *end += part.len();
        Some(*end)
    });
    assert!(left < 920_000 && ends.clone().any(|end| end == left), "{left} bytes of whole parts");
    let first = left.min(120_000);
    assert!(sent(some).await[..first] == all[5000..5000 + first]);
    let wide = file.stable_pages(0, FILE_BYTES).await.unwrap();
    assert_eq!(wide.share(from_ref(&(0..FILE_BYTES))).await.unwrap_err(), NotShared::NoPipe);
    assert!(
        sent(wide.share(from_ref(&(FILE_BYTES - 9..FILE_BYTES))).await.unwrap()).await
            == all[FILE_BYTES - 9..]
    );
    // Adjacent parts have a page in common, but are independent.
    let next = file.stable_pages(205_000, 50_000).await.unwrap();
    assert!(sent(next.share(from_ref(&(0..50_000))).await.unwrap()).await == all[205_000..255_000]);
    for (offset, len) in [(4096, FILE_BYTES as u64 - 4096), (0, 4096)] {
        let refused = file.detach(offset, len).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "it may cut a piece of the page cache");
    }
    // Shared pages keep their content, whatever is written there.
    let waiting = pages.share(&parts).await.unwrap();
    file.detach(0, FILE_BYTES as u64).await.unwrap();
    file.write_all_at(vec![b'x'; 250_000], 0).await.0.unwrap();
    assert!(sent(waiting).await == expected);
    assert_eq!(pages.share(&parts).await.unwrap_err(), NotShared::Gone);
    // Permanently, even if another mapping has brought the page back.
    let again = file.stable_pages(5000, 200_000).await.unwrap();
    assert_eq!(pages.share(&parts).await.unwrap_err(), NotShared::Gone);
    assert!(sent(again.share(&parts).await.unwrap()).await.iter().all(|byte| *byte == b'x'));
    // A write that bypasses the page cache acts like a disk whose bits change: one page is enough.
    let around = async |offset: u64| {
        let mut buffer = PageBuffer::default();
        buffer.begin(offset, 65_536).fill(7);
        let before = runtime::counters();
        file.write_all_at(buffer, offset).await.0.unwrap();
        runtime::counters().since(&before).file_writes_uncached > 0
    };
    if around(131_072).await {
        assert_eq!(again.share(from_ref(&(120_000..180_000))).await.unwrap_err(), NotShared::Gone);
        assert_eq!(
            again.share(from_ref(&(0..100))).await.unwrap_err(),
            NotShared::Gone,
            "other pages may have left too"
        );
    }
    // A file that has become shorter.
    let end = file.stable_pages(1_000_000, 40_000).await.unwrap();
    file.set_len(1_010_000).await.unwrap();
    assert_eq!(end.share(from_ref(&(30_000..40_000))).await.unwrap_err(), NotShared::Gone);
}

pub(crate) async fn parts_of_a_file_are_sent_without_a_copy(ground: Ground) {
    const FILE_BYTES: usize = 600_000;
    let path = ground.dir.join("parts");
    let file = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    let all = pattern(FILE_BYTES);
    file.write_all_at(all.clone(), 0).await.0.unwrap();
    if ground.is_twin() {
        assert!(file.share(0, 10).await.unwrap().is_none());
        return;
    }
    let (writer, reader) = pair().await;
    // A long part takes a pipe, a short one takes none if the socket has room, and there is none
    // once it is full.
    for (round, len) in [10, 4096, 65_536, 65_537, 500_000].into_iter().cycle().take(60).enumerate()
    {
        let (at, more) = (round * 977, round % 3 == 0);
        let is_full = round % 5 == 1;
        let mut filler = 0;
        while is_full && let Ok(sent) = writer.try_write(&[0; 4096]) {
            filler += sent;
        }
        let mut pages = file.share(at as u64, len).await.unwrap().unwrap();
        let shared = pages.left();
        assert!(shared == len || len > 65_536, "{shared} of {len}");
        let mut received = vec![0; filler + shared];
        let send = async {
            while pages.left() > 0 {
                let left = pages.left();
                match writer.try_write_pages(&mut pages, more) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        assert_eq!(pages.left(), left);
                        writer.writable().await.unwrap();
                    }
                    sent => assert_eq!(pages.left(), left - sent.unwrap()),
                }
            }
        };
        let half = (filler + shared) / 2;
        let receive = async {
            runtime::time::sleep(Duration::from_millis(1)).await;
            reader.read_exact(&mut received[..half]).await.unwrap();
            reader.read_exact(&mut received[half..]).await.unwrap();
        };
        runtime::join(send, receive).await;
        assert!(received[filler..] == all[at..at + shared], "{len} bytes at {at}");
    }
    // A file that has become shorter ends with an error, and not with waiting.
    for (left, more) in [(30_000, false), (30_000, true), (0, false), (0, true)] {
        file.set_len(100_000).await.unwrap();
        let mut pages = file.share(0, 60_000).await.unwrap().unwrap();
        file.set_len(left).await.unwrap();
        let mut sent = writer.try_write_pages(&mut pages, more);
        if more && left > 0 {
            assert_eq!(sent.unwrap(), 30_000, "a pipe had so many");
            sent = writer.try_write_pages(&mut pages, more);
        }
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{left} {more}");
    }
}

pub(crate) async fn names_change(ground: Ground) {
    let dir = ground.dir.join("deep/er");
    runtime::fs::create_directory(&dir).await.unwrap();
    let (one, two) = (dir.join("one"), dir.join("two"));
    let file = File::open_with(&one, OpenOptions::CREATE).await.unwrap();
    file.write_all_at(b"1".as_slice(), 0).await.0.unwrap();
    File::open_with(&two, OpenOptions::CREATE).await.unwrap();
    runtime::fs::rename(&one, &two).await.unwrap();
    runtime::fs::sync_directory(&dir).await.unwrap();
    assert!(File::open(&one).await.is_err());
    let mut buf = [0];
    File::open(&two).await.unwrap().read_exact_at(&mut buf, 0).await.unwrap();
    assert_eq!(buf, *b"1");
    runtime::fs::remove(&two).await.unwrap();
    assert_eq!(runtime::fs::remove(&two).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(runtime::fs::rename(&one, &two).await.is_err());
    file.read_exact_at(&mut buf, 0).await.unwrap(); // open handles keep it
}

pub(crate) async fn one_holder_of_a_lock(ground: Ground) {
    let path = ground.dir.join("locked");
    let first = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    let second = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    assert!(first.try_lock().await.unwrap());
    assert!(!second.try_lock().await.unwrap());
    drop(first);
    assert!(second.try_lock().await.unwrap());
    let third = File::open_with(&path, OpenOptions::CREATE).await.unwrap();
    third.unlock().unwrap();
    assert!(!third.try_lock().await.unwrap(), "only the holder gives it back");
    second.unlock().unwrap();
    assert!(third.try_lock().await.unwrap());
}

pub(crate) async fn many_writers(ground: Ground) {
    let path = ground.dir.join("many");
    let file = Rc::new(File::open_with(&path, OpenOptions::CREATE).await.unwrap());
    let writers: Vec<_> = (0..20_u64)
        .map(|i| {
            let file = Rc::clone(&file);
            spawn(async move {
                file.write_all_at(vec![i as u8 + 1; 5_000], i * 5_000).await.0.unwrap();
                file.sync_data().await.unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.await;
    }
    let mut all = vec![0; 100_000];
    file.read_exact_at(&mut all, 0).await.unwrap();
    assert!(all.chunks(5_000).zip(1..).all(|(chunk, i)| chunk.iter().all(|&byte| byte == i)));
}

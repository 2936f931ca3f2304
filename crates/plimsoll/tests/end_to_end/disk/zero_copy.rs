//! Bodies sent zero-copy from the page cache.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use runtime::fs::{self, File, OpenOptions, PageBuffer};
use runtime::sim::Rng;
use runtime::{Options, Runtime};

use super::checker::Scene;
use super::{configured, metric, object, reads_of_segments, served, stopped, written};
use crate::support::{Home, SOON, wait_for};

/// Written at once, so that it can go around the page cache.
const ROT_BYTES: usize = 64 * 1024;

/// As [`configured`], with segments large enough for zero-copy.
fn zero_copy(home: &Home, scene: &Scene) -> String {
    configured(home, scene, &home.at("store"), "1GiB")
}

fn runtime() -> Runtime {
    Runtime::new(Options::default()).unwrap()
}

/// False, with the reason on stderr, where zero-copy is unavailable.
fn can_zero_copy(home: &Home) -> bool {
    match runtime().block_on(fs::check_page_sharing(home.at(""))) {
        Ok(()) => true,
        Err(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

#[test]
fn a_body_that_was_verified_is_sent_without_being_read() {
    let home = Home::new();
    if !can_zero_copy(&home) {
        return;
    }
    let scene = Scene::new(Vec::new());
    let server = served(&scene, &zero_copy(&home, &scene));
    // One record, and several.
    let objects = [object(700_000, 0), object(1_000_000, 0), object(2_000_000, 0)];
    objects.into_iter().for_each(|object| drop(scene.one(object)));
    written(server.admin());
    for object in objects.into_iter().cycle().take(2 * objects.len()) {
        assert!(scene.one(object).is_hit());
    }
    let blocks = || metric(server.admin(), "plimsoll_disk_zero_copy_blocks_total");
    assert_eq!(blocks(), 0, "no reader has verified them yet");
    for object in objects {
        let before = blocks();
        let asked = || assert!(scene.one(object).is_hit());
        // Only the beginning of the first record, which has the metadata.
        let reads = reads_of_segments(&home, &server, asked);
        assert!(blocks() - before >= (object.bytes - 32_768).div_ceil(32_768), "{object:?}");
        assert!(reads.is_none_or(|reads| reads.len() == 1), "{object:?}");
        // From then on the metadata is kept in memory, except of a body in several records.
        let asked = || assert!(scene.one(object).is_hit());
        let reads = reads_of_segments(&home, &server, asked);
        let wanted = usize::from(object.bytes > 1 << 20);
        assert!(reads.is_none_or(|reads| reads.len() == wanted), "{object:?}");
    }
    assert_eq!(metric(server.admin(), "plimsoll_disk_bad_blocks_total"), 0);
    assert_eq!(stopped(&scene, server), "");
}

/// Random bytes, around the page cache. False if they cannot go there.
async fn rot(segments: &File, random: &mut Rng, at: u64) -> bool {
    let mut bytes = PageBuffer::default();
    bytes.begin(at, ROT_BYTES).fill_with(|| random.next() as u8);
    let before = runtime::counters();
    segments.write_all_at(bytes, at).await.0.unwrap();
    runtime::counters().since(&before).file_writes_uncached == 1
}

/// Of one record, and of several.
fn rotting() -> Scene {
    let lengths = [300_000, 700_000, 1_048_576, 1_100_000, 2_097_000];
    let mut scene = Scene::new(lengths.map(|bytes| object(bytes, 0)).to_vec());
    scene.cuts = true;
    scene
}

/// Everything that [`rotting`] stores is below this offset.
const WRITTEN_OVER: u64 = 48 << 20;
const ROTS_FOR: Duration = Duration::from_secs(8);

/// As a disk whose bits change, below the page cache.
#[test]
fn what_rots_below_the_page_cache_is_never_sent() {
    const SEED: u64 = 6;
    let home = Home::new();
    if !can_zero_copy(&home) {
        return;
    }
    let scene = rotting();
    let config = zero_copy(&home, &scene);
    // Opened before the server starts: an open during its run would end zero-copy.
    stopped(&scene, served(&scene, &config));
    let direct = OpenOptions { direct: true, ..OpenOptions::WRITE };
    let opened = File::open_with(home.at("store/segments"), direct);
    let segments = runtime().block_on(opened).unwrap();
    let server = served(&scene, &config);
    let admin = server.admin();
    let mut random = Rng::new(SEED);
    let rotten = scene.under_load(4, SEED, || {
        runtime().block_on(async {
            let until = Instant::now() + ROTS_FOR;
            let mut around = true;
            while around && Instant::now() < until {
                let at = random.below(WRITTEN_OVER / 4096) * 4096;
                around = rot(&segments, &mut random, at).await;
                std::thread::sleep(Duration::from_millis(20));
            }
            around
        })
    });
    if !rotten {
        eprintln!("skipped: this file system does not support O_DIRECT");
        return;
    }
    scene.is_well();
    let names = ["bad_blocks", "hits", "zero_copy_blocks", "zero_copy_evicted"];
    let [bad, hits, blocks, evicted] =
        names.map(|name| metric(admin, &format!("plimsoll_disk_{name}_total")));
    let [compared, cut] = [&scene.compared, &scene.cut].map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{compared} responses compared, {hits} disk hits, {blocks} blocks zero-copy, {bad} bad, \
         {evicted} records evicted from the page cache, {cut} responses cut off"
    );
    assert!(bad > 0 && blocks > 1000 && evicted > 0 && compared > 300);
    assert_eq!(stopped(&scene, server), "");
}

/// Another program writes into the page cache itself, which no notification reports.
#[test]
fn what_another_program_writes_into_the_files_is_never_sent() {
    const SEED: u64 = 7;
    let home = Home::new();
    if !can_zero_copy(&home) {
        return;
    }
    let scene = rotting();
    let server = served(&scene, &zero_copy(&home, &scene));
    let admin = server.admin();
    let blocks = || metric(admin, "plimsoll_disk_zero_copy_blocks_total");
    let mut random = Rng::new(SEED);
    let blocks_before = scene.under_load(4, SEED, || {
        wait_for("zero-copy sends", SOON, || (blocks() > 1000).then_some(()));
        assert_eq!(metric(admin, "plimsoll_disk_zero_copy"), 1);
        let segments = home.at("store/segments");
        let segments = std::fs::File::options().write(true).open(segments).unwrap();
        // Gives responses in flight the time to reach their clients.
        std::thread::sleep(Duration::from_millis(500));
        let blocks_before = blocks();
        let until = Instant::now() + ROTS_FOR;
        while Instant::now() < until {
            let mut bytes = [0; 4096];
            bytes.fill_with(|| random.next() as u8);
            segments.write_all_at(&bytes, random.below(WRITTEN_OVER)).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        blocks_before
    });
    scene.is_well();
    let bad = metric(admin, "plimsoll_disk_bad_blocks_total");
    let compared = scene.compared.load(Ordering::Relaxed);
    eprintln!(
        "{compared} responses compared, {blocks_before} blocks sent zero-copy before, {bad} bad"
    );
    assert!(bad > 0 && compared > 300);
    assert_eq!((blocks(), metric(admin, "plimsoll_disk_zero_copy")), (blocks_before, 0));
    let log = stopped(&scene, server);
    assert!(log.contains("another program has opened its file `segments`"), "{log}");
}

#[test]
fn a_store_whose_segments_are_too_short_copies() {
    let home = Home::new();
    let scene = Scene::new(Vec::new());
    let config = zero_copy(&home, &scene);
    let text = std::fs::read_to_string(&config).unwrap().replace("1GiB", "64MiB");
    let server = served(&scene, &home.write("plimsoll.toml", text));
    let one = object(700_000, 0);
    for _ in 0..4 {
        scene.one(one);
        written(server.admin());
    }
    assert_eq!(metric(server.admin(), "plimsoll_disk_zero_copy"), 0);
    assert_eq!(metric(server.admin(), "plimsoll_disk_zero_copy_blocks_total"), 0);
    assert!(metric(server.admin(), "plimsoll_disk_hits_total") > 0);
    assert_eq!(stopped(&scene, server), "");
}

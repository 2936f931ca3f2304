//! The disk cache on real disks: killed servers, full and read-only file systems, corrupted bytes,
//! and the number of reads, counted from outside.
//!
//! In all tests, clients compare every response with that of the origin ([`checker`]): a wrong byte
//! is never served, an acknowledged change is never undone, and disk failures cost hits but no
//! request.

mod checker;
mod image;
mod origin;
mod restart;
mod zero_copy;

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use runtime::sim::Rng;

use checker::Scene;
use image::Image;
use origin::{Kind, Object};

use crate::support::{Home, OurServer, Running, SOON, get, output_file, program, wait_for};

/// Waits until no stored response is only in memory.
#[track_caller]
fn written(admin: SocketAddr) {
    wait_for("the disk to be written", SOON, || {
        (metric(admin, "plimsoll_disk_buffered_bytes") == 0).then_some(())
    });
}

/// Waits until the cache writes to the disk, as it does again some time after failures.
#[track_caller]
fn writes(admin: SocketAddr, patience: Duration) {
    wait_for("the cache to write", patience, || {
        (metric(admin, "plimsoll_disk_up") == 1).then_some(())
    });
}

/// A server in front of a scene's origin, with its disk cache in `disk`. Its memory is small, so
/// that most responses are only on disk.
fn configured(home: &Home, scene: &Scene, disk: &str, bytes: &str) -> String {
    let url = scene.origin.url();
    home.write(
        "plimsoll.toml",
        format!(
            "[server]\nadmin = '127.0.0.1:0'\nworkers = 2\n\
             [[listen]]\naddress = '127.0.0.1:0'\n\
             [[upstream]]\nname = 'site'\nserver = [{{ url = '{url}' }}]\n\
             [store]\nmemory = '4MiB'\npath = '{disk}'\nbytes = '{bytes}'\n\
             [limits]\noverload_shed = false\n"
        ),
    )
}

/// Starts it.
fn served(scene: &Scene, config: &str) -> OurServer {
    let server = OurServer::configured(config);
    scene.begins(server.address(), server.admin());
    server
}

/// The same, and reports its end to the scene.
fn stopped(scene: &Scene, server: OurServer) -> String {
    scene.ends();
    let (code, stderr) = server.stopped();
    assert_eq!(code, Some(0), "{stderr}");
    stderr
}

fn metric(admin: SocketAddr, name: &str) -> u64 {
    let answer = get(admin, "/metrics");
    let lines = answer.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let values: Vec<f64> = lines.map(|value| value.parse().unwrap()).collect();
    assert_eq!(values.len(), 1, "{name} in {answer}");
    values[0] as u64
}

fn object(bytes: u64, number: u64) -> Object {
    Object { kind: Kind::Plain, bytes, number }
}

/// Objects of all kinds and of all lengths that are handled differently.
fn mixed() -> Vec<Object> {
    let lengths = [
        0, 1, 200, 1_000, 5_000, 20_000, 32_000, 32_768, 40_000, 100_000, 262_144, 262_145,
        300_000, 700_000, 1_048_576, 1_100_000, 2_097_000,
    ];
    let kinds = [Kind::Plain, Kind::Plain, Kind::Vary, Kind::Bare];
    let mut objects = Vec::new();
    for bytes in lengths {
        let copies = if bytes > 262_144 { 1 } else { 3 };
        for number in 0..copies * kinds.len() as u64 {
            let kind = kinds[(number % kinds.len() as u64) as usize];
            objects.push(Object { kind, bytes, number });
        }
    }
    objects
}

#[test]
fn twenty_kills_under_load_serve_no_wrong_byte_and_undo_no_change() {
    const KILLS: u64 = 20;
    const SEED: u64 = 1;
    let home = Home::new();
    let mut scene = Scene::new(mixed());
    scene.changes = true;
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let mut random = Rng::new(SEED);
    let mut warm = 0;
    scene.under_load(6, SEED, || {
        for life in 0..=KILLS {
            let mut server = served(&scene, &config);
            std::thread::sleep(Duration::from_millis(700 + random.below(700)));
            if life > 0 {
                // Responses that an earlier process stored.
                warm += wait_for(&format!("a hit after kill {life}"), SOON, || {
                    let hits = metric(server.admin(), "plimsoll_disk_hits_total");
                    (hits > 0).then_some(hits)
                });
            }
            scene.is_well();
            if life < KILLS {
                scene.ends();
                server.child.signal("KILL");
                server.child.ended(SOON);
            } else {
                assert_eq!(metric(server.admin(), "plimsoll_disk_reads_zero_total"), 0);
                let stderr = stopped(&scene, server);
                assert_eq!(stderr, "");
            }
        }
    });
    scene.is_well();
    let [compared, hits, broken, changed] =
        [&scene.compared, &scene.hits, &scene.broken, &scene.changed]
            .map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{compared} responses compared, {hits} of them hits, {broken} broken by kills, \
         {changed} changes acknowledged, {warm} hits of the disk after kills"
    );
    assert!(compared > 1000 && hits > 100 && changed > 50 && broken > 0);
}

#[test]
fn a_cache_larger_than_its_file_system_is_disabled_with_a_message() {
    let home = Home::new();
    let Some(image) = Image::mounted(&home, "small") else { return };
    let scene = Scene::new(mixed());
    let config = configured(&home, &scene, &image.at("store"), "128MiB");
    let server = served(&scene, &config);
    for object in &scene.objects {
        scene.one(*object);
    }
    scene.one(object(1000, 0));
    assert!(scene.one(object(1000, 0)).is_hit(), "memory still serves");
    assert_eq!(metric(server.admin(), "plimsoll_disk_up"), 0);
    let stderr = stopped(&scene, server);
    for words in ["No space left", "serving without the store on disk", &image.at("store")] {
        assert!(stderr.contains(words), "no {words:?} in {stderr}");
    }
    // The failed attempt leaves no files that take space.
    let config = configured(&home, &scene, &image.at("store"), "40MiB");
    let server = served(&scene, &config);
    scene.one(object(1000, 0));
    assert_eq!(metric(server.admin(), "plimsoll_disk_up"), 1);
    stopped(&scene, server);
}

/// Requests new objects from several clients until there are enough.
fn many(scene: &Scene, numbers: std::ops::Range<u64>) {
    const CLIENTS: u64 = 8;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let numbers = numbers.clone();
            let own = numbers.filter(move |number| number % CLIENTS == client);
            scope.spawn(move || scene.all(own.map(|number| object(300, number))));
        }
    });
}

#[test]
fn a_full_file_system_costs_hits_but_no_request() {
    let home = Home::new();
    let Some(image) = Image::mounted(&home, "full") else { return };
    let scene = Scene::new(mixed());
    let config = configured(&home, &scene, &image.at("store"), "40MiB");
    let server = served(&scene, &config);
    let admin = server.admin();
    many(&scene, 0..500);
    image.fill();
    // The journal is preallocated. It becomes a problem when it is full and no index can be saved.
    let mut asked = 500;
    while metric(admin, "plimsoll_disk_up") == 1 {
        // Two journals of 256 KiB, two copies each, and at least 21 bytes per object.
        assert!(asked < 60_000, "the journal does not fill up");
        many(&scene, asked..asked + 1000);
        asked += 1000;
    }
    assert!(metric(admin, "plimsoll_disk_write_errors_total") + 1 > 0);
    eprintln!("write errors after {asked} objects");
    scene.under_load(4, 2, || {
        wait_for("a refusal", SOON, || {
            (metric(admin, "plimsoll_disk_refused_off_total") > 0).then_some(())
        });
    });
    scene.is_well();
    let before =
        (asked.saturating_sub(6_000)..asked).step_by(100).map(|number| object(300, number));
    let hits = before.filter(|object| scene.one(*object).is_hit()).count();
    assert!(hits > 0, "there are no more hits");
    image.empty();
    writes(admin, Duration::from_secs(90));
    let puts = metric(admin, "plimsoll_disk_puts_total");
    let new = object(5_000, 1_000_000);
    scene.one(new);
    assert_eq!(metric(admin, "plimsoll_disk_puts_total"), puts + 1);
    written(admin);
    stopped(&scene, server);
    let server = served(&scene, &config);
    assert!(scene.one(new).is_hit(), "responses stored then survived the process");
    assert_eq!(stopped(&scene, server), "");
}

/// The files that the server writes while it runs.
fn files(store: &Path) -> Vec<PathBuf> {
    let names = ["segments", "journal-0", "journal-1", "index-0", "index-1"];
    names.iter().map(|name| store.join(name)).collect()
}

#[test]
fn a_disk_that_fails_every_write_costs_hits_but_no_request_and_is_used_again() {
    let home = Home::new();
    let Some(image) = Image::mounted(&home, "refusing") else { return };
    let scene = Scene::new(mixed());
    let config = configured(&home, &scene, &image.at("store"), "40MiB");
    let server = served(&scene, &config);
    let admin = server.admin();
    let kept: Vec<Object> = (0..20).map(|number| object(20_000, 1_000 + number)).collect();
    scene.all(kept.iter().copied());
    written(admin);
    for file in files(&image.path().join("store")) {
        image.refuse_writes(&file, true);
    }
    let refused = scene.under_load(4, 3, || {
        wait_for("the cache to stop writing", SOON, || {
            (metric(admin, "plimsoll_disk_up") == 0).then_some(())
        });
        std::thread::sleep(Duration::from_secs(1));
        // A change takes effect, although it may not survive a crash.
        scene.change(kept[0]);
        assert!(!scene.one(kept[0]).is_hit());
        metric(admin, "plimsoll_disk_write_errors_total")
    });
    scene.is_well();
    assert!(refused > 0);
    for file in files(&image.path().join("store")) {
        image.refuse_writes(&file, false);
    }
    writes(admin, Duration::from_secs(90));
    let new = object(5_000, 1_000_000);
    scene.one(new);
    scene.change(kept[1]);
    written(admin);
    stopped(&scene, server);
    let server = served(&scene, &config);
    assert!(scene.one(new).is_hit(), "responses stored then survived the process");
    // Including changes during the failure and after it.
    scene.all(kept.iter().copied());
    assert!(metric(server.admin(), "plimsoll_disk_hits_total") > 0);
    stopped(&scene, server);
}

#[test]
fn a_file_system_that_becomes_read_only_costs_hits_but_no_request() {
    let home = Home::new();
    let Some(image) = Image::mounted(&home, "broken") else { return };
    let scene = Scene::new(mixed());
    let config = configured(&home, &scene, &image.at("store"), "40MiB");
    let server = served(&scene, &config);
    // More than fits into memory. Ending the server makes it durable: whatever the file system has
    // not written when it fails is lost.
    let kept: Vec<Object> = (0..60).map(|number| object(100_000, 1_000 + number)).collect();
    scene.all(kept.iter().copied());
    stopped(&scene, server);
    let server = served(&scene, &config);
    let admin = server.admin();
    image.breaks();
    scene.under_load(4, 4, || {
        wait_for("the cache to stop writing", SOON, || {
            (metric(admin, "plimsoll_disk_up") == 0).then_some(())
        });
        let hits = metric(admin, "plimsoll_disk_hits_total");
        let from_disk = kept.iter().filter(|object| scene.one(**object).is_hit()).count();
        assert!(from_disk > 10, "{from_disk} hits");
        assert!(metric(admin, "plimsoll_disk_hits_total") > hits, "hits have stopped");
        std::thread::sleep(Duration::from_secs(2)); // errors are logged once a second
    });
    scene.is_well();
    let stderr = stopped(&scene, server);
    assert!(stderr.contains("Read-only file system"), "{stderr}");
    image.repaired(&home, "broken");
    let server = served(&scene, &config);
    assert_eq!(metric(server.admin(), "plimsoll_disk_up"), 1);
    let found = kept.iter().filter(|object| scene.one(**object).is_hit()).count();
    assert!(found > 10, "{found} of {} are there after the repair", kept.len());
    stopped(&scene, server);
}

#[test]
fn random_bytes_in_the_segments_are_never_served() {
    const SEED: u64 = 5;
    let home = Home::new();
    let mut scene = Scene::new(mixed());
    scene.changes = true;
    scene.cuts = true;
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let server = served(&scene, &config);
    let admin = server.admin();
    let segments = File::options().write(true).open(home.at("store/segments")).unwrap();
    let length = segments.metadata().unwrap().len();
    let mut random = Rng::new(SEED);
    scene.under_load(6, SEED, || {
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            let bytes: Vec<u8> =
                (0..=random.below(512)).flat_map(|_| random.next().to_le_bytes()).collect();
            let at = random.below(length - bytes.len() as u64);
            segments.write_all_at(&bytes, at).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    scene.is_well();
    let [bad, hits, completed] = ["disk_bad_blocks", "disk_hits", "bodies_repaired"]
        .map(|name| metric(admin, &format!("plimsoll_{name}_total")));
    let [compared, cut] = [&scene.compared, &scene.cut].map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{compared} responses compared, {hits} hits of the disk, {bad} bad blocks, \
         {completed} bodies completed, {cut} cut off"
    );
    assert!(bad > 0 && hits > 0 && compared > 500);
    assert_eq!(stopped(&scene, server), "");
}

/// The offset of some bytes in a file.
fn find(file: &File, bytes: &[u8]) -> u64 {
    let mut all = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut all, 0).unwrap();
    let at = all.windows(bytes.len()).position(|window| window == bytes);
    at.expect("it is in the file") as u64
}

#[test]
fn a_body_corrupted_in_the_middle_is_completed_from_the_origin_or_truncated() {
    let home = Home::new();
    let scene = {
        let mut scene = Scene::new(Vec::new());
        scene.cuts = true;
        scene
    };
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let server = served(&scene, &config);
    let certain = object(1_500_000, 0);
    let bare = Object { kind: Kind::Bare, ..certain };
    let segments = File::options().read(true).write(true).open(home.at("store/segments")).unwrap();
    for object in [certain, bare] {
        scene.one(object);
        written(server.admin());
        assert!(scene.one(object).is_hit());
        let body = object.body("", 0);
        let at = find(&segments, &body[900_000..900_032]);
        segments.write_all_at(&[body[900_000] ^ 1], at).unwrap();
    }
    let before = scene.origin.requests();
    let completed = scene.one(certain);
    assert!(completed.whole && completed.is_hit());
    assert_eq!(scene.origin.requests(), before + 1, "the remainder was requested");
    assert_eq!(metric(server.admin(), "plimsoll_bodies_repaired_total"), 1);
    let cut = scene.one(bare);
    assert!(!cut.whole && cut.is_hit());
    assert_eq!(metric(server.admin(), "plimsoll_disk_bad_blocks_total"), 2);
    // The object is gone, and is fetched again.
    assert!(scene.one(bare).whole && !scene.one(certain).body.is_empty());
    stopped(&scene, server);
}

/// The results of the reads of segments that a process makes while `work` runs, by strace. `None`,
/// with a message, if processes cannot be traced.
fn reads_of_segments(home: &Home, server: &OurServer, work: impl FnOnce()) -> Option<Vec<i64>> {
    let (trace, output) = (home.at("trace"), "strace.err");
    let flags = ["-f", "-y", "-e", "trace=read,readv,pread64,preadv,preadv2", "-o", &trace, "-p"];
    let mut strace = Running::start(
        Command::new(program("strace", "strace"))
            .args(flags)
            .arg(server.child.pid())
            .stdout(Stdio::null())
            .stderr(output_file(home, output)),
    );
    let attached = wait_for("strace", SOON, || {
        let answer = home.read(output);
        (answer.contains("attached") || strace.has_ended()).then_some(answer.contains("attached"))
    });
    if !attached {
        eprintln!("skipped: cannot trace processes here: {}", home.read(output).trim());
        return None;
    }
    work();
    strace.signal("INT");
    strace.ended(SOON);
    let trace = home.read("trace");
    Some(results(&trace))
}

/// The results of the calls on segments. If the line of another thread splits a call, its result is
/// on a second line of the same thread, and the file name on the first.
fn results(trace: &str) -> Vec<i64> {
    let mut halves = Vec::new();
    let mut results = Vec::new();
    for line in trace.lines() {
        let thread = line.split(' ').next().unwrap();
        if line.contains("/segments>") && line.ends_with("<unfinished ...>") {
            halves.push(thread);
            continue;
        }
        let resumed = line.contains(" resumed>") && halves.contains(&thread);
        halves.retain(|half| *half != thread);
        if resumed || line.contains("/segments>") {
            let result = line.rsplit_once(" = ").and_then(|(_, answer)| answer.split(' ').next());
            results.push(result.and_then(|answer| answer.parse().ok()).expect(line));
        }
    }
    results
}

#[test]
fn an_object_is_read_with_its_exact_length() {
    const BLOCK: u64 = 32 * 1024;
    let home = Home::new();
    let scene = Scene::new(Vec::new());
    let config = configured(&home, &scene, &home.at("store"), "1GiB");
    let lengths = [1_000, 20_000, 100_000, 1_000_000];
    let server = served(&scene, &config);
    for bytes in lengths {
        scene.one(object(bytes, 0));
    }
    stopped(&scene, server);
    // A new server each time, so that its memory is empty. The second finds the object in the page
    // cache.
    for (bytes, warm) in lengths.into_iter().flat_map(|bytes| [(bytes, false), (bytes, true)]) {
        let server = served(&scene, &config);
        let asked = || assert!(scene.one(object(bytes, 0)).is_hit());
        let Some(reads) = reads_of_segments(&home, &server, asked) else { return };
        let wanted = if bytes < BLOCK { 1 } else { bytes.div_ceil(BLOCK) };
        // Reads that would have waited for the disk, and were passed to the pool.
        let (refused, reads): (Vec<i64>, Vec<i64>) = reads.into_iter().partition(|read| *read < 0);
        let counted = |name| metric(server.admin(), &format!("plimsoll_disk_reads_{name}_total"));
        let (would_block, short) = (counted("would_block"), counted("short"));
        assert_eq!(refused.len() as u64, would_block, "{bytes} bytes: {refused:?}");
        // A page shared with another object may be cached without the rest.
        assert_eq!(reads.len() as u64, wanted + short, "{bytes} bytes: {reads:?}");
        assert!(reads.iter().all(|read| *read > 0), "{bytes} bytes: {reads:?}");
        assert!(!warm || would_block + short == 0, "{bytes} bytes: {would_block}, {short}");
        let sum: i64 = reads.iter().sum();
        // The head and the checksums are small in comparison, and nothing after the object is read.
        assert!((bytes as i64..bytes as i64 + 2_000).contains(&sum), "{bytes} bytes: {sum} read");
        stopped(&scene, server);
    }
}

//! The store on disk below the memory: what outlives the process, what a change takes for good, and
//! a disk that fails.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::{self, Disk, Faults};
use runtime::time::sleep;
use server::Config;

use crate::changes::{change, version};
use crate::common::Response;
use crate::leaving::finishing;
use crate::origin::expected;
use crate::some;
use crate::storm::{Draw, everybody};
use crate::world::{ADMIN, Broken, Client, PROXY, PROXY_TOO, World, on_disk, reverse, run};

/// Memory takes bodies of up to 8 KiB, and the disk those of up to 128 KiB.
fn little_memory() -> Config {
    Config { memory_bytes: 64 << 10, ..on_disk(finishing(reverse)()) }
}

const DELAY: std::ops::Range<Duration> = Duration::from_micros(20)..Duration::from_micros(200);

/// A life of a server on a disk.
fn live(seed: u64, disk: &Disk, config: Config, scenario: impl AsyncFnOnce(Rc<World>)) {
    run(sim::Options::rough(seed).with_disk(disk.clone(), DELAY), config, scenario);
}

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

async fn metric(world: &World, name: &str) -> u64 {
    let metrics = world.metrics().await;
    metrics.iter().find(|(there, _)| there == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Targets of every kind, with a field of the request and what the origin varies by.
const KINDS: [(&str, &str, Option<&str>); 7] = [
    ("/empty?size=0&cc=max-age=600&etag=e", "", None),
    ("/one?size=900&cc=max-age=600&etag=e&key=news", "", None),
    ("/some?size=9000&cc=max-age=600&etag=e", "", None),
    ("/long?size=60000&cc=max-age=600&etag=e&ranges=1", "", None),
    ("/chunked?size=40000&cc=max-age=600&etag=e&frame=chunked", "", None),
    ("/v?size=500&cc=max-age=600&vary=x-v", "x-v: 1\r\n", Some("1")),
    ("/v?size=500&cc=max-age=600&vary=x-v", "x-v: 2\r\n", Some("2")),
];

async fn get_all() {
    for (target, fields, variant) in KINDS {
        let got = get(target, fields).await;
        assert_eq!(got.status, 200);
        assert!(got.body == expected(target, variant), "{target}: {} bytes", got.body.len());
    }
}

#[test]
fn stored_responses_outlive_the_process() {
    enum End {
        Orderly,
        Kill,
        PowerCut,
    }
    for (end, config) in [
        (End::Orderly, little_memory as fn() -> Config),
        (End::Kill, little_memory),
        (End::PowerCut, little_memory),
        (End::PowerCut, || on_disk(reverse())),
    ] {
        sim::check(0..2, |seed| {
            let disk = Disk::new(seed);
            live(seed, &disk, config(), async |_| {
                get_all().await;
                // Written within a quarter of a second, synced within five.
                sleep(Duration::from_secs(6)).await;
                match end {
                    End::Orderly => {}
                    End::Kill => sim::disk().kill(),
                    End::PowerCut => sim::disk().crash(),
                }
            });
            live(seed + 1000, &disk, config(), async |world: Rc<World>| {
                for _ in 0..2 {
                    get_all().await;
                }
                let asked = world.origin.seen.borrow().len();
                assert_eq!(asked, 0, "all of it is there");
                let got = get(KINDS[1].0, "").await;
                assert!(got.field("cache-status").unwrap().contains("; hit"));
            });
        });
    }
}

#[test]
fn a_range_of_a_long_body_reads_only_its_blocks() {
    sim::check(0..2, |seed| {
        let disk = Disk::new(seed);
        let target = KINDS[3].0;
        live(seed, &disk, little_memory(), async |_| drop(get(target, "").await));
        let options = sim::Options::new(seed).with_disk(disk, DELAY);
        run(options, little_memory(), async |world: Rc<World>| {
            let whole = expected(target, None);
            // Each reads the head's block, for its number, and that of its bytes.
            for (first, last, reads) in [(0, 9, 2), (30_000, 30_009, 2), (59_000, 59_999, 2)] {
                let before = metric(&world, "plimsoll_disk_reads_total").await;
                let got = get(target, &format!("Range: bytes={first}-{last}\r\n")).await;
                assert_eq!((got.status, &got.body[..]), (206, &whole[first..=last]));
                let place = format!("bytes {first}-{last}/60000");
                assert_eq!(got.field("content-range"), Some(&place[..]));
                let read = metric(&world, "plimsoll_disk_reads_total").await - before;
                assert_eq!(read, reads, "{first}");
            }
            let got = Client::new().await.head(target, "").await;
            assert_eq!((got.status, got.field("content-length")), (200, Some("60000")));
            let none = get(target, "Range: bytes=70000-\r\n").await;
            assert_eq!(none.status, 416);
            let tag = got.field("etag").unwrap();
            assert_eq!(get(target, &format!("If-None-Match: {tag}\r\n")).await.status, 304);
            let two = get(target, "Range: bytes=0-1,50000-50001\r\n").await;
            assert_eq!((two.status, two.body == whole), (200, true), "it may be the whole");
            assert_eq!(world.origin.count(target), 0);
        });
    });
}

#[test]
fn concurrent_requests_are_served_by_one_read() {
    sim::check(0..3, |seed| {
        let disk = Disk::new(seed);
        let target = KINDS[1].0;
        live(seed, &disk, on_disk(reverse()), async |_| drop(get(target, "").await));
        live(seed, &disk, on_disk(reverse()), async |world: Rc<World>| {
            let herd = (0..40).map(|at| async move {
                let mut client = Client::to([PROXY, PROXY_TOO][at % 2]).await.unwrap();
                let got = client.get(target, "").await;
                assert!(got.body == expected(target, None));
                assert!(got.field("cache-status").unwrap().contains("; hit"));
            });
            let herd: Vec<_> = herd.map(runtime::spawn).collect();
            for one in herd {
                one.await;
            }
            let hits = metric(&world, "plimsoll_disk_hits_total").await;
            assert!((1..=3).contains(&hits), "{hits} look-ups");
            assert_eq!(world.origin.count(target), 0);
        });
    });
}

#[test]
fn a_validation_rewrites_the_head() {
    for target in [
        "/n?size=900&cc=max-age=100&etag=e&ranges=1",
        "/l?size=60000&cc=max-age=100&etag=e&ranges=1",
    ] {
        sim::check(0..2, |seed| {
            let disk = Disk::new(seed);
            live(seed, &disk, little_memory(), async |_| {
                get(target, "").await;
                sleep(Duration::from_secs(103)).await;
                let got = get(target, "").await;
                assert!(got.field("cache-status").unwrap().contains("fwd-status=304"), "{got:?}");
                assert!(got.body == expected(target, None));
                sleep(Duration::from_secs(1)).await;
            });
            live(seed, &disk, little_memory(), async |world: Rc<World>| {
                let got = get(target, "").await;
                let age: u64 = got.field("age").map_or(0, |age| age.parse().unwrap());
                // Virtual time restarts with each process.
                assert!(got.body == expected(target, None) && age < 5, "{age}");
                assert_eq!(world.origin.count(target), 0, "it is fresh");
            });
        });
    }
}

#[test]
fn a_validation_for_a_moment_writes_nothing() {
    let target = "/m?size=900&cc=max-age=5&etag=e";
    sim::check(0..2, |seed| {
        live(seed, &Disk::new(seed), little_memory(), async |world: Rc<World>| {
            for _ in 0..4 {
                assert!(get(target, "").await.body == expected(target, None));
                sleep(Duration::from_secs(8)).await;
            }
            assert_eq!(world.origin.count(target), 4);
            assert_eq!(metric(&world, "plimsoll_disk_puts_total").await, 1);
        });
    });
}

async fn purge(query: &str) -> Response {
    let request = format!("POST /purge?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    Client::to(ADMIN).await.unwrap().ask(request.as_bytes()).await
}

#[test]
fn a_change_that_was_answered_outlives_a_power_cut() {
    let targets = [
        "/a?size=300&cc=max-age=600&etag=e&bump=1",
        "/b?size=50000&cc=max-age=600&etag=e&bump=1",
        "/c?size=300&cc=max-age=600&etag=e&bump=1&vary=x-v",
    ];
    sim::check(0..6, |seed| {
        let disk = Disk::new(seed);
        live(seed, &disk, little_memory(), async |world: Rc<World>| {
            for target in targets {
                get(target, "x-v: 1\r\n").await;
            }
            sleep(Duration::from_secs(10)).await;
            for target in targets {
                assert_eq!(change("POST", target).await.status, 200);
            }
            assert_eq!(world.origin.version.get(), 3);
            sim::disk().crash();
        });
        live(seed, &disk, little_memory(), async |world: Rc<World>| {
            world.origin.version.set(3);
            for target in targets {
                assert_eq!(version(&get(target, "x-v: 1\r\n").await), 3);
            }
        });
    });
}

#[test]
fn a_purge_that_was_answered_outlives_a_power_cut() {
    let target = "/p?size=300&cc=max-age=600&etag=e&key=news";
    let other = "/q?size=300&cc=max-age=600&etag=e";
    for query in [
        "tag=news",
        "url=http://site/p?size=300%26cc=max-age=600%26etag=e%26key=news",
        "prefix=http://site/p",
    ] {
        sim::check(0..3, |seed| {
            let disk = Disk::new(seed);
            live(seed, &disk, on_disk(reverse()), async |_| {
                get(target, "").await;
                get(other, "").await;
                sleep(Duration::from_secs(10)).await;
                let got = purge(query).await;
                let text = String::from_utf8(got.body).unwrap();
                assert!(got.status == 200 && text.contains("\"durable\":true"), "{text}");
                sim::disk().crash();
            });
            live(seed, &disk, on_disk(reverse()), async |world: Rc<World>| {
                for _ in 0..2 {
                    get(target, "").await;
                    get(other, "").await;
                }
                assert_eq!((world.origin.count(target), world.origin.count(other)), (1, 0));
            });
        });
    }
}

#[test]
fn a_truncated_body_is_completed_from_the_origin() {
    let whole = "/w?size=100000&cc=max-age=600&etag=e&ranges=1";
    let weak = "/w?size=100000&cc=max-age=600";
    for (target, completes) in [(whole, true), (weak, false)] {
        let (completed, cut) = (Cell::new(0), Cell::new(0));
        sim::check(some(0..12), |seed| {
            let disk = Disk::new(seed);
            live(seed, &disk, little_memory(), async |_| drop(get(target, "").await));
            for _ in 0..2 {
                disk.rot("/store/segments", |len| len.min(100_000) * 3 / 4);
            }
            live(seed, &disk, little_memory(), async |world: Rc<World>| {
                let mut client = Client::new().await;
                let ask = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
                client.send(ask.as_bytes()).await.unwrap();
                match client.response().await {
                    Ok(got) => assert!(got.body == expected(target, None)),
                    Err(Broken::Within) => cut.set(cut.get() + 1),
                    Err(other) => panic!("{other:?}"),
                }
                completed.set(completed.get() + world.counter("bodies_repaired"));
                assert!(get(target, "").await.body == expected(target, None), "it is a miss then");
            });
        });
        let (completed, cut) = (completed.get(), cut.get());
        assert_eq!(
            (completed > 0, cut > 0),
            (completes, !completes),
            "{target}: {completed}, {cut}"
        );
    }
}

#[test]
fn a_disk_that_fails_costs_hits_and_no_request() {
    let all = Faults::default()
        .with_read_error(0.02)
        .with_short_read(0.05)
        .with_rot(0.02)
        .with_misread(0.01)
        .with_write_error(0.05)
        .with_no_space(0.02)
        .with_sync_error(0.05);
    let dead = Faults::default().with_read_error(1.0).with_write_error(1.0).with_sync_error(1.0);
    for (faults, seeds) in [(all, some(0..2)), (dead, 2..3)] {
        sim::check(seeds, |seed| {
            let disk = Disk::new(seed);
            for life in 0..3 {
                disk.set_faults(Faults::default());
                live(seed + life, &disk, little_memory(), async |world: Rc<World>| {
                    sim::disk().set_faults(faults);
                    everybody(Rc::clone(&world), seed + life).await;
                    if life % 2 == 0 {
                        sim::disk().crash();
                    }
                    sim::disk().set_faults(Faults::default());
                });
            }
        });
    }
}

/// It was remembered as uncacheable for two minutes, and fetched each time.
#[test]
fn a_response_that_the_disk_refused_for_a_moment_is_stored_the_next_time() {
    sim::check(0..1, |seed| {
        let disk = Disk::new(seed);
        live(seed, &disk, little_memory(), async |world: Rc<World>| {
            let target = |n| format!("/long{n}?size=60000&cc=max-age=600&etag=e");
            sim::disk().set_faults(Faults::default().with_write_error(1.0));
            for n in 0..8 {
                get(&target(n), "").await;
                sleep(Duration::from_millis(300)).await;
            }
            assert!(metric(&world, "plimsoll_disk_refused_off_total").await > 0);
            sim::disk().set_faults(Faults::default());
            // Writing is off for a minute at most.
            sleep(Duration::from_secs(61)).await;
            for n in 0..8 {
                get(&target(n), "").await;
            }
            let asked = world.origin.seen.borrow().len();
            for n in 0..8 {
                let got = get(&target(n), "").await;
                assert!(got.field("cache-status").unwrap().contains("; hit"), "{n}");
            }
            assert_eq!(world.origin.seen.borrow().len(), asked);
        });
    });
}

/// Lives of a server that end by kills and power cuts, and in between clients that read, change and
/// purge. What is served is right, and no older than the last change or purge that was answered.
#[test]
fn no_process_serves_what_an_earlier_one_changed() {
    const TARGETS: [(&str, &str); 5] = [
        ("/a?size=200&cc=max-age=600&etag=e&bump=1&key=k", "\r\n"),
        ("/b?size=7000&cc=max-age=600&etag=e&bump=1&key=k", "\r\n"),
        ("/c?size=30000&cc=max-age=600&etag=e&bump=1&ranges=1", "\r\n"),
        ("/d?size=300&cc=max-age=600&etag=e&bump=1&vary=x-v", "x-v: 1\r\n"),
        ("/e?size=3000&cc=max-age=2,stale-while-revalidate=9&etag=e&bump=1", "\r\n"),
    ];
    sim::check(some(0..6), |seed| {
        let disk = Disk::new(seed);
        let mut draw = Draw::new(seed);
        // Of the origin, and for each target the oldest version that may still be served.
        let (mut now, mut floors) = (0, [0; TARGETS.len()]);
        for life in 0..5 {
            let chosen = draw.below(1 << 40);
            let versions = Rc::new((Cell::new(now), Cell::new(floors)));
            live(seed * 10 + life, &disk, little_memory(), async |world: Rc<World>| {
                world.origin.version.set(versions.0.get());
                let mut draw = Draw::new(chosen);
                for _ in 0..40 {
                    let at = draw.below(TARGETS.len() as u64) as usize;
                    let (target, fields) = TARGETS[at];
                    match draw.below(10) {
                        0..7 => {
                            let fields = fields.trim_start();
                            let got = get(target, fields).await;
                            let (is, floor) = (version(&got), versions.1.get()[at]);
                            assert!(is >= floor, "{target}: version {is} after {floor}");
                            let variant = fields.strip_prefix("x-v: ").map(str::trim);
                            assert!(got.body == expected(target, variant), "{target}");
                        }
                        7..9 => {
                            assert_eq!(change("POST", target).await.status, 200);
                            let mut floors = versions.1.get();
                            floors[at] = world.origin.version.get();
                            versions.1.set(floors);
                        }
                        _ => {
                            let before = world.origin.version.get();
                            assert_eq!(purge("tag=k").await.status, 200);
                            let mut floors = versions.1.get();
                            (floors[0], floors[1]) = (before, before);
                            versions.1.set(floors);
                        }
                    }
                    if draw.below(4) == 0 {
                        sleep(Duration::from_millis(draw.below(4000))).await;
                    }
                }
                versions.0.set(world.origin.version.get());
                match draw.below(3) {
                    0 => sim::disk().kill(),
                    1 => sim::disk().crash(),
                    _ => {}
                }
            });
            (now, floors) = (versions.0.get(), versions.1.get());
        }
    });
}

//! Bodies that do not stay in memory while several clients read them: one fetch for all, at the
//! pace of each, and bounded memory.

use std::rc::Rc;
use std::time::Duration;

use runtime::sim::{self, Disk, Faults};
use runtime::time::{now, sleep};
use server::{Config, DiskConfig};
use store::disk::{Geometry, Verify};

use crate::common::Response;
use crate::origin::expected;
use crate::some;
use crate::storm::Draw;
use crate::world::{Broken, Client, PROXY, PROXY_TOO, World, each_version, reverse};

/// Memory takes bodies of up to 8 KiB, and keeps 16 KiB of longer ones for their readers.
fn little_memory() -> Config {
    let mut config = Config { memory_bytes: 64 << 10, ..reverse() };
    config.limits.stream_window_bytes = 16 << 10;
    config
}

/// And the disk those of up to a twentieth of its segments.
fn with_disk(segments: u32) -> Config {
    let geometry = Geometry::tiny(segments);
    let disk = DiskConfig { path: "/store".into(), geometry, verify: Verify::Always };
    Config { disk: Some(disk), ..little_memory() }
}

/// Up to 512 KiB.
const SEGMENTS: u32 = 160;

fn over_all(config: &Config, scenario: impl AsyncFn(Rc<World>)) {
    sim::check(0..1, |seed| each_version(&sim::Options::new(seed), config, &scenario));
    sim::check(1..2, |seed| each_version(&sim::Options::rough(seed), config, &scenario));
}

fn request(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n").into_bytes()
}

fn spawned(target: &str, fields: &str) -> runtime::JoinHandle<Response> {
    let (target, fields) = (target.to_owned(), fields.to_owned());
    runtime::spawn(async move { Client::new().await.get(&target, &fields).await })
}

/// A client that asks now and reads nothing so far.
async fn stalled(target: &str) -> Client {
    let client = Client::new().await;
    client.send(&request(target, "")).await.unwrap();
    client
}

/// Fault 2: 12 clients of a body above an eighth of the memory caused 10 fetches.
#[test]
fn a_body_on_its_way_to_the_disk_is_joined_at_any_time() {
    let target = "/large?size=200000&cc=max-age=600&etag=a&drip=60";
    for frame in ["", "&frame=chunked"] {
        let target = format!("{target}{frame}");
        over_all(&with_disk(SEGMENTS), async |world: Rc<World>| {
            let mut asked = Vec::new();
            for _ in 0..8 {
                asked.push(spawned(&target, ""));
                sleep(Duration::from_secs(3)).await;
            }
            for one in asked {
                let got = one.await;
                assert!(got.body == expected(&target, None), "{} bytes", got.body.len());
            }
            assert_eq!(world.origin.count(&target), 1);
            assert_eq!(world.counter("collapsed"), 7);
            let got = Client::new().await.get(&target, "").await;
            assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
            assert!(got.body == expected(&target, None));
        });
    }
}

/// The origin ignores `Range`, so that the whole is fetched and stored.
#[test]
fn a_late_client_may_want_only_a_part() {
    let target = "/large?size=200000&cc=max-age=600&etag=a&drip=60";
    let fields = "Range: bytes=100000-100099\r\n";
    over_all(&with_disk(SEGMENTS), async |world: Rc<World>| {
        let first = spawned(target, fields);
        sleep(Duration::from_secs(20)).await;
        let start = now();
        for one in [spawned(target, fields), spawned(target, fields), first] {
            let got = one.await;
            assert_eq!(got.status, 206);
            assert!(got.body == expected(target, None)[100_000..100_100]);
        }
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert_eq!((world.origin.count(target), world.counter("collapsed")), (1, 2));
    });
}

/// Fault 2: a slow client held a fast one of the same fetch.
#[test]
fn a_stalled_client_delays_no_other_and_does_not_stop_the_store() {
    let target = "/large?size=400000&cc=max-age=600&etag=a&delay=500";
    over_all(&with_disk(SEGMENTS), async |world: Rc<World>| {
        let mut stalled = stalled(target).await;
        let start = now();
        let fast = [spawned(target, ""), spawned(target, "")];
        for one in fast {
            assert!(one.await.body == expected(target, None));
        }
        assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
        let got = Client::new().await.get(target, "").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
        let got = stalled.response().await.unwrap();
        assert!(got.body == expected(target, None));
        assert_eq!(world.origin.count(target), 1);
        assert_eq!(world.counter("fetches_continued") + world.counter("fetches_cut"), 0);
    });
}

#[test]
fn without_readers_a_body_still_goes_to_the_disk() {
    let target = "/large?size=200000&cc=max-age=600&etag=a&drip=10";
    over_all(&with_disk(SEGMENTS), async |world: Rc<World>| {
        let client = stalled(target).await;
        sleep(Duration::from_secs(2)).await;
        client.abort();
        sleep(Duration::from_secs(30)).await;
        let got = Client::new().await.get(target, "").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
        assert!(got.body == expected(target, None));
        assert_eq!(world.origin.count(target), 1);
    });
}

/// Its length is not known, so that it is collapsed until it turns out too large.
#[test]
fn without_a_disk_a_client_that_falls_behind_gets_the_rest_by_a_range_request() {
    for ranges in ["&ranges=1", ""] {
        let target =
            format!("/large?size=400000&cc=max-age=60&frame=chunked&etag=a&delay=500{ranges}");
        over_all(&little_memory(), async |world: Rc<World>| {
            let mut stalled = stalled(&target).await;
            let start = now();
            assert!(spawned(&target, "").await.body == expected(&target, None));
            assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
            let got = stalled.response().await.unwrap();
            assert!(got.body == expected(&target, None));
            assert_eq!(world.counter("fetches_continued"), 1);
            assert_eq!(world.origin.count(&target), 2);
            let last = world.origin.last();
            assert_eq!(last.field("if-range"), Some("\"a.0\""));
            assert!(last.field("range").is_some_and(|range| range.ends_with('-')), "{last:?}");
        });
    }
}

/// The origin ignores `Range`.
#[test]
fn a_client_of_a_part_that_falls_behind_gets_the_rest_of_that_part() {
    let target = "/large?size=400000&cc=max-age=60&etag=a&delay=500";
    let fields = "Range: bytes=1000-399998\r\n";
    // It might be stored, but so many others are arriving that it does not stay in memory.
    let mut config = Config { memory_bytes: 64 << 20, ..little_memory() };
    config.limits.arriving_share = 1 << 20;
    over_all(&config, async |world: Rc<World>| {
        let mut slow = Client::new().await;
        slow.send(&request(target, fields)).await.unwrap();
        let whole = expected(target, None);
        assert!(spawned(target, fields).await.body == whole[1000..399_999]);
        let got = slow.response().await.unwrap();
        assert_eq!((got.status, got.body == whole[1000..399_999]), (206, true));
        assert_eq!((world.origin.count(target), world.counter("fetches_continued")), (2, 1));
        assert!(world.origin.last().field("range").unwrap().ends_with("-399998"));
    });
}

#[test]
fn without_a_validator_a_stalled_client_is_broken_off_and_the_others_are_whole() {
    let target = "/large?size=400000&cc=max-age=60&frame=chunked&delay=500";
    over_all(&little_memory(), async |world: Rc<World>| {
        let mut stalled = stalled(target).await;
        let start = now();
        let fast = [spawned(target, ""), spawned(target, "")];
        for one in fast {
            assert!(one.await.body == expected(target, None));
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        assert_eq!(stalled.response().await.unwrap_err(), Broken::Within);
        sleep(Duration::from_secs(1)).await;
        assert_eq!((world.origin.count(target), world.counter("fetches_cut")), (1, 1));
    });
}

/// A client that takes what it gets within the time is waited for: there is no other way.
#[test]
fn without_a_validator_a_client_that_reads_on_gets_all_of_it() {
    let target = "/large?size=400000&cc=max-age=60&frame=chunked&delay=500";
    over_all(&little_memory(), async |world: Rc<World>| {
        let mut late = stalled(target).await;
        let fast = spawned(target, "");
        sleep(Duration::from_secs(3)).await;
        assert!(late.response().await.unwrap().body == expected(target, None));
        assert!(fast.await.body == expected(target, None));
        assert_eq!((world.origin.count(target), world.counter("fetches_cut")), (1, 0));
    });
}

#[test]
fn a_disk_that_refuses_midway_costs_no_byte() {
    // Three times as long as the longest body on the disk.
    let target = "/large?size=400000&cc=max-age=60&frame=chunked&etag=a&ranges=1&delay=500";
    over_all(&with_disk(48), async |world: Rc<World>| {
        let mut stalled = stalled(target).await;
        assert!(spawned(target, "").await.body == expected(target, None));
        assert!(stalled.response().await.unwrap().body == expected(target, None));
        assert_eq!(world.origin.count(target), 2);
        assert_eq!(world.counter("fetches_continued"), 1);
    });
}

/// Clients come and go at any time, at any pace, while the disk fails now and then. Each gets the
/// whole body, because its rest can be asked for.
#[test]
fn clients_of_every_pace_get_every_byte() {
    let failing = Faults::default()
        .with_read_error(0.02)
        .with_short_read(0.05)
        .with_rot(0.01)
        .with_write_error(0.02);
    for faults in [Faults::default(), failing] {
        sim::check(some(0..2), |seed| {
            let disk = Disk::new(seed);
            let delay = Duration::from_micros(20)..Duration::from_micros(200);
            let options = sim::Options::rough(seed).with_disk(disk, delay);
            each_version(&options, &with_disk(SEGMENTS), async |world: Rc<World>| {
                sim::disk().set_faults(faults);
                let mut draw = Draw::new(seed);
                let mut asked = Vec::new();
                for number in 0..12 {
                    let size = draw.of(&[60_000, 200_000]);
                    let target = format!("/l?size={size}&cc=max-age=600&etag=a&ranges=1&drip=10");
                    let at = [PROXY, PROXY_TOO][number % 2];
                    let (leaves, pause) = (draw.below(5) == 0, draw.below(4) * 3000);
                    asked.push(runtime::spawn(async move {
                        let mut client = Client::to(at).await.unwrap();
                        client.send(&request(&target, "")).await.unwrap();
                        sleep(Duration::from_millis(pause)).await;
                        if leaves {
                            return client.abort();
                        }
                        let got = client.response().await.unwrap();
                        assert!(got.body == expected(&target, None));
                    }));
                    sleep(Duration::from_millis(draw.below(2000))).await;
                }
                for one in asked {
                    one.await;
                }
                sim::disk().set_faults(Faults::default());
                if faults == Faults::default() {
                    assert!(world.origin.seen.borrow().len() <= 2, "one for each body");
                }
            });
        });
    }
}

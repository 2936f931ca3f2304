//! Requests, fetches and versions that overlap: what may replace what in the store, and what an
//! answer for one client does to the others. Each test is a fault that the cache had (issue 40).

use std::rc::Rc;
use std::time::Duration;

use runtime::time::{now, sleep};
use server::{Config, SetCookie};

use crate::changes::version;
use crate::common::Response;
use crate::origin::expected;
use crate::world::{ADMIN, Client, PROXY, PROXY_TOO, World, each_way, forward, reverse, with};

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

/// A GET that draws an answer by this query.
async fn odd(target: &str, answer: &str) -> Response {
    get(target, &format!("X-Answer: {answer}\r\n")).await
}

/// So many GETs at once, at both cores.
async fn herd(target: &str, count: usize) -> Vec<Response> {
    let one = |at: usize| {
        let target = target.to_owned();
        let core = if at.is_multiple_of(2) { PROXY } else { PROXY_TOO };
        runtime::spawn(async move { Client::to(core).await.unwrap().get(&target, "").await })
    };
    let all: Vec<_> = (0..count).map(one).collect();
    let mut got = Vec::new();
    for one in all {
        got.push(one.await);
    }
    got
}

fn detail(response: &Response) -> &str {
    let status = response.field("cache-status").unwrap_or_default();
    status.rsplit("detail=").next().filter(|_| status.contains("detail=")).unwrap_or("")
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

/// Answers that may not be stored.
const FOR_ONE: [&str; 9] = [
    "cc=private",
    "cc=no-store",
    "cookie=1",
    "status=302&cc=x",
    "status=400&cc=x&etag=",
    "status=401&cc=x&etag=",
    "status=403&cc=x&etag=",
    "status=404&cc=max-age=0&etag=",
    "status=429&cc=x&etag=",
];

#[test]
fn an_answer_for_one_client_does_not_turn_storing_off() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, answer) in FOR_ONE.into_iter().enumerate() {
            let vary = if at % 2 == 0 { "" } else { "&vary=x-v" };
            let target = format!("/f1/{at}?size=30&cc=max-age=600{vary}");
            odd(&target, answer).await;
            for _ in 0..3 {
                assert_eq!(get(&target, "").await.status, 200);
            }
            assert_eq!(world.origin.count(&target), 2, "{answer}: the next one is stored");
            herd(&target, 6).await;
            assert_eq!(world.origin.count(&target), 2, "{answer}");
        }
    });
}

#[test]
fn requests_that_waited_for_an_answer_for_one_client_are_stored() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f1/herd?size=30&cc=max-age=600&delay=200";
        let first = runtime::spawn(async move { odd(target, "cc=private&delay=200").await });
        sleep(Duration::from_millis(100)).await;
        let all = herd(target, 6).await;
        assert!(all.iter().all(|got| got.status == 200));
        first.await;
        let so_far = world.origin.count(target);
        assert!(so_far <= 7, "each is fetched by itself at most once: {so_far}");
        herd(target, 6).await;
        assert_eq!(world.origin.count(target), so_far, "one of them was stored");
    });
}

#[test]
fn of_two_requests_that_do_not_wait_for_each_other_the_newer_response_is_stored() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, vary) in ["", "&vary=x-v"].into_iter().enumerate() {
            for second in ["", "X-Answer: late=0\r\n"] {
                let n = at * 2 + usize::from(second.is_empty());
                let target = format!("/f1/newer/{n}?size=30&cc=max-age=600&etag=a&late=2000{vary}");
                let ask = |fields: &'static str| {
                    let target = target.clone();
                    runtime::spawn(async move { get(&target, fields).await })
                };
                world.origin.version.set(0);
                odd(&target, "cc=private&late=0").await;
                let one = ask("");
                sleep(Duration::from_millis(1200)).await;
                world.origin.version.set(1);
                let two = ask(second);
                assert_eq!((version(&one.await), version(&two.await)), (0, 1));
                assert_eq!(version(&get(&target, "").await), 1, "{target} {second}");
                assert_eq!(world.origin.count(&target), 3);
            }
        }
    });
}

#[test]
fn a_request_for_less_than_the_whole_ends_a_while_without_collapsing() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, fields) in [
            "If-None-Match: \"a\"\r\n",
            "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n",
            "Range: bytes=0-9\r\n",
        ]
        .into_iter()
        .enumerate()
        {
            let target = format!("/f1/less/{at}?size=30&cc=max-age=600&etag=a");
            odd(&target, "cc=private&etag=").await;
            for _ in 0..3 {
                get(&target, fields).await;
            }
            assert_eq!(world.origin.count(&target), 2, "{fields}: the first one is stored");
        }
    });
}

#[test]
fn who_comes_while_a_body_arrives_joins_its_fetch() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, is_private) in [false, false, true, true].into_iter().enumerate() {
            let vary = if at % 2 == 0 { "" } else { "&vary=x-v" };
            let target = format!("/join/{at}?size=900&cc=max-age=600&etag=a&pause=3000{vary}");
            if is_private {
                odd(&target, "cc=private&pause=0").await;
            }
            let before = world.origin.count(&target);
            let first = {
                let target = target.clone();
                runtime::spawn(async move { get(&target, "").await })
            };
            seconds(1).await;
            let all = herd(&target, 4).await;
            assert!(all.iter().chain([&first.await]).all(|got| got.body.len() == 900));
            assert_eq!(world.origin.count(&target), before + 1, "{target}, {is_private}");
        }
    });
}

#[test]
fn a_range_of_a_body_that_arrives_leaves_its_fetch_to_all() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/join/range?size=900&cc=max-age=600&etag=a&pause=3000";
        let first = runtime::spawn(async move { get(target, "").await });
        seconds(1).await;
        let range = get(target, "Range: bytes=0-9\r\nX-Answer: pause=0\r\n").await;
        assert_eq!((range.status, range.body.len()), (206, 10));
        let all = herd(target, 4).await;
        assert!(all.iter().chain([&first.await]).all(|got| got.body.len() == 900));
        assert_eq!(world.origin.count(target), 2, "the whole, and the range");
    });
}

/// While parts were stored, an answer for one client changed nothing: each herd waited for a first
/// fetch that served no other.
#[test]
fn an_answer_for_one_client_keeps_stored_parts_and_ends_collapsing() {
    each_way(reverse, async |world: Rc<World>| {
        let cc = "max-age=1,stale-while-revalidate=600,stale-if-error=600";
        let target = format!("/f1/part?size=300&ranges=1&delay=1000&cc={cc}");
        let range = "Range: bytes=0-9\r\n";
        assert_eq!(get(&target, range).await.status, 206);
        seconds(3).await;
        odd(&target, "cc=private&delay=1000").await;
        let before = world.origin.count(&target);
        let got = get(&target, range).await;
        assert_ne!(detail(&got), "stale-while-revalidate");
        assert_eq!(world.origin.count(&target), before + 1);
        seconds(3).await;
        odd(&target, "cc=private&delay=1000").await;
        let since = now();
        let one = || {
            let target = target.clone();
            runtime::spawn(async move { odd(&target, "cc=private&delay=1000").await })
        };
        let both = [one(), one()];
        for one in both {
            assert_eq!(one.await.status, 200);
        }
        assert!(since.elapsed() < Duration::from_millis(1500), "they did not wait for each other");
        let got = get(&target, &format!("{range}X-Answer: gone=1\r\n")).await;
        assert_eq!((got.status, detail(&got)), (206, "stale-if-error"));
    });
}

#[test]
fn an_error_with_a_lifetime_leaves_the_stale_response() {
    each_way(reverse, async |_: Rc<World>| {
        for status in [500, 501, 503, 504] {
            let target = format!("/error/{status}?size=30&cc=max-age=1&etag=a");
            get(&target, "").await;
            seconds(3).await;
            odd(&target, &format!("status={status}&etag=")).await;
            seconds(3).await;
            let got = odd(&target, "gone=1").await;
            assert_eq!(got.status, 200, "after a {status}: {:?}", got.field("cache-status"));
        }
    });
}

#[test]
fn a_refresh_with_another_vary_that_breaks_off_leaves_the_stale_response() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, vary) in ["x-w", "x-v,x-w", "x-w,x-u"].into_iter().enumerate() {
            let target = format!("/f3/vary/{at}?size=1000&cc=max-age=1&etag=a&vary=x-v");
            world.origin.version.set(0);
            let content = get(&target, "").await.body;
            world.origin.version.set(1);
            for _ in 0..3 {
                seconds(3).await;
                let got = odd(&target, &format!("cut=80&vary={vary}")).await;
                assert!(got.status == 200 && got.body == content, "{target} {vary} {got:?}");
            }
            let got = odd(&target, "gone=1").await;
            assert_eq!((got.status, got.body == content), (200, true), "{target} {vary}");
        }
    });
}

#[test]
fn an_answer_for_one_client_keeps_the_stale_response() {
    each_way(reverse, async |_: Rc<World>| {
        for (at, answer) in FOR_ONE.into_iter().enumerate() {
            let target = format!("/f8/{at}?size=30&cc=max-age=1,stale-if-error=600&etag=a");
            get(&target, "").await;
            seconds(3).await;
            // The origin has another version for this client.
            odd(&target, &format!("{answer}&etag=b")).await;
            let got = odd(&target, "gone=1").await;
            assert_eq!((got.status, detail(&got)), (200, "stale-if-error"), "{answer}");
        }
    });
}

#[test]
fn an_answer_that_may_not_be_stored_ends_stale_while_revalidate_unless_it_is_temporary() {
    each_way(reverse, async |world: Rc<World>| {
        let cc = "max-age=1,stale-while-revalidate=600,stale-if-error=600";
        for (at, (answer, ends)) in [
            ("cc=private&etag=b", true),
            ("status=404&cc=x&etag=", true),
            ("status=403&cc=x&etag=", true),
            ("status=429&cc=x&etag=", false),
            ("status=503&cc=x&etag=", false),
            ("gone=1", false),
        ]
        .into_iter()
        .enumerate()
        {
            let target = format!("/swr/{at}?size=30&cc={cc}&etag=a");
            get(&target, "").await;
            seconds(3).await;
            let got = odd(&target, answer).await;
            assert_eq!(detail(&got), "stale-while-revalidate", "{answer}");
            seconds(1).await;
            let before = world.origin.count(&target);
            let got = get(&target, "").await;
            let is_stale = detail(&got) == "stale-while-revalidate";
            assert_eq!(is_stale, !ends, "{answer}: {:?}", got.field("cache-status"));
            seconds(1).await;
            assert_eq!(world.origin.count(&target), before + 1);
            assert!(get(&target, "").await.field("cache-status").unwrap().contains("; hit"));
        }
    });
}

#[test]
fn a_refresh_that_breaks_off_leaves_the_stale_response() {
    each_way(reverse, async |world: Rc<World>| {
        let lives = ["max-age=1,stale-while-revalidate=600", "max-age=1,stale-if-error=600"];
        for (at, cc) in lives.into_iter().chain(["max-age=1"]).enumerate() {
            for (vary, etag) in [("", "&etag=a"), ("", ""), ("&vary=x-v", "&etag=a")] {
                let target = format!("/f3/{at}?size=1000&cc={cc}{etag}&n={}", vary.len());
                let content = expected(&target, None);
                world.origin.version.set(0);
                get(&target, "").await;
                world.origin.version.set(1);
                for _ in 0..3 {
                    seconds(3).await;
                    let got = odd(&target, &format!("cut=80{vary}")).await;
                    assert!(got.status == 200 && got.body == content, "{target} {vary} {got:?}");
                }
                let got = odd(&target, "gone=1").await;
                assert_eq!((got.status, got.body == content), (200, true), "{target} {vary}");
            }
        }
    });
}

#[test]
fn clients_that_wait_for_a_refresh_that_breaks_off_get_the_stale_response() {
    each_way(reverse, async |_: Rc<World>| {
        let target = "/f3/wait?size=1000&cc=max-age=1,stale-if-error=600&etag=a";
        get(target, "").await;
        seconds(3).await;
        let first = runtime::spawn(async move { odd(target, "cut=80&etag=b&pause=500").await });
        sleep(Duration::from_millis(200)).await;
        let mut all = herd(target, 5).await;
        all.push(first.await);
        assert!(all.iter().all(|got| got.status == 200 && got.body == expected(target, None)));
    });
}

#[test]
fn an_older_response_does_not_replace_a_newer_one() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, reload) in ["no-cache", "max-age=0"].into_iter().enumerate() {
            for vary in ["", "&vary=x-v"] {
                world.origin.version.set(0);
                let target = format!("/f4b/{at}?size=900&cc=max-age=600&etag=a{vary}");
                let slow = {
                    let target = target.clone();
                    runtime::spawn(async move { odd(&target, "pause=3000").await })
                };
                sleep(Duration::from_millis(1500)).await;
                world.origin.version.set(1);
                let got = get(&target, &format!("Cache-Control: {reload}\r\n")).await;
                assert_eq!(version(&got), 1);
                assert_eq!(version(&get(&target, "").await), 1);
                assert_eq!(version(&slow.await), 0, "its client asked before");
                for _ in 0..2 {
                    let got = get(&target, "").await;
                    assert_eq!((version(&got), got.body.len()), (1, 900), "{reload} {vary}");
                }
                assert_eq!(world.origin.count(&target), 2);
            }
        }
    });
}

#[test]
fn a_request_after_a_newer_version_does_not_join_the_fetch_of_an_older_one() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/join?size=900&cc=max-age=2&etag=a";
        let slow = runtime::spawn(async move { odd(target, "pause=9000").await });
        sleep(Duration::from_millis(1500)).await;
        world.origin.version.set(1);
        assert_eq!(version(&get(target, "Cache-Control: no-cache\r\n").await), 1);
        seconds(4).await;
        assert_eq!(version(&get(target, "").await), 1, "the old body is still arriving");
        slow.await;
        assert_eq!(version(&get(target, "").await), 1);
    });
}

#[test]
fn a_fetch_that_a_purge_has_overtaken_replaces_nothing() {
    each_way(reverse, async |world: Rc<World>| {
        for what in ["tag=k", "url=http://site"] {
            for soft in ["", "&soft"] {
                for more in ["", ",stale-while-revalidate=600"] {
                    world.origin.version.set(0);
                    let n = what.len() + soft.len() + more.len();
                    let target = format!("/f4/{n}?size=90&cc=max-age=600{more}&etag=a&key=k");
                    let before = world.origin.count(&target);
                    let slow = {
                        let target = target.clone();
                        runtime::spawn(async move { odd(&target, "late=2500&pause=1500").await })
                    };
                    // Its first datagrams may be lost.
                    while world.origin.count(&target) == before {
                        sleep(Duration::from_millis(100)).await;
                    }
                    world.origin.version.set(1);
                    let url = if what == "tag=k" { String::new() } else { target.clone() };
                    let url = url.replace('&', "%26");
                    let purge = format!(
                        "POST /purge?{what}{url}{soft} HTTP/1.1\r\nHost: a\r\n\
                         Content-Length: 0\r\n\r\n"
                    );
                    let purged = Client::to(ADMIN).await.unwrap().ask(purge.as_bytes()).await;
                    assert_eq!(purged.status, 200, "{:?}", String::from_utf8(purged.body));
                    for _ in 0..2 {
                        assert_eq!(version(&get(&target, "").await), 1);
                    }
                    assert_eq!(version(&slow.await), 0);
                    let asked = world.origin.count(&target);
                    for _ in 0..2 {
                        assert_eq!(version(&get(&target, "").await), 1, "{what} {soft} {more}");
                    }
                    assert_eq!(world.origin.count(&target), asked, "{what} {soft} {more}");
                }
            }
        }
    });
}

/// The answer to the fetch that a purge has overtaken comes first, with the later `Date`.
#[test]
fn a_response_requested_after_a_purge_replaces_what_the_purge_concerns() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f4/first?size=90&cc=max-age=1,stale-while-revalidate=600&etag=a";
        world.origin.version.set(0);
        let slow = runtime::spawn(async move { odd(target, "delay=2500").await });
        sleep(Duration::from_millis(500)).await;
        let purge = format!("url=http://site{}", target.replace('&', "%26"));
        let purge =
            format!("POST /purge?{purge}&soft HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge.as_bytes()).await.status, 200);
        world.origin.version.set(1);
        let after = runtime::spawn(async move { odd(target, "pause=4000").await });
        sleep(Duration::from_millis(500)).await;
        world.origin.version.set(0);
        assert_eq!((version(&slow.await), version(&after.await)), (0, 1));
        world.origin.version.set(2);
        assert_eq!(version(&get(target, "").await), 1);
    });
}

/// The purge replaces the stored entry by one that is stale, while it is validated.
#[test]
fn a_purge_during_a_validation_does_not_hide_that_it_failed() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/swr/purged?size=30&cc=max-age=1,stale-while-revalidate=600&etag=a";
        get(target, "").await;
        seconds(3).await;
        let got = odd(target, "cc=private&delay=2000&etag=b").await;
        assert_eq!(detail(&got), "stale-while-revalidate");
        let purge = "POST /purge?prefix=site/swr/&soft HTTP/1.1\r\nHost: a\r\n\
                     Content-Length: 0\r\n\r\n";
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge.as_bytes()).await.status, 200);
        seconds(4).await;
        assert_eq!((detail(&get(target, "").await), world.origin.count(target)), ("", 3));
    });
}

/// The stored response is marked as purged before a 304 to an older request confirms it.
#[test]
fn a_confirmation_from_before_a_purge_does_not_undo_the_purge() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f4/confirmed?size=30&cc=max-age=600&etag=a";
        get(target, "").await;
        let fields = "Cache-Control: no-cache\r\nX-Answer: delay=2000\r\n";
        let slow = runtime::spawn(async move { get(target, fields).await });
        sleep(Duration::from_millis(500)).await;
        let purge = "POST /purge?prefix=site/f4/&soft HTTP/1.1\r\nHost: a\r\n\
                     Content-Length: 0\r\n\r\n";
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge.as_bytes()).await.status, 200);
        assert_eq!(get(target, "Cache-Control: only-if-cached\r\n").await.status, 504);
        assert_eq!(slow.await.status, 200);
        get(target, "").await;
        assert_eq!(world.origin.count(target), 3);
    });
}

/// A body that takes longer than the lifetime: who comes later cannot share it.
#[test]
fn a_herd_after_a_slow_body_has_become_stale_shares_one_fetch() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f7/body?size=900&cc=max-age=3&etag=a";
        let first = runtime::spawn(async move { odd(target, "pause=9000").await });
        seconds(5).await;
        let all = herd(target, 6).await;
        assert!(all.iter().all(|got| got.status == 200));
        first.await;
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn what_a_range_drew_is_for_no_other_request() {
    each_way(reverse, async |world: Rc<World>| {
        for status in [400, 404, 410, 416, 500, 501] {
            let target = format!("/f6/{status}?size=300&cc=max-age=600&etag=a");
            let fields = format!("Range: bytes=0-1\r\nX-Answer: status={status}&etag=\r\n");
            let got = get(&target, &fields).await;
            assert_eq!(got.status, status);
            let got = get(&target, "").await;
            assert_eq!((got.status, got.body), (200, expected(&target, None)), "{status}");
            assert_eq!(world.origin.count(&target), 2);
        }
    });
}

#[test]
fn a_part_of_a_response_with_content_range_has_one_content_range() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f6/whole?size=300&cc=max-age=600&etag=a";
        odd(target, "whole_range=1").await;
        assert_eq!(get(target, "").await.body, expected(target, None));
        let part = get(target, "Range: bytes=10-19\r\n").await;
        let ranges = part.fields.iter().filter(|(name, _)| name == "content-range");
        let ranges: Vec<&str> = ranges.map(|(_, value)| value.as_str()).collect();
        assert_eq!((part.status, ranges), (206, vec!["bytes 10-19/300"]));
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn the_rest_of_stored_parts_is_not_refused_for_a_range_that_we_added() {
    each_way(reverse, async |_: Rc<World>| {
        let target = "/f6/rest?size=300&cc=max-age=600&etag=a&ranges=1";
        assert_eq!(get(target, "Range: bytes=0-99\r\n").await.status, 206);
        let fields = "X-Answer: sick=2&ranges=1\r\n";
        let got = get(target, fields).await;
        assert_eq!(got.status, 503, "without a range, too");
        let got = get(target, "").await;
        assert_eq!((got.status, got.body), (200, expected(target, None)));
    });
}

#[test]
fn what_answers_a_request_whose_added_range_failed_is_stored() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f6/again?size=300&cc=max-age=600&etag=a&ranges=1&fails=2";
        assert_eq!(get(target, "Range: bytes=0-99\r\nX-Answer: fails=0\r\n").await.status, 206);
        for _ in 0..2 {
            let got = get(target, "").await;
            assert_eq!((got.status, got.body), (200, expected(target, None)));
        }
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn an_origin_slower_than_the_lifetime_answers_all_who_waited_by_one_fetch() {
    each_way(reverse, async |world: Rc<World>| {
        for (at, cc) in ["max-age=1", "max-age=1,must-revalidate"].into_iter().enumerate() {
            let target = format!("/f7/{at}?size=30&cc={cc}&etag=a&delay=3000");
            let mut all = Vec::new();
            for at in 0..8 {
                let (target, core) = (target.clone(), if at % 2 == 0 { PROXY } else { PROXY_TOO });
                all.push(runtime::spawn(async move {
                    Client::to(core).await.unwrap().get(&target, "").await
                }));
                sleep(Duration::from_millis(300)).await;
            }
            for one in all {
                assert_eq!(one.await.status, 200);
            }
            assert_eq!(world.origin.count(&target), 1, "{cc}");
        }
    });
}

fn cookies(responses: &[Response]) -> Vec<Option<&str>> {
    responses.iter().map(|got| got.field("set-cookie")).collect()
}

#[test]
fn a_cookie_goes_to_the_client_that_drew_it_alone() {
    each_way(reverse, async |world: Rc<World>| {
        // An origin that gives a cookie to who has none: the first visitor's.
        let target = "/f/visitor?size=30&cc=max-age=600&etag=a";
        assert_eq!(odd(target, "cookie=1").await.field("set-cookie"), Some("id=1"));
        let got = [get(target, "").await, get(target, "").await];
        assert_eq!((cookies(&got), world.origin.count(target)), (vec![None, None], 2));
        // Collapsed misses, and heuristics.
        let target = "/f/herd?size=30&cc=public&etag=a&cookie=1&delay=300";
        let all = herd(target, 6).await;
        let mut given = cookies(&all);
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 6, "each has its own: {given:?}");
        // A 304.
        let target = "/f/304?size=30&cc=max-age=1&etag=a&cookie=304";
        get(target, "").await;
        seconds(3).await;
        let got = get(target, "").await;
        assert!(got.status == 200 && got.field("set-cookie").is_some(), "{got:?}");
        let got = get(target, "").await;
        assert_eq!((got.field("set-cookie"), world.origin.count(target)), (None, 2));
    });
}

#[test]
fn cookies_are_stripped_or_shared_if_the_configuration_says_so() {
    let set = |to: SetCookie| with(reverse, move |config: &mut Config| config.set_cookie = to);
    let target = "/f/set?size=30&cc=max-age=600&etag=a&cookie=1";
    each_way(set(SetCookie::Strip), async |world: Rc<World>| {
        let got = [get(target, "").await, get(target, "").await, get(target, "").await];
        assert_eq!(cookies(&got), [Some("id=1"), None, None]);
        assert_eq!(world.origin.count(target), 1);
    });
    each_way(set(SetCookie::Share), async |world: Rc<World>| {
        let got = [get(target, "").await, get(target, "").await, get(target, "").await];
        assert_eq!(cookies(&got), [Some("id=1"); 3]);
        assert_eq!(world.origin.count(target), 1);
    });
    each_way(forward, async |world: Rc<World>| {
        let target = "http://10.0.0.2/f/set?size=30&cc=max-age=600&etag=a&cookie=1";
        let got = [get(target, "").await, get(target, "").await];
        assert_eq!(cookies(&got), [Some("id=1"), None]);
        assert_eq!(world.origin.count(&target["http://10.0.0.2".len()..]), 1);
    });
}

/// The origin saw the address of the client, and the key had the field that the client sent.
#[test]
fn a_response_that_varies_by_the_address_of_the_client_is_for_one() {
    let configured = || {
        let mut config = reverse();
        config.groups[0].forwarded = config::ForwardedFields::XForwarded;
        config
    };
    each_way(configured, async |world: Rc<World>| {
        for vary in ["X-Forwarded-For", "accept,x-forwarded-for"] {
            let target = format!("/address?size=30&cc=max-age=600&vary={vary}");
            for asked in 1..4 {
                assert_eq!(get(&target, "").await.status, 200);
                assert_eq!(world.origin.count(&target), asked, "{vary}");
            }
        }
    });
}

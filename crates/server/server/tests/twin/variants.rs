//! Responses of one URI that vary by different fields for different requests (RFC 9111, 4.1), and
//! variants that the origin says are the answer to a request that selects none (4.3.1, 4.3.3).

use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;

use crate::common::Response;
use crate::origin::expected;
use crate::world::{Client, World, each_way, reverse};

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

#[test]
fn an_origin_that_varies_by_different_fields_is_asked_once_for_each() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/t?size=90&cc=max-age=600&either=x-a,x-b,x-c,x-d";
        let all = ["x-a: 1", "x-b: 1", "x-a: 2", "x-c: 1", "x-b: 2", "x-d: 1"];
        for round in 0..4 {
            for field in all {
                let got = get(target, &format!("{field}\r\n")).await;
                let (name, value) = field.split_once(": ").unwrap();
                assert_eq!(got.field("vary"), Some(name));
                assert_eq!(got.body, expected(target, Some(value)), "round {round}");
                assert_eq!(got.field("cache-status").unwrap().contains("hit"), round > 0);
            }
        }
        assert_eq!(world.origin.count(target), all.len());
    });
}

#[test]
fn more_sets_than_are_kept_cost_hits_and_nothing_else() {
    each_way(reverse, async |world: Rc<World>| {
        let names: Vec<String> = (0..12).map(|n| format!("x-{n}")).collect();
        let target = format!("/m?size=20&cc=max-age=600&either={}", names.join(","));
        for name in &names {
            let got = get(&target, &format!("{name}: v{name}\r\n")).await;
            assert_eq!(got.body, expected(&target, Some(&format!("v{name}"))));
        }
        assert_eq!(world.origin.count(&target), 12);
        for name in names.iter().skip(4).chain(names.iter().skip(4)) {
            get(&target, &format!("{name}: v{name}\r\n")).await;
        }
        assert_eq!(world.origin.count(&target), 12, "the latest eight are there");
        get(&target, "x-0: vx-0\r\n").await;
        assert_eq!(world.origin.count(&target), 13, "the oldest is not");
    });
}

#[test]
fn the_most_recent_of_several_matching_variants_is_used() {
    for first in ["x-a", "x-b"] {
        each_way(reverse, async |world: Rc<World>| {
            let target = "/r?size=90&cc=max-age=600&either=x-a,x-b";
            let second = if first == "x-a" { "x-b" } else { "x-a" };
            for name in [first, second] {
                get(target, &format!("{name}: of-{name}\r\n")).await;
                sleep(Duration::from_secs(3)).await;
            }
            let both = get(target, "x-a: of-x-a\r\nx-b: of-x-b\r\n").await;
            assert_eq!(both.field("vary"), Some(second));
            assert_eq!(both.body, expected(target, Some(&format!("of-{second}"))));
            assert_eq!(world.origin.count(target), 2);
        });
    }
}

#[test]
fn a_response_without_vary_does_not_drive_out_those_with_it() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/n?size=90&cc=max-age=10&either=x-a";
        get(target, "x-a: 1\r\n").await;
        sleep(Duration::from_secs(4)).await;
        assert_eq!(get(target, "").await.field("vary"), None);
        let selected = get(target, "x-a: 1\r\n").await;
        assert_eq!(selected.field("vary"), None, "every request selects it, and it is newer");
        assert_eq!(world.origin.count(target), 2);
        // Both are stale, and the answer is of the other set.
        sleep(Duration::from_secs(20)).await;
        let got = get(target, "x-a: 1\r\n").await;
        assert_eq!(got.body, expected(target, Some("1")));
        assert_eq!(get(target, "x-a: 1\r\n").await.field("vary"), Some("x-a"));
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn a_change_takes_all_sets() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/c?size=90&cc=max-age=600&either=x-a,x-b";
        for round in 1..3 {
            for fields in ["x-a: 1\r\n", "x-b: 1\r\n", "x-a: 1\r\n"] {
                get(target, fields).await;
            }
            let request = format!("POST {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            Client::new().await.ask(request.as_bytes()).await;
            assert_eq!(world.origin.count(target), 3 * round);
        }
    });
}

#[test]
fn the_origin_may_say_which_variant_is_the_answer() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/g?size=900&cc=max-age=600&etag=e&group=x-v";
        for value in ["1a", "2a", "1b", "3a", "2b"] {
            for _ in 0..2 {
                let got = get(target, &format!("x-v: {value}\r\n")).await;
                assert_eq!((got.status, got.field("x-variant")), (200, Some(&value[..1])));
                assert_eq!(got.body, expected(target, Some(&value[..1])), "{value}");
            }
        }
        let seen = world.origin.seen.borrow();
        let asked: Vec<_> = seen.iter().map(|seen| seen.field("if-none-match")).collect();
        let two = Some("\"e2.0\", \"e1.0\"");
        let latest_first = [None, Some("\"e1.0\""), two, Some("\"e1.0\", \"e2.0\"")];
        assert_eq!(asked[..4], latest_first);
        assert_eq!(asked.len(), 5, "each combination once, {asked:?}");
        assert_eq!(world.counter("revalidated"), 2);
    });
}

#[test]
fn a_response_that_matches_no_variant_is_fetched() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/o?size=90&cc=max-age=600&etag=e&group=x-v";
        get(target, "x-v: 1\r\n").await;
        let mine = "x-v: 2\r\nIf-None-Match: \"e2.0\"\r\n";
        let got = get(target, mine).await;
        assert_eq!(got.status, 304, "its own condition is answered afterwards");
        assert_eq!(world.origin.last().field("if-none-match"), Some("\"e1.0\""));
        assert_eq!(get(target, "x-v: 2\r\n").await.body, expected(target, Some("2")));
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn no_more_variants_are_offered_than_a_server_would_read() {
    each_way(reverse, async |world: Rc<World>| {
        let target = format!("/b?size=9&cc=max-age=600&etag={}&group=x-v", "e".repeat(200));
        for value in 'a'..='l' {
            get(&target, &format!("x-v: {value}\r\n")).await;
        }
        let offered = world.origin.last().field("if-none-match").unwrap().len();
        assert!((800..1100).contains(&offered), "{offered}");
        let target = "/b?size=9&cc=max-age=600&etag=e&group=x-v";
        for value in 'a'..='l' {
            get(target, &format!("x-v: {value}\r\n")).await;
        }
        let last = world.origin.last();
        assert_eq!(last.field("if-none-match").unwrap().split(", ").count(), 8);
    });
}

#[test]
fn a_304_that_may_not_be_stored_is_not() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/a?size=90&cc=max-age=1&etag=e";
        get(target, "").await;
        sleep(Duration::from_secs(5)).await;
        // It is for this client alone (RFC 9111, 3.5), so the others ask for themselves.
        let mine = get(target, "Authorization: Basic eDp5\r\n").await;
        assert_eq!((mine.status, mine.body), (200, expected(target, None)));
        get(target, "").await;
        assert_eq!(world.origin.count(target), 3);
        assert_eq!(world.counter("revalidated"), 2);
    });
}

#[test]
fn via_names_the_version_of_the_origin() {
    for (how, version) in [("&old=1", "1.0"), ("", "1.1")] {
        each_way(reverse, async |_world: Rc<World>| {
            let target = format!("/v?size=90&cc=max-age=1&etag=e{how}");
            let via = format!("{version} plimsoll");
            let mut client = Client::new().await;
            for fields in ["", "", "Range: bytes=0-3\r\n", "Range: bytes=0-3,80-81\r\n"] {
                assert_eq!(client.get(&target, fields).await.field("via"), Some(&via[..]));
            }
            for fields in ["If-None-Match: \"e.0\"\r\n", "Range: bytes=900-\r\n"] {
                assert_eq!(client.get(&target, fields).await.field("via"), Some(&via[..]));
            }
            sleep(Duration::from_secs(5)).await;
            assert_eq!(client.get(&target, "").await.field("via"), Some(&via[..]));
        });
    }
}

#[test]
fn conditions_are_answered_before_ranges_from_parts_too() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/p?size=300&cc=max-age=600&etag=e&ranges=1";
        get(target, "Range: bytes=0-99\r\n").await;
        let both = "Range: bytes=10-19\r\nIf-None-Match: \"e.0\"\r\n";
        assert_eq!(get(target, both).await.status, 304);
        let other = "Range: bytes=10-19\r\nIf-None-Match: \"x\"\r\n";
        assert_eq!(get(target, other).await.status, 206);
        assert_eq!(world.origin.count(target), 1);
    });
}

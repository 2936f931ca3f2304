//! What the admin address says of a request is what then happens to it, and asking changes nothing.

use std::rc::Rc;
use std::time::Duration;

use proxy::explain::Explained;
use runtime::time::sleep;

use crate::world::{ADMIN, Client, World, each_way, forward, reverse};

async fn get(target: &str, fields: &str) {
    Client::new().await.get(target, fields).await;
}

/// A call to the admin address, and its JSON.
async fn call(request: &str) -> (u16, Vec<u8>) {
    let mut client = Client::to(ADMIN).await.unwrap();
    let got = client.ask(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    (got.status, got.body)
}

async fn explain(query: &str) -> Explained {
    let (status, body) = call(&format!("GET /explain?{query}")).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

fn rule(explained: &Explained) -> (&str, &str) {
    (&explained.decision.does, &explained.decision.rule)
}

#[test]
fn each_decision_names_its_rule_and_its_numbers() {
    each_way(reverse, async |world: Rc<World>| {
        let (target, url) = (
            "/e?size=90&cc=max-age=60&etag=x&key=b+a",
            "/e%3fsize=90%26cc=max-age\
            =60%26etag=x%26key=b%2Ba",
        );
        let about = format!("url=http://SITE:80{url}");
        let before = explain(&about).await;
        assert_eq!((rule(&before), before.selected.is_none()), (("fetch", "uri-miss"), true));
        let refused = explain(&format!("{about}&header=Cache-Control:only-if-cached")).await;
        assert_eq!(rule(&refused), ("refuse", "only-if-cached"));
        get(target, "").await;
        sleep(Duration::from_secs(10)).await;

        let fresh = explain(&about).await;
        assert_eq!(rule(&fresh), ("serve", "fresh"));
        assert_eq!(fresh.key, before.key);
        let selected = fresh.selected.unwrap();
        assert_eq!((selected.status, selected.body_bytes, selected.tags.join(" ")), {
            (200, 90, "a b".to_owned())
        });
        assert_eq!(selected.etag.as_deref(), Some("\"x.0\""));
        let numbers = &selected.freshness;
        assert_eq!((numbers.lifetime_ms, numbers.fresh), (60_000, true));
        assert_eq!(numbers.current_age_ms, numbers.corrected_initial_age_ms + numbers.resident_ms);
        assert!((10_000..11_000).contains(&numbers.resident_ms), "{numbers:?}");
        let reload = explain(&format!("{about}&header=Cache-Control:%20no-cache")).await;
        assert_eq!(rule(&reload), ("validate", "request-no-cache"));
        assert_eq!(reload.conditions, [("If-None-Match".to_owned(), "\"x.0\"".to_owned())]);

        call("POST /purge?tag=a&soft").await;
        let stale = explain(&about).await;
        assert_eq!(rule(&stale), ("validate", "stale"));
        assert!(stale.selected.unwrap().freshness.softly_purged_ms.is_some());
        call("POST /purge?prefix=site/").await;
        assert_eq!(explain(&about).await.decision.does, "fetch");
        assert_eq!((world.origin.count(target), world.counter("hits")), (1, 0));
    });
}

#[test]
fn variants_are_listed_and_the_one_for_the_request_is_told() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/v?size=9&cc=max-age=60&vary=x-v";
        let about = "url=http://site/v%3fsize=9%26cc=max-age=60%26vary=x-v";
        for variant in ["x-v: 1\r\n", "x-v: 2\r\n", "x-v: 1\r\n"] {
            get(target, variant).await;
        }
        let told = explain(&format!("{about}&header=x-v:%202")).await;
        assert_eq!((rule(&told), told.variants.len()), (("serve", "fresh"), 2));
        assert_eq!(told.varies_by, ["x-v"]);
        let selected = told.selected.unwrap();
        assert_eq!(selected.key, told.variants[1].key);
        assert_ne!(selected.key, told.key);
        let other = explain(&format!("{about}&header=x-v:%203")).await;
        assert_eq!(rule(&other), ("fetch", "vary-miss"));
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn a_forward_proxy_explains_and_what_is_no_question_is_refused() {
    each_way(forward, async |_world: Rc<World>| {
        get("http://10.0.0.2/f?cc=max-age=60", "").await;
        let told = explain("url=http://10.0.0.2/f%3fcc=max-age=60").await;
        assert_eq!((rule(&told), told.role.as_str()), (("serve", "fresh"), "forward"));
        for wrong in ["", "url=h", "url=http://h/&url=http://h/", "url=http://h/&x=1"] {
            assert_eq!(call(&format!("GET /explain?{wrong}")).await.0, 400, "{wrong}");
        }
        for wrong in ["header=a%0d%0ab:c", "header=%20a", "header=a%20b:c", "role=both"] {
            let (status, _) = call(&format!("GET /explain?url=http://h/&{wrong}")).await;
            assert_eq!(status, 400, "{wrong}");
        }
    });
}

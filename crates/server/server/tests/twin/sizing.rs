//! The hit ratios of other sizes, as the admin address reports them.

use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;
use server::WhatIfReport;

use crate::coding_forms::coded;
use crate::world::{ADMIN, Client, World, each_way, reverse};

async fn report() -> WhatIfReport {
    let mut client = Client::to(ADMIN).await.unwrap();
    let got = client.ask(b"GET /what-if HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((got.status, got.field("content-type")), (200, Some("application/json")));
    serde_json::from_slice(&got.body).unwrap()
}

#[test]
fn each_hit_and_each_stored_response_is_an_access() {
    each_way(reverse, async |_world: Rc<World>| {
        let before = report().await;
        assert_eq!(
            before.sizes.iter().map(|size| size.memory).collect::<Vec<_>>(),
            [0.5, 1.0, 2.0, 4.0]
        );
        assert!(before.real.hit_ratio.is_none() && before.accesses == 0.0);
        assert_eq!(before.real.memory_bytes, reverse().memory_bytes);
        let mut client = Client::new().await;
        for round in 0..4 {
            for n in 0..20 {
                let condition = if round == 3 { "If-None-Match: \"e.0\"\r\n" } else { "" };
                client.get(&format!("/{n}?size=100&cc=max-age=60&etag=e"), condition).await;
            }
        }
        client.get("/none?cc=no-store", "").await;
        sleep(Duration::from_secs(1)).await;
        let after = report().await;
        assert!((after.accesses - 80.0).abs() < 1e-6, "{after:?}");
        assert_eq!((after.real.hit_ratio, after.real.byte_hit_ratio), (Some(0.75), Some(0.75)));
        let known = after.sizes.iter().any(|size| size.hit_ratio.is_some());
        assert!(!known, "so few objects are no sample: {after:?}");
        assert!(after.sampled_objects < 20, "{after:?}");
    });
}

/// A form is shorter than its response, which is what has to fit into memory.
#[test]
fn a_coded_hit_counts_as_its_response_does() {
    each_way(coded, async |_world: Rc<World>| {
        let mut client = Client::new().await;
        for hit in 0..5 {
            let target = "/c?size=3000&text=1&cc=max-age=600";
            let got = client.get(target, "Accept-Encoding: gzip\r\n").await;
            let is_coded = got.field("content-encoding") == Some("gzip");
            assert!(is_coded || hit < 2, "{hit}");
            sleep(Duration::from_secs(1)).await;
        }
        let real = report().await.real;
        let (hits, bytes) = (real.hit_ratio.unwrap(), real.byte_hit_ratio.unwrap());
        assert!(hits > 0.5 && (hits - bytes).abs() < 1e-6, "{real:?}");
    });
}

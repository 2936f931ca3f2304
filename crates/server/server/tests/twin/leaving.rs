//! Clients that leave before they have their response: what becomes of the request at the origin.

use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use config::{Config, Route};
use runtime::time::sleep;

use crate::origin::expected;
use crate::world::{Client, World, each_way, each_way_http1, forward, reverse, with};

const SOON: Duration = Duration::from_secs(2);

/// A configuration by which the requests of clients that have left go on.
pub(crate) fn finishing(config: impl Fn() -> Config) -> impl Fn() -> Config {
    with(config, |config| {
        config.forward.finish_abandoned = true;
        let routes = config.groups.iter().map(|group| Route::to(&group.name));
        config.routes = routes.map(|route| Route { finish_abandoned: true, ..route }).collect();
    })
}

/// The request of a client, which leaves when the origin has it.
async fn ask_and_leave(world: &World, request: &str) {
    let before = world.origin.seen.borrow().len();
    let client = Client::new().await;
    client.send(request.as_bytes()).await.unwrap();
    sleep(SOON).await;
    assert_eq!(world.origin.seen.borrow().len(), before + 1, "{request}");
    drop(client);
    sleep(SOON).await;
}

#[test]
fn an_origin_learns_at_once_that_its_client_has_left() {
    let requests = [
        "GET /a?size=9&cc=max-age=60&silent=1 HTTP/1.1\r\nHost: site\r\n\r\n",
        "GET /b?size=9&cc=no-store&silent=1 HTTP/1.1\r\nHost: site\r\n\
         Cache-Control: no-store\r\n\r\n",
        "HEAD /c?size=9&silent=1 HTTP/1.1\r\nHost: site\r\n\r\n",
        "DELETE /d?silent=1 HTTP/1.1\r\nHost: site\r\n\r\n",
        "PUT /e?silent=1 HTTP/1.1\r\nHost: site\r\nContent-Length: 3\r\n\r\nabc",
        "POST /f?silent=1 HTTP/1.1\r\nHost: site\r\nContent-Length: 3\r\n\r\nabc",
        "POST /g?silent=1 HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
        // In the middle of a body that is not stored.
        "GET /h?size=40&cc=no-store&pause=90000 HTTP/1.1\r\nHost: site\r\n\r\n",
        "GET /i?size=40&cc=private&frame=chunked&pause=90000 HTTP/1.1\r\nHost: site\r\n\r\n",
    ];
    each_way(reverse, async |world: Rc<World>| {
        for (at, request) in requests.iter().enumerate() {
            ask_and_leave(&world, request).await;
            assert_eq!(world.origin.abandoned.get(), at + 1, "{request}");
        }
        assert_eq!(world.counter("upstream_errors"), 0, "no server is blamed for it");
        let statuses: Vec<u16> = world.log_lines().iter().map(|line| line.0).collect();
        assert_eq!(statuses, [499, 499, 499, 499, 499, 499, 499, 200, 200]);
    });
}

/// A client that does not read to the end is no reason to fetch a body twice.
#[test]
fn a_body_that_is_being_stored_is_fetched_to_its_end() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/s?size=5000&cc=max-age=600&pause=5000";
        ask_and_leave(&world, &format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n")).await;
        sleep(Duration::from_secs(6)).await;
        assert_eq!(world.origin.abandoned.get(), 0);
        assert_eq!(Client::new().await.get(target, "").await.body, expected(target, None));
        assert_eq!(world.origin.count(target), 1);
    });
}

/// The last of those who wait ends the fetch, not the first.
#[test]
fn a_fetch_ends_with_the_last_request_that_waits_for_it() {
    each_way(reverse, async |world: Rc<World>| {
        let request = b"GET /w?size=9&cc=max-age=60&silent=1 HTTP/1.1\r\nHost: site\r\n\r\n";
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = Client::new().await;
            client.send(request).await.unwrap();
            sleep(Duration::from_millis(500)).await;
            clients.push(client);
        }
        assert_eq!(world.origin.seen.borrow().len(), 1);
        // The request that leads the fetch is neither the first nor the last to end.
        for next in [1, 0, 0] {
            assert_eq!(world.origin.abandoned.get(), 0);
            drop(clients.remove(next));
            sleep(SOON).await;
        }
        assert_eq!(world.origin.abandoned.get(), 1);
        assert_eq!(world.origin.seen.borrow().len(), 1);
    });
}

#[test]
fn a_request_goes_on_without_its_client_if_that_is_configured() {
    for config in [reverse, forward] {
        each_way(finishing(config), async |world: Rc<World>| {
            let path = "/f?size=900&cc=max-age=600&delay=5000";
            let target = match config().groups.is_empty() {
                true => format!("http://10.0.0.2:80{path}"),
                false => path.to_owned(),
            };
            ask_and_leave(&world, &format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n")).await;
            sleep(Duration::from_secs(6)).await;
            assert_eq!(world.origin.abandoned.get(), 0);
            let got = Client::new().await.get(&target, "").await;
            assert_eq!((got.status, got.body), (200, expected(path, None)));
            assert_eq!(world.origin.seen.borrow().len(), 1);
        });
    }
}

/// Nothing distinguishes it from a client that is gone. A stored response, and a request before
/// another one, are answered all the same.
#[test]
fn a_client_of_http1_that_closes_its_direction_has_left() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let hit = "/hit?size=900&cc=max-age=600";
        assert_eq!(Client::new().await.get(hit, "").await.status, 200);
        let mut client = Client::new().await;
        let get = |target| format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        let last = get("/last?size=9&silent=1");
        let all = [get(hit), get("/first?size=9&cc=no-store&delay=300"), last].concat();
        client.send(all.as_bytes()).await.unwrap();
        client.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.response().await.unwrap().body, expected(hit, None));
        assert_eq!(client.response().await.unwrap().status, 200);
        assert!(client.response().await.is_err());
        sleep(SOON).await;
        let statuses: Vec<u16> = world.log_lines().iter().map(|line| line.0).collect();
        assert_eq!(statuses, [200, 200, 200, 499]);
    });
}

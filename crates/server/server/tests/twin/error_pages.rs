//! Error pages and maintenance: whose errors have a page, what stays of the error, and what comes
//! first.

use std::rc::Rc;

use config::{ErrorPage, FieldRule, Maintenance, Page, Path, Route};
use server::Config;

use crate::common::Response;
use crate::conditions::{answer, rule, with};
use crate::world::{ADMIN, Client, World, each_way};

fn page(statuses: &[u16], text: &str) -> ErrorPage {
    let of_type = "text/html; charset=utf-8".to_owned();
    let page = Page::Content { of_type, text: text.to_owned() };
    ErrorPage { statuses: statuses.to_vec(), page, status: None, intercept: false, fill: false }
}

fn at(prefix: &str) -> Route {
    Route { path: Path::Prefix(prefix.to_owned()), ..Route::to("first") }
}

async fn get(client: &mut Client, target: &str) -> Response {
    client.ask(format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes()).await
}

fn body(got: &Response) -> &str {
    std::str::from_utf8(&got.body).unwrap()
}

#[test]
fn our_own_errors_have_the_page_of_their_route_or_of_the_server() {
    let config = || {
        let mut shop = at("/shop");
        shop.body_bytes_max = Some(3);
        shop.error_pages = vec![page(&[413, 502], "shop")];
        let mut moved = at("/moved");
        let page_of = Page::Redirect("https://status.example/".to_owned());
        moved.error_pages =
            vec![ErrorPage { page: page_of, status: Some(302), ..page(&[502], "") }];
        let mut config = with(vec![shop, moved, at("/other")], Vec::new());
        config.error_pages = vec![ErrorPage { status: Some(200), ..page(&[404, 502], "all") }];
        config
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let gone = "gone=1";
        let got = get(&mut client, &format!("/shop?{gone}")).await;
        assert_eq!((got.status, body(&got)), (502, "shop"));
        assert_eq!(got.field("content-type"), Some("text/html; charset=utf-8"));
        assert!(got.field("proxy-status").is_some(), "the error is still named");
        assert_eq!(got.field("cache-control"), Some("no-store"));
        let got = get(&mut client, &format!("/moved?{gone}")).await;
        assert_eq!((got.status, got.field("location")), (302, Some("https://status.example/")));
        for target in [&format!("/other?{gone}"), "/none"] {
            let got = get(&mut client, target).await;
            assert_eq!((got.status, body(&got)), (200, "all"), "{target}");
        }
        let post = b"POST /shop HTTP/1.1\r\nHost: site\r\nContent-Length: 4\r\n\r\nbody";
        let got = client.ask(post).await;
        assert_eq!((got.status, body(&got)), (413, "shop"));
    });
}

/// A browser did not ask for the login that the upstream needs.
#[test]
fn a_page_keeps_what_the_client_needs_of_the_error() {
    let config = || {
        let mut shop = at("/shop");
        shop.error_pages = vec![ErrorPage { intercept: true, ..page(&[401, 503], "sorry") }];
        let set = |name: &str, value: &str| FieldRule::Set(name.to_owned(), value.to_owned());
        shop.response = vec![set("WWW-Authenticate", "Basic realm=a"), set("Retry-After", "7")];
        with(vec![shop], Vec::new())
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for query in ["status=401", "status=503&cc=max-age=60", "status=503&cc=max-age=60"] {
            let got = get(&mut client, &format!("/shop?size=9&{query}")).await;
            assert_eq!(body(&got), "sorry");
            assert_eq!(got.field("www-authenticate"), Some("Basic realm=a"), "{query}");
            assert_eq!(got.field("retry-after"), Some("7"), "{query}");
            assert_eq!(got.field("x-target"), None, "{query}");
        }
    });
}

#[test]
fn errors_of_upstreams_have_a_page_only_where_it_says_so() {
    let config = || {
        let mut shop = at("/shop");
        shop.error_pages = vec![ErrorPage { intercept: true, ..page(&[404, 503], "sorry") }];
        let mut other = at("/other");
        other.error_pages = vec![page(&[404, 503], "sorry")];
        with(vec![shop, other], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        // Passed on, fetched for the store, and from the store.
        for query in ["status=503&size=9", "status=404&size=9&cc=max-age=60"] {
            for _ in 0..3 {
                let got = get(&mut client, &format!("/shop?{query}")).await;
                assert_eq!(body(&got), "sorry", "{query}");
                assert!(query.contains(&format!("status={}", got.status)));
                let got = get(&mut client, &format!("/other?{query}")).await;
                assert_eq!(got.body.len(), 9, "{query}");
            }
        }
        assert_eq!(world.origin.count("/shop?status=404&size=9&cc=max-age=60"), 1);
        let post =
            b"POST /shop?status=404&size=9 HTTP/1.1\r\nHost: site\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(body(&client.ask(post).await), "sorry");
        let got = client.head("/shop?status=404&size=9", "").await;
        assert_eq!((got.status, got.field("content-length")), (404, Some("5")));
        assert_eq!(get(&mut client, "/shop?size=9&cc=max-age=60").await.body.len(), 9);
    });
}

fn maintained() -> Config {
    let mut guarded = at("/admin");
    guarded.guard.allow_from = Some(vec!["192.0.2.0/24".to_owned()]);
    let moved = config::Rule { action: answer(410), ..rule("moved", "path == '/moved'") };
    let mut config = with(vec![guarded, at("/")], vec![moved]);
    let of_page = config::Rule { action: answer(503), ..rule("maintenance", "path != '/health'") };
    config.maintenance = Some(Maintenance { file: None, rule: of_page });
    config
}

#[test]
fn maintenance_comes_before_everything_else_while_it_is_on() {
    each_way(maintained, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let targets = ["/a?size=9&cc=max-age=60", "/moved", "/admin/a", "/health"];
        let statuses = async |client: &mut Client| {
            let mut all = Vec::new();
            for target in targets {
                all.push(get(client, target).await.status);
            }
            all
        };
        let switch = async |to: &str| {
            let mut admin = Client::to(ADMIN).await.unwrap();
            let call = format!("POST /maintenance?switch={to} HTTP/1.1\r\nHost: a\r\n\r\n");
            admin.send(call.as_bytes()).await.unwrap();
            let got = admin.response().await.unwrap();
            (got.status, body(&got).to_owned())
        };
        let usual = [200, 410, 403, 200];
        for _ in 0..2 {
            assert_eq!(statuses(&mut client).await, usual);
            assert_eq!(switch("on").await, (200, "on, by the admin address\n".to_owned()));
            assert_eq!(statuses(&mut client).await, [503, 503, 503, 200]);
            assert_eq!(switch("perhaps").await.0, 400);
            assert_eq!(switch("off").await, (200, "off\n".to_owned()));
        }
        assert_eq!(statuses(&mut client).await, usual);
        assert_eq!(world.origin.count(targets[0]), 1, "stored responses stay");
    });
}

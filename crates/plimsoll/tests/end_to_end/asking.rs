//! `plimsoll explain` and `plimsoll purge`, against a running server.

use crate::support::{Home, get, plimsoll};
use crate::verbs::a_server;

#[test]
fn a_url_is_explained_purged_and_explained_again() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &["--admin", "127.0.0.1:0"]);
    let (at, admin) = (server.address(), server.admin().to_string());
    let path = "/obj/1?size=10&cc=max-age%3D60";
    let url = format!("http://{at}{path}");
    get(at, path);
    let told = plimsoll(&["explain", &url, "--admin", &admin]).well().stdout;
    for line in ["would be      served from store", "current_age", "60.000 s", "ETag"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let reload = ["explain", &url, "-H", "Cache-Control: no-cache", "--admin", &admin, "--json"];
    let reload = plimsoll(&reload).well().json();
    assert_eq!(reload["decision"]["rule"], "request-no-cache");
    let purged = plimsoll(&["purge", &url, "--admin", &admin]).well().stdout;
    assert_eq!(purged, format!("purged: url {at}{path}\n"));
    let told = plimsoll(&["explain", &url, "--admin", &admin, "--json"]).well().json();
    assert_eq!(told["decision"]["does"], "fetch");
    let all = plimsoll(&["purge", "--all", "--soft", "--json", "--admin", &admin]).well().json();
    assert_eq!((&all["purged"], &all["soft"]), (&"all".into(), &true.into()));
    let sizes = plimsoll(&["explain", "--cache", "--admin", &admin]).well().stdout;
    assert!(sizes.starts_with("memory") && sizes.contains("x 0.5"), "{sizes}");
}

#[test]
fn what_cannot_be_asked_is_told_in_one_line() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &["--admin", "127.0.0.1:0"]);
    let admin = server.admin().to_string();
    plimsoll(&["purge", "no-url", "--admin", &admin]).refused(&["no-url", "http://host/path"]);
    plimsoll(&["explain", "ftp://h/", "--admin", &admin]).refused(&["ftp://h/", "http://"]);
    plimsoll(&["purge", "--admin", &admin]).refused(&["--prefix", "--all"]);
    plimsoll(&["purge", "--all", "--tag", "a", "--admin", &admin]).refused(&["--all", "--tag"]);
    assert_eq!(server.stopped().0, Some(0));
    plimsoll(&["purge", "--all", "--admin", &admin]).refused(&[&admin, "--admin"]);
}

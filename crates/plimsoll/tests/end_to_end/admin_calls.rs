//! `plimsoll explain`, `purge`, `metrics` and `locks` against a running server.

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
    let answer = plimsoll(&["explain", &url, "--admin", &admin]).succeeded().stdout;
    for line in ["would be      served from the cache", "current_age", "60.000 s", "ETag"] {
        assert!(answer.contains(line), "{line}: {answer}");
    }
    let reload = ["explain", &url, "-H", "Cache-Control: no-cache", "--admin", &admin, "--json"];
    let reload = plimsoll(&reload).succeeded().json();
    assert_eq!(reload["decision"]["rule"], "request-no-cache");
    let purged = plimsoll(&["purge", &url, "--admin", &admin]).succeeded().stdout;
    assert_eq!(purged, format!("purged: url {at}{path} (1 response)\n"));
    let answer = plimsoll(&["explain", &url, "--admin", &admin, "--json"]).succeeded().json();
    assert_eq!(answer["decision"]["does"], "fetch");
    let all =
        plimsoll(&["purge", "--all", "--soft", "--json", "--admin", &admin]).succeeded().json();
    assert_eq!((&all["purged"], &all["soft"]), (&"all".into(), &true.into()));
    assert_eq!(all["responses"], 0);
    let sizes = plimsoll(&["explain", "--cache", "--admin", &admin]).succeeded().stdout;
    assert!(sizes.starts_with("memory") && sizes.contains("x 0.5"), "{sizes}");
}

#[test]
fn metrics_are_listed_and_those_of_a_running_server_are_shown() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &["--admin", "127.0.0.1:0"]);
    let admin = server.admin().to_string();
    for _ in 0..3 {
        get(server.address(), "/obj/1?size=10&cc=max-age%3D60");
    }
    let shown = plimsoll(&["metrics", "--admin", &admin]).succeeded().stdout;
    assert!(shown.starts_with("How much this server can carry is not known: "), "{shown}");
    let summary = shown.split("\n\n").next().unwrap().split_whitespace().collect::<Vec<_>>();
    let summary = summary.join(" ");
    for part in ["Requests 3 in ", "66.7 % answered from the store", "Errors none"] {
        assert!(summary.contains(part), "{part}: {shown}");
    }
    let value = |name: &str| {
        let line = shown.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name}: {shown}")).split_whitespace().nth(1).unwrap()
    };
    assert_eq!((value("plimsoll_requests_total"), value("plimsoll_hits_total")), ("3", "2"));
    assert!(!shown.contains("_bucket"), "histograms are shown by sum and count: {shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    let all = plimsoll(&["metrics", "--all", "--admin", &admin]).succeeded().stdout;
    let is_in_table = |text: &str, name| text.lines().any(|line| line.starts_with(name));
    let never = "plimsoll_purges_total";
    assert!(is_in_table(&all, never) && !is_in_table(&shown, never), "{all}");
    let samples = plimsoll(&["metrics", "--json", "--admin", &admin]).succeeded().json();
    let samples = samples.as_array().unwrap();
    let requests = samples.iter().find(|one| one["name"] == "plimsoll_requests_total").unwrap();
    assert_eq!(requests["value"], 3.0);
    assert!(samples.iter().any(|one| one["name"].as_str().unwrap().ends_with("_bucket")));
    // Each sample belongs to a listed metric with a meaning. Listing needs no server.
    assert_eq!(server.stopped().0, Some(0));
    let listed = plimsoll(&["metrics", "--list", "--json"]).succeeded().json();
    let listed = listed.as_array().unwrap();
    for sample in samples {
        let (name, help) = (sample["name"].as_str().unwrap(), sample["help"].as_str().unwrap());
        let of = listed.iter().find(|one| name.starts_with(one["name"].as_str().unwrap()));
        assert!(of.is_some() && !help.is_empty(), "{sample}");
    }
    let text = plimsoll(&["metrics", "--list"]).succeeded().stdout;
    for metric in listed {
        assert!(text.contains(metric["name"].as_str().unwrap()), "{metric}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    plimsoll(&["metrics", "--admin", &admin]).refused(&[&admin, "--admin"]);
}

#[test]
fn invalid_requests_are_refused_in_one_line() {
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

#[test]
fn locks_are_counted_during_the_call() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &["--admin", "127.0.0.1:0"]);
    let (at, admin) = (server.address(), server.admin().to_string());
    let path = "/obj/1?size=10&cc=max-age%3D60";
    get(at, path);
    let asked = ["locks", "--for", "1s", "--json", "--admin", &admin];
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| plimsoll(&asked).succeeded().json());
        while !answer.is_finished() {
            get(at, path);
        }
        answer.join().unwrap()
    });
    let locks = answer["locks"].as_array().unwrap();
    let of = |name: &str| locks.iter().find(|lock| lock["lock"] == name).unwrap();
    let store = of("store: shard");
    assert!(store["attempts"].as_u64() > Some(0), "{answer:#}");
    assert!(store["hold_mean_us"].as_f64() > Some(0.0), "{answer:#}");
    assert!(store["hold_max_us"].as_f64() >= store["hold_mean_us"].as_f64(), "{answer:#}");
    assert!(store["contended"].as_u64() <= store["attempts"].as_u64(), "{answer:#}");
    plimsoll(&["locks", "--for", "2m", "--admin", &admin]).refused(&["from 1 to 60"]);
}

//! Quotas against real clients: curl from a hundred addresses.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use crate::support::{Home, SOON, get, limited, plimsoll, program, run};

/// The statuses that each of these addresses gets for so many requests of each, which curl sends
/// from all of them in turn.
fn statuses(home: &Home, url: &str, clients: &[(String, usize)]) -> BTreeMap<String, Vec<u16>> {
    let mut config = String::new();
    for (at, (address, requests)) in clients.iter().enumerate() {
        if at > 0 {
            config.push_str("next\n");
        }
        let _ = write!(config, "interface = \"{address}\"\nsilent\n");
        config.push_str("write-out = \"%{local_ip} %{http_code}\\n\"\n");
        for _ in 0..*requests {
            let _ = write!(config, "url = \"{url}\"\noutput = \"/dev/null\"\n");
        }
    }
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["-K", &home.write("curl.conf", config)]);
    let output = run(curl, SOON).succeeded().stdout;
    let mut all: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for line in output.lines() {
        let (address, status) = line.split_once(' ').unwrap();
        all.entry(address.to_owned()).or_default().push(status.parse().unwrap());
    }
    all
}

/// One of 100 addresses asks for ten times what it may have: it gets what it may have, and the 99
/// others lose nothing.
#[test]
fn one_of_100_addresses_asks_ten_times_too_much_and_the_others_lose_nothing() {
    let home = Home::new();
    let (server, _origin) =
        limited(&home, "[[quota]]\nname = \"clients\"\nrequests = \"5/h\"\nburst = 5\n");
    let url = format!("{}/obj/1?size=100&cc=max-age%3D600", server.url());
    let loud = "127.0.1.1".to_owned();
    let mut clients: Vec<(String, usize)> =
        (2..=100).map(|at| (format!("127.0.1.{at}"), 5)).collect();
    clients.insert(50, (loud.clone(), 50));
    let got = statuses(&home, &url, &clients);
    assert_eq!(got.len(), 100);
    for (address, statuses) in &got {
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(passed, 5, "{address}: {statuses:?}");
    }
    assert_eq!(got[&loud].iter().filter(|status| **status == 429).count(), 45);
    let admin = server.admin();
    let quotas = get(admin, "/quotas");
    assert!(quotas.contains("\"client\":\"127.0.1.1/32\"") && quotas.contains("\"over\":45"));
    let metrics = get(admin, "/metrics");
    assert!(metrics.contains("plimsoll_quota_refused_total{quota=\"clients\"} 45"), "{metrics}");
    let answer = plimsoll(&["explain", &url, "--admin", &admin.to_string()]).succeeded().stdout;
    assert!(answer.contains("clients: 5 requests may come now"), "{answer}");
}

/// A reload keeps what was spent, also with another rate.
#[test]
fn a_reload_resets_no_quota() {
    let home = Home::new();
    let quota = "[[quota]]\nname = \"q\"\nrequests = \"2/h\"\nburst = 2\n";
    let (server, _origin) = limited(&home, quota);
    let url = format!("{}/obj/1", server.url());
    let clients = [("127.0.1.1".to_owned(), 4)];
    assert_eq!(statuses(&home, &url, &clients)["127.0.1.1"], [200, 200, 429, 429]);
    let file = home.read("p.toml");
    for with in [quota.to_owned(), quota.replace("2/h", "3/h").replace("= 2", "= 3")] {
        home.write("p.toml", file.replace(quota, &with));
        let admin = server.admin().to_string();
        plimsoll(&["reload", "--admin", &admin]).succeeded();
        let got = &statuses(&home, &url, &clients)["127.0.1.1"];
        assert!(got.iter().filter(|status| **status == 200).count() <= 1, "{got:?}");
    }
    // One that is not a quota changes nothing.
    home.write("p.toml", file.replace("2/h", "2/x"));
    let check = plimsoll(&["check", &home.at("p.toml")]);
    assert_eq!(check.code, Some(2), "{check:?}");
    assert!(check.stderr.contains("\"2/x\" is not a rate"), "{check:?}");
}

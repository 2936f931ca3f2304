//! The studies, run small: what is counted is asserted exactly, and no time is.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Home, PLIMSOLL, Said, plimsoll, program, run};

fn swapin(home: &Home, more: &[&str]) -> Said {
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "swapin", "--json", "--objects", "30", "--rounds", "2"]);
    command.args(["--path", &home.at("")]).args(more);
    run(command, Duration::from_secs(180))
}

/// Swap-ins from a warm page cache.
fn reads<'v>(result: &'v Value, who: &str, block_bytes: u64) -> &'v Value {
    let plots = result["plots"].as_array().unwrap();
    let wanted = |plot: &&Value| {
        plot["who"] == who
            && plot["direction"] == "in"
            && plot["cache"] == "warm"
            && plot["block_bytes"] == block_bytes
    };
    &plots.iter().find(wanted).unwrap_or_else(|| panic!("no {who}: {result:#}"))["reads"]
}

#[test]
fn objects_are_read_at_their_exact_length_and_the_old_mistake_is_one_read_more() {
    let home = Home::new();
    let result = swapin(&home, &["--no-squid"]).well().json();
    let objects = 30 * 2;
    for (who, block_bytes) in [("store", 32 << 10), ("exact", 32 << 10), ("exact", 8 << 10)] {
        let reads = reads(&result, who, block_bytes);
        assert_eq!(reads["objects"], objects, "{who}: {reads}");
        // One read for an object of one block, ceil(length / block) otherwise, none behind the end.
        assert_eq!(reads["reads"], reads["blocks"], "{who}: {reads}");
        assert_eq!(reads["exact"], objects, "{who}: {reads}");
        assert_eq!(reads["zero"], 0, "{who}: {reads}");
        assert_eq!(reads["short"], 0, "{who}: {reads}");
    }
    for who in ["again", "scheduled"] {
        for block_bytes in [32 << 10, 8 << 10] {
            let reads = reads(&result, who, block_bytes);
            let blocks = reads["blocks"].as_u64().unwrap();
            assert_eq!(reads["reads"], blocks + objects, "{who}: {reads}");
            assert_eq!(reads["zero"], objects, "{who}: {reads}");
            assert_eq!(reads["one_more"], objects, "{who}: {reads}");
        }
    }
    // From a cold page cache too nothing is asked for behind the end.
    for plot in result["plots"].as_array().unwrap() {
        let reads = &plot["reads"];
        if plot["direction"] == "in" && ["store", "exact"].iter().any(|who| plot["who"] == *who) {
            assert_eq!((&reads["zero"], &reads["exact"]), (&0.into(), &objects.into()), "{plot}");
        }
    }
    assert_eq!(result["squid"], "left_out");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left behind");
}

/// Only who may trace another process can look at Squid; elsewhere the result says why not.
#[test]
fn a_real_squid_is_looked_at_or_the_reason_is_told() {
    let home = Home::new();
    program("squid", "squid");
    program("strace", "strace");
    let out = home.at("out");
    let result = swapin(&home, &["--out", &out]).well().json();
    if let Some(why) = result["squid"]["not_supported"].as_str() {
        assert!(!why.is_empty());
        return;
    }
    assert!(result["squid"]["seen"].as_str().unwrap().starts_with("Squid "), "{result:#}");
    let seen = reads(&result, "squid", 4096);
    // Each size is stored three times, and what was stored is asked for twice.
    assert_eq!(seen["objects"], 30 * 3 * 2, "{seen}");
    for file in ["swapin.svg", "swapin.json"] {
        assert!(home.has(&format!("out/{file}")), "{file}");
    }
    let svg = home.read("out/swapin.svg");
    assert!(svg.contains("Our store as it is: swap-in") && svg.contains("under strace"), "{svg}");
}

#[test]
fn without_a_name_the_studies_are_listed() {
    let _home = Home::new();
    let said = plimsoll(&["study"]).well();
    assert!(said.stdout.contains("\n  swapin  "), "{}", said.stdout);
    plimsoll(&["study", "swapin", "--path", "/nowhere/at/all"])
        .refused(&["/nowhere/at/all", "--path"]);
    plimsoll(&["study", "swapin", "--objects", "0"]).refused(&["--objects", "1..=20000"]);
}

/// One short run on a machine that does other things too: what is asserted is that every figure is
/// there and of the right size, not that its interval is narrow or holds the truth; the study says
/// how often it does, by its exit status, 0 or 1.
#[test]
fn costs_that_are_known_are_found() {
    let home = Home::new();
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "truth", "--json", "--runs", "1", "--for", "8s"]);
    command.args(["--interval", "250ms", "--out", &home.at("trials")]);
    let said = run(command, Duration::from_secs(180));
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    let result = said.json();
    let run = &result["runs"][0];
    let judged = run["judged"].as_array().unwrap();
    assert_eq!(judged.len(), 9, "{run:#}");
    for figure in judged {
        let (truth, found) = (figure["truth"].as_f64().unwrap(), &figure["found"]);
        let end = |which: &str| found[which].as_f64().unwrap_or_else(|| panic!("{figure:#}"));
        let held = end("low") <= truth && truth <= end("high");
        assert_eq!(figure["held"], held, "{figure:#}");
    }
    let whole = &judged[0];
    let ratio = whole["found"]["value"].as_f64().unwrap() / whole["truth"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&ratio), "{whole:#}");
    let kept = std::fs::read_dir(home.at("trials")).unwrap();
    let kept = kept.map(|entry| entry.unwrap().file_name()).filter(|name| {
        std::path::Path::new(name).extension().is_some_and(|extension| extension == "trial")
    });
    assert_eq!(kept.count(), 2, "both trials stay where they were asked for");
}

//! The main job, end to end, in its shortest form.

use std::process::Command;
use std::time::Duration;

use crate::PLIMSOLL;
use crate::support::{Home, plimsoll, run};

#[test]
fn the_demo_predicts_measures_and_writes_its_page() {
    let home = Home::alone();
    let mut command = Command::new(PLIMSOLL);
    command.args(["demo", "--for", "15s", "--out", "out"]).current_dir(home.path());
    let said = run(command, Duration::from_secs(120)).well();
    assert!(said.stderr.starts_with("demo: "), "progress: {}", said.stderr);

    let page = said.stdout.lines().last().unwrap();
    assert_eq!(page, "out/index.html");
    let html = home.read(page);
    assert!(html.contains("<svg") && html.trim_end().ends_with("</html>"));
    assert!(!home.has("out/demo.trial-wal"));

    let report = plimsoll(&["report", "--json", &home.at("out/demo.trial")]).well().json();
    assert_eq!(report["trial"]["complete"], true);
    // What a busy machine lets be seen in a dozen seconds is not ours to say: a figure is there,
    // or why it is not.
    let capacity = &report["capacity"];
    let keys = if capacity["identifiable"] == true { &["value", "highest_rate"][..] } else { &[] };
    for key in keys.iter().chain(&["level", "n"]) {
        assert!(capacity[key].is_number(), "{key}: {capacity:#}");
    }
    assert!(capacity["value"].is_number() || capacity["reason"].is_string(), "{capacity:#}");
    assert!(capacity.get("low").is_some() && capacity.get("high").is_some(), "{capacity:#}");
    match report["saturation_measured"].as_f64() {
        Some(rate) => assert!(rate > 0.0, "{:#}", report["saturation"]),
        None => assert!(said.stdout.contains("no saturation"), "{}", said.stdout),
    }
    if capacity["value"].is_number() {
        let kept = &report["predictions"][0];
        assert_eq!(kept["value"], capacity["value"], "the prediction was kept: {kept}");
    }
    assert!(report["latency"]["bins"].is_array(), "{:#}", report["latency"]);
    // Beside the threads the machine's CPUs have lines, and the limit is one of what may limit.
    let resources = report["resources"].as_array().unwrap();
    let named = |name: &str| resources.iter().any(|one| one["name"].as_str().unwrap() == name);
    let cpus = report["manifest"]["host"]["cpus"].as_u64().unwrap();
    assert!(named("hottest thread") && (cpus == 1 || named("CPU 0")), "{resources:#?}");
    let limit = resources.iter().find(|one| one["name"] == capacity["resource_name"]).unwrap();
    assert!(limit["may_limit"] == true || capacity["identifiable"] == false, "{limit:#}");
}

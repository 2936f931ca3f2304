//! The demo: the whole workflow, in its shortest form.

use std::process::Command;
use std::time::Duration;

use crate::PLIMSOLL;
use crate::support::{Home, plimsoll, run};

#[test]
fn alone_the_demo_predicts_measures_and_writes_its_page() {
    let home = Home::alone();
    let mut command = Command::new(PLIMSOLL);
    command.args(["demo", "--for", "15s", "--out", "out"]).current_dir(home.path());
    let output = run(command, Duration::from_secs(120)).succeeded();
    assert!(output.stderr.starts_with("demo: "), "progress: {}", output.stderr);

    let page = output.stdout.lines().last().unwrap();
    assert_eq!(page, "out/index.html");
    let html = home.read(page);
    assert!(html.contains("<svg") && html.trim_end().ends_with("</html>"));
    assert!(!home.has("out/demo.trial-wal"));

    let report = plimsoll(&["report", "--json", &home.at("out/demo.trial")]).succeeded().json();
    assert_eq!(report["trial"]["complete"], true);
    // A busy machine may not allow a figure from a dozen seconds. Then there must be a reason.
    let capacity = &report["capacity"];
    let keys = if capacity["identifiable"] == true { &["value", "highest_rate"][..] } else { &[] };
    for key in keys.iter().chain(&["level", "n"]) {
        assert!(capacity[key].is_number(), "{key}: {capacity:#}");
    }
    assert!(capacity["value"].is_number() || capacity["reason"].is_string(), "{capacity:#}");
    assert!(capacity.get("low").is_some() && capacity.get("high").is_some(), "{capacity:#}");
    match report["saturation_measured"].as_f64() {
        Some(rate) => assert!(rate > 0.0, "{:#}", report["saturation"]),
        None => assert!(output.stdout.contains("no saturation"), "{}", output.stdout),
    }
    if capacity["value"].is_number() {
        let kept = &report["predictions"][0];
        assert_eq!(kept["value"], capacity["value"], "the prediction is saved: {kept}");
    }
    assert!(report["latency"]["bins"].is_array(), "{:#}", report["latency"]);
    // Threads and CPUs have lines, and the limiting resource is one that may limit.
    let resources = report["resources"].as_array().unwrap();
    let named = |name: &str| resources.iter().any(|one| one["name"].as_str().unwrap() == name);
    let cpus = report["manifest"]["host"]["cpus"].as_u64().unwrap();
    assert!(named("hottest thread") && (cpus == 1 || named("CPU 0")), "{resources:#?}");
    let limit = resources.iter().find(|one| one["name"] == capacity["resource_name"]).unwrap();
    assert!(limit["may_limit"] == true || capacity["identifiable"] == false, "{limit:#}");
}

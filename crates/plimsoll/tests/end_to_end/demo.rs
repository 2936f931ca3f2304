//! The main job, end to end, in its shortest form.

use std::process::Command;
use std::time::Duration;

use crate::support::{Home, PLIMSOLL, plimsoll, run};

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
    let capacity = &report["capacity"];
    for key in ["value", "low", "high", "level", "highest_rate"] {
        assert!(capacity[key].is_number(), "{key}: {capacity:#}");
    }
    assert!(report["saturation_measured"].as_f64().unwrap() > 0.0, "{:#}", report["saturation"]);
    let prediction = &report["predictions"][0];
    assert_eq!(prediction["value"], capacity["value"], "the prediction was kept: {prediction}");
    assert!(report["latency"]["bins"].is_array(), "{:#}", report["latency"]);
}

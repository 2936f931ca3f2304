//! `plimsoll fleet` on a made-up fleet in a directory: what is planted is found, as text, JSON and
//! a page.

use crate::support::{Home, plimsoll};

#[test]
fn each_question_about_a_made_up_fleet_has_its_answer_and_exit_code() {
    let home = Home::new();
    let directory = home.at("fleet");
    let asked = |more: &[&str], code: i32| {
        let output = plimsoll(&[&["fleet"], more].concat());
        assert_eq!(output.code, Some(code), "{output:?}");
        output
    };
    asked(&["example", &directory], 0);
    asked(&["example", &directory], 2);
    let found = |question: &str, more: &[&str], code: i32| {
        let page = home.at(&format!("{question}.html"));
        let flags = [question, directory.as_str(), "--json", "--html", page.as_str()];
        let answer = asked(&[&flags, more].concat(), code).json();
        assert!(home.read(&format!("{question}.html")).trim_end().ends_with("</html>"));
        answer
    };
    let servers = |list: &serde_json::Value| list["servers"].as_array().unwrap().len();

    assert_eq!(servers(&found("list", &[], 0)), 36);
    assert_eq!(servers(&found("capacity", &[], 0)), 36);
    let change = found("compare", &[], 1);
    assert_eq!((&change["after"], &change["verdict"]), (&"42".into(), &"regression".into()));
    assert_eq!(change["procedures"][0]["procedure"], "parse_headers");
    let groups = found("outliers", &[], 1)["groups"].take();
    let members = groups.as_array().unwrap().iter().filter_map(|group| group["servers"].as_array());
    let outliers: Vec<&str> = members
        .flatten()
        .filter(|member| member["outlier"] == true)
        .filter_map(|member| member["server"]["host"].as_str())
        .collect();
    assert_eq!(outliers, ["host0001", "host0006", "host0018"]);
    let edge = found("forecast", &["--by", "group"], 1)["groups"][0].take();
    assert_eq!(edge["name"], "edge");
    assert!(edge["outlook"]["runs_out"]["day_s"].is_i64(), "{edge}");
    let svg = home.at("fleet.svg");
    found("flame", &["--between", "41", "42", "--output", &svg], 0);
    assert!(home.read("fleet.svg").contains("parse_headers"));

    let forecast = asked(&["forecast", &directory, "--by", "group"], 1);
    assert!(forecast.stdout.contains("edge: about 2026-"), "{forecast:?}");
    let short = asked(&["forecast", &directory, "--label", "group=web"], 2);
    assert!(short.stderr.contains("inconclusive"), "{short:?}");
    plimsoll(&["fleet", "list", &home.at("")]).succeeded();
    plimsoll(&["fleet", "list", &directory, "--server", "none"]).refused(&["no trial"]);
}

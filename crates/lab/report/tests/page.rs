//! The page and the figures as markup: well-formed, self-contained and complete.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

mod made;

use made::{far_from_the_cap, flat, published_1998, ramp_and_saturation, two_workers};
use report::{Options, analyse, html, svg_loadline};

fn page_of(made: &made::Made, name: &str) -> (String, String) {
    let (_directory, trial) = made.open("made.trial");
    let options = Options { objective_ms: Some(1.0), ..Options::default() };
    let analysis = analyse(&trial, &options).unwrap();
    let (page, svg) = (html(&analysis), svg_loadline(&analysis));
    // A copy to view in a browser.
    let directory = env!("CARGO_TARGET_TMPDIR");
    std::fs::write(format!("{directory}/{name}.html"), &page).unwrap();
    std::fs::write(format!("{directory}/{name}.svg"), &svg).unwrap();
    (page, svg)
}

#[test]
fn pages_and_figures_are_well_formed_and_load_nothing() {
    for (made, name) in [
        (published_1998(), "published_1998"),
        (ramp_and_saturation("plimsoll"), "ramp"),
        (far_from_the_cap(), "far"),
        (two_workers(), "two"),
        (flat(), "flat"),
    ] {
        let (page, svg) = page_of(&made, name);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "a coordinate of {name}");
        for text in [&page, &svg] {
            assert_balanced(text);
            let without_namespace = text.replace("http://www.w3.org/2000/svg", "");
            let without_values = without_namespace.replace("http://127.0.0.1:9000", "");
            assert!(!without_values.contains("://"), "an address in {name}");
            for loads in ["<script", "<link", "src=", "@import", "url(http", "<iframe", "href="] {
                assert!(!text.contains(loads), "{loads} in {name}");
            }
        }
    }
}

#[test]
fn the_page_has_every_part_of_a_report() {
    let (page, _) = page_of(&ramp_and_saturation("plimsoll"), "promised");
    for promised in [
        "Capacity",
        "saturation, measured",
        "This plimsoll carries about",
        "straight line (1998)",
        "line with wakes",
        "percent of one CPU",
        "Latency by rate",
        "objective: 99 % within 1 ms",
        "Losses",
        "log: line not understood",
        "Manifest",
        "not supported here",
        "Intervals (72)",
        "prefers-color-scheme: dark",
        "@media print",
    ] {
        assert!(page.contains(promised), "{promised}");
    }
    assert_eq!(page.matches("<svg").count(), 5, "load line and latency in two sizes, resources");
    assert!(page.matches("<circle").count() > 60, "a circle an interval");
}

#[test]
fn a_figure_on_its_own_carries_its_style() {
    let (_, svg) = page_of(&ramp_and_saturation("plimsoll"), "alone");
    assert!(svg.starts_with("<svg") && svg.contains("<style>"));
}

/// Every element that is opened is closed, in order. Enough of a parser for markup we write.
fn assert_balanced(text: &str) {
    const VOID: [&str; 2] = ["meta", "br"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        assert!(!tag.contains('<'), "a tag inside a tag: {tag}");
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closes what is open");
        } else if !tag.ends_with('/') && !tag.starts_with('!') && !VOID.contains(&name) {
            open.push(name);
            if name == "style" {
                rest = &rest[rest.find("</style>").expect("a style ends")..];
                continue;
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

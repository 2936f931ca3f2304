//! The flame graph and the collapsed stacks: the marginal cost of every stack, and that they add up
//! to the line.

use std::collections::BTreeMap;

use export::{CollapsedBy, collapsed, svg_flame};
use report::{Analysis, Error, FlameFrame, FlameUnit, Options, analyse, html};
use trial::profile::Owner;

use super::COSTS;
use super::made::{Made, frame, known, old_day};

/// The server with known costs, with a separate caller for each procedure, and one procedure that
/// runs less the busier the server is.
fn callers() -> Made {
    let mut made = known(&COSTS, 5);
    for sample in made.samples.iter_mut().filter(|sample| sample.1 == Owner::Server) {
        let name = format!("calls_{}", sample.2[0].symbol.as_deref().unwrap());
        sample.2.insert(1, frame(&name, false));
    }
    for k in 0..240u64 {
        // It runs most at the lowest rate: housekeeping in quiet times.
        let quiet = (k as f64 / 240.0 * std::f64::consts::TAU).cos();
        if quiet > 0.5 {
            let stack =
                vec![frame("sweep", false), frame("idle_work", false), frame("main", false)];
            made.samples.push((k, Owner::Server, stack, 10_000_000));
        }
    }
    made
}

fn analysed(made: &Made) -> (tempfile::TempDir, trial::Trial, Analysis) {
    let (directory, trial) = made.open("known.trial");
    let analysis = analyse(&trial, &Options::default()).unwrap();
    (directory, trial, analysis)
}

fn find<'a>(frames: &'a [FlameFrame], name: &str) -> Option<&'a FlameFrame> {
    frames.iter().find_map(|frame| match frame.name == name {
        true => Some(frame),
        false => find(&frame.called, name),
    })
}

#[test]
fn the_stacks_add_up_to_the_slope_and_have_their_known_costs() {
    let (_directory, _, analysis) = analysed(&callers());
    let (flame, costs) = (analysis.flame.as_ref().unwrap(), analysis.costs.as_ref().unwrap());
    assert_eq!(flame.unit, FlameUnit::UsPerRequest);
    let whole = costs.whole.us_per_request;
    let stacks: f64 = flame.by_stack.iter().map(|stack| stack.value).sum();
    assert!((stacks + flame.unsampled - whole).abs() < 1e-9, "{stacks} of {whole}");
    assert!((flame.unsampled - costs.unsampled.us_per_request).abs() < 1e-9);
    assert!((flame.drawn + flame.left_out - whole).abs() < 1e-9);
    let drawn: f64 = flame.frames.iter().map(|frame| frame.width).sum();
    assert!((drawn - flame.drawn).abs() < 1e-9);
    for (symbol, _, us, _) in COSTS {
        let caller = find(&flame.frames, &format!("calls_{symbol}")).unwrap();
        let group = costs
            .groups
            .iter()
            .find(|group| group.procedures.iter().any(|procedure| procedure.name == symbol));
        let row = &group.unwrap().procedures.iter().find(|row| row.name == symbol).unwrap();
        assert!((caller.value - row.us_per_request).abs() < 1e-9, "{symbol}");
        assert!((caller.value - us).abs() < 1.5, "{symbol} costs {us}: {}", caller.value);
    }
}

#[test]
fn negative_costs_are_left_out_and_their_sum_is_reported() {
    let (_directory, _, analysis) = analysed(&callers());
    let flame = analysis.flame.as_ref().unwrap();
    assert!(find(&flame.frames, "idle_work").is_none());
    let swept: f64 = flame
        .by_stack
        .iter()
        .filter(|stack| stack.value < 0.0 && stack.samples > 60)
        .map(|stack| stack.value)
        .sum();
    assert!(swept < 0.0 && flame.left_out <= swept, "{swept} of {}", flame.left_out);
    let main = find(&flame.frames, "main").unwrap();
    assert!(main.width > main.value, "the frames above it are wider than its value");
    let page = html(&analysis);
    assert!(page.contains("in total, cannot be drawn: the drawing shows"));
    assert!(page.contains("CPU time of one more request, by call stack"));
}

#[test]
fn without_a_line_the_flame_graph_shows_sampled_time() {
    let mut made = callers();
    made.intervals.iter_mut().for_each(|interval| interval.requests = 4_000.0);
    let (_directory, trial, analysis) = analysed(&made);
    let flame = analysis.flame.as_ref().unwrap();
    assert_eq!((flame.unit, flame.left_out), (FlameUnit::SampledMs, 0.0));
    let sampled = made.samples.iter().filter(|s| s.1 == Owner::Server).map(|s| s.3).sum::<i64>();
    assert!((flame.total - sampled as f64 / 1e6).abs() < 1e-6);
    assert!(find(&flame.frames, "idle_work").is_some());
    let error = collapsed(&trial, &analysis, CollapsedBy::Cost).unwrap_err();
    assert!(error.to_string().contains("export by samples"), "{error}");
    assert!(collapsed(&trial, &analysis, CollapsedBy::Samples).is_ok());
}

/// The lines as a reader of the format parses them: the number follows the last space.
fn read(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (stack, number) = line.rsplit_once(' ').unwrap();
        (stack.to_string(), number.parse().unwrap())
    };
    text.lines().map(line).collect()
}

#[test]
fn collapsed_stacks_have_every_sample_and_by_cost_the_flame_graph() {
    let mut made = callers();
    made.samples[0].2[0].symbol = Some("odd; name\nwith 7".to_string());
    let (_directory, trial, analysis) = analysed(&made);
    let lines = read(&collapsed(&trial, &analysis, CollapsedBy::Samples).unwrap());
    let samples: u64 = trial.samples().iter().map(|row| u64::from(row.samples)).sum();
    assert_eq!(lines.values().sum::<u64>(), samples);
    assert!(lines.contains_key("known;main;calls_tcp_sendmsg;tcp_sendmsg_[k]"), "{lines:?}");
    assert_eq!(lines["recorder;read_ring"], 240);
    assert!(lines.keys().any(|line| line.ends_with("odd: name:with 7_[k]")), "{lines:?}");
    let flame = analysis.flame.as_ref().unwrap();
    let lines = read(&collapsed(&trial, &analysis, CollapsedBy::Cost).unwrap());
    let us = lines.values().sum::<u64>() as f64 / 1e6;
    assert!((us - flame.drawn).abs() < 1e-6 * lines.len() as f64, "{us} and {}", flame.drawn);
}

#[test]
fn the_interactive_flame_graph_names_every_procedure_and_loads_nothing() {
    let mut made = callers();
    made.manifest.server.name = "</title><script>alert(1)</script>".to_string();
    let (_directory, trial, analysis) = analysed(&made);
    let svg = svg_flame(&trial, &analysis).unwrap();
    for (symbol, ..) in COSTS {
        assert!(svg.contains(symbol), "{symbol}");
    }
    assert!(svg.contains("ns of one more request") && !svg.contains("<script>alert"), "escaped");
    for loads in ["<link", "src=", "@import", "url(http", "<iframe", "href=\"http", "<image"] {
        assert!(!svg.contains(loads), "{loads}");
    }
    std::fs::write(format!("{}/flame.svg", env!("CARGO_TARGET_TMPDIR")), svg).unwrap();
}

#[test]
fn without_a_profile_there_is_no_flame_graph_and_its_files_say_why() {
    let mut made = old_day();
    made.samples.clear();
    let (_directory, trial) = made.open("bare.trial");
    let analysis = analyse(&trial, &Options::default()).unwrap();
    assert!(analysis.flame.is_none());
    for by in [CollapsedBy::Samples, CollapsedBy::Cost] {
        assert!(matches!(collapsed(&trial, &analysis, by), Err(Error::NoProfile { .. })));
    }
    assert!(matches!(svg_flame(&trial, &analysis), Err(Error::NoProfile { .. })));
}

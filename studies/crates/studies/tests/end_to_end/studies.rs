//! The studies, run small: counts are asserted exactly, times are not.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::PLIMSOLL;
use crate::support::{CommandOutput, Home, plimsoll, program, run};

fn swapin(home: &Home) -> CommandOutput {
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "swapin", "--json", "--objects", "30", "--rounds", "2"]);
    command.args(["--path", &home.at(""), "--out", &home.at("out")]);
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
    let result = swapin(&home).succeeded().json();
    let objects = 30 * 2;
    for (who, block_bytes) in [("store", 32 << 10), ("exact", 32 << 10), ("exact", 8 << 10)] {
        let reads = reads(&result, who, block_bytes);
        assert_eq!(reads["objects"], objects, "{who}: {reads}");
        // One read for an object of one block, ceil(length / block) otherwise, none after the end.
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
    // From a cold page cache nothing after the end is requested either.
    for plot in result["plots"].as_array().unwrap() {
        let reads = &plot["reads"];
        if plot["direction"] == "in" && ["store", "exact"].iter().any(|who| plot["who"] == *who) {
            assert_eq!((&reads["zero"], &reads["exact"]), (&0.into(), &objects.into()), "{plot}");
        }
    }
    for file in ["swapin.svg", "swapin.json"] {
        assert!(home.has(&format!("out/{file}")), "{file}");
    }
    assert!(home.read("out/swapin.svg").contains("Our store as it is: swap-in"));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing else remains");
}

/// Every backend that works here is measured with every number of cold connections, and the
/// prediction for another backend is in the ledger of the trial that is kept.
#[test]
fn nightly_alone_cold_connections_are_measured_on_every_backend_and_a_prediction_is_graded() {
    let home = Home::alone();
    let out = home.at("out");
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "select", "--quick", "--json", "--cold", "0,300", "--out", &out]);
    let result = run(command, Duration::from_secs(300)).succeeded().json();
    let missing = result["missing"].as_array().unwrap();
    let points = result["sweep"]["points"].as_array().unwrap();
    assert_eq!(points.len(), (5 - missing.len()) * 2, "{result:#}");
    for point in points {
        for figure in ["light_us", "light_ratio", "full_rate", "full_us", "full_ratio", "kept"] {
            let figure = &point[figure];
            assert!(figure["value"].as_f64().unwrap() > 0.0, "{point}");
            assert_eq!(figure["rounds"], 2, "{point}");
        }
    }
    let epoll = points.iter().find(|point| point["backend"] == "epoll" && point["cold"] == 0);
    assert_eq!(epoll.unwrap()["light_ratio"]["value"], 1.0, "{result:#}");
    assert!(result["bound"]["descriptors"].as_u64().unwrap() > 300, "{result:#}");
    let svg = home.read("out/select.svg");
    assert!(svg.contains("scalable_select") && svg.contains("cold connections"), "{svg}");
    // If the profile is not supported, the result gives the reason.
    if let Some(why) = result["prediction"]["inconclusive"].as_str() {
        assert!(!why.is_empty());
        return;
    }
    let graded = &result["prediction"]["graded"];
    let grade = graded["grade"].as_str().unwrap();
    assert!(["held", "missed", "inconclusive"].contains(&grade), "{graded:#}");
    let predicted = graded["predicted"]["value"].as_f64().unwrap();
    assert!(predicted > 0.0, "{graded:#}");
    // On a busy machine the second trial may have no line: then the prediction is not graded.
    match graded["came"].as_f64() {
        Some(came) => assert!(came > 0.0, "{graded:#}"),
        None => assert_eq!(grade, "inconclusive", "{graded:#}"),
    }
    let report = plimsoll(&["report", &home.at("out/poll.trial"), "--json"]).succeeded().json();
    let kept = report["predictions"].as_array().unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0]["value"].as_f64(), Some(predicted));
    assert!(home.has("out/epoll.trial") && home.has("out/select.json"));
    assert_eq!(std::fs::read_dir(home.at("out")).unwrap().count(), 4, "nothing else remains");
}

/// Half a day, each hour in little more than a second: both proxies have every sample, and no
/// response came from the cache.
#[test]
fn nightly_alone_the_live_days_are_replayed_in_turns_with_caching_off() {
    let home = Home::alone();
    let out = home.at("out");
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "live", "--json", "--hours", "12", "--compressed", "1200ms"]);
    command.args(["--cold", "200", "--out", &out]);
    let result = run(command, Duration::from_secs(300)).succeeded().json();
    for (side, backend) in [(0, "select"), (1, "scalable_select")] {
        let side = &result["sides"][side];
        assert_eq!(side["backend"], backend);
        assert_eq!(side["hits"], 0, "{side:#}");
        let samples = side["samples"].as_array().unwrap();
        // On a busy machine a short sample may have no whole interval of the recorder in it.
        assert!((12..=48).contains(&samples.len()), "{} samples", samples.len());
        let cold = |at: usize| samples[at]["cold"].as_u64().unwrap();
        assert!(cold(0) < cold(samples.len() - 1), "more with the rate: {side:#}");
        for mode in ["idle", "kernel", "user"] {
            let lines = side["all"]["modes"].as_array().unwrap();
            assert!(lines.iter().any(|line| line["mode"] == mode), "{side:#}");
        }
    }
    for trial in ["out/old.trial", "out/new.trial"] {
        plimsoll(&["report", &home.at(trial), "--json"]).succeeded();
    }
    let svg = home.read("out/live.svg");
    assert!(svg.contains("old: select") && svg.contains("new: scalable_select"), "{svg}");
    assert_eq!(std::fs::read_dir(home.at("out")).unwrap().count(), 4, "nothing else remains");
}

#[test]
fn the_walk_misses_more_than_tokens_and_causes_misses_elsewhere() {
    let home = Home::new();
    let args = ["study", "dispatch", "--descriptors", "1581", "--ready", "1", "--rounds", "2"];
    let said = plimsoll(&[&args[..], &["--turns", "50", "--json"]].concat()).succeeded();
    let result = said.json();
    let misses = |machine: usize, strategy: &str, of: &str| {
        let name = &result["machines"][machine]["name"];
        let all = result["simulated"].as_array().unwrap();
        let row = all.iter().find(|row| row["machine"] == *name && row["strategy"] == strategy);
        row.unwrap()[of]["l1"].as_u64().unwrap()
    };
    for machine in [0, 1] {
        let walk = misses(machine, "walk", "dispatch");
        assert!(walk > 100 * misses(machine, "tokens", "dispatch"), "{result:#}");
    }
    assert!(misses(0, "walk", "rest") > misses(0, "tokens", "rest"), "{result:#}");
    let out = home.at("out");
    let said = plimsoll(&[&args[..], &["--turns", "5", "--out", &out]].concat()).succeeded();
    // The published figures are shown next to the measured ones.
    assert!(said.stdout.contains("30.12 %") && said.stdout.contains("0.54 %"), "{}", said.stdout);
    assert!(home.has("out/dispatch.svg") && home.has("out/dispatch.json"));
}

#[test]
fn colours_remove_the_misses_of_the_walk_and_every_table_exists() {
    let home = Home::new();
    let out = home.at("out");
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "runqueue", "--quick", "--json", "--cpus", "1,1024", "--out", &out]);
    let result = run(command, Duration::from_secs(180)).succeeded().json();
    for table in ["table2", "bound", "table4", "table5", "table6", "table7", "table8"] {
        assert!(!result[table].as_array().unwrap().is_empty(), "{table}: {result:#}");
    }
    assert_eq!(result["left_out"], serde_json::json!([1024]));
    // The cache of 2002, one processor, 256 and 1,024 tasks: as published, and with colours.
    for (table, published) in [("table5", 92.4), ("table7", 99.7)] {
        let of = |layout: &str| -> Vec<&Value> {
            let all = result[table].as_array().unwrap().iter();
            // The cache of this machine may be as large.
            let of_2002 = |row: &&Value| row["machine"].as_str().unwrap().contains("(2002)");
            let sized = all.filter(|row| row["l2_kib"] == 1024 && row["layout"] == layout);
            sized.filter(of_2002).collect()
        };
        assert_eq!((of("vanilla").len(), of("colours 32").len()), (2, 2), "{table}");
        for row in of("vanilla") {
            // The published figures of WebBench are for 256 servers.
            let comparable = table == "table7" || row["runnable"] == 256;
            let known = comparable.then_some(published);
            assert_eq!(row["published_percent"], serde_json::json!(known), "{row}");
        }
        for row in of("colours 32") {
            assert!(row["missed_percent"].as_f64().unwrap() < 10.0, "{row}");
        }
    }
    assert!(result["bound"].as_array().unwrap().iter().all(|cell| cell["holds"] == true));
    assert!(home.has("out/runqueue.svg") && home.has("out/runqueue.json"));
}

/// The shortest form: every way of sharing is measured with every load and number of workers, all
/// of them did the same work, and if nothing is shared no wait was in vain.
#[test]
fn workers_share_descriptors_in_every_way_and_every_figure_exists() {
    let home = Home::new();
    let out = home.at("out");
    let args = ["study", "herd", "--quick", "--workers", "3,1", "--clients", "4", "--cold", "10"];
    let result = plimsoll(&[&args[..], &["--json", "--out", &out]].concat()).succeeded().json();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7 * 2 * 2, "{result:#}");
    for row in rows {
        for figure in ["waits", "reported", "cpu_us", "to_ours", "busiest", "rate"] {
            assert!(row[figure]["value"].as_f64().unwrap() > 0.0, "{figure}: {row:#}");
            assert_eq!(row[figure]["rounds"], 2, "{figure}: {row:#}");
        }
        let calls = row["calls"].as_array().unwrap();
        let names: Vec<&str> = calls.iter().map(|call| call["call"].as_str().unwrap()).collect();
        assert_eq!(names, ["wait", "control", "accept", "read", "write"]);
        if row["sharing"] == "reuse_port" {
            assert_eq!(row["to_ours"]["value"], 1.0, "{row:#}");
            assert_eq!(row["vain"]["most"], 0.0, "{row:#}");
        }
        if row["workers"] == 1 {
            assert_eq!(row["busiest"]["value"], 1.0, "{row:#}");
        }
    }
    let more = result["called_more"].as_array().unwrap();
    assert_eq!(more.len(), 2 * 2, "{result:#}");
    assert!(more.iter().all(|more| more["ratio"]["rounds"] == 2), "{more:#?}");
    let svg = home.read("out/herd.svg");
    assert!(svg.contains("reuse port") && svg.contains("poll() (- -)"), "{svg}");
    // The published figures are shown next to the measured ones.
    let said = plimsoll(&args).succeeded().stdout;
    for published in ["about 7", "43.64 %", "24.49 %", "almost 40 %", "30 %"] {
        assert!(said.contains(published), "{published}: {said}");
    }
    plimsoll(&["study", "herd", "--workers", "0"]).refused(&["--workers", "1..=256"]);
}

/// The shortest form, with the installed peers: each server that exists is in every table, and each
/// missing one is listed with the reason. Our server answers everything from its cache.
#[test]
fn alone_a_static_tree_is_requested_from_our_server_and_the_peers() {
    let home = Home::alone();
    let out = home.at("out");
    let args = ["study", "webbench", "--quick", "--workers", "2,1", "--clients", "1,8"];
    let mut command = Command::new(PLIMSOLL);
    command.args(args).args(["--files", "40", "--json", "--out", &out]);
    let result = run(command, Duration::from_secs(180)).succeeded().json();
    let rows = result["rows"].as_array().unwrap();
    let names = |list: &Value, key: &str| -> std::collections::BTreeSet<String> {
        let all = list.as_array().unwrap().iter();
        all.map(|one| one[key].as_str().unwrap().to_owned()).collect()
    };
    let here = names(&result["rows"], "server");
    let missing = names(&result["missing"], "server");
    let all: Vec<&String> = here.union(&missing).collect();
    assert_eq!(all, ["haproxy", "lighttpd", "nginx", "plimsoll", "varnish"], "{result:#}");
    assert!(here.contains("plimsoll"), "{result:#}");
    for missing in result["missing"].as_array().unwrap() {
        assert!(!missing["why"].as_str().unwrap().is_empty(), "{missing}");
    }
    for row in rows {
        assert_eq!(row["errors"], 0, "{row:#}");
        for figure in ["rate", "megabytes", "us", "us_to_ours", "scaling", "us_scaling", "busy"] {
            assert!(row[figure]["value"].as_f64().unwrap() > 0.0, "{figure}: {row:#}");
            assert_eq!(row[figure]["rounds"], 2, "{figure}: {row:#}");
        }
        if row["server"] == "plimsoll" {
            assert_eq!(row["us_to_ours"]["value"], 1.0, "{row:#}");
            assert_eq!(row["hits"], row["requests"], "{row:#}");
        }
        if row["workers"] == 1 {
            assert_eq!(row["scaling"]["value"], 1.0, "{row:#}");
        }
    }
    let ours = rows.iter().filter(|row| row["server"] == "plimsoll");
    assert_eq!(ours.count(), 2 * 2, "{result:#}");
    let svg = home.read("out/webbench.svg");
    assert!(svg.contains("Requests a second: 2 workers") && svg.contains("plimsoll"), "{svg}");
    assert_eq!(std::fs::read_dir(home.at("out")).unwrap().count(), 2, "nothing else remains");
    plimsoll(&["study", "webbench", "--visit", "10ms"]).refused(&["--visit", "250ms"]);
}

/// Some of the studies in the shortest form (the others have their own tests). For the boosted
/// servers: each call of each installed server has its row, and the responses equal the plain ones.
#[test]
fn nightly_alone_studies_have_a_chapter_each_and_boosted_servers_answer_as_plain_ones_do() {
    let home = Home::alone();
    let out = home.at("all");
    let mut command = Command::new(PLIMSOLL);
    let names = ["boost", "dispatch", "runqueue"];
    command.args(["study", "all", "--quick", "--only", &names.join(","), "--out", &out]);
    let said = run(command, Duration::from_secs(540)).succeeded();
    assert!(said.stdout.ends_with("all/index.html\n"), "{}", said.stdout);
    let page = home.read("all/index.html");
    assert_eq!(page.matches("<section id=").count(), names.len());
    for name in names {
        assert!(page.contains(&format!("<section id=\"{name}\">")), "{name}");
        assert!(std::path::Path::new(&home.at(&format!("all/{name}/{name}.json"))).exists());
    }
    assert!(!page.contains("<dt>Failed</dt>"));
    // A study pins itself to one CPU; the next one has all of them again.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let runqueue: Value = serde_json::from_str(&home.read("all/runqueue/runqueue.json")).unwrap();
    let gains = runqueue["table4"].as_array().unwrap();
    assert_eq!(gains.iter().map(|gain| gain["cpus"].as_u64()).max().unwrap(), Some(cpus as u64));

    let boost: Value = serde_json::from_str(&home.read("all/boost/boost.json")).unwrap();
    assert_eq!(boost["differences"].as_array().unwrap().len(), 0, "{boost:#}");
    let rows = boost["rows"].as_array().unwrap();
    let missing = boost["missing"].as_array().unwrap().len();
    assert_eq!(rows.len(), 2 * (11 - missing), "{boost:#}");
    for row in rows {
        assert_eq!(row["errors"], 0, "{row:#}");
        assert!(row["us"]["value"].as_f64().unwrap() > 0.0, "{row:#}");
        assert_eq!(row["boosted"].as_bool().unwrap(), row["to_plain"].is_object(), "{row:#}");
    }
    let plimsoll = |wait: &str| {
        let mut all = boost["library"].as_array().unwrap().iter();
        all.find(|one| one["of"] == format!("plimsoll on {wait}, boosted")).unwrap().clone()
    };
    for wait in ["poll", "select"] {
        let counts = plimsoll(wait);
        assert!(counts["calls"].as_u64() > counts["plain"].as_u64(), "{counts:#}");
        assert!(counts["hits"].as_u64().unwrap() > 0, "{counts:#}");
        assert_eq!(counts["audit_differences"], 0, "{counts:#}");
    }
}

/// The shortest form, on our own server: the case, its trial and the page exist, and judging the
/// same trial again gives the same prediction. The machine may be busy, so no figure is asserted.
#[test]
fn nightly_alone_a_capacity_is_predicted_and_the_kept_trial_is_judged_again() {
    let home = Home::alone();
    program("wrk", "wrk");
    let out = home.at("out");
    let mut command = Command::new(PLIMSOLL);
    command.args(["study", "predict", "--quick", "--json", "--out", &out]);
    let result = run(command, Duration::from_secs(180)).succeeded().json();
    assert_eq!(result["missing"].as_array().unwrap().len(), 0, "{result:#}");
    let cases = result["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1, "{result:#}");
    let case = &cases[0];
    assert_eq!((&case["server"], &case["connections"]), (&"plimsoll".into(), &16.into()));
    for measured in case["saturation"].as_array().unwrap() {
        assert!(measured["rate"].as_f64().unwrap() > 0.0, "{case:#}");
        assert_eq!(measured["established"], 16, "{case:#}");
    }
    let ramp = &case["ramps"][0];
    assert_eq!((&ramp["reach"], &ramp["established"]), (&45.into(), &16.into()), "{case:#}");
    assert!(ramp["completed"].as_u64().unwrap() > 0 && ramp["errors"] == 0, "{case:#}");
    let judged = result["judged"].as_array().unwrap();
    assert_eq!(judged.len(), 1, "{result:#}");
    for baseline in ["single", "usl"] {
        assert!(judged[0][baseline].as_f64().unwrap() > 0.0, "{judged:#?}");
    }
    let bands = result["bands"].as_array().unwrap();
    let trials =
        |band: &Value| band["trials"].as_u64().unwrap() + band["doubtful"].as_u64().unwrap();
    assert_eq!(bands.iter().map(trials).collect::<Vec<_>>(), [0, 1, 0, 1], "{bands:#?}");
    for file in ["cases.jsonl", "plimsoll-1024-16-45.trial", "predict.json", "predict.svg"] {
        assert!(home.has(&format!("out/{file}")), "{file}");
    }
    assert!(home.read("out/index.html").contains("<section id=\"predict\">"));
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 5, "nothing else remains");

    // Neither of these measures: the counts and the prediction from the trial stay the same.
    for more in [&["--judge-only"][..], &["--quick", "--resume"]] {
        let again = [&["study", "predict", "--json", "--out", &out], more].concat();
        let again = plimsoll(&again).succeeded().json();
        assert_eq!(again["cases"][0]["ramps"][0]["completed"], ramp["completed"], "{more:?}");
        for figure in ["predicted", "low", "high", "model"] {
            assert_eq!(again["judged"][0][figure], judged[0][figure], "{more:?}: {figure}");
        }
    }
    plimsoll(&["study", "predict", "--servers", "iis"]).refused(&["iis", "nginx-cache"]);
}

#[test]
fn without_a_name_the_studies_are_listed() {
    let _home = Home::new();
    let said = plimsoll(&["study"]).succeeded();
    let names = ["boost", "dispatch", "herd", "live", "predict", "runqueue", "select", "swapin"];
    for name in names.into_iter().chain(["webbench"]) {
        assert!(said.stdout.contains(&format!("\n  {name:8}  ")), "{}", said.stdout);
    }
    plimsoll(&["study", "live", "--compressed", "10ms"]).refused(&["--compressed", "1s"]);
    plimsoll(&["study", "live", "--old", "kqueue"]).refused(&["kqueue", "select, "]);
    plimsoll(&["study", "select", "--light", "0"]).refused(&["--light"]);
    plimsoll(&["study", "dispatch", "--ready", "65"]).refused(&["--ready", "1..=64"]);
    plimsoll(&["study", "runqueue", "--seconds", "0"]).refused(&["--seconds", "0.01"]);
    plimsoll(&["study", "swapin", "--path", "/nowhere/at/all"])
        .refused(&["/nowhere/at/all", "--path"]);
    plimsoll(&["study", "swapin", "--objects", "0"]).refused(&["--objects", "1..=20000"]);
}

/// One short run, on a machine with other work. The test asserts that every figure exists and has
/// the right magnitude, not that its interval is narrow or contains the truth. The exit status of
/// the study, 0 or 1, says whether the intervals did.
#[test]
fn nightly_known_costs_are_found() {
    /// Beside a busy neighbour, a recording of a few seconds can be without a line, which is an
    /// error. The next recording is twice as long.
    const LENGTHS_S: [u64; 4] = [8, 16, 32, 64];
    let home = Home::new();
    let study = |length_s: u64| {
        let mut command = Command::new(PLIMSOLL);
        command.args(["study", "truth", "--json", "--runs", "1"]);
        command.args(["--for", &format!("{length_s}s")]);
        command.args(["--interval", "250ms", "--out", &home.at("trials")]);
        run(command, Duration::from_secs(180 + 4 * length_s))
    };
    let has_no_line = |said: &CommandOutput| said.stderr.contains("not identifiable");
    let mut said = study(LENGTHS_S[0]);
    for length_s in &LENGTHS_S[1..] {
        if has_no_line(&said) {
            eprintln!("another recording, of {length_s} s: {}", said.stderr);
            std::fs::remove_dir_all(home.at("trials")).unwrap();
            said = study(*length_s);
        }
    }
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
    assert_eq!(kept.count(), 2, "both trials are in the requested directory");
}

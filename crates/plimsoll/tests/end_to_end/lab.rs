//! `what-if`, `compare` and `doctor` from outside: figures, saved predictions, exit codes.

use trial::profile::{Frame, FrameMode, Owner, ProfileInfo, SampleRow, Stack};
use trial::{Interval, Manifest, ProcessTimes, ThreadTimes, Writer};

use crate::support::{Home, plimsoll};

/// A single-threaded server that spends `tcp_us` in TCP and `own_us` in its code per request.
pub(crate) fn made(home: &Home, name: &str, tcp_us: f64, own_us: f64) -> String {
    made_as(home, name, "made", tcp_us, own_us)
}

fn made_as(home: &Home, name: &str, server: &str, tcp_us: f64, own_us: f64) -> String {
    let path = home.at(name);
    let mut manifest = Manifest::default();
    manifest.host.cpus = 2;
    manifest.server.name = server.into();
    let mut writer = Writer::create(&path, &manifest).unwrap();
    let frame = |symbol: &str, module: &str, mode| Frame {
        symbol: Some(symbol.into()),
        module: module.into(),
        mode,
    };
    let frames = [
        frame("tcp_sendmsg", "[kernel]", FrameMode::Kernel),
        frame("answer", "made", FrameMode::User),
    ];
    let stacks = frames.map(|frame| {
        let frame = writer.frame(&frame).unwrap();
        writer.stack(&Stack { frames: vec![frame], whole: true }).unwrap()
    });
    for index in 0..60u64 {
        let rate = 2_000.0 + 150.0 * ((index * 17) % 60) as f64;
        // A small periodic disturbance, so that no line is exact.
        let wobble = 1.0 + 0.01 * (index as f64 * 2.4).sin();
        let [kernel_ns, user_ns] = [tcp_us, own_us].map(|us| (us * 1e3 * rate * wobble) as i64);
        for (stack, ns) in stacks.into_iter().zip([kernel_ns, user_ns]) {
            let samples = (ns / 10_000_000) as u32;
            let row = SampleRow { interval: index, owner: Owner::Server, stack, samples, ns };
            writer.samples(&[row]).unwrap();
        }
        let total_ns = kernel_ns + user_ns;
        let times = ProcessTimes { user_ns, kernel_ns, total_ns, ..ProcessTimes::default() };
        let thread = ThreadTimes {
            pid: 1,
            tid: 1,
            name: "made".into(),
            total_ns,
            user_ns,
            kernel_ns,
            wakes: 0,
        };
        let interval = Interval {
            index,
            start_ns: index as i64 * 1_000_000_000,
            length_ns: 1_000_000_000,
            server: Some(times),
            threads: vec![thread],
            requests: rate,
            requests_ended: rate as u64,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    writer.profile_info(&ProfileInfo::default()).unwrap();
    writer.finish().unwrap();
    path
}

#[test]
fn a_change_is_predicted_saved_made_and_graded() {
    let home = Home::new();
    let before = made(&home, "before.trial", 20.0, 40.0);
    let after = made(&home, "after.trial", 5.0, 40.0);
    let output =
        plimsoll(&["what-if", &before, "--group", "tcp", "--cost", "5us", "--json"]).succeeded();
    let answer = output.json();
    let value = answer["value"].as_f64().unwrap();
    assert!((value / (1e6 / 45.0) - 1.0).abs() < 0.01, "{answer}");
    // The same prediction is not saved twice, and one with --no-keep not at all.
    plimsoll(&["what-if", &before, "--group", "tcp", "--cost", "5us"]).succeeded();
    let scale = ["what-if", &before, "--group", "tcp", "--scale", "0", "--no-keep"];
    assert!(plimsoll(&scale).succeeded().stdout.contains("first-order"));
    let report = plimsoll(&["report", &before, "--json"]).succeeded().json();
    assert_eq!(report["predictions"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["trial"]["complete"], true);

    let better = plimsoll(&["compare", &before, &after, "--json"]).succeeded().json();
    assert_eq!(better["verdict"], "improvement", "{better}");
    assert_eq!(better["graded"][0]["grade"], "held", "{better}");
    assert_eq!(better["groups"][0]["name"], "all TCP functions", "{better}");
    let worse = plimsoll(&["compare", &after, &before]);
    assert_eq!(worse.code, Some(1), "{worse:?}");
    assert!(worse.stderr.starts_with("plimsoll: a regression: "), "{worse:?}");
    let same = plimsoll(&["compare", &before, &before]).succeeded();
    assert!(same.stdout.contains("no change"), "{same:?}");
    let strict = plimsoll(&["compare", &before, &before, "--margin", "1"]);
    assert_eq!(strict.code, Some(2), "{strict:?}");
    assert!(strict.stderr.contains("inconclusive: "), "{strict:?}");
    assert!(strict.stderr.contains("try longer recordings"), "{strict:?}");
}

#[test]
fn group_rules_are_printed_changed_and_refused() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let rules = plimsoll(&["report", "--print-groups"]).succeeded().stdout;
    let file = home.write("groups.toml", rules.replace("name = \"tcp\"", "name = \"mine\""));
    plimsoll(&["what-if", &trial, "--group", "mine", "--scale", "0", "--groups", &file])
        .succeeded();
    let report = plimsoll(&["report", &trial, "--groups", &file]).succeeded();
    assert!(report.stdout.contains("all TCP functions"), "{report:?}");
    let bad = home.write("bad.toml", "[[group]]\nname = \"a\"\n[[group.rule]]\nsymbol = '('\n");
    plimsoll(&["report", &trial, "--groups", &bad]).refused(&["bad.toml, line 4: symbol"]);
    let none = home.at("none.toml");
    plimsoll(&["report", &trial, "--groups", &none]).refused(&["none.toml", "--print-groups"]);
    plimsoll(&["what-if", &trial, "--group", "tls", "--scale", "0"]).refused(&["tls", "tcp, made"]);
    plimsoll(&["what-if", &trial, "--group", "tcp"]).refused(&["--scale"]);
    plimsoll(&["report"]).refused(&["TRIAL"]);
}

/// Samplers that do not work here say why. The others find the work that was done.
#[test]
fn doctor_finds_the_known_work() {
    let _home = Home::new();
    let output = plimsoll(&["doctor", "--json"]).succeeded().json();
    let truths = output["truths"].as_array().unwrap();
    assert_eq!(truths.len(), 6);
    for truth in truths {
        match truth["verdict"].as_str().unwrap() {
            "held" => assert!(truth["found"].as_f64().unwrap() > 0.0, "{truth}"),
            "not_supported" => {
                let reason = truth["reason"].as_str().unwrap();
                eprintln!("{} is not supported here: {reason}", truth["what"]);
                assert!(!reason.is_empty(), "{truth}");
            }
            other => panic!("{other}: {truth}"),
        }
    }
    let able = |what: &str| {
        let abilities = output["abilities"].as_array().unwrap();
        abilities.iter().any(|ability| ability["what"] == what && ability["supported"] == true)
    };
    assert!(able("event notification: epoll") && able("disk sync") && able("process cpu time"));
}

/// The Parquet files of a server that was recorded in 1970.
fn parquet_files(directory: &str, server: &str) -> Vec<std::path::PathBuf> {
    let tables = std::fs::read_dir(directory).unwrap().map(|table| table.unwrap().path());
    let partition = format!("day=1970-01-01/host=__HIVE_DEFAULT_PARTITION__/server={server}");
    let files = tables.flat_map(|table| std::fs::read_dir(table.join(&partition)).unwrap());
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    for file in &files {
        assert!(file.extension().unwrap() == "parquet", "{file:?}");
        assert!(std::fs::read(file).unwrap().starts_with(b"PAR1"), "{file:?}");
    }
    files
}

#[test]
fn a_report_writes_files_for_other_tools() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let [flame, stacks, pprof, firefox, csv, parquet] =
        ["flame.svg", "stacks.txt", "pprof.gz", "firefox.json", "csv", "deep/parquet"]
            .map(|name| home.at(name));
    let output = plimsoll(&[
        "report",
        &trial,
        "--json",
        "--flame",
        &flame,
        "--collapsed",
        &stacks,
        "--collapsed-by",
        "cost",
        "--pprof",
        &pprof,
        "--firefox",
        &firefox,
        "--csv",
        &csv,
        "--parquet",
        &parquet,
    ]);
    let report = output.succeeded().json();
    assert_eq!(report["flame"]["unit"], "us_per_request", "{report}");
    let read = |path: &str| std::fs::read(path).unwrap();
    assert!(String::from_utf8(read(&flame)).unwrap().contains("ns of one more request"));
    let stacks = String::from_utf8(read(&stacks)).unwrap();
    let number = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let us = stacks.lines().map(number).sum::<u64>() as f64 / 1e6;
    assert!((us - report["flame"]["drawn"].as_f64().unwrap()).abs() < 0.001, "{us}: {report}");
    assert!(read(&pprof).starts_with(&[0x1f, 0x8b]), "gzip");
    let firefox: serde_json::Value = serde_json::from_slice(&read(&firefox)).unwrap();
    assert!(firefox["threads"].is_array());
    let rows = String::from_utf8(read(&format!("{csv}/intervals.csv"))).unwrap();
    assert_eq!(rows.lines().count(), 1 + report["intervals"].as_array().unwrap().len());
    assert_eq!(parquet_files(&parquet, "made").len(), 11);

    // Further trials are added, and those that are there already are replaced.
    std::fs::create_dir(home.path().join("more")).unwrap();
    let more = home.at("more");
    std::fs::copy(&trial, home.path().join("more/copy.trial")).unwrap();
    made_as(&home, "more/other.trial", "other one", 20.0, 40.0);
    plimsoll(&["report", &trial, &more, "--parquet", &parquet]).succeeded();
    assert_eq!(parquet_files(&parquet, "made").len(), 11);
    assert_eq!(parquet_files(&parquet, "other%20one").len(), 11);
    let several = plimsoll(&["report", &trial, &more, "--parquet", &parquet, "--csv", &csv]);
    several.refused(&["several trials", "--parquet"]);
    plimsoll(&["report", &home.at("csv"), "--parquet", &parquet]).refused(&["has no file"]);

    let file = home.write("in-the-way", "");
    plimsoll(&["report", &trial, "--csv", &file]).refused(&["in-the-way", "cannot create"]);
    let alone = plimsoll(&["report", &trial, "--collapsed-by", "cost"]);
    assert!(alone.code == Some(2) && alone.stderr.contains("--collapsed <FILE>"), "{alone:?}");
}

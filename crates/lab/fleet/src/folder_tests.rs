//! Tests of a folder of trials, and of the questions to it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use regress::{Model, ols};
use report::Options;
use tempfile::TempDir;
use trial::{Interval, Trial, Writer};

use crate::capacity::{DETAIL_INTERVALS_MAX, capacity, details, sheet};
use crate::home::{Asked, Home, Label, ServerCosts};
use crate::windows_tests::{Made, START_S};
use crate::{Error, Folder, sums, windows};

fn release(value: &str) -> Vec<(String, String)> {
    vec![("release".to_string(), value.to_string())]
}

/// Two trials of each server, the second with another release, an hour later.
fn two_of_each(servers: i64) -> (TempDir, Folder) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("below")).unwrap();
    for number in 0..2 * servers {
        let (server, second) = (number % servers, number / servers);
        let made = Made {
            host: format!("web{server:02}"),
            // 70 s in the first window, 10 s in the second.
            start_s: START_S + 230 + 3_600 * second,
            labels: release(if second == 0 { "1" } else { "2" }),
            seconds: 80,
            peak: 10_000.0 + 800.0 * server as f64,
            finish: number != 1,
            ..Made::default()
        };
        let place = if number % 2 == 0 { "." } else { "below" };
        made.write(&directory.path().join(place), &format!("{number}.trial"));
    }
    let folder = Folder::open(directory.path()).unwrap();
    (directory, folder)
}

fn asked() -> Asked {
    Asked::default()
}

fn names(costs: &[ServerCosts]) -> Vec<String> {
    costs.iter().map(|one| one.server.to_string()).collect()
}

#[test]
fn a_folder_answers_by_server_group_and_span() {
    let (directory, folder) = two_of_each(10);
    let all = folder.costs(&asked()).unwrap();
    assert_eq!(all.len(), 10);
    assert!(names(&all).is_sorted() && all.iter().all(|one| one.trials == 2));
    let by = Asked { by: Some("release".to_string()), ..asked() };
    let groups = folder.costs(&by).unwrap();
    assert_eq!(groups.len(), 20);
    let one = &groups[1];
    assert_eq!((one.group.as_deref(), one.trials), (Some("2"), 1));
    let label = Label { name: "release".to_string(), value: "2".to_string() };
    let second = folder.costs(&Asked { labels: vec![label], ..asked() }).unwrap();
    assert_eq!(second[0].resources, one.resources);
    let named = Asked { server: Some("web03/ng".to_string()), ..asked() };
    assert_eq!(names(&folder.costs(&named).unwrap()), ["web03/nginx"]);
    let first_window = Asked { span: Some((START_S, START_S + 300)), ..asked() };
    let first = folder.costs(&first_window).unwrap();
    let windows: f64 = first[0].resources[0].bins.iter().map(|(_, bin)| bin.windows).sum();
    assert_eq!((first.len(), first[0].trials, windows), (10, 1, 1.0));
    assert_eq!(folder.runs(&first_window).unwrap().len(), 10);
    assert_eq!(folder.runs(&asked()).unwrap().len(), 20);
    assert!(folder.costs(&Asked { by: Some("none".to_string()), ..asked() }).unwrap().is_empty());
    let hours = folder.hours(&asked()).unwrap();
    assert_eq!((hours.len(), hours[0].hours.len()), (10, 2));
    let hour = hours[0].hours[0];
    assert_eq!(hour.start_s, START_S);
    let trial = Trial::open(directory.path().join("0.trial")).unwrap();
    // The 10 s after the first window are too short for a peak.
    let requests: f64 = trial.intervals()[1..70].iter().map(|interval| interval.requests).sum();
    assert!((hour.peak_rate / requests * 69.0 - 1.0).abs() < 1e-9, "{hour:?}");
    assert!(hour.peak_rate <= all[0].peak_rate && hour.mean_rate > 0.0, "{hour:?}");
}

#[test]
fn the_slope_from_sums_is_that_of_all_intervals() {
    let (directory, folder) = two_of_each(1);
    let costs = folder.costs(&Asked { server: Some("web00".to_string()), ..asked() }).unwrap();
    let (mut x, mut c) = (Vec::new(), Vec::new());
    for name in ["0.trial", "below/1.trial"] {
        let trial = Trial::open(directory.path().join(name)).unwrap();
        let part = Trial::open_intervals(trial.path()).unwrap();
        assert_eq!(windows::windows(&trial), windows::windows(&part));
        for interval in &trial.intervals()[1..] {
            x.push(interval.rate());
            c.push(interval.threads[0].total_ns as f64 / 1e9);
        }
    }
    let exact = ols(&x, &c).unwrap();
    let hottest =
        costs[0].resources.iter().find(|resource| resource.kind == "hottest thread").unwrap();
    let line = crate::capacity::line(hottest, 0.95).unwrap();
    assert!((line.us_per_request / exact.slope / 1e6 - 1.0).abs() < 1e-9, "{line:?} {exact:?}");
    assert_eq!((line.n, line.windows), (x.len() as f64, 4.0));
}

#[test]
fn the_server_with_the_least_headroom_comes_first() {
    let (_directory, folder) = two_of_each(3);
    let mut answer = capacity(&folder, &asked(), 0.95).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let details = |answer: &mut _, intervals_max| {
        details(&folder, &asked(), answer, 1, intervals_max, scratch.path()).unwrap();
    };
    details(&mut answer, 1);
    let late = answer.servers[0].detail.as_ref().and_then(|full| full.reason.as_deref());
    assert_eq!(late, Some("long; to fit it too: --details N"));
    details(&mut answer, DETAIL_INTERVALS_MAX);
    assert!(fs::read_dir(scratch.path()).unwrap().next().is_none(), "nothing remains");
    let headrooms: Vec<f64> = answer.servers.iter().map(|one| one.headroom.unwrap()).collect();
    assert!(headrooms.is_sorted(), "{headrooms:?}");
    assert_eq!(answer.servers[0].server.host, "web02");
    for one in &answer.servers {
        let line = one.line.as_ref().unwrap();
        let (low, high) = (one.headroom_low.unwrap(), one.headroom_high.unwrap());
        assert!(low < one.headroom.unwrap() && one.headroom.unwrap() < high, "{one:?}");
        assert_eq!((one.resource.as_deref(), line.model), (Some("hottest thread"), Model::Busy));
        // A request costs 30 us at the cap, where the server does not sleep.
        assert!((line.value.unwrap() / 33_300.0 - 1.0).abs() < 0.2, "{line:?}");
        assert!(line.low.unwrap() < 33_300.0 && line.high.unwrap() > 33_300.0, "{line:?}");
    }
    // The full method has the same line, of the latest trial.
    let full = answer.servers[0].detail.as_ref().unwrap();
    assert!(answer.servers.iter().skip(1).all(|one| one.detail.is_none()));
    assert_eq!((full.resource.as_deref(), full.intervals), (Some("hottest thread"), 80));
    assert!((full.value.unwrap() / 33_300.0 - 1.0).abs() < 0.2, "{full:?}");
    let runs = folder.runs(&Asked { server: Some("web02/".into()), ..asked() }).unwrap();
    assert_eq!(full.created_ns, runs.iter().map(|run| run.created_ns).max().unwrap());
    let text = report::sheet::sheet(&sheet(&answer), 140);
    assert!(text.contains("By the full method"), "{text}");
    let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(at("web02/nginx is nearest") < at("6 trials"), "{text}");
    assert!(at("web02") < at("web00"), "{text}");
    assert_eq!(answer.servers[0].figure()[0], full.value, "report and fleet say the same");
    assert!(!text.contains("saturated intervals") && text.contains("Only CPU"), "{text}");
}

/// A constant load that began within an interval had a capacity in a fleet and none in a report.
/// Seconds in which a neighbour took the CPU were in the fleet's line and not in the report's.
#[test]
fn a_fleet_and_a_report_use_and_refuse_the_same_intervals() {
    let made = Made { seconds: 60, ..Made::default() };
    let both = |change: fn(&mut Interval)| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.trial");
        let mut writer = Writer::create(&path, &made.manifest()).unwrap();
        for mut interval in made.intervals() {
            change(&mut interval);
            writer.append(&interval).unwrap();
        }
        writer.finish().unwrap();
        let report = report::analyse(&Trial::open(&path).unwrap(), &Options::default()).unwrap();
        let fleet = capacity(&Folder::open(directory.path()).unwrap(), &asked(), 0.95).unwrap();
        (report, fleet.servers[0].line.clone().unwrap())
    };
    let (report, line) = both(|_| {});
    assert!(report.capacity.value.is_some() && line.value.is_some(), "{line:?}");
    assert_eq!((report.trial.fitted, line.n), (59, 59.0));

    let (report, line) = both(|interval| {
        let share = if interval.index == 1 { 0.3 } else { 1.0 };
        interval.requests = 8_000.0 * share;
        let thread = &mut interval.threads[0];
        let each = [0, 2_000_000, 1_000_000][interval.index as usize % 3];
        thread.total_ns = (3e8 * share) as i64 + each;
        thread.user_ns = thread.total_ns;
        thread.kernel_ns = 0;
    });
    assert_eq!(report.causes[0].kind, "constant_rate");
    let why = "the rate was nearly constant, but for 1 of 59 intervals";
    assert!(line.value.is_none() && line.reason.as_ref().unwrap().contains(why), "{line:?}");

    let (report, line) = both(|interval| {
        if (20..26).contains(&interval.index) {
            interval.machine.user_ns += interval.machine.idle_ns;
            interval.machine.idle_ns = 0;
            interval.requests *= 0.5;
        }
    });
    assert_eq!((report.causes[0].kind, report.trial.fitted, line.n), ("neighbour", 53, 53.0));
}

#[test]
fn a_server_without_a_line_is_last_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let write = |made: Made, name: &str| made.write(directory.path(), name);
    write(Made { host: "a".to_string(), seconds: 5, ..Made::default() }, "a.trial");
    write(Made { host: "b".to_string(), ..Made::default() }, "b.trial");
    // The rate of the first interval is not known.
    write(Made { host: "c".to_string(), seconds: 1, ..Made::default() }, "c.trial");
    let answer = capacity(&Folder::open(directory.path()).unwrap(), &asked(), 0.95).unwrap();
    assert_eq!((answer.servers.len(), answer.trials, answer.trials_without_rate), (2, 2, 1));
    let last = &answer.servers[1];
    assert_eq!((last.server.host.as_str(), last.headroom), ("a", None));
    assert!(last.reason.as_ref().unwrap().contains("too few"), "{last:?}");
    let text = report::sheet::sheet(&sheet(&answer), 140);
    assert!(
        text.contains("1 of 2 servers") && text.contains("Left out") && text.contains("too few"),
        "{text}"
    );
    assert!(text.contains("899 intervals of 1 trials"), "of those with a line: {text}");
    assert!(serde_json::to_string(&answer).unwrap().contains("\"headroom\":null"));
}

#[test]
fn procedures_and_stacks_add_up_over_trials() {
    let (_directory, folder) = two_of_each(2);
    let procedures = folder.procedures(&asked()).unwrap();
    let one = &procedures[0];
    let names: Vec<&str> = one.procedures.iter().map(|one| one.procedure.as_str()).collect();
    assert_eq!((procedures.len(), one.windows, names), (2, 4.0, vec!["libz+0x10", "read"]));
    let [zip, read] = [&one.procedures[0], &one.procedures[1]];
    assert!((zip.cpu_s / read.cpu_s - 3.0).abs() < 1e-6);
    assert!(zip.cpu_s_squared > zip.cpu_s.powi(2) / 4.0 && zip.cpu_s_requests > 0.0);
    let by = Asked { by: Some("release".to_string()), ..asked() };
    let stacks = folder.stacks(&by).unwrap();
    assert_eq!(stacks.len(), 2);
    let all: f64 = stacks.iter().flat_map(|group| &group.stacks).map(|(_, cpu_s)| cpu_s).sum();
    let same: f64 =
        procedures.iter().flat_map(|server| &server.procedures).map(|one| one.cpu_s).sum();
    assert!((all / same - 1.0).abs() < 1e-9);
    assert_eq!(stacks[0].stacks[1].0, ["main", "read"]);
    let requests: f64 = procedures.iter().map(|server| server.requests).sum();
    let of_groups: f64 = stacks.iter().map(|group| group.requests).sum();
    assert!((of_groups / requests - 1.0).abs() < 1e-9);
}

/// A directory such as lost+found failed every question.
#[test]
fn directories_that_cannot_be_read_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made { seconds: 20, ..Made::default() };
    made.write(directory.path(), "one.trial");
    let deep = (0..33).fold(directory.path().to_path_buf(), |path, _| path.join("d"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("two.trial"), "not read").unwrap();
    let locked = directory.path().join("lost+found");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let folder = Folder::open(directory.path()).unwrap();
    let why: Vec<&str> = folder.skipped().iter().map(|one| one.why.as_str()).collect();
    assert!(why.iter().any(|why| why.contains("32 directories deep")), "{why:?}");
    // Root may read everything.
    if fs::read_dir(&locked).is_err() {
        assert!(folder.skipped().iter().any(|one| one.path.ends_with("lost+found")), "{why:?}");
    }
    assert_eq!(folder.runs(&asked()).unwrap().len(), 1);
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let error = |path: &Path| Folder::open(path).unwrap_err().to_string();
    assert!(error(path).contains("no *.trial files"), "{}", error(path));
    assert!(error(&path.join("missing")).contains("missing"));
    fs::write(path.join("text.trial"), "not a trial").unwrap();
    assert!(
        matches!(Folder::open(path), Err(Error::File { path, .. }) if path.ends_with("text.trial"))
    );
    Made { seconds: 20, ..Made::default() }.write(path, "one.trial");
    fs::copy(path.join("one.trial"), path.join("two.trial")).unwrap();
    let folder = Folder::open(path).unwrap();
    let skipped: Vec<&str> = folder.skipped().iter().map(|one| one.why.as_str()).collect();
    assert_eq!(skipped.len(), 2);
    assert!(skipped[1].contains("a copy of"), "{skipped:?}");
    assert_eq!(folder.runs(&asked()).unwrap().len(), 1);
}

/// The costs of one server with trials of these rows, the first the oldest.
fn costs_of(trials: &[Vec<windows::Window>]) -> ServerCosts {
    let run = |second: usize| crate::home::Run {
        created_ns: second as i64 * 1_000_000_000,
        trial: second as u64,
        ..Default::default()
    };
    let runs: Vec<_> = (1..=trials.len()).map(run).collect();
    let costs = |order: &mut dyn Iterator<Item = usize>| {
        let trials = order.map(|at| (&runs[at], trials[at].as_slice()));
        sums::costs(trials.collect::<Vec<_>>(), &asked()).remove(0)
    };
    let found = costs(&mut (0..trials.len()));
    assert_eq!(found, costs(&mut (0..trials.len()).rev()), "in any order");
    found
}

fn row(kind: &str, cap: f64) -> windows::Window {
    windows::Window {
        kind: kind.to_string(),
        cap,
        wakes_known: cap > 1.0,
        saturated_n: 3.0,
        saturated_x: 1_000.0 * cap,
        ..windows::Window::default()
    }
}

#[test]
fn the_terms_of_a_resource_are_those_of_the_latest_trial() {
    let costs = costs_of(&[vec![row("machine", 8.0)], vec![row("machine", 1.0)]]);
    let machine = &costs.resources[0];
    assert_eq!((machine.cap, machine.wakes_known), (1.0, false));
    // A machine with eight CPUs is not saturated at the rates of one.
    assert_eq!((machine.saturated_n, machine.saturated_x), (3.0, 1_000.0));
}

/// Two of eight workers did the work of a quiet night, and the capacity fell to that of two.
#[test]
fn a_quiet_trial_does_not_lower_the_cap_of_all_threads() {
    let costs = costs_of(&[
        vec![row("all threads", 8.0)],
        vec![row("all threads", 2.0), row("hottest thread", 1.0)],
    ]);
    assert_eq!((costs.resources[0].cap, costs.resources[0].saturated_x), (8.0, 8_000.0));
}

/// "all threads" stayed a limit although only one thread works since the last trial.
#[test]
fn a_resource_that_the_latest_trial_lacks_does_not_limit() {
    let costs = costs_of(&[
        vec![row("all threads", 2.0), row("hottest thread", 1.0)],
        vec![row("hottest thread", 1.0), row(windows::KIND_RATE, 0.0)],
    ]);
    let kinds: Vec<&str> = costs.resources.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!((kinds, costs.resources[0].saturated_n), (vec!["hottest thread"], 6.0));
}

/// "Nothing is set aside" was not true.
#[test]
fn saturated_intervals_are_said_not_to_be_in_the_lines() {
    let directory = tempfile::tempdir().unwrap();
    Made { peak: 60_000.0, ..Made::default() }.write(directory.path(), "a.trial");
    let answer = capacity(&Folder::open(directory.path()).unwrap(), &asked(), 0.95).unwrap();
    let n = answer.servers[0].saturated_n;
    let text = report::sheet::sheet(&sheet(&answer), 140);
    assert!(n > 100.0 && text.contains(&format!("{n} intervals, not in the lines")), "{text}");
}

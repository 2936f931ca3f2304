//! Reports of generated trials: the figures of 1998, a ramp with saturation, and trials without a
//! line.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

mod made;
mod recent;

use made::{Made, far_from_the_cap, flat, published_1998, ramp_and_saturation, two_workers};
use report::{Analysis, Error, Options, ResourceKind, Standing, analyse, html, terminal};
use trial::{CpuModes, Loss, Modes};

fn analysed(made: &Made, options: &Options) -> Analysis {
    let (_directory, trial) = made.open("made.trial");
    analyse(&trial, options).unwrap()
}

#[test]
fn the_published_figures_of_1998_are_read_back() {
    let analysis = analysed(&published_1998(), &Options::default());
    let slopes: Vec<(&str, f64)> =
        analysis.modes.lines.iter().map(|line| (line.mode, line.slope)).collect();
    for ((mode, slope), (published_mode, published)) in
        slopes.into_iter().zip([("idle", -1.69), ("kernel", 1.05), ("user", 0.64)])
    {
        assert_eq!(mode, published_mode);
        assert!((slope - published).abs() < 1e-6, "{mode}: {slope}");
    }
    let kernel = &analysis.modes.lines[1];
    assert!((kernel.correlation - 0.94).abs() < 1e-6, "{}", kernel.correlation);
    let idle = &analysis.modes.lines[0];
    assert!((idle.x_intercept.unwrap() - 93.0 / 1.69).abs() < 1e-4);
    assert_eq!(analysis.capacity.resource, ResourceKind::Machine);
    assert!((analysis.capacity.value.unwrap() - 93.0 / 1.69).abs() < 1e-4);
    assert!(analysis.modes.closure_gap.abs() < 1e-9);
    insta::assert_snapshot!(terminal(&analysis, 80));
}

#[test]
fn a_ramp_with_saturation_in_a_terminal() {
    let options = Options { objective_ms: Some(1.0), ..Options::default() };
    let analysis = analysed(&ramp_and_saturation("plimsoll"), &options);
    insta::assert_snapshot!(terminal(&analysis, 80));
}

#[test]
fn warm_up_and_saturation_are_kept_out_of_the_fit() {
    let analysis = analysed(&ramp_and_saturation("plimsoll"), &Options::default());
    let count = |standing| analysis.intervals.iter().filter(|i| i.standing == standing).count();
    assert_eq!(count(Standing::WarmUp), 4);
    assert_eq!(count(Standing::Saturation), 7);
    assert_eq!(count(Standing::RateInvalid), 1);
    assert_eq!(analysis.trial.fitted, 60);
    assert_eq!(analysis.intervals[31].standing, Standing::SetAside);
    let measured = analysis.saturation.as_ref().unwrap();
    assert_eq!(measured.n, 7);
    assert_eq!(measured.known_by, "the experiment");
    assert_eq!(measured.held, Some(true));
}

#[test]
fn intervals_that_did_not_saturate_are_not_saturation() {
    let mut made = ramp_and_saturation("plimsoll");
    for interval in made.intervals.iter_mut().filter(|i| i.index >= 64) {
        let worker = &mut interval.threads[1];
        worker.total_ns /= 2;
        worker.user_ns /= 2;
        worker.kernel_ns = worker.total_ns - worker.user_ns;
    }
    let analysis = analysed(&made, &Options::default());
    assert_eq!(analysis.intervals[64].standing, Standing::NotSaturated);
    assert!(analysis.saturation.is_none() && analysis.saturation_measured.is_none());
    let text = terminal(&analysis, 80);
    assert!(text.contains("no saturation: the 7 intervals intended for it"), "{text}");
}

#[test]
fn the_machine_limits_nothing_when_it_runs_the_load_too() {
    let analysis = analysed(&ramp_and_saturation("plimsoll"), &Options::default());
    assert_eq!(analysis.capacity.resource, ResourceKind::HottestThread);
    let machine = analysis.resources.iter().find(|r| r.kind == ResourceKind::Machine).unwrap();
    assert!(!machine.may_limit && machine.remark.as_ref().unwrap().contains("server share"));
    let options = Options { resource: Some(ResourceKind::Machine), ..Options::default() };
    let asked = analysed(&ramp_and_saturation("plimsoll"), &options);
    assert_eq!(asked.capacity.resource, ResourceKind::Machine);
}

#[test]
fn the_busier_of_two_workers_limits() {
    let analysis = analysed(&two_workers(), &Options::default());
    let kinds: Vec<ResourceKind> = analysis.resources.iter().map(|r| r.kind).collect();
    assert_eq!(kinds[0], ResourceKind::HottestThread);
    assert!(kinds.contains(&ResourceKind::Server), "the server as a whole is another line");
    let server = analysis.resources.iter().find(|r| r.kind == ResourceKind::Server).unwrap();
    assert_eq!(server.cap, 2.0);
    let whole = server.line.as_ref().unwrap().capacity().value;
    assert!(whole > analysis.capacity.value.unwrap());
}

#[test]
fn data_far_from_the_cap_are_extrapolated_by_the_line_of_a_busy_cpu() {
    let analysis = analysed(&far_from_the_cap(), &Options::default());
    assert_eq!(analysis.capacity.model, "busy");
    assert!(analysis.capacity.trusted);
    let (low, high) = (analysis.capacity.low.unwrap(), analysis.capacity.high.unwrap());
    let value = analysis.capacity.value.unwrap();
    assert!(low < value && value < high && high < 10.0 * low, "{low} {value} {high}");
    let text = terminal(&analysis, 80).replace("\n           ", " ");
    assert!(text.contains("the line of a busy CPU (the data end early"), "{text}");
    assert!(text.contains("line of a busy CPU  "), "a row of the table of capacities: {text}");
}

/// Without wakes there is only the straight line, which misses saturation.
#[test]
fn data_far_from_the_cap_without_wakes_are_unreliable() {
    let mut made = far_from_the_cap();
    for thread in made.intervals.iter_mut().flat_map(|interval| &mut interval.threads) {
        thread.wakes = 0;
    }
    let analysis = analysed(&made, &Options::default());
    assert!(!analysis.capacity.trusted);
    let text = terminal(&analysis, 80);
    assert!(text.contains("unreliable: reach = "), "{text}");
}

#[test]
fn a_cap_below_the_whole_cpu_gives_less_capacity() {
    let made = ramp_and_saturation("plimsoll");
    let whole = analysed(&made, &Options::default());
    let part = analysed(&made, &Options { cap: Some(0.8), ..Options::default() });
    assert!(part.capacity.value.unwrap() < 0.82 * whole.capacity.value.unwrap());
    assert!((part.modes.idle_at_cap - 20.0).abs() < 1e-9);
    assert_eq!(part.modes.lines[0].slope, whole.modes.lines[0].slope);
}

#[test]
fn quiet_intervals_are_excluded_on_request() {
    let options = Options { above: 20.0, ..Options::default() };
    let analysis = analysed(&published_1998(), &options);
    assert!(analysis.intervals.iter().any(|i| i.standing == Standing::TooQuiet));
    assert!(analysis.intervals.iter().all(|i| i.standing != Standing::Fit || i.rate >= 20.0));
}

#[test]
fn latencies_marked_invalid_are_counted_and_not_used() {
    let analysis = analysed(&ramp_and_saturation("plimsoll"), &Options::default());
    let latency = analysis.latency.as_ref().unwrap();
    assert!(latency.invalid > 0);
    assert!(latency.points.iter().all(|point| point.interval != 40));
    let bins: usize = latency.bins.iter().map(|bin| bin.intervals).sum();
    assert_eq!(bins, 59);
    assert_eq!(latency.saturation.as_ref().unwrap().intervals, 7);
}

/// The first half of a ramp predicts the latencies of the second half.
#[test]
fn latency_at_twice_the_recorded_rate_is_predicted() {
    let whole = ramp_and_saturation("plimsoll");
    let mut half = ramp_and_saturation("plimsoll");
    half.intervals.truncate(36);
    half.latencies.truncate(36);
    let options = Options { objective_ms: Some(1.0), ..Options::default() };
    let (half, whole) = (analysed(&half, &options), analysed(&whole, &options));
    let (half, whole) = (half.latency.unwrap(), whole.latency.unwrap());
    for (at, point) in whole.points.iter().filter(|point| !point.saturated).enumerate().skip(40) {
        let found = half.to_come.p99_at(point.rate).unwrap();
        let folds = found.us / point.p99_us;
        assert!((1.0 / 1.5..1.5).contains(&folds), "{at}: {found:?}, not {point:?}");
        let is_inside = found.low_us < point.p99_us && point.p99_us < found.high_us;
        assert!(is_inside, "{at}: {found:?}, not {point:?}");
    }
    let met = half.to_come.objective.unwrap();
    let Some(regress::AtObjective::Met { rate, .. }) = whole.objective.unwrap().at else {
        panic!("the objective is missed at high rates");
    };
    assert!(met.low < rate && rate < met.high, "{met:?}, not {rate}");
    assert!(whole.to_come.objective.is_none(), "the recording itself shows where it is missed");
}

#[test]
fn the_report_says_up_to_which_rate_the_objective_is_predicted_to_be_met() {
    let options = Options { objective_ms: Some(5.0), ..Options::default() };
    let met = analysed(&far_from_the_cap(), &options);
    let text = terminal(&met, 400);
    assert!(text.contains("; predicted: up to "), "{text}");
    assert!(text.contains("Latency to come"), "{text}");
    assert!(html(&met).contains("99 %, predicted"), "the figure has the predicted line");
    // The same server, but its latencies are those of its log.
    let mut logged = far_from_the_cap();
    for row in &mut logged.latencies {
        row.source = trial::LatencySource::Log;
    }
    let logged = terminal(&analysed(&logged, &options), 400);
    assert!(logged.contains("have no wait in the socket, which is added"), "{logged}");
    let unknown = analysed(&flat(), &Options { objective_ms: Some(1e3), ..Options::default() });
    let unknown = terminal(&unknown, 400);
    assert!(unknown.contains("nothing is predicted: the capacity is not known"), "{unknown}");
    assert!(!unknown.contains("Latency to come"), "{unknown}");
}

#[test]
fn the_keys_of_the_json_are_stable() {
    let analysis = analysed(&ramp_and_saturation("plimsoll"), &Options::default());
    let json = serde_json::to_value(&analysis).unwrap();
    for key in ["/capacity/value", "/capacity/low", "/capacity/high", "/saturation_measured"] {
        assert!(json.pointer(key).is_some_and(serde_json::Value::is_f64), "{key}");
    }
    for key in [
        "/capacity/trusted",
        "/capacity_straight/value",
        "/capacity_with_wakes/value",
        "/modes/lines/0/slope",
        "/resources/0/line/straight/line/slope",
        "/latency/bins/0/p99_us",
        "/latency/to_come/rates/0/p99/us",
        "/latency/to_come/objective",
        "/intervals/0/standing",
        "/losses/0/count",
        "/manifest/host/cpus",
        "/saturation/n",
        "/trial/own_cost_percent",
    ] {
        assert!(json.pointer(key).is_some(), "{key}");
    }
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    insta::assert_snapshot!(keys.join("\n"));
}

#[test]
fn a_rate_that_did_not_vary_is_not_identifiable() {
    let mut made = published_1998();
    for interval in &mut made.intervals {
        interval.requests = 900.0 * 30.0;
    }
    let analysis = analysed(&made, &Options::default());
    assert!(!analysis.capacity.identifiable && analysis.capacity.value.is_none());
    let text = terminal(&analysis, 80);
    assert!(text.contains("not identifiable: the rate did not vary enough"), "{text}");
    let page = html(&analysis);
    assert!(page.contains("not identifiable"), "the page says so as well");
}

#[test]
fn a_slope_lost_in_noise_is_not_identifiable() {
    let analysis = analysed(&flat(), &Options::default());
    assert!(!analysis.capacity.identifiable);
    assert!(!analysis.capacity.trusted);
    assert!(terminal(&analysis, 80).contains("not identifiable"));
}

#[test]
fn a_trial_with_nothing_in_it_says_so() {
    let made = Made { intervals: Vec::new(), ..published_1998() };
    let (_directory, trial) = made.open("empty.trial");
    let error = analyse(&trial, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Empty { .. }));
    assert_eq!(error.to_string(), "empty.trial: no intervals; record for longer");
}

#[test]
fn a_trial_too_short_for_a_line_says_why_and_shows_everything_else() {
    let mut made = ramp_and_saturation("plimsoll");
    made.intervals.truncate(9);
    made.latencies.truncate(9);
    let analysis = analysed(&made, &Options { objective_ms: Some(1.0), ..Options::default() });
    let why = "no load line: 5 of 9 intervals can be fitted (4 warm-up), but 8 are needed; record \
               for longer";
    assert_no_line(&analysis, why);
    assert_eq!(analysis.latency.as_ref().unwrap().points.len(), 5, "latencies are shown");
}

/// "Not identifiable" was the headline, and "36,210 at saturation" a line below it.
#[test]
fn what_was_measured_at_saturation_is_the_capacity() {
    let mut made = ramp_and_saturation("plimsoll");
    let by_line = analysed(&made, &Options::default());
    assert_ne!(by_line.capacity.model, "measured", "a declared saturation checks the line");
    for interval in made.intervals.iter_mut() {
        let phase = interval.phase.take();
        if phase.as_deref() == Some("saturation") {
            let thread = &mut interval.threads[1];
            thread.total_ns = interval.length_ns * 995 / 1_000;
            thread.user_ns = thread.total_ns - thread.kernel_ns;
        }
    }
    for above in [0.0, 1e6] {
        let analysis = analysed(&made, &Options { above, ..Options::default() });
        let (capacity, measured) = (&analysis.capacity, analysis.saturation.as_ref().unwrap());
        assert_eq!((capacity.model, capacity.value), ("measured", Some(measured.rate)));
        assert!(capacity.low < capacity.value && capacity.value < capacity.high, "{capacity:?}");
        let text = terminal(&analysis, 100);
        assert!(text.contains("measured (the resource was exhausted in"), "{text}");
    }
    // Another process that takes the CPU at a low rate saturates no server.
    let last = made.intervals.len() - 1;
    made.intervals.iter_mut().skip(last - 6).for_each(|interval| interval.requests *= 0.2);
    let analysis = analysed(&made, &Options::default());
    assert_ne!(analysis.capacity.model, "measured");
}

#[test]
fn a_trial_of_a_server_without_requests_is_shown() {
    let mut made = published_1998();
    made.intervals.truncate(3);
    made.intervals.iter_mut().for_each(|interval| interval.requests = 0.0);
    let why = "no line was written to access.log while it was recorded; check that the server \
               writes this file, without a buffer, and that it had requests";
    assert_no_line(&analysed(&made, &Options::default()), why);
}

/// "The rate did not vary enough" was the sentence for all of these.
#[test]
fn causes_are_found_before_statistics() {
    let reason = |made: &Made| {
        let analysis = analysed(made, &Options::default());
        assert!(analysis.capacity.value.is_none(), "{:?}", analysis.capacity);
        assert_eq!(analysis.causes[0].to_string(), analysis.capacity.reason.clone().unwrap());
        (analysis.causes[0].kind, analysis.causes[0].text.clone())
    };
    let kinds = |made: &Made| -> Vec<&'static str> {
        analysed(made, &Options::default()).causes.iter().map(|cause| cause.kind).collect()
    };
    let silent = || {
        let mut made = published_1998();
        made.intervals.iter_mut().for_each(|interval| {
            (interval.requests, interval.requests_ended) = (0.0, 0);
        });
        made
    };
    let lost = |kind: &str, count| Loss { kind: kind.into(), count, note: String::new() };

    let mut made = silent();
    made.losses = vec![lost("log: line not understood", 1_234)];
    made.manifest.notes.push("a line that was not understood: {\"a\":1}".to_string());
    let text = "the format squid does not fit the log: 1,234 of 1,234 lines were not understood, \
                such as: {\"a\":1}";
    assert_eq!(reason(&made), ("format_not_understood", text.to_string()));

    let mut made = silent();
    made.losses = vec![lost("log: stamped before the recording", 5_000)];
    let text = "the log's stamps are not in the time of the recording: 5,000 requests have one \
                before it";
    assert_eq!(reason(&made), ("stamps_elsewhere", text.to_string()));

    let mut made = silent();
    made.manifest.notes.push(format!("{}no line of it is a request", trial::NOTE_CAUSE));
    assert_eq!(reason(&made), ("recorded", "no line of it is a request".to_string()));

    let mut made = published_1998();
    assert!(!kinds(&made).contains(&"accept_queue_full"));
    made.manifest.notes.push(format!("{}1340", trial::NOTE_ACCEPT_QUEUE));
    assert!(kinds(&made).contains(&"accept_queue_full"));

    let mut made = silent();
    assert_eq!(reason(&made).0, "log_not_written");
    made.manifest.log_path = None;
    assert_eq!(reason(&made), ("no_requests", "the server had no requests".to_string()));
    made.intervals.iter_mut().for_each(|interval| interval.rate_valid = false);
    assert_eq!(reason(&made).0, "no_source");
    let text = "the rate was nearly constant, 30.0 requests/s";
    assert_eq!(reason(&flat()), ("constant_rate", text.to_string()));
}

/// The first line of a report, the answer.
fn answer(analysis: &Analysis) -> String {
    let text = terminal(analysis, 1_000);
    text.lines().next().unwrap_or_default().to_string()
}

/// One CPU of which this part was used.
fn one_cpu(used: f64) -> CpuModes {
    let user_ns = (used * 1e9) as i64;
    let modes = Modes { user_ns, idle_ns: 1_000_000_000 - user_ns, ..Modes::default() };
    CpuModes { cpu: 0, modes }
}

/// Another process took a tenth of its CPU, so it was not "saturated", although it never slept.
#[test]
fn a_server_that_never_sleeps_is_saturated_beside_others() {
    let mut made = ramp_and_saturation("squid");
    for interval in made.intervals.iter_mut() {
        if interval.phase.take().as_deref() == Some("saturation") {
            let thread = &mut interval.threads[1];
            thread.total_ns = interval.length_ns * 9 / 10;
            thread.user_ns = thread.total_ns - thread.kernel_ns;
            interval.cpus = vec![one_cpu(1.0)];
        }
    }
    let analysis = analysed(&made, &Options::default());
    assert_eq!((analysis.capacity.model, analysis.capacity.n), ("measured", 7));
    let answer = answer(&analysis);
    let expected = "This squid was saturated: it carries about 77,000 requests/s on one CPU";
    assert!(answer.starts_with(expected), "{answer}");
    // Another CPU had nothing to do: then a thread does not wait for one.
    made.intervals.iter_mut().for_each(|interval| interval.cpus = vec![one_cpu(0.5)]);
    assert_ne!(analysed(&made, &Options::default()).capacity.model, "measured");
    // A server that polls never sleeps, however little it has to do.
    for interval in made.intervals.iter_mut() {
        interval.threads[1].wakes = 0;
        interval.cpus = vec![one_cpu(1.0)];
    }
    assert_ne!(analysed(&made, &Options::default()).capacity.model, "measured");
}

/// With one connection a server that never sleeps does less than with thirty.
#[test]
fn the_measured_capacity_is_what_was_kept_up_at_the_highest_load() {
    let mut made = ramp_and_saturation("squid");
    for interval in made.intervals.iter_mut() {
        let share = match interval.phase.take().as_deref() {
            Some("saturation") => 1.0,
            _ if interval.index >= 50 => 0.5,
            _ => continue,
        };
        let thread = &mut interval.threads[1];
        thread.total_ns = interval.length_ns * 995 / 1_000;
        thread.user_ns = thread.total_ns - thread.kernel_ns;
        interval.requests = 77_000.0 * share;
    }
    let analysis = analysed(&made, &Options::default());
    let measured = analysis.saturation.as_ref().unwrap();
    assert_eq!((measured.rate, analysis.capacity.value), (77_000.0, Some(77_000.0)));
    assert_eq!(analysis.trial.excluded.iter().map(|one| one.count).max(), Some(21));
}

/// wrk filled its CPU while the server had room, and nothing said so.
#[test]
fn a_generator_that_is_full_is_named() {
    let with = |others: fn(f64) -> f64| {
        let mut made = ramp_and_saturation("nginx");
        made.intervals.retain(|interval| interval.phase.is_none());
        for interval in made.intervals.iter_mut() {
            let rate = interval.requests.min(45_000.0);
            let part = rate / interval.requests;
            interval.requests = rate;
            let thread = &mut interval.threads[1];
            let of = |ns: i64| (part * ns as f64) as i64;
            (thread.user_ns, thread.kernel_ns) = (of(thread.user_ns), of(thread.kernel_ns));
            thread.total_ns = thread.user_ns + thread.kernel_ns;
            let others_ns = (1e9 * others(rate)) as i64;
            let busy_ns = thread.total_ns + others_ns;
            interval.server.as_mut().unwrap().total_ns = thread.total_ns;
            interval.machine =
                Modes { user_ns: busy_ns, idle_ns: 2_000_000_000 - busy_ns, ..Modes::default() };
            interval.cpus = vec![one_cpu(others(rate))];
        }
        analysed(&made, &Options::default())
    };
    let kinds = |analysis: &Analysis| -> Vec<&str> {
        analysis.causes.iter().map(|cause| cause.kind).collect()
    };
    let full = with(|rate| rate / 45_000.0);
    assert_eq!(kinds(&full), ["generator_full"]);
    let text = &full.causes[0].text;
    for part in ["not the server, was the limit", "1 of 2 CPUs", "the server used 5"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let answer = answer(&full);
    assert!(answer.contains("because the load generator was full, and not the server"), "{answer}");
    // A generator with room, and a neighbour that does not follow the rate.
    assert_eq!(kinds(&with(|rate| rate / 60_000.0)), [""; 0]);
    assert_eq!(kinds(&with(|_| 1.0)), [""; 0]);
}

/// "Carries about 27,000 (8,800 to 85,000); at 1 % of that" was extrapolated 67-fold.
#[test]
fn a_server_that_is_hardly_used_has_no_capacity() {
    let mut made = far_from_the_cap();
    for interval in &mut made.intervals {
        for thread in &mut interval.threads {
            thread.total_ns /= 12;
            thread.user_ns /= 12;
            thread.kernel_ns = thread.total_ns - thread.user_ns;
        }
    }
    let analysis = analysed(&made, &Options::default());
    assert!(analysis.capacity.value.is_none(), "{:?}", analysis.capacity);
    assert_eq!(analysis.causes[0].kind, "too_quiet");
    let answer = answer(&analysis);
    let expected = "How much this plimsoll carries is not known: only 1.6";
    assert!(answer.starts_with(expected) && answer.contains("plimsoll load"), "{answer}");
}

/// "Cap 2 CPUs" was the limit of a Python process with two busy threads.
#[test]
fn python_has_one_cpu_for_each_process() {
    let limit = |exe: &str, scale: i64| {
        let mut made = two_workers();
        made.manifest.server.exe = exe.to_string();
        for interval in &mut made.intervals {
            let server = interval.server.as_mut().unwrap();
            server.total_ns /= scale;
            for thread in &mut interval.threads {
                thread.total_ns /= scale;
                thread.user_ns /= scale;
                thread.kernel_ns = thread.total_ns - thread.user_ns;
            }
            (server.user_ns, server.kernel_ns) = (server.user_ns / scale, server.kernel_ns / scale);
        }
        let analysis = analysed(&made, &Options::default());
        let all = analysis.resources.iter().find(|one| one.kind == ResourceKind::Server).unwrap();
        let text = terminal(&analysis, 200);
        let says = text.contains("runs the code of a process on one CPU, however many");
        let limits = analysis.resources[0].kind == ResourceKind::Server;
        let turns = answer(&analysis).contains("Its threads take turns: Python runs the code");
        assert_eq!(turns, limits && all.cap == 1.0, "{text}");
        (all.cap, says)
    };
    assert_eq!(limit("/usr/bin/python3.11", 2), (1.0, true));
    assert_eq!(limit("/usr/bin/node", 2), (2.0, true));
    assert_eq!(limit("/usr/sbin/nginx", 2), (2.0, false));
    // A free-threaded build.
    assert_eq!(limit("/opt/python3.13t", 2), (2.0, false));
}

#[test]
fn seconds_in_which_a_neighbour_took_the_cpu_are_set_aside() {
    let undisturbed = analysed(&ramp_and_saturation("plimsoll"), &Options::default());
    assert_eq!(undisturbed.causes, []);
    let mut made = ramp_and_saturation("plimsoll");
    for interval in &mut made.intervals[20..26] {
        let machine = &mut interval.machine;
        (machine.user_ns, machine.idle_ns) = (machine.user_ns + machine.idle_ns, 0);
        // The server gets less done with its time.
        interval.requests *= 0.6;
    }
    let analysis = analysed(&made, &Options::default());
    assert_eq!(analysis.causes[0].kind, "neighbour");
    assert!(analysis.causes[0].text.starts_with("in 6 of 72 intervals"), "{:?}", analysis.causes);
    let text = terminal(&analysis, 80);
    assert!(text.contains("6 disturbed"), "{text}");
    let [with, without] = [&analysis, &undisturbed].map(|one| one.capacity.value.unwrap());
    assert!((with / without - 1.0).abs() < 0.05, "{with} {without}");

    // A hypervisor that takes time from some intervals.
    let mut made = ramp_and_saturation("plimsoll");
    for interval in &mut made.intervals[30..34] {
        let taken = interval.machine.total_ns() / 8;
        interval.machine.steal_ns = taken;
        interval.machine.idle_ns = (interval.machine.idle_ns - taken).max(0);
    }
    let analysis = analysed(&made, &Options::default());
    assert_eq!(analysis.causes[0].kind, "neighbour", "{:?}", analysis.causes);
    assert!(html(&analysis).contains("in 4 of 72 intervals"));
}

/// The sentence comes first on the page and in the terminal, and the JSON has it too.
fn assert_no_line(analysis: &Analysis, why: &str) {
    let json = serde_json::to_value(analysis).unwrap();
    assert_eq!(json.pointer("/capacity/value").unwrap(), &serde_json::Value::Null);
    assert_eq!(json.pointer("/capacity/identifiable").unwrap(), false);
    assert_eq!(json.pointer("/capacity/reason").unwrap(), why);
    assert_eq!(json.pointer("/capacity_straight/reason").unwrap(), why);
    let text = terminal(analysis, 80);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("Capacity {why}")), "{text}");
    let page = html(analysis);
    assert!(page.contains(why) && !page.contains("NaN") && !page.contains("inf\""), "{page}");
    assert!(page.contains("Intervals ("), "each interval is in the page");
}

#[test]
fn options_out_of_range_and_resources_not_recorded_are_refused() {
    let (_directory, trial) = published_1998().open("made.trial");
    let options = Options { level: 95.0, ..Options::default() };
    assert!(matches!(analyse(&trial, &options), Err(Error::Option { .. })));
    let options = Options { resource: Some(ResourceKind::HottestThread), ..Options::default() };
    let error = analyse(&trial, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "made.trial: hottest thread was not recorded; let the report choose the resource"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for (made, width) in [(published_1998(), 80), (ramp_and_saturation("plimsoll"), 80)] {
        let options = Options { objective_ms: Some(5.0), ..Options::default() };
        let text = terminal(&analysed(&made, &options), width);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{line}");
        }
    }
}

#[test]
fn a_hostile_name_reaches_neither_terminal_nor_page() {
    let mut made = ramp_and_saturation("</title><script>alert(1)</script>");
    made.manifest.server.command_line = "squid \u{1b}[2J\u{7} <img src=x onerror=y>".to_string();
    made.losses[0].note = "\u{1b}]0;title\u{7}<b>".to_string();
    made.manifest.notes = vec!["\" onload=\"x".to_string()];
    let analysis = analysed(&made, &Options::default());
    let page = html(&analysis);
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>"));
    assert!(page.contains("&#60;script&#62;") || page.contains("&lt;script&gt;"));
    let text = terminal(&analysis, 80);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
}

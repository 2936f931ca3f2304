//! Lock waits, file access and episodes in a report.

#![allow(clippy::unwrap_used)]

use report::{Analysis, Options, analyse, html, terminal};
use trial::episodes::{EpisodeRow, TurnRow};
use trial::files::{Delays, Direction, FileRow};
use trial::profile::{Frame, FrameMode, Owner, Stack};
use trial::waits::{LockKind, WaitRow, Word};
use trial::{Histogram, Interval, Loss, Manifest, Modes, Trial, Writer};

const SECOND_NS: i64 = 1_000_000_000;

/// A ramp with a millisecond of CPU time per request, to which lock waits and files are added.
fn analysed(add: impl FnOnce(&mut Writer)) -> Analysis {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("squid.trial");
    let mut manifest = Manifest { interval_ns: SECOND_NS, ..Manifest::default() };
    manifest.host.cpus = 1;
    let mut writer = Writer::create(&path, &manifest).unwrap();
    for index in 0..40 {
        // Not an exact line, which would have no residuals.
        let user_ns = index * 10_000_000 + index * index % 7 * 1_000_000;
        let machine = Modes { user_ns, idle_ns: SECOND_NS - user_ns, ..Modes::default() };
        let interval = Interval {
            index: index as u64,
            start_ns: index * SECOND_NS,
            length_ns: SECOND_NS,
            machine,
            requests: index as f64 * 10.0,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    add(&mut writer);
    writer.finish().unwrap();
    analyse(&Trial::open(&path).unwrap(), &Options::default()).unwrap()
}

fn stack(writer: &mut Writer, frames: &[(&str, Option<&str>, FrameMode)]) -> u32 {
    let numbered = frames.iter().map(|&(module, symbol, mode)| {
        let (module, symbol) = (module.to_owned(), symbol.map(str::to_owned));
        writer.frame(&Frame { symbol, module, mode }).unwrap()
    });
    let frames = numbered.collect();
    writer.stack(&Stack { frames, whole: false }).unwrap()
}

fn wait(kind: LockKind, stack: u32, waits: u64, total_ns: i64) -> WaitRow {
    WaitRow {
        interval: 3,
        kind,
        owner: Owner::Server,
        stack,
        word: None,
        waits,
        total_ns,
        max_ns: total_ns / 2,
        spun_ns: if kind == LockKind::Spin { total_ns } else { 0 },
        timed_out: 0,
    }
}

fn add_waits(writer: &mut Writer) {
    let kernel = stack(
        writer,
        &[
            ("[kernel]", Some("ep_poll"), FrameMode::Kernel),
            ("[kernel]", Some("do_epoll_wait"), FrameMode::Kernel),
        ],
    );
    let user = stack(
        writer,
        &[
            ("libc.so.6", Some("pthread_mutex_lock"), FrameMode::User),
            ("squid<b>", Some("+0x1f3a"), FrameMode::User),
        ],
    );
    let none = stack(writer, &[]);
    let futex = WaitRow {
        word: Some(Word { pid: 17, address: 0xffff_0000_1234_5678 }),
        timed_out: 1,
        ..wait(LockKind::Futex, user, 4, 8_000_000)
    };
    let rows = [
        wait(LockKind::Spin, kernel, 10, 5_000_000),
        wait(LockKind::Spin, none, 3, 1_000_000),
        futex,
        WaitRow { interval: 4, ..futex },
    ];
    writer.waits(&rows).unwrap();
    let kind = "locks: no room for a futex".to_owned();
    writer.loss(&Loss { kind, count: 7, note: String::new() }).unwrap();
}

fn file(direction: Direction, size_from: u64, needless: u64) -> FileRow {
    let mut histogram = Histogram::<u64>::new(2).unwrap();
    histogram.record_n(20_000, 10).unwrap();
    FileRow {
        direction,
        size_from,
        size_below: Some(size_from + 1024),
        objects: 10,
        calls: 10 + needless,
        bytes: 10 * size_from,
        open_ns: 100_000,
        first_ns: 80_000,
        rest_ns: 8_000 * needless as i64,
        close_ns: 20_000,
        elapsed_ns: 1_000_000,
        needless,
        after_short: needless,
        needless_objects: needless,
        needless_ns: 8_000 * needless as i64,
        first: Delays::new(&histogram),
        total: Delays::new(&histogram),
    }
}

fn assert_narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn waits_are_shown_by_kind_and_stack_with_losses() {
    let analysis = analysed(add_waits);
    let waits = analysis.waits.as_ref().unwrap();
    assert_eq!((waits.waits, waits.kinds.len(), waits.places.len()), (21, 2, 3));
    let futex = &waits.kinds[0];
    assert_eq!((futex.kind, futex.figures.waits, futex.figures.timed_out), (LockKind::Futex, 8, 2));
    assert_eq!((futex.figures.mean_us, futex.figures.max_us), (2_000.0, 4_000.0));
    let machine_s = waits.seconds * f64::from(analysis.manifest.host.cpus);
    assert!((waits.spinning_percent - 100.0 * 0.006 / machine_s).abs() < 1e-9);
    let text = terminal(&analysis, 80);
    assert_narrow(&text);
    for words in [
        "waiting, not holding",
        "pthread_mutex_lock < squid<b>+0x1f3a",
        "word 0xffff000012345678",
        "ep_poll < do_epoll_wait",
        "other stacks",
        "lost: 7 no room for a futex",
    ] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.split(' ').all(|word| flat.contains(word)), "no {words:?} in {text}");
    }
    let page = html(&analysis);
    assert!(page.contains("Lock waits by stack") && page.contains("squid&#60;b&#62;"), "escaped");
    let json = serde_json::to_value(&analysis).unwrap();
    assert_eq!(json.pointer("/waits/places/0/kind").unwrap(), "futex");
    assert_eq!(json.pointer("/waits/kinds/0/waits").unwrap(), 8);
}

#[test]
fn needless_reads_are_a_warning_with_their_share_of_the_time() {
    let analysis = analysed(|writer| {
        let rows = [(Direction::Read, 4096, 10), (Direction::Read, 9216, 0)];
        let mut rows: Vec<FileRow> = rows.map(|(d, size, n)| file(d, size, n)).into();
        rows.push(file(Direction::Written, 4096, 0));
        writer.files(rows);
    });
    let files = analysis.files.as_ref().unwrap();
    assert_eq!(files.sizes.len(), 3);
    assert_eq!((files.needless.needless_objects, files.needless.of_objects), (10, 20));
    assert_eq!(files.needless.needless_percent, 100.0 * 80.0 / 480.0);
    assert_eq!(files.sizes[0].calls_per_object, 2.0);
    assert_eq!(files.sizes[0].open_mean_us, 10.0);
    assert!((files.sizes[0].total_median_us.unwrap() - 20.0).abs() < 0.2);
    let text = terminal(&analysis, 80);
    assert_narrow(&text);
    for words in ["Files read, by size", "Files written, by size", "a short read as the end"] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "no {words:?} in {text}");
    }
    assert!(html(&analysis).contains("Files read, by size"));
}

#[test]
fn exact_reads_give_no_warning_and_samplers_that_did_not_run_are_not_shown() {
    let analysis = analysed(|writer| writer.files(vec![file(Direction::Read, 4096, 0)]));
    let text = terminal(&analysis, 100);
    assert!(text.contains("Files read") && !text.contains("read past their end"), "{text}");
    assert!(!text.contains("Files written") && !text.contains("Lock waits"), "{text}");
    assert!(analysis.waits.is_none());
    let neither = analysed(|_| ());
    assert!(neither.files.is_none() && !terminal(&neither, 100).contains("Files"));
}

#[test]
fn calls_on_a_log_that_was_open_before_are_not_a_warning() {
    let lost = |losses: &[(&str, u64)]| {
        let analysis = analysed(|writer| {
            for (kind, count) in losses {
                let (kind, note) = ((*kind).to_owned(), String::new());
                writer.loss(&Loss { kind, count: *count, note }).unwrap();
            }
        });
        // 40 intervals of 0 to 390 requests.
        assert_eq!(analysis.trial.requests, 7_800.0);
        let page = html(&analysis);
        let text = terminal(&analysis, 80).split_whitespace().collect::<Vec<_>>().join(" ");
        (page.contains("<dt>Lost</dt><dd><span class=\"warns\">"), text)
    };
    let open_before = "files: call on a descriptor that was open before";
    let (warns, text) = lost(&[(open_before, 7_801)]);
    assert!(!warns && text.contains("Lost nothing important; 7,801 calls"), "{text}");
    assert!(text.contains("Losses"), "the table has it");
    let (warns, text) = lost(&[(open_before, 15_600)]);
    assert!(warns && text.contains("Lost 15,600 files: call on"), "two per request: {text}");
    let (warns, text) = lost(&[(open_before, 7_801), ("files: mapped", 1)]);
    assert!(warns && text.contains("1 files: mapped"), "{text}");
}

#[test]
fn episodes_are_shown_by_their_events_with_the_cost_of_one_more() {
    // 20 µs for an episode and 10 µs for each of its events, ± 1 µs; 3 µs without events.
    let add = |writer: &mut Writer| {
        for interval in [4, 8] {
            let rows = [0, 1, 2, 5, 63].map(|class| {
                let cpu_ns = if class == 0 { 3_000 } else { 20_000 + 10_000 * i64::from(class) };
                let (low, high) = ((cpu_ns - 1_000) as f64, (cpu_ns + 1_000) as f64);
                let events = f64::from(class);
                EpisodeRow {
                    interval,
                    class,
                    episodes: 10,
                    turns: 20,
                    events: 10 * u64::from(class),
                    cpu_ns: 10 * cpu_ns,
                    turns_turns: 40.0,
                    turns_events: 20.0 * events,
                    events_events: 10.0 * events * events,
                    turns_cpu_ns: 20.0 * cpu_ns as f64,
                    events_cpu_ns: 10.0 * events * cpu_ns as f64,
                    cpu_cpu_ns2: 5.0 * (low * low + high * high),
                }
            });
            let sampled_ns = SECOND_NS;
            let turns = TurnRow { interval, sampled_ns, turns: 200, events: 800, cpu_ns: 1 };
            writer.episodes(turns, &rows).unwrap();
        }
    };
    let analysis = analysed(add);
    let episodes = analysis.episodes.as_ref().unwrap();
    assert_eq!((episodes.episodes, episodes.turns, episodes.seconds), (100, 400, 2.0));
    assert_eq!((episodes.turns_per_s, episodes.events_per_turn), (200.0, 4.0));
    assert!((episodes.event_us.unwrap() - 10.0).abs() < 1e-6, "{episodes:?}");
    // 80 residuals of 1 µs, and events that differ from their mean.
    let events = [1.0, 2.0, 5.0, 63.0];
    let squares = events.map(|events: f64| 20.0 * (events - 17.75).powi(2)).iter().sum::<f64>();
    let se = (80.0 / 78.0 / squares).sqrt();
    assert!((episodes.event_us_se.unwrap() - se).abs() < 1e-6, "{episodes:?}");
    let rows: Vec<_> = episodes.by_events.iter().map(|r| (r.events_from, r.events_to)).collect();
    assert_eq!(rows, [(0, Some(0)), (1, Some(1)), (2, Some(2)), (4, Some(7)), (63, None)]);
    let row = &episodes.by_events[3];
    assert_eq!((row.episodes, row.turns_per_episode, row.cpu_us), (20, 2.0, 70.0));
    let text = terminal(&analysis, 80);
    assert_narrow(&text);
    for words in ["4-7", "from 63", "an event more: 10.00 µs", "200 turns/s of 4.00 events"] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "no {words:?} in {text}");
    }
    assert!(html(&analysis).contains("CPU time from wake to sleep"));
    let json = serde_json::to_value(&analysis).unwrap();
    assert_eq!(json.pointer("/episodes/by_events/1/cpu_us").unwrap(), 30.0);
    assert!(analysed(|_| ()).episodes.is_none());
}

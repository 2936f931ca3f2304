//! Lock waits, file access and turns in a report.

#![allow(clippy::unwrap_used)]

use report::{Analysis, Options, analyse, html, terminal};
use trial::files::{Delays, Direction, FileRow};
use trial::profile::{Frame, FrameMode, Owner, Stack};
use trial::stretches::{StretchKind, StretchRow, TurnRow};
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

/// Turns of 20 µs and 10 µs for each receive, and busy periods of 30 µs and 12 µs.
fn stretches(interval: u64, held: bool) -> Vec<StretchRow> {
    let kinds = [(StretchKind::Turn, 20_000, 10_000), (StretchKind::Period, 30_000, 12_000)];
    let of_kind = |(kind, fixed_ns, each_ns): (StretchKind, i64, i64)| {
        [(0, 0), (1, 1), (5, 6), (65, 100)].map(|(size, receives)| StretchRow {
            interval,
            kind,
            held,
            served: receives > 0,
            size,
            stretches: 10,
            turns: 10,
            clients: 9 * receives,
            upstreams: receives,
            cpu_ns: 10 * (fixed_ns + each_ns * receives.cast_signed()),
        })
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

#[test]
fn turns_and_busy_periods_are_shown_by_their_receives() {
    let add = |writer: &mut Writer, held: bool| {
        for interval in [4, 8] {
            let sampled_ns = SECOND_NS;
            let turns = TurnRow { interval, sampled_ns, turns: 200, clients: 900, upstreams: 100 };
            let mut rows = stretches(interval, false);
            rows.extend(held.then(|| stretches(interval, true)).into_iter().flatten());
            writer.stretches(turns, &rows);
        }
    };
    let analysis = analysed(|writer| add(writer, false));
    let found = analysis.stretches.as_ref().unwrap();
    assert_eq!((found.turns, found.seconds, found.turns_per_s), (400, 2.0, 200.0));
    assert_eq!((found.clients, found.upstreams), (1_800, 200));
    let rows: Vec<_> = found.by_size.iter().map(|r| (r.receives_from, r.receives_to)).collect();
    assert_eq!(rows, [(0, Some(0)), (1, Some(1)), (5, Some(8)), (65, None)]);
    let row = &found.by_size[2];
    assert_eq!((row.turns.count, row.turns.receive_us), (20, Some(80.0 / 6.0)));
    assert_eq!((row.periods.count, row.periods.receive_us), (20, Some(102.0 / 6.0)));
    assert_eq!((row.held.count, row.held.receive_us), (0, None));
    let text = terminal(&analysis, 80);
    assert_narrow(&text);
    for words in ["5-8", "from 65", "200 turns/s", "1,800 receives from clients, 200 from others"] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "no {words:?} in {text}");
    }
    assert!(!text.contains("after holds"), "{text}");
    assert!(html(&analysis).contains("by how many receives the server works off in a row"));
    let json = serde_json::to_value(&analysis).unwrap();
    assert_eq!(json.pointer("/stretches/by_size/1/turns/receive_us").unwrap(), 30.0);
    assert!(analysed(|_| ()).stretches.is_none());
    let held = analysed(|writer| add(writer, true));
    let text = terminal(&held, 80);
    assert_narrow(&text);
    assert!(text.contains("after holds"), "{text}");
}

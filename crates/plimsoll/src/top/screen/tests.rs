//! Draws the screen of a generated trial on a test terminal, at several sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use trial::files::{Delays, FileRow};
use trial::profile::{Frame, FrameMode, ProfileInfo, SampleRow, Stack};
use trial::waits::{LockKind, WaitRow};
use trial::{
    Capability, Histogram, Interval, LatencyRow, LatencySource, Loss, Manifest, Modes,
    ProcessTimes, ThreadTimes, Writer,
};

use super::*;
use crate::watch::Watcher;
use ::report::Options;
use trial::files::Direction;
use trial::profile::Owner;

const SECOND_NS: i64 = 1_000_000_000;

/// Procedures of the generated server: name, module, mode, microseconds per request.
const PROCEDURES: [(&str, &str, FrameMode, f64); 6] = [
    ("tcp_sendmsg", "[kernel]", FrameMode::Kernel, 14.0),
    ("tcp_recvmsg", "[kernel]", FrameMode::Kernel, 6.0),
    ("ep_poll", "[kernel]", FrameMode::Kernel, 9.0),
    ("ngx_http_parse_request_line", "nginx", FrameMode::User, 8.0),
    ("memcpy", "libc.so.6", FrameMode::User, 3.0),
    ("std::vec::Vec<a::very::long::path<of::types>>::from_iter", "nginx", FrameMode::User, 2.0),
];

/// A recording in progress with `intervals` seconds; its rate varies by `spread` requests/s.
struct Made {
    home: tempfile::TempDir,
    intervals: u64,
}

impl Made {
    fn new(intervals: u64, spread: f64) -> Made {
        let home = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::default();
        (manifest.host.cpus, manifest.server.name) = (2, "nginx".to_owned());
        let capability = |name: &str, supported, reason: &str| Capability {
            name: name.to_owned(),
            supported,
            reason: reason.to_owned(),
        };
        manifest.capabilities = vec![
            capability("profile", true, "cpu-clock"),
            capability("locks", true, "BPF"),
            capability("file anatomy", true, "BPF"),
        ];
        let mut writer = Writer::create(home.path().join("nginx.trial"), &manifest).unwrap();
        for index in 0..intervals {
            append(&mut writer, index, spread);
        }
        Made { home, intervals }
    }

    /// The model of the whole recording.
    fn model(&self) -> Model {
        let path = self.home.path().join("nginx.trial");
        let mut watcher = Watcher::new(path, 60, Options::default(), None);
        let mut model = watcher.look().unwrap().unwrap();
        watcher.fit(&mut model).unwrap();
        model.watch_percent = 0.6;
        model
    }

    fn now_ns(&self) -> i64 {
        self.intervals as i64 * SECOND_NS + 2 * SECOND_NS
    }
}

fn append(writer: &mut Writer, index: u64, spread: f64) {
    let rate = 3_000.0 + spread * ((index * 17) % 60) as f64 / 60.0;
    let wobble = 1.0 + 0.01 * (index as f64 * 2.4).sin();
    let (mut user_ns, mut kernel_ns) = (0, 0);
    for (symbol, module, mode, us) in PROCEDURES {
        let frame = Frame { symbol: Some(symbol.to_owned()), module: module.to_owned(), mode };
        let frames = vec![writer.frame(&frame).unwrap()];
        let stack = writer.stack(&Stack { frames, whole: true }).unwrap();
        let ns = (us * 1e3 * rate * wobble) as i64;
        *if mode == FrameMode::User { &mut user_ns } else { &mut kernel_ns } += ns;
        let samples = (ns / 10_000_000) as u32;
        let row = SampleRow { interval: index, owner: Owner::Server, stack, samples, ns };
        writer.samples(&[row]).unwrap();
    }
    let info = ProfileInfo { event: "cpu-clock".to_owned(), hz: 99, ..ProfileInfo::default() };
    writer.profile_info(&info).unwrap();
    let wait = WaitRow {
        interval: index,
        kind: LockKind::Futex,
        owner: Owner::Server,
        stack: 4,
        word: None,
        waits: 7,
        total_ns: 700_000,
        max_ns: 400_000,
        spun_ns: 0,
        timed_out: 0,
    };
    writer.waits(&[wait]).unwrap();
    let mut delays = Histogram::<u64>::new(3).unwrap();
    delays.record_n(41_000, 1 + index).unwrap();
    writer.files(vec![file(index, &delays)]);
    let mut latency = Histogram::<u64>::new(3).unwrap();
    latency.record_n(180, 2_970).unwrap();
    latency.record_n(2_400, 30).unwrap();
    let latency = LatencyRow::new(index, LatencySource::Log, false, &latency);
    let kind = "log: line not understood".to_owned();
    let losses = (index == 3).then(|| Loss { kind, count: 2, note: "\u{1b}[31mred".to_owned() });
    let losses: Vec<Loss> = losses.into_iter().collect();
    let times = (user_ns, kernel_ns);
    writer.append_all(&interval(index, rate, times), &[latency], &losses).unwrap();
}

fn interval(index: u64, rate: f64, (user_ns, kernel_ns): (i64, i64)) -> Interval {
    let total_ns = user_ns + kernel_ns;
    let name = "nginx".to_owned();
    let thread = ThreadTimes { pid: 7, tid: 7, name, total_ns, user_ns, kernel_ns, wakes: 0 };
    Interval {
        index,
        start_ns: index as i64 * SECOND_NS,
        length_ns: SECOND_NS,
        machine: Modes {
            user_ns,
            system_ns: kernel_ns,
            softirq_ns: 20_000_000,
            idle_ns: 2 * SECOND_NS - total_ns - 20_000_000,
            ..Modes::default()
        },
        server: Some(ProcessTimes { user_ns, kernel_ns, total_ns, ..ProcessTimes::default() }),
        threads: vec![thread],
        requests: rate,
        requests_ended: rate as u64,
        rate_valid: true,
        recorder_ns: 4_000_000,
        ..Interval::default()
    }
}

fn file(index: u64, delays: &Histogram<u64>) -> FileRow {
    let objects = 1 + index;
    let ns = 41_000 * objects as i64;
    FileRow {
        direction: Direction::Read,
        size_from: 4_096,
        size_below: Some(5_120),
        objects,
        calls: 2 * objects,
        bytes: 4_500 * objects,
        open_ns: ns / 2,
        first_ns: ns / 4,
        rest_ns: ns / 8,
        close_ns: ns / 8,
        elapsed_ns: ns,
        needless: objects,
        after_short: objects,
        needless_objects: objects,
        needless_ns: ns / 8,
        first: Delays::new(delays),
        total: Delays::new(delays),
    }
}

/// The screen on a terminal of this size, after some keys.
fn screen(made: &Made, columns: u16, rows: u16, keys: &[KeyCode]) -> String {
    let model = made.model();
    let mut view = View::default();
    for key in keys {
        assert!(view.press(KeyEvent::from(*key)));
    }
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme { colours: false };
    let drawn = terminal.draw(|frame| {
        let (area, buffer) = (frame.area(), frame.buffer_mut());
        draw(Some(&model), &mut view, made.now_ns(), theme, area, buffer);
    });
    drawn.unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<String> = (0..rows).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

#[test]
fn a_recording_with_a_line_at_80_columns() {
    insta::assert_snapshot!(screen(&Made::new(60, 6_000.0), 80, 24, &[]));
}

#[test]
fn groups_and_procedures_side_by_side_on_a_wide_terminal() {
    insta::assert_snapshot!(screen(&Made::new(60, 6_000.0), 140, 30, &[]));
}

#[test]
fn a_constant_rate_gives_no_capacity_and_no_marginal_cost() {
    let shown = screen(&Made::new(60, 0.0), 80, 24, &[]);
    assert!(
        shown.starts_with("Capacity  not yet: the rate was nearly constant, 3,000 requests/s"),
        "{shown}"
    );
    assert!(!shown.contains("1 more 4"), "{shown}");
}

#[test]
fn the_first_seconds_show_how_many_intervals_a_line_needs() {
    let shown = screen(&Made::new(2, 6_000.0), 80, 24, &[]);
    assert!(shown.starts_with("Capacity  not yet: 2 of 2 intervals can be fitted, "), "{shown}");
    assert!(shown.lines().next().is_some_and(|line| line.ends_with(" are needed")), "{shown}");
}

#[test]
fn every_part_has_its_rows() {
    let made = Made::new(60, 6_000.0);
    let shown = |digit| screen(&made, 100, 24, &[KeyCode::Char(digit)]);
    assert!(shown('2').contains("ngx_http_parse_request_line"));
    let locks = shown('3');
    assert!(locks.contains("futex") && locks.contains("7.00") && locks.contains("memcpy"));
    let files = shown('4');
    assert!(files.contains("4.0 KiB to 5.0 KiB, read") && files.contains("2.00"), "{files}");
    let resources = shown('5');
    assert!(resources.contains("hottest thread  nginx, thread 7"), "{resources}");
    let narrow = screen(&made, 80, 24, &[KeyCode::Char('5')]);
    assert!(narrow.contains("hottest thread  nginx, thread 7"), "{narrow}");
    let lost = shown('6');
    assert!(lost.contains("log: line not understood"), "{lost}");
    assert!(!lost.contains('\u{1b}'), "no control character of a trial reaches the terminal");
}

#[test]
fn rows_scroll_up_to_the_last_and_no_further() {
    let made = Made::new(60, 6_000.0);
    let mut keys = vec![KeyCode::Down; 2];
    let two = screen(&made, 80, 24, &keys);
    keys.extend([KeyCode::PageDown; 9]);
    let end = screen(&made, 80, 24, &keys);
    let first_row = |text: &str| text.lines().nth(9).unwrap().to_owned();
    let top = screen(&made, 80, 24, &[]);
    assert!(first_row(&top).contains("all non-idle time"), "{top}");
    assert_ne!(first_row(&two), first_row(&top));
    assert!(end.lines().nth(21).is_some_and(|line| line.contains("recorder")), "{end}");
}

#[test]
fn help_replaces_the_table_but_not_the_head() {
    let shown = screen(&Made::new(60, 6_000.0), 80, 24, &[KeyCode::Char('?')]);
    assert!(shown.starts_with("Capacity  ") && shown.contains("pause the screen"), "{shown}");
    assert!(!shown.contains("% busy"), "{shown}");
}

#[test]
fn every_terminal_size_can_be_drawn() {
    let made = Made::new(12, 6_000.0);
    for (columns, rows) in [(1, 1), (39, 24), (40, 10), (80, 9), (41, 11), (300, 90)] {
        for part in ['1', '2', '3', '4', '5', '6', '?'] {
            let shown = screen(&made, columns, rows, &[KeyCode::Char(part)]);
            let fits = shown.lines().all(|line| line.chars().count() <= usize::from(columns));
            assert!(fits, "{columns} x {rows}: {shown}");
        }
    }
}

#[test]
fn colours_can_be_switched_off() {
    let made = Made::new(60, 6_000.0);
    let model = made.model();
    let coloured = |colours| {
        let area = Rect::new(0, 0, 80, 24);
        let mut buffer = Buffer::empty(area);
        let theme = Theme { colours };
        draw(Some(&model), &mut View::default(), 0, theme, area, &mut buffer);
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}

#[test]
fn silence_and_a_paused_screen_are_shown() {
    let made = Made::new(60, 6_000.0);
    let model = made.model();
    let shown = text(&model, made.now_ns() + 60 * SECOND_NS, 100);
    assert!(shown.contains("nothing new for 62 s: is it still recording?"), "{shown}");
    assert!(screen(&made, 80, 24, &[KeyCode::Char('p')]).contains("paused, p resumes"));
}

#[test]
fn the_text_output_lists_all_non_empty_parts() {
    let made = Made::new(60, 6_000.0);
    insta::assert_snapshot!(text(&made.model(), made.now_ns(), 100));
}

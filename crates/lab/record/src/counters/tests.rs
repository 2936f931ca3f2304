//! Counters on a fake machine, and on events that every kernel has.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use perf_event_open_sys::bindings as sys;
use trial::{Interval, Manifest, Trial};

use super::*;

/// Future readings: (count, enabled, running).
type Reads = Vec<(u64, u64, u64)>;

/// The next readings of the fake events, by kind and place.
#[derive(Clone, Default)]
struct Fake {
    script: BTreeMap<(u8, i64), Reads>,
    parents: BTreeMap<u32, u32>,
    refuses: Option<u32>,
    opened: Vec<(Kind, At)>,
}

struct FakeEvent(Reads);

impl Event for FakeEvent {
    fn read(&mut self) -> io::Result<Reading> {
        if self.0.is_empty() {
            return Err(io::Error::other("it went away"));
        }
        let (count, enabled_ns, running_ns) = self.0.remove(0);
        Ok(Reading { count, enabled_ns, running_ns })
    }
}

/// CPUs from -1 down, threads from 1 up.
fn place(at: At) -> i64 {
    match at {
        At::Cpu(cpu) => -1 - i64::from(cpu),
        At::Thread(tid) => tid.into(),
        At::Here => 0,
    }
}

impl Source for Fake {
    type Event = FakeEvent;

    fn open(&mut self, kind: Kind, at: At) -> io::Result<FakeEvent> {
        if matches!(at, At::Thread(tid) if self.refuses == Some(tid)) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        self.opened.push((kind, at));
        Ok(FakeEvent(self.script.get(&(kind as u8, place(at))).cloned().unwrap_or_default()))
    }

    fn cpus(&self) -> Vec<i32> {
        vec![0, 1]
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        vec![pid, pid + 1]
    }

    fn parent(&mut self, pid: u32) -> Option<u32> {
        self.parents.get(&pid).copied()
    }
}

fn all_count(_: &mut Fake, _: Kind) -> Result<(), String> {
    Ok(())
}

/// Two intervals of a fake machine, from the events to the trial and back.
fn recorded(fake: Fake, probe: &dyn Fn(&mut Fake, Kind) -> Result<(), String>) -> Vec<CounterRow> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("c.trial");
    let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
    let mut counters = Counters::of(fake, &[10], probe).unwrap();
    counters.baseline(&[10]);
    for index in 0..2 {
        assert_eq!(counters.interval(index, &[10], &mut writer).unwrap(), 0);
        writer.append(&Interval { index, ..Interval::default() }).unwrap();
    }
    writer.finish().unwrap();
    Trial::open(&path).unwrap().counters().to_vec()
}

#[test]
fn counts_of_threads_and_cpus_add_up_and_are_scaled_by_the_time_they_ran() {
    let mut fake = Fake::default();
    let mut at = |kind: Kind, place, reads: [(u64, u64, u64); 3]| {
        fake.script.insert((kind as u8, place), reads.to_vec());
    };
    for kind in Kind::ALL {
        // Before the recording 1000, then 100 in each interval. In the second interval, the second
        // thread's counter ran half of the time.
        at(kind, 10, [(1000, 50, 50), (1100, 60, 60), (1200, 70, 70)]);
        at(kind, 11, [(7, 5, 5), (57, 15, 15), (82, 25, 20)]);
        at(kind, -1, [(0, 0, 0), (500, 100, 100), (900, 200, 200)]);
        at(kind, -2, [(0, 0, 0), (300, 100, 100), (400, 200, 200)]);
    }
    let rows = recorded(fake, &all_count);
    assert_eq!(rows.len(), 4);
    let row = |row: &CounterRow| (row.interval, row.whose, row.counts.cycles, row.counted);
    assert_eq!(row(&rows[0]), (0, Whose::Server, Some(150), 1.0));
    assert_eq!(row(&rows[1]), (0, Whose::Machine, Some(800), 1.0));
    assert_eq!(row(&rows[2]), (1, Whose::Server, Some(150), 0.5), "25 in half of the time are 50");
    assert_eq!(row(&rows[3]), (1, Whose::Machine, Some(500), 1.0));
    let counts = &rows[2].counts;
    assert_eq!([counts.instructions, counts.cache_references, counts.cache_misses], [Some(150); 3]);
}

#[test]
fn an_event_that_never_counted_or_disappeared_is_not_zero() {
    let mut fake = Fake::default();
    for tid in [10, 11] {
        fake.script.insert((0, tid), vec![(0, 0, 0), (0, 100, 0), (0, 200, 0)]);
        // A thread that slept the whole time.
        fake.script.insert((1, tid), vec![(9, 5, 5); 3]);
    }
    let only_two = |_: &mut Fake, kind: Kind| match kind {
        Kind::Cycles | Kind::Instructions => Ok(()),
        _ => Err("none here".to_owned()),
    };
    let rows = recorded(fake, &only_two);
    let server = &rows[0];
    assert_eq!((server.counts.cycles, server.counts.instructions), (None, Some(0)));
    assert_eq!((server.counts.cache_references, server.counted), (None, 0.0));
    assert_eq!(rows[1].counts.cycles, None, "events of the CPUs that cannot be read");
}

#[test]
fn a_child_of_the_server_is_counted_with_it_and_others_separately() {
    let mut fake = Fake::default();
    fake.parents.insert(20, 10);
    fake.parents.insert(30, 1);
    fake.refuses = Some(31);
    let mut counters = Counters::of(fake, &[10], &all_count).unwrap();
    let opened = |counters: &Counters<Fake>, tid: u32| {
        let at = At::Thread(tid);
        counters.source.opened.iter().filter(|(_, place)| *place == at).count()
    };
    assert_eq!([opened(&counters, 10), opened(&counters, 11)], [4, 4]);
    assert_eq!(counters.follow(&[10, 20]), 0);
    assert_eq!(opened(&counters, 20), 0, "its parent's events are inherited");
    assert_eq!(counters.follow(&[10, 20, 30]), 1, "a thread that is not followed is reported");
    assert_eq!([opened(&counters, 30), opened(&counters, 31)], [4, 0]);
    assert_eq!(counters.follow(&[10, 20, 30]), 0, "once");
}

#[test]
fn an_implausible_count_is_rejected() {
    use super::probe::judge;
    assert_eq!(judge(Kind::Instructions, 8_000_300, 8_000_000), Ok(()));
    assert!(judge(Kind::Instructions, 8_100_000, 8_000_000).is_err());
    assert!(judge(Kind::Instructions, 7_000_000, 8_000_000).is_err());
    assert_eq!(judge(Kind::Cycles, 4_100_000, 8_000_000), Ok(()));
    assert!(judge(Kind::Cycles, 8_000_000_000, 8_000_000).is_err());
    for kind in Kind::ALL {
        assert!(judge(kind, 0, 8_000_000).is_err_and(|why| why.contains("zero")));
    }
}

#[test]
fn missing_kinds_give_their_reasons_in_one_sentence() {
    let none = |_: &mut Fake, kind: Kind| match kind {
        Kind::Cycles => Err("it reads zero".to_owned()),
        _ => Err("none here".to_owned()),
    };
    let Err(Unsupported(why)) = Counters::of(Fake::default(), &[1], &none) else {
        panic!("it counts nothing");
    };
    assert_eq!(
        why,
        "cycles: it reads zero; instructions, cache references, cache misses: none here"
    );
    let one = |_: &mut Fake, kind: Kind| match kind {
        Kind::Instructions => Ok(()),
        _ => Err("none here".to_owned()),
    };
    let text = Counters::of(Fake::default(), &[1], &one).map(|counters| counters.describe());
    let text = text.unwrap_or_default();
    assert!(text.starts_with("instructions, of the server's") && text.contains("none here"));
}

/// Either the processor counts here and its figures are plausible, or the refusal says why.
#[test]
fn the_probe_accepts_this_machine_or_says_why_not() {
    match Counters::start(&[std::process::id()]) {
        Ok(counters) => {
            assert!(counters.describe().contains("of every CPU"), "{}", counters.describe())
        }
        Err(Unsupported(why)) => {
            eprintln!("not supported here: {why}");
            let kinds = Kind::ALL.map(Kind::name);
            assert!(kinds.iter().all(|kind| why.contains(kind)), "{why}");
            let known = ["has no such counter", "reads zero", "not permitted", "counted", "perf"];
            assert!(known.iter().any(|reason| why.contains(reason)), "{why}");
        }
    }
}

/// The same path with events that the kernel itself counts: the pages that a child touches.
#[test]
fn a_child_process_is_counted_with_its_parent() {
    let software = |config: sys::perf_sw_ids| (sys::PERF_TYPE_SOFTWARE, u64::from(config));
    let what = [
        software(sys::PERF_COUNT_SW_TASK_CLOCK),
        software(sys::PERF_COUNT_SW_PAGE_FAULTS),
        software(sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
        software(sys::PERF_COUNT_SW_CPU_MIGRATIONS),
    ];
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "read go; head -c 40000000 /dev/zero | tail -c 40000000 > /dev/null; read end",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = shell.id();
    let started = Counters::of(Perf::of(what), &[pid], &|_, _| Ok(()));
    let mut orders = shell.stdin.take().unwrap();
    let mut order = || io::Write::write_all(&mut orders, b"go\n").unwrap();
    let mut counters = match started {
        Ok(counters) => counters,
        Err(Unsupported(why)) => {
            eprintln!("not supported here: {why}");
            order();
            order();
            shell.wait().unwrap();
            return;
        }
    };
    counters.baseline(&[pid]);
    order();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let begun = std::time::Instant::now();
    let mut came = false;
    // When its children have come and gone, everything is done.
    while begun.elapsed().as_secs() < 30 {
        let list = std::fs::read_to_string(&children).unwrap_or_default();
        came |= !list.trim().is_empty();
        if came && list.trim().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let row = counters.row(0, Whose::Server);
    order();
    shell.wait().unwrap();
    // tail buffers 40 MB, in 4 KiB pages or in larger ones that count once.
    let (clock_ns, faults) = (row.counts.cycles.unwrap(), row.counts.instructions.unwrap());
    assert!(clock_ns > 1_000_000, "{row:?}");
    assert!(faults > 50 && faults < 40_000, "{row:?}");
    assert_eq!(row.counted, 1.0);
}

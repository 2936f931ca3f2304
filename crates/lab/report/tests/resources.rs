//! Generated trials with a known tightest resource: the report names it, its interval contains the
//! true capacity, and resources that do not limit have a reason.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

use report::{
    Analysis, CompareOptions, Options, Resource, ResourceKind, analyse, compare, html, terminal,
};
use trial::resources::{BoundThread, Device, DeviceKind, DeviceUse};
use trial::stretches::{SIZES, StretchKind, StretchRow, TurnRow};
use trial::{CpuModes, Interval, Manifest, Modes, ProcessTimes, ThreadTimes, Trial, Writer};

const SECOND_NS: i64 = 1_000_000_000;
const START_NS: i64 = 1_769_860_800_000_000_000;
const CPUS: u32 = 4;
/// The CPU that the thread runs on, if it is pinned.
const ITS_CPU: u32 = 2;

/// The cost of a request for each resource, and the resource's other load.
#[derive(Clone, Copy)]
struct Server {
    /// CPU seconds of its only thread.
    thread: f64,
    /// Seconds of interrupts, and their CPU.
    interrupts: (f64, u32),
    /// CPU seconds of other processes on the machine.
    others: f64,
    /// Busy seconds of the disk, and its busy seconds per second without requests.
    disk: (f64, f64),
    one_at_a_time: bool,
    /// Bytes sent.
    sent: f64,
    bytes_per_s: Option<u64>,
    bound: bool,
}

/// A server limited by its thread, at 1960 requests/s; all other resources are far from their caps.
const PLAIN: Server = Server {
    thread: 0.0005,
    interrupts: (0.00002, 0),
    others: 0.0,
    disk: (0.00001, 0.01),
    one_at_a_time: true,
    sent: 10_000.0,
    bytes_per_s: Some(125_000_000),
    bound: false,
};

impl Server {
    fn made(&self) -> Made {
        let mut seed = 11u64;
        // Two percent of noise, so that every line has residuals.
        let mut noise = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1.0 + 0.07 * ((seed >> 33) as f64 / f64::from(1u32 << 31) - 0.5)
        };
        let (mut intervals, mut devices) = (Vec::new(), Vec::new());
        for k in 0..90u64 {
            // It rises and falls three times, so that drift is not taken for a cost.
            let rate = 500.0 - 430.0 * (std::f64::consts::TAU * 3.0 * k as f64 / 90.0).cos();
            let mut of = |cost: f64, fixed: f64| {
                let use_of = (fixed + cost * rate) * noise();
                (use_of.max(0.0) * SECOND_NS as f64) as i64
            };
            let thread_ns = of(self.thread, 0.02);
            let interrupts_ns = of(self.interrupts.0, 0.001);
            let others_ns = of(self.others, 0.0);
            let busy_ns = of(self.disk.0, self.disk.1);
            let sent = of(self.sent, 0.0) / SECOND_NS;
            intervals.push(interval(
                k,
                rate,
                thread_ns,
                others_ns,
                self.interrupts.1,
                interrupts_ns,
            ));
            devices.push(self.disk_use(k, busy_ns));
            devices.push(self.card_use(k, sent.unsigned_abs(), rate as u64));
        }
        let bound = if self.bound { vec![7] } else { Vec::new() };
        Made { intervals, devices, bound, stretches: Vec::new() }
    }

    fn disk_use(&self, interval: u64, busy_ns: i64) -> DeviceUse {
        let device = Device {
            kind: DeviceKind::Disk,
            name: "sda".to_string(),
            bytes_per_s: None,
            one_at_a_time: self.one_at_a_time,
        };
        DeviceUse {
            interval,
            device,
            busy_ns: Some(busy_ns),
            in_bytes: 4096,
            out_bytes: 0,
            in_count: 1,
            out_count: 0,
        }
    }

    fn card_use(&self, interval: u64, sent: u64, packets: u64) -> DeviceUse {
        let device = Device {
            kind: DeviceKind::Nic,
            name: "eth0".to_string(),
            bytes_per_s: self.bytes_per_s,
            one_at_a_time: false,
        };
        DeviceUse {
            interval,
            device,
            busy_ns: None,
            in_bytes: sent / 50,
            out_bytes: sent,
            in_count: packets,
            out_count: packets,
        }
    }

    fn analysed(&self) -> Analysis {
        analyse(&self.made().open(), &Options::default()).unwrap()
    }
}

/// A trial to be written.
struct Made {
    intervals: Vec<Interval>,
    devices: Vec<DeviceUse>,
    /// Threads that are pinned to a CPU.
    bound: Vec<u32>,
    stretches: Vec<(TurnRow, Vec<StretchRow>)>,
}

impl Made {
    /// Writes it to a file and reads it back.
    fn open(&self) -> Trial {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("made.trial");
        let mut manifest = Manifest { interval_ns: SECOND_NS, ..Manifest::default() };
        manifest.host.cpus = CPUS;
        let mut writer = Writer::create(&path, &manifest).unwrap();
        writer.device_uses(&self.devices);
        let bound = self.bound.iter().map(|&tid| BoundThread { pid: 7, tid, cpu: ITS_CPU });
        writer.bound_threads(&bound.collect::<Vec<_>>());
        self.intervals.iter().for_each(|interval| writer.append(interval).unwrap());
        self.stretches.iter().for_each(|(turns, rows)| writer.stretches(*turns, rows));
        writer.finish().unwrap();
        Trial::open(&path).unwrap()
    }
}

fn interval(
    index: u64,
    rate: f64,
    thread_ns: i64,
    others_ns: i64,
    interrupted: u32,
    interrupts_ns: i64,
) -> Interval {
    let cpu = |cpu: u32| {
        let user_ns = if cpu == ITS_CPU { thread_ns } else { 0 };
        let user_ns = user_ns + if cpu == 0 { others_ns } else { 0 };
        let softirq_ns = if cpu == interrupted { interrupts_ns } else { 0 };
        let idle_ns = SECOND_NS - user_ns - softirq_ns;
        CpuModes { cpu, modes: Modes { user_ns, softirq_ns, idle_ns, ..Modes::default() } }
    };
    let user_ns = thread_ns + others_ns;
    let idle_ns = i64::from(CPUS) * SECOND_NS - user_ns - interrupts_ns;
    Interval {
        index,
        start_ns: START_NS + index.cast_signed() * SECOND_NS,
        length_ns: SECOND_NS,
        machine: Modes { user_ns, softirq_ns: interrupts_ns, idle_ns, ..Modes::default() },
        server: Some(ProcessTimes {
            user_ns: thread_ns,
            total_ns: thread_ns,
            processes: 1,
            threads: 1,
            ..ProcessTimes::default()
        }),
        cpus: (0..CPUS).map(cpu).collect(),
        threads: vec![ThreadTimes {
            pid: 7,
            tid: 7,
            name: "worker".to_string(),
            total_ns: thread_ns,
            user_ns: thread_ns,
            kernel_ns: 0,
            wakes: 100,
        }],
        requests: rate,
        requests_ended: rate as u64,
        rate_valid: true,
        ..Interval::default()
    }
}

/// Checks that the limiting resource comes first and that its interval contains the true capacity.
fn limits(analysis: &Analysis, name: &str, truth: f64) {
    let first = &analysis.resources[0];
    let text = terminal(analysis, 100);
    assert_eq!(first.name, name, "{text}");
    assert_eq!(analysis.capacity.resource_name, name);
    let (low, high) = analysis.capacity.low.zip(analysis.capacity.high).unwrap();
    assert!((low..=high).contains(&truth), "{truth} in {low} to {high}\n{text}");
    assert!(text.contains(&format!("Limit      {name} (")), "{text}");
    let page = html(analysis);
    assert!(page.contains(name));
    // A copy to view in a browser.
    let file = name.replace([' ', ','], "_");
    std::fs::write(format!("{}/{file}.html", env!("CARGO_TARGET_TMPDIR")), &page).unwrap();
    std::fs::write(format!("{}/{file}.txt", env!("CARGO_TARGET_TMPDIR")), &text).unwrap();
}

fn resource<'a>(analysis: &'a Analysis, name: &str) -> &'a Resource {
    analysis.resources.iter().find(|resource| resource.name == name).unwrap()
}

#[test]
fn the_thread_limits_if_everything_else_is_far_from_its_cap() {
    let analysis = PLAIN.analysed();
    limits(&analysis, "hottest thread", 0.98 / 0.0005);
    for name in ["disk sda", "card eth0", "interrupts, CPU 0"] {
        let capacity = resource(&analysis, name).line.as_ref().unwrap().capacity().value;
        assert!(capacity > 5_000.0, "{name}: {capacity}");
    }
    assert_eq!(analysis.capacity.value, analysis.capacity_of_cpu.value);
}

#[test]
fn a_disk_that_is_exhausted_first_limits_and_costs_are_still_of_the_cpu() {
    let server = Server { disk: (0.0009, 0.05), ..PLAIN };
    let analysis = server.analysed();
    limits(&analysis, "disk sda", 0.95 / 0.0009);
    assert_eq!(analysis.capacity.resource, ResourceKind::Disk);
    assert_eq!(analysis.capacity_of_cpu.resource, ResourceKind::HottestThread);
    assert_eq!(analysis.capacity_straight.resource, ResourceKind::HottestThread);
    let user = analysis.modes.lines.iter().find(|line| line.mode == "user").unwrap();
    assert!((user.us_per_request - 500.0).abs() < 25.0, "{}", user.us_per_request);
    let text = terminal(&analysis, 100);
    assert!(text.contains("disk sda, straight line"), "{text}");
    assert!(text.contains("Next       hottest thread, at "), "{text}");
    assert!(!text.contains("either may limit first"), "{text}");
}

#[test]
fn a_disk_that_serves_several_at_once_is_shown_and_limits_nothing() {
    let server = Server { disk: (0.0009, 0.05), one_at_a_time: false, ..PLAIN };
    let analysis = server.analysed();
    limits(&analysis, "hottest thread", 0.98 / 0.0005);
    let disk = resource(&analysis, "disk sda");
    assert!(!disk.may_limit && disk.line.is_some());
    assert!(terminal(&analysis, 100).contains("lower bound: serves several"));
}

#[test]
fn a_disk_used_by_others_does_not_limit_because_it_does_not_follow_the_rate() {
    let server = Server { disk: (0.0, 0.6), ..PLAIN };
    let analysis = server.analysed();
    limits(&analysis, "hottest thread", 0.98 / 0.0005);
    let text = terminal(&analysis, 160);
    assert!(text.contains("not limiting: its use does not rise with the rate (t = "), "{text}");
}

/// "Carries 640 requests/s until its disk is full" was the headline beside a build.
#[test]
fn a_disk_of_which_only_a_bound_is_known_does_not_limit() {
    let mut made = PLAIN.made();
    for (at, one) in made.devices.iter_mut().filter(|one| one.busy_ns.is_some()).enumerate() {
        let part = (37 * at % 10) as f64 / 10.0;
        one.busy_ns = Some((made.intervals[at].rate() * 0.0018 * part * SECOND_NS as f64) as i64);
    }
    let analysis = analyse(&made.open(), &Options::default()).unwrap();
    limits(&analysis, "hottest thread", 0.98 / 0.0005);
    let disk = resource(&analysis, "disk sda").line.as_ref().unwrap().capacity();
    assert!(disk.identifiable.is_ok() && disk.value < 1_900.0, "{disk:?}");
}

#[test]
fn a_card_limits_only_if_its_speed_is_known() {
    let server = Server { sent: 100_000.0, ..PLAIN };
    let analysis = server.analysed();
    // The wire adds 24 bytes to each packet, and there is one packet per request.
    limits(&analysis, "card eth0", 125e6 / 100_024.0);
    assert!(terminal(&analysis, 100).contains("sending, 1000 Mbit/s"));
    let unknown = Server { bytes_per_s: None, ..server }.analysed();
    limits(&unknown, "hottest thread", 0.98 / 0.0005);
    let card = resource(&unknown, "card eth0");
    assert!(!card.may_limit && card.line.is_none() && card.cap.is_nan());
    assert!(terminal(&unknown, 160).contains("unknown speed"));
}

#[test]
fn interrupts_of_one_cpu_limit_unless_others_share_the_machine() {
    let server = Server { interrupts: (0.0008, 0), ..PLAIN };
    limits(&server.analysed(), "interrupts, CPU 0", 0.999 / 0.0008);
    // With a generator on the same machine, it is unknown whose traffic the interrupts serve.
    let shared = Server { others: 0.0003, ..server }.analysed();
    limits(&shared, "hottest thread", 0.98 / 0.0005);
    let remark = resource(&shared, "interrupts, CPU 0").remark.clone().unwrap();
    assert!(remark.ends_with("% of the other load"), "{remark}");
}

#[test]
fn a_cpu_limits_if_a_pinned_thread_shares_it() {
    let server = Server { interrupts: (0.0004, ITS_CPU), bound: true, ..PLAIN };
    limits(&server.analysed(), "CPU 2", 0.979 / 0.0009);
    let free = Server { bound: false, ..server }.analysed();
    limits(&free, "hottest thread", 0.98 / 0.0005);
    let remark = resource(&free, "CPU 2").remark.clone().unwrap();
    assert_eq!(remark, "no working thread is pinned to it: its work can move");
    let alone = Server { bound: true, ..PLAIN }.analysed();
    limits(&alone, "hottest thread", 0.98 / 0.0005);
    let remark = resource(&alone, "CPU 2").remark.clone().unwrap();
    assert_eq!(remark, "little more than the thread pinned to it");
}

/// Varnish, pinned to one CPU, was said to carry two million requests a second: each of its threads
/// was far from one CPU.
#[test]
fn many_threads_on_one_cpu_have_the_capacity_of_that_cpu() {
    let mut made = PLAIN.made();
    for interval in &mut made.intervals {
        let all = interval.threads[0].clone();
        let part = ThreadTimes { total_ns: all.total_ns / 64, user_ns: all.user_ns / 64, ..all };
        interval.threads = (0..64).map(|tid| ThreadTimes { tid, ..part.clone() }).collect();
    }
    made.bound = (0..64).collect();
    let bound = analyse(&made.open(), &Options::default()).unwrap();
    limits(&bound, "all threads", 0.98 / 0.0005);
    assert_eq!(resource(&bound, "all threads").cap, 1.0);
    let remark = |name: &str| resource(&bound, name).remark.clone().unwrap();
    assert_eq!(remark("hottest thread"), "others share its only CPU");
    assert_eq!(remark("machine"), "the server is pinned to 1 CPU");
    // Without a pin they may use all CPUs.
    made.bound.clear();
    let free = analyse(&made.open(), &Options::default()).unwrap();
    assert_eq!(resource(&free, "all threads").cap, f64::from(CPUS));
}

/// The interval of Apache with a process for each connection missed its saturation by half.
#[test]
fn processes_that_take_turns_are_cold_at_the_cap() {
    let cold_at_cap = |processes: bool| {
        let mut made = PLAIN.made();
        for interval in &mut made.intervals {
            interval.server.as_mut().unwrap().voluntary_switches = interval.requests as u64;
            let all = interval.threads[0].clone();
            let part =
                ThreadTimes { total_ns: all.total_ns / 64, user_ns: all.user_ns / 64, ..all };
            let pid = |tid| if processes { tid } else { 7 };
            interval.threads =
                (0..64).map(|tid| ThreadTimes { tid, pid: pid(tid), ..part.clone() }).collect();
        }
        let found = analyse(&made.open(), &Options::default()).unwrap();
        resource(&found, "all threads").line.as_ref().unwrap().busy.as_ref().unwrap().cold_at_cap
    };
    assert_eq!(cold_at_cap(false), 0.0);
    assert!(cold_at_cap(true) > 1.0);
}

/// Processes that a server replaces every few seconds are few at a time.
#[test]
fn processes_that_follow_each_other_do_not_take_turns() {
    let mut made = PLAIN.made();
    for (at, interval) in made.intervals.iter_mut().enumerate() {
        interval.server.as_mut().unwrap().voluntary_switches = interval.requests as u64;
        let all = interval.threads[0].clone();
        let part = ThreadTimes { total_ns: all.total_ns / 2, user_ns: all.user_ns / 2, ..all };
        let pids = [at as u32 / 3, 1000 + at as u32 / 3];
        interval.threads = pids.map(|pid| ThreadTimes { pid, tid: pid, ..part.clone() }).into();
    }
    let found = analyse(&made.open(), &Options::default()).unwrap();
    let line = resource(&found, "all threads").line.as_ref().unwrap();
    assert_eq!(line.busy.as_ref().unwrap().cold_at_cap, 0.0);
}

/// A server with turns in one interval of ten: a turn costs 300 us, and each receive 400. There are
/// so many turns and busy periods of each size, in the busier half and in the others.
fn with_turns(of_size: fn(u32) -> u64, change: fn(&mut Made)) -> Option<regress::Marginal> {
    let mut made = PLAIN.made();
    for interval in &mut made.intervals {
        // A loop that sleeps less the busier it is.
        let awake = interval.threads[0].total_ns as f64 / SECOND_NS as f64;
        let wakes = interval.requests * (1.0 - 1.5 * awake);
        interval.threads[0].wakes = wakes as u64;
    }
    for row in made.intervals.iter().step_by(10) {
        let quiet = row.server.unwrap().total_ns < made.intervals[25].server.unwrap().total_ns / 3;
        let receive_ns = if quiet { 900_000 } else { 400_000 };
        let of = |kind, size: u32| StretchRow {
            interval: row.index,
            kind,
            held: false,
            served: true,
            size,
            stretches: of_size(size),
            turns: of_size(size),
            clients: of_size(size) * u64::from(size),
            upstreams: 0,
            cpu_ns: of_size(size).cast_signed() * (300_000 + receive_ns * i64::from(size)),
        };
        let kinds = [StretchKind::Turn, StretchKind::Period];
        let sizes =
            kinds.into_iter().flat_map(|kind| SIZES[1..].iter().map(move |&size| (kind, size)));
        let rows: Vec<StretchRow> = sizes.map(|(kind, size)| of(kind, size)).collect();
        let clients = rows.iter().map(|row| row.clients).sum::<u64>() / 2;
        let sampled_ns = (clients as f64 / row.requests * SECOND_NS as f64) as i64;
        let turns = clients / 5;
        let of_turns = TurnRow { interval: row.index, sampled_ns, turns, clients, upstreams: 0 };
        made.stretches.push((of_turns, rows));
    }
    change(&mut made);
    let found = analyse(&made.open(), &Options::default()).unwrap();
    resource(&found, "hottest thread").line.as_ref().unwrap().busy.as_ref().unwrap().marginal
}

#[test]
fn turns_with_several_receives_say_what_a_request_more_costs() {
    let found = with_turns(|_| 20, |_| {}).unwrap();
    assert!((found.at_cap / 400e-6 - 1.0).abs() < 5e-3, "{found:?}");
    // Threads that block have one receive in most.
    assert_eq!(with_turns(|size| if size == 1 { 900 } else { 1 }, |_| {}), None);
}

#[test]
fn a_thread_has_its_share_of_the_turns() {
    let half = |made: &mut Made| {
        for interval in &mut made.intervals {
            let all = interval.threads[0].clone();
            let part = |tid: u32, of: i64| ThreadTimes {
                tid,
                total_ns: all.total_ns * of / 100,
                user_ns: all.user_ns * of / 100,
                kernel_ns: all.kernel_ns * of / 100,
                ..all.clone()
            };
            interval.threads = vec![part(7, 60), part(8, 40)];
        }
    };
    let found = with_turns(|_| 20, half).unwrap();
    assert!((found.at_cap / (0.6 * 400e-6) - 1.0).abs() < 5e-3, "{found:?}");
}

/// Turns of the warm-up, when requests cost twice as much, changed the capacity.
#[test]
fn turns_of_intervals_that_are_not_fitted_do_not_count() {
    let warm_up = |made: &mut Made| {
        let last = made.intervals.len() - 1;
        let index = made.intervals[last - last % 10].index;
        made.intervals[last - last % 10].phase = Some("warm-up".to_string());
        let (_, rows) = made.stretches.iter_mut().find(|(t, _)| t.interval == index).unwrap();
        rows.iter_mut().for_each(|row| row.cpu_ns *= i64::from(row.size));
    };
    let found = with_turns(|_| 20, warm_up).unwrap();
    assert!((found.at_cap / 400e-6 - 1.0).abs() < 5e-3, "{found:?}");
}

/// A constant rate had no capacity, whatever was known.
#[test]
fn a_constant_rate_has_a_capacity_if_turns_show_the_cost() {
    fn constant(made: &mut Made) {
        let like = made.intervals[25].clone();
        for (at, interval) in made.intervals.iter_mut().enumerate() {
            let requests = like.requests * (1.0 + 0.01 * (at % 3) as f64);
            let (index, start_ns) = (interval.index, interval.start_ns);
            *interval = Interval { index, start_ns, requests, ..like.clone() };
            interval.threads[0].total_ns += 1_000_000 * (at % 5) as i64;
            interval.threads[0].user_ns += 1_000_000 * (at % 5) as i64;
        }
    }
    let mut made = PLAIN.made();
    constant(&mut made);
    let without = analyse(&made.open(), &Options::default()).unwrap();
    assert!(without.capacity.value.is_none(), "{:?}", without.capacity);
    assert!(with_turns(|_| 20, constant).is_some());
}

#[test]
fn two_resources_with_overlapping_intervals_may_both_limit() {
    let analysis = Server { disk: (0.00052, 0.02), ..PLAIN }.analysed();
    let text = terminal(&analysis, 160);
    assert!(text.contains("the two intervals overlap, so either may limit first"), "{text}");
}

#[test]
fn only_the_busiest_of_many_cpus_are_fitted() {
    let mut made = PLAIN.made();
    for interval in &mut made.intervals {
        let like = interval.cpus[ITS_CPU as usize].modes;
        interval.cpus.extend((CPUS..100).map(|cpu| CpuModes { cpu, modes: like }));
    }
    let analysis = analyse(&made.open(), &Options::default()).unwrap();
    let of_kind = |kind| analysis.resources.iter().filter(|one| one.kind == kind).count();
    assert_eq!((of_kind(ResourceKind::Cpu), of_kind(ResourceKind::Disk)), (4, 1));
}

#[test]
fn a_requested_resource_is_reported() {
    let trial = PLAIN.made().open();
    let options = Options { resource: Some(ResourceKind::Disk), ..Options::default() };
    let analysis = analyse(&trial, &options).unwrap();
    assert_eq!(analysis.capacity.resource_name, "disk sda");
    assert_eq!(analysis.capacity_of_cpu.resource, ResourceKind::HottestThread);
}

#[test]
fn a_comparison_is_of_cpu_time_and_says_so_if_a_device_is_exhausted_first() {
    let before = PLAIN.made().open();
    let after = Server { disk: (0.0009, 0.05), ..PLAIN }.made().open();
    let found = compare(&before, &after, &CompareOptions::default()).unwrap();
    assert_eq!(found.after.capacity.resource, ResourceKind::HottestThread);
    let said: Vec<&String> =
        found.remarks.iter().filter(|text| text.contains("is exhausted first")).collect();
    assert_eq!(said.len(), 1, "{:?}", found.remarks);
    assert!(said[0].starts_with("made.trial: disk sda is exhausted first, at 1,0"), "{}", said[0]);
}

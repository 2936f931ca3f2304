//! Resources other than the server's own CPU time: each CPU, the interrupts on it, disks, network
//! cards, and the threads that answer ([`super::answers`]).
//!
//! When each kind may limit:
//! - **A CPU**, if work is pinned to it. The scheduler moves other work away from a busy CPU, so
//!   that the CPU's own line ends too early; then the threads and the machine are the resources. If
//!   a thread of the server is pinned to the CPU and shares it with other work (the interrupts of a
//!   card), the CPU is exhausted before the thread is.
//! - **Interrupts of a CPU**: the scheduler cannot move a card's interrupts. Like the machine,
//!   interrupts limit only if the server is most of everything else that runs, because it is
//!   unknown whose traffic the interrupts serve.
//! - **A disk** that serves one request at a time, by its busy time. A disk that serves several
//!   requests at once is always busy long before it is exhausted, so that its line gives a lower
//!   bound.
//! - **A network card**, by the traffic in its busier direction, including the wire overhead of
//!   each packet, as a share of its speed. If the speed is unknown, there is no capacity, and the
//!   report says so.

use std::collections::BTreeMap;

use trial::resources::{Device, DeviceKind, DeviceUse};
use trial::{Interval, Modes, Trial};

use super::answers;
use super::fit::MACHINE_SHARE_MIN;
use super::resource::{Series, ThreadTotals, Use, share_of};
use super::{Resource, ResourceKind};
use crate::format::bytes;

/// Resources of one kind that are fitted, the busiest first. A machine with 100 CPUs would have 100
/// lines, nearly all of them far from their caps.
const FITTED_MAX: usize = 4;

/// A resource with less use than this over the trial, percent, was idle.
const IDLE_PERCENT: f64 = 0.1;

/// Threads pinned to a CPU limit the server only if they have this share of its time.
const PINNED_SHARE_MIN: f64 = 0.10;

/// A CPU this many times as busy as the threads pinned to it is a separate resource.
const SHARED_MIN: f64 = 1.1;

/// Bytes that Ethernet adds on the wire to each packet that the kernel counts: preamble 8, checksum
/// 4, gap 12.
const WIRE_BYTES_PER_PACKET: u64 = 24;

/// The resources that can be fitted.
pub(super) fn series_of(trial: &Trial) -> Vec<Series> {
    let intervals = trial.intervals();
    let uses = by_device(trial);
    let disks = uses.iter().filter(|(device, _)| device.kind == DeviceKind::Disk);
    let disks = disks.map(|(device, rows)| disk(device, rows, intervals)).collect();
    let cards = uses.iter().filter_map(|(device, rows)| card(device, rows, intervals)).collect();
    let mut found = Vec::new();
    for of_kind in [cpus(trial), interrupts(intervals), disks, cards] {
        found.extend(busiest(of_kind, intervals));
    }
    found.extend(answers::series(trial));
    found
}

/// Cards of unknown speed, which are listed without a line.
pub(super) fn without_limit(trial: &Trial) -> Vec<Resource> {
    let uses = by_device(trial);
    let unknown = uses.into_iter().filter(|(device, _)| {
        device.kind == DeviceKind::Nic && device.bytes_per_s.unwrap_or(0) == 0
    });
    let row = |(device, rows): (&Device, BTreeMap<u64, &DeviceUse>)| {
        let (_, direction, most) = busier(&rows, trial.intervals());
        let remark =
            format!("unknown speed, so no capacity; at most {}/s {direction}", bytes(most as u64));
        Resource {
            kind: ResourceKind::Nic,
            name: name_of(device),
            detail: direction.to_string(),
            takes_turns: None,
            cap: f64::NAN,
            may_limit: false,
            remark: Some(remark),
            line: None,
            unfit: Some("the speed of the card is not known".to_string()),
            points: Vec::new(),
        }
    };
    unknown.map(row).take(FITTED_MAX).collect()
}

/// The activity of each device, by interval.
fn by_device(trial: &Trial) -> BTreeMap<&Device, BTreeMap<u64, &DeviceUse>> {
    let mut found: BTreeMap<&Device, BTreeMap<u64, &DeviceUse>> = BTreeMap::new();
    for row in trial.device_uses() {
        found.entry(&row.device).or_default().insert(row.interval, row);
    }
    found
}

fn name_of(device: &Device) -> String {
    let kind = match device.kind {
        DeviceKind::Disk => "disk",
        DeviceKind::Nic => "card",
    };
    format!("{kind} {}", device.name)
}

/// A resource without modes, from its use in each interval as a share of its cap.
fn series(
    (kind, name, detail): (ResourceKind, String, String),
    intervals: &[Interval],
    share: impl Fn(&Interval) -> Option<f64>,
) -> Series {
    let uses = intervals.iter().map(|interval| {
        let kernel = 100.0 * share(interval)?.min(1.0);
        Some(Use { user: 0.0, kernel, idle: 100.0 - kernel, wakes: None })
    });
    let uses = uses.collect();
    Series { kind, name, cap: 1.0, detail, uses, ..Series::default() }
}

fn disk(device: &Device, rows: &BTreeMap<u64, &DeviceUse>, intervals: &[Interval]) -> Series {
    let named = (ResourceKind::Disk, name_of(device), "busy time".to_string());
    let mut found = series(named, intervals, |interval| {
        let busy = rows.get(&interval.index).and_then(|row| row.busy_ns).unwrap_or(0);
        (interval.length_ns > 0).then(|| busy as f64 / interval.length_ns as f64)
    });
    if !device.one_at_a_time {
        let why = "lower bound: serves several requests at once";
        found.why_not_limiting = Some(why.to_string());
    }
    found
}

/// `None` for a disk, and for a card whose speed is not known.
fn card(
    device: &Device,
    rows: &BTreeMap<u64, &DeviceUse>,
    intervals: &[Interval],
) -> Option<Series> {
    let speed = device.bytes_per_s.filter(|_| device.kind == DeviceKind::Nic)?;
    let (out, direction, _) = busier(rows, intervals);
    let detail = format!("{direction}, {} Mbit/s", speed / 125_000);
    let named = (ResourceKind::Nic, name_of(device), detail);
    (speed > 0).then(|| {
        series(named, intervals, |interval| {
            let sent = rows.get(&interval.index).map_or(0, |row| on_the_wire(row, out));
            let seconds = interval.length_ns as f64 / 1e9;
            (seconds > 0.0).then(|| sent as f64 / seconds / speed as f64)
        })
    })
}

fn on_the_wire(row: &DeviceUse, out: bool) -> u64 {
    let (bytes, packets) =
        if out { (row.out_bytes, row.out_count) } else { (row.in_bytes, row.in_count) };
    bytes.saturating_add(packets.saturating_mul(WIRE_BYTES_PER_PACKET))
}

/// Whether more is sent than received, that direction in a word, and its highest rate, bytes/s.
fn busier(rows: &BTreeMap<u64, &DeviceUse>, intervals: &[Interval]) -> (bool, &'static str, f64) {
    let total = |out: bool| rows.values().map(|row| on_the_wire(row, out) as f64).sum::<f64>();
    let out = total(true) >= total(false);
    let lengths = intervals.iter().filter(|interval| interval.length_ns > 0);
    let rates = lengths.filter_map(|interval| {
        let row = rows.get(&interval.index)?;
        Some(on_the_wire(row, out) as f64 / (interval.length_ns as f64 / 1e9))
    });
    (out, if out { "sending" } else { "receiving" }, rates.fold(0.0, f64::max))
}

/// The modes of one CPU in an interval.
fn modes_of(interval: &Interval, cpu: u32) -> Option<&Modes> {
    let found = interval.cpus.iter().find(|one| one.cpu == cpu);
    found.map(|one| &one.modes).filter(|modes| modes.total_ns() > 0)
}

fn interrupts_ns(modes: &Modes) -> i64 {
    modes.irq_ns + modes.softirq_ns
}

/// The numbers of the CPUs in the trial.
fn numbers(intervals: &[Interval]) -> Vec<u32> {
    let mut cpus: Vec<u32> =
        intervals.iter().flat_map(|interval| interval.cpus.iter().map(|one| one.cpu)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn cpus(trial: &Trial) -> Vec<Series> {
    let intervals = trial.intervals();
    let numbers = numbers(intervals);
    if numbers.len() < 2 {
        return Vec::new();
    }
    let pinned = Pinned::of(trial);
    let line = |cpu: u32| {
        let uses = intervals.iter().map(|interval| modes_of(interval, cpu).map(Use::of));
        Series {
            kind: ResourceKind::Cpu,
            name: format!("CPU {cpu}"),
            cap: 1.0,
            detail: "all load on it".to_string(),
            uses: uses.collect(),
            why_not_limiting: pinned.why_not_limiting(cpu, intervals),
            ..Series::default()
        }
    };
    numbers.into_iter().map(line).collect()
}

/// CPU time of the threads that are pinned to one CPU.
struct Pinned {
    by_cpu: BTreeMap<u32, i64>,
}

impl Pinned {
    fn of(trial: &Trial) -> Pinned {
        let threads = ThreadTotals::of(trial.intervals());
        let least = PINNED_SHARE_MIN * threads.ns() as f64;
        let mut by_cpu = threads.pinned_ns(trial);
        by_cpu.retain(|_, ns| *ns as f64 > least);
        Pinned { by_cpu }
    }

    /// Why a CPU does not limit the server, if it does not.
    fn why_not_limiting(&self, cpu: u32, intervals: &[Interval]) -> Option<String> {
        let Some(&bound) = self.by_cpu.get(&cpu) else {
            return Some("no working thread is pinned to it: its work can move".to_string());
        };
        let modes = || intervals.iter().filter_map(|interval| modes_of(interval, cpu));
        let busy = modes().map(Modes::busy_ns).sum::<i64>() as f64;
        let interrupts = modes().map(interrupts_ns).sum::<i64>() as f64;
        if busy < SHARED_MIN * bound as f64 {
            return Some("little more than the thread pinned to it".to_string());
        }
        let share = (bound as f64 + interrupts) / busy;
        let percent = 100.0 * share;
        (share < MACHINE_SHARE_MIN).then(|| format!("server share {percent:.0} %"))
    }
}

fn interrupts(intervals: &[Interval]) -> Vec<Series> {
    let why_not_limiting = share_of_the_rest(intervals)
        .filter(|share| *share < MACHINE_SHARE_MIN)
        .map(|share| format!("the server is {:.0} % of the other load", 100.0 * share));
    let line = |cpu: u32| {
        let name = format!("interrupts, CPU {cpu}");
        let named = (ResourceKind::Interrupts, name, "hardware and soft interrupts".to_string());
        let share = |interval: &Interval| {
            let modes = modes_of(interval, cpu)?;
            Some(interrupts_ns(modes) as f64 / modes.total_ns() as f64)
        };
        Series { why_not_limiting: why_not_limiting.clone(), ..series(named, intervals, share) }
    };
    numbers(intervals).into_iter().map(line).collect()
}

/// The server's share of the machine's busy time without interrupts.
fn share_of_the_rest(intervals: &[Interval]) -> Option<f64> {
    share_of(intervals, |modes| modes.busy_ns() - interrupts_ns(modes))
}

/// The busiest resources that were not idle, those that may limit first.
fn busiest(all: Vec<Series>, intervals: &[Interval]) -> Vec<Series> {
    // The use weighted by the rate, so that a resource that is busy without load does not come
    // first.
    let weight = |series: &Series| {
        let seen = || intervals.iter().zip(&series.uses).filter(|(_, used)| used.is_some());
        let rates: f64 = seen().map(|(interval, _)| interval.rate()).sum();
        let busy = seen().map(|(interval, used)| interval.rate() * used.map_or(0.0, Use::busy));
        if rates > 0.0 { busy.sum::<f64>() / rates } else { 0.0 }
    };
    let mut ranked: Vec<(f64, Series)> = all
        .into_iter()
        .map(|series| (weight(&series), series))
        .filter(|(busy, _)| *busy >= IDLE_PERCENT)
        .collect();
    ranked.sort_by(|(a, one), (b, other)| {
        one.why_not_limiting.is_some().cmp(&other.why_not_limiting.is_some()).then(b.total_cmp(a))
    });
    ranked.into_iter().take(FITTED_MAX).map(|(_, series)| series).collect()
}

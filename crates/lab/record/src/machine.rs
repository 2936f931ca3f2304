//! The modes of the whole machine and of each CPU, from /proc/stat.
//!
//! The kernel counts in clock ticks. It also counts guest time a second time, inside user and nice
//! time, and sometimes lets idle and iowait run backwards by a tick. Here the modes are disjoint,
//! and a counter that ran backwards adds nothing until it has caught up.

use std::collections::BTreeMap;

use trial::{CpuModes, Modes};

/// The columns of a `cpu` line (proc(5)), with guest time removed from user and nice.
type Ticks = [i64; MODES];

const MODES: usize = 9;

/// Upper bound of a counter: a thousand years of a thousand CPUs.
const TICKS_MAX: i64 = 1 << 48;

/// Reads modes as differences between samples.
#[derive(Debug)]
pub(crate) struct Machine {
    tick_ns: i64,
    whole: Ticks,
    cpus: BTreeMap<u32, Ticks>,
}

impl Machine {
    /// Starts from the counters in `stat`, the content of /proc/stat. `None` if it does not parse.
    pub(crate) fn start(stat: &[u8], tick_ns: i64) -> Option<Machine> {
        let mut machine = Machine { tick_ns, whole: [0; MODES], cpus: BTreeMap::new() };
        let (whole, cpus) = parse(stat)?;
        machine.whole = whole;
        machine.cpus = cpus;
        Some(machine)
    }

    /// The growth of the modes since the last sample: of the machine, and of each CPU that is
    /// online.
    pub(crate) fn sample(&mut self, stat: &[u8]) -> Option<(Modes, Vec<CpuModes>)> {
        let (whole, cpus) = parse(stat)?;
        let modes = advance(&mut self.whole, whole, self.tick_ns);
        let mut each = Vec::with_capacity(cpus.len());
        for (cpu, now) in cpus {
            // A CPU that has come online starts from its current counters.
            let last = self.cpus.entry(cpu).or_insert(now);
            each.push(CpuModes { cpu, modes: advance(last, now, self.tick_ns) });
        }
        Some((modes, each))
    }
}

fn advance(last: &mut Ticks, now: Ticks, tick_ns: i64) -> Modes {
    let mut grown = [0; MODES];
    for mode in 0..MODES {
        grown[mode] = (now[mode] - last[mode]).max(0).saturating_mul(tick_ns);
        last[mode] = last[mode].max(now[mode]);
    }
    let [user_ns, nice_ns, system_ns, idle_ns, iowait_ns, irq_ns, softirq_ns, steal_ns, guest_ns] =
        grown;
    Modes {
        user_ns,
        nice_ns,
        system_ns,
        irq_ns,
        softirq_ns,
        idle_ns,
        iowait_ns,
        steal_ns,
        guest_ns,
    }
}

fn parse(stat: &[u8]) -> Option<(Ticks, BTreeMap<u32, Ticks>)> {
    let mut whole = None;
    let mut cpus = BTreeMap::new();
    for line in stat.split(|&byte| byte == b'\n') {
        // The cpu lines come first; the interrupt counters after them are long.
        let Some(line) = line.strip_prefix(b"cpu") else { break };
        let mut fields = std::str::from_utf8(line).ok()?.split(' ');
        let number = fields.next()?;
        let ticks = columns(fields)?;
        if number.is_empty() {
            whole = Some(ticks);
        } else {
            cpus.insert(number.parse().ok()?, ticks);
        }
    }
    Some((whole?, cpus))
}

fn columns<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Ticks> {
    let mut raw = [0i64; MODES + 1];
    let mut found = 0;
    for (slot, field) in raw.iter_mut().zip(fields.filter(|field| !field.is_empty())) {
        // Only garbage reaches the bound.
        *slot = TICKS_MAX.min(field.parse::<u64>().ok()?.try_into().ok()?);
        found += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = raw;
    (found >= 4).then_some([
        user - guest,
        nice - guest_nice,
        system,
        idle,
        iowait,
        irq,
        softirq,
        steal,
        guest + guest_nice,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEFORE: &[u8] =
        b"cpu  100 20 30 400 5 6 7 8 9 2\ncpu0 100 20 30 400 5 6 7 8 9 2\nintr 1\n";
    const AFTER: &[u8] = b"cpu  150 25 33 500 4 7 9 8 19 3\n\
        cpu0 110 20 30 400 5 6 7 8 9 2\ncpu3 1 1 1 1 1 1 1 1 0 0\nintr 1\n";

    #[test]
    fn modes_are_disjoint_and_never_negative() {
        let mut machine = Machine::start(BEFORE, 10).unwrap();
        let (whole, cpus) = machine.sample(AFTER).unwrap();
        assert_eq!(
            whole,
            Modes {
                user_ns: 400,
                nice_ns: 40,
                system_ns: 30,
                irq_ns: 10,
                softirq_ns: 20,
                idle_ns: 1000,
                iowait_ns: 0,
                steal_ns: 0,
                guest_ns: 110
            }
        );
        assert_eq!(cpus.len(), 2);
        assert_eq!((cpus[0].cpu, cpus[0].modes.total_ns()), (0, 100));
        assert_eq!((cpus[1].cpu, cpus[1].modes.total_ns()), (3, 0), "came online just now");
        // The iowait that ran back from 5 to 4 counts again only above 5.
        let (whole, _) = machine.sample(b"cpu  150 25 33 500 6 7 9 8 19 3\n").unwrap();
        assert_eq!((whole.iowait_ns, whole.total_ns()), (10, 10));
    }

    #[test]
    fn this_machine_is_readable() {
        let stat = std::fs::read("/proc/stat").unwrap();
        let mut machine = Machine::start(&stat, 10_000_000).unwrap();
        let (whole, cpus) = machine.sample(&stat).unwrap();
        assert_eq!(whole.total_ns(), 0);
        assert!(!cpus.is_empty());
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "(cpu[0-9 -]{0,60}\n){0,4}.{0,20}") {
            if let Some(mut machine) = Machine::start(BEFORE, 10) {
                let _ = machine.sample(text.as_bytes());
            }
            let _ = Machine::start(text.as_bytes(), 10);
        }
    }
}

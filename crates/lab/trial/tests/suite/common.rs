//! Test data for every table of a trial.

use trial::{
    Capability, CpuModes, Histogram, Host, Interval, LatencyRow, LatencySource, Loss, Manifest,
    Modes, Prediction, ProcessTimes, SCHEMA_VERSION, Server, ThreadTimes,
};

/// A manifest with every field set.
pub(crate) fn manifest() -> Manifest {
    Manifest {
        schema: SCHEMA_VERSION,
        created_ns: 1_770_000_000_000_000_000,
        tool_version: "0.1.0".to_owned(),
        host: Host {
            hostname: "web07".to_owned(),
            kernel: "Linux 6.18".to_owned(),
            cpus: 2,
            cpu_model: "a \"model\", with quotes".to_owned(),
            memory_bytes: 8 << 30,
            boot_id: Some("b".to_owned()),
            ticks_per_second: 100,
        },
        server: Server {
            name: "squid".to_owned(),
            pid: Some(17),
            pids: vec![17, 18],
            command_line: "squid -N".to_owned(),
            exe: "/usr/sbin/squid".to_owned(),
            version: None,
        },
        interval_ns: 1_000_000_000,
        log_path: Some("access.log".to_owned()),
        log_format: Some("squid".to_owned()),
        capabilities: vec![Capability {
            name: "log elapsed".to_owned(),
            supported: true,
            reason: "ms".to_owned(),
        }],
        notes: vec!["ünïcode".to_owned()],
        labels: [("release".to_owned(), "42".to_owned())].into(),
    }
}

/// An interval with every part, different for each number.
pub(crate) fn interval(index: u64) -> Interval {
    let n = index as i64;
    let modes = Modes {
        user_ns: 100 + n,
        nice_ns: 1,
        system_ns: 200 + n,
        irq_ns: 2,
        softirq_ns: 3,
        idle_ns: 700,
        iowait_ns: 4,
        steal_ns: 5,
        guest_ns: 6,
    };
    Interval {
        index,
        start_ns: 1_770_000_000_000_000_000 + n * 1_000_000_000,
        length_ns: 1_000_000_123,
        machine: modes,
        server: (index % 3 != 2).then_some(ProcessTimes {
            user_ns: 10 + n,
            kernel_ns: 20,
            total_ns: 30 + n,
            processes: 2,
            threads: 3,
            voluntary_switches: 400,
            involuntary_switches: 5,
            rss_bytes: 6 << 20,
            descriptors: index.is_multiple_of(2).then_some(70),
        }),
        cpus: vec![CpuModes { cpu: 0, modes }, CpuModes { cpu: 1, modes: Modes::default() }],
        threads: (0..index % 4)
            .map(|thread| ThreadTimes {
                pid: 17,
                tid: 17 + thread as u32,
                name: format!("worker {}", thread % 2),
                total_ns: 30,
                user_ns: 10,
                kernel_ns: 20,
                wakes: 9,
            })
            .collect(),
        requests: 1000.25 + index as f64,
        requests_ended: 1000 + index,
        rate_valid: index != 0,
        phase: (index == 1).then(|| "warm-up".to_owned()),
        recorder_ns: 999,
    }
}

/// Latencies of an interval.
pub(crate) fn latency(interval: u64, source: LatencySource) -> LatencyRow {
    let mut histogram = Histogram::new(3).expect("three digits are allowed");
    for value_us in [80, 90, 4_000_000] {
        histogram.record(value_us + interval).expect("it resizes");
    }
    LatencyRow::new(interval, source, interval == 1, &histogram)
}

/// A loss.
pub(crate) fn loss(count: u64, note: &str) -> Loss {
    Loss { kind: "log: late".to_owned(), count, note: note.to_owned() }
}

/// A prediction with an unbounded upper end.
pub(crate) fn prediction() -> Prediction {
    Prediction {
        name: "what-if select=0".to_owned(),
        made_at_ns: 1_770_000_000_000_000_001,
        quantity: "capacity requests/s".to_owned(),
        value: 106.0,
        low: Some(98.5),
        high: None,
        level: 0.95,
        model: "straight".to_owned(),
    }
}

//! A made-up fleet as a folder of trials.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use regress::Rng;
use trial::profile::{Frame, FrameMode, Owner, ProfileInfo, SampleRow, Stack};
use trial::{CpuModes, Interval, Manifest, Modes, ProcessTimes, ThreadTimes, Writer};

use super::{CPUS, DAY_S, Fleet, HZ, KINDS, Plan, RELEASES, STACKS, Server, Window};
use crate::home::{Error, WINDOW_S};

/// Length of an interval.
const INTERVAL_S: i64 = 30;
/// A recording, in seconds of the day: up to the daily peak.
const LONG_S: (i64, i64) = (44_400, 69_600);
/// Recordings of the growing group on other days.
const SHORT_S: (i64, i64) = (67_800, 69_000);
const PID: u32 = 700;
/// Threads that write: each mostly waits for the disk.
const WRITERS: usize = 4;

impl Plan {
    /// The fleet that [`Fleet::write`] is for: small, with enough days for a forecast.
    #[must_use]
    pub fn folder() -> Plan {
        Plan { servers: 36, days: 28, ..Plan::planted() }
    }
}

impl Fleet {
    /// Writes a trial of each server and release. It has seven hours of a day before and of a day
    /// after the release; those of the growing group also have twenty minutes of all other days.
    /// The folder must exist. `written` is called after each trial, with their number and how many
    /// there will be. Returns that.
    ///
    /// # Errors
    /// [`Error::File`] if a trial cannot be written, or exists.
    pub fn write(
        &self,
        folder: &Path,
        written: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<usize, Error> {
        let releases = |server: &Server| if server.released { 0..2 } else { 0..1 };
        let trials: Vec<(&Server, usize)> = self
            .servers
            .iter()
            .flat_map(|server| releases(server).map(move |run| (server, run)))
            .collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            while let Some((server, run)) = trials.get(next.fetch_add(1, Relaxed)) {
                let release = RELEASES[*run];
                let name = format!("{}-{}-{release}.trial", server.id.host, server.id.server);
                let path = folder.join(name);
                let windows = self.recorded(server, *run);
                self.write_one(server, &windows, &path).map_err(|error| {
                    next.store(trials.len(), Relaxed);
                    Error::File { path: path.display().to_string(), what: error.to_string() }
                })?;
                written(done.fetch_add(1, Relaxed) + 1, trials.len());
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|one| one.join().expect("writing does not panic"))
        })?;
        Ok(trials.len())
    }

    /// The windows of the trial of one release.
    fn recorded(&self, server: &Server, run: usize) -> Vec<Window> {
        let days = i64::from(self.plan.days);
        let long = [self.plan.release_window() * WINDOW_S / DAY_S - 1, days - 1];
        let grows = self.plan.growth.is_some() && server.kind == KINDS.len() - 1;
        let is_recorded = |window: &Window| {
            let since_s = window.start_s - self.plan.start_s;
            let (from, to) = match long.contains(&(since_s / DAY_S)) {
                true => LONG_S,
                false if grows => SHORT_S,
                false => return false,
            };
            window.run == run && (from..to).contains(&(since_s % DAY_S))
        };
        self.windows(server).filter(is_recorded).collect()
    }

    fn write_one(
        &self,
        server: &Server,
        windows: &[Window],
        path: &Path,
    ) -> Result<(), trial::Error> {
        let mut writer = Writer::create(path, &self.manifest(server, &windows[0]))?;
        let mut stacks = Vec::new();
        for (names, _) in STACKS {
            let mut frames = Vec::new();
            for name in names.iter().rev() {
                let (symbol, module) = (Some((*name).into()), server.id.server.clone());
                frames.push(writer.frame(&Frame { symbol, module, mode: FrameMode::User })?);
            }
            stacks.push(writer.stack(&Stack { frames, whole: true })?);
        }
        let per_window = (WINDOW_S / INTERVAL_S) as usize;
        let mut index = 0;
        let mut info = ProfileInfo {
            event: "cpu-clock".into(),
            hz: HZ as u32,
            unwinder: "made up".into(),
            ..ProfileInfo::default()
        };
        for window in windows {
            let start_ns = window.start_s * 1_000_000_000;
            let mut rng = Rng::new(window.seed ^ 1);
            for values in self.intervals(server, window, per_window) {
                let seconds = INTERVAL_S * (index % per_window as u64) as i64;
                let rows = self.samples(window, index, values[1], &stacks, &mut rng);
                info.samples += rows.iter().map(|row| u64::from(row.samples)).sum::<u64>();
                writer.samples(&rows)?;
                let start_ns = start_ns + seconds * 1_000_000_000;
                writer.append(&interval(index, start_ns, values, window.others, server))?;
                index += 1;
            }
        }
        (info.server_samples, info.user_samples) = (info.samples, info.samples);
        info.unwound_whole = info.samples;
        writer.profile_info(&info)?;
        writer.finish().map(|_| ())
    }

    fn manifest(&self, server: &Server, first: &Window) -> Manifest {
        let labels = self.labels(server, first.run);
        let mut manifest = Manifest {
            created_ns: first.start_s * 1_000_000_000,
            interval_ns: INTERVAL_S * 1_000_000_000,
            labels: labels.into_iter().map(|label| (label.name, label.value)).collect(),
            notes: vec!["made up by plimsoll fleet example".into()],
            ..Manifest::default()
        };
        manifest.host.hostname.clone_from(&server.id.host);
        manifest.host.cpus = CPUS;
        manifest.host.cpu_model = "made up".into();
        manifest.host.memory_bytes = 8 << 30;
        manifest.host.ticks_per_second = 100;
        manifest.server.name.clone_from(&server.id.server);
        manifest.server.pid = Some(PID + first.run as u32);
        manifest.server.pids = vec![PID + first.run as u32];
        manifest.server.version = Some(format!("1.{}", RELEASES[first.run]));
        manifest
    }

    fn samples(
        &self,
        window: &Window,
        interval: u64,
        used: f64,
        stacks: &[u32],
        rng: &mut Rng,
    ) -> Vec<SampleRow> {
        let samples = |share: f64| {
            let expected = HZ * INTERVAL_S as f64 * used * share;
            (expected + expected.sqrt() * rng.normal()).round().max(0.0) as u32
        };
        let counts = self.shares(window.run).map(samples);
        let row = |(stack, samples): (&u32, u32)| SampleRow {
            interval,
            owner: Owner::Server,
            stack: *stack,
            samples,
            ns: (f64::from(samples) * 1e9 / HZ) as i64,
        };
        stacks.iter().zip(counts).map(row).filter(|row| row.samples > 0).collect()
    }
}

fn interval(
    index: u64,
    start_ns: i64,
    [rate, used, wakes]: [f64; 3],
    others: f64,
    server: &Server,
) -> Interval {
    let length_ns = INTERVAL_S * 1_000_000_000;
    let ns = |part: f64| (part * length_ns as f64) as i64;
    let total_ns = ns(used);
    let kernel_ns = total_ns * 2 / 5;
    let user_ns = total_ns - kernel_ns;
    let wakes = (wakes * INTERVAL_S as f64) as u64;
    let all_ns = i64::from(CPUS) * length_ns;
    let user = user_ns + ns(others);
    let machine = Modes {
        user_ns: user,
        system_ns: kernel_ns,
        idle_ns: all_ns - user - kernel_ns,
        ..Modes::default()
    };
    let cpu = |cpu: u32| {
        let of_cpu = i64::from(CPUS);
        let (user_ns, system_ns) = (machine.user_ns / of_cpu, machine.system_ns / of_cpu);
        let idle_ns = length_ns - user_ns - system_ns;
        CpuModes { cpu, modes: Modes { user_ns, system_ns, idle_ns, ..Modes::default() } }
    };
    Interval {
        index,
        start_ns,
        length_ns,
        machine,
        server: Some(ProcessTimes {
            user_ns,
            kernel_ns,
            total_ns,
            processes: 1,
            threads: 1,
            voluntary_switches: wakes,
            rss_bytes: 64 << 20,
            ..ProcessTimes::default()
        }),
        cpus: (0..CPUS).map(cpu).collect(),
        threads: vec![ThreadTimes {
            pid: PID,
            tid: PID,
            name: server.id.server.clone(),
            total_ns,
            user_ns,
            kernel_ns,
            wakes,
        }],
        requests: rate * INTERVAL_S as f64,
        requests_ended: (rate * INTERVAL_S as f64) as u64,
        rate_valid: true,
        recorder_ns: 5_000_000,
        ..Interval::default()
    }
}

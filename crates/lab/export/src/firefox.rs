//! The processed profile of the Firefox profiler (profiler.firefox.com), as JSON.
//!
//! There is one track each for the server, the recorder and other processes, and one for requests.
//! A trial has the number of samples of a stack in an interval, not their times. So the stacks of
//! an interval are spread evenly over it, in the order of their numbers.

use std::collections::{BTreeMap, HashMap};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo,
    Profile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};
use trial::profile::{FrameMode, Owner, SampleRow};
use trial::{Interval, Trial};

use crate::no_profile;
use report::Error;
use report::{Analysis, frame_label};

/// The profile of a trial, JSON.
///
/// # Errors
/// [`Error::NoProfile`].
pub fn firefox(trial: &Trial, analysis: &Analysis) -> Result<Vec<u8>, Error> {
    let mut by_interval: BTreeMap<u64, Vec<&SampleRow>> = BTreeMap::new();
    for row in trial.samples().iter().filter(|row| row.owner != Owner::Idle) {
        by_interval.entry(row.interval).or_default().push(row);
    }
    if by_interval.is_empty() {
        return Err(no_profile(analysis));
    }
    let mut written = Written::new(trial, &analysis.trial.server);
    for interval in trial.intervals() {
        written.requests(interval);
        let rows = by_interval.get(&interval.index).map_or(&[][..], Vec::as_slice);
        written.samples(interval, rows);
    }
    Ok(serde_json::to_vec(&written.profile).expect("it has only string keys"))
}

struct Written<'a> {
    trial: &'a Trial,
    profile: Profile,
    /// Start of the trial, ns since the Unix epoch.
    start_ns: i64,
    counter: fxprof_processed_profile::CounterHandle,
    threads: HashMap<Owner, ThreadHandle>,
    stacks: HashMap<(Owner, u32), Option<StackHandle>>,
    modes: [CategoryHandle; 2],
    categories: HashMap<(FrameMode, String), CategoryPairHandle>,
}

impl<'a> Written<'a> {
    fn new(trial: &'a Trial, server: &str) -> Written<'a> {
        let start_ns = trial.intervals().first().map_or(0, |first| first.start_ns);
        let hz = trial.profile_info().map_or(0, |info| info.hz).max(1);
        let started = ReferenceTimestamp::from_millis_since_unix_epoch(start_ns as f64 / 1e6);
        let nanos = 1_000_000_000 / u64::from(hz);
        let mut profile = Profile::new(server, started, SamplingInterval::from_nanos(nanos));
        profile.set_os_name(&trial.manifest().host.kernel);
        let modes = [
            profile.add_category("User", CategoryColor::Green),
            profile.add_category("Kernel", CategoryColor::Orange),
        ];
        let zero = Timestamp::from_nanos_since_reference(0);
        let pid = trial.manifest().server.pid.unwrap_or(0);
        let mut threads = HashMap::new();
        let mut counter = None;
        for (owner, pid) in [(Owner::Server, pid), (Owner::Recorder, 0), (Owner::Other, 0)] {
            let name = if owner == Owner::Server { server } else { owner.name() };
            let process = profile.add_process(name, pid, zero);
            let thread = profile.add_thread(process, pid, zero, true);
            profile.set_thread_name(thread, name);
            profile.add_initial_visible_thread(thread);
            threads.insert(owner, thread);
            counter.get_or_insert_with(|| {
                profile.add_counter(process, "requests", "requests", "requests in an interval")
            });
        }
        profile.add_initial_selected_thread(threads[&Owner::Server]);
        profile.set_symbolicated(true);
        let counter = counter.expect("the server's process has it");
        let (stacks, categories) = (HashMap::new(), HashMap::new());
        Written { trial, profile, start_ns, counter, threads, stacks, modes, categories }
    }

    fn at(&self, ns: i64) -> Timestamp {
        let since = u64::try_from(ns - self.start_ns).unwrap_or(0);
        Timestamp::from_nanos_since_reference(since)
    }

    fn requests(&mut self, interval: &Interval) {
        let at = self.at(interval.start_ns + interval.length_ns);
        let ended = u32::try_from(interval.requests_ended).unwrap_or(u32::MAX);
        self.profile.add_counter_sample(self.counter, at, interval.requests, ended);
    }

    fn samples(&mut self, interval: &Interval, rows: &[&SampleRow]) {
        let all: i64 = rows.iter().map(|row| i64::from(row.samples)).sum();
        let mut before = 0;
        for row in rows {
            let share = before as f64 / all.max(1) as f64;
            before += i64::from(row.samples);
            let at = self.at(interval.start_ns + (share * interval.length_ns as f64) as i64);
            let stack = self.stack(row.owner, row.stack);
            let thread = self.threads[&row.owner];
            let weight = i32::try_from(row.samples).unwrap_or(i32::MAX);
            let cpu = CpuDelta::from_nanos(u64::try_from(row.ns).unwrap_or(0));
            self.profile.add_sample(thread, at, stack, cpu, weight);
        }
    }

    fn stack(&mut self, owner: Owner, number: u32) -> Option<StackHandle> {
        if let Some(&known) = self.stacks.get(&(owner, number)) {
            return known;
        }
        let frames = self.trial.stack_frames(number).rev();
        let infos: Vec<FrameInfo> = frames
            .map(|frame| FrameInfo {
                frame: Frame::Label(self.profile.intern_string(&frame_label(frame))),
                category_pair: category(
                    &mut self.profile,
                    &mut self.categories,
                    self.modes[usize::from(frame.mode == FrameMode::Kernel)],
                    (frame.mode, frame.module.clone()),
                ),
                flags: FrameFlags::empty(),
            })
            .collect();
        let stack = self.profile.intern_stack_frames(self.threads[&owner], infos.into_iter());
        self.stacks.insert((owner, number), stack);
        stack
    }
}

/// The mode as the category, with the module as its subcategory.
fn category(
    profile: &mut Profile,
    known: &mut HashMap<(FrameMode, String), CategoryPairHandle>,
    mode: CategoryHandle,
    key: (FrameMode, String),
) -> CategoryPairHandle {
    if let Some(&pair) = known.get(&key) {
        return pair;
    }
    let pair = profile.add_subcategory(mode, &key.1);
    known.insert(key, pair);
    pair
}

//! The profile: what the CPUs execute, sampled some hundred times per second.
//!
//! ```text
//! perf events, one a CPU -> rings -> records -> samples --- owner, stack ---> trial
//!                                           `-> maps, names, forks, exits -> spaces
//! ```
//!
//! Every CPU is sampled, in kernel and user mode. Samples of observed processes have the whole
//! stack: the kernel's part from the kernel, the user's part unwound from a copy of the stack
//! ([`unwind`]) where this processor is supported, otherwise by frame pointers. For all other
//! processes only the innermost procedure is kept, and in user mode only the process's name. An
//! idle CPU counts as idle unless an interrupt was being served on it.
//!
//! The recorder's own thread reads the rings ten times per second. Its cost is in the intervals
//! like its other costs, and the samples that hit it have their own owner.
//!
//! What never happens: the recording fails because there is no profile; a sample is dropped without
//! being counted; a name is invented.

mod counted;
mod elf;
pub(crate) mod event;
pub(crate) mod files;
mod go;
mod jit;
pub(crate) mod maps;
mod names;
pub(crate) mod records;
mod ring;
mod unwind;

use std::collections::{HashMap, HashSet};

use trial::Writer;
use trial::counters::Kind;
use trial::profile::{Owner, ProfileInfo, STACK_FRAMES_MAX, SampleRow, Stack};

use self::counted::{Counted, Counter, PERIOD_FIRST};
use self::event::{Event, EventId, Events, STACK_BYTES};
pub use self::files::build_id;
use self::maps::Space;
use self::names::Names;
use self::records::{Record, STACKS, Sample};
use self::unwind::{Rules, Unwinder};
use crate::clock;
use crate::error::Unsupported;
use crate::server::{Target, cut};

/// Minimum samples per second: with fewer, even an hour shows little.
pub const PROFILE_HZ_MIN: u32 = 49;

/// Maximum: with more, the profile would be of the profiler.
pub const PROFILE_HZ_MAX: u32 = 999;

/// Distinct stacks in a trial. Of any further stack only the innermost procedure is kept.
const STACKS_MAX: u32 = 200_000;

/// How to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSpec {
    /// Samples per second and CPU, from [`PROFILE_HZ_MIN`] to [`PROFILE_HZ_MAX`]. It should not be
    /// a round number, so that it does not run in step with timers.
    pub hz: u32,
}

impl Default for ProfileSpec {
    fn default() -> ProfileSpec {
        ProfileSpec { hz: 99 }
    }
}

/// Events that were not seen since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Records that did not fit into the ring.
    pub(crate) records: u64,
    /// How often a ring contained something that is not a record.
    pub(crate) garbage: u64,
    /// How often the kernel throttled the sampling.
    pub(crate) throttled: u64,
    /// Stacks reduced to the innermost procedure.
    pub(crate) stacks: u64,
}

impl Lost {
    /// As losses: kind, count, remark.
    pub(crate) fn each(&self) -> [(&'static str, u64, &'static str); 4] {
        [
            ("profile: sample lost", self.records, "a ring was full"),
            ("profile: ring not understood", self.garbage, "the ring's content was lost"),
            ("profile: held back", self.throttled, "the kernel found sampling too expensive"),
            ("profile: stack cut", self.stacks, "only the innermost frame of a new stack is kept"),
        ]
    }
}

/// Samples by owner and stack.
type Tally = HashMap<(Owner, u32), Count>;

/// The samples of one stack.
#[derive(Clone, Copy, Default)]
struct Count {
    samples: u32,
    ns: i64,
    /// Whether the stack has user frames, and is complete.
    user: bool,
    whole: bool,
}

/// The sampler.
pub(crate) struct Profile {
    event: Event,
    events: Events,
    counted: Counted,
    /// The name of the observed processes, if they are observed by name.
    name: Option<String>,
    own_tid: u32,
    names: Names,
    /// The observed processes.
    spaces: HashMap<u32, Space>,
    /// Processes that have ended; their last samples may still arrive.
    ended: Vec<u32>,
    rules: Rules,
    /// Samples of the current interval, and of the next one.
    tally: Tally,
    next: Tally,
    /// The range of samples that count, on the monotonic clock.
    from_ns: i64,
    until_ns: i64,
    stacks: u32,
    info: ProfileInfo,
    lost: Lost,
    /// A buffer for the user addresses of one stack.
    addresses: Vec<u64>,
    kernel_is_named: bool,
}

impl Profile {
    /// Opens the events and reads the address spaces of the observed processes.
    pub(crate) fn start(
        spec: ProfileSpec,
        target: &Target,
        pids: &[u32],
    ) -> Result<Profile, Unsupported> {
        let hz = spec.hz.clamp(PROFILE_HZ_MIN, PROFILE_HZ_MAX);
        let (event, events) = Events::open(hz)?;
        let names = Names::new();
        // Done before the events are enabled, because it takes long enough to fill the rings.
        let kernel_is_named = names.kernel_is_named();
        // Everything mapped from here on arrives as a record.
        events.enable().map_err(|error| Unsupported(format!("perf events: {error}")))?;
        let info = ProfileInfo {
            event: event.name().to_owned(),
            hz,
            unwinder: if STACKS {
                format!(".eh_frame, over {STACK_BYTES} bytes of stack")
            } else {
                "frame pointers".to_owned()
            },
            ..ProfileInfo::default()
        };
        let mut profile = Profile {
            event,
            events,
            counted: Counted::default(),
            name: match target {
                Target::Name(name) => Some(cut(name).to_owned()),
                Target::Pid(_) | Target::Cgroup(_) => None,
            },
            own_tid: clock::own_tid(),
            names,
            spaces: HashMap::new(),
            ended: Vec::new(),
            rules: Rules::new(),
            tally: Tally::new(),
            next: Tally::new(),
            from_ns: i64::MAX,
            until_ns: i64::MAX,
            stacks: 0,
            info,
            lost: Lost::default(),
            addresses: Vec::new(),
            kernel_is_named,
        };
        profile.observe(pids);
        for space in profile.spaces.values_mut() {
            // Before the first interval rather than in it.
            space.unwinder = Some(Unwinder::of(space.mapped(), &mut profile.names.files));
        }
        Ok(profile)
    }

    /// Starts sampling these counters too and describes how, for the manifest.
    pub(crate) fn count(&mut self, kinds: &[(Kind, EventId)]) -> Result<String, Unsupported> {
        let hz = self.info.hz;
        self.counted = Counted::open(kinds, hz, PERIOD_FIRST)?;
        let names: Vec<&str> = kinds.iter().map(|(kind, _)| kind.name()).collect();
        Ok(format!("{}, each about {hz} a second on each CPU", names.join(", ")))
    }

    /// Describes how it samples, for the manifest.
    pub(crate) fn describe(&self) -> String {
        let ProfileInfo { event, hz, unwinder, .. } = &self.info;
        let cpus = self.events.cpus();
        let mut text =
            format!("{event}, {hz} a second on each of {cpus} CPUs; user stacks by {unwinder}");
        if event != "cpu-clock" {
            text.push_str("; idle CPUs do not count cycles and have no samples");
        }
        if !self.kernel_is_named {
            text.push_str("; kernel procedures have no names (hidden by kernel.kptr_restrict)");
        }
        text
    }

    /// Begins the first interval and discards everything before it.
    pub(crate) fn begin(&mut self, writer: &mut Writer, now_ns: i64) -> Result<(), trial::Error> {
        self.from_ns = now_ns;
        self.drain(writer)?;
        self.counted.begin(now_ns);
        self.take_lost();
        (self.info.lost, self.info.throttled) = (0, 0);
        writer.profile_info(&self.info)
    }

    /// Processes what is in the rings.
    pub(crate) fn drain(&mut self, writer: &mut Writer) -> Result<(), trial::Error> {
        let mut rings = std::mem::take(&mut self.events.rings);
        let done = self.drain_rings(&mut rings, writer);
        self.events.rings = rings;
        done?;
        let mut counters = std::mem::take(&mut self.counted.counters);
        let done = self.drain_counters(&mut counters, writer);
        self.counted.counters = counters;
        done
    }

    /// Ends an interval at a time of the monotonic clock and writes its samples.
    pub(crate) fn interval(
        &mut self,
        writer: &mut Writer,
        index: u64,
        end_ns: i64,
        pids: &[u32],
    ) -> Result<(), trial::Error> {
        self.until_ns = end_ns;
        self.drain(writer)?;
        self.until_ns = i64::MAX;
        self.observe(pids);
        let observed: HashSet<u32> = pids.iter().copied().collect();
        self.spaces.retain(|pid, _| {
            observed.contains(pid) || std::path::Path::new(&format!("/proc/{pid}")).exists()
        });
        let tally = std::mem::replace(&mut self.tally, std::mem::take(&mut self.next));
        let mut rows = Vec::with_capacity(tally.len());
        for ((owner, stack), Count { samples, ns, whole, user }) in tally {
            rows.push(SampleRow { interval: index, owner, stack, samples, ns });
            let info = &mut self.info;
            let samples = u64::from(samples);
            info.samples += samples;
            info.server_samples += if owner == Owner::Server { samples } else { 0 };
            info.user_samples += if user { samples } else { 0 };
            info.unwound_whole += if user && whole { samples } else { 0 };
        }
        writer.profile_info(&self.info)?;
        writer.samples(&rows)?;
        self.counted.interval(index, end_ns, writer)
    }

    /// Returns the events that were not seen since the last call.
    pub(crate) fn take_lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
    }

    /// Adds processes that are not observed yet.
    fn observe(&mut self, pids: &[u32]) {
        let now_ns = clock::monotonic_ns();
        for &pid in pids {
            let files = &mut self.names.files;
            self.spaces.entry(pid).or_insert_with(|| Space::of(pid, files, now_ns));
        }
    }

    fn drain_rings(
        &mut self,
        rings: &mut [ring::Ring],
        writer: &mut Writer,
    ) -> Result<(), trial::Error> {
        // The records are read twice. First those that change address spaces, from all CPUs in
        // order of time: a process may fork on one CPU and map its code on another.
        let mut changes: Vec<(u64, Vec<u8>)> = Vec::new();
        for ring in rings.iter_mut() {
            ring.load_head();
            ring.peek(&mut |record| {
                if records::header(record).is_some_and(|(kind, _)| !records::is_sample(kind)) {
                    changes.push((records::time_ns(record), record.to_vec()));
                }
            });
        }
        changes.sort_by_key(|change| change.0);
        let ended_before = std::mem::take(&mut self.ended);
        for (_, change) in &changes {
            self.change(change, writer)?;
        }
        // Then the samples, in place.
        let now_ns = clock::monotonic_ns();
        let mut done = Ok(());
        for ring in rings.iter_mut() {
            let valid = ring.take(&mut |record| {
                if done.is_ok()
                    && let Some(Record::Sample(sample)) = records::read(record)
                {
                    done = self.sample(&sample, writer, now_ns);
                }
            });
            self.lost.garbage += u64::from(!valid);
        }
        for pid in ended_before {
            self.spaces.remove(&pid);
            self.names.forget_process(pid);
        }
        done
    }

    fn drain_counters(
        &mut self,
        counters: &mut [Counter],
        writer: &mut Writer,
    ) -> Result<(), trial::Error> {
        let now_ns = clock::monotonic_ns();
        let mut done = Ok(());
        for Counter { kind, events, samples, .. } in counters {
            for ring in &mut events.rings {
                ring.load_head();
                let valid = ring.take(&mut |record| match records::read(record) {
                    Some(Record::Sample(sample)) if done.is_ok() => {
                        *samples += 1;
                        done = self.counter_sample(*kind, &sample, writer, now_ns);
                    }
                    Some(Record::Lost(count)) => self.lost.records += count,
                    Some(Record::Throttled) => self.lost.throttled += 1,
                    _ => {}
                });
                self.lost.garbage += u64::from(!valid);
            }
        }
        done
    }

    fn counter_sample(
        &mut self,
        kind: Kind,
        sample: &Sample<'_>,
        writer: &mut Writer,
        now_ns: i64,
    ) -> Result<(), trial::Error> {
        let time_ns = i64::try_from(sample.time_ns).unwrap_or(i64::MAX);
        let Some(space) = self.spaces.get_mut(&sample.pid) else { return Ok(()) };
        if time_ns < self.from_ns {
            return Ok(());
        }
        let frame = if sample.user_mode {
            self.names.user(writer, space, (sample.pid, sample.ip), now_ns)?
        } else {
            self.names.kernel(writer, sample.ip)?.frame
        };
        let stack = writer.stack(&Stack { frames: vec![frame], whole: false })?;
        self.counted.add(kind, stack, sample.period, time_ns <= self.until_ns);
        Ok(())
    }

    fn change(&mut self, record: &[u8], writer: &mut Writer) -> Result<(), trial::Error> {
        match records::read(record) {
            Some(Record::Map(map)) => {
                if let Some(space) = self.spaces.get_mut(&map.pid) {
                    space.add(map, &mut self.names.files);
                }
            }
            Some(Record::Name { pid, tid, exec, name }) if pid == tid => {
                self.names.name_process(writer, pid, &name)?;
                if exec && let Some(space) = self.spaces.get_mut(&pid) {
                    // It runs another program, whose maps follow.
                    *space = Space::default();
                }
                if self.name.as_ref() == Some(&name) {
                    self.observe(&[pid]);
                }
            }
            Some(Record::Fork { pid, parent }) if pid != parent => {
                self.names.fork_process(pid, parent);
                if let Some(space) = self.spaces.get(&parent) {
                    let forked = space.forked();
                    self.spaces.insert(pid, forked);
                }
            }
            Some(Record::Exit { pid, tid }) if pid == tid => self.ended.push(pid),
            Some(Record::Lost(count)) => {
                self.lost.records += count;
                self.info.lost += count;
            }
            Some(Record::Throttled) => {
                self.lost.throttled += 1;
                self.info.throttled += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(
        &mut self,
        sample: &Sample<'_>,
        writer: &mut Writer,
        now_ns: i64,
    ) -> Result<(), trial::Error> {
        let time_ns = i64::try_from(sample.time_ns).unwrap_or(i64::MAX);
        if time_ns < self.from_ns {
            return Ok(());
        }
        let (owner, mut stack) = if self.spaces.contains_key(&sample.pid) {
            (Owner::Server, self.server_stack(sample, writer, now_ns)?)
        } else {
            self.other_stack(sample, writer)?
        };
        if self.stacks >= STACKS_MAX && stack.frames.len() > 1 {
            stack.frames.truncate(1);
            stack.whole = false;
            self.lost.stacks += 1;
        }
        let whole = stack.whole;
        let stack = writer.stack(&stack)?;
        self.stacks = self.stacks.max(stack.saturating_add(1));
        let tally = if time_ns <= self.until_ns { &mut self.tally } else { &mut self.next };
        let count = tally.entry((owner, stack)).or_default();
        count.samples += 1;
        count.ns += self.event.ns(sample.period);
        // The addresses of the server's stack are still in the buffer.
        count.user = owner == Owner::Server && !self.addresses.is_empty();
        count.whole = whole;
        Ok(())
    }

    /// The complete stack of an observed process.
    fn server_stack(
        &mut self,
        sample: &Sample<'_>,
        writer: &mut Writer,
        now_ns: i64,
    ) -> Result<Stack, trial::Error> {
        let mut stack = Stack::default();
        if !sample.user_mode {
            for address in kernel_chain(sample) {
                stack.frames.push(self.names.kernel(writer, address)?.frame);
            }
        }
        let Some(space) = self.spaces.get_mut(&sample.pid) else { return Ok(stack) };
        self.addresses.clear();
        let room = STACK_FRAMES_MAX.saturating_sub(stack.frames.len());
        let whole = match &sample.user {
            Some(user) if user.is_64_bit => {
                if space.unwinder.is_none() {
                    space.unwinder = Some(Unwinder::of(space.mapped(), &mut self.names.files));
                }
                space.unwinder.as_ref().is_some_and(|unwinder| {
                    unwinder.unwind(user, &mut self.rules, room, &mut self.addresses)
                })
            }
            Some(user) => {
                self.addresses.push(user.ip);
                false
            }
            None => {
                self.addresses.extend(user_chain(sample).take(room));
                // A kernel thread of the process has no user part that could be missing.
                self.addresses.is_empty()
            }
        };
        if self.addresses.is_empty() {
            stack.whole = whole;
            return Ok(stack);
        }
        // A stack that leads through addresses outside any file cannot be trusted.
        let described =
            |&address: &u64| space.find(address).is_some_and(|mapping| mapping.file.is_some());
        stack.whole = whole && self.addresses.iter().all(described);
        for &address in &self.addresses {
            let at = (sample.pid, address);
            stack.frames.push(self.names.user(writer, space, at, now_ns)?);
        }
        Ok(stack)
    }

    /// The innermost procedure of a process that is not observed.
    fn other_stack(
        &mut self,
        sample: &Sample<'_>,
        writer: &mut Writer,
    ) -> Result<(Owner, Stack), trial::Error> {
        let frame = if sample.user_mode {
            self.names.process(writer, sample.pid)?
        } else {
            self.names.kernel(writer, sample.ip)?.frame
        };
        let owner = if sample.tid == self.own_tid {
            Owner::Recorder
        } else if sample.pid == 0 && !sample.user_mode && !self.interrupted(sample, writer)? {
            Owner::Idle
        } else {
            Owner::Other
        };
        Ok((owner, Stack { frames: vec![frame], whole: false }))
    }

    /// Whether an interrupt is being served.
    fn interrupted(
        &mut self,
        sample: &Sample<'_>,
        writer: &mut Writer,
    ) -> Result<bool, trial::Error> {
        for address in kernel_chain(sample) {
            if self.names.kernel(writer, address)?.interrupt {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The addresses to look up for the kernel's part, which has at least the sampled instruction.
fn kernel_chain<'a>(sample: &Sample<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let mut chain = sample.kernel().peekable();
    let alone = chain.peek().is_none().then_some(sample.ip);
    lookups(alone.into_iter().chain(chain))
}

/// The addresses to look up for the user's part, by frame pointers.
fn user_chain<'a>(sample: &Sample<'a>) -> impl Iterator<Item = u64> + use<'a> {
    lookups(sample.user_chain())
}

/// All but the innermost are return addresses, which may be past the end of the caller.
fn lookups(chain: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    chain.enumerate().map(|(depth, ip)| if depth == 0 { ip } else { ip.saturating_sub(1) })
}

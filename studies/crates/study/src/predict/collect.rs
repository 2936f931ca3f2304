//! The measurements of a case: saturation, a recorded load for each reach, saturation again.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Error, Recording, wrk};
use load::{Phase, Population, Schedule, Size};
use record::Spec;
use serde::{Deserialize, Serialize};

use super::neighbour::Neighbour;
use super::servers::{self, Served};
use super::{Extent, Load};
use crate::found::Steps;
use harness::recipe::Place;

/// A case is measured again if its saturation moved by more than this part meanwhile.
pub(super) const MOVED_MAX: f64 = 0.1;
/// How often it is measured again.
const REPEATS_MAX: u32 = 2;
/// Levels a second of the recorded load: it rises almost evenly.
const LEVELS_PER_S: f64 = 4.0;
/// The load begins and ends at this part of its highest rate.
const BOTTOM: f64 = 0.02;
/// The recorder starts this long before the load.
const LEAD: Duration = Duration::from_millis(300);
/// A field of all requests, as browsers send it.
const ACCEPT: (&str, &str) = ("Accept-Encoding", "gzip");
/// The state of an established connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// A server under one size of responses and one number of connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Case {
    /// The server.
    pub(super) server: String,
    /// Its version, as it prints it.
    pub(super) version: String,
    /// Size of the body of a response, bytes.
    pub(super) body_bytes: u64,
    /// Connections of the generators.
    pub(super) connections: u32,
    /// Whether the rates of the recorded loads are constant, and who measures saturation with it.
    #[serde(default)]
    pub(super) constant: bool,
    /// Whether the server is held while it is recorded.
    #[serde(default)]
    pub(super) hold: bool,
    /// Saturation before and after the ramps.
    pub(super) saturation: [Saturation; 2],
    /// How often the case was measured again, because its saturation had moved.
    pub(super) repeats: u32,
    /// The recorded loads.
    pub(super) ramps: Vec<Ramp>,
}

/// A measurement of saturation with wrk. For constant rates also with the generator of the recorded
/// loads, which polls, so that the server does not pay for waking its clients. The higher rate
/// counts: a server that passes requests on has its origin on the CPU of the generator, and a
/// generator that polls leaves little of that CPU.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Saturation {
    /// Responses a second.
    pub(super) rate: f64,
    /// Whether the generator that polls measured it.
    #[serde(default)]
    pub(super) polled: bool,
    /// The lower rate, by the other generator.
    #[serde(default)]
    pub(super) other: Option<f64>,
    /// CPU time of the server's processes per second.
    pub(super) cpus: f64,
    /// The server's connections that were established.
    pub(super) established: u32,
}

/// A recorded load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ramp {
    /// Its highest rate, percent of the saturation before it, or of [`Collector::full`].
    pub(super) reach: u32,
    /// Whether a neighbour took a part of the server's CPU.
    #[serde(default)]
    pub(super) neighbour: bool,
    /// Its number among equal loads, from 1.
    #[serde(default = "first")]
    pub(super) run: u32,
    /// CPU time of the neighbour per second.
    #[serde(default)]
    pub(super) neighbour_cpus: Option<f64>,
    /// Its highest rate, requests a second.
    pub(super) top: f64,
    /// File name of its trial.
    pub(super) trial: String,
    /// The server's connections that were established in its middle.
    pub(super) established: u32,
    /// Requests that were meant to start.
    pub(super) intended: u64,
    /// Responses.
    pub(super) completed: u64,
    /// Requests that failed.
    pub(super) errors: u64,
    /// Requests that the generator started late.
    pub(super) late_starts: u64,
    /// Seconds of the load, and those in which the generator fell behind.
    pub(super) rows: u64,
    /// See `rows`.
    pub(super) rows_behind: u64,
    /// CPU time of the generator per second.
    pub(super) generator_cpus: f64,
}

/// A load without a number is the only one.
fn first() -> u32 {
    1
}

impl Ramp {
    /// The load.
    pub(super) fn load(&self) -> Load {
        Load { reach: self.reach, neighbour: self.neighbour, run: self.run }
    }
}

impl Case {
    /// Without measurements.
    pub(super) fn new(server: &str, body_bytes: u64, connections: u32) -> Case {
        Case { server: server.to_owned(), body_bytes, connections, ..Case::default() }
    }

    /// Whether both are of one server and one way to measure it.
    pub(super) fn is(&self, other: &Case) -> bool {
        let of = |case: &Case| (case.body_bytes, case.connections, case.constant, case.hold);
        self.server == other.server && of(self) == of(other)
    }

    /// As it is printed.
    pub(super) fn name(&self) -> String {
        format!("{}, {} bytes, {} connections", self.server, self.body_bytes, self.connections)
    }

    /// The geometric mean of the saturation before and after.
    pub(super) fn measured(&self) -> f64 {
        let [before, after] = self.saturation;
        (before.rate * after.rate).sqrt()
    }

    /// By which part the saturation moved.
    pub(super) fn moved(&self) -> f64 {
        let [before, after] = self.saturation;
        (after.rate / before.rate - 1.0).abs()
    }
}

/// What is measured, and where.
pub(super) struct Collector<'c, 's> {
    pub(super) extent: &'c Extent,
    /// The directory of the trials.
    pub(super) out: &'c Path,
    pub(super) place: Place<'c>,
    /// The CPU of everything but the server.
    pub(super) others: Option<usize>,
    pub(super) seed: u64,
    /// The saturation of which loads are a part, if it is not the server's own: that of the server
    /// of which it is a variant. Trials at different constant rates cannot be compared.
    pub(super) full: Option<f64>,
    pub(super) steps: &'c mut Steps<'s>,
}

impl Collector<'_, '_> {
    /// Measures a case, and repeats it if its saturation moved. Many runs take so long that it
    /// moves each time; their pairs do not need it.
    pub(super) fn case(&mut self, new: &Case) -> Result<Case, Error> {
        let mut case = self.once(new.clone())?;
        let repeats_max = if self.extent.runs > 1 { 0 } else { REPEATS_MAX };
        while case.moved() > MOVED_MAX && case.repeats < repeats_max {
            let repeats = case.repeats + 1;
            case = Case { repeats, ..self.once(new.clone())? };
        }
        Ok(case)
    }

    fn once(&mut self, mut case: Case) -> Result<Case, Error> {
        let name = case.name();
        let program = self.steps.plimsoll;
        let served =
            servers::start(program, self.place, self.others, &case.server, case.body_bytes)
                .map_err(|why| Error::Start(case.server.clone(), why))?;
        case.version.clone_from(&served.version);
        self.steps.say(&format!("{name}: saturation"));
        let before = self.saturate(&served, &case)?;
        let full = self.full.unwrap_or(before.rate);
        for load in self.extent.loads() {
            let company = if load.neighbour { ", beside a neighbour" } else { "" };
            let run = if self.extent.runs > 1 { format!(", run {}", load.run) } else { "".into() };
            let text = format!("a load up to {} % of {full:.0}/s{company}{run}", load.reach);
            self.steps.say(&format!("{name}: {text}"));
            let seed = self.seed_of(load);
            let neighbour = load.neighbour.then(|| Neighbour::start(self.place.cpu, seed));
            let mut ramp = self.ramp(&served, &case, load, full)?;
            ramp.neighbour_cpus = neighbour.map(Neighbour::end).transpose()?;
            case.ramps.push(ramp);
        }
        self.steps.say(&format!("{name}: saturation again"));
        case.saturation = [before, self.saturate(&served, &case)?];
        Ok(case)
    }

    /// Equal loads have requests at different instants.
    fn seed_of(&self, load: Load) -> u64 {
        self.seed + u64::from(load.reach) + 1_000 * u64::from(load.run - 1)
    }

    fn saturate(&self, served: &Served, case: &Case) -> Result<Saturation, Error> {
        let seconds = self.extent.saturation_s;
        let (url, cpu) = (served.url(case.body_bytes), self.others);
        let (cpu_ns, began) = (served.cpu_ns(), Instant::now());
        let stop = self.steps.stop;
        let (report, established) = thread::scope(|scope| {
            let looking = scope.spawn(|| {
                thread::sleep(Duration::from_millis(500 * seconds));
                established(served.server.address)
            });
            let fields = [format!("{}: {}", ACCEPT.0, ACCEPT.1)];
            let fields = fields.each_ref().map(String::as_str);
            let report = wrk::run(&url, case.connections, seconds, cpu, &fields, stop);
            (report, looking.join().unwrap_or(0))
        });
        let cpus = (served.cpu_ns() - cpu_ns) as f64 / 1e9 / began.elapsed().as_secs_f64();
        self.steps.interrupted()?;
        let failed = |why| Error::System("saturation", io::Error::other(why));
        let rate = report.map_err(failed)?.rate;
        let with_wrk = Saturation { rate, polled: false, other: None, cpus, established };
        if !self.extent.constant {
            return Ok(with_wrk);
        }
        let polled = self.polled(served, case, established)?;
        let (lower, higher) = match polled.rate < rate {
            true => (polled.rate, with_wrk),
            false => (rate, polled),
        };
        Ok(Saturation { other: Some(lower), ..higher })
    }

    /// The same with the generator of the recorded loads, in a closed loop.
    fn polled(&self, served: &Served, case: &Case, established: u32) -> Result<Saturation, Error> {
        let duration = Duration::from_secs(self.extent.saturation_s);
        let load = self.load(served, case, Schedule::ClosedLoop, duration);
        let mut running = None;
        let outcome = load::run(&load, self.steps.stop, &mut |tick| {
            if tick.phase == Phase::Running {
                running.get_or_insert_with(|| (served.cpu_ns(), Instant::now()));
            }
        })?;
        self.steps.interrupted()?;
        let (cpu_ns, began) = running.ok_or(Error::Silent(case.server.clone()))?;
        let cpus = (served.cpu_ns() - cpu_ns) as f64 / 1e9 / began.elapsed().as_secs_f64();
        let rate = outcome.counts.completed as f64 / (outcome.length_ns.max(1) as f64 / 1e9);
        Ok(Saturation { rate, polled: true, other: None, cpus, established })
    }

    /// Records the server, as `plimsoll record` does by default, under a load that rises to a part
    /// of its saturation and falls again.
    fn ramp(&self, served: &Served, case: &Case, load: Load, full: f64) -> Result<Ramp, Error> {
        let Load { reach, neighbour, run } = load;
        let top = full * f64::from(reach) / 100.0;
        let company = if neighbour { "-neighbour" } else { "" };
        let number = if run > 1 { format!("-{run}") } else { String::new() };
        let trial = format!(
            "{}-{}-{}-{reach}{company}{number}.trial",
            case.server, case.body_bytes, case.connections
        );
        let target = record::Target::Pid(served.server.pid().cast_unsigned());
        let log = Some(served.log.clone());
        let mut spec = Spec::new(target, log, self.out.join(&trial));
        spec.overwrite = true;
        spec.notes.push("recorded by plimsoll study predict".into());
        spec.hold = self.extent.hold;
        let duration = self.extent.ramp;
        let schedule = match self.extent.constant {
            true => Schedule::Constant(top),
            false => triangle(top, duration),
        };
        let seed = self.seed_of(load);
        let load = load::Plan { seed, ..self.load(served, case, schedule, duration) };
        let recording = Recording::start(spec)?;
        thread::sleep(LEAD);
        let mut connections = None;
        let outcome = load::run(&load, self.steps.stop, &mut |tick| {
            if tick.phase == Phase::Running && tick.elapsed > load.duration / 2 {
                connections.get_or_insert_with(|| established(served.server.address));
            }
        })?;
        recording.finish()?;
        self.steps.interrupted()?;
        self.join(&self.out.join(&trial), &outcome)?;
        if outcome.counts.completed == 0 {
            return Err(Error::Silent(case.server.clone()));
        }
        Ok(Ramp {
            reach,
            neighbour,
            run,
            neighbour_cpus: None,
            top,
            trial,
            established: connections.unwrap_or(0),
            intended: outcome.counts.intended,
            completed: outcome.counts.completed,
            errors: outcome.counts.errors.total(),
            late_starts: outcome.counts.late_starts,
            rows: outcome.rows.len() as u64,
            rows_behind: outcome.rows_behind,
            generator_cpus: outcome.cpu_ns as f64 / outcome.length_ns.max(1) as f64,
        })
    }

    /// Adds the generator's latencies to a trial; both have the same clock. If the log lacks
    /// requests, `join` refuses, and the trial keeps the latencies of the log.
    fn join(&self, trial: &Path, outcome: &load::Outcome) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Directory(trial.to_owned(), error);
        let result = trial.with_extension("json");
        let text = serde_json::to_string(outcome).map_err(|error| failed(error.into()))?;
        fs::write(&result, text).map_err(failed)?;
        let mut join = Command::new(self.steps.plimsoll);
        let ended = join.args(["join", "--offset", "0"]).arg(trial).arg(&result).output();
        fs::remove_file(&result).and(ended.map(drop)).map_err(failed)
    }

    fn load(
        &self,
        served: &Served,
        case: &Case,
        schedule: Schedule,
        duration: Duration,
    ) -> load::Plan {
        let mut load = served.server.load(&servers::path(case.body_bytes), schedule, duration);
        load.busy_poll = self.extent.constant;
        load.connections = case.connections;
        load.fields.push((ACCEPT.0.into(), ACCEPT.1.into()));
        let size = Size::Fixed { bytes: case.body_bytes };
        load.population = Population { objects: 1, zipf_s: 0.0, size };
        load.pin_cpu = self.others;
        load.seed = self.seed;
        load
    }
}

/// A load that rises from near zero to `top` and falls again, so that a drift over time does not
/// look like an effect of the rate.
fn triangle(top: f64, duration: Duration) -> Schedule {
    let half = (duration.as_secs_f64() * LEVELS_PER_S / 2.0).max(2.0) as usize;
    let rise = (0..half).map(|k| {
        let part = k as f64 / (half - 1) as f64;
        top * (BOTTOM + (1.0 - BOTTOM) * part)
    });
    Schedule::Steps(rise.clone().chain(rise.rev()).collect())
}

/// The established connections of the socket that listens at an address; 0 if it is unknown.
fn established(address: SocketAddr) -> u32 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    established_in(&table, address.port())
}

/// The table is read in pieces. If many sockets are opened or closed meanwhile, a connection may be
/// in two of them.
fn established_in(table: &str, port: u16) -> u32 {
    let port = format!(":{port:04X}");
    let mut found = HashSet::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [_, local, remote, ESTABLISHED, ..] = fields[..]
            && local.ends_with(&port)
        {
            found.insert((local, remote));
        }
    }
    found.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_rises_and_falls_over_the_same_rates() {
        let Schedule::Steps(levels) = triangle(1000.0, Duration::from_secs(30)) else {
            panic!("it has no levels");
        };
        assert_eq!(levels.len(), 120);
        assert!(levels.iter().eq(levels.iter().rev()));
        assert_eq!((levels[0], levels[59]), (20.0, 1000.0));
        assert!(levels[..60].is_sorted());
        assert_eq!(triangle(10.0, Duration::from_millis(100)).check(), Ok(()));
    }

    #[test]
    fn established_connections_are_those_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n\
            1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000\n\
            2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000\n\
            3: 0100007F:1F90 0100007F:C351 06 00000000:00000000 00:00000000\n\
            4: 0100007F:1F90 0100007F:C352 01 00000000:00000000 00:00000000\n\
            5: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000\n";
        assert_eq!(established_in(table, 8080), 2, "one of them is listed twice");
        assert_eq!(established_in("", 8080), 0);
    }

    #[test]
    fn saturation_is_the_mean_of_both_measurements() {
        let saturation = |rate| Saturation { rate, ..Saturation::default() };
        let case = Case { saturation: [saturation(900.0), saturation(1600.0)], ..Case::default() };
        assert!((case.measured() - 1200.0).abs() < 1e-9);
        assert!((case.moved() - 7.0 / 9.0).abs() < 1e-9);
    }
}

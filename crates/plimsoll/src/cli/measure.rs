//! The flags of the commands that measure servers.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::report::{Groups, Options};
use clap::{Args, ValueEnum};
use command::failure::{Failure, misuse};
use command::flags::{number_within, parse_backend, parse_duration};

use super::ShipTo;

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// The URL to request, such as http://127.0.0.1:3128/ or https://example.com/; with --objects,
    /// /obj/N is appended
    pub(crate) url: String,
    /// Requests per second: R, a ramp A..B, N steps A..B/N, or `closed`: as fast as the server
    /// answers
    #[arg(long, value_name = "RATE", default_value = "closed")]
    pub(crate) rate: ::load::Schedule,
    /// Duration of the load
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Connections that carry requests (hot)
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) connections: u32,
    /// Additional idle connections (cold)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cold: u32,
    /// Open a new connection for each request
    #[arg(long)]
    pub(crate) no_keep_alive: bool,
    /// Speak HTTP/2: chosen in the TLS handshake (ALPN), or in the clear without an upgrade (prior
    /// knowledge)
    #[arg(long, group = "multiplexed")]
    pub(crate) http2: bool,
    /// Speak HTTP/3: QUIC on the UDP port of an https URL
    #[arg(long, group = "multiplexed")]
    pub(crate) http3: bool,
    /// Requests at a time on each connection of HTTP/2 or HTTP/3
    #[arg(long, value_name = "N", default_value_t = 1, requires = "multiplexed")]
    pub(crate) streams: u32,
    /// Verify the server's certificate by the roots in this file (PEM); without it, any certificate
    /// is accepted
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Add a header field to each request; Host and User-Agent replace those that it has anyway;
    /// repeat for several
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_field)]
    pub(crate) fields: Vec<(String, String)>,
    /// Request N objects with Zipf-distributed popularity, as served by `plimsoll origin`
    #[arg(long, value_name = "N")]
    pub(crate) objects: Option<u32>,
    /// Exponent of the Zipf distribution
    #[arg(long, value_name = "S", default_value_t = 0.9)]
    pub(crate) zipf: f64,
    /// Object size: BYTES, or `web` (log-normal with a Pareto tail)
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_size)]
    pub(crate) size: ::load::Size,
    /// A request not answered within this time counts as an error
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Space requests evenly instead of as a Poisson process
    #[arg(long)]
    pub(crate) even: bool,
    /// Send requests through this forward proxy
    #[arg(long, value_name = "ADDR")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Busy-poll instead of sleeping: uses a whole core, but adds no delay to measurements
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// Seed of the random numbers: the same seed gives the same sequence
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Write the full result to this file as JSON
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct Record {
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// The trial to write [default: NAME-1.trial, or the first number that is free]
    #[arg(long, short, value_name = "NAME.trial")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the trial if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) holds: Holds,
    /// End when half the width of the capacity's interval is at most this share of it: 10%
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) wait_until_known: Option<f64>,
    #[command(flatten)]
    pub(crate) shipping: ShipTo,
    /// Record all the time, into this directory: a trial a day (from midnight, local time), a new
    /// one when the server's program changes, without profile and turns; old days become coarser
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "output", "force", "hold", "wait_until_known", "ship_to", "pid", "profile", "no_profile",
        "turns_every", "counters", "locks", "files",
    ])]
    pub(crate) keep: Option<PathBuf>,
    /// With --keep: most disk space for the trials of the server; beyond it the oldest become
    /// coarser, then go; accepts K, M and G
    #[arg(long, value_name = "BYTES", default_value = "1G", requires = "keep",
        value_parser = parse_keep_size)]
    pub(crate) keep_size: u64,
    /// Print the summary as JSON; with --keep, a line of JSON for each event
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Observed {
    /// Process id of the server; its threads and children are followed
    #[arg(long, value_name = "N", group = "target")]
    pub(crate) pid: Option<u32>,
    /// Name of the server's processes, as in /proc/PID/comm
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) name: Option<String>,
    /// Name of the server's systemd unit, such as nginx
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) unit: Option<String>,
    /// The server's cgroup, such as /system.slice/nginx.service
    #[arg(long, value_name = "PATH", group = "target")]
    pub(crate) cgroup: Option<String>,
    /// The server's access log [default: requests are counted on the server's sockets (root)]
    #[arg(long, value_name = "FILE", group = "requests")]
    pub(crate) access_log: Option<PathBuf>,
    /// If there is no log: a request counter that the server exports for Prometheus, such as
    /// 'http://127.0.0.1:9145/metrics#http_requests_total{vhost="a"}'
    #[arg(long, value_name = "URL#METRIC", group = "requests", conflicts_with = "log_format")]
    pub(crate) requests_from: Option<::record::MetricUrl>,
    /// On the sockets, count requests over TLS, too: in the calls of OpenSSL, each of which then
    /// takes the server some microseconds longer
    #[arg(long, conflicts_with = "requests")]
    pub(crate) tls: bool,
    /// Access log format: squid, combined, clf, haproxy, envoy, alb, elb, s3, traefik, ingress,
    /// gin, chi, phpfpm, json or logfmt, json:WHAT=KEY,..., w3c:FIELDS, or the format string of the
    /// server's configuration prefixed with nginx:, squid: or apache: (also for varnishncsa)
    /// [default: detected from the first lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<::record::FormatChoice>,
}

impl Observed {
    /// The process to observe, if a flag names one.
    pub(crate) fn target(&self) -> Option<::record::Target> {
        use ::record::Target;
        let name = || self.name.clone().map(Target::Name);
        let unit = || self.unit.as_deref().map(Target::unit);
        let cgroup = || self.cgroup.as_deref().map(Target::cgroup);
        self.pid.map(Target::Pid).or_else(name).or_else(unit).or_else(cgroup)
    }

    /// A recording of `target` into `trial`, with the requests from these flags.
    pub(crate) fn spec(&self, target: ::record::Target, trial: PathBuf) -> ::record::Spec {
        let mut spec = ::record::Spec::new(target, self.access_log.clone(), trial);
        spec.log_format = self.log_format.clone().unwrap_or_default();
        spec.requests_from = self.requests_from.clone();
        spec.tls = self.tls;
        spec.sockets = self.access_log.is_none() && self.requests_from.is_none();
        spec
    }
}

/// When and how long a recorded server is held: the flags that `record` and `switchback` share.
#[derive(Debug, Args)]
pub(crate) struct Holds {
    /// Keep the server from running for so long now and then: what it costs to catch up shows its
    /// capacity at any load. Requests wait meanwhile; says how many before it begins (root)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, num_args = 0..=1,
        default_missing_value = "5ms")]
    pub(crate) hold: Option<Duration>,
    /// With --hold: mean time from one hold to the next
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "hold",
        default_value = "10s")]
    pub(crate) hold_every: Duration,
    /// With --hold: most of the time that the server is held
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, requires = "hold",
        default_value = "1%")]
    pub(crate) hold_budget: f64,
}

impl Holds {
    /// What the flags say; `None` if the server is not to be held. Fails if a recording of this
    /// length is too short for holds.
    pub(crate) fn spec(
        &self,
        recorded: Option<Duration>,
    ) -> Result<Option<::record::HoldSpec>, String> {
        let (every, budget) = (self.hold_every, self.hold_budget / 100.0);
        let spec = self.hold.map(|length| ::record::HoldSpec { length, every, budget });
        if let Some((spec, recorded)) = spec.zip(recorded) {
            spec.fits(recorded)?;
        }
        Ok(spec)
    }
}

/// What to record and how: the flags that `record` and `top` share.
#[derive(Debug, Args)]
pub(crate) struct Recording {
    #[command(flatten)]
    pub(crate) observed: Observed,
    /// Keep addresses and query strings out of the trial
    #[arg(long)]
    pub(crate) redact: bool,
    /// A label of the trial, such as release=42: what `plimsoll fleet` groups by; 42 alone is
    /// release=42. Repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label_or_release)]
    pub(crate) labels: Vec<(String, String)>,
    /// Length of an interval [default: 1s; with --keep 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) interval: Option<Duration>,
    /// Duration of the recording [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Profile samples per second and CPU: 49 to 999
    #[arg(long, value_name = "HZ", default_value_t = ::record::ProfileSpec::default().hz,
        value_parser = number_within(::record::PROFILE_HZ_MIN..=::record::PROFILE_HZ_MAX))]
    pub(crate) profile: u32,
    /// Do not record a profile
    #[arg(long, conflicts_with = "profile")]
    pub(crate) no_profile: bool,
    /// Count turns of the event loop and busy periods by their receives in one interval of N
    /// (root); 0: never
    #[arg(long, value_name = "N", default_value_t = ::record::TURNS_EVERY.get())]
    #[arg(alias = "episodes-every")]
    pub(crate) turns_every: u32,
    /// Read hardware counters: cycles, instructions, memory references (root)
    #[arg(long)]
    pub(crate) counters: bool,
    /// Sample lock waits: kernel locks of the whole machine, futexes of the server (root)
    #[arg(long)]
    pub(crate) locks: bool,
    /// Sample the server's file accesses from open to close (root)
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct Top {
    /// The trial to watch: one that plimsoll record is writing, or a finished one
    #[arg(group = "target", conflicts_with_all = [
        "requests", "tls", "redact", "labels", "log_format", "interval", "duration", "profile",
        "no_profile", "turns_every", "counters", "locks", "files", "output", "force",
    ])]
    pub(crate) trial: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// Keep the recording in this trial [default: deleted on exit]
    #[arg(long, short, value_name = "NAME.trial")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the trial if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Compute rates, shares and latencies over the last N intervals
    #[arg(long, value_name = "N", default_value_t = 60,
        value_parser = clap::value_parser!(u16).range(5..=3600))]
    pub(crate) last: u16,
    #[command(flatten)]
    pub(crate) groups: GroupRules,
    /// Print the screen once as text: after the first interval, or after the last with --for
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one line of JSON per interval instead of the screen
    #[arg(long)]
    pub(crate) json: bool,
}

/// The rules that assign procedures to groups.
#[derive(Debug, Args)]
pub(crate) struct GroupRules {
    /// Group procedures by the rules in this file instead of the default rules
    #[arg(long, value_name = "FILE")]
    pub(crate) groups: Option<PathBuf>,
}

impl GroupRules {
    /// The rules of the file, or the default rules.
    pub(crate) fn read(&self) -> Result<Groups, Failure> {
        let Some(path) = &self.groups else { return Ok(Groups::default()) };
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            misuse(format!(
                "cannot read {name}: {error}; plimsoll report --print-groups prints a file to \
                 start from"
            ))
        })?;
        Groups::read(&text, &name.to_string()).map_err(misuse)
    }
}

/// How to analyse a trial: flags that several commands share.
#[derive(Debug, Args)]
pub(crate) struct Analysis {
    /// Ignore intervals with fewer requests per second than this; a report shows both lines
    #[arg(long, value_name = "RATE")]
    pub(crate) above: Option<f64>,
    #[command(flatten)]
    pub(crate) groups: GroupRules,
}

impl Analysis {
    /// The options of the analysis.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let (above, groups) = (self.above.unwrap_or(0.0), self.groups.read()?);
        Ok(Options { above, groups, ..Options::default() })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The trial of the server
    pub(crate) trial: PathBuf,
    /// The load result, from load --json or load --output
    #[arg(value_name = "LOAD.json")]
    pub(crate) load: PathBuf,
    /// How far the load generator's clock is ahead of the trial's clock, in seconds; negative if it
    /// is behind
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) offset: Option<f64>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The logs, in any order: plain, .gz, .bz2, .xz, .zst, .lz4 or .zip; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Log format, as for record --log-format [default: detected from the first lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<::record::FormatChoice>,
    /// Show only the shape of lines that cannot be parsed
    #[arg(long)]
    pub(crate) redact: bool,
    /// Print the counts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The trial to show, or a folder of trials of one server: its days in a table, and what
    /// changed. For --parquet: any number of trials, or folders of trials
    #[arg(required_unless_present = "print_groups", value_name = "TRIAL")]
    pub(crate) trials: Vec<PathBuf>,
    /// Of a folder with several servers: the one with this text in its name (host/server)
    #[arg(long, value_name = "TEXT")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) analysis: Analysis,
    /// Print the default rules of the procedure groups, as a file to start from
    #[arg(long, exclusive = true)]
    pub(crate) print_groups: bool,
    /// Latency objective: also find the capacity at which the 99th percentile meets it
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    pub(crate) objective: Duration,
    /// Write a self-contained HTML page to this file; it works offline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the load line figure to this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write an interactive flame graph to this file (SVG with zoom and search)
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write collapsed stacks to this file, for flamegraph.pl, inferno and speedscope
    #[arg(long, value_name = "FILE")]
    pub(crate) collapsed: Option<PathBuf>,
    /// What collapsed stacks count
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = CollapsedBy::Samples)]
    #[arg(requires = "collapsed")]
    pub(crate) collapsed_by: CollapsedBy,
    /// Write the profile to this file in pprof format (profile.proto, gzipped)
    #[arg(long, value_name = "FILE")]
    pub(crate) pprof: Option<PathBuf>,
    /// Write the profile to this file for the Firefox profiler (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) firefox: Option<PathBuf>,
    /// Write the tables to this directory as CSV: intervals, threads, latencies, classes,
    /// turns, stretches, profile, locks, files, frames and costs
    #[arg(long, value_name = "DIR")]
    pub(crate) csv: Option<PathBuf>,
    /// Add the same tables to this directory as Parquet, partitioned by day, host and server
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: Option<PathBuf>,
    /// Send the profile to this OpenTelemetry collector; /v1development/profiles is appended
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// Print the analysis as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a line of collapsed stacks counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CollapsedBy {
    /// Samples
    Samples,
    /// CPU time of one more request, picoseconds
    Cost,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIf {
    /// The trial, which must contain a profile
    pub(crate) trial: PathBuf,
    /// The group of procedures, as named in the report: select, malloc, tls, ...
    #[arg(long, value_name = "NAME")]
    pub(crate) group: String,
    /// Multiply the cost of the group by this: 0 removes it, 0.5 halves it
    #[arg(long, value_name = "TIMES", conflicts_with = "cost", required_unless_present = "cost")]
    pub(crate) scale: Option<f64>,
    /// Set the cost of the group to this CPU time per request, such as 2.86ms or 15us
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) cost: Option<Duration>,
    #[command(flatten)]
    pub(crate) analysis: Analysis,
    /// Do not save the prediction in the trial
    #[arg(long)]
    pub(crate) no_keep: bool,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "WHEN is a date (2026-11-28), a date and time (\"2026-11-28 14:30\"), \
two of them (2026-11-20..2026-11-26), today, yesterday, a day of the week, \"this week\", \
\"last week\", \"this month\", \"last month\", or \"3 days ago\" (hours, days, weeks). Days are \
those of the local time. Anything else is a release: a version or its begin, the value of a label, \
or name=value.\n\nExit codes: 1 if the second is worse, 2 if inconclusive.")]
pub(crate) struct Compare {
    /// The trial before the change; or a folder of trials of one server, whose last release is
    /// compared with the one before, unless a flag names two times or releases
    #[arg(value_name = "BEFORE")]
    pub(crate) trial: PathBuf,
    /// The trial after the change
    #[arg(value_name = "AFTER", conflicts_with_all = ["since", "before", "after", "server"])]
    pub(crate) other: Option<PathBuf>,
    /// Of a folder: compare what is since this time or release with what was before it. If a
    /// release changed since, the comparison begins there
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["before", "after"])]
    pub(crate) since: Option<String>,
    /// Of a folder: compare this time or release ...
    #[arg(long, value_name = "WHEN")]
    pub(crate) before: Option<String>,
    /// ... with this one; alone, like --since
    #[arg(long, value_name = "WHEN")]
    pub(crate) after: Option<String>,
    /// Of a folder with several servers: the one with this text in its name (host/server)
    #[arg(long, value_name = "TEXT")]
    pub(crate) server: Option<String>,
    /// Report no change if the interval shows that the change is within this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(crate) margin: f64,
    /// Standard deviation between two runs of the same server (default: estimated from the trials);
    /// 0 if the two alternated
    #[arg(long, value_name = "PERCENT")]
    pub(crate) between_runs: Option<f64>,
    #[command(flatten)]
    pub(crate) analysis: Analysis,
    /// Write a self-contained HTML page to this file; it works offline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The periods alternate: A B, B A, A B, ... Each period starts with its command, \
run by the shell. A command that exits is taken to have changed a setting of the server named by \
--name or --pid. A command that keeps running is a server, and is stopped at the end of its \
period. Without --name and --pid the command itself is the observed server.\n\nExit codes: 1 if B \
costs more, 2 if inconclusive."
)]
pub(crate) struct Switchback {
    /// Command that starts a period of A: a server, or a command that changes a setting and exits
    #[arg(long, value_name = "CMD")]
    pub(crate) a: String,
    /// The same for B
    #[arg(long, value_name = "CMD")]
    pub(crate) b: String,
    /// Length of a period
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) period: Duration,
    /// Time at the start of each period that is not measured, while the server settles
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub(crate) settle: Duration,
    /// Rounds, each with one period of A and one of B; must be even, so that each goes first
    /// equally often
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) observed: Observed,
    #[command(flatten)]
    pub(crate) holds: Holds,
    /// If the server has no load yet: generate one with requests for this URL
    #[arg(long, requires = "rate", group = "requests", conflicts_with = "log_format")]
    pub(crate) url: Option<String>,
    /// Requests per second of that load: R, a ramp A..B, or N steps A..B/N, the same in each period
    #[arg(long, value_name = "RATE", requires = "url")]
    pub(crate) rate: Option<::load::Schedule>,
    /// Connections of that load
    #[arg(long, value_name = "N", default_value_t = 64, requires = "url")]
    pub(crate) connections: u32,
    /// Report no change if the interval shows that the change is within this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub(crate) margin: f64,
    /// Print the rounds and the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Directory to test for a disk cache: a small file is written and read there [default: the
    /// system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorTruth {
    /// Directory for its files
    pub(crate) home: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Study {
    /// Name and flags of the study; --help lists them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Approximate duration of the load
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Directory for the trial and the page
    #[arg(long, value_name = "DIR", default_value = "demo")]
    pub(crate) out: PathBuf,
    /// Event notification of the server under load
    #[arg(long, value_name = "NAME", value_parser = parse_backend)]
    pub(crate) backend: Option<readiness::Kind>,
    /// Additional idle connections (cold)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cold: u32,
    /// Print the analysis as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Origin {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct NullServer {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8001")]
    pub(crate) listen: SocketAddr,
    /// Body size of every response
    #[arg(long, value_name = "BYTES", default_value = "1K", value_parser = units::bytes)]
    pub(crate) size: u64,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
}

/// A label, `name=value`.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    match text.split_once('=') {
        Some((name, value))
            if !name.is_empty()
                && name.chars().all(plain)
                && !value.is_empty()
                && !value.contains(char::is_control) =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("expected name=value, such as release=42".to_owned()),
    }
}

/// A label, or the value of the label `release` alone.
fn parse_label_or_release(text: &str) -> Result<(String, String), String> {
    if text.contains('=') { parse_label(text) } else { parse_label(&format!("release={text}")) }
}

/// A number of bytes in which a day fits.
fn parse_keep_size(text: &str) -> Result<u64, String> {
    let bytes = units::bytes(text)?;
    match bytes >= ::keep::keeper::SIZE_MIN {
        true => Ok(bytes),
        false => Err(format!(
            "less than {} does not hold a day; the default is 1G",
            units::show_bytes(::keep::keeper::SIZE_MIN)
        )),
    }
}

/// A header field as curl's `-H` takes it.
fn parse_field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("give NAME: VALUE, such as 'Accept: */*'")?;
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// An even number of rounds, enough for an interval.
fn parse_rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if rounds >= regress::ROUNDS_MIN && rounds % 2 == 0 => Ok(rounds),
        _ => Err(format!("{text:?} is not an even number of at least {}", regress::ROUNDS_MIN)),
    }
}

/// A share such as `10%` or `10`, in percent.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err("expected a share above 0% and below 100%, such as 10%".to_owned()),
    }
}

/// A number of bytes, or `web`.
fn parse_size(text: &str) -> Result<::load::Size, String> {
    match text {
        "web" => Ok(::load::Size::web()),
        _ => units::bytes(text).map(|bytes| ::load::Size::Fixed { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_label_has_a_name_and_a_value() {
        assert_eq!(parse_field("A:  b: c "), Ok(("A".to_owned(), "b: c".to_owned())));
        assert!(parse_field("A").is_err());
        assert_eq!(parse_label("release=a=b"), Ok(("release".to_owned(), "a=b".to_owned())));
        for wrong in ["release", "=42", "release=", "my release=42", "release=4\n2"] {
            assert!(parse_label(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_label_or_release("v42"), Ok(("release".to_owned(), "v42".to_owned())));
        assert_eq!(parse_label_or_release("a=b"), parse_label("a=b"));
        assert!(parse_label_or_release("").is_err() && parse_label_or_release("=").is_err());
    }

    #[test]
    fn a_size_that_holds_no_day_is_refused_with_the_least() {
        assert_eq!(parse_keep_size("1G"), Ok(::keep::keeper::SIZE_DEFAULT));
        assert!(parse_keep_size("15M").unwrap_err().contains("16MiB"));
        assert!(parse_keep_size("much").unwrap_err().contains("256MiB"));
    }

    #[test]
    fn the_sampling_rate_has_bounds() {
        let parsed = |text: &str| {
            let command = ["plimsoll", "record", "--pid=1", "--access-log=a", "-oa.trial"];
            Cli::try_parse_from(command.into_iter().chain([format!("--profile={text}").as_str()]))
        };
        assert!(parsed("49").is_ok() && parsed("999").is_ok());
        for text in ["48", "1000", "0", "-99", "99Hz", ""] {
            assert!(parsed(text).unwrap_err().to_string().contains("49 to 999"), "{text}");
        }
    }
}

//! The flags, each declared once with its help: the command line, the man page, the completions
//! and `docs/reference.md` are all made from this file.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use command::flags::{parse_backend, parse_duration};

/// A caching web proxy that knows its own load line, and the laboratory that draws one for any
/// server.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 well; 1 a regression or a failed check was found; \
2 misuse, or nothing can be concluded (one line says why and what mends it).")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve: a caching HTTP proxy, reverse (--origin), forward (--forward) or by a file (-c)
    Serve(Serve),
    /// Say what is wrong with a configuration file, or what it would do
    Check(Check),
    /// Have a running server read its configuration again
    Reload(Ask),
    /// Have a running server start the program anew in its place, without losing a connection
    Restart(Ask),
    /// Say why a running server answers a request from store or not, or what more memory would give
    Explain(Explain),
    /// Purge what a running server has stored: a URL, a prefix, a tag, or everything
    Purge(Purge),
    /// Show what a running server counts, or list all that is counted
    Metrics(Metrics),
    /// Say how often the cores of a running server wait for each other's locks
    Locks(Locks),
    /// Drive a load at a server and measure its latencies
    Load(Load),
    /// Record a live server: CPU time by mode and requests, interval by interval, into a trial
    Record(Record),
    /// Show a recording while it goes on: capacity so far, rates, CPU time by procedure group
    Top(Top),
    /// Put the latencies that a load on another machine saw into a trial
    Join(Join),
    /// Read whole access logs, plain or packed: counts by class and time, rates, latencies
    Logs(Logs),
    /// Show a trial: its load line, its capacity with an interval, its latencies
    Report(Report),
    /// Foretell the capacity of a server if a group of its procedures cost less, or nothing
    WhatIf(WhatIf),
    /// Say what changed from one trial to another, and whether what was foretold came true
    Compare(Compare),
    /// Let two servers or settings take turns under one load, and say what a request costs on each
    Switchback(Switchback),
    /// Run a program so that its select() and poll() cost the same however many connections are
    /// silent
    Boost(Boost),
    /// Say what this machine supports, and whether the samplers find what is known to be there
    Doctor(Doctor),
    /// Do known things to be recorded, and tell of them afterwards
    #[command(hide = true)]
    DoctorTruth(DoctorTruth),
    /// The main job, end to end: serve, drive, record, and show the load line
    Demo(Demo),
    /// Repeat an experiment of the papers on this machine; without a name, list them
    #[command(disable_help_flag = true)]
    Study(Study),
    /// Serve deterministic objects: the origin of experiments
    Origin(Origin),
    /// The floor: a server that does one wait, one recv and one send a request
    NullServer(NullServer),
    /// Print the shell completions
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    Man,
    /// Print the reference of flags and metrics as Markdown
    #[command(hide = true)]
    Reference {
        /// Of the configuration file instead
        #[arg(long)]
        configuration: bool,
        /// An example of a configuration file instead
        #[arg(long, conflicts_with = "configuration")]
        example: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Serve by this configuration file; what it can say is then not said by flags
    #[arg(long, short, value_name = "FILE", conflicts_with_all = [
        "listen", "origin", "forward", "allow_to", "allow_from", "workers", "access_log",
        "log_format", "admin", "backend", "memory", "disk", "disk_bytes",
        "disk_verify",
    ])]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on, such as 127.0.0.1:3128 or [::]:80; may be given several times
    #[arg(long, value_name = "ADDR", required_unless_present = "config")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Reverse mode: the origin that every request goes to, such as http://127.0.0.1:8000; given
    /// several times, requests are shared out among them
    #[arg(long, value_name = "URL", required_unless_present_any = ["forward", "config"])]
    pub(crate) origin: Vec<String>,
    /// Forward mode: requests name their server themselves (absolute-form)
    #[arg(long, conflicts_with = "origin")]
    pub(crate) forward: bool,
    /// Forward mode: a network that may be reached although it is not public, such as 10.0.0.0/8;
    /// may be given several times
    #[arg(long, value_name = "CIDR", requires = "forward", value_parser = parse_network)]
    pub(crate) allow_to: Vec<server::IpNet>,
    /// Forward mode: a network whose clients may use the proxy, instead of loopback and private
    /// ones; may be given several times
    #[arg(long, value_name = "CIDR", requires = "forward", value_parser = parse_network)]
    pub(crate) allow_from: Vec<server::IpNet>,
    /// Worker threads, one a core, each with its own listener [default: the CPUs it may run on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Write an access log to this file (- for none)
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// Format of the access log: squid, common, combined, json, or a format string with Squid's
    /// codes behind squid: or Apache's behind apache:, such as 'squid:%ts.%03tu %>a %ru'
    #[arg(long, value_name = "FORMAT", default_value = "squid")]
    pub(crate) log_format: server::LogFormat,
    /// Address of the admin listener: /metrics, /upstreams, /healthz, and calls such as /purge
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// Event notification: epoll, io_uring, scalable_select, poll or select [default: the best
    /// that passes its self-test]
    #[arg(long, value_name = "NAME", value_parser = parse_backend)]
    pub(crate) backend: Option<readiness::Kind>,
    /// Bytes of memory for stored responses; K, M and G are understood
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Directory of a store on disk, where stored responses outlive the process; made if it does
    /// not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Bytes that the store on disk takes there, from the beginning on; K, M and G are understood
    #[arg(long, value_name = "BYTES", default_value = "1G", requires = "disk",
        value_parser = parse_bytes)]
    pub(crate) disk_bytes: u64,
    /// When blocks on disk are verified: once, when they come from the disk into the page cache, so
    /// that long bodies are sent from there without being copied; or always before they are sent
    #[arg(long, value_name = "WHEN", default_value = "once", requires = "disk",
        value_parser = parse_verify)]
    pub(crate) disk_verify: server::Verify,
    /// Print the addresses as one line of JSON on stdout once they are bound
    #[arg(long)]
    pub(crate) json: bool,
    /// Run on this CPU (with --workers 1)
    #[arg(long, value_name = "CPU", hide = true)]
    pub(crate) cpu: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file
    pub(crate) file: PathBuf,
    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// List every metric with its kind, unit, labels and meaning; asks no server
    #[arg(long)]
    pub(crate) list: bool,
    /// The admin address of the server to ask
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129", conflicts_with = "list")]
    pub(crate) admin: SocketAddr,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// The server's admin address
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// What to ask for, such as http://127.0.0.1:3128/ ; with --objects, /obj/N is put behind it
    pub(crate) url: String,
    /// Requests per second: R, a ramp A..B, N steps A..B/N, or `closed`: as fast as it answers
    #[arg(long, value_name = "RATE", default_value = "closed")]
    pub(crate) rate: ::load::Schedule,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Connections that carry requests (hot)
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) connections: u32,
    /// Connections that are open and silent
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cold: u32,
    /// A new connection for each request
    #[arg(long)]
    pub(crate) no_keep_alive: bool,
    /// Ask for N objects, by Zipf's law, as the origin verb serves them
    #[arg(long, value_name = "N")]
    pub(crate) objects: Option<u32>,
    /// Exponent of Zipf's law
    #[arg(long, value_name = "S", default_value_t = 0.9)]
    pub(crate) zipf: f64,
    /// Size of the objects: BYTES, or `web` (log-normal with a Pareto tail)
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_size)]
    pub(crate) size: ::load::Size,
    /// A request without an answer after this time is an error
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Intended starts evenly spaced instead of by a Poisson process
    #[arg(long)]
    pub(crate) even: bool,
    /// Send the requests through this forward proxy
    #[arg(long, value_name = "ADDR")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Never sleep: a core is burned so that the generator itself adds no delay
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Write the whole result to this file as JSON
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The URL that is asked for
    #[arg(required_unless_present = "cache", conflicts_with = "cache")]
    pub(crate) url: Option<String>,
    /// The method of the request; CONNECT asks for a tunnel to the URL's host
    #[arg(short = 'X', long, value_name = "METHOD", conflicts_with = "cache")]
    pub(crate) method: Option<String>,
    /// A field of the request, such as 'Accept-Language: de'; may be given several times
    #[arg(short = 'H', long, value_name = "NAME: VALUE", conflicts_with = "cache")]
    pub(crate) header: Vec<String>,
    /// The client's address, for rules that ask who it is [default: 127.0.0.1]
    #[arg(long, value_name = "IP", conflicts_with = "cache")]
    pub(crate) from: Option<IpAddr>,
    /// The listener that the request comes to [default: the first that takes such a URL]
    #[arg(long, value_name = "ADDR", conflicts_with = "cache")]
    pub(crate) listener: Option<SocketAddr>,
    /// The kind of listener: reverse or forward [default: reverse where there is any]
    #[arg(long, value_name = "ROLE", conflicts_with = "cache")]
    pub(crate) role: Option<String>,
    /// Instead of one URL: the hit ratios that 0.5, 1, 2 and 4 times the memory would give
    #[arg(long)]
    pub(crate) cache: bool,
    /// The server's admin address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    pub(crate) admin: SocketAddr,
    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Purge {
    /// The URL to purge, with all its variants
    #[arg(group = "what")]
    pub(crate) url: Option<String>,
    /// Every URL that begins so: example.com, or example.com/images/
    #[arg(long, value_name = "PREFIX", group = "what")]
    pub(crate) prefix: Option<String>,
    /// Every response with one of these tags (Surrogate-Key, Cache-Tag)
    #[arg(long, value_name = "TAG", group = "what")]
    pub(crate) tag: Option<String>,
    /// Everything
    #[arg(long, group = "what")]
    pub(crate) all: bool,
    /// Mark stale only: it is validated, or served stale where that is allowed
    #[arg(long)]
    pub(crate) soft: bool,
    /// The server's admin address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    pub(crate) admin: SocketAddr,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Locks {
    /// How long to count, in whole seconds up to a minute
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The server's admin address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    pub(crate) admin: SocketAddr,
    /// Print what was counted as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
#[command(group = clap::ArgGroup::new("requests").required(true))]
pub(crate) struct Record {
    #[command(flatten)]
    pub(crate) what: Recording,
    /// The trial to write
    #[arg(long, short, value_name = "NAME.trial")]
    pub(crate) output: PathBuf,
    /// Overwrite the trial if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is recorded and how: the flags that `record` and `top` have in common.
#[derive(Debug, Args)]
pub(crate) struct Recording {
    /// Process id of the server; its threads and children are followed
    #[arg(long, value_name = "N", group = "target")]
    pub(crate) pid: Option<u32>,
    /// Name of the server's processes, as in /proc/PID/comm
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) name: Option<String>,
    /// The server's access log
    #[arg(long, value_name = "FILE", group = "requests")]
    pub(crate) access_log: Option<PathBuf>,
    /// Where there is no log: a counter of requests that the server keeps for Prometheus, such as
    /// 'http://127.0.0.1:9145/metrics#http_requests_total{vhost="a"}'
    #[arg(long, value_name = "URL#METRIC", group = "requests", conflicts_with = "log_format")]
    pub(crate) requests_from: Option<::record::MetricUrl>,
    /// Keep addresses and query strings out of the trial
    #[arg(long)]
    pub(crate) redact: bool,
    /// Format of the access log: squid, combined, clf, haproxy, json, json:WHAT=KEY,... or the
    /// string of the server's configuration behind nginx:, squid: or apache: (varnishncsa's too)
    /// [default: told by its first lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<::record::FormatChoice>,
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// How long [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Samples a second, of each CPU, for the profile: 49 to 999
    #[arg(long, value_name = "HZ", default_value_t = ::record::ProfileSpec::default().hz,
        value_parser = parse_profile_hz)]
    pub(crate) profile: u32,
    /// Record no profile
    #[arg(long, conflicts_with = "profile")]
    pub(crate) no_profile: bool,
    /// Read the processor's counters: cycles, instructions, references to memory (root)
    #[arg(long)]
    pub(crate) counters: bool,
    /// Sample waits for locks: kernel locks of the whole machine, futexes of the server (root)
    #[arg(long)]
    pub(crate) locks: bool,
    /// Sample what becomes of the server's files between open and close (root)
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct Top {
    /// The trial to watch: one that plimsoll record is writing, or one that is finished
    #[arg(group = "target", conflicts_with_all = [
        "requests", "redact", "log_format", "interval", "duration", "profile", "no_profile",
        "counters", "locks", "files", "output", "force",
    ])]
    pub(crate) trial: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) what: Recording,
    /// Keep what is recorded in this trial [default: it is gone when the screen is]
    #[arg(long, short, value_name = "NAME.trial")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the trial if it is there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Rates, shares and latencies are those of so many intervals
    #[arg(long, value_name = "N", default_value_t = 60,
        value_parser = clap::value_parser!(u16).range(5..=3600))]
    pub(crate) last: u16,
    /// Sort the profile by the rules of this file, not by the default ones
    #[arg(long, value_name = "FILE")]
    pub(crate) groups: Option<PathBuf>,
    /// Print the screen once, as text: when there is an interval, or with --for at the end of it
    #[arg(long)]
    pub(crate) once: bool,
    /// Print a line of JSON for each interval instead of a screen
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The trial of the server
    pub(crate) trial: PathBuf,
    /// The result of the load: of load --json, or of its --output
    #[arg(value_name = "LOAD.json")]
    pub(crate) load: PathBuf,
    /// How far the generator's clock is ahead of the trial's, seconds; below zero, behind
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) offset: Option<f64>,
    /// Print what was joined as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The logs, in any order: plain, .gz, .xz or .zst
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Their format, as of record --log-format [default: told by their first lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<::record::FormatChoice>,
    /// Of lines that are not understood show the shape only
    #[arg(long)]
    pub(crate) redact: bool,
    /// Print the counts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The trial to show
    #[arg(required_unless_present = "print_groups")]
    pub(crate) trial: Option<PathBuf>,
    /// Leave out intervals with fewer requests per second than this, and show both lines
    #[arg(long, value_name = "RATE")]
    pub(crate) above: Option<f64>,
    /// Sort the profile by the rules of this file, not by the default ones
    #[arg(long, value_name = "FILE")]
    pub(crate) groups: Option<PathBuf>,
    /// Print the default rules of the procedure groups: a file to begin with
    #[arg(long, exclusive = true)]
    pub(crate) print_groups: bool,
    /// Latency objective for the capacity at which the 99th percentile still meets it
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    pub(crate) objective: Duration,
    /// Write the page to this file: self-contained, opens offline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the load line's figure to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the flame graph to this file: an SVG that a browser zooms and searches
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write collapsed stacks to this file, for flamegraph.pl, inferno and speedscope
    #[arg(long, value_name = "FILE")]
    pub(crate) collapsed: Option<PathBuf>,
    /// What collapsed stacks count
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = CollapsedBy::Samples)]
    #[arg(requires = "collapsed")]
    pub(crate) collapsed_by: CollapsedBy,
    /// Write the profile to this file as pprof reads it (profile.proto, gzipped)
    #[arg(long, value_name = "FILE")]
    pub(crate) pprof: Option<PathBuf>,
    /// Write the profile to this file for the Firefox profiler (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) firefox: Option<PathBuf>,
    /// Write intervals, threads, latencies, classes and costs into this directory as CSV
    #[arg(long, value_name = "DIR")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the same tables into this directory as Parquet
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: Option<PathBuf>,
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
    /// The trial: one with a profile
    pub(crate) trial: PathBuf,
    /// The group of procedures, as the report names it: select, malloc, tls, ...
    #[arg(long, value_name = "NAME")]
    pub(crate) group: String,
    /// How many times what it does it would cost: 0 is nothing, 0.5 half
    #[arg(long, value_name = "TIMES", conflicts_with = "cost", required_unless_present = "cost")]
    pub(crate) scale: Option<f64>,
    /// How much CPU time a request it would cost, such as 2.86ms or 15us
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) cost: Option<Duration>,
    /// Leave out intervals with fewer requests per second than this
    #[arg(long, value_name = "RATE")]
    pub(crate) above: Option<f64>,
    /// Sort the profile by the rules of this file, not by the default ones
    #[arg(long, value_name = "FILE")]
    pub(crate) groups: Option<PathBuf>,
    /// Do not keep the prediction in the trial
    #[arg(long)]
    pub(crate) no_keep: bool,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit status: 1 if the second trial is worse, 2 if nothing can be told.")]
pub(crate) struct Compare {
    /// The trial before
    pub(crate) before: PathBuf,
    /// The trial after
    pub(crate) after: PathBuf,
    /// Changes within this many percent count as none, if their interval shows it
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(crate) margin: f64,
    /// By how many percent two runs of one server differ (one sd); 0 if the two took turns
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    pub(crate) between_runs: f64,
    /// Leave out intervals with fewer requests per second than this
    #[arg(long, value_name = "RATE")]
    pub(crate) above: Option<f64>,
    /// Sort the profiles by the rules of this file, not by the default ones
    #[arg(long, value_name = "FILE")]
    pub(crate) groups: Option<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The periods take turns: A B, B A, A B, ... Each begins with its command, run \
by the shell. One that ends by itself has changed a setting of the server that --name or --pid \
names; one that goes on is a server, and is ended with its period. Without --name and --pid the \
command itself is the server that is observed.\n\nExit status: 1 if B costs more, 2 if nothing can \
be told."
)]
pub(crate) struct Switchback {
    /// What begins a period of A: a server to be run, or a command that changes a setting and ends
    #[arg(long, value_name = "CMD")]
    pub(crate) a: String,
    /// The same for B
    #[arg(long, value_name = "CMD")]
    pub(crate) b: String,
    /// Length of a period
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) period: Duration,
    /// What is left out at the beginning of each period, while things settle
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub(crate) settle: Duration,
    /// Rounds, of a period of each; even, so that each begins as often
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_rounds)]
    pub(crate) rounds: usize,
    /// Process id of a server that is there already
    #[arg(long, value_name = "N", conflicts_with = "name")]
    pub(crate) pid: Option<u32>,
    /// Name of a server's processes, as in /proc/PID/comm
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Where there is a load already: the server's access log
    #[arg(long, value_name = "FILE", required_unless_present_any = ["requests_from", "url"])]
    pub(crate) access_log: Option<PathBuf>,
    /// Format of the access log, as of record
    #[arg(long, value_name = "FORMAT", requires = "access_log")]
    pub(crate) log_format: Option<::record::FormatChoice>,
    /// Where there is a load already: a counter of requests, as of record
    #[arg(long, value_name = "URL#METRIC", conflicts_with = "access_log")]
    pub(crate) requests_from: Option<::record::MetricUrl>,
    /// Where there is none: drive one, and ask for this
    #[arg(long, requires = "rate", conflicts_with_all = ["access_log", "requests_from"])]
    pub(crate) url: Option<String>,
    /// Requests per second of that load: R, a ramp A..B, or N steps A..B/N, the same in each period
    #[arg(long, value_name = "RATE", requires = "url")]
    pub(crate) rate: Option<::load::Schedule>,
    /// Its connections
    #[arg(long, value_name = "N", default_value_t = 64, requires = "url")]
    pub(crate) connections: u32,
    /// Changes within this many percent count as none, if their interval shows it
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub(crate) margin: f64,
    /// Print the rounds and the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Boost {
    /// The library [default: libplimsoll_boost.so beside this command, or in ../lib/plimsoll]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// Have each process write a line of JSON to this file when it ends: calls, probes, audits
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// The program and its arguments, behind --
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Where a store on disk would be: a small file is written there and read [default: the
    /// system's directory of temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorTruth {
    /// Where its files are
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
    /// About how long the load is driven
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Where the trial and the page go
    #[arg(long, value_name = "DIR", default_value = "demo")]
    pub(crate) out: PathBuf,
    /// Event notification of the server under load
    #[arg(long, value_name = "NAME", value_parser = parse_backend)]
    pub(crate) backend: Option<readiness::Kind>,
    /// Connections open and silent beside the busy ones
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
    /// Bytes of the one body it knows
    #[arg(long, value_name = "BYTES", default_value = "1K", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
}

/// A network, or one address.
fn parse_network(text: &str) -> Result<server::IpNet, String> {
    let address = text.parse::<IpAddr>().map(server::IpNet::from);
    text.parse::<server::IpNet>()
        .or(address)
        .map(|net| net.trunc())
        .map_err(|_| "it is a network such as 10.0.0.0/8, or one address".to_owned())
}

/// `1024`, `64K`, `256M`, `2G`: powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits]
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes: write 65536, 64K, 256M or 2G"))?;
    let shift = match &text[digits..] {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        unit => return Err(format!("unknown unit {unit:?} of bytes: K, M or G")),
    };
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or(format!("{text} is too many"))
}

/// An even number of rounds, enough for an interval.
fn parse_rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if rounds >= regress::ROUNDS_MIN && rounds % 2 == 0 => Ok(rounds),
        _ => Err(format!("{text:?} is no even number from {} up", regress::ROUNDS_MIN)),
    }
}

fn parse_profile_hz(text: &str) -> Result<u32, String> {
    let (least, most) = (::record::PROFILE_HZ_MIN, ::record::PROFILE_HZ_MAX);
    match text.parse() {
        Ok(hz) if (least..=most).contains(&hz) => Ok(hz),
        _ => Err(format!("{text:?} is no rate of samples: give {least} to {most} a second")),
    }
}

/// A number of bytes, or `web`.
fn parse_size(text: &str) -> Result<::load::Size, String> {
    match text {
        "web" => Ok(::load::Size::web()),
        _ => parse_bytes(text).map(|bytes| ::load::Size::Fixed { bytes }),
    }
}

fn parse_verify(word: &str) -> Result<server::Verify, String> {
    match word {
        "once" => Ok(server::Verify::Once),
        "always" => Ok(server::Verify::Always),
        _ => Err("blocks are verified once or always".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_rate_of_samples_is_within_its_bounds() {
        assert_eq!((parse_profile_hz("49"), parse_profile_hz("999")), (Ok(49), Ok(999)));
        for text in ["48", "1000", "0", "-99", "99Hz", ""] {
            assert!(parse_profile_hz(text).unwrap_err().contains("49 to 999"), "{text}");
        }
    }

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    /// A reload reads the file alone: a flag beside it would silently hold, or silently not.
    #[test]
    fn what_a_file_says_is_not_said_by_flags() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let config = serve.get_arguments().find(|arg| arg.get_id() == "config").unwrap();
        let refused: Vec<_> =
            serve.get_arg_conflicts_with(config).into_iter().map(|arg| arg.get_id()).collect();
        for arg in serve.get_arguments() {
            let allowed = ["config", "json", "cpu", "help"].contains(&arg.get_id().as_str());
            assert!(allowed != refused.contains(&arg.get_id()), "{}", arg.get_id());
        }
    }

    #[test]
    fn times_and_bytes() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "0s", "s", "5d", "-1s", "1e999s", "99999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        for wrong in ["", "K", "1T", "-1", "99999999999G", "18446744073709551616"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong:?}");
        }
    }
}

//! The command-line flags. Each flag is declared once, with its help text. The command line, the
//! man page, the completions and `docs/reference.md` are all generated from this file.

mod check;
#[cfg(feature = "measure")]
mod dashboard;
#[cfg(feature = "measure")]
mod database;
#[cfg(feature = "measure")]
pub(crate) mod fleet;
mod import;
mod init;
#[cfg(feature = "measure")]
mod measure;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::check::Check;
#[cfg(feature = "measure")]
pub(crate) use self::dashboard::Dashboard;
#[cfg(feature = "measure")]
pub(crate) use self::database::{FleetInit, Login, Ship, ShipTo};
#[cfg(feature = "measure")]
pub(crate) use self::fleet::Fleet;
#[cfg(feature = "server")]
pub(crate) use self::import::ImportInside;
pub(crate) use self::import::{From, Import};
pub(crate) use self::init::{Init, Use};
#[cfg(feature = "measure")]
pub(crate) use self::measure::*;
use clap::{Args, Parser, Subcommand};
use command::flags::{parse_address, parse_backend, parse_duration};

/// A caching HTTP proxy, and a laboratory that measures the capacity of any live server.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success, 1 a check failed, 2 usage error or inconclusive \
result (stderr says why and how to fix it).")]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the caching proxy: reverse (--origin), forward (--forward) or from a file (-c)
    Serve(Serve),
    /// Write a short configuration file to start with: reverse, forward, or packages
    Init(Init),
    /// Check a configuration file and show what it would do
    Check(Check),
    /// Write the file of Squid, nginx, Varnish, HAProxy or Caddy as ours, and list the rest
    Import(Import),
    #[cfg(feature = "server")]
    /// Be a process in a sandbox of import --try
    #[command(hide = true)]
    ImportInside(ImportInside),
    /// Make a running server reload its configuration
    Reload(Control),
    /// Replace a running server with a new process without dropping a connection
    Restart(Control),
    /// Explain how a running server would answer a request, or what more memory would give
    Explain(Explain),
    /// Purge stored responses from a running server: a URL, a prefix, a tag, or everything
    Purge(Purge),
    /// Show the metrics of a running server, or list all metrics
    Metrics(Metrics),
    /// Count how often the cores of a running server wait for each other's locks
    Locks(Locks),
    #[cfg(feature = "measure")]
    /// Send requests to a server and measure latencies
    Load(Load),
    #[cfg(feature = "measure")]
    /// Record a live server's CPU time and requests, interval by interval, into a trial
    Record(Record),
    #[cfg(feature = "measure")]
    /// Watch a recording live: capacity so far, rates, CPU time by procedure group
    Top(Top),
    #[cfg(feature = "measure")]
    /// Serve a page that shows a recording, or a folder of trials, live in a browser
    Dashboard(Dashboard),
    #[cfg(feature = "measure")]
    /// Add the latencies measured by a load generator on another machine to a trial
    Join(Join),
    #[cfg(feature = "measure")]
    /// Summarise whole access logs, plain or compressed: counts by class and time, rates, latencies
    Logs(Logs),
    #[cfg(feature = "measure")]
    /// Send trials to ClickHouse, where `plimsoll fleet` asks about many servers
    Ship(Ship),
    #[cfg(feature = "measure")]
    /// Ask about many servers: headroom, costs of a release, outliers, when a group runs out
    #[command(subcommand)]
    Fleet(Fleet),
    #[cfg(feature = "measure")]
    /// Analyse a trial: load line, capacity with its interval, latencies
    Report(Report),
    #[cfg(feature = "measure")]
    /// Predict the capacity of a server if a group of its procedures cost less, or nothing
    WhatIf(WhatIf),
    #[cfg(feature = "measure")]
    /// Show what changed between two trials, and whether predictions came true
    Compare(Compare),
    #[cfg(feature = "measure")]
    /// Alternate two servers or settings under one load and compare the CPU cost of a request
    Switchback(Switchback),
    /// Run a program with select() and poll() calls whose cost does not grow with idle connections
    Boost(Boost),
    #[cfg(feature = "measure")]
    /// Show what this machine supports, and test the samplers against known work
    Doctor(Doctor),
    #[cfg(feature = "measure")]
    /// Do known work while being recorded, then report how much was done
    #[command(hide = true)]
    DoctorTruth(DoctorTruth),
    #[cfg(feature = "measure")]
    /// Run the whole workflow here: serve, load, record, and show the load line
    Demo(Demo),
    #[cfg(feature = "measure")]
    /// Repeat an experiment from the papers on this machine; without a name, list them
    #[command(disable_help_flag = true)]
    Study(Study),
    #[cfg(feature = "measure")]
    /// Serve deterministic objects, as the origin server of experiments
    Origin(Origin),
    #[cfg(feature = "measure")]
    /// Run the floor server: one wait, one recv and one send per request
    NullServer(NullServer),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write those of all commands
    Man {
        /// Write a page for each command into this directory
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Show the version, the commit, the compiler and the features of this build
    Version {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the reference of flags and metrics as Markdown
    #[command(hide = true)]
    Reference {
        /// Print the reference of the configuration file instead
        #[arg(long)]
        configuration: bool,
        /// Print an example configuration file instead
        #[arg(long, conflicts_with = "configuration")]
        example: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Use this configuration file; most other flags cannot be combined with it
    #[arg(long, short, value_name = "FILE", conflicts_with_all = [
        "listen", "origin", "forward", "allow_to", "allow_from", "workers", "access_log",
        "log_format", "admin", "backend", "memory", "disk", "disk_bytes",
        "disk_verify",
    ])]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on, such as 127.0.0.1:3128 or [::]:80; can be repeated
    #[arg(long, value_name = "ADDR", required_unless_present = "config")]
    #[arg(value_parser = parse_address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Reverse mode: forward all requests to this origin, such as http://127.0.0.1:8000; can be
    /// repeated to balance requests among several
    #[arg(long, value_name = "URL", required_unless_present_any = ["forward", "config"])]
    pub(crate) origin: Vec<String>,
    /// Forward mode: each request names its own server (absolute-form)
    #[arg(long, conflicts_with = "origin")]
    pub(crate) forward: bool,
    /// Forward mode: allow requests to this non-public network, such as 10.0.0.0/8; can be repeated
    #[arg(long, value_name = "CIDR", requires = "forward", value_parser = parse_network)]
    pub(crate) allow_to: Vec<server::IpNet>,
    /// Forward mode: allow clients from this network only, instead of loopback and private
    /// networks; can be repeated
    #[arg(long, value_name = "CIDR", requires = "forward", value_parser = parse_network)]
    pub(crate) allow_from: Vec<server::IpNet>,
    /// Worker threads, each with its own listener [default: one per available CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Write an access log to this file (- for none)
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// Access log format: squid, common, combined, json, or a format string prefixed with squid: or
    /// apache:, such as 'squid:%ts.%03tu %>a %ru'
    #[arg(long, value_name = "FORMAT", default_value = "squid")]
    pub(crate) log_format: server::LogFormat,
    /// Admin listener address: a live page, /metrics, /upstreams, /healthz; calls such as /purge
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Event notification: epoll, io_uring, scalable_select, poll or select [default: the best one
    /// that passes its self-test]
    #[arg(long, value_name = "NAME", value_parser = parse_backend)]
    pub(crate) backend: Option<readiness::Kind>,
    /// Memory for stored responses; accepts K, M and G
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = units::bytes)]
    pub(crate) memory: u64,
    /// Directory for a disk cache, which survives restarts; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Size of the disk cache, allocated at startup; accepts K, M and G
    #[arg(long, value_name = "BYTES", default_value = "1G", requires = "disk",
        value_parser = units::bytes)]
    pub(crate) disk_bytes: u64,
    /// When to verify the checksums of disk blocks: once, when they are read into the page cache,
    /// so that long bodies are sent from there without a copy; or always, before each send
    #[arg(long, value_name = "WHEN", default_value = "once", requires = "disk",
        value_parser = parse_verify)]
    pub(crate) disk_verify: server::Verify,
    /// Print the bound addresses as one line of JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Run on this CPU (with --workers 1)
    #[arg(long, value_name = "CPU", hide = true)]
    pub(crate) cpu: Option<usize>,
}

/// A call to a running server whose answer is printed as it is.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The server's admin address
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) admin: SocketAddr,
}

/// A call to a running server whose answer is formatted: flags that several commands share.
#[derive(Debug, Args)]
pub(crate) struct AdminCall {
    /// The server's admin address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    #[arg(value_parser = parse_address)]
    pub(crate) admin: SocketAddr,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// List every metric with its kind, unit, labels and meaning, without contacting a server
    #[arg(long, conflicts_with = "admin")]
    pub(crate) list: bool,
    /// Print a dashboard for Grafana with a panel for every metric (JSON, to be imported)
    #[arg(long, conflicts_with_all = ["admin", "list", "json"])]
    pub(crate) grafana: bool,
    /// Print rules for Prometheus: what to record, and alerts (YAML)
    #[arg(long, conflicts_with_all = ["admin", "list", "json", "grafana"])]
    pub(crate) prometheus_rules: bool,
    /// Send the metrics to this OpenTelemetry collector until stopped; /v1/metrics is appended
    #[arg(long, value_name = "URL", conflicts_with_all = ["list", "json", "grafana"])]
    #[arg(conflicts_with = "prometheus_rules")]
    pub(crate) otlp: Option<String>,
    /// How often to send them
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    #[arg(requires = "otlp")]
    pub(crate) every: Duration,
    /// Show also the metrics that are 0, and what each means
    #[arg(long, conflicts_with_all = ["list", "json", "grafana", "prometheus_rules", "otlp"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) call: AdminCall,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The requested URL
    #[arg(required_unless_present = "cache", conflicts_with = "cache")]
    pub(crate) url: Option<String>,
    /// Request method; CONNECT asks for a tunnel to the URL's host
    #[arg(short = 'X', long, value_name = "METHOD", conflicts_with = "cache")]
    pub(crate) method: Option<String>,
    /// Request header, such as 'Accept-Language: de'; can be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE", conflicts_with = "cache")]
    pub(crate) header: Vec<String>,
    /// Client address, for rules that depend on the client [default: 127.0.0.1]
    #[arg(long, value_name = "IP", conflicts_with = "cache")]
    pub(crate) from: Option<IpAddr>,
    /// Listener that receives the request [default: the first that accepts such a URL]
    #[arg(long, value_name = "ADDR", conflicts_with = "cache")]
    pub(crate) listener: Option<SocketAddr>,
    /// Listener role: reverse or forward [default: reverse if there is such a listener]
    #[arg(long, value_name = "ROLE", conflicts_with = "cache")]
    pub(crate) role: Option<String>,
    /// Instead of a URL: predict the hit ratios with 0.5, 1, 2 and 4 times the memory
    #[arg(long)]
    pub(crate) cache: bool,
    #[command(flatten)]
    pub(crate) call: AdminCall,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Purge {
    /// The URL to purge, with all its variants
    #[arg(group = "what")]
    pub(crate) url: Option<String>,
    /// Purge every URL with this prefix: example.com, or example.com/images/
    #[arg(long, value_name = "PREFIX", group = "what")]
    pub(crate) prefix: Option<String>,
    /// Purge every response that carries one of these tags (Surrogate-Key, Cache-Tag)
    #[arg(long, value_name = "TAG", group = "what")]
    pub(crate) tag: Option<String>,
    /// Purge everything
    #[arg(long, group = "what")]
    pub(crate) all: bool,
    /// Only mark responses stale: they are revalidated, or served stale where that is allowed
    #[arg(long)]
    pub(crate) soft: bool,
    #[command(flatten)]
    pub(crate) call: AdminCall,
}

#[derive(Debug, Args)]
pub(crate) struct Locks {
    /// How long to count: whole seconds, at most one minute
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) call: AdminCall,
}

#[derive(Debug, Args)]
pub(crate) struct Boost {
    /// The library [default: libplimsoll_boost.so next to this command, or in ../lib/plimsoll]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// Make each process append a line of JSON to this file when it ends: calls, probes, audits
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// The program and its arguments, after --
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    pub(crate) program: Vec<OsString>,
}

/// A network, or one address.
fn parse_network(text: &str) -> Result<server::IpNet, String> {
    let address = text.parse::<IpAddr>().map(server::IpNet::from);
    text.parse::<server::IpNet>()
        .or(address)
        .map(|net| net.trunc())
        .map_err(|_| "expected a network such as 10.0.0.0/8, or one address".to_owned())
}

fn parse_verify(word: &str) -> Result<server::Verify, String> {
    match word {
        "once" => Ok(server::Verify::Once),
        "always" => Ok(server::Verify::Always),
        _ => Err("expected once or always".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    /// A reload reads only the file, so a flag given with it would silently stay or silently
    /// vanish.
    #[test]
    fn a_configuration_file_conflicts_with_all_flags_that_it_replaces() {
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
}

//! The flags of `plimsoll fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use command::flags::parse_duration;

use super::measure::{parse_label, parse_percent};
use super::{FleetInit, Login};

#[derive(Debug, Subcommand)]
pub(crate) enum Fleet {
    /// List the servers, and how much of each was recorded
    List(List),
    /// Which server is nearest to its capacity: headroom at the peak
    Capacity(Capacity),
    /// What became more expensive per request: before and after a release
    Compare(Compare),
    /// Which servers differ from the others of their group by more than chance
    Outliers(Outliers),
    /// When headroom ends, by the trend and the season of the peaks
    Forecast(Forecast),
    /// Which procedures became more expensive: a differential flame graph of all servers
    Flame(Flame),
    /// Fetch trials as files, to report on them
    Fetch(Fetch),
    /// Write made-up trials of a fleet to a directory, to try these commands on
    Example(Example),
    /// Make the tables in ClickHouse, or bring older ones to the newest version
    Init(FleetInit),
}

/// Which trials a question is about.
#[derive(Debug, Args)]
pub(crate) struct Trials {
    /// A directory of trials, or a ClickHouse database such as http://host:8123/plimsoll
    #[arg(value_name = "DIR|URL", default_value = ".")]
    pub(crate) home: String,
    #[command(flatten)]
    pub(crate) login: Login,
    /// Only the time from so long ago until now, such as 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) last: Option<Duration>,
    /// Only trials with this label; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Only servers with this text in their name, HOST/SERVER
    #[arg(long, value_name = "TEXT")]
    pub(crate) server: Option<String>,
}

/// How an answer is shown.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// Write a self-contained HTML page to this file; it works offline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) trials: Trials,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Args)]
pub(crate) struct Capacity {
    #[command(flatten)]
    pub(crate) trials: Trials,
    /// Separate figures for each value of this label
    #[arg(long, value_name = "LABEL")]
    pub(crate) by: Option<String>,
    /// Fit this many servers again, those with the least headroom, from all intervals of their
    /// latest trial [default: 3, if that trial has at most 7,200 intervals]
    #[arg(long, value_name = "N")]
    pub(crate) details: Option<usize>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 1 if a request costs more after the change, 2 if nothing can \
be compared.")]
pub(crate) struct Compare {
    #[command(flatten)]
    pub(crate) trials: Trials,
    /// The label whose values are compared
    #[arg(long, value_name = "LABEL", default_value = "release")]
    pub(crate) by: String,
    /// Its value before the change [default: the latest but one]
    #[arg(long, value_name = "VALUE", requires = "after")]
    pub(crate) before: Option<String>,
    /// Its value after the change [default: the latest]
    #[arg(long, value_name = "VALUE", requires = "before")]
    pub(crate) after: Option<String>,
    /// Report no change if the interval shows that the change is below this share
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent)]
    pub(crate) margin: f64,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 1 if a server differs from its group, 2 if no group is large \
enough.")]
pub(crate) struct Outliers {
    #[command(flatten)]
    pub(crate) trials: Trials,
    /// Servers with the same value of this label are a group [default: servers of the same name]
    #[arg(long, value_name = "LABEL")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 1 if headroom ends within a year, 2 if it cannot be said.")]
pub(crate) struct Forecast {
    #[command(flatten)]
    pub(crate) trials: Trials,
    /// Servers with the same value of this label are a group [default: each server alone]
    #[arg(long, value_name = "LABEL")]
    pub(crate) by: Option<String>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Args)]
pub(crate) struct Flame {
    #[command(flatten)]
    pub(crate) trials: Trials,
    /// The label whose values are compared
    #[arg(long, value_name = "LABEL", default_value = "release")]
    pub(crate) by: String,
    /// Its values before and after [default: the two latest]
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    pub(crate) between: Vec<String>,
    /// Write the flame graph to this file (SVG with zoom and search)
    #[arg(long, short, value_name = "FILE.svg", default_value = "fleet.svg")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, Args)]
pub(crate) struct Fetch {
    #[command(flatten)]
    pub(crate) trials: Trials,
    /// The directory to write HOST-SERVER-TRIAL.trial to; files that exist are kept
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Refuse to fetch more trials than this
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) most: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Example {
    /// The directory
    pub(crate) directory: PathBuf,
    /// Seed of the made-up numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

//! The flags of the commands that send trials to ClickHouse.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use command::flags::parse_duration;

/// A database, and how to log in.
#[derive(Debug, Args)]
pub(crate) struct Database {
    /// The ClickHouse database, such as http://host:8123/plimsoll
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) login: Login,
}

/// How to log in to a database.
#[derive(Clone, Debug, Args)]
pub(crate) struct Login {
    /// File that contains the password of the database; otherwise user and password are in the URL
    /// or in CLICKHOUSE_USER and CLICKHOUSE_PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Ship {
    /// Trials, or directories with trials; those that a recording could not send go first
    #[arg(required = true, value_name = "TRIAL|DIR")]
    pub(crate) trials: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) database: Database,
    /// How long to retry while the database cannot be reached
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) retry_for: Duration,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a recording is sent while it is made.
#[derive(Debug, Args)]
pub(crate) struct ShipTo {
    /// Send the intervals to this ClickHouse database while recording, such as
    /// http://host:8123/plimsoll; what cannot be sent is retried from the trial
    #[arg(long, value_name = "URL")]
    pub(crate) ship_to: Option<String>,
    /// File that contains the password of --ship-to
    #[arg(long, value_name = "FILE", requires = "ship_to")]
    pub(crate) ship_password_file: Option<PathBuf>,
    /// For --ship-to, trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", requires = "ship_to")]
    pub(crate) ship_ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FleetInit {
    #[command(flatten)]
    pub(crate) database: Database,
    /// Delete rows this many days after they were measured [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) ttl_days: Option<u32>,
    /// Replicate the tables, with this path in Keeper or ZooKeeper, such as
    /// '/clickhouse/tables/{shard}/plimsoll'
    #[arg(long, value_name = "PATH")]
    pub(crate) replicated: Option<String>,
    /// Distribute the tables over this cluster of the server's configuration; run the command once
    /// for each node
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// Print the SQL instead of running it
    #[arg(long)]
    pub(crate) print: bool,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "print")]
    pub(crate) json: bool,
}

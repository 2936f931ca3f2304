//! The flags of `plimsoll import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The configuration file of the other server; - for stdin
    pub(crate) file: PathBuf,
    /// The server that the file is for [default: guessed by its content]
    #[arg(long, value_name = "SERVER", value_enum)]
    pub(crate) from: Option<From>,
    /// Write our configuration file here instead of to stdout
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Keep open what a rule protected that was not carried; by default it is closed
    #[arg(long)]
    pub(crate) open: bool,
    /// Print our file and a note for each directive as JSON; with --try, the differences
    #[arg(long)]
    pub(crate) json: bool,
    #[cfg(feature = "server")]
    /// Run the other server and ours in sandboxes, send both the same requests, and show where they
    /// differ; prints no configuration file
    #[arg(long = "try", conflicts_with = "output")]
    pub(crate) is_try: bool,
    #[cfg(feature = "server")]
    /// With --try: send at most this many requests
    #[arg(long, value_name = "N", requires = "is_try", default_value = "200")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(crate) requests: u16,
}

/// What a process does in the sandbox of `import --try`.
#[cfg(feature = "server")]
#[derive(Debug, Args)]
pub(crate) struct ImportInside {
    /// Its role
    #[arg(value_parser = import_try::ROLES)]
    pub(crate) role: String,
}

/// The servers whose files can be read.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum From {
    /// Squid
    Squid,
    /// Nginx
    Nginx,
    /// Varnish
    Vcl,
    /// HAProxy
    Haproxy,
    /// Caddy
    Caddy,
}

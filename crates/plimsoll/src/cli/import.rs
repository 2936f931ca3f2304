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
    /// Print our file and a note for each directive as JSON
    #[arg(long)]
    pub(crate) json: bool,
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
}

//! The flags of `plimsoll dashboard`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{GroupRules, Login};

#[derive(Debug, Args)]
pub(crate) struct Dashboard {
    /// What to show: a trial (being written, or finished), a directory of trials, or a ClickHouse
    /// database such as http://host:8123/plimsoll
    #[arg(value_name = "TRIAL|DIR|URL", default_value = ".")]
    pub(crate) source: String,
    #[command(flatten)]
    pub(crate) login: Login,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9180")]
    pub(crate) listen: SocketAddr,
    /// Give the figures only to pages opened with the token in this file [default: no token on a
    /// loopback address; elsewhere a new one, printed once with the page's address]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) groups: GroupRules,
    /// Print the page's address as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

//! The flags of `plimsoll init`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use command::flags::parse_address;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// What the file is for; without it, questions are asked on a terminal
    #[arg(value_name = "USE", value_enum)]
    pub(crate) purpose: Option<Use>,
    /// Write the file here; - for stdout
    #[arg(long, short, value_name = "FILE", default_value = "plimsoll.toml")]
    pub(crate) out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Address to listen on, such as 127.0.0.1:3128 or 0.0.0.0:80
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3128")]
    #[arg(value_parser = parse_address)]
    pub(crate) listen: SocketAddr,
    /// Admin address: metrics, dashboard, purges; it has no authentication
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    #[arg(value_parser = parse_address)]
    pub(crate) admin: SocketAddr,
    /// reverse: the server to put the cache in front of, such as http://127.0.0.1:8000; can be
    /// repeated
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Vec<String>,
    /// forward, packages: allow clients from this network only, instead of loopback and private
    /// networks; can be repeated
    #[arg(long, value_name = "CIDR", value_parser = super::parse_network)]
    pub(crate) allow_from: Vec<server::IpNet>,
    /// packages: the host of a mirror that clients may use by http; can be repeated [default: those
    /// of Debian and Ubuntu]
    #[arg(long, value_name = "HOST")]
    pub(crate) mirror: Vec<String>,
    /// packages: a registry that clients use by another name, such as https://registry.npmjs.org
    #[arg(long, value_name = "URL")]
    pub(crate) registry: Option<String>,
    /// Address for the clients of the registry
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3130", requires = "registry")]
    #[arg(value_parser = parse_address)]
    pub(crate) registry_listen: SocketAddr,
    /// Keep stored responses in this directory too, across restarts [default for packages:
    /// plimsoll-store]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<String>,
    /// Disk space for that, taken at once; accepts K, M and G
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = units::bytes)]
    pub(crate) disk_bytes: u64,
    /// Print the file and its settings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Use {
    /// A cache in front of your servers
    Reverse,
    /// A proxy that your own clients are configured to use
    Forward,
    /// A cache for packages: apt, dnf, apk, npm
    Packages,
}

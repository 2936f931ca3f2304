//! The flags of the two small servers for experiments: `plimsoll origin` and `null-server`.

use std::net::SocketAddr;

use clap::Args;

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

//! The flags of `plimsoll check`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file
    pub(crate) file: PathBuf,
    /// Print what rules and routes say about this request to a reverse listener
    #[arg(long, value_name = "METHOD URL")]
    pub(crate) request: Option<String>,
    /// A field of the request
    #[arg(long = "field", value_name = "NAME: VALUE", requires = "request")]
    pub(crate) fields: Vec<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", requires = "request")]
    pub(crate) from: Option<String>,
    /// The status of the upstream's response
    #[arg(long, requires = "request")]
    pub(crate) status: Option<u16>,
    /// A field of that response
    #[arg(long = "response-field", value_name = "NAME: VALUE", requires = "request")]
    pub(crate) response: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

//! The contract of a home of trials: sums by server, added up where the data is.
//!
//! Both homes return the same sums, to rounding, for the same trials. Results are ordered by
//! server, then by group.

use std::fmt;
use std::path::Path;

use regress::Marginal;
use regress::bins::Bin;
use serde::{Deserialize, Serialize};

/// Length of a window, seconds. Windows begin at multiples of it since the Unix epoch.
pub const WINDOW_S: i64 = 300;

/// Where trials are.
pub trait Home {
    /// What requests cost on each resource of each server, by rate.
    ///
    /// # Errors
    /// [`Error`], also if a trial cannot be read.
    fn costs(&self, asked: &Asked) -> Result<Vec<ServerCosts>, Error>;

    /// How much each server was used in each hour.
    ///
    /// # Errors
    /// Like [`Home::costs`].
    fn hours(&self, asked: &Asked) -> Result<Vec<ServerHours>, Error>;

    /// What requests cost in each procedure of each server.
    ///
    /// # Errors
    /// Like [`Home::costs`].
    fn procedures(&self, asked: &Asked) -> Result<Vec<ServerProcedures>, Error>;

    /// The stacks of all servers together, in each group.
    ///
    /// # Errors
    /// Like [`Home::costs`].
    fn stacks(&self, asked: &Asked) -> Result<Vec<GroupStacks>, Error>;

    /// The trials.
    ///
    /// # Errors
    /// Like [`Home::costs`].
    fn runs(&self, asked: &Asked) -> Result<Vec<Run>, Error>;

    /// Writes one trial into a new file. Its capacity is that of the trial which was recorded.
    ///
    /// # Errors
    /// Like [`Home::costs`]; also if the file exists.
    fn fetch(&self, run: &Run, into: &Path) -> Result<(), Error>;
}

/// Which trials a question is about. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Only windows that begin in this span, seconds since the Unix epoch: from, up to.
    pub span: Option<(i64, i64)>,
    /// Only trials that have all of these labels.
    pub labels: Vec<Label>,
    /// Only servers with this text in their name (`host/server`).
    pub server: Option<String>,
    /// Results are separate for each value of this label. Trials without it are left out.
    pub by: Option<String>,
}

/// A label of a trial, `name=value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A server: the trials of one server on one host belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId {
    /// Name of its machine.
    pub host: String,
    /// Its name.
    pub server: String,
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.server)
    }
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Identity of the trial: it survives copying and renaming the file.
    pub trial: u64,
    /// The server.
    pub server: ServerId,
    /// Its version, if known.
    pub version: Option<String>,
    /// Labels, sorted.
    pub labels: Vec<Label>,
    /// Start of the recording, ns since the Unix epoch.
    pub created_ns: i64,
    /// End of its last interval.
    pub end_ns: i64,
    /// Number of intervals.
    pub intervals: u64,
}

impl Run {
    pub(crate) fn missing(&self) -> Error {
        Error::Missing { what: format!("{}: this trial is not there any more", self.server) }
    }
}

/// The costs of one server, or of one group of its trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCosts {
    /// The server.
    pub server: ServerId,
    /// Value of the label that was asked for.
    pub group: Option<String>,
    /// Number of trials.
    pub trials: u64,
    /// Highest mean rate of a window, requests/s.
    pub peak_rate: f64,
    /// The resources of its latest trial.
    pub resources: Vec<ResourceCosts>,
}

/// The costs on one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceCosts {
    /// Its kind, as in a report: "hottest thread", "all threads", "machine".
    pub kind: String,
    /// What it can give, CPU seconds per second, by the latest trial. That of "all threads" is the
    /// largest of all trials, because in a quiet one few threads work.
    pub cap: f64,
    /// Whether it can limit the server, by the latest trial.
    pub may_limit: bool,
    /// Whether its wakes are known in all intervals.
    pub wakes_known: bool,
    /// Whether many processes take turns on it, by the latest trial.
    pub processes_alternate: bool,
    /// What a request costs at saturation by turns and busy periods of the latest trial, if known.
    pub marginal: Option<Marginal>,
    /// Sums of the intervals that belong to a line, by bin of the rate, lowest first.
    pub bins: Vec<(i32, Bin)>,
    /// Number of intervals in which it was saturated, with this cap. They are not in the bins.
    pub saturated_n: f64,
    /// Sum of their rates.
    pub saturated_x: f64,
}

/// The use of one server by hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerHours {
    /// The server.
    pub server: ServerId,
    /// Value of the label that was asked for.
    pub group: Option<String>,
    /// Its hours, in order. Hours without data are missing.
    pub hours: Vec<Hour>,
}

/// One hour of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hour {
    /// Its start, seconds since the Unix epoch.
    pub start_s: i64,
    /// Highest mean rate of a window that begins in it, requests/s.
    pub peak_rate: f64,
    /// Mean rate.
    pub mean_rate: f64,
}

/// What requests cost in the procedures of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerProcedures {
    /// The server.
    pub server: ServerId,
    /// Value of the label that was asked for.
    pub group: Option<String>,
    /// Number of windows with samples.
    pub windows: f64,
    /// Sum over these windows of the number of requests in each.
    pub requests: f64,
    /// Sum of its square.
    pub requests_squared: f64,
    /// Its procedures, by name.
    pub procedures: Vec<ProcedureSums>,
}

/// Sums over windows of the CPU time of one procedure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcedureSums {
    /// Its name, as in a report.
    pub procedure: String,
    /// Sum over the windows of its CPU time in each, seconds.
    pub cpu_s: f64,
    /// Sum of the square.
    pub cpu_s_squared: f64,
    /// Sum of the product with the window's requests.
    pub cpu_s_requests: f64,
}

/// The stacks of the trials of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupStacks {
    /// Value of the label that was asked for.
    pub group: Option<String>,
    /// Requests in the windows with samples.
    pub requests: f64,
    /// CPU seconds of each stack. Names of procedures, the outermost first.
    pub stacks: Vec<(Vec<String>, f64)>,
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{path}: {what}")]
    File {
        /// Its path.
        path: String,
        /// What is wrong, and how to fix it.
        what: String,
    },
    /// The database refused a query, or could not be reached.
    #[error("{url}: {what}")]
    Database {
        /// Its address, without the password.
        url: String,
        /// What is wrong, and how to fix it.
        what: String,
    },
    /// The trials do not have what the question is about.
    #[error("{what}")]
    Missing {
        /// What is missing, and how to fix it.
        what: String,
    },
}

impl Error {
    /// A trial could not be written.
    pub(crate) fn written(into: &Path, error: trial::Error) -> Error {
        Error::File { path: into.display().to_string(), what: error.to_string() }
    }
}

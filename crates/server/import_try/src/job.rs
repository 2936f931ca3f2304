//! The work of a sandbox, and its result, as they cross the border: one line of JSON each way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The work of one sandbox.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Paths of the machine that are shown read-only.
    pub(crate) shown: Vec<PathBuf>,
    /// Empty directories that the server may write to.
    pub(crate) writable: Vec<PathBuf>,
    /// Files that are written into the sandbox, over whatever the machine has there.
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
    /// The server. Without a program, our own server is started.
    pub(crate) program: Option<PathBuf>,
    /// The arguments of the server.
    pub(crate) arguments: Vec<String>,
    /// Where the server listens: it is ready once one of them accepts a connection.
    pub(crate) listens: Vec<SocketAddr>,
    /// Addresses of the server and of clients, besides those of loopback.
    pub(crate) addresses: Vec<IpAddr>,
    /// The origin.
    pub(crate) origin: Origin,
    /// The requests, in their order.
    pub(crate) requests: Vec<Request>,
}

/// Where the origin listens, and its certificate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The ports, for every address that is not of the server.
    pub(crate) ports: Vec<u16>,
    /// Addresses of loopback.
    pub(crate) loopback: Vec<SocketAddr>,
    /// Unix sockets.
    pub(crate) sockets: Vec<PathBuf>,
    /// Name servers that the files name.
    pub(crate) resolvers: Vec<Ipv4Addr>,
    /// Its certificate, as PEM.
    pub(crate) chain: String,
    /// The key of the certificate, as PEM.
    pub(crate) key: String,
}

/// Lines of the original: file, first line, last line.
pub(crate) type Place = (String, usize, usize);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The listener.
    pub(crate) to: SocketAddr,
    /// The address of the client.
    pub(crate) from: IpAddr,
    /// Whether the listener speaks TLS.
    pub(crate) tls: bool,
    /// The method.
    pub(crate) method: String,
    /// The target.
    pub(crate) target: String,
    /// The host.
    pub(crate) host: String,
    /// Other fields.
    pub(crate) fields: Vec<(String, String)>,
    /// The content.
    pub(crate) body: String,
    /// The lines of the original that it is for.
    pub(crate) place: Option<Place>,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The status; 0 if the connection ended without a response.
    pub(crate) status: u16,
    /// The fields, their names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    /// The content. A long one is its start, its length and a hash.
    pub(crate) body: String,
    /// Whether the end of the content did not arrive.
    pub(crate) is_cut: bool,
}

impl Answer {
    /// The values of a field, with commas between them.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let of_name = self.fields.iter().filter(|(there, _)| there == name);
        let values: Vec<&str> = of_name.map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

/// The request as the origin received it: the content of its responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Echo {
    /// The address that the origin was reached at, or the path of the socket.
    pub(crate) at: String,
    /// The method.
    pub(crate) method: String,
    /// The target.
    pub(crate) target: String,
    /// The fields, their names in lower case, sorted.
    pub(crate) fields: Vec<(String, String)>,
    /// Bytes of the content.
    pub(crate) length: usize,
    /// Makes the content long enough to be coded and to have ranges.
    pub(crate) filler: String,
}

/// The field of the origin with the number of the response.
pub(crate) const NUMBER: &str = "x-try-number";

/// What a sandbox reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The answers, in the order of the requests. There are fewer if the time was over.
    Answers(Vec<Answer>),
    /// The server does not start: its output.
    NotStarted(String),
    /// User namespaces are not permitted: why.
    NotPermitted(String),
    /// There is no sandbox: why.
    NoSandbox(String),
}

//! Requests to ClickHouse over HTTP, and what its errors mean.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::address::Address;
use crate::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const QUESTION_TIMEOUT: Duration = Duration::from_secs(300);
/// For a block of rows: a cluster under load needs long for some megabytes.
pub(super) const INSERT_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest answer that is read. Answers have a row for each server, or each stack.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

/// A question with FINAL reads all parts of its partitions at once, and each column of each part
/// has buffers of the default 1 MiB: 3 GB for four weeks of `windows`, beyond the limit of a query
/// within a year.
const READ_BUFFER: (&str, &str) = ("max_read_buffer_size", "65536");

/// The longest error that is read, and that is shown.
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERROR_CHARS_MAX: usize = 240;

/// Asks one database.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    address: Address,
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// What is wrong, and how to fix it.
    pub(super) what: String,
    /// Whether the same request may succeed later.
    pub(super) passing: bool,
}

impl Client {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::File`], if the certificates cannot be read.
    pub fn new(address: Address) -> Result<Client, Error> {
        let mut agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(QUESTION_TIMEOUT));
        if address.server.starts_with("https:") {
            agent = agent.tls_config(tls(address.ca.as_deref())?);
        }
        Ok(Client { agent: agent.build().into(), address })
    }

    /// The database that is asked.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Runs any statement in the database, and returns the answer.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn run(&self, sql: &str) -> Result<Vec<u8>, Error> {
        self.query(sql).map_err(|failed| self.error(failed))
    }

    /// Runs a statement in the database, and returns the rows in the format that it asks for.
    pub(super) fn query(&self, sql: &str) -> Result<Vec<u8>, Failed> {
        let database = ("database", &*self.address.database);
        match self.send(&[database, READ_BUFFER], sql.as_bytes(), None) {
            // A user who may only read cannot change a setting. The error has its name.
            Err(failed) if failed.what.contains(READ_BUFFER.0) => {
                self.send(&[database], sql.as_bytes(), None)
            }
            answer => answer,
        }
    }

    /// Runs a statement that needs no database.
    pub(super) fn query_server(&self, sql: &str) -> Result<Vec<u8>, Failed> {
        self.send(&[], sql.as_bytes(), None)
    }

    /// Fails if this is not ClickHouse, or if it cannot be used. Any user may do this.
    pub(super) fn check(&self) -> Result<(), Failed> {
        match &*self.query("SELECT toUInt8(1) FORMAT RowBinary")? {
            [1] => Ok(()),
            _ => Err(not_clickhouse()),
        }
    }

    /// Inserts rows. A table that is distributed has them when this returns.
    pub(super) fn insert(&self, sql: &str, rows: &[u8], timeout: Duration) -> Result<(), Failed> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(rows).expect("memory can be written to");
        let rows = gzip.finish().expect("memory can be written to");
        let parameters = [
            ("database", &*self.address.database),
            ("insert_distributed_sync", "1"),
            ("query", sql),
        ];
        // Other web servers answer anything with 200 and a page.
        let answer = self.send(&parameters, &rows, Some(timeout))?;
        if answer.is_empty() { Ok(()) } else { Err(not_clickhouse()) }
    }

    /// The whole of an answer, or the error that it contains: the database is asked not to begin
    /// with an answer before it is complete. A body with a time-out is compressed rows.
    fn send(
        &self,
        parameters: &[(&str, &str)],
        body: &[u8],
        gzip: Option<Duration>,
    ) -> Result<Vec<u8>, Failed> {
        let mut request = self.agent.post(format!("{}/", self.address.server));
        request = request.query("wait_end_of_query", "1");
        for (name, value) in parameters {
            request = request.query(*name, *value);
        }
        if let Some(login) = self.address.authorization() {
            request = request.header("Authorization", login);
        }
        if let Some(timeout) = gzip {
            request = request.header("Content-Encoding", "gzip");
            request = request.config().timeout_global(Some(timeout)).build();
        }
        let mut response = request.send(body).map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let limit = if status.is_success() { ANSWER_BYTES_MAX } else { ERROR_BYTES_MAX };
        let read = response.body_mut().with_config().limit(limit).read_to_vec();
        if status.is_success() {
            return read.map_err(|error| self.unreachable(&error));
        }
        let text = read.unwrap_or_default();
        Err(self.refused(status.as_u16(), &String::from_utf8_lossy(&text)))
    }

    fn unreachable(&self, error: &ureq::Error) -> Failed {
        let server = &self.address.server;
        let what = match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("connection refused: no server listens at {server}, or it is starting")
            }
            ureq::Error::BodyExceedsLimit(bytes) => {
                let what = format!("the answer is longer than {bytes} bytes; ask for less");
                return Failed { what, passing: false };
            }
            ureq::Error::Timeout(_) => format!("no answer in time ({error})"),
            error => error.to_string(),
        };
        Failed { what, passing: true }
    }

    /// What an error of the database means.
    fn refused(&self, status: u16, text: &str) -> Failed {
        let code = code_of(text);
        let hint = match code {
            Some(UNKNOWN_TABLE | UNKNOWN_DATABASE | NO_SUCH_COLUMN | UNKNOWN_IDENTIFIER) => {
                format!("; to fix this: plimsoll fleet init --to {}", self.address)
            }
            Some(UNKNOWN_USER | WRONG_PASSWORD | PASSWORD_NEEDED | NOT_AUTHENTICATED) => {
                "; give user and password in the URL, in --password-file, or in \
                 CLICKHOUSE_USER and CLICKHOUSE_PASSWORD"
                    .to_owned()
            }
            Some(READ_ONLY | NO_ACCESS_TO_DATABASE | ACCESS_DENIED) => {
                "; this user may not do this: docs/clickhouse.md lists the rights that are needed"
                    .to_owned()
            }
            None => format!(" (HTTP status {status}); is this ClickHouse's HTTP port?"),
            Some(_) => String::new(),
        };
        let passing = match code {
            Some(code) => PASSING.contains(&code),
            // A proxy before the database answers like this.
            None => matches!(status, 429 | 502..=504),
        };
        Failed { what: shown(text) + &hint, passing }
    }
}

impl Client {
    /// The error of a question.
    pub(super) fn error(&self, failed: Failed) -> Error {
        Error::Database { url: self.address.to_string(), what: failed.what }
    }
}

/// The answer has another form than ClickHouse's.
pub(super) fn not_clickhouse() -> Failed {
    let what = "the answer is not one of ClickHouse: is this its HTTP port?".to_owned();
    Failed { what, passing: false }
}

// Codes of ClickHouse's errors (src/Common/ErrorCodes.cpp).
const NO_SUCH_COLUMN: u32 = 16;
const UNKNOWN_IDENTIFIER: u32 = 47;
const UNKNOWN_TABLE: u32 = 60;
const UNKNOWN_DATABASE: u32 = 81;
const READ_ONLY: u32 = 164;
const UNKNOWN_USER: u32 = 192;
const WRONG_PASSWORD: u32 = 193;
const PASSWORD_NEEDED: u32 = 194;
const NO_ACCESS_TO_DATABASE: u32 = 291;
const ACCESS_DENIED: u32 = 497;
const NOT_AUTHENTICATED: u32 = 516;

/// Errors that may be over at the next attempt: another node that ended (32, 210, 279), time-outs
/// (159, 209), too many queries (202) or parts (252), memory (241), a replica that is read-only for
/// the moment (242), Keeper (225, 319, 999), a shutdown (236, 394).
const PASSING: [u32; 14] = [32, 159, 202, 209, 210, 225, 236, 241, 242, 252, 279, 319, 394, 999];

/// The number in "Code: 60, e.displayText() = ..." or "Code: 60. DB::Exception: ...".
fn code_of(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Code: ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The first line of an error, without the names of exceptions.
fn shown(text: &str) -> String {
    let text = text.rsplit_once("Exception: ").map_or(text, |(_, last)| last);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    let line = line.split(", e.what() = ").next().unwrap_or(line);
    let line = line.split(" (version ").next().unwrap_or(line);
    let line: String = line.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect();
    line.trim().trim_end_matches('.').to_owned()
}

/// TLS that trusts the certificates of a PEM file, or the system's.
///
/// # Errors
/// [`Error::File`], if the file cannot be read.
pub fn tls(ca: Option<&Path>) -> Result<TlsConfig, Error> {
    let roots = RootCerts::Specific(Arc::new(roots(ca)?));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let tls = TlsConfig::builder().root_certs(roots);
    Ok(tls.unversioned_rustls_crypto_provider(provider).build())
}

fn roots(ca: Option<&Path>) -> Result<Vec<Certificate<'static>>, Error> {
    let of = |der: CertificateDer<'_>| Certificate::from_der(&der).to_owned();
    let Some(path) = ca else {
        return Ok(rustls_native_certs::load_native_certs().certs.into_iter().map(of).collect());
    };
    let failed = |what: String| Error::File { path: path.display().to_string(), what };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found =
        found.map_err(|error| failed(format!("not a PEM file of certificates: {error}")))?;
    if found.is_empty() {
        return Err(failed("it has no certificate".to_owned()));
    }
    Ok(found.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_web_server_does_not_pass_for_clickhouse() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/d", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = io::Read::read(&mut stream, &mut [0; 4096]);
                let answer =
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\n<html>";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let client = Client::new(Address::of(&url).unwrap()).unwrap();
        let inserted = client.insert("INSERT INTO runs FORMAT RowBinary", b"row", INSERT_TIMEOUT);
        for failed in [inserted, client.check()] {
            let failed = failed.unwrap_err();
            assert!(failed.what.contains("HTTP port") && !failed.passing, "{failed:?}");
        }
        server.join().unwrap();
    }

    #[test]
    fn errors_are_shown_shortly_with_a_hint() {
        let client = Client::new(Address::of("http://u:secret@h:1/d").unwrap()).unwrap();
        let refused = |text: &str| client.refused(500, text);
        let old = refused(
            "Code: 60, e.displayText() = DB::Exception: Table d.runs doesn't exist., e.what() = \
             DB::Exception\n",
        );
        assert_eq!(
            old.what,
            "Table d.runs doesn't exist; to fix this: plimsoll fleet init --to http://h:1/d"
        );
        let new = refused(
            "Code: 516. DB::Exception: u: Authentication failed: password is incorrect, or there \
             is no user with such name. (AUTHENTICATION_FAILED) (version 26.9.2.1)\n",
        );
        assert!(new.what.starts_with("u: Authentication failed: password is") && !new.passing);
        assert!(new.what.contains("--password-file") && !new.what.contains("secret"));
        assert!(refused("Code: 252. DB::Exception: Too many parts (300).").passing);
        let node = refused(
            "Code: 210, e.displayText() = DB::NetException: Connection refused (127.0.0.1:9): \
             Insertion status:\nWrote 1 blocks, e.what() = DB::NetException\n",
        );
        assert!(node.passing && node.what == "Connection refused (127.0.0.1:9): Insertion status:");
        assert!(refused("<html>").what.contains("HTTP port"));
        assert!(client.refused(503, "").passing);
    }
}

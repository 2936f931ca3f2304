//! The TLS settings of a listener or an upstream: file names and a few options.
//!
//! Nothing here reads a file. [`super::ServerTls`] and [`super::ClientTls`] are made from these at
//! the start, at each reload and by a check, and report what is wrong with which file.

use std::path::PathBuf;

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then the chain to the root (the root may be omitted).
    pub chain: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub key: PathBuf,
}

/// TLS on a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    /// Chosen by the name that the client requests (SNI): an exact name before a wildcard, and
    /// among several matches the first whose key the client can use. The first one in the list is
    /// used for clients that request no name or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// Names whose certificates come while the server runs ([`super::Issued`]), in lower case.
    pub issued: Vec<String>,
    /// The roots for client certificates, PEM; `None`: clients are not asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// With [`ListenerTls::client_ca`]: also serve clients without a certificate.
    pub client_optional: bool,
    /// Allow only TLS 1.3.
    pub only_tls13: bool,
}

/// For how long a certificate is valid, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub not_before_s: u64,
    /// Until then.
    pub not_after_s: u64,
}

/// The answer to a certification authority that checks whether a name is ours (RFC 8555, 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChallengeAnswer {
    /// At [`CHALLENGE_PATH`] and this token: this text (HTTP-01).
    Http {
        /// The last segment of the path.
        token: String,
        /// The content of the answer.
        content: String,
    },
    /// In a handshake for this name by the protocol `acme-tls/1`: this certificate and its key,
    /// both in one PEM text (TLS-ALPN-01, RFC 8737).
    Tls {
        /// In lower case.
        name: String,
        /// The certificate, and its key.
        pem: String,
    },
}

/// Where a certification authority asks for an answer, before the token (RFC 8555, 8.3).
pub const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// TLS to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The roots for the upstream's certificate, PEM; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate for an upstream that asks for one.
    pub certificate: Option<CertificateFiles>,
    /// The name to request (SNI), which the upstream's certificate must match; `None`: the host of
    /// the URL.
    pub server_name: Option<String>,
    /// Whether the certificate is verified. If not, anyone on the path can read and change the
    /// traffic.
    pub verify: bool,
}

/// The versions of HTTP that a connection to an upstream offers (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// HTTP/1.1 and HTTP/1.0.
    Http1,
    /// HTTP/2 alone.
    Http2,
    /// Both, HTTP/2 first.
    Both,
}

impl Default for UpstreamTls {
    fn default() -> UpstreamTls {
        UpstreamTls { ca: None, certificate: None, server_name: None, verify: true }
    }
}

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
    /// The roots for client certificates, PEM; `None`: clients are not asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// With [`ListenerTls::client_ca`]: also serve clients without a certificate.
    pub client_optional: bool,
    /// Allow only TLS 1.3.
    pub only_tls13: bool,
}

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

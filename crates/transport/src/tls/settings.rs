//! What a listener or an upstream is told about TLS: names of files and few choices.
//!
//! Nothing here reads a file: [`super::ServerTls`] and [`super::ClientTls`] are made from these, at
//! the start, at each reload and by a check, and say what is wrong with which file.

use std::path::PathBuf;

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those that lead from it to the root (the root need not be there).
    pub chain: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub key: PathBuf,
}

/// TLS on a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    /// Chosen by the name that the client asks for (SNI): an exact name before a wildcard, and of
    /// several that fit the first whose key the client can use. The first of all is for clients
    /// that ask for no name, or for one that is in no certificate.
    pub certificates: Vec<CertificateFiles>,
    /// The roots that certificates of clients lead to, PEM; `None`: clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// With [`ListenerTls::client_ca`]: a client without a certificate is served all the same.
    pub client_optional: bool,
    /// No version below TLS 1.3.
    pub only_tls13: bool,
}

/// TLS to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The roots that the upstream's certificate leads to, PEM; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// What we show an upstream that asks for a certificate.
    pub certificate: Option<CertificateFiles>,
    /// The name that is asked for (SNI) and that the upstream's certificate must be for; `None`:
    /// the host of the URL.
    pub server_name: Option<String>,
    /// Whether the certificate is verified at all. Without it anybody on the way can read and
    /// change what goes over the connection.
    pub verify: bool,
}

impl Default for UpstreamTls {
    fn default() -> UpstreamTls {
        UpstreamTls { ca: None, certificate: None, server_name: None, verify: true }
    }
}

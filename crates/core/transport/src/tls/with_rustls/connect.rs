//! TLS to upstreams: the trusted roots, and the handshake.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::time;
use rustls::client::UnbufferedClientConnection;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::handshake::{HandshakeError, Side, handshake};
use super::{CoreTls, HTTP2, TlsStream, WallClock, files, protocols, provider};
use crate::tls::ConnectError;
use crate::tls::settings::{Offered, UpstreamTls};

/// The trusted roots and our certificate for connections to an upstream, made from files.
#[derive(Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// Replaces the host of the URL.
    server_name: Option<ServerName<'static>>,
    warnings: Vec<String>,
}

impl ClientTls {
    /// Reads all files, or the roots of the system.
    ///
    /// # Errors
    /// One line that names the file or the name, and how to fix it.
    pub fn load(upstream: &UpstreamTls) -> Result<Arc<ClientTls>, String> {
        ClientTls::load_for(upstream, Offered::Http1)
    }

    /// The same, for connections that offer these versions of HTTP.
    ///
    /// # Errors
    /// Those of [`ClientTls::load`].
    pub fn load_for(upstream: &UpstreamTls, offered: Offered) -> Result<Arc<ClientTls>, String> {
        let provider = provider();
        let mut warnings = Vec::new();
        let builder =
            ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(WallClock))
                .with_safe_default_protocol_versions()
                .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let builder = if upstream.verify {
            let roots = match &upstream.ca {
                Some(path) => files::roots(path)?,
                None => system_roots(&mut warnings),
            };
            builder.with_root_certificates(roots)
        } else {
            warnings.push(
                "verify = false: the upstream's certificate is not verified; anyone on the path \
                 can read and change what goes over this connection. Name its root (ca) instead"
                    .to_owned(),
            );
            let unverified = Unverified(Arc::clone(&provider));
            builder.dangerous().with_custom_certificate_verifier(Arc::new(unverified))
        };
        let mut config = match &upstream.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let key = files::certified_key(files, &provider)?;
                let resolver = rustls::sign::SingleCertAndKey::from(key);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        // Given to us by the handshake: see `records`.
        config.enable_secret_extraction = true;
        config.alpn_protocols = match offered {
            Offered::Http1 => protocols(false),
            Offered::Http2 => vec![HTTP2.to_vec()],
            Offered::Both => protocols(true),
        };
        let server_name = match &upstream.server_name {
            None => None,
            Some(name) => Some(ServerName::try_from(name.clone()).map_err(|_| {
                format!("server_name {name:?} is neither a host name nor an address")
            })?),
        };
        Ok(Arc::new(ClientTls { config: Arc::new(config), server_name, warnings }))
    }

    /// What is dangerous or missing, although the configuration can be used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The configuration of rustls, for a client without the runtime.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }
}

fn system_roots(warnings: &mut Vec<String>) -> Arc<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        warnings.push(
            "the system has no root certificates, so no upstream's certificate will be accepted: \
             install them (ca-certificates), or name a file (ca)"
                .to_owned(),
        );
    }
    Arc::new(roots)
}

/// Accepts any certificate, as configured, but still checks that the peer has the key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The peer of a connection. Peers are equal if their configuration and name are.
#[derive(Clone, Debug)]
pub struct TlsPeer {
    tls: Arc<ClientTls>,
    name: ServerName<'static>,
}

impl TlsPeer {
    /// The peer that a URL names; `None` if the host is neither a name nor an address. An IPv6
    /// address is in brackets.
    pub fn of(tls: &Arc<ClientTls>, host: &[u8]) -> Option<TlsPeer> {
        let name = match &tls.server_name {
            Some(name) => name.clone(),
            None => {
                let host = std::str::from_utf8(host).ok()?;
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                ServerName::try_from(bare.unwrap_or(host).to_owned()).ok()?
            }
        };
        Some(TlsPeer { tls: Arc::clone(tls), name })
    }
}

impl TlsPeer {
    /// The name that the certificate must be for.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        self.name.to_str()
    }

    /// See [`ClientTls::warnings`].
    pub fn warnings(&self) -> &[String] {
        &self.tls.warnings
    }
}

impl PartialEq for TlsPeer {
    fn eq(&self, other: &TlsPeer) -> bool {
        Arc::ptr_eq(&self.tls, &other.tls) && self.name == other.name
    }
}

impl Eq for TlsPeer {}

impl std::hash::Hash for TlsPeer {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.tls).hash(state);
        self.name.hash(state);
    }
}

/// Does the TLS handshake on a connection to an upstream.
///
/// # Errors
/// Why there is no encrypted connection: a time-out, or the fault of one side.
pub async fn connect(
    core: &Rc<CoreTls>,
    peer: &TlsPeer,
    stream: TcpStream,
    limit: Duration,
) -> Result<TlsStream, ConnectError> {
    let result = time::timeout(limit, async {
        let client =
            UnbufferedClientConnection::new(Arc::clone(&peer.tls.config), peer.name.clone())?;
        handshake(stream, core, Side::Client(client), Vec::new(), &|_| {}).await
    })
    .await;
    match result {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(HandshakeError::Closed)) => Err(ConnectError::Handshake),
        Ok(Err(HandshakeError::Tls(error))) => {
            tracing::debug!(name = ?peer.name, %error, "no TLS with the upstream");
            Err(reason(&error))
        }
        Err(_) => Err(ConnectError::Timeout),
    }
}

/// Whether a read failed because the server does not accept our certificate. In TLS 1.3 a server
/// reports that only after the handshake.
pub fn refuses_certificate(error: &io::Error) -> bool {
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<Error>());
    inside.map(reason) == Some(ConnectError::CertificateRefused)
}

fn reason(error: &Error) -> ConnectError {
    use CertificateError as Certificate;
    match error {
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. } => ConnectError::CertificateTime,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                ConnectError::CertificateName
            }
            _ => ConnectError::Certificate,
        },
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired,
        ) => ConnectError::CertificateRefused,
        _ => ConnectError::Handshake,
    }
}

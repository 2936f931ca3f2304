//! The TLS configuration of a listener: its certificates, chosen by name, and its rules.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert,
    ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use super::handshake::REQUESTED;
use super::tickets::{TicketKeys, Tickets};
use super::{ACME_TLS, HTTP3, Issued, WallClock, files, protocols, provider};
use crate::tls::settings::{ListenerTls, Validity};

/// A listener's TLS configuration, made from files. A reload makes a new one; open connections keep
/// theirs.
#[derive(Debug)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    /// Sessions that may send early data: each is used once.
    sessions: Arc<dyn StoresServerSessions>,
    /// For them: rustls takes early data only in sessions that it keeps itself.
    no_tickets: Arc<dyn ProducesTickets>,
    /// Certificates of clients are verified.
    verifies_clients: bool,
    validities: Vec<(String, Validity)>,
    warnings: Vec<String>,
}

/// Sessions that are kept for early data. Older ones are forgotten: their clients wait for the
/// handshake.
const SESSIONS_MAX: usize = 4096;

impl ServerTls {
    /// Reads all files. With `http2`, clients may choose HTTP/2 (ALPN), and it is preferred.
    ///
    /// # Errors
    /// One line that names the file and how to fix it.
    pub fn load(listener: &ListenerTls, http2: bool) -> Result<Arc<ServerTls>, String> {
        let provider = provider();
        let mut warnings = Vec::new();
        let issued = listener.issued.clone();
        let mut certificates = Certificates { issued, ..Certificates::default() };
        let mut validities = Vec::new();
        let now = runtime::time::wall_ms();
        for files in &listener.certificates {
            let key = files::certified_key(files, &provider)?;
            let names = files::names(&key);
            warnings.extend(files::warnings(files, &key, std::time::Duration::from_millis(now)));
            if names.is_empty() {
                warnings.push(format!(
                    "the certificate in {} names no host (subjectAltName): browsers refuse it",
                    files.chain.display()
                ));
            }
            if let Some(validity) = files::validity(&key) {
                let file = || files.chain.display().to_string();
                validities.push((names.first().cloned().unwrap_or_else(file), validity));
            }
            certificates.add(names, key);
        }
        if certificates.all.is_empty() && certificates.issued.is_empty() {
            return Err("a listener with TLS needs at least one certificate and its key".to_owned());
        }
        let versions: &[_] = if listener.only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let builder =
            ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(WallClock))
                .with_protocol_versions(versions)
                .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let builder = match &listener.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = files::roots(path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match listener.client_optional {
                    true => verifier.allow_unauthenticated(),
                    false => verifier,
                };
                let verifier = verifier.build().map_err(|error| {
                    format!("clients cannot be verified with {}: {error}", path.display())
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let rules = [listener.only_tls13, http2].map(u8::from);
        let sessions = what_sessions_depend_on(&rules, &certificates);
        let tickets = Arc::new(Tickets::new(sessions));
        let certificates = Arc::new(certificates);
        let resolver = Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>;
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = protocols(http2);
        if !certificates.issued.is_empty() {
            config.alpn_protocols.push(ACME_TLS.to_vec());
        }
        // Given to us by the handshake: see `records`.
        config.enable_secret_extraction = true;
        let no_tickets = Arc::clone(&config.ticketer);
        let verifies_clients = listener.client_ca.is_some();
        if verifies_clients {
            // Rustls would take the client's certificate from its session without verifying it
            // again, and put it into the next one: it would never expire.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = Arc::clone(&tickets) as Arc<dyn ProducesTickets>;
        }
        Ok(Arc::new(ServerTls {
            config: Arc::new(config),
            certificates,
            tickets,
            sessions: ServerSessionMemoryCache::new(SESSIONS_MAX),
            no_tickets,
            verifies_clients,
            validities,
            warnings,
        }))
    }

    /// Makes tickets by these keys, for the listener at this address. Call it before the first
    /// handshake; without it, sessions end with this configuration.
    pub fn share_tickets(&self, keys: &Arc<TicketKeys>, listener: SocketAddr) {
        self.tickets.share(keys, listener);
    }

    /// Takes the certificates for [`ListenerTls::issued`] from here. Without it there are none.
    pub fn share_issued(&self, issued: &Arc<Issued>) {
        // A configuration is put in force once.
        let _ = self.certificates.source.set(Arc::clone(issued));
    }

    /// For how long the certificates of files are valid, each by its first name, or by its file if
    /// it has no name.
    pub fn validities(&self) -> &[(String, Validity)] {
        &self.validities
    }

    /// The same for QUIC, which has HTTP/3 alone. With `early_data`, clients that were here before
    /// may send requests at once, if their certificates are not verified.
    pub fn for_quic(&self, early_data: bool) -> ServerConfig {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![HTTP3.to_vec()];
        if early_data && !self.verifies_clients {
            // The only size that QUIC allows (RFC 9001 section 4.6.1).
            config.max_early_data_size = u32::MAX;
            config.session_storage = Arc::clone(&self.sessions);
            config.ticketer = Arc::clone(&self.no_tickets);
        }
        config
    }

    /// Problems with the files although they can be used, such as an expired certificate.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Sessions end when one of these changes.
fn what_sessions_depend_on<'s>(
    rules: &'s [u8; 2],
    certificates: &'s Certificates,
) -> impl Iterator<Item = &'s [u8]> {
    let chains = certificates.all.iter().flat_map(|key| key.cert.iter().map(AsRef::as_ref));
    let issued = certificates.issued.iter().map(|name| name.as_bytes());
    chains.chain(issued).chain([&rules[..]])
}

/// The certificates of a listener, by the names that they are for.
#[derive(Debug, Default)]
struct Certificates {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By the part after `*.`, which matches one label.
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// In the order of the configuration.
    all: Vec<Arc<CertifiedKey>>,
    /// Names whose certificates are in `source`.
    issued: Vec<String>,
    source: OnceLock<Arc<Issued>>,
}

impl Certificates {
    fn add(&mut self, names: Vec<String>, key: Arc<CertifiedKey>) {
        for name in names {
            let (table, name) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent.to_owned()),
                None => (&mut self.exact, name),
            };
            table.entry(name).or_default().push(Arc::clone(&key));
        }
        self.all.push(key);
    }

    /// The certificates for this name, or the default ones.
    fn candidates(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name else { return &self.all };
        // DNS names are case-insensitive, and rustls does not normalise them.
        let name = name.to_ascii_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.exact
            .get(&name)
            .or_else(|| self.wildcard.get(parent?))
            .map_or(&self.all, Vec::as_slice)
    }
}

impl Certificates {
    /// The certificate that was issued for this name, or for any name if no file has one.
    fn issued_for(
        &self,
        name: Option<&str>,
        usable: &dyn Fn(&Arc<CertifiedKey>) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let source = self.source.get()?;
        let exact = name.map(str::to_ascii_lowercase).filter(|name| self.issued.contains(name));
        let exact = exact.and_then(|name| source.certificate(&name)).filter(usable);
        let any = || self.issued.iter().filter_map(|name| source.certificate(name)).find(usable);
        exact.or_else(|| if self.all.is_empty() { any() } else { None })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        REQUESTED.set(hello.server_name().map(Box::from));
        if !self.issued.is_empty() {
            // A certification authority offers this protocol alone (RFC 8737, 3).
            let mut offered = hello.alpn().into_iter().flatten();
            if offered.next() == Some(ACME_TLS) && offered.next().is_none() {
                let name = hello.server_name()?.to_ascii_lowercase();
                return self.source.get()?.answer_for(&name);
            }
        }
        let schemes = hello.signature_schemes();
        let usable = |key: &Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        if !self.issued.is_empty()
            && let Some(issued) = self.issued_for(hello.server_name(), &usable)
        {
            return Some(issued);
        }
        let candidates = self.candidates(hello.server_name());
        candidates.iter().find(|key| usable(key)).cloned()
    }
}

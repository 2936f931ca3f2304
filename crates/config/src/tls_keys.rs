//! The keys of TLS: on listeners, to upstreams, and to servers that clients name.

use std::path::PathBuf;

use super::keys::ListenTable;
use super::table::{Here, Key, Table, keys};
use super::value::Kind;
use super::{CertificateFiles, Group, Listener, ListenerTls, Role, UpstreamTls};
use transport::tls::{ClientTls, ServerTls};

impl Table for ListenerTls {
    const KEYS: &'static [Key<ListenerTls>] = keys![ListenerTls;
        [[certificate]]: certificates,
            "A certificate and its key, chosen by the name that a client asks for; the first is \
             for clients that ask for none, or for one that is in no certificate.",
            example "shown";
        client_ca: Kind::Path, client_ca,
            "PEM file of the roots that certificates of clients lead to. Without it clients are \
             not asked for one.", example "\"clients.pem\"";
        client_optional: Kind::Flag, client_optional,
            "With client_ca: a client without a certificate is served all the same.";
        only_tls13: Kind::Flag, only_tls13, "No version below TLS 1.3.";
    ];

    fn blank() -> ListenerTls {
        ListenerTls::default()
    }

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.client_optional && self.client_ca.is_none() {
            here.mistake_of("client_optional", "there is no client_ca: write that too");
        }
    }
}

impl Table for CertificateFiles {
    const KEYS: &'static [Key<CertificateFiles>] = keys![CertificateFiles;
        chain: Kind::Path, chain,
            "PEM file: the certificate, then those that lead from it to the root.",
            required !, example "\"site.pem\"";
        key: Kind::Path, key, "PEM file of its private key, not encrypted.",
            required !, example "\"site.key\"";
    ];

    fn blank() -> CertificateFiles {
        CertificateFiles { chain: PathBuf::new(), key: PathBuf::new() }
    }
}

impl Table for UpstreamTls {
    const KEYS: &'static [Key<UpstreamTls>] = keys![UpstreamTls;
        ca: Kind::Path, ca,
            "PEM file of the roots that a server's certificate must lead to. Without it those of \
             the system.", example "\"roots.pem\"";
        (certificate): certificate, "What is shown to a server that asks for a certificate.";
        server_name: Kind::Text, server_name,
            "The name that is asked for (SNI) and that the certificate must be for. Without it \
             the host of the URL.", example "\"www.example.org\"";
        verify: Kind::Flag, verify,
            "Whether a server's certificate is verified. Without that anybody on the way can read \
             and change what goes over the connection.";
    ];

    fn blank() -> UpstreamTls {
        UpstreamTls::default()
    }
}

/// Reads the files of a listener's certificates.
pub(super) fn listener(
    table: &ListenTable,
    at: usize,
    here: &mut Here<'_, '_>,
) -> Option<Listener> {
    let mut listener = Listener::plain(table.address?, table.role);
    listener.proxies.clone_from(&table.proxy_from);
    if let Some(tls) = &table.tls {
        match ServerTls::load(tls) {
            Ok(loaded) => listener.tls = Some(loaded),
            Err(wrong) => here.mistake_of(&format!("listen[{at}].tls"), wrong),
        }
    }
    Some(listener)
}

/// Reads the files by which the servers of a group are trusted.
pub(super) fn group(
    mut group: Group,
    tls: Option<&UpstreamTls>,
    at: usize,
    here: &mut Here<'_, '_>,
) -> Group {
    let Some(tls) = tls else { return group };
    let mut secure = group.servers.iter_mut().filter(|server| server.origin.tls.is_some());
    let first = secure.next();
    if first.is_none() {
        let text = "there is no server with an https URL to which this could be";
        here.mistake_of(&format!("upstream[{at}].tls"), text);
    }
    match ClientTls::load(tls) {
        Ok(loaded) => {
            for server in first.into_iter().chain(secure) {
                if let Err(wrong) = server.origin.secure(&loaded) {
                    here.mistake_of(&format!("upstream[{at}].tls"), wrong);
                }
            }
        }
        Err(wrong) => here.mistake_of(&format!("upstream[{at}].tls"), wrong),
    }
    group
}

/// How TLS is spoken with servers that clients name, if any client may name one.
pub(super) fn https(
    listeners: &[Listener],
    tls: &UpstreamTls,
    here: &mut Here<'_, '_>,
) -> Option<std::sync::Arc<ClientTls>> {
    listeners.iter().find(|listener| listener.role == Role::Forward)?;
    match ClientTls::load(tls) {
        Ok(loaded) => Some(loaded),
        Err(wrong) => {
            here.mistake_of("https", wrong);
            None
        }
    }
}

//! The TLS keys: for listeners, upstreams, and servers named by clients.

use std::sync::Arc;

use super::acme::check_names;
use super::here::Here;
use super::keys::ListenTable;
use super::listen::{ListenAddress, Proxies};
use super::table::{Key, Table, keys};
use super::value::Kind;
use super::{CertificateFiles, Front, Group, Listener, ListenerTls, Role, UpstreamTls};
use runtime::process::{SocketRights, group_id, user_id};
use transport::tls::{ClientTls, Offered, ServerTls};

impl Table for ListenerTls {
    const KEYS: &'static [Key<ListenerTls>] = keys![ListenerTls;
        [[certificate]]: certificates,
            "A certificate and its key, chosen by the client's server name; the first is for \
             clients without a server name, or with one that no certificate has.",
            example "shown";
        acme: Kind::Texts, issued,
            "Names whose certificates the server obtains and renews by itself, one certificate a \
             name. Needs [acme].", example "[\"www.example.org\"]";
        client_ca: Kind::Path, client_ca,
            "PEM file of the roots for client certificates. Default: clients are not asked for a \
             certificate.", example "\"clients.pem\"";
        client_optional: Kind::Flag, client_optional,
            "With client_ca: clients without a certificate are served too.";
        only_tls13: Kind::Flag, only_tls13, "Whether versions below TLS 1.3 are refused.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.client_optional && self.client_ca.is_none() {
            here.mistake_of("client_optional", "there is no client_ca: write that too");
        }
        check_names(&self.issued, here);
    }
}

impl Table for CertificateFiles {
    const KEYS: &'static [Key<CertificateFiles>] = keys![CertificateFiles;
        chain: Kind::Path, chain,
            "PEM file: the certificate, then the intermediate certificates up to the root.",
            required !, example "\"site.pem\"";
        key: Kind::Path, key, "PEM file of its private key, unencrypted.",
            required !, example "\"site.key\"";
    ];
}

impl Table for UpstreamTls {
    const KEYS: &'static [Key<UpstreamTls>] = keys![UpstreamTls;
        ca: Kind::Path, ca,
            "PEM file of the roots that a server's certificate must lead to. Default: those of \
             the system.", example "\"roots.pem\"";
        (certificate): certificate, "The client certificate for servers that request one.";
        server_name: Kind::Text, server_name,
            "The name sent as SNI, which the certificate must have. Default: the host of the URL.",
            example "\"www.example.org\"";
        verify: Kind::Flag, verify,
            "Whether a server's certificate is verified. Without verification an attacker on the \
             path can read and change everything on the connection.";
    ];
}

impl ListenTable {
    /// Reports settings that do not fit a Unix socket, or need one.
    pub(crate) fn check_unix(&self, here: &mut Here<'_, '_>) {
        let lists = [("trusted_proxies", &self.trusted_proxies), ("proxy_from", &self.proxy_from)];
        if self.address.is_some_and(ListenAddress::is_unix) {
            if self.role == Role::Forward {
                let text = "clients of a forward listener are known by their addresses, and those \
                            of a Unix socket have none: listen on 127.0.0.1 or [::1]";
                here.mistake_of("address", text);
            }
            if self.http3 {
                here.mistake_of("http3", "a Unix socket has no UDP port: leave out http3");
            }
            if self.congestion_control.is_some() {
                let text = "nothing of a Unix socket is lost: leave out congestion_control";
                here.mistake_of("congestion_control", text);
            }
            for (key, networks) in lists {
                if networks.iter().flatten().any(|one| !one.are_unix()) {
                    here.mistake_of(
                        key,
                        "clients of a Unix socket have no address: \"unix\" is all",
                    );
                }
            }
            return;
        }
        let written = [self.mode.is_some(), self.owner.is_some(), self.group.is_some()];
        for (key, _) in ["mode", "owner", "group"].iter().zip(written).filter(|(_, is)| *is) {
            here.mistake_of(key, "only a Unix socket has it: address = \"unix:/run/x.sock\"");
        }
        for (key, networks) in lists {
            if networks.iter().flatten().any(|one| one.are_unix()) {
                here.mistake_of(key, "only a Unix socket has clients that are \"unix\"");
            }
        }
    }

    /// Who may connect to the Unix socket.
    pub(crate) fn rights(&self, at: usize, here: &mut Here<'_, '_>) -> SocketRights {
        let mut number = |key: &str, name: &Option<String>, of: fn(&str) -> Result<u32, String>| {
            let found = name.as_deref().map(of)?;
            found.map_err(|why| here.mistake_of(&format!("listen[{at}].{key}"), why)).ok()
        };
        let uid = number("owner", &self.owner, user_id);
        let gid = number("group", &self.group, group_id);
        let usual = SocketRights::default();
        SocketRights { mode: self.mode.map_or(usual.mode, |mode| mode.0), uid, gid }
    }
}

/// Loads the certificates of a listener.
pub(super) fn listener(
    table: &ListenTable,
    at: usize,
    here: &mut Here<'_, '_>,
) -> Option<Listener> {
    let mut listener = Listener::plain(table.address?.0, table.role);
    listener.rights = table.rights(at, here);
    listener.name.clone_from(&table.name);
    let networks = |of: &Vec<Proxies>| of.iter().map(|one| one.0).collect::<Vec<_>>();
    listener.proxies = table.proxy_from.as_ref().map(networks);
    listener.front = table.trusted_proxies.as_ref().map(networks).map(|networks| {
        let field = table.trusted_field.clone().unwrap_or_default();
        Arc::new(Front { networks, field, host: table.trusted_host })
    });
    listener.http2 = table.http2;
    listener.http3 = table.http3;
    listener.field_names = table.field_names.unwrap_or(listener.field_names);
    listener.alt_svc.clone_from(&table.alt_svc);
    listener.congestion_control.clone_from(&table.congestion_control);
    if let Some(tls) = &table.tls {
        match ServerTls::load(tls, table.http2) {
            Ok(loaded) => listener.tls = Some(loaded),
            Err(wrong) => here.mistake_of(&format!("listen[{at}].tls"), wrong),
        }
    }
    Some(listener)
}

/// Loads the certificates by which the servers of a group are verified.
pub(super) fn group(
    mut group: Group,
    tls: Option<&UpstreamTls>,
    at: usize,
    here: &mut Here<'_, '_>,
) -> Group {
    // Without settings, the defaults were loaded with the URL, for HTTP/1.
    let offered = group.protocol.offered();
    let usual = UpstreamTls::default();
    let is_given = tls.is_some();
    if !is_given && offered == Offered::Http1 {
        return group;
    }
    let tls = tls.unwrap_or(&usual);
    let mut secure = group.servers.iter_mut().filter(|server| server.origin.tls.is_some());
    let first = secure.next();
    if first.is_none() && is_given {
        let text = "no server of this upstream has an https URL";
        here.mistake_of(&format!("upstream[{at}].tls"), text);
    }
    match ClientTls::load_for(tls, offered) {
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

/// The TLS settings for servers that clients name, if there is a forward listener.
pub(super) fn https(
    listeners: &[Listener],
    tls: &UpstreamTls,
    here: &mut Here<'_, '_>,
) -> Option<Arc<ClientTls>> {
    listeners.iter().find(|listener| listener.role == Role::Forward)?;
    match ClientTls::load(tls) {
        Ok(loaded) => Some(loaded),
        Err(wrong) => {
            here.mistake_of("https", wrong);
            None
        }
    }
}

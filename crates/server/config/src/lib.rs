//! The configuration of the server. It is parsed once; all other code uses the types here.
//!
//! The types of the sections are here and in files with their names. `keys` declares the keys of a
//! configuration file, each once; `file` converts a file into the types.
//!
//! A key is parsed into the type of the crate that uses the value: a certificate is a type of
//! `transport`, the geometry of a disk a type of `store`, a log format a type of `access_log`. So a
//! value is checked once, where its line is known. This is why this crate is above those crates.

#![forbid(unsafe_code)]

mod acme;
mod auth;
mod captures;
mod cluster;
mod compression;
mod error_pages;
mod file;
mod files;
mod forward;
mod forward_keys;
mod front;
mod guard;
mod here;
mod key_settings;
mod keys;
mod lifetime;
pub mod limits;
mod listen;
mod maintenance;
mod peer_keys;
mod peers;
mod problem;
mod purge;
mod quota;
mod reference;
mod request_id;
mod rewrites;
mod route_keys;
mod routes;
mod rule_keys;
mod rules;
mod sticky;
mod table;
mod text_file;
mod tls_keys;
mod upstreams;
mod value;
mod via;
mod when;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use coding::Rules;
use ipnet::IpNet;
use runtime::net::shown;
use runtime::process::SocketRights;
use store::disk::{Geometry, Verify};

pub use forward::{ClientField, Domain, Forward, PasswordRealm, Ports, Protocol, Users};
pub use front::{Front, FrontField};

use crate::limits::Limits;
use access_log::LogFormat;
use dns::NameServers;
use transport::tls::{ClientTls, ServerTls, TlsPeer};

pub use acme::{Acme, Challenge};
pub use auth::Auth;
pub use caching::SetCookie;
pub use captures::{PathPattern, Piece, Segment, is_value, pieces};
pub use cluster::{Cluster, HEALTH_PATH};
pub use error_pages::{ErrorPage, Page};
pub use file::{Process, Settings};
pub use files::{Files, REQUESTED};
pub use guard::{Guard, Satisfy};
pub use http1::FieldNames;
pub use key_settings::{CookiesSent, DEVICE_FIELD, KeySettings, Pattern, Query};
use lifetime::lifetime_warnings;
pub use lifetime::{Lifetime, StatusPattern, TypePattern};
pub use listen::{CongestionControl, ListenAddress};
pub use maintenance::{MAINTENANCE, Maintenance};
pub use peers::{
    AskedPeer, DigestServer, DirectRule, Hierarchy, Login, PARENTS, PeerKind, Queries, QueryServer,
};
pub use problem::{Problem, Unusable};
pub use purge::PurgeRules;
pub use quota::{By, Counts, Over, Quota, Rate};
pub use reference::{example, markdown};
pub use request_id::{RequestId, Take};
pub use rewrites::{CookieRewrite, LocationRewrite, SameSite};
pub use routes::{Action, FieldRule, Host, NEGATIVE, Path, Route};
pub use rules::{Expect, Rewrite, Rule};
pub use sticky::{HashBy, Sticky};
pub use text_file::PacFile;
pub use transport::tls::{CertificateFiles, ListenerTls, UpstreamTls};
pub use upstreams::{
    Addresses, Balance, Ejection, ForwardedFields, Group, HealthCheck, HostSent, ProxyHeader,
    Queue, Retries, Server, Statuses, Timeouts, UpstreamProtocol, UpstreamReuse, short_id,
};
pub use via::{Via, ViaName};
pub use when::When;

/// A store on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Its directory. Created if it does not exist.
    pub path: PathBuf,
    /// Its shape, from the bytes it may take.
    pub geometry: Geometry,
    /// When its blocks are verified.
    pub verify: Verify,
}

impl DiskConfig {
    /// Minimum size of a store: 16 segments of 1 MiB, and the journals.
    pub const BYTES_MIN: u64 = 32 << 20;
    /// The default size.
    pub const BYTES_DEFAULT: u64 = 1 << 30;

    /// A store of at most this many bytes.
    ///
    /// # Errors
    /// The size is below the minimum.
    pub fn of(path: impl Into<PathBuf>, bytes: u64) -> Result<DiskConfig, String> {
        let geometry = Geometry::for_bytes(bytes).filter(|_| bytes >= DiskConfig::BYTES_MIN);
        let geometry = geometry.ok_or_else(|| {
            format!("a store on disk takes at least {} MiB", DiskConfig::BYTES_MIN >> 20)
        })?;
        Ok(DiskConfig { path: path.into(), geometry, verify: Verify::default() })
    }

    /// The options to open it with.
    #[must_use]
    pub fn options(&self) -> store::disk::Options {
        let options = store::disk::Options::new(&self.path, self.geometry);
        store::disk::Options { verify: self.verify, ..options }
    }
}

/// The server's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect, and in which mode.
    pub listeners: Vec<Listener>,
    /// The upstream groups of reverse listeners.
    pub groups: Vec<Group>,
    /// Which requests go to which group; if empty, all go to the first one.
    pub routes: Vec<Route>,
    /// What is done with requests and responses of reverse listeners, by conditions.
    pub rules: Vec<Rule>,
    /// What clients of reverse listeners get in place of errors, where their route has no page.
    pub error_pages: Vec<ErrorPage>,
    /// The page for maintenance, if there is one.
    pub maintenance: Option<Maintenance>,
    /// The lists that conditions name.
    pub lists: Vec<(String, Vec<String>)>,
    /// The maps that conditions name.
    pub maps: Vec<(String, Vec<(String, String)>)>,
    /// What must become of some requests.
    pub expects: Vec<Expect>,
    /// Other proxies, parents and siblings, that misses may go to.
    pub hierarchy: Option<Hierarchy>,
    /// Answers to queries by ICP, if there are any.
    pub icp: Option<QueryServer>,
    /// The same by HTCP.
    pub htcp: Option<QueryServer>,
    /// Our cache digest, if there is one.
    pub digest: Option<DigestServer>,
    /// The cluster that this server is a member of, if it is one.
    pub cluster: Option<Cluster>,
    /// The name servers.
    pub name_servers: NameServers,
    /// Who may use forward listeners, and for what.
    pub forward: Forward,
    /// How messages name this proxy.
    pub via: Via,
    /// Protocols that a connection may be upgraded to.
    pub upgrades: Vec<Protocol>,
    /// Memory for stored responses, in bytes, all cores together.
    pub memory_bytes: u64,
    /// The store on disk, if any.
    pub disk: Option<DiskConfig>,
    /// What becomes of a response that sets a cookie, on reverse listeners.
    pub set_cookie: SetCookie,
    /// The field that carries the number of a request, if one does.
    pub request_id: Option<RequestId>,
    /// Format of the access log.
    pub log_format: LogFormat,
    /// Limits and time-outs.
    pub limits: Limits,
    /// Who may purge, and how.
    pub purge: PurgeRules,
    /// How much clients may ask for.
    pub quotas: Vec<Quota>,
    /// How stored responses are coded; `None`: they are not.
    pub compression: Option<Rules>,
    /// TLS settings for servers that clients of forward listeners name by `https` URLs; `None`:
    /// such URLs are refused.
    pub https: Option<Arc<ClientTls>>,
    /// Seed of the hash for clients' keys; `None`: random.
    pub hash_seed: Option<[u64; 2]>,
    /// What the dashboard's page asks for; `None`: it is served on loopback addresses only.
    pub dashboard_token: Option<dashboard::Token>,
    /// Certificates that the server obtains by itself, if it does.
    pub acme: Option<Acme>,
}

impl Config {
    /// Reverse mode at these addresses, with one group of these origins and the defaults.
    pub fn reverse(origins: impl IntoIterator<Item = Origin>, listen: &[SocketAddr]) -> Config {
        Config { groups: vec![Group::of("origin", origins)], ..Config::at(Role::Reverse, listen) }
    }

    /// Forward mode at these addresses, with the defaults.
    pub fn forward(listen: &[SocketAddr]) -> Config {
        Config::at(Role::Forward, listen)
    }

    fn at(role: Role, listen: &[SocketAddr]) -> Config {
        Config {
            listeners: listen.iter().map(|&address| Listener::plain(address, role)).collect(),
            groups: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            error_pages: Vec::new(),
            maintenance: None,
            lists: Vec::new(),
            maps: Vec::new(),
            expects: Vec::new(),
            hierarchy: None,
            icp: None,
            htcp: None,
            digest: None,
            cluster: None,
            name_servers: NameServers::default(),
            forward: Forward::default(),
            via: Via::default(),
            upgrades: Protocol::usual(),
            memory_bytes: 256 << 20,
            disk: None,
            set_cookie: SetCookie::default(),
            request_id: None,
            log_format: LogFormat::default(),
            limits: Limits::default(),
            purge: PurgeRules::default(),
            quotas: Vec::new(),
            compression: None,
            https: None,
            hash_seed: None,
            dashboard_token: None,
            acme: None,
        }
    }
}

impl Config {
    /// Settings that work but are dangerous or about to fail: an expired certificate, a server
    /// whose certificate is not verified.
    pub fn warnings(&self) -> Vec<String> {
        let hierarchy = self.hierarchy.as_ref();
        let parents = hierarchy.and_then(|hierarchy| hierarchy.parents.as_ref());
        let asked = hierarchy.into_iter().flat_map(|of| &of.asked).map(|peer| &peer.group);
        let groups = self.groups.iter().chain(parents).chain(asked);
        let servers = groups.flat_map(|group| &group.servers);
        let peers = servers.filter_map(|server| server.origin.tls.as_ref());
        let of_servers = peers.flat_map(|peer| {
            peer.warnings().iter().map(move |text| format!("{}: {text}", peer.name()))
        });
        let listeners = self.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let of_listeners = listeners.flat_map(|tls| tls.warnings().to_vec());
        let of_https = self.https.iter().flat_map(|tls| tls.warnings().to_vec());
        let of_compression = self.compression.iter().filter_map(|rules| {
            let is_reverse = self.listeners.iter().any(|listener| listener.role == Role::Reverse);
            let why = match rules.types.is_empty() {
                true => "no type is listed",
                false if !is_reverse => "there is no reverse listener",
                false => return None,
            };
            Some(format!("compression: nothing is coded: {why}"))
        });
        let of_lifetimes = self.routes.iter().flat_map(|route| {
            lifetime_warnings(&route.lifetimes).map(|text| format!("{}.{text}", route.place))
        });
        let of_routes = self.routes.iter().flat_map(|route| {
            routes::warnings(route).map(|text| format!("{}.{text}", route.place))
        });
        let no_via = "via.requests is off: a loop of proxies would not be found".to_owned();
        let no_via = (hierarchy.is_some() && !self.via.requests).then_some(no_via);
        let found = of_listeners.chain(of_servers).chain(of_https);
        let of_fields = self.odd_fields();
        let found = found.chain(of_compression).chain(of_lifetimes).chain(of_routes).chain(no_via);
        let found = found.chain(of_fields).chain(acme::warnings(self));
        let of_cluster = self.cluster.iter().flat_map(|cluster| {
            let groups = self.groups.iter().chain(parents);
            cluster::warnings(cluster, cluster::Waits::longest(&self.limits, groups))
        });
        let of_front = self.listeners.iter().filter_map(|listener| {
            let networks = &listener.front.as_ref()?.networks;
            networks.iter().any(|network| network.prefix_len() == 0).then(|| {
                format!(
                    "{}: with such trusted_proxies every client names its address",
                    shown(listener.address)
                )
            })
        });
        let found = found.chain(self.in_the_clear()).chain(of_cluster).chain(of_front);
        let mut found: Vec<String> = found.collect();
        found.sort();
        found.dedup();
        found
    }

    /// Settings for fields that no request has any more at a reverse listener.
    fn odd_fields(&self) -> Vec<String> {
        let drops = |one: &Listener| {
            one.role == Role::Reverse && one.field_names == FieldNames::Plain && !one.cluster
        };
        if !self.listeners.iter().any(drops) {
            return Vec::new();
        }
        let why = "has other characters than letters, digits and hyphens: reverse listeners drop \
                   such fields unless field_names = \"any\"";
        let mut found = Vec::new();
        let mut note = |at: String, name: &str| {
            if !http1::is_plain(name.as_bytes()) {
                found.push(format!("{at}: the name {name} {why}"));
            }
        };
        for route in &self.routes {
            let at = &route.place;
            for rule in &route.request {
                if let FieldRule::Remove(name) | FieldRule::Default(name, _) = rule {
                    note(format!("{at}.request"), name);
                }
            }
            for name in &route.key.fields {
                note(format!("{at}.key_fields"), name);
            }
        }
        for quota in &self.quotas {
            if let By::Field(name) = &quota.by {
                note(format!("quota {}", quota.name), name);
            }
        }
        found
    }

    /// The largest limit that a route has for the content of requests, if one has a limit.
    pub fn route_body_bytes_max(&self) -> Option<u64> {
        self.routes.iter().filter_map(|route| route.body_bytes_max).max()
    }

    /// The origins whose host is a name without a known address.
    pub fn origins_without_address(&mut self) -> impl Iterator<Item = &mut Origin> {
        let hierarchy = self.hierarchy.iter_mut();
        let peers = hierarchy.flat_map(|of| {
            of.parents.iter_mut().chain(of.asked.iter_mut().map(|peer| &mut peer.group))
        });
        let servers = self.groups.iter_mut().chain(peers).flat_map(|group| &mut group.servers);
        let of_name = |origin: &&mut Origin| origin.addresses.is_empty() && origin.is_host();
        servers.map(|server| &mut server.origin).filter(of_name)
    }

    /// Requests for `https` URLs that would go to a peer without TLS, and not over loopback.
    fn in_the_clear(&self) -> impl Iterator<Item = String> {
        let is_forward = |listener: &Listener| listener.role == Role::Forward;
        let forward = self.https.is_some() && self.listeners.iter().any(is_forward);
        let by_routes = self.routes.iter().any(|route| route.peers)
            && self.listeners.iter().any(|one| one.role == Role::Reverse && one.tls.is_some());
        let of_parents = self.hierarchy.iter().filter(move |_| forward).flat_map(|of| &of.parents);
        let of_asked = self.hierarchy.iter().filter(move |_| forward || by_routes);
        let groups = of_parents.chain(of_asked.flat_map(|of| &of.asked).map(|peer| &peer.group));
        let is_loopback = |origin: &Origin| {
            let is_it = |address: &SocketAddr| address.ip().is_loopback();
            !origin.addresses.is_empty() && origin.addresses.iter().all(is_it)
        };
        let origins = groups.flat_map(|group| &group.servers).map(|server| &server.origin);
        let plain = origins.filter(move |origin| origin.tls.is_none() && !is_loopback(origin));
        plain.map(|origin| {
            let peer = &origin.authority;
            format!("peer {peer}: requests for https URLs would go there in the clear")
        })
    }
}

/// An address where clients connect.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name in conditions; `None`: its address.
    pub name: Option<String>,
    /// The address, as configured. With port 0 the system chooses the port.
    pub address: SocketAddr,
    /// If it is that of a Unix socket: who may connect.
    pub rights: SocketRights,
    /// Its mode.
    pub role: Role,
    /// If set, it only accepts TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// If set, each connection begins with a PROXY header and comes from one of these networks. The
    /// address in the header is the client's.
    pub proxies: Option<Vec<IpNet>>,
    /// The proxies that are trusted to name the client, if there are any.
    pub front: Option<Arc<Front>>,
    /// Whether clients may speak HTTP/2. With TLS, [`ServerTls`] has been loaded with the same
    /// value.
    pub http2: bool,
    /// Whether clients may speak HTTP/3, on the UDP port of the same number.
    pub http3: bool,
    /// What responses over HTTP/1 and HTTP/2 say about it, in place of the usual.
    pub alt_svc: Option<String>,
    /// How the kernel finds out how fast it may send, in place of the usual.
    pub congestion_control: Option<CongestionControl>,
    /// Which fields of requests there are.
    pub field_names: FieldNames,
    /// It is for the other members of the cluster.
    pub cluster: bool,
}

impl Listener {
    /// HTTP/1 and HTTP/2 in the clear, from any client.
    pub fn plain(address: SocketAddr, role: Role) -> Listener {
        let (http2, http3, alt_svc) = (true, false, None);
        let (tls, proxies, cluster) = (None, None, false);
        let field_names = Listener::field_names_of(role);
        Listener {
            name: None,
            address,
            rights: SocketRights::default(),
            role,
            tls,
            proxies,
            front: None,
            http2,
            http3,
            alt_svc,
            congestion_control: None,
            field_names,
            cluster,
        }
    }

    /// Which fields there are unless the configuration says so: our own servers may take `X_A` for
    /// `X-A`, and what is behind a forward listener is for the client to know.
    pub(crate) fn field_names_of(role: Role) -> FieldNames {
        match role {
            Role::Reverse => FieldNames::Plain,
            Role::Forward => FieldNames::Any,
        }
    }
}

/// The mode of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// In front of its origins; requests are in origin-form.
    #[default]
    Reverse,
    /// For its own clients: requests name their server, in absolute-form.
    Forward,
}

/// The beginning of the URL of a Unix socket.
const UNIX: &str = "unix:";
/// The beginning of the URL of a service.
const SERVICE: &str = "srv:";

/// The origin of reverse mode.
#[derive(Clone, Debug)]
pub struct Origin {
    /// `host` or `host:port`, as in the URL.
    pub authority: String,
    /// Its addresses, in the order of attempts. None if the host is a name that was not looked up,
    /// or that has no address yet.
    pub addresses: Vec<SocketAddr>,
    /// The TLS peer; `None`: plain HTTP.
    pub tls: Option<Arc<TlsPeer>>,
}

impl Origin {
    /// Parses `http://host[:port][/]`, `https://`, `unix:/path` of a Unix socket, or `srv:name` of a
    /// service. A name is not looked up. The certificate of one with TLS must lead to a root of the
    /// system, unless [`Origin::secure`] says otherwise.
    ///
    /// # Errors
    /// One line: what is wrong with the URL.
    pub fn from_url(url: &str) -> Result<Origin, String> {
        if let Some(path) = url.strip_prefix(UNIX) {
            if !path.starts_with('/') {
                return Err(format!("the origin {url:?} is not {UNIX} and an absolute path"));
            }
            let address = runtime::net::unix_address(std::path::Path::new(path));
            let address = address.map_err(|error| format!("the origin {url:?}: {error}"))?;
            return Ok(Origin { authority: url.to_owned(), addresses: vec![address], tls: None });
        }
        if let Some(service) = url.strip_prefix(SERVICE) {
            if !matches!(dns::Host::read(service), Some(dns::Host::Name(_))) {
                return Err(format!(
                    "the origin {url:?} is not {SERVICE} and a name such as _http._tcp.example.org"
                ));
            }
            let (authority, addresses, tls) = (url.to_owned(), Vec::new(), None);
            return Ok(Origin { authority, addresses, tls });
        }
        let (rest, secure) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => {
                let text = "begins neither with http:// nor with https://";
                let host =
                    url.rsplit('/').find(|part| !part.is_empty()).unwrap_or("127.0.0.1:8000");
                return Err(format!("the origin {url:?} {text}: try http://{host}"));
            }
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            let scheme = if secure { "https" } else { "http" };
            return Err(format!("the origin {url:?} is not of the form {scheme}://host[:port]"));
        }
        let mut origin =
            Origin { authority: authority.to_owned(), addresses: Vec::new(), tls: None };
        let wrong = |what: &str| format!("the origin's {what} in {url:?} is none");
        let parsed = http1::parse_authority(authority.as_bytes()).map_err(|_| wrong("host"))?;
        let port = parsed.port.unwrap_or(if secure { 443 } else { 80 });
        match std::str::from_utf8(parsed.host).ok().and_then(dns::Host::read) {
            Some(dns::Host::Address(ip)) => origin.addresses.push(SocketAddr::new(ip, port)),
            Some(dns::Host::Name(_)) => {}
            None => return Err(wrong("host")),
        }
        if secure {
            origin.secure(&ClientTls::load(&UpstreamTls::default())?)?;
        }
        Ok(origin)
    }

    /// Whether it is at a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.authority.starts_with(UNIX)
    }

    /// Whether it is a host: neither a Unix socket nor a service.
    pub fn is_host(&self) -> bool {
        !self.is_unix() && self.service().is_none()
    }

    /// The name of the service, if it is one (SRV).
    pub fn service(&self) -> Option<&str> {
        self.authority.strip_prefix(SERVICE)
    }

    /// Uses TLS with these settings from now on.
    ///
    /// # Errors
    /// The host cannot be in any certificate.
    pub fn secure(&mut self, tls: &Arc<ClientTls>) -> Result<(), String> {
        let (host, _) = self.host_and_port(443);
        let peer = TlsPeer::of(tls, host.as_bytes())
            .ok_or_else(|| format!("{host:?} is neither a host name nor an address"))?;
        self.tls = Some(Arc::new(peer));
        Ok(())
    }

    /// The scheme of its URL.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The default port of its scheme.
    pub fn default_port(&self) -> u16 {
        if self.tls.is_some() { 443 } else { 80 }
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(url: &str) -> Result<Origin, String> {
        Origin::from_url(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let origin = Origin::from_url("http://127.0.0.1:8000/").unwrap();
        assert_eq!(origin.authority, "127.0.0.1:8000");
        assert_eq!(origin.addresses, ["127.0.0.1:8000".parse().unwrap()]);
        let v6 = Origin::from_url("http://[::1]").unwrap();
        assert_eq!(v6.addresses, ["[::1]:80".parse().unwrap()]);
        let unix = Origin::from_url("unix:/run/app.sock").unwrap();
        assert_eq!((&*unix.authority, unix.scheme()), ("unix:/run/app.sock", "http"));
        assert!(unix.is_unix() && dns::literal(unix.host_and_port(80).0).is_some());
        let service = Origin::from_url("srv:_http._tcp.example.org").unwrap();
        assert_eq!(service.service(), Some("_http._tcp.example.org"));
        let name = Origin::from_url("http://site.example.:81").unwrap();
        assert_eq!((&*name.authority, name.addresses.len()), ("site.example.:81", 0));
        for wrong in [
            "ftp://a",
            "https://",
            "127.0.0.1:80",
            "http://",
            "http://a/b",
            "http://u@h",
            "http://h:99999",
            "http://a..b",
            "http://0x7f.1",
            "unix:",
            "unix:run/app.sock",
            "srv:",
            "srv:10.0.0.1",
            "srv:_http._tcp.example.org:80",
        ] {
            assert!(Origin::from_url(wrong).is_err(), "{wrong}");
        }
    }
}

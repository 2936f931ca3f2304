//! Forward mode: who may use the proxy, for what, and where it then connects to.
//!
//! ```text
//!   the client's network -> its password -> Via -> port -> domain -> addresses -> connect
//!        allow_from           users        loop   ports    allow_,   what they    to one of
//!                                                          deny_     resolve to   just these
//! ```
//!
//! A host is read once, by [`dns::Host`]: what is neither an address nor a name is refused. A
//! domain is judged by the name that is looked up, which search domains may have completed, and an
//! address by what a connection to it reaches, so that no other spelling passes a rule.
//!
//! Rules judge the resolved addresses: those that a name resolves to are filtered, and only the
//! remaining ones are connected to, so that a name which resolves to another address the next time
//! (rebinding) gains nothing. A stored response is served to every client that passes the steps
//! before the addresses.
//!
//! What never happens: a request is refused without a rule that has a name; a rule waits for
//! anything but the resolver and the pool that verifies passwords.

mod address;
mod passwords;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

use caching::Configured;
pub use conditions::Lists;
use conditions::{Builder, Conditions, Facts, Id, ResponseFacts, Scope};
use ipnet::IpNet;

use dns::{Host, Name, NoAnswer, Resolver};
use http1::{Method, RequestHead};
use runtime::net::TcpListener;
use runtime::time;

pub use passwords::{Known, Passwords, Verifying};

use config::{Domain, Forward, Ports, Satisfy, Users};
use outcome::{Fault, Refusal};

use crate::lifetimes::{Lifetimes, OF_FORWARD};
use crate::reading::Reading;
use crate::rules::CHECKED;

/// The rules, ready for use.
#[derive(Debug)]
pub struct Rules {
    config: Forward,
    allow_domains: Domains,
    deny_domains: Domains,
    deny_when: Option<(Conditions, Id)>,
    /// How long responses are fresh, if that is configured.
    lifetimes: Option<(Conditions, Lifetimes)>,
    /// There are no rules on domains or passwords, and no condition: stored responses can be served
    /// at once.
    plain: bool,
}

impl Rules {
    /// From the configuration.
    pub fn new(config: &Forward, lists: &Lists) -> Rules {
        let (allow, deny) = (&config.allow_domains, &config.deny_domains);
        let deny_when = config.deny_when.as_ref().map(|when| {
            let mut builder = Builder::new(lists.clone());
            let id = builder.add(when.as_str(), Scope::Request).expect(CHECKED);
            (builder.build(), id)
        });
        let lifetimes = (!config.lifetimes.is_empty()).then(|| {
            let mut builder = Builder::new(lists.clone());
            let lifetimes = config.lifetimes.clone();
            let route = config::Route { lifetimes, ..config::Route::to("") };
            let lifetimes = Lifetimes::new(&route, (&mut builder, lists));
            (builder.build(), lifetimes)
        });
        Rules {
            lifetimes,
            allow_domains: Domains::of(allow),
            deny_domains: Domains::of(deny),
            plain: allow.is_empty()
                && deny.is_empty()
                && config.users.is_none()
                && deny_when.is_none(),
            deny_when,
            config: config.clone(),
        }
    }

    /// Whether a stored response for this authority may be served at once. If not, an exchange
    /// decides.
    #[inline]
    pub fn admits_hit(&self, client: IpAddr, authority: &[u8]) -> bool {
        self.plain && self.admits_client(client) && self.admits_port_of(authority)
    }

    /// Whether this client may use the proxy at all; its user, if passwords are configured.
    ///
    /// # Errors
    /// The rule that refuses it.
    pub async fn admit(
        &self,
        client: IpAddr,
        head: &RequestHead<'_>,
        passwords: Passwords<'_>,
    ) -> Result<Option<Arc<[u8]>>, Refusal> {
        let Some(users) = self.asks_login(client)? else { return Ok(None) };
        passwords.user(client, (head, http1::Name::ProxyAuthorization), users).await.map(Some)
    }

    /// The users of whom a client of this address must be one; `None`: it needs no login.
    ///
    /// # Errors
    /// The client may not use the proxy.
    fn asks_login(&self, client: IpAddr) -> Result<Option<&Users>, Refusal> {
        let is_known = |network: &IpNet| network.contains(&client.to_canonical());
        let users = self.config.users.as_ref();
        match (self.admits_client(client), users, self.config.satisfy) {
            (true, Some(_), Satisfy::Any) => Ok(None),
            (true, _, Satisfy::All) if self.config.no_login_from.iter().any(is_known) => Ok(None),
            (true, users, _) => Ok(users),
            (false, Some(users), Satisfy::Any) => Ok(Some(users)),
            (false, ..) => Err(Refusal::Client),
        }
    }

    /// Whether responses have lifetimes.
    #[inline]
    pub fn has_lifetimes(&self) -> bool {
        self.lifetimes.is_some()
    }

    /// How long a response is fresh.
    pub fn lifetime(
        &self,
        reading: Reading<'_>,
        facts: &Facts<'_>,
        response: ResponseFacts<'_>,
    ) -> Option<Configured> {
        let (conditions, lifetimes) = self.lifetimes.as_ref()?;
        let (host, path) = reading.usual();
        let facts = Facts { host: &host, path: &path, response: Some(response), ..*facts };
        let mut judge = conditions.judge(facts);
        lifetimes.of(usize::from(OF_FORWARD), &response, |id| judge.holds(id))
    }

    /// The script by which browsers find the proxy, for a client that may use it.
    ///
    /// # Errors
    /// The client may not use the proxy.
    pub fn pac(&self, client: IpAddr) -> Result<Option<&str>, Refusal> {
        let Some(pac) = &self.config.pac_file else { return Ok(None) };
        // Who may use the proxy with a password finds it by the script.
        self.asks_login(client).map(|_| Some(pac.text()))
    }

    /// Whether requests are judged by a condition.
    #[inline]
    pub fn has_condition(&self) -> bool {
        self.deny_when.is_some()
    }

    /// Refuses a request for which the condition holds, in any reading of its path and for any name
    /// that its host may stand for. `facts` are those of the request without its host and path.
    ///
    /// # Errors
    /// The condition holds.
    pub fn denies_when(
        &self,
        host: &[u8],
        reading: Reading<'_>,
        facts: &Facts<'_>,
        resolver: &Resolver,
    ) -> Result<(), Refusal> {
        let Some((conditions, id)) = &self.deny_when else { return Ok(()) };
        let hosts = match read(host)? {
            Host::Address(ip) => spellings(ip.to_canonical()),
            Host::Name(name) => {
                let completed = resolver.candidates(&name);
                [name.as_str().to_owned()].into_iter().chain(completed).collect()
            }
        };
        let paths = reading.paths().ok_or(Refusal::DeniedWhen)?;
        let holds = |host: &String, path: &[u8]| {
            let facts = Facts { host: host.as_bytes(), path, ..*facts };
            conditions.judge(facts).holds(*id)
        };
        match paths.iter().any(|read| hosts.iter().any(|host| holds(host, &read.path))) {
            true => Err(Refusal::DeniedWhen),
            false => Ok(()),
        }
    }

    /// The addresses at which a host's port may be reached: these, and no others, are connected to.
    ///
    /// # Errors
    /// The rule that refuses the target, or why it has no address.
    pub async fn addresses(
        &self,
        (host, port): (&[u8], u16),
        method: Method,
        (resolver, limit): (&Arc<Resolver>, Duration),
        (client, own): (IpAddr, &OwnAddresses),
    ) -> Result<Arc<[SocketAddr]>, Refusal> {
        self.admits_port(port, method == Method::Connect)?;
        let name = match read(host)? {
            Host::Address(ip) => {
                self.admits_address(ip)?;
                return self.admitted([SocketAddr::new(ip, port)].into(), own);
            }
            Host::Name(name) => name,
        };
        self.denies(name.as_str())?;
        if !self.may_be_allowed(&name, resolver) {
            return Err(Refusal::DomainNotAllowed);
        }
        let found = time::timeout(limit, resolver.resolve_for(client, &name)).await;
        let answer = match found {
            Ok(Ok(answer)) => answer,
            Ok(Err(NoAnswer::NotFound(reason))) => return Err(Refusal::Fault(reason.into())),
            Ok(Err(NoAnswer::Busy)) => return Err(Refusal::Lookups),
            Err(_) => return Err(Refusal::Fault(Fault::Timeout)),
        };
        self.denies(&answer.name)?;
        self.allows(&answer.name)?;
        self.admitted(answer.ips.iter().map(|&ip| SocketAddr::new(ip, port)).collect(), own)
    }

    /// Whether a request for this port of a host may go to a peer, which looks its name up. A host
    /// that is an address is judged as always.
    ///
    /// # Errors
    /// The rule that refuses it.
    pub fn admits_by_peer(
        &self,
        (host, port): (&[u8], u16),
        method: Method,
        (resolver, own): (&Resolver, &OwnAddresses),
    ) -> Result<(), Refusal> {
        self.admits_port(port, method == Method::Connect)?;
        let host = read(host)?;
        self.admits_host(&host, resolver)?;
        match host {
            Host::Address(ip) => self.admitted([SocketAddr::new(ip, port)].into(), own).map(drop),
            Host::Name(_) => Ok(()),
        }
    }

    fn admits_client(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let is_of = |networks: &[IpNet]| networks.iter().any(|net| net.contains(&client));
        is_of(&self.config.allow_from) && !is_of(&self.config.deny_from)
    }

    /// Nearly all authorities have no port.
    fn admits_port_of(&self, authority: &[u8]) -> bool {
        if !authority.contains(&b':') {
            return within(&self.config.ports, 80);
        }
        let parsed = http1::parse_authority(authority);
        parsed.is_ok_and(|parsed| within(&self.config.ports, parsed.port.unwrap_or(80)))
    }

    /// Whether clients may get stored responses of this authority, as far as that depends on its
    /// port and domain.
    pub fn admits_stored(&self, authority: &[u8], port: u16, resolver: &Resolver) -> bool {
        let Ok(parsed) = http1::parse_authority(authority) else { return false };
        let admits = |host| self.admits_host(&host, resolver);
        self.admits_port(parsed.port.unwrap_or(port), false).is_ok()
            && read(parsed.host).and_then(admits).is_ok()
    }

    /// Whether the rules on domains admit a host that is not looked up here. It may be any of the
    /// names that would be looked up before it.
    fn admits_host(&self, host: &Host, resolver: &Resolver) -> Result<(), Refusal> {
        match host {
            Host::Address(ip) => self.admits_address(*ip),
            Host::Name(name) => {
                self.denies(name.as_str())?;
                resolver.completed(name).iter().try_for_each(|one| self.denies(one))?;
                match self.may_be_allowed(name, resolver) {
                    true => Ok(()),
                    false => Err(Refusal::DomainNotAllowed),
                }
            }
        }
    }

    fn admits_port(&self, port: u16, connect: bool) -> Result<(), Refusal> {
        if connect && !within(&self.config.connect_ports, port) {
            return Err(Refusal::ConnectPort);
        }
        if !connect && !within(&self.config.ports, port) {
            return Err(Refusal::Port);
        }
        Ok(())
    }

    /// Refuses a name of `deny_domains`.
    fn denies(&self, name: &str) -> Result<(), Refusal> {
        if self.deny_domains.hold(name) { Err(Refusal::DomainDenied) } else { Ok(()) }
    }

    /// Refuses a name that is not of `allow_domains`.
    fn allows(&self, name: &str) -> Result<(), Refusal> {
        let is_allowed = self.allow_domains.is_empty() || self.allow_domains.hold(name);
        if is_allowed { Ok(()) } else { Err(Refusal::DomainNotAllowed) }
    }

    /// Whether this name, or one that search domains make of it, is allowed.
    fn may_be_allowed(&self, name: &Name, resolver: &Resolver) -> bool {
        self.allows(name.as_str()).is_ok()
            || resolver.candidates(name).iter().any(|one| self.allows(one).is_ok())
    }

    /// Whether the rules on domains admit an address. They name addresses of IPv4 alone.
    fn admits_address(&self, ip: IpAddr) -> Result<(), Refusal> {
        if self.denies_address(ip) {
            return Err(Refusal::DomainDenied);
        }
        if self.allow_domains.is_empty() {
            return Ok(());
        }
        self.allows(&ip.to_canonical().to_string())
    }

    /// Whether a connection to this address reaches one of `deny_domains`.
    fn denies_address(&self, ip: IpAddr) -> bool {
        !self.deny_domains.is_empty()
            && address::v4_reached(ip).is_some_and(|v4| self.deny_domains.hold(&v4.to_string()))
    }

    /// The addresses among these that may be connected to.
    fn admitted(
        &self,
        found: Arc<[SocketAddr]>,
        own: &OwnAddresses,
    ) -> Result<Arc<[SocketAddr]>, Refusal> {
        let allowed = &self.config.allow_to;
        let is_own = |at: &SocketAddr| own.hold(*at) && !address::is_named(at.ip(), allowed);
        let is_denied = |at: &SocketAddr| self.denies_address(at.ip());
        let well = |at: &&SocketAddr| {
            address::may_reach(at.ip(), allowed) && !is_own(at) && !is_denied(at)
        };
        if found.iter().all(|at| well(&at)) {
            return Ok(found);
        }
        let left: Arc<[SocketAddr]> = found.iter().filter(well).copied().collect();
        match left.is_empty() {
            false => Ok(left),
            true if found.iter().any(is_denied) => Err(Refusal::DomainDenied),
            true if found.iter().any(is_own) => Err(Refusal::OwnAddress),
            true => Err(Refusal::Address),
        }
    }
}

/// The one reading of the host of an authority.
fn read(host: &[u8]) -> Result<Host, Refusal> {
    std::str::from_utf8(host).ok().and_then(Host::read).ok_or(Refusal::HostName)
}

/// An address as the host of a URL. The end of an address of IPv6 that begins with zeros is also
/// written as an address of IPv4: inet_ntop() writes it so, and with inet_ntop() Squid.
fn spellings(ip: IpAddr) -> Vec<String> {
    let IpAddr::V6(v6) = ip else { return vec![ip.to_string()] };
    let usual = format!("[{v6}]");
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
            let last = Ipv4Addr::from_bits(v6.to_bits() as u32);
            vec![usual, format!("[::{last}]")]
        }
        _ => vec![usual],
    }
}

/// Whether a port is in one of these ranges.
pub fn within(ports: &[Ports], port: u16) -> bool {
    ports.iter().any(|range| range.contains(port))
}

/// A set of domains with their subdomains.
#[derive(Debug)]
pub(crate) struct Domains(HashSet<String>);

impl Domains {
    pub(crate) fn of(list: &[Domain]) -> Domains {
        Domains(list.iter().map(|domain| domain.as_str().to_owned()).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a host is one of them or below one. Only whole labels count.
    pub(crate) fn hold(&self, host: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let mut rest = host.as_str();
        loop {
            if self.0.contains(rest) {
                return true;
            }
            let Some((_, under)) = rest.split_once('.') else { return false };
            rest = under;
        }
    }
}

/// The addresses that the process itself listens on, and those of its cluster: what it sends there
/// comes from a member.
#[derive(Debug, Default)]
pub struct OwnAddresses {
    own: Mutex<Vec<SocketAddr>>,
    members: Mutex<Vec<SocketAddr>>,
}

impl OwnAddresses {
    /// Adds the address of a listener.
    pub fn add_of(&self, listener: &TcpListener) {
        match listener.local_addr() {
            Ok(address) => self.add(address),
            Err(error) => tracing::warn!(%error, "the address of a listener is unknown"),
        }
    }

    /// The members of the cluster from now on.
    pub fn set_members(&self, members: &[SocketAddr]) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members.to_vec();
    }

    fn add(&self, address: SocketAddr) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.contains(&address) {
            own.push(address);
        }
    }

    /// Whether a connection to `to` would come to us, or to a member.
    pub fn hold(&self, to: SocketAddr) -> bool {
        let ip = to.ip().to_canonical();
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if members.iter().any(|one| one.port() == to.port() && one.ip().to_canonical() == ip) {
            return true;
        }
        drop(members);
        self.hold_own(to)
    }

    /// Whether a connection to `to` would come to us.
    pub fn hold_own(&self, to: SocketAddr) -> bool {
        let ip = to.ip().to_canonical();
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.iter().filter(|own| own.port() == to.port()).any(|own| {
            let own = own.ip().to_canonical();
            own == ip || ip.is_unspecified() || (own.is_unspecified() && is_of_this_machine(ip))
        })
    }
}

/// Only an address of this machine can be bound.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// The `Proxy-Authenticate` line of a 407.
pub fn challenge(rules: &Rules) -> String {
    let realm = rules.config.realm.as_str();
    format!("Proxy-Authenticate: Basic realm=\"{realm}\", charset=\"UTF-8\"\r\n")
}

#[cfg(test)]
mod tests {
    use dns::NameServers;

    use super::*;

    fn rules(change: impl FnOnce(&mut Forward)) -> Rules {
        let mut config = Forward::default();
        change(&mut config);
        Rules::new(&config, &Lists::new())
    }

    fn domains(list: &[&str]) -> Vec<Domain> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn by_default_only_this_machine_and_private_networks_may_use_it() {
        let rules = rules(|_| {});
        for text in ["127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(rules.admits_client(ip(text)), "{text}");
        }
        for text in ["8.8.8.8", "100.64.0.1", "2606:4700::1", "::ffff:8.8.8.8"] {
            assert!(!rules.admits_client(ip(text)), "{text}");
        }
    }

    #[test]
    fn a_network_or_a_login_may_be_enough() {
        const HASH: &str = "$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS";
        let of = |satisfy, no_login: &str| {
            rules(|config| {
                config.allow_from = vec!["10.0.0.0/8".parse().unwrap()];
                config.deny_from = vec!["10.9.0.0/16".parse().unwrap()];
                config.users = Some(Users::from_text(&format!("jo:{HASH}")).unwrap());
                config.no_login_from = vec![no_login.parse().unwrap()];
                config.satisfy = satisfy;
            })
        };
        let asks =
            |rules: &Rules, client: &str| rules.asks_login(ip(client)).map(|it| it.is_some());
        let all = of(Satisfy::All, "10.1.0.0/16");
        assert_eq!(asks(&all, "10.2.0.1"), Ok(true));
        assert_eq!(asks(&all, "::ffff:10.1.0.1"), Ok(false));
        assert_eq!(asks(&all, "10.9.0.1"), Err(Refusal::Client));
        assert_eq!(asks(&all, "192.0.2.1"), Err(Refusal::Client));
        let any = of(Satisfy::Any, "192.0.2.0/24");
        assert_eq!(asks(&any, "10.2.0.1"), Ok(false));
        assert_eq!(asks(&any, "10.9.0.1"), Ok(true));
        assert_eq!(asks(&any, "192.0.2.1"), Ok(true), "it is no network of allow_from");
        assert!(!all.admits_hit(ip("10.1.0.1"), b"a.example"), "an exchange decides");
        let open = rules(|config| config.deny_from = vec!["10.9.0.0/16".parse().unwrap()]);
        assert!(open.admits_hit(ip("10.1.0.1"), b"a.example"));
        assert!(!open.admits_hit(ip("10.9.0.1"), b"a.example"));
    }

    #[test]
    fn ports_have_two_lists() {
        let rules = rules(|_| {});
        let target = |port, connect| rules.admits_port(port, connect);
        for port in [80, 443, 1025, 8080, 65535] {
            assert_eq!(target(port, false), Ok(()), "{port}");
        }
        for port in [0, 21, 22, 25, 70, 110, 1024] {
            assert_eq!(target(port, false), Err(Refusal::Port), "{port}");
        }
        assert_eq!(target(443, true), Ok(()));
        for port in [22, 25, 80, 8443] {
            assert_eq!(target(port, true), Err(Refusal::ConnectPort), "{port}");
        }
        assert!(rules.admits_hit(ip("127.0.0.1"), b"a.example"));
        assert!(rules.admits_hit(ip("127.0.0.1"), b"[::1]:8080"));
        assert!(!rules.admits_hit(ip("127.0.0.1"), b"a.example:25"));
        assert!(!rules.admits_hit(ip("8.8.8.8"), b"a.example"));
    }

    #[test]
    fn domains_match_on_the_borders_of_labels() {
        let rules = rules(|config| {
            config.allow_domains = domains(&["example.com", "10.0.0.1"]);
            config.deny_domains = domains(&["bad.example.com", "10.0.0.9"]);
        });
        let resolver = Resolver::new(&NameServers::At(Vec::new()));
        let target =
            |host: &str| read(host.as_bytes()).and_then(|host| rules.admits_host(&host, &resolver));
        for host in ["example.com", "EXAMPLE.com.", "a.b.example.com", "10.0.0.1", "[::ffff:a00:1]"]
        {
            assert_eq!(target(host), Ok(()), "{host}");
        }
        for host in ["notexample.com", "example.com.evil.org", "com", "10.0.0.2", "[::a00:1]"] {
            assert_eq!(target(host), Err(Refusal::DomainNotAllowed), "{host}");
        }
        for host in
            ["", ".", "example.com..", ".example.com", "a..example.com", "0x0a.1", "%61.com"]
        {
            assert_eq!(target(host), Err(Refusal::HostName), "{host}");
        }
        let denied = ["bad.example.com", "x.BAD.example.com", "bad.example.com."];
        let addresses = ["10.0.0.9", "[::ffff:10.0.0.9]", "[::10.0.0.9]", "[64:ff9b::a00:9]"];
        for host in denied.into_iter().chain(addresses) {
            assert_eq!(target(host), Err(Refusal::DomainDenied), "{host}");
        }
        assert!(!rules.admits_hit(ip("127.0.0.1"), b"example.com"), "an exchange decides");
    }

    #[test]
    fn what_may_not_be_reached_is_left_out_and_the_rest_is_connected_to() {
        let own = OwnAddresses::default();
        own.add("127.0.0.1:3128".parse().unwrap());
        own.add("[::]:8080".parse().unwrap());
        own.set_members(&["127.0.0.7:7000".parse().unwrap()]);
        let found = |list: &[&str]| list.iter().map(|at| at.parse().unwrap()).collect();
        let strict = rules(|_| {});
        let both = strict.admitted(found(&["10.0.0.1:80", "1.1.1.1:80"]), &own).unwrap();
        assert_eq!(*both, ["1.1.1.1:80".parse().unwrap()]);
        let denying = rules(|config| config.deny_domains = domains(&["1.1.1.1"]));
        let found_denied = denying.admitted(found(&["1.1.1.1:80", "[64:ff9b::101:101]:80"]), &own);
        assert_eq!(found_denied, Err(Refusal::DomainDenied), "whatever name has the address");
        for list in [&["10.0.0.1:80", "[::1]:80"][..], &["169.254.169.254:80"], &["0.0.0.0:80"]] {
            assert_eq!(strict.admitted(found(list), &own), Err(Refusal::Address), "{list:?}");
        }
        let open = rules(|config| {
            config.allow_to = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        });
        assert!(open.admitted(found(&["127.0.0.1:3129"]), &own).is_ok());
        assert!(open.admitted(found(&["127.0.0.7:7001"]), &own).is_ok());
        let members = ["127.0.0.7:7000", "[::ffff:127.0.0.7]:7000"];
        let listeners = ["127.0.0.1:3128", "[::ffff:127.0.0.1]:3128", "127.0.0.9:8080"];
        for at in listeners.into_iter().chain(members) {
            assert_eq!(open.admitted(found(&[at]), &own), Err(Refusal::OwnAddress), "{at}");
        }
        assert!(open.admitted(found(&["[::1]:8080"]), &own).is_ok(), "it is named");
    }
}

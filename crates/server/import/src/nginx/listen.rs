//! `listen`: where clients connect, and which servers are carried.
//!
//! Routes are the same on all our listeners, so servers are carried together only if they share
//! their addresses. The addresses with the most servers are chosen, those with TLS first; the other
//! servers are left out, and their addresses are not opened.

use std::collections::{HashMap, HashSet};

use super::blocks::{Directive, named, with_inner};
use imported::cel::Cel;
use imported::limits::{COMPARISONS_MAX, CONDITIONS_MAX};
use imported::note::Place;

/// An address of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) at: Place,
    pub(crate) address: String,
    /// The words after the address.
    words: Vec<String>,
}

impl Listen {
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|one| one == word)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.has("ssl") || self.has("quic")
    }

    /// The address speaks TLS.
    pub(crate) fn set_tls(&mut self) {
        if !self.is_tls() {
            self.words.push("ssl".to_owned());
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        self.has("default_server") || self.has("default")
    }
}

/// Reads a `listen` directive.
///
/// # Errors
/// One line: why it is not carried.
pub(crate) fn read(directive: &Directive) -> Result<Listen, String> {
    let text = directive.word(0);
    let address = address(text).ok_or_else(|| {
        format!("{text} is not an IP address and a port, so this address is not written")
    })?;
    let words = directive.words.iter().skip(1).cloned().collect();
    Ok(Listen { at: directive.at.clone(), address, words })
}

/// The address of a server without `listen`.
pub(crate) fn usual(at: &Place) -> Listen {
    Listen { at: at.clone(), address: "0.0.0.0:80".to_owned(), words: Vec::new() }
}

fn address(text: &str) -> Option<String> {
    let text = text.replacen("localhost", "127.0.0.1", 1).replacen('*', "0.0.0.0", 1);
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("0.0.0.0:{port}"));
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.to_string());
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
    let ip: std::net::IpAddr = inner.parse().ok()?;
    Some(std::net::SocketAddr::new(ip, 80).to_string())
}

/// How much depends on a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// It does more than to answer, and clients reach it: it is no upstream of another server of
    /// the file.
    in_front: bool,
    /// It stores responses.
    caches: bool,
}

/// The weights of the servers of an `http` block.
pub(crate) fn weights(
    http: &[Directive],
    blocks: &[&Directive],
    servers: &[Vec<Listen>],
) -> Vec<Weight> {
    let is_upstream = |one: &&Directive| {
        one.block.is_none() && matches!(one.name.as_str(), "server" | "proxy_pass")
    };
    let upstreams: HashSet<u16> =
        with_inner(http).filter(is_upstream).filter_map(|one| own_port(one.word(0))).collect();
    let of = |(block, listens): (&&Directive, &Vec<Listen>)| {
        let is_behind = |one: &Listen| port(one).is_some_and(|port| upstreams.contains(&port));
        let caches =
            with_inner(block.inner()).any(|one| one.name == "proxy_cache" && one.word(0) != "off");
        Weight { in_front: listens.is_empty() || !listens.iter().all(is_behind), caches }
    };
    blocks.iter().zip(servers).map(of).collect()
}

/// The port of this machine that an upstream names.
fn own_port(text: &str) -> Option<u16> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let is_own = host == "localhost" || host.starts_with("127.") || host == "[::1]";
    port.parse().ok().filter(|_| is_own)
}

/// Chooses the servers that are carried. Returns their places in the list, and their addresses.
pub(crate) fn chosen(
    servers: &[Vec<Listen>],
    weight: impl Fn(usize) -> Weight,
) -> (Vec<usize>, Vec<Listen>) {
    let weights: Vec<Weight> = (0..servers.len()).map(weight).collect();
    let mut addresses: Vec<(&str, Vec<usize>, bool)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (at, listens) in servers.iter().enumerate() {
        for listen in listens {
            let next = addresses.len();
            let place = *places.entry(&listen.address).or_insert(next);
            match addresses.get_mut(place) {
                Some((_, users, tls)) => {
                    if users.last() != Some(&at) {
                        users.push(at);
                    }
                    *tls |= listen.is_tls();
                }
                None => addresses.push((&listen.address, vec![at], listen.is_tls())),
            }
        }
    }
    // The first of equal addresses wins: `max_by_key` returns the last, so the order is reversed.
    let front = |users: &[usize]| users.iter().filter(|at| weights[**at].in_front).count();
    let caches = |users: &[usize]| users.iter().filter(|at| weights[**at].caches).count();
    let rank = |(_, users, tls): &&(&str, Vec<usize>, bool)| {
        (front(users), caches(users), users.len(), *tls)
    };
    let best = addresses.iter().rev().max_by_key(rank);
    let Some((_, users, _)) = best else { return (Vec::new(), Vec::new()) };
    let mut listens: Vec<Listen> = Vec::new();
    for (address, _, _) in addresses.iter().filter(|(_, other, _)| other == users) {
        let all = servers.iter().flatten().filter(|listen| listen.address == *address);
        // An address has the words of all its servers.
        listens.extend(all.cloned().reduce(|mut one, other| {
            one.words.extend(other.words);
            one
        }));
    }
    (users.clone(), joined(listens))
}

/// Servers that share their addresses.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) servers: Vec<usize>,
    pub(crate) addresses: Vec<Listen>,
    /// The condition that a request came to these addresses, if there is another group.
    pub(crate) only_for: Option<Cel>,
    /// Servers without the addresses for TLS.
    pub(crate) only_plain: Vec<usize>,
}

/// The chosen servers; and those of the other scheme, if all chosen servers speak one scheme, if
/// there is room for a condition of each route, and if no proxy in front names another scheme than
/// that of the listener (`by_listener`).
pub(crate) fn groups(
    blocks: &[&Directive],
    servers: &[Vec<Listen>],
    (chosen_servers, addresses): (Vec<usize>, Vec<Listen>),
    answered: &[Answered],
    by_listener: bool,
) -> Vec<Group> {
    let only_plain = Vec::new();
    let mut first = Group { servers: chosen_servers, addresses, only_for: None, only_plain };
    let is_placed = |at: &usize| {
        first.servers.contains(at) || answered.iter().any(|one| one.servers.contains(at))
    };
    let others = servers.iter().enumerate();
    let others: Vec<Vec<Listen>> =
        others.map(|(at, one)| if is_placed(&at) { Vec::new() } else { one.clone() }).collect();
    let (rest, addresses) = chosen(&others, |_| Weight { in_front: true, caches: false });
    let scheme = |all: &[usize]| {
        let mut schemes: Vec<bool> =
            all.iter().flat_map(|at| &servers[*at]).map(Listen::is_tls).collect();
        schemes.dedup();
        <[bool; 1]>::try_from(schemes).ok().map(|[is_tls]| is_tls)
    };
    let is_other = scheme(&first.servers).zip(scheme(&rest)).is_some_and(|(a, b)| a != b);
    // An expression has a route below each prefix, and a location may have a redirect.
    let both = || first.servers.iter().chain(&rest).map(|at| blocks[*at].inner());
    let locations: usize = both().map(locations).sum();
    let expressions: usize = both().map(expressions).sum();
    let routes = 4 * (locations + first.servers.len() + rest.len()) * (1 + expressions);
    if by_listener && routes <= CONDITIONS_MAX {
        add_tls(&mut first, servers);
    }
    if !is_other || !by_listener || routes > CONDITIONS_MAX {
        return vec![first];
    }
    let of = |all: &[usize]| match scheme(all) {
        Some(true) => Some(Cel::one("scheme == 'https'".to_owned())),
        _ => Some(Cel::one("scheme == 'http'".to_owned())),
    };
    let only_plain = Vec::new();
    let second = Group { only_for: of(&rest), servers: rest, addresses, only_plain };
    vec![Group { only_for: of(&first.servers), ..first }, second]
}

/// The default server of these servers: one that says so, or the first.
pub(super) fn default(of: &[usize], servers: &[Vec<Listen>]) -> Option<usize> {
    let says_so = |at: &&usize| servers[**at].iter().any(Listen::is_default);
    of.iter().find(says_so).or(of.first()).copied()
}

/// Adds the addresses for TLS that some of the servers have in common, if all addresses are in the
/// clear, and if the default server is the same on all.
fn add_tls(group: &mut Group, servers: &[Vec<Listen>]) {
    let has_tls = |at: &usize| servers[*at].iter().any(Listen::is_tls);
    let (with, without): (Vec<usize>, Vec<usize>) =
        group.servers.iter().partition(|at| has_tls(at));
    let addresses = |at: usize| {
        let of_tls = servers[at].iter().filter(|one| one.is_tls());
        let mut all: Vec<&str> = of_tls.map(|one| one.address.as_str()).collect();
        all.sort_unstable();
        all
    };
    let Some(first) = with.first() else { return };
    let same = with.iter().all(|at| addresses(*at) == addresses(*first));
    let plain = group.addresses.iter().all(|one| !one.is_tls());
    let own = servers.iter().enumerate().filter(|(at, _)| !with.contains(at));
    let own = own.flat_map(|(_, all)| all).all(|one| !addresses(*first).contains(&&*one.address));
    if without.is_empty()
        || !same
        || !plain
        || !own
        || default(&with, servers) != default(&group.servers, servers)
    {
        return;
    }
    let listens = servers[*first].iter().filter(|one| one.is_tls()).cloned().collect();
    group.addresses.extend(joined(listens));
    group.only_plain = without;
}

/// The locations of a level, with those inside.
fn locations(level: &[Directive]) -> usize {
    named(level, "location").map(|one| 1 + locations(one.inner())).sum()
}

fn expressions(level: &[Directive]) -> usize {
    named(level, "location").filter(|one| one.word(0).starts_with('~')).count()
}

/// Addresses with one port, all of whose servers only answer requests themselves.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) port: u16,
    pub(crate) servers: Vec<usize>,
    pub(crate) addresses: Vec<Listen>,
}

/// The addresses that are opened besides the chosen addresses: no server of their port is carried,
/// and rules answer all requests there.
pub(crate) fn answered(
    servers: &[Vec<Listen>],
    chosen: &[usize],
    opened: &[Listen],
    only_answers: impl Fn(usize) -> bool,
) -> Vec<Answered> {
    let opened: Vec<Option<u16>> = opened.iter().map(port).collect();
    let all: std::collections::BTreeSet<u16> = servers.iter().flatten().filter_map(port).collect();
    let mut found = Vec::new();
    if all.len() * servers.len() > COMPARISONS_MAX {
        return found;
    }
    for one in all.into_iter().filter(|one| !opened.contains(&Some(*one))) {
        let has = |listens: &[Listen]| listens.iter().any(|listen| port(listen) == Some(one));
        let own: Vec<usize> = (0..servers.len()).filter(|at| has(&servers[*at])).collect();
        let of = |at: &usize| servers[*at].iter();
        // All addresses have all servers, and no server has another port.
        let mut addresses: Vec<Listen> = Vec::new();
        for listen in own.iter().flat_map(of) {
            if !addresses.iter().any(|other| other.address == listen.address) {
                addresses.push(listen.clone());
            }
        }
        let is_shared = |at: &usize| {
            servers[*at].len() == addresses.len()
                && addresses.iter().all(|a| of(at).any(|own| own.address == a.address))
        };
        let is_plain = |listen: &Listen| !listen.is_tls() && !listen.has("proxy_protocol");
        if own.iter().all(is_shared)
            && addresses.iter().all(|listen| port(listen) == Some(one))
            && own.iter().flat_map(of).all(is_plain)
            && own.iter().all(|at| !chosen.contains(at) && only_answers(*at))
        {
            found.push(Answered { port: one, servers: own, addresses: joined(addresses) });
        }
    }
    found
}

fn port(listen: &Listen) -> Option<u16> {
    listen.address.rsplit(':').next()?.parse().ok()
}

/// Our address `[::]` also accepts IPv4, so `0.0.0.0` with the same port is left out.
fn joined(listens: Vec<Listen>) -> Vec<Listen> {
    let port_of_all = |listen: &Listen| listen.address.strip_prefix("[::]:").map(str::to_owned);
    let both: Vec<String> = listens.iter().filter_map(port_of_all).collect();
    let covered = |listen: &Listen| {
        listen.address.strip_prefix("0.0.0.0:").is_some_and(|port| both.iter().any(|b| b == port))
    };
    listens.into_iter().filter(|listen| !covered(listen)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, wanted) in [
            ("80", "0.0.0.0:80"),
            ("*:80", "0.0.0.0:80"),
            ("[::]:80", "[::]:80"),
            ("192.0.2.1", "192.0.2.1:80"),
            ("localhost:8000", "127.0.0.1:8000"),
        ] {
            assert_eq!(address(text).as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(address("unix:/run/x"), None);
    }

    #[test]
    fn servers_are_together_if_they_share_their_addresses() {
        let at = Place::new(&"f".into(), 1);
        let on = |addresses: &[&str]| -> Vec<Listen> {
            let listen = |a: &&str| Listen { address: (*a).to_owned(), ..usual(&at) };
            addresses.iter().map(listen).collect()
        };
        let (four, six, other) = ("0.0.0.0:80", "[::]:80", "127.0.0.1:81");
        let front = Weight { in_front: true, caches: false };
        let (servers, listens) =
            chosen(&[on(&[other]), on(&[four, six]), on(&[four, six])], |_| front);
        assert_eq!(servers, [1, 2]);
        assert_eq!(listens.iter().map(|l| l.address.as_str()).collect::<Vec<_>>(), [six]);
        let two = [on(&[other]), on(&[four])];
        assert_eq!(chosen(&two, |_| front).0, [0]);
        assert_eq!(chosen(&two, |at| Weight { in_front: at == 1, ..front }).0, [1]);
        assert_eq!(chosen(&two, |at| Weight { caches: at == 1, ..front }).0, [1]);
    }
}

//! Access lists: what a name in `http_access` stands for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};

use super::url;
use conditions::Lists;
use imported::cel::{self, Cel, PARTS_MAX};
use imported::pattern::cookies;

/// What an access list matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// Clients in these networks.
    Clients(Vec<IpNet>),
    Domains(Hosts),
    /// Ports of servers.
    Ports(Vec<(u16, u16)>),
    /// Methods.
    Methods(Vec<String>),
    /// Paths that begin with a literal text.
    Paths(Vec<String>),
    /// Clients that have more connections.
    Connections(u64),
    /// Requests that have one of these cookies, and whether the names alone decide.
    Cookies(Vec<String>, bool),
    /// Requests for which one of these conditions holds.
    When(When),
    /// Clients with a correct password.
    Users,
    /// The pages of Squid's cache manager.
    Manager,
    /// This machine, or link-local addresses, as the server.
    Ourselves,
    /// Not understood, and why.
    Unknown(String),
}

/// Conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct When {
    pub(crate) any: Vec<Cel>,
    /// Why they hold for more requests than the list; empty: they do not.
    pub(crate) differs: &'static str,
    /// As in [`Hosts`].
    pub(crate) looks_up: bool,
}

/// Hosts: with all their subdomains, and alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub(crate) below: Vec<String>,
    pub(crate) alone: Vec<String>,
    /// Without `-n`, Squid looks up the name of a host that is an address.
    pub(crate) looks_up: bool,
}

impl Hosts {
    pub(crate) fn extend(&mut self, more: &Hosts) {
        self.below.extend_from_slice(&more.below);
        self.alone.extend_from_slice(&more.alone);
        self.looks_up |= more.looks_up;
    }

    /// All names, those with their subdomains first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.below.iter().chain(&self.alone)
    }
}

/// What the words before the values of a list say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    ignores_case: bool,
    /// The name of a host that is an address is not looked up.
    no_lookup: bool,
}

impl Options {
    /// The options of a list of this type, and the words after them. Squid reads them by letters,
    /// up to the first value or `--`.
    pub(crate) fn read<'w>(
        kind: &str,
        words: &'w [String],
    ) -> Result<(Options, &'w [String]), String> {
        let takes: &[u8] = match kind {
            "src" | "dst" | "dstdomain" => b"n",
            "dstdom_regex" => b"in",
            "url_regex" | "urlpath_regex" | "browser" | "referer_regex" => b"i",
            _ => b"",
        };
        let (mut options, mut rest) = (Options::default(), words);
        while let [first, after @ ..] = rest {
            let (is_on, letters) = match first.as_bytes() {
                b"--" => return Ok((options, after)),
                [b'-', letters @ ..] => (true, letters),
                [b'+', letters @ ..] => (false, letters),
                _ => break,
            };
            let is_known = |letter: &u8| takes.contains(letter) && (is_on || *letter == b'i');
            if letters.is_empty() || !letters.iter().all(is_known) {
                return Err(format!("its option {first} is not known here"));
            }
            if letters.contains(&b'i') {
                options.ignores_case = is_on;
            }
            options.no_lookup |= letters.contains(&b'n');
            rest = after;
        }
        Ok((options, rest))
    }
}

impl Set {
    /// The lists that Squid has without a line.
    pub(crate) fn built_in(name: &str) -> Option<Set> {
        Some(match name {
            "all" => Set::Clients(everyone()),
            "localhost" => Set::Clients(networks(["127.0.0.1/32", "::1/128"])),
            "connect" => Set::Methods(vec!["CONNECT".to_owned()]),
            "manager" => Set::Manager,
            "to_localhost" | "to_linklocal" => Set::Ourselves,
            _ => return None,
        })
    }

    /// Reads the values of an `acl` line of this type.
    pub(crate) fn read(kind: &str, options: Options, values: &[String]) -> Set {
        let (case, looks_up) = (options.ignores_case, !options.no_lookup);
        let read = match kind {
            "src" => clients(values),
            "dstdomain" => domains(values, looks_up),
            "port" => ports(values),
            "method" => Ok(Set::Methods(values.iter().map(|m| m.to_ascii_uppercase()).collect())),
            "urlpath_regex" => paths(values, case),
            "url_regex" => matching("url", values, case).map(Set::When),
            "dstdom_regex" => {
                matching("host", values, case).map(|when| Set::When(When { looks_up, ..when }))
            }
            "browser" => in_field(values, case, "user-agent"),
            "referer_regex" => in_field(values, case, "referer"),
            "dst" => servers(values),
            "proxy_auth" if values == ["REQUIRED"] => Ok(Set::Users),
            "proxy_auth" => Err("single users cannot be named".to_owned()),
            "maxconn" => match values.first().and_then(|text| text.parse::<u64>().ok()) {
                Some(count @ 1..=1_000_000) => Ok(Set::Connections(count)),
                _ => Err("it is not a number of connections".to_owned()),
            },
            "req_header" if values.len() == 2 && values[0].eq_ignore_ascii_case("cookie") => {
                let found = cookies(&values[1]).map(|(names, exact)| Set::Cookies(names, exact));
                found.ok_or_else(|| "the expression is more than the name of a cookie".to_owned())
            }
            "proto" if values.iter().all(|proto| proto == "cache_object") => Ok(Set::Manager),
            _ => Err(format!("lists of the type {kind} are not known here")),
        };
        read.unwrap_or_else(Set::Unknown)
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Set::Clients(all) => all.len(),
            Set::Domains(hosts) => hosts.names().count(),
            Set::Ports(all) => all.len(),
            Set::Methods(all) | Set::Paths(all) | Set::Cookies(all, _) => all.len(),
            Set::When(when) => when.any.len(),
            Set::Users | Set::Manager | Set::Ourselves | Set::Connections(_) | Set::Unknown(_) => 1,
        }
    }

    /// Adds the values of another line of the same list.
    pub(crate) fn merge(&mut self, other: Set) {
        match (&mut *self, other) {
            (one, other) if *one == other => {}
            (Set::Clients(all), Set::Clients(more)) => all.extend(more),
            (Set::Ports(all), Set::Ports(more)) => all.extend(more),
            (Set::Methods(all), Set::Methods(more)) | (Set::Paths(all), Set::Paths(more)) => {
                all.extend(more);
            }
            (Set::Domains(hosts), Set::Domains(more)) => hosts.extend(&more),
            (Set::When(when), Set::When(more)) if when.differs == more.differs => {
                when.any.extend(more.any);
                when.looks_up |= more.looks_up;
            }
            (Set::Unknown(_), _) => {}
            (_, Set::Unknown(why)) => *self = Set::Unknown(why),
            _ => *self = Set::Unknown("its lines have different types".to_owned()),
        }
    }
}

/// All addresses.
pub(crate) fn everyone() -> Vec<IpNet> {
    networks(["0.0.0.0/0", "::/0"])
}

fn networks<const N: usize>(texts: [&str; N]) -> Vec<IpNet> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn clients(values: &[String]) -> Result<Set, String> {
    let mut all = Vec::new();
    for value in values {
        match value.as_str() {
            "all" | "0.0.0.0/0" | "0.0.0.0/0.0.0.0" | "0/0" => all.extend(everyone()),
            value => all.extend(
                addresses(value).ok_or_else(|| format!("{value} is not a network of addresses"))?,
            ),
        }
    }
    Ok(Set::Clients(all))
}

/// The networks that Squid compares with this one. It has all addresses as IPv6, where those of
/// IPv4 are in `::ffff:0:0/96`.
fn of_both_families(network: IpNet) -> Option<Vec<IpNet>> {
    let IpNet::V6(six) = network.trunc() else { return Some(vec![network.trunc()]) };
    let mapped = Ipv6Addr::from([0, 0, 0, 0, 0, 0xffff, 0, 0]);
    match (six.prefix_len(), six.addr().to_ipv4_mapped()) {
        // In Squid, no client is in this network.
        (0, _) => None,
        (bits @ 96.., Some(four)) => Some(vec![IpNet::new(four.into(), bits - 96).ok()?]),
        _ if six.contains(&mapped) => Some([vec![six.into()], networks(["0.0.0.0/0"])].concat()),
        _ => Some(vec![six.into()]),
    }
}

/// `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10.0.0.1-10.0.0.9`, or a single address.
fn addresses(text: &str) -> Option<Vec<IpNet>> {
    let (range, mask) = match text.split_once('/') {
        Some((range, mask)) => (range, Some(mask)),
        None => (text, None),
    };
    let Some((first, last)) = range.split_once('-') else {
        let address: IpAddr = range.parse().ok()?;
        // Squid reads the mask of such an address in its own way.
        if mask.is_some() && address.to_canonical() != address {
            return None;
        }
        let network = match mask {
            None => IpNet::from(address),
            Some(mask) => match mask.parse::<u8>() {
                Ok(bits) => IpNet::new(address, bits).ok()?,
                Err(_) => IpNet::with_netmask(address, mask.parse().ok()?).ok()?,
            },
        };
        return of_both_families(network);
    };
    // A range of networks would need its mask applied to both ends.
    if mask.is_some() {
        return None;
    }
    match (first.parse().ok()?, last.parse().ok()?) {
        (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
            Some(Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect())
        }
        (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
            let all = Ipv6Subnets::new(first, last, 0).map(|net| of_both_families(net.into()));
            Some(all.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}

fn domains(values: &[String], looks_up: bool) -> Result<Set, String> {
    let mut hosts = Hosts { looks_up, ..Hosts::default() };
    // No host has a backslash. A backslash with a blank behind it was meant to continue the line.
    for value in values.iter().filter(|value| *value != "\\") {
        let name = value.strip_prefix('.').unwrap_or(value).to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(format!("{value} is not a domain"));
        }
        // A host that is an address has no subdomains, in either program.
        if value.starts_with('.') || name.parse::<IpAddr>().is_ok() {
            hosts.below.push(name);
        } else {
            hosts.alone.push(name);
        }
    }
    Ok(Set::Domains(hosts))
}

fn ports(values: &[String]) -> Result<Set, String> {
    let range = |value: &String| {
        let (first, last) = value.split_once('-').unwrap_or((value, value));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (0 < first && first <= last).then_some((first, last))
    };
    let all: Option<Vec<(u16, u16)>> = values.iter().map(range).collect();
    all.map(Set::Ports).ok_or_else(|| "it has a value that is not a port".to_owned())
}

/// Conditions for what one of these expressions matches. `-i` is for the expressions behind it.
fn matching(of: &str, values: &[String], mut ignores_case: bool) -> Result<When, String> {
    let mut expressions = Vec::new();
    for value in values {
        match value.as_str() {
            "-i" => ignores_case = true,
            "+i" => ignores_case = false,
            value => {
                let ours = url::posix(value, ignores_case);
                expressions.push(ours.ok_or_else(|| format!("{value} {EXPRESSION}"))?);
            }
        }
    }
    if expressions.is_empty() {
        return Err("it has no expression".to_owned());
    }
    let is_known = |one: &Cel| cel::check(one, &Lists::default()).is_some();
    let any = url::matching(of, &expressions).filter(|all| all.iter().all(is_known));
    let any = any.ok_or_else(|| format!("an expression {EXPRESSION}"))?;
    if any.len() > PARTS_MAX {
        return Err("it has more expressions than a condition can have".to_owned());
    }
    Ok(When { any, ..When::default() })
}

const EXPRESSION: &str = "is no regular expression, always matches, or means something else here";

/// Requests with a field in which one of these is found. Squid looks into the first field of the
/// name, whose end is not known here.
fn in_field(values: &[String], ignores_case: bool, name: &str) -> Result<Set, String> {
    if values.iter().any(|value| value.contains('$')) {
        return Err("an expression has $, and fields of one name are joined here".to_owned());
    }
    let value = cel::field(name).expect("the name of a field");
    let found = matching(&value, values, ignores_case)?;
    let parts = [cel::has_field(name), Cel::any(found.any)];
    let any = Cel::all(parts.into_iter().flatten().collect()).into_iter().collect();
    let differs = "of several fields of the name, all are compared";
    Ok(Set::When(When { any, differs, ..found }))
}

/// Addresses of servers. Those that the server refuses without a line are known.
fn servers(values: &[String]) -> Result<Set, String> {
    let Ok(Set::Clients(all)) = clients(values) else {
        return Err("it has a value that is not a network of addresses".to_owned());
    };
    let refused = networks([
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "::/0",
    ]);
    // Addresses of the second and the third network reach servers of IPv4.
    let reached = networks(["2000::/3", "64:ff9b::/96", "::ffff:0:0/96"]);
    let also_refused = networks(["2001::/23", "2001:db8::/32", "3fff::/20"]);
    let mut refused = Addresses::of(&refused).without(&Addresses::of(&reached));
    refused.join(&Addresses::of(&also_refused));
    match Addresses::of(&all).without(&refused) == Addresses::default() {
        true => Ok(Set::Ourselves),
        false => Err("only addresses that are not public can be refused".to_owned()),
    }
}

/// Only expressions of `^/` and a literal text that ends with a slash; others are conditions.
fn paths(values: &[String], ignores_case: bool) -> Result<Set, String> {
    let literal = |value: &String| {
        let path = value.strip_prefix('^').filter(|path| path.starts_with('/') && !ignores_case)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_".contains(&b);
        (path.ends_with('/') && path.bytes().all(plain)).then(|| path.to_owned())
    };
    let all: Option<Vec<String>> = values.iter().map(literal).collect();
    if let Some(all) = all {
        return Ok(Set::Paths(all));
    }
    // Squid compares nothing with the path of a tunnel, which has none.
    let found = matching("target", values, ignores_case)?;
    let parts = [Some(Cel::one("target != ''")), Cel::any(found.any)];
    let any = Cel::all(parts.into_iter().flatten().collect()).into_iter().collect();
    Ok(Set::When(When { any, ..found }))
}

/// Addresses of one family, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    is_six: bool,
    first: u128,
    last: u128,
}

/// A set of addresses. The ranges are sorted, and between two ranges of one family there is a gap.
/// Each operation passes once over both sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses(Vec<Range>);

impl Addresses {
    pub(crate) fn of(networks: &[IpNet]) -> Addresses {
        let range = |network: &IpNet| match network {
            IpNet::V4(net) => Range {
                is_six: false,
                first: u32::from(net.network()).into(),
                last: u32::from(net.broadcast()).into(),
            },
            IpNet::V6(net) => {
                Range { is_six: true, first: net.network().into(), last: net.broadcast().into() }
            }
        };
        let mut set = Addresses(networks.iter().map(range).collect());
        set.tidy();
        set
    }

    pub(crate) fn everyone() -> Addresses {
        Addresses::of(&everyone())
    }

    fn tidy(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|next, before| {
            let touches =
                next.is_six == before.is_six && next.first <= before.last.saturating_add(1);
            if touches {
                before.last = before.last.max(next.last);
            }
            touches
        });
        debug_assert!(self.is_tidy());
    }

    /// Whether the ranges are sorted, with gaps between them.
    fn is_tidy(&self) -> bool {
        let end = |range: &Range| (range.is_six, range.last.saturating_add(1));
        self.0.iter().all(|range| range.first <= range.last)
            && self.0.windows(2).all(|two| end(&two[0]) < (two[1].is_six, two[1].first))
    }

    /// Adds the addresses of the other set.
    pub(crate) fn join(&mut self, other: &Addresses) {
        // A few ranges are inserted. To sort the whole set for each line would take quadratic time.
        if other.0.len() > 8 {
            self.0.extend(&other.0);
            return self.tidy();
        }
        for more in &other.0 {
            let (mut new, six) = (*more, more.is_six);
            let before = |r: &Range| (r.is_six, r.last.saturating_add(1)) < (six, new.first);
            let first = self.0.partition_point(before);
            let after = |r: &Range| (r.is_six, r.first) <= (six, new.last.saturating_add(1));
            let end = first + self.0[first..].partition_point(after);
            for old in &self.0[first..end] {
                (new.first, new.last) = (new.first.min(old.first), new.last.max(old.last));
            }
            self.0.splice(first..end, [new]);
        }
        debug_assert!(self.is_tidy());
    }

    /// The addresses that are not in the other set.
    pub(crate) fn without(&self, other: &Addresses) -> Addresses {
        let (mut left, mut holes) = (Vec::new(), &other.0[..]);
        for mine in &self.0 {
            let before = |hole: &Range| (hole.is_six, hole.last) < (mine.is_six, mine.first);
            holes = &holes[holes.partition_point(before)..];
            let mut next = Some(mine.first);
            for hole in holes {
                if hole.is_six != mine.is_six || hole.first > mine.last {
                    break;
                }
                if let Some(first) = next.filter(|first| *first < hole.first) {
                    left.push(Range { first, last: hole.first - 1, ..*mine });
                }
                next = hole.last.checked_add(1);
            }
            if let Some(first) = next.filter(|first| *first <= mine.last) {
                left.push(Range { first, ..*mine });
            }
        }
        Addresses(left)
    }

    /// The addresses that are in both.
    pub(crate) fn both(&self, other: &Addresses) -> Addresses {
        self.without(&self.without(other))
    }

    /// As networks; `None` if there are more than `max`.
    pub(crate) fn networks(&self, max: usize) -> Option<Vec<IpNet>> {
        let networks = self.0.iter().flat_map(|range| -> Box<dyn Iterator<Item = IpNet>> {
            if range.is_six {
                let (first, last) = (Ipv6Addr::from(range.first), Ipv6Addr::from(range.last));
                return Box::new(Ipv6Subnets::new(first, last, 0).map(IpNet::V6));
            }
            // A range of this family is made of such addresses.
            let four = |bits: u128| Ipv4Addr::from(bits as u32);
            let (first, last) = (four(range.first), four(range.last));
            Box::new(Ipv4Subnets::new(first, last, 0).map(IpNet::V4))
        });
        let networks: Vec<IpNet> = networks.take(max + 1).collect();
        (networks.len() <= max).then_some(networks)
    }
}

/// The ports that are in both.
pub(crate) fn both_ports(one: &[(u16, u16)], other: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut all = Vec::new();
    for a in one {
        for b in other {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                all.push((first, last));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The ports that are not these.
pub(crate) fn other_ports(these: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut sorted = these.to_vec();
    sorted.sort_unstable();
    let (mut all, mut next) = (Vec::new(), 1_u32);
    for (first, last) in sorted {
        if next < u32::from(first) {
            all.push((next as u16, first - 1));
        }
        next = next.max(u32::from(last) + 1);
    }
    if next <= 65_535 {
        all.push((next as u16, 65_535));
    }
    all
}

/// The domains that are in both lists, where each domain includes its subdomains.
pub(crate) fn both_domains(one: &[String], other: &[String]) -> Vec<String> {
    let within = |a: &str, b: &str| a == b || a.strip_suffix(b).is_some_and(|a| a.ends_with('.'));
    let mut all = Vec::new();
    for a in one {
        for b in other {
            if within(a, b) {
                all.push(a.clone());
            } else if within(b, a) {
                all.push(b.clone());
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(kind: &str, words: &str) -> Set {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        match Options::read(kind, &words) {
            Ok((options, values)) => Set::read(kind, options, values),
            Err(why) => Set::Unknown(why),
        }
    }

    /// `-in` was an expression, so the case of `SECRET` was not ignored.
    #[test]
    fn options_are_read_by_letters() {
        let anyhow = set("dstdom_regex", "-i -n SECRET");
        for options in ["-in", "-ni", "-n -i", "+i -ni", "-n -i --"] {
            assert_eq!(set("dstdom_regex", &format!("{options} SECRET")), anyhow, "{options}");
        }
        assert_ne!(set("dstdom_regex", "-n SECRET"), anyhow);
        assert_eq!(set("url_regex", "-- secret"), set("url_regex", "secret"));
        assert_eq!(set("port", "-- 80"), set("port", "80"));
        for (kind, words) in [
            ("dstdomain", "--client-requested a.test"),
            ("dstdomain", "-i a.test"),
            ("url_regex", "--i secret"),
            ("url_regex", "- secret"),
            ("dstdom_regex", "+n secret"),
            ("maxconn", "-s 0"),
            ("src", "127.0.0.1 -n"),
        ] {
            assert!(matches!(set(kind, words), Set::Unknown(_)), "{kind} {words}");
        }
    }

    /// `0.0.0.0/0` was IPv4 alone, and no client had an address that embeds one of IPv4.
    #[test]
    fn networks_of_both_families() {
        for text in ["0.0.0.0/0", "0.0.0.0/0.0.0.0", "0/0", "all"] {
            assert_eq!(set("src", text), Set::Clients(everyone()), "{text}");
        }
        for (text, same) in [
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::ffff:10.1.0.0-::ffff:10.1.0.2", "10.1.0.0-10.1.0.2"),
        ] {
            assert_eq!(set("src", text), set("src", same), "{text}");
        }
        for text in ["::/64", "::/3", "::-::1:0:0:0"] {
            let Set::Clients(all) = set("src", text) else { panic!("{text}") };
            let four = Addresses::of(&networks(["0.0.0.0/0"]));
            assert_eq!(four.without(&Addresses::of(&all)), Addresses::default(), "{text}");
        }
        // In Squid, no client is in the first three, and all clients are in the last one.
        for text in ["::/0", "ipv4", "ipv6", "::ffff:10.0.0.0/104"] {
            assert!(matches!(set("src", text), Set::Unknown(_)), "{text}");
        }
    }

    /// `::/3` was taken to be refused, and the server connects to NAT64.
    #[test]
    fn only_servers_that_are_refused_anyway_are_known() {
        for text in ["127.0.0.0/8 ::1", "198.18.0.0/15", "fc00::/7", "::/96", "2001:db8::/32"] {
            assert_eq!(set("dst", text), Set::Ourselves, "{text}");
        }
        for text in ["::/3", "64:ff9b::/96", "2000::/3", "2002::/16", "::ffff:8.8.8.8", "all"] {
            assert!(matches!(set("dst", text), Set::Unknown(_)), "{text}");
        }
    }

    #[test]
    fn values_of_each_type() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(
            set("src", "10.0.0.0/255.0.0.0 192.0.2.1 10.1.0.0-10.1.0.2 fc00::/7"),
            Set::Clients(nets(&[
                "10.0.0.0/8",
                "192.0.2.1/32",
                "10.1.0.0/31",
                "10.1.0.2/32",
                "fc00::/7"
            ]))
        );
        assert!(matches!(set("src", "host.example"), Set::Unknown(_)));
        assert_eq!(
            set("dstdomain", ".Example.com www.example.net 192.0.2.1"),
            Set::Domains(Hosts {
                below: vec!["example.com".into(), "192.0.2.1".into()],
                alone: vec!["www.example.net".into()],
                looks_up: true,
            })
        );
        assert_eq!(
            set("dstdomain", "-n a.example"),
            Set::Domains(Hosts { alone: vec!["a.example".into()], ..Hosts::default() })
        );
        assert_eq!(set("port", "80 1025-65535"), Set::Ports(vec![(80, 80), (1025, 65_535)]));
        assert!(matches!(set("port", "http"), Set::Unknown(_)));
        assert_eq!(set("urlpath_regex", "^/api/"), Set::Paths(vec!["/api/".into()]));
        assert!(matches!(set("urlpath_regex", "^/api"), Set::When(..)));
        assert!(matches!(set("urlpath_regex", r"^/\d"), Set::Unknown(_)));
        assert!(matches!(set("time", "MTWHF"), Set::Unknown(_)));
    }

    proptest! {
        /// A small space of addresses: what remains is what is in one and not in the other.
        #[test]
        fn sets_of_networks(
            one in prop::collection::vec((0_u32..256, 24_u8..=32), 0..4),
            other in prop::collection::vec((0_u32..256, 24_u8..=32), 0..4),
        ) {
            let nets = |all: &[(u32, u8)]| -> Vec<IpNet> {
                let net = |(last, bits): &(u32, u8)| {
                    IpNet::new(IpAddr::from([10, 0, 0, *last as u8]), *bits).unwrap().trunc()
                };
                all.iter().map(net).collect()
            };
            let (one, other) = (nets(&one), nets(&other));
            let sets = (Addresses::of(&one), Addresses::of(&other));
            let (mut joined, all) = (sets.0.clone(), [&one[..], &other].concat());
            joined.join(&sets.1);
            prop_assert_eq!(joined, Addresses::of(&all));
            let nets = |set: Addresses| set.networks(1000).unwrap();
            let (less, same) = (nets(sets.0.without(&sets.1)), nets(sets.0.both(&sets.1)));
            for last in 0..=255_u8 {
                let address = IpAddr::from([10, 0, 0, last]);
                let is_in = |all: &[IpNet]| all.iter().any(|net| net.contains(&address));
                prop_assert_eq!(is_in(&less), is_in(&one) && !is_in(&other));
                prop_assert_eq!(is_in(&same), is_in(&one) && is_in(&other));
            }
        }

        #[test]
        fn sets_of_ports(
            one in prop::collection::vec((1_u16..50, 0_u16..9), 0..4),
            other in prop::collection::vec((1_u16..50, 0_u16..9), 0..4),
        ) {
            let ranges = |all: &[(u16, u16)]| -> Vec<(u16, u16)> {
                all.iter().map(|(first, more)| (*first, first + more)).collect()
            };
            let (one, other) = (ranges(&one), ranges(&other));
            let is_in = |all: &[(u16, u16)], port: u16| {
                all.iter().any(|(first, last)| (*first..=*last).contains(&port))
            };
            for port in (1..64).chain([65_535]) {
                prop_assert_eq!(is_in(&other_ports(&one), port), !is_in(&one, port));
                let same = is_in(&one, port) && is_in(&other, port);
                prop_assert_eq!(is_in(&both_ports(&one, &other), port), same);
            }
        }
    }
}

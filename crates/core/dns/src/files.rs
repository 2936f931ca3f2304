//! Reads the system's files for name resolution: `/etc/resolv.conf` (resolv.conf(5)) and
//! `/etc/hosts` (hosts(5)). Unknown lines are skipped, as other readers do.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hashbrown::HashMap;

use crate::Name;
use crate::limits::{ATTEMPTS, SEARCH_MAX, SERVERS_MAX, TRY};

/// The port of name servers.
const PORT: u16 = 53;
/// The limits of `ndots`, `timeout` and `attempts` in resolv.conf(5).
const NDOTS_MAX: usize = 15;
const TIMEOUT_SECONDS_MAX: u64 = 30;
const ATTEMPTS_MAX: usize = 5;

/// Which servers to query, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Servers {
    /// In the order in which they are queried.
    pub(super) addresses: Vec<SocketAddr>,
    /// Suffixes for names with few labels.
    pub(super) search: Vec<String>,
    /// A name with at least this many dots is first queried without a suffix.
    pub(super) ndots: usize,
    /// How long one server has to answer.
    pub(super) patience: Duration,
    /// How often the whole list is tried.
    pub(super) attempts: usize,
    /// Without addresses, the system's resolver is asked.
    pub(super) is_system: bool,
}

impl Servers {
    /// These servers, with defaults for everything else.
    pub(super) fn at(addresses: Vec<SocketAddr>) -> Servers {
        let (search, is_system) = (Vec::new(), false);
        Servers { addresses, search, ndots: 1, patience: TRY, attempts: ATTEMPTS, is_system }
    }

    /// The settings of `resolv.conf`. Without addresses, the system's resolver is asked.
    pub(super) fn of_resolv_conf(text: &str) -> Servers {
        let mut servers = Servers { is_system: true, ..Servers::at(Vec::new()) };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    servers.addresses.extend(address.map(|ip| SocketAddr::new(ip, PORT)));
                }
                // The last such line applies.
                Some("search" | "domain") => {
                    let suffixes = words.map(|word| word.trim_matches('.').to_ascii_lowercase());
                    servers.search = suffixes.filter(|one| !one.is_empty()).collect();
                    servers.search.truncate(SEARCH_MAX);
                }
                Some("options") => words.for_each(|word| servers.option(word)),
                _ => {}
            }
        }
        servers.addresses.truncate(SERVERS_MAX);
        servers
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else { return };
        let Ok(value) = value.parse::<u64>() else { return };
        match name {
            "ndots" => self.ndots = (value as usize).min(NDOTS_MAX),
            "timeout" => {
                self.patience = Duration::from_secs(value.clamp(1, TIMEOUT_SECONDS_MAX));
            }
            "attempts" => self.attempts = (value as usize).clamp(1, ATTEMPTS_MAX),
            _ => {}
        }
    }

    /// The names to query in turn for a name as a client or operator wrote it.
    pub(super) fn candidates(&self, name: &Name) -> Vec<String> {
        let mut all = self.before(name);
        let before = all.len();
        all.push(name.as_str().to_owned());
        if before == 0 && !name.is_absolute() {
            all.extend(self.completed(name));
        }
        all
    }

    /// Those that are queried before the name itself.
    pub(super) fn before(&self, name: &Name) -> Vec<String> {
        let dots = name.as_str().bytes().filter(|byte| *byte == b'.').count();
        match name.is_absolute() || dots >= self.ndots {
            true => Vec::new(),
            false => self.completed(name).collect(),
        }
    }

    /// The name with each suffix that makes a name of it.
    fn completed(&self, name: &Name) -> impl Iterator<Item = String> {
        let all = self.search.iter().map(move |suffix| format!("{}.{suffix}", name.as_str()));
        all.filter(|one| Name::read(one).is_some())
    }
}

/// The names of `/etc/hosts`, in lower case, with their addresses in the order of the file.
pub(super) fn hosts(text: &str) -> HashMap<String, Vec<IpAddr>> {
    let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words {
            let addresses = hosts.entry(name.to_ascii_lowercase()).or_default();
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolv_conf_is_read() {
        let text = "# made by hand\nnameserver 10.0.0.53 # first\nnameserver fd00::53\n\
                    nameserver nonsense\nsearch a.example B.example.\n\
                    options ndots:2 timeout:3 attempts:9 rotate edns0\n";
        let servers = Servers::of_resolv_conf(text);
        let expected: Vec<SocketAddr> =
            vec!["10.0.0.53:53".parse().unwrap(), "[fd00::53]:53".parse().unwrap()];
        assert_eq!(servers.addresses, expected);
        assert_eq!(servers.search, ["a.example", "b.example"]);
        assert_eq!((servers.ndots, servers.attempts), (2, ATTEMPTS_MAX));
        assert_eq!(servers.patience, Duration::from_secs(3));
        let none = Servers::of_resolv_conf("search a.example\n");
        assert!(none.addresses.is_empty());
        assert_eq!(none.search, ["a.example"]);
    }

    #[test]
    fn names_with_few_labels_get_suffixes() {
        let mut servers = Servers::at(Vec::new());
        let of = |servers: &Servers, host| servers.candidates(&Name::read(host).unwrap());
        assert_eq!(of(&servers, "www"), ["www"]);
        servers.search = vec!["a.example".into(), "example".into()];
        assert_eq!(of(&servers, "www"), ["www.a.example", "www.example", "www"]);
        assert_eq!(of(&servers, "W.x"), ["w.x", "w.x.a.example", "w.x.example"]);
        assert_eq!(of(&servers, "www."), ["www"]);
        let before = |host| servers.before(&Name::read(host).unwrap());
        assert_eq!(before("www"), ["www.a.example", "www.example"]);
        assert_eq!((before("w.x").len(), before("www.").len()), (0, 0));
        let long = ["a"; 124].join(".");
        assert_eq!(of(&servers, &long), [&*long], "what would be too long is no name");
    }

    #[test]
    fn a_hosts_file_is_read() {
        let found = hosts("127.0.0.1 localhost\n::1 LOCALHOST ip6 # x y\n\nbad name\n10.0.0.1 a\n");
        let both: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(found["localhost"], both);
        assert_eq!(found["a"].len(), 1);
        assert!(!found.contains_key("x") && !found.contains_key("name"));
    }
}

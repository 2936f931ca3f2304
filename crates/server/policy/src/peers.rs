//! The hierarchy: which requests of forward listeners go to parents, and which to their origins.
//!
//! ```text
//!   always_direct --> the origin
//!   otherwise     --> a parent, if one is usable
//!     never_direct --> or 503
//!     otherwise    --> or the origin
//! ```
//!
//! What never happens: a request that is always direct reaches a peer; one that is never direct
//! reaches an origin from here.

use config::{Balance, DirectRule, Group};
use outcome::Hierarchy;

use crate::forward::Domains;

/// The rules on which requests go to peers.
#[derive(Debug)]
pub struct DirectRules {
    always_direct: Requests,
    always_direct_methods: Box<[Box<[u8]>]>,
    never_direct: Requests,
}

/// Where the rules allow a request to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Only to the origin.
    Direct,
    /// To a parent, or else to the origin.
    Either,
    /// Only to a parent.
    Peer,
}

impl Allowed {
    /// The rule in words, for an explanation. `parents`: there are any for this request.
    pub fn text(self, parents: bool) -> &'static str {
        match self {
            Allowed::Direct => "always_direct: no peer is asked",
            Allowed::Either if parents => "a parent if one is usable, otherwise the origin",
            Allowed::Either => "a peer that says that it has the response, otherwise the origin",
            Allowed::Peer => "never_direct: a parent, or 503",
        }
    }
}

impl DirectRules {
    /// The rules of a configuration.
    pub fn new(config: &config::Hierarchy) -> DirectRules {
        let methods = config.always_direct_methods.iter();
        DirectRules {
            always_direct: Requests::of(&config.always_direct),
            always_direct_methods: methods.map(|method| method.as_bytes().into()).collect(),
            never_direct: Requests::of(&config.never_direct),
        }
    }

    /// What the rules allow a request for this host, without a port.
    pub fn allowed(&self, host: &str, method: &[u8]) -> Allowed {
        let by_method = self.always_direct_methods.iter().any(|one| **one == *method);
        if by_method || self.always_direct.hold(host) {
            Allowed::Direct
        } else if self.never_direct.hold(host) {
            Allowed::Peer
        } else {
            Allowed::Either
        }
    }
}

/// How the log names a response that came from one of these parents.
pub fn code(parents: &Group) -> Hierarchy {
    match parents.balance {
        _ if parents.servers.len() == 1 => Hierarchy::FirstUpParent,
        Balance::RoundRobin => Hierarchy::RoundRobinParent,
        Balance::Carp => Hierarchy::Carp,
        Balance::LeastOutstanding | Balance::Hash { .. } => Hierarchy::AnyParent,
    }
}

/// Requests for some hosts.
#[derive(Debug)]
struct Requests {
    all: bool,
    domains: Domains,
}

impl Requests {
    fn of(rules: &[DirectRule]) -> Requests {
        let domains = rules.iter().filter_map(|rule| match rule {
            DirectRule::All => None,
            DirectRule::Domain(domain) => Some(domain.clone()),
        });
        let all = rules.contains(&DirectRule::All);
        Requests { all, domains: Domains::of(&domains.collect::<Vec<_>>()) }
    }

    fn hold(&self, host: &str) -> bool {
        self.all || self.domains.hold(host)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn direct_rules(always: &[&str], never: &[&str]) -> DirectRules {
        let rules = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        let config = config::Hierarchy {
            parents: None,
            asked: Vec::new(),
            query_timeout: Duration::from_secs(1),
            doubt_time: Duration::from_secs(1),
            clear_changed: false,
            always_direct: rules(always),
            always_direct_methods: vec!["POST".to_owned()],
            never_direct: rules(never),
        };
        DirectRules::new(&config)
    }

    #[test]
    fn always_goes_before_never_and_a_domain_has_its_subdomains() {
        let some = direct_rules(&["in.example"], &["example"]);
        for (host, method, allowed) in [
            ("in.example", "GET", Allowed::Direct),
            ("a.IN.example.", "GET", Allowed::Direct),
            ("xin.example", "GET", Allowed::Peer),
            ("example", "GET", Allowed::Peer),
            ("other", "GET", Allowed::Either),
            ("other", "POST", Allowed::Direct),
            ("example", "POST", Allowed::Direct),
            ("other", "post", Allowed::Either),
        ] {
            assert_eq!(some.allowed(host, method.as_bytes()), allowed, "{method} {host}");
        }
        let all = direct_rules(&["in.example"], &["*"]);
        assert_eq!(all.allowed("in.example", b"GET"), Allowed::Direct);
        assert_eq!(all.allowed("10.0.0.1", b"CONNECT"), Allowed::Peer);
        assert_eq!(direct_rules(&["*"], &["*"]).allowed("a", b"GET"), Allowed::Direct);
    }
}

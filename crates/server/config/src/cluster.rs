//! A cluster: several servers of this program that work as one cache.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use http1::FieldNames;
use ipnet::IpNet;

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::Kind;
use super::{
    Ejection, Group, HealthCheck, Listener, Origin, Queue, Retries, Role, Timeouts, UpstreamReuse,
};
use crate::limits::{Limits, SERVERS_PER_GROUP_MAX};

/// The members of a cluster, and how this one takes part.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where other members connect.
    pub listen: SocketAddr,
    /// The members, this one among them: as listed, or the addresses of the name at the start.
    pub members: Vec<SocketAddr>,
    /// The name and port whose addresses are the members, if it is looked up again.
    pub name: Option<(String, u16)>,
    /// The address of this member, if it cannot be recognised.
    pub own: Option<SocketAddr>,
    /// Networks that members connect from; if empty, the addresses of the members.
    pub allow_from: Vec<IpNet>,
    /// Time-outs for other members.
    pub timeouts: Timeouts,
}

impl Cluster {
    /// With the defaults.
    pub fn new(listen: SocketAddr, members: Vec<SocketAddr>) -> Cluster {
        let timeouts = Timeouts { connect: Some(CONNECT), ..Timeouts::default() };
        let timeouts = patient(timeouts, Waits::longest(&Limits::default(), []));
        Cluster { listen, members, name: None, own: None, allow_from: Vec::new(), timeouts }
    }

    /// Whether this is the address of this member: the one that is configured, or else the port
    /// where others connect on an address of this machine.
    pub fn is_own(&self, member: SocketAddr) -> bool {
        match self.own {
            Some(own) => own == member,
            None if member.port() != self.listen.port() => false,
            None if self.listen.ip().is_unspecified() => is_of_this_machine(member.ip()),
            None => member.ip() == self.listen.ip(),
        }
    }

    /// The addresses among these that are of this member. More than one, or none, is a mistake.
    pub fn own_among(&self, members: &[SocketAddr]) -> Vec<SocketAddr> {
        members.iter().copied().filter(|member| self.is_own(*member)).collect()
    }

    /// Whether connections from this address are accepted, while these are the members.
    pub fn admits(&self, from: IpAddr, members: impl IntoIterator<Item = IpAddr>) -> bool {
        let from = from.to_canonical();
        match self.allow_from.is_empty() {
            true => members.into_iter().any(|member| member.to_canonical() == from),
            false => self.allow_from.iter().any(|network| network.contains(&from)),
        }
    }

    /// A member as a server for requests: a group of one. What it fails to do, this member can do:
    /// so one failure is enough to leave it alone for a while, and no request waits for a place.
    pub fn group(&self, member: SocketAddr) -> Group {
        let health = HealthCheck {
            path: HEALTH_PATH.to_owned(),
            interval: CHECK_EVERY,
            rise: 1,
            ..HealthCheck::default()
        };
        Group {
            timeouts: self.timeouts,
            reuse: UpstreamReuse::All,
            retries: Retries { max: 0, ..Retries::default() },
            queue: Queue { length_max: 0, ..Queue::default() },
            // This member has no need to ask itself.
            health: (!self.is_own(member)).then_some(health),
            ejection: Ejection {
                failures: 1,
                base: EJECTION,
                max: EJECTION_MAX,
                share_percent_max: 100,
                statuses: Vec::new(),
            },
            // An origin that hangs or breaks off is not the fault of its owner.
            is_of_members: true,
            ..Group::of(&member.to_string(), [Origin::at(member)])
        }
    }

    /// The listener for other members. It answers for the role of the listeners for clients.
    pub fn listener(&self, role: Role) -> Listener {
        Listener {
            http2: false,
            cluster: true,
            field_names: FieldNames::Any,
            ..Listener::plain(self.listen, role)
        }
    }
}

/// The path of health checks at the listener for members.
pub const HEALTH_PATH: &str = "/healthz";

/// How long a member may wait for its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// For the head of a response, with all that comes before.
    pub(crate) first_byte: Duration,
    /// Between two pieces of its body.
    pub(crate) idle: Duration,
}

impl Waits {
    /// The longest of these groups, and of origins that are in none.
    pub(crate) fn longest<'g>(
        limits: &Limits,
        groups: impl IntoIterator<Item = &'g Group>,
    ) -> Waits {
        let of_group = |group: &Group| {
            Waits::of(limits, &group.timeouts, group.retries.max).after(
                if group.queue.length_max == 0 { Duration::ZERO } else { group.queue.timeout },
            )
        };
        let direct = Waits::of(limits, &Timeouts::default(), 0);
        groups.into_iter().map(of_group).fold(direct, |a, b| Waits {
            first_byte: a.first_byte.max(b.first_byte),
            idle: a.idle.max(b.idle),
        })
    }

    fn of(limits: &Limits, timeouts: &Timeouts, retries: u32) -> Waits {
        let connect = timeouts.connect.unwrap_or(limits.connect_timeout);
        let first_byte = timeouts.first_byte.unwrap_or(limits.upstream_timeout);
        let all = connect.saturating_add(first_byte).saturating_mul(retries.saturating_add(1));
        let within = |wait: Duration| timeouts.total.map_or(wait, |total| wait.min(total));
        let idle = timeouts.idle.unwrap_or(limits.upstream_timeout);
        Waits { first_byte: within(all), idle: within(idle) }
    }

    fn after(self, queue: Duration) -> Waits {
        Waits { first_byte: self.first_byte.saturating_add(queue), ..self }
    }
}

/// A member that has waited for its origin in vain has so long to say so.
const GRACE: Duration = Duration::from_secs(5);

/// A member is waited for longer than it waits for its origin, if nothing else is configured.
fn patient(timeouts: Timeouts, origin: Waits) -> Timeouts {
    Timeouts {
        first_byte: timeouts.first_byte.or(Some(origin.first_byte.saturating_add(GRACE))),
        idle: timeouts.idle.or(Some(origin.idle.saturating_add(GRACE))),
        ..timeouts
    }
}

/// Time-outs for members that end before a member has given up its own wait: then the request goes
/// to its origin a second time.
pub(crate) fn warnings(cluster: &Cluster, origin: Waits) -> impl Iterator<Item = String> {
    let Timeouts { first_byte, idle, .. } = cluster.timeouts;
    let of = [("first_byte", first_byte, origin.first_byte), ("idle", idle, origin.idle)];
    of.into_iter().filter(|(_, ours, origin)| ours.is_some_and(|ours| ours <= *origin)).map(
        |(key, _, origin)| {
            format!(
                "cluster.timeouts.{key}: a member may itself wait for {} s: its origin would be \
                 asked a second time",
                origin.as_secs()
            )
        },
    )
}

/// How long a connection to a member may take. It is near.
const CONNECT: Duration = Duration::from_secs(1);
/// How often a member is checked: one that hangs without an end of its connections is found after
/// three checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long a member is left alone after a failure. A refused connection costs little ...
const EJECTION: Duration = Duration::from_secs(1);
/// ... and one that has come back should be used soon.
const EJECTION_MAX: Duration = Duration::from_secs(30);

/// Whether this machine has such an address: only then can a socket be bound to it.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// `[cluster]`
#[derive(Debug)]
pub(crate) struct ClusterSection {
    listen: Option<SocketAddr>,
    members: Vec<SocketAddr>,
    name: Option<String>,
    own: Option<SocketAddr>,
    allow_from: Vec<IpNet>,
    timeouts: Timeouts,
}

impl Default for ClusterSection {
    fn default() -> ClusterSection {
        ClusterSection {
            listen: None,
            members: Vec::new(),
            name: None,
            own: None,
            allow_from: Vec::new(),
            timeouts: Timeouts { connect: Some(CONNECT), ..Timeouts::default() },
        }
    }
}

impl Table for ClusterSection {
    const KEYS: &'static [Key<ClusterSection>] = keys![ClusterSection;
        listen: Kind::Address, listen, "Where other members connect. Clients have no business \
            here. Default: there is no cluster.", example "\"0.0.0.0:7000\"";
        members: Kind::Addresses, members, "The addresses at which the members listen for each \
            other, this one among them.", example "[\"10.0.0.1:7000\", \"10.0.0.2:7000\"]";
        name: Kind::Text, name, "In place of members: a host and a port. Each address of the host \
            is a member. It is looked up again when its TTL expires.",
            example "\"cache.internal:7000\"";
        self: Kind::Address, own, "The address of this member, as the members write it. Default: \
            the one whose port is that of listen, on an address of this machine.",
            example "\"10.0.0.1:7000\"";
        allow_from: Kind::Networks, allow_from, "Networks that members connect from. All that \
            connect can purge, read the store, and send requests without the rules on clients and \
            the quotas. Default: the addresses of the members.",
            example "[\"10.0.0.0/24\"]";
        [timeouts]: timeouts, "Time-outs for other members. Defaults: 1s for connect; for \
            first_byte and idle a little more than the member may wait for its origin: by its \
            longest time-outs, with retries and in a queue.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        match (self.members.is_empty(), &self.name) {
            (true, None) if self.listen.is_none() => {}
            _ if self.listen.is_none() => {
                here.mistake_of("", "where do members connect? write listen");
            }
            (true, None) => here.mistake_of("listen", "who are the members? write members or name"),
            (false, Some(_)) => here.mistake_of("name", "write members or name, not both"),
            _ => {}
        }
        if let [only] = self.members[..] {
            here.mistake_of("members", format!("{only} alone is no cluster"));
        }
        if self.members.len() > SERVERS_PER_GROUP_MAX {
            let text = format!("there are at most {SERVERS_PER_GROUP_MAX} members");
            here.mistake_of("members", text);
        }
        let twice =
            self.members.iter().enumerate().find(|(at, of)| self.members[..*at].contains(of));
        if let Some((_, member)) = twice {
            here.mistake_of("members", format!("{member} is there twice"));
        }
    }
}

impl ClusterSection {
    /// `None` without one, or if there are mistakes.
    pub(crate) fn cluster(
        &self,
        listeners: &[Listener],
        origin: Waits,
        here: &mut Here<'_, '_>,
    ) -> Option<Cluster> {
        if !here.is_well() {
            return None;
        }
        let mut cluster = Cluster {
            own: self.own,
            allow_from: self.allow_from.clone(),
            timeouts: patient(self.timeouts, origin),
            ..Cluster::new(self.listen?, self.members.clone())
        };
        if listeners.iter().any(|listener| listener.role != listeners[0].role) {
            let text = "a cluster has reverse or forward listeners, not both: its members could \
                not know for which of them a request came; use two servers";
            here.mistake_of("cluster", text);
        }
        if let Some(name) = &self.name {
            let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
            let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', ':']);
            match port.parse() {
                Ok(port) if is_host && dns::literal(host).is_none() => {
                    // The name may have no address before the first member is there.
                    let found = name.to_socket_addrs();
                    cluster.members = found.map(Iterator::collect).unwrap_or_default();
                    cluster.name = Some((host.to_owned(), port));
                }
                _ => {
                    here.mistake_of("cluster.name", "write a host and a port: cache.internal:7000")
                }
            }
        }
        let own = cluster.own_among(&cluster.members);
        if own.len() > 1 {
            let at = if self.name.is_some() { "cluster.name" } else { "cluster.members" };
            let text = format!(
                "{} and {} seem to be this server: name it in `self`. If it has only one of these \
                 addresses, the system lets programs bind to others, too (ip_nonlocal_bind)",
                own[0], own[1]
            );
            here.mistake_of(at, text);
        } else if self.name.is_none() && own.is_empty() {
            let text = "none of these is this server: none has the port of listen and an address \
                of this machine. Add it, or name it in `self` (for example behind NAT)";
            here.mistake_of("cluster.members", text);
        }
        Some(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_member_knows_itself_by_its_listener_its_machine_or_its_configuration() {
        let of = |listen: &str, own: Option<&str>, member: &str| {
            let cluster = Cluster::new(at(listen), Vec::new());
            Cluster { own: own.map(at), ..cluster }.is_own(at(member))
        };
        assert!(of("10.0.0.1:7000", None, "10.0.0.1:7000"));
        assert!(!of("10.0.0.1:7000", None, "10.0.0.1:7001"));
        assert!(!of("10.0.0.1:7000", None, "10.0.0.2:7000"));
        assert!(of("0.0.0.0:7000", None, "127.0.0.1:7000"));
        // An address for documentation, which no machine has.
        assert!(!of("0.0.0.0:7000", None, "192.0.2.7:7000"));
        assert!(of("0.0.0.0:7000", Some("192.0.2.7:7000"), "192.0.2.7:7000"));
        assert!(!of("10.0.0.1:7000", Some("192.0.2.7:7000"), "10.0.0.1:7000"));
    }

    /// As where every address can be bound.
    #[test]
    fn of_several_addresses_of_this_machine_none_is_taken_by_chance() {
        let cluster = Cluster::new(at("0.0.0.0:7000"), Vec::new());
        let members = [at("127.0.0.1:7000"), at("127.0.0.2:7000"), at("192.0.2.7:7000")];
        assert_eq!(cluster.own_among(&members), members[..2]);
        let cluster = Cluster { own: Some(members[1]), ..cluster };
        assert_eq!(cluster.own_among(&members), members[1..2]);
    }

    #[test]
    fn a_member_that_waits_for_its_origin_is_waited_for_longer() {
        let cluster = Cluster::new(at("10.0.0.1:7000"), Vec::new());
        let origin = Limits::default().upstream_timeout;
        assert!(cluster.timeouts.first_byte > Some(origin) && cluster.timeouts.idle > Some(origin));
    }

    /// One of its groups may be slow, have retries, and let requests wait for a place.
    #[test]
    fn a_member_is_waited_for_as_long_as_it_may_wait_for_any_of_its_groups() {
        let seconds = Duration::from_secs;
        let limits = Limits::default();
        let mut slow = Group::of("slow", [Origin::at(at("10.0.0.9:80"))]);
        slow.timeouts.connect = Some(seconds(1));
        slow.timeouts.first_byte = Some(seconds(300));
        slow.retries.max = 2;
        slow.queue = Queue { length_max: 10, timeout: seconds(7) };
        let quick = Group::of("quick", [Origin::at(at("10.0.0.8:80"))]);
        let origin = Waits::longest(&limits, [&slow, &quick]);
        assert_eq!((origin.first_byte, origin.idle), (seconds(910), limits.upstream_timeout));
        let timeouts = patient(Timeouts::default(), origin);
        assert_eq!(timeouts.first_byte, Some(seconds(915)));
        slow.timeouts.total = Some(seconds(400));
        assert_eq!(Waits::longest(&limits, [&slow, &quick]).first_byte, seconds(407));
        let mut cluster = Cluster::new(at("10.0.0.1:7000"), Vec::new());
        cluster.timeouts = timeouts;
        assert_eq!(warnings(&cluster, origin).count(), 0);
        cluster.timeouts.first_byte = Some(seconds(100));
        let said: Vec<String> = warnings(&cluster, origin).collect();
        assert!(said.len() == 1 && said[0].contains("timeouts.first_byte"), "{said:?}");
    }

    #[test]
    fn members_may_connect_or_the_networks_that_are_listed() {
        let mut cluster = Cluster::new(at("10.0.0.1:7000"), vec![at("10.0.0.2:7000")]);
        let admits = |cluster: &Cluster, from: &str| {
            let members = cluster.members.iter().map(SocketAddr::ip);
            cluster.admits(from.parse().unwrap(), members)
        };
        assert!(admits(&cluster, "10.0.0.2") && admits(&cluster, "::ffff:10.0.0.2"));
        assert!(!admits(&cluster, "10.0.0.3"));
        cluster.allow_from = vec!["10.1.0.0/16".parse().unwrap()];
        assert!(!admits(&cluster, "10.0.0.2") && admits(&cluster, "10.1.7.7"));
    }
}

//! What a name of the configuration leads to: the addresses of a host, or the hosts of a service
//! and their addresses.
//!
//! What: a host of a service that the name servers do not answer for, or answer for with nothing,
//! keeps the addresses that it had. The other hosts change meanwhile. A host keeps its addresses of
//! IPv4, or of IPv6, if the name servers answer for the others only.
//! What never happens: a look-up that fails takes a server away.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use dns::{Family, NotFound, Resolver};
use runtime::time;

use crate::limits::HOST_AWAITED;

/// What is looked up for a member.
#[derive(Clone, Debug)]
pub(crate) enum LookUp {
    /// The addresses of a host, at this port.
    Host(String, u16),
    /// The hosts of a service, and their addresses.
    Service(String),
}

impl LookUp {
    /// The name.
    pub(crate) fn name(&self) -> &str {
        match self {
            LookUp::Host(name, _) | LookUp::Service(name) => name,
        }
    }

    /// All addresses that it leads to now. `hosts` has those of the last look-up.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) async fn found(
        &self,
        resolver: &Arc<Resolver>,
        hosts: &Hosts,
    ) -> Result<Vec<Found>, NotFound> {
        let service = match self {
            LookUp::Host(host, port) => {
                let answer = resolver.resolve_families(host, *port).await?;
                let one = hosts.host(host, (host, *port), Ok(answer));
                let at = |(address, is_stale)| Found { is_stale, ..Found::at(address) };
                let found = one.addresses.iter().copied().map(at).collect();
                hosts.set(vec![one]);
                return Ok(found);
            }
            LookUp::Service(service) => service,
        };
        let listed = resolver.resolve_service(service).await?;
        let asked = listed.iter().map(|host| {
            let (resolver, host) = (Arc::clone(resolver), host.clone());
            runtime::spawn(async move { resolver.resolve_families(&host.target, host.port).await })
        });
        // They are all spawned before the first is waited for.
        let asked: Vec<_> = asked.collect();
        let until = time::now() + HOST_AWAITED;
        let (mut found, mut known) = (Vec::new(), Vec::new());
        let mut reason = NotFound::NoAddress;
        for (host, asked) in listed.iter().zip(asked) {
            // A look-up that takes longer goes on for the next time.
            let answer = time::timeout_at(until, asked).await;
            let answer = answer.unwrap_or(Err(NotFound::Unanswered));
            reason = answer.as_ref().err().copied().unwrap_or(reason);
            let one = hosts.host(service, (&host.target, host.port), answer);
            let weight = u32::from(host.weight).max(1);
            let all = one.addresses.iter().map(|(at, is_stale)| {
                let found = Found { weight: Some(weight), is_stale: *is_stale, ..Found::at(*at) };
                (host.priority, found)
            });
            found.extend(all);
            known.push(one);
        }
        hosts.set(known);
        // A service without any address keeps the servers that it had.
        let best = found.iter().map(|(priority, _)| *priority).min().ok_or(reason)?;
        let ranked = |(priority, found)| Found { is_backup: priority != best, ..found };
        Ok(found.into_iter().map(ranked).collect())
    }
}

/// The host, or the hosts of a service, and their addresses, as the last look-up has found them.
/// There are at most as many as an answer has.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<Vec<LastHost>>);

#[derive(Debug)]
struct LastHost {
    name: Box<str>,
    port: u16,
    /// With each address: whether it is from an earlier look-up, because no name server has
    /// answered for it.
    addresses: Vec<(SocketAddr, bool)>,
    is_answered: bool,
}

impl Hosts {
    /// A host with its addresses. A host without an answer, or without an answer for IPv4 or for
    /// IPv6, keeps the addresses that it had.
    fn host(
        &self,
        service: &str,
        (host, port): (&str, u16),
        answer: Result<(Arc<[SocketAddr]>, Option<Family>), NotFound>,
    ) -> LastHost {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.iter().find(|last| (&*last.name, last.port) == (host, port));
        let old = last.map_or(&[][..], |last| &last.addresses).iter().map(|(address, _)| *address);
        let (found, unanswered, reason) = match answer {
            Ok((found, unanswered)) => (found, unanswered, None),
            Err(reason) => (Arc::from([]), None, Some(reason)),
        };
        let is_kept = |at: &SocketAddr| match unanswered {
            Some(family) => Family::of(at.ip()) == family,
            None => reason.is_some(),
        };
        let kept: Vec<SocketAddr> = old.filter(is_kept).collect();
        // Nearly all resolvers that are silent about one family know no address of it anyway.
        let is_answered = reason.is_none() && kept.is_empty();
        match (last.is_none_or(|last| last.is_answered), is_answered) {
            (true, false) => {
                let kept = kept.len();
                let text = "no address is found for the host of an upstream: its last addresses, \
                            if there are any, are used";
                tracing::warn!(service, host, ?unanswered, ?reason, kept, "{text}");
            }
            (false, true) => {
                tracing::info!(service, host, "the host of an upstream has addresses again");
            }
            (true, true) | (false, false) => {}
        }
        let found = found.iter().map(|address| (*address, false));
        let addresses = found.chain(kept.into_iter().map(|address| (address, true))).collect();
        LastHost { name: host.into(), port, addresses, is_answered }
    }

    fn set(&self, hosts: Vec<LastHost>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}

/// An address that a name leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) address: SocketAddr,
    /// Its weight, if the name server gives one.
    pub(crate) weight: Option<u32>,
    /// The name server has better ones.
    pub(crate) is_backup: bool,
    /// It is from an earlier look-up, because no name server gives an address now.
    pub(crate) is_stale: bool,
}

impl Found {
    pub(crate) fn at(address: SocketAddr) -> Found {
        Found { address, weight: None, is_backup: false, is_stale: false }
    }
}

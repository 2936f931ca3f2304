//! What a name of the configuration leads to: the addresses of a host, or the hosts of a service
//! and their addresses.
//!
//! What: a host of a service that the name servers do not answer for, or answer for with nothing,
//! keeps the addresses that it had. The other hosts change meanwhile.
//! What never happens: a look-up that fails takes a server away.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use dns::{NotFound, Resolver, Service};

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

    /// All addresses that it leads to now. `hosts` has those of the last look-up of a service.
    pub(crate) async fn found(
        &self,
        resolver: &Arc<Resolver>,
        hosts: &Hosts,
    ) -> Result<Vec<Found>, NotFound> {
        let service = match self {
            LookUp::Host(host, port) => {
                let addresses = resolver.resolve(host, *port).await?;
                return Ok(addresses.iter().copied().map(Found::at).collect());
            }
            LookUp::Service(service) => service,
        };
        let listed = resolver.resolve_service(service).await?;
        let answers = listed.iter().map(|host| {
            let (resolver, host) = (Arc::clone(resolver), host.clone());
            runtime::spawn(async move {
                let addresses = resolver.resolve(&host.target, host.port).await;
                (host, addresses)
            })
        });
        let (mut found, mut known) = (Vec::new(), Vec::new());
        let mut reason = NotFound::NoAddress;
        // They are all spawned before the first is waited for.
        for answer in answers.collect::<Vec<_>>() {
            let (host, addresses) = answer.await;
            reason = addresses.as_ref().err().copied().unwrap_or(reason);
            let (addresses, is_stale) = hosts.of(service, &host, addresses);
            let weight = u32::from(host.weight).max(1);
            let all = addresses.iter().map(|address| (host.priority, *address, weight, is_stale));
            found.extend(all);
            known.push(LastHost { host, addresses, is_stale });
        }
        hosts.set(known);
        let best = found.iter().map(|(priority, ..)| *priority).min();
        // A service without any address keeps the servers that it had.
        let best = best.ok_or(reason)?;
        let found = found.into_iter().map(|(priority, address, weight, is_stale)| Found {
            address,
            weight: Some(weight),
            is_backup: priority != best,
            is_stale,
        });
        Ok(found.collect())
    }
}

/// The hosts of a service and their addresses, as the last look-up has found them. There are at
/// most as many as an answer has.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<Vec<LastHost>>);

#[derive(Debug)]
struct LastHost {
    host: Service,
    addresses: Arc<[SocketAddr]>,
    /// The addresses are from an earlier look-up, because no name server gives any.
    is_stale: bool,
}

impl Hosts {
    /// The addresses of a host of the service, and whether they are from an earlier look-up. A host
    /// without an answer keeps the addresses that it had.
    fn of(
        &self,
        service: &str,
        host: &Service,
        answer: Result<Arc<[SocketAddr]>, NotFound>,
    ) -> (Arc<[SocketAddr]>, bool) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |last: &&LastHost| (&last.host.target, last.host.port) == (&host.target, host.port);
        let last = last.iter().find(is_it);
        let (target, was_stale) = (&*host.target, last.map(|last| last.is_stale));
        match answer {
            Ok(addresses) => {
                if was_stale == Some(true) {
                    tracing::info!(service, target, "a host of a service has addresses again");
                }
                (addresses, false)
            }
            Err(reason) => {
                let kept = last.map_or_else(|| Arc::from([]), |last| Arc::clone(&last.addresses));
                if was_stale != Some(true) {
                    let kept = kept.len();
                    let text = "no address is found for a host of a service: its last addresses, \
                                if there are any, are used";
                    tracing::warn!(service, target, ?reason, kept, "{text}");
                }
                (kept, true)
            }
        }
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

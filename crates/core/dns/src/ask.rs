//! Queries name servers: each question by UDP on its own socket, then by TCP if the reply does not
//! fit; A and AAAA concurrently; the next server if one does not respond or refuses.
//!
//! Each question has a random id and a random port from the system, and its socket is connected, so
//! that only datagrams from the server arrive (RFC 5452). A datagram that is not a reply to the
//! question is ignored.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runtime::net::{TcpStream, UdpSocket};
use runtime::time;

use crate::files::Servers;
use crate::limits::{ADDRESSES_MAX, REPLY_BYTES_MAX, SYSTEM_KEPT};
use crate::wire::{Question, Reply, Wanted};
use crate::{Family, Found, LookupError, Name, Service};

/// Ids that cannot be predicted from earlier ones.
#[derive(Debug, Default)]
pub(super) struct Ids {
    secret: RandomState,
    next: AtomicU64,
}

impl Ids {
    fn draw(&self) -> u16 {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.secret.hash_one(at) as u16
    }
}

/// The addresses of a name, through its candidates in turn.
pub(super) async fn look_up(
    servers: &Servers,
    ids: &Ids,
    name: &Name,
) -> Result<Found, LookupError> {
    let mut none = None;
    for name in servers.candidates(name) {
        let found = match (servers.addresses.is_empty(), servers.is_system) {
            (true, true) => of_the_system(&name).await.map(|found| (found, None)),
            (true, false) => Err(LookupError::Nothing { ttl: None }),
            (false, _) => of_both_families(servers, ids, &name).await,
        };
        match found {
            Ok(((ips, ttl), unanswered)) => {
                return Ok(Found { ips, ttl, name: name.into(), unanswered });
            }
            Err(LookupError::Nothing { ttl }) => {
                // The name is known not to exist for as long as all its candidates are.
                none = Some(none.map_or(ttl, |before: Option<u32>| match (before, ttl) {
                    (Some(before), Some(ttl)) => Some(before.min(ttl)),
                    _ => None,
                }));
            }
            Err(failed) => return Err(failed),
        }
    }
    Err(LookupError::Nothing { ttl: none.flatten() })
}

/// Addresses in the order in which to try them, and their TTL in seconds.
type Addresses = (Vec<IpAddr>, u32);

async fn of_both_families(
    servers: &Servers,
    ids: &Ids,
    name: &str,
) -> Result<(Addresses, Option<Family>), LookupError> {
    let v4 = of_one_family(servers, ids, name, Wanted::V4);
    let v6 = of_one_family(servers, ids, name, Wanted::V6);
    let unanswered = |error, family| (error == LookupError::Unanswered).then_some(family);
    match runtime::join(v6, v4).await {
        (Ok((v6, ttl6)), Ok((v4, ttl4))) => Ok(((bounded(v6, v4), ttl6.min(ttl4)), None)),
        (Ok((v6, ttl)), Err(error)) => {
            Ok(((bounded(v6, Vec::new()), ttl), unanswered(error, Family::V4)))
        }
        (Err(error), Ok((v4, ttl))) => {
            Ok(((bounded(Vec::new(), v4), ttl), unanswered(error, Family::V6)))
        }
        (Err(LookupError::Nothing { ttl: a }), Err(LookupError::Nothing { ttl: b })) => {
            Err(LookupError::Nothing { ttl: a.zip(b).map(|(a, b)| a.min(b)) })
        }
        (Err(failed @ LookupError::Unanswered), _) | (_, Err(failed)) => Err(failed),
    }
}

/// The addresses of both families. Of more than [`ADDRESSES_MAX`] the lowest are used, so that they
/// are the same ones in whatever order a name server gives them.
fn bounded(mut v6: Vec<IpAddr>, mut v4: Vec<IpAddr>) -> Vec<IpAddr> {
    if v6.len() + v4.len() > ADDRESSES_MAX {
        v6.sort_unstable();
        v4.sort_unstable();
    }
    let mut ips = alternating(&v6, &v4);
    ips.truncate(ADDRESSES_MAX);
    ips
}

/// Alternates the families, so that an unreachable family costs one attempt (RFC 8305, 4).
pub(super) fn alternating(first: &[IpAddr], second: &[IpAddr]) -> Vec<IpAddr> {
    let longest = first.len().max(second.len());
    (0..longest).flat_map(|at| [first.get(at), second.get(at)]).flatten().copied().collect()
}

async fn of_one_family(
    servers: &Servers,
    ids: &Ids,
    name: &str,
    wanted: Wanted,
) -> Result<Addresses, LookupError> {
    match answered(servers, ids, name, wanted).await? {
        Reply::Addresses(ips, ttl) => Ok((ips, ttl)),
        _ => Err(LookupError::Nothing { ttl: None }),
    }
}

/// The hosts of a service, and their TTL in seconds. The name is not completed by search domains.
pub(super) async fn look_up_service(
    servers: &Servers,
    ids: &Ids,
    name: &Name,
) -> Result<(Vec<Service>, u32), LookupError> {
    match answered(servers, ids, name.as_str(), Wanted::Service).await? {
        Reply::Services(mut services, ttl) => {
            if services.len() > ADDRESSES_MAX {
                // The same ones in whatever order.
                let by = |one: &Service| (one.priority, one.target.clone(), one.port);
                services.sort_by_cached_key(by);
                services.truncate(ADDRESSES_MAX);
            }
            Ok((services, ttl))
        }
        _ => Err(LookupError::Nothing { ttl: None }),
    }
}

/// The addresses, or the hosts of a service, that the first server gives which answers.
async fn answered(
    servers: &Servers,
    ids: &Ids,
    name: &str,
    wanted: Wanted,
) -> Result<Reply, LookupError> {
    let Some(question) = Question::new(name, wanted) else {
        return Err(LookupError::Nothing { ttl: None });
    };
    for _ in 0..servers.attempts {
        for &server in &servers.addresses {
            let asked = time::timeout(servers.patience, ask(server, &question, ids.draw())).await;
            match asked {
                Ok(Ok(reply @ (Reply::Addresses(..) | Reply::Services(..)))) => return Ok(reply),
                Ok(Ok(Reply::Nothing(ttl))) => return Err(LookupError::Nothing { ttl }),
                Ok(Ok(Reply::Truncated | Reply::Refused)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%server, %error, "a name server cannot be queried");
                    // Avoids a tight loop with a server that refuses at once.
                    time::sleep(REFUSED_PAUSE).await;
                }
                Err(_) => tracing::debug!(%server, name, "a name server does not respond"),
            }
        }
    }
    Err(LookupError::Unanswered)
}

/// Asks the system's resolver. The final dot keeps it from completing the name, which is judged as
/// it is here.
async fn of_the_system(name: &str) -> Result<Addresses, LookupError> {
    let absolute = format!("{name}.");
    let found = runtime::fs::unblock(move || (absolute.as_str(), 0).to_socket_addrs()).await;
    let ttl = SYSTEM_KEPT.as_secs() as u32;
    match found {
        Ok(addresses) => {
            let mut ips: Vec<IpAddr> = Vec::new();
            for address in addresses {
                if !ips.contains(&address.ip()) {
                    ips.push(address.ip());
                }
            }
            match ips.len() {
                0 => Err(LookupError::Nothing { ttl: Some(ttl) }),
                1..=ADDRESSES_MAX => Ok((ips, ttl)),
                _ => {
                    let (v6, v4) = ips.into_iter().partition(IpAddr::is_ipv6);
                    Ok((bounded(v6, v4), ttl))
                }
            }
        }
        // It does not distinguish a missing name from a failed query.
        Err(_) => Err(LookupError::Nothing { ttl: None }),
    }
}

const REFUSED_PAUSE: Duration = Duration::from_millis(20);

async fn ask(server: SocketAddr, question: &Question, id: u16) -> io::Result<Reply> {
    match by_udp(server, question, id).await? {
        Reply::Truncated => by_tcp(server, question, id).await,
        reply => Ok(reply),
    }
}

async fn by_udp(server: SocketAddr, question: &Question, id: u16) -> io::Result<Reply> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(server)?;
    let bytes = question.bytes(id).ok_or(io::ErrorKind::InvalidInput)?;
    socket.send(&bytes).await?;
    let mut reply = [0; REPLY_BYTES_MAX];
    loop {
        let read = socket.recv(&mut reply).await?;
        if let Some(reply) = question.read(id, &reply[..read]) {
            return Ok(reply);
        }
    }
}

/// The message is preceded by its length in two bytes (RFC 1035, 4.2.2).
async fn by_tcp(server: SocketAddr, question: &Question, id: u16) -> io::Result<Reply> {
    let stream = TcpStream::connect(server).await?;
    let bytes = question.bytes(id).ok_or(io::ErrorKind::InvalidInput)?;
    let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    stream.write_all(&framed).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply).await?;
    question.read(id, &reply).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let v6 = [ip("::1"), ip("::2"), ip("::3")];
        let all = alternating(&v6, &[ip("10.0.0.1")]);
        assert_eq!(all, [ip("::1"), ip("10.0.0.1"), ip("::2"), ip("::3")]);
    }

    #[test]
    fn of_too_many_addresses_the_same_ones_are_used_in_whatever_order_they_come() {
        let v4 = |at: u8| IpAddr::from([10, 0, 0, at]);
        let v6 = |at: u8| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, at.into()]);
        let (v6, v4): (Vec<_>, Vec<_>) = ((0..200).map(v6).collect(), (0..200).map(v4).collect());
        let turned = |list: &[IpAddr]| [&list[77..], &list[..77]].concat();
        let once = bounded(v6.clone(), v4.clone());
        assert_eq!((once.len(), &once), (ADDRESSES_MAX, &bounded(turned(&v6), turned(&v4))));
        assert_eq!(once.iter().filter(|ip| ip.is_ipv6()).count(), ADDRESSES_MAX / 2);
        // The order of a name server shares out load if all addresses are used.
        let few = turned(&v4)[..ADDRESSES_MAX].to_vec();
        assert_eq!(bounded(Vec::new(), few.clone()), few);
    }
}

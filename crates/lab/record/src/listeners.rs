//! Where processes listen, which distinguishes several servers of one name; and how often their
//! accept queues were full.
//!
//! A server is a process of that name whose parent is not followed, with its descendants. Two that
//! share a listening socket or an address (`SO_REUSEPORT`) are one server. What never happens: a
//! process without any listening socket is taken for a server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use trial::NOTE_ACCEPT_QUEUE;

/// The most servers that are named.
const NAMED_MAX: usize = 5;

/// The state of a listening socket in `/proc/net/tcp`, and its flag in `/proc/net/unix`.
const LISTENS: &str = "0A";
const ACCEPTS: u32 = 1 << 16;

/// A network namespace, and an address or a path in it.
type Address = (String, String);

/// One server: its first process, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listening {
    pid: u32,
    addresses: BTreeSet<Address>,
}

/// What to say if these trees of processes are several servers. The first process of a tree is its
/// root.
pub(crate) fn several(trees: &[Vec<u32>]) -> Option<String> {
    let mut namespaces = BTreeMap::new();
    let all = trees.iter().filter_map(|tree| {
        let addresses = tree.iter().flat_map(|&pid| addresses_of(pid, &mut namespaces)).collect();
        Some(Listening { pid: *tree.first()?, addresses })
    });
    let servers = apart(all.collect());
    (servers.len() > 1).then(|| sentence(&servers))
}

/// The TCP ports on which these processes listen.
#[cfg(any(bpf, test))]
pub(crate) fn ports(pids: &[u32]) -> Vec<u16> {
    let mut namespaces = BTreeMap::new();
    let addresses = pids.iter().flat_map(|&pid| addresses_of(pid, &mut namespaces));
    // A path of a Unix socket has no port.
    let ports = addresses.filter_map(|(_, at)| at.parse::<SocketAddr>().ok());
    let ports: BTreeSet<u16> = ports.map(|address| address.port()).collect();
    ports.into_iter().collect()
}

/// How often an accept queue was full, by the counters of the network namespaces in which the
/// processes were at the start.
pub(crate) struct AcceptQueues {
    /// A file of each namespace, which stays readable when the process has ended, and its counter
    /// at the start.
    counters: Vec<(File, u64)>,
}

impl AcceptQueues {
    pub(crate) fn start(pids: &[u32]) -> AcceptQueues {
        let mut seen = BTreeSet::new();
        let own = pids.iter().filter(|pid| {
            fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|name| seen.insert(name))
        });
        let counters = own.filter_map(|pid| {
            let mut file = File::open(format!("/proc/{pid}/net/netstat")).ok()?;
            let before = overflows(&mut file)?;
            Some((file, before))
        });
        AcceptQueues { counters: counters.collect() }
    }

    /// The note, if one was full since the start.
    pub(crate) fn note(&mut self) -> Option<String> {
        let since = |(file, before): &mut (File, u64)| overflows(file)?.checked_sub(*before);
        let times: u64 = self.counters.iter_mut().filter_map(since).sum();
        (times > 0).then(|| format!("{NOTE_ACCEPT_QUEUE}{times}"))
    }
}

/// The counter in a file of a network namespace.
fn overflows(file: &mut File) -> Option<u64> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    listen_overflows(&text)
}

/// The counter `ListenOverflows` of `/proc/net/netstat`: a line with names, then one with values.
fn listen_overflows(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|name| name == "ListenOverflows")?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Merges those that share an address.
fn apart(all: Vec<Listening>) -> Vec<Listening> {
    let mut apart: Vec<Listening> = Vec::new();
    for mut one in all.into_iter().filter(|one| !one.addresses.is_empty()) {
        // It may connect several that shared nothing before it.
        while let Some(at) = apart.iter().position(|had| !had.addresses.is_disjoint(&one.addresses))
        {
            let had = apart.remove(at);
            one.addresses.extend(had.addresses);
            one.pid = one.pid.min(had.pid);
        }
        apart.push(one);
    }
    apart.sort_by_key(|one| one.pid);
    apart
}

fn sentence(servers: &[Listening]) -> String {
    let named = servers.iter().take(NAMED_MAX).map(|server| {
        let addresses: Vec<&str> = server.addresses.iter().map(|(_, at)| at.as_str()).collect();
        format!("--pid {} (listens on {})", server.pid, addresses.join(" and "))
    });
    let mut named: Vec<String> = named.collect();
    if servers.len() > NAMED_MAX {
        named.push(format!("{} more", servers.len() - NAMED_MAX));
    }
    format!(
        "{} servers are recorded as one, and their requests and costs added up; for one of them, \
         give {}",
        servers.len(),
        named.join(" or ")
    )
}

/// The addresses on which a process listens.
fn addresses_of(
    pid: u32,
    namespaces: &mut BTreeMap<String, BTreeMap<u64, String>>,
) -> Vec<Address> {
    let namespace = fs::read_link(format!("/proc/{pid}/ns/net"));
    let namespace = namespace.map_or_else(|_| String::new(), |name| name.display().to_string());
    let listening = namespaces.entry(namespace.clone()).or_insert_with(|| {
        let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
        let [tcp, tcp6, unix] = ["tcp", "tcp6", "unix"].map(|name| table(name).unwrap_or_default());
        let found = tcp.lines().chain(tcp6.lines()).filter_map(tcp_line);
        found.chain(unix.lines().filter_map(unix_line)).collect()
    });
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inodes = descriptors.filter_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    });
    let found = inodes.filter_map(|inode| listening.get(&inode));
    found.map(|address| (namespace.clone(), address.clone())).collect()
}

/// The inode and the address of a listening socket in a line of `/proc/net/tcp` or `tcp6`.
fn tcp_line(line: &str) -> Option<(u64, String)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTENS {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    // Words of four bytes, each in the order of this machine.
    let address = match address.len() {
        8 => SocketAddr::from((Ipv4Addr::from(word(0)?.to_ne_bytes()), port)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(8 * index)?.to_ne_bytes());
            }
            SocketAddr::from((Ipv6Addr::from(bytes), port))
        }
        _ => return None,
    };
    Some((fields.get(9)?.parse().ok()?, address.to_string()))
}

/// The same for `/proc/net/unix`.
fn unix_line(line: &str) -> Option<(u64, String)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
    let path = *fields.get(7)?;
    (flags & ACCEPTS != 0).then_some(())?;
    Some((fields.get(6)?.parse().ok()?, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn listening(pid: u32, addresses: &[&str]) -> Listening {
        let addresses = addresses.iter().map(|at| ("net".to_owned(), (*at).to_owned())).collect();
        Listening { pid, addresses }
    }

    #[test]
    fn lines_of_listening_sockets_are_parsed_and_no_others() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 \
                    4711 1 0";
        assert_eq!(tcp_line(line), Some((4711, "127.0.0.1:8080".to_owned())));
        assert_eq!(tcp_line(&line.replace(" 0A ", " 01 ")), None);
        let line = "   0: 00000000000000000000000001000000:0050 0:0 0A 0 0 0 0 0 12 1";
        assert_eq!(tcp_line(line), Some((12, "[::1]:80".to_owned())));
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 99 /run/a.sock";
        assert_eq!(unix_line(line), Some((99, "/run/a.sock".to_owned())));
        assert_eq!(unix_line(&line.replace("00010000", "00000000")), None);
        for odd in ["", "a", "a b c 0A", "a :: c 0A", "a 0Z:1 c 0A d e f g h i", "\u{e9}"] {
            assert_eq!((tcp_line(odd), unix_line(odd)), (None, None), "{odd}");
        }
    }

    #[test]
    fn servers_that_share_an_address_are_one() {
        let all = vec![
            listening(30, &["a:1"]),
            listening(20, &["a:2"]),
            listening(25, &[]),
            listening(10, &["a:2", "a:3"]),
        ];
        let expected = vec![listening(10, &["a:2", "a:3"]), listening(30, &["a:1"])];
        assert_eq!(apart(all.clone()), expected);
        let joined = all.into_iter().chain([listening(5, &["a:1", "a:3"])]).collect();
        assert_eq!(apart(joined).len(), 1);
    }

    #[test]
    fn several_servers_are_named_with_what_to_give() {
        let servers = [listening(7, &["127.0.0.1:80", "[::1]:80"]), listening(9, &["/run/b"])];
        let text = sentence(&servers);
        assert!(
            text.contains("--pid 7 (listens on 127.0.0.1:80 and [::1]:80) or --pid 9"),
            "{text}"
        );
        let many: Vec<Listening> = (0..8).map(|pid| listening(pid, &["a"])).collect();
        assert!(sentence(&many).ends_with("or 3 more"), "{}", sentence(&many));
    }

    #[test]
    fn the_counter_of_full_accept_queues_is_found_by_its_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 340 350\n\
                    IpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!(listen_overflows(text), Some(340));
        for odd in ["", "TcpExt: ListenOverflows", "TcpExt: A\nTcpExt: 1", "TcpExt: A B\nTcpExt: "]
        {
            assert_eq!(listen_overflows(odd), None, "{odd}");
        }
        // Two processes of one namespace have one counter.
        let own = std::process::id();
        let queues = AcceptQueues::start(&[own, own]);
        assert!(queues.counters.len() <= 1, "{}", queues.counters.len());
    }

    #[test]
    fn this_process_listens_where_it_was_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = addresses_of(std::process::id(), &mut BTreeMap::new());
        let address = listener.local_addr().unwrap().to_string();
        assert!(own.iter().any(|(_, at)| *at == address), "{own:?}");
        assert_eq!(several(&[vec![std::process::id()]]), None);
        let port = listener.local_addr().unwrap().port();
        assert!(ports(&[std::process::id()]).contains(&port));
    }
}

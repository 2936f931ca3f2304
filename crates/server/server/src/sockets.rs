//! The listening sockets of the process: bound or inherited before its cores run, added and closed
//! by a reload, handed to the process that replaces it.
//!
//! What: one or several sockets for each configured address. Where the kernel allows it, every core
//! has its own (SO_REUSEPORT); a core without one shares another's, and every socket has a core,
//! whatever the number of cores was when it was bound.
//! Who owns: this table keeps every socket open; a core works on a duplicate.
//! What never happens: a socket with unaccepted connections is closed, unless its address has gone
//! from the configuration: closing resets the connections in its queue. A reload is refused because
//! of a socket that this process itself still holds for HTTP/3: a core holds its socket until the
//! last connection has ended, and takes it back if its listener has HTTP/3 again before that.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use runtime::net::{ListenOptions, shown, unix_path};
use runtime::process::{self, SocketFile, SocketRights};
use rustix::net::sockopt;

use crate::change::{DatagramsOfCore, OfCore};
use crate::start_error::StartError;
use config::Listener;

/// The sockets of one configured address.
#[derive(Debug)]
struct Group {
    /// As configured; the port may be 0.
    configured: SocketAddr,
    /// As bound.
    bound: SocketAddr,
    sockets: Vec<TcpListener>,
    /// The file of a Unix socket, and who may connect to it.
    file: Option<(Arc<SocketFile>, SocketRights)>,
    /// For HTTP/3, if the listener has it: one for each core, in their order. A core holds its own
    /// as long as it has connections there.
    datagrams: Vec<Arc<UdpSocket>>,
}

/// All listening sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    groups: Vec<Group>,
    admin: Option<Group>,
    cores: usize,
    /// Sockets of addresses that have no HTTP/3 any more, in the order of the cores. Each lives as
    /// long as its core holds it.
    draining: Vec<(SocketAddr, Vec<Weak<UdpSocket>>)>,
}

impl Sockets {
    /// Binds the addresses of the listeners, so that each of `cores` cores can accept. Sockets of
    /// `inherited` at these addresses are taken over; the others are closed, and their addresses
    /// are returned.
    ///
    /// # Errors
    /// An address is not available; nothing is bound then.
    pub fn bind(
        listeners: &[Listener],
        admin: Option<SocketAddr>,
        cores: usize,
        inherited: Vec<TcpListener>,
    ) -> Result<(Sockets, Vec<SocketAddr>), StartError> {
        let mut left = Passed::sorted(inherited);
        let mut sockets = Sockets { admin: None, cores, ..Sockets::default() };
        let named: Vec<SocketAddr> =
            listeners.iter().map(|listener| listener.address).chain(admin).collect();
        for listener in listeners {
            let passed = left.take(listener.address, &named);
            sockets.groups.push(Group::of(listener, cores, passed)?);
        }
        if let Some(address) = admin {
            let at = (address, SocketRights::default());
            sockets.admin = Some(Group::bind(at, 1, left.take(address, &named))?);
        }
        Ok((sockets, left.0.into_iter().map(|(address, _)| address).collect()))
    }

    /// Binds the UDP ports of listeners with HTTP/3, or takes over those of `inherited`.
    ///
    /// # Errors
    /// A port is not available.
    pub fn bind_datagrams(
        &mut self,
        listeners: &[Listener],
        mut inherited: Vec<UdpSocket>,
    ) -> Result<(), StartError> {
        for (group, listener) in self.groups.iter_mut().zip(listeners) {
            let is_it =
                |socket: &mut UdpSocket| socket.local_addr().is_ok_and(|at| at == group.bound);
            let passed = inherited.extract_if(.., is_it).map(|socket| Some(Arc::new(socket)));
            group.bind_datagrams(listener, self.cores, passed.collect())?;
        }
        Ok(())
    }

    /// The sockets of one core for HTTP/3.
    pub(crate) fn datagrams_of_core(
        &self,
        core: usize,
        listeners: &[Listener],
    ) -> Vec<DatagramsOfCore> {
        datagrams_of_core(self.groups.iter().zip(listeners), core)
    }

    /// Where clients connect.
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.groups.iter().map(|group| group.bound).collect()
    }

    /// The admin address.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|group| group.bound)
    }

    /// The sockets that one core accepts from, each with its listener.
    pub(crate) fn of_core(&self, core: usize, listeners: &[Listener]) -> io::Result<Vec<OfCore>> {
        of_core(self.groups.iter().zip(listeners), core, self.cores)
    }

    /// The admin socket, for the one core that serves it.
    pub(crate) fn of_admin(&self) -> io::Result<Option<TcpListener>> {
        let socket = self.admin.as_ref().and_then(|group| group.sockets.first());
        socket.map(TcpListener::try_clone).transpose()
    }

    /// The result of a reload: groups whose address stays are kept, new addresses are bound, the
    /// others are left out. Nothing changes until the result is put in place, so that a failing
    /// reload changes nothing.
    ///
    /// # Errors
    /// A new address is not available.
    pub(crate) fn reload(&self, listeners: &[Listener]) -> Result<Change, StartError> {
        let mut kept: Vec<Option<&Group>> = self.groups.iter().map(Some).collect();
        let (mut groups, mut with_datagrams, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for listener in listeners {
            let there = kept
                .iter_mut()
                .find(|group| group.is_some_and(|group| group.configured == listener.address));
            groups.push(match there.and_then(Option::take) {
                Some(group) => {
                    notes.extend(group.unlike(listener));
                    (group.duplicate(listener.rights)?, false)
                }
                None => (Group::of(listener, self.cores, Vec::new())?, true),
            });
            let (group, _) = groups.last_mut().expect("it was pushed just now");
            let draining = self.draining(group.bound);
            if group.bind_datagrams(listener, self.cores, draining)? {
                with_datagrams.push(group.bound);
            }
        }
        let gone = kept.into_iter().flatten().map(|group| group.bound).collect();
        Ok(Change { groups, with_datagrams, gone, notes })
    }

    /// The sockets for HTTP/3 that cores still hold at this address, in the order of the cores.
    fn draining(&self, address: SocketAddr) -> Vec<Option<Arc<UdpSocket>>> {
        let there = self.draining.iter().find(|(at, _)| *at == address);
        there.map_or_else(Vec::new, |(_, of)| of.iter().map(Weak::upgrade).collect())
    }

    /// Puts a change in place. The cores hold removed sockets until they have closed them.
    pub(crate) fn put(&mut self, change: Change) {
        let groups: Vec<Group> = change.groups.into_iter().map(|(group, _)| group).collect();
        let has_http3 =
            |at| groups.iter().any(|group| group.bound == at && !group.datagrams.is_empty());
        self.draining
            .retain(|(at, of)| !has_http3(*at) && of.iter().any(|of| of.strong_count() > 0));
        for group in self.groups.iter().filter(|group| !group.datagrams.is_empty()) {
            if !has_http3(group.bound) {
                let of_cores = group.datagrams.iter().map(Arc::downgrade).collect();
                self.draining.push((group.bound, of_cores));
            }
        }
        groups.iter().for_each(Group::allow);
        self.groups = groups;
    }

    /// The process whose sockets these were leaves their files to this one.
    pub(crate) fn own_files(&self) {
        for group in &self.groups {
            group.file.iter().for_each(|(file, _)| file.own());
            group.allow();
        }
    }

    /// Leaves the files of Unix sockets to another process.
    pub(crate) fn leave_files(&self) {
        let files = self.groups.iter().filter_map(|group| group.file.as_ref());
        files.for_each(|(file, _)| file.leave());
    }

    /// All sockets, in an order that [`Sockets::bind`] understands.
    pub(crate) fn all(&self) -> Vec<BorrowedFd<'_>> {
        let groups = self.groups.iter().chain(&self.admin);
        groups.flat_map(Group::fds).collect()
    }
}

/// A change of the sockets by a reload.
#[derive(Debug)]
pub(crate) struct Change {
    /// The groups, each with whether it is new.
    groups: Vec<(Group, bool)>,
    /// Those that have HTTP/3 only now, by the address they are bound to.
    with_datagrams: Vec<SocketAddr>,
    /// Addresses that are no longer listened on.
    pub(crate) gone: Vec<SocketAddr>,
    /// What is configured, and is not in force.
    pub(crate) notes: Vec<String>,
}

impl Change {
    /// The listeners with the addresses they are bound to.
    pub(crate) fn bound(&self, listeners: &[Listener]) -> Vec<Listener> {
        let pairs = self.groups.iter().zip(listeners);
        pairs.map(|((group, _), of)| Listener { address: group.bound, ..of.clone() }).collect()
    }

    /// Addresses that are new.
    pub(crate) fn added(&self) -> Vec<SocketAddr> {
        self.groups.iter().filter(|(_, new)| *new).map(|(group, _)| group.bound).collect()
    }

    /// The new sockets of one core for HTTP/3.
    pub(crate) fn datagrams_of_core(
        &self,
        core: usize,
        listeners: &[Listener],
    ) -> Vec<DatagramsOfCore> {
        let pairs = self.groups.iter().map(|(group, _)| group).zip(listeners);
        let is_new = |(group, _): &(&Group, _)| self.with_datagrams.contains(&group.bound);
        datagrams_of_core(pairs.filter(is_new), core)
    }

    /// The new sockets that one core accepts from.
    pub(crate) fn of_core(
        &self,
        core: usize,
        cores: usize,
        listeners: &[Listener],
    ) -> io::Result<Vec<OfCore>> {
        let pairs = self.groups.iter().zip(listeners).filter(|((_, new), _)| *new);
        of_core(pairs.map(|((group, _), listener)| (group, listener)), core, cores)
    }
}

/// The sockets of these groups that one core accepts from, each with its listener.
fn of_core<'g>(
    groups: impl Iterator<Item = (&'g Group, &'g Listener)>,
    core: usize,
    cores: usize,
) -> io::Result<Vec<OfCore>> {
    let mut given = Vec::new();
    for (group, listener) in groups {
        for socket in group.of_core(core, cores)? {
            given.push((socket, Listener { address: group.bound, ..listener.clone() }));
        }
    }
    Ok(given)
}

/// The sockets of one core for HTTP/3.
fn datagrams_of_core<'g>(
    groups: impl Iterator<Item = (&'g Group, &'g Listener)>,
    core: usize,
) -> Vec<DatagramsOfCore> {
    let of_core = |(group, listener): (&'g Group, &'g Listener)| {
        let socket = Arc::clone(group.datagrams.get(core)?);
        Some((socket, Listener { address: group.bound, ..listener.clone() }))
    };
    groups.filter_map(of_core).collect()
}

impl Group {
    /// The sockets of a listener. Those that are opened here get the congestion control that it
    /// names, which the sockets of their connections inherit; the passed ones keep theirs.
    fn of(
        listener: &Listener,
        cores: usize,
        passed: Vec<TcpListener>,
    ) -> Result<Group, StartError> {
        let (address, count) = (listener.address, passed.len());
        let group = Group::bind((address, listener.rights), cores, passed)?;
        let Some(control) = &listener.congestion_control else { return Ok(group) };
        for socket in &group.sockets[count..] {
            sockopt::set_tcp_congestion(socket, control.name()).map_err(|error| {
                StartError::CongestionControl(address, control.name().to_owned(), error.into())
            })?;
        }
        if let Some(note) = group.unlike(listener) {
            tracing::warn!("{note}");
        }
        Ok(group)
    }

    /// That a socket has another congestion control than the one that this listener names.
    fn unlike(&self, listener: &Listener) -> Option<String> {
        let wanted = listener.congestion_control.as_ref()?.name();
        let names = self.sockets.iter().filter_map(|socket| sockopt::tcp_congestion(socket).ok());
        let has = names.into_iter().find(|name| name != wanted)?;
        Some(format!(
            "{} keeps congestion_control = {has:?}, not {wanted:?}, until the server is stopped \
             and started (a socket of systemd has TCPCongestion= of its .socket unit)",
            shown(self.bound)
        ))
    }

    /// Takes over the passed sockets, and binds the missing ones so that each core has its own.
    /// Where that is impossible (a socket bound by another user, or without SO_REUSEPORT), cores
    /// share. They share a Unix socket, too.
    fn bind(
        (configured, rights): (SocketAddr, SocketRights),
        cores: usize,
        passed: Vec<TcpListener>,
    ) -> Result<Group, StartError> {
        let named = |error| StartError::Bind(configured, error);
        let (mut sockets, datagrams) = (passed, Vec::new());
        if unix_path(configured).is_some() {
            let file = match sockets.is_empty() {
                false => SocketFile::inherited(configured),
                true => {
                    let (socket, file) =
                        process::listen_unix(configured, &rights).map_err(named)?;
                    sockets.push(socket);
                    Some(file)
                }
            };
            let file = file.map(|file| (Arc::new(file), rights));
            return Ok(Group { configured, bound: configured, sockets, file, datagrams });
        }
        let share = ListenOptions::default().with_reuse_port(cores > 1);
        if sockets.is_empty() {
            // Two servers of one user would silently share the address, and each would get a part
            // of the connections. Binding without sharing first detects that.
            if cores > 1 && configured.port() != 0 {
                drop(process::listen(configured, &ListenOptions::default()).map_err(named)?);
            }
            sockets.push(process::listen(configured, &share).map_err(named)?);
        }
        let bound = sockets[0].local_addr().map_err(named)?;
        while sockets.len() < cores {
            let Ok(socket) = process::listen(bound, &share) else { break };
            sockets.push(socket);
        }
        Ok(Group { configured, bound, sockets, file: None, datagrams })
    }

    /// Gives the file of a Unix socket its rights as they are configured now.
    fn allow(&self) {
        let Some((file, rights)) = &self.file else { return };
        if let Err(error) = file.allow(rights) {
            let address = shown(self.bound);
            tracing::warn!(address, %error, "the file of the Unix socket keeps its owner or mode");
        }
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd).chain(self.datagrams.iter().map(AsFd::as_fd))
    }

    fn duplicate(&self, rights: SocketRights) -> Result<Group, StartError> {
        let sockets: io::Result<_> = self.sockets.iter().map(TcpListener::try_clone).collect();
        Ok(Group {
            configured: self.configured,
            bound: self.bound,
            sockets: sockets.map_err(StartError::System)?,
            file: self.file.as_ref().map(|(file, _)| (Arc::clone(file), rights)),
            datagrams: self.datagrams.clone(),
        })
    }

    /// Binds the UDP port for each core if the listener has HTTP/3 and it is not bound; true if it
    /// did. Closes it if the listener has no HTTP/3. A core without a socket serves no HTTP/3.
    /// `there` are sockets that are bound already, in the order of the cores.
    fn bind_datagrams(
        &mut self,
        listener: &Listener,
        cores: usize,
        mut there: Vec<Option<Arc<UdpSocket>>>,
    ) -> Result<bool, StartError> {
        if !listener.http3 {
            self.datagrams.clear();
            return Ok(false);
        }
        if !self.datagrams.is_empty() {
            return Ok(false);
        }
        let named = |error| StartError::Bind(self.configured, error);
        // Without its reader, a socket would swallow its share of the datagrams.
        there.truncate(cores);
        let is_ours = there.iter().any(Option::is_some);
        // As for connections: another server is detected by not sharing first.
        if !is_ours && cores > 1 {
            drop(process::bind_datagrams(self.bound, false).map_err(named)?);
        }
        let bind = || process::bind_datagrams(self.bound, cores > 1 || is_ours).map(Arc::new);
        let mut sockets = Vec::with_capacity(cores);
        for socket in there.into_iter().chain(std::iter::repeat(None)).take(cores) {
            match socket.map_or_else(bind, Ok) {
                Ok(socket) => sockets.push(socket),
                Err(error) if sockets.is_empty() => return Err(named(error)),
                Err(_) => break,
            }
        }
        self.datagrams = sockets;
        Ok(true)
    }

    /// Duplicates of the sockets that this core accepts from: at least one, and each socket goes to
    /// at least one core.
    fn of_core(&self, core: usize, cores: usize) -> io::Result<Vec<TcpListener>> {
        let count = self.sockets.len();
        shares(core, cores, count).map(|at| self.sockets[at].try_clone()).collect()
    }
}

/// Which of `count` sockets one of `cores` cores accepts from.
fn shares(core: usize, cores: usize, count: usize) -> impl Iterator<Item = usize> {
    let first = core % count.max(1);
    let step = if count > cores { cores.max(1) } else { count.max(1) };
    (first..count).step_by(step)
}

/// Inherited sockets by the address they are bound to, in their order.
struct Passed(Vec<(SocketAddr, Vec<TcpListener>)>);

impl Passed {
    fn sorted(inherited: Vec<TcpListener>) -> Passed {
        let mut passed: Vec<(SocketAddr, Vec<TcpListener>)> = Vec::new();
        for socket in inherited {
            // A socket without an address is of no use.
            let Ok(address) = process::listening_address(&socket) else { continue };
            match passed.iter_mut().find(|(there, _)| *there == address) {
                Some((_, sockets)) => sockets.push(socket),
                None => passed.push((address, vec![socket])),
            }
        }
        Passed(passed)
    }

    /// The sockets for this address; for a port that the system chooses, the first of that host
    /// that no address names.
    fn take(&mut self, wanted: SocketAddr, named: &[SocketAddr]) -> Vec<TcpListener> {
        let fits = |(address, _): &(SocketAddr, Vec<TcpListener>)| {
            let is_chosen = wanted.port() == 0 && unix_path(wanted).is_none();
            *address == wanted
                || (is_chosen && address.ip() == wanted.ip() && !named.contains(address))
        };
        let at = self.0.iter().position(fits);
        at.map_or_else(Vec::new, |at| self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Role;

    #[test]
    fn every_core_has_a_socket_and_every_socket_a_core() {
        for cores in 1..9 {
            for count in 1..9 {
                let mut taken = vec![0; count];
                for core in 0..cores {
                    let of_core: Vec<_> = shares(core, cores, count).collect();
                    assert!(!of_core.is_empty(), "{core} of {cores}, {count}");
                    of_core.into_iter().for_each(|at| taken[at] += 1);
                }
                assert!(taken.iter().all(|cores| *cores > 0), "{cores} cores, {taken:?}");
            }
        }
    }

    fn reverse_at(address: &str) -> Listener {
        let listener = crate::Config::forward(&[address.parse().unwrap()]).listeners.remove(0);
        Listener { role: Role::Reverse, ..listener }
    }

    fn duplicates(sockets: &Sockets) -> Vec<TcpListener> {
        let fds = sockets.all().into_iter();
        fds.map(|fd| TcpListener::from(fd.try_clone_to_owned().unwrap())).collect()
    }

    #[test]
    fn a_successor_takes_over_every_socket() {
        let listeners = [reverse_at("127.0.0.1:0"), reverse_at("127.0.0.1:0")];
        let admin = Some("127.0.0.1:0".parse().unwrap());
        let (old, _) = Sockets::bind(&listeners, admin, 3, Vec::new()).unwrap();
        for cores in [1, 2, 5] {
            let (new, unused) = Sockets::bind(&listeners, admin, cores, duplicates(&old)).unwrap();
            assert_eq!((new.listen(), new.admin()), (old.listen(), old.admin()));
            assert_eq!(unused, []);
            assert_eq!(new.groups[0].sockets.len(), cores.max(3));
        }
    }

    #[test]
    fn sockets_that_no_listener_names_are_let_go_and_named() {
        let named = [reverse_at("127.0.0.1:0")];
        let (old, _) = Sockets::bind(&named, None, 1, Vec::new()).unwrap();
        let (_, unused) = Sockets::bind(&[], None, 1, duplicates(&old)).unwrap();
        assert_eq!(unused, old.listen());
    }

    #[test]
    fn the_file_of_a_unix_socket_is_removed_by_the_last_process_and_by_a_reload() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let address = runtime::net::unix_address(&path).unwrap();
        let listeners = [Listener { address, ..reverse_at("127.0.0.1:0") }];
        let (old, _) = Sockets::bind(&listeners, None, 3, Vec::new()).unwrap();
        assert_eq!((old.listen(), old.of_core(2, &listeners).unwrap().len()), (vec![address], 1));
        assert!(matches!(
            Sockets::bind(&listeners, None, 1, Vec::new()),
            Err(StartError::Bind(at, _)) if at == address
        ));
        // A process that fails to take over leaves the file.
        drop(Sockets::bind(&listeners, None, 3, duplicates(&old)).unwrap());
        assert!(path.exists());
        let (mut new, unused) = Sockets::bind(&listeners, None, 1, duplicates(&old)).unwrap();
        assert_eq!(unused, []);
        new.own_files();
        old.leave_files();
        drop(old);
        assert!(path.exists());
        let change = new.reload(&[]).unwrap();
        assert!(path.exists());
        new.put(change);
        assert!(!path.exists());
    }

    #[test]
    fn connections_have_the_congestion_control_of_a_socket_opened_here() {
        let with = |name: &str| {
            let congestion_control = Some(name.parse().unwrap());
            [Listener { congestion_control, ..reverse_at("127.0.0.1:0") }]
        };
        let accepted_by = |group: &Group| {
            let client = std::net::TcpStream::connect(group.bound).unwrap();
            let socket = &group.sockets[0];
            socket.set_nonblocking(false).unwrap();
            let (accepted, _) = socket.accept().unwrap();
            drop(client);
            sockopt::tcp_congestion(accepted).unwrap()
        };
        let accepted_has = |sockets: &Sockets| accepted_by(&sockets.groups[0]);
        let unknown = with("none-such");
        let error = Sockets::bind(&unknown, None, 1, Vec::new()).unwrap_err().to_string();
        assert!(error.contains("modprobe tcp_none-such"), "{error}");
        let (mut old, _) = match Sockets::bind(&with("cubic"), None, 1, Vec::new()) {
            Err(error @ StartError::CongestionControl(..)) => {
                eprintln!("skipped: {error}");
                return;
            }
            bound => bound.unwrap(),
        };
        assert_eq!(accepted_has(&old), "cubic");
        // Neither a restart nor a reload changes it.
        let (new, _) = Sockets::bind(&with("reno"), None, 1, duplicates(&old)).unwrap();
        assert_eq!((new.listen(), accepted_has(&new)), (old.listen(), "cubic".to_owned()));
        drop(new);
        assert!(old.reload(&with("cubic")).unwrap().notes.is_empty());
        let change = old.reload(&with("reno")).unwrap();
        assert!(change.notes[0].contains("keeps congestion_control = \"cubic\""), "{change:?}");
        old.put(change);
        assert_eq!(accepted_has(&old), "cubic");
        // A listener that a reload adds has what is configured.
        let failed = old.reload(&[with("reno"), unknown].concat());
        assert!(matches!(failed, Err(StartError::CongestionControl(..))), "{failed:?}");
        let both = [with("cubic"), with("reno")].concat();
        let change = old.reload(&both).unwrap();
        old.put(change);
        assert_eq!(accepted_by(&old.groups[1]), "reno");
    }

    #[test]
    fn an_address_in_use_is_refused_also_when_it_could_be_shared() {
        let (old, _) = Sockets::bind(&[reverse_at("127.0.0.1:0")], None, 2, Vec::new()).unwrap();
        let again = reverse_at(&old.listen()[0].to_string());
        assert!(matches!(Sockets::bind(&[again], None, 2, Vec::new()), Err(StartError::Bind(..))));
    }

    /// The reload that gave HTTP/3 back to a listener failed with EADDRINUSE, because a core still
    /// served connections there.
    #[test]
    fn a_socket_for_http3_that_drains_is_taken_back_by_a_reload() {
        for cores in [1, 3] {
            let with = Listener { http3: true, ..reverse_at("127.0.0.1:0") };
            let without = [Listener { http3: false, ..with.clone() }];
            let with = [with];
            let (mut sockets, _) = Sockets::bind(&with, None, cores, Vec::new()).unwrap();
            sockets.bind_datagrams(&with, Vec::new()).unwrap();
            // The last core has a connection, and the others have none.
            let (held, _) = sockets.datagrams_of_core(cores - 1, &with).remove(0);
            let reload = |sockets: &mut Sockets, listeners: &[Listener]| {
                let change = sockets.reload(listeners).unwrap();
                let new = (0..cores).flat_map(|core| change.datagrams_of_core(core, listeners));
                let new: Vec<_> = new.map(|(socket, _)| socket).collect();
                sockets.put(change);
                new
            };
            assert!(reload(&mut sockets, &without).is_empty());
            let back = reload(&mut sockets, &with);
            assert_eq!(back.len(), cores);
            assert!(Arc::ptr_eq(&back[cores - 1], &held), "its core goes on with it");
            assert_eq!(sockets.draining.len(), 0);
            drop((back, held));
            // No core holds it any more, and the port is free.
            reload(&mut sockets, &without);
            assert!(UdpSocket::bind(sockets.listen()[0]).is_ok());
            assert_eq!(reload(&mut sockets, &with).len(), cores);
        }
    }

    #[test]
    fn a_reload_keeps_what_stays_and_binds_what_is_new() {
        let kept = reverse_at("127.0.0.1:0");
        let (mut sockets, _) =
            Sockets::bind(&[kept.clone(), reverse_at("[::1]:0")], None, 2, Vec::new()).unwrap();
        let before = sockets.listen();
        let after = [reverse_at("127.0.0.2:0"), kept];
        let change = sockets.reload(&after).unwrap();
        assert_eq!(change.gone, [before[1]]);
        assert_eq!(change.added().len(), 1);
        assert_eq!(change.bound(&after)[1].address, before[0]);
        assert_eq!(change.of_core(1, 2, &after).unwrap().len(), 1);
        sockets.put(change);
        assert_eq!(sockets.listen()[1], before[0]);
    }
}

//! What a connection knows about the listener that accepted it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use config::{Front, Listener, Role};
use http1::{FieldNames, Fields, Name, RequestHead, Scheme};
use ipnet::IpNet;
use policy::front;
use transport::tls::ServerTls;

use crate::cluster::client;

/// The listener of a connection.
#[derive(Debug)]
pub struct ListenerContext {
    /// The listener's address, as configured.
    pub address: SocketAddr,
    /// Its name in conditions.
    pub name: Box<str>,
    /// Whether it is a reverse or a forward proxy.
    pub role: Role,
    /// The scheme of requests in origin-form.
    pub scheme: Scheme,
    /// Whether clients may speak HTTP/2: without TLS, by prior knowledge. With TLS the handshake
    /// decides, and [`Transport::speaks_http2`](transport::Transport::speaks_http2) has its result.
    pub http2: bool,
    /// Which fields of requests there are.
    pub field_names: FieldNames,
    /// It is for the other members of the cluster.
    pub cluster: bool,
    /// What comes before the first request, if anything does.
    pub setup: Option<Rc<Setup>>,
    /// The proxies that are trusted to name the client, if there are any.
    pub front: Option<Arc<Front>>,
    /// It is for connections from these proxies.
    pub is_of_front: bool,
    /// The same for connections from these proxies, unless this is it.
    of_front: Option<Rc<ListenerContext>>,
}

/// What a listener requires before the first request.
#[derive(Debug)]
pub struct Setup {
    /// The networks that must send a PROXY header, if one is required.
    pub proxies: Option<Vec<IpNet>>,
    /// Its certificates, if it speaks TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// The field line about HTTP/3, if there is one.
    alt_svc: Box<[u8]>,
}

impl ListenerContext {
    /// The context of a configured listener.
    pub fn new(listener: &Listener) -> Rc<ListenerContext> {
        let Listener { tls, proxies, .. } = listener;
        let is_needed = tls.is_some() || proxies.is_some();
        let setup = is_needed.then(|| {
            let (proxies, tls) = (proxies.clone(), tls.clone());
            Rc::new(Setup { proxies, tls, alt_svc: seam::client::alt_svc(listener) })
        });
        let with_setup =
            || ListenerContext { setup: setup.clone(), ..ListenerContext::without_setup(listener) };
        let of_front = listener
            .front
            .as_ref()
            .map(|_| Rc::new(ListenerContext { is_of_front: true, ..with_setup() }));
        Rc::new(ListenerContext { of_front, ..with_setup() })
    }

    /// The context for a connection from this address: its own one if this is the address of a
    /// trusted proxy.
    #[inline]
    pub fn of_peer(self: Rc<ListenerContext>, peer: IpAddr) -> Rc<ListenerContext> {
        match (&self.front, &self.of_front) {
            (Some(front), Some(of_front)) if front.trusts(peer) => Rc::clone(of_front),
            _ => self,
        }
    }

    /// The same with nothing before the first request.
    pub fn without_setup(listener: &Listener) -> ListenerContext {
        let scheme = if listener.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let Listener { address, role, http2, field_names, cluster, .. } = *listener;
        // Conditions know no name of the listener for members.
        let name = match (&listener.name, cluster) {
            (_, true) => Box::default(),
            (Some(name), false) => name.as_str().into(),
            (None, false) => runtime::net::shown(address).into(),
        };
        ListenerContext {
            address,
            name,
            role,
            scheme,
            http2,
            field_names,
            cluster,
            setup: None,
            front: listener.front.clone(),
            is_of_front: false,
            of_front: None,
        }
    }

    /// Field lines of this listener's responses over HTTP/1 and HTTP/2.
    #[inline]
    pub fn own_lines(&self) -> &[u8] {
        match &self.setup {
            None => b"",
            Some(setup) => &setup.alt_svc,
        }
    }

    /// The client of a request that came from this address. A member of the cluster names the
    /// client for which it asks, and so does a trusted proxy.
    #[inline]
    pub fn client(&self, peer: SocketAddr, head: &RequestHead<'_>) -> SocketAddr {
        match self.of_front() {
            _ if self.cluster => client(head).unwrap_or(peer),
            Some(front) => front::client(front, &head.fields, peer),
            None => peer,
        }
    }

    /// The settings of the proxies in front, if the request came from one of these proxies.
    #[inline]
    fn of_front(&self) -> Option<&Front> {
        self.front.as_deref().filter(|_| self.is_of_front)
    }

    /// The scheme of a request in origin-form with these fields.
    #[inline]
    pub fn scheme_of(&self, fields: &Fields<'_>) -> Scheme {
        let front = self.of_front().filter(|_| self.role == Role::Reverse);
        front.and_then(|front| front::scheme(front, fields)).unwrap_or(self.scheme)
    }

    /// The host of a request in origin-form with these fields.
    #[inline]
    pub fn host_of<'f>(&self, fields: &Fields<'f>) -> &'f [u8] {
        let named = self.of_front().and_then(|front| front::host(front, fields));
        named.or_else(|| fields.get(Name::Host)).unwrap_or_default()
    }

    /// The part that the log shows: the address, and the scheme of requests in origin-form.
    pub fn logged(&self) -> (SocketAddr, Scheme) {
        (self.address, self.scheme)
    }
}

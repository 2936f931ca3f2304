//! Replaces TLS in a build without it: a configuration with TLS is refused when it is loaded, so
//! that the other types have no values.
#![expect(missing_docs, reason = "the items have the meaning of those in `with_rustls`")]

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::net::TcpStream;

use super::{
    ChallengeAnswer, ConnectError, Facts, ListenerTls, Offered, TlsFacts, UpstreamTls, Validity,
};

const ABSENT: &str = "this build has no TLS; to fix this: make build";

#[derive(Debug)]
pub struct CoreTls;

impl CoreTls {
    pub fn new() -> Rc<CoreTls> {
        Rc::new(CoreTls)
    }
}

#[derive(Debug, Default)]
pub struct TicketKeys;

impl TicketKeys {
    pub fn to_bytes(&self) -> Vec<u8> {
        Vec::new()
    }

    pub fn adopt(&self, _bytes: &[u8]) {}
}

#[derive(Debug, Default)]
pub struct Issued;

impl Issued {
    pub fn put(&self, _name: &str, _pem: &[u8]) -> Result<Validity, String> {
        Err(ABSENT.to_owned())
    }

    pub fn keep_only(&self, _names: &[String]) {}

    pub fn set_answer(&self, _answer: Option<&ChallengeAnswer>) -> Result<(), String> {
        Err(ABSENT.to_owned())
    }

    pub fn http_answer(&self, _path: &[u8]) -> Option<String> {
        None
    }

    pub fn validities(&self) -> Vec<(String, Validity)> {
        Vec::new()
    }
}

#[derive(Debug)]
pub struct ServerTls(Infallible);

impl ServerTls {
    pub fn load(_listener: &ListenerTls, _http2: bool) -> Result<Arc<ServerTls>, String> {
        Err(ABSENT.to_owned())
    }

    pub fn share_tickets(&self, _keys: &Arc<TicketKeys>, _listener: SocketAddr) {
        match self.0 {}
    }

    pub fn share_issued(&self, _issued: &Arc<Issued>) {
        match self.0 {}
    }

    pub fn validities(&self) -> &[(String, Validity)] {
        match self.0 {}
    }

    pub fn warnings(&self) -> &[String] {
        match self.0 {}
    }
}

#[derive(Debug)]
pub struct ClientTls(Infallible);

impl ClientTls {
    pub fn load(_upstream: &UpstreamTls) -> Result<Arc<ClientTls>, String> {
        Err(ABSENT.to_owned())
    }

    pub fn load_for(_upstream: &UpstreamTls, _: Offered) -> Result<Arc<ClientTls>, String> {
        Err(ABSENT.to_owned())
    }

    pub fn warnings(&self) -> &[String] {
        match self.0 {}
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsPeer(Infallible);

impl TlsPeer {
    pub fn of(tls: &Arc<ClientTls>, _host: &[u8]) -> Option<TlsPeer> {
        match tls.0 {}
    }

    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        match self.0 {}
    }

    pub fn warnings(&self) -> &[String] {
        match self.0 {}
    }
}

/// Its other methods are those of the socket.
#[derive(Debug)]
pub struct TlsStream(Infallible);

impl TlsStream {
    pub fn is_resumed(&self) -> bool {
        match self.0 {}
    }

    pub fn speaks_http2(&self) -> bool {
        match self.0 {}
    }

    pub fn is_flushed(&self) -> bool {
        match self.0 {}
    }

    pub fn end_inside(&self) {
        match self.0 {}
    }
}

impl Deref for TlsStream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        match self.0 {}
    }
}

impl TlsFacts for TlsStream {
    fn with_facts(&self, _look: &mut dyn FnMut(&Facts<'_>)) {
        match self.0 {}
    }
}

#[derive(Debug)]
pub enum Refused {
    PlainHttp(TcpStream),
    Slow,
    Evicted,
    Closed,
    Validated,
    Protocol(Infallible),
    Certificate(Infallible),
    Rejected(Infallible),
}

pub async fn accept(
    _core: &Rc<CoreTls>,
    tls: &ServerTls,
    _stream: TcpStream,
    _client: IpAddr,
    _limit: Duration,
) -> Result<TlsStream, Refused> {
    match tls.0 {}
}

pub async fn connect(
    _core: &Rc<CoreTls>,
    peer: &TlsPeer,
    _stream: TcpStream,
    _limit: Duration,
) -> Result<TlsStream, ConnectError> {
    match peer.0 {}
}

pub fn refuses_certificate(_error: &io::Error) -> bool {
    false
}

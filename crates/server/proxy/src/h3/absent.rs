//! Replaces HTTP/3 in a build without TLS, where no listener can have it.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use runtime::net::DatagramSocket;

use exchange::Worker;
use exchange::listener::ListenerContext;

/// No value exists.
#[derive(Debug)]
pub struct Endpoint(Infallible);

#[expect(missing_docs, reason = "the methods have the meaning of those in `endpoint`")]
impl Endpoint {
    pub fn new(
        _worker: Rc<Worker>,
        _listener: Rc<ListenerContext>,
        _socket: DatagramSocket,
        _core: u16,
    ) -> io::Result<Rc<Endpoint>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn replace_listener(&self, _listener: Rc<ListenerContext>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn close(&self) {
        match self.0 {}
    }

    pub fn reopen(&self, _listener: Rc<ListenerContext>) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn leave(&self) {
        match self.0 {}
    }

    pub async fn run(self: Rc<Endpoint>) {
        match self.0 {}
    }
}

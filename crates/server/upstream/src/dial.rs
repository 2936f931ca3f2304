//! A TCP connection to one of several addresses of the same server.
//!
//! The addresses are tried in their order, which alternates between families. If one has neither
//! accepted nor refused after a quarter of a second, the next is tried in parallel, and the first
//! to accept wins (RFC 8305, 5).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::time::{self, Sleep};

use crate::limits::NEXT_ADDRESS_AFTER;
use outcome::{Fault, is_out_of_descriptors};

/// Connects to the first of `addresses` that accepts, all attempts within `limit`.
pub async fn dial(
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), Fault> {
    let connected = match addresses {
        [] => return Err(Fault::NoAddress),
        [address] => time::timeout(limit, one(*address)).await,
        _ => time::timeout(limit, Race::of(addresses)).await,
    };
    connected.unwrap_or(Err(Fault::Timeout))
}

async fn one(address: SocketAddr) -> Result<(TcpStream, SocketAddr), Fault> {
    match TcpStream::connect(address).await {
        Ok(stream) => Ok((stream, address)),
        Err(error) => Err(why_not(address, &error)),
    }
}

fn why_not(address: SocketAddr, error: &io::Error) -> Fault {
    tracing::debug!(%address, %error, "no connection to the upstream");
    if is_out_of_descriptors(error) { Fault::NoDescriptor } else { Fault::Connect }
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>;

/// Parallel attempts.
struct Race<'a> {
    left: &'a [SocketAddr],
    pending: Vec<(SocketAddr, Attempt)>,
    /// When the next one starts.
    next: Sleep,
    /// The fault to report if all have failed. A lack of descriptors says nothing about the server.
    fault: Fault,
}

impl Race<'_> {
    fn of(addresses: &[SocketAddr]) -> Race<'_> {
        let (pending, next) = (Vec::new(), time::sleep(Duration::ZERO));
        Race { left: addresses, pending, next, fault: Fault::Connect }
    }

    /// Starts another attempt; false if there is none left.
    fn start(&mut self) -> bool {
        let Some((&address, left)) = self.left.split_first() else { return false };
        self.left = left;
        self.pending.push((address, Box::pin(TcpStream::connect(address))));
        self.next.reset(time::now() + NEXT_ADDRESS_AFTER);
        true
    }
}

impl Future for Race<'_> {
    type Output = Result<(TcpStream, SocketAddr), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let mut at = 0;
            while at < this.pending.len() {
                let (address, attempt) = &mut this.pending[at];
                match attempt.as_mut().poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok((stream, *address))),
                    Poll::Ready(Err(error)) => {
                        if why_not(*address, &error) == Fault::NoDescriptor {
                            this.fault = Fault::NoDescriptor;
                        }
                        drop(this.pending.remove(at));
                    }
                }
            }
            let none = this.pending.is_empty();
            let may_start = none || Pin::new(&mut this.next).poll(cx).is_ready();
            if may_start && this.start() {
                continue;
            }
            return if none { Poll::Ready(Err(this.fault)) } else { Poll::Pending };
        }
    }
}

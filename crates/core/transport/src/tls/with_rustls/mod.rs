//! TLS by rustls, with the cryptography of aws-lc.

mod accept;
mod connect;
mod files;
mod handshake;
mod hello;
mod issued;
mod quic;
mod records;
mod server;
mod stream;
mod tickets;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

use crate::limits::{TLS_HANDSHAKES_BYTES_MAX, TLS_INPUT_BYTES};
use crate::shares::Shares;

pub use accept::{Refused, accept};
pub use connect::{ClientTls, TlsPeer};
pub use connect::{connect, refuses_certificate};
pub use issued::Issued;
pub use quic::QuicFacts;
pub use server::ServerTls;
pub use stream::TlsStream;
pub use tickets::TicketKeys;

/// What the TLS connections of one core share.
#[derive(Debug)]
pub struct CoreTls {
    /// Bytes from a socket for rustls. Never borrowed across a wait.
    input: RefCell<Box<[u8]>>,
    /// The memory of clients whose handshakes are not complete.
    handshakes: Rc<Shares>,
}

impl CoreTls {
    /// For a core without TLS connections; the first one allocates the buffer.
    pub fn new() -> Rc<CoreTls> {
        Rc::new(CoreTls {
            input: RefCell::new(Box::default()),
            handshakes: Shares::new(TLS_HANDSHAKES_BYTES_MAX as u64),
        })
    }

    /// Runs `f` with the buffer, which the first TLS connection allocates. Must not be nested.
    fn with_input<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            *input = vec![0; TLS_INPUT_BYTES].into_boxed_slice();
        }
        f(&mut input)
    }
}

/// The cryptography of aws-lc, in rustls's order of preference.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The wall time of the runtime's world, so that the twin checks certificates by its simulated
/// clock.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(runtime::time::wall_ms())))
    }
}

/// The name of HTTP/2 in ALPN (RFC 9113, 3.2).
const HTTP2: &[u8] = b"h2";
const HTTP3: &[u8] = b"h3";
/// The name of the protocol by which a certification authority checks a name (RFC 8737, 6.2).
const ACME_TLS: &[u8] = b"acme-tls/1";

/// The protocols we speak inside TLS (ALPN), in our order of preference.
fn protocols(http2: bool) -> Vec<Vec<u8>> {
    let http2 = http2.then_some(HTTP2);
    http2.into_iter().chain([&b"http/1.1"[..], b"http/1.0"]).map(<[u8]>::to_vec).collect()
}

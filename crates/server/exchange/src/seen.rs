//! What conditions and texts read of a request besides its head.

use std::cell::Cell;
use std::net::SocketAddr;

use conditions::TlsNames;
use config::{RequestId, Take};
use http1::Fields;
use runtime::time;
use store::KeyHasher;
use transport::tls::{TlsFacts, name_text};

use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::listener::ListenerContext;

/// What was drawn for a request, and what its connection says, as far as a condition or a text
/// needs it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// At least 0, less than 1.
    pub(crate) random: f64,
    /// No other request has this number.
    pub(crate) id: u128,
    /// When it was drawn, in unix seconds.
    pub(crate) now_s: u64,
    /// The names of its TLS connection.
    pub(crate) tls: TlsNames,
}

thread_local! {
    /// Requests of this thread for which something was drawn.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other request has.
pub(crate) fn draw(hasher: &KeyHasher, peer: SocketAddr) -> u128 {
    let nth = DRAWN.get().wrapping_add(1);
    DRAWN.set(nth);
    let (now, peer) = (time::now().as_ns(), peer.to_string());
    let id = hasher.key(&[b"request", &now.to_le_bytes(), &nth.to_le_bytes(), peer.as_bytes()]);
    id.to_u128()
}

/// The number that a request came with, if it is taken over; otherwise empty.
pub(crate) fn given_id<'f>(
    config: Option<&RequestId>,
    listener: &ListenerContext,
    fields: &Fields<'f>,
) -> &'f [u8] {
    let Some(config) = config else { return b"" };
    let takes = match config.take {
        Take::None => false,
        Take::Trusted => listener.is_of_front || listener.cluster,
        Take::All => true,
    };
    let mut values = fields.values(config.field.as_bytes()).filter(|_| takes);
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:+/=@".contains(b);
    match (values.next(), values.next()) {
        (Some(value), None)
            if value.len() <= REQUEST_ID_BYTES_MAX && value.iter().all(is_plain) =>
        {
            value
        }
        _ => b"",
    }
}

impl Seen {
    /// Of a request with this number.
    pub(crate) fn new(id: u128, connection: Option<&dyn TlsFacts>) -> Seen {
        // The upper 53 bits, which are as many as a number below 1 has.
        let random = ((id >> 75) as f64) / ((1u64 << 53) as f64);
        debug_assert!((0.0..1.0).contains(&random));
        let mut tls = TlsNames::default();
        if let Some(connection) = connection {
            connection.with_facts(&mut |facts| {
                tls.sni = facts.server_name.map(str::to_owned);
                let subject = facts.peer.map(|peer| name_text(peer.subject));
                tls.client_subject =
                    subject.map(|subject| String::from_utf8_lossy(&subject).into_owned());
            });
        }
        Seen { random, id, now_s: time::wall_ms() / 1000, tls }
    }
}

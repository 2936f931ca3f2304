//! TLS, by rustls: on listeners and to upstreams.
//!
//! What: configurations made from files ([`ServerTls`], [`ClientTls`]), the handshake of each side,
//! and the [`TlsStream`] that a [`crate::Transport`] then holds.
//! Why one place: no code above a transport knows whether its bytes were encrypted.
//! Who owns: a reload replaces the configuration; connections keep the one that they started with.
//! All TLS connections of a core share one buffer, which is only in use between two waits.
//! What never happens: a certificate is accepted unverified unless the configuration says so; a
//! handshake waits without a time-out; more handshakes hold buffers than a named limit allows.
//!
//! Without the feature `tls` no configuration can be loaded, and so no TLS connection exists.

#[cfg(not(feature = "tls"))]
mod absent;
mod connect_error;
mod facts;
mod settings;
#[cfg(feature = "tls")]
mod with_rustls;

#[cfg(not(feature = "tls"))]
use absent as implementation;
#[cfg(feature = "tls")]
use with_rustls as implementation;

pub use connect_error::ConnectError;
pub use facts::{Facts, Peer, TlsFacts, name_text};
#[cfg(feature = "tls")]
pub use implementation::QuicFacts;
pub use implementation::{
    ClientTls, CoreTls, Issued, Refused, ServerTls, TicketKeys, TlsPeer, TlsStream, accept,
    connect, refuses_certificate,
};
pub use settings::{
    CHALLENGE_PATH, CertificateFiles, ChallengeAnswer, ListenerTls, Offered, UpstreamTls, Validity,
};

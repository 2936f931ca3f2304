//! The TLS facts of a QUIC connection, whose handshake the QUIC library does.

use std::any::Any;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::tls::facts::{Facts, Peer, TlsFacts};

/// What is known of a handshake inside QUIC. The library does not say which cipher suite was
/// chosen, or whether a session was resumed.
#[derive(Debug)]
pub struct QuicFacts {
    server_name: Option<String>,
    /// The client's certificate, DER.
    certificate: Option<CertificateDer<'static>>,
}

impl QuicFacts {
    /// From the name that the client requested, and its chain of certificates as rustls has it.
    pub fn new(server_name: Option<String>, identity: Option<Box<dyn Any>>) -> QuicFacts {
        let chain =
            identity.and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
        let certificate = chain.and_then(|chain| chain.into_iter().next());
        QuicFacts { server_name, certificate }
    }
}

impl TlsFacts for QuicFacts {
    fn with_facts(&self, look: &mut dyn FnMut(&Facts<'_>)) {
        let certificate = self.certificate.as_ref();
        let peer = certificate.and_then(|der| EndEntityCert::try_from(der).ok());
        look(&Facts {
            version: "1.3",
            cipher: "",
            server_name: self.server_name.as_deref(),
            resumed: false,
            peer: peer.as_ref().map(|peer| Peer { subject: peer.subject(), issuer: peer.issuer() }),
        });
    }
}

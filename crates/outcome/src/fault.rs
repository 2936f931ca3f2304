//! What can go wrong between us and an upstream, and whose fault it is.

use std::{fmt, io};

/// Why there is no response from the origin. Copied to every request that waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The upstream's name has no address.
    NoAddress,
    /// No name server has told the upstream's address.
    Unresolved,
    /// Every server of the group is down.
    NoServer,
    /// Every server of the group has as many requests as it may, and as many wait as may.
    QueueFull,
    /// Every server of the group had as many requests as it may for longer than one may wait.
    QueueTimeout,
    /// No connection could be made.
    Connect,
    /// We have no descriptor left for a connection, and could make no room.
    NoDescriptor,
    /// No TLS handshake with the upstream.
    Handshake,
    /// The upstream's certificate is not to be trusted.
    Certificate,
    /// It is for another name.
    CertificateName,
    /// It has expired, or does not hold yet.
    CertificateTime,
    /// The upstream does not accept ours, or wants one.
    CertificateRefused,
    /// The upstream did not answer, or stopped, for longer than the limit.
    Timeout,
    /// The upstream closed or reset the connection before the response was whole.
    Broken,
    /// The upstream's bytes are not HTTP.
    Malformed,
    /// The client's request body broke off.
    ClientBody,
    /// The client's request body stopped coming.
    ClientSlow,
    /// We gave the fetch up ourselves.
    Abandoned,
}

impl Fault {
    /// The status that the client gets (RFC 9110, 15.6).
    pub fn status(self) -> u16 {
        match self {
            Fault::Timeout | Fault::Unresolved => 504,
            Fault::ClientBody => 400,
            Fault::ClientSlow => 408,
            Fault::Abandoned | Fault::NoServer | Fault::QueueFull | Fault::QueueTimeout => 503,
            Fault::NoDescriptor => 503,
            Fault::NoAddress | Fault::Connect | Fault::Broken | Fault::Malformed => 502,
            Fault::Handshake
            | Fault::Certificate
            | Fault::CertificateName
            | Fault::CertificateTime
            | Fault::CertificateRefused => 502,
        }
    }
}

impl Fault {
    /// Whether it is the client's and not the upstream's.
    pub fn is_of_the_client(self) -> bool {
        matches!(self, Fault::ClientBody | Fault::ClientSlow)
    }

    /// Whether it tells something of the server that was asked.
    pub fn is_of_the_server(self) -> bool {
        !self.is_of_the_client() && self != Fault::NoDescriptor
    }

    /// A short name that does not change, for logs.
    pub fn name(self) -> &'static str {
        match self {
            Fault::NoAddress => "upstream-no-address",
            Fault::Unresolved => "upstream-unresolved",
            Fault::NoServer => "upstream-down",
            Fault::QueueFull => "upstream-queue-full",
            Fault::QueueTimeout => "upstream-queue-timeout",
            Fault::Connect => "upstream-connect",
            Fault::NoDescriptor => "no-descriptor",
            Fault::Handshake => "upstream-tls",
            Fault::Certificate => "upstream-certificate",
            Fault::CertificateName => "upstream-certificate-name",
            Fault::CertificateTime => "upstream-certificate-time",
            Fault::CertificateRefused => "upstream-certificate-refused",
            Fault::Timeout => "upstream-timeout",
            Fault::Broken => "upstream-broken",
            Fault::Malformed => "upstream-malformed",
            Fault::ClientBody => "client-body",
            Fault::ClientSlow => "client-slow",
            Fault::Abandoned => "abandoned",
        }
    }

    /// What kind of error it is, as `Proxy-Status` names them (RFC 9209, 2.3).
    pub fn error_type(self) -> &'static str {
        match self {
            Fault::NoAddress => "dns_error",
            Fault::Unresolved => "dns_timeout",
            Fault::NoServer => "destination_unavailable",
            Fault::QueueFull | Fault::QueueTimeout => "connection_limit_reached",
            Fault::Connect => "connection_refused",
            Fault::Handshake => "tls_protocol_error",
            Fault::Certificate | Fault::CertificateName | Fault::CertificateTime => {
                "tls_certificate_error"
            }
            Fault::CertificateRefused => "tls_alert_received",
            Fault::Timeout => "http_response_timeout",
            Fault::Broken => "connection_terminated",
            Fault::Malformed => "http_protocol_error",
            Fault::ClientBody | Fault::ClientSlow => "http_request_error",
            Fault::NoDescriptor | Fault::Abandoned => "proxy_internal_error",
        }
    }

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Fault::NoAddress => "the upstream's name has no address",
            Fault::Unresolved => "no name server has told the upstream's address",
            Fault::NoServer => "every server of the upstream group is down",
            Fault::QueueFull => "the upstream's servers are busy, and too many requests wait",
            Fault::QueueTimeout => "the upstream's servers were busy for too long",
            Fault::Connect => "no connection to the upstream could be made",
            Fault::NoDescriptor => {
                "this proxy has no descriptor left for a connection to the upstream; the operator \
                 can raise its limit (ulimit -n)"
            }
            Fault::Handshake => "the TLS handshake with the upstream failed",
            Fault::Certificate => "the upstream's certificate is not to be trusted",
            Fault::CertificateName => "the upstream's certificate is for another name",
            Fault::CertificateTime => "the upstream's certificate has expired, or is not valid yet",
            Fault::CertificateRefused => {
                "the upstream does not accept our certificate, or wants one"
            }
            Fault::Timeout => "the upstream did not answer in time",
            Fault::Broken => "the upstream closed the connection before its response was whole",
            Fault::Malformed => "the upstream's response is not HTTP",
            Fault::ClientBody => "the request's body broke off",
            Fault::ClientSlow => "the request's body stopped coming",
            Fault::Abandoned => "the fetch was given up",
        }
    }
}

/// Whether the system, or the process, has no descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

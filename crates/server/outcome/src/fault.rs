//! The errors between us and an upstream, and whose fault each is.

use std::{fmt, io};

use dns::NotFound;
use http1::RejectReason;
use transport::tls::{self, ConnectError};

macro_rules! faults {
    ($(
        $(#[$doc:meta])* $variant:ident = $status:literal, $name:literal, $error_type:literal,
        $text:literal;
    )*) => {
        /// Why there is no response from the origin. Copied to every request that waited for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $variant,)*
            /// The upstream's response breaks this rule of HTTP/1.
            Http1(RejectReason),
            /// The upstream's response breaks this rule of HTTP/2.
            Http2(http2::Reason),
        }

        impl Fault {
            /// The status that the client gets (RFC 9110, 15.6).
            pub fn status(self) -> u16 {
                match self {
                    $(Fault::$variant => $status,)*
                    Fault::Http1(_) | Fault::Http2(_) => 502,
                }
            }

            /// A short name that does not change, for logs.
            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)*
                    Fault::Http1(reason) => reason.of_response(),
                    Fault::Http2(reason) => reason.of_response(),
                }
            }

            /// Whether a fault has this name.
            pub fn is_name(name: &str) -> bool {
                matches!(name, $($name)|*)
                    || RejectReason::ALL.iter().any(|reason| reason.of_response() == name)
                    || http2::Reason::ALL.iter().any(|reason| reason.of_response() == name)
            }

            /// The kind of error, as `Proxy-Status` names it (RFC 9209, 2.3).
            pub fn error_type(self) -> &'static str {
                match self {
                    $(Fault::$variant => $error_type,)*
                    Fault::Http1(reason) => error_type_of(reason),
                    Fault::Http2(http2::Reason::FieldsTooLarge | http2::Reason::BlockTooLarge) => {
                        HEAD_TOO_LARGE
                    }
                    Fault::Http2(_) => "http_protocol_error",
                }
            }

            /// A sentence for the client.
            pub fn text(self) -> &'static str {
                match self {
                    $(Fault::$variant => $text,)*
                    Fault::Http1(reason) => reason.text(),
                    Fault::Http2(reason) => reason.text(),
                }
            }
        }
    };
}

faults! {
    /// The upstream's name has no address.
    NoAddress = 502, "upstream-no-address", "dns_error", "the upstream's name has no address";
    /// No name server gave the upstream's address.
    Unresolved = 504, "upstream-unresolved", "dns_timeout",
        "no name server gave the upstream's address";
    /// Every server of the group is down.
    NoServer = 503, "upstream-down", "destination_unavailable",
        "every server of the upstream group is down";
    /// Every server of the group has its maximum of requests, and the queue is full.
    QueueFull = 503, "upstream-queue-full", "connection_limit_reached",
        "the upstream's servers are busy, and too many requests wait";
    /// Every server of the group had its maximum of requests for longer than a request may wait.
    QueueTimeout = 503, "upstream-queue-timeout", "connection_limit_reached",
        "the upstream's servers were busy for too long";
    /// No connection could be made.
    Connect = 502, "upstream-connect", "connection_refused",
        "no connection to the upstream could be made";
    /// We have no descriptor left for a connection, and could close none.
    NoDescriptor = 503, "no-descriptor", "proxy_internal_error",
        "this proxy has no descriptor left for a connection to the upstream; the operator can \
         raise its limit (ulimit -n)";
    /// The TLS handshake with the upstream failed.
    Handshake = 502, "upstream-tls", "tls_protocol_error",
        "the TLS handshake with the upstream failed";
    /// The upstream's certificate is not trusted.
    Certificate = 502, "upstream-certificate", "tls_certificate_error",
        "the upstream's certificate is not trusted";
    /// The upstream's certificate is for another name.
    CertificateName = 502, "upstream-certificate-name", "tls_certificate_error",
        "the upstream's certificate is for another name";
    /// The upstream's certificate has expired, or is not valid yet.
    CertificateTime = 502, "upstream-certificate-time", "tls_certificate_error",
        "the upstream's certificate has expired, or is not valid yet";
    /// The upstream does not accept our certificate, or requires one.
    CertificateRefused = 502, "upstream-certificate-refused", "tls_alert_received",
        "the upstream does not accept our certificate, or wants one";
    /// The upstream did not answer, or stopped, for longer than the limit.
    Timeout = 504, "upstream-timeout", "http_response_timeout",
        "the upstream did not answer in time";
    /// The upstream closed or reset the connection before the response was complete.
    Broken = 502, "upstream-broken", "connection_terminated",
        "the upstream closed the connection before its response was whole";
    /// The upstream's bytes are not HTTP.
    Malformed = 502, "upstream-malformed", "http_protocol_error",
        "the upstream's response is not HTTP";
    /// The upstream sends interim responses without end.
    Interim = 502, "upstream-interim", "http_protocol_error",
        "the upstream sends too many interim responses";
    /// The upstream has switched to a protocol that was not requested.
    Switched = 502, "upstream-switched", "http_upgrade_failed",
        "the upstream switched to a protocol that was not requested";
    /// The client's request body broke off.
    ClientBody = 400, "client-body", "http_request_error", "the request's body broke off";
    /// The client's request body stopped arriving.
    ClientSlow = 408, "client-slow", "http_request_error", "the request's body stopped coming";
    /// The client's request body is larger than the limit.
    ClientBodyTooLarge = 413, "client-body-too-large", "http_request_error",
        "the request's body is larger than this server takes";
    /// We abandoned the fetch ourselves.
    Abandoned = 503, "abandoned", "proxy_internal_error", "the fetch was given up";
}

/// RFC 9209, 2.3.14: fields that are too large, or too many.
const HEAD_TOO_LARGE: &str = "http_response_header_section_size";

/// The kind of error of a response that breaks this rule.
fn error_type_of(reason: RejectReason) -> &'static str {
    use RejectReason::*;
    match reason {
        HeadTooLarge | TooManyFields | TooManyOptions => HEAD_TOO_LARGE,
        ContentTooLarge => "http_response_body_size",
        TrailersTooLarge => "http_response_trailer_section_size",
        MalformedEncoding
        | ChunkedNotLast
        | ChunkedRepeated
        | UnknownCoding
        | EncodingInHttp10
        | InvalidChunkSize
        | ChunkSizeOverflow
        | ChunkLineTooLong
        | InvalidChunkExtension
        | ExtensionsTooLarge
        | MissingChunkEnd => "http_response_transfer_coding",
        _ => "http_protocol_error",
    }
}

impl Fault {
    /// Whether the client caused it, not the upstream.
    pub fn is_of_the_client(self) -> bool {
        matches!(self, Fault::ClientBody | Fault::ClientSlow | Fault::ClientBodyTooLarge)
    }

    /// Whether the upstream has answered with what is not HTTP.
    pub fn is_malformed(self) -> bool {
        use Fault::{Http1, Http2, Interim, Malformed, Switched};
        matches!(self, Malformed | Http1(_) | Http2(_) | Interim | Switched)
    }

    /// Whether it says something about the server that got the request.
    pub fn is_of_the_server(self) -> bool {
        !self.is_of_the_client() && self != Fault::NoDescriptor
    }
}

impl Fault {
    /// The fault behind a failed read from an upstream.
    pub fn of_read(error: &io::Error) -> Fault {
        match tls::refuses_certificate(error) {
            true => Fault::CertificateRefused,
            false => Fault::Broken,
        }
    }
}

impl From<NotFound> for Fault {
    fn from(reason: NotFound) -> Fault {
        match reason {
            NotFound::NoAddress => Fault::NoAddress,
            NotFound::Unanswered => Fault::Unresolved,
        }
    }
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Fault {
        match error {
            ConnectError::Timeout => Fault::Timeout,
            ConnectError::Handshake => Fault::Handshake,
            ConnectError::Certificate => Fault::Certificate,
            ConnectError::CertificateTime => Fault::CertificateTime,
            ConnectError::CertificateName => Fault::CertificateName,
            ConnectError::CertificateRefused => Fault::CertificateRefused,
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

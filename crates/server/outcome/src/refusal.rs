//! Why a request is refused: one list, so that each refusal has a rule with a name.
//!
//! The name is in the log, in the metrics and, for a rule that an operator can change, in the body
//! of the response, which says what to change. A refusal is in one of three classes: an access rule
//! (Squid's `TCP_DENIED`), the request itself, or the state of the proxy or the upstream.

use std::borrow::Cow;

use crate::Fault;

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An access rule forbids the request.
    Access,
    /// The request cannot be served here.
    Request,
    /// The request could have been served at another time or in another way.
    State,
}

macro_rules! refusals {
    ($(
        $variant:ident = $status:literal, $class:ident, $after:ident, $name:literal, $text:literal;
    )*) => {
        /// The rule by which a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Refusal {
            $(#[doc = $text] $variant,)*
            /// The bytes are not HTTP, or exceed a limit.
            Malformed(http1::Reject),
            /// There is no response from the upstream, or the request's body did not arrive.
            Fault(Fault),
        }

        /// The rules by which refusals are counted: those of the list, then one for everything
        /// malformed, one for the faults that clients caused, and one for all other faults.
        pub const COUNTED: &[&str] = &[$($name,)* "malformed", "client-fault", "fault"];

        /// The same, as numbers.
        #[allow(clippy::enum_variant_names)]
        enum Place { $($variant,)* Malformed, ClientFault, Fault }

        impl Refusal {
            /// The status of the response.
            pub fn status(self) -> u16 {
                match self {
                    $(Refusal::$variant => $status,)*
                    Refusal::Malformed(reject) => reject.status,
                    Refusal::Fault(fault) => fault.status(),
                }
            }

            /// A short name that does not change.
            pub fn name(self) -> &'static str {
                match self {
                    $(Refusal::$variant => $name,)*
                    Refusal::Malformed(reject) => reject.reason.class(),
                    Refusal::Fault(fault) => fault.name(),
                }
            }

            /// What is wrong and, if possible, how to fix it.
            pub fn text(self) -> &'static str {
                match self {
                    $(Refusal::$variant => $text,)*
                    Refusal::Malformed(reject) => reject.reason.text(),
                    Refusal::Fault(fault) => fault.text(),
                }
            }

            /// The cause.
            pub fn class(self) -> Class {
                match self {
                    $(Refusal::$variant => Class::$class,)*
                    Refusal::Malformed(_) => Class::Request,
                    Refusal::Fault(_) => Class::State,
                }
            }

            /// Whether the connection may carry another request after this one.
            pub fn keeps(self) -> bool {
                match self {
                    $(Refusal::$variant => After::$after == After::Keep,)*
                    Refusal::Malformed(_) => false,
                    Refusal::Fault(fault) => !fault.is_of_the_client(),
                }
            }

            /// Its place in [`COUNTED`].
            pub fn place(self) -> usize {
                let place = match self {
                    $(Refusal::$variant => Place::$variant,)*
                    Refusal::Malformed(_) => Place::Malformed,
                    Refusal::Fault(fault) if fault.is_of_the_client() => Place::ClientFault,
                    Refusal::Fault(_) => Place::Fault,
                };
                place as usize
            }
        }
    };
}

impl Refusal {
    /// The kind of error, as `Proxy-Status` names it (RFC 9209, 2.3).
    pub fn error_type(self) -> &'static str {
        match self {
            Refusal::Fault(fault) => fault.error_type(),
            Refusal::Loop => "proxy_loop_detected",
            Refusal::Address | Refusal::OwnAddress => "destination_ip_prohibited",
            Refusal::NoRoute => "destination_not_found",
            // These requests end here as intended.
            Refusal::OptionsEnd | Refusal::TraceEnd => "proxy_internal_response",
            other => match other.class() {
                Class::Access => "http_request_denied",
                Class::Request => "http_request_error",
                Class::State => "proxy_internal_response",
            },
        }
    }

    /// The body of the response. It names a rule that an operator may change.
    pub fn body(self) -> Cow<'static, str> {
        match self.class() {
            Class::Access => {
                Cow::Owned(format!("refused by the rule `{}`: {}", self.name(), self.text()))
            }
            _ if matches!(self, Refusal::Fault(Fault::Http1(_) | Fault::Http2(_))) => {
                Cow::Owned(format!("the upstream's response breaks a rule: {}", self.text()))
            }
            Class::Request | Class::State => Cow::Borrowed(self.text()),
        }
    }
}

/// Whether the connection stays open.
#[derive(PartialEq, Eq)]
enum After {
    Keep,
    Close,
}

refusals! {
    ConnectHere = 501, Request, Close, "connect",
        "CONNECT is for a forward proxy, and this is none";
    Protocol = 501, Request, Keep, "protocol",
        "an extended CONNECT for a protocol that is not supported";
    Http2Malformed = 400, Request, Close, "http2-malformed", "this is not valid HTTP/2";
    Http2Limit = 429, Request, Close, "http2-limit",
        "the client exceeds what a connection of HTTP/2 may cause";
    Expectation = 417, Request, Close, "expectation", "the expectation is not known";
    OptionsEnd = 200, Request, Keep, "options", "plimsoll";
    TraceEnd = 501, Request, Keep, "trace", "TRACE ends here";
    Scheme = 400, Request, Close, "scheme", "URLs of this scheme cannot be asked for here";
    NotAbsolute = 400, Request, Close, "not-absolute",
        "this is a forward proxy: ask with an absolute URL";
    Authority = 400, Request, Close, "authority", "an invalid authority";
    HostName = 400, Request, Close, "host-name",
        "the host is neither an address nor a name that can be looked up";
    Client = 403, Access, Close, "client",
        "this client's address is in no network of allow_from; the operator can add it \
         (--allow-from CIDR)";
    PasswordMissing = 407, Access, Keep, "password-missing",
        "a name and a password are needed (Proxy-Authorization: Basic)";
    PasswordWrong = 407, Access, Keep, "password-wrong", "the name or the password is wrong";
    PasswordsBusy = 503, State, Close, "passwords-busy",
        "too many passwords wait to be verified; ask again";
    Port = 403, Access, Keep, "port",
        "requests do not go to this port; the operator can add it to ports";
    ConnectPort = 403, Access, Close, "connect-port",
        "CONNECT does not go to this port; the operator can add it to connect_ports";
    DomainDenied = 403, Access, Keep, "domain-denied",
        "this domain is in deny_domains, and the operator decides about it";
    DeniedWhen = 403, Access, Keep, "denied-when",
        "the condition deny_when holds for this request, and the operator decides about it";
    DomainNotAllowed = 403, Access, Keep, "domain-not-allowed",
        "this domain is not in allow_domains; the operator can add it";
    Address = 403, Access, Keep, "address",
        "the server's address is not public; the operator can allow its network \
         (allow_to, or --allow-to CIDR)";
    OwnAddress = 403, Access, Keep, "own-address",
        "the server's address is this proxy's own; the operator can allow it by naming this one \
         address in allow_to";
    ServerName = 403, Access, Close, "server-name",
        "the server name of the ClientHello is not the host of the CONNECT, or what followed is \
         no TLS; the operator can turn this off (check_server_name)";
    Loop = 508, Access, Close, "loop",
        "this request has been here before: its Via names this proxy, so what it is for, or the \
         proxy behind it, leads back here";
    PurgeFrom = 403, Access, Keep, "purge-from",
        "the method PURGE is taken from this machine, or from the networks that the configuration \
         names";
    PurgeTarget = 400, Request, Keep, "purge-target", "PURGE takes the URL that is to be purged";
    DigestFrom = 403, Access, Keep, "digest-from",
        "this client's address is in no network of digest.allow_from; the operator can add it";
    DigestNone = 404, State, Keep, "digest-none",
        "no cache digest has been made yet: ask again later";
    NoRoute = 404, Request, Keep, "no-route", "no route is for this host and path";
    FileDenied = 403, Access, Keep, "file-denied",
        "the file may not be read, or a link leads out of the directory of the files";
    FileFailed = 500, State, Keep, "file-failed", "the file cannot be read";
    BodyTooLarge = 413, Request, Close, "body-too-large",
        "the request's body is larger than its route takes (body_bytes_max)";
    RouteClient = 403, Access, Keep, "route-client",
        "this client's address is not allowed here; the operator decides about it (allow_from and \
         deny_from of the route)";
    LoginMissing = 401, Access, Keep, "login-missing",
        "a name and a password are needed (Authorization: Basic)";
    LoginWrong = 401, Access, Keep, "login-wrong", "the name or the password is wrong";
    AuthRefused = 403, Access, Keep, "auth-refused",
        "the service that authorises requests does not allow this one";
    AuthFailed = 502, State, Keep, "auth-failed",
        "the service that authorises requests has not answered as it should";
    Ambiguous = 400, Request, Keep, "ambiguous",
        "origins do not agree on how to read this path or host, and its readings have different \
         routes: send it without %2F, %5C, `;`, repeated slashes and dot segments";
    NoParent = 503, State, Keep, "no-parent",
        "no parent is usable, and this request must not go to its origin (never_direct)";
    ParentRefused = 502, State, Close, "parent-refused",
        "the parent did not open a tunnel";
    Lookups = 503, State, Keep, "lookups",
        "too many names are being looked up for clients: ask again later";
    Overload = 503, State, Keep, "overload",
        "more requests come than can be answered: ask again later";
    Quota = 429, State, Keep, "quota",
        "more is asked for than a quota allows: ask again later";
    TooEarly = 425, Request, Keep, "too-early",
        "somebody may have sent this request again: ask once the handshake is complete";
    Cancelled = 499, Request, Keep, "cancelled",
        "the client left before the response to its request had come";
    ProxyHeader = 403, Access, Close, "proxy-header",
        "a connection here begins with a PROXY header from one of the networks that the listener \
         names (proxy_from)";
    PlainHttp = 400, Request, Close, "plain-http",
        "this port speaks TLS: ask with https:// in place of http://";
    ClientCertificate = 403, Access, Close, "client-certificate",
        "the client's certificate is missing or not accepted (client_ca)";
    TlsHandshake = 400, Request, Close, "tls-handshake",
        "no TLS: no version, cipher or protocol in common, or bytes that are no TLS";
    HeadTimeout = 408, Request, Close, "head-timeout",
        "the head of this request took longer than head_timeout";
    OnlyIfCached = 504, State, Keep, "only-if-cached", "only-if-cached, and not in the store";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_own_name() {
        for (at, name) in COUNTED.iter().enumerate() {
            assert!(!COUNTED[..at].contains(name), "{name}");
            let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            assert!(name.bytes().all(is_plain), "{name}");
        }
        assert_eq!(COUNTED[Refusal::OnlyIfCached.place()], Refusal::OnlyIfCached.name());
        assert_eq!(COUNTED[Refusal::Fault(Fault::Connect).place()], "fault");
        assert_eq!(COUNTED[Refusal::Fault(Fault::ClientBody).place()], "client-fault");
    }
}

//! The fields that name proxies and clients: `Via` with its loop detection, and `Forwarded`.
//!
//! A request that we pass on names us by a pseudonym that no other proxy has, so that two of our
//! processes can be chained. A request that names us already is in a loop (RFC 9110, 7.6.3) and is
//! refused. Responses name us by [`NAME`] only: they cannot loop. The configuration may set another
//! name for both, or turn either off.

use std::net::IpAddr;
use std::sync::Arc;

use http1::{Field, Fields, Name, RequestHead, Sink, Version, tokens};
use store::KeyHasher;

use config::{ClientField, Forward, Role, Via};

/// Our name in responses.
pub const NAME: &str = "plimsoll";

/// The name of one process, or of one seed: the same on all its cores.
pub fn pseudonym(hasher: &KeyHasher) -> String {
    let unique = hasher.key(&[b"pseudonym"]).to_u128() as u64;
    format!("{NAME}-{unique:016x}")
}

/// Our names in messages.
#[derive(Clone, Debug)]
pub struct ViaNames {
    /// The name in requests, which also detects loops.
    own: Arc<str>,
    requests: bool,
    /// The name in responses, if they have one.
    responses: Option<Arc<str>>,
}

impl ViaNames {
    /// From the configuration; `pseudonym` is the name in requests unless that sets another.
    pub fn new(config: &Via, pseudonym: &str) -> ViaNames {
        let named = |otherwise: &str| match &config.name {
            Some(name) => Arc::from(name.as_str()),
            None => Arc::from(otherwise),
        };
        let responses = config.responses.then(|| named(NAME));
        ViaNames { own: named(pseudonym), requests: config.requests, responses }
    }

    /// Appends `Via` to a request that was received in this version.
    pub fn append_to_request(&self, out: &mut Vec<u8>, received: Version) {
        if self.requests {
            append_via(out, received, &self.own);
        }
    }

    /// The same for a response.
    pub fn append_to_response(&self, out: &mut impl Sink, received: Version) {
        if let Some(name) = &self.responses {
            append_via(out, received, name);
        }
    }

    /// Whether a request has passed through us before.
    #[inline]
    pub fn have_seen(&self, head: &RequestHead<'_>) -> bool {
        head.fields.has(Name::Via) && has_been_here(head, self.own.as_bytes())
    }
}

fn append_via(out: &mut impl Sink, received: Version, name: &str) {
    out.field_of(b"Via", |out| {
        out.extend_from_slice(match received {
            Version::Http10 => b"1.0 ",
            Version::Http11 => b"1.1 ",
            Version::Http2 => b"2.0 ",
            Version::Http3 => b"3.0 ",
        });
        out.extend_from_slice(name.as_bytes());
    });
}

/// The fields by which a forward proxy names its client. In reverse mode the group of servers
/// configures them.
pub struct ClientFields<'e> {
    x_forwarded_for: ClientField,
    forwarded: ClientField,
    came: Fields<'e>,
    client: IpAddr,
    /// Whether the addresses that came are kept where ours is added.
    keeps: bool,
}

impl<'e> ClientFields<'e> {
    /// By the rules of forward mode, for a request with these fields from this client. `keeps`: no
    /// proxy before us is trusted, so that the addresses that came are kept before ours.
    pub fn new(
        rules: &Forward,
        role: Role,
        came: Fields<'e>,
        (client, keeps): (IpAddr, bool),
    ) -> ClientFields<'e> {
        let if_forward = |tell| match role {
            Role::Forward => tell,
            Role::Reverse => ClientField::Off,
        };
        ClientFields {
            x_forwarded_for: if_forward(rules.x_forwarded_for),
            forwarded: if_forward(rules.forwarded),
            came,
            client: client.to_canonical(),
            keeps,
        }
    }

    /// Whether a received field is replaced. A server may take `X_Forwarded_For` for
    /// `X-Forwarded-For`, so it gets neither from the client.
    pub fn replaces(&self, field: Field<'_>) -> bool {
        match field.id() {
            Name::XForwardedFor => self.x_forwarded_for != ClientField::Off,
            Name::Forwarded => self.forwarded != ClientField::Off,
            Name::Other => {
                self.x_forwarded_for != ClientField::Off
                    && http1::is_one_variable(field.name(), b"X-Forwarded-For")
            }
            _ => false,
        }
    }

    /// Appends the replacements.
    pub fn append(&self, out: &mut Vec<u8>, proto: &str) {
        if self.x_forwarded_for.has_address() {
            self.append_one(
                out,
                self.x_forwarded_for,
                Name::XForwardedFor,
                &self.client.to_string(),
            );
        }
        if self.forwarded.has_address() {
            let element = match self.client {
                IpAddr::V4(v4) => format!("for={v4};proto={proto}"),
                IpAddr::V6(v6) => format!("for=\"[{v6}]\";proto={proto}"),
            };
            self.append_one(out, self.forwarded, Name::Forwarded, &element);
        }
    }

    fn append_one(&self, out: &mut Vec<u8>, tell: ClientField, name: Name, element: &str) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        if tell == ClientField::Add && self.keeps {
            for value in self.came.all(name).filter(|value| !value.is_empty()) {
                out.extend_from_slice(value);
                out.extend_from_slice(b", ");
            }
        }
        out.extend_from_slice(element.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether a member of `Via` names us as the receiver.
fn has_been_here(head: &RequestHead<'_>, pseudonym: &[u8]) -> bool {
    head.fields.all(Name::Via).flat_map(tokens).any(|member| {
        // received-protocol RWS received-by [ RWS comment ]
        let mut parts = member.split(|b| matches!(b, b' ' | b'\t')).filter(|part| !part.is_empty());
        parts.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(pseudonym))
    })
}

#[cfg(test)]
mod tests {
    use http1::{Limits, Scratch, parse_request};

    use super::*;

    fn looped(via: &str) -> bool {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{via}\r\n");
        let (mut scratch, limits) = (Scratch::new(), Limits::default());
        let head = parse_request(bytes.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
        has_been_here(&head, b"plimsoll-1")
    }

    #[test]
    fn only_our_own_name_means_a_loop() {
        for via in [
            "Via: 1.1 plimsoll-1\r\n",
            "Via: 1.0 a, HTTP/1.1  Plimsoll-1 (of whom)\r\n",
            "Via: 1.1 a\r\nVia: 1.1 b,1.1\tplimsoll-1\r\n",
        ] {
            assert!(looped(via), "{via}");
        }
        for via in ["", "Via: 1.1 plimsoll\r\n", "Via: 1.1 plimsoll-12\r\n", "Via: plimsoll-1\r\n"]
        {
            assert!(!looped(via), "{via}");
        }
    }

    #[test]
    fn the_received_protocol_is_the_version() {
        let names = ViaNames::new(&Via::default(), "plimsoll-1");
        for (received, expected) in [
            (Version::Http10, "Via: 1.0 plimsoll-1\r\n"),
            (Version::Http11, "Via: 1.1 plimsoll-1\r\n"),
            (Version::Http2, "Via: 2.0 plimsoll-1\r\n"),
            (Version::Http3, "Via: 3.0 plimsoll-1\r\n"),
        ] {
            let mut out = Vec::new();
            names.append_to_request(&mut out, received);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn two_processes_have_two_names() {
        assert_ne!(pseudonym(&KeyHasher::random()), pseudonym(&KeyHasher::random()));
    }
}

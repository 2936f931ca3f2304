//! `GET /explain` of the admin address: what would become of a request now, and by which rules.
//!
//! ```text
//!   the question --as a client would send it--> the parser --> fresh_hit, route, plan
//!                                                     the functions that serve requests
//! ```
//!
//! It has no separate rules: it takes the first steps of an exchange, up to the one that would do
//! something, and describes that. It *peeks* at the store and predicts servers without taking them,
//! so that asking changes nothing: no object counts as used, nothing is counted, removed or
//! fetched. A name that a client would have connected to is looked up as for the client, and the
//! resolver may remember it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use config::{ListenAddress, Listener, Role};
use core_io::LimitsInForce;
use http1::{OwnedRequest, Scheme, Scratch};
use runtime::net::shown;

use crate::listener::ListenerContext;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

mod decide;
mod stored;

pub(crate) use policy::explained as model;
pub use policy::explained::{
    Answer, Condition, Decision, Explained, Freshness, Purge, Range, Request, Response, Setting,
    Term,
};

/// What would become of the request that these names and values describe;
/// [`Question::of`] lists the names.
///
/// # Errors
/// What is wrong with them, in one line.
pub async fn explained(
    query: &[(String, String)],
    worker: &Rc<Worker>,
) -> Result<Explained, String> {
    let snapshot = worker.snapshot();
    let question = Question::of(query, &snapshot)?;
    let head = question.parsed(&worker.io.limits())?;
    Ok(decide::explained(worker, snapshot, &question, head).await)
}

/// Bytes as text: everything but visible ASCII and spaces is escaped.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// A request that has not been sent.
pub(super) struct Question {
    pub(super) method: String,
    pub(super) url: String,
    /// The listener that it would come to.
    pub(super) listener: Rc<ListenerContext>,
    /// The client's address.
    pub(super) peer: SocketAddr,
    scheme: Scheme,
    authority: String,
    path: String,
    headers: Vec<String>,
}

const NAMES: &str = "there are url (once), method, header, role, listener and from";

impl Question {
    /// From the query of a call: `url` once, `method`, `header` (`Name: value`) any number of
    /// times, `role` (`reverse`, `forward`) or `listener` (its address as configured), and `from`,
    /// the client's address.
    pub(super) fn of(query: &[(String, String)], snapshot: &Snapshot) -> Result<Question, String> {
        let mut asked = Asked::default();
        for (name, value) in query {
            asked.take(name, value)?;
        }
        let url = asked.url.ok_or("say which url")?;
        let (scheme, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (Scheme::Http, rest),
            (_, Some(rest)) => (Scheme::Https, rest),
            _ => return Err(format!("{url:?} begins neither with http:// nor with https://")),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = (rest[..at].to_owned(), rest[at..].to_owned());
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let from = asked.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let listener = listener(snapshot, scheme, (asked.role, from), asked.listener)?;
        let listener = ListenerContext::new(listener).of_peer(from);
        if listener.is_of_front && scheme != listener.scheme {
            // As the trusted proxy, which the client has asked by this scheme.
            asked.headers.push(format!("X-Forwarded-Proto: {}", scheme.name()));
        }
        Ok(Question {
            method: asked.method.unwrap_or_else(|| "GET".to_owned()),
            listener,
            peer: SocketAddr::new(from, 0),
            url,
            scheme,
            authority,
            path,
            headers: asked.headers,
        })
    }

    /// The request as the parser returns it.
    pub(super) fn parsed(&self, limits: &LimitsInForce) -> Result<OwnedRequest, String> {
        let (bytes, limits) = (self.bytes(), limits.http_with(self.listener.field_names));
        match http1::parse_request(&bytes, &mut Scratch::new(), limits) {
            Ok(Some(head)) => Ok(head.detach()),
            Ok(None) => Err("a header is not one line".to_owned()),
            Err(reject) => {
                Err(format!("it would be refused with {}: {}", reject.status, reject.reason.text()))
            }
        }
    }

    /// The request as a client would send it to such a listener.
    fn bytes(&self) -> Vec<u8> {
        let Question { method, authority, path, scheme, .. } = self;
        let port = scheme.port();
        let target = match (self.listener.role, method.as_str()) {
            (_, "CONNECT") if has_port(authority) => authority.clone(),
            (_, "CONNECT") => format!("{authority}:{port}"),
            (Role::Reverse, _) => path.clone(),
            (Role::Forward, _) => format!("{}://{authority}{path}", scheme.name()),
        };
        let host = if method == "CONNECT" { &target } else { authority };
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        for header in &self.headers {
            text += &format!("{header}\r\n");
        }
        (text + "\r\n").into_bytes()
    }
}

/// The parts of a call.
#[derive(Default)]
struct Asked {
    url: Option<String>,
    method: Option<String>,
    role: Option<Role>,
    listener: Option<SocketAddr>,
    from: Option<IpAddr>,
    headers: Vec<String>,
}

impl Asked {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "url" if self.url.is_none() => self.url = Some(value.to_owned()),
            "header" if !value.contains(['\r', '\n']) => self.headers.push(value.to_owned()),
            "method" => {
                if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_alphabetic()) {
                    return Err(format!("{value:?} is no method; letters only"));
                }
                self.method = Some(value.to_owned());
            }
            "role" => {
                self.role = Some(match value {
                    "reverse" => Role::Reverse,
                    "forward" => Role::Forward,
                    _ => return Err(format!("role is reverse or forward, not {value:?}")),
                });
            }
            "listener" => {
                let wrong = |_| format!("listener is an address such as [::1]:80, not {value:?}");
                self.listener = Some(value.parse::<ListenAddress>().map_err(wrong)?.0);
            }
            "from" => {
                let wrong = |_| format!("from is a client's IP address, not {value:?}");
                self.from = Some(value.parse().map_err(wrong)?);
            }
            _ => return Err(format!("no {name:?} here: {NAMES}")),
        }
        Ok(())
    }
}

fn has_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
}

/// The listener of this address, or the first that accepts such a URL: a reverse one if there is
/// any, unless the role is given.
fn listener(
    snapshot: &Snapshot,
    scheme: Scheme,
    (role, from): (Option<Role>, IpAddr),
    at: Option<SocketAddr>,
) -> Result<&Listener, String> {
    let all = &snapshot.config.listeners;
    if let Some(at) = at {
        let there = all.iter().map(|listener| shown(listener.address));
        let there = there.collect::<Vec<_>>().join(", ");
        return all
            .iter()
            .find(|listener| listener.address == at && role.is_none_or(|r| r == listener.role))
            .ok_or_else(|| format!("no listener is {}; there are {there}", shown(at)));
    }
    let any_reverse = all.iter().any(|listener| listener.role == Role::Reverse);
    let role = role.unwrap_or(if any_reverse { Role::Reverse } else { Role::Forward });
    let of_role = || all.iter().filter(|listener| listener.role == role);
    if of_role().next().is_none() {
        return Err("no listener has this role".to_owned());
    }
    let takes = |listener: &&Listener| {
        role == Role::Forward
            || listener.tls.is_some() == (scheme == Scheme::Https)
            || listener.front.as_ref().is_some_and(|front| front.trusts(from))
    };
    of_role().find(takes).ok_or_else(|| match scheme {
        Scheme::Http => "every listener speaks TLS: ask about an https:// URL".to_owned(),
        Scheme::Https => "no listener speaks TLS: ask about an http:// URL".to_owned(),
    })
}

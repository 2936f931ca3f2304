//! Which server a request asks for: the one that our cookie names, or any, by a hash.
//!
//! What: the cookie is set with a response that is passed on to one client, and is set again when
//! another server has answered. Its value is the `id` of the server, or a few digits of a hash of
//! the server's URL, so that strangers do not learn addresses.
//! What never happens: the cookie is in the store, or in a response that another client or another
//! cache may use again.

use std::net::IpAddr;

use config::{Balance, HashBy, Sticky};
use http1::{Fields, Scheme};

use crate::balance::stable_hash;
use crate::group::Group;

/// Which server of a group a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Requests with the same number belong together.
    pub(crate) key: u64,
    /// The server of its session.
    pub(crate) member: Option<u8>,
}

impl Choice {
    /// By a number alone.
    pub fn by(key: u64) -> Choice {
        Choice { key, member: None }
    }

    /// The server of its session, by its index.
    pub(crate) fn session(self) -> Option<usize> {
        self.member.map(usize::from)
    }
}

impl Group {
    /// Which server a request for this URL asks for: its scheme, its host, and its path as it is
    /// stored. The client's address is `0.0.0.0` if it is unknown.
    pub fn choice(
        &self,
        (scheme, authority, path): (Scheme, &[u8], &[u8]),
        fields: Fields<'_>,
        client: IpAddr,
    ) -> Choice {
        let member = self.config.sticky.as_ref().and_then(|of| self.named(of, fields));
        let is_hash = matches!(self.config.balance, Balance::Hash { .. });
        let hash = match &self.config.hash_by {
            _ if !is_hash => None,
            HashBy::Url => None,
            HashBy::Client if client.is_unspecified() => None,
            HashBy::Client => Some(match client {
                IpAddr::V4(v4) => stable_hash(&[&v4.octets()]),
                IpAddr::V6(v6) => stable_hash(&[&v6.octets()]),
            }),
            HashBy::Field(name) => {
                fields.values(name.as_bytes()).next().map(|value| stable_hash(&[value]))
            }
            HashBy::Cookie(name) => {
                cookies(fields, name.as_bytes()).next().map(|value| stable_hash(&[value]))
            }
        };
        // A request without it is shared out by its URL.
        let key = hash.unwrap_or_else(|| self.key(scheme, authority, path));
        Choice { key, member }
    }

    /// The server that a cookie names.
    fn named(&self, sticky: &Sticky, fields: Fields<'_>) -> Option<u8> {
        let at = |value: &[u8]| {
            if value.is_empty() {
                return None;
            }
            self.members.iter().position(|one| one.id().as_bytes() == value)
        };
        let at = cookies(fields, sticky.cookie.as_bytes()).find_map(at)?;
        u8::try_from(at).ok()
    }

    /// The lines with which a response from this server, at an index of this group, begins or moves
    /// the session of its client; `None` if there is no session, or it stays. No other client, and
    /// no cache, may use the response again.
    pub(crate) fn session_lines(
        &self,
        choice: Choice,
        at: usize,
        is_secure: bool,
    ) -> Option<Vec<u8>> {
        let sticky = self.config.sticky.as_ref().filter(|_| choice.session() != Some(at))?;
        let id = self.members[at].id();
        let Sticky { cookie, path, domain, secure, http_only, same_site, max_age } = sticky;
        let mut line = format!("Set-Cookie: {cookie}={id}; Path={path}");
        if let Some(domain) = domain {
            line += &format!("; Domain={domain}");
        }
        if !max_age.is_zero() {
            line += &format!("; Max-Age={}", max_age.as_secs());
        }
        if secure.unwrap_or(is_secure) {
            line += "; Secure";
        }
        if *http_only {
            line += "; HttpOnly";
        }
        line += &format!("; SameSite={}\r\nCache-Control: private\r\n", same_site.text());
        Some(line.into_bytes())
    }
}

/// The values of the cookies with this name.
fn cookies<'f>(fields: Fields<'f>, name: &'f [u8]) -> impl Iterator<Item = &'f [u8]> {
    let pairs = fields.values(b"cookie").flat_map(|field| field.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..at].trim_ascii() == name).then(|| pair[at + 1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::Origin;
    use http1::{Limits, Scratch};

    use super::*;
    use crate::control;
    use crate::group::Blocked;
    use crate::registry::Registry;
    use crate::server::Tried;

    fn group(change: impl FnOnce(&mut config::Group)) -> Arc<Group> {
        let at = |host| Origin::at(([10, 0, 0, host], 80).into());
        let mut config = config::Group::of("g", (1..=4).map(at));
        config.servers[1].id = Some("b".to_owned());
        change(&mut config);
        Arc::new(Registry::default().group(&config))
    }

    /// The choice of a request with these field lines.
    fn choice(group: &Group, lines: &str, client: &str) -> Choice {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let (mut scratch, limits) = (Scratch::default(), Limits::default());
        let head = http1::parse_request(text.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
        group.choice((Scheme::Http, b"h", b"/"), head.fields, client.parse().unwrap())
    }

    fn sticky() -> Arc<Group> {
        group(|config| config.sticky = Some(Sticky::default()))
    }

    #[test]
    fn a_session_has_its_server_until_that_one_is_gone() {
        let group = sticky();
        let of_b = choice(&group, "Cookie: a=1; plimsoll_server=b\r\n", "10.9.9.9");
        let at = || group.try_admit(of_b, Tried::default()).map(|ticket| ticket.at());
        assert_eq!([at(), at(), at()], [Ok(1); 3]);
        assert_eq!(group.session_lines(of_b, 1, false), None);
        let order = |state: &str| {
            let query = [("server", "10.0.0.2:80"), ("state", state)];
            let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
            control::obey(&[Arc::clone(&group)], &query).unwrap();
        };
        order("drain");
        assert_eq!(at(), Ok(1), "its sessions stay");
        let others = (0..8).map(|_| group.try_admit(Choice::default(), Tried::default()));
        assert!(others.into_iter().all(|other| other.unwrap().at() != 1));
        order("disabled");
        let moved = at().unwrap();
        assert_ne!(moved, 1);
        let lines = group.session_lines(of_b, moved, true).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let id = group.members[moved].id();
        assert_eq!(id.len(), 4);
        assert_eq!(
            lines,
            format!(
                "Set-Cookie: plimsoll_server={id}; Path=/; Secure; HttpOnly; SameSite=Lax\r\n\
                 Cache-Control: private\r\n"
            )
        );
    }

    #[test]
    fn a_session_waits_for_its_server_and_goes_to_another_after_a_failure() {
        let group = group(|config| {
            config.sticky = Some(Sticky::default());
            config.servers[1].outstanding_max = Some(1);
        });
        let of_b = choice(&group, "Cookie: plimsoll_server=b\r\n", "10.9.9.9");
        let held = group.try_admit(of_b, Tried::default()).unwrap();
        assert_eq!(group.try_admit(of_b, Tried::default()).unwrap_err(), Blocked::Full);
        drop(held);
        let mut tried = Tried::default();
        tried.add(1);
        assert_ne!(group.try_admit(of_b, tried).unwrap().at(), 1);
    }

    #[test]
    fn strange_cookies_name_no_server() {
        let group = sticky();
        for lines in [
            "",
            "Cookie: plimsoll_server=\r\n",
            "Cookie: plimsoll_server=x; plimsoll_serve=b; Plimsoll_server=b\r\n",
            "Cookie: plimsoll_server\r\nCookie: =b\r\n",
        ] {
            assert_eq!(choice(&group, lines, "10.9.9.9").session(), None, "{lines}");
        }
        let second = "Cookie: plimsoll_server=x\r\nCookie: plimsoll_server=b\r\n";
        assert_eq!(choice(&group, second, "10.9.9.9").session(), Some(1));
    }

    #[test]
    fn a_hash_of_what_is_configured_decides_and_the_url_where_it_is_absent() {
        let by = |by: &str| {
            group(|config| {
                config.balance = Balance::HASH;
                config.hash_by = by.parse().unwrap();
            })
        };
        let (client, field, cookie) = (by("client"), by("field:X-User"), by("cookie:s"));
        let url = by("url").key(Scheme::Http, b"h", b"/");
        let key = |group: &Group, lines: &str, at: &str| choice(group, lines, at).key;
        assert_eq!(key(&client, "", "10.0.0.7"), key(&client, "X-User: a\r\n", "10.0.0.7"));
        assert_ne!(key(&client, "", "10.0.0.7"), key(&client, "", "10.0.0.8"));
        assert_eq!(key(&client, "", "0.0.0.0"), url);
        assert_eq!(key(&field, "X-User: a\r\n", "10.0.0.7"), key(&field, "X-User: a\r\n", "::1"));
        assert_ne!(key(&field, "X-User: a\r\n", "::1"), key(&field, "X-User: b\r\n", "::1"));
        assert_eq!(key(&field, "", "::1"), url);
        assert_ne!(key(&cookie, "Cookie: s=1\r\n", "::1"), key(&cookie, "Cookie: s=2\r\n", "::1"));
        assert_eq!(key(&cookie, "Cookie: t=2\r\n", "::1"), url);
    }
}

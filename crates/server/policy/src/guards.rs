//! The guards of routes: networks and logins of clients.
//!
//! A guard is judged for each request, before the store answers it, and for each route that a
//! reading of the request leads to ([`crate::routes::Routes::guarding`]). So no spelling of a path
//! passes a guard, and a stored response goes only to clients that may fetch it.
//!
//! What never happens: a request that a guard has refused reaches the store or an upstream.

use std::net::IpAddr;
use std::sync::Arc;

use conditions::{Lists, Networks};
use config::{Auth, Group, Satisfy, Users};
use http1::{Name, RequestHead};
use outcome::Refusal;

use crate::auth::Refused;
use crate::forward::Passwords;

/// A guard, ready for use.
#[derive(Debug)]
pub struct Guard {
    allow: Option<Networks>,
    deny: Networks,
    users: Option<Users>,
    /// The line of the response that asks for a login.
    challenge: String,
    satisfy: Satisfy,
    forwards_login: bool,
    /// The service that is asked, and the index of its group.
    auth: Option<(Auth, usize)>,
}

impl Guard {
    /// From the configuration, whose networks were checked; `None`: everybody passes.
    pub(crate) fn new(config: &config::Guard, lists: &Lists, groups: &[Group]) -> Option<Guard> {
        if config.is_none() {
            return None;
        }
        let networks = |texts| lists.networks(texts).expect(CHECKED);
        let realm = config.realm.as_str();
        Some(Guard {
            allow: config.allow_from.as_deref().map(networks),
            deny: networks(&config.deny_from),
            users: config.users.clone(),
            challenge: format!("WWW-Authenticate: Basic realm=\"{realm}\", charset=\"UTF-8\"\r\n"),
            satisfy: config.satisfy,
            forwards_login: config.forward_login,
            auth: config.auth.clone().map(|auth| {
                let group = groups.iter().position(|group| group.name == auth.upstream);
                (auth, group.expect("the upstream of a service is checked when the file is read"))
            }),
        })
    }

    /// Whether clients of this address are allowed.
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        !self.deny.has(client) && self.allow.as_ref().is_none_or(|allow| allow.has(client))
    }

    /// Whether a login is asked of clients of this address; or the refusal of the address.
    ///
    /// # Errors
    /// The address is not allowed.
    pub fn asks_login(&self, client: IpAddr) -> Result<bool, Refusal> {
        match (self.admits(client), &self.users, self.satisfy) {
            (true, Some(_), Satisfy::All) | (false, Some(_), Satisfy::Any) => Ok(true),
            (true, None, _) | (true, Some(_), Satisfy::Any) => Ok(false),
            (false, None, _) | (false, Some(_), Satisfy::All) => Err(Refusal::RouteClient),
        }
    }

    /// The user, if a login is needed and was verified.
    ///
    /// # Errors
    /// The client may not send the request.
    pub async fn judge(
        &self,
        client: IpAddr,
        head: &RequestHead<'_>,
        passwords: Passwords<'_>,
    ) -> Result<Option<Arc<[u8]>>, Refusal> {
        let asks = self.asks_login(client)?;
        let Some(users) = self.users.as_ref().filter(|_| asks) else { return Ok(None) };
        let user = passwords.user(client, (head, Name::Authorization), users).await;
        user.map(Some).map_err(|refusal| match refusal {
            Refusal::PasswordMissing => Refusal::LoginMissing,
            Refusal::PasswordWrong => Refusal::LoginWrong,
            other => other,
        })
    }

    /// The service that is asked, and the index of its group.
    pub fn auth(&self) -> Option<(&Auth, usize)> {
        self.auth.as_ref().map(|(auth, group)| (auth, *group))
    }

    /// Whether the login is for us, so that the upstream does not get it.
    pub fn takes_login(&self) -> bool {
        self.users.is_some() && !self.forwards_login
    }

    /// The line of the response that asks for a login.
    pub fn challenge(&self) -> &str {
        &self.challenge
    }
}

/// What the guards of a request have said.
#[derive(Clone, Debug, Default)]
pub struct Guarded {
    /// The index of the route whose guard has refused the request.
    pub refused_at: Option<usize>,
    /// The response of the service that has refused the request.
    pub answer: Option<Refused>,
    /// The number of bytes of content that the request may have, if a route has a limit.
    pub body_bytes_max: Option<u64>,
    /// The indices of the routes whose guards have let the request pass. It takes no other route
    /// that has a guard.
    pub judged: Vec<usize>,
}

/// Why the networks of a guard can be read.
const CHECKED: &str = "the networks of a guard are checked when the file is read";

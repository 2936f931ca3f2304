//! The guards of routes: who may send requests to a route.

use super::here::Here;
use super::value::words;
use super::{Auth, PasswordRealm, Users};

/// Who may send requests to a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Networks, and names of lists of networks, whose clients are allowed. `None`: all.
    pub allow_from: Option<Vec<String>>,
    /// The same of clients that are not allowed, whatever is allowed.
    pub deny_from: Vec<String>,
    /// Users and passwords; `None`: no login.
    pub users: Option<Users>,
    /// The realm of the password prompt.
    pub realm: PasswordRealm,
    /// Whether the network and the login are both needed.
    pub satisfy: Satisfy,
    /// Whether the upstream gets the login.
    pub forward_login: bool,
    /// The service that is asked after all this, if there is one.
    pub auth: Option<Auth>,
}

/// How networks and logins of a guard go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Satisfy {
    /// Both are needed.
    #[default]
    All,
    /// One is enough.
    Any,
}

words!(Satisfy: "all" => Satisfy::All, "any" => Satisfy::Any);

impl Guard {
    /// Whether everybody may send requests.
    pub fn is_none(&self) -> bool {
        self.users.is_none() && !self.has_networks() && self.auth.is_none()
    }

    pub(crate) fn has_networks(&self) -> bool {
        self.allow_from.is_some() || !self.deny_from.is_empty()
    }

    /// Reports keys that do not fit together.
    pub(crate) fn check_keys(&self, here: &mut Here<'_, '_>) {
        if self.allow_from.as_ref().is_some_and(Vec::is_empty) {
            here.mistake_of("allow_from", "no client is allowed: write networks or names of lists");
        }
        // A file of users that cannot be read was reported.
        let has_users = self.users.is_some() || here.has("users");
        if !has_users {
            for key in ["realm", "forward_login"] {
                if here.has(key) {
                    here.mistake_of(key, "this is for logins: write users too");
                }
            }
        }
        if self.satisfy == Satisfy::Any && !(has_users && self.has_networks()) {
            let text = "there is nothing to choose from: write users, and allow_from or deny_from";
            here.mistake_of("satisfy", text);
        }
    }
}

//! The guards of a request to a reverse listener, which are judged before the store is asked.

use std::rc::Rc;
use std::sync::Arc;

use http1::{Field, Name, is_one_variable};
use outcome::Refusal;
use policy::auth::{Allowed, Refused};
use policy::forward::Passwords;
use policy::guards::{Guard, Guarded};

use cache::Look;
use conditions::Reads;

use crate::client::RequestBody;
use crate::request::Request;
use crate::routing::ClientConnection;

impl Request {
    /// Judges the guards of all routes that may be meant. The user is known afterwards, and a login
    /// that is for us is no longer among the fields.
    ///
    /// # Errors
    /// A guard refuses the request, or no route is for it.
    pub(crate) async fn guard(&mut self, connection: &ClientConnection<'_>) -> Result<(), Refusal> {
        self.see(connection.tls);
        let Some(mut meant) = self.meant()? else { return Ok(()) };
        let (mut user, mut copied) = self.judge_all(&meant).await?;
        if user.is_some() && self.snapshot.routes.reads(Reads::USER) {
            // Conditions that read the user may lead to another route.
            self.user = user;
            match self.meant()? {
                None => return Ok(()),
                Some(again) if again == meant => user = self.user.take(),
                Some(again) => {
                    (user, copied) = self.judge_all(&again).await?;
                    meant = again;
                }
            }
        }
        self.user = user;
        let routes = &self.snapshot.routes;
        let is_ours = |at: &usize| routes.get(*at).and_then(|route| route.guard.as_ref());
        if meant.iter().filter_map(is_ours).any(Guard::takes_login) {
            // The upstream's response does not depend on it, so it may be stored for all.
            let head = Rc::make_mut(self.owned_head_mut());
            let is_changed = head.change_fields(|field| field.id() != Name::Authorization, &[]);
            debug_assert!(is_changed, "there are fewer fields than before");
        }
        self.take_copied(&meant, &copied)?;
        let all = self.snapshot.config.limits.body_bytes_max;
        let of_route = |at: &usize| routes_limit(self, *at).or(all);
        let has_limit = meant.iter().any(|at| routes_limit(self, *at).is_some());
        let limits = meant.iter().map(|at| of_route(at).unwrap_or(u64::MAX));
        let body_bytes_max = limits.min().filter(|_| has_limit).or(all);
        self.guarded = Some(Box::new(Guarded { refused_at: None, answer: None, body_bytes_max }));
        Ok(())
    }

    /// The routes that may be meant; `None`: a rule answers the request. A rule that reads the user
    /// answers when the user is known.
    fn meant(&self) -> Result<Option<Vec<usize>>, Refusal> {
        let (routes, uri) = (&self.snapshot.routes, self.uri()?);
        let facts = routes.is_conditional().then(|| self.facts());
        let choice = routes.find(uri.reading(), facts.as_ref())?;
        match routes.answers_by_rule(&choice) {
            Some(reads_user) if !reads_user || self.user.is_some() => Ok(None),
            _ => {
                let meant = routes.meant(uri.reading(), &choice, facts.as_ref());
                meant.map(Some).ok_or(Refusal::Ambiguous)
            }
        }
    }

    /// Puts the fields of the services' responses in place of those of the client. They come before
    /// everything that reads the request from here on, such as the cache key.
    fn take_copied(&mut self, meant: &[usize], copied: &[Arc<Allowed>]) -> Result<(), Refusal> {
        let snapshot = Rc::clone(&self.snapshot);
        let guards =
            meant.iter().filter_map(|at| snapshot.routes.get(*at).and_then(|r| r.guard.as_ref()));
        let names: Vec<&String> =
            guards.filter_map(Guard::auth).flat_map(|(auth, _)| &auth.copy).collect();
        if names.is_empty() {
            return Ok(());
        }
        let all = copied.iter().flat_map(|allowed| &allowed.fields);
        let added: Vec<(&[u8], &[u8])> =
            all.map(|(name, value)| (name.as_bytes(), &value[..])).collect();
        let keeps = |field: Field<'_>| {
            !names.iter().any(|name| is_one_variable(field.name(), name.as_bytes()))
        };
        match Rc::make_mut(self.owned_head_mut()).change_fields(keeps, &added) {
            true => Ok(()),
            false => Err(Refusal::AuthFailed),
        }
    }

    /// Judges the guards of these routes; the user of the first that names one, and what services
    /// have said.
    async fn judge_all(
        &mut self,
        routes: &[usize],
    ) -> Result<(Option<Arc<[u8]>>, Vec<Arc<Allowed>>), Refusal> {
        let snapshot = Rc::clone(&self.snapshot);
        let worker = Rc::clone(&self.worker);
        let (mut user, mut copied) = (None, Vec::new());
        for at in routes {
            let Some(guard) = snapshot.routes.get(*at).and_then(|route| route.guard.as_ref())
            else {
                continue;
            };
            let passwords = Passwords {
                known: &worker.shared.passwords,
                verifying: &worker.verifying,
                remembers: self.look == Look::Use,
            };
            let judged = match guard.judge(self.peer.ip(), &self.head(), passwords).await {
                Err(refusal) => Err((refusal, None)),
                Ok(found) => {
                    user = user.or(found);
                    match guard.auth() {
                        None => Ok(()),
                        Some((auth, group)) => self.authorised(auth, group).await.map(|allowed| {
                            user = user.take().or_else(|| allowed.user.clone());
                            copied.push(allowed);
                        }),
                    }
                }
            };
            if let Err((refusal, answer)) = judged {
                let (refused_at, body_bytes_max) = (Some(*at), None);
                self.guarded = Some(Box::new(Guarded { refused_at, answer, body_bytes_max }));
                return Err(refusal);
            }
        }
        Ok((user, copied))
    }

    /// The response of the service that has refused the request.
    pub(crate) fn refused_by_service(&self) -> Option<&Refused> {
        self.guarded.as_ref()?.answer.as_ref()
    }

    /// The line of a response that asks for the login that a guard needs.
    pub(crate) fn challenge(&self) -> Option<&str> {
        Some(self.snapshot.routes.get(self.refused_at()?)?.guard.as_ref()?.challenge())
    }

    /// The index of the route whose guard has refused the request.
    pub(crate) fn refused_at(&self) -> Option<usize> {
        self.guarded.as_ref()?.refused_at
    }

    /// Applies the limit on the content of the request.
    ///
    /// # Errors
    /// The content has more bytes.
    pub(crate) fn limit_body(&self, body: &mut impl RequestBody) -> Result<(), Refusal> {
        let most = match &self.guarded {
            Some(guarded) => guarded.body_bytes_max,
            // The parser lets pass what the largest limit of a route lets pass.
            None => self.snapshot.config.limits.body_bytes_max,
        };
        let Some(most) = most else { return Ok(()) };
        if body.length().bytes().is_some_and(|length| length > most) {
            return Err(Refusal::BodyTooLarge);
        }
        body.limit(most);
        Ok(())
    }
}

/// The limit of a route for the content of requests.
fn routes_limit(request: &Request, at: usize) -> Option<u64> {
    request.snapshot.routes.get(at)?.config.body_bytes_max
}

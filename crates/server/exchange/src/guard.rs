//! The guards of a request to a reverse listener, which are judged before the store is asked.

use std::rc::Rc;
use std::sync::Arc;

use http1::{Field, Name, is_one_variable};
use outcome::Refusal;
use policy::auth::{Allowed, Refused};
use policy::forward::Passwords;
use policy::guards::{Guard, Guarded};
use policy::reading::Reading;
use policy::routes::{Chosen, Route};

use cache::Look;
use conditions::{Facts, Reads};

use crate::client::RequestBody;
use crate::request::Request;
use crate::routing::ClientConnection;

/// The index of a route, and what its service has said.
type Copied = (usize, Arc<Allowed>);

impl Request {
    /// Judges the guards of all routes that may be meant. The user is known afterwards, and a login
    /// that is for us is no longer among the fields.
    ///
    /// # Errors
    /// A guard refuses the request, or no route is for it.
    pub(crate) async fn guard(&mut self, connection: &ClientConnection<'_>) -> Result<(), Refusal> {
        self.see(connection.tls);
        let Some(mut meant) = self.meant()? else { return Ok(()) };
        let mut asked = meant.clone();
        let (user, mut copied) = self.judge_all(&meant).await?;
        self.user = user;
        if self.user.is_some() && self.snapshot.routes.reads(Reads::USER) {
            // Conditions that read the user may lead to another route. The user of a guard that was
            // judged stays: the route was found by it.
            let Some(again) = self.meant()? else { return Ok(()) };
            let new: Vec<usize> = again.iter().copied().filter(|at| !asked.contains(at)).collect();
            let (other, more) = self.judge_all(&new).await?;
            self.user = other.or(self.user.take());
            copied.extend(more);
            asked.extend(new);
            meant = again;
        }
        if self.snapshot.routes.guards(&asked).any(Guard::takes_login) {
            // The upstream's response does not depend on it, so it may be stored for all.
            let head = Rc::make_mut(self.owned_head_mut());
            let is_changed = head.change_fields(|field| field.id() != Name::Authorization, &[]);
            debug_assert!(is_changed, "there are fewer fields than before");
        }
        // What the service of another route has written is not for the routes that are meant.
        copied.retain(|(at, _)| meant.contains(at));
        self.take_copied(&asked, &copied)?;
        let all = self.snapshot.config.limits.body_bytes_max;
        let body_bytes_max = self.snapshot.routes.body_bytes_max(&meant, all);
        let passed = Guarded { body_bytes_max, judged: meant, ..Guarded::default() };
        self.guarded = Some(Box::new(passed));
        Ok(())
    }

    /// Whether the guards of all routes that may be meant have let the request pass. What a guard
    /// changes in a request may lead it to another route, and so may a switch that is turned
    /// meanwhile: that route was not judged, so the request must not take it.
    pub(crate) fn is_judged(
        &self,
        reading: Reading<'_>,
        choice: &Chosen,
        facts: Option<&Facts<'_>>,
    ) -> bool {
        // The member that the client has asked has judged its guards.
        let is_judged = self.listener.cluster;
        is_judged || self.snapshot.routes.are_judged(self.judged(), (reading, choice, facts))
    }

    fn judged(&self) -> &[usize] {
        self.guarded.as_ref().map_or(&[], |guarded| &guarded.judged)
    }

    /// Whether a service has written, or removed, fields of the request.
    pub(crate) fn has_copied(&self) -> bool {
        self.snapshot.routes.copied(self.judged()).next().is_some()
    }

    /// Whether all of these fields are in the key of this route. If not, a stored response could be
    /// that of another client.
    pub(crate) fn has_copied_in_key(&self, route: &Route) -> bool {
        let fields = &route.config.key.fields;
        let is_in_key = |name: &String| fields.iter().any(|one| one.eq_ignore_ascii_case(name));
        self.snapshot.routes.copied(self.judged()).all(is_in_key)
    }

    /// The routes whose guards judge the request; `None`: a rule answers it.
    fn meant(&self) -> Result<Option<Vec<usize>>, Refusal> {
        let (routes, uri) = (&self.snapshot.routes, self.uri()?);
        let facts = routes.is_conditional().then(|| self.facts());
        let choice = routes.find(uri.reading(), facts.as_ref())?;
        routes.guarding((uri.reading(), &choice, facts.as_ref()), self.user.is_some())
    }

    /// Puts the fields of the services' responses in place of those of the client. They come before
    /// everything that reads the request from here on, such as the cache key.
    fn take_copied(&mut self, asked: &[usize], copied: &[Copied]) -> Result<(), Refusal> {
        let snapshot = Rc::clone(&self.snapshot);
        let names: Vec<&String> = snapshot.routes.copied(asked).collect();
        if names.is_empty() {
            return Ok(());
        }
        let all = copied.iter().flat_map(|(_, allowed)| &allowed.fields);
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
    ) -> Result<(Option<Arc<[u8]>>, Vec<Copied>), Refusal> {
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
                overload: &worker.overload,
            };
            let judged = match guard.judge(self.peer.ip(), &self.head(), passwords).await {
                Err(refusal) => Err((refusal, None)),
                Ok(found) => {
                    user = user.or(found);
                    match guard.auth() {
                        None => Ok(()),
                        Some((auth, group)) => self.authorised(auth, group).await.map(|allowed| {
                            user = user.take().or_else(|| allowed.user.clone());
                            copied.push((*at, allowed));
                        }),
                    }
                }
            };
            if let Err((refusal, answer)) = judged {
                let refused = Guarded { refused_at: Some(*at), answer, ..Guarded::default() };
                self.guarded = Some(Box::new(refused));
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

//! A service that is asked whether a request is allowed.
//!
//! A status of 2xx allows the request. 401, 403 and redirects are passed on to the client. Any
//! other status is a failure of the service. If the service allows it (`Cache-Control: max-age`),
//! its permission is remembered for requests that it would get in the same bytes.
//!
//! What never happens: a request goes on because the service has failed; a field that the service
//! should have written comes from the client.

use std::sync::Arc;

use cache::Look;
use config::{Auth, Timeouts};
use http1::{Method, ResponseHead, Target, write};
use outcome::{Fault, Refusal};
use policy::auth::{Allowed, Refused, allowed, life, refused};
use runtime::time;
use upstream::{BodyLength, Choice, To};

use crate::limits::AUTH_BODY_BYTES_MAX;
use crate::request::Request;

impl Request {
    /// Asks the service. `Err` has the response that the client gets, if it gets one.
    pub(crate) async fn authorised(
        &self,
        auth: &Auth,
        group: usize,
    ) -> Result<Arc<Allowed>, (Refusal, Option<Refused>)> {
        if self.look == Look::Peek {
            // An explanation asks no service.
            return Ok(Arc::default());
        }
        let (worker, group) = (&self.worker, &self.snapshot.groups[group]);
        let message = self.question(auth, group).map_err(|refusal| (refusal, None))?;
        // What is read of the response counts as much as what is asked.
        let (copy, user) = (auth.copy.join(","), auth.user.as_deref().unwrap_or_default());
        let of_snapshot = self.snapshot.permissions.to_le_bytes();
        let name = group.config.name.as_bytes();
        let read = (copy.as_bytes(), user.as_bytes());
        let parts = [b"auth", &of_snapshot[..], name, message.bytes(), read.0, read.1];
        let key = worker.cache.hasher.key(&parts).to_u128();
        if let Some(allowed) = worker.shared.allowed.get(key) {
            return Ok(allowed);
        }
        if worker.overload.sheds_of(self.peer.ip()) {
            return Err((Refusal::Overload, None));
        }
        let began = time::now();
        let timeouts = Timeouts { total: Some(auth.timeout), ..Timeouts::default() };
        let timeouts = timeouts.or(group.config.timeouts);
        let to = To::Group(Arc::clone(group), Choice::default(), None, Some(Arc::new(timeouts)));
        let mut interim = |_: &ResponseHead<'_>| {};
        let asked = upstream::exchange(&worker.upstreams, &to, &message, &mut interim);
        let answer = match time::timeout(auth.timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(fault)) => return Err((Refusal::Fault(fault), None)),
            Err(_) => return Err((Refusal::Fault(Fault::Timeout), None)),
        };
        let (head, mut body) = (answer.head, answer.body);
        let head = head.head();
        let reading = body.drain(&worker.upstreams, AUTH_BODY_BYTES_MAX);
        let _ = time::timeout(auth.timeout.saturating_sub(began.elapsed()), reading).await;
        match head.status {
            200..=299 => {
                let allowed =
                    Arc::new(allowed(auth, &head.fields).ok_or((Refusal::AuthFailed, None))?);
                if let Some(life) = life(&head.fields) {
                    worker.shared.allowed.add(key, life, &allowed);
                }
                Ok(allowed)
            }
            status => match refused(status, &head.fields) {
                Some(refused) => Err((Refusal::AuthRefused, Some(refused))),
                None => Err((Refusal::AuthFailed, None)),
            },
        }
    }

    /// The request to the service.
    fn question(
        &self,
        auth: &Auth,
        group: &upstream::group::Group,
    ) -> Result<upstream::Request, Refusal> {
        let uri = self.uri()?;
        let target = Target::Origin { path_and_query: auth.path.as_bytes() };
        let (method, host) = ((Method::Get, &b"GET"[..]), group.host(uri.authority));
        let mut message = upstream::Request::new(self.worker.io.buffer(), method, &target, host);
        let (out, fields) = (message.lines(), self.fields());
        let mut add = |name: &str, value: &[u8]| {
            // All of these were parsed from a head, or are made of digits.
            let _ = write::field(out, name.as_bytes(), value);
        };
        let chain = self.chain();
        // A stranger names no client to the service either.
        for name in auth.fields.iter().filter(|name| chain.keeps(name.as_bytes())) {
            fields.values(name.as_bytes()).for_each(|value| add(name, value));
        }
        add("X-Forwarded-For", self.peer.ip().to_canonical().to_string().as_bytes());
        add("X-Forwarded-Proto", uri.realm.scheme.name().as_bytes());
        add("X-Forwarded-Host", uri.authority);
        if auth.with_url {
            add("X-Forwarded-Method", self.method_bytes());
            add("X-Forwarded-Uri", &uri.reading().origin_form());
        }
        self.snapshot.via.append_to_request(message.lines(), self.version());
        message.end(BodyLength::None);
        Ok(message)
    }
}

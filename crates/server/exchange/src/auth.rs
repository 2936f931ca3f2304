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
use policy::auth::{Allowed, Refused, allowed, life};
use runtime::time;
use upstream::{BodyLength, To};

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
        let of_group = [b"auth", group.config.name.as_bytes(), message.bytes()];
        let key = worker.cache.hasher.key(&of_group).to_u128();
        if let Some(allowed) = worker.shared.allowed.get(key) {
            return Ok(allowed);
        }
        let timeouts = Timeouts { total: Some(auth.timeout), ..Timeouts::default() };
        let timeouts = timeouts.or(group.config.timeouts);
        let to = To::Group(Arc::clone(group), 0, None, Some(Arc::new(timeouts)));
        let mut interim = |_: &ResponseHead<'_>| {};
        let asked = upstream::exchange(&worker.upstreams, &to, &message, &mut interim);
        let answer = match time::timeout(auth.timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(fault)) => return Err((Refusal::Fault(fault), None)),
            Err(_) => return Err((Refusal::Fault(Fault::Timeout), None)),
        };
        let (head, mut body) = (answer.head, answer.body);
        let head = head.head();
        // A response that is read to its end leaves the connection for the next request.
        let mut bytes = 0;
        let reading = async {
            while bytes <= AUTH_BODY_BYTES_MAX {
                let pulled = body.pull(&worker.upstreams, &mut |data| bytes += data.len()).await;
                if !matches!(pulled, Ok(false)) {
                    break;
                }
            }
        };
        let _ = time::timeout(auth.timeout, reading).await;
        match head.status {
            200..=299 => {
                let allowed =
                    Arc::new(allowed(auth, &head.fields).ok_or((Refusal::AuthFailed, None))?);
                if let Some(life) = life(&head.fields) {
                    worker.shared.allowed.add(key, life, &allowed);
                }
                Ok(allowed)
            }
            status @ (301 | 302 | 303 | 307 | 308 | 401 | 403) => {
                let mut lines = Vec::new();
                for name in ["WWW-Authenticate", "Location", "Set-Cookie"] {
                    for value in head.fields.values(name.as_bytes()) {
                        // It was parsed from a head.
                        let _ = write::field(&mut lines, name.as_bytes(), value);
                    }
                }
                Err((Refusal::AuthRefused, Some(Refused { status, lines })))
            }
            _ => Err((Refusal::AuthFailed, None)),
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
        for name in &auth.fields {
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

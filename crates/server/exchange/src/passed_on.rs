//! Responses that are not stored, coded while they pass: whether, and the loop that does it.

use std::pin::{Pin, pin};
use std::rc::Rc;

use caching::{CacheControl, FieldSource, range};
use coding::Rules;
use coding::fields::fits_form;
use config::Role;
use http1::{Name, ResponseHead};
use runtime::Either;
use upstream::{BodyLength, UpstreamBody};

use crate::Exchange;
use crate::client::Client;
use crate::coded::accepted;
use crate::passed::{Asked, Coder, Passed};
use crate::request::Request;
use crate::serve::trailers_to_client;
use crate::step::Cut;

impl Request {
    /// The rules by which responses to this request are coded while they pass, if they are.
    #[inline]
    pub(crate) fn codes_passed(&self) -> Option<&Rules> {
        let rules = self.snapshot.config.compression.as_ref()?;
        self.is_coded_in_passing(rules).then_some(rules)
    }

    fn is_coded_in_passing(&self, rules: &Rules) -> bool {
        let route = self.chosen.and_then(|chosen| chosen.at);
        let route = route.and_then(|at| self.snapshot.routes.get(at));
        let of_route = route.and_then(|route| route.config.compress_passed);
        of_route.unwrap_or(rules.passed)
            && self.role() == Role::Reverse
            // Another member of the cluster gives the response to its client.
            && !self.listener.cluster
            && !self.fields().contains_token(Name::CacheControl, b"no-transform")
            && self.codes()
    }

    /// Whether the request names the response with these fields, or the response that they are a
    /// part of, only by its date, while the client may have the beginning in another coding.
    pub(crate) fn may_mix_codings(&self, fields: &impl FieldSource) -> bool {
        // A response that may not be stored is coded only while it passes.
        let may_be_stored = || {
            let directives = CacheControl::of(fields);
            !directives.no_store && !directives.private.is_whole()
        };
        let may_be_coded = |rules: &Rules| {
            rules.ranked(accepted(&self.fields()))[0].is_some()
                && rules.may_code_whole(fields)
                && (self.is_coded_in_passing(rules) || may_be_stored())
        };
        range::is_by_date(&self.wire()) && self.rules().is_some_and(may_be_coded)
    }

    /// What becomes of a response that passes, and its encoder.
    #[cold]
    pub(crate) fn passed(
        &self,
        of: (&ResponseHead<'_>, BodyLength),
        rules: &Rules,
    ) -> Option<(Passed, Option<Box<Coder>>)> {
        let fields = self.fields();
        let asked = Asked { method: self.method(), fields, accept: accepted(&fields) };
        let cache = &self.worker.cache;
        let mut coder = None;
        let passed = Passed::of(rules, &asked, of, |level| {
            coder = Coder::new(cache, level, rules.passed_max).map(Box::new);
            coder.is_some()
        })?;
        Some((passed, coder))
    }
}

impl<C: Client> Exchange<'_, C> {
    /// Passes a body on to its end, coded. A read that is coded goes out before the next one.
    #[cold]
    pub(crate) async fn relay_coded(
        &mut self,
        body: &mut UpstreamBody,
        coder: Box<Coder>,
        mut ends: Pin<&mut impl Future<Output = Cut>>,
    ) -> Result<(), Cut> {
        let upstreams = Rc::clone(&self.request.worker.upstreams);
        // If the body breaks off, another server may have the rest of it.
        let coder = self.coder.insert(coder);
        let mut pulled =
            body.take_ready(&upstreams, &mut |data| coder.read.extend_from_slice(data));
        loop {
            let is_complete = pulled.map_err(Cut::Upstream)?;
            let Some(coder) = &mut self.coder else { return Err(Cut::Client) };
            let coded = coder.code(is_complete).await.map_err(Cut::Upstream)?;
            match self.is_paced() {
                true => Box::pin(self.send_held(&[&coded])).await?,
                false => {
                    self.client.offer(&coded);
                    self.client.flush().await?;
                }
            }
            if is_complete {
                break;
            }
            let Some(coder) = &mut self.coder else { return Err(Cut::Client) };
            let mut keep = |data: &[u8]| coder.read.extend_from_slice(data);
            let pull = pin!(body.pull(&upstreams, &mut keep));
            pulled = match runtime::race(ends.as_mut(), pull).await {
                // A silent upstream is not kept for a client that is gone.
                Either::Left(cut) => return Err(cut),
                Either::Right(pulled) => pulled,
            };
        }
        self.coder = None;
        if let Some(lines) = trailers_to_client(&self.request, body, fits_form) {
            self.client.trailers(&lines);
        }
        Ok(self.client.finish().await?)
    }
}

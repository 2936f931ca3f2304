//! What clients of reverse listeners get in place of errors: pages that the configuration names.

use std::net::SocketAddr;

use caching::FieldSource;
use config::{ErrorPage, Role};
use outcome::Outcome;
use policy::error_pages::{Answered, answered, keep};

use crate::Exchange;
use crate::client::{Client, Own};
use crate::request::Request;
use crate::step::{Ending, Summary};

impl Request {
    /// The page for an error with this status: of its route, or else of the server. `intercepts`:
    /// the error is that of an upstream.
    fn error_page(&self, status: u16, intercepts: bool) -> Option<&ErrorPage> {
        // Another member of the cluster reads the error, and its client gets the page there.
        if self.role() != Role::Reverse || self.listener.cluster {
            return None;
        }
        let at = self.chosen.and_then(|chosen| chosen.at).or_else(|| self.refused_at());
        let route = at.and_then(|at| self.snapshot.routes.get(at));
        let of_route = route.map_or(&[][..], |route| &route.config.error_pages);
        let all = of_route.iter().chain(&self.snapshot.config.error_pages);
        let mut fitting = all.filter(|page| page.intercept || !intercepts);
        fitting.find(|page| page.statuses.contains(&status))
    }

    /// What is sent in place of our own error with this status.
    pub(crate) fn own_page(&self, status: u16) -> Option<Answered> {
        self.error_page(status, false).map(|page| answered(page, status, &self.id_text()))
    }
}

impl<C: Client> Exchange<'_, C> {
    /// Sends the page for an upstream's error with this status and these fields, if it has one.
    pub(crate) async fn intercept(
        &mut self,
        status: u16,
        fields: &impl FieldSource,
        (outcome, upstream): (Outcome, Option<SocketAddr>),
    ) -> Option<Ending> {
        let page = self.request.error_page(status, true)?;
        let Answered { status, mut lines, text } = answered(page, status, &self.request.id_text());
        keep(&mut lines, fields);
        let own = Own {
            status,
            lines: &lines,
            content_length: Some(text.len() as u64),
            more_lines: b"Cache-Control: no-store\r\n",
        };
        match self.answer_after_body(own, &text, outcome).await {
            Ending::Complete(summary) => Some(Ending::Complete(Summary { upstream, ..summary })),
            other => Some(other),
        }
    }

    /// Whether a response with this status may have a page.
    #[inline]
    pub(crate) fn may_intercept(&self, status: u16) -> bool {
        status >= 400 && self.request.snapshot.routes.intercepts()
    }
}

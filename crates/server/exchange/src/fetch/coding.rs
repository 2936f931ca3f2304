//! What coded forms change in a fetch: the request to the origin, and the head that is stored.

use cache::stored::{Head, Wire};
use coding::Rules;
use coding::rules::Source;
use config::Role;
use http1::Method;

use super::{Forwarding, Purpose};

impl Forwarding<'_> {
    fn rules(&self) -> Option<&Rules> {
        let rules = self.snapshot.config.compression.as_ref()?;
        let is_coded = self.role == Role::Reverse
            && self.route().is_some_and(|route| route.config.compression);
        is_coded.then_some(rules)
    }

    /// Whether the origin is asked for the response without coding, whatever the client accepts:
    /// the store makes the coded forms. `HEAD` describes the response that a GET would get.
    pub(super) fn asks_for_identity(&self, purpose: Purpose<'_>) -> bool {
        let of_store = match purpose {
            Purpose::Store(_) | Purpose::Rest { for_store: true, .. } => true,
            Purpose::Pass(_) => self.head.method == Method::Head,
            Purpose::Upgrade(_) | Purpose::Rest { .. } => false,
        };
        of_store && self.rules().is_some()
    }

    /// A head that is about to be stored, with what several forms need if there may be some.
    pub(super) fn with_forms(&self, head: Head, bytes: Option<u64>) -> Head {
        let Some(rules) = self.rules() else { return head };
        // A part has the length of the part.
        let bytes = if head.part.is_some() { None } else { bytes };
        match rules.source(head.status, &head, bytes) {
            Some(source) => head.in_several_forms(source, &Wire(self.head.fields)),
            None => head,
        }
    }

    /// The new head of a stored response of which there may be several forms. How its body is coded
    /// does not change with its fields, nor with the configuration: who cannot read it must not get
    /// it, even if it must not be decoded any more. What is not coded loses its forms if the new
    /// fields forbid them.
    pub(super) fn still_with_forms(&self, head: Head, source: Source) -> Head {
        let wire = Wire(self.head.fields);
        match self.rules().map(|rules| rules.source(head.status, &head, None)) {
            Some(None) if source == Source::Identity => head.not_by_coding(&wire),
            Some(_) | None => head.in_several_forms(source, &wire),
        }
    }
}

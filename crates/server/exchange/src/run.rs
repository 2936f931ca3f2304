//! The state machine of an exchange: the one place that branches.
//!
//! ```text
//!   route --> Purge | AnswerByRoute | AnswerWithDigest | Refuse -----> End
//!     |-----> Connect | Upgrade -----------------------------(tunnel)-> End
//!     |-----> Pass --> Stream | Serve ---------------------------------> End
//!     '-----> LookUp <------------------------------------------.
//!               |--> Pass | Refuse                              |
//!               |--> ServeStored --(revalidates)--> Serve       |
//!               |--> ValidateByHead --> Serve | Relay           |
//!               '--> Fetch                                      |
//!                      |--> Follow --> Stream | Serve           |
//!                      |       '-- not for this request --------+
//!                      '--> Lead ----> Stream | Serve | Relay   |
//!                              '-----> Pass                     |
//!                                                               |
//!   Stream | Relay ------------------------------------> End    |
//!     |-- a refresh broke off --> Serve (stale)                 |
//!     '-- the client cannot read its coding --> Serve | Pass    |
//!   Serve ---------------------------------------------> End    |
//!     |-- it cannot be decoded for the client ---------> Pass   |
//!     |-- the body on the disk broke off --> Repair ---> End    |
//!     '-- the body on the disk is gone -------------------------'
//! ```
//!
//! Any step may end in a refusal, as long as the exchange has sent nothing.

use cache::Look;
use cache::disk::swap_in::swap_in;
use cache::stored::Wire;
use caching::cache_status::Forward;
use outcome::Refusal;
use policy::quota::Stage;

use crate::client::Client;
use crate::destination::Destination;
use crate::fetch::pass::{self, Passed};
use crate::fetch::{flight, member};
use crate::limits::BODIES_LOST_MAX;
use crate::routing::Place;
use crate::step::{Ending, FromStore, Held, Provenance, Serving, Step};
use crate::{Exchange, connect, own_answers, upgrade};

/// How often a request looks into the store again after another request's fetch could not answer
/// it.
const LOOKS_MAX: usize = 4;

/// How often a request has looked into the store.
#[derive(Default)]
struct Tries {
    looks: usize,
    bodies_lost: usize,
    /// The request waits for no other request's fetch.
    alone: bool,
}

impl<'x, C: Client> Exchange<'x, C> {
    /// Serves the request to its end.
    pub async fn serve_request(mut self, body: &mut C::Body) -> Ending {
        if self.context.listener.cluster
            && let Some(ending) = Box::pin(own_answers::answer_call(&mut self, body)).await
        {
            return ending;
        }
        let place = Place::new();
        let ending = match self.run(&place, body).await {
            Ok(ending) => ending,
            Err(refusal) => self.refuse(refusal).await,
        };
        if let Some(to) = place.get() {
            self.hierarchy = to.hierarchy();
        }
        self.log(&ending, body);
        ending
    }

    /// Takes step after step.
    ///
    /// A future is as large as its largest step, and it is copied when it begins. So steps that are
    /// larger than passing a request on are put on the heap.
    async fn run<'d>(
        &mut self,
        place: &'d Place<'x>,
        body: &mut C::Body,
    ) -> Result<Ending, Refusal> {
        let mut tries = Tries::default();
        if self.is_taken_at(Stage::Head) {
            Box::pin(self.take(Stage::Head)).await?;
        }
        let class = self.context.admitted(&mut self.routed).await?;
        if self.is_taken_at(Stage::User) {
            Box::pin(self.take(Stage::User)).await?;
        }
        let mut step = self.context.route(class, place, &mut self.routed).await?;
        loop {
            if step.needs_upstream() {
                // First, so that no request pays with its quota for a 503.
                self.shed()?;
                if self.is_taken_at(Stage::Fetch) {
                    Box::pin(self.take(Stage::Fetch)).await?;
                }
            }
            if self.context.snapshot.cluster.is_some() && member::may_take(&step) {
                step = Box::pin(member::passed_on(self, step)).await;
            }
            step = match step {
                Step::Purge => return own_answers::purge(self).await,
                Step::AnswerByRoute(action) => {
                    return Ok(own_answers::answer_by_route(self, &action).await);
                }
                Step::AnswerWithDigest(made) => {
                    return Ok(Box::pin(own_answers::answer_with_digest(self, &made)).await);
                }
                Step::Refuse(refusal) => return Err(refusal),
                Step::Connect => {
                    return Box::pin(connect::connect(self, body)).await;
                }
                Step::Upgrade(to, protocols) => {
                    return Box::pin(upgrade::upgrade(self, to, &protocols, body)).await;
                }
                Step::Pass(to, _, Some(of)) if self.context.snapshot.cluster.is_some() => {
                    Step::Fetch(to, of.ask())
                }
                Step::Pass(to, why, unshared) => {
                    match pass::pass(self, to, why, body, &unshared).await? {
                        Passed::Ended(ending) => return Ok(ending),
                        Passed::Stored(next) => *next,
                    }
                }
                Step::LookUp(to) if tries.looks == LOOKS_MAX => Step::Pass(to, Forward::Miss, None),
                Step::LookUp(to) => {
                    tries.looks += 1;
                    // The same fetch would be found a third time.
                    tries.alone |= tries.looks > 2;
                    self.look_up(to).await
                }
                Step::LookUpAlone(to) => {
                    tries.alone = true;
                    Step::LookUp(to)
                }
                Step::LookUpAgain(to) if tries.bodies_lost == BODIES_LOST_MAX => {
                    Step::Pass(to, Forward::Miss, None)
                }
                Step::LookUpAgain(to) => {
                    tries = Tries { bodies_lost: tries.bodies_lost + 1, ..Tries::default() };
                    Step::LookUp(to)
                }
                Step::ServeStored(to, from) => self.serve_stored(to, from),
                Step::ValidateByHead(to, of) => Box::pin(self.validate_by_head(to, of)).await?,
                Step::Fetch(to, ask) => match tries.alone || ask.is_for_one() {
                    true => self.fetch_alone(to, ask),
                    false => self.fetch_together(to, ask),
                },
                Step::Follow(to, ask, reader) => {
                    runtime::boxed(self.follow(to, ask, reader)).await?
                }
                Step::Lead { to, ask, lead, is_shared } => {
                    runtime::boxed(self.lead(to, ask, lead, is_shared)).await?
                }
                Step::Serve(to, serving) => self.serve(to, serving).await,
                Step::Stream(to, streaming) if streaming.refreshes.is_some() => {
                    runtime::boxed(self.hold_back(to, streaming)).await?
                }
                Step::Stream(to, streaming) if streaming.head.source().is_some() => {
                    runtime::boxed(self.stream_in_form(to, streaming)).await?
                }
                Step::Stream(to, streaming) => return Ok(self.stream(to, *streaming).await),
                Step::Relay(mut answer, why, rule) => {
                    return Ok(match place.get().filter(|to| to.is_from_member()) {
                        None => self.relay(&mut answer, why, rule).await,
                        Some(to) => {
                            Box::pin(self.relay_from_member(to, &mut answer, why, rule)).await
                        }
                    });
                }
                Step::Repair(to, torn) => {
                    return Ok(Box::pin(self.repair(to, torn)).await);
                }
                Step::End(ending) => return Ok(ending),
            }
        }
    }

    /// Looks into the store, after an entry that memory lacks has been read from the disk.
    async fn look_up<'d>(&mut self, to: &'d Destination<'d>) -> Step<'d> {
        let cache = &self.context.worker.cache;
        let uri = cache.uri_key(to.uri());
        self.began = cache.purges.now();
        if cache.disk().is_some() {
            let wire = Wire(self.context.head.fields);
            let parts = self.context.key_parts(self.routed.route);
            self.swapped_in = Box::pin(swap_in(cache, uri, parts, &wire)).await;
        }
        self.planner().plan(to, uri, Look::Use).0
    }

    /// Counts the use of a stored response, and begins to revalidate it.
    fn serve_stored<'d>(&mut self, to: &'d Destination<'d>, from: FromStore) -> Step<'d> {
        let FromStore { key, held, cache_status, revalidate } = from;
        if let Held::Whole(stored) = &held {
            self.context.worker.sizing.hit(key, stored);
        }
        if let Some(ask) = revalidate
            && self.shed().is_ok()
        {
            flight::revalidate(self, to, *ask);
        }
        Step::Serve(to, Serving { held, provenance: Provenance::stored(cache_status) })
    }
}

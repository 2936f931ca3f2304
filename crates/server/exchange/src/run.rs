//! The state machine of an exchange: the one place that branches.
//!
//! ```text
//!   route --> Purge | AnswerByRoute | AnswerWithDigest | Refuse -----> End
//!     |-----> LookForFile --(none)--> any of these
//!     |             '-----------------------------------------------------> End
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

use cache::disk::swap_in::swap_in;
use caching::cache_status::Forward;
use http1::Target;
use outcome::Refusal;
use policy::quota::Stage;
use store::Key;

use crate::client::Client;
use crate::fetch::pass::{self, Passed};
use crate::fetch::{flight, owner};
use crate::limits::BODIES_LOST_MAX;
use crate::request::Class;
use crate::step::{Ending, FromStore, Held, Provenance, Serving, Step};
use crate::{Exchange, connect, from_files, own_answers, unless_left, upgrade};

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

impl<C: Client> Exchange<'_, C> {
    /// Serves the request to its end.
    ///
    /// The exchange stays where it is, because it is large.
    pub async fn serve_request(&mut self, body: &mut C::Body) -> Ending {
        if self.request.listener.cluster
            && let Some(ending) = Box::pin(own_answers::answer_call(self, body)).await
        {
            return ending;
        }
        // Before rules and routes: no redirect, no password and no maintenance keeps a certificate
        // from being renewed. Only a token that we wait for has an answer.
        let answer = match self.request.target() {
            Target::Origin { path_and_query } | Target::Absolute { path_and_query, .. } => {
                self.request.worker.shared.issued.http_answer(path_and_query)
            }
            _ => None,
        };
        let ending = match answer {
            Some(content) => Box::pin(own_answers::answer_check(self, &content)).await,
            None => match self.run(body).await {
                Ok(ending) => ending,
                Err(refusal) => self.refuse(refusal).await,
            },
        };
        if let Some(to) = &self.request.destination {
            self.hierarchy = to.hierarchy();
        }
        self.log(&ending, body);
        ending
    }

    /// Takes step after step.
    ///
    /// A future is as large as its largest step, and it is copied when it begins. So steps that are
    /// larger than passing a request on are put on the heap.
    async fn run(&mut self, body: &mut C::Body) -> Result<Ending, Refusal> {
        let mut tries = Tries::default();
        if self.is_taken_at(Stage::Head) {
            Box::pin(self.take(Stage::Head)).await?;
        }
        let class = self.request.admitted(&self.connection).await?;
        if self.is_taken_at(Stage::User) {
            Box::pin(self.take(Stage::User)).await?;
        }
        let routes = &self.request.snapshot.routes;
        let step = match routes.has_guards() && !routes.finish_abandoned() {
            true => Box::pin(self.guarded(class)).await,
            false => self.request.route(class, &self.connection).await,
        };
        let mut step = self.request.after_files(step)?;
        self.request.limit_body(body)?;
        if !matches!(step, Step::LookForFile(_)) {
            self.request.mirror();
        }
        loop {
            debug_assert!(tries.looks <= LOOKS_MAX && tries.bodies_lost <= BODIES_LOST_MAX);
            if step.needs_upstream() {
                // First, so that no request pays with its quota for a 503.
                self.shed()?;
                if self.is_taken_at(Stage::Fetch) {
                    Box::pin(self.take(Stage::Fetch)).await?;
                }
            }
            if self.request.snapshot.cluster.is_some() && owner::may_take(&self.request, &step) {
                step = Box::pin(owner::passed_on(self, step)).await;
            }
            step = match step {
                Step::Purge => return Box::pin(own_answers::purge(self)).await,
                Step::AnswerByRoute(action) => {
                    return Ok(Box::pin(own_answers::answer_by_route(self, &action)).await);
                }
                Step::LookForFile(otherwise) => {
                    match Box::pin(from_files::answer_with_file(self)).await? {
                        Some(ending) => return Ok(ending),
                        None => {
                            if !matches!(*otherwise, Step::Refuse(_)) {
                                self.request.mirror();
                            }
                            *otherwise
                        }
                    }
                }
                Step::AnswerWithDigest(made) => {
                    return Ok(Box::pin(own_answers::answer_with_digest(self, &made)).await);
                }
                Step::Refuse(refusal) => return Err(refusal),
                Step::Connect => {
                    return Box::pin(connect::connect(self, body)).await;
                }
                Step::Upgrade(protocols) => {
                    return Box::pin(upgrade::upgrade(self, &protocols, body)).await;
                }
                Step::Pass(_, Some(of)) if self.request.snapshot.cluster.is_some() => {
                    (_, self.began) = of.before;
                    Step::Fetch(Box::new(of.ask()))
                }
                Step::Pass(why, unshared) => match pass::pass(self, why, body, &unshared).await? {
                    Passed::Ended(ending) => return Ok(ending),
                    Passed::Stored(next) => *next,
                },
                Step::LookUp if tries.looks == LOOKS_MAX => Step::Pass(Forward::Miss, None),
                Step::LookUp => {
                    tries.looks += 1;
                    // The same fetch would be found a third time.
                    tries.alone |= tries.looks > 2;
                    let uri = self.request.uri_key();
                    self.began = self.request.worker.cache.purges.now();
                    if self.request.worker.cache.disk().is_some() {
                        Box::pin(self.swap_in(uri)).await;
                    }
                    self.request.plan(uri).0
                }
                Step::LookUpAlone => {
                    tries.alone = true;
                    Step::LookUp
                }
                Step::LookUpAgain if tries.bodies_lost == BODIES_LOST_MAX => {
                    Step::Pass(Forward::Miss, None)
                }
                Step::LookUpAgain => {
                    tries = Tries { bodies_lost: tries.bodies_lost + 1, ..Tries::default() };
                    Step::LookUp
                }
                Step::ServeStored(from) => self.serve(&self.use_stored(*from)).await,
                Step::ValidateByHead(of) => Box::pin(self.validate_by_head(*of)).await?,
                Step::Fetch(ask) => match tries.alone || ask.is_for_one() {
                    true => self.fetch_alone(ask),
                    false => self.fetch_together(ask),
                },
                Step::Follow(ask, reader) => runtime::boxed(self.follow(ask, reader)).await?,
                Step::Lead { fetch, is_shared } => {
                    runtime::boxed(self.lead(fetch, is_shared)).await?
                }
                Step::Serve(serving) => self.serve(&serving).await,
                Step::Stream(streaming) if streaming.refreshes.is_some() => {
                    runtime::boxed(self.hold_back(streaming)).await?
                }
                Step::Stream(streaming) if streaming.head.source().is_some() => {
                    runtime::boxed(self.stream_in_form(streaming)).await?
                }
                Step::Stream(streaming) => return Ok(self.stream(*streaming).await),
                Step::Relay(mut answer, why, rule) => {
                    return Ok(match self.request.to().is_from_member() {
                        false => self.relay(&mut answer, why, rule).await,
                        true => Box::pin(self.relay_from_member(&mut answer, why, rule)).await,
                    });
                }
                Step::Repair(torn) => {
                    return Ok(Box::pin(self.repair(*torn)).await);
                }
                Step::End(ending) => return Ok(ending),
            }
        }
    }

    /// The first step. A guard may cost a request to a service, so it ends when the client leaves,
    /// unless the request may go on for its route, which is not known yet.
    async fn guarded(&mut self, class: Class) -> Result<Step, Refusal> {
        let Exchange { request, connection, client, .. } = self;
        if client.is_gone() {
            return Err(Refusal::Cancelled);
        }
        unless_left(client.gone(), request.route(class, connection)).await?
    }

    /// Reads the entry that memory lacks from the disk.
    async fn swap_in(&mut self, uri: Key) {
        let (request, cache) = (&self.request, &self.request.worker.cache);
        self.swapped_in = swap_in(cache, uri, request.key_parts(), &request.wire()).await;
    }

    /// Counts the use of a stored response, and begins to revalidate it.
    fn use_stored(&self, from: FromStore) -> Serving {
        let FromStore { key, held, cache_status, revalidate } = from;
        if let Held::Whole(stored) = &held {
            self.request.worker.sizing.hit(key, stored);
        }
        if let Some(ask) = revalidate
            && self.shed().is_ok()
        {
            flight::revalidate(self, ask);
        }
        Serving { held, provenance: Provenance::stored(cache_status) }
    }
}

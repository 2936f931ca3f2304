//! What an exchange does next, what it requests from the origin, and how it ends. The header of
//! `run.rs` has a drawing of the steps.
//!
//! [`Step`], [`Ending`] and [`Refusal`] are the only types by which an exchange branches. Two other
//! subjects have their own states: a flight and the requests that join it (`cache::flight`), and
//! the turn of a connection (`h1::connection`).

use std::net::SocketAddr;
use std::sync::Arc;

use cache::flight::{Lead, Reader};
use cache::partial::Partial;
use cache::stored::{Entry, Head, Stored};
use cache::watch::Stamp;
use caching::cache_status::Forward;
use caching::range::ByteRange;
use caching::{StoredMeta, Validators};
use config::Action;
use outcome::{Fault, Outcome, Refusal};
use store::{Generation, Key};
use upstream::Answer;

use crate::cache_status::CacheStatus;
use crate::client::Gone;
use crate::shared::Made;

/// What an exchange does next. One function carries out each step, and returns the next step.
///
/// Each step of each request is copied several times as it is passed on, so large parts are boxed.
pub(crate) enum Step {
    /// Purges the URL.
    Purge,
    /// Opens a tunnel to a host.
    Connect,
    /// Sends the answer that the route configures.
    AnswerByRoute(Box<Action>),
    /// Answers with a file of the route, or takes this step if there is none.
    LookForFile(Box<Step>),
    /// Answers with our cache digest.
    AnswerWithDigest(Arc<Made>),
    /// Answers with an error.
    Refuse(Refusal),
    /// Passes on a request to switch to one of these protocols.
    Upgrade(Vec<u8>),
    /// Passes the request on, for this reason. With an [`Unshared`], the response is stored if that
    /// is allowed and if the URI has not changed since the stamp; no other request waits for it.
    /// Without an [`Unshared`], nothing is stored.
    Pass(Forward, Option<Unshared>),
    /// Looks into the store.
    LookUp,
    /// Looks into the store again, because another request's fetch could not answer this request,
    /// and waits for no other fetch.
    LookUpAlone,
    /// Looks into the store again, because a stored body could not be read. Nothing has been sent.
    LookUpAgain,
    /// Answers from the store.
    ServeStored(Box<FromStore>),
    /// Passes a HEAD on, and updates the stored response by its answer.
    ValidateByHead(Box<Validated>),
    /// Fetches for the store, together with other requests for the same key.
    Fetch(Box<Ask>),
    /// Waits for another request's fetch.
    Follow(Box<Ask>, Reader),
    /// Asks the origin. `is_shared`: other requests may follow this fetch.
    Lead { fetch: Fetch, is_shared: bool },
    /// Sends a response that is complete.
    Serve(Box<Serving>),
    /// Sends a response while its body arrives.
    Stream(Box<Streaming>),
    /// Sends an upstream's response that is not stored, for this reason and by this rule.
    Relay(Box<Answer>, Forward, Option<&'static str>),
    /// Requests the remainder of a body that broke off from the origin.
    Repair(Box<Torn>),
    /// The exchange has ended.
    End(Ending),
}

/// The maximum size of a [`Step`].
const STEP_BYTES_MAX: usize = 96;

const _: () = assert!(size_of::<Step>() <= STEP_BYTES_MAX);

/// An answer from the store.
pub(crate) struct FromStore {
    pub(crate) key: Key,
    pub(crate) held: Held,
    pub(crate) cache_status: CacheStatus,
    /// The revalidation to send to the origin in the background.
    pub(crate) revalidate: Option<Box<Ask>>,
}

/// A stored response that a HEAD may confirm.
pub(crate) struct Validated {
    pub(crate) why: Forward,
    pub(crate) uri: Key,
    pub(crate) key: Key,
    pub(crate) stored: Arc<Stored>,
}

/// A complete response to send.
pub(crate) struct Serving {
    pub(crate) held: Held,
    pub(crate) provenance: Provenance,
}

/// A response to send while its body arrives.
pub(crate) struct Streaming {
    pub(crate) reader: Reader,
    pub(crate) head: Arc<Head>,
    pub(crate) provenance: Provenance,
    /// The request to the origin, if a stale response may be served should this response break off.
    pub(crate) refreshes: Option<Box<Ask>>,
}

/// Where a response came from.
pub(crate) struct Provenance {
    pub(crate) cache_status: CacheStatus,
    /// Whether the response has been in the store, so that it has an `Age` field.
    pub(crate) is_aged: bool,
    /// Field lines for this client alone.
    pub(crate) own_lines: Vec<u8>,
    pub(crate) upstream: Option<SocketAddr>,
}

impl Provenance {
    /// From the store.
    pub(crate) fn stored(cache_status: CacheStatus) -> Provenance {
        Provenance { cache_status, is_aged: true, own_lines: Vec::new(), upstream: None }
    }

    /// Just now from an upstream; `None` if another request fetched it.
    pub(crate) fn fetched(cache_status: CacheStatus, upstream: Option<SocketAddr>) -> Provenance {
        Provenance { is_aged: false, upstream, ..Provenance::stored(cache_status) }
    }
}

/// A body that broke off.
pub(crate) struct Torn {
    pub(crate) stored: Arc<Stored>,
    /// The ranges that are still to be sent.
    pub(crate) missing: ByteRange,
    pub(crate) summary: Summary,
}

/// Why a body was not passed on to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// The client has gone.
    Client,
    /// The upstream has failed.
    Upstream(Fault),
}

impl From<Gone> for Cut {
    fn from(Gone: Gone) -> Cut {
        Cut::Client
    }
}

/// What the log says of a response.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// The status that was sent.
    pub status: u16,
    /// The address of the upstream, if an upstream was asked.
    pub upstream: Option<SocketAddr>,
}

/// How an exchange ended. An exchange that has sent nothing may end in a [`Refusal`] instead, which
/// is then sent.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// The response was sent whole.
    Complete(Summary),
    /// The client has gone, or the response broke off: the client must not take the response for
    /// whole.
    BrokenOff(Summary),
    /// The client has left before anything of its response was sent.
    Left(Summary),
    /// The connection was a tunnel, which is closed.
    Tunnel(Summary),
    /// A tunnel was promised and then refused.
    TunnelRefused(Summary),
}

impl Ending {
    /// The ending after a response that was sent completely, or not.
    pub(crate) fn of(sent: Result<(), Gone>, summary: Summary) -> Ending {
        match sent {
            Ok(()) => Ending::Complete(summary),
            Err(Gone) => Ending::BrokenOff(summary),
        }
    }

    pub(crate) fn summary(&self) -> &Summary {
        match self {
            Ending::Complete(summary)
            | Ending::BrokenOff(summary)
            | Ending::Left(summary)
            | Ending::Tunnel(summary)
            | Ending::TunnelRefused(summary) => summary,
        }
    }
}

/// What the origin is asked for on behalf of the store, and why.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) uri: Key,
    pub(crate) key: Key,
    pub(crate) why: Forward,
    pub(crate) what: What,
    /// The stored response, if one is selected.
    pub(crate) held: Option<Held>,
    /// Stored responses to other requests, one of which the origin may confirm for this one.
    pub(crate) offered: Vec<Arc<Stored>>,
    /// Requests for the key do not wait for each other: an answer could not be stored.
    pub(crate) unshared: bool,
}

/// A fetch for the store: what the origin is asked for, on behalf of a flight. Its methods are in
/// `fetch/response.rs`; each takes the request that draws the answer.
pub(crate) struct Fetch {
    pub(crate) ask: Box<Ask>,
    pub(crate) lead: Lead,
}

/// The state of a URI and the purges, before a request is sent.
pub(crate) type Before = (Stamp, Generation);

/// A request that is passed on and waits for no other. Its answer is stored if it may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unshared {
    pub(crate) uri: Key,
    pub(crate) key: Key,
    pub(crate) why: Forward,
    pub(crate) before: Before,
}

impl Unshared {
    pub(crate) fn ask(self) -> Ask {
        Ask { unshared: true, ..Ask::of(self.uri, self.key, self.why, None) }
    }
}

/// How much the origin is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The whole; a stored response is validated.
    Whole,
    /// The range that the client asks for. `held`: it is stored, and is validated.
    Range { held: bool },
    /// What the stored parts miss.
    Rest(ByteRange),
}

/// A stored response, or parts of one.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Whole(Arc<Stored>),
    Part(Arc<Partial>),
}

impl Held {
    pub(crate) fn head(&self) -> &Head {
        match self {
            Held::Whole(stored) => &stored.head,
            Held::Part(partial) => &partial.head,
        }
    }

    pub(crate) fn whole(&self) -> Option<&Arc<Stored>> {
        match self {
            Held::Whole(stored) => Some(stored),
            Held::Part(_) => None,
        }
    }

    pub(crate) fn meta(&self) -> &StoredMeta {
        &self.head().meta
    }

    pub(crate) fn entry(&self) -> Entry {
        match self {
            Held::Whole(stored) => Entry::Response(Arc::clone(stored)),
            Held::Part(partial) => Entry::Part(Arc::clone(partial)),
        }
    }
}

impl Ask {
    /// For the whole response.
    pub(crate) fn of(uri: Key, key: Key, why: Forward, held: Option<Held>) -> Ask {
        Ask { uri, key, why, what: What::Whole, held, offered: Vec::new(), unshared: false }
    }

    /// Whether the answer probably serves one request only, so that no other gains by waiting for
    /// it.
    pub(crate) fn is_for_one(&self) -> bool {
        self.unshared || self.held.as_ref().is_some_and(|held| held.meta().is_never_fresh())
    }

    /// The stored response that would answer the request if it were not too old.
    pub(crate) fn stale(&self) -> Option<&Held> {
        self.held.as_ref().filter(|held| match held {
            Held::Whole(_) => true,
            Held::Part(_) => self.what == What::Range { held: true },
        })
    }

    /// Whether our request has conditions, so that the origin may answer with a 304.
    pub(crate) fn is_conditional(&self) -> bool {
        self.validated().is_some() || !self.offered.is_empty()
    }

    /// The validators that the origin is to confirm.
    pub(crate) fn validated(&self) -> Option<&Validators> {
        self.stale().map(|held| &held.meta().validators)
    }
}

//! Quotas at work: what a request takes from its quotas, how long the request waits, and how its
//! body is paced.
//!
//! A request is taken from its quotas in up to three stages ([`Stage`]): when its head is known,
//! when its user is known, and when it needs an upstream. First all quotas of a stage judge the
//! request. Then the request is taken from each of these quotas. So a request that one quota
//! refuses takes nothing from the other quotas. A request is taken from its quotas before it waits,
//! so waiting requests are served in the order of their arrival.
//!
//! A fresh hit is answered in the turn in which it was read if all its quotas admit it at once and
//! no quota paces bodies, counts requests in progress or adds fields. Any other fresh hit takes an
//! exchange, and the exchange asks the quotas again.
//!
//! What never happens: a body other than our digest is sent faster than its pools allow. While a
//! body waits, at most one read of the body, from the upstream or from the disk, is held, and this
//! read counts as held bytes. While clients hold too much, a new read has at most `PRESSED_BYTES`.

use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use conditions::Facts;
use config::limits::QUOTAS_MAX;
use http1::RequestHead;
use outcome::Refusal;
pub use policy::quota::Counted;
use policy::quota::figures::Judged;
use policy::quota::{Quota, Quotas, Stage, TooMany, Who, fields};
use policy::reading::Reading;
use runtime::{Either, time};
use upstream::UpstreamBody;

use crate::Exchange;
use crate::client::{Client, Gone};
use crate::facts::facts_of_head;
use crate::limits::{PACED_BYTES_MAX, PACED_BYTES_MIN, PACED_PIECES_PER_SECOND};
use crate::listener::ListenerContext;
use crate::request::{Request, requested_uri};
use crate::snapshot::Snapshot;
use crate::step::{Cut, Step};
use crate::unless_left;

/// Whether a fresh hit may be answered in its turn. It is then taken from its quotas.
#[inline]
pub fn admits_hit(
    snapshot: &Snapshot,
    listener: &ListenerContext,
    peer: IpAddr,
    head: &RequestHead<'_>,
) -> bool {
    match &snapshot.quotas {
        None => true,
        // The member that the client has asked has taken it.
        Some(quotas) if !quotas.has(Stage::Head) || listener.cluster => true,
        Some(quotas) => takes_hit(quotas, &who(snapshot, listener, peer, None, head)),
    }
}

#[inline(never)]
fn takes_hit(quotas: &Quotas, who: &Who<'_>) -> bool {
    let now_ns = time::now().as_ns();
    let takes =
        |(quota, key): (&Quota, u64)| quota.lets_hits_pass() && quota.take_at_once(key, now_ns);
    // With one quota, taking from it is judgement enough.
    if quotas.all().len() == 1 {
        return quotas.of(Stage::Head, who).all(takes);
    }
    let mut of = [None; QUOTAS_MAX];
    for (place, (quota, key)) in of.iter_mut().zip(quotas.of(Stage::Head, who)) {
        if !quota.lets_hits_pass() || quota.judge(key, now_ns) != Ok(Duration::ZERO) {
            return false;
        }
        *place = Some((quota, key));
    }
    of.into_iter().flatten().all(takes)
}

/// What quotas know a request by.
fn who<'w>(
    snapshot: &'w Snapshot,
    listener: &'w ListenerContext,
    peer: IpAddr,
    user: Option<&'w [u8]>,
    head: &'w RequestHead<'w>,
) -> Who<'w> {
    let url = (requested_uri(listener, head.target, head.fields), head.target);
    let (role, routes) = (listener.role, &*snapshot.routes);
    let facts = facts_of_head(listener, (head.method_bytes, head.fields), url);
    let facts = Facts { client: peer.to_canonical(), user, now_s: time::wall_ms() / 1000, ..facts };
    let authority = match facts.sent.authority {
        b"" => head.host().unwrap_or_default(),
        authority => authority,
    };
    let reading = Reading::of(authority, facts.sent.path_and_query);
    Who { peer, role, user, head, reading, routes, facts }
}

/// What a request has taken from its quotas.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// It has been taken from the quotas that count fetches.
    is_fetch: bool,
    /// The quotas with a key, by their index in the snapshot: those that pace its body ...
    pools: Vec<(usize, u64)>,
    /// ... and those that its response has fields about.
    shown: Vec<(usize, u64)>,
    /// It is in progress.
    counted: Vec<Counted>,
    /// Its pools have noted that it is delayed.
    is_delayed: bool,
    /// The quota that refused it, and when it may come again.
    refused: Option<(usize, Duration)>,
}

/// What the quotas of a stage would do with a request: nothing is taken.
pub(crate) fn judged(request: &Request, at: Stage) -> Vec<Judged> {
    let Some(quotas) = &request.snapshot.quotas else { return Vec::new() };
    let head = request.head();
    let who = who_sent(request, &head);
    quotas.of(at, &who).map(|(quota, key)| quota.judged(key)).collect()
}

/// The same for a request with its head.
fn who_sent<'w>(request: &'w Request, head: &'w RequestHead<'w>) -> Who<'w> {
    let Request { snapshot, listener, peer, user, .. } = request;
    who(snapshot, listener, peer.ip(), user.as_deref(), head)
}

/// Bytes that pools were charged for. The pools get them back unless they are sent: a client that
/// goes away must not be paid for by the others.
struct Charged<'c> {
    quotas: &'c Quotas,
    /// Those that were charged.
    pools: &'c [(usize, u64)],
    bytes: u64,
}

impl<'c> Charged<'c> {
    /// Charges all pools. Returns how long to wait before the bytes are sent, and for which pool;
    /// `Err` is how long to wait before another try: nothing was charged.
    fn charge(
        &mut self,
        pools: &'c [(usize, u64)],
    ) -> Result<(Duration, usize), (Duration, usize)> {
        let now_ns = time::now().as_ns();
        let mut longest = (Duration::ZERO, 0);
        for (nth, (at, key)) in pools.iter().enumerate() {
            match self.quotas.all()[*at].charge(*key, self.bytes, now_ns) {
                Ok(wait) => longest = longest.max((wait, nth)),
                Err(wait) => {
                    self.refund();
                    return Err((wait, nth));
                }
            }
            self.pools = &pools[..=nth];
        }
        Ok(longest)
    }

    fn refund(&mut self) {
        let now_ns = time::now().as_ns();
        for (at, key) in std::mem::take(&mut self.pools) {
            self.quotas.all()[*at].refund(*key, self.bytes, now_ns);
        }
    }

    fn are_sent(mut self) {
        for (at, _) in std::mem::take(&mut self.pools) {
            self.quotas.all()[*at].count_sent(self.bytes);
        }
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        self.refund();
    }
}

impl Step {
    /// Whether it costs an upstream something.
    pub(crate) fn needs_upstream(&self) -> bool {
        matches!(
            self,
            Step::Connect
                | Step::Upgrade(..)
                | Step::Pass(..)
                | Step::ValidateByHead(..)
                | Step::Fetch(..)
        )
    }
}

/// Bytes of a body that are charged at once, so that the slowest pool can pay for them.
fn piece_bytes(quotas: &Quotas, pools: &[(usize, u64)]) -> usize {
    let of_pool = |(at, _): &(usize, u64)| quotas.all()[*at].config.bytes;
    let slowest = pools.iter().filter_map(of_pool).map(|rate| rate.per_second()).min();
    let piece_bytes = slowest.unwrap_or(u64::MAX) / PACED_PIECES_PER_SECOND;
    piece_bytes.clamp(PACED_BYTES_MIN, PACED_BYTES_MAX) as usize
}

impl<C: Client> Exchange<'_, C> {
    /// Whether a quota takes requests at this stage.
    #[inline]
    pub(crate) fn is_taken_at(&self, stage: Stage) -> bool {
        let quotas = self.request.snapshot.quotas.as_ref();
        quotas.is_some_and(|quotas| quotas.has(stage) && !self.request.listener.cluster)
    }

    /// Takes the request from the quotas of this stage, and waits if they say so.
    #[cold]
    pub(crate) async fn take(&mut self, stage: Stage) -> Result<(), Refusal> {
        let Some(quotas) = self.request.snapshot.quotas.clone() else { return Ok(()) };
        if stage == Stage::Fetch && std::mem::replace(&mut self.taken().is_fetch, true) {
            return Ok(());
        }
        let (wait, waiting) = self.take_now(&quotas, stage)?;
        self.show_quotas(&quotas);
        if !wait.is_zero() {
            let waits = self.wait_unless_gone(wait).await;
            drop(waiting);
            waits.map_err(|Gone| Refusal::Cancelled)?;
        }
        Ok(())
    }

    fn taken(&mut self) -> &mut Taken {
        self.taken.get_or_insert_default()
    }

    /// Takes the request, and returns how long it has to wait.
    fn take_now(
        &mut self,
        quotas: &Quotas,
        stage: Stage,
    ) -> Result<(Duration, Vec<Counted>), Refusal> {
        let now_ns = time::now().as_ns();
        let head = self.request.head();
        let who = who_sent(&self.request, &head);
        let taken = self.taken.get_or_insert_default();
        let at = |quota: &Quota| {
            quotas.all().iter().position(|other| std::ptr::eq(other, quota)).unwrap_or_default()
        };
        let of: Vec<(&Quota, u64)> = quotas.of(stage, &who).collect();
        let mut refuse = |quota: &Quota, key, after| {
            quota.refuse(key, &who);
            taken.refused = Some((at(quota), after));
            taken.shown = vec![(at(quota), key)];
            Refusal::Quota
        };
        // If one refuses, what was counted is dropped, and nothing was taken.
        let mut counted = Vec::new();
        for (quota, key) in &of {
            let one = quota.begin(*key).map_err(|TooMany| refuse(quota, *key, Duration::ZERO))?;
            counted.extend(one);
            quota.judge(*key, now_ns).map_err(|after| refuse(quota, *key, after))?;
        }
        let (mut wait, mut waiting) = (Duration::ZERO, Vec::new());
        for (quota, key) in &of {
            let after = quota.take(*key, now_ns).map_err(|after| refuse(quota, *key, after))?;
            if !after.is_zero() {
                waiting.extend(quota.wait(*key, &who));
                wait = wait.max(after);
            }
        }
        taken.counted.extend(counted);
        for (quota, key) in of {
            if quota.config.bytes.is_some() {
                taken.pools.push((at(quota), key));
            }
            if quota.config.fields {
                taken.shown.push((at(quota), key));
            }
        }
        Ok((wait, waiting))
    }

    /// The response has fields about these quotas.
    fn show_quotas(&mut self, quotas: &Quotas) {
        let Some(taken) = &self.taken else { return };
        if !taken.shown.is_empty() {
            let shown: Vec<(&Quota, u64)> =
                taken.shown.iter().map(|(at, key)| (&quotas.all()[*at], *key)).collect();
            let mut lines = Vec::new();
            fields::append(&mut lines, &shown, time::now().as_ns());
            self.client.set_lines(lines);
        }
    }

    /// The lines and the text of a refusal by a quota.
    #[cold]
    pub(crate) fn quota_refusal(&mut self, lines: &mut Vec<u8>) -> String {
        let Some(quotas) = self.request.snapshot.quotas.clone() else { return String::new() };
        self.show_quotas(&quotas);
        let refused = self.taken.as_ref().and_then(|taken| taken.refused);
        let Some((at, after)) = refused else { return String::new() };
        // A request in progress may end at any time.
        let seconds = fields::seconds(after).max(1);
        lines.extend_from_slice(format!("Retry-After: {seconds}\r\n").as_bytes());
        let (text, name) = (Refusal::Quota.text(), &quotas.all()[at].config.name);
        format!("{text} (the quota `{name}`)\n")
    }

    async fn wait_unless_gone(&mut self, wait: Duration) -> Result<(), Gone> {
        unless_left(self.left(), time::sleep(wait)).await.map_err(|_| Gone)
    }

    /// Whether a quota limits the bytes of the response.
    pub(crate) fn is_paced(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| !taken.pools.is_empty())
    }

    /// Sends content as slowly as the pools of the request say: piece after piece, each after the
    /// bytes of all before it were refilled.
    #[cold]
    pub(crate) async fn send_paced(&mut self, content: &[u8]) -> Result<(), Gone> {
        let Some(quotas) = self.request.snapshot.quotas.clone() else { return Ok(()) };
        let pools = self.taken.as_ref().map(|taken| taken.pools.clone()).unwrap_or_default();
        let piece_bytes = piece_bytes(&quotas, &pools);
        // The head does not wait for the first piece.
        self.client.flush().await?;
        for piece in content.chunks(piece_bytes) {
            let mut charged = Charged { quotas: &quotas, pools: &[], bytes: piece.len() as u64 };
            loop {
                let (wait, at) = match charged.charge(&pools) {
                    Ok((wait, _)) if wait.is_zero() => break,
                    Ok(waits) | Err(waits) => waits,
                };
                let (at, key) = pools[at];
                self.note_delay(&quotas.all()[at], key);
                self.wait_unless_gone(wait).await?;
                if charged.pools.len() == pools.len() {
                    break;
                }
            }
            charged.are_sent();
            self.client.offer(piece);
            self.client.flush().await?;
        }
        Ok(())
    }

    /// The pools that the bytes of a tunnel are charged to.
    pub(crate) fn pools_of_tunnel(&self) -> Vec<(usize, u64)> {
        let (Some(quotas), Some(taken)) = (&self.request.snapshot.quotas, &self.taken) else {
            return Vec::new();
        };
        let counts = |(at, _): &&(usize, u64)| quotas.all()[*at].config.tunnels;
        taken.pools.iter().filter(counts).copied().collect()
    }

    /// Charges some of the bytes that a tunnel has sent. Returns how many, and how long it waits.
    pub(crate) fn charge_tunnel(&self, pools: &[(usize, u64)], bytes: u64) -> (u64, Duration) {
        let Some(quotas) = &self.request.snapshot.quotas else { return (bytes, Duration::ZERO) };
        let bytes = bytes.min(piece_bytes(quotas, pools) as u64);
        let mut charged = Charged { quotas, pools: &[], bytes };
        match charged.charge(pools) {
            Ok((wait, _)) => {
                charged.are_sent();
                (bytes, wait)
            }
            Err((wait, _)) => (0, wait),
        }
    }

    /// [`Exchange::send_paced`] for content that is in memory for this response alone.
    pub(crate) async fn send_held(&mut self, content: &[&[u8]]) -> Result<(), Gone> {
        let io = Rc::clone(&self.request.worker.io);
        let _held = io.held(content.iter().map(|part| part.len()).sum());
        for part in content {
            self.send_paced(part).await?;
        }
        Ok(())
    }

    /// Notes once that the response waits for a pool.
    fn note_delay(&mut self, pool: &Quota, key: u64) {
        if !self.taken().is_delayed {
            pool.delay(key, &who_sent(&self.request, &self.request.head()));
            self.taken().is_delayed = true;
        }
    }

    /// Passes a body on as slowly as the pools of the request say, up to its trailers. The upstream
    /// waits meanwhile: no more than one read of it is held here.
    #[cold]
    pub(crate) async fn relay_paced(
        &mut self,
        body: &mut UpstreamBody,
        mut ends: Pin<&mut impl Future<Output = Cut>>,
    ) -> Result<(), Cut> {
        let upstreams = Rc::clone(&self.request.worker.upstreams);
        let mut read = Vec::new();
        let mut pulled = body.take_ready(&upstreams, &mut |data| read.extend_from_slice(data));
        loop {
            self.send_held(&[&read[..]]).await?;
            if pulled.map_err(Cut::Upstream)? {
                return Ok(());
            }
            read.clear();
            let mut keep = |data: &[u8]| read.extend_from_slice(data);
            let pull = std::pin::pin!(body.pull(&upstreams, &mut keep));
            pulled = match runtime::race(ends.as_mut(), pull).await {
                Either::Left(cut) => return Err(cut),
                Either::Right(pulled) => pulled,
            };
        }
    }
}

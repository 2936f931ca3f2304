//! Purges and changes that concern the other members of a cluster.
//!
//! ```text
//!   purged here --> first round: all members purge --> second round: all, this one too, once more
//!                        '-- one does not acknowledge --> not asked any more; sent again
//!                                                         until it does; then the others
//!                                                         purge once more
//! ```
//!
//! A member that had purged may have got the old response from one that had not. The second round
//! begins when all have purged, so that nothing old can be given any more, and removes such copies.
//!
//! A change by an unsafe method is spread once, to the members that work. What is lost is counted.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::changes::Notice;
use cache::realm::Realm;
use http1::{Method, ResponseHead, Target};
use runtime::time;
use serde::Serialize;
use store::Concerns;
use upstream::members::Member;
use upstream::{BodyLength, Request, To};

use crate::cluster::Cluster;
use crate::limits::{
    CHANGE_ACKNOWLEDGED_MAX, MEMBERS_ATTENDED, PURGE_ACKNOWLEDGED_MAX, PURGE_MESSAGE_BYTES,
};
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The path of purges at the listener for members.
pub(crate) const PURGE_PATH: &[u8] = b"/purge";

/// Which of the other members have purged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// They have, and will not serve the old response even after a crash.
    pub acknowledged: Vec<String>,
    /// They have not, as far as is known. It is sent to them again until they acknowledge it.
    pub waiting: Vec<String>,
}

impl Spread {
    /// 200 if all have purged, otherwise 202 (RFC 9110, 15.3.3).
    pub fn status(&self) -> u16 {
        if self.waiting.is_empty() { 200 } else { 202 }
    }
}

/// Has the other members purge what was purged here; `None` without a cluster. `notices` is from
/// [`Changes::notices`](cache::changes::Changes::notices).
pub async fn purge(worker: &Worker, snapshot: &Snapshot, notices: Vec<u8>) -> Option<Spread> {
    let cluster = snapshot.cluster.as_ref()?;
    let members = cluster.members();
    let others: Vec<&Member> = members.others().collect();
    let mut spread = Spread::default();
    let first = send(worker, &others, &notices).await;
    let mut second = vec![false; others.len()];
    if !planted::is(planted::Bug::PurgeOnce) {
        again(worker, &notices).await;
        let purged = others.iter().zip(&first).filter(|(_, done)| **done).map(|(one, _)| *one);
        let mut answers = send(worker, &purged.collect::<Vec<_>>(), &notices).await.into_iter();
        for (done, second) in first.iter().zip(&mut second) {
            *second = *done && answers.next().unwrap_or(false);
        }
    } else {
        second = first;
    }
    for (member, done) in others.iter().zip(second) {
        let name = member.address.to_string();
        if done {
            spread.acknowledged.push(name);
        } else {
            put_off(worker, cluster, member, &notices);
            spread.waiting.push(name);
        }
    }
    Some(spread)
}

fn put_off(worker: &Worker, cluster: &Cluster, member: &Member, notices: &[u8]) {
    tracing::warn!(member = %member.address, "a member has not acknowledged a purge");
    worker.io.counters.cluster_purges_waiting.add(1);
    let mut everything = Vec::new();
    Notice::of(Concerns::All, false).encode(&mut everything);
    cluster.put_off(member.address, notices, &everything);
}

/// Purges here once more.
async fn again(worker: &Worker, notices: &[u8]) {
    if let Some(changes) = worker.cache.apply_all(notices) {
        changes.durable(&worker.cache).await;
    }
}

/// Sends purges to these members at once. Returns which have acknowledged them.
async fn send(worker: &Worker, members: &[&Member], notices: &[u8]) -> Vec<bool> {
    let calls = members.iter().map(|member| {
        let target = Target::Origin { path_and_query: PURGE_PATH };
        let host = member.address.to_string();
        let method = (Method::Put, &b"PUT"[..]);
        let mut request = Request::new(worker.io.buffer(), method, &target, host.as_bytes());
        request.end(BodyLength::Known(notices.len() as u64));
        request.push_content(notices);
        (*member, request)
    });
    call(worker, calls.collect(), PURGE_ACKNOWLEDGED_MAX).await
}

/// Sends all of these requests at once. Returns which were answered with 200 in time.
async fn call(worker: &Worker, calls: Vec<(&Member, Request)>, limit: Duration) -> Vec<bool> {
    let one = |(member, request): (&Member, Request)| {
        let upstreams = Rc::clone(&worker.upstreams);
        let to = To::Group(member.group.clone(), 0, None);
        runtime::spawn(async move {
            let mut interim = |_: &ResponseHead<'_>| {};
            let asked = upstream::exchange(&upstreams, &to, &request, &mut interim);
            let Ok(Ok(mut answer)) = time::timeout(limit, asked).await else { return false };
            let status = answer.head.head().status;
            let _ = answer.body.take_ready(&upstreams, &mut |_| {});
            status == 200
        })
    };
    let running: Vec<_> = calls.into_iter().map(one).collect();
    let mut answers = Vec::with_capacity(running.len());
    for call in running {
        answers.push(call.await);
    }
    answers
}

/// Has the other members that work remove the responses of these URLs, which a client's request has
/// changed. What does not reach a member is counted, and not sent again.
pub(crate) async fn changed(
    worker: &Worker,
    snapshot: &Snapshot,
    (realm, authority): (Realm, &[u8]),
    paths: impl Iterator<Item = &[u8]> + Clone,
) {
    let Some(cluster) = &snapshot.cluster else { return };
    if authority.is_empty() {
        return;
    }
    let members = cluster.members();
    let of_member = |member| {
        paths.clone().filter(|path| path.starts_with(b"/")).map(move |path| {
            let target = Target::Origin { path_and_query: path };
            let method = (Method::Purge, &b"PURGE"[..]);
            let mut request = Request::new(worker.io.buffer(), method, &target, authority);
            request.end(BodyLength::None);
            let url = [realm.scheme.name().as_bytes(), b"://", authority, path].concat();
            (member, request.with_lines(worker.io.buffer(), Some(&url), b""))
        })
    };
    let calls = members.others().flat_map(of_member).collect();
    let answers = call(worker, calls, CHANGE_ACKNOWLEDGED_MAX).await;
    let lost = answers.iter().filter(|answer| !**answer).count();
    worker.io.counters.cluster_changes_lost.add(lost as u64);
}

/// Looks the members up by their name, and sends waiting purges again, for as long as it is polled.
pub async fn attend(worker: Rc<Worker>) {
    loop {
        time::sleep(MEMBERS_ATTENDED).await;
        let snapshot = worker.snapshot();
        let Some(cluster) = &snapshot.cluster else { continue };
        look_up(&worker, cluster).await;
        if cluster.is_any_behind() {
            for member in cluster.members().others() {
                catch_up(&worker, cluster, member).await;
            }
        }
    }
}

/// The resolver answers from its cache while the entry is valid. Old members are used until there
/// are new ones.
async fn look_up(worker: &Worker, cluster: &Arc<Cluster>) {
    let Some((host, port)) = &cluster.config.name else { return };
    let found = match worker.shared.resolver.resolve(host, *port).await {
        Ok(found) if !found.is_empty() => found,
        other => {
            tracing::debug!(host, ?other, "old members go on");
            return;
        }
    };
    let members = cluster.members();
    let is_known = |address| members.all().iter().any(|member| member.address == address);
    let is_same = found.iter().all(|address| is_known(*address))
        && members.all().iter().all(|member| found.contains(&member.address));
    // A reload may have come meanwhile.
    let snapshot = worker.snapshot();
    let is_in_force = snapshot.cluster.as_ref().is_some_and(|now| Arc::ptr_eq(now, cluster));
    if !is_same && is_in_force {
        tracing::info!(host, members = ?found, "the cluster has other members");
        cluster.set_members(&found, &worker.shared.upstreams);
    }
}

/// Sends a member the purges that it has not acknowledged. Before that, it may have given others
/// what it had not purged: so they purge once more.
async fn catch_up(worker: &Worker, cluster: &Cluster, member: &Member) {
    while member.group.is_usable() {
        let purges = cluster.oldest(member.address, PURGE_MESSAGE_BYTES);
        if purges.is_empty() {
            return;
        }
        let notices = purges.concat();
        if !send(worker, &[member], &notices).await.iter().all(|done| *done) {
            return;
        }
        cluster.acknowledged(member.address, &purges);
        tracing::info!(member = %member.address, "a member has acknowledged earlier purges");
        again(worker, &notices).await;
        let members = cluster.members();
        let rest: Vec<&Member> =
            members.others().filter(|one| one.address != member.address).collect();
        let answers = send(worker, &rest, &notices).await;
        for (other, _) in rest.iter().zip(answers).filter(|(_, done)| !done) {
            put_off(worker, cluster, other, &notices);
        }
    }
}

//! Purges and changes that concern the other members of a cluster.
//!
//! ```text
//!   purged here --> first round: all members purge --> second round: all, this one too, once more
//!                        '-- a member does not acknowledge --> no request is sent to this member;
//!                                                              the purge is sent again until the
//!                                                              member acknowledges it; then all
//!                                                              other members purge once more
//! ```
//!
//! A member that had purged may have got the old response from a member that had not purged yet.
//! The second round removes such copies. The second round begins when all members have purged, so
//! no member can give an old response any more.
//!
//! A change by an unsafe method is sent once to each member that is up. Changes that do not reach a
//! member are counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::purge_answer::{self, Spread};
use cache::realm::Realm;
use http1::{Method, ResponseHead, Target};
use runtime::{JoinHandle, time};
use upstream::members::{self, Member};
use upstream::{BodyLength, Choice, Request, To};

use crate::cluster::{CLIENT, Cluster, DONE, PURGED, has_for_hop};
use crate::limits::{
    CATCH_UP_PAUSE_MAX, CHANGE_ACKNOWLEDGED_MAX, MEMBERS_ATTENDED, PURGE_ACKNOWLEDGED_MAX,
    PURGE_MESSAGE_BYTES,
};
use crate::snapshot::Snapshot;
use crate::worker::Worker;
use cache::backlog::Batch;

/// The path of purges at the listener for members.
pub(crate) const PURGE_PATH: &[u8] = b"/purge";

/// Has the other members purge what was purged here; `None` without a cluster. `notices` is from
/// [`Changes::notices`](cache::changes::Changes::notices).
pub async fn purge(worker: &Worker, snapshot: &Snapshot, notices: Vec<u8>) -> Option<Spread> {
    let cluster = snapshot.cluster.as_ref()?;
    let members = cluster.members();
    cluster.change(|backlog| backlog.put_off_gone(&notices));
    let left = members.others().collect();
    let (waiting, counts) = (Vec::new(), BTreeMap::new());
    let mut rounds = Rounds { worker, cluster, notices: &notices, left, waiting, counts };
    rounds.next().await;
    if !planted::is(planted::Bug::PurgeOnce) {
        // Those that have not purged are not asked any more.
        again(worker, &notices).await;
        rounds.next().await;
        // One may have given us what it got from one that we do not ask.
        again(worker, &notices).await;
    }
    let name = |member: &Member| member.address.to_string();
    let acknowledged = std::mem::take(&mut rounds.left).into_iter().map(name).collect();
    let waiting = std::mem::take(&mut rounds.waiting);
    let responses = std::mem::take(&mut rounds.counts);
    Some(Spread { acknowledged, waiting, responses })
}

/// The rounds of one purge. If it is given up, it is sent later to those that are left.
struct Rounds<'p> {
    worker: &'p Worker,
    cluster: &'p Cluster,
    notices: &'p [u8],
    /// The members that have acknowledged it each time.
    left: Vec<&'p Member>,
    /// The names of the others.
    waiting: Vec<String>,
    /// What each has removed in all rounds, if it says so.
    counts: BTreeMap<String, u64>,
}

impl Rounds<'_> {
    async fn next(&mut self) {
        let answers = send(self.worker, &self.left, self.notices).await;
        for (member, answer) in self.left.iter().zip(&answers) {
            purge_answer::add(&mut self.counts, member.address.to_string(), answer.count);
        }
        let mut answers = answers.into_iter().map(|answer| answer.is_done);
        let (done, failed) = std::mem::take(&mut self.left)
            .into_iter()
            .partition(|_| answers.next().unwrap_or(false));
        self.left = done;
        for member in failed {
            put_off(self.worker, self.cluster, member, self.notices);
            self.waiting.push(member.address.to_string());
        }
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        for member in &self.left {
            put_off(self.worker, self.cluster, member, self.notices);
        }
    }
}

fn put_off(worker: &Worker, cluster: &Cluster, member: &Member, purge: &[u8]) {
    tracing::warn!(member = %member.address, "a member has not acknowledged a purge");
    worker.io.counters.cluster_purges_waiting.add(1);
    cluster.change(|backlog| backlog.put_off(member.address, purge));
}

/// Purges here once more.
async fn again(worker: &Worker, notices: &[u8]) {
    if let Some(changes) = worker.cache.apply_all(notices) {
        changes.durable(&worker.cache).await;
    }
}

/// Sends purges to these members at once. Returns which have acknowledged them.
async fn send(worker: &Worker, members: &[&Member], notices: &[u8]) -> Vec<Called> {
    let calls = members.iter().map(|member| {
        let target = Target::Origin { path_and_query: PURGE_PATH };
        let host = member.address.to_string();
        let method = (Method::Put, &b"PUT"[..]);
        let mut request = Request::new(worker.io.buffer(), method, &target, host.as_bytes());
        request.lines().extend_from_slice(&of_member());
        request.end(BodyLength::Known(notices.len() as u64));
        request.push_content(notices);
        (*member, request)
    });
    call(worker, calls.collect(), PURGE_ACKNOWLEDGED_MAX).await
}

/// The lines by which a member knows that a call is of another one. It is for no client.
fn of_member() -> Vec<u8> {
    format!("Connection: {CLIENT}\r\n{CLIENT}: none\r\n").into_bytes()
}

/// What a member has answered to a call.
#[derive(Clone, Copy, Default)]
struct Called {
    is_done: bool,
    /// The responses that it has removed.
    count: Option<u64>,
}

/// Sends all of these requests at once. Returns which members have said in time that they have done
/// it. That something else at their address says 200 means nothing.
async fn call(worker: &Worker, calls: Vec<(&Member, Request)>, limit: Duration) -> Vec<Called> {
    let one = |(member, request): (&Member, Request)| {
        let upstreams = Rc::clone(&worker.upstreams);
        let to = To::Group(member.group.clone(), Choice::default(), None, None);
        runtime::spawn(async move {
            let mut interim = |_: &ResponseHead<'_>| {};
            let asked = upstream::exchange(&upstreams, &to, &request, &mut interim);
            let Ok(Ok(mut answer)) = time::timeout(limit, asked).await else {
                return Called::default();
            };
            let head = answer.head.head();
            let is_done = head.status == 200 && has_for_hop(&head.fields, DONE);
            let count = head.fields.for_this_hop(PURGED.as_bytes()).last();
            let count = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
            let called = Called { is_done, count: count.filter(|_| is_done) };
            let _ = answer.body.take_ready(&upstreams, &mut |_| {});
            called
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
            request.lines().extend_from_slice(&of_member());
            request.end(BodyLength::None);
            let url = [realm.scheme.name().as_bytes(), b"://", authority, path].concat();
            (member, request.with_lines(worker.io.buffer(), Some(&url), b""))
        })
    };
    let calls = members.others().flat_map(of_member).collect();
    let answers = call(worker, calls, CHANGE_ACKNOWLEDGED_MAX).await;
    let lost = answers.iter().filter(|answer| !answer.is_done).count();
    worker.io.counters.cluster_changes_lost.add(lost as u64);
}

/// Looks the members up by their name, and sends waiting purges again, for as long as it is polled.
/// A member that does not answer holds up no other one.
pub async fn attend(worker: Rc<Worker>) {
    let mut running: Vec<(SocketAddr, JoinHandle<()>)> = Vec::new();
    loop {
        time::sleep(MEMBERS_ATTENDED).await;
        running.retain(|(_, task)| !task.is_finished());
        let snapshot = worker.snapshot();
        let Some(cluster) = &snapshot.cluster else { continue };
        if cluster.is_any_behind() {
            for member in cluster.members().others() {
                let to = member.address;
                let is_running = running.iter().any(|(address, _)| *address == to);
                if !is_running && cluster.waiting(to) != 0 {
                    let task = catch_up(Rc::clone(&worker), Arc::clone(cluster), to);
                    running.push((to, runtime::spawn(task)));
                }
            }
        }
        look_up(&worker, cluster).await;
    }
}

/// The resolver answers from its cache while the entry is valid. Old members are used until there
/// are new ones.
async fn look_up(worker: &Worker, cluster: &Arc<Cluster>) {
    let Some((host, port)) = &cluster.config.name else { return };
    let found = match worker.shared.resolver.resolve(host, *port).await {
        Ok(found) if !found.is_empty() => members::in_order(&found),
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
        worker.shared.own.set_members(&found);
    }
}

/// Sends a member the purges that it has not acknowledged. Before that, it may have given others
/// what it had not purged: so they purge once more, and then this one.
async fn catch_up(worker: Rc<Worker>, cluster: Arc<Cluster>, to: SocketAddr) {
    let members = cluster.members();
    let Some(member) = members.others().find(|one| one.address == to) else { return };
    let is_member = || cluster.members().others().any(|one| one.address == to);
    let mut pause = MEMBERS_ATTENDED;
    while member.group.is_usable() && is_member() {
        let Batch { purges, for_others, last } = cluster.oldest(to, PURGE_MESSAGE_BYTES);
        if purges.is_empty() {
            return;
        }
        if !send(&worker, &[member], &purges.concat()).await.iter().all(|answer| answer.is_done) {
            // It has purged, if it only cannot write that down: not each second.
            time::sleep(pause).await;
            pause = (2 * pause).min(CATCH_UP_PAUSE_MAX);
            continue;
        }
        cluster.change(|backlog| backlog.acknowledged(to, last));
        tracing::info!(member = %to, "a member has acknowledged earlier purges");
        if for_others.is_empty() {
            continue;
        }
        let members = cluster.members();
        let rest: Vec<&Member> = members.others().filter(|one| one.address != to).collect();
        let notices = for_others.concat();
        let answers = send(&worker, &rest, &notices).await;
        for (other, _) in rest.iter().zip(answers).filter(|(_, answer)| !answer.is_done) {
            for_others.iter().for_each(|purge| put_off(&worker, &cluster, other, purge));
        }
        again(&worker, &notices).await;
    }
}

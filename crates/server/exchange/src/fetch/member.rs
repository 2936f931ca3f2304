//! One request to another member of the cluster: how it is written, and whether its answer counts.
//!
//! Seen from outside, the cluster is one proxy. So the other member gets the request as the client
//! has sent it, with the client's URL and address.

use std::sync::Arc;

use http1::{Method, Name, ResponseHead, Target, is_one_variable, write};
use outcome::Fault;
use policy::fields::names_a_client;
use runtime::{Either, time};
use upstream::group::Group;
use upstream::members::Member;
use upstream::{Answer, BodyLength, Choice, To};

use crate::cluster::{CLIENT, REFUSED, has_for_hop};
use crate::fetch::Purpose;
use crate::limits::MEMBER_LOOK;
use crate::request::{Request, says_trailers};
use crate::worker::Worker;

/// Whether no other member is asked after this fault: the request has waited for a whole time-out,
/// or there is no descriptor for more.
pub(super) fn has_had_its_time(fault: Fault) -> bool {
    matches!(fault, Fault::Timeout | Fault::NoDescriptor)
}

/// The answer of a member; `None` if it could not, or would not, carry out the request.
pub(super) async fn ask(
    worker: &Worker,
    member: &Member,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Option<Answer>, Fault> {
    let to = To::Group(member.group.clone(), Choice::default(), None, None);
    let answered = upstream::exchange(&worker.upstreams, &to, message, interim);
    match while_up(Some(&member.group), answered).await {
        Ok(mut answer) if is_refusal(&answer) => {
            tracing::debug!(member = %member.address, "a member refused a request");
            // The connection can be used again if all of the refusal is here.
            let _ = answer.body.take_ready(&worker.upstreams, &mut |_| {});
            Ok(None)
        }
        Ok(answer) => Ok(Some(answer)),
        Err(fault) => {
            tracing::debug!(member = %member.address, %fault, "a member did not answer");
            worker.io.counters.cluster_failed.add(1);
            Err(fault)
        }
    }
}

/// Whether a member could not, or would not, carry out the request itself, so that another one may:
/// it has too much to do, it stops, or it has no server for it. Its other refusals, such as that
/// its origin is too slow, are its answer. What we add to the request may have made it too long;
/// that it says without the field that every response from a store or an origin has.
fn is_refusal(answer: &Answer) -> bool {
    let head = answer.head.head();
    match head.status {
        503 => has_for_hop(&head.fields, REFUSED),
        400 | 414 | 431 => head.fields.values(b"Cache-Status").next().is_none(),
        _ => false,
    }
}

/// The result of work that a member does for us. It is broken when the member is down.
pub(super) async fn while_up<T>(
    group: Option<&Arc<Group>>,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match runtime::race(work, down(group)).await {
        Either::Left(done) => done,
        Either::Right(()) => Err(Fault::Broken),
    }
}

/// Ready when the checks of this member have failed.
pub(super) async fn down(group: Option<&Arc<Group>>) {
    let Some(group) = group else { return std::future::pending().await };
    while !group.is_down() {
        time::sleep(MEMBER_LOOK).await;
    }
}

/// The request as another member is to see it: with its URL, and as the client has sent it. It has
/// no `Via` from us: the cluster is one proxy, and its members may have one name.
pub(crate) fn message(request: &Request, purpose: Purpose<'_>) -> upstream::Request {
    let (worker, head, to, peer) = (&request.worker, request.head(), request.to(), request.peer);
    let is_ours = purpose.is_ours();
    let for_identity = is_ours && request.asks_for_identity(purpose);
    let method = match is_ours {
        true => (Method::Get, &b"GET"[..]),
        false => (head.method, head.method_bytes),
    };
    let target = Target::Origin { path_and_query: to.path() };
    let mut message = upstream::Request::new(worker.io.buffer(), method, &target, to.authority());
    let out = message.lines();
    let front = request.listener.front.as_ref();
    let id = request.snapshot.config.request_id.as_ref();
    write::end_to_end(out, &head.fields, |field| {
        let left_out = match field.id() {
            Name::Host | Name::ContentLength | Name::ProxyAuthorization => true,
            Name::AcceptEncoding if for_identity => true,
            // What a client writes there means nothing.
            _ if field.name().eq_ignore_ascii_case(CLIENT.as_bytes()) => true,
            // The other member cannot know whether a trusted proxy wrote these. It gets the
            // client's address, the URL and our number.
            _ if front.is_some_and(|front| names_a_client(front, field.name())) => true,
            _ if id.is_some_and(|id| is_one_variable(field.name(), id.field.as_bytes())) => true,
            _ => is_ours && caching::is_condition_or_range(field.name()),
        };
        !left_out
    });
    request.append_own(out, purpose);
    request.append_id(out);
    if for_identity {
        out.extend_from_slice(b"Accept-Encoding: identity\r\n");
    }
    if says_trailers(&head.fields) && !is_ours {
        out.extend_from_slice(b"Connection: TE\r\nTE: trailers\r\n");
    }
    out.extend_from_slice(format!("Connection: {CLIENT}\r\n{CLIENT}: {peer}\r\n").as_bytes());
    message.end(BodyLength::None);
    let url = [to.realm.scheme.name().as_bytes(), b"://", to.authority(), to.path()].concat();
    message.with_lines(worker.io.buffer(), Some(&url), b"")
}

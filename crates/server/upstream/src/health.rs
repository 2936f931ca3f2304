//! Health checks of the upstream servers, and periodic resolution of their names.
//!
//! One task on one core starts them for all; each check is a separate task, one at a time for each
//! server. The task reads the configuration each time, so a reload takes effect at once.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use runtime::time::{self, Instant};

use super::group::{Group, Member};
use super::h2::Link;
use super::look_up::{Found, LookUp};
use super::{BodyLength, Preface, Request, Times, Upstreams, is_http2, open, send};
use crate::limits::{ATTEND, CHECK_HEAD_BYTES_MAX};
use config::{HealthCheck, Timeouts};
use dns::{NotFound, Resolver};
use http1::{Method, Target};
use outcome::Fault;
use transport::Transport;

/// Checks and resolves the servers for as long as it is polled.
///
/// `groups` returns those of the configuration in force.
pub async fn attend(
    core: Rc<Upstreams>,
    resolver: Arc<Resolver>,
    groups: impl Fn() -> Arc<[Arc<Group>]>,
) {
    let mut looked_up = time::now();
    // Services were not looked up at the start.
    groups().iter().for_each(|group| start_lookups(&resolver, group, true));
    loop {
        let groups = groups();
        let now = time::now();
        let mut next = now + ATTEND;
        for group in groups.iter() {
            if let Some(check) = &group.config.health {
                next = next.min(start_due(&core, group, check, now));
            }
        }
        if now.since(looked_up) >= ATTEND {
            looked_up = now;
            groups.iter().for_each(|group| start_lookups(&resolver, group, false));
        }
        drop(groups);
        time::sleep_until(next).await;
    }
}

/// Starts the checks that are due; returns when the next one is.
fn start_due(
    core: &Rc<Upstreams>,
    group: &Arc<Group>,
    check: &HealthCheck,
    now: Instant,
) -> Instant {
    let mut next = now + check.interval;
    for (at, member) in group.members.iter().enumerate() {
        if member.state.is_unresolved() {
            continue;
        }
        let state = &member.state.check;
        let due = Instant::from_ns(state.asked_at.load(Relaxed)) + check.interval;
        if now < due {
            next = next.min(due);
        } else if !state.asking.swap(true, Relaxed) {
            state.asked_at.store(now.as_ns(), Relaxed);
            let check_task = Check { group: Arc::clone(group), at };
            runtime::spawn(check_task.run(Rc::clone(core), check.clone())).detach();
        }
    }
    next
}

/// A check in progress.
struct Check {
    group: Arc<Group>,
    at: usize,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.member().state.check.asking.store(false, Relaxed);
    }
}

impl Check {
    fn member(&self) -> &Member {
        &self.group.members[self.at]
    }

    async fn run(self, core: Rc<Upstreams>, check: HealthCheck) {
        let asked = self.member().state.addresses();
        let answer = time::timeout(check.timeout, self.ask(&core, &check)).await;
        if asked != self.member().state.addresses() {
            // Another server is in its place now.
            return;
        }
        if answer == Ok(Err(Fault::NoDescriptor)) {
            // This says nothing about the server.
            return;
        }
        let well = answer == Ok(Ok(true));
        let member = self.member();
        let changed = member.state.note_check(well, check.rise, check.fall, time::now());
        let (group, server) = (&self.group.config.name, member.label());
        match (changed, well) {
            (false, _) => {}
            (true, false) => tracing::warn!(group, %server, "an upstream server is down"),
            (true, true) => {
                tracing::warn!(group, %server, "an upstream server is up again");
                // The server can take waiting requests now.
                self.group.shared.queue.call_all();
            }
        }
    }

    async fn ask(&self, core: &Upstreams, check: &HealthCheck) -> Result<bool, Fault> {
        let member = self.member();
        let (addresses, tls) = (member.state.addresses(), member.tls.as_deref());
        let preface = Preface::of_check(self.group.config.proxy_header);
        let (stream, _) = open(core, &addresses, preface.as_ref(), tls, check.timeout).await?;
        let host = check.host.as_deref().unwrap_or(member.own_host());
        let target = Target::Origin { path_and_query: check.path.as_bytes() };
        let method = (Method::Get, &b"GET"[..]);
        let mut request = Request::new(core.io.buffer(), method, &target, host.as_bytes());
        let lines = b"User-Agent: plimsoll-health-check\r\nConnection: close\r\n";
        request.lines().extend_from_slice(lines);
        request.end(BodyLength::None);
        let times = Times::of(&Timeouts::default(), &core.io.limits().limits);
        let is_well = |status| (check.status.0..=check.status.1).contains(&status);
        if is_http2(self.group.config.protocol, &stream)? {
            let slot = Link::start(&core.io, &core.scratch, stream, None, check.timeout);
            request.send_on(&slot, &times).await?;
            let mut got = Vec::new();
            loop {
                slot.heads(&mut got).await?;
                if let Some(status) = final_status(core, &mut got)? {
                    return Ok(is_well(status));
                }
            }
        }
        send(core, &stream, &times, request.bytes()).await?;
        Ok(is_well(status(core, &stream).await?))
    }
}

/// The status of the final head.
async fn status(core: &Upstreams, stream: &Transport) -> Result<u16, Fault> {
    let mut got = Vec::new();
    while got.len() < CHECK_HEAD_BYTES_MAX {
        let mut piece = [0; 2048];
        stream.readable().await.map_err(|_| Fault::Broken)?;
        match stream.try_read(&mut piece) {
            Ok(read) if read > 0 => got.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            _ => return Err(Fault::Broken),
        }
        if let Some(status) = final_status(core, &mut got)? {
            return Ok(status);
        }
    }
    Err(Fault::Malformed)
}

/// The status of the final head, if it has come. Interim heads are removed.
fn final_status(core: &Upstreams, got: &mut Vec<u8>) -> Result<Option<u16>, Fault> {
    loop {
        let parsed = core.io.with_scratch(|scratch| {
            http1::accept_response(got, scratch, &core.io.limits().http)
                .map(|head| head.map(|head| (head.status, head.is_interim(), head.head_bytes)))
        });
        match parsed {
            Ok(None) => return Ok(None),
            Ok(Some((_, true, head_bytes))) => drop(got.drain(..head_bytes)),
            Ok(Some((status, false, _))) => return Ok(Some(status)),
            Err(reject) => return Err(Fault::Http1(reject.reason)),
        }
    }
}

/// Resolves the servers with names. The resolver answers from its cache while the entry is valid,
/// and refreshes it shortly before it expires. Old addresses are used until there are new ones. A
/// server whose name has had no address yet is down until it has.
fn start_lookups(resolver: &Arc<Resolver>, group: &Arc<Group>, only_services: bool) {
    for (at, member) in group.members.iter().enumerate() {
        let Some(name) = member.name.clone() else { continue };
        let is_later_slot = member.slot.is_some_and(|slot| slot.nth > 0);
        if is_later_slot || (only_services && !matches!(name, LookUp::Service(_))) {
            continue;
        }
        if member.slot.is_some() && member.state.discovered.looking.swap(true, Relaxed) {
            continue;
        }
        let looking = Looking { group: Arc::clone(group), at };
        let resolver = Arc::clone(resolver);
        let look_up = async move {
            let hosts = &looking.member().state.discovered.hosts;
            let found = name.found(&resolver, hosts).await;
            looking.note(name.name(), found);
        };
        runtime::spawn(look_up).detach();
    }
}

/// A look-up of the name of a member.
struct Looking {
    group: Arc<Group>,
    at: usize,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.member().state.discovered.looking.store(false, Relaxed);
    }
}

impl Looking {
    fn member(&self) -> &Member {
        &self.group.members[self.at]
    }

    fn note(&self, host: &str, found: Result<Vec<Found>, NotFound>) {
        let (group, member) = (&self.group, self.member());
        self.note_answer(host, found.as_ref().err());
        match found {
            Ok(found) if member.slot.is_some() => group.assign(self.at, &found, time::now()),
            Ok(found) => {
                let addresses: Arc<[_]> = found.iter().map(|one| one.address).collect();
                member.state.discovered.is_stale.store(false, Relaxed);
                if *addresses == *member.state.addresses() {
                    return;
                }
                tracing::debug!(host, ?addresses, "an upstream server has moved");
                if member.state.set_addresses(addresses) {
                    tracing::warn!(host, "an upstream server's name has an address now");
                    // The server can take waiting requests now.
                    group.shared.queue.call_all();
                }
            }
            // Old addresses go on.
            Err(_) => {
                for member in self.servers() {
                    member.state.discovered.is_stale.store(true, Relaxed);
                }
            }
        }
    }

    /// Logs that the name servers give nothing for the name, or that they do so again: once for
    /// each time.
    fn note_answer(&self, host: &str, failed: Option<&NotFound>) {
        let group = &self.group.config.name;
        let is_failed = failed.is_some();
        let state = &self.member().state.discovered.is_unanswered;
        if state.swap(is_failed, Relaxed) == is_failed {
            return;
        }
        let servers = self.servers().iter().filter(|one| !one.state.is_unresolved()).count();
        match failed {
            None => tracing::info!(group, host, "the name of an upstream server is found again"),
            Some(reason) => {
                let text = "the name of an upstream server is not found: its last addresses, if \
                            there are any, are used";
                tracing::warn!(group, host, ?reason, servers, "{text}");
            }
        }
    }

    /// The members that the name stands for.
    fn servers(&self) -> &[Member] {
        let count = self.member().slot.map_or(1, |slot| slot.count);
        &self.group.members[self.at..self.at + count]
    }
}

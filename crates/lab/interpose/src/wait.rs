//! A boosted wait: sleep on the set, poll the descriptors that it names, and occasionally poll
//! everything.
//!
//! ```text
//!   audit due? -- yes --> plain poll of all, compared with epoll --> found, or a difference
//!      | no
//!   look: what epoll names, and what it refuses -> one plain poll of these -> found
//!      | nothing                                   \-> denied: look again, a few times
//!   time left? -- no --> nothing
//!      | yes
//!   sleep: the original ppoll on the set alone, which handles signals, masks and restarts
//!      | woken: look           | bound over: audit
//! ```

use libc::{c_int, pollfd, sigset_t};

use crate::front;
use crate::limits::{AUDIT_AWAKE_NS, AUDIT_EVERY_NS, AUDIT_TRIES, DENIED_MAX};
use crate::real;
use crate::set::{Refused, of_data};
use crate::stats::{self, Counter, count};
use crate::thread::{Kind, Region, State};
use crate::time::{Limit, timespec_of};
use crate::{changes, sys};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This many entries at the start of `probes` have results, each descriptor once.
    Found(usize),
    /// The time is up.
    Nothing,
    /// A signal handler ran.
    Interrupted,
    /// The original call must be made with the remaining time.
    Original,
}

/// The result of one check of what is ready now.
enum Look {
    Found(usize),
    Nothing,
    /// The kernel does not confirm what epoll named, or it does not concern the call.
    Denied,
    /// The set is no longer an epoll instance.
    Lost,
}

/// Waits until something in the settled set is ready, at most `limit` from `begun` (a [`sys::now`])
/// on.
pub(crate) fn wait(
    region: &mut Region,
    limit: Limit,
    begun: u64,
    mask: *const sigset_t,
) -> Outcome {
    let mut denied = 0;
    // If something is ready, a sleep returns at once, so the first look can come after it.
    let mut straight = !limit.is_zero() && region.unheld_len == 0;
    // With a mask even a call with zero time must let a pending signal interrupt it.
    let mut must_sleep = !mask.is_null();
    if audit_is_due(region) {
        match audit(region) {
            Outcome::Nothing => {}
            decided => return decided,
        }
    }
    loop {
        if !straight {
            match look(region) {
                Look::Found(count) => return Outcome::Found(count),
                Look::Nothing => {}
                Look::Denied if denied < DENIED_MAX => {
                    denied += 1;
                    continue;
                }
                Look::Denied | Look::Lost => return Outcome::Original,
            }
        }
        let left = match limit {
            Limit::Nanoseconds(1..) => limit.after(sys::now().wrapping_sub(begun)),
            _ => limit,
        };
        // A thread that did not run for a while may have no time left before its first look.
        if left.is_zero() && !must_sleep && !straight {
            return Outcome::Nothing;
        }
        straight = false;
        must_sleep = false;
        let (bound, is_whole) = match left {
            Limit::Nanoseconds(left) if left <= AUDIT_EVERY_NS => (left, true),
            _ => (AUDIT_EVERY_NS, false),
        };
        match asleep(region, bound, mask) {
            Woken::Time if is_whole => return Outcome::Nothing,
            Woken::Time => match audit(region) {
                Outcome::Nothing => {}
                decided => return decided,
            },
            Woken::Set => {}
            Woken::Signal => return Outcome::Interrupted,
            Woken::Loss => return Outcome::Original,
        }
    }
}

/// What ended a sleep.
enum Woken {
    Set,
    Time,
    Signal,
    /// The set's descriptor is no longer ours.
    Loss,
}

fn asleep(region: &mut Region, bound: u64, mask: *const sigset_t) -> Woken {
    let begun = stats::clock();
    let mut set = pollfd { fd: region.own.fd, events: libc::POLLIN, revents: 0 };
    let time = timespec_of(bound);
    let mask = if planted::is(planted::Bug::BoostMaskNotPassed) { std::ptr::null() } else { mask };
    // SAFETY: one pollfd and one timespec on this frame; the mask is null or the caller's, who
    // keeps ppoll's contract. No frame holds anything that a cancelled thread would have to drop.
    let woken = unsafe { real::ppoll(&raw mut set, 1, &raw const time, mask) };
    let error = sys::errno();
    region.slept = region.slept.wrapping_add(stats::clock().wrapping_sub(begun));
    match woken {
        0 => Woken::Time,
        1 if set.revents & libc::POLLIN != 0 && region.own.is_ours() => Woken::Set,
        ..0 if error == libc::EINTR => Woken::Signal,
        _ => Woken::Loss,
    }
}

fn look(region: &mut Region) -> Look {
    let Some(room) = region.events.get_mut(..region.held.saturating_add(1)) else {
        return Look::Lost;
    };
    let named = sys::epoll_take(region.own.fd, room);
    let Ok(named) = usize::try_from(named) else { return Look::Lost };
    let (mut probed, mut stale) = (0, false);
    for at in 0..named {
        match named_fd(region, at) {
            Some(fd) => add_probe(region, &mut probed, fd),
            None => stale = true,
        }
    }
    if stale {
        return if region.rebuild().is_ok() { Look::Denied } else { Look::Lost };
    }
    let of_set = probed;
    for at in 0..region.unheld_len {
        let Some(&fd) = region.unheld.get(at) else { break };
        let closed = region.entries.get(fd as usize).is_some_and(|e| e.state == State::Closed);
        if !(closed && planted::is(planted::Bug::BoostNvalForgotten)) {
            add_probe(region, &mut probed, fd as usize);
        }
    }
    if probed == 0 {
        return Look::Nothing;
    }
    let Some(probes) = region.probes.get_mut(..probed) else { return Look::Lost };
    if sys::poll_now(probes) < 0 {
        return Look::Lost;
    }
    count(Counter::Probes, probed as u64);
    if readd_denied(region, of_set).is_err() {
        return Look::Lost;
    }
    match relevant_results(region, probed) {
        0 if of_set == 0 => Look::Nothing,
        0 => Look::Denied,
        found => Look::Found(found),
    }
}

/// The descriptor of an event; `None` if the event is of an earlier addition, whose file has lost
/// the number and is still open under another.
fn named_fd(region: &Region, at: usize) -> Option<usize> {
    let (fd, serial) = of_data(region.events.get(at)?.u64);
    let entry = region.entries.get(fd)?;
    (entry.is_held() && entry.serial == serial).then_some(fd)
}

fn add_probe(region: &mut Region, probed: &mut usize, fd: usize) {
    let events = region.entries.get(fd).map_or(0, |entry| entry.mask);
    if let Some(probe) = region.probes.get_mut(*probed) {
        *probe = front::probe(fd, events);
        *probed += 1;
    }
}

/// If the kernel does not confirm a descriptor that epoll named, mostly another thread has already
/// read from it. But it may also have another file than epoll assumes, and then this corrects it.
fn readd_denied(region: &mut Region, of_set: usize) -> Result<(), Refused> {
    for at in 0..of_set {
        let Some(&probe) = region.probes.get(at) else { break };
        if probe.revents == 0 {
            region.remove(probe.fd as usize);
            region.add(probe.fd as usize, probe.events as u16)?;
        }
    }
    Ok(())
}

/// Moves the results that concern the call to the front, and counts them.
fn relevant_results(region: &mut Region, probed: usize) -> usize {
    let mut found = 0;
    for at in 0..probed {
        let Some(&probe) = region.probes.get(at) else { break };
        let (events, revents) = (probe.events as u16, probe.revents as u16);
        let concerns = match region.kind {
            Kind::Select => {
                revents & libc::POLLNVAL as u16 != 0
                    || front::sets_of_answer(events, revents).contains(&true)
            }
            _ => revents != 0,
        };
        if concerns && let Some(place) = region.probes.get_mut(found) {
            *place = probe;
            found += 1;
        }
    }
    count(Counter::Hits, found as u64);
    found
}

fn audit_is_due(region: &Region) -> bool {
    sys::now_coarse().wrapping_sub(region.audited) >= AUDIT_AWAKE_NS
}

/// Polls everything. A descriptor that is repeatedly ready but not named by epoll, without a noted
/// change, is a difference: a change went unnoticed, and the thread is no longer boosted.
fn audit(region: &mut Region) -> Outcome {
    region.audited = sys::now_coarse();
    if planted::is(planted::Bug::BoostAuditOff) {
        return Outcome::Nothing;
    }
    count(Counter::Audits, 1);
    let mut probed = 0;
    for fd in 0..region.highest {
        if region.entries.get(fd).is_some_and(|entry| entry.state != State::Absent) {
            add_probe(region, &mut probed, fd);
        }
    }
    let Some(probes) = region.probes.get_mut(..probed) else { return Outcome::Original };
    let ready = sys::poll_now(probes);
    if ready < 0 {
        return Outcome::Original;
    }
    if ready > 0 && !epoll_knows(region, probed) {
        count(Counter::AuditDifferences, 1);
        region.off = true;
    }
    match relevant_results(region, probed) {
        0 if region.off => Outcome::Original,
        0 => Outcome::Nothing,
        found => Outcome::Found(found),
    }
}

/// Whether epoll names everything that is ready and in its set.
fn epoll_knows(region: &mut Region, probed: usize) -> bool {
    let Some(room) = region.events.get_mut(..region.held.saturating_add(1)) else { return false };
    let named = usize::try_from(sys::epoll_take(region.own.fd, room)).unwrap_or(0);
    set_named(region, named, true);
    let mut suspects = 0;
    for at in 0..probed {
        let Some(&probe) = region.probes.get(at) else { break };
        let Some(&entry) = region.entries.get(probe.fd as usize) else { break };
        let closed = probe.revents & libc::POLLNVAL != 0;
        if entry.is_held() && probe.revents != 0 && (closed || !entry.is_named) {
            // No descriptor is marked between two calls, so the list is free.
            if let Some(place) = region.dirty.get_mut(suspects) {
                *place = probe.fd as u32;
                suspects += 1;
            }
        }
    }
    set_named(region, named, false);
    (0..suspects).all(|at| {
        let fd = region.dirty.get(at).map_or(0, |&fd| fd as usize);
        !is_difference(region, fd)
    })
}

fn set_named(region: &mut Region, named: usize, is_named: bool) {
    for at in 0..named {
        let fd = named_fd(region, at);
        if let Some(entry) = fd.and_then(|fd| region.entries.get_mut(fd)) {
            entry.is_named = is_named;
        }
    }
}

/// Other threads read and close meanwhile, so a difference must be confirmed every time.
fn is_difference(region: &mut Region, fd: usize) -> bool {
    let Some(&entry) = region.entries.get(fd) else { return false };
    (0..AUDIT_TRIES).all(|_| {
        let mut probe = [front::probe(fd, entry.mask)];
        let ready = sys::poll_now(&mut probe) > 0;
        let closed = probe.iter().any(|probe| probe.revents & libc::POLLNVAL != 0);
        let Some(room) = region.events.get_mut(..region.held.saturating_add(1)) else {
            return true;
        };
        let named = usize::try_from(sys::epoll_take(region.own.fd, room)).unwrap_or(0);
        let known = (0..named).any(|at| named_fd(region, at) == Some(fd));
        ready && (closed || !known) && changes::generation(fd) == entry.generation
    })
}

/// What the original returns for an interrupted wait.
pub(crate) const INTERRUPTED: c_int = -1;

//! A boosted wait: sleep on the set, ask the kernel about what it names, and now and then about
//! everything.
//!
//! ```text
//!   audit due? -- yes --> plain poll of all, held against epoll --> found, or a difference
//!      | no
//!   look: what epoll names, and what it cannot hold -> one plain poll of these -> found
//!      | nothing                                   \-> denied: look again, a few times
//!   time left? -- no --> nothing
//!      | yes
//!   sleep: the original ppoll on the set alone, so that signals, masks and restarts are its own
//!      | woken: look           | bound over: audit
//! ```

use libc::{c_int, pollfd, sigset_t};

use crate::front;
use crate::limits::{AUDIT_AWAKE_NS, AUDIT_EVERY_NS, AUDIT_TRIES, DENIED_MAX};
use crate::real;
use crate::set::{Refused, State, of_data};
use crate::stats::{self, Counter, count};
use crate::thread::{Kind, Region};
use crate::time::{Limit, timespec_of};
use crate::{changes, sys};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The first so many of `probes` have answers, each descriptor once.
    Found(usize),
    /// The time is over.
    Nothing,
    /// A signal handler ran.
    Interrupted,
    /// The original call must say, with the time that is left.
    Original,
}

/// One look at what is ready now.
enum Look {
    Found(usize),
    Nothing,
    /// epoll named what the kernel denies, or what does not concern the call.
    Denied,
    /// The set is no epoll instance any more.
    Lost,
}

/// Waits until something that the settled set asks for is ready, at most `limit` from `begun` (a
/// [`sys::now`]) on.
pub(crate) fn wait(
    region: &mut Region,
    limit: Limit,
    begun: u64,
    mask: *const sigset_t,
) -> Outcome {
    let mut denied = 0;
    // To sleep on what is ready is to be woken at once: the first look can wait for it.
    let mut straight = !limit.is_zero() && region.unheld_len == 0;
    // With a mask even a call without time must let a pending signal interrupt it.
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
        // A thread that did not run for a while may have no time left before it has looked.
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

/// What woke a sleeper.
enum Woken {
    Set,
    Time,
    Signal,
    /// The set's descriptor is not ours any more.
    Loss,
}

fn asleep(region: &mut Region, bound: u64, mask: *const sigset_t) -> Woken {
    let begun = stats::clock();
    let mut set = pollfd { fd: region.own.fd, events: libc::POLLIN, revents: 0 };
    let time = timespec_of(bound);
    let mask = if planted::is(planted::Bug::BoostMaskNotPassed) { std::ptr::null() } else { mask };
    // SAFETY: one pollfd and one timespec on this frame; the mask is null or the caller's, who
    // keeps ppoll's contract. Nothing on the way holds what a cancelled thread would have to drop.
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
    let (mut asked, mut stale) = (0, false);
    for at in 0..named {
        match named_fd(region, at) {
            Some(fd) => ask(region, &mut asked, fd),
            None => stale = true,
        }
    }
    if stale {
        return if region.rebuild().is_ok() { Look::Denied } else { Look::Lost };
    }
    let of_set = asked;
    for at in 0..region.unheld_len {
        let Some(&fd) = region.unheld.get(at) else { break };
        let closed = region.entries.get(fd as usize).is_some_and(|e| e.state == State::Closed);
        if !(closed && planted::is(planted::Bug::BoostNvalForgotten)) {
            ask(region, &mut asked, fd as usize);
        }
    }
    if asked == 0 {
        return Look::Nothing;
    }
    let Some(probes) = region.probes.get_mut(..asked) else { return Look::Lost };
    if sys::poll_now(probes) < 0 {
        return Look::Lost;
    }
    count(Counter::Probes, asked as u64);
    if readd_denied(region, of_set).is_err() {
        return Look::Lost;
    }
    match answers(region, asked) {
        0 if of_set == 0 => Look::Nothing,
        0 => Look::Denied,
        found => Look::Found(found),
    }
}

/// The descriptor of an event; `None` if the event is of an addition that is no more: its file has
/// lost the number and lives on under another.
fn named_fd(region: &Region, at: usize) -> Option<usize> {
    let (fd, serial) = of_data(region.events.get(at)?.u64);
    let entry = region.entries.get(fd)?;
    (entry.is_held() && entry.serial == serial).then_some(fd)
}

fn ask(region: &mut Region, asked: &mut usize, fd: usize) {
    let events = region.entries.get(fd).map_or(0, |entry| entry.mask);
    if let Some(probe) = region.probes.get_mut(*asked) {
        *probe = front::question(fd, events);
        *asked += 1;
    }
}

/// What epoll names and the kernel denies is mostly a descriptor that another thread was quicker to
/// read from; it may also have another file than epoll thinks, and then this mends it.
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

/// Brings the answers that concern the call to the front, and counts them.
fn answers(region: &mut Region, asked: usize) -> usize {
    let mut found = 0;
    for at in 0..asked {
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

/// Asks the kernel about everything. What is ready and not named by epoll, again and again and
/// without a change that was seen, is a difference: something happened behind our back, and the
/// thread is boosted no more.
fn audit(region: &mut Region) -> Outcome {
    region.audited = sys::now_coarse();
    if planted::is(planted::Bug::BoostAuditOff) {
        return Outcome::Nothing;
    }
    count(Counter::Audits, 1);
    let mut asked = 0;
    for fd in 0..region.highest {
        if region.entries.get(fd).is_some_and(|entry| entry.state != State::Absent) {
            ask(region, &mut asked, fd);
        }
    }
    let Some(probes) = region.probes.get_mut(..asked) else { return Outcome::Original };
    let ready = sys::poll_now(probes);
    if ready < 0 {
        return Outcome::Original;
    }
    if ready > 0 && !epoll_knows(region, asked) {
        count(Counter::AuditDifferences, 1);
        region.off = true;
    }
    match answers(region, asked) {
        0 if region.off => Outcome::Original,
        0 => Outcome::Nothing,
        found => Outcome::Found(found),
    }
}

/// Whether all that is ready is named by epoll too, or not in its care.
fn epoll_knows(region: &mut Region, asked: usize) -> bool {
    let Some(room) = region.events.get_mut(..region.held.saturating_add(1)) else { return false };
    let named = usize::try_from(sys::epoll_take(region.own.fd, room)).unwrap_or(0);
    set_named(region, named, true);
    let mut suspects = 0;
    for at in 0..asked {
        let Some(&probe) = region.probes.get(at) else { break };
        let Some(&entry) = region.entries.get(probe.fd as usize) else { break };
        let closed = probe.revents & libc::POLLNVAL != 0;
        if entry.is_held() && probe.revents != 0 && (closed || !entry.is_named) {
            // Nothing is marked between two calls: the list is free.
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

/// Other threads read and close meanwhile: only what is so every time is believed.
fn is_difference(region: &mut Region, fd: usize) -> bool {
    let Some(&entry) = region.entries.get(fd) else { return false };
    (0..AUDIT_TRIES).all(|_| {
        let mut probe = [front::question(fd, entry.mask)];
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

/// What the original returns for a wait that ended so.
pub(crate) const INTERRUPTED: c_int = -1;

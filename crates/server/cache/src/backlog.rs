//! Purges that members of a cluster have not acknowledged yet. This member sends them again.
//!
//! The purges that wait for an address are kept when the address leaves the cluster. Purges that
//! are made while the address is away wait for it, too. The server at the address may still be
//! running with all its stored responses, if only its name or its network was lost for a moment.
//! When the address is back, the member counts as behind until it has acknowledged these purges.
//!
//! An address that joins may have been in the lists of other members before it was in the list of
//! this member. Purges that this member made in that time have not reached the address. So the new
//! member counts as behind until it has marked all its stored responses as to be validated.
//!
//! A restart in place gives the backlog to the next process. For a while, both processes send the
//! purges to the members. To purge twice does no harm.
//!
//! What never happens: a purge is dropped because too many purges wait. If too many wait for a
//! member, they become one purge of everything. If too many addresses have left, the address that
//! left first is forgotten, with its purges.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use store::Concerns;

use crate::changes::Notice;
use crate::limits::{BACKLOG_BYTES_MAX, BACKLOG_MAX, MEMBERS_GONE_MAX};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Backlog {
    of: HashMap<SocketAddr, Vec<Waiting>>,
    /// Those that have left, the one that left first in front.
    gone: VecDeque<SocketAddr>,
    /// Of the last purge.
    number: u64,
}

/// A purge that waits, encoded.
#[derive(Debug)]
struct Waiting {
    number: u64,
    purge: Vec<u8>,
    /// It concerns that member alone, because it has joined.
    joined: bool,
}

/// Purges for one member.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// For this member. Each is encoded.
    pub purges: Vec<Vec<u8>>,
    /// For the others when it has acknowledged these, because of what it may have given them
    /// meanwhile. Everything is not lost there: it is validated before it is served again.
    pub for_others: Vec<Vec<u8>>,
    /// The number of the last one.
    pub last: u64,
}

impl Backlog {
    /// How many members have some, without those that have left.
    pub fn behind(&self) -> usize {
        self.of.keys().filter(|one| !self.gone.contains(one)).count()
    }

    /// How many purges a member has not acknowledged.
    pub fn waiting(&self, member: SocketAddr) -> usize {
        self.of.get(&member).map_or(0, Vec::len)
    }

    /// These are the other members from now on, and those were before. `first`: there was no list
    /// before.
    pub fn members_are(&mut self, now: &[SocketAddr], before: &[SocketAddr], first: bool) {
        let is_known = |one: &SocketAddr| before.contains(one) || self.gone.contains(one);
        let joined = now.iter().filter(|one| !first && !is_known(one));
        for one in joined.copied().collect::<Vec<_>>() {
            self.wait(one, everything(true), true);
        }
        self.gone.retain(|one| !now.contains(one));
        for one in before.iter().filter(|one| !now.contains(one)) {
            if !self.gone.contains(one) {
                self.gone.push_back(*one);
            }
        }
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        while self.gone.len() > MEMBERS_GONE_MAX {
            if let Some(oldest) = self.gone.pop_front() {
                self.of.remove(&oldest);
            }
        }
    }

    /// A purge that those that have left will have to acknowledge.
    pub fn put_off_gone(&mut self, purge: &[u8]) {
        for at in 0..self.gone.len() {
            self.put_off(self.gone[at], purge);
        }
    }

    /// A member has not acknowledged a purge. One that waits already takes the later place.
    pub fn put_off(&mut self, member: SocketAddr, purge: &[u8]) {
        self.wait(member, purge.to_vec(), false);
    }

    fn wait(&mut self, member: SocketAddr, purge: Vec<u8>, joined: bool) {
        self.number += 1;
        let number = self.number;
        let waiting = self.of.entry(member).or_default();
        waiting.retain(|one| one.purge != purge);
        waiting.push(Waiting { number, purge, joined });
        let bytes: usize = waiting.iter().map(|one| one.purge.len()).sum();
        if waiting.len() > BACKLOG_MAX || bytes > BACKLOG_BYTES_MAX {
            tracing::warn!(%member, "too many purges wait: everything will be purged there");
            *waiting = vec![Waiting { number, purge: everything(false), joined: false }];
        }
    }

    /// The oldest purges that wait for a member, so many bytes at most, but at least one.
    pub fn oldest(&self, member: SocketAddr, bytes_max: usize) -> Batch {
        let mut bytes = 0;
        let mut batch = Batch::default();
        let all = everything(false);
        for one in self.of.get(&member).into_iter().flatten() {
            bytes += one.purge.len();
            if bytes > bytes_max && !batch.purges.is_empty() {
                break;
            }
            batch.purges.push(one.purge.clone());
            if !one.joined {
                let purge = if one.purge == all { everything(true) } else { one.purge.clone() };
                batch.for_others.push(purge);
            }
            batch.last = one.number;
        }
        batch
    }

    /// What a successor must go on with: what began to wait after this number, in messages of at
    /// most `bytes_max`, and the number of the last. The first time (0), all addresses that have
    /// left, too.
    pub fn since(&self, number: u64, bytes_max: usize) -> (Vec<Vec<u8>>, u64) {
        let mut messages: Vec<Vec<u8>> = Vec::new();
        let mut add = |member: SocketAddr, kind: char, purge: &[u8]| {
            let mut entry = format!("{member} {kind} {}\n", purge.len()).into_bytes();
            entry.extend_from_slice(purge);
            match messages.last_mut() {
                Some(last) if last.len() + entry.len() <= bytes_max => last.extend(entry),
                _ => messages.push(entry),
            }
        };
        for member in self.gone.iter().filter(|_| number == 0) {
            add(*member, LEFT, b"");
        }
        for (member, waiting) in &self.of {
            for one in waiting.iter().filter(|one| one.number > number) {
                let kind = if one.joined { JOINED } else { PURGE };
                // Nearly all of a message is for the purge.
                match one.purge.len() > bytes_max / 2 {
                    true => add(*member, PURGE, &everything(false)),
                    false => add(*member, kind, &one.purge),
                }
            }
        }
        (messages, self.number)
    }

    /// Goes on with what a predecessor has sent, while these are the other members. An address that
    /// is none of them has left. False if the message cannot be read to its end.
    #[must_use]
    pub fn take_over(&mut self, mut message: &[u8], now: &[SocketAddr]) -> bool {
        while !message.is_empty() {
            let Some((member, kind, purge, rest)) = entry(message) else { return false };
            message = rest;
            if !now.contains(&member) && !self.gone.contains(&member) {
                self.gone.push_back(member);
            }
            if kind != LEFT {
                self.wait(member, purge.to_vec(), kind == JOINED);
            }
        }
        self.forget_oldest();
        true
    }

    /// It has acknowledged all up to this number.
    pub fn acknowledged(&mut self, member: SocketAddr, last: u64) {
        if let Some(waiting) = self.of.get_mut(&member) {
            waiting.retain(|one| one.number > last);
            if waiting.is_empty() {
                self.of.remove(&member);
            }
        }
    }
}

/// Kinds of entries for a successor: an address that has left, ...
const LEFT: char = 'l';
/// ... a purge that concerns one member because it has joined, ...
const JOINED: char = 'j';
/// ... and any other purge.
const PURGE: char = 'p';

/// The first entry for a successor: a line with member, kind and length, and the purge.
fn entry(message: &[u8]) -> Option<(SocketAddr, char, &[u8], &[u8])> {
    let line = message.iter().position(|byte| *byte == b'\n')?;
    let mut words = str::from_utf8(&message[..line]).ok()?.split(' ');
    let member = words.next()?.parse().ok()?;
    let kind = words.next()?.parse().ok()?;
    let len = words.next()?.parse().ok()?;
    let (purge, rest) = message[line + 1..].split_at_checked(len)?;
    Some((member, kind, purge, rest))
}

fn everything(soft: bool) -> Vec<u8> {
    let mut out = Vec::new();
    Notice::of(Concerns::All, soft).encode(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7000))
    }

    #[test]
    fn purges_are_taken_in_their_order_and_wait_until_they_are_acknowledged() {
        let mut backlog = Backlog::default();
        backlog.put_off(at(1), b"a");
        backlog.put_off(at(1), b"bc");
        let Batch { purges, last, .. } = backlog.oldest(at(1), 2);
        assert_eq!(purges, [b"a"]);
        // It is purged once more while the first is on its way.
        backlog.put_off(at(1), b"a");
        backlog.acknowledged(at(1), last);
        let Batch { purges, last, .. } = backlog.oldest(at(1), 100);
        assert_eq!(purges, [&b"bc"[..], b"a"]);
        backlog.acknowledged(at(1), last);
        assert_eq!((backlog.waiting(at(1)), backlog.behind()), (0, 0));
        assert_eq!(backlog.oldest(at(1), 100), Batch::default());
    }

    #[test]
    fn too_many_purges_become_one_of_everything_which_has_to_be_acknowledged_itself() {
        let mut backlog = Backlog::default();
        backlog.put_off(at(1), &everything(false));
        let sent = backlog.oldest(at(1), 100).last;
        for number in 0..BACKLOG_MAX {
            backlog.put_off(at(1), format!("more {number}").as_bytes());
        }
        assert_eq!(backlog.oldest(at(1), 100).purges, [everything(false)]);
        backlog.acknowledged(at(1), sent);
        assert_eq!(backlog.waiting(at(1)), 1, "the acknowledgement was of another");
    }

    #[test]
    fn long_purges_become_one_of_everything_before_they_are_many() {
        let mut backlog = Backlog::default();
        for kind in 0..4 {
            backlog.put_off(at(1), &vec![kind; BACKLOG_BYTES_MAX / 3]);
        }
        assert_eq!(backlog.oldest(at(1), 100).purges, [everything(false)]);
    }

    #[test]
    fn an_address_that_is_away_for_a_moment_gets_the_purges_of_before_and_of_that_time() {
        let mut backlog = Backlog::default();
        backlog.put_off(at(1), b"before");
        backlog.members_are(&[at(2)], &[at(1), at(2)], false);
        backlog.put_off_gone(b"meanwhile");
        backlog.members_are(&[at(1), at(2)], &[at(2)], false);
        backlog.put_off_gone(b"later");
        assert_eq!(backlog.oldest(at(1), 100).purges, [&b"before"[..], b"meanwhile"]);
        assert_eq!(backlog.waiting(at(2)), 0);
    }

    #[test]
    fn of_many_addresses_that_have_left_the_first_are_forgotten() {
        let mut backlog = Backlog::default();
        for host in 0..=MEMBERS_GONE_MAX as u8 {
            backlog.members_are(&[], &[at(host)], false);
            backlog.put_off_gone(b"purge");
        }
        let hosts = 0..=MEMBERS_GONE_MAX as u8;
        assert_eq!(hosts.filter(|host| backlog.waiting(at(*host)) == 1).count(), MEMBERS_GONE_MAX);
        assert_eq!((backlog.waiting(at(0)), backlog.waiting(at(1)), backlog.behind()), (0, 1, 0));
    }

    /// A member that had missed many purges emptied all others when it was back.
    #[test]
    fn what_one_member_has_missed_empties_no_other() {
        let mut backlog = Backlog::default();
        backlog.put_off(at(1), b"a");
        backlog.put_off(at(1), &everything(false));
        let Batch { for_others, .. } = backlog.oldest(at(1), 100);
        assert_eq!(for_others, [b"a".to_vec(), everything(true)]);
    }

    #[test]
    fn one_that_joins_validates_what_it_has_stored_and_no_other_does() {
        let mut backlog = Backlog::default();
        backlog.members_are(&[at(1)], &[], true);
        assert_eq!(backlog.behind(), 0, "nothing is known of before");
        backlog.members_are(&[at(1), at(2)], &[at(1)], false);
        backlog.put_off(at(2), b"a");
        let batch = backlog.oldest(at(2), 100);
        assert_eq!(batch.purges, [everything(true), b"a".to_vec()]);
        assert_eq!((batch.for_others, backlog.waiting(at(1))), (vec![b"a".to_vec()], 0));
    }

    /// After a restart in place, a member that had missed a purge was asked again, and gave what it
    /// should have purged.
    #[test]
    fn a_successor_goes_on_with_the_purges_that_wait() {
        let mut before = Backlog::default();
        before.members_are(&[at(1), at(2)], &[], true);
        before.members_are(&[at(1), at(3)], &[at(1), at(2)], false);
        before.put_off(at(1), b"a");
        before.put_off_gone(b"b");
        before.put_off(at(1), b"c\n10.0.0.9:1 p 3\nx");
        let (messages, sent) = before.since(0, 64);
        assert!(messages.len() > 1 && messages.iter().all(|message| message.len() <= 64));
        let mut after = Backlog::default();
        after.members_are(&[at(1), at(3)], &[], true);
        for message in &messages {
            assert!(after.take_over(message, &[at(1), at(3)]));
        }
        for member in [at(1), at(2), at(3)] {
            let of = |backlog: &Backlog| {
                let Batch { purges, for_others, .. } = backlog.oldest(member, 1000);
                (purges, for_others)
            };
            assert_eq!(of(&after), of(&before), "{member}");
        }
        assert_eq!((after.behind(), &after.gone), (2, &before.gone));
        // What is put off later is sent later, and nothing twice.
        assert_eq!(before.since(sent, 64).0, Vec::<Vec<u8>>::new());
        before.put_off(at(3), b"d");
        let (later, _) = before.since(sent, 64);
        assert!(after.take_over(&later.concat(), &[at(1), at(3)]));
        assert_eq!(after.oldest(at(3), 1000).purges, [everything(true), b"d".to_vec()]);
        // One that has left with the restart keeps its purges until it is back.
        let mut without = Backlog::default();
        assert!(messages.iter().all(|message| without.take_over(message, &[at(3)])));
        assert_eq!((without.waiting(at(1)), without.behind()), (2, 1));
        for cut in 1..later[0].len() {
            assert!(!after.take_over(&later[0][..cut], &[at(3)]));
        }
    }

    #[test]
    fn who_has_left_is_not_behind_until_it_is_back() {
        let mut backlog = Backlog::default();
        backlog.members_are(&[at(2)], &[at(1), at(2)], false);
        backlog.put_off_gone(b"a");
        assert_eq!((backlog.waiting(at(1)), backlog.behind()), (1, 0));
        backlog.members_are(&[at(1), at(2)], &[at(2)], false);
        assert_eq!(backlog.behind(), 1);
    }
}

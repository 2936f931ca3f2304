//! The Cache Array Routing Protocol: which of several parents is responsible for a URL
//! (draft-vinod-carp-v1-03, section 3).
//!
//! Each member gets a score from the hash of the URL and the hash of its name. The member with the
//! highest score is responsible. If it fails, the one with the next score is. A member that joins
//! or leaves changes only the URLs of its share. Nothing is sent: each child computes the same
//! result from the same names and weights.
//!
//! **Multipliers** are computed with 64 bits, as in Squid. The draft asks for 32. The choice can
//! differ only where two scores are almost equal.
//!
//! **Squid differs from the draft**, so it often chooses another member than this module. A Squid
//! and a Plimsoll that share parents by CARP store many responses twice. In Squid 5.7:
//!
//! - The hash of the URL is not reset between members. The n-th member, in ascending order of
//!   weight, is combined with the hash of the URL repeated n times.
//! - Names are hashed as written. The draft compares them in lower case.
//! - A member with less than a thousandth of all weights has the load factor 0. Its multiplier is
//!   then 0, and those of the members after it are infinite or not a number.

use std::iter::FusedIterator;

/// The members of an array, with what a score needs of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Carp {
    /// In ascending order of weight. Those of weight 0 are left out.
    members: Vec<Member>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Member {
    /// The index in the caller's list.
    at: usize,
    hash: u32,
    multiplier: f64,
}

impl Carp {
    /// An array of members with names and weights. A member without weight gets no URLs.
    ///
    /// Names are compared in lower case.
    pub fn new<'a>(members: impl IntoIterator<Item = (&'a str, u32)>) -> Carp {
        let mut members: Vec<(Member, f64)> = members
            .into_iter()
            .enumerate()
            .filter(|(_, (_, weight))| *weight > 0)
            .map(|(at, (name, weight))| {
                (Member { at, hash: member_hash(name), multiplier: 0.0 }, f64::from(weight))
            })
            .collect();
        // Members of equal weight keep the caller's order.
        members.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        debug_assert!(
            members.is_sorted_by(|(_, a), (_, b)| a <= b),
            "in ascending order of weight"
        );
        let sum: f64 = members.iter().map(|(_, weight)| weight).sum();
        let (mut product, mut last_multiplier, mut last_share) = (1.0, 0.0_f64, 0.0);
        let mut left = members.len() as f64;
        for (member, weight) in &mut members {
            let share = *weight / sum;
            let power = left * (share - last_share) / product + last_multiplier.powf(left);
            member.multiplier = power.powf(1.0 / left);
            debug_assert!(member.multiplier.is_finite() && member.multiplier > 0.0);
            product *= member.multiplier;
            (last_multiplier, last_share) = (member.multiplier, share);
            left -= 1.0;
        }
        Carp { members: members.into_iter().map(|(member, _)| member).collect() }
    }

    /// The members in the order in which to try them for a URL, as indices into the list that was
    /// given to [`Carp::new`]. Members without weight are not among them.
    ///
    /// Each call of `next` is one pass over the members and allocates nothing. The order is not
    /// computed in advance, because the first member is usually usable. The iterator does not start
    /// again after its end.
    pub fn rank(&self, url_hash: u32) -> impl FusedIterator<Item = usize> {
        let mut last: Option<(f64, usize)> = None;
        let next = move || {
            let scores = self.members.iter().map(|member| (member.score(url_hash), member.at));
            let left = scores.filter(|&this| last.is_none_or(|last| is_above(last, this)));
            let best = left.reduce(|best, this| if is_above(this, best) { this } else { best })?;
            last = Some(best);
            Some(best.1)
        };
        std::iter::from_fn(next).fuse()
    }
}

/// Whether a score is above another one. Of equal scores, that of the first member is.
fn is_above(a: (f64, usize), b: (f64, usize)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}

impl Member {
    fn score(&self, url_hash: u32) -> f64 {
        f64::from(spread(url_hash ^ self.hash)) * self.multiplier
    }
}

/// The hash of a URL. The scheme and the host must be in lower case.
///
/// The draft speaks of ASCII. Other bytes count as numbers from 128 to 255.
pub fn url_hash(url: &[u8]) -> u32 {
    url.iter().fold(0, |hash: u32, &byte| {
        hash.wrapping_add(hash.rotate_left(19)).wrapping_add(u32::from(byte))
    })
}

fn member_hash(name: &str) -> u32 {
    spread(url_hash(name.to_ascii_lowercase().as_bytes()))
}

/// Spreads similar hashes over all numbers.
fn spread(hash: u32) -> u32 {
    hash.wrapping_add(hash.wrapping_mul(0x6253_1965)).rotate_left(21)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Not computed by us: tables C-1 and C-2 of Duane Wessels, "Web Caching" (2001).
    #[test]
    fn the_hashes_and_multipliers_are_those_of_a_published_table() {
        assert_eq!(url_hash(b"http://www.squid-cache.org/"), 0x1607_3a01);
        let members = [
            ("test1.ircache.net", 1, 0x9601_0320, 0.869442),
            ("test2.web-cache.com", 1, 0x8496_5f0f, 0.869442),
            ("test3.squid-cache.org", 2, 0x4f5d_7332, 1.064844),
            ("test4.packet-pushers.com", 3, 0xa79a_f670, 1.242318),
        ];
        let carp = Carp::new(members.map(|(name, weight, ..)| (name, weight)));
        for (member, (name, _, hash, multiplier)) in carp.members.iter().zip(members) {
            assert_eq!(member.hash, hash, "{name}");
            assert!((member.multiplier - multiplier).abs() < 1e-6, "{member:?}");
        }
    }

    #[test]
    fn the_hashes_are_those_of_the_draft() {
        // By hand: h("ab") = 97 + rotl(97, 19) + 98.
        assert_eq!(url_hash(b"a"), 97);
        assert_eq!(url_hash(b"ab"), 97 + (97 << 19) + 98);
        assert_eq!(member_hash("A"), member_hash("a"));
        let plain = 97_u32.wrapping_add(97_u32.wrapping_mul(0x6253_1965));
        assert_eq!(member_hash("a"), plain.rotate_left(21));
    }

    #[test]
    fn equal_weights_have_the_multiplier_one() {
        let carp = Carp::new([("a", 7), ("b", 7), ("c", 7)]);
        assert!(carp.members.iter().all(|member| (member.multiplier - 1.0).abs() < 1e-12));
    }

    #[test]
    fn each_member_gets_its_share() {
        let carp = Carp::new([("a", 50), ("b", 0), ("c", 10), ("d", 40)]);
        let mut counts = [0; 4];
        for number in 0..100_000 {
            let url = format!("http://origin.test/{number}");
            counts[carp.rank(url_hash(url.as_bytes())).next().expect("a member")] += 1;
        }
        // The hash is weak, so the shares are not exact.
        for (count, percent) in counts.into_iter().zip([50, 0, 10, 40]) {
            assert!((count - percent * 1000_i32).abs() <= 1500, "{counts:?}");
        }
        assert_eq!(counts[1], 0);
    }

    #[test]
    fn an_array_without_weights_has_no_members() {
        assert_eq!(Carp::new([("a", 0)]).rank(1).next(), None);
        assert_eq!(Carp::new([]).rank(1).next(), None);
    }

    #[test]
    fn a_rank_does_not_start_again_after_its_end() {
        let carp = Carp::new([("a", 1), ("b", 1)]);
        let mut rank = carp.rank(1);
        assert_eq!(rank.by_ref().count(), 2);
        assert_eq!([rank.next(), rank.next()], [None, None]);
    }

    proptest! {
        #[test]
        fn a_rank_names_each_member_once_by_descending_score(
            weights in prop::collection::vec(0_u32..1000, 1..128), hash: u32,
        ) {
            let names: Vec<String> = (0..weights.len()).map(|at| format!("peer{at}")).collect();
            let members = names.iter().map(String::as_str).zip(weights.iter().copied());
            let carp = Carp::new(members.clone());
            let ranked: Vec<usize> = carp.rank(hash).collect();
            let mut expected: Vec<usize> =
                (0..weights.len()).filter(|&at| weights[at] > 0).collect();
            expected.sort_by(|&a, &b| {
                let member = |at| carp.members.iter().find(|m| m.at == at).expect("ranked");
                let score = |at| member(at).score(hash);
                score(b).total_cmp(&score(a)).then(a.cmp(&b))
            });
            prop_assert_eq!(&ranked, &expected);

            // A member that leaves an array of equal members changes only its share.
            let equal = Carp::new(members.clone().map(|(name, _)| (name, 1)));
            let all: Vec<usize> = equal.rank(hash).collect();
            let fewer = Carp::new(members.take(weights.len() - 1).map(|(name, _)| (name, 1)));
            let rest: Vec<usize> = fewer.rank(hash).collect();
            let without: Vec<usize> =
                all.into_iter().filter(|&at| at != weights.len() - 1).collect();
            prop_assert_eq!(rest, without);
        }
    }
}

//! The Cache Array Routing Protocol: which of several parents is responsible for a URL
//! (draft-vinod-carp-v1-03, section 3).
//!
//! Each member gets a score from the hash of the URL and the hash of its name. The member with the
//! highest score is responsible. If it fails, the one with the next score is. A member that joins
//! or leaves changes only the URLs of its share. Nothing is sent: each child computes the same
//! result from the same names and weights.
//!
//! **Multipliers** are computed with 64 bits, as in Squid. The draft asks for 32. The results
//! differ for about one URL in ten million.
//!
//! **Squid 5.7 is different.** It hashes names, combines hashes and computes multipliers in the
//! same way. But it does not start again with the hash of the URL for each member: the hash that it
//! combines with the n-th member, in ascending order of weight, is that of the URL repeated n
//! times. So it often chooses another member than the draft. [`squid_rank`](Carp::squid_rank) does
//! the same, for a child that shares its parents with children that run Squid. Squid also gives no
//! load to a member with less than a thousandth of all weights; we do.

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
    /// Names are compared in lower case. Squid takes the `name` of a `cache_peer`, which is the
    /// host unless configured, as it is written.
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
        let sum: f64 = members.iter().map(|(_, weight)| weight).sum();
        let (mut product, mut last_multiplier, mut last_share) = (1.0, 0.0_f64, 0.0);
        let mut left = members.len() as f64;
        for (member, weight) in &mut members {
            let share = *weight / sum;
            let power = left * (share - last_share) / product + last_multiplier.powf(left);
            member.multiplier = power.powf(1.0 / left);
            product *= member.multiplier;
            (last_multiplier, last_share) = (member.multiplier, share);
            left -= 1.0;
        }
        Carp { members: members.into_iter().map(|(member, _)| member).collect() }
    }

    /// The members in the order in which to try them for a URL, as indices into the list that was
    /// given to [`Carp::new`]. Members without weight are not among them.
    ///
    /// Takes no memory. Each step computes the scores again, and rarely is more than the first
    /// member used.
    pub fn rank(&self, url_hash: u32) -> impl Iterator<Item = usize> {
        self.descending(url_hash, |hash| hash)
    }

    /// Like [`Carp::rank`], with the scores of Squid.
    pub fn squid_rank(&self, url: &[u8]) -> impl Iterator<Item = usize> {
        self.descending(url_hash(url), |hash| add_hash(hash, url))
    }

    /// The members by descending score. The first member's is made from the `first` hash, and each
    /// other's from the `next` hash after that of the member before it.
    fn descending(&self, first: u32, next: impl Fn(u32) -> u32) -> impl Iterator<Item = usize> {
        let mut last: Option<(f64, usize)> = None;
        std::iter::from_fn(move || {
            let mut hash = first;
            let mut best: Option<(f64, usize)> = None;
            for (place, member) in self.members.iter().enumerate() {
                if place > 0 {
                    hash = next(hash);
                }
                let this = (member.score(hash), member.at);
                if last.is_none_or(|last| is_above(last, this))
                    && best.is_none_or(|best| is_above(this, best))
                {
                    best = Some(this);
                }
            }
            last = best;
            best.map(|(_, at)| at)
        })
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
pub fn url_hash(url: &[u8]) -> u32 {
    add_hash(0, url)
}

fn member_hash(name: &str) -> u32 {
    spread(add_hash(0, name.to_ascii_lowercase().as_bytes()))
}

/// Continues a hash. The draft speaks of ASCII; other bytes have the sign that Squid's have.
fn add_hash(hash: u32, text: &[u8]) -> u32 {
    text.iter().fold(hash, |hash, &byte| {
        hash.wrapping_add(hash.rotate_left(19)).wrapping_add(byte as i8 as u32)
    })
}

/// Spreads similar hashes over all numbers.
fn spread(hash: u32) -> u32 {
    hash.wrapping_add(hash.wrapping_mul(0x6253_1965)).rotate_left(21)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzzing::fixture;

    /// The parents of the recording.
    const MEMBERS: [(&str, u32); 3] = [("alpha", 1), ("beta", 2), ("gamma", 5)];

    #[test]
    fn squid_chooses_the_same_members() {
        let carp = Carp::new(MEMBERS);
        let recording = String::from_utf8(fixture("carp.txt")).expect("a text");
        let (mut rows, mut by_the_draft) = (0, 0);
        for row in recording.lines() {
            let (url, name) = row.split_once(' ').expect("two columns");
            let first = carp.squid_rank(url.as_bytes()).next().expect("a member");
            assert_eq!(MEMBERS[first].0, name, "{url}");
            let draft = carp.rank(url_hash(url.as_bytes())).next().expect("a member");
            by_the_draft += usize::from(MEMBERS[draft].0 == name);
            rows += 1;
        }
        assert_eq!(rows, 300);
        // Squid is not the draft: see the documentation of this module.
        assert!(by_the_draft < rows, "{by_the_draft}");
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

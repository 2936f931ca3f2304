//! The answer to a purge: what was purged, how many responses that were, and what the other members
//! of a cluster have made of it.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a purge was of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// At the admin address without a scheme: it is purged in all of them.
    Url(String),
    /// All URLs that begin with this.
    Prefix(String),
    /// All responses with one of these tags.
    Tags(Vec<String>),
    /// Everything.
    All,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct Done {
    /// What was purged.
    pub purged: Target,
    /// Whether it is only stale now.
    pub soft: bool,
    /// A number that grows with each purge.
    pub generation: u64,
    /// The responses in memory that were removed or made stale, in a cluster by all members that
    /// say how many; `None`: there are too many to count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<u64>,
    /// Whether it would survive a crash, of a server with a store on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// The other members of a cluster, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Spread>,
}

impl Done {
    /// The status of the answer: that of [`Spread::status`], or 200 without a cluster.
    pub fn status(&self) -> u16 {
        self.cluster.as_ref().map_or(200, Spread::status)
    }
}

/// Which of the other members have purged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// They have, and will not serve the old response even after a crash.
    pub acknowledged: Vec<String>,
    /// They have not, as far as is known. It is sent to them again until they acknowledge it.
    pub waiting: Vec<String>,
    /// How many responses they have removed or made stale, where they say so.
    pub responses: BTreeMap<String, u64>,
}

impl Spread {
    /// 200 if all have purged, otherwise 202 (RFC 9110, 15.3.3).
    pub fn status(&self) -> u16 {
        if self.waiting.is_empty() { 200 } else { 202 }
    }
}

/// Adds what a member says that it has removed. It may say any number.
pub fn add(responses: &mut BTreeMap<String, u64>, member: String, count: Option<u64>) {
    if let Some(count) = count {
        let all = responses.entry(member).or_default();
        *all = all.saturating_add(count);
    }
}

/// The responses of all members for which the number is known, with those of this one.
pub fn sum(here: Option<u64>, cluster: Option<&Spread>) -> Option<u64> {
    let others = cluster.iter().flat_map(|spread| spread.responses.values());
    here.map(|here| others.fold(here, |sum, one| sum.saturating_add(*one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_members_say_that_they_have_purged_has_a_sum_whatever_they_say() {
        let mut spread = Spread::default();
        let rounds = [("a", Some(2)), ("b", Some(u64::MAX)), ("c", None), ("a", Some(3))];
        for (member, count) in rounds {
            add(&mut spread.responses, member.to_owned(), count);
        }
        assert_eq!(spread.responses["a"], 5);
        assert_eq!(sum(Some(1), Some(&spread)), Some(u64::MAX));
        add(&mut spread.responses, "b".to_owned(), Some(1));
        assert_eq!(spread.responses["b"], u64::MAX);
        spread.responses.remove("b");
        assert_eq!((sum(Some(1), Some(&spread)), spread.responses.len()), (Some(6), 1));
        assert_eq!((sum(Some(7), None), sum(None, Some(&spread))), (Some(7), None));
    }
}

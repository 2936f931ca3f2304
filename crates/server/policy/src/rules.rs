//! The rules of a configuration: conditions on requests and responses, and what they do.
//!
//! The rules of a request are judged for each of its readings, as its route is
//! ([`crate::routes`]). A rule whose condition reads the response is *late*: it is judged when the
//! response comes, for the usual reading of the request.
//!
//! What never happens: a rule whose condition does not hold for a reading decides about that
//! reading; a late rule changes the request.

use std::sync::atomic::{AtomicU8, Ordering};

use conditions::{
    Builder, Checked, Conditions, Facts, Id, Judge, Lists, Reads, ResponseFacts, Scope,
};
use config::limits::RULES_MAX;
use config::{Action, FieldRule, Group, Maintenance, Piece, Rewrite, StatusPattern, pieces};
use http1::{Fields, Name};

use crate::captures::Captured;

/// Why a condition can be compiled. One that was left out would open what it closes.
pub(crate) const CHECKED: &str = "the conditions of a file are checked when it is read";

/// The words of a [`RuleSet`].
const WORDS: usize = RULES_MAX.div_ceil(64);

/// Some of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleSet([u64; WORDS]);

impl RuleSet {
    /// Adds a rule.
    fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// These and others.
    #[must_use]
    pub fn with(&self, other: &RuleSet) -> RuleSet {
        RuleSet(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Their indices, in the order of the configuration. Most requests have an empty set, and look
    /// at it many times.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let (mut left, mut at) = (self.0, if self.is_empty() { WORDS } else { 0 });
        std::iter::from_fn(move || {
            while at < WORDS {
                let word = left[at];
                if word != 0 {
                    left[at] = word & (word - 1);
                    return Some(at * 64 + word.trailing_zeros() as usize);
                }
                at += 1;
            }
            None
        })
    }
}

/// Whether maintenance is on: by a file, or by an operator at the admin address.
#[derive(Debug, Default)]
pub struct Switch(AtomicU8);

const BY_FILE: u8 = 1;
const BY_OPERATOR: u8 = 2;

impl Switch {
    /// Whether it is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Sets whether the file exists, or what the operator has said. True if that is new.
    pub fn set(&self, by_file: bool, on: bool) -> bool {
        let bit = if by_file { BY_FILE } else { BY_OPERATOR };
        let before = match on {
            true => self.0.fetch_or(bit, Ordering::Relaxed),
            false => self.0.fetch_and(!bit, Ordering::Relaxed),
        };
        (before & bit != 0) != on
    }

    /// What has switched it on, in words.
    pub fn text(&self) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            0 => "off",
            BY_FILE => "on, by the file",
            BY_OPERATOR => "on, by the admin address",
            _ => "on, by the file and by the admin address",
        }
    }
}

/// All rules, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Rules {
    all: Box<[Rule]>,
    /// The last of all rules is that for maintenance. It is the first to be judged.
    has_maintenance: bool,
    /// The conditions of those that are judged by the request, with the indices of the rules.
    early: Vec<Id>,
    early_at: Vec<usize>,
    /// The same of those that are judged by the response.
    late: Vec<Id>,
    late_at: Vec<usize>,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// As configured.
    pub config: config::Rule,
    /// The index of the group that it leads to.
    pub group: Option<usize>,
    mirror: Option<usize>,
    /// Its condition names statuses.
    names_status: bool,
    /// Its condition.
    pub id: Id,
    /// The named groups of its condition.
    captures: Box<[String]>,
    /// Whether a text of it repeats a value or a capture.
    expands: bool,
    /// Whether the upstream gets something that it has captured.
    pub(crate) sends_captures: bool,
}

impl Rules {
    /// Those of a configuration, whose conditions are added to `conditions`.
    pub(crate) fn new(
        (rules, maintenance): (&[config::Rule], Option<&Maintenance>),
        groups: &[Group],
        (conditions, lists): (&mut Builder, &Lists),
    ) -> Rules {
        let mut made = Rules { has_maintenance: maintenance.is_some(), ..Rules::default() };
        let mut all = Vec::with_capacity(rules.len());
        let maintenance = maintenance.map(|maintenance| &maintenance.rule);
        for config in rules.iter().chain(maintenance).take(RULES_MAX) {
            let text = config.when.as_str();
            let checked = conditions::check(text, Scope::Response, lists).expect(CHECKED);
            let id = conditions.add(text, Scope::Response).expect(CHECKED);
            let is_late = config::Rule::is_of_response(checked.reads());
            let (ids, places) = match is_late {
                true => (&mut made.late, &mut made.late_at),
                false => (&mut made.early, &mut made.early_at),
            };
            ids.push(id);
            places.push(all.len());
            all.push(Rule::new(config, groups, id, &checked));
        }
        if made.has_maintenance {
            made.early.rotate_right(1);
            made.early_at.rotate_right(1);
        }
        made.all = all.into();
        made
    }

    /// Whether this is the rule for maintenance.
    pub fn is_maintenance(&self, at: usize) -> bool {
        self.has_maintenance && at + 1 == self.all.len()
    }

    /// All of them.
    pub fn all(&self) -> &[Rule] {
        &self.all
    }

    /// Whether there are none.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// Those of the request that apply: their conditions hold, and of those that lead somewhere the
    /// first. `answers`: rules that answer are among them. `maintains`: maintenance is on.
    pub(crate) fn early(
        &self,
        judge: &mut Judge<'_, '_>,
        (answers, maintains): (bool, bool),
    ) -> RuleSet {
        let mut set = RuleSet::default();
        let mut leads = false;
        let skipped = usize::from(self.has_maintenance && !maintains);
        judge.matching(&self.early[skipped..], |nth| {
            let at = self.early_at[nth + skipped];
            let action = &self.all[at].config.action;
            let does_answer =
                matches!(action, Some(Action::Redirect { .. } | Action::Answer { .. }));
            let is_leading = action.is_some() && (answers || !does_answer);
            let is_left_out = does_answer && !answers;
            if !(is_leading && leads || is_left_out) {
                set.insert(at);
            }
            leads |= is_leading;
        });
        set
    }

    /// Those of the response that hold.
    pub(crate) fn late(&self, judge: &mut Judge<'_, '_>) -> RuleSet {
        let mut set = RuleSet::default();
        judge.matching(&self.late, |nth| set.insert(self.late_at[nth]));
        set
    }

    /// The conditions of those of the response.
    pub(crate) fn late_ids(&self) -> &[Id] {
        &self.late
    }

    /// The conditions of those of the request.
    pub(crate) fn early_ids(&self) -> &[Id] {
        &self.early
    }

    /// Those of a set.
    pub fn of(&self, set: &RuleSet) -> impl Iterator<Item = &Rule> {
        set.iter().map(|at| &self.all[at])
    }

    /// The first of a set that leads somewhere.
    pub(crate) fn leading(&self, set: &RuleSet) -> Option<&Rule> {
        self.of(set).find(|rule| rule.config.action.is_some())
    }

    /// What the conditions of a set have captured, in the order of the rules.
    pub(crate) fn captured(
        &self,
        set: &RuleSet,
        conditions: &Conditions,
        facts: &Facts<'_>,
        captured: &mut Captured,
    ) {
        self.of(set).for_each(|rule| rule.capture(conditions, facts, captured));
    }

    /// What the condition of a rule has captured.
    pub(crate) fn captured_by(
        &self,
        rule: &Rule,
        conditions: &Conditions,
        facts: &Facts<'_>,
    ) -> Captured {
        let mut captured = Captured::default();
        rule.capture(conditions, facts, &mut captured);
        captured
    }
}

impl Rule {
    fn new(config: &config::Rule, groups: &[Group], id: Id, checked: &Checked) -> Rule {
        let captures = checked.captures();
        let names_status = checked.reads().contains(Reads::STATUS);
        let place = |name: &String| groups.iter().position(|group| group.name == *name);
        let group = match &config.action {
            Some(Action::Group(name)) => place(name),
            _ => None,
        };
        let mirror = config.mirror.as_ref().and_then(place);
        let repeats = |text: &str| pieces(text).any(|piece| matches!(piece, Piece::Capture(_)));
        let of_action = match &config.action {
            Some(Action::Redirect { location, .. }) => repeats(location),
            Some(Action::Answer { body, .. }) => repeats(body),
            Some(Action::Group(_)) | None => false,
        };
        let sends = config.request.iter().any(|rule| repeats(rule.value()));
        let of_response = config.response.iter().any(|rule| repeats(rule.value()));
        let expands = of_action || sends || of_response || config.rewrite.is_some();
        let sends_captures = !captures.is_empty() && (sends || config.rewrite.is_some());
        let (config, captures) = (config.clone(), captures.into());
        Rule { config, group, mirror, names_status, id, captures, expands, sends_captures }
    }

    /// Whether a text of it repeats a value or a capture.
    pub fn expands(&self) -> bool {
        self.expands
    }

    fn capture(&self, conditions: &Conditions, facts: &Facts<'_>, captured: &mut Captured) {
        for name in &self.captures {
            // A group that took no part has captured nothing.
            captured.add(name, conditions.capture(self.id, name, facts).unwrap_or_default());
        }
    }

    /// Whether it gives a lifetime to responses with this status. Errors have to be named.
    pub(crate) fn covers(&self, status: u16) -> bool {
        let is_of_client = StatusPattern::is_of_one_client(status);
        !is_of_client && (self.names_status || crate::lifetimes::is_usual(status))
    }

    /// The index of the group that gets a copy of the request.
    pub fn mirror(&self) -> Option<usize> {
        self.mirror
    }

    /// Whether it changes what is sent to the upstream, or the response.
    pub(crate) fn changes(&self) -> bool {
        let Rule { config, .. } = self;
        !config.request.is_empty() || !config.response.is_empty() || config.rewrite.is_some()
    }

    /// The path that it makes of a normalised path; `None`: the path has not its prefix.
    pub(crate) fn rewritten(&self, requested: &[u8], captured: &Captured) -> Option<Vec<u8>> {
        match self.config.rewrite.as_ref()? {
            Rewrite::Strip(prefix) => {
                let rest = requested.strip_prefix(prefix.as_bytes())?;
                match rest {
                    [] => Some(b"/".to_vec()),
                    [b'/', ..] => Some(crate::captures::encoded(rest, true).into_bytes()),
                    _ => None,
                }
            }
            Rewrite::To(path) => {
                let path = captured.expand_path(path, requested);
                debug_assert!(path.starts_with('/'), "a rewritten path was checked");
                Some(path.into_bytes())
            }
        }
    }
}

/// What conditions read of a response. A part and a 304 are judged as the whole response that they
/// are of.
pub fn response_facts(status: u16, fields: Fields<'_>) -> ResponseFacts<'_> {
    let is_partial = matches!(status, 206 | 304);
    let length = match status {
        304 => None,
        206 => {
            let range = fields.values(b"content-range").next();
            range.and_then(|range| range.rsplit(|byte| *byte == b'/').next())
        }
        _ => fields.get(Name::ContentLength),
    };
    let size = length.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
    ResponseFacts { status: if is_partial { 200 } else { status }, fields, size }
}

/// What a condition of the request may read if a fresh hit is to be judged in its turn: the turn
/// knows no TLS session, and one request draws one random number.
pub(crate) fn needs_exchange(reads: Reads) -> bool {
    reads.contains(Reads::TLS) || reads.contains(Reads::RANDOM)
}

/// The fields that rules change, after those of a route.
pub(crate) fn changes<'r>(
    route: &'r [FieldRule],
    rules: impl Iterator<Item = &'r [FieldRule]>,
) -> Vec<FieldRule> {
    route.iter().chain(rules.flatten()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_rules_keeps_their_order() {
        let mut set = RuleSet::default();
        assert!(set.is_empty());
        for at in [RULES_MAX - 1, 64, 3, 63, 0] {
            set.insert(at);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63, 64, RULES_MAX - 1]);
    }
}

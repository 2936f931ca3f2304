//! Small wrong histories: each rule of the checker can fail, and a right history breaks none.

use super::client::{Kind, What};
use super::origin::ADDRESS;
use super::*;

const MS: Micros = 1000;

/// One URL, fresh for ten seconds, and usable on an error for a minute more.
fn right() -> History {
    let usual = Policy { lifetime_s: 10, if_error_s: 60, size: 100, ..Policy::default() };
    let history = History { policies: vec![usual], ..History::default() };
    let history =
        history.fetched(1000, 1).got(1000, 1100, 0, "fwd=uri-miss; fwd-status=200; stored");
    history.got(3000, 3010, 0, "hit")
}

fn get() -> What {
    What::get(0, 0, (ADDRESS, Version::Http1))
}

impl History {
    /// The origin is asked, and answers with this version a tenth of a second later.
    fn fetched(mut self, start_ms: u64, version: u32) -> History {
        let (start, end) = (start_ms * MS, (start_ms + 90) * MS);
        let method = "GET".to_owned();
        let needs = end - start;
        self.fetches.push(Fetch {
            method,
            start,
            dated: start,
            end,
            needs,
            version,
            status: 200,
            ..Fetch::default()
        });
        self
    }

    /// The last of them was different.
    fn but(mut self, change: impl Fn(&mut Fetch)) -> History {
        change(self.fetches.last_mut().unwrap());
        self
    }

    /// A client gets what a fetch brought.
    fn got(self, start_ms: u64, end_ms: u64, fetch: usize, status: &str) -> History {
        let Fetch { version, status: code, .. } = self.fetches[fetch];
        let answer = Answer {
            status: code,
            fetch: Some(fetch),
            version: Some(version),
            bytes: 100,
            cache_status: format!("plimsoll; {status}"),
            ..Answer::default()
        };
        self.ended(start_ms, end_ms, Got::Whole(answer))
    }

    fn ended(mut self, start_ms: u64, end_ms: u64, got: Got) -> History {
        let (start, end) = (start_ms * MS, end_ms * MS);
        self.requests.push(Request { what: get(), start, end, got });
        self
    }

    /// The last of the requests was different.
    fn by(mut self, change: impl Fn(&mut Request)) -> History {
        change(self.requests.last_mut().unwrap());
        self
    }

    fn answered(self, change: impl Fn(&mut Answer)) -> History {
        self.by(|request| {
            let Got::Whole(answer) = &mut request.got else { panic!("no answer") };
            change(answer);
        })
    }

    fn purged(mut self, at_ms: u64, soft: bool) -> History {
        let (start, end) = (at_ms * MS, (at_ms + 1) * MS);
        self.purges.push(Purge { by: "url".to_owned(), urls: vec![0], soft, start, end });
        self
    }

    fn with(mut self, change: impl Fn(&mut Policy)) -> History {
        change(&mut self.policies[0]);
        self
    }

    fn breaks(&self, rules: &[&str]) {
        let mut broken: Vec<&str> = checker::violations(self).iter().map(|v| v.rule).collect();
        broken.dedup();
        assert_eq!(broken, rules, "{}", checker::report(self).unwrap_or_default());
    }
}

#[test]
fn a_right_history_breaks_no_rule() {
    right().breaks(&[]);
    // A stale response in place of an error, and the error itself when it is too old for that.
    let failing = |at_ms| right().fetched(at_ms, 1).but(|fetch| fetch.status = 503);
    let failing = |at_ms| failing(at_ms).but(|fetch| fetch.fault = Some(Fault::Status(503)));
    let stale = "hit; ttl=-40; detail=stale-if-error";
    failing(51_000).got(51_000, 51_100, 0, stale).breaks(&[]);
    failing(99_000).got(99_000, 99_100, 1, "fwd=stale; fwd-status=503").breaks(&[]);
}

#[test]
fn a_body_of_two_versions_is_noticed() {
    let rule = "no body is wrong or of two versions";
    right().answered(|answer| answer.wrong = Some(vec![1, 2])).breaks(&[rule]);
}

#[test]
fn a_failure_without_a_cause_is_noticed() {
    let rule = "no failure is without a cause";
    right().ended(90_000, 90_010, Got::Broken).breaks(&[rule]);
    right().ended(90_000, NEVER / MS, Got::Waits).breaks(&[rule]);
    let cut = right().fetched(90_000, 2).but(|fetch| fetch.fault = Some(Fault::Cut));
    cut.ended(90_000, 90_100, Got::Broken).breaks(&[]);
}

#[test]
fn an_older_version_after_a_newer_one_is_noticed() {
    let rule = "no older version follows a newer one from the store";
    let reload = |history: History| history.by(|request| request.what.reload = Some("no-cache"));
    let both = || reload(right().fetched(4000, 2).got(4000, 4100, 1, "fwd=request; stored"));
    both().got(5000, 5010, 1, "hit").breaks(&[]);
    both().got(5000, 5010, 0, "hit").breaks(&[rule]);
    // A request that had begun before, and one that allows it.
    both().got(4050, 5010, 0, "hit").breaks(&[]);
    both().got(5000, 5010, 0, "hit").by(|request| request.what.max_stale = true).breaks(&[]);
    // Another variant.
    let other = both().with(|policy| policy.varies = true).got(5000, 5010, 0, "hit");
    other.by(|request| request.what.variant = 1).breaks(&[]);
}

#[test]
fn what_outlives_a_change_or_a_purge_is_noticed() {
    let rule = "nothing outlives a change or a purge";
    let stale = "hit; ttl=-2; detail=stale-while-revalidate";
    right().purged(4000, false).got(5000, 5010, 0, "hit").breaks(&[rule]);
    right().purged(4000, false).got(5000, 5010, 0, stale).breaks(&[rule]);
    right().purged(4000, true).got(5000, 5010, 0, "hit").breaks(&[rule]);
    right().purged(4000, true).got(5000, 5010, 0, stale).breaks(&[]);
    let put = right().fetched(4000, 2).but(|fetch| fetch.method = "PUT".to_owned());
    let put = put.got(4000, 4100, 1, "fwd=method").answered(|answer| answer.version = None);
    let put = put.by(|request| request.what.kind = Kind::Change("PUT"));
    put.got(5000, 5010, 0, "hit").breaks(&[rule]);
}

#[test]
fn a_fault_of_the_origin_beside_a_usable_copy_is_noticed() {
    let rule = "a usable copy hides the faults of the origin";
    let cut = || right().fetched(20_000, 2).but(|fetch| fetch.fault = Some(Fault::Cut));
    cut().ended(20_000, 20_100, Got::Broken).breaks(&[rule]);
    // A large body, a copy that is too old, and one that has been purged.
    let large = cut().with(|policy| policy.size = WINDOW_BYTES + 1);
    large.ended(20_000, 20_100, Got::Broken).breaks(&[]);
    let short = cut().with(|policy| policy.if_error_s = 5);
    short.ended(20_000, 20_100, Got::Broken).breaks(&[]);
    cut().purged(15_000, false).ended(20_000, 20_100, Got::Broken).breaks(&[]);
    let fails = right().fetched(20_000, 2).but(|fetch| fetch.status = 500);
    let fails = fails.but(|fetch| fetch.fault = Some(Fault::Status(500)));
    fails.got(20_000, 20_100, 1, "fwd=stale; fwd-status=500").breaks(&[rule]);
}

#[test]
fn a_fresh_copy_that_is_not_used_is_noticed() {
    let rule = "a fresh copy is used";
    let again = |at_ms| right().fetched(at_ms, 1).got(at_ms, at_ms + 100, 1, "fwd=uri-miss");
    again(5000).breaks(&[rule]);
    again(15_000).breaks(&[]);
    again(5000).by(|request| request.what.reload = Some("max-age=0")).breaks(&[]);
    again(5000).purged(4000, true).breaks(&[]);
}

#[test]
fn a_herd_that_costs_too_much_is_noticed() {
    let rule = "a herd costs the fetches that it needs";
    let member = |history: History, fetch, status| {
        history.got(20_000, 20_200, fetch, status).by(|request| request.what.herd = Some(0))
    };
    let herd = |fetches: usize| {
        let history = (0..fetches).fold(right(), |history, _| history.fetched(20_010, 2));
        let history = member(history, 1, "fwd=stale; fwd-status=200; stored");
        (0..3).fold(history, |history, _| member(history, 1, "fwd=stale; collapsed"))
    };
    herd(1).breaks(&[]);
    herd(2).breaks(&[rule]);
    herd(2).but(|fetch| fetch.fault = Some(Fault::Private)).breaks(&[]);
    herd(2).purged(20_050, true).breaks(&[]);
}

#[test]
fn a_client_that_waits_for_a_slow_one_is_noticed() {
    let rule = "a slow client delays no other";
    right().got(4000, 9000, 0, "hit").breaks(&[rule]);
    right().got(4000, 9000, 0, "hit").by(|request| request.got = Got::Left).breaks(&[]);
    let slow = right().fetched(30_000, 2).but(|fetch| fetch.needs = 5 * SECOND);
    slow.got(30_000, 35_010, 1, "fwd=stale; stored").breaks(&[]);
}

#[test]
fn an_answer_for_one_client_that_another_gets_is_noticed() {
    let rule = "an answer for one client is given to one";
    let odd = |fault| {
        let history = right().fetched(20_000, 1).but(|fetch| fetch.fault = fault);
        history.got(20_000, 20_100, 1, "fwd=stale").got(20_000, 20_100, 1, "fwd=stale; collapsed")
    };
    odd(None).breaks(&[]);
    odd(Some(Fault::Private)).breaks(&[rule]);
    let cookie =
        |history: History| history.answered(|answer| answer.cookie = Some("id=1".to_owned()));
    let history = right().fetched(20_000, 1).but(|fetch| fetch.cookie = true);
    let history = cookie(history.got(20_000, 20_100, 1, "fwd=stale; stored"));
    // Without the field it is for all.
    let clean = history.got(20_200, 20_210, 1, "hit");
    clean.breaks(&[]);
    cookie(clean.got(20_300, 20_310, 1, "hit")).breaks(&[rule]);
}

#[test]
fn an_error_of_a_range_that_another_gets_is_noticed() {
    let rule = "an error that a range or a HEAD drew is not for others";
    let error = || {
        let history = right().fetched(20_000, 0).but(|fetch| {
            (fetch.status, fetch.has_range) = (400, true);
        });
        history.got(20_000, 20_100, 1, "fwd=stale; fwd-status=400; stored")
    };
    let error = || error().by(|request| request.what.kind = Kind::Range);
    error().breaks(&[]);
    error().got(20_200, 20_210, 1, "hit").breaks(&[rule]);
}

#[test]
fn stale_while_revalidate_after_a_refusal_is_noticed() {
    let rule = "an answer that may not be stored ends stale-while-revalidate";
    let stale = "hit; ttl=-12; detail=stale-while-revalidate";
    let refused = |fault| {
        let history = right().with(|policy| policy.while_revalidate_s = 60);
        let history = history.got(20_000, 20_010, 0, stale);
        history.fetched(20_000, 0).but(|fetch| fetch.fault = Some(fault))
    };
    for fault in [Fault::Private, Fault::Status(403)] {
        refused(fault).got(23_000, 23_010, 0, stale).breaks(&[rule]);
    }
    for fault in [Fault::Status(503), Fault::Status(429), Fault::Cut] {
        refused(fault).got(23_000, 23_010, 0, stale).breaks(&[]);
    }
}

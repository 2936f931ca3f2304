//! The rule, compared with a table of sentences over all pairs of facts, and its order.

use proptest::prelude::*;

use super::*;
use crate::fields::Response;
use crate::freshness::Exchange;
use crate::storing::Policy;

const NOW_MS: u64 = 1_780_000_000_000;

fn meta(control: &str) -> StoredMeta {
    let fields = [("Cache-Control", control)];
    let exchange = Exchange { request_ms: NOW_MS, response_ms: NOW_MS };
    StoredMeta::of(&Response { status: 200, fields: &fields }, exchange, &Policy::SHARED)
}

#[test]
fn a_response_is_usable_while_a_rule_allows_its_use() {
    for (control, usable_s, useless_s) in [
        ("max-age=10, must-revalidate", 9, 10),
        ("max-age=10, proxy-revalidate", 9, 10),
        ("s-maxage=10", 9, 10),
        ("max-age=10, stale-if-error=5", 15, 16),
        ("max-age=10, stale-if-error=5, stale-while-revalidate=7", 17, 18),
        ("max-age=10, stale-while-revalidate=7", 24 * 3600 + 10, 24 * 3600 + 11),
        ("max-age=10", 24 * 3600 + 10, 24 * 3600 + 11),
    ] {
        let meta = meta(control);
        assert!(meta.is_usable(NOW_MS + usable_s * 1000), "{control} after {usable_s} s");
        assert!(!meta.is_usable(NOW_MS + useless_s * 1000), "{control} after {useless_s} s");
    }
    assert!(!meta("no-cache, max-age=10").is_usable(NOW_MS));
}

#[test]
fn a_response_without_date_is_as_old_as_its_request() {
    let edition = |fields: &[(&str, &str)], request_ms, response_ms| {
        let exchange = Exchange { request_ms, response_ms };
        let response = Response { status: 200, fields };
        Edition::of(&StoredMeta::of(&response, exchange, &Policy::SHARED), true, response_ms)
    };
    let early = edition(&[], NOW_MS + 100, NOW_MS + 9000);
    let late = edition(&[], NOW_MS + 2000, NOW_MS + 3000);
    assert_eq!((early.date_ms, late.date_ms), (NOW_MS, NOW_MS + 2000));
    assert_eq!(may_replace(&late, &early, Fetches::Overlap), Err(Kept::Older));
    let dated = edition(&[("Date", "Thu, 28 May 2026 20:26:43 GMT")], NOW_MS + 100, NOW_MS + 9000);
    assert_eq!(dated.date_ms, NOW_MS + 3000);
}

fn edition() -> impl Strategy<Value = Edition> {
    (0u64..4, 0u64..4, any::<[bool; 4]>()).prop_map(|(date_ms, requested_ms, is)| Edition {
        date_ms,
        requested_ms,
        is_whole: is[0],
        is_usable: is[1],
        is_purged: is[2],
        is_error: is[3],
    })
}

fn fetches() -> impl Strategy<Value = Fetches> {
    prop_oneof![Just(Fetches::OneAfterTheOther), Just(Fetches::Overlap)]
}

/// The same rule as a table of sentences, each tried by itself.
fn reasons(stored: &Edition, new: &Edition, fetches: Fetches) -> Vec<Kept> {
    let overlap = fetches == Fetches::Overlap;
    let same_purge = stored.is_purged == new.is_purged;
    let earlier_date = new.date_ms < stored.date_ms;
    let earlier_request = new.date_ms == stored.date_ms && new.requested_ms < stored.requested_ms;
    let usable_whole = stored.is_whole && stored.is_usable;
    [
        (overlap && new.is_purged && !stored.is_purged, Kept::Purged),
        (overlap && same_purge && (earlier_date || earlier_request), Kept::Older),
        (!new.is_whole && usable_whole, Kept::PartOfUsable),
        (!overlap && new.is_error && !stored.is_error && usable_whole, Kept::ErrorOverUsable),
    ]
    .into_iter()
    .filter_map(|(holds, kept)| holds.then_some(kept))
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_rule_is_the_table(stored in edition(), new in edition(), fetches in fetches()) {
        let reasons = reasons(&stored, &new, fetches);
        match may_replace(&stored, &new, fetches) {
            Ok(()) => prop_assert!(reasons.is_empty(), "{reasons:?}"),
            Err(kept) => prop_assert!(reasons.contains(&kept), "{kept:?}, not {reasons:?}"),
        }
    }

    /// Of two whole responses whose fetches overlap, the same one is stored in the end, whichever
    /// arrives last. Only a complete tie is decided by the order of arrival.
    #[test]
    fn the_order_of_arrival_does_not_matter(a in edition(), b in edition()) {
        let (a, b) = (Edition { is_whole: true, ..a }, Edition { is_whole: true, ..b });
        let b_wins = may_replace(&a, &b, Fetches::Overlap).is_ok();
        let a_wins = may_replace(&b, &a, Fetches::Overlap).is_ok();
        let of = |e: &Edition| (!e.is_purged, e.date_ms, e.requested_ms);
        prop_assert_eq!(a_wins && b_wins, of(&a) == of(&b));
        prop_assert!(a_wins || b_wins);
    }

    /// Among three, no circle: a response that loses to one that loses to a third loses to it.
    #[test]
    fn the_order_of_whole_responses_is_transitive(
        a in edition(), b in edition(), c in edition(),
    ) {
        let [a, b, c] = [a, b, c].map(|edition| Edition { is_whole: true, ..edition });
        let replaces = |stored: &Edition, new: &Edition| {
            may_replace(stored, new, Fetches::Overlap).is_ok()
        };
        prop_assert!(!(replaces(&a, &b) && replaces(&b, &c)) || replaces(&a, &c));
    }

    #[test]
    fn a_usable_whole_outlives_every_part(
        stored in edition(), new in edition(), fetches in fetches(),
    ) {
        let stored = Edition { is_whole: true, is_usable: true, ..stored };
        let part = Edition { is_whole: false, ..new };
        prop_assert!(may_replace(&stored, &part, fetches).is_err());
    }

    #[test]
    fn a_usable_whole_outlives_every_later_error(stored in edition(), new in edition()) {
        let stored = Edition { is_whole: true, is_usable: true, is_error: false, ..stored };
        let error = Edition { is_error: true, ..new };
        prop_assert!(may_replace(&stored, &error, Fetches::OneAfterTheOther).is_err());
    }
}

//! RFC 9111, 4.2: lifetimes by table, ages against arithmetic in wide integers.

use proptest::prelude::*;

use super::*;

const RULES: LifetimeRules = LifetimeRules {
    shared: true,
    heuristic: true,
    heuristic_percent: 10,
    heuristic_lifetime_ms_max: 86_400_000,
};
/// 1994-11-06 08:49:37
const NOW_MS: u64 = 784_111_777_000;
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn computed(fields: &[(&str, &str)], rules: LifetimeRules) -> Freshness {
    let exchange = Exchange { request_ms: NOW_MS, response_ms: NOW_MS };
    freshness(&CacheControl::of(fields), fields, exchange, rules)
}

#[test]
fn rfc9111_4_2_1_lifetimes_in_order_of_precedence() {
    use InvalidFreshness as I;
    use LifetimeSource as L;
    let later = "Sun, 06 Nov 1994 08:50:37 GMT";
    let earlier = "Sun, 06 Nov 1994 08:47:57 GMT";
    type Row<'a> = (&'a [(&'a str, &'a str)], u64, L);
    let table: &[Row<'_>] = &[
        (&[("Cache-Control", "max-age=1, s-maxage=2"), ("Expires", later)], 2_000, L::SMaxage),
        (&[("Cache-Control", "max-age=1"), ("Expires", later)], 1_000, L::MaxAge),
        (&[("Cache-Control", "max-age=0"), ("Expires", later)], 0, L::MaxAge),
        (&[("Cache-Control", "max-age=9"), ("Expires", "0")], 9_000, L::MaxAge),
        (&[("Expires", later), ("Last-Modified", earlier)], 60_000, L::Expires),
        (&[("Expires", earlier)], 0, L::Expires),
        (&[("Expires", DATE)], 0, L::Expires),
        (&[("Expires", "0"), ("Last-Modified", earlier)], 0, L::Invalid(I::Expires)),
        (&[("Expires", later), ("Expires", DATE)], 0, L::Invalid(I::Expires)),
        (&[("Expires", later), ("Expires", later)], 60_000, L::Expires),
        (&[("Cache-Control", "max-age=x"), ("Expires", later)], 0, L::Invalid(I::MaxAge)),
        (&[("Cache-Control", "s-maxage=, max-age=5")], 0, L::Invalid(I::SMaxage)),
        (&[("Last-Modified", earlier)], 10_000, L::Heuristic),
        (&[("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT")], 86_400_000, L::Heuristic),
        (&[("Last-Modified", later)], 0, L::Unstated),
        (&[("Last-Modified", "yesterday")], 0, L::Unstated),
        (&[], 0, L::Unstated),
    ];
    for (fields, lifetime_ms, source) in table {
        let mut fields = fields.to_vec();
        fields.push(("Date", DATE));
        let freshness = computed(&fields, RULES);
        let got = (freshness.lifetime_ms, freshness.lifetime_source);
        assert_eq!(got, (*lifetime_ms, *source), "{fields:?}");
    }
}

#[test]
fn rfc9111_5_2_2_10_a_private_cache_ignores_s_maxage() {
    let private = LifetimeRules { shared: false, ..RULES };
    let freshness = computed(&[("Cache-Control", "s-maxage=9, max-age=1")], private);
    assert_eq!(freshness.lifetime_source, LifetimeSource::MaxAge);
    let guessed = computed(
        &[("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT")],
        LifetimeRules { heuristic: false, ..RULES },
    );
    assert_eq!(guessed.lifetime_source, LifetimeSource::Unstated);
}

#[test]
fn rfc9110_6_6_1_without_a_date_the_receipt_counts() {
    let later = "Sun, 06 Nov 1994 08:50:37 GMT";
    for date in ["foo", ""] {
        let freshness = computed(&[("Date", date), ("Expires", later)], RULES);
        assert_eq!((freshness.date_value_ms, freshness.lifetime_ms), (NOW_MS, 60_000));
    }
}

#[test]
fn rfc9111_5_1_the_first_age_counts_and_nonsense_is_ignored() {
    for (lines, seconds) in [
        (&["7200"][..], 7200),
        (&["7200, 0"], 7200),
        (&["0, 7200"], 0),
        (&["7200", "0"], 7200),
        (&["0", "7200"], 0),
        (&["-7200"], 0),
        (&["7200.0"], 0),
        (&["abc"], 0),
        (&["7200;foo=bar"], 0),
        (&["2147483649"], 1 << 31),
    ] {
        let fields: Vec<_> = lines.iter().map(|&value| ("Age", value)).collect();
        assert_eq!(age_value(&fields), seconds, "{lines:?}");
    }
}

fn corrected_initial_age_ms(date_ms: Option<u64>, age_ms: u64, exchange: Exchange) -> u64 {
    let Exchange { request_ms, response_ms } = exchange;
    let age = AgeOnArrival {
        apparent_age_ms: apparent_age_ms(date_ms.unwrap_or(response_ms), response_ms),
        age_value_ms: age_ms,
        response_delay_ms: response_ms.saturating_sub(request_ms),
    };
    age.corrected_initial_age_ms()
}

#[test]
fn rfc9111_4_2_3_initial_age() {
    let at = |date_ms: Option<u64>, age_ms, request_ms, response_ms| {
        corrected_initial_age_ms(date_ms, age_ms, Exchange { request_ms, response_ms })
    };
    assert_eq!(at(Some(NOW_MS), 0, NOW_MS, NOW_MS + 999), 999, "only the delay");
    assert_eq!(at(Some(NOW_MS), 0, NOW_MS + 5999, NOW_MS + 5999), 5000, "whole seconds");
    assert_eq!(at(Some(NOW_MS - 9000), 3000, NOW_MS, NOW_MS + 500), 9000, "apparent age");
    assert_eq!(at(Some(NOW_MS), 3000, NOW_MS, NOW_MS + 500), 3500, "Age and the delay");
    assert_eq!(at(Some(NOW_MS + 50_000), 0, NOW_MS, NOW_MS), 0, "a clock ahead");
    assert_eq!(at(None, 0, NOW_MS + 7, NOW_MS), 0, "our clock set back");
}

#[test]
fn the_terms_of_the_initial_age_are_kept() {
    for (date, age, request_ms, response_ms) in [
        (DATE, "4", NOW_MS, NOW_MS + 700),
        (DATE, "0", NOW_MS + 9_000, NOW_MS + 9_999),
        ("no date", "2147483648", NOW_MS, NOW_MS + 1),
    ] {
        let fields = [("Date", date), ("Age", age)];
        let exchange = Exchange { request_ms, response_ms };
        let of = freshness(&CacheControl::of(&fields[..]), &fields[..], exchange, RULES);
        let terms = of.age_on_arrival();
        assert_eq!(terms.corrected_initial_age_ms(), of.corrected_initial_age_ms, "{date}");
        assert_eq!(terms.response_delay_ms, response_ms - request_ms, "{date}");
    }
}

#[test]
fn fresh_until_is_the_first_stale_instant() {
    let freshness =
        computed(&[("Date", DATE), ("Age", "4"), ("Cache-Control", "max-age=10")], RULES);
    let until_ms = freshness.fresh_until_ms();
    assert_eq!(until_ms, NOW_MS + 6000);
    assert!(freshness.is_fresh(until_ms - 1) && !freshness.is_fresh(until_ms));
    assert_eq!((freshness.age_seconds(NOW_MS + 999), freshness.ttl_seconds(NOW_MS)), (4, 6));
    assert_eq!(freshness.ttl_seconds(until_ms + 1), -1);
    assert_eq!(freshness.staleness_ms(until_ms + 1500), 1500);
    assert_eq!(freshness.current_age_ms(0), 4000, "a clock set back makes nothing younger");
}

/// RFC 9111, 4.2.3, in integers that cannot overflow.
fn slow_age(date: u64, age: u64, request: u64, response: u64, now: u64) -> i128 {
    let wide = i128::from;
    let apparent = (wide(response) / 1000 * 1000 - wide(date)).max(0);
    let corrected = wide(age) + (wide(response) - wide(request)).max(0);
    apparent.max(corrected) + (wide(now) - wide(response)).max(0)
}

proptest! {
    #[test]
    fn ages_agree_with_wide_integers(
        date in any::<u64>(), age in 0u64..=(1 << 31), request in any::<u64>(),
        response in any::<u64>(), now in any::<u64>(), lifetime in 0u64..(1 << 43),
    ) {
        let exchange = Exchange { request_ms: request, response_ms: response };
        let freshness = Freshness {
            date_value_ms: date,
            lifetime_ms: lifetime,
            lifetime_source: LifetimeSource::MaxAge,
            corrected_initial_age_ms: corrected_initial_age_ms(Some(date), age * 1000, exchange),
            response_ms: response,
            age_value_seconds: age as u32,
            response_delay_ms: 0,
        };
        let slow = slow_age(date, age * 1000, request, response, now).min(i128::from(u64::MAX));
        prop_assert_eq!(i128::from(freshness.current_age_ms(now)), slow);
        prop_assert_eq!(freshness.is_fresh(now), i128::from(lifetime) > slow);
        if now >= response && response < u64::MAX / 2 {
            prop_assert_eq!(freshness.is_fresh(now), now < freshness.fresh_until_ms());
        }
        let _ = (freshness.age_seconds(now), freshness.ttl_seconds(now));
    }

    #[test]
    fn any_field_values_may_come(
        values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 5),
        now in any::<u64>(),
    ) {
        let names = ["date", "age", "expires", "last-modified", "cache-control"];
        let fields: Vec<_> = names.iter().zip(&values).collect();
        let exchange = Exchange { request_ms: now, response_ms: now };
        let computed = freshness(&CacheControl::of(&fields), &fields, exchange, RULES);
        let _ = computed.is_fresh(now);
    }
}

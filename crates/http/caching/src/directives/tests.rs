//! RFC 9111, 5.2, clause by clause; and against a naive parser.

use proptest::prelude::*;

use super::*;

fn parsed(value: &str) -> CacheControl {
    CacheControl::parse(value.as_bytes())
}

#[test]
fn rfc9111_5_2_syntax_of_arguments() {
    use Delta::{Absent, Invalid, Seconds};
    for (value, want) in [
        ("max-age=3600", Seconds(3600)),
        ("MaX-aGe=3600", Seconds(3600)),
        ("max-age=\"3600\"", Seconds(3600)),
        ("max-age=\"36\\00\"", Seconds(3600)),
        ("max-age=003600", Seconds(3600)),
        ("foobar, max-age=3600", Seconds(3600)),
        ("foo=\"a, b\", max-age=3600", Seconds(3600)),
        (",, max-age=3600 ,", Seconds(3600)),
        ("max-age=99999999999", Seconds(crate::DELTA_SECONDS_MAX)),
        ("max-age=", Invalid),
        ("max-age", Invalid),
        ("max-age=-1", Invalid),
        ("max-age=3600.0", Invalid),
        ("max-age=a3600", Invalid),
        ("max-age=3600a", Invalid),
        ("max-age='3600'", Invalid),
        ("max-age= 3600", Invalid),
        ("max-age=\"3600\"x", Invalid),
        ("max-age=\"3600", Invalid),
        ("max-age =3600", Absent),
        ("xmax-age=3600", Absent),
        ("extension=\"max-age=3600\"", Absent),
        ("", Absent),
    ] {
        assert_eq!(parsed(value).max_age, want, "{value:?}");
    }
}

/// A response whose head was repaired was stored in spite of `no-store`.
#[test]
fn a_directive_with_a_control_character_counts_as_no_store() {
    for value in ["no-store\x01", "max-age=60, \x0bno-store", "private\x7f", "a\x01b\x01=c, public"]
    {
        assert!(parsed(value).no_store, "{value:?}");
    }
    for value in ["no\tstore", "max-age\t=1", "\u{e9}", "a=\x01"] {
        assert!(!parsed(value).no_store, "{value:?}");
    }
}

#[test]
fn rfc9111_4_2_1_the_first_of_several_values_counts() {
    assert_eq!(parsed("max-age=1, max-age=1800").max_age, Delta::Seconds(1));
    assert_eq!(parsed("max-age=1800, max-age=1").max_age, Delta::Seconds(1800));
    assert_eq!(parsed("max-age=x, max-age=1").max_age, Delta::Invalid);
    let lines = [("Cache-Control", "max-age=5"), ("cache-control", "max-age=6, public")];
    let control = CacheControl::of(&lines);
    assert_eq!((control.max_age, control.public), (Delta::Seconds(5), true));
}

#[test]
fn rfc9111_5_2_every_directive_is_known() {
    let control = parsed(
        "s-maxage=1, min-fresh=2, max-stale=3, stale-while-revalidate=4, stale-if-error=5, \
         no-store, only-if-cached, public, must-revalidate, proxy-revalidate, must-understand, \
         immutable, no-transform, no-cache, private",
    );
    let want = CacheControl {
        present: true,
        max_age: Delta::Absent,
        s_maxage: Delta::Seconds(1),
        min_fresh: Delta::Seconds(2),
        max_stale: MaxStale::Seconds(3),
        stale_while_revalidate: Delta::Seconds(4),
        stale_if_error: Delta::Seconds(5),
        no_cache: Scope::Whole,
        private: Scope::Whole,
        no_store: true,
        only_if_cached: true,
        public: true,
        must_revalidate: true,
        proxy_revalidate: true,
        must_understand: true,
        immutable: true,
        no_transform: true,
    };
    assert_eq!(control, want);
    assert!(!CacheControl::of(&[("Pragma", "no-cache")]).present);
}

#[test]
fn rfc9111_5_2_1_2_max_stale_needs_no_argument() {
    assert_eq!(parsed("max-stale").max_stale, MaxStale::Any);
    assert_eq!(parsed("max-stale=0").max_stale, MaxStale::Seconds(0));
    assert_eq!(parsed("max-stale=x").max_stale, MaxStale::Absent);
}

#[test]
fn rfc9111_5_2_2_4_no_cache_and_private_with_field_names() {
    let names = |value: &str| {
        let names = parsed(value).no_cache.fields().to_vec();
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names("no-cache=\"Set-Cookie, X-a\""), ["set-cookie", "x-a"]);
    assert_eq!(names("no-cache=a"), ["a"], "a token will do");
    assert_eq!(names("no-cache=\"a\", no-cache=\"b\""), ["a", "b"]);
    for whole in ["no-cache", "no-cache=\"\"", "no-cache=\"a b\"", "no-cache=\"a\", no-cache"] {
        assert!(parsed(whole).no_cache.is_whole(), "{whole}");
    }
    assert_eq!(parsed("private=\"a\"").private.fields().len(), 1);
}

#[test]
fn an_open_quote_hides_no_restriction() {
    assert!(parsed("ext=\"a, no-store").no_store);
}

#[test]
fn rfc9111_5_4_pragma() {
    assert!(pragma_no_cache(&[("pragma", "x, No-Cache")]));
    assert!(!pragma_no_cache(&[("pragma", "x=no-cache")]));
    assert!(!pragma_no_cache(&[("cache-control", "no-cache")]));
}

/// A naive parser: characters into pieces, pieces into names and arguments. `None` if a quote stays
/// open; that case has its own test.
fn naive(value: &str) -> Option<(Option<String>, bool, bool)> {
    let mut pieces = vec![String::new()];
    let mut quoted = false;
    let mut escaped = false;
    for c in value.chars() {
        if quoted {
            pieces.last_mut().unwrap().push(c);
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == '"' {
                quoted = false;
            }
        } else if c == ',' {
            pieces.push(String::new());
        } else {
            quoted = c == '"';
            pieces.last_mut().unwrap().push(c);
        }
    }
    if quoted {
        return None;
    }
    let (mut max_age, mut no_store, mut public) = (None, false, false);
    for piece in pieces {
        let piece = piece.trim_matches([' ', '\t']).to_string();
        let (name, argument) = match piece.split_once('=') {
            Some((name, argument)) => (name.to_ascii_lowercase(), Some(argument.to_string())),
            None => (piece.to_ascii_lowercase(), None),
        };
        match name.as_str() {
            "max-age" if max_age.is_none() => max_age = Some(argument.unwrap_or_default()),
            "no-store" => no_store = true,
            "public" => public = true,
            _ => {}
        }
    }
    Some((max_age, no_store, public))
}

fn naive_delta(argument: Option<String>) -> Delta {
    let Some(argument) = argument else { return Delta::Absent };
    let inner = match argument.strip_prefix('"').and_then(|a| a.strip_suffix('"')) {
        Some(inner) if !inner.contains(['"', '\\']) => inner,
        _ => &argument,
    };
    if inner.is_empty() || !inner.chars().all(|c| c.is_ascii_digit()) {
        return Delta::Invalid;
    }
    Delta::Seconds(inner.parse::<u128>().map_or(u32::MAX, |n| n.min(1 << 31) as u32).min(1 << 31))
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("max-age".to_string()),
        Just("Max-Age=5".to_string()),
        "max-age=[0-9a\"]{0,12}",
        "x=\"[a-z, =\\\\\"]{0,10}\"",
        "[a-z=-]{0,8}",
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_naive_parser(
        pieces in proptest::collection::vec((piece(), "[ \t]{0,2},[ \t]{0,2}"), 0..8)
    ) {
        let value: String = pieces.iter().flat_map(|(p, comma)| [p.as_str(), comma]).collect();
        let expected = naive(&value);
        prop_assume!(expected.is_some());
        let (max_age, no_store, public) = expected.unwrap();
        let control = parsed(&value);
        prop_assert_eq!(control.max_age, naive_delta(max_age), "{:?}", value);
        prop_assert_eq!((control.no_store, control.public), (no_store, public), "{:?}", value);
    }

    #[test]
    fn any_bytes_may_come(value in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(CacheControl::parse(&value).present);
    }
}

#[test]
fn rfc9111_5_2_3_unknown_directives_say_nothing() {
    let known = CacheControl::parse(b"max-age=5, private");
    let among =
        CacheControl::parse(b"community=\"UCI, no-store\", max-age=5, x-max-age=9, private, Y");
    assert_eq!(format!("{known:?}"), format!("{among:?}"));
}

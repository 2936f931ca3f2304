//! Tests of keys.

use http1::{Limits, Scratch, parse_request};
use proptest::prelude::*;

use super::*;

/// A request with these lines, for `work`.
fn with<T>(lines: &str, work: impl FnOnce(Fields<'_>) -> T) -> T {
    let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    let mut scratch = Scratch::new();
    let head = parse_request(bytes.as_bytes(), &mut scratch, &Limits::default());
    work(head.unwrap().unwrap().fields)
}

fn settings(make: impl FnOnce(&mut config::KeySettings)) -> KeySettings {
    let mut config = config::KeySettings::default();
    make(&mut config);
    KeySettings::new(&config).unwrap()
}

fn patterns(list: &[&str]) -> Vec<config::Pattern> {
    list.iter().map(|one| one.parse().unwrap()).collect()
}

fn key_of(settings: &KeySettings, lines: &str) -> Vec<u8> {
    let mut key = Vec::new();
    let parts = settings.parts().unwrap();
    with(lines, |fields| parts.feed_key(fields, |piece| key.extend_from_slice(piece)));
    key
}

#[test]
fn nothing_configured_is_no_settings() {
    assert!(KeySettings::new(&config::KeySettings::default()).is_none());
    let query = settings(|config| config.query = config::Query::Sort);
    assert!(query.parts().is_none(), "the key has no other part");
}

#[test]
fn a_field_that_is_the_same_variable_resembles_one_of_the_key() {
    let some = settings(|config| {
        config.fields = vec!["X-Country".into(), "A_B".into(), "A-B".into(), "C_D".into()];
        config.device = true;
    });
    for name in ["X_Country", "x_country", "X.Country", "X+Country", "X!Country", "C-D", "c-d"] {
        assert_eq!(some.resembles(name.as_bytes()), Some("key_fields"), "{name}");
    }
    for name in ["X_Device-Class", "x_device_class", "x.device~class"] {
        assert_eq!(some.resembles(name.as_bytes()), Some("device"), "{name}");
    }
    for name in ["X-Country", "x-COUNTRY", "X-Device-Class", "A_B", "a-b", "C_D", "X_Countr", "XX"]
    {
        assert_eq!(some.resembles(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn cookies_fields_and_device_are_in_the_key() {
    let some = settings(|config| {
        config.cookies = patterns(&["lang", "ab_*"]);
        config.fields = vec!["X-Country".into()];
    });
    let base = key_of(&some, "Cookie: lang=de; x=1\r\nX-Country: FR\r\n");
    for same in [
        "Cookie: x=2;lang=de\r\nx-country: FR\r\n",
        "Cookie: x=2\r\nCookie: lang=de\r\nx-country: FR\r\nUser-Agent: a\r\n",
        "Cookie: ;; lang=de ;\r\nx-country: FR\r\n",
    ] {
        assert_eq!(key_of(&some, same), base, "{same}");
    }
    for other in [
        "Cookie: lang=en\r\nX-Country: FR\r\n",
        "Cookie: lang=de; ab_x=1\r\nX-Country: FR\r\n",
        "X-Country: FR\r\n",
        "Cookie: lang=de\r\nX-Country: fr\r\n",
        "Cookie: lang=de\r\nX-Country:\r\n",
        "Cookie: lang=de\r\n",
        "Cookie: lang=de\r\nX-Country: FR\r\nX-Country: FR\r\n",
    ] {
        assert_ne!(key_of(&some, other), base, "{other}");
    }
    let device = settings(|config| config.device = true);
    let mobile = key_of(&device, "Sec-CH-UA-Mobile: ?1\r\n");
    assert_eq!(mobile, key_of(&device, "User-Agent: a Mobile b\r\n"));
    assert_ne!(mobile, key_of(&device, ""));
}

/// A visitor with such a cookie got the page of all others, and they got the visitor's.
#[test]
fn a_cookie_that_only_some_servers_find_keeps_a_request_from_the_store() {
    let some = settings(|config| config.cookies = patterns(&["user_id"]));
    let why = |lines: &str| with(lines, |fields| some.bypassed(fields));
    for cookie in ["user.id=A", "user id=A", "user[id=A", "user_id[]=A", "USER-ID=A"] {
        let (line, base) = (format!("Cookie: {cookie}\r\n"), key_of(&some, ""));
        assert_eq!(why(&line), None);
        assert_ne!(key_of(&some, &line), base, "{cookie} is in the key");
    }
    for cookies in ["x=1 user_id=A", "x=1, user_id=A", "\u{a0}user_id=A", "x=1\tuser_id=A"] {
        assert_eq!(why(&format!("Cookie: {cookies}\r\n")), Some(Bypassed::HiddenCookie));
    }
    assert_eq!(why("Cookie: user_id=a user_id=b, c\r\n"), None, "all of it is in the key");
    let key_alone = settings(|config| {
        config.cookies = patterns(&["user_id"]);
        config.cookies_sent = CookiesSent::Key;
    });
    let sent = with("Cookie: x=1 user_id=A\r\n", |fields| key_alone.bypassed(fields));
    assert_eq!(sent, None, "the upstream does not get it");
}

#[test]
fn a_cookie_or_too_much_in_the_key_bypasses_the_store() {
    let some = settings(|config| {
        config.bypass_cookies = patterns(&["session*"]);
        config.fields = vec!["X-A".into()];
    });
    let why = |lines: &str| with(lines, |fields| some.bypassed(fields));
    assert_eq!(why("Cookie: a=session1\r\n"), None);
    assert_eq!(why("Cookie: a=b; session_id=1\r\n"), Some(Bypassed::Cookie));
    assert_eq!(why("Cookie: session\r\n"), Some(Bypassed::Cookie));
    for cookies in ["x=1 session=A", "x=1,session=A", "x=1, Session_=A", "x=\u{a0}session=A"] {
        let hidden = why(&format!("Cookie: {cookies}\r\n"));
        assert_eq!(hidden, Some(Bypassed::HiddenCookie), "{cookies}");
    }
    assert_eq!(why("Cookie: x=1, y; a=\"b c\"; d=\u{e9}\r\n"), None);
    let of_length = |bytes| format!("X-A: {}\r\n", "a".repeat(bytes));
    assert_eq!(why(&of_length(KEY_PARTS_BYTES_MAX)), None, "names do not count");
    assert_eq!(why(&of_length(KEY_PARTS_BYTES_MAX + 1)), Some(Bypassed::TooLong));
    let other = format!("X-B: {}\r\n", "a".repeat(KEY_PARTS_BYTES_MAX));
    assert_eq!(why(&other), None);
}

#[test]
fn an_explanation_names_each_setting_that_acts() {
    let some = settings(|config| {
        config.query = config::Query::Sort;
        config.query_drop = patterns(&["utm_*"]);
        config.cookies = patterns(&["lang"]);
        config.bypass_cookies = patterns(&["session*"]);
    });
    let named = |path: &str, lines: &str| -> Vec<(&str, String)> {
        let applied = with(lines, |fields| some.applied(path.as_bytes(), fields));
        applied.into_iter().map(|one| (one.setting, one.effect)).collect()
    };
    let stored = |setting, path: &str| (setting, format!("the URI is stored as {path}"));
    assert_eq!(named("/a?a&b", ""), []);
    assert_eq!(named("/a?b&a", ""), [stored("query", "/a?a&b")]);
    assert_eq!(named("/a?a&utm_x&b", ""), [stored("query_drop", "/a?a&b")]);
    let both = [stored("query_drop", "/a?b&a"), stored("query", "/a?a&b")];
    assert_eq!(named("/a?b&utm_x&a", ""), both);
    let bypassed = [("bypass_cookies", "the store is not used".to_owned())];
    assert_eq!(named("/a?b&a", "Cookie: lang=de; session=1\r\n"), bypassed, "nothing else acts");
    let long = format!("Cookie: lang={}\r\n", "a".repeat(KEY_PARTS_BYTES_MAX));
    let effect = format!("more than {KEY_PARTS_BYTES_MAX} bytes in the key: the store is not used");
    assert_eq!(named("/a", &long), [("key_cookies", effect)]);
}

/// Whatever else acts, and with the setting that it is because of.
#[test]
fn an_explanation_names_each_field_that_is_not_sent() {
    let some = settings(|config| {
        config.fields = vec!["X-Country".into()];
        config.bypass_cookies = patterns(&["session*"]);
        config.device = true;
    });
    let not_sent = [
        ("device", "not sent: X_Device_Class, which is not the field".to_owned()),
        ("key_fields", "not sent: X.Country, which is not the field".to_owned()),
    ];
    let fields = "X_Device_Class: tablet\r\nX.Country: FR\r\n";
    for more in ["", "Cookie: session=1\r\n", "Connection: x-country\r\n"] {
        let applied = with(&format!("{fields}{more}"), |fields| some.applied(b"/", fields));
        let applied = applied.into_iter().map(|one| (one.setting, one.effect));
        let named: Vec<_> = applied.filter(|(_, effect)| effect.starts_with("not sent")).collect();
        assert_eq!(named, not_sent, "{more}");
    }
}

#[test]
fn the_upstream_gets_the_cookies_of_the_key() {
    let all = settings(|config| config.cookies = patterns(&["lang"]));
    assert_eq!(with("Cookie: a=b\r\n", |fields| all.cookies_sent(fields)), None);
    let some = settings(|config| {
        config.cookies = patterns(&["lang", "ab_*"]);
        config.cookies_sent = CookiesSent::Key;
    });
    let sent = |lines: &str| with(lines, |fields| some.cookies_sent(fields).unwrap());
    assert_eq!(sent("Cookie: a=b; lang=de\r\nCookie: ab_1=x; c\r\n"), b"lang=de; ab_1=x");
    assert_eq!(sent("Cookie: a=b\r\n"), b"");
}

/// The pieces of a key, read back from its bytes.
fn pieces(mut key: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((first, rest)) = key.split_first_chunk::<8>() {
        let mark = u64::from_le_bytes(*first);
        let (piece, rest) = rest.split_at((mark >> 8) as usize);
        found.push((mark as u8, piece.to_vec()));
        key = rest;
    }
    assert!(key.is_empty());
    found
}

proptest! {
    /// A key can be read back into its pieces, so two requests have the same key only if they have
    /// the same pieces.
    #[test]
    fn no_two_divisions_of_the_same_bytes_share_a_key(
        cookies in proptest::collection::vec("[abx]{1,3}=[ab=]{0,3}", 0..4),
        values in proptest::collection::vec("[ab]{0,3}", 0..3),
        others in proptest::collection::vec("[ab]{0,3}", 0..3),
    ) {
        let some = settings(|config| {
            config.cookies = patterns(&["a*", "b*"]);
            config.fields = vec!["F-A".into(), "F-B".into()];
        });
        let mut lines = String::new();
        if !cookies.is_empty() {
            lines += &format!("Cookie: {}\r\n", cookies.join("; "));
        }
        lines.extend(values.iter().map(|value| format!("F-A: {value}\r\n")));
        lines.extend(others.iter().map(|value| format!("F-B: {value}\r\n")));
        let mut expected: Vec<(u8, Vec<u8>)> = cookies
            .iter()
            .filter(|cookie| !cookie.starts_with('x'))
            .map(|cookie| (1, cookie.clone().into_bytes()))
            .collect();
        for (name, values) in [("F-A", &values), ("F-B", &others)] {
            expected.push((2, name.as_bytes().to_vec()));
            expected.extend(values.iter().map(|value| (3, value.clone().into_bytes())));
        }
        prop_assert_eq!(pieces(&key_of(&some, &lines)), expected);
    }
}

#[test]
fn the_url_of_a_purge_is_normalised_like_a_key() {
    let realm = Realm { role: config::Role::Reverse, scheme: http1::Scheme::Http };
    let url = |authority, path| StoredUri::new(realm, authority, path).url();
    assert_eq!(url(b"EXAMPLE.com:80", b"/A?b"), b"example.com/A?b");
    assert_eq!(url(b"h:8080", b"/"), b"h:8080/");
}

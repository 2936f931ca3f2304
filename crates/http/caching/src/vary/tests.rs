//! RFC 9111, 4.1.

use proptest::prelude::*;

use super::*;

type Lines<'a> = &'a [(&'a str, &'a str)];

fn names(value: &str) -> VaryNames {
    match vary(&[("Vary", value)]) {
        Vary::Names(names) => names,
        other => panic!("{value}: {other:?}"),
    }
}

fn same(value: &str, a: Lines<'_>, b: Lines<'_>) -> bool {
    let names = names(value);
    let same = names.matches(&names.key(a), b);
    assert_eq!(same, names.key(a) == names.key(b));
    assert_eq!(same, names.matches(&names.key(b), a));
    same
}

#[test]
fn rfc9111_4_1_parsing() {
    for star in ["*", "*, *", ", *", "*, foo", "foo, *", "fo o", "\u{e9}"] {
        assert_eq!(vary(&[("Vary", star)]), Vary::Star, "{star}");
    }
    assert_eq!(vary(&[("Vary", ""), ("vary", "*")]), Vary::Star);
    assert_eq!(vary(&[("Vary", ""), ("vary", " ,, ")]), Vary::None);
    assert_eq!(vary(&[("x", "*")]), Vary::None);
    let lines = [("Vary", "B, a"), ("Vary", "A")];
    let Vary::Names(merged) = vary(&lines) else { panic!("names") };
    assert_eq!(merged.iter().collect::<Vec<_>>(), ["a", "b"]);
    let many: Vec<_> = (0..=VARY_NAMES_MAX).map(|n| ("vary", format!("n{n}"))).collect();
    assert_eq!(vary(&many), Vary::Star);
}

#[test]
fn rfc9111_4_1_matching() {
    let one: Lines<'_> = &[("Foo", "1")];
    assert!(same("Foo", one, &[("foo", "1"), ("Other", "2")]));
    assert!(!same("Foo", one, &[("Foo", "2")]));
    assert!(!same("Foo", one, &[]));
    assert!(!same("Foo", &[("Foo", "")], &[]), "empty is not absent");
    assert!(same("Foo, Bar", one, one), "absent in both");
    assert!(!same("Foo, Bar", &[("Foo", "1"), ("Bar", "2")], &[("Foo", "2"), ("Bar", "1")]));
    assert!(!same("Foo, Bar", &[("Foo", "1")], &[("Bar", "1")]));
}

#[test]
fn rfc9111_4_1_normalisation() {
    assert!(same("Foo", &[("Foo", "1, 2")], &[("Foo", "1"), ("Foo", "2")]));
    assert!(same("Foo", &[("Foo", "1,2")], &[("Foo", " 1 ,  2 ")]));
    assert!(!same("Foo", &[("Foo", "1, 2")], &[("Foo", "2, 1")]), "order may matter");
    assert!(!same("Foo", &[("Foo", "a")], &[("Foo", "A")]), "case may matter");
    assert!(!same("Foo", &[("Foo", "\"1, 2\"")], &[("Foo", "\"1,2\"")]), "quoted is as it is");
    let language = |a: &str, b: &str| {
        same("Accept-Language", &[("Accept-Language", a)], &[("Accept-Language", b)])
    };
    assert!(language("en, de", "de, en"));
    assert!(language("en, de", "eN, De"));
    assert!(language("en, de", " en ,   de"));
    assert!(language("en;q=0.5, de", "de;q=1.0, en ; q=0.5"));
    assert!(!language("en;q=0.5, de", "en, de;q=0.5"));
    assert!(!language("en", "en, de"));
    assert!(!language("en;q=1.0000", "en"), "not a weight");
}

#[test]
fn long_lists_and_members_stay_apart() {
    let long = |n: usize| (0..n).map(|i| format!("x{i}")).collect::<Vec<_>>().join(", ");
    for n in [1, 31, 32, 33, 40, 100] {
        let (a, b) = (long(n), format!("{}, extra", long(n)));
        let field = |value: &str| vec![("accept".to_string(), value.to_string())];
        let names = names("Accept");
        assert!(names.matches(&names.key(&field(&a)), &field(&a)));
        assert!(!names.matches(&names.key(&field(&a)), &field(&b)));
    }
    let member = "y".repeat(500);
    assert!(same("Accept", &[("Accept", &member)], &[("Accept", &member)]));
    assert!(!same("Accept", &[("Accept", &member)], &[("Accept", &member[1..])]));
}

proptest! {
    /// Values that mean different lists have different keys, whatever bytes they hold.
    #[test]
    fn keys_are_unambiguous(
        a in proptest::collection::vec("[a-c\u{0}\u{1}\u{2}\u{3}]{1,3}", 0..4),
        b in proptest::collection::vec("[a-c\u{0}\u{1}\u{2}\u{3}]{1,3}", 0..4),
    ) {
        let names = names("foo");
        let field = |list: &[String]| vec![("foo", list.join(","))];
        prop_assert_eq!(names.key(&field(&a)) == names.key(&field(&b)), a == b);
        prop_assert_eq!(names.matches(&names.key(&field(&a)), &field(&b)), a == b);
    }

    #[test]
    fn any_bytes_may_come(
        names in proptest::collection::vec(any::<u8>(), 0..20),
        value in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = vary(&[("vary", &names)]);
        if let Vary::Names(names) = vary(&[("vary", "accept, x")]) {
            let request = [("accept", &value), ("x", &value)];
            prop_assert!(names.matches(&names.key(&request), &request));
        }
    }
}

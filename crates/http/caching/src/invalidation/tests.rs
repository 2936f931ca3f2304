//! RFC 9111, 4.4, and resolution by RFC 3986, 5.4.

use proptest::prelude::*;

use super::*;

const TARGET: TargetUri<'static> =
    TargetUri { scheme: "http", authority: b"a", path_and_query: b"/b/c/d;p?q" };

fn resolved(reference: &str) -> Option<String> {
    resolve_same_origin(&TARGET, reference.as_bytes())
        .map(|path| String::from_utf8_lossy(&path).into_owned())
}

#[test]
fn rfc9111_4_4_which_exchanges_invalidate() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get"] {
        assert!(invalidates(method.as_bytes(), 200), "{method}");
        assert!(invalidates(method.as_bytes(), 303), "{method}");
        assert!(!invalidates(method.as_bytes(), 404), "{method}");
        assert!(!invalidates(method.as_bytes(), 500), "{method}");
    }
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        assert!(!invalidates(method.as_bytes(), 200), "{method}");
    }
}

#[test]
fn rfc3986_5_4_references() {
    for (reference, want) in [
        ("g", "/b/c/g"),
        ("./g", "/b/c/g"),
        ("g/", "/b/c/g/"),
        ("/g", "/g"),
        ("//a/g", "/g"),
        ("?y", "/b/c/d;p?y"),
        ("g?y", "/b/c/g?y"),
        ("#s", "/b/c/d;p?q"),
        ("g#s", "/b/c/g"),
        ("g?y#s", "/b/c/g?y"),
        (";x", "/b/c/;x"),
        ("", "/b/c/d;p?q"),
        (".", "/b/c/"),
        ("./", "/b/c/"),
        ("..", "/b/"),
        ("../g", "/b/g"),
        ("../..", "/"),
        ("../../g", "/g"),
        ("../../../g", "/g"),
        ("/./g", "/g"),
        ("/../g", "/g"),
        ("g.", "/b/c/g."),
        ("..g", "/b/c/..g"),
        ("./g/.", "/b/c/g/"),
        ("g/../h", "/b/c/h"),
        ("g;x=1/../y", "/b/c/y"),
        ("http://A:80/x", "/x"),
        ("HTTP://a", "/"),
        ("http://a?x", "/?x"),
        ("//a:/x", "/x"),
    ] {
        assert_eq!(resolved(reference).as_deref(), Some(want), "{reference}");
    }
}

#[test]
fn rfc9111_4_4_never_another_origin() {
    for reference in
        ["https://a/x", "http://b/x", "//b/x", "http://a:8080/x", "g:h", "http:g", "//a@b/x"]
    {
        assert_eq!(resolved(reference), None, "{reference}");
    }
    let six = TargetUri { authority: b"[::1]:8080", ..TARGET };
    assert_eq!(resolve_same_origin(&six, b"//[::1]:8080/x"), Some(b"/x".to_vec()));
    assert_eq!(resolve_same_origin(&six, b"//[::1]/x"), None);
    let secure = TargetUri { scheme: "https", ..TARGET };
    assert_eq!(resolve_same_origin(&secure, b"https://a:443/x"), Some(b"/x".to_vec()));
}

#[test]
fn rfc9111_4_4_locations() {
    let lines =
        [("Location", "g"), ("Content-Location", "/h"), ("location", "//b/i"), ("Location", "")];
    assert_eq!(invalidated_locations(&TARGET, &lines), [b"/b/c/g".to_vec(), b"/h".to_vec()]);
}

proptest! {
    #[test]
    fn any_bytes_may_come(
        reference in proptest::collection::vec(
            prop_oneof![proptest::sample::select(b"/.:?#[]@ab".to_vec()), any::<u8>()], 0..30),
        base in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let target = TargetUri { scheme: "http", authority: &base, path_and_query: &base };
        if let Some(path) = resolve_same_origin(&target, &reference)
            && (reference.starts_with(b"/") || base.starts_with(b"/")) {
            prop_assert!(path.starts_with(b"/"));
        }
    }
}

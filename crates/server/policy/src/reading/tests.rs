//! The readings of paths and hosts.

use proptest::prelude::*;

use super::*;

/// The readings of a path, the weak ones in parentheses.
fn paths(path: &str) -> Vec<String> {
    let all = Reading::of(b"a", path.as_bytes()).paths().expect("there are few");
    let text = |read: &path::Read| {
        let path = String::from_utf8_lossy(&read.path);
        if read.is_weak { format!("({path})") } else { path.into_owned() }
    };
    let mut all: Vec<String> = all.iter().map(text).collect();
    all[1..].sort();
    all
}

fn hosts(authority: &str) -> Vec<String> {
    let all = Reading::of(authority.as_bytes(), b"/").hosts();
    all.into_iter().map(|host| String::from_utf8(host).unwrap()).collect()
}

#[test]
fn a_path_has_all_readings_of_origins() {
    for (path, expected) in [
        ("/a/b?c%2Fd;e", &["/a/b"][..]),
        ("", &["/"]),
        ("?a//b", &["/"]),
        ("*", &["/"]),
        ("/.well-known", &["/.well-known"]),
        ("/%61%C3%A9%25", &["/a\u{e9}%25"]),
        ("/a%2Fb", &["/a%2Fb", "/a/b"]),
        ("/a;b/c;d", &["/a;b/c;d", "/a/c"]),
        ("/a%3bb;c", &["/a;b;c", "/a", "/a;b"]),
        ("/a%5Cb", &["/a\\b", "/a/b"]),
        ("/a%00b", &["/a%00b", "/a"]),
        ("/%00b", &["/%00b", "/"]),
        ("/a/../b", &["/b", "/a/../b"]),
        ("/a//b", &["/a/b", "(/a//b)"]),
        ("//a/b", &["/a/b", "(//a/b)", "(/b)"]),
        ("//a", &["/a", "(//a)", "(/)"]),
        ("/a//../b", &["/b", "(/a//../b)", "/a/../b", "/a/b"]),
        ("/a/..;/b", &["/a/..;/b", "/a/../b", "/b"]),
        ("/a/..%2fb", &["/a/..%2Fb", "/a/../b", "/b"]),
        ("/a/b/..", &["/a/", "/a/b/.."]),
    ] {
        let mut expected = expected.to_vec();
        expected[1..].sort();
        assert_eq!(paths(path), expected, "{path}");
    }
}

#[test]
fn a_host_has_all_readings_of_origins() {
    for (authority, expected) in [
        ("a.example", &["a.example"][..]),
        ("A.Example.:80", &["a.example"]),
        ("", &[""]),
        ("a%2Eexample", &["a%2eexample", "a.example"]),
        ("10.0.0.1", &["10.0.0.1"]),
        ("10.1", &["10.1", "10.0.0.1"]),
        ("010.0x1", &["010.0x1", "8.0.0.1"]),
        ("[::FFFF:10.0.0.1]:80", &["[::ffff:10.0.0.1]", "10.0.0.1"]),
        ("[0::0:1]", &["[::1]"]),
        ("4294967296", &["4294967296"]),
        ("+1.2.3.4", &["+1.2.3.4"]),
    ] {
        assert_eq!(hosts(authority), expected, "{authority}");
        let only = Reading::of(authority.as_bytes(), b"/").only_host();
        assert!(only.is_none_or(|only| [only] == *Reading::of(authority.as_bytes(), b"/").hosts()));
    }
}

#[test]
fn an_empty_path_is_sent_as_the_root() {
    let sent = |path: &'static str| Reading::of(b"h", path.as_bytes()).origin_form();
    assert_eq!(&*sent(""), b"/");
    assert_eq!(&*sent("?x"), b"/?x");
    assert!(matches!(sent("/a?x"), Cow::Borrowed(b"/a?x")));
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing(path in "/[a-c./%126eEfF]{0,24}") {
        let once = path::normalised(path.as_bytes()).into_owned();
        prop_assert!(once.starts_with(b"/"));
        prop_assert_eq!(&*path::normalised(&once), &*once);
    }

    /// The scan that finds one reading finds it only where there is no other.
    #[test]
    fn a_path_that_the_scan_accepts_has_one_reading(path in "/[ab./;%2f\\\\?]{0,12}") {
        let reading = Reading::of(b"h", path.as_bytes());
        if let Some(only) = reading.only_path() {
            let all = reading.paths().unwrap();
            prop_assert_eq!(all.len(), 1);
            prop_assert_eq!(&*all[0].path, only);
        }
    }
}

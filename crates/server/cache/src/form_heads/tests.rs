//! Heads of forms, and what the store accounts for them.

use caching::{Exchange, Policy, Response, StoredMeta};
use coding::Coding;
use config::{Config, Role};
use http1::Scheme;

use super::*;
use crate::key::StoredUri;
use crate::realm::Realm;
use crate::stored::Resource;
use crate::variants::Place;

const GZIP: Target = Target(Some(Coding::Gzip));
const REALM: Realm = Realm { role: Role::Reverse, scheme: Scheme::Http };

fn head(fields: &[(&[u8], &[u8])]) -> Head {
    let response = Response { status: 200, fields };
    let exchange = Exchange { request_ms: 1_000_000, response_ms: 1_000_000 };
    let meta = StoredMeta::of(&response, exchange, &Policy::SHARED);
    let resource = Resource::new(StoredUri::new(REALM, b"h", b"/"), fields.iter().copied(), 0);
    let varies = with_request(|request| varies_of(&caching::vary(fields), request));
    let mut head = Head::new(200, b"Via: 1.1 us\r\n", fields.iter().copied(), meta, resource);
    head.varies = varies;
    head
}

fn with_request<T>(run: impl FnOnce(&Wire<'_>) -> T) -> T {
    let text = b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n";
    let (mut scratch, limits) = (http1::Scratch::new(), http1::Limits::default());
    let head = http1::parse_request(text, &mut scratch, &limits).unwrap().unwrap();
    run(&Wire(head.fields))
}

fn in_forms(fields: &[(&[u8], &[u8])]) -> Head {
    with_request(|request| head(fields).in_several_forms(Source::Identity, request))
}

fn text(head: &Head) -> String {
    String::from_utf8_lossy(head.block()).into_owned()
}

const FIELDS: &[(&[u8], &[u8])] = &[
    (b"Content-Type", b"text/plain"),
    (b"Cache-Control", b"max-age=60"),
    (b"ETag", b"\"a\""),
    (b"Accept-Ranges", b"bytes"),
    (b"Repr-Digest", b"sha-256=:AAAA:"),
    (b"Date", b"Thu, 01 Jan 1970 00:16:40 GMT"),
];

#[test]
fn the_head_of_a_form_describes_its_own_bytes() {
    let form = in_forms(FIELDS).of_form(GZIP, TagRule::Suffix);
    assert_eq!(
        text(&form),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\
         Date: Thu, 01 Jan 1970 00:16:40 GMT\r\nVary: Accept-Encoding\r\nETag: \"a-gzip\"\r\n\
         Content-Encoding: gzip\r\nVia: 1.1 us\r\n"
    );
    assert_eq!(form.meta.validators.etag.as_deref(), Some(&b"\"a-gzip\""[..]));
    let weak = in_forms(FIELDS).weakened();
    assert!(text(&weak).contains("ETag: W/\"a\"\r\n") && text(&weak).contains("Repr-Digest"));
    assert!(form.source().is_none() && Stored::new(Arc::new(form), Vec::new()).is_plain());
}

#[test]
fn vary_names_the_field_once_and_the_store_does_not_divide_by_it() {
    for (vary, written, stored_by) in [
        (&b"accept-encoding"[..], "Vary: accept-encoding\r\n", None),
        (b"X-A, Accept-Encoding", "Vary: X-A, Accept-Encoding\r\n", Some("x-a")),
        (b"X-A", "Vary: X-A\r\n", Some("x-a")),
    ] {
        let fields: Vec<_> = FIELDS.iter().copied().chain([(&b"Vary"[..], vary)]).collect();
        let head = in_forms(&fields);
        let names_it = text(&head).to_lowercase().matches("accept-encoding").count();
        assert!(text(&head).contains(written) && names_it == 1, "{}", text(&head));
        let names = head.varies.as_deref().map(|(names, _)| names.iter().collect::<Vec<_>>());
        assert_eq!(names, stored_by.map(|name| vec![name]));
        // From the disk.
        let bytes = head.block().to_vec();
        let read = head.clone().read(&bytes).unwrap();
        assert_eq!(read.source(), Some(Source::Identity));
    }
    let (plain, bytes) = (head(FIELDS), head(FIELDS).block().to_vec());
    assert_eq!(plain.read(&bytes).unwrap().source(), None);
    let fields: Vec<_> =
        FIELDS.iter().copied().chain([(&b"Vary"[..], &b"Accept-Encoding"[..])]).collect();
    let (by_origin, bytes) = (head(&fields), head(&fields).block().to_vec());
    assert_eq!(by_origin.read(&bytes).unwrap().source(), None, "the origin chooses");
}

/// A cache with one response, and its key.
fn cache() -> (Cache, Key) {
    let config = Config { memory_bytes: 1 << 20, ..Config::forward(&[]) };
    let cache = Cache::new(&config, 1, None);
    let key = cache.uri_key(StoredUri::new(REALM, b"h", b"/"));
    let stored = Stored::new(Arc::new(in_forms(FIELDS)), vec![Piece::from(vec![b'x'; 9_000])]);
    cache.insert(
        &cache.watches.watch(key),
        &Place::known(key, key),
        Entry::Response(Arc::new(stored)),
    );
    (cache, key)
}

fn stored(cache: &Cache, key: Key) -> Arc<Stored> {
    match cache.store.peek(&key) {
        Some(Entry::Response(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

fn made(of: &Stored, bytes: usize) -> Made<Stored> {
    let form = of.form(GZIP, TagRule::Weak, Piece::from(vec![b'y'; bytes]));
    Made::Form(Arc::new(form), TagRule::Weak)
}

fn form(of: &Stored) -> Option<Arc<Stored>> {
    match of.forms()?.get(GZIP) {
        Made::Form(form, _) => Some(Arc::clone(form)),
        Made::Not | Made::Declined => None,
    }
}

#[test]
fn the_entry_accounts_for_its_forms_and_they_follow_its_head() {
    let (cache, key) = cache();
    let before = stored(&cache, key);
    let bytes = cache.store.counters().bytes;
    assert!(cache.add_form(key, &before, GZIP, &made(&before, 500)));
    let now = stored(&cache, key);
    let form_bytes = form(&now).unwrap().accounted_bytes();
    assert!(form_bytes > 500);
    assert_eq!(cache.store.counters().bytes, bytes + form_bytes);
    assert_eq!(now.accounted_bytes(), before.accounted_bytes() + form_bytes);

    let fields: Vec<_> = FIELDS.iter().copied().chain([(&b"X-New"[..], &b"1"[..])]).collect();
    let updated = now.under(in_forms(&fields));
    let updated_form = form(&updated).unwrap();
    assert!(text(&updated_form.head).contains("X-New: 1\r\n"));
    assert!(text(&updated_form.head).contains("ETag: W/\"a\"\r\n"));
    assert_eq!(updated_form.pieces.concat(), vec![b'y'; 500]);
    // Nothing is coded any more.
    assert!(now.under(head(FIELDS)).is_plain());

    cache.store.remove(&key);
    assert_eq!(cache.store.counters().bytes, 0);
}

#[test]
fn a_form_is_added_to_its_own_body_under_the_head_of_now() {
    let (cache, key) = cache();
    let before = stored(&cache, key);
    let made = made(&before, 500);
    // A 304 came while the form was made.
    let fields: Vec<_> = FIELDS.iter().copied().chain([(&b"X-New"[..], &b"1"[..])]).collect();
    let watch = cache.watches.watch(key);
    let updated = Arc::new(before.under(in_forms(&fields)));
    cache.insert(&watch, &Place::known(key, key), Entry::Response(updated));
    assert!(cache.add_form(key, &before, GZIP, &made));
    let form_now = form(&stored(&cache, key)).unwrap();
    assert!(text(&form_now.head).contains("X-New: 1\r\n"));
    // Another body under the same key is not touched, and neither is an absent one.
    let other = Stored::new(Arc::new(in_forms(FIELDS)), vec![Piece::from(vec![b'z'; 900])]);
    cache.insert(&watch, &Place::known(key, key), Entry::Response(Arc::new(other)));
    assert!(!cache.add_form(key, &before, GZIP, &made));
    assert!(form(&stored(&cache, key)).is_none());
    cache.store.remove(&key);
    assert!(!cache.add_form(key, &before, GZIP, &made));
    assert_eq!(cache.store.counters().objects, 0);
}

#[test]
fn one_job_makes_a_form_and_a_dropped_one_lets_another_begin() {
    let (cache, key) = cache();
    let before = stored(&cache, key);
    let forms = before.forms().unwrap();
    let started = forms.start(GZIP).unwrap();
    assert!(forms.start(GZIP).is_none() && forms.start(Target(None)).is_some());
    // An entry with the same body knows about it.
    let updated = before.under(in_forms(FIELDS));
    assert!(updated.forms().unwrap().start(GZIP).is_none());
    drop(started);
    assert!(updated.forms().unwrap().start(GZIP).is_some());
}

//! Replays the corpus of the fuzz targets, so that these inputs are tested in every run.
//!
//! Every input is split at every byte by the functions in `tools/fuzz/checks/http1.rs`. The names
//! of the files give the expected result: `ok-…`, `more-…` (bytes are missing), or `no-CLASS…` with
//! the class of the `RejectReason`.

use std::path::{Path, PathBuf};

use crate::fuzzing::{self, Verdict};
use http1::{Limits, RejectReason};

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).expect("the corpus is checked in");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a listed file").path();
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, std::fs::read(path).expect("a readable file"))
        })
        .collect();
    files.sort();
    assert!(files.len() >= 10, "the corpus of {target} is gone");
    files
}

fn check_names(target: &str, verdict: impl Fn(&[u8]) -> Verdict) {
    for (name, bytes) in corpus(target) {
        match verdict(&bytes) {
            Verdict::Whole(..) => assert!(name.starts_with("ok-"), "{name} was accepted"),
            Verdict::Incomplete => assert!(name.starts_with("more-"), "{name} is incomplete"),
            Verdict::Refused(reject) => {
                let expected = format!("no-{}", reject.reason.class());
                let matches = name == expected || name.starts_with(&format!("{expected}-"));
                assert!(matches, "{name} was refused: {reject} [{}]", reject.reason.class());
            }
        }
    }
}

#[test]
fn request_heads() {
    corpus("request_head").iter().for_each(|(_, bytes)| fuzzing::request_head(bytes));
    check_names("request_head", |bytes| fuzzing::request_verdict(bytes, &Limits::DEFAULT));
}

#[test]
fn response_heads() {
    corpus("response_head").iter().for_each(|(_, bytes)| fuzzing::response_head(bytes));
    check_names("response_head", |bytes| fuzzing::response_verdict(bytes, &Limits::DEFAULT));
}

#[test]
fn chunked_bodies() {
    corpus("chunked_body").iter().for_each(|(_, bytes)| fuzzing::chunked_body(bytes));
    check_names("chunked_body", |bytes| {
        use fuzzing::{BodyEnd, read_body};
        let body = read_body(http1::BodyKind::Chunked, &[bytes], &Limits::DEFAULT);
        match body.end {
            BodyEnd::Done => Verdict::Whole(String::new(), body.consumed),
            BodyEnd::Incomplete => Verdict::Incomplete,
            BodyEnd::Refused(reject) => Verdict::Refused(reject),
        }
    });
}

#[test]
fn request_streams() {
    for (name, bytes) in corpus("request_stream") {
        fuzzing::request_stream(&bytes);
        let stream = fuzzing::read_stream(&[&bytes], &Limits::DEFAULT);
        match stream.refused {
            Some(reject) => {
                assert!(name.starts_with(&format!("no-{}", reject.reason.class())), "{name}");
            }
            None if name.starts_with("ok-") => assert_eq!(stream.consumed, bytes.len(), "{name}"),
            None => assert!(name.starts_with("more-"), "{name} came to no fault"),
        }
    }
}

/// For example a body in place of a head, or a response in place of a request.
#[test]
fn every_parser_gets_every_input() {
    for target in ["request_head", "response_head", "chunked_body", "request_stream"] {
        for (_, bytes) in corpus(target) {
            fuzzing::request_head(&bytes);
            fuzzing::response_head(&bytes);
            fuzzing::chunked_body(&bytes);
            fuzzing::request_stream(&bytes);
        }
    }
}

#[test]
fn classes_are_distinct() {
    let mut classes: Vec<_> = RejectReason::ALL.iter().map(|reason| reason.class()).collect();
    classes.sort_unstable();
    classes.dedup();
    assert_eq!(classes.len(), RejectReason::ALL.len());
}

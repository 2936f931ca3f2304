//! Checks of the parsers of this crate, for the fuzz targets and for the tests that replay their
//! corpora: what must hold for any bytes from a peer.

use crate::digest::{Digest, Key};
use crate::{htcp, icp};

/// Target `icp_message`: what is read is written as the same message.
pub fn icp(data: &[u8]) {
    let Ok(message) = icp::Message::read(data) else { return };
    let mut out = Vec::new();
    if message.write(&mut out).is_ok() {
        assert_eq!(icp::Message::read(&out), Ok(message));
        assert_eq!(out.len(), data.len());
    }
    // An answer to a stranger is not longer than the question.
    message.answer(icp::Kind::Denied).write(&mut out).expect("an answer");
    assert!(out.len() <= data.len());
}

/// Target `htcp_message`: what is read is written as the same message.
pub fn htcp(data: &[u8]) {
    let Ok(message) = htcp::Message::read(data) else { return };
    let mut out = Vec::new();
    if message.write(&mut out).is_ok() {
        assert_eq!(htcp::Message::read(&out), Ok(message));
    }
    // An answer to a stranger is not longer than the question.
    if let Some(answer) = message.refuse(htcp::Refusal::Disallowed) {
        answer.write(&mut out).expect("an answer");
        assert!(out.len() <= data.len());
    }
}

/// Target `cache_digest`: what is read is written as the same digest.
pub fn digest(data: &[u8]) {
    let Ok(digest) = Digest::read(data) else { return };
    let mut out = Vec::new();
    digest.write(&mut out);
    assert_eq!(Digest::read(&out), Ok(digest.clone()));
    assert_eq!(out.len(), data.len());
    let mut more = digest.to_owned();
    let key = Key::of_get(data);
    more.add(&key);
    assert!(more.contains(&key) && more.percent_set() >= digest.percent_set());
}

/// A recording in the folder of fixtures.
#[cfg(test)]
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read(folder.join(name)).expect("the fixture is checked in")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, run: impl Fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut inputs = 0;
        for entry in std::fs::read_dir(corpus).expect("the corpus is checked in") {
            let path = entry.expect("a listed file").path();
            let bytes = std::fs::read(path).expect("a readable file");
            // Every head of an input is an input too.
            (0..=bytes.len()).for_each(|end| run(&bytes[..end]));
            inputs += 1;
        }
        assert!(inputs >= 8, "the corpus of {target} is gone");
    }

    #[test]
    fn icp_messages() {
        replay("icp_message", super::icp);
    }

    #[test]
    fn cache_digests() {
        replay("cache_digest", super::digest);
    }

    #[test]
    fn htcp_messages() {
        replay("htcp_message", super::htcp);
    }
}

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
    // An answer to a stranger is not longer than the question, and only a query is answered.
    let answered = message.answer(icp::Kind::Denied).write(&mut out);
    assert_eq!(answered.is_ok(), message.kind == icp::Kind::Query);
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
    let mut more = digest.with_own_mask();
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

/// Runs a check on generated messages. A tenth of them at least must be read, or the check would
/// see little more than the errors of the first field.
#[cfg(test)]
pub(crate) fn check_generated(
    messages: impl proptest::strategy::Strategy<Value = Vec<u8>>,
    check: impl Fn(&[u8]),
    is_read: impl Fn(&[u8]) -> bool,
) {
    use proptest::test_runner::{Config, TestRunner};

    let (all, read) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = Config { failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&messages, |message| {
        check(&message);
        all.set(all.get() + 1);
        read.set(read.get() + u32::from(is_read(&message)));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(read.get() >= all.get() / 10, "{} of {} were read", read.get(), all.get());
}

/// The first bytes of an ICP message, whose length is set accordingly. So the cut is found in a
/// field, not by the length of the message.
#[cfg(test)]
pub(crate) fn icp_head(message: &[u8], end: usize) -> Vec<u8> {
    let mut head = message[..end].to_vec();
    put_u16(&mut head, 2, end);
    head
}

/// Like [`icp_head`], for HTCP. If the cut is in DATA, an empty AUTH follows.
#[cfg(test)]
pub(crate) fn htcp_head(message: &[u8], end: usize) -> Vec<u8> {
    let mut head = message[..end].to_vec();
    let sections = message.get(4..6).filter(|_| end >= 6);
    if let Some(&[high, low]) = sections {
        let data_end = 4 + usize::from(u16::from_be_bytes([high, low]));
        if end <= data_end {
            put_u16(&mut head, 4, end - 4);
            head.extend([0, 2]);
        } else {
            put_u16(&mut head, data_end, end - data_end);
        }
    }
    let length = head.len();
    put_u16(&mut head, 0, length);
    head
}

/// Like [`icp_head`], for a digest: it has as many entries of eight bits as there are bytes left.
#[cfg(test)]
pub(crate) fn digest_head(digest: &[u8], end: usize) -> Vec<u8> {
    let mut head = digest[..end].to_vec();
    let entries = end.saturating_sub(crate::digest::HEADER_BYTES);
    if entries > 0 {
        head[4..8].copy_from_slice(&(entries as u32).to_be_bytes());
        head[16..20].copy_from_slice(&(entries as u32).to_be_bytes());
        head[20] = 8;
    }
    head
}

/// Writes a length, if there is room for it.
#[cfg(test)]
fn put_u16(bytes: &mut [u8], at: usize, length: usize) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&(length as u16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, run: impl Fn(&[u8]), with_length: impl Fn(&[u8], usize) -> Vec<u8>) {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus").join(target);
        let mut inputs = 0;
        for entry in std::fs::read_dir(corpus).expect("the corpus is checked in") {
            let path = entry.expect("a listed file").path();
            let bytes = std::fs::read(path).expect("a readable file");
            // Every head of an input is an input too, as it is and with its length.
            for end in 0..=bytes.len() {
                run(&bytes[..end]);
                run(&with_length(&bytes, end));
            }
            inputs += 1;
        }
        assert!(inputs >= 8, "the corpus of {target} is gone");
    }

    #[test]
    fn icp_messages() {
        replay("icp_message", super::icp, super::icp_head);
    }

    #[test]
    fn cache_digests() {
        replay("cache_digest", super::digest, super::digest_head);
    }

    #[test]
    fn htcp_messages() {
        replay("htcp_message", super::htcp, super::htcp_head);
    }
}

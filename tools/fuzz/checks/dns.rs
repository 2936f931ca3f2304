//! Checks of the parsers of this crate, for the fuzz targets and for the tests that replay their
//! corpora: what must hold for any reply of a name server and any content of the system's files.

use std::net::IpAddr;

use crate::Name;
use crate::files::{Servers, hosts};
use crate::limits::{SEARCH_MAX, SERVERS_MAX};
use crate::wire::{Question, Reply, Wanted};

/// The id of the question in each reply.
const ID: u16 = 0x0707;

/// Target `dns_reply`: a reply, or one of the system's files.
pub fn dns_reply(data: &[u8]) {
    replies(data);
    system_files(&String::from_utf8_lossy(data));
}

/// Parses the bytes as a reply to a question of each family: with their own head, and with a head
/// that makes them a reply to the question.
fn replies(data: &[u8]) {
    for wanted in [Wanted::V4, Wanted::V6] {
        let question = Question::new("www.example.org", wanted).expect("a name");
        let asked = question.bytes(ID).expect("a question");
        let _ = question.read(ID, data);
        // The first byte becomes the flags, the rest follows the question.
        let (Some(&flags), rest) = (data.first(), data.get(1..).unwrap_or_default()) else {
            return;
        };
        let mut reply = asked.clone();
        reply[2] |= 0x80;
        reply[3] = flags & 0x8f;
        // The next bytes are the counts of answers, authorities and additional records.
        for (at, count) in rest.iter().take(3).enumerate() {
            reply[7 + 2 * at] = count % 8;
        }
        reply.extend_from_slice(rest.get(3..).unwrap_or_default());
        check(wanted, question.read(ID, &reply));
        // A reply to another question is rejected.
        assert_eq!(question.read(ID + 1, &reply), None);
        let other = Question::new("www.example.com", wanted).expect("a name");
        assert_eq!(other.read(ID, &reply), None);
    }
}

fn check(wanted: Wanted, reply: Option<Reply>) {
    let Some(Reply::Addresses(ips, _)) = reply else { return };
    assert!(!ips.is_empty(), "an empty list of addresses");
    assert!(ips.iter().all(|ip| matches!(ip, IpAddr::V4(_)) == (wanted == Wanted::V4)));
    let mut once = ips.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ips.len(), "an address twice");
}

/// Parses the text as each of the system's two files.
pub fn system_files(text: &str) {
    for (name, addresses) in hosts(text) {
        assert!(!name.is_empty() && !addresses.is_empty() && name == name.to_ascii_lowercase());
    }
    let servers = Servers::of_resolv_conf(text);
    assert!(servers.addresses.len() <= SERVERS_MAX);
    assert!(servers.search.len() <= SEARCH_MAX && servers.attempts > 0);
    let name = Name::read("a.b").expect("a name");
    let candidates = servers.candidates(&name);
    assert!(candidates.iter().any(|name| name == "a.b"), "{candidates:?}");
    assert!(candidates.iter().all(|name| Name::read(name).is_some()), "{candidates:?}");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, run: impl Fn(&[u8])) {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus").join(target);
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
    fn dns_replies() {
        replay("dns_reply", super::dns_reply);
    }

    #[test]
    fn texts() {
        replay("proxy_texts", |data| super::system_files(&String::from_utf8_lossy(data)));
    }
}

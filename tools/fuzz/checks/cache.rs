//! Checks on what members of a cluster send each other: changes of stored responses.

use cache::changes::Notice;

/// What is taken is what was sent: there is one form of each message.
pub(crate) fn notices(data: &[u8]) {
    let Some(notices) = Notice::decode_all(data) else { return };
    let mut again = Vec::new();
    notices.iter().for_each(|notice| notice.encode(&mut again));
    assert_eq!(again, data);
}

//! The encoding of heads on the disk.
//!
//! A version, the structures as encoded by [`postcard`], then the bytes of the head as they are
//! sent. The disk store verifies the bytes, so this code reads only what it wrote; a record of
//! another version is ignored.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::stored::Head;
use crate::stored::{Varies, VarySet};

/// Raise it whenever the structures change.
const VERSION: u8 = 1;

/// The data to encode, borrowed. The variants are in the order of [`Owned`].
#[derive(Serialize)]
enum Borrowed<'w> {
    Response(&'w Head),
    Varies(&'w [VarySet], Vec<u128>),
}

#[derive(Deserialize)]
enum Owned {
    Response(Box<Head>),
    Varies(Vec<VarySet>, Vec<u128>),
}

/// The decoded data.
#[derive(Debug)]
pub(super) enum Read {
    Response(Arc<Head>),
    Varies(Varies),
}

pub(super) fn response(head: &Head) -> Vec<u8> {
    let mut out = written(&Borrowed::Response(head));
    out.extend_from_slice(head.block());
    out
}

pub(super) fn varies(varies: &Varies) -> Vec<u8> {
    let listed = varies.keys().into_iter().map(store::Key::to_u128).collect();
    written(&Borrowed::Varies(varies.sets(), listed))
}

fn written(what: &Borrowed<'_>) -> Vec<u8> {
    let out = Vec::with_capacity(1024);
    let out = postcard::to_extend(&VERSION, out).and_then(|out| postcard::to_extend(what, out));
    // Encoding these structures cannot fail; an empty record is ignored when read.
    out.unwrap_or_default()
}

/// Decodes a record; `None` if another program wrote it.
pub(super) fn read(bytes: &[u8]) -> Option<Read> {
    let (version, rest) = bytes.split_first()?;
    if *version != VERSION {
        return None;
    }
    match postcard::take_from_bytes(rest).ok()? {
        (Owned::Response(head), block) => {
            head.read(block).map(|head| Read::Response(Arc::new(head)))
        }
        (Owned::Varies(sets, listed), []) => Varies::read(sets, listed).map(Read::Varies),
        (Owned::Varies(..), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use caching::{Exchange, Policy, Response, StoredMeta, Vary};
    use proptest::prelude::*;

    use super::*;
    use crate::realm::Realm;
    use crate::stored::Resource;
    use config::Role;
    use http1::Scheme;

    type Lines = Vec<(Vec<u8>, Vec<u8>)>;

    fn head(lines: &Lines, tags: &str, exchange: Exchange) -> Head {
        let mut fields: Vec<(&[u8], &[u8])> =
            lines.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        fields.push((b"Surrogate-Key", tags.as_bytes()));
        let meta = StoredMeta::of(
            &Response { status: 200, fields: &fields[..] },
            exchange,
            &Policy::SHARED,
        );
        let realm = Realm { role: Role::Reverse, scheme: Scheme::Http };
        let uri = crate::key::StoredUri::new(realm, b"h", b"/p");
        let resource = Resource::new(uri, fields.iter().copied(), 7);
        let varies = match caching::vary(&fields[..]) {
            Vary::Names(names) => Some(Box::new((names.clone(), names.key(&fields[..])))),
            _ => None,
        };
        let mut head = Head::new(200, b"Via: 1.1 p\r\n", fields.iter().copied(), meta, resource);
        head.varies = varies;
        head
    }

    fn line() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let known = prop::sample::select(vec![
            ("ETag", "\"a\""),
            ("ETag", "W/\"b\""),
            ("Last-Modified", "Thu, 01 Jan 1970 00:16:40 GMT"),
            ("Cache-Control", "max-age=60, stale-if-error=9, must-revalidate"),
            ("Cache-Control", "no-cache, s-maxage=5, immutable"),
            ("Expires", "soon"),
            ("Age", "70"),
            ("Vary", "Accept, X-A"),
            ("Content-Type", "text/plain"),
        ]);
        let known = known.prop_map(|(name, value)| (name.into(), value.into()));
        let any = ("[A-Za-z-]{1,9}", "[ -~]{0,20}");
        let any = any.prop_map(|(name, value)| (name.into_bytes(), value.into_bytes()));
        prop_oneof![known, any]
    }

    proptest! {
        #[test]
        fn a_head_is_read_as_written(
            lines in prop::collection::vec(line(), 0..9),
            tags in "[a-z ]{0,20}",
            request_ms in 0..2_000_000_000_000_u64,
            took_ms in 0..100_000_u64,
            purged in prop::option::of(1..2_000_000_000_000_u64),
        ) {
            let exchange = Exchange { request_ms, response_ms: request_ms + took_ms };
            let mut head = head(&lines, &tags, exchange);
            if let Some(at_ms) = purged {
                head = head.purged_softly(store::Mark { generation: 9, at_ms });
            }
            let bytes = response(&head);
            let Some(Read::Response(again)) = read(&bytes) else { panic!("{bytes:?}") };
            prop_assert_eq!(format!("{head:?}"), format!("{again:?}"));
        }

        #[test]
        fn damaged_bytes_give_no_head_or_one_that_can_be_sent(
            lines in prop::collection::vec(line(), 0..5),
            cuts in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4),
            end in any::<u16>(),
        ) {
            let exchange = Exchange { request_ms: 1, response_ms: 2 };
            let mut bytes = response(&head(&lines, "", exchange));
            for (at, byte) in cuts {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(usize::from(end) % (2 * bytes.len()));
            if let Some(Read::Response(head)) = read(&bytes) {
                let fields = caching::FieldSource::fields(&*head).count();
                prop_assert!(fields < 1000 && head.content_type().len() <= bytes.len());
            }
        }
    }

    #[test]
    fn another_version_is_ignored() {
        let exchange = Exchange { request_ms: 1, response_ms: 2 };
        let mut bytes = response(&head(&Vec::new(), "", exchange));
        assert!(read(&bytes).is_some());
        bytes[0] = VERSION + 1;
        assert!(read(&bytes).is_none() && read(&[]).is_none());
    }
}

//! Lists the responses on the disk that memory lacks.

use std::sync::Arc;

use store::Key;
use store::disk::{DiskStore, Fingerprint};

use super::codec;
use crate::forms::Away;
use crate::stored::Stored;

/// A response on the disk, as if its body stayed there. It is not read into memory, and has not
/// been compared with purges. `None`: there is none, or what responses of a URI vary by.
pub async fn listed(disk: &DiskStore, print: Fingerprint) -> Option<(Key, Arc<Stored>)> {
    let listed = disk.list(print).await?;
    let codec::Read::Response(head) = codec::read(&listed.meta)? else { return None };
    let away = Away { key: listed.key, object: listed.object };
    Some((listed.key, Arc::new(Stored::away(head, listed.body_len, away))))
}

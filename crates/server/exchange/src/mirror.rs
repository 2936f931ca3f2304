//! Copies of requests for another upstream.
//!
//! A copy is sent when its request has been routed, by a task that no client waits for. The
//! response to a copy is read and thrown away. What never happens: a copy delays, changes or fails
//! the request of the client; a core has more copies in progress than [`MIRRORED_MAX`]; a copy goes
//! to a peer or to another member of the cluster.

use std::cell::Cell;
use std::sync::Arc;

use upstream::{BodyLength, Choice, To};

use crate::fetch::{Purpose, hierarchy};
use crate::limits::{MIRRORED_BYTES_MAX, MIRRORED_MAX};
use crate::request::{Destination, Request, has_content};

thread_local! {
    /// Copies that this core has in progress.
    static IN_PROGRESS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a copy until it is dropped.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        IN_PROGRESS.set(IN_PROGRESS.get() - 1);
    }
}

impl Request {
    /// Sends a copy of the request, if a rule says so.
    pub(crate) fn mirror(&self) {
        let Some(chosen) = self.chosen else { return };
        let Some(group) = self.snapshot.routes.mirror(&chosen) else { return };
        // The member that the client has asked has sent it.
        if self.listener.cluster || has_content(&self.head()) || IN_PROGRESS.get() >= MIRRORED_MAX {
            return;
        }
        // A request that is answered here is not copied.
        let Some(to) = &self.destination else { return };
        let Ok(uri) = self.uri() else { return };
        let group = &self.snapshot.groups[group];
        let path = uri.reading().origin_form();
        let key = group.key(uri.realm.scheme, uri.authority, &path);
        let group = To::Group(Arc::clone(group), Choice::by(key), None, None);
        let mut copy = self.clone();
        let mut mirrored = Destination::new(self.owned_head(), &uri, &path, group);
        mirrored.rewritten.clone_from(&to.rewritten);
        copy.destination = Some(mirrored);
        IN_PROGRESS.set(IN_PROGRESS.get() + 1);
        runtime::spawn_detached(sent(copy, Counted));
    }
}

async fn sent(copy: Request, _counted: Counted) {
    let message = copy.message(Purpose::Pass(BodyLength::None));
    match hierarchy::exchange(&copy, &message, &mut |_| {}).await {
        Ok(mut answer) => answer.body.drain(&copy.worker.upstreams, MIRRORED_BYTES_MAX).await,
        Err(fault) => tracing::debug!(%fault, "a copy of a request got no answer"),
    }
}

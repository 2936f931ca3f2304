//! How fast a client is while we wait for nothing else.

use std::future::Future;
use std::time::Duration;

use config::limits::Limits;
use runtime::time::{self, Instant};

use crate::CoreIo;
use crate::limits::RATE_WAITS_MIN;

/// What a client has taken or sent, and how long we have waited for it.
#[derive(Debug, Default)]
pub struct Pace {
    bytes: u64,
    waited: Duration,
    waits: u32,
}

impl Pace {
    /// The client has taken or sent this many bytes.
    pub fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Waits for the client, up to this limit. The error is `too_slow` if that takes longer, or if
    /// the client moves next to nothing.
    pub async fn wait<E>(
        &mut self,
        io: &CoreIo,
        limit: fn(&Limits) -> Duration,
        client: impl Future<Output = Result<(), E>>,
        too_slow: E,
    ) -> Result<(), E> {
        let in_force = io.limits();
        let since = time::now();
        let result = time::timeout(limit(&in_force.limits), client).await;
        let is_too_slow = self.waited(since, &in_force.limits);
        match result {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) if !is_too_slow => Ok(()),
            Ok(Ok(())) | Err(_) => {
                io.counters.timeouts.add(1);
                Err(too_slow)
            }
        }
    }

    /// A wait that began then is over. Returns whether the client is to be cut off.
    pub fn waited(&mut self, since: Instant, limits: &Limits) -> bool {
        self.waited += since.elapsed();
        self.waits = self.waits.saturating_add(1);
        self.waits >= RATE_WAITS_MIN
            && self.waited >= limits.rate_grace
            && self.bytes / limits.rate_min.max(1) < self.waited.as_secs()
    }
}

/// Whether the client of a connection with streams takes what there is for it.
#[derive(Debug, Default)]
pub struct Taking {
    /// Since when it takes nothing although there is something.
    blocked: Option<Instant>,
    /// What it has taken since it was last not behind.
    pace: Pace,
}

impl Taking {
    /// The client has taken this many bytes.
    pub fn moved(&mut self, bytes: usize) {
        self.pace.moved(bytes);
    }

    /// When the client is to be cut if it takes nothing until then.
    pub fn due(&self, limits: &Limits) -> Option<Instant> {
        self.blocked.map(|since| since + limits.send_timeout)
    }

    /// Whether the client is to be cut. `waits` says that there is more to send than it takes, and
    /// `is_behind` that its rate counts.
    pub fn is_too_slow(
        &mut self,
        limits: &Limits,
        has_moved: bool,
        waits: bool,
        is_behind: bool,
    ) -> bool {
        let mut is_too_slow = false;
        if (has_moved || !waits)
            && let Some(since) = self.blocked.take()
        {
            is_too_slow = self.pace.waited(since, limits) && is_behind;
        }
        if !is_behind {
            self.pace = Pace::default();
        }
        if waits && self.blocked.is_none() {
            self.blocked = Some(time::now());
        }
        is_too_slow
    }
}

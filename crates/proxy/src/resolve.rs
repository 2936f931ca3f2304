//! Names to addresses, for forward mode, without ever blocking a core.
//!
//! The system's resolver blocks, so it is asked on the runtime's small pool. Answers are kept for
//! a fixed time. An address written as such needs none of this.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::time::{self, Instant};

use crate::fault::Fault;

/// How long an answer is used again.
const KEPT: Duration = Duration::from_secs(30);
/// Answers kept; beyond it all are forgotten.
const KEPT_MAX: usize = 10_000;

/// Until when it holds, and what it is.
type Answer = (Instant, Arc<[SocketAddr]>);

/// What has been resolved lately.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    kept: Mutex<HashMap<(String, u16), Answer>>,
}

impl Resolver {
    /// The addresses of `host`, which may be an address, in brackets if it is of IPv6.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Result<Arc<[SocketAddr]>, Fault> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Arc::new([SocketAddr::new(ip, port)]));
        }
        let name = (host.to_ascii_lowercase(), port);
        if let Some((until, addresses)) = self.kept().get(&name)
            && time::now() < *until
        {
            return Ok(Arc::clone(addresses));
        }
        let asked = name.clone();
        let looked_up = runtime::fs::unblock(move || {
            let found = (asked.0.as_str(), asked.1).to_socket_addrs();
            found.map(|addresses| addresses.collect::<Arc<[SocketAddr]>>())
        })
        .await;
        match looked_up {
            Ok(addresses) if !addresses.is_empty() => {
                let mut kept = self.kept();
                if kept.len() >= KEPT_MAX {
                    kept.clear();
                }
                kept.insert(name, (time::now() + KEPT, Arc::clone(&addresses)));
                Ok(addresses)
            }
            Ok(_) => Err(Fault::NoAddress),
            Err(error) => {
                tracing::debug!(host, %error, "no address");
                Err(Fault::NoAddress)
            }
        }
    }

    /// Nothing panics while it holds this lock.
    fn kept(&self) -> MutexGuard<'_, HashMap<(String, u16), Answer>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

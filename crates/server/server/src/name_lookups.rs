//! The first look-ups of the names of upstreams: before a start, a check or a reload.
//!
//! A name without an address stops none of them. Its server is down until the name has one, which
//! the look-ups of `upstream::health` find.
//!
//! What never happens: a caller waits longer than [`PATIENCE`]; a name is asked of other servers
//! than those of the configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, Origin};
use dns::{NotFound, Resolver};
use runtime::{Options, Runtime, time};

/// How long all look-ups together may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks up the names of all upstreams and peers that have no address yet. Returns a warning for
/// each name that has none.
///
/// # Panics
/// Not within [`Runtime::block_on`]: the look-ups have a thread and a runtime of their own.
pub fn look_up_names(config: &mut Config) -> Vec<String> {
    let name_servers = config.name_servers.clone();
    let mut origins: Vec<&mut Origin> = config.origins_without_address().collect();
    if origins.is_empty() {
        return Vec::new();
    }
    let names: Vec<(String, u16)> = origins
        .iter()
        .map(|origin| origin.host_and_port(origin.default_port()))
        .map(|(host, port)| (host.to_owned(), port))
        .collect();
    let asked = std::thread::spawn({
        let names = names.clone();
        move || {
            let mut runtime = Runtime::new(Options::default())?;
            Ok(runtime.block_on(found(Resolver::new(&name_servers), names)))
        }
    });
    let found: std::io::Result<Vec<_>> = asked.join().expect("a look-up does not panic");
    let found = match found {
        Ok(found) => found,
        Err(error) => return vec![format!("no name of an upstream was looked up: {error}")],
    };
    assert_eq!(found.len(), origins.len(), "each name has a result");
    let mut warnings = Vec::new();
    for ((origin, (host, _)), found) in origins.iter_mut().zip(&names).zip(found) {
        match found {
            Ok(addresses) => origin.addresses = addresses.to_vec(),
            Err(reason) => warnings.push(format!(
                "{host}: {}; its server is down until it has one",
                match reason {
                    NotFound::NoAddress => "the name has no address",
                    NotFound::Unanswered => "no name server gave the name's address",
                }
            )),
        }
    }
    warnings.sort();
    warnings.dedup();
    warnings
}

/// The addresses of each name.
async fn found(
    resolver: Arc<Resolver>,
    names: Vec<(String, u16)>,
) -> Vec<Result<Arc<[SocketAddr]>, NotFound>> {
    let until = time::now() + PATIENCE;
    let look_up = |(host, port): (String, u16)| {
        let resolver = Arc::clone(&resolver);
        runtime::spawn(async move {
            let found = time::timeout_at(until, resolver.resolve(&host, port)).await;
            found.unwrap_or(Err(NotFound::Unanswered))
        })
    };
    let asked: Vec<_> = names.into_iter().map(look_up).collect();
    let mut found = Vec::with_capacity(asked.len());
    for one in asked {
        found.push(one.await);
    }
    found
}

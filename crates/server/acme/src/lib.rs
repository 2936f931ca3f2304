//! Obtains and renews certificates (ACME, RFC 8555) on a thread that serves no requests.
//!
//! ```text
//!   thread --> keeper --> order --> Authority (client.rs: instant-acme over ureq)
//!                |          '-----> World     (thread.rs: clock, answers, files)
//!                '--> plan: when is a name due?
//! ```
//!
//! What: [`Handle`] starts the thread and gives it the configuration. [`keeper`] knows the names,
//! their certificates and what has failed; [`order`] leads one order from step to step; [`plan`]
//! computes instants. Why a thread: obtaining a certificate waits for seconds, reads and writes
//! files, and asks a server outside; a core does none of this.
//! Who owns: the directory of the authority ([`files`]) has one owner at a time, which holds its
//! lock: one process during a restart in place, one member of a cluster. Only the owner asks the
//! authority. The others read the certificates and the answer that the owner has written there.
//!
//! What never happens: a certificate is replaced by one that cannot be used; a key is readable by
//! another user; the authority is asked more often than [`limits`] allows; `plan`, `order` and
//! `keeper` read a clock.
#![forbid(unsafe_code)]

mod client;
#[cfg(test)]
mod fake;
mod files;
mod http;
mod keeper;
pub mod limits;
mod order;
mod plan;
mod prove;
mod thread;

use std::sync::{Arc, Mutex, PoisonError};

use config::Acme;
use serde::Serialize;
use transport::tls::Issued;

pub use thread::Handle;

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NameState {
    /// The name.
    pub name: String,
    /// When its certificate expires, in seconds since the Unix epoch; `None`: there is none.
    pub expires_s: Option<u64>,
    /// When the authority is asked next.
    pub next_s: u64,
    /// Attempts that have failed since the last one that has not.
    pub failures: u32,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// What is known of all names, for the admin address.
#[derive(Debug, Default)]
pub struct Report(Mutex<Content>);

#[derive(Clone, Debug, Default, Serialize)]
struct Content {
    /// Whether this process asks the authority.
    asks: bool,
    names: Vec<NameState>,
    #[serde(skip)]
    obtained: u64,
    #[serde(skip)]
    failed: u64,
}

impl Report {
    /// All names, in order.
    pub fn names(&self) -> Vec<NameState> {
        self.content().names
    }

    /// How many certificates this process has obtained, and how many attempts have failed.
    pub fn attempts(&self) -> (u64, u64) {
        let content = self.content();
        (content.obtained, content.failed)
    }

    /// As JSON.
    ///
    /// # Panics
    /// Never: all keys are texts.
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self.content()).expect("all keys are texts")
    }

    fn content(&self) -> Content {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Content)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Loads the certificates that there are, before the server takes its first connection. A file that
/// cannot be used is logged, and its name has no certificate.
pub fn load(settings: &Acme, issued: &Arc<Issued>) {
    let files = files::Files::at(settings);
    issued.keep_only(&settings.names);
    // The authority may look for the answer to an order of the process before this one.
    let answer: Result<Option<prove::Answer>, _> = files.get(keeper::ANSWER);
    let given = answer.and_then(|one| issued.set_answer(one.as_ref().map(Into::into).as_ref()));
    if let Err(why) = given {
        tracing::error!("{why}");
    }
    for name in &settings.names {
        match files.certificate(name) {
            Ok(Some(pem)) => {
                if let Err(why) = issued.put(name, &pem) {
                    tracing::error!("the stored certificate for {name}: {why}");
                }
            }
            Ok(None) => tracing::warn!(
                "there is no certificate for {name} yet: handshakes for this name fail, or \
                 get the certificate of a file, until the authority has issued one"
            ),
            Err(why) => tracing::error!("{why}"),
        }
    }
}

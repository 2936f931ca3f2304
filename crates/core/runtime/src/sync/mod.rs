//! How tasks communicate: within a core ([`Notify`]) and across cores ([`inbox()`]); and a lock for
//! what cores share ([`Lock`]).

mod inbox;
mod lock;
mod notify;
pub mod primitives;

pub use inbox::{Inbox, Recv, SendError, Sender, inbox};
pub use lock::{Guard, Lock, LockKind, LockUse};
pub use notify::{Notified, Notify};

#[cfg(all(test, loom))]
mod models;

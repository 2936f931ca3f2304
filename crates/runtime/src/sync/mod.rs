//! How tasks speak to each other: within a core ([`Notify`]) and across cores ([`inbox`]); and what
//! cores share after all ([`Lock`]).

mod inbox;
mod lock;
mod notify;

pub use inbox::{Inbox, Recv, SendError, Sender, inbox};
pub use lock::{Guard, Lock, LockKind, LockUse};
pub use notify::{Notified, Notify};

//! How tasks speak to each other: within a core ([`Notify`]) and across cores ([`inbox`]).

mod inbox;
mod notify;

pub use inbox::{Inbox, Recv, SendError, Sender, inbox};
pub use notify::{Notified, Notify};

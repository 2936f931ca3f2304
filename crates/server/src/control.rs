//! What a running server can be told: by a signal, by the admin address, by its end.
//!
//! What: one queue of orders, worked off one after the other by the thread that started the server
//! ([`crate::Server::run`]), so that a reload never meets a restart half-way. That thread may
//! block: it reads files, looks names up, waits for a successor; no core ever does.
//! Who owns: the queue's sending ends are everywhere, its receiving end is the server's.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use runtime::sync::{Inbox, Sender, inbox};

use metrics::{Described, Shape};

/// An order to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the configuration again, and open the access log again.
    Reload,
    /// Open the access log again.
    ReopenLog,
    /// Start the program anew in our place.
    Restart,
    /// Finish what is under way, then end.
    Stop,
}

/// What became of an order, for whoever gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it was carried out.
    pub done: bool,
    /// What happened, or why it did not: a line, or several.
    pub text: String,
}

impl Answer {
    pub(crate) fn done(text: impl Into<String>) -> Answer {
        Answer { done: true, text: text.into() }
    }

    pub(crate) fn refused(text: impl Into<String>) -> Answer {
        Answer { done: false, text: text.into() }
    }
}

/// What comes to the server's thread.
pub(crate) enum Event {
    /// An order, and whom to answer.
    Order(Order, Option<Sender<Answer>>),
    /// A core's thread has ended; whether by a failure.
    CoreEnded { failed: bool },
}

/// A way to give orders, from any thread.
#[derive(Clone)]
pub struct Orders(mpsc::Sender<Event>);

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").finish_non_exhaustive()
    }
}

impl Orders {
    /// A queue, and what it is read from.
    pub(crate) fn queue() -> (Orders, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel();
        (Orders(sender), receiver)
    }

    /// Gives an order. One to a server that has ended is lost, as there is nobody left to obey.
    pub fn give(&self, order: Order) {
        let _ = self.0.send(Event::Order(order, None));
    }

    /// Gives an order whose answer is awaited.
    pub(crate) fn ask(&self, order: Order) -> Inbox<Answer> {
        let (sender, receiver) = inbox(1);
        let _ = self.0.send(Event::Order(order, Some(sender)));
        receiver
    }

    pub(crate) fn core_ended(&self, failed: bool) {
        let _ = self.0.send(Event::CoreEnded { failed });
    }
}

/// What has become of orders so far; read by the admin address.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Where the admin's orders go; nowhere in a simulation.
    orders: Mutex<Option<Orders>>,
    /// How many configurations have been in force.
    generation: AtomicU64,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
    restart_failures: AtomicU64,
}

impl Control {
    pub(crate) fn obey(&self, orders: Orders) {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = Some(orders);
        self.generation.store(1, Ordering::Relaxed);
    }

    pub(crate) fn orders(&self) -> Option<Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a reload that was put in place; the number of its configuration.
    pub(crate) fn reloaded(&self) -> u64 {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn reload_failed(&self) {
        self.reload_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn restart_failed(&self) {
        self.restart_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> Vec<(Described, u64)> {
        let values =
            [&self.generation, &self.reloads, &self.reload_failures, &self.restart_failures];
        let values = values.into_iter().map(|value| value.load(Ordering::Relaxed));
        CONTROL_FIGURES.iter().copied().zip(values).collect()
    }
}

/// What [`Control::figures`] tells, in its order.
pub(crate) const CONTROL_FIGURES: &[Described] = &[
    Described {
        name: "config_generation",
        help: "Configurations that have been in force in this process, the present one included",
        shape: Shape::Gauge,
    },
    Described {
        name: "config_reloads",
        help: "Reloads that put a new configuration in force",
        shape: Shape::Counter,
    },
    Described {
        name: "config_reload_failures",
        help: "Reloads that changed nothing because the configuration could not be used",
        shape: Shape::Counter,
    },
    Described {
        name: "restart_failures",
        help: "Restarts after which this process served on because the new one did not",
        shape: Shape::Counter,
    },
];

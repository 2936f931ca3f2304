//! Orders to a running server, from a signal or the admin address.
//!
//! What: one queue of orders, which the thread that started the server ([`crate::Server::run`])
//! carries out one after the other, so that a reload never runs during a restart. That thread may
//! block: it reads files, resolves names, waits for a successor; a core never does.
//! Who owns: anyone may hold a sending end of the queue; the server has the receiving end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::sync::{Inbox, Sender, inbox};

use metrics::{Described, Shape};

/// An order to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the configuration again, and open the access log again.
    Reload,
    /// Open the access log again.
    ReopenLog,
    /// Start the program again in place of this process.
    Restart,
    /// Finish the requests in flight, then end.
    Stop,
}

/// The result of an order.
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

/// What the server's thread waits for.
pub(crate) enum Event {
    /// An order, and where to send the answer.
    Order(Order, Option<Sender<Answer>>),
    /// It is time to look at the file that switches maintenance on.
    Tick,
    /// The thread of a core has ended, perhaps because it failed.
    CoreEnded { failed: bool },
}

/// A way to give orders, from any thread.
#[derive(Clone, Debug)]
pub struct Orders(mpsc::Sender<Event>);

impl Orders {
    /// A queue: its sending and its receiving end.
    pub(crate) fn queue() -> (Orders, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel();
        (Orders(sender), receiver)
    }

    /// Gives an order. An order to a server that has ended is lost.
    pub fn give(&self, order: Order) {
        let _ = self.0.send(Event::Order(order, None));
    }

    /// Gives an order, and returns where its answer arrives.
    pub(crate) fn ask(&self, order: Order) -> Inbox<Answer> {
        let (sender, receiver) = inbox(1);
        let _ = self.0.send(Event::Order(order, Some(sender)));
        receiver
    }

    pub(crate) fn core_ended(&self, failed: bool) {
        let _ = self.0.send(Event::CoreEnded { failed });
    }
}

/// The results of orders so far, for the admin address.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Where the admin address sends orders; `None` in a simulation.
    orders: Mutex<Option<Orders>>,
    /// How many configurations have been in force.
    generation: AtomicU64,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
    restart_failures: AtomicU64,
    /// When it began to take orders, ns since the Unix epoch; 0 in a simulation.
    started_ns: AtomicU64,
}

impl Control {
    pub(crate) fn obey(&self, orders: Orders) {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = Some(orders);
        self.generation.store(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ns = since.as_nanos().try_into().unwrap_or_default();
        self.started_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn orders(&self) -> Option<Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a successful reload, and returns the number of its configuration.
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
        let values = [
            &self.generation,
            &self.reloads,
            &self.reload_failures,
            &self.restart_failures,
            &self.started_ns,
        ];
        let values = values.into_iter().map(|value| value.load(Ordering::Relaxed));
        CONTROL_FIGURES.iter().copied().zip(values).collect()
    }
}

/// The figures of [`Control::figures`], in the same order.
pub(crate) const CONTROL_FIGURES: &[Described] = &[
    Described {
        name: "config_generation",
        help: "Configurations that have been in force in this process, including the current one",
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
        help: "Restarts that failed, so that this process went on serving",
        shape: Shape::Counter,
    },
    Described {
        name: "start_time_seconds",
        help: "When the process began to serve, in seconds since the Unix epoch",
        shape: Shape::Gauge,
    },
];

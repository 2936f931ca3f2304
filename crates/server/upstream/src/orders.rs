//! What an operator orders at run time: that a server gets no new requests, or another weight.
//!
//! ```text
//! ready: all requests --drain--> those of its sessions only --disabled--> none --ready--> all
//! ```
//!
//! Requests in flight, and connections in use, go on to their end in each state. Health checks go
//! on, too.
//!
//! Who owns: the state of the server. If a server is one address of a name, its orders stay with
//! the address: see [`crate::slots`] for how long after the address has left. A reload forgets the
//! orders for a server unless they are kept; a restart forgets all of them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};

/// Which requests a server gets, as far as an operator decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Order {
    /// All.
    #[default]
    Ready,
    /// Those of its sticky sessions only.
    Drain,
    /// None.
    Disabled,
}

pub(crate) const ORDERS: [Order; 3] = [Order::Ready, Order::Drain, Order::Disabled];

impl Order {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Ready => "ready",
            Order::Drain => "drain",
            Order::Disabled => "disabled",
        }
    }
}

/// The orders for one server.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) order: AtomicU8,
    /// The weight; 0: that of the configuration.
    pub(crate) weight: AtomicU32,
    pub(crate) are_kept: AtomicBool,
}

impl Orders {
    #[inline]
    pub(crate) fn order(&self) -> Order {
        ORDERS[usize::from(self.order.load(Relaxed))]
    }

    /// The weight that was ordered, if one was.
    #[inline]
    pub(crate) fn weight(&self) -> Option<u32> {
        Some(self.weight.load(Relaxed)).filter(|weight| *weight > 0)
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.are_kept.load(Relaxed)
    }

    /// A reload: forgets what is not kept. True if there was anything to forget.
    pub(crate) fn reload(&self) -> bool {
        !self.are_kept() && self.forget()
    }

    /// Whether there is anything to forget.
    pub(crate) fn are_any(&self) -> bool {
        self.order() != Order::Ready || self.weight().is_some()
    }

    /// Forgets all. True if there was anything to forget.
    pub(crate) fn forget(&self) -> bool {
        self.are_kept.store(false, Relaxed);
        let order = self.order.swap(Order::Ready as u8, Relaxed);
        let weight = self.weight.swap(0, Relaxed);
        order != Order::Ready as u8 || weight != 0
    }
}

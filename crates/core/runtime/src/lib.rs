//! One core: executor, timers, sockets, files; and its simulated twin.
//!
//! What: a [`Runtime`] is a single-threaded executor with everything that a server on one core
//! waits for: tasks ([`spawn`]), time ([`time`]), sockets ([`net`]), files ([`fs`]), other tasks
//! and other cores ([`sync`]), and the signal to stop ([`stop`]). It is built on [`readiness`],
//! whose backend is chosen at start. [`Runtime::simulated`] is the same runtime on a network, a
//! disk and a clock that are simulated from a seed ([`sim`]). Why: a core that shares nothing needs
//! no locks and no atomic operations between an event and its answer. A request on a keep-alive
//! connection costs its share of one wait, one recv and one send. It causes no change of interest,
//! no timer call and no allocation. Who owns: a thread owns its runtime; tasks, sockets and timers
//! belong to the core that made them and never leave this core. Only wakers, [`sync::Sender`] and
//! [`stop`] cross threads. What never happens: a core blocks (files are read from the page cache or
//! by a small pool), an event is lost, a stale waker wakes another task. No code above this crate
//! knows whether the network, the disk and the clock are real.
//!
//! # What it promises
//!
//! The simulated twin runs the same code under a virtual clock, on a seeded network with delays,
//! splits at every byte, resets, half-closes, and datagrams that are lost, reordered or duplicated,
//! and on a disk that survives crashes and loses the writes that were not synced. A failure prints
//! its seed. Files are written and synced off the core.
//!
//! ```
//! use std::time::Duration;
//! let mut runtime = runtime::Runtime::new(runtime::Options::default())?;
//! let answer = runtime.block_on(async {
//!     let task = runtime::spawn(async {
//!         runtime::time::sleep(Duration::from_millis(1)).await;
//!         42
//!     });
//!     task.await
//! });
//! assert_eq!(answer, 42);
//! # Ok::<(), std::io::Error>(())
//! ```

#[macro_use]
mod setters;

mod allocations;
mod boxed;
mod core;
mod counters;
pub mod fs;
mod future;
mod io;
pub mod net;
mod packed_waker;
pub mod process;
mod remote;
pub mod sim;
pub mod stop;
pub mod sync;
mod sys;
mod task;
pub mod time;
mod waker;

pub use crate::allocations::{Allocations, CountingAllocator, allocations, observe_allocations};
pub use crate::boxed::{Boxed, boxed};
pub use crate::core::{
    Options, Runtime, backend, counters, poller_counters, spawn, spawn_detached, tasks, yield_now,
};
pub use crate::counters::Counters;
pub use crate::future::{Either, join, race, wake};
pub use crate::packed_waker::PackedWaker;
pub use crate::task::JoinHandle;

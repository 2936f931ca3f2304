//! The mutexes and atomics of what cores share: those of the standard library.
//!
//! Under `--cfg loom` they are those of loom, which runs a model of a few threads in every order
//! that the memory model allows. `cargo xtask nightly` runs these models. An atomic that only
//! counts, or is `static`, stays one of the standard library, which loom does not see.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(not(loom))]
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(loom)]
pub use self::modelled::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(loom)]
pub use loom;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(loom)]
mod modelled;

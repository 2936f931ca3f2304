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
pub use loom;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};

/// loom's own misses orders in which another thread comes between two holders. A mutex has all of
/// them, and readers here never wait for each other.
#[cfg(loom)]
#[derive(Debug, Default)]
pub struct RwLock<T>(Mutex<T>);

#[cfg(loom)]
mod exclusive {
    use std::sync::LockResult;

    use super::{MutexGuard, RwLock};

    /// As the standard library's.
    pub type RwLockReadGuard<'a, T> = MutexGuard<'a, T>;
    /// As the standard library's.
    pub type RwLockWriteGuard<'a, T> = MutexGuard<'a, T>;

    #[allow(missing_docs)]
    impl<T> RwLock<T> {
        pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
            self.0.lock()
        }

        pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
            self.0.lock()
        }

        pub fn into_inner(self) -> LockResult<T> {
            self.0.into_inner()
        }
    }
}

#[cfg(loom)]
pub use exclusive::{RwLockReadGuard, RwLockWriteGuard};

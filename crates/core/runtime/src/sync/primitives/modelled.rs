//! Locks of loom that another thread may also come between.
//!
//! loom looks for another order where two threads use the same object. Releasing a lock is no use
//! of it, so loom misses orders in which another thread comes right after a release. Here each lock
//! has a count that is changed before the lock is taken and after it is released. Readers exclude
//! each other.
#![allow(missing_docs)]

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use loom::sync::atomic::AtomicU64;

#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: loom::sync::Mutex<T>,
    uses: AtomicU64,
}

#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// `None` only while it is dropped.
    inner: Option<loom::sync::MutexGuard<'a, T>>,
    uses: &'a AtomicU64,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex { inner: loom::sync::Mutex::new(value), uses: AtomicU64::new(0) }
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.uses.fetch_add(1, Relaxed);
        match self.inner.lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(poisoned) => Err(PoisonError::new(self.guard(poisoned.into_inner()))),
        }
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.uses.fetch_add(1, Relaxed);
        self.inner.try_lock().map(|inner| self.guard(inner)).map_err(|_| TryLockError::WouldBlock)
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }

    fn guard<'a>(&'a self, inner: loom::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { inner: Some(inner), uses: &self.uses }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the lock is held")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.inner.take());
        self.uses.fetch_add(1, Relaxed);
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T>(Mutex<T>);

pub type RwLockReadGuard<'a, T> = MutexGuard<'a, T>;
pub type RwLockWriteGuard<'a, T> = MutexGuard<'a, T>;

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

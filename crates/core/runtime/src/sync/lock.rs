//! A lock that can measure its use.
//!
//! What: [`Lock`] is the system's mutex with a [`LockKind`]: a name, shared by all locks that do
//! the same work (the shards of a table), under which uses are counted: how often a lock was
//! requested, how often it was contended, and how long callers waited for it and held it.
//! Why: measurements show whether cores that should share nothing contend for a lock after all, as
//! they did for the run queue's lock in 2002. Counting is off until [`LockKind::measure_all`].
//! While it is off, a lock costs the mutex and one load of a flag that is not being written.
//! What never happens: a hold is counted that began before counting was switched on or ends after
//! it was switched off, because its length would be unknown.
//!
//! The holder counts before it unlocks. So the reported hold time excludes the unlocking, and
//! counting makes each hold some tens of nanoseconds longer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LockResult, Mutex as StaticMutex, PoisonError, TryLockError};
use std::time::Instant;

use super::primitives::{Mutex, MutexGuard};

static MEASURING: AtomicBool = AtomicBool::new(false);

/// All kinds that have a lock.
static KINDS: StaticMutex<Vec<&'static LockKind>> = StaticMutex::new(Vec::new());

macro_rules! counts {
    ($($(#[$doc:meta])+ $count:ident,)+) => {
        /// The purpose of a lock: one `static` for all locks that do the same work.
        pub struct LockKind {
            name: &'static str,
            registered: AtomicBool,
            $($count: AtomicU64,)+
        }

        /// The counts for the locks of one kind.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LockUse {
            /// The name of the kind.
            pub name: &'static str,
            $($(#[$doc])+ pub $count: u64,)+
        }

        impl LockKind {
            /// A kind with this name.
            #[must_use]
            pub const fn new(name: &'static str) -> LockKind {
                let registered = AtomicBool::new(false);
                LockKind { name, registered, $($count: AtomicU64::new(0),)+ }
            }

            fn counted(&self) -> LockUse {
                LockUse { name: self.name, $($count: self.$count.load(Ordering::Relaxed),)+ }
            }

            fn reset(&self) {
                $(self.$count.store(0, Ordering::Relaxed);)+
            }
        }
    };
}

counts! {
    /// How often a lock was requested.
    attempts,
    /// How many of these found it held.
    contended,
    /// Total waiting time in nanoseconds.
    waited_ns,
    /// Holds that began and ended while counting was on.
    holds,
    /// Total hold time in nanoseconds.
    held_ns,
    /// The longest hold in nanoseconds.
    held_ns_max,
}

impl LockKind {
    /// Switches counting on or off for all locks of the process. Switching on resets the counts;
    /// switching off keeps them.
    pub fn measure_all(on: bool) {
        if on {
            KINDS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .for_each(|kind| kind.reset());
        }
        MEASURING.store(on, Ordering::Relaxed);
    }

    /// Whether counting is on.
    #[must_use]
    pub fn measuring() -> bool {
        MEASURING.load(Ordering::Relaxed)
    }

    /// The counts of each kind that has or had a lock, by name.
    #[must_use]
    pub fn uses() -> Vec<LockUse> {
        let kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut uses: Vec<LockUse> = kinds.iter().map(|kind| kind.counted()).collect();
        uses.sort_by_key(|used| used.name);
        uses
    }

    fn register(&'static self) {
        if !self.registered.load(Ordering::Relaxed)
            && !self.registered.swap(true, Ordering::Relaxed)
        {
            KINDS.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }
}

impl fmt::Debug for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counted().fmt(f)
    }
}

/// A mutex of a kind.
pub struct Lock<T> {
    kind: &'static LockKind,
    mutex: Mutex<T>,
}

/// Access to what a [`Lock`] guards.
pub struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    kind: &'static LockKind,
    /// When the hold began, if it is counted.
    since: Option<Instant>,
}

impl<T> Lock<T> {
    /// A lock of this kind.
    pub fn new(kind: &'static LockKind, value: T) -> Lock<T> {
        kind.register();
        Lock { kind, mutex: Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// As [`Mutex::lock`]: the last holder panicked.
    #[inline]
    pub fn lock(&self) -> LockResult<Guard<'_, T>> {
        if LockKind::measuring() {
            return self.lock_counted();
        }
        self.guard(self.mutex.lock(), None)
    }

    #[cold]
    fn lock_counted(&self) -> LockResult<Guard<'_, T>> {
        self.kind.attempts.fetch_add(1, Ordering::Relaxed);
        let locked = match self.mutex.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                self.kind.contended.fetch_add(1, Ordering::Relaxed);
                let asked = Instant::now();
                let locked = self.mutex.lock();
                self.kind.waited_ns.fetch_add(ns_since(asked), Ordering::Relaxed);
                locked
            }
        };
        self.guard(locked, Some(Instant::now()))
    }

    #[inline]
    fn guard<'a>(
        &self,
        locked: LockResult<MutexGuard<'a, T>>,
        since: Option<Instant>,
    ) -> LockResult<Guard<'a, T>> {
        let kind = self.kind;
        match locked {
            Ok(inner) => Ok(Guard { inner, kind, since }),
            Err(poisoned) => {
                Err(PoisonError::new(Guard { inner: poisoned.into_inner(), kind, since }))
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mutex.fmt(f)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.kind.end(since);
        }
    }
}

impl LockKind {
    #[cold]
    fn end(&self, since: Instant) {
        if LockKind::measuring() {
            let held_ns = ns_since(since);
            self.holds.fetch_add(1, Ordering::Relaxed);
            self.held_ns.fetch_add(held_ns, Ordering::Relaxed);
            self.held_ns_max.fetch_max(held_ns, Ordering::Relaxed);
        }
    }
}

fn ns_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Tests that switch counting run one after another.
    static SWITCH: StaticMutex<()> = StaticMutex::new(());

    #[test]
    fn counting_is_off_until_it_is_switched_on() {
        static KIND: LockKind = LockKind::new("counted when asked");
        let _alone = SWITCH.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Lock::new(&KIND, 1);
        *lock.lock().unwrap() += 1;
        assert_eq!(KIND.counted(), LockUse { name: KIND.name, ..LockUse::default() });

        let begun_before = lock.lock().unwrap();
        LockKind::measure_all(true);
        drop(begun_before);
        *lock.lock().unwrap() += 1;
        *lock.lock().unwrap() += 1;
        let ends_after = lock.lock().unwrap();
        LockKind::measure_all(false);
        drop(ends_after);
        assert_eq!(*lock.lock().unwrap(), 4);
        let used = KIND.counted();
        assert_eq!((used.attempts, used.contended, used.holds), (3, 0, 2));
        assert!(LockKind::uses().contains(&used));
        LockKind::measure_all(true);
        LockKind::measure_all(false);
        assert_eq!(KIND.counted(), LockUse { name: KIND.name, ..LockUse::default() });
    }

    #[test]
    fn a_contended_attempt_counts_its_wait_and_the_hold() {
        static KIND: LockKind = LockKind::new("waited for");
        const HELD: Duration = Duration::from_millis(20);
        let _alone = SWITCH.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Arc::new(Lock::new(&KIND, ()));
        let asking = Arc::new(AtomicUsize::new(0));
        LockKind::measure_all(true);
        let held = lock.lock().unwrap();
        let waiter = thread::spawn({
            let (lock, asking) = (Arc::clone(&lock), Arc::clone(&asking));
            move || {
                asking.store(1, Ordering::SeqCst);
                drop(lock.lock().unwrap());
            }
        });
        // Wait until the attempt is counted as contended.
        while asking.load(Ordering::SeqCst) == 0 || KIND.counted().contended == 0 {
            thread::yield_now();
        }
        thread::sleep(HELD);
        drop(held);
        waiter.join().unwrap();
        LockKind::measure_all(false);
        let used = KIND.counted();
        assert_eq!((used.attempts, used.contended, used.holds), (2, 1, 2));
        assert!(used.waited_ns >= 1_000_000, "{used:?}");
        assert!(used.held_ns_max >= HELD.as_nanos() as u64, "{used:?}");
        assert!(used.held_ns >= used.held_ns_max, "{used:?}");
    }

    #[test]
    fn a_panic_of_the_holder_poisons_the_lock() {
        static KIND: LockKind = LockKind::new("poisoned");
        let lock = Arc::new(Lock::new(&KIND, 7));
        let of_thread = Arc::clone(&lock);
        let panicked = thread::spawn(move || {
            let _held = of_thread.lock().unwrap();
            panic!("while it is held");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock.lock().unwrap_or_else(PoisonError::into_inner), 7);
        assert!(lock.lock().is_err());
    }
}

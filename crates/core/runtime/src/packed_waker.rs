//! Wakers in one word instead of two, for tables with an entry for each connection.
//!
//! What never happens: a number of a task is taken for an address, or an address for a number.

use std::fmt;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::remote::TaskId;

/// The bit that is set in the number of a task and clear in an address. Linux gives no process an
/// address with this bit.
const IS_TASK: usize = 1 << (usize::BITS - 1);

/// A waker in one word. A [`Waker`] has two.
///
/// The waker of a task is the task's number. A waker of another runtime is on the heap.
pub struct PackedWaker(
    /// With the bit `IS_TASK`: the number of a task. Without: a `Box<Waker>`, which this owns.
    NonNull<()>,
);

const _: () = assert!(size_of::<Option<PackedWaker>>() == size_of::<usize>());

impl PackedWaker {
    /// Packs a waker.
    #[inline]
    pub fn new(waker: &Waker) -> PackedWaker {
        match TaskId::of(waker) {
            Some(id) => PackedWaker(number(id)),
            None => PackedWaker::boxed(waker),
        }
    }

    #[cold]
    fn boxed(waker: &Waker) -> PackedWaker {
        let boxed = NonNull::from(Box::leak(Box::new(waker.clone()))).cast::<()>();
        assert!(boxed.addr().get() & IS_TASK == 0, "an address of a process has the bit clear");
        PackedWaker(boxed)
    }

    fn unpacked(&self) -> Result<TaskId, &Waker> {
        let bits = self.0.addr().get();
        if bits & IS_TASK != 0 {
            return Ok(TaskId::from_bits((bits & !IS_TASK) as u64));
        }
        // SAFETY: without the bit it is a box of a waker that this owns, and it is only read.
        Err(unsafe { self.0.cast::<Waker>().as_ref() })
    }

    /// A waker that wakes the same task.
    pub fn waker(&self) -> Waker {
        match self.unpacked() {
            Ok(id) => id.waker(),
            Err(waker) => waker.clone(),
        }
    }

    /// Whether the two wake the same task.
    #[inline]
    pub fn will_wake(&self, waker: &Waker) -> bool {
        match self.unpacked() {
            Ok(id) => TaskId::of(waker) == Some(id),
            Err(own) => own.will_wake(waker),
        }
    }

    /// Wakes the task.
    #[inline]
    pub fn wake(self) {
        match self.unpacked() {
            Ok(id) => id.wake(),
            Err(waker) => waker.wake_by_ref(),
        }
    }
}

fn number(id: TaskId) -> NonNull<()> {
    let bits = id.to_bits() as usize;
    debug_assert!(bits & IS_TASK == 0, "the number of a task has the bit clear");
    NonNull::new(ptr::without_provenance_mut(bits | IS_TASK)).expect("the bit is set")
}

impl Drop for PackedWaker {
    #[inline]
    fn drop(&mut self) {
        if self.0.addr().get() & IS_TASK == 0 {
            // SAFETY: without the bit it is a box of a waker that only this owns, from `Box::leak`.
            drop(unsafe { Box::from_raw(self.0.cast::<Waker>().as_ptr()) });
        }
    }
}

impl fmt::Debug for PackedWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PackedWaker").field(&self.unpacked()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::remote::{CORES_MAX, GENERATION_MASK, MAIN_SLOT};

    #[test]
    fn a_packed_waker_is_the_number_of_its_task() {
        let last = ((CORES_MAX - 1) as u16, MAIN_SLOT, GENERATION_MASK);
        for (core, slot, generation) in [(0, 0, 0), (3, 9, 1), last] {
            let id = TaskId::new(core, slot, generation);
            let packed = PackedWaker::new(&id.waker());
            assert_eq!(packed.unpacked().ok(), Some(id));
            assert!(packed.will_wake(&id.waker()) && packed.waker().will_wake(&id.waker()));
            assert!(!packed.will_wake(&TaskId::new(core, slot, generation ^ 1).waker()));
            assert!(!packed.will_wake(Waker::noop()));
        }
    }

    #[test]
    fn a_waker_of_another_runtime_is_packed_too() {
        #[derive(Default)]
        struct Count(AtomicU32);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let packed = PackedWaker::new(&waker);
        // Miri may give the functions of a waker several addresses, as if there were two wakers.
        assert!(packed.will_wake(&waker) || cfg!(miri));
        assert!(!packed.will_wake(&TaskId::new(0, 1, 2).waker()));
        packed.waker().wake();
        packed.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        drop(PackedWaker::new(&waker));
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

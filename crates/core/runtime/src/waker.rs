//! Wakers that are integers: which core, which task slot, which generation.
//!
//! What: the data of a [`Waker`] is the packed number itself, never a pointer. Cloning copies it
//! and dropping does nothing: no reference count, no allocation, and nothing that could dangle.
//! [`PackedWaker`] is the same in one word instead of two, for tables with an entry for each
//! connection.
//! Why: a server wakes a task for every event; a reference-counted waker costs two atomic
//! operations each time.
//! What never happens: a wake for an ended task wakes its successor (generations prevent it).

use std::fmt;
use std::ptr::{self, NonNull};
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::core;
use crate::remote::{self, TaskId};

impl TaskId {
    pub(crate) fn waker(self) -> Waker {
        // SAFETY: the table's functions use the data only as a number and never as a pointer, so
        // they are valid for any data, in any thread, any number of times: the contract of RawWaker
        // always holds.
        unsafe { Waker::from_raw(raw(self)) }
    }

    /// The task that a waker wakes; `None` if the waker is not one of this runtime.
    fn of(waker: &Waker) -> Option<TaskId> {
        let is_task = ptr::eq(waker.vtable(), &raw const VTABLE);
        is_task.then(|| TaskId::from_bits(waker.data().addr() as u64))
    }

    /// Wakes the task, from any thread.
    pub(crate) fn wake(self) {
        if !core::wake_if_current(self) {
            remote::wake(self);
        }
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| raw(TaskId::from_bits(data.addr() as u64)),
    |data| TaskId::from_bits(data.addr() as u64).wake(),
    |data| TaskId::from_bits(data.addr() as u64).wake(),
    |_| {},
);

fn raw(id: TaskId) -> RawWaker {
    RawWaker::new(ptr::without_provenance(id.to_bits() as usize), &VTABLE)
}

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
    fn wakers_are_equal_if_their_numbers_are() {
        let waker = TaskId::new(2000, 5, 6).waker();
        let other = TaskId::new(2000, 5, 7).waker();
        assert!(waker.will_wake(&waker.clone()));
        assert!(!waker.will_wake(&other));
        waker.wake(); // no such core: no error
    }

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
        assert!(packed.will_wake(&waker) && !packed.will_wake(&TaskId::new(0, 1, 2).waker()));
        packed.waker().wake();
        packed.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        drop(PackedWaker::new(&waker));
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

//! Wakers that are integers: which core, which task slot, which generation.
//!
//! What: the data of a [`Waker`] is the packed number itself, never a pointer. Cloning copies it
//! and dropping does nothing: no reference count, no allocation, and nothing that could dangle.
//! Why: a server wakes a task for every event; a reference-counted waker costs two atomic
//! operations each time.
//! What never happens: a wake for an ended task wakes its successor (generations prevent it).

use std::ptr;
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
    pub(crate) fn of(waker: &Waker) -> Option<TaskId> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakers_are_equal_if_their_numbers_are() {
        let waker = TaskId::new(2000, 5, 6).waker();
        let other = TaskId::new(2000, 5, 7).waker();
        assert!(waker.will_wake(&waker.clone()));
        assert!(!waker.will_wake(&other));
        waker.wake(); // no such core: no error
    }
}

//! The side of a core that other threads see, and the numbers by which tasks are named.
//!
//! What: a [`TaskId`] packs core, slot and generation into one word. A [`Remote`] takes wakes from
//! any thread for the tasks of its core.
//! Who owns: the table of cores at the bottom is the only part of the runtime that all threads
//! share. A core is added when it is made and removed when it is dropped.
//! What never happens: a wake for a dropped core is an error. Core numbers are reused: a waker that
//! outlived its core may then cause one spurious poll, which every future must tolerate anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

const CORE_BITS: u32 = 11;
const SLOT_BITS: u32 = 24;
/// The highest bit of a number is clear: [`crate::PackedWaker`] sets it.
const GENERATION_BITS: u32 = u64::BITS - 1 - CORE_BITS - SLOT_BITS;

/// Cores alive in one process at a time.
pub(crate) const CORES_MAX: usize = 1 << CORE_BITS;
/// Tasks alive on one core at a time; the last number is the main future of `block_on`.
pub(crate) const TASKS_MAX: usize = MAIN_SLOT as usize;
/// The slot number of the main future.
pub(crate) const MAIN_SLOT: u32 = (1 << SLOT_BITS) - 1;
/// Generations wrap around here.
pub(crate) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(usize::BITS == u64::BITS, "the packed number is the waker's pointer");
const _: () = assert!(GENERATION_BITS <= u32::BITS && GENERATION_BITS >= 24);
const _: () = assert!(CORE_BITS <= u16::BITS && SLOT_BITS < u32::BITS);

/// Core, slot and generation in one word, whose highest bit is clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId(u64);

impl TaskId {
    pub(crate) fn new(core: u16, slot: u32, generation: u32) -> Self {
        debug_assert!(usize::from(core) < CORES_MAX && slot <= MAIN_SLOT);
        TaskId(
            u64::from(core) << (SLOT_BITS + GENERATION_BITS)
                | u64::from(slot) << GENERATION_BITS
                | u64::from(generation & GENERATION_MASK),
        )
    }

    /// The number as one word, and back.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> TaskId {
        TaskId(bits)
    }

    pub(crate) fn core(self) -> u16 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u16
    }

    pub(crate) fn slot(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & MAIN_SLOT
    }

    pub(crate) fn generation(self) -> u32 {
        self.0 as u32 & GENERATION_MASK
    }
}

/// The side of a core that other threads see.
pub(crate) struct Remote {
    queue: Mutex<Vec<TaskId>>,
    /// True from the first wake until the core drains the queue: further wakes need not wake the
    /// poller.
    signalled: AtomicBool,
    /// A simulated core with nothing left to simulate sleeps here.
    bell: Condvar,
    poller: readiness::Waker,
}

impl Remote {
    pub(crate) fn new(poller: readiness::Waker) -> Self {
        let (queue, bell) = (Mutex::default(), Condvar::new());
        Remote { queue, signalled: AtomicBool::new(false), bell, poller }
    }

    /// True if there is something to drain.
    pub(crate) fn has_wakes(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    /// Moves all woken tasks into `into`.
    pub(crate) fn drain(&self, into: &mut Vec<TaskId>) {
        // Cleared before the queue is emptied: a wake in between signals once too often, but is
        // never lost.
        self.signalled.store(false, Ordering::Release);
        into.append(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sleeps in real time until another thread wakes a task; false after `at_most`.
    pub(crate) fn wait_outside(&self, at_most: Duration) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, _) = self
            .bell
            .wait_timeout_while(queue, at_most, |queue| queue.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        !queue.is_empty()
    }

    fn wake(&self, id: TaskId) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        if !self.signalled.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
            self.poller.wake();
        }
    }
}

/// All cores of the process, by number.
static CORES: RwLock<Vec<Option<Arc<Remote>>>> = RwLock::new(Vec::new());

/// Adds a core to the table, with the lowest free number. `None` if the table is full.
pub(crate) fn enter_core(remote: &Arc<Remote>) -> Option<u16> {
    let mut cores = CORES.write().unwrap_or_else(PoisonError::into_inner);
    let free = cores.iter().position(Option::is_none).unwrap_or(cores.len());
    if free == CORES_MAX {
        return None;
    }
    if free == cores.len() {
        cores.push(None);
    }
    assert!(free < CORES_MAX && cores[free].is_none(), "a number names one core");
    cores[free] = Some(Arc::clone(remote));
    Some(free as u16)
}

/// Removes a core from the table; later wakes for it are dropped.
pub(crate) fn leave_core(core: u16) {
    let mut cores = CORES.write().unwrap_or_else(PoisonError::into_inner);
    let before = cores[usize::from(core)].take();
    assert!(before.is_some(), "a core leaves once");
}

/// Wakes a task of another core, if that core still exists.
pub(crate) fn wake(id: TaskId) {
    let cores = CORES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some(remote)) = cores.get(usize::from(id.core())) {
        remote.wake(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_packs_three_numbers() {
        for (core, slot, generation) in
            [(0, 0, 0), (7, 12, 9), ((CORES_MAX - 1) as u16, MAIN_SLOT, GENERATION_MASK)]
        {
            let id = TaskId::new(core, slot, generation);
            assert_eq!((id.core(), id.slot(), id.generation()), (core, slot, generation));
        }
    }
}

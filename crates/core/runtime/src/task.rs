//! Tasks: one allocation each, a slot in the core's table, and a handle to wait for the end.
//!
//! What: [`TaskCell`] holds the future and then its output in the same place. The core's table sees
//! it as [`Runnable`], the [`JoinHandle`] as `Joinable<T>`: two views of one `Rc`.
//! Why: a cold connection is a task that does nothing for a minute. Besides its future it may cost
//! only a header of a few words and a slot of 32 bytes.
//! Who owns: the core's table, until the task has ended. A handle keeps only the output alive.
//! What never happens: a future is never moved after its first poll, and never polled again after
//! it ended or was aborted.
//!
//! ```text
//! Running --poll: Ready--> Done --handle awaited--> Taken
//!    \------abort-------------------------------------^
//! ```

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::remote::{GENERATION_MASK, MAIN_SLOT, TASKS_MAX, TaskId};

/// A task as the core sees it.
pub(crate) trait Runnable {
    /// Polls the future once. True if the task has ended.
    fn run(&self, cx: &mut Context<'_>) -> bool;
    /// Drops the future in place.
    fn cancel(&self);
}

/// A task as its handle sees it.
trait Joinable<T> {
    fn poll_output(&self, cx: &mut Context<'_>) -> Poll<T>;
    fn is_finished(&self) -> bool;
    fn abort(&self);
}

enum Stage<F: Future> {
    Running(F),
    Done(F::Output),
    Taken,
}

struct TaskCell<F: Future> {
    joiner: Cell<Option<Waker>>,
    /// Set by a task that aborts itself: its future is in use and is dropped after the poll.
    aborted: Cell<bool>,
    /// A future that waits has exclusive references into itself. A shared reference to the stage
    /// would invalidate them, so every access is by `&mut`, which does not for a type that is not
    /// `Unpin`.
    stage: RefCell<Stage<F>>,
}

impl<F: Future> Runnable for TaskCell<F> {
    fn run(&self, cx: &mut Context<'_>) -> bool {
        let mut stage = self.stage.borrow_mut();
        let Stage::Running(future) = &mut *stage else { return true };
        // SAFETY: the cell lives in an `Rc` and is never moved out of it; the future inside is only
        // ever dropped in place, by assigning another stage. So it stays pinned from its first
        // poll.
        let future = unsafe { Pin::new_unchecked(future) };
        match future.poll(cx) {
            Poll::Ready(output) => *stage = Stage::Done(output),
            Poll::Pending if self.aborted.get() => *stage = Stage::Taken,
            Poll::Pending => return false,
        }
        drop(stage);
        if let Some(joiner) = self.joiner.take() {
            joiner.wake();
        }
        true
    }

    fn cancel(&self) {
        if let Ok(mut stage) = self.stage.try_borrow_mut()
            && let Stage::Running(_) = &mut *stage
        {
            *stage = Stage::Taken;
        }
    }
}

impl<F: Future> Joinable<F::Output> for TaskCell<F> {
    fn poll_output(&self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Ok(mut stage) = self.stage.try_borrow_mut() else {
            return Poll::Pending; // a task that waits for its own end
        };
        if let Stage::Done(_) = &mut *stage
            && let Stage::Done(output) = std::mem::replace(&mut *stage, Stage::Taken)
        {
            return Poll::Ready(output);
        }
        self.joiner.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn is_finished(&self) -> bool {
        let stage = self.stage.try_borrow_mut();
        stage.is_ok_and(|mut stage| !matches!(&mut *stage, Stage::Running(_)))
    }

    fn abort(&self) {
        self.aborted.set(true);
        self.cancel();
    }
}

/// Waits for a task's output. Dropping it detaches the task.
///
/// Awaiting it returns the output. There is no error, because a panic in a task (a broken
/// invariant) takes the whole core down. If the runtime is dropped first, it never resolves.
pub struct JoinHandle<T> {
    task: Rc<dyn Joinable<T>>,
    id: TaskId,
}

impl<T> JoinHandle<T> {
    /// Drops the task's future now: its sockets are closed when this returns. A task that aborts
    /// itself ends at its next wait.
    pub fn abort(self) {
        self.task.abort();
        self.id.wake(); // the core finds it ended and frees its slot
    }

    /// Detaches the task, as dropping the handle does.
    pub fn detach(self) {}

    /// True once the task has an output or has been aborted.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.task.poll_output(cx)
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

const NIL: u32 = u32::MAX;
const QUEUED: u32 = 1 << 31;
const _: () = assert!(GENERATION_MASK < QUEUED, "the flag has its own bit");

/// Half a cache line of 64 bytes, or a whole one of 32: a wake touches one line of the table.
#[repr(align(32))]
struct Slot {
    task: Option<Rc<dyn Runnable>>,
    /// The generation, and the `QUEUED` flag.
    state: u32,
    /// The next free slot; `NIL` while the slot is in use.
    next_free: u32,
}

/// The core's table of tasks.
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: u32,
    len: usize,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Tasks { slots: Vec::new(), free: NIL, len: 0 }
    }

    /// Tasks that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Creates a task for `future` in a slot of `core`. The caller queues it.
    pub(crate) fn insert<F>(&mut self, core: u16, future: F) -> (TaskId, JoinHandle<F::Output>)
    where
        F: Future + 'static,
    {
        let task = Rc::new(TaskCell {
            joiner: Cell::new(None),
            aborted: Cell::new(false),
            stage: RefCell::new(Stage::Running(future)),
        });
        if self.free == NIL {
            assert!(self.slots.len() < TASKS_MAX, "a core has at most {TASKS_MAX} tasks");
            self.free = self.slots.len() as u32;
            self.slots.push(Slot { task: None, state: 0, next_free: NIL });
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        assert!(slot.task.is_none(), "a free slot has no task");
        self.free = slot.next_free;
        slot.next_free = NIL;
        slot.state &= GENERATION_MASK;
        slot.task = Some(Rc::<TaskCell<F>>::clone(&task));
        self.len += 1;
        let id = TaskId::new(core, index, slot.state & GENERATION_MASK);
        debug_assert!(self.len <= self.slots.len(), "each task has a slot");
        (id, JoinHandle { task, id })
    }

    /// True if the task is alive and was not in the run queue. Marks it as queued.
    pub(crate) fn mark_queued(&mut self, id: TaskId) -> bool {
        let Some(slot) = self.slots.get_mut(id.slot() as usize) else { return false };
        if slot.state != id.generation() {
            return false; // of another generation, or queued already
        }
        debug_assert!(slot.next_free == NIL, "a slot in use is not in the free list");
        slot.state |= QUEUED;
        true
    }

    /// Takes a queued task out of its slot to run it. `None` if it has ended, or is running further
    /// up the stack.
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Rc<dyn Runnable>> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        if slot.state != id.generation() | QUEUED {
            return None;
        }
        slot.state &= !QUEUED;
        slot.task.take()
    }

    /// Puts back an unfinished task.
    pub(crate) fn put_back(&mut self, id: TaskId, task: Rc<dyn Runnable>) {
        let slot = &mut self.slots[id.slot() as usize];
        debug_assert!(slot.state & GENERATION_MASK == id.generation(), "it is the task's slot");
        let before = slot.task.replace(task);
        assert!(before.is_none(), "a task is in one place");
    }

    /// Frees the slot of a task that has ended.
    pub(crate) fn free(&mut self, id: TaskId) {
        let slot = &mut self.slots[id.slot() as usize];
        debug_assert!(slot.state & GENERATION_MASK == id.generation(), "it is the task's slot");
        debug_assert!(slot.next_free == NIL, "a slot is freed once");
        slot.task = None;
        slot.state = (slot.state.wrapping_add(1)) & GENERATION_MASK;
        slot.next_free = self.free;
        self.free = id.slot();
        assert!(self.len > 0, "a task ends once");
        self.len -= 1;
    }

    /// Removes every unfinished task and frees its slot, at the end of the core.
    pub(crate) fn take_all(&mut self) -> Vec<Rc<dyn Runnable>> {
        let mut all = Vec::with_capacity(self.len);
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            if let Some(task) = slot.task.take() {
                all.push(task);
                let generation = slot.state & GENERATION_MASK;
                self.free(TaskId::new(0, index, generation));
            }
        }
        all
    }
}

const _: () = assert!(size_of::<Slot>() == 32, "a cold connection pays for it");
const _: () = assert!(MAIN_SLOT < NIL);

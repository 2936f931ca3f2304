//! Tasks: one allocation each (two with a handle), a slot in the core's table, and a handle to wait
//! for the end.
//!
//! What: a [`Task`] is one pointer to a block on the heap, which begins with the functions of its
//! type and has the future of the task. The future of a task with a handle shares a [`TaskCell`]
//! with the [`JoinHandle`]: the cell has the future of the caller and then its output in the same
//! place.
//! Why: a cold connection is a task that does nothing for a minute. Besides its future it costs
//! only one word and a slot of 16 bytes.
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
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::remote::{GENERATION_MASK, MAIN_SLOT, TASKS_MAX, TaskId};

/// A task, in one word. Dropping it drops its future in place.
pub(crate) struct Task {
    /// Invariant: a `Block<F>` from `Box::leak`, with the functions for this `F`. The task owns the
    /// block, which never moves.
    block: NonNull<&'static Functions>,
}

/// The functions of a task. They are called with the block of a task that has these functions.
struct Functions {
    run: unsafe fn(NonNull<&'static Functions>, &mut Context<'_>) -> bool,
    drop: unsafe fn(NonNull<&'static Functions>),
}

/// The functions come first, so that a pointer to the block is a pointer to them.
#[repr(C)]
struct Block<F> {
    functions: &'static Functions,
    future: F,
}

impl Task {
    pub(crate) fn new<F>(future: F) -> Task
    where
        F: Future<Output = ()> + 'static,
    {
        let functions = const { &Functions { run: run::<F>, drop: drop_block::<F> } };
        let block = Box::leak(Box::new(Block { functions, future }));
        Task { block: NonNull::from(block).cast() }
    }

    /// Polls the future once. True if the task has ended: it must not be run again.
    pub(crate) fn run(&mut self, cx: &mut Context<'_>) -> bool {
        // SAFETY: the block is alive, it begins with the functions for its type, and `self` is the
        // only way to it.
        unsafe { (self.block.read().run)(self.block, cx) }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: the block is alive, it begins with the functions for its type, and it is not used
        // afterwards.
        unsafe { (self.block.read().drop)(self.block) }
    }
}

/// # Safety
/// `block` is a live `Block<F>` that nothing else uses during the call.
unsafe fn run<F>(block: NonNull<&'static Functions>, cx: &mut Context<'_>) -> bool
where
    F: Future<Output = ()>,
{
    // SAFETY: the caller passes a live block that nothing else uses. The future is never moved out
    // of its block and is dropped there, so it is pinned.
    let future = unsafe { Pin::new_unchecked(&mut (*block.cast::<Block<F>>().as_ptr()).future) };
    future.poll(cx).is_ready()
}

/// # Safety
/// `block` is a live `Block<F>` from `Box::leak` that nothing uses during the call or later.
unsafe fn drop_block<F>(block: NonNull<&'static Functions>) {
    // SAFETY: the caller passes a live block from `Box::leak`, which nothing uses any more.
    drop(unsafe { Box::from_raw(block.cast::<Block<F>>().as_ptr()) });
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

impl<F: Future> TaskCell<F> {
    /// Polls the future once. True if the task has ended.
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

    /// Drops the future in place.
    fn cancel(&self) {
        if let Ok(mut stage) = self.stage.try_borrow_mut()
            && let Stage::Running(_) = &mut *stage
        {
            *stage = Stage::Taken;
        }
    }
}

/// The future of a task with a handle. The handle may live longer.
struct Joined<F: Future>(Rc<TaskCell<F>>);

impl<F: Future> Future for Joined<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.run(cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<F: Future> Drop for Joined<F> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A task with a handle: `start` puts it into a core's table and returns its number.
pub(crate) fn with_handle<F>(future: F, start: impl FnOnce(Task) -> TaskId) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let cell = Rc::new(TaskCell {
        joiner: Cell::new(None),
        aborted: Cell::new(false),
        stage: RefCell::new(Stage::Running(future)),
    });
    let id = start(Task::new(Joined(Rc::clone(&cell))));
    JoinHandle { task: cell, id }
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

/// A quarter of a cache line of 64 bytes: a wake touches one line of the table.
struct Slot {
    task: Option<Task>,
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

    /// Puts a task into a slot of `core`. The caller queues it.
    pub(crate) fn insert(&mut self, core: u16, task: Task) -> TaskId {
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
        slot.task = Some(task);
        self.len += 1;
        let id = TaskId::new(core, index, slot.state & GENERATION_MASK);
        debug_assert!(self.len <= self.slots.len(), "each task has a slot");
        id
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
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Task> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        if slot.state != id.generation() | QUEUED {
            return None;
        }
        slot.state &= !QUEUED;
        slot.task.take()
    }

    /// Puts back an unfinished task.
    pub(crate) fn put_back(&mut self, id: TaskId, task: Task) {
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
        assert!(slot.task.is_none(), "a task that has ended was taken out of its slot");
        slot.state = (slot.state.wrapping_add(1)) & GENERATION_MASK;
        slot.next_free = self.free;
        self.free = id.slot();
        assert!(self.len > 0, "a task ends once");
        self.len -= 1;
    }

    /// Removes every unfinished task and frees its slot, at the end of the core.
    pub(crate) fn take_all(&mut self) -> Vec<Task> {
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

const _: () = assert!(size_of::<Slot>() == 16, "a cold connection pays for it");
const _: () = assert!(MAIN_SLOT < NIL);

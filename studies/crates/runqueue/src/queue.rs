//! The run queue of Linux 2.4.4: one list, one lock, and a walk over all runnable tasks.
//!
//! What: [`RunQueue::schedule`] walks the list under the lock, computes the *goodness* of each task
//! that has no processor, and takes the best; [`RunQueue::wake`] puts a sleeper at the head. If the
//! best has no time left, all tasks of the system get new time, and the list is walked again. With
//! `multi-queue`, each processor has its own list and lock, and looks at those of others only if
//! its own has no task.
//!
//! The states of a task:
//!
//! ```text
//!            wake                schedule takes it
//!  sleeping ------> on the list <-----------------> on the list, has a processor
//!      ^                                                    |
//!      '--- schedule, after it announced that it will sleep '
//! ```
//!
//! Ownership: a task that has a processor belongs to that processor alone. What never happens: a
//! wake is lost (a sleeper announces its sleep before it checks for messages one last time, and a
//! waker leaves the message before it checks for a sleeper); a task is on two lists.
//!
//! Not implemented: real-time tasks, yielding, and preemption by a woken task.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime::sync::{Guard, Lock, LockKind, LockUse};

use crate::arena::{
    ALLOWED, Arena, COUNTER, Field, HAS_CPU, MM, NEXT, NONE, OFF, PREV, PRIORITY, PROCESSOR, STATE,
    Task,
};

/// [`STATE`] of a task that runs or is runnable.
pub(super) const RUNNING: u32 = 0;
/// [`STATE`] of a task that waits.
pub(super) const SLEEPING: u32 = 1;
/// Goodness bonus of a task that last ran on this processor.
const SAME_PROCESSOR: i32 = 15;
/// Goodness bonus of a task with the same memory as the previous one.
const SAME_MEMORY: i32 = 1;
/// Lower than any goodness.
const WORST: i32 = -1000;
/// Ticks for a task of the usual priority.
pub(super) const TICKS: u32 = 6;
/// Most walks per call. New time lasts for at least one walk, unless other processors spend it in
/// the meantime.
const WALKS_MAX: u32 = 4;

static RUN_QUEUE: LockKind = LockKind::new("run queue");

/// The lock's counters.
pub(super) fn lock_use() -> LockUse {
    let used = LockKind::uses().into_iter().find(|used| used.name == "run queue");
    used.unwrap_or_default()
}

/// Observes accesses to memory. Implemented by a simulated cache, and by `()` for timing.
pub(super) trait Watch {
    /// The walk reads a task.
    fn walked(&mut self, task: Task);
    /// `bytes` are read from a word on.
    fn read(&mut self, word: u32, bytes: u32);
    /// `bytes` are written from a word on.
    fn wrote(&mut self, word: u32, bytes: u32);
}

/// Observes nothing, for timing.
impl Watch for () {
    #[inline]
    fn walked(&mut self, _: Task) {}
    #[inline]
    fn read(&mut self, _: u32, _: u32) {}
    #[inline]
    fn wrote(&mut self, _: u32, _: u32) {}
}

/// A list.
#[derive(Debug)]
struct Head {
    first: u32,
}

/// The best task so far.
#[derive(Clone, Copy)]
struct Best {
    task: Option<Task>,
    weight: i32,
}

/// The walks of a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walks {
    /// Walks.
    pub(super) walks: u64,
    /// Tasks passed in them.
    pub(super) tasks: u64,
}

/// All tasks, and the lists of runnable ones.
pub(super) struct RunQueue<'a> {
    pub(super) arena: &'a Arena,
    pub(super) tasks: Vec<Task>,
    lists: Vec<Lock<Head>>,
    /// Number of wakes. An idle processor polls this instead of the lock.
    woken: AtomicU64,
}

impl<'a> RunQueue<'a> {
    /// Makes empty lists.
    pub(super) fn new(arena: &'a Arena, tasks: Vec<Task>, lists: usize) -> RunQueue<'a> {
        let list = |_| Lock::new(&RUN_QUEUE, Head { first: NONE });
        RunQueue { arena, tasks, lists: (0..lists).map(list).collect(), woken: AtomicU64::new(0) }
    }

    /// Resets a task: asleep, with all its time.
    pub(super) fn begin(&self, task: Task, mm: u32, processor: u32) {
        let fields = [
            (STATE, SLEEPING),
            (COUNTER, TICKS),
            (PRIORITY, 20),
            (MM, mm),
            (HAS_CPU, 0),
            (PROCESSOR, processor),
            (ALLOWED, u32::MAX),
            (NEXT, OFF),
            (PREV, NONE),
        ];
        for (field, value) in fields {
            self.arena.set(task, field, value);
        }
    }

    /// Number of wakes so far.
    pub(super) fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Whether a task sleeps or is about to. Leave a message for it before you call this.
    pub(super) fn sleeps(&self, task: Task) -> bool {
        self.arena.at(task.word(STATE)).load(Ordering::SeqCst) != RUNNING
    }

    /// A task that has a processor announces whether it will sleep.
    pub(super) fn set_state<W: Watch>(&self, task: Task, state: u32, watch: &mut W) {
        self.arena.at(task.word(STATE)).store(state, Ordering::SeqCst);
        watch.wrote(task.word(STATE), 4);
    }

    /// Wakes a sleeping task.
    pub(super) fn wake<W: Watch>(&self, task: Task, watch: &mut W) {
        let mut processor = self.arena.get(task, PROCESSOR);
        loop {
            let mut head = self.lock(processor);
            let now = self.arena.get(task, PROCESSOR);
            if self.list_of(now) != self.list_of(processor) {
                // Another processor woke it, and it has moved and may sleep again. This repeats
                // only if that happens again.
                processor = now;
                continue;
            }
            if self.sleeps(task) {
                self.set_state(task, RUNNING, watch);
                if self.arena.get(task, NEXT) == OFF {
                    self.add(&mut head, task, watch);
                }
            }
            break;
        }
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the best task for a processor that ran `previous` until now; `None` if there is none.
    pub(super) fn schedule<W: Watch>(
        &self,
        cpu: u32,
        mut previous: Option<Task>,
        walks: &mut Walks,
        watch: &mut W,
    ) -> Option<Task> {
        let mm = previous.map_or(NONE, |task| self.arena.get(task, MM));
        let mut left = WALKS_MAX;
        loop {
            let mut head = self.lock(cpu);
            if let Some(task) = previous
                && self.sleeps(task)
            {
                self.remove(&mut head, task, watch);
                self.write(task, HAS_CPU, 0, watch);
                previous = None;
            }
            let weight = previous.map_or(WORST, |task| self.goodness(task, cpu, mm));
            let best = Best { task: previous, weight };
            let best = self.walk(&head, (cpu, mm), best, walks, watch);
            left -= 1;
            if best.weight == 0 && left > 0 {
                drop(head);
                self.new_time(watch);
                continue;
            }
            if best.task != previous {
                if let Some(task) = previous {
                    self.write(task, HAS_CPU, 0, watch);
                }
                if let Some(task) = best.task {
                    self.take(task, cpu, watch);
                }
            }
            drop(head);
            return best.task.or_else(|| self.steal(cpu, walks, watch));
        }
    }

    /// Walks over the list for the best task. This is what the study measures.
    fn walk<W: Watch>(
        &self,
        head: &Head,
        (cpu, mm): (u32, u32),
        mut best: Best,
        walks: &mut Walks,
        watch: &mut W,
    ) -> Best {
        let mut at = head.first;
        walks.walks += 1;
        // No list is longer than the number of tasks.
        for _ in 0..self.tasks.len() {
            if at == NONE {
                break;
            }
            let task = Task(at);
            watch.walked(task);
            walks.tasks += 1;
            let free = self.arena.get(task, HAS_CPU) == 0;
            if free && self.arena.get(task, ALLOWED) & (1 << (cpu % 32)) != 0 {
                let weight = self.goodness(task, cpu, mm);
                if weight > best.weight {
                    best = Best { task: Some(task), weight };
                }
            }
            at = self.arena.get(task, NEXT);
        }
        best
    }

    /// The goodness of a task on a processor with this memory loaded; 0 if it has no time left.
    fn goodness(&self, task: Task, cpu: u32, mm: u32) -> i32 {
        let time = self.arena.get(task, COUNTER).cast_signed();
        if time == 0 {
            return 0;
        }
        let processor = i32::from(self.arena.get(task, PROCESSOR) == cpu) * SAME_PROCESSOR;
        let memory = i32::from(self.arena.get(task, MM) == mm) * SAME_MEMORY;
        time + processor + memory + self.arena.get(task, PRIORITY).cast_signed()
    }

    /// Gives new time to all tasks. Sleeping ones keep half of their remaining time.
    fn new_time<W: Watch>(&self, watch: &mut W) {
        for &task in &self.tasks {
            let time = self.arena.get(task, COUNTER);
            self.write(task, COUNTER, time / 2 + TICKS, watch);
        }
    }

    /// A clock tick while a task runs.
    pub(super) fn tick<W: Watch>(&self, task: Task, watch: &mut W) {
        let time = self.arena.get(task, COUNTER);
        self.write(task, COUNTER, time.saturating_sub(1), watch);
    }

    /// An idle processor takes a task from another processor's list.
    fn steal<W: Watch>(&self, cpu: u32, walks: &mut Walks, watch: &mut W) -> Option<Task> {
        let lists = self.lists.len() as u32;
        for other in (1..lists).map(|step| (cpu + step) % lists) {
            let mut head = self.lock(other);
            let none = Best { task: None, weight: WORST };
            let Some(task) = self.walk(&head, (cpu, NONE), none, walks, watch).task else {
                continue;
            };
            self.remove(&mut head, task, watch);
            self.take(task, cpu, watch);
            drop(head);
            self.add(&mut self.lock(cpu), task, watch);
            return Some(task);
        }
        None
    }

    /// Only walks over the first list. Returns the number of tasks passed.
    pub(super) fn only_walk<W: Watch>(&self, watch: &mut W) -> u64 {
        let mut walks = Walks::default();
        let none = Best { task: None, weight: WORST };
        let best = self.walk(&self.lock(0), (0, NONE), none, &mut walks, watch);
        std::hint::black_box(best.task);
        walks.tasks
    }

    fn take<W: Watch>(&self, task: Task, cpu: u32, watch: &mut W) {
        self.write(task, HAS_CPU, 1, watch);
        self.write(task, PROCESSOR, cpu, watch);
    }

    fn list_of(&self, cpu: u32) -> usize {
        cpu as usize % self.lists.len()
    }

    fn lock(&self, cpu: u32) -> Guard<'_, Head> {
        self.lists[self.list_of(cpu)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add<W: Watch>(&self, head: &mut Head, task: Task, watch: &mut W) {
        self.write(task, NEXT, head.first, watch);
        self.write(task, PREV, NONE, watch);
        if head.first != NONE {
            self.write(Task(head.first), PREV, task.0, watch);
        }
        head.first = task.0;
    }

    fn remove<W: Watch>(&self, head: &mut Head, task: Task, watch: &mut W) {
        let (next, previous) = (self.arena.get(task, NEXT), self.arena.get(task, PREV));
        if previous == NONE {
            head.first = next;
        } else {
            self.write(Task(previous), NEXT, next, watch);
        }
        if next != NONE {
            self.write(Task(next), PREV, previous, watch);
        }
        self.write(task, NEXT, OFF, watch);
    }

    fn write<W: Watch>(&self, task: Task, field: Field, value: u32, watch: &mut W) {
        self.arena.set(task, field, value);
        watch.wrote(task.word(field), 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::arena::Palette;
    use crate::cache::Machine;

    const CPU: u32 = 0;

    fn queue(arena: &Arena, tasks: u32, lists: usize) -> RunQueue<'_> {
        let palette = Palette::of(Layout::Vanilla, &Machine::of_2002(1024));
        let tasks = (0..tasks).map(|block| palette.task(block, u64::from(block))).collect();
        let queue = RunQueue::new(arena, tasks, lists);
        for (number, task) in (0..).zip(&queue.tasks) {
            queue.begin(*task, number, 0);
        }
        queue
    }

    fn on_list(queue: &RunQueue, cpu: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = queue.lock(cpu).first;
        while at != NONE {
            found.push(Task(at).block());
            at = queue.arena.get(Task(at), NEXT);
        }
        found
    }

    fn next(queue: &RunQueue, cpu: u32, previous: Option<Task>) -> Option<u32> {
        queue.schedule(cpu, previous, &mut Walks::default(), &mut ()).map(Task::block)
    }

    #[test]
    fn a_woken_task_is_at_the_head_once_and_a_sleeper_is_removed() {
        let arena = Arena::new(3);
        let queue = queue(&arena, 3, 1);
        for number in [0, 2, 1, 2] {
            queue.wake(queue.tasks[number], &mut ());
        }
        assert_eq!(on_list(&queue, CPU), [1, 2, 0]);
        assert_eq!(queue.woken(), 4);
        // Among equals, the first on the list: the one that was woken last.
        assert_eq!(next(&queue, CPU, None), Some(1));
        queue.set_state(queue.tasks[1], SLEEPING, &mut ());
        assert_eq!(next(&queue, CPU, Some(queue.tasks[1])), Some(2));
        assert_eq!(on_list(&queue, CPU), [2, 0]);
        queue.set_state(queue.tasks[2], SLEEPING, &mut ());
        queue.wake(queue.tasks[2], &mut ());
        assert_eq!(on_list(&queue, CPU), [2, 0], "woken before it slept: once on the list");
        assert_eq!(next(&queue, CPU, Some(queue.tasks[2])), Some(2));
    }

    #[test]
    fn goodness_is_time_priority_processor_and_memory() {
        let arena = Arena::new(3);
        let queue = queue(&arena, 3, 1);
        let [zero, one, two] = [0, 1, 2].map(|number| queue.tasks[number]);
        assert_eq!(queue.goodness(zero, 0, NONE), 6 + 20 + 15);
        assert_eq!(queue.goodness(zero, 1, NONE), 6 + 20);
        assert_eq!(queue.goodness(zero, 1, 0), 6 + 20 + 1, "task 0 has memory 0");
        for task in [zero, one, two] {
            queue.wake(task, &mut ());
        }
        arena.set(one, COUNTER, 9);
        assert_eq!(next(&queue, CPU, None), Some(1));
        assert_eq!(next(&queue, 1, None), Some(2), "a task with a processor is not taken again");
        arena.set(zero, ALLOWED, 1 << 1);
        assert_eq!(next(&queue, CPU, Some(one)), Some(1));
        queue.set_state(one, SLEEPING, &mut ());
        assert_eq!(next(&queue, CPU, Some(one)), None, "not allowed here, and the other runs");
    }

    #[test]
    fn when_all_time_is_spent_every_task_gets_more() {
        let arena = Arena::new(3);
        let queue = queue(&arena, 3, 1);
        queue.wake(queue.tasks[0], &mut ());
        queue.wake(queue.tasks[1], &mut ());
        for _ in 0..TICKS + 1 {
            queue.tick(queue.tasks[0], &mut ());
            queue.tick(queue.tasks[1], &mut ());
        }
        assert_eq!(arena.get(queue.tasks[0], COUNTER), 0);
        let mut walks = Walks::default();
        assert!(queue.schedule(CPU, None, &mut walks, &mut ()).is_some());
        assert_eq!((walks.walks, walks.tasks), (2, 4), "walked again after that");
        let time = [0, 1, 2].map(|number| arena.get(queue.tasks[number], COUNTER));
        assert_eq!(time, [6, 6, 9], "the sleeper has kept half");
    }

    #[test]
    fn with_several_lists_an_idle_processor_steals_from_another() {
        let arena = Arena::new(2);
        let queue = queue(&arena, 2, 2);
        for task in &queue.tasks {
            queue.wake(*task, &mut ());
        }
        assert_eq!((on_list(&queue, 0).len(), on_list(&queue, 1).len()), (2, 0));
        assert_eq!(next(&queue, 1, None), Some(1), "taken from the other");
        assert_eq!((on_list(&queue, 0), on_list(&queue, 1)), (vec![0], vec![1]));
        queue.set_state(queue.tasks[1], SLEEPING, &mut ());
        assert_eq!(next(&queue, 0, None), Some(0));
        assert_eq!(next(&queue, 1, Some(queue.tasks[1])), None, "the last one runs elsewhere");
        queue.wake(queue.tasks[1], &mut ());
        assert_eq!(on_list(&queue, 1), [1], "woken where it ran last");
    }
}

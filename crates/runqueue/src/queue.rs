//! The run queue of Linux 2.4.4: one list, one lock, and a walk over all that could run.
//!
//! What: [`RunQueue::schedule`] walks the list under the lock, adds up the *goodness* of each task
//! that has no processor, and takes the best; [`RunQueue::wake`] puts a sleeper at the head. When
//! the best has no time left, all tasks of the system get new time, and it is walked again. With
//! `multi-queue` each processor has a list and a lock of its own, and looks into those of others
//! only when it has nothing itself.
//!
//! The states of a task:
//!
//! ```text
//!            wake                schedule takes it
//!  sleeping ------> on the list <-----------------> on the list, has a processor
//!      ^                                                    |
//!      '--- schedule, when it said that it would sleep -----'
//! ```
//!
//! Who owns: a task that has a processor is that processor's alone. What never happens: a wake is
//! lost (a sleeper says that it will sleep before it looks for messages the last time, a waker
//! leaves the message before it looks whether there is a sleeper); a task is on two lists.
//!
//! Left out of the kernel's: real-time tasks, yielding, and preemption by one who is woken.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime::sync::{Guard, Lock, LockKind, LockUse};

use crate::arena::{
    ALLOWED, Arena, COUNTER, Field, HAS_CPU, MM, NEXT, NONE, OFF, PREV, PRIORITY, PROCESSOR, STATE,
    Task,
};

/// A task's [`STATE`]: it runs or wants to.
pub(super) const RUNNING: u32 = 0;
/// It waits for something.
pub(super) const SLEEPING: u32 = 1;
/// What the processor that a task ran on last is worth.
const SAME_PROCESSOR: i32 = 15;
/// What the memory of the task that ran last is worth.
const SAME_MEMORY: i32 = 1;
/// Nobody is worth less.
const NOBODY: i32 = -1000;
/// Ticks that a task of the usual priority gets.
pub(super) const TICKS: u32 = 6;
/// Walks of one call: new time lasts for one at least, unless others use it up meanwhile.
const WALKS_MAX: u32 = 4;

static RUN_QUEUE: LockKind = LockKind::new("run queue");

/// How the lock was used while it was counted.
pub(super) fn lock_use() -> LockUse {
    let used = LockKind::uses().into_iter().find(|used| used.name == "run queue");
    used.unwrap_or_default()
}

/// Told of what memory is touched: a simulated cache, or nobody.
pub(super) trait Watch {
    /// The walk reads a task.
    fn walked(&mut self, task: Task);
    /// So many bytes from a word on are read.
    fn read(&mut self, word: u32, bytes: u32);
    /// So many bytes from a word on are written.
    fn wrote(&mut self, word: u32, bytes: u32);
}

/// Nobody: what is timed.
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

/// The best of those that were looked at.
#[derive(Clone, Copy)]
struct Best {
    task: Option<Task>,
    weight: i32,
}

/// What a processor has walked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walks {
    /// Walks.
    pub(super) walks: u64,
    /// Tasks that they passed.
    pub(super) tasks: u64,
}

/// All tasks, and the lists of those that could run.
pub(super) struct RunQueue<'a> {
    pub(super) arena: &'a Arena,
    pub(super) tasks: Vec<Task>,
    lists: Vec<Lock<Head>>,
    /// Wakes so far: an idle processor looks at this and not at the lock.
    woken: AtomicU64,
}

impl<'a> RunQueue<'a> {
    /// Empty lists, as many as asked for.
    pub(super) fn new(arena: &'a Arena, tasks: Vec<Task>, lists: usize) -> RunQueue<'a> {
        let list = |_| Lock::new(&RUN_QUEUE, Head { first: NONE });
        RunQueue { arena, tasks, lists: (0..lists).map(list).collect(), woken: AtomicU64::new(0) }
    }

    /// Makes a task anew: asleep, with all its time.
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

    /// Wakes so far.
    pub(super) fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Whether a task sleeps or is about to. A message must have been left for it before.
    pub(super) fn sleeps(&self, task: Task) -> bool {
        self.arena.at(task.word(STATE)).load(Ordering::SeqCst) != RUNNING
    }

    /// A task that has a processor says whether it will sleep.
    pub(super) fn say<W: Watch>(&self, task: Task, state: u32, watch: &mut W) {
        self.arena.at(task.word(STATE)).store(state, Ordering::SeqCst);
        watch.wrote(task.word(STATE), 4);
    }

    /// Ends a task's sleep.
    pub(super) fn wake<W: Watch>(&self, task: Task, watch: &mut W) {
        let mut processor = self.arena.get(task, PROCESSOR);
        loop {
            let mut head = self.lock(processor);
            let now = self.arena.get(task, PROCESSOR);
            if self.list_of(now) != self.list_of(processor) {
                // Another woke it, it has moved, and may sleep again: no more often than that.
                processor = now;
                continue;
            }
            if self.sleeps(task) {
                self.say(task, RUNNING, watch);
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
            let weight = previous.map_or(NOBODY, |task| self.goodness(task, cpu, mm));
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

    /// Walks over the list for the best: what it is all about.
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
        // No list is longer than all tasks.
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

    /// What a task is worth on a processor that has this memory at hand; nothing without time.
    fn goodness(&self, task: Task, cpu: u32, mm: u32) -> i32 {
        let time = self.arena.get(task, COUNTER).cast_signed();
        if time == 0 {
            return 0;
        }
        let processor = i32::from(self.arena.get(task, PROCESSOR) == cpu) * SAME_PROCESSOR;
        let memory = i32::from(self.arena.get(task, MM) == mm) * SAME_MEMORY;
        time + processor + memory + self.arena.get(task, PRIORITY).cast_signed()
    }

    /// New time for all tasks, those that sleep too: these keep half of what they had.
    fn new_time<W: Watch>(&self, watch: &mut W) {
        for &task in &self.tasks {
            let time = self.arena.get(task, COUNTER);
            self.write(task, COUNTER, time / 2 + TICKS, watch);
        }
    }

    /// A tick of the clock while a task runs.
    pub(super) fn tick<W: Watch>(&self, task: Task, watch: &mut W) {
        let time = self.arena.get(task, COUNTER);
        self.write(task, COUNTER, time.saturating_sub(1), watch);
    }

    /// What a processor with nothing to do takes from the list of another.
    fn steal<W: Watch>(&self, cpu: u32, walks: &mut Walks, watch: &mut W) -> Option<Task> {
        let lists = self.lists.len() as u32;
        for other in (1..lists).map(|step| (cpu + step) % lists) {
            let mut head = self.lock(other);
            let nobody = Best { task: None, weight: NOBODY };
            let Some(task) = self.walk(&head, (cpu, NONE), nobody, walks, watch).task else {
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

    /// Only the walk, over the first list: tasks that were passed.
    pub(super) fn only_walk<W: Watch>(&self, watch: &mut W) -> u64 {
        let mut walks = Walks::default();
        let nobody = Best { task: None, weight: NOBODY };
        let best = self.walk(&self.lock(0), (0, NONE), nobody, &mut walks, watch);
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
    fn who_is_woken_stands_at_the_head_once_and_who_sleeps_is_taken_out() {
        let arena = Arena::new(3);
        let queue = queue(&arena, 3, 1);
        for number in [0, 2, 1, 2] {
            queue.wake(queue.tasks[number], &mut ());
        }
        assert_eq!(on_list(&queue, CPU), [1, 2, 0]);
        assert_eq!(queue.woken(), 4);
        // Of equals the first: the one that was woken last.
        assert_eq!(next(&queue, CPU, None), Some(1));
        queue.say(queue.tasks[1], SLEEPING, &mut ());
        assert_eq!(next(&queue, CPU, Some(queue.tasks[1])), Some(2));
        assert_eq!(on_list(&queue, CPU), [2, 0]);
        queue.say(queue.tasks[2], SLEEPING, &mut ());
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
        assert_eq!(next(&queue, 1, None), Some(2), "what has a processor is not taken again");
        arena.set(zero, ALLOWED, 1 << 1);
        assert_eq!(next(&queue, CPU, Some(one)), Some(1));
        queue.say(one, SLEEPING, &mut ());
        assert_eq!(next(&queue, CPU, Some(one)), None, "not allowed here, and the other runs");
    }

    #[test]
    fn when_all_time_is_used_up_everybody_gets_more() {
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
        assert_eq!(time, [6, 6, 9], "who slept has kept half");
    }

    #[test]
    fn with_many_lists_each_has_its_own_and_takes_steal_when_it_has_none() {
        let arena = Arena::new(2);
        let queue = queue(&arena, 2, 2);
        for task in &queue.tasks {
            queue.wake(*task, &mut ());
        }
        assert_eq!((on_list(&queue, 0).len(), on_list(&queue, 1).len()), (2, 0));
        assert_eq!(next(&queue, 1, None), Some(1), "taken from the other");
        assert_eq!((on_list(&queue, 0), on_list(&queue, 1)), (vec![0], vec![1]));
        queue.say(queue.tasks[1], SLEEPING, &mut ());
        assert_eq!(next(&queue, 0, None), Some(0));
        assert_eq!(next(&queue, 1, Some(queue.tasks[1])), None, "the last one runs elsewhere");
        queue.wake(queue.tasks[1], &mut ());
        assert_eq!(on_list(&queue, 1), [1], "it is woken where it ran last");
    }
}

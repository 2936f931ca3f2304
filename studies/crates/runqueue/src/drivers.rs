//! What the tasks do: the two workloads of the paper, scaled down, on the run queue of this study.
//!
//! A task is not a thread: it is a block of the arena and a place on the run queue. A thread plays
//! a processor: it takes the best task, does that task's next piece of work, and takes another.
//!
//! - *WebBench-like.* Each task is an `httpd` of Apache 1.3, a process that answers one request and
//!   sleeps until its next. A client that has its reply sends another request, which wakes another
//!   `httpd`, so that the requested number of tasks is always runnable.
//! - *Chat-like.* Rooms of users, with four tasks per user. A message goes from the client's sender
//!   to the server's reader, from there to the writers of all users of the room, and from each
//!   writer to its client's receiver. A user who receives their own message sends the next one.
//!
//! Ownership: a [`Workload`] has the tasks and the queue; each [`Cpu`] has the state of one
//! processor. What never happens: a message is lost or counted twice.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;

use regress::Rng;

use crate::Layout;
use crate::arena::{Arena, BUFFER, BUFFER_BYTES, NONE, OWN, PENDING, Palette, Task};
use crate::queue::{RUNNING, RunQueue, SLEEPING, Walks, Watch};
use harness::rounds::shuffle;

/// Users of a room, as published.
pub const USERS: u32 = 20;
/// Tasks of each user, as published.
pub const TASKS_A_USER: u32 = 4;
/// Tasks of a room.
pub const ROOM_TASKS: u32 = USERS * TASKS_A_USER;
/// Size of a message, as published.
const MESSAGE_BYTES: u32 = 100;
/// Messages that a task handles before another task gets its turn.
const MESSAGES_A_TURN: u32 = 32;
/// Sleeping `httpd` processes per processor, in addition to the runnable ones.
const SLEEPERS: u32 = 8;
/// Objects: 2 MiB of them.
const OBJECT_BYTES: u32 = BUFFER_BYTES;
const OBJECT_BLOCKS: u32 = 256;
const OBJECTS_A_BLOCK: u32 = 4;
/// Objects copied per reply, and per message. In the published figures, a hold of the lock was a
/// ninth of a request's time on one processor; with 256 tasks the ratio is about the same here.
const OBJECTS_A_REPLY: u32 = 16;
const OBJECTS_A_MESSAGE: u32 = 1;
/// A clock tick (10 ms) was about thirty requests long.
const TURNS_A_TICK: u64 = 28;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Processes that answer requests.
    WebBench,
    /// Rooms of users.
    Chat,
}

impl Driver {
    /// Both.
    pub const ALL: [Driver; 2] = [Driver::WebBench, Driver::Chat];

    /// Number of tasks for about `runnable` runnable ones on `cpus` processors.
    pub(super) fn tasks(self, runnable: u32, cpus: u32) -> u32 {
        match self {
            Driver::WebBench => runnable + SLEEPERS * cpus,
            Driver::Chat => (runnable / ROOM_TASKS).max(1) * ROOM_TASKS,
        }
    }

    /// Blocks of an arena that is large enough for these: tasks, then objects.
    pub(super) fn blocks(runnable: u32, cpus: u32) -> u32 {
        let tasks = Driver::ALL.map(|driver| driver.tasks(runnable, cpus));
        tasks.into_iter().max().unwrap_or(0) + OBJECT_BLOCKS
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Driver::WebBench => "WebBench-like",
            Driver::Chat => "Chat-like",
        })
    }
}

/// The private state of one processor.
pub(super) struct Cpu {
    number: u32,
    current: Option<Task>,
    rng: Rng,
    /// Tasks whose clients have their replies, the longest waiting first.
    sleepers: VecDeque<Task>,
    turns: u64,
    /// Requests answered, or messages handled. A message is handled by four tasks on its way.
    pub(super) done: u64,
    pub(super) walks: Walks,
}

impl Cpu {
    /// Its number on the machine.
    pub(super) fn number(&self) -> usize {
        self.number as usize
    }
}

/// Tasks, their queue, and what they do.
pub(super) struct Workload<'a> {
    queue: RunQueue<'a>,
    driver: Driver,
    cpus: u32,
    /// The first block of the objects.
    objects: u32,
    seed: u64,
}

impl<'a> Workload<'a> {
    /// Resets all tasks, with the places in their blocks from the palette. `number` returns the
    /// number of a block's address.
    pub(super) fn new(
        arena: &'a Arena,
        (driver, layout): (Driver, Layout),
        (runnable, cpus): (u32, u32),
        palette: &Palette,
        number: &dyn Fn(u32) -> u64,
        seed: u64,
    ) -> Workload<'a> {
        let tasks = driver.tasks(runnable, cpus);
        let objects = arena.blocks() - OBJECT_BLOCKS;
        let tasks = (0..tasks).map(|block| palette.task(block, number(block))).collect();
        let lists = if layout == Layout::MultiQueue { cpus as usize } else { 1 };
        let queue = RunQueue::new(arena, tasks, lists);
        for (at, &task) in (0..).zip(&queue.tasks) {
            let mm = match driver {
                // Separate processes.
                Driver::WebBench => at,
                // Threads of the client and of the server.
                Driver::Chat => u32::from(matches!(at % TASKS_A_USER, 1 | 2)),
            };
            queue.begin(task, mm, at % cpus);
            for place in [PENDING, OWN] {
                arena.at(task.private(place)).store(0, Ordering::Relaxed);
            }
        }
        Workload { queue, driver, cpus, objects, seed }
    }

    /// Makes the processors, and puts the runnable tasks on the queue in random order.
    pub(super) fn begin(&self) -> Vec<Cpu> {
        let mut rng = Rng::new(self.seed);
        let mut order: Vec<u32> = (0..self.queue.tasks.len() as u32).collect();
        shuffle(&mut order, &mut rng);
        let cpu = |number: u32| Cpu {
            number,
            current: None,
            rng: Rng::new(self.seed ^ (u64::from(number) + 1)),
            sleepers: VecDeque::new(),
            turns: 0,
            done: 0,
            walks: Walks::default(),
        };
        let mut cpus: Vec<Cpu> = (0..self.cpus).map(cpu).collect();
        let sleepers = (SLEEPERS * self.cpus) as usize;
        for (place, &at) in order.iter().enumerate() {
            let task = self.queue.tasks[at as usize];
            match self.driver {
                Driver::WebBench if place < sleepers => {
                    cpus[place % self.cpus as usize].sleepers.push_back(task);
                }
                Driver::WebBench => self.queue.wake(task, &mut ()),
                // Senders start with a message.
                Driver::Chat if at % TASKS_A_USER == 0 => self.send(task, task, &mut ()),
                Driver::Chat => {}
            }
        }
        cpus
    }

    /// Number of wakes so far. When it changes, an idle processor may check again.
    pub(super) fn woken(&self) -> u64 {
        self.queue.woken()
    }

    /// Does a processor's next piece of work. False if there is none.
    pub(super) fn step<W: Watch>(&self, cpu: &mut Cpu, watch: &mut W) -> bool {
        let previous = cpu.current.take();
        cpu.current = self.queue.schedule(cpu.number, previous, &mut cpu.walks, watch);
        let Some(task) = cpu.current else { return false };
        match self.driver {
            Driver::WebBench => self.answer(cpu, task, watch),
            Driver::Chat => self.chat(cpu, task, watch),
        }
        cpu.turns += 1;
        if cpu.turns.is_multiple_of(TURNS_A_TICK) {
            self.queue.tick(task, watch);
        }
        true
    }

    /// Answers a request and receives another.
    fn answer<W: Watch>(&self, cpu: &mut Cpu, task: Task, watch: &mut W) {
        for _ in 0..OBJECTS_A_REPLY {
            self.copy(cpu, task, watch);
        }
        cpu.done += 1;
        self.queue.set_state(task, SLEEPING, watch);
        // Only this processor wakes it, and only after it was removed from the list, because
        // another sleeper is in front of it.
        cpu.sleepers.push_back(task);
        if let Some(other) = cpu.sleepers.pop_front() {
            self.queue.wake(other, watch);
        }
    }

    /// Handles messages until there are none or the turn is over.
    fn chat<W: Watch>(&self, cpu: &mut Cpu, task: Task, watch: &mut W) {
        let pending = self.queue.arena.at(task.private(PENDING));
        for _ in 0..MESSAGES_A_TURN {
            if pending.load(Ordering::SeqCst) == 0 {
                break;
            }
            pending.fetch_sub(1, Ordering::SeqCst);
            watch.wrote(task.private(PENDING), 8);
            self.handle(cpu, task, watch);
        }
        if pending.load(Ordering::SeqCst) == 0 {
            self.queue.set_state(task, SLEEPING, watch);
            // A message may have arrived since: either its sender saw that this task sleeps, or it
            // is seen here.
            if pending.load(Ordering::SeqCst) != 0 {
                self.queue.set_state(task, RUNNING, watch);
            }
        }
    }

    fn handle<W: Watch>(&self, cpu: &mut Cpu, task: Task, watch: &mut W) {
        for _ in 0..OBJECTS_A_MESSAGE {
            self.copy(cpu, task, watch);
        }
        cpu.done += 1;
        let at = task.block();
        let of = |at: u32| self.queue.tasks[at as usize];
        match at % TASKS_A_USER {
            0 => self.send(task, of(at + 1), watch),
            1 => {
                let room = at / ROOM_TASKS * ROOM_TASKS;
                self.own(of(at + 1)).fetch_add(1, Ordering::SeqCst);
                for user in 0..USERS {
                    self.send(task, of(room + user * TASKS_A_USER + 2), watch);
                }
            }
            2 => {
                if self.take_own(task) {
                    self.own(of(at + 1)).fetch_add(1, Ordering::SeqCst);
                }
                self.send(task, of(at + 1), watch);
            }
            _ => {
                if self.take_own(task) {
                    self.send(task, of(at - 3), watch);
                }
            }
        }
    }

    /// Leaves a message and wakes its receiver.
    fn send<W: Watch>(&self, from: Task, to: Task, watch: &mut W) {
        self.copy_words(from.private(BUFFER), to.private(BUFFER), MESSAGE_BYTES, watch);
        self.queue.arena.at(to.private(PENDING)).fetch_add(1, Ordering::SeqCst);
        watch.wrote(to.private(PENDING), 8);
        if self.queue.sleeps(to) {
            self.queue.wake(to, watch);
        }
    }

    fn own(&self, task: Task) -> &std::sync::atomic::AtomicU32 {
        self.queue.arena.at(task.private(OWN))
    }

    /// Takes one of the user's own messages, if there is any. Only the task itself takes them.
    fn take_own(&self, task: Task) -> bool {
        let own = self.own(task);
        let some = own.load(Ordering::SeqCst) > 0;
        if some {
            own.fetch_sub(1, Ordering::SeqCst);
        }
        some
    }

    /// Copies a random object into the task's buffer.
    fn copy<W: Watch>(&self, cpu: &mut Cpu, task: Task, watch: &mut W) {
        let object = cpu.rng.below((OBJECT_BLOCKS * OBJECTS_A_BLOCK) as usize) as u32;
        let block = self.objects + object / OBJECTS_A_BLOCK;
        let from = Arena::piece(block, object % OBJECTS_A_BLOCK, OBJECT_BYTES);
        self.copy_words(from, task.private(BUFFER), OBJECT_BYTES, watch);
    }

    fn copy_words<W: Watch>(&self, from: u32, to: u32, bytes: u32, watch: &mut W) {
        let arena = self.queue.arena;
        for word in 0..bytes / 4 {
            let value = arena.at(from + word).load(Ordering::Relaxed);
            arena.at(to + word).store(value, Ordering::Relaxed);
        }
        watch.read(from, bytes);
        watch.wrote(to, bytes);
    }
}

/// All tasks of a palette in one list in random order, for walks without a workload.
pub(super) fn walkable<'a>(
    arena: &'a Arena,
    palette: &Palette,
    runnable: u32,
    number: &dyn Fn(u32) -> u64,
    seed: u64,
) -> RunQueue<'a> {
    let tasks: Vec<Task> = (0..runnable).map(|block| palette.task(block, number(block))).collect();
    let mut order = tasks.clone();
    shuffle(&mut order, &mut Rng::new(seed));
    let queue = RunQueue::new(arena, tasks, 1);
    for task in &order {
        queue.begin(*task, NONE, 0);
        queue.wake(*task, &mut ());
    }
    queue
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Machine;

    fn workload(arena: &Arena, driver: Driver, layout: Layout, runnable: u32) -> Workload<'_> {
        let palette = Palette::of(layout, &Machine::of_2002(1024));
        Workload::new(arena, (driver, layout), (runnable, 2), &palette, &u64::from, 1)
    }

    #[test]
    fn the_requested_number_of_processes_is_runnable() {
        let arena = Arena::new(Driver::blocks(50, 2));
        for layout in [Layout::Vanilla, Layout::MultiQueue] {
            let workload = workload(&arena, Driver::WebBench, layout, 50);
            let mut cpus = workload.begin();
            for _ in 0..300 {
                for cpu in &mut cpus {
                    assert!(workload.step(cpu, &mut ()));
                    assert_eq!(cpu.sleepers.len(), SLEEPERS as usize);
                }
            }
            assert_eq!(cpus[0].done + cpus[1].done, 600, "one request per step");
            let a_walk = cpus[0].walks.tasks as f64 / cpus[0].walks.walks as f64;
            let lists = if layout == Layout::MultiQueue { 2.0 } else { 1.0 };
            assert!((a_walk - 51.0 / lists).abs() < 10.0, "{layout}: {a_walk}");
        }
    }

    #[test]
    fn every_user_in_the_room_receives_a_message_once() {
        let arena = Arena::new(Driver::blocks(160, 2));
        for layout in [Layout::Vanilla, Layout::Colours(32), Layout::MultiQueue] {
            let workload = workload(&arena, Driver::Chat, layout, 160);
            assert_eq!(workload.queue.tasks.len(), 160);
            let mut cpus = workload.begin();
            // After each user has had the chance to speak, pending messages are dropped, so that it
            // ends.
            let mut handled = 0;
            for _ in 0..100_000 {
                let mut worked = false;
                for cpu in &mut cpus {
                    worked |= workload.step(cpu, &mut ());
                }
                if !worked {
                    break;
                }
                handled = cpus.iter().map(|cpu| cpu.done).sum::<u64>();
                for sender in workload.queue.tasks.iter().step_by(TASKS_A_USER as usize) {
                    if handled > 4000 {
                        arena.at(sender.private(PENDING)).store(0, Ordering::SeqCst);
                    }
                }
            }
            // One message takes a sender, a reader, and the writers and receivers of 20 users.
            assert!(handled > 4000 && handled.is_multiple_of(42), "{layout}: {handled}");
        }
    }
}

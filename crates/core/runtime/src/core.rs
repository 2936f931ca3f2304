//! One core: the loop that runs tasks, fires timers and waits for events.
//!
//! What: a thread owns its [`Runtime`]. The sockets, timers and tasks of the core reach the
//! [`Core`] through a counted pointer or through the thread. One turn of the loop: run every task
//! that was queued when the turn began, and one task that had exhausted its budget; fire timers;
//! wait for events (not at all if tasks are queued, otherwise until the next timer); read the
//! clock; wake. So a request for a small object waits for one piece of a large one, however many
//! large ones are in progress.
//! Who owns: one thread. Nothing here is `Send`; other threads use [`crate::remote::Remote`].
//! What never happens: a borrow of the core's tables is held while a future, a foreign waker, or a
//! destructor of either runs. A task that panics takes the core down: [`Runtime::block_on`] panics.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use readiness::{Choice, Event, Events, Kind, Poller};

use crate::counters::{CounterCells, Counters, count};
use crate::fs::pipes::Pipes;
use crate::io::Io;
use crate::packed_waker::PackedWaker;
use crate::remote::{self, MAIN_SLOT, Remote, TaskId};
use crate::sim::options::Options as SimulationOptions;
use crate::sim::world::World as SimulatedWorld;
use crate::sys::World;
use crate::task::{self, JoinHandle, Task, Tasks};
use crate::time::clock::Clock;
use crate::time::wheel::Wheel;

/// Events fetched by one wait.
const EVENTS_MAX: usize = 1024;
/// Operations that a task may complete without waiting before it must let the others run.
const BUDGET_OPERATIONS: u32 = 128;
/// This many bytes read or written count as one more operation: the budget is 64 KiB, about 50 us.
/// Four times as much saved nothing measurable, and delayed a tenth of the small requests that ran
/// beside large ones.
const BYTES_PER_OPERATION: usize = 512;
const _: () = assert!(BUDGET_OPERATIONS as usize * BYTES_PER_OPERATION == 64 << 10);
const _: () = assert!(EVENTS_MAX > 0, "a wait delivers something");

/// How to make a [`Runtime`].
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Options {
    /// The readiness backend to use.
    pub backend: Choice,
    /// The processor to pin the calling thread to.
    pub pin_cpu: Option<usize>,
}

setters! {
    Options {
        /// Sets the readiness backend.
        with_backend: backend = Choice;
        /// Sets the processor to pin the thread to, or none.
        with_pin_cpu: pin_cpu = Option<usize>;
    }
}

/// One core's executor. It stays on the thread that made it.
///
/// Dropping it drops every unfinished task.
pub struct Runtime {
    core: Rc<Core>,
    events: Events,
}

impl Runtime {
    /// A runtime on the real clock, network and disk.
    ///
    /// # Errors
    /// The backend is not supported here, the processor does not exist, or there are too many
    /// cores.
    pub fn new(options: Options) -> io::Result<Runtime> {
        if let Some(cpu) = options.pin_cpu {
            crate::sys::real::pin_thread(cpu)?;
        }
        let poller = Poller::open(options.backend).map_err(io::Error::other)?;
        Runtime::on(poller, World::Real)
    }

    /// The twin: the same runtime on a clock, network and disk simulated from one seed.
    #[must_use]
    pub fn simulated(options: SimulationOptions) -> Runtime {
        let levels = readiness::simulated::Levels::default();
        let world = Rc::new(SimulatedWorld::new(options, levels.clone()));
        // The world owns the levels and the levels own this hook: a strong pointer would leak both.
        let advancing = Rc::downgrade(&world);
        levels.set_advance(Box::new(move |at_most| {
            advancing.upgrade().is_some_and(|world| world.advance(at_most))
        }));
        Runtime::on(Poller::simulated(levels), World::Simulated(world))
            .expect("a simulated poller has a waker and a process fewer than 2048 cores")
    }

    fn on(poller: Poller, world: World) -> io::Result<Runtime> {
        let remote = Arc::new(Remote::new(poller.waker()?));
        let id = remote::enter_core(&remote)
            .ok_or_else(|| io::Error::other(format!("more than {} cores", remote::CORES_MAX)))?;
        let clock = Clock::new(&world);
        let core = Rc::new(Core {
            id,
            remote,
            kind: poller.kind(),
            tasks: RefCell::new(Tasks::new()),
            queue: RefCell::new(VecDeque::new()),
            spent: RefCell::new(VecDeque::new()),
            out_of_budget: Cell::new(false),
            main_woken: Cell::new(false),
            budget: Cell::new(BUDGET_OPERATIONS),
            io: RefCell::new(Io::new(poller)),
            pipes: RefCell::default(),
            timers: RefCell::new(Wheel::new()),
            clock,
            world,
            counters: CounterCells::default(),
        });
        Ok(Runtime { core, events: Events::with_capacity(EVENTS_MAX) })
    }

    /// The readiness backend in use.
    #[must_use]
    pub fn backend(&self) -> Kind {
        self.core.kind
    }

    /// This core's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.counters.copy()
    }

    /// Runs the core until `future` is done. Unfinished tasks rest until the next call or the end
    /// of the runtime.
    ///
    /// # Panics
    /// When a task panics. On the twin also when every task waits and no event will ever happen.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let _entered = Entered::new(&self.core);
        let core = Rc::clone(&self.core);
        let mut future = pin!(future);
        let waker = TaskId::new(core.id, MAIN_SLOT, 0).waker();
        core.main_woken.set(true);
        core.clock.refresh(&core.world);
        let mut woken = Vec::new();
        loop {
            if core.main_woken.replace(false) {
                core.budget.set(BUDGET_OPERATIONS);
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
            }
            core.run_queued();
            core.fire_timers();
            core.take_remote_wakes(&mut woken);
            self.wait_for_events();
        }
    }

    /// Waits once for events, then wakes the tasks that they concern.
    fn wait_for_events(&mut self) {
        let core = &*self.core;
        let timeout = core.wait_at_most();
        count(&core.counters.turns);
        count(&core.counters.waits);
        core.io
            .borrow_mut()
            .poller
            .wait(&mut self.events, timeout)
            .expect("the poller waits on descriptors that are registered and open");
        core.clock.refresh(&core.world);
        debug_assert!(self.events.len() <= EVENTS_MAX, "a turn has a bounded number of events");
        core.counters.events.set(core.counters.events.get() + self.events.len() as u64);
        if self.events.is_empty() && timeout.is_none() {
            core.nothing_happened();
        }
        if let World::Simulated(world) = &core.world {
            // The order of simultaneous events is random, so it is drawn from the seed.
            let mut events: Vec<_> = self.events.iter().collect();
            world.shuffle(&mut events);
            return events.into_iter().for_each(|event| core.wake_for(event));
        }
        self.events.iter().for_each(|event| core.wake_for(event));
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Destructors of tasks may close sockets, cancel timers and even spawn.
        let entered = Entered::new(&self.core);
        loop {
            let tasks = self.core.tasks.borrow_mut().take_all();
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        drop(entered);
        remote::leave_core(self.core.id);
    }
}

/// The state that everything on a core shares.
pub(crate) struct Core {
    id: u16,
    remote: Arc<Remote>,
    kind: Kind,
    tasks: RefCell<Tasks>,
    queue: RefCell<VecDeque<TaskId>>,
    /// Tasks that exhausted their budget; one runs each turn.
    spent: RefCell<VecDeque<TaskId>>,
    /// The running task is waking itself because its budget is exhausted.
    out_of_budget: Cell<bool>,
    main_woken: Cell<bool>,
    budget: Cell<u32>,
    pub(crate) io: RefCell<Io>,
    pub(crate) pipes: RefCell<Pipes>,
    pub(crate) timers: RefCell<Wheel<PackedWaker>>,
    pub(crate) clock: Clock,
    pub(crate) world: World,
    pub(crate) counters: CounterCells,
}

impl Core {
    /// Takes one operation from the running task's budget. If the budget is exhausted, wakes the
    /// task for the next turn and returns false: the task must return `Pending`.
    pub(crate) fn spend(&self, cx: &Context<'_>) -> bool {
        let left = self.budget.get();
        debug_assert!(left <= BUDGET_OPERATIONS && !self.out_of_budget.get());
        if left == 0 {
            self.out_of_budget.set(true);
            cx.waker().wake_by_ref();
            self.out_of_budget.set(false);
            return false;
        }
        self.budget.set(left - 1);
        true
    }

    /// Charges the running task's budget for this many bytes.
    pub(crate) fn charge(&self, bytes: usize) {
        let operations = u32::try_from(bytes / BYTES_PER_OPERATION).unwrap_or(u32::MAX);
        self.budget.set(self.budget.get().saturating_sub(operations));
    }

    /// Puts a task into the table and queues it.
    fn start(&self, task: Task) -> TaskId {
        let id = self.tasks.borrow_mut().insert(self.id, task);
        count(&self.counters.tasks_spawned);
        self.wake(id);
        id
    }

    fn wake(&self, id: TaskId) {
        debug_assert!(id.core() == self.id, "a wake goes to the core of its task");
        if id.slot() == MAIN_SLOT {
            self.main_woken.set(true);
        } else if self.tasks.borrow_mut().mark_queued(id) {
            let queue = if self.out_of_budget.get() { &self.spent } else { &self.queue };
            queue.borrow_mut().push_back(id);
        }
    }

    /// Runs each task that is queued now once, and one that had exhausted its budget. Tasks that
    /// they wake run in the next turn, after a check for events.
    fn run_queued(&self) {
        let spent = self.spent.borrow_mut().pop_front();
        let queued = self.queue.borrow().len();
        for _ in 0..queued {
            let Some(id) = self.queue.borrow_mut().pop_front() else { break };
            self.run(id);
        }
        if let Some(id) = spent {
            self.run(id);
        }
    }

    fn run(&self, id: TaskId) {
        let Some(mut task) = self.tasks.borrow_mut().take(id) else { return };
        count(&self.counters.tasks_polled);
        self.budget.set(BUDGET_OPERATIONS);
        let waker = id.waker();
        if task.run(&mut Context::from_waker(&waker)) {
            drop(task); // a foreign destructor runs without the borrow
            count(&self.counters.tasks_ended);
            self.tasks.borrow_mut().free(id);
        } else {
            self.tasks.borrow_mut().put_back(id, task);
        }
    }

    fn wake_for(&self, event: Event) {
        let (reader, writer) = self.deliver(event);
        if let Some(reader) = reader {
            reader.wake();
        }
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    fn fire_timers(&self) {
        let tick = self.clock.tick();
        self.timers.borrow_mut().advance(tick);
        loop {
            let Some(waker) = self.timers.borrow_mut().pop_due() else { break };
            count(&self.counters.timers_fired);
            waker.wake();
        }
    }

    fn take_remote_wakes(&self, woken: &mut Vec<TaskId>) {
        if !self.remote.has_wakes() {
            return;
        }
        debug_assert!(woken.is_empty(), "the wakes of the turn before were taken");
        self.remote.drain(woken);
        for id in woken.drain(..) {
            count(&self.counters.remote_wakes);
            self.wake(id);
        }
    }

    fn wait_at_most(&self) -> Option<Duration> {
        let busy = self.main_woken.get()
            || !self.queue.borrow().is_empty()
            || !self.spent.borrow().is_empty()
            || self.remote.has_wakes();
        if busy {
            return Some(Duration::ZERO);
        }
        let tick = self.timers.borrow().next_tick()?;
        Some(self.clock.until(tick))
    }

    /// A wait without a time-out returned no event. On the twin that means that nothing remains to
    /// be simulated: only another thread can still cause an event.
    fn nothing_happened(&self) {
        if let World::Simulated(world) = &self.world
            && world.take_idle()
            && !self.remote.wait_outside(world.outside_wait())
        {
            panic!("every task waits and no event will ever happen ({})", world.describe());
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// While this lives, the core is the thread's current one.
struct Entered {
    before: Option<Rc<Core>>,
}

impl Entered {
    fn new(core: &Rc<Core>) -> Self {
        Entered { before: CURRENT.replace(Some(Rc::clone(core))) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}

/// The thread's current core.
///
/// # Panics
/// Outside [`Runtime::block_on`].
pub(crate) fn current() -> Rc<Core> {
    try_with_current(Rc::clone).expect("the caller runs within Runtime::block_on")
}

/// Takes one operation from the running task's budget. For operations that might otherwise complete
/// at once any number of times and monopolise the core.
pub(crate) async fn spend() {
    std::future::poll_fn(|cx| if may_go_on(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// [`spend`] for hand-written futures: false if the task must return `Pending`; it will be woken.
pub(crate) fn may_go_on(cx: &Context<'_>) -> bool {
    // Outside a core no other task is waiting.
    try_with_current(Rc::clone).is_none_or(|core| core.spend(cx))
}

/// Reads the thread's current core; `None` if there is none. `look` must not run foreign code.
pub(crate) fn try_with_current<T>(look: impl FnOnce(&Rc<Core>) -> T) -> Option<T> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(look)).ok().flatten()
}

/// Wakes the task if it lives on the thread's current core.
pub(crate) fn wake_if_current(id: TaskId) -> bool {
    try_with_current(|core| {
        let here = core.id == id.core();
        if here {
            core.wake(id);
        }
        here
    })
    .unwrap_or(false)
}

/// Starts a task on the current core. It is first polled in the next turn.
///
/// # Panics
/// Outside [`Runtime::block_on`].
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let core = current();
    task::with_handle(future, |task| core.start(task))
}

/// Starts a task that nothing waits for. It takes less memory than a task of [`spawn`] whose handle
/// is dropped.
///
/// # Panics
/// Outside [`Runtime::block_on`].
pub fn spawn_detached<F>(future: F)
where
    F: Future<Output = ()> + 'static,
{
    current().start(Task::new(future));
}

/// Lets every other ready task run once, and the core check for events.
pub fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// The current core's counters.
///
/// # Panics
/// Outside [`Runtime::block_on`].
#[must_use]
pub fn counters() -> Counters {
    current().counters.copy()
}

/// The counters of the current core's poller.
///
/// # Panics
/// Outside [`Runtime::block_on`].
#[must_use]
pub fn poller_counters() -> readiness::Counters {
    current().io.borrow().poller.counters()
}

/// The readiness backend of the current core.
///
/// # Panics
/// Outside [`Runtime::block_on`].
#[must_use]
pub fn backend() -> Kind {
    current().kind
}

/// The number of unfinished tasks on the current core.
///
/// # Panics
/// Outside [`Runtime::block_on`].
#[must_use]
pub fn tasks() -> usize {
    current().tasks.borrow().len()
}

//! io_uring(7): one-shot polls made level-triggered by arming them again, together with the wait.
//!
//! Each registration with interest is idle, queued or armed:
//!
//! ```text
//!             register, change                wait: POLL_ADD
//!    Idle ─────────────────────► Queued ─────────────────────► Armed(sequence)
//!     ▲                            ▲                               │
//!     └── change to no interest    └─── its completion is delivered ┘
//! ```
//!
//! A delivered registration is queued and armed again by the next wait's system call; if it is
//! still ready the kernel completes it at once. So a wait is one call whatever is ready, a cold
//! descriptor costs nothing, and a descriptor removed right after its event needs no cancelling.
//!
//! The kernel reports `POLLRDHUP` even if it was not requested. A writer whose peer sends no more
//! would get it at each arming, and waiting for room would become spinning. Such a registration is
//! armed as a multishot poll, which reports changes only. After a delivery the next wait replaces
//! it by a fresh one, which checks again (state `Stale`).
//!
//! A completion carries the descriptor and the sequence number of its arming. Only the completion
//! of the current arming counts; all others are of cancelled polls. An armed poll holds its file
//! open, so a cancellation is submitted at once: after `remove`, closing really closes. The
//! completion queue may overflow; the kernel keeps the excess and delivers it at the next call
//! (`IORING_FEAT_NODROP`).

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use ::io_uring::opcode::{PollAdd, PollRemove};
use ::io_uring::squeue::{Entry, Flags};
use ::io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use ::io_uring::{Builder, EnterFlags, cqueue};

use crate::event::POLL_IN;
use crate::sys;
use crate::table::FdTable;
use crate::wake::WakeEnd;
use crate::{Backend, Counters, Events, Interest, Kind, OpenError, Ready, Token};

/// How many polls one call arms; more take several calls.
const SUBMISSIONS: u32 = 1024;

/// How many completions the shared queue holds; more stay in the kernel until there is room.
const COMPLETIONS: u32 = 4096;

const _: () = assert!(SUBMISSIONS.is_power_of_two() && COMPLETIONS >= 2 * SUBMISSIONS);

/// User data of entries that belong to no registration; as descriptors they would be negative.
const WAKE_DATA: u64 = u64::MAX;
const CANCEL_DATA: u64 = u64::MAX - 1;
const _: () = assert!((CANCEL_DATA as u32 as RawFd) < 0 && (WAKE_DATA as u32 as RawFd) < 0);

/// See the module docs.
pub(crate) struct IoUring {
    ring: ::io_uring::IoUring,
    table: FdTable<Registration>,
    /// With `unheard`, has every `Queued` and `Stale` registration. May have others, and some
    /// twice.
    queue: Vec<RawFd>,
    /// Registrations whose completion had nothing of interest, which are armed before this wait
    /// asks the kernel: no event was delivered for them, so the caller may sleep in this wait.
    unheard: Vec<RawFd>,
    /// The sequence number of the next arming.
    sequence: u32,
    /// The multishot poll of the wake eventfd is in the kernel.
    wake_armed: bool,
    pub(crate) wake: WakeEnd,
    pub(crate) counters: Counters,
}

#[derive(Clone, Copy)]
struct Registration {
    token: Token,
    interest: Interest,
    state: State,
    /// The kernel keeps reporting something outside the interest: arm a multishot poll.
    multishot: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No interest.
    Idle,
    /// To be armed by the next wait.
    Queued,
    /// In the kernel, with this sequence number.
    Armed(u32),
    /// Delivered, but still in the kernel (multishot); the next wait replaces it.
    Stale(u32),
}

/// When a poll is armed again after a completion.
enum Again {
    /// It is still in the kernel.
    Never,
    AtNextWait,
    Now,
}

impl State {
    /// The sequence number of the poll in the kernel.
    fn in_kernel(self) -> Option<u32> {
        match self {
            State::Idle | State::Queued => None,
            State::Armed(sequence) | State::Stale(sequence) => Some(sequence),
        }
    }
}

impl IoUring {
    pub(crate) fn open() -> Result<IoUring, OpenError> {
        IoUring::with_queues(SUBMISSIONS, COMPLETIONS)
    }

    fn with_queues(submissions: u32, completions: u32) -> Result<IoUring, OpenError> {
        let ring = build(submissions, completions)
            .map_err(|error| OpenError::of_call(Kind::IoUring, "io_uring_setup", error))?;
        let parameters = ring.params();
        for (present, name) in [
            (parameters.is_feature_nodrop(), "IORING_FEAT_NODROP (Linux 5.5)"),
            (parameters.is_feature_poll_32bits(), "IORING_FEAT_POLL_32BITS (Linux 5.9)"),
            (parameters.is_feature_ext_arg(), "IORING_FEAT_EXT_ARG (Linux 5.11)"),
            (parameters.is_feature_skip_cqe_on_success(), "IORING_FEAT_CQE_SKIP (Linux 5.17)"),
        ] {
            if !present {
                let why = format!("the kernel lacks {name}");
                return Err(OpenError::NotSupported { kind: Kind::IoUring, why });
            }
        }
        let wake = WakeEnd::with_eventfd(Kind::IoUring)?;
        Ok(IoUring {
            ring,
            table: FdTable::new(),
            queue: Vec::new(),
            unheard: Vec::new(),
            sequence: 0,
            wake_armed: false,
            wake,
            counters: Counters::default(),
        })
    }

    /// Puts an entry into the submission queue and makes room first if it is full. `EBUSY`: the
    /// kernel accepts nothing until completions have been reaped (before Linux 5.19).
    fn push(&mut self, entry: &Entry) -> io::Result<()> {
        for _ in 0..2 {
            // SAFETY: polls and cancellations point to no memory.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter(0, None)?;
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Submits the queue to the kernel, lets it complete what it can, and sleeps until there are
    /// `want` completions or `timeout` ends. One system call.
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.syscalls += 1;
        let submissions = self.ring.submission().len() as u32;
        let spec = timeout.map(|wait| {
            let spec = sys::timespec(wait);
            Timespec::new().sec(spec.tv_sec as u64).nsec(spec.tv_nsec as u32)
        });
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        let mut arguments = SubmitArgs::new();
        if let Some(spec) = &spec {
            arguments = arguments.timespec(spec);
        }
        // SAFETY: the argument is the structure that EXT_ARG announces, and the timespec that it
        // points to outlives the call.
        let entered =
            unsafe { self.ring.submitter().enter(submissions, want, flags, Some(&arguments)) };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // EBUSY: completions must be taken first, and the callers do that next.
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Submits POLL_ADD for everything that is queued, or as much as the kernel accepts now.
    fn arm_queued(&mut self) -> io::Result<()> {
        if !self.wake_armed {
            let watch = PollAdd::new(Fd(self.wake.fd()), POLL_IN).multi(true).build();
            self.push(&watch.user_data(WAKE_DATA))?;
            self.wake_armed = true;
        }
        self.queue.append(&mut self.unheard);
        while let Some(fd) = self.queue.pop() {
            if let Err(error) = self.arm(fd) {
                self.queue.push(fd);
                return if error.raw_os_error() == Some(libc::EBUSY) { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// Submits POLL_ADD for completions with nothing of interest, in the wait that took them.
    #[cold]
    fn arm_unheard(&mut self) -> io::Result<()> {
        while let Some(fd) = self.unheard.pop() {
            if let Err(error) = self.arm(fd) {
                self.unheard.push(fd);
                return if error.raw_os_error() == Some(libc::EBUSY) { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// Submits POLL_ADD for one descriptor, if it is still queued.
    fn arm(&mut self, fd: RawFd) -> io::Result<()> {
        let Some(&Registration { interest, state, multishot, .. }) = self.table.get(fd) else {
            return Ok(());
        };
        match state {
            State::Idle | State::Armed(_) => return Ok(()),
            State::Stale(old) => self.push(&cancellation(fd, old))?,
            State::Queued => {}
        }
        let sequence = self.sequence;
        let watch = PollAdd::new(Fd(fd), interest.poll_bits()).multi(multishot).build();
        self.push(&watch.user_data(user_data(fd, sequence)))?;
        self.counters.probes += 1;
        self.sequence = sequence.wrapping_add(1);
        self.table.known(fd).expect("looked up above").state = State::Armed(sequence);
        Ok(())
    }

    /// Delivers completions while there is room. True if the wake was among them.
    fn reap(&mut self, events: &mut Events) -> bool {
        let mut woken = false;
        let mut completions = self.ring.completion();
        while events.has_room() {
            let Some(completion) = completions.next() else { break };
            match completion.user_data() {
                WAKE_DATA => {
                    self.wake_armed &= cqueue::more(completion.flags());
                    self.wake.take_edge();
                    woken = true;
                }
                // The poll had completed before it was cancelled.
                CANCEL_DATA => {}
                data => {
                    let (fd, sequence) = (data as u32 as RawFd, (data >> 32) as u32);
                    let Some(registration) = self.table.get_mut(fd) else { continue };
                    if registration.state == State::Armed(sequence) {
                        let more = cqueue::more(completion.flags());
                        let ready = ready_of(completion.result());
                        match registration.complete(sequence, more, ready, events) {
                            Again::AtNextWait => self.queue.push(fd),
                            Again::Now => self.unheard.push(fd),
                            Again::Never => {}
                        }
                    }
                }
            }
        }
        woken
    }

    /// Cancels an armed poll at once, because it holds the file open.
    fn cancel(&mut self, fd: RawFd, sequence: u32) -> io::Result<()> {
        self.push(&cancellation(fd, sequence))?;
        self.enter(0, None)
    }
}

impl Registration {
    fn new(token: Token, interest: Interest) -> Registration {
        Registration { token, interest, state: State::Idle, multishot: false }
    }

    /// Delivers a completion of the armed poll. Returns when the poll is armed again.
    fn complete(&mut self, sequence: u32, more: bool, ready: Ready, events: &mut Events) -> Again {
        debug_assert!(self.state == State::Armed(sequence), "only the current arming counts");
        let ready = ready.narrowed_to(self.interest);
        let heard = !ready.is_empty();
        if heard {
            events.push(self.token, ready);
        } else {
            self.multishot = true;
            if more {
                return Again::Never;
            }
        }
        self.state = if more { State::Stale(sequence) } else { State::Queued };
        if heard { Again::AtNextWait } else { Again::Now }
    }
}

/// The descriptor and the arming that a completion belongs to.
fn user_data(fd: RawFd, sequence: u32) -> u64 {
    u64::from(sequence) << 32 | fd as u64
}

fn cancellation(fd: RawFd, sequence: u32) -> Entry {
    let cancel = PollRemove::new(user_data(fd, sequence)).build().user_data(CANCEL_DATA);
    cancel.flags(Flags::SKIP_SUCCESS)
}

/// The cheapest set-up that this kernel supports: the waiting thread processes completions in its
/// own call (6.1), or at least without an interrupt (5.19), or the default.
fn build(submissions: u32, completions: u32) -> io::Result<::io_uring::IoUring> {
    type Refine = fn(&mut Builder) -> &mut Builder;
    let refinements: [Refine; 3] = [
        |builder| builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all(),
        |builder| builder.setup_coop_taskrun().setup_submit_all(),
        |builder| builder,
    ];
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for refine in refinements {
        let mut builder = ::io_uring::IoUring::builder();
        match refine(builder.setup_cqsize(completions).dontfork()).build(submissions) {
            Ok(ring) => return Ok(ring),
            Err(error) => refused = error,
        }
        if refused.raw_os_error() != Some(libc::EINVAL) {
            break;
        }
    }
    Err(refused)
}

/// A poll's result is the mask of poll(2), or an error in place of it.
fn ready_of(result: i32) -> Ready {
    if result > 0 { Ready::from_poll_bits(result as u32) } else { Ready::ERROR }
}

impl Backend for IoUring {
    const KIND: Kind = Kind::IoUring;

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.check_absent(fd)?;
        self.counters.syscalls += 1;
        sys::check_open(fd)?;
        self.table.insert(fd, Registration::new(token, interest));
        self.requeue(fd)
    }

    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let registration = self.table.known(fd)?;
        registration.token = token;
        if registration.interest == interest {
            return Ok(());
        }
        let before = registration.state;
        *registration = Registration::new(token, interest);
        self.requeue(fd)?;
        before.in_kernel().map_or(Ok(()), |sequence| self.cancel(fd, sequence))
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        let state = self.table.remove(fd)?.state;
        state.in_kernel().map_or(Ok(()), |sequence| self.cancel(fd, sequence))
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.arm_queued()?;
        let woken = self.reap(events);
        if !self.unheard.is_empty() {
            self.arm_unheard()?;
        }
        if woken || !events.is_empty() || timeout == Some(Duration::ZERO) {
            self.enter(0, None)?;
        } else {
            self.enter(1, timeout)?;
        }
        self.reap(events);
        Ok(())
    }
}

impl IoUring {
    /// From idle to queued, if it has interest.
    fn requeue(&mut self, fd: RawFd) -> io::Result<()> {
        let registration = self.table.known(fd)?;
        if !registration.interest.is_empty() {
            debug_assert!(registration.state.in_kernel().is_none(), "it is not armed");
            registration.state = State::Queued;
            self.queue.push(fd);
        }
        Ok(())
    }
}

impl Drop for IoUring {
    /// The kernel tears a ring down asynchronously, and armed polls hold their files open until
    /// then. If this fails, it costs only that delay.
    fn drop(&mut self) {
        let all = CancelBuilder::any();
        if self.ring.submitter().register_sync_cancel(None, all).is_ok() {
            self.enter(0, None).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::fd::AsRawFd;

    use super::*;

    /// A ring so small that everything overflows many times.
    #[test]
    fn nothing_is_lost_when_the_queues_overflow() {
        let Ok(mut backend) = IoUring::with_queues(4, 8) else {
            eprintln!("SKIPPED: io_uring is not supported here");
            return;
        };
        let sources: Vec<_> = (0..100).map(|_| sys::eventfd().unwrap()).collect();
        for (slot, source) in (0..).zip(&sources) {
            backend.register(source.as_raw_fd(), Token::new(slot, 0), Interest::READ).unwrap();
        }
        let mut events = Events::with_capacity(7);
        backend.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        sources.iter().for_each(sys::eventfd_add_one);
        for _ in 0..3 {
            let mut seen = BTreeSet::new();
            while seen.len() < sources.len() {
                events.clear();
                backend.wait(&mut events, None).unwrap();
                seen.extend(events.iter().map(|event| event.token.slot()));
            }
        }
        let (gone, kept) = sources.split_at(50);
        gone.iter().for_each(|source| backend.remove(source.as_raw_fd()).unwrap());
        kept.iter().for_each(sys::eventfd_drain);
        for _ in 0..50 {
            events.clear();
            backend.wait(&mut events, Some(Duration::ZERO)).unwrap();
            assert!(events.iter().all(|event| event.token.slot() >= 50));
        }
        assert!(events.is_empty(), "pending completions have arrived, and nothing is ready");
    }
}

//! `poll`, `ppoll`, `select`, `pselect` and their variants, as the program calls them.
//!
//! Each function decides whether the call is worth boosting, waits ([`crate::wait`]), and writes
//! the results where the caller expects them. A call that cannot be boosted goes to the original
//! with the remaining time.

use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::front::{self, Position};
use crate::limits::{FDS_MAX, LEAST_DEFAULT, POSITIONS_MAX};
use crate::set::Refused;
use crate::stats::{self, Counter, count};
use crate::thread::{self, Kind, Region};
use crate::time::{self, Limit};
use crate::wait::{self, INTERRUPTED, Outcome};
use crate::{real, sys};

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Arrays up to this length are below any limit of descriptors in practice.
const ALLOWED_EVERYWHERE: nfds_t = 256;

/// Calls with fewer descriptors are plain.
static LEAST: AtomicUsize = AtomicUsize::new(LEAST_DEFAULT);

/// Runs when the library is loaded, before the program's own code.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn() = start;

extern "C" fn start() {
    real::look_up_all();
    stats::enable();
    thread::prepare();
    // SAFETY: C strings of the environment; the process still has only one thread. The handlers are
    // functions of this library, which is never unloaded.
    unsafe {
        let least = libc::getenv(c"PLIMSOLL_BOOST_LEAST".as_ptr());
        if !least.is_null() {
            let least = libc::atoi(least);
            LEAST.store(usize::try_from(least).unwrap_or(LEAST_DEFAULT).max(1), Ordering::Relaxed);
        }
        libc::atexit(end);
        libc::pthread_atfork(None, None, Some(child));
    }
}

extern "C" fn end() {
    stats::report();
}

unsafe extern "C" fn child() {
    stats::reset();
}

/// How a boosted call ended.
enum Done {
    /// It returns this.
    With(c_int),
    /// It was not started.
    Plain,
    /// The original must complete it.
    Original,
}

/// `poll(2)`.
///
/// # Safety
/// As the C library's: `fds` are `count` entries.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let limit = time::of_milliseconds(timeout);
    // SAFETY: the caller keeps poll's contract.
    unsafe {
        poll_within(fds, count, Some(limit), std::ptr::null(), || real::poll(fds, count, timeout))
    }
}

/// The name that some libraries use.
///
/// # Safety
/// As [`poll`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { poll(fds, count, timeout) }
}

/// `poll(2)` as programs built with `_FORTIFY_SOURCE` call it: `bytes` is the array's size.
///
/// # Safety
/// As [`poll`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    bytes: usize,
) -> c_int {
    // SAFETY: the same contract; the original reports an array that is too small.
    unsafe {
        if bytes / size_of::<pollfd>() < count as usize {
            return real::__poll_chk(fds, count, timeout, bytes);
        }
        poll(fds, count, timeout)
    }
}

/// `ppoll(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps ppoll's contract: null, or a time.
    unsafe {
        let limit = time::of_timespec(timeout.as_ref());
        poll_within(fds, count, limit, mask, || real::ppoll(fds, count, timeout, mask))
    }
}

/// `ppoll(2)` as programs built with `_FORTIFY_SOURCE` call it.
///
/// # Safety
/// As [`ppoll`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    bytes: usize,
) -> c_int {
    // SAFETY: as in `__poll_chk`.
    unsafe {
        if bytes / size_of::<pollfd>() < count as usize {
            return real::__ppoll_chk(fds, count, timeout, mask, bytes);
        }
        ppoll(fds, count, timeout, mask)
    }
}

/// `select(2)`. Updates the time-out to the remaining time, as Linux does.
///
/// # Safety
/// As the C library's: each set is null or large enough for `count` descriptors.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller keeps select's contract.
    unsafe {
        let limit = time::of_timeval(timeout.as_ref());
        let begun = sys::now();
        let none = std::ptr::null();
        let plain = || real::select(count, read, write, except, timeout);
        let (returned, ours) = select_within(count, sets, (limit, begun), none, plain);
        if ours
            && let (Some(limit), Some(timeout)) = (limit, timeout.as_mut())
            && let Limit::Nanoseconds(left @ 1..) = limit
            && !planted::is(planted::Bug::BoostTimeoutKept)
        {
            let spent = sys::now().wrapping_sub(begun);
            *timeout = time::timeval_of(left.saturating_sub(spent));
        }
        returned
    }
}

/// The name that some libraries use.
///
/// # Safety
/// As [`select`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { select(count, read, write, except, timeout) }
}

/// `pselect(2)`. Leaves the time-out unchanged.
///
/// # Safety
/// As [`select`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps pselect's contract.
    unsafe {
        let limit = time::of_timespec(timeout.as_ref());
        let plain = || real::pselect(count, read, write, except, timeout, mask);
        let sets = [read, write, except];
        select_within(count, sets, (limit, sys::now()), mask, plain).0
    }
}

/// The parameters of a boosted wait.
struct Call {
    limit: Limit,
    /// A [`sys::now`].
    begun: u64,
    mask: *const sigset_t,
}

/// # Safety
/// `fds` are `requested` entries, or null.
unsafe fn poll_within(
    fds: *mut pollfd,
    requested: nfds_t,
    limit: Option<Limit>,
    mask: *const sigset_t,
    plain: impl Fn() -> c_int,
) -> c_int {
    count(Counter::Calls, 1);
    let worth = requested as usize >= LEAST.load(Ordering::Relaxed)
        && !fds.is_null()
        && requested as usize <= POSITIONS_MAX
        // Above the limit of descriptors the kernel refuses the call.
        && (requested <= ALLOWED_EVERYWHERE || requested <= sys::descriptor_limit());
    let (Some(limit), true) = (limit, worth) else {
        count(Counter::Plain, 1);
        return plain();
    };
    let call = Call { limit, begun: sys::now(), mask };
    // SAFETY: the caller's entries, eight bytes each, of the same alignment; no other reference to
    // them exists meanwhile.
    let array =
        unsafe { std::slice::from_raw_parts_mut(fds.cast::<Position>(), requested as usize) };
    let boost = |region: &mut Region| {
        let outcome = settle_and_wait(region, Kind::Poll, array.len(), &call, |region| {
            region.compare_array(array)
        });
        Some(match outcome? {
            Outcome::Found(found) => Done::With(write_results(region, array, found)),
            other => done_without_results(other),
        })
    };
    // SAFETY: the caller keeps ppoll's contract.
    boosted(&call, boost, plain, |left| unsafe { real::ppoll(fds, requested, left, mask) }).0
}

/// Makes a boosted call with the thread's set. Returns the result, and whether the call waited here
/// or in the original with the remaining time, so that the caller's time-out is ours to write.
fn boosted(
    call: &Call,
    boost: impl FnOnce(&mut Region) -> Option<Done>,
    plain: impl Fn() -> c_int,
    original: impl FnOnce(*const timespec) -> c_int,
) -> (c_int, bool) {
    match with_region(call.begun, boost) {
        Done::With(returned) => (returned, true),
        Done::Plain => {
            count(Counter::Plain, 1);
            (plain(), false)
        }
        Done::Original => {
            count(Counter::Fallbacks, 1);
            let left = match call.limit.after(sys::now().wrapping_sub(call.begun)) {
                Limit::Endless => None,
                Limit::Nanoseconds(left) => Some(time::timespec_of(left)),
            };
            (original(left.as_ref().map_or(std::ptr::null(), |time| time)), true)
        }
    }
}

/// Takes the thread's set, runs `boost` with it, and gives it back. `errno` stays unchanged, except
/// after an interruption. No guard gives the set back: nothing may need to be dropped here when a
/// sleeping thread is cancelled, and then no later call needs its set.
fn with_region(begun: u64, boost: impl FnOnce(&mut Region) -> Option<Done>) -> Done {
    let errno = sys::errno();
    // SAFETY: takes nothing; unwinds if the thread is cancelled, through frames that drop nothing.
    unsafe { pthread_testcancel() };
    let Some(region) = thread::enter() else { return Done::Plain };
    let done = boost(region).unwrap_or(Done::Original);
    if matches!(done, Done::Original) {
        // A half-finished set is unreliable.
        region.empty();
    }
    let spent = stats::clock().wrapping_sub(begun).wrapping_sub(region.slept);
    if stats::clock() != 0 {
        count(Counter::Nanoseconds, spent);
    }
    thread::leave();
    sys::set_errno(if let Done::With(INTERRUPTED) = done { libc::EINTR } else { errno });
    done
}

/// Brings the set to what the call wants and waits. `compare` marks what differs from the last
/// call. `None`: the original must make this call and the next ones.
fn settle_and_wait(
    region: &mut Region,
    kind: Kind,
    requested: usize,
    call: &Call,
    compare: impl FnOnce(&mut Region) -> Result<(), Refused>,
) -> Option<Outcome> {
    let settled = region
        .begin(kind)
        .and_then(|()| compare(region))
        .and_then(|()| region.note_changes())
        .and_then(|()| region.settle());
    if settled.is_err() {
        region.churn.take_a_rest();
        return None;
    }
    region.churn.note(requested, region.changed);
    Some(wait::wait(region, call.limit, call.begun, call.mask))
}

/// The end of a call that found nothing.
fn done_without_results(outcome: Outcome) -> Done {
    match outcome {
        Outcome::Found(_) | Outcome::Nothing => Done::With(0),
        Outcome::Interrupted => Done::With(INTERRUPTED),
        Outcome::Original => Done::Original,
    }
}

/// Writes the results to each position of the found descriptors. Returns how many positions have a
/// result.
fn write_results(region: &Region, array: &mut [Position], found: usize) -> c_int {
    let mut answered = 0;
    for probe in region.probes.iter().take(found) {
        for at in region.positions(probe.fd as usize) {
            let Some(position) = array.get_mut(at) else { break };
            let revents = front::answer_for(front::events_of(*position), probe.revents as u16);
            position[1] |= u32::from(revents) << 16;
            answered += c_int::from(revents != 0);
            if planted::is(planted::Bug::BoostDuplicateOnce) {
                break;
            }
        }
    }
    answered
}

/// Returns the result of select, and whether to update the time-out.
///
/// # Safety
/// Each set is null or large enough for `requested` descriptors.
unsafe fn select_within(
    requested: c_int,
    sets: [*mut fd_set; 3],
    (limit, begun): (Option<Limit>, u64),
    mask: *const sigset_t,
    plain: impl Fn() -> c_int,
) -> (c_int, bool) {
    count(Counter::Calls, 1);
    let bitmaps =
        Bits { words: sets.map(|set| set.cast::<u64>()), count: requested.max(0) as usize };
    // SAFETY: as promised.
    let members = if bitmaps.count <= FDS_MAX { unsafe { bitmaps.members() } } else { 0 };
    let (Some(limit), true) = (limit, members >= LEAST.load(Ordering::Relaxed)) else {
        count(Counter::Plain, 1);
        return (plain(), false);
    };
    let call = Call { limit, begun, mask };
    let [read, write, except] = sets;
    // SAFETY: as promised.
    let boost = |region: &mut Region| unsafe { select_boosted(region, &bitmaps, &call) };
    boosted(&call, boost, plain, |left| {
        // SAFETY: the caller keeps pselect's contract.
        unsafe { real::pselect(requested, read, write, except, left, mask) }
    })
}

/// A select's three sets, in the caller's memory.
struct Bits {
    /// Null for an absent set.
    words: [*mut u64; 3],
    count: usize,
}

impl Bits {
    /// # Safety
    /// Each set is null or has [`front::words_of_count`] words, and so in all that follows.
    unsafe fn word(&self, at: usize) -> [u64; 3] {
        let below = front::bits_below(self.count, at);
        // SAFETY: `at` is below the number of words, or no bit is below the count and nothing is
        // read.
        self.words.map(|words| unsafe {
            if words.is_null() || below == 0 { 0 } else { words.add(at).read_unaligned() & below }
        })
    }

    /// How many bits are set.
    unsafe fn members(&self) -> usize {
        let of = |at| {
            // SAFETY: as promised.
            let words = unsafe { self.word(at) };
            (words[0] | words[1] | words[2]).count_ones() as usize
        };
        (0..front::words_of_count(self.count)).map(of).sum()
    }

    unsafe fn clear(&self) {
        for words in self.words.iter().filter(|words| !words.is_null()) {
            for at in 0..front::words_of_count(self.count) {
                // SAFETY: as promised.
                unsafe { words.add(at).write_unaligned(0) };
            }
        }
    }

    unsafe fn set(&self, which: usize, fd: usize) {
        let (at, bit) = front::word_and_bit(fd);
        if let Some(words) = self.words.get(which)
            && fd < self.count
            && !words.is_null()
        {
            // SAFETY: as promised; the word lies below the count.
            unsafe { words.add(at).write_unaligned(words.add(at).read_unaligned() | bit) };
        }
    }
}

/// # Safety
/// As [`Bits::word`].
unsafe fn select_boosted(region: &mut Region, bits: &Bits, call: &Call) -> Option<Done> {
    let words = front::words_of_count(bits.count);
    let outcome = settle_and_wait(region, Kind::Select, bits.count, call, |region| {
        // SAFETY: as promised.
        region.compare_bitmaps(|at| unsafe { bits.word(at) }, words)
    });
    let found = match outcome? {
        Outcome::Found(found) => found,
        Outcome::Nothing => 0,
        other => return Some(done_without_results(other)),
    };
    let probes = region.probes.get(..found)?;
    if probes.iter().any(|probe| probe.revents & libc::POLLNVAL != 0) {
        // A closed descriptor is EBADF, and the sets stay unchanged.
        return Some(Done::Original);
    }
    // SAFETY: as promised.
    unsafe { bits.clear() };
    let mut answered = 0;
    for probe in probes {
        let sets = front::sets_of_answer(probe.events as u16, probe.revents as u16);
        for (which, _) in sets.iter().enumerate().filter(|&(_, &is_in)| is_in) {
            // SAFETY: as promised.
            unsafe { bits.set(which, probe.fd as usize) };
            answered += 1;
        }
    }
    Some(Done::With(answered))
}

//! Whether a counter counts, tested with a loop of known length and a walk through memory.
//!
//! A counter that opens may still read zero (virtual machines do that), or count something else. So
//! it is only trusted after it was compared with known work.

use super::{At, Event, Kind, Source, perf};

/// Turns of the known loop: a few milliseconds at most.
const TURNS: u64 = 4_000_000;

/// Tolerated relative error for the known loop's instructions. In user mode, this thread does
/// nothing else except the two system calls that read the counter.
const ERROR: f64 = 0.01;

/// Plausible range of instructions per cycle.
const PER_CYCLE: std::ops::Range<f64> = 0.02..16.0;

/// Size of the walk, and its step, a cache line. The memory has never been touched before.
const WALK_BYTES: usize = 32 << 20;
const LINE_BYTES: usize = 64;

/// Runs a loop of this many turns. Returns the number of its instructions if the loop is written
/// for this processor; the code around it adds a handful.
#[must_use]
pub fn known_loop(turns: u64) -> Option<u64> {
    /// Counting down and going back.
    const A_TURN: u64 = 2;
    let mut left = turns.max(1);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: two instructions that change one register and the flags, and no memory.
    unsafe {
        std::arch::asm!("2:", "dec {left}", "jnz 2b", left = inout(reg) left,
            options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("2:", "subs {left}, {left}, #1", "b.ne 2b", left = inout(reg) left,
            options(nomem, nostack));
    }
    // On other processors no turn was made.
    (left == 0).then(|| A_TURN * turns.max(1))
}

/// Whether a kind counts here; the error says why not.
pub(super) fn probe<S: Source>(source: &mut S, kind: Kind) -> Result<(), String> {
    let mut event = source.open(kind, At::Here).map_err(|error| perf::why(&error))?;
    let mut counted = |work: &dyn Fn() -> Option<u64>| {
        let unread = |error: std::io::Error| format!("it opens and cannot be read: {error}");
        let before = event.read().map_err(unread)?.count;
        let known = work().ok_or("no loop of known length is written for this processor")?;
        let after = event.read().map_err(unread)?.count;
        Ok::<_, String>((after.saturating_sub(before), known))
    };
    let (found, known) = match kind {
        Kind::Cycles | Kind::Instructions => counted(&|| known_loop(TURNS))?,
        Kind::CacheReferences | Kind::CacheMisses => counted(&walk)?,
    };
    judge(kind, found, known)
}

/// Whether a count is plausible for known work, in instructions or lines of memory.
pub(super) fn judge(kind: Kind, found: u64, known: u64) -> Result<(), String> {
    if found == 0 {
        return Err("it opens and reads zero".to_owned());
    }
    let (count, true_one) = (found as f64, known as f64);
    match kind {
        Kind::Instructions if (count / true_one - 1.0).abs() > ERROR => {
            Err(format!("it counted {found} instructions of a loop of {known}"))
        }
        Kind::Cycles if !PER_CYCLE.contains(&(true_one / count)) => {
            Err(format!("it counted {found} cycles of a loop of {known} instructions"))
        }
        _ => Ok(()),
    }
}

/// Touches uncached memory and returns the number of lines.
fn walk() -> Option<u64> {
    let mut memory = vec![0_u8; WALK_BYTES];
    let mut lines = 0;
    for line in memory.chunks_mut(LINE_BYTES) {
        line[0] = std::hint::black_box(1);
        lines += 1;
    }
    std::hint::black_box(&memory);
    Some(lines)
}

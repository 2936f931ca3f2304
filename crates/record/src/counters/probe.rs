//! Whether a counter counts: a loop whose instructions are known, a walk through memory.
//!
//! A counter that opens may still read zero (virtual machines do that), or something else. So it
//! is believed only after it was held against work that is known.

use super::{At, Event, Kind, Source, perf};

/// Turns of the known loop: some milliseconds at most.
const TURNS: u64 = 4_000_000;

/// A count of the known loop's instructions may be wrong by this share: user mode of this thread
/// does nothing else but the two system calls that read the counter.
const ERROR: f64 = 0.01;

/// The processor does between these many instructions in a cycle.
const PER_CYCLE: std::ops::Range<f64> = 0.02..16.0;

/// Bytes of the walk, and its steps: a cache line, on memory that was never touched before.
const WALK_BYTES: usize = 32 << 20;
const LINE_BYTES: usize = 64;

/// Runs a loop of so many turns; the number of instructions in it, where the loop of this
/// processor is known. What is called around it is a handful more.
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
    // Elsewhere no turn was made.
    (left == 0).then(|| A_TURN * turns.max(1))
}

/// Whether a kind counts here, and why not.
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

/// Whether a count can be true of work that is known: instructions, or lines of memory.
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

/// Touches memory that no cache has; how many lines.
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

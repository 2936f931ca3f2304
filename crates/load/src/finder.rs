//! A quick look for the rate a server can bear, so that a schedule can be chosen to fit it.
//!
//! What: a short closed loop; its rate, the first part left out, is roughly where the server, or
//! the generator, is used up. Why rough: it is for choosing rates, never for a result. What never
//! happens: a rate from a look in which most requests failed.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::generator::{Error, Phase, Tick, run};
use crate::plan::Plan;
use crate::schedule::Schedule;

/// The first part of the look that is left out: connections, caches and branch predictors warm up.
const WARM_PART: f64 = 0.3;
/// The generator was the limit rather than the server above this part of a CPU.
const GENERATOR_PART_MAX: f64 = 0.95;

/// Where a server's limit lies, roughly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoughLimit {
    /// Completed requests per second in a closed loop.
    pub rate: f64,
    /// How much of one CPU the generator used for them, 0..=1.
    pub generator_part: f64,
    /// The generator had nothing to spare: the server may bear more.
    pub generator_bound: bool,
    /// Requests that failed meanwhile.
    pub errors: u64,
}

/// Looks for `length` at what `plan`'s target bears with `plan`'s connections and objects; the
/// plan's own schedule, duration, cold connections and busy-polling are left aside.
///
/// # Errors
/// As [`run`].
pub fn rough_limit(plan: &Plan, length: Duration, stop: &AtomicBool) -> Result<RoughLimit, Error> {
    let look = Plan {
        schedule: Schedule::ClosedLoop,
        duration: length,
        cold: 0,
        busy_poll: false,
        ..plan.clone()
    };
    let warm = length.mul_f64(WARM_PART);
    let (mut first, mut last) = (None, None);
    let outcome = run(&look, stop, &mut |tick: &Tick<'_>| {
        if tick.phase == Phase::Running {
            let at = (tick.elapsed, tick.counts.completed);
            last = Some(at);
            if first.is_none() && tick.elapsed >= warm {
                first = Some(at);
            }
        }
    })?;
    let rate = match (first, last) {
        (Some((from, before)), Some((to, after))) if to > from => {
            (after - before) as f64 / (to - from).as_secs_f64()
        }
        // Stopped before it was warm.
        _ => outcome.rate(),
    };
    let generator_part = outcome.cpu_ns as f64 / outcome.length_ns.max(1) as f64;
    Ok(RoughLimit {
        rate,
        generator_part,
        generator_bound: generator_part > GENERATOR_PART_MAX,
        errors: outcome.counts.errors.total(),
    })
}

//! Holds: a core stops for some milliseconds now and then, and catches up.
//!
//! Requests queue in the sockets while the core is held. It then works them off as if it were
//! saturated. So what a request costs at saturation is known at any load, also at a constant one,
//! and without any privilege. The setting is `limits.hold`; by default, no core is ever held.
//!
//! What never happens: a busy core is held; a hold is longer than the setting says.

use std::rc::Rc;
use std::time::Duration;

use exchange::Worker;
use metrics::Counters;
use runtime::time;

/// Mean time from one hold to the next.
const EVERY: Duration = Duration::from_secs(4);
/// A pause is shorter or longer than the mean by up to this part of it.
const JITTER: f64 = 0.25;
/// A core that is busy for a larger part of the time is not held, millionths.
const BUSY_MAX_PPM: u64 = 700_000;
/// A core that has not caught up after so many turns is not watched any longer.
const TURNS_MAX: usize = 1_000;

/// What a core has done so far.
#[derive(Clone, Copy)]
struct Done {
    cpu: Duration,
    requests: u64,
    events: u64,
}

impl Done {
    fn now(counters: &Counters) -> Done {
        Done {
            cpu: time::thread_cpu(),
            requests: counters.requests.get(),
            events: runtime::counters().events,
        }
    }
}

/// Holds the core as long as it runs.
pub(crate) async fn hold_now_and_then(worker: Rc<Worker>) {
    let counters = &worker.io.counters;
    loop {
        // The last digits of the clock are random enough to be in step with nothing.
        let random = (time::now().as_ns() / 1_000 % 1_000) as f64 / 500.0 - 1.0;
        time::sleep(EVERY.mul_f64(1.0 + JITTER * random)).await;
        let length = worker.io.limits().limits.hold;
        if length.is_zero() || counters.core.busy_ppm.get() > BUSY_MAX_PPM {
            continue;
        }
        stop(length);
        catch_up(counters).await;
    }
}

/// The processor stays warm, as it is at saturation.
fn stop(length: Duration) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// Counts what it costs to catch up, until a turn of the core brings no events.
async fn catch_up(counters: &Counters) {
    // What waits is fetched at the end of this turn.
    runtime::yield_now().await;
    let first = Done::now(counters);
    let mut last = first;
    for _ in 0..TURNS_MAX {
        runtime::yield_now().await;
        let now = Done::now(counters);
        if now.events == last.events {
            break;
        }
        last = now;
    }
    let cpu = last.cpu.saturating_sub(first.cpu);
    counters.core.caught_up_ns.add(cpu.as_nanos() as u64);
    counters.core.caught_up_requests.add(last.requests - first.requests);
}

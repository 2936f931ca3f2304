//! Holds: a core stops for some milliseconds now and then, and catches up.
//!
//! Requests queue in the sockets while the core is held. It then works them off as if it were
//! saturated. So what a request costs at saturation is known at any load, also at a constant one,
//! and without any privilege. The setting is `limits.hold`; by default, no core is ever held.
//!
//! What never happens: a busy core is held; a hold is longer than the setting says.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
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
/// Least part of the answers that are hits. A miss costs the core time before and after its
/// upstream answers, of which only one may be in the time of catching up.
const HITS_MIN: f64 = 0.9;

/// What a core has done so far.
#[derive(Clone, Copy)]
struct Done {
    cpu: Duration,
    requests: u64,
    hits: u64,
    polled: u64,
}

impl Done {
    fn now(counters: &Counters) -> Done {
        Done {
            cpu: time::thread_cpu(),
            requests: counters.requests.get(),
            hits: counters.hits.get(),
            polled: runtime::counters().tasks_polled,
        }
    }
}

/// Holds the core as long as it serves.
pub(crate) async fn hold_now_and_then(worker: Rc<Worker>) {
    let counters = &worker.io.counters;
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    loop {
        // The clock alone would be in step with what happens at even times.
        let random = hasher.hash_one(time::now().as_ns()) as f64 / u64::MAX as f64;
        time::sleep(EVERY.mul_f64(1.0 + JITTER * (2.0 * random - 1.0))).await;
        let length = worker.io.limits().limits.hold;
        if length.is_zero() || counters.core.busy_ppm.get() > BUSY_MAX_PPM {
            continue;
        }
        counters.core.held_ns.add(stop(length).as_nanos() as u64);
        catch_up(counters).await;
    }
}

/// Returns the processor time that it took. The processor stays warm, as it is at saturation.
fn stop(length: Duration) -> Duration {
    let (begun, before) = (std::time::Instant::now(), time::thread_cpu());
    while begun.elapsed() < length {
        std::hint::spin_loop();
    }
    time::thread_cpu().saturating_sub(before)
}

/// Counts what it costs to catch up, until a turn of the core runs no other task.
async fn catch_up(counters: &Counters) {
    // What waits is fetched at the end of this turn, and worked off in the next one after this
    // task.
    runtime::yield_now().await;
    let first = Done::now(counters);
    let mut last = first;
    for _ in 0..TURNS_MAX {
        runtime::yield_now().await;
        let now = Done::now(counters);
        if now.polled - last.polled <= 1 {
            break;
        }
        last = now;
    }
    let (requests, hits) = (last.requests - first.requests, last.hits - first.hits);
    if hits as f64 >= HITS_MIN * requests as f64 {
        let cpu = last.cpu.saturating_sub(first.cpu);
        counters.core.caught_up_ns.add(cpu.as_nanos() as u64);
        counters.core.caught_up_requests.add(requests);
    }
}

//! A neighbour on the server's CPU: it takes a fifth of the CPU, in bursts at random instants.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::Error;
use load::sys::{pin_to_cpu, thread_cpu_ns};
use regress::Rng;

/// CPU time of a burst.
const BURST: Duration = Duration::from_millis(2);
/// Mean pause after a burst: it takes a fifth of the CPU, or less if the server competes for it.
const PAUSE: Duration = Duration::from_millis(8);
/// Memory that a burst touches, so that the server finds cold caches afterwards: that of an L2
/// cache.
const BYTES: usize = 1 << 20;
/// A burst looks at the clock after so many touches.
const TOUCHES: usize = 1024;
/// The least common size of a line of a cache.
const LINE: usize = 64;

/// A running neighbour. Dropping it ends it.
pub(super) struct Neighbour {
    stop: Arc<AtomicBool>,
    began: Instant,
    /// Its result is its CPU time. `None` once it has ended.
    thread: Option<JoinHandle<io::Result<Duration>>>,
}

impl Neighbour {
    /// Starts it on a CPU, or where the kernel puts it.
    pub(super) fn start(cpu: Option<usize>, seed: u64) -> Neighbour {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            cpu.map_or(Ok(()), pin_to_cpu)?;
            Ok(bursts(seed, &until))
        });
        Neighbour { stop, began: Instant::now(), thread: Some(thread) }
    }

    /// Ends it. The result is its CPU time per second.
    ///
    /// # Errors
    /// It could not be bound to the CPU.
    pub(super) fn end(mut self) -> Result<f64, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        let used = thread.join().expect("a neighbour does not panic");
        let used = used.map_err(|error| Error::System("the neighbour's CPU", error))?;
        Ok(used.as_secs_f64() / self.began.elapsed().as_secs_f64())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Bursts and pauses until it is stopped. The result is the CPU time.
fn bursts(seed: u64, stop: &AtomicBool) -> Duration {
    let (mut rng, mut at) = (Rng::new(seed), 0);
    let memory = vec![1u8; BYTES];
    while !stop.load(Ordering::Relaxed) {
        let begun_ns = thread_cpu_ns();
        while Duration::from_nanos(thread_cpu_ns() - begun_ns) < BURST {
            for _ in 0..TOUCHES {
                at = (at + LINE) % BYTES;
                std::hint::black_box(memory[at]);
            }
        }
        // Pauses of a Poisson process.
        thread::sleep(PAUSE.mul_f64(-(1.0 - rng.uniform()).ln()));
    }
    Duration::from_nanos(thread_cpu_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_takes_a_part_of_a_cpu_until_it_ends() {
        let neighbour = Neighbour::start(None, 1);
        thread::sleep(Duration::from_millis(50));
        let cpus = neighbour.end().unwrap();
        assert!(cpus > 0.0 && cpus < 1.0, "{cpus}");
    }
}

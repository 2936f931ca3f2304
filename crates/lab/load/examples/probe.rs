//! Measures the generator's own cost: loads a null server in a separate thread on CPU 0, from CPU
//! 1.
//!
//! `cargo run --release -p load --example probe -- [RATE|closed] [URL]`. With a URL, it loads that
//! server instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use load::{NullServer, Plan, run, sys};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rate = arguments.next().unwrap_or_else(|| "closed".to_owned());
    let server = NullServer::bind("127.0.0.1:0".parse()?, 1024)?;
    let url = arguments.next().unwrap_or_else(|| format!("http://{}/", server.local_addr()));
    let mut plan = Plan::new(url.parse()?, rate.parse()?, Duration::from_secs(4));
    plan.pin_cpu = Some(1);
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            sys::pin_to_cpu(0)?;
            server.run(&stop)
        });
        let outcome = run(&plan, &stop, &mut |_| ());
        stop.store(true, Ordering::Relaxed);
        outcome
    })?;
    println!(
        "{:.0} requests/s, {:.2} us of CPU each; latency us p50 {} p99 {} max {}; late {} of {} s",
        outcome.rate(),
        outcome.cpu_per_request_us,
        outcome.latency.p50_ns / 1000,
        outcome.latency.p99_ns / 1000,
        outcome.latency.max_ns / 1000,
        outcome.rows_behind,
        outcome.rows.len(),
    );
    Ok(())
}

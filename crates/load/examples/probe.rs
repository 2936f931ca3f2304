//! Loads a null server of its own, or a URL given, for a few seconds and prints what it cost.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() {
    let stop = AtomicBool::new(false);
    let args: Vec<String> = std::env::args().collect();
    let rate = args.get(1).map_or("closed", String::as_str);
    std::thread::scope(|scope| {
        let server = load::NullServer::bind("127.0.0.1:0".parse().unwrap(), 1024).unwrap();
        let url = format!("http://{}/", server.local_addr());
        let flag = &stop;
        scope.spawn(move || { load::sys::pin_to_cpu(0).unwrap(); server.run(flag).unwrap() });
        let target = args.get(2).map_or(url.as_str(), String::as_str).parse().unwrap();
        let mut plan = load::Plan::new(target, rate.parse().unwrap(), Duration::from_secs(4));
        plan.pin_cpu = Some(1);
        plan.busy_poll = args.get(3).is_some();
        let outcome = load::run(&plan, &AtomicBool::new(false), &mut |_| ()).unwrap();
        println!("rate {:.0} cpu/request {:.2} us p50 {} p99 {} max {} behind {}/{} lag {:?} {:?}",
            outcome.rate(), outcome.cpu_per_request_us, outcome.latency.p50_ns, outcome.latency.p99_ns,
            outcome.latency.max_ns, outcome.rows_behind, outcome.rows.len(), outcome.rows.iter().map(|r|r.lag_max_ns).max(), outcome.counts);
        stop.store(true, Ordering::Relaxed);
    });
}

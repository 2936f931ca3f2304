//! wrk, a load generator that is not ours: a closed loop that saturates a server.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::peer::{find, spawn};

/// How often a run is checked for its end and for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What wrk reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Responses.
    pub requests: f64,
    /// Responses a second, by its own clock.
    pub rate: f64,
}

/// Runs wrk with one thread on a CPU, if one is given. `fields` are added to each request.
///
/// # Errors
/// It is not installed or fails, its output is not understood, a response had a status of 400 or
/// above, or `stop` was set; one line.
pub fn run(
    url: &str,
    connections: u32,
    seconds: u64,
    cpu: Option<usize>,
    fields: &[&str],
    stop: &AtomicBool,
) -> Result<Report, String> {
    let program = find("wrk").ok_or("wrk is not installed: apt-get install wrk")?;
    let mut command = Command::new(program);
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), url]);
    command.args(fields.iter().flat_map(|field| ["-H", field]));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = spawn(command, cpu).map_err(|error| format!("wrk: {error}"))?;
    // Its output is a few lines, which a pipe holds.
    while child.try_wait().map_err(|error| format!("wrk: {error}"))?.is_none() {
        if stop.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            return Err("interrupted".to_owned());
        }
        thread::sleep(POLL_INTERVAL);
    }
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text).map_err(|error| format!("wrk: {error}"))?;
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Report, String> {
    let mut lines = text.lines().map(str::trim);
    if let Some(line) = lines.clone().find(|line| line.starts_with("Non-2xx")) {
        return Err(format!("wrk: {line}"));
    }
    let rate = lines.clone().find_map(|line| line.strip_prefix("Requests/sec:"));
    let requests = lines.find_map(|line| Some(line.split_once(" requests in ")?.0));
    let number = |text: Option<&str>| text?.trim().parse().ok().filter(|value: &f64| *value > 0.0);
    let report = number(requests).zip(number(rate));
    let (requests, rate) = report.ok_or("wrk reported no number of requests")?;
    Ok(Report { requests, rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 1s test @ http://127.0.0.1:8080/\n  1 threads and 16 connections\n  \
        Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   210.18us  118.03us   \
        3.28ms   92.62%\n  76530 requests in 1.10s, 86.20MB read\nRequests/sec:  69575.01\n\
        Transfer/sec:     78.37MB\n";

    #[test]
    fn the_output_is_read() {
        assert_eq!(parse(OUTPUT), Ok(Report { requests: 76530.0, rate: 69575.01 }));
        let refused = format!("{OUTPUT}  Non-2xx or 3xx responses: 12\n");
        assert_eq!(parse(&refused).unwrap_err(), "wrk: Non-2xx or 3xx responses: 12");
        assert!(parse(&OUTPUT.replace("76530", "0")).is_err());
        assert!(parse("unable to connect").is_err());
    }
}

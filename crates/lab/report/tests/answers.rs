//! Generated trials of servers whose threads wait: what limits them, and what the report says.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

use report::{Analysis, Options, ResourceKind, analyse, html, terminal};
use trial::answers::{AnswerRow, UpstreamRow};
use trial::{Interval, Manifest, Modes, ProcessTimes, ThreadTimes, Trial, Writer};

const SECOND_NS: i64 = 1_000_000_000;
const PEER: &str = "127.0.0.1:5432";

/// A server with threads, each of which answers one request at a time.
#[derive(Clone, Copy)]
struct Server {
    threads: f64,
    /// CPU seconds of a request.
    cpu_s: f64,
    /// Seconds that a request occupies a thread, and that it waits for another server.
    occupied_s: f64,
    waited_s: f64,
    /// The part of the requests that wait for a thread at the highest rate.
    late: f64,
    /// The part of the receives that find another request.
    overlapped: f64,
    /// How many times as long a request waits at the highest rate.
    slows: f64,
    /// The part of the waits that is inside of requests.
    inside: f64,
    /// How many times as much of the threads' time is occupied.
    more: f64,
}

/// It answers 80 requests/s, and its CPU could answer 1,000.
const WAITS: Server = Server {
    threads: 4.0,
    cpu_s: 0.001,
    occupied_s: 0.05,
    waited_s: 0.045,
    late: 0.3,
    overlapped: 0.0,
    slows: 1.0,
    inside: 1.0,
    more: 1.0,
};

impl Server {
    /// A trial in which the rate goes up to this part of what the threads can answer.
    fn analysed(&self, reach: f64) -> Analysis {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("made.trial");
        let mut manifest = Manifest { interval_ns: SECOND_NS, ..Manifest::default() };
        manifest.host.cpus = 2;
        manifest.server.name = "app".to_owned();
        let mut writer = Writer::create(&path, &manifest).unwrap();
        for index in 0..40u64 {
            let part = reach * (0.1 + 0.9 * (index % 20) as f64 / 19.0);
            // Two percent of noise.
            let noise = 1.0 + 0.02 * ((index * 7 % 5) as f64 - 2.0) / 2.0;
            let rate = part.min(1.0) * self.threads / self.occupied_s;
            writer.append(&self.interval(index, rate, noise)).unwrap();
            let of_second = |seconds: f64| (seconds * SECOND_NS as f64) as i64;
            let late = if part > 0.8 * reach { self.late } else { 0.0 };
            let late = if part >= 1.0 { 1.0 } else { late };
            let slows = 1.0 + (self.slows - 1.0) * part / reach;
            let answers = AnswerRow {
                interval: index,
                sampled_ns: SECOND_NS,
                served: rate as u64,
                overlapped: (self.overlapped * rate) as u64,
                occupied_ns: of_second(
                    (rate * self.occupied_s * noise).min(self.threads) * self.more,
                ),
                at_once: self.threads as u64,
                begun: rate as u64,
                late: (late * rate).ceil() as u64,
                late_ns: 0,
            };
            let upstream = UpstreamRow {
                interval: index,
                peer: PEER.to_owned(),
                waits: rate as u64,
                waited_ns: of_second(rate * self.waited_s * slows),
                inside_ns: of_second(rate * self.waited_s * slows * self.inside),
            };
            writer.answers(answers, &[upstream]);
        }
        writer.finish().unwrap();
        analyse(&Trial::open(&path).unwrap(), &Options::default()).unwrap()
    }

    fn interval(&self, index: u64, rate: f64, noise: f64) -> Interval {
        let total_ns = (rate * self.cpu_s * noise * SECOND_NS as f64) as i64;
        let machine =
            Modes { user_ns: total_ns, idle_ns: 2 * SECOND_NS - total_ns, ..Modes::default() };
        let server = ProcessTimes {
            user_ns: total_ns,
            total_ns,
            processes: 1,
            threads: self.threads as u32,
            ..ProcessTimes::default()
        };
        let thread = ThreadTimes {
            pid: 7,
            tid: 7,
            name: "app".to_owned(),
            total_ns,
            user_ns: total_ns,
            kernel_ns: 0,
            wakes: 2 * rate as u64,
        };
        Interval {
            index,
            start_ns: 1_769_860_800 * SECOND_NS + index.cast_signed() * SECOND_NS,
            length_ns: SECOND_NS,
            machine,
            server: Some(server),
            threads: vec![thread],
            requests: rate,
            requests_ended: rate as u64,
            rate_valid: true,
            ..Interval::default()
        }
    }
}

fn holds(analysis: &Analysis, truth: f64) {
    let (low, high) = (analysis.capacity.low.unwrap(), analysis.capacity.high.unwrap());
    assert!(low < truth && truth < high, "{}", terminal(analysis, 100));
    assert_eq!(analysis.capacity.resource, ResourceKind::Answering);
}

/// Why the threads do not limit, if they are a resource.
fn remark(analysis: &Analysis) -> Option<String> {
    let threads = analysis.resources.iter().find(|one| one.kind == ResourceKind::Answering)?;
    threads.remark.clone()
}

#[test]
fn threads_that_wait_limit_the_server_and_not_its_idle_cpu() {
    let analysis = WAITS.analysed(0.6);
    holds(&analysis, 80.0);
    let text = terminal(&analysis, 100);
    for wanted in [
        "until all of its threads are occupied",
        "The CPU is not the limit: a request occupies one of its 4",
        "a request waits 45.0 ms for 127.0.0.1:5432 (1.0 times)",
    ] {
        assert!(text.replace("\n", " ").contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("too little for a capacity"), "{text}");
    let page = html(&analysis);
    assert!(page.contains("the line of threads that answer is in Details"));
    assert!(!page.contains("full where the idle time ends"));
}

#[test]
fn a_capacity_of_threads_is_measured_where_all_were_occupied() {
    let analysis = WAITS.analysed(1.5);
    holds(&analysis, 80.0);
    assert_eq!(analysis.saturation_measured.map(f64::round), Some(80.0));
}

#[test]
fn without_a_request_that_waited_there_may_be_more_threads() {
    let analysis = Server { late: 0.0, ..WAITS }.analysed(0.6);
    assert_ne!(analysis.capacity.resource, ResourceKind::Answering);
    assert!(remark(&analysis).unwrap().contains("may be more than the 4 seen"));
}

#[test]
fn a_wait_outside_of_requests_is_not_what_occupies_threads() {
    let polls = Server { occupied_s: 0.009, cpu_s: 0.005, inside: 0.0, ..WAITS }.analysed(0.6);
    assert_ne!(polls.capacity.resource, ResourceKind::Answering);
    assert_eq!(remark(&polls).as_deref(), Some("the CPU keeps them occupied"));
    assert!(polls.answers.unwrap().upstreams.iter().all(|one| one.us_per_request == 0.0));
}

#[test]
fn threads_that_are_not_free_when_they_seem_so_are_no_limit() {
    let slow_clients = Server { more: 0.2, ..WAITS }.analysed(1.5);
    assert_ne!(slow_clients.capacity.resource, ResourceKind::Answering);
    assert_eq!(remark(&slow_clients).as_deref(), Some("slow or idle clients take them, too"));
    let in_parts = Server { more: 2.0, ..WAITS }.analysed(1.5);
    assert_eq!(remark(&in_parts).as_deref(), Some("a thread sends its answers in several parts"));
}

#[test]
fn threads_that_compute_or_take_several_requests_are_no_limit() {
    let computes = Server { cpu_s: 0.04, waited_s: 0.0, ..WAITS }.analysed(0.1);
    assert_ne!(computes.capacity.resource, ResourceKind::Answering);
    assert_eq!(remark(&computes).as_deref(), Some("the CPU keeps them occupied"));
    let event_loop = Server { overlapped: 0.5, ..WAITS }.analysed(0.6);
    assert_eq!(remark(&event_loop), None);
    assert_eq!(event_loop.answers.unwrap().threads, None);
}

#[test]
fn a_server_behind_that_gets_slower_is_named() {
    let kinds = |analysis: &Analysis| {
        let slower = analysis.causes.iter().filter(|cause| cause.kind == "upstream_slower");
        slower.map(|cause| cause.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&WAITS.analysed(0.6)), [""; 0]);
    let slower = kinds(&Server { slows: 4.0, ..WAITS }.analysed(0.6));
    assert!(slower[0].contains(PEER), "{slower:?}");
}

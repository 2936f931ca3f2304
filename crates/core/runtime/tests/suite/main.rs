//! The runtime's contract, tested on every backend and on the twin by the same code.
//!
//! Each scenario is an `async fn(Ground)`. The macro below makes one test for each real backend,
//! and one that runs the scenario on the twin with several seeds, each a different network: splits
//! at every byte, short writes, small buffers, delays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod files;
mod hot_path;
mod streams;
mod tasks;
mod threads;
mod timers;
mod udp;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use readiness::{Choice, Kind};
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::{Options, Runtime, sim, time};

/// A scenario that takes longer than this hangs. On the twin this is virtual time.
const REAL_LIMIT: Duration = Duration::from_secs(30);
const VIRTUAL_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Miri needs minutes for a seed.
const SEEDS: std::ops::Range<u64> = if cfg!(miri) { 0..1 } else { 0..12 };

/// What a scenario runs on.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) kind: Kind,
    pub(crate) dir: PathBuf,
}

impl Ground {
    pub(crate) fn is_twin(&self) -> bool {
        self.kind == Kind::Simulated
    }

    /// `len` for a real network, a tenth of it where each byte may be sent separately.
    pub(crate) fn scaled(&self, len: usize) -> usize {
        if self.is_twin() { len / 10 } else { len }
    }
}

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(any_port(), &ListenOptions::default()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Both ends of a connection.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listen();
    let (client, accepted) = runtime::join(TcpStream::connect(address), listener.accept()).await;
    (client.unwrap(), accepted.unwrap().0)
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) async fn read_to_end(stream: &TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(all),
            read => all.extend_from_slice(&buf[..read]),
        }
    }
}

fn real<S, F>(kind: Kind, limit: bool, scenario: S)
where
    S: FnOnce(Ground) -> F,
    F: Future<Output = ()>,
{
    let mut runtime = match Runtime::new(Options::default().with_backend(Choice::Named(kind))) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("skipped: {kind} is not supported here: {error}");
            return;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground { kind, dir: dir.path().to_path_buf() };
    runtime.block_on(async {
        assert_eq!(runtime::backend(), kind);
        if limit {
            time::timeout(REAL_LIMIT, scenario(ground)).await.expect("the scenario hangs");
        } else {
            scenario(ground).await;
        }
    });
}

fn twin<S, F>(limit: bool, network: fn(u64) -> sim::Options, scenario: S)
where
    S: Fn(Ground) -> F,
    F: Future<Output = ()>,
{
    sim::check(SEEDS, |seed| {
        let mut runtime = Runtime::simulated(network(seed));
        let ground = Ground { kind: Kind::Simulated, dir: PathBuf::from("/simulated") };
        runtime.block_on(async {
            if limit {
                time::timeout(VIRTUAL_LIMIT, scenario(ground)).await.expect("the scenario hangs");
            } else {
                scenario(ground).await;
            }
        });
    });
}

macro_rules! on {
    ($ground:ident, $run:expr, $limit:expr, $($module:ident :: $scenario:ident),+) => {
        mod $ground {
            use super::*;
            $(#[test]
            fn $scenario() {
                #[allow(clippy::redundant_closure_call)]
                ($run)($limit, $module::$scenario);
            })+
        }
    };
}

macro_rules! on_every_ground {
    ($limit:expr, $network:expr, $($scenarios:tt)+) => {
        on!(epoll, |limit, s| real(Kind::Epoll, limit, s), $limit, $($scenarios)+);
        on!(poll, |limit, s| real(Kind::Poll, limit, s), $limit, $($scenarios)+);
        on!(select, |limit, s| real(Kind::Select, limit, s), $limit, $($scenarios)+);
        on!(scalable_select, |limit, s| real(Kind::ScalableSelect, limit, s), $limit,
            $($scenarios)+);
        on!(io_uring, |limit, s| real(Kind::IoUring, limit, s), $limit, $($scenarios)+);
        on!(on_the_twin, |limit, s| twin(limit, $network, s), $limit, $($scenarios)+);
    };
}

on_every_ground!(
    true,
    sim::Options::rough,
    tasks::a_task_gives_its_output,
    tasks::a_dropped_handle_detaches,
    tasks::a_detached_task_runs_and_is_dropped,
    tasks::abort_drops_the_future_at_once,
    tasks::a_task_can_abort_itself,
    tasks::a_stale_waker_wakes_no_other_task,
    tasks::yielding_lets_the_others_run,
    tasks::a_busy_task_does_not_starve_the_others,
    tasks::ten_thousand_tasks,
    tasks::race_and_join,
    tasks::notify_one_and_all,
    tasks::a_dropped_waiter_passes_its_turn_on,
    tasks::an_inbox_on_one_core,
    tasks::stop_reaches_everybody,
    timers::timers_fire_in_order_and_never_early,
    timers::a_dropped_sleep_is_gone,
    timers::a_deadline_can_be_moved_both_ways,
    timers::a_timeout_cuts_and_lets_pass,
    timers::the_clock_does_not_move_within_a_turn,
    timers::ten_thousand_timers,
    streams::echo,
    streams::many_connections,
    streams::half_close,
    streams::a_reset_reaches_the_reader,
    streams::a_reset_reaches_the_writer,
    streams::a_reset_reported_to_the_writer_is_no_end_for_the_reader,
    streams::back_pressure,
    streams::a_connect_is_refused,
    streams::a_storm_of_connects,
    streams::data_and_end_in_one_segment,
    streams::small_reads_of_one_event,
    streams::an_event_without_a_waiting_task_is_kept,
    streams::a_watched_stream_shows_what_arrives_without_a_task,
    streams::a_hangup_without_a_waiting_task_does_not_spin,
    streams::a_writer_that_was_masked_is_armed_again,
    streams::a_cancelled_wait_loses_nothing,
    streams::reader_and_writer_of_one_stream_are_two_tasks,
    streams::vectored_writes,
    streams::peek_leaves_the_bytes,
    streams::received_bytes_are_passed_on_without_copies,
    streams::addresses,
    streams::a_dropped_listener_refuses,
    streams::a_graceful_stop,
    files::read_all,
    files::edges,
    files::large_reads_let_the_others_run,
    files::not_in_the_page_cache,
    files::many_at_once,
    files::reads_return_what_was_written,
    files::writes_that_bypass_the_page_cache,
    files::opening_a_file_is_seen,
    files::pages_are_shared_while_they_stay_cached,
    files::parts_of_a_file_are_sent_without_a_copy,
    files::names_change,
    files::one_holder_of_a_lock,
    files::many_writers
);

/// Scenarios that need a network without faults.
mod smooth {
    use super::*;
    on_every_ground!(
        true,
        sim::Options::new,
        hot_path::a_request_costs_one_recv_and_one_send,
        hot_path::an_idle_timer_costs_nothing_per_request,
        hot_path::a_burst_of_accepts_costs_one_wait,
        udp::two_sockets_talk,
        udp::connected_sockets_talk,
        udp::no_receiver
    );
}

/// Scenarios with another thread. Real time passes on the twin too, so there is no limit in virtual
/// time.
mod across {
    use super::*;
    on_every_ground!(
        false,
        sim::Options::new,
        threads::a_waker_works_from_another_thread,
        threads::an_inbox_takes_from_many_threads,
        threads::a_stop_from_another_thread,
        threads::blocking_work_is_done_elsewhere
    );
}

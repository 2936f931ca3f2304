//! What only the twin can do: repeat a run from its seed, inject faults, and let time pass when
//! every task waits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use runtime::fs::File;
use runtime::net::{DatagramSocket, ListenOptions, Outgoing, TcpListener, TcpStream, UdpSocket};
use runtime::time::{now, sleep, timeout};
use runtime::{Runtime, join, sim, spawn};

const ADDRESS: &str = "10.0.0.1:80";

fn address() -> SocketAddr {
    ADDRESS.parse().unwrap()
}

/// An echo server and `clients` that send `bytes` each; returns how many were served completely.
async fn exchange(clients: usize, bytes: usize) -> usize {
    let listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
    let server = spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            spawn(async move {
                let mut buf = [0; 512];
                while let Ok(read) = stream.read(&mut buf).await {
                    if read == 0 || stream.write_all(&buf[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let tasks: Vec<_> = (0..clients)
        .map(|i| {
            spawn(async move {
                let sent: Vec<u8> = (0..bytes).map(|at| (at * 31 + i) as u8).collect();
                let client = TcpStream::connect(address()).await?;
                let mut got = vec![0; bytes];
                let (wrote, read) =
                    join(client.write_all(&sent), client.read_exact(&mut got)).await;
                wrote.and(read)?;
                assert!(got == sent, "what was answered is what was sent");
                std::io::Result::Ok(())
            })
        })
        .collect();
    let mut whole = 0;
    for task in tasks {
        whole += usize::from(task.await.is_ok());
    }
    server.abort();
    whole
}

fn run(options: sim::Options) -> (usize, u64, Duration) {
    let mut runtime = Runtime::simulated(options);
    runtime.block_on(async {
        let start = now();
        let whole = exchange(10, 1000).await;
        (whole, sim::trace_hash(), now() - start)
    })
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..6 {
        let first = run(sim::Options::stormy(seed));
        assert_eq!(run(sim::Options::stormy(seed)), first, "seed {seed}");
        assert_ne!(run(sim::Options::stormy(seed + 100)).1, first.1);
    }
}

#[test]
fn without_faults_every_client_is_served_however_data_is_split() {
    for split in [0.0, 0.01, 0.5, 1.0] {
        let options = sim::Options::new(1).with_split(split).with_buffer_bytes(700);
        assert_eq!(run(options).0, 10);
    }
}

#[test]
fn in_a_storm_some_clients_fail_and_none_gets_wrong_bytes() {
    let (mut whole, mut all) = (0, 0);
    sim::check(0..40, |seed| {
        whole += run(sim::Options::stormy(seed)).0;
        all += 10;
    });
    assert!(whole > all / 4 && whole < all, "{whole} of {all}");
}

/// Some reader sees every split of a write.
#[test]
fn writes_are_split_at_every_byte() {
    let mut seen = [false; 20];
    for seed in 0..200 {
        let mut runtime = Runtime::simulated(sim::Options::new(seed).with_split(0.1));
        let first = runtime.block_on(async {
            let listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
            let (client, accepted) = join(TcpStream::connect(address()), listener.accept()).await;
            client.unwrap().write_all(&[1; 20]).await.unwrap();
            accepted.unwrap().0.read(&mut [0; 64]).await.unwrap()
        });
        seen[first - 1] = true;
    }
    assert_eq!(seen, [true; 20]);
}

#[test]
fn an_hour_passes_when_every_task_waits() {
    let mut runtime = Runtime::simulated(sim::Options::new(7));
    let hour = Duration::from_secs(3600);
    let passed = runtime.block_on(async {
        let start = now();
        assert!(timeout(hour, std::future::pending::<()>()).await.is_err());
        now() - start
    });
    assert!(passed >= hour && passed < hour + Duration::from_millis(2));
}

/// A task that polls the clock must see it move.
#[test]
fn a_busy_wait_ends() {
    let mut runtime = Runtime::simulated(sim::Options::new(7));
    runtime.block_on(async {
        let end = now() + Duration::from_millis(3);
        while now() < end {
            runtime::yield_now().await;
        }
    });
}

#[test]
fn a_refused_descriptor_is_an_error_that_can_be_retried() {
    let mut runtime = Runtime::simulated(sim::Options::new(3).with_descriptors_max(3));
    runtime.block_on(async {
        let listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
        let one = TcpStream::connect(address()).await.unwrap();
        let two = TcpStream::connect(address()).await.unwrap();
        for _ in 0..3 {
            let full = listener.accept().await.unwrap_err();
            assert_eq!(full.raw_os_error(), Some(24), "EMFILE");
            sleep(Duration::from_millis(10)).await;
        }
        assert!(TcpStream::connect(address()).await.is_err());
        drop(two);
        let (accepted, _) = listener.accept().await.unwrap();
        one.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read(&mut [0; 8]).await.unwrap(), 1);
    });
}

#[test]
fn a_crash_resets_every_connection_of_an_address() {
    let mut runtime = Runtime::simulated(sim::Options::new(3));
    runtime.block_on(async {
        let listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
        let client = TcpStream::connect(address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        sim::crash_connections(address());
        let (client, server) = join(async { client.read(&mut [0; 8]).await }, async {
            server.read(&mut [0; 8]).await
        })
        .await;
        assert_eq!(client.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(server.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn disks_are_slow_and_fail() {
    let mut options = sim::Options::new(5);
    options.disk_error = 0.3;
    let mut runtime = Runtime::simulated(options);
    runtime.block_on(async {
        sim::put_file("/data/object", vec![5; 1000]);
        let start = now();
        let file = File::open("/data/object").await.unwrap();
        sim::remove_file("/data/object").unwrap();
        let (mut good, mut bad) = (0, 0);
        for _ in 0..100 {
            match file.read_at(&mut [0; 1000], 0).await {
                Ok(read) => good += usize::from(read == 1000),
                Err(_) => bad += 1,
            }
        }
        assert!(good > 40 && bad > 10 && good + bad == 100, "{good} good, {bad} bad");
        assert!(now() > start);
        assert!(File::open("/data/object").await.is_err());
    });
}

#[test]
fn datagrams_are_lost_and_overtake_each_other() {
    let mut options = sim::Options::new(11);
    options.loss = 0.2;
    options.reorder = 0.5;
    let mut runtime = Runtime::simulated(options);
    let got = runtime.block_on(async {
        let receiver = UdpSocket::bind(address()).unwrap();
        let sender = UdpSocket::bind("10.0.0.2:0".parse().unwrap()).unwrap();
        for i in 0..100 {
            sender.send_to(&[i], address()).await.unwrap();
        }
        let (mut got, mut buf) = (Vec::new(), [0; 1]);
        while timeout(Duration::from_secs(1), receiver.recv_from(&mut buf)).await.is_ok() {
            got.push(buf[0]);
        }
        got
    });
    assert!(got.len() > 60 && got.len() < 95, "{} arrived", got.len());
    assert!(!got.is_sorted());
}

/// What a socket for QUIC receives: each datagram's length, its marks and both addresses.
fn datagrams_of(options: sim::Options) -> (Vec<usize>, u64) {
    let mut runtime = Runtime::simulated(options);
    runtime.block_on(async {
        let receiver = DatagramSocket::bind(address()).unwrap();
        let sender = DatagramSocket::bind("10.0.0.2:0".parse().unwrap()).unwrap();
        for first in 1..=30 {
            let contents = vec![first as u8; first + 200];
            let outgoing = Outgoing {
                contents: &contents,
                segment_bytes: Some(100),
                to: address(),
                from: None,
                ecn: 2,
            };
            sender.try_send(&outgoing).unwrap();
        }
        let (mut lengths, mut buf) = (Vec::new(), [0; 1000]);
        let readable = || poll_fn(|cx| receiver.poll_readable(cx));
        while timeout(Duration::from_secs(1), readable()).await.is_ok() {
            while let Ok(incoming) = receiver.try_recv(&mut buf) {
                assert_eq!(incoming.from, sender.local_addr().unwrap());
                assert_eq!((incoming.to, incoming.ecn), (Some(address().ip()), 2));
                lengths.push(incoming.bytes);
            }
        }
        (lengths, sim::trace_hash())
    })
}

#[test]
fn segments_arrive_as_datagrams_in_order() {
    let (lengths, _) = datagrams_of(sim::Options::new(5));
    let sent: Vec<usize> = (1..=30).flat_map(|last| [100, 100, last]).collect();
    assert_eq!(lengths, sent);
}

#[test]
fn datagrams_are_lost_reordered_and_duplicated_by_the_seed() {
    let bad = |seed| {
        let mut options = sim::Options::new(seed).with_bad_datagrams();
        options.duplicate = 0.1;
        datagrams_of(options)
    };
    assert_eq!(bad(5), bad(5));
    assert_ne!(bad(5), bad(6));
    let (lengths, _) = bad(5);
    let lasts: Vec<usize> = lengths.into_iter().filter(|length| *length < 100).collect();
    let distinct: BTreeSet<usize> = lasts.iter().copied().collect();
    assert!(distinct.len() < 30, "some are lost");
    assert!(distinct.len() < lasts.len(), "some arrive twice");
    assert!(!lasts.is_sorted(), "some are overtaken");
}

/// Broken connections end in both directions, and their descriptors are freed.
#[test]
fn nothing_is_left_behind() {
    sim::check(0..10, |seed| {
        let options = sim::Options::stormy(seed).with_descriptors_max(60);
        let mut runtime = Runtime::simulated(options);
        runtime.block_on(async {
            for _ in 0..20 {
                exchange(10, 100).await;
                sleep(Duration::from_secs(1)).await;
            }
        });
    });
}

#[test]
fn a_panic_propagates_and_the_core_can_be_dropped() {
    let dropped = Rc::new(Cell::new(false));
    struct SetOnDrop(Rc<Cell<bool>>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let guard = SetOnDrop(Rc::clone(&dropped));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut runtime = Runtime::simulated(sim::Options::new(3));
        runtime.block_on(async {
            let _listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
            spawn(async move {
                let _guard = guard;
                let client = TcpStream::connect(address()).await.unwrap();
                client.read(&mut [0; 8]).await.unwrap();
            });
            sleep(Duration::from_secs(1)).await;
            spawn(async { panic!("a broken invariant") }).await
        })
    }));
    let message = *panicked.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(message, "a broken invariant");
    assert!(dropped.get(), "the other tasks are dropped with their core");
}

#[test]
fn a_deadlock_is_a_panic_that_names_its_seed() {
    let panicked = catch_unwind(|| {
        let mut options = sim::Options::new(77);
        options.outside_wait = Duration::from_millis(5);
        Runtime::simulated(options).block_on(std::future::pending::<()>());
    });
    let message = *panicked.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("no event will ever happen (seed 77"), "{message}");
}

/// Set for the child process of the test below to make the scenario fail.
const FAIL: &str = "PLIMSOLL_TWIN_FAILS";

#[test]
fn a_scenario_that_fails_on_request() {
    sim::check(40..44, |seed| {
        let mut runtime = Runtime::simulated(sim::Options::new(seed));
        runtime.block_on(async {
            assert_eq!(exchange(1, 10).await, 1);
            assert!(seed != 42 || std::env::var_os(FAIL).is_none(), "it fails on request");
        });
    });
}

#[test]
fn a_failure_prints_its_seed_and_the_last_events() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "a_scenario_that_fails_on_request"])
        .env(FAIL, "yes")
        .env_remove(sim::SEEDS_VARIABLE)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("it fails on request"), "{said}");
    assert!(said.contains("\nseed 42\n"), "{said}");
    assert!(said.contains("us  #") && said.contains("accept"), "{said}");
}

#[test]
fn a_stall_exceeds_a_time_limit_and_ends() {
    let mut runtime = Runtime::simulated(sim::Options::new(9).with_stall(1.0));
    runtime.block_on(async {
        let listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
        let client = TcpStream::connect(address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        client.write_all(b"late").await.unwrap();
        let start = now();
        assert!(timeout(Duration::from_millis(100), server.readable()).await.is_err());
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 4);
        assert!(now() - start <= sim::STALL_MAX + Duration::from_secs(1));
    });
}

/// A runtime can be dropped with open connections, timers and waiting tasks, and a socket may
/// outlive it.
#[test]
fn a_socket_may_outlive_its_runtime() {
    let mut runtime = Runtime::simulated(sim::Options::new(3));
    let (listener, client) = runtime.block_on(async {
        let listener = TcpListener::bind(address(), &ListenOptions::default()).unwrap();
        let client = TcpStream::connect(address()).await.unwrap();
        spawn(async { sleep(Duration::from_secs(100)).await });
        runtime::yield_now().await;
        (listener, client)
    });
    drop(runtime);
    drop(client);
    drop(listener);
}

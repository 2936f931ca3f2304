//! Several cores of one process: each its own runtime on its own thread.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;

use runtime::net::{ListenOptions, TcpListener, TcpStream, UdpSocket};
use runtime::stop::{StopSource, StopToken};
use runtime::sync::{Sender, inbox};
use runtime::{Either, Options, Runtime, join, race, spawn};

const CLIENTS: usize = 200;

/// A worker like a server's: listens on the shared address, counts what it serves, and stops on the
/// signal.
fn worker(address: SocketAddr, stop: StopToken, ready: Sender<()>) -> usize {
    let mut runtime = Runtime::new(Options::default()).unwrap();
    runtime.block_on(async {
        let options = ListenOptions::default().with_reuse_port(true);
        let listener = TcpListener::bind(address, &options).unwrap();
        ready.send(()).unwrap();
        let mut served = 0;
        loop {
            match race(stop.stopped(), listener.accept()).await {
                Either::Left(()) => return served,
                Either::Right(accepted) => {
                    let (stream, _) = accepted.unwrap();
                    spawn(async move {
                        let mut buf = [0; 16];
                        while let Ok(read @ 1..) = stream.read(&mut buf).await {
                            stream.write_all(&buf[..read]).await.unwrap();
                        }
                    });
                    served += 1;
                }
            }
        }
    })
}

#[test]
fn two_cores_share_an_address() {
    let mut runtime = Runtime::new(Options::default()).unwrap();
    let (workers, source) = runtime.block_on(async {
        let options = ListenOptions::default().with_reuse_port(true);
        let first = TcpListener::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = first.local_addr().unwrap();
        let (sender, mut ready) = inbox(2);
        let source = StopSource::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (token, sender) = (source.token(), sender.clone());
                thread::spawn(move || worker(address, token, sender))
            })
            .collect();
        ready.recv().await.unwrap();
        ready.recv().await.unwrap();
        drop(first);
        for _ in 0..CLIENTS {
            let client = TcpStream::connect(address).await.unwrap();
            let (wrote, read) =
                join(client.write_all(b"hello"), client.read_exact(&mut [0; 5])).await;
            wrote.unwrap();
            read.unwrap();
        }
        (workers, source)
    });
    source.stop();
    let served: Vec<usize> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert_eq!(served.iter().sum::<usize>(), CLIENTS);
    assert!(served.iter().all(|&served| served > 0), "{served:?}");
}

/// A request goes from core to core and its answer comes back, many times: no wake is lost.
#[test]
fn messages_go_back_and_forth() {
    const ROUNDS: u32 = 5_000;
    let (to_there, mut there) = inbox::<u32>(16);
    let (to_here, mut here) = inbox::<u32>(16);
    let thread = thread::spawn(move || {
        Runtime::new(Options::default()).unwrap().block_on(async {
            while let Some(message) = there.recv().await {
                to_here.send(message + 1).unwrap();
            }
        });
    });
    Runtime::new(Options::default()).unwrap().block_on(async {
        for round in 0..ROUNDS {
            to_there.send(round).unwrap();
            assert_eq!(here.recv().await, Some(round + 1));
        }
        drop(to_there);
        assert_eq!(here.recv().await, None);
    });
    thread.join().unwrap();
}

/// Adopted sockets get the same options as our own, and our own have the right ones.
#[test]
fn sockets_are_non_blocking_close_on_exec_and_without_delay() {
    Runtime::new(Options::default()).unwrap().block_on(async {
        let inherited = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = inherited.local_addr().unwrap();
        let listener = TcpListener::from_std(inherited).unwrap();
        let other_end = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let connected = TcpStream::connect(address).await.unwrap();
        let adopted = TcpStream::from_std(other_end).unwrap();
        for stream in [&accepted, &connected, &adopted] {
            // SAFETY: no pointers.
            let flags = unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_GETFL) };
            assert_ne!(flags & libc::O_NONBLOCK, 0);
            // SAFETY: no pointers.
            let flags = unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_GETFD) };
            assert_ne!(flags & libc::FD_CLOEXEC, 0);
        }
        for stream in [&accepted, &connected] {
            // SAFETY: the stream is open as long as it is borrowed here.
            let fd = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
            let copy = std::net::TcpStream::from(fd.try_clone_to_owned().unwrap());
            assert!(copy.nodelay().unwrap());
        }
        adopted.write_all(b"hello").await.unwrap();
        accepted.read_exact(&mut [0; 5]).await.unwrap();
    });
}

/// A runtime inside another one, as in a test or a tool: each keeps its own core.
#[test]
fn runtimes_can_be_nested() {
    let mut outer = Runtime::new(Options::default()).unwrap();
    outer.block_on(async {
        let before = runtime::counters().tasks_spawned;
        let socket = {
            let mut inner = Runtime::new(Options::default()).unwrap();
            inner.block_on(async {
                spawn(async {}).await;
                UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap()
            })
        };
        drop(socket); // of a core that is gone, in the time of another one
        assert_eq!(runtime::counters().tasks_spawned, before);
        assert_eq!(spawn(async { 3 }).await, 3);
    });
}

#[test]
fn a_missing_processor_is_an_error() {
    assert!(Runtime::new(Options::default().with_pin_cpu(Some(100_000))).is_err());
    assert!(Runtime::new(Options::default().with_pin_cpu(Some(1_000))).is_err());
}

//! What a request and a cold connection cost in memory, counted by the allocator. The only test in
//! its file, because the allocator belongs to the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::TcpStream as StdStream;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::time::{now, sleep};
use runtime::{Either, Options, Runtime, race, spawn_detached};

/// Memory for an idle connection: its task, its I/O slot, its timer.
const COLD_BYTES_MAX: i64 = 320;
const COLD: i64 = 2_000;
const REQUESTS: usize = 500;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is passed unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`; the block came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

async fn serve(stream: TcpStream) {
    const IDLE_MAX: Duration = Duration::from_secs(600);
    let mut idle = sleep(IDLE_MAX);
    loop {
        idle.reset(now() + IDLE_MAX);
        match race(stream.readable(), &mut idle).await {
            Either::Left(ready) => ready.unwrap(),
            Either::Right(()) => return,
        }
        let mut buf = [0; 64];
        match stream.try_read(&mut buf) {
            Ok(0) => return,
            Ok(read) => assert_eq!(stream.try_write(&buf[..read]).unwrap(), read),
            Err(_) => {}
        }
    }
}

#[test]
fn a_request_allocates_nothing_and_a_cold_connection_little() {
    let mut runtime = Runtime::new(Options::default()).unwrap();
    runtime.block_on(async {
        let any_port = "127.0.0.1:0".parse().unwrap();
        let listener = TcpListener::bind(any_port, &ListenOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut cold = Vec::with_capacity(COLD as usize);
        let before = BYTES.load(Ordering::Relaxed);
        for _ in 0..COLD {
            cold.push(StdStream::connect(address).unwrap()); // allocates no memory
            let (stream, _) = listener.accept().await.unwrap();
            spawn_detached(serve(stream));
        }
        sleep(Duration::from_millis(1)).await;
        let each = (BYTES.load(Ordering::Relaxed) - before) / COLD;
        eprintln!("a cold connection: {each} bytes");
        assert!(each <= COLD_BYTES_MAX, "{each} bytes for a cold connection");

        let client = TcpStream::connect(address).await.unwrap();
        spawn_detached(serve(listener.accept().await.unwrap().0));
        let mut buf = [0; 64];
        let mut allocations = 0;
        for request in 0..REQUESTS {
            client.write_all(b"request").await.unwrap();
            assert_eq!(client.read(&mut buf).await.unwrap(), 7);
            if request == 10 {
                allocations = ALLOCATIONS.load(Ordering::Relaxed);
            }
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), allocations, "allocations by requests");
    });
}

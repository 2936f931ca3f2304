//! A real process that runs out of descriptors. The only test in its file, because the limit
//! belongs to the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::time::Duration;

use readiness::{Choice, Kind};
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::time::sleep;
use runtime::{Options, Runtime};

const LIMIT: libc::rlim_t = 200;

#[test]
fn accept_survives_emfile() {
    let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
    // SAFETY: reads one rlimit through the pointer.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    for kind in Kind::ALL_REAL {
        let options = Options::default().with_backend(Choice::Named(kind));
        let Ok(mut runtime) = Runtime::new(options) else {
            eprintln!("skipped: {kind} is not supported here");
            continue;
        };
        runtime.block_on(run_out_of_descriptors());
    }
}

async fn run_out_of_descriptors() {
    let any_port = "127.0.0.1:0".parse().unwrap();
    let listener = TcpListener::bind(any_port, &ListenOptions::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    while let Ok(client) = TcpStream::connect(address).await {
        clients.push(client);
    }
    assert!(clients.len() > 100);
    for _ in 0..3 {
        let full = listener.accept().await.unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::EMFILE));
        sleep(Duration::from_millis(1)).await;
    }
    let left = clients.split_off(clients.len() / 2);
    drop(clients); // what waits to be accepted has ended by then: it is accepted all the same
    for _ in 0..left.len() {
        let (server, _) = listener.accept().await.unwrap();
        drop(server);
    }
}

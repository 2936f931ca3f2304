//! What a request may cost, measured by counters and never by time.

use std::time::Duration;

use runtime::net::TcpStream;
use runtime::time::{now, sleep};
use runtime::{Either, join, race, spawn};

use crate::{Ground, listen, pair};

const REQUESTS: u64 = 200;

async fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut buf = [0; 1024];
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(()),
            read => stream.write_all(&buf[..read]).await?,
        }
    }
}

/// Client and server are on one core, so that each request counts twice: two events, two recvs, two
/// sends. Nothing else may count at all.
pub(crate) async fn a_request_costs_one_recv_and_one_send(_: Ground) {
    let (client, server) = pair().await;
    spawn(serve(server));
    let mut buf = [0; 1024];
    let request = async |buf: &mut [u8]| {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(client.read(buf).await.unwrap(), 18);
    };
    request(&mut buf).await;
    request(&mut buf).await;
    let before = runtime::counters();
    for _ in 0..REQUESTS {
        request(&mut buf).await;
    }
    let cost = runtime::counters().since(&before);
    assert_eq!((cost.registers, cost.changes, cost.removes), (0, 0, 0), "interest stays armed");
    assert_eq!(cost.recv_calls, 2 * REQUESTS);
    assert_eq!(cost.send_calls, 2 * REQUESTS);
    assert_eq!((cost.timers_set, cost.accept_calls, cost.tasks_spawned), (0, 0, 0));
    assert_eq!(cost.events, 2 * REQUESTS);
    assert!(cost.waits <= 2 * REQUESTS + 2, "{} waits", cost.waits);
}

/// An idle time-out of 60 s that every request postpones.
pub(crate) async fn an_idle_timer_costs_nothing_per_request(_: Ground) {
    const IDLE_MAX: Duration = Duration::from_secs(60);
    let (client, server) = pair().await;
    spawn(async move {
        let mut idle = sleep(IDLE_MAX);
        let mut buf = [0; 1024];
        loop {
            idle.reset(now() + IDLE_MAX);
            match race(server.readable(), &mut idle).await {
                Either::Left(ready) => ready.unwrap(),
                Either::Right(()) => return,
            }
            match server.try_read(&mut buf) {
                Ok(0) => return,
                Ok(read) => server.write_all(&buf[..read]).await.unwrap(),
                Err(_) => {}
            }
        }
    });
    let mut buf = [0; 1024];
    client.write_all(b"warm").await.unwrap();
    assert_eq!(client.read(&mut buf).await.unwrap(), 4);
    let before = runtime::counters();
    for _ in 0..REQUESTS {
        client.write_all(b"request").await.unwrap();
        assert_eq!(client.read(&mut buf).await.unwrap(), 7);
    }
    let cost = runtime::counters().since(&before);
    assert_eq!((cost.registers, cost.changes, cost.removes), (0, 0, 0));
    assert!(cost.timers_set <= 1, "{} timers", cost.timers_set);
    assert_eq!(cost.recv_calls, 2 * REQUESTS);
}

pub(crate) async fn a_burst_of_accepts_costs_one_wait(_: Ground) {
    let (listener, address) = listen();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let (client, ()) = join(TcpStream::connect(address), async {}).await;
        clients.push(client.unwrap());
    }
    let before = runtime::counters();
    for _ in 0..20 {
        listener.accept().await.unwrap();
    }
    let cost = runtime::counters().since(&before);
    assert_eq!(cost.accept_calls, 20, "none of them in vain");
    assert!(cost.waits <= 2, "{} waits", cost.waits);
}

//! TCP streams and listeners.

use std::cell::Cell;
use std::io::{ErrorKind, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use runtime::fs::SharedPages;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::stop::StopSource;
use runtime::time::{sleep, timeout};
use runtime::{Either, join, race, spawn, yield_now};

use crate::{Ground, any_port, listen, pair, pattern, read_to_end};

const MS: Duration = Duration::from_millis(1);

async fn serve_echo(stream: TcpStream) -> std::io::Result<()> {
    let mut buf = [0; 1000];
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(()),
            read => stream.write_all(&buf[..read]).await?,
        }
    }
}

pub(crate) async fn echo(_: Ground) {
    let (client, server) = pair().await;
    let server = spawn(serve_echo(server));
    let mut buf = vec![0; 5000];
    for len in [1, 2, 999, 1000, 1001, 5000] {
        let sent = pattern(len);
        let (wrote, read) = join(client.write_all(&sent), client.read_exact(&mut buf[..len])).await;
        wrote.unwrap();
        read.unwrap();
        assert_eq!(buf[..len], sent);
    }
    drop(client);
    server.await.unwrap();
}

pub(crate) async fn many_connections(ground: Ground) {
    let (listener, address) = listen();
    let acceptor = spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            spawn(serve_echo(stream));
        }
    });
    let clients: Vec<_> = (0..if ground.is_twin() { 60 } else { 200_u32 })
        .map(|i| {
            spawn(async move {
                let client = TcpStream::connect(address).await.unwrap();
                for round in 0..5 {
                    let sent = pattern(20 + (i as usize * 7 + round) % 60);
                    client.write_all(&sent).await.unwrap();
                    let mut got = vec![0; sent.len()];
                    client.read_exact(&mut got).await.unwrap();
                    assert_eq!(got, sent);
                }
            })
        })
        .collect();
    for client in clients {
        client.await;
    }
    acceptor.abort();
}

pub(crate) async fn half_close(_: Ground) {
    let (client, server) = pair().await;
    let server = spawn(async move {
        let all = read_to_end(&server).await.unwrap();
        server.write_all(&all).await.unwrap(); // the other direction is still open
        all.len()
    });
    let sent = pattern(3000);
    client.write_all(&sent).await.unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.try_write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(read_to_end(&client).await.unwrap(), sent);
    assert_eq!(server.await, 3000);
}

pub(crate) async fn a_reset_reaches_the_reader(_: Ground) {
    let (client, server) = pair().await;
    let reader = spawn(async move { server.read(&mut [0; 16]).await });
    sleep(MS).await;
    client.abort();
    assert_eq!(reader.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

pub(crate) async fn a_reset_reaches_the_writer(_: Ground) {
    let (client, server) = pair().await;
    let writer = spawn(async move {
        loop {
            if let Err(error) = server.write_all(&[0; 65536]).await {
                return error.kind();
            }
        }
    });
    sleep(5 * MS).await;
    client.abort();
    let kind = writer.await;
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind:?}");
}

/// The system reports a failure once, here to a writer. A reader that did not see it would mistake
/// a part of the data for all of it.
pub(crate) async fn a_reset_reported_to_the_writer_is_no_end_for_the_reader(_: Ground) {
    let (client, server) = pair().await;
    server.write_all(b"half").await.unwrap();
    client.readable().await.unwrap();
    sleep(5 * MS).await;
    server.abort();
    let error = loop {
        match client.try_write(b"x") {
            Ok(_) => sleep(MS).await,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(error, ErrorKind::ConnectionReset);
    let mut got = Vec::new();
    let end = loop {
        let mut piece = [0; 16];
        match client.try_read(&mut piece) {
            Ok(0) => break None,
            Ok(read) => got.extend_from_slice(&piece[..read]),
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!((&got[..], end), (&b"half"[..], Some(ErrorKind::ConnectionReset)));
    assert_eq!(client.try_peek(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

pub(crate) async fn back_pressure(ground: Ground) {
    // More than the kernel's buffers can grow to; on the twin more than its buffer.
    let total = if ground.is_twin() { 70_000 } else { 32 << 20 };
    let (client, server) = pair().await;
    let written = Rc::new(Cell::new(0));
    let count = Rc::clone(&written);
    let data = Rc::new(pattern(total));
    let sent = Rc::clone(&data);
    let writer = spawn(async move {
        while count.get() < sent.len() {
            let end = sent.len().min(count.get() + (1 << 20));
            let wrote = server.write(&sent[count.get()..end]).await.unwrap();
            count.set(count.get() + wrote);
        }
    });
    let mut before = usize::MAX;
    while before != written.get() {
        before = written.get();
        sleep(20 * MS).await; // long enough for what is on its way on this machine
    }
    assert!(before > 0 && before < total, "{before} of {total} written while no task reads");
    assert!(read_to_end(&client).await.unwrap() == *data);
    writer.await;
}

pub(crate) async fn a_connect_is_refused(_: Ground) {
    let (listener, address) = listen();
    drop(listener);
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

pub(crate) async fn a_storm_of_connects(ground: Ground) {
    // On the twin the backlog overflows, and connects are repeated as by the kernel.
    let backlog = if ground.is_twin() { 16 } else { 1024 };
    let options = ListenOptions::default().with_backlog(backlog);
    let listener = TcpListener::bind(any_port(), &options).unwrap();
    let address = listener.local_addr().unwrap();
    // Miri needs 20 minutes for 300.
    let count = if cfg!(miri) { 30 } else { 300 };
    let clients: Vec<_> = (0..count)
        .map(|_| {
            spawn(async move {
                let client = TcpStream::connect(address).await?;
                client.read_exact(&mut [0; 2]).await?;
                std::io::Result::Ok(client)
            })
        })
        .collect();
    sleep(5 * MS).await; // they wait to be accepted
    for _ in 0..count {
        let (stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"ok").await.unwrap();
    }
    for client in clients {
        client.await.unwrap();
    }
}

pub(crate) async fn data_and_end_in_one_segment(_: Ground) {
    for len in [1, 16, 17, 100] {
        let (client, server) = pair().await;
        client.write_all(&pattern(len)).await.unwrap();
        drop(client);
        sleep(3 * MS).await; // both are there before the first look
        let mut buf = [0; 16];
        let mut all = Vec::new();
        loop {
            server.readable().await.unwrap();
            match server.try_read(&mut buf) {
                Ok(0) => break,
                Ok(read) => all.extend_from_slice(&buf[..read]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(all, pattern(len));
        server.readable().await.unwrap(); // an end stays an end
        assert_eq!(server.read(&mut buf).await.unwrap(), 0);
    }
}

pub(crate) async fn small_reads_of_one_event(_: Ground) {
    let (client, server) = pair().await;
    client.write_all(&pattern(100)).await.unwrap();
    let mut all = Vec::new();
    while all.len() < 100 {
        server.readable().await.unwrap(); // with or without another event
        let mut buf = [0; 3];
        if let Ok(read) = server.try_read(&mut buf) {
            all.extend_from_slice(&buf[..read]);
        }
        if all.len() % 2 == 0 {
            sleep(MS).await;
        }
    }
    assert_eq!(all, pattern(100));
    let nothing = timeout(5 * MS, server.readable()).await;
    if nothing.is_ok() {
        // Only because the last read was full and there may be more. This read clears that.
        assert_eq!(server.try_read(&mut [0; 3]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(timeout(5 * MS, server.readable()).await.is_err());
    }
}

pub(crate) async fn an_event_without_a_waiting_task_is_kept(_: Ground) {
    let (client, server) = pair().await;
    client.write_all(b"a").await.unwrap();
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 1);
    assert!(!server.has_unread_event());
    // Armed, but no task waits: the event is remembered, and its interest masked.
    let before = runtime::counters();
    client.write_all(b"bc").await.unwrap();
    sleep(20 * MS).await;
    assert!(server.has_unread_event());
    let since = runtime::counters().since(&before);
    assert!(since.waits < 60, "{} waits: the event repeats itself", since.waits);
    assert_eq!(since.recv_calls, 0);
    let mut buf = [0; 2];
    server.read_exact(&mut buf).await.unwrap();
    assert_eq!(buf, *b"bc");
    // Now it waits for new events again.
    let reader = spawn(async move { server.read(&mut [0; 8]).await.unwrap() });
    sleep(2 * MS).await;
    assert!(!reader.is_finished());
    client.write_all(b"d").await.unwrap();
    assert_eq!(reader.await, 1);
}

pub(crate) async fn a_watched_stream_shows_what_arrives_without_a_task(_: Ground) {
    let (client, server) = pair().await;
    assert!(server.watch());
    client.write_all(b"a").await.unwrap();
    sleep(20 * MS).await;
    assert!(server.has_unread_event() && !server.watch());
    // The event has masked the interest, and this read does not wait.
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 1);
    assert!(server.watch() && !server.has_unread_event());
    drop(client);
    sleep(20 * MS).await;
    assert!(server.has_unread_event() && !server.watch());
}

pub(crate) async fn a_hangup_without_a_waiting_task_does_not_spin(_: Ground) {
    let (client, server) = pair().await;
    client.write_all(b"a").await.unwrap();
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 1);
    client.abort();
    sleep(3 * MS).await;
    let before = runtime::counters();
    sleep(20 * MS).await;
    let since = runtime::counters().since(&before);
    assert!(since.waits < 60, "{} waits", since.waits);
    assert!(server.has_unread_event());
    assert!(server.read(&mut [0; 8]).await.is_err());
}

pub(crate) async fn a_writer_that_was_masked_is_armed_again(_: Ground) {
    let (client, server) = pair().await;
    let drain = spawn(async move { read_to_end(&client).await.unwrap().len() });
    let mut total = 0;
    for _ in 0..3 {
        // Fill it until it blocks, wait for room, and then do not wait for more room.
        loop {
            match server.try_write(&[1; 8192]) {
                Ok(written) => total += written,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        server.writable().await.unwrap();
        let before = runtime::counters();
        sleep(10 * MS).await;
        let since = runtime::counters().since(&before);
        assert!(since.changes + since.removes + since.registers < 300, "{since:?}");
    }
    drop(server);
    assert_eq!(drain.await, total);
}

pub(crate) async fn a_cancelled_wait_loses_nothing(_: Ground) {
    let (client, server) = pair().await;
    for round in 0..20_u8 {
        assert!(timeout(MS, server.readable()).await.is_err());
        client.write_all(&[round]).await.unwrap();
        sleep(Duration::from_millis(u64::from(round) % 3)).await;
        let mut buf = [0; 1];
        while server.read(&mut buf).await.unwrap() == 0 {}
        assert_eq!(buf, [round]);
        // The read was full, so there may be more: clear that, so that the next wait is a new one.
        assert!(server.try_read(&mut [0; 2]).is_err());
    }
}

pub(crate) async fn reader_and_writer_of_one_stream_are_two_tasks(ground: Ground) {
    let (client, server) = pair().await;
    let server = Rc::new(server);
    let data = Rc::new(pattern(ground.scaled(300_000)));
    let writer = {
        let (server, data) = (Rc::clone(&server), Rc::clone(&data));
        spawn(async move {
            server.write_all(&data).await.unwrap();
            server.shutdown(Shutdown::Write).unwrap();
        })
    };
    let reader = {
        let server = Rc::clone(&server);
        spawn(async move { read_to_end(&server).await.unwrap() })
    };
    drop(server);
    let client = Rc::new(client);
    let other_writer = {
        let (client, data) = (Rc::clone(&client), Rc::clone(&data));
        spawn(async move {
            client.write_all(&data).await.unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        })
    };
    assert!(read_to_end(&client).await.unwrap() == *data);
    assert!(reader.await == *data);
    writer.await;
    other_writer.await;
}

pub(crate) async fn vectored_writes(ground: Ground) {
    let (client, server) = pair().await;
    let parts = [10, 0, ground.scaled(40_000), 1, ground.scaled(300_000)].map(pattern);
    let expected = parts.concat();
    let writer = spawn(async move {
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut slices = &mut slices[..];
        while !slices.is_empty() {
            match client.try_write_vectored(slices) {
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    client.writable().await.unwrap();
                }
            }
        }
        assert_eq!(client.try_write_vectored(&[IoSlice::new(b"")]).unwrap(), 0);
    });
    assert!(read_to_end(&server).await.unwrap() == expected);
    writer.await;
}

pub(crate) async fn peek_leaves_the_bytes(_: Ground) {
    let (client, server) = pair().await;
    client.write_all(b"x").await.unwrap();
    server.readable().await.unwrap();
    let mut buf = [0; 8];
    assert_eq!(server.try_peek(&mut buf).unwrap(), 1);
    assert_eq!(server.read(&mut buf).await.unwrap(), 1);
    assert_eq!(buf[0], b'x');
    assert_eq!(server.try_peek(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Never more than was asked for; all of it; the end; nothing of a connection that has failed in
/// the middle.
pub(crate) async fn received_bytes_are_passed_on_without_copies(ground: Ground) {
    let sent = pattern(ground.scaled(400_000));
    for _ in 0..3 {
        let ((source, from), (to, sink)) = join(pair(), pair()).await;
        let passed = async {
            source.write_all(&sent).await.unwrap();
            source.shutdown(Shutdown::Write).unwrap();
        };
        let passing = async {
            let mut left = sent.len() - 100;
            while left > 0 {
                let mut pages = received(&from, left).await.unwrap();
                assert!((1..=left).contains(&pages.left()));
                left -= pages.left();
                while pages.left() > 0 {
                    if to.try_write_pages(&mut pages, false).is_err() {
                        to.writable().await.unwrap();
                    }
                }
            }
            let mut rest = [0; 100];
            from.read_exact(&mut rest).await.unwrap();
            to.write_all(&rest).await.unwrap();
            assert_eq!(received(&from, 100).await.unwrap().left(), 0, "the end");
            drop(to);
        };
        let ((), (), got) = join3(passed, passing, read_to_end(&sink)).await;
        assert!(got.unwrap() == sent);

        let ((source, from), (to, sink)) = join(pair(), pair()).await;
        source.write_all(b"lost").await.unwrap();
        let mut pages = received(&from, 9).await.unwrap();
        sink.abort();
        sleep(50 * MS).await;
        to.try_write_pages(&mut pages, false).unwrap_err();
        source.abort();
        sleep(50 * MS).await;
        let error = loop {
            match received(&from, 9).await {
                Ok(pages) => assert!(pages.left() > 0, "no orderly end"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

async fn received(stream: &TcpStream, bytes_max: usize) -> std::io::Result<SharedPages> {
    loop {
        stream.readable().await?;
        match stream.try_read_shared(bytes_max) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            pages => return Ok(pages?.expect("a pipe")),
        }
    }
}

async fn join3<A, B, C>(
    a: impl Future<Output = A>,
    b: impl Future<Output = B>,
    c: impl Future<Output = C>,
) -> (A, B, C) {
    let ((a, b), c) = join(join(a, b), c).await;
    (a, b, c)
}

pub(crate) async fn addresses(_: Ground) {
    let (listener, address) = listen();
    let (client, accepted) = join(TcpStream::connect(address), listener.accept()).await;
    let (client, (server, peer)) = (client.unwrap(), accepted.unwrap());
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!(server.local_addr().unwrap(), address);
    server.set_nodelay(false).unwrap();
    let taken = TcpListener::bind(address, &ListenOptions::default()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let shared = ListenOptions::default().with_reuse_port(true);
    let one = TcpListener::bind(any_port(), &shared).unwrap();
    let _two = TcpListener::bind(one.local_addr().unwrap(), &shared).unwrap();
    assert!(one.try_accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
}

pub(crate) async fn a_dropped_listener_refuses(_: Ground) {
    let (listener, address) = listen();
    let client = TcpStream::connect(address).await.unwrap(); // waits to be accepted
    drop(listener);
    let end = client.read(&mut [0; 8]).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(TcpStream::connect(address).await.is_err());
}

/// How a server ends: stop accepting, let the connections finish, return.
pub(crate) async fn a_graceful_stop(_: Ground) {
    let source = StopSource::new();
    let (listener, address) = listen();
    let token = source.token();
    let server = spawn(async move {
        let mut connections = Vec::new();
        loop {
            match race(token.stopped(), listener.accept()).await {
                Either::Left(()) => break,
                Either::Right(accepted) => {
                    connections.push(spawn(serve_echo(accepted.unwrap().0)));
                }
            }
        }
        drop(listener);
        for connection in connections {
            connection.await.unwrap();
        }
    });
    let client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"before").await.unwrap();
    client.read_exact(&mut [0; 6]).await.unwrap();
    source.stop();
    yield_now().await;
    yield_now().await;
    client.write_all(b"after").await.unwrap();
    client.read_exact(&mut [0; 5]).await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
    assert!(!server.is_finished());
    drop(client);
    server.await;
}

//! Unix stream sockets.

use std::io::ErrorKind;
use std::net::Shutdown;

use runtime::net::{UnixListener, UnixStream};
use runtime::{join, spawn};

use crate::{Ground, pattern};

pub(crate) async fn echo_over_a_path(ground: Ground) {
    let path = ground.dir.join("echo.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = spawn(async move {
        let (stream, peer) = listener.accept().await.unwrap();
        assert!(peer.is_unnamed());
        let mut buf = [0; 1000];
        loop {
            match stream.read(&mut buf).await.unwrap() {
                0 => break,
                read => stream.write_all(&buf[..read]).await.unwrap(),
            }
        }
    });
    let client = UnixStream::connect(&path).await.unwrap();
    let sent = pattern(ground.scaled(400_000));
    let mut got = vec![0; sent.len()];
    let (wrote, read) = join(client.write_all(&sent), client.read_exact(&mut got)).await;
    wrote.unwrap();
    read.unwrap();
    assert!(got == sent);
    drop(client);
    server.await;
}

pub(crate) async fn half_close_and_refusal(ground: Ground) {
    let path = ground.dir.join("half.sock");
    assert!(UnixStream::connect(&path).await.is_err());
    let listener = UnixListener::bind(&path).unwrap();
    assert_eq!(UnixListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    let client = UnixStream::connect(&path).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = [0; 8];
    server.read_exact(&mut question).await.unwrap();
    assert_eq!(server.read(&mut question).await.unwrap(), 0);
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = [0; 6];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(client.read(&mut answer).await.unwrap(), 0);
    drop(listener);
    let refused = UnixStream::connect(&path).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

//! Datagrams.

use std::io::ErrorKind;
use std::time::Duration;

use runtime::net::UdpSocket;
use runtime::time::sleep;

use crate::{Ground, any_port};

pub(crate) async fn two_sockets_talk(_: Ground) {
    let (one, two) = (UdpSocket::bind(any_port()).unwrap(), UdpSocket::bind(any_port()).unwrap());
    let to = two.local_addr().unwrap();
    let mut buf = [0; 100];
    for len in [0, 1, 99] {
        assert_eq!(one.send_to(&vec![7; len], to).await.unwrap(), len);
        let (read, from) = two.recv_from(&mut buf).await.unwrap();
        assert_eq!((read, from), (len, one.local_addr().unwrap()));
    }
    one.send_to(&[1; 200], to).await.unwrap();
    assert_eq!(two.recv_from(&mut buf).await.unwrap().0, 100, "the rest is cut off");
    for _ in 0..50 {
        one.send_to(&[2; 10], to).await.unwrap();
    }
    for _ in 0..50 {
        assert_eq!(two.recv_from(&mut buf).await.unwrap().0, 10);
    }
}

pub(crate) async fn connected_sockets_talk(_: Ground) {
    let (one, two) = (UdpSocket::bind(any_port()).unwrap(), UdpSocket::bind(any_port()).unwrap());
    let stranger = UdpSocket::bind(any_port()).unwrap();
    one.connect(two.local_addr().unwrap()).unwrap();
    two.connect(one.local_addr().unwrap()).unwrap();
    stranger.send_to(b"not for you", two.local_addr().unwrap()).await.unwrap();
    sleep(Duration::from_millis(2)).await;
    one.send(b"hello").await.unwrap();
    let mut buf = [0; 100];
    assert_eq!(two.recv(&mut buf).await.unwrap(), 5);
    assert_eq!(&buf[..5], b"hello");
    two.send(b"you").await.unwrap();
    assert_eq!(one.recv(&mut buf).await.unwrap(), 3);
}

/// An error on a datagram socket is reported once; the socket still works.
pub(crate) async fn no_receiver(_: Ground) {
    let gone = UdpSocket::bind(any_port()).unwrap().local_addr().unwrap();
    let one = UdpSocket::bind(any_port()).unwrap();
    one.connect(gone).unwrap();
    one.send(b"anybody?").await.unwrap();
    let mut buf = [0; 8];
    assert_eq!(one.recv(&mut buf).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let there = UdpSocket::bind(any_port()).unwrap();
    there.connect(one.local_addr().unwrap()).unwrap();
    one.connect(there.local_addr().unwrap()).unwrap();
    there.send(b"here").await.unwrap();
    assert_eq!(one.recv(&mut buf).await.unwrap(), 4);
}

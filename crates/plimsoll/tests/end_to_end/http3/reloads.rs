//! HTTP/3 that a reload takes from a listener and gives back.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use serde_json::{Value, json};

use super::{client, is, proxy, take};
use crate::http2::recorder::{Recorder, content};
use crate::support::{Home, Running, SOON, output_file, plimsoll, wait_for};

#[test]
fn a_reload_turns_http3_off_and_on() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin.url(), "[server]\nadmin = \"127.0.0.1:0\"\n");
    let port = proxy.address().port();
    let hit = || {
        let answers = take(&home, port, json!([{"do": "get", "path": "/cached/100"}]));
        is(&answers[0], "200", &content(100));
    };
    hit();
    let on = home.read("http3.toml");
    let admin = proxy.admin().to_string();
    home.write("http3.toml", on.replace("http3 = true\n", ""));
    plimsoll(&["reload", "--admin", &admin]).succeeded();
    // The connection of before may be there for a moment.
    wait_for("the UDP port to close", SOON, || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket.connect(proxy.address()).unwrap();
        socket.send(b"x").unwrap();
        let error = socket.recv(&mut [0; 10]).unwrap_err();
        (error.kind() == ErrorKind::ConnectionRefused).then_some(())
    });
    home.write("http3.toml", on);
    plimsoll(&["reload", "--admin", &admin]).succeeded();
    hit();
    assert_eq!(proxy.stopped().0, Some(0));
}

/// The socket was bound a second time, which failed with EADDRINUSE.
#[test]
fn a_reload_gives_http3_back_while_a_connection_of_before_is_served() {
    for workers in [1, 2] {
        let home = Home::new();
        let origin = Recorder::start();
        let config = format!("[server]\nadmin = \"127.0.0.1:0\"\nworkers = {workers}\n");
        let proxy = proxy(&home, &origin.url(), &config);
        let port = proxy.address().port();
        let steps = json!([{"do": "begin", "path": "/held/1000"}, {"do": "finish"}]);
        let mut running =
            Running::start(client(&home, port, &steps).stdout(output_file(&home, "client.out")));
        origin.wait_for_request("/held/1000");
        let (on, admin) = (home.read("http3.toml"), proxy.admin().to_string());
        home.write("http3.toml", on.replace("http3 = true\n", ""));
        plimsoll(&["reload", "--admin", &admin]).succeeded();
        home.write("http3.toml", on);
        plimsoll(&["reload", "--admin", &admin]).succeeded();
        for _ in 0..8 {
            let answers = take(&home, port, json!([{"do": "get", "path": "/cached/100"}]));
            is(&answers[0], "200", &content(100));
        }
        assert!(!running.has_ended(), "it waits for its response");
        origin.release();
        assert!(running.ended(SOON).success());
        let answers: Value = serde_json::from_str(&home.read("client.out")).unwrap();
        is(&answers[1], "200", &content(1000));
        assert_eq!(proxy.stopped().0, Some(0));
    }
}

//! Peers that measure the round trip by PINGs, at both sides of the server, over networks with
//! different delays: the more round trips, the more PINGs.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    Accepting, Home, OurServer, Running, SOON, output_file, program, read_some, wait_for,
};

/// The delay in each direction of each relay, in milliseconds, and the messages that go there and
/// back, one after the other. The first two make more PINGs than a client without traffic may send.
const NETWORKS: [(u64, u32); 4] = [(0, 1500), (1, 1000), (10, 60), (100, 8)];

/// Passes on the bytes of one direction, late.
fn pump(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, pieces) = mpsc::sync_channel::<(Instant, Vec<u8>)>(1024);
    let writing = thread::spawn(move || {
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        // The other side may have closed before.
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = read_some(&mut from, &mut buffer) {
        if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    writing.join().unwrap();
}

/// A network between this address and the server there, which ends with the test.
fn relay(to: SocketAddr, delay: Duration) -> Accepting {
    Accepting::start(move |stream| {
        let Ok(upstream) = TcpStream::connect(to) else { return };
        for one in [&stream, &upstream] {
            one.set_nodelay(true).unwrap();
        }
        let back = (upstream.try_clone().unwrap(), stream.try_clone().unwrap());
        let answering = thread::spawn(move || pump(back.0, back.1, delay));
        pump(stream, upstream, delay);
        answering.join().unwrap();
    })
}

#[test]
fn a_ping_for_each_round_trip_is_no_flood_at_either_side() {
    let home = Home::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/http2/pings.js");
    let node = program("node", "nodejs");
    let mut server = Running::start(
        Command::new(&node)
            .args([script, "serve"])
            .stdout(output_file(&home, "port"))
            .stderr(output_file(&home, "origin.err")),
    );
    let port = wait_for("the origin", SOON, || {
        assert!(!server.has_ended(), "{}", home.read("origin.err"));
        home.read("port").trim().parse::<u16>().ok()
    });
    let mut relays = Vec::new();
    let mut file = "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n[[listen]]\n\
         address = \"127.0.0.1:0\"\n"
        .to_owned();
    for (delay, _) in NETWORKS {
        let to = relay(([127, 0, 0, 1], port).into(), Duration::from_millis(delay));
        file += &format!(
            "[[upstream]]\nname = \"after-{delay}\"\nprotocol = \"h2c\"\n\
             [[upstream.server]]\nurl = \"http://{}\"\n\
             [[route]]\nprefix = \"/{delay}\"\nupstream = \"after-{delay}\"\n",
            to.address
        );
        relays.push(to);
    }
    let proxy = OurServer::configured(&home.write("plimsoll.toml", file));
    let mut clients = Vec::new();
    for (delay, messages) in NETWORKS {
        let network = relay(proxy.address(), Duration::from_millis(delay));
        let name = format!("client-{delay}");
        let port = network.address.port().to_string();
        let client = Running::start(
            Command::new(&node)
                .args([script, "call", &port, &format!("/{delay}"), &messages.to_string()])
                .stdout(output_file(&home, &name))
                .stderr(output_file(&home, &format!("{name}.err"))),
        );
        clients.push((client, name, network, messages));
    }
    for (mut client, name, _network, messages) in clients {
        let status = client.ended(Duration::from_secs(120));
        let (out, err) = (home.read(&name), home.read(&format!("{name}.err")));
        assert!(status.success(), "{name}: {out} {err}");
        let result: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(result["sent"], messages, "{name}: {out}");
        for side in ["pings", "ofServer"] {
            assert!(result[side].as_u64().unwrap() > 0, "{name}: {out}");
        }
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

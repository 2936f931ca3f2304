//! TLS on a listener: records cut anywhere, handshakes that never end, and ends of connections.

use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::ListenerTls;
use runtime::sim;
use runtime::time::{now, sleep};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use server::ServerTls;

use crate::common::content;
use crate::leaving::finishing;
use crate::origin;
use crate::tls_client::{SIGNED, TlsClient, client_config, reverse_tls};
use crate::world::{Client, World, each_way_http1 as each_way, run, with};

const SECOND: Duration = Duration::from_secs(1);

fn expected(target: &str) -> Vec<u8> {
    origin::expected(target, None)
}

#[test]
fn requests_are_served_as_without() {
    each_way(reverse_tls, async |world: Rc<World>| {
        let config = client_config();
        let mut client = TlsClient::new(&config).await;
        for target in ["/a?size=10&cc=max-age=60", "/a?size=10&cc=max-age=60", "/b?size=70000"] {
            let response = client.get(target, "").await;
            assert_eq!((response.status, response.body), (200, expected(target)));
        }
        // A request's body, in many records.
        let body = content("upload", 30_000);
        let head = b"POST /up?duplex=1 HTTP/1.1\r\nHost: site\r\nContent-Length: 30000\r\n\r\n";
        let upload = [&head[..], &body].concat();
        assert_eq!(client.ask_in_records(&upload, &[700], 1).await[0].body, body);
        assert!(client.connection.alpn_protocol().is_none());
        assert_eq!(world.counter("tls_handshakes"), 1);
        assert_eq!(world.counter("hits"), 1);
    });
}

/// A small record after a full one exceeded what rustls keeps, and the connection was closed.
#[test]
fn a_small_record_after_each_full_one_is_read() {
    each_way(reverse_tls, async |_: Rc<World>| {
        let mut client = TlsClient::new(&client_config()).await;
        let body = content("upload", 200_000);
        let head = b"POST /up?duplex=1 HTTP/1.1\r\nHost: site\r\nContent-Length: 200000\r\n\r\n";
        let upload = [&head[..], &body].concat();
        let got = client.ask_in_records(&upload, &[16384, 9, 16000, 300], 1).await;
        assert!(got[0].body == body, "{} bytes", got[0].body.len());
    });
}

#[test]
fn pipelined_requests_in_one_record_and_each_byte_in_its_own() {
    each_way(reverse_tls, async |_: Rc<World>| {
        let config = client_config();
        let mut client = TlsClient::new(&config).await;
        let target = "/p?size=100&cc=max-age=60";
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        let many = request.repeat(20);
        for piece in [many.len(), 1] {
            for response in client.ask_in_records(many.as_bytes(), &[piece], 20).await {
                assert_eq!(response.body, expected(target));
            }
        }
    });
}

/// A wake-up that is lost when a record's halves come apart would hang here.
#[test]
fn flights_cut_at_every_byte() {
    let run_it = async |_: Rc<World>| {
        let config = client_config();
        let request = b"GET /c?size=10&cc=max-age=60 HTTP/1.1\r\nHost: site\r\n\r\n";
        let mut longest = 1;
        for cut in 0.. {
            if cut >= longest {
                break;
            }
            // Each cut meets a hello, a finish with a request behind it, and a request alone.
            let mut client = TlsClient::connect(&config).await;
            let mut asked = 0;
            while asked < 2 {
                if !client.connection.is_handshaking() {
                    std::io::Write::write_all(&mut client.connection.writer(), request).unwrap();
                    asked += 1;
                }
                let records = client.records();
                longest = longest.max(records.len());
                let (first, second) = records.split_at(cut.min(records.len()));
                client.stream.write_all(first).await.unwrap();
                sleep(SECOND).await;
                client.stream.write_all(second).await.unwrap();
                if asked > 0 {
                    assert_eq!(client.response().await.unwrap().status, 200, "cut at {cut}");
                } else {
                    while client.connection.is_handshaking() && !client.connection.wants_write() {
                        assert!(client.take().await, "cut at {cut}");
                    }
                }
            }
        }
        assert!(longest > 100, "{longest}");
    };
    run(sim::Options::new(1), reverse_tls(), run_it);
}

#[test]
fn a_large_hit_is_sent_as_the_client_takes_it() {
    let run_it = async |world: Rc<World>, target: String| {
        let config = client_config();
        let target = target.as_str();
        for _ in 0..2 {
            let mut client = TlsClient::new(&config).await;
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            client.send(request.as_bytes()).await;
            // It does not read for a while, and asks again before it does.
            sleep(20 * SECOND).await;
            client.send(request.as_bytes()).await;
            for _ in 0..2 {
                let response = client.response().await.unwrap();
                assert!(response.body == expected(target), "{} bytes", response.body.len());
            }
        }
        assert!(world.counter("hits") >= 2);
    };
    for (options, size) in [(sim::Options::new(1), 600_000), (sim::Options::rough(2), 90_000)] {
        let target = format!("/large?size={size}&cc=max-age=600");
        run(options, reverse_tls(), async |world| run_it(world, target).await);
    }
}

#[test]
fn the_end_of_a_whole_response_is_marked_inside_tls() {
    each_way(reverse_tls, async |_: Rc<World>| {
        let config = client_config();
        let mut client = TlsClient::new(&config).await;
        let target = "/e?size=100&cc=max-age=60";
        let response = client.get(target, "Connection: close\r\n").await;
        assert_eq!(response.body, expected(target));
        assert!(client.ends_well().await);
        // HTTP/1.0: the body's end is the connection's.
        let mut client = TlsClient::new(&config).await;
        client.send(b"GET /f?size=9000&frame=chunked HTTP/1.0\r\nHost: site\r\n\r\n").await;
        while client.take().await {}
        assert_eq!(client.ended, Some(true));
        assert_eq!(client.response().await.unwrap().body, expected("/f?size=9000&frame=chunked"));
    });
}

#[test]
fn a_response_that_broke_off_has_no_end_inside_tls() {
    each_way(reverse_tls, async |_: Rc<World>| {
        let config = client_config();
        let mut client = TlsClient::new(&config).await;
        client.send(b"GET /b?size=9000&frame=chunked&cut=5000 HTTP/1.0\r\nHost: s\r\n\r\n").await;
        while client.take().await {}
        assert_eq!(client.ended, Some(false));
    });
}

#[test]
fn a_client_that_closes_its_direction_gets_its_answer_if_that_is_configured() {
    each_way(finishing(reverse_tls), async |_: Rc<World>| {
        let config = client_config();
        let mut client = TlsClient::new(&config).await;
        let target = "/h?size=20000&delay=2000";
        std::io::Write::write_all(
            &mut client.connection.writer(),
            format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes(),
        )
        .unwrap();
        client.connection.send_close_notify();
        let records = client.records();
        client.stream.write_all(&records).await.unwrap();
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.response().await.unwrap().body, expected(target));
        assert!(client.ends_well().await);
    });
}

#[test]
fn a_session_is_taken_up_again() {
    each_way(reverse_tls, async |world: Rc<World>| {
        let config = client_config();
        for _ in 0..3 {
            let mut client = TlsClient::new(&config).await;
            assert_eq!(client.get("/r?size=5", "").await.status, 200);
        }
        assert_eq!(world.counter("tls_handshakes"), 3);
        assert_eq!(world.counter("tls_resumptions"), 2);
    });
}

#[test]
fn the_protocol_is_negotiated_in_each_handshake() {
    // The sessions are shared: a resumed one may choose another protocol.
    let sessions = client_config();
    let offering = |protocols: &[&str]| {
        let mut config = ClientConfig::clone(&sessions);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    };
    for http2 in [true, false] {
        let config = with(reverse_tls, |config| {
            config.listeners[0].http2 = http2;
            config.listeners[0].tls = Some(SIGNED.server(http2));
        });
        let run_it = async |world: Rc<World>| {
            let (preferred, if_http2) = match http2 {
                true => ("h2", Some("h2")),
                false => ("http/1.1", None),
            };
            for (offered, chosen) in [
                (&["http/1.1", "h2"][..], Some(preferred)),
                (&["h2", "http/1.1"], Some(preferred)),
                (&["http/1.1"], Some("http/1.1")),
                (&["http/1.0"], Some("http/1.0")),
                (&["h2"], if_http2),
                (&["h3"], None),
            ] {
                let mut client = TlsClient::connect(&offering(offered)).await;
                match chosen {
                    None => assert!(client.is_refused().await, "{http2} {offered:?}"),
                    Some(chosen) => {
                        client.handshake().await;
                        let negotiated = client.connection.alpn_protocol();
                        assert_eq!(negotiated, Some(chosen.as_bytes()), "{http2} {offered:?}");
                        // The tickets for the next session.
                        while client.connection.tls13_tickets_received() == 0 {
                            assert!(client.take().await);
                        }
                    }
                }
            }
            let handshakes = if http2 { 5 } else { 4 };
            assert_eq!(world.counter("tls_handshakes"), handshakes);
            assert_eq!(world.counter("tls_resumptions"), handshakes - 1);
        };
        run(sim::Options::new(1), config(), run_it);
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_cut() {
    each_way(reverse_tls, async |world: Rc<World>| {
        let begun = now();
        let mut silent = Client::new().await;
        assert!(silent.ends().await);
        assert_eq!(begun.elapsed().as_secs(), 10);
        // A byte a second is not progress either.
        let mut hello = TlsClient::connect(&client_config()).await;
        let records = hello.records();
        let begun = now();
        for byte in &records[..9] {
            hello.stream.write_all(&[*byte]).await.unwrap();
            sleep(SECOND).await;
        }
        assert!(!hello.take().await);
        assert!((9..=10).contains(&begun.elapsed().as_secs()));
        assert_eq!(world.counter("tls_failures_slow"), 2);
    });
}

#[test]
fn half_a_record_does_not_keep_a_connection() {
    let run_it = async |_: Rc<World>| {
        let mut client = TlsClient::new(&client_config()).await;
        std::io::Write::write_all(&mut client.connection.writer(), &[b'x'; 200]).unwrap();
        let records = client.records();
        let begun = now();
        for byte in &records[..3] {
            sleep(20 * SECOND).await;
            client.stream.write_all(&[*byte]).await.unwrap();
        }
        assert!(client.ends_well().await);
        assert!((74..=76).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    };
    run(sim::Options::new(1), reverse_tls(), run_it);
}

#[test]
fn bytes_that_are_no_tls_are_refused_and_http_gets_the_reason() {
    each_way(reverse_tls, async |world: Rc<World>| {
        let mut plain = Client::new().await;
        let response = plain.get("/", "").await;
        assert_eq!(response.status, 400);
        let text = String::from_utf8(response.body).unwrap();
        assert!(text.contains("https://"), "{text}");
        assert!(plain.ends().await);
        assert_eq!(world.counter("tls_failures_plain_http"), 1);
        for garbage in [&b"\0\0\0\0\0\0\0\0\0\0\0\0"[..], b"\x16\x03\x01\xff\xff\x01\x02\x03"] {
            let client = Client::new().await;
            client.send(garbage).await.unwrap();
            let mut buf = [0; 100];
            while client.stream().read(&mut buf).await.is_ok_and(|read| read > 0) {}
        }
        assert_eq!(world.counter("tls_failures_protocol"), 2);
        // Each of them has a line in the log; only the first got a response.
        assert_eq!(world.counter("connections_denied"), 3);
        let refusals = world.metrics().await;
        let of = |rule: &str| {
            let name = format!("plimsoll_refusals_total{{rule=\"{rule}\"}}");
            refusals.iter().find(|(there, _)| *there == name).unwrap().1
        };
        assert_eq!((of("plain-http"), of("tls-handshake")), (1, 2));
    });
}

#[test]
fn a_client_that_leaves_within_the_handshake_leaves_nothing() {
    let run_it = async |world: Rc<World>| {
        let config = client_config();
        let length = TlsClient::connect(&config).await.records().len();
        let mut left = 1;
        for sent in (0..length).step_by(7).chain([length]) {
            let mut client = TlsClient::connect(&config).await;
            let records = client.records();
            client.stream.write_all(&records[..sent]).await.unwrap();
            sleep(SECOND).await;
            drop(client);
            left += 1;
        }
        sleep(SECOND).await;
        assert_eq!(world.counter("tls_failures_closed"), left);
        assert_eq!(world.counter("connections_open"), 0);
    };
    run(sim::Options::new(1), reverse_tls(), run_it);
}

#[test]
fn an_idle_connection_ends_well_when_the_proxy_stops() {
    each_way(reverse_tls, async |world: Rc<World>| {
        let config = client_config();
        let mut idle = TlsClient::new(&config).await;
        let mut asking = TlsClient::new(&config).await;
        let target = "/slow?size=50000&delay=3000";
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        asking.send(request.as_bytes()).await;
        sleep(SECOND).await;
        world.stop.stop();
        assert!(idle.ends_well().await);
        assert_eq!(asking.response().await.unwrap().body, expected(target));
        assert!(asking.ends_well().await);
    });
}

#[test]
fn clients_are_asked_for_a_certificate_where_one_is_wanted() {
    let directory = SIGNED.directory();
    let root = directory.join("clients.pem");
    std::fs::write(&root, &SIGNED.authority.root_pem).unwrap();
    let files = SIGNED.authority.issue(directory, "mutual", &["site"]);
    let tls = ListenerTls {
        certificates: vec![files.clone()],
        client_ca: Some(root),
        ..ListenerTls::default()
    };
    let loaded = ServerTls::load(&tls, true).unwrap();
    let config = with(reverse_tls, |config| config.listeners[0].tls = Some(loaded.clone()));
    each_way(config, async |world: Rc<World>| {
        let mut without = TlsClient::connect(&client_config()).await;
        assert!(without.is_refused().await);
        assert_eq!(world.counter("tls_failures_client_certificate"), 1);
        assert_eq!(world.counter("tls_handshakes"), 0);
    });
}

/// A resumed session is not verified again, and its certificate came into the next one: a client
/// stayed for ever, after its certificate had expired.
#[test]
fn no_session_outlives_the_certificate_of_its_client() {
    let directory = SIGNED.directory();
    let root = directory.join("expiring.pem");
    std::fs::write(&root, &SIGNED.authority.root_pem).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
    // The twin starts on 1 January 2026.
    params.not_after = rcgen::date_time_ymd(2026, 1, 1) + 10 * 60 * SECOND;
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    let client = SIGNED.authority.sign(directory, "expiring", algorithm, &params);
    let tls = ListenerTls {
        certificates: vec![SIGNED.authority.issue(directory, "expires", &["site"])],
        client_ca: Some(root),
        ..ListenerTls::default()
    };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let loaded = ServerTls::load(&tls, true).unwrap();
        let config = with(reverse_tls, |config| config.listeners[0].tls = Some(loaded.clone()));
        let run_it = async |world: Rc<World>| {
            let chain = CertificateDer::from_pem_file(&client.chain).unwrap();
            let key = PrivateKeyDer::from_pem_file(&client.key).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(SIGNED.authority.roots())
                .with_client_auth_cert(vec![chain], key)
                .unwrap();
            let config = Arc::new(config);
            for _ in 0..3 {
                let mut client = TlsClient::new(&config).await;
                assert_eq!(client.get("/r?size=5", "").await.status, 200);
                sleep(4 * 60 * SECOND).await;
            }
            let mut client = TlsClient::connect(&config).await;
            assert!(client.is_refused().await);
            assert_eq!(world.counter("tls_handshakes"), 3);
            assert_eq!(world.counter("tls_resumptions"), 0);
        };
        run(sim::Options::new(1), config(), run_it);
    }
}

//! TLS to upstreams: whom we trust, what a failure is called, and what the end of a body means.

use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use config::{CertificateFiles, UpstreamTls};
use rcgen::{CertificateParams, date_time_ymd};
use runtime::Either;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use server::{ClientTls, Config, Origin as OriginUrl};

use crate::certificates::Authority;
use crate::common::content;
use crate::origin;
use crate::tls_client::SIGNED;
use crate::world::{Client, ORIGIN, World, address, each_way, forward, reverse};

const SECURE: &str = "10.0.0.2:443";

fn expected(target: &str) -> Vec<u8> {
    origin::expected(target, None)
}

/// Speaks TLS in front of the simulated origin.
struct Front {
    config: Arc<ServerConfig>,
    /// Whether the end is marked inside TLS.
    farewell: bool,
}

impl Front {
    fn start(files: &CertificateFiles, farewell: bool) {
        let chain = CertificateDer::pem_file_iter(&files.chain).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let front = Rc::new(Front { config: Arc::new(config), farewell });
        let listener = TcpListener::bind(address(SECURE), &ListenOptions::default()).unwrap();
        let serving = async move {
            while let Ok((stream, _)) = listener.accept().await {
                runtime::spawn(Rc::clone(&front).serve(stream)).detach();
            }
        };
        runtime::spawn(serving).detach();
    }

    /// Carries both ways until one side ends.
    async fn serve(self: Rc<Self>, outer: TcpStream) {
        let mut tls = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        let inner = TcpStream::connect(address(ORIGIN)).await.unwrap();
        let (mut from_outer, mut from_inner) = ([0; 4000], [0; 4000]);
        loop {
            let mut records = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut records).unwrap();
            }
            if outer.write_all(&records).await.is_err() {
                return;
            }
            let next = runtime::race(outer.read(&mut from_outer), inner.read(&mut from_inner));
            match next.await {
                Either::Left(Ok(read)) if read > 0 => {
                    let mut plain = Vec::new();
                    if !take(&mut tls, &from_outer[..read], &mut plain) {
                        return;
                    }
                    if inner.write_all(&plain).await.is_err() {
                        return;
                    }
                }
                Either::Right(Ok(read)) if read > 0 => {
                    tls.writer().write_all(&from_inner[..read]).unwrap();
                }
                Either::Right(Ok(_)) if self.farewell => {
                    tls.send_close_notify();
                    let mut records = Vec::new();
                    tls.write_tls(&mut records).unwrap();
                    let _ = outer.write_all(&records).await;
                    return;
                }
                _ => return,
            }
        }
    }
}

/// Decrypts what came; false when the peer has ended or is not to be understood.
fn take(tls: &mut ServerConnection, mut records: &[u8], plain: &mut Vec<u8>) -> bool {
    while !records.is_empty() {
        tls.read_tls(&mut records).unwrap();
        let Ok(state) = tls.process_new_packets() else { return false };
        let from = plain.len();
        plain.resize(from + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut plain[from..]).unwrap();
        if state.peer_has_closed() {
            return false;
        }
    }
    true
}

fn files(file: &str, names: &[&str]) -> CertificateFiles {
    SIGNED.authority.issue(SIGNED.directory(), file, names)
}

/// A configuration that trusts only our authority.
fn trusting() -> UpstreamTls {
    let ca = SIGNED.directory().join("root.pem");
    UpstreamTls { ca: Some(ca), ..UpstreamTls::default() }
}

fn secured(tls: &UpstreamTls) -> Config {
    let addresses = vec![address(SECURE)];
    let mut origin = OriginUrl { authority: "site".into(), addresses, tls: None };
    origin.secure(&ClientTls::load(tls).unwrap()).unwrap();
    let listen: Vec<_> = reverse().listeners.iter().map(|listener| listener.address).collect();
    Config { groups: Config::reverse([origin], &listen).groups, ..reverse() }
}

#[test]
fn requests_go_over_one_connection() {
    each_way(
        || secured(&trusting()),
        async |world: Rc<World>| {
            Front::start(&files("one", &["site"]), true);
            let mut client = Client::new().await;
            for target in ["/a?size=10", "/b?size=60000", "/c?size=9000&frame=chunked"] {
                assert!(client.get(target, "").await.body == expected(target), "{target}");
            }
            let body = content("upload", 50_000);
            let head = b"POST /up HTTP/1.1\r\nHost: site\r\nContent-Length: 50000\r\n\r\n";
            let upload = [&head[..], &body].concat();
            assert!(client.pipeline(&upload, 1).await[0].body == body, "it is sent back");
            // A request with a body is sent on its own connection.
            assert_eq!(world.counter("upstream_tls_handshakes"), 2);
            assert_eq!(world.counter("upstream_reuses"), 2);
        },
    );
}

#[test]
fn a_session_is_taken_up_by_the_next_connection() {
    each_way(
        || secured(&trusting()),
        async |world: Rc<World>| {
            Front::start(&files("again", &["site"]), true);
            for target in ["/a?size=10&drop=1", "/b?size=10&drop=1", "/c?size=10"] {
                assert_eq!(Client::new().await.get(target, "").await.body, expected(target));
                runtime::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            assert_eq!(world.counter("upstream_tls_handshakes"), 3);
            assert_eq!(world.counter("upstream_tls_resumptions"), 2);
        },
    );
}

#[test]
fn a_body_without_a_length_needs_an_end_inside_tls() {
    for farewell in [true, false] {
        each_way(
            || secured(&trusting()),
            async |_: Rc<World>| {
                Front::start(&files("end", &["site"]), farewell);
                let mut client = Client::new().await;
                let target = "/end?size=5000&frame=close";
                let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
                client.send(request.as_bytes()).await.unwrap();
                match client.response().await {
                    Ok(response) if farewell => assert_eq!(response.body, expected(target)),
                    Err(_) if !farewell => {}
                    other => panic!("{farewell}: {other:?}"),
                }
            },
        );
    }
}

/// Status and text of what a client gets.
async fn failure() -> (u16, String) {
    let response = Client::new().await.get("/x?size=3", "").await;
    (response.status, String::from_utf8_lossy(&response.body).into_owned())
}

#[test]
fn each_invalid_certificate_has_its_own_error() {
    let expired = {
        let mut params = CertificateParams::new(vec!["site".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        let (directory, kind) = (SIGNED.directory(), &rcgen::PKCS_ECDSA_P256_SHA256);
        SIGNED.authority.sign(directory, "expired", kind, &params)
    };
    let unknown = Authority::new().issue(SIGNED.directory(), "unknown", &["site"]);
    for (files, word) in [
        (expired, "expired"),
        (unknown, "not trusted"),
        (files("other", &["elsewhere"]), "another name"),
    ] {
        each_way(
            || secured(&trusting()),
            async |world: Rc<World>| {
                Front::start(&files, true);
                let (status, text) = failure().await;
                assert_eq!(status, 502);
                assert!(text.contains(word), "{text}");
                assert!(world.counter("upstream_tls_failures") > 0);
            },
        );
        // If configured not to verify, it does not.
        let blind = UpstreamTls { verify: false, ..UpstreamTls::default() };
        assert!(secured(&blind).warnings()[0].contains("verify = false"));
        each_way(
            || secured(&blind),
            async |_: Rc<World>| {
                Front::start(&files, true);
                assert_eq!(failure().await.0, 200);
            },
        );
    }
}

#[test]
fn an_upstream_that_speaks_no_tls_is_a_failure() {
    each_way(
        || secured(&trusting()),
        async |_: Rc<World>| {
            let listener = TcpListener::bind(address(SECURE), &ListenOptions::default()).unwrap();
            let serving = async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                    let _ = stream.read(&mut [0; 4000]).await;
                }
            };
            runtime::spawn(serving).detach();
            let (status, text) = failure().await;
            assert!(status == 502 && text.contains("handshake"), "{status} {text}");
        },
    );
}

#[test]
fn a_forward_proxy_asks_for_https_urls_over_tls() {
    let with = || {
        let https = ClientTls::load(&trusting()).unwrap();
        let mut config = Config { https: Some(https), ..forward() };
        config.forward.allow_to = vec!["10.0.0.0/8".parse().unwrap()];
        config
    };
    each_way(with, async |world: Rc<World>| {
        Front::start(&files("named", &["10.0.0.2"]), true);
        for _ in 0..2 {
            let mut client = Client::new().await;
            let target = "/f?size=50&cc=max-age=60";
            let request =
                format!("GET https://10.0.0.2{target} HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n");
            assert_eq!(client.ask(request.as_bytes()).await.body, expected(target));
        }
        assert_eq!(world.counter("hits"), 1);
        assert_eq!(world.counter("upstream_tls_handshakes"), 1);
    });
    each_way(forward, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let request = b"GET https://10.0.0.2/x HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n";
        assert_eq!(client.ask(request).await.status, 400);
    });
}

//! Certificates that come while the server runs, and the checks of the authority that issues them.

use std::rc::Rc;
use std::sync::Arc;

use config::{Action, Host, ListenerTls, Route};
use runtime::sim;
use rustls::ClientConfig;
use server::{Config, ServerTls};
use transport::tls::ChallengeAnswer;

use crate::tls_client::{SIGNED, TlsClient, client_config};
use crate::world::{Client, World, each_version, reverse, run};

const CHECKED: &str = "/.well-known/acme-challenge/t0ken";

/// Everything leads elsewhere.
fn moved() -> Config {
    let mut config = reverse();
    let action =
        Action::Redirect { status: 308, location: "https://else.test".into(), with_path: true };
    let mut route = Route::to("origin");
    (route.action, route.hosts) = (action, vec![Host::Exact("site".into())]);
    config.routes = vec![route];
    config
}

#[test]
fn a_check_by_http_is_answered_before_routes_and_only_with_our_token() {
    each_version(&sim::Options::new(1), &moved(), async |world: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get(CHECKED, "").await.status, 308, "there is no token yet");
        let (token, content) = ("t0ken".to_owned(), "t0ken.thumbprint".to_owned());
        let answer = ChallengeAnswer::Http { token, content };
        world.issued().set_answer(Some(&answer)).unwrap();
        let answered = client.get(CHECKED, "").await;
        assert_eq!((answered.status, &*answered.body), (200, &b"t0ken.thumbprint"[..]));
        assert_eq!(client.head(CHECKED, "").await.status, 200);
        for other in [
            "/.well-known/acme-challenge/t0ke",
            "/.well-known/acme-challenge/t0ken/",
            "/.well-known/acme-challenge/%740ken",
            "/.well-known/acme-challenge/x/../t0ken",
            "/.well-known/acme-challenge/",
        ] {
            assert_ne!(client.get(other, "").await.status, 200, "{other}");
        }
        world.issued().set_answer(None).unwrap();
        assert_eq!(client.get(CHECKED, "").await.status, 308, "it was not stored");
        assert_eq!(world.counter("hits"), 0);
    });
}

/// The certificate and the key of a name, as one text.
fn pem(name: &str, file: &str) -> String {
    let files = SIGNED.authority.issue(SIGNED.directory(), file, &[name]);
    [files.chain, files.key].map(|path| std::fs::read_to_string(path).unwrap()).concat()
}

fn issuing() -> Config {
    let mut config = reverse();
    for listener in &mut config.listeners {
        let tls = ListenerTls { issued: vec!["site".to_owned()], ..ListenerTls::default() };
        listener.tls = Some(ServerTls::load(&tls, listener.http2).unwrap());
    }
    config
}

fn offering(config: &ClientConfig, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[test]
fn a_certificate_is_used_from_the_next_handshake_on() {
    run(sim::Options::new(1), issuing(), async |world: Rc<World>| {
        let config = client_config();
        assert!(TlsClient::connect(&config).await.is_refused().await, "there is none yet");
        world.issued().put("site", pem("site", "first").as_bytes()).unwrap();
        let mut client = TlsClient::new(&config).await;
        assert_eq!(client.get("/a?size=10", "").await.status, 200);
        let first = client.connection.peer_certificates().unwrap()[0].clone();
        // A renewal: open connections go on, and new ones get the new certificate. Sessions are
        // resumed without a certificate.
        world.issued().put("site", pem("site", "second").as_bytes()).unwrap();
        assert_eq!(client.get("/a?size=10", "").await.status, 200);
        let renewed = TlsClient::new(&client_config()).await;
        assert_ne!(renewed.connection.peer_certificates().unwrap()[0], first);
        let mut resumed = TlsClient::new(&config).await;
        assert_eq!(resumed.get("/a?size=10", "").await.status, 200);
        assert_eq!(world.counter("tls_resumptions"), 1);
        // A name that was taken out.
        world.issued().keep_only(&[]);
        assert!(TlsClient::connect(&client_config()).await.is_refused().await);
    });
}

#[test]
fn a_check_by_tls_sees_its_certificate_and_nothing_else() {
    run(sim::Options::new(1), issuing(), async |world: Rc<World>| {
        world.issued().put("site", pem("site", "usual").as_bytes()).unwrap();
        let checking = offering(&client_config(), &["acme-tls/1"]);
        assert!(TlsClient::connect(&checking).await.is_refused().await, "there is no check");
        let (name, checked) = ("site".to_owned(), pem("site", "checked"));
        let answer = ChallengeAnswer::Tls { name, pem: checked };
        world.issued().set_answer(Some(&answer)).unwrap();
        let mut client = TlsClient::new(&checking).await;
        assert_eq!(client.connection.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        let shown = client.connection.peer_certificates().unwrap()[0].clone();
        assert!(!client.take().await, "the connection ends with the handshake");
        assert_eq!(world.counter("tls_validations"), 1);
        // Clients get the usual certificate, also those that offer this protocol among others.
        for offered in [&["http/1.1"][..], &["acme-tls/1", "http/1.1"]] {
            let mut client = TlsClient::new(&offering(&client_config(), offered)).await;
            assert_ne!(client.connection.peer_certificates().unwrap()[0], shown);
            assert_eq!(client.connection.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(client.get("/a?size=10", "").await.status, 200);
        }
        world.issued().set_answer(None).unwrap();
        assert!(TlsClient::connect(&checking).await.is_refused().await);
    });
}

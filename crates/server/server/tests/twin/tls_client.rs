//! A simulated client that speaks TLS, and lets the test decide how its records are cut.

use std::io::{Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use config::ListenerTls;
use rcgen::CertificateParams;
use runtime::net::TcpStream;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection};
use server::{Config, ServerTls};

use crate::certificates::Authority;
use crate::common::{Response, read_response};
use crate::world::{PROXY, address, reverse};

/// Who signs, and what a listener serves with; made once, as keys cost time.
pub(crate) struct Signed {
    pub(crate) authority: Authority,
    listener: ListenerTls,
    directory: tempfile::TempDir,
}

pub(crate) static SIGNED: LazyLock<Signed> = LazyLock::new(|| {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("root.pem"), &authority.root_pem).unwrap();
    let files = authority.issue(directory.path(), "site", &["site"]);
    let listener = ListenerTls { certificates: vec![files], ..ListenerTls::default() };
    Signed { authority, listener, directory }
});

/// The same for HTTP/3. Signatures with Ed25519 have one length: the datagrams of a run have the
/// same sizes when it is repeated.
pub(crate) static SIGNED_HTTP3: LazyLock<Arc<ServerTls>> = LazyLock::new(|| {
    let params = CertificateParams::new(vec!["site".to_owned()]).unwrap();
    let algorithm = &rcgen::PKCS_ED25519;
    let files = SIGNED.authority.sign(SIGNED.directory(), "http3", algorithm, &params);
    let listener = ListenerTls { certificates: vec![files], ..ListenerTls::default() };
    ServerTls::load(&listener, true).unwrap()
});

impl Signed {
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn server(&self, http2: bool) -> Arc<ServerTls> {
        ServerTls::load(&self.listener, http2).unwrap()
    }
}

/// Reverse mode behind TLS.
pub(crate) fn reverse_tls() -> Config {
    let mut config = reverse();
    for listener in &mut config.listeners {
        listener.tls = Some(SIGNED.server(listener.http2));
    }
    config
}

/// A client that trusts our authority, and remembers its sessions.
pub(crate) fn client_config() -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(SIGNED.authority.roots())
        .with_no_client_auth();
    Arc::new(config)
}

/// A connection of TLS.
pub(crate) struct TlsClient {
    pub(crate) stream: Rc<TcpStream>,
    pub(crate) connection: ClientConnection,
    buf: Vec<u8>,
    /// The connection has ended; with a close_notify before, or not.
    pub(crate) ended: Option<bool>,
}

impl TlsClient {
    /// Connected, and nothing said yet.
    pub(crate) async fn connect(config: &Arc<ClientConfig>) -> TlsClient {
        let stream = Rc::new(TcpStream::connect(address(PROXY)).await.unwrap());
        let name = "site".try_into().unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        TlsClient { stream, connection, buf: Vec::new(), ended: None }
    }

    /// Connected and through the handshake.
    pub(crate) async fn new(config: &Arc<ClientConfig>) -> TlsClient {
        let mut client = TlsClient::connect(config).await;
        client.handshake().await;
        client
    }

    pub(crate) async fn handshake(&mut self) {
        while self.connection.is_handshaking() {
            self.flush().await;
            if self.connection.is_handshaking() {
                assert!(self.take().await, "the handshake is answered");
            }
        }
        self.flush().await;
    }

    /// The records that are to be sent.
    pub(crate) fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).unwrap();
        }
        records
    }

    async fn flush(&mut self) {
        let records = self.records();
        // A proxy that has closed is found out by reading.
        let _ = self.stream.write_all(&records).await;
    }

    /// Reads once; false at the end.
    pub(crate) async fn take(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        let read = self.stream.read(&mut piece).await.unwrap_or(0);
        let mut bytes = &piece[..read];
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes).unwrap() == 0 {
                break;
            }
            let state = self.connection.process_new_packets().unwrap();
            let from = self.buf.len();
            self.buf.resize(from + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut self.buf[from..]).unwrap();
            if state.peer_has_closed() {
                self.ended = Some(true);
            }
        }
        if read == 0 {
            self.ended.get_or_insert(false);
        }
        self.ended.is_none()
    }

    /// Waits for an alert, within the handshake or, as TLS 1.3 has it, behind our side of it.
    pub(crate) async fn is_refused(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        loop {
            self.flush().await;
            let read = self.stream.read(&mut piece).await.unwrap_or(0);
            if read == 0 {
                return false;
            }
            self.connection.read_tls(&mut &piece[..read]).unwrap();
            if self.connection.process_new_packets().is_err() {
                return true;
            }
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.connection.writer().write_all(bytes).unwrap();
        self.flush().await;
    }

    /// Sends pieces of these lengths, in turns, each in its own record, and reads the responses
    /// while it sends.
    pub(crate) async fn ask_in_records(
        &mut self,
        mut bytes: &[u8],
        pieces: &[usize],
        answers: usize,
    ) -> Vec<Response> {
        let mut all = Vec::new();
        for piece in pieces.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(*piece));
            self.connection.writer().write_all(piece).unwrap();
            all.extend(self.records());
            bytes = rest;
        }
        let stream = Rc::clone(&self.stream);
        let reading = async {
            let mut got = Vec::new();
            for _ in 0..answers {
                got.push(self.response().await.expect("a response"));
            }
            got
        };
        let (sent, got) = runtime::join(stream.write_all(&all), reading).await;
        sent.unwrap();
        got
    }

    pub(crate) async fn get(&mut self, target: &str, fields: &str) -> Response {
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
        self.send(request.as_bytes()).await;
        self.response().await.expect("a response")
    }

    /// The next response; `None` when the connection ends before.
    pub(crate) async fn response(&mut self) -> Option<Response> {
        loop {
            let ended = self.ended == Some(true);
            if let Ok((response, used)) = read_response(&self.buf, false, ended) {
                self.buf.drain(..used);
                return Some(response);
            }
            if self.ended.is_some() || !self.take().await && self.buf.is_empty() {
                return None;
            }
        }
    }

    /// Waits for the end: true with a close_notify and nothing before it.
    pub(crate) async fn ends_well(&mut self) -> bool {
        while self.take().await {}
        self.buf.is_empty() && self.ended == Some(true)
    }
}

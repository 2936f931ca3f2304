//! Records from one end of our code to another, and to rustls.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::UnbufferedClientConnection;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::UnbufferedServerConnection;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::super::handshake::{Handshake, Side};
use super::*;

/// A certificate with its key, and the root.
static CERTIFICATE: LazyLock<(CertificateDer<'static>, Vec<u8>, CertificateDer<'static>)> =
    LazyLock::new(|| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_key = KeyPair::generate().unwrap();
        let root = params.self_signed(&root_key).unwrap().der().clone();
        let issuer = Issuer::new(params, root_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["site".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
        (certificate, key.serialize_der(), root)
    });

type Version = &'static SupportedProtocolVersion;
/// What a client sends, and the alert that it gets.
type Case<'c> = (Version, &'c [(ContentType, &'c [u8])], AlertDescription);

fn configs(version: Version, provider: CryptoProvider) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let (certificate, key, root) = &*CERTIFICATE;
    let provider = Arc::new(provider);
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.enable_secret_extraction = true;
    (Arc::new(client), Arc::new(server))
}

fn our_client(config: &Arc<ClientConfig>) -> Handshake {
    let client = UnbufferedClientConnection::new(Arc::clone(config), "site".try_into().unwrap());
    Handshake::new(Side::Client(client.unwrap()), Vec::new())
}

fn our_server(config: &Arc<ServerConfig>) -> Handshake {
    let server = UnbufferedServerConnection::new(Arc::clone(config)).unwrap();
    Handshake::new(Side::Server(server), Vec::new())
}

fn all(version: Version) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    configs(version, aws_lc_rs::default_provider())
}

/// Both sides ours.
fn pair(version: Version) -> (Records, Records) {
    let (client, server) = all(version);
    let (mut client, mut server) = (our_client(&client), our_server(&server));
    let mut done = [false; 2];
    while done != [true; 2] {
        done = [client.advance().unwrap(), server.advance().unwrap()];
        server.incoming.extend_from_slice(client.outgoing.rest());
        client.incoming.extend_from_slice(server.outgoing.rest());
        client.outgoing.advance(client.outgoing.rest().len());
        server.outgoing.advance(server.outgoing.rest().len());
        done = [done[0] && client.advance().unwrap(), done[1] && server.advance().unwrap()];
    }
    let (mut client, _, tickets) = client.finish().unwrap();
    let (server, _, rest) = server.finish().unwrap();
    assert!(rest.is_empty());
    opened(&mut client, &tickets).unwrap();
    (client, server)
}

/// Ours, and rustls.
fn pair_with_rustls(mut ours: Handshake, mut theirs: Connection) -> (Records, Connection) {
    loop {
        theirs.write_tls(&mut ours.incoming).unwrap();
        let done = ours.advance().unwrap();
        deliver(&mut theirs, ours.outgoing.rest());
        ours.outgoing.advance(ours.outgoing.rest().len());
        if done && !theirs.is_handshaking() && !theirs.wants_write() {
            break;
        }
    }
    let (mut records, _, rest) = ours.finish().unwrap();
    opened(&mut records, &rest).unwrap();
    (records, theirs)
}

fn deliver(theirs: &mut Connection, mut bytes: &[u8]) -> Vec<u8> {
    let mut got = Vec::new();
    while !bytes.is_empty() {
        theirs.read_tls(&mut bytes).unwrap();
        let state = theirs.process_new_packets().unwrap();
        let from = got.len();
        got.resize(from + state.plaintext_bytes_to_read(), 0);
        theirs.reader().read_exact(&mut got[from..]).unwrap();
    }
    got
}

/// The data in some records, and what is to be sent because of them.
fn opened(records: &mut Records, bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let mut bytes = bytes.to_vec();
    let (mut data, mut answers, mut rest) = (Vec::new(), Vec::new(), &mut bytes[..]);
    while let Some(length) = record_bytes(rest)? {
        let (record, later) = rest.split_at_mut(length);
        match records.open(record)? {
            Opened::Data(some) => data.extend_from_slice(some),
            Opened::Answer(record) => answers.extend(record),
            Opened::Nothing | Opened::End => {}
        }
        rest = later;
    }
    Ok((data, answers))
}

fn exchange(ours: &mut Records, theirs: &mut Connection, times: u8) {
    for time in 0..times {
        let data = vec![time; 1 + usize::from(time) * 3000];
        let sealed = ours.seal(data[..].into()).unwrap();
        assert_eq!(deliver(theirs, &sealed), data);
        theirs.writer().write_all(&data).unwrap();
        let mut bytes = Vec::new();
        while theirs.wants_write() {
            theirs.write_tls(&mut bytes).unwrap();
        }
        assert_eq!(opened(ours, &bytes).unwrap().0, data);
    }
}

#[test]
fn rustls_reads_and_writes_the_same_records_with_every_cipher() {
    for suite in aws_lc_rs::default_provider().cipher_suites {
        let version = suite.version();
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![suite];
        if suite.suite().as_str().unwrap().contains("RSA") {
            continue; // the key is one of ECDSA
        }
        let (client, server) = configs(version, provider);
        let theirs = ServerConnection::new(Arc::clone(&server)).unwrap();
        let as_client = (our_client(&client), Connection::Server(theirs));
        let theirs = ClientConnection::new(client, "site".try_into().unwrap()).unwrap();
        for (ours, theirs) in [as_client, (our_server(&server), Connection::Client(theirs))] {
            let (mut ours, mut theirs) = pair_with_rustls(ours, theirs);
            exchange(&mut ours, &mut theirs, 5);
            if version.version == TLS13.version {
                theirs.refresh_traffic_keys().unwrap();
                exchange(&mut ours, &mut theirs, 2);
                assert_eq!((ours.owes_keys, ours.sealed), (false, 1));
            }
            let end = ours.close_notify().unwrap();
            theirs.read_tls(&mut &end[..]).unwrap();
            assert!(theirs.process_new_packets().unwrap().peer_has_closed());
        }
    }
}

#[test]
fn a_key_is_not_used_too_often() {
    let (client, server) = all(&TLS13);
    let theirs = ClientConnection::new(client, "site".try_into().unwrap()).unwrap();
    let (mut ours, mut theirs) = pair_with_rustls(our_server(&server), Connection::Client(theirs));
    ours.sealed_max = ours.sealed + 3;
    // The peer is asked for new keys too.
    exchange(&mut ours, &mut theirs, 3);
    assert_eq!((ours.sealed, ours.opened), (1, 1));
    ours.sealed_max = u64::MAX;
    exchange(&mut ours, &mut theirs, 3);

    let (_, mut ours) = pair(&TLS12);
    ours.sealed_max = ours.sealed + 3;
    for is_possible in [true, true, false, false] {
        assert_eq!(ours.seal(b"data"[..].into()).is_ok(), is_possible);
    }
    assert!(ours.close_notify().is_ok());
}

fn record(from: &mut Records, kind: ContentType, payload: &[u8]) -> Vec<u8> {
    from.seal_any(kind, payload.into()).unwrap()
}

/// How often the record is taken.
fn taken(from: &mut Records, to: &mut Records, kind: ContentType, payload: &[u8]) -> u8 {
    (0..100).find(|_| opened(to, &record(from, kind, payload)).is_err()).unwrap()
}

#[test]
fn what_costs_work_and_brings_no_data_is_limited() {
    use ContentType::{Alert, ApplicationData, Handshake};
    for version in [&TLS12, &TLS13] {
        let (mut client, mut server) = pair(version);
        let empty = TLS_EMPTY_RECORDS_MAX;
        assert_eq!(taken(&mut client, &mut server, ApplicationData, b""), empty);
    }
    let (mut client, mut server) = pair(&TLS13);
    for _ in 0..TLS_KEY_UPDATES_MAX {
        opened(&mut server, &client.renew().unwrap()).unwrap();
    }
    assert!(opened(&mut server, &client.renew().unwrap()).is_err());

    let (mut client, mut server) = pair(&TLS12);
    let hello = [CLIENT_HELLO, 0, 0, 1, 0];
    // The refusal of a renegotiation is an alert that does not end the connection.
    let (_, refusal) = opened(&mut server, &record(&mut client, Handshake, &hello)).unwrap();
    assert_eq!(opened(&mut client, &refusal), Ok((Vec::new(), Vec::new())));
    assert_eq!(client.warnings, 1);
    assert_eq!(taken(&mut client, &mut server, Handshake, &hello), TLS_RENEGOTIATIONS_MAX - 1);
    let (mut client, mut server) = pair(&TLS12);
    assert_eq!(taken(&mut client, &mut server, Alert, &[WARNING, 90]), TLS_WARNINGS_MAX);
}

#[test]
fn what_is_not_allowed_ends_the_connection_with_an_alert() {
    use ContentType::{Alert, ApplicationData, ChangeCipherSpec, Handshake};
    let update = &[24, 0, 0, 1, 0][..];
    let ticket = &[4, 0, 0, 0][..];
    let cases: [Case<'_>; 11] = [
        (&TLS13, &[(Handshake, &[update, &[24]].concat())], AlertDescription::UnexpectedMessage),
        (
            &TLS13,
            &[(Handshake, &update[..2]), (ApplicationData, b"data")],
            AlertDescription::UnexpectedMessage,
        ),
        (&TLS13, &[(Handshake, &[24, 0, 0, 1, 7])], AlertDescription::IllegalParameter),
        (&TLS13, &[(Handshake, &[24, 1, 0, 0])], AlertDescription::DecodeError),
        (&TLS13, &[(Handshake, ticket)], AlertDescription::UnexpectedMessage),
        (&TLS13, &[(Handshake, &[CLIENT_HELLO, 0, 0, 0])], AlertDescription::UnexpectedMessage),
        (&TLS12, &[(Handshake, update)], AlertDescription::UnexpectedMessage),
        (&TLS12, &[(Handshake, &[HELLO_REQUEST, 0, 0, 0])], AlertDescription::UnexpectedMessage),
        (&TLS12, &[(ChangeCipherSpec, &[1])], AlertDescription::UnexpectedMessage),
        (&TLS12, &[(Alert, &[WARNING])], AlertDescription::DecodeError),
        (&TLS13, &[(Alert, &[])], AlertDescription::DecodeError),
    ];
    for (at, (version, sent, expected)) in cases.into_iter().enumerate() {
        let (mut client, mut server) = pair(version);
        let bytes: Vec<u8> =
            sent.iter().flat_map(|(kind, payload)| record(&mut client, *kind, payload)).collect();
        let error = opened(&mut server, &bytes).expect_err("it is not allowed");
        let alert = server.alert_for(&error).unwrap();
        assert_eq!(opened(&mut client, &alert), Err(Error::AlertReceived(expected)), "{at}");
    }
    // The peer's alert is not answered.
    let (mut client, mut server) = pair(&TLS13);
    let alert = record(&mut client, Alert, &[FATAL, AlertDescription::AccessDenied.into()]);
    let error = opened(&mut server, &alert).unwrap_err();
    assert_eq!(error, Error::AlertReceived(AlertDescription::AccessDenied));
    assert_eq!(server.alert_for(&error), None);
    // A record that was damaged, repeated, or is in the clear.
    for version in [&TLS12, &TLS13] {
        let (mut client, mut server) = pair(version);
        let whole = client.seal(b"data"[..].into()).unwrap();
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(opened(&mut server, &damaged), Err(Error::DecryptError));
        assert_eq!(opened(&mut server, &whole).unwrap().0, b"data");
        assert_eq!(opened(&mut server, &whole), Err(Error::DecryptError));
        assert!(opened(&mut server, &[21, 3, 3, 0, 2, 1, 0]).is_err());
    }
}

#[test]
fn a_handshake_message_may_be_split() {
    let (mut client, mut server) = pair(&TLS13);
    let bytes: Vec<u8> = [24, 0, 0, 1, 1]
        .iter()
        .flat_map(|byte| record(&mut client, ContentType::Handshake, &[*byte]))
        .collect();
    opened(&mut server, &bytes).unwrap();
    assert!(server.owes_keys && server.message.is_empty() && server.opened == 0);
}

proptest! {
    #[test]
    fn any_bytes_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..300), tls13: bool) {
        let header = [23, 3, 3, 1, 0];
        let (_, mut server) = pair(if tls13 { &TLS13 } else { &TLS12 });
        let _ = opened(&mut server, &bytes);
        let mut record = [&header[..], &bytes].concat();
        let Ok(Some(length)) = record_bytes(&record) else { unreachable!() };
        prop_assert_eq!(length, 261);
        record.resize(length, 0);
        prop_assert!(server.open(&mut record).is_err());
    }
}

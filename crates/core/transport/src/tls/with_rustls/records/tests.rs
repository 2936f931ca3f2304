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
use super::super::stream::Pending;
use super::*;

/// Requests of a renegotiation.
const CLIENT_HELLO: u8 = 1;
const HELLO_REQUEST: u8 = 0;

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
pub(crate) fn pair(version: Version) -> (Records, Records) {
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
    while let Some(length) = record_bytes(rest)?.filter(|length| *length <= rest.len()) {
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
fn empty_records_do_not_make_key_updates_free_nor_key_updates_empty_records() {
    for ends_with_update in [true, false] {
        let (mut client, mut server) = pair(&TLS13);
        for round in 0..TLS_KEY_UPDATES_MAX + TLS_EMPTY_RECORDS_MAX {
            if round == TLS_KEY_UPDATES_MAX {
                // Data makes up for what came before it.
                let data = record(&mut client, ContentType::ApplicationData, b"data");
                assert_eq!(opened(&mut server, &data).unwrap().0, b"data");
            }
            opened(&mut server, &client.renew().unwrap()).unwrap();
            opened(&mut server, &record(&mut client, ContentType::ApplicationData, b"")).unwrap();
        }
        let last = match ends_with_update {
            true => client.renew().unwrap(),
            false => record(&mut client, ContentType::ApplicationData, b""),
        };
        assert!(opened(&mut server, &last).is_err());
    }
}

#[test]
fn a_message_is_judged_by_its_first_bytes_and_only_a_ticket_is_kept() {
    use ContentType::Handshake;
    let [_, middle, low] = (TLS_TICKET_BYTES_MAX as u32).to_be_bytes()[1..] else { unreachable!() };
    for (from_client, version, header, is_allowed) in [
        (true, &TLS13, [CLIENT_HELLO, 0, 16, 0], false),
        (true, &TLS13, [24, 0, 0, 2], false),
        (true, &TLS13, [4, 0, 16, 0], false),
        (true, &TLS12, [11, 0, 16, 0], false),
        (true, &TLS12, [CLIENT_HELLO, 1, 0, 1], false),
        (false, &TLS12, [HELLO_REQUEST, 0, 0, 1], false),
        (false, &TLS13, [24, 0, 0, 2], false),
        (false, &TLS13, [4, 0, middle, low + 1], false),
        (false, &TLS13, [4, 0, middle, low], true),
    ] {
        let (mut from, mut to) = pair(version);
        if !from_client {
            std::mem::swap(&mut from, &mut to);
        }
        opened(&mut to, &record(&mut from, Handshake, &header[..3])).unwrap();
        let last = opened(&mut to, &record(&mut from, Handshake, &header[3..]));
        assert_eq!(last.is_ok(), is_allowed, "{header:?}");
    }
    // A renegotiation is refused before its message is there, which is not kept.
    let (mut client, mut server) = pair(&TLS12);
    let begin = [&[CLIENT_HELLO, 0, 200, 0][..], &[7; 1000]].concat();
    let (_, refusal) = opened(&mut server, &record(&mut client, Handshake, &begin)).unwrap();
    assert!(!refusal.is_empty());
    for _ in 0..3 {
        assert!(server.message.is_none());
        opened(&mut server, &record(&mut client, Handshake, &[7; 16_000])).unwrap();
    }
    opened(&mut server, &record(&mut client, Handshake, &[7; 200 * 256 - 49_000])).unwrap();
    let data = record(&mut client, ContentType::ApplicationData, b"data");
    assert_eq!(opened(&mut server, &data).unwrap().0, b"data");
    // Nothing may come within it.
    let (mut client, mut server) = pair(&TLS12);
    opened(&mut server, &record(&mut client, Handshake, &begin)).unwrap();
    let data = record(&mut client, ContentType::ApplicationData, b"data");
    assert!(opened(&mut server, &data).is_err());
}

/// A session ticket whose own length is `length`.
fn ticket(length: u16) -> Vec<u8> {
    let [high, low] = length.to_be_bytes();
    let [_, a, b, c] = (u32::from(length) + 13).to_be_bytes();
    let head = [4, a, b, c, 0, 0, 14, 16, 1, 2, 3, 4, 0, high, low];
    [&head[..], &vec![9; length.into()], &[0, 0]].concat()
}

/// Records with session tickets, `bytes` or more in all.
pub(crate) fn tickets(from: &mut Records, bytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    while records.len() < bytes {
        records.extend(record(from, ContentType::Handshake, &ticket(16_000)));
    }
    records
}

#[test]
fn session_tickets_are_limited_also_many_in_one_record() {
    use ContentType::{ApplicationData, Handshake};
    for in_record in [1, 8] {
        let (mut client, mut server) = pair(&TLS13);
        let data = record(&mut server, ApplicationData, b"data");
        opened(&mut client, &data).unwrap();
        let tickets = ticket(30).repeat(in_record);
        let most = TLS_TICKETS_MAX / in_record as u8;
        assert_eq!(taken(&mut server, &mut client, Handshake, &tickets), most);
    }
    // Cut anywhere, and nothing is kept afterwards.
    let (mut client, mut server) = pair(&TLS13);
    let tickets = [ticket(300), ticket(1)].concat();
    for cut in [1, 4, 5, 300, ticket(300).len(), ticket(300).len() + 2] {
        let (one, other) = tickets.split_at(cut);
        opened(&mut client, &record(&mut server, Handshake, one)).unwrap();
        opened(&mut client, &record(&mut server, Handshake, other)).unwrap();
        assert!(client.message.is_none());
    }
}

#[test]
fn a_record_is_as_long_as_rustls_accepts_and_a_longer_one_ends_the_handshake() {
    let length = TLS_RECORD_BYTES_MAX - HEADER_BYTES;
    let header = |length: usize| [22, 3, 3, (length >> 8) as u8, length as u8];
    assert_eq!(record_bytes(&header(length)), Ok(Some(TLS_RECORD_BYTES_MAX)));
    assert!(record_bytes(&header(length + 1)).is_err());
    for (length, is_possible) in [(length, true), (length + 1, false)] {
        let mut server = our_server(&all(&TLS13).1);
        server.incoming.extend_from_slice(&header(length));
        assert_eq!(server.advance().is_ok(), is_possible);
        // The alert of rustls.
        assert_eq!(server.outgoing.is_empty(), is_possible);
    }
}

/// What a client sends that knows another server with this name and sends early data.
fn hello_with_early_data(data: &[&[u8]]) -> (Connection, Vec<u8>) {
    let (client, other) = all(&TLS13);
    let (mut client, mut other) = (ClientConfig::clone(&client), ServerConfig::clone(&other));
    client.enable_early_data = true;
    other.max_early_data_size = 16 * 1024;
    let client = Arc::new(client);
    let connect = || ClientConnection::new(Arc::clone(&client), "site".try_into().unwrap());
    let mut first = Connection::Client(connect().unwrap());
    let mut other = Connection::Server(ServerConnection::new(Arc::new(other)).unwrap());
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while first.wants_write() {
            first.write_tls(&mut bytes).unwrap();
        }
        deliver(&mut other, &bytes);
        bytes.clear();
        while other.wants_write() {
            other.write_tls(&mut bytes).unwrap();
        }
        deliver(&mut first, &bytes);
    }
    let mut second = connect().unwrap();
    let mut bytes = Vec::new();
    second.write_tls(&mut bytes).unwrap();
    for data in data {
        second.early_data().unwrap().write_all(data).unwrap();
        while second.wants_write() {
            second.write_tls(&mut bytes).unwrap();
        }
    }
    (Connection::Client(second), bytes)
}

#[test]
fn early_data_is_skipped_and_tried_again_only_with_another_record() {
    let (mut client, hello) = hello_with_early_data(&[&[1; 3000], &[2; 500]]);
    assert!(hello.len() > 3700);
    let mut server = our_server(&all(&TLS13).1);
    server.incoming.extend_from_slice(&hello);
    assert!(!server.advance().unwrap());
    deliver(&mut client, server.outgoing.rest());
    server.outgoing = Pending::default();
    let mut finish = Vec::new();
    client.writer().write_all(b"again").unwrap();
    while client.wants_write() {
        client.write_tls(&mut finish).unwrap();
    }
    // Each byte is a step. Rustls tries as many bytes as early data may have, and no more.
    let mut is_done = false;
    for byte in finish {
        server.incoming.push(byte);
        is_done = is_done || server.advance().unwrap();
    }
    assert!(is_done);
    let (mut records, _, rest) = server.finish().unwrap();
    assert_eq!(opened(&mut records, &rest).unwrap().0, b"again");
}

#[test]
fn early_data_without_bytes_is_not_tried_again_and_again() {
    let (_, mut hello) = hello_with_early_data(&[b"early"]);
    let mut server = our_server(&all(&TLS13).1);
    hello.extend([23, 3, 3, 0, 0]);
    server.incoming.extend_from_slice(&hello);
    assert!(server.advance().is_err());
}

#[test]
fn a_handshake_message_may_be_split() {
    let (mut client, mut server) = pair(&TLS13);
    let bytes: Vec<u8> = [24, 0, 0, 1, 1]
        .iter()
        .flat_map(|byte| record(&mut client, ContentType::Handshake, &[*byte]))
        .collect();
    opened(&mut server, &bytes).unwrap();
    assert!(server.owes_keys && server.message.is_none() && server.opened == 0);
}

/// What a peer does after the handshake.
#[derive(Clone, Debug)]
enum Act {
    Record(ContentType, Vec<u8>),
    /// New keys, announced in two records cut here.
    Renew(usize),
}

fn act() -> impl Strategy<Value = Act> {
    use ContentType::{Alert, ApplicationData, ChangeCipherSpec, Handshake};
    let bytes = || proptest::collection::vec(any::<u8>(), 0..6);
    let (ticket, whole) = (ticket(3), ticket(3));
    let length = ticket.len();
    let of_ticket = (0..=length, 0..=length)
        .prop_map(move |(a, b)| Act::Record(Handshake, ticket[a.min(b)..a.max(b)].to_vec()));
    let handshake = (proptest::sample::select(vec![0, 2, 4, 20, 24]), bytes())
        .prop_map(|(kind, rest)| Act::Record(Handshake, [&[kind, 0, 0], &rest[..]].concat()));
    let alert = (0..3_u8, proptest::sample::select(vec![0, 20, 90, 100]), bytes()).prop_map(
        |(level, alert, more)| {
            let more = more.get(4..).unwrap_or_default();
            Act::Record(Alert, [&[level, alert], more].concat())
        },
    );
    prop_oneof![
        8 => bytes().prop_map(|bytes| Act::Record(ApplicationData, bytes)),
        4 => (0..=5_usize).prop_map(Act::Renew),
        1 => of_ticket,
        1 => Just(Act::Record(Handshake, whole)),
        1 => handshake,
        1 => Just(Act::Record(Handshake, vec![HELLO_REQUEST, 0, 0, 0])),
        1 => alert,
        1 => Just(Act::Record(ChangeCipherSpec, vec![1])),
    ]
}

/// The records of an act.
fn perform(act: &Act, from: &mut Records) -> Vec<Vec<u8>> {
    match act {
        Act::Record(kind, payload) => vec![record(from, *kind, payload)],
        Act::Renew(_) if !from.is_tls13() => Vec::new(),
        Act::Renew(cut) => {
            let (one, other) = [24, 0, 0, 1, 0].split_at(*cut);
            let records = [one, other].map(|part| record(from, ContentType::Handshake, part));
            from.renew().unwrap(); // goes nowhere: it has been announced
            records.into()
        }
    }
}

/// Data and whether the peer has ended; the error, if any, ends it.
fn by_rustls(theirs: &mut Connection, record: &[u8]) -> Result<(Vec<u8>, bool), Error> {
    theirs.read_tls(&mut &record[..]).unwrap();
    let state = theirs.process_new_packets()?;
    let mut data = vec![0; state.plaintext_bytes_to_read()];
    theirs.reader().read_exact(&mut data).unwrap();
    Ok((data, state.peer_has_closed()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The same from two peers, to us and to rustls. We are stricter: we judge a message by its
    /// first bytes.
    #[test]
    fn rustls_takes_the_same_records(
        acts in proptest::collection::vec(act(), 1..20), tls13: bool, from_client: bool,
    ) {
        let version = if tls13 { &TLS13 } else { &TLS12 };
        let (mut to_us, mut us) = pair(version);
        let (client, server) = all(version);
        let (ours, theirs) = if from_client {
            (our_client(&client), ServerConnection::new(server).unwrap().into())
        } else {
            std::mem::swap(&mut to_us, &mut us);
            let theirs = ClientConnection::new(client, "site".try_into().unwrap()).unwrap();
            (our_server(&server), theirs.into())
        };
        let (mut to_them, mut them) = pair_with_rustls(ours, theirs);
        for record_pair in acts.iter().flat_map(|act| {
            perform(act, &mut to_us).into_iter().zip(perform(act, &mut to_them))
        }) {
            let (mut to_us, to_them) = record_pair;
            let expected = by_rustls(&mut them, &to_them);
            let got = us.open(&mut to_us).map(|opened| match opened {
                Opened::Data(data) => (data.to_vec(), false),
                Opened::End => (Vec::new(), true),
                Opened::Nothing | Opened::Answer(_) => (Vec::new(), false),
            });
            match (got, expected) {
                (Ok(got), Ok(expected)) => {
                    prop_assert_eq!(&got, &expected);
                    if got.1 {
                        return Ok(());
                    }
                }
                (Err(_), Err(_)) => return Ok(()),
                // Rustls waits for the whole of a message that it will refuse.
                (Err(Error::InvalidMessage(_)), Ok((data, false))) => {
                    prop_assert!(data.is_empty());
                    return Ok(());
                }
                (got, expected) => prop_assert!(false, "{:?}, but rustls: {:?}", got, expected),
            }
        }
    }

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

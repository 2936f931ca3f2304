//! The records of a connection after its handshake (RFC 8446, 5 and RFC 5246, 6.2).
//!
//! ```text
//!   record --open--> data | nothing (a ticket, new keys) | an answer to send | the peer's end
//!   data --seal--> record; before it new keys, if they are due
//! ```
//!
//! Why not rustls's connection: it keeps a buffer for records, the state of the handshake and that
//! of QUIC, 6 KB in all. Rustls does the handshake, derives the keys and encrypts; it hands these
//! over by the interface for the kernel's TLS.
//!
//! What never happens: a sequence number is used twice with a key; a message may follow new keys in
//! the record that announced them; a peer makes us work without limit and without data.

use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets,
    HandshakeType, InvalidMessage, PeerMisbehaved, ProtocolVersion, SupportedCipherSuite,
};

use crate::limits::{
    TLS_EMPTY_RECORDS_MAX, TLS_HANDSHAKE_BYTES_MAX, TLS_KEY_UPDATES_MAX, TLS_RECORD_BYTES_MAX,
    TLS_RENEGOTIATIONS_MAX, TLS_TICKET_BYTES_MAX, TLS_TICKETS_MAX, TLS_WARNINGS_MAX,
};

/// The header of a record: its type, its version and its length.
pub(super) const HEADER_BYTES: usize = 5;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
/// The type and the length of a handshake message.
const MESSAGE_HEADER_BYTES: usize = 4;

/// What derives further keys, and takes the tickets of a server.
pub(super) enum Session {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Session {
    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Session::Client(session) => session.negotiated_cipher_suite(),
            Session::Server(session) => session.negotiated_cipher_suite(),
        }
    }
}

/// Both directions of a connection.
pub(super) struct Records {
    session: Session,
    opening: Box<dyn MessageDecrypter>,
    opened: u64,
    sealing: Box<dyn MessageEncrypter>,
    sealed: u64,
    /// How many records may be sealed with one key.
    sealed_max: u64,
    /// The peer wants us to use new keys before we send more data.
    owes_keys: bool,
    /// The beginning of a handshake message, which is not empty. Boxed, because messages are rare.
    #[allow(clippy::box_collection)]
    message: Option<Box<Vec<u8>>>,
    /// Bytes still to come of a request that has been refused.
    refused: usize,
    empty: u8,
    key_updates: u8,
    tickets: u8,
    renegotiations: u8,
    warnings: u8,
}

/// What a record was.
pub(super) enum Opened<'r> {
    Data(&'r [u8]),
    Nothing,
    /// A record to send.
    Answer(Vec<u8>),
    /// A close_notify.
    End,
}

/// The bytes of the first record; `None` if its header is incomplete.
pub(super) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let &[kind, major, _, high, low, ..] = bytes else { return Ok(None) };
    let length = usize::from(high) << 8 | usize::from(low);
    Err(match ContentType::from(kind) {
        ContentType::Unknown(_) => InvalidMessage::InvalidContentType,
        _ if major != 3 => InvalidMessage::UnknownProtocolVersion,
        kind if length == 0 && kind != ContentType::ApplicationData => {
            InvalidMessage::InvalidEmptyPayload
        }
        _ if HEADER_BYTES + length > TLS_RECORD_BYTES_MAX => InvalidMessage::MessageTooLarge,
        _ => return Ok(Some(HEADER_BYTES + length)),
    }
    .into())
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("suite", &self.suite().suite()).finish_non_exhaustive()
    }
}

impl Records {
    /// The keys are those at the end of the handshake.
    ///
    /// # Errors
    /// The cipher cannot be used.
    pub(super) fn new(session: Session, secrets: ExtractedSecrets) -> Result<Records, Error> {
        let suite = session.suite();
        let (sealed, sealing) = secrets.tx;
        let (opened, opening) = secrets.rx;
        let limit = match suite {
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
        };
        Ok(Records {
            session,
            opening: opener(suite, opening),
            opened,
            sealing: sealer(suite, sealing, sealed > 0)?,
            sealed,
            sealed_max: limit.min(u64::MAX - 1),
            owes_keys: false,
            message: None,
            refused: 0,
            empty: 0,
            key_updates: 0,
            tickets: 0,
            renegotiations: 0,
            warnings: 0,
        })
    }

    pub(super) fn suite(&self) -> SupportedCipherSuite {
        self.session.suite()
    }

    fn is_tls13(&self) -> bool {
        matches!(self.suite(), SupportedCipherSuite::Tls13(_))
    }

    /// Decrypts a whole record in place.
    ///
    /// # Errors
    /// The peer violates TLS, or has sent an alert that ends the connection. See
    /// [`Self::alert_for`].
    pub(super) fn open<'r>(&mut self, record: &'r mut [u8]) -> Result<Opened<'r>, Error> {
        let (header, payload) = record.split_at_mut(HEADER_BYTES);
        let kind = ContentType::from(header[0]);
        if self.is_tls13() && kind != ContentType::ApplicationData {
            return Err(unexpected("a record in the clear"));
        }
        let version = ProtocolVersion::from(u16::from_be_bytes([header[1], header[2]]));
        let record = InboundOpaqueMessage::new(kind, version, payload);
        let plain = self.opening.decrypt(record, self.opened)?;
        self.opened += 1;
        let is_within = self.message.is_some() || self.refused > 0;
        if is_within && plain.typ != ContentType::Handshake {
            return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
        }
        if plain.payload.is_empty() {
            count(&mut self.empty, TLS_EMPTY_RECORDS_MAX, PeerMisbehaved::TooManyEmptyFragments)?;
        } else if plain.typ == ContentType::ApplicationData {
            (self.empty, self.key_updates, self.tickets) = (0, 0, 0);
        }
        match plain.typ {
            ContentType::ApplicationData => Ok(Opened::Data(plain.payload)),
            ContentType::Alert => self.take_alert(plain.payload),
            ContentType::Handshake => self.take_handshake(plain.payload),
            _ => Err(unexpected("neither data nor an alert")),
        }
    }

    fn take_alert(&mut self, alert: &[u8]) -> Result<Opened<'static>, Error> {
        let &[level, description] = alert else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        let description = AlertDescription::from(description);
        match level {
            WARNING | FATAL if description == AlertDescription::CloseNotify => {
                return Ok(Opened::End);
            }
            WARNING => {}
            _ => return Err(Error::AlertReceived(description)),
        }
        let maximum = TLS_WARNINGS_MAX;
        count(&mut self.warnings, maximum, PeerMisbehaved::TooManyWarningAlertsReceived)?;
        match self.is_tls13() && description != AlertDescription::UserCanceled {
            true => Err(Error::AlertReceived(description)),
            false => Ok(Opened::Nothing),
        }
    }

    fn take_handshake(&mut self, mut part: &[u8]) -> Result<Opened<'static>, Error> {
        let skipped = part.len().min(self.refused);
        self.refused -= skipped;
        part = &part[skipped..];
        let mut messages = self.message.take().map_or_else(Vec::new, |beginning| *beginning);
        messages.extend_from_slice(part);
        let mut answer = Opened::Nothing;
        let mut from = 0;
        while let &[kind, high, middle, low, ..] = &messages[from..] {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            let kind = HandshakeType::from(kind);
            if length > self.longest(kind)? {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let start = from + MESSAGE_HEADER_BYTES;
            let end = start + length;
            if !self.is_tls13() {
                answer = Opened::Answer(self.refuse_renegotiation()?);
                self.refused = end.saturating_sub(messages.len());
                from = end.min(messages.len());
                continue;
            }
            let Some(message) = messages.get(start..end) else { break };
            from = end;
            match &mut self.session {
                Session::Client(session) if kind == HandshakeType::NewSessionTicket => {
                    count(&mut self.tickets, TLS_TICKETS_MAX, unexpected("a session ticket"))?;
                    session.handle_new_session_ticket(message)?;
                }
                // The peer seals its next record with a new key.
                _ if end < messages.len() => {
                    return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
                }
                _ => {
                    let request = message.first().copied();
                    self.take_keys(request)?;
                }
            }
        }
        messages.drain(..from);
        debug_assert!(self.refused == 0 || messages.is_empty(), "a refused message is skipped");
        debug_assert!(messages.len() <= TLS_HANDSHAKE_BYTES_MAX + MESSAGE_HEADER_BYTES);
        self.message = (!messages.is_empty()).then(|| Box::new(messages));
        Ok(answer)
    }

    /// The length of the longest message of this type that the peer may send now.
    fn longest(&self, kind: HandshakeType) -> Result<usize, Error> {
        match (&self.session, self.is_tls13(), kind) {
            (_, true, HandshakeType::KeyUpdate) => Ok(1),
            (Session::Client(_), true, HandshakeType::NewSessionTicket) => Ok(TLS_TICKET_BYTES_MAX),
            // Requests of a renegotiation (RFC 5246, 7.4.1).
            (Session::Client(_), false, HandshakeType::HelloRequest) => Ok(0),
            (Session::Server(_), false, HandshakeType::ClientHello) => Ok(TLS_HANDSHAKE_BYTES_MAX),
            _ => Err(unexpected("a handshake message")),
        }
    }

    fn refuse_renegotiation(&mut self) -> Result<Vec<u8>, Error> {
        let error = PeerMisbehaved::TooManyRenegotiationRequests;
        count(&mut self.renegotiations, TLS_RENEGOTIATIONS_MAX, error)?;
        self.seal_alert(WARNING, AlertDescription::NoRenegotiation)
    }

    /// The peer has new keys, and may want us to have new ones too (RFC 8446, 4.6.3).
    fn take_keys(&mut self, request: Option<u8>) -> Result<(), Error> {
        let maximum = TLS_KEY_UPDATES_MAX;
        count(&mut self.key_updates, maximum, PeerMisbehaved::TooManyKeyUpdateRequests)?;
        match request {
            Some(0) => {}
            Some(1) => self.owes_keys = true,
            _ => return Err(InvalidMessage::InvalidKeyUpdate.into()),
        }
        let (opened, secrets) = match &mut self.session {
            Session::Client(session) => session.update_rx_secret()?,
            Session::Server(session) => session.update_rx_secret()?,
        };
        self.opening = opener(self.suite(), secrets);
        self.opened = opened;
        Ok(())
    }

    /// Seals data, at most as much as a record holds. If new keys are due, a record before it says
    /// so.
    ///
    /// # Errors
    /// The key has been used as often as it may be.
    pub(super) fn seal(&mut self, data: OutboundChunks<'_>) -> Result<Vec<u8>, Error> {
        // The record that announces a new key is the last one of the old key.
        let is_spent = self.sealed + 1 >= self.sealed_max;
        if self.is_tls13() && (is_spent || self.owes_keys) {
            let mut records = self.renew()?;
            records.extend(self.seal_any(ContentType::ApplicationData, data)?);
            return Ok(records);
        }
        if is_spent {
            return Err(Error::EncryptError);
        }
        self.seal_any(ContentType::ApplicationData, data)
    }

    /// Announces a new key and uses it from then on. Requests one of the peer, unless it began.
    fn renew(&mut self) -> Result<Vec<u8>, Error> {
        let update = [HandshakeType::KeyUpdate.into(), 0, 0, 1, u8::from(!self.owes_keys)];
        let record = self.seal_any(ContentType::Handshake, update[..].into())?;
        let (sealed, secrets) = match &mut self.session {
            Session::Client(session) => session.update_tx_secret()?,
            Session::Server(session) => session.update_tx_secret()?,
        };
        self.sealing = sealer(self.suite(), secrets, sealed > 0)?;
        self.sealed = sealed;
        self.owes_keys = false;
        Ok(record)
    }

    /// A record that announces our end.
    pub(super) fn close_notify(&mut self) -> Result<Vec<u8>, Error> {
        self.seal_alert(WARNING, AlertDescription::CloseNotify)
    }

    /// The alert for an error of [`Self::open`], except for one that is the peer's alert.
    pub(super) fn alert_for(&mut self, error: &Error) -> Option<Vec<u8>> {
        let alert = match error {
            Error::AlertReceived(_) => return None,
            Error::DecryptError => AlertDescription::BadRecordMac,
            Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
            Error::InvalidMessage(InvalidMessage::InvalidKeyUpdate) => {
                AlertDescription::IllegalParameter
            }
            Error::InvalidMessage(InvalidMessage::UnexpectedMessage(_))
            | Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
            _ => AlertDescription::DecodeError,
        };
        self.seal_alert(FATAL, alert).ok()
    }

    fn seal_alert(&mut self, level: u8, alert: AlertDescription) -> Result<Vec<u8>, Error> {
        self.seal_any(ContentType::Alert, [level, alert.into()][..].into())
    }

    fn seal_any(
        &mut self,
        typ: ContentType,
        payload: OutboundChunks<'_>,
    ) -> Result<Vec<u8>, Error> {
        debug_assert!(self.sealed < u64::MAX, "a sequence number is used once");
        let plain = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload };
        let record = self.sealing.encrypt(plain, self.sealed)?;
        self.sealed += 1;
        Ok(record.encode())
    }
}

/// Counts what a peer may do only so often.
fn count(times: &mut u8, maximum: u8, error: impl Into<Error>) -> Result<(), Error> {
    debug_assert!(*times <= maximum, "what is counted is bounded");
    if *times == maximum {
        return Err(error.into());
    }
    *times += 1;
    Ok(())
}

fn unexpected(what: &'static str) -> Error {
    InvalidMessage::UnexpectedMessage(what).into()
}

fn opener(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Box<dyn MessageDecrypter> {
    let (key, iv) = parts(secrets);
    match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed])
        }
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
    }
}

/// `is_used`: records have been sealed with this key before.
fn sealer(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
    is_used: bool,
) -> Result<Box<dyn MessageEncrypter>, Error> {
    let (key, iv) = parts(secrets);
    let mut sealer = match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let (fixed, extra) =
                iv.as_ref().split_at(suite.aead_alg.key_block_shape().fixed_iv_len);
            suite.aead_alg.encrypter(key, fixed, extra)
        }
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
    };
    if is_used {
        // Aws-lc expects the first sequence number to be 0, and derives from its nonce what it
        // compares the others with. This record goes nowhere.
        let nothing = OutboundPlainMessage {
            typ: ContentType::ApplicationData,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::new_empty(),
        };
        sealer.encrypt(nothing, 0)?;
    }
    Ok(sealer)
}

fn parts(
    secrets: ConnectionTrafficSecrets,
) -> (rustls::crypto::cipher::AeadKey, rustls::crypto::cipher::Iv) {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
        _ => unreachable!("rustls has no other cipher"),
    }
}

#[cfg(test)]
pub(super) mod tests;

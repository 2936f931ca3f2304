//! What proves to an authority that a name is ours, and what is sent to it to be signed.

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use transport::tls::ChallengeAnswer;

/// A check that the authority is about to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The name that is checked.
    pub(crate) name: String,
    /// The number that the authority has drawn for this check.
    pub(crate) token: String,
    /// The token, bound to the key of our account.
    pub(crate) key_authorization: String,
    /// SHA-256 of that.
    pub(crate) digest: Vec<u8>,
}

/// An answer as a file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Http { token: String, content: String },
    Tls { name: String, pem: String },
}

impl From<&Answer> for ChallengeAnswer {
    fn from(answer: &Answer) -> ChallengeAnswer {
        match answer.clone() {
            Answer::Http { token, content } => ChallengeAnswer::Http { token, content },
            Answer::Tls { name, pem } => ChallengeAnswer::Tls { name, pem },
        }
    }
}

impl Proof {
    /// The answer to this check.
    pub(crate) fn answer(&self, by: config::Challenge) -> Result<Answer, String> {
        match by {
            config::Challenge::Http01 => Ok(Answer::Http {
                token: self.token.clone(),
                content: self.key_authorization.clone(),
            }),
            config::Challenge::TlsAlpn01 => self.certificate().map_err(|error| error.to_string()),
        }
    }

    /// A certificate that only the authority looks at (RFC 8737, 3).
    fn certificate(&self) -> Result<Answer, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([self.name.clone()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(&self.digest)];
        let pem = params.self_signed(&key)?.pem() + &key.serialize_pem();
        Ok(Answer::Tls { name: self.name.clone(), pem })
    }
}

/// A new private key, as PEM.
pub(crate) fn new_key() -> Result<String, String> {
    KeyPair::generate().map(|key| key.serialize_pem()).map_err(|error| error.to_string())
}

/// The request to sign a certificate for this name and this key, as DER.
pub(crate) fn signing_request(name: &str, key: &str) -> Result<Vec<u8>, String> {
    let request = || {
        let key = KeyPair::from_pem(key)?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&key)?.der().to_vec())
    };
    request().map_err(|error: rcgen::Error| error.to_string())
}

//! Certificates that come while the server runs, and the answers by which it proves to a
//! certification authority that a name is its own.
//!
//! What: one table for all listeners of a process. The thread that obtains certificates writes to
//! it; each handshake for one of its names reads it. Why not the configuration of a listener: a
//! certificate that was renewed is used by the next handshake, without a reload.
//! Who owns: the process. A reload keeps the table, so that certificates outlive it.
//! What never happens: the lock is held while a file is read or a key is parsed; an answer stays
//! after its check has ended.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use runtime::sync::{Guard, Lock, LockKind};
use rustls::sign::CertifiedKey;

use super::{files, provider};
use crate::tls::settings::{CHALLENGE_PATH, ChallengeAnswer, Validity};

static ISSUED: LockKind = LockKind::new("transport: issued certificates");

/// See the module.
pub struct Issued {
    table: Lock<Table>,
    /// Whether there is an answer by HTTP.
    has_token: AtomicBool,
}

#[derive(Default)]
struct Table {
    certificates: HashMap<String, (Arc<CertifiedKey>, Validity)>,
    /// A token, and the content of the answer.
    by_http: Option<(String, String)>,
    /// A name, and the certificate to show.
    by_tls: Option<(String, Arc<CertifiedKey>)>,
}

impl Default for Issued {
    fn default() -> Issued {
        Issued { table: Lock::new(&ISSUED, Table::default()), has_token: AtomicBool::new(false) }
    }
}

impl Issued {
    /// Uses this certificate for the name from now on: a PEM text with the chain and the key.
    ///
    /// # Errors
    /// Why it cannot be used. The table is as before then.
    pub fn put(&self, name: &str, pem: &[u8]) -> Result<Validity, String> {
        let key = files::certified_key_in(pem, &provider())?;
        key.keys_match().map_err(|error| format!("the certificate is not for its key: {error}"))?;
        let validity = files::validity(&key).ok_or("the certificate cannot be read")?;
        if !files::names(&key).iter().any(|of| of == name) {
            return Err(format!("the certificate is not for {name}"));
        }
        self.lock().certificates.insert(name.to_owned(), (Arc::new(key), validity));
        Ok(validity)
    }

    /// Forgets the certificates of all other names.
    pub fn keep_only(&self, names: &[String]) {
        self.lock().certificates.retain(|name, _| names.contains(name));
    }

    /// Gives this answer from now on, and no other one.
    ///
    /// # Errors
    /// The certificate of the answer cannot be used.
    pub fn set_answer(&self, answer: Option<&ChallengeAnswer>) -> Result<(), String> {
        let (by_http, by_tls) = match answer {
            None => (None, None),
            Some(ChallengeAnswer::Http { token, content }) => {
                (Some((token.clone(), content.clone())), None)
            }
            Some(ChallengeAnswer::Tls { name, pem }) => {
                let key = files::certified_key_in(pem.as_bytes(), &provider())?;
                (None, Some((name.clone(), Arc::new(key))))
            }
        };
        let mut table = self.lock();
        self.has_token.store(by_http.is_some(), Ordering::Release);
        (table.by_http, table.by_tls) = (by_http, by_tls);
        Ok(())
    }

    /// The content of the answer to a request for this path, if there is one.
    #[inline]
    pub fn http_answer(&self, path: &[u8]) -> Option<String> {
        if !self.has_token.load(Ordering::Acquire) {
            return None;
        }
        let asked = path.strip_prefix(CHALLENGE_PATH.as_bytes())?;
        let table = self.lock();
        let (token, content) = table.by_http.as_ref()?;
        (token.as_bytes() == asked).then(|| content.clone())
    }

    /// For how long each certificate is valid, by its name.
    pub fn validities(&self) -> Vec<(String, Validity)> {
        let table = self.lock();
        let all = table.certificates.iter().map(|(name, (_, validity))| (name.clone(), *validity));
        let mut all: Vec<_> = all.collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// The certificate for a name in lower case.
    pub(super) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.lock().certificates.get(name).map(|(key, _)| Arc::clone(key))
    }

    /// The certificate that answers a check of this name.
    pub(super) fn answer_for(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let table = self.lock();
        let (checked, key) = table.by_tls.as_ref()?;
        (checked == name).then(|| Arc::clone(key))
    }

    fn lock(&self) -> Guard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No keys, and no tokens.
        f.debug_struct("Issued").field("validities", &self.validities()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pem(names: &[&str], days: (i32, i32)) -> String {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(days.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(days.1, 1, 1);
        params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
    }

    #[test]
    fn a_certificate_is_used_for_its_names_and_says_how_long() {
        let issued = Issued::default();
        let validity = issued.put("a.test", pem(&["a.test"], (1970, 2030)).as_bytes()).unwrap();
        assert_eq!(validity, Validity { not_before_s: 0, not_after_s: 1_893_456_000 });
        let validity = issued.put("b.test", pem(&["b.test"], (2020, 2021)).as_bytes()).unwrap();
        assert_eq!(validity.not_before_s, 1_577_836_800);
        assert!(issued.put("c.test", pem(&["a.test"], (1970, 2030)).as_bytes()).is_err());
        for broken in ["", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"] {
            assert!(issued.put("a.test", broken.as_bytes()).is_err(), "{broken}");
        }
        // The certificate of one, and the key of the other.
        let [one, other] = [(); 2].map(|()| pem(&["a.test"], (1970, 2030)));
        let at = |text: &str| text.find("-----BEGIN PRIVATE").unwrap();
        let mixed = format!("{}{}", &one[..at(&one)], &other[at(&other)..]);
        assert!(issued.put("a.test", mixed.as_bytes()).is_err_and(|why| why.contains("key")));
        assert!(issued.certificate("a.test").is_some() && issued.certificate("c.test").is_none());
        issued.keep_only(&["b.test".to_owned()]);
        assert_eq!(issued.validities().len(), 1);
        assert!(!format!("{issued:?}").contains("PRIVATE"));
    }

    #[test]
    fn only_the_token_in_force_is_answered() {
        let issued = Issued::default();
        let path = |token: &str| format!("{CHALLENGE_PATH}{token}").into_bytes();
        assert_eq!(issued.http_answer(&path("t")), None);
        let (token, content) = ("t".to_owned(), "t.key".to_owned());
        issued.set_answer(Some(&ChallengeAnswer::Http { token, content })).unwrap();
        assert_eq!(issued.http_answer(&path("t")).as_deref(), Some("t.key"));
        for other in ["", "t/", "T", "t?", "../t", "%74"] {
            assert_eq!(issued.http_answer(&path(other)), None, "{other}");
        }
        // The extension of the check is critical, and nothing but its authority understands it.
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(&[7; 32])];
        let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        let answer = ChallengeAnswer::Tls { name: "a.test".to_owned(), pem };
        issued.set_answer(Some(&answer)).unwrap();
        assert_eq!(issued.http_answer(&path("t")), None);
        assert!(issued.answer_for("a.test").is_some() && issued.answer_for("b.test").is_none());
        issued.set_answer(None).unwrap();
        assert!(issued.answer_for("a.test").is_none());
    }
}

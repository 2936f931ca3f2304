//! Certificates and keys from files. Each error names the file and how to fix it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::tls::settings::{CertificateFiles, Validity};

/// Reads a certificate and its key, and checks that they match.
pub(super) fn certified_key(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, String> {
    let (chain, key) = (files.chain.display(), files.key.display());
    let certificates = certificates(&files.chain)?;
    let der = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| match error {
        pem::Error::NoItemsFound => format!(
            "there is no private key in {key}: it must hold one in PEM, between lines that say \
             \"BEGIN PRIVATE KEY\" (RSA PRIVATE KEY, EC PRIVATE KEY) and \"END …\", not encrypted"
        ),
        error => unreadable(&files.key, &error),
    })?;
    let signing = provider.key_provider.load_private_key(der).map_err(|_| {
        format!(
            "the private key in {key} cannot be used: it must be of RSA (2048 bits or more), \
             ECDSA (P-256, P-384, P-521) or Ed25519"
        )
    })?;
    let certified = CertifiedKey::new(certificates, signing);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(Arc::new(certified))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(format!(
            "the private key in {key} is not that of the first certificate in {chain}: name the \
             key it was issued for, and put the server's own certificate first in the chain"
        )),
        Err(error) => Err(format!(
            "the first certificate in {chain} cannot be used ({error}): it must be an X.509 \
             certificate of version 3"
        )),
    }
}

/// Reads the roots that certificates of peers must lead to.
pub(super) fn roots(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for (at, certificate) in certificates(path)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            let (path, nth) = (path.display(), at + 1);
            format!("certificate {nth} in {path} cannot be a root ({error}): take it out")
        })?;
    }
    Ok(Arc::new(roots))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(path, &error))?;
    if all.is_empty() {
        return Err(format!(
            "there is no certificate in {}: it must hold one or more in PEM, between lines that \
             say \"BEGIN CERTIFICATE\" and \"END CERTIFICATE\"",
            path.display()
        ));
    }
    Ok(all)
}

fn unreadable(path: &Path, error: &pem::Error) -> String {
    let path = path.display();
    match error {
        pem::Error::Io(error) => format!("{path} cannot be read: {error}"),
        error => format!("{path} is damaged: {error}; it must be PEM, whole"),
    }
}

/// A certificate and its key from one PEM text. Whether they belong together is not checked.
pub(super) fn certified_key_in(
    pem: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the certificate is damaged: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(pem)
        .map_err(|error| format!("the private key is damaged: {error}"))?;
    let signing = provider.key_provider.load_private_key(key);
    let signing = signing.map_err(|error| format!("the private key cannot be used: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    Ok(CertifiedKey::new(chain, signing))
}

/// For how long a certificate is valid; `None` if it cannot be read.
pub(super) fn validity(key: &CertifiedKey) -> Option<Validity> {
    let leaf = EndEntityCert::try_from(key.cert.first()?).ok()?;
    // The time is checked first, and its error has the bound.
    let at = |seconds| {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::server_auth());
        leaf.verify_for_usage(algorithms, &[], &[], now, usage, None, None).err()
    };
    let not_before_s = match at(0) {
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        _ => 0,
    };
    match at(u64::MAX) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            Some(Validity { not_before_s, not_after_s: not_after.as_secs() })
        }
        _ => None,
    }
}

/// Problems with a certificate that can still be used.
pub(super) fn warnings(files: &CertificateFiles, key: &CertifiedKey, now: Duration) -> Vec<String> {
    let chain = files.chain.display();
    let mut found = Vec::new();
    let Some(leaf) = key.cert.first() else { return found };
    let Ok(leaf) = EndEntityCert::try_from(leaf) else { return found };
    // Without trust anchors this cannot succeed, but it checks time and purpose first, which is
    // what we need.
    let verified = leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &[],
        &[],
        UnixTime::since_unix_epoch(now),
        KeyUsage::server_auth(),
        None,
        None,
    );
    match verified.err() {
        Some(webpki::Error::CertExpired { not_after, .. }) => found.push(format!(
            "the certificate in {chain} has expired ({}): clients refuse it; put a new one there \
             and reload",
            date(not_after)
        )),
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => found.push(format!(
            "the certificate in {chain} is not valid before {}: clients refuse it until then; is \
             the clock right?",
            date(not_before)
        )),
        Some(webpki::Error::RequiredEkuNotFoundContext(_)) => found.push(format!(
            "the certificate in {chain} is not one for servers (extended key usage): clients \
             refuse it; have one issued for server authentication"
        )),
        _ => {}
    }
    found
}

/// The hosts that a certificate is for, in lower case; wildcards keep their asterisk.
pub(super) fn names(key: &CertifiedKey) -> Vec<String> {
    let Some(leaf) = key.cert.first() else { return Vec::new() };
    match EndEntityCert::try_from(leaf) {
        Ok(leaf) => leaf.valid_dns_names().map(str::to_ascii_lowercase).collect(),
        Err(_) => Vec::new(),
    }
}

fn date(time: UnixTime) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

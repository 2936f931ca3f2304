//! Certificates for tests: our own root, and the certificates it signs.

use std::path::Path;
use std::sync::Arc;

use config::CertificateFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SignatureAlgorithm};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

/// A certification authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) root: CertificateDer<'static>,
    pub(crate) root_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        let (der, root_pem) = (root.der().clone(), root.pem());
        Authority { issuer: Issuer::new(params, key), root: der, root_pem }
    }

    /// Signs a certificate and writes it and its key to two files.
    pub(crate) fn sign(
        &self,
        directory: &Path,
        file: &str,
        algorithm: &'static SignatureAlgorithm,
        params: &CertificateParams,
    ) -> CertificateFiles {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = CertificateFiles {
            chain: directory.join(format!("{file}.crt")),
            key: directory.join(format!("{file}.key")),
        };
        std::fs::write(&files.chain, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// A certificate for these names, with a key of P-256.
    pub(crate) fn issue(&self, directory: &Path, file: &str, names: &[&str]) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        self.sign(directory, file, &rcgen::PKCS_ECDSA_P256_SHA256, &params)
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        Arc::new(roots)
    }
}

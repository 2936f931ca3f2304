//! Why there is no encrypted connection to an upstream.

/// Why a handshake with an upstream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// It took too long.
    Timeout,
    /// The upstream does not speak TLS, closed the connection, or has no version or cipher suite in
    /// common with us.
    Handshake,
    /// The certificate of the upstream is not trusted.
    Certificate,
    /// The certificate has expired, or is not valid yet.
    CertificateTime,
    /// The certificate is for another name.
    CertificateName,
    /// The upstream does not accept our certificate.
    CertificateRefused,
}

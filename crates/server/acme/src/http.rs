//! Requests to the authority: one at a time, on the thread that makes them.
//!
//! What never happens: an answer is read beyond `ANSWER_BYTES_MAX`; a request goes to another URL
//! than the authority gave, or goes anywhere without a verified certificate.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use ureq::Agent;
use ureq::http::header::RETRY_AFTER;
use ureq::http::request::Parts;
use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::limits::{ANSWER_BYTES_MAX, REQUEST_TIMEOUT};

/// Sends requests, and remembers what the last answer said about time.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    agent: Agent,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Http {
    /// With these roots for the authority's certificate; without them, with those of the system.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Http, String> {
        let roots = match ca {
            None => rustls_native_certs::load_native_certs().certs,
            Some(path) => {
                let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
                read.map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        let roots: Vec<_> = roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(true)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(REQUEST_TIMEOUT))
            .tls_config(tls.build());
        Ok(Http { agent: agent.build().into(), retry_after: Arc::default() })
    }

    /// How long the last answer asked to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, parts: Parts, body: Bytes) -> Result<BytesResponse, Error> {
        let response = match parts.method {
            Method::POST => self.agent.run(Request::from_parts(parts, body.to_vec())),
            _ => self.agent.run(Request::from_parts(parts, ())),
        };
        let response = response.map_err(|error| Error::Other(Box::new(error)))?;
        let (parts, mut body) = response.into_parts();
        let now = SystemTime::now();
        *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner) =
            retry_after(&parts.headers, now);
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| Error::Other(Box::new(error)))?;
        let (parts, ()) = Response::from_parts(parts, ()).into_parts();
        Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
    }
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // The library gives the bytes of a response only, whatever their body is.
            let body = BytesResponse::from(Response::new(body)).body.into_bytes().await;
            http.send(parts, body.map_err(Error::Other)?)
        })
    }
}

/// The field is a number of seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = fields.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).ok(),
    }
}

#[cfg(test)]
mod tests {
    use ureq::http::HeaderValue;

    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
            ("soon", None),
            ("-1", None),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(RETRY_AFTER, HeaderValue::from_static(value));
            assert_eq!(retry_after(&fields, now), seconds.map(Duration::from_secs), "{value}");
        }
    }
}

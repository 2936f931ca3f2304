//! Certificates: those that the server obtains, and for how long all of them are valid.
//!
//! What: [`Obtaining`] is the thread that obtains certificates, if there is one;
//! [`CertificateFigures`] shows all certificates in `/metrics`, and [`json()`] at the admin
//! address.
//! Why here: `acme` knows no configuration snapshot, and no listener.
//! Who owns: the process has one thread, which a reload gives its new configuration, and a handover
//! ends. Certificates that were issued are in `transport::tls::Issued`, which all listeners share.
//! What never happens: a core waits for the thread, or for a file.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "acme")]
use std::sync::{Mutex, PoisonError};

use config::{Acme, Config, Listener};
use metrics::{Described, Shape, describe, encode_value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use serde_json::json;
use transport::tls::{Issued, Validity};

/// The thread that obtains certificates, from the first configuration on that has `[acme]`.
#[derive(Debug, Default)]
pub(crate) struct Obtaining {
    #[cfg(feature = "acme")]
    handle: Mutex<Option<acme::Handle>>,
}

/// What a build without the feature says about `[acme]`.
pub(crate) fn unmet(config: &Config) -> Option<String> {
    let is_missing = config.acme.is_some() && !cfg!(feature = "acme");
    is_missing
        .then(|| "acme: this build obtains no certificates; to fix this: make build".to_owned())
}

/// Has these listeners use the certificates that come while the server runs. They outlive a reload.
pub(crate) fn share_issued(issued: &Arc<Issued>, listeners: &[Listener]) {
    for tls in listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
        tls.share_issued(issued);
    }
}

/// Loads the certificates that were obtained before. It reads files.
pub(crate) fn load(settings: Option<&Acme>, issued: &Arc<Issued>) {
    #[cfg(feature = "acme")]
    if let Some(settings) = settings {
        acme::load(settings, issued);
    }
    #[cfg(not(feature = "acme"))]
    let _ = (settings, issued);
}

/// How many certificates were obtained, how many attempts have failed, and how many of them in a
/// row for each name.
type Attempts = (u64, u64, Vec<(String, u64)>);

#[cfg(feature = "acme")]
impl Obtaining {
    /// Puts a configuration in force.
    pub(crate) fn change(&self, settings: Option<&Acme>, issued: &Arc<Issued>) {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*handle, settings) {
            (Some(handle), settings) => handle.change(settings),
            (None, None) => {}
            (None, Some(settings)) => match acme::Handle::start(settings, issued) {
                Ok(started) => *handle = Some(started),
                Err(error) => tracing::error!(%error, "no certificates are obtained"),
            },
        }
    }

    /// Leaves the directory to another process.
    pub(crate) fn leave(&self) {
        if let Some(handle) = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take() {
            handle.leave();
        }
    }

    /// Has the authority asked now; `false`: there is no authority.
    pub(crate) fn ask_now(&self, name: Option<String>) -> bool {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().map(|handle| handle.ask_now(name)).is_some()
    }

    fn report(&self) -> Option<Arc<acme::Report>> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().map(|handle| Arc::clone(handle.report()))
    }

    /// What is known of the names, as JSON; `null` without an authority.
    fn json(&self) -> serde_json::Value {
        self.report().map_or(serde_json::Value::Null, |report| report.json())
    }

    fn attempts(&self) -> Attempts {
        let Some(report) = self.report() else { return Attempts::default() };
        let (obtained, failed) = report.attempts();
        let names = report.names().into_iter().map(|of| (of.name, u64::from(of.failures)));
        (obtained, failed, names.collect())
    }
}

#[cfg(not(feature = "acme"))]
impl Obtaining {
    pub(crate) fn change(&self, _settings: Option<&Acme>, _issued: &Arc<Issued>) {}

    pub(crate) fn leave(&self) {}

    pub(crate) fn ask_now(&self, _name: Option<String>) -> bool {
        false
    }

    fn json(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn attempts(&self) -> Attempts {
        Attempts::default()
    }
}

/// For how long the certificates of all listeners are valid, by name. Of several certificates for a
/// name, the first that expires counts.
fn validities(config: &Config, issued: &Issued) -> Vec<(String, Validity)> {
    let listeners = config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let of_files = listeners.flat_map(|tls| tls.validities().iter().cloned());
    let mut all: Vec<_> = of_files.chain(issued.validities()).collect();
    all.sort_by(|one, other| (&one.0, one.1.not_after_s).cmp(&(&other.0, other.1.not_after_s)));
    all.dedup_by(|later, first| later.0 == first.0);
    all
}

/// All certificates, for the admin address.
pub(crate) fn json(config: &Config, issued: &Issued, obtaining: &Obtaining) -> serde_json::Value {
    let all = validities(config, issued).into_iter();
    let all = all.map(|(name, Validity { not_before_s, not_after_s })| {
        json!({ "name": name, "valid_from_s": not_before_s, "expires_s": not_after_s })
    });
    json!({ "certificates": all.collect::<Vec<_>>(), "acme": obtaining.json() })
}

/// The metrics of [`CertificateFigures`].
pub(crate) const DESCRIBED: &[Described] = &[
    Described {
        name: "certificate_expiry_seconds",
        help: "When the certificate for this name expires, in seconds since the Unix epoch",
        shape: Shape::GaugeBy(&["name"]),
    },
    Described {
        name: "certificate_lifetime_seconds",
        help: "Time from the begin of the certificate's validity to its end",
        shape: Shape::GaugeBy(&["name"]),
    },
    Described {
        name: "acme_failures",
        help: "Attempts to obtain a certificate for this name that have failed since the last \
               success",
        shape: Shape::GaugeBy(&["name"]),
    },
    Described {
        name: "acme_certificates_obtained",
        help: "Certificates that this process has obtained",
        shape: Shape::Counter,
    },
    Described {
        name: "acme_attempts_failed",
        help: "Attempts of this process to obtain a certificate that have failed",
        shape: Shape::Counter,
    },
];

/// The certificates, as metrics.
#[derive(Debug)]
pub(crate) struct CertificateFigures {
    validities: Vec<(String, Validity)>,
    attempts: Attempts,
}

impl CertificateFigures {
    pub(crate) fn new(config: &Config, issued: &Issued, obtaining: &Obtaining) -> Self {
        let (validities, attempts) = (validities(config, issued), obtaining.attempts());
        CertificateFigures { validities, attempts }
    }
}

impl Collector for CertificateFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let [expiry, lifetime, failures, obtained, failed] = DESCRIBED else {
            unreachable!("there are five")
        };
        let mut by_name = |described: &Described, values: &mut dyn Iterator<Item = (&str, u64)>| {
            let mut family = describe(&mut encoder, described)?;
            for (name, value) in values {
                encode_value(&mut family.encode_family(&[("name", name)])?, described, value)?;
            }
            Ok(())
        };
        let nanoseconds = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        let all = || self.validities.iter();
        by_name(expiry, &mut all().map(|(name, of)| (&**name, nanoseconds(of.not_after_s))))?;
        let times = all().map(|(name, of)| {
            (&**name, nanoseconds(of.not_after_s.saturating_sub(of.not_before_s)))
        });
        by_name(lifetime, &mut { times })?;
        let (obtained_count, failed_count, names) = &self.attempts;
        by_name(failures, &mut names.iter().map(|(name, count)| (&**name, *count)))?;
        for (described, count) in [(obtained, obtained_count), (failed, failed_count)] {
            let mut metric = describe(&mut encoder, described)?;
            encode_value(&mut metric, described, *count)?;
        }
        Ok(())
    }
}

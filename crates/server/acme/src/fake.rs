//! An authority and a world for tests: both do as they are configured, and remember what happened.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};

use crate::order::{Authority, Record, Status, Trouble, TroubleKind, World};
use crate::prove::{Answer, Proof};

/// An authority with one order at a time.
pub(crate) struct FakeAuthority {
    pub(crate) status: Status,
    /// Calls, in their order.
    pub(crate) calls: Vec<&'static str>,
    /// The next calls fail like this.
    pub(crate) failing: Vec<Trouble>,
    /// Orders that were begun.
    pub(crate) orders: u32,
    /// What comes of a check.
    pub(crate) checked: Status,
    /// Looks until a check, or a certificate, is done.
    pub(crate) slowness: u32,
    pub(crate) retry_after: Option<Duration>,
    /// The validity of certificates: begin and end, in seconds.
    pub(crate) validity: (i64, i64),
    pub(crate) looks: u32,
    pub(crate) next: Status,
    pub(crate) name: String,
    pub(crate) signed: Option<Vec<u8>>,
}

impl Default for FakeAuthority {
    fn default() -> FakeAuthority {
        FakeAuthority {
            status: Status::Invalid,
            calls: Vec::new(),
            failing: Vec::new(),
            orders: 0,
            checked: Status::Ready,
            slowness: 0,
            retry_after: None,
            validity: (NOW_S as i64, (NOW_S + 90 * DAY_S) as i64),
            looks: 0,
            next: Status::Pending,
            name: String::new(),
            signed: None,
        }
    }
}

pub(crate) const DAY_S: u64 = 24 * 3600;
/// Where clocks begin.
pub(crate) const NOW_S: u64 = 20_000 * DAY_S;

pub(crate) fn trouble(kind: TroubleKind) -> Trouble {
    Trouble { kind, ..Trouble::of("no") }
}

impl FakeAuthority {
    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|one| **one == call).count()
    }

    fn called(&mut self, call: &'static str) -> Result<(), Trouble> {
        self.calls.push(call);
        match self.failing.is_empty() {
            true => Ok(()),
            false => Err(self.failing.remove(0)),
        }
    }
}

impl Authority for FakeAuthority {
    fn begin(&mut self, name: &str) -> Result<String, Trouble> {
        self.called("begin")?;
        (self.status, self.next) = (Status::Pending, Status::Pending);
        self.name = name.to_owned();
        self.orders += 1;
        Ok(format!("https://authority.test/order/{}", self.orders))
    }

    fn resume(&mut self, url: &str) -> Result<(), Trouble> {
        self.called("resume")?;
        assert!(url.ends_with(&format!("/{}", self.orders)), "{url}");
        Ok(())
    }

    fn status(&mut self) -> Result<(Status, Option<Duration>), Trouble> {
        self.called("status")?;
        if self.status != self.next {
            match self.looks {
                0 => self.status = self.next,
                _ => self.looks -= 1,
            }
        }
        Ok((self.status, self.retry_after))
    }

    fn proof(&mut self) -> Result<Option<Proof>, Trouble> {
        self.called("proof")?;
        let (token, key_authorization) = ("token".to_owned(), "token.thumb".to_owned());
        Ok(Some(Proof { name: self.name.clone(), token, key_authorization, digest: vec![7; 32] }))
    }

    fn check(&mut self) -> Result<(), Trouble> {
        self.called("check")?;
        (self.next, self.looks) = (self.checked, self.slowness);
        Ok(())
    }

    fn finalize(&mut self, signing_request: &[u8]) -> Result<(), Trouble> {
        self.called("finalize")?;
        assert_eq!(self.status, Status::Ready);
        self.signed = Some(signing_request.to_vec());
        (self.status, self.next, self.looks) = (Status::Processing, Status::Valid, self.slowness);
        Ok(())
    }

    fn certificate(&mut self) -> Result<String, Trouble> {
        self.called("certificate")?;
        assert_eq!(self.status, Status::Valid);
        let request = rustls_pki_types::CertificateSigningRequestDer::from(
            self.signed.clone().expect("a request was sent"),
        );
        let request = rcgen::CertificateSigningRequestParams::from_der(&request)
            .expect("it was made by a test");
        let key = KeyPair::generate().expect("it was made by a test");
        let authority = CertificateParams::new(Vec::new()).expect("it was made by a test");
        let issuer = rcgen::Issuer::new(authority, key);
        let mut params = request.params;
        let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds as u64);
        (params.not_before, params.not_after) = (at(self.validity.0), at(self.validity.1));
        Ok(params.signed_by(&request.public_key, &issuer).expect("it was made by a test").pem())
    }

    fn why_invalid(&mut self) -> Trouble {
        Trouble::of("the address is not yours")
    }
}

/// A world whose clock goes only when somebody waits.
#[derive(Default)]
pub(crate) struct FakeWorld {
    pub(crate) now_s: u64,
    pub(crate) answers: Vec<Answer>,
    /// The record as it would be found after a crash.
    pub(crate) saved: Option<Record>,
    /// Waits until the process is about to end.
    pub(crate) ends_after: Option<u32>,
    pub(crate) is_answering: bool,
    pub(crate) disk_is_full: bool,
}

impl World for FakeWorld {
    fn now_s(&mut self) -> u64 {
        self.now_s
    }

    fn wait(&mut self, time: Duration) -> Result<(), Trouble> {
        if let Some(left) = &mut self.ends_after {
            match left {
                0 => return Err(Trouble::interrupted()),
                _ => *left -= 1,
            }
        }
        self.now_s += time.as_secs().max(1);
        Ok(())
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), Trouble> {
        self.is_answering = true;
        self.answers.push(answer.clone());
        Ok(())
    }

    fn end_answer(&mut self) {
        self.is_answering = false;
    }

    fn save(&mut self, _name: &str, record: &Record) -> Result<(), Trouble> {
        if self.disk_is_full {
            return Err(Trouble::of("the disk is full"));
        }
        self.saved = Some(record.clone());
        Ok(())
    }
}

//! A real authority: instant-acme, over our own HTTP client.
//!
//! The library's functions are asynchronous, and its HTTP client here blocks. So each of its
//! futures is complete when it is first polled.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use config::Acme;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount,
    NewOrder, Order, OrderStatus, Problem,
};
use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::http::Http;
use crate::limits::TOKEN_BYTES_MAX;
use crate::order::{Authority, Status, Trouble, TroubleKind};
use crate::prove::Proof;

const ACCOUNT: &str = "account.json";

/// The account as its file has it.
#[derive(Serialize, Deserialize)]
struct Stored {
    contact: Vec<String>,
    credentials: AccountCredentials,
}

/// The authority of the configuration.
pub(crate) struct Client {
    settings: Acme,
    files: Files,
    http: Http,
    account: Option<Account>,
    order: Option<Order>,
}

impl Client {
    /// Asks nothing yet.
    pub(crate) fn new(settings: &Acme, files: &Files) -> Result<Client, Trouble> {
        let http = Http::new(settings.ca.as_deref()).map_err(Trouble::of)?;
        let (settings, files) = (settings.clone(), files.clone());
        Ok(Client { settings, files, http, account: None, order: None })
    }

    /// The account of the file, or a new one.
    fn account(&mut self) -> Result<&Account, Trouble> {
        if self.account.is_none() {
            let account = match self.files.get::<Stored>(ACCOUNT).map_err(Trouble::of)? {
                Some(stored) => self.restored(stored)?,
                None => self.created()?,
            };
            self.account = Some(account);
        }
        Ok(self.account.as_ref().expect("it was just set"))
    }

    fn restored(&self, stored: Stored) -> Result<Account, Trouble> {
        let http = Box::new(self.http.clone());
        let building = Account::builder_with_http(http).from_credentials(stored.credentials);
        let account = complete(building).map_err(|error| self.trouble(error))?;
        if stored.contact != self.settings.contact {
            let contact = self.contact();
            complete(account.update_contacts(&contact)).map_err(|error| self.trouble(error))?;
            let stored: Option<Stored> = self.files.get(ACCOUNT).map_err(Trouble::of)?;
            if let Some(Stored { credentials, .. }) = stored {
                let contact = self.settings.contact.clone();
                self.store(&Stored { contact, credentials })?;
            }
        }
        Ok(account)
    }

    fn created(&self) -> Result<Account, Trouble> {
        let contact = self.contact();
        debug_assert!(self.settings.terms_accepted, "the configuration was checked");
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.settings.terms_accepted,
            only_return_existing: false,
        };
        let building = Account::builder_with_http(Box::new(self.http.clone()));
        let directory = self.settings.directory.clone();
        let created = complete(building.create(&new, directory, None));
        let (account, credentials) = created.map_err(|error| self.trouble(error))?;
        self.store(&Stored { contact: self.settings.contact.clone(), credentials })?;
        tracing::info!("a new account: {}", account.id());
        Ok(account)
    }

    fn store(&self, stored: &Stored) -> Result<(), Trouble> {
        self.files.put(ACCOUNT, stored).map_err(Trouble::of)
    }

    fn contact(&self) -> Vec<&str> {
        self.settings.contact.iter().map(String::as_str).collect()
    }

    fn order(&mut self) -> &mut Order {
        self.order.as_mut().expect("an order is begun or resumed first")
    }

    fn trouble(&self, error: Error) -> Trouble {
        let (kind, what) = match error {
            Error::Api(problem) => (kind_of(&problem), text_of(&problem)),
            error => {
                let authority = &self.settings.directory;
                (TroubleKind::Other, format!("{authority}: {error}"))
            }
        };
        Trouble { kind, what, retry_after: self.http.retry_after() }
    }

    /// The result of a request about the order.
    fn of_order<T>(
        &mut self,
        request: impl AsyncFnOnce(&mut Order) -> Result<T, Error>,
    ) -> Result<T, Trouble> {
        let done = complete(request(self.order()));
        done.map_err(|error| self.trouble(error))
    }
}

impl Authority for Client {
    fn begin(&mut self, name: &str) -> Result<String, Trouble> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let new = NewOrder::new(&identifiers);
        let mut begun = complete(self.account()?.new_order(&new));
        if let Err(Error::Api(problem)) = &begun
            && problem.r#type.as_deref() == Some(NO_ACCOUNT)
        {
            tracing::warn!("the authority does not know our account any more");
            self.account = None;
            self.files.remove(ACCOUNT).map_err(Trouble::of)?;
            begun = complete(self.account()?.new_order(&new));
        }
        let order = begun.map_err(|error| self.trouble(error))?;
        Ok(self.order.insert(order).url().to_owned())
    }

    fn resume(&mut self, url: &str) -> Result<(), Trouble> {
        let resumed = complete(self.account()?.order(url.to_owned()));
        self.order = Some(resumed.map_err(|error| self.trouble(error))?);
        Ok(())
    }

    fn status(&mut self) -> Result<(Status, Option<Duration>), Trouble> {
        let status = self.of_order(async |order| Ok(order.refresh().await?.status))?;
        let status = match status {
            OrderStatus::Pending => Status::Pending,
            OrderStatus::Ready => Status::Ready,
            OrderStatus::Processing => Status::Processing,
            OrderStatus::Valid => Status::Valid,
            OrderStatus::Invalid => Status::Invalid,
        };
        Ok((status, self.http.retry_after()))
    }

    fn proof(&mut self) -> Result<Option<Proof>, Trouble> {
        let kind = kind_of_challenge(self.settings.challenge);
        let name = self.settings.challenge.name();
        self.of_order(async |order| {
            // An order for one name has one authorization.
            let mut all = order.authorizations();
            let Some(authorization) = all.next().await else { return Ok(None) };
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                return Ok(None);
            }
            let Some(challenge) = authorization.challenge(kind) else {
                return Err(Error::Other(format!("it offers no check by {name}").into()));
            };
            let key_authorization = challenge.key_authorization();
            let proof = Proof {
                name: challenge.identifier().to_string(),
                token: challenge.token.clone(),
                key_authorization: key_authorization.as_str().to_owned(),
                digest: key_authorization.digest().as_ref().to_vec(),
            };
            match (1..=TOKEN_BYTES_MAX).contains(&proof.token.len()) {
                true => Ok(Some(proof)),
                false => Err(Error::Str("a token of a usable length")),
            }
        })
    }

    fn check(&mut self) -> Result<(), Trouble> {
        let kind = kind_of_challenge(self.settings.challenge);
        self.of_order(async |order| {
            let mut all = order.authorizations();
            let Some(authorization) = all.next().await else { return Ok(()) };
            match authorization?.challenge(kind) {
                Some(mut challenge) => challenge.set_ready().await,
                None => Ok(()),
            }
        })
    }

    fn finalize(&mut self, signing_request: &[u8]) -> Result<(), Trouble> {
        self.of_order(async |order| order.finalize_csr(signing_request).await)
    }

    fn certificate(&mut self) -> Result<String, Trouble> {
        self.of_order(async |order| match order.certificate().await? {
            Some(chain) => Ok(chain),
            None => Err(Error::Str("the certificate of a valid order")),
        })
    }

    fn why_invalid(&mut self) -> Trouble {
        let found = self.of_order(async |order| {
            let of_order = order.state().error.as_ref().map(text_of);
            let mut all = order.authorizations();
            while let Some(authorization) = all.next().await {
                let mut authorization = authorization?;
                let state = authorization.refresh().await?;
                let errors = state.challenges.iter().filter_map(|one| one.error.as_ref());
                if let Some(error) = errors.map(text_of).next() {
                    return Ok(error);
                }
            }
            Ok(of_order.unwrap_or_else(|| "the authority does not say why".to_owned()))
        });
        found.map_or_else(|trouble| trouble, Trouble::of)
    }
}

const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

fn kind_of(problem: &Problem) -> TroubleKind {
    match (problem.r#type.as_deref(), problem.status) {
        (Some(BAD_NONCE), _) => TroubleKind::BadNonce,
        (Some(NO_ACCOUNT), _) | (_, Some(404)) => TroubleKind::Unknown,
        _ => TroubleKind::Other,
    }
}

/// What the authority says, without characters that a log or a terminal would take for its own.
fn text_of(problem: &Problem) -> String {
    let text = problem.to_string();
    let text = text.strip_prefix("API error: ").unwrap_or(&text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_CHARS_MAX).collect()
}

const TEXT_CHARS_MAX: usize = 1000;

fn kind_of_challenge(challenge: config::Challenge) -> ChallengeType {
    match challenge {
        config::Challenge::Http01 => ChallengeType::Http01,
        config::Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// The result of a future that waits for nothing.
///
/// # Panics
/// The future waits: the library sleeps, or waits for something else than our HTTP client.
fn complete<F: Future>(future: F) -> F::Output {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the HTTP client blocks, and the library waits for nothing else"),
    }
}

//! The names, their certificates, and what has failed.
//!
//! What: [`Keeper::next`] says which name is due first, [`Keeper::attempt`] obtains its certificate
//! and puts it in force. Why separate from the thread: all that happens within months is tested
//! within milliseconds, with another clock and another authority.
//! Who owns: the owner of the directory attempts; any other process only reads.
//! What never happens: a failure takes away a certificate; a certificate is in force that is not in
//! a file, except if the disk failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use config::Acme;
use transport::tls::{Issued, Validity};

use crate::files::Files;
use crate::order::{self, Authority, Record, Trouble, TroubleKind, World};
use crate::plan;
use crate::prove::Answer;
use crate::{NameState, Report};

pub(crate) const ANSWER: &str = "answer.json";

/// See the module.
pub(crate) struct Keeper {
    settings: Acme,
    files: Files,
    issued: Arc<Issued>,
    report: Arc<Report>,
    names: BTreeMap<String, Name>,
    /// The answer of another process that is in force here; `None`: that is not known yet.
    answer: Option<Option<Answer>>,
}

#[derive(Default)]
struct Name {
    validity: Option<Validity>,
    /// When the file of the certificate was written that is in force.
    written: Option<SystemTime>,
    record: Record,
    /// The operator wants another certificate now.
    is_wanted: bool,
}

impl Name {
    fn due_s(&self, name: &str, now_s: u64) -> u64 {
        let renewal_s = match self.validity {
            Some(validity) if !self.is_wanted => plan::renewal_s(name, validity),
            _ => 0,
        };
        renewal_s.max(plan::believed_s(self.record.not_before_s, now_s))
    }
}

impl Keeper {
    /// Nothing is read yet.
    pub(crate) fn new(settings: &Acme, issued: &Arc<Issued>, report: &Arc<Report>) -> Keeper {
        let names = settings.names.iter().map(|name| (name.clone(), Name::default()));
        issued.keep_only(&settings.names);
        Keeper {
            settings: settings.clone(),
            files: Files::at(settings),
            issued: Arc::clone(issued),
            report: Arc::clone(report),
            names: names.collect(),
            answer: None,
        }
    }

    /// Reads the certificates that have changed. Another process may have written them.
    fn read(&mut self) -> Result<(), String> {
        for (name, of) in &mut self.names {
            let written = self.files.certificate_written(name);
            if written.is_some() && written != of.written {
                of.written = written;
                let pem = self.files.certificate(name)?.unwrap_or_default();
                match self.issued.put(name, &pem) {
                    Ok(validity) => of.validity = Some(validity),
                    Err(why) => tracing::error!("the stored certificate for {name}: {why}"),
                }
            }
        }
        Ok(())
    }

    /// Gives the answer that the owner has written, as long as it is there.
    pub(crate) fn follow(&mut self) -> Result<(), String> {
        self.read()?;
        let answer: Option<Answer> = self.files.get(ANSWER)?;
        if self.answer.as_ref() != Some(&answer) {
            self.issued.set_answer(answer.as_ref().map(Into::into).as_ref())?;
            self.answer = Some(answer);
        }
        Ok(())
    }

    /// Goes on where an earlier owner has stopped, after this process has become the owner.
    pub(crate) fn take_over(&mut self) -> Result<(), String> {
        for (name, of) in &mut self.names {
            of.record = self.files.get(&record_of(name))?.unwrap_or_default();
        }
        // The authority may look for the answer to an order before this process goes on with it.
        let goes_on = self.names.values().any(|of| of.record.order.is_some());
        let answer: Option<Answer> = self.files.get(ANSWER)?;
        let answer = answer.filter(|_| goes_on);
        self.issued.set_answer(answer.as_ref().map(Into::into).as_ref())?;
        if answer.is_none() {
            self.files.remove(ANSWER)?;
        }
        self.answer = Some(answer);
        self.read()
    }

    /// The name that is due first, and when.
    pub(crate) fn next(&self, now_s: u64) -> Option<(String, u64)> {
        let due = self.names.iter().map(|(name, of)| (name, of.due_s(name, now_s)));
        due.min_by_key(|(_, at)| *at).map(|(name, at)| (name.clone(), at))
    }

    /// Has a name be due now, or every name that has failed.
    pub(crate) fn want(&mut self, wanted: Option<&str>) {
        for (name, of) in &mut self.names {
            if wanted.is_none_or(|wanted| wanted == name) {
                of.record.not_before_s = 0;
                of.is_wanted = wanted.is_some();
            }
        }
    }

    /// Obtains a certificate for a name and puts it in force. `false`: it failed, and will be due
    /// again.
    pub(crate) fn attempt(
        &mut self,
        name: &str,
        authority: &mut dyn Authority,
        world: &mut dyn World,
    ) -> bool {
        let of = self.names.get_mut(name).expect("all names have an entry");
        let done = order::obtain(authority, world, self.settings.challenge, name, &mut of.record);
        let is_left = matches!(&done, Err(why) if why.kind == TroubleKind::Interrupted);
        // The authority may look for the answer to an order that is left to another process while
        // that process does not go on with it yet.
        if !is_left {
            world.end_answer();
        }
        let done = done.and_then(|pem| {
            let validity = self.issued.put(name, pem.as_bytes()).map_err(|why| {
                // The order has no other certificate.
                of.record.order = None;
                Trouble::of(why)
            })?;
            // From here on it is in force, even if the disk fails.
            (of.validity, of.is_wanted) = (Some(validity), false);
            self.files.put_certificate(name, pem.as_bytes()).map_err(Trouble::of)?;
            of.written = self.files.certificate_written(name);
            of.record.order = None;
            match plan::renewal_s(name, validity) > world.now_s() {
                true => Ok(validity),
                false => Err(Trouble::of("it has to be renewed already: is the clock right?")),
            }
        });
        match done {
            Ok(_) => {
                tracing::info!("a certificate for {name} is in force");
                of.record = Record::default();
                self.report.change(|content| content.obtained += 1);
                self.saved(name, self.files.remove(&record_of(name)));
                true
            }
            Err(_) if is_left => false,
            Err(trouble) => {
                self.failed(name, &trouble, world.now_s());
                false
            }
        }
    }

    /// Counts a failure, and computes the next attempt.
    pub(crate) fn failed(&mut self, name: &str, trouble: &Trouble, now_s: u64) {
        let of = self.names.get_mut(name).expect("all names have an entry");
        let (record, what) = (&mut of.record, &trouble.what);
        record.failures = record.failures.saturating_add(1);
        record.error = Some(what.clone());
        let wait = plan::back_off(name, record.failures, trouble.retry_after);
        record.not_before_s = now_s + wait.as_secs();
        let state = match of.validity {
            Some(validity) if validity.not_after_s > now_s => "the old one stays in force",
            Some(_) => "the old one has expired",
            None => "there is none",
        };
        let minutes = wait.as_secs() / 60;
        tracing::warn!("no certificate for {name}: {what}; {state}; again in {minutes} min");
        self.report.change(|content| content.failed += 1);
        let saved = self.files.put(&record_of(name), &self.names[name].record);
        self.saved(name, saved);
    }

    fn saved(&self, name: &str, saved: Result<(), String>) {
        if let Err(why) = saved {
            tracing::error!("{name}: {why}");
        }
    }

    /// Makes the report say how things are.
    pub(crate) fn report(&self, asks: bool, now_s: u64) {
        let names = self.names.iter().map(|(name, of)| NameState {
            name: name.clone(),
            expires_s: of.validity.map(|validity| validity.not_after_s),
            next_s: of.due_s(name, now_s).max(now_s),
            failures: of.record.failures,
            error: of.record.error.clone(),
        });
        let names = names.collect();
        self.report.change(|content| (content.asks, content.names) = (asks, names));
    }
}

pub(crate) fn record_of(name: &str) -> String {
    format!("{name}.json")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::fake::{DAY_S, FakeAuthority, FakeWorld, NOW_S};
    use crate::limits::{BACK_OFF_MAX, BACK_OFF_MIN};
    use crate::order::Status;

    struct Home {
        directory: TempDir,
        issued: Arc<Issued>,
        report: Arc<Report>,
    }

    impl Home {
        fn new() -> Home {
            let directory = tempfile::tempdir().unwrap();
            Home { directory, issued: Arc::default(), report: Arc::default() }
        }

        /// The keeper of a process that has just become the owner.
        fn keeper(&self, names: &[&str]) -> Keeper {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let path = self.directory.path().to_owned();
            let settings = Acme { path, names, terms_accepted: true, ..Acme::default() };
            Files::at(&settings).make().unwrap();
            let mut keeper = Keeper::new(&settings, &self.issued, &self.report);
            keeper.take_over().unwrap();
            keeper
        }
    }

    fn world(now_s: u64) -> FakeWorld {
        FakeWorld { now_s, ..FakeWorld::default() }
    }

    /// Attempts what is due until this instant. Returns the instants of the attempts, in days.
    fn live(
        keeper: &mut Keeper,
        authority: &mut FakeAuthority,
        (from_s, until_s): (u64, u64),
    ) -> Vec<f64> {
        let (mut now_s, mut attempts) = (from_s, Vec::new());
        while let Some((name, at)) = keeper.next(now_s) {
            now_s = now_s.max(at);
            if now_s >= until_s {
                break;
            }
            attempts.push((now_s - NOW_S) as f64 / DAY_S as f64);
            let mut world = world(now_s);
            let from = now_s as i64;
            authority.validity = (from, from + 90 * DAY_S as i64);
            keeper.attempt(&name, authority, &mut world);
            assert!(!world.is_answering, "no answer outlives its attempt");
            now_s = world.now_s;
        }
        attempts
    }

    #[test]
    fn a_certificate_is_obtained_at_once_and_renewed_for_years() {
        let home = Home::new();
        let (mut keeper, mut authority) = (home.keeper(&["a.test"]), FakeAuthority::default());
        let year = NOW_S + 365 * DAY_S;
        let attempts = live(&mut keeper, &mut authority, (NOW_S, year));
        // Every 56 to 60 days.
        assert!(attempts.len() == 7 && attempts[0] < 0.01, "{attempts:?}");
        for pair in attempts.windows(2) {
            assert!((56.0..=60.1).contains(&(pair[1] - pair[0])), "{attempts:?}");
        }
        // Another process reads the same, and asks for nothing.
        let other = Home { issued: Arc::default(), report: Arc::default(), ..home };
        let keeper = other.keeper(&["a.test"]);
        assert!(keeper.next(year).unwrap().1 > year);
        assert_eq!(other.issued.validities().len(), 1);
    }

    #[test]
    fn an_authority_that_is_away_is_asked_less_and_less_and_takes_no_certificate_away() {
        let home = Home::new();
        let (mut keeper, mut authority) = (home.keeper(&["a.test"]), FakeAuthority::default());
        live(&mut keeper, &mut authority, (NOW_S, NOW_S + DAY_S));
        let before = home.issued.validities();
        authority.failing = vec![Trouble::of("away"); 1000];
        let (from, until) = (NOW_S + 50 * DAY_S, NOW_S + 80 * DAY_S);
        let attempts = live(&mut keeper, &mut authority, (from, until));
        assert!((20..60).contains(&attempts.len()), "{attempts:?}");
        let longest = BACK_OFF_MAX.as_secs_f64() * 1.25 / DAY_S as f64;
        assert!(attempts.windows(2).all(|pair| pair[1] - pair[0] <= longest + 0.01));
        assert_eq!(home.issued.validities(), before, "the old one stays in force");
        keeper.report(true, until);
        let state = home.report.names().remove(0);
        assert_eq!(state.error.as_deref(), Some("away"));
        assert_eq!(home.report.attempts(), (1, u64::from(state.failures)));
        // The failures outlive the process, and end with a success.
        let mut keeper = home.keeper(&["a.test"]);
        assert!(keeper.next(until).unwrap().1 > until);
        authority.failing.clear();
        let attempts = live(&mut keeper, &mut authority, (until, until + DAY_S));
        assert_eq!(attempts.len(), 1);
        keeper.report(true, until + DAY_S);
        assert_eq!(home.report.names()[0].failures, 0);
        let home = Home { issued: Arc::default(), ..home };
        assert_eq!(home.keeper(&["a.test"]).names["a.test"].record, Record::default());
    }

    #[test]
    fn one_wrong_name_does_not_keep_the_others_waiting() {
        let home = Home::new();
        let mut keeper = home.keeper(&["a.test", "b.test"]);
        let mut wrong = FakeAuthority { checked: Status::Invalid, ..FakeAuthority::default() };
        assert!(!keeper.attempt("a.test", &mut wrong, &mut world(NOW_S)));
        let (name, at) = keeper.next(NOW_S).unwrap();
        assert_eq!((name.as_str(), at), ("b.test", 0));
        assert!(keeper.attempt("b.test", &mut FakeAuthority::default(), &mut world(NOW_S)));
        let (name, at) = keeper.next(NOW_S).unwrap();
        assert!(name == "a.test" && at >= NOW_S + BACK_OFF_MIN.as_secs());
        // The operator has corrected the name.
        keeper.want(None);
        assert_eq!(keeper.next(NOW_S).unwrap().1, 0);
        keeper.want(Some("b.test"));
        assert!(keeper.names["b.test"].is_wanted && !keeper.names["a.test"].is_wanted);
        // A name that is taken out has no certificate any more; its file stays.
        let keeper = home.keeper(&["a.test"]);
        assert!(home.issued.validities().is_empty());
        assert!(keeper.files.certificate("b.test").unwrap().is_some());
    }

    #[test]
    fn a_clock_that_is_wrong_asks_for_nothing_again_and_again() {
        let home = Home::new();
        let (mut keeper, mut authority) = (home.keeper(&["a.test"]), FakeAuthority::default());
        // Our clock is a year ahead: each new certificate has expired already.
        let now_s = NOW_S + 365 * DAY_S;
        assert!(!keeper.attempt("a.test", &mut authority, &mut world(now_s)));
        assert!(keeper.next(now_s).unwrap().1 >= now_s + BACK_OFF_MIN.as_secs());
        assert_eq!(home.issued.validities().len(), 1, "it is used all the same");
        // Now it is right, and the instant from then is not waited for. The certificate is good.
        let at = keeper.next(NOW_S).unwrap().1;
        assert!((NOW_S + 56 * DAY_S..=NOW_S + 60 * DAY_S).contains(&at));
        let mut keeper = home.keeper(&["b.test"]);
        authority.failing = vec![Trouble::of("away")];
        assert!(!keeper.attempt("b.test", &mut authority, &mut world(now_s)));
        assert_eq!(keeper.next(NOW_S).unwrap().1, NOW_S);
    }

    #[test]
    fn a_certificate_that_cannot_be_stored_is_used_and_fetched_again_without_an_order() {
        let home = Home::new();
        let (mut keeper, mut authority) = (home.keeper(&["a.test"]), FakeAuthority::default());
        // A directory in the place of the file.
        let file = keeper.settings.own_path().join("a.test.pem");
        std::fs::create_dir(&file).unwrap();
        assert!(!keeper.attempt("a.test", &mut authority, &mut world(NOW_S)));
        assert_eq!(home.issued.validities().len(), 1);
        std::fs::remove_dir(&file).unwrap();
        keeper.want(None);
        keeper.names.get_mut("a.test").unwrap().is_wanted = true;
        assert!(keeper.attempt("a.test", &mut authority, &mut world(NOW_S + 400)));
        assert_eq!((authority.orders, authority.count("certificate")), (1, 2));
        assert!(file.is_file());
    }

    #[test]
    fn another_process_follows_the_owner() {
        let home = Home::new();
        let mut owner = home.keeper(&["a.test"]);
        let (issued, report) = (Arc::default(), Arc::default());
        let mut follower = Keeper::new(&owner.settings, &issued, &report);
        follower.follow().unwrap();
        let answer = Answer::Http { token: "t".to_owned(), content: "t.thumb".to_owned() };
        owner.files.put(ANSWER, &answer).unwrap();
        follower.follow().unwrap();
        let path = b"/.well-known/acme-challenge/t";
        assert_eq!(issued.http_answer(path).as_deref(), Some("t.thumb"));
        // A process that begins in the middle of an order has the answer before its thread runs,
        // and not for longer than the owner.
        let begun = Arc::default();
        crate::load(&owner.settings, &begun);
        assert_eq!(begun.http_answer(path).as_deref(), Some("t.thumb"));
        owner.files.remove(ANSWER).unwrap();
        Keeper::new(&owner.settings, &begun, &report).follow().unwrap();
        assert_eq!(begun.http_answer(path), None);
        owner.attempt("a.test", &mut FakeAuthority::default(), &mut world(NOW_S));
        follower.follow().unwrap();
        assert_eq!(issued.http_answer(path), None);
        let obtained = issued.validities();
        assert_eq!(obtained, home.issued.validities());
        // An owner that leaves in the middle of an order leaves the answer, too: at no instant is
        // there none, whether another process follows or has become the owner.
        owner.files.put(ANSWER, &answer).unwrap();
        owner.want(Some("a.test"));
        let mut authority = FakeAuthority { slowness: 5, ..FakeAuthority::default() };
        let mut leaving = FakeWorld { now_s: NOW_S, ends_after: Some(1), ..FakeWorld::default() };
        assert!(!owner.attempt("a.test", &mut authority, &mut leaving));
        assert!(leaving.is_answering);
        owner.files.put(&record_of("a.test"), leaving.saved.as_ref().unwrap()).unwrap();
        follower.follow().unwrap();
        assert_eq!(issued.http_answer(path).as_deref(), Some("t.thumb"));
        follower.take_over().unwrap();
        assert_eq!(issued.http_answer(path).as_deref(), Some("t.thumb"));
        assert!(follower.attempt("a.test", &mut authority, &mut world(NOW_S)));
        assert_eq!(authority.orders, 1);
        owner.take_over().unwrap();
        assert!(owner.files.get::<Answer>(ANSWER).unwrap().is_none(), "no order goes on");
        // A renewal, too.
        std::thread::sleep(Duration::from_millis(20));
        let validity = (NOW_S as i64, (NOW_S + 100 * DAY_S) as i64);
        let mut authority = FakeAuthority { validity, ..FakeAuthority::default() };
        owner.attempt("a.test", &mut authority, &mut world(NOW_S));
        follower.follow().unwrap();
        assert_ne!(issued.validities(), obtained);
        // A damaged file changes nothing.
        owner.files.put_certificate("a.test", b"damaged").unwrap();
        let before = issued.validities();
        follower.follow().unwrap();
        assert_eq!(issued.validities(), before);
    }
}

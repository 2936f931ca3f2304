//! The thread: mail from the server, the clock, and the real world of an order.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Acme;
use transport::tls::Issued;

use crate::Report;
use crate::client::Client;
use crate::files::{Files, Ownership};
use crate::keeper::{ANSWER, Keeper, record_of};
use crate::limits::{FOLLOW, LOOK, SPREAD};
use crate::order::{Record, Trouble, World};
use crate::prove::Answer;

/// A way to the thread. The thread ends when the handle is dropped, and does not delay the end of
/// the process.
#[derive(Debug)]
pub struct Handle {
    mail: mpsc::Sender<Message>,
    report: Arc<Report>,
}

enum Message {
    /// Another configuration.
    Settings(Option<Box<Acme>>),
    /// Ask now for this name, or for all names that have failed.
    Now(Option<String>),
    /// Another process serves from now on.
    Leave,
}

impl Handle {
    /// Starts the thread. [`crate::load`] has loaded the certificates that there are.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(settings: &Acme, issued: &Arc<Issued>) -> io::Result<Handle> {
        let (mail, receiver) = mpsc::channel();
        let report = Arc::new(Report::default());
        let thread = Thread {
            mail: Mail { receiver, unread: VecDeque::new() },
            issued: Arc::clone(issued),
            report: Arc::clone(&report),
        };
        let settings = settings.clone();
        std::thread::Builder::new().name("acme".into()).spawn(move || thread.run(settings))?;
        Ok(Handle { mail, report })
    }

    /// Puts another configuration in force.
    pub fn change(&self, settings: Option<&Acme>) {
        self.send(Message::Settings(settings.cloned().map(Box::new)));
    }

    /// Has the authority asked now: for this name, whatever its certificate, or for all names whose
    /// last attempt has failed.
    pub fn ask_now(&self, name: Option<String>) {
        self.send(Message::Now(name));
    }

    /// Gives up the directory, because another process serves from now on. An order that is in
    /// progress is left to that process.
    pub fn leave(&self) {
        self.send(Message::Leave);
    }

    /// What is known of all names.
    pub fn report(&self) -> &Arc<Report> {
        &self.report
    }

    fn send(&self, message: Message) {
        // The thread has ended only after `Leave`.
        let _ = self.mail.send(message);
    }
}

struct Thread {
    mail: Mail,
    issued: Arc<Issued>,
    report: Arc<Report>,
}

impl Thread {
    fn run(mut self, first: Acme) {
        let mut settings = Some(first);
        loop {
            let next = match &settings {
                Some(settings) => self.keep(settings),
                None => self.mail.next(None),
            };
            // No ownership outlives its configuration, and no answer outlives it, either, but in a
            // process that leaves: it may still get the connection of the check.
            match next {
                Some(Message::Settings(new)) => {
                    let _ = self.issued.set_answer(None);
                    settings = new.map(|new| *new);
                }
                Some(Message::Now(_)) => {}
                Some(Message::Leave) | None => return,
            }
        }
    }

    /// Keeps the certificates of a configuration, until there is another one.
    fn keep(&mut self, settings: &Acme) -> Option<Message> {
        let files = Files::at(settings);
        let mut keeper = Keeper::new(settings, &self.issued, &self.report);
        let mut owner: Option<Ownership> = None;
        let mut client = None;
        let mut complaint = String::new();
        loop {
            let done = self.turn(settings, &files, &mut keeper, (&mut owner, &mut client));
            keeper.report(owner.is_some(), now_s());
            let wait = match done {
                Ok(wait) => {
                    complaint.clear();
                    wait
                }
                Err(why) => {
                    if why != complaint {
                        tracing::error!("{why}");
                        complaint = why;
                    }
                    LOOK
                }
            };
            match self.mail.next(Some(wait)) {
                Some(Message::Settings(Some(new))) if *new == *settings => {}
                Some(Message::Now(name)) => keeper.want(name.as_deref()),
                None if self.mail.is_open() => {}
                other => return other,
            }
        }
    }

    /// Does what is to be done now. Returns how long there is nothing else to do.
    fn turn(
        &mut self,
        settings: &Acme,
        files: &Files,
        keeper: &mut Keeper,
        (owner, client): (&mut Option<Ownership>, &mut Option<Client>),
    ) -> Result<Duration, String> {
        if settings.names.is_empty() {
            return Ok(LOOK);
        }
        if owner.is_none() {
            files.make()?;
            *owner = files.own()?;
            match owner {
                Some(_) => {
                    keeper.take_over()?;
                    keeper.report(true, now_s());
                }
                None => {
                    keeper.follow()?;
                    return Ok(FOLLOW);
                }
            }
        }
        let now = now_s();
        let Some((name, at)) = keeper.next(now) else { return Ok(LOOK) };
        if at > now {
            return Ok(Duration::from_secs(at - now).min(LOOK));
        }
        let mut world = Outside {
            mail: &mut self.mail,
            files,
            issued: &self.issued,
            in_cluster: settings.in_cluster,
        };
        let asked = match client.take() {
            Some(client) => Ok(client),
            None => Client::new(settings, files),
        };
        match asked {
            // After a failure, everything is read again, the authority's directory too.
            Ok(mut asked) => {
                if keeper.attempt(&name, &mut asked, &mut world) {
                    *client = Some(asked);
                }
            }
            Err(trouble) => keeper.failed(&name, &trouble, now),
        }
        Ok(Duration::ZERO)
    }
}

struct Mail {
    receiver: mpsc::Receiver<Message>,
    unread: VecDeque<Message>,
}

impl Mail {
    /// The next message; `None`: there is none within this time, or there will be none.
    fn next(&mut self, within: Option<Duration>) -> Option<Message> {
        if let Some(message) = self.unread.pop_front() {
            return Some(message);
        }
        match within {
            Some(time) => self.receiver.recv_timeout(time).ok(),
            None => self.receiver.recv().ok(),
        }
    }

    /// Whether there may be another message. A message that has come is kept.
    fn is_open(&mut self) -> bool {
        match self.receiver.try_recv() {
            Ok(message) => self.unread.push_back(message),
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => return false,
        }
        true
    }
}

/// The world of an order.
struct Outside<'t> {
    mail: &'t mut Mail,
    files: &'t Files,
    issued: &'t Issued,
    in_cluster: bool,
}

impl World for Outside<'_> {
    fn now_s(&mut self) -> u64 {
        now_s()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Trouble> {
        if !self.mail.unread.is_empty() {
            return Err(Trouble::interrupted());
        }
        match self.mail.receiver.recv_timeout(time) {
            Ok(message) => {
                self.mail.unread.push_back(message);
                Err(Trouble::interrupted())
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(()),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(Trouble::interrupted()),
        }
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), Trouble> {
        self.issued.set_answer(Some(&answer.into())).map_err(Trouble::of)?;
        self.files.put(ANSWER, answer).map_err(Trouble::of)?;
        match self.in_cluster {
            true => self.wait(SPREAD),
            false => Ok(()),
        }
    }

    fn end_answer(&mut self) {
        let ended = self.issued.set_answer(None).and_then(|()| self.files.remove(ANSWER));
        if let Err(why) = ended {
            tracing::error!("{why}");
        }
    }

    fn save(&mut self, name: &str, record: &Record) -> Result<(), Trouble> {
        self.files.put(&record_of(name), record).map_err(Trouble::of)
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

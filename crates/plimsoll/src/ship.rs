//! Sending trials to ClickHouse: `plimsoll ship`, `plimsoll record --ship-to`, and the tables.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use command::failure::{Failure, misuse};
use command::{output, stop_on_signal};
use fleet::clickhouse::{Address, Client, Follower, Layout, Patience, Shipped, Unshipped, slept};
use indicatif::ProgressBar;
use serde::Serialize;
use trial::Trial;

use crate::{cli, progress, trials};

/// The longest password file.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// A database, asked with a login from the URL, a file or the environment.
pub(crate) fn client(url: &str, login: &cli::Login) -> Result<Client, Failure> {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let password = match &login.password_file {
        Some(path) => Some(password(path)?),
        None => variable("CLICKHOUSE_PASSWORD"),
    };
    let address = Address::of(url).map_err(misuse)?;
    let address = address.with_login(variable("CLICKHOUSE_USER"), password);
    Client::new(address.with_ca(login.ca.clone())).map_err(misuse)
}

fn password(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| misuse(format!("cannot read {}: {error}", path.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// `plimsoll fleet init`.
pub(crate) fn init(flags: &cli::FleetInit) -> Result<(), Failure> {
    let layout = Layout {
        ttl_days: flags.ttl_days,
        replicated: flags.replicated.clone(),
        cluster: flags.cluster.clone(),
    };
    let client = client(&flags.database.to, &flags.database.login)?;
    if flags.print {
        let statements = layout.statements(client.address()).map_err(misuse)?;
        return output::print(statements.join(";\n\n") + ";\n");
    }
    let made = client.init(&layout).map_err(misuse)?;
    output::show(flags.json, &made, |made| {
        let what = match made.before {
            0 => format!("made the tables, version {}", made.version),
            before if before < made.version => {
                format!("changed the tables from version {before} to {}", made.version)
            }
            _ => format!("the tables are there, version {}", made.version),
        };
        let to = client.address();
        let notes: String = made.notes.iter().map(|note| format!("note: {note}\n")).collect();
        format!("{to} (ClickHouse {}): {what}\n{notes}", made.clickhouse)
    })
}

/// What `plimsoll ship` did.
#[derive(Serialize)]
struct Summary {
    to: String,
    trials: usize,
    #[serde(flatten)]
    shipped: Shipped,
    seconds: f64,
    failed: Vec<Failed>,
}

/// A trial that cannot be read.
#[derive(Serialize)]
struct Failed {
    trial: PathBuf,
    why: String,
}

/// `plimsoll ship`.
pub(crate) fn ship(flags: &cli::Ship) -> Result<(), Failure> {
    let client = client(&flags.database.to, &flags.database.login)?;
    let to = client.address().to_string();
    let stop = stop_on_signal()?;
    let patience = Patience { lasts: flags.retry_for, until: None, stop: &stop };
    let bar = progress::bar(ProgressBar::new_spinner(), "{elapsed} {msg}", flags.json);
    let begun = Instant::now();
    let (mut all, mut failed, mut trials) = (Shipped::default(), Vec::new(), 0);
    let files = files(&flags.trials, &to)?;
    client.reach(patience).map_err(misuse)?;
    for trial in files {
        let shipped = ship_one(&client, &trial, patience, &mut |shipped| {
            bar.set_message(format!("{}: {} rows", trial.display(), shipped.rows));
            bar.tick();
        });
        match shipped {
            Ok(shipped) => {
                trials += 1;
                all.rows += shipped.rows;
                all.bytes += shipped.bytes;
            }
            Err(NotSent::Database(error)) => {
                return Err(misuse(format!("{}: {error}", trial.display())));
            }
            Err(NotSent::Trial(error)) => failed.push(Failed { trial, why: error.to_string() }),
        }
    }
    bar.finish_and_clear();
    let seconds = begun.elapsed().as_secs_f64();
    let summary = Summary { to, trials, shipped: all, seconds, failed };
    output::show(flags.json, &summary, |summary| {
        let Summary { to, trials, shipped, seconds, .. } = summary;
        let megabytes = shipped.bytes as f64 / 1e6;
        let trials = if *trials == 1 { "1 trial".to_owned() } else { format!("{trials} trials") };
        format!("{to}: {trials}, {} rows, {megabytes:.1} MB in {seconds:.1} s\n", shipped.rows)
    })?;
    match &summary.failed[..] {
        [] => Ok(()),
        [first] => Err(misuse(&first.why)),
        [first, others @ ..] => {
            Err(misuse(format!("{} (and {} other trials)", first.why, others.len())))
        }
    }
}

/// Why a trial was not sent.
enum NotSent {
    Trial(trial::Error),
    Database(fleet::Error),
}

/// Sends a trial. Its note that it was not sent is removed, unless a recorder still writes it.
fn ship_one(
    client: &Client,
    path: &Path,
    patience: Patience<'_>,
    progress: &mut dyn FnMut(Shipped),
) -> Result<Shipped, NotSent> {
    ship_locked(client, path, Unshipped::of(path), patience, progress)
}

fn ship_locked(
    client: &Client,
    path: &Path,
    unshipped: Option<Unshipped>,
    patience: Patience<'_>,
    progress: &mut dyn FnMut(Shipped),
) -> Result<Shipped, NotSent> {
    let trial = Trial::open(path).map_err(NotSent::Trial)?;
    let shipped = client.ship(&trial, patience, progress).map_err(NotSent::Database)?;
    if let Some(unshipped) = unshipped {
        unshipped.done(&client.address().to_string());
    }
    Ok(shipped)
}

/// The trials that the arguments name.
fn files(arguments: &[PathBuf], to: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for argument in arguments {
        if !argument.is_dir() {
            files.push(argument.clone());
            continue;
        }
        let unshipped = Unshipped::in_directory(argument, to);
        let mut others = trials::in_directory(argument)?;
        others.retain(|other| !unshipped.contains(other));
        files.extend(unshipped.into_iter().chain(others));
    }
    Ok(files)
}

/// How often a recording is looked at: a look sends the intervals since the last one, so that the
/// database gets few blocks.
const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause while the database is away.
const AWAY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Shipping ends this long after the recording at the latest.
const END_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// The shipping of one recording.
pub(crate) struct Shipping {
    shared: Arc<Shared>,
    /// It is left behind if it waits for the database at the end.
    thread: Option<JoinHandle<()>>,
}

/// What the thread that ships has in common with the recorder.
struct Shared {
    client: Client,
    trial: PathBuf,
    /// Failures are printed, because there is no progress line.
    print: bool,
    ended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    unshipped: Option<Unshipped>,
    /// Why there is no note.
    no_note: Option<String>,
    /// Why the last look failed.
    why: Option<String>,
    printed: Option<String>,
}

/// The end of the shipping of a recording.
#[derive(Serialize)]
pub(crate) struct Ended {
    to: String,
    /// Whether the database has the finished trial.
    complete: bool,
    /// Why not.
    why: Option<String>,
}

impl Shipping {
    /// Prepares what the flags ask for. Nothing is sent yet. `print`: there is no progress line.
    pub(crate) fn new(
        flags: &cli::ShipTo,
        trial: &Path,
        print: bool,
    ) -> Result<Option<Shipping>, Failure> {
        let Some(to) = &flags.ship_to else { return Ok(None) };
        let (password_file, ca) = (flags.ship_password_file.clone(), flags.ship_ca.clone());
        let shared = Shared {
            client: client(to, &cli::Login { password_file, ca })?,
            trial: trial.to_owned(),
            print,
            ended: AtomicBool::new(false),
            state: Mutex::default(),
        };
        Ok(Some(Shipping { shared: Arc::new(shared), thread: None }))
    }

    /// The recorder has written an interval: a trial that is overwritten is no longer there.
    pub(crate) fn begin(&mut self) {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            self.thread = Some(thread::spawn(move || shared.follow()));
        }
    }

    /// For the progress line: why nothing can be sent at the moment.
    pub(crate) fn shown(&self) -> String {
        let state = self.shared.state();
        let why = state.why.as_ref().map(|why| format!("; not shipped: {why}"));
        let no_note = state.no_note.as_ref().map(|why| format!("; {why}"));
        why.unwrap_or_default() + &no_note.unwrap_or_default()
    }

    /// Sends the finished trial, so that the rows in the database are its rows. `stop` ends the
    /// wait for the database.
    pub(crate) fn finish(self, stop: &AtomicBool) -> Ended {
        let Shipping { shared, thread } = self;
        let until = Instant::now() + END_MAX;
        shared.ended.store(true, Ordering::Relaxed);
        let to = shared.client.address().to_string();
        let busy = || thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while busy() && Instant::now() < until && slept(POLL, stop) {}
        let sent = match busy() {
            true if stop.load(Ordering::Relaxed) => Err("stopped by a signal".to_owned()),
            true => Err("the database does not answer in time".to_owned()),
            false => {
                shared.note();
                shared.finish(Patience { lasts: END_MAX, until: Some(until), stop })
            }
        };
        let no_note = shared.state().no_note.clone();
        let why = match sent {
            Ok(()) => None,
            Err(why) => {
                let trial = shared.trial.display();
                let no_note = no_note.map_or_else(String::new, |no_note| format!("; {no_note}"));
                let again = format!("plimsoll ship {trial} --to {to}");
                warn(&format!("not all was shipped: {why}{no_note}; later: {again}"));
                Some(why)
            }
        };
        Ended { to, complete: why.is_none(), why }
    }
}

/// stderr may be closed.
fn warn(what: &str) {
    let _ = std::io::stderr().write_all(format!("plimsoll: {what}\n").as_bytes());
}

impl Shared {
    /// Follows the recording until it ends. When all of it has been sent, what earlier recordings
    /// in the same directory could not send is sent.
    fn follow(&self) {
        self.note();
        let to = self.client.address().to_string();
        let mut follower = Follower::new(self.client.clone(), &self.trial);
        let mut earlier = Unshipped::in_directory(&directory(&self.trial), &to);
        let (mut pause, mut reached) = (LOOK_PAUSE, false);
        let patience = Patience { lasts: Duration::ZERO, until: None, stop: &self.ended };
        while !self.ended.load(Ordering::Relaxed) {
            self.note();
            let mut looked = Ok(false);
            if !reached {
                looked = self.client.reach(patience).map(|()| false);
                reached = looked.is_ok();
            }
            let looked = looked.and_then(|_| follower.step(&self.ended));
            if self.ended.load(Ordering::Relaxed) {
                return;
            }
            let why = looked.as_ref().err().map(ToString::to_string);
            self.report(why, follower.acknowledged());
            match looked {
                // It is behind.
                Ok(true) => continue,
                Ok(false) => pause = LOOK_PAUSE,
                Err(_) => {
                    slept(pause, &self.ended);
                    pause = (2 * pause).min(AWAY_PAUSE_MAX);
                    continue;
                }
            }
            if let Some((trial, unshipped)) = next_of(&mut earlier) {
                // If it fails, the next recording or `plimsoll ship` sends it.
                let _ = ship_locked(&self.client, &trial, Some(unshipped), patience, &mut |_| ());
                continue;
            }
            slept(pause, &self.ended);
        }
    }

    /// Writes the note that the trial is to be sent, unless that was done. Another recorder that
    /// looks at it has it locked for a moment.
    fn note(&self) {
        let to = self.client.address().to_string();
        let mut state = self.state();
        if state.unshipped.is_none() {
            match Unshipped::begin(&self.trial, &to) {
                Ok(unshipped) => (state.unshipped, state.no_note) = (Some(unshipped), None),
                Err(error) => {
                    let name = self.trial.display();
                    state.no_note = Some(format!("cannot write {name}.unshipped: {error}"));
                }
            }
        }
    }

    /// Keeps what a look found, and prints it if it is new.
    fn report(&self, why: Option<String>, acknowledged: u64) {
        let mut state = self.state();
        state.why = why;
        if let Some(unshipped) = &mut state.unshipped {
            // The note only informs the user. If the disk is full, the recorder says so.
            let _ = unshipped.acknowledge(acknowledged);
        }
        let failed = match &state.why {
            Some(why) => Some(format!("not shipped: {why}; the recording goes on")),
            None => state.no_note.clone(),
        };
        if self.print && failed.is_some() && failed != state.printed {
            warn(failed.as_deref().unwrap_or_default());
            state.printed = failed;
        }
    }

    fn finish(&self, patience: Patience<'_>) -> Result<(), String> {
        let lasts = if self.state().why.is_none() { patience.lasts } else { Duration::ZERO };
        let patience = Patience { lasts, ..patience };
        self.client.reach(patience).map_err(|error| error.to_string())?;
        let trial = Trial::open(&self.trial).map_err(|error| error.to_string())?;
        let sent = self.client.ship(&trial, patience, &mut |_| ());
        sent.map_err(|error| error.to_string())?;
        if let Some(unshipped) = self.state().unshipped.take() {
            unshipped.done(&self.client.address().to_string());
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next trial of these that no other recorder sends.
fn next_of(earlier: &mut Vec<PathBuf>) -> Option<(PathBuf, Unshipped)> {
    while let Some(trial) = earlier.pop() {
        if let Some(unshipped) = Unshipped::of(&trial) {
            return Some((trial, unshipped));
        }
    }
    None
}

fn directory(trial: &Path) -> PathBuf {
    match trial.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

//! Sending trials to ClickHouse: `plimsoll ship`, `plimsoll record --ship-to`, and the tables.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use command::failure::{Failure, misuse};
use command::{output, stop_on_signal};
use fleet::clickhouse::{Address, Client, Follower, Layout, Patience, Shipped, Unshipped, slept};
use indicatif::ProgressBar;
use serde::Serialize;
use trial::Trial;

use crate::{cli, progress};

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
    let patience = Patience { lasts: flags.retry_for, stop: &stop };
    let bar = progress::bar(ProgressBar::new_spinner(), "{elapsed} {msg}", flags.json);
    let begun = Instant::now();
    let (mut all, mut failed, mut trials) = (Shipped::default(), Vec::new(), 0);
    for trial in files(&flags.trials, &to)? {
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
    let unshipped = Unshipped::of(path);
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
        let failed = |error| misuse(format!("cannot read {}: {error}", argument.display()));
        let mut found = Unshipped::in_directory(argument, to);
        let mut others: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(argument).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "trial") {
                others.push(path);
            }
        }
        others.retain(|other| !found.contains(other));
        others.sort();
        found.append(&mut others);
        if found.is_empty() {
            return Err(misuse(format!("{} has no trials (*.trial)", argument.display())));
        }
        files.append(&mut found);
    }
    Ok(files)
}

/// How often a recording is looked at: a look sends the intervals since the last one, so that the
/// database gets few blocks.
const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause while the database is away.
const AWAY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// At the end of a recording the database is waited for this long.
const END_PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// The shipping of one recording.
pub(crate) struct Shipping {
    client: Client,
    trial: PathBuf,
    /// The first interval is in the trial: one that is overwritten is no longer there.
    begun: AtomicBool,
    ended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    unshipped: Option<Unshipped>,
    /// Why the last look failed.
    why: Option<String>,
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
    /// Prepares what the flags ask for. Nothing is sent yet.
    pub(crate) fn new(flags: &cli::ShipTo, trial: &Path) -> Result<Option<Shipping>, Failure> {
        let Some(to) = &flags.ship_to else { return Ok(None) };
        let (password_file, ca) = (flags.ship_password_file.clone(), flags.ship_ca.clone());
        Ok(Some(Shipping {
            client: client(to, &cli::Login { password_file, ca })?,
            trial: trial.to_owned(),
            begun: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            state: Mutex::default(),
        }))
    }

    /// The recorder has written an interval.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// The recorder has written all intervals, or failed.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Follows the recording until it ends. When all of it has been sent, what earlier recordings
    /// in the same directory could not send is sent.
    pub(crate) fn follow(&self) {
        while !self.begun.load(Ordering::Relaxed) {
            if !slept(POLL, &self.ended) {
                return;
            }
        }
        let to = self.client.address().to_string();
        match Unshipped::begin(&self.trial, &to) {
            Ok(unshipped) => self.state().unshipped = Some(unshipped),
            Err(error) => {
                self.state().why = Some(format!("cannot write a note beside it: {error}"))
            }
        }
        let mut follower = Follower::new(self.client.clone(), &self.trial);
        let mut earlier = Unshipped::in_directory(&directory(&self.trial), &to);
        let mut pause = LOOK_PAUSE;
        while !self.ended.load(Ordering::Relaxed) {
            let looked = follower.step();
            let mut state = self.state();
            state.why = looked.as_ref().err().map(ToString::to_string);
            if let Some(unshipped) = &mut state.unshipped {
                // The note only informs the user. If the disk is full, the recorder says so.
                let _ = unshipped.acknowledge(follower.acknowledged());
            }
            drop(state);
            match looked {
                Ok(true) => continue,
                Ok(false) => pause = LOOK_PAUSE,
                Err(_) => {
                    slept(pause, &self.ended);
                    pause = (2 * pause).min(AWAY_PAUSE_MAX);
                    continue;
                }
            }
            if let Some(trial) = earlier.pop() {
                let patience = Patience { lasts: Duration::ZERO, stop: &self.ended };
                // If it fails, the next recording or `plimsoll ship` sends it.
                let _ = ship_one(&self.client, &trial, patience, &mut |_| ());
                continue;
            }
            slept(pause, &self.ended);
        }
    }

    /// For the progress line: why nothing can be sent at the moment.
    pub(crate) fn shown(&self) -> String {
        let why = self.state().why.clone();
        why.map_or_else(String::new, |why| format!("; not shipped: {why}"))
    }

    /// Sends the finished trial, so that the rows in the database are its rows.
    pub(crate) fn finish(self) -> Ended {
        let Shipping { client, trial, state, .. } = self;
        let to = client.address().to_string();
        let State { unshipped, why } = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let never = AtomicBool::new(false);
        let lasts = if why.is_none() { END_PATIENCE } else { Duration::ZERO };
        let sent = Trial::open(&trial).map_err(|error| error.to_string()).and_then(|trial| {
            let patience = Patience { lasts, stop: &never };
            client.ship(&trial, patience, &mut |_| ()).map_err(|error| error.to_string())
        });
        match sent {
            Ok(_) => {
                if let Some(unshipped) = unshipped {
                    unshipped.done(&to);
                }
                Ended { to, complete: true, why: None }
            }
            Err(why) => {
                let again = format!("plimsoll ship {} --to {to}", trial.display());
                let warning = format!("plimsoll: not all was shipped: {why}; later: {again}\n");
                // stderr may be closed.
                let _ = std::io::stderr().write_all(warning.as_bytes());
                Ended { to, complete: false, why: Some(why) }
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn directory(trial: &Path) -> PathBuf {
    match trial.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

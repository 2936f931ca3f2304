//! The terminal: set up for the screen, and restored however the program ends.
//!
//! A guard restores it when it is dropped, a hook restores it on a panic, and signals set a flag
//! that ends the loop. A separate thread watches the trial, so that keys are handled while a line
//! is fitted to an hour of intervals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use command::failure::{Failure, misuse};
use load::sys::{thread_cpu_ns, wall_ns};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};

use super::screen::{self, Theme};
use super::view::View;
use super::{POLL_INTERVAL, Source};
use crate::watch::Watcher;
use crate::watch::model::Model;

/// The longest wait for a key before other events are handled.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// How often the age of the last interval is redrawn.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// A message of the watcher: a model and the CPU time of watching in percent, or its error.
type Update = Result<(Box<Model>, f64), trial::Error>;

/// Shows the recording until the user quits or a signal arrives.
pub(super) fn show(watcher: Watcher, source: &Source, stop: &AtomicBool) -> Result<(), Failure> {
    let screen = Screen::take()?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, updates) = mpsc::channel();
        let done = &done;
        let watching = scope.spawn(move || watch(watcher, &sender, done));
        let shown = event_loop(screen, &updates, source, stop);
        done.store(true, Ordering::Relaxed);
        // A panic there has restored the terminal and printed its message.
        let watched = watching.join().map_err(|_| misuse("the watcher thread panicked"));
        shown.and(watched)
    })
}

/// The terminal, in its alternate screen.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> Result<Screen, Failure> {
        // This also installs the panic hook.
        let terminal = ratatui::try_init().map_err(|error| {
            misuse(format!("cannot use the terminal: {error}; try --once for text"))
        })?;
        Ok(Screen(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
        // The terminal hides the cursor when it first draws, and does not say whether it has.
        let _ = ratatui::crossterm::execute!(std::io::stdout(), Show);
    }
}

/// Sends each new model. An error is the last message.
fn watch(watcher: Watcher, updates: &Sender<Update>, done: &AtomicBool) {
    if let Err(error) = send_models(watcher, updates, done) {
        let _ = updates.send(Err(error));
    }
}

fn send_models(
    mut watcher: Watcher,
    updates: &Sender<Update>,
    done: &AtomicBool,
) -> Result<(), trial::Error> {
    let mut newest: Option<Model> = None;
    while !done.load(Ordering::Relaxed) {
        let looked = watcher.look()?;
        let mut changed = looked.is_some();
        newest = looked.or(newest);
        if let Some(model) = &mut newest {
            // A model without a new line is shown first, because a fit can take long.
            for fits in [false, true] {
                if fits && watcher.fit_is_due() {
                    watcher.fit(model)?;
                    changed = true;
                }
                let update = || Ok((Box::new(model.clone()), watcher.cost_percent()));
                if changed && updates.send(update()).is_err() {
                    return Ok(());
                }
                changed = false;
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Handles updates and keys, and draws.
fn event_loop(
    mut screen: Screen,
    updates: &Receiver<Update>,
    source: &Source,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let theme = Theme { colours: std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()) };
    let mut view = View::default();
    let mut model: Option<Box<Model>> = None;
    let (begun, begun_ns) = (Instant::now(), thread_cpu_ns());
    let mut drawn: Option<Instant> = None;
    let lost = |error: std::io::Error| misuse(format!("lost the terminal: {error}"));
    while !stop.load(Ordering::Relaxed) {
        let mut changed = drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        loop {
            match updates.try_recv() {
                Ok(Ok((mut new, watch_percent))) => {
                    let own_ns = (thread_cpu_ns() - begun_ns) as f64;
                    let own = 100.0 * own_ns / begun.elapsed().as_nanos().max(1) as f64;
                    new.watch_percent = watch_percent + own;
                    if !view.paused {
                        (model, changed) = (Some(new), true);
                    }
                }
                Ok(Err(error)) => return Err(misuse(error)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        // A recording that failed before its first interval has nothing to show.
        if model.is_none() && source.ended() {
            return Ok(());
        }
        if changed {
            let draw = |frame: &mut ratatui::Frame<'_>| {
                let (area, buffer) = (frame.area(), frame.buffer_mut());
                screen::draw(model.as_deref(), &mut view, wall_ns(), theme, area, buffer);
            };
            screen.0.draw(draw).map_err(lost)?;
            drawn = Some(Instant::now());
        }
        while event::poll(if changed { Duration::ZERO } else { KEYS_EVERY }).map_err(lost)? {
            match event::read().map_err(lost)? {
                Event::Key(key) if !view.press(key) => return Ok(()),
                Event::Key(_) | Event::Resize(..) => drawn = None,
                _ => {}
            }
            if drawn.is_none() {
                break;
            }
        }
    }
    Ok(())
}

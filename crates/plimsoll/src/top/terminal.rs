//! The terminal: taken for the screen, given back however it ends.
//!
//! A guard gives it back when it is dropped, a hook when somebody panics, a flag that signals
//! raise ends the loop. The trial is watched in a thread of its own: keys are answered while a
//! line is drawn through an hour of intervals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use command::failure::{Failure, misuse};
use load::sys::{thread_cpu_ns, wall_ns};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::model::Model;
use super::screen::{self, Theme};
use super::view::View;
use super::watcher::Watcher;
use super::{ASK_EVERY, Source};

/// How long a key waits to be answered, at most.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// The age of the last interval is drawn anew so often.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// What the watcher has to say: a model and what watching has cost, or why it cannot go on.
type Told = Result<(Box<Model>, f64), trial::Error>;

/// Shows the recording until the user leaves or a signal says so.
pub(super) fn show(watcher: Watcher, source: &Source, stop: &AtomicBool) -> Result<(), Failure> {
    let screen = Screen::take()?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let done = &done;
        let watching = scope.spawn(move || watch(watcher, &tell, done));
        let shown = turns(screen, &told, source, stop);
        done.store(true, Ordering::Relaxed);
        // A panic there has given the terminal back and said what it was.
        let watched = watching.join().map_err(|_| misuse("the watcher failed"));
        shown.and(watched)
    })
}

/// The terminal, in its other screen.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> Result<Screen, Failure> {
        // It sets the hook for panics too.
        let terminal = ratatui::try_init().map_err(|error| {
            misuse(format!("the terminal cannot be used: {error}; --once prints text"))
        })?;
        Ok(Screen(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn watch(mut watcher: Watcher, tell: &Sender<Told>, done: &AtomicBool) {
    let mut newest: Option<Model> = None;
    while !done.load(Ordering::Relaxed) {
        let looked = watcher.look();
        let more = match looked {
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
            Ok(looked) => looked,
        };
        if let Some(model) = more {
            newest = Some(model);
            if !say(&newest, &watcher, tell) {
                return;
            }
        }
        if let Some(model) = newest.as_mut().filter(|_| watcher.fit_is_due()) {
            if let Err(error) = watcher.fit(model) {
                let _ = tell.send(Err(error));
                return;
            }
            if !say(&newest, &watcher, tell) {
                return;
            }
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Whether anybody listens.
fn say(model: &Option<Model>, watcher: &Watcher, tell: &Sender<Told>) -> bool {
    let Some(model) = model else { return true };
    tell.send(Ok((Box::new(model.clone()), watcher.cost_percent()))).is_ok()
}

/// Turns of the screen: what was told, what was pressed, what is to be drawn.
fn turns(
    mut screen: Screen,
    told: &Receiver<Told>,
    source: &Source,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let theme = Theme { colours: std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()) };
    let mut view = View::default();
    let mut model: Option<Box<Model>> = None;
    let (begun, begun_ns) = (Instant::now(), thread_cpu_ns());
    let mut drawn: Option<Instant> = None;
    let lost = |error: std::io::Error| misuse(format!("the terminal is gone: {error}"));
    while !stop.load(Ordering::Relaxed) {
        let mut changed = drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        loop {
            match told.try_recv() {
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

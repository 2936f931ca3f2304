//! The end of the process at a panic.
//!
//! What: [`end_process`] installs a hook. From then on, a panic of any thread ends the process by
//! SIGABRT, after a report on stderr: the thread, the message, the place, a backtrace, and the line
//! of the request that was being served, if any. Why: a server that has lost a core still accepts
//! that core's share of the connections and never answers them. A process that has ended is started
//! again by its supervisor.
//!
//! ```text
//!   panic -> hook: report --any thread but a core's----------------------------> abort
//!                    '-----core: unwinds to a guard, which adds the request ----^
//!                                '--takes longer than UNWIND_MAX ---------------^
//! ```
//!
//! The guards are [`Serving`] and, around all that a core does, [`OfCore`]. A guard costs a request
//! nothing: its code runs only when a panic unwinds through it.
//!
//! What never happens: a library or a test ends by this module without having called
//! [`end_process`]; bytes of a client reach the report unescaped, or without a limit.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http1::RequestHead;

use crate::limits::{PANIC_MESSAGE_CHARS_MAX, PANIC_REQUEST_CHARS_MAX, UNWIND_MAX};

/// What is done before the process ends. Set once, by [`end_process`].
static BEFORE_END: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();
/// A thread has panicked, and the process is about to end.
static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread runs a core: a panic unwinds to a guard, which ends the process.
    static IS_CORE: Cell<bool> = const { Cell::new(false) };
    /// It is this thread that has set [`ENDING`].
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// From now on, a panic of any thread ends the process. `before_end` is called by the thread that
/// has panicked: it must not wait for what that thread may hold, nor for long.
pub fn end_process(before_end: impl Fn() + Send + Sync + 'static) {
    if BEFORE_END.set(Box::new(before_end)).is_ok() {
        std::panic::set_hook(Box::new(at_panic));
    }
}

fn at_panic(info: &PanicHookInfo<'_>) {
    if ENDING.swap(true, Ordering::AcqRel) && !HAS_PANICKED.get() {
        // Another thread reports, and ends the process. This report would be mixed into that one.
        loop {
            std::thread::park();
        }
    }
    let is_first = !HAS_PANICKED.replace(true);
    write_report(&report(info));
    if planted::is(planted::Bug::PanicSurvived) {
        return HAS_PANICKED.set(false);
    }
    if !(is_first && IS_CORE.get()) {
        end(None);
    }
    // A destructor that waits for ever must not keep the process.
    let watch = || {
        std::thread::park_timeout(UNWIND_MAX);
        end(None);
    };
    if std::thread::Builder::new().name("panic".into()).spawn(watch).is_err() {
        end(None);
    }
}

fn report(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let payload = info.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = Shown(message.unwrap_or("no message").as_bytes(), PANIC_MESSAGE_CHARS_MAX);
    let mut text = format!("plimsoll: PANIC in thread {name}: {message}\n");
    if let Some(place) = info.location() {
        let _ = writeln!(text, "plimsoll: at {place}");
    }
    let _ = writeln!(text, "plimsoll: backtrace:\n{}", Backtrace::force_capture());
    text
}

/// Ends the process. `request` is the line of the request that was being served.
fn end(request: Option<&str>) -> ! {
    if let Some(request) = request {
        write_report(&format!("plimsoll: while serving {request}\n"));
    }
    write_report(
        "plimsoll: this is a bug in plimsoll; the process ends now, so that its supervisor starts \
         it again\n",
    );
    if let Some(before_end) = BEFORE_END.get() {
        before_end();
    }
    std::process::abort();
}

/// If stderr is closed, the process ends all the same.
fn write_report(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Runs what a thread of a core does. A panic in it ends the process, if that was asked for.
pub fn as_core<T>(work: impl FnOnce() -> T) -> T {
    IS_CORE.set(true);
    let guard = OfCore;
    let result = work();
    std::mem::forget(guard);
    IS_CORE.set(false);
    result
}

struct OfCore;

impl Drop for OfCore {
    fn drop(&mut self) {
        unwound(None);
    }
}

/// A panic has unwound to a guard.
#[cold]
fn unwound(request: Option<&Request<'_>>) {
    // `HAS_PANICKED`: the hook is in force, and the panic was not one that was caught. Otherwise
    // the guard is dropped with a request that was given up.
    if IS_CORE.get() && HAS_PANICKED.get() {
        end(request.map(ToString::to_string).as_deref());
    }
}

/// Names the request that the code after it serves, until [`Serving::done`].
pub struct Serving<'r>(Request<'r>);

enum Request<'r> {
    /// Bytes that begin with it.
    Received(&'r [u8]),
    Head(&'r RequestHead<'r>),
}

impl<'r> Serving<'r> {
    /// These bytes begin with the request.
    #[inline]
    pub fn received(bytes: &'r [u8]) -> Serving<'r> {
        Serving(Request::Received(bytes))
    }

    /// The request with this head. The guard may be held while the request waits.
    #[inline]
    pub fn head(head: &'r RequestHead<'r>) -> Serving<'r> {
        Serving(Request::Head(head))
    }

    /// The request is served, or waits.
    #[inline]
    pub fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        unwound(Some(&self.0));
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = PANIC_REQUEST_CHARS_MAX;
        match *self {
            Request::Received(bytes) => {
                let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next();
                Shown(line.unwrap_or_default(), limit).fmt(f)
            }
            Request::Head(head) => {
                let line = [head.method_bytes, b" ", head.target_bytes].concat();
                write!(f, "{} {}", Shown(&line, limit), head.version)
            }
        }
    }
}

/// Text of others: escaped, except that a line feed begins an indented line, and cut.
struct Shown<'t>(&'t [u8], usize);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(bytes, chars_max) = *self;
        // No character is longer than four bytes, so that nothing shown is cut here.
        let bytes = &bytes[..bytes.len().min(chars_max.saturating_mul(4))];
        let text = String::from_utf8_lossy(bytes);
        for character in text.chars().take(chars_max) {
            match character {
                '\n' => f.write_str("\n    ")?,
                '"' | '\'' => f.write_char(character)?,
                _ => write!(f, "{}", character.escape_debug())?,
            }
        }
        match text.chars().nth(chars_max) {
            Some(_) => f.write_str(" ..."),
            None => Ok(()),
        }
    }
}

const _: () = assert!(UNWIND_MAX.as_nanos() > Duration::ZERO.as_nanos());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_escaped_and_cut() {
        let line = |bytes| Request::Received(bytes).to_string();
        assert_eq!(line(b"GET /a HTTP/1.1\r\nHost: a\r\n"), "GET /a HTTP/1.1");
        assert_eq!(line(b"GET /\x1b[2J\xff HTTP/1.1"), "GET /\\u{1b}[2J\u{fffd} HTTP/1.1");
        assert_eq!(line(b""), "");
        let long = [&b"GET /"[..], &[b'a'; 2 * PANIC_REQUEST_CHARS_MAX]].concat();
        assert_eq!(line(&long).chars().count(), PANIC_REQUEST_CHARS_MAX + " ...".len());
        let message = Shown(b"left: 1\nright: \x07", 100).to_string();
        assert_eq!(message, "left: 1\n    right: \\u{7}");
    }

    /// A panic in a test fails the test, and in a library it is the caller's.
    #[test]
    fn without_the_hook_a_panic_unwinds_as_ever() {
        let caught = std::panic::catch_unwind(|| {
            as_core(|| {
                let _serving = Serving::received(b"GET / HTTP/1.1\r\n");
                panic!("planted");
            })
        });
        let message = caught.map_err(|payload| payload.downcast_ref::<&str>().copied());
        assert_eq!(message, Err::<(), _>(Some("planted")));
    }
}

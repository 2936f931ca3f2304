//! `plimsoll dashboard`: a page that shows a recording, a directory of trials or ClickHouse, live.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `serving` | connections: a thread for each, and bounds on all of them |
//! | `recording` | the figures of a trial, as the page reads them |
//! | `many` | the figures of many servers |
//!
//! One thread computes the figures for all pages, and only while a page is open.

mod many;
mod recording;
mod serving;

use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::dashboard::{Access, Snapshot, Token};
use command::failure::{Failure, misuse};
use command::{output, stop_on_signal};
use serde_json::json;

use self::many::Many;
use self::recording::Recording;
use self::serving::Board;
use crate::serve::shown;
use crate::{cli, fleet};

/// Pause between two looks at the source.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is shown.
trait Watched {
    /// Shows the figures, if they have changed, and says whether all that the source has was seen:
    /// `false` if it is too early to look. `show` shows some that are ready before others, which
    /// take longer.
    fn look(&mut self, show: &mut dyn FnMut(Snapshot)) -> Result<bool, Failure>;
}

/// Serves the page until a signal arrives.
pub(crate) fn dashboard(flags: &cli::Dashboard) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let path = Path::new(&flags.source);
    let mut watched: Box<dyn Watched> = if fleet::is_database(&flags.source) || path.is_dir() {
        Box::new(Many::of(flags.source.clone(), flags.login.clone()))
    } else {
        Box::new(Recording::open(path, flags.groups.read()?)?)
    };
    let access = access(flags)?;
    let listener = TcpListener::bind(flags.listen)
        .map_err(|error| misuse(format!("cannot listen on {}: {error}", flags.listen)))?;
    let address = listener.local_addr().map_err(misuse)?;
    let board = Arc::new(Board::default());
    serving::start(listener, access.clone(), Arc::clone(&board))?;
    let url = url(&shown(address), &access);
    if flags.json {
        output::print(json!({ "url": url }).to_string() + "\n")?;
    } else {
        output::print(url + "\n")?;
        if address.ip().is_unspecified() {
            let port = address.port();
            eprintln!("plimsoll: on this machine, 127.0.0.1:{port} can replace the host name");
        }
    }
    // The first look fails if there is nothing to show at all.
    watched.look(&mut |snapshot| board.show(snapshot))?;
    while !stop.load(Ordering::Relaxed) {
        if board.is_watched(LOOK_EVERY) {
            match watched.look(&mut |snapshot| board.show(snapshot)) {
                Ok(true) => board.recover(),
                Ok(false) => {}
                // The file may be back at the next look.
                Err(error) => board.fail(&error.to_string(), ::load::sys::wall_ns() as f64 / 1e9),
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A token, unless the address is a loopback address and the user wants none.
fn access(flags: &cli::Dashboard) -> Result<Access, Failure> {
    match &flags.token_file {
        Some(path) => {
            let unusable = |why: String| misuse(format!("{}: {why}", path.display()));
            let text =
                std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
            Token::of_text(&text).map(Access::Token).map_err(unusable)
        }
        None if flags.listen.ip().to_canonical().is_loopback() => Ok(Access::Local),
        None => Ok(Access::Token(Token::of_random(&random()?))),
    }
}

/// The address to open in a browser.
fn url(address: &str, access: &Access) -> String {
    match access {
        Access::Token(token) => format!("http://{address}/{}", token.fragment()),
        Access::Local | Access::Closed => format!("http://{address}/"),
    }
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| misuse(format!("/dev/urandom: {error}")))?;
    Ok(bytes)
}

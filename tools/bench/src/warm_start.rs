//! How soon a killed server serves its stored responses again.
//!
//! Every server on disk is filled with objects of 1 KB, left idle until everything must be synced,
//! killed with its children by SIGKILL, and started again on its files. The figures are the time
//! from its exec to the first answer and to the first hit, and the hits among 10,000 random
//! objects, at once and again when the server is idle. The machine keeps running, so the page cache
//! is warm for all servers. The origin counts its requests, so a miss is never taken for a hit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use load::family;
use regress::Rng;
use serde::Serialize;

use crate::client::{self, Client};
use crate::measure::Context;
use crate::scenarios::Tier;
use crate::servers::{Running, Server};
use crate::table::{self, Column, Rounds, Spread};

/// The name of the scenario.
pub(crate) const NAME: &str = "warm_start";
const PATH: &str = "/obj/{n}?size=1024";
/// The body size in the name of its directory, which keeps its files apart from other scenarios.
const OWN_FILES: u64 = 0;
/// Number of random objects that are requested after a start.
const SAMPLE: u32 = 10_000;
/// After this time, everything stored is synced or never will be. Our store syncs every 5 s.
const SYNCED_AFTER: Duration = Duration::from_secs(7);
/// How long to wait for the first hit.
const FIRST_HIT_MAX: Duration = Duration::from_secs(60);
/// How long to wait until the server is idle.
const REST_MAX: Duration = Duration::from_secs(60);
const REST_LOOK: Duration = Duration::from_millis(500);
const ASK_AGAIN: Duration = Duration::from_millis(1);

/// One start of a server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Start {
    /// How long it took to fill the cache through the proxy before the first start, s.
    pub(crate) filled_s: f64,
    /// From exec to the first answer, ms.
    pub(crate) answer_ms: f64,
    /// From exec to the first hit, ms.
    pub(crate) hit_ms: f64,
    /// The share of hits among random objects, requested one after another at once.
    pub(crate) hits_at_once: f64,
    /// From exec until the server was idle, ms.
    pub(crate) rest_ms: f64,
    /// The share of hits among other random objects then.
    pub(crate) hits_at_rest: f64,
}

/// The measurement.
#[derive(Debug)]
pub(crate) struct Bench<'b> {
    pub(crate) context: &'b Context<'b>,
    pub(crate) objects: u32,
}

impl Bench<'_> {
    pub(crate) fn run(&self, servers: &[&Server]) -> Result<Vec<Rounds<Start>>, String> {
        let servers: Vec<&&Server> =
            servers.iter().filter(|server| server.tier == Tier::Disk).collect();
        let (mut rows, mut running) = (Vec::new(), Vec::new());
        for server in &servers {
            let filled = self.filled(server);
            self.context.check_stop()?;
            let note = filled.as_ref().err().cloned();
            rows.push(Rounds { note, ..Rounds::none_yet(server.name) });
            running.push(filled.ok());
        }
        table::in_rounds(self.context, NAME, &mut rows, |at, round| {
            if at == 0 {
                thread::sleep(SYNCED_AFTER);
            }
            let (filled_s, before) = running[at].take()?;
            let before = (filled_s, before);
            let again = self.start_again(before, servers[at], &mut Rng::new(u64::from(round)));
            Some(again.map(|(start, again)| {
                running[at] = Some((filled_s, again));
                start
            }))
        })?;
        Ok(rows)
    }

    /// Starts a server for the first time and fills it. Gives how long that took, in seconds.
    fn filled(&self, server: &Server) -> Result<(f64, Running), String> {
        let began = Instant::now();
        let Context { ground, pace, stop, .. } = *self.context;
        let running = server.start(ground, OWN_FILES)?;
        client::fill(running.addr, PATH, self.objects, (pace.cpu, stop))?;
        let filled_s = began.elapsed().as_secs_f64();
        eprintln!("{NAME} {:<24} filled in {filled_s:.1} s", server.name);
        Ok((filled_s, running))
    }

    fn start_again(
        &self,
        (filled_s, before): (f64, Running),
        server: &Server,
        random: &mut Rng,
    ) -> Result<(Start, Running), String> {
        before.process.kill()?;
        let running = server.launch(self.context.ground, OWN_FILES)?;
        let mut next = || client::object_path(PATH, random.below(self.objects as usize) as u32);
        let mut client = Client::new(running.addr);
        let mut answer_ms = None;
        let since_ms = || running.began.elapsed().as_secs_f64() * 1e3;
        let hit_ms = loop {
            let fetched = self.fetched();
            if client.get(&next()).is_ok() {
                let now_ms = since_ms();
                answer_ms.get_or_insert(now_ms);
                if self.fetched() == fetched {
                    break now_ms;
                }
            } else {
                thread::sleep(ASK_AGAIN);
            }
            if running.began.elapsed() > FIRST_HIT_MAX {
                return Err(format!("no hit within {} s", FIRST_HIT_MAX.as_secs()));
            }
        };
        let hits_at_once = self.hits(&mut client, &mut next)?;
        rest(&running, self.context.stop);
        let rest_ms = since_ms();
        let hits_at_rest = self.hits(&mut client, &mut next)?;
        let answer_ms = answer_ms.unwrap_or(hit_ms);
        let start = Start { filled_s, answer_ms, hit_ms, hits_at_once, rest_ms, hits_at_rest };
        Ok((start, running))
    }

    /// The share of hits in a sample.
    fn hits(&self, client: &mut Client, next: &mut impl FnMut() -> String) -> Result<f64, String> {
        let before = self.fetched();
        for _ in 0..SAMPLE {
            client.get(&next()).map_err(|e| format!("after its start: {e}"))?;
        }
        Ok(1.0 - (self.fetched() - before) as f64 / f64::from(SAMPLE))
    }

    fn fetched(&self) -> u64 {
        self.context.origin.requests.load(Ordering::SeqCst)
    }
}

/// Waits until the server is idle.
fn rest(running: &Running, stop: &AtomicBool) {
    let began = Instant::now();
    let used = || family::cpu_ns(&running.process.family());
    let mut before = used();
    while began.elapsed() < REST_MAX && !stop.load(Ordering::Relaxed) {
        thread::sleep(REST_LOOK);
        let now = used();
        if now.saturating_sub(before) < REST_LOOK.as_nanos() as u64 / 50 {
            return;
        }
        before = now;
    }
}

/// The columns of the table.
const COLUMNS: &[Column<Start>] = &[
    ("filled in, s", |start| start.filled_s, 0),
    ("first answer, ms", |start| start.answer_ms, 0),
    ("first hit, ms", |start| start.hit_ms, 0),
    ("idle after, ms", |start| start.rest_ms, 0),
];

/// The rows as a table.
pub(crate) fn table(rows: &[Rounds<Start>]) -> comfy_table::Table {
    let hits = |of: fn(&Start) -> f64| {
        let part = |row: &Rounds<Start>| {
            let spread = Spread::of(row.rounds.iter().map(of));
            // The minimum: a start that lost objects is not compensated by another.
            spread.map_or("-".to_owned(), |s| format!("{:.2} %", 100.0 * s.min))
        };
        rows.iter().map(part).collect()
    };
    let (at_once, at_rest) = (hits(|start| start.hits_at_once), hits(|start| start.hits_at_rest));
    table::of_rounds(rows, COLUMNS, &[("hits at once", at_once), ("hits when idle", at_rest)])
}

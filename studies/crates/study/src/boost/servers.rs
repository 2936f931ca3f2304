//! The servers, each once for every call by which it can wait.

use std::path::{Path, PathBuf};

use harness::Error;
use harness::recipe::{Place, Recipe};
use serde_json::Value;

use crate::servers::{Running, start_ours, start_peer};

/// Length of the body of every response.
const BODY_BYTES: usize = 1024;
/// Descriptors that a server needs in addition to those of connections.
const OTHER_DESCRIPTORS: u32 = 512;

const HAPROXY: Recipe = Recipe {
    config: include_str!("haproxy.cfg"),
    command: "{program} -db -q {no_epoll} -f {config}",
    ..Recipe::named("haproxy")
};

const LIGHTTPD: Recipe = Recipe {
    config: include_str!("lighttpd.conf"),
    command: "{program} -D -f {config}",
    ..Recipe::named("lighttpd")
};

/// The servers: the name, the path that is requested, and how a peer is started.
const SERVERS: [(&str, &str, Option<Recipe>); 3] = [
    ("haproxy", "/body", Some(HAPROXY)),
    ("lighttpd", "/body", Some(LIGHTTPD)),
    ("plimsoll", "/obj/1?size=1024", None),
];

/// A server and how it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// Its number in [`SERVERS`].
    pub(super) server: usize,
    /// The call.
    pub(super) wait: &'static str,
    /// Whether the library is preloaded.
    pub(super) boosted: bool,
}

/// The call that the others are compared with.
const NATIVE: &str = "epoll";

/// How each server waits: the call, and whether the library is preloaded. Of the servers only ours
/// has select().
const WAITS: [(&str, bool); 5] =
    [(NATIVE, false), ("poll", false), ("poll", true), ("select", false), ("select", true)];

/// All servers with all their ways to wait.
pub(super) fn variants() -> impl Iterator<Item = Variant> {
    (0..SERVERS.len()).flat_map(|server| {
        let waits = if SERVERS[server].2.is_some() { &WAITS[..3] } else { &WAITS };
        waits.iter().map(move |&(wait, boosted)| Variant { server, wait, boosted })
    })
}

impl Variant {
    pub(super) fn server_name(self) -> &'static str {
        SERVERS[self.server].0
    }

    /// The same server on the same call without the library.
    pub(super) fn plain(self) -> Variant {
        Variant { boosted: false, ..self }
    }

    /// The same server on the call that the others are compared with.
    pub(super) fn native(self) -> Variant {
        Variant { wait: NATIVE, boosted: false, ..self }
    }

    /// The path that is requested.
    pub(super) fn path(self) -> &'static str {
        SERVERS[self.server].1
    }

    /// `haproxy on poll, boosted`
    pub(super) fn name(self) -> String {
        let boosted = if self.boosted { ", boosted" } else { "" };
        format!("{} on {}{boosted}", self.server_name(), self.wait)
    }
}

/// A running server.
pub(super) struct Started {
    pub(super) variant: Variant,
    pub(super) server: Running,
    stats: PathBuf,
}

impl Started {
    /// Ends it and gives the statistics of the library, if it wrote them.
    pub(super) fn end(self) -> Option<Value> {
        drop(self.server);
        let text = std::fs::read_to_string(self.stats).ok()?;
        // Each process writes a line when it ends; the server is the one that waited most.
        let counts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut counts = counts.max_by_key(|counts| counts["calls"].as_u64())?;
        counts["of"] = self.variant.name().into();
        Some(counts)
    }
}

/// Starts a server in a directory below `place.home`. `most` is the highest number of cold
/// connections. The inner error says why a peer is missing.
pub(super) fn start(
    program: &Path,
    place: Place<'_>,
    most: u32,
    variant: Variant,
) -> Result<Result<Started, String>, Error> {
    let home = place.home.join(variant.name().replace([' ', ','], "-"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Directory(path, error)
    };
    std::fs::create_dir_all(&home).map_err(failed(&home))?;
    // All servers share one file, because a server may derive an entity tag from its inode.
    let body = place.home.join("body");
    if !body.exists() {
        let text: String = ('a'..='z').cycle().take(BODY_BYTES).collect();
        std::fs::write(&body, text).map_err(failed(&body))?;
    }
    let stats = home.join("stats.json");
    let boost = ["boost", "--stats", &stats.display().to_string(), "--"].map(String::from);
    let ours = program.display().to_string();
    let on_poll = variant.wait == "poll";
    let values = [
        ("body", body.display().to_string()),
        ("tree", place.home.display().to_string()),
        ("handler", if on_poll { "poll" } else { "linux-sysepoll" }.to_owned()),
        ("no_epoll", if on_poll { "-de" } else { "" }.to_owned()),
        ("connections", (most + OTHER_DESCRIPTORS).to_string()),
    ];
    let place = Place { home: &home, ..place };
    let started = match SERVERS[variant.server].2 {
        Some(kind) if variant.boosted => {
            start_peer(&kind, place, &[&[ours][..], &boost].concat(), &values)
        }
        Some(kind) => start_peer(&kind, place, &[], &values),
        None => {
            let more = ["--workers", "1", "--backend", variant.wait].map(String::from);
            let boosted = [&boost[..], &[ours]].concat();
            let before = if variant.boosted { &boosted[..] } else { &[] };
            Ok(start_ours(program, place, before, &more)?)
        }
    };
    Ok(started.map(|server| Started { variant, server, stats }))
}

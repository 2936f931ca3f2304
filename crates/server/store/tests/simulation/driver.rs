//! One run: a seed determines a disk, a store, faults, and a few lives of the process. Each life is
//! some hundred steps long and ends by a crash, a kill or a close. Every found object is compared
//! with the model.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::{self, Disk, Faults, Rng};
use runtime::{JoinHandle, Runtime, spawn, time};
use store::disk::{About, Body, DiskStore, Geometry, Hit, Options, Refused, Start, Writer};
use store::{Concerns, Known, Verdict};

use crate::model::{CLASSES, Matches, Model, Pattern, Version};

const DIRECTORY: &str = "/store";
const META_BYTES: usize = 32;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) operations: u64,
    pub(crate) hits: u64,
    pub(crate) crashes: u64,
    pub(crate) kills: u64,
    pub(crate) restarts: u64,
    pub(crate) fresh: u64,
    pub(crate) faults: u64,
    pub(crate) sectors_lost: u64,
    pub(crate) bad_blocks: u64,
    pub(crate) moved: u64,
    pub(crate) saves: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Report) {
        self.operations += other.operations;
        self.hits += other.hits;
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.restarts += other.restarts;
        self.fresh += other.fresh;
        self.faults += other.faults;
        self.sectors_lost += other.sectors_lost;
        self.bad_blocks += other.bad_blocks;
        self.moved += other.moved;
        self.saves += other.saves;
    }
}

/// The parameters that a seed determines.
#[derive(Clone, Debug)]
struct Plan {
    faults: Faults,
    /// Bits flip in files at rest.
    rot: bool,
    /// Nothing but crashes goes wrong: then flushed objects must be there.
    sound: bool,
    keys: usize,
    /// All bodies have this length, so that the same places are reused.
    fixed_len: Option<u64>,
    lives: u64,
    steps: u64,
    delay_ms: u64,
    /// The copy that rots; the other stays good.
    rotten_copy: u64,
}

impl Plan {
    fn draw(random: &mut Rng) -> Plan {
        let none = Faults::default();
        let kind = random.below(8);
        let faults = match kind {
            3 => none.with_read_error(0.02).with_short_read(0.2).with_misread(0.02),
            4 => none.with_write_error(0.05).with_no_space(0.02),
            5 => none.with_sync_error(0.1),
            6 => none
                .with_read_error(0.005)
                .with_write_error(0.01)
                .with_sync_error(0.02)
                .with_rot(0.003)
                .with_short_read(0.05),
            _ => none,
        };
        Plan {
            faults,
            rot: kind >= 6 || kind == 3,
            sound: kind < 3,
            keys: [6, 16, 40, 200][random.below(4) as usize],
            fixed_len: (random.below(100) < 45)
                .then(|| [200, 2100, 4000, 9000, 14_000][random.below(5) as usize]),
            lives: 2 + random.below(5),
            steps: 60 + random.below(400),
            delay_ms: [0, 0, 1, 3][random.below(4) as usize],
            rotten_copy: random.below(2),
        }
    }
}

/// Acknowledgements that have arrived.
#[derive(Default)]
struct Acknowledged {
    deletes: Vec<(usize, u64)>,
    purges: Vec<u64>,
}

struct Reading {
    body: Body,
    version: Version,
    at: u64,
}

struct Writing {
    writer: Writer,
    number: u64,
    written: u64,
}

struct Run<'p> {
    pattern: &'p Pattern,
    random: Rng,
    plan: Plan,
    disk: Disk,
    model: Model,
    report: Report,
    acknowledged: Rc<RefCell<Acknowledged>>,
    /// The last objects found, by key: object, body, length.
    seen: Vec<Option<(u64, u64, u64)>>,
}

/// Runs a seed.
///
/// # Panics
/// If a found object is not allowed.
pub(crate) fn run(seed: u64, pattern: &Pattern) -> Report {
    let mut random = Rng::new(seed);
    let plan = Plan::draw(&mut random);
    let disk = Disk::new(random.next());
    let delay = Duration::ZERO..Duration::from_millis(plan.delay_ms);
    let options = sim::Options::new(random.next()).with_disk(disk.clone(), delay);
    let model = Model::new(plan.keys);
    let seen = vec![None; plan.keys];
    let run = Run {
        pattern,
        random,
        plan,
        disk: disk.clone(),
        model,
        report: Report::default(),
        acknowledged: Rc::default(),
        seen,
    };
    let mut report = Runtime::simulated(options).block_on(run.all_lives());
    let counters = disk.counters();
    report.crashes = counters.crashes;
    report.kills = counters.kills;
    report.faults = counters.faults;
    report.sectors_lost = counters.sectors_lost;
    report
}

fn meta_of(number: u64, version: &Version) -> [u8; META_BYTES] {
    let mut meta = [0; META_BYTES];
    for (at, value) in [number, version.body, version.len, version.generation].iter().enumerate() {
        meta[at * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    meta
}

impl Run<'_> {
    async fn all_lives(mut self) -> Report {
        let mut must_be_there = Vec::new();
        for life in 0..self.plan.lives {
            let (store, flusher) = self.open(life, &must_be_there).await;
            self.disk.set_faults(self.plan.faults);
            let steps = 1 + self.random.below(self.plan.steps);
            self.live(&store, steps).await;
            must_be_there = self.end(store, flusher).await;
        }
        self.report
    }

    async fn open(&mut self, life: u64, must: &[usize]) -> (DiskStore, JoinHandle<()>) {
        let mut options = Options::new(DIRECTORY, Geometry::tiny(16 + self.plan.keys as u32 % 5));
        options.buffer_bytes_max = 256 * 1024;
        options.flush_interval = Duration::from_millis(5 + self.random.below(40));
        options.sync_interval = Duration::from_millis(20 + self.random.below(500));
        options.seeds = Some([3, 4, 5]);
        // Data with two copies has one good copy: no start reads both wrong unnoticed.
        self.disk.set_faults(self.plan.faults.with_misread(0.0).with_rot(0.0));
        // A start may fail, but not once the disk is good again.
        let opened = match DiskStore::open(options.clone()).await {
            Err(error) => {
                assert!(!self.plan.sound, "a start failed on a sound disk: {error}");
                if error.to_string().contains("beginning a store") {
                    self.model.replaced();
                }
                self.disk.set_faults(Faults::default());
                DiskStore::open(options).await.expect("the disk is good now")
            }
            Ok(opened) => opened,
        };
        self.disk.set_faults(Faults::default());
        let (store, start) = opened;
        self.report.restarts += u64::from(life > 0);
        if let Start::Fresh(why) = &start {
            assert!(!self.plan.sound, "replaced on a sound disk: {why}");
            self.report.fresh += 1;
            self.model.replaced();
        }
        if self.plan.sound {
            for key in must {
                let key = &self.model.keys[*key];
                assert!(store.contains(&key.key), "{} was flushed, and is lost", key.url);
            }
        }
        let running = store.clone();
        (store, spawn(async move { running.run().await }))
    }

    async fn live(&mut self, store: &DiskStore, steps: u64) {
        let mut readings: Vec<Reading> = Vec::new();
        let mut writings: Vec<Writing> = Vec::new();
        for _ in 0..steps {
            self.report.operations += 1;
            let key = self.random.below(self.plan.keys as u64) as usize;
            match self.random.below(100) {
                0..44 => self.get(store, key, &mut readings).await,
                44..63 => self.put(store, key),
                // All at once, so that they hit the flusher in the middle of its work.
                63 => {
                    for _ in 0..12 {
                        self.report.operations += 1;
                        let key = self.random.below(self.plan.keys as u64) as usize;
                        self.put(store, key);
                    }
                }
                64..72 => self.write_some(store, key, &mut writings),
                72..78 => self.delete(store, key).await,
                78..81 => self.update(store, key).await,
                81..83 => self.purge(store, key).await,
                83..85 => self.flush(store).await,
                85..90 => self.read_some(&mut readings).await,
                90..92 => self.rot(),
                _ => time::sleep(Duration::from_millis(self.random.below(60))).await,
            }
            if self.random.below(100) < 20 {
                runtime::yield_now().await;
            }
            self.take_acknowledged();
        }
        let counters = store.counters();
        self.report.bad_blocks += counters.bad_blocks;
        self.report.moved += counters.moved;
        self.report.saves += counters.index_saves;
    }

    /// Ends a life. Returns the keys that must be there in the next.
    async fn end(&mut self, store: DiskStore, flusher: JoinHandle<()>) -> Vec<usize> {
        let must = match self.random.below(4) {
            0 => {
                store.close();
                flusher.await;
                // On a sound disk, the disk now has what memory has.
                let there = |key: &usize| store.contains(&self.model.keys[*key].key);
                let must = (0..self.plan.keys).filter(there).collect();
                self.disk.kill();
                if !self.plan.sound {
                    self.model.crashed();
                }
                must
            }
            kind => {
                let must = self.model.must_survive(|key| store.contains(key));
                self.take_acknowledged();
                flusher.abort();
                if kind == 1 {
                    self.disk.kill();
                } else {
                    self.disk.crash();
                }
                self.model.crashed();
                must
            }
        };
        drop(store);
        // Pending acknowledgements never arrive.
        self.acknowledged = Rc::default();
        self.seen.fill(None);
        must
    }

    fn take_acknowledged(&mut self) {
        let acknowledged = std::mem::take(&mut *self.acknowledged.borrow_mut());
        for (key, up_to) in acknowledged.deletes {
            self.model.delete_acknowledged(key, up_to);
        }
        acknowledged.purges.into_iter().for_each(|mark| self.model.purge_acknowledged(mark));
    }

    /// Judges a found object as a server would: by the purges, and by the model.
    fn judge(&mut self, store: &DiskStore, key: usize, hit: &Hit) -> Option<Version> {
        let number = |at: usize| u64::from_le_bytes(hit.meta[at * 8..][..8].try_into().unwrap());
        assert_eq!(hit.meta.len(), META_BYTES, "key {key}: metadata of another length");
        let url = self.model.keys[key].url.as_bytes();
        let known = Known { url, tags: b"", more_tags: false };
        if store.purges().judge(known, hit.generation).0 != Verdict::Good {
            return None;
        }
        let version = self.model.check(key, number(0)).unwrap_or_else(|wrong| panic!("{wrong}"));
        let expected = (version.body, version.len, version.generation, version.len);
        assert_eq!((number(1), number(2), hit.generation, hit.body_len), expected, "key {key}");
        self.seen[key] = Some((hit.object, version.body, version.len));
        Some(version)
    }

    async fn get(&mut self, store: &DiskStore, key: usize, readings: &mut Vec<Reading>) {
        let id = self.model.keys[key].key;
        let Some(hit) = store.get(&id).await else { return };
        let Some(version) = self.judge(store, key, &hit) else { return };
        self.report.hits += 1;
        let (start, end) = if self.random.below(100) < 70 {
            (0, version.len)
        } else {
            let start = self.random.below(version.len + 1);
            (start, start + self.random.below(version.len + 10))
        };
        let mut reading = Reading { body: hit.range(start..end), version, at: start };
        if self.random.below(100) < 10 {
            readings.push(reading);
            return;
        }
        while self.read_piece(&mut reading).await {}
    }

    /// Reads a piece. False at the end.
    async fn read_piece(&self, reading: &mut Reading) -> bool {
        match reading.body.next().await {
            Ok(Some(piece)) => {
                let version = reading.version;
                let all = self.pattern.body(version.body, version.len);
                let expected = &all[reading.at as usize..][..piece.len()];
                assert!(*piece == *expected, "key {}: wrong bytes", version.key);
                reading.at += piece.len() as u64;
                true
            }
            // A broken body is cut, or continued from the origin.
            Ok(None) | Err(_) => false,
        }
    }

    async fn read_some(&mut self, readings: &mut Vec<Reading>) {
        if let Some(mut reading) = readings.pop()
            && self.read_piece(&mut reading).await
        {
            readings.insert(0, reading);
        }
    }

    fn len(&mut self) -> u64 {
        if let Some(len) = self.plan.fixed_len {
            return len; // the same places are reused
        }
        match self.random.below(20) {
            0 => 0,
            1..15 => self.random.below(1500),
            15..18 => 3900 + self.random.below(300),
            18 => self.random.below(20_000),
            _ => 16_000 + self.random.below(49_000),
        }
    }

    fn begin(&mut self, store: &DiskStore, key: usize, body: Option<(u64, u64)>) -> (u64, About) {
        let generation = store.purges().now();
        let len = body.map_or_else(|| self.len(), |(_, len)| len);
        let number = self.model.begin(key, body.map(|(body, _)| body), len, generation);
        (number, About { generation, time_ms: 1 })
    }

    fn put(&mut self, store: &DiskStore, key: usize) {
        let (number, about) = self.begin(store, key, None);
        let version = self.model.version(number);
        let body = self.pattern.body(version.body, version.len);
        let id = self.model.keys[key].key;
        let put = store.put(&id, about, &meta_of(number, &version), body);
        self.model.stored(number, put.is_ok());
    }

    /// Starts a body, or continues, finishes or abandons one.
    fn write_some(&mut self, store: &DiskStore, key: usize, writings: &mut Vec<Writing>) {
        if writings.len() < 3 && self.random.below(100) < 40 {
            let (number, about) = self.begin(store, key, None);
            let meta = meta_of(number, &self.model.version(number));
            let writer = store.writer(&self.model.keys[key].key, about, &meta);
            writings.push(Writing { writer, number, written: 0 });
            return;
        }
        let Some(mut writing) = writings.pop() else { return };
        let version = self.model.version(writing.number);
        let body = self.pattern.body(version.body, version.len);
        let left = version.len - writing.written;
        let now = self.random.below(left + 1).max(left.min(700));
        let end = writing.written + now;
        if self.random.below(100) < 15 {
            return; // abandoned: the old object stays
        }
        if writing.writer.write(&body[writing.written as usize..end as usize]).is_err() {
            // Refused: the old object stays.
        } else if end == version.len {
            if writing.writer.finish().is_ok() {
                self.model.stored(writing.number, true);
            }
        } else {
            writing.written = end;
            writings.insert(0, writing);
        }
    }

    async fn delete(&mut self, store: &DiskStore, key: usize) {
        let pending = store.delete(&self.model.keys[key].key);
        let up_to = self.model.deleted(key);
        if self.random.below(100) < 50 {
            if pending.durable().await.is_ok() {
                self.model.delete_acknowledged(key, up_to);
            }
            return;
        }
        let acknowledged = Rc::clone(&self.acknowledged);
        spawn(async move {
            if pending.durable().await.is_ok() {
                acknowledged.borrow_mut().deletes.push((key, up_to));
            }
        });
    }

    async fn purge(&mut self, store: &DiskStore, key: usize) {
        let url = self.model.keys[key].url.clone();
        let prefix = format!("h/{}/", key % CLASSES);
        let (concerns, matches) = match self.random.below(20) {
            0 => (Concerns::All, Matches::All),
            1..5 => (Concerns::Prefix(prefix.as_bytes()), Matches::Class(key % CLASSES)),
            _ => (Concerns::Url(url.as_bytes()), Matches::Key(key)),
        };
        let (mark, pending) = store.purge(concerns, false, 1);
        self.model.purged(mark.generation, matches);
        let acknowledged = Rc::clone(&self.acknowledged);
        let waiting = spawn(async move {
            if pending.durable().await.is_ok() {
                acknowledged.borrow_mut().purges.push(mark.generation);
            }
        });
        if self.random.below(100) < 50 {
            waiting.await;
        }
    }

    async fn update(&mut self, store: &DiskStore, key: usize) {
        // The last one found; the current object may be another.
        let Some((object, body, len)) = self.seen[key] else { return };
        let (number, about) = self.begin(store, key, Some((body, len)));
        let meta = meta_of(number, &self.model.version(number));
        match store.update(&self.model.keys[key].key, object, about, &meta).await {
            Ok(()) => self.model.stored(number, true),
            Err(Refused::Changed) => {}
            Err(_) => self.model.stored(number, false),
        }
    }

    async fn flush(&mut self, store: &DiskStore) {
        let flushed = store.flush().await;
        assert!(flushed.is_ok() || !self.plan.sound, "a flush failed on a sound disk");
        if flushed.is_ok() {
            self.model.flushed(|key| store.contains(key));
        }
    }

    /// Flips a bit at rest. Of data with two copies, one stays good.
    fn rot(&mut self) {
        if !self.plan.rot {
            return;
        }
        let draw = self.random.next();
        let within = |start: usize, len: usize| move |_| start + (draw as usize >> 8) % len;
        let copy = self.plan.rotten_copy as usize;
        let path = |name: &str| format!("{DIRECTORY}/{name}");
        match self.random.below(12) {
            0 => self.disk.rot(path("superblock"), within(copy * 4096, 96)),
            1 => self.disk.rot(path("index-0"), within(copy * 4096, 64)),
            2 => self.disk.rot(path("index-1"), within(copy * 4096, 64)),
            3..6 => self.disk.rot(path("journal-0"), within(copy * 8192, 5000)),
            6..9 => self.disk.rot(path("journal-1"), within(copy * 8192, 5000)),
            _ => self.disk.rot(path("segments"), |len| (draw >> 8) as usize % len),
        };
    }
}

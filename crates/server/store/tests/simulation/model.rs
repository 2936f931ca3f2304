//! The plain model: what may be found under each key.
//!
//! While a process lives, a key has exactly the last version put, or nothing. After a crash it has
//! some version that was stored once and not removed since by an acknowledged delete or purge. A
//! version that was flushed and not touched afterwards must be there, if no fault was drawn.

use std::collections::HashMap;

use store::{Generation, Key};

/// Bodies are slices of this many pseudo-random bytes.
const PATTERN_BYTES: usize = 256 * 1024;

/// The bytes of all bodies.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    pub(crate) fn new() -> Pattern {
        let mut state = 1_u64;
        Pattern(
            (0..PATTERN_BYTES)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(77);
                    (state >> 56) as u8
                })
                .collect(),
        )
    }

    pub(crate) fn body(&self, seed: u64, len: u64) -> &[u8] {
        let room = (PATTERN_BYTES - len as usize) as u64;
        let start = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % room;
        &self.0[start as usize..(start + len) as usize]
    }
}

/// A version that was stored, or was to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) key: usize,
    /// The body's own number; a rewritten head keeps it.
    pub(crate) body: u64,
    pub(crate) len: u64,
    pub(crate) generation: Generation,
    /// When it was stored, in global order; `None`: never.
    stored: Option<u64>,
}

#[derive(Clone, Debug)]
struct Purge {
    generation: Generation,
    matches: Matches,
    acknowledged: bool,
}

/// What a purge matches.
#[derive(Clone, Debug)]
pub(crate) enum Matches {
    All,
    Key(usize),
    Class(usize),
}

/// Keys of one class share a prefix.
pub(crate) const CLASSES: usize = 4;

impl Matches {
    fn concerns(&self, key: usize) -> bool {
        match self {
            Matches::All => true,
            Matches::Key(one) => *one == key,
            Matches::Class(class) => key % CLASSES == *class,
        }
    }
}

pub(crate) struct KeyState {
    pub(crate) key: Key,
    pub(crate) url: String,
    /// The current version, if any.
    current: Option<u64>,
    /// There was a crash since: any version that is not forbidden may be there.
    uncertain: bool,
    /// Versions stored up to this point are gone for good.
    floor: u64,
    /// It was there at the last flush, and not touched since.
    durable: Option<u64>,
}

pub(crate) struct Model {
    pub(crate) keys: Vec<KeyState>,
    versions: HashMap<u64, Version>,
    purges: Vec<Purge>,
    /// Counts events.
    now: u64,
    next_version: u64,
}

impl Model {
    /// This many keys, some of which share the half that the index knows.
    pub(crate) fn new(count: usize) -> Model {
        let key = |number: usize| {
            let low = (number as u64 / 2 * 2 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Every fifth pair shares its fingerprint.
            let own = if (number / 2).is_multiple_of(5) { 0 } else { number as u64 % 2 };
            let print = low ^ own.wrapping_mul(0x1234_5678_9abc_def1);
            Key::from_u128((number as u128 + 1) << 64 | u128::from(print))
        };
        let keys = (0..count).map(|number| KeyState {
            key: key(number),
            url: format!("h/{}/{number}", number % CLASSES),
            current: None,
            uncertain: false,
            floor: 0,
            durable: None,
        });
        Model {
            keys: keys.collect(),
            versions: HashMap::new(),
            purges: Vec::new(),
            now: 0,
            next_version: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Starts a version. Returns its number.
    pub(crate) fn begin(
        &mut self,
        key: usize,
        body: Option<u64>,
        len: u64,
        generation: Generation,
    ) -> u64 {
        self.next_version += 1;
        let number = self.next_version;
        let body = body.unwrap_or(number);
        self.versions.insert(number, Version { key, body, len, generation, stored: None });
        number
    }

    pub(crate) fn version(&self, number: u64) -> Version {
        self.versions[&number]
    }

    /// It was stored; or refused, then nothing is there.
    pub(crate) fn stored(&mut self, number: u64, well: bool) {
        let now = self.tick();
        let version = self.versions.get_mut(&number).expect("it was begun");
        let key = version.key;
        if well {
            version.stored = Some(now);
        }
        let state = &mut self.keys[key];
        state.current = well.then_some(number);
        state.uncertain = false;
        self.touched(key);
    }

    /// Whether a key, or one with its fingerprint, is durable is unknown.
    fn touched(&mut self, key: usize) {
        let print = self.keys[key].key.to_u128() as u64;
        for state in &mut self.keys {
            if state.key.to_u128() as u64 == print {
                state.durable = None;
            }
        }
    }

    /// The key was deleted. Returns the argument for the acknowledgement.
    pub(crate) fn deleted(&mut self, key: usize) -> u64 {
        let now = self.tick();
        let state = &mut self.keys[key];
        state.current = None;
        state.uncertain = false;
        self.touched(key);
        now
    }

    pub(crate) fn delete_acknowledged(&mut self, key: usize, up_to: u64) {
        let floor = &mut self.keys[key].floor;
        *floor = up_to.max(*floor);
    }

    pub(crate) fn purged(&mut self, generation: Generation, matches: Matches) {
        self.purges.push(Purge { generation, matches, acknowledged: false });
    }

    pub(crate) fn purge_acknowledged(&mut self, generation: Generation) {
        for purge in &mut self.purges {
            purge.acknowledged |= purge.generation == generation;
        }
    }

    /// A crash or a kill: changes that were not durable may be lost.
    pub(crate) fn crashed(&mut self) {
        self.purges.retain(|purge| purge.acknowledged);
        self.keys.iter_mut().for_each(|state| state.uncertain = true);
    }

    /// The store was replaced: no earlier version may ever be found.
    pub(crate) fn replaced(&mut self) {
        let now = self.tick();
        // Generations start from the beginning too.
        self.purges.clear();
        self.keys.iter_mut().for_each(|state| state.floor = now);
    }

    /// Everything current was flushed.
    pub(crate) fn flushed(&mut self, contains: impl Fn(&Key) -> bool) {
        for state in &mut self.keys {
            let there = !state.uncertain && contains(&state.key);
            state.durable = state.current.filter(|_| there);
        }
    }

    /// The keys that must be there after a crash now.
    pub(crate) fn must_survive(&self, contains: impl Fn(&Key) -> bool) -> Vec<usize> {
        let durable = |state: &KeyState| state.durable.is_some() && contains(&state.key);
        (0..self.keys.len()).filter(|key| durable(&self.keys[*key])).collect()
    }

    /// Checks an object that was found and is good by the purges.
    pub(crate) fn check(&mut self, key: usize, number: u64) -> Result<Version, String> {
        let wrong = |what: &str| Err(format!("key {key}: version {number}: {what}"));
        let Some(version) = self.versions.get(&number).copied() else {
            return wrong("was never made");
        };
        if version.key != key {
            return wrong(&format!("is of key {}", version.key));
        }
        let Some(stored) = version.stored else { return wrong("was never finished") };
        let state = &mut self.keys[key];
        if stored <= state.floor {
            return wrong("was deleted, and that was acknowledged");
        }
        let purged =
            |purge: &&Purge| purge.generation > version.generation && purge.matches.concerns(key);
        if let Some(purge) = self.purges.iter().find(purged) {
            let state = if purge.acknowledged { "was acknowledged" } else { "was made" };
            return wrong(&format!("was purged by {:?}, which {state}", purge.matches));
        }
        if !state.uncertain && state.current != Some(number) {
            return wrong(&format!("but {:?} was stored last", state.current));
        }
        state.current = Some(number);
        state.uncertain = false;
        Ok(version)
    }
}

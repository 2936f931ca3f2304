//! Checks of the disk store, for the fuzz target and for the tests that replay its corpus: what
//! must hold whatever is in its files, be it by bit rot, by an operator's mistake, or by an
//! attacker who can compute its checksums.
//!
//! An input is a list of edits ([`image`]) of the files of a small valid store. The store is opened
//! with the edited files; every key is looked up; objects are stored and purged; then it is closed
//! and opened once more. Edits that repair the checksums reach the code behind them: no length,
//! number or kind in a file may be trusted because a checksum is good. What must hold: nothing
//! panics; a start allocates at most [`START_BYTES_MAX`]; it succeeds or gives its reason in one
//! line; a found object is complete, and if no checksum was repaired it was once stored under that
//! key.

mod image;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use runtime::sim::{self, Disk};
use runtime::{Runtime, time};

use super::{About, DiskStore, Geometry, Hit, Options, Refused, Start};
use crate::key::Key;
use crate::purges::{Concerns, Known};
use image::{FILES, Image, Record};

const DIRECTORY: &str = "/store";
const SEGMENTS: u32 = 16;
/// Limit on the bytes a start allocates in total, including the copies of the simulated disk:
/// several times the need of a sound store, and a small part of what a length in a file could
/// claim.
const START_BYTES_MAX: u64 = 24 * 1024 * 1024;
/// Edits per input.
const EDITS_MAX: usize = 24;
/// Deletes of absent keys that fill half a journal, so that the index is saved.
const CHANGES_TO_SAVE: u64 = 480;

/// A metadata and body that were stored under a key.
type Content = (Vec<u8>, Vec<u8>);

/// A valid store, and everything that was ever stored in it.
struct Base {
    image: Image,
    contents: Vec<(Key, Vec<Content>)>,
}

/// Target `disk_store`.
pub fn disk_store(data: &[u8]) {
    let base = base();
    let mut image = base.image.clone();
    image.edit_all(data, EDITS_MAX);
    let disk = Disk::new(1);
    let sound = !image.forged;
    image.put(&disk, Path::new(DIRECTORY));
    on(&disk, async {
        for life in 0..2 {
            live(base, sound, life).await;
        }
    });
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(Base::build)
}

fn on<T>(disk: &Disk, work: impl Future<Output = T>) -> T {
    let options = sim::Options::new(1).with_disk(disk.clone(), Duration::ZERO..Duration::ZERO);
    Runtime::simulated(options).block_on(work)
}

fn options() -> Options {
    let mut options = Options::new(DIRECTORY, Geometry::tiny(SEGMENTS));
    options.buffer_bytes_max = 512 * 1024;
    options.seeds = Some([1, 2, 3]);
    options
}

/// One life of the process, from start to close. `sound`: no checksum was repaired.
async fn live(base: &Base, sound: bool, life: u64) {
    // Gives a store that is created again another secret.
    time::sleep(Duration::from_millis(1)).await;
    let before = runtime::allocations().bytes;
    let opened = DiskStore::open(options()).await;
    let bytes = runtime::allocations().bytes - before;
    assert!(bytes <= START_BYTES_MAX, "a start asked for {bytes} bytes");
    let store = match opened {
        Ok((store, Start::Fresh(why))) => {
            one_line(&why);
            store
        }
        Ok((store, Start::New | Start::Warm { .. })) => store,
        Err(error) => return one_line(&error.to_string()),
    };
    let work = async {
        look_up_all(base, &store, sound).await;
        change(base, &store, life).await;
        look_up_all(base, &store, sound).await;
        store.close();
    };
    runtime::join(store.run(), work).await;
}

/// An error must be one non-empty line.
fn one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
}

async fn look_up_all(base: &Base, store: &DiskStore, sound: bool) {
    for (number, (key, contents)) in base.contents.iter().enumerate() {
        let Some(hit) = store.get(key).await else { continue };
        let url = url(number);
        let known = Known { url: url.as_bytes(), tags: b"even", more_tags: number % 2 == 0 };
        store.purges().judge(known, hit.generation);
        store.purges().hits(known, 0, |_| ());
        let Some(found) = whole(hit).await else { continue };
        assert!(!sound || contents.contains(&found), "{url}: it was never stored");
        let Some(hit) = store.get(key).await else { continue };
        let mut part = hit.range(3..4100);
        while let Ok(Some(piece)) = part.next().await {
            assert!(!piece.is_empty());
        }
    }
}

/// An object's metadata and body; `None`: it is broken, and an error said so before its end.
async fn whole(hit: Hit) -> Option<Content> {
    let (meta, len) = (hit.meta.clone(), hit.body_len);
    let mut body = hit.body();
    let mut all = Vec::new();
    while let Some(piece) = body.next().await.ok()? {
        assert!(!piece.is_empty());
        all.extend_from_slice(&piece);
        // A forged body may be as long as all segments together, with identical chunks.
        if all.len() as u64 > Geometry::tiny(SEGMENTS).data_bytes() {
            return None;
        }
    }
    assert_eq!(all.len() as u64, len, "a body has the length of its header");
    Some((meta, all))
}

/// Changes of every kind; stores some objects of the base again.
async fn change(base: &Base, store: &DiskStore, life: u64) {
    let about = About { generation: store.purges().now(), time_ms: life };
    for (key, contents) in base.contents.iter().skip(life as usize).step_by(3) {
        let (meta, body) = &contents[0];
        let stored = store.put(key, about, meta, body);
        assert!(!matches!(stored, Err(Refused::TooLarge | Refused::Changed)), "{stored:?}");
    }
    for (key, contents) in base.contents.iter().skip(1).step_by(4) {
        if let Some(hit) = store.get(key).await {
            // The object may be any of its versions, but keeps its metadata.
            let meta = hit.meta.clone();
            let updated = store.update(key, hit.object, about, &meta).await;
            assert!(updated.is_ok() || !contents.is_empty());
        }
    }
    let _ = store.delete(&base.contents[2].0);
    store.purge(Concerns::Url(url(1).as_bytes()), false, 5).1.durable().await.ok();
    let before = store.purges().now();
    let mark = store.purge(Concerns::Prefix(b"http://a/"), true, 6).0;
    assert!(mark.generation > before, "a purge is newer than all before it");
    store.flush().await.ok();
    // Gives the store time to reclaim segments and save the index.
    time::sleep(Duration::from_secs(1)).await;
}

fn url(number: usize) -> String {
    format!("http://a/{number}")
}

/// Bytes unique to each object.
fn content(number: usize, version: u64, len: usize) -> Content {
    let seed = (number as u64) << 32 | version << 24;
    let body =
        (0..len as u64).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    (format!("{}, version {version}, {len} bytes", url(number)).into_bytes(), body.collect())
}

impl Base {
    /// Objects of one block, of several blocks, of several chunks; one with two versions, one
    /// deleted; purges of each kind; a saved index, and a journal after it.
    fn build() -> Base {
        const LENS: [usize; 12] = [0, 1, 100, 700, 3900, 4040, 9000, 50, 18_000, 60, 40, 20];
        let disk = Disk::new(1);
        let mut contents = Vec::new();
        let records = on(&disk, async {
            let (store, _) = DiskStore::open(options()).await.expect("an empty disk is good");
            let work = async {
                for (number, len) in LENS.into_iter().enumerate() {
                    let key = store.hasher().key(&[url(number).as_bytes()]);
                    contents.push((key, Vec::new()));
                    let versions = if number == 3 { 2 } else { 1 };
                    for version in 0..versions {
                        let stored = content(number, version, len);
                        put(&store, &key, &stored);
                        contents[number].1.push(stored);
                    }
                    if number == 8 {
                        save_index(&store).await;
                    }
                }
                drop(store.delete(&contents[10].0));
                drop(store.purge(Concerns::Tag(b"even"), true, 4));
                store.flush().await.expect("a simulated disk without faults");
                let records = Record::all_of(&store.0);
                store.close();
                records
            };
            runtime::join(store.run(), work).await.1
        });
        let read = |file: &str| disk.contents(Path::new(DIRECTORY).join(file));
        let image =
            Image::new(FILES.map(|file| read(file).expect("a store has all of them")), records);
        Base { image, contents }
    }
}

fn put(store: &DiskStore, key: &Key, (meta, body): &Content) {
    let about = About { generation: store.purges().now(), time_ms: 1 };
    store.put(key, about, meta, body).expect("there is room");
}

async fn save_index(store: &DiskStore) {
    drop(store.purge(Concerns::Url(b"http://b/"), false, 1));
    drop(store.purge(Concerns::Prefix(b"http://c/"), false, 2));
    for number in 0..CHANGES_TO_SAVE {
        drop(store.delete(&Key::from_u128(u128::from(number) << 90)));
    }
    while store.counters().index_saves == 0 {
        time::sleep(Duration::from_millis(300)).await;
    }
}

#[cfg(test)]
mod tests;

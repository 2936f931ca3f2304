//! The miniatures against full-size replays of the store, on synthetic and real traces.

use std::path::{Path, PathBuf};

use super::*;
use crate::{KeyHasher, Options, Store};

/// One request of a trace: the object and its size.
type Request = (u64, u64);

/// Deterministic, and random enough to draw from.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Log-normal with median 8 KiB; an object always has the same size.
fn size_of_object(object: u64) -> u64 {
    let mut random = Random((object + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // The first few are still close to the seed.
    let normal: f64 = (0..16).map(|_| random.next()).skip(4).sum::<f64>() - 6.0;
    (8192.0 * (normal * 1.2).exp()).min(400_000.0) as u64
}

fn zipf(objects: usize, requests: usize, exponent: f64, seed: u64) -> Vec<Request> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=objects)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    let mut random = Random(seed);
    (0..requests)
        .map(|_| {
            let drawn = random.next() * sum;
            let object = cumulated.partition_point(|&upto| upto < drawn) as u64;
            (object, size_of_object(object))
        })
        .collect()
}

/// Hit ratios of the store itself at this size, by requests and by bytes.
fn replayed(trace: &[Request], bytes_max: u64, hasher: &KeyHasher) -> (f64, f64) {
    let options = Options { bytes_max, shards: 1, object_bytes_max: None, hasher: hasher.clone() };
    let store = Store::new(options);
    let (mut hits, mut hit_bytes, mut bytes) = (0u64, 0u64, 0u64);
    for &(object, size) in trace {
        let key = hasher.key(&[&object.to_le_bytes()]);
        bytes += size;
        if store.get(&key).is_some() {
            hits += 1;
            hit_bytes += size;
        } else {
            let _ = store.insert(key, (), size);
        }
    }
    (hits as f64 / trace.len() as f64, hit_bytes as f64 / bytes as f64)
}

/// The same trace through the miniatures, in batches as a core gathers them.
fn simulated(trace: &[Request], bytes_max: u64, hasher: &KeyHasher) -> WhatIf {
    let mut what_if = WhatIf::new(bytes_max);
    let mut threshold = Threshold::FIRST;
    let (mut batch, mut counted) = (Vec::new(), Counted::default());
    for (at, &(object, size)) in trace.iter().enumerate() {
        let key = hasher.key(&[&object.to_le_bytes()]);
        counted.accesses += 1;
        counted.bytes += size;
        if threshold.takes(key) {
            let stored_bytes = size + ENTRY_OVERHEAD_BYTES;
            batch.push(Access { key, stored_bytes, body_bytes: size, fresh_ms: 1 << 40, times: 1 });
        }
        if batch.len() == BATCH_MAX || at + 1 == trace.len() {
            threshold = what_if.apply(&batch, std::mem::take(&mut counted), 1);
            batch.clear();
        }
    }
    what_if
}

/// The largest differences between forecast and truth, by requests and by bytes.
fn worst(trace: &[Request], bytes_max: u64, seed: u64) -> (f64, f64) {
    let hasher = KeyHasher::seeded(seed, 77);
    let forecasts = simulated(trace, bytes_max, &hasher).forecasts();
    let mut worst: (f64, f64) = (0.0, 0.0);
    for size in &forecasts.sizes {
        let (hits, bytes) = replayed(trace, size.bytes_max, &hasher);
        let (forecast_hits, forecast_bytes) =
            (size.hit_ratio.unwrap(), size.byte_hit_ratio.unwrap());
        println!(
            "x{} of {} MiB, 1 key in {:.0}: requests {forecast_hits:.3} for {hits:.3}, \
             bytes {forecast_bytes:.3} for {bytes:.3}",
            size.halves as f64 / 2.0,
            bytes_max >> 20,
            1.0 / forecasts.rate,
        );
        worst.0 = worst.0.max((forecast_hits - hits).abs());
        worst.1 = worst.1.max((forecast_bytes - bytes).abs());
    }
    worst
}

#[test]
fn forecasts_of_zipf_traces_are_within_a_few_percent() {
    for (exponent, mebibytes, seed) in [(0.7, 128, 1), (0.9, 128, 2), (1.1, 64, 3)] {
        let trace = zipf(60_000, 400_000, exponent, 99 + seed);
        let (requests, bytes) = worst(&trace, mebibytes << 20, seed);
        assert!(requests < 0.04 && bytes < 0.08, "exponent {exponent}: {requests} {bytes}");
    }
}

#[test]
fn the_sample_stays_within_its_bound_and_is_still_accurate() {
    // Far more objects than the largest miniature may hold at the first rate.
    let trace: Vec<Request> =
        zipf(600_000, 1_000_000, 0.8, 5).into_iter().map(|(object, _)| (object, 700)).collect();
    let hasher = KeyHasher::seeded(5, 6);
    let what_if = simulated(&trace, 128 << 20, &hasher);
    let forecasts = what_if.forecasts();
    assert!(forecasts.rate < Threshold::FIRST.rate(), "the rate was halved: {}", forecasts.rate);
    assert!(forecasts.objects <= SAMPLE_OBJECTS_MAX, "{}", forecasts.objects);
    let (hits, _) = replayed(&trace, 128 << 20, &hasher);
    let forecast = forecasts.sizes[1].hit_ratio.unwrap();
    assert!((forecast - hits).abs() < 0.04, "{forecast} for {hits}");
}

/// A trace from the laboratory's data, unpacked. `None`, with a message, if it is missing.
fn real_trace(name: &str) -> Option<Vec<u8>> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found: Option<PathBuf> =
        above.map(|dir| dir.join("shared/data").join(name)).find(|path| path.exists());
    let Some(path) = found else {
        println!("skipped: there is no shared/data/{name} beside the repository");
        return None;
    };
    match std::process::Command::new("xz").arg("-dc").arg(&path).output() {
        Ok(output) if output.status.success() => Some(output.stdout),
        other => {
            println!("skipped: xz does not unpack {}: {other:?}", path.display());
            None
        }
    }
}

#[test]
fn forecasts_of_a_real_trace_are_close() {
    let Some(bytes) = real_trace("web07.trace.xz") else { return };
    let trace: Vec<Request> = bytes
        .chunks_exact(4)
        .map(|four| u64::from(u32::from_be_bytes(four.try_into().unwrap())))
        .map(|object| (object, size_of_object(object)))
        .collect();
    assert!(trace.len() > 70_000);
    // The trace has no sizes, so they are generated; 1,300 sampled objects are few for bytes.
    let (requests, bytes) = worst(&trace, 64 << 20, 4);
    assert!(requests < 0.06 && bytes < 0.12, "{requests} {bytes}");
}

#[test]
fn stale_objects_miss_at_every_size_and_old_accesses_fade() {
    let keys = (0..).map(|n: u64| KeyHasher::seeded(1, 1).key(&[&n.to_le_bytes()]));
    let keys: Vec<Key> =
        keys.filter(|&key| Threshold::FIRST.takes(key)).take(SAMPLE_OBJECTS_MIN).collect();
    let each = |fresh_ms, times| -> Vec<Access> {
        let of = |&key| Access { key, stored_bytes: 1000, body_bytes: 700, fresh_ms, times };
        keys.iter().map(of).collect()
    };
    // One key in sixteen is sampled, so each represents sixteen.
    let all = |times: u64| {
        let accesses = times * 16 * SAMPLE_OBJECTS_MIN as u64;
        Counted { accesses, hits: 0, bytes: accesses * 700, hit_bytes: 0 }
    };
    let ratios = |what_if: &WhatIf| {
        let forecasts = what_if.forecasts();
        let first = (forecasts.sizes[0].hit_ratio, forecasts.sizes[0].byte_hit_ratio);
        assert!(forecasts.sizes.iter().all(|size| (size.hit_ratio, size.byte_hit_ratio) == first));
        first
    };
    let mut what_if = WhatIf::new(64 << 20);
    what_if.apply(&each(1000, 1)[1..], all(1), 10);
    assert_eq!(ratios(&what_if), (None, None), "too few objects are not representative");
    let mut what_if = WhatIf::new(64 << 20);
    what_if.apply(&each(1000, 1), all(1), 10);
    what_if.apply(&each(1000, 2), all(2), 500);
    what_if.apply(&each(1000, 1), all(1), 2000);
    assert_eq!(ratios(&what_if), (Some(0.5), Some(0.5)));
    let forecasts = what_if.forecasts();
    assert_eq!(
        (forecasts.accesses, forecasts.objects, forecasts.real.hit_ratio),
        (4096.0, 64, Some(0.0))
    );
    // A response that must be validated each time is never a hit.
    what_if.apply(&each(0, 4), all(4), 5000);
    assert_eq!(ratios(&what_if), (Some(0.25), Some(0.25)));
    what_if.apply(&[], Counted::default(), 10 + HALF_LIFE_MS);
    let faded = what_if.forecasts();
    assert!((faded.accesses - 4096.0).abs() < 1e-6, "{}", faded.accesses);
    assert!((faded.sizes[0].hit_ratio.unwrap() - 0.25).abs() < 1e-9);
}

#[test]
fn forecasts_follow_the_size_of_the_store() {
    let trace = zipf(20_000, 100_000, 0.8, 11);
    let hasher = KeyHasher::seeded(9, 9);
    let mut what_if = simulated(&trace, 256 << 20, &hasher);
    what_if.resize(1 << 20);
    let forecasts = what_if.forecasts();
    assert_eq!(forecasts.sizes.iter().map(|s| s.bytes_max >> 19).collect::<Vec<_>>(), [1, 2, 4, 8]);
    assert!(forecasts.objects < 64, "{}", forecasts.objects);
}

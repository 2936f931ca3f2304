//! The rules against a slow, plain model of them: the check of the fuzz target `caching_model`,
//! over seeded histories and over the target's corpus.

#[path = "../../../../tools/fuzz/checks/caching_histories.rs"]
mod histories;
#[path = "../../../../tools/fuzz/checks/caching_model.rs"]
mod model;

/// Enough for each vocabulary to meet each other one; some seconds without optimisation.
const HISTORIES: u64 = 4_000;
const BYTES: usize = 256;

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn bytes_of(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..BYTES / 8).flat_map(|_| next().to_le_bytes()).collect()
}

#[test]
fn the_rules_decide_as_the_plain_model_does() {
    for seed in 0..HISTORIES {
        let bytes = bytes_of(seed);
        let result = std::panic::catch_unwind(|| {
            histories::caching_history(&bytes);
            histories::caching_choice(&bytes);
        });
        assert!(result.is_ok(), "with seed {seed}");
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let directory =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tools/fuzz/corpus/caching_model");
    let entries = std::fs::read_dir(directory).expect("the corpus is checked in");
    let mut inputs = 0;
    for entry in entries {
        let bytes = std::fs::read(entry.expect("a listed file").path()).expect("a readable file");
        for end in 0..=bytes.len() {
            histories::caching_history(&bytes[..end]);
            histories::caching_choice(&bytes[..end]);
        }
        inputs += 1;
    }
    assert!(inputs >= 10, "the corpus is gone");
}

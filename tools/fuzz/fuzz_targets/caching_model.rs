//! The caching rules compared with the plain model, over histories that the bytes choose.
//!
//! The model and the checks are in `checks/`, so that the stable tests run them too.
#![no_main]

#[path = "../checks/caching_histories.rs"]
mod histories;
#[path = "../checks/caching_model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    histories::caching_history(data);
    histories::caching_choice(data);
});

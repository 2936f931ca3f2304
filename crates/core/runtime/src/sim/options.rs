//! The options of a simulated world.

use std::ops::Range;
use std::time::Duration;

use super::disk::Disk;
use super::rng::Rng;

/// The options of a simulated world. Probabilities are from 0 to 1.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Everything random is drawn from it.
    pub seed: u64,
    /// How long a piece of data, a connect or a datagram takes to arrive.
    pub delay: Range<Duration>,
    /// The probability that a write is split at each of its byte boundaries, so that the pieces
    /// arrive one after the other; 1 sends every byte separately. Also the probability of a short
    /// read.
    pub split: f64,
    /// The probability that a write accepts only a part of what there is room for.
    pub short_write: f64,
    /// The probability that a write is followed by a reset of its connection, which overtakes data.
    pub reset: f64,
    /// The probability that a connect is refused although there is a listener.
    pub refuse: f64,
    /// The probability that a datagram is lost.
    pub loss: f64,
    /// The probability that later datagrams of the same socket may overtake one.
    pub reorder: f64,
    /// The probability that a datagram arrives twice.
    pub duplicate: f64,
    /// Bytes that a connection holds in each direction, in flight and unread.
    pub buffer_bytes: usize,
    /// How long a file takes to open or to read.
    pub disk_delay: Range<Duration>,
    /// The probability that reading a file fails.
    pub disk_error: f64,
    /// The disk; `None`: an empty one without other faults. A disk that is passed in outlives the
    /// runtime.
    pub disk: Option<Disk>,
    /// The probability that a write stalls: it and later ones take up to [`STALL_MAX`] to arrive.
    pub stall: f64,
    /// Descriptors open at a time; one more is refused with EMFILE.
    pub descriptors_max: usize,
    /// Real time that the core waits for another thread to wake a task once nothing remains to be
    /// simulated; then it panics, because no event would ever happen.
    pub outside_wait: Duration,
}

/// The longest stall of a write.
pub const STALL_MAX: Duration = Duration::from_secs(120);

impl Options {
    /// A network without faults: delays of 10 to 200 us, nothing split, nothing lost.
    #[must_use]
    pub fn new(seed: u64) -> Options {
        Options {
            seed,
            delay: Duration::from_micros(10)..Duration::from_micros(200),
            split: 0.0,
            short_write: 0.0,
            reset: 0.0,
            refuse: 0.0,
            loss: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            buffer_bytes: 64 * 1024,
            disk_delay: Duration::from_micros(20)..Duration::from_millis(2),
            disk_error: 0.0,
            disk: None,
            stall: 0.0,
            descriptors_max: 20_000,
            outside_wait: Duration::from_secs(5),
        }
    }

    /// Splits and short writes, with rates drawn from the seed; nothing is lost. Everything must
    /// work in this world with a peer that keeps to the rules.
    #[must_use]
    pub fn rough(seed: u64) -> Options {
        let mut rng = Rng::new(seed ^ 0x726f_7567_6821);
        let split = [0.0, 0.001, 0.02, 0.3, 1.0][rng.below(5) as usize];
        let buffer_bytes = [512, 4096, 65536][rng.below(3) as usize];
        Options {
            split,
            short_write: 0.1,
            buffer_bytes,
            delay: Duration::ZERO..Duration::from_millis(1 + rng.below(20)),
            ..Options::new(seed)
        }
    }

    /// As [`Options::rough`], with resets, stalls, refused connects, a failing disk, and datagrams
    /// as in [`Options::with_bad_datagrams`].
    #[must_use]
    pub fn stormy(seed: u64) -> Options {
        Options {
            reset: 0.01,
            stall: 0.002,
            refuse: 0.02,
            disk_error: 0.01,
            ..Options::rough(seed)
        }
        .with_bad_datagrams()
    }

    /// Loses 5 % of the datagrams, reorders 10 %, and duplicates 2 %. A protocol over datagrams has
    /// to work in this world.
    #[must_use]
    pub fn with_bad_datagrams(self) -> Options {
        Options { loss: 0.05, reorder: 0.1, duplicate: 0.02, ..self }
    }
}

setters! {
    Options {
        /// Sets how long data travels.
        with_delay: delay = Range<Duration>;
        /// Sets the probability that a write is split at a byte boundary.
        with_split: split = f64;
        /// Sets the probability that a write is followed by a reset.
        with_reset: reset = f64;
        /// Sets the probability that a write stalls.
        with_stall: stall = f64;
        /// Sets how many bytes a connection holds in each direction.
        with_buffer_bytes: buffer_bytes = usize;
        /// Sets how many descriptors may be open at a time.
        with_descriptors_max: descriptors_max = usize;
    }
}

impl Options {
    /// Uses this disk, each operation of which takes `delay`.
    #[must_use]
    pub fn with_disk(mut self, disk: Disk, delay: Range<Duration>) -> Options {
        self.disk = Some(disk);
        self.disk_delay = delay;
        self
    }
}

//! What a simulated world is like.

use std::ops::Range;
use std::time::Duration;

use super::disk::Disk;
use super::rng::Rng;

/// What the simulated world is like. Probabilities are from 0 to 1.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Everything that is random is drawn from it.
    pub seed: u64,
    /// How long a piece of data, a connect or a datagram is under way.
    pub delay: Range<Duration>,
    /// The probability that a write is cut at each of its byte boundaries, so that the pieces
    /// arrive one after the other; 1 sends every byte by itself. Also of a read that is given less
    /// than there is.
    pub split: f64,
    /// The probability that a write takes only a part of what there is room for.
    pub short_write: f64,
    /// The probability that a write is followed by a reset of its connection, which overtakes data.
    pub reset: f64,
    /// The probability that a connect is refused although somebody listens.
    pub refuse: f64,
    /// The probability that a datagram is lost.
    pub loss: f64,
    /// Bytes that a connection holds in each direction, under way and unread.
    pub buffer_bytes: usize,
    /// How long a file takes to open or to read.
    pub disk_delay: Range<Duration>,
    /// The probability that reading a file fails.
    pub disk_error: f64,
    /// The disk; `None`: an empty one without other faults. One that is given outlives the runtime.
    pub disk: Option<Disk>,
    /// The probability that a write stalls: it and what follows are under way for up to
    /// [`STALL_MAX`].
    pub stall: f64,
    /// Descriptors open at a time; one more is refused with EMFILE.
    pub descriptors_max: usize,
    /// Real time that the core waits for another thread to wake a task once nothing is left to
    /// simulate; then it panics, because nothing would ever happen.
    pub outside_wait: Duration,
}

/// The longest that a write stalls.
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
            buffer_bytes: 64 * 1024,
            disk_delay: Duration::from_micros(20)..Duration::from_millis(2),
            disk_error: 0.0,
            disk: None,
            stall: 0.0,
            descriptors_max: 20_000,
            outside_wait: Duration::from_secs(5),
        }
    }

    /// Splits and short writes, drawn from the seed with it; nothing is lost: what must work for
    /// every peer that keeps to the rules.
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

    /// As [`Options::rough`], with resets, stalls, refused connects, lost datagrams and a failing
    /// disk.
    #[must_use]
    pub fn stormy(seed: u64) -> Options {
        Options {
            reset: 0.01,
            stall: 0.002,
            refuse: 0.02,
            loss: 0.05,
            disk_error: 0.01,
            ..Options::rough(seed)
        }
    }
}

setters! {
    Options {
        /// Sets how long data travels.
        with_delay: delay = Range<Duration>;
        /// Sets the probability that a write is cut at a byte boundary.
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

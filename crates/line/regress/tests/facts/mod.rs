//! Published figures, as printed: Banga and Mogul, "Scalable kernel performance for Internet
//! servers under realistic loads" (1998), Tables 3, 15 and 16, and the X-intercepts in its text.
//! Rates are requests per second, slopes percent of CPU per (request per second).

/// Samples per day: one every 15 minutes.
pub(crate) const SAMPLES: usize = 96;

/// One day of one server.
pub(crate) struct Day {
    pub(crate) name: &'static str,
    pub(crate) rate_peak: f64,
    /// Slope and correlation of idle, kernel and user time (Table 15).
    pub(crate) idle: (f64, f64),
    pub(crate) kernel: (f64, f64),
    pub(crate) user: (f64, f64),
    /// The rate at which the idle line meets zero.
    pub(crate) x_intercept: f64,
    /// Slopes that round to the printed ones and close exactly: the new kernel's printed ones do
    /// not (0.73 + 0.54 = 1.27, printed 1.26).
    pub(crate) unrounded: (f64, f64),
}

/// Squid 1.1.20Mod on the old kernel, 15 September 1998.
pub(crate) const SQUID_OLD: Day = Day {
    name: "Squid, old kernel",
    rate_peak: 121.0,
    idle: (-1.69, -0.96),
    kernel: (1.05, 0.94),
    user: (0.64, 0.85),
    x_intercept: 55.0,
    unrounded: (1.05, 0.64),
};

/// The same on the new kernel, 9 September 1998.
pub(crate) const SQUID_NEW: Day = Day {
    name: "Squid, new kernel",
    rate_peak: 139.0,
    idle: (-1.26, -0.92),
    kernel: (0.73, 0.95),
    user: (0.54, 0.80),
    x_intercept: 83.0,
    unrounded: (0.728, 0.536),
};

/// (old, new, percent) X-intercepts of Squid and of NetCache.
pub(crate) const IMPROVEMENTS: [(f64, f64, f64); 2] = [(55.0, 83.0, 51.0), (58.0, 69.0, 19.0)];

/// Tables 13 and 16: all select functions, percent of CPU, and the mean rate of that hour.
pub(crate) const SELECT_OLD: (f64, f64) = (38.96, 48.0);
pub(crate) const SELECT_NEW: (f64, f64) = (16.02, 56.0);

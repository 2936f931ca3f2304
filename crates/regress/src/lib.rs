//! Lines through clouds: fits, intervals, comparisons; mathematics only.

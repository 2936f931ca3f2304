//! The limits of an import. A file beyond one of them is refused with a syntax error.

/// Bytes of all files together, with those that are included.
pub const INPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Files, with those that are included.
pub const FILES_MAX: usize = 512;
/// Files that include each other, one inside the other.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Blocks inside blocks, and parentheses inside parentheses.
pub const DEPTH_MAX: usize = 32;
/// Directives, or statements, of all files together.
pub const DIRECTIVES_MAX: usize = 100_000;
/// Networks, ranges of ports, or domains of an access list whose sets are computed. To combine two
/// lists takes as many steps as the product of their lengths.
pub const LIST_MAX: usize = 1024;
/// Networks of allowed clients, after the denied networks were cut out of them.
pub const NETWORKS_MAX: usize = 4096;
/// Quotas that are written: as many as the server takes.
pub const QUOTAS_MAX: usize = 32;
/// Entries of a list of patterns that are written: as many as the server takes.
pub const PATTERNS_MAX: usize = 64;
/// How often locations with expressions are compared with other locations, for each server. Beyond
/// this limit no expression is carried, and the server is closed.
pub const COMPARISONS_MAX: usize = 1_000_000;
/// Routes with conditions that are written. The server takes a few more conditions.
pub const CONDITIONS_MAX: usize = 400;
/// Routes that are written. Beyond this limit all routes are closed, because requests for the
/// missing routes would find other routes.
pub const ROUTES_MAX: usize = 4096;

const _: () = {
    assert!(INCLUDE_DEPTH_MAX < FILES_MAX);
    assert!(DIRECTIVES_MAX < INPUT_BYTES_MAX);
    assert!(ROUTES_MAX < DIRECTIVES_MAX);
    assert!(ROUTES_MAX < COMPARISONS_MAX);
    assert!(QUOTAS_MAX < ROUTES_MAX);
    assert!(CONDITIONS_MAX < ROUTES_MAX);
    assert!(PATTERNS_MAX <= LIST_MAX);
    assert!(LIST_MAX <= NETWORKS_MAX);
};

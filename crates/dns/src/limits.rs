//! The limits of looking names up.

use std::time::Duration;

/// Name servers that are asked, as many as the C library's resolver takes.
pub const SERVERS_MAX: usize = 3;
/// Suffixes that a name of few labels is tried with.
pub const SEARCH_MAX: usize = 6;
/// How long one name server has to answer one question, unless `resolv.conf` says otherwise. Two
/// servers have had their turn before a connection's own time-out.
pub const TRY: Duration = Duration::from_secs(2);
/// How often all name servers are asked, unless `resolv.conf` says otherwise.
pub const ATTEMPTS: usize = 2;
/// Bytes of a reply by UDP; we announce no more, so servers send no more (RFC 1035, 2.3.4), but
/// those that do are understood.
pub const REPLY_BYTES_MAX: usize = 1500;
/// Aliases (CNAME) followed from one name.
pub const ALIASES_MAX: usize = 12;
/// Answers are kept at least so long, whatever their TTL: a name under load is not asked for with
/// every request.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// Answers are kept at most so long, whatever their TTL.
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// That there is nothing is believed at most so long.
pub const TTL_NONE_MAX: Duration = Duration::from_secs(60);
/// How long a name is not asked for again after no server has answered.
pub const FAILURE_KEPT: Duration = Duration::from_secs(1);
/// What the system's resolver says is kept so long: it tells no TTL.
pub const SYSTEM_KEPT: Duration = Duration::from_secs(30);
/// Names of which something is known.
pub const NAMES_MAX: usize = 10_000;

const _: () = assert!(TTL_MIN.as_nanos() < TTL_NONE_MAX.as_nanos());
const _: () = assert!(TTL_NONE_MAX.as_nanos() < TTL_MAX.as_nanos());

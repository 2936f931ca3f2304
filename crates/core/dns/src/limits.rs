//! The limits of looking names up.

use std::time::Duration;

/// Name servers that are queried, as many as the C library's resolver uses.
pub const SERVERS_MAX: usize = 3;
/// Suffixes that are tried for a name with few labels.
pub const SEARCH_MAX: usize = 6;
/// How long one name server has to answer one question, unless `resolv.conf` says otherwise. Two
/// servers can be tried within a connection's time-out.
pub const TRY: Duration = Duration::from_secs(2);
/// How often all name servers are tried, unless `resolv.conf` says otherwise.
pub const ATTEMPTS: usize = 2;
/// Bytes of a reply by UDP. We announce no larger size, so servers send at most 512 bytes (RFC
/// 1035, 2.3.4), but larger replies are accepted.
pub const REPLY_BYTES_MAX: usize = 1500;
/// Aliases (CNAME) followed from one name.
pub const ALIASES_MAX: usize = 12;
/// The shortest time an answer is cached, whatever its TTL, so that a busy name is not queried with
/// every request.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest time an answer is cached, whatever its TTL.
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// The longest time a negative answer is cached.
pub const TTL_NONE_MAX: Duration = Duration::from_secs(60);
/// How long a name is not queried again after no server has answered.
pub const FAILURE_KEPT: Duration = Duration::from_secs(1);
/// How long an answer of the system's resolver is cached, which reports no TTL.
pub const SYSTEM_KEPT: Duration = Duration::from_secs(30);
/// Bytes of a label of a name (RFC 1035, 2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;
/// Bytes of a name without its final dot.
pub const NAME_BYTES_MAX: usize = 253;
/// Addresses, or hosts of a service, that are used of one answer.
pub const ADDRESSES_MAX: usize = 64;
/// Names in the cache.
pub const NAMES_MAX: usize = 10_000;
/// Bytes of the cache: its names and their addresses, with [`ENTRY_BYTES`] for each.
pub const CACHE_BYTES_MAX: usize = 4 << 20;
/// What the cache needs for a name besides its bytes and its addresses, about.
pub const ENTRY_BYTES: usize = 192;
/// Look-ups in flight for clients, on all cores together. Each uses two sockets.
pub const LOOKUPS_MAX: usize = 128;
/// Those for the clients of one network.
pub const LOOKUPS_OF_NETWORK_MAX: usize = LOOKUPS_MAX / 4;
/// The lengths of the prefixes by which clients are counted: of IPv4, and of IPv6.
pub const NETWORK_PREFIX: (u32, u32) = (24, 56);

const _: () = assert!(TTL_MIN.as_nanos() < TTL_NONE_MAX.as_nanos());
const _: () = assert!(TTL_NONE_MAX.as_nanos() < TTL_MAX.as_nanos());
const _: () =
    assert!(LABEL_BYTES_MAX < NAME_BYTES_MAX && LABEL_BYTES_MAX < 64 && NAME_BYTES_MAX < 255);
const _: () = assert!(SERVERS_MAX > 0 && ATTEMPTS > 0 && SEARCH_MAX > 0 && ADDRESSES_MAX > 0);
const _: () = assert!(TTL_MIN.as_nanos() <= FAILURE_KEPT.as_nanos());
const _: () = assert!(SYSTEM_KEPT.as_nanos() <= TTL_NONE_MAX.as_nanos());
// RFC 1035, 2.3.4.
const _: () = assert!(REPLY_BYTES_MAX >= 512);
const _: () = assert!(NETWORK_PREFIX.0 <= 32 && NETWORK_PREFIX.1 <= 128);
// A look-up always finds room for its name: no other one is as large, and names in flight are few.
const ENTRY_BYTES_MAX: usize = ENTRY_BYTES + NAME_BYTES_MAX + 1 + ADDRESSES_MAX * 16;
const _: () = assert!(2 * LOOKUPS_MAX * ENTRY_BYTES_MAX < CACHE_BYTES_MAX);
const _: () = assert!(2 * LOOKUPS_MAX < NAMES_MAX);
const _: () = assert!(1 < LOOKUPS_OF_NETWORK_MAX && LOOKUPS_OF_NETWORK_MAX < LOOKUPS_MAX);

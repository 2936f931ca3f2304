//! The limits that an operator may change, and those that the configuration is checked against.

use std::time::Duration;

/// A count that no configuration has a reason to exceed.
pub(crate) const MANY: u64 = 1_000_000;
/// Maximum servers of a group: as many as a request can remember having tried.
pub const SERVERS_PER_GROUP_MAX: usize = 128;
/// Addresses of one name that are servers at a time. Look-ups find more of them, so that those that
/// are servers already can be chosen.
pub const ADDRESSES_PER_SERVER_MAX: usize = 32;
const _: () = assert!(ADDRESSES_PER_SERVER_MAX < dns::limits::ADDRESSES_MAX);
const _: () = assert!(ADDRESSES_PER_SERVER_MAX < SERVERS_PER_GROUP_MAX);
/// The largest weight of a server.
pub const WEIGHT_MAX: u32 = 1000;
/// Maximum size of a file with the login for a peer.
pub const LOGIN_FILE_BYTES_MAX: u64 = 4 * 1024;
/// Maximum size of a file of users.
pub const PASSWORD_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum patterns, or names, in one list of a route.
pub const KEY_PATTERNS_MAX: usize = 64;
/// Maximum bytes of a pattern for names or content types.
pub const PATTERN_BYTES_MAX: usize = 128;
/// Maximum lifetimes of a route.
pub const LIFETIMES_MAX: usize = 64;
/// Maximum rules.
pub const RULES_MAX: usize = 256;
/// Maximum expectations.
pub const EXPECTS_MAX: usize = 1024;
/// Maximum size of a file with a list or a map.
pub const LIST_FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of a file that a rule answers with.
pub const ANSWER_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum entries of a list or a map.
pub const LIST_LINES_MAX: usize = 1 << 20;
/// Maximum captures in the host and the path of a route.
pub const CAPTURES_MAX: usize = 16;
/// Maximum cost of a bcrypt hash: about 4 s per password, on a thread that others wait for.
pub const PASSWORD_COST_MAX: u32 = 16;
/// Bytes of a core's read buffer: the most that one turn of a connection can read.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Maximum bytes read from an upstream at once, and gathered for a client that pipelines, while
/// clients leave more than [`Limits::held_bytes_max`] unread.
pub const PRESSED_BYTES: usize = 4 * 1024;

/// Maximum names that certificates are obtained for: the orders that Let's Encrypt takes from an
/// account within three hours are 300.
pub const ACME_NAMES_MAX: usize = 200;
/// Maximum bytes of a name in DNS, as text (RFC 1035, 2.3.4).
pub(crate) const DNS_NAME_BYTES_MAX: usize = 253;

/// Maximum number of quotas.
pub const QUOTAS_MAX: usize = 32;
/// The largest rate of a quota, for each second: 16 GiB.
pub const QUOTA_RATE_MAX: u64 = 1 << 34;
/// The longest time in which the burst of a quota is refilled.
pub const QUOTA_WINDOW_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
/// Bytes that may be sent at once if a quota does not say how many.
pub const QUOTA_BURST_BYTES_MIN: u64 = 64 * 1024;
/// Minimum size of a quota's table.
pub const QUOTA_MEMORY_MIN: u64 = 64 * 1024;
/// Maximum size of a quota's table.
pub const QUOTA_MEMORY_MAX: u64 = 1 << 30;
/// The default size: two million clients.
pub const QUOTA_MEMORY_DEFAULT: u64 = 16 << 20;

/// The limits that an operator may change. `Default` has the server's defaults.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's head; beyond it 431 (or 414 for the target).
    pub head_bytes_max: usize,
    /// Fields of a head; beyond it 431.
    pub fields_max: usize,
    /// Maximum time a connection may be open and silent between requests.
    pub idle_keep_alive: Duration,
    /// From accepting a connection to the end of its PROXY header and TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// Bytes of a request's content. `None`: no limit.
    pub body_bytes_max: Option<u64>,
    /// Maximum time a client may leave sent bytes unread before it is cut off.
    pub send_timeout: Duration,
    /// A client that sends a body, or reads a response, at fewer bytes per second than this is cut
    /// off, once it has been waited for longer than [`Limits::rate_grace`] ...
    pub rate_min: u64,
    /// ... in total, within one request.
    pub rate_grace: Duration,
    /// Bytes that the clients of one core have not read yet, in total. Beyond it at most
    /// [`PRESSED_BYTES`] are read at once for a client.
    pub held_bytes_max: u64,
    /// Whether an overloaded core answers requests that need an upstream with 503.
    pub overload_shed: bool,
    /// Maximum time that ready events may wait on a busy core before it counts as overloaded.
    pub overload_objective: Duration,
    /// How long each core stops now and then, to learn from catching up what a request costs at
    /// saturation. Zero: never.
    pub hold: Duration,
    /// Memory that the process may use. The control group's limits apply too.
    pub process_memory_max: Option<u64>,
    /// To establish a connection to an upstream.
    pub connect_timeout: Duration,
    /// Between two pieces of an upstream's response, and until its first.
    pub upstream_timeout: Duration,
    /// Maximum time an idle upstream connection is kept for the next request.
    pub upstream_idle: Duration,
    /// Maximum idle upstream connections that one core keeps per upstream.
    pub upstream_idle_max: usize,
    /// Maximum interim (1xx) responses that are passed on before the final one.
    pub interim_max: usize,
    /// Maximum size of a stored body, as a divisor of the memory limit.
    pub object_share: usize,
    /// Maximum bytes of bodies arriving for the store, in total, as a divisor of the memory limit.
    /// Beyond it a body is streamed and not stored.
    pub arriving_share: usize,
    /// Bytes of a body that memory keeps for its readers while it arrives, if the body itself does
    /// not stay in memory.
    pub stream_window_bytes: usize,
    /// How long a key whose response could not be stored is fetched without collapsing.
    pub uncacheable_memory: Duration,
    /// How long a tunnel (CONNECT, or an upgraded connection) may be silent in both directions.
    pub tunnel_idle: Duration,
    /// After SIGTERM: maximum time for requests in flight to finish.
    pub drain_timeout: Duration,
    /// After an error response: time, and bytes, still read so that the client sees the response.
    pub linger_timeout: Duration,
    /// See [`Limits::linger_timeout`].
    pub linger_bytes_max: usize,
    /// Maximum client connections of one core. The process's descriptor limit applies too.
    pub connections_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 32 * 1024,
            fields_max: 128,
            idle_keep_alive: Duration::from_secs(75),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            body_bytes_max: None,
            send_timeout: Duration::from_secs(60),
            rate_min: 128,
            rate_grace: Duration::from_secs(30),
            held_bytes_max: 64 * 1024 * 1024,
            overload_shed: true,
            overload_objective: Duration::from_millis(50),
            hold: Duration::ZERO,
            process_memory_max: None,
            connect_timeout: Duration::from_secs(5),
            upstream_timeout: Duration::from_secs(60),
            upstream_idle: Duration::from_secs(50),
            upstream_idle_max: 256,
            interim_max: 8,
            object_share: 8,
            arriving_share: 4,
            stream_window_bytes: 256 * 1024,
            uncacheable_memory: Duration::from_secs(120),
            tunnel_idle: Duration::from_secs(15 * 60),
            drain_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(2),
            linger_bytes_max: 256 * 1024,
            connections_max: 100_000,
        }
    }
}

/// Maximum forms of stored responses that are made at a time. They share the runtime's pool with
/// the disk, which keeps most of it.
pub const CODING_JOBS_MAX: u64 = 4;
/// Maximum media types that are listed.
pub const CODED_TYPES_MAX: usize = 64;
/// Maximum names of a list of files that are tried for one request.
pub const FILE_NAMES_MAX: usize = 8;

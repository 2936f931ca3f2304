//! Every limit and time-out of the server, by name, with its default and the reason for it.
//!
//! Nothing in this crate grows, waits or counts beyond one of these; how they must relate is
//! asserted at compile time where both sides are constants.

use std::time::Duration;

/// Bytes of the read buffer of a core: what one turn of one connection can take in.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Bytes of answers gathered before they are sent, when a client pipelines.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// A body at most this long is copied behind its head and leaves in one `send`; a longer one is
/// handed to the kernel where it lies. Copying 4 KiB costs less than a second I/O vector.
pub const COALESCE_BYTES_MAX: usize = 4 * 1024;
/// Descriptors of the process that clients do not get: logs, pollers, listeners, the admin.
pub const DESCRIPTORS_RESERVED: usize = 64;
/// Of the others, the share that clients may take, in percent; what is left is for connections to
/// upstreams, so that clients in any number do not turn every miss into a 502.
pub const DESCRIPTORS_OF_CLIENTS_PERCENT: usize = 75;
/// Accepted connections before a core looks at the ones it has.
pub const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Bytes of finished log lines that wait for the log's thread, all cores together.
pub const LOG_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A core hands its log lines over when it holds this many bytes of them, or a tick has passed.
pub const LOG_BATCH_BYTES: usize = 32 * 1024;

/// Servers of one group: as many as a request can remember having tried.
pub const SERVERS_PER_GROUP_MAX: usize = 128;
/// The largest weight of a server.
pub const WEIGHT_MAX: u32 = 1000;
/// An address that neither accepts nor refuses has so long before the next is tried beside it
/// (RFC 8305, 8).
pub const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// A request that waits for a server looks by itself so often, beside being called.
pub const QUEUE_LOOK: Duration = Duration::from_millis(250);
/// How often servers with names are looked at: whether the time of their addresses is over.
pub const ATTEND: Duration = Duration::from_secs(1);
/// Bytes of the head that answers a health check; what is longer is no good answer.
pub const CHECK_HEAD_BYTES_MAX: usize = 16 * 1024;

/// Name servers that are asked, as many as the C library's resolver takes.
pub const DNS_SERVERS_MAX: usize = 3;
/// Suffixes that a name of few labels is tried with.
pub const DNS_SEARCH_MAX: usize = 6;
/// How long one name server has to answer one question, unless `resolv.conf` says otherwise. Two
/// servers have had their turn before a connection's own time-out.
pub const DNS_TRY: Duration = Duration::from_secs(2);
/// How often all name servers are asked, unless `resolv.conf` says otherwise.
pub const DNS_ATTEMPTS: usize = 2;
/// Bytes of a reply by UDP; we announce no more, so servers send no more (RFC 1035, 2.3.4), but
/// those that do are understood.
pub const DNS_REPLY_BYTES_MAX: usize = 1500;
/// Aliases (CNAME) followed from one name.
pub const DNS_ALIASES_MAX: usize = 12;
/// Answers are kept at least so long, whatever their TTL: a name under load is not asked for with
/// every request.
pub const DNS_TTL_MIN: Duration = Duration::from_secs(1);
/// Answers are kept at most so long, whatever their TTL.
pub const DNS_TTL_MAX: Duration = Duration::from_secs(3600);
/// That there is nothing is believed at most so long.
pub const DNS_TTL_NONE_MAX: Duration = Duration::from_secs(60);
/// How long a name is not asked for again after no server has answered.
pub const DNS_FAILURE_KEPT: Duration = Duration::from_secs(1);
/// What the system's resolver says is kept so long: it tells no TTL.
pub const DNS_SYSTEM_KEPT: Duration = Duration::from_secs(30);
/// Names of which something is known.
pub const DNS_NAMES_MAX: usize = 10_000;
/// Bytes of the body of a call to the admin address.
pub const ADMIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest that the locks are counted for one call, seconds.
pub const LOCKS_SECONDS_MAX: u64 = 60;
/// Keys of variants that a URI remembers, so that they can be listed.
pub const VARIANTS_LISTED_MAX: usize = 32;
/// A body on the disk that is longer is not brought into memory: it is sent from where it is.
pub const SWAP_IN_BYTES_MAX: u64 = 256 * 1024;
/// Blocks of such a body that wait for one another, verified, to be sent by one call.
pub const BLOCKS_SENT_MAX: usize = 4;
/// What an unsafe method or a purge has changed is answered after this even if the disk has not
/// taken it.
pub const DURABLE_WAIT_MAX: Duration = Duration::from_secs(10);
/// And after this even if the process that takes our place has not replied; that waits as long for
/// its own disk.
pub const TAKEN_IN_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often it is looked whether a disk that another process has comes back.
pub const DISK_LENT_LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether the disk fails, to tell the log.
pub const DISK_LOOK: Duration = Duration::from_secs(1);
/// After so many looks without a failure it is told that the disk is well again: a disk that fails
/// is tried anew every minute at least.
pub const DISK_LOOKS_WELL: u32 = 120;
/// A response that the origin has confirmed for less than this is not written to the disk again.
pub const CONFIRMED_WRITTEN_MIN: Duration = Duration::from_secs(60);
/// How often a request begins anew because a body on the disk turned out not to be there.
pub const BODIES_LOST_MAX: usize = 2;
/// Sets of names in `Vary` that are kept for one URI, and so look-ups for a request to it.
pub const VARY_SETS_MAX: usize = 8;
/// Variants that a request which selects none of them is asked for with, by their tags,
pub const VARIANTS_OFFERED_MAX: usize = 8;
/// and bytes of these tags: servers refuse long fields.
pub const OFFERED_BYTES_MAX: usize = 1024;
/// Tags of one response that are kept; one with more is taken by any purge by tag.
pub const TAGS_MAX: usize = 1024;
/// Slots of the store that one tick looks at to let go of what purges have taken.
pub const PURGE_SWEEP_SLOTS_PER_TICK: usize = 2048;
/// And so many of them under a shard's lock.
pub const PURGE_SWEEP_SLOTS_PER_LOCK: usize = 64;
/// Bytes of a TLS ClientHello that is read to find its server name; the largest in use, with keys
/// of post-quantum groups, have 2 KiB.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024;
/// Bytes that one read of a tunnel takes, and so what a direction may hold that its far side does
/// not take. A silent tunnel holds none.
pub const TUNNEL_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a file of users.
pub const PASSWORD_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The highest cost of a bcrypt hash: about 4 s a password, of a thread that others wait for.
pub const PASSWORD_COST_MAX: u32 = 16;
/// Requests of one core whose passwords wait to be verified; one more is answered 503.
pub const PASSWORDS_WAITING_MAX: usize = 64;
/// Passwords that are known to be right, all cores together; beyond it all are forgotten.
pub const PASSWORDS_KNOWN_MAX: usize = 10_000;
/// How long a password counts as known: what a reload takes away is asked for again at once.
pub const PASSWORD_KNOWN_FOR: Duration = Duration::from_secs(300);
/// Bytes off a socket that a core decrypts at once: two records of the largest kind and some.
pub const TLS_INPUT_BYTES: usize = 40 * 1024;
/// Bytes off a socket that are taken when nobody has given room for what is inside: what rustls
/// reads in one piece, so that its plaintext never exceeds a record.
pub const TLS_TAKE_BYTES: usize = 4 * 1024;
/// Bytes of a connection that are encrypted ahead of what its socket takes: two records. It is what
/// a slow TLS client pins.
pub const TLS_OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// Bytes that a connection may encrypt between two waits: some milliseconds.
pub const TLS_BURST_BYTES_MAX: usize = 1024 * 1024;
/// Handshakes that one core has begun and not finished: a client may make us buffer up to 64 KiB
/// in one. Further clients wait, without a buffer, until the handshake's time-out.
pub const TLS_HANDSHAKES_MAX: usize = 512;
/// Bytes of a PROXY protocol header, version 2 with its TLVs.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 * 1024;

/// Idle client connections that are asked to close when a descriptor is wanted ...
pub const ROOM_AT_ONCE: u32 = 64;
/// ... of so many that are looked at ...
pub const ROOM_LOOKS: usize = 1024;
/// ... which have been silent for so long: one that has just come may be about to ask.
pub const ROOM_IDLE: Duration = Duration::from_secs(1);
/// ... and they are given so long, before what there was no descriptor for is tried again.
pub const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// A connection to an upstream is tried so often again while there is no descriptor for it.
pub const ROOM_TRIES: u32 = 4;
/// Bytes of a body that is held so that its request may be repeated, if its method allows that. It
/// is less than a head may take.
pub const BODY_HELD_BYTES_MAX: u64 = 16 * 1024;
/// A client is not cut for its rate before we have waited for it so often: one long pause is no
/// trickle, and has a time-out of its own.
pub const RATE_WAITS_MIN: u32 = 16;
/// What is read of an upstream at once, and gathered for a client that pipelines, while clients
/// leave more than [`Limits::held_bytes_max`] unread.
pub const PRESSED_BYTES: usize = 4 * 1024;

/// The limits that an operator may change; `Default` is what the server starts with.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's head; beyond it 431 (or 414 when it is the target).
    pub head_bytes_max: usize,
    /// Fields of a head; beyond it 431.
    pub fields_max: usize,
    /// How long a connection may be open and silent between requests.
    pub idle_keep_alive: Duration,
    /// From accepting a connection to the end of its PROXY header and TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// How long a client may leave our bytes unread before it is cut.
    pub send_timeout: Duration,
    /// A client whose body comes, or who takes our bytes, at less than this many bytes a second is
    /// cut, once we have waited for it for [`Limits::rate_grace`] ...
    pub rate_min: u64,
    /// ... in all, within one request.
    pub rate_grace: Duration,
    /// Bytes that clients of one core have not taken yet, all together. Beyond it no more than
    /// [`PRESSED_BYTES`] are read at once for a client.
    pub held_bytes_max: u64,
    /// Whether requests that need an upstream are shed with 503 when a core is overloaded.
    pub overload_shed: bool,
    /// How long ready events may wait on a busy core before it counts as overloaded.
    pub overload_objective: Duration,
    /// Memory that the process may use; the control group's bounds hold beside it.
    pub process_memory_max: Option<u64>,
    /// To establish a connection to an upstream.
    pub connect_timeout: Duration,
    /// Between two pieces of an upstream's response, and until its first.
    pub upstream_timeout: Duration,
    /// How long an idle upstream connection is kept for the next request.
    pub upstream_idle: Duration,
    /// Idle upstream connections that one core keeps for one upstream.
    pub upstream_idle_max: usize,
    /// Interim (1xx) responses accepted before the final one.
    pub interim_max: usize,
    /// The largest body that is stored, as a divisor of the memory bound.
    pub object_share: usize,
    /// What bodies that are on their way into the store may take beside it, all together, as a
    /// divisor of the memory bound. Beyond it a body is streamed and not stored.
    pub arriving_share: usize,
    /// Bytes that a response which will not be stored may run ahead of its slowest reader.
    pub stream_window_bytes: usize,
    /// How long a key whose response could not be stored is fetched without collapsing.
    pub uncacheable_memory: Duration,
    /// How long a tunnel (CONNECT, or an upgraded connection) may be silent in both directions.
    pub tunnel_idle: Duration,
    /// After SIGTERM: how long requests under way may take to finish.
    pub drain_timeout: Duration,
    /// After an error response: how long, and how much, is still read so that the client sees it.
    pub linger_timeout: Duration,
    /// See [`Limits::linger_timeout`].
    pub linger_bytes_max: usize,
    /// Client connections of one core. The descriptors of the process bound it further.
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
            send_timeout: Duration::from_secs(60),
            rate_min: 128,
            rate_grace: Duration::from_secs(30),
            held_bytes_max: 64 * 1024 * 1024,
            overload_shed: true,
            overload_objective: Duration::from_millis(50),
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

const _: () = assert!(COALESCE_BYTES_MAX < OUTPUT_BYTES_MAX);
const _: () = assert!(PRESSED_BYTES < OUTPUT_BYTES_MAX && PRESSED_BYTES < READ_BUFFER_BYTES);
const _: () = assert!(ROOM_AT_ONCE as usize <= ROOM_LOOKS);
const _: () = assert!(BODY_HELD_BYTES_MAX <= READ_BUFFER_BYTES as u64 / 2);
const _: () = assert!(DNS_TTL_MIN.as_nanos() < DNS_TTL_NONE_MAX.as_nanos());
const _: () = assert!(DNS_TTL_NONE_MAX.as_nanos() < DNS_TTL_MAX.as_nanos());
const _: () = assert!(PURGE_SWEEP_SLOTS_PER_LOCK <= PURGE_SWEEP_SLOTS_PER_TICK);
const _: () = assert!(TUNNEL_BYTES_MAX <= READ_BUFFER_BYTES);
const _: () = assert!(LOG_BATCH_BYTES < LOG_QUEUE_BYTES_MAX);
const _: () = assert!(TLS_TAKE_BYTES <= TLS_INPUT_BYTES);
const _: () = assert!(READ_BUFFER_BYTES >= 2 * 32 * 1024, "a head and the start of a body fit");

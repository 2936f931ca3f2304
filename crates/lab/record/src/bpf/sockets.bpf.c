/*
 * Requests of the observed processes, counted on their sockets.
 *
 *   receive "GET ..."     the next request of the connection begins
 *   send "HTTP/1.1 200"   its response begins; the response before it has ended
 *   send anything else    belongs to the response that has begun
 *   close                 the last response has ended; a request without one is an error
 *
 * A connection is known by the cookie of its socket: a number that the kernel gives to a socket on
 * request, and never gives to a second one. The address of a socket would not do. After a reset the
 * kernel soon uses its memory for a socket of any other process, whose requests would be counted.
 *
 * For TLS, the calls of OpenSSL's library take the place of the sockets.
 *
 * Only the first bytes of a receive or a send are looked at, where the system call in progress says
 * that they are: the tracepoints have no address. Where a response ends is not known until the next
 * one begins, the connection closes, or user space finds that it has paused for long (`sweep`). It
 * is then counted at its last send. A connection that begins with the receipt of a response is one
 * to an upstream server.
 *
 * User space numbers the intervals (epochs). A request that began and ended in one epoch is added
 * to the sums of that epoch: the sums of the last few epochs are kept, on each CPU, and never
 * reset. Any other request, of which there are about as many per epoch as requests in flight, is
 * handed to user space, which spreads it over its life.
 */
#include "common.h"

#define MAP_RING 27
#define NO_WAKEUP 1

/* The sums of this many epochs are kept. Must match sockets.rs. */
#define EPOCHS 4

/* Delays: 64 buckets per octave, in us, from 128 us; exact below. Must match sockets.rs. */
#define BUCKETS 2048
#define OCTAVE_BITS 6

/* Decades of the size, as in logs/facts.rs; and of methods, which are numbered as there. */
#define SIZES 10
#define METHODS 11
#define METHOD_OTHER 10
#define CLASSES (METHODS * SIZES * 2 * 2)

/* Of a send of several buffers, so many may begin a response. */
#define HEADS_MAX 8

/* Kinds of the map `unseen`. */
#define NO_ROOM_CONNECTIONS 0
#define NO_ROOM_SPREAD 1
#define HTTP2 2
#define TLS_UNREAD 3
#define RING_CALLS 4
/* Not a loss: receives that OpenSSL has decrypted. */
#define TLS_READ 5

/* A status that counts as an error. */
#define UNANSWERED 499

static struct pt_regs *(*const task_regs)(void *task) = (void *)175;
static long (*const ring_output)(void *ring, void *data, u64 bytes, u64 flags) = (void *)130;
static long (*const for_each)(void *map, void *callback, void *ctx, u64 flags) = (void *)164;

static u64 (*const cookie_of)(void *sock) = (void *)46;

/* States of a connection that will not be sent anything. */
#define TCP_FIN_WAIT1 4
#define TCP_LAST_ACK 9

/* A request that is unanswered for so long is forgotten: of a socket that is not TCP, or of a TLS
 * session whose process was killed, the end is not seen. */
#define UNANSWERED_NS_MAX (3600ull * 1000 * 1000 * 1000)

struct cookie {
	s64 counter;
} KERNEL_STRUCT;

struct sock_common {
	struct cookie skc_cookie;
} KERNEL_STRUCT;

struct sock {
	struct sock_common __sk_common;
} KERNEL_STRUCT;

/* A kernel socket by its cookie, or a TLS session by its address in a process. */
struct key {
	u64 number;
	u64 tgid;
};

struct connection {
	/* When the request began whose response is being sent. */
	u64 begun_ns;
	u64 last_ns;
	u64 bytes;
	/* When the next request began; 0 if there is none. */
	u64 next_ns;
	/* Whether a response has begun that is not counted yet. */
	u32 responding;
	u32 begun_epoch;
	u32 last_epoch;
	u32 next_epoch;
	u16 status;
	u8 method;
	u8 next_method;
	u8 tls;
	u8 upstream;
	/* Whether its beginning was seen; otherwise it is that of the response. */
	u8 timed;
};

MAP(connections, MAP_HASH, 65536, struct key, struct connection);

/* What user space sets: the number of the interval, and which responses a sweep ends. */
struct control {
	u64 epoch;
	u64 sweep_before_ns;
};

MAP(controls, MAP_ARRAY, 1, u32, struct control);

struct sum {
	u64 requests;
	u64 bytes;
};

struct sums {
	struct sum classes[CLASSES];
};

struct delays {
	u32 counts[BUCKETS];
};

MAP(sums, MAP_PERCPU_ARRAY, EPOCHS, u32, struct sums);

MAP(delays, MAP_PERCPU_ARRAY, EPOCHS, u32, struct delays);

/* A request that is spread over its life by user space. */
struct spread {
	u64 begun_ns;
	u64 last_ns;
	u64 bytes;
	u32 class;
	u32 timed;
};

struct {
	int (*type)[MAP_RING];
	int (*max_entries)[1 << 20];
} spreads SEC(".maps");

ALWAYS_INLINE u32 class_of(struct connection *connection)
{
	u32 size = 0, method = connection->method, error = connection->status >= 400;
	u64 limit = 1;

	for (int decade = 1; decade < SIZES; decade++) {
		if (connection->bytes >= limit)
			size = decade;
		limit *= 10;
	}
	if (method >= METHODS)
		method = METHOD_OTHER;
	return ((method * SIZES + size) * 2 + error) * 2 + !!connection->tls;
}

ALWAYS_INLINE u32 bucket_of(u64 us)
{
	u32 shift = 0;

	for (u32 bits = 16; bits; bits /= 2)
		if (us >> (shift + bits + OCTAVE_BITS))
			shift += bits;
	u64 bucket = ((u64)shift << OCTAVE_BITS) + (us >> shift);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/*
 * Counts the response that has ended, at its last send. This and two more functions are not static,
 * so that they are verified once and not for each call.
 */
__attribute__((noinline)) int count(struct connection *connection, u64 epoch)
{
	if (!connection)
		return 0;
	u32 class = class_of(connection), last = connection->last_epoch, slot = last % EPOCHS;

	/* The oldest slot is about to be used again. */
	if (connection->begun_epoch != last || epoch - last >= EPOCHS - 1) {
		struct spread spread = {
			.begun_ns = connection->begun_ns,
			.last_ns = connection->last_ns,
			.bytes = connection->bytes,
			.class = class,
			.timed = connection->timed,
		};
		if (!ring_output(&spreads, &spread, sizeof(spread), NO_WAKEUP))
			return 0;
		count_unseen(NO_ROOM_SPREAD);
		slot = epoch % EPOCHS;
	}
	struct sums *to = map_lookup(&sums, &slot);
	struct delays *in = map_lookup(&delays, &slot);
	if (!to || !in || class >= CLASSES)
		return 0;
	/* Atomic, because some kernels preempt a program. */
	__sync_fetch_and_add(&to->classes[class].requests, 1);
	__sync_fetch_and_add(&to->classes[class].bytes, connection->bytes);
	if (connection->timed) {
		u32 bucket = bucket_of((connection->last_ns - connection->begun_ns) / 1000);
		__sync_fetch_and_add(&in->counts[bucket & (BUCKETS - 1)], 1);
	}
	return 0;
}

ALWAYS_INLINE u64 epoch_now(void)
{
	u32 only = 0;
	struct control *control = map_lookup(&controls, &only);

	return control ? control->epoch : 0;
}

ALWAYS_INLINE void end_response(struct connection *connection, u64 epoch)
{
	if (connection->responding && __sync_lock_test_and_set(&connection->responding, 0))
		count(connection, epoch);
}

ALWAYS_INLINE struct connection *add_connection(struct key *key, u32 tls)
{
	struct connection none = { .tls = tls };

	map_update(&connections, key, &none, NOEXIST);
	struct connection *connection = map_lookup(&connections, key);
	if (!connection)
		count_unseen(NO_ROOM_CONNECTIONS);
	return connection;
}

#define WORD(a, b, c, d) (a | b << 8 | c << 16 | (u32)d << 24)
/* The types of records that begin a connection of TLS, and that carry its data. */
#define TLS_HANDSHAKE WORD(22, 3, 0, 0)
#define TLS_DATA WORD(23, 3, 0, 0)
#define PREFACE WORD('P', 'R', 'I', ' ')
#define HTTP WORD('H', 'T', 'T', 'P')

/* The method that begins with these letters; 0 if none does. */
ALWAYS_INLINE u32 method_of(u32 letters)
{
	switch (letters) {
	case WORD('G', 'E', 'T', ' '):
		return 1;
	case WORD('H', 'E', 'A', 'D'):
		return 2;
	case WORD('P', 'O', 'S', 'T'):
		return 3;
	case WORD('P', 'U', 'T', ' '):
		return 4;
	case WORD('D', 'E', 'L', 'E'):
		return 5;
	case WORD('O', 'P', 'T', 'I'):
		return 6;
	case WORD('C', 'O', 'N', 'N'):
		return 7;
	case WORD('P', 'A', 'T', 'C'):
		return 8;
	case WORD('P', 'U', 'R', 'G'):
		return 9;
	case WORD('T', 'R', 'A', 'C'):
	case WORD('P', 'R', 'O', 'P'):
	case WORD('M', 'K', 'C', 'O'):
	case WORD('M', 'K', 'C', 'A'):
	case WORD('C', 'O', 'P', 'Y'):
	case WORD('M', 'O', 'V', 'E'):
	case WORD('L', 'O', 'C', 'K'):
	case WORD('U', 'N', 'L', 'O'):
	case WORD('R', 'E', 'P', 'O'):
	case WORD('S', 'E', 'A', 'R'):
	case WORD('Q', 'U', 'E', 'R'):
	case WORD('B', 'A', 'N', ' '):
		return METHOD_OTHER;
	}
	return 0;
}

/* The status of a response that begins there; 0 if none does. */
ALWAYS_INLINE u32 status_at(u64 address, u64 bytes)
{
	u8 head[12];

	if (bytes < sizeof(head) || read_user(head, sizeof(head), (void *)address))
		return 0;
	u32 a = head[9] - '0', b = head[10] - '0', c = head[11] - '0';
	if (*(u32 *)head != HTTP || head[4] != '/' || head[5] != '1' || head[6] != '.' ||
	    head[8] != ' ' || a < 1 || a > 9 || b > 9 || c > 9)
		return 0;
	return a * 100 + b * 10 + c;
}

ALWAYS_INLINE int take_next(struct connection *connection)
{
	if (!connection->next_ns)
		return 0;
	connection->begun_ns = connection->next_ns;
	connection->begun_epoch = connection->next_epoch;
	connection->method = connection->next_method;
	connection->timed = 1;
	connection->next_ns = 0;
	return 1;
}

/* Counts what the connection still has, and forgets it. */
static __attribute__((noinline)) int forget(struct key *key, struct connection *connection)
{
	u64 epoch = epoch_now();

	end_response(connection, epoch);
	if (take_next(connection)) {
		connection->status = UNANSWERED;
		connection->bytes = 0;
		connection->last_ns = now_ns();
		connection->last_epoch = epoch;
		count(connection, epoch);
	}
	map_delete(&connections, key);
	return 0;
}

ALWAYS_INLINE int closed(struct key *key)
{
	struct connection *connection = map_lookup(&connections, key);

	return connection ? forget(key, connection) : 0;
}

/* Bytes of one receive. The connection is NULL if it is not known. */
__attribute__((noinline)) int received(struct key *key, struct connection *connection, u64 address,
				       u64 bytes, u32 tls)
{
	u32 letters = 0;

	if (!key || bytes < sizeof(letters) || read_user(&letters, sizeof(letters), (void *)address))
		return 0;
	u32 method = method_of(letters);
	if (!method) {
		if (letters == HTTP && status_at(address, bytes)) {
			if (!connection)
				connection = add_connection(key, tls);
			if (connection && !connection->begun_ns && !connection->next_ns) {
				connection->upstream = 1;
				connection->last_ns = now_ns();
			}
		} else if (letters == PREFACE) {
			count_unseen(HTTP2);
		} else if ((letters & 0xffff) == TLS_HANDSHAKE || (letters & 0xffff) == TLS_DATA) {
			count_unseen(TLS_UNREAD);
		}
		return 0;
	}
	if (!connection)
		connection = add_connection(key, tls);
	/* Of pipelined requests, only the first is noted. */
	if (!connection || connection->upstream || connection->next_ns)
		return 0;
	connection->next_method = method;
	connection->next_epoch = epoch_now();
	connection->next_ns = now_ns();
	return 0;
}

/* Bytes of one send, or of one buffer of a send. */
__attribute__((noinline)) int sent(struct key *key, struct connection *connection, u64 address,
				   u64 bytes, u32 tls)
{
	if (!key)
		return 0;
	u32 status = address ? status_at(address, bytes) : 0;

	/* An interim response (1xx) is no response, except for the last one: 101. */
	if ((status && status < 200 && status != 101) || (!connection && !status))
		return 0;
	if (!connection)
		connection = add_connection(key, tls);
	if (!connection || connection->upstream)
		return 0;
	u64 now = now_ns(), epoch = epoch_now();
	if (status) {
		end_response(connection, epoch);
		/* Otherwise the request came with the one before, or was not seen. */
		if (!take_next(connection) && !connection->begun_ns) {
			connection->begun_ns = now;
			connection->begun_epoch = epoch;
		}
		connection->status = status;
		connection->bytes = 0;
		connection->responding = 1;
	}
	if (!connection->responding)
		return 0;
	connection->bytes += bytes;
	connection->last_ns = now;
	connection->last_epoch = epoch;
	return 0;
}

struct piece {
	u64 address;
	s64 bytes;
};

/* As user space passes it. */
struct message {
	u64 name, name_bytes;
	struct piece *pieces;
};

/* Where the system call of this thread has its bytes. */
struct buffers {
	/* If there is only one: its address. */
	u64 address;
	/* If there are several: the vector, in user memory. */
	struct piece *pieces;
};

/* None for bytes of a file or a pipe. An io_uring has none that are found here. */
ALWAYS_INLINE struct buffers buffers_of_call(void)
{
	struct pt_regs *regs = task_regs(current_task());
	struct buffers buffers = {};

	switch (regs->orig_ax) {
	case 0: /* read */
	case 1: /* write */
	case 44: /* sendto */
	case 45: /* recvfrom */
		buffers.address = regs->si;
		break;
	case 19: /* readv */
	case 20: /* writev */
	case 327: /* preadv2 */
	case 328: /* pwritev2 */
		buffers.pieces = (void *)regs->si;
		break;
	case 46: /* sendmsg */
	case 47: /* recvmsg */
	case 299: /* recvmmsg */
	case 307: /* sendmmsg */
		read_user(&buffers.pieces, sizeof(buffers.pieces), &((struct message *)regs->si)->pieces);
		break;
	case 40: /* sendfile */
	case 275: /* splice */
		break;
	default:
		count_unseen(RING_CALLS);
	}
	return buffers;
}

/*
 * The connection of a socket; the key's number is 0 if this process is not observed and does not
 * use a connection of the server. A socket without a cookie has none, so that the sockets of other
 * processes cost no look-up.
 */
ALWAYS_INLINE struct connection *connection_of(struct sock *sock, struct key *key)
{
	struct connection *connection = 0;

	key->number = sock->__sk_common.skc_cookie.counter;
	if (key->number)
		connection = map_lookup(&connections, key);
	if (!connection)
		key->number = is_observed(current_pid_tgid() >> 32) ? cookie_of(sock) : 0;
	return connection;
}

SEC("tp_btf/sock_recv_length")
int socket_received(u64 *ctx)
{
	struct piece first = { .bytes = (s32)ctx[1] };
	struct key key = {};

	if (first.bytes <= 0 || (ctx[2] & (MSG_PEEK | MSG_TRUNC)))
		return 0;
	struct connection *connection = connection_of((void *)ctx[0], &key);
	if (!key.number)
		return 0;
	s64 bytes = first.bytes;
	struct buffers buffers = buffers_of_call();
	first.address = buffers.address;
	if (buffers.pieces && read_user(&first, sizeof(first), buffers.pieces))
		return 0;
	if (first.bytes > bytes)
		first.bytes = bytes;
	return first.address ? received(&key, connection, first.address, first.bytes, 0) : 0;
}

SEC("tp_btf/sock_send_length")
int socket_sent(u64 *ctx)
{
	s64 bytes = (s32)ctx[1];
	struct key key = {};

	if (bytes <= 0)
		return 0;
	struct connection *connection = connection_of((void *)ctx[0], &key);
	if (!key.number)
		return 0;
	struct buffers buffers = buffers_of_call();
	/* Pipelined responses may each have buffers of their own. */
	for (int head = 0; buffers.pieces && head < HEADS_MAX && bytes > 0; head++) {
		struct piece piece;
		if (read_user(&piece, sizeof(piece), buffers.pieces++))
			break;
		if (piece.bytes > bytes)
			piece.bytes = bytes;
		if (piece.bytes > 0) {
			sent(&key, connection, piece.address, piece.bytes, 0);
			bytes -= piece.bytes;
			if (!connection)
				connection = map_lookup(&connections, &key);
		}
	}
	return bytes > 0 ? sent(&key, connection, buffers.address, bytes, 0) : 0;
}

ALWAYS_INLINE int socket_ends(struct sock *sock)
{
	struct key key = { .number = sock->__sk_common.skc_cookie.counter };

	return key.number ? closed(&key) : 0;
}

SEC("tp_btf/inet_sock_set_state")
int socket_changed(u64 *ctx)
{
	if (ctx[2] != TCP_FIN_WAIT1 && ctx[2] != TCP_LAST_ACK)
		return 0;
	return socket_ends((void *)ctx[0]);
}

/*
 * The end of a connection that was reset. The state changes when the reset arrives, which may be in
 * the middle of a send that is seen later; the socket ends when the server has closed it.
 */
SEC("tp_btf/tcp_destroy_sock")
int socket_destroyed(u64 *ctx)
{
	return socket_ends((void *)ctx[0]);
}

/* A call of a TLS library in progress, by thread. */
struct tls_call {
	struct key session;
	u64 buffer;
	/* Where the number of bytes will be, if it is not the result. */
	u64 *bytes;
};

MAP(tls_calls, MAP_HASH, 16384, u32, struct tls_call);

ALWAYS_INLINE struct key session_of(struct pt_regs *regs)
{
	struct key session = { .number = regs->di, .tgid = current_pid_tgid() >> 32 };

	return session;
}

ALWAYS_INLINE int tls_begins(struct pt_regs *regs, u64 *bytes)
{
	u32 tid = current_pid_tgid();
	struct tls_call call = { .session = session_of(regs), .buffer = regs->si, .bytes = bytes };

	if (is_observed(call.session.tgid) && map_update(&tls_calls, &tid, &call, ANY))
		count_unseen(NO_ROOM_CONNECTIONS);
	return 0;
}

/* How many bytes the call that returns has passed. */
ALWAYS_INLINE s64 tls_ends(struct pt_regs *regs, struct tls_call *call)
{
	u32 tid = current_pid_tgid();
	struct tls_call *begun = map_lookup(&tls_calls, &tid);
	s64 bytes = (s32)regs->ax;

	if (!begun)
		return 0;
	*call = *begun;
	map_delete(&tls_calls, &tid);
	if (bytes > 0 && call->bytes && read_user(&bytes, sizeof(bytes), call->bytes))
		return 0;
	return bytes;
}

/* SSL_read(session, buffer, most), SSL_write(session, buffer, bytes). */
SEC("uprobe")
int tls_called(struct pt_regs *regs)
{
	return tls_begins(regs, 0);
}

/* SSL_read_ex and SSL_write_ex have a fourth argument, the number of bytes; and return 1. */
SEC("uprobe")
int tls_called_ex(struct pt_regs *regs)
{
	return tls_begins(regs, (u64 *)regs->cx);
}

SEC("uretprobe")
int tls_received(struct pt_regs *regs)
{
	struct tls_call call;
	s64 bytes = tls_ends(regs, &call);

	if (bytes <= 0)
		return 0;
	count_unseen(TLS_READ);
	struct connection *connection = map_lookup(&connections, &call.session);
	return received(&call.session, connection, call.buffer, bytes, 1);
}

SEC("uretprobe")
int tls_sent(struct pt_regs *regs)
{
	struct tls_call call;
	s64 bytes = tls_ends(regs, &call);

	if (bytes <= 0)
		return 0;
	struct connection *connection = map_lookup(&connections, &call.session);
	return sent(&call.session, connection, call.buffer, bytes, 1);
}

/* SSL_free(session) */
SEC("uprobe")
int tls_closed(struct pt_regs *regs)
{
	struct key session = session_of(regs);

	return closed(&session);
}

static long sweep_one(void *map, struct key *key, struct connection *connection, void *unused)
{
	u32 only = 0;
	struct control *control = map_lookup(&controls, &only);

	(void)unused;
	if (!control)
		return 0;
	if (connection->last_ns >= control->sweep_before_ns)
		return 0;
	end_response(connection, control->epoch);
	if (!connection->next_ns ||
	    connection->next_ns + UNANSWERED_NS_MAX < control->sweep_before_ns)
		map_delete(map, key);
	return 0;
}

/* Run by user space: ends the responses that have paused, and forgets silent connections. */
SEC("syscall")
int sweep(void)
{
	return for_each(&connections, sweep_one, 0, 0) < 0;
}

/*
 * What keeps the observed threads from answering: whether a thread takes one request at a time, for
 * how long the request occupies the thread, how many threads are occupied at once, how long
 * requests wait in the sockets before a thread reads them, and for which other servers the server
 * waits.
 *
 *   receive from a client        occupies the thread, if nothing does
 *   send to that client          the thread is free again; a further send was a part of the answer
 *   receive from another client  the thread has several requests at a time, as an event loop has
 *
 *   send to another server       begins a wait on that connection
 *   receive on it                ends the wait
 *
 * Sums are per CPU and never reset; user space takes differences. It also attaches and detaches the
 * programs.
 */
#include "common.h"
#include "clients.h"

#define AF_UNIX 1

/* Kinds of the map `unseen`. */
#define NO_ROOM_THREADS 0
#define NO_ROOM_PEERS 1

#define MAP_LRU_HASH 9

static u64 (*const jiffies)(void) = (void *)118;
/* A number that the kernel gives to a socket, and to no later one. */
static u64 (*const cookie_of)(void *sock) = (void *)46;

struct inet_connection_sock {
	struct {
		u32 lrcvtime;
	} icsk_ack;
} KERNEL_STRUCT;

#define IPPROTO_TCP 6

#define EAGAIN 11
#define EINTR 4
#define ERESTARTSYS 512

struct thread {
	/* The client's socket of which data was received last, by its cookie. */
	u64 sock;
	/* Since when its request occupies the thread; 0 if none does. */
	u64 since_ns;
	/* Its last send, if the answer has begun. */
	u64 sent_ns;
	/* When the thread was free again, in the kernel's ticks; 0 if it has not been occupied. */
	u64 free_ticks;
};

MAP(threads, MAP_HASH, 16384, u32, struct thread);

/* When a connection to another server was sent to, since the last receive on it. Connections that
 * are never received from are forgotten when there are too many. */
MAP(asked, MAP_LRU_HASH, 16384, u64, u64);

struct peer {
	u64 address[2];
	u16 port;
	u16 family;
	u32 unused;
};

struct waits {
	u64 waits;
	u64 waited_ns;
	/* Of that, while a request occupied the thread. */
	u64 inside_ns;
};

MAP(peers, MAP_HASH, 256, struct peer, struct waits);

/* How many threads are occupied. */
MAP(occupied, MAP_ARRAY, 1, u32, u64);

struct sums {
	u64 served;
	u64 overlapped;
	u64 occupied_ns;
	u64 begun;
	/* Requests that had come before their thread was free. */
	u64 late;
	u64 late_ticks;
	/* The most threads that this CPU saw occupied at once. */
	u64 at_once;
	/* The ticks, and the time when they were read. */
	u64 ticks;
	u64 ticks_ns;
	/* Receives and sends. */
	u64 events;
};

MAP(sums, MAP_PERCPU_ARRAY, 1, u32, struct sums);

ALWAYS_INLINE struct sums *own_sums(void)
{
	u32 only = 0;

	return map_lookup(&sums, &only);
}

/* A request begins to occupy the thread. An earlier one goes on elsewhere, or its client gave up. */
ALWAYS_INLINE void begins(struct thread *thread, struct sums *sums, struct sock *sock, u64 now)
{
	u32 only = 0, came = 0;
	u64 ticks = jiffies(), *count = map_lookup(&occupied, &only);

	if (thread->since_ns)
		sums->overlapped++;
	else if (count) {
		__sync_fetch_and_add(count, 1);
		if (*count > sums->at_once)
			sums->at_once = *count;
	}
	thread->since_ns = now;
	thread->sent_ns = 0;
	sums->begun++;
	sums->ticks = ticks;
	sums->ticks_ns = now;
	if (sock->sk_protocol != IPPROTO_TCP || !thread->free_ticks)
		return;
	READ(came, ((struct inet_connection_sock *)sock)->icsk_ack.lrcvtime);
	/* The kernel notes in ticks when data came. Where it came in the tick in which the thread got
	 * free, or later, the thread may have been idle, and only slow to run. */
	u32 waited = (u32)ticks - came;
	if ((s32)((u32)thread->free_ticks - came) > 0 && waited < 1u << 31) {
		sums->late++;
		sums->late_ticks += waited;
	}
}

/* The thread is free. */
ALWAYS_INLINE void frees(struct thread *thread)
{
	u32 only = 0;
	u64 *count = map_lookup(&occupied, &only);

	thread->since_ns = 0;
	thread->free_ticks = jiffies();
	if (count && *count)
		__sync_fetch_and_add(count, -1);
}

ALWAYS_INLINE void ends(struct thread *thread, struct sums *sums, u64 now)
{
	if (now > thread->since_ns)
		sums->occupied_ns += now - thread->since_ns;
	sums->served++;
	frees(thread);
}

/* The client of the request has gone. */
ALWAYS_INLINE void gives_up(u32 tid, struct sock *sock)
{
	struct thread *thread = map_lookup(&threads, &tid);

	if (thread && thread->since_ns && thread->sock == cookie_of(sock))
		frees(thread);
}

ALWAYS_INLINE int is_end(s32 result)
{
	return result != -EAGAIN && result != -EINTR && result != -ERESTARTSYS;
}

ALWAYS_INLINE void received_of_client(u32 tid, struct sock *sock, u64 now)
{
	struct sums *sums = own_sums();
	struct thread *thread = map_lookup(&threads, &tid);

	if (!thread) {
		struct thread first = {};
		if (map_update(&threads, &tid, &first, NOEXIST))
			count_unseen(NO_ROOM_THREADS);
		thread = map_lookup(&threads, &tid);
	}
	if (!thread || !sums)
		return;
	u64 cookie = cookie_of(sock);
	if (!thread->since_ns || thread->sock != cookie)
		begins(thread, sums, sock, now);
	thread->sock = cookie;
}

/* In `asked`: the other side of a Unix socket spoke first, so it may be a client. */
#define CLIENT (~0ull)

ALWAYS_INLINE void received_of_other(u32 tid, struct sock *sock, u64 now)
{
	u64 key = cookie_of(sock), *since = map_lookup(&asked, &key), never = CLIENT;
	struct thread *thread = map_lookup(&threads, &tid);
	struct peer peer = {};
	struct waits first = {};

	peer.family = sock->__sk_common.skc_family;
	if (!since && peer.family == AF_UNIX)
		map_update(&asked, &key, &never, NOEXIST);
	if (!since || *since == CLIENT)
		return;
	u64 waited_ns = now > *since ? now - *since : 0;
	map_delete(&asked, &key);
	if (peer.family == AF_INET6)
		READ(peer.address, sock->__sk_common.skc_v6_daddr);
	else if (peer.family == AF_INET)
		peer.address[0] = sock->__sk_common.skc_daddr;
	if (peer.family != AF_UNIX)
		peer.port = sock->__sk_common.skc_dport;
	struct waits *waits = map_lookup(&peers, &peer);
	if (!waits) {
		if (map_update(&peers, &peer, &first, NOEXIST))
			count_unseen(NO_ROOM_PEERS);
		waits = map_lookup(&peers, &peer);
	}
	if (waits) {
		__sync_fetch_and_add(&waits->waits, 1);
		__sync_fetch_and_add(&waits->waited_ns, waited_ns);
		if (thread && thread->since_ns)
			__sync_fetch_and_add(&waits->inside_ns, waited_ns);
	}
}

/* A thread that is gone is not occupied. */
SEC("tp_btf/sched_process_exit")
int exited(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tid = task->pid;
	struct thread *thread;

	if (!is_observed(task->tgid))
		return 0;
	thread = map_lookup(&threads, &tid);
	if (thread && thread->since_ns)
		frees(thread);
	map_delete(&threads, &tid);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int received(u64 *ctx)
{
	struct sock *sock = (void *)ctx[0];
	u64 both = current_pid_tgid();
	s32 result = ctx[1];

	if ((ctx[2] & (MSG_PEEK | MSG_TRUNC)) || !is_observed(both >> 32))
		return 0;
	struct sums *sums = own_sums();
	if (sums)
		sums->events++;
	if (!is_client(sock)) {
		if (result > 0)
			received_of_other(both, sock, now_ns());
	} else if (result > 0) {
		received_of_client(both, sock, now_ns());
	} else if (is_end(result)) {
		gives_up(both, sock);
	}
	return 0;
}

SEC("tp_btf/sock_send_length")
int sent(u64 *ctx)
{
	struct sock *sock = (void *)ctx[0];
	u64 both = current_pid_tgid();
	s32 result = ctx[1];
	u32 tid = both;

	if (!is_observed(both >> 32))
		return 0;
	struct sums *sums = own_sums();
	if (!sums)
		return 0;
	sums->events++;
	u64 now = now_ns(), cookie = cookie_of(sock);
	u32 family = sock->__sk_common.skc_family;
	if (!is_client(sock)) {
		/* A socket without a peer, such as a resolver's, is not known by its address. */
		int is_connected = family == AF_UNIX || sock->__sk_common.skc_dport;
		if ((family == AF_INET || family == AF_INET6 || family == AF_UNIX) && is_connected &&
		    result > 0)
			map_update(&asked, &cookie, &now, NOEXIST);
		return 0;
	}
	if (result <= 0) {
		if (is_end(result))
			gives_up(tid, sock);
		return 0;
	}
	struct thread *thread = map_lookup(&threads, &tid);
	if (!thread || thread->sock != cookie)
		return 0;
	if (thread->since_ns) {
		ends(thread, sums, now);
	} else if (thread->sent_ns && now > thread->sent_ns) {
		sums->occupied_ns += now - thread->sent_ns;
		thread->free_ticks = jiffies();
	}
	thread->sent_ns = now;
	return 0;
}

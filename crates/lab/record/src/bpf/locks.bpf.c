/*
 * Lock waits, summed up in the kernel.
 *
 * Kernel locks: lock:contention_begin and _end, on the whole machine. A waiter that spins stays on
 * its CPU; one that sleeps is a thread. That and the lock's address identify the beginning of a
 * wait at its end, even if an interrupt waits in the middle of another wait. A mutex first spins
 * and then sleeps: each phase begins again, with other flags.
 *
 * Futexes: system calls of the observed processes that wait on a word.
 *
 * User space reads and removes the sums every interval. What finds no room is counted.
 */
#include "common.h"

#define FRAMES 10
/* Frames between a tracepoint and its program, which are not part of the kernel's own stack. */
#define FRAMES_OF_BPF 3
#define USER_FRAMES 8

/* include/trace/events/lock.h */
#define FLAG_SPIN 1
#define FLAG_MUTEX 32

/* Kinds of the map `unseen`. */
#define NO_ROOM_WAITING 0
#define NO_ROOM_WAITS 1
#define NO_ROOM_FUTEX_WAITING 2
#define NO_ROOM_FUTEXES 3

struct waiter {
	u64 who;
	u64 lock;
};

struct waiting {
	u64 since_ns;
	u64 phase_ns;
	u64 spun_ns;
	u32 flags;
	u32 pad;
	u64 ips[FRAMES];
};

struct wait_key {
	u32 flags;
	u32 owner;
	u64 ips[FRAMES];
};

struct sums {
	u64 count;
	u64 total_ns;
	u64 max_ns;
	u64 spun_ns;
};

MAP(waiting, MAP_HASH, 4096, struct waiter, struct waiting);

MAP(waits, MAP_HASH, 4096, struct wait_key, struct sums);

struct futex_waiting {
	u64 since_ns;
	u64 word;
};

struct futex_key {
	u32 tgid;
	u32 pad;
	u64 word;
	u64 ip;
};

struct futex_sums {
	u64 count;
	u64 total_ns;
	u64 max_ns;
	u64 timed_out;
	u64 ips[USER_FRAMES];
};

MAP(futex_waiting, MAP_HASH, 4096, u32, struct futex_waiting);

MAP(futexes, MAP_HASH, 4096, struct futex_key, struct futex_sums);

/* Another CPU may raise it at the same moment; three tries almost always suffice. */
ALWAYS_INLINE void raise(u64 *max, u64 value)
{
	u64 had = *max;
	for (int try = 0; try < 3; try++) {
		if (value <= had)
			return;
		u64 found = __sync_val_compare_and_swap(max, had, value);
		if (found == had)
			return;
		had = found;
	}
}

ALWAYS_INLINE struct waiter waiter_of(u64 lock, int spins)
{
	struct waiter waiter = { .lock = lock };

	/* Thread ids are never 0, except for idle, which does not sleep. */
	waiter.who = spins ? (u64)current_cpu() << 32 : (u32)current_pid_tgid();
	return waiter;
}

SEC("tp_btf/contention_begin")
int contention_begin(u64 *ctx)
{
	u64 lock = ctx[0];
	u32 flags = ctx[1];
	struct waiter waiter = waiter_of(lock, (flags & FLAG_SPIN) && !(flags & FLAG_MUTEX));
	struct waiting *had = map_lookup(&waiting, &waiter);
	u64 now = now_ns();

	if (had && (flags & FLAG_MUTEX)) {
		if (had->flags & FLAG_SPIN)
			had->spun_ns += now - had->phase_ns;
		had->phase_ns = now;
		had->flags = flags;
		return 0;
	}
	struct waiting begun = { .since_ns = now, .phase_ns = now, .flags = flags };
	get_stack(ctx, begun.ips, sizeof(begun.ips), FRAMES_OF_BPF);
	if (map_update(&waiting, &waiter, &begun, ANY))
		count_unseen(NO_ROOM_WAITING);
	return 0;
}

SEC("tp_btf/contention_end")
int contention_end(u64 *ctx)
{
	u64 lock = ctx[0];
	struct waiter waiter = waiter_of(lock, 1);
	struct waiting *begun = map_lookup(&waiting, &waiter);
	if (!begun) {
		waiter = waiter_of(lock, 0);
		begun = map_lookup(&waiting, &waiter);
		/* It began before the recording, or found no room. */
		if (!begun)
			return 0;
	}
	u64 now = now_ns();
	u64 spun = begun->spun_ns + (begun->flags & FLAG_SPIN ? now - begun->phase_ns : 0);
	u64 total = now - begun->since_ns;
	struct wait_key key = { .flags = begun->flags };

	if (key.flags & FLAG_MUTEX)
		key.flags = FLAG_MUTEX;
	key.owner = owner_of(current_pid_tgid() >> 32);
	__builtin_memcpy(key.ips, begun->ips, sizeof(key.ips));
	map_delete(&waiting, &waiter);

	struct sums *sums = map_lookup(&waits, &key);
	if (!sums) {
		struct sums none = {};
		map_update(&waits, &key, &none, NOEXIST);
		sums = map_lookup(&waits, &key);
		if (!sums) {
			count_unseen(NO_ROOM_WAITS);
			return 0;
		}
	}
	__sync_fetch_and_add(&sums->count, 1);
	__sync_fetch_and_add(&sums->total_ns, total);
	__sync_fetch_and_add(&sums->spun_ns, spun);
	raise(&sums->max_ns, total);
	return 0;
}

#define NR_FUTEX 202
#define NR_FUTEX_WAIT 455

#define EAGAIN 11
#define ETIMEDOUT 110

ALWAYS_INLINE int waits_on_word(long nr, unsigned long operation)
{
	if (nr == NR_FUTEX_WAIT)
		return 1;
	/* Ignores FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME. */
	switch (operation & 127) {
	case 0: /* FUTEX_WAIT */
	case 6: /* FUTEX_LOCK_PI */
	case 9: /* FUTEX_WAIT_BITSET */
	case 11: /* FUTEX_WAIT_REQUEUE_PI */
	case 13: /* FUTEX_LOCK_PI2 */
		return 1;
	default:
		return 0;
	}
}

SEC("tp_btf/sys_enter")
int futex_enter(u64 *ctx)
{
	long nr = ctx[1];

	if (nr != NR_FUTEX && nr != NR_FUTEX_WAIT)
		return 0;
	struct pt_regs *regs = (void *)ctx[0];
	u64 both = current_pid_tgid();
	u32 tid = both;
	if (!waits_on_word(nr, regs->si) || !is_observed(both >> 32))
		return 0;
	struct futex_waiting begun = { .since_ns = now_ns(), .word = regs->di };
	if (map_update(&futex_waiting, &tid, &begun, ANY))
		count_unseen(NO_ROOM_FUTEX_WAITING);
	return 0;
}

SEC("tp_btf/sys_exit")
int futex_exit(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	long nr = regs->orig_ax;

	if (nr != NR_FUTEX && nr != NR_FUTEX_WAIT)
		return 0;
	u64 both = current_pid_tgid();
	u32 tid = both;
	struct futex_waiting *begun = map_lookup(&futex_waiting, &tid);
	if (!begun)
		return 0;
	u64 total = now_ns() - begun->since_ns;
	struct futex_key key = { .tgid = both >> 32, .word = begun->word, .ip = regs->ip };
	map_delete(&futex_waiting, &tid);
	/* The word had already changed, so there was no wait. */
	if ((long)ctx[1] == -EAGAIN)
		return 0;

	struct futex_sums *sums = map_lookup(&futexes, &key);
	if (!sums) {
		struct futex_sums none = {};
		get_stack(ctx, none.ips, sizeof(none.ips), USER_STACK);
		map_update(&futexes, &key, &none, NOEXIST);
		sums = map_lookup(&futexes, &key);
		if (!sums) {
			count_unseen(NO_ROOM_FUTEXES);
			return 0;
		}
	}
	__sync_fetch_and_add(&sums->count, 1);
	__sync_fetch_and_add(&sums->total_ns, total);
	raise(&sums->max_ns, total);
	if ((long)ctx[1] == -ETIMEDOUT)
		__sync_fetch_and_add(&sums->timed_out, 1);
	return 0;
}

/* A thread that is killed while it waits has no end of its wait. */
SEC("tp_btf/sched_process_exit")
int forget_thread(void)
{
	u32 tid = current_pid_tgid();

	map_delete(&futex_waiting, &tid);
	return 0;
}

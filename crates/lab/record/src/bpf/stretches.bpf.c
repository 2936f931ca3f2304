/*
 * What the observed threads work off in a row, summed up in the kernel by size.
 *
 * A turn is what a thread does from the return of a call that waits for events to the next such
 * return, or to the thread's sleep. Some servers do in a later turn what a receive asks for. So turns
 * without a receive belong to the turn before: a turn is summed up when the thread sleeps, or when it
 * receives after another return. A busy period is what a thread does from a wake to its next sleep: a
 * switch to another thread ends it, unless the thread was preempted or yielded. The size of either is
 * the number of receives with data in it.
 *
 * User space may hold the server for some milliseconds. What a thread works off after that is
 * summed up separately, until the CPU has nothing to run or the thread sleeps.
 *
 * CPU time is the time between the switches to a thread and from it: the scheduler's own sum is out
 * of date between two switches.
 *
 * Sums are per CPU and never reset; user space takes differences. It also attaches and detaches the
 * programs, because the tracepoint makes every system call of the machine slower.
 */
#include "common.h"
#include "clients.h"

/* As in trial::stretches. */
#define SIZES 9
#define FIRST_TURN 0
#define TURN 1
#define PERIOD 2
#define KINDS 3
#define CLASSES (KINDS * 2 * 2 * SIZES)

#define TASK_RUNNING 0
#define TASK_DEAD 128

#define IORING_ENTER_GETEVENTS 1

/* Kinds of the map `unseen`. */
#define NO_ROOM_THREADS 0

/* More fields of the struct that common.h declares. */
struct task_struct___scheduled {
	u32 __state;
} KERNEL_STRUCT;

struct stretch {
	u64 cpu_ns_before;
	u64 turns;
	u64 clients;
	u64 upstreams;
};

struct thread {
	/* When it got the CPU; 0 if it has none. */
	u64 on_ns;
	u64 cpu_ns;
	struct stretch turn;
	struct stretch period;
	/* CPU time at the last return. */
	u64 returned_cpu_ns;
	/* Whether they were seen from their beginning. */
	u8 in_turn;
	u8 in_period;
	/* Whether the thread has received nothing since the last return. */
	u8 returned;
	/* Whether it works off what came while the server was held. */
	u8 held;
	u8 turn_kind;
};

struct class {
	u64 stretches;
	u64 turns;
	u64 clients;
	u64 upstreams;
	u64 cpu_ns;
};

struct sums {
	u64 turns;
	u64 clients;
	u64 upstreams;
	struct class classes[CLASSES];
};

MAP(threads, MAP_HASH, 16384, u32, struct thread);

MAP(sums, MAP_PERCPU_ARRAY, 1, u32, struct sums);

/* User space sets it when a hold ends. */
struct control {
	/* The number of the hold; 0 before the first. */
	u64 hold;
	u64 ended_ns;
	/* What begins later does not belong to it. */
	u64 until_ns;
};

MAP(controls, MAP_ARRAY, 1, u32, struct control);

struct catching_up {
	/* The last hold after which this CPU had nothing to run. */
	u64 done;
	/* The longest time from the end of this hold to the end of a period that belongs to it. */
	u64 hold;
	u64 longest_ns;
};

MAP(catching_ups, MAP_PERCPU_ARRAY, 1, u32, struct catching_up);

ALWAYS_INLINE struct sums *own_sums(void)
{
	u32 only = 0;

	return map_lookup(&sums, &only);
}

ALWAYS_INLINE struct thread *thread_of(u32 tid, u64 now)
{
	struct thread *thread = map_lookup(&threads, &tid);

	if (!thread) {
		struct thread first = { .on_ns = now };
		if (map_update(&threads, &tid, &first, NOEXIST))
			count_unseen(NO_ROOM_THREADS);
		thread = map_lookup(&threads, &tid);
	}
	return thread;
}

ALWAYS_INLINE u64 cpu_time(struct thread *thread, u64 now)
{
	/* Two CPUs may read the clock in another order than the events have. */
	u64 on_ns = thread->on_ns;

	return thread->cpu_ns + (on_ns && now > on_ns ? now - on_ns : 0);
}

ALWAYS_INLINE void begin(struct stretch *stretch, u64 cpu_ns)
{
	stretch->cpu_ns_before = cpu_ns;
	stretch->turns = 0;
	stretch->clients = 0;
	stretch->upstreams = 0;
}

static __attribute__((noinline)) int add(struct stretch *stretch, u64 cpu_ns, u32 kind, u32 held)
{
	struct sums *sums = own_sums();

	if (!stretch || !sums)
		return 0;
	u64 receives = stretch->clients + stretch->upstreams;
	u32 size = (receives >= 1) + (receives >= 2) + (receives >= 3) + (receives >= 5) +
	    (receives >= 9) + (receives >= 17) + (receives >= 33) + (receives >= 65);
	u32 at = ((kind * 2 + held) * 2 + !!stretch->clients) * SIZES + size;
	if (at >= CLASSES)
		return 0;
	struct class *class = &sums->classes[at];

	class->stretches++;
	class->turns += stretch->turns;
	class->clients += stretch->clients;
	class->upstreams += stretch->upstreams;
	if (cpu_ns > stretch->cpu_ns_before)
		class->cpu_ns += cpu_ns - stretch->cpu_ns_before;
	return 0;
}

ALWAYS_INLINE void end_turn(struct thread *thread, u64 cpu_ns)
{
	if (thread->in_turn)
		add(&thread->turn, cpu_ns, thread->turn_kind, thread->held);
	thread->in_turn = 0;
}

ALWAYS_INLINE void begin_turn(struct thread *thread, u64 cpu_ns, u32 kind)
{
	begin(&thread->turn, cpu_ns);
	thread->turn_kind = kind;
	thread->in_turn = 1;
}

/* The first receive since the last return: that return began another turn. */
ALWAYS_INLINE void receives_again(struct thread *thread)
{
	thread->returned = 0;
	/* Turns before the first receive remain a part of its turn: the wake is in them. */
	if (!thread->in_turn || !(thread->turn.clients + thread->turn.upstreams))
		return;
	thread->turn.turns--;
	end_turn(thread, thread->returned_cpu_ns);
	begin_turn(thread, thread->returned_cpu_ns, TURN);
	thread->turn.turns = 1;
}

/* A call that waits for events, and so whose return is a turn. */
ALWAYS_INLINE int waits(struct pt_regs *regs)
{
	switch (regs->orig_ax) {
	case 7: /* poll */
	case 23: /* select */
	case 232: /* epoll_wait */
	case 270: /* pselect6 */
	case 271: /* ppoll */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return 1;
	case 426: /* io_uring_enter */
		return regs->r10 & IORING_ENTER_GETEVENTS;
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int turned(u64 *ctx)
{
	if (!waits((void *)ctx[0]))
		return 0;
	u64 both = current_pid_tgid();
	if (!is_observed(both >> 32))
		return 0;
	u64 now = now_ns();
	struct sums *sums = own_sums();
	struct thread *thread = thread_of(both, now);
	if (!sums || !thread)
		return 0;
	u64 cpu_ns = cpu_time(thread, now);
	sums->turns++;
	/* Only a sleep leaves a thread without a turn. */
	if (!thread->in_turn)
		begin_turn(thread, cpu_ns, FIRST_TURN);
	thread->turn.turns++;
	thread->period.turns++;
	thread->returned_cpu_ns = cpu_ns;
	thread->returned = 1;
	return 0;
}

SEC("tp_btf/sock_recv_length")
int received(u64 *ctx)
{
	if ((s32)ctx[1] <= 0 || (ctx[2] & (MSG_PEEK | MSG_TRUNC)))
		return 0;
	u64 both = current_pid_tgid();
	u32 tid = both;
	if (!is_observed(both >> 32))
		return 0;
	struct sums *sums = own_sums();
	struct thread *thread = map_lookup(&threads, &tid);
	if (!sums)
		return 0;
	if (thread && thread->returned)
		receives_again(thread);
	if (is_client((void *)ctx[0])) {
		sums->clients++;
		if (thread) {
			thread->turn.clients++;
			thread->period.clients++;
		}
	} else {
		sums->upstreams++;
		if (thread) {
			thread->turn.upstreams++;
			thread->period.upstreams++;
		}
	}
	return 0;
}

/* Whether this CPU still works off what came while the server was held. */
ALWAYS_INLINE int catches_up(struct control *control, struct catching_up *here, u64 now)
{
	return control->hold && control->hold != here->done && now < control->until_ns;
}

ALWAYS_INLINE void leaves(struct task_struct *task, int preempted, u64 now)
{
	u32 tid = task->pid;

	if (!tid || !is_observed(task->tgid))
		return;
	u32 state = ((struct task_struct___scheduled *)task)->__state;
	struct thread *thread = thread_of(tid, now);
	if (!thread)
		return;
	thread->cpu_ns = cpu_time(thread, now);
	thread->on_ns = 0;
	if (!preempted && state != TASK_RUNNING) {
		end_turn(thread, thread->cpu_ns);
		if (thread->in_period)
			add(&thread->period, thread->cpu_ns, PERIOD, thread->held);
		begin(&thread->period, thread->cpu_ns);
		thread->in_period = 1;
		if (thread->held) {
			u32 only = 0;
			struct control *control = map_lookup(&controls, &only);
			struct catching_up *here = map_lookup(&catching_ups, &only);
			if (control && here && here->hold != control->hold) {
				here->hold = control->hold;
				here->longest_ns = 0;
			}
			if (control && here && now - control->ended_ns > here->longest_ns)
				here->longest_ns = now - control->ended_ns;
		}
		thread->held = 0;
	}
	if (state & TASK_DEAD)
		map_delete(&threads, &tid);
}

ALWAYS_INLINE void comes(struct task_struct *task, u64 now)
{
	u32 tid = task->pid, only = 0;
	struct control *control = map_lookup(&controls, &only);
	struct catching_up *here = map_lookup(&catching_ups, &only);

	if (!control || !here)
		return;
	if (!tid) {
		if (catches_up(control, here, now))
			here->done = control->hold;
		return;
	}
	if (!is_observed(task->tgid))
		return;
	struct thread *thread = map_lookup(&threads, &tid);
	if (!thread)
		return;
	thread->on_ns = now;
	if (catches_up(control, here, now))
		thread->held = 1;
}

SEC("tp_btf/sched_switch")
int switched(u64 *ctx)
{
	u64 now = now_ns();

	leaves((void *)ctx[1], ctx[0], now);
	comes((void *)ctx[2], now);
	return 0;
}

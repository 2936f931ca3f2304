/*
 * Turns and episodes of the observed threads, summed up in the kernel.
 *
 * A turn is a return of a call that waits for events. An episode is what a thread does from a wake
 * to its next sleep: a switch to another thread ends it, unless the thread was preempted or yielded.
 * The CPU time is the scheduler's own (sum_exec_runtime), which is exact at each switch.
 *
 * Sums are per CPU and never reset; user space takes differences. It also attaches and detaches the
 * programs, because the tracepoint makes every system call of the machine slower.
 */
#include "common.h"

/* The class of episodes with at least as many events. As in trial::episodes. */
#define CLASS_MAX 63

/* CPU time is squared in units of 64 ns, so that sums of squares do not overflow. */
#define SQUARE_SHIFT 6

#define TASK_RUNNING 0
#define TASK_DEAD 128

#define IORING_ENTER_GETEVENTS 1

/* Kinds of the map `unseen`. */
#define NO_ROOM_THREADS 0

struct sched_entity {
	u64 sum_exec_runtime;
} KERNEL_STRUCT;

/* More fields of the struct that common.h declares. */
struct task_struct___scheduled {
	u32 __state;
	struct sched_entity se;
} KERNEL_STRUCT;

/* CPU time is that of the thread since it began. */
struct thread {
	u64 episode_cpu_ns;
	u64 counted_cpu_ns;
	u64 turns;
	u64 events;
	/* Whether the episode was seen from its beginning. */
	u64 whole;
};

struct class {
	u64 episodes;
	u64 turns;
	u64 events;
	u64 cpu_ns;
	u64 turns_turns;
	u64 turns_events;
	u64 events_events;
	u64 turns_cpu;
	u64 events_cpu;
	u64 cpu_cpu;
};

struct sums {
	u64 turns;
	u64 events;
	u64 cpu_ns;
	struct class classes[CLASS_MAX + 1];
};

MAP(threads, MAP_HASH, 16384, u32, struct thread);

MAP(sums, MAP_PERCPU_ARRAY, 1, u32, struct sums);

ALWAYS_INLINE struct sums *own_sums(void)
{
	u32 only = 0;

	return map_lookup(&sums, &only);
}

ALWAYS_INLINE u64 cpu_time(struct task_struct *task)
{
	return ((struct task_struct___scheduled *)task)->se.sum_exec_runtime;
}

ALWAYS_INLINE struct thread *thread_of(u32 tid, u64 cpu_ns)
{
	struct thread *thread = map_lookup(&threads, &tid);

	if (!thread) {
		struct thread first = {
			.episode_cpu_ns = cpu_ns,
			.counted_cpu_ns = cpu_ns,
		};
		if (map_update(&threads, &tid, &first, NOEXIST))
			count_unseen(NO_ROOM_THREADS);
		thread = map_lookup(&threads, &tid);
	}
	return thread;
}

ALWAYS_INLINE void count_cpu(struct sums *sums, struct thread *thread, u64 cpu_ns)
{
	sums->cpu_ns += cpu_ns - thread->counted_cpu_ns;
	thread->counted_cpu_ns = cpu_ns;
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
	case 426: /* io_uring_enter; its result is the number of submissions, in the long run as many */
		return regs->r10 & IORING_ENTER_GETEVENTS;
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int turned(u64 *ctx)
{
	long result = ctx[1];

	if (!waits((void *)ctx[0]))
		return 0;
	u64 both = current_pid_tgid();
	if (!is_observed(both >> 32))
		return 0;
	u64 cpu_ns = cpu_time(current_task());
	u64 events = result > 0 ? result : 0;
	struct sums *sums = own_sums();
	if (!sums)
		return 0;
	sums->turns++;
	sums->events += events;
	struct thread *thread = thread_of(both, cpu_ns);
	if (!thread)
		return 0;
	count_cpu(sums, thread, cpu_ns);
	thread->turns++;
	thread->events += events;
	return 0;
}

ALWAYS_INLINE void add_episode(struct sums *sums, struct thread *thread, u64 cpu_ns)
{
	u64 turns = thread->turns, events = thread->events;
	u64 cpu = cpu_ns - thread->episode_cpu_ns, coarse = cpu >> SQUARE_SHIFT;
	u64 at = events < CLASS_MAX ? events : CLASS_MAX;
	struct class *class = &sums->classes[at & CLASS_MAX];

	class->episodes++;
	class->turns += turns;
	class->events += events;
	class->cpu_ns += cpu;
	class->turns_turns += turns * turns;
	class->turns_events += turns * events;
	class->events_events += events * events;
	class->turns_cpu += turns * cpu;
	class->events_cpu += events * cpu;
	class->cpu_cpu += coarse * coarse;
}

SEC("tp_btf/sched_switch")
int switched(u64 *ctx)
{
	int preempted = ctx[0];
	struct task_struct *task = (void *)ctx[1];
	u32 tid = task->pid;

	if (!tid || !is_observed(task->tgid))
		return 0;
	u32 state = ((struct task_struct___scheduled *)task)->__state;
	u64 cpu_ns = cpu_time(task);
	struct sums *sums = own_sums();
	struct thread *thread = thread_of(tid, cpu_ns);
	if (!sums || !thread)
		return 0;
	count_cpu(sums, thread, cpu_ns);
	if (!preempted && state != TASK_RUNNING) {
		if (thread->whole)
			add_episode(sums, thread, cpu_ns);
		thread->whole = 1;
		thread->turns = 0;
		thread->events = 0;
		thread->episode_cpu_ns = cpu_ns;
	}
	if (state & TASK_DEAD)
		map_delete(&threads, &tid);
	return 0;
}

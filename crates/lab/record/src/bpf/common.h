/*
 * Shared by the programs: types, maps, helpers by number, and the few fields of kernel structures
 * that are read. When a program is loaded, the fields' offsets are taken from the running kernel's
 * BTF (preserve_access_index), so no kernel headers are needed to build.
 *
 * x86-64 only: system call numbers and argument registers are those of that machine.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned int u32;
typedef long long s64;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define KERNEL_STRUCT __attribute__((preserve_access_index))

/* A map's definition, as libbpf reads it from BTF. */
#define MAP(name, kind, entries, key_type, value_type) \
	struct { \
		int (*type)[kind]; \
		int (*max_entries)[entries]; \
		typeof(key_type) *key; \
		typeof(value_type) *value; \
	} name SEC(".maps")
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6

#define MSG_PEEK 2
#define MSG_TRUNC 32

#define ANY 0
#define NOEXIST 1
#define USER_STACK (1 << 8)

/* Helpers of bpf(2), by their numbers, which never change. */
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) =
    (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const now_ns)(void) = (void *)5;
static u32 (*const current_cpu)(void) = (void *)8;
static u64 (*const current_pid_tgid)(void) = (void *)14;
static long (*const get_stack)(void *ctx, void *to, u32 bytes, u64 flags) = (void *)67;
static long (*const read_user)(void *to, u32 bytes, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static void *(*const current_task)(void) = (void *)158;

/* Field by field, through pointers that the verifier cannot check. */
#define READ(to, from) read_kernel(&(to), sizeof(to), __builtin_preserve_access_index(&(from)))

struct pt_regs {
	unsigned long di, si, dx, cx, r10, r8, r9, ax, orig_ax, ip;
} KERNEL_STRUCT;

struct files_struct;
struct task_struct {
	s32 pid, tgid;
	struct files_struct *files;
} KERNEL_STRUCT;

#define SERVER 1
#define RECORDER 2

/* Observed processes: user space adds the server's, forks are added here; and the recorder. */
MAP(observed, MAP_HASH, 4096, u32, u8);

/* Events that were not seen, by kind. Cumulative: user space takes differences. */
MAP(unseen, MAP_ARRAY, 16, u32, u64);

ALWAYS_INLINE void count_unseen(u32 kind)
{
	u64 *count = map_lookup(&unseen, &kind);
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* 0 for a process that is not observed. */
ALWAYS_INLINE u32 owner_of(u32 tgid)
{
	u8 *owner = map_lookup(&observed, &tgid);

	return owner ? *owner : 0;
}

ALWAYS_INLINE int is_observed(u32 tgid)
{
	return owner_of(tgid) == SERVER;
}

/* If the map is full, the child is not followed: user space finds it at the next interval. */
SEC("tp_btf/sched_process_fork")
int follow_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	u32 tgid = child->tgid;
	u8 server = SERVER;

	if (tgid != (u32)parent->tgid && is_observed(parent->tgid))
		map_update(&observed, &tgid, &server, ANY);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";

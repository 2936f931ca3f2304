/*
 * The life of a regular file from its open to its close: how long each call took, by the size of
 * the file, and the reads that only detected its end.
 *
 * A descriptor is followed if its open was seen. At its close, its numbers are added to the sums
 * of its direction and size. User space reads the sums every interval and never resets them. The
 * kernel's own table, at that moment, says whether a descriptor is a regular file.
 *
 * Other paths of data (mappings, rings, splices, descriptors that were open before) are counted by
 * kind, not followed.
 */
#include "common.h"

/* Sizes: 1 KiB a bin below 16 KiB, 2 KiB up to 128 KiB, then doublings. Must match files.rs. */
#define BINS 88
#define FINE_BINS 16
#define FINE_END (16 << 10)
#define MIDDLE_BINS 56
#define MIDDLE_END (128 << 10)

/* Delays: eight buckets per octave, from 64 ns. Must match files.rs. */
#define BUCKETS 256
#define OCTAVE_FIRST 6

/* Kinds of the map `unseen`. */
#define NO_ROOM_CALLS 0
#define NO_ROOM_FILES 1
#define OPEN_BEFORE 2
#define MAPPED 3
#define RINGS 4
#define SPLICED 5
#define CLOSED_UNSEEN 6
#define UNTOUCHED 7
#define READ_AND_WRITTEN 8

struct super_block {
	unsigned long s_magic;
} KERNEL_STRUCT;

struct inode {
	u16 i_mode;
	s64 i_size;
	struct super_block *i_sb;
} KERNEL_STRUCT;

/* linux/magic.h: file systems whose files are generated when they are read. */
#define MAGIC_PROC 0x9fa0
#define MAGIC_SYSFS 0x62656572
#define MAGIC_CGROUP2 0x63677270

struct file {
	struct inode *f_inode;
} KERNEL_STRUCT;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} KERNEL_STRUCT;

struct files_struct {
	struct fdtable *fdt;
} KERNEL_STRUCT;

struct iovec {
	u64 base;
	u64 bytes;
};

struct descriptor {
	u32 tgid;
	u32 fd;
};

#define NOTHING_YET 0
#define READING 1
#define WRITING 2

struct opened {
	u64 since_ns;
	u64 last_ns;
	u64 open_ns;
	u64 first_ns;
	u64 rest_ns;
	u64 needless_ns;
	u64 bytes;
	u32 calls;
	u32 needless;
	u32 after_short;
	u8 direction;
	u8 both;
	u8 was_short;
	u8 mapped;
};

#define OPENS 1
#define READS 2
#define WRITES 3
#define CLOSES 4

/* A call in flight. */
struct call {
	u64 since_ns;
	u64 wanted;
	u64 size;
	u32 fd;
	u32 kind;
	/* For a close: the closed file. It leaves the table before its number is free again. */
	struct opened closing;
};

struct bin {
	u64 objects;
	u64 calls;
	u64 bytes;
	u64 open_ns;
	u64 first_ns;
	u64 rest_ns;
	u64 close_ns;
	u64 elapsed_ns;
	u64 needless;
	u64 after_short;
	u64 needless_objects;
	u64 needless_ns;
	u32 first[BUCKETS];
	u32 total[BUCKETS];
};

MAP(calls, MAP_HASH, 4096, u32, struct call);

MAP(files, MAP_HASH, 16384, struct descriptor, struct opened);

/* Bins of files that are read, then bins of files that are written. */
MAP(bins, MAP_ARRAY, 2 * BINS, u32, struct bin);

ALWAYS_INLINE int is_made_up(struct inode *inode)
{
	struct super_block *system = 0;
	unsigned long magic = 0;

	if (READ(system, inode->i_sb) || READ(magic, system->s_magic))
		return 1;
	return magic == MAGIC_PROC || magic == MAGIC_SYSFS || magic == MAGIC_CGROUP2;
}

/* The size of a descriptor's regular file; -1 if it is something else. */
ALWAYS_INLINE s64 regular_size(u32 fd)
{
	struct task_struct *task = current_task();
	struct files_struct *table = task->files;
	struct file **list, *file = 0;
	struct inode *inode = 0;
	u16 mode = 0;
	s64 size = -1;

	if (!table)
		return -1;
	struct fdtable *fdt = table->fdt;
	if (!fdt || fd >= fdt->max_fds)
		return -1;
	list = fdt->fd;
	read_kernel(&file, sizeof(file), list + fd);
	if (!file || READ(inode, file->f_inode) || READ(mode, inode->i_mode))
		return -1;
	if ((mode & 0170000) != 0100000 || is_made_up(inode) || READ(size, inode->i_size))
		return -1;
	return size;
}

/* The bytes of an iovec array; 0, which never counts as short, if it has too many entries. */
ALWAYS_INLINE u64 vector_bytes(u64 from, u64 count)
{
	struct iovec parts[8] = {};
	u64 bytes = 0;

	if (count > 8 || read_user(parts, (count & 15) * sizeof(parts[0]), (void *)from))
		return 0;
#pragma unroll
	for (int at = 0; at < 8; at++)
		bytes += parts[at].bytes;
	return bytes;
}

ALWAYS_INLINE u32 log2_of(u64 value)
{
	u32 log = 0;

	if (value >> 32) { value >>= 32; log += 32; }
	if (value >> 16) { value >>= 16; log += 16; }
	if (value >> 8) { value >>= 8; log += 8; }
	if (value >> 4) { value >>= 4; log += 4; }
	if (value >> 2) { value >>= 2; log += 2; }
	return log + (value >> 1);
}

ALWAYS_INLINE u32 bucket_of(u64 ns)
{
	u32 octave = log2_of(ns | 1);

	if (octave < OCTAVE_FIRST)
		return 0;
	u32 bucket = (octave - OCTAVE_FIRST) * 8 + ((ns >> (octave - 3)) & 7);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

ALWAYS_INLINE u32 bin_of(u64 size)
{
	if (size < FINE_END)
		return size >> 10;
	if (size < MIDDLE_END)
		return FINE_BINS + ((size - FINE_END) >> 11);
	u32 bin = FINE_BINS + MIDDLE_BINS + log2_of(size) - log2_of(MIDDLE_END);
	return bin < BINS ? bin : BINS - 1;
}

ALWAYS_INLINE void add(u64 *to, u64 value)
{
	__sync_fetch_and_add(to, value);
}

ALWAYS_INLINE void settle(struct opened *was, u64 size, u64 close_ns)
{
	if (was->direction == NOTHING_YET) {
		if (!was->mapped)
			count_unseen(UNTOUCHED);
		return;
	}
	if (was->both)
		count_unseen(READ_AND_WRITTEN);
	u32 at = bin_of(size) + (was->direction == WRITING ? BINS : 0);
	struct bin *bin = map_lookup(&bins, &at);
	if (!bin)
		return;
	u64 first = was->open_ns + was->first_ns;
	u32 of_first = bucket_of(first) & (BUCKETS - 1);
	u32 of_total = bucket_of(first + was->rest_ns + close_ns) & (BUCKETS - 1);

	add(&bin->objects, 1);
	add(&bin->calls, was->calls);
	add(&bin->bytes, was->bytes);
	add(&bin->open_ns, was->open_ns);
	add(&bin->first_ns, was->first_ns);
	add(&bin->rest_ns, was->rest_ns);
	add(&bin->close_ns, close_ns);
	add(&bin->elapsed_ns, was->last_ns - was->since_ns);
	if (was->needless) {
		add(&bin->needless, was->needless);
		add(&bin->after_short, was->after_short);
		add(&bin->needless_objects, 1);
		add(&bin->needless_ns, was->needless_ns);
	}
	__sync_fetch_and_add(&bin->first[of_first], 1);
	__sync_fetch_and_add(&bin->total[of_total], 1);
}

/* The parsed arguments of a call; kind is 0 for calls that are not followed. */
struct request {
	u32 kind;
	u32 fd;
	u64 wanted;
};

#define NOWAIT 8 /* RWF_NOWAIT: a short read means a page cache miss, not the end of the file */

ALWAYS_INLINE struct request parse_call(long nr, struct pt_regs *regs)
{
	struct request request = { .fd = regs->di };

	switch (nr) {
	case 2: /* open */
	case 85: /* creat */
	case 257: /* openat */
	case 437: /* openat2 */
		request.kind = OPENS;
		break;
	case 0: /* read */
	case 17: /* pread64 */
		request.kind = READS;
		request.wanted = regs->dx;
		break;
	case 19: /* readv */
	case 295: /* preadv */
		request.kind = READS;
		request.wanted = vector_bytes(regs->si, regs->dx);
		break;
	case 327: /* preadv2 */
		request.kind = READS;
		request.wanted = regs->r9 & NOWAIT ? 0 : vector_bytes(regs->si, regs->dx);
		break;
	case 40: /* sendfile: short if the socket is full */
		request.kind = READS;
		request.fd = regs->si;
		break;
	case 1: /* write */
	case 18: /* pwrite64 */
	case 20: /* writev */
	case 296: /* pwritev */
	case 328: /* pwritev2 */
		request.kind = WRITES;
		break;
	case 3: /* close */
		request.kind = CLOSES;
		break;
	}
	return request;
}

/* Calls that move data without a read or a write, and descriptors that end without a close. */
ALWAYS_INLINE void other_paths(long nr, struct pt_regs *regs, u32 tgid)
{
	struct descriptor descriptor = { .tgid = tgid };

	switch (nr) {
	case 9: /* mmap; mappings of code are ignored */
		descriptor.fd = regs->r8;
		if ((s32)descriptor.fd < 0 || regs->dx & 4 || regular_size(descriptor.fd) < 0)
			return;
		count_unseen(MAPPED);
		struct opened *opened = map_lookup(&files, &descriptor);
		if (opened)
			opened->mapped = 1;
		return;
	case 209: /* io_submit */
	case 426: /* io_uring_enter */
		count_unseen(RINGS);
		return;
	case 275: /* splice */
	case 326: /* copy_file_range */
		if (regular_size(regs->di) >= 0 || regular_size(regs->dx) >= 0)
			count_unseen(SPLICED);
		return;
	case 33: /* dup2 */
	case 292: /* dup3 */
		descriptor.fd = regs->si;
		if (descriptor.fd != (u32)regs->di && !map_delete(&files, &descriptor))
			count_unseen(CLOSED_UNSEEN);
		return;
	}
}

SEC("tp_btf/sys_enter")
int file_enter(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	long nr = ctx[1];
	u64 both = current_pid_tgid();
	u32 tid = both, tgid = both >> 32;

	if (!is_observed(tgid))
		return 0;
	struct request request = parse_call(nr, regs);
	if (!request.kind) {
		other_paths(nr, regs, tgid);
		return 0;
	}
	struct call call = { .wanted = request.wanted, .fd = request.fd, .kind = request.kind };
	if (request.kind != OPENS) {
		struct descriptor descriptor = { .tgid = tgid, .fd = request.fd };
		struct opened *opened = map_lookup(&files, &descriptor);
		if (!opened) {
			if (request.kind != CLOSES && regular_size(request.fd) >= 0)
				count_unseen(OPEN_BEFORE);
			return 0;
		}
		if (request.kind == CLOSES) {
			s64 size = regular_size(request.fd);
			call.size = size < 0 ? 0 : size;
			call.closing = *opened;
			map_delete(&files, &descriptor);
		}
	}
	call.since_ns = now_ns();
	if (map_update(&calls, &tid, &call, ANY))
		count_unseen(NO_ROOM_CALLS);
	return 0;
}

ALWAYS_INLINE void count_transfer(struct opened *opened, struct call *call, long bytes, u64 now)
{
	u64 took = now - call->since_ns;
	u8 direction = call->kind == WRITES ? WRITING : READING;

	if (bytes < 0) {
		add(&opened->rest_ns, took);
		return;
	}
	if (opened->direction == NOTHING_YET) {
		opened->direction = direction;
		opened->first_ns = took;
	} else {
		add(&opened->rest_ns, took);
		if (opened->direction != direction)
			opened->both = 1;
	}
	opened->last_ns = now;
	/* An empty read after others that returned data only detected the end of the file. */
	if (direction == READING && !bytes && opened->bytes) {
		opened->needless++;
		opened->after_short += opened->was_short;
		opened->needless_ns += took;
	}
	opened->was_short = direction == READING && bytes && (u64)bytes < call->wanted;
	opened->calls++;
	add(&opened->bytes, bytes);
}

SEC("tp_btf/sys_exit")
int file_exit(u64 *ctx)
{
	long result = ctx[1];
	u64 both = current_pid_tgid();
	u32 tid = both, tgid = both >> 32;
	struct call *call = map_lookup(&calls, &tid);

	if (!call)
		return 0;
	u64 now = now_ns();
	struct descriptor descriptor = { .tgid = tgid, .fd = call->fd };
	if (call->kind == OPENS) {
		descriptor.fd = result;
		if (result >= 0 && regular_size(descriptor.fd) >= 0) {
			struct opened opened = {
				.since_ns = call->since_ns,
				.open_ns = now - call->since_ns,
			};
			if (!map_delete(&files, &descriptor))
				count_unseen(CLOSED_UNSEEN);
			if (map_update(&files, &descriptor, &opened, ANY))
				count_unseen(NO_ROOM_FILES);
		}
	} else if (call->kind == CLOSES) {
		settle(&call->closing, call->size, now - call->since_ns);
	} else {
		struct opened *opened = map_lookup(&files, &descriptor);
		if (opened)
			count_transfer(opened, call, result, now);
	}
	map_delete(&calls, &tid);
	return 0;
}

/* A thread that is killed inside a call does not return from it. */
SEC("tp_btf/sched_process_exit")
int forget_thread(void)
{
	u32 tid = current_pid_tgid();

	map_delete(&calls, &tid);
	return 0;
}

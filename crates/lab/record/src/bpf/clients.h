/*
 * Which sockets are those of clients: the ones at a port on which the server listens.
 */
#define AF_INET 2
#define AF_INET6 10

struct in6_addr {
	u64 unused;
} KERNEL_STRUCT;

struct sock_common {
	u16 skc_num;
	u16 skc_family;
	u16 skc_dport;
	u32 skc_daddr;
	struct in6_addr skc_v6_daddr;
} KERNEL_STRUCT;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
} KERNEL_STRUCT;

/* The ports on which the server listens, a bit for each. User space sets them. */
MAP(ports, MAP_ARRAY, 1024, u32, u64);

ALWAYS_INLINE int is_client(struct sock *sock)
{
	u32 port = sock->__sk_common.skc_num, family = sock->__sk_common.skc_family, word = port >> 6;

	if (family != AF_INET && family != AF_INET6)
		return 0;
	u64 *bits = map_lookup(&ports, &word);
	return bits && *bits >> (port & 63) & 1;
}

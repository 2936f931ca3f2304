//! The server: listeners, connections, upstreams, rules, admin.

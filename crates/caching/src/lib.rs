//! RFC 9111 and its kin as functions: may I store, may I reuse, what must I ask.

//! The samplers: modes of the CPU, threads of a server, access logs.

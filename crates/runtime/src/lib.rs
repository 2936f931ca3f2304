//! One core: executor, timers, sockets, files; and its simulated twin.

//! The workload: schedules, populations, connections, latencies.

//! Stored responses: index, memory, eviction.

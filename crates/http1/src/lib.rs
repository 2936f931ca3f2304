//! HTTP/1 messages: bytes to messages and back, strict, without I/O and without a clock.

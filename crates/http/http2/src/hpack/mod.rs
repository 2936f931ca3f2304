//! HPACK (RFC 7541): field blocks to fields and back.
//!
//! | file | subject |
//! | --- | --- |
//! | `static_table.rs` | the 61 fields that both sides know |
//! | `table.rs` | the dynamic table, within a bound in bytes |
//! | `integer.rs` | integers with a prefix |
//! | `huffman.rs` | the code for strings |
//! | `decoder.rs` | a block into a [`Scratch`](crate::Scratch) |
//! | `encoder.rs` | fields into a block |
//!
//! The code for strings and integers is public for QPACK, which has the same.
//!
//! What never happens: an allocation above the table's bound, a copy of a field into its own
//! `String`, a block that is decoded in part.

mod decoder;
mod encoder;
pub mod huffman;
pub mod integer;
mod static_table;
mod table;

pub use decoder::Decoder;
pub use encoder::{Encoder, encode_without_table};
pub(crate) use static_table::{id, name_index};

#[cfg(test)]
mod tests;

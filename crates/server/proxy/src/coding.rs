//! What the connections of one core share to read and write fields of HTTP/2 and HTTP/3.
//!
//! Who owns: the thread of the core. Each connection holds a handle.

use std::cell::RefCell;
use std::rc::Rc;

use crate::encoded_heads::EncodedHeads;

/// See the module's text.
pub(crate) struct Coding {
    /// Where fields are decoded.
    pub(crate) scratch: RefCell<http2::Scratch>,
    /// Buffers for the output of HTTP/2 connections, so that an idle connection holds none.
    pub(crate) outputs: RefCell<Vec<Vec<u8>>>,
    /// Heads of stored responses, encoded for HTTP/2.
    pub(crate) http2_heads: RefCell<EncodedHeads>,
    /// The same for HTTP/3.
    #[cfg(feature = "tls")]
    pub(crate) http3_heads: RefCell<EncodedHeads>,
}

impl Coding {
    /// The state of this core.
    pub(crate) fn of_core() -> Rc<Coding> {
        thread_local! {
            static CODING: Rc<Coding> = Rc::new(Coding {
                scratch: RefCell::default(),
                outputs: RefCell::default(),
                http2_heads: EncodedHeads::new(http2::hpack::encode_without_table).into(),
                #[cfg(feature = "tls")]
                http3_heads: EncodedHeads::new(http3::qpack::encode_field).into(),
            });
        }
        CODING.with(Rc::clone)
    }
}

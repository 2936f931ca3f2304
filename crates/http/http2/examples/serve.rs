//! A server of HTTP/2 in the clear with prior knowledge, to try a client or a conformance suite:
//!
//!     cargo run -p http2 --example serve -- 127.0.0.1:8080

#[path = "../tests/peers/server.rs"]
mod server;

use std::net::TcpListener;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(&address)?;
    println!("serving on {}", listener.local_addr()?);
    server::serve(&listener, &http2::Limits::DEFAULT)
}

//! Pingora as a peer of the bench: a reverse proxy without a cache, as its documentation shows it.
//!
//! Its arguments are the configuration file, the listening address, and `http` or `https` with the
//! address of the origin.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::prelude::*;

struct ToOrigin {
    origin: SocketAddr,
    is_tls: bool,
}

#[async_trait]
impl ProxyHttp for ToOrigin {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.origin, self.is_tls, "localhost".to_owned())))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, listen, origin] = arguments.as_slice() else {
        println!("pingora {}", env!("CARGO_PKG_VERSION"));
        return;
    };
    let (scheme, origin) = origin.split_once("://").expect("the origin is a URL");
    let origin = origin.parse().expect("the origin has an IP address");
    let options = Opt { conf: Some(config.clone()), ..Opt::default() };
    let mut server = Server::new(options).expect("the configuration is valid");
    server.bootstrap();
    let proxy = ToOrigin { origin, is_tls: scheme == "https" };
    let mut service = http_proxy_service(&server.configuration, proxy);
    service.add_tcp(listen);
    server.add_service(service);
    server.run_forever();
}

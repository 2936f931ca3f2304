//! The admin address: `/metrics` (OpenMetrics) and `/healthz`, on a connection a request.

use std::rc::Rc;
use std::sync::Arc;

use http1::{Method, write};
use runtime::net::TcpListener;
use runtime::time;

use crate::client::{Client, append_error};
use crate::metrics::{AllCores, Counters};
use crate::shared::Shared;
use crate::stored::Connection;
use crate::transport::Transport;
use crate::worker::Worker;

/// Serves the admin address on one core.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    listener: TcpListener,
    cores: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
) {
    let admin = Rc::new(Admin { worker, cores, shared });
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let stream = Transport::Plain(stream);
                runtime::spawn(Rc::clone(&admin).answer(stream)).detach();
            }
            Err(error) => {
                tracing::warn!(%error, "no admin connection accepted");
                time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

struct Admin {
    worker: Rc<Worker>,
    cores: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
}

impl Admin {
    async fn answer(self: Rc<Self>, stream: Transport) {
        let limit = self.worker.limits().head_timeout;
        let Ok(Some(bytes)) = time::timeout(limit, self.request(&stream)).await else { return };
        let mut client = Client::new(&self.worker, &stream);
        // Whoever asked has gone, then: there is nobody to tell.
        let _ = client.send(&bytes).await;
    }

    /// Reads a request and makes its answer; `None` when the connection closed before.
    async fn request(&self, stream: &Transport) -> Option<Vec<u8>> {
        let mut got = Vec::new();
        loop {
            stream.readable().await.ok()?;
            let read = self.worker.with_input(|input| match stream.try_read(input) {
                Ok(0) => None,
                Ok(n) => {
                    got.extend_from_slice(&input[..n]);
                    Some(())
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Some(()),
                Err(_) => None,
            });
            read?;
            let answer = self.worker.with_scratch(|scratch| {
                match http1::parse_request(&got, scratch, &self.worker.http()) {
                    Ok(None) => None,
                    Ok(Some(head)) => Some(Ok((head.method, head.target_bytes.to_vec()))),
                    Err(reject) => Some(Err(reject)),
                }
            });
            match answer {
                None => {}
                Some(Ok((method, target))) => return Some(self.respond(method, &target)),
                Some(Err(reject)) => {
                    let mut out = Vec::new();
                    let text = reject.reason.text();
                    append_error(&mut out, reject.status, text, Connection::Close, true);
                    return Some(out);
                }
            }
        }
    }

    fn respond(&self, method: Method, target: &[u8]) -> Vec<u8> {
        let with_body = method == Method::Get;
        let mut out = Vec::new();
        if !matches!(method, Method::Get | Method::Head) {
            append_error(&mut out, 501, "GET and HEAD are all there is", Connection::Close, true);
            return out;
        }
        let (kind, text) = match target {
            b"/metrics" => (METRICS_TYPE, self.metrics()),
            b"/healthz" => ("text/plain", health(&self.worker)),
            _ => {
                let text = "there are /metrics and /healthz";
                append_error(&mut out, 404, text, Connection::Close, with_body);
                return out;
            }
        };
        write::status_line(&mut out, 200);
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\r\n");
        write::content_length(&mut out, text.len() as u64);
        Connection::Close.append(&mut out);
        write::end(&mut out);
        if with_body {
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    fn metrics(&self) -> String {
        let shared = Arc::clone(&self.shared);
        AllCores::new(self.cores.clone(), shared).text()
    }
}

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn health(worker: &Worker) -> String {
    let state = if worker.is_draining() { "draining\n" } else { "ok\n" };
    state.to_owned()
}

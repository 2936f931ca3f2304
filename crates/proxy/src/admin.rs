//! The admin address: `/metrics` (OpenMetrics) and `/healthz`, `POST /reload` and `POST /restart`,
//! on a connection a request.

use std::rc::Rc;
use std::sync::Arc;

use http1::{Method, write};
use runtime::net::TcpListener;
use runtime::time;

use crate::client::{Client, append_error};
use crate::control::{Answer, Order};
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
        let Ok(Some(reply)) = time::timeout(limit, self.request(&stream)).await else { return };
        let _under_way = UnderWay::new(&self.worker);
        let bytes = match reply {
            Reply::Now(bytes) => bytes,
            Reply::After(order) => self.obeyed(order).await,
        };
        let mut client = Client::new(&self.worker, &stream);
        // Whoever asked has gone, then: there is nobody to tell.
        let _ = client.send(&bytes).await;
    }

    /// Reads a request and makes its answer; `None` when the connection closed before.
    async fn request(&self, stream: &Transport) -> Option<Reply> {
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
                Some(Ok((method, target))) => {
                    return Some(match order(method, &target) {
                        Some(order) => Reply::After(order),
                        None => Reply::Now(self.respond(method, &target)),
                    });
                }
                Some(Err(reject)) => {
                    let mut out = Vec::new();
                    let text = reject.reason.text();
                    append_error(&mut out, reject.status, text, Connection::Close, true);
                    return Some(Reply::Now(out));
                }
            }
        }
    }

    fn respond(&self, method: Method, target: &[u8]) -> Vec<u8> {
        let with_body = method == Method::Get;
        let mut out = Vec::new();
        if !matches!(method, Method::Get | Method::Head) {
            let text = "there are GET, HEAD, POST /reload and POST /restart";
            append_error(&mut out, 501, text, Connection::Close, true);
            return out;
        }
        let (kind, text) = match target {
            b"/metrics" => (METRICS_TYPE, self.metrics()),
            b"/healthz" => ("text/plain", health(&self.worker)),
            _ => {
                let text = "there are /metrics, /healthz, and POST to /reload and /restart";
                append_error(&mut out, 404, text, Connection::Close, with_body);
                return out;
            }
        };
        append_text(&mut out, 200, kind, &text, with_body);
        out
    }

    /// Has the server's thread carry out an order, and says what became of it.
    async fn obeyed(&self, order: Order) -> Vec<u8> {
        let answer = match self.shared.control.orders() {
            Some(orders) => orders.ask(order).recv().await,
            None => None,
        };
        let answer = answer.unwrap_or_else(|| Answer::refused("the server is about to end"));
        let mut out = Vec::new();
        let status = if answer.done { 200 } else { 409 };
        append_text(&mut out, status, "text/plain", &(answer.text + "\n"), true);
        out
    }

    fn metrics(&self) -> String {
        let shared = Arc::clone(&self.shared);
        AllCores::new(self.cores.clone(), shared).text()
    }
}

/// What becomes of a request.
enum Reply {
    Now(Vec<u8>),
    /// An answer when this has been done.
    After(Order),
}

/// The orders that can be given by a request.
fn order(method: Method, target: &[u8]) -> Option<Order> {
    match (method, target) {
        (Method::Post, b"/reload") => Some(Order::Reload),
        (Method::Post, b"/restart") => Some(Order::Restart),
        _ => None,
    }
}

/// As long as it lives, its core does not end: whoever asked for a restart gets the answer.
struct UnderWay<'w>(&'w Worker);

impl<'w> UnderWay<'w> {
    fn new(worker: &'w Worker) -> UnderWay<'w> {
        worker.admin_answers.set(worker.admin_answers.get() + 1);
        UnderWay(worker)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.admin_answers.set(self.0.admin_answers.get() - 1);
    }
}

fn append_text(out: &mut Vec<u8>, status: u16, kind: &str, text: &str, with_body: bool) {
    write::status_line(out, status);
    out.extend_from_slice(b"Content-Type: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\r\n");
    write::content_length(out, text.len() as u64);
    Connection::Close.append(out);
    write::end(out);
    if with_body {
        out.extend_from_slice(text.as_bytes());
    }
}

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn health(worker: &Worker) -> String {
    let state = if worker.is_draining() { "draining\n" } else { "ok\n" };
    state.to_owned()
}

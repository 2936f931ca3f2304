//! The admin address: a separate small HTTP server, with one connection for each request.
//!
//! | call | what it does |
//! | --- | --- |
//! | `GET /`, `GET /dashboard` | a page that lives: see [`crate::dashboard`] |
//! | `GET /events` | what feeds that page, as server-sent events |
//! | `GET /metrics` | the counters, as OpenMetrics |
//! | `GET /upstreams` | the state of the upstream servers, as JSON |
//! | `POST /upstreams?server=…` | drains, disables or weights a server: see [`control`] |
//! | `GET /certificates` | for how long certificates are valid, and how obtaining them goes |
//! | `POST /obtain` | has a certificate obtained now |
//! | `GET /quotas` | the quotas, and the clients that exceed them most, as JSON |
//! | `GET /maintenance` | whether maintenance is on |
//! | `POST /maintenance?switch=on` | switches it on, or off (`switch=off`) |
//! | `GET /healthz` | `ok`, or `draining` |
//! | `GET /explain` | why a request would or would not be answered from the store |
//! | `GET /what-if` | the hit ratios that other sizes of the store would give |
//! | `POST /locks` | how the locks that cores share are used: see [`crate::locks`] |
//! | `POST /purge` | purges: see [`crate::purge_api`] |
//! | `POST /reload`, `POST /restart` | orders to the server's thread: see [`crate::control`] |
//!
//! What never happens: a body beyond a bound is read; a silent connection keeps another one
//! waiting; a call that another site's page makes in an operator's browser changes anything (such
//! calls carry `Origin`, and are refused), or reads anything from a loopback address under another
//! name (DNS rebinding).

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::FieldSource;
use http1::{BodyDecoder, BodyKind, Method, RequestHead};
use runtime::net::TcpListener;
use runtime::{Either, time};

use crate::call::{Call, Reply};
use crate::certificates::{self, CertificateFigures};
use crate::control::{Answer, Order};
use crate::core_task::CoreTask;
use crate::dashboard::Dashboard;
use crate::limits::{ADMIN_ANSWERS_MAX, ADMIN_BODY_BYTES_MAX, ADMIN_SILENT_MAX, PAGES_MAX};
use crate::metrics_text::AllCores;
use crate::process::Process;
use crate::{locks, purge_api};
use cache::stored::Wire;
use core_io::CoreIo;
use dashboard::{Access, Asked, Refused};
use exchange::explain;
use metrics::Counters;
use policy::quota::{self, figures::QuotaFigures};
use proxy::h1::{ClientStream, linger};
use transport::Transport;
use transport::shares::Shares;
use upstream::control;
use upstream::figures::{self, UpstreamFigures};

/// Serves the admin address on one core.
pub(crate) async fn serve(
    task: Rc<CoreTask>,
    listener: TcpListener,
    cores: Vec<Arc<Counters>>,
    process: Arc<Process>,
) {
    let dashboard = Dashboard::new(Rc::clone(&task), cores.clone(), Arc::clone(&process));
    runtime::spawn_detached(Rc::clone(&dashboard).run());
    let own_name = std::fs::read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned();
    let silent = Shares::new(ADMIN_SILENT_MAX);
    let admin = Rc::new(Admin { task, cores, process, dashboard, own_name, silent });
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let stream = Transport::Plain(stream);
                runtime::spawn_detached(Rc::clone(&admin).answer(stream, peer.ip()));
            }
            Err(error) => {
                tracing::warn!(%error, "no admin connection accepted");
                time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

struct Admin {
    task: Rc<CoreTask>,
    cores: Vec<Arc<Counters>>,
    process: Arc<Process>,
    dashboard: Rc<Dashboard>,
    /// The name of this machine.
    own_name: String,
    /// Connections without a whole call.
    silent: Rc<Shares>,
}

impl Admin {
    async fn answer(self: Rc<Self>, stream: Transport, peer: IpAddr) {
        let share = self.silent.share(peer);
        share.set(1);
        let limit = self.task.worker.io.limits().limits.head_timeout;
        let reading = time::timeout(limit, self.read(&stream));
        let Either::Left(Ok(Some(call))) = runtime::race(reading, share.evicted()).await else {
            return;
        };
        drop(share);
        if let Ok(call) = &call
            && self.shows(call, &stream).await
        {
            return;
        }
        let _answering = Answering::new(&self.task);
        let are_many = self.task.admin_answers.get() > ADMIN_ANSWERS_MAX;
        let (method, reply, unread) = match call {
            Ok(call) if are_many => (call.method, too_many_calls(), false),
            Ok(call) => (call.method, self.respond(&call).await, false),
            Err(reply) => (Method::Get, reply, true),
        };
        let mut client = ClientStream::new(&self.task.worker.io, &stream);
        let sent = client.send_bytes(&reply.bytes(method)).await;
        if unread && sent.is_ok() {
            linger(&self.task.worker.io, &stream).await;
        }
    }

    /// Sends the page or its events, if the call is for one of them and may have it. No core waits
    /// for their end before it ends itself.
    async fn shows(&self, call: &Call, stream: &Transport) -> bool {
        let mut client = ClientStream::new(&self.task.worker.io, stream);
        match (call.method, call.path.as_str(), call.dashboard) {
            (Method::Get, "/" | "/dashboard", [Ok(()), _]) => {
                // The client may have gone.
                let _ = client.send_bytes(&dashboard::page_response(nonce())).await;
            }
            (Method::Get, "/events", [_, Ok(())]) if self.dashboard.has_room() => {
                self.dashboard.send_events(&mut client).await;
            }
            _ => return false,
        }
        true
    }

    /// Reads a call; `None` if the connection closed first. `Err` answers what is no call.
    async fn read(&self, stream: &Transport) -> Option<Result<Call, Reply>> {
        let local = stream.local_addr().is_ok_and(|address| {
            // An IPv4 client of [::] has an address such as ::ffff:127.0.0.1.
            address.ip().to_canonical().is_loopback()
        });
        let access = match &self.process.dashboard_token {
            Some(token) => Access::Token(token.clone()),
            None if local => Access::Local,
            None => Access::Closed,
        };
        let mut got = Vec::new();
        loop {
            match self.parse(&got, &access, local) {
                Ok(None) => {}
                Ok(Some(call)) => return Some(Ok(call)),
                Err(reply) => return Some(Err(reply)),
            }
            stream.readable().await.ok()?;
            let read = self.task.worker.io.with_input(|input| match stream.try_read(input) {
                Ok(0) => None,
                Ok(n) => {
                    got.extend_from_slice(&input[..n]);
                    Some(())
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Some(()),
                Err(_) => None,
            });
            read?;
        }
    }

    /// A complete call, `None` if more is needed, or the error to answer with.
    fn parse(&self, got: &[u8], access: &Access, local: bool) -> Result<Option<Call>, Reply> {
        self.task.worker.io.with_scratch(|scratch| {
            let http = &self.task.worker.io.limits().http;
            let head = match http1::parse_request(got, scratch, http) {
                Ok(None) => return Ok(None),
                Ok(Some(head)) => head,
                Err(reject) => return Err(Reply::error(reject.status, reject.reason.text())),
            };
            let body = match body(&head, &got[head.head_bytes..], http)? {
                None => return Ok(None),
                Some(body) => body,
            };
            let target = std::str::from_utf8(head.target_bytes).unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let query = query.split('&').filter(|part| !part.is_empty()).map(decoded_pair);
            let query: Option<Vec<_>> = query.collect();
            let query = query.ok_or_else(|| {
                Reply::error(400, "the query is not UTF-8 in percent-encoding; encode it again")
            })?;
            let asked = Asked::of(&head);
            let admitted = match local {
                true => access.admits_to_call(&asked, &self.own_name),
                false => Ok(()),
            };
            Ok(Some(Call {
                method: head.method,
                path: path.to_owned(),
                query,
                body,
                foreign: Wire(head.fields).has("origin"),
                admitted,
                dashboard: [access.admits_to_page(&asked), access.admits_to_events(&asked)],
            }))
        })
    }

    async fn respond(&self, call: &Call) -> Reply {
        let reading = matches!(call.method, Method::Get | Method::Head);
        let takes = match call.path.as_str() {
            "/metrics" | "/quotas" | "/healthz" | "/what-if" | "/explain" | "/certificates" => {
                "GET, HEAD"
            }
            "/" | "/dashboard" | "/events" => "GET",
            "/maintenance" | "/upstreams" => "GET, HEAD, POST",
            "/locks" | "/purge" | "/obtain" | "/reload" | "/restart" => "POST",
            path => {
                let there = "there are /, /metrics, /upstreams, /quotas, /certificates, /healthz, \
                             /explain, /what-if, /maintenance, /locks, /purge, /obtain, /reload \
                             and /restart";
                return Reply::error(404, format_args!("no {path:?} here: {there}"));
            }
        };
        let is_taken = match takes {
            "POST" => call.method == Method::Post,
            "GET" => call.method == Method::Get,
            "GET, HEAD, POST" => reading || call.method == Method::Post,
            _ => reading,
        };
        if !is_taken {
            let text = format!("{} takes {takes}", call.path);
            return Reply { allow: Some(takes), ..Reply::error(405, text) };
        }
        if let (Err(refused), false) = (call.admitted, takes == "GET") {
            return Reply::error(refused.status, refused.text);
        }
        if call.foreign && !reading {
            let text = "calls that a web page makes (they carry Origin) change nothing here";
            return Reply::error(403, text);
        }
        match call.path.as_str() {
            "/" | "/dashboard" => self.not_shown(call.dashboard[0]),
            "/events" => self.not_shown(call.dashboard[1]),
            "/metrics" => Reply::text(METRICS_TYPE, self.metrics()),
            "/upstreams" if call.method == Method::Post => {
                match control::obey(&self.task.worker.snapshot().groups, &call.query) {
                    Ok(server) => Reply::json(200, &server),
                    Err((status, text)) => Reply::error(status, text),
                }
            }
            "/upstreams" => Reply::json(200, &self.upstreams()),
            "/quotas" => {
                let quotas = &self.task.worker.snapshot().quotas;
                Reply::json(200, &quota::figures::json(quotas.as_deref()))
            }
            "/certificates" => Reply::json(200, &self.certificates()),
            "/obtain" => self.obtain(call),
            "/healthz" => Reply::text("text/plain", health(&self.task.worker.io)),
            "/explain" => match explain::explained(&call.query, &self.task.worker).await {
                Ok(explained) => Reply::json(200, &explained),
                Err(text) => Reply::error(400, text),
            },
            "/what-if" => Reply::json(200, &self.process.shared.cache.sizing.forecasts()),
            "/maintenance" => self.maintenance(call),
            "/locks" => locks::answer(call, &self.task.worker.io).await,
            "/reload" => self.carry_out(Order::Reload).await,
            "/restart" => self.carry_out(Order::Restart).await,
            _ => purge_api::answer(call, &self.task.worker).await,
        }
    }

    /// Switches maintenance on or off, and reports its state.
    fn maintenance(&self, call: &Call) -> Reply {
        let snapshot = self.task.worker.snapshot();
        let Some(switch) = snapshot.routes.maintenance() else {
            return Reply::error(409, "the configuration has no [maintenance]");
        };
        if call.method == Method::Post {
            let on = match &call.query[..] {
                [(name, value)] if name == "switch" && value == "on" => true,
                [(name, value)] if name == "switch" && value == "off" => false,
                _ => return Reply::error(400, "write switch=on or switch=off"),
            };
            if switch.set(false, on) {
                tracing::info!("maintenance is {}", switch.text());
            }
        }
        Reply::text("text/plain", format!("{}\n", switch.text()))
    }

    fn upstreams(&self) -> serde_json::Value {
        let snapshot = self.task.worker.snapshot();
        let mut shown = figures::json(&snapshot.groups, &snapshot.asked());
        if let Some(cluster) = &snapshot.cluster {
            shown["cluster"] = cluster.json();
        }
        shown
    }

    fn certificates(&self) -> serde_json::Value {
        let (config, Process { shared, obtaining, .. }) =
            (&self.task.worker.snapshot().config, &*self.process);
        certificates::json(config, &shared.issued, obtaining)
    }

    /// Has certificates obtained now: of the name in the query, or of those that have failed.
    fn obtain(&self, call: &Call) -> Reply {
        let name = match call.query.as_slice() {
            [] => None,
            [(key, name)] if key == "name" => Some(name.clone()),
            _ => return Reply::error(400, "obtain takes name=NAME, or nothing"),
        };
        let config = &self.task.worker.snapshot().config;
        let names = config.acme.as_ref().map_or(&[][..], |acme| &acme.names);
        if let Some(name) = name.as_ref().filter(|name| !names.contains(name)) {
            return Reply::error(404, format_args!("{name:?} is in no tls.acme of a listener"));
        }
        match self.process.obtaining.ask_now(name) {
            true => Reply::text("text/plain", "asked; /certificates shows the result\n".to_owned()),
            false => Reply::error(409, "there is no [acme] in the configuration"),
        }
    }

    /// Why the page, or its events, are not sent.
    fn not_shown(&self, admitted: Result<(), Refused>) -> Reply {
        match admitted {
            Err(Refused { status, text }) => Reply::error(status, text),
            Ok(()) => Reply::error(503, format_args!("{PAGES_MAX} pages are open; close one")),
        }
    }

    /// Has the server's thread carry out an order, and reports the result.
    async fn carry_out(&self, order: Order) -> Reply {
        let answer = match self.process.control.orders() {
            Some(orders) => orders.ask(order).recv().await,
            None => None,
        };
        let answer = answer.unwrap_or_else(|| Answer::refused("the server is about to end"));
        let status = if answer.done { 200 } else { 409 };
        Reply { status, ..Reply::text("text/plain", answer.text + "\n") }
    }

    fn metrics(&self) -> String {
        let shared = Arc::clone(&self.process);
        let snapshot = self.task.worker.snapshot();
        let upstreams = UpstreamFigures(snapshot.all_groups(), snapshot.asked());
        let quotas = QuotaFigures(snapshot.quotas.clone());
        let Process { shared: of_cores, obtaining, .. } = &*self.process;
        let certificates = CertificateFigures::new(&snapshot.config, &of_cores.issued, obtaining);
        AllCores::new(self.cores.clone(), shared).text(upstreams, quotas, certificates)
    }
}

/// While it lives, its core does not end, so that the caller of a restart gets the answer.
struct Answering<'t>(&'t CoreTask);

impl<'t> Answering<'t> {
    fn new(task: &'t CoreTask) -> Answering<'t> {
        task.admin_answers.set(task.admin_answers.get() + 1);
        Answering(task)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.admin_answers.set(self.0.admin_answers.get() - 1);
    }
}

fn too_many_calls() -> Reply {
    let many = "so many calls are being answered";
    Reply::error(503, format_args!("{ADMIN_ANSWERS_MAX} {many}: try again when one has ended"))
}

/// The body of a call, once it is complete.
fn body(
    head: &RequestHead<'_>,
    rest: &[u8],
    limits: &http1::Limits,
) -> Result<Option<Vec<u8>>, Reply> {
    let too_large = || {
        Reply::error(413, format_args!("a call has at most {ADMIN_BODY_BYTES_MAX} bytes of body"))
    };
    if let BodyKind::Length(length) = head.body()
        && length > ADMIN_BODY_BYTES_MAX as u64
    {
        return Err(too_large());
    }
    let mut decoder = BodyDecoder::new(head.body(), limits);
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let step = decoder
            .decode(&rest[at..])
            .map_err(|reject| Reply::error(reject.status, reject.reason.text()))?;
        body.extend_from_slice(&rest[at..][step.data]);
        at += step.consumed;
        if body.len() > ADMIN_BODY_BYTES_MAX || at > 2 * ADMIN_BODY_BYTES_MAX {
            return Err(too_large());
        }
        if step.done {
            return Ok(Some(body));
        }
        if step.consumed == 0 {
            return Ok(None);
        }
    }
}

/// `name=value` of a query, decoded; `None` if it cannot be.
fn decoded_pair(part: &str) -> Option<(String, String)> {
    let (name, value) = part.split_once('=').unwrap_or((part, ""));
    Some((decoded(name)?, decoded(value)?))
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// A number that no one can guess.
fn nonce() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(time::now().as_ns()));
    half() << 64 | half()
}

/// Where the system has the name of this machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn health(io: &CoreIo) -> String {
    let state = if io.is_draining() { "draining\n" } else { "ok\n" };
    state.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_or_refused() {
        assert_eq!(decoded("a%20b+c%C3%A9").as_deref(), Some("a b cé"));
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
        assert_eq!(decoded_pair("soft"), Some(("soft".into(), String::new())));
        assert_eq!(decoded_pair("url=a%3Db=c"), Some(("url".into(), "a=b=c".into())));
    }
}

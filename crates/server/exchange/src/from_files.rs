//! Answering with a file.
//!
//! The route says where files are; [`files`] makes the name of a file from the path, and the answer
//! from the file. The kernel opens the name below the directory ([`runtime::fs::Directory`]), so no
//! name leads out of it, whatever is renamed meanwhile. A path that has several readings was judged
//! by all of them before; the file is that of the most usual one.
//!
//! Long files go from the page cache to the socket through a pipe, without a copy, unless the
//! client uses TLS or a protocol with frames.

use std::io;

use coding::Accept;
use config::Files;
use files::{Found, Opened, Reply};
use http1::{Method, Name, write};
use outcome::{Fault, Outcome, Refusal};
use policy::rewrites::slashes;
use runtime::fs::File;
use runtime::time;

use crate::Exchange;
use crate::client::{Client, Gone, Own, Response};
use crate::limits::{FILE_COPIED_BYTES_MAX, FILE_READ_BYTES};
use crate::own_answers::ruled;
use crate::request::Request;
use crate::step::{Ending, Summary};

fn reply(opened: &Opened, files: &Files, request: &Request) -> Reply {
    let (now_ms, wire) = (time::wall_ms(), request.wire());
    let boundary = || request.worker.cache.boundary(opened.modified_ns, now_ms);
    opened.shown(files).reply(&request.asked(&wire), now_ms, boundary)
}

/// The status of the answer, and what is answered, for an explanation.
pub(crate) fn described(found: &Found, request: &Request) -> (u16, String) {
    match (found, request.files()) {
        (Found::File(opened), Some(files)) => {
            let name = String::from_utf8_lossy(&opened.name);
            let coding = opened.coding.map_or(String::new(), |of| format!(", {}", of.name()));
            let text = format!("{name} in {}{coding}", files.root.display());
            (reply(opened, files, request).status, text)
        }
        _ => (DIRECTORY_STATUS, "a directory: the path gets a slash at its end".to_owned()),
    }
}

/// The status of a redirect to a directory.
const DIRECTORY_STATUS: u16 = 308;

/// Looks for the file that answers a request; `None`: there is none.
///
/// # Errors
/// It may not be read, or cannot be.
pub(crate) async fn find(request: &Request) -> Result<Option<Found>, Refusal> {
    let (Some(files), Some(chosen)) = (request.files(), &request.chosen) else { return Ok(None) };
    let reading = request.uri()?.reading();
    let path = request.snapshot.routes.path_of_file(chosen, reading);
    let Some(name) = path.and_then(|path| files::name_of(&path, files.dot_files)) else {
        return Ok(None);
    };
    let accept = match files.precompressed {
        true => Accept::parse(request.fields().all(Name::AcceptEncoding)),
        false => Accept::IDENTITY,
    };
    let found = files::look(&request.worker.roots, files, name, accept).await;
    found.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::FileDenied,
        _ => {
            tracing::warn!(%error, root = %files.root.display(), "a file cannot be read");
            Refusal::FileFailed
        }
    })
}

/// Answers with a file; `None`: there is none.
///
/// # Errors
/// It may not be read, or cannot be.
pub(crate) async fn answer_with_file<C: Client>(
    exchange: &mut Exchange<'_, C>,
) -> Result<Option<Ending>, Refusal> {
    let (opened, reply) = match (find(&exchange.request).await?, exchange.request.files()) {
        (None, _) | (_, None) => return Ok(None),
        (Some(Found::Directory), _) => return Ok(Some(redirect(exchange).await)),
        (Some(Found::File(opened)), Some(files)) => {
            let reply = reply(&opened, files, &exchange.request);
            (opened, reply)
        }
    };
    let Reply { status, lines, content_length, content } = reply;
    let is_head = exchange.request.method() == Method::Head;
    // What is short is read first, so that it goes with the head; and what is not there any more
    // gets no head.
    let mut first = Vec::new();
    if let ([(before, Some(range))], false) = (&content[..], is_head)
        && range.bytes() <= FILE_COPIED_BYTES_MAX
    {
        debug_assert!(before.is_empty(), "only several parts have heads");
        let bytes = usize::try_from(range.bytes()).map_err(|_| Refusal::FileFailed)?;
        let read = opened.file.append_exact_at(&mut first, bytes, range.first).await;
        read.map_err(|_| Refusal::FileFailed)?;
    }
    let lines = ruled(exchange, status, lines);
    let Request { worker, .. } = &exchange.request;
    let counter = if status == 304 {
        &worker.io.counters.not_modified
    } else {
        &worker.io.counters.from_files
    };
    counter.add(1);
    if exchange.has_body {
        exchange.client.close_after();
    }
    exchange.client.respond(&Response::Own(Own {
        status,
        lines: &lines,
        content_length,
        more_lines: b"",
    }));
    let sent = match (is_head, first.is_empty()) {
        (true, _) => exchange.client.flush().await,
        (false, false) if exchange.is_paced() => exchange.send_held(&[&first]).await,
        (false, false) => exchange.client.send(&[&first], false).await,
        (false, true) => exchange.send_file(&opened.file, &content).await,
    };
    Ok(Some(Ending::of(sent, Summary { outcome: Outcome::Own, status, upstream: None })))
}

/// Redirects to the path with a slash at its end.
async fn redirect<C: Client>(exchange: &mut Exchange<'_, C>) -> Ending {
    let mut location = Vec::new();
    if let Ok(uri) = exchange.request.uri() {
        let end = memchr::memchr(b'?', uri.path).unwrap_or(uri.path.len());
        let (path, query) = uri.path.split_at(end);
        location = [b"/", &path[slashes(path)..], b"/", query].concat();
    }
    let mut lines = Vec::new();
    // A target has no byte that a field may not have.
    let _ = write::field(&mut lines, b"Location", &location);
    let lines = ruled(exchange, DIRECTORY_STATUS, lines);
    let (status, content_length) = (DIRECTORY_STATUS, Some(0));
    let own = Own { status, lines: &lines, content_length, more_lines: b"" };
    exchange.answer(own, "", Outcome::Own).await
}

impl<C: Client> Exchange<'_, C> {
    /// Sends parts of a file, each after some bytes.
    async fn send_file(
        &mut self,
        file: &File,
        content: &[(Vec<u8>, Option<caching::range::ByteRange>)],
    ) -> Result<(), Gone> {
        for (nth, (before, range)) in content.iter().enumerate() {
            let is_last = nth + 1 == content.len();
            if !before.is_empty() {
                match self.is_paced() {
                    true => self.send_held(&[before]).await?,
                    false => self.client.send(&[before], !is_last).await?,
                }
            }
            if let Some(range) = range {
                self.send_range(file, (range.first, range.last + 1), is_last).await?;
            }
        }
        self.client.flush().await
    }

    async fn send_range(
        &mut self,
        file: &File,
        (mut at, end): (u64, u64),
        is_last: bool,
    ) -> Result<(), Gone> {
        let bytes_of = |left: u64| usize::try_from(left).unwrap_or(usize::MAX);
        while at < end {
            let left = end - at;
            if left > FILE_COPIED_BYTES_MAX && self.client.can_send_shared() && !self.is_paced() {
                match file.share(at, bytes_of(left)).await {
                    Ok(Some(pages)) => {
                        at += pages.left() as u64;
                        self.client.send_shared(pages, at < end || !is_last).await?;
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) => return Err(self.file_broke(&error)),
                }
            }
            let mut data = Vec::new();
            let bytes = bytes_of(left.min(FILE_READ_BYTES));
            if let Err(error) = file.append_exact_at(&mut data, bytes, at).await {
                return Err(self.file_broke(&error));
            }
            at += bytes as u64;
            match self.is_paced() {
                true => self.send_held(&[&data]).await?,
                false => self.client.send(&[&data], at < end || !is_last).await?,
            }
        }
        Ok(())
    }

    /// A file that is being sent has become shorter, or its disk fails.
    #[cold]
    fn file_broke(&mut self, error: &io::Error) -> Gone {
        tracing::warn!(%error, "a file broke off");
        self.broke(Fault::Abandoned)
    }
}

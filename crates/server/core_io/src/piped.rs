//! Long bodies that pass from one socket to another without being copied, through a pipe.

use std::io;

use http1::BodyDecoder;
use runtime::fs::SharedPages;
use transport::Transport;

use crate::CoreIo;
use crate::limits::{PIPED_BYTES_MAX, PIPED_BYTES_MIN};

/// Whether a body, of which nothing is buffered, is so long that it is better not copied.
pub fn is_long(body: &BodyDecoder) -> bool {
    body.left_of_length() > PIPED_BYTES_MIN
}

/// Waits for content of a body of known length and takes it; none at all is the end of the
/// connection. `None` if it has to be read.
pub async fn pull(
    io: &CoreIo,
    from: &Transport,
    body: &mut BodyDecoder,
) -> io::Result<Option<SharedPages>> {
    let bytes_max = body.left_of_length().min(PIPED_BYTES_MAX);
    let pages = read(io, from, bytes_max as usize).await?;
    if let Some(pages) = &pages {
        body.skip(pages.left() as u64);
    }
    Ok(pages)
}

/// The same for bytes that are no body.
pub async fn read(
    io: &CoreIo,
    from: &Transport,
    bytes_max: usize,
) -> io::Result<Option<SharedPages>> {
    loop {
        from.readable().await?;
        // Clients that leave too much unread are given small pieces.
        if io.is_pressed() {
            return Ok(None);
        }
        let mut read = from.try_read_shared(bytes_max);
        // A pipe takes nothing at the mark of urgent data, but a read goes on behind it. The bytes
        // that a read would get may also have arrived meanwhile; then the pipe takes them now.
        if is_nothing(&read) && from.try_peek(&mut [0]).is_ok_and(|bytes| bytes > 0) {
            read = from.try_read_shared(bytes_max);
            if is_nothing(&read) {
                return Ok(None);
            }
        }
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(pages)) => {
                io.counters.spliced_bytes.add(pages.left() as u64);
                return Ok(Some(pages));
            }
        }
    }
}

/// The pipe took nothing.
fn is_nothing(read: &io::Result<Option<SharedPages>>) -> bool {
    match read {
        Ok(pages) => pages.as_ref().is_some_and(|pages| pages.left() == 0),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

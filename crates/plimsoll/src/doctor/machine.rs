//! What this machine offers the server: event notification, non-blocking disk reads, descriptors.

use std::path::Path;
use std::time::Instant;

use readiness::{Choice, Kind, Poller};
use runtime::fs::{self, File, OpenOptions, PageBuffer, THREADS_MAX};

use super::Ability;

/// Size of the test file.
const BYTES: usize = 1 << 20;

/// The event notification backends.
pub(super) fn backends() -> Vec<Ability> {
    let ability = |kind: Kind| {
        let opened = Poller::open(Choice::Named(kind));
        let detail = match &opened {
            Ok(_) => "opened, and its self-test passed".to_owned(),
            Err(error) => error.to_string(),
        };
        Ability::new(format!("event notification: {kind}"), opened.is_ok(), detail)
    };
    Kind::ALL_REAL.into_iter().map(ability).collect()
}

/// How a disk cache would read, write and sync in `dir`.
pub(super) fn disk(dir: &Path) -> Vec<Ability> {
    let path = dir.join(format!(".plimsoll-doctor-{}", std::process::id()));
    let tried = try_disk(&path);
    let _ = std::fs::remove_file(&path);
    tried.unwrap_or_else(|error| {
        let detail = format!("{}: {error}; try another directory with --disk", dir.display());
        vec![Ability::new("disk cache", false, detail)]
    })
}

fn try_disk(path: &Path) -> std::io::Result<Vec<Ability>> {
    let mut runtime = runtime::Runtime::new(runtime::Options::default())?;
    runtime.block_on(async {
        let file = File::open_with(path, OpenOptions::CREATE).await?;
        file.allocate(BYTES as u64).await?;
        file.write_all_at(vec![b'd'; BYTES], 0).await.0?;
        let began = Instant::now();
        file.sync_data().await?;
        let synced = began.elapsed();
        let before = runtime::counters();
        file.read_exact_at(&mut vec![0; BYTES], 0).await?;
        let reads = runtime::counters().since(&before);
        let supported = reads.file_reads_direct > 0;
        let detail = if supported {
            format!(
                "cores read cached pages themselves (preadv2 with RWF_NOWAIT); at most \
                 {THREADS_MAX} threads read the rest"
            )
        } else {
            format!(
                "this file system or kernel does not support RWF_NOWAIT: one of at most \
                 {THREADS_MAX} threads makes each read, which costs some microseconds more"
            )
        };
        let direct = OpenOptions { direct: true, ..OpenOptions::WRITE };
        let file = File::open_with(path, direct).await?;
        let mut buffer = PageBuffer::default();
        buffer.begin(0, BYTES).fill(b'd');
        let before = runtime::counters();
        file.write_all_at(buffer, 0).await.0?;
        let uncached = runtime::counters().since(&before).file_writes_uncached > 0;
        let writes = if uncached {
            "long writes bypass the page cache (O_DIRECT)"
        } else {
            "this file system does not support O_DIRECT: all writes go through the page cache, \
             and hits wait longer during them"
        };
        let sync = format!(
            "1 MiB in {:.1} ms: about how long an unsafe method or a purge waits",
            synced.as_secs_f64() * 1e3
        );
        let zero_copy = fs::check_page_sharing(path.parent().unwrap_or(path)).await;
        let zero_copy_detail = match &zero_copy {
            Ok(()) => "long bodies are sent from the page cache",
            Err(why) => why,
        };
        Ok(vec![
            Ability::new("disk reads that do not block", supported, detail),
            Ability::new("disk writes that bypass the page cache", uncached, writes),
            Ability::new("zero-copy sends from the disk", zero_copy.is_ok(), zero_copy_detail),
            Ability::new("disk sync", true, sync),
        ])
    })
}

/// How many descriptors a process can have.
pub(super) fn descriptors() -> Ability {
    let limit = load::sys::raise_descriptor_limit();
    let detail = match &limit {
        Ok(limit) => format!("{limit}, enough for half as many proxied connections (ulimit -Hn)"),
        Err(error) => error.to_string(),
    };
    Ability::new("descriptors per process", limit.is_ok(), detail)
}

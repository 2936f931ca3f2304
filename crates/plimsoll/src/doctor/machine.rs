//! What this machine gives the server: ways to wait, reads that do not block, descriptors.

use std::path::Path;
use std::time::Instant;

use readiness::{Choice, Kind, Poller};
use runtime::fs::{self, File, OpenOptions, PageBuffer, THREADS_MAX};

use super::Ability;

/// Bytes of the file that is written and read.
const BYTES: usize = 1 << 20;

/// The ways to wait for descriptors.
pub(super) fn backends() -> Vec<Ability> {
    let ability = |kind: Kind| {
        let opened = Poller::open(Choice::Named(kind));
        let detail = match &opened {
            Ok(_) => "opened, and its self-test passed".to_owned(),
            Err(error) => error.to_string(),
        };
        Ability { what: format!("waiting by {kind}"), supported: opened.is_ok(), detail }
    };
    Kind::ALL_REAL.into_iter().map(ability).collect()
}

/// How a store on disk would read and sync in `dir`.
pub(super) fn disk(dir: &Path) -> Vec<Ability> {
    let path = dir.join(format!(".plimsoll-doctor-{}", std::process::id()));
    let tried = try_disk(&path);
    let _ = std::fs::remove_file(&path);
    tried.unwrap_or_else(|error| {
        let what = "a store on disk".to_owned();
        let detail = format!("{}: {error}; name another directory by --disk", dir.display());
        vec![Ability { what, supported: false, detail }]
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
                "what the page cache has is read by the core itself (preadv2 with RWF_NOWAIT), the \
                 rest by at most {THREADS_MAX} threads"
            )
        } else {
            format!(
                "this file system or kernel knows no RWF_NOWAIT: every read is made by one of at \
                 most {THREADS_MAX} threads, which costs some microseconds more"
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
            "long ones go around the page cache (O_DIRECT)"
        } else {
            "this file system knows no O_DIRECT: all go through the page cache, and hits wait \
             longer beside them"
        };
        let sync = format!(
            "1 MiB in {:.1} ms: about what an unsafe method or a purge waits for",
            synced.as_secs_f64() * 1e3
        );
        let zero_copy = fs::check_page_sharing(path.parent().unwrap_or(path)).await;
        let zero_copy_detail = match &zero_copy {
            Ok(()) => "long bodies",
            Err(why) => why,
        };
        Ok(vec![
            Ability { what: "disk reads that do not block".to_owned(), supported, detail },
            Ability {
                what: "disk writes past the page cache".to_owned(),
                supported: uncached,
                detail: writes.to_owned(),
            },
            Ability {
                what: "zero-copy sends from the disk".to_owned(),
                supported: zero_copy.is_ok(),
                detail: zero_copy_detail.to_owned(),
            },
            Ability { what: "syncs of the disk".to_owned(), supported: true, detail: sync },
        ])
    })
}

/// How many connections a process may have.
pub(super) fn descriptors() -> Ability {
    let what = "descriptors a process".to_owned();
    match load::sys::raise_descriptor_limit() {
        Ok(limit) => Ability {
            what,
            supported: true,
            detail: format!("{limit}: half as many connections through the proxy (ulimit -Hn)"),
        },
        Err(error) => Ability { what, supported: false, detail: error.to_string() },
    }
}

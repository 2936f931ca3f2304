//! Records of the kernel's ring, bytes to fields. No state, no judgement.
//!
//! The layout is that of perf_event_open(2) for the events that [`super::event`] opens. Samples
//! have IP, TID, TIME, PERIOD, CALLCHAIN and, if stacks are sampled, REGS_USER and STACK_USER.
//! Every other record ends with TID and TIME (`sample_id_all`).

use perf_event_open_sys::bindings as sys;

/// Whether user stacks are copied for our unwinder, which supports only this processor. On others,
/// the kernel follows frame pointers.
pub(crate) const STACKS: bool = cfg!(target_arch = "x86_64");

/// Bytes of a record's header: kind, misc, size.
pub(crate) const HEADER_BYTES: usize = 8;

/// Bytes that `sample_id_all` appends.
const TRAILER_BYTES: usize = 16;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Sample(Sample<'a>),
    /// Code was mapped.
    Map(Map),
    /// A process or a thread got a new name.
    Name {
        pid: u32,
        tid: u32,
        exec: bool,
        name: String,
    },
    /// A process or a thread started.
    Fork {
        pid: u32,
        parent: u32,
    },
    /// A process or a thread ended.
    Exit {
        pid: u32,
        tid: u32,
    },
    /// This many records were dropped.
    Lost(u64),
    /// The kernel throttled the sampling.
    Throttled,
    /// Not used here.
    Other,
}

/// A mapping of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    /// Device and inode; zero if it is not a file.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) path: String,
}

impl Map {
    /// The file's name without its directory.
    pub(crate) fn file_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    /// Whether the CPU was in user mode.
    pub(crate) user_mode: bool,
    pub(crate) ip: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time_ns: u64,
    pub(crate) period: u64,
    /// Instruction pointers and context marks, 8 bytes each.
    chain: &'a [u8],
    pub(crate) user: Option<User<'a>>,
}

/// The user part of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User<'a> {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    /// Whether it runs 64-bit code.
    pub(crate) is_64_bit: bool,
    /// Its stack from `sp` on.
    pub(crate) stack: &'a [u8],
}

/// A record's kind and size; `None` if no record can be here.
pub(crate) fn header(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut fields = Fields(bytes);
    let kind = fields.u32()?;
    let size =
        usize::from(fields.u32()?.to_le_bytes()[2..].try_into().map(u16::from_le_bytes).ok()?);
    (size >= HEADER_BYTES && size.is_multiple_of(8)).then_some((kind, size))
}

/// Whether a record of this kind is a sample.
pub(crate) fn is_sample(kind: u32) -> bool {
    kind == sys::PERF_RECORD_SAMPLE
}

/// The time of a record other than a sample.
pub(crate) fn time_ns(record: &[u8]) -> u64 {
    let at = record.len().saturating_sub(8);
    record.get(at..).and_then(|bytes| Fields(bytes).u64()).unwrap_or(0)
}

/// Parses a record. `None` if it is too short.
pub(crate) fn read(record: &[u8]) -> Option<Record<'_>> {
    let (kind, size) = header(record)?;
    let mut fields = Fields(record.get(..size)?);
    let misc = fields.u64()?.to_le_bytes()[4..6].try_into().map(u16::from_le_bytes).ok()?;
    let misc = u32::from(misc);
    Some(match kind {
        sys::PERF_RECORD_SAMPLE => Record::Sample(sample(fields, misc)?),
        sys::PERF_RECORD_MMAP2 => Record::Map(map(fields)?),
        sys::PERF_RECORD_COMM => Record::Name {
            pid: fields.u32()?,
            tid: fields.u32()?,
            exec: misc & sys::PERF_RECORD_MISC_COMM_EXEC != 0,
            name: fields.text()?,
        },
        sys::PERF_RECORD_FORK => Record::Fork { pid: fields.u32()?, parent: fields.u32()? },
        sys::PERF_RECORD_EXIT => {
            let pid = fields.u32()?;
            fields.u32()?;
            Record::Exit { pid, tid: fields.u32()? }
        }
        sys::PERF_RECORD_LOST => {
            fields.u64()?;
            Record::Lost(fields.u64()?)
        }
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost(fields.u64()?),
        sys::PERF_RECORD_THROTTLE => Record::Throttled,
        _ => Record::Other,
    })
}

impl<'a> Sample<'a> {
    /// The kernel's instruction pointers, the innermost first.
    pub(crate) fn kernel(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.context(sys::PERF_CONTEXT_KERNEL)
    }

    /// The user's, as the kernel found them by frame pointers.
    pub(crate) fn user_chain(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.context(sys::PERF_CONTEXT_USER)
    }

    fn context(&self, context: u64) -> impl Iterator<Item = u64> + use<'a> {
        let mut now = 0;
        self.chain
            .chunks_exact(8)
            .filter_map(|bytes| bytes.try_into().ok().map(u64::from_le_bytes))
            .filter(move |&ip| {
                // Marks are the largest numbers, which are not addresses of instructions.
                if ip >= sys::PERF_CONTEXT_MAX {
                    now = ip;
                    return false;
                }
                now == context
            })
    }
}

fn sample<'a>(mut fields: Fields<'a>, misc: u32) -> Option<Sample<'a>> {
    let mode = misc & sys::PERF_RECORD_MISC_CPUMODE_MASK;
    let ip = fields.u64()?;
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let time_ns = fields.u64()?;
    let period = fields.u64()?;
    let length = usize::try_from(fields.u64()?).ok()?.checked_mul(8)?;
    let chain = fields.take(length)?;
    let user = if STACKS { user(&mut fields)? } else { None };
    let user_mode = mode == sys::PERF_RECORD_MISC_USER;
    Some(Sample { user_mode, ip, pid, tid, time_ns, period, chain, user })
}

/// The registers of [`super::event::REGISTERS`], in the order of their bits, and the stack.
fn user<'a>(fields: &mut Fields<'a>) -> Option<Option<User<'a>>> {
    let abi = fields.u64()?;
    let registers = if abi == sys::PERF_SAMPLE_REGS_ABI_NONE as u64 {
        None
    } else {
        Some((fields.u64()?, fields.u64()?, fields.u64()?))
    };
    let reserved = usize::try_from(fields.u64()?).ok()?;
    let mut stack = fields.take(reserved)?;
    if reserved > 0 {
        // How much of it was actually copied.
        let copied = usize::try_from(fields.u64()?).ok()?;
        stack = stack.get(..copied)?;
    }
    Some(registers.map(|(bp, sp, ip)| User {
        ip,
        sp,
        bp,
        is_64_bit: abi == sys::PERF_SAMPLE_REGS_ABI_64 as u64,
        stack,
    }))
}

fn map(mut fields: Fields<'_>) -> Option<Map> {
    let pid = fields.u32()?;
    fields.u32()?;
    let start = fields.u64()?;
    let end = start.checked_add(fields.u64()?)?;
    let offset = fields.u64()?;
    let device = (fields.u32()?, fields.u32()?);
    let inode = fields.u64()?;
    // The inode's generation, then protection and flags.
    fields.u64()?;
    fields.u64()?;
    Some(Map { pid, start, end, offset, device, inode, path: fields.text()? })
}

/// Takes fields from the front.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A name that ends with a zero, before the trailer.
    fn text(&mut self) -> Option<String> {
        let length = self.0.len().checked_sub(TRAILER_BYTES)?;
        let text = self.take(length)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record of a kind, its fields given as bytes.
    pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER_BYTES + body.len()).next_multiple_of(8);
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend(u16::try_from(size).unwrap().to_le_bytes());
        bytes.extend(body);
        bytes.resize(size, 0);
        bytes
    }

    /// A lost record.
    pub(crate) fn lost(count: u64) -> Vec<u8> {
        record(sys::PERF_RECORD_LOST, 0, &words(&[9, count, 0, 0]))
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn sample_bytes(
        chain: &[u64],
        registers: Option<[u64; 3]>,
        stack: &[u8],
        copied: u64,
    ) -> Vec<u8> {
        let mut body = words(&[0x1111, 7 | 8 << 32, 1000, 10_101_010, chain.len() as u64]);
        body.extend(words(chain));
        match registers {
            None => body.extend(words(&[0])),
            Some(registers) => {
                body.extend(words(&[2]));
                body.extend(words(&registers));
            }
        }
        body.extend(words(&[stack.len() as u64]));
        body.extend(stack);
        if !stack.is_empty() {
            body.extend(words(&[copied]));
        }
        record(sys::PERF_RECORD_SAMPLE, sys::PERF_RECORD_MISC_KERNEL as u16, &body)
    }

    #[test]
    fn a_sample_of_the_kernel_with_the_user_below_it() {
        if !STACKS {
            return;
        }
        let chain = [sys::PERF_CONTEXT_KERNEL, 0xa, 0xb, sys::PERF_CONTEXT_USER, 0xc];
        let bytes = sample_bytes(&chain, Some([1, 2, 3]), &[5; 64], 40);
        let Some(Record::Sample(sample)) = read(&bytes) else { panic!("it is a sample") };
        assert_eq!((sample.ip, sample.pid, sample.tid, sample.time_ns), (0x1111, 7, 8, 1000));
        assert_eq!((sample.period, sample.user_mode), (10_101_010, false));
        assert_eq!(sample.kernel().collect::<Vec<_>>(), [0xa, 0xb]);
        assert_eq!(sample.user_chain().collect::<Vec<_>>(), [0xc]);
        let user = sample.user.unwrap();
        assert_eq!((user.bp, user.sp, user.ip, user.stack), (1, 2, 3, &[5; 40][..]));
        let idle = sample_bytes(&[], None, &[], 0);
        let Some(Record::Sample(sample)) = read(&idle) else { panic!("it is a sample") };
        assert_eq!(sample.user, None);
        assert_eq!(read(&sample_bytes(&[], Some([0; 3]), &[0; 8], 9)), None, "more than it has");
    }

    #[test]
    fn maps_names_forks_and_losses() {
        let mut body = words(&[7 | 8 << 32, 0x1000, 0x2000, 0x300, 1 | 2 << 32, 42, 0, 0]);
        body.extend(b"/usr/sbin/squid\0");
        body.extend(words(&[7 | 8 << 32, 99]));
        let bytes = record(sys::PERF_RECORD_MMAP2, 0, &body);
        let map = Map {
            pid: 7,
            start: 0x1000,
            end: 0x3000,
            offset: 0x300,
            device: (1, 2),
            inode: 42,
            path: "/usr/sbin/squid".to_owned(),
        };
        assert_eq!(read(&bytes), Some(Record::Map(map)));
        assert_eq!(time_ns(&bytes), 99);
        let mut body = words(&[7 | 7 << 32]);
        body.extend(b"squid\0\0\0");
        body.extend(words(&[0, 5]));
        let exec = sys::PERF_RECORD_MISC_COMM_EXEC as u16;
        let name = Record::Name { pid: 7, tid: 7, exec: true, name: "squid".to_owned() };
        assert_eq!(read(&record(sys::PERF_RECORD_COMM, exec, &body)), Some(name));
        let task = words(&[7 | 1 << 32, 8 | 1 << 32, 5, 0, 5]);
        let fork = record(sys::PERF_RECORD_FORK, 0, &task);
        assert_eq!(read(&fork), Some(Record::Fork { pid: 7, parent: 1 }));
        let exit = record(sys::PERF_RECORD_EXIT, 0, &task);
        assert_eq!(read(&exit), Some(Record::Exit { pid: 7, tid: 8 }));
        assert_eq!(read(&lost(3)), Some(Record::Lost(3)));
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            kind in 0..24u32, misc in any::<u16>(),
            body in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let bytes = record(kind, misc, &body);
            if let Some(Record::Sample(sample)) = read(&bytes) {
                let _ = sample.kernel().chain(sample.user_chain()).count();
            }
            let _ = (time_ns(&bytes), read(&body), header(&body));
        }
    }
}

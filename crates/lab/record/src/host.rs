//! Descriptions of the machine and the server for the manifest. Nothing here may fail a recording:
//! what cannot be read stays empty.

use std::fs;

use trial::{Capability, Host, Server as ServerManifest};

use crate::clock;
use crate::error::Unsupported;
use crate::procfs;
use logs::Format;

/// The machine.
pub(crate) fn host() -> Host {
    let line = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Host {
        hostname: line("/proc/sys/kernel/hostname"),
        kernel: format!(
            "{} {}",
            line("/proc/sys/kernel/ostype"),
            line("/proc/sys/kernel/osrelease")
        ),
        cpus: clock::cpus_online(),
        cpu_model: field("/proc/cpuinfo", "model name").unwrap_or_default(),
        memory_bytes: memory_bytes().unwrap_or(0),
        boot_id: Some(line("/proc/sys/kernel/random/boot_id")).filter(|id| !id.is_empty()),
        ticks_per_second: clock::ticks_per_second(),
    }
}

/// The server's processes, the first one first.
pub(crate) fn server(pids: &[u32]) -> ServerManifest {
    let Some(&first) = pids.first() else { return ServerManifest::default() };
    let mut buffer = Vec::new();
    let name = procfs::stat_of(first, &mut buffer).map_or_else(String::new, |stat| stat.name);
    let command_line = fs::read(format!("/proc/{first}/cmdline")).unwrap_or_default();
    let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
    let exe = fs::read_link(format!("/proc/{first}/exe"))
        .map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned());
    ServerManifest {
        name,
        pid: Some(first),
        pids: pids.to_vec(),
        command_line: command_line.trim_end().to_owned(),
        exe,
        version: None,
    }
}

/// What the samplers can do here, tried on the server's first process.
pub(crate) fn capabilities(pids: &[u32]) -> Vec<Capability> {
    let tick_ms = 1000 / clock::ticks_per_second();
    let first = pids.first().copied().unwrap_or(0);
    let readable = |file: &str| fs::read(format!("/proc/{first}/task/{first}/{file}"));
    vec![
        supported("machine modes", format!("/proc/stat, grain {tick_ms} ms")),
        match clock::process_cpu_ns(first) {
            Ok(_) => supported(
                "process cpu time",
                "the process's CPU clock, exact to the ns, ended threads included".to_owned(),
            ),
            Err(error) => missing("process cpu time", format!("{error}: {tick_ms} ms ticks only")),
        },
        match readable("schedstat") {
            Ok(_) => supported(
                "thread cpu time",
                "schedstat, exact to the ns up to the last scheduler tick of a running thread"
                    .to_owned(),
            ),
            Err(error) => missing("thread cpu time", format!("{error}: {tick_ms} ms ticks only")),
        },
        supported(
            "user and kernel split",
            format!("ratio of the kernel's tick samples, grain {tick_ms} ms, does not drift"),
        ),
        match readable("status") {
            Ok(_) => supported("wakes", "voluntary context switches by thread".to_owned()),
            Err(error) => missing("wakes", error.to_string()),
        },
        match fs::metadata(format!("/proc/{first}/fd")) {
            Ok(fd) if fd.len() > 0 => {
                supported("descriptors", "counted by the kernel, every interval".to_owned())
            }
            Ok(_) => supported(
                "descriptors",
                "counted one by one, every interval, for tables of up to 1024".to_owned(),
            ),
            Err(error) => missing("descriptors", error.to_string()),
        },
    ]
}

/// What the log provides.
pub(crate) fn log_capabilities(format: Option<&Format>, log: bool) -> Vec<Capability> {
    let Some(format) = format.filter(|_| log) else {
        let why = if log { "no line of the log was understood" } else { "no access log was named" };
        return ["requests", "log elapsed"].map(|name| missing(name, why.to_owned())).into();
    };
    let declared = format!("{format} log: {}", format.declares());
    let elapsed = if format.has_elapsed() {
        supported("log elapsed", declared.clone())
    } else {
        missing("log elapsed", format!("the {format} format does not contain it"))
    };
    vec![supported("requests", declared), elapsed]
}

/// What a sampler can do here; `None` means that it was not requested.
pub(crate) fn sampler<T>(
    name: &str,
    started: Option<&Result<T, Unsupported>>,
    describe: impl Fn(&T) -> String,
) -> Capability {
    match started {
        Some(Ok(sampler)) => supported(name, describe(sampler)),
        Some(Err(Unsupported(why))) => missing(name, why.clone()),
        None => missing(name, "not requested".to_owned()),
    }
}

/// What a counter provides.
pub(crate) fn counter_capabilities(metric: &str) -> Vec<Capability> {
    let source = format!("{metric}, scraped at each boundary and spread evenly between scrapes");
    let elapsed = "a counter does not contain it".to_owned();
    vec![supported("requests", source), missing("log elapsed", elapsed)]
}

/// What the sockets provide.
pub(crate) fn sockets_capabilities(tls: &[String]) -> Vec<Capability> {
    let tls = match tls {
        [] => "without TLS".to_owned(),
        libraries => format!("with TLS, in the calls of {}", libraries.join(", ")),
    };
    let source =
        format!("counted on the server's sockets, at the last send of the response; {tls}");
    let elapsed = "from the receive that begins a request to the last send of its response, 1 %";
    vec![supported("requests", source), supported("log elapsed", elapsed.to_owned())]
}

fn supported(name: &str, reason: String) -> Capability {
    Capability { name: name.to_owned(), supported: true, reason }
}

fn missing(name: &str, reason: String) -> Capability {
    Capability { name: name.to_owned(), supported: false, reason }
}

fn memory_bytes() -> Option<u64> {
    let text = field("/proc/meminfo", "MemTotal")?;
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The value of the first line `label : value`.
fn field(path: &str, label: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == label).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use logs::LogFormat;

    #[test]
    fn this_machine_and_this_process_are_described() {
        let host = host();
        assert!(host.kernel.starts_with("Linux ") && host.cpus > 0 && host.memory_bytes > 1 << 20);
        let own = std::process::id();
        let server = server(&[own]);
        assert_eq!((server.pid, server.pids.as_slice()), (Some(own), [own].as_slice()));
        assert!(!server.name.is_empty() && server.command_line.contains("record"));
        let squid = LogFormat::Squid.into();
        let log = log_capabilities(Some(&squid), true);
        let all = [capabilities(&[own]), log].concat();
        assert!(all.iter().all(|capability| capability.supported), "{all:?}");
    }

    #[test]
    fn missing_capabilities_give_a_reason() {
        let elapsed = |format, log| log_capabilities(format, log).pop().unwrap();
        let common = LogFormat::Common.into();
        assert!(!elapsed(Some(&common), true).supported);
        assert!(elapsed(None, true).reason.contains("understood"));
        assert!(elapsed(None, false).reason.contains("no access log"));
    }
}

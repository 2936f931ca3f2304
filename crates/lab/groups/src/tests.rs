//! The groups of the default rules, and the errors of invalid files.

// A test that cannot read its rules must fail.
#![allow(clippy::unwrap_used)]

use super::*;

fn frame(symbol: &str) -> Frame {
    let (mode, symbol) = match symbol.strip_prefix("k:") {
        Some(symbol) => (FrameMode::Kernel, symbol),
        None => (FrameMode::User, symbol),
    };
    let module = if mode == FrameMode::Kernel { "[kernel]" } else { "squid" };
    let (symbol, module) = symbol.split_once('@').unwrap_or((symbol, module));
    let symbol = (!symbol.is_empty()).then(|| symbol.to_string());
    Frame { symbol, module: module.to_string(), mode }
}

/// The name of the place of a stack, leaf first.
fn placed(groups: &Groups, stack: &[&str]) -> String {
    let frames: Vec<Frame> = stack.iter().map(|symbol| frame(symbol)).collect();
    let stack = Stack { frames: (0..frames.len() as u32).collect(), whole: true };
    let sorted = groups.sort(&frames, &[stack]);
    groups.name(&sorted.place(Owner::Server, 0).unwrap())
}

#[test]
fn procedures_of_current_kernels_are_in_their_groups() {
    let groups = Groups::default();
    for (stack, place) in [
        (&["k:tcp_poll", "k:sock_poll", "k:do_sys_poll", "k:__x64_sys_poll", "main"][..], "select"),
        (&["k:_raw_spin_lock", "k:ep_poll", "k:__x64_sys_epoll_wait"], "select"),
        (&["epoll_wait@libc.so.6"], "select"),
        (&["k:do_select", "k:core_sys_select"], "select"),
        (&["k:io_cqring_wait", "k:__x64_sys_io_uring_enter"], "select"),
        (&["k:__schedule", "k:schedule", "k:ep_poll"], "scheduler"),
        (&["k:finish_task_switch.isra.0", "k:__schedule", "k:schedule", "k:ep_poll"], "irq-off"),
        (&["k:_raw_spin_unlock_irqrestore", "k:__wake_up_common_lock"], "irq-off"),
        (&["k:tcp_v4_rcv", "k:ip_rcv", "k:net_rx_action", "k:__do_softirq"], "tcp"),
        (&["k:tcp_sendmsg_locked", "k:tcp_sendmsg", "k:sock_sendmsg"], "tcp"),
        (&["k:__tcp_transmit_skb"], "tcp"),
        (&["k:ip_finish_output2", "k:ip_output"], "network"),
        (&["k:skb_release_data"], "network"),
        (&["k:start_xmit@[virtio_net]"], "network"),
        (&["_int_malloc@libc.so.6", "malloc@libc.so.6"], "malloc"),
        (&["__libc_free@libc.so.6"], "malloc"),
        (&["ngx_palloc@nginx"], "malloc"),
        (&["k:kmem_cache_alloc_node"], "malloc"),
        (&["__memmove_avx_unaligned_erms@libc.so.6"], "data-movement"),
        (&["__memset_avx2_unaligned_erms@libc.so.6"], "data-movement"),
        (&["k:copy_user_enhanced_fast_string", "k:_copy_to_iter"], "data-movement"),
        (&["k:rep_movs_alternative"], "data-movement"),
        (&["k:csum_partial"], "checksum"),
        (&["crc32_z@libz.so.1"], "checksum"),
        (&["@libcrypto.so.3"], "tls"),
        (&["SSL_read@nginx"], "tls"),
        (&["k:filemap_get_pages", "k:filemap_read", "k:ext4_file_read_iter"], "file-io"),
        (&["k:dput", "k:path_openat"], "file-io"),
        (&["k:native_queued_spin_lock_slowpath", "k:_raw_spin_lock"], "locks"),
        (&["__pthread_mutex_lock@libc.so.6"], "locks"),
        (&["___pthread_mutex_unlock@libc.so.6"], "locks"),
        (&["k:futex_wake", "k:do_futex", "k:__x64_sys_futex"], "locks"),
        (&["k:clear_page_erms", "k:handle_mm_fault", "k:asm_exc_page_fault"], "page-faults"),
        (&["comm_select"], "squid"),
        (&["@nginx"], "nginx"),
        (&["k:entry_SYSCALL_64"], "[kernel]"),
        (&["k:do_syscall_64", "k:entry_SYSCALL_64"], "[kernel]"),
        (&["freeRequest"], "squid"),
        (&["pollute"], "squid"),
        (&["selectPeer"], "squid"),
    ] {
        assert_eq!(placed(&groups, stack), place, "{stack:?}");
    }
}

#[test]
fn interrupted_procedures_are_not_callers() {
    let groups = Groups::default();
    let interrupted = ["k:tcp_v4_rcv", "k:__do_softirq", "k:asm_common_interrupt", "k:ep_poll"];
    assert_eq!(placed(&groups, &interrupted), "tcp");
    let unknown = ["k:some_handler", "k:asm_common_interrupt", "k:ep_poll"];
    assert_eq!(placed(&groups, &unknown), "[kernel]");
    assert_eq!(placed(&groups, &["k:some_handler", "k:ep_poll"]), "select");
}

#[test]
fn samples_of_others_are_grouped_by_owner() {
    let groups = Groups::default();
    let frames = [frame("k:tcp_v4_rcv"), frame("@firefox")];
    let stacks = [0, 1].map(|leaf| Stack { frames: vec![leaf], whole: false });
    let sorted = groups.sort(&frames, &stacks);
    let name = |owner, stack| sorted.place(owner, stack).map(|place| groups.name(&place));
    assert_eq!(name(Owner::Recorder, 0).unwrap(), "recorder");
    assert_eq!(name(Owner::Other, 0).unwrap(), "elsewhere");
    assert_eq!(name(Owner::Other, 1).unwrap(), "others");
    assert_eq!(name(Owner::Idle, 0), None);
    let empty = groups.sort(&[], &[Stack::default()]);
    assert_eq!(groups.name(&empty.place(Owner::Server, 0).unwrap()), "unknown");
}

#[test]
fn a_users_file_replaces_the_default() {
    let text = "[[group]]\nname = \"mine\"\ntitle = \"my group\"\n\
                [[group.rule]]\nsymbol = '^comm_'\nmode = \"user\"\n";
    let groups = Groups::read(text, "groups.toml").unwrap();
    assert_eq!(placed(&groups, &["comm_select"]), "mine");
    assert_eq!(placed(&groups, &["k:comm_select"]), "[kernel]");
    assert_eq!(placed(&groups, &["malloc"]), "squid");
    assert!(Groups::read("", "empty.toml").unwrap().places().next().is_none());
}

#[test]
fn errors_of_a_file_name_the_line_and_the_fix() {
    let error_of = |text: &str| Groups::read(text, "my.toml").unwrap_err().to_string();
    let head = "[[group]]\nname = \"a\"\n[[group.rule]]\n";
    let error = error_of(&format!("{head}symbol = '('\n"));
    assert!(error.starts_with("my.toml, line 4: symbol is not a regular expression: "), "{error}");
    assert!(!error.contains('\n'), "{error}");
    let error = error_of(&format!("{head}mode = \"kernal\"\n"));
    assert_eq!(error, "my.toml, line 4: mode must be \"user\" or \"kernel\", not \"kernal\"");
    let error = error_of(&format!("{head}symbols = 'x'\n"));
    assert!(error.starts_with("my.toml, line 4: unknown field `symbols`, expected"), "{error}");
    let error = error_of(&format!("{head}anywhere = true\n"));
    assert!(error.contains("matches everything; add one"), "{error}");
    let error = error_of("[[group]]\nname = \"a\"\n");
    assert_eq!(error, "my.toml, line 2: \"a\" has no [[group.rule]]; add one");
    let error = error_of(&format!("{head}symbol = 'x'\n{head}symbol = 'y'\n"));
    assert!(error.starts_with("my.toml, line 6: \"a\" is defined twice"), "{error}");
    let error = error_of("[[group]]\nname = \"recorder\"\n");
    assert!(error.contains("reserved for an owner"), "{error}");
    let error = error_of("[[group]\n");
    assert!(error.starts_with("my.toml, line 1: "), "{error}");
}

//! The table: from the name of a directive to what becomes of it.
//!
//! To add a directive, add a line: a reason, or a function that writes keys.

use super::access::NO_RULE;
use super::acl::Set;
use super::lines::{Line, size, time};
use super::{Squid, accel, peers, ports, shaping, store};
use imported::table::Becomes::{
    self, By, Carried, Different, Elsewhere, Left, Nothing, Unprotected,
};
use imported::table::{find, is_one};
use imported::tree::{Value, timeout};

/// A function of the table.
type Carry = fn(&mut Squid, &Line) -> Becomes;

const FTP: &str = "FTP is not spoken";
const SHAPING: &str = "quotas pace responses, and not what clients send";
const HELPER: &str = "helper programs are not run";
const ADAPTATION: &str = "no other program looks at requests";

/// Names, with spaces between them.
const TABLE: &[(&str, Becomes<Carry>)] = &[
    ("http_port https_port", By(ports::port)),
    ("http_access", By(http_access)),
    ("proxy_protocol_access icp_access htcp_access htcp_clr_access", By(peers::senders)),
    ("cache_peer", By(accel::peer)),
    ("cache_peer_access", By(accel::peer_access)),
    ("cache_mem", By(memory)),
    ("maximum_object_size_in_memory maximum_object_size", By(object_size)),
    ("cache_dir", By(cache_dir)),
    ("refresh_pattern", By(store::refresh_pattern)),
    ("negative_ttl", By(store::negative)),
    ("cache store_miss send_hit", By(store::cache)),
    ("logformat", By(log_format)),
    ("access_log cache_access_log", By(access_log)),
    ("visible_hostname unique_hostname", By(visible_hostname)),
    ("via", By(via)),
    ("forwarded_for", By(forwarded_for)),
    ("dns_nameservers", By(name_servers)),
    ("auth_param", By(auth_param)),
    ("workers", By(workers)),
    ("cache_effective_user", By(|squid, line| squid.set("server.user", line.word(0), line))),
    ("cache_effective_group", By(group)),
    ("connect_timeout", By(|squid, line| squid.limit("limits.connect_timeout", line, false))),
    ("read_timeout", By(|squid, line| squid.limit("limits.upstream_timeout", line, false))),
    ("write_timeout", By(|squid, line| squid.limit("limits.send_timeout", line, false))),
    ("request_timeout", By(|squid, line| squid.limit("limits.head_timeout", line, false))),
    (
        "client_idle_pconn_timeout persistent_request_timeout",
        By(|squid, line| squid.limit("limits.idle_keep_alive", line, false)),
    ),
    (
        "server_idle_pconn_timeout pconn_timeout",
        By(|squid, line| squid.limit("limits.upstream_idle", line, true)),
    ),
    ("shutdown_lifetime", By(|squid, line| squid.limit("limits.drain_timeout", line, true))),
    ("request_header_max_size", By(head_size)),
    ("tls_outgoing_options", By(tls_outgoing)),
    ("collapsed_forwarding", By(collapsed)),
    ("request_header_access", By(header_access)),
    ("never_direct always_direct", By(peers::direct)),
    ("nonhierarchical_direct", By(peers::nonhierarchical)),
    ("icp_port htcp_port", By(peers::port)),
    ("udp_incoming_address", By(peers::udp_address)),
    ("delay_class delay_parameters delay_access", By(shaping::pool)),
    ("client_ip_max_connections", By(shaping::connections_of)),
    ("delay_pools", Nothing("the pools are those that have a class")),
    ("client_delay_pools client_delay_parameters client_delay_access", Left(SHAPING)),
    ("http_reply_access", Unprotected("responses are not restricted by rules")),
    ("snmp_access", Nothing("SNMP is not answered, so no client is let in")),
    ("digest_generation", Nothing("no digest of the store is made")),
    ("prefer_direct", Left("a usable parent is always used, unless always_direct says otherwise")),
    ("hierarchy_stoplist", Left("such requests go to parents too; see always_direct")),
    ("icp_query_timeout", Left("hierarchy.query_timeout is this time")),
    ("include", Unprotected("the file cannot be read")),
    ("if", Unprotected("its block is not carried")),
    ("miss_access", Unprotected("misses are not restricted apart from hits")),
    ("adapted_http_access", Unprotected("there is no second list of rules")),
    ("external_acl_type url_rewrite_access store_id_program", Left(HELPER)),
    ("url_rewrite_program redirect_program", Unprotected(HELPER)),
    ("icap_enable ecap_enable", By(adaptation)),
    ("icap_service ecap_service adaptation_access", Unprotected(ADAPTATION)),
    ("follow_x_forwarded_for", By(follow)),
    ("ssl_bump", By(bump)),
    ("sslproxy_cert_error", Left("certificates of servers are always verified")),
    ("request_body_max_size", By(body_size)),
    ("reply_body_max_size", Unprotected("the size of responses is not limited")),
    ("request_header_add request_header_replace", Left("fields of requests stay as they are")),
    ("reply_header_access reply_header_add", Left("fields of responses stay as they are")),
    ("deny_info error_directory", Left("refusals have one page, which names the rule")),
    ("cache_replacement_policy memory_replacement_policy", Left("the store evicts by S3-FIFO")),
    ("minimum_expiry_time", Left("lifetimes are those of responses, as RFC 9111 says")),
    ("offline_mode", Left("stale responses are served only as caching.md says")),
    ("max_stale", Left("without a directive, a stale response is served for up to a day")),
    ("quick_abort_min quick_abort_max quick_abort_pct", Left("a fetch for the store goes on")),
    ("range_offset_limit", Left("parts are stored and combined; the whole is not fetched")),
    ("forward_timeout", Left("attempts are bounded by limits.connect_timeout each")),
    ("forward_max_tries", Left("attempts are bounded by upstream.retries")),
    ("authenticate_ttl", Left("a correct password is remembered for five minutes")),
    ("cachemgr_passwd", Nothing("the admin address has the statistics")),
    ("cache_mgr", Nothing("no page names an administrator")),
    ("httpd_suppress_version_string", Nothing("no response names a version")),
    ("coredump_dir", Nothing("it writes no core files there")),
    ("cache_log debug_options", Nothing("messages go to stderr")),
    ("cache_store_log", Nothing("the access log has what was stored")),
    ("logfile_rotate", Nothing("SIGUSR1 reopens the log after another program renames it")),
    ("logfile_daemon", Nothing("the log is written by a thread")),
    ("buffered_logs", Nothing("the log is always buffered")),
    ("strip_query_terms", Left("the log has whole URLs; choose a format without the query")),
    ("pid_filename", Nothing("a supervisor knows the process")),
    ("max_filedescriptors", Nothing("the limit is the system's, and is respected")),
    ("pinger_enable pinger_program netdb_filename", Nothing("no server is pinged")),
    ("icon_directory mime_table", Nothing("no directory is listed")),
    (
        "memory_pools memory_pools_limit store_avg_object_size ipcache_size fqdncache_size",
        Nothing("the process has no such setting"),
    ),
    ("cache_swap_low cache_swap_high", Nothing("the store evicts when it is full")),
    ("half_closed_clients", By(half_closed)),
    ("pipeline_prefetch", Nothing("requests of a pipeline are answered in order")),
    ("client_persistent_connections server_persistent_connections", Nothing("they are kept")),
    ("detect_broken_pconn", Nothing("a connection with bytes left is never used again")),
    ("ftp_user ftp_passive ftp_epsv", Nothing(FTP)),
    ("ftp_port", Left(FTP)),
    ("announce_host", Nothing("nothing is announced")),
    ("check_hostnames", Nothing("names are always checked")),
    ("unlinkd_program", Nothing("the store is a few files")),
    ("global_internal_static", Nothing("there are no internal pages")),
];

/// Settings that are not carried and keep no request out. A directive that is neither here nor in
/// the table may keep requests out, so it closes the proxy.
const HARMLESS: &str = "\
    acl_uses_indirect_client append_domain balance_on_multiple_ip cache_miss_revalidate chroot \
    client_db client_dst_passthru client_lifetime client_request_buffer_max_size cpu_affinity_map \
    dead_peer_timeout delay_initial_bucket_level dns_children dns_defnames dns_multicast_local \
    dns_packet_max dns_retransmit_interval dns_timeout dns_v4_first email_err_data err_html_text \
    err_page_stylesheet error_default_language error_log_languages eui_lookup hosts_file \
    httpd_accel_surrogate_id ignore_unknown_nameservers log_icp_queries log_mime_hdrs mail_from \
    mail_program max_open_disk_fds maximum_icp_query_timeout mcast_groups minimum_direct_hops \
    minimum_direct_rtt minimum_icp_query_timeout minimum_object_size negative_dns_ttl netdb_high \
    netdb_low netdb_ping_period peer_connect_timeout positive_dns_ttl query_icmp read_ahead_gap \
    refresh_all_ims relaxed_header_parser reload_into_ims reply_header_max_size request_entities \
    retry_on_error shared_memory_locking short_icon_urls snmp_incoming_address \
    snmp_outgoing_address snmp_port sslcrtd_children sslcrtd_program sslproxy_session_cache_size \
    sslproxy_session_ttl store_dir_select_algorithm store_id_access store_id_bypass \
    store_id_children store_objects_per_bucket tcp_outgoing_address tcp_outgoing_tos \
    tcp_recv_bufsize test_reachability udp_outgoing_address umask uri_whitespace \
    url_rewrite_bypass url_rewrite_children url_rewrite_extras vary_ignore_expire \
    windows_ipaddrchangemonitor";

/// Writes what becomes of a line, and its note.
pub(crate) fn directive(squid: &mut Squid, line: &Line) {
    let becomes = match find(TABLE, &line.name) {
        _ if has_no_list(line) => Nothing("Squid skips a line that names no list"),
        // The last line of its kind: what no line before it denies is allowed.
        Some(Unprotected(_)) if allows_all(line) => Nothing("all others are let in"),
        Some(entry) => entry.of(|carry| carry(squid, line)),
        None if is_one(HARMLESS, &line.name) => Left("there is no such setting"),
        None => Unprotected("this directive is not known here"),
    };
    if let Unprotected(why) = becomes {
        return squid.close(line, why);
    }
    squid.notes.became(&line.at, &becomes);
}

/// Whether a line allows or denies, and does not say for which lists.
fn has_no_list(line: &Line) -> bool {
    let skip = usize::from(matches!(&*line.name, "cache_peer_access" | "delay_access"));
    line.words.len() == skip + 1 && matches!(line.word(skip), "allow" | "deny")
}

fn allows_all(line: &Line) -> bool {
    // For adaptation, `allow all` sends all requests to the other program.
    line.words == ["allow", "all"] && !line.name.starts_with("adaptation")
}

const NO_SIZE: Becomes = Left("it is not a size");
const NO_TIMEOUT: &str = "a time-out is from a millisecond to a day";

impl Squid {
    /// A restriction was not carried: no request is let in.
    pub(super) fn close(&mut self, line: &Line, why: &str) {
        self.notes.unprotected(&line.at, why);
        let literals = vec![(false, Set::Unknown(why.to_owned()))];
        self.rules.insert(0, super::Rule { line: line.clone(), allow: false, literals });
    }

    /// A key (`SECTION.KEY`) that is the value of a line.
    fn set(&mut self, path: &'static str, value: impl Into<Value>, line: &Line) -> Becomes {
        let (section, key) = path.split_once('.').expect("a path has a section and a key");
        self.tree.section(section).set(key, value, &line.at);
        Carried
    }

    /// A time-out of `[limits]`.
    fn limit(&mut self, key: &'static str, line: &Line, may_be_zero: bool) -> Becomes {
        let Some(time) = time(&line.words) else { return Left("it is not a time") };
        match timeout(Some(time)).or(may_be_zero.then_some(Value::Time(time))) {
            Some(time) => self.set(key, time, line),
            None => Left(NO_TIMEOUT),
        }
    }
}

/// The notes are written at the end, when the order of all rules is known.
fn http_access(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(rule) = squid.rule(line, 0) else { return NO_RULE };
    squid.rules.push(rule);
    Elsewhere
}

fn adaptation(_: &mut Squid, line: &Line) -> Becomes {
    if line.word(0) == "off" { Nothing(ADAPTATION) } else { Unprotected(ADAPTATION) }
}

/// The clients behind a proxy are those of later rules, so its own address must not be let in.
fn follow(_: &mut Squid, line: &Line) -> Becomes {
    let why = "the client is the one that connects";
    if line.word(0) == "deny" { Nothing(why) } else { Unprotected(why) }
}

fn half_closed(_: &mut Squid, line: &Line) -> Becomes {
    match line.word(0) {
        "on" => Left("a client that closes its direction has left: see forward.finish_abandoned"),
        _ => Nothing("a client that closes its direction has left"),
    }
}

fn bump(_: &mut Squid, line: &Line) -> Becomes {
    let why = "TLS between client and server is never opened";
    if line.word(0) == "terminate" { Unprotected(why) } else { Left(why) }
}

fn memory(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(bytes) = size(&line.words) else { return NO_SIZE };
    squid.memory = bytes.max(1 << 20);
    squid.set("store.memory", Value::Bytes(squid.memory), line)
}

fn object_size(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(bytes) = size(&line.words) else { return NO_SIZE };
    let which = usize::from(line.name == "maximum_object_size");
    squid.object_max[which] = Some((bytes, line.at.clone()));
    Different(
        "as limits.object_share, a whole divisor of store.memory; with a store on disk \
         maximum_object_size counts, otherwise that in memory",
    )
}

/// The smallest store on disk.
const DISK_MIN: u64 = 32 << 20;

fn cache_dir(squid: &mut Squid, line: &Line) -> Becomes {
    let (kind, path) = (line.word(0), line.word(1));
    let Some(bytes) = line.word(2).parse::<u64>().ok().filter(|mb| (1..1 << 30).contains(mb))
    else {
        return Left("its size is not a number of megabytes");
    };
    if !matches!(kind, "ufs" | "aufs" | "diskd" | "rock") {
        return Left("this type of store is not known here");
    }
    let store = squid.tree.section("store");
    if store.get("path").is_some() {
        return Left("there is one store on disk; make the first one larger");
    }
    store.set("path", format!("{}/plimsoll", path.trim_end_matches('/')), &line.at);
    store.set("bytes", Value::Bytes((bytes << 20).max(DISK_MIN)), &line.at);
    Different(
        "the store is empty at first, in a directory of this name in Squid's, and has at least \
         32 MiB",
    )
}

fn log_format(squid: &mut Squid, line: &Line) -> Becomes {
    let format = format!("squid:{}", line.rest(1).join(" "));
    if format.parse::<access_log::LogFormat>().is_err() {
        return Left("it has a code that is not known here");
    }
    squid.formats.insert(line.word(0).to_owned(), format);
    Carried
}

fn access_log(squid: &mut Squid, line: &Line) -> Becomes {
    let (module, path) = line.word(0).split_once(':').unwrap_or(("stdio", line.word(0)));
    if line.word(0) == "none" {
        return Nothing("without [log] there is no log");
    }
    if !matches!(module, "stdio" | "daemon") || !path.starts_with('/') {
        return Left("the log is a file");
    }
    if squid.tree.section("log").get("path").is_some() {
        return Left("there is one access log");
    }
    let (mut name, mut lists) = ("squid", false);
    for word in line.rest(1) {
        match word.split_once('=') {
            Some(("logformat", format)) => name = format,
            Some(_) => {}
            None if name == "squid" && !lists && !squid.lists.contains_key(word.as_str()) => {
                name = word;
            }
            None => lists = true,
        }
    }
    let format = match name {
        "squid" | "common" | "combined" => Some(name.to_owned()),
        name => squid.formats.get(name).cloned(),
    };
    let is_known = format.is_some();
    let log = squid.tree.section("log");
    log.set("path", path, &line.at);
    log.set("format", format.unwrap_or_else(|| "squid".to_owned()), &line.at);
    match (lists, is_known) {
        (true, _) => Left("all requests are logged, not only those of these lists"),
        (_, false) => Left("its format is not known here; the log is in the format squid"),
        _ => Carried,
    }
}

fn visible_hostname(squid: &mut Squid, line: &Line) -> Becomes {
    let name = line.word(0);
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(plain) {
        return Left("it is not a name for Via");
    }
    let via = squid.tree.section("via");
    // The name that must be unique decides.
    if line.name == "unique_hostname" || via.get("name").is_none() {
        via.set("name", name, &line.at);
    }
    Carried
}

fn via(squid: &mut Squid, line: &Line) -> Becomes {
    squid.set("via.requests", line.word(0) == "on", line);
    squid.set("via.responses", line.word(0) == "on", line)
}

fn forwarded_for(squid: &mut Squid, line: &Line) -> Becomes {
    let (word, becomes) = match line.word(0) {
        "on" => ("add", Carried),
        "transparent" => ("off", Carried),
        "delete" => ("delete", Carried),
        "off" => {
            let text = "the field is removed, where Squid adds the word `unknown`";
            ("delete", Different(text))
        }
        "truncate" => ("replace", Carried),
        _ => return Left("this value is not known here"),
    };
    squid.forwarded_for = Some((word, line.at.clone()));
    becomes
}

/// Name servers that our resolver takes.
const NAME_SERVERS_MAX: usize = 3;

fn name_servers(squid: &mut Squid, line: &Line) -> Becomes {
    let addresses: Option<Vec<std::net::IpAddr>> =
        line.words.iter().map(|word| word.parse().ok()).collect();
    let Some(addresses) = addresses.filter(|all| !all.is_empty()) else {
        return Left("a name server is an IP address");
    };
    let texts = addresses.iter().take(NAME_SERVERS_MAX);
    let texts: Vec<String> =
        texts.map(|ip| std::net::SocketAddr::new(*ip, 53).to_string()).collect();
    let becomes = squid.set("dns.servers", texts, line);
    if addresses.len() > NAME_SERVERS_MAX { Left("only the first three are used") } else { becomes }
}

fn auth_param(squid: &mut Squid, line: &Line) -> Becomes {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    match &words[..] {
        ["basic", "program", program, file] if program.ends_with("basic_ncsa_auth") => {
            squid.set("forward.users", *file, line);
            Different("hashes must be bcrypt (htpasswd -B); `plimsoll check` names others")
        }
        ["basic", "realm", realm @ ..] => {
            let realm = realm.join(" ");
            let plain = |b: u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
            if realm.is_empty() || realm.len() > 128 || !realm.bytes().all(plain) {
                return Left("it is not a realm of plain characters");
            }
            squid.set("forward.realm", realm, line)
        }
        ["basic", "children" | "credentialsttl" | "casesensitive" | "utf8", ..] => Nothing(
            "passwords are verified by threads, and a correct one is remembered for five minutes",
        ),
        _ => Left("only Basic authentication with basic_ncsa_auth is carried"),
    }
}

fn workers(squid: &mut Squid, line: &Line) -> Becomes {
    match line.word(0).parse::<u64>() {
        Ok(count @ 1..=1024) => squid.set("server.workers", count, line),
        _ => Left("it is not a number of threads"),
    }
}

fn group(squid: &mut Squid, line: &Line) -> Becomes {
    match squid.tree.section("server").get("user") {
        Some(_) => squid.set("server.group", line.word(0), line),
        None => Left("a group needs a user"),
    }
}

fn head_size(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(bytes) = size(&line.words) else { return NO_SIZE };
    let kept = bytes.clamp(1 << 10, 32 << 10);
    let becomes = squid.set("limits.head_bytes_max", Value::Bytes(kept), line);
    if kept == bytes { becomes } else { Different("a head has 1 to 32 KiB") }
}

fn body_size(squid: &mut Squid, line: &Line) -> Becomes {
    match size(&line.words) {
        None => NO_SIZE,
        // No bytes are no limit.
        Some(0) => Carried,
        Some(bytes) => squid.set("limits.body_bytes_max", Value::Bytes(bytes), line),
    }
}

fn tls_outgoing(squid: &mut Squid, line: &Line) -> Becomes {
    let mut becomes = Carried;
    for word in &line.words {
        match word.strip_prefix("cafile=") {
            Some(file) => squid.tree.section("https").set("ca", file, &line.at),
            None => becomes = Left("only cafile= is carried"),
        }
    }
    becomes
}

fn collapsed(_: &mut Squid, line: &Line) -> Becomes {
    let why = "requests are always collapsed";
    if line.word(0) == "on" { Nothing(why) } else { Different(why) }
}

fn header_access(squid: &mut Squid, line: &Line) -> Becomes {
    let why = "requests of forward listeners are not changed";
    match [line.word(0), line.word(1), line.word(2)] {
        ["Via", "deny", "all"] => squid.set("via.requests", false, line),
        ["X-Forwarded-For", "deny", "all"] => {
            squid.forwarded_for = Some(("delete", line.at.clone()));
            Carried
        }
        [_, "allow", _] => Left(why),
        // The line hides a field of the client from servers.
        _ => Unprotected(why),
    }
}

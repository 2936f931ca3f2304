//! The table: from the name of a line in a section to what becomes of it.
//!
//! The name is the first word, and for the words in [`DOUBLE`] the first two with a dot between
//! them. To add a line, add a reason, or read it elsewhere.

use imported::table::Becomes::{self, Carried, Different, Elsewhere, Left, Nothing, Unprotected};
use imported::table::{find, is_one};

use crate::lines::Line;

/// First words that say little alone.
const DOUBLE: &str = "option timeout stats compression http-check no tcp-check filter";

const LOGS: &str = "[log] has the access log";
const SYSTEM: &str = "the process has no such setting";
const CLOSES: &str = "connections are kept where both sides keep them";
const STATS: &str = "the admin address has the figures (server.admin)";
const TABLES: &str = "what clients have done is not counted here; see [[quota]]";
const LOGIC: &str = "this logic is not carried";

/// Names, with spaces between them.
const TABLE: &[(&str, Becomes)] = &[
    (
        "acl bind server default-server server-template http-request http-response \
         http-after-response tcp-request redirect block use_backend default_backend monitor-uri \
         monitor stats.uri stats.enable reqadd reqdel reqidel reqrep \
         reqirep reqdeny reqideny reqtarpit rspadd http-check.expect http-check.send \
         option.httpchk option.forwardfor cookie compression.type compression.algo balance \
         timeout.client timeout.server timeout.connect timeout.http-request timeout.tunnel \
         timeout.http-keep-alive timeout.check timeout.queue retries",
        Elsewhere,
    ),
    ("mode description", Carried),
    ("clitimeout srvtimeout contimeout", Left("newer versions write `timeout`")),
    ("log unique-id-format log-tag", Left(LOGS)),
    ("option.httplog option.tcplog option.httpslog", Nothing("log.format is the format of [log]")),
    ("option.logasap log-format", Left(LOGS)),
    ("unique-id-header", Left("see [request_id]")),
    (
        "option.dontlognull option.dontlog-normal option.log-separate-errors log-format-sd \
         option.log-health-checks option.socket-stats error-log-format",
        Nothing(LOGS),
    ),
    (
        "option.http-server-close option.httpclose option.forceclose option.http-keep-alive \
         option.http-pretend-keepalive option.prefer-last-server option.http-tunnel http-reuse \
         option.http-no-delay option.http-use-htx option.tcpka option.clitcpka option.srvtcpka \
         option.tcp-smart-accept option.tcp-smart-connect option.splice-auto \
         option.splice-request option.splice-response option.contstats option.nolinger backlog \
         option.http-ignore-probes option.idle-close-on-response option.http-use-proxy-header",
        Nothing(CLOSES),
    ),
    ("option.redispatch option.persist retry-on", Nothing("a request goes to another server")),
    ("option.abortonclose", Nothing("a request ends with its client")),
    ("option.http-buffer-request", Nothing("no condition reads the content")),
    ("option.allbackups", Left("backup servers are all used together")),
    ("option.checkcache", Left("nothing is stored without a line about the cache")),
    ("option.originalto", Left("the field X-Original-To is not added")),
    ("option.tcp-check", Nothing("a server that accepts no connection is not used")),
    ("option.external-check option.ssl-hello-chk option.smtpchk", Left("servers are asked by GET")),
    ("option.ldap-check option.mysql-check option.pgsql-check", Left("servers are asked by GET")),
    ("option.accept-invalid-http-request", Left("malformed requests are refused")),
    ("option.accept-invalid-http-response", Left("malformed responses are refused")),
    ("option.transparent option.http_proxy dispatch", Unprotected(LOGIC)),
    ("timeout.client-fin timeout.server-fin timeout.tarpit timeout.client-hs", Nothing(SYSTEM)),
    ("maxconn fullconn rate-limit grace", Left("requests in flight have no such limit here")),
    (
        "stats.refresh stats.auth stats.realm stats.hide-version stats.show-node stats.admin \
         stats.show-legends stats.show-desc stats.show-modules stats.scope stats.http-request \
         stats.maxconn stats.bind-process stats.socket stats.timeout",
        Nothing(STATS),
    ),
    ("stick-table stick dynamic-cookie-key", Left(TABLES)),
    ("capture declare", Left(LOGS)),
    (
        "errorfile errorloc errorloc302 errorloc303 http-error errorfiles",
        Left("see [[error_page]]"),
    ),
    ("http-send-name-header", Left("the name of the server is not sent")),
    ("compression.offload", Left("servers may code responses themselves")),
    ("compression.direction", Nothing("responses are coded")),
    ("filter.compression", Carried),
    ("filter.cache", Elsewhere),
    ("http-check.disable-on-404 http-check.connect http-check.comment", Left("checks are a GET")),
    ("http-check.send-state tcp-check.connect tcp-check.send", Left("checks are a GET")),
    ("tcp-check.expect tcp-check.comment", Left("checks are a GET")),
    ("hash-type hash-balance-factor hash-preserve-affinity", Different("see upstream.hash_by")),
    ("use-server force-persist ignore-persist", Left("the balance chooses the server")),
    ("email-alert load-server-state-from-file external-check", Left("there is no such setting")),
    ("enabled bind-process id guid max-keep-alive-queue", Nothing(SYSTEM)),
    ("disabled", Nothing("the section is left out")),
    ("source", Left("the system chooses the address")),
];

/// Names of `global`.
const GLOBAL: &[(&str, Becomes)] = &[
    ("nbthread user group crt-base ca-base", Elsewhere),
    ("ssl-default-bind-options", Different("TLS 1.2 and 1.3 are spoken; see listen.tls")),
    (
        "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-server-ciphers \
         ssl-default-server-ciphersuites ssl-default-bind-curves ssl-dh-param-file",
        Nothing("the cipher suites are those of TLS 1.2 and 1.3 that are considered safe"),
    ),
    ("ssl-server-verify", Different("certificates are verified unless a server says otherwise")),
    ("ssl-default-server-options", Nothing("servers are spoken to in TLS 1.2 or 1.3")),
    ("maxconn", Left("limits.connections_max is for each core")),
    ("log log-tag log-send-hostname", Left(LOGS)),
    ("chroot daemon pidfile stats uid gid nbproc cpu-map master-worker", Nothing(SYSTEM)),
    ("ulimit-n maxpipes spread-checks description node hard-stop-after", Nothing(SYSTEM)),
    ("setenv presetenv", Carried),
    ("lua-load lua-load-per-thread module-load", Left(LOGIC)),
];

/// The name of a line in the table.
pub(crate) fn key(line: &Line) -> String {
    match is_one(DOUBLE, line.word(0)) {
        true => format!("{}.{}", line.word(0), line.word(1)),
        false => line.word(0).to_owned(),
    }
}

/// What becomes of a line of a proxy.
pub(crate) fn of_proxy(key: &str) -> Becomes {
    match find(TABLE, key) {
        Some(becomes) => becomes.clone(),
        None if key.starts_with("no.") => Nothing("it is off"),
        None if key.starts_with("option.") => Left("there is no such setting"),
        None => Unprotected("this line is not known here"),
    }
}

/// What becomes of a line of `global`.
pub(crate) fn of_global(name: &str) -> Becomes {
    let harmless = ["tune.", "no", "profiling.", "set-", "unset", "reset"];
    match find(GLOBAL, name) {
        Some(becomes) => becomes.clone(),
        None if harmless.iter().any(|start| name.starts_with(start)) => Nothing(SYSTEM),
        None => Left("there is no such setting"),
    }
}

//! The table: from the name of a directive to what becomes of it.
//!
//! Other files read blocks, actions (`server`, `location`, `return`, `proxy_pass`) and the settings
//! of locations. To add a directive, add a line: a reason, or a function that writes keys.

use std::time::Duration;

use super::Nginx;
use super::blocks::Directive;
use super::conditions;
use super::variables::map;
use imported::note::{Fate, Notes};
use imported::table::Becomes::{
    self, By, Carried, Different, Elsewhere, Left, Nothing, Unprotected,
};
use imported::table::find;

/// A function of the table, for directives that are not inside a location.
type Carry = fn(&mut Nginx<'_>, &Directive) -> Becomes;

const SYSTEM: &str = "the process has no such setting";
const STREAMS: &str = "bodies are passed on as they come, within bounds";
const OTHER: &str = "this protocol is not spoken with upstreams";
pub(super) const CLIENTS: &str = "routes do not depend on clients";
const VARIABLES: &str = "there are no variables";
const CIPHERS: &str = "the cipher suites are those of TLS 1.2 and 1.3 that are considered safe";

/// Names, with spaces between them.
const TABLE: &[(&str, Becomes<Carry>)] = &[
    // Another file reads these.
    (
        "server location upstream http listen server_name return rewrite proxy_pass grpc_pass \
         proxy_set_header add_header if ssl_verify_client \
         proxy_cache_key proxy_cache_valid proxy_ignore_headers proxy_cache_bypass proxy_no_cache \
         allow deny gzip gzip_types gzip_min_length gzip_comp_level brotli brotli_types \
         brotli_min_length brotli_comp_level \
         limit_req limit_req_zone limit_conn limit_conn_zone limit_rate \
         limit_rate_after proxy_redirect proxy_cookie_domain proxy_cookie_path \
         proxy_cookie_flags auth_basic auth_basic_user_file auth_request satisfy error_page \
         real_ip_header",
        Elsewhere,
    ),
    // Another file reads these, too, and carries any value.
    (
        "proxy_cache proxy_hide_header proxy_connect_timeout proxy_read_timeout \
         proxy_ssl_verify proxy_ssl_trusted_certificate proxy_ssl_name ssl_certificate \
         ssl_certificate_key ssl_client_certificate set_real_ip_from proxy_next_upstream_tries \
         http2 proxy_buffering client_max_body_size",
        Carried,
    ),
    ("user", By(super::user)),
    ("worker_processes", By(super::workers)),
    ("keepalive_timeout", By(|nginx, one| nginx.limit("idle_keep_alive", one))),
    ("client_header_timeout", By(|nginx, one| nginx.limit("head_timeout", one))),
    ("client_body_timeout", By(|nginx, one| nginx.limit("body_timeout", one))),
    ("send_timeout", By(|nginx, one| nginx.limit("send_timeout", one))),
    ("large_client_header_buffers", By(super::head_size)),
    ("resolver", By(super::resolver)),
    ("proxy_cache_path", By(super::cache_path)),
    ("log_format", By(super::log_format)),
    ("access_log", By(super::access_log)),
    ("ssl_protocols", Different("TLS 1.2 and 1.3 are spoken, or 1.3 alone if it is alone here")),
    ("proxy_next_upstream", Different("a request that may be repeated goes to one other server")),
    ("proxy_send_timeout", Different("the time between two pieces is one for both directions")),
    ("proxy_http_version", Nothing("upstreams are sent HTTP/1.1")),
    ("proxy_ssl_server_name", Nothing("the server name is always sent")),
    ("proxy_ssl_session_reuse", Nothing("sessions are resumed")),
    ("proxy_cache_lock", Nothing("requests are always collapsed")),
    ("proxy_cache_lock_timeout proxy_cache_lock_age", Nothing("collapsed requests wait")),
    ("proxy_cache_revalidate", Nothing("stale responses are always validated")),
    (
        "proxy_cache_use_stale",
        Different("when no server can be reached, a stale response is served for up to a day"),
    ),
    ("proxy_cache_background_update", Different("with proxy_cache_use_stale updating, for a day")),
    ("proxy_ignore_client_abort", Left("it ends with its client (route.finish_abandoned)")),
    ("proxy_cache_min_uses", Left("a response is stored at its first request")),
    ("proxy_cache_methods", Left("responses to GET are stored")),
    ("proxy_cache_purge", Left("PURGE is allowed by purge.from")),
    ("proxy_pass_header", Left("fields of responses are passed on unless a route removes them")),
    ("proxy_pass_request_headers", Unprotected("the fields are the client's")),
    ("proxy_intercept_errors", Nothing("error pages have it")),
    ("limit_req_status limit_conn_status", Different("what is above a limit is answered 429")),
    ("limit_req_log_level limit_conn_log_level", Nothing("the access log has refusals")),
    (
        "proxy_request_buffering proxy_buffers proxy_buffer_size \
         proxy_busy_buffers_size proxy_temp_path proxy_max_temp_file_size \
         client_body_buffer_size client_body_temp_path fastcgi_temp_path uwsgi_temp_path \
         scgi_temp_path",
        Nothing(STREAMS),
    ),
    (
        "proxy_headers_hash_max_size proxy_headers_hash_bucket_size proxy_socket_keepalive \
         client_header_buffer_size http2_max_concurrent_streams tcp_nopush tcp_nodelay \
         types_hash_max_size server_names_hash_bucket_size server_names_hash_max_size \
         reset_timedout_connection pcre_jit variables_hash_max_size variables_hash_bucket_size \
         types_hash_bucket_size ssl_buffer_size status_zone zone ssl_verify_depth \
         disable_symlinks open_file_cache_valid open_file_cache_errors",
        Nothing(SYSTEM),
    ),
    ("gzip_vary", Nothing("every response that may be coded has Vary: Accept-Encoding")),
    ("gzip_proxied gzip_http_version", Different("all clients that accept a coding get it")),
    ("gunzip", Nothing("with [compression], a coded response is decoded for other clients")),
    ("gzip_buffers brotli_buffers brotli_window", Nothing(SYSTEM)),
    ("gzip_static root alias index try_files autoindex", Nothing("no location serves files by it")),
    ("fastcgi_pass uwsgi_pass scgi_pass memcached_pass fastcgi_param", Left(OTHER)),
    ("stream", Left("connections without HTTP are not proxied")),
    ("mail", Left("mail is not proxied")),
    ("proxy_set_body proxy_method", Unprotected("requests are passed on as they are")),
    ("proxy_pass_request_body", Unprotected("bodies are the client's")),
    ("proxy_ssl_crl", Unprotected("revoked certificates are not known")),
    ("merge_slashes", Unprotected("paths are compared with slashes merged")),
    ("ssl_trusted_certificate", Nothing("no OCSP response is verified")),
    ("real_ip_recursive", Nothing("addresses of trusted proxies are always skipped")),
    ("slice", Left("parts are stored and combined, and not fetched one after the other")),
    ("auth_request_set", Left("fields of the service's answer are not passed on")),
    ("auth_jwt", Unprotected("tokens are not verified")),
    ("internal", Different("clients get 404, and X-Accel-Redirect is not followed")),
    ("limit_except", Unprotected("routes do not depend on methods")),
    ("valid_referers", Unprotected("routes do not depend on fields")),
    ("secure_link", Unprotected("links are not verified")),
    ("include", Unprotected("the file cannot be read")),
    ("map geo split_clients set", Left(VARIABLES)),
    ("expires", Nothing("redirects and answers have no such field")),
    ("etag", Nothing("validators are the upstream's")),
    ("if_modified_since", Nothing("conditions are evaluated as RFC 9110 says")),
    ("sub_filter", Left("bodies are not changed")),
    ("mirror", Left("requests are not mirrored")),
    ("stub_status", Left("the admin address has the metrics (server.admin)")),
    ("ssl", Nothing("the addresses of the server have it")),
    ("ssl_ciphers", Different(CIPHERS)),
    ("ssl_prefer_server_ciphers ssl_ecdh_curve ssl_dhparam", Nothing(CIPHERS)),
    ("ssl_session_cache ssl_session_timeout ssl_session_tickets", Nothing("sessions have tickets")),
    ("ssl_stapling ssl_stapling_verify", Left("no OCSP response is stapled")),
    ("ssl_early_data", Left("with HTTP/3, route.early_data")),
    ("ssl_crl", Unprotected("revoked certificates are not known")),
    ("keepalive_requests", Nothing("a connection is kept for any number of requests")),
    ("sendfile", Nothing("long bodies are never copied where that is possible")),
    ("types default_type", Nothing("the type is the upstream's")),
    ("charset", Different("nothing is added to the types of upstreams' responses")),
    ("server_tokens", Nothing("no version is sent")),
    ("server_name_in_redirect absolute_redirect port_in_redirect", Nothing("a route has the URL")),
    (
        "underscores_in_headers ignore_invalid_headers",
        Left("fields with unusual names are dropped; see listen.field_names"),
    ),
    ("open_file_cache log_not_found", Nothing("files need no such setting")),
    ("error_log", Nothing("messages go to stderr")),
    ("pid", Nothing("a supervisor knows the process")),
    ("daemon", Nothing("the process stays in the foreground")),
    ("master_process", Nothing("there is one process")),
    ("events", Nothing("connections are bounded by limits.connections_max")),
    ("worker_rlimit_nofile", Nothing("the limit is the system's, and is respected")),
    ("worker_shutdown_timeout", Nothing("limits.drain_timeout has a default")),
    ("load_module", Left("there are no modules")),
    ("resolver_timeout", Nothing("the time for a look-up is fixed")),
];

/// The starts of the names of settings that are not carried and keep no request out. A directive
/// that is neither here nor in the table may keep requests out, so its level is closed.
const HARMLESS: &str = "\
    proxy_ fastcgi_ uwsgi_ scgi_ gzip_ brotli sub_filter_ open_file_cache_ http2_ http3 quic_ \
    keepalive_ limit_ lua_ log_ map_ charset_ ssi random_index mp4 chunked_ aio directio \
    output_buffers sendfile_ tcp_ worker_ thread_pool timer_resolution env lingering_ send_lowat \
    msie_ postpone_output recursive_error_pages request_pool_size connection_pool_size";

fn becomes(directive: &Directive) -> &'static Becomes<Carry> {
    match find(TABLE, &directive.name) {
        // The directive sets its default value.
        Some(_) if is_usual(directive) => &Carried,
        Some(becomes) => becomes,
        None if HARMLESS.split(' ').any(|start| directive.name.starts_with(start)) => {
            &Left("there is no such setting")
        }
        None => &Unprotected("this directive is not known here"),
    }
}

/// Calls the functions of the table for the directives of a level.
pub(crate) fn global(nginx: &mut Nginx<'_>, all: &[Directive]) {
    for directive in all {
        if let By(carry) = becomes(directive) {
            let becomes = carry(nginx, directive);
            nginx.notes.became(&directive.at, &becomes);
        }
    }
}

/// Whether a directive, or a directive inside its block, can keep requests out.
pub(crate) fn restricts(directive: &Directive) -> bool {
    let refuses = directive.word(0).parse::<u64>().is_ok_and(|status| status >= 400);
    matches!(becomes(directive), Unprotected(_))
        || directive.name == "deny"
        || directive.name == "return" && refuses
        || directive.inner().iter().any(restricts)
}

/// Writes the note of a setting, and the notes of the directives inside its block. Returns whether
/// the setting kept requests out and is not carried.
pub(crate) fn setting(directive: &Directive, notes: &mut Notes) -> bool {
    let becomes = becomes(directive);
    if directive.name == "set" {
        match (directive.word(0), directive.word(1)) {
            ("$args" | "$query_string", _) => {
                notes.left(&directive.at, "the query is passed on as it was sent");
            }
            ("$limit_rate", _) => notes.left(&directive.at, "the rate is not limited"),
            (_, value) if conditions::is_off(value) => {
                notes.nothing(&directive.at, "a variable without a value is off");
            }
            (_, value) if value.contains('$') => notes.left(&directive.at, VARIABLES),
            // What cannot use the value says so.
            _ => notes.carried(&directive.at),
        }
        return false;
    }
    let is_map = directive.name == "map" && map(directive).is_some();
    if is_map || conditions::of_block(directive).is_some() {
        notes.carried(&directive.at);
        inside(directive, Fate::Carried, "", notes);
        return false;
    }
    let Some((fate, why)) = becomes.parts() else { return false };
    notes.add(&directive.at, fate, why);
    let fate = if matches!(becomes, Nothing(_)) { Fate::Nothing } else { Fate::NotCarried };
    inside(directive, fate, "it is inside a block that is not carried", notes);
    matches!(becomes, Unprotected(_))
}

/// Writes the same note for all that is inside a block.
pub(crate) fn inside(directive: &Directive, fate: Fate, why: &str, notes: &mut Notes) {
    for inner in directive.inner() {
        notes.add(&inner.at, fate, why);
        inside(inner, fate, why, notes);
    }
}

/// The values that directives have by default.
const USUAL: &[(&str, &str)] = &[
    ("charset", "off"),
    ("gzip gunzip brotli expires auth_basic autoindex ssl_stapling proxy_intercept_errors", "off"),
    ("proxy_ignore_client_abort underscores_in_headers", "off"),
    ("merge_slashes proxy_pass_request_body ignore_invalid_headers", "on"),
    ("proxy_pass_request_headers", "on"),
    ("satisfy", "all"),
];

fn is_usual(directive: &Directive) -> bool {
    find(USUAL, &directive.name).is_some_and(|word| *word == directive.word(0))
}

/// A time: `60`, `60s`, `1m 30s`, `500ms`. Longer than a year, it is no time-out.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (minute, hour, day) = (60_000, 3_600_000, 86_400_000);
    let short = [("ms", 1), ("", 1000), ("s", 1000), ("m", minute), ("h", hour), ("d", day)];
    let long = [("w", 7 * day), ("M", 30 * day), ("y", 365 * day)];
    let units = [&short[..], &long].concat();
    let mut parts = text.split_whitespace().map(|part| amount(part, &units));
    let total_ms = parts.try_fold(0_u64, |total, part| total.checked_add(part?))?;
    Some(Duration::from_millis(total_ms)).filter(|time| *time <= Duration::from_secs(366 * 86_400))
}

/// A size: `8k`, `10m`, `1g`, or bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    let units = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
    amount(&text.to_ascii_lowercase(), &units).filter(|bytes| *bytes < 1 << 50)
}

/// A number with one of these units.
fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

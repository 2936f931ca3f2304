//! A table of servers: lines as each one writes them (made from its documentation), with known
//! truth. For each row, counts, stamps, latencies, statuses, methods and bytes are exact, and lines
//! that are no requests are counted as what they are.
//!
//! The same requests are written by every server: latencies from nothing to hours, every kind of
//! status, sizes from nothing to gigabytes.

mod span;
mod units;

use super::super::*;
use crate::survey::show::date;
use crate::survey::{SurveySpec, survey};

/// 2026-11-28 10:00:00 UTC.
const BEGUN_MS: i64 = 1_795_860_000_000;

/// A request as it was.
#[derive(Clone, Copy, Debug)]
struct Truth {
    end_ms: i64,
    life_ms: i64,
    status: u16,
    bytes: u64,
    method: &'static str,
}

impl Truth {
    fn all() -> Vec<Truth> {
        let lives_ms = [0, 1, 5, 20, 100, 1_000, 61_001, 3_600_000, 7, 12_345];
        let statuses = [200, 304, 404, 200, 500, 206, 301, 499, 200, 503];
        let bytes = [0, 9, 10, 150, 1_324, 99_999, 5_000_000_000, 1, 12, 700];
        let methods = ["GET", "POST", "HEAD", "GET", "PUT", "DELETE", "GET", "OPTIONS"];
        (0..40usize)
            .map(|n| Truth {
                end_ms: BEGUN_MS + 1_377 * n as i64,
                life_ms: lives_ms[n % lives_ms.len()],
                status: statuses[n * 3 % statuses.len()],
                bytes: bytes[n * 7 % bytes.len()],
                method: methods[n % methods.len()],
            })
            .collect()
    }

    fn start_ms(&self) -> i64 {
        self.end_ms - self.life_ms
    }

    /// `"GET /a?b=1 HTTP/1.1"`, without the quotes.
    fn request(&self) -> String {
        format!("{} /a?b=1 HTTP/1.1", self.method)
    }

    /// `200 1324`.
    fn answer(&self) -> String {
        format!("{} {}", self.status, self.bytes)
    }
}

/// `28/Nov/2026:10:00:00`.
fn civil(ms: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = date(ms.div_euclid(1000));
    let month: usize = date[5..7].parse().expect("a month");
    format!("{}/{}/{}:{}", &date[8..10], MONTHS[month - 1], &date[..4], &date[11..])
}

/// `[28/Nov/2026:10:00:00 +0000]`.
fn clf_time(ms: i64) -> String {
    format!("[{} +0000]", civil(ms))
}

/// `2026-11-28T10:00:00.123Z`.
fn iso(ms: i64) -> String {
    format!("{}.{:03}Z", date(ms.div_euclid(1000)).replace(' ', "T"), ms.rem_euclid(1000))
}

/// `1795860000.123`.
fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000))
}

/// What a format has.
#[derive(Clone, Copy)]
struct Has {
    instant: Instant,
    /// The grain of the stamps, ms.
    grain_ms: i64,
    /// The unit of the latencies, ms; 0 if there are none.
    unit_ms: i64,
    bytes: bool,
    /// Whether the stamps are in local time.
    local: bool,
}

const COMMON: Has =
    Has { instant: Instant::Start, grain_ms: 1000, unit_ms: 0, bytes: true, local: false };
const MS_END: Has = Has { instant: Instant::End, grain_ms: 1, unit_ms: 1, ..COMMON };
const MS_START: Has = Has { grain_ms: 1, unit_ms: 1, ..COMMON };

/// A server: its name, the choice of the format, the format that is found, what it has, the first
/// line of its log if that differs, and a line.
type Row = (&'static str, &'static str, &'static str, Has, &'static str, fn(&Truth) -> String);

fn combined(t: &Truth, stamp_ms: i64) -> String {
    let (time, request, answer) = (clf_time(stamp_ms), t.request(), t.answer());
    format!("192.0.2.1 - - {time} \"{request}\" {answer} \"-\" \"curl/8 (x; \\\"y\\\")\"")
}

fn common(t: &Truth) -> String {
    let (time, request, answer) = (clf_time(t.start_ms()), t.request(), t.answer());
    format!("192.0.2.1 - frank {time} \"{request}\" {answer}")
}

fn haproxy(t: &Truth, captured: &str, after: &str) -> String {
    let (ms, life, request) = (t.start_ms(), t.life_ms, t.request());
    format!(
        "192.0.2.1:5000 [{}.{:03}] fe be/s1 0/0/1/{life}/{life} {} {} - - ---- 1/1/0/0/0 0/0 \
         {captured}\"{request}\"{after}",
        civil(ms),
        ms.rem_euclid(1000),
        t.status,
        t.bytes
    )
}

fn squid(t: &Truth) -> String {
    format!(
        "{} {:6} 192.0.2.1 TCP_MISS/{:03} {} {} http://h.example/a?b - HIER_DIRECT/192.0.2.9 t/h",
        seconds(t.end_ms),
        t.life_ms,
        t.status,
        t.bytes,
        t.method
    )
}

fn caddy(t: &Truth) -> String {
    format!(
        "{{\"level\":\"info\",\"ts\":{},\"logger\":\"http.log.access\",\"msg\":\"handled \
         request\",\"request\":{{\"remote_ip\":\"192.0.2.1\",\"proto\":\"HTTP/2.0\",\"method\":\
         \"{}\",\"uri\":\"/a\",\"headers\":{{\"A\":[\"b\"]}}}},\"bytes_read\":0,\"user_id\":\"\",\
         \"duration\":{},\"size\":{},\"status\":{},\"resp_headers\":{{}}}}",
        seconds(t.end_ms),
        t.method,
        seconds(t.life_ms),
        t.bytes,
        t.status
    )
}

/// A JSON object with these members.
fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn quoted(text: impl fmt::Display) -> String {
    format!("\"{text}\"")
}

fn plain_json(t: &Truth, elapsed: (&'static str, String)) -> String {
    object(&[
        ("time", quoted(iso(t.end_ms))),
        ("method", quoted(t.method)),
        ("status", t.status.to_string()),
        ("bytes", t.bytes.to_string()),
        elapsed,
    ])
}

fn rows() -> Vec<Row> {
    vec![
        ("nginx combined", "auto", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        ("nginx main", "auto", "combined", COMMON, "", |t| {
            combined(t, t.start_ms()) + " \"203.0.113.5\""
        }),
        (
            "nginx custom",
            "nginx:$msec $request_time $status $bytes_sent \"$request\"",
            "nginx:",
            MS_END,
            "",
            |t| {
                format!(
                    "{} {} {} \"{}\"",
                    seconds(t.end_ms),
                    seconds(t.life_ms),
                    t.answer(),
                    t.request()
                )
            },
        ),
        ("nginx json", "auto", "json", MS_END, "", |t| {
            object(&[
                ("msec", quoted(seconds(t.end_ms))),
                ("request_time", quoted(seconds(t.life_ms))),
                ("request", quoted(t.request())),
                ("status", quoted(t.status)),
                ("bytes_sent", quoted(t.bytes)),
            ])
        }),
        (
            "ingress-nginx",
            "auto",
            "ingress",
            Has { instant: Instant::End, unit_ms: 1, ..COMMON },
            "",
            |t| {
                format!(
                    "{} 125 {} [default-web-80] [] 10.0.0.7:80 5 0.001 {} 4be1f8a2",
                    combined(t, t.end_ms),
                    seconds(t.life_ms),
                    t.status
                )
            },
        ),
        ("Kong", "auto", "json", MS_START, "", |t| {
            format!(
                "{{\"request\":{{\"method\":\"{}\",\"size\":5}},\"response\":{{\"status\":{},\"siz\
                    e\":{}}},\"latencies\":{{\"request\":{},\"kong\":1,\"proxy\":2}},\"started_at\
                    \":{}}}",
                t.method,
                t.status,
                t.bytes,
                t.life_ms,
                t.start_ms()
            )
        }),
        ("Apache common", "auto", "clf", COMMON, "", common),
        ("Apache combined", "combined", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        ("Apache vhost_combined", "auto", "combined", COMMON, "", |t| {
            format!("www.example.org:443 {}", combined(t, t.start_ms()))
        }),
        (
            "Apache %D",
            "apache:%h %l %u %t \"%r\" %>s %O %D",
            "apache:",
            Has { unit_ms: 1, ..COMMON },
            "",
            |t| format!("{} {}", common(t), t.life_ms * 1000),
        ),
        (
            "Apache %T",
            "apache:%h %l %u %t \"%r\" %>s %b %T",
            "apache:",
            Has { unit_ms: 1000, ..COMMON },
            "",
            |t| format!("{} {}", common(t), t.life_ms / 1000),
        ),
        ("Apache %{ms}T", "apache:%{end:msec}t %{ms}T %>s %B \"%r\"", "apache:", MS_END, "", |t| {
            format!("{} {} {} \"{}\"", t.end_ms, t.life_ms, t.answer(), t.request())
        }),
        ("Squid native", "auto", "squid", MS_END, "", squid),
        ("Squid combined", "auto", "combined", COMMON, "", |t| {
            combined(t, t.start_ms()) + " TCP_MISS:HIER_DIRECT"
        }),
        ("Squid through syslog", "auto", "squid", MS_END, "", |t| {
            format!("<190>Nov 28 10:00:00 proxy squid[17]: {}", squid(t))
        }),
        ("HAProxy httplog", "auto", "haproxy", Has { local: true, ..MS_START }, "", |t| {
            haproxy(t, "", "")
        }),
        ("HAProxy httpslog", "auto", "haproxy", Has { local: true, ..MS_START }, "", |t| {
            haproxy(t, "", " 0/0000000000000000/0/0/0 example.org/TLSv1.3/TLS_AES_256_GCM_SHA384")
        }),
        ("HAProxy with captures", "auto", "haproxy", Has { local: true, ..MS_START }, "", |t| {
            haproxy(t, "{Mozilla \"x\" y|h} {} ", "")
        }),
        ("HAProxy cut by syslog", "auto", "haproxy", Has { local: true, ..MS_START }, "", |t| {
            let line = haproxy(t, "", "");
            line[..line.len() - 9].to_owned()
        }),
        ("HAProxy through rsyslog", "auto", "haproxy", Has { local: true, ..MS_START }, "", |t| {
            format!("<134>Nov 28 10:00:00 lb haproxy[17]: {}", haproxy(t, "", ""))
        }),
        ("varnishncsa", "varnishncsa", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        (
            "varnishncsa -F",
            "apache:%{%s}t %D %s %b \"%r\" %{Varnish:hitmiss}x",
            "apache:",
            Has { unit_ms: 1, ..COMMON },
            "",
            |t| {
                format!(
                    "{} {} {} \"{}\" miss",
                    t.start_ms().div_euclid(1000),
                    t.life_ms * 1000,
                    t.answer(),
                    t.request()
                )
            },
        ),
        ("Caddy", "auto", "json", MS_END, "", caddy),
        ("Caddy on a console", "auto", "json", MS_END, "", |t| {
            format!("{}\tinfo\thttp.log.access\thandled request\t{}", iso(t.end_ms), caddy(t))
        }),
        ("Traefik CLF", "auto", "traefik", Has { unit_ms: 1, ..COMMON }, "", |t| {
            format!(
                "{} 7 \"web@docker\" \"http://10.0.0.7:80\" {}ms",
                combined(t, t.start_ms()),
                t.life_ms
            )
        }),
        ("Traefik JSON", "auto", "json", MS_START, "", |t| {
            object(&[
                ("DownstreamContentSize", t.bytes.to_string()),
                ("DownstreamStatus", t.status.to_string()),
                ("Duration", (t.life_ms * 1_000_000).to_string()),
                ("OriginDuration", "5".into()),
                ("RequestMethod", quoted(t.method)),
                ("StartLocal", quoted(iso(t.start_ms()))),
                ("StartUTC", quoted(iso(t.start_ms()))),
                ("level", quoted("info")),
                ("time", quoted(iso(t.end_ms))),
            ])
        }),
        ("Envoy text", "auto", "envoy", MS_START, "", |t| {
            format!(
                "[{}] \"{}\" {} - 0 {} {} 5 \"-\" \"curl\" \"id\" \"h\" \"10.0.0.7:80\"",
                iso(t.start_ms()),
                t.request(),
                t.status,
                t.bytes,
                t.life_ms
            )
        }),
        ("Envoy JSON", "auto", "json", MS_START, "", |t| {
            object(&[
                ("start_time", quoted(iso(t.start_ms()))),
                ("method", quoted(t.method)),
                ("response_code", t.status.to_string()),
                ("response_flags", quoted("-")),
                ("bytes_received", "0".into()),
                ("bytes_sent", t.bytes.to_string()),
                ("duration", t.life_ms.to_string()),
            ])
        }),
        ("Istio text", "auto", "envoy", MS_START, "", |t| {
            format!(
                "[{}] \"{}\" {} - via_upstream - \"-\" 0 {} {} 5 \"-\" \"curl\" \"id\" \"h\" \
                    \"10.0.0.7:80\" outbound|80||x 10.0.0.1:5 - default",
                iso(t.start_ms()),
                t.request(),
                t.status,
                t.bytes,
                t.life_ms
            )
        }),
        (
            "IIS",
            "auto",
            "w3c:",
            Has { instant: Instant::End, unit_ms: 1, ..COMMON },
            "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time s-ip \
                cs-method cs-uri-stem cs(User-Agent) sc-status sc-substatus sc-win32-status \
                sc-bytes cs-bytes time-taken\n",
            |t| {
                format!(
                    "{} 10.0.0.1 {} /a curl/8+(x) {} 0 0 {} 5 {}",
                    date(t.end_ms.div_euclid(1000)),
                    t.method,
                    t.status,
                    t.bytes,
                    t.life_ms
                )
            },
        ),
        (
            "IIS, columns given",
            "w3c:date time cs-method sc-status sc-bytes time-taken",
            "w3c:",
            Has { instant: Instant::End, unit_ms: 1, ..COMMON },
            "",
            |t| {
                format!(
                    "{} {} {} {} {}",
                    date(t.end_ms.div_euclid(1000)),
                    t.method,
                    t.status,
                    t.bytes,
                    t.life_ms
                )
            },
        ),
        (
            "CloudFront",
            "auto",
            "w3c:",
            Has { instant: Instant::End, unit_ms: 1, ..COMMON },
            "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) \
                cs-uri-stem sc-status x-edge-result-type cs-protocol time-taken\n",
            |t| {
                format!(
                    "{}\tLHR6\t{}\t192.0.2.1\t{}\td1.cloudfront.net\t/a\t{}\tMiss\thttps\t{}",
                    date(t.end_ms.div_euclid(1000)).replace(' ', "\t"),
                    t.bytes,
                    t.method,
                    t.status,
                    seconds(t.life_ms)
                )
            },
        ),
        ("ELB classic", "auto", "elb", MS_START, "", |t| {
            format!(
                "{} my-lb 192.0.2.1:2817 10.0.0.7:80 0.000000 {} 0.000000 {} {} 0 {} \"{}\" \
                    \"curl\" - -",
                iso(t.start_ms()),
                seconds(t.life_ms),
                t.status,
                t.status,
                t.bytes,
                t.request()
            )
        }),
        ("ALB", "auto", "alb", MS_END, "", |t| {
            format!(
                "https {} app/my/50dc 192.0.2.1:2817 10.0.0.7:80 0.000 {} 0.000 {} {} 34 {} \
                    \"{}\" \"curl\" ECDHE TLSv1.2 arn:x \"Root=1\" \"h\" \"arn\" 0 {} \"forward\" \
                    \"-\" \"-\" \"10.0.0.7:80\" \"200\" \"-\" \"-\"",
                iso(t.end_ms),
                seconds(t.life_ms),
                t.status,
                t.status,
                t.bytes,
                t.request(),
                iso(t.start_ms())
            )
        }),
        ("Fastly", "auto", "clf", COMMON, "", |t| {
            format!("<134>2026-11-28T10:00:00Z cache-lhr6 fastly[123]: {}", common(t))
        }),
        ("Fastly JSON", "auto", "json", MS_START, "", |t| {
            object(&[
                ("start_time", quoted(iso(t.start_ms()))),
                ("request_method", quoted(t.method)),
                ("response_status", t.status.to_string()),
                ("resp_size", t.bytes.to_string()),
                ("time_elapsed_usec", (t.life_ms * 1000).to_string()),
            ])
        }),
        ("Cloudflare", "auto", "json", MS_END, "", |t| {
            object(&[
                ("EdgeEndTimestamp", (t.end_ms * 1_000_000).to_string()),
                ("ClientRequestMethod", quoted(t.method)),
                ("EdgeResponseStatus", t.status.to_string()),
                ("EdgeResponseBytes", t.bytes.to_string()),
                ("elapsedMs", t.life_ms.to_string()),
            ])
        }),
        ("S3", "auto", "s3", Has { unit_ms: 1, ..COMMON }, "", |t| {
            format!(
                "79a59df9 bucket {} 192.0.2.3 79a59df9 3E57427F REST.GET.OBJECT a \"{}\" {} - {} \
                 4406583 {} 7 \"-\" \"S3Console/0.4\" - s9lzHY= SigV4 ECDHE-RSA-AES128-SHA \
                 AuthHeader h.example TLSV1.2 - Yes",
                clf_time(t.start_ms()),
                t.request(),
                t.status,
                t.bytes,
                t.life_ms
            )
        }),
        (
            "Kestrel",
            "auto",
            "w3c:",
            Has { unit_ms: 1, bytes: false, ..COMMON },
            "#Version: 1.0\n#Start-Date: 2026-11-28 10:00:00\n#Fields: date time c-ip cs-username \
             s-computername s-ip s-port cs-method cs-uri-stem cs-uri-query sc-status time-taken \
             cs-version cs-host cs(User-Agent) cs(Referer)\n",
            |t| {
                format!(
                    "{} ::1 - HOST ::1 5000 {} /a - {} {}.0000 HTTP/1.1 localhost:5000 curl/8 -",
                    date(t.start_ms().div_euclid(1000)),
                    t.method,
                    t.status,
                    t.life_ms
                )
            },
        ),
        ("Azure's Application Gateway", "auto", "json", MS_END, "", |t| {
            let properties = object(&[
                ("instanceId", quoted("appgw_0")),
                ("httpMethod", quoted(t.method)),
                ("httpStatus", t.status.to_string()),
                ("sentBytes", t.bytes.to_string()),
                ("timeTaken", seconds(t.life_ms)),
            ]);
            object(&[("timeStamp", quoted(iso(t.end_ms))), ("properties", properties)])
        }),
        ("Amazon's API Gateway", "auto", "json", COMMON, "", |t| {
            object(&[
                ("requestId", quoted("x")),
                ("requestTime", quoted(clf_time(t.start_ms()).trim_matches(['[', ']']))),
                ("httpMethod", quoted(t.method)),
                ("status", quoted(t.status)),
                ("responseLength", quoted(t.bytes)),
            ])
        }),
        ("gunicorn", "auto", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        ("Puma", "auto", "clf", COMMON, "", |t| format!("{} 0.0021", common(t))),
        ("hypercorn", "auto", "combined", COMMON, "", |t| {
            format!("[2026-11-28 10:00:00 +0000] [17] [INFO] {}", combined(t, t.start_ms()))
        }),
        ("lograge in Ruby's Logger", "auto", "logfmt", Has { bytes: false, ..MS_END }, "", |t| {
            format!(
                "I, [{} #17]  INFO -- : [4f3c-9] method={} path=/a controller=A action=b \
                     status={} duration={}.00",
                iso(t.end_ms),
                t.method,
                t.status,
                t.life_ms
            )
        }),
        ("Google's load balancer", "auto", "json", MS_END, "", |t| {
            format!(
                "{{\"httpRequest\":{{\"latency\":\"{}s\",\"requestMethod\":\"{}\",\"responseSize\"\
                    :\"{}\",\"status\":{}}},\"timestamp\":\"{}\"}}",
                seconds(t.life_ms),
                t.method,
                t.bytes,
                t.status,
                iso(t.end_ms)
            )
        }),
        ("Heroku's router", "auto", "logfmt", Has { ..MS_END }, "", |t| {
            format!(
                "{} heroku[router]: at=info method={} path=\"/a\" host=h dyno=web.1 connect=1ms \
                    service={}ms status={} bytes={}",
                iso(t.end_ms),
                t.method,
                t.life_ms,
                t.status,
                t.bytes
            )
        }),
        ("logfmt", "auto", "logfmt", MS_END, "", |t| {
            format!(
                "ts={} level=info msg=\"a \\\"b\\\"\" method={} status={} duration={}ms size={}",
                iso(t.end_ms),
                t.method,
                t.status,
                t.life_ms,
                t.bytes
            )
        }),
        ("Node morgan combined", "auto", "combined", COMMON, "", |t| {
            combined(t, t.start_ms()).replace("\\\"", "\"")
        }),
        ("Node pino-http", "auto", "json", MS_END, "", |t| {
            format!(
                "{{\"level\":30,\"time\":{},\"pid\":17,\"req\":{{\"id\":1,\"method\":\"{}\"}},\"re\
                    s\":{{\"statusCode\":{}}},\"responseTime\":{},\"size\":{},\"msg\":\"request \
                    completed\"}}",
                t.end_ms, t.method, t.status, t.life_ms, t.bytes
            )
        }),
        ("Python gunicorn", "auto", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        ("Python http.server", "auto", "clf", Has { local: true, ..COMMON }, "", |t| {
            format!(
                "192.0.2.1 - - [{}] \"{}\" {}",
                civil(t.start_ms()).replacen(':', " ", 1),
                t.request(),
                t.answer()
            )
        }),
        ("Django", "auto", "clf", Has { local: true, ..COMMON }, "", |t| {
            format!(
                "[{}] \"{}\" {}",
                civil(t.start_ms()).replacen(':', " ", 1),
                t.request(),
                t.answer()
            )
        }),
        ("aiohttp", "auto", "combined", COMMON, "", |t| {
            format!(
                "192.0.2.1 {} \"{}\" {} \"-\" \"curl\"",
                clf_time(t.start_ms()),
                t.request(),
                t.answer()
            )
        }),
        ("Go gorilla", "auto", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        (
            "Go Gin",
            "auto",
            "gin",
            Has { instant: Instant::End, unit_ms: 1, bytes: false, local: true, ..COMMON },
            "",
            |t| {
                format!(
                    "[GIN] {} |{:4} |{:12} |       192.0.2.1 | {:7}  \"/a\"",
                    date(t.end_ms.div_euclid(1000)).replace('-', "/").replace(' ', " - "),
                    t.status,
                    format!("{}ms", t.life_ms),
                    t.method
                )
            },
        ),
        (
            "Go chi",
            "auto",
            "chi",
            Has { instant: Instant::End, unit_ms: 1, local: true, ..COMMON },
            "",
            |t| {
                format!(
                    "{} \"{}\" from 192.0.2.1:5000 - {} {}B in {}ms",
                    date(t.end_ms.div_euclid(1000)).replace('-', "/"),
                    t.request(),
                    t.status,
                    t.bytes,
                    t.life_ms
                )
            },
        ),
        ("Go Echo", "auto", "json", MS_END, "", |t| {
            object(&[
                ("time", quoted(iso(t.end_ms))),
                ("method", quoted(t.method)),
                ("status", t.status.to_string()),
                ("error", quoted("")),
                ("latency", (t.life_ms * 1_000_000).to_string()),
                ("latency_human", quoted(format!("{}ms", t.life_ms))),
                ("bytes_in", "0".into()),
                ("bytes_out", t.bytes.to_string()),
            ])
        }),
        ("Go slog", "auto", "json", MS_END, "", |t| {
            plain_json(t, ("duration", quoted(format!("{}ms", t.life_ms))))
        }),
        ("PHP-FPM", "auto", "phpfpm", Has { bytes: false, ..COMMON }, "", |t| {
            format!(
                "127.0.0.1 -  {} +0000 \"{} /a.php\" {}",
                civil(t.start_ms()),
                t.method,
                t.status
            )
        }),
        ("Tomcat's valve", "auto", "clf", COMMON, "", common),
        ("Tomcat with ms", "auto", "clf", Has { grain_ms: 1, ..COMMON }, "", |t| {
            format!(
                "192.0.2.1 - - [{}.{:03} +0000] \"{}\" {}",
                civil(t.start_ms()),
                t.start_ms().rem_euclid(1000),
                t.request(),
                t.answer()
            )
        }),
        ("Jetty", "auto", "combined", COMMON, "", |t| {
            format!("{} {}", combined(t, t.start_ms()), t.life_ms)
        }),
        ("Spring", "auto", "json", MS_END, "", |t| {
            plain_json(t, ("elapsed_time_ms", t.life_ms.to_string()))
        }),
        ("Rails lograge", "auto", "json", MS_END, "", |t| {
            object(&[
                ("@timestamp", quoted(iso(t.end_ms))),
                ("method", quoted(t.method)),
                ("controller", quoted("A")),
                ("action", quoted("b")),
                ("status", t.status.to_string()),
                ("duration", format!("{}.00", t.life_ms)),
                ("bytes", t.bytes.to_string()),
            ])
        }),
        ("ASP.NET Serilog", "auto", "json", MS_END, "", |t| {
            object(&[
                ("@t", quoted(iso(t.end_ms))),
                ("RequestMethod", quoted(t.method)),
                ("StatusCode", t.status.to_string()),
                ("Elapsed", format!("{}.0", t.life_ms)),
                ("size", t.bytes.to_string()),
            ])
        }),
        ("lighttpd", "auto", "combined", COMMON, "", |t| {
            combined(t, t.start_ms()).replace(" - - ", " www.example.org - ")
        }),
        ("h2o", "auto", "combined", COMMON, "", |t| combined(t, t.start_ms())),
        ("Kubernetes CRI", "auto", "combined", COMMON, "", |t| {
            format!("{} stdout F {}", iso(t.end_ms), combined(t, t.start_ms()))
        }),
        ("Kubernetes CRI, JSON", "auto", "json", MS_END, "", |t| {
            format!("{} stdout F {}", iso(t.end_ms), caddy(t))
        }),
        ("docker json-file", "auto", "squid", MS_END, "", |t| {
            object(&[
                ("log", quoted(squid(t) + "\\n")),
                ("stream", quoted("stdout")),
                ("time", quoted(iso(t.end_ms))),
            ])
        }),
        ("docker json-file, JSON", "auto", "json", MS_END, "", |t| {
            object(&[
                ("log", quoted(caddy(t).replace('"', "\\\"") + "\\n")),
                ("stream", quoted("stdout")),
                ("time", quoted(iso(t.end_ms))),
            ])
        }),
        ("docker logs -t, JSON without a time", "auto", "json", MS_END, "", |t| {
            format!(
                "{} {}",
                iso(t.end_ms),
                object(&[
                    ("method", quoted(t.method)),
                    ("status", t.status.to_string()),
                    ("size", t.bytes.to_string()),
                    ("took_ms", t.life_ms.to_string())
                ])
            )
        }),
        ("docker compose", "auto", "squid", MS_END, "", |t| {
            format!("\u{1b}[36mproxy-1  |\u{1b}[0m {}", squid(t))
        }),
        ("docker compose, JSON", "auto", "json", MS_END, "", |t| format!("web-1  | {}", caddy(t))),
        ("journalctl -o short-iso", "auto", "squid", MS_END, "", |t| {
            format!("2026-11-28T10:00:00+0000 host squid[17]: {}", squid(t))
        }),
        ("JSON in s", "auto", "json", MS_END, "", |t| {
            plain_json(t, ("duration_seconds", seconds(t.life_ms)))
        }),
        ("JSON in us", "auto", "json", MS_END, "", |t| {
            plain_json(t, ("latencyUs", (t.life_ms * 1000).to_string()))
        }),
        ("JSON in ns", "auto", "json", MS_END, "", |t| {
            plain_json(t, ("elapsed_ns", (t.life_ms * 1_000_000).to_string()))
        }),
        ("JSON with keys", "json:elapsed_s=took,status=code,time=at", "json:", MS_END, "", |t| {
            object(&[
                ("at", t.end_ms.to_string()),
                ("method", quoted(t.method)),
                ("code", t.status.to_string()),
                ("size", t.bytes.to_string()),
                ("took", seconds(t.life_ms)),
            ])
        }),
    ]
}

/// The request that a line must be read as.
fn expected(truth: &Truth, has: &Has) -> Request {
    let ms = if has.instant == Instant::End { truth.end_ms } else { truth.start_ms() };
    let ms = ms.div_euclid(has.grain_ms) * has.grain_ms;
    let ms = if has.local {
        let date = date(ms.div_euclid(1000));
        let part = |at: usize| date[at..at + 2].parse().expect("two digits");
        let (day, time) = ((2026, part(5), part(8)), (part(11), part(14), part(17)));
        crate::zone::local_to_unix(day, time).expect("a day of 2026") * 1000 + ms.rem_euclid(1000)
    } else {
        ms
    };
    let elapsed_us = (has.unit_ms > 0)
        .then(|| (truth.life_ms / has.unit_ms.max(1) * has.unit_ms).unsigned_abs() * 1000);
    let mut facts = Facts { status: Some(truth.status), ..Facts::default() };
    facts.take_method(truth.method.as_bytes());
    facts.bytes = has.bytes.then_some(truth.bytes);
    Request::lived(ms * NS_PER_MS, has.grain_ms * NS_PER_MS, has.instant, elapsed_us, facts)
}

/// The outcome by status, the method, the size. A cache's own words and TLS depend on the server.
fn essence(request: &Request) -> String {
    let class = request.class;
    let outcome = if class.outcome() == "error" { "error" } else { "served" };
    let Request { stamp_ns, start_ns, end_ns, elapsed_us, bytes, .. } = request;
    let (method, size) = (class.method(), class.size());
    format!("{stamp_ns} {start_ns} {end_ns} {elapsed_us:?} {bytes} {outcome} {method} {size}")
}

#[test]
fn every_server_is_read_exactly() {
    let rows = rows();
    assert!(rows.len() >= 60, "{} servers", rows.len());
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("log");
    for (name, choice, format, has, head, line) in rows {
        let truths = Truth::all();
        let choice: FormatChoice = choice.parse().unwrap();
        let stamps = &mut Stamps::default();
        let lines: Vec<String> = truths.iter().map(line).collect();
        let found = head.lines().chain([lines[0].as_str()]);
        let found = found.filter_map(|line| choice.detect(line.as_bytes(), stamps)).next();
        let found = found.unwrap_or_else(|| panic!("{name}: no format for {}", lines[0]));
        assert!(found.to_string().starts_with(format), "{name}: {found}");
        assert_eq!(found.has_elapsed(), has.unit_ms > 0, "{name}: {}", found.declares());
        for (truth, line) in truths.iter().zip(&lines) {
            let Line::Request(request) = found.read(line.as_bytes(), stamps) else {
                panic!("{name}: {line} is {:?}", found.read(line.as_bytes(), stamps));
            };
            assert_eq!(essence(&request), essence(&expected(truth, &has)), "{name}: {line}");
        }
        // The whole log, with lines that are no requests, and a line that no format understands.
        let text = format!("{head}{}\n\n# comment\nnonsense\n", lines.join("\n"));
        std::fs::write(&path, text).unwrap();
        let spec = SurveySpec { files: vec![path.clone()], format: choice, ..Default::default() };
        let survey = survey(&spec).unwrap();
        let heads = head.lines().count() as u64;
        let counts = (survey.requests, survey.bad, survey.blank, survey.events, survey.lines);
        assert_eq!(counts, (40, 1, heads + 2, 0, heads + 43), "{name}: {survey}");
        let bytes: u64 = truths.iter().map(|truth| truth.bytes).sum();
        assert_eq!(survey.bytes, if has.bytes { bytes } else { 0 }, "{name}");
        let errors = truths.iter().filter(|truth| truth.status >= 400).count() as u64;
        let classes = survey.classes.iter().filter(|class| class.outcome == "error");
        assert_eq!(classes.map(|class| class.requests).sum::<u64>(), errors, "{name}");
        let longest_us = survey.latency.map_or(0, |latency| latency.max_us);
        let expected_us = if has.unit_ms > 0 { 3_600_000_000u64 } else { 0 };
        assert!(longest_us.abs_diff(expected_us) <= expected_us / 1000, "{name}: {longest_us}");
    }
}

#[test]
fn what_is_no_request_is_counted_as_what_it_is() {
    let json = r#"{"time":"2026-11-28T10:00:00Z","method":"GET","status":200,"bytes":5}"#;
    let haproxy = "192.0.2.1:5 [28/Nov/2026:10:00:00.001] fe be/s1 0/0/1/5/6 200 10 - - ---- \
        1/1/0/0/0 0/0 \"GET / HTTP/1.1\"";
    let event = |text: &str| text.to_owned();
    for (known, line, expected) in [
        // Any object with a time was a request.
        (
            json,
            event(r#"{"time":"2026-11-28T10:00:00Z","level":"info","msg":"listening"}"#),
            "event",
        ),
        (json, event(r#"{"time":"2026-11-28T10:00:00Z","status":"started","bytes":5}"#), "event"),
        (
            json,
            event(r#"{"time":"2026-11-28T10:00:00Z","method":"reload","duration_ms":5}"#),
            "event",
        ),
        (json, event(r#"{"time":"2026-11-28T10:00:00Z","status":0,"msg":"exit"}"#), "event"),
        (json, event(r#"{"level":"info","msg":"no time"}"#), "event"),
        (json, event(r#"{"status":200,"method":"GET"}"#), "bad"),
        (json, event(r#"{"time":"2027-02-29T10:00:00Z","status":200}"#), "bad"),
        (json, event(r#"{"time":"2026-11-28T10:00:00Z","status":200"#), "bad"),
        (json, format!("\u{feff}{json}"), "request"),
        (json, event("  "), "blank"),
        (json, event("# restarted"), "blank"),
        (haproxy, haproxy.replace("0/0/1/5/6 200 10 - - ----", "1/0/5000 212 --"), "event"),
        (haproxy, event("Connect from 192.0.2.1:5 to 192.0.2.2:80 (fe/HTTP)"), "bad"),
        (
            haproxy,
            event("Nov 28 10:00:00 lb haproxy[17]: Connect from 192.0.2.1:5 to x (fe/HTTP)"),
            "event",
        ),
        (
            haproxy,
            event("192.0.2.1:5 [28/Nov/2026:10:00:00.001] fe/1: SSL handshake failure"),
            "event",
        ),
        (haproxy, haproxy.replace("28/Nov/2026", "31/Nov/2026"), "bad"),
        (haproxy, haproxy.replace("\"GET / HTTP/1.1\"", "\"GE"), "bad"),
    ] {
        let stamps = &mut Stamps::default();
        let format = Format::detect(known.as_bytes(), stamps).unwrap();
        let read = match format.read(line.as_bytes(), stamps) {
            Line::Request(_) => "request",
            Line::Blank => "blank",
            Line::Event => "event",
            Line::Bad => "bad",
        };
        assert_eq!(read, expected, "{line}");
    }
}

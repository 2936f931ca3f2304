//! `POST /purge` of the admin address.
//!
//! The query or a JSON body names what to purge: exactly one of `url`, `prefix`, `tag` (one,
//! or several separated by spaces or commas) and `all`, and perhaps `soft`. The answer says what
//! was done in the words that purges know it by. In a cluster it names the members that have purged
//! and those that have not, and has the status 202 while there are any of the latter.

use std::sync::Arc;

use serde::Deserialize;
use store::{Concerns, Mark, PURGE_PREFIX_BYTES_MAX};

use crate::call::{Call, Reply};
use cache::changes::Changes;
use cache::paths::Paths;
use cache::purge_answer::{self, Done, Target};
use exchange::Worker;
use exchange::spread;
use policy::reading::Reading;
use runtime::time;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    url: Option<String>,
    prefix: Option<String>,
    tag: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    soft: bool,
}

/// Carries out a call.
pub(crate) async fn answer(call: &Call, worker: &Worker) -> Reply {
    let (cache, routes) = (&*worker.cache, Arc::clone(&worker.snapshot().routes));
    let target = order(call).and_then(|order| Ok((target(&order)?, order.soft)));
    let (purged, soft) = match target {
        Ok(found) => found,
        Err(text) => return Reply::error(400, text),
    };
    let empties = purged == Target::All && !soft;
    let before = if empties { cache.count_all().await } else { None };
    let now_ms = time::wall_ms();
    let mut changes = Changes::default();
    let mut add = |(mark, made): (Mark, Changes)| {
        changes.append(made);
        mark.generation
    };
    let one = |what| {
        let (mark, made) = cache.purge(what, soft, now_ms);
        (mark, Changes::of(made))
    };
    let generation = match &purged {
        Target::Url(url) => {
            let (authority, path) = split(url);
            let stored = routes.stored_paths(Reading::of(authority, path));
            let paths = Paths::new(path, &stored);
            add(cache.purge_url(authority, paths, soft, now_ms))
        }
        Target::Prefix(prefix) => add(one(Concerns::Prefix(prefix.as_bytes()))),
        Target::Tags(tags) => tags.iter().fold(0, |_, tag| add(one(Concerns::Tag(tag.as_bytes())))),
        Target::All => add(one(Concerns::All)),
    };
    let notices = changes.notices();
    let responses = cache.count_after(&notices, before).await;
    let durable = changes.durable(cache).await;
    let cluster = spread::purge(worker, &worker.snapshot(), notices).await;
    let responses = purge_answer::sum(responses, cluster.as_ref());
    if let (Target::Url(url), false) = (&purged, soft) {
        let (authority, path) = split(url);
        exchange::clear_purged(worker, &worker.snapshot(), authority, path).await;
    }
    let durable = cache.disk.is_some().then_some(durable);
    let done = Done { purged, soft, generation, responses, durable, cluster };
    Reply::json(done.status(), &done)
}

/// The authority of a URL as purges use it, and its path and query.
fn split(url: &str) -> (&[u8], &[u8]) {
    url.as_bytes().split_at(url.find('/').unwrap_or(url.len()))
}

fn order(call: &Call) -> Result<Order, String> {
    if !call.body.is_empty() {
        if !call.query.is_empty() {
            return Err("say what to purge in the query or in the body, not in both".into());
        }
        return serde_json::from_slice(&call.body).map_err(|error| {
            format!("the body is not the JSON of a purge: {error}; such as {{\"tag\": \"news\"}}")
        });
    }
    let mut order = Order::default();
    for (name, value) in &call.query {
        let text = match name.as_str() {
            "url" => &mut order.url,
            "prefix" => &mut order.prefix,
            "tag" => &mut order.tag,
            "all" | "soft" => {
                let flag = match value.as_str() {
                    "" | "1" | "true" => true,
                    "0" | "false" => false,
                    _ => return Err(format!("{name} is true or false, not {value:?}")),
                };
                *(if name == "all" { &mut order.all } else { &mut order.soft }) = flag;
                continue;
            }
            _ => {
                return Err(format!("no {name:?} here: there are url, prefix, tag, all and soft"));
            }
        };
        if text.replace(value.clone()).is_some() {
            return Err(format!("{name} is there twice; one purge at a time"));
        }
    }
    Ok(order)
}

fn target(order: &Order) -> Result<Target, String> {
    let Order { url, prefix, tag, all, .. } = order;
    match (url, prefix, tag, all) {
        (Some(url), None, None, false) => Ok(Target::Url(normal_url(url)?)),
        (None, Some(prefix), None, false) => Ok(Target::Prefix(normal_prefix(prefix)?)),
        (None, None, Some(tags), false) => Ok(Target::Tags(normal_tags(tags)?)),
        (None, None, None, true) => Ok(Target::All),
        _ => Err("say exactly one of url, prefix, tag and all".into()),
    }
}

/// A URL as purges use it: `host[:port]/path?query`, without a scheme and without the default port.
fn normal_url(url: &str) -> Result<String, String> {
    let (authority, path) = parts(url)?;
    if !url.contains("://") {
        return Err(format!("{url:?} is no URL: write http://host/path"));
    }
    Ok(authority + if path.is_empty() { "/" } else { path })
}

/// The same for a prefix. A host alone means all of its paths, and no longer host.
fn normal_prefix(prefix: &str) -> Result<String, String> {
    let (authority, path) = parts(prefix)?;
    let prefix = authority + if path.is_empty() { "/" } else { path };
    if prefix.len() > PURGE_PREFIX_BYTES_MAX {
        return Err(format!("a prefix has at most {PURGE_PREFIX_BYTES_MAX} bytes"));
    }
    Ok(prefix)
}

/// The authority as in keys, and the rest, of a text that may begin with a scheme.
fn parts(text: &str) -> Result<(String, &str), String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let own_port = match scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return Err(format!("{text:?} is neither http nor https")),
    };
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    if http1::parse_authority(authority.as_bytes()).is_err() {
        return Err(format!("{text:?} has no valid host: write http://host/path"));
    }
    if path.starts_with('?') || !path.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        return Err(format!(
            "the path of {text:?} is not as it is asked for: begin it with / and percent-encode it"
        ));
    }
    let authority = authority.strip_suffix(own_port).unwrap_or(authority);
    Ok((authority.to_ascii_lowercase(), path))
}

fn normal_tags(tags: &str) -> Result<Vec<String>, String> {
    let tags: Vec<String> =
        tags.split([' ', ',']).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    if tags.is_empty() || !tags.iter().all(|tag| tag.bytes().all(|b| b.is_ascii_graphic())) {
        return Err("a tag is one word of visible ASCII, such as news".into());
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_prefixes_are_known_as_they_are_stored() {
        for (url, known) in [
            ("http://EXAMPLE.com:80/A?b=c", "example.com/A?b=c"),
            ("https://example.com:443", "example.com/"),
            ("HTTP://h:8080/", "h:8080/"),
            ("http://[::1]:81/x", "[::1]:81/x"),
        ] {
            assert_eq!(normal_url(url).as_deref(), Ok(known));
        }
        for wrong in
            ["h/a", "ftp://h/", "http:///a", "http://h/a b", "http://u@h/", "http://h?x", "", "x"]
        {
            assert!(normal_url(wrong).is_err(), "{wrong}");
        }
        for (prefix, known) in
            [("h", "h/"), ("http://h/img", "h/img"), ("H:80/", "h/"), ("https://h:80/", "h:80/")]
        {
            assert_eq!(normal_prefix(prefix).as_deref(), Ok(known));
        }
        assert!(normal_prefix(&format!("h/{}", "x".repeat(PURGE_PREFIX_BYTES_MAX))).is_err());
        assert_eq!(normal_tags("a b,c"), Ok(vec!["a".into(), "b".into(), "c".into()]));
        assert!(normal_tags(" , ").is_err() && normal_tags("é").is_err());
    }

    #[test]
    fn one_thing_is_purged_at_a_time() {
        let of = |json: &str| target(&serde_json::from_str(json).unwrap());
        assert_eq!(of(r#"{"all": true}"#), Ok(Target::All));
        assert_eq!(of(r#"{"url": "http://h", "soft": true}"#), Ok(Target::Url("h/".into())));
        for wrong in ["{}", r#"{"all": false}"#, r#"{"all": true, "tag": "a"}"#] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}

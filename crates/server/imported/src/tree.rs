//! The imported file: sections with keys, written as TOML with the line that each key comes from.
//!
//! [`Section::new`] and [`Section::set`] accept only names that are in [`KEYS`]. A test compares
//! that list with the keys of `config`. What never happens: the file has a key that the server
//! does not know.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use crate::note::Place;
use crate::table::is_one;

/// The keys of a lifetime.
const LIFETIME: &str = "status content_type when ttl overrule grace error_grace";

/// The names of sections, whether a file can have several of the name, and their keys.
const KEYS: &[(&str, bool, &str)] = &[
    ("server", false, "workers user group admin"),
    (
        "listen",
        true,
        "address mode name role proxy_from http2 http3 congestion_control trusted_proxies \
         trusted_field field_names",
    ),
    ("listen.tls", false, "acme client_ca client_optional only_tls13"),
    ("listen.tls.certificate", true, "chain key"),
    (
        "upstream",
        true,
        "name balance hash_by load_percent_max host forwarded proxy_header protocol",
    ),
    ("upstream.server", true, "url addresses weight backup outstanding_max id"),
    ("upstream.sticky", false, "cookie domain secure http_only"),
    ("upstream.timeouts", false, "connect first_byte idle"),
    ("upstream.retries", false, "max"),
    ("upstream.queue", false, "timeout"),
    ("upstream.health", false, "path host interval timeout rise fall status_min status_max"),
    ("upstream.tls", false, "ca server_name verify"),
    ("upstream.ejection", false, "failures base"),
    ("list", true, "name values"),
    (
        "rule",
        true,
        "name when upstream redirect with_path answer status rewrite strip_prefix store ttl \
         overrule grace error_grace",
    ),
    ("rule.request", true, "set add remove value"),
    ("rule.response", true, "set add default remove value"),
    (
        "route",
        true,
        "hosts path prefix when files alias index try_files dot_files precompressed cache_control \
         upstream upstream_path redirect answer status with_path allow_from deny_from users realm \
         satisfy forward_login body_bytes_max store compression query query_drop query_keep \
         key_cookies cookies_sent key_fields bypass_cookies set_cookie",
    ),
    ("route.auth", false, "upstream path copy"),
    ("route.error_page", true, "statuses answer_file redirect status intercept"),
    ("route.location", true, "from to"),
    ("route.cookie", true, "domain path secure http_only same_site"),
    ("route.lifetime", true, LIFETIME),
    ("route.request", true, "set add default remove value"),
    ("route.response", true, "set add default cut remove value"),
    ("peer", true, "url kind weight backup outstanding_max icp htcp login"),
    ("hierarchy", false, "balance always_direct always_direct_methods never_direct"),
    ("icp", false, "listen allow_from"),
    ("htcp", false, "listen allow_from clear_from"),
    (
        "forward",
        false,
        "allow_from ports connect_ports allow_domains deny_domains deny_when users realm \
         x_forwarded_for",
    ),
    ("forward.lifetime", true, LIFETIME),
    ("via", false, "requests responses name"),
    ("store", false, "memory path bytes"),
    ("purge", false, "from"),
    (
        "quota",
        true,
        "name by v4_prefix v6_prefix requests burst bytes bytes_burst connections concurrency \
         over delay_max counts role hosts prefix except_from",
    ),
    ("compression", false, "codings passed gzip_level br_level types bytes_min"),
    ("dns", false, "servers"),
    ("log", false, "path syslog facility format"),
    ("https", false, "ca verify"),
    ("acme", false, "terms_accepted path contact directory ca challenge"),
    (
        "limits",
        false,
        "head_bytes_max idle_keep_alive head_timeout body_timeout body_bytes_max send_timeout \
         connect_timeout upstream_timeout upstream_idle object_share tunnel_idle drain_timeout",
    ),
];

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// Yes or no.
    Flag(bool),
    /// A number.
    Count(u64),
    /// A list of numbers.
    Counts(Vec<u64>),
    /// A number of bytes.
    Bytes(u64),
    /// A length of time.
    Time(Duration),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// Values from types of Rust.
macro_rules! values {
    ($($kind:ident: $type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::$kind(value)
            }
        }
    )*};
}

values!(Text: String, Texts: Vec<String>, Flag: bool, Count: u64, Time: Duration);

/// The answer of a closed route.
const CLOSED: &str = "closed by plimsoll import\n";

/// The name of a key.
pub type Key = &'static str;

/// A section of the file.
#[derive(Clone, Debug)]
pub struct Section {
    name: &'static str,
    many: bool,
    known: &'static str,
    keys: Vec<(&'static str, Value, String)>,
    below: Vec<Section>,
    /// Lines above it.
    comments: Vec<String>,
}

impl Section {
    /// An empty section of this name.
    pub fn new(name: &'static str) -> Section {
        let known = KEYS.iter().find(|(known, ..)| *known == name);
        let (_, many, known) = known.expect("each section is in the list");
        let (keys, below, comments) = (Vec::new(), Vec::new(), Vec::new());
        Section { name, many: *many, known, keys, below, comments }
    }

    /// Sets a key. The comment behind it is the place that it comes from, or a reason.
    pub fn set(&mut self, key: Key, value: impl Into<Value>, from: impl Display) {
        assert!(is_one(self.known, key), "the key {key} of {} is not in the list", self.name);
        let entry = (key, value.into(), from.to_string());
        match self.keys.iter_mut().find(|(there, ..)| *there == key) {
            Some(there) => *there = entry,
            None => self.keys.push(entry),
        }
    }

    /// Sets a key that the file has once. Returns false if another line has set another value.
    pub fn set_once(&mut self, key: Key, value: Value, from: &Place) -> bool {
        let is_free = self.get(key).is_none_or(|there| *there == value);
        self.set_some(key, is_free.then_some(value), from);
        is_free
    }

    /// Sets a key if there is a value.
    pub fn set_some(&mut self, key: Key, value: Option<impl Into<Value>>, from: impl Display) {
        if let Some(value) = value {
            self.set(key, value, from);
        }
    }

    /// Sets a key if the list has an entry.
    pub fn set_list(&mut self, key: Key, list: &[String], from: impl Display) {
        self.set_some(key, (!list.is_empty()).then(|| list.to_vec()), from);
    }

    /// The value of a key, if the key is set.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(there, ..)| *there == key).map(|(_, value, _)| value)
    }

    /// The value of a key that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Leaves a key out.
    pub fn unset(&mut self, key: &str) {
        self.keys.retain(|(there, ..)| *there != key);
    }

    /// A section below this section. If there can be only one of the name, each call returns the
    /// same section.
    pub fn below(&mut self, name: &'static str) -> &mut Section {
        let section = Section::new(name);
        let is_below = name.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('.'));
        assert!(is_below, "{name} is not below {}", self.name);
        let of_name = |other: &Section| other.name == name;
        let there = (!section.many).then(|| self.below.iter().position(of_name));
        let at = there.flatten().unwrap_or_else(|| {
            self.below.push(section);
            self.below.len() - 1
        });
        &mut self.below[at]
    }

    /// Leaves out sections below it.
    pub fn retain_below(&mut self, keep: impl FnMut(&Section) -> bool) {
        self.below.retain(keep);
    }

    /// Whether there is a section of this name below it.
    pub fn has_below(&self, name: &str) -> bool {
        self.below.iter().any(|section| section.name == name)
    }

    /// Closes a route, because a rule that protected it was not carried. A comment has the action
    /// that the route would have.
    pub fn close(&mut self) {
        if self.get("answer") == Some(&Value::from(CLOSED)) {
            return;
        }
        self.comment("Something that protects this was not carried, so it is closed.");
        let place = ["hosts", "path", "prefix", "when"];
        let (kept, closed) =
            std::mem::take(&mut self.keys).into_iter().partition(|(key, ..)| place.contains(key));
        self.keys = kept;
        let closed: Vec<(&str, Value, String)> = closed;
        closed.iter().for_each(|(key, value, _)| self.comment(Section::line_of(key, value)));
        let of_upstreams = "route.lifetime route.location route.cookie route.auth";
        self.below.retain(|section| !is_one(of_upstreams, section.name));
        let reason = "closed: see the notes of the import";
        self.set("answer", CLOSED, reason);
        self.set("status", Value::Count(403), reason);
    }

    /// The keys and the sections below, without the name and the places that they come from.
    pub fn shape(&self) -> String {
        let keys = self.keys.iter().filter(|(key, ..)| *key != "name");
        let own: Vec<String> = keys.map(|(key, value, _)| Section::line_of(key, value)).collect();
        let below: Vec<String> = self
            .below
            .iter()
            .map(|section| format!("{} {}", section.name, section.shape()))
            .collect();
        format!("{own:?} {below:?}")
    }

    /// A line above the section.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }

    /// A key as a line of a comment.
    pub fn line_of(key: &'static str, value: &Value) -> String {
        format!("{key} = {}", shown(value))
    }

    fn write(&self, out: &mut String) {
        out.push('\n');
        for comment in &self.comments {
            let plain: String = comment.chars().filter(|c| !c.is_control()).collect();
            out.push_str(&format!("# {plain}\n"));
        }
        let (open, close) = if self.many { ("[[", "]]") } else { ("[", "]") };
        out.push_str(&format!("{open}{}{close}\n", self.name));
        for (key, value, from) in &self.keys {
            let from: String = from.chars().filter(|c| !c.is_control()).collect();
            out.push_str(&format!("{key} = {}  # {from}\n", shown(value)));
        }
        for section in &self.below {
            section.write(out);
        }
    }
}

/// A time-out as the server takes it: from a millisecond to a day.
pub fn timeout(time: Option<Duration>) -> Option<Value> {
    let day = Duration::from_secs(86_400);
    time.filter(|time| time.as_millis() > 0 && *time <= day).map(Value::Time)
}

/// A host in a URL: an address of IPv6 has brackets.
pub fn authority(host: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

/// Writes a server of an upstream.
pub fn server(
    upstream: &mut Section,
    url: String,
    (weight, outstanding_max): (Option<u64>, Option<u64>),
    is_backup: bool,
    from: &Place,
) {
    let server = upstream.below("upstream.server");
    server.set("url", url, from);
    server.set_some("weight", weight, from);
    server.set_some("outstanding_max", outstanding_max, from);
    server.set_some("backup", is_backup.then_some(true), from);
}

/// All sections, by name.
#[derive(Debug, Default)]
pub struct Tree {
    sections: BTreeMap<&'static str, Vec<Section>>,
}

impl Tree {
    /// The section of this name, of which there is only one.
    pub fn section(&mut self, name: &'static str) -> &mut Section {
        let section = Section::new(name);
        assert!(!section.many, "there can be several of {name}");
        let there = self.sections.entry(name).or_default();
        if there.is_empty() {
            there.push(section);
        }
        &mut there[0]
    }

    /// Adds a section of which there may be several.
    pub fn add(&mut self, section: Section) {
        assert!(section.many, "there can be only one of {}", section.name);
        self.sections.entry(section.name).or_default().push(section);
    }

    /// All sections of this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &Section> {
        self.sections.get(name).into_iter().flatten()
    }

    /// All sections of this name, to be changed.
    pub fn all_mut(&mut self, name: &str) -> impl Iterator<Item = &mut Section> {
        self.sections.get_mut(name).into_iter().flatten()
    }

    /// The number of sections of this name.
    pub fn count(&self, name: &str) -> usize {
        self.sections.get(name).map_or(0, Vec::len)
    }

    /// The text, in the order of [`KEYS`]. A section without keys is not written.
    pub fn text(&self, head: &str) -> String {
        let mut out = head.to_owned();
        for (name, ..) in KEYS {
            for section in self.all(name) {
                if !section.keys.is_empty() {
                    section.write(&mut out);
                }
            }
        }
        out
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Texts(texts) => {
            let all: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Flag(flag) => flag.to_string(),
        Value::Count(count) => count.to_string(),
        Value::Counts(counts) => {
            let all: Vec<String> = counts.iter().map(u64::to_string).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Bytes(bytes) => quoted(&units::show_bytes(*bytes)),
        Value::Time(time) => quoted(&units::show_duration(*time)),
    }
}

/// The escapes of a text in JSON are escapes of TOML too; TOML also wants DEL escaped.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_one_of_the_server() {
        let reference = config::markdown();
        for (section, many, keys) in KEYS {
            let (open, close) = if *many { ("[[", "]]") } else { ("[", "]") };
            let title = format!("`{open}{section}{close}`\n");
            let part = reference.split_once(&title).unwrap_or_else(|| panic!("no {title}")).1;
            let part = part.split("\n#").next().unwrap();
            for key in keys.split(' ') {
                assert!(part.contains(&format!("\n| `{key}` |")), "{section} has no {key}");
            }
        }
    }

    #[test]
    fn a_section_is_written_with_its_lines() {
        let mut tree = Tree::default();
        let at = Place::new(&"/etc/x\n.conf".into(), 7);
        let mut route = Section::new("route");
        route.set("hosts", vec!["a\"b".to_owned()], &at);
        route.below("route.request").set("set", "X", &at);
        route.below("route.request").set("remove", "Y", &at);
        tree.add(route);
        tree.section("store").set("memory", Value::Bytes(1 << 20), &at);
        let text = tree.text("# head\n");
        assert_eq!(
            text,
            "# head\n\n[[route]]\nhosts = [\"a\\\"b\"]  # x.conf:7\n\n[[route.request]]\n\
             set = \"X\"  # x.conf:7\n\n[[route.request]]\nremove = \"Y\"  # x.conf:7\n\n\
             [store]\nmemory = \"1MiB\"  # x.conf:7\n"
        );
    }

    #[test]
    #[should_panic = "is not in the list"]
    fn an_unknown_key_is_not_written() {
        let at = Place::new(&"x".into(), 1);
        Section::new("store").set("bites", true, &at);
    }
}

//! The keys of rules and of what belongs to their conditions: `[[rule]]`, `[[list]]`, `[[map]]`
//! and `[[expect]]`.

use std::time::Duration;

use super::here::Here;
use super::keys::STATUS;
use super::route_keys::FieldTable;
use super::rules::{Expect, Rewrite, Rule};
use super::table::{Key, Table, keys};
use super::text_file::{Lines, TextFile};
use super::value::{Kind, WHILE};
use super::when::When;
use super::{Action, FieldRule, Lifetime};

/// `[[rule]]`
#[derive(Debug)]
pub(crate) struct RuleTable {
    pub(crate) name: Option<String>,
    pub(crate) when: Option<When>,
    pub(crate) upstream: Option<String>,
    pub(crate) redirect: Option<String>,
    pub(crate) answer: Option<String>,
    pub(crate) answer_file: Option<TextFile>,
    pub(crate) mirror: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) with_path: bool,
    pub(crate) rewrite: Option<String>,
    pub(crate) strip_prefix: Option<String>,
    pub(crate) store: bool,
    pub(crate) compression: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) overrule: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) error_grace: Option<Duration>,
    pub(crate) request: Vec<FieldTable>,
    pub(crate) response: Vec<FieldTable>,
}

impl Default for RuleTable {
    fn default() -> RuleTable {
        RuleTable {
            name: None,
            when: None,
            upstream: None,
            redirect: None,
            answer: None,
            answer_file: None,
            mirror: None,
            status: None,
            with_path: false,
            rewrite: None,
            strip_prefix: None,
            store: true,
            compression: true,
            ttl: None,
            overrule: false,
            grace: None,
            error_grace: None,
            request: Vec::new(),
            response: Vec::new(),
        }
    }
}

impl Table for RuleTable {
    const KEYS: &'static [Key<RuleTable>] = keys![RuleTable;
        name: Kind::Text, name,
            "Its name in explanations and in [[expect]]. Default: its number, from 1.",
            example "\"assets\"";
        when: Kind::Text, when,
            "The condition. One that reads the response (status, size, response) is asked when the \
             response comes; then only response, store, compression and ttl apply.",
            required !, example "\"path.startsWith('/assets/') && status == 200\"";
        upstream: Kind::Text, upstream,
            "Send the requests to this upstream in place of the one of their route, whose other \
             settings stay.", example "\"canary\"";
        redirect: Kind::Text, redirect,
            "Answer with a redirect to this URL. It may repeat values: `https://{host}{path}`.",
            example "\"https://{host}\"";
        answer: Kind::Content, answer, "Answer with this plain text.", example "\"not here\"";
        answer_file: Kind::Path, answer_file,
            "Answer with the text of this file, at most 1 MiB. Its ending is its type: .html, \
             .json, .xml, .svg, .css or .js; otherwise it is plain text. The file is read again at \
             a reload.", example "\"maintenance.html\"";
        mirror: Kind::Text, mirror,
            "Send a copy of each request without content to this upstream, too, and throw its \
             response away.", example "\"staging\"";
        status: STATUS, status,
            "The status of a redirect (default 308) or of an answer (default 403).",
            example "301";
        with_path: Kind::Flag, with_path,
            "Whether the request's path and query are appended to the redirect's URL.";
        rewrite: Kind::Text, rewrite,
            "The path that the upstream gets. It may repeat what the condition captures by \
             `path.matches('^/old/(?P<rest>.*)$')`: `/new/{rest}`. The query stays.",
            example "\"/new/{rest}\"";
        strip_prefix: Kind::Text, strip_prefix,
            "The upstream gets the path without this prefix.", example "\"/api\"";
        store: Kind::Flag, store,
            "Whether the store is used, for the request or for the response.";
        compression: Kind::Flag, compression, "Whether responses are coded.";
        ttl: WHILE, ttl, "How long the response is fresh, where the origin says nothing.",
            example "\"1h\"";
        overrule: Kind::Flag, overrule,
            "Whether ttl also replaces what the origin says, as in [[route.lifetime]].";
        grace: WHILE, grace,
            "How long a stale response may be served while it is revalidated in the background.",
            example "\"1m\"";
        error_grace: WHILE, error_grace,
            "How long a stale response may be served if the origin fails.", example "\"1d\"";
        [[request]]: request, "A change to the fields sent to the upstream.";
        [[response]]: response, "A change to the fields of the response: of the upstream's before \
            anything else sees it, and of redirects and answers that the request gets.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let answers = self.answer.is_some() || self.answer_file.is_some();
        let both = self.answer.is_some() && self.answer_file.is_some();
        let actions = [self.upstream.is_some(), self.redirect.is_some(), answers, both];
        if actions.into_iter().filter(|is_there| *is_there).count() > 1 {
            here.mistake_here(
                "a rule has at most one of upstream, redirect, answer and answer_file",
            );
        }
        if self.status.is_some() && self.redirect.is_none() && !answers {
            here.mistake_of("status", "this is for redirect or answer");
        }
        if self.with_path && self.redirect.is_none() {
            here.mistake_of("with_path", "this is for redirects");
        }
        if self.rewrite.is_some() && self.strip_prefix.is_some() {
            here.mistake_of("strip_prefix", "a rule has a rewrite or a strip_prefix, not both");
        }
        if self.overrule && self.ttl.is_none() {
            here.mistake_of("overrule", "there is no ttl that could replace the origin's");
        }
    }
}

impl RuleTable {
    /// The rule with this number. `None` if its keys do not form one; that was reported.
    pub(crate) fn rule(&self, number: usize) -> Option<Rule> {
        let of_file = self.answer_file.as_ref();
        let answer = self.answer.as_ref().or(of_file.map(TextFile::text));
        let action = match (&self.upstream, &self.redirect, answer) {
            (Some(name), ..) => Some(Action::Group(name.clone())),
            (None, Some(location), _) => Some(Action::Redirect {
                status: self.status.unwrap_or(308),
                location: location.clone(),
                with_path: self.with_path,
            }),
            (None, None, Some(body)) => {
                let status = self.status.unwrap_or(403);
                Some(Action::Answer { status, body: body.clone() })
            }
            (None, None, None) => None,
        };
        let rewrite = match (&self.rewrite, &self.strip_prefix) {
            (Some(path), _) => Some(Rewrite::To(path.clone())),
            (None, Some(prefix)) => Some(Rewrite::Strip(prefix.clone())),
            (None, None) => None,
        };
        let changes = |changes: &[FieldTable]| -> Option<Vec<FieldRule>> {
            changes.iter().map(FieldTable::rule).collect()
        };
        let content_type = of_file.and_then(TextFile::content_type);
        let content_type = content_type.map(|of| FieldRule::Set("Content-Type".into(), of.into()));
        let lifetime = Lifetime {
            ttl: self.ttl,
            overrule: self.overrule,
            grace: self.grace,
            error_grace: self.error_grace,
            ..Lifetime::default()
        };
        Some(Rule {
            name: self.name.clone().unwrap_or_else(|| number.to_string()),
            when: self.when.clone()?,
            action,
            rewrite,
            request: changes(&self.request)?,
            mirror: self.mirror.clone(),
            response: content_type.into_iter().chain(changes(&self.response)?).collect(),
            store: self.store,
            compression: self.compression,
            lifetime: (lifetime != Lifetime::default()).then_some(lifetime),
        })
    }
}

/// `[[list]]`
#[derive(Debug, Default)]
pub(crate) struct ListTable {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
    pub(crate) file: Option<Lines>,
}

impl ListTable {
    /// Its name and its entries.
    pub(crate) fn list(&self) -> (String, Vec<String>) {
        let of_file = self.file.iter().flat_map(Lines::lines);
        (self.name.clone(), self.values.iter().chain(of_file).cloned().collect())
    }
}

impl Table for ListTable {
    const KEYS: &'static [Key<ListTable>] = keys![ListTable;
        name: Kind::Text, name, "Its name in conditions: `client.within(office)`, `host in shops`.",
            required !, example "\"office\"";
        values: Kind::Texts, values, "Its entries.", example "[\"10.0.0.0/8\", \"192.0.2.1\"]";
        file: Kind::Path, file,
            "A file with more entries, one a line; lines that begin with # are left out. The file \
             is read again at a reload.", example "\"office.txt\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.values.is_empty() && !here.has("file") {
            here.mistake_here("this list is empty: write values or file");
        }
    }
}

/// `[[map]]`
#[derive(Debug, Default)]
pub(crate) struct MapTable {
    pub(crate) name: String,
    pub(crate) entries: Vec<String>,
    pub(crate) file: Option<Lines>,
}

impl MapTable {
    /// Its name and its entries.
    pub(crate) fn map(&self) -> (String, Vec<(String, String)>) {
        let of_file = self.file.iter().flat_map(Lines::lines);
        let pairs = self.entries.iter().chain(of_file).map(|line| {
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            (key.to_owned(), value.trim().to_owned())
        });
        (self.name.clone(), pairs.collect())
    }
}

impl Table for MapTable {
    const KEYS: &'static [Key<MapTable>] = keys![MapTable;
        name: Kind::Text, name, "Its name in conditions: `shops[host] == 'de'`.",
            required !, example "\"shops\"";
        entries: Kind::Texts, entries, "Its entries: a key, a blank, and its value.",
            example "[\"www.example.de de\", \"www.example.fr fr\"]";
        file: Kind::Path, file, "A file with more entries, one a line, as in [[list]].",
            example "\"shops.txt\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.entries.is_empty() && !here.has("file") {
            here.mistake_here("this map is empty: write entries or file");
        }
    }
}

/// `[[expect]]`
pub(crate) type ExpectTable = Expect;

impl Table for Expect {
    const KEYS: &'static [Key<Expect>] = keys![Expect;
        request: Kind::Text, request, "The method and the URL of a request to a reverse listener.",
            required !, example "\"GET https://www.example.org/a.css\"";
        fields: Kind::Texts, fields, "Its fields.", example "[\"Cookie: session=1\"]";
        from: Kind::Text, from, "The client's address. Default: 127.0.0.1.",
            example "\"192.0.2.1\"";
        status: STATUS, status, "The status of the upstream's response. Default: 200.",
            example "404";
        response: Kind::Texts, response, "The fields of that response.",
            example "[\"Content-Type: text/css\"]";
        rules: Kind::Texts, rules, "The names of the rules that apply, in order.",
            example "[\"assets\"]";
        upstream: Kind::Text, upstream, "The upstream that the request goes to.",
            example "\"site\"";
        redirect: Kind::Text, redirect, "Or the location of the redirect that it gets.",
            example "\"https://www.example.org/a.css\"";
        answer: STATUS, answer,
            "Or the status of the answer that it gets without an upstream, also of a refusal.",
            example "403";
        store: Kind::Flag, store, "Whether the store may answer it.", example "true";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let outcomes = [self.upstream.is_some(), self.redirect.is_some(), self.answer.is_some()];
        let count = outcomes.into_iter().filter(|is_there| *is_there).count();
        if count > 1 {
            here.mistake_here(
                "a request has one outcome: write one of upstream, redirect and answer",
            );
        } else if count == 0 && self.rules.is_none() && self.store.is_none() {
            here.mistake_here(
                "this names no outcome: write rules, upstream, redirect, answer or store",
            );
        }
    }
}

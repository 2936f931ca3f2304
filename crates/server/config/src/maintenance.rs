//! The page for maintenance.

use std::path::PathBuf;
use std::time::Duration;

use super::here::Here;
use super::rules::Rule;
use super::table::{Key, Table, keys};
use super::text_file::TextFile;
use super::value::{Kind, WHILE};
use super::when::When;
use super::{Action, FieldRule};

/// `[maintenance]`
#[derive(Debug)]
pub(crate) struct MaintenanceSection {
    pub(crate) file: Option<PathBuf>,
    pub(crate) when: Option<When>,
    pub(crate) answer: Option<String>,
    pub(crate) answer_file: Option<TextFile>,
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
}

impl Default for MaintenanceSection {
    fn default() -> MaintenanceSection {
        MaintenanceSection {
            file: None,
            when: None,
            answer: None,
            answer_file: None,
            status: 503,
            retry_after: None,
        }
    }
}

impl Table for MaintenanceSection {
    const KEYS: &'static [Key<MaintenanceSection>] = keys![MaintenanceSection;
        file: Kind::Path, file,
            "Maintenance is on while this file exists, which is looked at every second. It is also \
             on from `POST /maintenance?switch=on` at the admin address to `switch=off`, or to the \
             end of the process.",
            example "\"maintenance.on\"";
        when: Kind::Text, when,
            "The requests that get the page: a condition, as in [[rule]]. Default: all of them.",
            example "\"path != '/health' && host == 'shop.example.org'\"";
        answer: Kind::Text, answer, "The page, as plain text.", example "\"back at noon\"";
        answer_file: Kind::Path, answer_file, "The page, as in [[rule]].",
            example "\"maintenance.html\"";
        status: Kind::Count(400, 599), status, "Its status.";
        retry_after: WHILE, retry_after, "The value of Retry-After.", example "\"10m\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.answer.is_some() && here.has("answer_file") {
            here.mistake_of("answer_file", "maintenance has one page: answer or answer_file");
        }
    }
}

/// The page for maintenance is a rule that is judged before all others, while it is switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// The file that switches it on.
    pub file: Option<PathBuf>,
    /// The rule.
    pub rule: Rule,
}

/// The name of that rule.
pub const MAINTENANCE: &str = "maintenance";

impl MaintenanceSection {
    pub(crate) fn maintenance(&self) -> Maintenance {
        let of_file = self.answer_file.as_ref();
        let body = self.answer.clone().or(of_file.map(|file| file.text().clone()));
        let body = body.unwrap_or_else(|| "this site is under maintenance\n".to_owned());
        let set = |name: &str, value: String| FieldRule::Set(name.to_owned(), value);
        let of_type = of_file.and_then(TextFile::content_type);
        let of_type = of_type.map(|of_type| set("Content-Type", of_type.to_owned()));
        let retry_after =
            self.retry_after.map(|time| set("Retry-After", time.as_secs().to_string()));
        let stores = [set("Cache-Control", "no-store".to_owned())];
        Maintenance {
            file: self.file.clone(),
            rule: Rule {
                name: MAINTENANCE.to_owned(),
                when: self.when.clone().unwrap_or_else(When::always),
                action: Some(Action::Answer { status: self.status, body }),
                mirror: None,
                rewrite: None,
                request: Vec::new(),
                response: of_type.into_iter().chain(retry_after).chain(stores).collect(),
                store: true,
                compression: true,
                lifetime: None,
            },
        }
    }
}

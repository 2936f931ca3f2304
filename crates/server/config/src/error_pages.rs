//! Error pages.

use super::here::Here;
use super::table::{Key, Table, keys};
use super::text_file::TextFile;
use super::value::Kind;

/// What a client gets in place of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses that it is for.
    pub statuses: Vec<u16>,
    /// The page.
    pub page: Page,
    /// The status that is sent. `None`: that of the error.
    pub status: Option<u16>,
    /// Whether it is for errors of upstreams too.
    pub intercept: bool,
    /// Whether `{status}`, `{reason}` and `{request_id}` in its text are replaced.
    pub fill: bool,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// A content of this type.
    Content {
        /// The value of `Content-Type`.
        of_type: String,
        /// The content.
        text: String,
    },
    /// A redirect to this URL.
    Redirect(String),
}

/// `[[error_page]]` and `[[route.error_page]]`
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorPageTable {
    pub(crate) statuses: Vec<u16>,
    pub(crate) answer: Option<String>,
    pub(crate) answer_file: Option<TextFile>,
    pub(crate) redirect: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) intercept: bool,
    pub(crate) fill: bool,
}

impl Table for ErrorPageTable {
    const KEYS: &'static [Key<ErrorPageTable>] = keys![ErrorPageTable;
        statuses: Kind::Counts(400, 599), statuses, "The statuses of the errors.",
            required !, example "[502, 503, 504]";
        answer: Kind::Text, answer, "Send this plain text.", example "\"try again later\"";
        answer_file: Kind::Path, answer_file,
            "Send the text of this file, at most 1 MiB; its type is as in [[rule]]. The file is \
             read again at a reload.", example "\"sorry.html\"";
        redirect: Kind::Text, redirect, "Send a redirect to this URL, with 302.",
            example "\"https://status.example.org/\"";
        status: Kind::Count(200, 599), status,
            "The status that is sent. Default: that of the error.", example "200";
        intercept: Kind::Flag, intercept,
            "Whether it takes the place of the upstream's errors too, fetched or stored.";
        fill: Kind::Flag, fill,
            "Whether `{status}`, `{reason}` and `{request_id}` in the text are replaced: by the \
             status of the error, its name, and the number of the request that [request_id] gives.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.statuses.is_empty() && here.has("statuses") {
            here.mistake_of("statuses", "no error has this page: write statuses");
        }
        let of_file = here.has("answer_file");
        let pages = [self.answer.is_some(), of_file, self.redirect.is_some()];
        if pages.into_iter().filter(|is_there| *is_there).count() != 1 {
            here.mistake_here("an error page has one of answer, answer_file and redirect");
        }
        if self.fill && self.redirect.is_some() {
            here.mistake_of("fill", "a redirect has no text");
        }
        let written =
            |url: &String| http1::write::field(&mut Vec::new(), b"Location", url.as_bytes());
        if self.redirect.as_ref().is_some_and(|url| written(url).is_err()) {
            here.mistake_of("redirect", "this is not a URL that can be sent");
        }
        let is_redirect = |status: u16| matches!(status, 301 | 302 | 303 | 307 | 308);
        if let Some(status) = self.status
            && (self.redirect.is_some() != is_redirect(status)
                || matches!(status, 100..=199 | 204 | 304))
        {
            here.mistake_of("status", "a page has content, and a redirect has a status of 3xx");
        }
    }
}

impl ErrorPageTable {
    /// `None` if its keys do not make one; that was reported.
    pub(crate) fn page(&self) -> Option<ErrorPage> {
        const PLAIN: &str = "text/plain; charset=utf-8";
        let content = |of_type: &str, text: &String| {
            Some(Page::Content { of_type: of_type.to_owned(), text: text.clone() })
        };
        let page = match (&self.answer, &self.answer_file, &self.redirect) {
            (Some(text), ..) => content(PLAIN, text),
            (None, Some(file), _) => content(file.content_type().unwrap_or(PLAIN), file.text()),
            (None, None, Some(url)) => Some(Page::Redirect(url.clone())),
            (None, None, None) => None,
        };
        let status = match &page {
            Some(Page::Redirect(_)) => Some(self.status.unwrap_or(302)),
            _ => self.status,
        };
        let ErrorPageTable { statuses, intercept, fill, .. } = self.clone();
        Some(ErrorPage { statuses, page: page?, status, intercept, fill })
    }
}

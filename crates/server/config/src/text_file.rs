//! Text files that a configuration names, read with it.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::here::Here;
use super::limits::{ANSWER_FILE_BYTES_MAX, LIST_FILE_BYTES_MAX, LIST_LINES_MAX};
use super::value::{Kind, Setting, quoted};

/// A text file, read with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextFile {
    path: PathBuf,
    text: String,
}

impl TextFile {
    /// Its text.
    pub(crate) fn text(&self) -> &String {
        &self.text
    }

    /// The type of its content; `None`: plain text.
    pub(crate) fn content_type(&self) -> Option<&'static str> {
        Some(match self.path.extension()?.to_str()? {
            "html" | "htm" => "text/html; charset=utf-8",
            "json" => "application/json",
            "xml" => "application/xml",
            "svg" => "image/svg+xml",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            _ => return None,
        })
    }
}

impl Setting for TextFile {
    fn read(
        value: &Spanned<DeValue<'_>>,
        kind: &Kind,
        here: &mut Here<'_, '_>,
    ) -> Option<TextFile> {
        let path = PathBuf::read(value, kind, here)?;
        match text_of(&path, ANSWER_FILE_BYTES_MAX) {
            Ok(text) => Some(TextFile { path, text }),
            Err(why) => {
                here.mistake(value.span(), format!("the file {}: {why}", path.display()));
                None
            }
        }
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.path.display().to_string()))
    }
}

/// A script by which browsers find the proxy, read with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacFile(TextFile);

impl PacFile {
    /// The script.
    pub fn text(&self) -> &str {
        self.0.text()
    }
}

impl Setting for PacFile {
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<PacFile> {
        TextFile::read(value, kind, here).map(PacFile)
    }

    fn show(&self, kind: &Kind) -> Option<String> {
        self.0.show(kind)
    }
}

/// The text of a file of at most so many bytes.
fn text_of(path: &Path, bytes_max: u64) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > bytes_max {
        return Err(format!("it has more than {} MiB", bytes_max >> 20));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// The lines of a file. Empty lines and those that begin with `#` are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    path: PathBuf,
    lines: Vec<String>,
}

impl Lines {
    /// The lines.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl Setting for Lines {
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<Lines> {
        let path = PathBuf::read(value, kind, here)?;
        match lines_of(&path) {
            Ok(lines) => Some(Lines { path, lines }),
            Err(why) => {
                here.mistake(value.span(), format!("the file {}: {why}", path.display()));
                None
            }
        }
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.path.display().to_string()))
    }
}

fn lines_of(path: &Path) -> Result<Vec<String>, String> {
    let text = text_of(path, LIST_FILE_BYTES_MAX)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<String> =
        lines.filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    match lines.len() > LIST_LINES_MAX {
        true => Err(format!("it has more than {LIST_LINES_MAX} entries")),
        false => Ok(lines),
    }
}

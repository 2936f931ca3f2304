//! The keys of coded forms, and the rules that they make.

use std::str::FromStr;

use coding::limits::ZSTD_LEVEL_MAX;
use coding::rules::Pattern;
use coding::{Coding, Level, Rules, TagRule};

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, Parsed, words};
use crate::limits::{CODED_TYPES_MAX, CODING_JOBS_MAX};

const KIB: u64 = 1024;

/// `[compression]`
#[derive(Debug)]
pub(crate) struct CompressionSection {
    codings: Vec<Parsed<Name>>,
    gzip_level: u8,
    br_level: u8,
    zstd_level: u8,
    types: Vec<Parsed<Pattern>>,
    bytes_min: u64,
    bytes_max: u64,
    etag: TagRule,
    jobs_max: u64,
    queue_max: u64,
    passed: bool,
    passed_max: u64,
}

/// The media types that are text, and the fonts that are not compressed already.
const TYPES: [&str; 10] = [
    "text/*",
    "application/javascript",
    "application/json",
    "application/wasm",
    "application/xml",
    "*+json",
    "*+xml",
    "font/otf",
    "font/ttf",
    "image/bmp",
];

impl Default for CompressionSection {
    fn default() -> CompressionSection {
        let types = TYPES.iter().map(|text| Parsed::of(text)).collect();
        CompressionSection {
            codings: Vec::new(),
            gzip_level: 6,
            br_level: 5,
            zstd_level: 6,
            types,
            bytes_min: KIB,
            bytes_max: 8 * 1024 * KIB,
            etag: TagRule::default(),
            jobs_max: 1,
            queue_max: 64,
            passed: false,
            passed_max: 256,
        }
    }
}

/// The name of a coding on offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(Coding);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let coding = Coding::ALL.into_iter().find(|coding| coding.name() == text);
        coding.map(Name).ok_or_else(|| format!("`{text}` is not one of gzip, br and zstd"))
    }
}

words!(TagRule: "weak" => TagRule::Weak, "suffix" => TagRule::Suffix);

impl Table for CompressionSection {
    const KEYS: &'static [Key<CompressionSection>] = keys![CompressionSection;
        codings: Kind::Texts, codings,
            "The codings on offer: `zstd`, `br`, `gzip`. Of those that a client likes equally, the \
             first is used. Empty: nothing is coded.", example "[\"zstd\", \"br\", \"gzip\"]";
        gzip_level: Kind::Count(1, 9), gzip_level, "The level of gzip.";
        br_level: Kind::Count(0, 11), br_level, "The level of brotli.";
        zstd_level: Kind::Count(1, ZSTD_LEVEL_MAX as u64), zstd_level, "The level of zstd.";
        types: Kind::Texts, types,
            "The media types that are coded: `text/html`, `text/*`, or `*+json` for a suffix.";
        bytes_min: Kind::Bytes(0, 1 << 30), bytes_min, "Shorter bodies are not coded.";
        bytes_max: Kind::Bytes(1, 1 << 30), bytes_max,
            "Longer bodies are not coded: a job takes a thread as long as it lasts.";
        etag: Kind::Word(&["weak", "suffix"]), etag,
            "What becomes of a strong ETag on a coded form: `\"a\"` becomes `W/\"a\"`, or \
             `\"a-gzip\"`.";
        jobs_max: Kind::Count(1, CODING_JOBS_MAX), jobs_max,
            "Maximum forms that are made at a time, each on a thread beside the cores.";
        queue_max: Kind::Count(0, 100_000), queue_max,
            "Maximum forms that wait for that. Beyond it, clients get responses as the origin \
             sent them.";
        passed: Kind::Flag, passed,
            "Whether responses that are not stored are coded while they pass, on the cores. They \
             are often for single users: read about BREACH first. A route may say otherwise with \
             compress_passed.";
        passed_max: Kind::Count(1, 100_000), passed_max,
            "Maximum responses that are coded while they pass at a time, by all cores together. \
             Beyond it, they are sent as the origin sent them. Each takes up to 3 MB.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let names = || self.codings.iter().map(|name| name.value);
        if (1..self.codings.len()).any(|at| names().take(at).any(|n| n == self.codings[at].value)) {
            here.mistake_of("codings", "a coding is listed twice");
        }
        if !self.codings.is_empty() && !coding::is_available() {
            here.mistake_of(
                "codings",
                "this build has no codings: build it with the feature server",
            );
        }
        if self.bytes_max < self.bytes_min {
            here.mistake_of("bytes_max", "it is less than bytes_min");
        }
        if self.types.len() > CODED_TYPES_MAX {
            here.mistake_of("types", format!("there are at most {CODED_TYPES_MAX} types"));
        }
    }
}

impl CompressionSection {
    /// `None` without codings.
    pub(crate) fn rules(&self) -> Option<Rules> {
        let level = |name: &Parsed<Name>| {
            let Name(coding) = name.value;
            let level = match coding {
                Coding::Gzip => self.gzip_level,
                Coding::Brotli => self.br_level,
                Coding::Zstd => self.zstd_level,
            };
            Level { coding, level }
        };
        (!self.codings.is_empty()).then(|| Rules {
            codings: self.codings.iter().map(level).collect(),
            types: self.types.iter().map(|pattern| pattern.value.clone()).collect(),
            bytes_min: self.bytes_min,
            bytes_max: self.bytes_max,
            tag: self.etag,
            jobs_max: self.jobs_max as usize,
            queue_max: self.queue_max as usize,
            passed: self.passed,
            passed_max: self.passed_max as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn what_is_configured_in_vain_is_said() {
        let codings = vec![Parsed::of("gzip")];
        let section = CompressionSection { codings, ..CompressionSection::default() };
        let said = |section: &CompressionSection| {
            let compression = section.rules();
            Config { compression, ..Config::forward(&[]) }.warnings()
        };
        assert_eq!(said(&section), ["compression: nothing is coded: there is no reverse listener"]);
        let section = CompressionSection { types: Vec::new(), ..section };
        assert_eq!(said(&section), ["compression: nothing is coded: no type is listed"]);
        assert!(said(&CompressionSection { codings: Vec::new(), ..section }).is_empty());
    }

    #[test]
    fn the_default_types_are_patterns_and_nothing_is_coded() {
        let section = CompressionSection::default();
        assert_eq!(section.rules(), None);
        let offered = CompressionSection { codings: vec![Parsed::of("gzip")], ..section };
        let rules = offered.rules().unwrap();
        assert_eq!(rules.codings, [Level { coding: Coding::Gzip, level: 6 }]);
        for (value, has) in [
            ("text/html; charset=utf-8", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("image/png", false),
            ("font/woff2", false),
            ("application/octet-stream", false),
        ] {
            assert_eq!(rules.types.has(value.as_bytes()), has, "{value}");
        }
    }
}

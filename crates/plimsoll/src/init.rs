//! `plimsoll init`: writes a short configuration file to start with, from flags or from answers.
//!
//! [`import::starter`] makes the text. An existing file is replaced only with `--force`.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use ::import::starter::{Purpose, Starter};
use command::failure::{Failure, misuse};
use command::flags::parse_address;
use command::output::{self, Pending};
use serde_json::json;
use server::Origin;

use crate::cli::{Init, Use};

/// Hosts of Debian's and Ubuntu's packages.
const MIRRORS: &[&str] =
    &["deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com"];
/// Where packages are stored by default, next to the file.
const PACKAGES_STORE: &str = "plimsoll-store";
/// How often a question is asked before it counts as not answered.
const ATTEMPTS: usize = 3;

/// Writes the file.
pub(crate) fn init(flags: &Init) -> Result<(), Failure> {
    let to_stdout = flags.out.as_os_str() == "-";
    if !to_stdout && flags.out.exists() && !flags.force {
        let text = format!("{} exists: choose another --out, or add --force", flags.out.display());
        return Err(misuse(text));
    }
    let asked = match flags.purpose {
        Some(purpose) => Asked { purpose, origin: None, listen: flags.listen },
        None if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() => {
            Asked::ask(flags, &mut std::io::stdin().lock(), &mut std::io::stderr())?
        }
        None => {
            let text = "say what the file is for: plimsoll init reverse --origin \
                        http://127.0.0.1:8000, plimsoll init forward, or plimsoll init packages";
            return Err(misuse(text));
        }
    };
    let starter = asked.starter(flags)?;
    let file = if to_stdout { "plimsoll.toml".to_owned() } else { flags.out.display().to_string() };
    let text = starter.text(&file);
    match to_stdout {
        true if !flags.json => return output::print(text),
        true => {}
        false => Pending::new(&flags.out)?.write(&text)?,
    }
    if flags.json {
        let name = (!to_stdout).then_some(&file);
        return output::print_json(&json!({ "file": name, "configuration": text }));
    }
    output::print(next(&file, &starter))
}

/// What the questions are about.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    purpose: Use,
    origin: Option<String>,
    listen: std::net::SocketAddr,
}

impl Asked {
    /// Asks. An empty line is the default.
    fn ask(
        flags: &Init,
        answers: &mut impl BufRead,
        questions: &mut impl Write,
    ) -> Result<Asked, Failure> {
        let what = "What is it for?\n  1  a cache in front of your servers\n  \
                    2  a proxy that your own clients are configured to use\n  \
                    3  a cache for packages: apt, dnf, apk, npm\nType 1, 2 or 3";
        let purpose = question(answers, questions, what, "1", |answer| match answer {
            "1" => Ok(Use::Reverse),
            "2" => Ok(Use::Forward),
            "3" => Ok(Use::Packages),
            _ => Err("type 1, 2 or 3".to_owned()),
        })?;
        let mut origin = None;
        if purpose == Use::Reverse && flags.origin.is_empty() {
            let url = |answer: &str| Origin::from_url(answer).map(|_| answer.to_owned());
            let what = "The URL of your server";
            origin = Some(question(answers, questions, what, "http://127.0.0.1:8000", url)?);
        }
        let listen = flags.listen.to_string();
        let what = "The address to listen on";
        let listen = question(answers, questions, what, &listen, parse_address)?;
        Ok(Asked { purpose, origin, listen })
    }

    fn starter(self, flags: &Init) -> Result<Starter, Failure> {
        let store = flags
            .disk
            .clone()
            .or_else(|| (self.purpose == Use::Packages).then(|| PACKAGES_STORE.to_owned()));
        let disk = store.map(|directory| (directory, flags.disk_bytes));
        if let Some((directory, bytes)) = &disk {
            server::DiskConfig::of(directory, *bytes).map_err(misuse)?;
        }
        let allow_from = flags.allow_from.iter().map(ToString::to_string).collect();
        let listen = self.listen;
        let purpose = self.purpose(flags)?;
        Ok(Starter { purpose, listen, admin: flags.admin, allow_from, disk })
    }

    /// Checks that each flag fits what the file is for.
    fn purpose(self, flags: &Init) -> Result<Purpose, Failure> {
        let is = |purpose| self.purpose == purpose;
        for (flag, given, fits) in [
            ("--origin", !flags.origin.is_empty(), is(Use::Reverse)),
            ("--allow-from", !flags.allow_from.is_empty(), !is(Use::Reverse)),
            ("--mirror", !flags.mirror.is_empty(), is(Use::Packages)),
            ("--registry", flags.registry.is_some(), is(Use::Packages)),
        ] {
            if given && !fits {
                return Err(misuse(format!("{flag} is for another use; see plimsoll init --help")));
            }
        }
        match self.purpose {
            Use::Reverse => {
                let origins: Vec<String> =
                    self.origin.into_iter().chain(flags.origin.clone()).collect();
                if origins.is_empty() {
                    let text =
                        "name your server: plimsoll init reverse --origin http://127.0.0.1:8000";
                    return Err(misuse(text));
                }
                origins
                    .iter()
                    .try_for_each(|url| Origin::from_url(url).map(drop))
                    .map_err(misuse)?;
                Ok(Purpose::Reverse { origins })
            }
            Use::Forward => Ok(Purpose::Forward),
            Use::Packages => {
                if let Some(url) = &flags.registry {
                    Origin::from_url(url).map_err(misuse)?;
                }
                let default = || MIRRORS.iter().map(|host| (*host).to_owned()).collect();
                let mirrors = match flags.mirror.as_slice() {
                    [] => default(),
                    given => given.iter().map(|host| mirror(host)).collect::<Result<_, _>>()?,
                };
                let registry = flags.registry.clone().map(|url| (flags.registry_listen, url));
                Ok(Purpose::Packages { mirrors, registry })
            }
        }
    }
}

/// A host without a scheme and a port.
fn mirror(host: &str) -> Result<String, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    match !host.is_empty() && host.chars().all(is_plain) {
        true => Ok(host.to_owned()),
        false => Err(misuse(format!("--mirror {host}: expected a host, such as deb.debian.org"))),
    }
}

/// Asks until the answer can be read, a few times.
fn question<T>(
    answers: &mut impl BufRead,
    questions: &mut impl Write,
    what: &str,
    default: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    for _ in 0..ATTEMPTS {
        write!(questions, "{what} [{default}]: ")
            .and_then(|()| questions.flush())
            .map_err(misuse)?;
        let mut line = String::new();
        if answers.read_line(&mut line).map_err(misuse)? == 0 {
            break;
        }
        let answer = if line.trim().is_empty() { default } else { line.trim() };
        match read(answer) {
            Ok(value) => return Ok(value),
            Err(why) => writeln!(questions, "{why}").map_err(misuse)?,
        }
    }
    Err(misuse("no answer; plimsoll init --help lists the flags that answer the questions"))
}

/// What to type next.
fn next(file: &str, starter: &Starter) -> String {
    let listen = starter.listen;
    let mut text = format!(
        "{file} is written. Next:\n    plimsoll check {file}\n    plimsoll serve -c {file}\n"
    );
    match &starter.purpose {
        Purpose::Reverse { .. } => text.push_str(&format!("    curl -i http://{listen}/\n")),
        Purpose::Forward => {
            text.push_str(&format!("    curl --proxy http://{listen} http://example.com/\n"));
        }
        Purpose::Packages { registry, .. } => {
            text.push_str(&format!("    apt-get -o Acquire::http::Proxy=http://{listen} update\n"));
            if let Some((address, _)) = registry {
                text.push_str(&format!("    npm config set registry http://{address}/\n"));
            }
        }
    }
    if Path::new(file).components().count() > 1 && starter.disk.is_some() {
        text.push_str("Paths in the file are relative to its directory.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn flags(line: &str) -> Init {
        let words = ["plimsoll", "init"].into_iter().chain(line.split_whitespace());
        let Verb::Init(flags) = Cli::try_parse_from(words).unwrap().verb else { panic!("{line}") };
        flags
    }

    fn asked(line: &str, answers: &str) -> (Result<Asked, Failure>, String) {
        let mut shown = Vec::new();
        let asked = Asked::ask(&flags(line), &mut answers.as_bytes(), &mut shown);
        (asked, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn empty_answers_are_the_defaults_and_a_wrong_one_is_asked_again() {
        let default = "127.0.0.1:3128".parse().unwrap();
        let (answer, _) = asked("", "\n\n\n");
        let origin = Some("http://127.0.0.1:8000".to_owned());
        let expected = Asked { purpose: Use::Reverse, origin, listen: default };
        assert_eq!(answer.unwrap(), expected);
        let (answer, shown) = asked("", "four\n2\n:80\n0.0.0.0:80\n");
        let listen = "0.0.0.0:80".parse().unwrap();
        assert_eq!(answer.unwrap(), Asked { purpose: Use::Forward, origin: None, listen });
        assert!(shown.contains("type 1, 2 or 3") && shown.contains("try 0.0.0.0:80"), "{shown}");
        // A flag answers its question.
        let (answer, _) = asked("--origin http://127.0.0.1:1", "1\n\n");
        assert_eq!(answer.unwrap().origin, None);
    }

    #[test]
    fn without_answers_it_ends() {
        for answers in ["", "9\n9\n9\n9\n", "1\nftp://x\n"] {
            assert!(asked("", answers).0.is_err(), "{answers:?}");
        }
    }

    #[test]
    fn a_flag_for_another_use_is_refused() {
        let starter = |line: &str| {
            let flags = flags(line);
            let purpose = flags.purpose.unwrap();
            Asked { purpose, origin: None, listen: flags.listen }.starter(&flags)
        };
        for line in [
            "reverse",
            "reverse --origin 127.0.0.1:80",
            "reverse --origin http://127.0.0.1 --mirror x",
            "reverse --origin http://127.0.0.1 --allow-from 10.0.0.0/8",
            "forward --origin http://127.0.0.1",
            "forward --registry http://127.0.0.1",
            "packages --mirror http://x",
            "packages --registry ftp://x",
            "packages --disk-bytes 1M",
        ] {
            assert!(starter(line).is_err(), "{line}");
        }
        let packages = starter("packages --disk-bytes 64M --mirror x.org").unwrap();
        assert_eq!(packages.disk, Some((PACKAGES_STORE.to_owned(), 64 << 20)));
        assert!(starter("forward").unwrap().disk.is_none());
    }
}

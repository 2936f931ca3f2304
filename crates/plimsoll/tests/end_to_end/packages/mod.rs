//! Packages of the program that was built for the tests: the Debian package is installed, upgraded
//! and removed, its unit is verified, the image is checked and run, and all are the same bytes when
//! they are made again.
//!
//! What is installed goes into a copy of this system's root directory, with its own network: see
//! [`root`].

mod examples;
mod image;
mod root;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use packages::{Compression, Program, Stamp};
use serde_json::Value;

use self::root::Root;
use crate::PLIMSOLL;
use crate::documentation::blocks::{blocks, lines};
use crate::support::{CommandOutput, Home, SOON, run};

/// The packages of this version, made once for all tests.
static PACKED: LazyLock<Packed> = LazyLock::new(Packed::new);
/// The directory that cargo has for files of tests.
const DIRECTORY: &str = env!("CARGO_TARGET_TMPDIR");
const NEXT_VERSION: &str = "99.0.0";

struct Packed {
    /// Where the packages are.
    out: PathBuf,
    /// The program that is in them.
    program: PathBuf,
    deb: PathBuf,
    upgrade: PathBuf,
    image: PathBuf,
    tarball: PathBuf,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn stamp(version: &str) -> Stamp {
    let epoch = 1_700_000_000;
    Stamp { version: version.to_owned(), epoch, compression: Compression::Fast }
}

impl Packed {
    fn new() -> Packed {
        // Nothing is dropped at the end of the process, so the next run removes it.
        let at = &Path::new(DIRECTORY).join("packages");
        fs::remove_dir_all(at).or_else(absent).unwrap();
        fs::create_dir_all(at).unwrap();
        let (root, built) = (repository(), Path::new(PLIMSOLL));
        let now = stamp(env!("CARGO_PKG_VERSION"));
        let packed = Program::prepared(built, built, &at.join("work")).unwrap();
        let library = boost_library();
        let depends = packed.debian_dependencies(None).unwrap();
        let out = at.join("out");
        fs::create_dir(&out).unwrap();
        let deb = packages::deb(&root, &packed, Some(&library), &depends, &now, &out).unwrap();
        let image = packages::image(&root, &packed, "plimsoll", &now, &out).unwrap();
        let files = packages::installed(&root, &packed, None).unwrap().for_usr_local();
        let tarball = packages::tarball("plimsoll", &files, &now, &out).unwrap();
        let next = stamp(NEXT_VERSION);
        let upgrade = packages::deb(&root, &packed, None, &depends, &next, at).unwrap();
        let program = packed.binary().to_owned();
        Packed { out, program, deb, upgrade, image, tarball }
    }
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Beside the program, cargo has the library that the tests of boost use.
fn boost_library() -> PathBuf {
    Path::new(PLIMSOLL).with_file_name("deps/libplimsoll_boost.so")
}

fn said(program: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(program);
    command.args(arguments);
    run(command, SOON)
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes all packages of a small program in two directories, and compares the sums.
#[test]
fn the_same_input_gives_the_same_bytes() {
    let home = Home::new();
    let (root, now) = (repository(), stamp("1.2.3"));
    let made = ["here", "elsewhere/far"].map(|name| {
        let (out, work) = (home.path().join(name), home.path().join(format!("{name}-work")));
        fs::create_dir_all(&out).unwrap();
        let small = Path::new("/usr/bin/env");
        let small = Program::prepared(small, Path::new(PLIMSOLL), &work).unwrap();
        packages::deb(&root, &small, Some(&boost_library()), "libc6", &now, &out).unwrap();
        packages::debug_deb(&small, &now, &out).unwrap();
        packages::image(&root, &small, "plimsoll", &now, &out).unwrap();
        let files = packages::installed(&root, &small, None).unwrap();
        packages::tarball("plimsoll", &files, &now, &out).unwrap();
        fs::read_to_string(packages::sums(&out).unwrap()).unwrap()
    });
    assert_eq!(made[0].lines().count(), 4, "{}", made[0]);
    assert_eq!(made[0], made[1]);
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(home.path().join("here"));
    run(check, SOON).succeeded();
}

#[test]
fn the_debian_package_has_what_its_control_file_says() {
    let deb = shown(&PACKED.deb);
    let fields = said("dpkg-deb", &["--field", deb]).succeeded().stdout;
    for needed in
        ["Package: plimsoll\n", "libc6 (>= ", "systemd-standalone-sysusers", "\n A caching"]
    {
        assert!(fields.contains(needed), "{needed}: {fields}");
    }
    let list = said("dpkg-deb", &["--contents", deb]).succeeded().stdout;
    for (mode, path) in [
        ("-rwxr-xr-x", "usr/bin/plimsoll"),
        ("-rw-r--r--", "usr/lib/plimsoll/libplimsoll_boost.so"),
        ("-rw-r--r--", "usr/share/man/man1/plimsoll.1.gz"),
        ("-rw-r--r--", "usr/share/man/man1/plimsoll-serve.1.gz"),
        ("-rw-r--r--", "usr/share/bash-completion/completions/plimsoll"),
        ("-rw-r--r--", "usr/share/zsh/vendor-completions/_plimsoll"),
        ("-rw-r--r--", "usr/share/fish/vendor_completions.d/plimsoll.fish"),
        ("-rw-r--r--", "usr/lib/systemd/system/plimsoll.service"),
        ("-rw-r--r--", "usr/lib/systemd/system/plimsoll-record@.service"),
        ("-rw-r--r--", "etc/plimsoll/plimsoll.toml"),
        ("-rw-r--r--", "etc/logrotate.d/plimsoll"),
        ("-rw-r--r--", "usr/share/doc/plimsoll/copyright"),
    ] {
        let line = list.lines().find(|line| line.ends_with(&format!(" ./{path}")));
        let line = line.unwrap_or_else(|| panic!("no {path}: {list}"));
        assert!(line.starts_with(mode) && line.contains(" root/root "), "{line}");
    }
}

#[test]
fn a_debugger_finds_the_lines_of_the_program() {
    let home = Home::new();
    let built = Path::new(PLIMSOLL);
    let packed = Program::prepared(built, built, &home.path().join("work")).unwrap();
    let deb = packages::debug_deb(&packed, &stamp("1.2.3"), home.path()).unwrap();
    let list = said("dpkg-deb", &["--contents", shown(&deb)]).succeeded().stdout;
    assert!(list.contains(" root/root "), "{list}");
    assert!(list.contains("./usr/lib/debug/usr/bin/plimsoll.debug"), "{list}");
    let sections = |file: &Path| said("readelf", &["-SW", shown(file)]).succeeded().stdout;
    let (program, debug) = (sections(packed.binary()), sections(packed.debug()));
    assert!(program.contains(".gnu_debuglink") && !program.contains(".debug_line"), "{program}");
    assert!(debug.contains(".debug_line"), "{debug}");
    // The names of procedures stay, for profiles.
    assert!(program.contains(".symtab"), "{program}");
}

/// Edits the configuration file so that it serves.
const EDITED: &str = "
    conf=/etc/plimsoll/plimsoll.toml
    printf '[[listen]]\\naddress = \"127.0.0.1:8080\"\\n' >> $conf
    printf '[[upstream]]\\nname = \"origin\"\\n' >> $conf
    printf '[[upstream.server]]\\nurl = \"http://127.0.0.1:80\"\\n' >> $conf
    printf '[log]\\npath = \"/var/log/plimsoll/access.log\"\\n' >> $conf
";

#[test]
fn the_debian_package_is_installed_upgraded_removed_and_purged() {
    let home = Home::new();
    let Some(root) = Root::new(&home) else { return };
    let (deb, upgrade) = (shown(&PACKED.deb), shown(&PACKED.upgrade));
    let steps = format!(
        "{NO_MANUALS}
         dpkg --install {deb}
         id -u plimsoll && dpkg --verify plimsoll
         test \"$(plimsoll --version)\" = 'plimsoll {version}'
         plimsoll check /etc/plimsoll/plimsoll.toml 2>&1 | grep 'there is no listener'
         plimsoll serve -c /etc/plimsoll/plimsoll.toml && exit 1
         {EDITED}
         install -d -o plimsoll -g plimsoll /var/log/plimsoll /var/cache/plimsoll
         {NGINX}
         setpriv --reuid plimsoll --regid plimsoll --clear-groups \
             plimsoll serve -c /etc/plimsoll/plimsoll.toml & server=$!
         until plimsoll metrics > /dev/null 2>&1; do sleep 0.1; done
         log=/var/log/plimsoll/access.log
         get='curl --fail --silent --output /dev/null http://127.0.0.1:8080/'
         $get; until test -s $log; do sleep 0.1; done
         logrotate --force /etc/logrotate.d/plimsoll
         test -s $log.1 && test \"$(stat -c %U:%a $log)\" = plimsoll:640
         kill -USR1 $server; $get; until test -s $log; do $get; sleep 0.1; done
         kill $server && wait $server
         sum=$(sha256sum < $conf)
         dpkg --install {upgrade}
         dpkg --status plimsoll | grep 'Version: {NEXT_VERSION}'
         test \"$(sha256sum < $conf)\" = \"$sum\"
         dpkg --remove plimsoll
         test ! -e /usr/bin/plimsoll && test -e $conf && test -e /var/log/plimsoll
         dpkg --purge plimsoll
         test ! -e $conf && test ! -e /etc/logrotate.d/plimsoll && test ! -e /var/log/plimsoll
         echo done",
        version = env!("CARGO_PKG_VERSION"),
    );
    let output = root.run(&steps).succeeded();
    assert!(output.stdout.ends_with("done\n"), "{output:?}");
}

/// The index of all manual pages would be made again, which takes longer than everything else.
const NO_MANUALS: &str = "rm -f /var/lib/dpkg/info/man-db.postinst";
/// Starts the nginx of Debian, as its package configures it.
const NGINX: &str = "nginx";

/// The units, and the exposure that `systemd-analyze security` may show: 0 is none, 10 is all. The
/// recorder must see other processes.
const UNITS: [(&str, f64); 2] = [("plimsoll.service", 2.0), ("plimsoll-record@nginx.service", 3.2)];

#[test]
fn the_units_are_valid_and_closed() {
    let home = Home::new();
    let Some(root) = Root::new(&home) else { return };
    let [proxy, recorder] = UNITS.map(|(unit, _)| unit);
    let verified = root
        .run(&format!(
            "{NO_MANUALS}; dpkg --install {} > /dev/null
             cd /usr/lib/systemd/system
             cp plimsoll-record@.service {recorder}
             systemd-analyze verify --man=no ./{proxy} ./{recorder}
             for unit in {proxy} {recorder}; do
                 systemd-analyze security --offline=true --no-pager --json=off ./$unit
             done",
            shown(&PACKED.deb)
        ))
        .succeeded();
    for (unit, exposure_max) in UNITS {
        assert!(!verified.stderr.contains(unit), "{verified:?}");
        let exposure = verified.stdout.split_once(&format!("{unit}: ")).map(|(_, rest)| rest);
        let exposure = exposure.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        let exposure = exposure.unwrap_or_else(|| panic!("{verified:?}"));
        assert!(exposure <= exposure_max, "{exposure}: {}", verified.stdout);
    }
}

/// The commands of the first block in a section of a document.
fn commands(document: &str, section: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(document)).unwrap();
    let (_, section) = text.split_once(&format!("## {section}\n")).unwrap();
    lines(&blocks(section).unwrap()[0].text)
}

#[test]
fn three_commands_lead_from_the_package_to_the_first_load_line() {
    let home = Home::new();
    let Some(root) = Root::new(&home) else { return };
    let commands = commands("docs/install.md", "To the first load line");
    assert_eq!(commands.len(), 3, "{commands:?}");
    assert!(commands[1].contains("--for 30s"), "{commands:?}");
    let typed = commands.join("\n").replace("--for 30s", "--for 8s");
    // The package is in the current directory; the load begins before it is installed.
    let output = root
        .run(&format!(
            "{NO_MANUALS}; : > /var/log/nginx/access.log; {NGINX}
             {} load http://127.0.0.1/ --rate 50..500 --for 25s > /dev/null &
             cd {}\n{typed}\necho done",
            shown(&PACKED.program),
            shown(&PACKED.out)
        ))
        .succeeded();
    assert!(output.stdout.ends_with("done\n"), "{output:?}");
    let (_, report) = output.stdout.rsplit_once("nginx.trial\n").unwrap();
    for line in ["Capacity", "Limit", "Cost"] {
        assert!(report.lines().any(|l| l.trim_start().starts_with(line)), "{line}: {report}");
    }
}

#[test]
fn the_list_of_crates_is_that_of_the_lock_file() {
    let arguments = packages::sbom_arguments("bpf,lab,server");
    let mut list = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    let tree = packages::output(list.current_dir(repository()).args(arguments)).unwrap();
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let text = packages::sbom("plimsoll", &lock, &tree, &stamp("1.2.3")).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&list["bomFormat"], &list["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = list["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|one| one["name"] == name);
    let rustls = named("rustls").unwrap();
    assert_eq!(rustls["hashes"][0]["content"].as_str().unwrap().len(), 64, "{rustls}");
    assert!(rustls["licenses"][0]["expression"].as_str().unwrap().contains("Apache-2.0"));
    assert!(named("plimsoll").unwrap()["hashes"].is_null());
    // Only the tests use it.
    assert!(named("proptest").is_none() && named("insta").is_none());
    let known: Vec<&Value> = components.iter().map(|one| &one["bom-ref"]).collect();
    for edge in list["dependencies"].as_array().unwrap() {
        for to in edge["dependsOn"].as_array().unwrap() {
            assert!(known.contains(&to), "{to}");
        }
    }
}

/// The unit of the tarball named paths of the Debian package.
#[test]
fn the_tarball_is_a_service_below_usr_local() {
    let home = Home::new();
    let Some(root) = Root::new(&home) else { return };
    let commands = commands("docs/serve.md", "As a service of systemd");
    let [unpack, make_user, edit, reload, start] = &commands[..] else { panic!("{commands:?}") };
    let unpack = unpack.rsplit_once(' ').unwrap().0;
    let conf = edit.strip_prefix("editor ").unwrap();
    let of_systemd = ["systemctl daemon-reload", "systemctl enable --now plimsoll"];
    assert_eq!([reload, start], of_systemd);
    let output = root
        .run(&format!(
            "{unpack} {}
             {make_user}
             id -u plimsoll
             systemd-analyze verify --man=no /usr/local/lib/systemd/system/plimsoll.service
             grep -F 'ExecStart=/usr/local/bin/plimsoll serve -c {conf}' \
                 /usr/local/lib/systemd/system/plimsoll.service
             cd / && plimsoll check {conf} 2>&1 | grep 'there is no listener'
             plimsoll --version",
            shown(&PACKED.tarball)
        ))
        .succeeded();
    assert!(!output.stderr.contains("plimsoll.service"), "{output:?}");
    let version = format!("plimsoll {}\n", env!("CARGO_PKG_VERSION"));
    assert!(output.stdout.ends_with(&version), "{output:?}");
}

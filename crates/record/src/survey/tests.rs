//! Whole files, plain and compressed, complete and truncated, checked against a slow, simple count.

use super::*;
use std::fs;
use std::io::Write;

fn line(second: u32, status: u16, agent: &str) -> String {
    format!(
        "203.0.113.{} - - [17/May/2015:10:{:02}:{:02} +0000] \"GET /a?key={second} HTTP/1.1\" \
         {status} {} \"-\" \"{agent}\"\n",
        second % 250,
        second / 60 % 60,
        second % 60,
        second * 7 % 100_000
    )
}

fn text(lines: u32) -> String {
    (0..lines).map(|n| line(n / 20, if n % 9 == 0 { 404 } else { 200 }, "Mozilla/5.0")).collect()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

fn xz(text: &[u8]) -> Vec<u8> {
    let mut packed = liblzma::write::XzEncoder::new(Vec::new(), 1);
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

fn zst(text: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(text, 1).unwrap()
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn read(files: &[&Path], threads: usize) -> Survey {
    let files = files.iter().map(|path| path.to_path_buf()).collect();
    survey(&SurveySpec { files, threads, ..SurveySpec::default() }).unwrap()
}

/// Everything except where it came from and how long it took.
fn essence(survey: &Survey) -> String {
    format!(
        "{} {} {} {:?} {:?} {:?} {:?} {:?} {} {:?} {:?}",
        survey.lines,
        survey.requests,
        survey.bad,
        survey.first_ns,
        survey.last_ns,
        survey.mean_rate,
        survey.peak,
        survey.bins,
        survey.bytes,
        survey.classes,
        survey.text_bytes
    )
}

#[test]
fn compression_and_pieces_do_not_change_the_counts() {
    let home = Home::new();
    // Two pieces of a plain file and several blocks; two lines are not requests.
    let mut whole = text(50_000);
    whole.insert_str(4000, "\nno request\n");
    let (first, second) = whole.split_at(whole.len() / 3);
    let plain = home.file("plain", &whole);
    let one = read(&[&plain], 1);
    assert!(one.text_bytes > 4 << 20 && one.bad >= 2, "{one}");
    let bytes: u64 = (0..50_000u64).map(|n| n / 20 * 7 % 100_000).sum();
    // The line into which the noise was inserted is bad.
    assert_eq!(one.lines, 50_002);
    assert!(one.bytes <= bytes && one.bytes + 100_000 > bytes);
    assert_eq!(one.peak.unwrap().requests, 20);
    for (name, packed) in [
        ("log.gz", [gzip(first.as_bytes()), gzip(second.as_bytes())].concat()),
        ("log.xz", [xz(first.as_bytes()), xz(second.as_bytes())].concat()),
        ("log.zst", [zst(first.as_bytes()), zst(second.as_bytes())].concat()),
        ("log", whole.clone().into_bytes()),
    ] {
        let path = home.file(name, packed);
        for threads in [1, 3] {
            let read = read(&[&path], threads);
            assert_eq!(essence(&read), essence(&one), "{name} by {threads}");
            assert_eq!(read.bad_lines[0].offset, one.bad_lines[0].offset);
            assert_eq!(read.files[0].torn, None, "{name}");
        }
    }
}

#[test]
fn a_truncated_end_is_reported_and_everything_before_it_is_read() {
    let home = Home::new();
    let whole = text(30_000);
    for (name, packed) in [
        ("log.gz", gzip(whole.as_bytes())),
        ("log.xz", xz(whole.as_bytes())),
        ("log.zst", zst(whole.as_bytes())),
    ] {
        let path = home.file(name, &packed[..packed.len() * 3 / 4]);
        let read = read(&[&path], 2);
        let torn = read.files[0].torn.clone().unwrap_or_else(|| panic!("{name} is torn"));
        assert!(torn.contains("everything before that was read"), "{name}: {torn}");
        assert!(read.requests > 1000 && read.requests < 30_000, "{name}: {read}");
        assert!(read.bad <= 1, "only the line that was cut");
        assert!(read.to_string().contains("torn"), "{read}");
    }
    // Noise in the middle of the compressed data.
    let mut packed = gzip(whole.as_bytes());
    let middle = packed.len() / 2;
    packed[middle..middle + 64].fill(0xff);
    let read = read_one(&home.file("damaged.gz", packed));
    assert!(read.files[0].torn.is_some() && read.lines > 0, "{read}");
    let cut = read_one(&home.file("cut", &whole[..whole.len() - 30]));
    assert_eq!(cut.files[0].torn.as_deref(), Some("its last line has no end"));
    assert_eq!((cut.lines, cut.bad), (30_000, 1));
}

fn read_one(path: &Path) -> Survey {
    read(&[path], 2)
}

#[test]
fn several_files_are_read_in_chronological_order() {
    let home = Home::new();
    let late = home.file("access.log", line(3000, 200, "x").repeat(3));
    let early = home.file("access.log.1.gz", gzip(line(5, 200, "x").repeat(2).as_bytes()));
    let nothing = home.file("empty", "");
    let read = read(&[&late, &nothing, &early], 2);
    let names: Vec<_> = read.files.iter().map(|f| f.path.file_name().unwrap()).collect();
    assert_eq!(names, ["access.log.1.gz", "access.log", "empty"]);
    assert_eq!((read.requests, read.bad), (5, 0));
    assert_eq!(read.format, "combined");
    assert_eq!(read.last_ns.unwrap() - read.first_ns.unwrap(), 2995 * 1_000_000_000);
    let text = read.to_string();
    for part in ["5 requests", "2015-05-17 10:00:05", "GET 5 (100.0 %)", "(gzip): 2 lines"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn an_endless_line_is_one_bad_line_in_bounded_memory() {
    let home = Home::new();
    let long = format!("{}{}\n{}", line(1, 200, "x"), "y".repeat(9 << 20), line(2, 200, "x"));
    for path in [home.file("long", &long), home.file("long.gz", gzip(long.as_bytes()))] {
        let read = read_one(&path);
        assert_eq!((read.lines, read.bad), (3, 1), "{}", path.display());
        assert!(read.bad_lines[0].text.len() < 300);
    }
}

#[test]
fn only_the_shape_of_a_bad_line_is_shown_when_redacted() {
    let home = Home::new();
    let bad = "203.0.113.77 token=abcdef \"GET /x?password=hunter2 HTTP/1.1\" nonsense\n";
    let path = home.file("log", format!("{}{bad}", line(1, 200, "x")));
    let mut spec = SurveySpec { files: vec![path], ..SurveySpec::default() };
    assert!(survey(&spec).unwrap().to_string().contains("hunter2"));
    spec.redact = true;
    let found = survey(&spec).unwrap();
    let text = format!("{found} {found:?}");
    for secret in ["hunter2", "password", "203.0.113", "token", "abcdef"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(text.contains("0.0.0.0 a=a"), "{text}");
}

#[test]
fn unreadable_files_are_refused_by_name() {
    let home = Home::new();
    for path in [home.0.path().join("none"), home.0.path().to_owned()] {
        let spec = SurveySpec { files: vec![path.clone()], ..SurveySpec::default() };
        let error = survey(&spec).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
    let letter = home.file("letter", "Hello,\nI am no log.\n");
    let read = read_one(&letter);
    assert_eq!((read.lines, read.bad, read.requests), (2, 2, 0));
    assert!(read.declares.contains("no line was understood"));
}

/// A combined log of a real site, compressed with xz, if one is named.
#[test]
fn a_real_log_has_the_counts_of_a_slow_and_simple_parser() {
    let Ok(path) = std::env::var("PLIMSOLL_TEST_LOG") else {
        println!("skipped: PLIMSOLL_TEST_LOG names no combined log in .xz");
        return;
    };
    let mut text = String::new();
    let packed = fs::File::open(&path).unwrap();
    std::io::Read::read_to_string(&mut liblzma::read::XzDecoder::new(packed), &mut text).unwrap();
    let (mut errors, mut bytes, mut heads) = (0, 0, 0);
    let mut minutes = std::collections::BTreeMap::<&str, u64>::new();
    // A line that was truncated in its last field is not a request.
    for line in text.lines().filter(|line| line.ends_with('"')) {
        let status: u32 = line.split("\" ").nth(1).unwrap()[..3].parse().unwrap();
        errors += u64::from(status >= 400);
        let size = line.split("\" ").nth(1).unwrap().split(' ').nth(1).unwrap();
        bytes += size.parse::<u64>().unwrap_or(0);
        heads += u64::from(line.split('"').nth(1).unwrap().starts_with("HEAD "));
        let minute = line.split('[').nth(1).unwrap().split(' ').next().unwrap();
        *minutes.entry(&minute[..17]).or_default() += 1;
    }
    let found = read_one(Path::new(&path));
    let of = |wanted: fn(&ClassCount) -> bool| -> u64 {
        found.classes.iter().filter(|c| wanted(c)).map(|c| c.requests).sum()
    };
    let cut = text.lines().filter(|line| !line.ends_with('"')).count() as u64;
    assert_eq!((found.lines, found.bad), (text.lines().count() as u64, cut));
    assert_eq!((of(|c| c.outcome == "error"), of(|c| c.method == "HEAD")), (errors, heads));
    assert_eq!(found.bytes, bytes);
    if found.bin_width_s == 60 {
        assert_eq!(found.bins.len(), minutes.len());
        assert_eq!(found.bins.iter().map(|b| b.requests).max(), minutes.values().max().copied());
    }
    println!("{found}");
}

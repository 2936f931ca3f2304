//! Whole files, plain and compressed, complete and truncated, checked against a slow, simple count.

use super::*;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;

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

fn bz2(text: &[u8]) -> Vec<u8> {
    let mut packed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

fn lz4(text: &[u8]) -> Vec<u8> {
    let mut info = lz4_flex::frame::FrameInfo::new();
    info.content_checksum = true;
    info.block_size = lz4_flex::frame::BlockSize::Max64KB;
    let mut packed = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

/// How an entry of an archive is written.
#[derive(Clone, Copy, PartialEq)]
enum Packing {
    Stored,
    Deflated,
    /// Deflated, with the sizes after the data, as if written to a pipe.
    Streamed,
    /// The same with sizes of 64 bits.
    Streamed64,
}

/// An entry of a ZIP archive.
fn zip_entry(name: &str, text: &[u8], packing: Packing) -> Vec<u8> {
    let data = if packing == Packing::Stored {
        text.to_vec()
    } else {
        let mut packed =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    };
    let mut crc = flate2::Crc::new();
    crc.update(text);
    let streamed = matches!(packing, Packing::Streamed | Packing::Streamed64);
    let sizes = [data.len() as u32, text.len() as u32];
    let extra: &[u8] = if packing == Packing::Streamed64 {
        &[1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    } else {
        &[9, 0, 1, 0, 7]
    };
    let mut entry = b"PK\x03\x04\x14\0".to_vec();
    entry.extend(if streamed { 8u16 } else { 0 }.to_le_bytes());
    entry.extend(if packing == Packing::Stored { 0u16 } else { 8 }.to_le_bytes());
    entry.extend([0; 4]);
    for number in [crc.sum(), sizes[0], sizes[1]] {
        entry.extend(if streamed { 0 } else { number }.to_le_bytes());
    }
    entry.extend((name.len() as u16).to_le_bytes());
    entry.extend((extra.len() as u16).to_le_bytes());
    entry.extend(name.as_bytes());
    entry.extend(extra);
    entry.extend(data);
    if streamed {
        entry.extend(b"PK\x07\x08");
        entry.extend(crc.sum().to_le_bytes());
        for size in sizes {
            let size = u64::from(size).to_le_bytes();
            entry.extend(if packing == Packing::Streamed64 { &size[..] } else { &size[..4] });
        }
    }
    entry
}

/// Entries, and the beginning of the directory.
fn zip(entries: &[(&str, &[u8], Packing)]) -> Vec<u8> {
    let mut archive: Vec<u8> =
        entries.iter().flat_map(|(name, text, packing)| zip_entry(name, text, *packing)).collect();
    archive.extend(b"PK\x01\x02");
    archive.extend([0; 42]);
    archive
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
        ("log.bz2", [bz2(first.as_bytes()), bz2(second.as_bytes())].concat()),
        ("log.lz4", [lz4(first.as_bytes()), lz4(second.as_bytes())].concat()),
        ("log.zip", zip(&[("log", whole.as_bytes(), Packing::Deflated)])),
        ("stored.zip", zip(&[("log", whole.as_bytes(), Packing::Stored)])),
        ("streamed.zip", zip(&[("log", whole.as_bytes(), Packing::Streamed)])),
        ("streamed64.zip", zip(&[("log", whole.as_bytes(), Packing::Streamed64)])),
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
        ("log.lz4", lz4(whole.as_bytes())),
        ("log.zip", zip_entry("log", whole.as_bytes(), Packing::Deflated)),
        ("stored.zip", zip_entry("log", whole.as_bytes(), Packing::Stored)),
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
fn every_entry_of_an_archive_is_read_and_none_is_joined_with_the_next() {
    let home = Home::new();
    let (one, two) = (line(1, 200, "a"), line(2, 404, "b"));
    let path = home.file(
        "logs.zip",
        zip(&[
            ("logs/", b"", Packing::Stored),
            // Without a newline at its end.
            ("logs/1", one.trim_end().as_bytes(), Packing::Stored),
            ("logs/2", two.as_bytes(), Packing::Streamed),
            ("logs/3", one.repeat(3).trim_end().as_bytes(), Packing::Deflated),
            ("logs/4", two.repeat(2).as_bytes(), Packing::Streamed64),
        ]),
    );
    let found = read(&[&path], 2);
    assert_eq!((found.requests, found.bad, found.files[0].packed), (7, 0, "zip"));
    assert_eq!(found.files[0].torn, None);
    let mut wrong_sum = zip_entry("log", one.repeat(9).as_bytes(), Packing::Stored);
    let at = wrong_sum.len() - 5;
    wrong_sum[at] ^= 1;
    let torn = read_one(&home.file("sum.zip", wrong_sum)).files[0].torn.clone().unwrap();
    assert!(torn.contains("damaged"), "{torn}");
    for (at, value, what) in [(6, 1, "encrypted"), (8, 12, "another way")] {
        let mut entry = zip_entry("log", one.as_bytes(), Packing::Deflated);
        entry[at] = value;
        let torn = read_one(&home.file("other.zip", entry)).files[0].torn.clone().unwrap();
        assert!(torn.contains(what) && torn.contains("unzip -p"), "{torn}");
    }
}

/// A pipe is read once, in any compression, and beside files.
#[test]
fn pipes_are_read_as_files_are() {
    let home = Home::new();
    let whole = text(50_000);
    let plain = read_one(&home.file("log", &whole));
    for (name, bytes) in [
        ("plain", whole.clone().into_bytes()),
        ("gz", gzip(whole.as_bytes())),
        ("bz2", bz2(whole.as_bytes())),
        ("zip", zip(&[("log", whole.as_bytes(), Packing::Streamed)])),
        ("torn", gzip(whole.as_bytes())[..20_000].to_vec()),
        ("empty", Vec::new()),
    ] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        let found = std::thread::scope(|scope| {
            // In small pieces, the first ending within what shows the compression.
            scope.spawn(move || {
                let (first, rest) = bytes.split_at(bytes.len().min(3));
                writer.write_all(first).unwrap();
                rest.chunks(70_000).for_each(|piece| writer.write_all(piece).unwrap());
            });
            let found = read_one(&path);
            drop(reader);
            found
        });
        match name {
            "torn" => {
                let torn = found.files[0].torn.as_ref();
                assert!(torn.is_some_and(|torn| torn.contains("truncated")), "{torn:?}");
                assert!(found.requests > 100 && found.requests < 50_000, "{found}");
            }
            "empty" => {
                assert_eq!((found.lines, found.causes.len()), (0, 1), "{found}");
                assert!(found.causes[0].contains("empty"), "{found}");
            }
            name => assert_eq!(essence(&found), essence(&plain), "{name}"),
        }
    }
}

/// The cause comes before the figures, and says what to type.
#[test]
fn causes_are_named_before_the_figures() {
    let home = Home::new();
    let good = line(1, 200, "x");
    let cut = format!("{}\n", &"h - - ".repeat(400)[..1023]);
    for (name, text, cause) in [
        ("none", String::new(), "is empty"),
        ("comments", "# a\n\n".to_owned(), "all are blank or comments"),
        (
            "events",
            "{\"time\":1,\"msg\":\"up\"}\n".repeat(3),
            "The first event: {\"time\":1,\"msg\":\"up\"} - this is JSON",
        ),
        ("february", "h - - [30/Feb/2026:10:00:00 +0000] \"GET /\" 200 5\n".into(), "date"),
        ("uvicorn", "INFO:     ::1:5 - \"GET / HTTP/1.1\" 200 OK\n".to_owned(), "uvicorn"),
        ("pretty", "{\n  \"a\": 1\n}\n".to_owned(), "jq -c"),
        ("utf16", good.bytes().flat_map(|b| [b as char, '\0']).collect(), "iconv"),
        ("mixed", good.repeat(20) + "GET / 200 1.2 ms - 5\n", "4.8 % of the lines (1 of 21)"),
        (
            "cut",
            good.repeat(9) + &cut.repeat(2),
            "2 of the lines that are not understood are 1,024",
        ),
    ] {
        let survey = read_one(&home.file(name, text));
        let shown = survey.to_string();
        assert!(shown.starts_with("problem  ") && shown.contains(cause), "{name}: {shown}");
        assert!(survey.causes.iter().any(|named| named.contains(cause)), "{name}");
    }
    for (name, text, hint) in [
        (
            "unit",
            "2026-11-28T10:00:00Z stdout F {\"ts\":1,\"status\":200,\"duration\":12}\n".to_owned(),
            "json:elapsed_ms=duration",
        ),
        ("nginx", good.replace("\"x\"", "\"x\" 0.003"), "after the agent is 0.003"),
    ] {
        let shown = read_one(&home.file(name, text)).to_string();
        assert!(shown.contains("latency  not read: ") && shown.contains(hint), "{shown}");
    }
    let fine = read_one(&home.file("fine", good.repeat(300) + "noise\n"));
    assert!(fine.causes.is_empty(), "{fine}");
    // Stamps an hour after the last change of the file: not possible, so it is a time zone.
    let ahead = home.file("ahead", &good);
    let stamp = read_one(&ahead).last_ns.unwrap();
    let changed = |before_s: u64| {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(stamp as u64);
        let at = at - std::time::Duration::from_secs(before_s);
        fs::File::options().write(true).open(&ahead).unwrap().set_modified(at).unwrap();
        read_one(&ahead).causes
    };
    assert!(changed(3590)[0].contains("1 h after") && changed(3590)[0].contains("TZ"));
    assert!(changed(37 * 60).is_empty(), "a copy");
    assert!(changed(0).is_empty());
    let mut header = vec![0; 512];
    header[257..262].copy_from_slice(b"ustar");
    header.extend(good.repeat(300).into_bytes());
    let archive = read_one(&home.file("logs.tar", header));
    assert!(archive.causes[0].contains("tar -xOf"), "{archive}");
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

/// Kubernetes and Docker split a line of more than 16 KiB. Its parts were bad lines.
#[test]
fn lines_that_a_container_runtime_has_split_are_one_request_each() {
    const PART_BYTES: usize = 16 << 10;
    let home = tempfile::tempdir().unwrap();
    let cri = |stream: &str, text: &str, is_last: bool| {
        format!("2026-11-28T10:00:00.1Z {stream} {} {text}\n", if is_last { "F" } else { "P" })
    };
    let docker = |stream: &str, text: &str, is_last: bool| {
        let text = text.replace('"', "\\\"") + if is_last { "\\n" } else { "" };
        format!(
            "{{\"log\":\"{text}\",\"stream\":\"{stream}\",\"time\":\"2026-11-28T10:00:00Z\"}}\n"
        )
    };
    let written = |part: &dyn Fn(&str, &str, bool) -> String| {
        let mut text = String::new();
        for n in 0..120 {
            let long = if n % 3 == 0 { "k".repeat(40_000 + n) } else { "k".to_owned() };
            let whole = line(n as u32, 200, "curl").replace("key", &long);
            let mut rest = whole.trim_end();
            while !rest.is_empty() {
                let (now, after) = rest.split_at(rest.len().min(PART_BYTES));
                text.push_str(&part("stdout", now, after.is_empty()));
                // Another stream writes in between.
                text.push_str(&part("stderr", "notice", n % 2 == 0));
                rest = after;
            }
        }
        text
    };
    let plain: u64 = (0..120).map(|n| n * 7).sum();
    for (name, text) in [("cri", written(&cri)), ("docker", written(&docker))] {
        let paths = [home.path().join(name), home.path().join(format!("{name}.gz"))];
        fs::write(&paths[0], &text).unwrap();
        fs::write(&paths[1], gzip(text.as_bytes())).unwrap();
        for path in paths {
            let survey = read_one(&path);
            assert_eq!((survey.requests, survey.bytes), (120, plain), "{name}: {survey}");
            assert_eq!(survey.lines, 120 + survey.events + survey.bad, "{name}");
        }
    }
}

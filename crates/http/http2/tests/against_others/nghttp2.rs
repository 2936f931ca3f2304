//! nghttp2 as a server in memory, in another process: `nghttp2.py` calls the library.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use http2::Limits;

use crate::servers::{Request, Verdict, codes, sorted};

/// What it makes of these connections.
pub(crate) fn nghttp2(connections: &[Vec<u8>]) -> Vec<Verdict> {
    let limits = Limits::DEFAULT;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/against_others/nghttp2.py");
    let settings = [limits.streams_max, limits.stream_window_bytes, limits.fields_bytes_max];
    let mut child = Command::new("python3")
        .arg(script)
        .args(settings.map(|setting| setting.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 (./setup.sh test)");
    let mut input = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            for bytes in connections {
                let length = (bytes.len() as u32).to_be_bytes();
                // If the script has failed, its output says why.
                let _ = input.write_all(&length).and_then(|()| input.write_all(bytes));
            }
        });
        child.wait_with_output().unwrap()
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut verdicts, mut verdict) = (Vec::new(), Verdict::default());
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[..] {
            ["request", stream, is_whole, content, ref fields @ ..] => {
                let request = request(fields, content, is_whole == "1");
                verdict.requests.insert(stream.parse().unwrap(), request);
            }
            ["trailers", stream, ref fields @ ..] => {
                let request = verdict.requests.get_mut(&stream.parse().unwrap()).unwrap();
                request.trailers = sorted(pairs(fields));
            }
            ["frames", digits] => {
                let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
                let frames: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
                verdict.codes = codes(&frames);
                verdict.requests.retain(|stream, _| !verdict.codes.contains_key(stream));
                verdicts.push(std::mem::take(&mut verdict));
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(verdicts.len(), connections.len());
    verdicts
}

fn pairs(columns: &[&str]) -> impl Iterator<Item = (String, String)> {
    columns.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
}

fn request(fields: &[&str], content: &str, is_whole: bool) -> Request {
    let (pseudo, fields): (Vec<_>, Vec<_>) =
        pairs(fields).partition(|(name, _)| name.starts_with(':'));
    let value = |of: &[(String, String)], name: &str| {
        of.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    };
    let authority = value(&pseudo, ":authority").or_else(|| value(&fields, "host"));
    let [method, scheme, path] = [":method", ":scheme", ":path"].map(|name| value(&pseudo, name));
    let pseudo = [method, scheme, authority, path].map(Option::unwrap_or_default);
    let (fields, content) = (sorted(fields.into_iter()), content.to_owned());
    Request { pseudo, fields, content, is_whole, ..Request::default() }
}

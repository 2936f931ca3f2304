//! The exports, read back by independent readers of the formats.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use export::{Exported, csv, firefox, otlp, parquet as to_parquet, pprof};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use report::{Analysis, Error, Options, analyse};
use serde_json::Value;
use trial::Trial;
use trial::profile::Owner;

use super::COSTS;
use super::made::{Made, known, old_day};

fn analysed(made: &Made) -> (tempfile::TempDir, Trial, Analysis) {
    let (directory, trial) = made.open("known.trial");
    let analysis = analyse(&trial, &Options::default()).unwrap();
    (directory, trial, analysis)
}

fn server_ns(trial: &Trial) -> i64 {
    trial.samples().iter().filter(|row| row.owner == Owner::Server).map(|row| row.ns).sum()
}

/// Fields of a message in the wire format of protocol buffers: number and value, in order.
enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint has at most ten bytes");
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (of_field, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(of_field)
            }
            other => panic!("profile.proto has no fields of wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

/// All messages (or texts) of one field number.
fn messages<'a>(bytes: &'a [u8], number: u64) -> Vec<&'a [u8]> {
    let of = |(found, field): (u64, Field<'a>)| match field {
        Field::Bytes(bytes) if found == number => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(of).collect()
}

/// Integers of one field number, packed or not.
fn numbers(bytes: &[u8], number: u64) -> Vec<i64> {
    let mut found = Vec::new();
    for (at, field) in fields(bytes).into_iter().filter(|(at, _)| *at == number) {
        assert_eq!(at, number);
        match field {
            Field::Varint(value) => found.push(value.cast_signed()),
            Field::Bytes(mut packed) => {
                while !packed.is_empty() {
                    found.push(varint(&mut packed).cast_signed());
                }
            }
        }
    }
    found
}

#[test]
fn pprof_has_every_sample_its_time_and_the_whole_slope() {
    let (_directory, trial, analysis) = analysed(&known(&COSTS, 8));
    let packed = pprof(&trial, &analysis).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    let strings: Vec<&str> =
        messages(&bytes, 6).into_iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(strings[0], "", "the format wants it");
    let text = |message: &[u8], number| strings[numbers(message, number)[0] as usize];
    let types: Vec<(&str, &str)> =
        messages(&bytes, 1).iter().map(|of| (text(of, 1), text(of, 2))).collect();
    let wanted = [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
        ("cpu_of_a_million_requests", "microseconds"),
    ];
    assert_eq!(types, wanted);
    let functions: BTreeMap<i64, &str> =
        messages(&bytes, 5).iter().map(|of| (numbers(of, 1)[0], text(of, 2))).collect();
    let locations: BTreeMap<i64, &str> = messages(&bytes, 4)
        .iter()
        .map(|of| (numbers(of, 1)[0], functions[&numbers(messages(of, 4)[0], 1)[0]]))
        .collect();
    let (mut sums, mut server, mut stacks) = ([0_i64; 3], 0, Vec::new());
    for sample in messages(&bytes, 2) {
        let values = numbers(sample, 2);
        sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
        let label = messages(sample, 3)[0];
        assert_eq!(text(label, 1), "owner");
        if text(label, 2) == "server" {
            server += values[1];
        }
        let names: Vec<&str> = numbers(sample, 1).iter().map(|id| locations[id]).collect();
        stacks.push(names.join(" < "));
    }
    let samples: i64 = trial.samples().iter().map(|row| i64::from(row.samples)).sum();
    assert_eq!((sums[0], server), (samples, server_ns(&trial)));
    let whole = analysis.costs.as_ref().unwrap().whole.us_per_request;
    assert!((sums[2] as f64 / 1e6 - whole).abs() < 1e-5, "{} of {whole}", sums[2]);
    assert!(stacks.iter().any(|stack| stack == "tcp_sendmsg < main"), "{stacks:?}");
    assert_eq!(numbers(&bytes, 12), [10_000_000], "the period of 100 Hz");
    assert_eq!(
        strings[numbers(&bytes, 14)[0] as usize],
        "cpu",
        "shown unless another is asked for"
    );
}

#[test]
fn the_firefox_profile_has_a_track_per_owner_with_samples_and_stacks() {
    let (_directory, trial, analysis) = analysed(&known(&COSTS, 8));
    let json: Value = serde_json::from_slice(&firefox(&trial, &analysis).unwrap()).unwrap();
    assert_eq!(json["meta"]["interval"], 10.0, "milliseconds at 100 Hz");
    let threads = json["threads"].as_array().unwrap();
    let names: Vec<&str> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["known", "recorder", "others"]);
    let list = |value: &Value| value.as_array().unwrap().clone();
    let server = &threads[0];
    let (samples, stacks) = (&server["samples"], &server["stackTable"]);
    let weight: i64 = list(&samples["weight"]).iter().map(|value| value.as_i64().unwrap()).sum();
    assert_eq!(weight * 10_000_000, server_ns(&trial));
    let strings = list(match &server["stringArray"] {
        Value::Null => &json["shared"]["stringArray"],
        own => own,
    });
    let mut found = BTreeMap::new();
    for (stack, weight) in list(&samples["stack"]).iter().zip(list(&samples["weight"])) {
        let (mut names, mut at) = (Vec::new(), stack.as_u64());
        while let Some(stack) = at {
            let frame = stacks["frame"][stack as usize].as_u64().unwrap() as usize;
            let func = server["frameTable"]["func"][frame].as_u64().unwrap() as usize;
            let name = server["funcTable"]["name"][func].as_u64().unwrap() as usize;
            names.push(strings[name].as_str().unwrap().to_string());
            at = stacks["prefix"][stack as usize].as_u64();
        }
        *found.entry(names.join(" < ")).or_insert(0) += weight.as_i64().unwrap();
    }
    assert_eq!(found.len(), COSTS.len(), "{found:?}");
    assert!(found.contains_key("tcp_sendmsg < main"), "{found:?}");
    let requests = &json["counters"][0]["samples"]["count"];
    let counted: f64 = list(requests).iter().map(|value| value.as_f64().unwrap()).sum();
    assert!((counted - analysis.trial.requests).abs() < 1e-6 * counted, "{counted}");
}

fn find<'a>(files: &'a [Exported], name: &str) -> &'a [u8] {
    &files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}")).bytes
}

/// Parses CSV by RFC 4180; `None` is an empty cell without quotes.
fn read_csv(bytes: &[u8]) -> Vec<Vec<Option<String>>> {
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    let (mut cell, mut quoted, mut was_quoted) = (String::new(), false, false);
    let mut letters = std::str::from_utf8(bytes).unwrap().chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => (quoted, was_quoted) = (!quoted, true),
            ',' | '\r' if !quoted => {
                let text = std::mem::take(&mut cell);
                row.push((was_quoted || !text.is_empty()).then_some(text));
                was_quoted = false;
                if letter == '\r' {
                    assert_eq!(letters.next(), Some('\n'), "lines end in CRLF");
                    rows.push(std::mem::take(&mut row));
                }
            }
            letter => cell.push(letter),
        }
    }
    assert!(row.is_empty() && cell.is_empty(), "the last line ends too");
    rows
}

#[test]
fn csv_round_trips_every_interval_and_cost() {
    let mut made = known(&COSTS, 8);
    made.intervals[3].phase = Some("a \"phase\", with\r\nall of it".to_string());
    let (_directory, trial, analysis) = analysed(&made);
    let files = csv(&trial, &analysis);
    let rows = read_csv(find(&files, "intervals.csv"));
    let at = |name: &str| rows[0].iter().position(|cell| cell.as_deref() == Some(name)).unwrap();
    assert_eq!(rows.len(), 1 + trial.intervals().len());
    for (row, interval) in rows[1..].iter().zip(trial.intervals()) {
        let cell = |name: &str| row[at(name)].as_deref();
        assert_eq!(cell("requests").unwrap().parse::<f64>().unwrap(), interval.requests);
        assert_eq!(cell("machine_idle_ns").unwrap(), interval.machine.idle_ns.to_string());
        assert_eq!(cell("rate_valid"), Some("true"));
        assert_eq!(cell("phase"), interval.phase.as_deref());
        assert_eq!(cell("server_descriptors"), None, "what is not known is empty");
    }
    let costs = read_csv(find(&files, "costs.csv"));
    assert_eq!(costs[1][0].as_deref(), Some("whole"));
    let table = analysis.costs.as_ref().unwrap();
    assert_eq!(costs[1][5].as_ref().unwrap().parse::<f64>().unwrap(), table.whole.us_per_request);
    let parts = |part: &str| costs.iter().filter(|row| row[0].as_deref() == Some(part)).count();
    assert_eq!((parts("group"), parts("procedure"), parts("outside")), (5, 5, 1));
    assert_eq!(read_csv(find(&files, "threads.csv")).len(), 1 + 240);
    assert_eq!(read_csv(find(&files, "classes.csv")).len(), 1, "a head and no row");
}

fn reader(bytes: &[u8]) -> SerializedFileReader<std::fs::File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    SerializedFileReader::new(file).unwrap()
}

#[test]
fn parquet_has_the_values_of_the_csv_with_types_and_nulls() {
    let mut made = known(&COSTS, 8);
    made.intervals[3].phase = Some("warm-up".to_string());
    let (_directory, trial, analysis) = analysed(&made);
    let (files, text) = (to_parquet(&trial, &analysis).unwrap(), csv(&trial, &analysis));
    assert_eq!(files.len(), text.len(), "all is in one day");
    for (file, text) in files.iter().zip(&text) {
        let table = text.name.trim_end_matches(".csv");
        assert!(file.name.starts_with(&format!("{table}/day=")), "{}", file.name);
        let reader = reader(&file.bytes);
        let rows = read_csv(&text.bytes);
        assert_eq!(columns(&reader)[3..], rows[0], "{}", file.name);
        assert_eq!(reader.get_row_iter(None).unwrap().count(), rows.len() - 1, "{}", file.name);
        for (row, cells) in reader.get_row_iter(None).unwrap().zip(&rows[1..]) {
            let row = row.unwrap();
            for ((_, field), cell) in row.get_column_iter().skip(3).zip(cells) {
                use parquet::record::Field;
                match field {
                    Field::Null => assert_eq!(*cell, None),
                    Field::Long(value) => assert_eq!(*cell, Some(value.to_string())),
                    Field::Double(value) => assert_eq!(*cell, Some(value.to_string())),
                    Field::Bool(value) => assert_eq!(*cell, Some(value.to_string())),
                    Field::Str(value) => assert_eq!(cell.as_ref(), Some(value)),
                    other => panic!("{other:?} in {}", file.name),
                }
            }
        }
    }
    let reader = reader(&files[0].bytes);
    let fourth = reader.get_row_iter(None).unwrap().nth(3).unwrap().unwrap();
    assert_eq!(fourth.get_long(3).unwrap(), 3);
    assert_eq!(fourth.get_double(6).unwrap(), trial.intervals()[3].requests);
}

fn columns(of: &impl FileReader) -> Vec<Option<String>> {
    let schema = of.metadata().file_metadata().schema_descr();
    schema.columns().iter().map(|column| Some(column.name().to_string())).collect()
}

/// As Spark decodes the name of a directory, character by character.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap().to_string();
    parts.fold(first, |out, part| {
        let (code, rest) = part.split_at(2);
        out + &char::from(u8::from_str_radix(code, 16).unwrap()).to_string() + rest
    })
}

#[test]
fn parquet_is_partitioned_and_each_row_is_in_the_file_of_its_day() {
    let mut made = old_day();
    made.manifest.host.hostname = "wéb/01=%".to_string();
    made.manifest.labels.insert("release".to_string(), "4\"2".to_string());
    for interval in &mut made.intervals {
        // From noon to noon.
        interval.start_ns += 12 * 3_600_000_000_000 - made.manifest.created_ns % 86_400_000_000_000;
    }
    let (_directory, trial, analysis) = analysed(&made);
    let files = to_parquet(&trial, &analysis).unwrap();
    let identity = format!("{:016x}.parquet", trial.manifest().identity());
    let (mut days, mut seen, mut schemas) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for file in &files {
        let parts: Vec<&str> = file.name.split('/').collect();
        let [table, day, host, server, name] = parts.as_slice() else { panic!("{}", file.name) };
        assert_eq!(decoded(host), "host=wéb/01=%");
        assert_eq!(decoded(server), "server=Squid 1.1.20Mod, old");
        assert_eq!(*name, identity);
        let reader = reader(&file.bytes);
        let schema = reader.metadata().file_metadata().schema_descr().root_schema().clone();
        assert_eq!(*schemas.entry(*table).or_insert_with(|| schema.clone()), schema, "{table}");
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            *seen.entry(*table).or_insert(0) += 1;
            assert_eq!(row.get_string(0).unwrap().as_str(), &identity[..16]);
            assert_eq!(row.get_string(2).unwrap(), r#"{"release":"4\"2"}"#);
            if *table == "intervals" {
                let start = report::format::instant(row.get_long(4).unwrap());
                assert_eq!(*day, format!("day={}", &start[..10]));
            }
        }
        days.push(*day);
    }
    days.sort_unstable();
    days.dedup();
    assert_eq!(days.len(), 2, "{days:?}");
    assert_eq!(files.len(), 2 * schemas.len(), "also files without rows, for their schema");
    assert_eq!(seen["intervals"], 96);
    assert!(seen["costs"] > 1, "{seen:?}");
}

#[test]
fn otlp_has_the_stacks_and_values_of_pprof() {
    use opentelemetry_proto::tonic::collector::profiles::v1development as service;
    use prost::Message;

    let (_directory, trial, analysis) = analysed(&known(&COSTS, 8));
    let message = otlp(&trial, &analysis).unwrap();
    let message = service::ExportProfilesServiceRequest::decode(message.as_slice()).unwrap();
    let tables = message.dictionary.unwrap();
    let text = |at: i32| tables.string_table[at as usize].as_str();
    let resource = message.resource_profiles[0].resource.as_ref().unwrap();
    assert!(resource.attributes.iter().any(|of| of.key == "service.instance.id"));
    let profiles = &message.resource_profiles[0].scope_profiles[0].profiles;
    let types: Vec<_> = profiles
        .iter()
        .map(|profile| profile.sample_type.unwrap())
        .map(|of| (text(of.type_strindex), text(of.unit_strindex)))
        .collect();
    let cost = ("cpu_of_a_million_requests", "microseconds");
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds"), cost]);
    let sums: Vec<i64> = profiles
        .iter()
        .map(|profile| profile.samples.iter().flat_map(|sample| &sample.values).sum())
        .collect();
    let samples: i64 = trial.samples().iter().map(|row| i64::from(row.samples)).sum();
    let whole = analysis.costs.as_ref().unwrap().whole.us_per_request;
    assert_eq!(sums[0], samples);
    assert!((sums[2] as f64 / 1e6 - whole).abs() < 1e-5, "{} of {whole}", sums[2]);
    let (mut server, mut stacks) = (0, Vec::new());
    for sample in &profiles[1].samples {
        let attribute = &tables.attribute_table[sample.attribute_indices[0] as usize];
        assert_eq!(text(attribute.key_strindex), "owner");
        if format!("{:?}", attribute.value).contains("\"server\"") {
            server += sample.values[0];
        }
        let stack = &tables.stack_table[sample.stack_index as usize];
        let names: Vec<&str> = stack
            .location_indices
            .iter()
            .map(|&at| tables.location_table[at as usize].lines[0].function_index)
            .map(|at| text(tables.function_table[at as usize].name_strindex))
            .collect();
        stacks.push(names.join(" < "));
    }
    assert_eq!(server, server_ns(&trial));
    assert!(stacks.iter().any(|stack| stack == "tcp_sendmsg < main"), "{stacks:?}");
    let ids: Vec<_> = profiles.iter().map(|profile| &profile.profile_id).collect();
    assert!(ids.iter().all(|id| id.len() == 16) && ids[0] != ids[1], "{ids:?}");
    assert_eq!((text(0), tables.location_table[0].lines.len()), ("", 0));
}

#[test]
fn without_a_profile_there_are_tables_but_no_stacks() {
    let mut made = old_day();
    made.samples.clear();
    let (_directory, trial, analysis) = analysed(&made);
    assert!(matches!(pprof(&trial, &analysis), Err(Error::NoProfile { .. })));
    assert!(matches!(firefox(&trial, &analysis), Err(Error::NoProfile { .. })));
    let files = csv(&trial, &analysis);
    assert_eq!(read_csv(find(&files, "intervals.csv")).len(), 1 + 96);
    assert_eq!(read_csv(find(&files, "costs.csv")).len(), 1);
}

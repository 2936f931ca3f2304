//! The profile of a trial as a message of OTLP, the protocol of OpenTelemetry. Its signal for
//! profiles is in development (`v1development`), so it may change.
//!
//! It is made from pprof's message. Both have the same tables. In OTLP, the first entry of each is
//! empty, so that an identity in pprof, which begins at 1, is the place in the table.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use trial::Trial;

use crate::{pprof, server_name};
use report::Analysis;
use report::Error;

/// The profile of a trial: an `ExportProfilesServiceRequest` with one profile for each kind of
/// value.
///
/// # Errors
/// [`Error::NoProfile`].
pub fn otlp(trial: &Trial, analysis: &Analysis) -> Result<Vec<u8>, Error> {
    let from = pprof::profile(trial, analysis)?;
    let manifest = trial.manifest();
    let mut attributes = vec![
        text("service.name", server_name(trial)),
        text("service.instance.id", &format!("{:016x}", manifest.identity())),
        text("host.name", manifest.host_name()),
    ];
    attributes.extend(manifest.server.version.iter().map(|of| text("service.version", of)));
    let labels = manifest.labels.iter();
    attributes.extend(labels.map(|(name, value)| text(&format!("plimsoll.label.{name}"), value)));
    let scope = InstrumentationScope {
        name: "plimsoll".to_owned(),
        version: manifest.tool_version.clone(),
        ..InstrumentationScope::default()
    };
    let (dictionary, samples) = dictionary(&from);
    let values = from.sample_type.iter().enumerate();
    let profiles = values.map(|(at, of)| profile(&from, manifest.identity(), at, *of, &samples));
    let scope_profiles = ScopeProfiles {
        scope: Some(scope),
        profiles: profiles.collect(),
        ..ScopeProfiles::default()
    };
    let resource_profiles = ResourceProfiles {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_profiles: vec![scope_profiles],
        ..ResourceProfiles::default()
    };
    let message = ExportProfilesServiceRequest {
        resource_profiles: vec![resource_profiles],
        dictionary: Some(dictionary),
    };
    Ok(message.encode_to_vec())
}

/// An attribute with a text.
fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn any(text: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text.to_owned())) }
}

/// A place in a table. No table has more than 2^31 entries, because a trial has fewer rows.
fn place(id: impl TryInto<i32>) -> i32 {
    id.try_into().unwrap_or_default()
}

/// The tables, and each sample's stack and attribute.
fn dictionary(from: &pprof::Profile) -> (ProfilesDictionary, Vec<(i32, i32)>) {
    let mut tables = ProfilesDictionary {
        mapping_table: vec![Mapping::default()],
        location_table: vec![Location::default()],
        function_table: vec![Function::default()],
        link_table: vec![Link::default()],
        string_table: from.string_table.clone(),
        attribute_table: vec![KeyValueAndUnit::default()],
        stack_table: vec![Stack::default()],
    };
    tables.mapping_table.extend(
        from.mapping
            .iter()
            .map(|of| Mapping { filename_strindex: place(of.filename), ..Mapping::default() }),
    );
    tables.function_table.extend(from.function.iter().map(|of| Function {
        name_strindex: place(of.name),
        system_name_strindex: place(of.system_name),
        filename_strindex: place(of.filename),
        start_line: 0,
    }));
    tables.location_table.extend(from.location.iter().map(|of| {
        let line = |line: &pprof::Line| Line {
            function_index: place(line.function_id),
            ..Line::default()
        };
        Location {
            mapping_index: place(of.mapping_id),
            lines: of.line.iter().map(line).collect(),
            ..Location::default()
        }
    }));
    let (mut stacks, mut attributes) = (HashMap::new(), HashMap::new());
    let mut samples = Vec::new();
    for sample in &from.sample {
        let stack = *stacks.entry(&sample.location_id).or_insert_with(|| {
            let location_indices = sample.location_id.iter().map(|&id| place(id)).collect();
            tables.stack_table.push(Stack { location_indices });
            place(tables.stack_table.len() - 1)
        });
        let attribute = sample.label.first().map_or(0, |label| {
            *attributes.entry((label.key, label.str)).or_insert_with(|| {
                let value = usize::try_from(label.str).ok();
                let value = value.and_then(|at| from.string_table.get(at));
                tables.attribute_table.push(KeyValueAndUnit {
                    key_strindex: place(label.key),
                    value: value.map(|value| any(value)),
                    unit_strindex: 0,
                });
                place(tables.attribute_table.len() - 1)
            })
        });
        samples.push((stack, attribute));
    }
    (tables, samples)
}

/// The profile of one kind of value.
fn profile(
    from: &pprof::Profile,
    trial: u64,
    at: usize,
    of: pprof::ValueType,
    samples: &[(i32, i32)],
) -> Profile {
    let typed = |of: pprof::ValueType| ValueType {
        type_strindex: place(of.r#type),
        unit_strindex: place(of.unit),
    };
    let samples = from.sample.iter().zip(samples).filter_map(|(sample, &(stack, attribute))| {
        let value = *sample.value.get(at).filter(|value| **value != 0)?;
        Some(Sample {
            stack_index: stack,
            attribute_indices: vec![attribute],
            values: vec![value],
            ..Sample::default()
        })
    });
    // The same in every message about the trial, so that a collector can drop duplicates.
    let identity = [trial.to_be_bytes(), (at as u64 + 1).to_be_bytes()].concat();
    Profile {
        sample_type: Some(typed(of)),
        samples: samples.collect(),
        time_unix_nano: from.time_nanos.try_into().unwrap_or_default(),
        duration_nano: from.duration_nanos.try_into().unwrap_or_default(),
        period_type: from.period_type.map(typed),
        period: from.period,
        profile_id: identity,
        ..Profile::default()
    }
}

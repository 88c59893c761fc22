//! Documents against the shapes of both versions: the properties and types of Slurm's OpenAPI document.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    job_rows::{Arrays, JobRow},
    sinfo::{Group, json::sinfo},
    step_lines::{Alike, StepLine},
    testing as views,
};
use garrick_model::{ids::StepNum, messages::statistics::Statistics, reservation::Reservation, view::LicenseView};
use std::sync::Arc;

/// Where a value differs from its shape: an object of properties, a list of one, or the name of a type.
pub(crate) fn differences(value: &Value, shape: &Value, at: &str, found: &mut Vec<String>) {
    match (shape, value) {
        (Value::Object(properties), Value::Object(object)) => {
            for (name, shape) in properties {
                match object.get(name) {
                    Some(value) => differences(value, shape, &format!("{at}.{name}"), found),
                    None => found.push(format!("{at}.{name} is missing")),
                }
            }
            let unknown = object.keys().filter(|name| !properties.contains_key(*name));
            found.extend(unknown.map(|name| format!("{at}.{name} is unknown")));
        }
        (Value::Array(items), Value::Array(list)) => {
            list.iter().for_each(|item| differences(item, &items[0], &format!("{at}[]"), found));
        }
        (Value::String(kind), value) => {
            let fits = match kind.as_str() {
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "object" => value.is_object(),
                _ => true,
            };
            if !fits {
                found.push(format!("{at} is no {kind}: {value}"));
            }
        }
        (shape, value) => found.push(format!("{at} is {value}, not {shape}")),
    }
}

/// Every kind of document, with something in it.
fn documents() -> Vec<(&'static str, Value)> {
    let (meta, clock) = (views::meta(), views::clock(7));
    let waits = Arc::new(views::waiting(504, garrick_model::state::Reason::Priority));
    let rows = JobRow::list(&[Arc::new(views::job_503()), waits], Arrays::Folded);
    let node = Arc::new(views::node(0));
    let partition = Arc::new(views::partition("debug", 1));
    let step = views::step(StepNum::Number(0), "a", "n1");
    let license = LicenseView { name: "matlab".into(), total: 3, used: 1, reserved: 0, layer: None, remote: None };
    let reservation = Arc::new(Reservation { name: "maint".into(), ..Reservation::default() });
    let partition_of_group = views::partition("debug", 1);
    let group = Group { partition: &partition_of_group, place: 0, nodes: vec![&*node] };
    let lines = StepLine::of(&step, None, &[], Alike::Folded);
    vec![
        ("jobs", jobs(&rows, &meta, &clock)),
        ("nodes", nodes(&[(Arc::clone(&node), vec!["debug".to_owned()])], &meta, &clock)),
        ("partitions", partitions(&[partition], &[Arc::clone(&node)], &meta, &clock)),
        ("reservations", reservations(&[reservation], clock.now, &meta)),
        ("steps", steps(&lines, &meta, &clock)),
        ("licenses", licenses(&[license], clock.now, &meta)),
        ("pings", pings(&[Ping { host: "head".into(), is_up: true, latency_us: 7 }], &meta)),
        ("sinfo", sinfo(&[group], std::slice::from_ref(&node), &meta)),
        ("statistics", statistics(&Statistics::default(), &meta, &|uid| uid.to_string())),
    ]
}

#[test]
fn documents_have_the_properties_and_types_of_both_versions() {
    for (version, text) in
        [(Version::V44, include_str!("shapes/v0.0.44.json")), (Version::V45, include_str!("shapes/v0.0.45.json"))]
    {
        let shapes: Value = serde_json::from_str(text).unwrap();
        let mut found = Vec::new();
        let mut documents = documents();
        if version == Version::V45 {
            // The older version has no document of it.
            let clock = views::clock(7);
            let document = config(&[], clock.now, &views::meta(), &clock);
            documents.extend(["slurm_conf", "slurm_conf_meta"].map(|name| (name, document.clone())));
        }
        for (name, document) in documents {
            let mut written = Vec::new();
            Form { version, yaml: false }.write(&mut written, document).unwrap();
            let document: Value = serde_json::from_slice(&written).unwrap();
            let objects: Vec<&Value> = match &document[name] {
                Value::Array(list) => list.iter().collect(),
                one => vec![one],
            };
            assert!(!objects.is_empty() && objects[0].is_object(), "{name}: {document}");
            objects.iter().for_each(|object| differences(object, &shapes[name], name, &mut found));
        }
        assert!(found.is_empty(), "{version:?}: {found:#?}");
    }
}

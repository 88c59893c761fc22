//! What holds for the rows of every table, and the page of docs that is made of them.
#![allow(clippy::unwrap_used)]

use super::{
    config::Config,
    described::{DescribedKey, described},
    global::GLOBAL,
    kinds::NULL,
    node::{NODE, Written},
    partition::{PARTITION, PartitionConfig},
    row::{Class, Row, Show},
};
use crate::testing::assert_page;
use std::{collections::BTreeSet, fmt::Write as _};

/// Honoured, and shown with another key or not at all.
const SHOWN_ELSEWHERE: [&str; 12] = [
    "ControlAddr",
    "ControlMachine",
    "DefCpuPerGPU",
    "DefMemPerCPU",
    "DefMemPerGPU",
    "DefMemPerNode",
    "GresTypes",
    "JobCompPass",
    "JobCompPassScript",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "PrologEpilogTimeout",
];

const SHOWN_ELSEWHERE_OF_PARTITIONS: [&str; 12] = [
    "DefCpuPerGPU",
    "DefMemPerGPU",
    "DefMemPerCPU",
    "DefMemPerNode",
    "DenyAccounts",
    "DenyQos",
    "ExclusiveTopo",
    "ExclusiveUser",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "Nodes",
    "Shared",
];

fn check<S: Clone>(table: &'static [Row<S>], defaults: &S) {
    let names: BTreeSet<String> = table.iter().map(|row| row.name.to_ascii_lowercase()).collect();
    assert_eq!(names.len(), table.len(), "a key is in two rows");
    for row in table {
        let Row { name, class, default, what, read, .. } = row;
        let honoured = *class == Class::Honoured;
        assert_eq!(honoured, !what.is_empty(), "{name}: what it does is said of honoured keys only");
        let read_in_vain = row.in_vain.is_some() && *class == Class::NotYet;
        assert_eq!(read.is_some(), honoured || read_in_vain, "{name}: exactly the honoured keys are read");
        if let Some(read) = read.filter(|_| !matches!(*default, "" | NULL)) {
            assert_eq!(read(&mut defaults.clone(), default), Ok(None), "{name}: its default can be written");
        }
        if let Some(other) = row.excludes {
            let back = table.iter().find(|row| row.name == other).and_then(|row| row.excludes);
            assert_eq!(back, Some(*name), "{name} and {other} exclude each other");
        }
    }
}

#[test]
fn every_key_has_one_row_with_its_effect() {
    check(GLOBAL, &Config::default());
    check(PARTITION, &PartitionConfig::default());
    check(NODE, &Written::default());
}

fn hidden<S>(table: &'static [Row<S>]) -> Vec<&'static str> {
    let hidden = table.iter().filter(|row| row.class == Class::Honoured && matches!(row.show, Show::Hidden));
    hidden.map(|row| row.name).collect()
}

#[test]
fn every_honoured_key_is_shown() {
    assert_eq!(hidden(GLOBAL), SHOWN_ELSEWHERE);
    assert_eq!(hidden(PARTITION), SHOWN_ELSEWHERE_OF_PARTITIONS);
}

/// A table of the honoured keys, and lists of the others.
fn page_of(page: &mut String, keys: &[DescribedKey]) {
    page.push_str("| Key | Unless set | What it does |\n|---|---|---|\n");
    for key in keys.iter().filter(|key| key.class == Class::Honoured) {
        let unset = if key.unset.is_empty() { String::new() } else { format!("`{}`", key.unset) };
        writeln!(page, "| `{}` | {unset} | {} |", key.name, key.what).unwrap();
    }
    for (class, says) in [
        (
            Class::OwnWay,
            "Accepted without a warning, since Garrick does the same in its own way, or the value only names a part of Slurm",
        ),
        (Class::NotYet, "Accepted with a warning, since they have no effect in Garrick yet"),
        (Class::Dropped, "Accepted with a warning, since Slurm itself has removed them"),
    ] {
        let names: Vec<String> =
            keys.iter().filter(|key| key.class == class).map(|key| format!("`{}`", key.name)).collect();
        if !names.is_empty() {
            writeln!(page, "\n{says}: {}.", names.join(", ")).unwrap();
        }
    }
}

#[test]
fn the_page_of_settings_says_what_the_tables_say() {
    let mut page = "# Keys of slurm.conf\n\n\
        How Garrick treats each key that `slurm.conf(5)` of Slurm 26.05 documents. This page is generated from the tables in\n\
        `actors/model/src/config/settings`; a test compares them, and writes the page again if `GARRICK_WRITE_DOCS` is set.\n\n\
        ## Keys on their own lines\n\n"
        .to_owned();
    let [global, partition, node] = described();
    page_of(&mut page, &global.keys);
    page.push_str("\n## Keys of a partition\n\nOn a line that begins with `PartitionName`.\n\n");
    page_of(&mut page, &partition.keys);
    page.push_str("\n## Keys of nodes\n\nOn a line that begins with `NodeName`.\n\n");
    page_of(&mut page, &node.keys);
    assert_page("docs/settings.md", &page);
}

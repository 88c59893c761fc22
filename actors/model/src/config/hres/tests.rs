#![allow(clippy::unwrap_used)]

use crate::config::{Config, read_files, settings::hres::HresMode};
use crate::spec_text::licenses::{LicenseCount, Licenses};
use proptest::prelude::*;
use std::path::Path;

const SLURM: &str = "ClusterName=c\nSlurmctldHost=a\nNodeName=node[01-32]\nPartitionName=p Nodes=ALL Default=YES\n\
                     Licenses=fluent:4\n";

const TOPOLOGY: &str = "- topology: blok1
  cluster_default: true
  block:
    block_sizes: [8, 16, 32]
    blocks:
      - {block: b1, nodes: 'node[01-08]'}
      - {block: b2, nodes: 'node[09-16]'}
      - {block: b3, nodes: 'node[17-24]'}
      - {block: b4, nodes: 'node[25-32]'}
";

/// The example of resources.yaml(5).
const RESOURCES: &str = "---
- resource: flat
  mode: MODE_2
  layers:
    - nodes:                    # highest level
        - \"node[01-32]\"
      count: 24
    - nodes:
        - \"node[01-16]\"
      count: 16
    - nodes:
        - \"node[17-32]\"
      count: -1
- resource: natural
  mode: MODE_1
  layers:
    - nodes:
        - \"node[01-32]\"
      count: 50
    - nodes:
        - \"node[01-08]\"
        - \"node[09-16]\"
      count: 100
- resource: power
  mode: MODE_3
  topology: blok1
  variables:
    - name: full_node
      value: 1000
  layers:
    - nodes:
        - \"node[01-32]\"
      count: 130000
      base:
        - name: acUnit1
          value: 10000
        - name: acUnit2
          value: 8000
    - nodes:
        - \"node[01-16]\"
      count: 60000
      base:
        - name: network1
          value: 3000
    - nodes:
        - \"node[17-32]\"
      count: 80000
    - nodes:
        - \"node[01-08]\"
      count: 40000
      base:
        - name: storage
          value: 5000
    - nodes:
        - \"node[09-16]\"
      count: 40000
    - nodes:
        - \"node[17-24]\"
      count: 40000
    - nodes:
        - \"node[25-32]\"
      count: 40000
";

fn with(resources: &str) -> (Option<Config>, Vec<String>) {
    let files = [("/e/slurm.conf", SLURM), ("/e/topology.yaml", TOPOLOGY), ("/e/resources.yaml", resources)];
    let (config, report) = read_files(Path::new("/e/slurm.conf"), &files);
    let problems = report.problems.iter().map(|p| p.to_string().replace("/e/", "")).collect();
    (config, problems)
}

#[test]
fn the_example_of_the_manual_is_read() {
    let (config, problems) = with(RESOURCES);
    assert_eq!(problems, Vec::<String>::new());
    let hres = config.unwrap().hres;
    let layers: Vec<(&str, Option<u32>, u32)> =
        hres.layers().map(|(_, layer)| (layer.name.as_str(), layer.available(), layer.base)).collect();
    let want = [
        ("flat(node[01-32])", Some(24), 0),
        ("flat(node[01-16])", Some(16), 0),
        ("flat(node[17-32])", None, 0),
        ("natural(node[01-32])", Some(50), 0),
        ("natural(node[01-16])", Some(100), 0),
        // What is always in use below is in use here too.
        ("power(node[01-32])", Some(104_000), 26_000),
        ("power(node[01-16])", Some(52_000), 8_000),
        ("power(node[17-32])", Some(80_000), 0),
        ("power(node[01-08])", Some(35_000), 5_000),
        ("power(node[09-16])", Some(40_000), 0),
        ("power(node[17-24])", Some(40_000), 0),
        ("power(node[25-32])", Some(40_000), 0),
    ];
    assert_eq!(layers, want);
    assert_eq!(hres.resource("natural").unwrap().1.mode, HresMode::One);
    assert_eq!(hres.variable("power", "full_node"), Some(1000));
    let could = |name: &str, count| hres.resource(name).unwrap().1.could_give(count);
    assert!(could("flat", 24) && !could("flat", 25) && could("natural", 100) && !could("natural", 101));
    assert!(could("power", 40_000) && !could("power", 40_001));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let problem = |from: &str, to: &str| {
        let text = RESOURCES.replacen(from, to, 1);
        assert_ne!(text, RESOURCES);
        let (config, problems) = with(&text);
        assert!(config.is_none());
        problems[0].clone()
    };
    let cases = [
        ("MODE_2", "MODE_4", "resources.yaml:3: error: mode: MODE_4: is no mode (MODE_1, MODE_2 or MODE_3)"),
        (
            "flat",
            "fluent",
            "resources.yaml:2: error: resource: fluent: a license is called fluent (Licenses= in slurm.conf); give one of \
             them another name",
        ),
        ("natural", "flat", "resources.yaml:14: error: resource: flat: another resource has this name"),
        (
            "node[17-32]",
            "node[17-33]",
            "resources.yaml:12: error: nodes: node[17-33]: no node is called node33 (did you mean node03?)",
        ),
        ("count: -1", "count: -2", "resources.yaml:13: error: count: -2: is out of range (-1 is without end)"),
        (
            "      count: 40000\n      base",
            "      count: 4000\n      base",
            "resources.yaml:50: error: count: 4000: base takes 5000 of it (with that of the layers inside) (raise the count or \
             lower the base)",
        ),
        (
            "blok1",
            "blok2",
            "resources.yaml:26: error: topology: blok2: no topology is called that (a block topology of topology.yaml)",
        ),
        (
            "node[09-16]\"\n      count: 40000",
            "node[09-17]\"\n      count: 40000",
            "resources.yaml:56: error: layer power(node[09-17]): has some nodes of power(node[01-16]) but not all (with MODE_3 \
             one layer has all nodes, and every layer is split whole into those inside it)",
        ),
        (
            "node[09-16]\"\n      count: 40000",
            "node[09-15]\"\n      count: 40000",
            "resources.yaml:33: error: layer power(node[01-32]): node16 is in 2 layers, others in 3 (with MODE_3 one layer has \
             all nodes, and every layer is split whole into those inside it)",
        ),
    ];
    let said: Vec<String> = cases.iter().map(|(from, to, _)| problem(from, to)).collect();
    assert_eq!(said, cases.map(|(_, _, said)| said));
    assert!(
        problem("  mode: MODE_2", "  mode: MODE_2\n  colour: red")
            .starts_with("resources.yaml:4: error: resources.yaml: ")
    );
    assert_eq!(
        problem(
            "    - nodes:                    # highest level\n        - \"node[01-32]\"",
            "    - nodes: node[01-32]"
        ),
        "resources.yaml:5: error: nodes: node[01-32]: is no list (write nodes: [\"node[01-32]\"], or each item behind \
         \"- \" on a line of its own)"
    );
    assert!(
        problem("- resource: flat\n  mode: MODE_2", "- mode: MODE_2\n  resource: flat").contains("first attribute")
    );
}

#[test]
fn what_jobs_have_is_counted_again_when_layers_change() {
    let hres = with(RESOURCES).0.unwrap().hres;
    let held = |text: &[(&str, u32)]| {
        let count = |(name, count): &(&str, u32)| LicenseCount { name: (*name).to_owned(), count: *count };
        Licenses(text.iter().map(count).collect())
    };
    let before = held(&[("fluent", 1), ("flat(node[01-09])", 2), ("natural(node[02-09])", 3), ("power(gone)", 5)]);
    let now = hres.recount(Some("fluent:1,flat:2,natural:3,power:100"), &[0, 8], &before);
    let want = [
        ("fluent", 1),
        ("flat(node[01-16])", 2),
        ("flat(node[01-32])", 2),
        ("natural(node[01-16])", 3),
        ("power(node[01-08])", 100),
        ("power(node[09-16])", 100),
        ("power(node[01-16])", 200),
        ("power(node[01-32])", 200),
    ];
    assert_eq!(now, held(&want));
    // What was taken from the layer above stays there.
    let above = held(&[("natural(node[01-32])", 3)]);
    assert_eq!(hres.recount(Some("natural:3"), &[0], &above), above);
    assert_eq!(hres.recount(Some("fluent"), &[0], &held(&[("fluent", 1)])), held(&[("fluent", 1)]));
}

proptest! {
    #[test]
    fn any_yaml_is_read_without_panic(text in "(- |resource: |mode: MODE_3|layers:|nodes|\n|  |[a-z]|\\[|\\{|&a|\\*a|1|: ){0,60}") {
        let _ = with(&text);
    }
}

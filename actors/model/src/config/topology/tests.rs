#![allow(clippy::unwrap_used)]
use super::super::{Config, read_reporting};
use crate::topology::Layout;
use proptest::prelude::*;
use std::{env, fs, path::PathBuf, process};

const SLURM: &str = "ClusterName=c\nSlurmctldHost=a\nNodeName=n[1-32]\nPartitionName=p Nodes=ALL Default=YES\n";

/// A configuration with files beside it, in a folder of its own.
fn with(name: &str, slurm: &str, files: &[(&str, &str)]) -> (Option<Config>, Vec<String>) {
    let folder: PathBuf = env::temp_dir().join(format!("garrick-topology-{}-{name}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("slurm.conf"), slurm).unwrap();
    for (file, text) in files {
        fs::write(folder.join(file), text).unwrap();
    }
    let (config, report) = read_reporting(&folder.join("slurm.conf"));
    let prefix = format!("{}/", folder.display());
    let problems = report.problems.iter().map(|p| p.to_string().replace(&prefix, "")).collect();
    fs::remove_dir_all(&folder).unwrap();
    (config, problems)
}

fn slurm(more: &str) -> String {
    format!("{SLURM}{more}")
}

#[test]
fn trees_are_read_with_dotted_names_and_link_speeds() {
    let text = "# switch.3.1=island\nSwitchName=switch.3.1 Switches=switch.2.[1-2]\n# switch.2.1=block\n\
                SwitchName=switch.2.1 Nodes=n[1-16] LinkSpeed=100\nswitchname=switch.2.2 nodes=n[17-32]\n";
    let (config, problems) = with("dots", &slurm("TopologyPlugin=topology/tree\n"), &[("topology.conf", text)]);
    assert_eq!(problems, Vec::<String>::new());
    let topologies = config.unwrap().topologies;
    assert_eq!(topologies[0].name, "default");
    let layout = &topologies[0].layout;
    assert_eq!(layout.nodes_of("switch.3.1").unwrap().to_string(), "n[1-32]");
    assert_eq!(layout.nodes_with("n20").unwrap().to_string(), "n[17-32]");
    assert_eq!(layout.nodes_of("switch.9"), None);
}

#[test]
fn a_partition_names_a_topology_that_is_there() {
    let nosuch = SLURM.replace("Default=YES", "Default=YES Topology=nosuch");
    let (config, problems) = with("nosuch", &nosuch, &[]);
    assert!(config.is_none());
    assert_eq!(
        problems,
        ["slurm.conf:4: error: PartitionName=p Topology=nosuch: no topology is called nosuch \
          (topology.yaml, beside slurm.conf, describes topologies by name)"]
    );
    let (_, problems) = with("nosuch-empty", &nosuch, &[("topology.yaml", "[]\n")]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().any(|p| p.contains("Topology=nosuch") && p.ends_with("(topology.yaml describes none)")));
    let (config, problems) = with("named-default", &nosuch.replace("nosuch", "default"), &[]);
    assert!(config.is_some() && problems.is_empty(), "{problems:?}");
}

#[test]
fn an_empty_file_that_hides_another_is_warned_of() {
    for (name, text) in [("nothing", ""), ("empty-list", "[]\n")] {
        let files = [("topology.yaml", text), ("topology.conf", "SwitchName=s Nodes=n[1-32]\n")];
        let (config, problems) = with(name, &slurm("TopologyPlugin=topology/tree\n"), &files);
        assert!(config.is_some());
        assert_eq!(
            problems,
            [
                "topology.yaml: warning: topology.yaml: describes no topology: all nodes count as equally near, and topology.conf \
              is not read (remove it, or describe topologies there)"
            ]
        );
    }
}

#[test]
fn blocks_may_be_places_without_nodes() {
    let text = "# block001=B1\nBlockName=block001 Nodes=n[1-16]\nBlockName=block002\n\
                BlockName=block003 Nodes=n[17-32]\nBlockName=block004 Nodes=\nBlockSizes=16,32,64\n";
    let (config, problems) = with("blocks", &slurm("TopologyPlugin=topology/block\n"), &[("topology.conf", text)]);
    assert_eq!(problems, Vec::<String>::new());
    let topologies = config.unwrap().topologies;
    let Layout::Block { sizes, blocks } = &topologies[0].layout else { panic!("{topologies:?}") };
    assert_eq!(*sizes, [16, 32, 64]);
    let nodes: Vec<u64> = blocks.iter().map(|b| b.nodes.len()).collect();
    assert_eq!(nodes, [16, 0, 16, 0]);
}

const YAML: &str = "---
- topology: topo1
  cluster_default: true
  tree:
    switches:
      - switch: sw_root
        children: s[1-2]
      - switch: s1
        nodes: n[01-02]
      - switch: s2
        nodes: n[03-04]
- topology: topo2
  block:
    block_sizes:
        - 2
        - 4
    blocks:
        - block: b1
          nodes: n[01-02]
        - block: b2
- topology: topo3
  flat: true
- topology: topo3a
  flat:
    alpha_step_rank: true
- topology: topo4
  ring:
    rings:
      - ring: ring0
        nodes: n[01-08]
- topology: topo5
  torus3d:
    toruses:
      - name: pod1
        dims: {x: 4, y: 4, z: 2}
        regions:
          - anchor: {x: 0, y: 0, z: 0}
            dims: {x: 4, y: 2, z: 2}
            nodes: n[01-16]
          - anchor: {x: 0, y: 2, z: 0}
            dims: {x: 4, y: 2, z: 2}
            nodes: n[17-32]
        placements:
          - dims: {x: 2, y: 2, z: 2}
          - dims: {x: 4, y: 2, z: 1}
            anchor_spacing: {x: 2, y: 2, z: 1}
            anchor_seed: {x: 1, y: 0, z: 0}
";

const PARTITIONS: &str = "ClusterName=c\nSlurmctldHost=a\nNodeName=n[01-32]\nPartitionName=t Nodes=n[01-04]\n\
     PartitionName=b Nodes=n[01-02] Topology=topo2\nPartitionName=f Nodes=ALL Topology=topo3\n\
     PartitionName=r Nodes=n[01-08] Topology=topo4\nPartitionName=x Nodes=ALL Topology=topo5 Default=YES\n";

#[test]
fn one_topology_is_the_default() {
    let twice = YAML.replace("- topology: topo2\n", "- topology: topo2\n  cluster_default: true\n");
    let (config, problems) = with("twice", PARTITIONS, &[("topology.yaml", &twice)]);
    assert!(config.is_some());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("topology: topo2: topo1 has cluster_default: true already"), "{problems:?}");
}

#[test]
fn yaml_has_many_topologies_and_partitions_choose() {
    let (config, problems) = with("yaml", PARTITIONS, &[("topology.yaml", YAML), ("topology.conf", "nonsense")]);
    assert_eq!(problems, Vec::<String>::new());
    let config = config.unwrap();
    assert_eq!(config.topologies.len(), 6);
    let of = |name: &str| {
        let partition = config.partition(name).unwrap();
        config.partition_topology(partition.topology.as_deref()).map(|t| t.name.as_str())
    };
    assert_eq!(
        [of("t"), of("b"), of("f"), of("r"), of("x")],
        [Some("topo1"), Some("topo2"), None, Some("topo4"), Some("topo5")]
    );
    let Layout::Torus3d { toruses } = &config.topologies[5].layout else { panic!() };
    assert_eq!(toruses[0].placements[0].spacing, toruses[0].placements[0].dims);
    assert_eq!(toruses[0].placements[1].seed.x, 1);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let tree = "SwitchName=a Switches=b,q\nSwitchName=b Switches=c\nSwitchName=c Switches=b\n\
                SwitchName=d Nodes=n[1-3],x\nSwitchName=d Nodes=n[3-4]\nSwitchName=e Nodes=n9 Color=red\nBlockName=f\n";
    let (config, problems) = with("wrong", &slurm("TopologyPlugin=topology/tree\n"), &[("topology.conf", tree)]);
    assert!(config.is_none());
    let want = [
        "topology.conf:6: error: Color=red: unknown key in topology.conf",
        "topology.conf:7: error: BlockName=f: does not belong to topology/tree (TopologyPlugin says which kind it is)",
        "topology.conf:1: error: a: no switch is called q (every switch needs a line of its own)",
        "topology.conf:3: warning: c: switch b is below switch a on line 1 already (a switch of a tree has one above it)",
        "topology.conf:2: error: b: the switch is below itself: b, c, b",
        "topology.conf:4: error: d: no node is called x (every node needs a NodeName line in slurm.conf)",
        "topology.conf:5: error: d: this name is already used on line 4",
        "topology.conf:5: error: d: n3 is already in switch d on line 4 (a node is in one switch)",
    ];
    assert_eq!(problems, want);
}

#[test]
fn partitions_are_covered_by_their_topology() {
    let tree = "SwitchName=a Nodes=n[1-30]\n";
    let (config, problems) = with("cover", &slurm("TopologyPlugin=topology/tree\n"), &[("topology.conf", tree)]);
    assert!(config.is_none());
    let want = "topology.conf: error: PartitionName=p: n[31-32] of partition p is in no switch of topology default \
                (add it, or give the partition another Topology=)";
    assert_eq!(problems, [want]);
    let wrong = PARTITIONS.replace("Topology=topo4", "Topology=topo44");
    let (_, problems) = with("which", &wrong, &[("topology.yaml", YAML)]);
    let want = "slurm.conf:7: error: PartitionName=r Topology=topo44: no topology is called topo44 \
                (did you mean topo4?)";
    assert_eq!(problems, [want]);
}

#[test]
fn sizes_rings_and_tori_are_checked() {
    let sizes = YAML.replace("        - 4\n", "        - 6\n");
    let rings = YAML.replace("nodes: n[01-08]", "nodes: n[01-17]");
    let cells = YAML.replace("nodes: n[17-32]", "nodes: n[17-31]");
    let kinds = YAML.replace("  flat: true", "  flat: false");
    let keys = YAML.replace("dims: {x: 4, y: 4, z: 2}", "dims: {x: 4, y: 4}");
    let lists = YAML.replace("nodes: n[01-08]", "nodes: [n01, n02]");
    for (name, text, want) in [
        (
            "sizes",
            sizes,
            "topology.yaml:12: error: BlockSizes=2,6: 6 is not 2 times a power of two (for example 18,36,72)",
        ),
        ("rings", rings, "topology.yaml:29: error: ring0: has 17 nodes (a ring has 16 at most)"),
        ("cells", cells, "topology.yaml:34: error: pod1: 4x2x2 has 16 cells for 15 nodes"),
        (
            "kinds",
            kinds,
            "topology.yaml:21: error: topology: topo3: has 0 kinds (one of flat, tree, block, ring and torus3d)",
        ),
        (
            "lists",
            lists,
            "topology.yaml:30: error: nodes: [n01, n02]: is not one word (write nodes: and one text behind it",
        ),
        ("keys", keys, "topology.yaml:35: error: topology.yaml: missing field `z`"),
    ] {
        let (_, problems) = with(name, PARTITIONS, &[("topology.yaml", &text)]);
        assert!(problems.iter().any(|p| p.starts_with(want)), "{name}: {problems:#?}");
    }
}

/// What is said of a `topology.conf`, less the file's name.
fn said_of(name: &str, plugin: &str, text: &str) -> Vec<String> {
    let (_, problems) = with(name, &slurm(&format!("TopologyPlugin=topology/{plugin}\n")), &[("topology.conf", text)]);
    problems.iter().map(|problem| problem.trim_start_matches("topology.conf:").to_owned()).collect()
}

#[test]
fn what_is_written_twice_is_told() {
    assert_eq!(
        said_of("sizes-twice", "block", "BlockName=b Nodes=n[1-32]\nBlockSizes=32\nBlockSizes=16\n"),
        ["3: warning: BlockSizes=16: BlockSizes is on line 2 already; this one counts (keep one of them)"]
    );
    let leaves = "SwitchName=s1 Nodes=n[1-16]\nSwitchName=s2 Nodes=n[17-32]\n";
    assert_eq!(
        said_of("key-twice", "tree", &format!("{leaves}SwitchName=r Switches=s1 Switches=s2\n")),
        ["3: warning: Switches=s2: this line has Switches already; the last counts (write one list, with commas)"]
    );
    assert_eq!(
        said_of("parents", "tree", &format!("{leaves}SwitchName=r Switches=s[1-2]\nSwitchName=q Switches=s2,r\n")),
        ["4: warning: q: switch s2 is below switch r on line 3 already (a switch of a tree has one above it)"]
    );
    let twice = said_of("block-twice", "block", "BlockName=b Nodes=n1\nBlockName=b Nodes=n[2-32]\nBlockSizes=32\n");
    assert_eq!(twice[0], " warning: default: b: fewer nodes than BlockSizes=32 says");
}

#[test]
fn switches_without_anything_and_names_for_several_are_warned_of() {
    let text = "SwitchName=s1 Nodes=n[1-32]\nSwitchName=s2\n";
    assert_eq!(
        said_of("bare", "tree", text),
        ["2: warning: s2: has neither nodes nor switches (write its Nodes= or Switches=)"]
    );
    let (_, problems) =
        with("bare-dynamic", &slurm("TopologyPlugin=topology/tree\nMaxNodeCount=40\n"), &[("topology.conf", text)]);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        said_of("brackets", "tree", "SwitchName=s[1-2] Nodes=n[1-32]\n"),
        [
            "1: warning: SwitchName=s[1-2]: is the name of a single unit, brackets and all (write a line with SwitchName for each)"
        ]
    );
}

#[test]
fn a_key_in_the_wrong_place_is_told_where_it_belongs() {
    let said =
        said_of("places", "tree", "Nodes=n[1-32] SwitchName=s\nSwitchName=s Nodes=n[1-32] SwitchName=t BlockName=b\n");
    assert_eq!(
        said,
        [
            "1: error: Nodes=n[1-32]: Nodes comes after SwitchName on its line (for example SwitchName=NAME Nodes=n[1-32])",
            "2: error: SwitchName=t: SwitchName begins a line (put it first on a line of its own)",
            "2: error: BlockName=b: does not belong to topology/tree (TopologyPlugin says which kind it is)",
        ]
    );
    let said = said_of("places-block", "block", "BlockName=b Nodes=n[1-32] BlockSizes=32\n");
    assert_eq!(said[0], "1: error: BlockSizes=32: BlockSizes begins a line (put it first on a line of its own)");
    let said = said_of("unknown", "tree", "SwitchName=s Node=n[1-32]\n");
    assert_eq!(said[0], "1: error: Node=n[1-32]: unknown key in topology.conf (did you mean Nodes?)");
}

#[test]
fn functions_stand_for_nodes() {
    let text = "SwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n[1-16]\nSwitchName=s2 Nodes=n[17-32]\n";
    let conf = slurm(
        "NodeName=g[1-2] Feature=gpu\nTopologyPlugin=topology/tree\nPartitionName=q Nodes=switch{s1},n20\n\
         PartitionName=r Nodes=switchwith{n18},n1\nPartitionName=g Nodes=feature{gpu}\n",
    );
    let text = format!("{text}SwitchName=s3 Nodes=g[1-2]\n");
    let (config, problems) = with("functions", &conf, &[("topology.conf", &text)]);
    assert_eq!(problems, Vec::<String>::new());
    let config = config.unwrap();
    let nodes = |name: &str| config.partition(name).unwrap().nodes.to_string();
    assert_eq!([nodes("q"), nodes("r"), nodes("g")], ["n[1-16,20]", "n[1,17-32]", "g[1-2]"]);
    let says = |name: &str| {
        config.with_functions(&[name.to_owned()], &|f| config.nodes_with_feature(f)).map(crate::hostlist::fold)
    };
    assert_eq!(says("switch{top}"), Ok("n[1-32]".to_owned()));
    assert_eq!(says("n3"), Ok("n3".to_owned()));
    assert_eq!(says("switch{s9}").unwrap_err().cause, "no switch with nodes is called s9");
    assert_eq!(says("block{b1}").unwrap_err().cause, "block{b1}: no topology has block units");
    assert_eq!(says("rack{b1}").unwrap_err().cause, "no host list function is called rack");
    assert_eq!(says("feature{x}").unwrap_err().cause, "no node has the feature x");
    assert_eq!(says("switch{s1").unwrap_err().cause, "\"switch{s1\" is no host list function");
}

#[test]
fn a_missing_file_and_parameters_that_are_not_acted_on_are_named() {
    let (config, problems) = with("absent", &slurm("TopologyPlugin=topology/tree\n"), &[]);
    assert!(config.is_none());
    assert!(problems[0].contains("topology.conf") && problems[0].contains("cannot read"), "{problems:?}");
    let (config, problems) = with("param", &slurm("TopologyParam=switchasnoderank,RouteTree\n"), &[]);
    assert!(config.unwrap().topology_param.has("SwitchAsNodeRank"));
    assert_eq!(
        problems,
        [
            "slurm.conf:5: warning: TopologyParam=switchasnoderank,RouteTree: RouteTree is not supported yet (the rest counts)"
        ]
    );
}

proptest! {
    #[test]
    fn any_yaml_is_read_without_panic(text in "(- |topology: |tree:|switches|\n|  |[a-z]|\\[|\\{|&a|\\*a|1|: ){0,60}") {
        let _ = super::yaml::read(
            &text,
            &super::Place { file: std::sync::Arc::from(std::path::Path::new("t")), line: 0 },
            &mut super::ConfigReport::default(),
        );
    }
}

//! Configuration that administrators write. Nodes that join a running cluster send a line of it too.

use super::{choice, chosen, plain, text};
use crate::target::Target;
use garrick_model::config::{self, Config};
use std::{path::Path, sync::LazyLock};

const CONF: &str = "ClusterName=c1\nSlurmctldHost=n0\nSlurmUser=root\nGresTypes=gpu,shard\nTopologyPlugin=topology/tree\n\
                    Licenses=matlab:3\nMaxNodeCount=10\nNodeName=n[1-4] CPUs=4 RealMemory=4000 Gres=gpu:2 Feature=a,b State=CLOUD\n\
                    PartitionName=debug Nodes=ALL Default=YES MaxTime=1-0 State=UP\n";

const TREE: &str = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=top Switches=s[1-2]\n";

/// The file itself.
pub(super) const SLURM_CONF: Target = Target {
    name: "slurm_conf",
    read: |input| {
        let text = String::from_utf8_lossy(input);
        let (config, report) = config::read_text(Path::new("/x/slurm.conf"), &text);
        let _ = report.to_string();
        assert!(config.is_some() || report.has_errors(), "nothing is wrong with it, and it is not taken");
    },
    // Nodes are made of ranges: a cluster of a thousand has a line.
    bytes_per_byte: 100_000,
    base_bytes: 64 << 20,
    seeds: || {
        let mut seeds = plain(&[
            CONF,
            "NodeName=DEFAULT CPUs=4\nNodeName=n[1-9]\n",
            "Include other.conf\n",
            "A=\"b c\" \\\nD=e # f\n",
        ]);
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../actors/model/tests/data/site.conf");
        seeds.extend(std::fs::read(example).ok());
        seeds
    },
};

/// `topology.conf`, `topology.yaml`, `gres.conf`, `cgroup.conf` and `resources.yaml` beside a good `slurm.conf`.
pub(super) const BESIDE: Target = Target {
    name: "configs_beside",
    read: |input| {
        let (which, rest) = choice(input);
        let text = String::from_utf8_lossy(rest);
        let names = ["topology.conf", "topology.yaml", "gres.conf", "cgroup.conf", "resources.yaml"];
        let beside = format!("/x/{}", names[which % names.len()]);
        // A topology of its own for every other file, so that all of it is read.
        let mut files = vec![("/x/slurm.conf", CONF), (beside.as_str(), &*text)];
        if !beside.contains("topology") {
            files.push(("/x/topology.conf", TREE));
        }
        let (config, report) = config::read_files(Path::new("/x/slurm.conf"), &files);
        let _ = report.to_string();
        assert!(config.is_some() || report.has_errors(), "nothing is wrong with it, and it is not taken");
    },
    bytes_per_byte: 100_000,
    base_bytes: 64 << 20,
    seeds: || {
        chosen(&[
            (0, TREE),
            (0, "BlockName=b1 Nodes=n[1-4]\nBlockSizes=2,4\n"),
            (
                1,
                "- topology: tree\n  cluster_default: true\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-4]\n",
            ),
            (1, "- topology: flat\n  flat: true\n"),
            (1, "- &a [*a]\n"),
            (2, "Name=gpu File=/dev/nvidia[0-1] Cores=0-1\nName=shard Count=8\n"),
            (2, "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1] Links=-1,2\n"),
            (3, "ConstrainCores=yes\nConstrainRAMSpace=yes\nAllowedRAMSpace=99.5\n"),
            (
                4,
                "- resource: power\n  mode: MODE_3\n  variables:\n    - name: full\n      value: 100\n  layers:\n    - nodes: n[1-4]\n      count: 3\n",
            ),
        ])
    },
};

static BASE: LazyLock<Config> = LazyLock::new(|| {
    let files = [("/x/slurm.conf", CONF), ("/x/topology.conf", TREE)];
    let (config, report) = config::read_files(Path::new("/x/slurm.conf"), &files);
    config.unwrap_or_else(|| panic!("{report}"))
});

/// The line that says what a node is which joins a running cluster.
pub(super) const DYNAMIC_NODES: Target = Target {
    name: "dynamic_nodes",
    read: |input| {
        if let Some(text) = text(input) {
            let (names, line) = text.split_once('\n').unwrap_or(("n9", text));
            let _ = config::read_line(&BASE, names, line);
            let _ = config::parameters(line);
            let _ = config::said_place(line);
        }
    },
    bytes_per_byte: 100_000,
    base_bytes: 64 << 20,
    seeds: || {
        plain(&[
            "n9\nCPUs=4 RealMemory=4000",
            "n[5-9]\nFeature=x Gres=gpu:1 Topology=default:s1",
            "CPUs=4",
            "n[1-999999]\nCPUs=1",
        ])
    },
};

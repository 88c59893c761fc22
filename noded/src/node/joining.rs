//! `slurmd -Z`: a dynamic node, which `slurm.conf` does not list, describes itself: by what is found on its machine, overridden
//! by `--conf`.

use garrick_kernel::inventory;
use garrick_model::{
    config::{self, Config, DynamicNode, Unfit},
    node_shape::NodeShape,
};

/// Keys that together say which CPUs there are.
const LAYOUT: &[&str] = &["CPUs", "Procs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"];

/// The line of a node on a machine of this shape with so many GPUs.
pub fn line(config: &Config, name: &str, written: &str, found: &NodeShape, gpus: usize) -> Result<String, String> {
    let wrong = |cause: String| format!("--conf \"{written}\": {cause}");
    let pairs = config::parameters(written).map_err(|e| wrong(e.to_string()))?;
    let is = |key: &str, other: &str| key.eq_ignore_ascii_case(other);
    for refused in ["NodeName", "Port", "NodeAddr", "NodeHostname", "State"] {
        if pairs.iter().any(|(key, _)| is(key, refused)) {
            let instead = if refused == "NodeName" { "; -N names the node" } else { "" };
            return Err(wrong(format!("{refused} is not a parameter of --conf{instead}")));
        }
    }
    let says = |key: &str| pairs.iter().any(|(said, _)| is(said, key));
    let says_layout = LAYOUT.iter().any(|key| says(key));
    let mut words = Vec::new();
    let hardware = inventory::node_line(name, found);
    for (key, value) in hardware.split_whitespace().filter_map(|word| word.split_once('=')) {
        let of_layout = LAYOUT.iter().any(|one| is(one, key));
        if !(is(key, "NodeName") || says(key) || of_layout && says_layout) {
            words.push(format!("{key}={value}"));
        }
    }
    let names_gpus = pairs.iter().any(|(key, value)| {
        is(key, "Gres") && value.split(',').any(|entry| entry.split([':', '(']).next() == Some("gpu"))
    });
    let mut detected = (gpus > 0 && !names_gpus && config.gres.detects(name)).then(|| format!("gpu:{gpus}"));
    let offered = config.gres.offered(name, &|file| file.exists());
    if !says("Gres") && !offered.is_empty() {
        detected = Some(detected.into_iter().chain([offered]).collect::<Vec<_>>().join(","));
    }
    let mut has_gres = false;
    for (key, value) in pairs {
        let value = match &detected {
            Some(gpus) if is(&key, "Gres") && !value.is_empty() => format!("{value},{gpus}"),
            _ => value,
        };
        has_gres |= is(&key, "Gres");
        words.push(config::written(&key, &value).map_err(|e| wrong(e.to_string()))?);
    }
    words.extend(detected.filter(|_| !has_gres).map(|gpus| format!("Gres={gpus}")));
    Ok(words.join(" "))
}

/// The configuration with that node in it. Its place in topologies is the controller's to judge, which has their file.
pub fn with_node(config: &Config, name: &str, line: &str) -> Result<Config, String> {
    let file = config.path.display();
    if config.node(name).is_some() {
        return Err(format!("{file} has NodeName={name}: start a node of slurm.conf without -Z"));
    }
    let node = DynamicNode {
        name: name.to_owned(),
        line: line.to_owned(),
        topology: Some(String::new()),
        ..DynamicNode::default()
    };
    let (config, unfit) = config.with_dynamic([&node]);
    match unfit.into_iter().next() {
        Some((_, Unfit::Node(wrong) | Unfit::Place(wrong))) => Err(format!("node {name} (\"{line}\"): {wrong}")),
        None => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::resources::MemoryMib;
    use std::path::Path;

    fn base() -> Config {
        let text =
            "ClusterName=c\nSlurmctldHost=a\nMaxNodeCount=4\nGresTypes=gpu\nNodeName=n1\nPartitionName=p Nodes=ALL";
        config::read_text(Path::new("/x/slurm.conf"), text).0.unwrap()
    }

    fn found() -> NodeShape {
        NodeShape {
            cpus: 8,
            boards: 1,
            sockets: 2,
            cores_per_socket: 4,
            threads_per_core: 1,
            memory: MemoryMib(9000),
            ..NodeShape::default()
        }
    }

    fn of(written: &str) -> Result<String, String> {
        line(&base(), "d1", written, &found(), 0)
    }

    #[test]
    fn what_is_not_said_is_what_is_found() {
        let hardware = "CPUs=8 Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=9000";
        assert_eq!(of("").unwrap(), hardware);
        assert_eq!(of("Gres=gpu:2").unwrap(), format!("{hardware} Gres=gpu:2"));
        assert_eq!(of("CPUs=4").unwrap(), "RealMemory=9000 CPUs=4");
        let memory = hardware.replace(" RealMemory=9000", "");
        assert_eq!(of("RealMemory=5000").unwrap(), format!("{memory} RealMemory=5000"));
        let config = with_node(&base(), "d1", &of("CPUs=4 Feature=f1 Topology=nosuch:s1").unwrap()).unwrap();
        assert_eq!(config.node("d1").unwrap().settings.shape.cpus, 4);
    }

    #[test]
    fn what_gres_conf_says_of_the_node_need_not_be_said_again() {
        let slurm =
            "ClusterName=c\nSlurmctldHost=a\nMaxNodeCount=4\nGresTypes=gpu,nic\nNodeName=n1\nPartitionName=p Nodes=ALL";
        let gres = "NodeName=d[1-2] Name=gpu Type=a File=/dev/null,/dev/zero\nNodeName=d1 Name=nic Count=3\n\
                    NodeName=n1 Name=nic Count=7\nName=nic File=/dev/no/such\n";
        let files = [("/x/slurm.conf", slurm), ("/x/gres.conf", gres)];
        let (config, report) = config::read_files(Path::new("/x/slurm.conf"), &files);
        assert_eq!(report.problems, []);
        let config = config.unwrap();
        let of = |name: &str, written: &str| line(&config, name, written, &found(), 0).unwrap();
        assert!(of("d1", "").ends_with(" Gres=gpu:a:2,nic:3"), "{}", of("d1", ""));
        assert!(of("d2", "").ends_with(" Gres=gpu:a:2"));
        assert!(of("d1", "Gres=gpu:1").ends_with(" Gres=gpu:1"));
        assert!(!of("d9", "").contains("Gres"));
        with_node(&config, "d1", &of("d1", "")).unwrap();
    }

    #[test]
    fn what_makes_no_node_is_refused() {
        assert!(of("Port=3").unwrap_err().contains("Port is not a parameter of --conf"));
        assert!(of("NodeName=x").unwrap_err().contains("-N names the node"));
        assert!(of("CPUs").is_err());
        let wrong = |line: &str| with_node(&base(), "d1", line).unwrap_err();
        assert!(wrong("CPUs=x").contains("CPUs=x"));
        assert!(wrong("Featur=f").contains("did you mean Feature?"), "{}", wrong("Featur=f"));
        assert!(with_node(&base(), "n1", "").unwrap_err().contains("without -Z"));
    }
}

//! `scontrol write config`: the running configuration as a file that Garrick and Slurm read. Keys whose value is not set, or that no
//! file can set, are comments. Passwords are not shown by the controller, and so not written.

use super::Session;
use garrick_asking::contact;
use garrick_model::{
    config::{self, PartitionConfig, ShowFacts},
    env_vars::SLURM_CONF_OUT,
    hostlist,
    messages::command::{CommandReply, CommandRequest},
    state::NodeBase,
    time::{Timestamp, parse_duration_secs, system_zone},
    view::{NodeView, PartitionView},
};
use std::{collections::BTreeSet, fs, io::Write as _, path::Path, sync::Arc};

/// What the controller shows among the keys, and no file has.
const FACTS: [&str; 6] = ["BOOT_TIME", "HASH_VAL", "MULTIPLE_SLURMD", "NEXT_JOB_ID", "SLURM_CONF", "SLURM_VERSION"];

/// Keys on which it depends how others are read and shown.
const OF_OTHERS: [&str; 4] = ["PreemptMode", "PreemptType", "PriorityType", "SelectType"];

/// Values that stand for none.
const NOTHING: [&str; 4] = ["", "(null)", "(null type)", "N/A"];

/// A running configuration.
struct Running {
    /// As `scontrol show config` has it.
    pairs: Vec<(String, String)>,
    nodes: Vec<Arc<NodeView>>,
    partitions: Vec<Arc<PartitionView>>,
}

/// `write config [FILE]`: to `FILE.DATETIME`, by default beside `slurm.conf`. Slurm tells of a file that cannot be made, and exits
/// with 0.
pub(super) fn run(session: &mut Session, file: Option<&str>) -> i32 {
    let running = match ask(session) {
        Ok(running) => running,
        Err(code) => return code,
    };
    let conf = running.pairs.iter().find(|(key, _)| key == "SLURM_CONF").map(|(_, value)| value.clone());
    let named = file.map(str::to_owned).or_else(|| std::env::var(SLURM_CONF_OUT).ok()).or(conf);
    let now = Timestamp::now().text(&system_zone());
    let path = format!("{}.{now}", named.unwrap_or_else(|| "slurm.conf".to_owned()));
    let text = text(&running, &now);
    let written = fs::OpenOptions::new().write(true).create_new(true).open(&path);
    match written.and_then(|mut out| out.write_all(text.as_bytes())) {
        Ok(()) => session.print(|out| writeln!(out, "Slurm config saved to {path}")),
        Err(error) => {
            let why = error
                .raw_os_error()
                .map_or_else(|| error.to_string(), |n| nix::errno::Errno::from_raw(n).desc().to_owned());
            session.plain_error(format_args!("Could not create file {path}: {why}"));
            0
        }
    }
}

fn ask(session: &mut Session) -> Result<Running, i32> {
    let pairs = session.cluster().and_then(|c| match c.ask(&CommandRequest::ShowConfig)? {
        CommandReply::Config { pairs, .. } => Ok(pairs),
        other => Err(c.unexpected(&other)),
    });
    let pairs = pairs.map_err(|error| session.failed("slurm_load_ctl_conf", &error))?;
    let nodes = session.cluster().and_then(contact::nodes);
    let nodes = nodes.map_err(|error| session.failed("slurm_load_node", &error))?;
    let partitions = session.cluster().and_then(|c| match c.ask(&CommandRequest::ListPartitions)? {
        CommandReply::Partitions { partitions, .. } => Ok(partitions),
        other => Err(c.unexpected(&other)),
    });
    let partitions = partitions.map_err(|error| session.failed("slurm_load_partitions", &error))?;
    Ok(Running { pairs, nodes, partitions })
}

fn text(running: &Running, now: &str) -> String {
    let mut text = format!("#\n# Configuration file for Slurm - {now}\n#\n");
    let counts =
        |(key, value): &&(String, String)| OF_OTHERS.contains(&key.as_str()) && !NOTHING.contains(&value.as_str());
    let others: Vec<&(String, String)> = running.pairs.iter().filter(counts).collect();
    for (key, value) in &running.pairs {
        text += &key_line(key, value, &others);
    }
    text += "#\n# NODES\n#\n";
    // Those that came by themselves come again by themselves.
    for node in running.nodes.iter().filter(|node| !node.flags.dynamic) {
        text += &node_line(node);
    }
    text += "#\n# PARTITIONS\n#\n";
    let written: BTreeSet<&str> = running.nodes.iter().filter(|n| !n.flags.dynamic).map(|n| n.name.as_str()).collect();
    for partition in &running.partitions {
        text += &partition_line(partition, &written);
    }
    text
}

/// `Key=Value` in a form that is read as the value that is shown; else a comment.
fn key_line(shown_as: &str, shown: &str, others: &[&(String, String)]) -> String {
    let key = shown_as.split('[').next().unwrap_or(shown_as);
    if FACTS.contains(&key) {
        return String::new();
    }
    if NOTHING.contains(&shown) {
        return format!("#{key}=\n");
    }
    // "30 sec", "root(0)", minutes that are shown as "00:05:00".
    let before = |sign| shown.split(sign).next().unwrap_or(shown).to_owned();
    let minutes = parse_duration_secs(shown).ok().flatten().map(|secs| (secs / 60).to_string());
    let forms = [Some(shown.to_owned()), Some(before(' ')), Some(before('(')), minutes];
    match forms.into_iter().flatten().find(|form| is_read_as(key, form, shown, others)) {
        Some(form) => format!("{key}={form}\n"),
        None => format!("#{key}={shown}\n"),
    }
}

/// Is this line of a file what is shown so?
fn is_read_as(key: &str, written: &str, shown: &str, others: &[&(String, String)]) -> bool {
    let mut text = String::from("NodeName=n1\nPartitionName=p Nodes=n1\n");
    if key != "ClusterName" {
        text += "ClusterName=c\n";
    }
    if key != "SlurmctldHost" {
        text += "SlurmctldHost=h\n";
    }
    for (other, value) in others.iter().filter(|(other, _)| other != key) {
        text += &format!("{other}={value}\n");
    }
    let (config, report) = config::read_text(Path::new("/slurm.conf"), &format!("{text}{key}={written}\n"));
    let zone = system_zone();
    let facts = ShowFacts {
        boot_time: Timestamp::default(),
        next_job_id: 1,
        slurm_uid: None,
        slurmd_uid: None,
        version: "",
        zone: &zone,
    };
    let same = |value: &str| value == shown || (key.ends_with("User") && shown.split('(').next() == Some(value));
    config.filter(|_| !report.has_errors()).is_some_and(|config| {
        let pairs = config::show_config(&config, &facts);
        pairs
            .iter()
            .any(|(name, value)| name.split('[').next().is_some_and(|n| n.eq_ignore_ascii_case(key)) && same(value))
    })
}

fn node_line(node: &NodeView) -> String {
    let (name, shape) = (&node.name, &node.shape);
    let mut line = format!("NodeName={name}");
    let mut add = |key: &str, value: &dyn std::fmt::Display| line += &format!(" {key}={value}");
    if node.hostname != *name {
        add("NodeHostName", &node.hostname);
    }
    if node.address != *name {
        add("NodeAddr", &node.address);
    }
    let boards = shape.boards.max(1);
    add("Port", &node.port);
    add("CPUs", &shape.cpus);
    add("Boards", &boards);
    add("SocketsPerBoard", &(shape.sockets / boards));
    add("CoresPerSocket", &shape.cores_per_socket);
    add("ThreadsPerCore", &shape.threads_per_core);
    add("RealMemory", &shape.memory.0);
    if shape.tmp_disk_mib > 0 {
        add("TmpDisk", &shape.tmp_disk_mib);
    }
    if shape.reserved_memory.0 > 0 {
        add("MemSpecLimit", &shape.reserved_memory.0);
    }
    if !shape.reserved_cpus.is_empty() {
        add("CpuSpecList", &shape.reserved_cpus);
    }
    if !shape.gres.is_empty() {
        let gres: Vec<String> = shape.gres.iter().map(ToString::to_string).collect();
        add("Gres", &gres.join(","));
    }
    if !node.features.is_empty() {
        add("Features", &node.features.join(","));
    }
    add("Weight", &node.weight);
    if node.flags.cloud {
        add("State", &"CLOUD");
    } else if node.base == NodeBase::Future {
        add("State", &"FUTURE");
    }
    line + "\n"
}

/// `Nodes=` of a partition. Node sets have no lines here: in place of them are their nodes that have.
fn nodes_text(partition: &PartitionConfig, written: &BTreeSet<&str>) -> String {
    if partition.node_sets.iter().all(|set| set == "ALL") {
        return partition.nodes_text.clone();
    }
    hostlist::fold(partition.nodes.iter().filter(|node| written.contains(node.as_str())))
}

/// Keys whose values are not the usual ones. `written`: the nodes that have lines.
fn partition_line(partition: &PartitionView, written: &BTreeSet<&str>) -> String {
    let (own, usual) = (&partition.config, PartitionConfig::default());
    let mut line = format!("PartitionName={} Nodes={}", own.name, nodes_text(own, written));
    let keys = PartitionConfig::update_keys().filter(|key| !["PartitionName", "Nodes", "State"].contains(key));
    for key in keys.chain(["DefMem", "MaxMem"]) {
        let (Some(shown), other) = (own.shown(key), usual.shown(key)) else { continue };
        if Some(&shown) == other.as_ref() {
            continue;
        }
        for word in shown.split(' ') {
            let Some((key, value)) = word.split_once('=') else { continue };
            let is_read = PartitionConfig::default().set(key, value).is_ok();
            if is_read && !NOTHING.contains(&value) && !line.contains(&format!(" {key}=")) {
                line += &format!(" {key}={value}");
            }
        }
    }
    line + &format!(" State={}\n", partition.state)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CONF: &str = "\
ClusterName=theatre
SlurmctldHost=ctl1(10.0.0.1)
SlurmUser=slurm
SlurmctldPort=7001
StateSaveLocation=/var/lib/state
KillWait=45
UnkillableStepTimeout=120
Prolog=/etc/prolog.d/*
Epilog=/etc/epilog
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityDecayHalfLife=3-0
SchedulerParameters=bf_interval=10,default_queue_depth=50
MaxJobCount=5000
DefMemPerCPU=512
MaxMemPerNode=4096
SuspendTime=600
ResumeTimeout=300
SuspendProgram=/bin/off
ResumeProgram=/bin/on
PrivateData=jobs,usage
DebugFlags=Backfill,Steps
Licenses=matlab:4
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/jwt.key
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
RequeueExit=1-3,7
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-3] CPUs=4 RealMemory=4000 Features=fast,new Weight=5 Gres=gpu:2
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=60 OverSubscribe=FORCE:2
PartitionName=rest Nodes=n3 PriorityTier=7 AllowGroups=root DefMemPerNode=100
GresTypes=gpu
";

    fn shown(config: &config::Config) -> Vec<(String, String)> {
        let zone = system_zone();
        let facts = ShowFacts {
            boot_time: Timestamp::default(),
            next_job_id: 1,
            slurm_uid: Some(7),
            slurmd_uid: Some(0),
            version: "26.05.3",
            zone: &zone,
        };
        config::show_config(config, &facts)
    }

    #[test]
    fn what_is_written_is_read_as_what_was_running() {
        let plain = "ClusterName=c\nSlurmctldHost=h\nKillWait=7\nNodeName=n1\nPartitionName=main Nodes=n1\n";
        for conf in [CONF, plain] {
            is_written_and_read(conf);
        }
    }

    #[test]
    fn nodes_of_a_node_set_are_written_in_place_of_it() {
        let conf = "ClusterName=c\nSlurmctldHost=h\nNodeName=n[1-4]\nNodeName=n5 Features=fast\nNodeSet=few Nodes=n[1-3]\n\
                    NodeSet=quick Feature=fast\nPartitionName=some Nodes=few,quick\nPartitionName=all Nodes=ALL\n\
                    PartitionName=one Nodes=n4\n";
        let config = config::read_text(Path::new("/etc/slurm/slurm.conf"), conf).0.unwrap();
        let written = BTreeSet::from(["n1", "n3", "n4", "n5"]);
        let nodes = |name: &str| nodes_text(config.partition(name).unwrap(), &written);
        assert_eq!(["some", "all", "one"].map(nodes), ["n[1,3,5]", "ALL", "n4"]);
    }

    fn is_written_and_read(conf: &str) {
        let path = Path::new("/etc/slurm/slurm.conf");
        let config = config::read_text(path, conf).0.unwrap();
        let running = Running { pairs: shown(&config), nodes: Vec::new(), partitions: Vec::new() };
        let written = text(&running, "2026-11-28T12:00:00");
        let rest = "NodeName=n1\nPartitionName=main Nodes=n1\n";
        let (again, report) = config::read_text(path, &format!("{written}{rest}"));
        assert!(!report.has_errors(), "{:?}\n{written}", report.errors().collect::<Vec<_>>());
        let (one, other) = (shown(&config), shown(&again.unwrap()));
        let differ: Vec<_> = one.iter().filter(|pair| !other.contains(pair)).collect();
        assert!(differ.is_empty(), "{differ:?}\n{written}");
        // Whatever has a value of its own is written, and not as a comment.
        let usual = shown(&config::Config::default());
        for pair in one.iter().filter(|pair| !usual.contains(pair)) {
            let (key, value) = (pair.0.split('[').next().unwrap(), &pair.1);
            let is_key = !FACTS.contains(&key) && !NOTHING.contains(&value.as_str());
            assert!(!is_key || written.lines().any(|line| line.starts_with(&format!("{key}="))), "{key}={value}");
        }
    }
}

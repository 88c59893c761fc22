//! Example runs and steps with good defaults, for tests.

use crate::stepmgr::run::RunFacts;
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{Dependencies, JobKind, JobSpec, OpenMode, Sharing, StepSharing, StepSpec, TopologyRequest},
    time::{TimeLimit, Timestamp},
    view::AllocatedNode,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// A step of one task that runs `name`.
pub fn step(name: &str) -> StepSpec {
    StepSpec { name: name.into(), tasks: Some(1), argv: vec![bytes(name)], tell_starts: true, ..StepSpec::default() }
}

/// The same with `--exact`, with so many tasks.
pub fn exact(name: &str, tasks: u32) -> StepSpec {
    StepSpec { tasks: Some(tasks), sharing: StepSharing::Exact, ..step(name) }
}

/// Bytes of a text.
pub fn bytes(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

/// A job's request.
pub fn job_spec(kind: JobKind) -> JobSpec {
    JobSpec {
        kind,
        name: "demo".into(),
        account: None,
        qos: None,
        comment: None,
        extra: None,
        wckey: None,
        partitions: Vec::new(),
        nodes: None,
        node_sizes: Default::default(),
        delay_boot_secs: None,
        tasks: None,
        tasks_per_node: None,
        cpus_per_task: None,
        min_cpus_per_node: None,
        memory: MemoryRequest::Default,
        tmp_disk_mib: 0,
        time_limit: None,
        time_min: None,
        constraint: None,
        prefer: None,
        licenses: None,
        reservations: Vec::new(),
        gres: garrick_model::gres::GresRequest::default(),
        nodelist: Vec::new(),
        exclude: Vec::new(),
        sharing: Sharing::Default,
        mcs_label: None,
        contiguous: false,
        topology: TopologyRequest::default(),
        layout: garrick_model::spec::LayoutRequest::default(),
        array: None,
        dependencies: Dependencies::default(),
        begin: None,
        deadline: None,
        hold: false,
        priority: None,
        nice: 0,
        requeue: None,
        expedite: false,
        no_kill: false,
        kill_on_invalid_dep: None,
        immediate_secs: None,
        work_dir: "/home/alice/demo".into(),
        stdin: None,
        stdout: None,
        stderr: None,
        open_mode: OpenMode::Default,
        environment: Arc::new(vec![bytes("PATH=/usr/bin"), bytes("HOME=/home/alice")]),
        script: Some(Arc::new(bytes("#!/bin/sh\ntrue\n"))),
        argv: Vec::new(),
        umask: 0o022,
        process_nice: 0,
        rlimits: Vec::new(),
        signal: None,
        submit_host: "host1".into(),
        alloc_sid: 1,
        submit_line: "sbatch job.sh".into(),
        command: None,
        het: None,
        het_size: 0,
        array_task: None,
    }
}

/// A run of job 502 by alice on nodes `n1`, `n2`, ... with so many CPUs and 1,000 MiB per CPU.
pub fn run(kind: JobKind, cpus: &[u32]) -> RunFacts {
    let nodes: Vec<AllocatedNode> = cpus
        .iter()
        .zip(1..)
        .map(|(cpus, n)| AllocatedNode {
            name: format!("n{n}"),
            index: NodeIndex(n - 1),
            share: NodeShare {
                cpus: CpuSet::from(0..*cpus),
                memory: Some(MemoryMib(u64::from(*cpus) * 1000)),
                tasks: 0,
                gres: Vec::new(),
            },
        })
        .collect();
    RunFacts {
        cluster: "peer".into(),
        job: JobId(502),
        sluid: Sluid(7),
        uid: 1001,
        gid: 1001,
        user: "alice".into(),
        home: Some("/home/alice".into()),
        shell: Some("/bin/bash".into()),
        spec: Arc::new(job_spec(kind)),
        addresses: (1..=nodes.len()).map(|n| format!("10.0.0.{n}:6818")).collect(),
        nodes,
        partition: "debug".into(),
        time_limit: TimeLimit::Unlimited,
        start_time: Timestamp::from_secs(1_795_255_201),
        restarts: 0,
        tasks: cpus.len() as u32,
        cpus_per_task: 1,
        array: None,
        switches: Vec::new(),
        het: Vec::new(),
        conf_path: Some("/etc/slurm/slurm.conf".into()),
        zone: jiff::tz::TimeZone::UTC,
    }
}

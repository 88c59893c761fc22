//! Example runs and steps with good defaults, for tests.

use crate::stepmgr::run::RunFacts;
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec, StepSharing, StepSpec},
    testing,
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
        memory: MemoryRequest::Default,
        time_limit: None,
        work_dir: "/home/alice/demo".into(),
        environment: Arc::new(vec![bytes("PATH=/usr/bin"), bytes("HOME=/home/alice")]),
        script: Some(Arc::new(bytes("#!/bin/sh\ntrue\n"))),
        submit_host: "host1".into(),
        command: None,
        ..testing::spec()
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
        group: Some("users".into()),
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

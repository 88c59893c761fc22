//! Specs, views and what else there is of a job and a node, with good defaults: a test shows only what matters.

use crate::{
    batch::{BatchMembers, CommandList, StepBatch},
    config::{self, Hres, PartitionConfig},
    entities::{
        Entities,
        association::{AssocId, Association},
        names::{Cluster, WcKey},
        qos::QosRecord,
    },
    gres::GresRequest,
    ids::{JobId, NodeIndex, Sluid, StepId},
    node_shape::{NodeShape, NodeShare},
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{
        ArraySpec, Dependencies, Dependency, DependencyKind, EnvEntry, JobKind, JobSpec, NodeCount, OpenMode, Sharing,
        StepSpec, TopologyRequest,
    },
    state::{ExitStatus, JobState, NodeBase, NodeFlags, PartitionState, Reason, StepState},
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::{AllocatedNode, JobView, NodeFacts, NodeHold, NodeLoad, NodeView, PartitionView, StepView},
};
use std::sync::Arc;

/// A spec of one task with an hour's limit and 100 MiB.
pub fn spec() -> JobSpec {
    JobSpec {
        kind: JobKind::Batch,
        name: "test".to_owned(),
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
        memory: MemoryRequest::PerNode(MemoryMib(100)),
        tmp_disk_mib: 0,
        time_limit: Some(TimeLimit::Secs(3600)),
        time_min: None,
        constraint: None,
        prefer: None,
        batch_features: None,
        reboot: false,
        licenses: None,
        reservations: Vec::new(),
        user_env: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: None,
        profiling: Default::default(),
        oom_kill_step: None,
        gres: GresRequest::default(),
        nodelist: Vec::new(),
        exclude: Vec::new(),
        sharing: Sharing::Default,
        mcs_label: None,
        contiguous: false,
        topology: TopologyRequest::default(),
        layout: crate::spec::LayoutRequest::default(),
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
        work_dir: "/tmp".to_owned(),
        stdin: None,
        stdout: None,
        stderr: None,
        open_mode: OpenMode::Default,
        environment: Arc::default(),
        script: Some(Arc::new(serde_bytes_buf(b"#!/bin/sh\n"))),
        argv: Vec::new(),
        umask: 0o022,
        process_nice: 0,
        rlimits: Vec::new(),
        signal: None,
        submit_host: "login".to_owned(),
        alloc_sid: 1,
        submit_line: "sbatch job.sh".to_owned(),
        command: Some("/tmp/job.sh".to_owned()),
        het: None,
        het_size: 0,
        array_task: None,
        mail: crate::mail::Mail::default(),
        cron: None,
    }
}

fn serde_bytes_buf(bytes: &[u8]) -> EnvEntry {
    EnvEntry::from(bytes.to_vec())
}

/// A spec that depends on one job.
pub fn depends_on(kind: DependencyKind, job: u32) -> JobSpec {
    let one = Dependency { kind, job: Some(JobId(job)), array_index: None, failed: false };
    JobSpec { dependencies: Dependencies { any: false, list: vec![one] }, ..spec() }
}

/// A pending job's view from its spec, with defaults filled in as submission does.
pub fn job(id: u32, spec: JobSpec) -> JobView {
    let nodes = spec.nodes.unwrap_or(NodeCount { min: 1, max: None });
    let min_nodes = nodes.min.max(u32::try_from(spec.nodelist.len()).unwrap_or(0));
    let tasks = spec.tasks.unwrap_or(min_nodes * spec.tasks_per_node.unwrap_or(1));
    let max_nodes = nodes.max.unwrap_or(if spec.nodes.is_some() { min_nodes } else { tasks.max(min_nodes) });
    let cpus_per_task = spec.cpus_per_task.unwrap_or(1);
    JobView {
        id: JobId(id),
        generation: 1,
        sluid: Sluid(u64::from(id)),
        uid: 1001,
        gid: 1001,
        user: "alice".to_owned(),
        group: "alice".to_owned(),
        state: JobState::Pending,
        ending: None,
        reason: Reason::None,
        array_pending: spec.array.clone(),
        array_task: None,
        array_running: 0,
        priority: 1_000_000 - id,
        dependencies: Dependencies::default(),
        eligible: true,
        partitions: if spec.partitions.is_empty() { vec!["debug".to_owned()] } else { spec.partitions.clone() },
        time_limit: spec.time_limit.unwrap_or(TimeLimit::Unlimited),
        submit_time: Timestamp::from_secs(i64::from(id)),
        eligible_time: None,
        start_time: None,
        end_time: None,
        last_sched_eval: None,
        allocation: None,
        completing_nodes: Vec::new(),
        exit: ExitStatus::SUCCESS,
        derived_exit: ExitStatus::SUCCESS,
        restarts: 0,
        requeue: true,
        cpus_per_task,
        tasks,
        min_nodes,
        max_nodes,
        cpus: tasks * cpus_per_task,
        memory: spec.memory,
        sharing: spec.sharing,
        stdout_path: None,
        stderr_path: None,
        stdin_path: None,
        admin_comment: None,
        system_comment: None,
        steps: crate::packed_steps::StepTally::default(),
        terms: crate::view::PriorityTerms::default(),
        preempted: None,
        leave_by: None,
        suspended: None,
        association: None,
        billing: None,
        recurs: false,
        runs_again: false,
        spec: Arc::new(spec),
    }
}

/// A machine of that many sockets, cores in each and threads in each core, with 1000 MiB.
pub fn shape(sockets: u32, cores: u32, threads: u32) -> NodeShape {
    NodeShape {
        cpus: sockets * cores * threads,
        boards: 1,
        sockets,
        cores_per_socket: cores,
        threads_per_core: threads,
        memory: MemoryMib(1000),
        tmp_disk_mib: 0,
        gres: Vec::new(),
        reserved_cpus: Default::default(),
        gpu_cpus: Vec::new(),
        reserved_memory: Default::default(),
    }
}

/// What a node of that name says of itself, whose machine that is.
pub fn facts(hostname: &str, shape: NodeShape) -> NodeFacts {
    NodeFacts {
        hostname: hostname.to_owned(),
        shape,
        arch: "x86_64".to_owned(),
        os: "Linux".to_owned(),
        version: "0.1.0".to_owned(),
        boot_time: Timestamp(0),
        agent_start: Timestamp(0),
        tracking: "cgroup/v2".to_owned(),
        boot_id: None,
        conf_hash: None,
    }
}

/// A node of `cores` cores of two threads with 1000 MiB, in service and idle.
pub fn node(index: u32, cores: u32) -> NodeView {
    NodeView {
        name: format!("n{index}"),
        index: NodeIndex(index),
        generation: 7,
        base: NodeBase::Up,
        flags: NodeFlags::default(),
        reason: None,
        shape: shape(1, cores, 2),
        holds: Vec::new(),
        features: Vec::new(),
        weight: 1,
        address: format!("n{index}:6818"),
        hostname: format!("n{index}"),
        port: 6818,
        registration: None,
        load: NodeLoad::default(),
        last_busy: None,
        suspend_time_secs: None,
        power_since: None,
        idle_since: None,
        comment: None,
        extra: None,
        after_reboot: None,
        resume_at: None,
        instance_id: None,
        instance_type: None,
    }
}

/// What another job has on a node, to end at `end` seconds.
pub fn hold(job: u32, cpus: std::ops::Range<u32>, memory: u64, end: Option<i64>) -> NodeHold {
    NodeHold {
        job: JobId(job),
        sluid: Sluid(u64::from(job)),
        uid: 1002,
        share: NodeShare { cpus: CpuSet::from(cpus), memory: Some(MemoryMib(memory)), tasks: 1, gres: Vec::new() },
        sharing: Sharing::Default,
        mcs_label: None,
        partition: None,
        expected_end: end.map(Timestamp::from_secs),
        completing: false,
        kept: false,
        parked: false,
    }
}

/// What a job has of a node, by its number in the configuration.
pub fn allocated(name: &str, index: u32, share: NodeShare) -> AllocatedNode {
    AllocatedNode { name: name.to_owned(), index: NodeIndex(index), share }
}

/// An up partition with that configuration, over the first `count` nodes.
pub fn partition(config: PartitionConfig, count: u32) -> PartitionView {
    let nodes = (0..count).map(NodeIndex).collect();
    PartitionView { generation: 1, config: Arc::new(config), state: PartitionState::Up, nodes }
}

/// A running step of one task of alice's, for which nothing special was asked.
pub fn step(id: StepId) -> StepView {
    StepView {
        id,
        name: "step".to_owned(),
        state: StepState::Running,
        reason: Reason::None,
        uid: 1001,
        partition: "debug".to_owned(),
        nodelist: String::new(),
        nodes: 1,
        cpus: 1,
        tasks: 1,
        start_time: None,
        end_time: None,
        time_limit: TimeLimit::Unlimited,
        exit: ExitStatus::SUCCESS,
        srun: None,
        submit_line: String::new(),
        attempt: 0,
        priority: 0,
        dependency: String::new(),
        waiting: None,
        usage: TaskUsage::default(),
        gres: Vec::new(),
        memory: Default::default(),
        cpu_freq: None,
    }
}

/// `--array=first-last%limit`.
pub fn array(first: u32, last: u32, limit: Option<u32>) -> ArraySpec {
    ArraySpec { ranges: vec![(first, last, 1)], limit }
}

/// Nodes of a layer, what they have, and what is always in use.
pub type Layer = (std::ops::Range<u32>, u32, u32);

/// Hierarchical resources over nodes `n0` to `n(count-1)`: name, mode, and the layers with their nodes, what they have and
/// what is always in use.
pub fn hres(count: u32, resources: &[(&str, &str, &[Layer])]) -> Arc<Hres> {
    let mut text = String::from("---\n");
    for (name, mode, layers) in resources {
        text += &format!("- resource: {name}\n  mode: {mode}\n  layers:\n");
        for (nodes, total, base) in *layers {
            let (first, last) = (nodes.start, nodes.end - 1);
            text += &format!("  - nodes: ['n[{first}-{last}]']\n    count: {total}\n");
            text += &format!("    base: [{{name: other, value: {base}}}]\n");
        }
    }
    let slurm = format!(
        "ClusterName=c\nSlurmctldHost=a\nNodeName=n[0-{}]\nPartitionName=debug Nodes=ALL Default=YES\n",
        count - 1
    );
    let files = [("/e/slurm.conf", slurm.as_str()), ("/e/resources.yaml", text.as_str())];
    let (config, report) = config::read_files(std::path::Path::new("/e/slurm.conf"), &files);
    config.unwrap_or_else(|| panic!("{report}")).hres
}

/// Steps of a list: for each line its command, and the index of its spec.
pub fn commands(lines: &[(&str, u32)], specs: Vec<StepSpec>) -> StepBatch {
    let mut list = CommandList::default();
    for (line, spec) in lines {
        list.push([line], *spec);
    }
    StepBatch { specs, members: BatchMembers::Commands(list) }
}

/// Compares a page below `docs/`, named by its path from the root of the project, with what its tables say now. With
/// `GARRICK_WRITE_DOCS` in the environment the page is written first.
#[track_caller]
pub fn assert_page(name: &str, page: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("GARRICK_WRITE_DOCS").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("the page can be read");
    let differs = written.lines().zip(page.lines()).find(|(written, wanted)| written != wanted);
    assert_eq!(differs, None, "{name} is made anew with GARRICK_WRITE_DOCS=1");
    assert_eq!(written.len(), page.len(), "{name} is made anew with GARRICK_WRITE_DOCS=1");
}

/// What accounting knows of a cluster `test`: accounts physics (with alice, number 4, and bob, number 5), chem (alice, number 7) and
/// astro below root (with root, number 2); QOS normal, high, low and long, of which physics has all and chem only normal; and alice's
/// WCKeys proj1, her default, and proj2.
pub fn entities() -> Entities {
    let of = |id: u32, parent: Option<u32>, account: &str, user: Option<&str>, is_default: bool| Association {
        id: AssocId(id),
        cluster: "test".to_owned(),
        account: account.to_owned(),
        user: user.map(str::to_owned),
        parent: parent.map(AssocId),
        is_default,
        ..Association::default()
    };
    let mut all = [
        of(1, None, "root", None, false),
        of(2, Some(1), "root", Some("root"), true),
        of(3, Some(1), "physics", None, false),
        of(4, Some(3), "physics", Some("alice"), true),
        of(5, Some(3), "physics", Some("bob"), true),
        of(6, Some(1), "chem", None, false),
        of(7, Some(6), "chem", Some("alice"), false),
        of(8, Some(1), "astro", None, false),
    ];
    let names = |text: &str| Some(text.split(',').map(str::to_owned).collect());
    all[0].qos.own = names("normal");
    all[2].qos.own = names("normal,high,low,long");
    let qos = ["normal", "high", "low", "long"].into_iter().zip(1..);
    let wckey = |id, name: &str, is_default| {
        let (cluster, user) = ("test".to_owned(), "alice".to_owned());
        (id, WcKey { id, cluster, name: name.to_owned(), user, is_default, deleted: false })
    };
    Entities {
        version: 1,
        associations: all.into_iter().map(|a| (a.id, a)).collect(),
        qos: qos.map(|(name, id)| (name.to_owned(), QosRecord::new(id, name))).collect(),
        wckeys: [wckey(1, "proj1", true), wckey(2, "proj2", false)].into(),
        clusters: [("test".to_owned(), Cluster { name: "test".to_owned(), ..Cluster::default() })].into(),
        ..Entities::default()
    }
}

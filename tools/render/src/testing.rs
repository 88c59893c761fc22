//! Views for tests: the cluster of the transcripts, two nodes of 16 CPUs in one partition, with the job 503 on both. Times
//! are its own, and the zone is UTC.

use crate::{clock::Clock, json::Meta};
use garrick_model::{
    config::PartitionConfig,
    ids::{ArrayTask, JobId, Sluid, StepId, StepNum},
    node_shape::{NodeShape, NodeShare},
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec},
    state::{JobState, NodeFlags, Reason},
    testing,
    time::{TimeLimit, Timestamp},
    view::{
        AllocatedNode, Allocation, JobView, NodeFacts, NodeHold, NodeLoad, NodeReason, NodeView, PartitionView,
        StepView,
    },
};
use jiff::tz::TimeZone;
use std::sync::Arc;

/// 2026-11-21T10:00:51, when job 503 was submitted and started.
pub const START: i64 = 1_795_255_251;

/// So many seconds later.
pub fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(START + secs)
}

/// The reader's clock, so many seconds after the start.
pub fn clock(secs: i64) -> Clock {
    Clock { zone: TimeZone::UTC, now: at(secs), format: None }
}

/// A document that alice asked for.
pub fn meta() -> Meta {
    Meta {
        cluster: "peer".to_owned(),
        command: vec!["squeue".to_owned()],
        form: crate::json::Form::default(),
        user: "alice".to_owned(),
        group: "users".to_owned(),
    }
}

/// A specification with nothing asked for.
pub fn job_spec() -> JobSpec {
    JobSpec {
        kind: JobKind::Allocation,
        name: "demo".to_owned(),
        memory: MemoryRequest::Default,
        time_limit: None,
        work_dir: "/home/alice".to_owned(),
        script: None,
        umask: 0,
        submit_host: String::new(),
        alloc_sid: 0,
        submit_line: String::new(),
        command: None,
        ..testing::spec()
    }
}

/// A job of alice's on n1 (4 CPUs) and n2 (2 CPUs).
pub fn job_view(id: u32, state: JobState) -> JobView {
    let share = |cpus: u32| NodeShare {
        cpus: CpuSet::from(0..cpus),
        memory: Some(MemoryMib(100)),
        tasks: cpus / 2,
        gres: Vec::new(),
    };
    let nodes = vec![testing::allocated("n1", 0, share(4)), testing::allocated("n2", 1, share(2))];
    let allocation = Allocation { nodes, partition: "debug".to_owned(), ..Allocation::default() };
    JobView {
        sluid: Sluid(1),
        state,
        priority: 1,
        time_limit: TimeLimit::Secs(600),
        submit_time: Timestamp::from_secs(1000),
        start_time: Some(Timestamp::from_secs(1001)),
        end_time: Some(Timestamp::from_secs(1601)),
        allocation: Some(Arc::new(allocation)),
        cpus_per_task: 2,
        tasks: 3,
        min_nodes: 2,
        max_nodes: 2,
        cpus: 6,
        ..testing::job(id, job_spec())
    }
}

fn share(cpus: std::ops::Range<u32>) -> NodeShare {
    NodeShare { cpus: CpuSet::from_iter(cpus), memory: None, tasks: 0, gres: Vec::new() }
}

/// A running job of alice's on some nodes.
pub fn job(id: u32, nodes: &[(&str, u32)]) -> JobView {
    let nodes: Vec<AllocatedNode> =
        nodes.iter().zip(0..).map(|((name, cpus), index)| testing::allocated(name, index, share(0..*cpus))).collect();
    let count = u32::try_from(nodes.len()).expect("a few nodes");
    JobView {
        spec: Arc::new(JobSpec { kind: JobKind::Batch, name: "demo".to_owned(), ..job_spec() }),
        submit_time: at(0),
        eligible_time: Some(at(0)),
        start_time: Some(at(0)),
        end_time: Some(at(600)),
        last_sched_eval: Some(at(0)),
        allocation: Some(Arc::new(Allocation {
            nodes,
            partition: "debug".to_owned(),
            exclusive: false,
            ..Allocation::default()
        })),
        cpus_per_task: 1,
        tasks: 1,
        min_nodes: count,
        max_nodes: count,
        cpus: 1,
        ..job_view(id, JobState::Running)
    }
}

/// A job that waits.
pub fn waiting(id: u32, reason: Reason) -> JobView {
    JobView {
        state: JobState::Pending,
        reason,
        allocation: None,
        start_time: None,
        end_time: None,
        min_nodes: 1,
        ..job(id, &[])
    }
}

/// A job that is over.
pub fn over(id: u32, state: JobState, nodes: &[(&str, u32)]) -> JobView {
    JobView { state, ..job(id, nodes) }
}

/// That job as a task of the array 504.
pub fn task(index: u32, view: JobView) -> JobView {
    let spec = JobSpec { name: "arr.sh".to_owned(), ..(*view.spec).clone() };
    JobView { array_task: Some(ArrayTask { array_job: JobId(504), index }), spec: Arc::new(spec), ..view }
}

/// Job 503 of the transcripts.
pub fn job_503() -> JobView {
    let spec = JobSpec {
        kind: JobKind::Batch,
        name: "demo".to_owned(),
        comment: Some("a comment".to_owned()),
        extra: None,
        work_dir: "/home/alice/demo".to_owned(),
        submit_host: "localhost".to_owned(),
        alloc_sid: 1398,
        submit_line: "sbatch job.sh".to_owned(),
        command: Some("/home/alice/demo/job.sh".to_owned()),
        ..job_spec()
    };
    JobView {
        sluid: "sFSNM7YRTC8Q00".parse().unwrap_or(Sluid(0)),
        spec: Arc::new(spec),
        tasks: 4,
        cpus: 4,
        memory: MemoryRequest::Default,
        stdin_path: Some("/dev/null".to_owned()),
        stdout_path: Some("/home/alice/demo/demo-503.out".to_owned()),
        ..job(503, &[("n1", 3), ("n2", 1)])
    }
}

/// A node of the transcripts.
pub fn node(index: u32) -> NodeView {
    let shape = NodeShape { memory: MemoryMib(1), ..testing::shape(16, 1, 1) };
    NodeView {
        name: format!("n{}", index + 1),
        generation: 1,
        shape: shape.clone(),
        address: "127.0.0.1".to_owned(),
        hostname: "host1".to_owned(),
        port: u16::try_from(37001 + index).expect("a port"),
        registration: Some(Arc::new(NodeFacts {
            os: "Linux 6.18.44-fc-v669 #1 SMP PREEMPT_DYNAMIC @0".to_owned(),
            version: "26.05.3".to_owned(),
            boot_time: at(-7172),
            agent_start: at(-5786),
            ..testing::facts("host1", shape)
        })),
        load: NodeLoad { load_hundredths: 271, free_memory: Some(MemoryMib(21974)), power: None },
        last_busy: Some(at(-44)),
        ..testing::node(index, 16)
    }
}

/// What a job holds of a node.
pub fn hold(cpus: std::ops::Range<u32>) -> NodeHold {
    NodeHold { sluid: Sluid(1), uid: 1001, share: share(cpus), ..testing::hold(503, 0..0, 0, None) }
}

/// Drained, with a reason.
pub fn drained(node: NodeView, text: &str) -> NodeView {
    let reason = NodeReason { text: text.to_owned(), uid: 1001, user: "alice".to_owned(), at: at(10 * 60 + 26) };
    NodeView { flags: NodeFlags { drain: true, ..node.flags }, reason: Some(reason), ..node }
}

/// A partition of the first `count` nodes.
pub fn partition(name: &str, count: u32) -> PartitionView {
    let config = PartitionConfig { default: true, node_sets: vec!["ALL".to_owned()], ..PartitionConfig::named(name) };
    testing::partition(config, count)
}

/// A running step of job 503.
pub fn step(step: StepNum, name: &str, nodelist: &str) -> StepView {
    StepView {
        name: name.to_owned(),
        nodelist: nodelist.to_owned(),
        start_time: Some(at(0)),
        ..testing::step(StepId::new(JobId(503), step))
    }
}

/// Records of accounting, as of the transcripts of Slurm 26.05.3: alice's job 12 on node n1, with four CPUs, over with success.
pub mod accounting {
    use garrick_accounts::{messages::JobWithSteps, row::JobRow, step::StepRecord, tres::Tres};
    use garrick_model::{
        ids::{JobId, Sluid, StepKey},
        resources::{MemoryMib, MemoryRequest},
        state::{ExitStatus, JobState, Reason, StepState},
        time::{TimeLimit, Timestamp},
        usage::TaskUsage,
    };

    /// 2026-11-23T08:45:38 UTC, when most of the jobs were submitted.
    pub const SUBMIT: i64 = 1_795_423_538;

    /// So many seconds later.
    pub fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(SUBMIT + secs)
    }

    /// Amounts of `name=count`.
    pub fn tres(text: &str) -> Tres {
        let pair =
            |pair: &'_ str| pair.split_once('=').map(|(name, count)| (name.to_owned(), count.parse().unwrap_or(0)));
        let pairs: Vec<(String, u64)> = text.split(',').filter_map(pair).collect();
        pairs.iter().map(|(name, count)| (name.as_str(), *count)).collect()
    }

    /// A job of alice's that ran on one CPU of n1 from one second to another.
    pub fn job(id: u32, name: &str, start: i64, end: i64) -> JobRow {
        JobRow {
            cluster: "cluster".into(),
            job: JobId(id),
            sluid: Sluid(13_134_335_027_115_551_744 + u64::from(id)),
            array_task: None,
            waiting: None,
            het: None,
            uid: 3001,
            gid: 3001,
            user: "alice".into(),
            group: "alice".into(),
            batch: true,
            account: Some("physics".into()),
            qos: Some("normal".into()),
            wckey: None,
            name: name.into(),
            partitions: vec!["main".into()],
            partition: Some("main".into()),
            requested_reservations: Vec::new(),
            reservation: None,
            state: JobState::Completed,
            requeued: false,
            reason: Reason::None,
            exit: ExitStatus::SUCCESS,
            derived: ExitStatus::SUCCESS,
            system_comment: None,
            cancelled_by: None,
            failed_node: None,
            submit: at(0),
            eligible: Some(at(0)),
            start: Some(at(start)),
            end: Some(at(end)),
            suspended_ms: 0,
            suspended_since: None,
            suspensions: Vec::new(),
            repaired: false,
            time_limit: TimeLimit::Secs(600),
            requested_limit: TimeLimit::Secs(600),
            priority: 10_800,
            restarts: 0,
            tasks: 1,
            requested: tres("billing=1,cpu=1,mem=100,node=1"),
            allocated: tres("billing=1,cpu=1,mem=100,node=1"),
            requested_memory: MemoryRequest::PerCpu(MemoryMib(100)),
            nodes: "n1".into(),
            node_indices: Vec::new(),
            booting: Vec::new(),
            constraint: None,
            licenses: None,
            comment: None,
            admin_comment: None,
            extra: None,
            mcs_label: None,
            segment: None,
            work_dir: "/home/alice".into(),
            submit_host: "head".into(),
            submit_line: format!("sbatch -J {name} -o /dev/null"),
            stdin: None,
            stdout: Some("/dev/null".into()),
            stderr: None,
            association: None,
            default_qos: true,
            first_run: None,
            backfilled: false,
            waited_for: Reason::None,
            qos_asked: None,
            cpu_freq: None,
            sharing: Default::default(),
            topology_exclusive: false,
            energy: Default::default(),
            ids: Default::default(),
        }
    }

    /// One that waits.
    pub fn waiting(id: u32, name: &str) -> JobRow {
        JobRow {
            state: JobState::Pending,
            partition: None,
            start: None,
            end: None,
            allocated: Tres::default(),
            nodes: String::new(),
            ..job(id, name, 0, 0)
        }
    }

    /// A step of such a job, `batch`, `extern` or a number, on all that the job has.
    pub fn step(row: &JobRow, key: &str, name: &str) -> StepRecord {
        StepRecord {
            job: row.job,
            sluid: row.sluid,
            key: key.parse().unwrap_or(StepKey::BATCH),
            all_of: None,
            name: name.into(),
            state: StepState::Completed,
            reason: Reason::None,
            exit: ExitStatus::SUCCESS,
            unreported: false,
            start: row.start,
            end: row.end,
            nodes: row.nodes.clone(),
            tasks: 1,
            allocated: row.allocated.iter().filter(|(name, _)| *name != "billing").collect(),
            time_limit: TimeLimit::Unlimited,
            attempt: 0,
            usage: TaskUsage::default(),
            spread: None,
            submit_line: String::new(),
            cpu_freq: None,
            layout: None,
        }
    }

    /// A job with its steps.
    pub fn with_steps(row: JobRow, steps: impl IntoIterator<Item = StepRecord>) -> JobWithSteps {
        JobWithSteps { row, steps: steps.into_iter().collect() }
    }

    /// Job 12 of the transcripts, with its steps.
    pub fn job_12() -> JobWithSteps {
        let row = JobRow {
            requested: tres("billing=4,cpu=4,mem=400,node=1"),
            allocated: tres("billing=4,cpu=4,mem=400,node=1"),
            derived: ExitStatus { code: 7, signal: None },
            ..job(12, "steps", 0, 8)
        };
        let usage =
            |user_us, system_us, max_rss_kib| TaskUsage { user_us, system_us, max_rss_kib, ..TaskUsage::default() };
        let code = |code| ExitStatus { code, signal: None };
        let cpus = |cpus: u64| [("cpu", cpus), ("mem", 100 * cpus), ("node", 1)].into_iter().collect::<Tres>();
        let failed = StepState::Failed;
        let steps = [
            StepRecord { usage: usage(80_000, 82_000, 33_292), ..step(&row, "batch", "batch") },
            step(&row, "extern", "extern"),
            StepRecord { start: Some(at(1)), end: Some(at(1)), usage: usage(3_000, 0, 0), ..step(&row, "0", "one") },
            StepRecord {
                start: Some(at(1)),
                end: Some(at(3)),
                tasks: 2,
                usage: usage(6_000, 0, 1_556),
                ..step(&row, "1", "two")
            },
            StepRecord { start: Some(at(3)), end: Some(at(3)), state: failed, exit: code(7), ..step(&row, "2", "bad") },
            StepRecord {
                start: Some(at(3)),
                end: Some(at(6)),
                state: failed,
                exit: code(5),
                allocated: cpus(1),
                usage: usage(3_000, 0, 3_072),
                ..step(&row, "3", "p2")
            },
            StepRecord { start: Some(at(3)), end: Some(at(5)), allocated: cpus(1), ..step(&row, "4", "p1") },
        ];
        with_steps(row, steps)
    }
}

/// The shares of a cluster of which `sshare` of Slurm 26.05.3 was seen; fewer accounts and kinds of TRES.
pub fn shares_board() -> garrick_model::messages::shares::SharesBoard {
    use garrick_model::{
        entities::{
            association::{AssocId, Association, Shares},
            limits::{Count, TresLimit},
            names::AdminLevel,
            qos::{QosPreemptMode, QosRecord},
        },
        messages::shares::{AssocView, Load, QosView, SharesBoard, UserView},
    };
    let load = |counts: [u64; 3], cpus: u64, nodes: u64| {
        let tres = [("cpu", cpus), ("mem", 100 * cpus), ("node", nodes), ("billing", cpus)];
        let tres: std::collections::BTreeMap<String, u64> = tres.map(|(name, count)| (name.to_owned(), count)).into();
        let left_secs = tres.iter().map(|(name, count)| (name.clone(), 600 * count)).collect();
        let [jobs, accruing, submitted] = counts;
        Load { jobs, accruing, submitted, tres, left_secs }
    };
    let used = |billed: f64, mins: [f64; 3]| {
        let secs = [("billing", billed), ("cpu", 60.0 * mins[0]), ("mem", 60.0 * mins[1]), ("node", 60.0 * mins[2])];
        secs.map(|(name, secs)| (name.to_owned(), secs)).into()
    };
    let assoc = |id: u32, parent: Option<u32>, account: &str, user: Option<&str>, shares: u32| Association {
        id: AssocId(id),
        cluster: "cluster".to_owned(),
        account: account.to_owned(),
        user: user.map(str::to_owned),
        parent: parent.map(AssocId),
        shares: Shares::Number(shares),
        is_default: user == Some("alice") && account == "physics",
        ..Association::default()
    };
    let view = |association: Association, depth, norm: [f64; 4], level_shares, factor: Option<f64>| AssocView {
        lineage: if association.parent.is_some() { vec![association.account.clone()] } else { Vec::new() },
        above: association.parent.map(|_| if depth == 1 { "root".to_owned() } else { "physics".to_owned() }),
        association,
        depth,
        norm_shares: norm[0],
        norm_usage: norm[1],
        effective: norm[2],
        level: norm[3],
        level_shares,
        factor,
        ..AssocView::default()
    };
    let inf = f64::INFINITY;
    let mut all = vec![
        view(assoc(1, None, "root", None, 1), 0, [0.0, 1.0, 1.0, 0.0], 1, None),
        view(assoc(31, Some(1), "root", Some("root"), 1), 1, [0.1, 0.0, 0.0, inf], 10, Some(1.0)),
        view(assoc(13, Some(1), "chem", None, 7), 1, [0.7, 0.007_624, 0.007_624, 91.817_105], 10, None),
        view(assoc(20, Some(13), "chem", Some("alice"), 1), 2, [0.2, 0.006_777, 0.888_889, 0.225], 5, Some(3.0 / 7.0)),
        view(assoc(3, Some(1), "physics", None, 1), 1, [0.1, 0.992_376, 0.992_376, 0.100_768], 10, None),
        view(
            assoc(16, Some(3), "physics", Some("alice"), 10),
            2,
            [10.0 / 12.0, 0.431_830, 0.435_148, 1.915_059],
            12,
            Some(2.0 / 7.0),
        ),
        view(assoc(4, Some(3), "astro", None, 1), 2, [1.0 / 12.0, 0.560_546, 0.564_852, 0.147_531], 12, None),
        view(assoc(17, Some(4), "astro", Some("bob"), 1), 3, [1.0, 0.560_546, 1.0, 1.0], 1, Some(1.0 / 7.0)),
    ];
    for (at, billed, mins, wall_mins, load) in [
        (0, 1180.41, [21.5, 2063.5, 10.5], 10.02, load([2, 8, 11], 12, 3)),
        (2, 8.5, [0.5, 14.5, 0.0], 0.05, Load::default()),
        (3, 7.5, [0.5, 13.5, 0.0], 0.05, Load::default()),
        (4, 1171.41, [21.5, 2048.5, 10.5], 9.97, load([2, 7, 10], 12, 3)),
        (5, 509.74, [10.0, 945.0, 6.0], 6.87, load([1, 5, 7], 4, 1)),
        (6, 661.67, [11.0, 1103.0, 3.5], 3.1, load([1, 2, 3], 8, 2)),
        (7, 661.67, [11.0, 1103.0, 3.5], 3.1, load([1, 2, 3], 8, 2)),
    ] {
        all[at] = AssocView { used: used(billed, mins), wall_secs: 60.0 * wall_mins, load, ..all[at].clone() };
    }
    let limits = &mut all[5].association.limits;
    limits.counts = [(Count::GrpJobs, 5), (Count::MaxJobs, 3)].into();
    limits.tres.insert(TresLimit::GrpTres, [("cpu".to_owned(), 8)].into());
    limits.tres.insert(TresLimit::MaxTresPerJob, [("cpu".to_owned(), 4)].into());
    let mut normal = QosRecord::new(1, "normal");
    normal.limits.counts.insert(Count::MaxJobsPerAccount, 2);
    let mut high = QosRecord { priority: 100, ..QosRecord::new(2, "high") };
    high.preempt_mode.insert(QosPreemptMode::Requeue);
    let empty = |record| QosView {
        record,
        used: [].into(),
        wall_secs: 0.0,
        load: Load::default(),
        by_account: [].into(),
        by_user: [].into(),
    };
    let one = load([1, 5, 7], 4, 1);
    let normal = QosView {
        used: [("billing".to_owned(), 1_119.450_094)].into(),
        wall_secs: 594.0,
        load: load([2, 7, 10], 12, 3),
        by_account: [("physics".to_owned(), one.clone())].into(),
        by_user: [("alice".to_owned(), one)].into(),
        ..empty(normal)
    };
    let user = |name: &str, account: Option<&str>, wckey: Option<&str>, admin| UserView {
        name: name.to_owned(),
        default_account: account.map(str::to_owned),
        default_wckey: wckey.map(str::to_owned),
        admin,
    };
    SharesBoard {
        fair_tree: true,
        tres: ["cpu", "mem", "energy", "node", "billing"].map(str::to_owned).into(),
        associations: all,
        qos: vec![normal, empty(high)],
        users: vec![
            user("alice", Some("physics"), Some("proj1"), AdminLevel::None),
            user("eve", None, None, AdminLevel::Operator),
        ],
    }
}

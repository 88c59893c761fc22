//! Tests of [`super`]: whole lists, compared with what Slurm 26.05 gives in the same situation.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::stepmgr::{builders, pool::Pool};
use garrick_model::{
    ids::{ArrayTask, JobId},
    messages::node::{ArrayFacts, SwitchPath},
    resources::{MemoryMib, MemoryRequest},
    spec::{JobKind, JobSpec},
};
use std::sync::Arc;

fn lines(entries: &[EnvEntry]) -> Vec<String> {
    entries.iter().map(|e| String::from_utf8(e.to_vec()).unwrap()).collect()
}

// The list at the end of reference/transcripts-26.05.txt (one node, `-N1 -n16`), without what the launcher adds
// (SLURM_TASK_PID) and with layers 2 to 4 apart.
#[test]
fn a_batch_script_sees_slurms_list() {
    let mut facts = builders::run(JobKind::Batch, &[16]);
    facts.tasks = 16;
    facts.nodes[0].share.tasks = 16;
    facts.spec = Arc::new(JobSpec {
        tasks: Some(16),
        name: "a.sh".into(),
        environment: Arc::new(vec![
            builders::bytes("HOME=/home/alice"),
            builders::bytes("PATH=/usr/bin"),
            builders::bytes("SLURM_JOB_ID=1"),
            builders::bytes("SLURM_STEP_NODELIST=old"),
            builders::bytes("SLURM_EXPORT_ENV=ALL"),
        ]),
        ..builders::job_spec(JobKind::Batch)
    });
    assert_eq!(
        lines(&batch_environment(&facts)),
        [
            "ENVIRONMENT=BATCH",
            "HOME=/home/alice",
            "HOSTNAME=n1",
            "HYDRA_BOOTSTRAP=slurm",
            "HYDRA_LAUNCHER_EXTRA_ARGS=--external-launcher",
            "I_MPI_HYDRA_BOOTSTRAP=slurm",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=--external-launcher",
            "LOGNAME=alice",
            "OMPI_MCA_plm_slurm_args=--external-launcher",
            "PATH=/usr/bin",
            "PRTE_MCA_plm_slurm_args=--external-launcher",
            "SHELL=/bin/bash",
            "SLURM_CLUSTER_NAME=peer",
            "SLURM_CONF=/etc/slurm/slurm.conf",
            "SLURM_EXPORT_ENV=ALL",
            "SLURM_JOBID=502",
            "SLURM_JOB_CPUS_PER_NODE=16",
            "SLURM_JOB_END_TIME=1826791201",
            "SLURM_JOB_EXCLUSIVE=NO",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_ID=502",
            "SLURM_JOB_NAME=a.sh",
            "SLURM_JOB_NODELIST=n1",
            "SLURM_JOB_NUM_NODES=1",
            "SLURM_JOB_OVERSUBSCRIBE=NO",
            "SLURM_JOB_PARTITION=debug",
            &format!("SLURM_JOB_SLUID={}", facts.sluid),
            "SLURM_JOB_START_TIME=1795255201",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_NNODES=1",
            "SLURM_NODELIST=n1",
            "SLURM_NPROCS=16",
            "SLURM_NTASKS=16",
            "SLURM_OOM_KILL_STEP=0",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_STEPMGR=n1",
            "SLURM_SUBMIT_DIR=/home/alice/demo",
            "SLURM_SUBMIT_HOST=host1",
            "SLURM_TASKS_PER_NODE=16",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ]
    );
    let pool = Pool::new(&facts.nodes);
    let node = &pool.nodes()[0];
    assert_eq!(
        lines(&node_variables(node, None, 0, 16, &[0])),
        ["SLURMD_NODENAME=n1", "SLURM_CPUS_ON_NODE=16", "SLURM_GTIDS=0", "SLURM_NODEID=0", "SLURM_TOPOLOGY_ADDR=n1"]
    );
    let path = SwitchPath { names: "top.s1".into(), pattern: "switch.switch.node".into() };
    let found = lines(&node_variables(node, Some(&path), 0, 16, &[0]));
    assert_eq!(found[4..], ["SLURM_TOPOLOGY_ADDR=top.s1.n1", "SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node"]);
    assert_eq!(lines(&task_variables(0, 0)), ["SLURM_LOCALID=0", "SLURM_PROCID=0"]);
    assert_eq!(lines(&number_variables(StepKey::BATCH)), ["SLURM_STEPID=-5", "SLURM_STEP_ID=-5"]);
}

#[test]
fn a_step_over_two_nodes_sees_its_own_layout() {
    let step = StepFacts {
        nodes: vec!["n1", "n2"],
        tasks_per_node: vec![3, 1],
        cpus_per_task: Some(2),
        ntasks_per_node: None,
        distribution: Distribution::Cyclic,
        within: Default::default(),
        process_nice: 0,
        umask: 0o077,
        manager: Some(("10.0.0.1", "6818")),
    };
    assert_eq!(
        lines(&layout_variables(&step)),
        [
            "SLURM_DISTRIBUTION=cyclic",
            "SLURM_NNODES=2",
            "SLURM_NODELIST=n[1-2]",
            "SLURM_NPROCS=4",
            "SLURM_NTASKS=4",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_STEP_NODELIST=n[1-2]",
            "SLURM_STEP_NUM_NODES=2",
            "SLURM_STEP_NUM_TASKS=4",
            "SLURM_STEP_TASKS_PER_NODE=3,1",
            "SLURM_TASKS_PER_NODE=3,1",
            "SLURM_UMASK=0077",
            "SLURM_LAUNCH_NODE_IPADDR=10.0.0.1",
            "SLURM_SRUN_COMM_HOST=10.0.0.1",
            "SLURM_SRUN_COMM_PORT=6818",
            "SLURM_STEP_LAUNCHER_PORT=6818",
            "SLURM_CPUS_PER_TASK=2",
        ]
    );
    assert_eq!(lines(&number_variables(StepKey::number(3))), ["SLURM_STEPID=3", "SLURM_STEP_ID=3"]);
}

#[test]
fn a_task_of_a_step_array_knows_itself_and_its_array() {
    let own = ["SLURM_STEPID=7", "SLURM_STEP_ID=7", "SLURM_STEP_ARRAY_TASK_ID=123"];
    assert_eq!(lines(&number_variables(StepKey::task(7, 123))), own);
    let tasks = ArraySpec { ranges: vec![(3, 999, 3)], limit: Some(4) };
    assert_eq!(
        lines(&step_array_variables(7, &tasks)),
        [
            "SLURM_STEP_ARRAY_ID=7",
            "SLURM_STEP_ARRAY_TASK_COUNT=333",
            "SLURM_STEP_ARRAY_TASK_MIN=3",
            "SLURM_STEP_ARRAY_TASK_MAX=999",
            "SLURM_STEP_ARRAY_TASK_STEP=3",
        ]
    );
}

#[test]
fn array_tasks_memory_and_restarts_are_told() {
    let mut facts = builders::run(JobKind::Batch, &[4, 4]);
    facts.restarts = 2;
    facts.array = Some(ArrayFacts { count: 3, min: 1, max: 9, step: 4 });
    facts.spec = Arc::new(JobSpec {
        array_task: Some(ArrayTask { array_job: JobId(500), index: 5 }),
        memory: MemoryRequest::PerNode(MemoryMib(100)),
        tasks_per_node: Some(2),
        cpus_per_task: Some(2),
        environment: Arc::default(),
        ..builders::job_spec(JobKind::Batch)
    });
    let env = lines(&batch_environment(&facts));
    for line in [
        "SLURM_ARRAY_JOB_ID=500",
        "SLURM_ARRAY_TASK_ID=5",
        "SLURM_ARRAY_TASK_COUNT=3",
        "SLURM_ARRAY_TASK_MIN=1",
        "SLURM_ARRAY_TASK_MAX=9",
        "SLURM_ARRAY_TASK_STEP=4",
        "SLURM_RESTART_COUNT=2",
        "SLURM_MEM_PER_NODE=100",
        "SLURM_NTASKS_PER_NODE=2",
        "SLURM_CPUS_PER_TASK=2",
        "SLURM_JOB_CPUS_PER_NODE=4(x2)",
        "HOME=/home/alice",
        "PATH=/usr/local/bin:/usr/bin:/bin",
    ] {
        assert!(env.iter().any(|l| l == line), "{line} missing in {env:?}");
    }
}

#[test]
fn steps_keep_what_their_srun_passed_on_under_the_jobs_variables() {
    let facts = builders::run(JobKind::Allocation, &[2]);
    let env = lines(&job_environment(&facts, &[builders::bytes("X=1"), builders::bytes("SLURM_JOB_ID=9")]));
    assert!(env.contains(&"X=1".to_owned()) && env.contains(&"SLURM_JOB_ID=502".to_owned()));
    assert!(!env.iter().any(|l| l.starts_with("ENVIRONMENT=")));
}

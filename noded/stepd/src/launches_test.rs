#![allow(clippy::unwrap_used)]
use super::*;
use garrick_model::{
    ids::{JobId, StepId, StepNum},
    messages::shepherd::{StepNodeShare, StepStart},
    resources::CpuSet,
    spec::{CpuBind, OpenMode, StdinTo, StreamTarget, TaskScripts},
};

fn description(name: &str) -> Arc<StepLaunch> {
    Arc::new(StepLaunch {
        name: name.into(),
        job_name: "j".into(),
        user: "u".into(),
        array_task: None,
        environment: Arc::new(vec![vec![b'x'; 4000].into()]),
        work_dir: "/".into(),
        stdin: StreamTarget::Null,
        stdin_to: StdinTo::None,
        stdout: StreamTarget::Null,
        stderr: StreamTarget::Null,
        open_mode: OpenMode::Default,
        pty: None,
        umask: 0,
        process_nice: 0,
        rlimits: Vec::new(),
        cpu_bind: CpuBind::None,
        says_cpu_bind: false,
        within: Default::default(),
        gpu_bind: Default::default(),
        cpus_per_task: 1,
        total_tasks: 1,
        script: None,
        batch: false,
        output_pack: None,
        unattended: true,
        or_shell: false,
        unasked_output: false,
        task_scripts: TaskScripts::default(),
        mpi: Default::default(),
        program_named_by_node: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: None,
        profiling: Default::default(),
        over_with: Default::default(),
    })
}

fn launch(number: u32, launch: &Arc<StepLaunch>) -> StepMgrToShepherd {
    StepMgrToShepherd::Launch(Box::new(StepStart {
        step: StepId::new(JobId(1), StepNum::Number(number)),
        attempt: 0,
        launch: LaunchRef::Whole(Arc::clone(launch)),
        env: Arc::default(),
        own_env: Vec::new(),
        share: StepNodeShare {
            node_id: 0,
            cpus: CpuSet::default(),
            memory_mib: None,
            gres: Vec::new(),
            own_cgroup: false,
            env: Arc::default(),
        },
        tasks: Vec::new(),
        after: None,
        mapping: None,
    }))
}

/// A connection: what was said goes through bytes, as between hosts.
#[derive(Default)]
struct Wire {
    sent: SentLaunches,
    kept: KeptLaunches,
    bytes: usize,
    keeps: usize,
}

impl Wire {
    fn carry(&mut self, message: &StepMgrToShepherd) -> StepMgrToShepherd {
        let OnWire { before, instead } = message.on_wire(&mut self.sent);
        let frames = before.into_iter().chain([instead.unwrap_or_else(|| message.clone())]);
        let mut last = None;
        for frame in frames {
            let bytes = rmp_serde::to_vec_named(&frame).unwrap();
            self.bytes += bytes.len();
            self.keeps += usize::from(matches!(frame, StepMgrToShepherd::Keep { .. }));
            last = self.kept.restore(rmp_serde::from_slice(&bytes).unwrap()).unwrap();
        }
        last.unwrap()
    }
}

#[test]
fn a_description_goes_over_a_connection_once() {
    let mut wire = Wire::default();
    let shared = description("a");
    for n in 0..1000 {
        let whole = launch(n, &shared);
        assert_eq!(wire.carry(&whole), whole);
    }
    assert_eq!(wire.keeps, 1);
    assert!(wire.bytes < 1000 * 300, "{} bytes for 1000 launches", wire.bytes);
}

#[test]
fn equal_descriptions_of_two_requests_are_two() {
    let mut wire = Wire::default();
    for one in [description("a"), description("a")] {
        let whole = launch(1, &one);
        assert_eq!(wire.carry(&whole), whole);
    }
    assert_eq!(wire.keeps, 2);
}

#[test]
fn more_descriptions_than_are_remembered_are_sent_again_when_they_are_used_again() {
    let mut wire = Wire::default();
    let all: Vec<_> = (0..=REMEMBERED).map(|n| description(&n.to_string())).collect();
    for (n, one) in (0..).zip(&all) {
        // The first stays in use all the time.
        for whole in [launch(n, one), launch(n, &all[0])] {
            assert_eq!(wire.carry(&whole), whole);
        }
    }
    assert_eq!(wire.keeps, REMEMBERED + 1);
    // The second was the one to go.
    assert_eq!(wire.carry(&launch(0, &all[0])), launch(0, &all[0]));
    assert_eq!(wire.keeps, REMEMBERED + 1);
    assert_eq!(wire.carry(&launch(0, &all[1])), launch(0, &all[1]));
    assert_eq!(wire.keeps, REMEMBERED + 2);
    assert_eq!(wire.sent.0.len(), REMEMBERED);
    assert_eq!(wire.kept.0.len(), REMEMBERED);
}

#[test]
fn a_number_that_was_not_sent_on_this_connection_is_refused() {
    let mut wire = Wire::default();
    let shared = description("a");
    wire.carry(&launch(0, &shared));
    let known = launch(1, &shared).on_wire(&mut wire.sent).instead.unwrap();
    assert_eq!(KeptLaunches::default().restore(known), Err(UnknownLaunch(0)));
}

#[test]
fn other_messages_go_as_they_are() {
    let mut wire = Wire::default();
    let step = StepId::new(JobId(1), StepNum::Batch);
    for message in [StepMgrToShepherd::ListTasks, StepMgrToShepherd::Kill { step }] {
        assert_eq!(wire.carry(&message), message);
    }
}

#![allow(clippy::unwrap_used)]
use super::*;
use garrick_model::{
    config::PartitionConfig,
    ids::{JobId, NodeIndex},
    spec::{ArraySpec, Dependencies, Dependency, JobSpec},
    state::{NodeFlags, PartitionState},
    view::NodeReason,
};
use garrick_render::testing::{at, job, node, waiting};

fn partition(config: PartitionConfig) -> Arc<PartitionView> {
    let config = PartitionConfig { name: "debug".to_owned(), ..config };
    let nodes = vec![NodeIndex(0), NodeIndex(1)];
    Arc::new(PartitionView { generation: 1, config: Arc::new(config), state: PartitionState::Down, nodes })
}

fn around(config: PartitionConfig) -> Around {
    let nodes = vec![Arc::new(node(0)), Arc::new(node(1))];
    Around { nodes, partitions: vec![partition(config)], at: at(0), ..Around::default() }
}

fn told(job: &JobView, around: &Around) -> String {
    grounds(job, around, &TimeZone::UTC)
}

fn of(job: JobView) -> JobView {
    JobView { partitions: vec!["debug".to_owned()], priority: 100, ..job }
}

#[test]
fn who_runs_without_an_end_is_named() {
    let mut around = around(PartitionConfig::default());
    let endless = |id| Arc::new(JobView { time_limit: TimeLimit::Unlimited, ..of(job(id, &[("n1", 4)])) });
    let bound = JobView { time_limit: TimeLimit::Secs(60), ..of(job(5, &[("n2", 4)])) };
    let ahead = JobView { priority: 200, eligible: true, ..of(waiting(6, Reason::Resources)) };
    around.jobs = vec![endless(3), Arc::new(bound)];
    let mine = of(waiting(7, Reason::Resources));
    let said = told(&mine, &around);
    assert!(said.contains("runs job 3 without a time limit, and until it ends"), "{said}");
    assert!(said.ends_with("\"scontrol update JobId=3 TimeLimit=\" sets one)"), "{said}");
    around.jobs.extend([endless(4), Arc::new(ahead)]);
    let said = told(&mine, &around);
    assert!(said.contains("run jobs 3, 4 without") && said.ends_with("; one other job goes before it"), "{said}");
    around.jobs.clear();
    assert!(told(&mine, &around).contains("bf_window"));
}

#[test]
fn where_room_is_not_reserved_for_everybody_that_is_said() {
    let mut around = around(PartitionConfig::default());
    let mine = of(waiting(7, Reason::Priority));
    around.reserving = Reserving::Nobody("SchedulerType=sched/builtin");
    let said = told(&mine, &around);
    assert!(said.contains("(SchedulerType=sched/builtin): it is the first, and starts as soon as"), "{said}");
    let ahead = JobView { priority: 200, eligible: true, ..of(waiting(6, Reason::Resources)) };
    around.jobs = vec![Arc::new(ahead)];
    let said = told(&mine, &around);
    assert!(said.ends_with("it is not its turn yet; one other job goes before it"), "{said}");
    around.reserving = Reserving::First(1, "bf_algorithm=easy");
    let said = told(&mine, &around);
    assert!(
        said.contains("only the first job of a partition that cannot start has that (bf_algorithm=easy)"),
        "{said}"
    );
    around.reserving = Reserving::First(2, "bf_algorithm=easy");
    assert!(told(&mine, &around).contains("bf_max_job_test"), "it is one of them");
}

#[test]
fn limits_are_told_with_what_they_are() {
    let small = around(PartitionConfig { max_time: TimeLimit::Secs(3600), ..PartitionConfig::default() });
    let long = JobView { time_limit: TimeLimit::Secs(7200), ..of(waiting(7, Reason::PartitionTimeLimit)) };
    assert!(
        told(&long, &small).starts_with("its time limit 02:00:00 is above 01:00:00 of debug; "),
        "{}",
        told(&long, &small)
    );
    let wide = JobView { min_nodes: 3, max_nodes: 3, ..of(waiting(7, Reason::PartitionNodeLimit)) };
    assert!(told(&wide, &small).starts_with("it asks for 3 nodes, and debug has 2; "));
    let many = JobView { cpus: 99, ..of(waiting(7, Reason::PartitionConfig)) };
    assert!(told(&many, &small).starts_with("it asks for 99 CPUs, and debug has 32; "), "{}", told(&many, &small));
    let least = around(PartitionConfig { min_nodes: 4, ..PartitionConfig::default() });
    assert!(told(&wide, &least).contains("debug gives a job 4 at least (MinNodes)"));
    let most = around(PartitionConfig { max_nodes: Some(2), ..PartitionConfig::default() });
    assert!(told(&wide, &most).contains("debug gives a job 2 at most (MaxNodes)"));
    assert!(
        told(&of(waiting(7, Reason::PartitionDown)), &most)
            .starts_with("nothing starts in debug (debug is DOWN) until")
    );
}

#[test]
fn nodes_out_of_service_are_told_with_why() {
    let mut around = around(PartitionConfig::default());
    let why = NodeReason { text: "fan".to_owned(), uid: 0, user: "root".to_owned(), at: at(0) };
    let drained = NodeView { flags: NodeFlags { drain: true, ..NodeFlags::default() }, reason: Some(why), ..node(1) };
    around.nodes[1] = Arc::new(drained);
    for (reason, begins) in [
        (Reason::unavailable_nodes(["n2"]), "it needs nodes that are out of service (n2 is drained: fan); "),
        (
            Reason::NodesUnavailable,
            "so many nodes that the others are too few for it are out of service (n2 is drained: fan); ",
        ),
    ] {
        let said = told(&of(waiting(7, reason)), &around);
        assert!(said.starts_with(begins), "{said}");
    }
}

#[test]
fn dependencies_are_told_with_the_state_of_the_jobs() {
    let mut around = around(PartitionConfig::default());
    around.jobs = vec![Arc::new(of(waiting(3, Reason::JobHeldUser)))];
    let on = Dependency { kind: DependencyKind::AfterOk, job: Some(JobId(3)), array_index: None, failed: false };
    let mine = |reason| JobView {
        dependencies: Dependencies { any: false, list: vec![on.clone()] },
        ..of(waiting(7, reason))
    };
    assert!(told(&mine(Reason::Dependency), &around).ends_with("; job 3 is PENDING (JobHeldUser)"));
    assert!(told(&mine(Reason::DependencyNeverSatisfied), &around).contains("scancel 7"));
}

#[test]
fn reservations_are_told_with_their_times() {
    let mut around = around(PartitionConfig::default());
    let later =
        Reservation { name: "r".into(), start: at(60), end: at(600), nodes: vec!["n1".into()], ..Default::default() };
    around.reservations = vec![Arc::new(later)];
    let mut mine = of(waiting(7, Reason::Other("Reservation".to_owned())));
    mine.spec = Arc::new(JobSpec { reservations: vec!["r".to_owned()], ..(*mine.spec).clone() });
    assert_eq!(
        told(&mine, &around),
        format!("it is to run in a reservation: r begins at {}", at(60).text(&TimeZone::UTC))
    );
    mine.reason = Reason::Other("ReqNodeNotAvail, May be reserved for other job".to_owned());
    assert!(told(&mine, &around).contains("by reservation: r from "));
    mine.reason = Reason::Other("ReservationDeleted".to_owned());
    assert!(told(&mine, &around).starts_with("reservation r is not there any more; "));
}

#[test]
fn others_say_what_lets_the_job_go() {
    let around = around(PartitionConfig::default());
    let say = |reason| told(&of(waiting(7, reason)), &around);
    assert!(say(Reason::JobHeldUser).contains("scontrol release 7"));
    assert!(say(Reason::BeginTime).starts_with("its time comes at "));
    assert!(say(Reason::Other("Licenses".to_owned())).contains("scontrol show licenses"));
    assert!(say(Reason::BadConstraints).contains("scontrol show job 7"));
    assert!(say(Reason::None).contains("no plan has looked at it"));
    assert!(say(Reason::Cleaning).contains("requeued"));
    let held = JobView { priority: 0, ..waiting(7, Reason::Other("launch failed requeued held".to_owned())) };
    assert!(told(&held, &around).contains("scontrol release 7"));
    let mut task = of(waiting(7, Reason::JobArrayTaskLimit));
    task.spec = Arc::new(JobSpec {
        array: Some(ArraySpec { ranges: vec![(0, 9, 1)], limit: Some(2) }),
        ..(*task.spec).clone()
    });
    assert!(told(&task, &around).contains("as it allows (2)"));
}

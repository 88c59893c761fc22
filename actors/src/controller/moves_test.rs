//! Changes of waiting jobs, judged as submissions are.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Rig, with_rig};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{CancelRequest, CommandReply, CommandRequest, JobChange, JobSelector},
        request_change::RequestChange,
    },
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{ArraySpec, JobKind, JobSpec, NodeCount, Sharing},
    testing::spec,
    time::TimeLimit,
};

/// Nodes that never come, so that all jobs wait.
const SITE: &str = "ClusterName=test\nSlurmctldHost=head\n\
    NodeName=n[0-1] CPUs=4 RealMemory=1000\n\
    PartitionName=debug Nodes=ALL Default=YES MaxTime=60\n\
    PartitionName=staff Nodes=ALL AllowGroups=staff\n\
    PartitionName=root Nodes=ALL RootOnly=YES\n\
    PartitionName=off Nodes=ALL State=DRAIN\n\
    PartitionName=alice Nodes=ALL AllowGroups=alice\n";

async fn update(rig: &Rig, uid: u32, job: JobId, change: JobChange) -> Result<(), Refusal> {
    let jobs = vec![JobSelector { job, tasks: None, het: None, run: None }];
    match rig.ask(uid, CommandRequest::UpdateJob { jobs, change: Box::new(change) }).await {
        CommandReply::PerJob(answers) => answers.into_iter().try_for_each(|(_, answer)| answer),
        other => panic!("{other:?}"),
    }
}

fn to(partitions: &[&str]) -> JobChange {
    let partitions = partitions.iter().map(|name| (*name).to_owned()).collect();
    JobChange { partitions: Some(partitions), ..JobChange::default() }
}

#[test]
fn nobody_moves_a_job_to_where_he_may_not_submit() {
    with_rig(SITE, async |mut rig: Rig| {
        let job = rig.submitted(spec()).await;
        let moved = async |uid: u32, names: &[&str]| update(&rig, uid, job, to(names)).await;
        assert_eq!(moved(1001, &["staff"]).await, Err(Refusal::GroupNotPermitted));
        assert_eq!(moved(1001, &["debug", "staff"]).await, Err(Refusal::GroupNotPermitted));
        assert_eq!(moved(1001, &["root"]).await, Err(Refusal::AccessDenied));
        assert_eq!(moved(1001, &["off"]).await, Err(Refusal::PartitionUnavailable));
        assert_eq!(moved(1002, &["alice"]).await, Err(Refusal::AccessDenied), "it is not his job");
        assert_eq!(moved(1001, &["alice", "debug"]).await, Ok(()));
        rig.until(job, |view| view.partitions == ["alice", "debug"]).await;
        assert_eq!(moved(0, &["staff"]).await, Ok(()), "an administrator may");
        rig.until(job, |view| view.partitions == ["staff"]).await;
    });
}

#[test]
fn nobody_has_more_memory_than_his_cpus_bring_by_a_change() {
    with_rig(&format!("MaxMemPerCPU=100\n{SITE}"), async |mut rig: Rig| {
        let memory = MemoryRequest::PerNode(MemoryMib(250));
        let job = rig.submitted(JobSpec { memory, ..spec() }).await;
        rig.until(job, |view| view.spec.min_cpus_per_node == Some(3)).await;
        let change = |request| JobChange { request, ..JobChange::default() };
        let cpus = |least| change(RequestChange { min_cpus_per_node: Some(least), ..RequestChange::default() });
        let more = |mib| JobChange { memory: Some(MemoryRequest::PerNode(MemoryMib(mib))), ..JobChange::default() };
        let refused = || {
            let detail = Some("Memory specification can not be satisfied".to_owned());
            Err(Refusal::NodeConfigUnavailable { detail })
        };
        assert_eq!(update(&rig, 1001, job, cpus(1)).await, refused());
        assert_eq!(update(&rig, 1001, job, more(301)).await, refused());
        assert_eq!(update(&rig, 1001, job, more(300)).await, Ok(()));
        assert_eq!(update(&rig, 0, job, cpus(1)).await, Ok(()), "an administrator may");
    });
}

#[test]
fn limits_of_partitions_are_enforced_on_changes_where_they_are_on_submissions() {
    let longer = || JobChange { time_limit: Some(TimeLimit::Secs(500 * 60)), ..JobChange::default() };
    let by_delta = || JobChange { time_limit_delta_secs: Some(500 * 60), ..JobChange::default() };
    let wider = || JobChange { nodes: Some(NodeCount { min: 50, max: None }), ..JobChange::default() };
    with_rig(&format!("EnforcePartLimits=ALL\n{SITE}"), async |mut rig: Rig| {
        let job = rig.submitted(spec()).await;
        assert_eq!(update(&rig, 1001, job, longer()).await, Err(Refusal::InvalidTimeLimit));
        assert_eq!(update(&rig, 1001, job, by_delta()).await, Err(Refusal::InvalidTimeLimit));
        assert_eq!(update(&rig, 1001, job, wider()).await, Err(Refusal::BadNodeCount));
        assert_eq!(update(&rig, 0, job, longer()).await, Ok(()));
    });
    with_rig(SITE, async |mut rig: Rig| {
        let job = rig.submitted(spec()).await;
        assert_eq!(update(&rig, 1001, job, longer()).await, Ok(()), "it waits with PartitionTimeLimit");
        assert_eq!(update(&rig, 1001, job, wider()).await, Ok(()));
    });
}

#[test]
fn a_label_is_changed_as_it_is_given_and_goes_with_the_account() {
    let label = |text: &str| JobChange { mcs_label: Some(text.to_owned()), ..JobChange::default() };
    let account = |text: &str| JobChange { account: Some(text.to_owned()), ..JobChange::default() };
    let refused = |text: &str| Err(Refusal::InvalidMcsLabel(Some(text.to_owned())));
    with_rig(&format!("MCSPlugin=mcs/user\nMCSParameters=ondemand,select\n{SITE}"), async |mut rig: Rig| {
        let job = rig.submitted(spec()).await;
        assert_eq!(update(&rig, 1001, job, label("bob")).await, refused("bob"));
        assert_eq!(update(&rig, 0, job, label("bob")).await, refused("bob"), "it is not bob's, whoever says so");
        assert_eq!(update(&rig, 1002, job, label("bob")).await, Err(Refusal::AccessDenied));
        assert_eq!(update(&rig, 1001, job, label("alice")).await, Ok(()));
        rig.until(job, |view| view.spec.mcs_label.as_deref() == Some("alice") && view.sharing == Sharing::Mcs).await;
        let open = JobChange { sharing: Some(Sharing::Oversubscribe), name: Some("new".to_owned()), ..label("alice") };
        assert_eq!(update(&rig, 1001, job, open).await, Ok(()));
        rig.until(job, |view| view.spec.name == "new" && view.spec.sharing == Sharing::Mcs).await;
        assert_eq!(update(&rig, 1001, job, label("")).await, Ok(()));
        rig.until(job, |view| view.spec.mcs_label.is_none() && view.sharing == Sharing::Default).await;
    });
    with_rig(&format!("MCSPlugin=mcs/account\nMCSParameters=enforced\n{SITE}"), async |mut rig: Rig| {
        let job = rig.submitted(JobSpec { account: Some("lab".to_owned()), ..spec() }).await;
        rig.until(job, |view| view.spec.mcs_label.as_deref() == Some("lab")).await;
        assert_eq!(update(&rig, 1001, job, account("field")).await, Ok(()));
        rig.until(job, |view| view.spec.mcs_label.as_deref() == Some("field")).await;
        assert_eq!(update(&rig, 1001, job, label("lab")).await, refused("lab"));
        assert_eq!(update(&rig, 0, job, account("")).await, Err(Refusal::InvalidMcsLabel(None)), "it must have one");
    });
    with_rig(SITE, async |mut rig: Rig| {
        let job = rig.submitted(spec()).await;
        let both = JobChange { comment: Some("seen".to_owned()), ..label("red") };
        assert_eq!(update(&rig, 1001, job, both).await, Ok(()), "without MCSPlugin it has no effect");
        rig.until(job, |view| view.spec.comment.is_some() && view.spec.mcs_label.is_none()).await;
    });
}

#[test]
fn partitions_that_do_not_take_an_account_are_no_place_to_move_to_where_limits_are_enforced() {
    let site = format!(
        "{SITE}PartitionName=physics Nodes=ALL AllowAccounts=physics\nPartitionName=slow Nodes=ALL DenyQos=fast\n"
    );
    let job = || JobSpec { account: Some("chemistry".to_owned()), qos: Some("fast".to_owned()), ..spec() };
    let account = |name: &str| JobChange { account: Some(name.to_owned()), ..JobChange::default() };
    let no_account = || Err(Refusal::InvalidAccount(Some("chemistry".to_owned())));
    let no_qos = || Err(Refusal::InvalidQos(Some("fast".to_owned())));
    with_rig(&format!("EnforcePartLimits=ALL\n{site}"), async |mut rig: Rig| {
        let job = rig.submitted(job()).await;
        let moved = async |change: JobChange| update(&rig, 1001, job, change).await;
        assert_eq!(moved(to(&["physics"])).await, no_account());
        assert_eq!(moved(to(&["debug", "slow"])).await, no_qos());
        let qos = |qos: &str| RequestChange { qos: Some(qos.to_owned()), ..RequestChange::default() };
        assert_eq!(moved(JobChange { request: qos("slower"), ..to(&["debug", "slow"]) }).await, Ok(()));
        assert_eq!(moved(JobChange { request: qos("fast"), ..JobChange::default() }).await, no_qos());
        assert_eq!(moved(JobChange { request: qos("fast"), ..to(&["debug"]) }).await, Ok(()));
        assert_eq!(moved(JobChange { account: Some("physics".to_owned()), ..to(&["physics"]) }).await, Ok(()));
        assert_eq!(moved(account("chemistry")).await, no_account(), "its partition does not take that");
        assert_eq!(update(&rig, 0, job, account("chemistry")).await, Ok(()), "an administrator may");
    });
    with_rig(&format!("EnforcePartLimits=ANY\n{site}"), async |mut rig: Rig| {
        let job = rig.submitted(job()).await;
        assert_eq!(update(&rig, 1001, job, to(&["physics", "slow"])).await, no_qos());
        let long = JobChange { time_limit: Some(TimeLimit::Secs(61 * 60)), ..to(&["physics", "debug"]) };
        assert_eq!(
            update(&rig, 1001, job, long).await,
            Err(Refusal::InvalidTimeLimit),
            "where it may go it is too long"
        );
        assert_eq!(update(&rig, 1001, job, to(&["physics", "debug"])).await, Ok(()), "one takes it");
    });
    with_rig(&site, async |mut rig: Rig| {
        let job = rig.submitted(job()).await;
        assert_eq!(update(&rig, 1001, job, to(&["physics"])).await, Ok(()), "it waits there");
    });
}

#[test]
fn unknown_features_may_be_preferred_where_the_site_lets_them_come_later() {
    let prefer = || JobChange { prefer: Some("later".to_owned()), ..JobChange::default() };
    let unknown = || Err(Refusal::InvalidFeature("later".to_owned()));
    for (words, answer) in [("ignore_constraint_validation", unknown()), ("ignore_prefer_validation", Ok(()))] {
        with_rig(&format!("SchedulerParameters={words}\n{SITE}"), async |mut rig: Rig| {
            let job = rig.submitted(spec()).await;
            assert_eq!(update(&rig, 1001, job, prefer()).await, answer, "{words}");
        });
    }
}

/// Two small nodes and a larger one that is drained.
const SIZES: &str = "ClusterName=test\nSlurmctldHost=head\n\
    NodeName=n[0-1] CPUs=4 RealMemory=1000 Features=small\n\
    NodeName=n2 CPUs=16 RealMemory=4000 Features=large State=DRAIN\n\
    PartitionName=debug Nodes=n[0-1] Default=YES\n\
    PartitionName=all Nodes=ALL\n";

fn request(request: RequestChange) -> JobChange {
    JobChange { request, ..JobChange::default() }
}

#[test]
fn nothing_comes_to_ask_for_what_no_node_could_ever_give() {
    let refused = |detail: Option<&str>| Err(Refusal::NodeConfigUnavailable { detail: detail.map(str::to_owned) });
    let cpus = |each| request(RequestChange { cpus_per_task: Some(each), ..RequestChange::default() });
    let memory = |mib| JobChange { memory: Some(MemoryRequest::PerNode(MemoryMib(mib))), ..JobChange::default() };
    let feature = |name: &str| JobChange { constraint: Some(name.to_owned()), ..JobChange::default() };
    with_rig(SIZES, async |mut rig: Rig| {
        let job = rig.submitted(spec()).await;
        let by_root = async |change| update(&rig, 0, job, change).await;
        let no_memory = || refused(Some("Memory specification can not be satisfied"));
        assert_eq!(by_root(cpus(5)).await, refused(Some("CPU count per node can not be satisfied")));
        assert_eq!(by_root(memory(1001)).await, no_memory());
        assert_eq!(by_root(feature("large")).await, refused(None));
        assert_eq!(by_root(feature("none")).await, Err(Refusal::InvalidFeature("none".to_owned())));
        let seen = rig.controller.env.boards.jobs.get(&job).unwrap();
        assert_eq!((seen.cpus_per_task, seen.spec.constraint.as_deref()), (1, None), "it is as it was");
        // A drained node may come back.
        assert_eq!(by_root(JobChange { partitions: to(&["all"]).partitions, ..feature("large") }).await, Ok(()));
        assert_eq!(by_root(cpus(8)).await, Ok(()));
        assert_eq!(by_root(memory(4001)).await, no_memory());
        assert_eq!(by_root(to(&["debug"])).await, refused(None), "the large node is not there");
    });
}

#[test]
fn an_impossible_job_may_be_changed_in_other_ways() {
    with_rig(&SIZES.replace("n2 CPUs=16", "n2 CPUs=4"), async |mut rig: Rig| {
        let array = Some(ArraySpec { ranges: vec![(1, 4, 1)], limit: None });
        let job = rig.submitted(JobSpec { array, kind: JobKind::Batch, ..spec() }).await;
        let comment = |text: &str| JobChange { comment: Some(text.to_owned()), ..JobChange::default() };
        let cpus = request(RequestChange { cpus_per_task: Some(5), ..RequestChange::default() });
        let jobs = vec![JobSelector { job, tasks: Some(vec![(2, 3, 1)]), het: None, run: None }];
        let change = |change| CommandRequest::UpdateJob { jobs: jobs.clone(), change: Box::new(change) };
        let CommandReply::PerJob(answers) = rig.ask(1001, change(cpus)).await else { panic!() };
        assert!(matches!(&answers[..], [(named, Err(Refusal::NodeConfigUnavailable { .. }))] if *named == jobs[0]));
        assert_eq!(rig.controller.env.boards.jobs.list().len(), 1, "no task was split off for that");
        assert_eq!(rig.ask(1001, change(comment("x"))).await, CommandReply::PerJob(vec![(jobs[0].clone(), Ok(()))]));
    });
}

#[test]
fn tasks_of_an_array_that_refuse_are_named() {
    with_rig(SIZES, async |mut rig: Rig| {
        let array = Some(ArraySpec { ranges: vec![(1, 6, 1)], limit: None });
        let job = rig.submitted(JobSpec { array, kind: JobKind::Batch, ..spec() }).await;
        let tasks =
            |ranges: &[(u32, u32, u32)]| JobSelector { job, tasks: Some(ranges.to_vec()), het: None, run: None };
        let cancel = CancelRequest { jobs: vec![tasks(&[(2, 3, 1)])], ..CancelRequest::default() };
        assert_eq!(
            rig.ask(1001, CommandRequest::Cancel(cancel)).await,
            CommandReply::PerJob(vec![(tasks(&[(2, 3, 1)]), Ok(()))])
        );
        let name = JobChange { name: Some("new".to_owned()), ..JobChange::default() };
        let all = JobSelector { job, tasks: None, het: None, run: None };
        let update = |uid: u32| {
            let request = CommandRequest::UpdateJob { jobs: vec![all.clone()], change: Box::new(name.clone()) };
            rig.ask(uid, request)
        };
        let over = (tasks(&[(2, 3, 1)]), Err(Refusal::AlreadyDone));
        let waiting = tasks(&[(1, 1, 1), (4, 6, 1)]);
        assert_eq!(update(1001).await, CommandReply::PerJob(vec![(waiting, Ok(())), over]));
        let all_denied = (tasks(&[(1, 6, 1)]), Err(Refusal::AccessDenied));
        assert_eq!(update(1002).await, CommandReply::PerJob(vec![all_denied]));
    });
}

/// Ranges that a request names were gone through one by one before anybody asked whose job it is: four thousand million
/// numbers in a set.
#[test]
fn the_widest_range_of_tasks_is_no_work_and_a_strangers_job_is_not_looked_at() {
    with_rig(SITE, async |mut rig: Rig| {
        let array = Some(ArraySpec { ranges: vec![(1, 6, 1)], limit: None });
        let job = rig.submitted(JobSpec { array, kind: JobKind::Batch, ..spec() }).await;
        let after = "afterany:99".parse::<garrick_model::spec::Dependencies>().unwrap();
        let change = JobChange { dependencies: Some(after), ..JobChange::default() };
        let all = JobSelector { job, tasks: Some(vec![(0, u32::MAX, 1)]), het: None, run: None };
        let update = |uid: u32, change: &JobChange| {
            let request = CommandRequest::UpdateJob { jobs: vec![all.clone()], change: Box::new(change.clone()) };
            rig.ask(uid, request)
        };
        let CommandReply::PerJob(answers) = update(1002, &change).await else { panic!() };
        assert!(matches!(&answers[..], [(_, Err(Refusal::AccessDenied))]), "not what is wrong with it: {answers:?}");
        assert_eq!(update(1001, &change).await, CommandReply::PerJob(vec![(all.clone(), Err(Refusal::Dependency))]));
        let after_itself = format!("afterany:{job}").parse::<garrick_model::spec::Dependencies>().unwrap();
        let circle = JobChange { dependencies: Some(after_itself), ..JobChange::default() };
        let answer = update(1001, &circle).await;
        assert_eq!(answer, CommandReply::PerJob(vec![(all.clone(), Err(Refusal::CircularDependency))]));
        let name = JobChange { name: Some("new".to_owned()), ..JobChange::default() };
        assert_eq!(update(1001, &name).await, CommandReply::PerJob(vec![(all.clone(), Ok(()))]));
        rig.until(job, |view| view.spec.name == "new").await;
        assert_eq!(rig.controller.env.boards.jobs.list().len(), 1, "it was all of the array");
        let backwards = JobSelector { tasks: Some(vec![(4, 5, 1), (1, 2, 1)]), ..all.clone() };
        let request = CommandRequest::list_jobs(vec![backwards]);
        assert_eq!(rig.ask(1002, request).await, CommandReply::Refused(Refusal::InvalidArray));
        let unknown = vec![JobId(9999).into(); 50_000];
        let cancel = CancelRequest { jobs: unknown, ..CancelRequest::default() };
        let answer = rig.ask(1002, CommandRequest::Cancel(cancel)).await;
        assert!(matches!(answer, CommandReply::Refused(Refusal::TooLarge(_))), "{answer:?}");
    });
}

#[test]
fn a_heartbeat_goes_to_its_node_and_not_through_the_frontend() {
    with_rig(super::fixtures::TWO_NODES, async |rig: Rig| {
        let mut agents = super::fixtures::Agents::new(&rig);
        agents.connect("n0", super::fixtures::Habit::Stay);
        rig.until_up("n0").await;
        let env = &rig.controller.env;
        let (conn, _) = env.links.get("n0").unwrap();
        let beat = |load_hundredths| {
            let load = garrick_model::view::NodeLoad { load_hundredths, ..Default::default() };
            Box::new(garrick_model::messages::node::NodeToController::Heartbeat { n: 0, load })
        };
        let cx = garrick_runtime::TraceContext::root;
        env.heartbeat(cx(), "n0", conn + 1, beat(999));
        env.heartbeat(cx(), "nowhere", conn, beat(999));
        env.heartbeat(cx(), "n0", conn, beat(123));
        rig.nodes(|nodes| nodes.iter().any(|node| node.load.load_hundredths == 123)).await;
        let counts = env.system.traces().counts(&[]);
        let heard = counts.iter().filter(|count| count.message == "Heartbeat");
        assert!(heard.clone().count() > 0 && heard.clone().all(|count| count.actor != "/controller"));
    });
}

#[test]
fn who_is_not_known_yet_is_told_to_come_back_and_full_limits_are_named() {
    with_rig(&format!("MaxJobCount=2\n{SITE}"), async |mut rig: Rig| {
        let submit = |uid: u32, n: u64| {
            let request = garrick_model::ids::RequestId(88, n);
            rig.ask(uid, CommandRequest::SubmitJob { request, spec: Box::new(spec()) })
        };
        let full = |reply: CommandReply| match reply {
            CommandReply::Refused(Refusal::Full { limit, .. }) => limit,
            other => panic!("{other:?}"),
        };
        let unknown = full(submit(super::fixtures::NOT_YET_KNOWN, 1).await);
        assert!(unknown.contains("uid 1999"), "{unknown}");
        rig.submitted(spec()).await;
        rig.submitted(spec()).await;
        let said = full(rig.submit(spec()).await);
        assert_eq!(said, "the controller knows 2 jobs, and MaxJobCount of slurm.conf is 2");
    });
}

/// The next job got the id of one that was there, in whose place it came.
#[test]
fn where_every_id_is_somebodys_nobody_gets_one() {
    with_rig(&format!("FirstJobId=7\nMaxJobId=8\n{SITE}"), async |mut rig: Rig| {
        rig.submitted(spec()).await;
        rig.submitted(spec()).await;
        match rig.submit(spec()).await {
            CommandReply::Refused(Refusal::Full { limit, .. }) => {
                assert_eq!(limit, "the controller knows 2 jobs, and their ids are 7 to 8 (MaxJobId)");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn one_user_has_a_share_of_the_memory_for_scripts_and_environments() {
    with_rig(SITE, async |mut rig: Rig| {
        let environment: std::sync::Arc<Vec<_>> = vec![vec![b'x'; 20 << 20].into()].into();
        for id in 5000..5051 {
            let large = JobSpec { environment: environment.clone(), script: None, ..spec() };
            let mut record = garrick_events::testing::record(id, large);
            record.owner.uid = 1001;
            rig.controller.env.committed.put(record);
        }
        let more = || JobSpec { environment: vec![vec![b'x'; 5 << 20].into()].into(), ..spec() };
        let refused = rig.submit(more()).await;
        let CommandReply::Refused(Refusal::Full { limit, .. }) = refused else { panic!("{refused:?}") };
        assert!(limit.contains("1020 MiB") && limit.contains("5 MiB more") && limit.contains("1024 MiB"), "{limit}");
        rig.submitted(spec()).await;
        let request = garrick_model::ids::RequestId(88, 1);
        let by_root = rig.ask(0, CommandRequest::SubmitJob { request, spec: Box::new(more()) }).await;
        assert!(matches!(by_root, CommandReply::Submitted { .. }), "administrators have no such limit: {by_root:?}");
        rig.controller.env.committed.purge(JobId(5000));
        rig.submitted(more()).await;
    });
}

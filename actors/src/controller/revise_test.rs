//! Changes of waiting jobs: judged by what submissions are judged by, saved as what comes out.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{MemoryJournal, Rig, Site, with_rig, with_system},
    setup::Recover,
};
use crate::{
    job::{
        effects::JobEffect,
        fixtures::{ALICE, Bench, ROOT},
    },
    messages::{
        job::{Authority, CHANGED_MEANWHILE, JobAnswer, JobCommand},
        letter::Letter,
    },
    submission::job_submit::{JobSubmit, Requested, SiteAnswer, SiteAsk, SiteChecked, SiteSight},
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::JobRecord,
        job_event::{JobEvent, Revision},
    },
};
use garrick_model::{
    config::Config,
    messages::{
        command::{CommandReply, CommandRequest, JobChange},
        request_change::RequestChange,
    },
    node_shape::SpecCores,
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{ArraySpec, Dependencies, JobKind, JobSpec, NodeCount, Sharing},
    testing::{array, spec},
    time::{TimeLimit, Timestamp},
    view::JobView,
};
use proptest::{collection::vec, option::of, prelude::*, sample::select};
use std::sync::Arc;

const SITE: &str = "ClusterName=test\nSlurmctldHost=head\nEnforcePartLimits=ANY\nAllowSpecResourcesUsage=YES\n\
    DefMemPerCPU=10\nLicenses=foo:4\n\
    NodeName=n[0-5] CPUs=8 RealMemory=4000 TmpDisk=1000 Features=fast\n\
    PartitionName=debug Nodes=ALL Default=YES MaxTime=60 DefaultTime=10\n\
    PartitionName=long Nodes=ALL MaxTime=600 DefaultTime=100 DefMemPerNode=500 MinNodes=2\n\
    PartitionName=dense Nodes=n[0-2] MaxMemPerCPU=100 OverSubscribe=EXCLUSIVE\n\
    PartitionName=staff Nodes=ALL AllowGroups=staff\n\
    PartitionName=physics Nodes=ALL AllowAccounts=physics\n";

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn memory() -> impl Strategy<Value = MemoryRequest> {
    prop_oneof![
        3 => Just(MemoryRequest::Default),
        1 => (0..5000_u64).prop_map(|mib| MemoryRequest::PerNode(MemoryMib(mib))),
        1 => (1..500_u64).prop_map(|mib| MemoryRequest::PerCpu(MemoryMib(mib))),
    ]
}

fn nodes() -> impl Strategy<Value = NodeCount> {
    (1..4_u32, of(0..3_u32)).prop_map(|(min, more)| NodeCount { min, max: more.map(|more| min + more) })
}

fn partitions() -> impl Strategy<Value = Vec<String>> {
    let open = select(vec!["debug", "long", "dense"]);
    let one = prop_oneof![5 => open, 1 => select(vec!["staff", "physics"])];
    vec(one, 1..3).prop_map(|list| names(&list))
}

fn limit() -> impl Strategy<Value = TimeLimit> {
    (1..700_u64).prop_map(|minutes| TimeLimit::Secs(60 * minutes))
}

fn account() -> impl Strategy<Value = String> {
    select(vec!["physics", "chemistry"]).prop_map(str::to_owned)
}

fn dependencies() -> impl Strategy<Value = Dependencies> {
    select(vec!["afterany:3", "afterok:4,singleton", "after:99"]).prop_map(|text| text.parse().unwrap())
}

prop_compose! {
    fn some_spec()(
        partitions in of(partitions()),
        counts in (of(nodes()), of(1..9_u32), of(1..4_u32), of(1..4_u32), of(1..6_u32)),
        memory in memory(),
        limits in (of(limit()), of(1..9_u64)),
        account in of(account()),
        nodelist in of(select(vec!["n1", "n2"])),
        constraint in of(Just("fast")),
        sharing in select(vec![Sharing::Default, Sharing::Exclusive, Sharing::Oversubscribe]),
        kind in select(vec![JobKind::Batch, JobKind::Batch, JobKind::Allocation]),
        is_array in any::<bool>(),
    ) -> JobSpec {
        let (nodes, tasks, tasks_per_node, cpus_per_task, min_cpus_per_node) = counts;
        JobSpec {
            partitions: partitions.unwrap_or_default(),
            nodes,
            tasks,
            tasks_per_node,
            cpus_per_task,
            min_cpus_per_node,
            memory,
            time_limit: limits.0,
            time_min: limits.1.map(|minutes| TimeLimit::Secs(60 * minutes)),
            account,
            nodelist: nodelist.into_iter().map(str::to_owned).collect(),
            constraint: constraint.map(str::to_owned),
            sharing,
            kind,
            array: (is_array && kind == JobKind::Batch).then(|| array(1, 4, None)),
            ..spec()
        }
    }
}

prop_compose! {
    /// Each field is changed now and then.
    fn some_change()(
        place in (of(partitions()), of(account()), of(Just("fast")), of(select(vec!["n3", "n4", "n5", "nowhere"]))),
        counts in (of(nodes()), of(1..9_u32), of(1..6_u32), of(1..6_u32)),
        memory in of(memory()),
        limits in (of(limit()), of(-4000..4000_i64), of(limit())),
        texts in (of(Just("new")), of(Just("seen")), of(Just("foo:1")), of(Just("foo:9"))),
        waits in (of(0..2000_i64), of(dependencies())),
        rest in (of(any::<bool>()), of(0..3_u32), of(1..100_i32), of(1..6_u32)),
        picked in any::<u32>(),
    ) -> JobChange {
        let some = |bit: u32| picked >> bit & 3 == 0;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        JobChange {
            partitions: place.0.filter(|_| some(0)),
            account: place.1.filter(|_| some(1)),
            constraint: owned(place.2).filter(|_| some(2)),
            nodelist: place.3.filter(|_| some(3)).map(|name| names(&[name])),
            nodes: counts.0.filter(|_| some(4)),
            tasks: counts.1.filter(|_| some(5)),
            request: RequestChange {
                cpus_per_task: counts.2.filter(|_| some(6)),
                min_cpus_per_node: counts.3.filter(|_| some(7)),
                stdout: owned(texts.0).filter(|_| some(8)),
                tmp_disk_mib: rest.3.filter(|_| some(9)).map(|count| u64::from(count) * 200),
                ..RequestChange::default()
            },
            memory: memory.filter(|_| some(10)),
            time_limit: limits.0.filter(|_| some(11)),
            time_limit_delta_secs: limits.1.filter(|_| some(12)),
            time_min: limits.2.filter(|_| some(13)),
            name: owned(texts.0).filter(|_| some(14)),
            comment: owned(texts.1).filter(|_| some(15)),
            licenses: owned(texts.2.filter(|_| some(16)).or(texts.3.filter(|_| some(17)))),
            begin: waits.0.filter(|_| some(18)).map(Timestamp::from_secs),
            dependencies: waits.1.filter(|_| some(19)),
            requeue: rest.0.filter(|_| some(20)),
            array_limit: rest.1.filter(|_| some(21)),
            nice: rest.2.filter(|_| some(22)),
            ..JobChange::default()
        }
    }
}

/// A job with a change that was judged.
fn revised(record: &JobRecord, change: &JobChange, by: Authority) -> Result<JobRecord, Refusal> {
    let revise = Site::new(SITE).revise(by, record, change)?;
    let mut record = record.clone();
    let event = Revision::new(&record, change, revise.spec, revise.resolved);
    record.apply(&JobEvent::Revised(Box::new(event))).unwrap();
    Ok(record)
}

/// May a change be refused that would be accepted of a submission? See [`crate::submission::admission`].
fn is_stricter(change: &JobChange, refusal: &Refusal) -> bool {
    let named =
        change.memory.is_some() || change.request.cpus_per_task.is_some() || change.request.min_cpus_per_node.is_some();
    match refusal {
        Refusal::GroupNotPermitted => change.partitions.is_some(),
        Refusal::NodeConfigUnavailable { detail: Some(said) } => named && said.starts_with("Memory"),
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_changed_job_is_what_it_would_be_if_it_were_submitted_so(spec in some_spec(), change in some_change()) {
        let Ok(record) = Site::new(SITE).submit(1001, spec) else { return Ok(()) };
        let patched = change.patch(&record.spec, record.resolved.time_limit);
        // Of a submission, nodes that there are no tasks for are taken away.
        if patched.nodes.zip(patched.tasks).is_some_and(|(nodes, tasks)| tasks < nodes.min) {
            return Ok(());
        }
        let submitted = Site::new(SITE).submit(1001, patched);
        match (revised(&record, &change, ALICE), submitted) {
            (Ok(revised), Ok(submitted)) => {
                // Requeue= is shown of an allocation too, which never is.
                let mut resolved = revised.resolved.clone();
                resolved.requeue &= revised.spec.kind == JobKind::Batch;
                prop_assert_eq!(&resolved, &submitted.resolved);
                prop_assert_eq!(&revised.spec, &submitted.spec);
                prop_assert_eq!(&revised.dependencies, &submitted.dependencies);
                prop_assert_eq!(
                    revised.array.as_ref().map(|array| array.limit),
                    submitted.array.as_ref().map(|array| array.limit)
                );
                prop_assert!(Arc::ptr_eq(&revised.spec.environment, &record.spec.environment));
            }
            (Err(refusal), Ok(_)) => prop_assert!(is_stricter(&change, &refusal), "{:?}", refusal),
            (Ok(_), Err(refusal)) => prop_assert!(false, "accepted of a change: {:?}", refusal),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn what_is_saved_of_changes_comes_to_the_live_record(
        spec in some_spec(),
        changes in vec((some_change(), any::<bool>(), any::<bool>()), 1..5),
    ) {
        let Ok(admitted) = Site::new(SITE).submit(1001, spec) else { return Ok(()) };
        let (mut job, _) = Bench::new(admitted);
        for (change, by_root, of_task) in changes {
            let by = if by_root { ROOT } else { ALICE };
            let record = job.core.record().clone();
            let Ok(revise) = Site::new(SITE).revise(by, &record, &change) else { continue };
            let expected = Revision::new(&record, &change, revise.spec.clone(), revise.resolved.clone());
            let pending = record.array.as_ref().and_then(|array| array.pending.first().copied());
            let tasks = pending.filter(|_| of_task).map(|index| vec![(index, index, 1)]);
            let (answer, out) = job.command(by, tasks.clone(), JobCommand::Revise(Box::new(revise)));
            prop_assert_eq!(job.replayed(), job.core.record().clone());
            let task = out.iter().find_map(|effect| match effect {
                JobEffect::Tell(Letter::Begin { record, .. }) => Some(&**record),
                _ => None,
            });
            let changed = match task {
                Some(task) => task,
                None => job.core.record(),
            };
            if answer.is_ok() && change != JobChange::default() {
                prop_assert_eq!(&changed.resolved, &expected.resolved);
                prop_assert_eq!(&changed.spec.name, &expected.spec.name);
                prop_assert_eq!(changed.begin, expected.begin);
            }
        }
    }
}

fn limit_of(secs: u64) -> JobChange {
    JobChange { time_limit: Some(TimeLimit::Secs(secs)), ..JobChange::default() }
}

fn named(name: &str) -> JobChange {
    JobChange { name: Some(name.to_owned()), ..JobChange::default() }
}

fn judged(record: &JobRecord, change: &JobChange) -> JobCommand {
    JobCommand::Revise(Box::new(Site::new(SITE).revise(ALICE, record, change).unwrap()))
}

#[test]
fn what_was_made_of_a_job_that_changed_meanwhile_is_not_applied() {
    let mut job = Bench::new(Site::new(SITE).submit(1001, spec()).unwrap()).0;
    let before = job.core.record().clone();
    let (first, second) = (judged(&before, &limit_of(120)), judged(&before, &named("new")));
    assert_eq!(job.order(first), Ok(()));
    let (answer, out) = job.command(ALICE, None, second);
    assert_eq!((answer, out.len()), (Err(CHANGED_MEANWHILE), 1), "nothing but the answer: {out:?}");
    let again = judged(job.core.record(), &named("new"));
    assert_eq!(job.order(again), Ok(()));
    let record = job.core.record();
    assert_eq!((record.spec.name.as_str(), record.resolved.time_limit), ("new", TimeLimit::Secs(120)));
    assert_eq!(job.replayed(), *record);
    // Nor is what nobody judged.
    let unjudged = JobCommand::Update(Box::new(limit_of(60)));
    let mut bare = Bench::new(before.clone()).0;
    let out =
        bare.send(crate::messages::job::JobInput::Command { request: 1, by: ALICE, tasks: None, command: unjudged });
    assert_eq!(out, [JobEffect::Answer { request: 1, answer: JobAnswer::Done(Err(CHANGED_MEANWHILE)) }]);
    // One that has started is changed as such jobs are.
    let shorter = judged(&before, &limit_of(60));
    let mut running = Bench::new(before.clone()).0;
    running.allocate(&["n0"]);
    running.started();
    running.order(shorter).unwrap();
    assert!(matches!(running.saved.last(), Some(JobEvent::LimitChanged(TimeLimit::Secs(60)))), "{:?}", running.saved);
    let wider = JobChange { tasks: Some(2), ..JobChange::default() };
    assert_eq!(running.order(judged(&before, &wider)), Err(Refusal::JobNotPending));
}

#[test]
fn of_an_array_that_changed_meanwhile_no_task_is_split_off() {
    let of_array = JobSpec { array: Some(array(1, 4, None)), ..spec() };
    let mut job = Bench::new(Site::new(SITE).submit(1001, of_array).unwrap()).0;
    let before = job.core.record().clone();
    job.order(judged(&before, &named("new"))).unwrap();
    let (answer, out) = job.command(ALICE, Some(vec![(2, 2, 1)]), judged(&before, &limit_of(60)));
    assert_eq!((answer, out.len()), (Err(CHANGED_MEANWHILE), 1), "{out:?}");
    let (answer, out) = job.command(ALICE, Some(vec![(2, 2, 1)]), judged(&job.core.record().clone(), &limit_of(60)));
    let split = out
        .iter()
        .find_map(|e| if let JobEffect::Tell(Letter::Begin { record, .. }) = e { Some(record) } else { None });
    let task = split.unwrap();
    assert_eq!((answer, task.resolved.time_limit), (Ok(()), TimeLimit::Secs(60)));
    assert_eq!((task.spec.array_task.unwrap().index, task.spec.name.as_str()), (2, "new"));
    assert_eq!(job.core.record().resolved.time_limit, before.resolved.time_limit);
}

/// What a change does not move stays, whatever the site makes of such requests by now.
#[test]
fn a_change_leaves_what_was_resolved_by_earlier_rules() {
    let mut record = Site::new(SITE).submit(1001, spec()).unwrap();
    record.resolved.memory = MemoryRequest::PerCpu(MemoryMib(77));
    record.resolved.time_limit = TimeLimit::Secs(222);
    let named = revised(&record, &named("new"), ALICE).unwrap();
    assert_eq!(named.resolved, record.resolved);
    let wider = revised(&record, &JobChange { tasks: Some(3), ..JobChange::default() }, ALICE).unwrap();
    assert_eq!((wider.resolved.tasks, wider.resolved.cpus), (3, 3));
    assert_eq!((wider.resolved.memory, wider.resolved.time_limit), (record.resolved.memory, TimeLimit::Secs(222)));
    let same_limit = revised(&record, &limit_of(600), ALICE).unwrap();
    assert_eq!(same_limit.resolved.time_limit, TimeLimit::Secs(600), "it is named, and no default");
    // Partitions have defaults of their own.
    let moved = JobChange { partitions: Some(names(&["long"])), ..JobChange::default() };
    let unlimited = JobSpec { time_limit: None, ..spec() };
    let record = Site::new(SITE).submit(1001, unlimited).unwrap();
    let resolved = revised(&record, &moved, ALICE).unwrap().resolved;
    assert_eq!((record.resolved.time_limit, resolved.time_limit), (TimeLimit::Secs(600), TimeLimit::Secs(6000)));
}

#[test]
fn a_job_that_an_administrator_put_somewhere_stays_there_when_its_owner_changes_it() {
    let record = Site::new(SITE).submit(1001, spec()).unwrap();
    let to_staff = JobChange { partitions: Some(names(&["staff"])), ..JobChange::default() };
    assert_eq!(revised(&record, &to_staff, ALICE), Err(Refusal::GroupNotPermitted));
    let there = revised(&record, &to_staff, ROOT).unwrap();
    assert_eq!(there.resolved.partitions, ["staff"]);
    let account = JobChange { account: Some("physics".to_owned()), ..JobChange::default() };
    for change in [limit_of(60), account, JobChange { tasks: Some(2), ..JobChange::default() }] {
        assert_eq!(revised(&there, &change, ALICE).unwrap().resolved.partitions, ["staff"], "{change:?}");
    }
    // A partition that went keeps nobody from a new name.
    let mut lost = record.clone();
    lost.resolved.partitions = names(&["gone"]);
    assert_eq!(revised(&lost, &named("new"), ALICE).unwrap().resolved, lost.resolved);
    assert_eq!(revised(&lost, &limit_of(60), ALICE), Err(Refusal::InvalidPartition("gone".to_owned())));
    let moved = JobChange { partitions: Some(names(&["debug"])), ..JobChange::default() };
    assert_eq!(revised(&lost, &moved, ALICE).unwrap().resolved.partitions, ["debug"]);
    // One that named no partition stays where it was put, whichever is the default by now.
    let mut elsewhere = record.clone();
    elsewhere.resolved.partitions = names(&["dense"]);
    let account = JobChange { account: Some("lab".to_owned()), ..JobChange::default() };
    assert_eq!(revised(&elsewhere, &account, ALICE).unwrap().resolved.partitions, ["dense"]);
    let cores = RequestChange { left_to_system: Some(SpecCores::Cores(1)), ..RequestChange::default() };
    let reserved = revised(&record, &JobChange { request: cores, ..JobChange::default() }, ROOT).unwrap();
    assert_eq!((reserved.spec.sharing, reserved.resolved.sharing), (Sharing::Exclusive, Sharing::Exclusive));
}

/// Many at once: each is judged by what those before it made of the job, and none is lost.
#[test]
fn changes_that_cross_are_judged_again() {
    with_rig(SITE, async |mut rig: Rig| {
        let job = rig.submitted(JobSpec { tasks: Some(2), ..spec() }).await;
        let changes = [
            named("new"),
            limit_of(120),
            JobChange { comment: Some("seen".to_owned()), ..JobChange::default() },
            JobChange { tasks: Some(3), ..JobChange::default() },
            JobChange { partitions: Some(names(&["long"])), ..JobChange::default() },
        ];
        let mut answers = Vec::new();
        for change in changes {
            let jobs = vec![job.into()];
            answers.push(rig.ask_stream(1001, CommandRequest::UpdateJob { jobs, change: Box::new(change) }));
        }
        for mut answer in answers {
            assert_eq!(answer.recv().await, Some(CommandReply::PerJob(vec![(job.into(), Ok(()))])));
        }
        let record = rig.journal.replayed().jobs.remove(&job).unwrap();
        assert_eq!((record.spec.name.as_str(), record.spec.comment.as_deref()), ("new", Some("seen")));
        let resolved = &record.resolved;
        assert_eq!((resolved.time_limit, resolved.tasks), (TimeLimit::Secs(120), 3));
        assert_eq!(resolved.partitions, ["long"]);
        // The same one twice: both are made of what it was before.
        let later = JobChange { time_limit_delta_secs: Some(60), ..JobChange::default() };
        let twice = CommandRequest::UpdateJob { jobs: vec![job.into(), job.into()], change: Box::new(later) };
        let both = vec![(job.into(), Ok(())), (job.into(), Ok(()))];
        assert_eq!(rig.ask(1001, twice).await, CommandReply::PerJob(both));
        rig.until(job, |view| view.time_limit == TimeLimit::Secs(240)).await;
        let of_job = rig.journal.events().into_iter().filter_map(|event| match event {
            ControllerEvent::Job { event, .. } => Some(*event),
            _ => None,
        });
        assert_eq!(of_job.filter(|event| matches!(event, JobEvent::Revised(_))).count(), 7);
    });
}

/// What a site may want: an account for everybody, no jobs of that name, a word on large ones, and none that grow.
struct OwnWord;

impl OwnWord {
    fn job(by: &SiteAsk, spec: &mut JobSpec) -> Result<Option<String>, Refusal> {
        spec.account.get_or_insert_with(|| format!("of_{}", by.user));
        if spec.name == "mining" {
            return Err(no_mining());
        }
        Ok(spec.tasks.filter(|tasks| *tasks > 4).map(|tasks| format!("{tasks} tasks wait long")))
    }

    fn change(by: &SiteAsk, current: &JobView, mut change: JobChange) -> Result<JobChange, Refusal> {
        if by.caller.uid != 0 && change.tasks > current.spec.tasks {
            return Err(Refusal::BySite { number: 2002, said: Vec::new() });
        }
        if change.name.is_some() {
            change.comment = Some(format!("was {}", current.spec.name));
        }
        Ok(change)
    }
}

fn no_mining() -> Refusal {
    Refusal::BySite { number: -1, said: vec!["no mining here".to_owned()] }
}

impl JobSubmit for OwnWord {
    fn has_checks(&self, _: &Config) -> bool {
        true
    }

    fn check(&self, ask: SiteAsk, sight: Arc<dyn SiteSight>) -> SiteChecked {
        let check = || {
            let mut answer = SiteAnswer { jobs: Vec::new(), changes: Vec::new(), said: Vec::new() };
            match ask.what.clone() {
                Requested::Jobs(jobs) => {
                    for mut job in jobs {
                        answer.said.extend(Self::job(&ask, &mut job)?);
                        answer.jobs.push(job);
                    }
                }
                Requested::Changes(changes) => {
                    for (id, change) in changes {
                        let current = sight.job(id).expect("it is shown");
                        answer.changes.push((id, Self::change(&ask, &current, change)));
                    }
                    answer.said.push("changes are looked at".to_owned());
                }
            }
            Ok(answer)
        };
        Box::pin(std::future::ready(check()))
    }
}

#[test]
fn the_site_has_a_word_on_what_is_submitted_and_changed() {
    with_system(async |system| {
        let mut rig = Rig::with_hook(&system, SITE, (MemoryJournal::default(), Recover::Partial), Arc::new(OwnWord));
        let said = |reply| match reply {
            CommandReply::Submitted { job, warnings } => (job, warnings),
            other => panic!("{other:?}"),
        };
        let (job, warnings) = said(rig.submit(JobSpec { tasks: Some(5), ..spec() }).await);
        assert_eq!(warnings, ["5 tasks wait long"]);
        let asked =
            rig.ask(1001, CommandRequest::TestJob { spec: Box::new(JobSpec { tasks: Some(5), ..spec() }) }).await;
        assert!(matches!(asked, CommandReply::Said { lines, .. } if lines == ["5 tasks wait long"]));
        rig.until(job, |view| view.spec.account.as_deref() == Some("of_alice")).await;
        let (own, warnings) = said(rig.submit(JobSpec { account: Some("lab".to_owned()), ..spec() }).await);
        assert!(warnings.is_empty());
        rig.until(own, |view| view.spec.account.as_deref() == Some("lab")).await;
        let mining = || JobSpec { name: "mining".to_owned(), ..spec() };
        let refused = CommandReply::Refused(no_mining());
        assert_eq!(rig.submit(mining()).await, refused);
        assert_eq!(rig.ask(1001, CommandRequest::TestJob { spec: Box::new(mining()) }).await, refused);

        let more = || JobChange { tasks: Some(6), ..JobChange::default() };
        let told = async |uid, change: JobChange| {
            let request = CommandRequest::UpdateJob { jobs: vec![job.into()], change: Box::new(change) };
            match rig.ask(uid, request).await {
                CommandReply::Said { lines, reply } if lines == ["changes are looked at"] => *reply,
                other => panic!("{other:?}"),
            }
        };
        let outcome = |outcome| CommandReply::PerJob(vec![(job.into(), outcome)]);
        let denied = Err(Refusal::BySite { number: 2002, said: Vec::new() });
        assert_eq!(told(1001, more()).await, outcome(denied));
        assert_eq!(told(0, more()).await, outcome(Ok(())));
        assert_eq!(told(1001, named("new")).await, outcome(Ok(())));
        let record = rig.journal.replayed().jobs.remove(&job).unwrap();
        let was = format!("was {}", spec().name);
        assert_eq!((record.spec.name.as_str(), record.spec.comment.as_ref()), ("new", Some(&was)));
        assert_eq!(record.resolved.tasks, 6);
    });
}

/// What earlier versions saved of changes means what it meant.
#[test]
fn changes_that_were_saved_as_they_were_asked_for_replay_as_they_did() {
    let array = Some(ArraySpec { ranges: vec![(1, 3, 1)], limit: Some(3) });
    let mut record = Site::new(SITE).submit(1001, JobSpec { array, tasks: Some(2), ..spec() }).unwrap();
    let priority = record.priority;
    let change = JobChange {
        partitions: Some(names(&["gone"])),
        nodes: Some(NodeCount { min: 3, max: None }),
        tasks: Some(2),
        memory: Some(MemoryRequest::PerNode(MemoryMib(0))),
        nice: Some(10),
        requeue: Some(false),
        array_limit: Some(1),
        sharing: Some(Sharing::User),
        request: RequestChange { cpus_per_task: Some(4), ..RequestChange::default() },
        ..limit_of(60)
    };
    record.apply(&JobEvent::Updated(Box::new(change))).unwrap();
    let resolved = &record.resolved;
    assert_eq!((resolved.partitions.as_slice(), resolved.time_limit), (&names(&["gone"])[..], TimeLimit::Secs(60)));
    assert_eq!((resolved.min_nodes, resolved.max_nodes, resolved.tasks, resolved.cpus), (3, 3, 2, 12));
    assert_eq!((resolved.memory, resolved.requeue), (MemoryRequest::PerNode(MemoryMib(0)), false));
    assert_eq!((record.spec.requeue, record.spec.sharing), (spec().requeue, Sharing::User));
    assert_eq!((record.priority, record.spec.nice), (priority - 10, 10));
    assert_eq!((record.array.unwrap().limit, record.spec.array.as_ref().unwrap().limit), (Some(1), Some(1)));
}

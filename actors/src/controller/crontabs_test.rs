//! Crontabs and triggers in a controller: who may have them, their jobs and programs, and what a restart leaves of them.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{MemoryJournal, Rig, with_system},
    shells::trigger::TriggerMsg,
};
use crate::trigger::core::TriggerInput;
use garrick_model::{
    crontab::{CrontabChange, CrontabEntry, MOST_BYTES},
    ids::{JobId, RequestId},
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest, JobSelector, NodeChange, NodeStateChange},
    refusal::Refusal,
    site_program::Moment,
    spec::JobSpec,
    state::{JobState, Reason},
    testing::spec,
    trigger::{TriggerAbout, TriggerEvent, TriggerRequest, TriggerSelector},
    view::JobView,
};
use std::sync::Arc;

const CONF: &str = "ClusterName=test\nSlurmctldHost=head\nScronParameters=enable\n\
    NodeName=n[0-1] CPUs=4 RealMemory=1000\nPartitionName=debug Nodes=ALL Default=YES\n";
const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const ROOT: u32 = 0;

fn entry(line: u32, schedule: &str) -> CrontabEntry {
    let spec = JobSpec { cron: Some(schedule.parse().unwrap()), name: format!("line {line}"), ..spec() };
    CrontabEntry { lines: (line, line), spec }
}

fn change(request: u64, text: &str, entries: Vec<CrontabEntry>) -> CrontabChange {
    let text = Some(text.as_bytes().to_vec().into());
    CrontabChange { request: RequestId(5, request), uid: ALICE, gid: ALICE, text, entries }
}

async fn install(rig: &Rig, by: u32, change: CrontabChange) -> CommandReply {
    rig.ask(by, CommandRequest::InstallCrontab(Box::new(change))).await
}

async fn text(rig: &Rig, by: u32) -> Result<Option<String>, Refusal> {
    match rig.ask(by, CommandRequest::ShowCrontab { uid: ALICE }).await {
        CommandReply::Crontab(text) => Ok(text.map(|text| String::from_utf8(text.into_vec()).unwrap())),
        CommandReply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

async fn jobs(rig: &Rig) -> Vec<Arc<JobView>> {
    match rig.ask(ROOT, CommandRequest::list_such_jobs(JobQuery::default())).await {
        CommandReply::Jobs { jobs, .. } => jobs,
        other => panic!("{other:?}"),
    }
}

fn waiting(jobs: &[Arc<JobView>]) -> Vec<(u32, &str)> {
    let waits = |job: &&Arc<JobView>| job.state == JobState::Pending;
    jobs.iter().filter(waits).map(|job| (job.id.0, job.spec.name.as_str())).collect()
}

const DONE: CommandReply = CommandReply::CrontabInstalled { warnings: Vec::new() };

#[test]
fn a_crontab_has_a_job_for_each_entry_and_a_repeat_none_more() {
    let journal = MemoryJournal::default();
    with_system(async |system| {
        let rig = Rig::start(&system, CONF, journal.clone());
        let first = change(1, "@daily a\n@weekly b\n", vec![entry(1, "@daily"), entry(2, "@weekly")]);
        assert_eq!(install(&rig, ALICE, first.clone()).await, DONE);
        assert_eq!(install(&rig, ALICE, first).await, DONE);
        let all = jobs(&rig).await;
        assert_eq!(waiting(&all), [(1, "line 1"), (2, "line 2")]);
        assert!(all.iter().all(|job| job.uid == ALICE && job.recurs && job.reason == Reason::BeginTime));
        assert_eq!(text(&rig, ALICE).await, Ok(Some("@daily a\n@weekly b\n".to_owned())));
        // What root installs is alice's.
        assert_eq!(install(&rig, ROOT, change(2, "@daily c\n", vec![entry(1, "@daily")])).await, DONE);
        let all = jobs(&rig).await;
        assert_eq!(waiting(&all), [(3, "line 1")]);
        assert!(all.iter().all(|job| job.uid == ALICE));
    });
    // A restart leaves it as it is.
    with_system(async |system| {
        let again = Rig::start(&system, CONF, journal.clone());
        assert_eq!(text(&again, ALICE).await, Ok(Some("@daily c\n".to_owned())));
        assert_eq!(waiting(&jobs(&again).await), [(3, "line 1")]);
    });
}

#[test]
fn nobody_else_sees_or_changes_a_crontab_and_a_wrong_one_changes_nothing() {
    with_system(async |system| {
        let rig = Rig::start(&system, CONF, MemoryJournal::default());
        assert_eq!(install(&rig, ALICE, change(1, "@daily a\n", vec![entry(1, "@daily")])).await, DONE);
        let denied = Refusal::InvalidUser(ALICE.to_string());
        assert_eq!(text(&rig, BOB).await, Err(denied.clone()));
        let by_bob = install(&rig, BOB, change(2, "", Vec::new())).await;
        assert_eq!(by_bob, CommandReply::Refused(denied));
        let mut wrong = entry(2, "@weekly");
        wrong.spec.partitions = vec!["none".to_owned()];
        let reply = install(&rig, ALICE, change(3, "x\n", vec![entry(1, "@daily"), wrong])).await;
        let refusal = Refusal::InvalidPartition("none".to_owned());
        assert_eq!(reply, CommandReply::CrontabWrong { entry: 1, refusal });
        let never = CrontabEntry { lines: (1, 1), spec: spec() };
        let reply = install(&rig, ALICE, change(4, "x\n", vec![never])).await;
        assert!(matches!(reply, CommandReply::CrontabWrong { entry: 0, .. }), "{reply:?}");
        let reply = install(&rig, ALICE, change(5, &"x".repeat(MOST_BYTES + 1), Vec::new())).await;
        assert!(matches!(reply, CommandReply::Refused(Refusal::TooLarge(_))), "{reply:?}");
        assert_eq!(text(&rig, ROOT).await, Ok(Some("@daily a\n".to_owned())));
        assert_eq!(waiting(&jobs(&rig).await), [(1, "line 1")]);
        // By itself no job recurs.
        let request = RequestId(5, 6);
        let alone = CommandRequest::SubmitJob { request, spec: Box::new(entry(1, "@daily").spec) };
        let CommandReply::Submitted { job, .. } = rig.ask(ALICE, alone).await else { panic!("not accepted") };
        assert!(jobs(&rig).await.iter().all(|view| view.id != job || !view.recurs));
    });
}

#[test]
fn a_cancelled_job_is_disabled_in_its_crontab() {
    with_system(async |system| {
        let rig = Rig::start(&system, CONF, MemoryJournal::default());
        assert_eq!(install(&rig, ALICE, change(1, "@daily a\n", vec![entry(1, "@daily")])).await, DONE);
        let selector = JobSelector { job: JobId(1), tasks: None, het: None, run: None };
        let cancel = garrick_model::messages::command::CancelRequest { jobs: vec![selector], ..Default::default() };
        rig.ask(ALICE, CommandRequest::Cancel(cancel)).await;
        while text(&rig, ALICE).await != Ok(Some("#DISABLED: @daily a\n".to_owned())) {
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting(&jobs(&rig).await), []);
    });
}

fn drained(nodes: &[&str]) -> TriggerRequest {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    TriggerRequest {
        events: [TriggerEvent::Drained].into(),
        about: TriggerAbout::Nodes(nodes),
        offset_secs: 0,
        program: "/site/tell  it ; x".to_owned(),
        permanent: false,
    }
}

async fn set(rig: &Rig, by: u32, request: TriggerRequest) -> CommandReply {
    rig.ask(by, CommandRequest::SetTrigger(Box::new(request))).await
}

#[test]
fn the_program_of_a_trigger_runs_when_its_node_is_drained() {
    with_system(async |system| {
        let rig = Rig::start(&system, CONF, MemoryJournal::default());
        rig.programs.fail("nobody waits for that");
        assert_eq!(set(&rig, ROOT, drained(&["n1"])).await, CommandReply::Done);
        let state = Some(NodeStateChange::Drain);
        let change = NodeChange { state, reason: Some("fans".to_owned()), ..NodeChange::default() };
        let update = CommandRequest::UpdateNode { nodes: vec!["n0".to_owned(), "n1".to_owned()], change };
        assert_eq!(rig.ask(ROOT, update).await, CommandReply::Done);
        let owner = rig.controller.env.triggers_owner().unwrap();
        while rig.programs.rows().is_empty() {
            let _ = owner.try_send(TriggerMsg::Input(TriggerInput::Tick));
            tokio::task::yield_now().await;
        }
        let [row] = &rig.programs.rows()[..] else { panic!("{:?}", rig.programs.rows()) };
        assert_eq!((row.moment, row.programs.as_slice()), (Moment::Trigger, &["/site/tell".to_owned()][..]));
        assert_eq!(row.arguments, ["it", ";", "x", "n1"]);
        assert_eq!(row.limit.map(|limit| limit.as_secs()), Some(300));
        assert_eq!(rig.ask(BOB, CommandRequest::ListTriggers).await, CommandReply::Triggers(Vec::new()));
    });
}

#[test]
fn triggers_are_slurm_users_and_about_what_is_there() {
    let journal = MemoryJournal::default();
    with_system(async |system| {
        let rig = Rig::start(&system, CONF, journal.clone());
        let refused = |refusal| CommandReply::Refused(refusal);
        assert_eq!(set(&rig, ALICE, drained(&["n1"])).await, refused(Refusal::AccessDenied));
        assert_eq!(set(&rig, ROOT, drained(&["n7"])).await, refused(Refusal::InvalidNode("n7".to_owned())));
        let of_job = TriggerRequest { about: TriggerAbout::Job(JobId(7)), ..drained(&[]) };
        assert_eq!(set(&rig, ROOT, of_job).await, refused(Refusal::InvalidJobId));
        for program in ["tell", "/site/*", "/site/\0"] {
            let request = TriggerRequest { program: program.to_owned(), ..drained(&[]) };
            assert!(matches!(set(&rig, ROOT, request).await, CommandReply::Refused(Refusal::InvalidUpdate(_))));
        }
        assert_eq!(set(&rig, ROOT, drained(&[])).await, CommandReply::Done);
        assert_eq!(set(&rig, ROOT, drained(&[])).await, refused(Refusal::TriggerExists));
    });
    with_system(async |system| {
        let again = Rig::start(&system, CONF, journal.clone());
        let refused = |refusal| CommandReply::Refused(refusal);
        let all = TriggerSelector::default();
        let clear = |which: &TriggerSelector| CommandRequest::ClearTriggers(which.clone());
        assert_eq!(again.ask(ALICE, clear(&all)).await, refused(Refusal::AccessDenied));
        assert_eq!(again.ask(ROOT, clear(&all)).await, CommandReply::Done);
        assert_eq!(again.ask(ROOT, clear(&all)).await, refused(Refusal::NoTrigger));
    });
}

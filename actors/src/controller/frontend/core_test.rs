//! What the frontend decides, without any actor: what it sees is a few boards, and what owners say is said by the test.
#![allow(clippy::unwrap_used)]

use super::{
    core::{CROWDED, FrontendCore},
    fair_queue::MOST_OF_USER,
    messages::{AgentErrand, Ask, FrontendErrand, FrontendInput, HostAsk, Said},
    sight::Sight,
};
use crate::{
    controller::{
        fixtures::{MadeUpUsers, TWO_NODES, config_of, registration},
        shells::{entering::Entering, env::Boards},
    },
    job::fixtures::{Bench, CountingIds},
    log::committed::Committed,
    messages::{
        job::{CHANGED_MEANWHILE, JobAnswer, JobAsk, JobCommand, JobSite},
        letter::Letter,
        node::{NodeAsk, NodeInput},
        steps::StepsInput,
    },
    owner::{Effect, EffectOf, Owner},
    partition::core::PartitionCore,
    roster::{core::RosterAsk, nodes::Roster},
    submission::{core::SubmissionErrand, users::UserDirectory},
};
use garrick_events::{
    progress::Position,
    records::{job::JobRecord, job_event::JobEvent, node::SavedNode},
};
use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Association},
        names::{Account, AdminLevel, User},
    },
    ids::{ArrayTask, JobId, RequestId, Sluid},
    messages::{
        command::{
            Caller, CancelRequest, CommandReply, CommandRequest, JobAction, JobChange, JobFilter, JobMilestone,
            NodeChange, NodeStateChange,
        },
        node::{HeldRun, Joining, NodeToController},
    },
    refusal::Refusal,
    spec::{ArraySpec, JobSpec},
    testing::{array, job, spec},
    time::Timestamp,
    view::{JobView, LicenseView},
};
use garrick_plan::rules::priority;
use garrick_runtime::AskError;
use jiff::tz::TimeZone;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const ROOT: u32 = 0;

/// What the test shows the frontend.
struct Shown {
    boards: Boards,
    committed: Committed,
    entering: Entering,
    roster: Arc<Roster>,
    links: Mutex<BTreeMap<String, u64>>,
    refuses: Mutex<Option<Duration>>,
    entities: Mutex<Arc<Entities>>,
}

impl Sight for Shown {
    fn boards(&self) -> &Boards {
        &self.boards
    }
    fn committed(&self) -> &Committed {
        &self.committed
    }
    fn entering(&self) -> &Entering {
        &self.entering
    }
    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }
    fn license_views(&self) -> Vec<LicenseView> {
        Vec::new()
    }
    fn license_totals(&self) -> BTreeMap<String, u32> {
        BTreeMap::new()
    }
    fn priority_rules(&self) -> Option<Arc<priority::Rules>> {
        None
    }
    fn entities(&self) -> Arc<Entities> {
        Arc::clone(&self.entities.lock().unwrap())
    }
    fn job_site(&self) -> Arc<JobSite> {
        Arc::default()
    }
    fn saved_node(&self, _: &str) -> Option<SavedNode> {
        None
    }
    fn has_owner(&self, node: &str) -> bool {
        self.config().node(node).is_some()
    }
    fn link(&self, node: &str) -> Option<u64> {
        self.links.lock().unwrap().get(node).copied()
    }
    fn users(&self) -> &dyn UserDirectory {
        &MadeUpUsers
    }
    fn administrators(&self) -> Vec<u32> {
        vec![ROOT]
    }
    fn has_site_checks(&self) -> bool {
        false
    }
    fn log_refuses(&self) -> Option<Duration> {
        *self.refuses.lock().unwrap()
    }
    fn next_job(&self) -> JobId {
        JobId(1)
    }
    fn next_query(&self) -> u64 {
        1
    }
    fn zone(&self) -> TimeZone {
        TimeZone::UTC
    }
}

struct Frontend {
    core: FrontendCore,
    shown: Arc<Shown>,
    ids: CountingIds,
}

type Effects = Vec<EffectOf<FrontendCore>>;

impl Frontend {
    /// A site of two nodes, and a job of alice's for each of these.
    fn new(jobs: &[u32]) -> Self {
        Self::of(TWO_NODES, jobs)
    }

    fn of(conf: &str, jobs: &[u32]) -> Self {
        let config = config_of(conf);
        let shown = Arc::new(Shown {
            boards: Boards::default(),
            committed: Committed::default(),
            entering: Entering::default(),
            roster: Arc::new(Roster::restored(Arc::clone(&config), BTreeMap::new(), BTreeMap::new()).0),
            links: Mutex::default(),
            refuses: Mutex::default(),
            entities: Mutex::default(),
        });
        for (place, partition) in (0..).zip(&config.partitions) {
            let core = PartitionCore::new(&config, &partition.name, Default::default()).unwrap();
            shown.boards.partitions.publish(place, Arc::new(core.view()));
        }
        for id in jobs {
            shown.boards.jobs.publish(JobId(*id), Arc::new(job(*id, spec())));
        }
        let core = FrontendCore::new(Arc::clone(&shown) as Arc<dyn Sight>);
        Self { core, shown, ids: CountingIds { job: 0, sluid: 0 } }
    }

    fn show(&self, view: JobView) {
        self.shown.boards.jobs.publish(view.id, Arc::new(view));
    }

    fn link(&self, node: &str, conn: u64) {
        self.shown.links.lock().unwrap().insert(node.to_owned(), conn);
    }

    fn told(&mut self, input: FrontendInput) -> Effects {
        let mut out = Vec::new();
        self.core.handle(Timestamp::from_secs(1000), &mut self.ids, input, &mut out);
        out
    }

    fn arrives(&mut self, uid: u32, command: CommandRequest) -> (u64, Effects) {
        let caller = Caller { uid, gid: uid, pid: 1, host: "login".to_owned() };
        let mut effects = self.told(FrontendInput::Asked { caller, command: Box::new(command), bytes: 100 });
        match effects.remove(0) {
            Effect::Do(FrontendErrand::Take(request)) => (request, effects),
            other => panic!("{other:?}"),
        }
    }

    /// What a request that is alone leads to when its turn comes.
    fn asks(&mut self, uid: u32, command: CommandRequest) -> Effects {
        assert!(matches!(self.arrives(uid, command).1[..], [Effect::Do(FrontendErrand::Next)]));
        match self.told(FrontendInput::Next).pop() {
            Some(Effect::Do(FrontendErrand::Turn { request, caller, command })) => {
                self.told(FrontendInput::Turn { request, caller, command })
            }
            Some(other) => vec![other],
            None => Vec::new(),
        }
    }

    /// The answer, after these answers of owners.
    fn hears(&mut self, question: u64, said: Vec<Said>) -> Effects {
        self.told(FrontendInput::Answered { question, said })
    }
}

/// The one question that is asked, and nothing else.
fn asked(effects: Effects) -> (u64, Vec<Ask>) {
    match <[_; 1]>::try_from(effects) {
        Ok([Effect::Do(FrontendErrand::Ask { question, asks, within: None })]) => (question, asks),
        other => panic!("{other:?}"),
    }
}

/// The one answer.
fn answer(effects: Effects) -> CommandReply {
    match <[_; 1]>::try_from(effects) {
        Ok([Effect::Answer { answer, .. }]) => answer,
        other => panic!("{other:?}"),
    }
}

fn refusal(effects: Effects) -> Refusal {
    match answer(effects) {
        CommandReply::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Of each selector, what it is told.
fn per_job(effects: Effects) -> Vec<(String, Result<(), Refusal>)> {
    match answer(effects) {
        CommandReply::PerJob(jobs) => jobs.into_iter().map(|(named, result)| (named.to_string(), result)).collect(),
        other => panic!("{other:?}"),
    }
}

/// Jobs that are told something.
fn jobs(asks: &[Ask]) -> Vec<u32> {
    let job = |ask: &Ask| match ask {
        Ask::Job(job, _) => job.0,
        other => panic!("{other:?}"),
    };
    asks.iter().map(job).collect()
}

fn cancel(jobs: &[&str]) -> CommandRequest {
    CommandRequest::Cancel(CancelRequest {
        jobs: jobs.iter().map(|job| job.parse().unwrap()).collect(),
        steps: Vec::new(),
        pending_steps_only: false,
        filter: JobFilter::default(),
        signal: None,
        batch: false,
        full: false,
        cron: false,
    })
}

fn control(jobs: &[&str], action: JobAction) -> CommandRequest {
    CommandRequest::ControlJob { jobs: jobs.iter().map(|job| job.parse().unwrap()).collect(), action }
}

fn update(jobs: &[&str]) -> CommandRequest {
    let change = JobChange { nice: Some(5), ..JobChange::default() };
    CommandRequest::UpdateJob { jobs: jobs.iter().map(|job| job.parse().unwrap()).collect(), change: Box::new(change) }
}

fn submit(request: u64) -> CommandRequest {
    CommandRequest::SubmitJob { request: RequestId(1, request), spec: Box::new(spec()) }
}

fn done() -> Said {
    Said::Job(JobAnswer::Done(Ok(())))
}

fn refused(refusal: Refusal) -> Said {
    Said::Job(JobAnswer::Done(Err(refusal)))
}

#[test]
fn users_take_turns_one_at_a_time_and_what_frees_something_goes_ahead() {
    let mut frontend = Frontend::new(&[]);
    let next = |effects: &Effects| effects.iter().filter(|e| matches!(e, Effect::Do(FrontendErrand::Next))).count();
    let (first, effects) = frontend.arrives(ALICE, CommandRequest::ListNodes);
    assert_eq!(next(&effects), 1);
    let (second, effects) = frontend.arrives(ALICE, CommandRequest::ListNodes);
    assert!(effects.is_empty(), "one of these is under way, and no more");
    let (others, _) = frontend.arrives(BOB, CommandRequest::ListNodes);
    let (ahead, _) = frontend.arrives(BOB, cancel(&["1"]));
    let mut order = Vec::new();
    for left in (0..4).rev() {
        let effects = frontend.told(FrontendInput::Next);
        assert_eq!(next(&effects), usize::from(left > 0));
        match effects.last() {
            Some(Effect::Do(FrontendErrand::Turn { request, .. })) => order.push(*request),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order, [ahead, first, others, second]);
    assert!(frontend.told(FrontendInput::Next).is_empty());
}

#[test]
fn a_user_with_too_many_requests_is_told_to_come_again() {
    let mut frontend = Frontend::new(&[]);
    for _ in 0..MOST_OF_USER {
        frontend.arrives(ALICE, CommandRequest::ListNodes);
    }
    assert_eq!(refusal(frontend.arrives(ALICE, CommandRequest::ListNodes).1), Refusal::RetryAfter { after: CROWDED });
    assert!(frontend.arrives(BOB, CommandRequest::ListNodes).1.is_empty());
}

#[test]
fn nothing_new_is_begun_while_the_log_takes_nothing_and_jobs_are_cancelled_all_the_same() {
    let mut frontend = Frontend::new(&[1]);
    let after = Duration::from_secs(5);
    *frontend.shown.refuses.lock().unwrap() = Some(after);
    for request in [submit(1), update(&["1"]), control(&["1"], JobAction::Hold)] {
        assert_eq!(refusal(frontend.asks(ALICE, request)), Refusal::RetryAfter { after });
    }
    assert_eq!(jobs(&asked(frontend.asks(ALICE, cancel(&["1"]))).1), [1]);
}

#[test]
fn what_is_an_administrators_is_refused_to_others_and_nobody_is_asked() {
    let update_node = || {
        let change = NodeChange { state: Some(NodeStateChange::Resume), ..NodeChange::default() };
        CommandRequest::UpdateNode { nodes: vec!["n0".to_owned()], change }
    };
    let requests: Vec<fn() -> CommandRequest> = vec![
        || CommandRequest::Reconfigure,
        || CommandRequest::Shutdown { controller_only: true },
        || CommandRequest::ListCerts,
        || CommandRequest::RevokeCerts { nodes: vec!["n0".to_owned()] },
        || CommandRequest::DeleteNodes { nodes: vec!["n0".to_owned()] },
        || CommandRequest::DeletePartition { partition: "unused".to_owned() },
        || CommandRequest::CreatePartition { partition: "new".to_owned(), fields: Vec::new() },
        || CommandRequest::UpdatePartition { partition: "debug".to_owned(), fields: Vec::new() },
        || CommandRequest::CreateJoinToken { lifetime_secs: 60, node: None },
    ];
    let mut frontend = Frontend::new(&[1]);
    for request in requests.iter().copied() {
        assert_eq!(refusal(frontend.asks(ALICE, request())), Refusal::AccessDenied);
        let by_root = frontend.asks(ROOT, request());
        assert!(
            matches!(by_root[..], [Effect::Do(FrontendErrand::Ask { .. } | FrontendErrand::Host(..))]),
            "{by_root:?}"
        );
    }
    assert_eq!(refusal(frontend.asks(ALICE, update_node())), Refusal::AccessDenied);
    // Of jobs their owner may say it, too.
    assert_eq!(per_job(frontend.asks(BOB, cancel(&["1"]))), [("1".to_owned(), Err(Refusal::AccessDenied))]);
    let script = |job| CommandRequest::ShowScript { job: JobId(job) };
    assert_eq!(refusal(frontend.asks(BOB, script(1))), Refusal::AccessDenied);
    assert_eq!(refusal(frontend.asks(BOB, script(2))), Refusal::InvalidJobId);
    assert!(matches!(asked(frontend.asks(ALICE, script(1))).1[..], [Ask::Job(JobId(1), JobAsk::Script)]));
}

#[test]
fn answers_of_many_jobs_are_one_reply_by_what_was_named() {
    let mut frontend = Frontend::new(&[1, 2]);
    frontend.show(JobView { uid: BOB, ..job(3, spec()) });
    let (question, asks) = asked(frontend.asks(ALICE, cancel(&["1", "3", "9", "2"])));
    assert_eq!(jobs(&asks), [1, 2], "whose job it is not, and whom there is not, is not asked");
    let reply = per_job(frontend.hears(question, vec![refused(Refusal::AlreadyDone), Said::Gone(AskError::Dropped)]));
    let expected = [
        ("1", Refusal::AlreadyDone),
        ("3", Refusal::AccessDenied),
        ("9", Refusal::InvalidJobId),
        // It was forgotten meanwhile.
        ("2", Refusal::InvalidJobId),
    ];
    assert_eq!(reply, expected.map(|(job, refusal)| (job.to_owned(), Err(refusal))));
    assert!(frontend.hears(question, vec![done(), done()]).is_empty(), "it is answered once");
}

#[test]
fn tasks_of_an_array_answer_for_themselves_where_some_refuse() {
    let mut frontend = Frontend::new(&[]);
    let of_array = || JobSpec { array: Some(array(0, 9, None)), ..spec() };
    let pending = ArraySpec { ranges: vec![(5, 9, 1)], limit: None };
    frontend.show(JobView { array_pending: Some(pending), ..job(2, of_array()) });
    for index in 0..3 {
        let array_task = Some(ArrayTask { array_job: JobId(2), index });
        frontend.show(JobView { array_task, ..job(10 + index, of_array()) });
    }
    let (question, asks) = asked(frontend.asks(ALICE, control(&["2_[1-2,6]"], JobAction::Requeue)));
    assert_eq!(jobs(&asks), [2, 11, 12]);
    assert!(matches!(&asks[0], Ask::Job(_, JobAsk::Command { tasks: Some(_), .. })), "{asks:?}");
    let not = || refused(Refusal::JobPending);
    let reply = per_job(frontend.hears(question, vec![not(), done(), not()]));
    assert_eq!(reply, [("2_1".to_owned(), Ok(())), ("2_[2,6]".to_owned(), Err(Refusal::JobPending))]);
    let (question, _) = asked(frontend.asks(ALICE, control(&["2_[1-2,6]"], JobAction::Requeue)));
    assert_eq!(per_job(frontend.hears(question, vec![done(), done(), done()])), [("2_[1-2,6]".to_owned(), Ok(()))]);
}

#[test]
fn what_a_request_meant_before_it_turned_out_wrong_is_done_and_nobody_waits_for_it() {
    let mut frontend = Frontend::new(&[1]);
    let mut wrong = cancel(&["1", "1"]);
    if let CommandRequest::Cancel(cancel) = &mut wrong {
        cancel.jobs[1].tasks = Some(vec![(0, 9, 1), (0, 9, 1)]);
    }
    match &frontend.asks(ALICE, wrong)[..] {
        [
            Effect::Do(FrontendErrand::Ask { question: 0, asks, .. }),
            Effect::Answer { answer: CommandReply::Refused(Refusal::InvalidArray), .. },
        ] => assert_eq!(jobs(asks), [1]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_is_judged_again_for_jobs_that_changed_meanwhile_and_for_no_others() {
    let mut frontend = Frontend::new(&[1, 2, 3]);
    let (question, asks) = asked(frontend.asks(ALICE, update(&["1", "2", "3"])));
    assert_eq!(jobs(&asks), [1, 2, 3]);
    assert!(matches!(&asks[0], Ask::Job(_, JobAsk::Command { command: JobCommand::Update(_), .. })), "{asks:?}");
    let changed = || refused(CHANGED_MEANWHILE);
    let (question, asks) = asked(frontend.hears(question, vec![changed(), refused(Refusal::JobHeld), changed()]));
    assert_eq!(jobs(&asks), [1, 3]);
    // That one is over and forgotten by then: what it said last is what is told.
    frontend.shown.boards.jobs.remove(&JobId(3));
    let (question, asks) = asked(frontend.hears(question, vec![changed(), changed()]));
    assert_eq!(jobs(&asks), [1]);
    let reply = per_job(frontend.hears(question, vec![done()]));
    let expected = [("1", Ok(())), ("2", Err(Refusal::JobHeld)), ("3", Err(CHANGED_MEANWHILE))];
    assert_eq!(reply, expected.map(|(job, result)| (job.to_owned(), result)));
}

#[test]
fn a_change_is_not_judged_for_ever() {
    let mut frontend = Frontend::new(&[1]);
    let mut effects = frontend.asks(ALICE, update(&["1"]));
    let mut tries = 0;
    while let [Effect::Do(FrontendErrand::Ask { question, .. })] = effects[..] {
        tries += 1;
        effects = frontend.hears(question, vec![refused(CHANGED_MEANWHILE)]);
    }
    assert_eq!(tries, 64);
    assert_eq!(per_job(effects), [("1".to_owned(), Err(CHANGED_MEANWHILE))]);
}

#[test]
fn an_owner_that_failed_over_who_waits_for_it_is_asked_again_a_few_times() {
    let mut frontend = Frontend::new(&[1]);
    let wait = || CommandRequest::WaitJob { job: JobId(1), until: JobMilestone::Ended };
    let mut effects = frontend.asks(ALICE, wait());
    let mut tries = 0;
    while let [Effect::Do(FrontendErrand::Ask { question, .. })] = effects[..] {
        tries += 1;
        effects = frontend.hears(question, vec![Said::Gone(AskError::Dropped)]);
    }
    assert_eq!((tries, refusal(effects)), (6, Refusal::InvalidJobId));
    let (question, _) = asked(frontend.asks(ALICE, wait()));
    assert_eq!(refusal(frontend.hears(question, vec![Said::Nobody])), Refusal::InvalidJobId);
    let (question, _) = asked(frontend.asks(ALICE, wait()));
    let (question, _) = asked(frontend.hears(question, vec![Said::Gone(AskError::Dropped)]));
    let reached = Arc::new(job(1, spec()));
    let reply = answer(frontend.hears(question, vec![Said::Job(JobAnswer::Reached(Arc::clone(&reached)))]));
    assert_eq!(reply, CommandReply::Job(reached));
}

#[test]
fn who_asks_for_a_step_manager_that_is_long_in_coming_is_told_to_come_again() {
    let mut frontend = Frontend::new(&[1]);
    let question = match &frontend.asks(ALICE, CommandRequest::LocateStepManager { job: JobId(1) })[..] {
        [Effect::Do(FrontendErrand::Ask { question, within: Some(within), .. })] => {
            assert_eq!(*within, Duration::from_secs(5));
            *question
        }
        other => panic!("{other:?}"),
    };
    let again = Refusal::RetryAfter { after: Duration::from_secs(5) };
    assert_eq!(refusal(frontend.hears(question, vec![Said::Late])), again);
}

#[test]
fn nodes_move_first_and_are_changed_when_the_roster_says_so() {
    let mut frontend = Frontend::new(&[]);
    let nodes = || vec!["n0".to_owned(), "n1".to_owned()];
    let both = |change: NodeChange| CommandRequest::UpdateNode { nodes: nodes(), change };
    let down = NodeChange { state: Some(NodeStateChange::Down), ..NodeChange::default() };
    assert!(matches!(refusal(frontend.asks(ROOT, both(down.clone()))), Refusal::InvalidUpdate(_)), "it needs a reason");
    let change = NodeChange { reason: Some("fan".to_owned()), topology: Some("tree:s1".to_owned()), ..down };
    let (question, asks) = asked(frontend.asks(ROOT, both(change.clone())));
    assert!(matches!(&asks[..], [Ask::Roster(RosterAsk::Place { place, .. })] if place == "tree:s1"), "{asks:?}");
    let no = Refusal::InvalidUpdate("no such place".to_owned());
    assert_eq!(refusal(frontend.hears(question, vec![Said::Done(Err(no.clone()))])), no);
    let (question, _) = asked(frontend.asks(ROOT, both(change.clone())));
    let (question, asks) = asked(frontend.hears(question, vec![Said::Done(Ok(()))]));
    let then = NodeChange { topology: None, ..change };
    let told = |ask: &Ask| match ask {
        Ask::Node { node, ask: NodeAsk::Update { by, change }, starting: false } => {
            assert_eq!((by, change), (&(ROOT, "root".to_owned()), &then));
            node.clone()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(asks.iter().map(told).collect::<Vec<_>>(), nodes());
    let said = vec![Said::Done(Ok(())), Said::Gone(AskError::Dropped)];
    assert_eq!(refusal(frontend.hears(question, said)), Refusal::Internal(AskError::Dropped.to_string()));
}

#[test]
fn nodes_whose_certificates_are_revoked_are_down_and_nobody_else_is_where_that_fails() {
    let mut frontend = Frontend::new(&[]);
    let revoke = || CommandRequest::RevokeCerts { nodes: vec!["n1".to_owned()] };
    let (question, asks) = asked(frontend.asks(ROOT, revoke()));
    assert!(matches!(&asks[..], [Ask::Revoke(nodes)] if nodes[..] == ["n1"]), "{asks:?}");
    let (question, asks) = asked(frontend.hears(question, vec![Said::Revoked(Ok(1))]));
    let is_down = |ask: &Ask| match ask {
        Ask::Node { node, ask: NodeAsk::Update { change, .. }, .. } => {
            node == "n1" && change.state == Some(NodeStateChange::Down)
        }
        _ => false,
    };
    assert!(matches!(&asks[..], [one] if is_down(one)), "{asks:?}");
    assert_eq!(answer(frontend.hears(question, vec![Said::Done(Ok(()))])), CommandReply::Done);
    let (question, _) = asked(frontend.asks(ROOT, revoke()));
    assert_eq!(
        refusal(frontend.hears(question, vec![Said::Revoked(Err(Refusal::AccessDenied))])),
        Refusal::AccessDenied
    );
}

#[test]
fn an_agent_is_handed_to_its_nodes_owner_or_told_why_not() {
    let mut frontend = Frontend::new(&[]);
    let connects = |frontend: &mut Frontend, node: &str, conn| {
        let registration = Box::new(registration(node, conn, Vec::new()));
        frontend.told(FrontendInput::Connected { node: node.to_owned(), registration, joining: None })
    };
    let effects = connects(&mut frontend, "n0", 1);
    assert!(
        matches!(
            effects[..],
            [
                Effect::Do(FrontendErrand::Agent(AgentErrand::OpenLink { conn: 1, .. })),
                Effect::Do(FrontendErrand::Agent(AgentErrand::Welcome { starting: false, .. }))
            ]
        ),
        "{effects:?}"
    );
    let effects = connects(&mut frontend, "x9", 2);
    assert!(
        matches!(
            &effects[..],
            [Effect::Do(FrontendErrand::Agent(AgentErrand::Decline { conn: 2, refusal: Refusal::InvalidNode(node), .. }))] if node == "x9"
        ),
        "{effects:?}"
    );
    assert!(frontend.core.declined.contains_key("x9"));
}

/// The message that ends the runs of a removed node may be discarded with its connection.
#[test]
fn a_node_that_was_removed_is_told_to_end_its_runs_whenever_it_comes_back() {
    let mut frontend = Frontend::new(&[]);
    let mut works = Bench::with(spec());
    works.allocate(&["x9", "n0"]);
    works.started();
    let record = works.core.record().clone();
    let (job, sluid) = (record.id, record.sluid);
    assert!(record.works_on("x9", sluid) && !record.works_on("n1", sluid) && !record.works_on("x9", Sluid(99)));
    let held = |job, sluid| HeldRun { job, sluid, batch_host: true, door: String::new(), requeue: None };
    let mut told = |record: JobRecord, runs: Vec<HeldRun>| {
        frontend.shown.committed.put(record);
        let registration = Box::new(registration("x9", 2, runs));
        let node = "x9".to_owned();
        match &frontend.told(FrontendInput::Connected { node, registration, joining: None })[..] {
            [Effect::Do(FrontendErrand::Agent(AgentErrand::Decline { lost, .. }))] => lost.clone(),
            other => panic!("{other:?}"),
        }
    };
    let unknown = (JobId(77), Sluid(77));
    let runs = || vec![held(job, sluid), held(job, Sluid(99)), held(unknown.0, unknown.1)];
    // What nobody counts as lost goes on: the controller may not have come to it yet.
    assert_eq!(told(record.clone(), runs()), [(job, Sluid(99)), unknown]);
    let mut lost = record;
    lost.apply(&JobEvent::NodesLost { nodes: vec!["x9".to_owned()] }).unwrap();
    assert_eq!(told(lost, runs()), [(job, sluid), (job, Sluid(99)), unknown]);
}

#[test]
fn an_agent_that_joins_waits_for_the_roster_and_counts_while_its_connection_is_the_newest() {
    let mut frontend = Frontend::of(&format!("{TWO_NODES}MaxNodeCount=9\n"), &[]);
    let joins = |frontend: &mut Frontend, node: &str, conn| {
        let registration = Box::new(registration(node, conn, Vec::new()));
        let joining = Some((Box::new(Joining { line: "CPUs=4".to_owned(), port: 7000 }), "10.0.0.9".to_owned()));
        frontend.told(FrontendInput::Connected { node: node.to_owned(), registration, joining })
    };
    let is_declined =
        |effects: &Effects| matches!(effects[..], [Effect::Do(FrontendErrand::Agent(AgentErrand::Decline { .. }))]);
    assert!(is_declined(&joins(&mut frontend, "n0", 1)), "that is a node of slurm.conf");
    let question = |effects: Effects| match &effects[..] {
        [
            Effect::Do(FrontendErrand::Agent(AgentErrand::OpenLink { .. })),
            Effect::Do(FrontendErrand::Ask { question, asks, .. }),
        ] => {
            assert!(matches!(&asks[..], [Ask::Roster(RosterAsk::Join { address, .. })] if address == "10.0.0.9"));
            *question
        }
        other => panic!("{other:?}"),
    };
    let full = || Said::Done(Err(Refusal::InvalidUpdate("it is full".to_owned())));
    let asked = question(joins(&mut frontend, "x1", 2));
    assert!(is_declined(&frontend.hears(asked, vec![full()])) && frontend.core.declined.contains_key("x1"));
    let asked = question(joins(&mut frontend, "x1", 3));
    frontend.link("x1", 3);
    let effects = frontend.hears(asked, vec![Said::Done(Ok(()))]);
    assert!(
        matches!(effects[..], [Effect::Do(FrontendErrand::Agent(AgentErrand::Welcome { starting: true, .. }))]),
        "{effects:?}"
    );
    assert!(!frontend.core.declined.contains_key("x1"));
    let asked = question(joins(&mut frontend, "x1", 4));
    frontend.link("x1", 5);
    let effects = frontend.hears(asked, vec![Said::Done(Ok(()))]);
    assert!(matches!(effects[..], [Effect::Do(FrontendErrand::Agent(AgentErrand::LetGo { conn: 4 }))]), "{effects:?}");
}

#[test]
fn an_older_connection_says_nothing_and_its_end_closes_nothing() {
    let mut frontend = Frontend::new(&[]);
    frontend.link("n0", 2);
    let says = |frontend: &mut Frontend, conn| {
        let message = Box::new(NodeToController::Heartbeat { n: 0, load: Default::default() });
        frontend.told(FrontendInput::AgentSaid { node: "n0".to_owned(), conn, message })
    };
    assert!(says(&mut frontend, 1).is_empty());
    let effects = says(&mut frontend, 2);
    let to_node = |effect: &EffectOf<FrontendCore>| match effect {
        Effect::Tell(Letter::Node(node, NodeInput::Frame { conn: 2, .. })) => node == "n0",
        _ => false,
    };
    assert!(matches!(&effects[..], [one] if to_node(one)), "{effects:?}");
    let ends = |frontend: &mut Frontend, conn| frontend.told(FrontendInput::AgentGone { node: "n0".to_owned(), conn });
    let effects = ends(&mut frontend, 1);
    assert!(
        matches!(effects[..], [Effect::Tell(Letter::Node(_, NodeInput::LinkGone { conn: 1 }))]),
        "its owner knows which one it has: {effects:?}"
    );
    let effects = ends(&mut frontend, 2);
    assert!(
        matches!(
            effects[..],
            [
                Effect::Do(FrontendErrand::Agent(AgentErrand::CloseLink { conn: 2, .. })),
                Effect::Tell(Letter::Steps(StepsInput::NodeGone(_))),
                Effect::Tell(Letter::Node(_, NodeInput::LinkGone { conn: 2 }))
            ]
        ),
        "{effects:?}"
    );
}

#[test]
fn a_host_that_is_not_trusted_speaks_for_no_administrator_and_that_is_kept() {
    let conf = format!("{TWO_NODES}SlurmctldParameters=admin_hosts=n1\n");
    let mut frontend = Frontend::of(&conf, &[]);
    frontend.link("n0", 1);
    frontend.link("n1", 2);
    let says = |frontend: &mut Frontend, node: &str, conn| {
        let caller = Caller { uid: ROOT, gid: ROOT, pid: 1, host: String::new() };
        let request = Box::new(CommandRequest::Reconfigure);
        let message = Box::new(NodeToController::Command { query: 7, caller, request });
        frontend.told(FrontendInput::AgentSaid { node: node.to_owned(), conn, message })
    };
    match &says(&mut frontend, "n0", 1)[..] {
        [
            Effect::Do(FrontendErrand::Agent(AgentErrand::Door { request, query: 7, .. })),
            Effect::Do(FrontendErrand::Audit { request: kept, .. }),
            Effect::Answer { request: told, answer: CommandReply::Refused(Refusal::HostNotTrusted { host }) },
        ] => assert_eq!((kept, told, host.as_str()), (request, request, "n0")),
        other => panic!("{other:?}"),
    }
    let effects = says(&mut frontend, "n1", 2);
    assert!(
        matches!(
            effects[..],
            [Effect::Do(FrontendErrand::Agent(AgentErrand::Door { .. })), Effect::Do(FrontendErrand::Next)]
        ),
        "{effects:?}"
    );
}

#[test]
fn tokens_of_ordinary_users_that_nodes_ask_for_hold_for_a_day_at_most_or_as_the_site_says() {
    let conf = format!("{TWO_NODES}AuthAltTypes=auth/jwt\nSlurmctldParameters=admin_hosts=n1\n");
    let mut frontend = Frontend::of(&conf, &[]);
    frontend.link("n0", 1);
    frontend.link("n1", 2);
    let day = 24 * 3600;
    let of_node = |frontend: &mut Frontend, node: &str, conn, lifespan_secs| {
        let caller = Caller { uid: ALICE, gid: ALICE, pid: 1, host: String::new() };
        let request = Box::new(CommandRequest::MakeUserToken { user: None, lifespan_secs });
        let message = Box::new(NodeToController::Command { query: 7, caller, request });
        frontend.told(FrontendInput::AgentSaid { node: node.to_owned(), conn, message });
        match frontend.told(FrontendInput::Next).pop() {
            Some(Effect::Do(FrontendErrand::Turn { request, caller, command })) => {
                frontend.told(FrontendInput::Turn { request, caller, command })
            }
            other => panic!("{other:?}"),
        }
    };
    let is_made =
        |effects: &Effects| matches!(effects[..], [Effect::Do(FrontendErrand::Host(_, HostAsk::UserToken { .. }))]);
    assert!(is_made(&of_node(&mut frontend, "n0", 1, day)));
    assert_eq!(refusal(of_node(&mut frontend, "n0", 1, day + 1)), Refusal::InvalidTimeLimit);
    assert!(is_made(&of_node(&mut frontend, "n1", 2, day + 1)), "it may speak for administrators");
    let here = CommandRequest::MakeUserToken { user: None, lifespan_secs: day + 1 };
    assert!(is_made(&frontend.asks(ALICE, here)), "not by way of a node");
    let mut frontend = Frontend::of(&format!("{conf}AuthAltParameters=max_token_lifespan=100000\n"), &[]);
    frontend.link("n0", 1);
    assert!(is_made(&of_node(&mut frontend, "n0", 1, 100_000)));
    assert_eq!(refusal(of_node(&mut frontend, "n0", 1, 100_001)), Refusal::InvalidTimeLimit);
}

#[test]
fn a_submission_is_judged_saved_and_answered_once_and_repeats_get_the_first_answer() {
    let mut frontend = Frontend::new(&[]);
    let id = match &frontend.asks(ALICE, submit(7))[..] {
        [Effect::Do(FrontendErrand::Submission(SubmissionErrand::Offer { id, records }))] => {
            assert_eq!((records.len(), records[0].id, records[0].owner.uid), (1, JobId(1), ALICE));
            *id
        }
        other => panic!("{other:?}"),
    };
    assert!(frontend.asks(ALICE, submit(7)).is_empty(), "a repeat waits with the first");
    let clock = Duration::from_secs(1);
    let settled = FrontendInput::Settled { id, jobs: vec![JobId(1)], result: Ok(Position(1)), clock };
    match &frontend.told(settled)[..] {
        [
            Effect::Do(FrontendErrand::Submission(SubmissionErrand::Begin(JobId(1)))),
            Effect::Answer { answer: CommandReply::Submitted { job: JobId(1), .. }, .. },
            Effect::Answer { answer: CommandReply::Submitted { job: JobId(1), .. }, .. },
        ] => {}
        other => panic!("{other:?}"),
    }
    let again = answer(frontend.asks(ALICE, submit(7)));
    assert!(matches!(again, CommandReply::Submitted { job: JobId(1), .. }), "{again:?}");
    let nowhere = JobSpec { partitions: vec!["nowhere".to_owned()], ..spec() };
    let nowhere = CommandRequest::SubmitJob { request: RequestId(1, 8), spec: Box::new(nowhere) };
    assert_eq!(refusal(frontend.asks(ALICE, nowhere)), Refusal::InvalidPartition("nowhere".to_owned()));
}

#[test]
fn so_many_plans_are_made_for_questions_at_once_and_no_more() {
    let mut frontend = Frontend::new(&[]);
    let test = || CommandRequest::TestJob { spec: Box::new(spec()) };
    let mut requests = Vec::new();
    for _ in 0..2 {
        match &frontend.asks(ALICE, test())[..] {
            [Effect::Do(FrontendErrand::When { request, jobs, .. })] if jobs.len() == 1 => requests.push(*request),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(refusal(frontend.asks(BOB, test())), Refusal::RetryAfter { .. }));
    let held = CommandRequest::TestJob { spec: Box::new(JobSpec { hold: true, ..spec() }) };
    assert_eq!(refusal(frontend.asks(BOB, held)), Refusal::JobHeld);
    // One that failed counts no longer either.
    let failed = frontend.told(FrontendInput::Told { request: requests[0], reply: None });
    assert!(matches!(failed[..], [Effect::Do(FrontendErrand::Drop(request))] if request == requests[0]), "{failed:?}");
    let effects = frontend.asks(BOB, test());
    assert!(matches!(effects[..], [Effect::Do(FrontendErrand::When { .. })]), "{effects:?}");
}

#[test]
fn what_is_the_processs_is_handed_on_with_who_asked() {
    let mut frontend = Frontend::new(&[]);
    match &frontend.asks(BOB, CommandRequest::Ping)[..] {
        [Effect::Do(FrontendErrand::Host(_, HostAsk::Identity))] => {}
        other => panic!("{other:?}"),
    }
    let effects = frontend.asks(ROOT, CommandRequest::Shutdown { controller_only: false });
    assert!(
        matches!(
            effects[..],
            [
                Effect::Do(FrontendErrand::Agent(AgentErrand::ShutAgentsDown)),
                Effect::Do(FrontendErrand::Host(_, HostAsk::Shutdown))
            ]
        ),
        "{effects:?}"
    );
    let counts = |prefix: &str| CommandRequest::CountMessages { prefixes: vec![prefix.to_owned()] };
    assert_eq!(refusal(frontend.asks(BOB, counts("/controller"))), Refusal::AccessDenied);
    frontend.show(job(1, spec()));
    let own = frontend.asks(ALICE, counts("/job/1"));
    assert!(matches!(own[..], [Effect::Do(FrontendErrand::Host(_, HostAsk::CountMessages(_)))]), "{own:?}");
}

#[test]
fn coordinators_and_operators_see_jobs_that_are_private() {
    let mut frontend = Frontend::of(&format!("{TWO_NODES}PrivateData=jobs\n"), &[7]);
    frontend.show(JobView { association: Some(AssocId(2)), ..job(8, spec()) });
    let sees = |frontend: &mut Frontend| {
        [7, 8].map(|id| match frontend.asks(BOB, CommandRequest::Explain { job: JobId(id) }).pop() {
            Some(Effect::Answer { answer: CommandReply::Refused(Refusal::InvalidJobId), .. }) => false,
            Some(Effect::Do(FrontendErrand::Pass { .. })) => true,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(sees(&mut frontend), [false, false]);
    let cluster = frontend.shown.config().cluster_name.clone();
    let of = |id, user: Option<&str>, parent| Association {
        id: AssocId(id),
        cluster: cluster.clone(),
        account: "physics".to_owned(),
        user: user.map(str::to_owned),
        parent,
        ..Association::default()
    };
    let account = Account { name: "physics".to_owned(), coordinators: ["bob".to_owned()].into(), ..Account::default() };
    let mut known = Entities {
        associations: [of(1, None, None), of(2, Some("alice"), Some(AssocId(1)))].map(|own| (own.id, own)).into(),
        accounts: [("physics".to_owned(), account)].into(),
        users: [("bob".to_owned(), User { name: "bob".to_owned(), ..User::default() })].into(),
        ..Entities::default()
    };
    *frontend.shown.entities.lock().unwrap() = Arc::new(known.clone());
    assert_eq!(sees(&mut frontend), [false, true]);
    known.users.get_mut("bob").unwrap().admin = AdminLevel::Operator;
    *frontend.shown.entities.lock().unwrap() = Arc::new(known);
    assert_eq!(sees(&mut frontend), [true, true]);
}

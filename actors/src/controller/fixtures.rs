//! A controller in one process for tests: journal in memory, users made up, agents that do what real ones promise.

use super::{
    messages::ControllerMsg,
    setup::{self, Controller, Recover, start},
    shells::{
        audit::AuditRecord,
        ports::{AgentLink, AuditPort, CredentialSigner, Host, LinkClosed, Ports, ReplySink, SitePrograms},
    },
};
use crate::{
    log::{AppendError, Appended, FollowError, Follower, Log, memory::MemoryLog},
    messages::{
        job::{Authority, Revise},
        node::Registration,
    },
    node::{core::NodeCore, settings::node_settings},
    partition::core::PartitionCore,
    submission::{
        admission::{Change, Identity, Rules, Submitter},
        job_submit::{JobSubmit, SiteAsk, SiteChecked, SiteSight},
        users::{User, UserDirectory},
    },
};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    progress::Position,
    records::job::JobRecord,
};
use garrick_model::{
    config::{self, Config},
    entities::{Entities, relative},
    ids::{JobId, RequestId, Sluid},
    messages::{
        command::{Caller, CommandReply, CommandRequest, DaemonInfo, JobChange},
        node::{AgentReport, ControllerToNode, HeldRun, JobCredential, Joining, NodeToController, SignedCredential},
    },
    refusal::Refusal,
    reservation::{AccessList, Reservation},
    site_program::SiteProgram,
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason},
    testing,
    time::Timestamp,
    view::{NodeLoad, NodeView, PartitionView},
};
use garrick_plan::{
    plan::probe::Feasibility,
    policy::{partition_facts, policy},
    snapshot::{
        accounting::{Accounting, AccountingTable},
        facts::ClusterView,
    },
};
use garrick_runtime::{Address, BoardMap, ReplyTo, System, SystemConfig};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::mpsc;

/// A configured cluster on which requests are judged, at second 1000. Jobs below 50 are known.
pub struct Site {
    config: Arc<Config>,
    partitions: Vec<Arc<PartitionView>>,
    feasibility: Feasibility,
    reservations: BoardMap<String, Reservation>,
    accounting: Accounting,
}

impl Site {
    pub fn new(conf: &str) -> Self {
        let config = config_of(conf);
        let node = |n| Arc::new(NodeCore::new(Timestamp(0), node_settings(n), Arc::default(), None, []).view());
        let nodes: Vec<Arc<NodeView>> = config.nodes.iter().map(node).collect();
        let partition = |name: &str| PartitionCore::new(&config, name, Default::default()).expect("it is configured");
        let partitions: Vec<_> = config.partitions.iter().map(|p| Arc::new(partition(&p.name).view())).collect();
        let facts = partitions.iter().map(|p| partition_facts(p, nodes.len())).collect();
        let feasibility = Feasibility::new(ClusterView::new(policy(&config), &[], &nodes, facts));
        let reservations = BoardMap::default();
        let accounting = Accounting { enforce: config.enforce.clone(), ..Accounting::default() };
        Self { config, partitions, feasibility, reservations, accounting }
    }

    /// With what accounting knows.
    pub fn accounting(mut self, entities: &Entities) -> Self {
        let entities = relative::resolved(entities, &self.config);
        self.accounting.table = Arc::new(AccountingTable::new(&entities, &self.config.cluster_name));
        self
    }

    /// With a reservation for alice.
    pub fn reserved(self, name: &str) -> Self {
        let users = AccessList::parse("alice").expect("it is a name");
        let reservation = Reservation { name: name.to_owned(), users, ..Reservation::default() };
        self.reservations.publish(name.to_owned(), Arc::new(reservation));
        self
    }

    /// Judges as alice (1001, who is in the group `users` too), or as root (0).
    pub fn judge<T>(&mut self, uid: u32, judge: impl FnOnce(&mut Rules<'_>, &Submitter<'_>) -> T) -> T {
        let known_job = |job: JobId, task: Option<u32>| job.0 < 50 && task.is_none();
        let mut rules = Rules {
            config: &self.config,
            partitions: &self.partitions,
            feasibility: &mut self.feasibility,
            known_job: &known_job,
            reservation: &|name| self.reservations.get(name),
            licenses: &|name| self.config.licenses.count(name),
            priority: None,
            accounting: &self.accounting,
            now: Timestamp::from_secs(1000),
        };
        let caller = Caller { uid, gid: uid, pid: 1, host: "login".to_owned() };
        let name = if uid == 0 { "root" } else { "alice" };
        let groups = vec![(uid, name.to_owned()), (50, "users".to_owned())];
        let user = User { uid, name: name.to_owned(), gid: uid, groups };
        let by = Submitter { caller: &caller, user: Some(user), group: Some(name.to_owned()), admin: uid == 0 };
        judge(&mut rules, &by)
    }

    pub fn submit(&mut self, uid: u32, spec: JobSpec) -> Result<JobRecord, Refusal> {
        let identity = Identity { job: JobId(7), sluid: Sluid(7), request: None, submissions: 3 };
        self.judge(uid, |rules, by| rules.admit(by, spec, identity))
    }

    /// What alice's job, or root's, comes to with a change by that user.
    pub fn revise(&mut self, by: Authority, record: &JobRecord, change: &JobChange) -> Result<Revise, Refusal> {
        let change = Change { record, change, by };
        self.judge(record.owner.uid, |rules, owner| rules.revise(owner, change))
    }
}

/// A log in memory, as a test drives it.
#[derive(Clone, Default)]
pub struct MemoryJournal {
    pub log: MemoryLog,
    came: Arc<tokio::sync::Notify>,
}

impl MemoryJournal {
    pub fn events(&self) -> Vec<ControllerEvent> {
        self.log.events()
    }

    pub fn set_waits_for_room(&self, waits: bool) {
        self.log.busy(waits.then_some(Duration::from_secs(5)));
    }

    /// From here on nothing is saved.
    pub fn hold(&self) {
        self.log.hold(true);
    }

    /// Until something waits for that.
    pub async fn held(&self) {
        self.came.notified().await;
    }

    /// All is saved.
    pub fn release(&self) {
        self.log.hold(false);
    }

    pub fn replayed(&self) -> Replayed {
        let mut replayed = Replayed::default();
        for event in self.events() {
            replayed.apply(&event).expect("a live controller's events replay");
        }
        replayed
    }
}

impl Log for MemoryJournal {
    fn append(&self, events: Vec<ControllerEvent>, done: Appended) {
        self.log.append(events, done);
        if self.log.waiting() > 0 {
            self.came.notify_one();
        }
    }
    fn offer(&self, events: Vec<ControllerEvent>, done: Appended) {
        self.log.offer(events, done);
        if self.log.waiting() > 0 {
            self.came.notify_one();
        }
    }
    fn refuses(&self) -> Option<AppendError> {
        self.log.refuses()
    }
    fn committed(&self) -> Position {
        self.log.committed()
    }
    fn value(&self) -> crate::log::committed::Committed {
        self.log.value()
    }
    fn oldest(&self) -> Position {
        self.log.oldest()
    }
    fn followers(&self) -> BTreeMap<String, Position> {
        self.log.followers()
    }
    fn subscribe(&self, from: Position) -> Result<Follower, FollowError> {
        self.log.subscribe(from)
    }
}

struct PlainSigner;

impl CredentialSigner for PlainSigner {
    fn sign(&self, credential: &JobCredential) -> SignedCredential {
        let payload = format!("{} {}", credential.job.0, credential.sluid.0).into_bytes();
        SignedCredential { payload: payload.into(), signature: Vec::new().into(), key_id: "test".to_owned() }
    }
    fn public_key(&self) -> (Vec<u8>, String) {
        (vec![1; 32], "test".to_owned())
    }
}

/// Of this user the name service has not said yet who it is.
pub const NOT_YET_KNOWN: u32 = 1999;

/// Root, alice (1001) and bob (1002).
pub struct MadeUpUsers;

impl UserDirectory for MadeUpUsers {
    fn user(&self, uid: u32) -> Option<User> {
        let name = match uid {
            0 => "root",
            1001 => "alice",
            1002 => "bob",
            _ => return None,
        };
        Some(User { uid, name: name.to_owned(), gid: uid, groups: vec![(uid, name.to_owned())] })
    }
    fn is_known(&self, uid: u32) -> bool {
        uid != NOT_YET_KNOWN
    }
    fn group_name(&self, gid: u32) -> Option<String> {
        self.user(gid).map(|u| u.name)
    }
    fn user_called(&self, text: &str) -> Option<String> {
        let known = [0, 1001, 1002].into_iter().filter_map(|uid| self.user(uid));
        known.into_iter().find(|user| user.name == text || user.uid.to_string() == text).map(|user| user.name)
    }
    fn group_called(&self, text: &str) -> Option<String> {
        self.user_called(text)
    }
}

/// A revocation that waits to be answered.
pub type Revoking = (Vec<String>, ReplyTo<Result<usize, Refusal>>);

/// A process without an authority: what is to be revoked is, unless the test answers for it.
#[derive(Default)]
pub struct PlainHost(Mutex<Option<mpsc::UnboundedSender<Revoking>>>);

impl PlainHost {
    /// From here on the test answers.
    pub fn revocations(&self) -> mpsc::UnboundedReceiver<Revoking> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.0.lock().expect("no test panicked with it") = Some(sender);
        receiver
    }
}

impl Host for PlainHost {
    fn may_be_named(&self, name: &str) -> bool {
        !name.contains('/')
    }
    fn reconfigure(&self, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Done);
    }
    fn change_log(&self, _: &config::LogChange) {}
    fn shutdown(&self, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Done);
    }
    fn user_token(&self, _: Arc<Config>, user: String, _: Duration, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Token(user));
    }

    fn join_token(&self, _: Duration, _: Option<String>, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Token("token".to_owned()));
    }
    fn certs(&self, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Certs { certs: Vec::new(), authority: Timestamp(0), rotation: None });
    }
    fn revoke_certs(&self, nodes: Vec<String>, done: ReplyTo<Result<usize, Refusal>>) {
        match &*self.0.lock().expect("no test panicked with it") {
            Some(test) => drop(test.send((nodes, done))),
            None => done.reply(Ok(nodes.len())),
        }
    }
    fn rotate_authority(&self, _: bool, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Done);
    }
    fn renew_certs(&self, _: Vec<String>, mut replies: Box<dyn ReplySink>) {
        replies.send(CommandReply::Done);
    }
    fn daemons(&self) -> Vec<DaemonInfo> {
        Vec::new()
    }
    fn show_config(&self, config: &Config, _: JobId) -> Vec<(String, String)> {
        vec![("ClusterName".to_owned(), config.cluster_name.clone())]
    }
    fn administrators(&self) -> Vec<u32> {
        vec![0]
    }
    fn identity(&self) -> (String, String) {
        ("head".to_owned(), "0.1.0".to_owned())
    }
}

/// What an agent of a node of four cores says when it connects.
pub fn registration(node: &str, conn: u64, runs: Vec<HeldRun>) -> Registration {
    let facts = testing::facts(node, testing::shape(4, 1, 1));
    let load = NodeLoad::default();
    Registration { conn, facts, runs, released: Vec::new(), incarnation: conn, load, address: None }
}

struct ChannelSink(mpsc::UnboundedSender<CommandReply>);

impl ReplySink for ChannelSink {
    fn send(&mut self, reply: CommandReply) -> bool {
        self.0.send(reply).is_ok()
    }
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

/// A configuration from text, checked.
pub fn config_of(text: &str) -> Arc<Config> {
    let (config, report) = config::read_text(Path::new("slurm.conf"), text);
    Arc::new(config.unwrap_or_else(|| panic!("{report:?}")))
}

/// Two nodes of four cores.
pub const TWO_NODES: &str = "\
ClusterName=test
SlurmctldHost=head
NodeName=n[0-1] CPUs=4 RealMemory=1000
PartitionName=debug Nodes=ALL Default=YES MaxTime=60
";

/// What the audit log would have.
#[derive(Default)]
pub struct KeptRecords(Mutex<Vec<AuditRecord>>);

impl AuditPort for KeptRecords {
    fn keep(&self, record: AuditRecord) {
        self.0.lock().expect("no test panics here").push(record);
    }
}

impl KeptRecords {
    /// User, request, outcome of each.
    pub fn lines(&self) -> Vec<String> {
        let records = self.0.lock().expect("no test panics here");
        records.iter().map(|r| format!("{} {} {}: {}", r.host, r.uid, r.what, r.outcome)).collect()
    }
}

/// The site's programs, none of which is really run: they end at once, and well as long as nothing else is said.
#[derive(Default)]
pub struct RanPrograms {
    rows: Mutex<Vec<SiteProgram>>,
    fails: Mutex<Option<String>>,
}

impl SitePrograms for RanPrograms {
    fn run(&self, program: SiteProgram, done: ReplyTo<Result<(), String>>) {
        self.rows.lock().expect("no test panics here").push(program);
        let fails = self.fails.lock().expect("no test panics here").clone();
        done.reply(fails.map_or(Ok(()), Err));
    }
}

impl RanPrograms {
    /// What ran so far.
    pub fn rows(&self) -> Vec<SiteProgram> {
        self.rows.lock().expect("no test panics here").clone()
    }

    /// They fail from now on.
    pub fn fail(&self, why: &str) {
        *self.fails.lock().expect("no test panics here") = Some(why.to_owned());
    }
}

/// A controller with its journal.
pub struct Rig {
    pub controller: Controller,
    pub journal: MemoryJournal,
    pub audit: Arc<KeptRecords>,
    pub host: Arc<PlainHost>,
    pub programs: Arc<RanPrograms>,
    requests: u64,
}

/// Runs a test on an actor system of its own.
pub fn with_system(body: impl AsyncFnOnce(System)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a test may have a runtime");
    runtime.block_on(System::within(SystemConfig::default(), body));
}

/// Runs a test with a controller that has nothing in its journal.
pub fn with_rig(conf: &str, body: impl AsyncFnOnce(Rig)) {
    with_system(async |system| body(Rig::start(&system, conf, MemoryJournal::default())).await);
}

/// Any random number will do where one thread makes all runs.
fn no_random() -> u32 {
    7
}

/// A site without checks of its own.
struct NoJobSubmit;

impl JobSubmit for NoJobSubmit {
    fn has_checks(&self, _: &Config) -> bool {
        false
    }

    fn check(&self, _: SiteAsk, _: Arc<dyn SiteSight>) -> SiteChecked {
        panic!("nothing is asked")
    }
}

impl Rig {
    /// Starts from what the journal holds.
    pub fn start(system: &System, conf: &str, journal: MemoryJournal) -> Self {
        Self::recover(system, conf, journal, Recover::Partial)
    }

    /// Starts from that much of what the journal holds.
    pub fn recover(system: &System, conf: &str, journal: MemoryJournal, recover: Recover) -> Self {
        Self::with_hook(system, conf, (journal, recover), Arc::new(NoJobSubmit))
    }

    /// Starts where the site has a word of its own on requests.
    pub fn with_hook(
        system: &System,
        conf: &str,
        (journal, recover): (MemoryJournal, Recover),
        job_submit: Arc<dyn JobSubmit>,
    ) -> Self {
        let (audit, host) = (Arc::new(KeptRecords::default()), Arc::new(PlainHost::default()));
        let programs = Arc::new(RanPrograms::default());
        let ports = Ports {
            log: Arc::new(journal.clone()),
            signer: Arc::new(PlainSigner),
            users: Arc::new(MadeUpUsers),
            host: Arc::clone(&host) as _,
            audit: Arc::clone(&audit) as _,
            job_submit,
            programs: Arc::clone(&programs) as _,
        };
        // Those of an earlier one are not asked again.
        let requests = journal.replayed().epoch << 32;
        // Committed at once.
        drop(setup::forget(&journal, recover));
        let controller = start(system, config_of(conf), ports, no_random);
        Self { controller, journal, requests, audit, host, programs }
    }

    pub fn frontend(&self) -> &Address<ControllerMsg> {
        &self.controller.frontend
    }

    /// Sends a command; its replies.
    pub fn ask_stream(&self, uid: u32, request: CommandRequest) -> mpsc::UnboundedReceiver<CommandReply> {
        let (replies, receiver) = self.sink();
        let caller = Caller { uid, gid: uid, pid: 1, host: "login".to_owned() };
        let (request, bytes) = (Box::new(request), 100);
        let message = ControllerMsg::command(caller, request, bytes, replies);
        self.frontend().try_send(message).expect("the frontend has room");
        receiver
    }

    /// Somewhere to answer, and what is answered there.
    pub fn sink(&self) -> (Box<dyn ReplySink>, mpsc::UnboundedReceiver<CommandReply>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Box::new(ChannelSink(sender)), receiver)
    }

    /// Sends a command; its one reply.
    pub async fn ask(&self, uid: u32, request: CommandRequest) -> CommandReply {
        let mut replies = self.ask_stream(uid, request);
        let answer = tokio::time::timeout(Duration::from_secs(20), replies.recv()).await;
        answer.expect("a command is answered in time").expect("a command is answered")
    }

    /// Submits as alice.
    pub async fn submit(&mut self, spec: JobSpec) -> CommandReply {
        self.requests += 1;
        let request = RequestId(77, self.requests);
        self.ask(1001, CommandRequest::SubmitJob { request, spec: Box::new(spec) }).await
    }

    /// Submits what must be accepted.
    pub async fn submitted(&mut self, spec: JobSpec) -> JobId {
        match self.submit(spec).await {
            CommandReply::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    }

    /// The same for another user.
    pub async fn submitted_as(&mut self, uid: u32, spec: JobSpec) -> JobId {
        self.requests += 1;
        let request = RequestId(77, self.requests);
        match self.ask(uid, CommandRequest::SubmitJob { request, spec: Box::new(spec) }).await {
            CommandReply::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    }

    pub async fn wait(&self, job: JobId, until: garrick_model::messages::command::JobMilestone) -> JobState {
        match self.ask(1001, CommandRequest::WaitJob { job, until }).await {
            CommandReply::Job(view) => view.state,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until what the board shows of a job is as wanted.
    pub async fn until(&self, job: JobId, wanted: impl Fn(&garrick_model::view::JobView) -> bool) {
        let board = &self.controller.env.boards.jobs;
        let shown = async {
            loop {
                let generation = board.generation();
                if board.get(&job).is_some_and(|view| wanted(&view)) {
                    return;
                }
                board.changed(generation).await;
            }
        };
        let timely = tokio::time::timeout(Duration::from_secs(20), shown).await;
        assert!(timely.is_ok(), "job {} is {:?}", job.0, board.get(&job));
    }
}

impl Rig {
    /// Waits until nodes are shown so.
    pub async fn nodes(&self, wanted: impl Fn(&[Arc<NodeView>]) -> bool) {
        let board = &self.controller.env.boards.nodes;
        let shown = async {
            loop {
                let generation = board.generation();
                if wanted(&board.list()) {
                    return;
                }
                board.changed(generation).await;
            }
        };
        let timely = tokio::time::timeout(Duration::from_secs(20), shown).await;
        assert!(timely.is_ok(), "nodes are {:?}", board.list());
    }

    /// Waits until that many nodes are shown.
    pub async fn until_nodes(&self, count: usize) {
        self.nodes(|nodes| nodes.len() == count).await;
    }

    /// Waits until a node is in service.
    pub async fn until_up(&self, name: &str) {
        self.nodes(|nodes| nodes.iter().any(|n| n.name == name && garrick_plan::snapshot::facts::in_service(n))).await;
    }
}

/// What an agent does with a run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Runs end at once with exit code 0.
    Finish,
    /// Runs go on until they are ended.
    Stay,
    /// The same, and that they started is left for the test to report.
    Wait,
}

struct Wire(mpsc::UnboundedSender<ControllerToNode>);

impl AgentLink for Wire {
    fn send(&self, frame: ControllerToNode) -> Result<(), LinkClosed> {
        self.0.send(frame).map_err(|_| LinkClosed)
    }
    fn close(&self) {}
}

/// Nodes' agents. Each keeps to what agents promise; runs other than on the batch host are not played.
pub struct Agents {
    frontend: Address<ControllerMsg>,
    pub runs: Arc<Mutex<BTreeMap<(JobId, Sluid), String>>>,
    seqs: Arc<Mutex<BTreeMap<String, u64>>>,
    conns: u64,
    connected: BTreeMap<String, u64>,
    /// Frames that were not answered, in the order in which agents got them.
    heard: tokio::sync::watch::Sender<Vec<(String, ControllerToNode)>>,
}

impl Agents {
    pub fn new(rig: &Rig) -> Self {
        Self {
            frontend: rig.frontend().clone(),
            runs: Arc::default(),
            seqs: Arc::default(),
            conns: 0,
            connected: BTreeMap::new(),
            heard: tokio::sync::watch::Sender::default(),
        }
    }

    /// Connects a node's agent and serves it.
    pub fn connect(&mut self, node: &str, habit: Habit) {
        self.connect_holding(node, habit, Vec::new());
    }

    pub fn connect_holding(&mut self, node: &str, habit: Habit, held: Vec<HeldRun>) {
        self.connect_as(node, habit, held, None);
    }

    /// Connects an agent that says what node it is.
    pub fn join(&mut self, node: &str, habit: Habit, line: &str) {
        let joining = Joining { line: line.to_owned(), port: 7000 };
        self.connect_as(node, habit, Vec::new(), Some((Box::new(joining), "10.0.0.9".to_owned())));
    }

    fn connect_as(&mut self, node: &str, habit: Habit, held: Vec<HeldRun>, joining: Option<(Box<Joining>, String)>) {
        self.conns += 1;
        let conn = self.conns;
        self.connected.insert(node.to_owned(), conn);
        let heard = self.heard.clone();
        let (sender, mut frames) = mpsc::unbounded_channel();
        let message = ControllerMsg::agent_connected(
            node.to_owned(),
            Box::new(registration(node, conn, held)),
            Arc::new(Wire(sender)),
            joining,
        );
        self.frontend.try_send(message).expect("the frontend has room");
        let (frontend, runs, seqs) = (self.frontend.clone(), Arc::clone(&self.runs), Arc::clone(&self.seqs));
        let node = node.to_owned();
        tokio::task::spawn_local(async move {
            let report = |from: &str, report: AgentReport| {
                let seq = {
                    let mut seqs = seqs.lock().expect("no test panics here");
                    let seq = seqs.entry(from.to_owned()).or_insert(0);
                    *seq += 1;
                    *seq
                };
                let message = Box::new(NodeToController::Report { seq, report });
                let sent = frontend.try_send(ControllerMsg::agent_message(from.to_owned(), conn, message));
                assert!(sent.is_ok() || frontend.is_closed());
            };
            while let Some(frame) = frames.recv().await {
                match frame {
                    ControllerToNode::StartJob(launch) => {
                        let text = String::from_utf8_lossy(&launch.credential.payload).into_owned();
                        let (job, sluid) = text.split_once(' ').expect("as signed");
                        let key = (JobId(job.parse().expect("a number")), Sluid(sluid.parse().expect("a number")));
                        runs.lock().expect("no test panics here").insert(key, node.clone());
                        let (job, sluid) = key;
                        if habit == Habit::Wait {
                            heard.send_modify(|frames| frames.push((node.clone(), ControllerToNode::StartJob(launch))));
                            continue;
                        }
                        report(&node, AgentReport::JobStarted { job, sluid, door: "/run/door".to_owned() });
                        if habit == Habit::Finish {
                            end(&report, &runs, &node, key, JobState::Completed);
                        }
                    }
                    ControllerToNode::EndJob { job, sluid, state, .. } => {
                        if runs.lock().expect("no test panics here").get(&(job, sluid)).is_some_and(|n| *n == node) {
                            end(&report, &runs, &node, (job, sluid), state);
                        } else {
                            report(
                                &node,
                                AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None },
                            );
                        }
                    }
                    other => heard.send_modify(|frames| frames.push((node.clone(), other))),
                }
            }
        });
    }

    /// Has a node's agent say something.
    pub fn say(&self, node: &str, message: NodeToController) {
        let (node, conn) = (node.to_owned(), self.connected[node]);
        let message = ControllerMsg::agent_message(node, conn, Box::new(message));
        self.frontend.try_send(message).expect("the frontend has room");
    }

    /// Has a node's agent report; the report's number.
    pub fn report(&self, node: &str, report: AgentReport) -> u64 {
        let seq = {
            let mut seqs = self.seqs.lock().expect("no test panics here");
            let seq = seqs.entry(node.to_owned()).or_insert(0);
            *seq += 1;
            *seq
        };
        self.say(node, NodeToController::Report { seq, report });
        seq
    }

    /// A node's connection breaks.
    pub fn disconnect(&mut self, node: &str) {
        let conn = self.connected.remove(node).expect("it is connected");
        let gone = ControllerMsg::agent_gone(node.to_owned(), conn);
        self.frontend.try_send(gone).expect("the frontend has room");
    }

    /// Waits for a frame that an agent got or gets.
    pub async fn heard<T>(&self, wanted: impl Fn(&str, &ControllerToNode) -> Option<T>) -> T {
        let mut frames = self.heard.subscribe();
        let heard = async {
            loop {
                let found = frames.borrow_and_update().iter().find_map(|(node, frame)| wanted(node, frame));
                if let Some(found) = found {
                    return found;
                }
                frames.changed().await.expect("the sender is in self");
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.expect("the agent gets it in time")
    }

    /// Waits until the controller acknowledged a node's reports up to this one.
    pub async fn acknowledged(&self, node: &str, seq: u64) {
        self.heard(|to, frame| match frame {
            ControllerToNode::AckReports { upto } if to == node && *upto >= seq => Some(()),
            _ => None,
        })
        .await;
    }

    /// What agents heard so far, acknowledgements and other matters of links left out.
    pub fn orders(&self) -> Vec<(String, ControllerToNode)> {
        let orders = self.heard.borrow();
        let matters = |frame: &ControllerToNode| {
            !matches!(
                frame,
                ControllerToNode::AckReports { .. } | ControllerToNode::Welcome { .. } | ControllerToNode::Ping { .. }
            )
        };
        orders.iter().filter(|(_, frame)| matters(frame)).cloned().collect()
    }
}

fn end(
    report: &impl Fn(&str, AgentReport),
    runs: &Mutex<BTreeMap<(JobId, Sluid), String>>,
    node: &str,
    (job, sluid): (JobId, Sluid),
    state: JobState,
) {
    runs.lock().expect("no test panics here").remove(&(job, sluid));
    let exit = ExitStatus::SUCCESS;
    let at = Timestamp::now();
    report(
        node,
        AgentReport::JobEnded {
            job,
            sluid,
            state,
            reason: Reason::None,
            exit,
            derived: exit,
            at,
            lost: vec![],
            cause: None,
        },
    );
    report(node, AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None });
}

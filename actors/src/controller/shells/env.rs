//! What every actor of the controller shares: boards, what is committed, ports, ids, and the way to each other.

use super::{
    entering::{Entering, Entrant},
    ids::IdSource,
    job::{JobMsg, JobsMsg},
    job_board::JobBoard,
    leftovers::{JobLeftovers, NodeCores},
    node::{NodeMsg, NodesMsg},
    partition::{PartitionsMsg, configured},
    ports::{AgentLink, Ports},
    reservation::ReservationMsg,
    roster::RosterMsg,
    scheduler::SchedulerMsg,
    sites::{job_site, node_site},
    steps::StepsMsg,
};
use crate::{
    job::core::JobCore,
    license::account::LicenseOffice,
    log::{ACCOUNTING, Saved, committed::Committed, log_outcome},
    messages::{
        job::{JobInput, JobSite},
        letter::{ConfigNews, Letter},
        node::{NodeInput, NodeSite},
    },
    node::core::NodeCore,
    partition::messages::PartitionInput,
    roster::nodes::Roster,
    scheduler::messages::SchedulerInput,
};
use garrick_events::{
    event::ControllerEvent,
    records::{job::JobRecord, job_event::JobEvent},
};
use garrick_model::{
    config::Config,
    ids::{JobId, NodeIndex, RequestId},
    messages::node::{JobCredential, NodeToController, SwitchPath},
    packed_steps::StepTally,
    reservation::Reservation,
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use garrick_plan::{policy::policy, rules::priority, snapshot::qos::QosTable, topology::Topologies};
use garrick_runtime::{
    Actor, ActorPath, Address, Board, BoardMap, Context, Lane, Message, PendingReply, ReplyTo, SendError, System,
    TraceContext,
};
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// What owners publish.
#[derive(Clone, Debug, Default)]
pub struct Boards {
    /// Jobs.
    pub jobs: JobBoard,
    /// What step managers of running jobs counted: apart from the jobs' views, since it changes several times a second.
    pub steps: BoardMap<JobId, StepTally>,
    /// Nodes, by place in configuration order.
    pub nodes: BoardMap<NodeIndex, NodeView>,
    /// Partitions, by place in configuration order.
    pub partitions: BoardMap<u32, PartitionView>,
    /// Reservations, by name.
    pub reservations: BoardMap<String, Reservation>,
}

/// The open link to each node's agent, kept here so that neither the frontend nor a node's owner loses it in a panic.
#[derive(Clone, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, OpenLink>>>);

/// A connection's number and the way to the agent.
pub type OpenLink = (u64, Arc<dyn AgentLink>);

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenLink>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's agent connected (anew).
    pub fn open(&self, node: &str, conn: u64, link: Arc<dyn AgentLink>) {
        self.lock().insert(node.to_owned(), (conn, link));
    }

    /// That connection is gone. False when there is a newer one.
    pub fn close(&self, node: &str, conn: u64) -> bool {
        let mut links = self.lock();
        let current = links.get(node).is_some_and(|(open, _)| *open == conn);
        if current {
            links.remove(node);
        }
        current
    }

    /// A node's link.
    pub fn get(&self, node: &str) -> Option<OpenLink> {
        self.lock().get(node).cloned()
    }

    /// All links.
    pub fn list(&self) -> Vec<(String, Arc<dyn AgentLink>)> {
        self.lock().iter().map(|(node, (_, link))| (node.clone(), Arc::clone(link))).collect()
    }
}

/// Shared by the controller's actors.
pub struct Env {
    /// The actor system.
    pub system: System,
    /// The process.
    pub ports: Ports,
    /// Boards.
    pub boards: Boards,
    /// What is saved.
    pub committed: Committed,
    /// What jobs' owners must not forget although it is not.
    pub leftovers: JobLeftovers,
    /// Jobs that are being saved.
    pub entering: Entering,
    /// Nodes' state.
    pub nodes: NodeCores,
    /// Links to agents.
    pub links: Links,
    /// Who has which licenses.
    pub licenses: LicenseOffice,
    /// Fresh ids.
    pub ids: IdSource,
    queries: AtomicU64,
    roster: Board<Arc<Roster>>,
    /// What everybody was told of it.
    told_roster: Board<Arc<Roster>>,
    /// As it was read last; the roster follows.
    file: Board<Arc<Config>>,
    node_site: Board<Arc<NodeSite>>,
    site: Board<Arc<JobSite>>,
    priority: Board<Option<Arc<priority::Rules>>>,
    qos: Board<Arc<QosTable>>,
    /// Topologies, and the configuration that they were made of.
    topologies: RwLock<Option<(Arc<Config>, Arc<Topologies>)>>,
}

impl Env {
    /// A new one.
    pub fn new(system: System, ports: Ports, entering: Entering, ids: IdSource, roster: Roster) -> Self {
        let committed = ports.log.value();
        let roster = Arc::new(roster);
        Self {
            system,
            ports,
            boards: Boards::default(),
            committed,
            leftovers: JobLeftovers::default(),
            entering,
            nodes: NodeCores::default(),
            links: Links::default(),
            licenses: LicenseOffice::default(),
            ids,
            queries: AtomicU64::new(0),
            file: Board::new(roster.base()),
            told_roster: Board::new(Arc::clone(&roster)),
            roster: Board::new(roster),
            node_site: Board::new(Arc::new(NodeSite::default())),
            site: Board::new(Arc::new(JobSite::default())),
            priority: Board::new(None),
            qos: Board::default(),
            topologies: RwLock::new(None),
        }
    }

    /// The configuration.
    pub fn config(&self) -> Arc<Config> {
        self.roster.read().config()
    }

    /// Which nodes there are.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.read().value.clone()
    }

    /// May a node of this name join the cluster?
    pub fn admits(&self, name: &str) -> Result<(), String> {
        self.roster.read().admits(name)
    }

    /// Changes that, and so the configuration. For the roster's owner, who tells everyone.
    pub fn set_roster(&self, roster: Arc<Roster>) {
        let config = roster.config();
        self.roster.publish(roster);
        self.renew_node_site(&config, self.job_site().epoch);
    }

    /// The roster of which everybody has been told. For its owner, who goes on from there if it fails before all have been.
    pub fn told_roster(&self) -> Arc<Roster> {
        self.told_roster.read().value.clone()
    }

    /// Everybody has been told of that. For the roster's owner.
    pub fn set_told_roster(&self, roster: Arc<Roster>) {
        self.told_roster.publish(roster);
    }

    /// The configuration as it was read last, without nodes that came at run time. The roster is of that one once what follows
    /// from it is saved.
    pub fn config_file(&self) -> Arc<Config> {
        self.file.read().value.clone()
    }

    /// Changes it. For the roster's owner.
    pub fn set_config_file(&self, config: Arc<Config>) {
        self.file.publish(config);
    }

    /// What holds for nodes now.
    pub fn node_site(&self) -> Arc<NodeSite> {
        self.node_site.read().value.clone()
    }

    /// Makes that of a configuration.
    pub fn renew_node_site(&self, config: &Config, epoch: u64) {
        let site = Arc::new(node_site(config, epoch, &self.ports));
        self.node_site.publish(site);
    }

    /// The topologies of the configuration.
    pub fn topologies(&self) -> Arc<Topologies> {
        let config = self.config();
        let known = self.topologies.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, topologies)) = known.filter(|(of, _)| Arc::ptr_eq(of, &config)) {
            return topologies;
        }
        let made = Arc::new(Topologies::new(&config));
        *self.topologies.write().unwrap_or_else(PoisonError::into_inner) = Some((config, Arc::clone(&made)));
        made
    }

    /// Switches above the nodes of an allocation, in its order; empty where its partition has no tree of them.
    pub fn switches(&self, credential: &JobCredential) -> Vec<SwitchPath> {
        let topologies = self.topologies();
        if topologies.is_empty() {
            return Vec::new();
        }
        let partitions = self.boards.partitions.list();
        let named = partitions.iter().find(|p| p.config.name == credential.partition);
        let Some(topology) = topologies.get(named.and_then(|p| p.config.topology.as_deref())) else {
            return Vec::new();
        };
        let path = |(names, pattern)| SwitchPath { names, pattern };
        let paths = credential.nodes.iter().map(|node| topology.address(node.index.0 as usize).map(path));
        paths.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The owner of reservations.
    pub fn reservations_owner(&self) -> Option<Address<ReservationMsg>> {
        self.system.find(&ActorPath::root().child("reservation"))
    }

    /// What holds for jobs now.
    pub fn job_site(&self) -> Arc<JobSite> {
        self.site.read().value.clone()
    }

    /// What a configuration makes of it, and who follows the log.
    pub fn made_site(&self, config: &Config, epoch: u64) -> JobSite {
        let keeps_step_records = self.ports.log.followers().contains_key(ACCOUNTING);
        JobSite { keeps_step_records, ..job_site(config, epoch) }
    }

    /// Makes it anew of the configuration.
    pub fn renew_job_site(&self) {
        self.set_job_site(Arc::new(self.made_site(&self.config(), self.job_site().epoch)));
    }

    /// Changes it.
    pub fn set_job_site(&self, site: Arc<JobSite>) {
        self.site.publish(site);
    }

    /// How priorities are calculated, as the scheduler last did; `None`: it did not yet, or they are not.
    pub fn priority_rules(&self) -> Option<Arc<priority::Rules>> {
        self.priority.read().value.clone()
    }

    /// Changes that. For the scheduler.
    pub fn set_priority_rules(&self, rules: Option<Arc<priority::Rules>>) {
        self.priority.publish(rules);
    }

    /// What is known of QOS. Without an accounting database: nothing.
    pub fn qos(&self) -> Arc<QosTable> {
        self.qos.read().value.clone()
    }

    /// Changes that. For the feed of the accounting database.
    pub fn set_qos(&self, table: QosTable) {
        self.qos.publish(Arc::new(table));
    }

    /// A number for a question to agents, never used again.
    pub fn next_query(&self) -> u64 {
        self.queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Who gathers and remembers steps.
    pub fn steps(&self) -> Option<Address<StepsMsg>> {
        self.system.find(&ActorPath::root().child("steps"))
    }

    /// A job's owner.
    pub fn job(&self, job: JobId) -> Option<Address<JobMsg>> {
        self.system.find(&ActorPath::root().child("job").child(&job.0.to_string()))
    }

    /// A node's owner.
    pub fn node(&self, name: &str) -> Option<Address<NodeMsg>> {
        self.system.find(&ActorPath::root().child("node").child(name))
    }

    /// The supervisor of jobs.
    pub fn jobs_supervisor(&self) -> Option<Address<JobsMsg>> {
        self.system.find(&ActorPath::root().child("job"))
    }

    /// The supervisor of nodes.
    pub fn nodes_supervisor(&self) -> Option<Address<NodesMsg>> {
        self.system.find(&ActorPath::root().child("node"))
    }

    /// The supervisor of partitions.
    pub fn partitions_supervisor(&self) -> Option<Address<PartitionsMsg>> {
        self.system.find(&ActorPath::root().child("partition"))
    }

    /// The owner of the roster.
    pub fn roster_owner(&self) -> Option<Address<RosterMsg>> {
        self.system.find(&ActorPath::root().child("roster"))
    }

    /// The scheduler.
    pub fn scheduler(&self) -> Option<Address<SchedulerMsg>> {
        self.system.find(&ActorPath::root().child("scheduler"))
    }

    /// Appends to the log what an owner has decided; the answer comes by the returned future.
    pub fn append(&self, events: Vec<ControllerEvent>) -> PendingReply<Saved> {
        let (tell, pending) = ReplyTo::channel();
        let done = ReplyTo::calling(move |answer| tell.reply(log_outcome(answer)));
        self.ports.log.append(events, done);
        pending
    }

    /// Offers the log jobs that are submitted together: once they are saved they are committed and shown. The answer comes by
    /// the returned future; what became of them is found by the request if nobody waits for that any more.
    pub fn offer_jobs(
        self: &Arc<Self>,
        request: RequestId,
        records: Vec<JobRecord>,
        now: Timestamp,
    ) -> PendingReply<Saved> {
        let entrant =
            |record: &JobRecord| -> Entrant { (record.clone(), Arc::new(self.first_view(record.clone(), now))) };
        self.entering.begin(request, records.iter().map(entrant).collect());
        let submitted = |record: JobRecord| ControllerEvent::Job {
            job: record.id,
            event: Box::new(JobEvent::Submitted(Box::new(record))),
        };
        let (tell, pending) = ReplyTo::channel();
        let events: Vec<ControllerEvent> = records.into_iter().map(submitted).collect();
        let env = Arc::clone(self);
        let done = ReplyTo::calling(move |answer| {
            let saved = log_outcome(answer);
            env.entering.settle(request, saved.is_ok(), |view| {
                // One whose owner is up already shows itself.
                if env.boards.jobs.get(&view.id).is_none() {
                    env.boards.jobs.publish(view.id, view);
                }
            });
            tell.reply(saved);
        });
        self.ports.log.offer(events, done);
        pending
    }

    /// Hands a letter over. One that finds nobody comes back to whoever has to know.
    pub fn post<A: Actor>(&self, cx: &mut Context<A>, letter: Letter) {
        match letter {
            Letter::Job(job, input) => self.tell_job(cx, job, input),
            Letter::Node(node, input) => match self.node(&node) {
                Some(owner) => deliver(cx, &owner, NodeMsg::Input(input)),
                None => {
                    for back in Letter::Node(node, input).undeliverable() {
                        self.post(cx, back);
                    }
                }
            },
            Letter::Licenses(input) => {
                let letters = self.licenses.lock().answers(Timestamp::now(), &mut self.ids.clone(), input);
                letters.into_iter().for_each(|letter| self.post(cx, letter));
            }
            Letter::Outcome { pass, accepted } => {
                if let Some(scheduler) = self.scheduler() {
                    deliver(cx, &scheduler, SchedulerMsg::Input(SchedulerInput::Outcome { pass, accepted }));
                }
            }
            Letter::Begin { record, first } => {
                let job = record.id;
                // Whoever looks finds the task in the array or by itself.
                self.show_job(*record, Timestamp::now());
                if let Some(supervisor) = self.jobs_supervisor() {
                    deliver(cx, &supervisor, JobsMsg::Start { key: job, seed: first });
                }
            }
            Letter::Steps(input) => {
                if let Some(steps) = self.steps() {
                    deliver(cx, &steps, StepsMsg::Input(input));
                }
            }
            Letter::News(news) => self.post_news(cx, news),
        }
    }

    fn post_news<A: Actor>(&self, cx: &mut Context<A>, news: ConfigNews) {
        match news {
            ConfigNews::Node(settings) => {
                // The supervisor knows whether the owner of that name is one that is to end: that one would not read it.
                if let Some(supervisor) = self.nodes_supervisor() {
                    let core = NodeCore::new(Timestamp::now(), *settings, self.node_site(), None, []);
                    // Who asked for it looks at once; its owner publishes over it.
                    if self.nodes.get(&core.settings().name).is_none() {
                        self.boards.nodes.publish(core.settings().index, Arc::new(core.view()));
                    }
                    deliver(
                        cx,
                        &supervisor,
                        NodesMsg::Start { key: core.settings().name.clone(), seed: Box::new(core) },
                    );
                }
            }
            ConfigNews::NoNode(name) => {
                if let Some(supervisor) = self.nodes_supervisor() {
                    deliver(cx, &supervisor, NodesMsg::Stop(name));
                }
            }
            ConfigNews::Partitions { read_again } => {
                if let Some(supervisor) = self.partitions_supervisor() {
                    let config = self.config();
                    let news = if read_again {
                        configured(&config)
                    } else {
                        PartitionsMsg::TellAll(Box::new(move || PartitionInput::NodesChanged(Arc::clone(&config))))
                    };
                    deliver(cx, &supervisor, news);
                }
            }
            ConfigNews::Jobs => self.tell_jobs_of_site(cx),
            ConfigNews::Policy => {
                if let Some(scheduler) = self.scheduler() {
                    deliver(
                        cx,
                        &scheduler,
                        SchedulerMsg::Input(SchedulerInput::Policy(Box::new(policy(&self.config())))),
                    );
                }
            }
        }
    }

    /// All jobs hear what holds for them now.
    pub fn tell_jobs_of_site<A: Actor>(&self, cx: &mut Context<A>) {
        if let Some(supervisor) = self.jobs_supervisor() {
            let site = self.job_site();
            let news = JobsMsg::TellAll(Box::new(move || JobInput::Site(Arc::clone(&site))));
            deliver(cx, &supervisor, news);
        }
    }

    /// Tells a job's owner. A job without an actor goes through the jobs' supervisor, which knows whether it is starting
    /// or gone.
    pub fn tell_job<A: Actor>(&self, cx: &mut Context<A>, job: JobId, input: JobInput) {
        match self.job(job) {
            Some(address) => deliver(cx, &address, JobMsg::Input(input)),
            None => {
                if let Some(supervisor) = self.jobs_supervisor() {
                    deliver(cx, &supervisor, JobsMsg::tell(job, input));
                }
            }
        }
    }

    /// Shows a job that is saved and whose owner is about to be started, so that whoever has its id can ask about it. One that
    /// lives shows itself.
    pub fn show_job(&self, record: JobRecord, now: Timestamp) {
        if self.boards.jobs.get(&record.id).is_none() {
            let view = self.first_view(record, now);
            self.boards.jobs.publish(view.id, Arc::new(view));
        }
    }

    fn first_view(&self, record: JobRecord, now: Timestamp) -> JobView {
        let mut view = JobCore::new(record, self.job_site()).view(now);
        // Not to be started before its owner is there to be asked.
        view.eligible = false;
        view
    }

    /// Hands a job's owner what it alone can answer; one that is still being started gets it from the jobs' supervisor.
    /// `None`: there is no such job.
    pub fn ask_job(&self, job: JobId, message: JobMsg) -> Option<Late> {
        if let Some(owner) = self.job(job) {
            return Some(mail(&owner, message));
        }
        let supervisor = self.jobs_supervisor().filter(|_| self.committed.has_job(job))?;
        Some(mail(&supervisor, JobsMsg::Deliver { key: job, message: Box::new(message) }))
    }

    /// An agent's word that its node is there and how busy, straight to the node's owner: whatever users ask of the frontend,
    /// nodes are not taken for silent. A connection that the owner does not know, or knows no more, says nothing to it.
    pub fn heartbeat(&self, cx: TraceContext, node: &str, conn: u64, frame: Box<NodeToController>) {
        let Some(owner) = self.node(node) else { return };
        // One that is lost among so many that wait is followed by the next.
        if let Err(error) = owner.deliver(cx, Lane::Normal, NodeMsg::Input(NodeInput::Frame { conn, frame })) {
            tracing::debug!(node, %error, "node.heartbeat_lost");
        }
    }
}

/// What is left of sending where there was no room.
pub type Late = Option<Pin<Box<dyn Future<Output = ()>>>>;

/// Sends what must arrive: where there is no room, it is sent once what comes back is done.
pub fn mail<M: Message>(to: &Address<M>, message: M) -> Late {
    match to.try_send(message) {
        Ok(()) => None,
        Err(SendError::Full(message)) => {
            let to = to.clone();
            tracing::warn!(to = %to.path(), "mailbox.full");
            Some(Box::pin(async move {
                if to.send(message).await.is_err() {
                    tracing::debug!(to = %to.path(), "message.to_ended_actor");
                }
            }))
        }
        Err(error) => {
            tracing::debug!(to = %to.path(), %error, "message.to_ended_actor");
            None
        }
    }
}

/// The same, and it waits beside the actor.
pub fn deliver<A: Actor, M: Message>(cx: &mut Context<A>, to: &Address<M>, message: M) {
    if let Some(late) = mail(to, message) {
        cx.spawn(late);
    }
}

//! What all actors of the controller share: views, committed state, ports, ids, and each other's addresses.

use super::{
    counted::Counted,
    crontab::CrontabMsg,
    entering::{Entering, Entrant},
    fair,
    ids::IdSource,
    job::{JobMsg, JobsMsg},
    job_board::JobBoard,
    leftovers::{JobLeftovers, NodeCores},
    node::{NodeMsg, NodesMsg},
    notices::Notices,
    partition::{PartitionsMsg, configured},
    ports::{AgentLink, Ports},
    power::PowerMsg,
    reservation::ReservationMsg,
    roster::RosterMsg,
    scheduler::SchedulerMsg,
    sites::{job_site, node_site},
    steps::StepsMsg,
    trigger::{Marks, TriggerMsg},
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
    power::core::PowerInput,
    roster::nodes::Roster,
    scheduler::messages::SchedulerInput,
};
use garrick_events::{
    event::ControllerEvent,
    records::{job::JobRecord, job_event::JobEvent},
};
use garrick_model::{
    config::{Config, Enforce, EnforceWord},
    entities::{Entities, association::AssocId, relative},
    ids::{JobId, NodeIndex, RequestId},
    messages::{
        node::{JobCredential, NodeToController, SwitchPath},
        statistics::AccountingQueue,
    },
    packed_steps::StepTally,
    reservation::{Reservation, ReservationFlag},
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use garrick_plan::{
    policy::policy,
    rules::{fair::FairShares, priority},
    snapshot::{
        accounting::{Accounting, AccountingTable, PastUsage},
        qos::QosTable,
    },
    topology::Topologies,
};
use garrick_runtime::{
    Actor, ActorPath, Address, Board, BoardMap, Context, Lane, Message, PendingReply, ReplyTo, SendError, System,
    TraceContext,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Fair-share factors.
type Factors = BTreeMap<AssocId, f64>;

/// The views that owners publish.
#[derive(Clone, Debug, Default)]
pub struct Boards {
    /// Jobs.
    pub jobs: JobBoard,
    /// Counts of running jobs' step managers: apart from the jobs' views, since they change several times a second.
    pub steps: BoardMap<JobId, StepTally>,
    /// Nodes, by index.
    pub nodes: BoardMap<NodeIndex, NodeView>,
    /// Partitions, by position in the configuration.
    pub partitions: BoardMap<u32, PartitionView>,
    /// Reservations, by name.
    pub reservations: BoardMap<String, Reservation>,
}

impl Boards {
    /// Views of nodes, with the current state of reservations.
    pub fn nodes_shown(&self, now: Timestamp) -> Vec<Arc<NodeView>> {
        let mut nodes = self.nodes.list();
        // A partly reserved node is open to others.
        let whole = |r: &Arc<Reservation>| r.is_active(now) && r.core_ids.is_empty();
        let active = self.reservations.list().into_iter().filter(whole);
        for reservation in active {
            let own: BTreeSet<&str> = reservation.nodes.iter().map(String::as_str).collect();
            for node in nodes.iter_mut().filter(|node| own.contains(node.name.as_str())) {
                let flags = &mut Arc::make_mut(node).flags;
                if reservation.has(ReservationFlag::Maint) {
                    flags.maint = true;
                } else {
                    flags.reserved = true;
                }
            }
        }
        nodes
    }
}

/// The open connection to each node's agent, kept here so that neither the frontend nor a node's owner loses it in a panic.
#[derive(Clone, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, OpenLink>>>);

/// A connection's number and the way to the agent.
pub type OpenLink = (u64, Arc<dyn AgentLink>);

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenLink>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's agent has connected.
    pub fn open(&self, node: &str, conn: u64, link: Arc<dyn AgentLink>) {
        self.lock().insert(node.to_owned(), (conn, link));
    }

    /// The connection is closed. False if there is a newer one.
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
    /// The ports of the process.
    pub ports: Ports,
    /// Boards.
    pub boards: Boards,
    /// Saved state.
    pub committed: Committed,
    /// Unsaved state of jobs' owners that must survive a panic.
    pub leftovers: JobLeftovers,
    /// Jobs that are being saved.
    pub entering: Entering,
    /// Nodes' state.
    pub nodes: NodeCores,
    /// Links to agents.
    pub links: Links,
    /// Which jobs hold which licenses.
    pub licenses: LicenseOffice,
    /// What happened, for triggers.
    pub marks: Marks,
    /// What commands that watch a job are told of it.
    pub notices: Notices,
    /// What is counted for `sdiag`.
    pub counted: Arc<Counted>,
    /// Fresh ids.
    pub ids: IdSource,
    queries: AtomicU64,
    roster: Board<Arc<Roster>>,
    /// The roster that all have been told.
    told_roster: Board<Arc<Roster>>,
    /// The configuration as last read; the roster follows.
    file: Board<Arc<Config>>,
    node_site: Board<Arc<NodeSite>>,
    site: Board<Arc<JobSite>>,
    priority: Board<Option<Arc<priority::Rules>>>,
    qos: Board<Arc<QosTable>>,
    entities: Board<Arc<Entities>>,
    /// What follows from them.
    associations: Board<Arc<AccountingTable>>,
    /// For who computes that table.
    accounts_change: Mutex<()>,
    fair: Board<Arc<FairShares>>,
    /// What limits go by of them.
    factors: Board<Arc<Factors>>,
    /// Since when the service of accounting has been away.
    accounting_away: Mutex<Option<Timestamp>>,
    /// Topologies, and the configuration that they were made from.
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
            marks: Marks::default(),
            notices: Notices::default(),
            counted: Arc::default(),
            ids,
            queries: AtomicU64::new(0),
            file: Board::new(roster.base()),
            told_roster: Board::new(Arc::clone(&roster)),
            roster: Board::new(roster),
            node_site: Board::new(Arc::new(NodeSite::default())),
            site: Board::new(Arc::new(JobSite::default())),
            priority: Board::new(None),
            qos: Board::default(),
            entities: Board::default(),
            associations: Board::default(),
            accounts_change: Mutex::default(),
            fair: Board::default(),
            factors: Board::default(),
            accounting_away: Mutex::default(),
            topologies: RwLock::new(None),
        }
    }

    /// The configuration.
    pub fn config(&self) -> Arc<Config> {
        self.roster.read().config()
    }

    /// The nodes that exist.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.read().value.clone()
    }

    /// May a node of this name join the cluster?
    pub fn admits(&self, name: &str) -> Result<(), String> {
        self.roster.read().admits(name)
    }

    /// Replaces the roster, and so the configuration. Only for the roster's owner, which tells all others.
    pub fn set_roster(&self, roster: Arc<Roster>) {
        let config = roster.config();
        self.roster.publish(roster);
        self.renew_node_site(&config, self.job_site().epoch);
    }

    /// The roster that all have been told. If the roster's owner fails before all have been told a newer one, it continues from
    /// this.
    pub fn told_roster(&self) -> Arc<Roster> {
        self.told_roster.read().value.clone()
    }

    /// All have been told this roster. Only for the roster's owner.
    pub fn set_told_roster(&self, roster: Arc<Roster>) {
        self.told_roster.publish(roster);
    }

    /// The configuration as last read, without dynamic nodes. The roster uses it once the events that follow from it are saved.
    pub fn config_file(&self) -> Arc<Config> {
        self.file.read().value.clone()
    }

    /// Replaces it. Only for the roster's owner.
    pub fn set_config_file(&self, config: Arc<Config>) {
        self.file.publish(config);
    }

    /// Current settings for nodes.
    pub fn node_site(&self) -> Arc<NodeSite> {
        self.node_site.read().value.clone()
    }

    /// Computes the settings from a configuration.
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

    /// Switches above the nodes of an allocation, in its order; empty if its partition has no tree topology.
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

    /// The owner of triggers.
    pub fn triggers_owner(&self) -> Option<Address<TriggerMsg>> {
        self.system.find(&ActorPath::root().child("trigger"))
    }

    /// How often the configuration was read.
    pub fn configurations(&self) -> u64 {
        self.file.generation()
    }

    /// The owner of crontabs.
    pub fn crontabs_owner(&self) -> Option<Address<CrontabMsg>> {
        self.system.find(&ActorPath::root().child("crontab"))
    }

    /// Current settings for jobs.
    pub fn job_site(&self) -> Arc<JobSite> {
        self.site.read().value.clone()
    }

    /// The settings that follow from a configuration and the followers of the log.
    pub fn made_site(&self, config: &Config, epoch: u64) -> JobSite {
        let wanted = !config.enforce.has(EnforceWord::NoSteps);
        let keeps_step_records = wanted && self.ports.log.followers().contains_key(ACCOUNTING);
        JobSite { keeps_step_records, accounts: self.accounts(), ..job_site(config, epoch) }
    }

    /// What waits for the service of accounting: events that it has not acknowledged.
    pub fn accounting_queue(&self) -> AccountingQueue {
        let log = &self.ports.log;
        let Some(stored) = log.followers().get(ACCOUNTING).copied() else { return AccountingQueue::default() };
        let events = log.committed().0.saturating_sub(stored.0);
        let away_since = *self.accounting_away.lock().unwrap_or_else(PoisonError::into_inner);
        AccountingQueue { events, stored: stored.0, away_since }
    }

    /// The service of accounting is away from then on, unless it was already; `None`: it is there.
    pub fn set_accounting_away(&self, now: Option<Timestamp>) {
        let mut since = self.accounting_away.lock().unwrap_or_else(PoisonError::into_inner);
        *since = now.map(|now| since.unwrap_or(now));
    }

    /// Computes them again from the configuration.
    pub fn renew_job_site(&self) {
        self.set_job_site(Arc::new(self.made_site(&self.config(), self.job_site().epoch)));
    }

    /// Replaces them.
    pub fn set_job_site(&self, site: Arc<JobSite>) {
        self.site.publish(site);
    }

    /// How the scheduler last calculated priorities; `None`: not yet, or not calculated.
    pub fn priority_rules(&self) -> Option<Arc<priority::Rules>> {
        self.priority.read().value.clone()
    }

    /// Replaces that. Only for the scheduler.
    pub fn set_priority_rules(&self, rules: Option<Arc<priority::Rules>>) {
        self.priority.publish(rules);
    }

    /// The qualities of service; empty without an accounting database.
    pub fn qos(&self) -> Arc<QosTable> {
        self.qos.read().value.clone()
    }

    /// What accounting knows of this cluster's accounts, users, associations and QOS: the last copy that came. Nothing without
    /// accounting.
    pub fn entities(&self) -> Arc<Entities> {
        self.entities.read().value.clone()
    }

    /// The same for look-ups: which association and QOS a job has, and under which limits it is.
    pub fn accounts(&self) -> Arc<AccountingTable> {
        self.associations.read().value.clone()
    }

    /// A copy came from the service of accounting. Jobs have to be told of the site then ([`Self::tell_jobs_of_site`]): to whom runs are
    /// charged is in it.
    pub fn set_entities(&self, entities: Arc<Entities>) {
        let first = self.entities().associations.is_empty();
        self.licenses.lock().set_remote(entities.remote_licenses(&self.config().cluster_name));
        self.set_qos(QosTable::of_entities(&entities));
        self.entities.publish(entities);
        self.renew_accounts();
        self.renew_job_site();
        match first {
            true => fair::configured(self, Timestamp::now()),
            false => fair::keep(self, Timestamp::now()),
        }
    }

    /// Computes the table of what binds jobs from the entities and the configuration.
    pub fn renew_accounts(&self) {
        // The roster and the feed do so, each on its thread: none may publish what is older.
        let _one_at_a_time = self.accounts_change.lock().unwrap_or_else(PoisonError::into_inner);
        let (entities, config) = (self.entities(), self.config());
        let table = AccountingTable::new(&relative::resolved(&entities, &config), &config.cluster_name);
        self.associations.publish(Arc::new(table));
    }

    /// Fair shares as of the last calculation.
    pub fn fair_shares(&self) -> Arc<FairShares> {
        self.fair.read().value.clone()
    }

    /// Replaces them, and with them the factors that limits go by. Only for [`fair`].
    pub(super) fn set_fair_shares(&self, shares: Arc<FairShares>) {
        self.factors.publish(Arc::new(shares.factors()));
        self.fair.publish(shares);
    }

    /// What binds jobs of what accounting knows. What running jobs have is not counted in it, and what was used neither
    /// ([`fair::with_past`]).
    pub fn accounting(&self) -> Accounting {
        let config = self.config();
        Accounting {
            // Without accounting there is nothing to enforce.
            enforce: if config.accounting { config.enforce.clone() } else { Enforce::default() },
            table: self.accounts(),
            past: Arc::new(PastUsage { fair_share: self.factors.read().value.clone(), ..PastUsage::default() }),
            used: Arc::default(),
        }
    }

    /// Generations of what accounting knows and of fair shares.
    pub fn accounting_generations(&self) -> (u64, u64) {
        (self.associations.generation(), self.factors.generation())
    }

    /// Waits until either is newer.
    pub async fn accounting_changed(
        (associations, factors): (Board<Arc<AccountingTable>>, Board<Arc<Factors>>),
        seen: (u64, u64),
    ) {
        tokio::select! {
            _ = associations.changed(seen.0) => {}
            _ = factors.changed(seen.1) => {}
        }
    }

    /// The boards of both.
    pub fn accounting_boards(&self) -> (Board<Arc<AccountingTable>>, Board<Arc<Factors>>) {
        (self.associations.clone(), self.factors.clone())
    }

    /// Replaces them; they follow from what accounting knows ([`Self::set_entities`]).
    fn set_qos(&self, table: QosTable) {
        self.qos.publish(Arc::new(table));
    }

    /// A number for a question to agents, never reused.
    pub fn next_query(&self) -> u64 {
        self.queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The owner of steps.
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

    /// The owner of power saving.
    pub fn power(&self) -> Option<Address<PowerMsg>> {
        self.system.find(&ActorPath::root().child("power"))
    }

    /// The scheduler.
    pub fn scheduler(&self) -> Option<Address<SchedulerMsg>> {
        self.system.find(&ActorPath::root().child("scheduler"))
    }

    /// Appends an owner's events to the log; the returned future has the answer.
    pub fn append(&self, events: Vec<ControllerEvent>) -> PendingReply<Saved> {
        let (tell, pending) = ReplyTo::channel();
        let done = ReplyTo::calling(move |answer| tell.reply(log_outcome(answer)));
        self.ports.log.append(events, done);
        pending
    }

    /// Offers the log jobs that were submitted together; when they are saved they are committed and visible. The returned future
    /// has the answer. If nobody waits for it, the result can be found by the request id.
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
                // A job whose owner is running has published itself.
                if env.boards.jobs.get(&view.id).is_none() {
                    env.counted.job(None, &view);
                    env.boards.jobs.publish(view.id, view);
                }
            });
            tell.reply(saved);
        });
        self.ports.log.offer(events, done);
        pending
    }

    /// Delivers a letter. If the receiver does not exist, those that have to know are told.
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
                // The task can be found through the array, or by itself.
                self.show_job(*record, Timestamp::now());
                if let Some(supervisor) = self.jobs_supervisor() {
                    deliver(cx, &supervisor, JobsMsg::Start { key: job, seed: first });
                }
            }
            Letter::Crontabs(input) => {
                if let Some(owner) = self.crontabs_owner() {
                    deliver(cx, &owner, CrontabMsg::Input(input));
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
                // The supervisor knows whether the owner of that name is about to end; such an owner would not read it.
                if let Some(supervisor) = self.nodes_supervisor() {
                    let core = NodeCore::new(Timestamp::now(), *settings, self.node_site(), None, []);
                    // The requester may query it at once; the owner replaces this view.
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
                    deliver(cx, &supervisor, configured(&self.config(), read_again));
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
                if let Some(power) = self.power() {
                    deliver(cx, &power, PowerMsg::Input(PowerInput::Begin));
                }
            }
        }
    }

    /// Sends the current settings to all jobs.
    pub fn tell_jobs_of_site<A: Actor>(&self, cx: &mut Context<A>) {
        if let Some(supervisor) = self.jobs_supervisor() {
            let site = self.job_site();
            let news = JobsMsg::TellAll(Box::new(move || JobInput::Site(Arc::clone(&site))));
            deliver(cx, &supervisor, news);
        }
    }

    /// Sends an input to a job's owner. If it has no actor, the jobs' supervisor gets it, which knows whether the job is starting
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

    /// Publishes a saved job whose owner is about to start, so that its id can be queried. A running owner publishes itself.
    pub fn show_job(&self, record: JobRecord, now: Timestamp) {
        if self.boards.jobs.get(&record.id).is_none() {
            let view = self.first_view(record, now);
            self.boards.jobs.publish(view.id, Arc::new(view));
        }
    }

    fn first_view(&self, record: JobRecord, now: Timestamp) -> JobView {
        let mut view = JobCore::new(record, self.job_site()).view(now);
        // It must not be started before its owner is running.
        view.eligible = false;
        view
    }

    /// Passes a question to a job's owner, or to the jobs' supervisor if the owner is still starting. `None`: there is no such
    /// job.
    pub fn ask_job(&self, job: JobId, message: JobMsg) -> Option<Late> {
        if let Some(owner) = self.job(job) {
            return Some(mail(&owner, message));
        }
        let supervisor = self.jobs_supervisor().filter(|_| self.committed.has_job(job))?;
        Some(mail(&supervisor, JobsMsg::Deliver { key: job, message: Box::new(message) }))
    }

    /// An agent's heartbeat, with its load, goes directly to the node's owner: so nodes are not taken for silent however busy the
    /// frontend is. A connection that the owner does not know, or no longer, has no effect.
    pub fn heartbeat(&self, cx: TraceContext, node: &str, conn: u64, frame: Box<NodeToController>) {
        let Some(owner) = self.node(node) else { return };
        // If the mailbox is full, the next heartbeat follows.
        if let Err(error) = owner.deliver(cx, Lane::Normal, NodeMsg::Input(NodeInput::Frame { conn, frame })) {
            tracing::debug!(node, %error, "node.heartbeat_lost");
        }
    }
}

/// The rest of a send, if the mailbox was full.
pub type Late = Option<Pin<Box<dyn Future<Output = ()>>>>;

/// Sends a message that must arrive: if the mailbox is full, running the returned future sends it.
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

/// The same, with the future running beside the actor.
pub fn deliver<A: Actor, M: Message>(cx: &mut Context<A>, to: &Address<M>, message: M) {
    if let Some(late) = mail(to, message) {
        cx.spawn(late);
    }
}

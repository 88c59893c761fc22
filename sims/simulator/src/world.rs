//! The clock, the queue of events, and the participants. An event is one entry of the queue: a message that arrives, a timer, a
//! fault. Entries between two ends keep their order; the seed decides everything else.

use super::{
    Outcome, Setup,
    accounting::Known,
    controller::Outboxes,
    disk::{Disk, Writer},
    follower::Accountant,
    forgers::Forgers,
    ledger::{Counts, Ledger, Promises},
    lives::Lives,
    machine::Machine,
    mix::Mix,
    mutation::Mutation,
    passes::Scheduler,
    proposals::Watch,
    random::Random,
    reservations::{ShownReservations, some_reservations},
    roster::Members,
    rules::{RULES, Scope, Violation},
    site::{self, Draw},
    step_side::StepSide,
    stepds::{Launch, ToStepd},
    story::{Story, Subjects},
    submissions::Submitting,
};
use garrick_actors::{
    controller::shells::ids::IdSource,
    job::core::JobCore,
    license::account::LicenseAccount,
    messages::{
        job::{JobInput, JobTimer},
        node::{NodeInput, NodeSite, NodeTimer, Registration},
    },
    node::{core::NodeCore, settings::node_settings},
    partition::{core::PartitionCore, messages::PartitionInput},
    reservation::{core::ReservationsCore, owner::ReservationInput},
    roster::core::{RosterAsk, RosterInput},
    scheduler::messages::{SchedulerInput, SchedulerTimer},
};
use garrick_agent::{AgentInput, AgentTimer, RunKey};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    records::job_event::JobEvent,
};
use garrick_model::{
    config::Config,
    ids::{JobId, NodeIndex, RequestId, Sluid},
    messages::node::{ControllerToNode, Joining},
    node_shape::NodeShape,
    resources::MemoryMib,
    state::{JobState, Reason},
    time::Timestamp,
    view::{JobView, NodeView, PartitionView, StepCounts},
};
use garrick_plan::{
    plan::probe::Feasibility,
    policy::{partition_facts, policy},
    snapshot::facts::ClusterView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// When simulations begin: a date that reads as one.
pub(super) const BEGIN: Timestamp = Timestamp::from_secs(1_800_000_000);
/// `SlurmdTimeout`: for so long the controller waits for a node.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Everything is checked, not only what was touched, once in this many events.
const SWEEP: u64 = 1_000;

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Frontend,
    /// What owners show.
    Boards,
    /// The supervisor of jobs.
    Jobs,
    Scheduler,
    Disk,
    Job(JobId),
    Node(usize),
    /// The part of a node's link that is not held up by the rest.
    Control(usize),
    Agent(usize),
    Machine(usize),
    Stepd(usize, RunKey),
    Reservations,
    Partition(usize),
    Roster,
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Job(JobId, JobInput),
    Node(usize, NodeInput),
    JobTimer(JobId, JobTimer),
    NodeTimer(usize, NodeTimer),
    /// Something is shown that the scheduler has not looked at.
    Changed,
    Scheduler(SchedulerTimer),
    /// The scheduler has made a plan.
    Planned,
    /// A job's owner has taken or refused what the scheduler proposed.
    Outcome {
        job: JobId,
        pass: u64,
        accepted: bool,
    },
    /// The disk has done what it was given.
    Written,
    /// An owner's events are on disk.
    Saved(Writer, u64),
    /// A submission is on disk; for that life of the frontend.
    SubmissionSaved(RequestId, u64),
    /// A frame of the controller, on a connection.
    Frame(usize, u64, ControllerToNode),
    /// Of the machine, for the agent's life with this number.
    Agent(usize, u64, AgentInput),
    AgentTimer(usize, u64, AgentTimer),
    /// Inside a run.
    StepSide(RunKey),
    Prepared(usize, u64, Box<Launch>),
    StepdConnects(usize, RunKey),
    Stepd(usize, RunKey, ToStepd),
    Submit,
    Fault,
    Forge,
    Connect(usize),
    /// The agent dies, and another is started.
    AgentDies(usize),
    /// The controller dies.
    Crash,
    StepdDies(usize, RunKey),
    Reboots(usize),
    Resume(usize),
    Operator,
    Reservations(ReservationInput),
    ReservationTimer,
    Partition(usize, PartitionInput),
    /// An administrator sets it UP again.
    PartitionUp(usize),
    Roster(Box<RosterInput>),
    /// A machine's agent says what node it is to be.
    Joins(usize, Box<Registration>, Box<Joining>),
    /// A daemon is started that joins.
    Join(usize),
    /// The controller closes that link.
    Close(usize, u64),
}

impl Happening {
    /// Where it happens, and whether that is inside the controller: such things do not outlive it.
    fn place(&self) -> (Place, bool) {
        match self {
            Self::Job(job, _) | Self::JobTimer(job, _) => (Place::Job(*job), true),
            Self::Node(node, _) | Self::NodeTimer(node, _) => (Place::Node(*node), true),
            Self::Changed | Self::Scheduler(_) | Self::Planned | Self::Outcome { .. } => (Place::Scheduler, true),
            Self::Saved(Writer::Job(job), _) => (Place::Job(*job), true),
            Self::Saved(Writer::Node(node), _) => (Place::Node(*node), true),
            Self::Saved(Writer::Reservations, _) | Self::Reservations(_) | Self::ReservationTimer => {
                (Place::Reservations, true)
            }
            Self::Saved(Writer::Partition(partition), _) | Self::Partition(partition, _) => {
                (Place::Partition(*partition), true)
            }
            Self::Saved(Writer::Roster, _) | Self::Roster(_) => (Place::Roster, true),
            Self::Joins(..) => (Place::Frontend, true),
            Self::Written | Self::Saved(..) | Self::SubmissionSaved(..) => (Place::Disk, true),
            Self::Frame(node, ..) | Self::Agent(node, ..) | Self::AgentTimer(node, ..) => (Place::Agent(*node), false),
            Self::Prepared(node, ..)
            | Self::Connect(node)
            | Self::AgentDies(node)
            | Self::Reboots(node)
            | Self::Resume(node) => (Place::Machine(*node), false),
            Self::StepdConnects(node, run) | Self::Stepd(node, run, _) | Self::StepdDies(node, run) => {
                (Place::Stepd(*node, *run), false)
            }
            Self::Join(_)
            | Self::Close(..)
            | Self::PartitionUp(_)
            | Self::StepSide(_)
            | Self::Submit
            | Self::Fault
            | Self::Forge
            | Self::Crash
            | Self::Operator => (Place::Frontend, false),
        }
    }

    /// A line for the digest and for stories: which message, not all that is in it.
    fn line(&self) -> String {
        let shorten = |text: String| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        match self {
            Self::Job(job, input) => format!("job {} {}", job.0, shorten(format!("{input:?}"))),
            Self::Node(node, NodeInput::Frame { conn, frame }) => format!("node n{node} frame {conn} {frame:?}"),
            Self::Node(node, input) => format!("node n{node} {}", shorten(format!("{input:?}"))),
            Self::Frame(node, conn, frame) => format!("agent n{node} frame {conn} {}", shorten(format!("{frame:?}"))),
            Self::Agent(node, life, input) => format!("agent n{node} life {life} {}", shorten(format!("{input:?}"))),
            Self::Prepared(node, _, launch) => format!("machine n{node} prepared {:?}", launch.run),
            Self::Partition(partition, PartitionInput::Update { update, .. }) => {
                format!("partition {partition} {:?}", update.fields)
            }
            // A whole configuration has no order of its own.
            Self::Partition(partition, input) => format!("partition {partition} {}", shorten(format!("{input:?}"))),
            Self::Roster(input) => match &**input {
                RosterInput::Asked { request, ask: RosterAsk::Read(_) } => format!("roster {request} reads"),
                input => format!("roster {input:?}"),
            },
            other => format!("{other:?}"),
        }
    }
}

struct Entry {
    happening: Happening,
    /// A job and a node that this is between.
    pair: Option<(JobId, usize)>,
}

/// The simulated cluster. What rules read is public, and may be corrupted by tests of rules.
pub struct World {
    setup: Setup,
    pub(super) mix: Mix,
    pub(super) forgers: Forgers,
    pub(super) mutation: Option<Mutation>,
    pub(super) now: Timestamp,
    /// Between the controller's clock and the time that has passed.
    pub(super) clock_ahead_ms: i64,
    /// When that was stepped last.
    pub(super) clock_stepped: Timestamp,
    pub(super) random: Random,
    queue: BTreeMap<(Timestamp, u64), Entry>,
    next: u64,
    arrivals: BTreeMap<(Place, Place), Timestamp>,
    under_way: BTreeMap<(JobId, usize), u32>,
    pub(super) timers: BTreeMap<String, u64>,
    pub(super) config: Arc<Config>,
    pub(super) partitions: Vec<Arc<PartitionView>>,
    pub(super) feasibility: Feasibility,
    /// Jobs, or leaders of their components, of which it is known that what is left of the machines could hold them.
    pub(super) fit: BTreeSet<JobId>,
    /// Owner of reservations.
    pub(super) reservations: ReservationsCore,
    pub(super) shown_reservations: ShownReservations,
    /// Owners of partitions, in configuration order.
    pub(super) partition_cores: Vec<PartitionCore>,
    /// Who has how many licenses.
    pub licenses: LicenseAccount,
    /// Owners of jobs.
    pub jobs: BTreeMap<JobId, JobCore>,
    /// Owners of nodes, by the number in their names.
    pub nodes: BTreeMap<usize, NodeCore>,
    /// What holds for all of them.
    pub(super) node_site: Arc<NodeSite>,
    /// Which nodes there are.
    pub(super) members: Members,
    pub(super) shown_jobs: BTreeMap<JobId, Arc<JobView>>,
    pub(super) shown_nodes: BTreeMap<NodeIndex, Arc<NodeView>>,
    /// What was shown of each before that.
    pub(super) earlier_nodes: BTreeMap<NodeIndex, Arc<NodeView>>,
    pub(super) scheduler: Scheduler,
    /// What the scheduler said, and was not answered.
    pub(super) watch: Watch,
    pub(super) machines: Vec<Machine>,
    /// What runs inside runs that have steps.
    pub(super) step_sides: BTreeMap<RunKey, StepSide>,
    /// By when a run that gives way is to be told to end, in time that passes, and when that was recorded.
    giving_way: BTreeMap<Sluid, (Timestamp, Timestamp)>,
    /// Steps of such runs that are over, as their step managers counted them.
    pub(super) tallies: BTreeMap<Sluid, StepCounts>,
    /// Runs whose step managers have said that their time was over.
    pub(super) timed_out: BTreeSet<Sluid>,
    pub(super) ids: IdSource,
    pub(super) epoch: u64,
    pub(super) disk: Disk,
    /// Follows the log.
    pub(super) accountant: Accountant,
    /// What accounting knows of users and limits.
    pub(super) known: Known,
    /// The disk is slow until then.
    pub(super) slow_until: Timestamp,
    pub(super) outboxes: Outboxes,
    /// How often owners were built anew, and those that are about to be.
    pub(super) lives: Lives,
    /// When leaders of heterogeneous jobs that have no run, or none that goes on, came to that.
    pub(super) leaders_moved: BTreeMap<JobId, Timestamp>,
    /// Nodes that may not have heard what a job's failed owner had to say; it follows when they register again.
    pub(super) unheard: BTreeSet<(JobId, usize)>,
    /// The state that the journal gives so far, including what is not on disk yet.
    pub replayed: Replayed,
    /// What was recorded so far, with what is not on disk.
    pub ledger: Ledger,
    /// The same of what is on disk.
    pub saved: Ledger,
    /// What others rely on.
    pub promises: Promises,
    pub(super) submissions: Submitting,
    /// Requests to cancel that wait for an answer, with the run that they are about.
    pub(super) cancels: BTreeMap<u64, Sluid>,
    pub(super) requests: u64,
    /// A rule that was broken in the middle of an event.
    pub(super) broken: Option<(&'static str, String)>,
    /// The next submission is planned.
    pub(super) submitting: bool,
    /// Runs that a node held when it was drained, while it is.
    pub held_at_drain: Vec<Option<BTreeSet<(JobId, Sluid)>>>,
    pub(super) touched: Scope,
    pub(super) submitted: u32,
    pub(super) connections: u64,
    events: u64,
    next_sweep: u64,
    digest: u64,
    story: Story,
    calm: Option<Calm>,
}

/// Faults have stopped, and what there was to do goes on.
#[derive(Clone, Copy, Debug)]
struct Calm {
    since: Timestamp,
    /// Less was left to do at that time and after so many events.
    progress: (Timestamp, u64),
    left: usize,
}

impl World {
    /// All agents about to connect, nothing submitted.
    pub fn new(setup: Setup) -> Self {
        Self::with(setup, None, None)
    }

    /// The same with a bug put in, and a story about somebody.
    pub fn with(setup: Setup, mutation: Option<Mutation>, about: Option<Subjects>) -> Self {
        let mix = Mix::of_seed(setup.seed);
        let config = Arc::new(site::config(setup.nodes.max(2), &mix, &Draw::FIRST));
        let known = Known::of_seed(setup.seed, setup.nodes.max(2), mix.limits);
        let cores = config.partitions.iter().filter_map(|p| PartitionCore::new(&config, &p.name, Default::default()));
        let partitions: Vec<Arc<PartitionView>> = cores.map(|core| Arc::new(core.view())).collect();
        let policy = policy(&config);
        let feasibility = feasibility(&config, &partitions);
        let mut machines: Vec<Machine> = config.nodes.iter().map(Machine::new).collect();
        let files = machines.len();
        let extra = 0..site::joiners(setup.nodes.max(2), &mix) as usize;
        machines.extend(extra.map(|number| Machine::not_there(files + number, &config.nodes[0])));
        let count = machines.len();
        let mut world = Self {
            setup,
            forgers: Forgers::of_seed(setup.seed, mix.forgers, files),
            mix,
            mutation,
            now: BEGIN,
            clock_ahead_ms: 0,
            clock_stepped: Timestamp::default(),
            random: Random::new(setup.seed),
            queue: BTreeMap::new(),
            next: 0,
            arrivals: BTreeMap::new(),
            under_way: BTreeMap::new(),
            timers: BTreeMap::new(),
            machines,
            members: Members::new(Arc::clone(&config), BTreeMap::new()),
            node_site: Arc::default(),
            config,
            partitions,
            feasibility,
            fit: BTreeSet::new(),
            reservations: ReservationsCore::default(),
            shown_reservations: ShownReservations::default(),
            partition_cores: Vec::new(),
            licenses: LicenseAccount::default(),
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            shown_jobs: BTreeMap::new(),
            earlier_nodes: BTreeMap::new(),
            shown_nodes: BTreeMap::new(),
            scheduler: Scheduler::new(policy),
            watch: Watch::default(),
            step_sides: BTreeMap::new(),
            giving_way: BTreeMap::new(),
            tallies: BTreeMap::new(),
            timed_out: BTreeSet::new(),
            ids: IdSource::new(|| 7, |_| false),
            epoch: 0,
            disk: Disk::new(mutation == Some(Mutation::TasksAreMarkedBeforeTheyExist), setup.seed),
            slow_until: BEGIN,
            outboxes: Outboxes::default(),
            lives: Lives::default(),
            leaders_moved: BTreeMap::new(),
            unheard: BTreeSet::new(),
            replayed: Replayed::default(),
            ledger: Ledger::default(),
            saved: Ledger::default(),
            promises: Promises::default(),
            submissions: Submitting::default(),
            accountant: Accountant::default(),
            known,
            cancels: BTreeMap::new(),
            requests: 0,
            broken: None,
            submitting: true,
            held_at_drain: vec![None; count],
            touched: Scope::default(),
            submitted: 0,
            connections: 0,
            events: 0,
            next_sweep: SWEEP,
            digest: 0xcbf2_9ce4_8422_2325,
            story: Story::new(about),
            calm: None,
        };
        world.begin(files);
        world
    }

    /// The controller starts, and the agents of the nodes of the file; the other nodes join later.
    fn begin(&mut self, files: usize) {
        let mut replayed = Replayed::default();
        replayed.reservations = some_reservations(BEGIN, self.setup.nodes.max(2));
        self.start_controller(replayed);
        for node in 0..files {
            self.begin_agent(node);
            self.after(50, Happening::Connect(node));
        }
        for node in files..self.machines.len() {
            let pause = self.random.between(0, 90_000);
            self.after(u64::from(pause), Happening::Join(node));
        }
        for (ms, first) in [(500, Happening::Submit), (20_000, Happening::Fault)] {
            self.after(ms, first);
        }
        if self.forgers.are_there() {
            self.after(10_000, Happening::Forge);
        }
    }

    /// Sizes and seed.
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The clock.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// What a node has to give.
    pub fn shape(&self, node: usize) -> NodeShape {
        let gives = self.members.shapes.get(&node);
        gives.map_or_else(NodeShape::default, |gives| NodeShape {
            memory: MemoryMib(gives.most),
            cpus: gives.most_cpus,
            ..gives.shape.clone()
        })
    }

    /// What is on machines of runs.
    pub fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.machines.iter().filter(|machine| !machine.is_empty()).map(|machine| format!("{machine:?}"))
    }

    /// Is something between this job and this node on its way, or waiting for the disk?
    pub fn is_under_way(&self, job: JobId, node: usize) -> bool {
        self.under_way.contains_key(&(job, node))
            || self.outboxes.jobs.contains_key(&job)
            || !self.outboxes.nodes[node].is_empty()
    }

    /// May the node have missed what the job's owner had to say when that failed, not having registered since?
    pub fn may_have_missed(&self, job: JobId, node: usize) -> bool {
        self.unheard.contains(&(job, node))
    }

    /// Does something of the job wait for the disk?
    pub fn waits_for_disk(&self, job: JobId) -> bool {
        self.outboxes.jobs.contains_key(&job)
    }

    /// Is the job on its way to the disk, without an owner yet?
    pub fn is_being_split_off(&self, job: JobId) -> bool {
        let array = self.replayed.jobs.get(&job).and_then(|record| record.array_task).map(|task| task.array_job);
        let enters = self.disk.is_entering(job) || self.submissions.is_entering(job);
        enters || array.is_some_and(|array| self.outboxes.jobs.contains_key(&array))
    }

    /// Nodes that are being asked or told something by jobs.
    pub(super) fn asked_nodes(&self) -> Vec<usize> {
        self.under_way.keys().map(|(_, node)| *node).collect()
    }

    pub(super) const fn is_calm(&self) -> bool {
        self.calm.is_some()
    }

    /// Takes the next entry of the queue and checks the rules on what it touched.
    pub fn step(&mut self) -> Result<(), Box<Violation>> {
        let Some(((at, seq), entry)) = self.queue.pop_first() else {
            return Err(self.violation(super::rules::DRAINS, "nothing is left to happen".to_owned()));
        };
        self.now = at;
        if let Some(pair) = entry.pair {
            self.forget_pair(pair);
        }
        if !self.is_current(&entry.happening, seq) {
            return Ok(());
        }
        self.events += 1;
        let line = entry.happening.line();
        let whole = self.story.wants_all().then(|| format!("{:?}", entry.happening));
        self.tell_whole(&line, whole.as_deref());
        self.happen(entry.happening);
        let mut scope = std::mem::take(&mut self.touched);
        scope.promises = std::mem::take(&mut self.promises.news);
        if let Some((rule, what)) = self.broken.take() {
            return Err(self.violation(rule, what));
        }
        if scope.all || self.events >= self.next_sweep {
            self.next_sweep = self.events + SWEEP;
            return self.check_all();
        }
        self.check(&scope)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Job(job, input) => self.tell_job(job, input),
            Happening::Node(node, input) => self.tell_node(node, input),
            Happening::JobTimer(job, timer) => self.tell_job(job, JobInput::Timer(timer)),
            Happening::NodeTimer(node, timer) => self.tell_node(node, NodeInput::Timer(timer)),
            Happening::Changed => self.tell_scheduler(SchedulerInput::Changed),
            Happening::Scheduler(timer) => self.tell_scheduler(SchedulerInput::Timer(timer)),
            Happening::Planned => self.planned(),
            Happening::Outcome { job, pass, accepted } => {
                let lost = self.answer_is_lost();
                if !(lost && self.has(Mutation::OutcomesAreForgotten)) {
                    self.note_answer(job, pass);
                }
                if !lost {
                    self.tell_scheduler(SchedulerInput::Outcome { pass, accepted });
                }
            }
            Happening::Written => self.written(),
            Happening::Saved(owner, batch) => self.is_saved(owner, batch),
            Happening::SubmissionSaved(id, life) => self.submission_is_saved(id, life),
            Happening::Frame(node, conn, frame) => self.frame_for_agent(node, conn, frame),
            Happening::Agent(node, life, input) => self.tell_agent(node, life, input),
            Happening::AgentTimer(node, life, timer) => {
                self.tell_agent(node, life, AgentInput::Timer { timer, load: Default::default() });
            }
            Happening::Prepared(node, life, launch) => self.prepared(node, life, *launch),
            Happening::StepdConnects(node, run) => self.stepd_connects(node, run),
            Happening::Stepd(node, run, what) => self.tell_stepd(node, run, what),
            Happening::StepSide(run) => self.step_side_turn(run),
            Happening::Submit => self.submit_some(),
            Happening::Fault => self.fault(),
            Happening::Forge => self.forge(),
            Happening::Connect(node) => self.connect(node),
            Happening::AgentDies(node) => self.restart_agent(node),
            Happening::Crash => self.restart_controller(),
            Happening::StepdDies(node, run) => {
                self.kill_stepd(node, run);
            }
            Happening::Reboots(node) => self.reboots(node),
            Happening::Resume(node) => self.resume_node(node),
            Happening::Operator => self.operate(),
            Happening::Reservations(input) => self.tell_reservations(input),
            Happening::ReservationTimer => self.tell_reservations(ReservationInput::Tick),
            Happening::Partition(partition, input) => self.tell_partition(partition, input),
            Happening::PartitionUp(partition) => self.set_partition(partition, "UP"),
            Happening::Roster(input) => self.tell_roster(*input),
            Happening::Joins(node, registration, joining) => self.joins(node, registration, joining),
            Happening::Join(node) => self.start_joining(node),
            Happening::Close(node, conn) => self.close(node, conn),
        }
    }

    /// Timers that were set again or cleared have another number.
    fn is_current(&mut self, happening: &Happening, seq: u64) -> bool {
        let Some(key) = timer_key(happening) else { return true };
        let current = self.timers.get(&key) == Some(&seq);
        if current {
            self.timers.remove(&key);
        }
        current
    }

    /// Schedules something that is no message between two places.
    pub(super) fn after(&mut self, ms: u64, happening: Happening) {
        self.put(self.now.plus(Duration::from_millis(ms)), happening, None);
    }

    fn put(&mut self, at: Timestamp, happening: Happening, pair: Option<(JobId, usize)>) -> u64 {
        self.next += 1;
        self.queue.insert((at, self.next), Entry { happening, pair });
        self.next
    }

    /// Sets a timer, in place of one of the same name.
    pub(super) fn set_timer(&mut self, at: Timestamp, happening: Happening) {
        if let Some(key) = timer_key(&happening) {
            let seq = self.put(at.max(self.now), happening, None);
            self.timers.insert(key, seq);
        }
    }

    /// The controller's clock.
    pub(super) fn clock(&self) -> Timestamp {
        Timestamp(self.now.0 + self.clock_ahead_ms)
    }

    /// Sets a timer to a time of the controller's clock; from then on it runs whatever happens to the clock.
    pub(super) fn set_clock_timer(&mut self, at: Timestamp, happening: Happening) {
        let after = at.since(self.clock());
        self.set_timer(self.now.plus(after), happening);
    }

    pub(super) fn clear_timer(&mut self, happening: &Happening) {
        if let Some(key) = timer_key(happening) {
            self.timers.remove(&key);
        }
    }

    /// Sends: behind what is on its way between the same two ends, late now and then, and sometimes twice.
    pub(super) fn send(&mut self, from: Place, happening: Happening) {
        let (to, inside) = happening.place();
        let on_link = matches!(happening, Happening::Frame(..)) || matches!(from, Place::Agent(_));
        let (usual, late, times) = if on_link { (200, 8_000, 30) } else { (20, 9_000, 50) };
        let repeatable = matches!(happening, Happening::Frame(..) | Happening::Job(..) | Happening::Node(..))
            && !matches!(from, Place::Frontend);
        let copies = if !self.is_calm() && repeatable && self.random.one_in_thousand(self.mix.twice) { 2 } else { 1 };
        let from = match &happening {
            // Orders that must get through have a stream of their own: they overtake the others.
            Happening::Frame(node, _, frame) if is_control(frame) => Place::Control(*node),
            _ => from,
        };
        if let Happening::Frame(node, _, frame) = &happening
            && self.is_refused(*node, frame)
        {
            self.ledger.counts.add("link closed for being busy");
            return self.break_link(*node);
        }
        let pair = match (from, to) {
            (Place::Job(job), Place::Node(node)) | (Place::Node(node), Place::Job(job)) if inside => Some((job, node)),
            _ => None,
        };
        for _ in 0..copies {
            let most = if !self.is_calm() && self.random.one_in_thousand(times) { late } else { usual };
            let at = self.now.plus(Duration::from_millis(u64::from(self.random.between(0, most))));
            let last = self.arrivals.entry((from, to)).or_insert(at);
            *last = at.max(*last);
            let at = *last;
            if let Some(pair) = pair {
                *self.under_way.entry(pair).or_insert(0) += 1;
            }
            self.put(at, happening.clone(), pair);
        }
        if copies > 1 {
            self.ledger.counts.add("message delivered twice");
        }
    }

    /// A link whose queue is full takes no more and is closed, as the controller's are.
    fn is_refused(&mut self, node: usize, frame: &ControllerToNode) -> bool {
        let first = matches!(frame, ControllerToNode::Welcome { .. });
        !first && !self.is_calm() && (self.machines[node].busy_until > self.now || self.random.one_in_thousand(2))
    }

    fn forget_pair(&mut self, pair: (JobId, usize)) {
        if let Some(count) = self.under_way.get_mut(&pair) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&pair);
            }
            // What is allowed only while something is under way is judged again now.
            self.touched.nodes.insert(pair.1);
        }
    }

    /// What was under way to a node's owner that has ended. Agents' frames are the frontend's first.
    pub(super) fn lose_messages_to_owner(&mut self, node: usize) {
        let lost = |happening: &Happening| match happening {
            Happening::Node(to, NodeInput::Frame { .. } | NodeInput::Registered(_) | NodeInput::LinkGone { .. }) => {
                let _ = to;
                false
            }
            Happening::Node(to, _) => *to == node,
            _ => false,
        };
        let pairs: Vec<(JobId, usize)> =
            self.queue.extract_if(.., |_, entry| lost(&entry.happening)).filter_map(|(_, entry)| entry.pair).collect();
        pairs.into_iter().for_each(|pair| self.forget_pair(pair));
        let own = format!("node {node} ");
        self.timers.retain(|key, _| !key.starts_with(&own));
    }

    /// Machines, partitions or their settings are others.
    pub(super) fn forget_feasibility(&mut self) {
        self.feasibility = feasibility(&self.config, &self.partitions);
        self.fit.clear();
    }

    /// What was under way inside the controller is lost with it.
    pub(super) fn lose_controller_messages(&mut self) {
        self.queue.retain(|_, entry| !entry.happening.place().1);
        self.under_way.clear();
        self.timers.retain(|key, _| key.starts_with("agent"));
    }

    /// Frames on a broken connection do not arrive.
    pub(super) fn lose_frames(&mut self, conn: u64) {
        self.queue.retain(|_, entry| match &entry.happening {
            Happening::Frame(_, on, _) | Happening::Node(_, NodeInput::Frame { conn: on, .. }) => *on != conn,
            Happening::Node(_, NodeInput::Registered(registration)) | Happening::Joins(_, registration, _) => {
                registration.conn != conn
            }
            _ => true,
        });
    }

    /// Takes note of an event that is to be saved.
    pub(super) fn record(&mut self, event: &ControllerEvent) {
        if let ControllerEvent::Job { job, event } = event {
            self.against_cancellations(*job, event);
            self.against_tallies(*job, event);
            self.against_limits(*job, event);
            if let JobEvent::Unfenced { .. } = &**event {
                self.ledger.counts.add("run given up that does not know");
            }
            self.against_dependencies(*job, event);
            if let JobEvent::Allocated(run) = &**event {
                self.against_reservations(*job, run);
                self.against_partition(*job, run);
            }
            self.note_leader(*job, event);
            if let (JobEvent::Preempted(mark), Some(note)) = (&**event, self.ledger.jobs.get(job))
                && let Some(run) = note.run
            {
                let by = self.now.plus(mark.times.ends.since(self.clock()));
                self.giving_way.insert(run, (by, self.now));
            }
            self.touched.jobs.insert(*job);
            let more = match &**event {
                JobEvent::Allocated(run) => run.allocation.nodes.iter().map(|n| format!(" {}", n.name)).collect(),
                JobEvent::Ended(end) => format!(" {:?} {:?}", end.state, end.reason),
                JobEvent::NodeReleased { node, .. } | JobEvent::NodeKept { node } => format!(" {node}"),
                JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => format!(" {}", record.sluid),
                _ => String::new(),
            };
            let line = format!("  journal: job {} {}{more}", job.0, event.name());
            self.tell(&line);
        }
        self.ledger.note(event);
        if let Err(error) = self.replayed.apply(event) {
            // Shows as a difference between what is live and what is replayed.
            self.tell(&format!("  journal: {error}"));
        }
    }

    /// A job that is forgotten had, in the end, the steps that its step manager counted.
    fn against_tallies(&mut self, job: JobId, event: &JobEvent) {
        let Some(record) = self.replayed.jobs.get(&job).filter(|_| matches!(event, JobEvent::Purged)) else { return };
        if let Some(counted) = self.tallies.remove(&record.sluid)
            && counted != record.steps.counts
        {
            let what = format!("job {}: {:?} are recorded, its step manager had {counted:?}", job.0, record.steps);
            self.broken = Some(("the_controller_counts_the_steps_that_were", what));
        }
    }

    /// A run that its step manager ended for its time did not end by itself.
    fn against_limits(&mut self, job: JobId, event: &JobEvent) {
        let JobEvent::Ended(end) = event else { return };
        let by_itself = match end.state {
            JobState::Completed => true,
            JobState::Failed => matches!(end.reason, Reason::None | Reason::NonZeroExitCode),
            _ => false,
        };
        let run = self.ledger.jobs.get(&job).and_then(|note| note.run).filter(|run| self.timed_out.contains(run));
        // What somebody had asked for before is recorded, where its step manager's word does not arrive any more.
        // The job's owner may be further already: it is queued again in the same turn.
        let before = self.replayed.jobs.get(&job).and_then(|record| record.phase.run());
        let asked = before.is_some_and(|run| run.ending.is_some());
        if let Some(run) = run.filter(|_| by_itself && !asked) {
            let what =
                format!("run {run} of job {} was ended by its time limit and is recorded as {:?}", job.0, end.state);
            self.broken = Some(("a_run_ends_when_its_time_is_over", what));
        }
    }

    /// For how long a run should have been told to end, since it gives way; and was the controller's clock stepped meanwhile?
    pub fn gives_way_late(&self, run: Sluid) -> Option<(Duration, bool)> {
        let (by, noted) = self.giving_way.get(&run)?;
        Some((self.now.since(*by), self.clock_stepped >= *noted))
    }

    fn against_cancellations(&mut self, job: JobId, event: &JobEvent) {
        let run = self.ledger.jobs.get(&job).and_then(|note| note.run);
        if let (JobEvent::Allocated(_), Some(run)) = (event, run)
            && self.promises.cancelled.contains(&run)
        {
            let what = format!("run {run} of job {} was given nodes after its cancellation was answered", job.0);
            self.broken = Some(("what_was_cancelled_does_not_start", what));
        }
    }

    /// Adds a line to the digest and to the story.
    pub(super) fn tell(&mut self, line: &str) {
        self.tell_whole(line, None);
    }

    fn tell_whole(&mut self, line: &str, whole: Option<&str>) {
        let line = format!("{:>12} {line}", self.now.0 - BEGIN.0);
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.story.tell(line, whole);
    }

    /// What was told so far.
    pub fn story(&self) -> String {
        self.story.text()
    }

    /// Events so far.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// How often each thing happened so far.
    pub const fn counts(&self) -> &Counts {
        &self.ledger.counts
    }

    fn check(&self, scope: &Scope) -> Result<(), Box<Violation>> {
        RULES.iter().try_for_each(|(name, rule)| rule(self, scope).map_err(|what| self.violation(name, what)))
    }

    /// All rules on everything.
    pub fn check_all(&self) -> Result<(), Box<Violation>> {
        let jobs = self.jobs.keys().chain(self.ledger.jobs.keys()).copied().collect();
        let promises = self.promises.all().collect();
        self.check(&Scope { jobs, nodes: self.nodes.keys().copied().collect(), promises, all: true })
    }

    /// Messages inside a run are events too.
    pub(super) fn count_events(&mut self, events: u64) {
        self.events += events.saturating_sub(1);
        self.tell(&format!("  {events} messages in it"));
    }

    /// A violation, now.
    pub fn violation(&self, rule: &'static str, what: String) -> Box<Violation> {
        let at_secs = self.now.since(BEGIN).as_secs();
        Box::new(Violation { rule, what, event: self.events, at_secs, story: self.story.text() })
    }

    /// All is submitted and enough went wrong.
    pub const fn may_calm_down(&self) -> bool {
        self.submitted >= self.setup.jobs && self.events >= self.setup.events
    }

    /// No more faults; an operator puts right what waits for one.
    pub fn calm_down(&mut self) {
        self.calm = Some(Calm { since: self.now, progress: (self.now, self.events), left: self.left_to_do() });
        self.after(0, Happening::Operator);
        if self.mix.limits {
            self.lift_limits();
        }
        self.end_forging();
    }

    /// Simulated seconds since then.
    pub fn calm_secs(&self) -> u64 {
        self.calm.map_or(0, |calm| self.now.since(calm.since).as_secs())
    }

    /// Simulated seconds and events since less was left to do, as far as was looked at.
    pub fn since_progress(&self) -> (u64, u64) {
        self.calm
            .map_or((0, 0), |Calm { progress: (at, events), .. }| (self.now.since(at).as_secs(), self.events - events))
    }

    /// Jobs that are not over, and tasks of arrays that are no jobs yet.
    pub fn left_to_do(&self) -> usize {
        let waiting = |core: &JobCore| core.record().array.as_ref().map_or(0, |array| array.pending.len());
        self.jobs.values().filter(|core| !core.is_over()).map(|core| 1 + waiting(core)).sum()
    }

    /// Looks whether less is left to do than when that was looked at last.
    pub fn makes_progress(&mut self) -> bool {
        let (left, now, events) = (self.left_to_do(), self.now, self.events);
        let Some(calm) = self.calm.as_mut().filter(|calm| left < calm.left) else { return false };
        (calm.left, calm.progress) = (left, (now, events));
        true
    }

    /// Nothing is left to do.
    pub fn is_drained(&self) -> bool {
        self.under_way.is_empty()
            && self.jobs.values().all(JobCore::is_over)
            && self.nodes.values().all(|core| core.kept().is_empty())
            && self.all_have_joined()
            && self.machines.iter().all(Machine::is_empty)
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            events: self.events,
            digest: self.digest,
            counts: self.ledger.counts.clone(),
            simulated_secs: self.now.since(BEGIN).as_secs(),
        }
    }
}

/// What could ever run, whatever is the case now.
fn feasibility(config: &Config, partitions: &[Arc<PartitionView>]) -> Feasibility {
    let first = |node| Arc::new(NodeCore::new(BEGIN, node_settings(node), Arc::default(), None, []).view());
    let nodes: Vec<Arc<NodeView>> = config.nodes.iter().map(first).collect();
    let facts = partitions.iter().map(|p| partition_facts(p, config.node_places())).collect();
    Feasibility::new(ClusterView::new(policy(config), &[], &nodes, facts))
}

/// As the controller's links have it.
const fn is_control(frame: &ControllerToNode) -> bool {
    matches!(frame, ControllerToNode::Ping { .. } | ControllerToNode::EndJob { .. } | ControllerToNode::Shutdown)
}

fn timer_key(happening: &Happening) -> Option<String> {
    match happening {
        Happening::ReservationTimer => Some("reservations".to_owned()),
        Happening::Scheduler(timer) => Some(format!("scheduler {timer:?}")),
        Happening::Planned => Some("scheduler plans".to_owned()),
        Happening::JobTimer(job, timer) => Some(format!("job {} {timer:?}", job.0)),
        Happening::NodeTimer(node, timer) => Some(format!("node {node} {timer:?}")),
        Happening::AgentTimer(node, life, timer) => Some(format!("agent {node} {life} {timer:?}")),
        _ => None,
    }
}

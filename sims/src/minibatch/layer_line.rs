//! The cores of a step manager, its steps, a shepherd, the journal and the frames between the processes, connected in one thread
//! with a simulated launcher: the production code without its sockets and mailboxes, with a meter at each.

use super::layer_meter::Meter;
use garrick_daemon::journal::{JournalError, Log};
use garrick_events::steps::event::StepEvent;
use garrick_frame::{Decoder, FrameError, codec, limits};
use garrick_model::{
    batch::{BatchMembers, CommandList, StepBatch},
    ids::{JobId, NodeIndex, RequestId, Sluid, StepKey},
    messages::{
        command::Caller,
        launcher::{FromLauncher, ToLauncher},
        shepherd::StepMgrToShepherd,
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdToNode},
    },
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib},
    spec::{JobSpec, StepSharing, StepSpec, StreamTarget},
    state::ExitStatus,
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::AllocatedNode,
};
use garrick_run::{
    shepherd::{ShepherdConfig, ShepherdCore, ShepherdEffect, ShepherdInput},
    step::{NodeSlot, StepCore, StepEffect, StepInput, StepPlan},
    stepmgr::{ClientId, Ledger, RunFacts, StepMgrConfig, StepMgrCore, StepMgrEffect, StepMgrInput, StepMgrTimer},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;
use std::{
    collections::{BTreeMap, VecDeque},
    os::unix::ffi::OsStringExt,
    sync::Arc,
};

/// CPUs of the made-up node: as many steps run at a time.
const CPUS: u32 = 2;
/// Ends between two reports: what half a second brings at 1,500 a second.
const ENDS_PER_REPORT: usize = 750;

/// Where CPU time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// `srun`: packing a request.
    Send,
    /// `stepd`: reading a request, numbering, answering.
    Accept,
    /// `stepd`: encoding journal records and writing them into the file. Syncing is another thread's.
    Journal,
    /// `stepd`: an end is recorded, and the next step picked, placed and started.
    Place,
    /// `stepd`: the running step's own state.
    Step,
    /// `stepd`: tasks and their ends on the node.
    Shepherd,
    /// `stepd`: packing orders to the launcher and reading what it says.
    StepdFrames,
    /// Launcher: reading orders and packing what it says.
    LauncherFrames,
    /// `stepd`: reports to the agent.
    Report,
}

/// A line that did not work.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// A frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An answer that should not have come.
    #[error("unexpected answer: {0}")]
    Answer(String),
    /// Steps that are not accounted for.
    #[error("{sent} steps were sent and {ended} ended")]
    Lost {
        /// Sent.
        sent: usize,
        /// Ended well.
        ended: u64,
    },
}

enum Delivery {
    Manager(StepMgrInput),
    Step(StepKey, StepInput),
    Shepherd(ShepherdInput),
}

/// See the module.
pub struct Line {
    /// What was measured.
    pub meter: Meter<Layer>,
    core: StepMgrCore,
    steps: BTreeMap<StepKey, StepCore>,
    shepherd: ShepherdCore,
    under_way: VecDeque<Delivery>,
    /// Tokens of made-up processes, the oldest first.
    running: VecDeque<(u64, u32)>,
    next_pid: u32,
    journal: Log<StepEvent>,
    report_wanted: bool,
    unreported: usize,
    accepted: usize,
    requests: u64,
    now: Timestamp,
}

/// A frame's way from one process to another, each half put down to the layer that does it.
fn across<T: Serialize + DeserializeOwned>(
    meter: &mut Meter<Layer>,
    message: &T,
    limit: usize,
    sender: Layer,
    receiver: Layer,
) -> Result<T, LineError> {
    let bytes = meter.time(sender, || codec::encode(message, limit))?;
    let decoded = meter.time(receiver, || {
        let mut decoder = Decoder::new(limit);
        decoder.feed(&bytes);
        decoder.next::<T>()
    })?;
    decoded.ok_or_else(|| LineError::Answer("half a frame".to_owned()))
}

impl Line {
    /// A run that has begun, its journal in `journal`.
    pub fn new(journal: Log<StepEvent>) -> Result<Self, LineError> {
        let facts = facts();
        let node = ShepherdConfig::new(facts.job, "n1", "/run/garrick/made-up.sock", CpuSet::from(0..CPUS));
        let mut line = Self {
            meter: Meter::calibrated(),
            core: StepMgrCore::new(Arc::new(facts), StepMgrConfig::default(), Ledger::default()),
            steps: BTreeMap::new(),
            shepherd: ShepherdCore::new(node),
            under_way: VecDeque::new(),
            running: VecDeque::new(),
            next_pid: 1,
            journal,
            report_wanted: false,
            unreported: 0,
            accepted: 0,
            requests: 0,
            now: Timestamp::now(),
        };
        let caller = Caller { uid: 1000, gid: 1000, pid: 1, host: "n1".into() };
        line.under_way.extend([
            Delivery::Manager(StepMgrInput::Begin),
            Delivery::Shepherd(ShepherdInput::LauncherUp { first: true }),
            Delivery::Manager(StepMgrInput::ShepherdUp { node: NodeSlot(0) }),
            Delivery::Manager(StepMgrInput::ClientOpened { client: ClientId(1), caller }),
        ]);
        line.settle()?;
        // Setting up is nobody's cost.
        line.meter = Meter::calibrated();
        Ok(line)
    }

    /// Sends so many steps in requests of `each` and runs them to their ends, as in production: the next request while those
    /// before it wait or run. With `drain`, nothing is sent before all that was is over.
    pub fn run(&mut self, count: usize, each: usize, drain: bool) -> Result<(), LineError> {
        let (accepted, done) = (self.accepted, self.core.counts().done);
        let mut left = count;
        while left > 0 {
            let size = each.min(left);
            left -= size;
            self.enqueue(size)?;
            if drain {
                self.end_all()?;
            }
        }
        self.end_all()?;
        self.report()?;
        let ended = self.core.counts().done - done;
        if (self.accepted - accepted, ended) == (count, count as u64) {
            Ok(())
        } else {
            Err(LineError::Lost { sent: count, ended })
        }
    }

    fn enqueue(&mut self, size: usize) -> Result<(), LineError> {
        self.requests += 1;
        let request = RequestId(0, self.requests);
        let first = self.accepted;
        let message = self.meter.time(Layer::Send, || {
            let mut list = CommandList::default();
            for n in first..first + size {
                list.push([&b"/bin/true"[..], n.to_string().as_bytes()], 0);
            }
            let batch = StepBatch { specs: vec![spec()], members: BatchMembers::Commands(list) };
            CommandToStepMgr::Enqueue { request, batch: Box::new(batch) }
        });
        let message = across(&mut self.meter, &message, limits::DOOR, Layer::Send, Layer::Accept)?;
        self.under_way.push_back(Delivery::Manager(StepMgrInput::Client { client: ClientId(1), message }));
        self.settle()
    }

    fn end_all(&mut self) -> Result<(), LineError> {
        while let Some((token, pid)) = self.running.pop_front() {
            let (status, usage) = (ExitStatus::SUCCESS, TaskUsage::default());
            let message = FromLauncher::Exited { token, pid, status, usage, survivors: false };
            self.from_launcher(&message)?;
            self.unreported += 1;
            if self.unreported >= ENDS_PER_REPORT {
                self.report()?;
            }
            self.settle()?;
        }
        Ok(())
    }

    fn report(&mut self) -> Result<(), LineError> {
        self.unreported = 0;
        if std::mem::take(&mut self.report_wanted) {
            self.under_way.push_back(Delivery::Manager(StepMgrInput::Timer(StepMgrTimer::Report)));
        }
        self.settle()
    }

    fn settle(&mut self) -> Result<(), LineError> {
        while let Some(delivery) = self.under_way.pop_front() {
            match delivery {
                Delivery::Manager(input) => self.manager(input)?,
                Delivery::Step(step, input) => self.step(step, input),
                Delivery::Shepherd(input) => self.shepherd(input)?,
            }
        }
        Ok(())
    }

    fn manager(&mut self, input: StepMgrInput) -> Result<(), LineError> {
        let layer = match &input {
            StepMgrInput::Client { .. } | StepMgrInput::Journaled { .. } => Layer::Accept,
            StepMgrInput::Timer(_) | StepMgrInput::Agent(_) => Layer::Report,
            _ => Layer::Place,
        };
        let mut out = Vec::new();
        let (core, now) = (&mut self.core, self.now);
        self.meter.time(layer, || core.handle(now, input, &mut out));
        out.into_iter().try_for_each(|effect| self.manager_effect(effect))
    }

    fn manager_effect(&mut self, effect: StepMgrEffect) -> Result<(), LineError> {
        match effect {
            StepMgrEffect::Journal { event, durable } => self.write(&event, durable)?,
            StepMgrEffect::ToShepherd { message, .. } => {
                self.under_way.push_back(Delivery::Shepherd(ShepherdInput::Manager(message)));
            }
            StepMgrEffect::StartStep { plan } | StepMgrEffect::ResumeStep { plan, .. } => self.host(*plan),
            StepMgrEffect::ToStep { step, input } => self.under_way.push_back(Delivery::Step(step, input)),
            StepMgrEffect::ToClient { message: StepMgrToCommand::Enqueued { given, .. }, .. } => {
                self.accepted += given.map_or(0, |g| g.count as usize);
            }
            StepMgrEffect::ToClient { message: StepMgrToCommand::Refused(refusal), .. } => {
                return Err(LineError::Answer(refusal.to_string()));
            }
            StepMgrEffect::ToAgent(message) => {
                self.meter.time(Layer::Report, || codec::encode(&message, limits::REQUEST))?;
                if let StepdToNode::Report { seq, .. } = message {
                    let ack = StepMgrInput::Agent(NodeToStepd::Ack { upto: seq });
                    self.under_way.push_back(Delivery::Manager(ack));
                }
            }
            StepMgrEffect::SetTimer { timer: StepMgrTimer::Report, .. } => self.report_wanted = true,
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, plan: StepPlan) {
        let key = plan.id.key();
        let core = self.meter.time(Layer::Step, || StepCore::new(plan));
        self.steps.insert(key, core);
        self.under_way.push_back(Delivery::Step(key, StepInput::Begin));
    }

    /// As the daemon writes it.
    fn write(&mut self, event: &StepEvent, durable: Option<u64>) -> Result<(), LineError> {
        let journal = &self.journal;
        let Some(upto) = durable else {
            self.meter.time(Layer::Journal, || journal.write(event))?;
            return Ok(());
        };
        let (synced, outcome) = std::sync::mpsc::channel();
        let done = Box::new(move |outcome| {
            let _ = synced.send(outcome);
        });
        self.meter.time(Layer::Journal, || journal.append(event, done));
        outcome.recv().map_err(|_| LineError::Answer("the journal does not answer".to_owned()))??;
        self.under_way.push_back(Delivery::Manager(StepMgrInput::Journaled { upto }));
        Ok(())
    }

    fn step(&mut self, key: StepKey, input: StepInput) {
        let Some(core) = self.steps.get_mut(&key) else { return };
        let (mut out, now) = (Vec::new(), self.now);
        self.meter.time(Layer::Step, || core.handle(now, input, &mut out));
        if core.is_over() {
            self.steps.remove(&key);
        }
        out.retain(|effect| !matches!(effect, StepEffect::SetTimer { .. }));
        if !out.is_empty() {
            self.under_way.push_back(Delivery::Manager(StepMgrInput::StepSays { step: key, effects: out }));
        }
    }

    fn shepherd(&mut self, input: ShepherdInput) -> Result<(), LineError> {
        let (shepherd, now, mut out) = (&mut self.shepherd, self.now, Vec::new());
        self.meter.time(Layer::Shepherd, || shepherd.handle(now, input, &mut out));
        for effect in out {
            let answer = match effect {
                ShepherdEffect::ToManager(message) => {
                    let input = StepMgrInput::Shepherd { node: NodeSlot(0), message };
                    self.under_way.push_back(Delivery::Manager(input));
                    continue;
                }
                ShepherdEffect::ToLauncher { message, .. } => {
                    self.to_launcher(&message)?;
                    continue;
                }
                ShepherdEffect::Prepare { step, .. } => ShepherdInput::Prepared { step, result: Ok(None) },
                ShepherdEffect::Sample { step, query, .. } => ShepherdInput::Sampled { step, query, tasks: Vec::new() },
                ShepherdEffect::AskOom { token, .. } => ShepherdInput::Oom { token, killed: false },
                ShepherdEffect::Sweep { step } => ShepherdInput::Swept { step },
                _ => continue,
            };
            self.under_way.push_back(Delivery::Shepherd(answer));
        }
        Ok(())
    }

    fn to_launcher(&mut self, message: &ToLauncher) -> Result<(), LineError> {
        let order = across(&mut self.meter, message, limits::LAUNCHER, Layer::StepdFrames, Layer::LauncherFrames)?;
        if let ToLauncher::Spawn(task) = order {
            self.next_pid += 1;
            self.running.push_back((task.token, self.next_pid));
            if !task.quiet {
                self.from_launcher(&FromLauncher::Spawned { token: task.token, pid: self.next_pid })?;
            }
        }
        Ok(())
    }

    fn from_launcher(&mut self, message: &FromLauncher) -> Result<(), LineError> {
        let said = across(&mut self.meter, message, limits::LAUNCHER, Layer::LauncherFrames, Layer::StepdFrames)?;
        self.under_way.push_back(Delivery::Shepherd(ShepherdInput::Launcher(said)));
        Ok(())
    }

    /// Ends the job: nothing is left running.
    pub fn end(mut self) -> Result<(), LineError> {
        self.under_way.push_back(Delivery::Shepherd(ShepherdInput::Manager(StepMgrToShepherd::EndJob)));
        self.settle()
    }
}

/// What `srun --async -n1 -o /dev/null` asks for, with this process's environment.
fn spec() -> StepSpec {
    StepSpec {
        name: "true".into(),
        tasks: Some(1),
        sharing: StepSharing::Exact,
        stdin: StreamTarget::Null,
        stdout: StreamTarget::Null,
        stderr: StreamTarget::Null,
        work_dir: Some("/tmp".into()),
        environment: std::env::vars_os()
            .map(|(name, value)| ByteBuf::from([name.into_vec(), value.into_vec()].join(&b'=')))
            .collect(),
        ..StepSpec::default()
    }
}

fn facts() -> RunFacts {
    let plain = serde_json::json!({"kind": "Allocation", "name": "made-up", "work_dir": "/tmp"});
    let spec: JobSpec = serde_json::from_value(plain).expect("all other fields of a job have defaults");
    let share = NodeShare { cpus: CpuSet::from(0..CPUS), memory: Some(MemoryMib(4096)), tasks: CPUS, gres: Vec::new() };
    RunFacts {
        cluster: "made-up".into(),
        job: JobId(1),
        sluid: Sluid(7),
        uid: 1000,
        gid: 1000,
        user: "user".into(),
        group: Some("user".into()),
        home: Some("/home/user".into()),
        shell: Some("/bin/sh".into()),
        spec: Arc::new(spec),
        nodes: vec![AllocatedNode { name: "n1".into(), index: NodeIndex(0), share }],
        addresses: vec!["127.0.0.1:6818".into()],
        partition: "main".into(),
        time_limit: TimeLimit::Unlimited,
        start_time: Timestamp::now(),
        restarts: 0,
        tasks: CPUS,
        cpus_per_task: 1,
        array: None,
        switches: Vec::new(),
        het: Vec::new(),
        conf_path: Some("/etc/slurm/slurm.conf".into()),
        zone: jiff::tz::TimeZone::UTC,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_step_runs_and_every_layer_is_measured() {
        let dir = std::env::temp_dir().join(format!("garrick-line-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("journal");
        let opened = garrick_daemon::journal::open::<StepEvent>(&path).unwrap();
        let mut line = Line::new(Log::start(&path, opened.file).unwrap()).unwrap();
        line.run(200, 50, false).unwrap();
        line.run(10, 1, true).unwrap();
        use Layer::*;
        for layer in [Send, Accept, Journal, Place, Step, Shepherd, StepdFrames, LauncherFrames, Report] {
            assert!(line.meter.micros_each(layer, 210) > 0.0, "{layer:?}");
        }
        line.end().unwrap();
        let written = garrick_daemon::journal::open::<StepEvent>(&path).unwrap().records;
        let ends = written.iter().filter(|e| matches!(e, StepEvent::Ended { .. })).count();
        assert_eq!(ends, 210);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

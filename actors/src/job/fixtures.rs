//! Builders for tests: a proposal with good defaults, and a bench that drives one core.

use super::{
    core::{JobCore, Leftover},
    effects::JobEffect,
};
use crate::{
    controller::{
        fixtures::{Site, config_of},
        shells::sites::job_site,
    },
    messages::{
        job::{Authority, JobAnswer, JobCommand, JobInput, JobSite, TaskChoice},
        letter::Letter,
        node::Grant,
    },
    owner::FreshIds,
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{JobRecord, Phase, Run},
        job_event::JobEvent,
    },
    testing::record,
};
use garrick_model::{
    ids::{JobId, NodeIndex, Sluid},
    messages::node::AgentReport,
    node_shape::NodeShare,
    refusal::Refusal,
    resources::{CpuSet, MemoryMib},
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, JobView},
};
use garrick_plan::{
    proposals::StartProposal,
    snapshot::{caps::CpuCaps, request::NodeUse},
};
use std::sync::Arc;

/// Ids that count up.
#[derive(Clone, Debug)]
pub struct CountingIds {
    pub job: u32,
    pub sluid: u64,
}

impl FreshIds for CountingIds {
    fn job(&mut self) -> JobId {
        self.job += 1;
        JobId(self.job)
    }
    fn jobs(&mut self, count: u32) -> Option<JobId> {
        self.job += count;
        Some(JobId(self.job - count + 1))
    }
    fn sluid(&mut self, _: Timestamp) -> Sluid {
        self.sluid += 1;
        Sluid(self.sluid)
    }
    fn submission(&mut self) -> u64 {
        0
    }
}

/// A share of two CPUs.
pub fn share() -> NodeShare {
    NodeShare { cpus: CpuSet::from(0..2), memory: Some(MemoryMib(100)), tasks: 1, gres: Vec::new() }
}

/// A proposal on the named nodes.
pub fn proposal(job: u32, array_index: Option<u32>, nodes: &[&str]) -> StartProposal {
    StartProposal {
        pass: 1,
        answer_by: Timestamp(i64::MAX),
        job: JobId(job),
        array_index,
        job_generation: 1,
        partition: "debug".to_owned(),
        nodes: nodes
            .iter()
            .zip(0..)
            .map(|(name, index)| AllocatedNode { name: (*name).to_owned(), index: NodeIndex(index), share: share() })
            .collect(),
        generations: vec![7; nodes.len()],
        usage: NodeUse::Cpus,
        caps: CpuCaps::NONE,
        time_limit: TimeLimit::Secs(3600),
        reservation: None,
        backfilled: false,
        qos: None,
        others: Vec::new(),
        licenses: garrick_model::spec_text::licenses::Licenses::default(),
    }
}

/// Where changes are judged that a core is sent.
const PLENTY: &str = "ClusterName=test\nSlurmctldHost=head\n\
    AllowSpecResourcesUsage=YES\n\
    NodeName=n[0-9] CPUs=64 RealMemory=64000 TmpDisk=64000 Features=fast\n\
    PartitionName=debug Nodes=ALL Default=YES\n";

/// One core with a clock, ids and its saved events.
pub struct Bench {
    pub core: JobCore,
    pub now: Timestamp,
    pub ids: CountingIds,
    pub saved: Vec<JobEvent>,
    pub first: JobRecord,
}

pub const ALICE: Authority = Authority { uid: 1001, admin: false };
pub const ROOT: Authority = Authority { uid: 0, admin: true };

impl Bench {
    pub fn new(record: JobRecord) -> (Self, Vec<JobEffect>) {
        let mut bench = Self {
            core: JobCore::new(record.clone(), Arc::new(JobSite::default())),
            now: Timestamp::from_secs(1000),
            ids: CountingIds { job: 5000, sluid: 90_000 },
            saved: Vec::new(),
            first: record,
        };
        let mut out = Vec::new();
        bench.core.resume(bench.now, &mut bench.ids, Leftover::default(), &mut out);
        bench.keep(&out);
        (bench, out)
    }

    pub fn with(spec: JobSpec) -> Self {
        Self::new(record(7, spec)).0
    }

    fn keep(&mut self, out: &[JobEffect]) {
        self.saved.extend(out.iter().filter_map(|e| match e {
            JobEffect::Save(ControllerEvent::Job { job, event }) if *job == self.first.id => Some((**event).clone()),
            _ => None,
        }));
    }

    /// Sends, and behind it what it tells itself to do.
    pub fn send(&mut self, input: JobInput) -> Vec<JobEffect> {
        let mut out = self.send_alone(input);
        let own = JobEffect::Tell(Letter::Job(self.core.record().id, JobInput::TellWatchers));
        if out.contains(&own) {
            out.retain(|effect| *effect != own);
            out.extend(self.send_alone(JobInput::TellWatchers));
        }
        out
    }

    pub fn send_alone(&mut self, input: JobInput) -> Vec<JobEffect> {
        let mut out = Vec::new();
        self.core.handle(self.now, &mut self.ids, input, &mut out);
        self.keep(&out);
        out
    }

    pub fn command(
        &mut self,
        by: Authority,
        tasks: TaskChoice,
        command: JobCommand,
    ) -> (Result<(), Refusal>, Vec<JobEffect>) {
        let command = self.judged(by, command);
        let out = self.send(JobInput::Command { request: 9, by, tasks, command });
        let answer = out.iter().find_map(|e| match e {
            JobEffect::Answer { request: 9, answer: JobAnswer::Done(result) } => Some(result.clone()),
            _ => None,
        });
        (answer.expect("every command is answered"), out)
    }

    /// As the frontend has changes judged: on nodes with all that anybody may want.
    fn judged(&self, by: Authority, command: JobCommand) -> JobCommand {
        let record = self.core.record();
        match command {
            JobCommand::Update(change) if matches!(record.phase, Phase::Pending) => {
                let revised = Site::new(PLENTY).revise(by, record, &change);
                revised.map_or(JobCommand::Update(change), |revise| JobCommand::Revise(Box::new(revise)))
            }
            command => command,
        }
    }

    pub fn order(&mut self, command: JobCommand) -> Result<(), Refusal> {
        self.command(ALICE, None, command).0
    }

    pub fn view(&self) -> JobView {
        self.core.view(self.now)
    }

    pub fn state(&self) -> JobState {
        self.view().state
    }

    /// Allocates on the nodes; the effects of the last yes.
    pub fn allocate(&mut self, nodes: &[&str]) -> Vec<JobEffect> {
        let id = self.core.record().id.0;
        let asked = self.send(JobInput::Start(Box::new(proposal(id, None, nodes))));
        let mut last = asked;
        let attempt = self.core.leftover().attempt;
        for node in nodes {
            let (node, result) = ((*node).to_owned(), Ok(Grant::at(format!("{node}:6818"))));
            last = self.send(JobInput::Reserved { attempt, node, result });
        }
        last
    }

    pub fn report(&mut self, node: &str, report: AgentReport) -> Vec<JobEffect> {
        self.send(JobInput::Report { node: node.to_owned(), seq: 1, report: Box::new(report) })
    }

    fn batch_host(&self) -> String {
        self.core.record().phase.run().map_or("n0", Run::batch_host).to_owned()
    }

    pub fn started(&mut self) {
        let (job, sluid) = (self.core.record().id, self.core.record().sluid);
        self.report(&self.batch_host(), AgentReport::JobStarted { job, sluid, door: "/run/door".to_owned() });
    }

    pub fn ended(&mut self, state: JobState, code: u8) -> Vec<JobEffect> {
        let (job, sluid) = (self.core.record().id, self.core.record().sluid);
        let exit = ExitStatus { code, signal: None };
        self.report(
            &self.batch_host(),
            AgentReport::JobEnded {
                job,
                sluid,
                state,
                reason: Reason::None,
                exit,
                derived: exit,
                at: self.now,
                lost: vec![],
                cause: None,
            },
        )
    }

    pub fn released(&mut self, node: &str) -> Vec<JobEffect> {
        let (job, sluid) = (self.core.record().id, self.core.record().sluid);
        self.report(node, AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None })
    }

    /// A job that runs on n0 and n1.
    pub fn running(spec: JobSpec) -> Self {
        let mut bench = Self::with(spec);
        bench.allocate(&["n0", "n1"]);
        bench.started();
        bench
    }

    /// The record that the saved events make.
    pub fn replayed(&self) -> JobRecord {
        let mut record = self.first.clone();
        for event in &self.saved {
            record.apply(event).expect("saved events were applied once");
        }
        record
    }
}

/// The event of the job itself that an effect saves.
pub fn event_of(effect: &JobEffect) -> Option<&JobEvent> {
    match effect {
        JobEffect::Save(ControllerEvent::Job { event, .. }) => Some(event),
        _ => None,
    }
}

/// A task that begins a record of its own, and what it is told first.
pub fn begun(effect: &JobEffect) -> Option<(&JobRecord, Option<&JobInput>)> {
    match effect {
        JobEffect::Tell(Letter::Begin { record, first }) => Some((record, first.as_deref())),
        _ => None,
    }
}

/// What jobs know of a site with these lines in its `slurm.conf`.
pub fn site(lines: &str) -> Arc<JobSite> {
    let nodes = "NodeName=n[0-2] CPUs=2\nPartitionName=debug Nodes=ALL Default=YES\n";
    let config = config_of(&format!("ClusterName=c\nSlurmctldHost=h\n{lines}\n{nodes}"));
    Arc::new(job_site(&config, 1))
}

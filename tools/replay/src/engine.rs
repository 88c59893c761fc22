//! The replay. Events are handled one by one in the order of time, submissions before ends at the same second, and the scheduler
//! makes a plan after each, except after a submission that requests more than is free.

use crate::{
    TraceJob,
    idle::{self, Idle},
    shares::{Course, Sharing},
};
use garrick_model::{
    ids::{JobId, Sluid},
    packed_steps::StepTally,
    resources::MemoryRequest,
    spec::{Dependencies, JobSpec, NodeCount},
    state::{ExitStatus, JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeHold},
};
use garrick_plan::{
    plan::{Plan, plan, probe::Feasibility},
    proposals::StartProposal,
    snapshot::{facts::ClusterView, request::run_limit},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// What the scheduler is told of how long a job will run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimates {
    /// The limit that was asked for; where there is none, the run time.
    #[default]
    Requested,
    /// The run time.
    Exact,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Number.
    pub id: JobId,
    /// User.
    pub user: u32,
    /// Partition in which it ran.
    pub partition: String,
    /// Submission.
    pub submit: Timestamp,
    /// Start.
    pub start: Timestamp,
    /// Seconds that it ran: cut at its limit.
    pub run: u64,
    /// CPUs that it asked for.
    pub cpus: u32,
    /// CPUs that it held.
    pub held: u32,
}

/// How things stood from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time.
    pub at: Timestamp,
    /// CPUs in use.
    pub busy: u64,
    /// Jobs waiting.
    pub waiting: usize,
    /// What is idle of blocks or leaf switches, where there are any.
    pub idle: Option<Idle>,
}

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Jobs in the order of their starts.
    pub ran: Vec<Ran>,
    /// Jobs that could never run there.
    pub refused: Vec<JobId>,
    /// Jobs that waited for ever: no plan started them.
    pub stranded: Vec<JobId>,
    /// How things stood, in order.
    pub moments: Vec<Moment>,
    /// CPUs of the cluster.
    pub cpus: u64,
    /// CPUs of the largest block or leaf switch; 0 where there are none.
    pub unit_cpus: u64,
    /// Jobs that waited for broken blocks though they could start (`topology_patience`), and since when.
    pub patient: BTreeMap<JobId, Timestamp>,
    /// Plans made.
    pub plans: u64,
    /// How the users' shares stood, where they have some.
    pub shares: Option<Course>,
}

/// Replays a workload on a cluster. What the cluster's nodes hold before does not matter.
pub fn replay(view: ClusterView, jobs: &[TraceJob], estimates: Estimates) -> Replay {
    replay_with(view, jobs, estimates, None)
}

/// The same with priorities by fair shares.
pub fn replay_with(mut view: ClusterView, jobs: &[TraceJob], estimates: Estimates, sharing: Option<Sharing>) -> Replay {
    view.pending.clear();
    let cpus: u64 = view.nodes.iter().map(|n| u64::from(n.shape.cpus)).sum();
    let mut feasible = Feasibility::new(view.clone());
    let wholes = view.topology(0).map(|topology| topology.wholes()).unwrap_or_default();
    let unit_cpus = idle::unit_cpus(&view, &wholes);
    let mut run = Run {
        free: cpus,
        again: None,
        wholes,
        view,
        ends: BTreeSet::new(),
        places: HashMap::new(),
        running: HashMap::new(),
        sharing,
        outcome: Replay { cpus, unit_cpus, ..Replay::default() },
    };
    let mut arrivals = jobs.iter().peekable();
    loop {
        let end = run.ends.first().map(|(at, _)| *at);
        let next = arrivals.peek().map(|job| job.submit).into_iter().chain(end).min();
        if let Some(again) = run.again.filter(|at| next.is_none_or(|next| *at < next)) {
            run.plan(again);
            run.note(again);
            continue;
        }
        let arrival = arrivals.peek().map(|job| job.submit);
        let (now, plans) = match (arrival, end) {
            (Some(arrival), end) if end.is_none_or(|end| arrival <= end) => {
                let Some(job) = arrivals.next() else { break };
                let wanted = run.submit(job, estimates, &mut feasible);
                (arrival, wanted.is_some_and(|cpus| u64::from(cpus) <= run.free))
            }
            (_, Some(end)) => {
                run.end();
                (end, true)
            }
            _ => break,
        };
        if plans {
            run.plan(now);
        }
        run.note(now);
    }
    run.outcome.shares = run.sharing.map(Sharing::course);
    run.outcome.stranded = run.view.pending.iter().map(|job| job.id).collect();
    run.outcome
}

/// A job that waits or runs.
struct Known {
    user: u32,
    submit: Timestamp,
    run: u64,
    cpus: u32,
}

struct Run {
    view: ClusterView,
    free: u64,
    /// When somebody starts who waits for broken blocks.
    again: Option<Timestamp>,
    wholes: Vec<Vec<Vec<usize>>>,
    ends: BTreeSet<(Timestamp, JobId)>,
    /// Places of waiting jobs in the view.
    places: HashMap<JobId, usize>,
    /// Of everything that waits, with the nodes of what runs.
    running: HashMap<JobId, (Known, Vec<usize>, u32)>,
    sharing: Option<Sharing>,
    outcome: Replay,
}

impl Run {
    /// Puts a job into the queue. Gives the CPUs that it asks for, unless it can never run.
    fn submit(&mut self, job: &TraceJob, estimates: Estimates, feasible: &mut Feasibility) -> Option<u32> {
        let mut view = job_view(&self.view, job, estimates);
        if view.partitions.is_empty() || feasible.check(&view).is_err() || too_wide(&self.view, &view) {
            self.outcome.refused.push(job.id);
            return None;
        }
        let run = job.requested.map_or(job.run, |most| job.run.min(most));
        let known = Known { user: job.user, submit: job.submit, run, cpus: job.size };
        self.running.insert(job.id, (known, Vec::new(), 0));
        self.places.insert(job.id, self.view.pending.len());
        if let Some(sharing) = &self.sharing {
            view.priority = sharing.priority(&view);
        }
        self.view.pending.push(Arc::new(view));
        Some(job.size)
    }

    fn end(&mut self) {
        let Some((at, id)) = self.ends.pop_first() else { return };
        let Some((known, nodes, held)) = self.running.remove(&id) else { return };
        if let Some(sharing) = &mut self.sharing {
            sharing.ends(at, known.user, held);
        }
        for node in nodes {
            Arc::make_mut(&mut self.view.nodes[node]).holds.retain(|hold| hold.job != id);
        }
        self.free += u64::from(held);
    }

    fn plan(&mut self, now: Timestamp) {
        self.again = None;
        if let Some(sharing) = &mut self.sharing {
            sharing.renew(now, &mut self.view.pending);
        }
        while !self.view.pending.is_empty() {
            self.outcome.plans += 1;
            let made = plan(&self.view, now);
            for start in &made.starts {
                self.start(start, now);
            }
            if self.view.policy.topology_patience.is_some() {
                self.tell(&made, now);
            }
            self.again = made.again;
            if !made.truncated {
                break;
            }
        }
    }

    /// Why jobs wait, and when they are to start: they are held to it.
    fn tell(&mut self, made: &Plan, now: Timestamp) {
        let expected: HashMap<JobId, Timestamp> = made.expected.iter().copied().collect();
        for (job, reason) in &made.reasons {
            let Some(known) = self.places.get(job).map(|place| &mut self.view.pending[*place]) else { continue };
            if *reason == Reason::Fragmentation {
                self.outcome.patient.entry(*job).or_insert(now);
            }
            let start_time = expected.get(job).copied();
            if known.reason != *reason || known.start_time != start_time {
                let known = Arc::make_mut(known);
                (known.reason, known.start_time) = (reason.clone(), start_time);
            }
        }
    }

    fn start(&mut self, start: &StartProposal, now: Timestamp) {
        let Some(place) = self.places.remove(&start.job) else { return };
        let job = self.view.pending.swap_remove(place);
        if let Some(moved) = self.view.pending.get(place) {
            self.places.insert(moved.id, place);
        }
        let Some((known, nodes, held)) = self.running.get_mut(&start.job) else { return };
        let limit = start.time_limit.duration().map(|limit| now.plus(limit));
        for allocated in &start.nodes {
            let node = allocated.index.0 as usize;
            nodes.push(node);
            *held += allocated.share.cpus.len();
            Arc::make_mut(&mut self.view.nodes[node]).holds.push(NodeHold {
                job: job.id,
                sluid: job.sluid,
                uid: job.uid,
                share: allocated.share.clone(),
                sharing: start.usage.sharing(),
                mcs_label: None,
                partition: Some(start.partition.clone()),
                expected_end: limit,
                completing: false,
                kept: false,
                parked: false,
            });
        }
        self.free = self.free.saturating_sub(u64::from(*held));
        if let Some(sharing) = &mut self.sharing {
            sharing.begins(now, known.user, *held);
        }
        self.ends.insert((now.plus(Duration::from_secs(known.run)), job.id));
        self.outcome.ran.push(Ran {
            id: job.id,
            user: known.user,
            partition: start.partition.clone(),
            submit: known.submit,
            start: now,
            run: known.run,
            cpus: known.cpus,
            held: *held,
        });
    }

    fn note(&mut self, at: Timestamp) {
        let idle = Idle::of(&self.view, &self.wholes);
        let moment = Moment { at, busy: self.outcome.cpus - self.free, waiting: self.view.pending.len(), idle };
        match self.outcome.moments.last_mut() {
            Some(last) if last.at == at => *last = moment,
            Some(last) if (last.busy, last.waiting, last.idle) == (moment.busy, moment.waiting, moment.idle) => {}
            _ => self.outcome.moments.push(moment),
        }
    }
}

/// More than the partition has, which a queue would let wait.
fn too_wide(view: &ClusterView, job: &JobView) -> bool {
    !job.partitions.iter().any(|name| {
        view.partition(name).is_some_and(|(_, partition)| {
            let cpus: u64 = partition.nodes.ones().map(|n| u64::from(view.nodes[n].shape.cpus)).sum();
            u64::from(job.cpus) <= cpus
                && garrick_plan::rules::limits::longer(partition.max_time, run_limit(job, partition))
                || (u64::from(job.cpus) <= cpus && partition.max_time == run_limit(job, partition))
        })
    })
}

/// A waiting job as the scheduler sees it.
pub fn job_view(view: &ClusterView, job: &TraceJob, estimates: Estimates) -> JobView {
    let estimate = match estimates {
        Estimates::Exact => job.requested.map_or(job.run, |most| job.run.min(most)),
        Estimates::Requested => job.requested.unwrap_or(job.run),
    };
    let limit = TimeLimit::Secs(estimate);
    let place = job.queue.and_then(|queue| queue.checked_sub(1)).unwrap_or(0) as usize;
    let partition = view.partitions.get(place).or_else(|| view.partitions.first());
    let memory =
        job.memory.map_or(MemoryRequest::PerCpu(garrick_model::resources::MemoryMib(0)), MemoryRequest::PerCpu);
    let name = job.user.to_string();
    let spec = JobSpec {
        name: job.id.to_string(),
        tasks: Some(job.size),
        time_limit: Some(limit),
        memory,
        ..JobSpec::default()
    };
    let count = NodeCount { min: 1, max: Some(job.size) };
    JobView {
        association: None,
        id: job.id,
        generation: 1,
        sluid: Sluid(u64::from(job.id.0)),
        uid: job.user,
        gid: job.user,
        user: name.clone(),
        group: name,
        state: JobState::Pending,
        ending: None,
        reason: Reason::None,
        array_pending: None,
        array_task: None,
        array_running: 0,
        priority: 1,
        terms: Default::default(),
        preempted: None,
        leave_by: None,
        suspended: None,
        billing: None,
        recurs: false,
        runs_again: false,
        dependencies: Dependencies::default(),
        eligible: true,
        partitions: partition.map(|p| p.name.clone()).into_iter().collect(),
        time_limit: limit,
        submit_time: job.submit,
        eligible_time: Some(job.submit),
        start_time: None,
        end_time: None,
        last_sched_eval: None,
        allocation: None,
        completing_nodes: Vec::new(),
        exit: ExitStatus::SUCCESS,
        derived_exit: ExitStatus::SUCCESS,
        restarts: 0,
        requeue: false,
        cpus_per_task: 1,
        tasks: job.size,
        min_nodes: count.min,
        max_nodes: job.size,
        cpus: job.size,
        memory,
        sharing: spec.sharing,
        stdout_path: None,
        stderr_path: None,
        stdin_path: None,
        admin_comment: None,
        system_comment: None,
        steps: StepTally::default(),
        spec: Arc::new(spec),
    }
}

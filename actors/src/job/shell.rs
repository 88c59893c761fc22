//! The job's actor, and the supervisor of all jobs. The shell turns messages into inputs, has events saved, and carries
//! out effects once what they follow from is on disk; it decides nothing.

use super::{
    core::JobCore,
    ending::end_lost,
    het::HetMessage,
    messages::{JobEffect, JobInput, JobMsg, LaunchOrder},
    record::JobRecord,
    reports::Trouble,
    state::JobEvent,
};
use crate::{
    controller::{
        env::{Env, deliver, journal_outcome},
        event::ControllerEvent,
        outbox::Outbox,
    },
    node::messages::{NodeInput, ReserveRefusal},
    scheduler::core::SchedulerInput,
};
use garrick_model::{
    ids::JobId,
    messages::{
        command::StepManagerPlace,
        node::{AgentReport, ControllerToNode, JobLaunch},
    },
    packed_steps::StepTally,
    refusal::Refusal,
    state::JobState,
    time::Timestamp,
    view::JobView,
};
use garrick_runtime::{
    Actor, ActorPath, ChildEvent, ChildSpec, Context, Message, Placement, ReplyTo, Restart, RestartLimits, WhenExceeded,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// A wide job is answered by each of its nodes at about the same time.
const JOB_MAILBOX: usize = 65_536;
/// Timers are set at most this far ahead; the core sets them again.
const LONGEST_TIMER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The actor of one job.
pub struct JobActor {
    core: JobCore,
    env: Arc<Env>,
    outbox: Outbox<JobEffect>,
    requests: u64,
    answers: BTreeMap<u64, ReplyTo<Result<(), Refusal>>>,
    waits: BTreeMap<u64, ReplyTo<Arc<JobView>>>,
    /// Who asked for its step manager while that was being started.
    locating: Vec<ReplyTo<Result<StepManagerPlace, Refusal>>>,
    watchers: Vec<tokio::sync::watch::Sender<Option<Arc<JobView>>>>,
    shown: Option<Arc<JobView>>,
}

impl JobActor {
    /// From a record.
    pub fn new(record: JobRecord, env: Arc<Env>) -> Self {
        Self {
            core: JobCore::new(record, env.job_site()),
            env,
            outbox: Outbox::default(),
            requests: 0,
            answers: BTreeMap::new(),
            waits: BTreeMap::new(),
            locating: Vec::new(),
            watchers: Vec::new(),
            shown: None,
        }
    }

    fn id(&self) -> JobId {
        self.core.record().id
    }

    fn next_request(&mut self) -> u64 {
        // 0 is for requests that nobody waits for.
        self.requests += 1;
        self.requests
    }

    fn run(&mut self, cx: &mut Context<Self>, input: JobInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            self.core.handle(Timestamp::now(), &mut self.env.ids.clone(), input, &mut effects);
            self.take(cx, effects, &mut inputs);
        }
    }

    /// Has the turn's events saved and queues its other effects behind them.
    fn take(&mut self, cx: &mut Context<Self>, effects: Vec<JobEffect>, again: &mut VecDeque<JobInput>) {
        let job = self.id();
        let mut events = Vec::new();
        let mut own = Vec::new();
        let mut rest = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                JobEffect::Record(event) => {
                    own.push(event.clone());
                    events.push(ControllerEvent::Job { job, event: Box::new(event) });
                }
                JobEffect::Split { record, then } => {
                    self.env.jobs.put((*record).clone());
                    let event = Box::new(JobEvent::task_submitted(&record, job));
                    events.push(ControllerEvent::Job { job: record.id, event });
                    rest.push(JobEffect::Split { record, then });
                }
                JobEffect::Grant { job, sluid, run } => {
                    let event = JobEvent::Allocated(run.clone());
                    self.env.jobs.grant(job, &event);
                    events.push(ControllerEvent::Job { job, event: Box::new(event) });
                    rest.push(JobEffect::Grant { job, sluid, run });
                }
                other => rest.push(other),
            }
        }
        self.env.jobs.apply(job, &own, self.core.leftover());
        if events.is_empty() {
            self.outbox.push(rest);
        } else {
            let batch = self.outbox.push_unsaved(rest);
            let done = self.env.append(events);
            cx.pipe(done, move |answer| JobMsg::Journaled { batch, result: journal_outcome(answer) });
        }
        self.flush(cx, again);
    }

    fn flush(&mut self, cx: &mut Context<Self>, again: &mut VecDeque<JobInput>) {
        while let Some(effects) = self.outbox.take_ready() {
            for effect in effects {
                self.perform(cx, effect, again);
            }
        }
    }

    fn perform(&mut self, cx: &mut Context<Self>, effect: JobEffect, again: &mut VecDeque<JobInput>) {
        let job = self.id();
        let env = Arc::clone(&self.env);
        match effect {
            // Taken out before.
            JobEffect::Record(_) => {}
            JobEffect::Split { record, then } => {
                let split = record.id;
                // Whoever looks finds the task in the array or by itself.
                env.show_job(*record, Timestamp::now());
                if let Some(supervisor) = env.jobs_supervisor() {
                    deliver(cx, &supervisor, JobsMsg::Start { job: split, first: then });
                }
            }
            JobEffect::Grant { job: to, sluid, run } => {
                let message = Box::new(HetMessage::Granted { sluid, run });
                env.tell_job(cx, to, JobInput::Het { from: job, message });
            }
            JobEffect::TellHet { to, message } => env.tell_job(cx, to, JobInput::Het { from: job, message }),
            JobEffect::Publish(view) => self.publish(view),
            JobEffect::ShowSteps(tally) => {
                if tally == StepTally::default() {
                    env.boards.steps.remove(&job);
                } else {
                    env.boards.steps.publish(job, Arc::new(tally));
                }
            }
            JobEffect::Reserve { node, ask } => {
                let attempt = ask.attempt;
                if !env.tell_node(cx, &node, NodeInput::Reserve(ask)) {
                    let result = Err(ReserveRefusal::OutOfService("gone"));
                    again.push_back(JobInput::Reserved { attempt, node, result });
                }
            }
            JobEffect::ReserveLicenses { attempt, licenses } => {
                let granted = env.licenses.lock().reserve(job, attempt, &licenses);
                again.push_back(JobInput::LicensesReserved { attempt, granted });
            }
            JobEffect::ReleaseLicenses { attempt } => {
                env.licenses.lock().release(job, attempt);
            }
            JobEffect::Release { node, sluid, attempt, drain } => {
                env.tell_node(cx, &node, NodeInput::Release { job, sluid, attempt, drain });
            }
            JobEffect::Keep { node, sluid } => {
                env.tell_node(cx, &node, NodeInput::Keep { job, sluid });
            }
            JobEffect::MarkCompleting { node, sluid } => {
                env.tell_node(cx, &node, NodeInput::Completing { job, sluid });
            }
            JobEffect::Park { node, sluid } => {
                env.tell_node(cx, &node, NodeInput::Park { job, sluid });
            }
            JobEffect::Unpark { node, sluid, attempt } => {
                if !env.tell_node(cx, &node, NodeInput::Unpark { job, sluid, attempt }) {
                    again.push_back(JobInput::Unparked { attempt, node, granted: false });
                }
            }
            JobEffect::MoveEnd { node, sluid, expected_end } => {
                env.tell_node(cx, &node, NodeInput::MoveEnd { job, sluid, expected_end });
            }
            JobEffect::Launch(order) => self.launch(cx, *order),
            JobEffect::ToAgent { node, frame } => {
                env.tell_node(cx, &node, NodeInput::Send(frame));
            }
            JobEffect::AckReport { node, seq } => {
                env.tell_node(cx, &node, NodeInput::ReportSafe { seq });
            }
            JobEffect::Outcome { pass, accepted } => {
                if let Some(scheduler) = env.scheduler() {
                    deliver(cx, &scheduler, SchedulerInput::Outcome { pass, accepted }.into());
                }
            }
            JobEffect::SubscribeTo { job: on } => match env.job(on) {
                Some(_) => env.tell_job(cx, on, JobInput::Subscribe { by: job }),
                None if env.jobs.contains(on) => env.tell_job(cx, on, JobInput::Subscribe { by: job }),
                None => again.push_back(JobInput::Fact { job: on, fact: None }),
            },
            JobEffect::Tell { to, fact } => {
                if env.jobs.contains(to) {
                    env.tell_job(cx, to, JobInput::Fact { job, fact: Some(fact) });
                }
            }
            JobEffect::FindSiblings => {
                let jobs = env.jobs.get(job).map(|own| env.jobs.siblings(&own.record)).unwrap_or_default();
                again.push_back(JobInput::Siblings { jobs });
            }
            JobEffect::SetTimer { timer, at } => {
                let after = at.since(Timestamp::now()).min(LONGEST_TIMER);
                cx.set_timer(timer.key(), after, JobMsg::Input(JobInput::Timer(timer)));
            }
            JobEffect::ClearTimer(timer) => cx.clear_timer(timer.key()),
            JobEffect::Answer { request, result } => {
                if let Some(reply) = self.answers.remove(&request) {
                    reply.reply(result);
                }
            }
            JobEffect::Reached { request } => {
                if let (Some(reply), Some(view)) = (self.waits.remove(&request), &self.shown) {
                    reply.reply(Arc::clone(view));
                }
            }
            JobEffect::Purge => {
                env.boards.jobs.remove(&job);
                env.boards.steps.remove(&job);
                env.jobs.remove(job);
                cx.stop();
            }
        }
    }

    fn publish(&mut self, view: Arc<JobView>) {
        self.env.boards.jobs.publish(view.id, Arc::clone(&view));
        if !self.core.is_starting() {
            self.locating.drain(..).for_each(|reply| reply.reply(self.core.place()));
        }
        // The core may be ahead of what is shown.
        let over = is_over(&view);
        self.watchers.retain(|watcher| watcher.send(Some(Arc::clone(&view))).is_ok());
        if over {
            self.watchers.clear();
            // From now on they are in the view.
            self.env.boards.steps.remove(&view.id);
        }
        self.shown = Some(view);
    }

    fn launch(&self, cx: &mut Context<Self>, order: LaunchOrder) {
        let switches = self.env.switches(&order.credential);
        let launch = JobLaunch {
            credential: self.env.ports.signer.sign(&order.credential),
            spec: order.spec,
            time_limit: order.time_limit,
            start_time: order.start_time,
            restarts: order.restarts,
            tasks: order.tasks,
            cpus_per_task: order.cpus_per_task,
            array: order.array,
            switches,
            het: order.het,
            requeue: Some(order.requeue),
        };
        let frame = Box::new(ControllerToNode::StartJob(Box::new(launch)));
        self.env.tell_node(cx, &order.node, NodeInput::Send(frame));
    }
}

/// Will its view not change any more?
pub fn is_over(view: &JobView) -> bool {
    let works =
        matches!(view.state, JobState::Configuring | JobState::Running | JobState::Suspended | JobState::Completing);
    !works && !view.state.waits()
}

impl Actor for JobActor {
    type Msg = JobMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        let leftover = self.env.jobs.get(self.id()).map_or_else(Default::default, |kept| kept.leftover);
        let mut effects = Vec::new();
        if leftover.is_of_earlier_life() {
            // What follows from events of the owner that failed is not to overtake them on their way to the disk.
            let batch = self.outbox.push_unsaved(Vec::new());
            let done = self.env.append(Vec::new());
            cx.pipe(done, move |answer| JobMsg::Journaled { batch, result: journal_outcome(answer) });
        }
        self.core.resume(Timestamp::now(), &mut self.env.ids.clone(), leftover, &mut effects);
        let mut again = VecDeque::new();
        self.take(cx, effects, &mut again);
        for input in again {
            self.run(cx, input);
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: JobMsg) {
        match message {
            JobMsg::Input(input) => self.run(cx, input),
            JobMsg::Command { by, tasks, command, reply } => {
                let request = self.next_request();
                self.answers.insert(request, reply);
                self.run(cx, JobInput::Command { request, by, tasks, command });
            }
            JobMsg::Wait { until, reply } => {
                let request = self.next_request();
                self.waits.retain(|_, reply| !reply.is_abandoned());
                self.waits.insert(request, reply);
                self.run(cx, JobInput::Wait { request, until });
            }
            JobMsg::Watch(watcher) => {
                let wanted = self.shown.is_none() || watcher.send(self.shown.clone()).is_ok();
                if wanted && !self.shown.as_deref().is_some_and(is_over) {
                    self.watchers.push(watcher);
                }
            }
            JobMsg::Script { reply } => reply.reply(self.core.record().spec.script.as_deref().cloned()),
            JobMsg::Locate { reply } if self.core.is_starting() => {
                self.locating.retain(|reply| !reply.is_abandoned());
                self.locating.push(reply);
            }
            JobMsg::Locate { reply } => reply.reply(self.core.place()),
            #[cfg(test)]
            JobMsg::PanicForTests(_) => panic!("a handler that fails"),
            JobMsg::Journaled { batch, result } => {
                match result {
                    Ok(()) => self.outbox.saved(batch),
                    Err(error) => {
                        // The process is about to end; until then nothing that was not saved may be promised.
                        tracing::error!(job_id = self.id().0, error, "job.not_saved");
                        self.outbox.lost(batch);
                    }
                }
                let mut again = VecDeque::new();
                self.flush(cx, &mut again);
                for input in again {
                    self.run(cx, input);
                }
            }
        }
    }
}

/// Messages of the supervisor of jobs, all from the front and from other actors of the controller.
pub enum JobsMsg {
    /// Start the actor of a job that is on the shelf and (queued to be) on disk.
    Start {
        /// Job.
        job: JobId,
        /// What it is told first.
        first: Option<Box<JobInput>>,
    },
    /// Start the actor of a job that failed too often, after a pause.
    StartAgain {
        /// Job.
        job: JobId,
    },
    /// For a job whose actor was not found.
    Deliver {
        /// Job.
        job: JobId,
        /// What.
        input: Box<JobInput>,
    },
    /// As `Deliver`, for a message that somebody waits for.
    Ask {
        /// Job.
        job: JobId,
        /// What.
        message: Box<JobMsg>,
    },
    /// For all jobs: the site's settings changed.
    SiteChanged,
}

impl Message for JobsMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "Start",
            Self::StartAgain { .. } => "StartAgain",
            Self::Deliver { .. } => "Deliver",
            Self::Ask { .. } => "Ask",
            Self::SiteChanged => "SiteChanged",
        }
    }
}

/// The supervisor of jobs, at `/job`. A job whose actor keeps failing is started again after a while: its record is safe,
/// and the other jobs go on.
pub struct JobsSupervisor {
    env: Arc<Env>,
}

fn job_at(path: &ActorPath) -> Option<JobId> {
    path.as_str().rsplit('/').next().and_then(|id| id.parse().ok()).map(JobId)
}

/// Pause before a job that failed too often is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

impl JobsSupervisor {
    /// A supervisor.
    pub const fn new(env: Arc<Env>) -> Self {
        Self { env }
    }

    fn start(&self, cx: &mut Context<Self>, job: JobId, first: Option<Box<JobInput>>) {
        let env = Arc::clone(&self.env);
        if !env.jobs.contains(job) || env.job(job).is_some() {
            return;
        }
        let factory = move || {
            let kept = env.jobs.get(job);
            // The shelf keeps a job until its actor has stopped, and a stopped actor is not built again.
            let kept = kept.expect("a job's record is on the shelf while its actor lives");
            JobActor::new(kept.record, Arc::clone(&env))
        };
        let limits = RestartLimits { then: WhenExceeded::Stop, ..RestartLimits::default() };
        let spec = ChildSpec::new(job.0.to_string(), factory)
            .restart(Restart::OnPanic(limits))
            .placement(Placement::Hash(u64::from(job.0)))
            .mailbox(JOB_MAILBOX);
        let address = cx.start_child(spec);
        if let Some(first) = first {
            deliver(cx, &address, JobMsg::Input(*first));
        }
    }

    /// A job's owner was built anew: nodes say again what it may not have dealt with, jobs that wait for it ask again, and
    /// tasks that it had split off and not started are started.
    fn tell_of_new_owner(&self, cx: &mut Context<Self>, job: JobId) {
        for node in self.env.nodes.names() {
            self.env.tell_node(cx, &node, NodeInput::OwnerIsNew { job });
        }
        for by in self.env.jobs.waiting_for(job) {
            self.env.tell_job(cx, job, JobInput::Subscribe { by });
        }
        for waits in self.env.jobs.ids() {
            self.start(cx, waits, None);
        }
    }

    fn refuse(&self, cx: &mut Context<Self>, pass: u64) {
        if let Some(scheduler) = self.env.scheduler() {
            deliver(cx, &scheduler, SchedulerInput::Outcome { pass, accepted: false }.into());
        }
    }

    fn bounce(&self, cx: &mut Context<Self>, job: JobId, input: JobInput) {
        match input {
            JobInput::Report { node, seq, report } => {
                if let AgentReport::NodeReleased { sluid, epilog_failed, unkillable, .. } = *report {
                    let trouble = Trouble { epilog_failed, unkillable };
                    trouble.log(job, &node);
                    let drain = trouble.reason();
                    self.env.tell_node(cx, &node, NodeInput::Release { job, sluid, attempt: None, drain });
                }
                self.env.tell_node(cx, &node, NodeInput::ReportSafe { seq });
            }
            JobInput::RunHeld { node, sluid, .. } => {
                // Welcome named it if the node still held it by then.
                if let JobEffect::ToAgent { node, frame } = end_lost(job, node.clone(), sluid) {
                    self.env.tell_node(cx, &node, NodeInput::Send(frame));
                }
                self.env.tell_node(cx, &node, NodeInput::Release { job, sluid, attempt: None, drain: None });
            }
            JobInput::RunMissing { node, sluid } | JobInput::NodeLost { node, sluid } => {
                self.env.tell_node(cx, &node, NodeInput::Release { job, sluid, attempt: None, drain: None });
            }
            JobInput::Start(proposal) => self.refuse(cx, proposal.pass),
            JobInput::Preempt(proposal) => self.refuse(cx, proposal.pass),
            JobInput::GoOn(proposal) => self.refuse(cx, proposal.pass),
            JobInput::Turn(proposal) => self.refuse(cx, proposal.pass),
            JobInput::Subscribe { by } => {
                if let Some(asker) = self.env.job(by) {
                    deliver(cx, &asker, JobMsg::Input(JobInput::Fact { job, fact: None }));
                }
            }
            _ => {}
        }
    }
}

impl Actor for JobsSupervisor {
    type Msg = JobsMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        // What recovery put on the shelf, or what the last life of this supervisor left there.
        for job in self.env.jobs.ids() {
            self.start(cx, job, None);
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: JobsMsg) {
        match message {
            JobsMsg::Start { job, first } => self.start(cx, job, first),
            JobsMsg::StartAgain { job } => {
                self.start(cx, job, None);
                self.tell_of_new_owner(cx, job);
            }
            JobsMsg::Deliver { job, input } => match self.env.job(job) {
                Some(address) => deliver(cx, &address, JobMsg::Input(*input)),
                None if self.env.jobs.contains(job) => {
                    tracing::warn!(job_id = job.0, "job.actor_missing");
                }
                None => self.bounce(cx, job, *input),
            },
            // Without an actor there is none to wait for: whoever asked learns that when the reply is dropped.
            JobsMsg::Ask { job, message } => {
                if let Some(address) = self.env.job(job) {
                    deliver(cx, &address, *message);
                }
            }
            JobsMsg::SiteChanged => {
                let site = self.env.job_site();
                for path in cx.children() {
                    if let Some(address) = cx.system().find::<JobMsg>(&path) {
                        deliver(cx, &address, JobMsg::Input(JobInput::Site(Arc::clone(&site))));
                    }
                }
            }
        }
    }

    fn child_event(&mut self, cx: &mut Context<Self>, event: ChildEvent) {
        match event {
            ChildEvent::Restarted { path, panic, restarts } => {
                tracing::error!(%path, panic, restarts, "job.actor_restarted");
                if let Some(job) = job_at(&path) {
                    self.tell_of_new_owner(cx, job);
                }
            }
            ChildEvent::Stopped { path } => tracing::debug!(%path, "job.actor_stopped"),
            ChildEvent::GaveUp { path, reason } => {
                tracing::error!(%path, reason, "job.actor_gave_up");
                if let Some(job) = job_at(&path) {
                    let key = ("retry", u64::from(job.0));
                    cx.set_timer(key, RETRY_AFTER, JobsMsg::StartAgain { job });
                }
            }
        }
    }
}

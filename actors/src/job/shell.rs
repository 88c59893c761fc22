//! What a job's verbs come to in the controller, and the supervisor of all jobs.

use super::{
    core::JobCore,
    messages::{JobAnswer, JobAsk, JobErrand, JobInput, JobMsg, JobShown, JobTimer, JobWatcher, LaunchOrder},
};
use crate::{
    controller::env::{Env, deliver},
    job::messages::FreshIds,
    node::messages::NodeInput,
    owner::{
        Letter, Out, Owner,
        actor::{Came, Early, OwnerActor, Shell},
    },
};
use garrick_model::{
    ids::JobId,
    messages::node::{ControllerToNode, JobLaunch},
    packed_steps::StepTally,
    refusal::Refusal,
    state::JobState,
    time::Timestamp,
    view::JobView,
};
use garrick_runtime::{
    Actor, ActorPath, Address, ChildEvent, ChildSpec, Context, Message, Placement, Restart, RestartLimits, TimerKey,
    WhenExceeded,
};
use std::{sync::Arc, time::Duration};

/// A wide job is answered by each of its nodes at about the same time.
const JOB_MAILBOX: usize = 65_536;

impl Owner for JobCore {
    type Input = JobInput;
    type Timer = JobTimer;
    type Shown = JobShown;
    type Answer = JobAnswer;
    type Errand = JobErrand;

    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: JobInput, out: &mut Out<Self>) {
        Self::handle(self, now, ids, input, out);
    }

    fn timer(timer: JobTimer) -> JobInput {
        JobInput::Timer(timer)
    }
}

/// What the shell of a job keeps.
#[derive(Default)]
pub struct JobHands {
    watchers: Vec<JobWatcher>,
    shown: Option<Arc<JobView>>,
}

impl Shell for JobCore {
    type Ask = JobAsk;
    type Gift = JobWatcher;
    type Hands = JobHands;

    fn name(input: &JobInput) -> &'static str {
        input.name()
    }

    fn ask_name(ask: &JobAsk) -> &'static str {
        match ask {
            JobAsk::Command { .. } => "Command",
            JobAsk::Wait(_) => "Wait",
            JobAsk::Script => "Script",
            JobAsk::Locate => "Locate",
        }
    }

    fn key(timer: JobTimer) -> TimerKey {
        timer.key().into()
    }

    fn asked(request: u64, ask: JobAsk) -> JobInput {
        match ask {
            JobAsk::Command { by, tasks, command } => JobInput::Command { request, by, tasks, command },
            JobAsk::Wait(until) => JobInput::Wait { request, until },
            JobAsk::Script => JobInput::Script { request },
            JobAsk::Locate => JobInput::Locate { request },
        }
    }

    fn begin(&mut self, _: &mut JobHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        let mut left = env.leftovers.get(self.record().id);
        // What is committed counts, whatever an earlier life had decided.
        left.forgotten = false;
        let is_so = |job: &JobId, sluid| {
            env.committed.look(*job, |other| other.sluid == sluid && other.phase.run().is_some()).unwrap_or(false)
        };
        if left.granted.iter().any(|(job, (sluid, _))| !is_so(job, *sluid)) {
            Arc::make_mut(&mut left.granted).retain(|job, (sluid, _)| is_so(job, *sluid));
        }
        self.resume(now, &mut env.ids.clone(), left, out);
    }

    fn keep(&self, env: &Env) {
        env.leftovers.put(self.record().id, self.leftover());
    }

    fn hand(&self, hands: &mut JobHands, watcher: JobWatcher) {
        let wanted = hands.shown.is_none() || watcher.send(hands.shown.clone()).is_ok();
        if wanted && !hands.shown.as_deref().is_some_and(is_over) {
            hands.watchers.push(watcher);
        }
    }

    fn run(&self, _: &mut JobHands, env: &Env, errand: JobErrand) -> Came<JobInput> {
        match errand {
            JobErrand::Launch(order) => Came::Letter(signed_launch(env, *order)),
            JobErrand::FindSiblings => Came::Input(JobInput::Siblings { jobs: env.committed.siblings(self.record()) }),
        }
    }

    fn publish(&self, hands: &mut JobHands, env: &Env, shown: JobShown) {
        let job = self.record().id;
        match shown {
            JobShown::Steps(tally) if tally == StepTally::default() => {
                env.boards.steps.remove(&job);
            }
            JobShown::Steps(tally) => {
                env.boards.steps.publish(job, Arc::new(tally));
            }
            JobShown::View(view) => {
                env.boards.jobs.publish(job, Arc::clone(&view));
                hands.watchers.retain(|watcher| watcher.send(Some(Arc::clone(&view))).is_ok());
                // The core may be ahead of what is shown.
                if is_over(&view) {
                    hands.watchers.clear();
                    // From now on they are in the view.
                    env.boards.steps.remove(&job);
                }
                hands.shown = Some(view);
            }
        }
    }

    fn forget(&self, env: &Env) {
        forget(env, self.record().id);
    }

    fn try_again(after: Duration) -> JobAnswer {
        JobAnswer::Done(Err(Refusal::RetryAfter { after }))
    }

    fn label(&self) -> String {
        format!("job/{}", self.record().id.0)
    }
}

/// Nothing is shown or kept of it.
fn forget(env: &Env, job: JobId) {
    env.boards.jobs.remove(&job);
    env.boards.steps.remove(&job);
    env.leftovers.remove(job);
}

fn signed_launch(env: &Env, order: LaunchOrder) -> Letter {
    let launch = JobLaunch {
        switches: env.switches(&order.credential),
        credential: env.ports.signer.sign(&order.credential),
        spec: order.spec,
        time_limit: order.time_limit,
        start_time: order.start_time,
        restarts: order.restarts,
        tasks: order.tasks,
        cpus_per_task: order.cpus_per_task,
        array: order.array,
        het: order.het,
        requeue: Some(order.requeue),
    };
    Letter::Node(order.node, NodeInput::Send(Box::new(ControllerToNode::StartJob(Box::new(launch)))))
}

/// Will its view not change any more?
pub fn is_over(view: &JobView) -> bool {
    let works =
        matches!(view.state, JobState::Configuring | JobState::Running | JobState::Suspended | JobState::Completing);
    !works && !view.state.waits()
}

/// Messages of the supervisor of jobs, all from the front and from other actors of the controller.
pub enum JobsMsg {
    /// Start the actor of a job that is committed.
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

/// The timer of a job that failed too often.
fn retry(job: JobId) -> TimerKey {
    ("retry", u64::from(job.0)).into()
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
        if let Some(lives) = env.job(job) {
            if let Some(first) = first {
                deliver(cx, &lives, JobMsg::Input(*first));
            }
            return;
        }
        if !env.committed.has_job(job) {
            return forget(&env, job);
        }
        let early = Early::default();
        let factory = move || {
            let again = env.leftovers.get(job).is_of_earlier_life();
            let make = move |env: &Env| {
                let record = env.committed.job(job);
                if record.is_none() {
                    // It failed after its last event.
                    forget(env, job);
                }
                record.map(|record| JobCore::new(record, env.job_site()))
            };
            let actor = OwnerActor::new(make, JobHands::default(), Arc::clone(&env));
            actor.behind_all_appended(again).with_early(early.clone())
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

    /// A job's owner. One that was committed and shown a moment ago is started here, before whoever has it started gets to that;
    /// one that failed too often is not.
    fn owner(&self, cx: &mut Context<Self>, job: JobId) -> Option<Address<JobMsg>> {
        if self.env.job(job).is_none() && !cx.has_timer(retry(job)) {
            self.start(cx, job, None);
        }
        self.env.job(job)
    }

    /// A job's owner was built anew: nodes say again what it may not have dealt with, jobs that wait for it ask again, and
    /// tasks that it had split off and not started are started.
    fn tell_of_new_owner(&self, cx: &mut Context<Self>, job: JobId) {
        for node in self.env.nodes.names() {
            self.env.tell_node(cx, &node, NodeInput::OwnerIsNew { job });
        }
        for by in self.env.committed.waiting_for(job) {
            self.env.tell_job(cx, job, JobInput::Subscribe { by });
        }
        for waits in self.env.committed.jobs() {
            self.start(cx, waits, None);
        }
    }
}

impl Actor for JobsSupervisor {
    type Msg = JobsMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        // What was recovered, or what the last life of this supervisor left there.
        for job in self.env.committed.jobs() {
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
            JobsMsg::Deliver { job, input } => match self.owner(cx, job) {
                Some(address) => deliver(cx, &address, JobMsg::Input(*input)),
                None if self.env.committed.has_job(job) => {
                    tracing::warn!(job_id = job.0, "job.actor_missing");
                }
                None => {
                    for letter in Letter::Job(job, *input).undeliverable() {
                        self.env.post(cx, letter);
                    }
                }
            },
            // Without an actor there is none to wait for: whoever asked learns that when the reply is dropped.
            JobsMsg::Ask { job, message } => {
                if let Some(address) = self.owner(cx, job) {
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
                    cx.set_timer(retry(job), RETRY_AFTER, JobsMsg::StartAgain { job });
                }
            }
        }
    }
}

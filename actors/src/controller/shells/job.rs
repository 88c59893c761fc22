//! How a job's effects are carried out in the controller, and how jobs' owners are supervised.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
    supervisor::{Kind, SupervisorMsg},
};
use crate::job::{
    core::JobCore,
    effects::{JobErrand, JobShown},
};
#[cfg(test)]
use crate::messages::job::{Authority, JobCommand, TaskChoice};
use crate::{
    messages::{
        job::{JobAnswer, JobAsk, JobInput, JobTimer},
        letter::Letter,
        node::NodeInput,
    },
    owner::Out,
};
#[cfg(test)]
use garrick_model::messages::command::JobMilestone;
use garrick_model::{ids::JobId, packed_steps::StepTally, refusal::Refusal, time::Timestamp, view::JobView};
#[cfg(test)]
use garrick_runtime::AskError;
use garrick_runtime::{Placement, ReplyTo, TimerKey};
#[cfg(test)]
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

/// All nodes of a large job answer at about the same time.
const JOB_MAILBOX: usize = 65_536;

/// Messages of the job actor. All may be delivered twice; for runs, messages about older ones are recognised by SLUID and
/// ignored.
pub type JobMsg = OwnerMsg<JobCore>;

impl JobMsg {
    /// Its view after every change.
    pub const fn watch(watcher: JobWatcher) -> Self {
        Self::Hand { gift: watcher, input: None }
    }
}

/// Questions, as tests ask them, each with its own kind of answer.
#[cfg(test)]
impl JobMsg {
    /// A question whose answer is of one kind.
    fn ask<R: Send + 'static>(
        ask: JobAsk,
        reply: ReplyTo<R>,
        kind: impl FnOnce(JobAnswer) -> Option<R> + Send + 'static,
    ) -> Self {
        let reply = ReplyTo::calling(move |answer: Result<JobAnswer, AskError>| match answer.map(kind) {
            Ok(Some(answer)) => reply.reply(answer),
            // Of no other kind is any answer.
            Ok(None) => drop(reply),
            Err(error) => reply.fail(error),
        });
        Self::Ask { ask, reply }
    }

    /// A user's command.
    pub fn command(by: Authority, tasks: TaskChoice, command: JobCommand, reply: ReplyTo<Result<(), Refusal>>) -> Self {
        Self::ask(JobAsk::Command { by, tasks, command }, reply, |answer| match answer {
            JobAnswer::Done(result) => Some(result),
            _ => None,
        })
    }

    /// Answers when the job has reached that milestone.
    pub fn wait(until: JobMilestone, reply: ReplyTo<Result<Arc<JobView>, Refusal>>) -> Self {
        Self::ask(JobAsk::Wait(until), reply, |answer| match answer {
            JobAnswer::Reached(view) => Some(Ok(view)),
            JobAnswer::Done(Err(refusal)) => Some(Err(refusal)),
            _ => None,
        })
    }

    /// Its script.
    pub fn script(reply: ReplyTo<Result<Option<ByteBuf>, Refusal>>) -> Self {
        Self::ask(JobAsk::Script, reply, |answer| match answer {
            JobAnswer::Script(script) => Some(Ok(script)),
            JobAnswer::Done(Err(refusal)) => Some(Err(refusal)),
            _ => None,
        })
    }
}

/// For the frontend: the newest view after every change, until the job is over or the receiver is gone.
pub type JobWatcher = tokio::sync::watch::Sender<Watched>;

/// What the watcher of a job gets.
#[derive(Clone, Debug, Default)]
pub enum Watched {
    /// Nothing yet.
    #[default]
    Nothing,
    /// Its newest view.
    View(Arc<JobView>),
    /// This controller is not the leader: nothing more comes; try again after this time.
    TryAgain(Duration),
}

/// The state of a job's shell.
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
        // The committed state decides, not what an earlier life had decided.
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
        let wanted = hands.shown.as_ref().is_none_or(|view| watcher.send(Watched::View(Arc::clone(view))).is_ok());
        if wanted && !hands.shown.as_deref().is_some_and(is_over) {
            hands.watchers.push(watcher);
        }
    }

    fn run(&self, _: &mut JobHands, env: &Env, errand: JobErrand) -> Came<JobInput> {
        match errand {
            JobErrand::Launch(order) => {
                let (signed, switches) = (env.ports.signer.sign(&order.credential), env.switches(&order.credential));
                Came::Letter(order.letter(signed, switches))
            }
            JobErrand::Script { sluid, script, program } => {
                let (tell, ended) = ReplyTo::channel();
                env.ports.programs.run(*program, tell);
                Came::Later(Box::pin(async move {
                    let result = ended.await.unwrap_or_else(|e| Err(e.to_string()));
                    Some(JobInput::ScriptEnded { sluid, script, result })
                }))
            }
            JobErrand::Mail(program) => {
                env.ports.programs.run(*program, ReplyTo::calling(drop));
                Came::Nothing
            }
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
                env.counted.job(env.boards.jobs.get(&job).as_deref(), &view);
                env.boards.jobs.publish(job, Arc::clone(&view));
                hands.watchers.retain(|watcher| watcher.send(Watched::View(Arc::clone(&view))).is_ok());
                // The core may be ahead of the published view.
                if is_over(&view) {
                    hands.watchers.clear();
                    // From now on they are part of the view.
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

    fn turn_all_away(hands: &mut JobHands, after: Duration) {
        hands.watchers.drain(..).for_each(|watcher| drop(watcher.send(Watched::TryAgain(after))));
    }

    fn turn_away(watcher: JobWatcher, after: Duration) -> Option<JobWatcher> {
        // A receiver that is gone needs no answer.
        let _ = watcher.send(Watched::TryAgain(after));
        None
    }

    fn label(&self) -> String {
        format!("job/{}", self.record().id.0)
    }
}

/// Removes all that is published or kept for it.
fn forget(env: &Env, job: JobId) {
    env.boards.jobs.remove(&job);
    env.boards.steps.remove(&job);
    env.leftovers.remove(job);
}

/// Is its view final?
pub fn is_over(view: &JobView) -> bool {
    !view.state.is_live()
}

/// Messages of the supervisor of jobs, at `/job`. An owner's start message is its first input.
pub type JobsMsg = SupervisorMsg<Jobs>;

/// Owners of jobs.
pub struct Jobs;

impl Kind for Jobs {
    type Owner = JobCore;
    type Key = JobId;
    type Seed = Option<Box<JobInput>>;

    const NAME: &'static str = "job";
    const MAILBOX: usize = JOB_MAILBOX;

    fn all(env: &Env) -> Vec<JobId> {
        env.committed.jobs()
    }

    fn is_there(env: &Env, job: &JobId) -> bool {
        env.committed.has_job(*job)
    }

    fn make(env: &Env, job: &JobId) -> Option<JobCore> {
        let record = env.committed.job(*job);
        if record.is_none() {
            // It failed after its last event.
            forget(env, *job);
        }
        record.map(|record| JobCore::new(record, env.job_site()))
    }

    fn had_another(env: &Env, job: &JobId) -> bool {
        env.leftovers.get(*job).is_of_earlier_life()
    }

    fn placement(_: &Env, job: &JobId) -> Placement {
        Placement::Hash(u64::from(job.0))
    }

    fn begin(_: &Env, _: &JobId, first: Option<Box<JobInput>>, _: bool) -> Option<JobInput> {
        first.map(|first| *first)
    }

    fn missing(env: &Env, job: &JobId, message: JobMsg) -> Vec<Letter> {
        match message {
            OwnerMsg::Input(_) if env.committed.has_job(*job) => {
                tracing::warn!(job_id = job.0, "job.actor_missing");
                Vec::new()
            }
            OwnerMsg::Input(input) => Letter::Job(*job, input).undeliverable(),
            _ => Vec::new(),
        }
    }

    /// Nodes repeat what it may not have handled, and jobs that wait for it ask again.
    fn built_anew(env: &Env, job: &JobId) -> Vec<Letter> {
        let nodes = env.nodes.names().into_iter();
        let nodes = nodes.map(|node| Letter::Node(node, NodeInput::OwnerIsNew { job: *job }));
        let waiting = env.committed.waiting_for(*job).into_iter();
        nodes.chain(waiting.map(|by| Letter::Job(*job, JobInput::Subscribe { by }))).collect()
    }

    fn forget(env: &Env, job: &JobId) {
        if !env.committed.has_job(*job) {
            forget(env, *job);
        }
    }
}

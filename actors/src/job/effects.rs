//! Effects of a job: its views, and its errands at the controller's ports.

use crate::{
    messages::{
        job::{JobAnswer, JobTimer, Script},
        letter::Letter,
        node::NodeInput,
    },
    owner::Effect,
};
use garrick_model::{
    ids::Sluid,
    messages::node::{
        ArrayFacts, ControllerToNode, HetComponent, JobCredential, JobLaunch, RequeuePolicy, SignedCredential,
        SwitchPath,
    },
    packed_steps::StepTally,
    site_program::SiteProgram,
    spec::JobSpec,
    time::{TimeLimit, Timestamp},
    view::JobView,
};
use std::sync::Arc;

/// An effect of a job.
pub type JobEffect = Effect<JobTimer, JobShown, JobAnswer, JobErrand>;

/// What a job publishes.
#[derive(Clone, Debug, PartialEq)]
pub enum JobShown {
    /// Itself.
    View(Arc<JobView>),
    /// The step manager's counts, besides the view.
    Steps(StepTally),
}

/// A job's errands at the controller's ports.
#[derive(Clone, Debug, PartialEq)]
pub enum JobErrand {
    /// Sign a launch and send it to the batch host.
    Launch(Box<LaunchOrder>),
    /// Find the jobs for which a singleton waits
    /// ([`holds_up_singleton`](garrick_events::records::job::JobRecord::holds_up_singleton)). Answered by
    /// [`JobInput::Siblings`](crate::messages::job::JobInput::Siblings).
    FindSiblings,
    /// Run a program of the site. Answered by
    /// [`JobInput::ScriptEnded`](crate::messages::job::JobInput::ScriptEnded).
    Script {
        /// For that run.
        sluid: Sluid,
        /// Which.
        script: Script,
        /// What to run.
        program: Box<SiteProgram>,
    },
    /// Tell its user: run that program. Nobody waits for it.
    Mail(Box<SiteProgram>),
}

/// A launch that only has to be signed.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchOrder {
    /// Batch host.
    pub node: String,
    /// To be signed.
    pub credential: JobCredential,
    /// The job.
    pub spec: Arc<JobSpec>,
    /// Limit.
    pub time_limit: TimeLimit,
    /// Start of the run.
    pub start_time: Timestamp,
    /// Earlier requeues.
    pub restarts: u32,
    /// Tasks.
    pub tasks: u32,
    /// CPUs of a task.
    pub cpus_per_task: u32,
    /// Facts of the array.
    pub array: Option<ArrayFacts>,
    /// The other components of a heterogeneous job.
    pub het: Vec<HetComponent>,
    /// May another run follow?
    pub requeue: RequeuePolicy,
}

impl LaunchOrder {
    /// The letter that makes the batch host launch it, after it is signed. `switches` are those above the nodes, in their order.
    pub fn letter(self, credential: SignedCredential, switches: Vec<SwitchPath>) -> Letter {
        let launch = JobLaunch {
            credential,
            spec: self.spec,
            time_limit: self.time_limit,
            start_time: self.start_time,
            restarts: self.restarts,
            tasks: self.tasks,
            cpus_per_task: self.cpus_per_task,
            array: self.array,
            switches,
            het: self.het,
            requeue: Some(self.requeue),
        };
        Letter::Node(self.node, NodeInput::Send(Box::new(ControllerToNode::StartJob(Box::new(launch)))))
    }
}

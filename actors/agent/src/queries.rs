//! Questions that are passed to all `stepd`s of this node, and commands that pass through its door.

use crate::{
    core::NodeAgentCore,
    messages::{AgentEffect, AgentTimer, RunKey},
    state::{Run, RunPhase},
};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{Caller, CommandReply, CommandRequest, RunStanding, TraceLine},
        node::NodeToController,
        stepd::NodeToStepd,
    },
    refusal::Refusal,
    step_listing::StepListing,
    view::StepView,
};
use std::collections::{BTreeMap, BTreeSet};

/// Open questions and conversations.
#[derive(Debug, Default)]
pub(super) struct Queries {
    steps: BTreeMap<u64, StepsQuery>,
    traces: BTreeMap<u64, TraceQuery>,
    commands: BTreeSet<u64>,
    /// Commands that came while there was no connection to the controller.
    held: BTreeMap<u64, (Caller, Box<CommandRequest>)>,
}

/// A command waits for the controller for MessageTimeout; a listing has half of that.
const COMMAND_LIMITS: u32 = 2;

/// Most commands that wait for the controller to come back; further ones are refused at once.
const HELD: usize = 1024;

#[derive(Debug)]
struct StepsQuery {
    waiting: BTreeSet<RunKey>,
    /// `stepd`s that were not connected when the question was passed on.
    away: Vec<RunKey>,
    steps: StepListing,
}

#[derive(Debug)]
struct TraceQuery {
    /// `None`: this process itself.
    waiting: BTreeSet<Option<RunKey>>,
    follow: bool,
}

impl NodeAgentCore {
    fn connected_runs(&self, wanted: impl Fn(&RunKey) -> bool) -> BTreeSet<RunKey> {
        let held = |phase: &RunPhase| matches!(phase, RunPhase::Held { conn: Some(_) });
        self.runs.iter().filter(|(k, r)| wanted(k) && held(&r.phase)).map(|(k, _)| *k).collect()
    }

    pub(super) fn list_steps(&mut self, query: u64, jobs: &[JobId], out: &mut Vec<AgentEffect>) {
        let managers = |k: &RunKey| jobs.is_empty() || jobs.contains(&k.job);
        let waiting: BTreeSet<RunKey> = self
            .connected_runs(managers)
            .into_iter()
            .filter(|k| self.runs.get(k).is_some_and(|r| r.batch_host))
            .collect();
        let away =
            |r: &Run| r.batch_host && matches!(r.phase, RunPhase::Held { conn: None } | RunPhase::Restarting { .. });
        let away = self.runs.iter().filter(|(k, r)| managers(k) && away(r)).map(|(k, _)| *k).collect();
        for run in &waiting {
            out.push(AgentEffect::ToStepd { run: *run, message: NodeToStepd::ListSteps { query } });
        }
        self.queries.steps.insert(query, StepsQuery { waiting, away, steps: StepListing::default() });
        out.push(AgentEffect::SetTimer { timer: AgentTimer::Query(query), after: self.config.query_limit });
        self.answer_steps_if_complete(query, out);
    }

    pub(super) fn steps_from(
        &mut self,
        query: u64,
        run: RunKey,
        steps: Vec<StepView>,
        left_out: u64,
        out: &mut Vec<AgentEffect>,
    ) {
        if let Some(q) = self.queries.steps.get_mut(&query)
            && q.waiting.remove(&run)
        {
            q.steps.add(steps, left_out);
            self.answer_steps_if_complete(query, out);
        }
    }

    fn answer_steps_if_complete(&mut self, query: u64, out: &mut Vec<AgentEffect>) {
        if self.queries.steps.get(&query).is_some_and(|q| q.waiting.is_empty()) {
            out.push(AgentEffect::ClearTimer(AgentTimer::Query(query)));
            self.answer_steps(query, out);
        }
    }

    fn answer_steps(&mut self, query: u64, out: &mut Vec<AgentEffect>) {
        if let Some(q) = self.queries.steps.remove(&query) {
            let missing =
                q.away.iter().chain(&q.waiting).map(|k| format!("job {} on {}", k.job, self.config.node)).collect();
            let (steps, left_out) = q.steps.finish();
            self.tell(NodeToController::Steps { query, steps, missing, left_out }, out);
        }
    }

    pub(super) fn trace(&mut self, query: u64, prefixes: Vec<String>, follow: bool, out: &mut Vec<AgentEffect>) {
        let mut waiting: BTreeSet<Option<RunKey>> = BTreeSet::from([None]);
        for run in self.connected_runs(|_| true) {
            let message = NodeToStepd::Trace { query, prefixes: prefixes.clone(), follow };
            out.push(AgentEffect::ToStepd { run, message });
            waiting.insert(Some(run));
        }
        self.queries.traces.insert(query, TraceQuery { waiting, follow });
        out.push(AgentEffect::OwnTrace { query, prefixes, follow });
        if !follow {
            out.push(AgentEffect::SetTimer { timer: AgentTimer::Query(query), after: self.config.query_limit });
        }
    }

    pub(super) fn own_trace(&mut self, query: u64, records: Vec<TraceLine>, out: &mut Vec<AgentEffect>) {
        self.trace_records(query, None, records, out);
    }

    pub(super) fn trace_from(&mut self, query: u64, run: RunKey, records: Vec<TraceLine>, out: &mut Vec<AgentEffect>) {
        self.trace_records(query, Some(run), records, out);
    }

    fn trace_records(&mut self, query: u64, from: Option<RunKey>, records: Vec<TraceLine>, out: &mut Vec<AgentEffect>) {
        let Some(q) = self.queries.traces.get_mut(&query) else { return };
        q.waiting.remove(&from);
        let last = !q.follow && q.waiting.is_empty();
        if last {
            self.queries.traces.remove(&query);
            out.push(AgentEffect::ClearTimer(AgentTimer::Query(query)));
        }
        self.tell(NodeToController::Trace { query, records, last }, out);
    }

    pub(super) fn stop_trace(&mut self, query: u64, out: &mut Vec<AgentEffect>) {
        if self.queries.traces.remove(&query).is_some() {
            out.push(AgentEffect::StopOwnTrace { query });
            for run in self.connected_runs(|_| true) {
                out.push(AgentEffect::ToStepd { run, message: NodeToStepd::StopTrace { query } });
            }
        }
    }

    pub(super) fn query_timed_out(&mut self, query: u64, out: &mut Vec<AgentEffect>) {
        self.answer_steps(query, out);
        if self.queries.traces.remove(&query).is_some() {
            self.tell(NodeToController::Trace { query, records: Vec::new(), last: true }, out);
        }
    }

    pub(super) fn command(
        &mut self,
        query: u64,
        caller: Caller,
        request: Box<CommandRequest>,
        out: &mut Vec<AgentEffect>,
    ) {
        if let CommandRequest::AskRun { job, sluid } = *request {
            let reply = Box::new(self.standing_of(RunKey { job, sluid }, &caller));
            out.push(AgentEffect::AnswerCommand { query, reply });
        } else if self.connected {
            self.queries.commands.insert(query);
            self.tell(NodeToController::Command { query, caller, request }, out);
        } else if self.queries.held.len() < HELD {
            self.queries.held.insert(query, (caller, request));
            let after = self.config.query_limit * COMMAND_LIMITS;
            out.push(AgentEffect::SetTimer { timer: AgentTimer::Command(query), after });
        } else {
            Self::controller_is_away(query, out);
        }
    }

    fn controller_is_away(query: u64, out: &mut Vec<AgentEffect>) {
        let reply = Box::new(CommandReply::Refused(Refusal::ControllerUnreachable));
        out.push(AgentEffect::AnswerCommand { query, reply });
    }

    /// The controller is back: passes on the commands that waited for it.
    pub(super) fn pass_held_commands(&mut self, out: &mut Vec<AgentEffect>) {
        for (query, (caller, request)) in std::mem::take(&mut self.queries.held) {
            out.push(AgentEffect::ClearTimer(AgentTimer::Command(query)));
            self.queries.commands.insert(query);
            self.tell(NodeToController::Command { query, caller, request }, out);
        }
    }

    /// The controller did not come back in the time that a command waits.
    pub(super) fn command_timed_out(&mut self, query: u64, out: &mut Vec<AgentEffect>) {
        if self.queries.held.remove(&query).is_some() {
            Self::controller_is_away(query, out);
        }
    }

    /// The state of a run on this node. This agent knows it best, so the controller is not needed.
    fn standing_of(&self, key: RunKey, caller: &Caller) -> CommandReply {
        match self.runs.get(&key) {
            Some(run) if caller.uid != run.uid && caller.uid != 0 => CommandReply::Refused(Refusal::AccessDenied),
            Some(run) => CommandReply::Run(run.standing()),
            None => CommandReply::Run(RunStanding::Over),
        }
    }

    pub(super) fn command_gone(&mut self, query: u64, out: &mut Vec<AgentEffect>) {
        if self.queries.held.remove(&query).is_some() {
            out.push(AgentEffect::ClearTimer(AgentTimer::Command(query)));
        }
        if self.queries.commands.remove(&query) {
            self.tell(NodeToController::CommandGone { query }, out);
        }
    }

    /// Passes replies on as they come: the door knows which requests have several.
    pub(super) fn command_reply(&mut self, query: u64, reply: CommandReply, out: &mut Vec<AgentEffect>) {
        if self.queries.commands.contains(&query) {
            out.push(AgentEffect::AnswerCommand { query, reply: Box::new(reply) });
        }
    }

    /// The controller is gone: answers the open commands with that. A command may ask again.
    pub(super) fn fail_commands(&mut self, out: &mut Vec<AgentEffect>) {
        for query in std::mem::take(&mut self.queries.commands) {
            Self::controller_is_away(query, out);
        }
        // The questions ended with the connection; the next controller asks anew.
        self.queries.steps.clear();
        for query in std::mem::take(&mut self.queries.traces).into_keys() {
            out.push(AgentEffect::StopOwnTrace { query });
            for run in self.connected_runs(|_| true) {
                out.push(AgentEffect::ToStepd { run, message: NodeToStepd::StopTrace { query } });
            }
        }
    }
}

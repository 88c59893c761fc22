//! Commands that change something: found out whom they mean, sent to each owner, answered together.

use super::{
    env::deliver,
    front::ControllerActor,
    members::RosterAsked,
    messages::ControllerMsg,
    per_task::Asked,
    ports::ReplySink,
    selection::{Selection, may_act},
};
use crate::{
    job::messages::{Authority, JobCommand, JobMsg, TaskChoice},
    node::{
        messages::{NodeAsk, NodeInput, NodeMsg},
        shell::NodesMsg,
    },
    partition::{
        messages::{PartitionMsg, PartitionUpdate},
        shell::PartitionsMsg,
    },
    roster::core::RosterAsk,
};
use garrick_model::{
    config::function,
    ids::JobId,
    messages::{
        command::{CancelRequest, CommandReply, JobAction, JobFilter, JobSelector, NodeChange, NodeStateChange},
        node::{ControllerToNode, SignalScope},
    },
    refusal::Refusal,
    state::{ExitStatus, JobState},
    step_selector::StepsSelector,
    view::{Allocation, JobView},
};
use garrick_runtime::{Context, PendingReply, ReplyTo};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

/// What a job will answer.
pub(super) type Answer = PendingReply<Result<(), Refusal>>;

/// Answers of the jobs that one selector meant.
pub(super) type Pending = Vec<Answer>;

impl ControllerActor {
    pub(super) fn send_command(
        &self,
        cx: &mut Context<Self>,
        job: JobId,
        by: Authority,
        tasks: TaskChoice,
        command: JobCommand,
    ) -> Option<PendingReply<Result<(), Refusal>>> {
        let (reply, answer) = ReplyTo::channel();
        self.env.ask_job(cx, job, JobMsg::command(by, tasks, command, reply)).then_some(answer)
    }

    /// Whom a selector means: where the site has it so, the whole of a heterogeneous job in place of a component.
    fn meant<'s>(
        &self,
        selection: &mut Selection,
        selector: &'s JobSelector,
        command: &JobCommand,
    ) -> Result<Cow<'s, JobSelector>, Refusal> {
        let words = &self.env.config().scheduler_parameters;
        let applies = matches!(command, JobCommand::Cancel | JobCommand::Hold { .. } | JobCommand::Release);
        if !applies || !(words.has("whole_hetjob") || words.has("whole_pack")) {
            return Ok(Cow::Borrowed(selector));
        }
        let one = if selector.het.is_none() { self.env.boards.jobs.get(&selector.job) } else { None };
        let leader = match one {
            Some(view) => Some(view),
            None => selection.find(selector)?.into_iter().next(),
        };
        let leader = leader.and_then(|view| view.spec.het_leader_of_component());
        Ok(leader
            .map_or(Cow::Borrowed(selector), |job| Cow::Owned(JobSelector { job, tasks: None, het: None, run: None })))
    }

    /// Sends a command to everyone that a selector means.
    fn send_to_selected(
        &self,
        cx: &mut Context<Self>,
        selection: &mut Selection,
        selector: &JobSelector,
        by: Authority,
        command: &JobCommand,
    ) -> Result<Vec<Asked>, Refusal> {
        let mut asked = Vec::new();
        let selector = &*self.meant(selection, selector, command)?;
        // The leader of a heterogeneous job sees to its other components.
        let by_leader =
            matches!(command, JobCommand::Cancel | JobCommand::Requeue { .. } | JobCommand::RequeueSpecialExit)
                && selector.het.is_none();
        let mut meant = selection.find(selector)?;
        // Of a whole array, tasks that run are not what is held or released.
        let waits = |view: &Arc<JobView>| {
            !matches!(view.state, JobState::Configuring | JobState::Running | JobState::Suspended)
        };
        let of_waiting = matches!(command, JobCommand::Hold { .. } | JobCommand::Release) && selector.tasks.is_none();
        if of_waiting && meant.iter().any(waits) {
            meant.retain(waits);
        }
        for view in meant {
            if by_leader && view.id != selector.job && view.spec.het_leader_of_component() == Some(selector.job) {
                continue;
            }
            if matches!(command, JobCommand::Suspend | JobCommand::Resume) && is_one_component(&view, selector) {
                asked.push(Asked::refused(&view, selector, Refusal::NotWholeHetJob));
                continue;
            }
            asked.extend(self.send_to_one(cx, &view, selector, by, command.clone()));
        }
        Ok(asked)
    }

    pub(super) fn send_to_one(
        &self,
        cx: &mut Context<Self>,
        view: &JobView,
        selector: &JobSelector,
        by: Authority,
        command: JobCommand,
    ) -> Option<Asked> {
        if !may_act(by, view) {
            return Some(Asked::refused(view, selector, Refusal::AccessDenied));
        }
        // The record of an array chooses among its waiting tasks; all others are meant as a whole.
        let tasks = if view.array_pending.is_some() { selector.tasks.clone() } else { None };
        let answer = self.send_command(cx, view.id, by, tasks, command)?;
        Some(Asked::new(view, selector, answer))
    }

    pub(super) fn answer_per_job(
        cx: &mut Context<Self>,
        asked: Vec<(JobSelector, Pending)>,
        mut replies: Box<dyn ReplySink>,
    ) {
        cx.spawn(async move {
            let mut answers = Vec::with_capacity(asked.len());
            for (selector, pending) in asked {
                answers.push((selector, together(pending).await));
            }
            replies.send(CommandReply::PerJob(answers));
        });
    }

    pub(super) fn cancel(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        cancel: CancelRequest,
        mut replies: Box<dyn ReplySink>,
    ) {
        match self.send_cancel(cx, by, cancel) {
            Ok(asked) => Self::answer_per_job(cx, asked, replies),
            Err(refusal) => drop(replies.send(CommandReply::Refused(refusal))),
        }
    }

    /// An error is about the request as a whole. What was sent by then is done all the same, and is done when the request
    /// is repeated with fewer names.
    fn send_cancel(
        &self,
        cx: &mut Context<Self>,
        by: Authority,
        cancel: CancelRequest,
    ) -> Result<Vec<(JobSelector, Pending)>, Refusal> {
        let command = match (cancel.signal, cancel.batch, cancel.full) {
            (None, _, _) => JobCommand::Cancel,
            (Some(signal), true, _) => JobCommand::Signal { signal, to: SignalScope::BatchShell },
            (Some(signal), false, true) => JobCommand::Signal { signal, to: SignalScope::Full },
            (Some(signal), false, false) => JobCommand::Signal { signal, to: SignalScope::Steps },
        };
        let mut asked = Vec::new();
        let mut selection = self.selection();
        let filter = Filter::new(&cancel.filter);
        if cancel.jobs.is_empty() && cancel.steps.is_empty() {
            let mut told = BTreeSet::new();
            for view in self.matching(&filter, by) {
                let selector = JobSelector { job: view.id, tasks: None, het: None, run: None };
                let meant = self.meant(&mut selection, &selector, &command)?;
                let alone = matches!(meant, Cow::Borrowed(_));
                if alone && view.state.waits() && view.spec.het_leader_of_component().is_some()
                    || !told.insert(meant.job)
                {
                    continue;
                }
                let pending = match meant {
                    Cow::Owned(whole) => {
                        let sent = self.send_to_selected(cx, &mut selection, &whole, by, &command)?;
                        sent.into_iter().map(Asked::answer).collect()
                    }
                    // Others of a heterogeneous job are meant by themselves.
                    Cow::Borrowed(_) => self.send_command(cx, view.id, by, None, command.clone()).into_iter().collect(),
                };
                asked.push((selector, pending));
            }
        }
        for selector in cancel.jobs {
            let views = selection.find(&selector)?;
            // Filters given beside job ids bound them, as in Slurm.
            let pending = if views.iter().any(|view| filter.takes(view)) || views.is_empty() {
                let sent = self.send_to_selected(cx, &mut selection, &selector, by, &command)?;
                sent.into_iter().map(Asked::answer).collect()
            } else {
                Vec::new()
            };
            asked.push((selector, pending));
        }
        for step in cancel.steps {
            let job = step.job;
            selection.spend(1)?;
            let result = self.signal_steps(cx, &mut selection, by, step, cancel.pending_steps_only, cancel.signal);
            let (reply, answer) = ReplyTo::channel();
            reply.reply(result);
            asked.push((JobSelector { job, tasks: None, het: None, run: None }, vec![answer]));
        }
        Ok(asked)
    }

    /// Jobs that are not over and match. Users who name nobody mean themselves.
    fn matching(&self, filter: &Filter<'_>, by: Authority) -> Vec<Arc<JobView>> {
        let uid = if by.admin { None } else { filter.given.uid.or(Some(by.uid)) };
        let ended = |view: &JobView| {
            !view.state.waits()
                && !matches!(view.state, JobState::Configuring | JobState::Running | JobState::Suspended)
        };
        let jobs = self.env.boards.jobs.list();
        let meant = |view: &JobView| uid.is_none_or(|uid| uid == view.uid) && filter.takes(view);
        jobs.into_iter().filter(|view| !ended(view) && meant(view)).collect()
    }

    fn signal_steps(
        &self,
        cx: &mut Context<Self>,
        selection: &mut Selection,
        by: Authority,
        steps: StepsSelector,
        pending_only: bool,
        signal: Option<i32>,
    ) -> Result<(), Refusal> {
        let view = match steps.array_task() {
            None if steps.het.is_some() => selection.component(steps.job, steps.het.unwrap_or(0)),
            Some(task) => selection.task(task),
            None => self.env.boards.jobs.get(&steps.job),
        };
        let this_run = |view: &Arc<JobView>| steps.run.is_none_or(|run| run == view.sluid);
        let view = view.filter(this_run).ok_or(Refusal::InvalidJobId)?;
        if !by.admin && by.uid != view.uid {
            return Err(Refusal::AccessDenied);
        }
        let node = match view.state {
            JobState::Configuring => return Err(Refusal::JobPending),
            state if state.waits() => return Err(Refusal::JobPending),
            JobState::Running | JobState::Suspended => {
                view.allocation.as_ref().and_then(|a| a.nodes.first()).map(|n| n.name.clone())
            }
            _ => None,
        };
        let node = node.ok_or(Refusal::AlreadyDone)?;
        if self.link(&node).is_none() {
            return Err(Refusal::Unreachable(node, "its node daemon is not connected".to_owned()));
        }
        let (job, sluid) = (view.id, view.sluid);
        let order =
            ControllerToNode::SignalSteps { job, sluid, steps: steps.which, pending_only, signal, by: Some(by.uid) };
        self.env.tell_node(cx, &node, NodeInput::Send(Box::new(order)));
        Ok(())
    }

    pub(super) fn control(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        jobs: Vec<JobSelector>,
        action: JobAction,
        mut replies: Box<dyn ReplySink>,
    ) {
        let command = match action {
            JobAction::Hold => JobCommand::Hold { admin: by.admin },
            JobAction::UserHold => JobCommand::Hold { admin: false },
            JobAction::Release => JobCommand::Release,
            JobAction::Requeue => JobCommand::Requeue { hold: false },
            JobAction::RequeueHold => JobCommand::Requeue { hold: true },
            JobAction::RequeueSpecialExit => JobCommand::RequeueSpecialExit,
            JobAction::Suspend => JobCommand::Suspend,
            JobAction::Resume => JobCommand::Resume,
            JobAction::Top => return self.top(cx, by, jobs, replies),
        };
        let mut selection = self.selection();
        let mut send = |selector: JobSelector| {
            self.send_to_selected(cx, &mut selection, &selector, by, &command).map(|asked| (selector, asked))
        };
        match jobs.into_iter().map(&mut send).collect() {
            Ok(asked) => Self::answer_per_task(cx, asked, replies),
            Err(refusal) => drop(replies.send(CommandReply::Refused(refusal))),
        }
    }

    pub(super) fn finish_allocation(
        &self,
        cx: &mut Context<Self>,
        by: Authority,
        job: JobId,
        exit: ExitStatus,
        mut replies: Box<dyn ReplySink>,
    ) {
        let Some(answer) = self.send_command(cx, job, by, None, JobCommand::FinishAllocation { exit }) else {
            replies.send(CommandReply::Refused(Refusal::InvalidJobId));
            return;
        };
        cx.spawn(async move {
            replies.send(match together(vec![answer]).await {
                // A repeat: it is done.
                Ok(()) | Err(Refusal::AlreadyDone) => CommandReply::Done,
                Err(refusal) => CommandReply::Refused(refusal),
            });
        });
    }

    /// Nodes in place of host list functions.
    pub(super) fn nodes_named(&mut self, names: Vec<String>) -> Result<Vec<String>, Refusal> {
        if names.iter().all(|name| function(name).is_none()) {
            return Ok(names);
        }
        let config = self.env.config();
        let feasibility = self.feasibility();
        let with_feature = |feature: &str| feasibility.nodes_with_feature(feature);
        config.with_functions(&names, &with_feature).map_err(|wrong| Refusal::InvalidNode(wrong.to_string()))
    }

    pub(super) fn update_nodes(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        nodes: Vec<String>,
        change: NodeChange,
        mut replies: Box<dyn ReplySink>,
    ) {
        let nodes = match self.nodes_named(nodes) {
            Ok(nodes) => nodes,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        let config = self.env.config();
        if let Some(unknown) = nodes.iter().find(|name| config.node(name).is_none()) {
            replies.send(CommandReply::Refused(Refusal::InvalidNode(unknown.clone())));
            return;
        }
        let needs_reason =
            matches!(change.state, Some(NodeStateChange::Drain | NodeStateChange::Down | NodeStateChange::Fail));
        if needs_reason && change.reason.as_ref().is_none_or(String::is_empty) {
            let said = "You must specify a reason when DOWNING a node".to_owned();
            replies.send(CommandReply::Refused(Refusal::InvalidUpdate(said)));
            return;
        }
        if let Some(place) = change.topology.clone() {
            let then = Box::new(NodeChange { topology: None, ..change });
            let asked = match *then == NodeChange::default() {
                true => RosterAsked::Answer(Some(replies)),
                false => RosterAsked::Update { names: nodes.clone(), by, then, replies },
            };
            return self.ask_roster(cx, RosterAsk::Place { nodes, place }, asked);
        }
        let who = (by.uid, self.user_name(by.uid));
        let mut pending = Vec::with_capacity(nodes.len());
        for name in &nodes {
            let (reply, answer) = ReplyTo::channel();
            let (by, change) = (who.clone(), change.clone());
            pending.push(answer);
            // The owner of one that was made at run time may be only just being started, or be that of one before it.
            let is_of_file = self.env.roster().get(name).is_none();
            let update = NodeMsg::Ask { ask: NodeAsk::Update { by, change }, reply };
            if let Some(owner) = self.env.node(name).filter(|_| is_of_file) {
                deliver(cx, &owner, update);
            } else if let Some(supervisor) = self.env.nodes_supervisor() {
                deliver(cx, &supervisor, NodesMsg::Deliver { key: name.clone(), message: Box::new(update) });
            }
        }
        Self::answer_done(cx, pending, replies);
    }

    pub(super) fn update_partition(
        &mut self,
        cx: &mut Context<Self>,
        partition: String,
        fields: Vec<(String, String)>,
        mut replies: Box<dyn ReplySink>,
    ) {
        let config = self.env.config();
        let supervisor = self.env.partitions_supervisor().filter(|_| config.partition(&partition).is_some());
        let Some(supervisor) = supervisor else {
            replies.send(CommandReply::Refused(Refusal::InvalidPartition(partition)));
            return;
        };
        let unknown = fields.iter().find(|(key, value)| {
            key.eq_ignore_ascii_case("Topology") && !value.is_empty() && config.topology(value).is_none()
        });
        if let Some((_, name)) = unknown {
            let said = format!("no topology is called {name}");
            replies.send(CommandReply::Refused(Refusal::InvalidUpdate(said)));
            return;
        }
        let (reply, answer) = ReplyTo::channel();
        let message = Box::new(PartitionMsg::Ask { ask: PartitionUpdate { fields, config }, reply });
        // By way of the supervisor, behind what it has been told of the configuration.
        deliver(cx, &supervisor, PartitionsMsg::Deliver { key: partition, message });
        Self::answer_done(cx, vec![answer], replies);
    }

    fn answer_done(cx: &mut Context<Self>, pending: Pending, mut replies: Box<dyn ReplySink>) {
        let done = async move {
            let mut wrong = None;
            for answer in pending {
                let answer = answer.await.unwrap_or_else(|error| Err(Refusal::Internal(error.to_string())));
                wrong = wrong.or(answer.err());
            }
            replies.send(wrong.map_or(CommandReply::Done, CommandReply::Refused));
        };
        cx.pipe(done, |()| ControllerMsg::ShapesChanged);
    }
}

/// One answer for all: good when one was good and nobody had anything to say but "already over"; nobody asked means that
/// there is no such job.
pub(super) async fn together(pending: Pending) -> Result<(), Refusal> {
    let mut some_good = false;
    let mut over = false;
    let mut worst = None;
    for answer in pending {
        match answer.await {
            Ok(Ok(())) => some_good = true,
            Ok(Err(Refusal::AlreadyDone)) => over = true,
            Ok(Err(refusal)) => worst = worst.or(Some(refusal)),
            // The job was forgotten meanwhile.
            Err(_) => {}
        }
    }
    match worst {
        Some(refusal) if !some_good || refusal == Refusal::AccessDenied => Err(refusal),
        _ if some_good => Ok(()),
        _ if over => Err(Refusal::AlreadyDone),
        _ => Err(Refusal::InvalidJobId),
    }
}

/// Is one component of a heterogeneous job meant, and not all of it?
fn is_one_component(view: &JobView, selector: &JobSelector) -> bool {
    let by_own_id = view.spec.het_leader_of_component().is_some_and(|leader| leader != selector.job);
    view.spec.het.is_some() && (selector.het.is_some() || by_own_id)
}

/// A filter whose nodes are quick to look up.
struct Filter<'f> {
    given: &'f JobFilter,
    nodes: HashSet<&'f str>,
}

impl<'f> Filter<'f> {
    fn new(given: &'f JobFilter) -> Self {
        Self { given, nodes: given.nodes.iter().map(String::as_str).collect() }
    }

    fn takes(&self, view: &JobView) -> bool {
        let filter = self.given;
        let on_node = |allocation: &Allocation| allocation.nodes.iter().any(|n| self.nodes.contains(n.name.as_str()));
        filter.uid.is_none_or(|uid| uid == view.uid)
        && filter.name.as_ref().is_none_or(|name| *name == view.spec.name)
        && filter.partition.as_ref().is_none_or(|name| view.partitions.contains(name))
        && filter.account.as_ref().is_none_or(|account| view.spec.account.as_ref() == Some(account))
        // SPECIAL_EXIT and EXPEDITING are ways of being pending.
        && filter.state.is_none_or(|state| state == view.state || (state == JobState::Pending && view.state.waits()))
        && (self.nodes.is_empty() || view.allocation.as_ref().is_some_and(|a| on_node(a)))
    }
}

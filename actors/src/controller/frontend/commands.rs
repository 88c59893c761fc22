//! Commands that change something: finds the objects that they mean, and asks their owners.

use super::{
    core::{FrontendCore, OfSelectors, Reply, Then, Turn},
    gather::Asked,
    members::RosterAsked,
    messages::{Ask, FrontendErrand},
    selection::{Selection, may_act},
};
use crate::{
    messages::{
        job::{Authority, JobAsk, JobCommand, TaskChoice},
        letter::Letter,
        node::{NodeAsk, NodeInput},
    },
    roster::core::RosterAsk,
};
use garrick_model::{
    config::function,
    ids::JobId,
    job_query::JobQuery,
    messages::{
        command::{CancelRequest, CommandReply, JobAction, JobFilter, JobSelector, NodeChange, NodeStateChange},
        node::{ControllerToNode, SignalScope},
        stepd::StepsOrder,
    },
    refusal::Refusal,
    spec::JobKind,
    state::{ExitStatus, JobState},
    step_selector::StepsSelector,
    view::{Allocation, JobView},
};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

/// A command to a job.
pub(super) const fn told(job: JobId, by: Authority, tasks: TaskChoice, command: JobCommand) -> Ask {
    Ask::Job(job, JobAsk::Command { by, tasks, command })
}

impl FrontendCore {
    /// The jobs that a selector means: if the site is configured so, all of a heterogeneous job instead of a component.
    fn meant<'s>(
        &self,
        selection: &mut Selection,
        selector: &'s JobSelector,
        command: &JobCommand,
    ) -> Result<Cow<'s, JobSelector>, Refusal> {
        let words = &self.sight.config().scheduler_parameters;
        let applies = matches!(command, JobCommand::Cancel | JobCommand::Hold { .. } | JobCommand::Release);
        if !applies || !(words.has("whole_hetjob") || words.has("whole_pack")) {
            return Ok(Cow::Borrowed(selector));
        }
        let one = if selector.het.is_none() { self.sight.boards().jobs.get(&selector.job) } else { None };
        let leader = match one {
            Some(view) => Some(view),
            None => selection.find(selector)?.into_iter().next(),
        };
        let leader = leader.and_then(|view| view.spec.het_leader_of_component());
        Ok(leader
            .map_or(Cow::Borrowed(selector), |job| Cow::Owned(JobSelector { job, tasks: None, het: None, run: None })))
    }

    /// Sends a command to every job that a selector means.
    fn ask_selected(
        &self,
        asks: &mut Vec<Ask>,
        selection: &mut Selection,
        selector: &JobSelector,
        by: Authority,
        command: &JobCommand,
    ) -> Result<Vec<Asked>, Refusal> {
        let selector = &*self.meant(selection, selector, command)?;
        // The leader of a heterogeneous job passes it on to the other components.
        let by_leader =
            matches!(command, JobCommand::Cancel | JobCommand::Requeue { .. } | JobCommand::RequeueSpecialExit)
                && selector.het.is_none();
        let mut meant = selection.find(selector)?;
        // Hold and release of a whole array do not apply to running tasks.
        let waits = |view: &Arc<JobView>| !view.state.works();
        let of_waiting = matches!(command, JobCommand::Hold { .. } | JobCommand::Release) && selector.tasks.is_none();
        if of_waiting && meant.iter().any(waits) {
            meant.retain(waits);
        }
        let mut asked = Vec::with_capacity(meant.len());
        for view in meant {
            if by_leader && view.id != selector.job && view.spec.het_leader_of_component() == Some(selector.job) {
                continue;
            }
            let refused =
                if matches!(command, JobCommand::Suspend | JobCommand::Resume) && is_one_component(&view, selector) {
                    Some(Refusal::NotWholeHetJob)
                } else {
                    (!may_act(by, &view)).then_some(Refusal::AccessDenied)
                };
            asked.push(match refused {
                Some(refusal) => Asked::refused(&view, selector, refusal),
                None => {
                    asks.push(told(view.id, by, tasks_of(&view, selector), command.clone()));
                    Asked::waiting(&view, selector)
                }
            });
        }
        Ok(asked)
    }

    pub(super) fn cancel(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, cancel: CancelRequest) -> Reply {
        let mut asks = Vec::new();
        match self.who_is_cancelled(turn, &mut asks, by, cancel) {
            Ok(asked) => self.ask(turn, request, asks, Then::PerJob(asked)),
            Err(refusal) => {
                self.ask_for_nobody(turn, asks);
                return Err(refusal);
            }
        }
        Ok(None)
    }

    /// Finds the jobs to cancel. An error is about the request as a whole. What was asked before the error is done nevertheless,
    /// and is not undone when the request is repeated with fewer names.
    fn who_is_cancelled(
        &self,
        turn: &mut Turn<'_>,
        asks: &mut Vec<Ask>,
        by: Authority,
        cancel: CancelRequest,
    ) -> Result<OfSelectors, Refusal> {
        let command = match (cancel.signal, cancel.batch, cancel.full) {
            (None, _, _) => JobCommand::Cancel,
            (Some(signal), true, _) => JobCommand::Signal { signal, to: SignalScope::BatchShell },
            (Some(signal), false, true) => JobCommand::Signal { signal, to: SignalScope::Full },
            (Some(signal), false, false) => JobCommand::Signal { signal, to: SignalScope::Steps },
        };
        let mut asked = Vec::new();
        let mut selection = self.selection();
        let filter = Filter::new(&cancel.filter);
        let explicit = self.sight.config().scron_parameters.has("explicit_scancel");
        let unconfirmed = |view: &JobView| explicit && !cancel.cron && view.recurs;
        if cancel.jobs.is_empty() && cancel.steps.is_empty() {
            let mut done = BTreeSet::new();
            for view in self.matching(&filter, by) {
                let selector = JobSelector { job: view.id, tasks: None, het: None, run: None };
                let meant = self.meant(&mut selection, &selector, &command)?;
                let alone = matches!(meant, Cow::Borrowed(_));
                if alone && view.state.waits() && view.spec.het_leader_of_component().is_some()
                    || !done.insert(meant.job)
                {
                    continue;
                }
                let pending = match meant {
                    Cow::Owned(whole) => self.ask_selected(asks, &mut selection, &whole, by, &command)?,
                    // Other components of a heterogeneous job are named by themselves.
                    Cow::Borrowed(_) if unconfirmed(&view) => {
                        vec![Asked::of_all(Some(Err(Refusal::CronNotConfirmed)))]
                    }
                    Cow::Borrowed(_) => {
                        asks.push(told(view.id, by, None, command.clone()));
                        vec![Asked::of_all(None)]
                    }
                };
                asked.push((selector, pending));
            }
        }
        for selector in cancel.jobs {
            let views = selection.find(&selector)?;
            // Filters besides job ids restrict them, as in Slurm.
            let pending = if views.iter().any(|view| unconfirmed(view) && may_act(by, view)) {
                vec![Asked::of_all(Some(Err(Refusal::CronNotConfirmed)))]
            } else if views.iter().any(|view| filter.takes(view)) || views.is_empty() {
                self.ask_selected(asks, &mut selection, &selector, by, &command)?
            } else {
                Vec::new()
            };
            asked.push((selector, pending));
        }
        for step in cancel.steps {
            let job = step.job;
            selection.spend(1)?;
            let result = self.signal_steps(turn, &mut selection, by, step, cancel.pending_steps_only, cancel.signal);
            let selector = JobSelector { job, tasks: None, het: None, run: None };
            asked.push((selector, vec![Asked::of_all(Some(result))]));
        }
        Ok(asked)
    }

    /// Jobs that are not over and match. A user who names no user means his own jobs.
    fn matching(&self, filter: &Filter<'_>, by: Authority) -> Vec<Arc<JobView>> {
        let uid = if by.admin { None } else { filter.given.uid.or(Some(by.uid)) };
        let such = JobQuery { users: uid.into_iter().collect(), ..JobQuery::live() };
        let can_end = |view: &JobView| view.state.waits() || view.state.works();
        self.sight.boards().jobs.such(&such, None, usize::MAX, |view| can_end(view) && filter.takes(view))
    }

    /// Passes an order on to the step managers of the jobs that are meant.
    pub(super) fn order_steps(
        &self,
        turn: &mut Turn<'_>,
        by: Authority,
        selector: &JobSelector,
        order: &StepsOrder,
    ) -> Reply {
        let meant = self.selection().find(selector)?;
        if meant.iter().any(|view| !by.admin && by.uid != view.uid) {
            return Err(Refusal::AccessDenied);
        }
        let mut refusal = Refusal::InvalidJobId;
        let mut told = false;
        for view in &meant {
            match self.step_manager_of(view) {
                Ok(node) => {
                    let (job, sluid, order) = (view.id, view.sluid, order.clone());
                    // Of a batch job its error file has it.
                    if let (StepsOrder::Notify(text), JobKind::Allocation) = (&order, view.spec.kind) {
                        turn.run(FrontendErrand::Notify { job, text: text.clone() });
                    }
                    let order = ControllerToNode::OrderSteps { job, sluid, order };
                    turn.tell(Letter::Node(node, NodeInput::Send(Box::new(order))));
                    told = true;
                }
                Err(why) => refusal = why,
            }
        }
        if told { Ok(Some(CommandReply::Done)) } else { Err(refusal) }
    }

    /// The node where the step manager of a job is.
    fn step_manager_of(&self, view: &JobView) -> Result<String, Refusal> {
        let node = match view.state {
            state if state.waits() || state == JobState::Configuring => return Err(Refusal::JobPending),
            JobState::Running | JobState::Suspended => view.allocation.as_ref().and_then(|a| a.nodes.first()),
            _ => None,
        };
        let node = node.map(|node| node.name.clone()).ok_or(Refusal::AlreadyDone)?;
        match self.sight.link(&node) {
            Some(_) => Ok(node),
            None => Err(Refusal::Unreachable(node, "its node daemon is not connected".to_owned())),
        }
    }

    fn signal_steps(
        &self,
        turn: &mut Turn<'_>,
        selection: &mut Selection,
        by: Authority,
        steps: StepsSelector,
        pending_only: bool,
        signal: Option<i32>,
    ) -> Result<(), Refusal> {
        let view = match steps.array_task() {
            None if steps.het.is_some() => selection.component(steps.job, steps.het.unwrap_or(0)),
            Some(task) => selection.task(task),
            None => self.sight.boards().jobs.get(&steps.job),
        };
        let this_run = |view: &Arc<JobView>| steps.run.is_none_or(|run| run == view.sluid);
        let view = view.filter(this_run).ok_or(Refusal::InvalidJobId)?;
        if !by.admin && by.uid != view.uid {
            return Err(Refusal::AccessDenied);
        }
        let node = self.step_manager_of(&view)?;
        let (job, sluid) = (view.id, view.sluid);
        let order =
            ControllerToNode::SignalSteps { job, sluid, steps: steps.which, pending_only, signal, by: Some(by.uid) };
        turn.tell(Letter::Node(node, NodeInput::Send(Box::new(order))));
        Ok(())
    }

    pub(super) fn control(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        jobs: Vec<JobSelector>,
        action: JobAction,
    ) -> Reply {
        let command = match action {
            JobAction::Hold => JobCommand::Hold { admin: by.admin },
            JobAction::UserHold => JobCommand::Hold { admin: false },
            JobAction::Release => JobCommand::Release,
            JobAction::Requeue => JobCommand::Requeue { hold: false },
            JobAction::RequeueHold => JobCommand::Requeue { hold: true },
            JobAction::RequeueSpecialExit => JobCommand::RequeueSpecialExit,
            JobAction::Suspend => JobCommand::Suspend,
            JobAction::Resume => JobCommand::Resume,
            JobAction::Top => return self.top(turn, request, by, jobs),
        };
        let (mut selection, mut asks) = (self.selection(), Vec::new());
        let mut asked_of = |selector: JobSelector| {
            self.ask_selected(&mut asks, &mut selection, &selector, by, &command).map(|asked| (selector, asked))
        };
        let asked: Result<OfSelectors, Refusal> = jobs.into_iter().map(&mut asked_of).collect();
        match asked {
            Ok(asked) => self.ask(turn, request, asks, Then::PerTask(asked)),
            Err(refusal) => {
                self.ask_for_nobody(turn, asks);
                return Err(refusal);
            }
        }
        Ok(None)
    }

    pub(super) fn finish_allocation(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        job: JobId,
        exit: ExitStatus,
    ) -> Reply {
        let asks = vec![told(job, by, None, JobCommand::FinishAllocation { exit })];
        self.ask(turn, request, asks, Then::Finished);
        Ok(None)
    }

    /// Replaces host list functions by nodes.
    pub(super) fn nodes_named(&mut self, names: Vec<String>) -> Result<Vec<String>, Refusal> {
        if names.iter().all(|name| function(name).is_none()) {
            return Ok(names);
        }
        let config = self.sight.config();
        let feasibility = self.feasibility();
        let with_feature = |feature: &str| feasibility.nodes_with_feature(feature);
        config.with_functions(&names, &with_feature).map_err(|wrong| Refusal::InvalidNode(wrong.to_string()))
    }

    pub(super) fn update_nodes(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        nodes: Vec<String>,
        change: NodeChange,
    ) -> Reply {
        let nodes = self.nodes_named(nodes)?;
        let config = self.sight.config();
        if let Some(unknown) = nodes.iter().find(|name| config.node(name).is_none()) {
            return Err(Refusal::InvalidNode(unknown.clone()));
        }
        let needs_reason =
            matches!(change.state, Some(NodeStateChange::Drain | NodeStateChange::Down | NodeStateChange::Fail));
        if needs_reason && change.reason.as_ref().is_none_or(String::is_empty) {
            return Err(Refusal::InvalidUpdate("You must specify a reason when DOWNING a node".to_owned()));
        }
        if let Some(place) = change.topology.clone() {
            let then = Box::new(NodeChange { topology: None, ..change });
            let asked = match *then == NodeChange::default() {
                true => RosterAsked::Answer,
                false => RosterAsked::Update { names: nodes.clone(), by, then },
            };
            self.ask_roster(turn, request, RosterAsk::Place { nodes, place }, asked);
            return Ok(None);
        }
        let (who, roster) = ((by.uid, self.user_name(by.uid)), self.sight.roster());
        let update = |node: String| {
            let ask = NodeAsk::Update { by: who.clone(), change: change.clone() };
            // The owner of a node that was just created may still be starting, or be that of an earlier node.
            Ask::Node { starting: roster.get(&node).is_some(), node, ask }
        };
        let asks = nodes.into_iter().map(update).collect();
        self.ask(turn, request, asks, Then::Changed);
        Ok(None)
    }
}

/// An array's record can select among its waiting tasks; any other job is meant as a whole.
pub(super) fn tasks_of(view: &JobView, selector: &JobSelector) -> TaskChoice {
    if view.array_pending.is_some() { selector.tasks.clone() } else { None }
}

/// Does the selector mean one component of a heterogeneous job rather than all of it?
fn is_one_component(view: &JobView, selector: &JobSelector) -> bool {
    let by_own_id = view.spec.het_leader_of_component().is_some_and(|leader| leader != selector.job);
    view.spec.het.is_some() && (selector.het.is_some() || by_own_id)
}

/// A filter with a fast look-up of nodes.
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

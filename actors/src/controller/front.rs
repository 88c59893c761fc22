//! The front: takes commands and agents' connections, and passes each to its owner. It owns no job, node or partition;
//! queries are answered from boards.

use super::{
    agents::AgentReplies,
    audit::Audited,
    env::{Env, deliver},
    members::RosterAsked,
    messages::{ControllerMsg, request_name},
    ports::{AgentLink, ReplySink, User},
    queries::AgentQueries,
    setup,
    submit::Submitters,
    turnstile::{self, Turnstile},
    vouching::vouched,
};
use crate::{
    job::messages::Authority,
    node::{core::NodeCore, messages::NodeInput, shell::connected},
    partition::core::PartitionCore,
    roster::core::RosterAsk,
    scheduler::{
        facts::ClusterView,
        probe::Feasibility,
        shell::{partition_facts, policy},
    },
    steps::messages::StepsInput,
    submission::core::{Submission, Submissions},
};
use garrick_model::{
    config::{AUDIT_RPCS, Config, LogChange},
    hostlist::fold,
    messages::{
        command::{Caller, CommandReply, CommandRequest, NodeChange, NodeStateChange},
        encoded_bytes,
        node::{AgentReport, ControllerToNode, NodeToController},
    },
    refusal::Refusal,
    time::{Timestamp, system_zone},
    view::NodeView,
};
use garrick_runtime::{Actor, Context, ReplyTo, TraceContext};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::Semaphore;

/// When a user has too many requests waiting, or all together have, those on top come back after this.
pub const CROWDED: Duration = Duration::from_secs(1);

/// A request at the turnstile.
struct Waiting {
    caller: Caller,
    request: Box<CommandRequest>,
    replies: Box<dyn ReplySink>,
    cx: TraceContext,
}

/// The front actor, at `/controller`.
pub struct ControllerActor {
    pub(super) env: Arc<Env>,
    pub(super) submissions: Submissions,
    pub(super) submitters: Submitters,
    turnstile: Turnstile<Waiting>,
    /// `Serve` is under way.
    serves: bool,
    /// What could ever run, by that configuration.
    feasibility: Option<(Arc<Config>, Feasibility)>,
    replies: AgentReplies,
    pub(super) queries: AgentQueries,
    /// Turns of questions that take a plan of their own.
    pub(super) questions: Arc<Semaphore>,
    /// Agents that were declined.
    pub(super) declined: HashMap<String, Refusal>,
}

/// So many of those are answered at once.
const QUESTIONS: usize = 2;

impl ControllerActor {
    /// A front.
    pub fn new(env: Arc<Env>) -> Self {
        Self {
            env,
            submissions: Submissions::default(),
            submitters: Submitters::default(),
            turnstile: Turnstile::new(),
            serves: false,
            feasibility: None,
            replies: AgentReplies::default(),
            queries: AgentQueries::default(),
            questions: Arc::new(Semaphore::new(QUESTIONS)),
            declined: HashMap::new(),
        }
    }

    pub(super) fn authority(&self, caller: &Caller) -> Authority {
        Authority { uid: caller.uid, admin: self.env.ports.host.administrators().contains(&caller.uid) }
    }

    /// A user, where it matters whether there is one: a name service that has not answered yet makes nobody a stranger.
    pub(super) fn user_now(&self, uid: u32) -> Result<Option<User>, Refusal> {
        let users = &self.env.ports.users;
        if users.is_known(uid) {
            return Ok(users.user(uid));
        }
        let limit = format!("the name service of the controller's host has not said yet who uid {uid} is");
        Err(Refusal::Full { limit, after: CROWDED })
    }

    pub(super) fn user_name(&self, uid: u32) -> String {
        self.env.ports.users.user(uid).map_or_else(|| uid.to_string(), |user| user.name)
    }

    /// What could ever run, computed when first asked for after a change: from the configuration and what is saved over
    /// it, since boards follow a moment later.
    pub(super) fn feasibility(&mut self) -> &mut Feasibility {
        let env = &self.env;
        let config = env.config();
        let known = self.feasibility.take_if(|(of, _)| Arc::ptr_eq(of, &config));
        let made = || {
            let site = Arc::default();
            let nodes: Vec<Arc<NodeView>> = config
                .nodes
                .iter()
                .map(|node| {
                    let saved = env.nodes.get(&node.name).map(|core| core.saved().clone());
                    let settings = setup::node_settings(node);
                    Arc::new(NodeCore::new(Timestamp::default(), settings, Arc::clone(&site), saved, []).view())
                })
                .collect();
            let partitions = config
                .partitions
                .iter()
                .filter_map(|p| PartitionCore::new(&config, &p.name, env.committed.partition(&p.name)))
                .map(|core| partition_facts(&core.view(), config.node_places()))
                .collect();
            let mut view = ClusterView::new(policy(&config), &[], &nodes, partitions);
            view.licenses.hres = Arc::clone(&config.hres);
            view.licenses.totals.clone_from(env.licenses.lock().totals());
            (Arc::clone(&config), Feasibility::new(view))
        };
        &mut self.feasibility.insert(known.unwrap_or_else(made)).1
    }

    /// Shapes, features or partitions may have been changed by their owners.
    pub(super) fn forget_feasibility(&mut self) {
        self.feasibility = None;
    }

    pub(super) fn link(&self, node: &str) -> Option<Arc<dyn AgentLink>> {
        self.env.links.get(node).map(|(_, link)| link)
    }

    fn connected(
        &mut self,
        cx: &mut Context<Self>,
        node: String,
        registration: Box<crate::node::messages::Registration>,
        link: Arc<dyn AgentLink>,
    ) {
        let Some(address) = self.env.node(&node) else {
            let refusal = Refusal::InvalidNode(node.clone());
            self.decline(cx, node, (registration, link), refusal);
            return;
        };
        self.env.links.open(&node, registration.conn, Arc::clone(&link));
        deliver(cx, &address, connected(registration, link));
    }

    fn agent_message(&mut self, cx: &mut Context<Self>, node: String, conn: u64, message: NodeToController) {
        let current = self.env.links.get(&node).filter(|(open, _)| *open == conn).map(|(_, link)| link);
        let Some(link) = current else { return };
        match message {
            NodeToController::Command { query, caller, request } => {
                let sink = self.replies.sink(&node, query, link);
                let administrator = self.authority(&caller).admin;
                match vouched(&self.env.config(), &node, caller, administrator, &request) {
                    Ok(caller) => {
                        let bytes = encoded_bytes(&*request);
                        self.arrived(cx, caller, request, bytes, sink);
                    }
                    Err(caller) => {
                        tracing::warn!(node, uid = caller.uid, "command.host_not_trusted");
                        let audit = Arc::clone(&self.env.ports.audit);
                        let mut sink = Audited::new(sink, audit, &caller, request_name(&request), &request);
                        sink.send(CommandReply::Refused(Refusal::HostNotTrusted { host: node }));
                    }
                }
            }
            NodeToController::CommandGone { query } => self.replies.gone(&node, query),
            NodeToController::Steps { query, steps, missing, left_out } => {
                self.tell_steps(cx, StepsInput::Listed { query, node, steps, missing, left_out });
            }
            NodeToController::Records { query, runs } => {
                let address = self.env.address_of(&node);
                self.tell_steps(cx, StepsInput::Found { query, node, address, runs });
            }
            NodeToController::Trace { query, records, last } => self.queries.trace(query, &node, records, last),
            NodeToController::Register { .. } => {
                tracing::warn!(node, "node.registered_twice");
            }
            // Answered where the link ends, by whoever has the authority.
            NodeToController::Renew { .. } | NodeToController::Holds { .. } => {}
            frame @ (NodeToController::Heartbeat { .. } | NodeToController::Report { .. }) => {
                if let NodeToController::Report { report: AgentReport::Steps { job, sluid, steps }, .. } = &frame {
                    let (job, sluid) = (*job, *sluid);
                    let runs_here = self.env.committed.look(job, |record| record.steps_run_from(&node, sluid));
                    if runs_here == Some(true) {
                        self.tell_steps(cx, StepsInput::Reported { job, sluid, steps: steps.clone() });
                    } else {
                        tracing::warn!(node, job_id = job.0, "report.not_its_job");
                    }
                }
                self.env.tell_node(cx, &node, NodeInput::Frame { conn, frame: Box::new(frame) });
            }
        }
    }

    /// A command: served when its user's turn comes.
    fn arrived(
        &mut self,
        cx: &mut Context<Self>,
        caller: Caller,
        request: Box<CommandRequest>,
        bytes: usize,
        replies: Box<dyn ReplySink>,
    ) {
        let ahead = turnstile::goes_ahead(&request);
        let waiting = Waiting { caller, request, replies, cx: TraceContext::current_or_root() };
        match self.turnstile.put(waiting.caller.uid, ahead, bytes, waiting) {
            Ok(()) => self.serve_next(cx),
            Err(mut turned_away) => {
                tracing::debug!(uid = turned_away.caller.uid, "command.turned_away");
                turned_away.replies.send(CommandReply::Refused(Refusal::RetryAfter { after: CROWDED }));
            }
        }
    }

    /// One `Serve` is under way while anybody waits, and no more: it goes behind what is in the mailbox, so that whoever arrives
    /// meanwhile has a turn in the next round, and what somebody's request set off (it is saved now) is answered between two
    /// requests of others, and not behind all that wait.
    fn serve_next(&mut self, cx: &mut Context<Self>) {
        if !self.serves && !self.turnstile.is_empty() {
            self.serves = true;
            // Of nobody's trace: whose turn comes is seen when it comes.
            TraceContext::root().enter(|| cx.pipe(std::future::ready(()), |()| ControllerMsg::Serve));
        }
    }

    fn serve(&mut self, cx: &mut Context<Self>) {
        self.serves = false;
        let Some(Waiting { caller, request, mut replies, cx: trace }) = self.turnstile.take() else { return };
        self.serve_next(cx);
        replies.taken();
        if replies.is_gone() {
            return;
        }
        let refused = turnstile::begins_something(&request).then(|| self.env.ports.log.refuses()).flatten();
        if let Some(after) = refused.and_then(|why| why.retry_after()) {
            replies.send(CommandReply::Refused(Refusal::RetryAfter { after }));
            return;
        }
        trace.enter(|| self.command(cx, &caller, *request, replies));
    }

    pub(super) fn command(
        &mut self,
        cx: &mut Context<Self>,
        caller: &Caller,
        mut request: CommandRequest,
        mut replies: Box<dyn ReplySink>,
    ) {
        let by = self.authority(caller);
        self.selection().look_up(request.runs_named());
        let host = Arc::clone(&self.env.ports.host);
        let audit = Arc::clone(&self.env.ports.audit);
        replies = Box::new(Audited::new(replies, audit, caller, request_name(&request), &request));
        tracing::debug!(
            target: AUDIT_RPCS,
            request = request_name(&request),
            uid = caller.uid,
            pid = caller.pid,
            host = caller.host,
            "command.asked"
        );
        match request {
            CommandRequest::Ping => {
                let (host, version) = host.identity();
                replies.send(CommandReply::Pong { host, version });
            }
            CommandRequest::SubmitJob { request, spec } => {
                let (caller, specs) = (caller.clone(), vec![*spec]);
                self.submit(cx, request, Submission { caller, by, specs, heterogeneous: false }, replies);
            }
            CommandRequest::SubmitHetJob { request, specs } => {
                let caller = caller.clone();
                self.submit(cx, request, Submission { caller, by, specs, heterogeneous: true }, replies);
            }
            CommandRequest::TestJob { spec } => self.test(caller, by, *spec, replies),
            CommandRequest::TestHetJob { specs } => self.test_het(caller, by, specs, replies),
            CommandRequest::WaitJob { job, until } => self.wait(cx, job, until, replies),
            CommandRequest::Watch { job } => self.watch(cx, job, replies),
            CommandRequest::ListJobs { jobs, after, most, hide } => {
                replies.send(self.list_jobs(by, &jobs, after, most, hide));
            }
            CommandRequest::ListNodes => {
                let nodes = self.nodes_shown();
                replies.send(CommandReply::Nodes { nodes, at: Timestamp::now() });
            }
            CommandRequest::ListPartitions => {
                let (partitions, nodes) = (self.env.boards.partitions.list(), self.nodes_shown());
                let hidden = self.hidden_from(by, &partitions);
                replies.send(CommandReply::Partitions { partitions, nodes, at: Timestamp::now(), hidden });
            }
            CommandRequest::ListLicenses => {
                let at = Timestamp::now();
                let mut licenses = self.env.licenses.lock().view();
                let reservations = self.env.boards.reservations.list();
                for one in licenses.iter_mut().filter(|one| one.layer.is_none()) {
                    let active = reservations.iter().filter(|reservation| reservation.is_active(at));
                    one.reserved =
                        active.fold(0, |sum, reservation| sum.saturating_add(reservation.licenses.count(&one.name)));
                }
                replies.send(CommandReply::Licenses { licenses, at });
            }
            CommandRequest::NameNodes(names) => {
                let named = self.nodes_named(names).map_or_else(CommandReply::Refused, CommandReply::NodesNamed);
                replies.send(named);
            }
            CommandRequest::Explain { job } => self.explain(cx, job, replies),
            CommandRequest::ListReservations => {
                let (at, zone) = (Timestamp::now(), system_zone());
                let mut reservations = self.env.boards.reservations.list();
                for one in reservations.iter_mut().filter(|one| one.floating.is_some()) {
                    *one = one.as_of(at, &zone).map_or_else(|| Arc::clone(one), Arc::new);
                }
                replies.send(CommandReply::Reservations { reservations, at });
            }
            CommandRequest::ListTopologies => {
                let config = self.env.config();
                let mut topologies = config.topologies.clone();
                topologies.sort_by_key(|t| config.default_topology().is_none_or(|default| default.name != t.name));
                replies.send(CommandReply::Topologies { topologies });
            }
            CommandRequest::ListSteps { job, ended } => self.list_steps(cx, job, ended, replies),
            CommandRequest::CountMessages { prefixes } => {
                replies.send(self.count_messages(cx, by, &prefixes));
            }
            CommandRequest::ListPriorities => {
                replies.send(self.list_priorities());
            }
            CommandRequest::ShowConfig => {
                let pairs = host.show_config(&self.env.config(), self.env.ids.peek());
                replies.send(CommandReply::Config { pairs, at: Timestamp::now() });
            }
            CommandRequest::ShowScript { job } => self.script(cx, by, job, replies),
            CommandRequest::LocateStepManager { job } => self.locate(cx, by, job, replies),
            CommandRequest::FindRecords { job, run, task } => self.find_records(cx, by, (job, run, task), replies),
            // An agent answers that for itself: it is about what is on its node.
            CommandRequest::AskRun { .. } => {
                let what = "asking the controller for a run on a node".to_owned();
                replies.send(CommandReply::Refused(Refusal::NotSupported(what)));
            }
            CommandRequest::Cancel(cancel) => self.cancel(cx, by, cancel, replies),
            CommandRequest::ControlJob { jobs, action } => self.control(cx, by, jobs, action, replies),
            CommandRequest::UpdateJob { jobs, change } => self.update_job(cx, by, jobs, *change, replies),
            CommandRequest::FinishAllocation { job, exit } => self.finish_allocation(cx, by, job, exit, replies),
            CommandRequest::Trace { prefixes, follow } => self.trace(cx, by, prefixes, follow, replies),
            CommandRequest::ListDaemons => {
                replies.send(CommandReply::Daemons(host.daemons()));
            }
            CommandRequest::UpdateNode { .. }
            | CommandRequest::CreateNodes { .. }
            | CommandRequest::DeleteNodes { .. }
            | CommandRequest::UpdatePartition { .. }
            | CommandRequest::CreateReservation(_)
            | CommandRequest::UpdateReservation(_)
            | CommandRequest::Reconfigure
            | CommandRequest::SetLogLevel(_)
            | CommandRequest::ChangeLog { .. }
            | CommandRequest::Shutdown { .. }
            | CommandRequest::CreateJoinToken { .. }
            | CommandRequest::ListCerts
            | CommandRequest::RevokeCerts { .. }
            | CommandRequest::RenewCerts { .. }
            | CommandRequest::RotateAuthority { .. }
                if !by.admin =>
            {
                replies.send(CommandReply::Refused(Refusal::AccessDenied));
            }
            CommandRequest::UpdateNode { nodes, change } => self.update_nodes(cx, by, nodes, change, replies),
            CommandRequest::CreateNodes { names, line } => {
                self.ask_roster(cx, RosterAsk::Create { names, line }, RosterAsked::Answer(Some(replies)));
            }
            CommandRequest::DeleteNodes { nodes } => self.delete_nodes(cx, nodes, replies),
            CommandRequest::UpdatePartition { partition, fields } => {
                self.update_partition(cx, partition, fields, replies);
            }
            CommandRequest::CreateReservation(change) => self.create_reservation(cx, by, change, replies),
            CommandRequest::UpdateReservation(change) => self.update_reservation(cx, change, replies),
            CommandRequest::DeleteReservation { name } => self.delete_reservation(cx, by, name, replies),
            CommandRequest::Reconfigure => host.reconfigure(replies),
            CommandRequest::SetLogLevel(level) => {
                host.change_log(&LogChange::Level(level));
                replies.send(CommandReply::Done);
            }
            CommandRequest::ChangeLog { change, nodes } => {
                replies
                    .send(self.change_log(change, nodes).map_or_else(CommandReply::Refused, |()| CommandReply::Done));
            }
            CommandRequest::Shutdown { controller_only } => {
                if !controller_only {
                    for (node, link) in self.env.links.list() {
                        if link.send(ControllerToNode::Shutdown).is_err() {
                            tracing::warn!(node, "node.shutdown_not_sent");
                        }
                    }
                }
                host.shutdown(replies);
            }
            CommandRequest::ListCerts => host.certs(replies),
            CommandRequest::RevokeCerts { nodes } => self.revoke_certs(cx, by, nodes, replies),
            CommandRequest::RenewCerts { nodes } => {
                match if nodes.is_empty() { Ok(nodes) } else { self.nodes_named(nodes) } {
                    Ok(nodes) => host.renew_certs(nodes, replies),
                    Err(refusal) => drop(replies.send(CommandReply::Refused(refusal))),
                }
            }
            CommandRequest::RotateAuthority { leave_behind } => {
                tracing::warn!(leave_behind, uid = by.uid, "certs.rotate");
                host.rotate_authority(leave_behind, replies);
            }
            CommandRequest::CreateJoinToken { lifetime_secs, node } => {
                host.join_token(Duration::from_secs(lifetime_secs), node, replies);
            }
        }
    }

    /// Of this process, or of nodes' daemons.
    fn change_log(&mut self, change: LogChange, nodes: Vec<String>) -> Result<(), Refusal> {
        if nodes.is_empty() {
            self.env.ports.host.change_log(&change);
            return Ok(());
        }
        let nodes = self.nodes_named(nodes)?;
        if let Some(unknown) = nodes.iter().find(|node| !self.feasibility().knows_node(node)) {
            return Err(Refusal::InvalidNode(unknown.clone()));
        }
        let told = |node: &String| {
            let link = self.env.links.get(node);
            link.is_some_and(|(_, link)| link.send(ControllerToNode::ChangeLog(change.clone())).is_ok())
        };
        let (_, missed): (Vec<String>, Vec<String>) = nodes.into_iter().partition(told);
        match missed.is_empty() {
            true => Ok(()),
            false => Err(Refusal::Unreachable(fold(&missed), "there is no link; the others were told".to_owned())),
        }
    }

    /// The nodes are cut off, and DOWN: what runs there is not theirs to tell of any more.
    fn revoke_certs(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        nodes: Vec<String>,
        mut replies: Box<dyn ReplySink>,
    ) {
        let nodes = match self.nodes_named(nodes) {
            Ok(nodes) => nodes,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        let (done, answer) = ReplyTo::channel();
        self.env.ports.host.revoke_certs(nodes.clone(), done);
        cx.pipe(answer, move |outcome| {
            let outcome = outcome.unwrap_or_else(|error| Err(Refusal::Internal(format!("the authority: {error}"))));
            ControllerMsg::CertsRevoked { nodes, by, outcome, replies }
        });
    }

    fn certs_revoked(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        nodes: Vec<String>,
        outcome: Result<usize, Refusal>,
        mut replies: Box<dyn ReplySink>,
    ) {
        match outcome {
            Ok(count) => {
                tracing::warn!(nodes = nodes.join(","), count, uid = by.uid, "certs.revoked");
                let reason = Some("its certificate was revoked".to_owned());
                let change = NodeChange { state: Some(NodeStateChange::Down), reason, ..NodeChange::default() };
                self.update_nodes(cx, by, nodes, change, replies);
            }
            Err(refusal) => drop(replies.send(CommandReply::Refused(refusal))),
        }
    }
}

impl ControllerActor {
    /// Somebody who keeps accounts follows the log, or does no longer.
    fn followers_changed(&self, cx: &mut Context<Self>) {
        self.env.renew_job_site();
        self.env.tell_jobs_of_site(cx);
    }
}

impl Actor for ControllerActor {
    type Msg = ControllerMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        self.take_over_submissions(cx);
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: ControllerMsg) {
        match message {
            ControllerMsg::AgentConnected { node, registration, link, joining: Some((joining, address)) } => {
                self.joins(cx, node, joining, address, (registration, link));
            }
            ControllerMsg::AgentConnected { node, registration, link, joining: None } => {
                self.connected(cx, node, registration, link);
            }
            ControllerMsg::RosterAnswered { asked, answer } => self.roster_answered(cx, asked, answer),
            ControllerMsg::AgentGone { node, conn } => {
                if self.env.links.close(&node, conn) {
                    self.replies.node_gone(&node);
                    self.queries.node_gone(&node);
                    self.tell_steps(cx, StepsInput::NodeGone(node.clone()));
                }
                self.env.tell_node(cx, &node, NodeInput::LinkGone { conn });
            }
            ControllerMsg::AgentMessage { node, conn, message } => self.agent_message(cx, node, conn, *message),
            ControllerMsg::Command { caller, request, bytes, replies } => {
                self.arrived(cx, caller, request, bytes, replies);
            }
            ControllerMsg::Serve => self.serve(cx),
            ControllerMsg::ConfigChanged { config, replies } => {
                self.ask_roster(cx, RosterAsk::Read(config), RosterAsked::Answer(replies));
            }
            ControllerMsg::CertsRevoked { nodes, by, outcome, replies } => {
                self.certs_revoked(cx, by, nodes, outcome, replies);
            }
            ControllerMsg::Submitted { request, result } => self.submission_settled(cx, request, result),
            ControllerMsg::JobUpdated { update, answer } => self.job_updated(cx, *update, answer),
            #[cfg(test)]
            ControllerMsg::PanicForTests => panic!("a handler that fails"),
            ControllerMsg::FollowersChanged => self.followers_changed(cx),
            ControllerMsg::ShapesChanged => self.forget_feasibility(),
            ControllerMsg::QueryTimeout { query } => self.queries.timeout(query),
            ControllerMsg::QueryGone { query } => {
                for node in self.queries.close(query) {
                    if let Some(link) = self.link(&node)
                        && link.send(ControllerToNode::StopTrace { query }).is_err()
                    {
                        tracing::debug!(node, "node.stop_trace_not_sent");
                    }
                }
            }
        }
    }

    fn stopped(&mut self) {
        self.replies.all_gone(Ordering::Relaxed);
    }
}

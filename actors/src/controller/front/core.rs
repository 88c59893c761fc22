//! Whose turn it is, and where a request goes. See [the map](super).

use super::{
    gather::{self, Asked},
    members::RosterAsked,
    messages::{Ask, FrontErrand, FrontInput, HostAsk, Said},
    sight::Sight,
    updates::Update,
};
use crate::{
    controller::{
        ports::User,
        setup,
        turnstile::{self, Turnstile},
        vouching::vouched,
    },
    job::messages::{Authority, FreshIds, JobAnswer},
    node::{core::NodeCore, messages::NodeInput},
    owner::{ConfigNews, Effect, Letter, Out, Owner},
    partition::core::PartitionCore,
    roster::core::RosterAsk,
    scheduler::{
        facts::ClusterView,
        probe::Feasibility,
        shell::{partition_facts, policy},
    },
    steps::messages::StepsInput,
    submission::core::{Submission, SubmissionInput, Submissions},
};
use garrick_model::{
    config::{Config, LogChange},
    hostlist::fold,
    ids::JobId,
    messages::{
        command::{Caller, CommandReply, CommandRequest, JobMilestone, JobSelector, NodeChange, NodeStateChange},
        encoded_bytes,
        node::{AgentReport, NodeToController},
    },
    refusal::Refusal,
    time::Timestamp,
    view::NodeView,
};
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

/// When a user has too many requests waiting, or all together have, those on top come back after this.
pub const CROWDED: Duration = Duration::from_secs(1);

/// So often a job's owner that was built anew after a panic is asked again for those who wait for it.
pub(super) const ASKED_AGAIN: u32 = 5;

/// A request at the turnstile.
struct Waiting {
    request: u64,
    caller: Caller,
    command: Box<CommandRequest>,
}

/// What a request is answered: at once, or later where there is none yet. An error is about all of it.
pub(super) type Reply = Result<Option<CommandReply>, Refusal>;

/// Answers of all whom selectors mean, by selector.
pub(super) type OfSelectors = Vec<(JobSelector, Vec<Asked>)>;

/// What becomes of answers.
pub(super) enum Then {
    /// One answer for each selector.
    PerJob(OfSelectors),
    /// The same, and of arrays for each group of tasks with one answer, where some refuse.
    PerTask(OfSelectors),
    /// Changes of jobs, judged again where jobs have changed meanwhile.
    Update(Box<Update>),
    /// Done, unless one refuses. What could ever run may be something else then.
    Changed,
    /// The end of an allocation is recorded.
    Finished,
    /// The job has come that far.
    Reached {
        job: JobId,
        until: JobMilestone,
        /// It was asked so often.
        tries: u32,
    },
    /// The job's script, or where its step manager is.
    OfJob,
    /// What to tell of a reservation by its name.
    Reservation(fn(String) -> CommandReply),
    /// Whatever it says; this where there is nobody.
    AsSaid(Option<CommandReply>),
    /// The roster has it.
    Roster(RosterAsked),
    /// The nodes are cut off.
    Revoked { nodes: Vec<String>, by: Authority },
    /// These nodes' daemons were told.
    LogChanged(Vec<String>),
}

/// A turn of the front.
pub(super) struct Turn<'a> {
    pub(super) now: Timestamp,
    pub(super) ids: &'a mut dyn FreshIds,
    pub(super) out: &'a mut Out<FrontCore>,
}

impl Turn<'_> {
    pub(super) fn answer(&mut self, request: u64, answer: CommandReply) {
        self.out.push(Effect::Answer { request, answer });
    }

    pub(super) fn refuse(&mut self, request: u64, refusal: Refusal) {
        self.answer(request, CommandReply::Refused(refusal));
    }

    pub(super) fn run(&mut self, errand: FrontErrand) {
        self.out.push(Effect::Do(errand));
    }

    pub(super) fn tell(&mut self, letter: Letter) {
        self.out.push(Effect::Tell(letter));
    }
}

/// See the module.
pub struct FrontCore {
    pub(super) sight: Arc<dyn Sight>,
    pub(super) submissions: Submissions,
    turnstile: Turnstile<Waiting>,
    /// [`FrontErrand::Next`] is under way.
    serves: bool,
    /// What could ever run, by that configuration.
    feasibility: Option<(Arc<Config>, Feasibility)>,
    /// Questions to owners that are not answered: for which request, and what becomes of the answers.
    open: BTreeMap<u64, (u64, Then)>,
    questions: u64,
    requests: u64,
    /// Plans that are made for questions.
    pub(super) plans: usize,
    /// Agents that were declined.
    pub(super) declined: HashMap<String, Refusal>,
}

impl FrontCore {
    /// A front that sees this.
    pub fn new(sight: Arc<dyn Sight>) -> Self {
        Self {
            sight,
            submissions: Submissions::default(),
            turnstile: Turnstile::new(),
            serves: false,
            feasibility: None,
            open: BTreeMap::new(),
            questions: 0,
            requests: 0,
            plans: 0,
            declined: HashMap::new(),
        }
    }

    /// A number for a request.
    pub const fn number(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub(super) fn authority(&self, caller: &Caller) -> Authority {
        Authority { uid: caller.uid, admin: self.sight.administrators().contains(&caller.uid) }
    }

    /// A user, where it matters whether there is one: a name service that has not answered yet makes nobody a stranger.
    pub(super) fn user_now(&self, uid: u32) -> Result<Option<User>, Refusal> {
        let users = self.sight.users();
        if users.is_known(uid) {
            return Ok(users.user(uid));
        }
        let limit = format!("the name service of the controller's host has not said yet who uid {uid} is");
        Err(Refusal::Full { limit, after: CROWDED })
    }

    pub(super) fn user_name(&self, uid: u32) -> String {
        self.sight.users().user(uid).map_or_else(|| uid.to_string(), |user| user.name)
    }

    /// What could ever run, computed when first asked for after a change: from the configuration and what is saved over
    /// it, since boards follow a moment later.
    pub(super) fn feasibility(&mut self) -> &mut Feasibility {
        let sight = &self.sight;
        let config = sight.config();
        let known = self.feasibility.take_if(|(of, _)| Arc::ptr_eq(of, &config));
        let made = || {
            let site = Arc::default();
            let nodes: Vec<Arc<NodeView>> = config
                .nodes
                .iter()
                .map(|node| {
                    let (saved, settings) = (sight.saved_node(&node.name), setup::node_settings(node));
                    Arc::new(NodeCore::new(Timestamp::default(), settings, Arc::clone(&site), saved, []).view())
                })
                .collect();
            let partitions = config
                .partitions
                .iter()
                .filter_map(|p| PartitionCore::new(&config, &p.name, sight.committed().partition(&p.name)))
                .map(|core| partition_facts(&core.view(), config.node_places()))
                .collect();
            let mut view = ClusterView::new(policy(&config), &[], &nodes, partitions);
            view.licenses.hres = Arc::clone(&config.hres);
            view.licenses.totals.clone_from(sight.licenses().totals());
            (Arc::clone(&config), Feasibility::new(view))
        };
        &mut self.feasibility.insert(known.unwrap_or_else(made)).1
    }

    /// Shapes, features or partitions may have been changed by their owners.
    pub(super) fn forget_feasibility(&mut self) {
        self.feasibility = None;
    }

    /// Has owners asked. Where there is nobody to be asked, that is the answer.
    pub(super) fn ask(&mut self, turn: &mut Turn<'_>, request: u64, asks: Vec<Ask>, then: Then) {
        self.ask_within(turn, request, asks, then, None);
    }

    pub(super) fn ask_within(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        asks: Vec<Ask>,
        then: Then,
        within: Option<Duration>,
    ) {
        if asks.is_empty() {
            return self.answered(turn, request, then, Vec::new());
        }
        self.questions += 1;
        let question = self.questions;
        self.open.insert(question, (request, then));
        turn.run(FrontErrand::Ask { question, asks, within });
    }

    /// Has owners asked whose answers nobody waits for.
    pub(super) fn ask_for_nobody(&self, turn: &mut Turn<'_>, asks: Vec<Ask>) {
        if !asks.is_empty() {
            turn.run(FrontErrand::Ask { question: 0, asks, within: None });
        }
    }

    /// Makes a reply of what owners answered, or goes on by that.
    fn answered(&mut self, turn: &mut Turn<'_>, request: u64, then: Then, said: Vec<Said>) {
        let mut said = said.into_iter();
        let reply = match then {
            Then::PerJob(asked) => CommandReply::PerJob(gather::per_job(asked, said)),
            Then::PerTask(asked) => CommandReply::PerJob(gather::per_task(asked, said)),
            Then::Update(update) => match self.updated(turn, request, update, said) {
                Some(answers) => CommandReply::PerJob(answers),
                None => return,
            },
            Then::Changed => {
                self.forget_feasibility();
                let mut refusals = said.filter_map(|one| match one {
                    Said::Gone(error) => Some(Refusal::Internal(error.to_string())),
                    other => other.done()?.err(),
                });
                refusals.next().map_or(CommandReply::Done, CommandReply::Refused)
            }
            Then::Finished => match gather::together(said.map(Said::done)) {
                // A repeat: it is done.
                Ok(()) | Err(Refusal::AlreadyDone) => CommandReply::Done,
                Err(refusal) => CommandReply::Refused(refusal),
            },
            Then::Reached { job, until, tries } => match said.next() {
                Some(Said::Gone(_)) if tries < ASKED_AGAIN => {
                    return self.wait(turn, request, job, until, tries + 1);
                }
                said => of_job(said),
            },
            Then::OfJob => of_job(said.next()),
            Then::Reservation(tell) => match said.next() {
                Some(Said::Reservation(Ok(name))) => tell(name),
                Some(Said::Reservation(Err(refusal))) => CommandReply::Refused(refusal),
                Some(Said::Nobody) => CommandReply::Refused(Refusal::Internal(
                    "the owner of reservations is not running; the controller's log says why".to_owned(),
                )),
                _ => CommandReply::Refused(Refusal::Internal("the change could not be saved".to_owned())),
            },
            Then::AsSaid(nobody) => match (said.next(), nobody) {
                (Some(Said::Reply(reply)), _) | (Some(Said::Nobody), Some(reply)) => reply,
                _ => return turn.run(FrontErrand::Drop(request)),
            },
            Then::Roster(asked) => return self.roster_answered(turn, request, asked, said.next()),
            Then::Revoked { nodes, by } => {
                let outcome = match said.next() {
                    Some(Said::Revoked(outcome)) => outcome,
                    Some(Said::Gone(error)) => Err(Refusal::Internal(format!("the authority: {error}"))),
                    _ => Err(Refusal::Internal("the authority".to_owned())),
                };
                let reply = outcome.and_then(|count| {
                    tracing::warn!(nodes = nodes.join(","), count, uid = by.uid, "certs.revoked");
                    let reason = Some("its certificate was revoked".to_owned());
                    let change = NodeChange { state: Some(NodeStateChange::Down), reason, ..NodeChange::default() };
                    self.update_nodes(turn, request, by, nodes, change)
                });
                return answer(turn, request, reply);
            }
            Then::LogChanged(nodes) => {
                let missed = nodes.into_iter().zip(said).filter(|(_, said)| *said != Said::Done(Ok(())));
                let missed: Vec<String> = missed.map(|(node, _)| node).collect();
                let left = || Refusal::Unreachable(fold(&missed), "there is no link; the others were told".to_owned());
                if missed.is_empty() { CommandReply::Done } else { CommandReply::Refused(left()) }
            }
        };
        turn.answer(request, reply);
    }

    /// A command: served when its user's turn comes.
    fn arrived(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: Caller,
        command: Box<CommandRequest>,
        bytes: usize,
    ) {
        let (ahead, uid) = (turnstile::goes_ahead(&command), caller.uid);
        match self.turnstile.put(uid, ahead, bytes, Waiting { request, caller, command }) {
            Ok(()) => self.serve_next(turn),
            Err(turned_away) => {
                tracing::debug!(uid, "command.turned_away");
                turn.refuse(turned_away.request, Refusal::RetryAfter { after: CROWDED });
            }
        }
    }

    /// One [`FrontErrand::Next`] is under way while anybody waits, and no more: it goes behind what has come, so that whoever
    /// arrives meanwhile has a turn in the next round, and what somebody's request set off (it is saved now) is answered between
    /// two requests of others, and not behind all that wait.
    fn serve_next(&mut self, turn: &mut Turn<'_>) {
        if !self.serves && !self.turnstile.is_empty() {
            self.serves = true;
            turn.run(FrontErrand::Next);
        }
    }

    fn serve(&mut self, turn: &mut Turn<'_>) {
        self.serves = false;
        let Some(Waiting { request, caller, mut command }) = self.turnstile.take() else { return };
        self.serve_next(turn);
        let refused = turnstile::begins_something(&command).then(|| self.sight.log_refuses()).flatten();
        if let Some(after) = refused {
            return turn.refuse(request, Refusal::RetryAfter { after });
        }
        self.selection().look_up(command.runs_named());
        turn.run(FrontErrand::Turn { request, caller, command });
    }

    fn command(&mut self, turn: &mut Turn<'_>, request: u64, caller: &Caller, command: CommandRequest) -> Reply {
        let by = self.authority(caller);
        let now = turn.now;
        let submission = |specs, heterogeneous| {
            let caller = caller.clone();
            Box::new(Submission { caller, by, specs, heterogeneous })
        };
        let mut host = |ask| {
            turn.run(FrontErrand::Host(request, ask));
            Ok(None)
        };
        match command {
            CommandRequest::Ping => host(HostAsk::Identity),
            CommandRequest::SubmitJob { request: id, spec } => {
                self.submit(turn, request, id, submission(vec![*spec], false));
                Ok(None)
            }
            CommandRequest::SubmitHetJob { request: id, specs } => {
                self.submit(turn, request, id, submission(specs, true));
                Ok(None)
            }
            CommandRequest::TestJob { spec } => self.test(turn, request, caller, by, *spec),
            CommandRequest::TestHetJob { specs } => self.test_het(turn, request, caller, by, specs),
            CommandRequest::WaitJob { job, until } => {
                self.wait(turn, request, job, until, 0);
                Ok(None)
            }
            CommandRequest::Watch { job } => {
                turn.run(FrontErrand::Watch { request, job });
                Ok(None)
            }
            CommandRequest::ListJobs { jobs, after, most, hide } => self.list_jobs(by, now, &jobs, after, most, hide),
            CommandRequest::ListNodes => Ok(Some(CommandReply::Nodes { nodes: self.nodes_shown(now), at: now })),
            CommandRequest::ListPartitions => {
                let (partitions, nodes) = (self.sight.boards().partitions.list(), self.nodes_shown(now));
                let hidden = self.hidden_from(by, &partitions);
                Ok(Some(CommandReply::Partitions { partitions, nodes, at: now, hidden }))
            }
            CommandRequest::ListLicenses => Ok(Some(self.list_licenses(now))),
            CommandRequest::NameNodes(names) => {
                self.nodes_named(names).map(|named| Some(CommandReply::NodesNamed(named)))
            }
            CommandRequest::Explain { job } => self.explain(turn, request, job),
            CommandRequest::ListReservations => Ok(Some(self.list_reservations(now))),
            CommandRequest::ListTopologies => {
                let config = self.sight.config();
                let mut topologies = config.topologies.clone();
                topologies.sort_by_key(|t| config.default_topology().is_none_or(|default| default.name != t.name));
                Ok(Some(CommandReply::Topologies { topologies }))
            }
            CommandRequest::ListSteps { job, ended } => self.list_steps(turn, request, job, ended),
            CommandRequest::CountMessages { prefixes } => match self.may_trace(by, &prefixes) {
                true => host(HostAsk::CountMessages(prefixes)),
                false => Err(Refusal::AccessDenied),
            },
            CommandRequest::ListPriorities => Ok(Some(self.list_priorities())),
            CommandRequest::ShowConfig => host(HostAsk::ShowConfig),
            CommandRequest::ShowScript { job } => self.script(turn, request, by, job),
            CommandRequest::LocateStepManager { job } => self.locate(turn, request, by, job),
            CommandRequest::FindRecords { job, run, task } => self.find_records(turn, request, by, (job, run, task)),
            // An agent answers that for itself: it is about what is on its node.
            CommandRequest::AskRun { .. } => {
                Err(Refusal::NotSupported("asking the controller for a run on a node".to_owned()))
            }
            CommandRequest::Cancel(cancel) => self.cancel(turn, request, by, cancel),
            CommandRequest::ControlJob { jobs, action } => self.control(turn, request, by, jobs, action),
            CommandRequest::UpdateJob { jobs, change } => self.update_job(turn, request, by, jobs, *change),
            CommandRequest::FinishAllocation { job, exit } => self.finish_allocation(turn, request, by, job, exit),
            CommandRequest::Trace { prefixes, follow } => self.trace(turn, request, by, prefixes, follow),
            CommandRequest::ListDaemons => host(HostAsk::Daemons),
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
                Err(Refusal::AccessDenied)
            }
            CommandRequest::UpdateNode { nodes, change } => self.update_nodes(turn, request, by, nodes, change),
            CommandRequest::CreateNodes { names, line } => {
                self.ask_roster(turn, request, RosterAsk::Create { names, line }, RosterAsked::Answer);
                Ok(None)
            }
            CommandRequest::DeleteNodes { nodes } => self.delete_nodes(turn, request, nodes),
            CommandRequest::UpdatePartition { partition, fields } => {
                self.update_partition(turn, request, partition, fields)
            }
            CommandRequest::CreateReservation(change) => self.create_reservation(turn, request, by, change),
            CommandRequest::UpdateReservation(change) => self.update_reservation(turn, request, change),
            CommandRequest::DeleteReservation { name } => self.delete_reservation(turn, request, by, name),
            CommandRequest::Reconfigure => host(HostAsk::Reconfigure),
            CommandRequest::SetLogLevel(level) => {
                turn.run(FrontErrand::ChangeLog(LogChange::Level(level)));
                Ok(Some(CommandReply::Done))
            }
            CommandRequest::ChangeLog { change, nodes } => self.change_log(turn, request, change, nodes),
            CommandRequest::Shutdown { controller_only } => {
                if !controller_only {
                    turn.run(FrontErrand::ShutAgentsDown);
                }
                turn.run(FrontErrand::Host(request, HostAsk::Shutdown));
                Ok(None)
            }
            CommandRequest::ListCerts => host(HostAsk::Certs),
            CommandRequest::RevokeCerts { nodes } => {
                let nodes = self.nodes_named(nodes)?;
                self.ask(turn, request, vec![Ask::Revoke(nodes.clone())], Then::Revoked { nodes, by });
                Ok(None)
            }
            CommandRequest::RenewCerts { nodes } => {
                let nodes = if nodes.is_empty() { nodes } else { self.nodes_named(nodes)? };
                host(HostAsk::RenewCerts(nodes))
            }
            CommandRequest::RotateAuthority { leave_behind } => {
                tracing::warn!(leave_behind, uid = by.uid, "certs.rotate");
                host(HostAsk::RotateAuthority { leave_behind })
            }
            CommandRequest::CreateJoinToken { lifetime_secs, node } => {
                host(HostAsk::JoinToken { lifetime: Duration::from_secs(lifetime_secs), node })
            }
        }
    }

    /// Of this process, or of nodes' daemons.
    fn change_log(&mut self, turn: &mut Turn<'_>, request: u64, change: LogChange, nodes: Vec<String>) -> Reply {
        if nodes.is_empty() {
            turn.run(FrontErrand::ChangeLog(change));
            return Ok(Some(CommandReply::Done));
        }
        let nodes = self.nodes_named(nodes)?;
        if let Some(unknown) = nodes.iter().find(|node| !self.feasibility().knows_node(node)) {
            return Err(Refusal::InvalidNode(unknown.clone()));
        }
        let told = |node: &String| Ask::ChangeLog { node: node.clone(), change: change.clone() };
        let asks = nodes.iter().map(told).collect();
        self.ask(turn, request, asks, Then::LogChanged(nodes));
        Ok(None)
    }

    fn agent_said(&mut self, turn: &mut Turn<'_>, node: String, conn: u64, message: NodeToController) {
        if self.sight.link(&node) != Some(conn) {
            return;
        }
        match message {
            NodeToController::Command { query, caller, request: command } => {
                let request = self.number();
                let administrator = self.authority(&caller).admin;
                turn.run(FrontErrand::Door { request, node: node.clone(), query });
                match vouched(&self.sight.config(), &node, caller, administrator, &command) {
                    Ok(caller) => {
                        let bytes = encoded_bytes(&*command);
                        self.arrived(turn, request, caller, command, bytes);
                    }
                    Err(caller) => {
                        tracing::warn!(node, uid = caller.uid, "command.host_not_trusted");
                        turn.run(FrontErrand::Audit { request, caller, command });
                        turn.refuse(request, Refusal::HostNotTrusted { host: node });
                    }
                }
            }
            NodeToController::CommandGone { query } => turn.run(FrontErrand::DoorLeft { node, query }),
            NodeToController::Steps { query, steps, missing, left_out } => {
                turn.tell(Letter::Steps(StepsInput::Listed { query, node, steps, missing, left_out }));
            }
            NodeToController::Records { query, runs } => {
                let address = self.address_of(&node);
                turn.tell(Letter::Steps(StepsInput::Found { query, node, address, runs }));
            }
            NodeToController::Trace { query, records, last } => {
                turn.run(FrontErrand::Traced { query, node, records, last });
            }
            NodeToController::Register { .. } => tracing::warn!(node, "node.registered_twice"),
            // Answered where the link ends, by whoever has the authority.
            NodeToController::Renew { .. } | NodeToController::Holds { .. } => {}
            frame @ (NodeToController::Heartbeat { .. } | NodeToController::Report { .. }) => {
                if let NodeToController::Report { report: AgentReport::Steps { job, sluid, steps }, .. } = &frame {
                    let (job, sluid) = (*job, *sluid);
                    let committed = self.sight.committed();
                    if committed.look(job, |record| record.steps_run_from(&node, sluid)) == Some(true) {
                        turn.tell(Letter::Steps(StepsInput::Reported { job, sluid, steps: steps.clone() }));
                    } else {
                        tracing::warn!(node, job_id = job.0, "report.not_its_job");
                    }
                }
                turn.tell(Letter::Node(node, NodeInput::Frame { conn, frame: Box::new(frame) }));
            }
        }
    }

    fn agent_gone(&self, turn: &mut Turn<'_>, node: String, conn: u64) {
        if self.sight.link(&node) == Some(conn) {
            turn.run(FrontErrand::CloseLink { node: node.clone(), conn });
            turn.tell(Letter::Steps(StepsInput::NodeGone(node.clone())));
        }
        turn.tell(Letter::Node(node, NodeInput::LinkGone { conn }));
    }
}

/// What a job's owner said, to whoever asked for it.
fn of_job(said: Option<Said>) -> CommandReply {
    let Some(Said::Job(answer)) = said else {
        return CommandReply::Refused(match said {
            Some(Said::Late) => Refusal::RetryAfter { after: super::queries::LONGEST_START },
            _ => Refusal::InvalidJobId,
        });
    };
    match answer {
        JobAnswer::Reached(view) => CommandReply::Job(view),
        JobAnswer::Script(Some(script)) => CommandReply::Script(script),
        JobAnswer::Script(None) => CommandReply::Refused(Refusal::InvalidScript("the job has none".to_owned())),
        JobAnswer::Place(Ok(place)) => CommandReply::StepManager(place),
        JobAnswer::Place(Err(refusal)) | JobAnswer::Done(Err(refusal)) => CommandReply::Refused(refusal),
        // To no question that is told so.
        JobAnswer::Done(Ok(())) => CommandReply::Refused(Refusal::InvalidJobId),
    }
}

/// Answers at once what is answered at once.
fn answer(turn: &mut Turn<'_>, request: u64, reply: Reply) {
    match reply {
        Ok(Some(reply)) => turn.answer(request, reply),
        Ok(None) => {}
        Err(refusal) => turn.refuse(request, refusal),
    }
}

impl Owner for FrontCore {
    type Input = FrontInput;
    type Timer = Infallible;
    type Shown = Infallible;
    type Answer = CommandReply;
    type Errand = FrontErrand;

    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: FrontInput, out: &mut Out<Self>) {
        let turn = &mut Turn { now, ids, out };
        match input {
            FrontInput::Begun { answered, entering, clock } => {
                self.told_of_submissions(turn, SubmissionInput::Begun { answered, entering, clock });
            }
            FrontInput::Settled { id, jobs, result, clock } => {
                self.told_of_submissions(turn, SubmissionInput::Settled { id, jobs, result, clock });
            }
            FrontInput::Asked { request, caller, command, bytes } => {
                self.arrived(turn, request, caller, command, bytes);
            }
            FrontInput::Next => self.serve(turn),
            FrontInput::Turn { request, caller, command } => {
                let reply = self.command(turn, request, &caller, *command);
                answer(turn, request, reply);
            }
            FrontInput::Answered { question, said } => {
                if let Some((request, then)) = self.open.remove(&question) {
                    self.answered(turn, request, then, said);
                }
            }
            FrontInput::Told { request, reply } => {
                // Whoever has the answer may ask the next.
                self.plans = self.plans.saturating_sub(1);
                match reply {
                    Some(reply) => turn.answer(request, reply),
                    None => turn.run(FrontErrand::Drop(request)),
                }
            }
            FrontInput::Connected { node, registration, joining: Some((joining, address)) } => {
                self.joins(turn, node, joining, address, registration);
            }
            FrontInput::Connected { node, registration, joining: None } => self.connected(turn, node, registration),
            FrontInput::AgentGone { node, conn } => self.agent_gone(turn, node, conn),
            FrontInput::AgentSaid { node, conn, message } => self.agent_said(turn, node, conn, *message),
            FrontInput::ConfigRead { request, config } => {
                self.ask_roster(turn, request, RosterAsk::Read(config), RosterAsked::Answer);
            }
            FrontInput::FollowersChanged => {
                turn.run(FrontErrand::RenewSite);
                turn.tell(Letter::News(ConfigNews::Jobs));
            }
        }
    }

    fn timer(timer: Infallible) -> FrontInput {
        match timer {}
    }
}

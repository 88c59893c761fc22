//! Which request is next, the questions to owners, and what is made of their answers. See [the map](super).

use super::{
    crontabs::Installing,
    fair_queue::{self, FairQueue},
    gather::{self, Asked},
    members::RosterAsked,
    messages::{Ask, FrontendErrand, FrontendInput, Said},
    privacy::Coordinations,
    queries::LONGEST_START,
    sight::Sight,
    site_checks::Checking,
    submit_limits::Move,
    updates::Update,
};
use crate::{
    messages::{
        job::{Authority, JobAnswer},
        letter::{ConfigNews, Letter},
    },
    node::{core::NodeCore, settings::node_settings},
    owner::{Effect, FreshIds, Out, Owner},
    partition::core::PartitionCore,
    roster::core::RosterAsk,
    submission::{
        core::{SubmissionInput, Submissions},
        users::User,
    },
};
use garrick_model::{
    config::Config,
    hostlist::fold,
    ids::JobId,
    messages::command::{Caller, CommandReply, CommandRequest, JobMilestone, JobSelector, NodeChange, NodeStateChange},
    refusal::Refusal,
    time::Timestamp,
    view::NodeView,
};
use garrick_plan::{
    plan::probe::Feasibility,
    policy::{partition_facts, policy},
    snapshot::facts::ClusterView,
};
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

/// If a user, or all users together, have too many requests waiting, further ones are told to try again after this time.
pub const CROWDED: Duration = Duration::from_secs(1);

/// How often a job's owner is asked again after it was rebuilt because of a panic.
pub(super) const ASKED_AGAIN: u32 = 5;

/// A request in the fair queue.
struct Waiting {
    request: u64,
    caller: Caller,
    command: Box<CommandRequest>,
}

/// The answer to a request; `None`: it comes later. An error is about the whole request.
pub(super) type Reply = Result<Option<CommandReply>, Refusal>;

/// The answers for each selector.
pub(super) type OfSelectors = Vec<(JobSelector, Vec<Asked>)>;

/// How the answers are handled.
pub(super) enum Then {
    /// One answer for each selector.
    PerJob(OfSelectors),
    /// The same; for arrays, one answer for each group of tasks if some refuse.
    PerTask(OfSelectors),
    /// Updates of jobs, judged again if a job has changed meanwhile.
    Update(Box<Update>),
    /// Done, unless one refuses. Feasibility is computed again afterwards.
    Changed,
    /// The end of an allocation is recorded.
    Finished,
    /// The job has reached a milestone.
    Reached {
        job: JobId,
        until: JobMilestone,
        /// How often it was asked.
        tries: u32,
    },
    /// The job's script, or the address of its step manager.
    OfJob,
    /// The reply for a reservation's name.
    Reservation(fn(String) -> CommandReply),
    /// The reply where the owner has saved it; `what`: what it is, for where it could not.
    Saved { what: &'static str, reply: CommandReply },
    /// The roster has answered.
    Roster(RosterAsked),
    /// The site has checked the request.
    Checked(Box<Checking>),
    /// The nodes' certificates are revoked.
    Revoked { nodes: Vec<String>, by: Authority },
    /// These nodes' daemons were told.
    LogChanged(Vec<String>),
}

/// A turn of the frontend.
pub(super) struct Turn<'a> {
    pub(super) now: Timestamp,
    pub(super) ids: &'a mut dyn FreshIds,
    pub(super) out: &'a mut Out<FrontendCore>,
}

impl Turn<'_> {
    pub(super) fn answer(&mut self, request: u64, answer: CommandReply) {
        self.out.push(Effect::Answer { request, answer });
    }

    pub(super) fn refuse(&mut self, request: u64, refusal: Refusal) {
        self.answer(request, CommandReply::Refused(refusal));
    }

    pub(super) fn run(&mut self, errand: FrontendErrand) {
        self.out.push(Effect::Do(errand));
    }

    pub(super) fn tell(&mut self, letter: Letter) {
        self.out.push(Effect::Tell(letter));
    }
}

/// Passes on what was computed elsewhere; `None`: it failed, and the requester is let go.
fn tell(turn: &mut Turn<'_>, request: u64, reply: Option<CommandReply>) {
    match reply {
        Some(reply) => turn.answer(request, reply),
        None => turn.run(FrontendErrand::Drop(request)),
    }
}

/// The core of the frontend.
pub struct FrontendCore {
    pub(super) sight: Arc<dyn Sight>,
    pub(super) submissions: Submissions,
    fair_queue: FairQueue<Waiting>,
    /// A [`FrontendErrand::Next`] is in progress.
    serves: bool,
    /// Feasibility of requests under this configuration.
    feasibility: Option<(Arc<Config>, Feasibility)>,
    /// Unanswered questions to owners: for which request, and how the answers are handled.
    open: BTreeMap<u64, (u64, Then)>,
    questions: u64,
    requests: u64,
    /// Crontabs whose jobs are being saved, by request.
    pub(super) installing: HashMap<u64, Installing>,
    /// Number of plans that are being made for queries.
    pub(super) plans: usize,
    /// Number of answers about shares that are being made.
    pub(super) boards: usize,
    /// Agents that were declined.
    pub(super) declined: HashMap<String, Refusal>,
    /// Changes of jobs' accounts, QOS and partitions that their owners were asked for, by request.
    pub(super) moves: BTreeMap<(u64, JobId), Move>,
    /// What coordinators see.
    pub(super) coordinated: Mutex<Coordinations>,
}

impl FrontendCore {
    /// A frontend with this view of the controller's state.
    pub fn new(sight: Arc<dyn Sight>) -> Self {
        Self {
            sight,
            submissions: Submissions::default(),
            fair_queue: FairQueue::new(),
            serves: false,
            feasibility: None,
            open: BTreeMap::new(),
            questions: 0,
            requests: 0,
            installing: HashMap::new(),
            plans: 0,
            boards: 0,
            declined: HashMap::new(),
            moves: BTreeMap::new(),
            coordinated: Mutex::default(),
        }
    }

    /// A number for a request.
    pub(super) const fn number(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// A number for a request whose reply channel came with it.
    fn taken(&mut self, turn: &mut Turn<'_>) -> u64 {
        let request = self.number();
        turn.run(FrontendErrand::Take(request));
        request
    }

    pub(super) fn authority(&self, caller: &Caller) -> Authority {
        Authority { uid: caller.uid, admin: self.sight.administrators().contains(&caller.uid) }
    }

    /// A user, for checks that need to know whether he exists: while the name service has not answered, he counts as existing.
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

    /// Feasibility, computed when it is first needed after a change: from the configuration and the saved changes to it, since
    /// views follow a moment later.
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
                    let (saved, settings) = (sight.saved_node(&node.name), node_settings(node));
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
            view.licenses.totals = sight.license_totals();
            (Arc::clone(&config), Feasibility::new(view))
        };
        &mut self.feasibility.insert(known.unwrap_or_else(made)).1
    }

    /// Node shapes, features or partitions may have changed.
    pub(super) fn forget_feasibility(&mut self) {
        self.feasibility = None;
    }

    /// Asks owners. If there is no owner to ask, that is the answer.
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
        turn.run(FrontendErrand::Ask { question, asks, within });
    }

    /// Asks owners without waiting for their answers.
    pub(super) fn ask_for_nobody(&self, turn: &mut Turn<'_>, asks: Vec<Ask>) {
        if !asks.is_empty() {
            turn.run(FrontendErrand::Ask { question: 0, asks, within: None });
        }
    }

    /// Makes a reply from the owners' answers, or continues with the next question.
    fn answered(&mut self, turn: &mut Turn<'_>, request: u64, then: Then, said: Vec<Said>) {
        let mut said = said.into_iter();
        let reply = match then {
            Then::PerJob(asked) => CommandReply::PerJob(gather::per_job(asked, said)),
            Then::PerTask(asked) => CommandReply::PerJob(gather::per_task(asked, said)),
            Then::Update(update) => match self.updated(turn, request, update, said) {
                Some(reply) => reply,
                None => return,
            },
            Then::Changed => {
                self.forget_feasibility();
                let mut refusals = said.filter_map(|one| match one {
                    Said::Done(result) => result.err(),
                    Said::Gone(error) => Some(Refusal::Internal(error.to_string())),
                    other => Some(Refusal::Internal(format!("no answer: {other:?}"))),
                });
                refusals.next().map_or(CommandReply::Done, CommandReply::Refused)
            }
            Then::Finished => match gather::together(said.map(Said::done)) {
                // A repeat: it is done already.
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
            Then::Checked(checking) => {
                let reply = self.checked(turn, request, *checking, said.next());
                return answer(turn, request, reply);
            }
            Then::Saved { what, reply } => match said.next().and_then(Said::done) {
                Some(Ok(())) => reply,
                Some(Err(refusal)) => CommandReply::Refused(refusal),
                None => CommandReply::Refused(Refusal::Internal(format!("{what} could not be saved"))),
            },
            Then::Roster(asked) => return self.roster_answered(turn, request, asked, said.next()),
            Then::Revoked { nodes, by } => {
                let reply = self.revoked(turn, request, by, nodes, said.next());
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

    /// The nodes' certificates are revoked, and the nodes are DOWN: their reports about runs no longer count.
    fn revoked(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        nodes: Vec<String>,
        said: Option<Said>,
    ) -> Reply {
        let count = match said {
            Some(Said::Revoked(outcome)) => outcome?,
            Some(Said::Gone(error)) => return Err(Refusal::Internal(format!("the authority: {error}"))),
            _ => return Err(Refusal::Internal("the authority said nothing".to_owned())),
        };
        tracing::warn!(nodes = nodes.join(","), count, uid = by.uid, "certs.revoked");
        let reason = Some("its certificate was revoked".to_owned());
        let change = NodeChange { state: Some(NodeStateChange::Down), reason, ..NodeChange::default() };
        self.update_nodes(turn, request, by, nodes, change)
    }

    /// A command arrived: it is served when its user's turn comes.
    pub(super) fn arrived(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: Caller,
        command: Box<CommandRequest>,
        bytes: usize,
    ) {
        let (ahead, uid) = (fair_queue::goes_ahead(&command), caller.uid);
        match self.fair_queue.put(uid, ahead, bytes, Waiting { request, caller, command }) {
            Ok(()) => self.serve_next(turn),
            Err(turned_away) => {
                tracing::debug!(uid, "command.turned_away");
                turn.refuse(turned_away.request, Refusal::RetryAfter { after: CROWDED });
            }
        }
    }

    /// While requests wait, exactly one [`FrontendErrand::Next`] is in progress. It is queued behind other messages, so that a
    /// user who arrives meanwhile gets a turn in the next round, and results of earlier requests (now saved) are answered between
    /// two requests rather than after all waiting ones.
    fn serve_next(&mut self, turn: &mut Turn<'_>) {
        if !self.serves && !self.fair_queue.is_empty() {
            self.serves = true;
            turn.run(FrontendErrand::Next);
        }
    }

    fn serve(&mut self, turn: &mut Turn<'_>) {
        self.serves = false;
        let Some(Waiting { request, caller, command }) = self.fair_queue.take() else { return };
        self.serve_next(turn);
        let refused = fair_queue::begins_something(&command).then(|| self.sight.log_refuses()).flatten();
        if let Some(after) = refused {
            return turn.refuse(request, Refusal::RetryAfter { after });
        }
        turn.run(FrontendErrand::Turn { request, caller, command });
    }
}

/// The reply for the answer of a job's owner.
fn of_job(said: Option<Said>) -> CommandReply {
    let Some(Said::Job(answer)) = said else {
        return CommandReply::Refused(match said {
            Some(Said::Late) => Refusal::RetryAfter { after: LONGEST_START },
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

/// Answers the request now if the reply is there.
fn answer(turn: &mut Turn<'_>, request: u64, reply: Reply) {
    match reply {
        Ok(Some(reply)) => turn.answer(request, reply),
        Ok(None) => {}
        Err(refusal) => turn.refuse(request, refusal),
    }
}

impl Owner for FrontendCore {
    type Input = FrontendInput;
    type Timer = Infallible;
    type Shown = Infallible;
    type Answer = CommandReply;
    type Errand = FrontendErrand;

    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: FrontendInput, out: &mut Out<Self>) {
        let turn = &mut Turn { now, ids, out };
        match input {
            FrontendInput::Begun { answered, entering, clock } => {
                self.told_of_submissions(turn, SubmissionInput::Begun { answered, entering, clock });
            }
            FrontendInput::Heard { id, result } => turn.run(FrontendErrand::Settle { id, result }),
            FrontendInput::Settled { id, jobs, result, clock } => {
                self.told_of_submissions(turn, SubmissionInput::Settled { id, jobs, result, clock });
            }
            FrontendInput::Asked { caller, command, bytes } => {
                let request = self.taken(turn);
                self.arrived(turn, request, caller, command, bytes);
            }
            FrontendInput::Next => self.serve(turn),
            FrontendInput::Turn { request, caller, command } => {
                let reply = self.command(turn, request, &caller, *command);
                answer(turn, request, reply);
            }
            FrontendInput::Answered { question, said } => {
                if let Some((request, then)) = self.open.remove(&question) {
                    self.answered(turn, request, then, said);
                }
            }
            FrontendInput::Told { request, reply } => {
                // A requester who has the answer may send the next query.
                self.plans = self.plans.saturating_sub(1);
                tell(turn, request, reply);
            }
            FrontendInput::Shown { request, reply } => {
                self.boards = self.boards.saturating_sub(1);
                tell(turn, request, reply);
            }
            FrontendInput::Connected { node, registration, joining: Some((joining, address)) } => {
                self.joins(turn, node, joining, address, registration);
            }
            FrontendInput::Connected { node, registration, joining: None } => self.connected(turn, node, registration),
            FrontendInput::AgentGone { node, conn } => self.agent_gone(turn, node, conn),
            FrontendInput::AgentSaid { node, conn, message } => self.agent_said(turn, node, conn, *message),
            FrontendInput::ConfigRead { config, waits } => {
                let request = if waits { self.taken(turn) } else { 0 };
                self.ask_roster(turn, request, RosterAsk::Read(config), RosterAsked::Answer);
            }
            FrontendInput::SiteChanged => {
                // Licenses of servers may have come, or other numbers of them.
                self.forget_feasibility();
                turn.run(FrontendErrand::RenewSite);
                turn.tell(Letter::News(ConfigNews::Jobs));
            }
        }
    }

    fn timer(timer: Infallible) -> FrontendInput {
        match timer {}
    }
}

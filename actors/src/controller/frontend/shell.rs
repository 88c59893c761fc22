//! How the frontend's effects are carried out in the controller. Its actor is at `/controller`. It holds replies, connections to
//! agents and the addresses of owners.

use super::{
    core::FrontendCore,
    messages::{AgentErrand, Ask, FrontendErrand, FrontendInput, HostAsk, Passed, Said},
    shares::{self, SharesAsk},
    sight::Sight,
    site_checks::Checked,
    streams::{self, AgentQueries, Tracing},
    submit::when,
};
use crate::{
    controller::shells::{
        actor::{Came, OwnerActor, OwnerMsg, Shell},
        agents::{AgentReplies, say_last},
        audit::Audited,
        crontab::CrontabMsg,
        entering::Entering,
        env::{Boards, Env, Late, mail},
        job::{JobMsg, JobsMsg},
        node::{NodeMsg, NodesMsg, connected},
        partition::{PartitionMsg, PartitionsMsg},
        ports::{AgentLink, ReplySink},
        reservation::ReservationMsg,
        scheduler::{SchedulerMsg, cluster_view},
        steps::StepsMsg,
        trigger::TriggerMsg,
    },
    log::{committed::Committed, log_outcome},
    messages::{job::JobSite, letter::end_of_lost, names::request_name, node::Registration},
    owner::{Out, Owner},
    roster::nodes::Roster,
    scheduler::messages::SchedulerAsk,
    submission::{core::SubmissionErrand, job_submit::SiteSight, users::UserDirectory},
};
use garrick_events::records::node::SavedNode;
use garrick_model::{
    config::{AUDIT_RPCS, Config},
    entities::Entities,
    ids::{JobId, Sluid},
    messages::{
        command::{Caller, CommandReply, CommandRequest, MessageCount},
        node::ControllerToNode,
        statistics::Statistics,
    },
    refusal::Refusal,
    reservation::Reservation,
    state::JobState,
    time::{Timestamp, system_zone},
    view::{JobView, LicenseView, PartitionView},
};
use garrick_plan::{policy::policy, rules::priority, snapshot::accounting::Accounting};
use garrick_runtime::{AskError, ReplyTo, TimerKey, TraceContext};
use jiff::tz::TimeZone;
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The actor.
pub fn actor(env: Arc<Env>) -> OwnerActor<FrontendCore> {
    let seen = Arc::clone(&env);
    let make = move |_: &Env| Some(FrontendCore::new(Arc::clone(&seen) as Arc<dyn Sight>));
    OwnerActor::new(make, FrontendHands::new(Arc::clone(&env)), env)
}

impl Sight for Env {
    fn boards(&self) -> &Boards {
        &self.boards
    }
    fn committed(&self) -> &Committed {
        &self.committed
    }
    fn entering(&self) -> &Entering {
        &self.entering
    }
    fn roster(&self) -> Arc<Roster> {
        Self::roster(self)
    }
    fn config(&self) -> Arc<Config> {
        Self::config(self)
    }
    fn license_views(&self) -> Vec<LicenseView> {
        self.licenses.lock().view()
    }
    fn license_totals(&self) -> BTreeMap<String, u32> {
        self.licenses.lock().totals().clone()
    }
    fn priority_rules(&self) -> Option<Arc<priority::Rules>> {
        Self::priority_rules(self)
    }
    fn accounting(&self) -> Accounting {
        Self::accounting(self)
    }
    fn entities(&self) -> Arc<Entities> {
        Self::entities(self)
    }
    fn job_site(&self) -> Arc<JobSite> {
        Self::job_site(self)
    }
    fn saved_node(&self, node: &str) -> Option<SavedNode> {
        self.nodes.look(node, |core| core.saved().clone())
    }
    fn has_owner(&self, node: &str) -> bool {
        self.node(node).is_some()
    }
    fn link(&self, node: &str) -> Option<u64> {
        self.links.get(node).map(|(conn, _)| conn)
    }
    fn users(&self) -> &dyn UserDirectory {
        &*self.ports.users
    }
    fn administrators(&self) -> Vec<u32> {
        self.ports.host.administrators()
    }
    fn has_site_checks(&self) -> bool {
        self.ports.job_submit.has_checks(&Self::config(self))
    }
    fn log_refuses(&self) -> Option<Duration> {
        self.ports.log.refuses().and_then(|why| why.retry_after())
    }
    fn next_job(&self) -> JobId {
        self.ids.peek()
    }
    fn next_query(&self) -> u64 {
        Self::next_query(self)
    }
    fn zone(&self) -> TimeZone {
        system_zone()
    }
}

/// What the site's own checks may look at.
struct Shown {
    config: Arc<Config>,
    boards: Boards,
}

impl SiteSight for Shown {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }
    fn partitions(&self) -> Vec<Arc<PartitionView>> {
        self.boards.partitions.list()
    }
    fn jobs(&self) -> Vec<Arc<JobView>> {
        self.boards.jobs.list()
    }
    fn job(&self, id: JobId) -> Option<Arc<JobView>> {
        self.boards.jobs.get(&id)
    }
    fn reservations(&self) -> Vec<Arc<Reservation>> {
        self.boards.reservations.list()
    }
}

/// Inputs that only the shell handles.
pub enum FrontendGift {
    /// The reply channel of a requester.
    Replies(Box<dyn ReplySink>),
    /// The connection to an agent, with its number.
    Link(u64, Arc<dyn AgentLink>),
}

/// A requester that waits, and the trace of its request.
struct Asker {
    replies: Box<dyn ReplySink>,
    trace: TraceContext,
}

/// The state of the frontend's shell.
pub struct FrontendHands {
    env: Arc<Env>,
    /// The reply channel of the current message.
    came: Option<Box<dyn ReplySink>>,
    /// By request.
    askers: HashMap<u64, Asker>,
    /// Connections of agents that their nodes' owners do not have yet, by number.
    arrived: HashMap<u64, Arc<dyn AgentLink>>,
    doors: AgentReplies,
    queries: Rc<RefCell<AgentQueries>>,
    /// Start of its monotonic clock.
    began: Instant,
}

impl FrontendHands {
    fn new(env: Arc<Env>) -> Self {
        Self {
            env,
            came: None,
            askers: HashMap::new(),
            arrived: HashMap::new(),
            doors: AgentReplies::default(),
            queries: Rc::default(),
            began: Instant::now(),
        }
    }

    fn waits(&mut self, request: u64, replies: Box<dyn ReplySink>) {
        self.askers.insert(request, Asker { replies, trace: TraceContext::current_or_root() });
    }

    /// Takes the requester of a request, to hand it on.
    fn asker(&mut self, request: u64) -> Option<Box<dyn ReplySink>> {
        self.askers.remove(&request).map(|asker| asker.replies)
    }

    /// Wraps the reply channel so that the result is written to the audit log.
    fn audited(&self, replies: Box<dyn ReplySink>, caller: &Caller, command: &CommandRequest) -> Box<dyn ReplySink> {
        let audit = Arc::clone(&self.env.ports.audit);
        Box::new(Audited::new(replies, audit, caller, command, Arc::clone(&self.env.counted)))
    }

    fn turn(
        &mut self,
        core: &FrontendCore,
        request: u64,
        caller: Caller,
        mut command: Box<CommandRequest>,
    ) -> Came<FrontendInput> {
        let Some(Asker { mut replies, trace }) = self.askers.remove(&request) else { return Came::Nothing };
        replies.taken();
        if replies.is_gone() {
            return Came::Nothing;
        }
        core.selection().look_up(command.runs_named());
        let replies = self.audited(replies, &caller, &command);
        self.askers.insert(request, Asker { replies, trace });
        tracing::debug!(
            target: AUDIT_RPCS,
            request = request_name(&command),
            uid = caller.uid,
            pid = caller.pid,
            host = caller.host,
            "command.asked"
        );
        Came::In(trace, Box::new(Came::Input(FrontendInput::Turn { request, caller, command })))
    }

    fn host(&mut self, request: u64, ask: HostAsk) {
        let Some(mut replies) = self.asker(request) else { return };
        let env = &self.env;
        let host = &env.ports.host;
        match ask {
            HostAsk::Identity => {
                let (host, version) = host.identity();
                replies.send(CommandReply::Pong { host, version, accounting: env.accounting_queue() });
            }
            HostAsk::ShowConfig => {
                let pairs = host.show_config(&env.config(), env.ids.peek());
                replies.send(CommandReply::Config { pairs, at: Timestamp::now() });
            }
            HostAsk::Daemons => drop(replies.send(CommandReply::Daemons(host.daemons()))),
            HostAsk::Reconfigure => host.reconfigure(replies),
            HostAsk::Shutdown => host.shutdown(replies),
            HostAsk::JoinToken { lifetime, node } => host.join_token(lifetime, node, replies),
            HostAsk::UserToken { user, lifespan } => host.user_token(env.config(), user, lifespan, replies),
            HostAsk::Certs => host.certs(replies),
            HostAsk::RenewCerts(nodes) => host.renew_certs(nodes, replies),
            HostAsk::RotateAuthority { leave_behind } => host.rotate_authority(leave_behind, replies),
            HostAsk::CountMessages(prefixes) => {
                let line = |c: garrick_runtime::MessageCount| MessageCount {
                    actor: c.actor,
                    message: c.message.to_owned(),
                    handled: c.handled,
                };
                let counts = env.system.traces().counts(&prefixes).into_iter().map(line).collect();
                replies.send(CommandReply::MessageCounts(counts));
            }
        }
    }

    fn submission(&self, errand: SubmissionErrand) -> Came<FrontendInput> {
        let env = &self.env;
        let (id, done) = match errand {
            // The core's own.
            SubmissionErrand::Judge { .. } => return Came::Nothing,
            SubmissionErrand::Begin(job) => {
                let supervisor = env.jobs_supervisor();
                return sent(supervisor.and_then(|to| mail(&to, JobsMsg::Start { key: job, seed: None })));
            }
            SubmissionErrand::Offer { id, records } => (id, env.offer_jobs(id, records, Timestamp::now())),
            SubmissionErrand::Hear(id) => (id, env.append(Vec::new())),
        };
        let heard = async move { Some(FrontendInput::Heard { id, result: log_outcome(done.await) }) };
        Came::Later(Box::pin(heard))
    }

    /// Makes a plan for a query, on a thread of its own, so that no other request waits.
    fn when(&self, request: u64, jobs: Vec<JobView>, at: Timestamp, said: Vec<String>) -> Came<FrontendInput> {
        let env = Arc::clone(&self.env);
        let plan = tokio::task::spawn_blocking(move || when(&cluster_view(policy(&env.config()), &env), &jobs, at));
        Came::Soon(Box::pin(async move {
            let reply = plan.await.ok().map(|reply| Checked::saying(said).with(reply));
            Some(FrontendInput::Told { request, reply })
        }))
    }

    /// Computes shares, on a thread of its own.
    fn shares(&self, request: u64, ask: SharesAsk, at: Timestamp) -> Came<FrontendInput> {
        let env = Arc::clone(&self.env);
        let made = tokio::task::spawn_blocking(move || shares::board(&env, &ask, at));
        Came::Soon(Box::pin(async move { Some(FrontendInput::Shown { request, reply: made.await.ok() }) }))
    }

    /// What the shells counted and what there is now; the scheduler adds its part, and answers.
    fn statistics(&mut self, env: &Env, request: u64) -> Came<FrontendInput> {
        // This one included.
        let serving = u32::try_from(self.askers.len()).unwrap_or(u32::MAX);
        let accounting = env.accounting_queue();
        let mut counted = Box::new(Statistics { serving, accounting, ..env.counted.read(Timestamp::now()) });
        for job in env.boards.jobs.live() {
            counted.jobs.pending += u64::from(job.state.waits());
            counted.jobs.running += u64::from(job.state == JobState::Running);
        }
        let nobody = CommandReply::Statistics(counted.clone());
        self.pass(env, request, Passed::Scheduler(SchedulerAsk::Statistics(counted), nobody))
    }

    fn reset_statistics(&mut self, env: &Env, request: u64) -> Came<FrontendInput> {
        env.counted.reset(Timestamp::now());
        self.pass(env, request, Passed::Scheduler(SchedulerAsk::ResetStatistics, CommandReply::Done))
    }

    /// Hands the requester on together with the question: the answer is encoded where it is made.
    fn pass(&mut self, env: &Env, request: u64, to: Passed) -> Came<FrontendInput> {
        let Some(mut replies) = self.asker(request) else { return Came::Nothing };
        match to {
            Passed::Steps(ask) => {
                let Some(owner) = env.steps() else { return Came::Nothing };
                sent(mail(&owner, StepsMsg::Ask { ask, reply: replying(replies) }))
            }
            Passed::Scheduler(ask, nobody) => match env.scheduler() {
                Some(owner) => sent(mail(&owner, SchedulerMsg::Ask { ask, reply: replying(replies) })),
                None => {
                    replies.send(nobody);
                    Came::Nothing
                }
            },
        }
    }

    /// Carries out an errand about the connections of agents.
    fn agent(&mut self, env: &Env, errand: AgentErrand) -> Came<FrontendInput> {
        match errand {
            AgentErrand::Door { request, node, query } => {
                if let Some((_, link)) = env.links.get(&node) {
                    let replies = self.doors.sink(&node, query, link);
                    self.waits(request, replies);
                }
            }
            AgentErrand::DoorLeft { node, query } => self.doors.gone(&node, query),
            AgentErrand::ShutAgentsDown => {
                for (node, link) in env.links.list() {
                    if link.send(ControllerToNode::Shutdown).is_err() {
                        tracing::warn!(node, "node.shutdown_not_sent");
                    }
                }
            }
            AgentErrand::OpenLink { node, conn } => {
                if let Some(link) = self.arrived.get(&conn) {
                    env.links.open(&node, conn, Arc::clone(link));
                }
            }
            AgentErrand::CloseLink { node, conn } => {
                env.links.close(&node, conn);
                self.doors.node_gone(&node);
                self.queries.borrow_mut().node_gone(&node);
            }
            AgentErrand::Welcome { node, registration, starting } => {
                return self.welcome(node, registration, starting);
            }
            AgentErrand::LetGo { conn } => drop(self.arrived.remove(&conn)),
            AgentErrand::Decline { node, conn, refusal, lost } => {
                return self.decline(env, &node, conn, refusal, lost);
            }
        }
        Came::Nothing
    }

    /// Closes an agent's connection, and tells it why and which runs have to end.
    fn decline(
        &mut self,
        env: &Env,
        node: &str,
        conn: u64,
        refusal: Refusal,
        lost: Vec<(JobId, Sluid)>,
    ) -> Came<FrontendInput> {
        env.links.close(node, conn);
        if let Some(link) = self.arrived.remove(&conn) {
            for (job, sluid) in lost {
                tracing::info!(node, job_id = job.0, "node.told_to_end_run");
                // What does not arrive is said again when it tries again.
                let _ = link.send(end_of_lost(job, sluid));
            }
            let said = say_last(link, ControllerToNode::Declined(refusal));
            return Came::Later(Box::pin(async move {
                said.await;
                None
            }));
        }
        Came::Nothing
    }

    fn welcome(&mut self, node: String, registration: Box<Registration>, starting: bool) -> Came<FrontendInput> {
        let Some(link) = self.arrived.remove(&registration.conn) else { return Came::Nothing };
        let message = connected(registration, link);
        sent(if starting {
            let message = Box::new(message);
            self.env.nodes_supervisor().and_then(|to| mail(&to, NodesMsg::Deliver { key: node, message }))
        } else {
            self.env.node(&node).and_then(|to| mail(&to, message))
        })
    }
}

/// It is sent, or will be.
fn sent(late: Late) -> Came<FrontendInput> {
    late.map_or(Came::Nothing, |late| {
        Came::Later(Box::pin(async move {
            late.await;
            None
        }))
    })
}

/// An answer that is sent to the requester.
fn replying(mut replies: Box<dyn ReplySink>) -> ReplyTo<CommandReply> {
    ReplyTo::calling(move |answer: Result<CommandReply, AskError>| {
        // An owner that failed over it gives no answer; dropping the sink says so.
        if let Ok(answer) = answer {
            replies.send(answer);
        }
    })
}

/// The answer of an owner, when it comes.
type Saying = Pin<Box<dyn Future<Output = Said>>>;

/// A reply for an owner, and the resulting answer.
fn asking<T: Send + 'static>(kind: fn(T) -> Said) -> (ReplyTo<T>, Saying) {
    let (reply, pending) = ReplyTo::channel();
    (reply, Box::pin(async move { pending.await.map_or_else(Said::Gone, kind) }))
}

/// Asks one owner: the answer comes later, or is known.
fn ask_one(env: &Env, ask: Ask) -> Result<(Late, Saying), Said> {
    match ask {
        Ask::Job(job, ask) => {
            let (reply, saying) = asking(Said::Job);
            let late = env.ask_job(job, JobMsg::Ask { ask, reply }).ok_or(Said::Nobody)?;
            Ok((late, saying))
        }
        Ask::Node { node, ask, starting } => {
            let (reply, saying) = asking(Said::Done);
            let update = NodeMsg::Ask { ask, reply };
            let late = match env.node(&node).filter(|_| !starting) {
                Some(owner) => mail(&owner, update),
                None => {
                    let message = Box::new(update);
                    env.nodes_supervisor().and_then(|to| mail(&to, NodesMsg::Deliver { key: node, message }))
                }
            };
            Ok((late, saying))
        }
        Ask::Partition(key, ask) => {
            let (reply, saying) = asking(Said::Done);
            let message = Box::new(PartitionMsg::Ask { ask, reply });
            let late = env.partitions_supervisor().and_then(|to| mail(&to, PartitionsMsg::Deliver { key, message }));
            Ok((late, saying))
        }
        Ask::Roster(ask) => {
            let (reply, saying) = asking(Said::Done);
            let late = env.roster_owner().and_then(|owner| mail(&owner, OwnerMsg::Ask { ask, reply }));
            Ok((late, saying))
        }
        Ask::Reservations(ask) => {
            let owner = env.reservations_owner().ok_or(Said::Nobody)?;
            let (reply, saying) = asking(Said::Reservation);
            Ok((mail(&owner, ReservationMsg::Ask { ask, reply }), saying))
        }
        Ask::Site(ask) => {
            let check =
                env.ports.job_submit.check(*ask, Arc::new(Shown { config: env.config(), boards: env.boards.clone() }));
            Ok((None, Box::pin(async move { Said::Checked(check.await.map(Box::new)) })))
        }
        Ask::Crontab(ask) => {
            let owner = env.crontabs_owner().ok_or(Said::Nobody)?;
            let (reply, saying) = asking(Said::Done);
            Ok((mail(&owner, CrontabMsg::Ask { ask, reply }), saying))
        }
        Ask::Trigger(ask) => {
            let owner = env.triggers_owner().ok_or(Said::Nobody)?;
            let (reply, saying) = asking(Said::Done);
            Ok((mail(&owner, TriggerMsg::Ask { ask, reply }), saying))
        }
        Ask::Revoke(nodes) => {
            let (reply, saying) = asking(Said::Revoked);
            env.ports.host.revoke_certs(nodes, reply);
            Ok((None, saying))
        }
        Ask::ChangeLog { node, change } => {
            let link = env.links.get(&node);
            let told = link.is_some_and(|(_, link)| link.send(ControllerToNode::ChangeLog(change)).is_ok());
            Err(if told { Said::Done(Ok(())) } else { Said::Nobody })
        }
    }
}

/// Asks all owners, and collects their answers.
fn ask_all(env: &Env, question: u64, asks: Vec<Ask>, within: Option<Duration>) -> Came<FrontendInput> {
    let mut lates = Vec::new();
    let mut ask = |ask| {
        ask_one(env, ask).map(|(late, saying)| {
            lates.extend(late);
            saying
        })
    };
    let asked: Vec<Result<Saying, Said>> = asks.into_iter().map(&mut ask).collect();
    if question == 0 && lates.is_empty() {
        return Came::Nothing;
    }
    let until = within.map(|within| tokio::time::Instant::now() + within);
    Came::Soon(Box::pin(async move {
        for late in lates {
            by(until, late).await;
        }
        if question == 0 {
            return None;
        }
        let mut said = Vec::with_capacity(asked.len());
        for one in asked {
            said.push(match one {
                Err(known) => known,
                Ok(saying) => by(until, saying).await.unwrap_or(Said::Late),
            });
        }
        Some(FrontendInput::Answered { question, said })
    }))
}

/// The result, if it is there by then.
async fn by<T>(until: Option<tokio::time::Instant>, what: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => tokio::time::timeout_at(until, what).await.ok(),
        None => Some(what.await),
    }
}

impl Shell for FrontendCore {
    type Ask = Infallible;
    type Gift = FrontendGift;
    type Hands = FrontendHands;

    const SAVES: bool = false;

    fn name(input: &FrontendInput) -> &'static str {
        input.name()
    }

    fn ask_name(ask: &Infallible) -> &'static str {
        match *ask {}
    }

    fn key(timer: Infallible) -> TimerKey {
        match timer {}
    }

    fn asked(_: u64, ask: Infallible) -> FrontendInput {
        match ask {}
    }

    /// Takes over the requests of a failed frontend. Submissions whose jobs exist are known, so that a repeat after a restart
    /// gets the first answer.
    fn begin(&mut self, hands: &mut FrontendHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        let committed = &env.committed;
        let of = |job| Some((committed.look(job, |record| record.request).flatten()?, job));
        let answered = committed.jobs().into_iter().filter_map(of).collect();
        let (entering, clock) = (env.entering.requests(), hands.began.elapsed());
        self.handle(now, &mut env.ids.clone(), FrontendInput::Begun { answered, entering, clock }, out);
    }

    fn hand(&self, hands: &mut FrontendHands, gift: FrontendGift) {
        match gift {
            FrontendGift::Replies(replies) => hands.came = Some(replies),
            FrontendGift::Link(conn, link) => drop(hands.arrived.insert(conn, link)),
        }
    }

    fn run(&self, hands: &mut FrontendHands, env: &Env, errand: FrontendErrand) -> Came<FrontendInput> {
        match errand {
            FrontendErrand::Next => {
                let next = Came::Later(Box::pin(std::future::ready(Some(FrontendInput::Next))));
                // Not part of the current trace: the next request has its own.
                return Came::In(TraceContext::root(), Box::new(next));
            }
            FrontendErrand::Turn { request, caller, command } => return hands.turn(self, request, caller, command),
            FrontendErrand::Audit { request, caller, command } => {
                if let Some(replies) = hands.asker(request) {
                    let replies = hands.audited(replies, &caller, &command);
                    hands.waits(request, replies);
                }
            }
            FrontendErrand::Take(request) => {
                if let Some(replies) = hands.came.take() {
                    hands.waits(request, replies);
                }
            }
            FrontendErrand::Settle { id, result } => {
                let (jobs, clock) = (env.entering.take(id).unwrap_or_default(), hands.began.elapsed());
                return Came::Input(FrontendInput::Settled { id, jobs, result, clock });
            }
            FrontendErrand::Drop(request) => drop(hands.asker(request)),
            FrontendErrand::Ask { question, asks, within } => return ask_all(env, question, asks, within),
            FrontendErrand::Pass { request, to } => return hands.pass(env, request, to),
            FrontendErrand::When { request, jobs, at, said } => return hands.when(request, jobs, at, said),
            FrontendErrand::Shares { request, ask, at } => return hands.shares(request, ask, at),
            FrontendErrand::Host(request, ask) => hands.host(request, ask),
            FrontendErrand::ShowStatistics(request) => return hands.statistics(env, request),
            FrontendErrand::ResetStatistics(request) => return hands.reset_statistics(env, request),
            FrontendErrand::ChangeLog(change) => env.ports.host.change_log(&change),
            FrontendErrand::Notify { job, text } => env.notices.send(job, text),
            FrontendErrand::Submission(errand) => return hands.submission(errand),
            FrontendErrand::Watch { request, job, by } => {
                if let Some(replies) = hands.asker(request) {
                    return streams::watch(Arc::clone(&hands.env), job, by, replies);
                }
            }
            FrontendErrand::Trace { request, query, prefixes, follow, nodes } => {
                if let Some(replies) = hands.asker(request) {
                    let (env, queries) = (Arc::clone(&hands.env), Rc::clone(&hands.queries));
                    return streams::trace(env, queries, Tracing { query, prefixes, follow, nodes }, replies);
                }
            }
            FrontendErrand::Traced { query, node, records, last } => {
                hands.queries.borrow_mut().trace(query, &node, records, last);
            }
            FrontendErrand::Agent(errand) => return hands.agent(env, errand),
            FrontendErrand::RenewSite => env.renew_job_site(),
        }
        Came::Nothing
    }

    fn publish(&self, _: &mut FrontendHands, _: &Env, shown: Infallible) {
        match shown {}
    }

    fn answer(&self, hands: &mut FrontendHands, request: u64, answer: CommandReply) {
        if let Some(mut replies) = hands.asker(request) {
            replies.send(answer);
        }
    }

    fn ended(&self, hands: &mut FrontendHands) {
        hands.doors.all_gone(Ordering::Relaxed);
    }

    fn try_again(after: Duration) -> CommandReply {
        CommandReply::Refused(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "controller".to_owned()
    }
}

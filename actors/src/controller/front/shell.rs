//! The front's actor, at `/controller`: it turns messages into inputs and carries effects out. Replies, links to agents and the
//! way to owners are here; it decides nothing.

use super::{
    core::FrontCore,
    messages::{Ask, FrontErrand, FrontInput, HostAsk, Said},
    sight::Sight,
    streams::AgentQueries,
    submit::when,
};
use crate::{
    controller::{
        agents::{AgentReplies, say_last},
        audit::Audited,
        committed::Committed,
        entering::Entering,
        env::{Boards, Env, deliver, log_outcome},
        messages::{ControllerMsg, request_name},
        ports::{AgentLink, JobSubmit, ReplySink, UserDirectory},
    },
    job::{
        messages::{JobMsg, JobSite},
        shell::JobsMsg,
    },
    license::account::LicenseAccount,
    node::{
        messages::NodeMsg,
        record::SavedNode,
        shell::{NodesMsg, connected},
    },
    owner::{Letter, Owner, Stage, actor::OwnerMsg, perform},
    partition::{messages::PartitionMsg, shell::PartitionsMsg},
    reservation::shell::ReservationMsg,
    roster::nodes::Roster,
    scheduler::{
        messages::SchedulerMsg,
        priority,
        shell::{cluster_view, policy},
    },
    steps::messages::StepsMsg,
    submission::core::SubmissionErrand,
};
use garrick_model::{
    config::{AUDIT_RPCS, Config},
    ids::JobId,
    messages::{
        command::{Caller, CommandReply, CommandRequest, MessageCount},
        node::ControllerToNode,
    },
    time::{Timestamp, system_zone},
};
use garrick_runtime::{Actor, AskError, Context, PendingReply, ReplyTo, TraceContext};
use jiff::tz::TimeZone;
use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

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
    fn licenses(&self) -> LicenseAccount {
        self.licenses.lock().clone()
    }
    fn priority_rules(&self) -> Option<Arc<priority::Rules>> {
        Self::priority_rules(self)
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
    fn job_submit(&self) -> &dyn JobSubmit {
        &*self.ports.job_submit
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

/// Who waits for an answer, and the trace that his request belongs to.
struct Asker {
    replies: Box<dyn ReplySink>,
    trace: TraceContext,
}

/// The front's actor.
pub struct ControllerActor {
    core: FrontCore,
    pub(super) env: Arc<Env>,
    /// By request.
    askers: HashMap<u64, Asker>,
    /// Links of agents that are not with their nodes' owners yet, by connection.
    arrived: HashMap<u64, Arc<dyn AgentLink>>,
    doors: AgentReplies,
    pub(super) queries: AgentQueries,
    /// When its clock began, which is never set.
    began: Instant,
}

/// Inputs that effects lead to, some of them in a trace of their own.
type Again = VecDeque<(Option<TraceContext>, FrontInput)>;

/// What the verbs of the front come to.
struct Live<'a> {
    front: &'a mut ControllerActor,
    cx: &'a mut Context<ControllerActor>,
    again: &'a mut Again,
}

impl Live<'_> {
    /// Whoever asked is handed on, with his request.
    fn asker(&mut self, request: u64) -> Option<Box<dyn ReplySink>> {
        self.front.askers.remove(&request).map(|asker| asker.replies)
    }

    /// What comes of a request is kept from here on.
    fn audited(&self, replies: Box<dyn ReplySink>, caller: &Caller, command: &CommandRequest) -> Box<dyn ReplySink> {
        let audit = Arc::clone(&self.front.env.ports.audit);
        Box::new(Audited::new(replies, audit, caller, request_name(command), command))
    }

    fn turn(&mut self, request: u64, caller: Caller, command: Box<CommandRequest>) {
        let Some(Asker { mut replies, trace }) = self.front.askers.remove(&request) else { return };
        replies.taken();
        if replies.is_gone() {
            return;
        }
        let replies = self.audited(replies, &caller, &command);
        self.front.askers.insert(request, Asker { replies, trace });
        tracing::debug!(
            target: AUDIT_RPCS,
            request = request_name(&command),
            uid = caller.uid,
            pid = caller.pid,
            host = caller.host,
            "command.asked"
        );
        self.again.push_back((Some(trace), FrontInput::Turn { request, caller, command }));
    }

    fn host(&mut self, request: u64, ask: HostAsk) {
        let Some(mut replies) = self.asker(request) else { return };
        let env = &self.front.env;
        let host = &env.ports.host;
        match ask {
            HostAsk::Identity => {
                let (host, version) = host.identity();
                replies.send(CommandReply::Pong { host, version });
            }
            HostAsk::ShowConfig => {
                let pairs = host.show_config(&env.config(), env.ids.peek());
                replies.send(CommandReply::Config { pairs, at: Timestamp::now() });
            }
            HostAsk::Daemons => drop(replies.send(CommandReply::Daemons(host.daemons()))),
            HostAsk::Reconfigure => host.reconfigure(replies),
            HostAsk::Shutdown => host.shutdown(replies),
            HostAsk::JoinToken { lifetime, node } => host.join_token(lifetime, node, replies),
            HostAsk::Certs => host.certs(replies),
            HostAsk::RenewCerts(nodes) => host.renew_certs(nodes, replies),
            HostAsk::RotateAuthority { leave_behind } => host.rotate_authority(leave_behind, replies),
            HostAsk::CountMessages(prefixes) => {
                let line = |c: garrick_runtime::MessageCount| MessageCount {
                    actor: c.actor,
                    message: c.message.to_owned(),
                    handled: c.handled,
                };
                let counts = self.cx.system().traces().counts(&prefixes).into_iter().map(line).collect();
                replies.send(CommandReply::MessageCounts(counts));
            }
        }
    }

    /// Asks one; what it says comes later.
    fn ask(&mut self, ask: Ask) -> Result<PendingReply<Said>, Said> {
        let env = Arc::clone(&self.front.env);
        let cx = &mut *self.cx;
        let (tell, pending) = ReplyTo::channel();
        match ask {
            Ask::Job(job, ask) => {
                if !env.ask_job(cx, job, JobMsg::Ask { ask, reply: telling(tell, Said::Job) }) {
                    return Err(Said::Nobody);
                }
            }
            Ask::Node { node, ask, starting } => {
                let update = NodeMsg::Ask { ask, reply: telling(tell, Said::Done) };
                if let Some(owner) = env.node(&node).filter(|_| !starting) {
                    deliver(cx, &owner, update);
                } else if let Some(supervisor) = env.nodes_supervisor() {
                    deliver(cx, &supervisor, NodesMsg::Deliver { key: node, message: Box::new(update) });
                }
            }
            Ask::Partition(key, ask) => {
                if let Some(supervisor) = env.partitions_supervisor() {
                    let message = Box::new(PartitionMsg::Ask { ask, reply: telling(tell, Said::Done) });
                    deliver(cx, &supervisor, PartitionsMsg::Deliver { key, message });
                }
            }
            Ask::Roster(ask) => {
                if let Some(owner) = env.roster_owner() {
                    deliver(cx, &owner, OwnerMsg::Ask { ask, reply: telling(tell, Said::Done) });
                }
            }
            Ask::Reservations(ask) => {
                let owner = env.reservations_owner().ok_or(Said::Nobody)?;
                deliver(cx, &owner, ReservationMsg::Ask { ask, reply: telling(tell, Said::Reservation) });
            }
            Ask::Steps(ask) => {
                let owner = env.steps().ok_or(Said::Nobody)?;
                deliver(cx, &owner, StepsMsg::Ask { ask, reply: telling(tell, Said::Reply) });
            }
            Ask::Scheduler(ask) => {
                let owner = env.scheduler().ok_or(Said::Nobody)?;
                deliver(cx, &owner, SchedulerMsg::Ask { ask, reply: telling(tell, Said::Reply) });
            }
            Ask::Revoke(nodes) => env.ports.host.revoke_certs(nodes, telling(tell, Said::Revoked)),
            Ask::ChangeLog { node, change } => {
                let link = env.links.get(&node);
                let told = link.is_some_and(|(_, link)| link.send(ControllerToNode::ChangeLog(change)).is_ok());
                return Err(if told { Said::Done(Ok(())) } else { Said::Nobody });
            }
        }
        Ok(pending)
    }

    fn ask_all(&mut self, question: u64, asks: Vec<Ask>, within: Option<Duration>) {
        let pending: Vec<_> = asks.into_iter().map(|ask| self.ask(ask)).collect();
        if question == 0 {
            return;
        }
        let said = async move {
            let mut said = Vec::with_capacity(pending.len());
            for one in pending {
                let answer = match (one, within) {
                    (Err(known), _) => known,
                    (Ok(pending), None) => pending.await.unwrap_or_else(Said::Gone),
                    (Ok(pending), Some(within)) => match tokio::time::timeout(within, pending).await {
                        Ok(answer) => answer.unwrap_or_else(Said::Gone),
                        Err(_) => Said::Late,
                    },
                };
                said.push(answer);
            }
            said
        };
        self.cx.pipe(said, move |said| ControllerMsg::Input(FrontInput::Answered { question, said }));
    }

    fn submission(&mut self, errand: SubmissionErrand) {
        let env = &self.front.env;
        let (request, done) = match errand {
            // The core's own.
            SubmissionErrand::Judge { .. } => return,
            SubmissionErrand::Begin(job) => {
                if let Some(supervisor) = env.jobs_supervisor() {
                    deliver(self.cx, &supervisor, JobsMsg::Start { key: job, seed: None });
                }
                return;
            }
            SubmissionErrand::Offer { id, records } => (id, env.offer_jobs(id, records, Timestamp::now())),
            SubmissionErrand::Hear(id) => (id, env.append(Vec::new())),
        };
        self.cx.pipe(done, move |answer| ControllerMsg::Submitted { request, result: log_outcome(answer) });
    }

    /// Makes a plan for whoever asks, on a thread of its own: nobody else waits for it.
    fn when(&mut self, request: u64, jobs: Vec<garrick_model::view::JobView>, at: Timestamp) {
        let env = Arc::clone(&self.front.env);
        let plan = tokio::task::spawn_blocking(move || when(&cluster_view(policy(&env.config()), &env), &jobs, at));
        let told = async move { plan.await.ok() };
        self.cx.pipe(told, move |reply| ControllerMsg::Input(FrontInput::Told { request, reply }));
    }

    fn welcome(&mut self, node: String, registration: Box<crate::node::messages::Registration>, starting: bool) {
        let Some(link) = self.front.arrived.remove(&registration.conn) else { return };
        let env = &self.front.env;
        let message = connected(registration, link);
        if !starting {
            if let Some(owner) = env.node(&node) {
                deliver(self.cx, &owner, message);
            }
        } else if let Some(supervisor) = env.nodes_supervisor() {
            deliver(self.cx, &supervisor, NodesMsg::Deliver { key: node, message: Box::new(message) });
        }
    }
}

/// What is said goes there.
fn telling<T: Send + 'static>(tell: ReplyTo<Said>, kind: fn(T) -> Said) -> ReplyTo<T> {
    ReplyTo::calling(move |answer: Result<T, AskError>| tell.reply(answer.map_or_else(Said::Gone, kind)))
}

impl Stage<FrontCore> for Live<'_> {
    fn tell(&mut self, letter: Letter) {
        self.front.env.post(self.cx, letter);
    }

    fn run(&mut self, errand: FrontErrand) {
        match errand {
            FrontErrand::Next => {
                let next = || ControllerMsg::Input(FrontInput::Next);
                // Of nobody's trace: whose turn comes is seen when it comes.
                TraceContext::root().enter(|| self.cx.pipe(std::future::ready(()), move |()| next()));
            }
            FrontErrand::Turn { request, caller, command } => self.turn(request, caller, command),
            FrontErrand::Audit { request, caller, command } => {
                if let Some(Asker { replies, trace }) = self.front.askers.remove(&request) {
                    let replies = self.audited(replies, &caller, &command);
                    self.front.askers.insert(request, Asker { replies, trace });
                }
            }
            FrontErrand::Door { request, node, query } => {
                if let Some((_, link)) = self.front.env.links.get(&node) {
                    let replies = self.front.doors.sink(&node, query, link);
                    self.front.await_answer(request, replies);
                }
            }
            FrontErrand::DoorLeft { node, query } => self.front.doors.gone(&node, query),
            FrontErrand::Drop(request) => drop(self.asker(request)),
            FrontErrand::Ask { question, asks, within } => self.ask_all(question, asks, within),
            FrontErrand::When { request, jobs, at } => self.when(request, jobs, at),
            FrontErrand::Host(request, ask) => self.host(request, ask),
            FrontErrand::ChangeLog(change) => self.front.env.ports.host.change_log(&change),
            FrontErrand::ShutAgentsDown => {
                for (node, link) in self.front.env.links.list() {
                    if link.send(ControllerToNode::Shutdown).is_err() {
                        tracing::warn!(node, "node.shutdown_not_sent");
                    }
                }
            }
            FrontErrand::Submission(errand) => self.submission(errand),
            FrontErrand::Watch { request, job } => {
                if let Some(replies) = self.asker(request) {
                    self.front.watch(self.cx, job, replies);
                }
            }
            FrontErrand::Trace { request, prefixes, follow, nodes } => {
                if let Some(replies) = self.asker(request) {
                    self.front.trace(self.cx, prefixes, follow, nodes, replies);
                }
            }
            FrontErrand::Traced { query, node, records, last } => {
                self.front.queries.trace(query, &node, records, last);
            }
            FrontErrand::OpenLink { node, conn } => {
                if let Some(link) = self.front.arrived.get(&conn) {
                    self.front.env.links.open(&node, conn, Arc::clone(link));
                }
            }
            FrontErrand::CloseLink { node, conn } => {
                self.front.env.links.close(&node, conn);
                self.front.doors.node_gone(&node);
                self.front.queries.node_gone(&node);
            }
            FrontErrand::Welcome { node, registration, starting } => self.welcome(node, registration, starting),
            FrontErrand::Decline { node, conn, refusal } => {
                if let Some(link) = self.front.arrived.remove(&conn) {
                    self.cx.spawn(say_last(link, ControllerToNode::Declined(refusal)));
                }
                self.front.env.links.close(&node, conn);
            }
            FrontErrand::LetGo { conn } => drop(self.front.arrived.remove(&conn)),
            FrontErrand::RenewSite => self.front.env.renew_job_site(),
        }
    }

    fn set_timer(&mut self, timer: Infallible, _: Timestamp) {
        match timer {}
    }

    fn clear_timer(&mut self, timer: Infallible) {
        match timer {}
    }

    fn publish(&mut self, shown: Infallible) {
        match shown {}
    }

    fn answer(&mut self, request: u64, answer: CommandReply) {
        if let Some(mut replies) = self.asker(request) {
            replies.send(answer);
        }
    }

    fn stop(&mut self) {}
}

impl ControllerActor {
    /// A front.
    pub fn new(env: Arc<Env>) -> Self {
        Self {
            core: FrontCore::new(Arc::clone(&env) as Arc<dyn Sight>),
            env,
            askers: HashMap::new(),
            arrived: HashMap::new(),
            doors: AgentReplies::default(),
            queries: AgentQueries::default(),
            began: Instant::now(),
        }
    }

    fn await_answer(&mut self, request: u64, replies: Box<dyn ReplySink>) {
        self.askers.insert(request, Asker { replies, trace: TraceContext::current_or_root() });
    }

    fn request(&mut self, replies: Box<dyn ReplySink>) -> u64 {
        let request = self.core.number();
        self.await_answer(request, replies);
        request
    }

    fn run(&mut self, cx: &mut Context<Self>, input: FrontInput) {
        let mut again = Again::from([(None, input)]);
        while let Some((trace, input)) = again.pop_front() {
            let step = || {
                let mut out = Vec::new();
                self.core.handle(Timestamp::now(), &mut self.env.ids.clone(), input, &mut out);
                perform(out, &mut Live { front: self, cx, again: &mut again });
            };
            match trace {
                Some(trace) => trace.enter(step),
                None => step(),
            }
        }
    }
}

impl Actor for ControllerActor {
    type Msg = ControllerMsg;

    /// Takes over what a front that failed had under way. Submissions of jobs that are there are known, so that a repeat after
    /// a restart gets the first answer.
    fn started(&mut self, cx: &mut Context<Self>) {
        let committed = &self.env.committed;
        let of = |job| Some((committed.look(job, |record| record.request).flatten()?, job));
        let answered = committed.jobs().into_iter().filter_map(of).collect();
        let (entering, clock) = (self.env.entering.requests(), self.began.elapsed());
        self.run(cx, FrontInput::Begun { answered, entering, clock });
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: ControllerMsg) {
        let input = match message {
            ControllerMsg::AgentConnected { node, registration, link, joining } => {
                self.arrived.insert(registration.conn, link);
                FrontInput::Connected { node, registration, joining }
            }
            ControllerMsg::AgentGone { node, conn } => FrontInput::AgentGone { node, conn },
            ControllerMsg::AgentMessage { node, conn, message } => FrontInput::AgentSaid { node, conn, message },
            ControllerMsg::Command { caller, request: command, bytes, replies } => {
                FrontInput::Asked { request: self.request(replies), caller, command, bytes }
            }
            ControllerMsg::ConfigChanged { config, replies } => {
                let request = replies.map_or(0, |replies| self.request(replies));
                FrontInput::ConfigRead { request, config }
            }
            ControllerMsg::Submitted { request: id, result } => {
                let (jobs, clock) = (self.env.entering.take(id).unwrap_or_default(), self.began.elapsed());
                FrontInput::Settled { id, jobs, result, clock }
            }
            ControllerMsg::Input(input) => input,
            ControllerMsg::FollowersChanged => FrontInput::FollowersChanged,
            ControllerMsg::QueryTimeout { query } => return self.queries.timeout(query),
            ControllerMsg::QueryGone { query } => return self.trace_ended(query),
            #[cfg(test)]
            ControllerMsg::PanicForTests => panic!("a handler that fails"),
        };
        self.run(cx, input);
    }

    fn stopped(&mut self) {
        self.doors.all_gone(Ordering::Relaxed);
    }
}

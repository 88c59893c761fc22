//! Decides what a job does next. Plain and synchronous: one input in, effects out, time and fresh ids as arguments. Called by the
//! job's shell, by recovery and by simulations. Durable state is in the [`JobRecord`] and changes through events only; other
//! state (a commit in progress, waiting requests) is rebuilt or asked for again after a restart.

use super::{
    array::Tasks,
    effects::{JobEffect, JobErrand, JobShown},
    het::{Granted, HetState},
    reports::EarlierNews,
    suspend::Resuming,
    told, view,
};
use crate::{
    messages::{
        job::{JobAnswer, JobInput, JobSite, JobTimer, Script},
        letter::Letter,
        license::LicenseInput,
        node::{Grant, NodeInput},
    },
    owner::{FreshIds, Out, Owner},
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{JobRecord, Phase},
        job_event::JobEvent,
    },
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::{JobMilestone, StepManagerPlace},
        node::ControllerToNode,
    },
    packed_steps::StepTally,
    refusal::Refusal,
    spec::JobSpec,
    state::Reason,
    time::Timestamp,
    view::{Accrual, JobView},
};
use garrick_plan::proposals::StartProposal;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// An allocation for which nodes are being asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Commit {
    pub(super) attempt: u64,
    pub(super) proposal: StartProposal,
    /// Nodes that have not answered.
    pub(super) waiting: BTreeSet<String>,
    /// Nodes that accepted, with their agents' addresses.
    pub(super) granted: BTreeMap<String, Grant>,
    /// The job has the licenses of the allocation, or needs none.
    pub(super) licensed: bool,
}

impl Commit {
    /// All nodes of it.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.waiting.iter().chain(self.granted.keys())
    }

    /// Have all of them accepted?
    pub(super) fn has_all(&self) -> bool {
        self.waiting.is_empty() && self.licensed
    }

    /// Is that node among them?
    pub(super) fn has_node(&self, node: &str) -> bool {
        self.waiting.contains(node) || self.granted.contains_key(node)
    }
}

/// The owner of one job's state.
#[derive(Clone, Debug)]
pub struct JobCore {
    pub(super) record: JobRecord,
    pub(super) site: Arc<JobSite>,
    pub(super) generation: u64,
    /// The scheduler's reason, while no reason of the job's own applies.
    pub(super) reason: Reason,
    pub(super) expected: Option<Timestamp>,
    /// The scheduler's latest calculation; not saved, since it is repeated.
    pub(super) calculated: Option<u32>,
    pub(super) last_eval: Option<Timestamp>,
    /// What it waited for last, other than resources and its turn. Of what was before a restart only what still holds is known.
    pub(super) blocked: Reason,
    pub(super) commit: Option<Commit>,
    pub(super) attempt: u64,
    /// See [`Leftover::earlier`].
    pub(super) left: BTreeMap<String, u64>,
    /// A run that was suspended for another one asks for its CPUs.
    pub(super) resuming: Option<Resuming>,
    pub(super) resume_attempt: u64,
    pub(super) watchers: BTreeSet<JobId>,
    /// It has told itself to tell them ([`JobInput::TellWatchers`]).
    pub(super) tells_watchers: bool,
    pub(super) waits: Vec<(u64, JobMilestone)>,
    /// Requests for its step manager that came while that was starting.
    pub(super) locating: Vec<u64>,
    /// Jobs for which a singleton still waits; `None`: not known yet.
    pub(super) siblings: Option<BTreeSet<JobId>>,
    /// The step manager's counts, as of its latest report.
    pub(super) tally: StepTally,
    /// Number of that report: an older report that is repeated is ignored, if the tally itself has no number.
    pub(super) tally_seq: u64,
    /// Nodes that are known to have the latest requeue policy.
    pub(super) policy_known: BTreeSet<String>,
    /// The spec without script and environment, as shown.
    pub(super) shown_spec: Arc<JobSpec>,
    /// State shared by the components of a heterogeneous job.
    pub(super) het: HetState,
    /// The timer for asking about other jobs again is set.
    pub(super) awaits_news: bool,
    /// Tasks of this array that ran once and wait again; asked for again when the owner is rebuilt.
    pub(super) back_in_queue: BTreeSet<JobId>,
    /// What follows from the array's list of tasks, which may be long: counted on with each change of it.
    pub(super) tasks: Tasks,
    /// The program of the site that runs for it, as far as this life of the owner knows.
    pub(super) script: Option<(Sluid, Script)>,
    /// Its user was told of the parts of its time limit that were over by then, or will not be.
    pub(super) parts_told: Timestamp,
    pub(super) touched: bool,
    /// Its last event is recorded; the actor ends when that is on disk.
    pub(super) forgotten: bool,
}

/// Unsaved state that must survive a panic: the shell keeps it besides the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// The last attempt.
    pub attempt: u64,
    /// Nodes asked in an attempt that was neither recorded nor given up.
    pub nodes: Vec<String>,
    /// Nodes that earlier lives of the owner had asked, each with its last attempt there. That they were told to release the
    /// share is known at the earliest when the run is recorded: if a life ends before its effects are carried out, they are lost
    /// with it.
    pub earlier: BTreeMap<String, u64>,
    /// Latest counts of the run's steps, and the number of their report: its node counts that as acknowledged.
    pub tally: (StepTally, u64),
    /// Generation of the last view.
    pub generation: u64,
    /// Its last event was recorded: it is to be forgotten.
    pub forgotten: bool,
    /// What the leader of a heterogeneous job recorded for the other components.
    pub granted: Arc<Granted>,
}

impl Leftover {
    /// An owner existed before, and what it recorded may not be on disk yet.
    pub const fn is_of_earlier_life(&self) -> bool {
        self.generation > 0
    }

    /// May the node hold what an attempt of this run asked for?
    pub fn may_be_at(&self, node: &str) -> bool {
        self.earlier.contains_key(node) || self.nodes.iter().any(|asked| asked == node)
    }
}

/// What a turn may use.
pub(super) struct Turn<'a> {
    pub(super) now: Timestamp,
    pub(super) ids: &'a mut dyn FreshIds,
    pub(super) out: &'a mut Vec<JobEffect>,
}

impl Turn<'_> {
    pub(super) fn tell(&mut self, letter: Letter) {
        self.out.push(JobEffect::Tell(letter));
    }

    pub(super) fn tell_job(&mut self, job: JobId, input: JobInput) {
        self.tell(Letter::Job(job, input));
    }

    pub(super) fn tell_node(&mut self, node: String, input: NodeInput) {
        self.tell(Letter::Node(node, input));
    }

    /// Sends to a node's agent. Lost if there is no connection, and repeated when the agent registers.
    pub(super) fn send(&mut self, node: String, frame: ControllerToNode) {
        self.tell_node(node, NodeInput::Send(Box::new(frame)));
    }

    /// Tells the scheduler the result of its proposal.
    pub(super) fn outcome(&mut self, pass: u64, accepted: bool) {
        self.tell(Letter::Outcome { pass, accepted });
    }

    pub(super) fn answer(&mut self, request: u64, answer: JobAnswer) {
        self.out.push(JobEffect::Answer { request, answer });
    }
}

impl JobCore {
    /// From a record: a new job's, or a replayed one.
    pub fn new(record: JobRecord, site: Arc<JobSite>) -> Self {
        let tasks = Tasks::of(&record);
        Self {
            shown_spec: view::shown_spec(&record.spec),
            tally: record.steps,
            tally_seq: 0,
            record,
            site,
            generation: 0,
            reason: Reason::None,
            expected: None,
            calculated: None,
            last_eval: None,
            blocked: Reason::None,
            commit: None,
            attempt: 0,
            left: BTreeMap::new(),
            resuming: None,
            resume_attempt: 0,
            watchers: BTreeSet::new(),
            tells_watchers: false,
            waits: Vec::new(),
            locating: Vec::new(),
            siblings: None,
            policy_known: BTreeSet::new(),
            het: HetState::default(),
            awaits_news: false,
            back_in_queue: BTreeSet::new(),
            tasks,
            script: None,
            parts_told: Timestamp(0),
            touched: true,
            forgotten: false,
        }
    }

    /// The durable record.
    pub const fn record(&self) -> &JobRecord {
        &self.record
    }

    /// What a later life of the actor needs besides the record.
    pub fn leftover(&self) -> Leftover {
        let nodes = match &self.commit {
            Some(commit) => commit.nodes().cloned().collect(),
            None => self.het_undecided_nodes(),
        };
        let (attempt, generation, granted) = (self.attempt, self.generation, Arc::clone(&self.het.granted));
        let (earlier, tally) = (self.left.clone(), (self.tally, self.tally_seq));
        Leftover { attempt, nodes, earlier, tally, generation, forgotten: self.forgotten, granted }
    }

    /// The address of the step manager, once it is ready.
    pub fn place(&self) -> Result<StepManagerPlace, Refusal> {
        match &self.record.phase {
            Phase::Pending | Phase::Starting(_) => Err(Refusal::JobPending),
            Phase::Completing(..) | Phase::Over(..) => Err(Refusal::AlreadyDone),
            Phase::Running(run) | Phase::Suspended(run) => Ok(StepManagerPlace {
                job: self.record.id,
                node: run.batch_host().to_owned(),
                door: run.door.clone(),
                address: run.addresses.first().cloned().unwrap_or_default(),
                nodes: run.allocation.nodes.clone(),
            }),
        }
    }

    /// The answer to requests that waited for a milestone.
    pub(super) fn reached(&self, now: Timestamp) -> JobAnswer {
        JobAnswer::Reached(Arc::new(self.view(now)))
    }

    pub(super) fn script(&self) -> JobAnswer {
        JobAnswer::Script(self.record.spec.script.as_deref().cloned())
    }

    /// Has it nodes, but no step manager has reported yet?
    pub const fn is_starting(&self) -> bool {
        matches!(self.record.phase, Phase::Starting(_))
    }

    /// The view as of now.
    pub fn view(&self, now: Timestamp) -> JobView {
        view::of(self, now)
    }

    /// First call after [`JobCore::new`], in every life of the actor: sets timers, asks the jobs that it depends on, releases
    /// what an unfinished commit of an earlier life reserved, and publishes its view. What an earlier life recorded has to be on
    /// disk before any effect of this one is carried out.
    pub fn resume(&mut self, now: Timestamp, ids: &mut dyn FreshIds, left: Leftover, out: &mut Vec<JobEffect>) {
        let mut turn = Turn { now, ids, out };
        self.attempt = left.attempt;
        self.generation = left.generation;
        self.het.granted = Arc::clone(&left.granted);
        if left.forgotten {
            self.forgotten = true;
            return turn.out.push(JobEffect::Stop);
        }
        let again = left.is_of_earlier_life();
        if again {
            (self.tally, self.tally_seq) = left.tally;
        }
        let mut nodes = left.nodes;
        if self.record.spec.het.is_some() {
            self.het_resume(left.attempt, &mut nodes, &mut turn);
        }
        self.left = left.earlier;
        self.left.extend(nodes.into_iter().map(|node| (node, left.attempt)));
        let run = self.record.phase.run();
        self.left.retain(|node, _| !run.is_some_and(|run| run.has_node(node)));
        for (node, attempt) in &self.left {
            let (node, sluid, attempt) = (node.clone(), self.record.sluid, Some(*attempt));
            turn.tell_node(node, NodeInput::Release { job: self.record.id, sluid, attempt, drain: None });
        }
        // Licenses of an earlier life's commit, or of a run that ended with it.
        if self.record.spec.licenses.is_some() && self.record.phase.working().is_none() && !self.het_puts_off_anything()
        {
            turn.tell(Letter::Licenses(LicenseInput::Release { job: self.record.id, attempt: None }));
        }
        self.await_deadline(&mut turn);
        self.leave(&mut turn);
        match &self.record.phase {
            Phase::Pending => {
                if let Some(secs) = self.record.spec.immediate_secs {
                    let at = self.record.submit_time.plus(std::time::Duration::from_secs(u64::from(secs)));
                    turn.out.push(JobEffect::SetTimer { timer: JobTimer::Immediate, at });
                }
                self.ask_dependencies(&mut turn);
                self.check_eligible(&mut turn);
                self.end_if_impossible(&mut turn);
            }
            Phase::Starting(_) => {
                // An earlier life had noted that it is to end.
                self.end_unlaunched(&mut turn);
                self.ask_reboots(&mut turn);
                if matches!(self.record.phase, Phase::Starting(_)) && !self.awaits_prolog(&mut turn) {
                    self.limit_launch(&mut turn);
                }
            }
            Phase::Completing(..) => self.run_epilog(&mut turn),
            Phase::Running(_) | Phase::Suspended(_) => {}
            Phase::Over(..) => self.after_end(&mut turn),
        }
        // What passed before was told by an earlier life, or by nobody.
        self.parts_told = now;
        self.await_part(&mut turn);
        self.end_preempted(&mut turn);
        self.give_cpus(&mut turn);
        self.clean_up(None, &mut turn);
        self.end_without_word(&mut turn);
        self.tell_array(&mut turn);
        // Tasks do not know that their last messages are lost.
        if again {
            self.ask_tasks(&mut turn);
        }
        self.touched = true;
        self.finish_turn(&mut turn);
    }

    /// Handles one input. Effects are appended to `out`, in the order in which they must be carried out.
    pub fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: JobInput, out: &mut Vec<JobEffect>) {
        let Some(input) = self.het_puts_off(input) else { return };
        self.handle_now(now, ids, input, out);
        for input in self.het_take_put_off() {
            self.handle_now(now, ids, input, out);
        }
    }

    fn handle_now(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: JobInput, out: &mut Vec<JobEffect>) {
        let mut turn = Turn { now, ids, out };
        if self.forgotten {
            return self.came_too_late(input, &mut turn);
        }
        let before = self.progress();
        match input {
            JobInput::Start(proposal) => self.start(*proposal, &mut turn),
            JobInput::Preempt(proposal) => self.preempt(&proposal, &mut turn),
            JobInput::GoOn(proposal) => self.go_on_if_free(&proposal, &mut turn),
            JobInput::Turn(proposal) => self.take_turn(&proposal, &mut turn),
            JobInput::Unparked { attempt, node, granted } => self.unparked(attempt, &node, granted, &mut turn),
            JobInput::Considered { reason, expected } => self.considered(reason, expected, &turn),
            JobInput::Priority(priority) => self.calculated(priority),
            JobInput::Accrues { accrual, reset, tasks } => self.accrues(accrual, reset, tasks, &mut turn),
            JobInput::Reserved { attempt, node, result } => self.reserved(attempt, node, result, &mut turn),
            JobInput::LicensesReserved { attempt, granted } => self.licenses_reserved(attempt, granted, &mut turn),
            JobInput::Report { node, seq, report } => {
                self.report(&node, seq, *report, &mut turn);
                turn.tell_node(node, NodeInput::ReportSafe { seq });
            }
            JobInput::NodeReady { node, sluid, address } => self.node_ready(&node, sluid, address, &mut turn),
            JobInput::RunHeld { node, sluid, requeue } if sluid == self.record.sluid => {
                self.requeue_held(&node, requeue, &mut turn);
                self.run_held(&node, &mut turn);
            }
            JobInput::RunMissing { node, sluid } if sluid == self.record.sluid => self.run_missing(&node, &mut turn),
            JobInput::NodeLost { node, sluid } if sluid == self.record.sluid => self.node_lost(&node, &mut turn),
            JobInput::RunMissing { node, sluid } => self.earlier_news(node, sluid, EarlierNews::Missing, &mut turn),
            JobInput::NodeLost { node, sluid } => self.earlier_news(node, sluid, EarlierNews::Lost, &mut turn),
            JobInput::RunHeld { node, sluid, .. } => self.earlier_news(node, sluid, EarlierNews::Held, &mut turn),
            JobInput::Command { request, by, tasks, command } => {
                self.command(request, by, tasks, command, &mut turn);
            }
            JobInput::Subscribe { by } => self.subscribed(by, &mut turn),
            JobInput::TellWatchers => self.tell_watchers(&mut turn),
            JobInput::Fact { job, fact } => self.learned(job, fact.as_deref(), &mut turn),
            JobInput::Siblings { jobs } => self.found_siblings(&jobs, &mut turn),
            JobInput::Wait { request, until } => self.waits.push((request, until)),
            JobInput::LeaveBy(at) => self.leave_by(at, &mut turn),
            JobInput::OverLimit { sluid, reason } => self.over_limit(sluid, reason, &mut turn),
            JobInput::LeaveCrontab => self.leave_crontab(&mut turn),
            JobInput::ReservationsGone(names) => self.leave_reservations(&names, &mut turn),
            JobInput::Script { request } => turn.answer(request, self.script()),
            JobInput::Locate { request } => self.locating.push(request),
            JobInput::Timer(timer) => self.timer(timer, &mut turn),
            JobInput::ScriptEnded { sluid, script, result } => self.script_ended(sluid, script, result, &mut turn),
            JobInput::Het { from, message } => self.het_message(from, *message, &mut turn),
            JobInput::Site(site) => {
                if !site.multifactor {
                    self.touched |= self.calculated.take().is_some();
                }
                self.site = site;
                self.end_if_impossible(&mut turn);
            }
        }
        self.resumes_only_what_waits(&mut turn);
        if self.progress() != before {
            self.tell_watchers_soon(&mut turn);
            self.tell_array(&mut turn);
        }
        self.finish_turn(&mut turn);
    }

    /// Ends a turn: publishes what changed and answers waiting requests.
    fn finish_turn(&mut self, turn: &mut Turn<'_>) {
        if self.touched {
            self.note_what_blocks(turn.now);
            self.touched = false;
            self.generation += 1;
            turn.out.push(JobEffect::Publish(JobShown::View(Arc::new(self.view(turn.now)))));
            // Its begin time had come, and the clock was set back: the view says that it waits for it again.
            let again = matches!(self.record.phase, Phase::Pending) && self.record.eligible_time.is_some();
            if let Some(at) = self.record.begin.filter(|at| again && *at > turn.now) {
                turn.out.push(JobEffect::SetTimer { timer: JobTimer::Eligible, at });
            }
        }
        self.await_news(turn);
        let (started, over) = (self.record.phase.run().is_some_and(|r| r.started.is_some()), self.is_over());
        let mut left = Vec::new();
        for (request, until) in std::mem::take(&mut self.waits) {
            if over || (started && until == JobMilestone::Started) {
                turn.answer(request, self.reached(turn.now));
            } else {
                left.push((request, until));
            }
        }
        self.waits = left;
        if !self.is_starting() {
            for request in std::mem::take(&mut self.locating) {
                turn.answer(request, JobAnswer::Place(self.place()));
            }
        }
        // A requester with an answer may query at once, and must see the new state.
        let answers: Vec<JobEffect> =
            turn.out.extract_if(.., |effect| matches!(effect, JobEffect::Answer { .. })).collect();
        turn.out.extend(answers);
    }

    /// Applies an event to the record and has it saved.
    pub(super) fn save(&mut self, event: JobEvent, turn: &mut Turn<'_>) {
        let before = self.record.phase.name();
        let mail = self.before_mail();
        if let Err(illegal) = self.record.apply(&event) {
            // Checks above make this impossible; a release build loses one transition rather than the whole controller.
            debug_assert!(false, "{illegal}");
            tracing::error!(job_id = self.record.id.0, error = %illegal, "job.illegal_move");
            return;
        }
        let revises = matches!(event, JobEvent::Updated(_) | JobEvent::Revised(_) | JobEvent::BecameTask { .. });
        // A run has one of the QOS that the job waited with.
        if revises || self.shown_spec.qos != self.record.spec.qos {
            self.shown_spec = view::shown_spec(&self.record.spec);
        }
        tracing::debug!(
            job_id = self.record.id.0,
            from = before,
            to = self.record.phase.name(),
            cause = event.name(),
            "job.move"
        );
        self.tasks.note(&event);
        told::tell(&self.record, &event);
        self.touched = true;
        let saved_at = turn.out.len();
        self.mail_after(&event, mail, turn);
        let save = JobEffect::Save(ControllerEvent::Job { job: self.record.id, event: Box::new(event) });
        // Nobody is told before it is on disk.
        turn.out.insert(saved_at, save);
    }

    /// Applies an event that another owner recorded.
    pub(super) fn adopt(&mut self, event: &JobEvent) {
        if let Err(illegal) = self.record.apply(event) {
            debug_assert!(false, "{illegal}");
            tracing::error!(job_id = self.record.id.0, error = %illegal, "job.illegal_move");
        }
        self.touched = true;
    }

    /// True when the job is over.
    pub fn is_over(&self) -> bool {
        matches!(self.record.phase, Phase::Over(..))
    }

    pub(super) fn waits_or_works(&self) -> bool {
        !matches!(self.record.phase, Phase::Completing(..) | Phase::Over(..))
    }

    /// What other jobs are told about: only changes of this are sent.
    fn progress(&self) -> (bool, bool, u64) {
        (self.record.phase.run().is_some_and(|r| r.started.is_some()), self.is_over(), self.tasks.changes)
    }

    fn timer(&mut self, timer: JobTimer, turn: &mut Turn<'_>) {
        match timer {
            JobTimer::Eligible => {
                self.touched = true;
                self.ask_dependencies(turn);
                self.check_eligible(turn);
            }
            JobTimer::Deadline => self.deadline(turn),
            JobTimer::Leave => self.leave(turn),
            JobTimer::Immediate => self.gave_up_waiting(turn),
            JobTimer::Commit => {
                self.give_up_resuming(false, turn);
                if !self.het_still_waits(turn) {
                    self.abandon_commit(turn);
                }
            }
            JobTimer::Launch => self.launch_timed_out(turn),
            JobTimer::Missing => self.declare_lost(turn),
            JobTimer::CleanUp => self.clean_up(None, turn),
            JobTimer::Purge => self.purge(turn),
            JobTimer::News => self.exchange_news(turn),
            JobTimer::Mail => self.part_is_over(turn),
            JobTimer::Preempt => {
                self.end_preempted(turn);
                self.give_cpus(turn);
            }
        }
    }

    fn considered(&mut self, reason: Reason, expected: Option<Timestamp>, turn: &Turn<'_>) {
        if matches!(self.record.phase, Phase::Pending) {
            self.touched |= self.reason != reason || self.expected != expected;
            self.reason = reason;
            self.expected = expected;
            self.last_eval = Some(turn.now);
        }
    }

    /// The scheduler's calculation. A late one is corrected by the next.
    fn calculated(&mut self, priority: u32) {
        if self.site.multifactor && !self.record.terms.fixed && !self.is_over() {
            self.touched |= self.priority() != priority;
            self.calculated = Some(priority);
        }
    }

    /// The scheduler's decision since when it gains priority by age. What does not come about is decided again.
    fn accrues(&mut self, accrual: Accrual, reset: Option<Timestamp>, tasks: Option<u32>, turn: &mut Turn<'_>) {
        // One that was under way while somebody reset it is outdated.
        if !matches!(self.record.phase, Phase::Pending) || self.record.terms.reset != reset {
            return;
        }
        let waiting =
            self.record.array.as_ref().filter(|_| self.record.array_task.is_none()).map(|array| &array.pending);
        if let (Some(some), Some(waiting)) = (tasks, waiting)
            && (some as usize) < waiting.len()
        {
            // One of the tasks may be about to start.
            if self.commit.is_none() {
                let chosen: BTreeSet<u32> = waiting.iter().copied().take(some as usize).collect();
                self.split_for(&chosen, &JobInput::Accrues { accrual, reset, tasks: None }, turn);
            }
        } else if self.record.terms.accrual != accrual {
            self.save(JobEvent::Accrues(accrual), turn);
        }
    }

    /// A job that gains priority by age loses what it has gained (scontrol(1), `ResetAccrueTime`).
    pub(super) fn reset_accrual(&mut self, turn: &mut Turn<'_>) {
        if self.is_eligible(turn.now) && self.record.terms.accrual != Accrual::Waits {
            self.save(JobEvent::AccrualReset { at: turn.now }, turn);
        }
    }

    /// The priority, ignoring a hold.
    pub(super) fn priority(&self) -> u32 {
        self.calculated.filter(|_| !self.record.terms.fixed).unwrap_or(self.record.priority)
    }

    fn note_what_blocks(&mut self, now: Timestamp) {
        if !matches!(self.record.phase, Phase::Pending) {
            // The next run waits anew.
            self.blocked = Reason::None;
            return;
        }
        let reason = self.pending_reason(now);
        if reason.is_blocking() {
            self.blocked = reason;
        }
    }

    /// Why a pending job waits: its own reasons before the scheduler's.
    pub(super) fn pending_reason(&self, now: Timestamp) -> Reason {
        let record = &self.record;
        if let Some(by) = record.hold {
            by.reason()
        } else if record.dependency_failed {
            Reason::DependencyNeverSatisfied
        } else if !record.dependencies.list.is_empty() {
            Reason::Dependency
        } else if record.begin.is_some_and(|at| at > now) {
            Reason::BeginTime
        } else if !record.unfenced.is_empty() {
            Reason::Cleaning
        } else {
            self.reason.clone()
        }
    }

    /// Do only resources keep it waiting?
    pub(super) fn is_eligible(&self, now: Timestamp) -> bool {
        let record = &self.record;
        matches!(record.phase, Phase::Pending)
            && record.hold.is_none()
            && record.priority > 0
            && !record.dependency_failed
            && record.dependencies.list.is_empty()
            && record.begin.is_none_or(|at| at <= now)
            && record.unfenced.is_empty()
    }

    /// Notes the moment at which it became eligible, and that something else than resources keeps it waiting again; sets the timer
    /// for a begin time.
    pub(super) fn check_eligible(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.record.phase, Phase::Pending) {
            return;
        }
        if let Some(at) = self.record.begin.filter(|at| *at > turn.now) {
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::Eligible, at });
        }
        match (self.is_eligible(turn.now), self.record.eligible_time) {
            (true, None) => self.save(JobEvent::Eligible { at: turn.now }, turn),
            (false, Some(_)) => self.save(JobEvent::NotEligible, turn),
            _ => {}
        }
    }
}

impl Owner for JobCore {
    type Input = JobInput;
    type Timer = JobTimer;
    type Shown = JobShown;
    type Answer = JobAnswer;
    type Errand = JobErrand;

    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: JobInput, out: &mut Out<Self>) {
        Self::handle(self, now, ids, input, out);
    }

    fn timer(timer: JobTimer) -> JobInput {
        JobInput::Timer(timer)
    }
}

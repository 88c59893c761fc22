//! Submissions: judged, saved, answered; and the question whether and when a job would start.

use super::{
    admission::{Admitted, Identity, Rules, Submitter},
    env::{Saved, deliver, log_outcome},
    front::ControllerActor,
    messages::ControllerMsg,
    ports::ReplySink,
};
use crate::{
    job::{core::JobCore, messages::Authority, record::JobRecord, shell::JobsMsg},
    owner::{Letter, Owner, Stage, perform},
    scheduler::{
        probe::{WouldStart, declined, would_start, would_start_together},
        shell::{cluster_view, policy},
    },
    submission::core::{Judged, Room, Submission, SubmissionAnswer, SubmissionErrand, SubmissionInput, Submissions},
};
use garrick_model::{
    hostlist,
    ids::{JobId, RequestId, Sluid},
    messages::command::{Caller, CommandReply},
    refusal::Refusal,
    spec::{Dependency, DependencyKind, JobSpec},
    state::Reason,
    time::Timestamp,
    view::JobView,
};
use garrick_runtime::Context;
use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

/// How soon to ask again when others ask what would be.
const TOO_MANY_QUESTIONS: Duration = Duration::from_millis(500);

/// Who waits for answers about submissions.
pub struct Submitters {
    began: Instant,
    last: u64,
    waiting: BTreeMap<u64, Box<dyn ReplySink>>,
}

impl Default for Submitters {
    fn default() -> Self {
        Self { began: Instant::now(), last: 0, waiting: BTreeMap::new() }
    }
}

impl Submitters {
    fn clock(&self) -> Duration {
        self.began.elapsed()
    }

    fn put(&mut self, replies: Box<dyn ReplySink>) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, replies);
        self.last
    }
}

/// What the verbs of submissions come to in the front.
struct Live<'a> {
    front: &'a mut ControllerActor,
    cx: &'a mut Context<ControllerActor>,
    again: &'a mut VecDeque<SubmissionInput>,
}

impl Stage<Submissions> for Live<'_> {
    fn tell(&mut self, letter: Letter) {
        self.front.env.post(self.cx, letter);
    }

    fn run(&mut self, errand: SubmissionErrand) {
        let env = &self.front.env;
        let (request, done) = match errand {
            SubmissionErrand::Judge { request, id, submission } => {
                let judged = self.front.judge_submission(id, *submission);
                return self.again.push_back(SubmissionInput::Judged { request, id, judged });
            }
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

    fn set_timer(&mut self, timer: Infallible, _: Timestamp) {
        match timer {}
    }

    fn clear_timer(&mut self, timer: Infallible) {
        match timer {}
    }

    fn publish(&mut self, shown: Infallible) {
        match shown {}
    }

    fn answer(&mut self, request: u64, answer: SubmissionAnswer) {
        if let Some(mut replies) = self.front.submitters.waiting.remove(&request) {
            let submitted = |(job, warnings)| CommandReply::Submitted { job, warnings };
            replies.send(answer.map_or_else(CommandReply::Refused, submitted));
        }
    }

    fn stop(&mut self) {}
}

impl ControllerActor {
    pub(super) fn submit(
        &mut self,
        cx: &mut Context<Self>,
        id: RequestId,
        submission: Submission,
        replies: Box<dyn ReplySink>,
    ) {
        // Those on their way first: one that arrives meanwhile is counted twice, and not left out.
        let entering = self.env.entering.jobs();
        let config = self.env.config();
        let room = Room {
            known: entering + self.env.boards.jobs.len(),
            most: config.max_job_count,
            ids: (config.first_job_id, config.max_job_id),
        };
        let request = self.submitters.put(replies);
        let submission = Box::new(submission);
        self.told_of_submissions(cx, SubmissionInput::Asked { request, id, submission, room });
    }

    /// Takes over what a front that failed had under way. Submissions of jobs that are there are known, so that a repeat after
    /// a restart gets the first answer.
    pub(super) fn take_over_submissions(&mut self, cx: &mut Context<Self>) {
        let committed = &self.env.committed;
        let of = |job| Some((committed.look(job, |record| record.request).flatten()?, job));
        let answered = committed.jobs().into_iter().filter_map(of).collect();
        let entering = self.env.entering.requests();
        self.told_of_submissions(cx, SubmissionInput::Begun { answered, entering, clock: self.submitters.clock() });
    }

    /// The log has answered for a submission.
    pub(super) fn submission_settled(&mut self, cx: &mut Context<Self>, id: RequestId, result: Saved) {
        let jobs = self.env.entering.take(id).unwrap_or_default();
        self.told_of_submissions(cx, SubmissionInput::Settled { id, jobs, result, clock: self.submitters.clock() });
    }

    fn told_of_submissions(&mut self, cx: &mut Context<Self>, input: SubmissionInput) {
        let mut again = VecDeque::from([input]);
        while let Some(input) = again.pop_front() {
            let mut out = Vec::new();
            self.submissions.handle(Timestamp::now(), &mut self.env.ids.clone(), input, &mut out);
            perform(out, &mut Live { front: self, cx, again: &mut again });
        }
    }

    /// May it be taken?
    fn judge_submission(&mut self, id: RequestId, submission: Submission) -> Result<Box<Judged>, Refusal> {
        let Submission { caller, by, mut specs, heterogeneous } = submission;
        let now = Timestamp::now();
        let (records, warnings) = match specs.pop() {
            Some(spec) if !heterogeneous => {
                let job = self.env.ids.peek();
                let identity = Identity { job, sluid: Sluid(0), request: Some(id), submissions: 0 };
                let Admitted { record, warnings } = self.admit(&caller, by, spec, identity, now)?;
                (vec![record], warnings)
            }
            last => {
                specs.extend(last);
                self.judge_het(&caller, by, Some(id), specs, now)?
            }
        };
        let in_order = !self.env.config().multifactor();
        let held = || self.env.entering.bytes_of(caller.uid).saturating_add(self.env.committed.bytes_of(caller.uid));
        let held = (!by.admin).then(held);
        Ok(Box::new(Judged { records, warnings, heterogeneous, in_order, held }))
    }

    pub(super) fn admit(
        &mut self,
        caller: &Caller,
        by: Authority,
        spec: JobSpec,
        identity: Identity,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        let group = self.env.ports.users.group_name(caller.gid);
        let submitter = Submitter { caller, user: self.user_now(caller.uid)?, group, admin: by.admin };
        self.with_rules(now, |rules| rules.admit(&submitter, spec, identity))
    }

    /// What requests are judged by now.
    pub(super) fn with_rules<T>(&mut self, now: Timestamp, judge: impl FnOnce(&mut Rules<'_>) -> T) -> T {
        let env = Arc::clone(&self.env);
        let known_job = |job: JobId, task: Option<u32>| {
            let has_task = |record: &JobRecord, index| {
                record.array.is_some() && record.spec.array.as_ref().is_some_and(|array| array.contains(index))
            };
            env.committed.look(job, |record| task.is_none_or(|index| has_task(record, index))).unwrap_or(false)
        };
        let config = env.config();
        let partitions = env.boards.partitions.list();
        let priority = env.priority_rules().filter(|_| config.multifactor());
        let mut rules = Rules {
            config: &config,
            partitions: &partitions,
            feasibility: self.feasibility(),
            known_job: &known_job,
            reservation: &|name| env.boards.reservations.get(name),
            job_submit: &*env.ports.job_submit,
            priority: priority.as_deref(),
            now,
        };
        judge(&mut rules)
    }

    /// Says when a job would start. The plan for that is made on a thread of its own: nobody else waits for it.
    pub(super) fn test(&mut self, caller: &Caller, by: Authority, spec: JobSpec, mut replies: Box<dyn ReplySink>) {
        let now = Timestamp::now();
        let job = self.env.ids.peek();
        let identity = Identity { job, sluid: Sluid(u64::MAX), request: None, submissions: u64::from(u32::MAX) };
        let admitted = match self.admit(caller, by, spec, identity, now) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        self.say_when(vec![admitted.record], now, replies);
    }

    /// When all of these could start together, the leader first.
    pub(super) fn say_when(&self, records: Vec<JobRecord>, now: Timestamp, mut replies: Box<dyn ReplySink>) {
        if records.iter().any(|record| record.hold.is_some()) {
            replies.send(CommandReply::Refused(Refusal::JobHeld));
            return;
        }
        let Ok(turn) = Arc::clone(&self.questions).try_acquire_owned() else {
            replies.send(CommandReply::Refused(Refusal::RetryAfter { after: TOO_MANY_QUESTIONS }));
            return;
        };
        let mut at = records.iter().filter_map(|record| record.begin).fold(now, Timestamp::max);
        for record in &records {
            match self.fulfilled_at(record, now) {
                Ok(fulfilled) => at = at.max(fulfilled),
                Err(refusal) => {
                    replies.send(CommandReply::Refused(refusal));
                    return;
                }
            }
        }
        let view = |record| {
            let mut view = JobCore::new(record, self.env.job_site()).view(now);
            // One task of an array stands for all.
            view.array_pending = None;
            view
        };
        let views: Vec<JobView> = records.into_iter().map(view).collect();
        let env = Arc::clone(&self.env);
        tokio::task::spawn_blocking(move || {
            let cluster = cluster_view(policy(&env.config()), &env);
            let starts = match views.as_slice() {
                [alone] => would_start(&cluster, alone, at).map(|start| vec![start]),
                members => would_start_together(&cluster, members, at),
            };
            let refusal = || match declined(&cluster, &views, at) {
                Reason::PartitionDown | Reason::PartitionInactive => Refusal::PartitionUnavailable,
                Reason::PartitionTimeLimit => Refusal::InvalidTimeLimit,
                Reason::PartitionNodeLimit => Refusal::BadNodeCount,
                reason if reason.is_unavailable_nodes() => Refusal::NodesUnavailable,
                _ => Refusal::NodeConfigUnavailable { detail: None },
            };
            let answer = match (starts, views.first()) {
                (Some(starts), Some(first)) => told_when(first.id, &starts),
                _ => CommandReply::Refused(refusal()),
            };
            // Whoever has the answer may ask the next.
            drop(turn);
            replies.send(answer);
        });
    }
}

impl ControllerActor {
    /// When what a job depends on is over, by the time limits of those that run.
    fn fulfilled_at(&self, record: &JobRecord, now: Timestamp) -> Result<Timestamp, Refusal> {
        let all = &record.dependencies;
        let mut times = all.list.iter().map(|one| match one.job {
            // Whoever is depended on was there when the job was admitted.
            Some(on) => self.fulfilled_by(on, one, now).ok_or(Refusal::DependencyOpen(on)),
            None => {
                let siblings = self.env.committed.siblings(record);
                let ends = siblings.iter().map(|on| self.env.boards.jobs.get(on).and_then(|job| ends(&job)));
                let last = ends.collect::<Option<Vec<Timestamp>>>().ok_or(Refusal::SingletonOpen)?;
                Ok(last.into_iter().fold(now, Timestamp::max))
            }
        });
        if all.any && !all.list.is_empty() {
            let times: Vec<Result<Timestamp, Refusal>> = times.collect();
            let first = times.iter().filter_map(|time| time.as_ref().ok()).min().copied();
            return first.map_or_else(|| times.into_iter().next().unwrap_or(Ok(now)), Ok);
        }
        times.try_fold(now, |latest, time| time.map(|time| latest.max(time)))
    }

    fn fulfilled_by(&self, on: JobId, one: &Dependency, now: Timestamp) -> Option<Timestamp> {
        let job = self.env.boards.jobs.get(&on)?;
        let of_array = job.array_pending.is_some() || job.array_task.is_some() || one.array_index.is_some();
        if one.failed || of_array {
            return None;
        }
        match one.kind {
            DependencyKind::After { minutes } => {
                let began = job.start_time.filter(|_| !job.state.waits())?;
                Some(began.plus(Duration::from_secs(60 * u64::from(minutes))).max(now))
            }
            _ => Some(ends(&job)?.max(now)),
        }
    }
}

/// When a job that runs is over at the latest.
fn ends(job: &JobView) -> Option<Timestamp> {
    job.end_time.filter(|_| !job.state.waits())
}

fn told_when(job: JobId, starts: &[WouldStart]) -> CommandReply {
    let nodes = || starts.iter().flat_map(|start| &start.nodes);
    let mut names: Vec<&str> = nodes().map(|n| n.name.as_str()).collect();
    let mut partitions: Vec<&str> = Vec::new();
    for start in starts {
        if !partitions.contains(&start.partition.as_str()) {
            partitions.push(&start.partition);
        }
    }
    // Components may share a node.
    if starts.len() > 1 {
        names.sort_unstable();
        names.dedup();
    }
    CommandReply::WouldStart {
        job,
        at: starts.iter().map(|start| start.at).max().unwrap_or_default(),
        cpus: nodes().map(|n| n.share.cpus.len()).sum(),
        nodes: hostlist::fold(names),
        partition: partitions.join(","),
    }
}

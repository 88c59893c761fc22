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
    scheduler::{
        probe::{WouldStart, declined, would_start, would_start_together},
        shell::{cluster_view, policy},
    },
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
    sync::Arc,
    time::{Duration, Instant},
};

/// When the queue is full (MaxJobCount), try again after this.
const QUEUE_FULL: Duration = Duration::from_secs(5);

/// Bytes of scripts, environments and arguments of one user's jobs that the controller knows. With those of an ordinary login
/// (a few KB each) the default MaxJobCount is reached long before; administrators have no such limit.
const SHARE_OF_USER: u64 = 1 << 30;

/// When a front failed over a submission that the log had not taken, try again after this.
const NOT_TAKEN: Duration = Duration::from_secs(1);

/// How soon to ask again when others ask what would be.
const TOO_MANY_QUESTIONS: Duration = Duration::from_millis(500);

impl ControllerActor {
    pub(super) fn submit(
        &mut self,
        cx: &mut Context<Self>,
        caller: &Caller,
        by: Authority,
        request: RequestId,
        spec: JobSpec,
        replies: Box<dyn ReplySink>,
    ) {
        let Some(mut replies) = self.not_yet_answered(request, 1, replies) else { return };
        let now = Timestamp::now();
        let identity = Identity { job: self.env.ids.peek(), sluid: Sluid(0), request: Some(request), submissions: 0 };
        let mut admitted = match self.admit(caller, by, spec, identity, now) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        if let Err(refusal) = self.check_share(by, caller.uid, [&admitted.record]) {
            replies.send(CommandReply::Refused(refusal));
            return;
        }
        // Only what is accepted uses up ids.
        let job = self.env.ids.job();
        admitted.record.id = job;
        admitted.record.sluid = self.env.ids.sluid(now);
        self.put_in_order(&mut admitted.record);
        tracing::info!(job_id = job.0, uid = caller.uid, request_id = %request, "job.submitted");
        self.save(cx, request, vec![admitted.record], admitted.warnings, replies);
    }

    /// Has jobs saved that are submitted together; the first is the one that is answered.
    pub(super) fn save(
        &mut self,
        cx: &mut Context<Self>,
        request: RequestId,
        records: Vec<JobRecord>,
        warnings: Vec<String>,
        replies: Box<dyn ReplySink>,
    ) {
        self.saving.insert(request, vec![replies]);
        let done = self.env.offer_jobs(request, records, Timestamp::now());
        cx.pipe(done, move |answer| ControllerMsg::Submitted { request, warnings, result: log_outcome(answer) });
    }

    /// Takes over what a front that failed had under way: what was appended is answered for behind it.
    pub(super) fn take_over(&mut self, cx: &mut Context<Self>) {
        for request in self.env.entering.requests() {
            self.saving.entry(request).or_default();
            let done = self.env.append(Vec::new());
            cx.pipe(done, move |answer| ControllerMsg::Submitted {
                request,
                warnings: Vec::new(),
                result: log_outcome(answer),
            });
        }
    }

    /// A repeat of a submission gets the first answer; a queue without room for so many jobs more takes none. `None`: that
    /// has been said, or will be.
    pub(super) fn not_yet_answered(
        &mut self,
        request: RequestId,
        jobs: usize,
        mut replies: Box<dyn ReplySink>,
    ) -> Option<Box<dyn ReplySink>> {
        if let Some((job, warnings)) = self.answered.get(&request) {
            replies.send(CommandReply::Submitted { job: *job, warnings: warnings.clone() });
            return None;
        }
        if let Some(waiting) = self.saving.get_mut(&request) {
            waiting.push(replies);
            return None;
        }
        // Those on their way first: one that arrives meanwhile is counted twice, and not left out.
        let entering = self.env.entering.jobs();
        let known = entering + self.env.boards.jobs.len();
        let most = self.env.config().max_job_count;
        if known + jobs > most as usize {
            let limit = format!("the controller knows {known} jobs, and MaxJobCount of slurm.conf is {most}");
            replies.send(CommandReply::Refused(Refusal::Full { limit, after: QUEUE_FULL }));
            return None;
        }
        let (first, last) = (self.env.config().first_job_id, self.env.config().max_job_id);
        if known + jobs > (last.saturating_sub(first) as usize).saturating_add(1) {
            let limit = format!("the controller knows {known} jobs, and their ids are {first} to {last} (MaxJobId)");
            replies.send(CommandReply::Refused(Refusal::Full { limit, after: QUEUE_FULL }));
            return None;
        }
        Some(replies)
    }

    /// One user's scripts, environments and arguments must not take the memory of all: what his jobs that are known have
    /// of them, and these would have, is within his share.
    pub(super) fn check_share<'r>(
        &self,
        by: Authority,
        uid: u32,
        records: impl IntoIterator<Item = &'r JobRecord>,
    ) -> Result<(), Refusal> {
        let more: u64 = records.into_iter().map(|record| record.spec.work_bytes()).sum();
        let entering = self.env.entering.bytes_of(uid);
        let known = entering.saturating_add(self.env.committed.bytes_of(uid));
        if by.admin || known.saturating_add(more) <= SHARE_OF_USER {
            return Ok(());
        }
        let [known, more, most] = [known, more, SHARE_OF_USER].map(|bytes| bytes >> 20);
        let limit = format!(
            "scripts and environments of your jobs take {known} MiB, these {more} MiB more, and one user may have {most} MiB"
        );
        Err(Refusal::Full { limit, after: QUEUE_FULL })
    }

    /// Where priorities are not calculated, each submission gets one less than the one before.
    pub(super) fn put_in_order(&self, record: &mut JobRecord) {
        let before = u32::try_from(self.env.ids.submission()).unwrap_or(u32::MAX);
        let in_order = record.spec.priority.is_none() && !self.env.config().multifactor();
        if in_order && record.priority > 1 {
            record.priority = record.priority.saturating_sub(before).max(1);
        }
    }

    /// The log has answered for a submission.
    pub(super) fn submitted(
        &mut self,
        cx: &mut Context<Self>,
        request: RequestId,
        warnings: Vec<String>,
        result: Saved,
    ) {
        let waiting = self.saving.remove(&request).unwrap_or_default();
        let jobs = self.env.entering.take(request).unwrap_or_default();
        if let Some(supervisor) = self.env.jobs_supervisor() {
            for job in jobs.iter().copied() {
                deliver(cx, &supervisor, JobsMsg::Start { job, first: None });
            }
        }
        let reply = match (jobs.first().copied(), result) {
            (Some(job), _) => {
                self.answered.put(request, (job, warnings.clone()), Instant::now());
                CommandReply::Submitted { job, warnings }
            }
            // Taken over from a front that failed: why it was refused nobody knows any more, and nothing of it is there.
            (None, Ok(_)) => CommandReply::Refused(Refusal::RetryAfter { after: NOT_TAKEN }),
            (None, Err(error)) => {
                tracing::warn!(request_id = %request, %error, "job.not_saved");
                CommandReply::Refused(match error.retry_after() {
                    Some(after) => Refusal::RetryAfter { after },
                    None => Refusal::Internal(format!("the job could not be saved: {error}")),
                })
            }
        };
        for mut replies in waiting {
            replies.send(reply.clone());
        }
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

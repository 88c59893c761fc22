//! Submissions: judged, saved, answered; and the query whether and when a job would start.

use super::{
    core::{FrontendCore, Reply, Turn},
    messages::FrontendErrand,
    site_checks::Checked,
};
use crate::{
    job::core::JobCore,
    messages::job::Authority,
    owner::{Effect, Owner},
    submission::{
        admission::{Identity, Rules, Submitter},
        core::{Judged, Room, Submission, SubmissionErrand, SubmissionInput},
    },
};
use garrick_events::records::job::JobRecord;
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
use garrick_plan::{
    plan::probe::{WouldStart, declined, would_start, would_start_together},
    snapshot::facts::ClusterView,
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// When to ask again while too many such queries are in progress.
pub(super) const TOO_MANY_QUESTIONS: Duration = Duration::from_millis(500);

/// Most queries with a plan of their own that are answered at once.
const PLANS: usize = 2;

impl FrontendCore {
    pub(super) fn submit(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        id: RequestId,
        submission: Box<Submission>,
    ) -> Reply {
        // Submissions in progress first: one that is saved meanwhile is counted twice rather than missed.
        let entering = self.sight.entering().jobs();
        let config = self.sight.config();
        let room = Room {
            known: entering + self.sight.boards().jobs.len(),
            most: config.max_job_count,
            ids: (config.first_job_id, config.max_job_id),
        };
        self.told_of_submissions(turn, SubmissionInput::Asked { request, id, submission, room });
        Ok(None)
    }

    /// [`crate::submission`] decides about submissions; the frontend judges them and carries out its effects.
    pub(super) fn told_of_submissions(&mut self, turn: &mut Turn<'_>, input: SubmissionInput) {
        let mut again = VecDeque::from([input]);
        while let Some(input) = again.pop_front() {
            let mut out = Vec::new();
            self.submissions.handle(turn.now, turn.ids, input, &mut out);
            for effect in out {
                match effect {
                    Effect::Do(SubmissionErrand::Judge { request, id, submission }) => {
                        let said = submission.said.clone();
                        let judged = self.judge_submission(turn.now, id, *submission);
                        let judged = judged.map_err(|refusal| refusal.after(said));
                        again.push_back(SubmissionInput::Judged { request, id, judged });
                    }
                    Effect::Do(errand) => turn.run(FrontendErrand::Submission(errand)),
                    Effect::Answer { request, answer } => {
                        let Err(answer) = self.crontab_saved(turn, request, answer) else { continue };
                        let submitted = |(job, warnings)| CommandReply::Submitted { job, warnings };
                        turn.answer(request, answer.map_or_else(CommandReply::Refused, submitted));
                    }
                    Effect::Tell(letter) => turn.tell(letter),
                    Effect::Save(event) => turn.out.push(Effect::Save(event)),
                    Effect::SetTimer { timer, .. } | Effect::ClearTimer(timer) => match timer {},
                    Effect::Publish(shown) => match shown {},
                    Effect::Stop => {}
                }
            }
        }
    }

    /// Is the submission accepted?
    fn judge_submission(
        &mut self,
        now: Timestamp,
        id: RequestId,
        submission: Submission,
    ) -> Result<Box<Judged>, Refusal> {
        let Submission { caller, by, mut specs, heterogeneous, said } = submission;
        let records = match specs.pop() {
            Some(spec) if !heterogeneous && specs.is_empty() => {
                let job = self.sight.next_job();
                let identity = Identity { job, sluid: Sluid(0), request: Some(id), submissions: 0 };
                vec![self.admit(&caller, by, spec, identity, now)?]
            }
            last if !heterogeneous => {
                specs.extend(last);
                self.judge_together(&caller, by, id, specs, now)?
            }
            last => {
                specs.extend(last);
                self.judge_het(&caller, by, Some(id), specs, now)?
            }
        };
        self.check_submit_limits(&records)?;
        let in_order = !self.sight.config().multifactor();
        let held =
            || self.sight.entering().bytes_of(caller.uid).saturating_add(self.sight.committed().bytes_of(caller.uid));
        let held = (!by.admin).then(held);
        Ok(Box::new(Judged { records, warnings: said, heterogeneous, in_order, held }))
    }

    pub(super) fn admit(
        &mut self,
        caller: &Caller,
        by: Authority,
        spec: JobSpec,
        identity: Identity,
        now: Timestamp,
    ) -> Result<JobRecord, Refusal> {
        let group = self.sight.users().group_name(caller.gid);
        let submitter = Submitter { caller, user: self.user_now(caller.uid)?, group, admin: by.admin };
        self.with_rules(now, |rules| rules.admit(&submitter, spec, identity))
    }

    /// The rules by which requests are judged now.
    pub(super) fn with_rules<T>(&mut self, now: Timestamp, judge: impl FnOnce(&mut Rules<'_>) -> T) -> T {
        let sight = Arc::clone(&self.sight);
        let known_job = |job: JobId, task: Option<u32>| {
            let has_task = |record: &JobRecord, index| {
                record.array.is_some() && record.spec.array.as_ref().is_some_and(|array| array.contains(index))
            };
            let known = |record: &JobRecord| task.is_none_or(|index| has_task(record, index));
            sight.committed().look(job, known).unwrap_or(false)
        };
        let config = sight.config();
        let partitions = sight.boards().partitions.list();
        let priority = sight.priority_rules().filter(|_| config.multifactor());
        let accounting = sight.accounting();
        let mut rules = Rules {
            accounting: &accounting,
            config: &config,
            partitions: &partitions,
            feasibility: self.feasibility(),
            known_job: &known_job,
            reservation: &|name| sight.boards().reservations.get(name),
            licenses: &|name| sight.license_totals().get(name).copied().unwrap_or(0),
            priority: priority.as_deref(),
            now,
        };
        judge(&mut rules)
    }

    /// Computes when a job would start.
    pub(super) fn test(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: &Caller,
        by: Authority,
        spec: JobSpec,
        checked: Checked,
    ) -> Reply {
        let job = self.sight.next_job();
        let identity = Identity { job, sluid: Sluid(u64::MAX), request: None, submissions: u64::from(u32::MAX) };
        let record = self.admit(caller, by, spec, identity, turn.now)?;
        self.say_when(turn, request, vec![record], checked)
    }

    /// Computes when all of these could start together, the leader first.
    pub(super) fn say_when(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        records: Vec<JobRecord>,
        checked: Checked,
    ) -> Reply {
        if records.iter().any(|record| record.hold.is_some()) {
            return Err(Refusal::JobHeld);
        }
        if self.plans >= PLANS {
            return Err(Refusal::RetryAfter { after: TOO_MANY_QUESTIONS });
        }
        let now = turn.now;
        let mut at = records.iter().filter_map(|record| record.begin).fold(now, Timestamp::max);
        for record in &records {
            at = at.max(self.fulfilled_at(record, now)?);
        }
        let view = |record| {
            let mut view = JobCore::new(record, self.sight.job_site()).view(now);
            // One task represents the array.
            view.array_pending = None;
            view
        };
        let jobs = records.into_iter().map(view).collect();
        self.plans += 1;
        turn.run(FrontendErrand::When { request, jobs, at, said: checked.said });
        Ok(None)
    }

    /// When a job's dependencies are fulfilled, assuming that running jobs use their time limits.
    fn fulfilled_at(&self, record: &JobRecord, now: Timestamp) -> Result<Timestamp, Refusal> {
        let all = &record.dependencies;
        let mut times = all.list.iter().map(|one| match one.job {
            // The jobs that it depends on existed when it was admitted.
            Some(on) => self.fulfilled_by(on, one, now).ok_or(Refusal::DependencyOpen(on)),
            None => {
                let siblings = self.sight.committed().siblings(record);
                let ends = siblings.iter().map(|on| self.sight.boards().jobs.get(on).and_then(|job| ends(&job)));
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
        let job = self.sight.boards().jobs.get(&on)?;
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

/// When a running job is over at the latest.
fn ends(job: &JobView) -> Option<Timestamp> {
    job.end_time.filter(|_| !job.state.waits())
}

/// When jobs would start together in this cluster, not before that time.
pub(super) fn when(cluster: &ClusterView, jobs: &[JobView], at: Timestamp) -> CommandReply {
    let starts = match jobs {
        [alone] => would_start(cluster, alone, at).map(|start| vec![start]),
        members => would_start_together(cluster, members, at),
    };
    let refusal = || match declined(cluster, jobs, at) {
        Reason::PartitionDown | Reason::PartitionInactive => Refusal::PartitionUnavailable,
        Reason::PartitionTimeLimit => Refusal::InvalidTimeLimit,
        reason if reason.is_unavailable_nodes() => Refusal::NodesUnavailable,
        _ => Refusal::NodeConfigUnavailable { detail: None },
    };
    match (starts, jobs.first()) {
        (Some(starts), Some(first)) => told_when(first.id, &starts),
        _ => CommandReply::Refused(refusal()),
    }
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

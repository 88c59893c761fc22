//! The course of submissions. A job exists when the log says so. A refused submission leaves nothing, except that ids are lost if
//! the log refused it.

use crate::{
    log::Saved,
    messages::job::Authority,
    owner::{Effect, FreshIds, Out, Owner},
};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    ids::{JobId, RequestId},
    messages::command::Caller,
    refusal::Refusal,
    spec::JobSpec,
    time::Timestamp,
};
use garrick_runtime::Answered;
use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

/// How many first answers are remembered: a retry comes within seconds, or within hours if a command was stopped and continued.
const ANSWERS: usize = 100_000;
const ANSWER_AGE: Duration = Duration::from_secs(24 * 3600);

/// When the queue is full (MaxJobCount), try again after this.
const QUEUE_FULL: Duration = Duration::from_secs(5);

/// Most bytes of scripts, environments and arguments of one user's jobs. With those of an ordinary login (a few KB each) the
/// default MaxJobCount is reached long before; administrators have no such limit.
const SHARE_OF_USER: u64 = 1 << 30;

/// When a frontend failed over a submission that the log had not accepted, try again after this.
const NOT_TAKEN: Duration = Duration::from_secs(1);

/// A submission.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The submitter.
    pub caller: Caller,
    /// The submitter's rights.
    pub by: Authority,
    /// One job, the components of a heterogeneous one, the leader first, or all jobs of a crontab.
    pub specs: Vec<JobSpec>,
    /// It is heterogeneous, however many components it has.
    pub heterogeneous: bool,
    /// What the site's own checks say to the user.
    pub said: Vec<String>,
}

/// How much room there is for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Known jobs, including those that are being saved.
    pub known: usize,
    /// `MaxJobCount`.
    pub most: u32,
    /// `FirstJobId` and `MaxJobId`.
    pub ids: (u32, u32),
}

impl Room {
    fn check(&self, more: usize) -> Result<(), Refusal> {
        let Self { known, most, ids: (first, last) } = *self;
        let full = |limit| Err(Refusal::Full { limit, after: QUEUE_FULL });
        if known + more > most as usize {
            return full(format!("the controller knows {known} jobs, and MaxJobCount of slurm.conf is {most}"));
        }
        if known + more > (last.saturating_sub(first) as usize).saturating_add(1) {
            return full(format!("the controller knows {known} jobs, and their ids are {first} to {last} (MaxJobId)"));
        }
        Ok(())
    }
}

/// An accepted submission.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Records without ids and runs, as [`Submission::specs`].
    pub records: Vec<JobRecord>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// They are components of one job.
    pub heterogeneous: bool,
    /// Priorities depend on the order of submissions: they are not calculated.
    pub in_order: bool,
    /// Bytes of scripts, environments and arguments of this user's known jobs; `None`: no limit.
    pub held: Option<u64>,
}

impl Judged {
    /// Checks that one user's scripts, environments and arguments do not use up the memory: those of his known jobs and of these
    /// must be within his share.
    fn check_share(&self) -> Result<(), Refusal> {
        let more: u64 = self.records.iter().map(|record| record.spec.work_bytes()).sum();
        let Some(held) = self.held.filter(|held| held.saturating_add(more) > SHARE_OF_USER) else { return Ok(()) };
        let [held, more, most] = [held, more, SHARE_OF_USER].map(|bytes| bytes >> 20);
        let limit = format!(
            "scripts and environments of your jobs take {held} MiB, these {more} MiB more, and one user may have {most} MiB"
        );
        Err(Refusal::Full { limit, after: QUEUE_FULL })
    }
}

/// Inputs about submissions.
#[derive(Clone, Debug)]
pub enum SubmissionInput {
    /// The actor's life begins.
    Begun {
        /// Submissions whose jobs exist.
        answered: Vec<(RequestId, JobId)>,
        /// Submissions of an earlier life that are in progress.
        entering: Vec<RequestId>,
        /// Monotonic time from an arbitrary start.
        clock: Duration,
    },
    /// Somebody submits.
    Asked {
        /// The request.
        request: u64,
        /// Submission.
        id: RequestId,
        /// The submission.
        submission: Box<Submission>,
        /// The available room.
        room: Room,
    },
    /// Answer to [`SubmissionErrand::Judge`].
    Judged {
        /// The request.
        request: u64,
        /// Submission.
        id: RequestId,
        /// The result.
        judged: Result<Box<Judged>, Refusal>,
    },
    /// The log has answered for a submission.
    Settled {
        /// Submission.
        id: RequestId,
        /// Those of its jobs that exist now; the one that the reply names comes first.
        jobs: Vec<JobId>,
        /// The log's answer.
        result: Saved,
        /// Monotonic time from an arbitrary start.
        clock: Duration,
    },
}

/// Errands of submissions.
#[derive(Clone, Debug)]
pub enum SubmissionErrand {
    /// Judge one.
    Judge {
        /// The request.
        request: u64,
        /// Submission.
        id: RequestId,
        /// The submission.
        submission: Box<Submission>,
    },
    /// Offer jobs to the log: all of them are saved, or none.
    Offer {
        /// Submission.
        id: RequestId,
        /// Jobs.
        records: Vec<JobRecord>,
    },
    /// Ask for the log's answer to a submission that an earlier life had offered, after all that was appended.
    Hear(RequestId),
    /// Have a job's owner started.
    Begin(JobId),
}

/// The first job of a submission, and warnings for the user.
pub type SubmissionAnswer = Result<(JobId, Vec<String>), Refusal>;

/// A submission that is being saved.
#[derive(Debug, Default)]
struct Saving {
    waiting: Vec<u64>,
    warnings: Vec<String>,
}

/// The submissions.
#[derive(Debug)]
pub struct Submissions {
    answered: Answered<RequestId, (JobId, Vec<String>)>,
    saving: HashMap<RequestId, Saving>,
}

impl Default for Submissions {
    fn default() -> Self {
        Self { answered: Answered::new(ANSWERS, ANSWER_AGE), saving: HashMap::new() }
    }
}

impl Submissions {
    fn asked(&mut self, (request, id): (u64, RequestId), submission: Box<Submission>, room: Room, out: &mut Out<Self>) {
        if let Some(first) = self.answered.get(&id) {
            out.push(Effect::Answer { request, answer: Ok(first.clone()) });
        } else if let Some(saving) = self.saving.get_mut(&id) {
            saving.waiting.push(request);
        } else if let Err(full) = room.check(submission.specs.len()) {
            out.push(Effect::Answer { request, answer: Err(full) });
        } else {
            out.push(Effect::Do(SubmissionErrand::Judge { request, id, submission }));
        }
    }

    fn judged(
        &mut self,
        now: Timestamp,
        ids: &mut dyn FreshIds,
        (request, id): (u64, RequestId),
        judged: Result<Box<Judged>, Refusal>,
        out: &mut Out<Self>,
    ) {
        let named = judged.and_then(|judged| {
            judged.check_share()?;
            named(now, ids, *judged)
        });
        match named {
            Err(refusal) => out.push(Effect::Answer { request, answer: Err(refusal) }),
            Ok((records, warnings)) => {
                let (job, jobs, uid) = (records[0].id.0, records.len(), records[0].owner.uid);
                match jobs {
                    1 => tracing::info!(job_id = job, uid, request_id = %id, "job.submitted"),
                    components => tracing::info!(job_id = job, components, uid, request_id = %id, "job.submitted"),
                }
                self.saving.insert(id, Saving { waiting: vec![request], warnings });
                out.push(Effect::Do(SubmissionErrand::Offer { id, records }));
            }
        }
    }

    fn settled(&mut self, clock: Duration, id: RequestId, jobs: &[JobId], result: Saved, out: &mut Out<Self>) {
        let Saving { waiting, warnings } = self.saving.remove(&id).unwrap_or_default();
        out.extend(jobs.iter().map(|job| Effect::Do(SubmissionErrand::Begin(*job))));
        let answer = match (jobs.first(), result) {
            (Some(job), _) => {
                self.answered.put(id, (*job, warnings.clone()), clock);
                Ok((*job, warnings))
            }
            // Taken over from a failed life: the cause of the refusal is lost, and no job exists.
            (None, Ok(_)) => Err(Refusal::RetryAfter { after: NOT_TAKEN }),
            (None, Err(error)) => {
                tracing::warn!(request_id = %id, %error, "job.not_saved");
                Err(match error.retry_after() {
                    Some(after) => Refusal::RetryAfter { after },
                    None => Refusal::Internal(format!("the job could not be saved: {error}")),
                })
            }
        };
        out.extend(waiting.into_iter().map(|request| Effect::Answer { request, answer: answer.clone() }));
    }
}

/// Gives jobs their ids and runs, in order. Only accepted submissions use up ids.
fn named(now: Timestamp, ids: &mut dyn FreshIds, judged: Judged) -> Result<(Vec<JobRecord>, Vec<String>), Refusal> {
    let Judged { mut records, warnings, heterogeneous, in_order, .. } = judged;
    let size = u32::try_from(records.len()).unwrap_or(u32::MAX);
    let first = match size {
        0 => return Err(Refusal::Internal("a submission of no job".to_owned())),
        1 => ids.job(),
        _ => {
            let no_ids = || Refusal::Internal("there are not so many job ids in a row".to_owned());
            ids.jobs(size).ok_or_else(no_ids)?
        }
    };
    for (offset, record) in (0..size).zip(&mut records) {
        record.id = JobId(first.0.saturating_add(offset));
        record.sluid = ids.sluid(now);
        if heterogeneous {
            join(record, first, offset, size);
        }
        // If priorities are not calculated, each submission gets one less than the one before.
        let before = u32::try_from(ids.submission()).unwrap_or(u32::MAX);
        if in_order && record.spec.priority.is_none() && record.priority > 1 {
            record.priority = record.priority.saturating_sub(before).max(1);
        }
    }
    Ok((records, warnings))
}

/// Makes a record a component of a heterogeneous job.
pub fn join(record: &mut JobRecord, leader: JobId, offset: u32, size: u32) {
    record.id = JobId(leader.0.saturating_add(offset));
    let spec = Arc::make_mut(&mut record.spec);
    spec.het = Some((leader, offset));
    spec.het_size = size;
}

impl Owner for Submissions {
    type Input = SubmissionInput;
    type Timer = Infallible;
    type Shown = Infallible;
    type Answer = SubmissionAnswer;
    type Errand = SubmissionErrand;

    fn handle(&mut self, now: Timestamp, ids: &mut dyn FreshIds, input: SubmissionInput, out: &mut Out<Self>) {
        match input {
            SubmissionInput::Begun { answered, entering, clock } => {
                for (id, job) in answered {
                    self.answered.put(id, (job, Vec::new()), clock);
                }
                for id in entering {
                    self.saving.entry(id).or_default();
                    out.push(Effect::Do(SubmissionErrand::Hear(id)));
                }
            }
            SubmissionInput::Asked { request, id, submission, room } => {
                self.asked((request, id), submission, room, out);
            }
            SubmissionInput::Judged { request, id, judged } => self.judged(now, ids, (request, id), judged, out),
            SubmissionInput::Settled { id, jobs, result, clock } => self.settled(clock, id, &jobs, result, out),
        }
    }

    fn timer(timer: Infallible) -> SubmissionInput {
        match timer {}
    }
}

//! Users who submit, and the core that answers them. A command without an answer repeats its request with the same id, and from
//! time to time so does one with an answer; if the log accepts nothing new, submitters try again.

use super::{
    disk::{Offered, Writer},
    mutation::Mutation,
    world::{Happening, Place, World},
};
use garrick_actors::{
    controller::shells::entering::{Entering, Entrant},
    job::core::JobCore,
    log::AppendError,
    messages::{job::Authority, letter::Letter},
    owner::{Owner, Stage, perform},
    submission::{
        admission::Identity,
        core::{Judged, Room, Submission, SubmissionAnswer, SubmissionErrand, SubmissionInput, Submissions},
    },
};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::{job::JobRecord, job_event::JobEvent},
};
use garrick_model::{
    ids::{JobId, RequestId, Sluid},
    messages::command::Caller,
    refusal::Refusal,
    spec::JobSpec,
    time::Timestamp,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    sync::Arc,
};

/// Thousandths of submissions before which somebody repeats one that was answered.
const REPEATS: u32 = 50;

/// Thousandths of submissions before which the frontend fails.
const FRONT_FAILS: u32 = 10;

/// So many answers are remembered by those who got them.
const REMEMBERED: usize = 32;

/// Who submits, and who answers.
#[derive(Default)]
pub(super) struct Submitting {
    core: Submissions,
    /// Outlives the core's lives, and not the controller's.
    entering: Entering,
    /// Jobs that are saved, until their owners begin.
    saved: BTreeMap<JobId, JobRecord>,
    /// Of the core.
    life: u64,
    commands: u64,
    /// What each submission is: by whom, and the components.
    open: BTreeMap<RequestId, (u32, Vec<JobSpec>)>,
    asked: u64,
    /// Who waits for an answer.
    waiting: BTreeMap<u64, RequestId>,
    /// To be asked again.
    again: Vec<RequestId>,
    /// The latest answers, with what was submitted.
    answered: VecDeque<(RequestId, JobId, u32, Vec<JobSpec>)>,
}

impl Submitting {
    /// Is it saved, or about to be, and without an owner yet?
    pub(super) fn is_entering(&self, job: JobId) -> bool {
        self.saved.contains_key(&job)
    }

    /// Unanswered submissions: their commands ask again.
    fn lose_answers(&mut self) -> bool {
        let lost: BTreeSet<RequestId> = std::mem::take(&mut self.waiting).into_values().collect();
        let lost: Vec<RequestId> = lost.into_iter().filter(|id| !self.again.contains(id)).collect();
        self.again.extend(&lost);
        !lost.is_empty()
    }
}

impl World {
    /// One submission, and the next one a little later.
    pub(super) fn submit_some(&mut self) {
        if self.submitted >= self.setup().jobs && self.submissions.again.is_empty() {
            self.submitting = false;
            return;
        }
        if !self.is_calm() && self.random.one_in_thousand(FRONT_FAILS) {
            self.frontend_fails();
        }
        if self.random.one_in_thousand(REPEATS) {
            self.repeat_some();
        }
        let id = self.submissions.again.pop().unwrap_or_else(|| {
            let uid = self.random.between(1001, 1004);
            let together = self.random.one_in_thousand(self.mix.heterogeneous);
            let specs = if together { self.some_components() } else { vec![self.some_spec()] };
            self.submissions.commands += 1;
            let id = RequestId(0, self.submissions.commands);
            self.submissions.open.insert(id, (uid, specs));
            id
        });
        self.ask_to_submit(id);
        let pause = self.random.between(100, self.mix.submit_ms);
        self.after(u64::from(pause), Happening::Submit);
    }

    /// A command whose answer was lost on its way.
    fn repeat_some(&mut self) {
        let last = u32::try_from(self.submissions.answered.len()).unwrap_or(0);
        if last == 0 {
            return;
        }
        let which = self.random.between(0, last - 1) as usize;
        let answered = self.submissions.answered.get(which).cloned();
        // A controller that starts again knows those whose jobs it knows.
        if let Some((id, _, uid, specs)) = answered.filter(|(_, job, ..)| self.replayed.jobs.contains_key(job)) {
            self.ledger.counts.add("submission repeated");
            self.submissions.open.insert(id, (uid, specs));
            self.ask_to_submit(id);
        }
    }

    fn ask_to_submit(&mut self, id: RequestId) {
        let Some((uid, specs)) = self.submissions.open.get(&id).cloned() else { return };
        self.submissions.asked += 1;
        let request = self.submissions.asked;
        self.submissions.waiting.insert(request, id);
        let caller = Caller { uid, gid: uid, pid: 1, host: "login".to_owned() };
        let by = Authority { uid, admin: false };
        let heterogeneous = specs.len() > 1;
        let submission = Box::new(Submission { caller, by, specs, heterogeneous, said: Vec::new() });
        let known = self.submissions.entering.jobs() + self.shown_jobs.len();
        let ids = (self.config.first_job_id, self.config.max_job_id);
        let room = Room { known, most: self.config.max_job_count, ids };
        self.tell_submissions(SubmissionInput::Asked { request, id, submission, room });
    }

    fn tell_submissions(&mut self, input: SubmissionInput) {
        let mut again = VecDeque::from([input]);
        while let Some(input) = again.pop_front() {
            let (mut out, clock) = (Vec::new(), self.clock());
            self.submissions.core.handle(clock, &mut self.ids.clone(), input, &mut out);
            perform(out, &mut SubmissionStage(self, &mut again));
        }
    }

    /// Begins a life of the core. Its earlier lives' submissions are answered for; whoever waited for them asks again.
    fn frontend_fails(&mut self) {
        self.ledger.counts.add("frontend failed");
        self.begin_submissions();
    }

    fn begin_submissions(&mut self) {
        self.submissions.core = Submissions::default();
        self.submissions.life += 1;
        if self.submissions.lose_answers() && !std::mem::replace(&mut self.submitting, true) {
            self.after(1_000, Happening::Submit);
        }
        let of = |(job, record): (&JobId, &JobRecord)| Some((record.request?, *job));
        let there = |(_, job): &(RequestId, JobId)| self.saved.jobs.contains_key(job);
        let mut answered: Vec<(RequestId, JobId)> = self.replayed.jobs.iter().filter_map(of).filter(there).collect();
        if self.has(Mutation::FrontendsForgetTheirAnswers) {
            answered.clear();
        }
        let entering = self.submissions.entering.requests();
        self.tell_submissions(SubmissionInput::Begun { answered, entering, clock: self.passed() });
    }

    /// The controller is another one. What was being saved is there or not.
    pub(super) fn start_submissions(&mut self) {
        self.submissions.entering = Entering::default();
        self.submissions.saved.clear();
        self.begin_submissions();
    }

    /// A write of the frontend's is over.
    pub(super) fn submission_is_on_disk(&mut self, id: RequestId, life: u64, events: Vec<ControllerEvent>) {
        for event in events {
            if let ControllerEvent::Job { job, event } = event
                && let JobEvent::Submitted(record) = *event
            {
                self.submissions.saved.insert(job, *record);
            }
        }
        self.submissions.entering.settle(id, true, |_| {});
        self.send(Place::Disk, Happening::SubmissionSaved(id, life));
    }

    /// The frontend hears of it.
    pub(super) fn submission_is_saved(&mut self, id: RequestId, life: u64) {
        if life != self.submissions.life {
            return;
        }
        let jobs = self.submissions.entering.take(id).unwrap_or_default();
        jobs.iter().for_each(|job| self.promises.job(*job));
        self.tell_submissions(SubmissionInput::Settled { id, jobs, result: Ok(Position(1)), clock: self.passed() });
    }

    /// Judged by the same rules as the controller's frontend, without ids.
    fn judge_submission(&mut self, id: RequestId, submission: Submission) -> Result<Box<Judged>, Refusal> {
        let Submission { caller, specs, heterogeneous, .. } = submission;
        let mut records = Vec::with_capacity(specs.len());
        for (offset, spec) in specs.into_iter().enumerate() {
            let submissions = u64::from(self.submitted);
            let request = (offset == 0).then_some(id);
            let identity = Identity { job: self.ids.peek(), sluid: Sluid(0), request, submissions };
            records.push(self.with_rules(caller.uid, |rules, by| rules.admit(by, spec, identity))?);
        }
        Ok(Box::new(Judged { records, warnings: Vec::new(), heterogeneous, in_order: false, held: Some(0) }))
    }

    /// Has the log save a job, or all components of one.
    fn offer_submission(&mut self, id: RequestId, records: &[JobRecord]) -> Result<(), AppendError> {
        let refused = match self.disk.offer(self.now, self.is_calm()) {
            Offered::Taken => None,
            Offered::Refused(why) => Some(why),
            Offered::Lost(why) => {
                // The next leader continues from what is saved.
                let pause = self.random.between(0, 3_000);
                self.after(u64::from(pause), Happening::Crash);
                self.ledger.counts.add("lead lost");
                Some(why)
            }
        };
        let kept = refused.is_none() || self.has(Mutation::SubmissionsAreKeptThoughRefused);
        if kept {
            let now = self.clock();
            let entrant = |record: &JobRecord| -> Entrant {
                (record.clone(), Arc::new(JobCore::new(record.clone(), Arc::default()).view(now)))
            };
            self.submissions.entering.begin(id, records.iter().map(entrant).collect());
            self.save_submission(id, records);
        }
        match refused {
            None => Ok(()),
            Some(why) => {
                self.against_what_is_left(records);
                Err(why)
            }
        }
    }

    fn save_submission(&mut self, id: RequestId, records: &[JobRecord]) {
        let events: Vec<ControllerEvent> = records.iter().map(submitted).collect();
        let one_by_one = self.has(Mutation::ComponentsAreAcceptedOneByOne);
        for write in events.chunks(if one_by_one { 1 } else { events.len().max(1) }) {
            self.append(Writer::Frontend(id), self.submissions.life, write.to_vec());
        }
        if records.len() > 1 {
            self.ledger.counts.add("heterogeneous job");
            self.may_crash_soon();
        }
    }

    /// The log refused these.
    fn against_what_is_left(&mut self, records: &[JobRecord]) {
        let there = |job: &JobId| {
            self.jobs.contains_key(job) || self.ledger.jobs.contains_key(job) || self.replayed.jobs.contains_key(job)
        };
        if let Some(job) = records.iter().map(|record| record.id).find(|job| there(job) || self.disk.is_entering(*job))
        {
            self.broken =
                Some(("a_submission_that_is_refused_leaves_nothing_behind", format!("job {} is there", job.0)));
        }
    }

    /// A command has its answer.
    fn submission_is_answered(&mut self, id: RequestId, answer: SubmissionAnswer) {
        match answer {
            Ok((job, _)) => {
                let Some((uid, specs)) = self.submissions.open.remove(&id) else { return };
                let earlier = self.submissions.answered.iter().find(|(known, ..)| *known == id);
                match earlier.map(|(_, first, ..)| *first) {
                    Some(first) if first != job => {
                        let what = format!("request {} was job {} and is job {} now", id.1, first.0, job.0);
                        self.broken = Some(("a_submission_that_is_repeated_gets_the_first_answer", what));
                    }
                    Some(_) => self.ledger.counts.add("repeated submission answered"),
                    None => {
                        self.submitted += 1;
                        if self.submissions.answered.len() >= REMEMBERED {
                            self.submissions.answered.pop_front();
                        }
                        self.submissions.answered.push_back((id, job, uid, specs));
                    }
                }
            }
            Err(refusal) => {
                self.tell(&format!("  refused: {refusal:?}"));
                if matches!(refusal, Refusal::RetryAfter { .. } | Refusal::Full { .. }) {
                    self.ledger.counts.add("submission turned away");
                    self.submissions.again.push(id);
                } else {
                    self.submissions.open.remove(&id);
                }
            }
        }
    }
}

/// What the verbs of submissions come to.
struct SubmissionStage<'w>(&'w mut World, &'w mut VecDeque<SubmissionInput>);

impl Stage<Submissions> for SubmissionStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.post(Place::Frontend, letter);
    }

    fn run(&mut self, errand: SubmissionErrand) {
        let Self(world, again) = self;
        match errand {
            SubmissionErrand::Judge { request, id, submission } => {
                let judged = world.judge_submission(id, *submission);
                again.push_back(SubmissionInput::Judged { request, id, judged });
            }
            SubmissionErrand::Offer { id, records } => {
                if let Err(why) = world.offer_submission(id, &records) {
                    again.push_back(SubmissionInput::Settled {
                        id,
                        jobs: Vec::new(),
                        result: Err(why),
                        clock: world.passed(),
                    });
                }
            }
            SubmissionErrand::Hear(id) => world.append(Writer::Frontend(id), world.submissions.life, Vec::new()),
            SubmissionErrand::Begin(job) => {
                if let Some(record) = world.submissions.saved.remove(&job) {
                    world.start_job(record);
                }
            }
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

    fn answer(&mut self, request: u64, answer: SubmissionAnswer) {
        if let Some(id) = self.0.submissions.waiting.remove(&request) {
            self.0.submission_is_answered(id, answer);
        }
    }

    fn stop(&mut self) {}
}

fn submitted(record: &JobRecord) -> ControllerEvent {
    ControllerEvent::Job { job: record.id, event: Box::new(JobEvent::Submitted(Box::new(record.clone()))) }
}

//! Mail about a job (`--mail-type`, `MailProg`): which of its events its user is told about, and in which words. Called whenever an
//! event is applied, and when so much of the time limit is over.
//!
//! At most once: the program runs after the event is on disk, and nothing is repeated when the owner is rebuilt. What happens in the
//! moment in which the controller dies is told to nobody, and so is a part of a time limit that passes while there is no controller.

use super::{
    core::{JobCore, Turn},
    effects::{JobEffect, JobErrand},
    programs::text,
};
use crate::messages::job::JobTimer;
use garrick_events::records::{
    job::{Afterwards, ArrayRecord, End, Phase, TaskOutcome},
    job_event::JobEvent,
};
use garrick_model::{
    mail::MailType,
    messages::command::JobChange,
    site_program::{Moment, SiteProgram, variable},
    state::{ExitStatus, JobState},
    time::{Timestamp, long_duration},
};
use std::time::Duration;

/// Longest that MailProg may run. Slurm names no limit; this is that of HealthCheckProgram.
const LIMIT: Duration = Duration::from_secs(60);

/// Parts of the time limit that users may be told of, the first first.
const PARTS: [MailType; 4] = [MailType::TimeLimit50, MailType::TimeLimit80, MailType::TimeLimit90, MailType::TimeLimit];

/// What mail depends on, as it was before an event.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// A task of the array has started.
    began: bool,
    /// All of the array is over.
    over: bool,
    /// What it depends on never happens.
    impossible: bool,
    /// How long its run has lasted, if it has ended.
    ran: String,
}

/// A mail's occasion: the word for it in the subject, and what follows that.
struct Occasion {
    /// The word of the subject that `SLURM_JOB_MAIL_TYPE` repeats.
    word: &'static str,
    /// What follows it.
    rest: String,
    /// Variables that only such mail has.
    variables: Vec<(String, String)>,
}

impl JobCore {
    /// Mail is to be sent about it. Of a heterogeneous job, the leader's.
    fn has_mail(&self) -> bool {
        !self.record.spec.mail.types.is_empty() && self.record.spec.het_leader_of_component().is_none()
    }

    fn wants(&self, kind: MailType) -> bool {
        self.record.spec.mail.types.has(kind)
    }

    /// It is an array, or a task of one, of which the user is told as a whole.
    fn is_told_as_array(&self) -> bool {
        let part = self.record.array.is_some() || self.record.array_task.is_some();
        part && !self.wants(MailType::ArrayTasks)
    }

    /// To be called before an event is applied, for [`Self::mail_after`]. `None`: there is no mail.
    pub(super) fn before_mail(&self) -> Option<Before> {
        let ran = || self.record.phase.end().map_or_else(String::new, |end| self.run_time(end.at));
        self.has_mail().then(|| Before {
            began: self.array_began(),
            over: self.array_over(),
            impossible: self.record.dependency_failed,
            ran: ran(),
        })
    }

    fn array_began(&self) -> bool {
        let own = self.record.array_task.is_some() && self.record.phase.run().is_some();
        self.record.array.as_ref().is_some_and(|array| own || array.tasks.values().any(|mark| mark.started.is_some()))
    }

    fn array_over(&self) -> bool {
        let others = |array: &ArrayRecord| array.tasks.values().all(|mark| mark.over.is_some());
        let own = self.record.phase.end().is_some_and(|end| end.then == Afterwards::Over);
        own && self.record.array.as_ref().is_some_and(others)
    }

    /// Sends what an event calls for, after it was applied.
    pub(super) fn mail_after(&mut self, event: &JobEvent, before: Option<Before>, turn: &mut Turn<'_>) {
        let Some(before) = before else { return };
        match event {
            JobEvent::Allocated(run) => {
                self.parts_told = run.start;
                self.await_part(turn);
            }
            JobEvent::Ended(end) if end.state == JobState::Timeout => self.mail_parts(Timestamp(i64::MAX), turn),
            JobEvent::LimitChanged(_) | JobEvent::Resumed | JobEvent::Continued { .. } | JobEvent::Updated(_) => {
                self.await_part(turn);
            }
            _ => {}
        }
        if self.record.dependency_failed && !before.impossible && self.wants(MailType::InvalidDepend) {
            let occasion = Occasion { word: "Invalid dependency", rest: String::new(), variables: Vec::new() };
            self.send_mail(occasion, turn);
        }
        if self.is_told_as_array() {
            self.mail_of_array(event, &before, turn);
        } else {
            self.mail_of_job(event, before.ran, turn);
        }
    }

    fn mail_of_job(&self, event: &JobEvent, ran: String, turn: &mut Turn<'_>) {
        match event {
            JobEvent::Allocated(run) if self.wants(MailType::Begin) => {
                let since = self.record.eligible_time.unwrap_or(self.record.submit_time);
                let queued = long_duration(run.start.since(since).as_secs());
                let variables = vec![variable("SLURM_JOB_QUEUED_TIME", &queued)];
                self.send_mail(Occasion { word: "Began", rest: format!(", Queued time {queued}"), variables }, turn);
            }
            JobEvent::Ended(end) if matches!(end.then, Afterwards::Over | Afterwards::ExpediteIfEpilogFails) => {
                if let Some(word) = self.end_word(end.state) {
                    self.send_mail(self.of_end(word, end), turn);
                }
            }
            JobEvent::Requeued { .. } if self.wants(MailType::Requeue) => {
                let (rest, variables) = (format!(", Run time {ran}"), vec![variable("SLURM_JOB_RUN_TIME", ran)]);
                self.send_mail(Occasion { word: "Requeued", rest, variables }, turn);
            }
            _ => {}
        }
    }

    /// Of the array as a whole: when its first task begins, and when nothing of it is left.
    fn mail_of_array(&self, event: &JobEvent, before: &Before, turn: &mut Turn<'_>) {
        // A task that was cancelled while it waited began and ended at once.
        let never_ran = matches!(event, JobEvent::TaskNews { over: Some(_), .. });
        if self.wants(MailType::Begin) && !before.began && !never_ran && self.array_began() {
            self.send_mail(Occasion { word: "Began", rest: String::new(), variables: Vec::new() }, turn);
        }
        let over = !before.over && self.array_over();
        let Some(end) = self.record.phase.end().filter(|_| over) else { return };
        let (exits, state) = (self.array_exits(end), end.state);
        // As in Slurm, an array whose tasks were killed has not failed.
        let failed = exits.iter().any(|exit| exit.code > 0);
        let state = match (failed, state) {
            (true, JobState::Completed) => JobState::Failed,
            (false, _) => JobState::Completed,
            (true, state) => state,
        };
        if let Some(word) = self.end_word(state) {
            self.send_mail(self.of_array_end(word, &exits, end), turn);
        }
    }

    /// The word for such an end, if mail is wanted for it.
    fn end_word(&self, state: JobState) -> Option<&'static str> {
        let failed = !matches!(state, JobState::Completed | JobState::Cancelled);
        match (failed && self.wants(MailType::Fail), self.wants(MailType::End)) {
            (true, _) => Some("Failed"),
            (false, true) => Some("Ended"),
            (false, false) => None,
        }
    }

    fn run_time(&self, end: Timestamp) -> String {
        let run = self.record.phase.run();
        let ran = run.map_or(Duration::ZERO, |run| end.since(run.start).saturating_sub(run.stood()));
        long_duration(ran.as_secs())
    }

    fn of_end(&self, word: &'static str, end: &End) -> Occasion {
        let ran = self.run_time(end.at);
        let code = match end.exit.signal {
            None => format!(", ExitCode {}", end.exit.code),
            Some(_) => String::new(),
        };
        let rest = format!(", Run time {ran}, {}{code}", end.state.word());
        let variables = vec![variable("SLURM_JOB_RUN_TIME", ran), variable("SLURM_JOB_EXIT_CODE_MAX", end.exit.code)];
        Occasion { word, rest, variables }
    }

    /// The exits of an array's tasks, as far as they are known. One that was cancelled counts as killed, as in Slurm.
    fn array_exits(&self, end: &End) -> Vec<ExitStatus> {
        let killed = |exit: ExitStatus, cancelled: bool| match cancelled && exit.success() {
            true => ExitStatus { signal: Some(9), ..exit },
            false => exit,
        };
        let marks = self.record.array.iter().flat_map(|array| array.tasks.values());
        let tasks = marks.filter_map(|mark| Some(killed(mark.exit?, mark.over == Some(TaskOutcome::NotOk))));
        tasks.chain([killed(end.exit, end.state == JobState::Cancelled)]).collect()
    }

    /// One word for all where all ended alike, and the bounds of what they ended with.
    fn of_array_end(&self, word: &'static str, exits: &[ExitStatus], end: &End) -> Occasion {
        let codes = || exits.iter().map(|exit| exit.code);
        let (least, most) = (codes().min().unwrap_or(0), codes().max().unwrap_or(0));
        let signal = exits.iter().filter_map(|exit| exit.signal).max();
        let mut variables = vec![variable("SLURM_JOB_RUN_TIME", self.run_time(end.at))];
        let rest = match (signal, least, most) {
            (Some(signal), _, 0) => {
                variables.push(variable("SLURM_JOB_TERM_SIGNAL_MAX", signal));
                return Occasion { word, rest: format!(", Mixed, MaxSignal [{signal}]"), variables };
            }
            (Some(_), _, most) => format!(", Mixed, MaxExitCode [{most}]"),
            (None, 0, 0) => ", COMPLETED, ExitCode [0-0]".to_owned(),
            (None, 0, most) => format!(", Mixed, ExitCode [0-{most}]"),
            (None, least, most) => format!(", FAILED, ExitCode [{least}-{most}]"),
        };
        variables.push(variable("SLURM_JOB_EXIT_CODE_MAX", most));
        if signal.is_none() {
            variables.push(variable("SLURM_JOB_EXIT_CODE_MIN", least));
        }
        Occasion { word, rest, variables }
    }

    /// When that part of the run's time is or was over.
    fn part_at(&self, kind: MailType) -> Option<Timestamp> {
        let run = self.record.phase.run()?;
        let (percent, limit) = (kind.percent()?, run.time_limit.duration()?);
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).saturating_mul(percent) / 100;
        Some(run.start.plus(Duration::from_millis(millis) + run.stood()))
    }

    /// Mail is sent about parts of its time limit.
    fn has_mail_of_parts(&self) -> bool {
        self.has_mail() && !self.is_told_as_array() && PARTS.iter().any(|kind| self.wants(*kind))
    }

    /// Sets the timer for the next part of the time limit that the user is to be told of.
    pub(super) fn await_part(&self, turn: &mut Turn<'_>) {
        let works = matches!(self.record.phase, Phase::Starting(_) | Phase::Running(_));
        if !works || !self.has_mail_of_parts() {
            return;
        }
        let wanted = PARTS.into_iter().filter(|kind| self.wants(*kind));
        let next = wanted.filter_map(|kind| self.part_at(kind)).filter(|at| *at > self.parts_told).min();
        turn.out.push(match next {
            Some(at) => JobEffect::SetTimer { timer: JobTimer::Mail, at },
            None => JobEffect::ClearTimer(JobTimer::Mail),
        });
    }

    /// The timer ran out.
    pub(super) fn part_is_over(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.record.phase, Phase::Starting(_) | Phase::Running(_)) {
            self.mail_parts(turn.now, turn);
            self.await_part(turn);
        }
    }

    /// Tells of all parts of the time limit that are over at `until` and were not told.
    fn mail_parts(&mut self, until: Timestamp, turn: &mut Turn<'_>) {
        for kind in PARTS {
            let wanted = self.has_mail_of_parts() && self.wants(kind);
            let Some(at) = self.part_at(kind).filter(|_| wanted) else { continue };
            if at <= self.parts_told || at > until {
                continue;
            }
            self.parts_told = at;
            let ran = self.run_time(turn.now);
            let variables = vec![variable("SLURM_JOB_RUN_TIME", &ran)];
            let (word, rest) = (part_words(kind), format!(", Run time {ran}"));
            self.send_mail(Occasion { word, rest, variables }, turn);
        }
    }

    /// Nobody in a change means the job's own user, as at submission. As in Slurm, MailDomain is added to no other name here.
    pub(super) fn complete_address(&self, change: &mut JobChange) {
        if let Some(user) = change.mail_user.as_mut().filter(|user| user.is_empty()) {
            let domain = self.site.programs.mail_domain.as_deref();
            *user = garrick_model::mail::address(None, &self.record.owner.user, domain);
        }
    }

    fn send_mail(&self, occasion: Occasion, turn: &mut Turn<'_>) {
        let record = &self.record;
        let mail = &record.spec.mail;
        let Occasion { word, rest, variables } = occasion;
        let subject = format!("{}{word}{rest}", self.subject());
        // Whatever a job is called, its mail has one line of subject.
        let subject: String = subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let owner = &record.owner.user;
        let address = mail.user.as_deref().unwrap_or(owner);
        let mut environment = self.environment(turn.now);
        environment.push(variable("SLURM_JOB_STATE", self.base_state().word()));
        environment.push(text("SLURM_JOB_MAIL_TYPE", word));
        environment.extend(variables);
        let program = SiteProgram {
            moment: Moment::Mail,
            programs: vec![self.site.programs.mail.clone()],
            arguments: vec!["-s".to_owned(), subject, address.to_owned()],
            environment,
            limit: Some(LIMIT),
        };
        turn.out.push(JobEffect::Do(JobErrand::Mail(Box::new(program))));
    }

    /// The beginning of the subject, which names the job.
    fn subject(&self) -> String {
        let record = &self.record;
        let (id, name) = (record.id.0, &record.spec.name);
        match record.array_task {
            _ if self.is_told_as_array() && record.array.is_some() => {
                format!("Slurm Array Summary Job_id={id}_* ({id}) Name={name} ")
            }
            Some(task) => format!("Slurm Array Task Job_id={}_{} ({id}) Name={name} ", task.array_job.0, task.index),
            None => format!("Slurm Job_id={id} Name={name} "),
        }
    }

    /// Its state without what happens beside it.
    fn base_state(&self) -> JobState {
        match &self.record.phase {
            Phase::Pending => JobState::Pending,
            Phase::Starting(_) | Phase::Running(_) => JobState::Running,
            Phase::Suspended(_) => JobState::Suspended,
            Phase::Completing(_, end) | Phase::Over(_, end) => end.state,
        }
    }
}

/// The words for a part of the time limit.
fn part_words(kind: MailType) -> &'static str {
    match kind {
        MailType::TimeLimit50 => "Reached 50% of time limit",
        MailType::TimeLimit80 => "Reached 80% of time limit",
        MailType::TimeLimit90 => "Reached 90% of time limit",
        _ => "Reached time limit",
    }
}

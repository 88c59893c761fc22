//! Jobs of crontabs: each run is followed by another, at the next time that the crontab names (scrontab(1)).

use super::core::{JobCore, Turn};
use crate::{
    messages::crontab::CrontabInput,
    messages::{job::JobCommand, letter::Letter},
};
use garrick_events::records::{
    job::{Afterwards, Ending, Phase},
    job_event::JobEvent,
};
use garrick_model::{
    refusal::Refusal,
    state::{JobState, Reason},
    time::Timestamp,
};

impl JobCore {
    /// What follows a run that nothing else follows.
    pub(super) fn after_work(&self) -> Afterwards {
        if self.record.schedule().is_some() { Afterwards::Recur } else { Afterwards::Over }
    }

    /// When it may start again: not before `begin`, and where it belongs to a crontab, when that says so.
    pub(super) fn due_after(&self, begin: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let after = begin.unwrap_or(now).max(now);
        // A time that was found once is found again.
        self.record.schedule().and_then(|schedule| schedule.next(after, &self.site.zone)).or(begin)
    }

    /// A crontab is changed as a whole, with `scrontab`. Only a job that is held, after failures for instance, may be released.
    pub(super) fn cron_refuses(&self, command: &JobCommand) -> Result<(), Refusal> {
        let changes = match command {
            JobCommand::Update(_) | JobCommand::Revise(_) | JobCommand::Hold { .. } => true,
            JobCommand::Release => self.record.hold.is_none(),
            _ => false,
        };
        if changes && self.record.schedule().is_some() { Err(Refusal::CronJob) } else { Ok(()) }
    }

    /// Its crontab was replaced or removed: a run goes on, and none follows it. From the owner of crontabs.
    pub(super) fn leave_crontab(&mut self, turn: &mut Turn<'_>) {
        if self.record.schedule().is_none() {
            return;
        }
        self.save(JobEvent::LeftCrontab, turn);
        match &self.record.phase {
            Phase::Pending => {
                let _ = self.cancel(JobState::Cancelled, None, turn);
            }
            Phase::Completing(_, end) if end.then == Afterwards::Recur => {
                let (state, reason, at) = (end.state, Reason::None, Some(turn.now));
                let ending = Ending { state, reason, then: Afterwards::Over, by: None, at, unasked: false };
                self.save(JobEvent::Ending(ending), turn);
            }
            _ => {}
        }
    }

    /// It is over although it belongs to a crontab: it was cancelled, or could not run. Its lines become comments, so whoever
    /// requeues it later has an ordinary job.
    pub(super) fn leave_for_good(&mut self, turn: &mut Turn<'_>) {
        if self.record.schedule().is_some() {
            self.save(JobEvent::LeftCrontab, turn);
            let (uid, job) = (self.record.owner.uid, self.record.id);
            turn.tell(Letter::Crontabs(CrontabInput::Over { uid, job }));
        }
    }
}

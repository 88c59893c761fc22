//! What jobs need to know about each other, and why no message is lost for good.
//!
//! A message between two jobs is lost if the owner that was to send or receive it fails over that very message, or failed so
//! often that there is none for a minute. So no owner relies on having been told, and none remembers what it has sent. An owner
//! that needs to know something about another job asks: in the first turn of each life, when the other's owner is rebuilt, and
//! every few minutes as long as it needs to know. The answer is the current content of the other's record. All messages may come
//! twice.
//!
//! | message | to | asked for again by |
//! |---|---|---|
//! | `Fact` | a dependent job, or a later singleton | [`JobInput::Subscribe`]: by that job, and by the supervisor of jobs |
//! | `TellWatchers` | an array's record, from itself | nobody: who has not heard of something asks |
//! | `Fact` | the array, from a split task | `Subscribe`: by the array; a task that is over repeats it until that is noted |
//! | `Fact`: end noted, or job unknown | a task or component about to be forgotten | `Subscribe`, each minute |
//! | `End`, `Back`, `GiveWay`, `SetRequeue` | a component, from its leader | `Subscribe`: by a component that is not over |
//! | `Started`, `Ended` | the leader, from a component | `Ask`: by a leader whose run goes on |
//! | `Prepare` | a component, from its leader | not repeated: the leader gives up, and the scheduler proposes again |
//! | `Declined` | the leader, from a component | not repeated either |
//! | `Granted`, `Abandon` | a component that prepared its part | `Prepared`, each ten seconds |
//! | `Granted`, `NotGranted` | a component that may have done so in an earlier life | `Lost`, each ten seconds |
//!
//! The supervisor of jobs asks for waiting jobs when the other job's owner is new. A leader also repeats its orders as long as it
//! is not over. A task is kept until its array has noted its end.
//!
//! The record of a task that is split off an array contains all that the task was told before. What a leader records for others
//! belongs to them from then on, whether they were told or not: their next owners start with it.
//!
//! [`JobInput::Subscribe`]: crate::messages::job::JobInput::Subscribe

use super::{
    core::{JobCore, Turn},
    effects::JobEffect,
};
use crate::messages::job::{JobInput, JobTimer};
use garrick_events::records::job::Phase;
use std::time::Duration;

/// The time after which it asks again, a little longer for some, so that not all ask at once.
const ASK_AGAIN: Duration = Duration::from_secs(240);
const SPREAD_SECS: u32 = 120;

impl JobCore {
    /// Sets the timer if news of other jobs is needed.
    pub(super) fn await_news(&mut self, turn: &mut Turn<'_>) {
        if !self.awaits_news && self.needs_news() {
            self.awaits_news = true;
            let later = Duration::from_secs(u64::from(self.record.id.0 % SPREAD_SECS));
            turn.out.push(JobEffect::SetTimer { timer: JobTimer::News, at: turn.now.plus(ASK_AGAIN + later) });
        }
    }

    fn needs_news(&self) -> bool {
        self.waits_for_others()
            || self.live_tasks().next().is_some()
            || (self.record.spec.het.is_some() && !self.is_over())
    }

    fn waits_for_others(&self) -> bool {
        let record = &self.record;
        matches!(record.phase, Phase::Pending) && !record.dependencies.list.is_empty() && !record.dependency_failed
    }

    /// Asks for and repeats what may have been lost.
    pub(super) fn exchange_news(&mut self, turn: &mut Turn<'_>) {
        self.awaits_news = false;
        if self.waits_for_others() {
            self.ask_dependencies(turn);
            let siblings = self.siblings.iter().flatten();
            siblings.for_each(|job| turn.tell_job(*job, JobInput::Subscribe { by: self.record.id }));
        }
        self.ask_tasks(turn);
        self.het_exchange(turn);
    }
}

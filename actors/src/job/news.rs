//! What jobs need to know of each other, and why none of it is lost for good.
//!
//! A word between two jobs is lost with the owner that was to say it or to hear it: one that failed over that very message,
//! or that failed so often that there is none for a minute. So no owner relies on having been told, and none remembers what it
//! has said. Who needs to know something of another job asks for it: in the first turn of each life of its owner, when the
//! other's owner is built anew, and every few minutes as long as it needs to know. The answer is what the other's record has
//! then. All words may come twice.
//!
//! | what is said | to whom | asked for again by |
//! |---|---|---|
//! | `Fact` | who depends on the job, or is a singleton behind it | [`JobInput::Subscribe`]: by who waits, and for it by the supervisor of jobs when the other's owner is new |
//! | `Fact` | the array, of a task with a record of its own | `Subscribe`: by the array; a task that is over says it again until that is noted, and is kept so long |
//! | `Fact` that the end is noted, or that the other is not known | a task or a component that would be forgotten | `Subscribe`, each minute |
//! | `End`, `Back`, `GiveWay`, `SetRequeue` | a component, by its leader | `Subscribe`: by a component that is not over; and the leader says what holds as long as it is not over |
//! | `Started`, `Ended` | the leader, by a component | `Ask`: by a leader whose run goes on |
//! | `Prepare` | a component, by its leader | nobody: the leader gives the attempt up, and the scheduler proposes the next |
//! | `Declined` | the leader, by a component | the same |
//! | `Granted`, `Abandon` | a component that prepared its part | `Prepared`, each ten seconds |
//! | `Granted`, `NotGranted` | a component that may have done so in an earlier life | `Lost`, each ten seconds |
//!
//! The record of a task that is split off an array says all that the task was told before: that is saved with it. What a leader
//! records for others is theirs from then on, whether they have heard of it or not: their next owners start with it.
//!
//! [`JobInput::Subscribe`]: crate::messages::job::JobInput::Subscribe

use super::{
    core::{JobCore, Turn},
    effects::JobEffect,
};
use crate::messages::job::{JobInput, JobTimer};
use garrick_events::records::job::Phase;
use std::time::Duration;

/// After so long it asks again, and a little later for some, so that not all ask at once.
const ASK_AGAIN: Duration = Duration::from_secs(240);
const SPREAD_SECS: u32 = 120;

impl JobCore {
    /// Sets the timer where news of other jobs is needed.
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

    /// Time has passed: what may have been lost is asked for, and said, again.
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

//! Repeats a repeatable request until it is answered, with growing pauses and some jitter, so that a thousand commands that were
//! refused together do not come back together. The delay is reported once.

use crate::{
    Asker,
    cluster::{Answer, Cluster, ClusterError},
    search::{NoWay, Until},
};
use garrick_frame::DoorError;
use garrick_model::{
    ids::RequestId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};
use std::time::{Duration, Instant};

/// First pause where the daemon names none.
pub const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Most attempts of a request that a busy controller turns away (Slurm's commands give up after 15).
const ATTEMPTS: u32 = 15;
/// Most attempts after a lost connection: the daemon may just be restarting, but a dead one is to be reported within
/// seconds.
const ATTEMPTS_WHEN_LOST: u32 = 2;

/// Longest pause between two looks for a step manager that is away: whoever waits for it is on its host, or asks it through one
/// daemon, and wants to be there soon after it.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// How long nobody at all may answer, neither step manager nor agent nor controller, before that is taken for the end: what a
/// controller waits for a silent node (SlurmdTimeout's default) until it gives the runs there up.
pub const SILENCE: Duration = Duration::from_secs(300);

/// What others say of a run whose step manager does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It goes on.
    GoesOn,
    /// It goes on, and its step manager is started again.
    StartsAgain,
    /// Nothing is said.
    Silence,
}

/// A step manager that is away, until something is heard of it again. As long as its run lives there is no end to that; only
/// where nobody answers there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Absence {
    looks: u32,
    silent_since: Option<Instant>,
}

impl Absence {
    /// It was looked for in vain, and others said that. The pause before the next look; `None`: it is not coming back.
    pub fn again(&mut self, word: Word, now: Instant, random: u64) -> Option<Duration> {
        self.looks = self.looks.saturating_add(1);
        self.silent_since = (word == Word::Silence).then(|| self.silent_since.unwrap_or(now));
        if self.silent_since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE) {
            return None;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.looks - 1).min(6)).min(LONGEST_LOOK);
        Some(jittered(pause, random))
    }

    /// Looks in vain, in a row.
    pub const fn looks(&self) -> u32 {
        self.looks
    }
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after this long.
    Pause(Duration),
    /// Give up.
    GiveUp,
}

/// Decides about attempt number `attempt` (from 1), which failed so. `random` decides the jitter.
pub fn after(error: &ClusterError, attempt: u32, random: u64) -> Next {
    let (pause, attempts) = match error {
        ClusterError::Refused(Refusal::RetryAfter { after } | Refusal::Full { after, .. }) => {
            ((*after).max(FIRST_PAUSE), ATTEMPTS)
        }
        // One that does not answer in time is not asked for as long again.
        ClusterError::Door(DoorError::Timeout { .. }) => return Next::GiveUp,
        ClusterError::Door(_) if error.is_passing() => (FIRST_PAUSE, ATTEMPTS_WHEN_LOST),
        _ => return Next::GiveUp,
    };
    if attempt >= attempts {
        return Next::GiveUp;
    }
    Next::Pause(jittered(pause.saturating_mul(1 << (attempt - 1).min(6)).min(LONGEST_PAUSE), random))
}

/// Between one and one and a half times `pause`.
pub fn jittered(pause: Duration, random: u64) -> Duration {
    let thousandths = u32::try_from(random % 500).unwrap_or(0);
    pause + pause * thousandths / 1000
}

/// Random bits.
pub fn random() -> u64 {
    RequestId::random().0
}

/// Asks until answered. Only for requests that are safe to repeat.
pub fn ask(cluster: &Cluster, asker: &dyn Asker, request: &CommandRequest) -> Answer<CommandReply> {
    ask_until(cluster, asker, request, Until::default()).map_err(NoWay::into_error)
}

/// The same until a signal comes or the command's time is up, which end the pauses as well as the waiting for an answer.
pub fn ask_until(
    cluster: &Cluster,
    asker: &dyn Asker,
    request: &CommandRequest,
    until: Until<'_>,
) -> Result<CommandReply, NoWay> {
    let mut attempt = 1;
    loop {
        let (whom, program, question) = (cluster.clone(), asker.program().to_owned(), request.clone());
        let error = match until.apart(move || whom.ask(&program, &question))? {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        match after(&error, attempt, random()) {
            Next::GiveUp => return Err(NoWay::Failed(error)),
            Next::Pause(pause) => {
                if attempt == 1 {
                    asker.info(&format_args!("{error}; retrying"));
                }
                until.pause(pause)?;
                attempt += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn busy(millis: u64) -> ClusterError {
        Refusal::RetryAfter { after: Duration::from_millis(millis) }.into()
    }

    #[test]
    fn a_busy_controller_is_asked_again_with_growing_pauses() {
        assert_eq!(after(&busy(400), 1, 0), Next::Pause(Duration::from_millis(400)));
        assert_eq!(after(&busy(400), 2, 0), Next::Pause(Duration::from_millis(800)));
        assert_eq!(after(&busy(400), 14, 0), Next::Pause(LONGEST_PAUSE));
        assert_eq!(after(&busy(400), 15, 0), Next::GiveUp);
        let full = Refusal::Full { limit: "MaxJobCount is 10".into(), after: Duration::from_millis(400) }.into();
        assert_eq!(after(&full, 1, 0), Next::Pause(Duration::from_millis(400)));
        assert_eq!(after(&busy(0), 1, 0), Next::Pause(FIRST_PAUSE));
    }

    #[test]
    fn a_refusal_is_final() {
        assert_eq!(after(&Refusal::AccessDenied.into(), 1, 0), Next::GiveUp);
        let dead = ClusterError::NoDaemon { conf: "/etc/slurm.conf".into(), tried: vec![] };
        assert_eq!(after(&dead, 1, 0), Next::GiveUp);
    }

    #[test]
    fn a_lost_answer_is_asked_for_once_more_and_a_late_one_is_not() {
        let lost = DoorError::Closed { path: "/run/ctl.sock".into() };
        assert_eq!(after(&lost.into(), 1, 0), Next::Pause(FIRST_PAUSE));
        let lost = DoorError::Closed { path: "/run/ctl.sock".into() };
        assert_eq!(after(&lost.into(), 2, 0), Next::GiveUp);
        let late = DoorError::Timeout {
            path: "/run/ctl.sock".into(),
            after: Duration::from_secs(10),
            doing: "waiting for an answer",
        };
        assert_eq!(after(&late.into(), 1, 0), Next::GiveUp);
    }

    #[test]
    fn a_step_manager_is_waited_for_as_long_as_its_run_lives() {
        let (mut away, begin) = (Absence::default(), Instant::now());
        let mut pauses = Vec::new();
        for look in 0..10_000_u32 {
            let word = if look % 2 == 0 { Word::GoesOn } else { Word::StartsAgain };
            pauses.push(away.again(word, begin + Duration::from_secs(60) * look, 0).unwrap());
        }
        assert_eq!(pauses[..4], [250, 500, 1000, 2000].map(Duration::from_millis));
        assert!(pauses[4..].iter().all(|pause| *pause == LONGEST_LOOK));
    }

    #[test]
    fn where_nobody_answers_patience_has_an_end_that_every_word_puts_off() {
        let (mut away, begin) = (Absence::default(), Instant::now());
        assert!(away.again(Word::Silence, begin, 0).is_some());
        assert!(away.again(Word::Silence, begin + SILENCE - Duration::from_secs(1), 0).is_some());
        assert!(away.again(Word::GoesOn, begin + SILENCE, 0).is_some());
        let silent = begin + SILENCE * 2;
        assert!(away.again(Word::Silence, silent, 0).is_some());
        assert!(away.again(Word::Silence, silent + SILENCE - Duration::from_secs(1), 0).is_some());
        assert_eq!(away.again(Word::Silence, silent + SILENCE, 0), None);
    }

    #[test]
    fn jitter_only_lengthens() {
        let pause = Duration::from_secs(1);
        for random in [0, 1, 250, 499, u64::MAX] {
            let jittered = jittered(pause, random);
            assert!(jittered >= pause && jittered < pause * 3 / 2);
        }
    }
}

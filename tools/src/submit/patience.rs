//! Asking again: a request that may be repeated is sent until it is answered, with growing pauses and some jitter, so that
//! a thousand commands that were turned away together do not come back together. That it takes longer is said once.

use crate::{
    cluster::{Answer, Cluster, ClusterError},
    output::Console,
};
use garrick_frame::DoorError;
use garrick_model::{
    ids::RequestId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};
use std::time::{Duration, Instant};

/// First pause where the daemon names none.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Most attempts of a request that a busy controller turns away (Slurm's commands give up after 15).
const ATTEMPTS: u32 = 15;
/// Most attempts after a lost connection: the daemon may just be restarting, but a dead one is to be reported within
/// seconds.
const ATTEMPTS_WHEN_LOST: u32 = 2;

/// Tries to reach a step manager again that was there before.
const TRIES_WHEN_LOST: u32 = 6;
/// The last of them begins within this time, however long the others took.
const LOOKED_FOR_WHEN_LOST: Duration = Duration::from_secs(20);

/// Contact with a step manager that was lost, until something is heard of it again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    times: u32,
    since: Option<Instant>,
}

impl Lost {
    /// Once more: the pause before the next look.
    pub fn again(&mut self) -> Option<Duration> {
        self.times += 1;
        when_lost(self.times, self.since.get_or_insert_with(Instant::now).elapsed(), random())
    }

    /// It is lost.
    pub const fn is_so(&self) -> bool {
        self.times > 0
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
        ClusterError::Refused(Refusal::RetryAfter { after }) => ((*after).max(FIRST_PAUSE), ATTEMPTS),
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

/// Pause before a step manager that was lost `looked` ago is looked for, the `lost`-th time in a row; `None`: it is not coming
/// back. Some fifteen seconds in all, in which one that was killed is there again.
fn when_lost(lost: u32, looked: Duration, random: u64) -> Option<Duration> {
    (lost <= TRIES_WHEN_LOST && looked < LOOKED_FOR_WHEN_LOST)
        .then(|| jittered(FIRST_PAUSE.saturating_mul(1 << lost.saturating_sub(1)), random))
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
pub fn ask(cluster: &Cluster, console: &Console, request: &CommandRequest) -> Answer<CommandReply> {
    let mut attempt = 1;
    loop {
        let error = match cluster.ask(console.program(), request) {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        match after(&error, attempt, random()) {
            Next::GiveUp => return Err(error),
            Next::Pause(pause) => {
                if attempt == 1 {
                    console.info(format_args!("{error}; retrying"));
                }
                std::thread::sleep(pause);
                attempt += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn a_lost_step_manager_has_some_seconds_to_come_back() {
        let pauses: Vec<Duration> = (1..).map_while(|lost| when_lost(lost, Duration::ZERO, 0)).collect();
        assert_eq!((pauses.len(), pauses[0]), (6, FIRST_PAUSE));
        let all: Duration = pauses.iter().sum();
        assert!(all > Duration::from_secs(10) && all < Duration::from_secs(20), "{all:?}");
    }

    #[test]
    fn looks_that_take_long_do_not_make_it_more_time() {
        assert_eq!(when_lost(2, Duration::from_secs(20), 0), None);
        assert!(when_lost(2, Duration::from_secs(19), 0).is_some());
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

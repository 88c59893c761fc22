//! How the effects of the owner of reservations are carried out in the controller. Its actor is at `/reservation`.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
};
use crate::{
    owner::{Out, Owner},
    reservation::{
        core::{Changed, ReservationsCore},
        owner::{ReservationAsk, ReservationErrand, ReservationInput, ReservationTimer, Snapshot},
    },
};
use garrick_model::{
    config::Config,
    refusal::Refusal,
    site_program::SiteProgram,
    time::{Timestamp, system_zone},
};
use garrick_runtime::{ReplyTo, TimerKey};
use std::{convert::Infallible, sync::Arc, time::Duration};

/// Messages of the owner of reservations.
pub type ReservationMsg = OwnerMsg<ReservationsCore>;

/// `ResvOverRun`: how long jobs may stay after their reservation has ended; `None`: for ever.
pub(crate) fn over_run(config: &Config) -> Option<Duration> {
    config.resv_over_run.minutes().map(|minutes| Duration::from_secs(minutes * 60))
}

fn snapshot(env: &Env, jobs: bool) -> Snapshot {
    let config = env.config();
    Snapshot {
        nodes: env.boards.nodes.list(),
        partitions: env.boards.partitions.list(),
        licenses: env.licenses.lock().totals().clone(),
        jobs: if jobs { env.boards.jobs.live() } else { Vec::new() },
        over_run: over_run(&config),
        prolog: config.resv_prolog.clone(),
        epilog: config.resv_epilog.clone(),
        zone: system_zone(),
    }
}

impl Shell for ReservationsCore {
    type Ask = ReservationAsk;
    type Gift = Infallible;
    type Hands = ();

    fn name(input: &ReservationInput) -> &'static str {
        match input {
            ReservationInput::Begun { .. } => "Begun",
            ReservationInput::Asked { .. } => "Ask",
            ReservationInput::Tick => "Tick",
            ReservationInput::Seen(_) => "Seen",
        }
    }

    fn ask_name(ask: &ReservationAsk) -> &'static str {
        match ask {
            ReservationAsk::Create { .. } => "Create",
            ReservationAsk::Update(_) => "Update",
            ReservationAsk::Delete(_) => "Delete",
        }
    }

    fn key(_: ReservationTimer) -> TimerKey {
        "tick".into()
    }

    fn asked(request: u64, ask: ReservationAsk) -> ReservationInput {
        ReservationInput::Asked { request, ask }
    }

    fn begin(&mut self, (): &mut (), env: &Env, now: Timestamp, out: &mut Out<Self>) {
        let shown = env.boards.reservations.list().iter().map(|shown| shown.name.clone()).collect();
        self.handle(now, &mut env.ids.clone(), ReservationInput::Begun { shown }, out);
    }

    fn hand(&self, (): &mut (), gift: Infallible) {
        match gift {}
    }

    fn run(&self, (): &mut (), env: &Env, errand: ReservationErrand) -> Came<ReservationInput> {
        match errand {
            ReservationErrand::Look { jobs } => Came::Input(ReservationInput::Seen(Box::new(snapshot(env, jobs)))),
            ReservationErrand::Run { moment, program, name } => {
                tracing::info!(reservation = name, program = moment.key(), "reservation.program");
                let words = [program.to_string_lossy().into_owned()];
                let program = SiteProgram::of_words(moment, words, name, None);
                env.ports.programs.run(program, ReplyTo::calling(drop));
                Came::Nothing
            }
        }
    }

    fn publish(&self, (): &mut (), env: &Env, changed: Changed) {
        let board = &env.boards.reservations;
        match changed {
            Changed { name, saved: Some(saved) } => {
                board.publish(name, Arc::new(saved));
            }
            Changed { name, saved: None } => {
                board.remove(&name);
            }
        }
    }

    fn try_again(after: Duration) -> Result<String, Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "reservation".to_owned()
    }
}

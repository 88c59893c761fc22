//! The steps of the job around this process, from its own step manager, for when the controller does not answer.

use crate::{
    Asker,
    cluster::{Answer, ClusterError},
    manager::{Around, Way},
    search::Search,
};
use garrick_model::{
    ids::JobId,
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    step_selector::StepsSelector,
    view::StepView,
};
use std::env;

/// Steps of the job around this process, from its own step manager, for when the controller does not answer (`error`): where
/// nothing but that job is asked for. That others are missing is said.
pub fn of_own_job(asker: &dyn Asker, error: &ClusterError, asked: &[StepsSelector]) -> Option<Vec<StepView>> {
    let own = Around::read(|name| env::var(name).ok())?;
    if !error.is_passing() && !matches!(error, ClusterError::Unknown(_)) || !asked.iter().all(|steps| own.has(steps)) {
        return None;
    }
    let steps = list(asker, own.job)?.ok()?;
    asker.warning(&format_args!("{error}: these are the steps of job {} alone, from its step manager", own.job));
    Some(steps)
}

fn list(asker: &dyn Asker, job: JobId) -> Option<Answer<Vec<StepView>>> {
    let mut search = Search::new(Way::of_own_job(asker, job)?, asker);
    Some(match search.ask(&CommandToStepMgr::List) {
        Ok(StepMgrToCommand::Steps(steps)) => Ok(steps),
        Ok(StepMgrToCommand::Refused(refusal)) => Err(refusal.into()),
        Ok(_) => Err(ClusterError::Unexpected("asked for steps")),
        Err(no_way) => Err(no_way.into_error()),
    })
}

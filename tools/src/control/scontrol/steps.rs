//! `scontrol notify` and `scontrol update StepId=`: orders to the step managers of running jobs.

use super::{
    NOT_THEIRS, Session, jobs,
    keys::{KeyError, Pair},
    too_few,
};
use crate::query::choices;
use garrick_asking::contact::{self, Asked, Contact};
use garrick_model::{
    messages::{
        command::{CommandRequest, JobSelector},
        stepd::StepsOrder,
    },
    refusal::Refusal,
    step_selector::{StepsSelector, WhichSteps},
    time::{TimeLimit, parse_duration_secs},
    view::{JobView, StepView},
};

/// `notify JOB[.STEP] MESSAGE...`: whichever step is named, the job is told.
pub fn notify(session: &mut Session, words: &[String]) -> i32 {
    let [id, message @ ..] = words else { return too_few(session, "notify") };
    if message.is_empty() {
        return too_few(session, "notify");
    }
    let of_job = id.split_once('.').map_or(id.as_str(), |(job, _)| job);
    let Ok(job) = choices::job(of_job) else {
        return session.plain_error(format_args!("Invalid job_id {id}job notify failure: No error"));
    };
    let mut jobs = [job];
    if let Err(code) = jobs::known(session, &mut jobs) {
        return code;
    }
    let [job] = jobs;
    let request = CommandRequest::OrderSteps { job, order: StepsOrder::Notify(message.join(" ")) };
    match session.cluster().and_then(|c| c.ask(&request)) {
        Ok(_) => 0,
        // It has nobody yet who could say it.
        Err(error) if error.refusal() == Some(&Refusal::JobPending) => {
            session.plain_error(format_args!("job notify failure: {}", Refusal::Disabled))
        }
        Err(error) => session.denied("job notify failure: ", &error, NOT_THEIRS),
    }
}

/// A limit as it is written: absolute, or more or less than the one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewLimit {
    To(TimeLimit),
    By(i64),
}

impl NewLimit {
    fn read(text: &str) -> Result<Self, KeyError> {
        let wrong = KeyError::Unnamed("TimeLimit");
        let secs = |text: &str| parse_duration_secs(text).ok().flatten().and_then(|secs| i64::try_from(secs).ok());
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(more), _) => secs(more).map(Self::By).ok_or(wrong),
            (_, Some(less)) => secs(less).map(|less| Self::By(-less)).ok_or(wrong),
            _ => text.parse().map(Self::To).map_err(|_| wrong),
        }
    }

    fn after(self, before: TimeLimit) -> TimeLimit {
        match (self, before) {
            (Self::To(limit), _) => limit,
            (Self::By(delta), TimeLimit::Secs(secs)) => TimeLimit::Secs(secs.saturating_add_signed(delta)),
            (Self::By(_), TimeLimit::Unlimited) => TimeLimit::Unlimited,
        }
    }
}

/// `StepId=12.0`, or `StepId=12` for all steps of the job. Elements of arrays and components of heterogeneous jobs go by their own
/// ids here (as in 26.05).
fn named(text: &str) -> Option<(JobSelector, WhichSteps)> {
    if !text.contains('.') {
        let job = choices::job(text).ok().filter(|job| job.tasks.is_none() && job.het.is_none())?;
        return Some((job, WhichSteps::All));
    }
    let StepsSelector { job, task: None, het: None, run, which } = choices::steps(text).ok()?.into_iter().next()?
    else {
        return None;
    };
    Some((JobSelector { job, tasks: None, het: None, run }, which))
}

/// What the words of `update StepId=` say.
fn read(words: &[String]) -> Result<(JobSelector, WhichSteps, NewLimit), KeyError> {
    let (mut steps, mut limit) = (None, None);
    for word in words {
        let pair = Pair::split(word, "").ok_or_else(|| KeyError::NoPair(word.clone()))?;
        if pair.is(&["StepId"]) {
            steps = Some(named(pair.value).ok_or_else(|| KeyError::StepId(word.clone()))?);
        } else if pair.is(&["TimeLimit"]) && pair.sign.is_none() {
            limit = Some(NewLimit::read(pair.value)?);
        } else {
            return Err(KeyError::UnknownKey { word: word.clone(), hint: None });
        }
    }
    let (job, which) = steps.ok_or(KeyError::NoEntity)?;
    Ok((job, which, limit.ok_or(KeyError::Nothing)?))
}

/// Runs `update StepId=...`. A limit that is relative to another is so for each step.
pub fn update(session: &mut Session, words: &[String]) -> i32 {
    let (job, which, limit) = match read(words) {
        Ok(read) => read,
        Err(error) => return session.wrong(&error),
    };
    let mut jobs = [job];
    if let Err(code) = jobs::known(session, &mut jobs) {
        return code;
    }
    let [job] = jobs;
    let answer = session.cluster().and_then(|cluster| running(cluster, &job, &which));
    let running = match answer {
        Ok(running) if running.is_empty() => {
            return session.plain_error(format_args!("slurm_update error: {}", Refusal::InvalidJobId));
        }
        Ok(running) => running,
        Err(error) => return session.denied("slurm_update error: ", &error, NOT_THEIRS),
    };
    for (job, step) in running {
        let order = StepsOrder::SetLimit { steps: WhichSteps::one(step.id.key()), limit: limit.after(step.time_limit) };
        let request = CommandRequest::OrderSteps { job, order };
        if let Err(error) = session.cluster().and_then(|c| c.ask(&request)) {
            return session.denied("slurm_update error: ", &error, NOT_THEIRS);
        }
    }
    0
}

/// The steps that are meant, each with a name for its job alone: an element of an array has one of its own.
fn running(cluster: &mut Contact, job: &JobSelector, which: &WhichSteps) -> Asked<Vec<(JobSelector, StepView)>> {
    let mut views = contact::known_jobs(cluster, &CommandRequest::list_jobs(vec![job.clone()]))?;
    // The id of an array, or of a heterogeneous job, is that of one of its parts too.
    views.retain(|view| view.id == job.job);
    let mut meant = Vec::new();
    for (id, name) in views.iter().map(|view| (view.id, alone(view))) {
        let steps = contact::live_steps(cluster, id)?;
        let steps = steps.into_iter().filter(|step| step.id.job == id && which.contains(step.id.key()));
        meant.extend(steps.map(|step| (name.clone(), step)));
    }
    Ok(meant)
}

/// Names this job and no other: an array's id alone would name all of its elements.
fn alone(view: &JobView) -> JobSelector {
    match view.array_task {
        Some(task) => {
            let tasks = Some(vec![(task.index, task.index, 1)]);
            JobSelector { job: task.array_job, tasks, het: None, run: Some(view.sluid) }
        }
        None => {
            let (job, het) = view.spec.het.map_or((view.id, None), |(leader, offset)| (leader, Some(offset)));
            JobSelector { job, tasks: None, het, run: Some(view.sluid) }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{super::typed, *};

    #[test]
    fn limits_are_absolute_or_relative_to_that_of_the_step() {
        let after = |text: &str| NewLimit::read(text).unwrap().after(TimeLimit::Secs(600));
        assert_eq!(after("5"), TimeLimit::Secs(300));
        assert_eq!(after("+5"), TimeLimit::Secs(900));
        assert_eq!(after("-1"), TimeLimit::Secs(540));
        assert_eq!(after("UNLIMITED"), TimeLimit::Unlimited);
        assert_eq!(NewLimit::By(60).after(TimeLimit::Unlimited), TimeLimit::Unlimited);
        assert_eq!(NewLimit::read("x"), Err(KeyError::Unnamed("TimeLimit")));
    }

    #[test]
    fn a_step_or_all_steps_of_a_job_are_meant() {
        let (job, which, limit) = read(&typed(&["StepId=12.3", "TimeLimit=5"])).unwrap();
        assert_eq!((job.job.0, which.to_string(), limit), (12, "3".to_owned(), NewLimit::To(TimeLimit::Secs(300))));
        assert_eq!(read(&typed(&["stepid=12", "timelimit=5"])).unwrap().1, WhichSteps::All);
        assert_eq!(read(&typed(&["StepId=12.3"])), Err(KeyError::Nothing));
        for element in ["StepId=12_3.0", "StepId=12_3", "StepId=12+1.0", "StepId=12+1"] {
            assert_eq!(read(&typed(&[element, "TimeLimit=5"])), Err(KeyError::StepId(element.to_owned())));
        }
        assert_eq!(read(&typed(&["StepId=x", "TimeLimit=5"])), Err(KeyError::StepId("StepId=x".to_owned())));
        for word in ["TimeLimit+=5", "Name=x"] {
            let wrong = read(&typed(&["StepId=12.3", word])).unwrap_err().to_string();
            assert_eq!(wrong, format!("Update of this parameter is not supported: {word}\nRequest aborted"));
        }
    }
}

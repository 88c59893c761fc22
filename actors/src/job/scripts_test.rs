//! Rules of the programs that the controller runs around a run.
#![allow(clippy::unwrap_used)]

use super::{
    core::{JobCore, Leftover},
    effects::{JobEffect, JobErrand},
    fixtures::{Bench, CountingIds},
};
use crate::messages::job::{JobCommand, JobInput, JobPrograms, JobSite, JobTimer, Script};
use garrick_model::{
    ids::Sluid,
    site_program::SiteProgram,
    spec::{JobKind, JobSpec},
    state::JobState,
    testing::spec,
};
use std::{sync::Arc, time::Duration};

fn site() -> Arc<JobSite> {
    let programs = JobPrograms {
        prolog: vec!["/etc/one".to_owned(), "/etc/two".to_owned()],
        prolog_limit: Some(Duration::from_secs(30)),
        epilog: vec!["/etc/after".to_owned()],
        ..JobPrograms::default()
    };
    Arc::new(JobSite { programs, ..JobSite::default() })
}

fn waiting(spec: JobSpec) -> Bench {
    let mut job = Bench::with(spec);
    job.send(JobInput::Site(site()));
    job
}

/// What an input made run.
fn ran(out: &[JobEffect]) -> Option<(Sluid, Script, &SiteProgram)> {
    out.iter().find_map(|effect| match effect {
        JobEffect::Do(JobErrand::Script { sluid, script, program }) => Some((*sluid, *script, &**program)),
        _ => None,
    })
}

fn launched(out: &[JobEffect]) -> bool {
    out.iter().any(|effect| matches!(effect, JobEffect::Do(JobErrand::Launch(_))))
}

fn ended(job: &mut Bench, script: Script, result: Result<(), &str>) -> Vec<JobEffect> {
    let sluid = job.core.record().sluid;
    job.send(JobInput::ScriptEnded { sluid, script, result: result.map_err(str::to_owned) })
}

/// Another life of its owner, with what is on disk.
fn restarted(job: &Bench) -> Vec<JobEffect> {
    let mut again = JobCore::new(job.replayed(), site());
    let mut out = Vec::new();
    again.resume(job.now, &mut CountingIds { job: 1, sluid: 1 }, Leftover::default(), &mut out);
    out
}

#[test]
fn a_run_is_launched_when_its_prolog_succeeded_and_over_when_its_epilog_ended() {
    let mut job = waiting(spec());
    let out = job.allocate(&["n0"]);
    let (_, script, program) = ran(&out).unwrap();
    assert_eq!((script, program.programs.len(), program.limit), (Script::Prolog, 2, Some(Duration::from_secs(30))));
    assert!(program.environment.contains(&("SLURM_JOB_NODELIST".to_owned(), "n0".to_owned())));
    assert!(!launched(&out));
    // Nobody gives up a launch that was not tried.
    assert!(!out.iter().any(|effect| matches!(effect, JobEffect::SetTimer { timer: JobTimer::Launch, .. })));
    assert_eq!(job.state(), JobState::Configuring);
    // Its node asks for it: it is not launched for that, and the prolog does not run twice.
    let sluid = job.core.record().sluid;
    let out = job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid });
    assert!(!launched(&out) && ran(&out).is_none());
    assert!(launched(&ended(&mut job, Script::Prolog, Ok(()))));
    job.started();
    let out = job.ended(JobState::Failed, 3);
    let (_, script, program) = ran(&out).unwrap();
    assert_eq!(script, Script::Epilog);
    assert!(program.environment.contains(&("SLURM_JOB_EXIT_CODE2".to_owned(), "3:0".to_owned())));
    job.released("n0");
    assert_eq!(job.state(), JobState::Completing, "its epilog runs");
    ended(&mut job, Script::Epilog, Err("it is only logged"));
    assert_eq!(job.state(), JobState::Failed);
    assert_eq!(job.replayed(), *job.core.record());
}

#[test]
fn after_a_restart_what_has_not_ended_runs_again_and_nothing_else() {
    let mut job = waiting(spec());
    job.allocate(&["n0"]);
    assert_eq!(ran(&restarted(&job)).unwrap().1, Script::Prolog);
    ended(&mut job, Script::Prolog, Ok(()));
    assert!(ran(&restarted(&job)).is_none());
    job.started();
    job.ended(JobState::Completed, 0);
    assert_eq!(ran(&restarted(&job)).unwrap().1, Script::Epilog);
    job.released("n0");
    assert_eq!(ran(&restarted(&job)).unwrap().1, Script::Epilog);
    ended(&mut job, Script::Epilog, Ok(()));
    assert!(ran(&restarted(&job)).is_none());
}

#[test]
fn a_failed_prolog_requeues_what_may_be_and_cancels_the_rest() {
    let interactive = JobSpec { kind: JobKind::Allocation, ..spec() };
    let never = JobSpec { requeue: Some(false), ..spec() };
    for (spec, state, restarts) in
        [(spec(), JobState::Pending, 1), (interactive, JobState::Cancelled, 0), (never, JobState::Cancelled, 0)]
    {
        let mut job = waiting(spec.clone());
        if spec.requeue == Some(false) {
            let mut record = job.core.record().clone();
            record.resolved.requeue = false;
            job = Bench::new(record).0;
            job.send(JobInput::Site(site()));
        }
        job.allocate(&["n0"]);
        let out = ended(&mut job, Script::Prolog, Err("exit code 3"));
        assert!(!launched(&out));
        assert_eq!(ran(&out).unwrap().1, Script::Epilog);
        job.released("n0");
        ended(&mut job, Script::Epilog, Ok(()));
        assert_eq!((job.state(), job.core.record().restarts, job.core.record().hold), (state, restarts, None));
        assert_eq!(job.view().system_comment.as_deref(), Some("exit code 3"));
    }
}

#[test]
fn a_job_that_is_cancelled_while_its_prolog_runs_is_never_launched() {
    let mut job = waiting(spec());
    job.allocate(&["n0"]);
    job.order(JobCommand::Cancel).unwrap();
    let out = ended(&mut job, Script::Prolog, Ok(()));
    assert!(!launched(&out));
    assert_eq!(ran(&out).unwrap().1, Script::Epilog);
    // Where its node has answered first, the epilog waits for the end of the prolog.
    let mut job = waiting(spec());
    job.allocate(&["n0"]);
    job.order(JobCommand::Cancel).unwrap();
    let out = job.released("n0");
    assert!(ran(&out).is_none(), "{out:?}");
    assert_eq!(job.state(), JobState::Completing);
    assert_eq!(ran(&ended(&mut job, Script::Prolog, Err("killed"))).unwrap().1, Script::Epilog);
    ended(&mut job, Script::Epilog, Ok(()));
    assert_eq!(job.state(), JobState::Cancelled);
}

/// Without an epilog, nothing holds back the next run: its prolog waits for the end of the one before.
#[test]
fn the_next_run_has_its_prolog_where_that_of_the_last_one_still_ran() {
    let programs = JobPrograms { epilog: Vec::new(), ..site().programs.clone() };
    let mut job = Bench::with(spec());
    job.send(JobInput::Site(Arc::new(JobSite { programs, ..JobSite::default() })));
    job.allocate(&["n0"]);
    let first = job.core.record().sluid;
    job.send(JobInput::NodeLost { node: "n0".to_owned(), sluid: first });
    assert_eq!((job.state(), job.core.record().restarts), (JobState::Pending, 1));
    job.now = job.now.plus(Duration::from_secs(3600));
    let out = job.allocate(&["n1"]);
    assert_eq!(job.state(), JobState::Configuring);
    assert!(ran(&out).is_none() && !launched(&out), "one at a time: {out:?}");
    let out = job.send(JobInput::ScriptEnded { sluid: first, script: Script::Prolog, result: Ok(()) });
    let second = job.core.record().sluid;
    assert_eq!(ran(&out).map(|(sluid, script, _)| (sluid, script)), Some((second, Script::Prolog)));
    assert!(launched(&ended(&mut job, Script::Prolog, Ok(()))));
}

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{World, script};
use garrick_model::{ids::JobId, messages::command::Caller};
use std::{fs, thread};

fn ask(what: Requested) -> SiteAsk {
    let caller = Caller { uid: 5, gid: 60, pid: 1, host: "head".to_owned() };
    SiteAsk { caller, user: "games".to_owned(), closed: Vec::new(), heterogeneous: false, what }
}

fn checked(checks: &SiteChecks, world: World, what: Requested) -> Result<SiteAnswer, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { checks.check(ask(what), Arc::new(world)).await })
}

fn job() -> Requested {
    Requested::Jobs(vec![JobSpec::default()])
}

#[test]
fn without_checks_nothing_is_asked() {
    let world = World::default();
    let checks = SiteChecks::start(Path::new("/nonexistent"), &world.config).unwrap();
    assert!(!checks.has_checks(&world.config));
    assert!(checks.has_checks(&World::with("JobSubmitPlugins=require_timelimit").config));
}

#[test]
fn a_job_without_a_time_limit_is_refused_where_the_site_wants_one() {
    let conf = "JobSubmitPlugins=require_timelimit,all_partitions";
    let checks = SiteChecks::start(Path::new("/nonexistent"), &World::with(conf).config).unwrap();
    let refused = Refusal::BySite { number: 8000, said: Vec::new() };
    assert_eq!(refused.to_string(), "Time limit specification required, but not provided");
    assert_eq!(checked(&checks, World::with(conf), job()), Err(refused));
    let limited = JobSpec { time_limit: Some(garrick_model::time::TimeLimit::Secs(60)), ..JobSpec::default() };
    let answer = checked(&checks, World::with(conf), Requested::Jobs(vec![limited])).unwrap();
    assert_eq!(answer.jobs[0].partitions, ["debug"]);
}

/// A script that is broken later is not taken: the one before goes on, until there is a good one.
#[test]
fn a_script_is_read_again_when_it_changes_and_a_broken_one_is_not_taken() {
    let conf = "JobSubmitPlugins=lua";
    let (folder, path) = script("function slurm_job_submit(job_desc) job_desc.comment = 'first' end");
    let checks = SiteChecks::start(&folder.0, &World::with(conf).config).unwrap();
    let comment = || checked(&checks, World::with(conf), job()).map(|answer| answer.jobs[0].comment.clone());
    let first = Ok(Some("first".to_owned()));
    assert_eq!(comment(), first);
    fs::write(&path, "this is no Lua").unwrap();
    assert_eq!((comment(), comment()), (first.clone(), first));
    let second = "function slurm_job_submit(job_desc) job_desc.comment = 'second' end function slurm_job_modify() end";
    fs::write(&path, second).unwrap();
    assert_eq!(comment(), Ok(Some("second".to_owned())));
}

#[test]
fn a_controller_does_not_start_with_a_script_that_is_broken_or_not_there() {
    let world = World::with("JobSubmitPlugins=lua");
    let error = SiteChecks::start(Path::new("/nonexistent"), &world.config).unwrap_err();
    assert!(error.to_string().starts_with("JobSubmitPlugins=lua: cannot read /nonexistent/job_submit.lua"), "{error}");
    let (folder, _) = script("function (");
    let error = SiteChecks::start(&folder.0, &world.config).unwrap_err();
    assert!(error.to_string().contains("job_submit.lua:1:"), "{error}");
}

#[test]
fn each_change_is_checked_by_itself_and_messages_are_told_once() {
    let conf = "JobSubmitPlugins=lua";
    let (folder, _) = script(
        "function slurm_job_modify(job_desc, job_rec)
            slurm.log_user('looked at %s', job_rec.name)
            if job_desc.nice ~= slurm.NO_VAL then return slurm.ESLURM_ACCESS_DENIED end
            job_desc.comment = 'seen'
        end",
    );
    let checks = SiteChecks::start(&folder.0, &World::with(conf).config).unwrap();
    let changes = vec![
        (JobId(7), JobChange::default()),
        (JobId(7), JobChange { nice: Some(3), ..JobChange::default() }),
        (JobId(9), JobChange::default()),
    ];
    let answer = checked(&checks, World::with(conf), Requested::Changes(changes)).unwrap();
    assert_eq!(answer.said, ["looked at old", "looked at old"]);
    let seen = JobChange { comment: Some("seen".to_owned()), ..JobChange::default() };
    let denied = Refusal::BySite { number: 2002, said: Vec::new() };
    let want = vec![(JobId(7), Ok(seen)), (JobId(7), Err(denied)), (JobId(9), Err(Refusal::InvalidJobId))];
    assert_eq!(answer.changes, want);
}

/// Many who ask at once are all answered, each with its own job.
#[test]
fn requests_are_checked_one_after_another() {
    let conf = "JobSubmitPlugins=lua";
    let (folder, _) = script("function slurm_job_submit(d) n = (n or 0) + 1; d.comment = d.name .. ' is one' end");
    let checks = SiteChecks::start(&folder.0, &World::with(conf).config).unwrap();
    thread::scope(|scope| {
        let ask = |n: u32| {
            let checks = &checks;
            scope.spawn(move || {
                let spec = JobSpec { name: format!("j{n}"), ..JobSpec::default() };
                let answer = checked(checks, World::with(conf), Requested::Jobs(vec![spec])).unwrap();
                assert_eq!(answer.jobs[0].comment, Some(format!("j{n} is one")));
            })
        };
        let asking: Vec<_> = (0..20).map(ask).collect();
        asking.into_iter().for_each(|one| one.join().unwrap());
    });
}
